/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A store: one region and all that the server does for it. Who its sessions are, what they hold,
 * their connections to the region, and its upkeep. A server has one or several; they share the
 * control loop and nothing else, and a client is of one of them (client.h).
 */
#ifndef RKV_SERVER_STORE_H
#define RKV_SERVER_STORE_H

#include "common/loop.h"
#include "server/audit.h"
#include "server/census.h"
#include "server/evict.h"
#include "server/options.h"
#include "server/peers.h"
#include "server/reach.h"
#include "server/region.h"
#include "server/scrub.h"
#include "server/sessions.h"
#include "server/snapshot.h"

struct client_list;

struct store {
	struct loop *loop;
	const struct log *log;
	char name[LIMIT_REGION_NAME_MAX];
	struct region *region;
	struct peers *peers;
	const struct client_list *clients; /* of the server, also those of other stores */
	struct sessions sessions;
	struct census census;
	struct reach reach; /* for upkeep that holds nothing from one callback to the next */
	struct reach_region reach_of;
	struct sessions_worker worker;
	struct audit audit;
	struct scrub scrub;  /* zeroed: off */
	unsigned scrub_rate; /* MiB a second; 0: off */
	struct snapshot snapshot;
	struct evict evict;
	struct loop_op evict_op;
	uint64_t n_relinked; /* sessions, after their connection was lost */
};

/* What it is given; all of it stays the caller's. */
struct store_setup {
	struct loop *loop;
	const struct log *log;
	const struct options *options; /* of its region; needed until store_create returns */
	struct region *region;
	struct peers *peers; /* zeroed but for what the region has been told of it */
	const struct client_list *clients;
};

/* Failures, which the log has heard of: ERR_NOMEM, ERR_CONN, as snapshot_init. */
int store_create(const struct store_setup *setup, struct store **ret_store);

/* Begins to admit peers, and to look after the region, when the loop runs. */
void store_start(struct store *store);

/* Each LIMIT_STAMP_MS: a new stamp, and a slice of the upkeep. */
void store_tick(struct store *store, int64_t now_ns);

/* Has a pass that began after the last session had ended found nothing to mend? As of now. */
bool store_scrub_is_idle(const struct store *store);

/* Cuts a session off and ends it, [DEAD]; in_order: by LEAVE. Then service_settle its client. */
void store_end_session(struct store *store, struct session *session, bool in_order);

/* After the loop has ended. NULL is nothing. */
void store_destroy(struct store *store);

#endif
