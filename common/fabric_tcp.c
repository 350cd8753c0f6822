/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The client half of the tcp fabric: fabric_tcp.h, proto/wire_tcp.h. Frames and replies of many
 * batches travel together:
 *
 *   post  ---> outbox (frames; long WRITEs by reference)
 *   poll  ---> one system call: send the outbox, receive what is there ---> scatter, complete
 *   wait  ---> receive: look for a while, then sleep, until something comes or time is up: two
 *              system calls, or one where looking has been of no use (common/tcp_spin.h)
 *
 * A quiet batch is sent at once, unless completions are out, or the last poll delivered several:
 * then it goes with what is sent next, by the poll or wait that follows. (Marks of pipelined
 * UPDATEs would else be a system call each. If none follows, a flush sends it, [MARK].)
 *
 * Nothing is in the ring between two calls (common/tcp_link.h): nothing can touch local memory
 * then, least of all after an error, [LOCAL], so long READs are received straight into the caller's
 * memory. And an endpoint can pass from thread to thread (the control thread flushes idle
 * sessions). A reception that lasts ("multishot") would give that up and spare no system call, as a
 * caller polls anyway; the server's side has it.
 *
 * Order: the server executes the frames of a connection one after the other (common/execute.h);
 * results are in place before poll returns the batch, in post order.
 */
#include "common/fabric_tcp.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/fabric_host.h"
#include "common/tcp_hello.h"
#include "common/tcp_link.h"
#include "common/tcp_outbox.h"
#include "proto/wire_tcp.h"

#define DEPTH_MAX 16384u
#define IN_LEN 65536u    /* bytes of the receive buffer */
#define DIRECT_MIN 8192u /* what is missing of a piece before it is received into directly */
#define FLUSH_LEN 65536u /* bytes that wait before post sends them */
#define COPIED_MAX 2048u /* bytes of a batch's WRITEs that are copied into the outbox */
#define WAIT_MAX_NS CLOCK_NS_PER_S /* of one wait: its clock does not count while the host sleeps */

#define FRAME_MAX                                                                                  \
	(sizeof(struct wire_tcp_frame) + FAB_BATCH_MAX * sizeof(struct wire_tcp_op) + COPIED_MAX)
#define REFS_MAX (2u * FAB_BATCH_MAX) /* of one frame */

static_assert(FAB_BATCH_MAX == WIRE_TCP_OPS_MAX, "a batch fits a frame");

/* ---- Fabric and region ---- */

struct tcp_fab {
	struct fab fab;
	const struct log *log;
	_Atomic uint32_t n_keys;
};

struct tcp_region {
	struct fab_region region;
	_Atomic uint32_t refs; /* the opener and each endpoint; [LAST]: the last one frees */
	_Atomic bool severed;  /* [SEVER]: from any thread */
	struct fab_offer offer;
	pthread_mutex_t lock; /* of the list, and of closing what is on it */
	LIST_HEAD(, tcp_endpoint) endpoints;
};

/* Sockets take bytes from all memory: a registration is only a number. */
static int
tcp_register(struct fab *fab, void *local, size_t len, uint32_t *ret_key)
{
	struct tcp_fab *f = (struct tcp_fab *)fab;
	(void)local;
	(void)len;
	*ret_key = atomic_fetch_add_explicit(&f->n_keys, 1, memory_order_relaxed) + 1;
	return 0;
}

static void
tcp_deregister(struct fab *fab, uint32_t key)
{
	(void)fab;
	(void)key;
}

static void
tcp_close(struct fab *fab)
{
	free(fab);
}

static int
tcp_region_open(struct fab *fab, const struct fab_offer *offer, int64_t deadline_ns,
		struct fab_region **ret_region)
{
	(void)deadline_ns; /* nothing to wait for: an endpoint connects */
	struct tcp_region *region = calloc(1, sizeof(*region));
	if (!region)
		return ERR_NOMEM;
	region->region = (struct fab_region){.driver = fab->driver, .fab = fab};
	region->offer = *offer;
	atomic_init(&region->refs, 1);
	pthread_mutex_init(&region->lock, NULL);
	LIST_INIT(&region->endpoints);
	*ret_region = &region->region;
	return 0;
}

