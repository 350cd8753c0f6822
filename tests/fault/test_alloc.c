/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The client's allocator and what it stands on: tags, marks, stamps, and the start word. Chunks are
 * prepared by hand in the region; stamps and clock are the test's.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/err.h"
#include "proto/block.h"
#include "proto/wire.h"
#include "tests/fault/harness.h"

#define CHUNK_LEN 4096u
#define PER_CHUNK (CHUNK_LEN / LIMIT_GRANULE) /* smallest blocks; granules of the largest */
#define PUMPS_MAX 10000u

static struct world *
open_small(uint64_t n_chunks)
{
	const struct world_shape shape = {
		.n_groups = 8, .chunk_size = CHUNK_LEN, .n_chunks = n_chunks, .cache_bytes = 65536};
	return world_open(&shape);
}

static uint64_t *
desc_of(struct world *w, uint64_t chunk)
{
	return world_word(w, layout_desc_off(&w->layout, chunk));
}

static uint64_t
block_of(struct world *w, uint64_t chunk, unsigned i)
{
	return layout_chunk_off(&w->layout, chunk) + (uint64_t)i * LIMIT_GRANULE;
}

static void
pump_job(struct rkv_session *s)
{
	for (unsigned i = 0; i < PUMPS_MAX && s->alloc.job != JOB_NONE; i++)
		session_pump(s);
	assert_int_equal(s->alloc.job, JOB_NONE);
}

/* As an operation takes a block: waits for the job, and while freed ones are too young. */
static int
take(struct rkv_session *s, uint32_t n_granules, struct block_ref *ret_block)
{
	for (unsigned i = 0; i < 10; i++) {
		int64_t wake_ns = 0;
		int rc = alloc_take(s, n_granules, ret_block, &wake_ns);
		if (rc == 0)
			return 0;
		if (rc == ERR_AGAIN) {
			pump_job(s);
			rc = s->memory_status;
		}
		if (rc == ERR_TIMEOUT)
			fab_pause(s->client->fab,
				  fab_now(s->client->fab) + (int64_t)LIMIT_REUSE_NS);
		else if (rc != 0)
			return rc;
	}
	return ERR_TIMEOUT;
}

static struct block_ref
must_take(struct rkv_session *s, uint32_t n_granules)
{
	struct block_ref block;
	assert_int_equal(take(s, n_granules, &block), 0);
	return block;
}

static void
free_block(struct rkv_session *s, const struct block_ref *block)
{
	session_mark(s, block->off, block->tag, s->published);
}

/* Somebody else's mark. */
static void
free_by_others(struct world *w, const struct block_ref *block)
{
	*world_mark(w, block->off) = layout_mark(block->tag);
}

/* ---- Tags, [MARK], [WRAP] ---- */

static void
test_first_tag(void **state)
{
	(void)state;
	const unsigned entries[] = {0, 1, 7, 254, 255};
	for (unsigned i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		struct world *w = open_small(4);
		memset(w->base + w->layout.free_map_off, (int)entries[i], 4 * PER_CHUNK);
		struct rkv_session *s = world_session(w);
		for (unsigned k = 0; k < PER_CHUNK + 1; k++)
			assert_int_equal(must_take(s, 1).tag, entries[i] + 1);
		world_close(w);
	}
}

static void
test_wrap(void **state)
{
	(void)state;
	struct world *w = open_small(1);
	struct rkv_session *s = world_session(w);
	struct block_ref block;
	for (unsigned tag = 1; tag < SLOT_TAG_COUNT; tag++) {
		block = must_take(s, PER_CHUNK);
		assert_int_equal(block.tag, tag);
		free_block(s, &block);
	}
	/* It rests: never NO_SPACE, and no tag before the stamp of the moment has passed. */
	assert_int_equal(take(s, PER_CHUNK, &block), ERR_AGAIN);
	world_stamp(w, WORLD_STAMP + 5, WORLD_STAMP + 5);
	assert_int_equal(take(s, PER_CHUNK, &block), ERR_AGAIN); /* nobody answered since */
	world_answer(w);
	assert_int_equal(take(s, PER_CHUNK, &block), ERR_AGAIN); /* its stamp is WORLD_STAMP + 5 */
	world_stamp(w, WORLD_STAMP + 9, WORLD_STAMP + 5);
	assert_int_equal(take(s, PER_CHUNK, &block), ERR_AGAIN);
	world_stamp(w, WORLD_STAMP + 9, WORLD_STAMP + 6);
	assert_int_equal(must_take(s, PER_CHUNK).tag, 0);
	world_close(w);
}

