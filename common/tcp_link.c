/* SPDX-License-Identifier: BSD-2-Clause */
/* See tcp_link.h. */
#include "common/tcp_link.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/ring.h"

#define RING_ENTRIES 4
#define RETRIES 1000 /* of 1 ms, while the kernel has no memory for a request */

enum request { REQUEST_SEND, REQUEST_RECV, REQUEST_READY, REQUEST_TIMEOUT, N_REQUESTS };

/* ---- The ring ---- */

/* Returns 0 or an errno. */
static int
new_ring(struct io_uring *ring)
{
	/* Who waits for completions asks the kernel; older ones interrupt the thread besides. */
	struct io_uring_params params = {.flags = IORING_SETUP_COOP_TASKRUN | TCP_SPIN_SETUP};
	int error = ring_open(ring, RING_ENTRIES, &params);
	if (error == EINVAL) {
		params = (struct io_uring_params){0};
		error = ring_open(ring, RING_ENTRIES, &params);
	}
	if (!error)
		(void)io_uring_ring_dontfork(ring); /* a child that inherits it does no harm */
	return error;
}

int
tcp_link_probe(char reason[TCP_REASON_MAX])
{
	struct io_uring ring;
	int error = new_ring(&ring);
	if (error)
		return ring_refused(error, reason, TCP_REASON_MAX);
	ring_close(&ring);
	return 0;
}

int
tcp_link_open(struct tcp_link *link, char reason[TCP_REASON_MAX])
{
	link->fd = -1;
	int error = new_ring(&link->ring);
	if (error)
		return ring_refused(error, reason, TCP_REASON_MAX);
	link->has_ring = true;
	return 0;
}

void
tcp_link_take(struct tcp_link *link, int fd)
{
	link->fd = fd;
	/* io_uring does not wait on sockets in non-blocking mode. */
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	link->has_fixed_file = io_uring_register_files(&link->ring, &link->fd, 1) == 0;
}

void
tcp_link_cut(struct tcp_link *link)
{
	(void)shutdown(link->fd, SHUT_RDWR); /* fails if the peer has reset it */
}

void
tcp_link_finish(struct tcp_link *link)
{
	(void)shutdown(link->fd, SHUT_WR);
}

void
tcp_link_close(struct tcp_link *link)
{
	if (!link->has_ring)
		return;
	ring_close(&link->ring);
	if (link->fd >= 0)
		close(link->fd);
}

/* ---- A transfer ---- */

static struct io_uring_sqe *
new_sqe(struct tcp_link *link)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&link->ring);
	assert(sqe); /* nothing else is in it */
	return sqe;
}

static void
name_sqe(struct tcp_link *link, struct io_uring_sqe *sqe, enum request request)
{
	sqe->user_data = request;
	if (request == REQUEST_TIMEOUT || !link->has_fixed_file)
		return;
	sqe->fd = 0;
	sqe->flags |= IOSQE_FIXED_FILE;
}

static void
prepare_send(struct tcp_link *link, const struct tcp_outbox *outbox)
{
	struct io_uring_sqe *sqe = new_sqe(link);
	unsigned n = tcp_outbox_list(outbox, link->iov, TCP_LINK_STRETCHES);
	const int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
	link->msg = (struct msghdr){.msg_iov = link->iov, .msg_iovlen = n};
	if (n == 1)
		io_uring_prep_send(sqe, link->fd, link->iov[0].iov_base, link->iov[0].iov_len,
				   flags);
	else
		io_uring_prep_sendmsg(sqe, link->fd, &link->msg, flags);
	name_sqe(link, sqe, REQUEST_SEND);
}

static struct io_uring_sqe *
prepare_recv(struct tcp_link *link, struct iovec target, int flags)
{
	struct io_uring_sqe *sqe = new_sqe(link);
	io_uring_prep_recv(sqe, link->fd, target.iov_base, target.iov_len, flags);
	name_sqe(link, sqe, REQUEST_RECV);
	return sqe;
}

static void
prepare_wait(struct tcp_link *link, struct iovec target, struct __kernel_timespec *timeout)
{
	struct io_uring_sqe *sqe;
	if (target.iov_len > 0) {
		sqe = prepare_recv(link, target, 0);
	} else {
		sqe = new_sqe(link);
		io_uring_prep_poll_add(sqe, link->fd, POLLIN | POLLOUT);
		name_sqe(link, sqe, REQUEST_READY);
	}
	sqe->flags |= IOSQE_IO_LINK;
	sqe = new_sqe(link);
	io_uring_prep_link_timeout(sqe, timeout, 0);
	name_sqe(link, sqe, REQUEST_TIMEOUT);
}

/* Returns how many requests there are. */
static unsigned
prepare(struct tcp_link *link, const struct tcp_transfer *t, struct __kernel_timespec *timeout)
{
	unsigned n = 0;
	if (t->outbox) {
		prepare_send(link, t->outbox);
		n++;
	}
	if (t->wait_ns > 0) {
		prepare_wait(link, t->target, timeout);
		n += 2;
	} else if (t->target.iov_len > 0) {
		prepare_recv(link, t->target, MSG_DONTWAIT);
		n++;
	}
	return n;
}

static unsigned
reap(struct tcp_link *link, int result[N_REQUESTS])
{
	struct io_uring_cqe *cqe;
	unsigned n = 0;
	for (; io_uring_peek_cqe(&link->ring, &cqe) == 0; n++) {
		result[cqe->user_data] = cqe->res;
		io_uring_cqe_seen(&link->ring, cqe);
	}
	return n;
}

static int
enter(struct tcp_link *link, unsigned n, bool waits)
{
	if (!waits) {
		link->n_calls++;
		return io_uring_submit_and_wait(&link->ring, n);
	}
	int rc = tcp_spin_wait(&link->spin, &link->ring, n);
	link->n_calls += link->spin.n_calls;
	return rc;
}

int
tcp_link_run(struct tcp_link *link, struct tcp_transfer *t)
{
	const struct timespec pause = {.tv_nsec = CLOCK_NS_PER_MS};
	struct __kernel_timespec timeout = {
		.tv_sec = t->wait_ns / CLOCK_NS_PER_S,
		.tv_nsec = t->wait_ns % CLOCK_NS_PER_S,
	};
	int result[N_REQUESTS] = {0};
	bool is_taken = false;
	unsigned n = prepare(link, t, &timeout), n_back = 0, n_failed = 0;
	while (n_back < n) {
		int rc = enter(link, n - n_back, t->wait_ns > 0);
		is_taken |= rc > 0;
		n_back += reap(link, result);
		if (rc >= 0 || rc == -EINTR)
			continue;
		if (!is_taken && ++n_failed == RETRIES)
			return ERR_CONN;
		nanosleep(&pause, NULL);
	}
	t->sent = result[REQUEST_SEND];
	t->received = result[REQUEST_RECV];
	return 0;
}
