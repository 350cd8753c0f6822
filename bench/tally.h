/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What came out of a thread's operations, by kind. An operation is counted once: as a hit (it was
 * done), a miss (the key was absent, or, for an add, there), or an error. Latencies are those of
 * hits only, so that a fast failure does not embellish them.
 */
#ifndef RKV_BENCH_TALLY_H
#define RKV_BENCH_TALLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/histogram.h"
#include "bench/source.h"

/* Beside the codes of rkv.h: the operation succeeded and gave a value that is wrong. */
#define TALLY_BAD_VALUE 15
#define TALLY_CODE_MIN (-16)
#define TALLY_CODES 32

struct tally_op {
	uint64_t n_misses;
	uint64_t n_errors[TALLY_CODES]; /* [code - TALLY_CODE_MIN] */
	uint64_t n_again;               /* times the store asked to come back, which is no error */
	uint64_t n_cas_lost;          /* read-modify-writes begun anew, as another one came first */
	struct histogram latency_ns;  /* from the start; its n is the number of hits */
	struct histogram intended_ns; /* open loop: from when it ought to have started */
};

struct tally_bad_value {
	uint64_t name; /* number in the key's name */
	size_t len;
	size_t offset; /* of the first byte that is wrong */
};

struct tally {
	struct tally_op op[SOURCE_OPS];
	uint64_t n_bad_values;
	struct tally_bad_value first_bad_value;
};

#define TALLY_CLOSED UINT64_MAX /* intended_ns in a closed loop: there is none */
void tally_end(struct tally *tally, enum source_op op, int status, uint64_t latency_ns,
	       uint64_t intended_ns);
void tally_bad_value(struct tally *tally, const struct tally_bad_value *bad);
void tally_merge(struct tally *tally, const struct tally *other);

uint64_t tally_errors(const struct tally_op *op);
uint64_t tally_count(const struct tally_op *op);

/* Of all kinds. */
struct tally_total {
	uint64_t n_count;
	uint64_t n_hits;
	uint64_t n_misses;
	uint64_t n_errors;
	uint64_t n_again;
	uint64_t n_cas_lost;
};
struct tally_total tally_total(const struct tally *tally);

#endif
