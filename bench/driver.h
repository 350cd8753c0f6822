/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The client, a session and a worker for each thread, and the phases (load, run) that they go
 * through together. Sessions live from open to close, so that a run begins with what the load left
 * in their location caches. One thread owns a driver.
 */
#ifndef RKV_BENCH_DRIVER_H
#define RKV_BENCH_DRIVER_H

#include "bench/tally.h"
#include "bench/worker.h"
#include "bench/workload.h"
#include "client/include/rkv.h"

struct driver_config {
	const char *server;
	uint32_t n_threads;
	size_t cache_bytes; /* of each session */
	struct worker_config worker;
	rkv_log_fn log;
};

struct driver_result {
	struct tally tally;
	struct rkv_stats_values stats; /* what the phase added, over all sessions */
	uint64_t wall_ns;
	uint64_t cpu_ns; /* of the process, user and system */
	int failure;     /* RKV_OK, or why a session gave up */
};

/* Called once a second while a phase runs. */
typedef void (*driver_progress_fn)(void *arg, uint64_t n_done, uint64_t elapsed_ns);

struct driver;

/* A failure of rkv.h. The configuration is borrowed until the driver is closed. */
int driver_open(const struct driver_config *config, struct driver **ret_driver);
void driver_close(struct driver *driver);

/* The longest value, in bytes, that the server takes beside our keys. */
uint64_t driver_value_size_max(struct driver *driver);

/*
 * Runs all sources to their end, or for time_max_ns (0: no limit) and until what is then in flight
 * has ended. progress may be NULL. RKV_E_NOMEM: no threads; nothing was run.
 */
int driver_run(struct driver *driver, struct workload_sources *sources, uint64_t time_max_ns,
	       driver_progress_fn progress, void *progress_arg, struct driver_result *ret_result);

#endif
