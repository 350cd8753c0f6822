/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Filling a fresh region: loader.h. A key goes into the emptier of its two buckets, into slots that
 * no other bucket shares first. Where both are full, one of the keys in them moves to its other
 * bucket, which clients never do: so an index of the former size holds what it held, although
 * another hash seed spreads the keys in another way.
 */
#include "server/loader.h"

#include <string.h>
#include <time.h>

#include "common/err.h"

#define SIZE_STEP (UINT64_C(1) << 20)

void
loader_init(struct loader *loader, void *base, const struct layout *layout)
{
	*loader = (struct loader){.base = base, .layout = *layout};
}

/* ---- Blocks ---- */

static unsigned char *
at(const struct loader *loader, uint64_t off)
{
	return loader->base + off;
}

static uint64_t *
word_at(const struct loader *loader, uint64_t off)
{
	return (uint64_t *)(void *)at(loader, off);
}

static struct block_header *
header_of(const struct loader *loader, uint64_t word)
{
	return (struct block_header *)(void *)at(loader, slot_block_off(word));
}

static struct hash
hash_of(const struct loader *loader, const struct block_header *h)
{
	return hash_key(h + 1, h->key_len, loader->layout.hash_seed);
}

static int
take_block(struct loader *loader, uint64_t len, uint64_t *ret_off)
{
	const struct layout *l = &loader->layout;
	uint32_t class_id = layout_class_of((uint32_t)block_granules(len));
	struct loader_class *class = &loader->class[class_id];
	class->n_blocks++;
	if (len > loader->block_max)
		loader->block_max = len;
	if (loader->status)
		return loader->status;
	if (len > l->chunk_size)
		return ERR_TOO_BIG;
	if (class->n_left == 0) {
		if (loader->n_chunks == l->n_chunks)
			return ERR_NO_SPACE;
		class->chunk = loader->n_chunks++;
		class->n_left = layout_blocks_per_chunk(l, class_id);
		*word_at(loader, layout_desc_off(l, class->chunk)) =
			chunk_make(CHUNK_LEFT, class_id, 0, 1);
	}
	uint32_t i = layout_blocks_per_chunk(l, class_id) - class->n_left--;
	*ret_off = layout_chunk_off(l, class->chunk) +
		   (uint64_t)i * layout_class_granules(class_id) * LIMIT_GRANULE;
	return 0;
}

/* Signs the block at this offset, once everything else of it is written. */
static uint64_t
sign(const struct loader *loader, uint64_t off, const struct hash *hash)
{
	struct block_header *h = (struct block_header *)(void *)at(loader, off);
	uint64_t word = block_word(off, h, hash);
	const unsigned char *value = (const unsigned char *)(h + 1) + h->key_len;
	h->checksum = block_checksum(word, block_digest(hash, value, h->value_len), h);
	return word;
}

static uint64_t
write_block(const struct loader *loader, uint64_t off, const struct record *record,
	    const struct hash *hash, uint64_t prev)
{
	struct block_header *h = (struct block_header *)(void *)at(loader, off);
	uint64_t formatted_s = loader->layout.formatted_s;
	uint64_t expiry = record->expiry_s ? record->expiry_s - formatted_s : 0;
	*h = (struct block_header){
		.prev = prev,
		.version = record->version,
		.value_len = record->value_len,
		.expiry = expiry < UINT32_MAX ? (uint32_t)expiry : UINT32_MAX,
		.user_flags = record->user_flags,
		.key_len = (uint16_t)record->key_len,
		.tag_flags = (uint16_t)layout_first_tag(
			*at(loader, layout_map_off(&loader->layout, off))),
	};
	memcpy(h + 1, record->key, record->key_len);
	memcpy((unsigned char *)(h + 1) + record->key_len, record->value, record->value_len);
	return sign(loader, off, hash);
}

/* ---- Slots ---- */

/* A key's two buckets, and what is in them. */
struct place {
	uint64_t *same;     /* the slot that holds the key already, or NULL */
	uint64_t *empty[2]; /* a slot of each bucket, or NULL */
	unsigned n_used[2];
};

/* The slots of main bucket `main`, its own ones first, then those that it shares. */
static uint64_t *
slot_of(const struct loader *loader, uint64_t main, unsigned i)
{
	unsigned in_combined = main % 2 ? LAYOUT_COMBINED_SLOTS - 1 - i : i;
	return word_at(loader, layout_combined_off(&loader->layout, main) +
				       layout_slot_in_combined(in_combined));
}

static bool
holds(const struct loader *loader, uint64_t word, const struct record *record,
      const struct hash *hash)
{
	const struct block_header *h = header_of(loader, word);
	return slot_fingerprint(word) == hash_fingerprint(hash) && h->key_len == record->key_len &&
	       memcmp(h + 1, record->key, record->key_len) == 0;
}

static struct place
look(const struct loader *loader, const uint64_t main[2], const struct record *record,
     const struct hash *hash)
{
	struct place place = {0};
	for (unsigned k = 0; k < 2 * LAYOUT_COMBINED_SLOTS; k++) {
		unsigned b = k / LAYOUT_COMBINED_SLOTS;
		uint64_t *slot = slot_of(loader, main[b], k % LAYOUT_COMBINED_SLOTS);
		if (*slot == 0) {
			if (!place.empty[b])
				place.empty[b] = slot;
			continue;
		}
		place.n_used[b]++;
		if (holds(loader, *slot, record, hash))
			place.same = slot;
	}
	return place;
}

