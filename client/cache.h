/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The location cache: key -> (slot offset, word, stamp of sampling). It never holds values, and it may
 * be wrong at any time: whoever uses an entry validates what it finds there. It holds the full key,
 * without which a CAS must not expect a cached word, [STAMP].
 *
 * Entries lie one behind the other in a ring of bytes, found through an index of 8-way lines. The
 * ring makes the bound exact in bytes, for keys of any length, without a heap. Where the head meets
 * the oldest entry, an entry used since moves to the head (second chance), any other is forgotten.
 */
#ifndef RKV_CLIENT_CACHE_H
#define RKV_CLIENT_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/hash.h"

struct cache_entry {
	uint64_t word;
	uint64_t slot_off;
	uint64_t stamp;  /* start of the operation that READ the word */
	uint32_t tag;    /* of the hash */
	uint32_t expiry; /* of the block, seconds since formatting; 0: never */
	uint32_t len;    /* of this entry with its key, a multiple of 8 */
	uint16_t key_len;
	uint8_t used;
	uint8_t indexed; /* 0: forgotten, only its bytes are still there */
	unsigned char key[];
};

#define CACHE_WAYS 8u

struct cache_line {
	uint64_t way[CACHE_WAYS]; /* tag << 32 | (position in the ring / 8 + 1); 0: none */
};

struct cache {
	unsigned char *memory; /* index and ring: one allocation */
	struct cache_line *line;
	uint32_t line_mask;
	unsigned char *ring;
	uint32_t ring_len;
	uint32_t head;  /* where the next entry goes */
	uint32_t tail;  /* the oldest entry */
	uint32_t end;   /* while wrapped: where the entries before the wrap end */
	bool wrapped;   /* the head has wrapped, the tail has not yet */
	uint32_t n_entries;
};

/* bytes is the bound for all of it; fewer than CACHE_BYTES_MIN: no cache. Failure: ERR_NOMEM. */
#define CACHE_BYTES_MIN 4096u
int cache_create(struct cache *cache, size_t bytes);
void cache_destroy(struct cache *cache);
void cache_clear(struct cache *cache);

/* The entry of a key, or NULL; valid until the next cache_put. */
struct cache_entry *cache_find(struct cache *cache, const struct hash *hash, const void *key,
			       uint32_t key_len);

/* Notes where a key was seen. */
void cache_put(struct cache *cache, const struct hash *hash, const void *key, uint32_t key_len,
	       uint64_t slot_off, uint64_t word, uint64_t stamp, uint32_t expiry);

/* Forgets a key. */
void cache_drop(struct cache *cache, const struct hash *hash, const void *key, uint32_t key_len);

#endif