static void
region_release(struct tcp_region *region)
{
	if (atomic_fetch_sub_explicit(&region->refs, 1, memory_order_acq_rel) != 1)
		return;
	pthread_mutex_destroy(&region->lock);
	free(region);
}

static void
tcp_region_close(struct fab_region *region)
{
	region_release((struct tcp_region *)region);
}

/* ---- An endpoint ---- */

/* Where the result of an operation goes. */
struct result {
	unsigned char *local[2];
	uint32_t len[2];
};

/* A batch that was posted and has not been delivered. */
struct pending {
	void *cookie;
	bool is_quiet;  /* the caller hears nothing of it */
	bool is_silent; /* nor does the server say anything */
	unsigned n_results;
	uint32_t reply_len;
	struct result result[FAB_BATCH_MAX];
};

struct tcp_endpoint {
	struct fab_endpoint ep;
	const _Atomic bool *severed;
	bool is_broken; /* a batch failed, or the connection: nothing is sent any more */
	bool is_mute; /* nothing more is sent; what was said before may still come, then the end */
	int failure;  /* of the oldest pending batch, once broken */
	uint32_t r_key;
	uint32_t depth;
	uint32_t mask;        /* of pending */
	uint32_t n_posted;    /* batches put into pending, modulo 2^32: a frame's sequence */
	uint32_t n_taken;     /* and taken from it */
	uint32_t n_loud;      /* of those that wait: with a completion */
	uint32_t n_quiet;     /* and without */
	uint32_t n_replies;   /* of those that wait: how many the server will answer */
	uint32_t n_unsent;    /* and of these, how many it may not have seen yet */
	uint32_t n_delivered; /* by the last poll */
	struct pending *pending;
	struct tcp_outbox outbox;

	/* Receiving: in[] holds bytes in_begin..in_end - 1; then the state of the reply at hand. */
	unsigned char *in;
	size_t in_begin;
	size_t in_end;
	bool is_in_reply;
	unsigned at_result;
	uint64_t result_done; /* bytes of it */

	uint64_t n_frames; /* sent so far */
	struct tcp_link link;
	LIST_ENTRY(tcp_endpoint) listed; /* under the region's lock */
};

static struct pending *
pending_at(const struct tcp_endpoint *ep, uint32_t i)
{
	return &ep->pending[i & ep->mask];
}

/* Ends the connection; status: of the oldest batch. The others fail with ERR_CONN. */
static void
break_off(struct tcp_endpoint *ep, int status)
{
	if (ep->is_broken)
		return;
	ep->is_broken = true;
	ep->failure = status;
	tcp_outbox_clear(&ep->outbox);
	tcp_link_cut(&ep->link);
}

/* ---- Sending and receiving ---- */

/* The rest of a long piece that the reply at hand is filling; false: it is not that. */
static bool
direct_target(const struct tcp_endpoint *ep, struct iovec *ret_target)
{
	if (!ep->is_in_reply || ep->in_begin != ep->in_end)
		return false;
	const struct pending *p = pending_at(ep, ep->n_taken);
	const struct result *result = &p->result[ep->at_result];
	unsigned piece = ep->result_done >= result->len[0];
	size_t done = ep->result_done - (piece ? result->len[0] : 0);
	if (result->len[piece] - done < DIRECT_MIN)
		return false;
	*ret_target = (struct iovec){result->local[piece] + done, result->len[piece] - done};
	return true;
}

static struct iovec
receive_target(struct tcp_endpoint *ep)
{
	struct iovec target;
	if (direct_target(ep, &target))
		return target;
	if (ep->in_begin > 0) {
		memmove(ep->in, ep->in + ep->in_begin, ep->in_end - ep->in_begin);
		ep->in_end -= ep->in_begin;
		ep->in_begin = 0;
	}
	return (struct iovec){ep->in + ep->in_end, IN_LEN - ep->in_end};
}

