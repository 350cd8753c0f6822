/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kv-bench's histogram against the sorted values: a percentile is never below the exact one and
 * less than 1/128 above it, over the whole range; and merging is the same as having counted
 * together.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bench/generator.h"
#include "bench/histogram.h"

#define VALUES 20000

static const uint32_t percentiles[] = {1, 100000, 500000, 900000, 990000, 999000, 999990, 1000000};
#define N_PERCENTILES (sizeof(percentiles) / sizeof(percentiles[0]))

static struct histogram *
empty(void)
{
	struct histogram *histogram = calloc(1, sizeof(*histogram));
	assert_non_null(histogram);
	return histogram;
}

static int
ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a;
	uint64_t y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* The smallest value that is not exceeded by per_million parts of the sorted values. */
static uint64_t
exact(const uint64_t *sorted, uint64_t n, uint32_t per_million)
{
	uint64_t rank = (n * per_million + 999999) / 1000000;
	return sorted[rank - 1];
}

/* Adds the values and compares; sorts them. */
static void
compare(uint64_t *values, uint64_t n)
{
	struct histogram *histogram = empty();
	for (uint64_t i = 0; i < n; i++)
		histogram_add(histogram, values[i]);
	qsort(values, n, sizeof(values[0]), ascending);
	uint64_t before = 0;
	for (size_t i = 0; i < N_PERCENTILES; i++) {
		uint64_t found = histogram_percentile(histogram, percentiles[i]);
		uint64_t expected = exact(values, n, percentiles[i]);
		assert_true(found >= expected);
		assert_true(found - expected <= expected / HISTOGRAM_DIVISIONS);
		assert_true(found >= before);
		before = found;
	}
	assert_true(before == values[n - 1]);
	assert_true(histogram->max == values[n - 1]);
	assert_true(histogram->n == n);
	free(histogram);
}

static void
test_percentiles(void **state)
{
	static uint64_t values[VALUES];
	struct gen_random random;
	(void)state;
	gen_random_seed(&random, 1, 0);
	/* Ranges from one number to all of 64 bits; within each also small values. */
	for (int n_bits = 0; n_bits <= 63; n_bits += 3) {
		for (int i = 0; i < VALUES; i++)
			values[i] = gen_u64(&random) >> (63 - n_bits) >> gen_below(&random, 8);
		compare(values, VALUES);
	}
	for (int i = 0; i < VALUES; i++)
		values[i] = gen_u64(&random) >> gen_below(&random, 64);
	compare(values, VALUES);
}

/* Around each power of two, where buckets change their width. */
static void
test_every_edge(void **state)
{
	(void)state;
	for (int shift = 0; shift < 64; shift++) {
		uint64_t edge = UINT64_C(1) << shift;
		for (uint64_t value = edge - 1; value <= edge + 1; value++) {
			uint64_t values[] = {value, UINT64_MAX};
			compare(values, 2);
			compare(values, 1);
		}
	}
}

static void
test_small_values_are_exact(void **state)
{
	struct histogram *histogram = empty();
	(void)state;
	for (uint64_t value = 0; value < HISTOGRAM_EXACT; value++)
		histogram_add(histogram, value);
	histogram_add(histogram, 1000000);
	for (uint32_t value = 0; value < HISTOGRAM_EXACT; value++) {
		uint32_t per_million = (value + 1) * UINT32_C(1000000) / (HISTOGRAM_EXACT + 1);
		assert_true(histogram_percentile(histogram, per_million) == value);
	}
	free(histogram);
}

static void
test_empty(void **state)
{
	struct histogram *histogram = empty();
	(void)state;
	assert_true(histogram_percentile(histogram, 500000) == 0);
	assert_true(histogram_percentile(histogram, 1000000) == 0);
	assert_true(histogram_mean(histogram) == 0);
	free(histogram);
}

static void
test_mean(void **state)
{
	struct histogram *histogram = empty();
	(void)state;
	histogram_add(histogram, 1000);
	histogram_add(histogram, 2000);
	histogram_add(histogram, 6000);
	assert_true(histogram_mean(histogram) == 3000);
	free(histogram);
}

static void
test_merge(void **state)
{
	struct histogram *parts[3] = {empty(), empty(), empty()};
	struct histogram *whole = empty();
	struct histogram *merged = empty();
	struct gen_random random;
	(void)state;
	gen_random_seed(&random, 2, 0);
	for (int i = 0; i < VALUES; i++) {
		uint64_t value = gen_u64(&random) >> (24 + gen_below(&random, 40));
		histogram_add(parts[i % 2], value); /* the third part stays empty */
		histogram_add(whole, value);
	}
	for (int i = 0; i < 3; i++) {
		histogram_merge(merged, parts[i]);
		free(parts[i]);
	}
	assert_memory_equal(merged, whole, sizeof(*whole));
	free(merged);
	free(whole);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_percentiles),
		cmocka_unit_test(test_every_edge),
		cmocka_unit_test(test_small_values_are_exact),
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_mean),
		cmocka_unit_test(test_merge),
	};
	return cmocka_run_group_tests_name("histogram", tests, NULL, NULL);
}
