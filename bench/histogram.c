/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A value's bucket is found from the place of its highest bit: shifted right until 8 bits are left,
 * it is 128..255, and the number of shifts tells the doubling.
 */
#include "bench/histogram.h"

static uint32_t
bucket_of(uint64_t value)
{
	if (value < HISTOGRAM_EXACT)
		return (uint32_t)value;
	uint32_t shift = 63 - 7 - (uint32_t)__builtin_clzll(value);
	uint32_t within = (uint32_t)(value >> shift) - HISTOGRAM_DIVISIONS;
	return HISTOGRAM_EXACT + (shift - 1) * HISTOGRAM_DIVISIONS + within;
}

/* The highest value of a bucket; for the last one the sum wraps to the highest of all. */
static uint64_t
bucket_top(uint32_t bucket)
{
	if (bucket < HISTOGRAM_EXACT)
		return bucket;
	uint32_t shift = (bucket - HISTOGRAM_EXACT) / HISTOGRAM_DIVISIONS + 1;
	uint64_t within = (bucket - HISTOGRAM_EXACT) % HISTOGRAM_DIVISIONS;
	return ((HISTOGRAM_DIVISIONS + within + 1) << shift) - 1;
}

void
histogram_add(struct histogram *histogram, uint64_t value)
{
	histogram->n++;
	histogram->sum += value;
	if (value > histogram->max)
		histogram->max = value;
	histogram->buckets[bucket_of(value)]++;
}

void
histogram_merge(struct histogram *histogram, const struct histogram *other)
{
	histogram->n += other->n;
	histogram->sum += other->sum;
	if (other->max > histogram->max)
		histogram->max = other->max;
	for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++)
		histogram->buckets[i] += other->buckets[i];
}

uint64_t
histogram_percentile(const struct histogram *histogram, uint32_t per_million)
{
	unsigned __int128 scaled = (unsigned __int128)histogram->n * per_million;
	uint64_t rank = (uint64_t)((scaled + 999999) / 1000000);
	uint64_t n_seen = 0;
	for (uint32_t i = 0; i < HISTOGRAM_BUCKETS && rank > 0; i++) {
		n_seen += histogram->buckets[i];
		if (n_seen >= rank)
			return bucket_top(i) < histogram->max ? bucket_top(i) : histogram->max;
	}
	return 0;
}

double
histogram_mean(const struct histogram *histogram)
{
	return histogram->n ? (double)histogram->sum / (double)histogram->n : 0;
}
