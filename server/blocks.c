/* SPDX-License-Identifier: BSD-2-Clause */
/* Looking at blocks: blocks.h. */
#include "server/blocks.h"

#include "common/execute.h"
#include "common/tsan.h"

/* What is read of a block in any case: its header and its entry in the map. */
#define LOOK_BYTES (BLOCK_HEADER_LEN + 24u)
#define PASSED_MAX (1u << 16) /* chunks that are passed over at a time */

/*
 * The key and the value, where they are. The thread sanitizer knows of no checksums: it gets a
 * copy, [COPY]; one thread looks at blocks.
 */
static const unsigned char *
body_at(const struct reach *reach, uint64_t off, uint64_t len)
{
	const unsigned char *body = reach_at(reach, off, len);
#if TSAN
	static unsigned char copy[LIMIT_CHUNK_MAX];
	execute_read_bulk(copy, body, len);
	body = copy;
#endif
	return body;
}

static void
read_header(const struct reach *reach, uint64_t off, struct block_header *ret_header)
{
	execute_read_bulk((unsigned char *)ret_header, reach_at(reach, off, BLOCK_HEADER_LEN),
			  BLOCK_HEADER_LEN);
}

/*
 * Does the block name itself, as the block at this offset? Others may be writing it, [COPY]: the
 * header is a copy, so that the lengths that are checked are the lengths that are used.
 */
static bool
is_valid(const struct reach *reach, uint64_t off, uint32_t len, const struct block_header *h,
	 struct hash *ret_hash)
{
	if (!block_lengths_fit(h, len) || block_tag(h) >= SLOT_TAG_COUNT)
		return false;
	const unsigned char *key =
		body_at(reach, off + BLOCK_HEADER_LEN, (uint64_t)h->key_len + h->value_len);
	*ret_hash = hash_key(key, h->key_len, reach->layout->hash_seed);
	uint64_t digest = block_digest(ret_hash, key + h->key_len, h->value_len);
	return h->checksum == block_checksum(block_word(off, h, ret_hash), digest, h);
}

/* Looks in one combined bucket for words of the block; not in slots from `without` on (or 0). */
static void
look_in_bucket(const struct reach *reach, uint64_t bucket, uint64_t committed, uint64_t without,
	       struct blocks_look *look)
{
	const char *bytes = reach_at(reach, bucket, LAYOUT_COMBINED_LEN);
	for (uint32_t i = 0; i < LAYOUT_COMBINED_SLOTS; i++) {
		uint32_t at = layout_slot_in_combined(i);
		uint64_t word = reach_word(bytes + at);
		bool is_seen = without && bucket + at >= without &&
			       bucket + at < without + LAYOUT_COMBINED_LEN;
		if (is_seen || !slot_refers(word) || /* [SCRUB]: deleted words do not */
		    slot_with_state(word, SLOT_COMMITTED) != committed)
			continue;
		look->n_words++;
		look->slot_off = bucket + at;
		look->word = word;
	}
}

static void
main_buckets(const struct layout *l, const struct hash *hash, uint64_t ret_off[2])
{
	uint64_t main[2];
	hash_main_buckets(hash, 2 * l->n_groups, main);
	ret_off[0] = layout_combined_off(l, main[0]);
	ret_off[1] = layout_combined_off(l, main[1]);
}

static enum blocks_kind
look_for_words(const struct reach *reach, const struct hash *hash, struct blocks_look *look)
{
	uint64_t bucket[2];
	uint64_t committed = block_word(look->off, &look->header, hash);
	main_buckets(reach->layout, hash, bucket);
	look_in_bucket(reach, bucket[0], committed, 0, look);
	look_in_bucket(reach, bucket[1], committed, bucket[0], look);
	look->n_bytes += 2 * LAYOUT_COMBINED_LEN;
	if (look->n_words == 0)
		return BLOCKS_LOOSE;
	return slot_state(look->word) == SLOT_COMMITTED ? BLOCKS_LIVE : BLOCKS_TENTATIVE;
}

static enum blocks_kind
find_kind(const struct reach *reach, struct blocks_look *look)
{
	struct hash hash;
	const struct block_header *h = &look->header;
	uint8_t entry = reach_entry(reach, look->off);
	bool is_marked = entry == layout_mark(block_tag(h));
	if (is_marked && block_tag(h) != SLOT_TAG_COUNT - 1)
		return BLOCKS_FREE;
	if (!is_valid(reach, look->off, look->len, h, &hash))
		return BLOCKS_FREE;
	look->n_bytes += block_len(h->key_len, h->value_len);
	if (is_marked)
		return BLOCKS_RESTING;
	if (entry != layout_mark(block_tag(h) + SLOT_TAG_COUNT - 1))
		return BLOCKS_ODD;
	return look_for_words(reach, &hash, look);
}

void
blocks_look(const struct reach *reach, uint64_t off, uint32_t len, struct blocks_look *ret_look)
{
	*ret_look = (struct blocks_look){.off = off, .len = len, .n_bytes = LOOK_BYTES};
	read_header(reach, off, &ret_look->header);
	ret_look->kind = find_kind(reach, ret_look);
}

bool
blocks_explain(const struct reach *reach, uint64_t slot_off, uint64_t word)
{
	struct hash hash;
	struct block_header h;
	uint64_t off = slot_block_off(word), bucket[2];
	if (!layout_block_in_range(reach->layout, word)) /* [RANGE] */
		return false;
	read_header(reach, off, &h);
	if (!is_valid(reach, off, (uint32_t)slot_read_len(word), &h, &hash) ||
	    block_word(off, &h, &hash) != slot_with_state(word, SLOT_COMMITTED))
		return false;
	main_buckets(reach->layout, &hash, bucket);
	return slot_off - bucket[0] < LAYOUT_COMBINED_LEN ||
	       slot_off - bucket[1] < LAYOUT_COMBINED_LEN;
}

/* ---- Walking ---- */

static bool
enter(const struct reach *reach, struct blocks_walk *walk, bool (*which)(uint64_t desc))
{
	const struct layout *l = reach->layout;
	walk->desc = reach_word(reach_at(reach, layout_desc_off(l, walk->chunk), 8));
	uint32_t class_id = chunk_class(walk->desc);
	if (chunk_state(walk->desc) == CHUNK_FREE || class_id > layout_max_class(l) ||
	    (which && !which(walk->desc)))
		return false;
	walk->n = layout_blocks_per_chunk(l, class_id);
	walk->len = layout_class_granules(class_id) * LIMIT_GRANULE;
	walk->next = 0;
	return true;
}

bool
blocks_walk_on(const struct reach *reach, struct blocks_walk *walk, bool (*which)(uint64_t desc))
{
	if (walk->n && walk->next < walk->n)
		return true;
	if (walk->n)
		walk->chunk++;
	walk->n = 0;
	for (unsigned i = 0; i < PASSED_MAX && !blocks_walk_is_over(reach, walk); i++) {
		if (enter(reach, walk, which))
			return true;
		walk->chunk++;
	}
	return false;
}

uint64_t
blocks_walk_next(const struct reach *reach, struct blocks_walk *walk)
{
	return layout_chunk_off(reach->layout, walk->chunk) + (uint64_t)walk->next++ * walk->len;
}
