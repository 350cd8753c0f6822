/* SPDX-License-Identifier: BSD-2-Clause */
/* See fake_verbs.h: connections. Both ends are in this process. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <unistd.h>

#include "tests/fabric/fake_verbs.h"

/* What InfiniBand carries, padded with zeros. */
enum { REQUEST_LEN = 56, ANSWER_LEN = 196, REFUSAL_LEN = 148 };
enum { NO_LISTENER = 8, BY_PEER = 28 };

struct fake_id {
	struct rdma_cm_id id;
	struct fake_id *peer; /* the other end, while both are there */
	bool is_listener;
	bool is_server;
	bool is_asked; /* a request that is not answered */
	bool has_ack_timeout;
	uint32_t qp_num; /* of a queue pair that only the program knows; 0: none */
	unsigned n_unacked;
	struct rdma_conn_param param; /* of the request */
	LIST_ENTRY(fake_id) entry;
};

struct fake_event_entry {
	struct rdma_cm_event event; /* first: what the program gets */
	unsigned char private_data[256];
	TAILQ_ENTRY(fake_event_entry) entry;
};

struct fake_channel {
	struct rdma_event_channel channel;
	TAILQ_HEAD(, fake_event_entry) events;
};

static LIST_HEAD(, fake_id) ids;

static void
lock(void)
{
	pthread_rwlock_wrlock(&fake_lock);
}

static void
unlock(void)
{
	pthread_rwlock_unlock(&fake_lock);
}

/* ---- Channels and events ---- */

static struct fake_channel *
channel_of(struct rdma_event_channel *channel)
{
	return (struct fake_channel *)(void *)channel;
}

struct rdma_event_channel *
rdma_create_event_channel(void)
{
	if (fake.channel_error || fake_fails("rdma_create_event_channel")) {
		errno = fake.channel_error ? fake.channel_error : ENOMEM;
		return NULL;
	}
	struct fake_channel *c = calloc(1, sizeof(*c));
	TAILQ_INIT(&c->events);
	c->channel.fd = eventfd(0, EFD_SEMAPHORE);
	atomic_fetch_add(&fake_counts.n_live, 1);
	return &c->channel;
}

void
rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	struct fake_channel *c = channel_of(channel);
	if (!TAILQ_EMPTY(&c->events))
		fake_abort("a channel is destroyed before its ids");
	close(channel->fd);
	free(c);
	atomic_fetch_sub(&fake_counts.n_live, 1);
}

/* Locked. param: READs in flight and private data, or NULL. */
static void
send_event(struct fake_id *to, enum rdma_cm_event_type type, int status,
	   const struct rdma_conn_param *param)
{
	struct fake_channel *c = channel_of(to->id.channel);
	struct fake_event_entry *e = calloc(1, sizeof(*e));
	uint64_t one = 1;
	e->event.id = &to->id;
	e->event.event = type;
	e->event.status = status;
	if (param) {
		e->event.param.conn = *param;
		memcpy(e->private_data, param->private_data, param->private_data_len);
		e->event.param.conn.private_data = param->private_data_len ? e->private_data : NULL;
	}
	TAILQ_INSERT_TAIL(&c->events, e, entry);
	if (write(c->channel.fd, &one, sizeof(one)) != (ssize_t)sizeof(one))
		fake_abort("eventfd");
}

/* The private data as the other side gets it. */
static struct rdma_conn_param
carry(const void *data, uint8_t len, uint8_t padded_len, unsigned char room[256])
{
	memset(room, 0, 256);
	if (len > padded_len)
		fake_abort("more private data than fits");
	if (len)
		memcpy(room, data, len);
	return (struct rdma_conn_param){
		.private_data = room,
		.private_data_len = fake.private_len >= 0 ? (uint8_t)fake.private_len : padded_len,
	};
}

/* An id that a request has made is known to the program from now on. */
static struct fake_event_entry *
take_event(struct fake_channel *c)
{
	uint64_t n;
	lock();
	struct fake_event_entry *e = TAILQ_FIRST(&c->events);
	if (e) {
		TAILQ_REMOVE(&c->events, e, entry);
		((struct fake_id *)e->event.id)->n_unacked++;
		if (read(c->channel.fd, &n, sizeof(n)) != (ssize_t)sizeof(n))
			fake_abort("eventfd");
	}
	unlock();
	return e;
}

int
rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	if (!(fcntl(channel->fd, F_GETFL) & O_NONBLOCK))
		fake_abort("rdma_get_cm_event would block");
	struct fake_event_entry *e = take_event(channel_of(channel));
	if (!e) {
		errno = EAGAIN;
		return -1;
	}
	atomic_fetch_add(&fake_counts.n_live, 1);
	*event = &e->event;
	return 0;
}

