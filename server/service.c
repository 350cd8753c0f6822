/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control protocol: service.h. One function per message; each checks what came, changes sessions
 * and answers. Whatever is not a message of this protocol is answered with REFUSED, in words, and the
 * connection is closed.
 *
 * Life of a client:  connection open, pidfd none -> (token presented) pidfd watched
 *                    connection closed: sessions end (no pidfd) or linger (pidfd)
 *                    pidfd readable: sessions end
 * client_settle frees it when the connection is closed and no session is left.
 */
#include "server/service.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "server/stats.h"

#define CONNECTIONS_MAX (LIMIT_CLIENTS + 1024u) /* the rest: still to say HELLO, or being refused */
#define LOG_EVERY_NS (10 * CLOCK_NS_PER_S)

struct client {
	struct conn conn; /* first */
	struct service *service;
	struct session_owner owner;
	bool open;
	enum wire_role role; /* 0 before the HELLO */
	bool has_token;
	unsigned char token[WIRE_TOKEN_LEN];
	int pidfd;
	struct loop_op gone; /* the pidfd's poll */
	LIST_ENTRY(client) entry;
};

static struct client *
client_of_conn(struct conn *conn)
{
	return (struct client *)conn;
}

#define client_of(pointer, member)                                                                 \
	((struct client *)(void *)((char *)(pointer)-offsetof(struct client, member)))

/* ---- Clients ---- */

static void
client_free(struct client *client)
{
	LIST_REMOVE(client, entry);
	if (client->pidfd >= 0)
		close(client->pidfd);
	free(client);
}

/* Lets go of a client that nothing holds any more. */
static void
client_settle(struct client *client)
{
	if (client->open || client->owner.n_sessions)
		return;
	if (loop_is_idle(&client->gone))
		client_free(client);
	else
		loop_cancel(client->service->loop, &client->gone);
}

static void process_gone(struct loop_op *op, int result);

static void
watch_process(struct client *client)
{
	loop_poll(client->service->loop, &client->gone, client->pidfd, POLLIN, process_gone);
}

static void
process_gone(struct loop_op *op, int result)
{
	struct client *client = client_of(op, gone);
	struct service *service = client->service;
	if (result >= 0) {
		if (client->owner.n_sessions)
			log_line(service->log, LOG_INFO, "process %d is gone with %u sessions open",
				 (int)client->owner.pid, client->owner.n_sessions);
		sessions_process_gone(&service->sessions, &client->owner);
		census_hurry(&service->census);
		if (client->open) /* perhaps held open by a child of the process */
			conn_abort(&client->conn);
	} else if (result != -ECANCELED) {
		watch_process(client);
	}
	client_settle(client);
}

static struct client *
client_with_token(struct service *service, const unsigned char *token)
{
	struct client *client;
	LIST_FOREACH(client, &service->clients, entry)
	{
		unsigned differ = !client->has_token;
		for (size_t i = 0; i < WIRE_TOKEN_LEN; i++)
			differ |= (unsigned)(client->token[i] ^ token[i]);
		if (!differ)
			return client;
	}
	return NULL;
}

static bool
claim(struct handout *handout, const unsigned char *token, int pidfd, pid_t pid)
{
	struct service *service = (void *)((char *)handout - offsetof(struct service, handout));
	struct client *client = client_with_token(service, token);
	if (!client)
		return false;
	client->has_token = false;
	client->pidfd = pidfd;
	client->owner.mapped = true;
	client->owner.pid = pid;
	watch_process(client);
	return true;
}

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

static const struct wire_sizes own_sizes = {
	.layout_version = LAYOUT_VERSION,
	.superblock_len = sizeof(struct layout_superblock),
	.bucket_len = LAYOUT_BUCKET_LEN,
	.block_header_len = BLOCK_HEADER_LEN,
	.granule = LIMIT_GRANULE,
	.tag_bits = LIMIT_TAG_BITS,
	.word_stamps = LIMIT_WORD_STAMPS,
	.stamp_ms = LIMIT_STAMP_MS,
};

/* In the order of struct wire_sizes. */
static const char *const size_names[] = {
	"layout version", "superblock length", "bucket length",      "block header length",
	"granule length", "tag bits",          "word age in stamps", "stamp interval in ms",
};
#define N_SIZES (sizeof(struct wire_sizes) / sizeof(uint32_t))
static_assert(sizeof(size_names) / sizeof(*size_names) == N_SIZES, "every size has a name");

