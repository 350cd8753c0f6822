/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The messages of proto/wire.h: messages.h. One function for each; it checks what came, changes
 * sessions and answers. Whatever is not a message of this protocol in this place is answered with
 * REFUSED, in words, and the connection is closed.
 */
#include "server/messages.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "proto/wire_tcp.h"
#include "server/client.h"
#include "server/service.h"
#include "server/stats.h"

#define LOG_EVERY_NS (10 * CLOCK_NS_PER_S)

/* ---- Answers ---- */

static struct wire_header
answer_header(const struct wire_header *to, enum wire_type type, size_t len)
{
	return (struct wire_header){
		.magic = WIRE_MAGIC,
		.version = WIRE_VERSION,
		.type = (uint16_t)type,
		.len = (uint32_t)len,
		.request = to ? to->request : 0,
	};
}

void
messages_farewell(int fd, int code, const char *reason)
{
	struct wire_refused refused = {
		.header = answer_header(NULL, WIRE_REFUSED, sizeof(refused)),
		.code = code,
	};
	snprintf(refused.reason, sizeof(refused.reason), "%s", reason);
	send(fd, &refused, sizeof(refused), MSG_DONTWAIT | MSG_NOSIGNAL);
	shutdown(fd, SHUT_WR);
}

/* Refuses one request, with a sentence; the connection goes on. */
static void __attribute__((format(printf, 4, 5)))
refuse(struct client *client, const struct wire_header *to, int code, const char *format, ...)
{
	struct wire_refused refused = {
		.header = answer_header(to, WIRE_REFUSED, sizeof(refused)),
		.code = code,
	};
	va_list ap;
	va_start(ap, format);
	vsnprintf(refused.reason, sizeof(refused.reason), format, ap);
	va_end(ap);
	conn_send(&client->conn, &refused, sizeof(refused));
	int64_t now = clock_now_ns();
	struct service *service = client->service;
	bool quiet = service->logged_ns && now - service->logged_ns < LOG_EVERY_NS;
	if (!quiet)
		service->logged_ns = now;
	log_line(service->log, quiet ? LOG_DEBUG : LOG_WARN, "refused: %s", refused.reason);
}

/* Ends a conversation after a refusal. */
static void
hang_up(struct client *client)
{
	conn_finish(&client->conn, &client->service->greeting);
}

void
messages_give_up(struct client *client, int code, const char *reason)
{
	refuse(client, NULL, code, "%s", reason);
	hang_up(client);
}

void
messages_insecure(struct conn *conn, const char *reason)
{
	struct client *client = client_of_conn(conn);
	client->service->n_handshakes_refused++;
	refuse(client, NULL, ERR_PERM, "%s", reason);
	hang_up(client);
}

static void
answer_session(struct client *client, const struct wire_header *to, enum wire_type type,
	       const struct session *session)
{
	struct wire_session answer = {
		.header = answer_header(to, type, sizeof(answer)),
		.session_slot = session->slot,
		.serial = session->serial,
	};
	conn_send(&client->conn, &answer, sizeof(answer));
}

/* ---- HELLO ---- */

/* Returns false, and has refused, if a size differs. */
static bool
sizes_agree(struct client *client, const struct wire_hello *hello)
{
	struct wire_difference d = wire_sizes_compare(&hello->sizes);
	if (!d.name)
		return true;
	refuse(client, &hello->header, ERR_VERSION,
	       "versions do not fit: %s: client %" PRIu32 ", server %" PRIu32
	       ": use programs of the same release",
	       d.name, d.theirs, d.ours);
	return false;
}

static bool
hello_is_good(struct client *client, const struct wire_hello *hello)
{
	if (!sizes_agree(client, hello))
		return false;
	if ((hello->role != WIRE_ROLE_CLIENT && hello->role != WIRE_ROLE_ADMIN) ||
	    hello->reserved) {
		refuse(client, &hello->header, ERR_INVALID,
		       "the hello has a role this server does not "
		       "know (%" PRIu32 "), or reserved bytes that are not 0",
		       hello->role);
		return false;
	}
	if (client->service->guard->tenants && !hello->tenant[0]) {
		refuse(client, &hello->header, ERR_PERM,
		       "the server lets nobody in who has not been named to it: give a tenant and "
		       "the file with its secret (--tenant, --secret-file)");
		return false;
	}
	return true;
}