static bool
is_passing(int result)
{
	return result == -EAGAIN || result == -EINTR || result == -ECANCELED;
}

static void
note_sent(struct tcp_endpoint *ep, int result)
{
	ep->n_unsent = 0;
	if (result >= 0) {
		tcp_outbox_sent(&ep->outbox, (size_t)result);
	} else if (!is_passing(result)) {
		/* Half a frame may be out: the server answers the whole ones, and hangs up. */
		ep->is_mute = true;
		tcp_outbox_clear(&ep->outbox);
		tcp_link_finish(&ep->link);
	}
}

static void
note_received(struct tcp_endpoint *ep, struct iovec target, int result)
{
	if (result <= 0 && !is_passing(result))
		break_off(ep, ERR_CONN);
	if (result <= 0)
		return;
	if (target.iov_base == ep->in + ep->in_end)
		ep->in_end += (size_t)result;
	else
		ep->result_done += (uint64_t)result;
}

/* Sends what waits, and receives what is there. False: there was nothing to do. */
static bool
exchange(struct tcp_endpoint *ep, bool receives)
{
	struct tcp_transfer t = {.outbox = ep->outbox.n_waiting > 0 ? &ep->outbox : NULL};
	if (receives && (ep->n_replies > ep->n_unsent || ep->is_mute))
		t.target = receive_target(ep);
	if (!t.outbox && t.target.iov_len == 0)
		return false;
	if (tcp_link_run(&ep->link, &t)) {
		break_off(ep, ERR_CONN);
		return true;
	}
	if (t.outbox)
		note_sent(ep, t.sent);
	if (t.target.iov_len > 0)
		note_received(ep, t.target, t.received);
	return true;
}

/*
 * Sleeps until there is something to receive, which is received, or time is up. While the socket is
 * full also until it has room: the next poll goes on sending.
 */
static void
receive_later(struct tcp_endpoint *ep, int64_t left_ns)
{
	struct tcp_transfer t = {.wait_ns = left_ns};
	if (ep->outbox.n_waiting == 0)
		t.target = receive_target(ep);
	if (tcp_link_run(&ep->link, &t))
		break_off(ep, ERR_CONN);
	else if (t.target.iov_len > 0)
		note_received(ep, t.target, t.received);
}

/* ---- Replies ---- */

/* Takes the oldest batch out of pending. */
static struct pending *
take_pending(struct tcp_endpoint *ep)
{
	struct pending *p = pending_at(ep, ep->n_taken++);
	if (p->is_quiet)
		ep->n_quiet--;
	else
		ep->n_loud--;
	if (!p->is_silent)
		ep->n_replies--;
	return p;
}

/* The oldest batch that the server answers; NULL: there is none. */
static struct pending *
next_answered(struct tcp_endpoint *ep)
{
	while (ep->n_taken != ep->n_posted) {
		struct pending *p = pending_at(ep, ep->n_taken);
		if (!p->is_silent)
			return p;
		take_pending(ep); /* done: the server has got behind it */
	}
	return NULL;
}

/* False: its header is not there yet, or the connection has just ended. */
static bool
begin_reply(struct tcp_endpoint *ep)
{
	struct wire_tcp_reply reply;
	if (ep->in_end - ep->in_begin < sizeof(reply))
		return false;
	memcpy(&reply, ep->in + ep->in_begin, sizeof(reply));
	ep->in_begin += sizeof(reply);
	const struct pending *p = next_answered(ep);
	if (!p || reply.sequence != ep->n_taken || reply.status > 0 || reply.status < ERR_NOMEM ||
	    reply.len != (reply.status ? sizeof(reply) : p->reply_len)) {
		break_off(ep, ERR_CORRUPT);
		return false;
	}
	if (reply.status) {
		break_off(ep, reply.status);
		return false;
	}
	ep->is_in_reply = true;
	ep->at_result = 0;
	ep->result_done = 0;
	return true;
}

