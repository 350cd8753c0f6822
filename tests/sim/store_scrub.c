/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server's scrubber: mends what dead clients and lost connections left behind, [SCRUB]. A round
 * is
 *
 *   look   at every block: a valid header that is not marked is suspected; at tentative words
 *   a stamp passes: whoever wrote such a header has published the block, marked it, or is dead
 *   scan   the index: what a slot refers to is in use. A tentative word that is still there is
 *          nobody's any more: it is killed, as any client may, and its block marked, [I6]
 *   a stamp passes: whoever took the block out of a slot before has marked it, or is dead
 *   mark   what has the very same header, and is still not marked
 *
 * It reads memory as a CPU does, others move between any two looks, and it holds G like a session
 * while it acts on words. Its last round begins when every connection is destroyed: behind it
 * nothing may be left (store_watch.c).
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/store_internal.h"

#define PAUSE_STAMPS 8u /* between two rounds, at most */
#define YIELD_PERCENT 20u
#define SLEEP_PERCENT 2u

struct suspect {
	uint64_t off;
	struct block_header header;
	bool is_referred;
};

struct scrubber {
	struct suspect *suspects;
	unsigned n_suspects;
	uint64_t *tentative; /* by index word, as looked at; 0: it was none */
	struct fab_endpoint *ep;
	uint32_t key;
	uint64_t landing[2];
	uint64_t epoch; /* that the round belongs to */
	uint64_t random;
};

static void
give_way(struct world *w)
{
	uint64_t *random = &w->scrubber->random;
	if (store_chance(random, SLEEP_PERCENT))
		sim_sleep(w->sim, sim_now(w->sim) + (int64_t)store_random(
							    random, (uint64_t)w->config->stamp_ns));
	else if (store_chance(random, YIELD_PERCENT))
		sim_yield(w->sim);
}

static bool
is_over(const struct world *w)
{
	return w->scrubber->epoch != w->epoch;
}

/* Waits until the stamp of this moment has passed. */
static void
await_stamp(struct world *w)
{
	uint64_t moment = w->newest;
	while (!is_over(w) && server_g(w) <= moment)
		sim_sleep(w->sim, sim_now(w->sim) + w->config->stamp_ns / 2);
}

/* ---- Blocks ---- */

static bool
is_unmarked(const struct world *w, uint64_t off, const struct block_header *h)
{
	uint8_t entry = w->memory[layout_map_off(&w->layout, off)] & LAYOUT_MARK_MASK;
	return entry == layout_mark(block_tag(h) + SLOT_TAG_COUNT - 1);
}

static bool
is_valid(const struct world *w, uint64_t off, uint32_t block_len)
{
	struct block_header h;
	const unsigned char *bytes = w->memory + off;
	memcpy(&h, bytes, sizeof(h));
	if (!block_lengths_fit(&h, block_len) || block_tag(&h) >= SLOT_TAG_COUNT)
		return false;
	const unsigned char *key = bytes + BLOCK_HEADER_LEN;
	struct hash hash = hash_key(key, h.key_len, w->layout.hash_seed);
	uint64_t digest = block_digest(&hash, key + h.key_len, h.value_len);
	return h.checksum == block_checksum(block_word(off, &h, &hash), digest, &h);
}

static void
look_at_chunk(struct world *w, uint64_t chunk)
{
	struct scrubber *s = w->scrubber;
	uint64_t desc = word_at(w, layout_desc_off(&w->layout, chunk));
	if (chunk_state(desc) == CHUNK_FREE || chunk_class(desc) > layout_max_class(&w->layout))
		return;
	uint32_t block_len = layout_class_granules(chunk_class(desc)) * LIMIT_GRANULE;
	uint32_t n = layout_blocks_per_chunk(&w->layout, chunk_class(desc));
	for (uint32_t i = 0; i < n && !is_over(w); i++) {
		struct suspect suspect = {.off = layout_chunk_off(&w->layout, chunk) +
						 (uint64_t)i * block_len};
		memcpy(&suspect.header, w->memory + suspect.off, sizeof(suspect.header));
		if (!is_unmarked(w, suspect.off, &suspect.header))
			continue;
		give_way(w);
		if (!is_over(w) && is_valid(w, suspect.off, block_len))
			s->suspects[s->n_suspects++] = suspect;
	}
}

static void
mark(struct world *w, uint64_t off, uint32_t tag)
{
	uint8_t entry = layout_mark(tag);
	store_trace(w, "scrubber: marks the block at %x, tag %u", (unsigned)off, tag);
	watch_marked(w, off, tag);
	sim_server_store(w->sim, w->server, layout_map_off(&w->layout, off), &entry, 1);
}

static void
mark_garbage(struct world *w)
{
	struct scrubber *s = w->scrubber;
	for (unsigned i = 0; i < s->n_suspects; i++) {
		const struct suspect *suspect = &s->suspects[i];
		give_way(w);
		if (is_over(w))
			return;
		if (suspect->is_referred)
			continue;
		if (memcmp(w->memory + suspect->off, &suspect->header, sizeof(suspect->header)) !=
		    0)
			continue;
		if (!is_unmarked(w, suspect->off, &suspect->header))
			continue;
		store_count(w, STORE_SCRUB_MARK);
		mark(w, suspect->off, block_tag(&suspect->header));
	}
}

/* ---- Words ---- */

