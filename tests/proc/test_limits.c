/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keys and values at and beyond their limits, buffers, times to live, flags, fork, batches: each
 * case has an answer of its own, and a refused one touches no memory.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/include/rkv.h"
#include "tests/proc/load.h"
#include "tests/proc/proc.h"

static struct server *server;
static struct rkv_client *client;
static struct rkv_session *session;
static struct rkv_limit_values limits;

static int
setup(void **state)
{
	(void)state;
	server = server_start("--pool-size", "64M", NULL);
	assert_int_equal(rkv_open(server->address, NULL, &client), RKV_OK);
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
	assert_int_equal(rkv_limits(client, &limits), RKV_OK);
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	rkv_session_close(session);
	rkv_close(client);
	return server_stop(server);
}

/* Memory that nobody may touch: an address for lengths that must be refused before. */
static unsigned char *
forbidden(void)
{
	unsigned char *at = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(at != MAP_FAILED);
	return at;
}

static unsigned char *
pattern(size_t len, unsigned char seed)
{
	unsigned char *bytes = malloc(len + 1);
	assert_non_null(bytes);
	for (size_t i = 0; i < len; i++)
		bytes[i] = (unsigned char)(seed + i * 7 + (i >> 8));
	return bytes;
}

/* ---- Keys ---- */

struct text {
	const char *bytes;
	size_t len;
};

#define TEXT(literal)                                                                              \
	{                                                                                          \
		literal, sizeof(literal) - 1                                                       \
	}

/* Keys that differ only where C strings would not see it, or in their length. */
static void
test_keys_are_bytes(void **state)
{
	static const struct text keys[] = {TEXT("\0"),         TEXT("\0\0"),    TEXT("\0\0\0"),
					   TEXT("a"),          TEXT("a\0"),     TEXT("a\0b"),
					   TEXT("a\0c"),       TEXT("\xff"),    TEXT("\xff\xff"),
					   TEXT("\xff\0\xff"), TEXT("\n"),      TEXT("a\0b\0c\0d"),
					   TEXT("a\0b\0c\0e"), TEXT("key/\xc3")};
	size_t n = sizeof(keys) / sizeof(keys[0]);
	(void)state;
	for (size_t i = 0; i < n; i++)
		assert_int_equal(
			rkv_add(session, keys[i].bytes, keys[i].len, &i, sizeof(i), NULL, NULL),
			RKV_OK);
	for (size_t i = 0; i < n; i++) {
		size_t got = n;
		assert_int_equal(
			rkv_get(session, keys[i].bytes, keys[i].len, &got, sizeof(got), NULL),
			RKV_OK);
		assert_int_equal(got, i);
		assert_int_equal(rkv_delete(session, keys[i].bytes, keys[i].len), RKV_OK);
		assert_int_equal(
			rkv_get(session, keys[i].bytes, keys[i].len, &got, sizeof(got), NULL),
			RKV_NOT_FOUND);
	}
}

/* Every length that there is, each key a prefix of the next. */
static void
test_key_lengths(void **state)
{
	unsigned char *key = pattern(1025, 1);
	(void)state;
	assert_int_equal(limits.key_len_min, 1);
	assert_int_equal(limits.key_len_max, 1024);
	for (size_t len = 1; len <= 1024; len++)
		assert_int_equal(rkv_put(session, key, len, &len, sizeof(len), NULL, NULL), RKV_OK);
	for (size_t len = 1; len <= 1024; len++) {
		size_t got = 0;
		assert_int_equal(rkv_get(session, key, len, &got, sizeof(got), NULL), RKV_OK);
		assert_int_equal(got, len);
		assert_int_equal(rkv_delete(session, key, len), RKV_OK);
	}
	free(key);
}

static void
assert_key_refused(const void *key, size_t key_len, int status)
{
	char buf[8];
	assert_int_equal(rkv_get(session, key, key_len, buf, sizeof(buf), NULL), status);
	assert_int_equal(rkv_put(session, key, key_len, "v", 1, NULL, NULL), status);
	assert_int_equal(rkv_add(session, key, key_len, "v", 1, NULL, NULL), status);
	assert_int_equal(rkv_replace(session, key, key_len, "v", 1, NULL, NULL), status);
	assert_int_equal(rkv_cas(session, key, key_len, "v", 1, 1, NULL, NULL), status);
	assert_int_equal(rkv_delete(session, key, key_len), status);
	assert_int_equal(rkv_touch(session, key, key_len, 1, NULL), status);
}

