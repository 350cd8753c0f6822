/* SPDX-License-Identifier: BSD-2-Clause */
/* What the census counts of a region whose words anybody may have written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "server/census.h"

static struct census census;
static struct sessions sessions;
static struct region region;
static const struct log quiet = {0};

static int
set_up(void **state)
{
	uint64_t serial = 1;
	(void)state;
	assert_true(layout_plan(&region.layout, LIMIT_REGION_MIN, 0, 0));
	assert_int_equal(pool_create(region.layout.region_len, POOL_HUGE_NO, POOL_NODE_ANY, &quiet,
				     &region.pool),
			 0);
	sessions_init(&sessions, &serial, 1);
	census_init(&census, &region, &sessions, &quiet);
	return 0;
}

static int
tear_down(void **state)
{
	(void)state;
	pool_destroy(region.pool);
	return 0;
}

static void
put_word(uint64_t i, uint64_t word)
{
	memcpy((char *)pool_base(region.pool) + layout_slot_off(&region.layout, i), &word,
	       sizeof(word));
}

static void
look_at_everything(void)
{
	uint64_t n = census.n_index_passes;
	while (census.n_index_passes == n)
		census_tick(&census);
}

static void
values_are_counted_by_class(void **state)
{
	uint64_t off = region.layout.heap_off;
	(void)state;
	put_word(0, slot_make(off, 1, 1, 1, SLOT_COMMITTED));
	put_word(9, slot_make(off + 64, 9, 1, 1, SLOT_COMMITTED));
	put_word(10, slot_make(off + 640, 10, 1, 1, SLOT_COMMITTED));
	put_word(11, slot_make(off, 1, 1, 1, SLOT_TENTATIVE));
	put_word(12, slot_make(off, 1, 1, 1, SLOT_DELETED));
	look_at_everything();
	assert_int_equal(census.n_used, 4);
	assert_int_equal(census.class_live[0], 1);
	assert_int_equal(census.class_live[8], 1);
	assert_int_equal(census.class_live[9], 1);
}

/* [RANGE]: no block is so large, or lies there. */
static void
words_out_of_range_are_of_no_class(void **state)
{
	const struct layout *l = &region.layout;
	uint64_t n_live = 0;
	(void)state;
	put_word(0, slot_make(l->heap_off, SLOT_SIZE_CODE_MAX, 1, 1, SLOT_COMMITTED));
	put_word(9, slot_make(l->heap_off, 0, 1, 1, SLOT_COMMITTED));
	put_word(10, slot_make(l->index_off, 1, 1, 1, SLOT_COMMITTED));
	put_word(11, slot_make(l->region_len, 1, 1, 1, SLOT_COMMITTED));
	put_word(12, 0);
	look_at_everything();
	for (unsigned i = 0; i < LAYOUT_CLASSES_MAX; i++)
		n_live += census.class_live[i];
	assert_int_equal(n_live, 0);
	assert_int_equal(census.n_used, 4);
}

static void
let_seconds_pass(unsigned n)
{
	for (unsigned i = 0; i < n * 1000 / LIMIT_STAMP_MS; i++)
		sessions_tick(&sessions);
}

/* What sessions drain, and what those had that are over, is on its way to whoever finds nothing. */
static void
chunks_are_coming(void **state)
{
	static struct session_owner owner;
	struct session *one, *other;
	const char *reason;
	(void)state;
	LIST_INIT(&owner.sessions);
	assert_int_equal(sessions_join(&sessions, &owner, 0, &one, &reason), 0);
	assert_false(census_chunks_coming(&census));
	census_told_of_draining(&census, 1);
	assert_false(census_chunks_coming(&census)); /* it is alone, and knows what it has */
	assert_int_equal(sessions_join(&sessions, &owner, 0, &other, &reason), 0);
	census_told_of_draining(&census, 0);
	assert_false(census_chunks_coming(&census));
	census_told_of_draining(&census, 1);
	assert_true(census_chunks_coming(&census));
	let_seconds_pass(3);
	assert_false(census_chunks_coming(&census));
	sessions_end(&sessions, other, false);
	assert_true(census_chunks_coming(&census));
	census_finish_ending(&census);
	assert_int_equal(sessions.n_ending, 0);
	assert_false(census_chunks_coming(&census));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chunks_are_coming),
		cmocka_unit_test(values_are_counted_by_class),
		cmocka_unit_test(words_out_of_range_are_of_no_class),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
