/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server as clients see it, without one: a pool that can be handed out over fuzz_unix, and what
 * is said of it. The pool stays from one input to the next, its superblock is written anew.
 */
#ifndef RKV_TESTS_FUZZ_HOST_H
#define RKV_TESTS_FUZZ_HOST_H

#include "proto/layout.h"
#include "proto/wire.h"
#include "tests/fuzz/sockets.h"

#define HOST_ANSWER_TO UINT32_C(0x80000000) /* the first request of a channel */

/* A good superblock, in the pool, to be changed by the target. */
struct layout_superblock *host_superblock(void);

/* The WELCOME that belongs to it: an answer to the first request. */
struct wire_welcome host_welcome(void);

/* Hands the pool out. */
void host_hand_out(void);

#endif
