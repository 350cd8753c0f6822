/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The scrubber: mends what dead clients and lost connections left behind, [SCRUB]. It looks at the
 * region a slice at a time; what it suspects it keeps in lists of fixed length:
 *
 *   look    at slots: a tentative word is noted. At blocks: one that is valid, not marked, and
 *           referred to by no slot is noted, with its header
 *   a stamp passes: whoever had such a block or word in hand has ended, or is dead
 *   check   a tentative word that is still there is nobody's any more: it is killed, as any client
 *           may, and its block marked, [I6]. A block must be as it was, still without a slot
 *   a stamp passes: whoever took its word out of a slot meanwhile has marked the block, or is dead
 *   mark    a block that is still as it was
 *
 * Where a list is full the look is interrupted for that, and goes on behind it. A *pass* is a look
 * at everything. When a session has died a *hurried* pass comes before that: at once and faster,
 * over all slots and the chunks that are ORPHAN. What the dead left elsewhere (in chunks that were
 * adopted since, or of others' blocks that they replaced) is found by the passes, which get their
 * turn however many die.
 *
 * It also shows the sweeper what is live (expire.h), and counts what all blocks are, by size class.
 *
 * Memory: SCRUB_LIST_MAX suspects and words, about 1.2 MiB, whatever the region's size.
 */
#ifndef RKV_SERVER_SCRUB_H
#define RKV_SERVER_SCRUB_H

#include "server/blocks.h"

#define SCRUB_LIST_MAX 16384u

enum scrub_phase {
	SCRUB_CHOOSE,
	SCRUB_SLOTS,
	SCRUB_BLOCKS,
	SCRUB_FIRST_STAMP,
	SCRUB_CHECK,
	SCRUB_KILL,
	SCRUB_SECOND_STAMP,
	SCRUB_MARK,
};

struct scrub_suspect {
	uint64_t off;
	struct block_header header;
	uint32_t len;
};

struct scrub_word {
	uint64_t off;
	uint64_t word;
};

/* How far a look at everything has come. */
struct scrub_pass {
	bool is_under_way;
	bool has_expiries; /* a value was seen that will expire */
	uint64_t group;
	struct blocks_walk walk;
	uint64_t n_ended;  /* as told when it began */
	uint64_t n_mended; /* words and blocks, since it began */
};

/* What a pass has seen in the places of blocks, each as it was when it was looked at. */
struct scrub_tally {
	uint64_t moment; /* stamp of the look's end; 0: no pass has come so far */
	uint64_t bytes[LAYOUT_CLASSES_MAX][N_BLOCKS_KINDS];
};

struct scrub_counts {
	uint64_t n_passes;
	uint64_t n_hurried; /* passes */
	uint64_t n_kills;   /* tentative words */
	uint64_t n_marked;  /* blocks of these, and garbage */
	uint64_t n_marked_bytes;
	uint64_t n_expired;
	uint64_t n_expired_bytes;
	uint64_t n_doubts; /* words whose CAS failed, with an outcome that is not known */
};

struct scrub {
	const struct reach *reach;
	enum scrub_phase phase;
	struct scrub_pass pass;
	struct scrub_pass hurried;
	bool wants_hurry;
	bool is_idle;    /* a pass found nothing, and no session is known to have ended since */
	uint64_t n_died; /* as last told */
	uint64_t n_ended;
	uint64_t turn; /* bytes that the pass has looked at since the last hurried one */
	uint64_t moment;
	uint32_t next; /* of the list that is gone through */
	uint32_t n_kept;
	uint32_t n_suspects;
	uint32_t n_words;
	struct scrub_suspect *suspects;
	struct scrub_word *words;
	struct scrub_counts counts;
	struct scrub_tally tally;    /* of the last complete pass */
	struct scrub_tally tallying; /* of the one under way */
};

/* Failure: ERR_NOMEM. reach stays the caller's. */
int scrub_create(struct scrub *scrub, const struct reach *reach);

/* Accepts one that is zeroed. */
void scrub_destroy(struct scrub *scrub);

/* So many sessions have died by now, and so many times has one ended or lost its connection. */
void scrub_told(struct scrub *scrub, uint64_t n_died, uint64_t n_ended);

/* Is there, or may there be, anything to find? */
bool scrub_is_wanted(const struct scrub *scrub, bool is_anybody_there);

/*
 * Does the next thing: looks at about so many bytes, or goes so far through a list, or asks whether
 * a stamp has passed. It holds (reach.h) only meanwhile. False: it waits for that stamp.
 */
bool scrub_step(struct scrub *scrub, uint64_t bytes);

/* Steps until so many bytes have been looked at, or it waits. */
void scrub_tick(struct scrub *scrub, uint64_t bytes);

/* Does it look on behalf of the dead, so that it may have more than its rate? */
static inline bool
scrub_is_hurried(const struct scrub *scrub)
{
	return scrub->hurried.is_under_way;
}

#endif
