/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How the server's upkeep (scrubber, sweeper, eviction) reaches the region: it looks with the CPU,
 * changes slots by loop-back CAS only, [ONE-WORD], and marks blocks by a store of one byte, [MARK].
 * And how it takes part in [STAMP]: who acts on what was read counts like a session meanwhile; who
 * waits for a stamp must not.
 *
 * The upkeep knows nothing but this, so that the same code runs in the simulator (tests/sim), where
 * each of these calls is a moment at which everybody else may move.
 */
#ifndef RKV_SERVER_REACH_H
#define RKV_SERVER_REACH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/layout.h"

struct region;
struct sessions;
struct sessions_worker;

struct reach_calls {
	/* Bytes of the region, where the CPU sees them; others change them while they are read. */
	const void *(*at)(void *arg, uint64_t off, uint64_t len);

	/* As region_cas: after a failure it may have been done or not. */
	int (*cas)(void *arg, uint64_t off, uint64_t expect, uint64_t swap, uint64_t *ret_found);

	/* The incarnation `tag` of the block is over. */
	void (*mark)(void *arg, uint64_t block_off, uint32_t tag);

	/* Between these, what is read does not recur. Not nested. */
	void (*hold)(void *arg);
	void (*let_go)(void *arg);

	/* The stamp of this moment; and has such a stamp passed? */
	uint64_t (*moment)(void *arg);
	bool (*has_passed)(void *arg, uint64_t moment);

	/* The wall clock, in seconds since formatting. */
	int64_t (*wall_s)(void *arg);

	/* The block's access hint is this, [HINT]; only in a region that has them. */
	void (*hint)(void *arg, uint64_t block_off, uint16_t hint);
};

struct reach {
	const struct layout *layout;
	const struct reach_calls *calls;
	void *arg;
};

/* What a running server reaches its region with; all three stay the caller's. */
struct reach_region {
	struct region *region;
	struct sessions *sessions;
	struct sessions_worker *worker; /* counts for G between hold and let_go */
};

void reach_region(struct reach *reach, struct reach_region *of);

static inline const void *
reach_at(const struct reach *reach, uint64_t off, uint64_t len)
{
	return reach->calls->at(reach->arg, off, len);
}

/* A word of bytes that others may be changing. */
static inline uint64_t
reach_word(const void *bytes)
{
	return atomic_load_explicit((const _Atomic uint64_t *)bytes, memory_order_relaxed);
}

static inline uint8_t
reach_entry(const struct reach *reach, uint64_t block_off)
{
	const _Atomic uint8_t *entry = reach_at(reach, layout_map_off(reach->layout, block_off), 1);
	return atomic_load_explicit(entry, memory_order_relaxed) & LAYOUT_MARK_MASK;
}

#endif