/* Moves what has come to where it goes; false: more has to come. */
static bool
scatter(struct tcp_endpoint *ep, const struct pending *p)
{
	for (; ep->at_result < p->n_results; ep->at_result++, ep->result_done = 0) {
		const struct result *result = &p->result[ep->at_result];
		for (unsigned piece = 0; piece < 2; piece++) {
			uint64_t start = piece ? result->len[0] : 0;
			uint64_t done = ep->result_done - start;
			if (ep->result_done < start || done >= result->len[piece])
				continue;
			size_t n = result->len[piece] - done;
			if (n > ep->in_end - ep->in_begin)
				n = ep->in_end - ep->in_begin;
			memcpy(result->local[piece] + done, ep->in + ep->in_begin, n);
			ep->in_begin += n;
			ep->result_done += n;
			if (done + n < result->len[piece])
				return false;
		}
	}
	return true;
}

/* Completes what has been answered, as far as bytes have come. */
static unsigned
deliver(struct tcp_endpoint *ep, struct fab_done *done, unsigned max)
{
	unsigned n = 0;
	while (n < max && !ep->is_broken) {
		if (!ep->is_in_reply && !begin_reply(ep))
			break;
		const struct pending *p = pending_at(ep, ep->n_taken);
		if (!scatter(ep, p))
			break;
		ep->is_in_reply = false;
		take_pending(ep);
		if (!p->is_quiet)
			done[n++] = (struct fab_done){.cookie = p->cookie};
	}
	return n;
}

static unsigned
deliver_failures(struct tcp_endpoint *ep, struct fab_done *done, unsigned max)
{
	unsigned n = 0;
	while (n < max && ep->n_taken != ep->n_posted) {
		const struct pending *p = take_pending(ep);
		if (!p->is_quiet)
			done[n++] = (struct fab_done){p->cookie, ep->failure};
		ep->failure = ERR_CONN;
	}
	return n;
}

static bool
is_severed(const struct tcp_endpoint *ep)
{
	return atomic_load_explicit(ep->severed, memory_order_acquire);
}

static unsigned
tcp_poll(struct fab_endpoint *endpoint, struct fab_done *done, unsigned max)
{
	struct tcp_endpoint *ep = (struct tcp_endpoint *)endpoint;
	unsigned n = deliver(ep, done, max);
	/* While answers are left that have come already, what waits may go on waiting. */
	if (n < max && !ep->is_broken && exchange(ep, true))
		n += deliver(ep, done + n, max - n);
	if (is_severed(ep)) {
		break_off(ep, ERR_CONN);
		ep->failure = ERR_CONN;
		for (unsigned i = 0; i < n; i++)
			done[i].status = ERR_CONN;
	}
	if (ep->is_broken)
		n += deliver_failures(ep, done + n, max - n);
	ep->n_delivered = n;
	return n;
}

/* ---- Posting ---- */

static uint64_t
op_len(const struct fab_op *op)
{
	return (uint64_t)op->piece[0].len + op->piece[1].len;
}

/* What a frame says of a batch. Failure: ERR_INVALID: longer than it can say. */
static int
measure(const struct fab_op *ops, unsigned n, struct pending *p, uint32_t *ret_frame_len)
{
	uint64_t in = sizeof(struct wire_tcp_reply);
	uint64_t out = sizeof(struct wire_tcp_frame) + n * sizeof(struct wire_tcp_op);
	p->n_results = 0;
	for (unsigned i = 0; i < n; i++) {
		uint64_t len = op_len(&ops[i]);
		if (len > UINT32_MAX)
			return ERR_INVALID;
		if (ops[i].kind == FAB_WRITE) {
			out += len;
			continue;
		}
		in += len;
		p->result[p->n_results++] = (struct result){
			.local = {ops[i].piece[0].local, ops[i].piece[1].local},
			.len = {ops[i].piece[0].len, ops[i].piece[1].len},
		};
	}
	if (in > UINT32_MAX || out > UINT32_MAX)
		return ERR_INVALID;
	p->reply_len = (uint32_t)in;
	*ret_frame_len = (uint32_t)out;
	return 0;
}