static void
test_mark_needs_atomic(void **state)
{
	(void)state;
	struct world *w = open_small(1);
	struct rkv_session *s = world_session(w);
	struct block_ref block = must_take(s, PER_CHUNK);
	int64_t wake_ns;
	free_block(s, &block);
	fab_pause(w->fab, fab_now(w->fab) + 10 * (int64_t)LIMIT_REUSE_NS);
	unsigned from = w->n_trace;
	fault_delay(w->fab, 20);
	assert_int_equal(alloc_take(s, PER_CHUNK, &block, &wake_ns), ERR_AGAIN);
	assert_int_equal(w->n_trace, from + 1);
	assert_int_equal(w->trace[from].op[0].kind, FAB_FAA);
	assert_int_equal(w->trace[from].op[0].roff, LAYOUT_SCRATCH_OFF);
	for (unsigned i = 0; i < 10; i++) {
		session_pump(s);
		assert_int_equal(alloc_take(s, PER_CHUNK, &block, &wake_ns), ERR_AGAIN);
	}
	fault_delay(w->fab, 0);
	assert_int_equal(must_take(s, PER_CHUNK).tag, 2);
	world_close(w);
}

static void
test_reap(void **state)
{
	(void)state;
	struct world *w = open_small(1);
	struct rkv_session *s = world_session(w);
	struct block_ref block[PER_CHUNK], again;
	for (unsigned i = 0; i < PER_CHUNK; i++)
		block[i] = must_take(s, 1);
	assert_int_equal(take(s, 1, &again), ERR_NO_SPACE);
	free_by_others(w, &block[5]);
	free_by_others(w, &block[63]);
	for (unsigned i = 0; i < 2; i++) {
		again = must_take(s, 1);
		assert_true(again.off == block[5].off || again.off == block[63].off);
		assert_int_equal(again.tag, 2);
	}
	assert_int_equal(take(s, 1, &again), ERR_NO_SPACE);
	world_close(w);
}

/* ---- Adoption ---- */

#define IN_USE 0u
#define FREED 1u
#define TORN 2u

/*
 * Chunk 0 as a session has left it: a block in use, one that is free, one torn; the rest never
 * used.
 */
static void
leave_chunk(struct world *w, enum chunk_state state)
{
	*desc_of(w, 0) = chunk_make(state, 0, 0, 4);
	memset(w->base + w->layout.free_map_off, 40, PER_CHUNK);
	world_block(w, block_of(w, 0, IN_USE), 41, "a", "x", 0);
	world_block(w, block_of(w, 0, FREED), 41, "b", "y", 0);
	*world_mark(w, block_of(w, 0, FREED)) = 41;
	world_block(w, block_of(w, 0, TORN), 41, "c", "z", 0);
	w->base[block_of(w, 0, TORN) + 3] ^= 1;
}

static void
assert_tag(struct world *w, const struct block_ref *block)
{
	unsigned i = (unsigned)((block->off - w->layout.heap_off) / LIMIT_GRANULE);
	assert_int_not_equal(i, IN_USE);
	assert_int_equal(block->tag, i == FREED ? 42 : 41);
}

static void
test_adopt_orphan(void **state)
{
	(void)state;
	struct world *w = open_small(1);
	struct block_ref block;
	leave_chunk(w, CHUNK_ORPHAN);
	struct rkv_session *s = world_session(w);
	block = must_take(s, 1);
	assert_int_equal(block.off, block_of(w, 0, FREED)); /* the only one that needs no stamp */
	assert_tag(w, &block);
	assert_int_equal(take(s, 1, &block), ERR_AGAIN);
	world_turn(w);
	assert_int_equal(take(s, 1, &block), ERR_AGAIN);
	world_turn(w);
	for (unsigned i = 0; i < PER_CHUNK - 2; i++) {
		block = must_take(s, 1);
		assert_tag(w, &block);
	}
	assert_int_equal(take(s, 1, &block), ERR_NO_SPACE);
	assert_int_equal(chunk_generation(*desc_of(w, 0)), 5);
	world_close(w);
}