static bool
has_room(struct client *client, const struct wire_header *to)
{
	if (client->service->n_clients < LIMIT_CLIENTS)
		return true;
	refuse(client, to, ERR_NOMEM, "the server has as many clients as it can hold (%u)",
	       LIMIT_CLIENTS);
	return false;
}

/* Connections or sessions of the client's tenant. */
static unsigned
count_of_tenant(const struct client *client, bool sessions)
{
	const struct client *other;
	unsigned n = 0;
	LIST_FOREACH(other, &client->service->clients, entry)
	{
		if (strncmp(other->owner.tenant, client->tenant->name, LIMIT_TENANT_MAX) == 0)
			n += sessions ? other->owner.n_sessions : other->open;
	}
	return n;
}

static bool
quota_allows(struct client *client, const struct wire_header *to, bool sessions)
{
	const struct tenant *tenant = client->tenant;
	if (!tenant)
		return true; /* there are none */
	unsigned max = sessions ? tenant->n_sessions : tenant->n_connections;
	if (count_of_tenant(client, sessions) < max)
		return true;
	const char *what = sessions ? "sessions" : "connections";
	refuse(client, to, ERR_NOMEM,
	       "tenant %s has all its %u %s: close some, or have %s= raised in the server's file "
	       "of tenants (--tenants)",
	       tenant->name, max, what, what);
	return false;
}

static void
give_token(struct client *client)
{
	if (client->role == WIRE_ROLE_CLIENT &&
	    getrandom(client->token, sizeof(client->token), 0) == (ssize_t)sizeof(client->token))
		client->has_token = true;
}

/* to: what is answered, the HELLO or the PROOF. */
static void
welcome(struct client *client, const struct wire_header *to)
{
	const struct service *service = client->service;
	const struct region *region = client->store->region;
	struct fab_offer offer = {0};
	region_offer(region, &offer);
	struct wire_welcome answer = {
		.header = answer_header(to, WIRE_WELCOME, sizeof(answer)),
		.sizes = wire_sizes_own(),
		.stamp = client->store->sessions.newest,
		.server_pid = (uint32_t)getpid(),
		.n_regions = 1,
		.access = client->access,
		.region = {{
			.region_id = region->region_id,
			.epoch = region->epoch,
			.base = offer.base,
			.len = region->layout.region_len,
			.r_key = offer.r_key,
		}},
	};
	static_assert(sizeof(answer.verbs_address) == sizeof(offer.verbs_address), "addresses");
	memcpy(answer.verbs_address, offer.verbs_address, sizeof(answer.verbs_address));
	memcpy(answer.boot_id, service->boot_id, sizeof(answer.boot_id));
	memcpy(answer.unix_path, service->unix_path, sizeof(answer.unix_path));
	memcpy(answer.tcp_address, service->tcp_address, sizeof(answer.tcp_address));
	if (client->has_token)
		memcpy(answer.token, client->token, sizeof(answer.token));
	if (client->tenant && !auth_server_proof(&client->tenant->secret, &client->guarded.said,
						 &answer, answer.proof))
		conn_abort(&client->conn);
	conn_send(&client->conn, &answer, sizeof(answer));
}

/* Nothing about the region is said before. */
static void
let_in(struct client *client, enum wire_access access, const struct wire_header *to)
{
	client->access = access;
	if (client->tenant) {
		client->store = client->service->store[client->tenant->region];
		memcpy(client->owner.tenant, client->tenant->name, sizeof(client->owner.tenant));
	}
	client->role = (enum wire_role)client->guarded.said.hello.role;
	client->service->n_clients++;
	client->service->n_welcomed++;
	give_token(client);
	welcome(client, to);
}

static void
refuse_handshake(struct client *client)
{
	client->service->n_handshakes_refused++;
	hang_up(client);
}

static void
challenge(struct client *client, const struct wire_hello *hello)
{
	struct wire_challenge answer = {
		.header = answer_header(&hello->header, WIRE_CHALLENGE, sizeof(answer)),
	};
	if (guard_challenge(&client->guarded, hello, client->conn.tls, &answer))
		conn_send(&client->conn, &answer, sizeof(answer));
	else
		conn_abort(&client->conn);
}

