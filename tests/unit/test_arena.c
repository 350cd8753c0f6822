/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A session's registered memory: runs never overlap, freed pages are found again, pools are apart.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/arena.h"

#define POOL_LEN (64u * ARENA_PAGE)
#define N_RUNS 64u

struct run {
	unsigned char *at;
	size_t len;
	unsigned char mark;
};

static void
check_run(const struct run *run)
{
	for (size_t i = 0; i < run->len; i++)
		assert_int_equal(run->at[i], run->mark);
}

/* Random runs, each filled with a mark of its own that nobody may overwrite. */
static void
test_random_runs(void **state)
{
	(void)state;
	struct arena arena;
	struct run run[N_RUNS] = {{0}};
	unsigned n_refused = 0;
	srand(3);
	assert_int_equal(arena_create(&arena, 100, POOL_LEN), 0);
	for (unsigned step = 0; step < 100000; step++) {
		struct run *r = &run[(unsigned)rand() % N_RUNS];
		enum arena_side side = (size_t)(r - run) % 2 ? ARENA_IN : ARENA_OUT;
		if (r->at) {
			check_run(r);
			arena_give(&arena, side, r->at);
			r->at = NULL;
			continue;
		}
		r->len = 1 + (size_t)rand() % (8 * ARENA_PAGE);
		r->mark = (unsigned char)step;
		r->at = arena_take(&arena, side, r->len);
		n_refused += !r->at;
		if (r->at)
			memset(r->at, r->mark, r->len);
	}
	assert_true(n_refused > 0);
	for (unsigned i = 0; i < N_RUNS; i++)
		if (run[i].at)
			arena_give(&arena, i % 2 ? ARENA_IN : ARENA_OUT, run[i].at);
	void *all = arena_take(&arena, ARENA_OUT, POOL_LEN);
	assert_non_null(all);
	assert_null(arena_take(&arena, ARENA_OUT, 1));
	assert_non_null(arena_take(&arena, ARENA_IN, POOL_LEN));
	arena_destroy(&arena);
}

static void
test_too_long(void **state)
{
	(void)state;
	struct arena arena;
	assert_int_equal(arena_create(&arena, 1, POOL_LEN), 0);
	assert_null(arena_take(&arena, ARENA_OUT, POOL_LEN + 1));
	assert_int_equal(arena.fixed_len, ARENA_PAGE);
	arena_destroy(&arena);
	arena_destroy(&arena); /* nothing is left of it */
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_runs),
		cmocka_unit_test(test_too_long),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