static void
test_adopt_left(void **state)
{
	(void)state;
	struct world *w = open_small(1);
	struct block_ref block;
	leave_chunk(w, CHUNK_LEFT);
	struct rkv_session *s = world_session(w);
	for (unsigned i = 0; i < PER_CHUNK - 1; i++) {
		block = must_take(s, 1);
		assert_tag(w, &block);
	}
	assert_int_equal(take(s, 1, &block), ERR_NO_SPACE);
	world_close(w);
}

/* Bytes from another machine: a class that cannot be is refused, not believed. */
static void
test_forged_descriptor(void **state)
{
	(void)state;
	struct world *w = open_small(1);
	struct block_ref block;
	*desc_of(w, 0) = chunk_make(CHUNK_ORPHAN, 200, 0, 4);
	struct rkv_session *s = world_session(w);
	assert_int_equal(take(s, 1, &block), ERR_CORRUPT);
	assert_int_equal(*desc_of(w, 0), chunk_make(CHUNK_ORPHAN, 200, 0, 4));
	world_close(w);
}

/* ---- Draining ---- */

static void
test_give_back(void **state)
{
	(void)state;
	struct world *w = open_small(2);
	struct rkv_session *s = world_session(w);
	struct block_ref block = must_take(s, 1);
	uint64_t chunk = layout_chunk_of(&w->layout, block.off);
	uint64_t owned = *desc_of(w, chunk);
	free_block(s, &block);
	for (unsigned i = 0; i < 3; i++) {
		alloc_give_back(s, true);
		pump_job(s);
		assert_int_equal(*desc_of(w, chunk), owned);
	}
	world_turn(w); /* its stamp is learned at the next look */
	alloc_give_back(s, false);
	pump_job(s);
	assert_int_equal(*desc_of(w, chunk), owned);
	world_turn(w);
	alloc_give_back(s, false);
	pump_job(s);
	assert_int_equal(*desc_of(w, chunk), chunk_next(owned, CHUNK_FREE, 0, 0));
	world_close(w);
}

static void
test_stop_draining(void **state)
{
	(void)state;
	struct world *w = open_small(1);
	struct rkv_session *s = world_session(w);
	struct block_ref block = must_take(s, 1);
	uint64_t owned = *desc_of(w, 0);
	free_block(s, &block);
	alloc_give_back(s, true);
	pump_job(s);
	assert_int_equal(s->alloc.n_draining, 1);
	block = must_take(s, 1);
	assert_int_equal(s->alloc.n_draining, 0);
	for (unsigned i = 0; i < 3; i++) {
		world_turn(w);
		alloc_give_back(s, true);
		pump_job(s);
	}
	assert_int_equal(*desc_of(w, 0), owned);
	world_close(w);
}

/* NO_SPACE only if no stamp would help. */
static void
test_verdicts(void **state)
{
	(void)state;
	struct world *w = open_small(1);
	struct rkv_session *s = world_session(w);
	struct block_ref small = must_take(s, 1), large;
	assert_int_equal(take(s, PER_CHUNK, &large), ERR_NO_SPACE);
	free_block(s, &small);
	assert_int_equal(take(s, PER_CHUNK, &large), ERR_AGAIN);
	world_turn(w);
	assert_int_equal(take(s, PER_CHUNK, &large), ERR_AGAIN);
	world_turn(w);
	large = must_take(s, PER_CHUNK);
	assert_int_equal(large.tag, 2);
	assert_int_equal(take(s, 1, &small), ERR_NO_SPACE);
	world_close(w);
}

/*
 * Others have chunks, and may give some back: for some seconds they are waited for, and for as long
 * as the server knows of some that drain.
 */
