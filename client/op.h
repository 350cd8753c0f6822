/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An operation in flight: a state machine whose steps look at what landed and post the next batch
 * (client/op.c). The session owns the operations and their memory (client/session.c).
 */
#ifndef RKV_CLIENT_OP_H
#define RKV_CLIENT_OP_H

#include <string.h>

#include "client/alloc.h"
#include "client/session.h"
#include "proto/layout.h"

#define OP_INLINE_BLOCK 2048u /* blocks up to this length fit the scratch */

/* Registered memory of one operation. */
struct op_scratch {
	struct layout_bucket bucket[2][2];  /* A and B, each main and overflow, as they lie */
	uint64_t old;                       /* what a CAS found */
	uint64_t slot;                      /* what a READ of the slot found */
	uint64_t hint;                      /* access hint that goes out, [HINT] */
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

	struct rkv_request *request;
	struct rkv_op_stats *stats; /* of its kind, in the session */
	uint32_t *n_waiting;        /* blocking calls: counted down instead of being polled */
	uint64_t start;             /* stamp, [STAMP] */
	const unsigned char *key;
	uint32_t key_len;
	struct hash hash;

	/* Zero when it starts: from step to start_of_rest, for mutations on to end_of_zero. */
	enum op_step step;
	enum find_step find;
	enum op_sleep sleep;
	enum op_pending pending;
	bool is_outstanding; /* a batch is out */
	bool has_atomic;     /* with a CAS in it */
	bool is_expired;     /* its deadline has passed; it withdraws its tentative word */
	bool is_warm;        /* the entry came from the cache and is not confirmed yet */
	bool is_direct;      /* the value lands in the caller's buffer */
	bool no_direct;      /* it did not fit there: somebody else's key is longer */
	uint16_t n_batch;
	uint32_t n_again;    /* retries, for the back-off */
	uint32_t n_invalid;  /* times in a row that the same word's block did not validate */
	int64_t deadline_ns; /* 0: has not looked at the clock yet */
	void *in_run;        /* arena memory of a large block, or NULL */
	char start_of_rest[0];

	/* The new block. */
	struct block_ref mine;
	bool has_block;
	bool is_written;
	bool is_in_doubt; /* written over a connection that was lost before the WRITE completed */
	bool has_digest;
	int alloc_status; /* why memory could not be had */
	uint32_t n_short; /* how often it has waited for eviction */
	uint32_t alloc_class;
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
	bool goes_to_update;      /* withdraws for a committed word; else to let a rival go first */
	bool rival_is_in_the_way; /* whoever's key it is: it takes the only place that is left */
	struct place rival;       /* a tentative word that goes first; off 0: none */
	int64_t rival_until_ns;
	uint32_t n_rivals;
	int64_t posted_ns;
	int64_t rtt_ns;
	char end_of_zero[0];

	/* The entry worked on: where, the word seen there, and its block as it landed. */
	struct place entry;
	const struct block_header *block;
	uint64_t block_room; /* bytes that landed */
	const unsigned char *block_value;
	uint64_t invalid_word;
	struct cache_entry
		*cached; /* where the entry came from, valid while cache.n_changes stays */
	uint64_t cache_changes;

	uint64_t n_marks_before; /* marks posted before the batch's CAS */
	int64_t wake_ns;
	uint64_t bucket_off[2]; /* of A and B, once looked at */
	uint32_t n_candidates;
	uint32_t next_candidate;
	struct place candidate[OP_CANDIDATES_MAX];
	struct fab_op batch[FAB_BATCH_MAX];
};

/* Makes a free op the request's; its key and value lengths are checked by the first step. */
static inline void
op_init(struct rkv_session *session, struct op *op, struct rkv_request *request, enum rkv_op kind)
{
	size_t from = offsetof(struct op, step);
	op->request = request;
	op->stats = &session->stats.op[kind];
	if (kind == RKV_OP_GET) {
		memset(&op->step, 0, offsetof(struct op, start_of_rest) - from);
		return;
	}
	memset(&op->step, 0, offsetof(struct op, end_of_zero) - from);
	request->item = (struct rkv_item){0};
}

/* What its batches' completions are delivered to (landing.landed). */
void op_landed(struct rkv_session *session, struct landing *self, int status);

/* Runs an operation's next step: after submission, a landing, or a sleep. */
void op_run(struct rkv_session *session, struct op *op);

/*
 * A blocking GET, while nothing else is outstanding, in a region without hints: if the cache knows
 * the key's place, its one round trip is made right here, without a place among the operations in
 * flight. True: it is over, the status is the request's. False: it goes on as an ordinary
 * operation, from the step where it is.
 */
bool op_try_warm(struct rkv_session *session, struct op *op);

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
