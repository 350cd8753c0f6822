/* SPDX-License-Identifier: BSD-2-Clause */
/* See pair.h. */
#include "tests/fabric/pair.h"

#include "common/clock.h"

int64_t
conf_deadline_ns(void)
{
	return clock_now_ns() + CONF_WAIT_NS;
}

int
conf_reach(struct fab *fab, const struct fab_offer *offer, unsigned n, uint32_t depth,
	   struct conf_pair *ret_pair)
{
	struct conf_pair pair = {.fab = fab};
	int r = fab_region_open(fab, offer, conf_deadline_ns(), &pair.region);
	for (unsigned i = 0; i < n && !r; i++)
		r = fab_connect(pair.region, NULL, depth, conf_deadline_ns(), &pair.ep[i]);
	if (r) {
		conf_leave(&pair);
		return r;
	}
	*ret_pair = pair;
	return 0;
}

void
conf_leave(struct conf_pair *pair)
{
	for (unsigned i = 0; i < CONF_ENDPOINTS_MAX; i++)
		fab_disconnect(pair->ep[i]);
	fab_region_close(pair->region);
	fab_close(pair->fab);
}
