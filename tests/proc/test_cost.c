/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The cost of each operation, by counters: round trips, work requests, bytes read and written,
 * marks. And what a warm session does not do: allocate, lock, call the system.
 */
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/include/rkv.h"
#include "proto/layout.h"
#include "tests/fault/heap.h"
#include "tests/proc/load.h"
#include "tests/proc/proc.h"

static struct server *server;
static struct rkv_client *client;
static struct rkv_session *session;
static struct rkv_session *other; /* makes keys and changes without warming `session` */

/* ---- Locks of this thread; its heap calls: tests/fault/heap.h ---- */

static __thread uint64_t n_locks;

#if !SANITIZED
int
pthread_mutex_lock(pthread_mutex_t *mutex)
{
	static int (*_Atomic next)(pthread_mutex_t *);
	if (!next)
		next = (int (*)(pthread_mutex_t *))(uintptr_t)dlsym(RTLD_NEXT,
								    "pthread_mutex_lock");
	n_locks++;
	return next(mutex);
}
#endif

/* ---- Counting ---- */

#define VALUE_LEN 100u

struct cost {
	uint64_t round_trips, requests, marks, bytes_read, bytes_written;
};

static struct rkv_stats_values before;

static void
begin(void)
{
	assert_int_equal(rkv_stats(session, &before), RKV_OK);
}

static void
assert_cost(enum rkv_op op, struct cost want)
{
	struct rkv_stats_values now;
	assert_int_equal(rkv_stats(session, &now), RKV_OK);
	const struct rkv_op_stats *a = &before.op[op], *b = &now.op[op];
	assert_int_equal(b->n_round_trips - a->n_round_trips, want.round_trips);
	assert_int_equal(b->n_requests - a->n_requests, want.requests);
	assert_int_equal(b->n_marks - a->n_marks, want.marks);
	assert_int_equal(b->n_bytes_read - a->n_bytes_read, want.bytes_read);
	assert_int_equal(b->n_bytes_written - a->n_bytes_written, want.bytes_written);
	assert_int_equal(b->n_retries - a->n_retries, 0);
	assert_int_equal(b->n_cas_lost - a->n_cas_lost, 0);
	for (int i = 0; i < RKV_OP_COUNT; i++)
		if (i != (int)op)
			assert_int_equal(now.op[i].n_round_trips, before.op[i].n_round_trips);
}

/* What a block of this key and value takes: written, and read (whole granules). */
static uint64_t
written_len(const char *key)
{
	return block_len((uint32_t)strlen(key), VALUE_LEN);
}

static uint64_t
read_len(const char *key)
{
	return block_granules(written_len(key)) * LIMIT_GRANULE;
}

static const unsigned char value[VALUE_LEN] = "a value";

static void
put(struct rkv_session *s, const char *key)
{
	assert_int_equal(rkv_put(s, key, strlen(key), value, VALUE_LEN, NULL, NULL), RKV_OK);
}

static int
get(const char *key, struct rkv_item *ret_item)
{
	unsigned char buf[VALUE_LEN];
	return rkv_get(session, key, strlen(key), buf, sizeof(buf), ret_item);
}

static int
setup(void **state)
{
	(void)state;
	/* A class's blocks must outlast T_Q at full speed: else a session waits for the clock. */
	server = server_start("--pool-size", "256M", "--chunk-size", "1M", NULL);
	assert_int_equal(rkv_open(server->address, NULL, &client), RKV_OK);
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
	assert_int_equal(rkv_session_open(client, &other), RKV_OK);
	/* Chunks are claimed beforehand, so that nothing is counted for it. */
	put(session, "first");
	put(other, "first");
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	rkv_session_close(other);
	rkv_session_close(session);
	rkv_close(client);
	return server_stop(server);
}

/* ---- GET ---- */

static void
test_get(void **state)
{
	(void)state;
	put(other, "get");
	begin();
	assert_int_equal(get("get", NULL), RKV_OK);
	assert_cost(RKV_OP_GET, (struct cost){2, 3, 0, read_len("get") + 256, 0}); /* cold */
	begin();
	assert_int_equal(get("get", NULL), RKV_OK);
	assert_cost(RKV_OP_GET, (struct cost){1, 2, 0, read_len("get") + 8, 0}); /* warm */
	begin();
	assert_int_equal(get("absent", NULL), RKV_NOT_FOUND);
	assert_cost(RKV_OP_GET, (struct cost){1, 2, 0, 256, 0});
}

/* A put warms the session that made it: the next GET is one round trip. */
static void
test_get_after_put(void **state)
{
	(void)state;
	put(session, "own");
	begin();
	assert_int_equal(get("own", NULL), RKV_OK);
	assert_cost(RKV_OP_GET, (struct cost){1, 2, 0, read_len("own") + 8, 0});
}