static void
on_hello(struct client *client, const void *message)
{
	const struct wire_hello *hello = message;
	if (client->guarded.said.hello.header.magic) {
		refuse(client, &hello->header, ERR_INVALID, "a second hello on one connection");
		hang_up(client);
		return;
	}
	if (!hello_is_good(client, hello) || !has_room(client, &hello->header)) {
		refuse_handshake(client);
	} else if (client->service->guard->tenants) {
		challenge(client, hello);
	} else {
		client->guarded.said.hello = *hello;
		let_in(client, WIRE_ACCESS_ADMIN, &hello->header);
	}
}

static void
on_proof(struct client *client, const void *message)
{
	const struct wire_proof *proof = message;
	struct service *service = client->service;
	if (client->role) {
		refuse(client, &proof->header, ERR_INVALID, "a proof that nobody asked for");
		hang_up(client);
		return;
	}
	client->guarded.is_challenged = false; /* each challenge has one answer */
	switch (guard_judge(service->guard, &client->guarded, proof, client->conn.fd,
			    &client->tenant)) {
	case GUARD_LET_IN:
		if (has_room(client, &proof->header) && quota_allows(client, &proof->header, false))
			let_in(client, client->tenant->access, &proof->header);
		else
			refuse_handshake(client);
		return;
	case GUARD_REFUSE:
		refuse(client, &proof->header, ERR_PERM,
		       "not let in: the server knows no such tenant, or the secret is not its");
		refuse_handshake(client);
		return;
	case GUARD_SAY_NOTHING:
		service->n_handshakes_refused++;
		return;
	}
}

/* ---- Sessions ---- */

/* The session that a message names, or NULL after a refusal. */
static struct session *
named_session(struct client *client, const struct wire_session *message)
{
	struct session *session = sessions_find(&client->store->sessions, &client->owner,
						message->session_slot, message->serial);
	if (!session)
		refuse(client, &message->header, ERR_INVALID,
		       "this connection has no session %" PRIu32 " with serial %" PRIu32,
		       message->session_slot, message->serial);
	return session;
}

static void
end_former(struct store *store, struct session *former)
{
	if (!former)
		return;
	struct client *owner = client_of_owner(former->owner);
	store_end_session(store, former, false);
	service_settle(owner);
}

static void
on_join(struct client *client, const void *message)
{
	const struct wire_join *join = message;
	struct store *store = client->store;
	struct sessions *sessions = &store->sessions;
	struct session *session;
	const char *reason;
	struct session *lost = sessions_find_attempt(sessions, &client->owner, join->attempt);
	if (lost && lost->owner->number > client->owner.number) {
		refuse(client, &join->header, ERR_CONN,
		       "the session has joined over a newer connection");
		return;
	}
	end_former(store, lost);
	end_former(store, sessions_find_former(sessions, &client->owner, join->former_serial));
	if (!quota_allows(client, &join->header, true))
		return;
	if (sessions->n_living + sessions->n_ending == LIMIT_SESSIONS)
		census_finish_ending(&store->census);
	int rc = sessions_join(sessions, &client->owner, join->attempt, &session, &reason);
	if (rc) {
		refuse(client, &join->header, rc, "%s", reason);
		return;
	}
	peers_expect(store->peers, session);
	struct wire_joined answer = {
		.header = answer_header(&join->header, WIRE_JOINED, sizeof(answer)),
		.session_slot = session->slot,
		.serial = session->serial,
		.stamp = session->a,
	};
	conn_send(&client->conn, &answer, sizeof(answer));
}

static uint32_t
stamp_flags(const struct census *census)
{
	return (census_chunks_short(census) ? WIRE_STAMP_CHUNKS_SHORT : 0) |
	       (census_chunks_coming(census) ? WIRE_STAMP_CHUNKS_COMING : 0);
}

static void
on_keepalive(struct client *client, const void *message)
{
	const struct wire_keepalive *keepalive = message;
	struct store *store = client->store;
	for (uint32_t i = 0; i < keepalive->n; i++) {
		const struct wire_announcement *said = &keepalive->session[i];
		struct session *session = sessions_find(&store->sessions, &client->owner,
							said->session_slot, said->serial);
		if (session)
			sessions_announce(&store->sessions, session, said->a);
	}
	census_told_of_draining(&store->census, keepalive->n_draining);
	struct wire_stamp answer = {
		.header = answer_header(&keepalive->header, WIRE_STAMP, sizeof(answer)),
		.newest = store->sessions.newest,
		.g = sessions_g(&store->sessions),
		.flags = stamp_flags(&store->census),
	};
	conn_send(&client->conn, &answer, sizeof(answer));
}

