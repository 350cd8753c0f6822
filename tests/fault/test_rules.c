/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rules of PROTOCOL.md that a reader and an inserter keep whatever the region holds: blocks,
 * words and rivals are forged by hand. Requests are counted in the world's trace.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/err.h"
#include "proto/block.h"
#include "tests/fault/harness.h"

#define KEY "key"
#define KEY_LEN (sizeof(KEY) - 1)
#define SHORT_MS 50u /* virtual milliseconds */

/* One group: every key has the same two buckets, which share their overflow bucket. */
static const struct world_shape one_group = {
	.n_groups = 1, .chunk_size = 8192, .n_chunks = 24, .cache_bytes = 65536, .has_spare = true};

static struct rkv_put_options
soon(void)
{
	return (struct rkv_put_options){.timeout_ms = SHORT_MS};
}

static int
put_soon(struct rkv_session *s, const char *key, const char *value)
{
	struct rkv_put_options options = soon();
	return rkv_put(s, key, strlen(key), value, strlen(value), &options, NULL);
}

/* A GET with a short deadline. */
static int
get_soon(struct rkv_session *s, const char *key, char ret_value[64])
{
	struct rkv_request r = {
		.op = RKV_OP_GET,
		.key = key,
		.key_len = strlen(key),
		.buf = ret_value,
		.buf_len = 63,
		.options = soon(),
	};
	assert_int_equal(rkv_run(s, &r, 1), 0);
	ret_value[r.status == 0 ? r.item.value_len : 0] = '\0';
	return r.status;
}

static bool
has_kind(const struct world_batch *b, enum fab_kind kind)
{
	for (unsigned i = 0; i < b->n; i++)
		if (b->op[i].kind == kind)
			return true;
	return false;
}

static bool
reads_at(const struct world_batch *b, uint64_t roff)
{
	for (unsigned i = 0; i < b->n; i++)
		if (b->op[i].kind == FAB_READ && b->op[i].roff == roff)
			return true;
	return false;
}

/* ---- [STAMP] ---- */

/*
 * A word in the cache serves for T_WORD, a CAS and a GET alike; an older one is no better than
 * none: first the buckets are READ again, then the block (decisions/0005).
 */
enum { OLD_GET, OLD_PUT, OLD_DELETE };

static void
test_old_word(void **state)
{
	(void)state;
	struct world *w = world_open(NULL);
	struct rkv_session *s = world_session(w);
	for (int is_old = 0; is_old < 2; is_old++) {
		for (int course = OLD_GET; course <= OLD_DELETE; course++) {
			assert_int_equal(world_put(s, KEY, "v0"), 0);
			uint64_t off = world_find(w, KEY), word = *world_word(w, off);
			uint64_t newest = atomic_load(&w->client.stamps.newest);
			world_stamp(w, newest + LIMIT_WORD_STAMPS + (unsigned)is_old, 0);
			/* Marks that are out would hold the start where it was. */
			assert_true(session_take(s));
			session_maintain(s, INT64_MAX);
			session_release(s);
			unsigned from = w->n_trace;
			char value[64];
			if (course == OLD_GET)
				assert_int_equal(world_get(s, KEY, value), 0);
			else if (course == OLD_DELETE)
				assert_int_equal(rkv_delete(s, KEY, KEY_LEN), 0);
			else
				assert_int_equal(world_put(s, KEY, "v1"), 0);
			unsigned n_cold = course == OLD_GET ? 2 : 3;
			assert_int_equal(world_n_batches(w, from), is_old ? n_cold : 1);
			const struct world_batch *first = &w->trace[from % WORLD_TRACE_MAX];
			assert_int_equal(has_kind(first, FAB_CAS), !is_old && course != OLD_GET);
			if (is_old) {
				assert_false(reads_at(first, slot_block_off(word)));
				assert_false(reads_at(first, off));
			}
			world_expect_cold(w, KEY,
					  course == OLD_DELETE ? NULL
					  : course == OLD_PUT  ? "v1"
							       : "v0");
		}
	}
	world_close(w);
}

/*
 * What [STAMP] is for: the word recurs after its tags have gone round, but names another key. An
 * old word leads to a look at the block, which is another's; it is not written over.
 */
