/* SPDX-License-Identifier: BSD-2-Clause */
/* The command line of kv-bench, checked. */
#ifndef RKV_BENCH_OPTIONS_H
#define RKV_BENCH_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/workload.h"

struct options {
	const char *server;
	const struct workload_mix *mix;
	enum gen_distribution distribution;
	const char *json_path; /* NULL: none; "-": standard output */
	uint64_t n_records;
	uint64_t n_operations;
	uint64_t insert_start;
	uint64_t value_size; /* bytes */
	uint64_t n_threads;
	uint64_t depth;
	uint64_t timeout_ms;
	uint64_t cache_bytes;
	uint64_t time_max_s; /* 0: no limit */
	uint64_t seed;
	bool load;
	bool run;
	bool blind;
	bool verify;
};

enum {
	OPTIONS_GO = 0,
	OPTIONS_SAID = 1, /* --help or --version: printed, nothing is left to do */
	OPTIONS_BAD = -1  /* the sentence that belongs to it has been printed */
};

int options_parse(int argc, char **argv, struct options *ret_options);

const char *options_distribution_name(enum gen_distribution distribution);

#endif
