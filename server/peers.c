/* SPDX-License-Identifier: BSD-2-Clause */
/* Admitting and cutting off: peers.h. */
#include "server/peers.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>

#include "common/err.h"
#include "server/client.h"
#include "server/store.h"

#define REASON_MAX sizeof(((struct wire_cm_reject *)NULL)->reason)

/* ---- Cutting off ---- */

static void
destroy(struct peers *peers, struct peer **peer)
{
	if (!*peer)
		return;
	if (peers->verbs)
		verbs_peer_destroy((struct verbs_peer *)*peer);
	else
		tcp_peer_destroy((struct tcp_peer *)*peer);
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
	if (peers->verbs || peers->tcp)
		sessions_expect(session);
}

/* ---- Admitting ---- */

/*
 * Where the connection's peer belongs, or NULL, with a reason. A look over tcp only reads, whoever
 * looks. Over verbs who may write learns by an atomic how his device returns those, also there.
 */
static struct peer **
place_for(struct peers *peers, const struct wire_cm_request *request, bool *ret_only_reads,
	  const char **ret_reason)
{
	bool is_look = !request->session_slot && !request->serial;
	if (!peers->clients) {
		*ret_reason = "the server is not ready yet";
		return NULL;
	}
	struct client *client = client_with_token(peers->clients, request->token);
	if (!client || client->store->peers != peers) {
		*ret_reason = "no control connection has this token";
		return NULL;
	}
	*ret_only_reads = client->access == WIRE_ACCESS_READ || (is_look && peers->tcp);
	if (!is_look) {
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
admit(struct peers *peers, const struct wire_cm_request *request, struct peer *peer,
      char reason[REASON_MAX])
{
	const char *why;
	bool only_reads;
	struct peer **place = place_for(peers, request, &only_reads, &why);
	if (!place) {
		snprintf(reason, REASON_MAX, "%s", why);
		peers->n_refused++;
		return ERR_PERM;
	}
	if (only_reads && peers->verbs)
		verbs_peer_restrict((struct verbs_peer *)peer);
	else if (only_reads)
		tcp_peer_restrict((struct tcp_peer *)peer);
	*place = peer;
	peers->n++;
	peers->n_admitted++;
	return 0;
}

static int
admit_verbs(void *arg, const struct wire_cm_request *request, struct verbs_peer *peer,
	    char reason[REASON_MAX])
{
	return admit(arg, request, (struct peer *)peer, reason);
}

static int
admit_tcp(void *arg, const struct wire_cm_request *request, struct tcp_peer *peer,
	  char reason[REASON_MAX])
{
	return admit(arg, request, (struct peer *)peer, reason);
}

/* ---- Losing ---- */

static struct peer **
place_of(struct peers *peers, const struct peer *peer)
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
lost(struct peers *peers, const struct peer *peer)
{
	struct peer **place = place_of(peers, peer);
	if (!place)
		return;
	*place = NULL;
	peers->n--;
	peers->n_lost++;
}

static void
lost_verbs(void *arg, struct verbs_peer *peer)
{
	lost(arg, (struct peer *)peer);
}

static void
lost_tcp(void *arg, struct tcp_peer *peer)
{
	lost(arg, (struct peer *)peer);
}

struct region_events
peers_events(struct peers *peers)
{
	return (struct region_events){
		.verbs = {.admit = admit_verbs, .lost = lost_verbs, .arg = peers},
		.tcp = {.admit = admit_tcp, .lost = lost_tcp, .arg = peers},
	};
}

/* ---- Watching ---- */

static void readable(struct loop_op *op, int result);

static void
watch(struct peers *peers)
{
	int fd = peers->verbs ? verbs_server_fd(peers->verbs) : tcp_server_fd(peers->tcp);
	loop_poll(peers->loop, &peers->readable, fd, POLLIN, readable);
}

static void
readable(struct loop_op *op, int result)
{
	struct peers *peers = (void *)((char *)op - offsetof(struct peers, readable));
	if (result == -ECANCELED)
		return;
	if (peers->verbs)
		verbs_server_dispatch(peers->verbs);
	else
		tcp_server_dispatch(peers->tcp);
	watch(peers);
}

void
peers_start(struct peers *peers)
{
	if (peers->verbs || peers->tcp)
		watch(peers);
}

void
peers_expire(struct peers *peers, int64_t now_ns)
{
	if (!peers->verbs)
		return;
	verbs_server_dispatch(peers->verbs); /* the word that one is established may wait there */
	verbs_server_expire(peers->verbs, now_ns);
}
