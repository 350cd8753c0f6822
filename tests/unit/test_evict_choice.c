/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What eviction takes out of a region that nobody uses: where, how much, the oldest. [HINT] The
 * tests have a clock of their own, whose pauses end a slice after any look at it: they change
 * nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/clock.h"
#include "server/evict.h"

#define NEWEST 100000u
#define NOW_S 1000
#define TICKS_MAX 10000u

/* Chunk 0 is of a session, chunk 1 nobody's; both are full of values of one granule. */
struct fixture {
	struct layout layout;
	struct reach reach;
	struct sessions sessions;
	struct evict evict;
	unsigned char *memory;
	unsigned n_blocks;
	unsigned n_gone;     /* values of chunk 0 that were taken out */
	uint64_t ages_gone;  /* of them, in stamps */
	unsigned n_foreign;  /* of other chunks */
	bool is_unreachable; /* each CAS fails */
	unsigned n_failed;
	unsigned n_lost; /* another word was there */
};

/* ---- The clock ---- */

#define LOOK_NS 1000
#define PAUSE_NS (5 * CLOCK_NS_PER_MS) /* longer than a slice */

static int64_t now_ns;
static unsigned pause_every; /* looks at the clock; 0: there are no pauses */
static unsigned n_looks;

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time);

int
__wrap_clock_gettime(clockid_t clock, struct timespec *ret_time)
{
	(void)clock;
	now_ns += LOOK_NS;
	if (pause_every && ++n_looks % pause_every == 0)
		now_ns += PAUSE_NS;
	*ret_time = clock_timespec(now_ns);
	return 0;
}

/* ---- The region ---- */

static const void *
at(void *arg, uint64_t off, uint64_t len)
{
	struct fixture *f = arg;
	assert_true(off + len <= f->layout.region_len);
	return f->memory + off;
}

static uint64_t *
word_at(struct fixture *f, uint64_t off)
{
	return (uint64_t *)(void *)(f->memory + off);
}

static uint16_t *
hint_of(struct fixture *f, uint64_t block_off)
{
	return (uint16_t *)(void *)(f->memory + layout_hint_off(&f->layout, block_off));
}

static int
cas(void *arg, uint64_t off, uint64_t expect, uint64_t swap, uint64_t *ret_found)
{
	struct fixture *f = arg;
	if (f->is_unreachable) {
		f->n_failed++;
		return -1;
	}
	*ret_found = *word_at(f, off);
	if (*ret_found == expect)
		*word_at(f, off) = swap;
	else
		f->n_lost++;
	return 0;
}

static void
mark(void *arg, uint64_t block_off, uint32_t tag)
{
	struct fixture *f = arg;
	assert_int_equal(tag, 1);
	if (layout_chunk_of(&f->layout, block_off) != 0)
		f->n_foreign++;
	f->n_gone++;
	f->ages_gone += (uint16_t)(NEWEST - *hint_of(f, block_off));
}

static void
hint(void *arg, uint64_t block_off, uint16_t value)
{
	*hint_of(arg, block_off) = value;
}

static int64_t
wall_s(void *arg)
{
	(void)arg;
	return NOW_S;
}

static const struct reach_calls calls = {
	.at = at, .cas = cas, .mark = mark, .hint = hint, .wall_s = wall_s};

/* The block i of a chunk, used so long ago, in the next slot of the index. */
static void
store(struct fixture *f, unsigned chunk, unsigned i, uint32_t age, uint32_t expiry)
{
	uint64_t off = layout_chunk_off(&f->layout, chunk) + (uint64_t)i * LIMIT_GRANULE;
	struct block_header *header = (struct block_header *)(void *)(f->memory + off);
	unsigned n = chunk * f->n_blocks + i;
	uint64_t slot_off = f->layout.index_off + n / LAYOUT_BUCKET_SLOTS * LAYOUT_BUCKET_LEN +
			    (1 + n % LAYOUT_BUCKET_SLOTS) * 8;
	*word_at(f, slot_off) = slot_make(off, 1, 1, n % 1024, SLOT_COMMITTED);
	*hint_of(f, off) = (uint16_t)(NEWEST - age);
	header->expiry = expiry;
}

static int
set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	assert_non_null(f);
	f->layout.has_hints = 1;
	assert_true(layout_plan_with(&f->layout, 4 * LIMIT_REGION_MIN, 0, 0));
	f->layout.hash_seed = 1;
	f->memory = aligned_alloc(LAYOUT_PAGE, f->layout.region_len);
	assert_non_null(f->memory);
	memset(f->memory, 0, f->layout.region_len);
	f->n_blocks = layout_blocks_per_chunk(&f->layout, 0);
	f->sessions.newest = NEWEST;
	f->reach = (struct reach){.layout = &f->layout, .calls = &calls, .arg = f};
	/* Few chunks are free; the others are of a class that nothing is stored in. */
	unsigned n_free = (unsigned)layout_chunks_few(f->layout.n_chunks) - 1;
	for (uint64_t i = 0; i < f->layout.n_chunks - n_free; i++)
		*word_at(f, layout_desc_off(&f->layout, i)) = chunk_make(
			i == 1 ? CHUNK_ORPHAN : CHUNK_OWNED, i < 2 ? 0 : 8, i == 1 ? 0 : 1, 1);
	assert_int_equal(evict_create(&f->evict, &f->reach, &f->sessions), 0);
	*state = f;
	return 0;
}

static int
tear_down(void **state)
{
	struct fixture *f = *state;
	evict_destroy(&f->evict);
	free(f->memory);
	free(f);
	return 0;
}