/* Returns false, and has refused, if a size differs. */
static bool
sizes_agree(struct client *client, const struct wire_hello *hello)
{
	uint32_t theirs[N_SIZES], ours[N_SIZES];
	memcpy(theirs, &hello->sizes, sizeof(theirs));
	memcpy(ours, &own_sizes, sizeof(ours));
	for (size_t i = 0; i < N_SIZES; i++) {
		if (theirs[i] == ours[i])
			continue;
		refuse(client, &hello->header, ERR_VERSION,
		       "versions do not fit: %s: client %" PRIu32 ", server %" PRIu32
		       ": use programs of the same release",
		       size_names[i], theirs[i], ours[i]);
		return false;
	}
	return true;
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
	if (client->service->n_clients >= LIMIT_CLIENTS) {
		refuse(client, &hello->header, ERR_NOMEM,
		       "the server has as many clients as it can hold (%u)", LIMIT_CLIENTS);
		return false;
	}
	return true;
}

static void
give_token(struct client *client)
{
	if (client->role == WIRE_ROLE_CLIENT &&
	    getrandom(client->token, sizeof(client->token), 0) == (ssize_t)sizeof(client->token))
		client->has_token = true;
}

static void
welcome(struct client *client, const struct wire_hello *hello)
{
	const struct service *service = client->service;
	const struct region *region = service->region;
	struct wire_welcome answer = {
		.header = answer_header(&hello->header, WIRE_WELCOME, sizeof(answer)),
		.sizes = own_sizes,
		.stamp = service->sessions.newest,
		.server_pid = (uint32_t)getpid(),
		.n_regions = 1,
		.region = {{
			.region_id = region->region_id,
			.epoch = region->epoch,
			.len = region->layout.region_len,
		}},
	};
	memcpy(answer.boot_id, service->boot_id, sizeof(answer.boot_id));
	memcpy(answer.unix_path, service->unix_path, sizeof(answer.unix_path));
	if (client->has_token)
		memcpy(answer.token, client->token, sizeof(answer.token));
	conn_send(&client->conn, &answer, sizeof(answer));
}

static void
on_hello(struct client *client, const void *message)
{
	const struct wire_hello *hello = message;
	if (client->role) {
		refuse(client, &hello->header, ERR_INVALID, "a second hello on one connection");
		hang_up(client);
		return;
	}
	if (!hello_is_good(client, hello)) {
		client->service->n_handshakes_refused++;
		hang_up(client);
		return;
	}
	client->role = (enum wire_role)hello->role;
	client->service->n_clients++;
	client->service->n_welcomed++;
	give_token(client);
	welcome(client, hello);
}

/* ---- Sessions ---- */

/* The session that a message names, or NULL after a refusal. */
static struct session *
named_session(struct client *client, const struct wire_session *message)
{
	struct session *session = sessions_find(&client->service->sessions, &client->owner,
						message->session_slot, message->serial);
	if (!session)
		refuse(client, &message->header, ERR_INVALID,
		       "this connection has no session %" PRIu32 " with serial %" PRIu32,
		       message->session_slot, message->serial);
	return session;
}

static void
end_former(struct client *client, uint32_t serial)
{
	struct service *service = client->service;
	struct session *former = sessions_find_former(&service->sessions, &client->owner, serial);
	if (!former)
		return;
	struct client *owner = client_of(former->owner, owner);
	sessions_end(&service->sessions, former, false);
	census_hurry(&service->census);
	client_settle(owner);
}

static void
on_join(struct client *client, const void *message)
{
	const struct wire_join *join = message;
	struct service *service = client->service;
	struct session *session;
	const char *reason;
	if (join->former_serial)
		end_former(client, join->former_serial);
	if (service->sessions.n_living + service->sessions.n_ending == LIMIT_SESSIONS)
		census_finish_ending(&service->census);
	int rc = sessions_join(&service->sessions, &client->owner, &session, &reason);
	if (rc) {
		refuse(client, &join->header, rc, "%s", reason);
		return;
	}
	struct wire_joined answer = {
		.header = answer_header(&join->header, WIRE_JOINED, sizeof(answer)),
		.session_slot = session->slot,
		.serial = session->serial,
		.stamp = session->a,
	};
	conn_send(&client->conn, &answer, sizeof(answer));
}

