/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The client's side of the verbs fabric: its data path. (Server: fabric_verbs_server.c. Devices:
 * fabric_verbs_device.c. Setting connections up: cm_rdma.c.)
 *
 *   fab_post        operations -> work requests, linked to the *chain*; nothing is sent yet,
 *                   unless the chain is long
 *   fab_post_quiet  the same, and sends the chain
 *   fab_poll        sends the chain by one ibv_post_send, then looks at the completion queue
 *
 *   chain:  | WRITE CAS READ* | READ READ* | WRITE CAS READ* |      * signalled: a batch's last one
 *           '---- batch 1 ----'  batch 2     batch 3                one doorbell for all of them
 *
 * Completions of one queue pair come in post order, so that of a batch's last work request proves
 * all of the batch, and all before it. Work requests are numbered, and the number is the wr_id: on
 * an error nothing else in a completion can be trusted.
 *
 * NOTHING OVERRUNS. At most n_send work requests are in the send queue; what does not fit waits in
 * the chain, whose room is what depth batches and the marks between them can need. Each batch ends
 * with a signalled request, and every half send queue of marks has one, so that also a queue full
 * of marks gets room again. The completion queue has room for a whole send queue.
 *
 * WHAT FAILS, FAILS WHOLE. The first error ends the endpoint: a completion that is none, a refused
 * ibv_post_send (the requests before *bad_wr are posted and will run), an operation that is not
 * allowed, [RANGE], a region that was severed, [SEVER], a disconnect. What has completed before is
 * delivered; then the queue pair is destroyed, which returns when the device touches local memory
 * no more; and all that is left completes with ERR_CONN: [LOCAL] and "each batch once" need no
 * further thought. No flushed completion is ever waited for.
 *
 * THE REPLY OF AN ATOMIC may arrive with its bytes swapped (devices that answer big-endian). An
 * endpoint finds out when it connects, by a CAS that must fail on the superblock's first word.
 *
 * Threads: an endpoint belongs to one at a time, as does the thread domain of its queues;
 * registering, connecting and severing are for any. post and poll take no lock, allocate nothing,
 * and make no system call but those of the device's library.
 */
#include "common/fabric_verbs.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/fabric_host.h"
#include "common/fabric_verbs_internal.h"

#define CHAIN_MAX 128u /* so many are sent without waiting for a poll */
#define POLL_MAX 16
#define WAIT_SPINS 16 /* between two looks at the clock */
#define WAIT_SPIN_NS 20000

/* ---- The fabric: device and registered memory ---- */

static struct verbs_fab *
fab_of(struct fab *fab)
{
	return (struct verbs_fab *)fab;
}

static int
register_locked(struct verbs_fab *f, void *local, size_t len, uint32_t *ret_key,
		char reason[VERBS_REASON_MAX])
{
	if (!f->pd) {
		snprintf(reason, VERBS_REASON_MAX,
			 "no RDMA device is open yet: memory can be registered once a server was "
			 "reached");
		return ERR_CONN;
	}
	if (len > f->limits.mr_len) {
		snprintf(reason, VERBS_REASON_MAX,
			 "the RDMA device registers at most %llu KiB at once (max_mr_size), not "
			 "%zu KiB: use a smaller buffer or arena",
			 (unsigned long long)f->limits.mr_len >> 10, len >> 10);
		return ERR_NOMEM;
	}
	struct verbs_registration *new = malloc(sizeof(*new));
	if (!new)
		return verbs_explain(ENOMEM, "note a registration", reason);
	int r = verbs_register(f->pd, local, len, IBV_ACCESS_LOCAL_WRITE, &new->mr, reason);
	if (r) {
		free(new);
		return r;
	}
	new->next = f->registrations;
	f->registrations = new;
	*ret_key = new->mr->lkey;
	return 0;
}

static int
verbs_register_memory(struct fab *fab, void *local, size_t len, uint32_t *ret_key)
{
	struct verbs_fab *f = fab_of(fab);
	char reason[VERBS_REASON_MAX];
	pthread_mutex_lock(&f->mutex);
	int r = register_locked(f, local, len, ret_key, reason);
	pthread_mutex_unlock(&f->mutex);
	if (r)
		log_line(f->log, LOG_WARN, "%s", reason);
	return r;
}