/*
 * On shared memory nothing is outstanding once the client's own thread has stopped posting; over
 * verbs, once the peer is destroyed, [ONE-QP].
 */
static void
on_relink(struct client *client, const void *message)
{
	const struct wire_session *relink = message;
	struct session *session = named_session(client, relink);
	if (!session)
		return;
	peers_cut(client->store->peers, session);
	peers_expect(client->store->peers, session);
	client->store->n_relinked++;
	answer_session(client, &relink->header, WIRE_RELINKED, session);
}

static void
on_renew(struct client *client, const void *message)
{
	const struct wire_session *renew = message;
	struct session *session = named_session(client, renew);
	const char *reason;
	if (!session)
		return;
	int rc = sessions_renew(&client->store->sessions, session, &reason);
	if (rc)
		refuse(client, &renew->header, rc, "%s", reason);
	else
		answer_session(client, &renew->header, WIRE_RENEWED, session);
}

static void
on_leave(struct client *client, const void *message)
{
	const struct wire_session *leave = message;
	struct store *store = client->store;
	struct session *session =
		sessions_find(&store->sessions, &client->owner, leave->session_slot, leave->serial);
	if (!session)
		return; /* nobody waits for an answer */
	store_end_session(store, session, true);
}

/* ---- Questions ---- */

static void
on_stats(struct client *client, const void *message)
{
	const struct wire_header *header = message;
	struct {
		struct wire_header header;
		char text[STATS_TEXT_MAX];
	} answer;
	size_t len = stats_text(client->service, client->store, answer.text, sizeof(answer.text));
	answer.header = answer_header(header, WIRE_STATS_TEXT, sizeof(answer.header) + len);
	conn_send(&client->conn, &answer, sizeof(answer.header) + len);
}

static void
on_fsck(struct client *client, const void *message)
{
	const struct wire_header *header = message;
	if (client->access != WIRE_ACCESS_ADMIN) {
		refuse(client, header, ERR_PERM,
		       "tenant %s is %s at this server, and fsck is for the role admin",
		       client->owner.tenant, tenants_role(client->access));
		return;
	}
	int rc = audit_ask(&client->store->audit, &client->audit);
	client->audit_request = header->request;
	if (rc)
		refuse(client, header, rc, "the server has no memory left for this");
}

bool
messages_audited(struct audit *audit)
{
	struct store *store = (void *)((char *)audit - offsetof(struct store, audit));
	struct {
		struct wire_header header;
		char text[FSCK_TEXT_MAX];
	} answer;
	size_t len = fsck_text(&audit->fsck, answer.text);
	struct client *client;
	bool is_wanted = false;
	LIST_FOREACH(client, store->clients, entry)
	{
		if (client->store != store)
			continue;
		if (client->audit > audit->n_begun)
			is_wanted |= client->open;
		if (client->audit != audit->n_begun || !client->open)
			continue;
		client->audit = 0;
		const struct wire_header to = {.request = client->audit_request};
		answer.header = answer_header(&to, WIRE_FSCK_TEXT, sizeof(answer.header) + len);
		conn_send(&client->conn, &answer, sizeof(answer.header) + len);
	}
	return is_wanted;
}

static void
on_ping(struct client *client, const void *message)
{
	struct wire_header answer = answer_header(message, WIRE_PONG, sizeof(answer));
	conn_send(&client->conn, &answer, sizeof(answer));
}

/* ---- Snapshots ---- */

