/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server's scrubber and sweeper, the real ones (server/scrub.c, expire.c, ...), in the
 * simulation: what they look at is memory, as a CPU does; others move between any two looks, and it
 * may stand still for a while; they change words on a connection of their own, and mark by a store.
 * They hold G like a session while they act on what they have read.
 *
 * Two passes begin when every connection is destroyed: behind them nothing may be left
 * (store_watch.c).
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/scrub.h"
#include "tests/sim/store_internal.h"

#define PAUSE_STAMPS 8u /* between two passes, at most */
#define STEP_BYTES 2048u
#define YIELD_PERCENT 20u
#define SLEEP_PERCENT 2u
#define CAS_SLEEP_PERCENT 20u /* for stamps: with a word in hand */

struct scrubber {
	struct scrub scrub;
	struct reach reach;
	struct world *w;
	struct fab_endpoint *ep;
	uint32_t key;
	uint64_t landing[2];
	uint64_t epoch; /* that all of this belongs to */
	uint64_t random;
};

static void
give_way(struct scrubber *s)
{
	struct world *w = s->w;
	if (store_chance(&s->random, SLEEP_PERCENT))
		sim_sleep(w->sim,
			  sim_now(w->sim) +
				  (int64_t)store_random(&s->random, (uint64_t)w->config->stamp_ns));
	else if (store_chance(&s->random, YIELD_PERCENT))
		sim_yield(w->sim);
}

static bool
is_over(const struct scrubber *s)
{
	return s->epoch != s->w->epoch;
}

/* ---- What the real ones reach the region with ---- */

/* Memory of another epoch stays where it was, and means nothing any more. */
static const void *
at(void *arg, uint64_t off, uint64_t len)
{
	struct scrubber *s = arg;
	assert(off + len <= s->w->layout.region_len);
	give_way(s);
	return s->w->memory + off;
}

static int64_t
wall_s(void *arg)
{
	struct scrubber *s = arg;
	return wall_now(s->w) / NS_OF_S + STORE_BEGIN_S;
}

/*
 * What the upkeep takes out of a slot: a tentative word, or that of a value that is over for all
 * clocks; and none that may have recurred since it was read.
 */
static void
check_word(struct scrubber *s, uint64_t off, uint64_t word)
{
	struct world *w = s->w;
	struct block_header h;
	if (is_over(s))
		return;
	stamps_expected(w, (unsigned)((off - w->layout.index_off) / 8), word);
	if (slot_state(word) != SLOT_COMMITTED || word_at(w, off) != word)
		return;
	memcpy(&h, w->memory + slot_block_off(word), sizeof(h));
	if (h.expiry == 0 || wall_s(s) <= (int64_t)h.expiry + LIMIT_SKEW_S)
		sim_fail(w->sim, "a value is swept before its time");
}

/* A loop-back CAS, [ONE-AGENT]; behind it a READ, so that everybody sees what it did. */
static int
cas(void *arg, uint64_t off, uint64_t expect, uint64_t swap, uint64_t *ret_found)
{
	struct scrubber *s = arg;
	uint64_t stamp_ns = (uint64_t)s->w->config->stamp_ns;
	struct fab_op ops[2] = {
		{.kind = FAB_CAS,
		 .roff = off,
		 .piece = {{&s->landing[0], 8, s->key}},
		 .expect = expect,
		 .swap = swap},
		{.kind = FAB_READ, .roff = off, .piece = {{&s->landing[1], 8, s->key}}},
	};
	struct fab_done done;
	give_way(s);
	if (store_chance(&s->random, CAS_SLEEP_PERCENT))
		sim_sleep(s->w->sim,
			  sim_now(s->w->sim) + (int64_t)store_random(&s->random, 8 * stamp_ns));
	check_word(s, off, expect);
	if (is_over(s) || fab_post(s->ep, ops, 2, NULL) != 0)
		return ERR_CONN;
	while (fab_poll(s->ep, &done, 1) == 0)
		fab_wait(s->ep, sim_now(s->w->sim) + s->w->config->stamp_ns);
	if (done.status != 0 || is_over(s))
		return ERR_CONN;
	*ret_found = s->landing[0];
	return 0;
}

