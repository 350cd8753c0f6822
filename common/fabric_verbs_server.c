/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server's side of the verbs fabric: the region's memory registrations, the listener, and the
 * *peers*, which are the passive ends of clients' connections. No work request is ever posted here:
 * a peer's queue pair lets the device serve what the client asks for.
 *
 *   CONNECT_REQUEST -> checked -> admitted by the owner -> accepted --(handshake)--> ESTABLISHED
 *          |               |              |                   |                          |
 *          '-> refused, with a sentence <-'                   '--> too long: lost        |
 *                                                                                        v
 *   the owner destroys it (its session is dead, [DEAD])       DISCONNECTED and the like: lost
 *
 * What the device serves is said to the queue pair before the client can use it, so that who may
 * only read is refused by the device, with any R_Key.
 *
 * In any state a peer ends by the destruction of its queue pair, which returns when nothing late of
 * it can land. Strangers cost an id of rdma_cm while they are being refused; those whose request
 * was good and who then say nothing are bounded in time (and in number, as the owner admits none
 * without a token of its own).
 *
 * Threads: all of it belongs to one thread at a time.
 */
#include "common/fabric_verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/fabric_verbs_internal.h"

#define BACKLOG 1024
#define LOOPBACK_NS CLOCK_NS_PER_S /* to connect it: the caller's clients wait meanwhile */
#define EVENTS_MAX 64 /* of one dispatch: then the others of this thread have their turn */
#define LOOPBACK_DEPTH 64u
#define REMOTE_ACCESS (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

struct verbs_peer {
	struct verbs_server *server;
	struct rdma_cm_id *id;
	struct ibv_qp *qp; /* NULL: not accepted yet, or destroyed */
	int64_t since_ns;
	bool only_reads;
	bool is_half_open; /* accepted, and its connection is not complete yet */
	bool is_owned;     /* its owner knows of it */
	bool is_reported;  /* its owner is being told that it is lost */
	LIST_ENTRY(verbs_peer) entry;
};

LIST_HEAD(peer_list, verbs_peer);

struct verbs_server {
	struct verbs_device *device;
	const struct log *log;
	struct verbs_events events;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	int epoll_fd; /* of the channel, and of the device's own events */
	/* The region. */
	unsigned char *base;
	size_t len;
	size_t segment_len;
	unsigned n_segments;
	struct ibv_mr *mr[WIRE_SEGMENTS_MAX];
	struct ibv_cq *cq; /* of all peers: nothing ever completes there */
	/* Peers. */
	struct peer_list peers;
	struct verbs_peer *loopback; /* the other end of the server's own endpoint, or NULL */
	bool has_loopback_token;
	unsigned char loopback_token[WIRE_TOKEN_LEN];
};

/* ---- Peers ---- */

static struct verbs_peer *
peer_new(struct verbs_server *server, struct rdma_cm_id *id)
{
	struct verbs_peer *peer = calloc(1, sizeof(*peer));
	id->context = peer;
	if (!peer)
		return NULL;
	peer->server = server;
	peer->id = id;
	peer->since_ns = clock_now_ns();
	LIST_INSERT_HEAD(&server->peers, peer, entry);
	return peer;
}

static void
peer_destroy_qp(struct verbs_peer *peer)
{
	if (peer->qp)
		ibv_destroy_qp(peer->qp);
	peer->qp = NULL;
}

static void
peer_free(struct verbs_peer *peer)
{
	if (peer->server->loopback == peer)
		peer->server->loopback = NULL;
	LIST_REMOVE(peer, entry);
	peer_destroy_qp(peer);
	cm_id_destroy(peer->id);
	free(peer);
}

/* It has ended by itself. */
static void
peer_lost(struct verbs_peer *peer)
{
	struct verbs_server *server = peer->server;
	peer_destroy_qp(peer); /* [DEAD] */
	if (peer->is_owned) {
		peer->is_reported = true;
		server->events.lost(server->events.arg, peer);
	}
	peer_free(peer);
}

void
verbs_peer_destroy(struct verbs_peer *peer)
{
	if (!peer || peer->is_reported)
		return;
	rdma_disconnect(peer->id); /* so that the client knows at once, if it is there */
	peer_free(peer);
}

void
verbs_peer_restrict(struct verbs_peer *peer)
{
	peer->only_reads = true;
}

/* ---- Requests ---- */

