/* SPDX-License-Identifier: BSD-2-Clause */
/* The simulated fabric as common/fabric.h wants it: memory, regions, connections, batches. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim_internal.h"

#define PAUSE_NS 1000000 /* the longest fab_pause */

static struct sim_fab *
fab_of(struct fab *fab)
{
	return (struct sim_fab *)fab;
}

static struct sim_region *
region_of(struct fab_region *region)
{
	return (struct sim_region *)region;
}

static struct sim_endpoint *
endpoint_of(struct fab_endpoint *ep)
{
	return (struct sim_endpoint *)ep;
}

static void *
zeroed(size_t n, size_t size)
{
	void *p = calloc(n, size);

	assert(p);
	return p;
}

/* ---- Memory, regions, connections ---- */

static int
register_memory(struct fab *fab, void *local, size_t len, uint32_t *ret_key)
{
	struct sim_fab *f = fab_of(fab);

	*ret_key = model_range(f->sim->model, f->node, local, len, false);
	return 0;
}

/* Nothing that is still under way may use the memory. */
static void
deregister_memory(struct fab *fab, uint32_t key)
{
	struct sim *sim = fab_of(fab)->sim;

	if (model_is_in_use(sim->model, key))
		sim_fail(sim, "memory is deregistered that work requests still use");
	sim->model->ranges[key].len = 0;
}

static int
region_open(struct fab *fab, const struct fab_offer *offer, int64_t deadline_ns,
	    struct fab_region **ret_region)
{
	struct sim *sim = fab_of(fab)->sim;

	(void)deadline_ns;
	for (unsigned i = 0; i < sim->n_servers; i++) {
		const struct server *server = &sim->servers[i];
		struct sim_region *r;

		if (server->is_closed || server->offer.region_id != offer->region_id ||
		    server->offer.epoch != offer->epoch)
			continue;
		r = zeroed(1, sizeof(*r));
		r->region = (struct fab_region){&sim_driver, fab};
		r->server = i;
		r->next = sim->regions;
		sim->regions = r;
		*ret_region = &r->region;
		return 0;
	}
	return ERR_CONN;
}

static void
region_sever(struct fab_region *region)
{
	struct sim_region *r = region_of(region);
	struct sim *sim = fab_of(region->fab)->sim;

	r->is_severed = true;
	for (struct sim_endpoint *ep = sim->endpoints; ep; ep = ep->next) {
		if (ep->ep.region != region || ep->state == SIM_LEFT)
			continue;
		if (ep->state == SIM_UP)
			endpoint_break(ep, SIM_BROKEN);
		ep->n_good = 0;
	}
}

/* Its endpoints live on, and so does what they point to. */
static void
region_close(struct fab_region *region)
{
	region_of(region)->is_closed = true;
}

static int
connect_to(struct fab_region *region, const struct fab_ticket *ticket, uint32_t depth,
	   int64_t deadline_ns, struct fab_endpoint **ret_endpoint)
{
	struct sim_region *r = region_of(region);
	struct sim *sim = fab_of(region->fab)->sim;
	struct sim_endpoint *ep;

	(void)ticket;
	(void)deadline_ns;
	if (r->is_severed || r->is_closed || sim->servers[r->server].is_closed)
		return ERR_CONN;
	ep = zeroed(1, sizeof(*ep));
	ep->ep = (struct fab_endpoint){&sim_driver, region};
	ep->sim = sim;
	ep->depth = depth;
	ep->number = sim->n_endpoints++;
	ep->qp = model_qp(sim->model, NODES_OF_SERVERS + r->server);
	ep->next = sim->endpoints;
	sim->endpoints = ep;
	*ret_endpoint = &ep->ep;
	return 0;
}

void
endpoint_break(struct sim_endpoint *ep, enum sim_connection_state state)
{
	struct model *m = ep->sim->model;
	const struct model_qp *qp = &m->qps[ep->qp];

	if (ep->state == SIM_UP) {
		ep->n_good = 0;
		while (ep->n_good < qp->wbl.n && qp->wbl.v[ep->n_good].completion)
			ep->n_good++;
		model_break(m, ep->qp, sched_below(ep->sim->sched, qp->n_pipe + 1));
		if (qp->fault)
			sim_fail(ep->sim, "the source of a WRITE changed before it was read");
	}
	ep->state = state;
}

