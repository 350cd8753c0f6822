/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fabric for real RDMA devices: libibverbs moves the data, librdmacm sets connections up. A
 * session has one RC queue pair and one completion queue, [ONE-QP]. On the server a *peer* is the
 * other end of one: it posts nothing and receives nothing, it only lets the device serve.
 *
 * No verbs type passes through: infiniband/ and rdma/ headers are known to fabric_verbs*.c and
 * cm_rdma.* alone.
 */
#ifndef RKV_COMMON_FABRIC_VERBS_H
#define RKV_COMMON_FABRIC_VERBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/fabric.h"
#include "common/log.h"
#include "common/net.h"
#include "proto/wire.h"

#define VERBS_REASON_MAX 512u /* a sentence, NUL included */

/* ---- Client side ---- */

/*
 * Opens this process's side. The device is chosen by the first region that is opened: the one whose
 * port routes to the server's address. log outlives the fabric; it has a sentence with cause and
 * remedy for each failure of the calls of fabric.h. Failure: ERR_NOMEM.
 *
 * Fork: once a process has reached a region or opened a device, its forked children cannot
 * (ERR_PERM), unless they exec.
 */
int verbs_open_fabric(const struct log *log, struct fab **ret_fab);

/* ---- Server side ---- */

struct verbs_device;
struct verbs_server;
struct verbs_peer;

/*
 * Which device. name: as `rdma link` shows it, or "" for any; address: the one to bind to, with
 * its port, or host[0] == '\0' for the first that a usable device carries and that is not
 * link-local.
 */
struct verbs_choice {
	char name[64];
	struct net_address address;
};

/*
 * Opens a device and its protection domain. Failures, with a sentence that names cause and remedy:
 * ERR_CONN: there is none, or not the one asked for; ERR_PERM; ERR_NOMEM; ERR_INVALID: it cannot
 * do what is needed (no RC, no 64-bit atomics, max_mr_size).
 */
int verbs_device_open(const struct verbs_choice *choice, struct verbs_device **ret_device,
		      char reason[VERBS_REASON_MAX]);
void verbs_device_close(struct verbs_device *device); /* NULL is nothing */

/* For the log: device, port, GID index and type, address, atomic capability, limits. */
const char *verbs_device_text(const struct verbs_device *device);

/* The device's NUMA node; -1: unknown. */
int verbs_device_numa_node(const struct verbs_device *device);

struct verbs_events {
	/*
	 * A peer asks to be connected. 0: it is accepted; else a failure of err.h, and a sentence
	 * for the peer in reason. The owner keeps the peer until it destroys it or lost comes. It
	 * may restrict this one.
	 */
	int (*admit)(void *arg, const struct wire_cm_request *request, struct verbs_peer *peer,
		     char reason[sizeof(((struct wire_cm_reject *)NULL)->reason)]);
	/* The peer's connection has ended by itself; its queue pair is destroyed already. */
	void (*lost)(void *arg, struct verbs_peer *peer);
	void *arg;
};

/*
 * Registers len bytes at base (page-aligned, a multiple of the page) and listens. Everything but
 * verbs_server_dispatch is quick. Failures as verbs_device_open.
 */
int verbs_server_create(struct verbs_device *device, void *base, size_t len,
			const struct verbs_events *events, const struct log *log,
			struct verbs_server **ret_server, char reason[VERBS_REASON_MAX]);

/* Destroys all peers without a word to their owners. NULL is nothing. */
void verbs_server_destroy(struct verbs_server *server);

/* Fills in base, len, r_key and verbs_address. */
void verbs_server_offer(const struct verbs_server *server, struct fab_offer *ret_offer);

/* Readable when verbs_server_dispatch has something to do; dispatch never blocks. */
int verbs_server_fd(const struct verbs_server *server);
void verbs_server_dispatch(struct verbs_server *server);

/*
 * Ends peers that were accepted and did not complete their connection in LIMIT_HANDSHAKE_MS.
 * Dispatch does it too; while nothing happens, somebody's clock has to.
 */
void verbs_server_expire(struct verbs_server *server, int64_t now_ns);

/*
 * When this returns nothing late of the peer can land, [DEAD]: its queue pair is destroyed. Not for
 * a peer that is just being admitted; one that is being reported lost is destroyed anyhow.
 */
void verbs_peer_destroy(struct verbs_peer *peer); /* NULL is nothing */

/*
 * Of a peer that is just being admitted: the device serves its READs, and refuses its WRITEs and
 * atomics whatever R_Key they have. The first that is refused ends the connection.
 */
void verbs_peer_restrict(struct verbs_peer *peer);

/*
 * The server's own endpoint to its region, through the device (loop-back CAS, [ONE-WORD]). Tests on
 * the scratch word at scratch_roff that the device's atomics work. Before other peers come, or
 * after the endpoint failed. Failures as verbs_device_open.
 */
int verbs_loopback(struct verbs_server *server, uint64_t scratch_roff,
		   struct fab_endpoint **ret_endpoint, char reason[VERBS_REASON_MAX]);
void verbs_loopback_close(struct fab_endpoint *ep); /* NULL is nothing */

#endif
