/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server's look at its own region, a slice each tick: counts chunks and index slots, and takes
 * chunks from sessions that are over, [DEAD]. It reads; the only word it changes is a descriptor
 * that names a session slot which is not living, by loop-back CAS.
 */
#ifndef RKV_SERVER_CENSUS_H
#define RKV_SERVER_CENSUS_H

#include "common/log.h"
#include "server/region.h"
#include "server/sessions.h"

struct census {
	struct region *region;
	struct sessions *sessions;
	const struct log *log;
	uint64_t next_chunk;  /* of the pass under way */
	bool failed;          /* a descriptor could not be changed: the pass proves nothing */
	bool told;            /* the log knows of it since the last pass that did not fail */
	uint64_t counting[4]; /* chunks by state */
	uint64_t n_chunks[4]; /* of the last complete pass, by enum chunk_state */
	uint64_t class_chunks[LAYOUT_CLASSES_MAX]; /* those that are not free, by size class */
	uint64_t class_counting[LAYOUT_CLASSES_MAX];
	uint64_t n_taken;    /* chunks taken from sessions that were over */
	uint64_t next_group; /* of the index pass under way */
	uint64_t counting_used;
	uint64_t live_counting[LAYOUT_CLASSES_MAX];
	uint64_t n_used; /* index slots that are not empty, of the last complete pass */
	uint64_t class_live[LAYOUT_CLASSES_MAX]; /* and the committed ones, by size class */
	uint64_t n_index_passes;
	uint64_t coming_until; /* stamp up to which chunks may become FREE, census_chunks_coming */
};

void census_init(struct census *census, struct region *region, struct sessions *sessions,
		 const struct log *log);

/*
 * Before any session joins: no chunk has an owner any more, so that slot numbers may be issued.
 * Failure: ERR_CONN: a descriptor could not be changed, as the log says.
 */
int census_take_all(struct census *census);

/* The next slice of the chunk table and of the index. */
void census_tick(struct census *census);

/* Sessions may have just ended: begins a pass for them at once, unless one is under way. */
void census_hurry(struct census *census);

/* As many slices as it takes until every session that is ending now is free, or a pass fails. */
void census_finish_ending(struct census *census);

/* [STAMP]'s companion: are so few chunks free that clients should give some back? */
bool census_chunks_short(const struct census *census);

/* A client says that sessions of it drain so many chunks. */
void census_told_of_draining(struct census *census, uint32_t n_draining);

/*
 * May chunks become FREE though nobody deletes anything, [WRAP]? So it is while sessions drain some
 * or are ending, and for some seconds behind that.
 */
bool census_chunks_coming(const struct census *census);

#endif
