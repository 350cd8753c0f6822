/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counts of latencies over the whole range of 64 bits with a bounded relative error. Values below
 * 256 have a bucket each; above, every doubling is divided into 128, so that a percentile is never
 * below the true one and less than 1/128 above it. Maximum and mean are exact. One thread writes a
 * histogram; those of several threads are added up afterwards.
 */
#ifndef RKV_BENCH_HISTOGRAM_H
#define RKV_BENCH_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_DIVISIONS 128u
#define HISTOGRAM_EXACT (2 * HISTOGRAM_DIVISIONS)
#define HISTOGRAM_BUCKETS (HISTOGRAM_EXACT + 56 * HISTOGRAM_DIVISIONS)

/* All zero is an empty one. */
struct histogram {
	uint64_t n;
	uint64_t sum;
	uint64_t max;
	uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *histogram, uint64_t value);

void histogram_merge(struct histogram *histogram, const struct histogram *other);

/* The value that so many parts of a million do not exceed: 500000 is the median. 0 if empty. */
uint64_t histogram_percentile(const struct histogram *histogram, uint32_t per_million);

/* 0 if empty. */
double histogram_mean(const struct histogram *histogram);

#endif