static bool
is_loopback(struct verbs_server *server, const struct wire_cm_request *request)
{
	if (!server->has_loopback_token)
		return false;
	unsigned char difference = 0; /* in constant time: others could try */
	for (size_t i = 0; i < WIRE_TOKEN_LEN; i++)
		difference |= request->token[i] ^ server->loopback_token[i];
	if (difference)
		return false;
	server->has_loopback_token = false;
	return true;
}

static int
peer_admit(struct verbs_peer *peer, const struct wire_cm_request *request,
	   char reason[VERBS_REASON_MAX])
{
	struct verbs_server *server = peer->server;
	struct wire_cm_reject words = {0};
	if (is_loopback(server, request)) {
		verbs_peer_destroy(server->loopback); /* [ONE-QP] */
		server->loopback = peer;
		return 0;
	}
	int r = server->events.admit(server->events.arg, request, peer, words.reason);
	if (r) {
		snprintf(reason, VERBS_REASON_MAX, "%.*s", (int)sizeof(words.reason), words.reason);
		return r;
	}
	peer->is_owned = true;
	return 0;
}

static int
peer_create_qp(struct verbs_peer *peer, char reason[VERBS_REASON_MAX])
{
	struct ibv_pd *pd = peer->server->device->pd;
	struct ibv_qp_init_attr attr = {
		.send_cq = peer->server->cq,
		.recv_cq = peer->server->cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	if (peer->id->verbs != pd->context) {
		snprintf(reason, VERBS_REASON_MAX,
			 "the client came in by another RDMA device than the region's");
		return ERR_CONN;
	}
	peer->qp = ibv_create_qp(pd, &attr);
	return peer->qp ? 0 : verbs_explain(errno, "create a queue pair for the client", reason);
}

static int
peer_accept(struct verbs_peer *peer, uint8_t wanted_depth, char reason[VERBS_REASON_MAX])
{
	struct verbs_server *server = peer->server;
	uint8_t most = server->device->limits.serve_depth;
	unsigned access = peer->only_reads ? IBV_ACCESS_REMOTE_READ : REMOTE_ACCESS;
	struct wire_cm_accept accept = {
		.magic = WIRE_CM_MAGIC,
		.version = WIRE_VERSION,
		.n_segments = (uint16_t)server->n_segments,
		.base = (uintptr_t)server->base,
		.segment_len = server->segment_len,
	};
	for (unsigned i = 0; i < server->n_segments; i++)
		accept.r_key[i] = server->mr[i]->rkey;
	int r = peer_create_qp(peer, reason);
	if (!r)
		r = cm_accept(peer->id, peer->qp, access, wanted_depth < most ? wanted_depth : most,
			      &accept, reason);
	peer->is_half_open = !r;
	return r;
}

static void
handle_request(struct verbs_server *server, const struct cm_event *event)
{
	struct wire_cm_request request;
	char reason[VERBS_REASON_MAX] = "";
	struct verbs_peer *peer = peer_new(server, event->id);
	if (!peer) {
		cm_reject(event->id, ERR_NOMEM, "the server is out of memory");
		cm_id_destroy(event->id);
		return;
	}
	int r = cm_take_request(event, &request, reason);
	if (!r)
		r = peer_admit(peer, &request, reason);
	if (!r)
		r = peer_accept(peer, event->responder_resources, reason);
	if (!r)
		return;
	log_line(server->log, LOG_INFO, "an RDMA connection was refused: %s", reason);
	cm_reject(peer->id, r, reason);
	peer_lost(peer);
}

/* ---- Events ---- */

static void
handle_peer_event(struct verbs_peer *peer, const struct cm_event *event)
{
	switch (event->type) {
	case RDMA_CM_EVENT_ESTABLISHED:
		peer->is_half_open = false;
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		peer_lost(peer);
		break;
	default: /* ADDR_CHANGE, and what only clients and multicast get */
		log_line(peer->server->log, LOG_DEBUG, "a client's RDMA connection: %s",
			 rdma_event_str(event->type));
	}
}

static void
handle_event(struct verbs_server *server, const struct cm_event *event)
{
	if (event->type == RDMA_CM_EVENT_CONNECT_REQUEST)
		handle_request(server, event);
	else if (event->id != server->listener)
		handle_peer_event(event->id->context, event);
	else if (event->type == RDMA_CM_EVENT_DEVICE_REMOVAL)
		log_line(server->log, LOG_ERROR,
			 "the RDMA device was removed: no client can connect any more; restart the "
			 "server once it is back");
	else
		log_line(server->log, LOG_DEBUG, "the RDMA listener: %s",
			 rdma_event_str(event->type));
}

/* A client's first message may come before the word that completes its connection. */
static void
establish_early(struct verbs_server *server, const struct ibv_qp *qp)
{
	struct verbs_peer *peer;
	LIST_FOREACH(peer, &server->peers, entry)
	if (peer->qp == qp)
		(void)rdma_notify(peer->id, IBV_EVENT_COMM_EST);
}

static void
handle_device_events(struct verbs_server *server)
{
	struct ibv_context *context = server->device->id->verbs;
	struct ibv_async_event event;
	int i = 0;
	for (; i < EVENTS_MAX && ibv_get_async_event(context, &event) == 0; i++) {
		enum log_level level = LOG_DEBUG;
		switch (event.event_type) {
		case IBV_EVENT_COMM_EST:
			establish_early(server, event.element.qp);
			break;
		case IBV_EVENT_DEVICE_FATAL:
			level = LOG_ERROR;
			break;
		case IBV_EVENT_PORT_ERR:
		case IBV_EVENT_PORT_ACTIVE:
		case IBV_EVENT_CQ_ERR:
		case IBV_EVENT_QP_FATAL:
		case IBV_EVENT_QP_REQ_ERR:
		case IBV_EVENT_QP_ACCESS_ERR:
		case IBV_EVENT_GID_CHANGE:
			level = LOG_WARN;
			break;
		default:
			break;
		}
		log_line(server->log, level, "the RDMA device %s: %s",
			 ibv_get_device_name(context->device),
			 ibv_event_type_str(event.event_type));
		ibv_ack_async_event(&event);
	}
	if (i < EVENTS_MAX && errno != EAGAIN && errno != EINTR)
		(void)epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, context->async_fd, NULL);
}

