/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sessions and stamps as a pure state machine: no socket, no clock, no device, no region but the
 * word that holds the next serial. [STAMP], [DEAD].
 *
 *   free --join--> living --leave, former_serial, process gone--> ending --sweep--> free
 *
 * A session counts for G while it is living or ending. It is ending until a complete look at the
 * chunk table, begun after its end, found (or left) no descriptor that names its slot: only then
 * is the slot number issued again. The *owner* of sessions is a client process as the server sees
 * it: one control connection, and the process behind it once it took the pool. A connection that
 * closes does not end the sessions of a process that may have the pool mapped: they linger until
 * the process is gone or names them as finished.
 *
 * Over verbs and tcp a process never takes the pool. There a session has a *peer*, the server's end
 * of its connection, which somebody else makes and destroys; it is *due* one for each JOIN and
 * RELINK that is answered. Nothing of a session can land once its peer is destroyed, and not
 * before: it cannot end while it has one.
 */
#ifndef RKV_SERVER_SESSIONS_H
#define RKV_SERVER_SESSIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "proto/limits.h"

/* A lag of A behind the newest stamp that no healthy session has: T_WORD and a second or so. */
#define SESSIONS_LAG_MAX (LIMIT_WORD_STAMPS + 10u)

/* The lag of a session whose oldest operation has been in flight for T_STALL, which is T_LEASE. */
#define SESSIONS_LAG_STALLED (LIMIT_WORD_STAMPS + LIMIT_LEASE_MS / LIMIT_STAMP_MS)

struct peer; /* a verbs_peer or a tcp_peer: server/peers.c */

enum session_state { SESSION_FREE, SESSION_LIVING, SESSION_ENDING };

struct session_owner {
	uint64_t number; /* counts up with the connections */
	pid_t pid;       /* of the process that took the pool; 0: unknown to us */
	bool mapped;     /* it took the pool, and may touch the region until it is gone */
	bool connected;  /* its control connection is open */
	char tenant[LIMIT_TENANT_MAX]; /* "": tenants are not told apart */
	unsigned n_sessions;
	LIST_HEAD(, session) sessions;
};

struct session {
	enum session_state state;
	bool in_sweep; /* it ended before the sweep under way began */
	uint32_t slot;
	uint32_t serial;
	uint32_t renewed_from; /* serial before or 0: the client may not know of its renewal */
	uint32_t attempt;      /* of its JOIN; 0: none, or the client knows the session */
	uint64_t a;
	bool due;                    /* a peer may come */
	struct peer *peer;           /* it may land until this is destroyed; NULL: none */
	struct session_owner *owner; /* NULL when ending */
	LIST_ENTRY(session) entry;
};

/*
 * A part of the server that acts on what it read in the region (scrubber, sweeper, snapshots):
 * while it is at work it counts for G like a session, from the stamp at which it began. Zeroed: at
 * rest.
 */
struct sessions_worker {
	bool is_at_work;
	uint64_t a;
	LIST_ENTRY(sessions_worker) entry;
};

struct sessions {
	uint64_t next_serial;
	uint64_t *published_serial; /* its copy in the superblock, where clients could write */
	uint64_t newest;            /* stamp */
	uint64_t g;
	unsigned n_at_g; /* sessions whose A is g; 0: g must be computed again */
	unsigned n_living;
	unsigned n_ending;
	uint64_t n_joined;
	uint64_t n_left;
	uint64_t n_died; /* ended in another way than by LEAVE */
	uint32_t last_slot;
	LIST_HEAD(, sessions_worker) workers;    /* at work */
	struct session slot[LIMIT_SESSIONS + 1]; /* 0 is none */
};

/*
 * superblock_serial: the superblock's next serial, which is kept current there. first_stamp: newer
 * than any stamp this epoch has seen.
 */
void sessions_init(struct sessions *s, uint64_t *superblock_serial, uint64_t first_stamp);

/* A new stamp. */
void sessions_tick(struct sessions *s);