static void
on_keepalive(struct client *client, const void *message)
{
	const struct wire_keepalive *keepalive = message;
	struct service *service = client->service;
	for (uint32_t i = 0; i < keepalive->n; i++) {
		const struct wire_announcement *said = &keepalive->session[i];
		struct session *session = sessions_find(&service->sessions, &client->owner,
							said->session_slot, said->serial);
		if (session)
			sessions_announce(&service->sessions, session, said->a);
	}
	struct wire_stamp answer = {
		.header = answer_header(&keepalive->header, WIRE_STAMP, sizeof(answer)),
		.newest = service->sessions.newest,
		.g = sessions_g(&service->sessions),
		.flags = census_chunks_short(&service->census) ? WIRE_STAMP_CHUNKS_SHORT : 0,
	};
	conn_send(&client->conn, &answer, sizeof(answer));
}

/* On shared memory nothing is outstanding once the client's own thread has stopped posting. */
static void
on_relink(struct client *client, const void *message)
{
	const struct wire_session *relink = message;
	struct session *session = named_session(client, relink);
	if (session)
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
	int rc = sessions_renew(&client->service->sessions, session, &reason);
	if (rc)
		refuse(client, &renew->header, rc, "%s", reason);
	else
		answer_session(client, &renew->header, WIRE_RENEWED, session);
}

static void
on_leave(struct client *client, const void *message)
{
	const struct wire_session *leave = message;
	struct service *service = client->service;
	struct session *session = sessions_find(&service->sessions, &client->owner,
						leave->session_slot, leave->serial);
	if (!session)
		return; /* nobody waits for an answer */
	sessions_end(&service->sessions, session, true);
	census_hurry(&service->census);
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
	size_t len = stats_text(client->service, answer.text, sizeof(answer.text));
	answer.header = answer_header(header, WIRE_STATS_TEXT, sizeof(answer.header) + len);
	conn_send(&client->conn, &answer, sizeof(answer.header) + len);
}