/* Runs until nothing is lacking after so many passes. */
static void
run(struct fixture *f, uint64_t n_passes)
{
	for (unsigned i = 0; i < TICKS_MAX; i++) {
		evict_tick(&f->evict);
		/* Nothing is tried twice, but a candidate whose chunk was emptied meanwhile. */
		assert_true(f->n_lost == 0 || f->evict.n_condemned > 0);
		if (f->evict.n_passes >= n_passes && !f->evict.n_lacking && !f->evict.n_crowding)
			return;
	}
	fail_msg("it does not end");
}

/* Ages from 0 to 1,023 stamps: no chunk is so cold that all of it has to go. */
static void
fill(struct fixture *f, unsigned n_expired)
{
	f->evict.age = UINT16_MAX; /* nothing is cold beside it */
	for (unsigned i = 0; i < f->n_blocks; i++) {
		store(f, 0, i, i, i < n_expired ? 1 : 0);
		store(f, 1, i, 5000, 0);
	}
}

static void
the_oldest_go_where_room_is_lacking(void **state)
{
	struct fixture *f = *state;
	fill(f, 0);
	run(f, 3);
	unsigned reserve = f->n_blocks / 32 + 1;
	assert_in_range(f->n_gone, reserve, 2 * reserve + 2);
	assert_int_equal(f->n_gone, f->evict.n_evicted);
	assert_int_equal(f->n_foreign, 0);
	assert_true(f->ages_gone / f->n_gone > f->n_blocks * 3 / 4); /* the mean of all: a half */
}

/* The youngest are those whose time is over. */
static void
what_has_expired_goes_first(void **state)
{
	struct fixture *f = *state;
	fill(f, f->n_blocks / 4);
	run(f, 3);
	assert_true(f->evict.n_expired * 10 > f->evict.n_evicted * 8);
	assert_true(f->ages_gone / f->n_gone < f->n_blocks / 4);
}

static void
nothing_goes_while_chunks_are_free(void **state)
{
	struct fixture *f = *state;
	fill(f, f->n_blocks / 4);
	*word_at(f, layout_desc_off(&f->layout, 2)) = 0;
	run(f, 3);
	assert_int_equal(f->evict.n_evicted, 0);
}

static void
a_hint_does_not_come_round(void **state)
{
	struct fixture *f = *state;
	fill(f, 0);
	store(f, 1, 7, 0xfff0, 0);
	run(f, 2);
	uint64_t off = layout_chunk_off(&f->layout, 1) + 7 * LIMIT_GRANULE;
	assert_int_equal((uint16_t)(NEWEST - *hint_of(f, off)), 0xc000);
	assert_int_equal((uint16_t)(NEWEST - *hint_of(f, off + LIMIT_GRANULE)), 5000);
}

/* Whole chunks that are much colder than what is evicted are emptied, also nobody's. */
static void
a_cold_chunk_is_emptied(void **state)
{
	struct fixture *f = *state;
	fill(f, 0);
	f->evict.age = 0;
	run(f, 4);
	assert_true(f->evict.n_condemned > 0);
	assert_int_equal(f->n_foreign, f->n_blocks);
}

/* An eighth of the slots is to be empty, and no more goes: whosever it is, with chunks to spare. */
static void
a_crowded_index_is_thinned_out(void **state)
{
	struct fixture *f = *state;
	uint64_t n_slots = f->layout.n_groups * LAYOUT_GROUP_SLOTS;
	for (uint64_t i = 0; i < n_slots; i++)
		*word_at(f, layout_slot_off(&f->layout, i)) =
			slot_make(layout_chunk_off(&f->layout, 1) + i % f->n_blocks * LIMIT_GRANULE,
				  1, 1, i % 1024, SLOT_COMMITTED);
	*word_at(f, layout_desc_off(&f->layout, 2)) = 0;
	run(f, 4);
	assert_int_equal(f->evict.n_evicted, n_slots / 8);
}

/* Each failure may take a second: there is one in a slice, and the next slice is not at once. */
static void
a_region_out_of_reach_is_tried_again(void **state)
{
	struct fixture *f = *state;
	fill(f, 0);
	f->evict.age = 0; /* chunks are condemned, too */
	f->is_unreachable = true;
	for (unsigned i = 0; i < 100; i++) {
		unsigned n = f->n_failed;
		unsigned pause_ms = evict_tick(&f->evict);
		assert_in_range(f->n_failed - n, 0, 1);
		assert_true(f->n_failed == n || pause_ms == LIMIT_STAMP_MS);
	}
	assert_in_range(f->n_failed, 10, 100);
	assert_true(f->evict.n_condemned > 0);
	assert_int_equal(f->evict.n_evicted, 0);
	f->is_unreachable = false;
	run(f, f->evict.n_passes + 3);
	assert_true(f->n_gone > f->n_blocks / 32);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(the_oldest_go_where_room_is_lacking),
		TEST(what_has_expired_goes_first),
		TEST(nothing_goes_while_chunks_are_free),
		TEST(a_hint_does_not_come_round),
		TEST(a_cold_chunk_is_emptied),
		TEST(a_crowded_index_is_thinned_out),
		TEST(a_region_out_of_reach_is_tried_again),
	};
	static const unsigned pauses[] = {0, 1, 2, 3, 5, 7, 16, 61};
	int n_failed = 0;
	for (size_t i = 0; i < sizeof(pauses) / sizeof(*pauses); i++) {
		pause_every = pauses[i];
		n_failed += cmocka_run_group_tests_name("pauses", tests, NULL, NULL);
	}
	return n_failed != 0;
}