static void
describe_snapshot(const struct snapshot *snapshot, const struct snapshot_account *account,
		  struct wire_snapshot_state *answer)
{
	int64_t until_ns = account->ended_ns ? account->ended_ns : clock_now_ns();
	answer->number = account->number;
	answer->phase = account->phase;
	if (account->phase != WIRE_SNAPSHOT_NONE)
		answer->n_ms = (uint64_t)((until_ns - account->began_ns) / CLOCK_NS_PER_MS);
	if (account->phase == WIRE_SNAPSHOT_RUNNING)
		answer->permille = snapshot_permille(snapshot);
	else if (account->phase == WIRE_SNAPSHOT_DONE)
		answer->permille = 1000;
	answer->n_records = account->n_records;
	answer->n_bytes = account->n_bytes;
	answer->n_unreadable = account->n_unreadable;
	memcpy(answer->name, account->name, sizeof(answer->name));
	memcpy(answer->reason, account->reason, sizeof(answer->reason));
}

static int
begin_or_find_snapshot(struct snapshot *snapshot, const struct wire_snapshot *ask,
		       const struct snapshot_account **ret_account, char reason[LIMIT_REASON_MAX])
{
	if (!memchr(ask->name, '\0', sizeof(ask->name)) || ask->reserved) {
		snprintf(reason, LIMIT_REASON_MAX,
			 "a name that does not end, or reserved bytes that are not 0");
		return ERR_INVALID;
	}
	if (ask->name[0]) {
		*ret_account = &snapshot->now;
		return snapshot_begin(snapshot, ask->name, reason);
	}
	*ret_account = snapshot_find(snapshot, ask->number);
	if (*ret_account)
		return 0;
	snprintf(reason, LIMIT_REASON_MAX,
		 "others have been taken since: the server's log says how it ended");
	return ERR_NOT_FOUND;
}

static int
deny_snapshot(const struct client *client, char reason[LIMIT_REASON_MAX])
{
	snprintf(reason, LIMIT_REASON_MAX,
		 "tenant %s is %s at this server, and snapshots are for the role admin",
		 client->owner.tenant, tenants_role(client->access));
	return ERR_PERM;
}

static void
on_snapshot(struct client *client, const void *message)
{
	const struct wire_snapshot *ask = message;
	struct snapshot *snapshot = &client->store->snapshot;
	const struct snapshot_account *account;
	struct wire_snapshot_state answer = {
		.header = answer_header(&ask->header, WIRE_SNAPSHOT_STATE, sizeof(answer)),
	};
	if (client->access == WIRE_ACCESS_ADMIN)
		answer.code = begin_or_find_snapshot(snapshot, ask, &account, answer.reason);
	else
		answer.code = deny_snapshot(client, answer.reason);
	if (answer.code == 0)
		describe_snapshot(snapshot, account, &answer);
	conn_send(&client->conn, &answer, sizeof(answer));
}

/* ---- Messages ---- */

struct message_kind {
	size_t len;       /* at least; 0: the server does not take this type */
	size_t more;      /* unit of what may follow */
	bool for_clients; /* not for WIRE_ROLE_ADMIN */
	void (*handle)(struct client *client, const void *message);
};

static const struct message_kind kinds[] = {
	[WIRE_HELLO] = {sizeof(struct wire_hello), 0, false, on_hello},
	[WIRE_PROOF] = {sizeof(struct wire_proof), 0, false, on_proof},
	[WIRE_JOIN] = {sizeof(struct wire_join), 0, true, on_join},
	[WIRE_KEEPALIVE] = {sizeof(struct wire_keepalive), sizeof(struct wire_announcement), true,
			    on_keepalive},
	[WIRE_RELINK] = {sizeof(struct wire_session), 0, true, on_relink},
	[WIRE_RENEW] = {sizeof(struct wire_session), 0, true, on_renew},
	[WIRE_LEAVE] = {sizeof(struct wire_session), 0, true, on_leave},
	[WIRE_STATS] = {sizeof(struct wire_header), 0, false, on_stats},
	[WIRE_PING] = {sizeof(struct wire_header), 0, false, on_ping},
	[WIRE_SNAPSHOT] = {sizeof(struct wire_snapshot), 0, false, on_snapshot},
	[WIRE_FSCK] = {sizeof(struct wire_header), 0, false, on_fsck},
};

static const struct message_kind *
kind_of(const struct wire_header *header)
{
	static const struct message_kind none;
	return header->type < sizeof(kinds) / sizeof(*kinds) ? &kinds[header->type] : &none;
}

static bool
length_fits(const struct wire_header *header)
{
	const struct message_kind *kind = kind_of(header);
	if (header->len < kind->len || header->len > LIMIT_MESSAGE_MAX)
		return false;
	size_t more = header->len - kind->len;
	return kind->more ? more % kind->more == 0 : more == 0;
}