int
rdma_ack_cm_event(struct rdma_cm_event *event)
{
	lock();
	((struct fake_id *)event->id)->n_unacked--;
	unlock();
	free(event);
	atomic_fetch_sub(&fake_counts.n_live, 1);
	return 0;
}

const char *
rdma_event_str(enum rdma_cm_event_type type)
{
	static char text[32];
	snprintf(text, sizeof(text), "event %d", (int)type);
	return text;
}

/* ---- Ids ---- */

/* Locked. */
static struct fake_id *
id_new(struct rdma_event_channel *channel, void *context)
{
	struct fake_id *id = calloc(1, sizeof(*id));
	id->id.channel = channel;
	id->id.context = context;
	id->id.ps = RDMA_PS_TCP;
	id->id.qp_type = IBV_QPT_RC;
	LIST_INSERT_HEAD(&ids, id, entry);
	atomic_fetch_add(&fake_counts.n_live, 1);
	return id;
}

int
rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
	       enum rdma_port_space ps)
{
	if (ps != RDMA_PS_TCP)
		fake_abort("another port space");
	if (fake_fails("rdma_create_id"))
		return -1;
	lock();
	*id = &id_new(channel, context)->id;
	unlock();
	return 0;
}

/* Locked. */
static void
drop_events(struct fake_id *id)
{
	struct fake_channel *c = channel_of(id->id.channel);
	struct fake_event_entry *e = TAILQ_FIRST(&c->events), *next;
	uint64_t n;
	for (; e; e = next) {
		next = TAILQ_NEXT(e, entry);
		if (e->event.id != &id->id)
			continue;
		TAILQ_REMOVE(&c->events, e, entry);
		if (read(c->channel.fd, &n, sizeof(n)) != (ssize_t)sizeof(n))
			fake_abort("eventfd");
		free(e);
	}
}

/* Locked. The id's queue pair, whoever made it; NULL: it has none, or has none any more. */
static struct fake_qp *
qp_of(const struct fake_id *id)
{
	return id->id.qp ? (struct fake_qp *)id->id.qp : fake_qp_find(id->qp_num);
}

/* Locked. The other end hears of it. */
static void
hang_up(struct fake_id *id)
{
	if (!id->peer)
		return;
	struct fake_id *peer = id->peer;
	id->peer = NULL;
	peer->peer = NULL;
	struct fake_qp *qp = qp_of(id);
	if (qp)
		fake_qp_cut(qp);
	if (peer->is_asked && peer->is_server)
		send_event(peer, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL);
	else
		send_event(peer, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
}

/* An event of a request that was never taken brings an id with it. */
static void
drop_requests(struct fake_id *listener)
{
	struct fake_id *id = LIST_FIRST(&ids), *next;
	for (; id; id = next) {
		next = LIST_NEXT(id, entry);
		if (id->is_server && id->is_asked && id->id.channel == listener->id.channel &&
		    id->id.context == listener->id.context) {
			hang_up(id);
			drop_events(id);
			LIST_REMOVE(id, entry);
			free(id);
			atomic_fetch_sub(&fake_counts.n_live, 1);
		}
	}
}

int
rdma_destroy_id(struct rdma_cm_id *rdma)
{
	struct fake_id *id = (struct fake_id *)rdma;
	lock();
	if (qp_of(id))
		fake_abort("an id is destroyed before its queue pair");
	if (id->n_unacked)
		fake_abort("rdma_destroy_id would wait for ever for an acknowledgement");
	hang_up(id);
	drop_events(id);
	if (id->is_listener)
		drop_requests(id);
	LIST_REMOVE(id, entry);
	unlock();
	free(id);
	atomic_fetch_sub(&fake_counts.n_live, 1);
	return 0;
}

int
rdma_set_option(struct rdma_cm_id *rdma, int level, int optname, void *optval, size_t optlen)
{
	struct fake_id *id = (struct fake_id *)rdma;
	if (level == RDMA_OPTION_ID && optname == RDMA_OPTION_ID_ACK_TIMEOUT)
		id->has_ack_timeout = optlen == 1 && *(uint8_t *)optval == 14;
	if (fake_fails("rdma_set_option"))
		return -1;
	return 0;
}

/* ---- Addresses ---- */

static bool
same_host(const struct sockaddr *sa, const char *host)
{
	char text[NI_MAXHOST];
	socklen_t len = sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
						  : sizeof(struct sockaddr_in);
	return getnameinfo(sa, len, text, sizeof(text), NULL, 0, NI_NUMERICHOST) == 0 &&
	       strcmp(text, host) == 0;
}

static const struct fake_address *
find_address(const struct sockaddr *sa)
{
	const struct fake_address *a = fake.addresses;
	while (a->host && !same_host(sa, a->host))
		a++;
	return a->host ? a : NULL;
}

static uint16_t
port_of(const struct sockaddr *sa)
{
	return ((const struct sockaddr_in *)(const void *)sa)->sin_port; /* in both families */
}

static void
attach(struct fake_id *id, int device, const struct sockaddr *local)
{
	struct rdma_addr *addr = &id->id.route.addr;
	struct sockaddr_in *in = &addr->src_sin;
	union ibv_gid *gid = &addr->addr.ibaddr.sgid;
	id->id.verbs = fake_context((unsigned)device);
	id->id.port_num = 1;
	if (local->sa_family == AF_INET6) {
		memcpy(&addr->src_sin6, local, sizeof(struct sockaddr_in6));
		memcpy(gid, &addr->src_sin6.sin6_addr, sizeof(*gid));
		return;
	}
	memcpy(in, local, sizeof(*in));
	memset(gid, 0, sizeof(*gid));
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, &in->sin_addr, 4);
}

