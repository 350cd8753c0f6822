/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One benchmark thread: takes tasks from its source, keeps `depth` of them in flight on its
 * session, and counts how they end. A closed loop: the next task starts when one has ended. Create
 * and destroy are for the thread that owns the driver; in between, all but worker_n_done is for the
 * worker's own.
 */
#ifndef RKV_BENCH_WORKER_H
#define RKV_BENCH_WORKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "bench/source.h"
#include "bench/tally.h"
#include "client/include/rkv.h"

struct worker_config {
	uint32_t depth;
	uint32_t timeout_ms; /* also of all tries of one operation together */
	uint64_t value_size; /* bytes */
	uint64_t seed;
	bool blind;  /* read-modify-write by put instead of compare-and-swap */
	bool verify; /* check every value that is read */
};

struct worker;

/* The session and the configuration are borrowed. NULL: no memory. */
struct worker *worker_create(const struct worker_config *config, struct rkv_session *session,
			     uint32_t index);
void worker_destroy(struct worker *worker);

/* Forgets what was counted; worker_run will then take its tasks from source. */
void worker_prepare(struct worker *worker, struct source *source);

/*
 * Runs until the source has no more, or, once *stop is set, until what is in flight has ended. The
 * failure of the session if it fails as a whole: what was in flight is then not counted.
 */
int worker_run(struct worker *worker, const _Atomic bool *stop);

const struct tally *worker_tally(const struct worker *worker);

/* Operations that have ended so far; any thread. */
uint64_t worker_n_done(const struct worker *worker);

/* Of a clock that only goes forward. */
uint64_t worker_now_ns(void);

#endif