/* Of somebody who is not welcomed yet. */
static enum wire_type
expected_first(const struct client *client)
{
	return client->guarded.is_challenged ? WIRE_PROOF : WIRE_HELLO;
}

/* Refuses what is not a message of this protocol and version in this place. */
static bool
header_is_good(struct client *client, const struct wire_header *header)
{
	if (header->magic != WIRE_MAGIC)
		refuse(client, NULL, ERR_INVALID,
		       "this is the control port of an rkv server, and "
		       "what came is not its protocol");
	else if (header->version != WIRE_VERSION)
		refuse(client, header, ERR_VERSION,
		       "versions do not fit: control protocol: client %u, server %u: use programs "
		       "of "
		       "the same release",
		       header->version, WIRE_VERSION);
	else if (!client->role && header->type != expected_first(client))
		refuse(client, header, ERR_INVALID,
		       client->guarded.is_challenged ? "a challenge was not answered with a proof"
						     : "the first message is not a hello");
	else if (kind_of(header)->len == 0)
		refuse(client, header, ERR_INVALID, "a message of a type that no client sends: %u",
		       header->type);
	else if (!length_fits(header))
		refuse(client, header, ERR_INVALID,
		       "a message of type %u cannot be %" PRIu32 " bytes long", header->type,
		       header->len);
	else if (kind_of(header)->for_clients && client->role != WIRE_ROLE_CLIENT)
		refuse(client, header, ERR_PERM, "an admin connection has no sessions");
	else
		return true;
	return false;
}

/* Does a connection begin as those that carry data over tcp? */
static bool
begins_data(const struct client *client, const struct wire_header *header)
{
	return header->magic == WIRE_TCP_MAGIC && !client->guarded.said.hello.header.magic &&
	       !client->conn.tls && client->store->region->tcp;
}

/*
 * The connection is none of control: it goes where the data of its token's owner is served; without
 * one, to whom will say so.
 */
static void
on_data_hello(struct client *client, const void *hello, size_t len)
{
	const struct wire_tcp_hello *said = hello;
	const struct client *owner =
		client_with_token(&client->service->clients, said->request.token);
	int fd = conn_hand_over(&client->conn, len);
	if (fd >= 0)
		tcp_server_take((owner ? owner : client)->store->region->tcp, fd, hello);
	else
		conn_abort(&client->conn); /* it says more before it was answered */
}

size_t
messages_measure(struct conn *conn, const void *bytes, size_t len)
{
	struct client *client = client_of_conn(conn);
	const struct wire_header *header = bytes;
	if (len < sizeof(*header))
		return 0;
	size_t data_len = begins_data(client, header) ? tcp_server_measure(bytes, len) : SIZE_MAX;
	if (data_len != SIZE_MAX)
		return data_len;
	if (conn->is_bare) {
		messages_insecure(conn, "the server speaks TLS at this port: give the CA of its "
					"certificate (--tls-ca, tls_ca_file)");
		return SIZE_MAX;
	}
	if (header_is_good(client, header))
		return header->len;
	if (client->role)
		client->service->n_garbage++;
	else
		client->service->n_handshakes_refused++;
	hang_up(client);
	return SIZE_MAX;
}

static bool
count_is_good(const struct wire_header *header)
{
	const struct wire_keepalive *keepalive = (const void *)header;
	return header->type != WIRE_KEEPALIVE ||
	       (header->len - sizeof(*keepalive)) / sizeof(keepalive->session[0]) == keepalive->n;
}

void
messages_take(struct conn *conn, const void *bytes, size_t len)
{
	struct client *client = client_of_conn(conn);
	const struct wire_header *header = bytes;
	if (header->magic != WIRE_MAGIC) {
		on_data_hello(client, bytes, len);
		return;
	}
	client->service->n_messages++;
	if (!count_is_good(header)) {
		client->service->n_garbage++;
		refuse(client, header, ERR_INVALID, "a keepalive whose length and count differ");
		hang_up(client);
		return;
	}
	kind_of(header)->handle(client, bytes);
	if (client->role && client->conn.state == CONN_OPEN)
		conn_await(conn, &client->service->talking);
}
