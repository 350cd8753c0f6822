/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A session's registered memory: see arena.h. Next-fit over page runs: blocks live for
 * microseconds.
 */
#include "client/arena.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "common/err.h"

static size_t
pages_for(size_t len)
{
	return (len + ARENA_PAGE - 1) / ARENA_PAGE;
}

static int
pool_create(struct arena_pool *pool, unsigned char *base, size_t n_pages)
{
	pool->base = base;
	pool->n_pages = n_pages;
	pool->n_free = n_pages;
	pool->cursor = 0;
	pool->run = calloc(n_pages, sizeof(*pool->run));
	return pool->run ? 0 : ERR_NOMEM;
}

int
arena_create(struct arena *arena, size_t fixed_len, size_t pool_len)
{
	*arena = (struct arena){0};
	arena->fixed_len = pages_for(fixed_len) * ARENA_PAGE;
	pool_len = pages_for(pool_len) * ARENA_PAGE;
	arena->len = arena->fixed_len + 2 * pool_len;
	arena->base =
		mmap(NULL, arena->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (arena->base == MAP_FAILED) {
		arena->base = NULL;
		return ERR_NOMEM;
	}
	(void)madvise(arena->base, arena->len, MADV_DONTFORK);
	unsigned char *pools = arena->base + arena->fixed_len;
	if (pool_create(&arena->pool[ARENA_OUT], pools, pool_len / ARENA_PAGE) ||
	    pool_create(&arena->pool[ARENA_IN], pools + pool_len, pool_len / ARENA_PAGE)) {
		arena_destroy(arena);
		return ERR_NOMEM;
	}
	return 0;
}

int
arena_register(struct arena *arena, struct fab *fab)
{
	if (arena->fab == fab)
		return 0;
	int rc = fab_register(fab, arena->base, arena->len, &arena->key);
	if (rc == 0)
		arena->fab = fab;
	return rc;
}

void
arena_destroy(struct arena *arena)
{
	if (arena->fab)
		fab_deregister(arena->fab, arena->key);
	free(arena->pool[ARENA_OUT].run);
	free(arena->pool[ARENA_IN].run);
	if (arena->base)
		munmap(arena->base, arena->len);
	*arena = (struct arena){0};
}

/* Is [first, first + n) free? If not, *ret_next is where to look on. */
static int
run_is_free(const struct arena_pool *pool, size_t first, size_t n, size_t *ret_next)
{
	for (size_t page = first; page < first + n; page++) {
		if (pool->run[page]) {
			*ret_next = page + pool->run[page];
			return 0;
		}
	}
	return 1;
}

static void *
take_between(struct arena_pool *pool, size_t from, size_t to, size_t n)
{
	/* Starting inside a run in use is impossible: cursor and skips are run boundaries. */
	while (from + n <= to) {
		size_t next;
		if (run_is_free(pool, from, n, &next)) {
			pool->run[from] = (uint32_t)n;
			pool->n_free -= n;
			pool->cursor = from + n;
			return pool->base + from * ARENA_PAGE;
		}
		from = next;
	}
	return NULL;
}

void *
arena_take(struct arena *arena, enum arena_side side, size_t len)
{
	struct arena_pool *pool = &arena->pool[side];
	size_t n = pages_for(len);
	if (n > pool->n_free)
		return NULL;
	void *run = take_between(pool, pool->cursor, pool->n_pages, n);
	return run ? run : take_between(pool, 0, pool->n_pages, n);
}

void
arena_give(struct arena *arena, enum arena_side side, void *run)
{
	struct arena_pool *pool = &arena->pool[side];
	size_t first = (size_t)((unsigned char *)run - pool->base) / ARENA_PAGE;
	size_t n = pool->run[first];
	pool->run[first] = 0;
	pool->n_free += n;
	pool->cursor = first;
}