static void
verbs_deregister_memory(struct fab *fab, uint32_t key)
{
	struct verbs_fab *f = fab_of(fab);
	pthread_mutex_lock(&f->mutex);
	struct verbs_registration **at = &f->registrations;
	while (*at && (*at)->mr->lkey != key)
		at = &(*at)->next;
	struct verbs_registration *old = *at;
	if (old)
		*at = old->next;
	pthread_mutex_unlock(&f->mutex);
	if (old)
		ibv_dereg_mr(old->mr);
	free(old);
}

static void
verbs_close(struct fab *fab)
{
	struct verbs_fab *f = fab_of(fab);
	while (f->registrations)
		verbs_deregister_memory(fab, f->registrations->mr->lkey);
	if (f->pd)
		ibv_dealloc_pd(f->pd);
	cm_id_destroy(f->anchor);
	cm_channel_destroy(f->channel);
	pthread_mutex_destroy(&f->mutex);
	free(f);
}

/* The device of an id becomes the fabric's. */
static int
take_device(struct verbs_fab *f, struct rdma_cm_id *id, char reason[VERBS_REASON_MAX])
{
	int r = verbs_limits_query(id->verbs, id->port_num, &f->limits, reason);
	if (r)
		return r;
	f->pd = ibv_alloc_pd(id->verbs);
	if (!f->pd)
		return verbs_explain(errno, "allocate a protection domain", reason);
	f->context = id->verbs;
	return 0;
}

/* ---- A region ---- */

void
verbs_region_release(struct verbs_region *region)
{
	if (region && atomic_fetch_sub_explicit(&region->refs, 1, memory_order_acq_rel) == 1)
		free(region);
}

static void
verbs_region_close(struct fab_region *region)
{
	verbs_region_release((struct verbs_region *)region);
}

static void
verbs_region_sever(struct fab_region *region)
{
	struct verbs_region *r = (struct verbs_region *)region;
	atomic_store_explicit(&r->severed, true, memory_order_release);
}

int
verbs_check_device(const struct verbs_fab *f, const struct rdma_cm_id *id, const char *address,
		   char reason[VERBS_REASON_MAX])
{
	if (f->context == id->verbs)
		return 0;
	snprintf(reason, VERBS_REASON_MAX,
		 "the way to %s leads through the RDMA device %s, but this client works with %s: "
		 "give that server's device an address of the same network",
		 address, ibv_get_device_name(id->verbs->device),
		 ibv_get_device_name(f->context->device));
	return ERR_CONN;
}

/* Looks which device leads to the region; the first one becomes the fabric's, and its id stays. */
static int
find_device(struct verbs_fab *f, const char *address, const struct cm_wait *wait,
	    char reason[VERBS_REASON_MAX])
{
	struct rdma_event_channel *channel = NULL;
	struct rdma_cm_id *id = NULL;
	char text[VERBS_TEXT_MAX];
	int r = cm_channel_create(&channel, reason);
	if (!r)
		r = cm_id_create(channel, NULL, &id, reason);
	if (!r)
		r = cm_resolve(id, f->source, address, wait, reason);
	if (r)
		goto out;
	pthread_mutex_lock(&f->mutex);
	if (f->context) {
		r = verbs_check_device(f, id, address, reason);
	} else {
		r = take_device(f, id, reason);
		if (!r) {
			verbs_describe(id, text);
			log_line(f->log, LOG_INFO, "RDMA device towards %s: %s", address, text);
			f->anchor = id;
			f->channel = channel;
			id = NULL;
			channel = NULL;
		}
	}
	pthread_mutex_unlock(&f->mutex);
out:
	cm_id_destroy(id);
	cm_channel_destroy(channel);
	return r;
}

