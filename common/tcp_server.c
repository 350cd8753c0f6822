/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server half of the tcp fabric: fabric_tcp.h. The control thread accepts connections and reads
 * their hellos, all of it without waiting; who is admitted is handed to the responder that has the
 * fewest.
 *
 *   accept ---> greeting ---> admit? ---> served (by a responder) ---> ended ---> lost
 *                  |            |                    \------> tcp_peer_destroy
 *                  v            v
 *          too late, garbage   REJECT
 *
 * One epoll descriptor stands for all that the control thread has to look at: the listener, the
 * peers that greet, the clock of their deadlines, and an eventfd that responders write when a
 * connection has ended. Each look takes one event, since what it does may free the peers of others.
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
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/tcp_responder.h"
#include "proto/wire_tcp.h"

#define BACKLOG 1024
#define EVENTS_MAX 256 /* looks in one dispatch */
#define ACCEPT_MAX 16  /* connections taken in one look */
#define REST_MS 100    /* after a failure of accept */
#define LOG_EVERY_NS INT64_C(10000000000)
#define REASON_LEN sizeof(((struct wire_cm_reject *)NULL)->reason)
#define SILENCE_S 15 /* before the kernel asks whether a peer is still there */

struct tcp_peer {
	struct tcp_conn conn; /* first; its fd is this peer's until it is served */
	struct tcp_server *server;
	struct responder_slot *slot; /* NULL: it greets */
	bool is_reported;            /* its owner is being told that it is lost */
	int64_t deadline_ns;         /* of the hello */
	size_t n_got;
	unsigned char hello[WIRE_TCP_HELLO_MAX];
	TAILQ_ENTRY(tcp_peer) listed; /* of greeting or served */
};

struct responder_slot {
	struct tcp_responder *responder;
	unsigned n_peers;
};

TAILQ_HEAD(peer_queue, tcp_peer);