static void
test_others_may_give(void **state)
{
	(void)state;
	struct world *w = open_small(1);
	struct rkv_session *s = world_session(w);
	struct block_ref block;
	uint64_t stamp = WORLD_STAMP + 3000 / LIMIT_STAMP_MS;
	*desc_of(w, 0) = chunk_make(CHUNK_OWNED, 1, 7, 4);
	assert_int_equal(take(s, 1, &block), ERR_AGAIN);
	world_stamp(w, stamp - 1, WORLD_STAMP);
	assert_int_equal(take(s, 1, &block), ERR_AGAIN);
	assert_int_equal(take(s, PER_CHUNK, &block), ERR_AGAIN);
	world_stamp(w, stamp, WORLD_STAMP);
	assert_int_equal(take(s, 1, &block), ERR_NO_SPACE);
	assert_int_equal(take(s, PER_CHUNK, &block), ERR_AGAIN); /* it is asked for since lately */
	atomic_store(&w->client.stamps.flags, WIRE_STAMP_CHUNKS_COMING);
	assert_int_equal(take(s, 1, &block), ERR_AGAIN);
	atomic_store(&w->client.stamps.flags, 0);
	assert_int_equal(take(s, 1, &block), ERR_NO_SPACE);
	*desc_of(w, 0) = 0;
	for (unsigned i = 0; i < PER_CHUNK; i++)
		block = must_take(s, 1);
	assert_int_equal(take(s, 1, &block), ERR_NO_SPACE); /* nobody else has any */
	world_close(w);
}

/* ---- Chunks of other classes ---- */

static struct rkv_session *hooked;
static unsigned n_gives;

/* While a chunk is given away, an operation of its class looks for memory: not from there. */
static void
take_while_given(struct world *w, const struct world_batch *b)
{
	struct block_ref block;
	int64_t wake_ns;
	enum chunk_state to = chunk_state(b->op[0].swap);
	if (b->op[0].kind != FAB_CAS || b->op[0].roff != layout_desc_off(&w->layout, 0) ||
	    (to != CHUNK_LEFT && to != CHUNK_ORPHAN))
		return;
	n_gives++;
	fab_pause(w->fab, fab_now(w->fab) + 10 * (int64_t)LIMIT_REUSE_NS);
	assert_int_not_equal(alloc_take(hooked, 1, &block, &wake_ns), 0);
}

static void
test_foreign_chunk(void **state)
{
	(void)state;
	struct world *w = open_small(1);
	struct block_ref block;
	leave_chunk(w, CHUNK_LEFT);
	/* And one that has used up its tags, so that it rests. */
	world_block(w, block_of(w, 0, 9), SLOT_TAG_COUNT - 1, "d", "z", 0);
	*world_mark(w, block_of(w, 0, 9)) = layout_mark(SLOT_TAG_COUNT - 1);
	hooked = world_session(w);
	n_gives = 0;
	w->before = take_while_given;
	assert_int_equal(take(hooked, PER_CHUNK, &block), ERR_NO_SPACE);
	assert_int_equal(n_gives, 1);
	assert_int_equal(chunk_state(*desc_of(w, 0)), CHUNK_LEFT);
	w->before = NULL;
	world_turn(w);
	assert_int_equal(take(hooked, PER_CHUNK, &block), ERR_NO_SPACE);
	world_turn(w);
	block = must_take(hooked, 1);
	assert_tag(w, &block);
	world_close(w);
}

static void
test_foreign_chunk_drains(void **state)
{
	(void)state;
	struct world *w = open_small(1);
	struct block_ref block;
	*desc_of(w, 0) = chunk_make(CHUNK_ORPHAN, 0, 0, 4);
	struct rkv_session *s = world_session(w);
	assert_int_equal(take(s, PER_CHUNK, &block), ERR_AGAIN);
	world_turn(w);
	assert_int_equal(take(s, PER_CHUNK, &block), ERR_AGAIN);
	world_turn(w);
	assert_int_equal(must_take(s, PER_CHUNK).off, block_of(w, 0, 0));
	world_close(w);
}

/* ---- Leaving ---- */

