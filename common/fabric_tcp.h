/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fabric for any host without an RDMA device: a session's batches travel over one TCP
 * connection, [ONE-QP], and a responder thread of the server plays the NIC. It may share its region
 * with clients of the shm fabric: both are executed by CPUs, [ONE-AGENT].
 *
 * On the server a *peer* is the other end of one connection. The control thread admits and destroys
 * peers; responder threads serve them.
 */
#ifndef RKV_COMMON_FABRIC_TCP_H
#define RKV_COMMON_FABRIC_TCP_H

#include <stddef.h>
#include <stdint.h>

#include "common/fabric.h"
#include "common/log.h"
#include "proto/wire.h"

#define TCP_REASON_MAX 768u /* a sentence, NUL included */

/* ---- Client side ---- */

/*
 * Opens this process's side. log outlives the fabric; it has a sentence with cause and remedy for
 * each failure here and in fab_connect. fab_region_open reaches nothing: fab_connect does.
 * Failures: ERR_NOMEM; ERR_PERM, ERR_CONN: this process gets no io_uring.
 */
int tcp_open_fabric(const struct log *log, struct fab **ret_fab);

/* What an endpoint has cost so far. */
struct tcp_costs {
	uint64_t n_calls;  /* system calls, since it was connected */
	uint64_t n_frames; /* batches sent */
};
void tcp_endpoint_costs(const struct fab_endpoint *ep, struct tcp_costs *ret_costs);

/* ---- Server side ---- */

struct tcp_server;
struct tcp_peer;

struct tcp_events {
	/*
	 * A peer asks to be served. 0: it will be; else a failure of err.h, and a sentence for the
	 * peer in reason. The owner keeps the peer until it destroys it or lost comes. Inside, it
	 * may destroy other peers and restrict this one.
	 */
	int (*admit)(void *arg, const struct wire_cm_request *request, struct tcp_peer *peer,
		     char reason[sizeof(((struct wire_cm_reject *)NULL)->reason)]);
	/* The peer's connection has ended by itself; nothing of it can land any more, [DEAD]. */
	void (*lost)(void *arg, struct tcp_peer *peer);
	void *arg;
};

struct tcp_options {
	unsigned n_responders; /* threads; at least 1 */
	unsigned stall_ms;     /* who does not take a buffer of replies in this time is dropped */
};

/*
 * Serves len bytes at base, which outlive it. Failures, with a sentence that names cause and
 * remedy: ERR_NOMEM; ERR_PERM, ERR_CONN: there is no io_uring.
 */
int tcp_server_create(void *base, size_t len, const struct tcp_events *events,
		      const struct tcp_options *options, struct tcp_server **ret_server,
		      char reason[TCP_REASON_MAX]);

/* Destroys all peers without a word to their owners. NULL is nothing. */
void tcp_server_destroy(struct tcp_server *server);

/* Fills in base, len and r_key. */
void tcp_server_offer(const struct tcp_server *server, struct fab_offer *ret_offer);

/* Bytes of the hello that begins with these len bytes; 0: too few to tell; SIZE_MAX: it is none. */
size_t tcp_server_measure(const void *bytes, size_t len);

/*
 * Takes over a connected socket, in blocking mode, from which a whole hello has been received and
 * nothing more.
 */
void tcp_server_take(struct tcp_server *server, int fd, const void *hello);

/*
 * Accepts a connection, waits for its hello, and takes it over: for who serves nobody else
 * meanwhile. What does not say a hello is closed.
 */
void tcp_server_accept(struct tcp_server *server, int listen_fd);

/* Readable when tcp_server_dispatch has something to do; dispatch never blocks. */
int tcp_server_fd(const struct tcp_server *server);
void tcp_server_dispatch(struct tcp_server *server);

/* From admit only: the peer may READ, and nothing else. */
void tcp_peer_restrict(struct tcp_peer *peer);

/*
 * When this returns nothing late of the peer can land, [DEAD]. Not for a peer that is just being
 * admitted; one that is being reported lost is destroyed anyhow. NULL is nothing. It waits for the
 * peer's responder, which has no more to do for that than it does between two looks at its ring.
 */
void tcp_peer_destroy(struct tcp_peer *peer);

/* What happened so far. Any thread. */
struct tcp_counters {
	uint64_t n_threads;    /* responders */
	uint64_t n_calls;      /* system calls of theirs */
	uint64_t n_frames;     /* batches taken in */
	uint64_t n_violations; /* batches that a NIC would have refused */
	uint64_t n_garbled;    /* connections that sent what is no frame */
	uint64_t n_stalled;    /* connections that did not take their replies */
	uint64_t n_rejected;   /* hellos of another version, or that admit refused */
};
void tcp_server_counters(const struct tcp_server *server, struct tcp_counters *ret_counters);

#endif
