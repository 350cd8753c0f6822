/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads are made anew for each phase and wait at a gate until all are there, so that none runs
 * alone at the start; if one cannot be made, the gate sends the others home. The phase lasts from
 * the first worker's start to the last one's end.
 */
#include "bench/driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "bench/clock.h"

struct driver_thread {
	struct driver *driver;
	struct target_session *session;
	struct worker *worker;
	pthread_t thread;
	uint64_t end_ns;
	int failure;
};

enum gate { GATE_CLOSED, GATE_OPEN, GATE_HOME };

struct driver {
	const struct driver_config *config;
	struct target *target;
	struct driver_thread *threads;
	uint32_t n_threads; /* that have a session */
	pthread_mutex_t lock;
	pthread_cond_t change; /* of gate and n_running */
	enum gate gate;
	uint64_t start_ns; /* when the gate opened */
	uint32_t n_running;
	_Atomic bool stop;
};

/* ---- Opening ---- */

static int
open_threads(struct driver *driver)
{
	const struct driver_config *config = driver->config;
	for (uint32_t i = 0; i < config->n_threads; i++) {
		struct driver_thread *thread = &driver->threads[i];
		thread->driver = driver;
		int code = driver->target->session_open(driver->target, &thread->session);
		if (code < 0)
			return code;
		driver->n_threads++;
		thread->worker =
			worker_create(&config->worker, thread->session, config->first_thread + i);
		if (thread->worker == NULL)
			return RKV_E_NOMEM;
	}
	return RKV_OK;
}

int
driver_open(const struct driver_config *config, struct target *target, struct driver **ret_driver)
{
	int code = RKV_E_NOMEM;
	struct driver *driver = calloc(1, sizeof(*driver));
	if (driver == NULL)
		return code;
	driver->config = config;
	driver->target = target;
	pthread_condattr_t attributes;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&driver->change, &attributes);
	pthread_condattr_destroy(&attributes);
	pthread_mutex_init(&driver->lock, NULL);
	driver->threads = calloc(config->n_threads, sizeof(*driver->threads));
	if (driver->threads == NULL)
		goto fail;
	code = open_threads(driver);
	if (code < 0)
		goto fail;
	*ret_driver = driver;
	return RKV_OK;
fail:
	driver_close(driver);
	return code;
}

void
driver_close(struct driver *driver)
{
	if (driver == NULL)
		return;
	for (uint32_t i = 0; i < driver->n_threads; i++) {
		driver->target->session_close(driver->threads[i].session);
		worker_destroy(driver->threads[i].worker);
	}
	pthread_cond_destroy(&driver->change);
	pthread_mutex_destroy(&driver->lock);
	free(driver->threads);
	free(driver);
}

/* ---- A phase ---- */

static void
change_running(struct driver *driver, int difference)
{
	pthread_mutex_lock(&driver->lock);
	driver->n_running += (uint32_t)difference;
	pthread_cond_broadcast(&driver->change);
	pthread_mutex_unlock(&driver->lock);
}

static bool
gate_opens(struct driver *driver)
{
	pthread_mutex_lock(&driver->lock);
	while (driver->gate == GATE_CLOSED)
		pthread_cond_wait(&driver->change, &driver->lock);
	bool open = driver->gate == GATE_OPEN;
	pthread_mutex_unlock(&driver->lock);
	return open;
}

static void
set_gate(struct driver *driver, enum gate gate)
{
	pthread_mutex_lock(&driver->lock);
	driver->gate = gate;
	driver->start_ns = clock_ns();
	pthread_cond_broadcast(&driver->change);
	pthread_mutex_unlock(&driver->lock);
}

static void *
thread_main(void *arg)
{
	struct driver_thread *thread = arg;
	if (!gate_opens(thread->driver))
		return NULL;
	struct driver *driver = thread->driver;
	thread->failure = worker_run(thread->worker, driver->start_ns, &driver->stop);
	thread->end_ns = clock_ns();
	change_running(driver, -1);
	return NULL;
}

static void
join_threads(struct driver *driver, uint32_t n_threads)
{
	for (uint32_t i = 0; i < n_threads; i++)
		pthread_join(driver->threads[i].thread, NULL);
}

static int
start_threads(struct driver *driver, const struct driver_phase *phase)
{
	driver->gate = GATE_CLOSED;
	driver->n_running = driver->n_threads;
	atomic_store(&driver->stop, false);
	for (uint32_t i = 0; i < driver->n_threads; i++) {
		struct driver_thread *thread = &driver->threads[i];
		uint32_t number = driver->config->first_thread + i;
		worker_prepare(thread->worker, phase->sources->of(phase->sources, number),
			       phase->interval_ns);
		if (pthread_create(&thread->thread, NULL, thread_main, thread) != 0) {
			set_gate(driver, GATE_HOME);
			join_threads(driver, i);
			return RKV_E_NOMEM;
		}
	}
	return RKV_OK;
}

static uint64_t
n_done(const struct driver *driver)
{
	uint64_t n = 0;
	for (uint32_t i = 0; i < driver->n_threads; i++)
		n += worker_n_done(driver->threads[i].worker);
	return n;
}