void
verbs_server_expire(struct verbs_server *server, int64_t now_ns)
{
	struct verbs_peer *peer = LIST_FIRST(&server->peers);
	while (peer) {
		struct verbs_peer *next = LIST_NEXT(peer, entry);
		if (peer->is_half_open &&
		    now_ns - peer->since_ns > LIMIT_HANDSHAKE_MS * CLOCK_NS_PER_MS) {
			peer_lost(peer);
			/* Its owner may have destroyed others meanwhile. */
			next = LIST_FIRST(&server->peers);
		}
		peer = next;
	}
}

void
verbs_server_dispatch(struct verbs_server *server)
{
	struct cm_event event;
	int i = 0;
	for (; i < EVENTS_MAX && cm_next(server->channel, &event) == 0; i++)
		handle_event(server, &event);
	handle_device_events(server);
	if (i < EVENTS_MAX) /* else the word that establishes one may still wait here */
		verbs_server_expire(server, clock_now_ns());
}

int
verbs_server_fd(const struct verbs_server *server)
{
	return server->epoll_fd;
}

/* ---- The region ---- */

/* Equal segments, whose borders lie between the pages, also the huge ones if they are so long. */
static int
split(struct verbs_server *server, char reason[VERBS_REASON_MAX])
{
	static const uint64_t units[] = {UINT64_C(1) << 30, UINT64_C(2) << 20, LAYOUT_PAGE};
	uint64_t most = server->device->limits.mr_len, len = server->len;
	size_t i = 0;
	if (len > most) {
		while (i < 2 && units[i] > most)
			i++;
		len = most / units[i] * units[i];
	}
	if (len == 0 || (server->len + len - 1) / len > WIRE_SEGMENTS_MAX) {
		snprintf(reason, VERBS_REASON_MAX,
			 "the RDMA device registers at most %" PRIu64
			 " MiB at once (max_mr_size), and a region of %zu MiB would need more than "
			 "%u pieces: use a smaller pool",
			 most >> 20, server->len >> 20, WIRE_SEGMENTS_MAX);
		return ERR_INVALID;
	}
	server->segment_len = len;
	server->n_segments = (unsigned)((server->len + len - 1) / len);
	return 0;
}

static int
register_region(struct verbs_server *server, char reason[VERBS_REASON_MAX])
{
	int r = split(server, reason);
	for (unsigned i = 0; i < server->n_segments && !r; i++) {
		size_t off = i * server->segment_len, left = server->len - off;
		r = verbs_register(server->device->pd, server->base + off,
				   left < server->segment_len ? left : server->segment_len,
				   IBV_ACCESS_LOCAL_WRITE | REMOTE_ACCESS, &server->mr[i], reason);
	}
	return r;
}

