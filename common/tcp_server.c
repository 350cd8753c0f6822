/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server half of the tcp fabric: fabric_tcp.h. Whoever listens hands connections over with
 * their hello; the control thread admits them, and gives each to the responder that has the fewest.
 *
 *   hello ---> admit? ---> served (by a responder) ---> ended ---> lost
 *                |                    \------> tcp_peer_destroy
 *                v
 *              REJECT
 *
 * Responders write an eventfd when a connection has ended.
 */
#include "common/fabric_tcp.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/net.h"
#include "common/tcp_responder.h"
#include "proto/wire_tcp.h"

#define REASON_LEN sizeof(((struct wire_cm_reject *)NULL)->reason)
#define HELLO_NS (5 * CLOCK_NS_PER_S) /* that tcp_server_accept waits */
#define SILENCE_S 15                  /* before the kernel asks whether a peer is still there */

struct tcp_peer {
	struct tcp_conn conn; /* first */
	struct tcp_server *server;
	struct responder_slot *slot;
	bool is_reported; /* its owner is being told that it is lost */
	LIST_ENTRY(tcp_peer) listed;
};

struct responder_slot {
	struct tcp_responder *responder;
	unsigned n_peers;
};

struct tcp_server {
	struct tcp_events events;
	struct tcp_options options;
	struct tcp_terms terms;
	LIST_HEAD(, tcp_peer) served;
	_Atomic uint64_t n_rejected;
	unsigned n_slots;
	struct responder_slot slots[];
};

static void
count(_Atomic uint64_t *counter)
{
	uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
	atomic_store_explicit(counter, value + 1, memory_order_relaxed);
}

/* ---- Peers ---- */

/* Its responder does not know it any more. */
static void
forget(struct tcp_peer *peer)
{
	LIST_REMOVE(peer, listed);
	peer->slot->n_peers--;
	tcp_conn_free_buffers(&peer->conn);
	free(peer);
}

void
tcp_peer_destroy(struct tcp_peer *peer)
{
	if (!peer || peer->is_reported)
		return;
	tcp_responder_remove(peer->slot->responder, &peer->conn);
	forget(peer);
}

void
tcp_peer_restrict(struct tcp_peer *peer)
{
	peer->conn.frames.is_read_only = true;
}

/* ---- Handshake ---- */

static struct wire_tcp_header
header_of(enum wire_tcp_type type, size_t len)
{
	return (struct wire_tcp_header){
		.magic = WIRE_TCP_MAGIC,
		.version = WIRE_VERSION,
		.type = (uint16_t)type,
		.len = (uint32_t)len,
	};
}

