/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every object wraps one of the inner fabric. An endpoint keeps its outstanding batches in a ring
 * of its own, so that it decides when, and with which status, a completion of the inner one is
 * shown:
 *
 *   fab_post -> entry in the ring, inner post -> inner completion: landed -> delay over: delivered
 *
 * The plan of what to fail, and the table of registrations, are under one lock: tests are not in a
 * hurry, and several threads may share the plan.
 */
#include "tests/fabric/fabric_fault.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/err.h"

#define REGISTRATIONS_MAX 1024u

struct registration {
	unsigned char *local; /* NULL: free */
	size_t len;
	uint32_t key;
};

struct plan {
	uint64_t n_calls;
	uint64_t at; /* fails when n_calls gets there; 0: never */
	int code;
};

struct fault_fab {
	struct fab fab;
	struct fab *inner;
	pthread_mutex_t lock; /* guards all that follows */
	struct plan plan[FAULT_SITES];
	uint64_t n_batches;
	uint64_t cut_at; /* n_batches; 0: never */
	unsigned cut_n_ops;
	unsigned delay_polls;
	uint64_t n_unregistered;
	struct registration registration[REGISTRATIONS_MAX];
};

struct fault_region {
	struct fab_region region;
	struct fab_region *inner; /* NULL once closed */
	atomic_uint refs;         /* the opener and each endpoint */
	atomic_bool severed;
};

struct entry {
	void *cookie;
	int status;
	bool landed;
	uint64_t due; /* n_polls of the endpoint from which on it may be delivered */
};

struct fault_endpoint {
	struct fab_endpoint ep;
	struct fab_endpoint *inner;
	bool broken;
	uint64_t n_polls;
	uint32_t depth;
	uint64_t n_posted, n_landed, n_polled; /* n_polled <= n_landed <= n_posted */
	struct entry ring[];
};

static struct fault_fab *
fault_of(struct fab *fab)
{
	return (struct fault_fab *)fab;
}

/* ---- Control ---- */

void
fault_fail(struct fab *fab, enum fault_site site, uint64_t nth, int code)
{
	struct fault_fab *f = fault_of(fab);
	pthread_mutex_lock(&f->lock);
	f->plan[site].at = nth ? f->plan[site].n_calls + nth : 0;
	f->plan[site].code = code;
	pthread_mutex_unlock(&f->lock);
}

void
fault_cut(struct fab *fab, uint64_t nth, unsigned n_ops)
{
	struct fault_fab *f = fault_of(fab);
	pthread_mutex_lock(&f->lock);
	f->cut_at = nth ? f->n_batches + nth : 0;
	f->cut_n_ops = n_ops;
	pthread_mutex_unlock(&f->lock);
}

void
fault_delay(struct fab *fab, unsigned n_polls)
{
	struct fault_fab *f = fault_of(fab);
	pthread_mutex_lock(&f->lock);
	f->delay_polls = n_polls;
	pthread_mutex_unlock(&f->lock);
}

static uint64_t
read_counter(struct fab *fab, const uint64_t *counter)
{
	struct fault_fab *f = fault_of(fab);
	pthread_mutex_lock(&f->lock);
	uint64_t value = *counter;
	pthread_mutex_unlock(&f->lock);
	return value;
}

uint64_t
fault_n_batches(struct fab *fab)
{
	return read_counter(fab, &fault_of(fab)->n_batches);
}

uint64_t
fault_n_calls(struct fab *fab, enum fault_site site)
{
	return read_counter(fab, &fault_of(fab)->plan[site].n_calls);
}

uint64_t
fault_n_unregistered(struct fab *fab)
{
	return read_counter(fab, &fault_of(fab)->n_unregistered);
}

/* Counts a call; returns the failure planned for it, or 0. */
static int
count_call(struct fab *fab, enum fault_site site)
{
	struct fault_fab *f = fault_of(fab);
	pthread_mutex_lock(&f->lock);
	struct plan *plan = &f->plan[site];
	int r = ++plan->n_calls == plan->at ? plan->code : 0;
	pthread_mutex_unlock(&f->lock);
	return r;
}

/* ---- Registrations ---- */

/* The entry of a key; key 0 with local NULL: a free one. Called with the lock held. */
static struct registration *
find_registration(struct fault_fab *f, bool used, uint32_t key)
{
	for (unsigned i = 0; i < REGISTRATIONS_MAX; i++) {
		struct registration *r = &f->registration[i];
		if ((r->local != NULL) == used && (!used || r->key == key))
			return r;
	}
	return NULL;
}