/* An empty slot in the other bucket of the key in this slot of main bucket `main`, or NULL. */
static uint64_t *
other_place(const struct loader *loader, uint64_t word, uint64_t main)
{
	struct hash hash = hash_of(loader, header_of(loader, word));
	uint64_t both[2];
	hash_main_buckets(&hash, 2 * loader->layout.n_groups, both);
	uint64_t other = both[0] == main ? both[1] : both[0];
	for (unsigned i = 0; i < LAYOUT_COMBINED_SLOTS; i++)
		if (*slot_of(loader, other, i) == 0)
			return slot_of(loader, other, i);
	return NULL;
}

/* Both buckets are full: makes room in one of them by moving a key out, or NULL. */
static uint64_t *
make_room(const struct loader *loader, const uint64_t main[2])
{
	for (unsigned k = 0; k < 2 * LAYOUT_COMBINED_SLOTS; k++) {
		uint64_t in = main[k / LAYOUT_COMBINED_SLOTS];
		uint64_t *slot = slot_of(loader, in, k % LAYOUT_COMBINED_SLOTS);
		uint64_t *to = other_place(loader, *slot, in);
		if (!to)
			continue;
		*to = *slot;
		return slot;
	}
	return NULL;
}

static uint64_t *
choose(const struct loader *loader, const uint64_t main[2], const struct place *place)
{
	if (place->same)
		return place->same;
	unsigned b = place->n_used[1] < place->n_used[0];
	if (place->empty[b])
		return place->empty[b];
	return make_room(loader, main);
}

/* ---- Records ---- */

static bool
is_over(const struct loader *loader, const struct record *record)
{
	return record->expiry_s && (record->expiry_s <= loader->layout.formatted_s ||
				    record->expiry_s < (uint64_t)time(NULL));
}

/* The block that the slot refers to makes way for another one: it is free from now on, [MARK]. */
static void
free_block(const struct loader *loader, uint64_t word)
{
	*at(loader, layout_map_off(&loader->layout, slot_block_off(word))) =
		layout_mark(slot_tag(word));
}

static int
put(struct loader *loader, const struct record *record)
{
	struct hash hash = hash_key(record->key, record->key_len, loader->layout.hash_seed);
	uint64_t main[2], off;
	int rc = take_block(loader, block_len(record->key_len, record->value_len), &off);
	if (rc)
		return rc;
	hash_main_buckets(&hash, 2 * loader->layout.n_groups, main);
	struct place place = look(loader, main, record, &hash);
	uint64_t *slot = choose(loader, main, &place);
	if (!slot)
		return ERR_INDEX_FULL;
	uint64_t prev = place.same ? *slot : 0;
	if (prev)
		free_block(loader, prev);
	*slot = write_block(loader, off, record, &hash, prev);
	loader->n_replaced += prev != 0;
	loader->n_placed += prev == 0;
	return 0;
}

int
loader_put(struct loader *loader, const struct record *record)
{
	if (is_over(loader, record)) {
		loader->n_expired++;
		return 0;
	}
	int rc = put(loader, record);
	if (!loader->status)
		loader->status = rc;
	return rc;
}

void
loader_renew_versions(struct loader *loader, uint32_t serial)
{
	uint64_t n = 0;
	for (uint64_t i = 0; i < loader->layout.n_groups * LAYOUT_GROUP_SLOTS; i++) {
		uint64_t word = *word_at(loader, layout_slot_off(&loader->layout, i));
		if (word == 0)
			continue;
		struct block_header *h = header_of(loader, word);
		struct hash hash = hash_of(loader, h);
		h->version = (uint64_t)serial << 32 | ++n;
		sign(loader, slot_block_off(word), &hash);
	}
}

/* ---- What it would take ---- */

static uint64_t
n_blocks(const struct loader *loader)
{
	uint64_t n = 0;
	for (unsigned i = 0; i < LAYOUT_CLASSES_MAX; i++)
		n += loader->class[i].n_blocks;
	return n;
}

struct loader_needs
loader_needs(const struct loader *loader)
{
	const struct layout *old = &loader->layout;
	struct layout l = {
		.n_groups = old->n_groups,
		.chunk_size = old->chunk_size,
		.has_hints = old->has_hints,
	};
	while (l.chunk_size < loader->block_max)
		l.chunk_size *= 2;
	for (uint32_t i = 0; i < LAYOUT_CLASSES_MAX; i++) {
		uint64_t n = loader->class[i].n_blocks;
		if (n)
			l.n_chunks += (n - 1) / layout_blocks_per_chunk(&l, i) + 1;
	}
	if (l.n_chunks < LIMIT_CHUNKS_MIN)
		l.n_chunks = LIMIT_CHUNKS_MIN;
	/* Two choices fill at least three quarters of an index before a key finds no slot. */
	uint64_t n_groups = layout_groups_for(n_blocks(loader) / 3 * 4 + LAYOUT_GROUP_SLOTS);
	if (loader->status == ERR_INDEX_FULL || n_groups > l.n_groups)
		l.n_groups = n_groups > l.n_groups ? n_groups : l.n_groups + l.n_groups / 4 + 1;
	uint64_t len = layout_place(&l);
	uint64_t for_index = 2 * l.n_groups * LAYOUT_GROUP_LEN + LAYOUT_PAGE; /* options.c */
	return (struct loader_needs){
		.region_len = layout_round_up(len > for_index ? len : for_index, SIZE_STEP),
		.chunk_size = l.chunk_size,
		.index_slots = l.n_groups * LAYOUT_GROUP_SLOTS,
	};
}
