/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A pool with --evict as a cache: processes that read through it (a miss is answered by a PUT) get
 * nearly the hit rate of an exact LRU of the same capacity, never a wrong value, and never hear
 * that the pool is full. timeout: 300
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
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "bench/generator.h"
#include "client/include/rkv.h"
#include "proto/layout.h"
#include "tests/proc/load.h"
#include "tests/proc/proc.h"

#define KEYS 100000u
#define PROCESSES 3u
#define OPERATIONS 150000u /* of each process; the first half fills the pool and is not counted */
#define POINTS 5.0         /* that the hit rate may be below that of exact LRU */
#define VALUE_MAX 8192u

static struct server *server;

static int
end_anyway(void **state)
{
	(void)state;
	if (server)
		server_kill(server);
	server = NULL;
	return 0;
}

/* Tests over verbs run on emulated machines: fewer operations must do there, or none. */
static bool
is_slow(void)
{
	return strcmp(server->fabric, "verbs") == 0;
}

static void
skip_if_slow(void)
{
	if (is_slow())
		skip();
}

/* ---- The trace ---- */

static struct gen_zipfian zipfian;

/* Keys of one process in their order; the same for the same process. */
struct trace {
	struct gen_random random;
};

static void
trace_begin(struct trace *trace, unsigned process)
{
	gen_random_seed(&trace->random, 4711, process);
}

static unsigned
trace_next(struct trace *trace)
{
	return (unsigned)gen_zipfian_next(&zipfian, &trace->random);
}

/* Between 0 and about 4,000 bytes, by key. */
static size_t
value_len(unsigned key)
{
	static const unsigned steps[] = {8, 100, 300, 500, 1000, 4000};
	uint64_t mixed = gen_mix(key);
	return steps[mixed % 6] + (mixed >> 32) % 60;
}

static void
value_fill(unsigned key, unsigned char *ret_value)
{
	struct gen_random random;
	gen_random_seed(&random, 1, key);
	for (size_t at = 0; at < value_len(key); at += 8) {
		uint64_t word = gen_u64(&random);
		memcpy(ret_value + at, &word, 8);
	}
}

/* ---- Reading through ---- */

struct shared {
	char address[64];
	_Atomic uint64_t n_hits;
	_Atomic uint64_t n_counted;
	_Atomic uint64_t n_again;
};

struct reader {
	struct shared *shared;
	unsigned process;
};

static bool
read_through(struct rkv_session *session, unsigned key, struct shared *shared)
{
	static unsigned char value[VALUE_MAX], want[VALUE_MAX];
	struct rkv_item item;
	int rc = rkv_get(session, &key, sizeof(key), value, sizeof(value), &item);
	load_require(rc == RKV_OK || rc == RKV_NOT_FOUND);
	value_fill(key, want);
	if (rc == RKV_OK) {
		load_require(item.value_len == value_len(key));
		load_require(memcmp(value, want, value_len(key)) == 0);
		return true;
	}
	rc = rkv_put(session, &key, sizeof(key), want, value_len(key), NULL, NULL);
	load_require(rc == RKV_OK || rc == RKV_AGAIN); /* never NO_SPACE, never INDEX_FULL */
	atomic_fetch_add(&shared->n_again, rc == RKV_AGAIN);
	return false;
}

static int
read_trace(void *arg)
{
	const struct reader *reader = arg;
	struct shared *shared = reader->shared;
	struct rkv_client *client;
	struct rkv_session *session;
	struct trace trace;
	load_require(rkv_open(shared->address, NULL, &client) == RKV_OK);
	load_require(rkv_session_open(client, &session) == RKV_OK);
	trace_begin(&trace, reader->process);
	for (unsigned i = 0; i < OPERATIONS; i++) {
		bool hit = read_through(session, trace_next(&trace), shared);
		if (i < OPERATIONS / 2)
			continue;
		atomic_fetch_add(&shared->n_hits, hit);
		atomic_fetch_add(&shared->n_counted, 1);
	}
	rkv_session_close(session);
	rkv_close(client);
	return 0;
}

/* ---- Exact LRU ---- */

struct lru {
	uint64_t room;
	uint64_t used;
	uint32_t newer[KEYS + 1]; /* a ring through KEYS, which is no key; 0-length: not there */
	uint32_t older[KEYS + 1];
	bool is_there[KEYS];
};

