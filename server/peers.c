/* SPDX-License-Identifier: BSD-2-Clause */
/* Admitting and cutting off: peers.h. */
#include "server/peers.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>

#include "common/err.h"
#include "server/client.h"

#define REASON_MAX sizeof(((struct wire_cm_reject *)NULL)->reason)

/* ---- Cutting off ---- */

static void
destroy(struct peers *peers, struct verbs_peer **peer)
{
	if (!*peer)
		return;
	verbs_peer_destroy(*peer);
	*peer = NULL;
	peers->n--;
}

void
peers_cut(struct peers *peers, struct session *session)
{
	session->due = false;
	destroy(peers, &session->peer);
}

void
peers_cut_client(struct peers *peers, struct client *client)
{
	struct session *session;
	LIST_FOREACH(session, &client->owner.sessions, entry)
	{
		peers_cut(peers, session);
	}
	destroy(peers, &client->look);
}

void
peers_expect(struct peers *peers, struct session *session)
{
	if (peers->server)
		sessions_expect(session);
}

/* ---- Admitting ---- */

/* Where the connection's peer belongs, or NULL, with a reason. */
static struct verbs_peer **
place_for(struct peers *peers, const struct wire_cm_request *request, const char **ret_reason)
{
	if (!peers->clients) {
		*ret_reason = "the server is not ready yet";
		return NULL;
	}
	struct client *client = client_with_token(peers->clients, request->token);
	if (!client) {
		*ret_reason = "no control connection has this token";
		return NULL;
	}
	if (request->session_slot || request->serial) {
		struct session *session =
			sessions_admit(peers->sessions, &client->owner, request->session_slot,
				       request->serial, ret_reason);
		return session ? &session->peer : NULL;
	}
	if (client->has_looked) {
		*ret_reason = "the superblock has been looked at since the hello";
		return NULL;
	}
	client->has_looked = true;
	return &client->look;
}

static int
admit(void *arg, const struct wire_cm_request *request, struct verbs_peer *peer,
      char reason[REASON_MAX])
{
	struct peers *peers = arg;
	const char *why;
	struct verbs_peer **place = place_for(peers, request, &why);
	if (!place) {
		snprintf(reason, REASON_MAX, "%s", why);
		peers->n_refused++;
		return ERR_PERM;
	}
	*place = peer;
	peers->n++;
	peers->n_admitted++;
	return 0;
}

/* ---- Losing ---- */

static struct verbs_peer **
place_of(struct peers *peers, const struct verbs_peer *peer)
{
	for (uint32_t i = 1; i <= LIMIT_SESSIONS; i++)
		if (peers->sessions->slot[i].peer == peer)
			return &peers->sessions->slot[i].peer;
	struct client *client;
	LIST_FOREACH(client, peers->clients, entry)
	{
		if (client->look == peer)
			return &client->look;
	}
	return NULL;
}

/* The session goes on: it may be linked again, or leave. */
static void
lost(void *arg, struct verbs_peer *peer)
{
	struct peers *peers = arg;
	struct verbs_peer **place = place_of(peers, peer);
	if (!place)
		return;
	*place = NULL;
	peers->n--;
	peers->n_lost++;
}

struct verbs_events
peers_events(struct peers *peers)
{
	return (struct verbs_events){.admit = admit, .lost = lost, .arg = peers};
}

/* ---- Watching ---- */

static void
readable(struct loop_op *op, int result)
{
	struct peers *peers = (void *)((char *)op - offsetof(struct peers, readable));
	if (result == -ECANCELED)
		return;
	verbs_server_dispatch(peers->server);
	loop_poll(peers->loop, op, verbs_server_fd(peers->server), POLLIN, readable);
}

void
peers_start(struct peers *peers)
{
	if (peers->server)
		loop_poll(peers->loop, &peers->readable, verbs_server_fd(peers->server), POLLIN,
			  readable);
}

void
peers_expire(struct peers *peers, int64_t now_ns)
{
	if (!peers->server)
		return;
	verbs_server_dispatch(peers->server); /* the word that one is established may wait there */
	verbs_server_expire(peers->server, now_ns);
}
