/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control connections: proto/wire.h as the server speaks it. It owns the clients, the sessions,
 * the census and the unix socket; no GET and no PUT comes near it.
 *
 * A client (client.h) outlives its connection while its sessions linger, [DEAD].
 */
#ifndef RKV_SERVER_SERVICE_H
#define RKV_SERVER_SERVICE_H

#include "common/loop.h"
#include "proto/wire.h"
#include "server/audit.h"
#include "server/census.h"
#include "server/conn.h"
#include "server/client.h"
#include "server/evict.h"
#include "server/exporter.h"
#include "server/guard.h"
#include "server/handout.h"
#include "server/peers.h"
#include "server/ports.h"
#include "server/reach.h"
#include "server/region.h"
#include "server/scrub.h"
#include "server/sessions.h"
#include "server/snapshot.h"

struct service {
	struct loop *loop;
	const struct log *log;
	struct region *region;
	struct sessions sessions;
	struct census census;
	struct guard *guard;
	struct reach reach; /* for upkeep that holds nothing from one callback to the next */
	struct reach_region reach_of;
	struct sessions_worker worker;
	struct audit audit;
	struct scrub scrub;  /* zeroed: off */
	unsigned scrub_rate; /* MiB a second; 0: off */
	struct peers *peers;
	struct handout handout; /* soft fabrics only */
	struct exporter exporter;
	struct snapshot snapshot;
	struct evict evict;
	struct loop_op evict_op;
	unsigned n_listeners;
	struct service_listener {
		struct loop_listener listener; /* first */
		struct service *service;
	} listeners[PORTS_MAX];
	char tcp_address[LIMIT_ADDRESS_MAX]; /* as a welcome says it */
	struct loop_op tick;
	struct conn_queue greeting; /* must say who they are, or take a refusal */
	struct conn_queue talking;  /* must say something now and then */
	struct client_list clients;
	unsigned n_connections;
	unsigned n_clients; /* connections past their HELLO */
	unsigned char boot_id[WIRE_BOOT_ID_LEN];
	char unix_path[LIMIT_PATH_MAX];
	int64_t started_ns;
	int64_t logged_ns;
	uint64_t n_accepted;
	uint64_t n_welcomed;
	uint64_t n_handshakes_refused;
	uint64_t n_garbage;
	uint64_t n_messages;
	uint64_t n_relinked; /* sessions, after their connection was lost */
};

/* What it is given; all of it, the listening sockets too, stays the caller's. */
struct service_setup {
	struct loop *loop;
	const struct log *log;
	struct region *region;
	const struct options *options; /* needed until service_create returns */
	struct peers *peers;           /* zeroed but for what the region has been told of it */
	const struct ports *ports;
	struct guard *guard;
	int unix_fd;           /* -1: the pool is not handed out, [ONE-AGENT] */
	const char *unix_path; /* "" then */
	int metrics_fd;        /* -1: metrics are not offered over HTTP */
};

/* Begins to serve when the loop runs. Failures: ERR_NOMEM, ERR_CONN, as snapshot_init. */
int service_create(const struct service_setup *setup, struct service **ret_service);

/* Connections to the control port that were refused for want of file descriptors. */
uint64_t service_turned_away(const struct service *service);

/* Cuts a session off and ends it, [DEAD]; in_order: by LEAVE. Then service_settle its client. */
void service_end_session(struct service *service, struct session *session, bool in_order);

/*
 * Reads tenants and certificates again. Whoever is of a tenant that is gone or was changed is cut
 * off, also from the region; but a process that has mapped the pool keeps what it mapped. A file
 * that is wrong changes nothing. The log says what happened.
 */
void service_reload(struct service *service, const struct guard_files *files);

/* Lets go of a client that nothing holds any more: called when a connection or a session ended. */
void service_settle(struct client *client);

/* After the loop has ended. NULL is nothing. */
void service_destroy(struct service *service);

#endif
