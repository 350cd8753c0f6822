/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Blocks for a session: it claims chunks by CAS and allocates from its own only. Taking a block
 * that is at hand costs no verb; everything else is one *job* at a time, a state machine of its
 * own, for which operations wait (client/alloc.c tells the order in which memory is looked for).
 */
#ifndef RKV_CLIENT_ALLOC_H
#define RKV_CLIENT_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

#include "client/stamps.h"
#include "common/fabric.h"
#include "proto/layout.h"

struct rkv_session;
struct chunk;

struct block_ref {
	uint64_t off;
	uint32_t tag;
	uint32_t i; /* in its chunk */
	uint32_t block_class;
	struct chunk *chunk;
};

/* A freed block that rests until the stamp of the moment has passed, [WRAP]. */
struct resting {
	struct chunk *chunk;
	uint32_t i;
	uint64_t mark; /* its mark's number */
	struct moment moment;
};

/* Where memory is looked for, in this order; see alloc.c. */
enum alloc_stage {
	STAGE_FLUSH,
	STAGE_SCAN,
	STAGE_REAP_SOME,
	STAGE_GIVE,
	STAGE_FIND,
	STAGE_REAP_ALL,
	STAGE_FOREIGN,
	STAGE_END,
};

/* What the batch that is out was for. */
enum alloc_step {
	ALLOC_FLUSHED,
	ALLOC_SCANNED,
	ALLOC_REAPED,
	ALLOC_FOUND,
	ALLOC_CLAIMED,
	ALLOC_MAPPED,
	ALLOC_GIVEN,
};

enum alloc_job { JOB_NONE, JOB_TAKE, JOB_GIVE_BACK };

struct alloc {
	struct chunk **by_index; /* n_chunks of the region; NULL: not ours */
	struct chunk **own;      /* in no order */
	uint32_t n_own;
	uint32_t own_capacity;
	struct chunk *ready[LAYOUT_CLASSES_MAX]; /* circular lists of chunks with a block at hand */
	struct resting *resting;                 /* ring, FIFO */
	uint32_t n_resting;
	uint32_t n_resting_known; /* the first of them, whose moment's stamp is known */
	uint32_t first_resting;
	uint32_t resting_capacity;
	uint32_t n_draining;
	uint32_t now_us; /* last look at the clock */

	/* The job */
	enum alloc_job job;
	enum alloc_stage stage;
	enum alloc_step step;
	uint32_t class_id;  /* wanted */
	uint64_t start;     /* stamp at which the job began, [STAMP] */
	uint32_t reap_next; /* into own */
	uint32_t reap_left;
	struct chunk *at_hand; /* being scanned, reaped, claimed or given */
	uint64_t find_first;   /* first descriptor in the window */
	uint64_t find_skip;    /* second pass: descriptors below it were looked at */
	uint32_t find_len;     /* descriptors in the window */
	bool sees_others;      /* other living sessions have chunks */
	uint64_t claim_desc;   /* what the CAS expects */
	uint64_t new_desc;     /* and what it puts */
	int64_t foreign_ns;    /* when the last second pass ended */
	uint64_t n_marks_before;

	unsigned char *window; /* registered */
	uint32_t window_len;
	uint64_t *cas_old;    /* registered, FAB_BATCH_MAX of them */
	uint64_t *flush_old;  /* registered */
	unsigned char *marks; /* registered: 256 bytes, marks[i] == i */
	uint32_t key;

	/* Stamp since which none of a class has been found, or 0. */
	uint64_t lacking_since[LAYOUT_CLASSES_MAX];
};

#define ALLOC_WINDOW_MIN (UINT32_C(64) << 10) /* bytes; and never less than a chunk */

/* Registered memory it needs, for this geometry. */
uint64_t alloc_memory_len(const struct layout *layout);

/* Starts with no chunks. Failure: ERR_NOMEM. */
int alloc_create(struct alloc *alloc, const struct layout *layout, unsigned char *memory,
		 uint32_t key);
void alloc_destroy(struct alloc *alloc);

/*
 * Takes a block of at least n_granules. 0: *ret_block is ours, its next incarnation is
 * ret_block->tag.
 * ERR_AGAIN: a job was started; the operation waits (SLEEP_MEMORY). ERR_TIMEOUT: a block will be
 * at hand at *ret_wake_ns.
 */
int alloc_take(struct rkv_session *session, uint32_t n_granules, struct block_ref *ret_block,
	       int64_t *ret_wake_ns);

/* Gives back a block that no verb has written: the same tag serves again. */
void alloc_put_back(struct rkv_session *session, const struct block_ref *block);

/*
 * The incarnation `tag` of a block is over and its mark is posted as number `mark`. If the block is
 * of an own chunk, it is at hand again once the mark has completed.
 */
void alloc_freed(struct rkv_session *session, uint64_t block_off, uint32_t tag, uint64_t mark);

/*
 * Starts giving back chunks that have drained, if no job is running; reap: looks first which of the
 * others have nothing in use.
 */
void alloc_give_back(struct rkv_session *session, bool reap);

/*
 * The connection is lost, and with it marks and blocks in doubt: what was posted counts for
 * nothing, own chunks are no longer in good order.
 */
void alloc_link_lost(struct rkv_session *session);

/* Leaves every chunk for others (blocking; the session is otherwise idle). */
void alloc_leave(struct rkv_session *session, int64_t deadline_ns);

/* The completion of the job's batch. */
void alloc_landed(struct rkv_session *session, int status);

#endif
