/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What becomes of an operation whose connection is cut while a CAS is out (PROTOCOL.md, "Outcome
 * unknown"), and what a forged region may do to a session. Each case has a world of its own.
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

/* ---- Cutting at a CAS ---- */

enum cas { CAS_NONE, CAS_UPDATE, CAS_DELETE, CAS_TENTATIVE, CAS_COMMIT, CAS_REMOVE };

/* The CAS of a slot in a batch, and its place there; CAS_REMOVE: a withdrawal or a kill. */
static enum cas
cas_in(struct world *w, const struct world_batch *b, unsigned *ret_at)
{
	uint64_t index = w->layout.index_off, end = w->layout.chunk_table_off;
	for (unsigned i = 0; i < b->n; i++) {
		const struct fab_op *f = &b->op[i];
		if (f->kind != FAB_CAS || f->roff < index || f->roff >= end)
			continue;
		*ret_at = i;
		if (slot_state(f->swap) == SLOT_TENTATIVE)
			return CAS_TENTATIVE;
		bool from_tentative = slot_state(f->expect) == SLOT_TENTATIVE;
		if (slot_state(f->swap) == SLOT_COMMITTED)
			return from_tentative ? CAS_COMMIT : CAS_UPDATE;
		return from_tentative ? CAS_REMOVE : CAS_DELETE;
	}
	return CAS_NONE;
}

enum plant { PLANT_NOTHING, PLANT_COMMITTED, PLANT_LOWER, PLANT_HIGHER };

struct cut {
	enum cas cas;
	bool is_executed;
	bool is_over;
	uint64_t slot_off;
	uint64_t expected; /* the word that the CAS expects */
	uint64_t word;     /* and the one it puts */
	enum plant plant;  /* what appears just before the tentative CAS */
	bool is_planted;
	uint64_t planted; /* its word */
	uint64_t planted_off;
	uint64_t planted_epoch;
};

/* An empty slot of the key other than `own`, below or above it. */
static uint64_t
empty_beside(struct world *w, uint64_t own, bool is_lower)
{
	uint64_t slot[2 * LAYOUT_COMBINED_SLOTS];
	unsigned n = world_slots(w, KEY, sizeof(KEY) - 1, slot);
	for (unsigned i = 0; i < n; i++)
		if (slot[i] != own && (slot[i] < own) == is_lower && *world_word(w, slot[i]) == 0)
			return slot[i];
	return 0;
}

/* A word of another session appears behind the look at the buckets, before the tentative CAS. */
static void
put_plant(struct world *w, struct cut *c, uint64_t own)
{
	bool is_lower = c->plant == PLANT_LOWER;
	c->planted_off = empty_beside(w, own, is_lower);
	if (c->planted_off == 0)
		c->planted_off = empty_beside(w, own, !is_lower);
	assert_int_not_equal(c->planted_off, 0);
	if (c->plant != PLANT_COMMITTED)
		assert_true((c->planted_off < own) == is_lower);
	c->planted = world_block(w, world_spare(w, 0), 7, KEY, "planted", 0);
	if (c->plant != PLANT_COMMITTED)
		c->planted = slot_with_state(c->planted, SLOT_TENTATIVE);
	*world_word(w, c->planted_off) = c->planted;
	c->is_planted = true;
	c->planted_epoch = w->epoch;
}

static void
cut_before(struct world *w, const struct world_batch *b)
{
	struct cut *c = w->arg;
	unsigned at = 0;
	enum cas cas = b->is_quiet ? CAS_NONE : cas_in(w, b, &at);
	if (cas == CAS_TENTATIVE && c->plant != PLANT_NOTHING && !c->is_planted)
		put_plant(w, c, b->op[at].roff);
	if (cas == CAS_NONE || cas != c->cas || c->is_over)
		return;
	c->is_over = true;
	c->slot_off = b->op[at].roff;
	c->expected = b->op[at].expect;
	c->word = b->op[at].swap;
	fault_cut(w->fab, 1, c->is_executed ? at + 1 : at);
}

/* ---- One case ---- */

struct bench {
	struct world *w;
	struct rkv_session *ours;
	struct rkv_session *theirs;
	struct cut cut;
};

static void
open_bench(struct bench *b, const char *value)
{
	memset(b, 0, sizeof(*b));
	b->w = world_open(NULL);
	b->ours = world_session(b->w);
	b->theirs = world_session(b->w);
	/* Both have memory of the class at hand: no job of an allocator is in the way. */
	assert_int_equal(world_put(b->ours, "ours", "filler"), 0);
	assert_int_equal(world_put(b->theirs, "theirs", "filler"), 0);
	if (value)
		assert_int_equal(world_put(b->ours, KEY, value), 0);
	b->w->arg = &b->cut;
	b->w->before = cut_before;
}

static void
close_bench(struct bench *b)
{
	b->w->before = NULL;
	world_check(b->w);
	world_close(b->w);
}

static struct rkv_request
request_of(enum rkv_op op, const char *value)
{
	struct rkv_request r = {.op = op, .key = KEY, .key_len = sizeof(KEY) - 1};
	if (value) {
		r.value = value;
		r.value_len = strlen(value);
	}
	return r;
}

/* Submits, and pumps until the planned cut has cost the session its link; nobody serves another. */
static void
start_and_cut(struct bench *b, struct rkv_request *r)
{
	b->w->is_down = true;
	assert_int_equal(rkv_submit(b->ours, r), 0);
	world_pump_until_lost(b->ours);
	assert_true(b->cut.is_over);
}

static int
relink_and_finish(struct bench *b, struct rkv_request *r, enum world_relink relink)
{
	b->w->relink = relink;
	b->w->is_down = false;
	world_serve(b->w);
	return world_finish(b->ours, r);
}

/* ---- What another session does between the cut and the new link ---- */

static void
their_put(struct bench *b)
{
	assert_int_equal(world_put(b->theirs, KEY, "v2"), 0);
}

static void
their_two_puts(struct bench *b)
{
	their_put(b);
	assert_int_equal(world_put(b->theirs, KEY, "v3"), 0);
}

static void
their_delete(struct bench *b)
{
	assert_int_equal(rkv_delete(b->theirs, KEY, sizeof(KEY) - 1), 0);
}

static void
their_put_and_delete(struct bench *b)
{
	their_put(b);
	their_delete(b);
}

static void
their_delete_and_put(struct bench *b)
{
	their_delete(b);
	their_put(b);
}

/* ---- The table ---- */

enum mark { MARK_ANY, MARK_NO, MARK_YES };

struct outcome {
	const char *name;
	enum rkv_op op;
	const char *before; /* value of the key; NULL: absent */
	enum plant plant;
	enum cas cas;
	bool is_executed;
	void (*meanwhile)(struct bench *);
	int status;
	const char *after;
	enum mark old_block; /* of the word that the CAS expected: is it marked at the end? */
	enum mark new_block; /* of the word that it put */
};

static const struct outcome outcomes[] = {
	{"update, not executed", RKV_OP_PUT, "v0", 0, CAS_UPDATE, false, NULL, 0, "v1", MARK_YES,
	 MARK_NO},
	{"update, executed", RKV_OP_PUT, "v0", 0, CAS_UPDATE, true, NULL, 0, "v1", MARK_NO,
	 MARK_NO},
	{"update, executed, updated over", RKV_OP_PUT, "v0", 0, CAS_UPDATE, true, their_put, 0,
	 "v2", MARK_NO, MARK_YES},
	{"update, executed, updated over twice", RKV_OP_PUT, "v0", 0, CAS_UPDATE, true,
	 their_two_puts, ERR_MAYBE, "v3", MARK_NO, MARK_YES},
	{"update, executed, deleted", RKV_OP_PUT, "v0", 0, CAS_UPDATE, true, their_delete,
	 ERR_MAYBE, NULL, MARK_NO, MARK_YES},
	{"update, executed, updated over and deleted", RKV_OP_PUT, "v0", 0, CAS_UPDATE, true,
	 their_put_and_delete, 0, NULL, MARK_NO, MARK_YES},
	{"update, executed, deleted, reinserted", RKV_OP_PUT, "v0", 0, CAS_UPDATE, true,
	 their_delete_and_put, ERR_MAYBE, "v2", MARK_NO, MARK_YES},
	{"update, not executed, updated by another", RKV_OP_PUT, "v0", 0, CAS_UPDATE, false,
	 their_put, ERR_MAYBE, "v2", MARK_YES, MARK_NO},
	{"update, not executed, deleted", RKV_OP_PUT, "v0", 0, CAS_UPDATE, false, their_delete,
	 ERR_MAYBE, NULL, MARK_YES, MARK_NO},
	{"touch, not executed", RKV_OP_TOUCH, "v0", 0, CAS_UPDATE, false, NULL, 0, "v0", MARK_YES,
	 MARK_NO},
	{"touch, executed", RKV_OP_TOUCH, "v0", 0, CAS_UPDATE, true, NULL, 0, "v0", MARK_NO,
	 MARK_NO},
	{"replace, not executed, deleted", RKV_OP_REPLACE, "v0", 0, CAS_UPDATE, false, their_delete,
	 ERR_MAYBE, NULL, MARK_YES, MARK_NO},

	{"delete, not executed", RKV_OP_DELETE, "v0", 0, CAS_DELETE, false, NULL, 0, NULL, MARK_YES,
	 MARK_ANY},
	{"delete, executed", RKV_OP_DELETE, "v0", 0, CAS_DELETE, true, NULL, ERR_MAYBE, NULL,
	 MARK_NO, MARK_ANY},
	{"delete, not executed, updated", RKV_OP_DELETE, "v0", 0, CAS_DELETE, false, their_put,
	 ERR_MAYBE, "v2", MARK_YES, MARK_ANY},
	{"delete, not executed, deleted by another", RKV_OP_DELETE, "v0", 0, CAS_DELETE, false,
	 their_delete, ERR_MAYBE, NULL, MARK_YES, MARK_ANY},
	{"delete, executed, reinserted", RKV_OP_DELETE, "v0", 0, CAS_DELETE, true, their_put,
	 ERR_MAYBE, "v2", MARK_NO, MARK_ANY},

	{"tentative, not executed", RKV_OP_PUT, NULL, 0, CAS_TENTATIVE, false, NULL, 0, "v1",
	 MARK_ANY, MARK_NO},
	{"tentative, executed", RKV_OP_PUT, NULL, 0, CAS_TENTATIVE, true, NULL, 0, "v1", MARK_ANY,
	 MARK_NO},
	{"tentative, executed, killed", RKV_OP_PUT, NULL, 0, CAS_TENTATIVE, true, their_put, 0,
	 "v1", MARK_ANY, MARK_YES},
	{"tentative, executed, killed, add", RKV_OP_ADD, NULL, 0, CAS_TENTATIVE, true, their_put,
	 ERR_EXISTS, "v2", MARK_ANY, MARK_YES},
	{"tentative, not executed, inserted by another", RKV_OP_PUT, NULL, 0, CAS_TENTATIVE, false,
	 their_put, 0, "v1", MARK_ANY, MARK_NO},
	{"tentative, executed, killed and deleted", RKV_OP_ADD, NULL, 0, CAS_TENTATIVE, true,
	 their_put_and_delete, 0, "v1", MARK_ANY, MARK_YES},

	{"commit, not executed", RKV_OP_PUT, NULL, 0, CAS_COMMIT, false, NULL, 0, "v1", MARK_ANY,
	 MARK_NO},
	{"commit, executed", RKV_OP_PUT, NULL, 0, CAS_COMMIT, true, NULL, 0, "v1", MARK_ANY,
	 MARK_NO},
	{"commit, executed, updated over", RKV_OP_PUT, NULL, 0, CAS_COMMIT, true, their_put, 0,
	 "v2", MARK_ANY, MARK_YES},
	{"commit, executed, updated over and deleted", RKV_OP_PUT, NULL, 0, CAS_COMMIT, true,
	 their_put_and_delete, 0, NULL, MARK_ANY, MARK_YES},
	{"commit, executed, deleted", RKV_OP_PUT, NULL, 0, CAS_COMMIT, true, their_delete,
	 ERR_MAYBE, NULL, MARK_ANY, MARK_YES},
	{"commit, not executed, killed", RKV_OP_PUT, NULL, 0, CAS_COMMIT, false, their_put,
	 ERR_MAYBE, "v2", MARK_ANY, MARK_YES},
	{"commit, add, executed", RKV_OP_ADD, NULL, 0, CAS_COMMIT, true, NULL, 0, "v1", MARK_ANY,
	 MARK_NO},

	{"withdrawal, not executed", RKV_OP_PUT, NULL, PLANT_COMMITTED, CAS_REMOVE, false, NULL, 0,
	 "v1", MARK_NO, MARK_ANY},
	{"withdrawal, executed", RKV_OP_PUT, NULL, PLANT_COMMITTED, CAS_REMOVE, true, NULL, 0, "v1",
	 MARK_NO, MARK_ANY},
	{"withdrawal, executed, add", RKV_OP_ADD, NULL, PLANT_COMMITTED, CAS_REMOVE, true, NULL,
	 ERR_EXISTS, "planted", MARK_NO, MARK_ANY},
	{"withdrawal for a rival, executed", RKV_OP_PUT, NULL, PLANT_LOWER, CAS_REMOVE, true, NULL,
	 0, "v1", MARK_NO, MARK_ANY},
	{"kill, not executed", RKV_OP_PUT, NULL, PLANT_HIGHER, CAS_REMOVE, false, NULL, 0, "v1",
	 MARK_YES, MARK_ANY},
	{"kill, executed", RKV_OP_PUT, NULL, PLANT_HIGHER, CAS_REMOVE, true, NULL, 0, "v1", MARK_NO,
	 MARK_ANY},
};

static void
check_mark(struct bench *b, uint64_t word, enum mark mark)
{
	if (mark != MARK_ANY && word != 0)
		assert_int_equal(world_is_marked(b->w, word), mark == MARK_YES);
}

/* resolve_cut: the look at the slot over the new link is cut too, behind so many operations. */
static void
run_outcome(const struct outcome *o, const unsigned *resolve_cut)
{
	struct bench b;
	struct rkv_request r = request_of(o->op, o->op == RKV_OP_TOUCH ? NULL : "v1");
	print_message("# %s\n", o->name);
	open_bench(&b, o->before);
	b.cut = (struct cut){.cas = o->cas, .is_executed = o->is_executed, .plant = o->plant};
	start_and_cut(&b, &r);
	if (o->meanwhile)
		o->meanwhile(&b);
	if (resolve_cut)
		fault_cut(b.w->fab, 1, *resolve_cut);
	assert_int_equal(relink_and_finish(&b, &r, RELINK_SAME), o->status);
	assert_int_equal(b.ours->n_links, resolve_cut ? 3 : 2);
	check_mark(&b, b.cut.expected, o->old_block);
	check_mark(&b, b.cut.word, o->new_block);
	world_expect(b.ours, KEY, o->after);
	world_expect_cold(b.w, KEY, o->after);
	/* Nothing late: neither more work of the session nor its end marks what was in doubt. */
	assert_int_equal(world_put(b.ours, "ours", "again"), 0);
	rkv_session_close(b.ours);
	check_mark(&b, b.cut.expected, o->old_block);
	check_mark(&b, b.cut.word, o->new_block);
	close_bench(&b);
}

static void
test_same_serial(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(outcomes) / sizeof(outcomes[0]); i++)
		run_outcome(&outcomes[i], NULL);
}

