/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The remote memory layout: superblock, index, chunk table, free map, heap. Nothing outside proto/
 * computes an offset. An *offset* is bytes from the region's start. See LAYOUT.md.
 */
#ifndef RKV_PROTO_LAYOUT_H
#define RKV_PROTO_LAYOUT_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/block.h"
#include "proto/hash.h"
#include "proto/limits.h"
#include "proto/slot.h"

#define LAYOUT_MAGIC UINT64_C(0x314e4f4947524b52) /* "RKRGION1" in memory order: R K R G I O N 1 */
/* In its place while a file is being formatted: "RKUNFIN1" */
#define LAYOUT_MAGIC_UNFINISHED UINT64_C(0x314e49464e554b52)
#define LAYOUT_VERSION 1u
#define LAYOUT_PAGE 4096u
#define LAYOUT_BOOT_ID_LEN 16u

/* Index: group = main, overflow, main; a combined bucket (main + overflow) is one 128-byte READ. */
#define LAYOUT_BUCKET_LEN 64u
#define LAYOUT_BUCKET_SLOTS 7u
#define LAYOUT_GROUP_LEN (3 * LAYOUT_BUCKET_LEN)
#define LAYOUT_GROUP_SLOTS (3 * LAYOUT_BUCKET_SLOTS)
#define LAYOUT_COMBINED_LEN (2 * LAYOUT_BUCKET_LEN)
#define LAYOUT_COMBINED_SLOTS (2 * LAYOUT_BUCKET_SLOTS)

struct layout_bucket {
	uint64_t meta; /* reserved for growth, 0 */
	uint64_t slot[LAYOUT_BUCKET_SLOTS];
};
static_assert(sizeof(struct layout_bucket) == LAYOUT_BUCKET_LEN, "bucket");
static_assert(offsetof(struct layout_bucket, slot) == 8, "bucket");

struct layout_segment {
	uint64_t off;
	uint64_t n_groups;
};
static_assert(sizeof(struct layout_segment) == 16, "segment");

struct layout_superblock {
	/* Constant within an epoch, covered by the checksum. */
	uint64_t magic;
	uint32_t version;
	uint32_t len; /* of this structure */
	uint64_t region_id;
	uint64_t epoch;
	uint64_t formatted_s; /* wall clock, seconds since 1970; expiries count from here */
	uint64_t region_len;
	uint64_t chunk_size;
	uint64_t n_chunks;
	uint64_t chunk_table_off;
	uint64_t free_map_off;
	uint64_t heap_off;
	uint64_t hash_seed;
	uint32_t tag_bits; /* the following differ in test builds only */
	uint32_t hash_bits;
	uint32_t fingerprint_bits;
	uint32_t word_stamps;
	uint32_t stamp_ms;
	uint32_t n_segments;
	struct layout_segment segment[LIMIT_SEGMENTS];
	uint64_t checksum; /* XXH3-64 of everything above */
	uint64_t hint_off; /* of the access hints, [HINT]; 0: there are none. See layout_place */
	unsigned char reserved0[2048 - 264];
	/* Changing: written by the server only, but for the scratch word. */
	uint64_t next_serial;
	uint64_t stamp;        /* newest; the next life's are newer */
	uint64_t former_epoch; /* of the life before; the checksum may still be that life's */
	uint64_t n_lives;      /* servers that have served the region */
	unsigned char boot_id[LAYOUT_BOOT_ID_LEN]; /* of the machine's life, and */
	uint64_t inode;                            /* the file, that this life is in; */
	uint64_t is_clean; /* 1: all of the file is as it was when that life ended */
	uint64_t scratch;  /* FAA and CAS self-tests and flushes; its value means nothing */
	unsigned char reserved2[LAYOUT_PAGE - 2048 - 72];
};
static_assert(offsetof(struct layout_superblock, segment) == 120, "superblock");
static_assert(offsetof(struct layout_superblock, checksum) == 248, "superblock");
static_assert(offsetof(struct layout_superblock, hint_off) == 256, "superblock");
static_assert(offsetof(struct layout_superblock, next_serial) == 2048, "superblock");
static_assert(offsetof(struct layout_superblock, scratch) == 2112, "superblock");
static_assert(sizeof(struct layout_superblock) == LAYOUT_PAGE, "superblock");

static inline uint64_t
layout_superblock_checksum(const struct layout_superblock *sb)
{
	return XXH3_64bits(sb, offsetof(struct layout_superblock, checksum));
}

/* ---- Size classes: 1..8 granules, then 8 a doubling, up to the chunk ---- */

#define LAYOUT_CLASSES_MAX 144u

static inline uint32_t
layout_class_granules(uint32_t class_id)
{
	if (class_id < 8)
		return class_id + 1;
	return (9 + (class_id - 8) % 8) << ((class_id - 8) / 8);
}

