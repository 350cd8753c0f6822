/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server's region: its memory, formatted, and the server's own endpoint to it. The memory is
 * zero where formatting does not write: an empty index, free chunks, a map without marks.
 */
#ifndef RKV_SERVER_REGION_H
#define RKV_SERVER_REGION_H

#include "common/fabric_shm.h"
#include "common/log.h"
#include "proto/layout.h"
#include "server/options.h"

struct region {
	struct shm_pool *pool;
	struct fab_endpoint *loopback; /* for CAS on what clients may change, [ONE-WORD] */
	struct layout layout;
	struct layout_superblock *superblock; /* in the pool */
	uint64_t region_id;
	uint64_t epoch;
	uint64_t first_serial;
};

/*
 * Reserves and formats; the log says what went wrong. Failures: ERR_NOMEM, ERR_PERM, ERR_INVALID.
 */
int region_create(struct region *region, const struct options *options, const struct log *log);

/* Accepts one that is zeroed or half-built. */
void region_destroy(struct region *region);

/* Reads the 8 aligned bytes at an offset, as a reader of the region would. */
uint64_t region_word(const struct region *region, uint64_t off);

/*
 * CAS on the word at an offset, as a client does it; ret_found: what was there. Failure: ERR_CONN.
 */
int region_cas(struct region *region, uint64_t off, uint64_t expect, uint64_t swap,
	       uint64_t *ret_found);

#endif
