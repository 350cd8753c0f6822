/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The event loop: loop.h. An operation is on exactly one list while it is not idle:
 *
 *   start -> queued -> (an SQE is free) flying -> (its CQE) done, idle
 *                          |  loop_cancel
 *                          v
 *                      cancelling -> (SQE of the cancel) flying again -> done(-ECANCELED)
 *
 * One that is cancelled while queued never reaches the kernel. Stopping cancels what flies and
 * turns away what is queued, so that no operation outlives the loop.
 *
 * Listening sockets are never given to the ring: a request holds a reference to its file, and when
 * the process is killed the kernel drops it some time after the process is gone; until then the
 * port could not be bound again. An epoll descriptor holds none, so the ring watches that one
 * instead.
 */
#include "common/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/ring.h"

#define ENTRIES 256
#define CQES_MAX 64
#define ACCEPT_MAX 64 /* connections taken before others have their turn */
#define LOG_EVERY_NS INT64_C(10000000000)
#define REST_MS 100 /* after a failure of accept that waiting may mend */

TAILQ_HEAD(op_list, loop_op);

struct loop {
	struct io_uring ring;
	const struct log *log;
	struct op_list queued;
	struct op_list flying;
	struct op_list cancelling;
	bool stopping;
};

/* ---- Set-up ---- */

static int
check_operations(struct loop *loop)
{
	static const int needed[] = {IORING_OP_RECV,    IORING_OP_SEND,         IORING_OP_POLL_ADD,
				     IORING_OP_TIMEOUT, IORING_OP_ASYNC_CANCEL, IORING_OP_WRITE,
				     IORING_OP_FSYNC};
	struct io_uring_probe *probe = io_uring_get_probe_ring(&loop->ring);
	bool all = probe != NULL;
	for (size_t i = 0; all && i < sizeof(needed) / sizeof(*needed); i++)
		all = io_uring_opcode_supported(probe, needed[i]);
	io_uring_free_probe(probe);
	if (all)
		return 0;
	log_line(loop->log, LOG_ERROR,
		 "io_uring of this kernel lacks operations: Linux 5.7 or later is needed");
	return ERR_CONN;
}

int
loop_create(const struct log *log, struct loop **ret_loop)
{
	struct loop *loop = calloc(1, sizeof(*loop));
	if (!loop)
		return ERR_NOMEM;
	loop->log = log;
	TAILQ_INIT(&loop->queued);
	TAILQ_INIT(&loop->flying);
	TAILQ_INIT(&loop->cancelling);
	struct io_uring_params params = {0};
	int error = ring_open(&loop->ring, ENTRIES, &params);
	if (error) {
		char reason[RING_REASON_MAX];
		free(loop);
		int rc = ring_refused(error, reason, sizeof(reason));
		log_line(log, LOG_ERROR, "%s", reason);
		return rc;
	}
	int rc = check_operations(loop);
	if (rc) {
		loop_destroy(loop);
		return rc;
	}
	*ret_loop = loop;
	return 0;
}

void
loop_destroy(struct loop *loop)
{
	if (!loop)
		return;
	ring_close(&loop->ring);
	free(loop);
}

/* ---- Operations ---- */

static void
start(struct loop *loop, struct loop_op *op, enum loop_kind kind, int fd, loop_done_fn done)
{
	op->kind = kind;
	op->fd = fd;
	op->done = done;
	op->state = LOOP_QUEUED;
	TAILQ_INSERT_TAIL(&loop->queued, op, entry);
}

void
loop_recv(struct loop *loop, struct loop_op *op, int fd, void *buf, size_t len, loop_done_fn done)
{
	op->buf = buf;
	op->len = len;
	start(loop, op, LOOP_RECV, fd, done);
}

void
loop_send(struct loop *loop, struct loop_op *op, int fd, const void *buf, size_t len,
	  loop_done_fn done)
{
	op->buf = (void *)(uintptr_t)buf;
	op->len = len;
	start(loop, op, LOOP_SEND, fd, done);
}

void
loop_poll(struct loop *loop, struct loop_op *op, int fd, unsigned events, loop_done_fn done)
{
	op->events = events;
	start(loop, op, LOOP_POLL, fd, done);
}

void
loop_timer(struct loop *loop, struct loop_op *op, unsigned delay_ms, loop_done_fn done)
{
	op->delay = (struct __kernel_timespec){
		.tv_sec = delay_ms / 1000,
		.tv_nsec = delay_ms % 1000 * INT64_C(1000000),
	};
	start(loop, op, LOOP_TIMER, -1, done);
}

