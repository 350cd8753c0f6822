/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests of the linearisability checker. What it says is compared with
 *   - histories written by hand, good and bad, which two checkers broken on purpose must get wrong;
 *   - brute force over all orders, on small random histories;
 *   - histories of a simulated atomic store, which are right by construction;
 *   - the same with one answer falsified, where it can be proven that the result is wrong.
 * `test_lin SEED` takes another seed than the default.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
/* after the four headers that it needs */
#include <cmocka.h>

#include "client/include/rkv.h"
#include "common/err.h"
#include "tests/sim/lin.h"

/* The broken ones: lin_always_ok.c, lin_no_realtime.c. */
int always_ok_check(const struct lin_history *history, const struct lin_options *options,
		    struct lin_report *ret_report);
int no_realtime_check(const struct lin_history *history, const struct lin_options *options,
		      struct lin_report *ret_report);

static uint64_t seed = 1;
static uint64_t rng;

/* splitmix64 */
static uint64_t
rng_next(void)
{
	uint64_t z = rng += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static uint32_t
below(uint32_t n)
{
	return (uint32_t)(rng_next() >> 32) % n;
}

static bool
chance(uint32_t percent)
{
	return below(100) < percent;
}

/* Allocates the history and seeds the generator. */
static int
setup(void **state)
{
	struct lin_history *history;

	rng = seed;
	if (lin_history_new(&history) < 0)
		return -1;
	*state = history;
	return 0;
}

static int
teardown(void **state)
{
	lin_history_free(*state);
	return 0;
}

static void
fill(struct lin_history *history, const struct lin_op *ops, size_t n)
{
	history->n_ops = 0;
	assert_int_equal(lin_history_add(history, ops, n), 0);
}

/* ---- The store, in the plainest words ---- */

struct cell {
	bool present;
	uint64_t value;
	uint64_t version;
};

/* Runs an operation with this new version, and says what it answers. */
static enum lin_result
cell_apply(struct cell *cell, const struct lin_op *op, uint64_t version)
{
	if (op->kind == LIN_ADD && cell->present)
		return LIN_EXISTS;
	if (op->kind != LIN_ADD && op->kind != LIN_PUT && !cell->present)
		return LIN_NOT_FOUND;
	if (op->kind == LIN_CAS && cell->version != op->expected)
		return LIN_MISMATCH;
	if (op->kind == LIN_GET)
		return LIN_DONE;
	cell->present = op->kind != LIN_DELETE;
	if (op->kind != LIN_TOUCH)
		cell->value = op->value;
	cell->version = version;
	return LIN_DONE;
}

/* ---- Brute force ---- */

#define BRUTE_OPS 8
#define FRESH_VERSION UINT64_C(1000000)

/* Operations of one key, and the versions that a write of unknown version can have made. */
struct brute {
	const struct lin_op *ops[BRUTE_OPS];
	size_t n_ops;
	bool placed[BRUTE_OPS];
	uint64_t free_versions[2 * BRUTE_OPS];
	bool taken[2 * BRUTE_OPS];
	size_t n_free_versions;
};

static bool
is_write(const struct lin_op *op)
{
	return op->kind != LIN_GET && (op->result == LIN_DONE || op->result == LIN_OPEN);
}

static bool
brute_may_place(const struct brute *b, size_t i)
{
	size_t k;

	for (k = 0; k < b->n_ops; k++)
		if (!b->placed[k] && k != i && b->ops[k]->result != LIN_OPEN &&
		    b->ops[k]->responded < b->ops[i]->invoked)
			return false;
	return !b->placed[i];
}

static bool brute_search(struct brute *b, struct cell cell);

static bool
brute_place(struct brute *b, size_t i, struct cell cell, uint64_t version)
{
	const struct lin_op *op = b->ops[i];
	enum lin_result result = cell_apply(&cell, op, version);
	bool found;

	if (result != (op->result == LIN_OPEN ? LIN_DONE : op->result))
		return false;
	if (op->kind == LIN_GET && result == LIN_DONE &&
	    (cell.value != op->value || (op->version && cell.version != op->version)))
		return false;
	b->placed[i] = true;
	found = brute_search(b, cell);
	b->placed[i] = false;
	return found;
}

/* Is there an order of what is not placed yet? Open operations need no place. */
static bool
brute_search(struct brute *b, struct cell cell)
{
	bool due = false, found = false;
	size_t i, v;

	for (i = 0; i < b->n_ops; i++)
		due |= !b->placed[i] && b->ops[i]->result != LIN_OPEN;
	if (!due)
		return true;
	for (i = 0; i < b->n_ops && !found; i++) {
		if (!brute_may_place(b, i))
			continue;
		found = brute_place(b, i, cell,
				    b->ops[i]->version ? b->ops[i]->version : FRESH_VERSION + i);
		if (b->ops[i]->version || !is_write(b->ops[i]))
			continue;
		for (v = 0; v < b->n_free_versions && !found; v++) {
			if (b->taken[v])
				continue;
			b->taken[v] = true;
			found = brute_place(b, i, cell, b->free_versions[v]);
			b->taken[v] = false;
		}
	}
	return found;
}

static bool
brute_is_made(const struct lin_op *all, size_t n_all, uint64_t key, uint64_t version)
{
	size_t i;

	for (i = 0; i < n_all; i++)
		if (all[i].key == key && is_write(&all[i]) && all[i].kind != LIN_DELETE &&
		    all[i].version == version)
			return true;
	return false;
}

static void
brute_free_version(struct brute *b, const struct lin_op *all, size_t n_all, uint64_t key,
		   uint64_t version)
{
	size_t i;

	if (version == 0 || brute_is_made(all, n_all, key, version))
		return;
	for (i = 0; i < b->n_free_versions; i++)
		if (b->free_versions[i] == version)
			return;
	b->free_versions[b->n_free_versions++] = version;
}

/* One key of ops[0..n); all[0..n_all) says which versions are known to be made. */
static bool
brute_key(const struct lin_op *ops, size_t n, const struct lin_op *all, size_t n_all, uint64_t key)
{
	struct brute b = {.n_ops = 0};
	size_t i;

	for (i = 0; i < n; i++) {
		if (ops[i].key != key || ops[i].result == LIN_FAILED ||
		    (ops[i].kind == LIN_GET && ops[i].result == LIN_OPEN))
			continue;
		b.ops[b.n_ops++] = &ops[i];
		brute_free_version(&b, all, n_all, key, ops[i].version);
		if (ops[i].kind == LIN_CAS)
			brute_free_version(&b, all, n_all, key, ops[i].expected);
	}
	return brute_search(&b, (struct cell){.present = false});
}

static bool
brute_version_twice(const struct lin_op *ops, size_t n)
{
	size_t i, k;

	for (i = 0; i < n; i++)
		for (k = 0; k < i; k++)
			if (is_write(&ops[i]) && ops[i].result == LIN_DONE &&
			    ops[i].kind != LIN_DELETE && is_write(&ops[k]) &&
			    ops[k].result == LIN_DONE && ops[k].kind != LIN_DELETE &&
			    ops[i].version && ops[i].version == ops[k].version)
				return true;
	return false;
}

static bool
brute_check(const struct lin_op *ops, size_t n)
{
	return !brute_version_twice(ops, n) && brute_key(ops, n, ops, n, 0) &&
	       brute_key(ops, n, ops, n, 1);
}

/* ---- Small random histories ---- */

#define SMALL_VERSION 100 /* + number of the write */
#define SMALL_UNKNOWN 200 /* versions that no known write made */

static enum lin_kind
small_kind(void)
{
	static const uint8_t kinds[] = {LIN_GET, LIN_GET,    LIN_GET,     LIN_PUT,
					LIN_PUT, LIN_ADD,    LIN_REPLACE, LIN_CAS,
					LIN_CAS, LIN_DELETE, LIN_DELETE,  LIN_TOUCH};

	return kinds[below(sizeof(kinds))];
}

static enum lin_result
small_result(enum lin_kind kind)
{
	static const uint8_t others[LIN_KIND_COUNT] = {LIN_NOT_FOUND, LIN_DONE,     LIN_EXISTS,
						       LIN_NOT_FOUND, LIN_MISMATCH, LIN_NOT_FOUND,
						       LIN_NOT_FOUND};
	uint32_t dice = below(100);

	if (dice < 4)
		return below(LIN_RESULT_COUNT);
	if (dice < 24)
		return LIN_OPEN;
	if (dice < 49)
		return kind == LIN_CAS && chance(30) ? LIN_NOT_FOUND : others[kind];
	return LIN_DONE;
}

static uint64_t
small_version(size_t n)
{
	if (chance(15))
		return SMALL_UNKNOWN + below(2);
	return SMALL_VERSION + below((uint32_t)n);
}

/* What is asked, and when. Answers are filled in afterwards. */
static void
small_questions(struct lin_op *ops, size_t n)
{
	uint32_t n_keys = 1 + chance(30), spread = chance(50) ? 30 : 8;
	size_t i;

	for (i = 0; i < n; i++) {
		ops[i] = (struct lin_op){.key = below(n_keys), .client = (uint32_t)i};
		ops[i].kind = small_kind();
		ops[i].invoked = below(spread);
		ops[i].responded = ops[i].invoked + below(1 + (spread >> below(4)));
		if (ops[i].kind != LIN_GET) {
			ops[i].value = chance(10) ? 1 : 1 + i;
			ops[i].version = chance(2) ? SMALL_VERSION : SMALL_VERSION + i;
			ops[i].expected = small_version(n);
		}
	}
}

/* Answers out of thin air. */
static void
small_guess(struct lin_op *ops, size_t n)
{
	size_t i;
	uint32_t source;

	for (i = 0; i < n; i++) {
		ops[i].result = small_result(ops[i].kind);
		if (ops[i].kind == LIN_GET) {
			source = below((uint32_t)n);
			ops[i].value = 1 + source;
			ops[i].version = chance(70) ? SMALL_VERSION + source : small_version(n);
			if (chance(10))
				ops[i].version = 0;
		} else if (chance(ops[i].result == LIN_OPEN ? 50 : 10)) {
			ops[i].version = 0;
		}
	}
}

struct moment {
	int64_t time;
	size_t op;
};

static int
cmp_moment(const void *a, const void *b)
{
	const struct moment *left = a, *right = b;

	if (left->time != right->time)
		return left->time < right->time ? -1 : 1;
	return (left->op > right->op) - (left->op < right->op);
}

/* Answers of the store, each operation at a moment within its interval; some crash. */
static void
small_run(struct lin_op *ops, size_t n)
{
	struct cell cells[2] = {{false, 0, 0}, {false, 0, 0}};
	struct moment moments[BRUTE_OPS];
	size_t i;

	for (i = 0; i < n; i++)
		moments[i] = (struct moment){
			ops[i].invoked + below((uint32_t)(ops[i].responded - ops[i].invoked + 1)),
			i};
	qsort(moments, n, sizeof(*moments), cmp_moment);
	for (i = 0; i < n; i++) {
		struct lin_op *op = &ops[moments[i].op];
		struct cell *cell = &cells[op->key];

		if (chance(10)) {
			op->result = LIN_OPEN;
			continue;
		}
		if (op->kind == LIN_CAS && cell->present && chance(60))
			op->expected = cell->version;
		op->result = cell_apply(cell, op, op->version);
		if (op->kind == LIN_GET) {
			op->value = cell->value;
			op->version = chance(90) ? cell->version : 0;
		}
		if (chance(10))
			op->result = LIN_OPEN;
		if (op->kind != LIN_GET && chance(op->result == LIN_OPEN ? 50 : 5))
			op->version = 0;
	}
}

static void
small_falsify(struct lin_op *ops, size_t n)
{
	struct lin_op *op = &ops[below((uint32_t)n)];

	switch (below(4)) {
	case 0:
		op->result = small_result(op->kind);
		break;
	case 1:
		op->version = small_version(n);
		break;
	case 2:
		op->value = 1 + below((uint32_t)n);
		break;
	default:
		op->invoked = below(30);
		op->responded = op->invoked + below(5);
	}
}

static size_t
small_history(struct lin_op *ops, size_t n_max)
{
	size_t n = 1 + below((uint32_t)n_max);

	small_questions(ops, n);
	if (chance(30)) {
		small_guess(ops, n);
	} else {
		small_run(ops, n);
		while (chance(35))
			small_falsify(ops, n);
	}
	return n;
}

/* What was known of a history when the blocked operation answered, with that answer or without. */
static size_t
cut_at(const struct lin_op *ops, size_t n, size_t blocked, bool with_answer, struct lin_op *ret_ops)
{
	size_t i, n_cut = 0;
	int64_t time = ops[blocked].responded;

	for (i = 0; i < n; i++) {
		bool answered = ops[i].responded <= time && (i != blocked || with_answer);

		if (ops[i].key != ops[blocked].key || ops[i].invoked > time)
			continue;
		if (!answered && !is_write(&ops[i]))
			continue;
		ret_ops[n_cut] = ops[i];
		if (!answered)
			ret_ops[n_cut].result = LIN_OPEN;
		n_cut++;
	}
	return n_cut;
}

/* Asserts that the answer named is the first that nothing explains. */
static void
assert_blocked(const struct lin_op *ops, size_t n, const struct lin_report *report)
{
	struct lin_op cut[BRUTE_OPS];
	size_t i, n_cut;

	assert_true(report->op < n);
	assert_int_equal(report->key, ops[report->op].key);
	if (report->reason == LIN_REASON_VERSION_TWICE)
		return;
	assert_int_equal(report->reason, LIN_REASON_PLACE);
	for (i = 0; i < n; i++)
		if (i != report->op && ops[i].responded == ops[report->op].responded)
			return; /* which of them is the first is not determined */
	n_cut = cut_at(ops, n, report->op, false, cut);
	assert_true(brute_key(cut, n_cut, ops, n, report->key));
	n_cut = cut_at(ops, n, report->op, true, cut);
	assert_false(brute_key(cut, n_cut, ops, n, report->key));
}

static void
compare_with_brute_force(struct lin_history *history, uint32_t n_histories, size_t n_max)
{
	struct lin_op ops[BRUTE_OPS];
	struct lin_report report;
	uint32_t i, n_good = 0;

	for (i = 0; i < n_histories; i++) {
		size_t n = small_history(ops, n_max);
		bool good = brute_check(ops, n);

		fill(history, ops, n);
		if (lin_check(history, NULL, &report) != (good ? LIN_OK : LIN_BAD)) {
			report.op = 0;
			report.key = ops[0].key;
			lin_dump(history, &report, stderr);
			fail_msg("seed %" PRIu64 ", history %u is %s", seed, i,
				 good ? "good" : "bad");
		}
		if (!good)
			assert_blocked(ops, n, &report);
		n_good += good;
	}
	print_message("# %u histories, %u linearisable\n", n_histories, n_good);
	assert_true(n_good > n_histories / 10);
	assert_true(n_histories - n_good > n_histories / 10);
}

static void
test_brute_force(void **state)
{
	compare_with_brute_force(*state, 100000, 6);
}

static void
test_brute_force_larger(void **state)
{
	compare_with_brute_force(*state, 20000, BRUTE_OPS);
}

/* ---- Histories of a simulated atomic store ---- */

#define SIM_CLIENTS_MAX 64
#define SIM_KEYS_MAX 16

struct sim_options {
	uint32_t n_ops;
	uint32_t n_keys;
	uint32_t n_clients;
	uint32_t
		solo_percent; /* an operation runs from question to answer with nobody in between */
	uint32_t crash_percent;
	uint32_t unknown_percent; /* of open operations: their version is not recorded */
};

enum sim_phase { SIM_IDLE, SIM_ASKED, SIM_APPLIED };

struct sim {
	const struct sim_options *options;
	struct lin_history *history;
	struct cell cells[SIM_KEYS_MAX];
	uint64_t seen[SIM_KEYS_MAX]; /* a version that an answer told, for compare-and-swap */
	struct lin_op ops[SIM_CLIENTS_MAX];
	enum sim_phase phases[SIM_CLIENTS_MAX];
	struct lin_op *late; /* crashed writes that take effect when they like */
	size_t n_late;
	uint32_t n_asked;
	uint32_t n_crashed;
	int64_t time;
};

static void
sim_ask(struct sim *sim, uint32_t client)
{
	struct lin_op *op = &sim->ops[client];
	uint32_t key = below(sim->options->n_keys);

	*op = (struct lin_op){.key = key, .client = client, .invoked = ++sim->time};
	op->kind = chance(40) ? LIN_GET : 1 + below(LIN_KIND_COUNT - 1);
	if (op->kind != LIN_GET) {
		op->value = (uint64_t)(client + 1) << 48 | ++sim->n_asked;
		op->version = UINT64_C(1) << 32 | sim->n_asked;
	} else {
		sim->n_asked++;
	}
	if (op->kind == LIN_CAS)
		op->expected = sim->seen[key];
	sim->phases[client] = SIM_ASKED;
}

static void
sim_apply(struct sim *sim, struct lin_op *op)
{
	struct cell *cell = &sim->cells[op->key];

	op->result = cell_apply(cell, op, op->version);
	if (op->kind == LIN_GET && op->result == LIN_DONE) {
		op->value = cell->value;
		op->version = cell->version;
	}
}

static void
sim_record(struct sim *sim, uint32_t client)
{
	const struct lin_op *op = &sim->ops[client];

	if (op->result == LIN_DONE && op->kind != LIN_DELETE && chance(70))
		sim->seen[op->key] = op->version;
	assert_int_equal(lin_history_add(sim->history, op, 1), 0);
	sim->phases[client] = SIM_IDLE;
}

static void
sim_crash(struct sim *sim, uint32_t client)
{
	struct lin_op *op = &sim->ops[client];

	sim->n_crashed++;
	if (sim->phases[client] == SIM_ASKED && chance(60))
		sim->late[sim->n_late++] = *op;
	op->result = LIN_OPEN;
	if (chance(sim->options->unknown_percent))
		op->version = 0;
	sim_record(sim, client);
}

/* One step of one client; false if it has nothing more to do. */
static bool
sim_step(struct sim *sim, uint32_t client)
{
	if (sim->phases[client] == SIM_IDLE) {
		if (sim->n_asked == sim->options->n_ops)
			return false;
		sim_ask(sim, client);
	} else if (below(200) < sim->options->crash_percent) {
		sim_crash(sim, client); /* two steps, hence half the chance at each */
	} else if (sim->phases[client] == SIM_ASKED) {
		sim_apply(sim, &sim->ops[client]);
		sim->phases[client] = SIM_APPLIED;
	} else {
		sim->ops[client].responded = ++sim->time;
		sim_record(sim, client);
	}
	return true;
}

static void
simulate(struct lin_history *history, const struct sim_options *options)
{
	struct sim *sim = calloc(1, sizeof(*sim));
	uint32_t client, n_idle = 0;

	assert_non_null(sim);
	sim->late = calloc(options->n_ops, sizeof(*sim->late));
	assert_non_null(sim->late);
	sim->options = options;
	sim->history = history;
	history->n_ops = 0;
	while (n_idle < 50 * options->n_clients) {
		client = below(options->n_clients);
		n_idle = sim_step(sim, client) ? 0 : n_idle + 1;
		if (chance(options->solo_percent))
			while (sim->phases[client] != SIM_IDLE)
				sim_step(sim, client);
		if (sim->n_late && chance(5)) {
			size_t i = below((uint32_t)sim->n_late);

			sim_apply(sim, &sim->late[i]);
			sim->late[i] = sim->late[--sim->n_late];
		}
	}
	free(sim->late);
	free(sim);
}

static const struct sim_options sim_table[] = {
	{200, 1, 2, 0, 0, 0},    {200, 1, 3, 0, 10, 50},    {300, 2, 4, 0, 5, 100},
	{400, 2, 8, 30, 2, 100}, {500, 8, 8, 0, 20, 50},    {1000, 16, 8, 50, 3, 100},
	{300, 1, 6, 0, 3, 100},  {1000, 4, 16, 80, 1, 100}, {200, 1, 4, 0, 40, 100},
};
#define SIM_TABLE_LEN (sizeof(sim_table) / sizeof(*sim_table))

static void
assert_good(const struct lin_history *history, struct lin_report *ret_report)
{
	int ret = lin_check(history, NULL, ret_report);

	if (ret != LIN_OK)
		lin_dump(history, ret_report, stderr);
	assert_int_equal(ret, LIN_OK);
}

static void
test_simulated(void **state)
{
	struct lin_report report;
	uint64_t n_steps = 0;
	size_t n_ops = 0, n_configs_max = 0;
	uint32_t i;

	for (i = 0; i < 100 * SIM_TABLE_LEN; i++) {
		simulate(*state, &sim_table[i % SIM_TABLE_LEN]);
		assert_good(*state, &report);
		n_steps += report.n_steps;
		n_ops += report.n_ops;
		if (n_configs_max < report.n_configs_max)
			n_configs_max = report.n_configs_max;
	}
	print_message("# %zu operations, %" PRIu64 " steps, at most %zu configurations\n", n_ops,
		      n_steps, n_configs_max);
}

/* The effort stays linear: 100,000 operations of 8 clients over 16 keys. */
static void
test_long(void **state)
{
	static const struct sim_options options[] = {
		{100000, 16, 8, 50, 0, 0}, {100000, 16, 8, 0, 0, 0}, {100000, 16, 8, 0, 1, 100}};
	struct lin_report report;
	size_t i;

	for (i = 0; i < sizeof(options) / sizeof(*options); i++) {
		simulate(*state, &options[i]);
		assert_good(*state, &report);
		print_message("# %zu operations, %" PRIu64 " steps, at most %zu configurations\n",
			      report.n_ops, report.n_steps, report.n_configs_max);
		assert_int_equal(report.n_keys, 16);
		assert_true(report.n_ops > 90000);
		assert_true(report.n_steps < (options[i].crash_percent ? 100 : 10) * report.n_ops);
	}
}

/* ---- One answer falsified ---- */

/* A write that has ended, and after it, and before `time`, another one: what it made is gone. */
static const struct lin_op *
find_overwritten(const struct lin_history *history, uint64_t key, int64_t time, bool by_delete)
{
	const struct lin_op *write, *end = history->ops + history->n_ops, *later;
	int tries;

	for (tries = 0; tries < 50; tries++) {
		write = history->ops + below((uint32_t)history->n_ops);
		if (write->key != key || write->result != LIN_DONE || !is_write(write) ||
		    write->kind == LIN_DELETE || write->kind == LIN_TOUCH)
			continue;
		for (later = history->ops; later < end; later++)
			if (later->key == key && later->result == LIN_DONE && is_write(later) &&
			    later->invoked > write->responded && later->responded < time &&
			    (later->kind == LIN_DELETE || !by_delete))
				return write;
	}
	return NULL;
}

/* Was the key there during the whole operation, beyond doubt? */
static bool
surely_present(const struct lin_history *history, const struct lin_op *op)
{
	const struct lin_op *end = history->ops + history->n_ops, *other, *write = NULL;

	for (other = history->ops; other < end; other++)
		if (other->key == op->key && other->result == LIN_DONE && is_write(other) &&
		    other->kind != LIN_DELETE && other->responded < op->invoked &&
		    (!write || other->invoked > write->invoked))
			write = other;
	for (other = history->ops; write && other < end; other++)
		if (other->key == op->key && other->kind == LIN_DELETE && is_write(other) &&
		    other->invoked < op->responded &&
		    (other->result == LIN_OPEN || other->responded > write->invoked))
			return false;
	return write != NULL;
}

/* Makes an operation read what can no longer be there. */
static bool
falsify_stale(const struct lin_history *history, struct lin_op *op, bool by_delete)
{
	const struct lin_op *old = find_overwritten(history, op->key, op->invoked, by_delete);

	if (!old || op->kind != LIN_GET || op->result == LIN_OPEN)
		return false;
	op->result = LIN_DONE;
	op->value = old->value;
	op->version = old->version;
	return true;
}

/* A cas that expected a version long gone says that it succeeded. */
static bool
falsify_cas(const struct lin_history *history, struct lin_op *op)
{
	const struct lin_op *old = find_overwritten(history, op->key, op->invoked, false);

	if (!old || op->kind != LIN_CAS || op->result == LIN_DONE || op->result == LIN_OPEN)
		return false;
	op->result = LIN_DONE;
	op->expected = old->version;
	return true;
}

/* The write says another version than readers saw, and no open write can have made that one. */
static bool
falsify_version(const struct lin_history *history, struct lin_op *op)
{
	const struct lin_op *end = history->ops + history->n_ops, *other;
	bool read = false;

	if (op->result != LIN_DONE || !is_write(op) || op->kind == LIN_DELETE)
		return false;
	for (other = history->ops; other < end; other++) {
		if (other->key == op->key && other->result == LIN_OPEN && other->version == 0)
			return false;
		read |= other->key == op->key && other->kind == LIN_GET &&
			other->result == LIN_DONE && other->version == op->version;
	}
	op->version |= UINT64_C(1) << 63;
	return read;
}

/* Changes an answer of this operation to one that must be wrong; false if there is none. */
static bool
falsify(const struct lin_history *history, struct lin_op *op, uint32_t how)
{
	switch (how) {
	case 0:
		op->value = UINT64_MAX; /* nobody's */
		return op->kind == LIN_GET && op->result == LIN_DONE;
	case 1:
		return falsify_stale(history, op, false);
	case 2:
		return op->result == LIN_NOT_FOUND && falsify_stale(history, op, true);
	case 3:
		if (op->result == LIN_OPEN || op->kind == LIN_PUT || op->kind == LIN_ADD ||
		    op->result == LIN_NOT_FOUND || !surely_present(history, op))
			return false;
		op->result = LIN_NOT_FOUND;
		return true;
	case 4:
		if (op->kind != LIN_ADD || op->result != LIN_EXISTS || !surely_present(history, op))
			return false;
		op->result = LIN_DONE;
		return true;
	case 5:
		return falsify_version(history, op);
	default:
		return falsify_cas(history, op);
	}
}
#define FALSIFY_COUNT 7

static void
test_falsified(void **state)
{
	struct lin_history *history = *state;
	uint32_t i, how, n_tried[FALSIFY_COUNT] = {0};
	struct lin_report report;

	for (i = 0; i < 60 * SIM_TABLE_LEN; i++) {
		simulate(history, &sim_table[i % SIM_TABLE_LEN]);
		for (how = 0; how < FALSIFY_COUNT; how++) {
			struct lin_op *op, saved;
			int tries = 0;
			bool false_now;

			do {
				op = history->ops + below((uint32_t)history->n_ops);
				saved = *op;
				false_now = falsify(history, op, how);
				if (!false_now)
					*op = saved;
			} while (!false_now && ++tries < 100);
			if (!false_now)
				continue;
			n_tried[how]++;
			if (lin_check(history, NULL, &report) != LIN_BAD)
				fail_msg("seed %" PRIu64
					 ", history %u, falsification %u of operation %td",
					 seed, i, how, op - history->ops);
			assert_int_equal(report.key, op->key);
			*op = saved;
		}
	}
	for (how = 0; how < FALSIFY_COUNT; how++) {
		print_message("# falsification %u: %u, all caught\n", how, n_tried[how]);
		assert_true(n_tried[how] > 50);
	}
}

/* Any change of any answer, whether it must be wrong or not: most are noticed. */
static void
test_falsified_anyhow(void **state)
{
	static const struct sim_options options = {1000, 4, 4, 50, 0, 0};
	struct lin_history *history = *state;
	uint32_t i, n_caught = 0, n_tried = 500;
	struct lin_report report;

	for (i = 0; i < n_tried; i++) {
		struct lin_op *op;

		simulate(history, &options);
		op = history->ops + below((uint32_t)history->n_ops);
		if (op->result != LIN_DONE)
			op->result = LIN_DONE;
		else if (op->kind == LIN_GET || op->kind == LIN_PUT)
			op->version ^= UINT64_C(1) << 40;
		else
			op->result = op->kind == LIN_ADD ? LIN_EXISTS : LIN_NOT_FOUND;
		n_caught += lin_check(history, NULL, &report) == LIN_BAD;
	}
	print_message("# %u of %u caught\n", n_caught, n_tried);
	assert_true(n_caught > n_tried * 8 / 10);
}

/* ---- Histories by hand ---- */

#define GOLDEN_OPS 8

struct golden {
	const char *name;
	int verdict;
	size_t blocked; /* the operation that cannot be placed */
	bool in_time;   /* bad only because of when things happened */
	struct lin_op ops[GOLDEN_OPS];
};

#define OP(k, r, inv, resp, val, ver, exp)                                                         \
	{                                                                                          \
		.key = 1, .kind = LIN_##k, .result = LIN_##r, .invoked = inv, .responded = resp,   \
		.value = val, .version = ver, .expected = exp, .client = 1                         \
	}
#define GET(inv, resp, val, ver) OP(GET, DONE, inv, resp, val, ver, 0)
#define MISS(inv, resp) OP(GET, NOT_FOUND, inv, resp, 0, 0, 0)
#define PUT(inv, resp, val, ver) OP(PUT, DONE, inv, resp, val, ver, 0)
#define ADD(inv, resp, val, ver) OP(ADD, DONE, inv, resp, val, ver, 0)
#define CAS(inv, resp, val, ver, exp) OP(CAS, DONE, inv, resp, val, ver, exp)
#define DEL(inv, resp) OP(DELETE, DONE, inv, resp, 0, 0, 0)
#define TOUCH(inv, resp, ver) OP(TOUCH, DONE, inv, resp, 0, ver, 0)
#define MAYBE(k, inv, val, ver, exp) OP(k, OPEN, inv, 0, val, ver, exp)

#define BAD(name, blocked, in_time, ...)                                                           \
	{                                                                                          \
		name, LIN_BAD, blocked, in_time,                                                   \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}
#define GOOD(name, ...)                                                                            \
	{                                                                                          \
		name, LIN_OK, 0, false,                                                            \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}

static const struct golden goldens[] = {
	BAD("stale read after an acknowledged write", 2, true, PUT(1, 2, 1, 11), PUT(3, 4, 2, 12),
	    GET(5, 6, 1, 11)),
	BAD("stale version of the right value", 2, true, PUT(1, 2, 1, 11), TOUCH(3, 4, 12),
	    GET(5, 6, 1, 11)),
	BAD("lost update", 3, true, PUT(1, 2, 1, 11), PUT(3, 4, 2, 12), PUT(5, 6, 3, 13),
	    GET(7, 8, 2, 12)),
	BAD("lost update under a slow reader", 4, true, PUT(1, 2, 1, 11), PUT(3, 6, 2, 12),
	    GET(4, 5, 2, 12), PUT(7, 8, 3, 13), GET(9, 10, 2, 12)),
	BAD("resurrected delete", 2, true, PUT(1, 2, 1, 11), DEL(3, 4), GET(5, 6, 1, 11)),
	BAD("two adds both done", 1, false, ADD(1, 4, 1, 11), ADD(2, 5, 2, 12)),
	BAD("cas twice on one version", 2, false, PUT(1, 2, 1, 11), CAS(3, 6, 2, 12, 11),
	    CAS(4, 7, 3, 13, 11)),
	BAD("cas over a version overwritten", 2, true, PUT(1, 2, 1, 11), PUT(3, 4, 2, 12),
	    CAS(5, 6, 3, 13, 11)),
	BAD("cas mismatch on the version that is there", 1, false, PUT(1, 2, 1, 11),
	    OP(CAS, MISMATCH, 3, 4, 2, 12, 11)),
	BAD("value never written", 1, false, PUT(1, 2, 1, 11), GET(1, 3, 7, 17)),
	BAD("value of a put of another version", 1, false, PUT(1, 2, 1, 11), GET(1, 3, 1, 12)),
	BAD("value read before it was asked for", 0, true, GET(1, 2, 1, 11), PUT(3, 4, 1, 11)),
	BAD("miss while present", 1, true, PUT(1, 2, 1, 11), MISS(3, 4)),
	BAD("miss while being overwritten", 2, true, PUT(1, 2, 1, 11), PUT(3, 9, 2, 12),
	    MISS(4, 5)),
	BAD("delete of nothing done", 2, false, PUT(1, 2, 1, 11), DEL(3, 6), DEL(4, 7)),
	BAD("replace of nothing done", 0, false, OP(REPLACE, DONE, 1, 2, 1, 11, 0)),
	BAD("touch of nothing done", 0, false, TOUCH(1, 2, 11)),
	BAD("add finds what is not there", 0, true, OP(ADD, EXISTS, 1, 2, 1, 11, 0),
	    PUT(3, 4, 2, 12)),
	BAD("two writes seen in two orders", 5, true, PUT(1, 9, 1, 11), PUT(1, 9, 2, 12),
	    GET(2, 3, 1, 11), GET(4, 5, 2, 12), GET(2, 3, 2, 12), GET(4, 5, 1, 11)),
	BAD("maybe observed, then unobserved", 3, true, PUT(1, 2, 1, 11), MAYBE(PUT, 3, 2, 0, 0),
	    GET(4, 5, 2, 12), GET(6, 7, 1, 11)),
	BAD("maybe observed before it was asked for", 0, true, GET(1, 2, 1, 11),
	    MAYBE(PUT, 3, 1, 0, 0)),
	BAD("maybe took effect twice", 3, true, MAYBE(PUT, 1, 1, 11, 0), GET(2, 3, 1, 11),
	    PUT(4, 5, 2, 12), GET(6, 7, 1, 11)),
	BAD("maybe delete seen, then undone", 3, true, PUT(1, 2, 1, 11), MAYBE(DELETE, 3, 0, 0, 0),
	    MISS(4, 5), GET(6, 7, 1, 11)),
	BAD("maybe add over a value that is there", 2, true, PUT(1, 2, 1, 11),
	    MAYBE(ADD, 3, 2, 0, 0), GET(4, 5, 2, 12)),
	BAD("maybe cas over another version", 3, true, PUT(1, 2, 1, 11), PUT(3, 4, 2, 12),
	    MAYBE(CAS, 5, 3, 13, 11), GET(6, 7, 3, 13)),
	BAD("one maybe, two versions", 2, false, MAYBE(PUT, 1, 1, 0, 0), GET(2, 3, 1, 11),
	    GET(4, 5, 1, 12)),
	BAD("one version of two maybes", 3, false, MAYBE(PUT, 1, 1, 0, 0), MAYBE(PUT, 1, 2, 0, 0),
	    GET(2, 3, 1, 11), GET(4, 5, 2, 11)),
	BAD("a version comes back by a maybe touch", 5, true, MAYBE(PUT, 1, 1, 0, 0),
	    MAYBE(TOUCH, 1, 0, 0, 0), MAYBE(TOUCH, 1, 0, 0, 0), GET(2, 3, 1, 11), GET(4, 5, 1, 12),
	    GET(6, 7, 1, 11)),
	BAD("a failed write is observed", 1, false, OP(PUT, FAILED, 1, 2, 1, 11, 0),
	    GET(3, 4, 1, 11)),
	BAD("one version given to two writes", 1, false, PUT(1, 2, 1, 11), PUT(3, 4, 2, 11)),
	BAD("put answers as it cannot", 0, false, OP(PUT, NOT_FOUND, 1, 2, 1, 11, 0)),

	GOOD("nothing", {.result = LIN_FAILED}),
	GOOD("one after another", MISS(1, 2), ADD(3, 4, 1, 11), CAS(5, 6, 2, 12, 11),
	     TOUCH(7, 8, 13), GET(9, 10, 2, 13), DEL(11, 12), MISS(13, 14)),
	GOOD("new value read before its writer answers", PUT(1, 2, 1, 11), PUT(3, 9, 2, 12),
	     GET(4, 5, 1, 11), GET(6, 7, 2, 12)),
	GOOD("answers at the moment of a question", PUT(1, 2, 1, 11), PUT(3, 4, 2, 12),
	     GET(4, 5, 1, 11)),
	GOOD("two adds, the later one first", OP(ADD, EXISTS, 1, 4, 1, 11, 0), ADD(2, 5, 2, 12)),
	GOOD("a miss between delete and put", PUT(1, 2, 1, 11), DEL(3, 9), PUT(3, 9, 2, 12),
	     MISS(4, 8), GET(10, 11, 2, 12)),
	GOOD("get without an answer", PUT(1, 2, 1, 11), MAYBE(GET, 1, 7, 17, 0)),
	GOOD("maybe never observed", PUT(1, 2, 1, 11), MAYBE(PUT, 3, 2, 0, 0), GET(4, 5, 1, 11),
	     GET(6, 7, 1, 11)),
	GOOD("maybe observed late", PUT(1, 2, 1, 11), MAYBE(PUT, 3, 2, 0, 0), GET(4, 5, 1, 11),
	     PUT(6, 7, 3, 13), GET(8, 9, 2, 12), CAS(10, 11, 4, 14, 12), GET(12, 13, 4, 14)),
	GOOD("maybe delete explains a miss", PUT(1, 2, 1, 11), MAYBE(DELETE, 3, 0, 0, 0),
	     GET(4, 5, 1, 11), MISS(6, 7), ADD(8, 9, 2, 12)),
	GOOD("maybe put between two deletes", PUT(1, 2, 1, 11), MAYBE(PUT, 3, 2, 0, 0), DEL(4, 5),
	     DEL(6, 7), MISS(8, 9)),
	GOOD("maybe touch gives a version", PUT(1, 2, 1, 11), MAYBE(TOUCH, 3, 0, 0, 0),
	     GET(4, 5, 1, 11), GET(6, 7, 1, 12)),
	GOOD("maybe cas and its rival", PUT(1, 2, 1, 11), MAYBE(CAS, 3, 2, 0, 11),
	     OP(CAS, MISMATCH, 4, 5, 3, 13, 11), GET(6, 7, 2, 12)),
	GOOD("versions not recorded", PUT(1, 2, 1, 0), GET(3, 4, 1, 0), TOUCH(5, 6, 0),
	     GET(7, 8, 1, 12), CAS(9, 10, 2, 0, 12)),
};
#define GOLDEN_LEN (sizeof(goldens) / sizeof(*goldens))

static size_t
golden_fill(struct lin_history *history, const struct golden *golden)
{
	size_t n;

	for (n = 0; n < GOLDEN_OPS && golden->ops[n].client; n++)
		;
	fill(history, golden->ops, n);
	return n;
}

static void
test_golden(void **state)
{
	struct lin_report report;
	size_t i;

	for (i = 0; i < GOLDEN_LEN; i++) {
		golden_fill(*state, &goldens[i]);
		if (lin_check(*state, NULL, &report) != goldens[i].verdict)
			fail_msg("%s", goldens[i].name);
		if (goldens[i].verdict == LIN_BAD && report.op != goldens[i].blocked)
			fail_msg("%s: operation %zu", goldens[i].name, report.op);
	}
}

/* The histories by hand are judged by brute force too, so that no mistake of ours is in them. */
static void
test_golden_by_brute_force(void **state)
{
	size_t i, n;

	for (i = 0; i < GOLDEN_LEN; i++) {
		n = golden_fill(*state, &goldens[i]);
		if (brute_check(goldens[i].ops, n) != (goldens[i].verdict == LIN_OK))
			fail_msg("%s", goldens[i].name);
	}
}

/* One that does not look must err on every bad history, one without a clock where it takes one. */
static void
test_golden_finds_mutants(void **state)
{
	struct lin_report report;
	size_t i;
	bool wrong;

	for (i = 0; i < GOLDEN_LEN; i++) {
		golden_fill(*state, &goldens[i]);
		wrong = always_ok_check(*state, NULL, &report) != goldens[i].verdict;
		if (wrong != (goldens[i].verdict == LIN_BAD))
			fail_msg("always_ok: %s", goldens[i].name);
		wrong = no_realtime_check(*state, NULL, &report) != goldens[i].verdict;
		if (wrong != goldens[i].in_time)
			fail_msg("no_realtime: %s", goldens[i].name);
	}
}

/* ---- The rest of the interface ---- */

static void
test_keys_apart(void **state)
{
	struct lin_op ops[] = {PUT(1, 2, 1, 11), GET(3, 9, 2, 12), PUT(1, 2, 2, 12),
			       GET(5, 6, 1, 11)};
	struct lin_report report;

	ops[2].key = ops[3].key = 2;
	fill(*state, ops, 4);
	assert_int_equal(lin_check(*state, NULL, &report), LIN_BAD);
	assert_int_equal(report.op, 3); /* of two bad keys, what went wrong first */
	assert_int_equal(report.key, 2);
	ops[1].key = 2;
	ops[3].key = 1;
	fill(*state, ops, 4);
	assert_good(*state, &report);
	assert_int_equal(report.n_keys, 2);
	assert_int_equal(report.n_ops, 4);
	ops[2].version = 11; /* on another key, but versions are unique for ever */
	ops[1].version = 11;
	fill(*state, ops, 4);
	assert_int_equal(lin_check(*state, NULL, &report), LIN_BAD);
	assert_int_equal(report.reason, LIN_REASON_VERSION_TWICE);
}

static void
test_invalid(void **state)
{
	struct lin_options options = {0, 1000};
	struct lin_op op = PUT(2, 1, 1, 11);
	struct lin_report report;

	fill(*state, &op, 1);
	assert_int_equal(lin_check(*state, NULL, &report), ERR_INVALID);
	op.responded = 2;
	op.kind = LIN_KIND_COUNT;
	fill(*state, &op, 1);
	assert_int_equal(lin_check(*state, NULL, &report), ERR_INVALID);
	op.kind = LIN_PUT;
	op.result = LIN_RESULT_COUNT;
	fill(*state, &op, 1);
	assert_int_equal(lin_check(*state, NULL, &report), ERR_INVALID);
	fill(*state, &op, 0);
	assert_good(*state, &report);
	assert_int_equal(report.n_keys, 0);
	assert_int_equal(lin_check(*state, &options, &report), ERR_INVALID);
}

/* Fourteen writers at once, then a reader: bounds are kept and named, and are not an answer. */
static void
test_undecided(void **state)
{
	struct lin_options options = {1000, 1000000};
	struct lin_op ops[30];
	struct lin_report report;
	uint32_t i;

	for (i = 0; i < 14; i++) {
		ops[2 * i] = (struct lin_op)PUT(1, 100 + i, 1 + i, 101 + i);
		ops[2 * i + 1] = (struct lin_op)GET(200 + i, 300 + i, 1 + i, 101 + i);
		ops[2 * i + 1].result = i == 7 ? LIN_DONE : LIN_FAILED;
	}
	ops[28] = (struct lin_op)PUT(1, 2, 50, 150);
	ops[28].key = 2;
	fill(*state, ops, 29);
	assert_good(*state, &report);
	assert_true(report.n_configs_max > options.max_configs);
	assert_int_equal(lin_check(*state, &options, &report), LIN_UNDECIDED);
	assert_int_equal(report.reason, LIN_REASON_CONFIGS);
	assert_int_equal(report.key, 1);
	assert_true(report.n_configs_max <= options.max_configs);
	options.max_configs = 1 << 20;
	options.max_steps = 1000;
	assert_int_equal(lin_check(*state, &options, &report), LIN_UNDECIDED);
	assert_int_equal(report.reason, LIN_REASON_STEPS);
	options.max_configs = 1000;
	options.max_steps = 1000000;
	ops[29] = (struct lin_op)MISS(3, 4); /* the other key is bad, and that is known */
	ops[29].key = 2;
	fill(*state, ops, 30);
	assert_int_equal(lin_check(*state, &options, &report), LIN_BAD);
	assert_int_equal(report.op, 29);
}

/* With more and more steps: nothing is decided; it is bad; it is known which answer makes it so. */
static void
test_explanation_takes_steps(void **state)
{
	const struct lin_op ops[] = {PUT(1, 2, 1, 11), PUT(3, 4, 2, 12), PUT(5, 6, 3, 13),
				     GET(7, 8, 1, 11)};
	struct lin_options options = {1000, 0};
	struct lin_report report;
	enum lin_reason last = LIN_REASON_NONE;
	uint32_t n_changes = 0;

	fill(*state, ops, 4);
	for (; options.max_steps < 100; options.max_steps++) {
		int ret = lin_check(*state, &options, &report);

		assert_int_equal(ret, report.reason == LIN_REASON_STEPS ? LIN_UNDECIDED : LIN_BAD);
		n_changes += report.reason != last;
		last = report.reason;
		if (last == LIN_REASON_AHEAD)
			assert_int_equal(report.op, 1); /* it overwrites what is going to be read */
	}
	assert_int_equal(n_changes, 3);
	assert_int_equal(last, LIN_REASON_PLACE);
	assert_int_equal(report.op, 3);
}

/* Hundreds of operations that never answered, on one key, with writes and reads going on. */
static void
test_many_open(void **state)
{
	static const struct sim_options options = {3000, 1, 4, 60, 25, 100};
	struct lin_history *history = *state;
	struct lin_report report;
	size_t i, n_open = 0;

	simulate(history, &options);
	for (i = 0; i < history->n_ops; i++)
		n_open += history->ops[i].result == LIN_OPEN;
	assert_good(history, &report);
	assert_true(n_open > 500);
	print_message("# %zu of %zu open, %" PRIu64 " steps, at most %zu configurations\n", n_open,
		      history->n_ops, report.n_steps, report.n_configs_max);
}

static void
assert_dumped(const struct lin_history *history, const struct lin_report *report, const char *what)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	lin_dump(history, report, out);
	fclose(out);
	if (!strstr(text, what))
		fail_msg("\"%s\" is not in\n%s", what, text);
	free(text);
}

