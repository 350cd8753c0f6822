/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of the verbs fabric share: fabric_verbs.c (the client's data path),
 * fabric_verbs_connect.c (its endpoints come and go), fabric_verbs_server.c, fabric_verbs_device.c
 * (devices, their limits, and what is wrong with them), cm_rdma.c.
 */
#ifndef RKV_COMMON_FABRIC_VERBS_INTERNAL_H
#define RKV_COMMON_FABRIC_VERBS_INTERNAL_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>

#include "common/cm_rdma.h"
#include "common/fabric_verbs.h"

#define VERBS_SEND_MIN 64   /* work requests that a send queue must have room for */
#define VERBS_TEXT_MAX 400u /* a description of a device, NUL included */

/* What a device and a port of it can do, as far as it matters here. */
struct verbs_limits {
	uint64_t mr_len;      /* bytes of one memory region */
	uint64_t message_len; /* bytes of one READ or WRITE */
	uint32_t n_send;      /* work requests of a send queue */
	uint32_t n_cqe;       /* entries of a completion queue */
	uint8_t read_depth;   /* READs and atomics of a queue pair that it can have in flight */
	uint8_t serve_depth;  /* the same that it can serve */
};

struct verbs_device {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;           /* bound to the address: keeps the device open */
	struct sockaddr_storage address; /* to listen at */
	struct sockaddr_storage source;  /* the same without port, to connect from */
	struct ibv_pd *pd;
	struct verbs_limits limits;
	char text[VERBS_TEXT_MAX];
};

/* Providers return an errno, or -1 and set it, or -errno; 0 is 0. */
static inline int
verbs_errno(int result)
{
	return result == -1 ? errno : result < 0 ? -result : result;
}

/* ---- fabric_verbs_device.c ---- */

/* What an errno of `cannot <what>` means and what to do; returns the failure it stands for. */
int verbs_explain(int error, const char *what, char reason[VERBS_REASON_MAX]);

/* Facts about this machine from which a missing device is explained. */
struct verbs_facts {
	unsigned n_kernel;  /* devices that the kernel knows */
	unsigned n_library; /* those of them that libibverbs can use */
	int cm_error;       /* errno of opening /dev/infiniband/rdma_cm, or 0 */
	int uverbs_error;   /* the same of the first /dev/infiniband/uverbs* that fails */
	char kernel_name[64];
};

/* Returns ERR_PERM or ERR_CONN. error: what librdmacm said. */
int verbs_explain_facts(const struct verbs_facts *facts, int error, char reason[VERBS_REASON_MAX]);

/* The same, with the facts of this machine. */
int verbs_explain_missing(int error, char reason[VERBS_REASON_MAX]);

/*
 * Asks for the limits of a device and a port. ERR_INVALID: it cannot do what is needed; ERR_CONN:
 * its port is down.
 */
int verbs_limits_query(struct ibv_context *context, uint8_t port, struct verbs_limits *ret_limits,
		       char reason[VERBS_REASON_MAX]);

/* Device, port, GID, type and address of an id that is bound or resolved, for the log. */
void verbs_describe(struct rdma_cm_id *id, char ret_text[VERBS_TEXT_MAX]);

/* Registers whole pages that hold [local, local + len). */
int verbs_register(struct ibv_pd *pd, void *local, size_t len, int access, struct ibv_mr **ret_mr,
		   char reason[VERBS_REASON_MAX]);

/* ---- The client: fabric_verbs.c, fabric_verbs_connect.c ---- */

#define VERBS_BATCH_REQUESTS_MAX (2 * FAB_BATCH_MAX) /* work requests: long operations are split */

struct verbs_registration {
	struct verbs_registration *next;
	struct ibv_mr *mr;
};

struct verbs_fab {
	struct fab fab;
	const struct log *log;
	pthread_mutex_t mutex; /* guards all below; the device is set once */
	struct rdma_event_channel *channel;
	struct rdma_cm_id *anchor; /* keeps the device open */
	struct ibv_context *context;
	struct ibv_pd *pd;
	const struct sockaddr_storage *source; /* the address to connect from, or NULL: any */
	struct verbs_limits limits;
	struct verbs_registration *registrations;
};

struct verbs_region {
	struct fab_region region;
	_Atomic uint32_t refs; /* the opener and each endpoint, [LAST] */
	_Atomic bool severed;  /* [SEVER] */
	struct fab_offer offer;
	char address[sizeof(((struct fab_offer *)NULL)->verbs_address) + 1];
};

struct verbs_request {
	struct ibv_send_wr wr;
	struct ibv_sge sge[2];
};

struct verbs_batch {
	void *cookie;
	int status;       /* of a batch that has ended */
	uint32_t n_quiet; /* quiet batches posted before it, modulo 2^32 */
	uint64_t last;    /* number of its last work request */
};

/* A reply that has to be turned round when the work request has completed. */
struct verbs_swap {
	uint64_t number;
	void *local;
};

struct verbs_endpoint {
	struct fab_endpoint ep;
	/* Where things are. */
	uint64_t base;
	uint64_t len;
	uint64_t segment_len;
	uint64_t message_len;
	uint32_t n_segments;
	uint32_t r_key[WIRE_SEGMENTS_MAX];
	const _Atomic bool *severed;
	/* Why it has to end; ended: the queue pair is destroyed. */
	bool refused; /* an operation that is not allowed */
	bool failed;
	bool is_flushed; /* a completion said so: no good ones follow */
	bool ended;
	/* Batches: posted, completed, delivered; modulo 2^32. */
	uint32_t depth;
	uint32_t batch_mask;
	uint32_t n_posted, n_completed, n_polled;
	uint32_t n_quiet, n_quiet_completed; /* without completion */
	struct verbs_batch *batches;
	/* Work requests by number: built, given to the device, known to have completed. */
	uint64_t n_built, n_sent, n_freed;
	uint32_t n_unsignalled; /* since the last signalled one */
	uint32_t first;         /* place of the oldest of the chain */
	uint32_t n_chain;
	uint32_t request_mask;
	uint32_t max_inline;
	uint32_t n_send;
	struct verbs_request *requests;
	struct verbs_swap *swaps; /* NULL: replies come in this host's order */
	uint32_t n_swaps, n_swapped;
	/* Verbs objects. */
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_td *td;
	struct ibv_pd *parent; /* a parent domain with td in it, or NULL */
	struct ibv_cq *cq;
};

static inline struct verbs_fab *
verbs_fab_of(const struct verbs_endpoint *ep)
{
	return (struct verbs_fab *)ep->ep.region->fab;
}

static inline const char *
verbs_address_of(const struct verbs_endpoint *ep)
{
	return ((const struct verbs_region *)ep->ep.region)->address;
}

void verbs_region_release(struct verbs_region *region);

/* All memory is registered with one device, that towards the first region: is this the one? */
int verbs_check_device(const struct verbs_fab *f, const struct rdma_cm_id *id, const char *address,
		       char reason[VERBS_REASON_MAX]);

/* Where things are, by the server's acceptance, or ERR_CORRUPT: not what its hello offered. */
int verbs_take_accept(struct verbs_endpoint *ep, const struct wire_cm_accept *accept,
		      char reason[VERBS_REASON_MAX]);

/* Destroys the queue pair, and what has not completed has failed, [LOCAL]. */
void verbs_endpoint_end(struct verbs_endpoint *ep);

void verbs_disconnect(struct fab_endpoint *endpoint);

/*
 * A fabric that works with this device, and connects from its address: the routes to one's own
 * address may lead through another one. The device outlives it.
 */
int verbs_open_on(struct verbs_device *device, const struct log *log, struct fab **ret_fab,
		  char reason[VERBS_REASON_MAX]);

/* As fab_region_open, on such a fabric: without looking for the device. */
int verbs_region_on(struct fab *fab, const struct fab_offer *offer, struct fab_region **ret_region,
		    char reason[VERBS_REASON_MAX]);

/* As fab_connect, while others are served; the sentence goes to reason, not to the log. */
int verbs_connect_with(struct fab_region *region, const struct fab_ticket *ticket, uint32_t depth,
		       const struct cm_wait *wait, struct fab_endpoint **ret_endpoint,
		       char reason[VERBS_REASON_MAX]);

/*
 * Learns by the word at roff in which byte order the device returns what an atomic found. A word
 * that reads the same both ways tells nothing. ERR_CORRUPT: neither order.
 */
int verbs_learn_order(struct fab_endpoint *ep, uint64_t roff, int64_t deadline_ns,
		      char reason[VERBS_REASON_MAX]);

/* One batch from post to completion: its status, or ERR_TIMEOUT. */
int verbs_run(struct fab_endpoint *ep, const struct fab_op *ops, unsigned n, int64_t deadline_ns);

#endif