static void
test_old_word_of_another(void **state)
{
	(void)state;
	struct world *w = world_open(&one_group);
	struct rkv_session *s = world_session(w);
	char twin[32];
	unsigned number = 0;
	world_twin(w, KEY, &number, twin);
	assert_int_equal(world_put(s, KEY, "v0"), 0);
	uint64_t word = *world_word(w, world_find(w, KEY));
	assert_int_equal(world_block(w, slot_block_off(word), slot_tag(word), twin, "theirs", 0),
			 word);
	world_stamp(w, WORLD_STAMP + LIMIT_WORD_STAMPS + 1, 0);
	assert_int_equal(world_put(s, KEY, "v1"), 0);
	world_expect_cold(w, twin, "theirs");
	world_expect_cold(w, KEY, "v1");
	world_check(w);
	world_close(w);
}

/* ---- [SELF-ID], [RANGE] ---- */

enum forgery {
	WRONG_CHECKSUM,
	WRONG_PLACE, /* the right bytes of another block */
	WRONG_TAG,
	KEY_TOO_LONG,
	KEY_EMPTY,
	VALUE_TOO_LONG,
	ZEROES,
	FORGERIES,
};

static void
forge(struct world *w, uint64_t word, enum forgery forgery)
{
	uint64_t off = slot_block_off(word);
	struct block_header *h = (struct block_header *)(void *)(w->base + off);
	switch (forgery) {
	case WRONG_CHECKSUM:
		h->checksum ^= 1;
		break;
	case WRONG_PLACE:
		world_block(w, world_spare(w, 20), slot_tag(word), KEY, "stale", 0);
		memcpy(w->base + off, w->base + world_spare(w, 20), LIMIT_GRANULE);
		break;
	case WRONG_TAG:
		world_block(w, off, slot_tag(word) + 1, KEY, "stale", 0);
		*world_mark(w, off) = layout_mark(slot_tag(word) - 1);
		break;
	case KEY_TOO_LONG:
		h->key_len = UINT16_MAX;
		break;
	case KEY_EMPTY:
		h->key_len = 0;
		break;
	case VALUE_TOO_LONG:
		h->value_len = UINT32_MAX;
		break;
	case ZEROES:
	case FORGERIES:
		memset(h, 0, LIMIT_GRANULE);
		break;
	}
}

/* Is warm or cold, a block that does not name itself is never returned and never a miss, [G2]. */
static void
test_invalid_block(void **state)
{
	(void)state;
	for (unsigned forgery = 0; forgery < FORGERIES; forgery++) {
		for (int is_warm = 0; is_warm < 2; is_warm++) {
			struct world *w = world_open(NULL);
			struct rkv_session *s = world_session(w);
			char got[64];
			assert_int_equal(world_put(s, KEY, "value"), 0);
			uint64_t off = world_find(w, KEY), word = *world_word(w, off);
			unsigned char kept[LIMIT_GRANULE];
			memcpy(kept, w->base + slot_block_off(word), sizeof(kept));
			forge(w, word, (enum forgery)forgery);
			struct rkv_session *reader = is_warm ? s : world_session(w);
			int64_t from_ns = fab_now(w->fab);
			assert_int_equal(get_soon(reader, KEY, got), ERR_CORRUPT);
			assert_true(fab_now(w->fab) - from_ns >= SHORT_MS * INT64_C(1000000));
			/* A cold PUT cannot tell whose it is: it must not make a second word. */
			struct rkv_session *writer = world_session(w);
			int rc = put_soon(writer, KEY, "second");
			assert_true(rc == ERR_CORRUPT || rc == ERR_TIMEOUT);
			assert_int_equal(*world_word(w, off), word);
			/* It was only not placed yet. */
			memcpy(w->base + slot_block_off(word), kept, sizeof(kept));
			world_expect(reader, KEY, "value");
			world_check(w);
			world_close(w);
		}
	}
}

/* A block that lands while a reader looks again. */
static unsigned heal_after;
static unsigned char healed[LIMIT_GRANULE];
static uint64_t heal_off;

static void
heal(struct world *w, const struct world_batch *b)
{
	if (reads_at(b, heal_off) && heal_after-- == 0)
		memcpy(w->base + heal_off, healed, sizeof(healed));
}