int
rdma_bind_addr(struct rdma_cm_id *rdma, struct sockaddr *sa)
{
	static uint16_t n_ports = 20000;
	struct fake_id *id = (struct fake_id *)rdma;
	const struct fake_address *a = find_address(sa);
	if (fake_fails("rdma_bind_addr"))
		return -1;
	if (!a || a->device < 0) {
		errno = a ? ENODEV : EADDRNOTAVAIL;
		return -1;
	}
	lock();
	attach(id, a->device, sa);
	if (id->id.route.addr.src_sin.sin_port == 0)
		id->id.route.addr.src_sin.sin_port = htons(++n_ports);
	unlock();
	return 0;
}

__be16
rdma_get_src_port(struct rdma_cm_id *id)
{
	return id->route.addr.src_sin.sin_port;
}

/* Locked. Does what a knob says in place of the good event; false: it is good. */
static bool
goes_wrong(struct fake_id *id, struct fake_event event)
{
	if (event.type == FAKE_GOOD)
		return false;
	if (event.type != FAKE_SILENCE)
		send_event(id, (enum rdma_cm_event_type)event.type, event.status, NULL);
	return true;
}

int
rdma_resolve_addr(struct rdma_cm_id *rdma, struct sockaddr *src, struct sockaddr *dst,
		  int timeout_ms)
{
	struct fake_id *id = (struct fake_id *)rdma;
	const struct fake_address *a = find_address(src ? src : dst);
	if (timeout_ms <= 0 || (src && (!a || port_of(src) != 0)))
		fake_abort("rdma_resolve_addr is called otherwise");
	if (fake_fails("rdma_resolve_addr"))
		return -1;
	int device = !src && fake.route_device >= 0 ? fake.route_device : a ? a->device : -1;
	lock();
	memcpy(&rdma->route.addr.dst_storage, dst, sizeof(struct sockaddr_in6));
	if (goes_wrong(id, fake.on_resolve_addr)) {
		unlock();
		return 0;
	}
	if (device < 0) {
		send_event(id, RDMA_CM_EVENT_ADDR_ERROR, -ENODEV, NULL);
	} else {
		attach(id, device, dst);
		send_event(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL);
	}
	unlock();
	return 0;
}

int
rdma_resolve_route(struct rdma_cm_id *rdma, int timeout_ms)
{
	struct fake_id *id = (struct fake_id *)rdma;
	if (timeout_ms <= 0 || !rdma->verbs)
		fake_abort("rdma_resolve_route is called otherwise");
	if (fake_fails("rdma_resolve_route"))
		return -1;
	lock();
	if (!goes_wrong(id, fake.on_resolve_route))
		send_event(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL);
	unlock();
	return 0;
}

/* ---- Queue pairs ---- */

int
rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	if (id->qp || pd->context != id->verbs) {
		errno = EINVAL;
		return -1;
	}
	id->qp = ibv_create_qp(pd, attr);
	return id->qp ? 0 : -1;
}

void
rdma_destroy_qp(struct rdma_cm_id *id)
{
	ibv_destroy_qp(id->qp);
	id->qp = NULL;
}