/* The link is lost again while the operation finds out what became of it. */
static void
test_cut_twice(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(outcomes) / sizeof(outcomes[0]); i++)
		for (unsigned n_ops = 0; n_ops < 2; n_ops++)
			run_outcome(&outcomes[i], &n_ops);
}

/* The tentative CAS is in doubt and was not executed: never this block again, [I6]. */
static void
test_new_block(void **state)
{
	(void)state;
	struct bench b;
	struct rkv_request r = request_of(RKV_OP_PUT, "v1");
	open_bench(&b, NULL);
	b.cut = (struct cut){.cas = CAS_TENTATIVE};
	start_and_cut(&b, &r);
	assert_int_equal(relink_and_finish(&b, &r, RELINK_SAME), 0);
	uint64_t word = *world_word(b.w, world_find(b.w, KEY));
	assert_int_not_equal(slot_block_off(word), slot_block_off(b.cut.word));
	close_bench(&b);
}

/*
 * A dead session cannot prove anything: what may have been applied is MAYBE, the rest starts over.
 */
static void
run_dead(const struct outcome *o, enum world_relink relink)
{
	struct bench b;
	struct rkv_request r = request_of(o->op, o->op == RKV_OP_TOUCH ? NULL : "v1");
	bool in_doubt = o->cas == CAS_UPDATE || o->cas == CAS_DELETE || o->cas == CAS_COMMIT;
	open_bench(&b, o->before);
	b.cut = (struct cut){.cas = o->cas, .is_executed = o->is_executed, .plant = o->plant};
	start_and_cut(&b, &r);
	if (o->meanwhile)
		o->meanwhile(&b);
	int status = relink_and_finish(&b, &r, relink);
	if (in_doubt)
		assert_int_equal(status, ERR_MAYBE);
	else if (relink == RELINK_EPOCH)
		assert_int_equal(status, 0);
	else
		assert_int_equal(status, o->status);
	if (relink == RELINK_EPOCH)
		world_expect(b.ours, KEY, in_doubt ? NULL : "v1");
	assert_int_equal(world_put(b.ours, KEY, "anew"), 0);
	world_expect(b.ours, KEY, "anew");
	close_bench(&b);
}