static void
put_piece(struct tcp_outbox *outbox, const struct fab_piece *piece, size_t *copied)
{
	if (piece->len == 0)
		return;
	if (*copied + piece->len > COPIED_MAX) {
		tcp_outbox_refer(outbox, piece->local, piece->len);
		return;
	}
	*copied += piece->len;
	memcpy(tcp_outbox_room(outbox, piece->len), piece->local, piece->len);
}

static void
put_frame(struct tcp_endpoint *ep, const struct fab_op *ops, unsigned n, bool is_silent,
	  uint32_t frame_len)
{
	struct tcp_outbox *outbox = &ep->outbox;
	const struct wire_tcp_frame frame = {
		.len = frame_len,
		.r_key = ep->r_key,
		.sequence = ep->n_posted,
		.n_ops = (uint16_t)n,
		.flags = is_silent ? WIRE_TCP_QUIET : 0,
	};
	unsigned char *at = tcp_outbox_room(outbox, sizeof(frame) + n * sizeof(struct wire_tcp_op));
	memcpy(at, &frame, sizeof(frame));
	at += sizeof(frame);
	for (unsigned i = 0; i < n; i++, at += sizeof(struct wire_tcp_op)) {
		const struct wire_tcp_op op = {
			.roff = ops[i].roff,
			.len = (uint32_t)op_len(&ops[i]),
			.kind = (uint8_t)ops[i].kind,
			.expect = ops[i].expect,
			.swap = ops[i].swap,
		};
		memcpy(at, &op, sizeof(op));
	}
	size_t copied = 0;
	for (unsigned i = 0; i < n; i++) {
		if (ops[i].kind != FAB_WRITE)
			continue;
		put_piece(outbox, &ops[i].piece[0], &copied);
		put_piece(outbox, &ops[i].piece[1], &copied);
	}
}

static int
post(struct tcp_endpoint *ep, const struct fab_op *ops, unsigned n, bool is_quiet, void *cookie)
{
	struct pending *p = pending_at(ep, ep->n_posted);
	uint32_t frame_len;
	int rc = measure(ops, n, p, &frame_len);
	if (rc)
		return rc;
	p->cookie = cookie;
	p->is_quiet = is_quiet;
	p->is_silent = is_quiet && p->n_results == 0;
	if (!ep->is_broken && !ep->is_mute) {
		put_frame(ep, ops, n, p->is_silent, frame_len);
		ep->n_frames++;
	}
	ep->n_posted++;
	if (is_quiet)
		ep->n_quiet++;
	else
		ep->n_loud++;
	if (!p->is_silent) {
		ep->n_replies++;
		ep->n_unsent++;
	}
	if (ep->outbox.n_waiting >= FLUSH_LEN)
		exchange(ep, false);
	return 0;
}

static int
tcp_post(struct fab_endpoint *endpoint, const struct fab_op *ops, unsigned n, void *cookie)
{
	struct tcp_endpoint *ep = (struct tcp_endpoint *)endpoint;
	if (n - 1 >= FAB_BATCH_MAX)
		return ERR_INVALID;
	if (ep->n_loud == ep->depth)
		return ERR_AGAIN;
	return post(ep, ops, n, false, cookie);
}

static int
tcp_post_quiet(struct fab_endpoint *endpoint, const struct fab_op *ops, unsigned n)
{
	struct tcp_endpoint *ep = (struct tcp_endpoint *)endpoint;
	if (n - 1 >= FAB_BATCH_MAX)
		return ERR_INVALID;
	if (ep->is_broken || is_severed(ep))
		return ERR_CONN;
	if (ep->n_quiet == 2 * ep->depth)
		return ERR_AGAIN;
	int rc = post(ep, ops, n, true, NULL);
	if (!rc && ep->n_loud == 0 && ep->n_delivered <= 1)
		exchange(ep, false);
	return rc;
}

/* ---- Waiting ---- */

/* Is there more to deliver than a header that is not whole? */
static bool
has_input(const struct tcp_endpoint *ep)
{
	size_t n = ep->in_end - ep->in_begin;
	return n >= sizeof(struct wire_tcp_reply) || (n > 0 && ep->is_in_reply);
}

