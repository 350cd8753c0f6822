/* SPDX-License-Identifier: BSD-2-Clause */
/* See loop.h. */
#include "tests/fuzz/loop.h"

#include <errno.h>

#include "tests/fuzz/fuzz.h"

#define SETTLE_MAX 100000u

static void
start(struct loop *loop, struct loop_op *op, enum loop_kind kind, int fd, loop_done_fn done)
{
	fuzz_must(op->state == LOOP_IDLE);
	op->kind = kind;
	op->fd = fd;
	op->done = done;
	op->state = LOOP_FLYING;
	TAILQ_INSERT_TAIL(&loop->ops, op, entry);
}

static void
complete(struct loop *loop, struct loop_op *op, int result)
{
	TAILQ_REMOVE(&loop->ops, op, entry);
	op->state = LOOP_IDLE;
	op->done(op, result);
}

static struct loop_op *
find(const struct loop *loop, enum loop_kind kind, int fd)
{
	struct loop_op *op;
	TAILQ_FOREACH(op, &loop->ops, entry)
	{
		if (op->kind == kind && op->fd == fd && op->state == LOOP_FLYING)
			return op;
	}
	return NULL;
}

/* Something that is over without the target's doing: it was cancelled, or the socket takes it. */
static struct loop_op *
find_over(const struct loop *loop)
{
	struct loop_op *op;
	TAILQ_FOREACH(op, &loop->ops, entry)
	{
		if (op->state == LOOP_CANCELLING || op->kind == LOOP_SEND)
			return op;
	}
	return NULL;
}

static void
settle(struct loop *loop)
{
	struct loop_op *op;
	for (unsigned i = 0; (op = find_over(loop)); i++) {
		fuzz_must(i < SETTLE_MAX);
		if (op->state == LOOP_CANCELLING) {
			complete(loop, op, -ECANCELED);
			continue;
		}
		loop->sent(op->fd, op->buf, op->len);
		complete(loop, op, (int)op->len);
	}
}

void
fuzz_loop_arrive(struct loop *loop, int fd, const void *bytes, size_t len)
{
	struct loop_op *op;
	settle(loop);
	while (len && (op = find(loop, LOOP_RECV, fd))) {
		size_t n = len < op->len ? len : op->len;
		fuzz_must(n > 0);
		memcpy(op->buf, bytes, n);
		bytes = (const char *)bytes + n;
		len -= n;
		complete(loop, op, (int)n);
		settle(loop);
	}
}

void
fuzz_loop_hang_up(struct loop *loop, int fd)
{
	struct loop_op *op = find(loop, LOOP_RECV, fd);
	if (op)
		complete(loop, op, 0);
	settle(loop);
}

void
fuzz_loop_pass_time(struct loop *loop)
{
	struct loop_op *op, *last = TAILQ_LAST(&loop->ops, loop_ops), *next;
	for (op = TAILQ_FIRST(&loop->ops); op; op = next) {
		next = op == last ? NULL : TAILQ_NEXT(op, entry);
		if (op->kind == LOOP_TIMER && op->state == LOOP_FLYING)
			complete(loop, op, 0);
	}
	settle(loop);
}

/* ---- common/loop.h ---- */

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
	(void)delay_ms;
	start(loop, op, LOOP_TIMER, -1, done);
}

void
loop_cancel(struct loop *loop, struct loop_op *op)
{
	(void)loop;
	if (op->state != LOOP_IDLE)
		op->state = LOOP_CANCELLING;
}

int
loop_listen(struct loop *loop, struct loop_listener *listener, int fd)
{
	listener->loop = loop;
	listener->fd = fd;
	return 0;
}

void
loop_listener_close(struct loop_listener *listener)
{
	(void)listener;
}

/* ---- What no target comes to: nothing is written to files, and nothing set up ---- */

void
loop_write(struct loop *loop, struct loop_op *op, int fd, const void *buf, size_t len, uint64_t off,
	   loop_done_fn done)
{
	(void)buf, (void)len, (void)off;
	start(loop, op, LOOP_WRITE, fd, done);
}

void
loop_fsync(struct loop *loop, struct loop_op *op, int fd, loop_done_fn done)
{
	start(loop, op, LOOP_FSYNC, fd, done);
}
