/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * In the place of common/loop.c: operations wait until the target completes them, so that it says
 * what arrives when, without a system call, and the same each time.
 */
#ifndef RKV_TESTS_FUZZ_LOOP_H
#define RKV_TESTS_FUZZ_LOOP_H

#include "common/loop.h"

struct loop {
	TAILQ_HEAD(loop_ops, loop_op) ops;
	/* What the peer of fd is sent. */
	void (*sent)(int fd, const void *bytes, size_t len);
};

/* Bytes arrive on fd, as far as somebody receives there. */
void fuzz_loop_arrive(struct loop *loop, int fd, const void *bytes, size_t len);

/* The peer of fd has hung up. */
void fuzz_loop_hang_up(struct loop *loop, int fd);

/* All timers are over. */
void fuzz_loop_pass_time(struct loop *loop);

#endif