static int
region_new(struct fab *fab, const struct fab_offer *offer, struct verbs_region **ret_region,
	   char reason[VERBS_REASON_MAX])
{
	struct verbs_region *region = calloc(1, sizeof(*region));
	if (!region)
		return verbs_explain(ENOMEM, "open a region", reason);
	region->region = (struct fab_region){.driver = fab->driver, .fab = fab};
	atomic_init(&region->refs, 1);
	region->offer = *offer;
	memcpy(region->address, offer->verbs_address, sizeof(offer->verbs_address));
	*ret_region = region;
	return 0;
}

int
verbs_region_on(struct fab *fab, const struct fab_offer *offer, struct fab_region **ret_region,
		char reason[VERBS_REASON_MAX])
{
	struct verbs_region *region;
	int r = region_new(fab, offer, &region, reason);
	if (!r)
		*ret_region = &region->region;
	return r;
}

static int
verbs_region_open(struct fab *fab, const struct fab_offer *offer, int64_t deadline_ns,
		  struct fab_region **ret_region)
{
	const struct cm_wait wait = {.deadline_ns = deadline_ns};
	char reason[VERBS_REASON_MAX];
	struct verbs_region *region = NULL;
	int r = region_new(fab, offer, &region, reason);
	if (!r)
		r = find_device(fab_of(fab), region->address, &wait, reason);
	if (r) {
		log_line(fab_of(fab)->log, LOG_WARN, "%s", reason);
		verbs_region_release(region);
		return r;
	}
	*ret_region = &region->region;
	return 0;
}

/* ---- An endpoint, and its end ---- */

static struct verbs_endpoint *
endpoint_of(struct fab_endpoint *ep)
{
	return (struct verbs_endpoint *)ep;
}

static struct verbs_batch *
batch_at(const struct verbs_endpoint *ep, uint32_t i)
{
	return &ep->batches[i & ep->batch_mask];
}

static struct verbs_request *
request_at(const struct verbs_endpoint *ep, uint32_t place)
{
	return &ep->requests[place & ep->request_mask];
}

void
verbs_endpoint_end(struct verbs_endpoint *ep)
{
	if (ep->ended)
		return;
	ep->ended = true;
	cm_qp_destroy(ep->id); /* [LOCAL] */
	for (uint32_t i = ep->n_completed; i != ep->n_posted; i++)
		if (batch_at(ep, i)->status == 0)
			batch_at(ep, i)->status = ERR_CONN;
	ep->n_completed = ep->n_posted;
	ep->n_chain = 0;
}

static __attribute__((noinline, cold)) void
explain_completion(const struct verbs_endpoint *ep, const struct ibv_wc *wc)
{
	const char *hint = "";
	if (wc->status == IBV_WC_RETRY_EXC_ERR)
		hint = ": the server, or the link to it, does not answer";
	else if (wc->status == IBV_WC_REM_ACCESS_ERR)
		hint = ": the server's region is another one now, or was never this client's";
	else if (wc->status == IBV_WC_LOC_PROT_ERR)
		hint = ": memory of this process that is not registered";
	log_line(verbs_fab_of(ep)->log, LOG_WARN,
		 "the RDMA connection to %s failed: work request %llu: %s (status %d, vendor error "
		 "0x%x)%s",
		 verbs_address_of(ep), (unsigned long long)wc->wr_id, ibv_wc_status_str(wc->status),
		 (int)wc->status, wc->vendor_err, hint);
}

/* ---- Sending ---- */

/* What the device took before it refused a request is under way. */
static __attribute__((noinline, cold)) void
sending_failed(struct verbs_endpoint *ep, int result, const struct ibv_send_wr *first,
	       const struct ibv_send_wr *bad)
{
	int error = verbs_errno(result);
	uint32_t n = 0;
	for (const struct ibv_send_wr *wr = first; wr && wr != bad; wr = wr->next)
		n++;
	ep->n_sent += n;
	ep->failed = true;
	log_line(verbs_fab_of(ep)->log, LOG_WARN,
		 "the RDMA connection to %s failed: ibv_post_send, after %u work requests: %s",
		 verbs_address_of(ep), n, strerror(error));
}

