/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A connected socket and the io_uring that drives it, for one thread at a time; which one may
 * change between two calls.
 *
 * BETWEEN TWO CALLS NOTHING IS IN THE RING. A transfer makes only requests that do not wait, or
 * links the one that does to a timeout, and takes all of them back before it returns. So nothing
 * touches the caller's memory later, and a link can pass to another thread, although a request
 * belongs to the thread that made it. (Closing a link may interrupt, once, a system call of threads
 * that have used it: so the kernel takes leave of them.)
 */
#ifndef RKV_COMMON_TCP_LINK_H
#define RKV_COMMON_TCP_LINK_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "common/fabric_tcp.h"
#include "common/tcp_outbox.h"
#include "common/tcp_spin.h"

#define TCP_LINK_STRETCHES 64u /* of memory, in one send */

struct tcp_link {
	int fd; /* once it is open: -1: none; else the link's */
	bool has_ring;
	bool has_fixed_file; /* the ring knows the socket by the number 0 */
	uint64_t n_calls;    /* system calls so far */
	struct tcp_spin spin;
	struct io_uring ring;
	struct msghdr msg;
	struct iovec iov[TCP_LINK_STRETCHES];
};

/* What one system call shall do, two if it waits, and what came of it. */
struct tcp_transfer {
	const struct tcp_outbox *outbox; /* to be sent, as far as the socket takes it; NULL: not */
	struct iovec target;             /* to receive to what is there; no length: nothing */
	/*
	 * > 0: waits so long for something to receive or, if there is no target, until the socket
	 * can be read or written.
	 */
	int64_t wait_ns;
	int sent;     /* bytes, or -errno */
	int received; /* the same; 0: the peer has hung up */
};

/* Is there io_uring? Failures, with a sentence: ERR_PERM, ERR_NOMEM, ERR_CONN. */
int tcp_link_probe(char reason[TCP_REASON_MAX]);

/* A zeroed link; it has no socket yet. Failures as above. */
int tcp_link_open(struct tcp_link *link, char reason[TCP_REASON_MAX]);

/* Takes over a connected socket. */
void tcp_link_take(struct tcp_link *link, int fd);

/* Failure: ERR_CONN: the kernel has run nothing of it; then no more is run. */
int tcp_link_run(struct tcp_link *link, struct tcp_transfer *transfer);

/* No byte goes in or out any more. From any thread. */
void tcp_link_cut(struct tcp_link *link);

/* No byte goes out any more: the peer finds an end behind what it has got. */
void tcp_link_finish(struct tcp_link *link);

/* Also one that is only zeroed, as it was never opened or could not be. */
void tcp_link_close(struct tcp_link *link);

#endif