static const size_t huge[] = {(size_t)INT32_MAX,      (size_t)INT32_MAX + 1,  (size_t)UINT32_MAX,
			      (size_t)UINT32_MAX + 1, (size_t)UINT32_MAX + 2, (size_t)INT64_MAX,
			      SIZE_MAX - 64,          SIZE_MAX - 1,           SIZE_MAX};

static void
test_keys_refused(void **state)
{
	unsigned char *nothing = forbidden();
	(void)state;
	assert_key_refused("", 0, RKV_E_INVALID);
	assert_key_refused(NULL, 0, RKV_E_INVALID);
	assert_key_refused(NULL, 1, RKV_E_INVALID);
	assert_key_refused(nothing, 1025, RKV_E_TOO_BIG);
	for (size_t i = 0; i < sizeof(huge) / sizeof(huge[0]); i++)
		assert_key_refused(nothing, huge[i], RKV_E_TOO_BIG);
	/* One beyond a 32-bit length wraps to a legal one. */
	assert_key_refused(nothing, (size_t)UINT32_MAX + 9, RKV_E_TOO_BIG);
	munmap(nothing, 4096);
}

/* ---- Values ---- */

static void
assert_kept(const void *key, size_t key_len, uint32_t len)
{
	unsigned char *value = pattern(len, (unsigned char)len), *got = pattern(len + 1, 0);
	struct rkv_item item = {0};
	uint64_t version = 0;
	got[len] = 0xa5;
	assert_int_equal(rkv_put(session, key, key_len, len ? value : NULL, len, NULL, &version),
			 RKV_OK);
	assert_int_equal(rkv_get(session, key, key_len, len ? got : NULL, len, &item), RKV_OK);
	assert_int_equal(item.value_len, len);
	assert_int_equal(item.version, version);
	assert_memory_equal(got, value, len);
	assert_int_equal(got[len], 0xa5);
	free(value);
	free(got);
}

static uint32_t
value_max(size_t key_len)
{
	return (uint32_t)(limits.block_len_max - 40 - key_len);
}

static void
test_values(void **state)
{
	static const uint32_t lens[] = {0,    1,    7,    8,    9,    63,   64,   65,    100,
					1000, 1900, 2000, 2047, 2048, 2049, 4096, 20000, 60000};
	unsigned char *key = pattern(1024, 9);
	(void)state;
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++)
		assert_kept("value", 5, lens[i]);
	/* Around the length that fits the scratch of an operation. */
	for (uint32_t len = 1980; len < 2060; len++)
		assert_kept("value", 5, len);
	for (size_t key_len = 1; key_len <= 1024; key_len += 341) {
		assert_kept(key, key_len, value_max(key_len) - 1);
		assert_kept(key, key_len, value_max(key_len));
	}
	assert_int_equal(limits.value_len_max, value_max(1024));
	free(key);
}

static void
assert_value_refused(const void *value, size_t len)
{
	assert_int_equal(rkv_put(session, "big", 3, value, len, NULL, NULL), RKV_E_TOO_BIG);
	assert_int_equal(rkv_add(session, "big", 3, value, len, NULL, NULL), RKV_E_TOO_BIG);
	assert_int_equal(rkv_replace(session, "big", 3, value, len, NULL, NULL), RKV_E_TOO_BIG);
	assert_int_equal(rkv_cas(session, "big", 3, value, len, 1, NULL, NULL), RKV_E_TOO_BIG);
	struct rkv_request r = {
		.op = RKV_OP_PUT, .key = "big", .key_len = 3, .value = value, .value_len = len};
	assert_int_equal(rkv_run(session, &r, 1), RKV_OK);
	assert_int_equal(r.status, RKV_E_TOO_BIG);
}

static void
test_values_refused(void **state)
{
	unsigned char *nothing = forbidden();
	(void)state;
	assert_value_refused(nothing, value_max(3) + 1);
	for (size_t i = 0; i < sizeof(huge) / sizeof(huge[0]); i++)
		assert_value_refused(nothing, huge[i]);
	assert_value_refused(nothing, (size_t)UINT32_MAX + 9);
	assert_int_equal(rkv_put(session, "big", 3, NULL, 1, NULL, NULL), RKV_E_INVALID);
	assert_int_equal(rkv_get(session, "big", 3, NULL, 0, NULL), RKV_NOT_FOUND);
	munmap(nothing, 4096);
}

