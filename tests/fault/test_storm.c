/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Seeded storms: a few sessions run mixed operations on a few keys, in a small region, while
 * connections are cut anywhere, completions are late, sessions die, leave and come, and stamps go
 * on as a server would issue them. Afterwards the history of every key must be linearisable
 * (tests/sim/lin.h), and the region in order. RKV_SEED=n runs that seed alone.
 *
 * Every other storm is calm: no connection is lost, and a chunk holds but one value, so that blocks
 * come round soon, and in a build with few tags (make TINY=tags) words too, [STAMP], [WRAP].
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/err.h"
#include "tests/fault/harness.h"
#include "tests/sim/lin.h"

#define N_SEEDS 150u
#define N_STEPS 1500u
#define N_SESSIONS 3u
#define N_SLOTS 4u /* requests in flight of one session */
#define N_KEYS 4u
#define VALUE_MAX 3000u
#define HISTORY_MAX (N_STEPS + 1)

struct slot {
	struct rkv_request r;
	struct lin_op lin;
	bool is_busy;
	unsigned char value[VALUE_MAX];
	unsigned char buf[VALUE_MAX + 200];
};

struct player {
	struct rkv_session *s;
	uint64_t a; /* announced last */
	struct slot slot[N_SLOTS];
	uint64_t version[N_KEYS]; /* seen last */
};

struct storm {
	struct world *w;
	uint64_t seed;
	bool is_calm;
	int64_t step;
	uint64_t n_values;
	char key[N_KEYS][32];
	struct player player[N_SESSIONS];
	struct lin_op history[HISTORY_MAX];
	size_t n_history;
};

static uint32_t
draw(struct storm *st, uint32_t n)
{
	st->seed = st->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(st->seed >> 33) % n;
}

/* ---- Requests ---- */

static void
submit(struct storm *st, struct player *p, struct slot *slot)
{
	static const enum rkv_op ops[] = {RKV_OP_GET,     RKV_OP_GET,   RKV_OP_PUT,   RKV_OP_PUT,
					  RKV_OP_PUT,     RKV_OP_ADD,   RKV_OP_ADD,   RKV_OP_CAS,
					  RKV_OP_REPLACE, RKV_OP_TOUCH, RKV_OP_DELETE};
	uint32_t key = draw(st, N_KEYS);
	enum rkv_op op = ops[draw(st, sizeof(ops) / sizeof(ops[0]))];
	if (op == RKV_OP_CAS && p->version[key] == 0)
		op = RKV_OP_DELETE;
	uint64_t value = ++st->n_values;
	size_t len = st->is_calm || draw(st, 4) == 0 ? VALUE_MAX : sizeof(value);
	bool stores = op != RKV_OP_GET && op != RKV_OP_DELETE && op != RKV_OP_TOUCH;
	memset(slot->value, (int)value, len);
	memcpy(slot->value, &value, sizeof(value));
	slot->r = (struct rkv_request){
		.op = op,
		.key = st->key[key],
		.key_len = strlen(st->key[key]),
		.value = slot->value,
		.value_len = stores ? len : 0,
		.buf = slot->buf,
		.buf_len = sizeof(slot->buf),
		.version = p->version[key],
		.options = {.timeout_ms = 1 + draw(st, 20)},
		.user = slot,
	};
	slot->lin = (struct lin_op){
		.key = key,
		.value = stores ? value : 0,
		.expected = op == RKV_OP_CAS ? p->version[key] : 0,
		.invoked = st->step,
		.client = (uint32_t)(p - st->player),
		.kind = (uint8_t)op,
	};
	slot->is_busy = true;
	assert_int_equal(rkv_submit(p->s, &slot->r), 0);
}

/* A value that came back is whole: an id, and, if it is a long one, its last byte all along. */
static uint64_t
value_of(const struct slot *slot)
{
	uint64_t value;
	size_t len = slot->r.item.value_len;
	assert_true(len == sizeof(value) || len == VALUE_MAX);
	memcpy(&value, slot->buf, sizeof(value));
	for (size_t i = sizeof(value); i < len; i++)
		assert_int_equal(slot->buf[i], (unsigned char)value);
	return value;
}

static void
note(struct storm *st, struct player *p, struct slot *slot)
{
	struct lin_op *lin = &slot->lin;
	int status = slot->r.status;
	assert_true(slot->is_busy);
	slot->is_busy = false;
	/* Nothing else may happen here: no byte is forged, no slot runs short. */
	assert_true(status != RKV_E_CORRUPT && status != RKV_E_INVALID &&
		    status != RKV_E_TOO_SMALL);
	lin->result = (uint8_t)(status == RKV_AGAIN ? LIN_FAILED : lin_result_of_status(status));
	lin->responded = st->step;
	if (lin->result == LIN_DONE && lin->kind != LIN_DELETE) {
		lin->version = slot->r.item.version;
		p->version[lin->key] = lin->version;
	}
	if (lin->result == LIN_DONE && lin->kind == LIN_GET)
		lin->value = value_of(slot);
	assert_true(st->n_history < HISTORY_MAX);
	st->history[st->n_history++] = *lin;
}