static uint64_t
off_of_slot(const struct world *w, unsigned i)
{
	return w->layout.index_off + 8 * (uint64_t)i;
}

/* A loop-back CAS, [ONE-AGENT]; behind it a READ, so that everybody sees what it did. */
static bool
cas(struct world *w, uint64_t off, uint64_t expect, uint64_t swap)
{
	struct scrubber *s = w->scrubber;
	struct fab_op ops[2] = {
		{.kind = FAB_CAS,
		 .roff = off,
		 .piece = {{&s->landing[0], 8, s->key}},
		 .expect = expect,
		 .swap = swap},
		{.kind = FAB_READ, .roff = off, .piece = {{&s->landing[1], 8, s->key}}},
	};
	struct fab_endpoint *ep = s->ep;
	struct fab_done done;
	if (fab_post(ep, ops, 2, NULL) != 0)
		return false;
	while (fab_poll(ep, &done, 1) == 0)
		fab_wait(ep, sim_now(w->sim) + w->config->stamp_ns);
	return done.status == 0 && s->landing[0] == expect;
}

static void
kill_word(struct world *w, unsigned i, uint64_t word)
{
	bool won = cas(w, off_of_slot(w, i), word, slot_with_state(word, SLOT_DELETED));
	if (!won || is_over(w))
		return;
	store_count(w, STORE_SCRUB_KILL);
	mark(w, slot_block_off(word), slot_tag(word));
}

static bool
is_tentative(const struct world *w, unsigned i, uint64_t word)
{
	return i % (LAYOUT_BUCKET_LEN / 8) != 0 && word != 0 &&
	       slot_state(word) == SLOT_TENTATIVE && layout_block_in_range(&w->layout, word);
}

static void
look_at_words(struct world *w)
{
	for (unsigned i = 0; i < w->layout.n_groups * GROUP_WORDS && !is_over(w); i++) {
		uint64_t word = word_at(w, off_of_slot(w, i));
		w->scrubber->tentative[i] = is_tentative(w, i, word) ? word : 0;
		give_way(w);
	}
}

static void
note_referred(struct world *w, uint64_t word)
{
	struct scrubber *s = w->scrubber;
	if (!slot_refers(word) || !layout_block_in_range(&w->layout, word)) /* [RANGE] */
		return;
	for (unsigned k = 0; k < s->n_suspects; k++)
		if (s->suspects[k].off == slot_block_off(word))
			s->suspects[k].is_referred = true;
}

static void
scan(struct world *w)
{
	struct scrubber *s = w->scrubber;
	w->scrubber_a = w->newest;
	for (unsigned i = 0; i < w->layout.n_groups * GROUP_WORDS && !is_over(w); i++) {
		uint64_t word = word_at(w, off_of_slot(w, i));
		note_referred(w, word);
		if (word != s->tentative[i])
			s->tentative[i] = 0;
		give_way(w);
	}
	for (unsigned i = 0; i < w->layout.n_groups * GROUP_WORDS && !is_over(w); i++)
		if (s->tentative[i] != 0) {
			give_way(w);
			kill_word(w, i, s->tentative[i]);
		}
	w->scrubber_a = UINT64_MAX;
}

/* ---- Rounds ---- */

static void
reach_region(struct world *w)
{
	struct fab_region *region;
	struct scrubber *s = w->scrubber;
	s->epoch = w->epoch;
	if (watch_region_open(w, w->server_fab, &region) != 0 ||
	    fab_connect(region, NULL, 4, 0, &s->ep) != 0)
		sim_fail(w->sim, "the scrubber does not reach the region");
}

static void
scrub(struct world *w)
{
	struct scrubber *s = w->scrubber;
	if (is_over(w))
		reach_region(w);
	s->n_suspects = 0;
	for (uint64_t i = 0; i < w->layout.n_chunks; i++)
		look_at_chunk(w, i);
	look_at_words(w);
	await_stamp(w);
	scan(w);
	await_stamp(w);
	mark_garbage(w);
}

static void
scrub_main(void *arg)
{
	struct world *w = arg;
	bool is_last = false;
	while (!is_last) {
		uint64_t pause = store_random(&w->scrubber->random,
					      PAUSE_STAMPS * (uint64_t)w->config->stamp_ns);
		sim_sleep(w->sim, sim_now(w->sim) + (int64_t)pause);
		is_last = w->n_ended == w->n_peers;
		for (unsigned i = 0; is_last && i < w->n_peers; i++)
			server_give_up(w, &w->peer[i]);
		scrub(w);
	}
	w->is_scrubbed = true;
}

void
scrub_start(struct world *w)
{
	struct scrubber *s = calloc(1, sizeof(*s));
	assert(s);
	w->scrubber = s;
	s->random = model_mix(w->config->seed, 2000);
	s->suspects = calloc(w->layout.n_chunks * w->layout.chunk_size / LIMIT_GRANULE,
			     sizeof(*s->suspects));
	s->tentative = calloc(w->layout.n_groups * GROUP_WORDS, sizeof(*s->tentative));
	assert(s->suspects && s->tentative);
	fab_register(w->server_fab, s->landing, sizeof(s->landing), &s->key);
	sim_spawn(w->sim, w->server_fab, scrub_main, w);
}

void
scrub_stop(struct world *w)
{
	if (!w->scrubber)
		return;
	free(w->scrubber->suspects);
	free(w->scrubber->tentative);
	free(w->scrubber);
}
