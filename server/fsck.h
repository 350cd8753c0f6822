/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What each byte of a region is: looks at every slot and every block, and counts. It changes
 * nothing. On a region that nobody uses the answer is exact. While clients are at work it is made
 * of looks at different moments: each block is counted once, as it was when it was looked at, and
 * the sum is the region's length all the same; what a client has in hand just then (written and not
 * yet published, or replaced and not yet marked) counts as garbage. A word is called corrupt only
 * if it was so while it did not change.
 */
#ifndef RKV_SERVER_FSCK_H
#define RKV_SERVER_FSCK_H

#include <stddef.h>

#include "server/blocks.h"

#define FSCK_TEXT_MAX 2048u
#define FSCK_CORRUPT_MAX 65536u /* blocks with words that nothing explains, told one by one */

struct fsck_count {
	uint64_t n;
	uint64_t bytes;
};

enum fsck_part {
	FSCK_SUPERBLOCK,
	FSCK_INDEX,
	FSCK_CHUNK_TABLE,
	FSCK_FREE_MAP,
	FSCK_PADDING,     /* between these */
	FSCK_FREE_CHUNKS, /* chunks that belong to nobody */
	FSCK_TAILS,       /* of other chunks: too short for another block */
	FSCK_LIVE,
	FSCK_TENTATIVE, /* being inserted */
	FSCK_FREE,
	FSCK_RESTING, /* free, but used again behind a stamp only: its tags have come round */
	FSCK_GARBAGE, /* valid and not marked, and no slot refers to it */
	FSCK_CORRUPT, /* contradicts itself: a word without its block, a block with two words */
	FSCK_HINTS,   /* what was used when, for eviction */
	FSCK_UNUSED,  /* behind all that */
	N_FSCK_PARTS
};

struct fsck {
	const struct reach *reach;
	struct fsck_count part[N_FSCK_PARTS];
	uint64_t n_words[4]; /* in slots, by enum slot_state */
	uint64_t n_corrupt_words;
	uint64_t group; /* next to be looked at */
	struct blocks_walk walk;
	uint64_t counted_chunk; /* chunks below it are in tails or free_chunks */
	uint64_t *corrupt;      /* offsets of blocks, sorted when the blocks are looked at */
	uint32_t n_corrupt;
};

/* reach stays the caller's, and needs no calls but `at`. Failure: ERR_NOMEM. */
int fsck_begin(struct fsck *fsck, const struct reach *reach);

/* Looks at about so many bytes; true: all is counted. */
bool fsck_step(struct fsck *fsck, uint64_t bytes);

/* Accepts one that is zeroed. */
void fsck_end(struct fsck *fsck);

bool fsck_is_clean(const struct fsck *fsck);

/* Lines "name value"; returns their length without the NUL, which is there too. */
size_t fsck_text(const struct fsck *fsck, char ret_text[FSCK_TEXT_MAX]);

#endif