/* G: the smallest A of all that count; the newest stamp if none does. Never falls. */
uint64_t sessions_g(struct sessions *s);

/*
 * Begins and ends work, [STAMP]. Who waits for a stamp to pass is not at work meanwhile: it would
 * wait for itself. sessions_work_end does nothing for one that is at rest.
 */
void sessions_work_begin(struct sessions *s, struct sessions_worker *worker);
void sessions_work_end(struct sessions_worker *worker);

/*
 * The stamp of this moment: the next one that will be issued. It has passed when G is above it:
 * then nobody acts any more on what was so before this moment.
 */
uint64_t sessions_moment(const struct sessions *s);

/* The session that holds G back more than T_WORD explains, or NULL; it may be ending. */
const struct session *sessions_holder(const struct sessions *s);

/*
 * A living session of a process that has not mapped the pool, so that it can be ended: it has a
 * peer and lags by more than SESSIONS_LAG_STALLED stamps, or none, so that nothing of it can land,
 * and lags by more than lag_max. NULL: there is none.
 */
struct session *sessions_stalled(struct sessions *s, uint64_t lag_max);

/* Sessions of processes without a control connection. */
unsigned sessions_lingering(const struct sessions *s);

/*
 * A new session, which counts from the newest stamp; attempt: of its JOIN. Failure: ERR_NOMEM: no
 * slot, or no serial, is left; ret_reason says which.
 */
int sessions_join(struct sessions *s, struct session_owner *owner, uint32_t attempt,
		  struct session **ret_session, const char **ret_reason);

/*
 * The owner's living session with this slot and serial, or NULL. Whoever asks for it knows it: no
 * JOIN of it is repeated any more.
 */
struct session *sessions_find(struct sessions *s, const struct session_owner *owner, uint32_t slot,
			      uint32_t serial);

/*
 * The living session with this serial, if `owner` may declare it finished: it is of the same
 * connection, of the same process, or, where that cannot be told, of a connection that is closed.
 * Else NULL.
 */
struct session *sessions_find_former(struct sessions *s, const struct session_owner *owner,
				     uint32_t serial);

/*
 * The living session that an unanswered JOIN with this attempt made, under the same rule. It may be
 * of a newer connection: then it is the asking JOIN that comes too late.
 */
struct session *sessions_find_attempt(struct sessions *s, const struct session_owner *owner,
				      uint32_t attempt);

/* JOIN or RELINK is answered: the session, which has no peer, is due one. */
void sessions_expect(struct session *session);

/*
 * A connection says that it is the session's with this slot and serial: returns the session, which
 * is not due another, or NULL, with a reason. The caller sets its peer.
 */
struct session *sessions_admit(struct sessions *s, const struct session_owner *owner, uint32_t slot,
			       uint32_t serial, const char **ret_reason);

/* Takes the announced A, unless it would fall or is newer than the newest stamp. */
void sessions_announce(struct sessions *s, struct session *session, uint64_t a);

/* A new serial for the session. Failure: ERR_NOMEM, as sessions_join. */
int sessions_renew(struct sessions *s, struct session *session, const char **ret_reason);

/* Ends a session that has no peer any more; in_order: by LEAVE. */
void sessions_end(struct sessions *s, struct session *session, bool in_order);

/* The control connection closed: sessions end if the process never took the pool, else linger. */
void sessions_disconnected(struct sessions *s, struct session_owner *owner);

/* The process is gone: all its sessions end. */
void sessions_process_gone(struct sessions *s, struct session_owner *owner);

/* May a chunk be owned by this slot? */
bool sessions_is_living(const struct sessions *s, uint32_t slot);

/*
 * Brackets a complete look at the chunk table that freed every descriptor naming a slot that is not
 * living. After the end, sessions that were ending at the beginning are free. A look that failed is
 * begun again instead.
 */
void sessions_sweep_begin(struct sessions *s);
void sessions_sweep_end(struct sessions *s);

#endif
