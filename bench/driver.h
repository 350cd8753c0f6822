/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A session and a worker for each thread, and the phases (load, run) that they go through together.
 * Sessions live from open to close, so that a run begins with what the load left in their location
 * caches. One thread owns a driver.
 */
#ifndef RKV_BENCH_DRIVER_H
#define RKV_BENCH_DRIVER_H

#include "bench/series.h"
#include "bench/source.h"
#include "bench/tally.h"
#include "bench/target.h"
#include "bench/worker.h"

struct driver_config {
	uint32_t n_threads;
	uint32_t first_thread; /* its number among the threads of all processes */
	struct worker_config worker;
};

struct driver_result {
	struct tally tally;
	struct rkv_stats_values stats; /* what the phase added, over all sessions */
	struct series series;
	uint64_t start_ns;
	uint64_t end_ns;
	uint64_t cpu_ns; /* of the process, user and system */
	uint64_t lag_ns; /* open loop: how late the last operation of a thread started, at most */
	int failure;     /* RKV_OK, or why a session gave up */
};

/* Adds what another process did at the same time; the series is left as it is. */
void driver_merge(struct driver_result *result, const struct driver_result *other);

/* Called every SERIES_STEP_NS while a phase runs, and at its end. False: it shall end. */
typedef bool (*driver_progress_fn)(void *arg, uint64_t n_done, uint64_t elapsed_ns);

struct driver;

/* A failure of rkv.h. Configuration and target are borrowed until the driver is closed. */
int driver_open(const struct driver_config *config, struct target *target,
		struct driver **ret_driver);
void driver_close(struct driver *driver);

struct driver_phase {
	struct sources *sources;
	double interval_ns;   /* between operations of all threads together; 0: closed loop */
	uint64_t time_max_ns; /* 0: no limit */
	driver_progress_fn progress;
	void *progress_arg;
};

/*
 * Runs the sources of this driver's threads to their end, or for time_max_ns and until what is then
 * in flight has ended. RKV_E_NOMEM: no threads; nothing was run.
 */
int driver_run(struct driver *driver, const struct driver_phase *phase,
	       struct driver_result *ret_result);

#endif