static void
disconnect(struct fab_endpoint *endpoint)
{
	struct sim_endpoint *ep = endpoint_of(endpoint);
	bool had_ended = ep->state == SIM_ENDED;

	if (ep->is_given_up)
		sim_fail(ep->sim, "a connection is given up twice");
	endpoint_break(ep, had_ended ? SIM_ENDED : SIM_LEFT);
	model_drop_local(ep->sim->model, ep->qp);
	ep->n_batches = 0;
	ep->n_loud = 0;
	ep->is_given_up = true;
}

/* ---- Posting ---- */

static unsigned
grain_of(struct sim *sim, uint64_t len)
{
	unsigned grain = sim->config.grain;

	if (!grain)
		grain = 8u << sim_random(&sim->random) % 4;
	/* A long message in small pieces would be nothing but steps. */
	return len > 16 * grain ? MODEL_PIECE_MAX : grain;
}

static bool
is_registered(const struct sim *sim, const struct fab_piece *piece)
{
	const unsigned char *local = piece->local;
	const struct model_range *range;

	if (!piece->len)
		return true;
	if (piece->key >= sim->model->n_ranges)
		return false;
	range = &sim->model->ranges[piece->key];
	return local >= range->base && piece->len <= range->len &&
	       (size_t)(local - range->base) <= range->len - piece->len;
}

static uint64_t
local_addr(const struct sim *sim, const struct fab_piece *piece, uint64_t offset)
{
	const unsigned char *base = sim->model->ranges[piece->key].base;

	return model_addr(piece->key,
			  (uint64_t)((const unsigned char *)piece->local - base) + offset);
}

/* Cuts one piece of a batch's operation; returns how many pieces of the model it becomes. */
static unsigned
cut(struct sim *sim, const struct fab_piece *from, uint64_t remote, unsigned grain,
    struct model_piece *to)
{
	unsigned n = 0;

	for (uint32_t at = 0; at < from->len; n++) {
		uint32_t len = grain - (uint32_t)((remote + at) % grain);

		if (len > from->len - at)
			len = from->len - at;
		if (to) {
			to[n].remote = remote + at;
			to[n].local = local_addr(sim, from, at);
			to[n].len = (uint16_t)len;
			memcpy(to[n].data, (const unsigned char *)from->local + at, len);
		}
		at += len;
	}
	return n;
}

/* What a client must never post; NULL: it may. */
static const char *
complaint(const struct sim *sim, const struct server *server, const struct fab_op *op)
{
	bool is_atomic = op->kind == FAB_CAS || op->kind == FAB_FAA;
	uint64_t len = is_atomic ? 8 : (uint64_t)op->piece[0].len + op->piece[1].len;

	if (op->roff > server->len || len > server->len - op->roff)
		return "an operation outside of the region";
	if (is_atomic && (op->roff % 8 || op->piece[0].len != 8 || op->piece[1].len))
		return "an atomic that is not 8 aligned bytes";
	if (!is_registered(sim, &op->piece[0]) || !is_registered(sim, &op->piece[1]))
		return "a piece that is not registered memory";
	return NULL;
}

static struct model_wr *
request(struct sim *sim, const struct server *server, const struct fab_op *op)
{
	static const enum model_kind kinds[] = {
		[FAB_READ] = MODEL_GET,
		[FAB_WRITE] = MODEL_PUT,
		[FAB_CAS] = MODEL_CAS,
		[FAB_FAA] = MODEL_FAA,
	};
	uint64_t remote = model_addr(server->range, op->roff);
	uint64_t len = (uint64_t)op->piece[0].len + op->piece[1].len;
	unsigned grain = op->kind <= FAB_WRITE ? grain_of(sim, len) : 8;
	unsigned n = cut(sim, &op->piece[0], remote, grain, NULL);
	struct model_wr *wr;

	n += cut(sim, &op->piece[1], remote + op->piece[0].len, grain, NULL);
	wr = model_wr(kinds[op->kind], n);
	wr->expect = op->expect;
	wr->swap = op->swap;
	wr->guarded = op->kind == FAB_WRITE;
	n = cut(sim, &op->piece[0], remote, grain, wr->piece);
	cut(sim, &op->piece[1], remote + op->piece[0].len, grain, wr->piece + n);
	return wr;
}

