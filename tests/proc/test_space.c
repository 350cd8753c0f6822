/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory goes round: processes that come and go do not use it up, a full index and a full pool are
 * answers of their own, and what was deleted makes room again, for the same sizes, for other
 * sessions and, once its stamp has passed, for other sizes. timeout: 600
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "client/include/rkv.h"
#include "proto/layout.h"
#include "tests/proc/load.h"
#include "tests/proc/proc.h"

/* Long enough for T_WORD and a few keepalives on a busy machine. */
#define STAMP_WAIT_MS ((int)(LIMIT_WORD_STAMPS * LIMIT_STAMP_MS) + PROC_WAIT_MS)

static struct server *server;
static struct rkv_client *client;
static struct rkv_session *session;

static void
begin(const char *pool_size, const char *index_slots)
{
	server = server_start("--pool-size", pool_size, "--index-slots", index_slots, NULL);
	assert_int_equal(rkv_open(server->address, NULL, &client), RKV_OK);
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
}

static void
end(void)
{
	rkv_close(client);
	assert_int_equal(server_stop(server), 0);
	server = NULL;
}

static int
end_anyway(void **state)
{
	(void)state;
	if (server)
		server_kill(server);
	server = NULL;
	return 0;
}

/* Stores, trying again while memory only rests. */
static int
put_patiently(struct rkv_session *s, unsigned key, const void *value, size_t len)
{
	char text[LOAD_KEY_TEXT];
	int64_t deadline = proc_deadline(STAMP_WAIT_MS);
	int rc;
	do
		rc = rkv_put(s, text, load_key(key, text), value, len, NULL, NULL);
	while (rc == RKV_AGAIN && proc_pause(deadline));
	return rc;
}

static int delete (struct rkv_session *s, unsigned key)
{
	char text[LOAD_KEY_TEXT];
	return rkv_delete(s, text, load_key(key, text));
}

static unsigned char bytes[64 << 10];

/* ---- Processes that come and go ---- */

#define N_RUNS (SANITIZED ? 100u : 1000u)

static void
test_many_processes(void **state)
{
	char key[LOAD_KEY_TEXT], buf[32];
	struct rkv_item item;
	(void)state;
	begin("16M", "0");
	for (unsigned i = 0; i < N_RUNS; i++) {
		load_key(i % 2 ? i : 0, key); /* every second one is an UPDATE */
		const char *args[] = {"--server", server->address, "put", key, "some value", NULL};
		struct proc *cli = proc_run("kv-cli", args, NULL);
		if (cli->exit_code != 0)
			fail_msg("run %u: %s", i, proc_text(cli, PROC_ERR, NULL));
		proc_free(cli);
	}
	for (unsigned i = 0; i < N_RUNS; i++) {
		size_t len = load_key(i % 2 ? i : 0, key);
		assert_int_equal(rkv_get(session, key, len, buf, sizeof(buf), &item), RKV_OK);
		assert_int_equal(item.value_len, 10);
	}
	/* All blocks fit a few chunks; each process must not have had one of its own. */
	assert_true(load_await_counter(client, "sessions", 1, 1, PROC_WAIT_MS));
	uint64_t n_taken =
		load_counter(client, "chunks_total") - load_counter(client, "chunks_free");
	assert_in_range(n_taken, 1, 4);
	assert_true(load_counter(client, "sessions_joined") > N_RUNS);
	end();
}

/* ---- Full ---- */

static void
test_index_full(void **state)
{
	unsigned n = 0;
	int rc = RKV_OK;
	(void)state;
	begin("16M", "1000");
	while (n < 2000 && (rc = put_patiently(session, n, "v", 1)) == RKV_OK)
		n++;
	assert_int_equal(rc, RKV_E_INDEX_FULL);
	assert_true(n > 500);
	/* Those that are there can be read, updated and deleted; then there is room again. */
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(put_patiently(session, i, "w", 1), RKV_OK);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(delete (session, i), RKV_OK);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(put_patiently(session, i, "x", 1), RKV_OK);
	end();
}

/* Values of that length until the pool is full; returns how many. */
static unsigned
fill(struct rkv_session *s, unsigned first_key, size_t len)
{
	unsigned n = 0;
	int rc;
	while ((rc = put_patiently(s, first_key + n, bytes, len)) == RKV_OK)
		n++;
	if (rc != RKV_E_NO_SPACE)
		fail_msg("a full pool answers %s", rkv_strerror(rc));
	return n;
}

