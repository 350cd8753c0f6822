/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A region as a test reaches it, by any fabric.
 */
#ifndef RKV_TESTS_FABRIC_PAIR_H
#define RKV_TESTS_FABRIC_PAIR_H

#include <stdint.h>

#include "common/fabric.h"

#define CONF_ENDPOINTS_MAX 4u
#define CONF_WAIT_NS INT64_C(20000000000) /* no test waits longer for one thing */

/* A region and endpoints to it. */
struct conf_pair {
	struct fab *fab;
	struct fab_region *region;
	struct fab_endpoint *ep[CONF_ENDPOINTS_MAX];
	void *own; /* the factory's */
};

/* A deadline that no test reaches. Any thread. */
int64_t conf_deadline_ns(void);

/* Reaches an offer with n endpoints. 0, or what was the matter: then the fabric is closed too. */
int conf_reach(struct fab *fab, const struct fab_offer *offer, unsigned n, uint32_t depth,
	       struct conf_pair *ret_pair);

/* Disconnects, and closes region and fabric. */
void conf_leave(struct conf_pair *pair);

#endif
