/* SPDX-License-Identifier: BSD-2-Clause */
/* The command line of kv-bench, and the property files it names, checked. */
#ifndef RKV_BENCH_OPTIONS_H
#define RKV_BENCH_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/raw.h"
#include "bench/target.h"
#include "bench/workload.h"

struct options {
	const char *server;
	struct target_identity identity;
	const char *workload_name; /* a letter, a file, or what is run instead */
	struct workload workload;
	const char *trace_path; /* NULL: no trace, a workload */
	const char *json_path;  /* NULL: none; "-": standard output */
	const char *csv_path;   /* the same */
	const char *plot_path;  /* NULL: none; else what the files' names begin with */
	uint64_t n_threads;     /* of each process */
	uint64_t n_processes;
	uint64_t depth;
	uint64_t rate;      /* operations a second of the run; 0: closed loop */
	uint64_t n_warm_up; /* operations before the run that are not counted */
	uint64_t timeout_ms;
	uint64_t cache_bytes;
	uint64_t time_max_s; /* 0: no limit */
	enum raw_kind raw_kind;
	enum rkv_fabric fabric;   /* raw: not RKV_FABRIC_AUTO */
	const char *rdma_address; /* raw: "host" or "host:port"; NULL: the first usable device */
	bool raw;                 /* the bare fabric instead of a server */
	bool idle;                /* nothing instead of a server */
	bool load;
	bool run;
	bool blind;
	bool verify;
	bool progress; /* also if standard error is no terminal */
};

enum {
	OPTIONS_GO = 0,
	OPTIONS_SAID = 1, /* --help or --version: printed, nothing is left to do */
	OPTIONS_BAD = -1  /* the sentence that belongs to it has been printed */
};

int options_parse(int argc, char **argv, struct options *ret_options);

/*
 * For options.c and properties.c: the place of a word among those that are taken; a number from min
 * to max. name: of the option or property. OPTIONS_GO or OPTIONS_BAD.
 */
int options_word(const char *name, const char *const words[], int n, const char *text,
		 int *ret_index);
int options_number(const char *name, uint64_t min, uint64_t max, const char *text,
		   uint64_t *ret_number);

#define OPTIONS_VALUE_MAX (UINT64_C(1) << 30)        /* bytes */
#define OPTIONS_COUNT_MAX UINT64_C(1000000000000000) /* sums of three stay far below 2^63 */

extern const char *const options_distributions[GEN_DISTRIBUTIONS];

/* --help */
extern const char options_help[];

#endif
