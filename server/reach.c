/* SPDX-License-Identifier: BSD-2-Clause */
/* The running server's side of reach.h. */
#include "server/reach.h"

#include <time.h>

#include "server/region.h"
#include "server/sessions.h"

static struct region *
region_of(void *arg)
{
	return ((struct reach_region *)arg)->region;
}

static struct sessions *
sessions_of(void *arg)
{
	return ((struct reach_region *)arg)->sessions;
}

static const void *
at(void *arg, uint64_t off, uint64_t len)
{
	(void)len;
	return (const char *)pool_base(region_of(arg)->pool) + off;
}

static int
cas(void *arg, uint64_t off, uint64_t expect, uint64_t swap, uint64_t *ret_found)
{
	return region_cas(region_of(arg), off, expect, swap, ret_found);
}

static void
mark(void *arg, uint64_t block_off, uint32_t tag)
{
	region_mark(region_of(arg), block_off, tag);
}

static void
hint(void *arg, uint64_t block_off, uint16_t value)
{
	region_hint(region_of(arg), block_off, value);
}

static void
hold(void *arg)
{
	sessions_work_begin(sessions_of(arg), ((struct reach_region *)arg)->worker);
}

static void
let_go(void *arg)
{
	sessions_work_end(((struct reach_region *)arg)->worker);
}

static uint64_t
moment(void *arg)
{
	return sessions_moment(sessions_of(arg));
}

static bool
has_passed(void *arg, uint64_t stamp)
{
	return sessions_g(sessions_of(arg)) > stamp;
}

static int64_t
wall_s(void *arg)
{
	return (int64_t)time(NULL) - (int64_t)region_of(arg)->layout.formatted_s;
}

void
reach_region(struct reach *reach, struct reach_region *of)
{
	static const struct reach_calls calls = {at,     cas,        mark,   hold, let_go,
						 moment, has_passed, wall_s, hint};
	*reach = (struct reach){.layout = &of->region->layout, .calls = &calls, .arg = of};
}
