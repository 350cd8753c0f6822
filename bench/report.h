/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is told of a phase: while it runs, as a table, as JSON, as CSV, as pictures, and whether
 * anything was wrong.
 */
#ifndef RKV_BENCH_REPORT_H
#define RKV_BENCH_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "bench/driver.h"
#include "bench/options.h"

struct report_phase {
	const char *name; /* "load", "warm-up" or "run" */
	bool is_run;
	uint64_t n_asked; /* operations that there should have been */
	bool has_server_cpu;
	uint64_t server_cpu_ns;
	struct driver_result result;
};

/* ---- What follows from a result ---- */

/* "read", "update", "insert", "rmw (cas)", "rmw (blind)", ..., "raw get" ... */
const char *report_op_name(const struct options *options, int op);

/* What the run was on: the server's address, or the fabric's name if that is all there is. */
const char *report_place(const struct options *options);

uint64_t report_wall_ns(const struct report_phase *phase);

/* Operations that were done (hits) per second. */
double report_rate(const struct report_phase *phase, uint64_t n_hits);

/* Of client and server together, for each operation; what a core could do is the inverse. */
uint64_t report_cpu_ns(const struct report_phase *phase);

/* Counters of the library over all its operations. */
struct rkv_op_stats report_stats_sum(const struct rkv_stats_values *stats);
uint64_t report_stats_count(const struct rkv_op_stats *stats);

extern const char *const report_call_names[RKV_OP_COUNT];

struct report_percentile {
	const char *name;
	uint32_t per_million;
};
#define REPORT_PERCENTILES 6
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

/* Whether a key that is not there (or, for an add, is) is as it may be. */
bool report_allows_misses(const struct options *options);

/* Open loop: the last operations started when they should, or a hundredth of the run too late. */
bool report_kept_schedule(const struct options *options, const struct report_phase *phase);

/*
 * Whether all went well: every operation was done, nothing was missed that has to be there, no
 * value was wrong, a schedule was kept.
 */
bool report_is_good(const struct options *options, const struct report_phase *phase);

void report_text(FILE *out, const struct options *options, const struct report_phase *phase);

void report_json(FILE *out, const struct options *options, const struct report_phase *phases,
		 int n_phases);

void report_csv(FILE *out, const struct options *options, const struct report_phase *phases,
		int n_phases);

/* Draws what the last phase did. False: something could not be written or run, and it was said. */
bool report_plot(const struct options *options, const struct report_phase *phase);

/* A line on a terminal, drawn over and over; one after the other elsewhere. */
struct report_progress {
	const char *name;
	uint64_t n_asked;
	uint64_t time_max_ns; /* 0: no limit */
	bool is_terminal;
	uint64_t n_before; /* at the last line */
	uint64_t ns_before;
};
#define REPORT_PROGRESS_NS UINT64_C(1000000000)
void report_progress(struct report_progress *progress, uint64_t n_done, uint64_t elapsed_ns);
void report_progress_end(const struct report_progress *progress);

#endif