static void
test_pool_full(void **state)
{
	char text[LOAD_KEY_TEXT];
	size_t len = 3000;
	(void)state;
	begin("16M", "0");
	unsigned n = fill(session, 0, len);
	uint64_t heap = load_counter(client, "chunks_total") * load_counter(client, "chunk_size");
	assert_true(n * len > heap * 8 / 10);
	/* Never anything but NO_SPACE while nothing rests: not AGAIN, and nothing else breaks. */
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(rkv_put(session, "one more", 8, bytes, len, NULL, NULL),
				 RKV_E_NO_SPACE);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(rkv_get(session, text, load_key(i, text), bytes, len, NULL),
				 RKV_OK);
	assert_int_equal(rkv_get(session, "one more", 8, bytes, len, NULL), RKV_NOT_FOUND);
	/* An UPDATE needs a new block before the old one is free. */
	assert_int_equal(rkv_put(session, text, load_key(0, text), bytes, len, NULL, NULL),
			 RKV_E_NO_SPACE);
	assert_int_equal(delete (session, 1), RKV_OK);
	assert_int_equal(put_patiently(session, 0, bytes, len), RKV_OK);
	end();
}

/* ---- Deleting makes room ---- */

#define CHURN_ROUNDS (SANITIZED ? 10u : 100u)
/* Where most blocks rest at any time, so much more memory is in use than lives. */
#define CHURN_PERCENT (LIMIT_TAG_BITS < 12 ? 60u : 85u)

struct churn {
	size_t *len;   /* by key; 0: absent */
	unsigned *key; /* those there, in no order */
	unsigned n_keys;
	unsigned n_live;
	uint64_t live_bytes;
	uint64_t random;
};

static size_t
churn_len(uint64_t random)
{
	static const uint16_t len[8] = {40, 100, 100, 300, 1000, 1000, 4000, 12000};
	return len[random % 8];
}

static uint64_t
block_bytes(size_t len)
{
	return block_granules(block_len(10, len)) * LIMIT_GRANULE;
}

static void
churn_delete(struct churn *churn)
{
	unsigned i = (unsigned)(load_random(&churn->random) % churn->n_live);
	unsigned key = churn->key[i];
	assert_int_equal(delete (session, key), RKV_OK);
	churn->live_bytes -= block_bytes(churn->len[key]);
	churn->len[key] = 0;
	churn->key[i] = churn->key[--churn->n_live];
}

static void
churn_put(struct churn *churn)
{
	unsigned key;
	do
		key = (unsigned)(load_random(&churn->random) % churn->n_keys);
	while (churn->len[key]);
	size_t len = churn_len(load_random(&churn->random));
	int rc = put_patiently(session, key, bytes, len);
	if (rc != RKV_OK)
		fail_msg("%s with %u keys of %llu bytes", rkv_strerror(rc), churn->n_live,
			 (unsigned long long)churn->live_bytes);
	churn->len[key] = len;
	churn->key[churn->n_live++] = key;
	churn->live_bytes += block_bytes(len);
}

static void
test_churn(void **state)
{
	struct churn churn = {.n_keys = 100000, .random = 1};
	(void)state;
	begin("32M", "40000");
	churn.len = calloc(churn.n_keys, sizeof(*churn.len));
	churn.key = calloc(churn.n_keys, sizeof(*churn.key));
	assert_true(churn.len && churn.key);
	uint64_t heap = load_counter(client, "chunks_total") * load_counter(client, "chunk_size");
	for (unsigned round = 0; round <= CHURN_ROUNDS; round++) {
		for (unsigned n = churn.n_live * 15 / 100; n; n--)
			churn_delete(&churn);
		while (churn.live_bytes < heap / 100 * CHURN_PERCENT)
			churn_put(&churn);
	}
	free(churn.len);
	free(churn.key);
	end();
}