static void
test_new_serial(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(outcomes) / sizeof(outcomes[0]); i++)
		run_dead(&outcomes[i], RELINK_SERIAL);
}

static void
test_new_epoch(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(outcomes) / sizeof(outcomes[0]); i++)
		if (outcomes[i].meanwhile == NULL)
			run_dead(&outcomes[i], RELINK_EPOCH);
}

/* ---- The deadline while the link is down ---- */

static void
run_deadline(const struct outcome *o)
{
	struct bench b;
	struct rkv_request r = request_of(o->op, o->op == RKV_OP_TOUCH ? NULL : "v1");
	bool in_doubt = o->cas == CAS_UPDATE || o->cas == CAS_DELETE || o->cas == CAS_COMMIT;
	print_message("# deadline: %s\n", o->name);
	open_bench(&b, o->before);
	b.cut = (struct cut){.cas = o->cas, .is_executed = o->is_executed, .plant = o->plant};
	start_and_cut(&b, &r);
	assert_int_equal(world_finish(b.ours, &r), in_doubt ? ERR_MAYBE : ERR_CONN);
	b.w->is_down = false;
	world_serve(b.w);
	const char *after = o->before;
	if (in_doubt && o->is_executed)
		after = o->op == RKV_OP_DELETE ? NULL : o->op == RKV_OP_TOUCH ? "v0" : "v1";
	if (o->plant == PLANT_COMMITTED)
		after = "planted";
	world_expect(b.ours, KEY, after);
	check_mark(&b, b.cut.expected, MARK_NO);
	if (o->cas != CAS_DELETE && o->cas != CAS_REMOVE)
		check_mark(&b, b.cut.word, MARK_NO);
	assert_int_equal(world_put(b.theirs, KEY, "later"), 0);
	world_expect(b.ours, KEY, "later");
	close_bench(&b);
}

