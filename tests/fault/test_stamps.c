/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * [STAMP] from the other side: what a session announces does not only never go too far, it also
 * goes on. Whoever uses a session in whatever way, its A follows the newest stamp, or memory rests
 * for ever.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/fault/harness.h"

#define N_STAMPS 100u
#define CALLS_PER_STAMP 200u
#define LAG_MAX 12u /* stamps that A may lag: a few, until marks are flushed */

static void
check_lag(struct rkv_session *s, uint64_t newest)
{
	uint64_t a = session_announce(s);
	assert_true(a <= newest - LIMIT_WORD_STAMPS);
	assert_true(a + LAG_MAX >= newest - LIMIT_WORD_STAMPS);
}

/*
 * Blocking calls one behind the other: each begins before the mark of the one before has completed.
 */
static void
test_tight_puts(void **state)
{
	(void)state;
	struct world *w = world_open(NULL);
	struct rkv_session *s = world_session(w);
	for (uint64_t stamp = WORLD_STAMP; stamp < WORLD_STAMP + N_STAMPS; stamp++) {
		world_stamp(w, stamp, stamp - LIMIT_WORD_STAMPS);
		for (unsigned i = 0; i < CALLS_PER_STAMP; i++)
			assert_int_equal(world_put(s, "k", "v"), 0);
		check_lag(s, stamp);
	}
	world_close(w);
}

/* A mark is out, and then there are only reads, which no atomic follows. */
static void
test_put_then_gets(void **state)
{
	(void)state;
	struct world *w = world_open(NULL);
	struct rkv_session *s = world_session(w);
	char value[64];
	assert_int_equal(world_put(s, "k", "v"), 0);
	assert_int_equal(world_put(s, "k", "w"), 0);
	assert_int_not_equal(s->n_marks_done, s->n_marks_posted);
	for (uint64_t stamp = WORLD_STAMP; stamp < WORLD_STAMP + N_STAMPS; stamp++) {
		world_stamp(w, stamp, stamp - LIMIT_WORD_STAMPS);
		for (unsigned i = 0; i < CALLS_PER_STAMP; i++)
			assert_int_equal(world_get(s, "k", value), 0);
		check_lag(s, stamp);
	}
	assert_int_equal(s->n_marks_done, s->n_marks_posted);
	world_close(w);
}

/* The same with reads that overlap: the session is never idle, nobody else can flush for it. */
static void
test_put_then_overlapping_gets(void **state)
{
	(void)state;
	struct world *w = world_open(NULL);
	struct rkv_session *s = world_session(w);
	char value[2][64];
	struct rkv_request r[2] = {{0}}, *done[2];
	for (unsigned i = 0; i < 2; i++)
		r[i] = (struct rkv_request){.op = RKV_OP_GET,
					    .key = "k",
					    .key_len = 1,
					    .buf = value[i],
					    .buf_len = sizeof(value[i])};
	assert_int_equal(world_put(s, "k", "v"), 0);
	assert_int_equal(world_put(s, "k", "w"), 0);
	fault_delay(w->fab, 3);
	assert_int_equal(rkv_submit(s, &r[0]), 0);
	assert_int_equal(rkv_submit(s, &r[1]), 0);
	for (uint64_t stamp = WORLD_STAMP; stamp < WORLD_STAMP + N_STAMPS; stamp++) {
		world_stamp(w, stamp, stamp - LIMIT_WORD_STAMPS);
		for (unsigned n_done = 0; n_done < CALLS_PER_STAMP;) {
			int n = rkv_poll(s, done, 1, 0);
			assert_true(n >= 0);
			for (int i = 0; i < n; i++, n_done++) {
				assert_int_equal(done[i]->status, 0);
				assert_int_equal(rkv_submit(s, done[i]), 0);
			}
			assert_true(s->n_in_flight > 0);
		}
		check_lag(s, stamp);
	}
	fault_delay(w->fab, 0);
	while (s->n_in_flight)
		session_pump(s);
	session_completed(s, done, 2);
	world_close(w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tight_puts),
		cmocka_unit_test(test_put_then_gets),
		cmocka_unit_test(test_put_then_overlapping_gets),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