/* What a value takes: its block, in a chunk of its class. */
static uint64_t
cost_of(unsigned key)
{
	uint64_t len = BLOCK_HEADER_LEN + sizeof(key) + value_len(key);
	uint32_t granules = (uint32_t)((len + LIMIT_GRANULE - 1) / LIMIT_GRANULE);
	return (uint64_t)layout_class_granules(layout_class_of(granules)) * LIMIT_GRANULE;
}

static void
lru_remove(struct lru *lru, uint32_t key)
{
	lru->newer[lru->older[key]] = lru->newer[key];
	lru->older[lru->newer[key]] = lru->older[key];
}

/* Reads through it; was the key there? */
static bool
lru_use(struct lru *lru, uint32_t key)
{
	bool hit = lru->is_there[key];
	if (hit) {
		lru_remove(lru, key);
	} else {
		lru->used += cost_of(key);
		lru->is_there[key] = true;
	}
	lru->older[key] = lru->older[KEYS];
	lru->newer[key] = KEYS;
	lru->newer[lru->older[KEYS]] = key;
	lru->older[KEYS] = key;
	while (lru->used > lru->room) {
		uint32_t oldest = lru->newer[KEYS];
		lru_remove(lru, oldest);
		lru->is_there[oldest] = false;
		lru->used -= cost_of(oldest);
	}
	return hit;
}

/* The hit rate, in per cent, of the same traces in turns. */
static double
exact_lru(uint64_t room)
{
	struct lru *lru = calloc(1, sizeof(*lru));
	struct trace trace[PROCESSES];
	uint64_t n_hits = 0;
	assert_non_null(lru);
	lru->room = room;
	lru->newer[KEYS] = lru->older[KEYS] = KEYS;
	for (unsigned p = 0; p < PROCESSES; p++)
		trace_begin(&trace[p], p);
	for (unsigned i = 0; i < OPERATIONS; i++)
		for (unsigned p = 0; p < PROCESSES; p++)
			n_hits += lru_use(lru, trace_next(&trace[p])) && i >= OPERATIONS / 2;
	free(lru);
	return 100.0 * (double)n_hits / (PROCESSES * (OPERATIONS - OPERATIONS / 2));
}

/* ---- Tests ---- */

static void
test_hit_rate(void **state)
{
	struct shared *shared = load_share(sizeof(*shared));
	struct reader reader[PROCESSES];
	pid_t pid[PROCESSES];
	(void)state;
	gen_zipfian_init(&zipfian, KEYS);
	server = server_start("--pool-size", "16M", "--evict", "yes", NULL);
	skip_if_slow();
	snprintf(shared->address, sizeof(shared->address), "%s", server->address);
	for (unsigned p = 0; p < PROCESSES; p++) {
		reader[p] = (struct reader){shared, p};
		pid[p] = load_fork(read_trace, &reader[p]);
	}
	for (unsigned p = 0; p < PROCESSES; p++)
		assert_int_equal(load_reap(pid[p], 240000), 0);
	struct rkv_client *client;
	assert_int_equal(rkv_open(server->address, NULL, &client), RKV_OK);
	uint64_t heap = load_counter(client, "chunks_total") * load_counter(client, "chunk_size");
	uint64_t n_evicted = load_counter(client, "evictions_unused");
	rkv_close(client);
	double rate = 100.0 * (double)shared->n_hits / (double)shared->n_counted;
	double best = exact_lru(heap);
	print_message("hit rate %.2f %%, exact LRU %.2f %%; %llu evicted, %llu times RKV_AGAIN\n",
		      rate, best, (unsigned long long)n_evicted,
		      (unsigned long long)shared->n_again);
	assert_true(n_evicted > 10000);
	assert_true(rate > best - POINTS);
	assert_true(best < 90.0); /* else nothing was shown */
	load_unshare(shared, sizeof(*shared));
	assert_int_equal(server_stop(server), 0);
	server = NULL;
}

