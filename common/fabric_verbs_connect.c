/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Endpoints of the verbs fabric are made and unmade here: queues, handshake, and a first look at
 * the other side. What they do in between is in fabric_verbs.c.
 */
#include "common/fabric_verbs.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fabric_verbs_internal.h"

#define DEPTH_MAX 8192u
#define SEND_MAX 8192u
#define INLINE_WANTED 256u /* bytes */

/* ---- Coming and going ---- */

static uint32_t
power_of_two(uint32_t least)
{
	uint32_t size = 1;
	while (size < least)
		size *= 2;
	return size;
}

/* Room in the chain: depth batches, and the 2 * depth quiet ones between two completions. */
static uint32_t
chain_room(uint32_t depth)
{
	return power_of_two(3 * depth * VERBS_BATCH_REQUESTS_MAX);
}

static int
endpoint_new(struct verbs_region *region, uint32_t depth, struct verbs_endpoint **ret_endpoint)
{
	uint32_t n_batches = power_of_two(depth), n_requests = chain_room(depth);
	struct verbs_endpoint *ep = calloc(1, sizeof(*ep));
	if (!ep)
		return ERR_NOMEM;
	ep->batches = calloc(n_batches, sizeof(*ep->batches));
	ep->requests = calloc(n_requests, sizeof(*ep->requests));
	if (!ep->batches || !ep->requests) {
		free(ep->batches);
		free(ep->requests);
		free(ep);
		return ERR_NOMEM;
	}
	ep->ep = (struct fab_endpoint){.driver = region->region.driver, .region = &region->region};
	ep->severed = &region->severed;
	ep->depth = depth;
	ep->batch_mask = n_batches - 1;
	ep->request_mask = n_requests - 1;
	atomic_fetch_add_explicit(&region->refs, 1, memory_order_relaxed);
	*ret_endpoint = ep;
	return 0;
}

void
verbs_disconnect(struct fab_endpoint *endpoint)
{
	struct verbs_endpoint *ep = (struct verbs_endpoint *)endpoint;
	struct verbs_region *region = (struct verbs_region *)endpoint->region;
	if (ep->id)
		rdma_disconnect(ep->id); /* fails if there is nobody any more: as well */
	cm_id_destroy(ep->id);
	if (ep->cq)
		ibv_destroy_cq(ep->cq);
	if (ep->parent)
		ibv_dealloc_pd(ep->parent);
	if (ep->td)
		ibv_dealloc_td(ep->td);
	cm_channel_destroy(ep->channel);
	free(ep->swaps);
	free(ep->requests);
	free(ep->batches);
	free(ep);
	verbs_region_release(region);
}

/* ---- Connecting ---- */

/* Queues that only one thread uses, where the device has them: their locks are left out. */
static void
create_thread_domain(struct verbs_endpoint *ep, const struct verbs_fab *f)
{
	struct ibv_td_init_attr td_attr = {0};
	ep->td = ibv_alloc_td(f->context, &td_attr);
	if (!ep->td)
		return;
	struct ibv_parent_domain_init_attr attr = {.pd = f->pd, .td = ep->td};
	ep->parent = ibv_alloc_parent_domain(f->context, &attr);
}

/*
 * A completion queue with room for all that can be in the send queue, because after an error every
 * work request reports that it was flushed, also those that are not signalled.
 */
static int
create_cq(struct verbs_endpoint *ep, const struct verbs_fab *f, uint32_t n_cqe)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = n_cqe,
		.parent_domain = ep->parent,
		.comp_mask =
			IBV_CQ_INIT_ATTR_MASK_FLAGS | (ep->parent ? IBV_CQ_INIT_ATTR_MASK_PD : 0),
		.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(f->context, &attr);
	ep->cq = cq ? ibv_cq_ex_to_cq(cq) : ibv_create_cq(f->context, (int)n_cqe, NULL, NULL, 0);
	return ep->cq ? 0 : errno;
}

static int
create_qp(struct verbs_endpoint *ep, const struct verbs_fab *f, uint32_t max_inline)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = ep->cq,
		.recv_cq = ep->cq,
		.cap =
			{
				.max_send_wr = ep->n_send,
				.max_recv_wr = 1, /* nothing is ever received; some refuse 0 */
				.max_send_sge = 2,
				.max_recv_sge = 1,
				.max_inline_data = max_inline,
			},
		.qp_type = IBV_QPT_RC,
	};
	if (rdma_create_qp(ep->id, ep->parent ? ep->parent : f->pd, &attr))
		return errno;
	/* More than was asked for may be there, but copying costs the CPU. */
	ep->max_inline =
		attr.cap.max_inline_data < INLINE_WANTED ? attr.cap.max_inline_data : INLINE_WANTED;
	return 0;
}