struct tcp_server {
	struct tcp_events events;
	struct tcp_options options;
	struct tcp_terms terms;
	const struct log *log;
	struct net_address bound;
	int listen_fd;
	int spare_fd; /* given up to take a connection when none is left */
	int epoll_fd;
	int timer_fd;
	int64_t logged_ns;
	int64_t rests_until_ns;     /* when the listener is looked at again; 0: it is */
	struct peer_queue greeting; /* oldest first */
	struct peer_queue served;
	unsigned n_greeting;
	_Atomic uint64_t n_turned_away, n_silent, n_rejected;
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

/* One that greets. */
static void
drop(struct tcp_peer *peer)
{
	struct tcp_server *server = peer->server;
	TAILQ_REMOVE(&server->greeting, peer, listed);
	server->n_greeting--;
	close(peer->conn.fd);
	tcp_conn_free_buffers(&peer->conn);
	free(peer);
}

/* One that was served; its responder does not know it any more. */
static void
forget(struct tcp_peer *peer)
{
	TAILQ_REMOVE(&peer->server->served, peer, listed);
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
	int fd = peer->conn.fd;
	TAILQ_REMOVE(&server->greeting, peer, listed);
	server->n_greeting--;
	TAILQ_INSERT_TAIL(&server->served, peer, listed);
	peer->slot = idlest_slot(server);
	peer->slot->n_peers++;
	epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	say(fd, &message, sizeof(message));
	/* io_uring does not wait on sockets in non-blocking mode. */
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	tcp_responder_add(peer->slot->responder, &peer->conn);
}

/* 0, or what is wrong with a whole hello. */
static int
check_hello(const struct wire_tcp_hello *hello, char reason[REASON_LEN])
{
	const struct wire_cm_request *request = &hello->request;
	if (request->magic != WIRE_CM_MAGIC || hello->header.reserved || request->reserved) {
		snprintf(reason, REASON_LEN, "the hello of the data connection is garbled");
		return ERR_CORRUPT;
	}
	if (request->version != WIRE_VERSION) {
		snprintf(reason, REASON_LEN, "the client speaks version %u, the server version %u",
			 request->version, WIRE_VERSION);
		return ERR_VERSION;
	}
	return 0;
}

static void
greeted(struct tcp_peer *peer)
{
	struct tcp_server *server = peer->server;
	char reason[REASON_LEN] = "";
	struct wire_tcp_hello hello;
	memcpy(&hello, peer->hello, sizeof(hello));
	int rc = check_hello(&hello, reason);
	if (!rc) {
		rc = tcp_conn_init(&peer->conn, peer->conn.fd, &server->terms);
		if (rc)
			snprintf(reason, sizeof(reason), "the server has no memory left");
	}
	if (!rc)
		rc = server->events.admit(server->events.arg, &hello.request, peer, reason);
	if (!rc) {
		serve(peer);
		return;
	}
	count(&server->n_rejected);
	reject(peer->conn.fd, rc, reason);
	drop(peer);
}

/*
 * How many bytes of the hello there must be before more can be said; 0: it is whole; < 0: this is
 * no hello.
 */
static int
still_needed(const struct tcp_peer *peer, size_t *ret_want)
{
	struct wire_tcp_header header;
	if (peer->n_got < sizeof(header)) {
		*ret_want = sizeof(header) - peer->n_got;
		return 0;
	}
	memcpy(&header, peer->hello, sizeof(header));
	if (header.magic != WIRE_TCP_MAGIC || header.type != WIRE_TCP_HELLO ||
	    header.len > WIRE_TCP_HELLO_MAX || header.len < sizeof(header))
		return ERR_CORRUPT;
	if (header.version != WIRE_VERSION)
		return ERR_VERSION;
	if (header.len < sizeof(struct wire_tcp_hello))
		return ERR_CORRUPT;
	*ret_want = header.len - peer->n_got;
	return 0;
}

static void
refuse_version(struct tcp_peer *peer)
{
	char reason[128];
	struct wire_tcp_header header;
	memcpy(&header, peer->hello, sizeof(header));
	snprintf(reason, sizeof(reason), "the client speaks version %u, the server version %u",
		 header.version, WIRE_VERSION);
	reject(peer->conn.fd, ERR_VERSION, reason);
}

/* Takes what has arrived of a hello, and not one byte more. */
static void
hear(struct tcp_peer *peer)
{
	for (;;) {
		size_t want = 0;
		int rc = still_needed(peer, &want);
		if (!rc && want == 0) {
			greeted(peer);
			return;
		}
		ssize_t n = rc ? 0 : recv(peer->conn.fd, peer->hello + peer->n_got, want, 0);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			if (rc)
				count(&peer->server->n_rejected);
			if (rc == ERR_VERSION)
				refuse_version(peer);
			drop(peer);
			return;
		}
		peer->n_got += (size_t)n;
	}
}

/* ---- Accepting ---- */

/* Peers whose machine is gone are found out, although nothing is ever sent to an idle one. */
static void
set_options(const struct tcp_server *server, int fd)
{
	int one = 1, idle_s = SILENCE_S, n_probes = 3;
	/* Later than the responder's own deadline, which it counts. */
	unsigned user_ms = 3 * server->options.stall_ms;
	net_set_nodelay(fd);
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle_s, sizeof(idle_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &n_probes, sizeof(n_probes));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_ms, sizeof(user_ms));
}