/* Sends the chain, or what the send queue has room for. */
static void
chain_send(struct verbs_endpoint *ep)
{
	uint32_t room = ep->n_send - (uint32_t)(ep->n_sent - ep->n_freed);
	uint32_t n = ep->n_chain < room ? ep->n_chain : room;
	if (n == 0)
		return;
	struct ibv_send_wr *first = &request_at(ep, ep->first)->wr, *bad = NULL;
	request_at(ep, ep->first + n - 1)->wr.next = NULL;
	int r = ibv_post_send(ep->id->qp, first, &bad);
	if (r) {
		sending_failed(ep, r, first, bad);
		return;
	}
	ep->n_sent += n;
	ep->n_chain -= n;
	/* An empty chain begins at the same place again, which is in the cache. */
	ep->first = ep->n_chain ? ep->first + n : 0;
}

/* ---- From operations to work requests ---- */

static bool
has_to_end(const struct verbs_endpoint *ep)
{
	return ep->refused || ep->failed || ep->ended;
}

/* [RANGE]: what the device would answer with an error, which would cost the connection. */
static int
op_check(const struct verbs_endpoint *ep, const struct fab_op *op)
{
	uint64_t len = (uint64_t)op->piece[0].len + op->piece[1].len;
	if (op->roff > ep->len || len > ep->len - op->roff)
		return ERR_INVALID;
	if (op->kind >= FAB_CAS && ((op->roff & 7) != 0 || op->piece[0].len != 8 || len != 8))
		return ERR_INVALID;
	return 0;
}

static uint64_t
segment_of(const struct verbs_endpoint *ep, uint64_t roff)
{
	return ep->n_segments == 1 ? 0 : roff / ep->segment_len;
}

/* How much of [roff, roff + len) one work request can move. */
static uint64_t
stretch(const struct verbs_endpoint *ep, uint64_t roff, uint64_t len)
{
	uint64_t most = ep->message_len;
	if (ep->n_segments > 1 && most > ep->segment_len - roff % ep->segment_len)
		most = ep->segment_len - roff % ep->segment_len;
	return len < most ? len : most;
}

static __attribute__((noinline)) unsigned
count_stretches(const struct verbs_endpoint *ep, const struct fab_op *op)
{
	uint64_t roff = op->roff, left = (uint64_t)op->piece[0].len + op->piece[1].len;
	unsigned n = 0;
	do {
		uint64_t one = stretch(ep, roff, left);
		roff += one;
		left -= one;
		n++;
	} while (left && n <= VERBS_BATCH_REQUESTS_MAX);
	return n;
}

/* All of a batch, or nothing of it. */
static int
batch_check(const struct verbs_endpoint *ep, const struct fab_op *ops, unsigned n)
{
	unsigned n_requests = n;
	for (unsigned i = 0; i < n; i++) {
		int r = op_check(ep, &ops[i]);
		if (r)
			return r;
		if (ep->n_segments > 1 ||
		    (uint64_t)ops[i].piece[0].len + ops[i].piece[1].len > ep->message_len)
			n_requests += count_stretches(ep, &ops[i]) - 1;
	}
	return n_requests <= VERBS_BATCH_REQUESTS_MAX ? 0 : ERR_INVALID;
}

static struct verbs_request *
request_new(struct verbs_endpoint *ep, uint64_t roff)
{
	struct verbs_request *r = request_at(ep, ep->first + ep->n_chain);
	if (ep->n_chain)
		request_at(ep, ep->first + ep->n_chain - 1)->wr.next = &r->wr;
	ep->n_chain++;
	r->wr.wr_id = ep->n_built++;
	r->wr.next = NULL;
	r->wr.sg_list = r->sge;
	r->wr.num_sge = 0;
	r->wr.send_flags = 0;
	r->wr.wr.rdma.remote_addr = ep->base + roff;
	r->wr.wr.rdma.rkey = ep->r_key[segment_of(ep, roff)];
	ep->n_unsignalled++;
	return r;
}

