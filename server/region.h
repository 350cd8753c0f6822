/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server's region: its memory, formatted, how clients reach it, and the server's own endpoint
 * to it. The memory is zero where formatting does not write: an empty index, free chunks, a map
 * without marks.
 *
 * Clients reach it either through an RDMA device, or by CPUs, those that map it (shm) and those
 * that serve data connections (tcp); never both: the words that they change must have one agent,
 * [ONE-AGENT].
 */
#ifndef RKV_SERVER_REGION_H
#define RKV_SERVER_REGION_H

#include "common/fabric_shm.h"
#include "common/fabric_tcp.h"
#include "common/fabric_verbs.h"
#include "common/log.h"
#include "common/pool.h"
#include "common/pool_file.h"
#include "proto/layout.h"
#include "server/options.h"
#include "server/restore.h"

struct region {
	const struct log *log;
	struct pool_file *file; /* that the pool lies in; NULL: it ends with the process */
	struct pool *pool;
	struct shm_share *share;       /* NULL: verbs */
	struct verbs_device *device;   /* NULL: no verbs */
	struct verbs_server *verbs;    /* likewise */
	struct tcp_server *tcp;        /* NULL: no tcp */
	bool is_mapped;                /* clients get the pool, on this host */
	struct fab_endpoint *loopback; /* for CAS on what clients may change, [ONE-WORD] */
	uint64_t *found;               /* a page of its own: where a CAS puts what was there */
	uint32_t found_key;
	int64_t loopback_ns; /* no other one before */
	struct layout layout;
	struct layout_superblock *superblock; /* in the pool */
	uint64_t region_id;
	uint64_t epoch;
	struct restored restored; /* zeroed: it began empty */
	uint64_t first_serial;    /* of a region that is formatted now */
	uint64_t first_stamp;     /* newer than any of an earlier life */
	uint64_t waited_ms;       /* for clients of earlier lives */
	uint64_t n_lives;         /* servers that have served it, this one too; 0: no file */
};

/* What the servers of the two kinds of peers are given. */
struct region_events {
	struct verbs_events verbs;
	struct tcp_events tcp;
};

/*
 * Zeroes a region and decides which fabric it will have: the device that the options ask for, or
 * the first that is fit (listen: where the control port is bound); without one, soft. The log says
 * what and why. Failures, if the options ask for verbs: as verbs_device_open.
 */
int region_choose(struct region *region, const struct options *options,
		  const struct net_address *listen, const struct log *log);

/*
 * Then: reserves and formats it, or opens what is in its file, which the caller has set in between;
 * and opens it to clients. A device that cannot hold it is given up for soft, unless the options
 * ask for verbs. The log says what went wrong. Failures: ERR_NOMEM, ERR_PERM, ERR_CONN,
 * ERR_INVALID, ERR_VERSION, ERR_CORRUPT; with --restore also those of restore_file.
 */
int region_create(struct region *region, const struct options *options,
		  const struct region_events *events);

/* Accepts one that is zeroed or half-built. */
void region_destroy(struct region *region);

/* "verbs"; "soft", that is shm and tcp; or one of these two. */
const char *region_fabric(const struct region *region);

/* What a hello says of it: base, r_key and verbs_address, all 0 and "" where they mean nothing. */
void region_offer(const struct region *region, struct fab_offer *ret_offer);

/* Reads the 8 aligned bytes at an offset, as a reader of the region would. */
uint64_t region_word(const struct region *region, uint64_t off);

/*
 * CAS on the word at an offset, as a client does it; ret_found: what was there. After a failure it
 * may have been done or not, and the next call works again if the device does. Failures: ERR_CONN,
 * ERR_TIMEOUT.
 */
int region_cas(struct region *region, uint64_t off, uint64_t expect, uint64_t swap,
	       uint64_t *ret_found);

/* Marks a block free, [MARK]: for who took the last word that refers to it out of its slot. */
void region_mark(struct region *region, uint64_t block_off, uint32_t tag);

/* Sets a block's access hint, in a region that has them, [HINT]. */
void region_hint(struct region *region, uint64_t block_off, uint16_t hint);

#endif
