/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The sweeper: takes values out of the index whose time is over, so that their memory comes back
 * though nobody asks for them. The scrubber shows it each live block that it comes by.
 *
 * A value has expired for a client when the client's wall clock says so; the sweeper waits a second
 * longer by the server's (LIMIT_SKEW_S), so that no client whose clock is right to a second finds a
 * value gone before its time. Nothing else depends on when it comes by, or whether.
 */
#ifndef RKV_SERVER_EXPIRE_H
#define RKV_SERVER_EXPIRE_H

#include "server/blocks.h"

/* Is the block over, for everybody whose clock is right to a second? */
bool expire_is_over(const struct reach *reach, const struct block_header *h);

/*
 * Takes out of its slot the word of a live block that is over; the caller has held since it looked.
 * Returns as unlink_word: 0: done.
 */
int expire_block(const struct reach *reach, const struct blocks_look *look);

#endif
