/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many operations had ended at which time, for the rate over time: samples at equal distances,
 * which double whenever there is no room for more. One thread.
 */
#ifndef RKV_BENCH_SERIES_H
#define RKV_BENCH_SERIES_H

#include <stdint.h>

#define SERIES_MAX 512u
#define SERIES_STEP_NS UINT64_C(100000000) /* at first */

struct series_point {
	uint64_t elapsed_ns;
	uint64_t n_done;
};

/* All zero is an empty one. */
struct series {
	uint32_t n;
	uint32_t n_doublings;
	struct series_point points[SERIES_MAX];
};

/* Drops what comes sooner than a step behind the last point. */
void series_add(struct series *series, uint64_t elapsed_ns, uint64_t n_done);

#endif
