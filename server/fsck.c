/* SPDX-License-Identifier: BSD-2-Clause */
/* Counting what each byte is: fsck.h. */
#include "server/fsck.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/err.h"

#define EXPLAIN_TRIES 3u

static void
add(struct fsck *f, enum fsck_part part, uint64_t n, uint64_t bytes)
{
	f->part[part].n += n;
	f->part[part].bytes += bytes;
}

/* What does not depend on what is stored. */
static void
add_fixed_parts(struct fsck *f)
{
	const struct layout *l = f->reach->layout;
	uint64_t index_len = l->n_groups * LAYOUT_GROUP_LEN;
	uint64_t map_len = l->n_chunks * (l->chunk_size / LIMIT_GRANULE);
	uint64_t heap_end = layout_chunk_off(l, l->n_chunks), end = heap_end;
	add(f, FSCK_SUPERBLOCK, 1, LAYOUT_PAGE);
	add(f, FSCK_INDEX, l->n_groups * LAYOUT_GROUP_SLOTS, index_len);
	add(f, FSCK_CHUNK_TABLE, l->n_chunks, l->n_chunks * 8);
	add(f, FSCK_FREE_MAP, map_len, map_len);
	add(f, FSCK_PADDING, 0, l->index_off - LAYOUT_PAGE);
	add(f, FSCK_PADDING, 0, l->chunk_table_off - l->index_off - index_len);
	add(f, FSCK_PADDING, 0, l->free_map_off - l->chunk_table_off - l->n_chunks * 8);
	add(f, FSCK_PADDING, 0, l->heap_off - l->free_map_off - map_len);
	if (l->has_hints) {
		end = layout_hint_off(l, heap_end);
		add(f, FSCK_PADDING, 0, l->hint_off - heap_end);
		add(f, FSCK_HINTS, 0, end - l->hint_off);
	}
	add(f, FSCK_UNUSED, 0, l->region_len - end);
}

int
fsck_begin(struct fsck *f, const struct reach *reach)
{
	*f = (struct fsck){.reach = reach};
	f->corrupt = calloc(FSCK_CORRUPT_MAX, sizeof(*f->corrupt));
	if (!f->corrupt)
		return ERR_NOMEM;
	add_fixed_parts(f);
	return 0;
}

void
fsck_end(struct fsck *f)
{
	free(f->corrupt);
	*f = (struct fsck){0};
}

/* ---- Slots ---- */

/*
 * A block stays as it is while a word refers to it, [IMMUTABLE]: if the word is still there after a
 * look at the block, that look counts.
 */
static bool
is_corrupt(const struct fsck *f, uint64_t off, uint64_t word)
{
	for (unsigned i = 0; i < EXPLAIN_TRIES; i++) {
		if (!slot_refers(word) && slot_state(word) != SLOT_FORWARDED)
			return false;
		if (slot_refers(word) && blocks_explain(f->reach, off, word))
			return false;
		uint64_t now = reach_word(reach_at(f->reach, off, 8));
		if (now == word)
			return true;
		word = now;
	}
	return false; /* it moves: somebody is at work there */
}

static void
look_at_slot(struct fsck *f, uint64_t off)
{
	uint64_t word = reach_word(reach_at(f->reach, off, 8));
	if (word == 0)
		return;
	f->n_words[slot_state(word)]++;
	if (!is_corrupt(f, off, word))
		return;
	f->n_corrupt_words++;
	if (f->n_corrupt < FSCK_CORRUPT_MAX)
		f->corrupt[f->n_corrupt++] = slot_block_off(word);
}

static int
compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

static uint64_t
look_at_slots(struct fsck *f, uint64_t bytes)
{
	const struct layout *l = f->reach->layout;
	uint64_t n = 0;
	for (; n < bytes && f->group < l->n_groups; n += LAYOUT_GROUP_LEN) {
		uint64_t off = l->index_off + f->group++ * LAYOUT_GROUP_LEN;
		for (uint32_t at = 0; at < LAYOUT_GROUP_LEN; at += 8)
			if (at % LAYOUT_BUCKET_LEN != 0)
				look_at_slot(f, off + at);
	}
	if (f->group == l->n_groups)
		qsort(f->corrupt, f->n_corrupt, sizeof(*f->corrupt), compare);
	return n;
}

/* ---- Chunks ---- */

/* The walk passes over free chunks; here they are counted, up to the one that it is at. */
static void
count_chunks(struct fsck *f, uint64_t end)
{
	const struct layout *l = f->reach->layout;
	for (; f->counted_chunk < end; f->counted_chunk++) {
		uint64_t off = layout_desc_off(l, f->counted_chunk);
		uint64_t desc = reach_word(reach_at(f->reach, off, 8));
		bool is_corrupt_desc =
			chunk_state(desc) != CHUNK_FREE && chunk_class(desc) > layout_max_class(l);
		add(f, is_corrupt_desc ? FSCK_CORRUPT : FSCK_FREE_CHUNKS, 1, l->chunk_size);
	}
}