/* ---- Listening ---- */

static int
watch(struct verbs_server *server, int fd, char reason[VERBS_REASON_MAX])
{
	struct epoll_event event = {.events = EPOLLIN};
	int flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) ||
	    epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event))
		return verbs_explain(errno, "watch the RDMA device", reason);
	return 0;
}

static int
watch_events(struct verbs_server *server, char reason[VERBS_REASON_MAX])
{
	server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (server->epoll_fd < 0)
		return verbs_explain(errno, "create an epoll descriptor", reason);
	int r = watch(server, server->channel->fd, reason);
	return r ? r : watch(server, server->device->id->verbs->async_fd, reason);
}

static int
listen_there(struct verbs_server *server, char reason[VERBS_REASON_MAX])
{
	struct verbs_device *device = server->device;
	int reuse = 1;
	int r = cm_channel_create(&server->channel, reason);
	if (!r)
		r = cm_id_create(server->channel, NULL, &server->listener, reason);
	if (r)
		return r;
	(void)rdma_set_option(server->listener, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &reuse,
			      sizeof(reuse));
	if (rdma_bind_addr(server->listener, (struct sockaddr *)&device->address))
		return verbs_explain(errno, "bind the RDMA listener (is its port taken?)", reason);
	if (server->listener->verbs != device->id->verbs) {
		snprintf(reason, VERBS_REASON_MAX,
			 "the listener's address has moved to another RDMA device: start again");
		return ERR_CONN;
	}
	if (rdma_listen(server->listener, BACKLOG))
		return verbs_explain(errno, "listen for RDMA connections (is the port taken?)",
				     reason);
	return 0;
}

int
verbs_server_create(struct verbs_device *device, void *base, size_t len,
		    const struct verbs_events *events, const struct log *log,
		    struct verbs_server **ret_server, char reason[VERBS_REASON_MAX])
{
	struct verbs_server *server = calloc(1, sizeof(*server));
	if (!server)
		return verbs_explain(ENOMEM, "serve by RDMA", reason);
	LIST_INIT(&server->peers);
	server->device = device;
	server->log = log;
	server->events = *events;
	server->epoll_fd = -1;
	server->base = base;
	server->len = len;
	int r = register_region(server, reason);
	if (!r) {
		server->cq = ibv_create_cq(device->id->verbs, 1, NULL, NULL, 0);
		if (!server->cq)
			r = verbs_explain(errno, "create a completion queue", reason);
	}
	if (!r)
		r = listen_there(server, reason);
	if (!r)
		r = watch_events(server, reason);
	if (r) {
		verbs_server_destroy(server);
		return r;
	}
	*ret_server = server;
	return 0;
}

void
verbs_server_destroy(struct verbs_server *server)
{
	if (!server)
		return;
	while (!LIST_EMPTY(&server->peers))
		verbs_peer_destroy(LIST_FIRST(&server->peers));
	if (server->epoll_fd >= 0)
		close(server->epoll_fd);
	cm_id_destroy(server->listener);
	cm_channel_destroy(server->channel);
	if (server->cq)
		ibv_destroy_cq(server->cq);
	for (unsigned i = 0; i < server->n_segments; i++)
		if (server->mr[i])
			ibv_dereg_mr(server->mr[i]);
	free(server);
}

void
verbs_server_offer(const struct verbs_server *server, struct fab_offer *ret_offer)
{
	char text[NET_TEXT_MAX];
	cm_format_local(server->listener, text);
	ret_offer->base = (uintptr_t)server->base;
	ret_offer->len = server->len;
	ret_offer->r_key = server->mr[0]->rkey;
	snprintf(ret_offer->verbs_address, sizeof(ret_offer->verbs_address), "%.63s", text);
}

/* ---- The server's own endpoint ---- */

static void
pump(void *arg)
{
	verbs_server_dispatch(arg);
}

/* Runs one atomic on the scratch word; it must find what is there. */
static int
try_atomic(struct fab_endpoint *ep, struct fab_op op, uint64_t expected, int64_t deadline_ns,
	   char reason[VERBS_REASON_MAX])
{
	int r = verbs_run(ep, &op, 1, deadline_ns);
	uint64_t found = *(const uint64_t *)op.piece[0].local;
	if (!r && found == expected)
		return 0;
	if (r)
		snprintf(reason, VERBS_REASON_MAX,
			 "an atomic of the RDMA device on the server's own memory %s",
			 r == ERR_TIMEOUT ? "did not end in time" : "failed");
	else
		snprintf(reason, VERBS_REASON_MAX,
			 "the RDMA device's atomics do not work: the scratch word is %#" PRIx64
			 ", and an atomic found %#" PRIx64,
			 expected, found);
	return r ? r : ERR_CORRUPT;
}