/* What the kernel says of the connection, for a queue pair in that state: all rights. */
int
rdma_init_qp_attr(struct rdma_cm_id *rdma, struct ibv_qp_attr *attr, int *mask)
{
	const struct fake_id *id = (const struct fake_id *)rdma;
	if (fake_fails("rdma_init_qp_attr"))
		return -1;
	*attr = (struct ibv_qp_attr){
		.qp_state = attr->qp_state,
		.qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
		.max_dest_rd_atomic = id->param.responder_resources,
		.max_rd_atomic = id->param.initiator_depth,
	};
	*mask = IBV_QP_STATE | (attr->qp_state == IBV_QPS_INIT  ? IBV_QP_ACCESS_FLAGS
				: attr->qp_state == IBV_QPS_RTR ? IBV_QP_MAX_DEST_RD_ATOMIC
								: IBV_QP_MAX_QP_RD_ATOMIC);
	return 0;
}

/* ---- Connecting ---- */

int
rdma_listen(struct rdma_cm_id *rdma, int backlog)
{
	struct fake_id *id = (struct fake_id *)rdma;
	struct fake_id *other;
	if (fake_fails("rdma_listen"))
		return -1;
	int error = backlog > 0 ? 0 : EINVAL;
	lock();
	LIST_FOREACH(other, &ids, entry)
	if (other->is_listener && rdma_get_src_port(&other->id) == rdma_get_src_port(rdma))
		error = EADDRINUSE;
	id->is_listener = !error;
	unlock();
	errno = error;
	return error ? -1 : 0;
}

/* Locked. */
static struct fake_id *
find_listener(const struct sockaddr *sa)
{
	struct fake_id *id;
	LIST_FOREACH(id, &ids, entry)
	if (id->is_listener && rdma_get_src_port(&id->id) == port_of(sa))
		return id;
	return NULL;
}

/* Locked. */
static void
ask(struct fake_id *client, struct fake_id *listener, const struct rdma_conn_param *param)
{
	unsigned char room[256];
	struct fake_id *server = id_new(listener->id.channel, listener->id.context);
	server->is_server = server->is_asked = true;
	client->is_asked = true;
	client->peer = server;
	server->peer = client;
	server->id.verbs = listener->id.verbs;
	server->id.port_num = 1;
	struct rdma_conn_param carried =
		carry(param->private_data, param->private_data_len, REQUEST_LEN, room);
	/* Seen from the other side. */
	carried.responder_resources = param->initiator_depth;
	carried.initiator_depth = param->responder_resources;
	server->param = carried;
	client->param = *param;
	send_event(server, RDMA_CM_EVENT_CONNECT_REQUEST, 0, &carried);
}

static void
check_connect(const struct rdma_cm_id *id, const struct rdma_conn_param *param)
{
	if (!id->qp || !((const struct fake_id *)id)->has_ack_timeout || param->retry_count > 7 ||
	    param->rnr_retry_count == 7)
		fake_abort("rdma_connect without queue pair, or with endless retries");
	if (param->initiator_depth == 0 ||
	    param->initiator_depth > fake.attr[0].max_qp_init_rd_atom)
		fake_abort("rdma_connect with more READs in flight than the device can");
}

int
rdma_connect(struct rdma_cm_id *rdma, struct rdma_conn_param *param)
{
	struct fake_id *id = (struct fake_id *)rdma;
	check_connect(rdma, param);
	if (fake_fails("rdma_connect"))
		return -1;
	lock();
	struct fake_id *listener = find_listener(&rdma->route.addr.dst_addr);
	if (fake.on_connect.type == RDMA_CM_EVENT_REJECTED && fake.reject) {
		unsigned char room[256];
		struct rdma_conn_param carried =
			carry(fake.reject, fake.reject_len, REFUSAL_LEN, room);
		send_event(id, RDMA_CM_EVENT_REJECTED, BY_PEER, &carried);
	} else if (!goes_wrong(id, fake.on_connect)) {
		if (listener)
			ask(id, listener, param);
		else
			send_event(id, RDMA_CM_EVENT_REJECTED, NO_LISTENER, NULL);
	}
	unlock();
	return 0;
}

/* Locked. Both queue pairs work from now on. */
static void
join(struct fake_id *client, struct fake_id *server, const struct rdma_conn_param *param)
{
	unsigned char room[256];
	struct fake_qp *cq = (struct fake_qp *)client->id.qp, *sq = qp_of(server);
	const void *data = fake.answer ? fake.answer : param->private_data;
	struct rdma_conn_param carried = carry(data, param->private_data_len, ANSWER_LEN, room);
	if (fake.answer_len >= 0)
		carried.private_data_len = (uint8_t)fake.answer_len;
	carried.initiator_depth = param->responder_resources;
	if (fake.grants_depth >= 0)
		carried.initiator_depth = (uint8_t)fake.grants_depth;
	cq->max_rd_atomic = carried.initiator_depth;
	cq->peer = sq;
	sq->peer = cq;
	cq->is_connected = true;
	client->is_asked = false;
	send_event(client, RDMA_CM_EVENT_ESTABLISHED, 0, &carried);
	if (!fake.loses_rtu) {
		server->is_asked = false;
		send_event(server, RDMA_CM_EVENT_ESTABLISHED, 0, NULL);
	}
}