static int
fault_register(struct fab *fab, void *local, size_t len, uint32_t *ret_key)
{
	struct fault_fab *f = fault_of(fab);
	uint32_t key;
	int r = count_call(fab, FAULT_REGISTER);
	if (!r)
		r = fab_register(f->inner, local, len, &key);
	if (r)
		return r;
	pthread_mutex_lock(&f->lock);
	struct registration *free_entry = find_registration(f, false, 0);
	if (free_entry)
		*free_entry = (struct registration){local, len, key};
	pthread_mutex_unlock(&f->lock);
	if (!free_entry) {
		fab_deregister(f->inner, key);
		return ERR_NOMEM;
	}
	*ret_key = key;
	return 0;
}

static void
fault_deregister(struct fab *fab, uint32_t key)
{
	struct fault_fab *f = fault_of(fab);
	pthread_mutex_lock(&f->lock);
	struct registration *r = find_registration(f, true, key);
	if (r)
		r->local = NULL;
	pthread_mutex_unlock(&f->lock);
	fab_deregister(f->inner, key);
}

/* Called with the lock held. */
static bool
is_registered(struct fault_fab *f, const struct fab_piece *piece)
{
	if (piece->len == 0)
		return true;
	const struct registration *r = find_registration(f, true, piece->key);
	if (!r || !piece->local)
		return false;
	uintptr_t at = (uintptr_t)piece->local, start = (uintptr_t)r->local;
	return at >= start && at - start <= r->len && piece->len <= r->len - (at - start);
}

static bool
are_registered(struct fault_fab *f, const struct fab_op *ops, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (!is_registered(f, &ops[i].piece[0]) || !is_registered(f, &ops[i].piece[1]))
			return false;
	return true;
}

/* ---- Regions ---- */

static void
region_release(struct fault_region *region)
{
	if (atomic_fetch_sub(&region->refs, 1) == 1)
		free(region);
}

static int
fault_region_open(struct fab *fab, const struct fab_offer *offer, int64_t deadline_ns,
		  struct fab_region **ret_region)
{
	int r = count_call(fab, FAULT_REGION_OPEN);
	if (r)
		return r;
	struct fault_region *region = calloc(1, sizeof(*region));
	if (!region)
		return ERR_NOMEM;
	r = fab_region_open(fault_of(fab)->inner, offer, deadline_ns, &region->inner);
	if (r) {
		free(region);
		return r;
	}
	region->region = (struct fab_region){.driver = fab->driver, .fab = fab};
	atomic_init(&region->refs, 1);
	*ret_region = &region->region;
	return 0;
}

static void
fault_region_sever(struct fab_region *region)
{
	struct fault_region *r = (struct fault_region *)region;
	atomic_store(&r->severed, true);
	fab_region_sever(r->inner);
}

static void
fault_region_close(struct fab_region *region)
{
	struct fault_region *r = (struct fault_region *)region;
	fab_region_close(r->inner);
	r->inner = NULL;
	region_release(r);
}

/* ---- Endpoints ---- */

static int
fault_connect(struct fab_region *region, const struct fab_ticket *ticket, uint32_t depth,
	      int64_t deadline_ns, struct fab_endpoint **ret_endpoint)
{
	struct fault_region *fr = (struct fault_region *)region;
	int r = count_call(region->fab, FAULT_CONNECT);
	if (r)
		return r;
	struct fault_endpoint *ep = calloc(1, sizeof(*ep) + depth * sizeof(ep->ring[0]));
	if (!ep)
		return ERR_NOMEM;
	r = fab_connect(fr->inner, ticket, depth, deadline_ns, &ep->inner);
	if (r) {
		free(ep);
		return r;
	}
	ep->ep = (struct fab_endpoint){.driver = region->driver, .region = region};
	ep->depth = depth;
	atomic_fetch_add(&fr->refs, 1);
	*ret_endpoint = &ep->ep;
	return 0;
}

static void
fault_disconnect(struct fab_endpoint *endpoint)
{
	struct fault_endpoint *ep = (struct fault_endpoint *)endpoint;
	struct fault_region *region = (struct fault_region *)endpoint->region;
	fab_disconnect(ep->inner);
	free(ep);
	region_release(region);
}

/* What shall become of a batch. */
struct verdict {
	unsigned n_ops; /* to execute */
	int status;     /* 0: the inner completion's */
	unsigned delay_polls;
};

static struct verdict
judge(struct fault_endpoint *ep, const struct fab_op *ops, unsigned n)
{
	struct fault_fab *f = fault_of(ep->ep.region->fab);
	struct verdict v = {.n_ops = n};
	pthread_mutex_lock(&f->lock);
	v.delay_polls = f->delay_polls;
	bool cut = ++f->n_batches == f->cut_at;
	if (ep->broken) {
		v = (struct verdict){.status = ERR_CONN};
	} else if (!are_registered(f, ops, n)) {
		f->n_unregistered++;
		v = (struct verdict){.status = ERR_INVALID};
	} else if (cut) {
		v = (struct verdict){f->cut_n_ops < n ? f->cut_n_ops : n, ERR_CONN, 0};
	}
	pthread_mutex_unlock(&f->lock);
	return v;
}