/* Smallest class whose blocks hold n_granules (>= 1). */
static inline uint32_t
layout_class_of(uint32_t n_granules)
{
	if (n_granules <= 8)
		return n_granules - 1;
	uint32_t doubling = 31 - (uint32_t)__builtin_clz(n_granules - 1); /* >= 3 */
	uint32_t eighth = (n_granules - 1) >> (doubling - 3);             /* 8..15 */
	return 8 + (doubling - 3) * 8 + (eighth - 8);
}

/* ---- Chunk descriptor: state 4 bits, class 8, owner session slot 24, generation 28 ---- */

/*
 * LEFT is ORPHAN left in good order: every block written since the chunk was last FREE has a valid
 * header, or the stamp of a moment after its last write has passed. So an adopter need not wait for
 * one (decisions/0003-chunks-left-in-order.md).
 */
enum chunk_state { CHUNK_FREE = 0, CHUNK_OWNED = 1, CHUNK_ORPHAN = 2, CHUNK_LEFT = 3 };

#define CHUNK_OWNER_MAX ((1u << 24) - 1)
static_assert(4 + 8 + 24 + 28 == 64, "the fields fill the word");
static_assert(LIMIT_SESSIONS <= CHUNK_OWNER_MAX, "session slots fit a descriptor");

static inline uint64_t
chunk_make(enum chunk_state state, uint32_t class_id, uint32_t owner, uint32_t generation)
{
	return (uint64_t)state | (uint64_t)class_id << 4 | (uint64_t)owner << 12 |
	       (uint64_t)(generation & 0xfffffff) << 36;
}

static inline enum chunk_state
chunk_state(uint64_t desc)
{
	return (enum chunk_state)(desc & 0xf);
}

static inline uint32_t
chunk_class(uint64_t desc)
{
	return desc >> 4 & 0xff;
}

static inline uint32_t
chunk_owner(uint64_t desc)
{
	return desc >> 12 & CHUNK_OWNER_MAX;
}

static inline uint32_t
chunk_generation(uint64_t desc)
{
	return (uint32_t)(desc >> 36);
}

/* The descriptor's next value: every change of hands counts the generation up. */
static inline uint64_t
chunk_next(uint64_t desc, enum chunk_state state, uint32_t class_id, uint32_t owner)
{
	return chunk_make(state, class_id, owner, chunk_generation(desc) + 1);
}

/* ---- Free map: one byte per granule of the heap, [MARK] ---- */

#define LAYOUT_MARK_MASK ((LIMIT_TAG_BITS < 8 ? (1u << LIMIT_TAG_BITS) : 256u) - 1)

/* The entry that says "the incarnation `tag` is free". */
static inline uint8_t
layout_mark(uint32_t tag)
{
	return tag & LAYOUT_MARK_MASK;
}

/* First tag of a block whose history is over: entry + 1, never the entry itself. */
static inline uint32_t
layout_first_tag(uint8_t entry)
{
	return ((uint32_t)(entry & LAYOUT_MARK_MASK) + 1) % SLOT_TAG_COUNT;
}

/* ---- A region's geometry, as computed at formatting or read from the superblock ---- */

struct layout {
	uint64_t region_len;
	uint64_t index_off;
	uint64_t n_groups;
	uint64_t chunk_table_off;
	uint64_t free_map_off;
	uint64_t heap_off;
	uint64_t hint_off; /* 0: no access hints */
	uint64_t chunk_size;
	uint64_t n_chunks;
	uint64_t hash_seed;
	uint64_t formatted_s;
	uint32_t has_hints; /* 1: yes */
};

#define LAYOUT_SCRATCH_OFF (offsetof(struct layout_superblock, scratch))

static inline uint64_t
layout_round_up(uint64_t n, uint64_t unit)
{
	return (n + unit - 1) / unit * unit;
}

/*
 * Access hints, [HINT]: for each granule of the heap the low bits of the stamp at which the block
 * that begins there was last used. They lie behind the heap, so that who does not know of them
 * finds everything else where it is.
 */
#define LAYOUT_HINT_LEN 2u

/* Places the areas; returns the region's length in bytes. */
static inline uint64_t
layout_place(struct layout *l)
{
	l->index_off = LAYOUT_PAGE;
	l->chunk_table_off =
		layout_round_up(l->index_off + l->n_groups * LAYOUT_GROUP_LEN, LAYOUT_PAGE);
	l->free_map_off = layout_round_up(l->chunk_table_off + l->n_chunks * 8, LAYOUT_PAGE);
	l->heap_off = layout_round_up(
		l->free_map_off + l->n_chunks * (l->chunk_size / LIMIT_GRANULE), LAYOUT_PAGE);
	uint64_t end = l->heap_off + l->n_chunks * l->chunk_size;
	l->hint_off = l->has_hints ? layout_round_up(end, LAYOUT_PAGE) : 0;
	return l->has_hints ? l->hint_off + (end - l->heap_off) / LIMIT_GRANULE * LAYOUT_HINT_LEN
			    : end;
}