/* Adds [from, from + len) of the pieces. No sge has length 0: some devices take it for 2 GiB. */
static void
request_add_pieces(struct verbs_request *r, const struct fab_piece piece[2], uint64_t from,
		   uint64_t len)
{
	for (int i = 0; i < 2 && len; i++) {
		if (from >= piece[i].len) {
			from -= piece[i].len;
			continue;
		}
		uint64_t n = piece[i].len - from < len ? piece[i].len - from : len;
		r->sge[r->wr.num_sge++] = (struct ibv_sge){
			.addr = (uintptr_t)piece[i].local + from,
			.length = (uint32_t)n,
			.lkey = piece[i].key,
		};
		len -= n;
		from = 0;
	}
}

static void
build_copy(struct verbs_endpoint *ep, const struct fab_op *op)
{
	uint64_t len = (uint64_t)op->piece[0].len + op->piece[1].len, at = 0;
	do {
		uint64_t one = stretch(ep, op->roff + at, len - at);
		struct verbs_request *r = request_new(ep, op->roff + at);
		request_add_pieces(r, op->piece, at, one);
		r->wr.opcode = op->kind == FAB_READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
		if (op->kind == FAB_WRITE && one && one <= ep->max_inline)
			r->wr.send_flags = IBV_SEND_INLINE;
		at += one;
	} while (at < len);
}

static void
build_atomic(struct verbs_endpoint *ep, const struct fab_op *op)
{
	struct verbs_request *r = request_new(ep, op->roff);
	uint64_t address = r->wr.wr.rdma.remote_addr;
	uint32_t key = r->wr.wr.rdma.rkey;
	request_add_pieces(r, op->piece, 0, 8);
	r->wr.opcode =
		op->kind == FAB_CAS ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
	r->wr.wr.atomic.remote_addr = address;
	r->wr.wr.atomic.compare_add = op->expect;
	r->wr.wr.atomic.swap = op->swap;
	r->wr.wr.atomic.rkey = key;
	if (ep->swaps)
		ep->swaps[ep->n_swaps++ & ep->request_mask] =
			(struct verbs_swap){r->wr.wr_id, op->piece[0].local};
}

static void
batch_build(struct verbs_endpoint *ep, const struct fab_op *ops, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (ops[i].kind >= FAB_CAS)
			build_atomic(ep, &ops[i]);
		else
			build_copy(ep, &ops[i]);
	}
}

static void
signal_last(struct verbs_endpoint *ep)
{
	request_at(ep, ep->first + ep->n_chain - 1)->wr.send_flags |= IBV_SEND_SIGNALED;
	ep->n_unsignalled = 0;
}

static int
verbs_post(struct fab_endpoint *endpoint, const struct fab_op *ops, unsigned n, void *cookie)
{
	struct verbs_endpoint *ep = endpoint_of(endpoint);
	if (n - 1 >= FAB_BATCH_MAX)
		return ERR_INVALID;
	if (ep->n_posted - ep->n_polled == ep->depth)
		return ERR_AGAIN;
	struct verbs_batch *batch = batch_at(ep, ep->n_posted++);
	batch->cookie = cookie;
	batch->n_quiet = ep->n_quiet;
	batch->last = UINT64_MAX;
	batch->status = has_to_end(ep) ? ERR_CONN : batch_check(ep, ops, n);
	if (batch->status) {
		ep->refused = true;
		if (ep->ended)
			ep->n_completed = ep->n_posted;
		return 0;
	}
	batch_build(ep, ops, n);
	signal_last(ep);
	batch->last = ep->n_built - 1;
	if (ep->n_chain >= CHAIN_MAX)
		chain_send(ep);
	return 0;
}

static int
verbs_post_quiet(struct fab_endpoint *endpoint, const struct fab_op *ops, unsigned n)
{
	struct verbs_endpoint *ep = endpoint_of(endpoint);
	if (n - 1 >= FAB_BATCH_MAX)
		return ERR_INVALID;
	if (has_to_end(ep))
		return 0;
	if (ep->n_quiet - ep->n_quiet_completed == 2 * ep->depth)
		return ERR_AGAIN;
	if (batch_check(ep, ops, n)) {
		ep->refused = true; /* its failure shows in the batches that follow */
		return 0;
	}
	ep->n_quiet++;
	batch_build(ep, ops, n);
	if (ep->n_unsignalled >= ep->n_send / 2)
		signal_last(ep);
	chain_send(ep);
	return 0;
}