static void
test_leave(void **state)
{
	(void)state;
	struct world *w = open_small(2);
	struct rkv_session *s = world_session(w);
	assert_int_equal(world_put(s, "key", "value"), 0);
	uint64_t word = *world_word(w, world_find(w, "key"));
	uint64_t chunk = layout_chunk_of(&w->layout, slot_block_off(word));
	rkv_session_close(s);
	assert_int_equal(chunk_state(*desc_of(w, chunk)), CHUNK_LEFT);
	/* Adopted in good order, but then the link is lost with a mark out. */
	s = world_session(w);
	assert_int_equal(world_put(s, "key", "again"), 0);
	assert_int_equal(chunk_state(*desc_of(w, chunk)), CHUNK_OWNED);
	fault_cut(w->fab, 1, 0);
	world_expect(s, "key", "again");
	rkv_session_close(s);
	assert_int_equal(chunk_state(*desc_of(w, chunk)), CHUNK_ORPHAN);
	/* Adopted as an orphan, and left before its stamp has passed. */
	s = world_session(w);
	assert_int_equal(world_put(s, "more", "value"), 0);
	rkv_session_close(s);
	assert_int_equal(chunk_state(*desc_of(w, chunk)), CHUNK_ORPHAN);
	/* And after it has. */
	s = world_session(w);
	world_put(s, "more", "value2");
	world_turn(w);
	world_put(s, "yet more", "value3");
	world_turn(w);
	world_put(s, "yet more", "value4");
	rkv_session_close(s);
	world_check(w);
	world_expect_cold(w, "key", "again");
	world_close(w);
}

/* A stamp comes while a session leaves: it starts no job on chunks that it has left. */
static void
stamp_at_leave(struct world *w, const struct world_batch *b)
{
	if (b->op[0].kind == FAB_CAS && chunk_state(b->op[0].swap) == CHUNK_LEFT)
		world_turn(w);
}

static void
test_leave_while_draining(void **state)
{
	(void)state;
	struct world *w = open_small(12);
	struct rkv_session *s = world_session(w);
	struct block_ref block[10];
	for (unsigned i = 0; i < 10; i++)
		block[i] = must_take(s, PER_CHUNK);
	for (unsigned i = 0; i < 10; i++)
		free_block(s, &block[i]);
	alloc_give_back(s, true);
	pump_job(s);
	assert_int_equal(s->alloc.n_draining, 10);
	world_turn(w);
	alloc_give_back(s, false); /* learns the stamps; the next one lets them pass */
	assert_int_equal(s->alloc.n_draining, 10);
	w->after = stamp_at_leave;
	fault_delay(w->fab, 5);
	rkv_session_close(s);
	for (uint64_t i = 0; i < 12; i++)
		assert_int_not_equal(chunk_state(*desc_of(w, i)), CHUNK_OWNED);
	world_close(w);
}

/* ---- The link is lost ---- */

/* Takes every block of the only chunk; returns the one at i. */
static struct block_ref
take_all(struct rkv_session *s, unsigned i)
{
	struct block_ref block = {0}, wanted = {0};
	for (unsigned k = 0; k < PER_CHUNK; k++) {
		block = must_take(s, 1);
		if (k == i)
			wanted = block;
	}
	return wanted;
}

static void
test_mark_in_flight(void **state)
{
	(void)state;
	for (unsigned is_executed = 0; is_executed < 2; is_executed++) {
		struct world *w = open_small(1);
		struct rkv_session *s = world_session(w);
		struct block_ref block = take_all(s, 5), again;
		fault_cut(w->fab, 1, is_executed);
		free_block(s, &block);
		/* The flush behind it finds the connection broken. */
		int64_t wake_ns;
		assert_int_equal(alloc_take(s, 1, &again, &wake_ns), ERR_AGAIN);
		world_pump_until_lost(s);
		session_pump(s);
		assert_int_equal(s->n_links, 2);
		int rc = take(s, 1, &again);
		assert_int_equal(rc, is_executed ? 0 : ERR_NO_SPACE);
		if (is_executed) {
			assert_int_equal(again.off, block.off);
			assert_int_equal(again.tag, block.tag + 1);
		}
		world_close(w);
	}
}

