/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where operations come from. The driver asks each thread's source what to do next, and tells it
 * how that ended; it knows nothing of workloads. A source belongs to one thread.
 */
#ifndef RKV_BENCH_SOURCE_H
#define RKV_BENCH_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

enum source_op {
	SOURCE_READ,
	SOURCE_UPDATE,
	SOURCE_INSERT,
	SOURCE_RMW,
	SOURCE_ADD,     /* if the key is absent; that it is there is a miss */
	SOURCE_REPLACE, /* if the key is there */
	SOURCE_DELETE
};
#define SOURCE_OPS 7

/* What source->next returns. */
enum {
	SOURCE_TASK = 0,
	SOURCE_END = 1,  /* nothing is left, for ever */
	SOURCE_LATER = 2 /* not before operations in flight, of any thread, have ended */
};

#define SOURCE_KEY_MAX 250u

struct source_task {
	enum source_op op;
	uint32_t key_len;
	uint64_t number;    /* of the key, for what has an order: inserts, places in memory */
	uint64_t name;      /* of the key, for what tells keys apart: values */
	uint64_t value_len; /* that is written, or expected */
	uint32_t ttl_s;     /* 0: for ever */
	char key[SOURCE_KEY_MAX];
};

/* Aligned, so that the sources of two threads share no cache line. */
struct source {
	_Alignas(64) int (*next)(struct source *source, struct source_task *ret_task);
	/* Each task once. ok: it was done, and everybody may rely on that. */
	void (*done)(struct source *source, const struct source_task *task, bool ok);
};

/* The sources of all threads of all processes, which are forked later. Aligned as they are. */
struct sources {
	_Alignas(64) uint64_t n_operations; /* of all together */
	struct source *(*of)(struct sources *sources, uint32_t thread);
	void (*destroy)(struct sources *sources);
};

#endif