/* With as much inline data as the device grants; some cannot have any. */
static int
create_inline_qp(struct verbs_endpoint *ep, const struct verbs_fab *f)
{
	int error = create_qp(ep, f, INLINE_WANTED);
	for (uint32_t n = INLINE_WANTED / 4; error == EINVAL || error == ENOMEM; n /= 4) {
		error = create_qp(ep, f, n);
		if (n == 0)
			break;
	}
	return error;
}

/*
 * Room for six work requests a batch: INSERT has five. More wait in the chain. A device that has
 * not so much to give gets shorter queues.
 */
static int
create_queues(struct verbs_endpoint *ep, const struct verbs_fab *f, char reason[VERBS_REASON_MAX])
{
	uint32_t most = f->limits.n_send < f->limits.n_cqe ? f->limits.n_send : f->limits.n_cqe;
	uint32_t n_send = 6 * ep->depth;
	n_send = n_send < VERBS_SEND_MIN ? VERBS_SEND_MIN : n_send > SEND_MAX ? SEND_MAX : n_send;
	for (ep->n_send = n_send < most ? n_send : most;;) {
		const char *what = "create a completion queue";
		int error = create_cq(ep, f, ep->n_send);
		if (!error) {
			what = "create a queue pair";
			error = create_inline_qp(ep, f);
		}
		if (!error)
			return 0;
		if (ep->cq)
			ibv_destroy_cq(ep->cq);
		ep->cq = NULL;
		if ((error != EINVAL && error != ENOMEM) || ep->n_send == VERBS_SEND_MIN)
			return verbs_explain(error, what, reason);
		ep->n_send = ep->n_send / 2 > VERBS_SEND_MIN ? ep->n_send / 2 : VERBS_SEND_MIN;
	}
}

/* [RANGE]: the acceptance comes from another machine. */
int
verbs_take_accept(struct verbs_endpoint *ep, const struct wire_cm_accept *accept,
		  char reason[VERBS_REASON_MAX])
{
	const struct fab_offer *offer = &((const struct verbs_region *)ep->ep.region)->offer;
	const char *wrong = NULL;
	uint64_t n = accept->n_segments, len = accept->segment_len;
	if (n == 0 || n > WIRE_SEGMENTS_MAX)
		wrong = "an impossible number of segments";
	else if (len == 0 || (n > 1 && len % LAYOUT_PAGE != 0) ||
		 (n > 1 && (n - 1) > offer->len / len) || offer->len <= (n - 1) * len ||
		 offer->len - (n - 1) * len > len)
		wrong = "segments that are not as long as the region";
	else if (accept->base > UINT64_MAX - offer->len)
		wrong = "an impossible address";
	else if (accept->base != offer->base || accept->r_key[0] != offer->r_key)
		wrong = "another region than its hello offered";
	if (wrong) {
		snprintf(reason, VERBS_REASON_MAX, "the server's RDMA answer has %s", wrong);
		return ERR_CORRUPT;
	}
	ep->base = accept->base;
	ep->len = offer->len;
	ep->n_segments = accept->n_segments;
	ep->segment_len = len;
	memcpy(ep->r_key, accept->r_key, sizeof(ep->r_key));
	return 0;
}

static int
shake_hands(struct verbs_endpoint *ep, const struct fab_ticket *ticket, const struct cm_wait *wait,
	    char reason[VERBS_REASON_MAX])
{
	const struct verbs_region *region = (const struct verbs_region *)ep->ep.region;
	struct wire_cm_request request = {.magic = WIRE_CM_MAGIC, .version = WIRE_VERSION};
	struct wire_cm_accept accept;
	uint8_t read_depth;
	memcpy(request.token, region->offer.token, sizeof(request.token));
	if (ticket) {
		request.session_slot = ticket->session_slot;
		request.serial = ticket->serial;
	}
	int r = cm_connect(ep->id, region->address, &request, verbs_fab_of(ep)->limits.read_depth,
			   wait, &accept, &read_depth, reason);
	return r ? r : verbs_take_accept(ep, &accept, reason);
}