/* The chunk is ours, but its map was not read: no tag may be guessed. */
static void
test_lost_before_map(void **state)
{
	(void)state;
	const enum chunk_state states[] = {CHUNK_FREE, CHUNK_LEFT, CHUNK_ORPHAN};
	for (unsigned i = 0; i < 3; i++) {
		struct world *w = open_small(1);
		struct rkv_session *s = world_session(w);
		struct block_ref block;
		*desc_of(w, 0) = chunk_make(states[i], 0, 0, 4);
		memset(w->base + w->layout.free_map_off, 1, PER_CHUNK);
		fault_cut(w->fab, 3, 0); /* {READ table}, {CAS}, {READ map} */
		int64_t wake_ns;
		assert_int_equal(alloc_take(s, 1, &block, &wake_ns), ERR_AGAIN);
		world_pump_until_lost(s);
		session_pump(s);
		assert_int_equal(s->n_links, 2);
		assert_int_equal(chunk_owner(*desc_of(w, 0)), s->link.session_slot);
		int rc = take(s, 1, &block);
		for (unsigned k = 0; k < 2 && rc == ERR_AGAIN; k++) {
			world_turn(w);
			rc = take(s, 1, &block);
		}
		assert_true(rc == ERR_NO_SPACE || (rc == 0 && block.tag == 2));
		world_close(w);
	}
}

/*
 * Whether a chunk was given back is in doubt: it may be another's, so nothing more is taken from
 * it.
 */
static void
test_lost_giving_back(void **state)
{
	(void)state;
	for (unsigned is_executed = 0; is_executed < 2; is_executed++) {
		struct world *w = open_small(1);
		struct rkv_session *ours = world_session(w), *theirs = world_session(w);
		struct block_ref block = must_take(ours, 1), again;
		free_block(ours, &block);
		alloc_give_back(ours, true);
		pump_job(ours);
		world_turn(w);
		alloc_give_back(ours, false);
		world_turn(w);
		fault_cut(w->fab, 1, is_executed);
		alloc_give_back(ours, false);
		world_pump_until_lost(ours);
		session_pump(ours);
		if (is_executed) {
			assert_int_equal(chunk_state(*desc_of(w, 0)), CHUNK_FREE);
			must_take(theirs, 1);
		}
		assert_int_not_equal(take(ours, 1, &again), 0);
		world_close(w);
	}
}

/* ---- Serials ---- */

static void
test_renewal(void **state)
{
	(void)state;
	struct world *w = open_small(4);
	struct rkv_session *s = world_session(w);
	uint64_t version;
	assert_int_equal(rkv_put(s, "k", 1, "v", 1, NULL, &version), 0);
	assert_int_equal(version, (uint64_t)s->link.serial << 32 | 1);
	s->write_counter = UINT32_MAX - 1000;
	unsigned n_wakes = w->n_wakes;
	assert_int_equal(rkv_put(s, "k", 1, "v", 1, NULL, &version), 0);
	assert_int_equal(atomic_load(&s->port.renew), 1);
	assert_int_equal(w->n_wakes, n_wakes + 1);
	s->write_counter = UINT32_MAX;
	assert_int_equal(rkv_put(s, "k", 1, "w", 1, NULL, &version), ERR_AGAIN);
	world_expect(s, "k", "v");
	atomic_store(&s->port.renew, 0);
	atomic_store(&s->port.next_serial, 77);
	assert_int_equal(rkv_put(s, "k", 1, "w", 1, NULL, &version), 0);
	assert_int_equal(version, UINT64_C(77) << 32 | 1);
	/* The link it has next is still its own. */
	fault_cut(w->fab, 1, 0);
	world_expect(s, "k", "w");
	assert_int_equal(s->n_links, 2);
	assert_int_equal(s->link.serial, 77);
	world_close(w);
}

/* ---- The start word, [STAMP] ---- */

