/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A connection: conn.h. One receive and at most one send are under way. Memory follows need: a peer
 * that has not said how long its message is gets no more than IN_START bytes.
 */
#include "server/conn.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"

#define IN_START 256u
#define SEALED_CAP 4096u
#define DISCARD_MAX (16u * LIMIT_MESSAGE_MAX) /* of a peer that does not hear that it is over */

static void recv_done(struct loop_op *op, int result);
static void send_done(struct loop_op *op, int result);

#define conn_of(op, member) ((struct conn *)(void *)((char *)(op)-offsetof(struct conn, member)))

/* ---- Deadlines ---- */

void
conn_queue_init(struct conn_queue *queue, unsigned timeout_ms)
{
	TAILQ_INIT(&queue->conns);
	queue->timeout_ns = timeout_ms * CLOCK_NS_PER_MS;
	queue->n_expired = 0;
}

static void
stop_awaiting(struct conn *conn)
{
	if (conn->queue)
		TAILQ_REMOVE(&conn->queue->conns, conn, entry);
	conn->queue = NULL;
}

void
conn_await(struct conn *conn, struct conn_queue *queue)
{
	stop_awaiting(conn);
	conn->queue = queue;
	conn->deadline_ns = clock_now_ns() + queue->timeout_ns;
	TAILQ_INSERT_TAIL(&queue->conns, conn, entry);
}

void
conn_queue_expire(struct conn_queue *queue, int64_t now_ns)
{
	struct conn *conn;
	while ((conn = TAILQ_FIRST(&queue->conns)) && conn->deadline_ns <= now_ns)
		conn_queue_drop_first(queue);
}

void
conn_queue_drop_first(struct conn_queue *queue)
{
	struct conn *conn = TAILQ_FIRST(&queue->conns);
	if (!conn)
		return;
	queue->n_expired++;
	conn_abort(conn);
}

/* ---- Beginning and end ---- */

static int
reserve(struct conn_buffer *buffer, size_t cap)
{
	if (cap <= buffer->cap)
		return 0;
	unsigned char *bytes = realloc(buffer->bytes, cap);
	if (!bytes)
		return ERR_NOMEM;
	buffer->bytes = bytes;
	buffer->cap = cap;
	return 0;
}

static void
receive(struct conn *conn)
{
	struct conn_buffer *buffer = conn->tls ? &conn->sealed : &conn->in;
	loop_recv(conn->loop, &conn->recv, conn->fd, buffer->bytes + buffer->len,
		  buffer->cap - buffer->len, recv_done);
}

static int
make_ready(struct conn *conn, const struct tls_context *tls)
{
	if (tls && !(conn->tls = tls_new(tls)))
		return ERR_NOMEM;
	if (tls && reserve(&conn->sealed, SEALED_CAP))
		return ERR_NOMEM;
	return reserve(&conn->in, IN_START);
}

int
conn_open(struct conn *conn, struct loop *loop, int fd, const struct tls_context *tls,
	  const struct conn_events *events, struct conn_queue *queue)
{
	memset(conn, 0, sizeof(*conn));
	conn->loop = loop;
	conn->fd = fd;
	conn->events = events;
	conn->out_max = CONN_OUT_MAX;
	int rc = make_ready(conn, tls);
	if (rc) {
		conn_release(conn);
		return rc;
	}
	conn_await(conn, queue);
	receive(conn);
	return 0;
}

void
conn_release(struct conn *conn)
{
	stop_awaiting(conn);
	if (conn->fd >= 0)
		close(conn->fd);
	conn->fd = -1;
	tls_free(conn->tls);
	conn->tls = NULL;
	free(conn->sealed.bytes);
	free(conn->in.bytes);
	free(conn->waiting.bytes);
	free(conn->sending.bytes);
	conn->sealed = conn->in = conn->waiting = conn->sending = (struct conn_buffer){0};
}

/* The last thing that callbacks do: the owner may free the connection here. */
static void
close_if_quiet(struct conn *conn)
{
	if (conn->state != CONN_CLOSING || !loop_is_idle(&conn->recv) || !loop_is_idle(&conn->send))
		return;
	conn_release(conn);
	conn->events->closed(conn);
}

/* One of the two is under way or about to return to close_if_quiet. */
void
conn_abort(struct conn *conn)
{
	conn->state = CONN_CLOSING;
	stop_awaiting(conn);
	loop_cancel(conn->loop, &conn->recv);
	loop_cancel(conn->loop, &conn->send);
}

int
conn_hand_over(struct conn *conn, size_t len)
{
	int fd = conn->fd;
	if (conn->in.len != len)
		return -1;
	conn->fd = -1;
	conn_abort(conn);
	return fd;
}

/* ---- Sending ---- */

/* Sends what waits; with nothing left, a finishing connection says so to its peer. */
static void
pump(struct conn *conn)
{
	if (conn->state == CONN_CLOSING || !loop_is_idle(&conn->send))
		return;
	if (conn->sent == conn->sending.len) {
		struct conn_buffer empty = conn->sending;
		empty.len = 0;
		conn->sending = conn->waiting;
		conn->waiting = empty;
		conn->sent = 0;
	}
	if (conn->sending.len)
		loop_send(conn->loop, &conn->send, conn->fd, conn->sending.bytes + conn->sent,
			  conn->sending.len - conn->sent, send_done);
	else if (conn->state == CONN_FINISHING && !conn->shut) {
		conn->shut = true;
		shutdown(conn->fd, SHUT_WR);
	}
}

