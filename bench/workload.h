/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * YCSB's core workloads as sources of operations: a load, which inserts the records once, and a
 * run, which draws operations and keys. Each thread has a source; together they give exactly as
 * many operations as were asked for, whatever the number of threads. The sources lie in shared
 * memory: the threads may be those of several processes.
 */
#ifndef RKV_BENCH_WORKLOAD_H
#define RKV_BENCH_WORKLOAD_H

#include "bench/generator.h"
#include "bench/inserts.h"
#include "bench/sizes.h"
#include "bench/source.h"

struct workload_mix {
	char letter;               /* '-': none of YCSB's */
	double shares[SOURCE_OPS]; /* sum 1 */
	enum gen_distribution distribution;
};

/* NULL: none of that letter (e too: scans need an order, and the index is a hash table). */
const struct workload_mix *workload_find(char letter);

/* One kind of operation only: for the bare fabric. */
const struct workload_mix *workload_raw(bool is_update);

/* What all sources share; borrowed by them. */
struct workload {
	struct workload_mix mix;
	struct gen_choice choice;
	struct sizes sizes;
	bool is_ordered;      /* keys are named by their number, not by its hash */
	uint32_t n_digits;    /* ordered: at least so many, with zeros before; 1: as they are */
	uint64_t first;       /* key number of the first record */
	uint64_t n_records;   /* there before the run: first .. first + n_records - 1 */
	uint64_t next_insert; /* key number of the first insert of a run; first + n_records */
	uint64_t n_operations;
	uint64_t seed;
};

/* The part of n that thread `index` of n_threads takes; the parts differ by one at most. */
uint64_t workload_part(uint64_t n, uint32_t index, uint32_t n_threads);

/* NULL: no memory. */
struct sources *workload_load(const struct workload *workload, uint32_t n_threads);

/*
 * n_operations of the workload's kind, drawn with random numbers of their own for each stream.
 * inserts: shared by runs that follow one another; begins with next_insert.
 */
struct sources *workload_run(const struct workload *workload, uint64_t n_operations,
			     uint32_t stream, struct inserts *inserts, uint32_t n_threads);

#endif
