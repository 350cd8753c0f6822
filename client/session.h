/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A session: one thread's operations on a region. It owns an endpoint, registered memory, a
 * location cache and chunks; nothing of it is shared with other sessions, so there is no lock on
 * the data path.
 *
 * The session's thread calls everything here, except what stands under "For the control thread".
 */
#ifndef RKV_CLIENT_SESSION_H
#define RKV_CLIENT_SESSION_H

#include <assert.h>

#include "client/alloc.h"
#include "client/arena.h"
#include "client/cache.h"
#include "client/client.h"
#include "client/include/rkv.h"
#include "client/link.h"
#include "client/stamps.h"
#include "common/err.h"
#include "common/fabric.h"
#include "proto/layout.h"

/* What a batch's completion is delivered to: the cookie of fab_post. */
struct landing {
	void (*landed)(struct rkv_session *session, struct landing *self, int status);
};

struct op;

/* Operations whose marks are not known to have completed hold the published start, [STAMP]. */
struct held_start {
	uint64_t mark; /* number of the last mark that this entry covers */
	uint64_t start;
};
#define SESSION_HELD_MAX 16u
#define SESSION_POLL_MAX 16u

struct rkv_session {
	const uint32_t *not_forked; /* the client's */
	struct rkv_client *client;
	struct rkv_session *next; /* in client->sessions */
	struct link_port port;    /* shared with the control thread */

	struct link link;  /* link.ep is NULL while there is no connection */
	bool broken;       /* the endpoint failed; waiting for what is outstanding */
	bool is_held;      /* this thread has the start word: BUSY */
	bool is_closing;   /* no new link is wanted */
	bool is_hanging;   /* a batch is out long after its deadline */
	bool is_denied;    /* that it may only read has been logged */
	bool memory_found; /* the allocator's job has ended: who sleeps for memory looks again */
	int memory_status;
	uint32_t n_links;
	struct fab_done done[SESSION_POLL_MAX]; /* what the last poll found */
	uint32_t n_outstanding;                 /* batches posted and not completed */
	uint32_t write_counter;                 /* low half of the next version */

	/* Marks, [MARK]: counted when posted; completed when an atomic posted behind them has. */
	uint64_t n_marks_posted;
	uint64_t n_marks_done;
	struct held_start held[SESSION_HELD_MAX];
	uint32_t n_held;
	struct landing flush; /* of the control thread's flush */
	bool is_flushing;
	int64_t maintenance_ns; /* when a request of the session's own was posted last */
	uint64_t n_marks_flushed;

	/* Operations */
	struct op *ops; /* options.depth of them */
	struct op *free_ops;
	struct op *oldest; /* in flight, in order of submission */
	struct op *newest;
	struct op *completed; /* not yet polled, oldest first */
	struct op *completed_last;
	uint32_t n_in_flight;
	uint32_t n_sleeping;
	uint32_t n_pumps;            /* since the last look at the clock */
	uint64_t stamp_seen;         /* newest stamp at the last look at the clock */
	uint64_t published;          /* the start in the start word */
	_Atomic uint64_t start_left; /* the start word as it was left: a hint, the CAS decides */
	uint64_t reap_stamp;         /* when all maps may be read again */

	struct arena arena;
	struct cache cache;
	struct alloc alloc;
	struct rkv_stats_values stats;
};

/* Creates a session without a link; session_pump asks for one. Failures: ERR_NOMEM. */
int session_create(struct rkv_client *client, struct rkv_session **ret_session);

/* Waits for what is outstanding, leaves the chunks, disconnects. The caller then says LEAVE. */
void session_destroy(struct rkv_session *session);

/*
 * Polls once, delivers what landed, wakes what slept, takes over or asks for a link. Returns how
 * many batches landed.
 */
unsigned session_pump(struct rkv_session *session);

/* Nothing landed: gives the CPU away for a moment. */
void session_wait(struct rkv_session *session);

/* Starts a request; there is a free op. n_waiting: see struct op. Then pump, or session_settle. */
void session_start(struct rkv_session *session, struct rkv_request *request, uint32_t *n_waiting);

/* Runs a request to its end; there is a free op. Returns its status. */
int session_call(struct rkv_session *session, struct rkv_request *request);

/* The same for a GET: one that is warm, and alone, takes a shorter way (op_try_warm). */
int session_call_get(struct rkv_session *session, struct rkv_request *request);

/* Lets the session go (idle) if nothing is in flight. */
void session_settle(struct rkv_session *session);

/* Takes up to max completed requests, oldest first. */
int session_completed(struct rkv_session *session, struct rkv_request **done, int max);

/* Posts a batch for landing; on a broken session it fails with ERR_CONN at once. */
static inline int
session_post(struct rkv_session *session, const struct fab_op *ops, unsigned n,
	     struct landing *landing)
{
	if (!session->link.ep || session->broken)
		return ERR_CONN;
	int rc = fab_post(session->link.ep, ops, n, landing);
	assert(rc <= 0); /* the endpoint is deeper than the session */
	if (rc == 0)
		session->n_outstanding++;
	else
		session->broken = true;
	return rc;
}

/* The same for one request of the session's own: claiming, reading maps, flushing. */
int session_post_maintenance(struct rkv_session *session, const struct fab_op *op,
			     struct landing *landing);

/* FAA(scratch, 0): when it has completed, so have the marks posted before it, [MARK]. */
static inline struct fab_op
session_flush_op(const struct rkv_session *session, uint64_t *old)
{
	return (struct fab_op){
		.kind = FAB_FAA,
		.roff = LAYOUT_SCRATCH_OFF,
		.piece = {{old, 8, session->alloc.key}},
	};
}

/* Posts the mark of a block whose last referring word this session's CAS took out, [WHO-FREES]. */
void session_mark(struct rkv_session *session, uint64_t block_off, uint32_t tag, uint64_t start);

/* An atomic posted when n_marks marks were out has completed: so have they, [MARK]. */
void session_marks_done(struct rkv_session *session, uint64_t n_marks);

/*
 * The allocator's job has ended: operations that sleep for memory look again, or end with status.
 */
void session_memory_found(struct rkv_session *session, int status);

/* The next version, [SELF-ID]; 0: the serial is spent, a new one is on its way (ERR_AGAIN). */
uint64_t session_version(struct rkv_session *session);

/* Seconds since the region was formatted, rounded up, by this host's wall clock. */
uint32_t session_wall_s(struct rkv_session *session);

/* ---- For the control thread ---- */

/* A mutation of a session that may only read: says so in the log, once; returns ERR_PERM. */
int session_deny(struct rkv_session *session);

/*
 * Takes an idle session (START_IDLE or START_MARKS), so that its thread waits. False: it is busy.
 */
bool session_take(struct rkv_session *session);

/* On a taken session with a live link: flushes its marks and gives back chunks, if asked to. */
void session_maintain(struct rkv_session *session, int64_t deadline_ns);

/* On a taken session whose region is severed: disconnects and asks for a new link (WANTED). */
void session_drop_link(struct rkv_session *session);

/* Lets a taken session go. */
void session_release(struct rkv_session *session);

/*
 * The A to announce: (published start, else newest) - T_WORD, [STAMP]. newest must be stored in
 * client->stamps before the call. Valid only while port.state is LINK_UP.
 */
uint64_t session_announce(struct rkv_session *session);

#endif
