/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A session's registered memory: a fixed part (scratch of the operations, the allocator's window),
 * and two pools of pages for blocks too large for the scratch, one for what goes out and one for
 * what comes in. Two, so that an operation that holds outgoing memory can always get incoming
 * memory sooner or later: those that hold incoming memory never wait for more.
 */
#ifndef RKV_CLIENT_ARENA_H
#define RKV_CLIENT_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "common/fabric.h"

#define ARENA_PAGE 4096u

enum arena_side { ARENA_OUT = 0, ARENA_IN = 1 };

struct arena_pool {
	unsigned char *base;
	size_t n_pages;
	size_t n_free;
	uint32_t *run; /* at the first page of a run in use: its pages; 0: a free page */
	size_t cursor;
};

struct arena {
	unsigned char *base; /* page-aligned; not inherited by fork */
	size_t len;
	size_t fixed_len;
	uint32_t key; /* for pieces, once registered */
	struct fab *fab;
	struct arena_pool pool[2];
};

/* fixed_len bytes, zeroed, and pool_len for each pool. Failure: ERR_NOMEM. */
int arena_create(struct arena *arena, size_t fixed_len, size_t pool_len);
int arena_register(struct arena *arena, struct fab *fab);
void arena_destroy(struct arena *arena);

/* A run of pages that holds len bytes, or NULL: none is free now. */
void *arena_take(struct arena *arena, enum arena_side side, size_t len);
void arena_give(struct arena *arena, enum arena_side side, void *run);

#endif
