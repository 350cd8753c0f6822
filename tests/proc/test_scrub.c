/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What clients leave that are killed or stopped at any moment, and what the scrubber and the
 * sweeper make of it: behind them each byte of the pool is accounted for, nothing is lost, and
 * every value is one that was stored. RKV_KILLS=1000: so many clients are killed (50). Clients that
 * are stopped for minutes, in the middle of a PUT: test_stopped, RKV_STOP_SECONDS.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#include "tests/proc/account.h"
#include "tests/proc/load.h"
#include "tests/proc/proc.h"

#define N_KILLS 50u
#define N_CLIENTS 4u /* at a time */
#define N_KEYS 32u
#define N_KNOWN 64u
#define TOUCHES_MAX 10u

struct shared {
	_Atomic bool stop;
	_Atomic uint64_t n_bursts[N_CLIENTS];
	char address[64];
	unsigned place; /* of the client that starts next, among those that run */
	unsigned number;
};

static struct server *server;
static struct shared *shared;

static int
setup(void **state)
{
	(void)state;
	server = server_start("--pool-size", "32M", "--scrub-rate", "4096", NULL);
	shared = load_share(sizeof(*shared));
	snprintf(shared->address, sizeof(shared->address), "%s", server->address);
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	load_unshare(shared, sizeof(*shared));
	return server_stop(server);
}

/* ---- Clients ---- */

/* Mixed operations, blocking or many at a time, until it is killed or told to stop. */
static int
run_client(void *arg)
{
	struct rkv_client *client;
	unsigned place = shared->place;
	struct load load = {.n_keys = N_KEYS,
			    .writer = 1 + shared->number % 250,
			    .random = shared->number + 1,
			    .depth = shared->number % 3 ? 16 : 0};
	(void)arg;
	load_require(rkv_open(shared->address, NULL, &client) == RKV_OK);
	load_require(rkv_session_open(client, &load.session) == RKV_OK);
	while (!atomic_load(&shared->stop) && !load.n_bad) {
		load_mix(&load, 20);
		atomic_fetch_add(&shared->n_bursts[place], 1);
	}
	rkv_close(client);
	return load.n_bad ? 1 : 0;
}

static pid_t
start_client(unsigned place, unsigned number)
{
	shared->place = place;
	shared->number = number;
	atomic_store(&shared->n_bursts[place], 0);
	pid_t pid = load_fork(run_client, NULL);
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	while (atomic_load(&shared->n_bursts[place]) == 0)
		if (!proc_pause(deadline))
			fail_msg("client %u gets nothing done", number);
	return pid;
}

static void
stop_clients(const pid_t pids[N_CLIENTS])
{
	atomic_store(&shared->stop, true);
	for (unsigned i = 0; i < N_CLIENTS; i++)
		assert_int_equal(load_reap(pids[i], PROC_WAIT_MS), 0);
}

/* ---- What is left ---- */

static void
known_text(unsigned i, char ret_key[16], char ret_value[32])
{
	snprintf(ret_key, 16, "known-%u", i);
	snprintf(ret_value, 32, "the value of %u", i);
}

static void
put_known(struct rkv_session *session)
{
	char key[16], value[32];
	for (unsigned i = 0; i < N_KNOWN; i++) {
		known_text(i, key, value);
		assert_int_equal(
			rkv_put(session, key, strlen(key), value, strlen(value), NULL, NULL),
			RKV_OK);
	}
}

/* Every key reads as what was stored under it; returns how many there are. */
static uint64_t
all_is_right(struct rkv_session *session)
{
	static unsigned char got[LOAD_VALUE_MAX];
	char key[LOAD_KEY_TEXT], value[32];
	struct rkv_item item;
	uint64_t n = N_KNOWN;
	for (unsigned i = 0; i < N_KNOWN; i++) {
		known_text(i, key, value);
		assert_int_equal(rkv_get(session, key, strlen(key), got, sizeof(got), &item),
				 RKV_OK);
		assert_int_equal(item.value_len, strlen(value));
		assert_memory_equal(got, value, item.value_len);
	}
	for (unsigned i = 0; i < N_KEYS; i++) {
		size_t key_len = load_key(i, key);
		int rc = rkv_get(session, key, key_len, got, sizeof(got), &item);
		assert_true(rc == RKV_OK || rc == RKV_NOT_FOUND);
		if (rc == RKV_OK)
			assert_true(load_matches(i, item.user_flags, got, item.value_len));
		n += rc == RKV_OK;
	}
	return n;
}

static struct rkv_client *
open_client(struct rkv_session **ret_session)
{
	struct rkv_client *client;
	assert_int_equal(rkv_open(server->address, NULL, &client), RKV_OK);
	assert_int_equal(rkv_session_open(client, ret_session), RKV_OK);
	return client;
}

/* Before processes are forked: nothing of this one's client is left then. */
static int
run_known(void *arg)
{
	struct rkv_session *session;
	struct rkv_client *client = open_client(&session);
	(void)arg;
	put_known(session);
	rkv_close(client);
	return 0;
}

/* Returns how many blocks the scrubber has given back. */
static uint64_t
look_at_what_is_left(void)
{
	struct rkv_session *session;
	struct rkv_client *client = open_client(&session);
	uint64_t n_live = all_is_right(session);
	rkv_session_close(session);
	account_settles(client, n_live);
	uint64_t n_blocks = load_counter(client, "scrub_blocks");
	rkv_close(client);
	return n_blocks;
}

/* ---- Tests ---- */

static void
rest(uint64_t *random, long max_ns)
{
	nanosleep(&(struct timespec){.tv_nsec = (long)(load_random(random) % (uint64_t)max_ns)},
		  NULL);
}

