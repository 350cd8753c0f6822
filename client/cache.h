/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The location cache: key -> (slot offset, word, stamp of sampling). It never holds values, and it
 * may be wrong at any time: whoever uses an entry validates what it finds there. It holds the full
 * key, without which a CAS must not expect a cached word, [STAMP].
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

#include "client/key.h"
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
	unsigned char *memory; /* index and ring: one allocation; NULL: no cache, one empty line */
	struct cache_line *line;
	uint32_t line_mask;
	unsigned char *ring;
	uint32_t ring_len;
	uint32_t head; /* where the next entry goes */
	uint32_t tail; /* the oldest entry */
	uint32_t end;  /* while wrapped: where the entries before the wrap end */
	bool wrapped;  /* the head has wrapped, the tail has not yet */
	uint32_t n_entries;
	uint64_t n_changes; /* counts whatever makes pointers to entries invalid */
};

/* bytes is the bound for all of it; fewer than CACHE_BYTES_MIN: no cache. Failure: ERR_NOMEM. */
#define CACHE_BYTES_MIN 4096u
int cache_create(struct cache *cache, size_t bytes);
void cache_destroy(struct cache *cache);
void cache_clear(struct cache *cache);

/* ---- Looking up: inline, for each operation does it ---- */

static inline struct cache_entry *
cache_entry_at(const struct cache *cache, uint32_t pos)
{
	return (struct cache_entry *)(void *)(cache->ring + pos);
}

static inline uint32_t
cache_way_pos(uint64_t way)
{
	return ((uint32_t)way - 1) * 8;
}

/* The way that leads to a key's entry, or NULL. */
static inline uint64_t *
cache_way_of(struct cache *cache, uint32_t tag, const void *key, uint32_t key_len)
{
	struct cache_line *line = &cache->line[tag & cache->line_mask];
	for (uint64_t *way = line->way; way < line->way + CACHE_WAYS; way++) {
		/* One comparison: the same tag above, and a position (not 0) below. */
		if ((*way ^ (uint64_t)tag << 32) - 1 >= UINT32_MAX)
			continue;
		struct cache_entry *e = cache_entry_at(cache, cache_way_pos(*way));
		if (e->key_len == key_len && key_equal(e->key, key, key_len))
			return way;
	}
	return NULL;
}

/* The entry of a key, or NULL; valid until the next change (cache.n_changes). */
static inline struct cache_entry *
cache_find(struct cache *cache, const struct hash *hash, const void *key, uint32_t key_len)
{
	uint64_t *way = cache_way_of(cache, hash_cache_tag(hash), key, key_len);
	if (!way)
		return NULL;
	struct cache_entry *e = cache_entry_at(cache, cache_way_pos(*way));
	e->used = 1;
	return e;
}

/* Notes where a key was seen. */
void cache_put(struct cache *cache, const struct hash *hash, const void *key, uint32_t key_len,
	       uint64_t slot_off, uint64_t word, uint64_t stamp, uint32_t expiry);

/* Forgets a key. */
void cache_drop(struct cache *cache, const struct hash *hash, const void *key, uint32_t key_len);

#endif