static void
mark(void *arg, uint64_t block_off, uint32_t tag)
{
	struct scrubber *s = arg;
	uint8_t entry = layout_mark(tag);
	give_way(s);
	if (is_over(s))
		return;
	store_trace(s->w, "scrubber: marks the block at %x, tag %u", (unsigned)block_off, tag);
	watch_marked(s->w, block_off, tag);
	sim_server_store(s->w->sim, s->w->server, layout_map_off(&s->w->layout, block_off), &entry,
			 1);
}

static void
hold(void *arg)
{
	struct scrubber *s = arg;
	if (!is_over(s))
		s->w->scrubber_a = s->w->newest;
}

static void
let_go(void *arg)
{
	struct scrubber *s = arg;
	if (!is_over(s))
		s->w->scrubber_a = UINT64_MAX;
}

static uint64_t
moment(void *arg)
{
	struct scrubber *s = arg;
	return s->w->newest + 1;
}

static bool
has_passed(void *arg, uint64_t stamp)
{
	struct scrubber *s = arg;
	return server_g(s->w) > stamp;
}

/* ---- Steps ---- */

static void
begin_epoch(struct scrubber *s)
{
	static const struct reach_calls calls = {at,     cas,        mark,   hold, let_go,
						 moment, has_passed, wall_s, NULL};
	struct fab_region *region;
	scrub_destroy(&s->scrub);
	s->epoch = s->w->epoch;
	s->reach = (struct reach){.layout = &s->w->layout, .calls = &calls, .arg = s};
	if (scrub_create(&s->scrub, &s->reach) != 0 ||
	    watch_region_open(s->w, s->w->server_fab, &region) != 0 ||
	    fab_connect(region, NULL, 4, 0, &s->ep) != 0)
		sim_fail(s->w->sim, "the scrubber does not reach the region");
}

static void
count(struct world *w, enum store_event event, uint64_t n)
{
	while (n--)
		store_count(w, event);
}

static void
step(struct scrubber *s)
{
	struct scrub_counts before = s->scrub.counts;
	scrub_told(&s->scrub, s->w->n_sessions_ended, s->w->n_sessions_ended);
	if (!scrub_step(&s->scrub, STEP_BYTES))
		sim_sleep(s->w->sim, sim_now(s->w->sim) + s->w->config->stamp_ns / 2);
	const struct scrub_counts *now = &s->scrub.counts;
	uint64_t n_kills = now->n_kills - before.n_kills;
	count(s->w, STORE_SCRUB_KILL, n_kills);
	count(s->w, STORE_SCRUB_MARK, now->n_marked - before.n_marked - n_kills);
	count(s->w, STORE_SCRUB_EXPIRE, now->n_expired - before.n_expired);
	count(s->w, STORE_SCRUB_HURRY, now->n_hurried - before.n_hurried);
}

/* To the end of the pass that is under way, if any, and of n_more. */
static void
pass(struct scrubber *s, unsigned n_more)
{
	if (is_over(s))
		begin_epoch(s);
	uint64_t n = s->scrub.counts.n_passes + n_more;
	do
		step(s);
	while (!is_over(s) && s->scrub.counts.n_passes < n);
}

static void
scrub_main(void *arg)
{
	struct scrubber *s = arg;
	struct world *w = s->w;
	while (w->n_ended < w->n_peers) {
		uint64_t pause =
			store_random(&s->random, PAUSE_STAMPS * (uint64_t)w->config->stamp_ns);
		sim_sleep(w->sim, sim_now(w->sim) + (int64_t)pause);
		pass(s, 1);
	}
	for (unsigned i = 0; i < w->n_peers; i++)
		server_give_up(w, &w->peer[i]);
	w->swept_s = wall_s(s);
	pass(s, 2);
	w->is_scrubbed = true;
}

void
scrub_start(struct world *w)
{
	struct scrubber *s = calloc(1, sizeof(*s));
	assert(s);
	w->scrubber = s;
	s->w = w;
	s->random = model_mix(w->config->seed, 2000);
	fab_register(w->server_fab, s->landing, sizeof(s->landing), &s->key);
	sim_spawn(w->sim, w->server_fab, scrub_main, s);
}

void
scrub_stop(struct world *w)
{
	if (!w->scrubber)
		return;
	scrub_destroy(&w->scrubber->scrub);
	free(w->scrubber);
}