static void
killed_clients_leave_nothing(void **state)
{
	const char *kills = getenv("RKV_KILLS");
	unsigned n_kills = kills ? (unsigned)strtoul(kills, NULL, 10) : N_KILLS;
	uint64_t random = 11;
	pid_t pids[N_CLIENTS];
	(void)state;
	assert_int_equal(load_reap(load_fork(run_known, NULL), PROC_WAIT_MS), 0);
	for (unsigned i = 0; i < N_CLIENTS; i++)
		pids[i] = start_client(i, i);
	for (unsigned i = 0; i < n_kills; i++) {
		unsigned place = (unsigned)(load_random(&random) % N_CLIENTS);
		rest(&random, 3000000);
		kill(pids[place], SIGKILL);
		assert_int_equal(load_reap(pids[place], PROC_WAIT_MS), 128 + SIGKILL);
		pids[place] = start_client(place, N_CLIENTS + i);
	}
	stop_clients(pids);
	assert_true(look_at_what_is_left() > 0);
}

/* It may be stopped with a block written and not published, or replaced and not marked. */
static void
a_stopped_client_damages_nothing(void **state)
{
	uint64_t random = 12;
	pid_t pids[N_CLIENTS];
	(void)state;
	assert_int_equal(load_reap(load_fork(run_known, NULL), PROC_WAIT_MS), 0);
	for (unsigned i = 0; i < N_CLIENTS; i++)
		pids[i] = start_client(i, i);
	for (unsigned i = 0; i < 6; i++) {
		pid_t pid = pids[i % N_CLIENTS];
		rest(&random, 50000000);
		kill(pid, SIGSTOP);
		assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
		/* In a build whose stamps pass soon: many of T_WORD, and tags that come round. */
		nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
		kill(pid, SIGCONT);
	}
	stop_clients(pids);
	look_at_what_is_left();
}

static void
put_with_ttl(struct rkv_session *session, const char *key, uint32_t ttl_s)
{
	const struct rkv_put_options options = {.ttl_s = ttl_s};
	assert_int_equal(rkv_put(session, key, strlen(key), "value", 5, &options, NULL), RKV_OK);
}

/*
 * Stores a value for a second, and touches it so that it stays. If a pause of the machine took that
 * second it has expired: then once more, with another key. Returns how often.
 */
static unsigned
put_and_touch(struct rkv_session *session, char ret_key[32])
{
	for (unsigned n_late = 0;; n_late++) {
		int64_t begun = proc_deadline(0);
		snprintf(ret_key, 32, "soon, touched %u", n_late);
		put_with_ttl(session, ret_key, 1);
		int rc = rkv_touch(session, ret_key, strlen(ret_key), 1000, NULL);
		if (rc == RKV_OK)
			return n_late;
		assert_int_equal(rc, RKV_NOT_FOUND);
		assert_true(proc_deadline(-500) >= begun && n_late < TOUCHES_MAX);
	}
}

static void
what_has_expired_is_swept(void **state)
{
	char text[ACCOUNT_TEXT_MAX], got[8], touched[32];
	struct rkv_session *session;
	struct rkv_client *client = open_client(&session);
	(void)state;
	put_with_ttl(session, "soon", 1);
	unsigned n_expire = 1 + put_and_touch(session, touched);
	put_with_ttl(session, "later", 1000);
	put_with_ttl(session, "never", 0);
	assert_true(load_await_counter(client, "expired_values", n_expire, n_expire, PROC_WAIT_MS));
	account_fsck(client, text);
	assert_int_equal(account_line(text, "live_blocks"), 3);
	assert_int_equal(rkv_get(session, "soon", 4, got, 8, NULL), RKV_NOT_FOUND);
	assert_int_equal(rkv_get(session, touched, strlen(touched), got, 8, NULL), RKV_OK);
	assert_int_equal(rkv_get(session, "later", 5, got, 8, NULL), RKV_OK);
	assert_int_equal(rkv_add(session, "soon", 4, "again", 5, NULL, NULL), RKV_OK);
	assert_int_equal(rkv_get(session, "soon", 4, got, 8, NULL), RKV_OK);
	/* Also when nobody is there any more. */
	put_with_ttl(session, "last", 1);
	rkv_session_close(session);
	n_expire++;
	assert_true(load_await_counter(client, "expired_values", n_expire, n_expire, PROC_WAIT_MS));
	account_settles(client, 4);
	rkv_close(client);
}

/* Not by the scrubber's last tick, which knows nothing of who has gone since. */
static void
idle_is_said_of_now(void **state)
{
	struct rkv_session *session;
	struct rkv_client *client = open_client(&session);
	(void)state;
	for (unsigned i = 0; i < 10; i++) {
		assert_true(load_await_counter(client, "scrub_idle", 1, 1, PROC_WAIT_MS));
		uint64_t n_passes = load_counter(client, "scrub_passes");
		rkv_session_close(session);
		assert_true(load_await_counter(client, "sessions", 0, 0, PROC_WAIT_MS));
		/* In this order: a pass may end between the two looks. */
		bool is_idle = load_counter(client, "scrub_idle");
		assert_true(!is_idle || load_counter(client, "scrub_passes") > n_passes);
		assert_int_equal(rkv_session_open(client, &session), RKV_OK);
	}
	rkv_close(client);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(killed_clients_leave_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(a_stopped_client_damages_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(what_has_expired_is_swept, setup, teardown),
		cmocka_unit_test_setup_teardown(idle_is_said_of_now, setup, teardown),
	};
	return load_each_alone(tests, sizeof(tests) / sizeof(tests[0]), 20 * PROC_WAIT_MS);
}