static void
test_report(void **state)
{
	const struct lin_op ops[] = {PUT(1, 2, 0x1a, 0x11), PUT(3, 4, 0x2b, 0x12),
				     TOUCH(5, 6, 0x13), MAYBE(DELETE, 7, 0, 0, 0),
				     GET(8, 9, 0x1a, 0x11)};
	struct lin_report report;

	fill(*state, ops, 5);
	assert_int_equal(lin_check(*state, NULL, &report), LIN_BAD);
	assert_int_equal(report.reason, LIN_REASON_PLACE);
	assert_int_equal(report.op, 4);
	assert_int_equal(report.window_begin, 8);
	assert_int_equal(report.n_states, 1);
	assert_true(report.states[0].present && report.states[0].version_known);
	assert_int_equal(report.states[0].value, 0x2b);
	assert_int_equal(report.states[0].version, 0x13);
	assert_dumped(*state, &report, "key 0x1: operation 4 cannot be placed");
	assert_dumped(*state, &report, "\n    value 0x2b version 0x13\n");
	assert_dumped(*state, &report,
		      "    [1, 2] client 1: put value 0x1a -> done, version 0x11\n");
	assert_dumped(*state, &report,
		      "    [3, 4] client 1: put value 0x2b -> done, version 0x12\n");
	assert_dumped(*state, &report, "    [7, ...) client 1: delete -> open\n");
	assert_dumped(*state, &report,
		      " => [8, 9] client 1: get -> done, value 0x1a, version 0x11\n");
	fill(*state, ops, 4);
	assert_good(*state, &report);
	assert_dumped(*state, &report, "linearisable: 4 operations on 1 keys\n");
}

