/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where operations come from. The driver asks each thread's source what to do next, and tells it
 * how that ended; it knows nothing of workloads. A source belongs to one thread.
 */
#ifndef RKV_BENCH_SOURCE_H
#define RKV_BENCH_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

enum source_op { SOURCE_READ, SOURCE_UPDATE, SOURCE_INSERT, SOURCE_RMW };
#define SOURCE_OPS 4

/* What source->next returns. */
enum {
	SOURCE_TASK = 0,
	SOURCE_END = 1,  /* nothing is left, for ever */
	SOURCE_LATER = 2 /* not before operations in flight, of any thread, have ended */
};

struct source_task {
	enum source_op op;
	uint64_t key; /* number of the key */
};

/* Aligned, so that the sources of two threads share no cache line. */
struct source {
	_Alignas(64) int (*next)(struct source *source, struct source_task *ret_task);
	/* Each task once. ok: it was done, and everybody may rely on that. */
	void (*done)(struct source *source, const struct source_task *task, bool ok);
};

#endif