static void
test_deadline(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(outcomes) / sizeof(outcomes[0]); i++)
		if (outcomes[i].meanwhile == NULL)
			run_deadline(&outcomes[i]);
}

/* Submitted while there is no link: never applied, and said so. */
static void
test_deadline_never_sent(void **state)
{
	(void)state;
	for (unsigned op = 0; op < RKV_OP_COUNT; op++) {
		struct bench b;
		struct rkv_request read = request_of(RKV_OP_GET, NULL);
		struct rkv_request r = request_of((enum rkv_op)op, "v1");
		open_bench(&b, "v0");
		b.w->is_down = true;
		fault_cut(b.w->fab, 1, 0);
		assert_int_equal(rkv_submit(b.ours, &read), 0);
		world_pump_until_lost(b.ours);
		assert_int_equal(world_finish(b.ours, &read), ERR_CONN);
		assert_int_equal(rkv_submit(b.ours, &r), 0);
		assert_int_equal(world_finish(b.ours, &r), ERR_CONN);
		b.w->is_down = false;
		world_serve(b.w);
		world_expect(b.ours, KEY, "v0");
		close_bench(&b);
	}
}

/* A batch that never completes: its operation ends soon after its deadline, nothing lands later. */
static void
test_hang(void **state)
{
	(void)state;
	struct bench b;
	struct rkv_request r = request_of(RKV_OP_PUT, "v1");
	open_bench(&b, "v0");
	b.w->is_down = true;
	fault_delay(b.w->fab, UINT32_MAX);
	assert_int_equal(rkv_submit(b.ours, &r), 0);
	assert_int_equal(world_finish(b.ours, &r), ERR_MAYBE);
	assert_null(b.ours->link.ep);
	fault_delay(b.w->fab, 0);
	b.w->is_down = false;
	world_serve(b.w);
	world_expect(b.ours, KEY, "v1");
	close_bench(&b);
}

