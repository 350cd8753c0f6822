/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One benchmark thread: takes tasks from its source, keeps up to `depth` of them in flight on its
 * session, and counts how they end.
 *
 *   closed loop   the next task starts when one has ended: one reading of the clock serves
 *                 both, and what it takes to choose a key counts as latency
 *   open loop     task k of thread i of n is due at start + (k * n + i) * interval, and starts then
 *                 or as soon after as one of the `depth` places is free. Its latency is taken from
 *                 both moments: what it waited for a place is what a user would have waited. It
 *                 ends when the task behind the last one would be due: rate x time = operations.
 *
 * Create and destroy are for the thread that owns the driver; in between, all but worker_n_done is
 * for the worker's own.
 */
#ifndef RKV_BENCH_WORKER_H
#define RKV_BENCH_WORKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "bench/source.h"
#include "bench/tally.h"
#include "bench/target.h"

struct worker_config {
	uint32_t depth;
	uint32_t timeout_ms; /* also of all tries of one operation together */
	uint64_t value_max;  /* bytes */
	uint64_t seed;
	uint32_t n_threads; /* all, of all processes */
	bool blind;         /* read-modify-write by put instead of compare-and-swap */
	bool verify;        /* check every value that is read */
};

struct worker;

/* The session and the configuration are borrowed. index: among n_threads. NULL: no memory. */
struct worker *worker_create(const struct worker_config *config, struct target_session *session,
			     uint32_t index);
void worker_destroy(struct worker *worker);

/*
 * Forgets what was counted; worker_run will then take its tasks from source. interval_ns: between
 * tasks of all threads together; 0: closed loop.
 */
void worker_prepare(struct worker *worker, struct source *source, double interval_ns);

/*
 * Runs until the source has no more, or, once *stop is set, until what is in flight has ended. The
 * failure of the session if it fails as a whole: what was in flight is then not counted.
 */
int worker_run(struct worker *worker, uint64_t start_ns, const _Atomic bool *stop);

const struct tally *worker_tally(const struct worker *worker);

/* Open loop: how much too late the last task started that was started. */
uint64_t worker_lag_ns(const struct worker *worker);

/* Operations that have ended so far; any thread. */
uint64_t worker_n_done(const struct worker *worker);

#endif