/* ---- Completions ---- */

static __attribute__((noinline)) void
swap_replies(struct verbs_endpoint *ep, uint64_t number)
{
	while (ep->n_swapped != ep->n_swaps) {
		const struct verbs_swap *swap = &ep->swaps[ep->n_swapped & ep->request_mask];
		uint64_t word;
		if (swap->number > number)
			return;
		memcpy(&word, swap->local, sizeof(word));
		word = __builtin_bswap64(word);
		memcpy(swap->local, &word, sizeof(word));
		ep->n_swapped++;
	}
}

/* The work request of this number has completed, and with it all before. */
static void
completed_through(struct verbs_endpoint *ep, uint64_t number)
{
	ep->n_freed = number + 1;
	if (ep->swaps)
		swap_replies(ep, number);
	while (ep->n_completed != ep->n_posted && batch_at(ep, ep->n_completed)->last <= number)
		ep->n_quiet_completed = batch_at(ep, ep->n_completed++)->n_quiet;
}

/* Takes completions; on the first error the endpoint has to end. Returns how many there were. */
static int
harvest(struct verbs_endpoint *ep)
{
	struct ibv_wc wc[POLL_MAX];
	int n = ibv_poll_cq(ep->cq, POLL_MAX, wc);
	if (n < 0) {
		log_line(verbs_fab_of(ep)->log, LOG_WARN,
			 "the RDMA connection to %s failed: ibv_poll_cq: %s", verbs_address_of(ep),
			 strerror(verbs_errno(n)));
		ep->failed = ep->is_flushed = true;
		return 0;
	}
	for (int i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS) {
			explain_completion(ep, &wc[i]);
			ep->failed = ep->is_flushed = true;
			return 0;
		}
		assert(wc[i].wr_id >= ep->n_freed && wc[i].wr_id < ep->n_sent);
		completed_through(ep, wc[i].wr_id);
	}
	return n;
}

/* What has completed by now counts; then it ends. */
static __attribute__((noinline, cold)) void
end_orderly(struct verbs_endpoint *ep)
{
	if (ep->ended)
		return;
	while (!ep->is_flushed && harvest(ep) == POLL_MAX)
		continue;
	verbs_endpoint_end(ep);
}

static unsigned
verbs_poll(struct fab_endpoint *endpoint, struct fab_done *done, unsigned max)
{
	struct verbs_endpoint *ep = endpoint_of(endpoint);
	if (!has_to_end(ep)) {
		if (ep->n_chain)
			chain_send(ep);
		harvest(ep);
	}
	bool severed = atomic_load_explicit(ep->severed, memory_order_acquire);
	if (has_to_end(ep) || severed)
		end_orderly(ep);
	unsigned n = ep->n_completed - ep->n_polled;
	if (n > max)
		n = max;
	for (unsigned i = 0; i < n; i++) {
		const struct verbs_batch *batch = batch_at(ep, ep->n_polled++);
		done[i] = (struct fab_done){batch->cookie, severed ? ERR_CONN : batch->status};
	}
	return n;
}

/* ---- Waiting ---- */

/* The server, or its end of the connection, is gone: no need to wait for the retries. */
static void
look_for_disconnect(struct verbs_endpoint *ep)
{
	struct pollfd readable = {.fd = ep->channel->fd, .events = POLLIN};
	struct cm_event event;
	if (poll(&readable, 1, 0) != 1)
		return;
	while (cm_next(ep->channel, &event) == 0) {
		if (event.type != RDMA_CM_EVENT_DISCONNECTED &&
		    event.type != RDMA_CM_EVENT_DEVICE_REMOVAL &&
		    event.type != RDMA_CM_EVENT_CONNECT_ERROR)
			continue;
		log_line(verbs_fab_of(ep)->log, LOG_WARN, "the RDMA connection to %s ended: %s",
			 verbs_address_of(ep),
			 event.type == RDMA_CM_EVENT_DEVICE_REMOVAL ? "the device was removed"
								    : "the server closed it");
		ep->failed = true;
	}
}

