/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control connections: proto/wire.h as the server speaks it. It owns the clients, the stores
 * (store.h) and the unix socket; no GET and no PUT comes near it.
 *
 * A client (client.h) outlives its connection while its sessions linger, [DEAD].
 */
#ifndef RKV_SERVER_SERVICE_H
#define RKV_SERVER_SERVICE_H

#include "common/loop.h"
#include "proto/wire.h"
#include "server/client.h"
#include "server/conn.h"
#include "server/exporter.h"
#include "server/guard.h"
#include "server/handout.h"
#include "server/ports.h"
#include "server/store.h"

struct service {
	struct loop *loop;
	const struct log *log;
	unsigned n_stores;
	struct store *store[LIMIT_REGIONS];
	struct guard *guard;
	struct handout handout; /* soft fabrics only */
	struct exporter exporter;
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
};

struct service_region {
	const struct options *options; /* for it alone */
	struct region *region;
	struct peers *peers; /* zeroed but for what the region has been told of it */
};

/* What it is given; all of it, the listening sockets too, stays the caller's. */
struct service_setup {
	struct loop *loop;
	const struct log *log;
	const struct service_region *regions; /* needed until service_create returns; */
	unsigned n_regions;
	const struct options *options; /* these too */
	const struct ports *ports;
	struct guard *guard;
	int unix_fd;           /* -1: pools are not handed out, [ONE-AGENT] */
	const char *unix_path; /* "" then */
	int metrics_fd;        /* -1: metrics are not offered over HTTP */
};

/* Begins to serve when the loop runs. Failures: ERR_NOMEM, ERR_CONN, as store_create. */
int service_create(const struct service_setup *setup, struct service **ret_service);

/* Connections to the control port that were refused for want of file descriptors. */
uint64_t service_turned_away(const struct service *service);

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
