/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * THE interface between the protocol and the wire. Operations are plain data: no verbs type passes
 * through. Local memory is a pointer into registered memory (`local`), remote memory is a 64-bit
 * offset in the region (`roff`); the two never share a type or a name.
 *
 *   fab           this process's side of a fabric: local registrations, clock, randomness
 *   fab_region    a server's region as it is reached from here; severed when its server is gone
 *   fab_endpoint  one session's reliable connection to a region, with completion queue, [ONE-QP]
 *
 * WHAT A BATCH PROMISES (proto/ORDERING.md; no more than the weakest fabric gives):
 *   - WRITE before CAS/FAA: whoever sees the atomic's effect sees the WRITE's bytes;
 *   - CAS/FAA before READ: the READ samples after the atomic executed, and its completion proves
 *     that every other reader sees the atomic's effect, if the READ is of that very word;
 *   - a READ of bytes written before on the same endpoint returns them or newer ones;
 *   - all local bytes of a batch are in place, and its buffers the caller's again, when its
 *     completion is polled (and so are those of all earlier batches of the endpoint).
 * Nothing else: READs of a batch may be sampled in any order, in pieces, even twice; WRITEs may
 * land in any order, in pieces, after their completion. No aligned word of 8 bytes is torn, neither
 * alone nor within a longer READ (a habit of all known NICs and hosts, which the specification
 * omits).
 *
 * An endpoint belongs to one thread at a time. fab_region_sever may come from any thread.
 */
#ifndef RKV_COMMON_FABRIC_H
#define RKV_COMMON_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fab;
struct fab_region;
struct fab_endpoint;

enum fab_kind { FAB_READ, FAB_WRITE, FAB_CAS, FAB_FAA };

/* A piece of registered local memory; key is what fab_register returned for it. */
struct fab_piece {
	void *local;
	uint32_t len;
	uint32_t key;
};

/*
 * READ scatters to, WRITE gathers from piece[0] and, if its len is not 0, piece[1]. CAS and FAA
 * work on the 8 aligned bytes at roff and put the old value into piece[0] (len 8).
 */
struct fab_op {
	enum fab_kind kind;
	uint64_t roff;
	struct fab_piece piece[2];
	uint64_t expect; /* CAS: the word that must be there; FAA: what to add */
	uint64_t swap;   /* CAS: the word to put */
};

/*
 * A completed batch: status 0 or a failure of err.h, after which nothing of it is in flight here.
 */
struct fab_done {
	void *cookie;
	int status;
};

#define FAB_BATCH_MAX 8u /* operations in one batch */

/* What the hello says about reaching one region; fixed-size copies, owned by the holder. */
struct fab_offer {
	uint64_t region_id;
	uint64_t epoch;
	uint64_t base; /* the server's address of the region (verbs), 0 on soft fabrics */
	uint64_t len;  /* bytes */
	uint32_t r_key;
	bool only_reads;         /* the server refuses what is not a READ: none is tried (verbs) */
	char unix_path[108];     /* the socket that hands out the pool (shm) */
	char verbs_address[64];  /* numeric "host:port" of the RDMA listener (verbs) */
	char tcp_address[272];   /* "host:port" that takes data connections (tcp) */
	unsigned char token[16]; /* one-time: ties this to the control connection */
};

/* Whose connection it is, in the server's numbers: it accepts one for every JOIN and RELINK. */
struct fab_ticket {
	uint32_t session_slot;
	uint32_t serial;
};

/* One implementation of everything below. */
struct fab_driver {
	const char *name;
	bool reaches_all_memory; /* local pieces need no registration: a CPU moves the bytes */
	int (*register_memory)(struct fab *, void *local, size_t len, uint32_t *ret_key);
	void (*deregister_memory)(struct fab *, uint32_t key);
	int (*region_open)(struct fab *, const struct fab_offer *, int64_t deadline_ns,
			   struct fab_region **ret_region);
	void (*region_sever)(struct fab_region *);
	void (*region_close)(struct fab_region *);
	int (*connect)(struct fab_region *, const struct fab_ticket *, uint32_t depth,
		       int64_t deadline_ns, struct fab_endpoint **ret_endpoint);
	void (*disconnect)(struct fab_endpoint *);
	int (*post)(struct fab_endpoint *, const struct fab_op *, unsigned n, void *cookie);
	int (*post_quiet)(struct fab_endpoint *, const struct fab_op *, unsigned n);
	unsigned (*poll)(struct fab_endpoint *, struct fab_done *, unsigned max);
	void (*wait)(struct fab_endpoint *, int64_t until_ns);
	void (*pause)(struct fab *, int64_t until_ns);
	int64_t (*now)(struct fab *);
	uint64_t (*rand)(struct fab *);
	void (*close)(struct fab *);
};