static void
test_idle_session(void **state)
{
	(void)state;
	struct world *w = open_small(4);
	struct rkv_session *s = world_session(w);
	assert_int_equal(session_announce(s), WORLD_STAMP - LIMIT_WORD_STAMPS);
	assert_int_equal(world_put(s, "k", "v"), 0);
	assert_int_equal(world_put(s, "k", "w"), 0); /* leaves a mark behind */
	assert_int_equal(start_state(atomic_load(&s->port.start_word)), START_MARKS);
	world_stamp(w, WORLD_STAMP + 50, 0);
	assert_int_equal(session_announce(s), WORLD_STAMP - LIMIT_WORD_STAMPS);
	assert_true(session_take(s));
	assert_false(session_take(s));
	assert_int_equal(session_announce(s), WORLD_STAMP - LIMIT_WORD_STAMPS);
	session_maintain(s, fab_now(w->fab) + 1000000000);
	session_release(s);
	assert_int_equal(s->n_marks_done, s->n_marks_posted);
	assert_int_equal(start_state(atomic_load(&s->port.start_word)), START_IDLE);
	assert_int_equal(session_announce(s), WORLD_STAMP + 50 - LIMIT_WORD_STAMPS);
	world_close(w);
}

static void
test_announce(void **state)
{
	(void)state;
	struct world *w = open_small(4);
	struct rkv_session *s = world_session(w);
	char buf[8];
	struct rkv_request first = {
		.op = RKV_OP_GET, .key = "k", .key_len = 1, .buf = buf, .buf_len = sizeof(buf)};
	struct rkv_request second = first, *done[2];
	fault_delay(w->fab, 30);
	assert_int_equal(rkv_submit(s, &first), 0);
	assert_false(session_take(s));
	world_stamp(w, WORLD_STAMP + 10, 0);
	for (unsigned i = 0; i < 15; i++)
		session_pump(s);
	assert_int_equal(rkv_submit(s, &second), 0);
	assert_int_equal(session_announce(s), WORLD_STAMP - LIMIT_WORD_STAMPS);
	world_stamp(w, WORLD_STAMP + 20, 0);
	while (s->n_in_flight == 2)
		session_pump(s);
	assert_int_equal(session_announce(s), WORLD_STAMP + 10 - LIMIT_WORD_STAMPS);
	while (s->n_in_flight)
		session_pump(s);
	assert_int_equal(session_announce(s), WORLD_STAMP + 20 - LIMIT_WORD_STAMPS);
	assert_int_equal(session_completed(s, done, 2), 2);
	world_close(w);
}

/* Stamps of another epoch count from anew: what is announced is never above what they say. */
static void
test_new_epoch(void **state)
{
	(void)state;
	struct world *w = open_small(4);
	struct rkv_session *s = world_session(w);
	char buf[8];
	struct rkv_request r = {
		.op = RKV_OP_GET, .key = "k", .key_len = 1, .buf = buf, .buf_len = sizeof(buf)};
	atomic_store(&w->client.stamps.flags, WIRE_STAMP_CHUNKS_SHORT);
	world_stamp(w, WORLD_STAMP + 1, WORLD_STAMP);
	assert_int_equal(world_put(s, "k", "v"), 0);
	session_pump(s);
	w->is_down = true;
	w->relink = RELINK_EPOCH;
	fault_cut(w->fab, 1, 0);
	assert_int_equal(rkv_submit(s, &r), 0);
	world_pump_until_lost(s);
	world_stamp(w, 5, 0);
	w->is_down = false;
	world_serve(w);
	fault_delay(w->fab, 20);
	session_pump(s);
	assert_int_equal(atomic_load(&s->port.state), LINK_UP);
	assert_int_equal(s->n_in_flight, 1);
	assert_int_equal(session_announce(s), 0);
	assert_int_equal(start_stamp(atomic_load(&s->port.start_word)), 5);
	fault_delay(w->fab, 0);
	assert_int_equal(world_finish(s, &r), RKV_NOT_FOUND);
	/* Chunks that are asked for are given back in this epoch too. */
	assert_int_equal(world_put(s, "k", "v"), 0);
	assert_int_equal(rkv_delete(s, "k", 1), 0);
	for (unsigned i = 0; i < 40; i++) {
		world_turn(w);
		session_pump(s);
		pump_job(s);
	}
	assert_int_equal(s->stats.n_chunks_returned, 1);
	world_close(w);
}

/* Two threads: the session's, and one that does what the control thread does. */

#define TURNS 3000u

