/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the control thread does for sessions: it makes the links they want, renews their serials,
 * announces their A, and looks after idle ones. One request for a session is out at a time.
 *
 * A session that the control thread works on without the mutex is *pinned*: it stays in the list,
 * and who wants to close it waits (links_forget) until it is let go, which has a deadline.
 *
 * The control thread calls everything here, unless something else is said.
 */
#ifndef RKV_CLIENT_LINKS_H
#define RKV_CLIENT_LINKS_H

#include "client/channel.h"
#include "client/client.h"
#include "client/hello.h"
#include "proto/wire.h"

struct links {
	struct rkv_client *client;
	struct channel *channel;
	const struct hello *server; /* of the connection */

	/* Guarded by the client's mutex */
	uint64_t connection; /* number of the present connection, counted from 1; 0: none is up */
	uint64_t n_connections;
	uint64_t first_of_epoch; /* the first connection to the server's present life */
	struct rkv_session *pinned;
	struct rkv_session *asker; /* whom the request is for; NULL: closed meanwhile */
	struct former *formers;    /* closed sessions that the server still has to hear of */
	struct former *joining;    /* the one that a JOIN without asker is for */
	uint32_t last_attempt;     /* numbers JOINs from a random one on; 0: none yet */

	/* The control thread's */
	enum wire_type asked; /* 0: no request is out */
	uint32_t request;
	int64_t asked_ns;
	int64_t retry_ns; /* not before */
	int64_t backoff_ns;
	int64_t due_ns;   /* when the last look left something to ask for */
	int64_t round_ns; /* when a round of upkeep is to be over, for all sessions together */
	int64_t gave_back_ns;
};

/* A connection is up (mutex held). same_server: the server lives on since the last one. */
void links_connected(struct links *links, bool same_server);

/* The connection is lost, and its region severed (mutex held). */
void links_disconnected(struct links *links);

/* Then: idle sessions let go of the severed region. */
void links_drop(struct links *links);

/* Frees what is left. No thread uses it any more. */
void links_destroy(struct links *links);

/* Sends the next request, if one is wanted and none is out. Failure: ERR_CONN. */
int links_ask(struct links *links, int64_t now_ns);

/* When links_ask has something to do without being woken; INT64_MAX: never. */
int64_t links_due(const struct links *links);

/*
 * A JOINED, RELINKED, RENEWED or REFUSED has come. Failures, with a sentence, after which the
 * connection must be given up: ERR_CORRUPT: nobody asked for it; ERR_CONN.
 */
int links_answer(struct links *links, const union channel_message *message,
		 char reason[NET_REASON_MAX]);

/*
 * Says in a keepalive what A of sessions is (mutex held), from *cursor on, and how many chunks they
 * drain. *cursor: the first session that found no room, or NULL.
 */
void links_announce(struct links *links, struct rkv_session **cursor,
		    struct wire_keepalive *keepalive);

/*
 * Looks after idle sessions: flushes their marks, [STAMP]; lets them give back chunks that drain,
 * or that the server asks for; takes them off a region that is severed.
 */
void links_maintain(struct links *links, int64_t now_ns);

/* Takes a session out of the list; then the control thread does not touch it. Any thread. */
void links_forget(struct links *links, struct rkv_session *session);

/* Tells the server, now or when it is connected, that a session is over. Any thread. */
void links_leave(struct links *links, uint64_t connection, uint32_t session_slot, uint32_t serial);

#endif