/* Empty is not absent. */
static void
test_empty_and_absent(void **state)
{
	struct rkv_item item = {.value_len = 77};
	(void)state;
	assert_int_equal(rkv_get(session, "empty", 5, NULL, 0, NULL), RKV_NOT_FOUND);
	assert_int_equal(rkv_put(session, "empty", 5, NULL, 0, NULL, NULL), RKV_OK);
	assert_int_equal(rkv_get(session, "empty", 5, NULL, 0, &item), RKV_OK);
	assert_int_equal(item.value_len, 0);
	assert_int_equal(rkv_add(session, "empty", 5, "x", 1, NULL, NULL), RKV_EXISTS);
	assert_int_equal(rkv_delete(session, "empty", 5), RKV_OK);
	assert_int_equal(rkv_get(session, "empty", 5, NULL, 0, NULL), RKV_NOT_FOUND);
}

/* Too short a buffer: the length needed, and nothing written behind the buffer. */
static void
test_buffer_too_small(void **state)
{
	static const size_t lens[] = {1, 100, 3000, 50000};
	(void)state;
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		size_t len = lens[i];
		unsigned char *value = pattern(len, 3), *buf = pattern(len, 4),
			      *same = pattern(len, 4);
		struct rkv_item item = {0};
		assert_int_equal(rkv_put(session, "small", 5, value, len, NULL, NULL), RKV_OK);
		assert_int_equal(rkv_get(session, "small", 5, buf, len - 1, &item),
				 RKV_E_TOO_SMALL);
		assert_int_equal(item.value_len, len);
		assert_int_equal(buf[len - 1], same[len - 1]);
		item.value_len = 0;
		assert_int_equal(rkv_get(session, "small", 5, NULL, 0, &item), RKV_E_TOO_SMALL);
		assert_int_equal(item.value_len, len);
		assert_int_equal(rkv_get(session, "small", 5, buf, len, &item), RKV_OK);
		assert_memory_equal(buf, value, len);
		free(value);
		free(buf);
		free(same);
	}
}

/* ---- What goes with a value ---- */

static void
await_absence(const char *key)
{
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	while (rkv_get(session, key, strlen(key), NULL, 0, NULL) != RKV_NOT_FOUND)
		assert_true(proc_pause(deadline));
}

static void
test_ttl(void **state)
{
	struct rkv_put_options one = {.ttl_s = 1}, long_lived = {.ttl_s = 1000};
	struct rkv_item item = {0};
	uint64_t version;
	char buf[8];
	(void)state;
	assert_int_equal(rkv_put(session, "ttl", 3, "old", 3, &one, &version), RKV_OK);
	assert_int_equal(rkv_put(session, "stays", 5, "old", 3, &long_lived, NULL), RKV_OK);
	assert_int_equal(rkv_get(session, "stays", 5, buf, sizeof(buf), &item), RKV_OK);
	assert_in_range(item.ttl_s, 900, 1000);
	await_absence("ttl");
	/* An expired value is absent for every operation ... */
	assert_int_equal(rkv_replace(session, "ttl", 3, "x", 1, NULL, NULL), RKV_NOT_FOUND);
	assert_int_equal(rkv_cas(session, "ttl", 3, "x", 1, version, NULL, NULL), RKV_NOT_FOUND);
	assert_int_equal(rkv_touch(session, "ttl", 3, 100, NULL), RKV_NOT_FOUND);
	assert_int_equal(rkv_delete(session, "ttl", 3), RKV_NOT_FOUND);
	/* ... and add goes over it, as an update of its slot. */
	assert_int_equal(rkv_add(session, "ttl", 3, "new", 3, NULL, NULL), RKV_OK);
	assert_int_equal(rkv_get(session, "ttl", 3, buf, sizeof(buf), &item), RKV_OK);
	assert_memory_equal(buf, "new", 3);
	assert_int_equal(item.ttl_s, 0);
	assert_int_equal(rkv_add(session, "ttl", 3, "x", 1, NULL, NULL), RKV_EXISTS);
	struct rkv_put_options too_long = {.ttl_s = limits.ttl_max_s + 1};
	assert_int_equal(rkv_put(session, "ttl", 3, "x", 1, &too_long, NULL), RKV_E_INVALID);
}