static void
tcp_wait(struct fab_endpoint *endpoint, int64_t until_ns)
{
	struct tcp_endpoint *ep = (struct tcp_endpoint *)endpoint;
	int64_t left_ns = until_ns - clock_now_ns();
	if (left_ns <= 0 || has_input(ep) || is_severed(ep))
		return;
	if (!ep->is_broken)
		exchange(ep, false);
	if (ep->is_broken && ep->n_loud > 0)
		return;
	bool expects = ep->n_replies > 0 || ep->outbox.n_waiting > 0 || ep->is_mute;
	if (ep->is_broken || !expects)
		host_pause(endpoint->region->fab, until_ns);
	else
		receive_later(ep, left_ns < WAIT_MAX_NS ? left_ns : WAIT_MAX_NS);
}

/* ---- Connecting ---- */

static void
endpoint_free(struct tcp_endpoint *ep)
{
	if (!ep)
		return;
	tcp_link_close(&ep->link);
	tcp_outbox_free(&ep->outbox);
	free(ep->pending);
	free(ep->in);
	free(ep);
}

static int
endpoint_new(struct tcp_region *region, uint32_t depth, struct tcp_endpoint **ret_endpoint,
	     char reason[TCP_REASON_MAX])
{
	uint32_t n = 3 * depth, size = 1;
	while (size < n)
		size *= 2;
	snprintf(reason, TCP_REASON_MAX,
		 "no memory for a session of %u batches: use a smaller depth, or give the process "
		 "more memory",
		 depth);
	struct tcp_endpoint *ep = calloc(1, sizeof(*ep));
	if (!ep)
		return ERR_NOMEM;
	ep->ep = (struct fab_endpoint){.driver = region->region.driver, .region = &region->region};
	ep->severed = &region->severed;
	ep->depth = depth;
	ep->mask = size - 1;
	/* Touched only as far as it is used. */
	ep->pending = malloc(size * sizeof(ep->pending[0]));
	ep->in = malloc(IN_LEN);
	if (!ep->pending || !ep->in || tcp_outbox_init(&ep->outbox, n * FRAME_MAX, n * REFS_MAX)) {
		endpoint_free(ep);
		return ERR_NOMEM;
	}
	*ret_endpoint = ep;
	return 0;
}

static int
endpoint_connect(struct tcp_endpoint *ep, const struct fab_offer *offer,
		 const struct fab_ticket *ticket, int64_t deadline_ns, char reason[TCP_REASON_MAX])
{
	struct wire_tcp_accept accept;
	int fd;
	int rc = tcp_link_open(&ep->link, reason);
	if (!rc)
		rc = tcp_hello_connect(offer, ticket, deadline_ns, &fd, &accept, reason);
	if (rc)
		return rc;
	tcp_link_take(&ep->link, fd);
	ep->r_key = accept.r_key;
	if (accept.region_len == offer->len)
		return 0;
	snprintf(reason, TCP_REASON_MAX, "the server's region is not as long as it has said");
	return ERR_CORRUPT;
}

#define SEVERED                                                                                    \
	"the server is gone, and its region with it: ask the server for a new one once it is back"

/* From now on severing the region reaches it. Failure: ERR_CONN: it has been severed. */
static int
enlist(struct tcp_region *region, struct tcp_endpoint *ep, char reason[TCP_REASON_MAX])
{
	pthread_mutex_lock(&region->lock);
	bool severed = is_severed(ep);
	if (!severed)
		LIST_INSERT_HEAD(&region->endpoints, ep, listed);
	pthread_mutex_unlock(&region->lock);
	if (severed) {
		snprintf(reason, TCP_REASON_MAX, SEVERED);
		return ERR_CONN;
	}
	atomic_fetch_add_explicit(&region->refs, 1, memory_order_relaxed);
	return 0;
}