/* The asynchronous and batched ways cost the same. */
static void
test_get_many(void **state)
{
	char buf[8][VALUE_LEN];
	struct rkv_request requests[8];
	(void)state;
	put(session, "many");
	for (int i = 0; i < 8; i++)
		requests[i] = (struct rkv_request){.op = RKV_OP_GET,
						   .key = "many",
						   .key_len = 4,
						   .buf = buf[i],
						   .buf_len = VALUE_LEN};
	begin();
	assert_int_equal(rkv_multi_get(session, requests, 8), RKV_OK);
	assert_cost(RKV_OP_GET, (struct cost){8, 16, 0, 8 * (read_len("many") + 8), 0});
}

/* ---- UPDATE and INSERT ---- */

static void
test_put(void **state)
{
	const char *key = "put";
	(void)state;
	begin();
	put(session, key);
	assert_cost(RKV_OP_PUT, (struct cost){3, 9, 0, 528, written_len(key)}); /* INSERT */
	begin();
	put(session, key);
	assert_cost(RKV_OP_PUT, (struct cost){1, 3, 1, 8, written_len(key)}); /* UPDATE warm */
	put(other, "put-cold");
	begin();
	put(session, "put-cold");
	assert_cost(RKV_OP_PUT,
		    (struct cost){3, 6, 1, 264 + read_len("put-cold"), written_len("put-cold")});
}

/* strict_insert: the READs of the buckets wait for that of the own slot, one round trip more. */
static void
test_strict_insert(void **state)
{
	(void)state;
	struct rkv_client *strict;
	struct rkv_session *s, *usual = session;
	struct rkv_options options;
	rkv_options_init(&options);
	options.strict_insert = 1;
	assert_int_equal(rkv_open(server->address, &options, &strict), RKV_OK);
	assert_int_equal(rkv_session_open(strict, &s), RKV_OK);
	put(s, "claims a chunk");
	session = s;
	begin();
	put(s, "strictly new");
	assert_cost(RKV_OP_PUT, (struct cost){4, 9, 0, 528, written_len("strictly new")});
	session = usual;
	rkv_session_close(s);
	rkv_close(strict);
}

static void
test_add(void **state)
{
	const char *key = "add";
	(void)state;
	begin();
	assert_int_equal(rkv_add(session, key, 3, value, VALUE_LEN, NULL, NULL), RKV_OK);
	assert_cost(RKV_OP_ADD, (struct cost){3, 9, 0, 528, written_len(key)});
	begin();
	assert_int_equal(rkv_add(session, key, 3, value, VALUE_LEN, NULL, NULL), RKV_EXISTS);
	assert_cost(RKV_OP_ADD, (struct cost){1, 2, 0, read_len(key) + 8, 0});
}

/* Warm: {READ block; READ slot} {WRITE; CAS; READ slot}. Cold: as a cold UPDATE. */
static void
assert_cost_after_look(enum rkv_op op, const char *key, bool warm)
{
	uint64_t len = read_len(key);
	struct cost want = warm ? (struct cost){2, 5, 1, len + 16, written_len(key)}
				: (struct cost){3, 6, 1, len + 264, written_len(key)};
	assert_cost(op, want);
}

static void
test_replace(void **state)
{
	const char *key = "replace";
	(void)state;
	put(other, key);
	for (int warm = 0; warm < 2; warm++) {
		begin();
		assert_int_equal(rkv_replace(session, key, 7, value, VALUE_LEN, NULL, NULL),
				 RKV_OK);
		assert_cost_after_look(RKV_OP_REPLACE, key, warm);
	}
	begin();
	assert_int_equal(rkv_replace(session, "none", 4, value, VALUE_LEN, NULL, NULL),
			 RKV_NOT_FOUND);
	assert_cost(RKV_OP_REPLACE, (struct cost){1, 2, 0, 256, 0});
}

static void
test_cas(void **state)
{
	const char *key = "cas";
	uint64_t version;
	(void)state;
	assert_int_equal(rkv_put(other, key, 3, value, VALUE_LEN, NULL, &version), RKV_OK);
	for (int warm = 0; warm < 2; warm++) {
		begin();
		assert_int_equal(
			rkv_cas(session, key, 3, value, VALUE_LEN, version, NULL, &version),
			RKV_OK);
		assert_cost_after_look(RKV_OP_CAS, key, warm);
	}
	begin();
	assert_int_equal(rkv_cas(session, key, 3, value, VALUE_LEN, version + 1, NULL, NULL),
			 RKV_MISMATCH);
	assert_cost(RKV_OP_CAS, (struct cost){1, 2, 0, read_len(key) + 8, 0});
}

