/* SPDX-License-Identifier: BSD-2-Clause */
/* What has expired: expire.h. */
#include "server/expire.h"

#include <assert.h>

#include "server/unlink.h"

bool
expire_is_over(const struct reach *reach, const struct block_header *h)
{
	return h->expiry != 0 &&
	       reach->calls->wall_s(reach->arg) > (int64_t)h->expiry + LIMIT_SKEW_S;
}

int
expire_block(const struct reach *reach, const struct blocks_look *look)
{
	assert(look->kind == BLOCKS_LIVE && expire_is_over(reach, &look->header));
	return unlink_word(reach, look->slot_off, look->word);
}
