/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections of RDMA devices, set up with librdmacm: addresses, events, the client's three steps,
 * refusals in words. Knows nothing of what travels later (common/fabric_verbs.c).
 *
 *   client                                   server
 *   cm_resolve    address -> device, port
 *   cm_route      path to the server
 *   cm_connect    struct wire_cm_request ->  CONNECT_REQUEST: checks it
 *                                        <-  rdma_accept with struct wire_cm_accept,
 *                                            or cm_reject with struct wire_cm_reject
 *   ESTABLISHED                          ->  ESTABLISHED
 *
 * Event channels do not block, and every event is acknowledged before anybody acts on it, so that
 * an id can be destroyed at any time (rdma_destroy_id waits for events that are not). Failures are
 * those of err.h, with a sentence that names cause and remedy. A channel and its ids belong to one
 * thread at a time.
 */
#ifndef RKV_COMMON_CM_RDMA_H
#define RKV_COMMON_CM_RDMA_H

#include <rdma/rdma_cma.h>
#include <stdint.h>

#include "common/fabric_verbs.h"
#include "proto/wire.h"

/* An event, copied and acknowledged. */
struct cm_event {
	enum rdma_cm_event_type type;
	int status;
	struct rdma_cm_id *id;
	/* READs and atomics in flight that the peer wants us to serve, and that it will serve. */
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t private_len; /* at least what the peer sent: InfiniBand pads */
	unsigned char private_data[256];
};

/* How long to wait, and who is served meanwhile: pump, if not NULL, when fd is readable. */
struct cm_wait {
	int64_t deadline_ns;
	int fd;
	void (*pump)(void *arg);
	void *arg;
};

int cm_channel_create(struct rdma_event_channel **ret_channel, char reason[VERBS_REASON_MAX]);
void cm_channel_destroy(struct rdma_event_channel *channel); /* NULL is nothing */

/* Takes the next event. ERR_AGAIN (> 0): there is none. Failures: ERR_NOMEM, ERR_CONN. */
int cm_next(struct rdma_event_channel *channel, struct cm_event *ret_event);

/* An id for one RC connection, with its queue pair's timeouts set. */
int cm_id_create(struct rdma_event_channel *channel, void *context, struct rdma_cm_id **ret_id,
		 char reason[VERBS_REASON_MAX]);

/* Destroys the id, and before it the queue pair that cm_connect was for. NULL is nothing. */
void cm_id_destroy(struct rdma_cm_id *id);

/* Nothing of that queue pair touches local memory afterwards. An id without one stays as it is. */
void cm_qp_destroy(struct rdma_cm_id *id);

/* Parses a numeric "host:port". Failure: ERR_CORRUPT. */
int cm_parse(const char *address, struct sockaddr_storage *ret_address);

/* The address an id is bound to, as cm_parse reads it. */
void cm_format_local(struct rdma_cm_id *id, char ret_text[NET_TEXT_MAX]);

/*
 * Which device leads to the address: afterwards id->verbs and id->port_num are set. source: the
 * local address to go from, or NULL for the one that the routes say.
 */
int cm_resolve(struct rdma_cm_id *id, const struct sockaddr_storage *source, const char *address,
	       const struct cm_wait *wait, char reason[VERBS_REASON_MAX]);

int cm_route(struct rdma_cm_id *id, const char *address, const struct cm_wait *wait,
	     char reason[VERBS_REASON_MAX]);

/*
 * Connects the id's queue pair. read_depth: READs and atomics in flight that this device can have;
 * *ret_read_depth: that both can. Further failures: what the server's refusal says.
 */
int cm_connect(struct rdma_cm_id *id, const char *address, const struct wire_cm_request *request,
	       uint8_t read_depth, const struct cm_wait *wait, struct wire_cm_accept *ret_accept,
	       uint8_t *ret_read_depth, char reason[VERBS_REASON_MAX]);

/*
 * What came with an event, for who has to answer it: cm_connect uses the first two, with the
 * server's address for the sentence. Refusals and failures are those that cm_connect has; a request
 * that is none: ERR_CORRUPT, ERR_VERSION, ERR_INVALID.
 */
int cm_take_accept(const struct cm_event *event, const char *address,
		   struct wire_cm_accept *ret_accept, char reason[VERBS_REASON_MAX]);
int cm_take_reject(const struct cm_event *event, const char *address,
		   char reason[VERBS_REASON_MAX]);
int cm_take_request(const struct cm_event *event, struct wire_cm_request *ret_request,
		    char reason[VERBS_REASON_MAX]);

/*
 * Accepts a connection that is asked for, with a queue pair that nobody has used yet. access: what
 * the device serves over it (IBV_ACCESS_REMOTE_...), and nothing else. librdmacm must not know the
 * queue pair, or rdma_accept would grant everything: the caller destroys it, and then the id.
 */
int cm_accept(struct rdma_cm_id *id, struct ibv_qp *qp, unsigned access, uint8_t read_depth,
	      const struct wire_cm_accept *accept, char reason[VERBS_REASON_MAX]);

/* Refuses a connection that is asked for. code: a failure of err.h. */
void cm_reject(struct rdma_cm_id *id, int code, const char *text);

#endif