/* Waits until no thread runs, at most for so long; true if none does. */
static bool
wait_for(struct driver *driver, uint64_t span_ns)
{
	uint64_t until_ns = clock_kernel_ns() + span_ns;
	struct timespec until = {
		.tv_sec = (time_t)(until_ns / CLOCK_S_NS),
		.tv_nsec = (long)(until_ns % CLOCK_S_NS),
	};
	int timed_out = 0;
	pthread_mutex_lock(&driver->lock);
	while (driver->n_running > 0 && !timed_out)
		timed_out = pthread_cond_timedwait(&driver->change, &driver->lock, &until);
	bool ended = driver->n_running == 0;
	pthread_mutex_unlock(&driver->lock);
	return ended;
}

/* Shows how far it is; ends the phase if that is answered with false. */
static void
show(struct driver *driver, const struct driver_phase *phase)
{
	uint64_t elapsed_ns = clock_ns() - driver->start_ns;
	if (!phase->progress(phase->progress_arg, n_done(driver), elapsed_ns))
		atomic_store(&driver->stop, true);
}

static void
watch_threads(struct driver *driver, const struct driver_phase *phase)
{
	uint64_t max_ns = phase->time_max_ns ? phase->time_max_ns : UINT64_MAX;
	uint64_t elapsed_ns = 0;
	uint64_t wait_ns;
	do {
		if (elapsed_ns > 0)
			show(driver, phase);
		elapsed_ns = clock_ns() - driver->start_ns;
		if (elapsed_ns >= max_ns)
			atomic_store(&driver->stop, true);
		uint64_t left_ns = elapsed_ns < max_ns ? max_ns - elapsed_ns : UINT64_MAX;
		wait_ns = left_ns < SERIES_STEP_NS ? left_ns : SERIES_STEP_NS;
	} while (!wait_for(driver, wait_ns));
	show(driver, phase);
}

/* ---- Counters ---- */

/* The counters are all of one type: to add them up they are an array. */
#define N_STATS (sizeof(struct rkv_stats_values) / sizeof(uint64_t))
_Static_assert(sizeof(struct rkv_stats_values) == N_STATS * sizeof(uint64_t), "counters only");

static void
add_stats(uint64_t sums[N_STATS], const struct rkv_stats_values *values)
{
	uint64_t counters[N_STATS];
	memcpy(counters, values, sizeof(counters));
	for (size_t k = 0; k < N_STATS; k++)
		sums[k] += counters[k];
}

static void
sum_stats(const struct driver *driver, uint64_t ret_sums[N_STATS])
{
	memset(ret_sums, 0, N_STATS * sizeof(ret_sums[0]));
	for (uint32_t i = 0; i < driver->n_threads; i++) {
		struct rkv_stats_values values = {0};
		driver->target->stats(driver->threads[i].session, &values);
		add_stats(ret_sums, &values);
	}
}

static void
added_stats(const struct driver *driver, const uint64_t before[N_STATS],
	    struct rkv_stats_values *ret_stats)
{
	uint64_t sums[N_STATS];
	sum_stats(driver, sums);
	for (size_t k = 0; k < N_STATS; k++)
		sums[k] -= before[k];
	memcpy(ret_stats, sums, sizeof(sums));
}

static uint64_t
cpu_now_ns(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	uint64_t seconds = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec);
	uint64_t microseconds = (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
	return seconds * CLOCK_S_NS + microseconds * 1000;
}

static void
collect(const struct driver *driver, struct driver_result *result)
{
	result->start_ns = driver->start_ns;
	for (uint32_t i = 0; i < driver->n_threads; i++) {
		const struct driver_thread *thread = &driver->threads[i];
		uint64_t lag_ns = worker_lag_ns(thread->worker);
		tally_merge(&result->tally, worker_tally(thread->worker));
		result->lag_ns = lag_ns > result->lag_ns ? lag_ns : result->lag_ns;
		result->end_ns = thread->end_ns > result->end_ns ? thread->end_ns : result->end_ns;
		if (thread->failure < 0)
			result->failure = thread->failure;
	}
}

int
driver_run(struct driver *driver, const struct driver_phase *phase,
	   struct driver_result *ret_result)
{
	uint64_t stats_before[N_STATS];
	sum_stats(driver, stats_before);
	uint64_t cpu_start_ns = cpu_now_ns();
	int code = start_threads(driver, phase);
	if (code < 0)
		return code;
	set_gate(driver, GATE_OPEN);
	watch_threads(driver, phase);
	join_threads(driver, driver->n_threads);
	memset(ret_result, 0, sizeof(*ret_result));
	ret_result->cpu_ns = cpu_now_ns() - cpu_start_ns;
	added_stats(driver, stats_before, &ret_result->stats);
	collect(driver, ret_result);
	return RKV_OK;
}

void
driver_merge(struct driver_result *result, const struct driver_result *other)
{
	uint64_t sums[N_STATS];
	memset(sums, 0, sizeof(sums));
	add_stats(sums, &result->stats);
	add_stats(sums, &other->stats);
	memcpy(&result->stats, sums, sizeof(sums));
	tally_merge(&result->tally, &other->tally);
	if (other->start_ns < result->start_ns)
		result->start_ns = other->start_ns;
	if (other->end_ns > result->end_ns)
		result->end_ns = other->end_ns;
	if (other->lag_ns > result->lag_ns)
		result->lag_ns = other->lag_ns;
	if (other->failure < 0)
		result->failure = other->failure;
	result->cpu_ns += other->cpu_ns;
}