static void
test_block_lands_late(void **state)
{
	(void)state;
	for (heal_after = 0; heal_after < 5;) {
		unsigned n = heal_after;
		struct world *w = world_open(NULL);
		struct rkv_session *s = world_session(w);
		assert_int_equal(world_put(s, KEY, "value"), 0);
		heal_off = slot_block_off(*world_word(w, world_find(w, KEY)));
		memcpy(healed, w->base + heal_off, sizeof(healed));
		memset(w->base + heal_off, 0, sizeof(healed));
		w->before = heal;
		world_expect_cold(w, KEY, "value");
		world_close(w);
		heal_after = n + 1;
	}
}

/* A valid block of another key with the same fingerprint is neither returned nor a hit, [G3]. */
static void
test_collisions(void **state)
{
	(void)state;
	struct world *w = world_open(&one_group);
	struct rkv_session *s = world_session(w);
	char twin[8][32];
	unsigned number = 0;
	for (unsigned i = 0; i < 8; i++) {
		world_twin(w, KEY, &number, twin[i]);
		assert_int_equal(world_put(s, twin[i], twin[i]), 0);
	}
	world_expect_cold(w, KEY, NULL);
	assert_int_equal(rkv_delete(s, KEY, KEY_LEN), RKV_NOT_FOUND);
	assert_int_equal(world_put(s, KEY, "v0"), 0);
	assert_int_equal(rkv_add(s, KEY, KEY_LEN, "v1", 2, NULL, NULL), RKV_EXISTS);
	for (unsigned i = 0; i < 8; i++) {
		world_expect_cold(w, twin[i], twin[i]);
		assert_int_equal(world_put(s, twin[i], "new"), 0);
		world_expect_cold(w, twin[i], "new");
	}
	world_expect_cold(w, KEY, "v0");
	/* The cached word is the twin's by now: the reader goes on, and finds its own. */
	struct rkv_session *reader = world_session(w);
	world_expect(reader, KEY, "v0");
	uint64_t mine = world_find(w, KEY), theirs = world_find(w, twin[3]);
	uint64_t word = *world_word(w, mine);
	*world_word(w, mine) = *world_word(w, theirs);
	*world_word(w, theirs) = word;
	world_expect(reader, KEY, "v0");
	world_check(w);
	world_close(w);
}

static void
test_out_of_range(void **state)
{
	(void)state;
	struct world *w = world_open(NULL);
	struct rkv_session *s = world_session(w);
	char got[64];
	assert_int_equal(world_put(s, KEY, "value"), 0);
	uint64_t off = world_find(w, KEY), word = *world_word(w, off);
	uint32_t f = slot_fingerprint(word), tag = slot_tag(word);
	uint64_t end = w->layout.heap_off + w->layout.n_chunks * w->layout.chunk_size;
	const uint64_t forged[] = {
		slot_make(0, 1, tag, f, SLOT_COMMITTED),
		slot_make(w->layout.heap_off - LIMIT_GRANULE, 1, tag, f, SLOT_COMMITTED),
		slot_make(end, 1, tag, f, SLOT_COMMITTED),
		slot_make(end - LIMIT_GRANULE, 2, tag, f, SLOT_COMMITTED),
		slot_make(UINT32_MAX * (uint64_t)LIMIT_GRANULE, 1, tag, f, SLOT_COMMITTED),
		slot_make(slot_block_off(word), SLOT_SIZE_CODE_MAX, tag, f, SLOT_COMMITTED),
		slot_make(slot_block_off(word), 0, tag, f, SLOT_COMMITTED),
	};
	for (unsigned i = 0; i < sizeof(forged) / sizeof(forged[0]); i++) {
		*world_word(w, off) = forged[i];
		struct rkv_session *cold = world_session(w);
		assert_int_equal(get_soon(cold, KEY, got), ERR_CORRUPT);
		assert_int_equal(get_soon(s, KEY, got), ERR_CORRUPT);
		assert_int_equal(put_soon(cold, KEY, "other"), ERR_CORRUPT);
		assert_int_equal(*world_word(w, off), forged[i]);
		*world_word(w, off) = word;
		world_expect(cold, KEY, "value");
		rkv_session_close(cold);
	}
	assert_int_equal(w->n_out_of_range, 0);
	world_close(w);
}

/* ---- INSERT among rivals, [I2] to [I6] ---- */