struct pair {
	struct world *w;
	struct rkv_session *s;
	_Atomic uint64_t announced; /* the highest */
	atomic_bool is_over;
	atomic_uint n_bad;
	unsigned n_taken;
};

static void *
control(void *arg)
{
	struct pair *p = arg;
	struct stamps *st = &p->w->client.stamps;
	while (!atomic_load(&p->is_over)) {
		atomic_fetch_add(&st->newest, 1);
		uint64_t a = session_announce(p->s);
		if (a > atomic_load(&p->announced))
			atomic_store(&p->announced, a);
		world_answer(p->w);
		if (!session_take(p->s))
			continue;
		p->n_taken++;
		session_maintain(p->s, INT64_MAX);
		session_release(p->s);
	}
	return NULL;
}

/* Before any access: nothing above start - T_WORD has been announced. */
static void
check_announced(struct world *w, const struct world_batch *b)
{
	struct pair *p = w->arg;
	(void)b;
	if (atomic_load(&p->announced) + LIMIT_WORD_STAMPS > p->s->published)
		atomic_fetch_add(&p->n_bad, 1);
}

static void
test_two_threads(void **state)
{
	(void)state;
	struct pair p = {.w = open_small(8)};
	pthread_t thread;
	p.s = world_session(p.w);
	p.w->is_timeless = true;
	p.w->arg = &p;
	p.w->before = check_announced;
	assert_int_equal(pthread_create(&thread, NULL, control, &p), 0);
	unsigned n_failed = 0;
	char got[64];
	for (unsigned i = 0; i < TURNS; i++) {
		char key[2] = {(char)('a' + i % 8), '\0'};
		n_failed += world_put(p.s, key, "value") != 0;
		n_failed += world_get(p.s, key, got) != 0;
	}
	atomic_store(&p.is_over, true);
	pthread_join(thread, NULL);
	p.w->is_timeless = false;
	assert_int_equal(n_failed, 0);
	assert_int_equal(atomic_load(&p.n_bad), 0);
	world_check(p.w);
	world_close(p.w);
}

/* An idle session's link breaks with a mark out: nobody else would find out, and A stands still. */
static void
test_idle_broken(void **state)
{
	(void)state;
	struct world *w = open_small(4);
	struct rkv_session *s = world_session(w);
	assert_int_equal(world_put(s, "k", "v"), 0);
	assert_int_equal(world_put(s, "k", "w"), 0); /* leaves a mark behind */
	assert_int_equal(start_state(atomic_load(&s->port.start_word)), START_MARKS);
	fault_cut(w->fab, 1, 0);
	world_stamp(w, WORLD_STAMP + 50, 0);
	for (int i = 0; i < 3 && session_take(s); i++) {
		session_maintain(s, fab_now(w->fab) + 1000000000);
		session_release(s);
	}
	assert_int_not_equal(atomic_load(&s->port.state), LINK_UP);
	assert_int_equal(world_put(s, "k", "x"), 0); /* over a new one */
	world_expect_cold(w, "k", "x");
	world_close(w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_idle_broken),
		cmocka_unit_test(test_first_tag),
		cmocka_unit_test(test_wrap),
		cmocka_unit_test(test_mark_needs_atomic),
		cmocka_unit_test(test_reap),
		cmocka_unit_test(test_adopt_orphan),
		cmocka_unit_test(test_adopt_left),
		cmocka_unit_test(test_forged_descriptor),
		cmocka_unit_test(test_give_back),
		cmocka_unit_test(test_stop_draining),
		cmocka_unit_test(test_verdicts),
		cmocka_unit_test(test_others_may_give),
		cmocka_unit_test(test_foreign_chunk),
		cmocka_unit_test(test_foreign_chunk_drains),
		cmocka_unit_test(test_leave),
		cmocka_unit_test(test_leave_while_draining),
		cmocka_unit_test(test_mark_in_flight),
		cmocka_unit_test(test_lost_before_map),
		cmocka_unit_test(test_lost_giving_back),
		cmocka_unit_test(test_renewal),
		cmocka_unit_test(test_idle_session),
		cmocka_unit_test(test_announce),
		cmocka_unit_test(test_new_epoch),
		cmocka_unit_test(test_two_threads),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