static struct batch *
new_batch(struct sim_endpoint *ep)
{
	struct batch *batch;

	if (ep->first + ep->n_batches == ep->cap) {
		/* Back to the beginning; twice the room if more than half is in use. */
		if (ep->first)
			memmove(ep->batches, ep->batches + ep->first,
				ep->n_batches * sizeof(*batch));
		ep->first = 0;
		if (ep->n_batches * 2 >= ep->cap) {
			ep->cap = ep->cap ? ep->cap * 2 : 16;
			ep->batches = realloc(ep->batches, ep->cap * sizeof(*batch));
			assert(ep->batches);
		}
	}
	batch = &ep->batches[ep->first + ep->n_batches++];
	memset(batch, 0, offsetof(struct batch, source));
	return batch;
}

static uint64_t
hash_of(const struct fab_piece *piece)
{
	return model_hash(piece->local, piece->len, 0).a;
}

/* Poisons where something will land, remembers what must not change. */
static void
prepare_local(struct sim *sim, struct batch *batch, const struct fab_op *op)
{
	for (unsigned i = 0; i < 2; i++) {
		const struct fab_piece *piece = &op->piece[i];

		if (!piece->len)
			continue;
		if (op->kind != FAB_WRITE)
			memset(piece->local, SIM_POISON, piece->len);
		else if (!profile_reads_source_at_once(sim->config.model.profile))
			batch->source[batch->n_sources++] =
				(struct source){piece->local, piece->len, hash_of(piece)};
	}
}

static int64_t
when_ready(struct sim *sim)
{
	if (!sim->config.late_permille ||
	    sched_below(sim->sched, 1000) < 1000 - sim->config.late_permille)
		return 0;
	return sim->now_ns + (int64_t)(sim_random(&sim->random) % (uint64_t)sim->config.late_ns);
}

static void
post_one(struct sim_endpoint *ep, struct batch *batch, const struct fab_op *op, bool is_last)
{
	struct sim *sim = ep->sim;
	const struct server *server = &sim->servers[region_of(ep->ep.region)->server];
	const char *what = complaint(sim, server, op);
	struct model_wr *wr;

	if (what) {
		sim_fail(sim, "%s is posted, at offset %llu", what, (unsigned long long)op->roff);
		return;
	}
	wr = request(sim, server, op);
	wr->signalled = is_last && !batch->is_quiet;
	prepare_local(sim, batch, op);
	model_post(sim->model, ep->qp, wr);
}

static int
post_any(struct fab_endpoint *endpoint, const struct fab_op *ops, unsigned n, void *cookie,
	 bool is_quiet)
{
	struct sim_endpoint *ep = endpoint_of(endpoint);
	struct batch *batch;

	if (ep->is_given_up)
		sim_fail(ep->sim, "a batch is posted on a connection that was given up");
	if (n < 1 || n > FAB_BATCH_MAX)
		sim_fail(ep->sim, "a batch of %u operations is posted", n);
	if (is_quiet ? ep->n_batches >= ep->depth * FAB_BATCH_MAX : ep->n_loud >= ep->depth)
		return ERR_AGAIN;
	if (is_quiet && ep->state != SIM_UP)
		return 0;
	batch = new_batch(ep);
	batch->cookie = cookie;
	batch->is_quiet = is_quiet;
	batch->ready_ns = is_quiet ? 0 : when_ready(ep->sim);
	ep->n_loud += !is_quiet;
	for (unsigned i = 0; i < n && ep->state == SIM_UP; i++)
		post_one(ep, batch, &ops[i], i == n - 1);
	return 0;
}

static int
post(struct fab_endpoint *ep, const struct fab_op *ops, unsigned n, void *cookie)
{
	return post_any(ep, ops, n, cookie, false);
}

static int
post_quiet(struct fab_endpoint *ep, const struct fab_op *ops, unsigned n)
{
	return post_any(ep, ops, n, NULL, true);
}

/* ---- Completions ---- */

static const struct batch *
oldest_loud(const struct sim_endpoint *ep)
{
	for (unsigned i = 0; i < ep->n_batches; i++) {
		if (!ep->batches[ep->first + i].is_quiet)
			return &ep->batches[ep->first + i];
	}
	return NULL;
}

bool
endpoint_is_pollable(const struct sim_endpoint *ep)
{
	const struct batch *batch = oldest_loud(ep);

	if (!batch || ep->is_given_up)
		return false;
	return ep->state != SIM_UP ||
	       (batch->ready_ns <= ep->sim->now_ns && model_pollable(ep->sim->model, ep->qp));
}