enum rival { RIVAL_TENTATIVE, RIVAL_COMMITTED, RIVAL_TWIN, RIVAL_INVALID };

static struct {
	enum rival rival;
	bool is_lower;
	bool is_there; /* at once, else it appears behind the look at the buckets */
	bool goes;     /* a lower one goes by itself at the second look at the buckets */
	uint64_t off, word;
	uint64_t own; /* first tentative word of ours: slot and word */
	uint64_t own_word;
	int64_t own_ns;
	int64_t killed_ns;
	unsigned n_tentative;
	unsigned n_kills;
	unsigned n_withdrawals;
	unsigned n_looks;
} duel;

static uint64_t
slot_beside(struct world *w, uint64_t own, bool is_lower)
{
	uint64_t slot[2 * LAYOUT_COMBINED_SLOTS];
	unsigned n = world_slots(w, KEY, KEY_LEN, slot);
	for (unsigned i = 0; i < n; i++)
		if (slot[i] != own && (slot[i] < own) == is_lower && *world_word(w, slot[i]) == 0)
			return slot[i];
	return 0;
}

static void
place_rival(struct world *w, uint64_t own)
{
	char twin[32] = KEY;
	unsigned number = 0;
	if (duel.rival == RIVAL_TWIN)
		world_twin(w, KEY, &number, twin);
	duel.off = slot_beside(w, own, duel.is_lower);
	assert_int_not_equal(duel.off, 0);
	duel.word = world_block(w, world_spare(w, 0), 7, twin, "rival", 0);
	if (duel.rival != RIVAL_COMMITTED)
		duel.word = slot_with_state(duel.word, SLOT_TENTATIVE);
	if (duel.rival == RIVAL_INVALID)
		w->base[world_spare(w, 0)] ^= 1;
	*world_word(w, duel.off) = duel.word;
}

static void
watch_duel(struct world *w, const struct world_batch *b)
{
	uint64_t off;
	if (b->is_quiet)
		return;
	if (world_swaps_to(b, SLOT_TENTATIVE, &off) && duel.n_tentative++ == 0) {
		duel.own = off;
		for (unsigned i = 0; i < b->n; i++)
			if (b->op[i].kind == FAB_CAS)
				duel.own_word = b->op[i].swap;
		duel.own_ns = fab_now(w->fab);
		place_rival(w, off);
	}
	if (world_swaps_to(b, SLOT_DELETED, &off)) {
		duel.n_kills += off == duel.off;
		duel.n_withdrawals += off != duel.off;
		if (off == duel.off)
			duel.killed_ns = fab_now(w->fab);
	} else if (duel.n_withdrawals && duel.goes && !has_kind(b, FAB_CAS)) {
		*world_word(w, duel.off) = slot_with_state(duel.word, SLOT_DELETED);
	}
}

static struct world *
open_duel(enum rival rival, bool is_lower, struct rkv_session **ret_session)
{
	struct world *w = world_open(NULL);
	*ret_session = world_session(w);
	assert_int_equal(world_put(*ret_session, "filler", "filler"), 0);
	memset(&duel, 0, sizeof(duel));
	duel.rival = rival;
	duel.is_lower = is_lower;
	w->before = watch_duel;
	return w;
}

static void
close_duel(struct world *w)
{
	w->before = NULL;
	world_check(w);
	assert_int_equal(world_count(w, KEY, SLOT_TENTATIVE), 0);
	world_close(w);
}

/* [I4] */
static void
test_higher_rival(void **state)
{
	(void)state;
	struct rkv_session *s;
	struct world *w = open_duel(RIVAL_TENTATIVE, false, &s);
	assert_int_equal(world_put(s, KEY, "ours"), 0);
	assert_int_equal(duel.n_kills, 1);
	assert_int_equal(duel.n_withdrawals, 0);
	assert_int_equal(duel.n_tentative, 1);
	assert_true(world_is_marked(w, duel.word)); /* [I6]: by the killer */
	assert_int_equal(*world_word(w, duel.off), slot_with_state(duel.word, SLOT_DELETED));
	assert_int_equal(world_find(w, KEY), duel.own);
	world_expect_cold(w, KEY, "ours");
	close_duel(w);
}

