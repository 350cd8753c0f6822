/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Churn: how full can a pool be kept, when values come and go for ever? What lives is counted in
 * bytes of blocks, rounded up to granules, against the bytes of the heap: so the rounding up to
 * size classes, half-empty chunks and what rests count as lost. timeout: 600
 *
 *   same mix      fill, delete half at random, fill again: never RKV_E_NO_SPACE below 85 %
 *   other mixes   the same, with other sizes each round, to the first RKV_E_NO_SPACE: how far it
 *                 came is printed (proto/decisions/0008-no-compactor.md has the curve, with
 *                 RKV_CHURN_ROUNDS=16; by itself it runs half of them: most of the time it waits
 *                 for stamps)
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

#define N_KEYS 100000u
#define VALUE_MAX 16000u

static struct server *server;

static struct churn {
	struct rkv_client *client;
	struct rkv_session *session;
	uint64_t heap; /* bytes */
	uint64_t live; /* bytes of blocks */
	uint64_t random;
	unsigned n_live;
	unsigned key[N_KEYS];      /* the first n_live are there */
	uint16_t granules[N_KEYS]; /* by key */
} churn;

static unsigned char value[VALUE_MAX];

static void
begin(const char *pool_size, const char *index_slots)
{
	memset(&churn, 0, sizeof(churn));
	for (unsigned i = 0; i < N_KEYS; i++)
		churn.key[i] = i;
	server = server_start("--pool-size", pool_size, "--index-slots", index_slots, NULL);
	assert_int_equal(rkv_open(server->address, NULL, &churn.client), RKV_OK);
	assert_int_equal(rkv_session_open(churn.client, &churn.session), RKV_OK);
	churn.heap = load_counter(churn.client, "chunks_total") *
		     load_counter(churn.client, "chunk_size");
}

static int
end(void **state)
{
	(void)state;
	rkv_close(churn.client);
	int code = server_stop(server);
	server = NULL;
	return code;
}

static void
swap_keys(unsigned a, unsigned b)
{
	unsigned key = churn.key[a];
	churn.key[a] = churn.key[b];
	churn.key[b] = key;
}

static void
delete_one(void)
{
	char text[LOAD_KEY_TEXT];
	unsigned i = (unsigned)(load_random(&churn.random) % churn.n_live);
	unsigned key = churn.key[i];
	assert_int_equal(rkv_delete(churn.session, text, load_key(key, text)), RKV_OK);
	churn.live -= churn.granules[key] * LIMIT_GRANULE;
	swap_keys(i, --churn.n_live);
}

/* Stores a value under a key that is not there, trying again while memory only rests. */
static int
put_one(size_t len)
{
	char text[LOAD_KEY_TEXT];
	int64_t deadline = proc_deadline(STAMP_WAIT_MS);
	int rc;
	assert_true(churn.n_live < N_KEYS);
	unsigned i =
		churn.n_live + (unsigned)(load_random(&churn.random) % (N_KEYS - churn.n_live));
	unsigned key = churn.key[i];
	size_t key_len = load_key(key, text);
	do
		rc = rkv_put(churn.session, text, key_len, value, len, NULL, NULL);
	while (rc == RKV_AGAIN && proc_pause(deadline));
	if (rc != RKV_OK)
		return rc;
	churn.granules[key] = (uint16_t)block_granules(block_len((uint32_t)key_len, len));
	churn.live += churn.granules[key] * LIMIT_GRANULE;
	swap_keys(i, churn.n_live++);
	return RKV_OK;
}

static void
delete_half(void)
{
	for (unsigned n = churn.n_live / 2; n; n--)
		delete_one();
}

static double
percent(void)
{
	return 100.0 * (double)churn.live / (double)churn.heap;
}

/* ---- The same mix ---- */

#define N_ROUNDS (SANITIZED ? 20u : 200u)
/* Where most blocks rest at any time, so much more memory is in use than lives. */
#define WANTED (LIMIT_TAG_BITS < 12 ? 60u : 85u)

static size_t
same_mix(void)
{
	static const uint16_t len[8] = {200, 500, 500, 1000, 1000, 2000, 4000, 8000};
	return len[load_random(&churn.random) % 8];
}

static void
test_same_mix(void **state)
{
	(void)state;
	begin("16M", "24000");
	churn.random = 1;
	for (unsigned round = 0; round <= N_ROUNDS; round++) {
		while (churn.live < churn.heap / 100 * WANTED) {
			int rc = put_one(same_mix());
			if (rc != RKV_OK)
				fail_msg("round %u: %s at %.1f %%", round, rkv_strerror(rc),
					 percent());
		}
		delete_half();
	}
}

/* ---- Mixes that change ---- */

#define N_MIXES 8u

/* Sizes of a round lie within a factor of two, and the rounds go through all of them. */
static size_t
changing_mix(unsigned round)
{
	static const uint16_t least[N_MIXES] = {100, 3000, 300, 8000, 1000, 150, 5000, 600};
	uint16_t from = least[round % N_MIXES];
	return from + load_random(&churn.random) % from;
}

static void
test_changing_mixes(void **state)
{
	const char *rounds = getenv("RKV_CHURN_ROUNDS");
	unsigned n_rounds = rounds ? (unsigned)strtoul(rounds, NULL, 10) : N_MIXES;
	(void)state;
	begin("16M", "120000");
	churn.random = 2;
	for (unsigned round = 0; round < n_rounds; round++) {
		int rc;
		while ((rc = put_one(changing_mix(round))) == RKV_OK)
			;
		if (rc != RKV_E_NO_SPACE)
			fail_msg("round %u: %s at %.1f %%", round, rkv_strerror(rc), percent());
		print_message("round %2u: %.1f %% of the heap lives when it is full\n", round,
			      percent());
		delete_half();
	}
	/* Whatever was there: once it is gone, all of it serves again. */
	while (churn.n_live)
		delete_one();
	while (churn.live < churn.heap / 100 * 85) {
		int rc = put_one(same_mix());
		if (rc != RKV_OK)
			fail_msg("at the end: %s at %.1f %%", rkv_strerror(rc), percent());
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_same_mix, end),
		cmocka_unit_test_teardown(test_changing_mixes, end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
