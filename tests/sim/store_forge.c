/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Words that no client has written: they stand in empty slots for a while, and name places outside
 * of the heap, across the end of a chunk, or of no length. Clients must not let a work request
 * follow them, [RANGE]; an operation that needs to know what is there ends with its deadline.
 */
#include <inttypes.h>

#include "tests/sim/store_internal.h"

#define STAY_STAMPS 6u /* at most */

static uint64_t
draw_word(struct world *w)
{
	uint64_t *r = &w->random;
	const struct layout *l = &w->layout;
	uint64_t heap_len = l->n_chunks * l->chunk_size;
	enum slot_state state = store_chance(r, 60) ? SLOT_COMMITTED : SLOT_TENTATIVE;
	uint32_t tag = (uint32_t)store_random(r, SLOT_TAG_COUNT);
	uint32_t fingerprint = (uint32_t)store_random(r, UINT64_C(1) << LIMIT_FINGERPRINT_BITS);
	uint32_t any_size = 1 + (uint32_t)store_random(r, (1u << SLOT_SIZE_BITS) - 1);
	uint64_t any_off = store_random(r, UINT64_C(1) << SLOT_OFFSET_BITS) * LIMIT_GRANULE;
	switch (store_random(r, 4)) {
	case 0: /* anywhere */
		return slot_make(any_off, any_size, tag, fingerprint, state);
	case 1: /* before the heap */
		return slot_make(any_off % l->heap_off, any_size, tag, fingerprint, state);
	case 2: /* longer than any chunk */
		return slot_make(l->heap_off + any_off % heap_len,
				 slot_size_code((uint32_t)(2 * l->chunk_size / LIMIT_GRANULE)) +
					 any_size % 16,
				 tag, fingerprint, state);
	default: /* across the end of a chunk */
		return slot_make(l->heap_off + l->chunk_size - LIMIT_GRANULE, 2 + any_size % 32,
				 tag, fingerprint, state);
	}
}

static bool
cas(struct world *w, struct fab_endpoint *ep, uint32_t key, uint64_t *landing, uint64_t off,
    uint64_t expect, uint64_t swap)
{
	struct fab_op op = {.kind = FAB_CAS,
			    .roff = off,
			    .piece = {{landing, 8, key}},
			    .expect = expect,
			    .swap = swap};
	struct fab_done done;
	if (fab_post(ep, &op, 1, NULL) != 0)
		return false;
	while (fab_poll(ep, &done, 1) == 0)
		fab_wait(ep, sim_now(w->sim) + w->config->stamp_ns);
	return done.status == 0 && *landing == expect;
}

static void
rest(struct world *w)
{
	int64_t ns = (int64_t)store_random(&w->random, STAY_STAMPS * (uint64_t)w->config->stamp_ns);
	sim_sleep(w->sim, sim_now(w->sim) + ns);
}

/* In the first empty slot from one on. */
static void
forge(struct world *w, struct fab_endpoint *ep, uint32_t key, uint64_t *landing)
{
	unsigned n = (unsigned)w->layout.n_groups * GROUP_WORDS;
	unsigned from = (unsigned)store_random(&w->random, n);
	for (unsigned k = 0; k < n; k++) {
		unsigned i = (from + k) % n;
		uint64_t off = w->layout.index_off + 8 * (uint64_t)i;
		uint64_t empty = word_at(w, off);
		uint64_t word = draw_word(w);
		if (i % (LAYOUT_BUCKET_LEN / 8) == 0 || !slot_is_empty(empty) ||
		    layout_block_in_range(&w->layout, word))
			continue;
		if (!cas(w, ep, key, landing, off, empty, word))
			return;
		store_count(w, STORE_FORGE);
		rest(w);
		cas(w, ep, key, landing, off, word, slot_with_state(word, SLOT_DELETED));
		return;
	}
}

static void
forge_main(void *arg)
{
	struct world *w = arg;
	static uint64_t landing;
	struct fab_region *region;
	struct fab_endpoint *ep;
	uint32_t key;
	uint64_t epoch = w->epoch;
	fab_register(w->server_fab, &landing, sizeof(landing), &key);
	if (watch_region_open(w, w->server_fab, &region) != 0 ||
	    fab_connect(region, NULL, 4, 0, &ep) != 0)
		sim_fail(w->sim, "the server does not reach itself");
	for (unsigned i = 0; i < w->config->n_forged && epoch == w->epoch; i++) {
		rest(w);
		forge(w, ep, key, &landing);
	}
}

void
forge_start(struct world *w)
{
	sim_spawn(w->sim, w->server_fab, forge_main, w);
}
