/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The slot word: the one contended word of an entry. It is changed by remote CAS only, [ONE-WORD].
 *
 *   bits   0-31  block offset / 64     bits 40-51  tag: incarnation of the block
 *   bits  32-39  read size (a code)    bits 52-61  fingerprint      bits 62-63  state
 *
 * The all-zero word is a slot never used; a deleted word keeps its other bits, so that no two empty
 * words look alike. Read-size codes are >= 1, hence no other word is zero.
 */
#ifndef RKV_PROTO_SLOT_H
#define RKV_PROTO_SLOT_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/limits.h"

enum slot_state { SLOT_COMMITTED = 0, SLOT_TENTATIVE = 1, SLOT_DELETED = 2, SLOT_FORWARDED = 3 };

#define SLOT_OFFSET_BITS 32
#define SLOT_SIZE_BITS 8
#define SLOT_TAG_BITS 12
#define SLOT_FINGERPRINT_BITS 10
#define SLOT_STATE_BITS 2
#define SLOT_SIZE_SHIFT SLOT_OFFSET_BITS
#define SLOT_TAG_SHIFT (SLOT_SIZE_SHIFT + SLOT_SIZE_BITS)
#define SLOT_FINGERPRINT_SHIFT (SLOT_TAG_SHIFT + SLOT_TAG_BITS)
#define SLOT_STATE_SHIFT (SLOT_FINGERPRINT_SHIFT + SLOT_FINGERPRINT_BITS)
static_assert(SLOT_STATE_SHIFT + SLOT_STATE_BITS == 64, "the fields fill the word");
static_assert(LIMIT_TAG_BITS <= SLOT_TAG_BITS, "a test build may only use fewer bits");
static_assert(LIMIT_FINGERPRINT_BITS <= SLOT_FINGERPRINT_BITS, "likewise");

#define SLOT_TAG_COUNT (1u << LIMIT_TAG_BITS)

/* Codes 1..128 are exact granule counts; above, 8 codes a doubling, rounded up. */
#define SLOT_SIZE_EXACT 128u
#define SLOT_SIZE_CODE_MAX 255u

static inline uint32_t
slot_size_granules(uint32_t code)
{
	if (code <= SLOT_SIZE_EXACT)
		return code;
	uint32_t above = code - SLOT_SIZE_EXACT - 1;
	return (9 + above % 8) << (above / 8 + 4);
}

/* Smallest code whose granules hold n_granules (>= 1). */
static inline uint32_t
slot_size_code(uint32_t n_granules)
{
	if (n_granules <= SLOT_SIZE_EXACT)
		return n_granules;
	uint32_t doubling = 31 - (uint32_t)__builtin_clz(n_granules - 1); /* >= 7 */
	uint32_t step = doubling - 3;
	uint32_t eighth = (n_granules - 1) >> step; /* 8..15 */
	return SLOT_SIZE_EXACT + 1 + (doubling - 7) * 8 + (eighth - 8);
}

static inline uint64_t
slot_make(uint64_t block_off, uint32_t size_code, uint32_t tag, uint32_t fingerprint,
	  enum slot_state state)
{
	return block_off / LIMIT_GRANULE | (uint64_t)size_code << SLOT_SIZE_SHIFT |
	       (uint64_t)tag << SLOT_TAG_SHIFT | (uint64_t)fingerprint << SLOT_FINGERPRINT_SHIFT |
	       (uint64_t)state << SLOT_STATE_SHIFT;
}

static inline uint64_t
slot_block_off(uint64_t word)
{
	return (word & UINT32_MAX) * LIMIT_GRANULE;
}

static inline uint32_t
slot_read_code(uint64_t word)
{
	return word >> SLOT_SIZE_SHIFT & ((1u << SLOT_SIZE_BITS) - 1);
}

/* Bytes to READ to get the whole block. */
static inline uint64_t
slot_read_len(uint64_t word)
{
	return (uint64_t)slot_size_granules(slot_read_code(word)) * LIMIT_GRANULE;
}

static inline uint32_t
slot_tag(uint64_t word)
{
	return word >> SLOT_TAG_SHIFT & ((1u << SLOT_TAG_BITS) - 1);
}

static inline uint32_t
slot_fingerprint(uint64_t word)
{
	return word >> SLOT_FINGERPRINT_SHIFT & ((1u << SLOT_FINGERPRINT_BITS) - 1);
}

static inline enum slot_state
slot_state(uint64_t word)
{
	return (enum slot_state)(word >> SLOT_STATE_SHIFT);
}

static inline uint64_t
slot_with_state(uint64_t word, enum slot_state state)
{
	uint64_t mask = (UINT64_C(1) << SLOT_STATE_SHIFT) - 1;
	return (word & mask) | (uint64_t)state << SLOT_STATE_SHIFT;
}

static inline bool
slot_is_empty(uint64_t word)
{
	return word == 0 || slot_state(word) == SLOT_DELETED;
}

/* A slot refers to a block if it is committed or tentative. */
static inline bool
slot_refers(uint64_t word)
{
	return word != 0 &&
	       (slot_state(word) == SLOT_COMMITTED || slot_state(word) == SLOT_TENTATIVE);
}

#endif
