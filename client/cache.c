/* SPDX-License-Identifier: BSD-2-Clause */
/* The location cache: see cache.h. */
#include "client/cache.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"

#define SECOND_CHANCES 4 /* entries moved to the head by one cache_put, at most */
#define INDEX_SHARE 5    /* the index takes 1/5 of the memory, or less */

static struct cache_line empty_line; /* never written */

int
cache_create(struct cache *cache, size_t bytes)
{
	*cache = (struct cache){.line = &empty_line};
	if (bytes < CACHE_BYTES_MIN)
		return 0;
	size_t n_lines = 1;
	while (2 * n_lines * sizeof(struct cache_line) <= bytes / INDEX_SHARE && n_lines < 1u << 28)
		n_lines *= 2;
	size_t index_len = n_lines * sizeof(struct cache_line);
	size_t ring_len = (bytes - index_len) / 8 * 8;
	if (ring_len > UINT32_MAX / 8 * 8)
		ring_len = UINT32_MAX / 8 * 8;
	cache->memory = aligned_alloc(64, (index_len + ring_len + 63) / 64 * 64);
	if (!cache->memory)
		return ERR_NOMEM;
	cache->line = (struct cache_line *)(void *)cache->memory;
	cache->line_mask = (uint32_t)n_lines - 1;
	cache->ring = cache->memory + index_len;
	cache->ring_len = (uint32_t)ring_len;
	cache_clear(cache);
	return 0;
}

void
cache_destroy(struct cache *cache)
{
	free(cache->memory);
	*cache = (struct cache){.line = &empty_line};
}

void
cache_clear(struct cache *cache)
{
	if (!cache->memory)
		return;
	memset(cache->line, 0, ((size_t)cache->line_mask + 1) * sizeof(*cache->line));
	cache->head = 0;
	cache->tail = 0;
	cache->wrapped = false;
	cache->n_entries = 0;
	cache->n_changes++;
}

static uint64_t
way_make(uint32_t tag, uint32_t pos)
{
	return (uint64_t)tag << 32 | (pos / 8 + 1);
}

static uint64_t *
way_to(struct cache *cache, uint32_t tag, uint32_t pos)
{
	struct cache_line *line = &cache->line[tag & cache->line_mask];
	for (uint32_t i = 0; i < CACHE_WAYS; i++)
		if (line->way[i] == way_make(tag, pos))
			return &line->way[i];
	return NULL;
}

static void
forget(struct cache *cache, uint64_t *way)
{
	cache_entry_at(cache, cache_way_pos(*way))->indexed = 0;
	cache->n_changes++;
	*way = 0;
	cache->n_entries--;
}

void
cache_drop(struct cache *cache, const struct hash *hash, const void *key, uint32_t key_len)
{
	if (!cache->memory)
		return;
	uint64_t *way = cache_way_of(cache, hash_cache_tag(hash), key, key_len);
	if (way)
		forget(cache, way);
}

/* A free way of the tag's line; the one whose entry is nearest to be overwritten gives way. */
static uint64_t *
way_free(struct cache *cache, uint32_t tag)
{
	struct cache_line *line = &cache->line[tag & cache->line_mask];
	uint64_t *oldest = NULL;
	uint32_t oldest_age = 0;
	for (uint32_t i = 0; i < CACHE_WAYS; i++) {
		if (line->way[i] == 0)
			return &line->way[i];
		uint32_t pos = cache_way_pos(line->way[i]);
		uint32_t age = cache->head - pos + (pos >= cache->head ? cache->ring_len : 0);
		if (!oldest || age > oldest_age) {
			oldest = &line->way[i];
			oldest_age = age;
		}
	}
	forget(cache, oldest);
	return oldest;
}

/* Moves the tail over the oldest entry; returns it if it deserves a second chance. */
static struct cache_entry *
retire_oldest(struct cache *cache)
{
	struct cache_entry *e = cache_entry_at(cache, cache->tail);
	uint64_t *way = e->indexed ? way_to(cache, e->tag, cache->tail) : NULL;
	cache->tail += e->len;
	if (cache->wrapped && cache->tail == cache->end) {
		cache->tail = 0;
		cache->wrapped = false;
	}
	if (!way)
		return NULL;
	forget(cache, way);
	return e->used ? e : NULL;
}

/*
 * Is there room for len bytes at the head? Wraps the head when the rest of the ring is too short
 * and the oldest entries are not in the way.
 */
static bool
has_room(struct cache *cache, uint32_t len)
{
	if (cache->wrapped)
		return cache->tail - cache->head >= len;
	if (cache->head == cache->tail) {
		cache->head = 0;
		cache->tail = 0;
	}
	if (cache->ring_len - cache->head >= len)
		return true;
	if (cache->tail < len)
		return false;
	cache->end = cache->head;
	cache->head = 0;
	cache->wrapped = true;
	return true;
}

static void
append(struct cache *cache, const struct cache_entry *model, const void *key)
{
	uint64_t *way = way_free(cache, model->tag);
	struct cache_entry *e = cache_entry_at(cache, cache->head);
	memcpy(e->key, key, model->key_len);
	memcpy(e, model, offsetof(struct cache_entry, key));
	e->used = 0;
	e->indexed = 1;
	*way = way_make(e->tag, cache->head);
	cache->head += e->len;
	cache->n_entries++;
}

/* Makes room for len bytes, at the price of the oldest entries. */
static void
make_room(struct cache *cache, uint32_t len)
{
	unsigned chances = SECOND_CHANCES;
	while (!has_room(cache, len)) {
		const struct cache_entry *again = retire_oldest(cache);
		if (!again || chances == 0)
			continue;
		chances--;
		_Alignas(struct cache_entry) unsigned char copy[sizeof(*again) + LIMIT_KEY_MAX + 8];
		memcpy(copy, again, again->len);
		again = (const struct cache_entry *)(void *)copy;
		if (has_room(cache, again->len))
			append(cache, again, again->key);
	}
}

void
cache_put(struct cache *cache, const struct hash *hash, const void *key, uint32_t key_len,
	  uint64_t slot_off, uint64_t word, uint64_t stamp, uint32_t expiry)
{
	if (!cache->memory)
		return;
	uint32_t tag = hash_cache_tag(hash);
	uint64_t *way = cache_way_of(cache, tag, key, key_len);
	if (way) {
		struct cache_entry *e = cache_entry_at(cache, cache_way_pos(*way));
		e->word = word;
		e->slot_off = slot_off;
		e->stamp = stamp;
		e->expiry = expiry;
		return;
	}
	struct cache_entry model = {
		.word = word,
		.slot_off = slot_off,
		.stamp = stamp,
		.tag = tag,
		.expiry = expiry,
		.len = (uint32_t)(offsetof(struct cache_entry, key) + key_len + 7) / 8 * 8,
		.key_len = (uint16_t)key_len,
	};
	if (model.len > cache->ring_len)
		return;
	make_room(cache, model.len);
	append(cache, &model, key);
}