static void
test_touch(void **state)
{
	const char *key = "touch";
	(void)state;
	put(other, key);
	for (int warm = 0; warm < 2; warm++) {
		begin();
		assert_int_equal(rkv_touch(session, key, 5, 60, NULL), RKV_OK);
		assert_cost_after_look(RKV_OP_TOUCH, key, warm);
	}
}

static void
test_delete(void **state)
{
	const char *key = "delete";
	(void)state;
	put(session, key);
	begin();
	assert_int_equal(rkv_delete(session, key, 6), RKV_OK);
	assert_cost(RKV_OP_DELETE, (struct cost){1, 2, 1, 8, 0});
	put(other, key);
	begin();
	assert_int_equal(rkv_delete(session, key, 6), RKV_OK);
	assert_cost(RKV_OP_DELETE, (struct cost){3, 5, 1, 264 + read_len(key), 0});
	begin();
	assert_int_equal(rkv_delete(session, key, 6), RKV_NOT_FOUND);
	assert_cost(RKV_OP_DELETE, (struct cost){1, 2, 0, 256, 0});
}

/* ---- The steady state ---- */

#define STEADY_OPS 10000u
#define WARM_UP_OPS 30000u /* more than the blocks of the chunks that a class gets, several times */
#define ROUNDS_MAX 20u

/*
 * Runs rounds of STEADY_OPS until one does without the heap. The list of a chunk's freed blocks
 * doubles whenever more of them wait for T_Q than ever before: the machine's speed decides when it
 * has seen its fastest millisecond, and a list can double no more often than its chunk has blocks.
 */
static bool
becomes_steady(struct rkv_session *s)
{
	for (unsigned i = 0; i < ROUNDS_MAX; i++) {
		uint64_t n_heap_before = heap_calls();
		if (!load_steady(s, value, VALUE_LEN, STEADY_OPS))
			return false;
		if (heap_calls() == n_heap_before)
			return true;
	}
	return false;
}

static void
test_no_heap_no_lock(void **state)
{
	(void)state;
	if (SANITIZED)
		skip(); /* the sanitizer has the heap's names */
	assert_true(load_steady(session, value, VALUE_LEN, WARM_UP_OPS));
	uint64_t n_locks_before = n_locks;
	bool is_steady = becomes_steady(session);
	uint64_t n_locks_after = n_locks, n_heap_after = heap_calls();
	assert_true(is_steady);
	assert_int_equal(n_locks_after, n_locks_before);
	/* The counters can see. */
	struct rkv_session *opened;
	int rc = rkv_session_open(client, &opened);
	assert_int_equal(rc, RKV_OK);
	assert_true(heap_calls() > n_heap_after && n_locks > n_locks_after);
	rkv_session_close(opened);
}

#define TRIES 5u

/* From now on this thread may do nothing but end the process. */
static void
forbid_system_calls(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
		_exit(77);
}

static int
run_without_system_calls(void *arg)
{
	struct rkv_client *c;
	struct rkv_session *s;
	const bool *breaks_it = arg;
	load_require(rkv_open(server->address, NULL, &c) == RKV_OK);
	load_require(rkv_session_open(c, &s) == RKV_OK);
	load_require(load_steady(s, value, VALUE_LEN, WARM_UP_OPS));
	load_require(*breaks_it || becomes_steady(s));
	forbid_system_calls();
	if (*breaks_it)
		getppid();
	return load_steady(s, value, VALUE_LEN, STEADY_OPS) ? 0 : 2;
}

static void
test_no_system_call(void **state)
{
	bool breaks_it = false;
	(void)state;
	if (SANITIZED || !server->socket[0])
		skip(); /* checks of the sanitizer, and Soft-RoCE's library, call the system */
	/* A call that meets the control thread, which flushes marks once a stamp, waits for it. */
	int code = 1;
	for (unsigned i = 0; i < TRIES && code != 0; i++) {
		code = load_reap(load_fork(run_without_system_calls, &breaks_it), PROC_WAIT_MS);
		if (code == 77)
			skip(); /* no seccomp here */
	}
	assert_int_equal(code, 0);
	breaks_it = true;
	code = load_reap(load_fork(run_without_system_calls, &breaks_it), PROC_WAIT_MS);
	assert_int_equal(code, 128 + SIGSYS);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_get),
		cmocka_unit_test(test_get_after_put),
		cmocka_unit_test(test_get_many),
		cmocka_unit_test(test_put),
		cmocka_unit_test(test_strict_insert),
		cmocka_unit_test(test_add),
		cmocka_unit_test(test_replace),
		cmocka_unit_test(test_cas),
		cmocka_unit_test(test_touch),
		cmocka_unit_test(test_delete),
		cmocka_unit_test(test_no_heap_no_lock),
		cmocka_unit_test(test_no_system_call),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