/* As soon as the client has heard of a newer stamp, a GET takes one request more. */
static void
get_with_hint(struct rkv_session *session, const char *key)
{
	struct rkv_stats_values before, after;
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	char buf[64];
	uint64_t n;
	do {
		assert_true(proc_pause(deadline));
		rkv_stats(session, &before);
		assert_int_equal(rkv_get(session, key, 1, buf, sizeof(buf), NULL), RKV_OK);
		rkv_stats(session, &after);
		n = after.op[RKV_OP_GET].n_requests - before.op[RKV_OP_GET].n_requests;
		assert_int_equal(after.op[RKV_OP_GET].n_round_trips -
					 before.op[RKV_OP_GET].n_round_trips,
				 1);
		assert_in_range(n, 2, 3);
	} while (n == 2);
}

/* What a session costs with hints: no round trip more, and never a second signalled request. */
static void
test_cost(void **state)
{
	struct rkv_client *client;
	struct rkv_session *session;
	struct rkv_stats_values before, after;
	char buf[64];
	(void)state;
	server = server_start("--pool-size", "16M", "--evict", "yes", NULL);
	assert_int_equal(rkv_open(server->address, NULL, &client), RKV_OK);
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
#define COSTS(call, rc, kind, round_trips, requests)                                               \
	do {                                                                                       \
		rkv_stats(session, &before);                                                       \
		assert_int_equal(call, rc);                                                        \
		rkv_stats(session, &after);                                                        \
		assert_int_equal(after.op[kind].n_round_trips - before.op[kind].n_round_trips,     \
				 round_trips);                                                     \
		assert_int_equal(after.op[kind].n_requests - before.op[kind].n_requests,           \
				 requests);                                                        \
	} while (0)
#define GET(key) rkv_get(session, key, 1, buf, sizeof(buf), NULL)
#define PUT(key) rkv_put(session, key, 1, "value", 5, NULL, NULL)
	assert_int_equal(PUT("z"), RKV_OK); /* a chunk is there from now on */
	COSTS(PUT("a"), RKV_OK, RKV_OP_PUT, 3, 10);
	COSTS(PUT("a"), RKV_OK, RKV_OP_PUT, 1, 4);
	COSTS(GET("b"), RKV_NOT_FOUND, RKV_OP_GET, 1, 2);
	uint64_t without = 0;
	for (unsigned i = 0; i < 1000; i++) { /* a stamp now and then */
		rkv_stats(session, &before);
		assert_int_equal(GET("a"), RKV_OK);
		rkv_stats(session, &after);
		uint64_t n = after.op[RKV_OP_GET].n_requests - before.op[RKV_OP_GET].n_requests;
		assert_in_range(n, 2, 3);
		without += n == 2;
	}
	assert_in_range(without, 1, 1000);
	for (unsigned i = 0; i < 3; i++)
		get_with_hint(session, "a");
	COSTS(rkv_delete(session, "a", 1), RKV_OK, RKV_OP_DELETE, 1, 2);
	rkv_session_close(session);
	rkv_close(client);
	assert_int_equal(server_stop(server), 0);
	server = NULL;
}

/* ---- An index that fills up faster than the server can empty it ---- */

/* Keys, in an index for a thousand. */
#define CROWD 50000u
#define CROWD_IF_SLOW 10000u

static uint64_t
put_crowd(struct rkv_session *session, unsigned n)
{
	struct rkv_stats_values stats;
	for (unsigned key = 0; key < n; key++)
		assert_int_equal(rkv_put(session, &key, sizeof(key), &key, sizeof(key), NULL, NULL),
				 RKV_OK);
	assert_int_equal(rkv_stats(session, &stats), RKV_OK);
	return stats.op[RKV_OP_PUT].n_marks;
}

/* What fsck says while the server evicts nothing; returns how much it has evicted before. */
static uint64_t
fsck_at_rest(struct rkv_client *client, char *ret_text, size_t text_len)
{
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	uint64_t before, n = UINT64_MAX;
	do {
		assert_true(proc_pause(deadline));
		before = n;
		assert_int_equal(rkv_server_fsck(client, ret_text, text_len, NULL, PROC_WAIT_MS),
				 RKV_OK);
		n = load_counter(client, "evictions_unused");
	} while (n != before);
	return n;
}

/*
 * Then an inserter takes one of its key's neighbours out itself, and marks its block: each value is
 * there, or was evicted by one of the two, and no block is lost.
 */
