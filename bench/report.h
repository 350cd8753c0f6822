/* SPDX-License-Identifier: BSD-2-Clause */
/* What is told of a phase: while it runs, as a table, as JSON, and whether anything was wrong. */
#ifndef RKV_BENCH_REPORT_H
#define RKV_BENCH_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "bench/driver.h"
#include "bench/options.h"

struct report_phase {
	const char *name; /* "load" or "run" */
	uint64_t n_asked; /* operations that there should have been */
	struct driver_result result;
};

/* ---- What follows from a result ---- */

/* "read", "update", "insert", "rmw (cas)" or "rmw (blind)". */
const char *report_op_name(const struct options *options, int op);

/* Operations that were done (hits) per second. */
double report_rate(const struct report_phase *phase, uint64_t n_hits);

/* Counters of the library over all its operations. */
struct rkv_op_stats report_stats_sum(const struct rkv_stats_values *stats);
uint64_t report_stats_count(const struct rkv_op_stats *stats);

extern const char *const report_call_names[RKV_OP_COUNT];

struct report_percentile {
	const char *name;
	uint32_t per_million;
};
#define REPORT_PERCENTILES 4
extern const struct report_percentile report_percentiles[REPORT_PERCENTILES];

/* n / of, or 0 */
double report_ratio(uint64_t n, uint64_t of);

struct report_machine {
	uint32_t n_cores; /* online */
	char cpu[96];
	char system[200];
};
void report_machine(struct report_machine *ret_machine);

/* ---- Telling ---- */

/* Whether all went well: every operation was done, nothing was missed, no value was wrong. */
bool report_is_good(const struct options *options, const struct report_phase *phase);

void report_text(FILE *out, const struct options *options, const struct report_phase *phase);

void report_json(FILE *out, const struct options *options, const struct report_phase *phases,
		 int n_phases);

/* A line on a terminal, drawn over and over; arg of driver_progress_fn is a report_progress. */
struct report_progress {
	const char *name;
	uint64_t n_asked;
	uint64_t n_before; /* at the last line */
	uint64_t ns_before;
};
void report_progress(void *arg, uint64_t n_done, uint64_t elapsed_ns);
void report_progress_end(const struct report_progress *progress);

#endif