static inline uint64_t
layout_default_chunk_size(uint64_t region_len)
{
	uint64_t size = LIMIT_CHUNK_DEFAULT_MAX;
	while (size > LIMIT_CHUNK_DEFAULT_MIN && size > region_len / 1024)
		size /= 2;
	return size;
}

static inline uint64_t
layout_groups_for(uint64_t index_slots)
{
	return (index_slots + LAYOUT_GROUP_SLOTS - 1) / LAYOUT_GROUP_SLOTS;
}

/*
 * Plans a region of at most region_len bytes, with access hints if l->has_hints is set, which is
 * the only field that counts before. index_slots and chunk_size may be 0 (default).
 * Returns false if not even LIMIT_CHUNKS_MIN chunks fit; the caller has checked the ranges of
 * limits.h and that chunk_size is a power of two.
 */
static inline bool
layout_plan_with(struct layout *l, uint64_t region_len, uint64_t index_slots, uint64_t chunk_size)
{
	*l = (struct layout){.has_hints = l->has_hints};
	l->chunk_size = chunk_size ? chunk_size : layout_default_chunk_size(region_len);
	for (l->n_chunks = region_len / l->chunk_size; l->n_chunks >= LIMIT_CHUNKS_MIN;) {
		uint64_t slots = index_slots
					 ? index_slots
					 : l->n_chunks * l->chunk_size / LIMIT_HEAP_BYTES_PER_SLOT;
		l->n_groups = layout_groups_for(slots);
		if (l->n_groups == 0)
			l->n_groups = 1;
		uint64_t len = layout_place(l);
		if (len <= region_len) {
			l->region_len = region_len;
			return true;
		}
		uint64_t over = (len - region_len) / l->chunk_size;
		uint64_t less = over > 1 ? (over + 1) / 2 : 1;
		l->n_chunks = less < l->n_chunks ? l->n_chunks - less : 0;
	}
	return false;
}

/* The same for a region without hints. */
static inline bool
layout_plan(struct layout *l, uint64_t region_len, uint64_t index_slots, uint64_t chunk_size)
{
	*l = (struct layout){0};
	return layout_plan_with(l, region_len, index_slots, chunk_size);
}

/* Fills the constant part of a superblock; region_id, epoch, seed and time are the caller's. */
static inline void
layout_to_superblock(const struct layout *l, struct layout_superblock *sb)
{
	sb->magic = LAYOUT_MAGIC;
	sb->version = LAYOUT_VERSION;
	sb->len = sizeof(*sb);
	sb->formatted_s = l->formatted_s;
	sb->region_len = l->region_len;
	sb->chunk_size = l->chunk_size;
	sb->n_chunks = l->n_chunks;
	sb->chunk_table_off = l->chunk_table_off;
	sb->free_map_off = l->free_map_off;
	sb->heap_off = l->heap_off;
	sb->hint_off = l->hint_off;
	sb->hash_seed = l->hash_seed;
	sb->tag_bits = LIMIT_TAG_BITS;
	sb->hash_bits = LIMIT_HASH_BITS;
	sb->fingerprint_bits = LIMIT_FINGERPRINT_BITS;
	sb->word_stamps = LIMIT_WORD_STAMPS;
	sb->stamp_ms = LIMIT_STAMP_MS;
	sb->n_segments = 1;
	sb->segment[0] = (struct layout_segment){l->index_off, l->n_groups};
	sb->checksum = layout_superblock_checksum(sb);
}

/*
 * Reads a geometry out of bytes from another machine. Returns NULL, or what is wrong with them.
 */