void
loop_write(struct loop *loop, struct loop_op *op, int fd, const void *buf, size_t len, uint64_t off,
	   loop_done_fn done)
{
	op->buf = (void *)(uintptr_t)buf;
	op->len = len;
	op->off = off;
	start(loop, op, LOOP_WRITE, fd, done);
}

void
loop_fsync(struct loop *loop, struct loop_op *op, int fd, loop_done_fn done)
{
	start(loop, op, LOOP_FSYNC, fd, done);
}

void
loop_cancel(struct loop *loop, struct loop_op *op)
{
	if (op->state == LOOP_QUEUED) {
		op->state = LOOP_TURNED_AWAY;
	} else if (op->state == LOOP_FLYING) {
		TAILQ_REMOVE(&loop->flying, op, entry);
		TAILQ_INSERT_TAIL(&loop->cancelling, op, entry);
		op->state = LOOP_CANCELLING;
	}
}

static void
prepare(struct io_uring_sqe *sqe, struct loop_op *op)
{
	switch (op->kind) {
	case LOOP_RECV:
		io_uring_prep_recv(sqe, op->fd, op->buf, op->len, 0);
		break;
	case LOOP_SEND:
		io_uring_prep_send(sqe, op->fd, op->buf, op->len, MSG_NOSIGNAL);
		break;
	case LOOP_POLL:
		io_uring_prep_poll_add(sqe, op->fd, op->events);
		break;
	case LOOP_TIMER:
		io_uring_prep_timeout(sqe, &op->delay, 0, 0);
		break;
	case LOOP_WRITE:
		io_uring_prep_write(sqe, op->fd, op->buf, (unsigned)op->len, op->off);
		break;
	case LOOP_FSYNC:
		io_uring_prep_fsync(sqe, op->fd, 0);
		break;
	}
	io_uring_sqe_set_data(sqe, op);
}

/* The operation ends; its owner may free it in the callback. */
static void
finish(struct op_list *list, struct loop_op *op, int result)
{
	TAILQ_REMOVE(list, op, entry);
	op->state = LOOP_IDLE;
	if (op->kind == LOOP_TIMER && result == -ETIME)
		result = 0;
	op->done(op, result);
}

/* Hands the kernel what waits, as far as the ring has room. */
static void
flush(struct loop *loop)
{
	struct io_uring_sqe *sqe;
	struct loop_op *op;
	while ((op = TAILQ_FIRST(&loop->cancelling)) && (sqe = io_uring_get_sqe(&loop->ring))) {
		if (op->kind == LOOP_TIMER)
			io_uring_prep_timeout_remove(sqe, (uint64_t)(uintptr_t)op, 0);
		else
			io_uring_prep_cancel(sqe, op, 0);
		io_uring_sqe_set_data(sqe, NULL);
		TAILQ_REMOVE(&loop->cancelling, op, entry);
		TAILQ_INSERT_TAIL(&loop->flying, op, entry);
		op->state = LOOP_FLYING;
	}
	while ((op = TAILQ_FIRST(&loop->queued))) {
		if (loop->stopping || op->state == LOOP_TURNED_AWAY) {
			finish(&loop->queued, op, -ECANCELED);
			continue;
		}
		sqe = io_uring_get_sqe(&loop->ring);
		if (!sqe)
			return;
		prepare(sqe, op);
		TAILQ_REMOVE(&loop->queued, op, entry);
		TAILQ_INSERT_TAIL(&loop->flying, op, entry);
		op->state = LOOP_FLYING;
	}
}

static void
dispatch(struct loop *loop, const struct io_uring_cqe *cqe)
{
	struct loop_op *op = io_uring_cqe_get_data(cqe);
	if (!op)
		return; /* of a cancel */
	finish(op->state == LOOP_CANCELLING ? &loop->cancelling : &loop->flying, op, cqe->res);
}

static bool
is_busy(const struct loop *loop)
{
	return !loop->stopping || !TAILQ_EMPTY(&loop->queued) || !TAILQ_EMPTY(&loop->flying) ||
	       !TAILQ_EMPTY(&loop->cancelling);
}