int
rdma_accept(struct rdma_cm_id *rdma, struct rdma_conn_param *param)
{
	struct fake_id *id = (struct fake_id *)rdma;
	if (rdma->qp)
		fake_abort("rdma_accept would grant all rights on the queue pair that it knows");
	lock();
	const struct fake_qp *qp = fake_qp_find(param->qp_num);
	unlock();
	if (!qp || qp->qp.state != IBV_QPS_RTS || !id->is_asked ||
	    qp->max_dest_rd_atomic != param->responder_resources)
		fake_abort("rdma_accept without a queue pair that is set up, or without a request");
	if (param->responder_resources > fake.attr[0].max_qp_rd_atom ||
	    param->responder_resources > id->param.responder_resources ||
	    param->responder_resources == 0)
		fake_abort("rdma_accept with other READs in flight than both sides can");
	if (fake_fails("rdma_accept"))
		return -1;
	lock();
	id->qp_num = param->qp_num;
	if (!id->peer)
		send_event(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL);
	else if (goes_wrong(id->peer, fake.on_accept))
		goes_wrong(id, fake.on_accept);
	else if (id->peer->id.qp)
		join(id->peer, id, param);
	else /* a stranger */
		send_event(id->peer, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, NULL);
	unlock();
	return 0;
}

int
rdma_reject(struct rdma_cm_id *rdma, const void *private_data, uint8_t private_data_len)
{
	struct fake_id *id = (struct fake_id *)rdma;
	unsigned char room[256];
	if (fake_fails("rdma_reject"))
		return -1;
	lock();
	if (id->peer) {
		struct rdma_conn_param carried =
			carry(private_data, private_data_len, REFUSAL_LEN, room);
		send_event(id->peer, RDMA_CM_EVENT_REJECTED, BY_PEER, &carried);
		id->peer->peer = NULL;
		id->peer = NULL;
	}
	unlock();
	return 0;
}

int
rdma_disconnect(struct rdma_cm_id *rdma)
{
	struct fake_id *id = (struct fake_id *)rdma;
	lock();
	bool connected = id->peer && !id->is_asked;
	hang_up(id);
	if (connected) {
		send_event(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
		send_event(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, NULL);
	}
	unlock();
	errno = EINVAL;
	return connected ? 0 : -1;
}

int
rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	(void)id;
	if (event == IBV_EVENT_COMM_EST)
		atomic_fetch_add(&fake_counts.n_notified, 1);
	return 0;
}

/* ---- For tests ---- */

void
fake_inject(bool at_server, enum rdma_cm_event_type type, int status)
{
	struct fake_id *id;
	lock();
	LIST_FOREACH(id, &ids, entry)
	if (id->peer && id->is_server == at_server)
		send_event(id, type, status, NULL);
	unlock();
}

void
fake_inject_listener(enum rdma_cm_event_type type)
{
	struct fake_id *id;
	lock();
	LIST_FOREACH(id, &ids, entry)
	if (id->is_listener)
		send_event(id, type, 0, NULL);
	unlock();
}

struct rdma_cm_id *
fake_stranger(uint16_t port, const void *private_data, uint8_t len, uint8_t depth)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
	const struct rdma_conn_param param = {
		.private_data = private_data,
		.private_data_len = len,
		.initiator_depth = depth,
	};
	if (!channel || fcntl(channel->fd, F_SETFL, O_NONBLOCK))
		fake_abort("a stranger's channel");
	lock();
	struct fake_id *id = id_new(channel, NULL);
	struct fake_id *listener = find_listener((const struct sockaddr *)&to);
	if (!listener)
		fake_abort("nobody listens for the stranger");
	ask(id, listener, &param);
	unlock();
	return &id->id;
}

int
fake_stranger_heard(struct rdma_cm_id *id, void *ret_private, size_t room)
{
	struct rdma_cm_event *event;
	if (rdma_get_cm_event(id->channel, &event))
		return -1;
	int type = (int)event->event;
	size_t len = event->param.conn.private_data_len;
	if (len)
		memcpy(ret_private, event->param.conn.private_data, len < room ? len : room);
	rdma_ack_cm_event(event);
	return type;
}

void
fake_stranger_close(struct rdma_cm_id *id)
{
	struct rdma_event_channel *channel = id->channel;
	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
}