/*
 * A session that is closed without a link: what is in flight ends by its deadline, told as it is.
 */
static void
test_close_without_link(void **state)
{
	(void)state;
	struct bench b;
	struct rkv_request r = request_of(RKV_OP_PUT, "v1"), late = request_of(RKV_OP_PUT, "v2");
	open_bench(&b, "v0");
	b.cut = (struct cut){.cas = CAS_UPDATE, .is_executed = true};
	start_and_cut(&b, &r);
	assert_int_equal(rkv_submit(b.ours, &late), 0);
	rkv_session_close(b.ours);
	assert_int_equal(r.status, ERR_MAYBE);
	assert_int_equal(late.status, ERR_CONN);
	b.w->is_down = false;
	world_expect_cold(b.w, KEY, "v1");
	close_bench(&b);
}

/* ---- Marks and the connection ---- */

static void
cut_at_mark(struct world *w, const struct world_batch *b)
{
	struct cut *c = w->arg;
	if (!b->is_quiet || c->is_over)
		return;
	c->is_over = true;
	fault_cut(w->fab, 1, c->is_executed);
}

/* A mark that was lost with its connection is lost: it is never posted again, [WHO-FREES]. */
static void
test_lost_mark(void **state)
{
	(void)state;
	for (int is_executed = 0; is_executed < 2; is_executed++) {
		struct bench b;
		open_bench(&b, "v0");
		uint64_t old = *world_word(b.w, world_find(b.w, KEY));
		b.cut = (struct cut){.is_executed = is_executed};
		b.w->before = cut_at_mark;
		assert_int_equal(world_put(b.ours, KEY, "v1"), 0);
		assert_true(b.cut.is_over);
		for (int i = 0; i < 100; i++) {
			assert_int_equal(world_put(b.ours, "ours", "again"), 0);
			uint64_t word = *world_word(b.w, world_find(b.w, "ours"));
			if (!is_executed)
				assert_int_not_equal(slot_block_off(word), slot_block_off(old));
		}
		world_expect(b.ours, KEY, "v1");
		assert_int_equal(b.ours->n_links, 2);
		if (!is_executed)
			assert_false(world_is_marked(b.w, old));
		close_bench(&b);
	}
}