static void
test_crowded(void **state)
{
	struct rkv_client *client;
	struct rkv_session *session;
	char text[8192], live[64];
	(void)state;
	server =
		server_start("--pool-size", "16M", "--evict", "yes", "--index-slots", "1000", NULL);
	assert_int_equal(rkv_open(server->address, NULL, &client), RKV_OK);
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
	unsigned n = is_slow() ? CROWD_IF_SLOW : CROWD;
	uint64_t n_by_client = put_crowd(session, n);
	rkv_session_close(session);
	uint64_t n_by_server = fsck_at_rest(client, text, sizeof(text));
	print_message("%llu evicted by the server, %llu by the client\n",
		      (unsigned long long)n_by_server, (unsigned long long)n_by_client);
	assert_in_range(n_by_client, 1, n);
	snprintf(live, sizeof(live), "\nlive_blocks %llu\n",
		 (unsigned long long)(n - n_by_client - n_by_server));
	if (!strstr(text, live) || !strstr(text, "\ngarbage_blocks 0\n") ||
	    !strstr(text, "\nclean 1\n"))
		fail_msg("not%s in: %s", live, text);
	assert_int_equal(load_counter(client, "scrub_blocks"), 0);
	rkv_close(client);
	assert_int_equal(server_stop(server), 0);
	server = NULL;
}

/* ---- A session that has filled the pool, and is idle ever since ---- */

#define WORKING_SET 1500u /* values of 1,000 bytes: more than the last free chunks hold */

static int
fill_and_idle(void *arg)
{
	struct shared *shared = arg;
	struct rkv_client *client;
	struct rkv_session *session;
	char value[1000] = "idle";
	load_require(rkv_open(shared->address, NULL, &client) == RKV_OK);
	load_require(rkv_session_open(client, &session) == RKV_OK);
	for (unsigned key = 0; key < 20000; key++) {
		int64_t deadline = proc_deadline(PROC_WAIT_MS);
		int rc;
		do /* RKV_AGAIN: the server has evicted nothing for a quarter of a second */
			rc = rkv_put(session, &key, sizeof(key), value, sizeof(value), NULL, NULL);
		while (rc == RKV_AGAIN && proc_pause(deadline));
		load_require(rc == RKV_OK);
	}
	atomic_store(&shared->n_counted, 1);
	for (;;)
		pause();
}

/* One look at everything; how many were there. */
static unsigned
use_working_set(struct rkv_session *session)
{
	char value[1000] = "busy", got[1000];
	unsigned n = 0;
	for (uint64_t key = 0; key < WORKING_SET; key++) {
		int rc = rkv_get(session, &key, sizeof(key), got, sizeof(got), NULL);
		n += rc == RKV_OK;
		if (rc == RKV_NOT_FOUND)
			rc = rkv_put(session, &key, sizeof(key), value, sizeof(value), NULL, NULL);
		assert_true(rc == RKV_OK || rc == RKV_AGAIN);
	}
	return n;
}

static void
test_idle_owner(void **state)
{
	struct shared *shared = load_share(sizeof(*shared));
	struct rkv_client *client;
	struct rkv_session *session;
	int64_t deadline = proc_deadline(150000);
	(void)state;
	server = server_start("--pool-size", "16M", "--evict", "yes", NULL);
	skip_if_slow();
	snprintf(shared->address, sizeof(shared->address), "%s", server->address);
	pid_t pid = load_fork(fill_and_idle, shared);
	while (atomic_load(&shared->n_counted) == 0)
		assert_true(proc_pause(deadline));
	assert_int_equal(rkv_open(server->address, NULL, &client), RKV_OK);
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
	assert_in_range(use_working_set(session), 0, 0);
	assert_in_range(use_working_set(session), 0, WORKING_SET - 1); /* too little room yet */
	while (use_working_set(session) < WORKING_SET)
		assert_true(proc_pause(deadline));
	print_message("%llu chunks changed hands\n",
		      (unsigned long long)load_counter(client, "chunks_condemned"));
	rkv_session_close(session);
	rkv_close(client);
	kill(pid, SIGKILL);
	load_reap(pid, PROC_WAIT_MS);
	load_unshare(shared, sizeof(*shared));
	assert_int_equal(server_stop(server), 0);
	server = NULL;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_cost, end_anyway),
		cmocka_unit_test_teardown(test_crowded, end_anyway),
		cmocka_unit_test_teardown(test_hit_rate, end_anyway),
		cmocka_unit_test_teardown(test_idle_owner, end_anyway),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
