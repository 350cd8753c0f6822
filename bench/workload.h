/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * YCSB's core workloads as sources of operations: a load, which inserts the records once, and a
 * run, which draws operations and keys. Each thread has a source; together they give exactly as
 * many operations as were asked for, whatever the number of threads.
 */
#ifndef RKV_BENCH_WORKLOAD_H
#define RKV_BENCH_WORKLOAD_H

#include "bench/generator.h"
#include "bench/inserts.h"
#include "bench/source.h"

struct workload_mix {
	char letter;
	double shares[SOURCE_OPS]; /* sum 1 */
	enum gen_distribution distribution;
};

/* NULL: none of that letter (e too: scans need an order, and the index is a hash table). */
const struct workload_mix *workload_find(char letter);

/* What all sources of a run share. */
struct workload {
	const struct workload_mix *mix;
	enum gen_distribution distribution;
	uint64_t first;     /* key number of the first record */
	uint64_t n_records; /* there before the run: first .. first + n_records - 1 */
	uint64_t n_operations;
	uint64_t seed;
};

/* The part of n that thread `index` of n_threads takes; the parts differ by one at most. */
uint64_t workload_part(uint64_t n, uint32_t index, uint32_t n_threads);

/* The sources of all threads. NULL: no memory. */
struct workload_sources;
struct workload_sources *workload_load(const struct workload *workload, uint32_t n_threads);
struct workload_sources *workload_run(const struct workload *workload, uint32_t n_threads);
void workload_sources_destroy(struct workload_sources *sources);

struct source *workload_source(struct workload_sources *sources, uint32_t thread);

#endif