/* ---- A cut anywhere ---- */

struct course {
	const char *name;
	enum rkv_op op;
	bool is_there;
	bool is_warm;
	bool is_large;
	enum plant plant;
};

static const struct course courses[] = {
	{"get", RKV_OP_GET, true, false, false, 0},
	{"get, warm, large", RKV_OP_GET, true, true, true, 0},
	{"get, absent", RKV_OP_GET, false, false, false, 0},
	{"insert", RKV_OP_PUT, false, false, false, 0},
	{"insert, large", RKV_OP_PUT, false, false, true, 0},
	{"insert, committed word appears", RKV_OP_PUT, false, false, false, PLANT_COMMITTED},
	{"insert, lower rival", RKV_OP_PUT, false, false, false, PLANT_LOWER},
	{"insert, higher rival", RKV_OP_PUT, false, false, false, PLANT_HIGHER},
	{"update", RKV_OP_PUT, true, false, false, 0},
	{"update, warm", RKV_OP_PUT, true, true, false, 0},
	{"update, warm, large", RKV_OP_PUT, true, true, true, 0},
	{"add", RKV_OP_ADD, false, false, false, 0},
	{"add, committed word appears", RKV_OP_ADD, false, false, false, PLANT_COMMITTED},
	{"add, lower rival", RKV_OP_ADD, false, false, false, PLANT_LOWER},
	{"add, higher rival", RKV_OP_ADD, false, false, false, PLANT_HIGHER},
	{"add, there", RKV_OP_ADD, true, false, false, 0},
	{"replace", RKV_OP_REPLACE, true, false, false, 0},
	{"replace, absent", RKV_OP_REPLACE, false, false, false, 0},
	{"compare-and-swap", RKV_OP_CAS, true, true, false, 0},
	{"delete", RKV_OP_DELETE, true, false, false, 0},
	{"delete, warm", RKV_OP_DELETE, true, true, false, 0},
	{"touch", RKV_OP_TOUCH, true, false, false, 0},
	{"touch, large", RKV_OP_TOUCH, true, true, true, 0},
};

#define LARGE 5000u

struct run {
	struct bench b;
	const struct course *course;
	char before[LARGE + 1];
	char after[LARGE + 1];
	char buf[LARGE + 1];
	struct rkv_request r;
};

static void
fill(char *text, char letter, bool is_large)
{
	size_t len = is_large ? LARGE : 8;
	memset(text, letter, len);
	text[len] = '\0';
}

/* A world in which the course's operation is about to be submitted by a fresh session. */
static void
prepare(struct run *run, const struct course *course, enum world_relink relink)
{
	struct bench *b = &run->b;
	struct rkv_item item;
	*b = (struct bench){.w = world_open(NULL),
			    .cut = {.cas = CAS_NONE, .plant = course->plant}};
	run->course = course;
	fill(run->before, 'b', course->is_large);
	fill(run->after, 'a', course->is_large);
	b->theirs = world_session(b->w);
	if (course->is_there)
		assert_int_equal(world_put(b->theirs, KEY, run->before), 0);
	b->ours = world_session(b->w);
	run->r = request_of(course->op, course->op == RKV_OP_TOUCH ? NULL : run->after);
	if (course->is_warm) {
		assert_int_equal(rkv_get(b->ours, KEY, sizeof(KEY) - 1, run->buf, LARGE, &item), 0);
		run->r.version = item.version;
	}
	run->r.buf = run->buf;
	run->r.buf_len = LARGE;
	b->w->relink = relink;
	b->w->arg = &b->cut;
	b->w->before = cut_before;
}