/* Makes the endpoint's objects, and connects. */
static int
endpoint_connect(struct verbs_endpoint *ep, const struct fab_ticket *ticket,
		 const struct cm_wait *wait, char reason[VERBS_REASON_MAX])
{
	struct verbs_fab *f = verbs_fab_of(ep);
	const struct verbs_region *region = (const struct verbs_region *)ep->ep.region;
	const char *address = verbs_address_of(ep);
	int r = cm_channel_create(&ep->channel, reason);
	if (!r)
		r = cm_id_create(ep->channel, NULL, &ep->id, reason);
	if (!r)
		r = cm_resolve(ep->id, f->source, address, wait, reason);
	if (!r)
		r = verbs_check_device(f, ep->id, address, reason);
	if (!r)
		r = cm_route(ep->id, address, wait, reason);
	if (r)
		return r;
	ep->message_len = f->limits.message_len;
	create_thread_domain(ep, f);
	r = create_queues(ep, f, reason);
	if (!r)
		r = shake_hands(ep, ticket, wait, reason);
	if (!r && !region->offer.only_reads) /* who has no atomics has no replies to turn round */
		r = verbs_learn_order(&ep->ep, 0, wait->deadline_ns, reason);
	return r;
}

int
verbs_connect_with(struct fab_region *region, const struct fab_ticket *ticket, uint32_t depth,
		   const struct cm_wait *wait, struct fab_endpoint **ret_endpoint,
		   char reason[VERBS_REASON_MAX])
{
	struct verbs_region *r = (struct verbs_region *)region;
	struct verbs_endpoint *ep;
	if (atomic_load_explicit(&r->severed, memory_order_acquire)) {
		snprintf(reason, VERBS_REASON_MAX,
			 "the server is gone, and its region with it: ask the "
			 "server for a new one once it is back");
		return ERR_CONN;
	}
	if (depth == 0 || depth > DEPTH_MAX) {
		snprintf(reason, VERBS_REASON_MAX,
			 "%u batches in flight are asked for: it may be 1 to %u", depth, DEPTH_MAX);
		return ERR_INVALID;
	}
	int error = endpoint_new(r, depth, &ep);
	if (error)
		return verbs_explain(ENOMEM, "create an endpoint", reason);
	error = endpoint_connect(ep, ticket, wait, reason);
	if (error) {
		verbs_disconnect(&ep->ep);
		return error;
	}
	*ret_endpoint = &ep->ep;
	return 0;
}

/* ---- The byte order of replies ---- */

/* READs the word, and lets a CAS fail on it that could not change it either. */
static int
sample_word(struct fab_endpoint *ep, uint64_t roff, uint64_t *page, uint32_t key,
	    int64_t deadline_ns)
{
	struct fab_op read = {.kind = FAB_READ, .roff = roff, .piece = {{page, 8, key}}};
	int r = verbs_run(ep, &read, 1, deadline_ns);
	if (r)
		return r;
	struct fab_op cas = {.kind = FAB_CAS, .roff = roff, .piece = {{page + 1, 8, key}}};
	cas.expect = cas.swap = ~page[0];
	return verbs_run(ep, &cas, 1, deadline_ns);
}

static int
judge_order(struct verbs_endpoint *ep, uint64_t word, uint64_t reply, char reason[VERBS_REASON_MAX])
{
	if (reply == word)
		return 0;
	if (reply != __builtin_bswap64(word) || ep->swaps) {
		snprintf(reason, VERBS_REASON_MAX,
			 "the RDMA device's atomics do not work: a word reads %#llx, but a "
			 "compare-and-swap found %#llx there",
			 (unsigned long long)word, (unsigned long long)reply);
		return ERR_CORRUPT;
	}
	ep->swaps = calloc((size_t)ep->request_mask + 1, sizeof(*ep->swaps));
	return ep->swaps ? 0 : verbs_explain(ENOMEM, "create an endpoint", reason);
}

int
verbs_learn_order(struct fab_endpoint *endpoint, uint64_t roff, int64_t deadline_ns,
		  char reason[VERBS_REASON_MAX])
{
	struct verbs_endpoint *ep = (struct verbs_endpoint *)endpoint;
	struct fab *fab = endpoint->region->fab;
	size_t len = (size_t)sysconf(_SC_PAGESIZE);
	uint32_t key;
	uint64_t *page =
		mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return verbs_explain(errno, "map a page", reason);
	int r = fab_register(fab, page, len, &key);
	if (r) {
		snprintf(reason, VERBS_REASON_MAX, "cannot register a page with the RDMA device");
		goto out;
	}
	r = sample_word(endpoint, roff, page, key, deadline_ns);
	if (r)
		snprintf(reason, VERBS_REASON_MAX,
			 "connected by RDMA, but the first READ and compare-and-swap %s",
			 r == ERR_TIMEOUT ? "did not end in time" : "failed");
	else
		r = judge_order(ep, page[0], page[1], reason);
	if (r == ERR_TIMEOUT)
		verbs_endpoint_end(ep); /* [LOCAL]: before the page goes */
	fab_deregister(fab, key);
out:
	munmap(page, len);
	return r;
}