int64_t
endpoint_ready_ns(const struct sim_endpoint *ep)
{
	const struct batch *batch = oldest_loud(ep);

	return batch && !ep->is_given_up && model_pollable(ep->sim->model, ep->qp) ? batch->ready_ns
										   : INT64_MAX;
}

/* The batch is the caller's again, and with it the quiet ones posted before it. */
static void
retire(struct sim_endpoint *ep, struct fab_done *done, int status)
{
	bool is_quiet = true;

	while (is_quiet) {
		const struct batch *batch = &ep->batches[ep->first];

		for (unsigned i = 0; i < batch->n_sources; i++) {
			const struct source *source = &batch->source[i];

			if (model_hash(source->local, source->len, 0).a != source->hash)
				sim_fail(ep->sim,
					 "the source of a WRITE changed before its completion");
		}
		is_quiet = batch->is_quiet;
		done->cookie = batch->cookie;
		ep->first++;
		ep->n_batches--;
	}
	ep->n_loud--;
	done->status = status;
}

/* A good completion, or once they are through a failed one. */
static int
take_completion(struct sim_endpoint *ep)
{
	struct model *m = ep->sim->model;

	if (ep->state == SIM_UP || ep->n_good) {
		ep->n_good -= ep->state != SIM_UP;
		model_poll(m, ep->qp);
		return 0;
	}
	model_drop_local(m, ep->qp);
	return ERR_CONN;
}

/* Who polls in vain gets another turn a while later, or when nothing else can move. */
static int64_t
idle_ns(const struct sim *sim)
{
	return sim->config.step_ns ? 64 * sim->config.step_ns : 1000;
}

static unsigned
poll_some(struct fab_endpoint *endpoint, struct fab_done *done, unsigned max)
{
	struct sim_endpoint *ep = endpoint_of(endpoint);
	struct sim *sim = ep->sim;
	struct coroutine *co = sim->current;
	unsigned n = 0;

	if (ep->is_given_up)
		sim_fail(sim, "a connection is polled that was given up");
	if (!co || !co->is_fresh)
		sim_give_way(sim, CO_WAITING, ep,
			     ep->n_loud ? sim->now_ns + idle_ns(sim) : sim->now_ns);
	for (; n < max && endpoint_is_pollable(ep); n++) {
		retire(ep, &done[n], take_completion(ep));
		sim_seen(sim, model_mix(n + 1, (uint64_t)(int64_t)done[n].status));
	}
	if (n)
		sim_seen(sim, sim->model->qps[ep->qp].landed);
	if (co)
		co->is_fresh = false;
	return n;
}

static void
wait_for(struct fab_endpoint *endpoint, int64_t until_ns)
{
	struct sim_endpoint *ep = endpoint_of(endpoint);

	sim_give_way(ep->sim, CO_WAITING, ep, until_ns);
}

/* Who waits for something that no endpoint tells of looks again now and then. */
static void
pause_until(struct fab *fab, int64_t until_ns)
{
	struct sim *sim = fab_of(fab)->sim;
	int64_t latest_ns = sim->now_ns + PAUSE_NS;

	sim_give_way(sim, CO_WAITING, NULL, until_ns < latest_ns ? until_ns : latest_ns);
}

/* ---- Clock and randomness ---- */

static int64_t
now(struct fab *fab)
{
	struct sim *sim = fab_of(fab)->sim;

	sim_seen(sim, (uint64_t)sim->now_ns);
	return sim->now_ns;
}

static uint64_t
draw(struct fab *fab)
{
	struct sim_fab *f = fab_of(fab);
	uint64_t v = sim_random(&f->random);

	sim_seen(f->sim, v);
	return v;
}

/* The simulation keeps it to its end. */
static void
close_fab(struct fab *fab)
{
	struct sim *sim = fab_of(fab)->sim;

	for (struct sim_endpoint *ep = sim->endpoints; ep; ep = ep->next) {
		if (!ep->is_given_up && ep->ep.region->fab == fab)
			sim_fail(sim, "a fabric is closed before its connections");
	}
}

const struct fab_driver sim_driver = {
	.name = "sim",
	.register_memory = register_memory,
	.deregister_memory = deregister_memory,
	.region_open = region_open,
	.region_sever = region_sever,
	.region_close = region_close,
	.connect = connect_to,
	.disconnect = disconnect,
	.post = post,
	.post_quiet = post_quiet,
	.poll = poll_some,
	.wait = wait_for,
	.pause = pause_until,
	.now = now,
	.rand = draw,
	.close = close_fab,
};