static void
on_ping(struct client *client, const void *message)
{
	struct wire_header answer = answer_header(message, WIRE_PONG, sizeof(answer));
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
	[WIRE_JOIN] = {sizeof(struct wire_join), 0, true, on_join},
	[WIRE_KEEPALIVE] = {sizeof(struct wire_keepalive), sizeof(struct wire_announcement), true,
			    on_keepalive},
	[WIRE_RELINK] = {sizeof(struct wire_session), 0, true, on_relink},
	[WIRE_RENEW] = {sizeof(struct wire_session), 0, true, on_renew},
	[WIRE_LEAVE] = {sizeof(struct wire_session), 0, true, on_leave},
	[WIRE_STATS] = {sizeof(struct wire_header), 0, false, on_stats},
	[WIRE_PING] = {sizeof(struct wire_header), 0, false, on_ping},
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
	else if (!client->role && header->type != WIRE_HELLO)
		refuse(client, header, ERR_INVALID, "the first message is not a hello");
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

static size_t
measure(struct conn *conn, const void *bytes, size_t len)
{
	struct client *client = client_of_conn(conn);
	const struct wire_header *header = bytes;
	if (len < sizeof(*header))
		return 0;
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

static void
message(struct conn *conn, const void *bytes, size_t len)
{
	struct client *client = client_of_conn(conn);
	const struct wire_header *header = bytes;
	(void)len;
	client->service->n_messages++;
	if (!count_is_good(header)) {
		client->service->n_garbage++;
		refuse(client, header, ERR_INVALID, "a keepalive whose length and count differ");
		hang_up(client);
		return;
	}
	kind_of(header)->handle(client, bytes);
	if (client->conn.state == CONN_OPEN)
		conn_await(conn, &client->service->talking);
}

static void
closed(struct conn *conn)
{
	struct client *client = client_of_conn(conn);
	struct service *service = client->service;
	client->open = false;
	client->has_token = false;
	service->n_connections--;
	service->n_clients -= client->role != 0;
	sessions_disconnected(&service->sessions, &client->owner);
	census_hurry(&service->census);
	client_settle(client);
}

static const struct conn_events client_events = {measure, message, closed};

/* ---- Connections come ---- */

static struct service *
service_of(struct loop_listener *listener)
{
	return (struct service *)(void *)((char *)listener - offsetof(struct service, listener));
}

/* A word to somebody who does not become a client; nobody waits whether it arrives. */
static void
farewell(int fd, const char *reason)
{
	struct wire_refused refused = {
		.header = answer_header(NULL, WIRE_REFUSED, sizeof(refused)),
		.code = ERR_NOMEM,
	};
	snprintf(refused.reason, sizeof(refused.reason), "%s", reason);
	send(fd, &refused, sizeof(refused), MSG_DONTWAIT | MSG_NOSIGNAL);
	shutdown(fd, SHUT_WR);
}

static void
accepted(struct loop_listener *listener, int fd)
{
	struct service *service = service_of(listener);
	struct client *client = calloc(1, sizeof(*client));
	service->n_accepted++;
	if (service->n_connections >= CONNECTIONS_MAX)
		conn_queue_drop_first(&service->greeting);
	if (!client) {
		farewell(fd, "the server has no memory left for another connection");
		close(fd);
		return;
	}
	net_set_nodelay(fd);
	if (conn_open(&client->conn, service->loop, fd, &client_events, &service->greeting)) {
		free(client);
		return;
	}
	client->service = service;
	client->open = true;
	client->pidfd = -1;
	client->owner.connected = true;
	LIST_INIT(&client->owner.sessions);
	LIST_INSERT_HEAD(&service->clients, client, entry);
	service->n_connections++;
}

static void
refused_for_files(struct loop_listener *listener, int fd)
{
	service_of(listener)->n_handshakes_refused++;
	farewell(fd, "the server has no file descriptor left (RLIMIT_NOFILE): try again later");
}

/* ---- Time ---- */

static void
tick_done(struct loop_op *op, int result)
{
	struct service *service = (void *)((char *)op - offsetof(struct service, tick));
	if (result == -ECANCELED)
		return;
	int64_t now = clock_now_ns();
	loop_timer(service->loop, op, LIMIT_STAMP_MS, tick_done);
	sessions_tick(&service->sessions);
	conn_queue_expire(&service->greeting, now);
	conn_queue_expire(&service->talking, now);
	conn_queue_expire(&service->handout.greeting, now);
	census_tick(&service->census);
}

/* ---- Begin and end ---- */

static void
init(struct service *service, const struct service_setup *setup)
{
	service->loop = setup->loop;
	service->log = setup->log;
	service->region = setup->region;
	service->started_ns = clock_now_ns();
	LIST_INIT(&service->clients);
	conn_queue_init(&service->greeting, LIMIT_HANDSHAKE_MS);
	conn_queue_init(&service->talking, LIMIT_LEASE_MS);
	snprintf(service->unix_path, sizeof(service->unix_path), "%s", setup->unix_path);
	sessions_init(&service->sessions, &setup->region->superblock->next_serial, 1);
	census_init(&service->census, setup->region, &service->sessions, setup->log);
	service->listener.accepted = accepted;
	service->listener.refused = refused_for_files;
	service->handout = (struct handout){
		.loop = setup->loop,
		.log = setup->log,
		.pool = setup->region->pool,
		.claim = claim,
	};
}

int
service_create(const struct service_setup *setup, struct service **ret_service)
{
	struct service *service = calloc(1, sizeof(*service));
	if (!service)
		return ERR_NOMEM;
	init(service, setup);
	int rc = net_boot_id(service->boot_id);
	if (rc == 0)
		rc = handout_start(&service->handout, setup->unix_fd);
	if (rc == 0)
		rc = loop_listen(service->loop, &service->listener, setup->tcp_fd);
	if (rc) {
		log_line(setup->log, LOG_ERROR, "cannot begin to serve: %s", err_str(rc));
		service_destroy(service);
		return rc;
	}
	loop_timer(service->loop, &service->tick, LIMIT_STAMP_MS, tick_done);
	*ret_service = service;
	return 0;
}

void
service_destroy(struct service *service)
{
	struct client *client;
	if (!service)
		return;
	while ((client = LIST_FIRST(&service->clients))) {
		conn_release(&client->conn);
		client_free(client);
	}
	handout_destroy(&service->handout);
	loop_listener_close(&service->listener);
	free(service);
}