static inline const char *
layout_from_superblock(struct layout *l, const struct layout_superblock *sb)
{
	if (sb->magic != LAYOUT_MAGIC)
		return "not an rkv region: the magic number differs";
	if (sb->version != LAYOUT_VERSION || sb->len != sizeof(*sb))
		return "the region has another layout version";
	if (sb->checksum != layout_superblock_checksum(sb))
		return "the superblock is corrupt: its checksum differs";
	if (sb->tag_bits != LIMIT_TAG_BITS || sb->hash_bits != LIMIT_HASH_BITS ||
	    sb->fingerprint_bits != LIMIT_FINGERPRINT_BITS ||
	    sb->word_stamps != LIMIT_WORD_STAMPS || sb->stamp_ms != LIMIT_STAMP_MS)
		return "the region was formatted by a test build with other limits";
	if (sb->n_segments != 1)
		return "the region has an index of several segments, which this version cannot "
		       "read";
	if (sb->chunk_size < LIMIT_CHUNK_MIN || sb->chunk_size > LIMIT_CHUNK_MAX ||
	    (sb->chunk_size & (sb->chunk_size - 1)) != 0 || sb->n_chunks < LIMIT_CHUNKS_MIN ||
	    sb->n_chunks > LIMIT_REGION_MAX / sb->chunk_size || sb->segment[0].n_groups < 1 ||
	    sb->segment[0].n_groups > LIMIT_REGION_MAX / LAYOUT_GROUP_LEN)
		return "the superblock has sizes out of range";
	*l = (struct layout){
		.region_len = sb->region_len,
		.n_groups = sb->segment[0].n_groups,
		.chunk_size = sb->chunk_size,
		.n_chunks = sb->n_chunks,
		.hash_seed = sb->hash_seed,
		.formatted_s = sb->formatted_s,
		.has_hints = sb->hint_off != 0,
	};
	if (layout_place(l) > sb->region_len || sb->region_len > LIMIT_REGION_MAX ||
	    l->index_off != sb->segment[0].off || l->chunk_table_off != sb->chunk_table_off ||
	    l->free_map_off != sb->free_map_off || l->heap_off != sb->heap_off ||
	    l->hint_off != sb->hint_off)
		return "the superblock has areas that are not where they belong";
	return NULL;
}

/* ---- Offsets ---- */

/* Offset of the combined bucket of main bucket `main` (0 .. 2 * n_groups - 1). */
static inline uint64_t
layout_combined_off(const struct layout *l, uint64_t main)
{
	return l->index_off + main / 2 * LAYOUT_GROUP_LEN + main % 2 * LAYOUT_BUCKET_LEN;
}

/* Offset, within a combined bucket, of its i-th slot (0..13). */
static inline uint32_t
layout_slot_in_combined(uint32_t i)
{
	return i / LAYOUT_BUCKET_SLOTS * LAYOUT_BUCKET_LEN + 8 * (1 + i % LAYOUT_BUCKET_SLOTS);
}

/* Offset of the i-th slot of the index (0 .. n_groups * LAYOUT_GROUP_SLOTS - 1). */
static inline uint64_t
layout_slot_off(const struct layout *l, uint64_t i)
{
	return l->index_off + i / LAYOUT_BUCKET_SLOTS * LAYOUT_BUCKET_LEN +
	       8 * (1 + i % LAYOUT_BUCKET_SLOTS);
}

/* Fewer free chunks than this are few: they are asked for, or, with eviction, made. */
static inline uint64_t
layout_chunks_few(uint64_t n_chunks)
{
	return n_chunks / 16 ? n_chunks / 16 : 1;
}

static inline uint64_t
layout_desc_off(const struct layout *l, uint64_t chunk)
{
	return l->chunk_table_off + chunk * 8;
}

static inline uint64_t
layout_chunk_off(const struct layout *l, uint64_t chunk)
{
	return l->heap_off + chunk * l->chunk_size;
}

static inline uint64_t
layout_chunk_of(const struct layout *l, uint64_t block_off)
{
	return (block_off - l->heap_off) / l->chunk_size;
}

/* Offset of a block's entry in the free map. */
static inline uint64_t
layout_map_off(const struct layout *l, uint64_t block_off)
{
	return l->free_map_off + (block_off - l->heap_off) / LIMIT_GRANULE;
}

/* Offset of a block's access hint, in a region that has them. */
static inline uint64_t
layout_hint_off(const struct layout *l, uint64_t block_off)
{
	return l->hint_off + (block_off - l->heap_off) / LIMIT_GRANULE * LAYOUT_HINT_LEN;
}

static inline uint32_t
layout_max_class(const struct layout *l)
{
	return layout_class_of((uint32_t)(l->chunk_size / LIMIT_GRANULE));
}

static inline uint32_t
layout_blocks_per_chunk(const struct layout *l, uint32_t class_id)
{
	return (uint32_t)(l->chunk_size / LIMIT_GRANULE) / layout_class_granules(class_id);
}

static inline uint64_t
layout_value_max(const struct layout *l, uint32_t key_len)
{
	return l->chunk_size - BLOCK_HEADER_LEN - key_len;
}

/* [RANGE]: may a work request READ the block that this word refers to? */
static inline bool
layout_block_in_range(const struct layout *l, uint64_t word)
{
	uint64_t off = slot_block_off(word);
	uint64_t len = slot_read_len(word);
	if (slot_read_code(word) == 0 || off < l->heap_off || len > l->chunk_size)
		return false;
	uint64_t in_heap = off - l->heap_off;
	return in_heap < l->n_chunks * l->chunk_size &&
	       (in_heap & (l->chunk_size - 1)) + len <= l->chunk_size;
}

#endif