static void
send_done(struct loop_op *op, int result)
{
	struct conn *conn = conn_of(op, send);
	if (result <= 0)
		conn_abort(conn);
	else
		conn->sent += (size_t)result;
	pump(conn);
	close_if_quiet(conn);
}

static int
enqueue(struct conn *conn, const void *bytes, size_t len)
{
	struct conn_buffer *waiting = &conn->waiting;
	if (waiting->len + len > conn->out_max || reserve(waiting, waiting->len + len))
		return ERR_NOMEM;
	memcpy(waiting->bytes + waiting->len, bytes, len);
	waiting->len += len;
	return 0;
}

/* What TLS has to say joins what waits. */
static int
enqueue_sealed(struct conn *conn)
{
	unsigned char bytes[SEALED_CAP];
	size_t n;
	int rc = 0;
	while (rc == 0 && (n = tls_take(conn->tls, bytes, sizeof(bytes))) > 0)
		rc = enqueue(conn, bytes, n);
	return rc;
}

void
conn_send(struct conn *conn, const void *bytes, size_t len)
{
	if (conn->state != CONN_OPEN)
		return;
	/* To a peer whose handshake is not done nothing can be said. */
	if (conn->tls && tls_write(conn->tls, bytes, len) && tls_is_up(conn->tls)) {
		conn_abort(conn);
		return;
	}
	if (conn->tls ? enqueue_sealed(conn) : enqueue(conn, bytes, len)) {
		conn_abort(conn);
		return;
	}
	pump(conn);
}

void
conn_finish(struct conn *conn, struct conn_queue *queue)
{
	if (conn->state != CONN_OPEN)
		return;
	conn->state = CONN_FINISHING;
	conn_await(conn, queue);
	pump(conn);
}

/* ---- Receiving ---- */

/*
 * Delivers the whole messages there are; returns how many bytes the next one needs, 0: not known.
 */
static size_t
deliver(struct conn *conn)
{
	size_t done = 0, need = 0;
	while (conn->state == CONN_OPEN) {
		size_t left = conn->in.len - done;
		need = conn->events->measure(conn, conn->in.bytes + done, left);
		if (need == 0 || need > left)
			break;
		conn->events->message(conn, conn->in.bytes + done, need);
		done += need;
	}
	if (conn->state != CONN_OPEN)
		done = conn->in.len;
	memmove(conn->in.bytes, conn->in.bytes + done, conn->in.len - done);
	conn->in.len -= done;
	return need;
}

/* Delivers what is in `in`, and makes room for more. */
static void
take_in(struct conn *conn)
{
	size_t need = deliver(conn);
	if (conn->state == CONN_OPEN && reserve(&conn->in, need))
		conn_abort(conn);
}

/* The peer speaks no TLS: what it has said so far is taken as it is. */
static void
go_bare(struct conn *conn, size_t len)
{
	tls_free(conn->tls);
	conn->tls = NULL;
	conn->is_bare = true;
	if (reserve(&conn->in, len)) {
		conn_abort(conn);
		return;
	}
	memcpy(conn->in.bytes, conn->sealed.bytes, len);
	conn->in.len = len;
	take_in(conn);
}

/* Delivers what TLS has opened, as far as it goes. */
static int
open_records(struct conn *conn, char reason[NET_REASON_MAX])
{
	size_t n;
	int rc = 0;
	while (conn->state == CONN_OPEN) {
		rc = tls_read(conn->tls, conn->in.bytes + conn->in.len, conn->in.cap - conn->in.len,
			      &n, reason);
		if (rc)
			return rc;
		conn->in.len += n;
		take_in(conn);
	}
	return rc;
}

/* Opens what was received under TLS. */
static void
unseal(struct conn *conn, size_t len)
{
	char reason[NET_REASON_MAX];
	int rc = tls_receive(conn->tls, conn->sealed.bytes, len);
	if (rc == 0)
		rc = open_records(conn, reason);
	if (conn->state != CONN_OPEN)
		return;
	if (rc == ERR_CORRUPT) {
		go_bare(conn, len);
		return;
	}
	/* Its answer: of the handshake, or an alert that says why there is none. */
	if (rc == ERR_NOMEM || enqueue_sealed(conn))
		conn_abort(conn);
	else if (rc < 0)
		conn->events->insecure(conn, reason);
	pump(conn);
}

/* What comes after the end is of no use; but a peer that goes on for long gets no more time. */
static void
discard(struct conn *conn, size_t len)
{
	conn->n_discarded += len;
	if (conn->n_discarded > DISCARD_MAX)
		conn_abort(conn);
}

static void
recv_done(struct loop_op *op, int result)
{
	struct conn *conn = conn_of(op, recv);
	if (result <= 0) {
		conn_abort(conn);
	} else if (conn->state == CONN_FINISHING) {
		discard(conn, (size_t)result);
	} else if (conn->state == CONN_OPEN && conn->tls) {
		unseal(conn, (size_t)result);
	} else if (conn->state == CONN_OPEN) {
		conn->in.len += (size_t)result;
		take_in(conn);
	}
	if (result > 0 && conn->state != CONN_CLOSING)
		receive(conn);
	close_if_quiet(conn);
}