/*
 * The scratch word goes through patterns that read differently both ways, and back to what it was:
 * whatever the first CAS's reply is, the order of replies is known before the second.
 */
static int
test_scratch(struct fab_endpoint *ep, uint64_t roff, uint64_t *local, uint32_t key,
	     int64_t deadline_ns, char reason[VERBS_REASON_MAX])
{
	const uint64_t first = UINT64_C(0x0123456789abcdef), second = UINT64_C(0xfedcba9876543211);
	struct fab_op op = {.kind = FAB_READ, .roff = roff, .piece = {{local, 8, key}}};
	int r = verbs_run(ep, &op, 1, deadline_ns);
	uint64_t before = *local;
	op.kind = FAB_CAS;
	op.expect = before;
	op.swap = first;
	if (!r)
		r = verbs_run(ep, &op, 1, deadline_ns);
	if (r) {
		snprintf(reason, VERBS_REASON_MAX,
			 "the RDMA device cannot read and change the server's own memory");
		return r;
	}
	r = verbs_learn_order(ep, roff, deadline_ns, reason);
	op.expect = first;
	op.swap = second;
	if (!r)
		r = try_atomic(ep, op, first, deadline_ns, reason);
	op.kind = FAB_FAA;
	op.expect = 1;
	if (!r)
		r = try_atomic(ep, op, second, deadline_ns, reason);
	op.kind = FAB_CAS;
	op.expect = second + 1;
	op.swap = before;
	if (!r)
		r = try_atomic(ep, op, second + 1, deadline_ns, reason);
	return r;
}

static int
test_endpoint(struct fab_endpoint *ep, uint64_t roff, int64_t deadline_ns,
	      char reason[VERBS_REASON_MAX])
{
	struct fab *fab = ep->region->fab;
	size_t len = (size_t)sysconf(_SC_PAGESIZE);
	uint32_t key;
	void *page = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return verbs_explain(errno, "map a page", reason);
	int r = fab_register(fab, page, len, &key);
	if (r) {
		snprintf(reason, VERBS_REASON_MAX, "cannot register a page with the RDMA device");
	} else {
		r = test_scratch(ep, roff, page, key, deadline_ns, reason);
		if (r) /* [LOCAL]: a late reply shall not find another page */
			verbs_endpoint_end((struct verbs_endpoint *)ep);
		fab_deregister(fab, key);
	}
	munmap(page, len);
	return r;
}

int
verbs_loopback(struct verbs_server *server, uint64_t scratch_roff,
	       struct fab_endpoint **ret_endpoint, char reason[VERBS_REASON_MAX])
{
	const struct cm_wait wait = {
		.deadline_ns = clock_now_ns() + LOOPBACK_NS,
		.fd = server->epoll_fd,
		.pump = pump,
		.arg = server,
	};
	struct fab *fab = NULL;
	struct fab_region *region = NULL;
	struct fab_endpoint *ep = NULL;
	struct fab_offer offer = {0};
	verbs_server_offer(server, &offer);
	if (getrandom(server->loopback_token, sizeof(server->loopback_token), 0) !=
	    (ssize_t)sizeof(server->loopback_token))
		return verbs_explain(errno, "draw a random token", reason);
	memcpy(offer.token, server->loopback_token, sizeof(offer.token));
	server->has_loopback_token = true;
	int r = verbs_open_on(server->device, server->log, &fab, reason);
	if (!r)
		r = verbs_region_on(fab, &offer, &region, reason);
	if (!r)
		r = verbs_connect_with(region, NULL, LOOPBACK_DEPTH, &wait, &ep, reason);
	if (!r)
		r = test_endpoint(ep, scratch_roff, wait.deadline_ns, reason);
	server->has_loopback_token = false;
	fab_region_close(region); /* the endpoint keeps it */
	if (!r) {
		*ret_endpoint = ep;
		return 0;
	}
	fab_disconnect(ep);
	fab_close(fab);
	return r;
}

void
verbs_loopback_close(struct fab_endpoint *ep)
{
	if (!ep)
		return;
	struct fab *fab = ep->region->fab;
	fab_disconnect(ep);
	fab_close(fab);
}