/*
 * Stores "touch" for a second, and "goes", and makes "touch" stay. If it was gone by then because a
 * pause of the machine took that second, once more.
 */
static void
put_and_touch(const unsigned char *value, size_t len, uint64_t *ret_version, uint64_t *ret_touched)
{
	struct rkv_put_options one = {.ttl_s = 1, .user_flags = 7};
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	for (;;) {
		int64_t begun = proc_deadline(0);
		assert_int_equal(rkv_put(session, "touch", 5, value, len, &one, ret_version),
				 RKV_OK);
		assert_int_equal(rkv_put(session, "goes", 4, "x", 1, &one, NULL), RKV_OK);
		int rc = rkv_touch(session, "touch", 5, 0, ret_touched);
		if (rc == RKV_OK)
			return;
		assert_int_equal(rc, RKV_NOT_FOUND);
		assert_true(proc_deadline(-500) >= begun && proc_pause(deadline));
	}
}

static void
test_touch(void **state)
{
	struct rkv_item item = {0};
	uint64_t version, touched;
	unsigned char *value = pattern(30000, 5), *buf = pattern(30000, 0);
	(void)state;
	put_and_touch(value, 30000, &version, &touched);
	assert_true(touched != version);
	await_absence("goes");
	assert_int_equal(rkv_get(session, "touch", 5, buf, 30000, &item), RKV_OK);
	assert_memory_equal(buf, value, 30000);
	assert_int_equal(item.version, touched);
	assert_int_equal(item.user_flags, 7);
	assert_int_equal(item.ttl_s, 0);
	assert_int_equal(rkv_touch(session, "touch", 5, 1, NULL), RKV_OK);
	await_absence("touch");
	free(value);
	free(buf);
}

static void
test_user_flags(void **state)
{
	static const uint32_t flags[] = {0, 1, 0x80000000, UINT32_MAX};
	(void)state;
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		struct rkv_put_options options = {.user_flags = flags[i]};
		struct rkv_item item = {0};
		assert_int_equal(rkv_put(session, "flags", 5, NULL, 0, &options, NULL), RKV_OK);
		assert_int_equal(rkv_get(session, "flags", 5, NULL, 0, &item), RKV_OK);
		assert_int_equal(item.user_flags, flags[i]);
	}
}

/* ---- Fork ---- */

/* Every call is refused; nothing hangs, nothing is damaged. */
static int
run_forked(void *arg)
{
	struct rkv_session *opened;
	struct rkv_limit_values values;
	struct rkv_stats_values stats;
	struct rkv_request *done[1];
	struct rkv_request r = {.op = RKV_OP_GET, .key = "fork", .key_len = 4};
	char buf[8];
	(void)arg;
	load_require(rkv_get(session, "fork", 4, buf, sizeof(buf), NULL) == RKV_E_INVALID);
	load_require(rkv_put(session, "fork", 4, "x", 1, NULL, NULL) == RKV_E_INVALID);
	load_require(rkv_delete(session, "fork", 4) == RKV_E_INVALID);
	load_require(rkv_touch(session, "fork", 4, 1, NULL) == RKV_E_INVALID);
	load_require(rkv_submit(session, &r) == RKV_E_INVALID);
	load_require(rkv_poll(session, done, 1, 10) == RKV_E_INVALID);
	load_require(rkv_run(session, &r, 1) == RKV_E_INVALID);
	load_require(rkv_session_open(client, &opened) == RKV_E_INVALID);
	load_require(rkv_limits(client, &values) == RKV_E_INVALID);
	load_require(rkv_stats(session, &stats) == RKV_E_INVALID);
	load_require(rkv_ping(client) == RKV_E_INVALID);
	load_require(rkv_server_stats(client, buf, sizeof(buf), NULL) == RKV_E_INVALID);
	load_require(rkv_buffer_register(client, buf, sizeof(buf)) == RKV_E_INVALID);
	rkv_session_close(session);
	rkv_close(client);
	if (THREAD_SANITIZED)
		return 0; /* it lets no thread begin here */
	/* A client of its own it may have. */
	struct rkv_client *own;
	int rc = rkv_open(server->address, NULL, &own);
	if (strcmp(server->fabric, "verbs") == 0) {
		load_require(rc == RKV_E_PERM); /* but not over RDMA, which its parent has used */
		return 0;
	}
	load_require(rc == RKV_OK);
	load_require(rkv_session_open(own, &opened) == RKV_OK);
	load_require(rkv_get(opened, "fork", 4, buf, sizeof(buf), NULL) == RKV_OK);
	load_require(memcmp(buf, "parent", 6) == 0);
	rkv_close(own);
	return 0;
}

