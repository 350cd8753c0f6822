/* SPDX-License-Identifier: BSD-2-Clause */
/* See cm_rdma.h. */
#include "common/cm_rdma.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/fabric_verbs_internal.h"

/*
 * A packet is sent again after 4.096 us * 2^14 = 67 ms, three times: a dead peer is known after
 * 0.27 s, and a link that is cut for less than 67 ms is not noticed. (librdmacm's own choice makes
 * that 4 to 9 s.)
 */
#define ACK_TIMEOUT 14
#define RETRY_COUNT 3
/*
 * Nobody sends what takes a receive buffer, so "receiver not ready" is never said in good order;
 * retrying it would be 655 ms of silence each time.
 */
#define RNR_RETRY_COUNT 0

#define STEP_TIMEOUT_MS 2000 /* for the kernel; our own deadline comes first if it is nearer */

/* ---- Channels, ids, events ---- */

/*
 * librdmacm opens a device once for the life of the process, and the kernel takes commands for it
 * only from the process that opened it, not from its forked children.
 */
static int
check_process(char reason[VERBS_REASON_MAX])
{
	static _Atomic pid_t user;
	pid_t self = getpid(), found = 0;
	if (atomic_compare_exchange_strong_explicit(&user, &found, self, memory_order_relaxed,
						    memory_order_relaxed) ||
	    found == self)
		return 0;
	snprintf(reason, VERBS_REASON_MAX,
		 "this process was forked by one that used RDMA before, and the kernel lets no "
		 "child use its parent's devices: fork first, or exec in the child");
	return ERR_PERM;
}

int
cm_channel_create(struct rdma_event_channel **ret_channel, char reason[VERBS_REASON_MAX])
{
	int r = check_process(reason);
	if (r)
		return r;
	struct rdma_event_channel *channel = rdma_create_event_channel();
	if (!channel) {
		int error = errno;
		return err_from_errno(error) == ERR_NOMEM
			       ? verbs_explain(error, "open an event channel of rdma_cm", reason)
			       : verbs_explain_missing(error, reason);
	}
	int flags = fcntl(channel->fd, F_GETFL);
	if (flags < 0 || fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) ||
	    fcntl(channel->fd, F_SETFD, FD_CLOEXEC)) {
		r = verbs_explain(errno, "set up an event channel of rdma_cm", reason);
		rdma_destroy_event_channel(channel);
		return r;
	}
	*ret_channel = channel;
	return 0;
}

void
cm_channel_destroy(struct rdma_event_channel *channel)
{
	if (channel)
		rdma_destroy_event_channel(channel);
}

int
cm_id_create(struct rdma_event_channel *channel, void *context, struct rdma_cm_id **ret_id,
	     char reason[VERBS_REASON_MAX])
{
	uint8_t timeout = ACK_TIMEOUT;
	struct rdma_cm_id *id;
	if (rdma_create_id(channel, &id, context, RDMA_PS_TCP))
		return verbs_explain(errno, "create an id of rdma_cm", reason);
	/* Kernels before 5.2 do not know it: there a dead peer is noticed later. */
	(void)rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
			      sizeof(timeout));
	*ret_id = id;
	return 0;
}

void
cm_qp_destroy(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
}

void
cm_id_destroy(struct rdma_cm_id *id)
{
	if (!id)
		return;
	cm_qp_destroy(id);
	rdma_destroy_id(id);
}

int
cm_next(struct rdma_event_channel *channel, struct cm_event *ret_event)
{
	struct rdma_cm_event *event;
	int r;
	do
		r = rdma_get_cm_event(channel, &event);
	while (r && errno == EINTR);
	if (r)
		return errno == EAGAIN ? ERR_AGAIN : err_from_errno(errno);
	const struct rdma_conn_param *param = &event->param.conn;
	*ret_event = (struct cm_event){
		.type = event->event,
		.status = event->status,
		.id = event->id,
		.responder_resources = param->responder_resources,
		.initiator_depth = param->initiator_depth,
	};
	if (param->private_data) {
		ret_event->private_len = param->private_data_len;
		memcpy(ret_event->private_data, param->private_data, param->private_data_len);
	}
	rdma_ack_cm_event(event);
	return 0;
}

/* ---- Addresses ---- */

