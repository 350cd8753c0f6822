/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The far end of a raw run: memory that this process serves over a fabric, as a kv-server would,
 * but to everybody and with nothing in it. One thread owns a region.
 */
#ifndef RKV_BENCH_RAW_REGION_H
#define RKV_BENCH_RAW_REGION_H

#include <stddef.h>

#include "bench/raw.h"
#include "common/fabric.h"
#include "common/log.h"

struct raw_region;

/* len bytes on that fabric. The log has a sentence for each failure of err.h. */
int raw_region_create(const struct raw_place *place, size_t len, const struct log *log,
		      struct raw_region **ret_region);
void raw_region_destroy(struct raw_region *region); /* NULL is nothing */

const struct fab_offer *raw_region_offer(const struct raw_region *region);

/* The near side of the same fabric. Failure: ERR_NOMEM. */
int raw_region_fabric(const struct raw_region *region, struct fab **ret_fab);

#endif