static void
test_fork(void **state)
{
	char buf[8];
	(void)state;
	assert_int_equal(rkv_put(session, "fork", 4, "parent", 6, NULL, NULL), RKV_OK);
	assert_int_equal(load_reap(load_fork(run_forked, NULL), PROC_WAIT_MS), 0);
	assert_int_equal(rkv_get(session, "fork", 4, buf, sizeof(buf), NULL), RKV_OK);
	assert_memory_equal(buf, "parent", 6);
	assert_int_equal(rkv_put(session, "fork", 4, "again", 5, NULL, NULL), RKV_OK);
	assert_int_equal(rkv_ping(client), RKV_OK);
}

/* ---- Registered buffers ---- */

static void
test_registered_buffer(void **state)
{
	size_t len = value_max(3), size = rkv_buffer_size(len);
	unsigned char *out = pattern(len, 11), *in = pattern(size, 0);
	struct rkv_item item;
	(void)state;
	assert_true(size >= len);
	assert_int_equal(rkv_buffer_register(client, out, len), RKV_OK);
	assert_int_equal(rkv_buffer_register(client, in, size), RKV_OK);
	assert_int_equal(rkv_buffer_register(client, in + 1, 1), RKV_E_INVALID);
	for (size_t n = len; n > 2000; n = n * 5 / 8) {
		assert_int_equal(rkv_put(session, "buf", 3, out, n, NULL, NULL), RKV_OK);
		memset(in, 0, size);
		assert_int_equal(rkv_get(session, "buf", 3, in, rkv_buffer_size(n), &item), RKV_OK);
		assert_int_equal(item.value_len, n);
		assert_memory_equal(in, out, n);
		/* Into less than whole granules it goes by way of the arena. */
		memset(in, 0, size);
		assert_int_equal(rkv_get(session, "buf", 3, in, n, &item), RKV_OK);
		assert_memory_equal(in, out, n);
		assert_int_equal(rkv_get(session, "buf", 3, in, n - 1, &item), RKV_E_TOO_SMALL);
		assert_int_equal(item.value_len, n);
	}
	assert_int_equal(rkv_buffer_unregister(client, in), RKV_OK);
	assert_int_equal(rkv_buffer_unregister(client, in), RKV_E_INVALID);
	assert_int_equal(rkv_buffer_unregister(client, out), RKV_OK);
	assert_int_equal(rkv_buffer_size(SIZE_MAX), SIZE_MAX);
	free(out);
	free(in);
}

/* ---- Batches ---- */

#define BATCH 1000u /* more than the default depth */

static void
test_batches(void **state)
{
	static struct rkv_request requests[BATCH];
	static char keys[BATCH][LOAD_KEY_TEXT];
	static uint64_t values[BATCH], got[BATCH];
	(void)state;
	for (unsigned i = 0; i < BATCH; i++) {
		values[i] = i;
		requests[i] = (struct rkv_request){
			.op = RKV_OP_PUT,
			.status = 1000,
			.key = keys[i],
			.key_len = load_key(1000 + i, keys[i]),
			.value = &values[i],
			.value_len = sizeof(values[i]),
		};
	}
	assert_int_equal(rkv_multi_put(session, requests, BATCH), RKV_OK);
	for (unsigned i = 0; i < BATCH; i++) {
		assert_int_equal(requests[i].status, RKV_OK);
		requests[i].op = RKV_OP_GET;
		requests[i].status = 1000;
		requests[i].buf = &got[i];
		requests[i].buf_len = sizeof(got[i]);
	}
	requests[BATCH / 2].key = "no such key";
	requests[BATCH / 2].key_len = 11;
	assert_int_equal(rkv_multi_put(session, requests, BATCH), RKV_E_INVALID);
	assert_int_equal(rkv_multi_get(session, requests, BATCH), RKV_OK);
	for (unsigned i = 0; i < BATCH; i++) {
		bool absent = i == BATCH / 2;
		assert_int_equal(requests[i].status, absent ? RKV_NOT_FOUND : RKV_OK);
		assert_true(absent || got[i] == i);
	}
}

