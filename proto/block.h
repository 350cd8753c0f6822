/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A block: header, key, value, rounded up to granules. It never changes from its publication until
 * it is free again, [IMMUTABLE], and it names itself, [SELF-ID]: the checksum begins with the
 * committed slot word that points to it, so that stale bytes in the right place and right bytes in
 * the wrong place both fail. Nobody depends on the order in which the bytes of a READ were sampled.
 *
 * checksum = XXH3-64(slot word, digest, header behind the checksum)
 * digest   = XXH3-64(value) xor the first half of the key's hash
 *
 * The digest comes first so that a new `prev` does not rehash a large value.
 */
#ifndef RKV_PROTO_BLOCK_H
#define RKV_PROTO_BLOCK_H

#include <stddef.h>
#include <string.h>

#include "proto/hash.h"
#include "proto/slot.h"

struct block_header {
	uint64_t checksum;
	uint64_t prev;       /* the word that this block's CAS expects in the slot */
	uint64_t version;    /* session serial (high 32 bits) and write counter: unique for ever */
	uint32_t value_len;  /* bytes */
	uint32_t expiry;     /* seconds since formatting, 0 = never */
	uint32_t user_flags; /* the caller's */
	uint16_t key_len;    /* bytes */
	uint16_t tag_flags;  /* tag in the low 12 bits, 4 flag bits reserved as 0 */
};
static_assert(sizeof(struct block_header) == 40, "block header");
static_assert(offsetof(struct block_header, prev) == 8, "block header");
static_assert(offsetof(struct block_header, version) == 16, "block header");
static_assert(offsetof(struct block_header, value_len) == 24, "block header");
static_assert(offsetof(struct block_header, expiry) == 28, "block header");
static_assert(offsetof(struct block_header, user_flags) == 32, "block header");
static_assert(offsetof(struct block_header, key_len) == 36, "block header");
static_assert(offsetof(struct block_header, tag_flags) == 38, "block header");

#define BLOCK_HEADER_LEN 40u
#define BLOCK_TAG_MASK 0x0fffu

static inline uint64_t
block_len(uint32_t key_len, uint64_t value_len)
{
	return BLOCK_HEADER_LEN + key_len + value_len;
}

static inline uint64_t
block_granules(uint64_t len)
{
	return (len + LIMIT_GRANULE - 1) / LIMIT_GRANULE;
}

static inline uint32_t
block_tag(const struct block_header *h)
{
	return h->tag_flags & BLOCK_TAG_MASK;
}

static inline uint64_t
block_digest(const struct hash *hash, const void *value, uint64_t value_len)
{
	return XXH3_64bits(value, value_len) ^ hash->lo;
}

static inline uint64_t
block_checksum(uint64_t committed_word, uint64_t digest, const struct block_header *h)
{
	struct {
		uint64_t word;
		uint64_t digest;
		unsigned char rest[BLOCK_HEADER_LEN - sizeof(uint64_t)];
	} covered;
	covered.word = committed_word;
	covered.digest = digest;
	memcpy(covered.rest, (const unsigned char *)h + sizeof(uint64_t), sizeof(covered.rest));
	return XXH3_64bits(&covered, sizeof(covered));
}

/* The committed word that a block at block_off must be referred to by, rebuilt from its header. */
static inline uint64_t
block_word(uint64_t block_off, const struct block_header *h, const struct hash *hash)
{
	uint64_t granules = block_granules(block_len(h->key_len, h->value_len));
	return slot_make(block_off, slot_size_code((uint32_t)granules), block_tag(h),
			 hash_fingerprint(hash), SLOT_COMMITTED);
}

/* Do the lengths in a header fit into room bytes? The first check on bytes from another machine. */
static inline bool
block_lengths_fit(const struct block_header *h, uint64_t room)
{
	return h->key_len >= 1 && h->key_len <= LIMIT_KEY_MAX &&
	       block_len(h->key_len, h->value_len) <= room;
}

#endif