/* [I3] The very same word still there after T_TENT is killed, not before. */
static void
test_lower_rival(void **state)
{
	(void)state;
	struct rkv_session *s;
	struct world *w = open_duel(RIVAL_TENTATIVE, true, &s);
	assert_int_equal(world_put(s, KEY, "ours"), 0);
	assert_int_equal(duel.n_kills, 1);
	assert_int_equal(duel.n_withdrawals, 1);
	assert_int_equal(duel.n_tentative, 2);
	assert_true(duel.killed_ns - duel.own_ns >= (int64_t)LIMIT_TENTATIVE_NS);
	assert_true(world_is_marked(w, duel.word));
	world_expect_cold(w, KEY, "ours");
	close_duel(w);
}

static void
test_lower_rival_goes(void **state)
{
	(void)state;
	struct rkv_session *s;
	struct world *w = open_duel(RIVAL_TENTATIVE, true, &s);
	duel.goes = true;
	assert_int_equal(world_put(s, KEY, "ours"), 0);
	assert_int_equal(duel.n_kills, 0);
	assert_int_equal(duel.n_withdrawals, 1);
	assert_false(world_is_marked(w, duel.word)); /* not ours to mark */
	world_expect_cold(w, KEY, "ours");
	close_duel(w);
}

/* Another key with the same fingerprint is none of our business. */
static void
test_twin_rival(void **state)
{
	(void)state;
	for (int is_lower = 0; is_lower < 2; is_lower++) {
		struct rkv_session *s;
		struct world *w = open_duel(RIVAL_TWIN, is_lower, &s);
		assert_int_equal(world_put(s, KEY, "ours"), 0);
		assert_int_equal(duel.n_kills + duel.n_withdrawals, 0);
		assert_int_equal(*world_word(w, duel.off), duel.word);
		*world_word(w, duel.off) = 0;
		world_expect_cold(w, KEY, "ours");
		close_duel(w);
	}
}

/* [I2] A committed word of the same key: withdraw, wait, go the UPDATE way, with the same block. */
static void
test_committed_rival(void **state)
{
	(void)state;
	for (int is_lower = 0; is_lower < 2; is_lower++) {
		struct rkv_session *s;
		struct world *w = open_duel(RIVAL_COMMITTED, is_lower, &s);
		assert_int_equal(world_put(s, KEY, "ours"), 0);
		assert_int_equal(duel.n_withdrawals, 1);
		assert_int_equal(duel.n_kills, 0);
		assert_int_equal(world_find(w, KEY), duel.off);
		assert_int_equal(slot_block_off(*world_word(w, duel.off)),
				 slot_block_off(duel.own_word));
		assert_true(world_is_marked(w, duel.word));
		world_expect_cold(w, KEY, "ours");
		close_duel(w);
		/* add: it is there; the block that was written is marked by its owner. */
		w = open_duel(RIVAL_COMMITTED, is_lower, &s);
		assert_int_equal(rkv_add(s, KEY, KEY_LEN, "ours", 4, NULL, NULL), RKV_EXISTS);
		assert_int_equal(*world_word(w, duel.off), duel.word);
		assert_true(world_is_marked(w, duel.own_word));
		assert_false(world_is_marked(w, duel.word));
		world_expect_cold(w, KEY, "rival");
		close_duel(w);
	}
}

/* [I2] A word whose block does not validate is read again, never ignored; then we withdraw. */
static void
test_invalid_rival(void **state)
{
	(void)state;
	struct rkv_session *s;
	struct world *w = open_duel(RIVAL_INVALID, false, &s);
	int rc = put_soon(s, KEY, "ours");
	assert_true(rc == ERR_CORRUPT || rc == ERR_TIMEOUT);
	assert_int_equal(world_find(w, KEY), 0);
	assert_int_equal(*world_word(w, duel.off), duel.word);
	assert_true(world_is_marked(w, duel.own_word));
	*world_word(w, duel.off) = 0;
	close_duel(w);
}

/* ---- [I6] Somebody removes our tentative word ---- */

enum removal { BEFORE_COMMIT, BEFORE_WITHDRAWAL };

static struct {
	enum removal when;
	uint64_t word;
	unsigned n_tentative;
} killer;