static void
test_empty_batches(void **state)
{
	struct rkv_request r = {.op = RKV_OP_GET, .key = "k", .key_len = 1};
	struct rkv_request *done[1];
	(void)state;
	assert_int_equal(rkv_run(session, &r, 0), RKV_OK);
	assert_int_equal(rkv_run(session, NULL, 0), RKV_OK);
	assert_int_equal(rkv_multi_get(session, NULL, 0), RKV_OK);
	assert_int_equal(rkv_multi_put(session, NULL, 0), RKV_OK);
	assert_int_equal(rkv_run(session, NULL, 1), RKV_E_INVALID);
	assert_int_equal(rkv_poll(session, done, 1, 1000), 0);
	assert_int_equal(rkv_poll(session, done, 0, 0), 0);
	assert_int_equal(rkv_poll(session, done, -1, 0), RKV_E_INVALID);
	r.op = (enum rkv_op)RKV_OP_COUNT;
	assert_int_equal(rkv_submit(session, &r), RKV_E_INVALID);
}

/* Depth operations in flight, and one more is turned away; a run cannot begin meanwhile. */
static void
test_depth(void **state)
{
	struct rkv_options options;
	struct rkv_client *c;
	struct rkv_session *s;
	struct rkv_request requests[5], *done[5];
	(void)state;
	rkv_options_init(&options);
	options.depth = 4;
	assert_int_equal(rkv_open(server->address, &options, &c), RKV_OK);
	assert_int_equal(rkv_session_open(c, &s), RKV_OK);
	for (unsigned i = 0; i < 5; i++) {
		requests[i] = (struct rkv_request){.op = RKV_OP_GET, .key = "none", .key_len = 4};
		assert_int_equal(rkv_submit(s, &requests[i]), i < 4 ? RKV_OK : RKV_AGAIN);
	}
	assert_int_equal(rkv_get(s, "none", 4, NULL, 0, NULL), RKV_AGAIN);
	assert_int_equal(rkv_run(s, requests, 1), RKV_E_INVALID);
	for (int n = 0; n < 4;) {
		int got = rkv_poll(s, done, 5, PROC_WAIT_MS);
		assert_true(got > 0);
		for (int i = 0; i < got; i++)
			assert_int_equal(done[i]->status, RKV_NOT_FOUND);
		n += got;
	}
	assert_int_equal(rkv_poll(s, done, 5, PROC_WAIT_MS), 0);
	assert_int_equal(rkv_submit(s, &requests[4]), RKV_OK);
	rkv_close(c);
}

/* ---- Threads ---- */

static void *
run_thread(void *arg)
{
	struct load *load = arg;
	load_mix(load, SANITIZED ? 2000 : 10000);
	return NULL;
}

/* A session a thread, of one client, on the same keys; a third thread asks questions meanwhile. */
static void
test_threads(void **state)
{
	struct load loads[2] = {{.n_keys = 8, .writer = 1, .random = 1},
				{.n_keys = 8, .writer = 2, .random = 2, .depth = 8}};
	pthread_t threads[2];
	(void)state;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(rkv_session_open(client, &loads[i].session), RKV_OK);
		assert_int_equal(pthread_create(&threads[i], NULL, run_thread, &loads[i]), 0);
	}
	for (int i = 0; i < 20; i++) {
		struct rkv_session *third;
		assert_int_equal(rkv_ping(client), RKV_OK);
		assert_int_equal(rkv_session_open(client, &third), RKV_OK);
		assert_true(load_counter(client, "sessions") >= 3);
		rkv_session_close(third);
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(loads[i].n_bad, 0);
		assert_true(loads[i].n_done > 0);
		rkv_session_close(loads[i].session);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keys_are_bytes),
		cmocka_unit_test(test_key_lengths),
		cmocka_unit_test(test_keys_refused),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_values_refused),
		cmocka_unit_test(test_empty_and_absent),
		cmocka_unit_test(test_buffer_too_small),
		cmocka_unit_test(test_ttl),
		cmocka_unit_test(test_touch),
		cmocka_unit_test(test_user_flags),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_registered_buffer),
		cmocka_unit_test(test_batches),
		cmocka_unit_test(test_empty_batches),
		cmocka_unit_test(test_depth),
		cmocka_unit_test(test_threads),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
