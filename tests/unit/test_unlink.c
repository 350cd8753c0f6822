/* SPDX-License-Identifier: BSD-2-Clause */
/* Taking words out of slots: who marks, and who does not. [WHO-FREES] */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/err.h"
#include "server/unlink.h"

#define SLOT_OFF 4168u

struct fixture {
	struct layout layout;
	struct reach reach;
	uint64_t word; /* in the slot */
	int status;    /* of the next CAS */
	bool is_done;  /* it takes effect */
	unsigned n_marks;
	uint64_t marked_off;
	uint32_t marked_tag;
};

static int
cas(void *arg, uint64_t off, uint64_t expect, uint64_t swap, uint64_t *ret_found)
{
	struct fixture *f = arg;
	assert_int_equal(off, SLOT_OFF);
	if (f->status == 0)
		*ret_found = f->word;
	if (f->is_done && f->word == expect)
		f->word = swap;
	return f->status;
}

static void
mark(void *arg, uint64_t block_off, uint32_t tag)
{
	struct fixture *f = arg;
	assert_int_equal(slot_state(f->word), SLOT_DELETED); /* not before */
	f->n_marks++;
	f->marked_off = block_off;
	f->marked_tag = tag;
}

static const struct reach_calls calls = {.cas = cas, .mark = mark};

static struct fixture
make(enum slot_state state)
{
	struct fixture f = {.is_done = true};
	assert_true(layout_plan(&f.layout, LIMIT_REGION_MIN, 0, 0));
	f.word = slot_make(f.layout.heap_off + 128, 2, 7, 5, state);
	return f;
}

static int
unlink_it(struct fixture *f, uint64_t word)
{
	f->reach = (struct reach){.layout = &f->layout, .calls = &calls, .arg = f};
	return unlink_word(&f->reach, SLOT_OFF, word);
}

static void
what_was_taken_out_is_marked(void **state)
{
	(void)state;
	const enum slot_state states[] = {SLOT_COMMITTED, SLOT_TENTATIVE};
	for (unsigned i = 0; i < 2; i++) {
		struct fixture f = make(states[i]);
		uint64_t word = f.word;
		assert_int_equal(unlink_it(&f, word), 0);
		assert_int_equal(f.word, slot_with_state(word, SLOT_DELETED));
		assert_int_equal(f.n_marks, 1);
		assert_int_equal(f.marked_off, slot_block_off(word));
		assert_int_equal(f.marked_tag, slot_tag(word));
	}
}

/* Also the same block in another state is another word. */
static void
who_lost_does_not_mark(void **state)
{
	(void)state;
	struct fixture f = make(SLOT_COMMITTED);
	uint64_t word = f.word;
	assert_int_equal(unlink_it(&f, slot_with_state(word, SLOT_TENTATIVE)), UNLINK_LOST);
	assert_int_equal(f.word, word);
	assert_int_equal(f.n_marks, 0);
}

static void
in_doubt_nobody_marks(void **state)
{
	(void)state;
	for (int is_done = 0; is_done < 2; is_done++) {
		struct fixture f = make(SLOT_COMMITTED);
		f.status = ERR_TIMEOUT;
		f.is_done = is_done;
		assert_int_equal(unlink_it(&f, f.word), ERR_TIMEOUT);
		assert_int_equal(f.n_marks, 0);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_taken_out_is_marked),
		cmocka_unit_test(who_lost_does_not_mark),
		cmocka_unit_test(in_doubt_nobody_marks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
