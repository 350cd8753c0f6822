/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waiting for a ring's completions without sleeping at once: to put a thread to sleep and to wake
 * it takes longer than an answer over a good network. A wait looks at the ring for a while first,
 * in the ring's own memory, without system calls. Where that is of no use, because answers take
 * longer or the processor is needed by whoever would give them, it is tried ever less often, at
 * last in one wait of 64, and each time again once it was of use.
 */
#ifndef RKV_COMMON_TCP_SPIN_H
#define RKV_COMMON_TCP_SPIN_H

#include <liburing.h>
#include <stdint.h>

/* Kernels from 5.19 on say in the ring that there is work, which the next system call does. */
#ifdef IORING_SETUP_TASKRUN_FLAG
#define TCP_SPIN_SETUP IORING_SETUP_TASKRUN_FLAG
#else
#define TCP_SPIN_SETUP 0
#endif

/* Zeroed: the next wait looks first. */
struct tcp_spin {
	unsigned n_skipped; /* waits that will not look first */
	unsigned n_skips;   /* after the last look that was of no use; 0: it was of use */
	unsigned n_calls;   /* system calls of the last wait */
};

/*
 * As io_uring_submit_and_wait for n > 0 completions; returns what it submitted, or -errno if that
 * is nothing.
 */
int tcp_spin_wait(struct tcp_spin *spin, struct io_uring *ring, unsigned n);

#endif