static void
set_timer(struct tcp_server *server)
{
	const struct tcp_peer *oldest = TAILQ_FIRST(&server->greeting);
	int64_t next_ns = server->rests_until_ns;
	if (oldest && (next_ns == 0 || oldest->deadline_ns < next_ns))
		next_ns = oldest->deadline_ns;
	/* 0 disarms it. */
	const struct itimerspec when = {.it_value = clock_timespec(next_ns)};
	timerfd_settime(server->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

static void
log_turned_away(struct tcp_server *server, const char *why)
{
	int64_t now_ns = clock_now_ns();
	if (server->logged_ns && now_ns - server->logged_ns < LOG_EVERY_NS)
		return;
	server->logged_ns = now_ns;
	log_line(server->log, LOG_WARN, "data connections are turned away (%llu so far): %s",
		 (unsigned long long)atomic_load_explicit(&server->n_turned_away,
							  memory_order_relaxed),
		 why);
}

static void
welcome(struct tcp_server *server, int fd)
{
	struct tcp_peer *peer = calloc(1, sizeof(*peer));
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
	if (!peer || epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event)) {
		count(&server->n_turned_away);
		log_turned_away(server, "no memory");
		free(peer);
		close(fd);
		return;
	}
	set_options(server, fd);
	peer->server = server;
	peer->conn.fd = fd;
	peer->deadline_ns = clock_now_ns() + server->options.handshake_ms * CLOCK_NS_PER_MS;
	TAILQ_INSERT_TAIL(&server->greeting, peer, listed);
	server->n_greeting++;
	if (server->n_greeting > server->options.half_open_max) {
		count(&server->n_turned_away);
		log_turned_away(server, "too many have not said who they are");
		drop(TAILQ_FIRST(&server->greeting));
	}
}

static int
take_connection(const struct tcp_server *server)
{
	int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

static void
open_spare(struct tcp_server *server)
{
	if (server->spare_fd < 0)
		server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Takes a connection with the spare descriptor, says why, and lets it go. Returns 0, or -errno. */
static int
turn_away(struct tcp_server *server, int error)
{
	if (server->spare_fd < 0)
		return error;
	close(server->spare_fd);
	server->spare_fd = -1;
	int fd = take_connection(server);
	if (fd >= 0) {
		count(&server->n_turned_away);
		log_turned_away(server, "raise RLIMIT_NOFILE (ulimit -n, LimitNOFILE= in a "
					"systemd unit)");
		reject(fd, ERR_AGAIN, "the server has no file descriptor left");
		close(fd);
	}
	open_spare(server);
	return fd < 0 ? fd : 0;
}

/* Looks at the listener no more, or again: after a failure that waiting may mend. */
static void
rest(struct tcp_server *server, bool rests)
{
	struct epoll_event event = {.events = rests ? 0 : EPOLLIN, .data.ptr = &server->listen_fd};
	epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, server->listen_fd, &event);
	server->rests_until_ns = rests ? clock_now_ns() + REST_MS * CLOCK_NS_PER_MS : 0;
}

static void
accept_some(struct tcp_server *server)
{
	open_spare(server);
	for (int i = 0; i < ACCEPT_MAX; i++) {
		int fd = take_connection(server);
		if (fd >= 0)
			welcome(server, fd);
		else if (fd == -EMFILE || fd == -ENFILE)
			fd = turn_away(server, fd);
		else if (fd == -ECONNABORTED || fd == -EINTR)
			fd = 0;
		if (fd < 0 && fd != -EAGAIN)
			rest(server, true);
		if (fd < 0)
			break;
	}
	set_timer(server);
}

/* ---- Events ---- */

static void
time_passed(struct tcp_server *server)
{
	uint64_t n_expired;
	struct tcp_peer *peer;
	int64_t now_ns = clock_now_ns();
	(void)!read(server->timer_fd, &n_expired, sizeof(n_expired));
	while ((peer = TAILQ_FIRST(&server->greeting)) && peer->deadline_ns <= now_ns) {
		count(&server->n_silent);
		drop(peer);
	}
	if (server->rests_until_ns && server->rests_until_ns <= now_ns)
		rest(server, false);
	set_timer(server);
}

static void
tell_lost(struct tcp_server *server)
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

int
tcp_server_fd(const struct tcp_server *server)
{
	return server->epoll_fd;
}

void
tcp_server_dispatch(struct tcp_server *server)
{
	struct epoll_event event;
	for (int i = 0; i < EVENTS_MAX; i++) {
		if (epoll_wait(server->epoll_fd, &event, 1, 0) <= 0)
			return;
		if (event.data.ptr == &server->listen_fd)
			accept_some(server);
		else if (event.data.ptr == &server->timer_fd)
			time_passed(server);
		else if (event.data.ptr == &server->terms)
			tell_lost(server);
		else
			hear(event.data.ptr);
	}
}

/* ---- Making one ---- */

static int
watch(struct tcp_server *server, int fd, void *name)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = name};
	return epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? errno : 0;
}