static void
test_numbers_of_librkv(void **state)
{
	(void)state;
	assert_int_equal(LIN_GET, RKV_OP_GET);
	assert_int_equal(LIN_PUT, RKV_OP_PUT);
	assert_int_equal(LIN_ADD, RKV_OP_ADD);
	assert_int_equal(LIN_REPLACE, RKV_OP_REPLACE);
	assert_int_equal(LIN_CAS, RKV_OP_CAS);
	assert_int_equal(LIN_DELETE, RKV_OP_DELETE);
	assert_int_equal(LIN_TOUCH, RKV_OP_TOUCH);
	assert_int_equal(LIN_KIND_COUNT, RKV_OP_COUNT);
	assert_int_equal(lin_result_of_status(RKV_OK), LIN_DONE);
	assert_int_equal(lin_result_of_status(RKV_NOT_FOUND), LIN_NOT_FOUND);
	assert_int_equal(lin_result_of_status(RKV_EXISTS), LIN_EXISTS);
	assert_int_equal(lin_result_of_status(RKV_MISMATCH), LIN_MISMATCH);
	assert_int_equal(lin_result_of_status(RKV_E_MAYBE), LIN_OPEN);
	assert_int_equal(lin_result_of_status(RKV_E_TIMEOUT), LIN_OPEN);
	assert_int_equal(lin_result_of_status(RKV_AGAIN), LIN_FAILED);
	assert_int_equal(lin_result_of_status(RKV_E_CONN), LIN_FAILED);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_golden),
		TEST(test_golden_by_brute_force),
		TEST(test_golden_finds_mutants),
		TEST(test_brute_force),
		TEST(test_brute_force_larger),
		TEST(test_simulated),
		TEST(test_long),
		TEST(test_falsified),
		TEST(test_falsified_anyhow),
		TEST(test_keys_apart),
		TEST(test_invalid),
		TEST(test_undecided),
		TEST(test_explanation_takes_steps),
		TEST(test_many_open),
		TEST(test_report),
		TEST(test_numbers_of_librkv),
	};

	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	return cmocka_run_group_tests_name("lin", tests, NULL, NULL);
}