static void
poll_some(struct storm *st, struct player *p)
{
	struct rkv_request *done[N_SLOTS];
	int n = rkv_poll(p->s, done, N_SLOTS, 0);
	assert_true(n >= 0);
	for (int i = 0; i < n; i++)
		note(st, p, done[i]->user);
	if (n == 0 && p->s->n_in_flight)
		fab_pause(st->w->fab, fab_now(st->w->fab) + 20000);
}

/* ---- What happens to them ---- */

static void
open_player(struct storm *st, struct player *p)
{
	memset(p, 0, sizeof(*p));
	p->s = world_session(st->w);
	p->a = session_announce(p->s);
}

/* Closes: what is in flight ends first, and nobody polls it. */
static void
close_player(struct storm *st, struct player *p)
{
	st->w->is_down = false;
	world_serve(st->w);
	rkv_session_close(p->s);
	for (unsigned i = 0; i < N_SLOTS; i++)
		if (p->slot[i].is_busy)
			note(st, p, &p->slot[i]);
}

/* A keepalive and its answer, for all; G is what the living sessions allow, [STAMP]. */
static void
issue_stamp(struct storm *st)
{
	struct stamps *stamps = &st->w->client.stamps;
	uint64_t newest = atomic_load(&stamps->newest), g = newest;
	atomic_fetch_add(&stamps->asked, 1);
	for (unsigned i = 0; i < N_SESSIONS; i++) {
		struct player *p = &st->player[i];
		if (atomic_load(&p->s->port.state) == LINK_UP) {
			uint64_t a = session_announce(p->s);
			assert_true(a >= p->a || p->s->n_links > 1);
			p->a = a;
		}
		if (p->a < g)
			g = p->a;
	}
	newest += 1 + draw(st, LIMIT_WORD_STAMPS);
	world_stamp(st->w, newest, g);
	atomic_store(&stamps->answered, atomic_load(&stamps->asked));
}

static void
upkeep(struct player *p)
{
	if (!session_take(p->s))
		return;
	if (atomic_load(&p->s->port.state) == LINK_UP)
		session_maintain(p->s, fab_now(p->s->client->fab) + 1000000);
	session_release(p->s);
}

static void
take_step(struct storm *st)
{
	struct world *w = st->w;
	struct player *p = &st->player[draw(st, N_SESSIONS)];
	struct slot *slot = &p->slot[draw(st, N_SLOTS)];
	uint32_t what = draw(st, 100);
	if (what < 40 && !slot->is_busy)
		submit(st, p, slot);
	else if (what < 80)
		poll_some(st, p);
	else if (what < 84 && !st->is_calm)
		fault_cut(w->fab, 1 + draw(st, 6), draw(st, 6));
	else if (what < 86)
		fault_delay(w->fab, draw(st, 4));
	else if (what < 88)
		w->relink = draw(st, 6) ? RELINK_SAME : RELINK_SERIAL;
	else if (what < 90)
		w->is_down = !st->is_calm && draw(st, 3) == 0;
	else if (what < 96)
		issue_stamp(st);
	else if (what < 99)
		upkeep(p);
	else if (draw(st, 3) == 0) {
		close_player(st, p);
		open_player(st, p);
	}
	world_serve(w);
}

static void
check_history(struct storm *st, uint64_t seed)
{
	struct lin_history *history;
	struct lin_report report;
	assert_int_equal(lin_history_new(&history), 0);
	assert_int_equal(lin_history_add(history, st->history, st->n_history), 0);
	int rc = lin_check(history, NULL, &report);
	if (rc == LIN_BAD) {
		print_message("# seed %" PRIu64 "\n", seed);
		lin_dump(history, &report, stderr);
	}
	assert_int_equal(rc, LIN_OK);
	lin_history_free(history);
}

static void
run_storm(uint64_t seed)
{
	const struct world_shape shape = {.n_groups = 1,
					  .chunk_size = 4096,
					  .n_chunks = 10 + seed % 3 * 10,
					  .cache_bytes = seed % 4 ? 8192 : 0};
	static struct storm st;
	unsigned number = 0;
	memset(&st, 0, sizeof(st));
	st.seed = seed;
	st.is_calm = seed % 2 == 0;
	st.w = world_open(&shape);
	st.w->client.options.strict_insert = seed % 5 == 0;
	strcpy(st.key[0], "key");
	strcpy(st.key[1], "other");
	world_twin(st.w, st.key[0], &number, st.key[2]);
	world_twin(st.w, st.key[0], &number, st.key[3]);
	for (unsigned i = 0; i < N_SESSIONS; i++)
		open_player(&st, &st.player[i]);
	for (st.step = 0; st.step < N_STEPS; st.step++)
		take_step(&st);
	fault_cut(st.w->fab, 0, 0);
	for (unsigned i = 0; i < N_SESSIONS; i++)
		close_player(&st, &st.player[i]);
	world_check(st.w);
	check_history(&st, seed);
	world_close(st.w);
}

static void
test_storms(void **state)
{
	(void)state;
	const char *only = getenv("RKV_SEED");
	uint64_t first = only ? strtoull(only, NULL, 0) : 1;
	for (uint64_t seed = first; seed < first + (only ? 1 : N_SEEDS); seed++)
		run_storm(seed);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_storms),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