static int
fault_post(struct fab_endpoint *endpoint, const struct fab_op *ops, unsigned n, void *cookie)
{
	struct fault_endpoint *ep = (struct fault_endpoint *)endpoint;
	if (n < 1 || n > FAB_BATCH_MAX)
		return ERR_INVALID;
	if (ep->n_posted - ep->n_polled == ep->depth)
		return ERR_AGAIN;
	struct verdict v = judge(ep, ops, n);
	if (v.n_ops > 0) {
		/* There is room: the inner endpoint has the same depth, and no more out. */
		int r = fab_post(ep->inner, ops, v.n_ops, NULL);
		if (r)
			return r;
	}
	struct entry *entry = &ep->ring[ep->n_posted++ % ep->depth];
	*entry = (struct entry){cookie, v.status, v.n_ops == 0, ep->n_polls + v.delay_polls};
	ep->broken |= v.status != 0;
	return 0;
}

static int
fault_post_quiet(struct fab_endpoint *endpoint, const struct fab_op *ops, unsigned n)
{
	struct fault_endpoint *ep = (struct fault_endpoint *)endpoint;
	if (n < 1 || n > FAB_BATCH_MAX)
		return ERR_INVALID;
	struct verdict v = judge(ep, ops, n);
	ep->broken |= v.status != 0;
	return v.n_ops > 0 ? fab_post_quiet(ep->inner, ops, v.n_ops) : 0;
}

/* Takes what the inner endpoint has completed. Batches of which nothing was posted have landed. */
static void
land(struct fault_endpoint *ep)
{
	for (; ep->n_landed < ep->n_posted; ep->n_landed++) {
		struct entry *entry = &ep->ring[ep->n_landed % ep->depth];
		struct fab_done done;
		if (!entry->landed) {
			if (fab_poll(ep->inner, &done, 1) == 0)
				return;
			entry->landed = true;
			if (entry->status == 0)
				entry->status = done.status;
		}
	}
}

/*
 * A break concerns what is outstanding then, and later batches: all but the batch that has an error
 * of its own report ERR_CONN.
 */
static unsigned
fault_poll(struct fab_endpoint *endpoint, struct fab_done *done, unsigned max)
{
	struct fault_endpoint *ep = (struct fault_endpoint *)endpoint;
	struct fault_region *region = (struct fault_region *)endpoint->region;
	unsigned n = 0;
	land(ep);
	ep->n_polls++;
	bool cut = ep->broken || atomic_load(&region->severed);
	for (; n < max && ep->n_polled < ep->n_landed; n++, ep->n_polled++) {
		const struct entry *entry = &ep->ring[ep->n_polled % ep->depth];
		if (!cut && ep->n_polls <= entry->due)
			break;
		done[n] = (struct fab_done){entry->cookie, entry->status};
		if (cut && entry->status == 0)
			done[n].status = ERR_CONN;
		if (atomic_load(&region->severed))
			done[n].status = ERR_CONN;
	}
	return n;
}

static void
fault_wait(struct fab_endpoint *endpoint, int64_t until_ns)
{
	struct fault_endpoint *ep = (struct fault_endpoint *)endpoint;
	land(ep);
	if (ep->n_landed == ep->n_polled)
		fab_wait(ep->inner, until_ns);
}

/* ---- The fabric ---- */

static void
fault_pause(struct fab *fab, int64_t until_ns)
{
	fab_pause(fault_of(fab)->inner, until_ns);
}

static int64_t
fault_now(struct fab *fab)
{
	return fab_now(fault_of(fab)->inner);
}

static uint64_t
fault_rand(struct fab *fab)
{
	return fab_rand(fault_of(fab)->inner);
}

static void
fault_close(struct fab *fab)
{
	struct fault_fab *f = fault_of(fab);
	fab_close(f->inner);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

static const struct fab_driver fault_driver = {
	.name = "fault",
	.register_memory = fault_register,
	.deregister_memory = fault_deregister,
	.region_open = fault_region_open,
	.region_sever = fault_region_sever,
	.region_close = fault_region_close,
	.connect = fault_connect,
	.disconnect = fault_disconnect,
	.post = fault_post,
	.post_quiet = fault_post_quiet,
	.poll = fault_poll,
	.wait = fault_wait,
	.pause = fault_pause,
	.now = fault_now,
	.rand = fault_rand,
	.close = fault_close,
};

int
fault_open(struct fab *inner, struct fab **ret_fab)
{
	struct fault_fab *f = calloc(1, sizeof(*f));
	if (!f)
		return ERR_NOMEM;
	f->fab.driver = &fault_driver;
	f->inner = inner;
	pthread_mutex_init(&f->lock, NULL);
	*ret_fab = &f->fab;
	return 0;
}
