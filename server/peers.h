/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers: the server's ends of the connections that clients have to the region over verbs or tcp.
 * Who may have one is decided here: a connection says by the hello's token which control connection
 * it belongs to, and by its ticket which session. And here they end: a session is cut off before
 * anything of it is used again, [DEAD].
 *
 *   HELLO answered          the client may look at the superblock, once
 *   JOIN, RELINK answered   its session may be connected, once
 *   RELINK, LEAVE, a former session named, control connection closed, a session stalls: cut off
 *
 * A server has peers of one kind, [ONE-AGENT]; who maps the pool has none. Called by the loop.
 */
#ifndef RKV_SERVER_PEERS_H
#define RKV_SERVER_PEERS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/loop.h"
#include "server/region.h"
#include "server/sessions.h"

struct client;
struct client_list;

struct peers {
	struct loop *loop;
	struct verbs_server *verbs; /* NULL: no verbs */
	struct tcp_server *tcp;     /* NULL: no tcp */
	struct sessions *sessions;
	const struct client_list
		*clients; /* of the server: only those of this region may have one */
	struct loop_op readable;
	unsigned n;
	uint64_t n_admitted;
	uint64_t n_refused;
	uint64_t n_lost; /* ended by themselves */
};

/* What region_create is given. Who comes before peers_start is turned away. */
struct region_events peers_events(struct peers *peers);

/* Begins to admit; what stands above readable is set by the caller. */
void peers_start(struct peers *peers);

/* Gives up connections that were admitted and not completed; now and then. */
void peers_expire(struct peers *peers, int64_t now_ns);

/* JOIN or RELINK of a session that is cut off is answered: it may be connected. */
void peers_expect(struct peers *peers, struct session *session);

/* When these return, nothing of the session, or of all that the client has, can land any more. */
void peers_cut(struct peers *peers, struct session *session);
void peers_cut_client(struct peers *peers, struct client *client);

#endif