int
cm_parse(const char *address, struct sockaddr_storage *ret_address)
{
	struct net_address parsed;
	struct addrinfo *info;
	char port[8], ignored[NET_REASON_MAX];
	unsigned n;
	const struct addrinfo hints = {
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
		.ai_socktype = SOCK_STREAM,
	};
	if (net_parse(address, 0, &parsed, 1, &n, ignored) || n != 1 || parsed.port == 0)
		return ERR_CORRUPT;
	snprintf(port, sizeof(port), "%u", parsed.port);
	if (getaddrinfo(parsed.host, port, &hints, &info))
		return ERR_CORRUPT;
	memset(ret_address, 0, sizeof(*ret_address));
	memcpy(ret_address, info->ai_addr, info->ai_addrlen);
	freeaddrinfo(info);
	return 0;
}

void
cm_format_local(struct rdma_cm_id *id, char ret_text[NET_TEXT_MAX])
{
	const struct sockaddr *sa = rdma_get_local_addr(id);
	socklen_t len = sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
						  : sizeof(struct sockaddr_in);
	struct net_address address = {.port = ntohs(rdma_get_src_port(id))};
	if (getnameinfo(sa, len, address.host, sizeof(address.host), NULL, 0, NI_NUMERICHOST))
		snprintf(address.host, sizeof(address.host), "?");
	net_format(&address, ret_text);
}

/* ---- What went wrong, in words ---- */

/* The kernel's status of an event is 0 or -errno; librdmacm's own is -1. */
static int
code_of(const struct cm_event *event)
{
	return event->status < -1 ? err_from_errno(-event->status) : ERR_CONN;
}

static const char *
cause_of(const struct cm_event *event)
{
	return event->status < -1 ? strerror(-event->status)
				  : "its device could not be opened or set up";
}

/* Reject reasons of the InfiniBand specification that a caller can do something about. */
enum { REJECT_NO_LISTENER = 8, REJECT_BY_PEER = 28 };

int
cm_take_reject(const struct cm_event *event, const char *address, char reason[VERBS_REASON_MAX])
{
	struct wire_cm_reject reject;
	char text[sizeof(reject.reason) + 1];
	if (event->private_len >= sizeof(reject)) {
		memcpy(&reject, event->private_data, sizeof(reject));
		if (reject.magic == WIRE_CM_MAGIC && reject.code < 0 && reject.code >= ERR_NOMEM) {
			net_copy_text(text, sizeof(text), reject.reason, sizeof(reject.reason));
			snprintf(reason, VERBS_REASON_MAX, "the server refused the connection: %s",
				 text);
			return reject.code;
		}
	}
	if (event->status == REJECT_NO_LISTENER || event->status == -ECONNREFUSED)
		snprintf(reason, VERBS_REASON_MAX,
			 "nobody listens at %s for RDMA connections: is the server still running?",
			 address);
	else if (event->status == REJECT_BY_PEER)
		snprintf(reason, VERBS_REASON_MAX,
			 "whoever listens at %s for RDMA connections refused, and is no rkv server "
			 "of this release",
			 address);
	else
		snprintf(reason, VERBS_REASON_MAX,
			 "the connection to %s was refused on the way (rdma_cm status %d)", address,
			 event->status);
	return ERR_CONN;
}

/* An event that ends a client's attempt to connect. */
static int
explain_event(const struct cm_event *event, const char *address, char reason[VERBS_REASON_MAX])
{
	const char *what = NULL;
	switch (event->type) {
	case RDMA_CM_EVENT_REJECTED:
		return cm_take_reject(event, address, reason);
	case RDMA_CM_EVENT_ADDR_ERROR:
		what = "no RDMA device of this machine leads to";
		break;
	case RDMA_CM_EVENT_ROUTE_ERROR:
		what = "no RDMA route leads to";
		break;
	case RDMA_CM_EVENT_UNREACHABLE:
		what = "no RDMA answer comes from";
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR:
		what = "the RDMA connection could not be completed to";
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		snprintf(reason, VERBS_REASON_MAX, "%s ended the connection while it was set up",
			 address);
		return ERR_CONN;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		snprintf(reason, VERBS_REASON_MAX, "the RDMA device towards %s was removed",
			 address);
		return ERR_CONN;
	default:
		snprintf(reason, VERBS_REASON_MAX, "while connecting to %s rdma_cm said %s",
			 address, rdma_event_str(event->type));
		return ERR_CONN;
	}
	snprintf(reason, VERBS_REASON_MAX, "%s %s: %s", what, address, cause_of(event));
	return code_of(event);
}

/* Events that mean nothing to a client that is connecting. */
static bool
is_idle_talk(const struct cm_event *event)
{
	return event->type == RDMA_CM_EVENT_ADDR_CHANGE ||
	       event->type == RDMA_CM_EVENT_TIMEWAIT_EXIT;
}

