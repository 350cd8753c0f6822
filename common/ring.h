/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * io_uring's rings: how all of ours are opened and closed, and the sentence for one that is
 * refused.
 */
#ifndef RKV_COMMON_RING_H
#define RKV_COMMON_RING_H

#include <liburing.h>
#include <stddef.h>

#define RING_REASON_MAX 768u /* a sentence, NUL included */

/*
 * As io_uring_queue_init_params. Returns 0 or an errno; ENOSYS also for a kernel before 5.7, where
 * each connection that is silent would hold a kernel thread. A ring may pass from thread to thread
 * as the parameters allow.
 */
int ring_open(struct io_uring *ring, unsigned n_entries, struct io_uring_params *params);

void ring_close(struct io_uring *ring);

/* The failure (ERR_PERM, ERR_NOMEM, ERR_CONN) that ring_open's errno is: errno, cause, remedy. */
int ring_refused(int error, char *reason, size_t size);

/* Reads kernel.io_uring_disabled; -1: this kernel has no such switch. */
int ring_disabled(void);

#endif
