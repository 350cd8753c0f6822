/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Eviction: where the server is told to (--evict), it takes values that were not used for long out
 * of a pool that runs short, or of an index that fills up, so that there is room for new ones.
 * Whoever looks for such a key finds it absent.
 *
 * What is short, and where: only the owner of a chunk allocates from it, so each *group* (a
 * session's chunks of one class) needs free blocks of its own. A pass over the index counts the
 * values in each group; what is missing to a reserve is to be evicted there. A group that used
 * up more since the last pass has a larger reserve.
 *
 * Chunks change hands too. A session that is idle keeps its chunks, and its values grow old. So now
 * and then, while free chunks run short, the coldest are *condemned*: the next pass evicts all that
 * is in them, their owner finds them empty and gives them back.
 *
 * What goes: sampling. Random groups of slots are looked at, values of chunks that need room become
 * candidates, and the oldest of some goes first, by its access hint, [HINT]; values whose time
 * is over go first. A hint that is late, lost or another block's only makes the choice worse: what
 * takes a value out is a CAS on the word that was sampled.
 *
 * It works in slices on the control loop, each of a bounded time.
 */
#ifndef RKV_SERVER_EVICT_H
#define RKV_SERVER_EVICT_H

#include "server/reach.h"
#include "server/sessions.h"

#define EVICT_CANDIDATES 16u

struct evict_candidate {
	uint64_t slot_off;
	uint64_t word;
	uint32_t group;
	uint32_t age; /* stamps since the last use that is known; EVICT_AGE_OVER: expired */
};

struct evict_group {
	uint32_t n_blocks; /* of its chunks */
	uint32_t n_live;   /* counted by the pass under way, without what went behind it */
	uint32_t n_free;   /* at the end of the last pass */
	uint32_t n_lacking;
	uint32_t n_evicted; /* since the pass began */
};

/* As the pass under way sees it. */
struct evict_chunk {
	uint64_t ages; /* of its values, in stamps */
	uint32_t n_live;
	bool is_condemned;
};

struct evict {
	const struct reach *reach; /* NULL: no eviction */
	const struct sessions *sessions;
	struct evict_group *groups; /* by owner and class */
	struct evict_chunk *chunks;
	uint64_t condemned_stamp; /* when chunks were condemned last; 0: never */
	uint64_t n_condemned;
	uint32_t *active;          /* the groups that have a chunk, of the pass under way */
	uint32_t *formerly_active; /* and of the one before */
	uint32_t n_active;
	uint64_t next_bucket_group; /* of the pass under way */
	uint64_t n_values;          /* seen by it, without what went behind it */
	uint64_t n_free_chunks;     /* when it began */
	bool is_quick;              /* it counts values only */
	bool is_near;               /* the pool is short, or not far from it */
	bool has_failed;            /* a CAS of the present slice */
	uint64_t n_lacking;         /* blocks to be freed: sum over the groups */
	uint64_t n_crowding;        /* values that make the index too full */
	uint64_t random;
	struct evict_candidate candidate[EVICT_CANDIDATES]; /* the oldest last */
	unsigned n_candidates;
	uint64_t n_passes;
	uint64_t n_evicted;
	uint64_t n_expired; /* evicted because their time was over */
	uint32_t age;       /* stamps; of what was evicted by its age, about the last eight */
};

/* Begins, if the region has hints. Failure: ERR_NOMEM. */
int evict_create(struct evict *evict, const struct reach *reach, const struct sessions *sessions);
void evict_destroy(struct evict *evict);

/* A slice. Returns in how many ms the next one is due. */
unsigned evict_tick(struct evict *evict);

#endif