/* ---- Waiting ---- */

/* Sleeps until the channel is readable, or others were served. */
static int
wait_once(struct rdma_event_channel *channel, const struct cm_wait *wait)
{
	struct pollfd fds[2] = {
		{.fd = channel->fd, .events = POLLIN},
		{.fd = wait->pump ? wait->fd : -1, .events = POLLIN},
	};
	int64_t left_ns = wait->deadline_ns - clock_now_ns();
	if (left_ns <= 0)
		return ERR_TIMEOUT;
	int64_t left_ms = (left_ns + CLOCK_NS_PER_MS - 1) / CLOCK_NS_PER_MS;
	if (poll(fds, 2, left_ms < 1000 ? (int)left_ms : 1000) < 0 && errno != EINTR)
		return err_from_errno(errno);
	if (fds[1].revents)
		wait->pump(wait->arg);
	return 0;
}

/* Waits for the one event that is good news. */
static int
await(struct rdma_cm_id *id, enum rdma_cm_event_type good, const char *address,
      const struct cm_wait *wait, struct cm_event *ret_event, char reason[VERBS_REASON_MAX])
{
	for (;;) {
		int r = cm_next(id->channel, ret_event);
		if (r == 0 && ret_event->type == good && ret_event->status == 0)
			return 0;
		if (r == 0 && is_idle_talk(ret_event))
			continue;
		if (r == 0)
			return explain_event(ret_event, address, reason);
		if (r == ERR_AGAIN)
			r = wait_once(id->channel, wait);
		if (r == 0)
			continue;
		if (r == ERR_TIMEOUT)
			snprintf(reason, VERBS_REASON_MAX, "%s did not answer in time by RDMA",
				 address);
		else
			snprintf(reason, VERBS_REASON_MAX, "cannot wait for rdma_cm: %s",
				 strerror(errno));
		return r;
	}
}

static int
step_timeout_ms(const struct cm_wait *wait)
{
	int64_t left_ms = (wait->deadline_ns - clock_now_ns()) / CLOCK_NS_PER_MS;
	return left_ms < 1 ? 1 : left_ms < STEP_TIMEOUT_MS ? (int)left_ms : STEP_TIMEOUT_MS;
}

/* ---- The client's steps ---- */

int
cm_resolve(struct rdma_cm_id *id, const struct sockaddr_storage *source, const char *address,
	   const struct cm_wait *wait, char reason[VERBS_REASON_MAX])
{
	struct sockaddr_storage from = {0}, to;
	struct cm_event event;
	int r = cm_parse(address, &to);
	if (r) {
		snprintf(reason, VERBS_REASON_MAX,
			 "the server's hello has no numeric RDMA address and port");
		return r;
	}
	if (source)
		from = *source;
	if (rdma_resolve_addr(id, source ? (struct sockaddr *)&from : NULL, (struct sockaddr *)&to,
			      step_timeout_ms(wait))) {
		int error = errno;
		snprintf(reason, VERBS_REASON_MAX, "no RDMA device of this machine leads to %s: %s",
			 address, strerror(error));
		return err_from_errno(error);
	}
	r = await(id, RDMA_CM_EVENT_ADDR_RESOLVED, address, wait, &event, reason);
	if (r || id->verbs)
		return r;
	snprintf(reason, VERBS_REASON_MAX, "rdma_cm found no device for %s", address);
	return ERR_CONN;
}

int
cm_route(struct rdma_cm_id *id, const char *address, const struct cm_wait *wait,
	 char reason[VERBS_REASON_MAX])
{
	struct cm_event event;
	if (rdma_resolve_route(id, step_timeout_ms(wait)))
		return verbs_explain(errno, "look for an RDMA route to the server", reason);
	return await(id, RDMA_CM_EVENT_ROUTE_RESOLVED, address, wait, &event, reason);
}

int
cm_take_accept(const struct cm_event *event, const char *address, struct wire_cm_accept *ret_accept,
	       char reason[VERBS_REASON_MAX])
{
	const char *wrong = NULL;
	struct wire_cm_accept accept = {0};
	if (event->private_len < sizeof(accept)) {
		wrong = "is too short";
	} else {
		memcpy(&accept, event->private_data, sizeof(accept));
		if (accept.magic != WIRE_CM_MAGIC)
			wrong = "is not that of an rkv server";
		else if (accept.version != WIRE_VERSION)
			wrong = "is of another version: use programs and library of one release";
	}
	if (wrong) {
		snprintf(reason, VERBS_REASON_MAX, "what %s answered by RDMA %s", address, wrong);
		return accept.magic == WIRE_CM_MAGIC ? ERR_VERSION : ERR_CORRUPT;
	}
	*ret_accept = accept;
	return 0;
}