/* First members of every implementation's objects. */
struct fab {
	const struct fab_driver *driver;
};

struct fab_region {
	const struct fab_driver *driver;
	struct fab *fab;
};

struct fab_endpoint {
	const struct fab_driver *driver;
	struct fab_region *region;
};

/* Makes local memory usable in pieces. Failures: ERR_NOMEM, ERR_PERM. */
static inline int
fab_register(struct fab *fab, void *local, size_t len, uint32_t *ret_key)
{
	return fab->driver->register_memory(fab, local, len, ret_key);
}

static inline void
fab_deregister(struct fab *fab, uint32_t key)
{
	fab->driver->deregister_memory(fab, key);
}

/*
 * Reaches a region. ERR_AGAIN (> 0): the server has no descriptor left for one more. Failures:
 * ERR_CONN, ERR_TIMEOUT, ERR_PERM, ERR_NOMEM, ERR_CORRUPT.
 */
static inline int
fab_region_open(struct fab *fab, const struct fab_offer *offer, int64_t deadline_ns,
		struct fab_region **ret_region)
{
	return fab->driver->region_open(fab, offer, deadline_ns, ret_region);
}

/*
 * Nobody serves the region any more: from now on every batch of its endpoints completes with
 * ERR_CONN, also those posted before and not yet polled. Any thread; repeatable.
 */
static inline void
fab_region_sever(struct fab_region *region)
{
	region->driver->region_sever(region);
}

/* Lets go of the region once its last endpoint is gone too. NULL is nothing. */
static inline void
fab_region_close(struct fab_region *region)
{
	if (region)
		region->driver->region_close(region);
}

/*
 * Connects. ticket: the session's, or NULL for the one look at the superblock that a hello grants.
 * depth: completions-bearing batches in flight, at most. Failures as fab_region_open, and
 * ERR_INVALID: more than the device can do.
 */
static inline int
fab_connect(struct fab_region *region, const struct fab_ticket *ticket, uint32_t depth,
	    int64_t deadline_ns, struct fab_endpoint **ret_endpoint)
{
	return region->driver->connect(region, ticket, depth, deadline_ns, ret_endpoint);
}

/* Ends the connection: nothing of it touches local memory afterwards. NULL is nothing. */
static inline void
fab_disconnect(struct fab_endpoint *ep)
{
	if (ep)
		ep->driver->disconnect(ep);
}

/*
 * Posts a batch: n (1..FAB_BATCH_MAX) operations, one doorbell, one completion with its cookie,
 * delivered by fab_poll exactly once, also after an error. ops may be reused at once; the memory in
 * its pieces not before the completion. ERR_AGAIN (> 0): depth batches are out; poll first.
 */
static inline int
fab_post(struct fab_endpoint *ep, const struct fab_op *ops, unsigned n, void *cookie)
{
	return ep->driver->post(ep, ops, n, cookie);
}

/*
 * The same without completion: marks. It is sent at once, unless there is no room, or completions
 * keep coming: then the next poll sends it. An endpoint has room for 2 * depth of them between two
 * completions; ERR_AGAIN (> 0): there are more. Once the endpoint has failed nothing is sent, and
 * this returns 0 or ERR_CONN.
 */
static inline int
fab_post_quiet(struct fab_endpoint *ep, const struct fab_op *ops, unsigned n)
{
	return ep->driver->post_quiet(ep, ops, n);
}

/* Completed batches, in post order; at most max. After one failed, all outstanding ones fail. */
static inline unsigned
fab_poll(struct fab_endpoint *ep, struct fab_done *done, unsigned max)
{
	return ep->driver->poll(ep, done, max);
}

/* Gives the CPU away while nothing has landed, until until_ns at the latest; may return early. */
static inline void
fab_wait(struct fab_endpoint *ep, int64_t until_ns)
{
	ep->driver->wait(ep, until_ns);
}

/* The same while there is no endpoint to wait for. */
static inline void
fab_pause(struct fab *fab, int64_t until_ns)
{
	fab->driver->pause(fab, until_ns);
}

/* The only clock (CLOCK_BOOTTIME, ns) and the only randomness of the protocol; any thread. */
static inline int64_t
fab_now(struct fab *fab)
{
	return fab->driver->now(fab);
}

static inline uint64_t
fab_rand(struct fab *fab)
{
	return fab->driver->rand(fab);
}

static inline void
fab_close(struct fab *fab)
{
	if (fab)
		fab->driver->close(fab);
}

#endif
