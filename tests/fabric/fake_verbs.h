/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RDMA devices that are not there: libibverbs and librdmacm as far as rkv uses them, linked in
 * their place. A device executes work requests on memory of this process, in order, inside
 * ibv_post_send, with the checks that hardware makes. What no correct program does (overrunning a
 * queue, a piece of length 0, destroying an id with an event that is not acknowledged) aborts the
 * test.
 *
 * fake_verbs.c has devices, memory and queues, fake_cm.c connections. Knobs are set while nothing
 * runs.
 */
#ifndef RKV_TESTS_FABRIC_FAKE_VERBS_H
#define RKV_TESTS_FABRIC_FAKE_VERBS_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#define FAKE_DEVICES_MAX 3u
#define FAKE_ADDRESSES_MAX 8u

struct fake_address {
	const char *host; /* numeric; NULL ends the list */
	int device;       /* the one that carries it; -1: none */
	enum ibv_gid_type gid_type;
};

/* What happens instead of the good event. type -1: the good one; -2: nothing at all. */
#define FAKE_GOOD (-1)
#define FAKE_SILENCE (-2)
struct fake_event {
	int type;
	int status;
};

struct fake_knobs {
	/* Devices, as those of Soft-RoCE unless changed. */
	unsigned n_devices;
	struct ibv_device_attr attr[FAKE_DEVICES_MAX];
	enum ibv_port_state port_state;
	struct fake_address addresses[FAKE_ADDRESSES_MAX];
	uint32_t max_inline;
	uint32_t max_send; /* a longer send queue is refused */
	uint32_t max_msg;
	bool has_parent_domains;
	bool has_cq_ex;
	int list_error;     /* errno of listing devices */
	int channel_error;  /* of opening an event channel */
	int register_error; /* of registering more than register_free bytes */
	size_t register_free;
	int query_error;  /* returned by ibv_query_device */
	int rc_qp_error;  /* errno of creating a queue pair */
	int route_device; /* the way to every server; -1: the device that carries its address */
	/* Data. */
	bool swaps_replies;
	bool garbles_replies;
	bool holds_completions;
	unsigned post_fails_at; /* this work request of a post is refused; 0: none */
	int post_result;        /* what ibv_post_send then returns; errno is ENOMEM */
	unsigned wr_fails_at;   /* this work request from now on fails; 0: none */
	enum ibv_wc_status wr_status;
	int poll_result; /* < 0: what ibv_poll_cq returns */
	/* Connections. */
	struct fake_event on_resolve_addr, on_resolve_route, on_connect, on_accept;
	bool loses_rtu;  /* the server never hears that the connection is complete */
	int private_len; /* of what a request, a refusal brings; -1: padded, as InfiniBand does */
	int answer_len;  /* the same of an acceptance */
	const void *answer; /* private data of an acceptance, in place of the server's */
	int grants_depth;   /* READs in flight that an acceptance grants; -1: the server's */
	const void *reject; /* private data of a refusal, with on_connect REJECTED */
	uint8_t reject_len;
	/* Failing calls: the fail_at-th that can fail does. */
	unsigned fail_at;
};

extern struct fake_knobs fake;

/* What was done since fake_reset. */
struct fake_counts {
	atomic_uint n_post, n_wr, n_signalled, n_inline, n_poll, n_destroyed_qps;
	atomic_uint n_notified;
	atomic_uint n_calls;          /* that can fail */
	_Atomic(const char *) failed; /* the call that fail_at made fail */
	atomic_int n_live;            /* objects and unacknowledged events that exist */
};
extern struct fake_counts fake_counts;

/* Knobs and counts as at the beginning. All objects must be gone. */
void fake_reset(void);

/* Should this call fail? Then errno is ENOMEM. */
bool fake_fails(const char *call);

/* An event of a device: of its queue pair with the newest number if qp. */
void fake_async_event(enum ibv_event_type type, bool qp);

/* What the queue pair with the newest number grants to its peer. */
unsigned fake_newest_access(void);

/* An event for every id of one side that is connected or being connected. */
void fake_inject(bool at_server, enum rdma_cm_event_type type, int status);

/* An event for every listener. */
void fake_inject_listener(enum rdma_cm_event_type type);

/* A client that asks for a connection at the port; its id is destroyed by fake_stranger_close. */
struct rdma_cm_id *fake_stranger(uint16_t port, const void *private_data, uint8_t len,
				 uint8_t depth);
/* What it was told: an event type, -1: nothing yet. */
int fake_stranger_heard(struct rdma_cm_id *id, void *ret_private, size_t room);
void fake_stranger_close(struct rdma_cm_id *id);

/* ---- Between the two files ---- */

struct fake_qp {
	struct ibv_qp qp;
	struct ibv_qp_cap cap;
	struct fake_qp *peer; /* NULL: not connected */
	unsigned access;      /* that it grants to the peer */
	bool is_connected;    /* was once */
	bool is_error;
	uint32_t n_outstanding;
	uint32_t n_unsignalled;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	LIST_ENTRY(fake_qp) entry;
};

extern pthread_rwlock_t fake_lock; /* read: data moves; written: objects change */
extern struct ibv_context *fake_context(unsigned device);
void fake_qp_cut(struct fake_qp *qp);       /* fake_lock is held for writing */
struct fake_qp *fake_qp_find(uint32_t num); /* the same; NULL: there is none */
void fake_abort(const char *why) __attribute__((noreturn));

#endif
