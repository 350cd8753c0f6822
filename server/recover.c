/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Mending a region, recover.h: one pass over the index, one over the chunk table. What a slot says
 * is checked against the block, which names itself, [SELF-ID]; what the chunk table and the free
 * map say is not believed, but made to fit the blocks that count.
 */
#include "server/recover.h"

#include <stdlib.h>
#include <string.h>

#include "common/err.h"

struct recovery {
	unsigned char *base;
	const struct layout *layout;
	unsigned char *is_settled; /* a bit a chunk: its class is that of a block that counts */
	struct recover_counts counts;
};

static uint64_t *
word_at(const struct recovery *r, uint64_t off)
{
	return (uint64_t *)(void *)(r->base + off);
}

/* The header of the block that a committed word refers to, if it validates; else NULL. */
static const struct block_header *
valid_block(const struct recovery *r, uint64_t word, struct hash *ret_hash)
{
	if (slot_state(word) != SLOT_COMMITTED || !layout_block_in_range(r->layout, word))
		return NULL;
	uint64_t off = slot_block_off(word);
	const struct block_header *h = (const void *)(r->base + off);
	uint64_t in_chunk = (off - r->layout->heap_off) & (r->layout->chunk_size - 1);
	if (!block_lengths_fit(h, r->layout->chunk_size - in_chunk))
		return NULL;
	const unsigned char *key = (const unsigned char *)(h + 1);
	*ret_hash = hash_key(key, h->key_len, r->layout->hash_seed);
	uint64_t digest = block_digest(ret_hash, key + h->key_len, h->value_len);
	bool is_valid = block_word(off, h, ret_hash) == word &&
			block_checksum(word, digest, h) == h->checksum;
	return is_valid ? h : NULL;
}

/* ---- One word ---- */

/* Is the slot in one of the key's buckets, and the first of them that holds the key? */
static bool
is_in_its_place(const struct recovery *r, uint64_t slot_off, const struct block_header *h,
		const struct hash *hash)
{
	uint64_t main[2];
	bool is_there = false;
	hash_main_buckets(hash, 2 * r->layout->n_groups, main);
	for (unsigned i = 0; i < 2 * LAYOUT_COMBINED_SLOTS; i++) {
		uint64_t off = layout_combined_off(r->layout, main[i / LAYOUT_COMBINED_SLOTS]) +
			       layout_slot_in_combined(i % LAYOUT_COMBINED_SLOTS);
		uint64_t word = *word_at(r, off);
		struct hash other_hash;
		is_there |= off == slot_off;
		if (off >= slot_off || word == 0 ||
		    slot_fingerprint(word) != hash_fingerprint(hash))
			continue;
		const struct block_header *other = valid_block(r, word, &other_hash);
		if (other && other->key_len == h->key_len &&
		    memcmp(other + 1, h + 1, h->key_len) == 0)
			return false;
	}
	return is_there;
}

/* The first block that counts settles the class of its chunk; others have to fit. */
static bool
fits_its_chunk(struct recovery *r, uint64_t off, const struct block_header *h)
{
	const struct layout *l = r->layout;
	uint64_t chunk = layout_chunk_of(l, off);
	uint64_t *desc = word_at(r, layout_desc_off(l, chunk));
	uint32_t class_id =
		layout_class_of((uint32_t)block_granules(block_len(h->key_len, h->value_len)));
	uint64_t class_len = (uint64_t)layout_class_granules(class_id) * LIMIT_GRANULE;
	uint64_t in_chunk = off - layout_chunk_off(l, chunk);
	unsigned char bit = (unsigned char)(1u << chunk % 8);
	if (in_chunk % class_len || in_chunk + class_len > l->chunk_size)
		return false;
	if (r->is_settled[chunk / 8] & bit)
		return chunk_class(*desc) == class_id;
	r->is_settled[chunk / 8] |= bit;
	*desc = chunk_next(*desc, CHUNK_ORPHAN, class_id, 0);
	return true;
}

/* Does the word count? Then its block is not marked any more, [MARK]. */
static bool
keep(struct recovery *r, uint64_t slot_off, uint64_t word)
{
	struct hash hash;
	const struct block_header *h = valid_block(r, word, &hash);
	if (!h || !is_in_its_place(r, slot_off, h, &hash) ||
	    !fits_its_chunk(r, slot_block_off(word), h))
		return false;
	r->base[layout_map_off(r->layout, slot_block_off(word))] =
		layout_mark(slot_tag(word) + SLOT_TAG_COUNT - 1);
	return true;
}

/* ---- All of it ---- */

static void
recover_index(struct recovery *r)
{
	const struct layout *l = r->layout;
	for (uint64_t i = 0; i < l->n_groups * LAYOUT_GROUP_SLOTS; i++) {
		uint64_t off = layout_slot_off(l, i);
		uint64_t *word = word_at(r, off);
		if (slot_is_empty(*word))
			continue;
		if (keep(r, off, *word)) {
			r->counts.n_kept++;
			continue;
		}
		*word = slot_with_state(*word, SLOT_DELETED);
		r->counts.n_dropped++;
	}
}

/*
 * Nobody knows a word of any block but those in the index, so that a chunk without any may be FREE
 * at once, [WRAP].
 */
static void
recover_chunks(struct recovery *r)
{
	for (uint64_t i = 0; i < r->layout->n_chunks; i++) {
		uint64_t *desc = word_at(r, layout_desc_off(r->layout, i));
		if (!(r->is_settled[i / 8] & 1u << i % 8))
			*desc = chunk_next(*desc, CHUNK_FREE, 0, 0);
	}
}

int
recover_region(unsigned char *base, const struct layout *layout, struct recover_counts *ret_counts)
{
	struct recovery r = {.base = base, .layout = layout};
	r.is_settled = calloc(layout->n_chunks / 8 + 1, 1);
	if (!r.is_settled)
		return ERR_NOMEM;
	recover_index(&r);
	recover_chunks(&r);
	free(r.is_settled);
	*ret_counts = r.counts;
	return 0;
}