/* What the key may hold now, given what the operation's caller was told. */
static void
check_result(struct run *run)
{
	struct rkv_session *s = world_session(run->b.w);
	struct rkv_item item;
	const struct course *c = run->course;
	int status = run->r.status;
	const char *before = c->is_there ? run->before : NULL;
	if (run->b.w->epoch > 1)
		before = NULL; /* the region was formatted anew */
	if (c->plant == PLANT_COMMITTED && run->b.cut.planted_epoch == run->b.w->epoch)
		before = "planted";
	const char *after = c->op == RKV_OP_DELETE  ? NULL
			    : c->op == RKV_OP_TOUCH ? before
			    : c->op == RKV_OP_GET   ? before
						    : run->after;
	memset(run->buf, 0, sizeof(run->buf));
	int rc = rkv_get(s, KEY, sizeof(KEY) - 1, run->buf, LARGE, &item);
	bool is_before = before ? rc == 0 && strcmp(run->buf, before) == 0 : rc == ERR_NOT_FOUND;
	bool is_after = after ? rc == 0 && strcmp(run->buf, after) == 0 : rc == ERR_NOT_FOUND;
	if (status == 0)
		assert_true(is_after);
	else if (status == ERR_MAYBE)
		assert_true(is_before || is_after);
	else
		assert_true(is_before);
	rkv_session_close(s);
}

/* Memory goes on being handed out once: new keys on all sides leave each other alone. */
static void
check_memory(struct bench *b)
{
	char key[32];
	for (unsigned i = 0; i < 40; i++) {
		struct rkv_session *s = i % 2 ? b->ours : b->theirs;
		snprintf(key, sizeof(key), "more%u", i);
		int rc = world_put(s, key, key);
		assert_true(rc == 0 || rc == ERR_AGAIN);
		if (rc == 0)
			world_expect(s, key, key);
		world_check(b->w);
	}
}

/*
 * Cuts at the nth batch behind its first n_ops operations. False: the operation has no such batch.
 * *ret_len: how long it was.
 */
static bool
run_cut(struct run *run, const struct course *course, enum world_relink relink, unsigned nth,
	unsigned n_ops, unsigned *ret_len)
{
	struct world *w;
	prepare(run, course, relink);
	w = run->b.w;
	unsigned from = w->n_trace;
	fault_cut(w->fab, nth, n_ops);
	assert_int_equal(rkv_submit(run->b.ours, &run->r), 0);
	world_finish(run->b.ours, &run->r);
	bool is_cut = w->n_trace >= from + nth;
	fault_cut(w->fab, 0, 0);
	if (is_cut)
		*ret_len = w->trace[(from + nth - 1) % WORLD_TRACE_MAX].n;
	w->before = NULL;
	session_pump(run->b.ours);
	session_pump(run->b.ours);
	check_result(run);
	world_check(w);
	if (relink != RELINK_EPOCH)
		check_memory(&run->b);
	world_close(w);
	return is_cut;
}

static void
cut_everywhere(enum world_relink relink)
{
	struct run *run = test_malloc(sizeof(*run));
	for (size_t i = 0; i < sizeof(courses) / sizeof(courses[0]); i++) {
		unsigned nth = 1, len = 1;
		print_message("# %s\n", courses[i].name);
		while (run_cut(run, &courses[i], relink, nth, 0, &len)) {
			for (unsigned n_ops = 1; n_ops <= len; n_ops++)
				run_cut(run, &courses[i], relink, nth, n_ops, &len);
			nth++;
		}
		assert_true(nth > 1);
	}
	test_free(run);
}

static void
test_cut_same_serial(void **state)
{
	(void)state;
	cut_everywhere(RELINK_SAME);
}

static void
test_cut_new_serial(void **state)
{
	(void)state;
	cut_everywhere(RELINK_SERIAL);
}

static void
test_cut_new_epoch(void **state)
{
	(void)state;
	cut_everywhere(RELINK_EPOCH);
}