static bool
has_news(const struct verbs_endpoint *ep)
{
	return ep->n_completed != ep->n_polled || has_to_end(ep) ||
	       atomic_load_explicit(ep->severed, memory_order_acquire);
}

/* Looks for completions; true: there is something for the next poll. */
static bool
spin(struct verbs_endpoint *ep)
{
	for (int i = 0; i < WAIT_SPINS && !has_news(ep); i++) {
		harvest(ep);
		host_relax();
	}
	return has_news(ep);
}

static void
verbs_wait(struct fab_endpoint *endpoint, int64_t until_ns)
{
	struct verbs_endpoint *ep = endpoint_of(endpoint);
	if (has_to_end(ep))
		return;
	chain_send(ep);
	if (spin(ep))
		return;
	int64_t now_ns = clock_now_ns(), spin_until_ns = now_ns + WAIT_SPIN_NS;
	while (now_ns < spin_until_ns && now_ns < until_ns) {
		if (spin(ep))
			return;
		now_ns = clock_now_ns();
	}
	if (now_ns >= until_ns)
		return;
	look_for_disconnect(ep);
	if (!has_news(ep))
		host_pause(endpoint->region->fab, until_ns);
}

int
verbs_run(struct fab_endpoint *ep, const struct fab_op *ops, unsigned n, int64_t deadline_ns)
{
	struct fab_done done;
	int r = fab_post(ep, ops, n, NULL);
	if (r)
		return r;
	while (fab_poll(ep, &done, 1) == 0) {
		if (clock_now_ns() >= deadline_ns)
			return ERR_TIMEOUT;
		fab_wait(ep, deadline_ns);
	}
	return done.status;
}

/* ---- The driver ---- */

static int
verbs_connect(struct fab_region *region, const struct fab_ticket *ticket, uint32_t depth,
	      int64_t deadline_ns, struct fab_endpoint **ret_endpoint)
{
	const struct cm_wait wait = {.deadline_ns = deadline_ns};
	char reason[VERBS_REASON_MAX];
	int r = verbs_connect_with(region, ticket, depth, &wait, ret_endpoint, reason);
	if (r)
		log_line(fab_of(region->fab)->log, LOG_WARN, "%s", reason);
	return r;
}

static const struct fab_driver verbs_driver = {
	.name = "verbs",
	.register_memory = verbs_register_memory,
	.deregister_memory = verbs_deregister_memory,
	.region_open = verbs_region_open,
	.region_sever = verbs_region_sever,
	.region_close = verbs_region_close,
	.connect = verbs_connect,
	.disconnect = verbs_disconnect,
	.post = verbs_post,
	.post_quiet = verbs_post_quiet,
	.poll = verbs_poll,
	.wait = verbs_wait,
	.pause = host_pause,
	.now = host_now,
	.rand = host_rand,
	.close = verbs_close,
};

int
verbs_open_fabric(const struct log *log, struct fab **ret_fab)
{
	struct verbs_fab *f = calloc(1, sizeof(*f));
	if (!f)
		return ERR_NOMEM;
	/*
	 * An application may fork. Kernels since 5.12 copy pinned pages for the child; for older
	 * ones the library marks all that a device reaches. After the first use of a device, which
	 * somebody else may have made, it is too late: then that is their business.
	 */
	(void)ibv_fork_init();
	f->fab.driver = &verbs_driver;
	f->log = log;
	pthread_mutex_init(&f->mutex, NULL);
	*ret_fab = &f->fab;
	return 0;
}

int
verbs_open_on(struct verbs_device *device, const struct log *log, struct fab **ret_fab,
	      char reason[VERBS_REASON_MAX])
{
	struct fab *fab;
	if (verbs_open_fabric(log, &fab))
		return verbs_explain(ENOMEM, "open the fabric", reason);
	fab_of(fab)->source = &device->source;
	int r = take_device(fab_of(fab), device->id, reason);
	if (r) {
		fab_close(fab);
		return r;
	}
	*ret_fab = fab;
	return 0;
}