int
loop_run(struct loop *loop)
{
	struct io_uring_cqe *cqe[CQES_MAX];
	for (;;) {
		flush(loop);
		if (!is_busy(loop))
			return 0;
		bool full = !TAILQ_EMPTY(&loop->queued) || !TAILQ_EMPTY(&loop->cancelling);
		int rc = io_uring_submit_and_wait(&loop->ring, full ? 0 : 1);
		if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY) {
			log_line(loop->log, LOG_ERROR, "io_uring_enter: %s", strerror(-rc));
			return ERR_CONN;
		}
		unsigned n = io_uring_peek_batch_cqe(&loop->ring, cqe, CQES_MAX);
		for (unsigned i = 0; i < n; i++) {
			/* A copy: the slot in the ring is given back before the callback runs. */
			struct io_uring_cqe copy = *cqe[i];
			io_uring_cqe_seen(&loop->ring, cqe[i]);
			dispatch(loop, &copy);
		}
	}
}

void
loop_stop(struct loop *loop)
{
	struct loop_op *op;
	loop->stopping = true;
	while ((op = TAILQ_FIRST(&loop->flying)))
		loop_cancel(loop, op);
}

/* ---- Accepting ---- */

static void listener_ready(struct loop_op *op, int result);

#define listener_of(loop_op)                                                                       \
	((struct loop_listener *)(void *)((char *)(loop_op)-offsetof(struct loop_listener, op)))

static void
listener_await(struct loop_listener *listener)
{
	loop_poll(listener->loop, &listener->op, listener->epoll_fd, POLLIN, listener_ready);
}

static void
log_refused(struct loop_listener *listener, int error)
{
	int64_t now = clock_now_ns();
	if (listener->logged_ns && now - listener->logged_ns < LOG_EVERY_NS)
		return;
	listener->logged_ns = now;
	log_line(listener->loop->log, LOG_WARN,
		 "connections are turned away (%llu so far): accept: %s: raise RLIMIT_NOFILE "
		 "(ulimit -n, LimitNOFILE= in a systemd unit)",
		 (unsigned long long)listener->n_refused, strerror(error));
}

static int
take_connection(struct loop_listener *listener)
{
	int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static void
open_spare(struct loop_listener *listener)
{
	if (listener->spare_fd < 0)
		listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Takes one connection with the spare descriptor and lets it go. Returns 0, or -errno. */
static int
turn_away(struct loop_listener *listener, int error)
{
	if (listener->spare_fd < 0)
		return error;
	close(listener->spare_fd);
	listener->spare_fd = -1;
	int fd = take_connection(listener);
	if (fd >= 0) {
		listener->n_refused++;
		log_refused(listener, -error);
		listener->refused(listener, fd);
		close(fd);
	}
	open_spare(listener);
	return fd < 0 ? fd : 0;
}

static void
listener_rested(struct loop_op *op, int result)
{
	struct loop_listener *listener = listener_of(op);
	if (result == -ECANCELED)
		return;
	open_spare(listener);
	listener_await(listener);
}

static void
listener_ready(struct loop_op *op, int result)
{
	struct loop_listener *listener = listener_of(op);
	if (result == -ECANCELED)
		return;
	for (int i = 0; i < ACCEPT_MAX && result >= 0; i++) {
		result = take_connection(listener);
		if (result >= 0)
			listener->accepted(listener, result);
		else if (result == -EMFILE || result == -ENFILE)
			result = turn_away(listener, result);
		else if (result == -ECONNABORTED || result == -EINTR)
			result = 0;
	}
	if (result >= 0 || result == -EAGAIN)
		listener_await(listener);
	else /* out of memory, a network that is down: none is mended by trying at once */
		loop_timer(listener->loop, op, REST_MS, listener_rested);
}

int
loop_listen(struct loop *loop, struct loop_listener *listener, int fd)
{
	struct epoll_event event = {.events = EPOLLIN};
	listener->loop = loop;
	listener->fd = fd;
	listener->spare_fd = -1;
	open_spare(listener);
	listener->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (listener->spare_fd < 0 || listener->epoll_fd < 0 ||
	    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0 ||
	    epoll_ctl(listener->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
		int rc = err_from_errno(errno);
		loop_listener_close(listener);
		return rc;
	}
	listener_await(listener);
	return 0;
}

void
loop_listener_close(struct loop_listener *listener)
{
	if (!listener->loop)
		return;
	if (listener->epoll_fd >= 0)
		close(listener->epoll_fd);
	if (listener->spare_fd >= 0)
		close(listener->spare_fd);
	listener->loop = NULL;
}