int
cm_connect(struct rdma_cm_id *id, const char *address, const struct wire_cm_request *request,
	   uint8_t read_depth, const struct cm_wait *wait, struct wire_cm_accept *ret_accept,
	   uint8_t *ret_read_depth, char reason[VERBS_REASON_MAX])
{
	struct cm_event event;
	struct rdma_conn_param param = {
		.private_data = request,
		.private_data_len = sizeof(*request),
		.responder_resources = 0, /* nothing of this process is for others */
		.initiator_depth = read_depth,
		.retry_count = RETRY_COUNT,
		.rnr_retry_count = RNR_RETRY_COUNT,
	};
	if (rdma_connect(id, &param))
		return verbs_explain(errno, "ask for an RDMA connection", reason);
	int r = await(id, RDMA_CM_EVENT_ESTABLISHED, address, wait, &event, reason);
	if (!r)
		r = cm_take_accept(&event, address, ret_accept, reason);
	if (r)
		return r;
	*ret_read_depth = event.initiator_depth < read_depth ? event.initiator_depth : read_depth;
	if (*ret_read_depth)
		return 0;
	snprintf(reason, VERBS_REASON_MAX,
		 "the server's RDMA device serves no READs and atomics (its max_qp_rd_atom is 0): "
		 "rkv needs a device that does");
	return ERR_INVALID;
}

/* ---- The server ---- */

int
cm_take_request(const struct cm_event *event, struct wire_cm_request *ret_request,
		char reason[VERBS_REASON_MAX])
{
	struct wire_cm_request request;
	const char *wrong = NULL;
	int code = ERR_CORRUPT;
	if (event->private_len < sizeof(request)) {
		wrong = "this is an rkv server, and the request was not one of rkv";
	} else {
		memcpy(&request, event->private_data, sizeof(request));
		if (request.magic != WIRE_CM_MAGIC) {
			wrong = "this is an rkv server, and the request was not one of rkv";
		} else if (request.version != WIRE_VERSION) {
			code = ERR_VERSION;
			wrong = "the server speaks another version: use programs and library of "
				"one release";
		} else if (request.reserved != 0) {
			wrong = "the request has a reserved field that is not 0";
		} else if (event->responder_resources == 0) {
			code = ERR_INVALID;
			wrong = "the client's device wants no READs and atomics in flight";
		}
	}
	if (!wrong) {
		*ret_request = request;
		return 0;
	}
	snprintf(reason, VERBS_REASON_MAX, "%s", wrong);
	return code;
}

/* To the next state, with what both sides have agreed on so far. Returns an errno. */
static int
change_state(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state, unsigned access,
	     uint8_t read_depth)
{
	struct ibv_qp_attr attr = {.qp_state = state};
	int mask;
	if (rdma_init_qp_attr(id, &attr, &mask))
		return errno;
	attr.qp_access_flags = access;        /* INIT */
	attr.max_dest_rd_atomic = read_depth; /* RTR */
	attr.max_rd_atomic = 0;               /* RTS: the server asks for nothing */
	return verbs_errno(ibv_modify_qp(qp, &attr, mask));
}

int
cm_accept(struct rdma_cm_id *id, struct ibv_qp *qp, unsigned access, uint8_t read_depth,
	  const struct wire_cm_accept *accept, char reason[VERBS_REASON_MAX])
{
	static const enum ibv_qp_state states[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
	struct rdma_conn_param param = {
		.private_data = accept,
		.private_data_len = sizeof(*accept),
		.responder_resources = read_depth,
		.qp_num = qp->qp_num,
	};
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
		int error = change_state(id, qp, states[i], access, read_depth);
		if (error)
			return verbs_explain(error, "set up a queue pair for the client", reason);
	}
	if (rdma_accept(id, &param))
		return verbs_explain(errno, "accept the client's connection", reason);
	return 0;
}

void
cm_reject(struct rdma_cm_id *id, int code, const char *text)
{
	struct wire_cm_reject reject = {
		.magic = WIRE_CM_MAGIC,
		.version = WIRE_VERSION,
		.code = code,
	};
	snprintf(reject.reason, sizeof(reject.reason), "%s", text);
	/* If it cannot be sent the peer finds out by its deadline. */
	(void)rdma_reject(id, &reject, sizeof(reject));
}