static int
open_descriptors(struct tcp_server *server, char reason[TCP_REASON_MAX])
{
	int error = 0;
	server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	server->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	server->terms.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	open_spare(server);
	if (server->epoll_fd < 0 || server->timer_fd < 0 || server->terms.event_fd < 0 ||
	    server->spare_fd < 0)
		error = errno;
	if (!error)
		error = watch(server, server->listen_fd, &server->listen_fd);
	if (!error)
		error = watch(server, server->timer_fd, &server->timer_fd);
	if (!error)
		error = watch(server, server->terms.event_fd, &server->terms);
	if (!error && fcntl(server->listen_fd, F_SETFL, O_NONBLOCK) < 0)
		error = errno;
	if (!error)
		return 0;
	snprintf(reason, TCP_REASON_MAX,
		 "cannot open descriptors for data connections: %s: raise the limit of open files "
		 "(ulimit -n, LimitNOFILE= in a systemd unit)",
		 strerror(error));
	return err_from_errno(error);
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
tcp_server_create(const struct net_address *address, void *base, size_t len,
		  const struct tcp_events *events, const struct tcp_options *options,
		  const struct log *log, struct tcp_server **ret_server,
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
	server->log = log;
	server->terms.service.base = base;
	server->terms.service.len = len;
	server->terms.stall_ms = options->stall_ms;
	server->listen_fd = server->spare_fd = server->epoll_fd = server->timer_fd = -1;
	server->terms.event_fd = -1;
	TAILQ_INIT(&server->greeting);
	TAILQ_INIT(&server->served);
	int rc = net_listen(address, BACKLOG, &server->listen_fd, &server->bound, reason);
	if (!rc)
		rc = open_descriptors(server, reason);
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

static void
close_descriptors(struct tcp_server *server)
{
	const int fds[] = {server->listen_fd, server->spare_fd, server->epoll_fd, server->timer_fd,
			   server->terms.event_fd};
	for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

void
tcp_server_destroy(struct tcp_server *server)
{
	struct tcp_peer *peer;
	if (!server)
		return;
	for (unsigned i = 0; i < server->n_slots; i++)
		tcp_responder_destroy(server->slots[i].responder);
	while ((peer = TAILQ_FIRST(&server->served)))
		forget(peer);
	while ((peer = TAILQ_FIRST(&server->greeting)))
		drop(peer);
	close_descriptors(server);
	free(server);
}

void
tcp_server_offer(const struct tcp_server *server, struct fab_offer *ret_offer)
{
	char text[NET_TEXT_MAX];
	net_format(&server->bound, text);
	ret_offer->base = 0;
	ret_offer->len = server->terms.service.len;
	ret_offer->r_key = server->terms.service.r_key;
	snprintf(ret_offer->tcp_address, sizeof(ret_offer->tcp_address), "%.63s", text);
}

void
tcp_server_counters(const struct tcp_server *server, struct tcp_counters *ret_counters)
{
	struct tcp_counters counters = {
		.n_turned_away = atomic_load_explicit(&server->n_turned_away, memory_order_relaxed),
		.n_silent = atomic_load_explicit(&server->n_silent, memory_order_relaxed),
		.n_rejected = atomic_load_explicit(&server->n_rejected, memory_order_relaxed),
	};
	for (unsigned i = 0; i < server->n_slots; i++)
		tcp_responder_count(server->slots[i].responder, &counters);
	*ret_counters = counters;
}