static void
kill_ours(struct world *w, uint64_t off)
{
	uint64_t word = *world_word(w, off);
	if (killer.word || word == 0 || slot_state(word) != SLOT_TENTATIVE)
		return;
	killer.word = word;
	*world_word(w, off) = slot_with_state(word, SLOT_DELETED);
	*world_mark(w, slot_block_off(word)) = layout_mark(slot_tag(word));
}

static void
kill_before(struct world *w, const struct world_batch *b)
{
	uint64_t off;
	if (b->is_quiet)
		return;
	if (world_swaps_to(b, SLOT_TENTATIVE, &off)) {
		if (killer.n_tentative++ == 0 && killer.when == BEFORE_WITHDRAWAL) {
			duel.rival = RIVAL_COMMITTED;
			place_rival(w, off);
		}
	} else if (killer.when == BEFORE_COMMIT && world_swaps_to(b, SLOT_COMMITTED, &off)) {
		kill_ours(w, off);
	} else if (killer.when == BEFORE_WITHDRAWAL && world_swaps_to(b, SLOT_DELETED, &off)) {
		kill_ours(w, off);
	}
}

/* Once our block has been marked by a killer, it is not written, published or marked again. */
static void
test_killed(void **state)
{
	(void)state;
	for (unsigned when = BEFORE_COMMIT; when <= BEFORE_WITHDRAWAL; when++) {
		struct world *w = world_open(NULL);
		struct rkv_session *s = world_session(w);
		assert_int_equal(world_put(s, "filler", "filler"), 0);
		memset(&killer, 0, sizeof(killer));
		memset(&duel, 0, sizeof(duel));
		killer.when = (enum removal)when;
		w->before = kill_before;
		assert_int_equal(world_put(s, KEY, "ours"), 0);
		assert_int_not_equal(killer.word, 0);
		w->before = NULL;
		assert_true(world_is_marked(w, killer.word));
		uint64_t word = *world_word(w, world_find(w, KEY));
		assert_int_not_equal(slot_block_off(word), slot_block_off(killer.word));
		world_expect_cold(w, KEY, "ours");
		world_check(w);
		world_close(w);
	}
}

/* ---- A full index ---- */

static void
test_index_full(void **state)
{
	(void)state;
	struct world *w = world_open(&one_group);
	struct rkv_session *s = world_session(w);
	char key[32];
	for (unsigned i = 0; i < LAYOUT_GROUP_SLOTS; i++) {
		snprintf(key, sizeof(key), "key%u", i);
		assert_int_equal(world_put(s, key, key), 0);
	}
	world_check(w);
	assert_int_equal(world_put(s, "more", "value"), RKV_E_INDEX_FULL);
	assert_int_equal(world_put(s, "key3", "again"), 0); /* an update needs no slot */
	world_expect_cold(w, "more", NULL);
	for (unsigned i = 0; i < LAYOUT_GROUP_SLOTS; i++) {
		snprintf(key, sizeof(key), "key%u", i);
		world_expect_cold(w, key, i == 3 ? "again" : key);
	}
	/* A tentative word is about to give a slot; one that does not is killed, whoever's. */
	uint64_t off = world_find(w, "key5"), word = *world_word(w, off);
	*world_word(w, off) = slot_with_state(word, SLOT_TENTATIVE);
	assert_int_equal(world_put(s, "more", "value"), 0);
	assert_int_equal(world_find(w, "more"), off);
	world_expect_cold(w, "more", "value");
	world_expect_cold(w, "key5", NULL);
	world_check(w);
	assert_int_equal(world_put(s, "key5", "value"), RKV_E_INDEX_FULL);
	assert_int_equal(rkv_delete(s, "key7", 4), 0);
	assert_int_equal(world_put(s, "key5", "value"), 0);
	world_check(w);
	world_close(w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_old_word),         cmocka_unit_test(test_old_word_of_another),
		cmocka_unit_test(test_invalid_block),    cmocka_unit_test(test_block_lands_late),
		cmocka_unit_test(test_collisions),       cmocka_unit_test(test_out_of_range),
		cmocka_unit_test(test_higher_rival),     cmocka_unit_test(test_lower_rival),
		cmocka_unit_test(test_lower_rival_goes), cmocka_unit_test(test_twin_rival),
		cmocka_unit_test(test_committed_rival),  cmocka_unit_test(test_invalid_rival),
		cmocka_unit_test(test_killed),           cmocka_unit_test(test_index_full),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