static int
check_connect(const struct tcp_region *region, uint32_t depth, char reason[TCP_REASON_MAX])
{
	if (depth == 0 || depth > DEPTH_MAX) {
		snprintf(reason, TCP_REASON_MAX,
			 "%u batches in flight are asked for: it may be 1 to %u", depth, DEPTH_MAX);
		return ERR_INVALID;
	}
	if (atomic_load_explicit(&region->severed, memory_order_acquire)) {
		snprintf(reason, TCP_REASON_MAX, SEVERED);
		return ERR_CONN;
	}
	return 0;
}

static int
tcp_connect(struct fab_region *fab_region, const struct fab_ticket *ticket, uint32_t depth,
	    int64_t deadline_ns, struct fab_endpoint **ret_endpoint)
{
	struct tcp_region *region = (struct tcp_region *)fab_region;
	const struct log *log = ((struct tcp_fab *)fab_region->fab)->log;
	struct tcp_endpoint *ep = NULL;
	char reason[TCP_REASON_MAX];
	int rc = check_connect(region, depth, reason);
	if (!rc)
		rc = endpoint_new(region, depth, &ep, reason);
	if (!rc)
		rc = endpoint_connect(ep, &region->offer, ticket, deadline_ns, reason);
	if (!rc)
		rc = enlist(region, ep, reason);
	if (rc) {
		log_line(log, LOG_ERROR, "data connection: %s", reason);
		endpoint_free(ep);
		return rc;
	}
	*ret_endpoint = &ep->ep;
	return 0;
}

static void
tcp_disconnect(struct fab_endpoint *endpoint)
{
	struct tcp_endpoint *ep = (struct tcp_endpoint *)endpoint;
	struct tcp_region *region = (struct tcp_region *)endpoint->region;
	pthread_mutex_lock(&region->lock);
	LIST_REMOVE(ep, listed);
	pthread_mutex_unlock(&region->lock);
	if (!ep->is_broken)
		exchange(ep, false);
	break_off(ep, ERR_CONN); /* also for a forked child that has the socket too */
	endpoint_free(ep);
	region_release(region);
}

/* The sockets are shut down, so that who sleeps wakes up. */
static void
tcp_region_sever(struct fab_region *fab_region)
{
	struct tcp_region *region = (struct tcp_region *)fab_region;
	struct tcp_endpoint *ep;
	pthread_mutex_lock(&region->lock);
	atomic_store_explicit(&region->severed, true, memory_order_release);
	LIST_FOREACH(ep, &region->endpoints, listed)
	{
		tcp_link_cut(&ep->link);
	}
	pthread_mutex_unlock(&region->lock);
}

void
tcp_endpoint_costs(const struct fab_endpoint *endpoint, struct tcp_costs *ret_costs)
{
	const struct tcp_endpoint *ep = (const struct tcp_endpoint *)endpoint;
	*ret_costs = (struct tcp_costs){.n_calls = ep->link.n_calls, .n_frames = ep->n_frames};
}

static const struct fab_driver tcp_driver = {
	.name = "tcp",
	.reaches_all_memory = true,
	.register_memory = tcp_register,
	.deregister_memory = tcp_deregister,
	.region_open = tcp_region_open,
	.region_sever = tcp_region_sever,
	.region_close = tcp_region_close,
	.connect = tcp_connect,
	.disconnect = tcp_disconnect,
	.post = tcp_post,
	.post_quiet = tcp_post_quiet,
	.poll = tcp_poll,
	.wait = tcp_wait,
	.pause = host_pause,
	.now = host_now,
	.rand = host_rand,
	.close = tcp_close,
};

int
tcp_open_fabric(const struct log *log, struct fab **ret_fab)
{
	char reason[TCP_REASON_MAX];
	/* Whether there are rings at all is told now, not when the first session opens. */
	int rc = tcp_link_probe(reason);
	if (rc) {
		log_line(log, LOG_ERROR, "%s", reason);
		return rc;
	}
	struct tcp_fab *f = calloc(1, sizeof(*f));
	if (!f) {
		log_line(log, LOG_ERROR, "no memory for the tcp fabric");
		return ERR_NOMEM;
	}
	f->fab.driver = &tcp_driver;
	f->log = log;
	*ret_fab = &f->fab;
	return 0;
}
