/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Is a history of a key-value store linearisable? A history says, operation by operation, what was
 * asked, what came back, and between which two moments. It is linearisable if the operations can be
 * put in one order that respects time (an operation that answered before another was invoked stands
 * before it) and in which a store that runs them one by one gives the same answers.
 *
 * The store that is meant: a key is absent, or holds a value and a version; every write makes a new
 * version. `add` over a value answers EXISTS; `replace`, `cas`, `touch` and `delete` of nothing
 * answer NOT_FOUND; `cas` expects a version and else answers MISMATCH; `touch` keeps the value and
 * makes a new version. Values do not expire.
 *
 * Recording: each thread or process fills an array of struct lin_op of its own; lin_history_add
 * merges them afterwards. Let each write have a value id of its own (client << 48 | serial): the
 * checker does not need it, but it sees more. Nothing here is for two threads at once.
 */
#ifndef RKV_TESTS_SIM_LIN_H
#define RKV_TESTS_SIM_LIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The numbers are those of enum rkv_op. */
enum lin_kind {
	LIN_GET = 0,
	LIN_PUT = 1,
	LIN_ADD = 2,
	LIN_REPLACE = 3,
	LIN_CAS = 4,
	LIN_DELETE = 5,
	LIN_TOUCH = 6
};
#define LIN_KIND_COUNT 7

/* The numbers of the first four are those of RKV_OK to RKV_MISMATCH. */
enum lin_result {
	LIN_DONE = 0,
	LIN_NOT_FOUND = 1,
	LIN_EXISTS = 2,
	LIN_MISMATCH = 3,
	LIN_OPEN =
		4, /* crashed, timed out, MAYBE: took effect once after its invocation, or never */
	LIN_FAILED = 5 /* known not to have taken effect: ignored */
};
#define LIN_RESULT_COUNT 6

/*
 * Moments are of any clock that all clients share. Equal ones count as concurrent, so a coarse
 * clock makes the check less strict, never wrong.
 */
struct lin_op {
	uint64_t key;
	uint64_t value;    /* put, add, replace, cas: the id it writes; get, DONE: the id it read */
	uint64_t version;  /* get, DONE: read; writes, DONE or OPEN: made; 0: not known */
	uint64_t expected; /* cas; never 0 */
	int64_t invoked;
	int64_t responded; /* not looked at if OPEN */
	uint32_t client;   /* for the reader of a dump only */
	uint8_t kind;
	uint8_t result;
};

struct lin_history {
	struct lin_op *ops;
	size_t n_ops; /* set it to 0 to use the memory again */
	size_t n_room;
};

/* Failure: ERR_NOMEM. */
int lin_history_new(struct lin_history **ret_history);

/* Appends n operations, in any order. Failure: ERR_NOMEM, with nothing appended. */
int lin_history_add(struct lin_history *history, const struct lin_op *ops, size_t n);

void lin_history_free(struct lin_history *history);

/* The result to record for a status of librkv: OPEN for TIMEOUT and MAYBE, else FAILED if < 0. */
enum lin_result lin_result_of_status(int status);

/* Both bounds are about effort, not about what counts as right. */
struct lin_options {
	size_t max_configs; /* held at once for one key: bounds memory; 1..2^31-1, default 2^18 */
	uint64_t max_steps; /* moves tried in all: bounds time; default 2^30 */
};

enum lin_reason {
	LIN_REASON_NONE = 0,
	LIN_REASON_PLACE,         /* no order explains the answer of this operation */
	LIN_REASON_AHEAD,         /* no order explains it and later answers */
	LIN_REASON_VERSION_TWICE, /* another write was given the same version */
	LIN_REASON_CONFIGS,       /* undecided: max_configs */
	LIN_REASON_STEPS          /* undecided: max_steps */
};

/* A state that the key can have been in. */
struct lin_state {
	bool present;
	bool version_known;
	uint64_t value;
	uint64_t version;
};

#define LIN_REPORT_STATES 8

/*
 * BAD names the first answer that has no explanation (PLACE): up to it, the history is
 * linearisable; with it, it is not. If finding it takes too much effort, an earlier one is named
 * (AHEAD). If several keys are bad, the earliest answer is taken.
 */
struct lin_report {
	enum lin_reason reason;
	uint64_t key;
	size_t op;            /* index in the history */
	int64_t window_begin; /* since then some operation on the key was always in flight */
	size_t n_states; /* states that the history allowed before that answer; the first of them */
	struct lin_state states[LIN_REPORT_STATES];

	size_t n_keys; /* effort, always set */
	size_t n_ops;  /* without those ignored */
	size_t n_configs_max;
	uint64_t n_steps;
};

#define LIN_OK 0
#define LIN_BAD 1
#define LIN_UNDECIDED 2 /* a bound was met on a key, and no other key is bad */

/*
 * LIN_OK, LIN_BAD or LIN_UNDECIDED. options NULL: the defaults. Failures: ERR_NOMEM; ERR_INVALID (a
 * kind, result or bound out of range, an answer before its question, 2^31 operations).
 */
int lin_check(const struct lin_history *history, const struct lin_options *options,
	      struct lin_report *ret_report);

/* Writes for people: what is wrong, the states that were possible, and the operations around it. */
void lin_dump(const struct lin_history *history, const struct lin_report *report, FILE *out);

#endif