/* A fresh socket has room for so little; a peer that does not listen sees the connection end. */
static void
say(int fd, const void *message, size_t len)
{
	(void)!send(fd, message, len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void
reject(int fd, int code, const char *reason)
{
	struct wire_tcp_reject message = {
		.header = header_of(WIRE_TCP_REJECT, sizeof(message)),
		.code = code,
	};
	snprintf(message.reason, sizeof(message.reason), "%s", reason);
	say(fd, &message, sizeof(message));
}

static struct responder_slot *
idlest_slot(struct tcp_server *server)
{
	struct responder_slot *best = &server->slots[0];
	for (unsigned i = 1; i < server->n_slots; i++)
		if (server->slots[i].n_peers < best->n_peers)
			best = &server->slots[i];
	return best;
}

/* Peers whose machine is gone are found out, although nothing is ever sent to an idle one. */
static void
set_options(const struct tcp_server *server, int fd)
{
	int one = 1, idle_s = SILENCE_S, n_probes = 3;
	/* Later than the responder's own deadline, which it counts, also if it is held up. */
	unsigned user_ms = server->options.stall_ms + 2 * LIMIT_TCP_STALL_MS;
	net_set_nodelay(fd);
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle_s, sizeof(idle_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &n_probes, sizeof(n_probes));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_ms, sizeof(user_ms));
}

static void
serve(struct tcp_peer *peer)
{
	struct tcp_server *server = peer->server;
	const struct tcp_service *service = &server->terms.service;
	struct wire_tcp_accept message = {
		.header = header_of(WIRE_TCP_ACCEPT, sizeof(message)),
		.region_len = service->len,
		.r_key = service->r_key,
		.batch_max = WIRE_TCP_OPS_MAX,
		.flags = peer->conn.frames.is_read_only ? WIRE_TCP_READ_ONLY : 0,
	};
	LIST_INSERT_HEAD(&server->served, peer, listed);
	peer->slot = idlest_slot(server);
	peer->slot->n_peers++;
	set_options(server, peer->conn.fd);
	say(peer->conn.fd, &message, sizeof(message));
	tcp_responder_add(peer->slot->responder, &peer->conn);
}

size_t
tcp_server_measure(const void *bytes, size_t len)
{
	struct wire_tcp_header header;
	if (len < sizeof(header))
		return 0;
	memcpy(&header, bytes, sizeof(header));
	if (header.magic != WIRE_TCP_MAGIC || header.type != WIRE_TCP_HELLO ||
	    header.len > WIRE_TCP_HELLO_MAX || header.len < sizeof(struct wire_tcp_hello))
		return SIZE_MAX;
	return header.len;
}

static int
refuse_version(unsigned version, char reason[REASON_LEN])
{
	snprintf(reason, REASON_LEN, "the client speaks version %u, the server version %u", version,
		 WIRE_VERSION);
	return ERR_VERSION;
}

/* 0, or what is wrong with a hello that tcp_server_measure takes for one. */
static int
check_hello(const struct wire_tcp_hello *hello, char reason[REASON_LEN])
{
	const struct wire_cm_request *request = &hello->request;
	if (hello->header.version != WIRE_VERSION)
		return refuse_version(hello->header.version, reason);
	if (request->magic != WIRE_CM_MAGIC || hello->header.reserved || request->reserved) {
		snprintf(reason, REASON_LEN, "the hello of the data connection is garbled");
		return ERR_CORRUPT;
	}
	if (request->version != WIRE_VERSION)
		return refuse_version(request->version, reason);
	return 0;
}

static int
admit(struct tcp_server *server, int fd, const struct wire_tcp_hello *hello,
      struct tcp_peer **ret_peer, char reason[REASON_LEN])
{
	int rc = check_hello(hello, reason);
	if (rc)
		return rc;
	struct tcp_peer *peer = calloc(1, sizeof(*peer));
	if (!peer || tcp_conn_init(&peer->conn, fd, &server->terms)) {
		snprintf(reason, REASON_LEN, "the server has no memory left");
		free(peer);
		return ERR_NOMEM;
	}
	peer->server = server;
	rc = server->events.admit(server->events.arg, &hello->request, peer, reason);
	if (rc) {
		tcp_conn_free_buffers(&peer->conn);
		free(peer);
		return rc;
	}
	*ret_peer = peer;
	return 0;
}

void
tcp_server_take(struct tcp_server *server, int fd, const void *hello)
{
	char reason[REASON_LEN] = "";
	struct wire_tcp_hello ours;
	struct tcp_peer *peer;
	memcpy(&ours, hello, sizeof(ours));
	int rc = admit(server, fd, &ours, &peer, reason);
	if (!rc) {
		serve(peer);
		return;
	}
	count(&server->n_rejected);
	reject(fd, rc, reason);
	close(fd);
}

/* The first words of a connection, whole. */
static bool
receive_hello(int fd, unsigned char hello[WIRE_TCP_HELLO_MAX])
{
	const size_t header_len = sizeof(struct wire_tcp_header);
	int64_t deadline_ns = clock_now_ns() + HELLO_NS;
	if (net_receive(fd, hello, header_len, deadline_ns) != 0)
		return false;
	size_t len = tcp_server_measure(hello, header_len);
	return len != 0 && len != SIZE_MAX &&
	       net_receive(fd, hello + header_len, len - header_len, deadline_ns) == 0;
}

void
tcp_server_accept(struct tcp_server *server, int listen_fd)
{
	unsigned char hello[WIRE_TCP_HELLO_MAX];
	int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		return;
	if (receive_hello(fd, hello))
		tcp_server_take(server, fd, hello);
	else
		close(fd);
}

/* ---- Events ---- */

int
tcp_server_fd(const struct tcp_server *server)
{
	return server->terms.event_fd;
}

void
tcp_server_dispatch(struct tcp_server *server)
{
	eventfd_t n;
	(void)eventfd_read(server->terms.event_fd, &n);
	for (unsigned i = 0; i < server->n_slots; i++) {
		struct tcp_conn *conn;
		while ((conn = tcp_responder_take_ended(server->slots[i].responder))) {
			struct tcp_peer *peer = (struct tcp_peer *)conn;
			peer->is_reported = true;
			server->events.lost(server->events.arg, peer);
			forget(peer);
		}
	}
}

/* ---- Making one ---- */

static int
open_event_fd(struct tcp_server *server, char reason[TCP_REASON_MAX])
{
	server->terms.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (server->terms.event_fd >= 0)
		return 0;
	snprintf(reason, TCP_REASON_MAX,
		 "cannot open an eventfd for data connections: %s: raise the limit of open files "
		 "(ulimit -n, LimitNOFILE= in a systemd unit)",
		 strerror(errno));
	return err_from_errno(errno);
}

static int
choose_r_key(struct tcp_server *server, char reason[TCP_REASON_MAX])
{
	uint32_t *key = &server->terms.service.r_key;
	while (*key == 0)
		if (getrandom(key, sizeof(*key), 0) != (ssize_t)sizeof(*key) && errno != EINTR) {
			snprintf(reason, TCP_REASON_MAX, "getrandom: %s", strerror(errno));
			return err_from_errno(errno);
		}
	return 0;
}

static int
start_responders(struct tcp_server *server, char reason[TCP_REASON_MAX])
{
	for (unsigned i = 0; i < server->options.n_responders; i++) {
		int rc = tcp_responder_create(&server->terms, &server->slots[i].responder, reason);
		if (rc)
			return rc;
		server->n_slots++;
	}
	return 0;
}

int
tcp_server_create(void *base, size_t len, const struct tcp_events *events,
		  const struct tcp_options *options, struct tcp_server **ret_server,
		  char reason[TCP_REASON_MAX])
{
	struct tcp_server *server =
		calloc(1, sizeof(*server) + options->n_responders * sizeof(server->slots[0]));
	assert(options->n_responders > 0);
	if (!server) {
		snprintf(reason, TCP_REASON_MAX, "no memory to serve data connections");
		return ERR_NOMEM;
	}
	server->events = *events;
	server->options = *options;
	server->terms.service.base = base;
	server->terms.service.len = len;
	server->terms.stall_ms = options->stall_ms;
	LIST_INIT(&server->served);
	int rc = open_event_fd(server, reason);
	if (!rc)
		rc = choose_r_key(server, reason);
	if (!rc)
		rc = start_responders(server, reason);
	if (rc) {
		tcp_server_destroy(server);
		return rc;
	}
	*ret_server = server;
	return 0;
}

void
tcp_server_destroy(struct tcp_server *server)
{
	struct tcp_peer *peer;
	if (!server)
		return;
	for (unsigned i = 0; i < server->n_slots; i++)
		tcp_responder_destroy(server->slots[i].responder);
	while ((peer = LIST_FIRST(&server->served)))
		forget(peer);
	if (server->terms.event_fd >= 0)
		close(server->terms.event_fd);
	free(server);
}

void
tcp_server_offer(const struct tcp_server *server, struct fab_offer *ret_offer)
{
	ret_offer->base = 0;
	ret_offer->len = server->terms.service.len;
	ret_offer->r_key = server->terms.service.r_key;
}

void
tcp_server_counters(const struct tcp_server *server, struct tcp_counters *ret_counters)
{
	struct tcp_counters counters = {
		.n_threads = server->n_slots,
		.n_rejected = atomic_load_explicit(&server->n_rejected, memory_order_relaxed),
	};
	for (unsigned i = 0; i < server->n_slots; i++)
		tcp_responder_count(server->slots[i].responder, &counters);
	*ret_counters = counters;
}
