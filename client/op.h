/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An operation in flight: a state machine whose steps look at what landed and post the next batch
 * (client/op.c). The session owns the operations and their memory (client/session.c).
 */
#ifndef RKV_CLIENT_OP_H
#define RKV_CLIENT_OP_H

#include "client/alloc.h"
#include "client/session.h"
#include "proto/layout.h"

#define OP_INLINE_BLOCK 2048u /* blocks up to this length fit the scratch */

/* Registered memory of one operation. */
struct op_scratch {
	struct layout_bucket bucket[2][2]; /* A and B, each main and overflow, as they lie */
	uint64_t old;                      /* what a CAS found */
	uint64_t slot;                     /* what a READ of the slot found */
	unsigned char out[OP_INLINE_BLOCK]; /* header, key and, if it fits, value */
	unsigned char in[OP_INLINE_BLOCK];
};

/* Why an operation sleeps. */
enum op_sleep { SLEEP_NO, SLEEP_TIME, SLEEP_MEMORY, SLEEP_LINK };

/* Which CAS is out, in case the connection is lost with it. */
enum op_pending {
	PENDING_NO,
	PENDING_UPDATE,
	PENDING_DELETE,
	PENDING_TENTATIVE,
	PENDING_COMMIT,
	PENDING_WITHDRAW,
	PENDING_KILL,
};

/* What the next landing, or waking, is for; op.c tells them in order. */
enum op_step {
	STEP_START,
	STEP_FIND,
	STEP_WRITE,
	STEP_UPDATED,
	STEP_DELETE,
	STEP_DELETED,
	STEP_INSERT,
	STEP_RIVAL_KILLED,
	STEP_TENTATIVE,
	STEP_EXAMINE,
	STEP_CANDIDATE,
	STEP_KILLED,
	STEP_RECHECK,
	STEP_RECHECKED,
	STEP_WITHDRAWN,
	STEP_COMMIT,
	STEP_COMMITTED,
	STEP_EXPIRED,
	STEP_RESOLVE,
	STEP_RESOLVE_SLOT,
	STEP_RESOLVE_READ,
	STEP_RESOLVE_BLOCK,
	STEP_DOUBTFUL,
};

/* The same within STEP_FIND. */
enum find_step {
	FIND_WARM,
	FIND_WARM_LANDED,
	FIND_SLOT,
	FIND_SLOT_LANDED,
	FIND_LOOK,
	FIND_LOOK_LANDED,
	FIND_BLOCK,
	FIND_BLOCK_LANDED,
};

/* A slot and the word that was sampled in it. */
struct place {
	uint64_t off;
	uint64_t word;
};

#define OP_CANDIDATES_MAX (2 * LAYOUT_COMBINED_SLOTS)

struct op {
	struct landing landing; /* first: the cookie of its batches */
	struct op *next;        /* in flight (order of submission), free, or completed */
	struct op *prev;
	struct op_scratch *scratch;

	/* From here to the arrays: zero when it starts. */
	struct rkv_request *request;
	uint32_t *n_waiting; /* blocking calls: counted down instead of being polled */
	enum op_step step;
	enum find_step find;
	enum op_sleep sleep;
	enum op_pending pending;
	bool is_outstanding; /* a batch is out */
	bool has_atomic;     /* with a CAS in it */
	bool is_expired;
	uint64_t n_marks_before; /* marks posted before that CAS */
	int64_t wake_ns;
	int64_t deadline_ns; /* 0: has not looked at the clock yet */
	uint64_t start;      /* stamp, [STAMP] */
	uint32_t n_again;    /* retries, for the back-off */
	uint32_t n_batch;
	int alloc_status; /* why memory could not be had */
	uint32_t alloc_class;

	const unsigned char *key;
	uint32_t key_len;
	struct hash hash;
	uint64_t bucket_off[2]; /* of A and B */
	uint64_t index_off;

	/* The entry worked on: where, the word seen there, and its block as it landed. */
	struct place entry;
	const struct block_header *block;
	const unsigned char *block_value;
	void *in_run;   /* arena memory of a large block, or NULL */
	bool is_warm;   /* the entry came from the cache and is not confirmed yet */
	bool is_direct; /* the value lands in the caller's buffer */
	bool no_direct; /* it did not fit there: somebody else's key is longer */
	uint32_t n_invalid;    /* times in a row that the same word's block did not validate */
	uint64_t invalid_word;
	uint32_t n_candidates;
	uint32_t next_candidate;

	/* The new block. */
	struct block_ref mine;
	bool has_block;
	bool is_written;
	bool has_digest;
	void *out_run;
	const void *value; /* what is stored: the caller's, or for touch what landed */
	uint64_t value_len;
	uint64_t digest;
	uint64_t new_version;
	uint32_t new_expiry;
	uint32_t new_flags;
	uint64_t new_word; /* committed form */

	/* INSERT */
	struct place own; /* the slot taken, and the empty word it held */
	bool has_tentative;
	bool goes_to_update; /* withdraws for a committed word; else to let a rival go first */
	struct place rival;  /* a tentative word of the same key that goes first; off 0: none */
	int64_t rival_until_ns;
	uint32_t n_rivals;
	int64_t posted_ns;
	int64_t rtt_ns;

	struct place candidate[OP_CANDIDATES_MAX];
	struct fab_op batch[FAB_BATCH_MAX];
};

/* Makes a free op the request's; its key and value lengths are checked by the first step. */
void op_init(struct op *op, struct rkv_request *request);

/* Runs an operation's next step: after submission, a landing, or a sleep. */
void op_run(struct rkv_session *session, struct op *op);

/* Its deadline has passed while it sleeps: ends it, withdrawing a tentative word first. */
void op_expire(struct rkv_session *session, struct op *op);

/* A batch of it failed, or the link is another one: it sleeps until there is a link. */
void op_lost(struct rkv_session *session, struct op *op);

/* The session lives on under a new serial or in a new region: forget what it held there. */
void op_forget(struct rkv_session *session, struct op *op);

/* ---- Provided by session.c for op.c ---- */

/* Ends it: status and item are the caller's from now on. */
void op_complete(struct rkv_session *session, struct op *op, int status);

/* It is run again at its step, for one of these reasons or when its deadline passes. */
void op_sleep(struct rkv_session *session, struct op *op, enum op_sleep why, int64_t wake_ns);

/* It goes on without waiting for that. */
void op_wake(struct rkv_session *session, struct op *op);

#endif
