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

#define SECOND_NS UINT64_C(1000000000)

struct driver_thread {
	struct driver *driver;
	struct rkv_session *session;
	struct worker *worker;
	pthread_t thread;
	uint64_t start_ns;
	uint64_t end_ns;
	int failure;
};

enum gate { GATE_CLOSED, GATE_OPEN, GATE_HOME };

struct driver {
	const struct driver_config *config;
	struct rkv_client *client;
	struct driver_thread *threads;
	uint32_t n_threads; /* that have a session */
	pthread_mutex_t lock;
	pthread_cond_t change; /* of gate and n_running */
	enum gate gate;
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
		int code = rkv_session_open(driver->client, &thread->session);
		if (code < 0)
			return code;
		driver->n_threads++;
		thread->worker = worker_create(&config->worker, thread->session, i);
		if (thread->worker == NULL)
			return RKV_E_NOMEM;
	}
	return RKV_OK;
}

static void
fill_in_options(const struct driver_config *config, struct rkv_options *ret_options)
{
	rkv_options_init(ret_options);
	ret_options->op_timeout_ms = config->worker.timeout_ms;
	ret_options->depth = config->worker.depth;
	ret_options->cache_bytes = config->cache_bytes;
	ret_options->log = config->log;
}

int
driver_open(const struct driver_config *config, struct driver **ret_driver)
{
	struct rkv_options options;
	int code = RKV_E_NOMEM;
	struct driver *driver = calloc(1, sizeof(*driver));
	if (driver == NULL)
		return code;
	driver->config = config;
	pthread_condattr_t attributes;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&driver->change, &attributes);
	pthread_condattr_destroy(&attributes);
	pthread_mutex_init(&driver->lock, NULL);
	driver->threads = calloc(config->n_threads, sizeof(*driver->threads));
	if (driver->threads == NULL)
		goto fail;
	fill_in_options(config, &options);
	code = rkv_open(config->server, &options, &driver->client);
	if (code < 0)
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
		rkv_session_close(driver->threads[i].session);
		worker_destroy(driver->threads[i].worker);
	}
	rkv_close(driver->client);
	pthread_cond_destroy(&driver->change);
	pthread_mutex_destroy(&driver->lock);
	free(driver->threads);
	free(driver);
}

uint64_t
driver_value_size_max(struct driver *driver)
{
	const uint64_t header = 40; /* of a block, says rkv_limit_values */
	struct rkv_limit_values limits;
	if (rkv_limits(driver->client, &limits) != RKV_OK)
		return 0;
	return limits.block_len_max - header - GEN_KEY_MAX;
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
	pthread_cond_broadcast(&driver->change);
	pthread_mutex_unlock(&driver->lock);
}

static void *
thread_main(void *arg)
{
	struct driver_thread *thread = arg;
	if (!gate_opens(thread->driver))
		return NULL;
	thread->start_ns = worker_now_ns();
	thread->failure = worker_run(thread->worker, &thread->driver->stop);
	thread->end_ns = worker_now_ns();
	change_running(thread->driver, -1);
	return NULL;
}

static void
join_threads(struct driver *driver, uint32_t n_threads)
{
	for (uint32_t i = 0; i < n_threads; i++)
		pthread_join(driver->threads[i].thread, NULL);
}

static int
start_threads(struct driver *driver, struct workload_sources *sources)
{
	driver->gate = GATE_CLOSED;
	driver->n_running = driver->n_threads;
	atomic_store(&driver->stop, false);
	for (uint32_t i = 0; i < driver->n_threads; i++) {
		struct driver_thread *thread = &driver->threads[i];
		worker_prepare(thread->worker, workload_source(sources, i));
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

/* Waits until no thread runs, at most until then; true if none does. */
static bool
wait_until(struct driver *driver, uint64_t until_ns)
{
	struct timespec until = {
		.tv_sec = (time_t)(until_ns / SECOND_NS),
		.tv_nsec = (long)(until_ns % SECOND_NS),
	};
	int timed_out = 0;
	pthread_mutex_lock(&driver->lock);
	while (driver->n_running > 0 && !timed_out)
		timed_out = pthread_cond_timedwait(&driver->change, &driver->lock, &until);
	bool ended = driver->n_running == 0;
	pthread_mutex_unlock(&driver->lock);
	return ended;
}

static void
watch_threads(struct driver *driver, uint64_t time_max_ns, driver_progress_fn progress, void *arg)
{
	uint64_t start_ns = worker_now_ns();
	uint64_t stop_ns = time_max_ns ? start_ns + time_max_ns : UINT64_MAX;
	uint64_t report_ns = start_ns + SECOND_NS;
	while (!wait_until(driver, report_ns < stop_ns ? report_ns : stop_ns)) {
		uint64_t now_ns = worker_now_ns();
		if (now_ns >= stop_ns) {
			atomic_store(&driver->stop, true);
			stop_ns = UINT64_MAX;
		}
		if (now_ns < report_ns)
			continue;
		report_ns += SECOND_NS;
		if (progress)
			progress(arg, n_done(driver), now_ns - start_ns);
	}
}

/* ---- Counters ---- */

/* The counters are all of one type: to add them up they are an array. */
#define N_STATS (sizeof(struct rkv_stats_values) / sizeof(uint64_t))
_Static_assert(sizeof(struct rkv_stats_values) == N_STATS * sizeof(uint64_t), "counters only");

static void
sum_stats(const struct driver *driver, uint64_t ret_sums[N_STATS])
{
	memset(ret_sums, 0, N_STATS * sizeof(ret_sums[0]));
	for (uint32_t i = 0; i < driver->n_threads; i++) {
		struct rkv_stats_values values = {0};
		uint64_t counters[N_STATS];
		rkv_stats(driver->threads[i].session, &values);
		memcpy(counters, &values, sizeof(counters));
		for (size_t k = 0; k < N_STATS; k++)
			ret_sums[k] += counters[k];
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
	return seconds * SECOND_NS + microseconds * 1000;
}

static void
collect(const struct driver *driver, struct driver_result *result)
{
	uint64_t start_ns = UINT64_MAX;
	uint64_t end_ns = 0;
	for (uint32_t i = 0; i < driver->n_threads; i++) {
		const struct driver_thread *thread = &driver->threads[i];
		tally_merge(&result->tally, worker_tally(thread->worker));
		start_ns = thread->start_ns < start_ns ? thread->start_ns : start_ns;
		end_ns = thread->end_ns > end_ns ? thread->end_ns : end_ns;
		if (thread->failure < 0)
			result->failure = thread->failure;
	}
	result->wall_ns = end_ns - start_ns;
}

int
driver_run(struct driver *driver, struct workload_sources *sources, uint64_t time_max_ns,
	   driver_progress_fn progress, void *progress_arg, struct driver_result *ret_result)
{
	uint64_t stats_before[N_STATS];
	sum_stats(driver, stats_before);
	uint64_t cpu_start_ns = cpu_now_ns();
	int code = start_threads(driver, sources);
	if (code < 0)
		return code;
	set_gate(driver, GATE_OPEN);
	watch_threads(driver, time_max_ns, progress, progress_arg);
	join_threads(driver, driver->n_threads);
	memset(ret_result, 0, sizeof(*ret_result));
	ret_result->cpu_ns = cpu_now_ns() - cpu_start_ns;
	added_stats(driver, stats_before, &ret_result->stats);
	collect(driver, ret_result);
	return RKV_OK;
}