/* Another session deletes; the owner's memory is its own again. */
static void
test_freed_by_another(void **state)
{
	struct rkv_session *other;
	(void)state;
	begin("16M", "0");
	assert_int_equal(rkv_session_open(client, &other), RKV_OK);
	unsigned n = fill(session, 0, 3000);
	for (unsigned round = 0; round < 5; round++) {
		for (unsigned i = 0; i < n; i++)
			assert_int_equal(delete (other, i), RKV_OK);
		for (unsigned i = 0; i < n; i++)
			assert_int_equal(put_patiently(session, i, bytes, 3000), RKV_OK);
	}
	end();
}

/* ---- Other sizes, other sessions ---- */

/* Chunks of one class, emptied, serve another class of the same session. */
static void
test_other_class(void **state)
{
	(void)state;
	begin("16M", "0");
	unsigned n = fill(session, 0, 3000);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(delete (session, i), RKV_OK);
	for (unsigned i = 0; i < n / 3; i++)
		assert_int_equal(put_patiently(session, 100000 + i, bytes, 6000), RKV_OK);
	end();
}

/* The same for a session that does not own them, while the owner is idle but lives. */
static void
test_other_class_other_session(void **state)
{
	struct rkv_session *other;
	struct rkv_stats_values stats;
	int64_t deadline = proc_deadline(2 * STAMP_WAIT_MS);
	(void)state;
	begin("16M", "0");
	assert_int_equal(rkv_session_open(client, &other), RKV_OK);
	unsigned n = fill(session, 0, 3000);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(delete (session, i), RKV_OK);
	for (unsigned i = 0; i < n / 3;) {
		/* Until the server has asked the owner and the stamp has passed. */
		int rc = rkv_put(other, "big", 3, bytes, 6000, NULL, NULL);
		assert_true(rc == RKV_OK || rc == RKV_AGAIN);
		if (rc == RKV_OK)
			rc = put_patiently(other, 100000 + i, bytes, 6000);
		if (rc == RKV_OK)
			i++;
		else
			assert_true(proc_pause(deadline));
	}
	assert_int_equal(rkv_stats(session, &stats), RKV_OK);
	assert_true(stats.n_chunks_returned > 0);
	end();
}

/* What a closed session leaves is adopted: free blocks are used, live ones stay. */
static void
test_adoption(void **state)
{
	struct rkv_session *heir;
	struct rkv_stats_values stats;
	char text[LOAD_KEY_TEXT];
	(void)state;
	begin("16M", "0");
	unsigned n = fill(session, 0, 3000);
	for (unsigned i = 0; i < n; i += 2)
		assert_int_equal(delete (session, i), RKV_OK);
	rkv_session_close(session);
	assert_int_equal(rkv_session_open(client, &heir), RKV_OK);
	memset(bytes, 'h', 3000);
	for (unsigned i = 0; i < n; i += 2)
		assert_int_equal(put_patiently(heir, i, bytes, 3000), RKV_OK);
	assert_int_equal(rkv_stats(heir, &stats), RKV_OK);
	assert_true(stats.n_chunks_adopted > 0);
	assert_int_equal(stats.n_chunks_claimed, 0);
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(rkv_get(heir, text, load_key(i, text), bytes, 3000, NULL), RKV_OK);
		assert_int_equal(bytes[2999], i % 2 ? 0 : 'h');
	}
	memset(bytes, 0, 3000);
	end();
}

/* And what it leaves empty serves other classes, once its stamp has passed. */
static void
test_adoption_other_class(void **state)
{
	struct rkv_session *heir;
	(void)state;
	begin("16M", "0");
	unsigned n = fill(session, 0, 3000);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(delete (session, i), RKV_OK);
	rkv_session_close(session);
	assert_int_equal(rkv_session_open(client, &heir), RKV_OK);
	for (unsigned i = 0; i < n / 3; i++)
		assert_int_equal(put_patiently(heir, 100000 + i, bytes, 6000), RKV_OK);
	end();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_many_processes, end_anyway),
		cmocka_unit_test_teardown(test_index_full, end_anyway),
		cmocka_unit_test_teardown(test_pool_full, end_anyway),
		cmocka_unit_test_teardown(test_churn, end_anyway),
		cmocka_unit_test_teardown(test_freed_by_another, end_anyway),
		cmocka_unit_test_teardown(test_other_class, end_anyway),
		cmocka_unit_test_teardown(test_other_class_other_session, end_anyway),
		cmocka_unit_test_teardown(test_adoption, end_anyway),
		cmocka_unit_test_teardown(test_adoption_other_class, end_anyway),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