/* ---- Many operations at once ---- */

#define MANY 8u
#define MANY_KEYS 3u

struct many {
	struct rkv_request r[MANY];
	char key[MANY][8];
	char value[MANY][8];
	char buf[MANY][64];
};

/* Puts, adds, deletes and gets of the same few keys, all in flight together. */
static void
fill_many(struct many *m)
{
	static const enum rkv_op ops[] = {RKV_OP_PUT, RKV_OP_GET, RKV_OP_ADD,   RKV_OP_PUT,
					  RKV_OP_PUT, RKV_OP_PUT, RKV_OP_TOUCH, RKV_OP_DELETE};
	for (unsigned i = 0; i < MANY; i++) {
		snprintf(m->key[i], sizeof(m->key[i]), "many%u", i % MANY_KEYS);
		snprintf(m->value[i], sizeof(m->value[i]), "v%u", i);
		m->r[i] = (struct rkv_request){
			.op = ops[i],
			.key = m->key[i],
			.key_len = strlen(m->key[i]),
			.value = m->value[i],
			.value_len = 2,
			.buf = m->buf[i],
			.buf_len = sizeof(m->buf[i]),
		};
		if (ops[i] == RKV_OP_GET || ops[i] == RKV_OP_DELETE || ops[i] == RKV_OP_TOUCH)
			m->r[i].value_len = 0;
		m->r[i].user = NULL;
	}
}

/* Each completes exactly once. */
static void
finish_many(struct world *w, struct rkv_session *s, struct many *m)
{
	unsigned n = 0;
	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(rkv_submit(s, &m->r[i]), 0);
	assert_int_equal(rkv_submit(s, &m->r[0]), RKV_AGAIN);
	for (unsigned k = 0; k < 1000000 && (n < MANY || s->n_in_flight); k++) {
		struct rkv_request *done[MANY];
		int n_done = rkv_poll(s, done, MANY, 0);
		assert_true(n_done >= 0);
		for (int i = 0; i < n_done; i++) {
			assert_null(done[i]->user);
			done[i]->user = w;
		}
		n += (unsigned)n_done;
		if (n_done == 0)
			session_wait(s);
	}
	assert_int_equal(n, MANY);
}

/* A key holds what one of the operations on it may have put there, or is absent. */
static void
check_many(struct world *w, const struct many *m)
{
	for (unsigned k = 0; k < MANY_KEYS; k++) {
		struct rkv_session *s = world_session(w);
		char got[64];
		int rc = world_get(s, m->key[k], got);
		bool is_plausible = rc == RKV_NOT_FOUND;
		for (unsigned i = k; i < MANY; i += MANY_KEYS) {
			bool writes = m->r[i].value_len && m->r[i].status != ERR_CONN &&
				      m->r[i].status != RKV_EXISTS;
			is_plausible |= rc == 0 && writes && strcmp(got, m->value[i]) == 0;
		}
		assert_true(is_plausible);
		rkv_session_close(s);
	}
}

static void
test_cut_many(void **state)
{
	(void)state;
	static struct many m;
	for (unsigned relink = RELINK_SAME; relink <= RELINK_EPOCH; relink++) {
		bool was_reached = true;
		for (unsigned nth = 1; was_reached; nth++) {
			for (unsigned n_ops = 0; n_ops <= 5; n_ops++) {
				struct world *w = world_open(NULL);
				struct rkv_session *s = world_session(w);
				w->relink = (enum world_relink)relink;
				fill_many(&m);
				unsigned from = w->n_trace;
				fault_cut(w->fab, nth, n_ops);
				finish_many(w, s, &m);
				was_reached = w->n_trace >= from + nth;
				fault_cut(w->fab, 0, 0);
				world_check(w);
				check_many(w, &m);
				fill_many(&m);
				finish_many(w, s, &m);
				world_check(w);
				world_close(w);
			}
		}
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_serial),         cmocka_unit_test(test_cut_twice),
		cmocka_unit_test(test_new_block),           cmocka_unit_test(test_new_serial),
		cmocka_unit_test(test_new_epoch),           cmocka_unit_test(test_deadline),
		cmocka_unit_test(test_deadline_never_sent), cmocka_unit_test(test_hang),
		cmocka_unit_test(test_close_without_link),  cmocka_unit_test(test_lost_mark),
		cmocka_unit_test(test_cut_same_serial),     cmocka_unit_test(test_cut_new_serial),
		cmocka_unit_test(test_cut_new_epoch),       cmocka_unit_test(test_cut_many),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
