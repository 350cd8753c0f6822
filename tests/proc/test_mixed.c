/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Eight sessions in four processes on sixteen keys, all operations mixed: no answer is foreign,
 * torn or missing, and the merged history is linearisable. Increments by compare-and-swap are all
 * there. Many keys, each with its own answer.
 *
 * This process has no client before it forks: the thread sanitizer lets only a single-threaded
 * process do so, and a process that has used an RDMA device must not.
 *
 * The build with tiny tags runs the mixed load for a minute: every block rests at each fourth use.
 * The build with tiny hashes lets keys meet that otherwise never would. timeout: 600
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "client/include/rkv.h"
#include "proto/limits.h"
#include "tests/proc/load.h"
#include "tests/proc/proc.h"

#define N_PROCESSES 4u
#define N_SESSIONS 8u
#define N_KEYS 16u
#if LIMIT_TAG_BITS < 12
#define MIXED_MS 60000
#define POOL_SIZE "256M" /* most of it rests at any time */
#else
#define MIXED_MS 1 /* one round */
#define POOL_SIZE "64M"
#endif
#define ROUND_OPS (SANITIZED ? 2000u : 8000u) /* of a session */
#define BURST_OPS 200u
/* Of one round. On an emulated processor of a busy host it takes minutes. */
#define ROUND_WAIT_MS (8 * PROC_WAIT_MS)

static struct server *server;

static int
setup(void **state)
{
	(void)state;
	server = server_start("--pool-size", POOL_SIZE, "--chunk-size", "64K", NULL);
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	return server_stop(server);
}

/* ---- Mixed ---- */

struct shared {
	_Atomic uint64_t n_again;
	_Atomic uint64_t n_done;
	_Atomic uint64_t resting_max;
	uint64_t round;
	struct {
		_Atomic size_t n;
		struct lin_op ops[ROUND_OPS];
	} history[N_SESSIONS];
};

static struct shared *shared;

/* One session of a process. */
struct worker {
	struct rkv_client *client;
	unsigned number;
	uint64_t n_bad;
};

static void
note_resting(struct rkv_session *session)
{
	struct rkv_stats_values stats;
	load_require(rkv_stats(session, &stats) == RKV_OK);
	if (stats.n_blocks_resting > atomic_load(&shared->resting_max))
		atomic_store(&shared->resting_max, stats.n_blocks_resting);
}

/* Blocking calls and operations in flight in turns. */
static void *
work(void *arg)
{
	struct worker *worker = arg;
	struct load load = {
		.n_keys = N_KEYS,
		.writer = worker->number,
		.random = shared->round << 8 | worker->number,
		.history = shared->history[worker->number].ops,
	};
	load_require(rkv_session_open(worker->client, &load.session) == RKV_OK);
	for (size_t n = 0; n < ROUND_OPS && !load.n_bad; n += BURST_OPS) {
		load.depth = n / BURST_OPS % 2 ? 8 : 0;
		load_mix(&load, BURST_OPS);
		note_resting(load.session);
	}
	rkv_session_close(load.session);
	atomic_store(&shared->history[worker->number].n, load.n_history);
	atomic_fetch_add(&shared->n_again, load.n_again);
	atomic_fetch_add(&shared->n_done, load.n_done);
	worker->n_bad = load.n_bad;
	return NULL;
}

