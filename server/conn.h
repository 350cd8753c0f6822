/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A connection in the control loop: reassembles messages from the bytes that come, sends from a
 * bounded buffer, keeps deadlines. What a message is, its owner says. With TLS the messages are
 * those inside it.
 *
 *   open --conn_finish--> finishing (sends what is left, then discards until the peer closes)
 *     \--conn_abort, peer closed, deadline, peer reads too slowly, or writes on and on after
 *        its end--> closing --> closed callback
 *
 * After the closed callback nothing of the connection is under way and its descriptor is closed:
 * the owner may free it there.
 */
#ifndef RKV_SERVER_CONN_H
#define RKV_SERVER_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "common/loop.h"
#include "common/tls.h"
#include "proto/limits.h"

/* A peer that leaves so many bytes unread is dropped, unless its owner sets another out_max. */
#define CONN_OUT_MAX (2u * LIMIT_MESSAGE_MAX)

struct conn;

struct conn_events {
	/*
	 * Bytes of the message that begins with these len bytes, a multiple of 8: 0 = too few to
	 * tell, SIZE_MAX = garbage (the callee has called conn_finish or conn_abort).
	 */
	size_t (*measure)(struct conn *conn, const void *bytes, size_t len);
	/* One whole message, aligned to 8 bytes. */
	void (*message)(struct conn *conn, const void *message, size_t len);
	/* TLS did not come about, or broke: the callee ends the connection. NULL: there is none. */
	void (*insecure)(struct conn *conn, const char *reason);
	void (*closed)(struct conn *conn);
};

/* Connections that wait equally long for their peer, the next to be dropped first. */
struct conn_queue {
	TAILQ_HEAD(, conn) conns;
	int64_t timeout_ns;
	uint64_t n_expired;
};

enum conn_state { CONN_OPEN, CONN_FINISHING, CONN_CLOSING };

struct conn_buffer {
	unsigned char *bytes;
	size_t len;
	size_t cap;
};

struct conn {
	struct loop *loop;
	const struct conn_events *events;
	enum conn_state state;
	int fd;
	bool shut;    /* we have said our last */
	bool is_bare; /* TLS was wanted, but the peer speaks none: its owner says what may go on */
	struct loop_op recv;
	struct loop_op send;
	struct tls *tls;           /* NULL: plain text */
	struct conn_buffer sealed; /* as it came, with TLS */
	struct conn_buffer in;
	size_t out_max;             /* bytes of what waits */
	struct conn_buffer waiting; /* to be sent after: */
	struct conn_buffer sending;
	size_t sent; /* of `sending` */
	size_t n_discarded;
	struct conn_queue *queue;
	int64_t deadline_ns;
	TAILQ_ENTRY(conn) entry;
};

void conn_queue_init(struct conn_queue *queue, unsigned timeout_ms);

/* Drops the connections whose time is over. */
void conn_queue_expire(struct conn_queue *queue, int64_t now_ns);

/* Drops the connection that has waited longest, to make room for others. */
void conn_queue_drop_first(struct conn_queue *queue);

/*
 * Takes over fd and starts to receive, by TLS if a context is given; the peer has queue's time.
 * Failure: ERR_NOMEM; fd is closed then, and the closed callback will not run.
 */
int conn_open(struct conn *conn, struct loop *loop, int fd, const struct tls_context *tls,
	      const struct conn_events *events, struct conn_queue *queue);

/* Gives the peer the time of `queue` from now. */
void conn_await(struct conn *conn, struct conn_queue *queue);

/* Sends, unless the connection is ending. */
void conn_send(struct conn *conn, const void *bytes, size_t len);

/* Sends what is left, then closes; the peer has queue's time to take it. */
void conn_finish(struct conn *conn, struct conn_queue *queue);

/* Closes as soon as nothing is under way. */
void conn_abort(struct conn *conn);

/*
 * From the message callback only: the connection closes, but its descriptor lives on as the
 * caller's. -1: more than this message of len bytes has come.
 */
int conn_hand_over(struct conn *conn, size_t len);

/* Frees buffers and the descriptor; for one that is closed, or after the loop has ended. */
void conn_release(struct conn *conn);

#endif
