/* SPDX-License-Identifier: BSD-2-Clause */
/* One region's part of the server: store.h. */
#include "server/store.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/err.h"
#include "server/messages.h"

#define SCRUB_HURRIED_BYTES (UINT64_C(8) << 20) /* a tick: some milliseconds */

void
store_end_session(struct store *store, struct session *session, bool in_order)
{
	peers_cut(store->peers, session);
	sessions_end(&store->sessions, session, in_order);
	census_hurry(&store->census);
}

/* ---- Time ---- */

/* What the scrubber is told: so many times has a session ended or lost its connection. */
static uint64_t
count_ended(const struct store *store)
{
	return store->sessions.n_left + store->sessions.n_died + store->n_relinked;
}

bool
store_scrub_is_idle(const struct store *store)
{
	return store->scrub.is_idle && store->scrub.n_ended == count_ended(store);
}

/* The scrubber's share of a tick; for the dead it is faster than its rate. */
static void
scrub(struct store *store)
{
	const struct sessions *sessions = &store->sessions;
	uint64_t bytes = ((uint64_t)store->scrub_rate << 20) * LIMIT_STAMP_MS / 1000;
	if (!store->scrub_rate)
		return;
	/* Those of earlier lives of the region count as one that has died. */
	scrub_told(&store->scrub, sessions->n_died + (store->region->n_lives > 1),
		   count_ended(store));
	if (scrub_is_hurried(&store->scrub) && bytes < SCRUB_HURRIED_BYTES)
		bytes = SCRUB_HURRIED_BYTES;
	if (scrub_is_wanted(&store->scrub, sessions->n_living + sessions->n_ending != 0))
		scrub_tick(&store->scrub, bytes);
}

void
store_tick(struct store *store, int64_t now_ns)
{
	sessions_tick(&store->sessions);
	/* A thread may be serving a READ of the superblock. */
	atomic_store_explicit((_Atomic uint64_t *)&store->region->superblock->stamp,
			      store->sessions.newest, memory_order_relaxed);
	peers_expire(store->peers, now_ns);
	census_tick(&store->census);
	snapshot_tick(&store->snapshot, now_ns);
	scrub(store);
}

static void
evict_due(struct loop_op *op, int result)
{
	struct store *store = (void *)((char *)op - offsetof(struct store, evict_op));
	if (result != -ECANCELED)
		loop_timer(store->loop, op, evict_tick(&store->evict), evict_due);
}

/* ---- Begin and end ---- */

static void
init(struct store *store, const struct store_setup *setup)
{
	struct region *region = setup->region;
	store->loop = setup->loop;
	store->log = setup->log;
	snprintf(store->name, sizeof(store->name), "%s", setup->options->region_name);
	store->region = region;
	store->peers = setup->peers;
	store->clients = setup->clients;
	store->scrub_rate = setup->options->scrub_rate;
	store->audit = (struct audit){
		.loop = setup->loop, .reach = &store->reach, .done = messages_audited};
	sessions_init(&store->sessions, &region->superblock->next_serial, region->first_stamp);
	census_init(&store->census, region, &store->sessions, setup->log);
	store->reach_of = (struct reach_region){region, &store->sessions, &store->worker};
	reach_region(&store->reach, &store->reach_of);
	store->peers->loop = setup->loop;
	store->peers->verbs = region->verbs;
	store->peers->tcp = region->tcp;
	store->peers->sessions = &store->sessions;
	store->peers->clients = setup->clients;
}

int
store_create(const struct store_setup *setup, struct store **ret_store)
{
	const char *wrong = "no memory is left";
	struct store *store = calloc(1, sizeof(*store));
	if (!store) {
		log_line(setup->log, LOG_ERROR, "cannot begin to serve: %s", wrong);
		return ERR_NOMEM;
	}
	init(store, setup);
	int rc = snapshot_init(&store->snapshot, setup->loop, setup->log, setup->region,
			       &store->sessions, setup->options);
	if (rc) {
		store_destroy(store);
		return rc;
	}
	if (store->scrub_rate)
		rc = scrub_create(&store->scrub, &store->reach);
	if (rc == 0)
		rc = evict_create(&store->evict, &store->reach, &store->sessions);
	if (rc == 0 && setup->region->n_lives > 1) {
		wrong = "the chunks of former sessions cannot be taken: does the RDMA device work?";
		rc = census_take_all(&store->census);
	}
	if (rc) {
		log_line(setup->log, LOG_ERROR, "cannot begin to serve: %s", wrong);
		store_destroy(store);
		return rc;
	}
	*ret_store = store;
	return 0;
}

void
store_start(struct store *store)
{
	peers_start(store->peers);
	if (store->evict.reach)
		loop_timer(store->loop, &store->evict_op, LIMIT_STAMP_MS, evict_due);
}

void
store_destroy(struct store *store)
{
	if (!store)
		return;
	snapshot_destroy(&store->snapshot);
	scrub_destroy(&store->scrub);
	audit_destroy(&store->audit);
	evict_destroy(&store->evict);
	free(store);
}