static int
run_process(void *arg)
{
	unsigned first = *(const unsigned *)arg;
	struct worker workers[N_SESSIONS / N_PROCESSES];
	pthread_t threads[N_SESSIONS / N_PROCESSES];
	struct rkv_options options;
	uint64_t n_bad = 0;
	rkv_options_init(&options);
	options.op_timeout_ms = PROC_WAIT_MS;
	for (unsigned i = 0; i < N_SESSIONS / N_PROCESSES; i++) {
		workers[i] = (struct worker){.number = first + i};
		/* In every second process the sessions share a client. */
		if (i == 0 || first % 4 == 0)
			load_require(rkv_open(server->address, &options, &workers[i].client) ==
				     RKV_OK);
		else
			workers[i].client = workers[0].client;
		load_require(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
	}
	for (unsigned i = 0; i < N_SESSIONS / N_PROCESSES; i++) {
		pthread_join(threads[i], NULL);
		n_bad += workers[i].n_bad;
	}
	for (unsigned i = N_SESSIONS / N_PROCESSES; i-- > 0;)
		if (i == 0 || first % 4 == 0)
			rkv_close(workers[i].client);
	return n_bad ? 1 : 0;
}

static void
check_history(struct lin_history *history)
{
	struct lin_report report;
	history->n_ops = 0;
	for (unsigned i = 0; i < N_SESSIONS; i++)
		assert_int_equal(lin_history_add(history, shared->history[i].ops,
						 atomic_load(&shared->history[i].n)),
				 0);
	int verdict = lin_check(history, NULL, &report);
	if (verdict != LIN_OK)
		lin_dump(history, &report, stderr);
	assert_int_equal(verdict, LIN_OK);
	assert_true(report.n_ops > N_SESSIONS * ROUND_OPS / 2);
}

static void
connect_client(struct rkv_client **ret_client, struct rkv_session **ret_session)
{
	assert_int_equal(rkv_open(server->address, NULL, ret_client), RKV_OK);
	assert_int_equal(rkv_session_open(*ret_client, ret_session), RKV_OK);
}

/* A history begins with nothing there. */
static int
remove_keys(void *arg)
{
	struct rkv_client *client;
	struct rkv_session *session;
	char key[LOAD_KEY_TEXT];
	(void)arg;
	load_require(rkv_open(server->address, NULL, &client) == RKV_OK);
	load_require(rkv_session_open(client, &session) == RKV_OK);
	for (unsigned i = 0; i < N_KEYS; i++) {
		int rc = rkv_delete(session, key, load_key(i, key));
		load_require(rc == RKV_OK || rc == RKV_NOT_FOUND);
	}
	rkv_close(client);
	return 0;
}

static void
run_round(struct lin_history *history)
{
	pid_t pids[N_PROCESSES];
	unsigned first[N_PROCESSES];
	assert_int_equal(load_reap(load_fork(remove_keys, NULL), PROC_WAIT_MS), 0);
	for (unsigned i = 0; i < N_PROCESSES; i++) {
		first[i] = i * (N_SESSIONS / N_PROCESSES);
		pids[i] = load_fork(run_process, &first[i]);
	}
	for (unsigned i = 0; i < N_PROCESSES; i++)
		assert_int_equal(load_reap(pids[i], ROUND_WAIT_MS), 0);
	check_history(history);
	shared->round++;
}

static void
test_mixed(void **state)
{
	struct lin_history *history;
	int64_t deadline = proc_deadline(MIXED_MS);
	(void)state;
	shared = load_share(sizeof(*shared));
	assert_int_equal(lin_history_new(&history), 0);
	do
		run_round(history);
	while (proc_pause(deadline));
	print_message("# %llu rounds, %llu done, %llu times AGAIN, up to %llu blocks resting\n",
		      (unsigned long long)shared->round, (unsigned long long)shared->n_done,
		      (unsigned long long)shared->n_again, (unsigned long long)shared->resting_max);
	if (LIMIT_TAG_BITS < 12)
		assert_true(shared->resting_max > 0);
	lin_history_free(history);
	load_unshare(shared, sizeof(*shared));
}

/* ---- Increments ---- */

#define N_INCREMENTS (SANITIZED ? 300u : 2000u) /* of a process */

static int
increment(void *arg)
{
	struct rkv_client *client;
	struct rkv_session *session;
	struct rkv_item item;
	uint64_t n;
	(void)arg;
	load_require(rkv_open(server->address, NULL, &client) == RKV_OK);
	load_require(rkv_session_open(client, &session) == RKV_OK);
	for (unsigned done = 0; done < N_INCREMENTS;) {
		load_require(rkv_get(session, "counter", 7, &n, sizeof(n), &item) == RKV_OK);
		load_require(item.value_len == sizeof(n));
		n++;
		int rc = rkv_cas(session, "counter", 7, &n, sizeof(n), item.version, NULL, NULL);
		load_require(rc == RKV_OK || rc == RKV_MISMATCH || rc == RKV_AGAIN);
		done += rc == RKV_OK;
	}
	rkv_close(client);
	return 0;
}

static int
begin_at_zero(void *arg)
{
	struct rkv_client *client;
	struct rkv_session *session;
	uint64_t n = 0;
	(void)arg;
	load_require(rkv_open(server->address, NULL, &client) == RKV_OK);
	load_require(rkv_session_open(client, &session) == RKV_OK);
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	int rc;
	do /* behind the mixed load of the tiny build memory may rest */
		rc = rkv_put(session, "counter", 7, &n, sizeof(n), NULL, NULL);
	while (rc == RKV_AGAIN && proc_pause(deadline));
	load_require(rc == RKV_OK);
	rkv_close(client);
	return 0;
}

static void
test_increments(void **state)
{
	struct rkv_client *client;
	struct rkv_session *session;
	pid_t pids[N_PROCESSES];
	uint64_t n;
	(void)state;
	assert_int_equal(load_reap(load_fork(begin_at_zero, NULL), PROC_WAIT_MS), 0);
	for (unsigned i = 0; i < N_PROCESSES; i++)
		pids[i] = load_fork(increment, NULL);
	for (unsigned i = 0; i < N_PROCESSES; i++)
		assert_int_equal(load_reap(pids[i], ROUND_WAIT_MS), 0);
	connect_client(&client, &session);
	assert_int_equal(rkv_get(session, "counter", 7, &n, sizeof(n), NULL), RKV_OK);
	assert_int_equal(n, N_PROCESSES * N_INCREMENTS);
	rkv_close(client);
}

/* ---- Many keys ---- */

#define MANY 10000u
#define MANY_LEN 200u

/* As load_fill, but short: the value of a key in its n-th life. */
static size_t
many_value(unsigned key, unsigned life, char *ret_value)
{
	return (size_t)snprintf(ret_value, MANY_LEN, "key %u in life %u %*s", key, life,
				(int)(key % 100), "");
}

static void
expect(struct rkv_session *session, unsigned key, unsigned life)
{
	char text[LOAD_KEY_TEXT], want[MANY_LEN], got[MANY_LEN];
	struct rkv_item item;
	size_t key_len = load_key(key, text);
	int rc = rkv_get(session, text, key_len, got, sizeof(got), &item);
	if (life == 0) {
		assert_int_equal(rc, RKV_NOT_FOUND);
		return;
	}
	size_t want_len = many_value(key, life, want);
	assert_int_equal(rc, RKV_OK);
	assert_int_equal(item.value_len, want_len);
	assert_memory_equal(got, want, want_len);
}

typedef int store_fn(struct rkv_session *session, const void *key, size_t key_len,
		     const void *value, size_t value_len, const struct rkv_put_options *options,
		     uint64_t *ret_version);

/* Tries again while memory rests, as the caller of the tiny build has to. */
static int
store(store_fn *fn, struct rkv_session *session, unsigned key, unsigned life)
{
	char text[LOAD_KEY_TEXT], value[MANY_LEN];
	size_t key_len = load_key(key, text), value_len = many_value(key, life, value);
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	int rc;
	do
		rc = fn(session, text, key_len, value, value_len, NULL, NULL);
	while (rc == RKV_AGAIN && proc_pause(deadline));
	return rc;
}

/* Life 1 for all; a third goes, a third has a second life, and all answer for themselves. */
static void
test_many_keys(void **state)
{
	struct rkv_client *client;
	struct rkv_session *session, *other;
	char text[LOAD_KEY_TEXT];
	(void)state;
	connect_client(&client, &session);
	assert_int_equal(rkv_session_open(client, &other), RKV_OK);
	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(store(rkv_add, session, 1000 + i, 1), RKV_OK);
	for (unsigned i = 0; i < MANY; i++) {
		expect(session, 1000 + i, 1);
		expect(other, 1000 + i, 1);
		assert_int_equal(store(rkv_add, other, 1000 + i, 9), RKV_EXISTS);
	}
	for (unsigned i = 0; i < MANY; i++) {
		if (i % 3 == 0)
			assert_int_equal(rkv_delete(session, text, load_key(1000 + i, text)),
					 RKV_OK);
		else if (i % 3 == 1)
			assert_int_equal(store(rkv_put, session, 1000 + i, 2), RKV_OK);
	}
	for (unsigned i = 0; i < MANY; i++) {
		unsigned life = i % 3 == 0 ? 0 : i % 3 == 1 ? 2 : 1;
		expect(session, 1000 + i, life);
		expect(other, 1000 + i, life);
		if (life == 0)
			assert_int_equal(store(rkv_replace, other, 1000 + i, 9), RKV_NOT_FOUND);
	}
	expect(session, 1000 + MANY, 0);
	rkv_close(client);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mixed),
		cmocka_unit_test(test_increments),
		cmocka_unit_test(test_many_keys),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
