/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Mends a region whose bytes are not all of one moment: a file whose machine crashed, with some
 * pages written back and others not, or a copy made while somebody wrote. Nobody else can reach it
 * yet, so that plain stores do.
 *
 * Afterwards each slot is empty or refers to a block that validates and lies in a chunk of its
 * class, unmarked; a key has one slot; every other block of such a chunk is garbage or free, and
 * chunks have no owner. So what is read is right; what was written last may be gone.
 */
#ifndef RKV_SERVER_RECOVER_H
#define RKV_SERVER_RECOVER_H

#include <stdint.h>

#include "proto/layout.h"

struct recover_counts {
	uint64_t n_kept;    /* keys */
	uint64_t n_dropped; /* words that were taken out of their slots */
};

/* base: of a region with this layout. Failure: ERR_NOMEM. */
int recover_region(unsigned char *base, const struct layout *layout,
		   struct recover_counts *ret_counts);

#endif