static bool
is_noted_as_corrupt(const struct fsck *f, uint64_t off)
{
	return bsearch(&off, f->corrupt, f->n_corrupt, sizeof(off), compare) != NULL;
}

static enum fsck_part
part_of(const struct fsck *f, const struct blocks_look *look)
{
	static const enum fsck_part parts[N_BLOCKS_KINDS] = {
		[BLOCKS_FREE] = FSCK_FREE,     [BLOCKS_RESTING] = FSCK_RESTING,
		[BLOCKS_LIVE] = FSCK_LIVE,     [BLOCKS_TENTATIVE] = FSCK_TENTATIVE,
		[BLOCKS_LOOSE] = FSCK_GARBAGE, [BLOCKS_ODD] = FSCK_CORRUPT,
	};
	if (look->n_words > 1 || is_noted_as_corrupt(f, look->off))
		return FSCK_CORRUPT;
	return parts[look->kind];
}

static uint64_t
look_at_block(struct fsck *f)
{
	struct blocks_look look;
	uint64_t off = blocks_walk_next(f->reach, &f->walk);
	blocks_look(f->reach, off, f->walk.len, &look);
	add(f, part_of(f, &look), 1, look.len);
	return look.n_bytes;
}

/* The chunk that the walk has come to. */
static void
enter_chunk(struct fsck *f)
{
	uint64_t tail = f->reach->layout->chunk_size - (uint64_t)f->walk.n * f->walk.len;
	count_chunks(f, f->walk.chunk);
	f->counted_chunk++;
	if (tail)
		add(f, FSCK_TAILS, 1, tail);
}

bool
fsck_step(struct fsck *f, uint64_t bytes)
{
	uint64_t n = look_at_slots(f, bytes);
	while (n < bytes) {
		bool is_there = blocks_walk_on(f->reach, &f->walk, NULL);
		if (is_there && f->counted_chunk <= f->walk.chunk)
			enter_chunk(f);
		else if (!is_there)
			count_chunks(f, f->walk.chunk);
		if (!is_there)
			return blocks_walk_is_over(f->reach, &f->walk);
		n += look_at_block(f);
	}
	return false;
}

bool
fsck_is_clean(const struct fsck *f)
{
	return f->part[FSCK_CORRUPT].bytes == 0 && f->n_corrupt_words == 0;
}

/* ---- Telling ---- */

size_t
fsck_text(const struct fsck *f, char ret_text[FSCK_TEXT_MAX])
{
	static const char *const names[N_FSCK_PARTS][2] = {
		[FSCK_SUPERBLOCK] = {"superblock_bytes", NULL},
		[FSCK_INDEX] = {"index_bytes", "index_slots"},
		[FSCK_CHUNK_TABLE] = {"chunk_table_bytes", "chunks"},
		[FSCK_FREE_MAP] = {"free_map_bytes", NULL},
		[FSCK_PADDING] = {"padding_bytes", NULL},
		[FSCK_FREE_CHUNKS] = {"free_chunk_bytes", "free_chunks"},
		[FSCK_TAILS] = {"chunk_tail_bytes", "chunk_tails"},
		[FSCK_LIVE] = {"live_bytes", "live_blocks"},
		[FSCK_TENTATIVE] = {"tentative_bytes", "tentative_blocks"},
		[FSCK_FREE] = {"free_bytes", "free_blocks"},
		[FSCK_RESTING] = {"resting_bytes", "resting_blocks"},
		[FSCK_GARBAGE] = {"garbage_bytes", "garbage_blocks"},
		[FSCK_CORRUPT] = {"corrupt_bytes", "corrupt_blocks"},
		[FSCK_HINTS] = {"hint_bytes", NULL},
		[FSCK_UNUSED] = {"unused_bytes", NULL},
	};
	uint64_t total = 0;
	int len = 0;
	for (unsigned i = 0; i < N_FSCK_PARTS; i++) {
		const struct fsck_count *c = &f->part[i];
		total += c->bytes;
		len += snprintf(ret_text + len, FSCK_TEXT_MAX - (size_t)len, "%s %" PRIu64 "\n",
				names[i][0], c->bytes);
		if (names[i][1])
			len += snprintf(ret_text + len, FSCK_TEXT_MAX - (size_t)len,
					"%s %" PRIu64 "\n", names[i][1], c->n);
	}
	len += snprintf(ret_text + len, FSCK_TEXT_MAX - (size_t)len,
			"sum_bytes %" PRIu64 "\npool_bytes %" PRIu64 "\nwords_committed %" PRIu64
			"\nwords_tentative %" PRIu64 "\nwords_deleted %" PRIu64
			"\nwords_corrupt %" PRIu64 "\nclean %d\n",
			total, f->reach->layout->region_len, f->n_words[SLOT_COMMITTED],
			f->n_words[SLOT_TENTATIVE], f->n_words[SLOT_DELETED], f->n_corrupt_words,
			fsck_is_clean(f));
	return (size_t)len; /* some 30 lines of at most 40 bytes */
}
