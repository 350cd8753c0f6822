/* SPDX-License-Identifier: BSD-2-Clause */
/* A litmus program as it is run: what litmus_parse.c makes and litmus.c executes. */
#ifndef RKV_TESTS_SIM_LITMUS_PROGRAM_H
#define RKV_TESTS_SIM_LITMUS_PROGRAM_H

#include "tests/sim/litmus.h"

#define LITMUS_NAME_MAX 8u

enum op {
	OP_STORE,
	OP_LOAD,
	OP_LOCAL_CAS,
	OP_MFENCE,
	OP_AWAIT,
	OP_SEND,
	OP_RECV,
	OP_UNLESS,
	OP_SKIP,
	OP_POLL,
	OP_WRITE, /* from here on: posts */
	OP_WRITE_INLINE,
	OP_READ,
	OP_CAS,
	OP_FAA,
};

struct operand {
	bool is_register;
	uint64_t v;
};

struct statement {
	enum op op;
	bool is_fenced;
	unsigned reg;
	unsigned location;
	unsigned qp;
	unsigned ahead;
	unsigned n_pieces;
	struct {
		unsigned remote;
		unsigned local;
	} piece[LITMUS_PIECES];
	struct operand value[LITMUS_PIECES]; /* of a store, of inlined pieces; expect and swap */
};

struct litmus {
	unsigned n_locations;
	struct {
		char name[LITMUS_NAME_MAX];
		unsigned node;
		uint64_t init;
	} location[LITMUS_LOCATIONS];
	unsigned n_qps;
	struct {
		char name[LITMUS_NAME_MAX];
		unsigned node;
	} qp[LITMUS_QPS];
	unsigned n_threads;
	struct {
		char name[LITMUS_NAME_MAX];
		unsigned n;
		struct statement statement[LITMUS_STATEMENTS];
		bool loads[LITMUS_REGISTERS]; /* registers that a statement sets */
	} thread[LITMUS_THREADS];
	unsigned by_name[LITMUS_THREADS];
};

/* Numbers of names; names that are not there end the test program. */
unsigned litmus_location(const struct litmus *litmus, const char *name);
unsigned litmus_thread(const struct litmus *litmus, const char *name);

#endif
