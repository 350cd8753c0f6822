/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One thread's event loop on one io_uring. An *operation* (struct loop_op) is embedded in its owner
 * and started by one of the calls below; its callback runs exactly once for every start, from
 * loop_run. Until then the operation, and memory given to it, must stay where they are. Starting
 * cannot fail: operations that find the ring full wait inside the loop.
 *
 * Everything here is called by the thread that runs the loop (before loop_run: by its creator).
 */
#ifndef RKV_COMMON_LOOP_H
#define RKV_COMMON_LOOP_H

#include <linux/time_types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "common/log.h"

struct loop;
struct loop_op;

/* result: as the system call returns it, or -errno; -ECANCELED after loop_cancel and loop_stop. */
typedef void (*loop_done_fn)(struct loop_op *op, int result);

enum loop_kind { LOOP_RECV, LOOP_SEND, LOOP_POLL, LOOP_TIMER, LOOP_WRITE, LOOP_FSYNC };
enum loop_state { LOOP_IDLE, LOOP_QUEUED, LOOP_TURNED_AWAY, LOOP_FLYING, LOOP_CANCELLING };

/* Zeroed = idle. Only the loop looks inside. */
struct loop_op {
	loop_done_fn done;
	enum loop_kind kind;
	enum loop_state state;
	int fd;
	unsigned events;
	void *buf;
	size_t len;
	uint64_t off;
	struct __kernel_timespec delay;
	TAILQ_ENTRY(loop_op) entry;
};

/*
 * On failure the log has a sentence with errno, cause and remedy. Failures: ERR_PERM, ERR_NOMEM,
 * ERR_CONN (the kernel lacks io_uring or an operation of it).
 */
int loop_create(const struct log *log, struct loop **ret_loop);

/* After loop_run returned, or never ran. NULL is nothing. */
void loop_destroy(struct loop *loop);

/* Runs callbacks until loop_stop was called and no operation is under way. Failure: ERR_CONN. */
int loop_run(struct loop *loop);

/* Cancels every operation; from now on one that is started is cancelled at once. */
void loop_stop(struct loop *loop);

void loop_recv(struct loop *loop, struct loop_op *op, int fd, void *buf, size_t len,
	       loop_done_fn done);
void loop_send(struct loop *loop, struct loop_op *op, int fd, const void *buf, size_t len,
	       loop_done_fn done);
/* events: POLLIN and the like, once; the result is what is ready. */
void loop_poll(struct loop *loop, struct loop_op *op, int fd, unsigned events, loop_done_fn done);
/* Once, after delay_ms; the result is 0. */
void loop_timer(struct loop *loop, struct loop_op *op, unsigned delay_ms, loop_done_fn done);

/* Writes to a file at an offset; like write(2) it may write less. */
void loop_write(struct loop *loop, struct loop_op *op, int fd, const void *buf, size_t len,
		uint64_t off, loop_done_fn done);
/* A file, or a directory: what was written to it is on stable storage when it is done. */
void loop_fsync(struct loop *loop, struct loop_op *op, int fd, loop_done_fn done);

/* Makes the operation complete soon, unless it just did. An idle one stays idle. */
void loop_cancel(struct loop *loop, struct loop_op *op);

static inline bool
loop_is_idle(const struct loop_op *op)
{
	return op->state == LOOP_IDLE;
}

/* ---- Accepting ---- */

/*
 * A listening socket. accepted owns the descriptor it gets. When the process has no descriptor
 * left, connections are taken with a spare one, handed to refused (which may send a word of
 * farewell), and closed: they never stay in the backlog and never make the loop spin.
 */
struct loop_listener {
	struct loop *loop;
	struct loop_op op;
	int fd;
	int epoll_fd; /* watches fd: see loop.c */
	int spare_fd;
	int64_t logged_ns;
	uint64_t n_refused; /* for want of descriptors */
	void (*accepted)(struct loop_listener *listener, int fd);
	void (*refused)(struct loop_listener *listener, int fd);
};

/*
 * Accepts on fd, which stays the caller's. The caller has zeroed the listener and set accepted and
 * refused; they get sockets in blocking mode (io_uring does not wait on others). Failures:
 * ERR_NOMEM, ERR_CONN.
 */
int loop_listen(struct loop *loop, struct loop_listener *listener, int fd);

/* Closes what loop_listen opened, if it was called; after loop_run. */
void loop_listener_close(struct loop_listener *listener);

#endif
