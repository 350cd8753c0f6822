/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is in the place of a block, as the server's CPU sees it: for the scrubber, the sweeper and
 * fsck. It only looks.
 *
 * A valid header names its key, and a slot can refer to the block in the key's two combined buckets
 * only ([SELF-ID]: no reader accepts it elsewhere). So 28 slots are the whole index for it, and
 * nobody needs a table of all references.
 */
#ifndef RKV_SERVER_BLOCKS_H
#define RKV_SERVER_BLOCKS_H

#include "server/reach.h"

enum blocks_kind {
	BLOCKS_FREE,      /* marked, or without a valid header: never written, or torn */
	BLOCKS_RESTING,   /* marked after its last tag: used again behind a stamp, [WRAP] */
	BLOCKS_LIVE,      /* a committed word refers to it */
	BLOCKS_TENTATIVE, /* a tentative word does */
	BLOCKS_LOOSE,     /* valid, not marked, and no slot refers to it: about to be, or garbage */
	BLOCKS_ODD,       /* valid; the map tells of neither this nor the last incarnation */
	N_BLOCKS_KINDS
};

struct blocks_look {
	uint64_t off;
	uint32_t len; /* the class's */
	enum blocks_kind kind;
	struct block_header header;
	uint64_t slot_off; /* LIVE, TENTATIVE: the slot that refers to it, or the last of them */
	uint64_t word;
	unsigned n_words; /* slots that refer to it */
	uint64_t n_bytes; /* looked at */
};

/* Looks at the block of len bytes at an offset. Not at one moment: others move meanwhile. */
void blocks_look(const struct reach *reach, uint64_t off, uint32_t len,
		 struct blocks_look *ret_look);

/* Has the slot at an offset, in which this word was, a reason for it: a valid block of its key? */
bool blocks_explain(const struct reach *reach, uint64_t slot_off, uint64_t word);

/* A walk over the blocks of all chunks that are not FREE. Zeroed: at the beginning. */
struct blocks_walk {
	uint64_t chunk; /* the present one */
	uint32_t n;     /* blocks of it; 0: its descriptor was not looked at */
	uint32_t next;
	uint32_t len; /* of each */
	uint64_t desc;
};

/*
 * Is there a next block? Goes on to the next chunk if the present one is used up; which: NULL, or
 * whether a descriptor's chunk is to be walked. False: the walk is over (blocks_walk_is_over), or
 * many chunks were passed over, and the caller may do something else meanwhile.
 */
bool blocks_walk_on(const struct reach *reach, struct blocks_walk *walk,
		    bool (*which)(uint64_t desc));

static inline bool
blocks_walk_is_over(const struct reach *reach, const struct blocks_walk *walk)
{
	return walk->chunk == reach->layout->n_chunks;
}

/* The offset of the next block, behind a blocks_walk_on that was true. */
uint64_t blocks_walk_next(const struct reach *reach, struct blocks_walk *walk);

#endif
