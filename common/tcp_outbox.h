/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bytes of one connection that wait to be sent: those put in are copied, and references to longer
 * stretches of memory stand between them. No system call; one thread at a time.
 */
#ifndef RKV_COMMON_TCP_OUTBOX_H
#define RKV_COMMON_TCP_OUTBOX_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct tcp_reference {
	size_t before; /* index of the copied byte that it stands before */
	const unsigned char *at;
	size_t len;
};

struct tcp_outbox {
	unsigned char *bytes; /* those at begin..end - 1 wait */
	size_t capacity;
	size_t begin;
	size_t end;
	struct tcp_reference *refs; /* a ring */
	uint32_t n_refs_max;        /* a power of two */
	uint32_t ref_first;         /* modulo 2^32, as ref_end */
	uint32_t ref_end;
	size_t n_waiting; /* bytes, with those referred to */
};

/* Room for so many bytes and, at least, references at a time. Failure: ERR_NOMEM. */
int tcp_outbox_init(struct tcp_outbox *outbox, size_t n_bytes, uint32_t n_refs);
void tcp_outbox_free(struct tcp_outbox *outbox); /* a zeroed one too */

/* len bytes to be filled in; the caller keeps within what tcp_outbox_init was told. */
unsigned char *tcp_outbox_room(struct tcp_outbox *outbox, size_t len);

/* Memory that stays as it is until it is sent, or no more to be sent. */
void tcp_outbox_refer(struct tcp_outbox *outbox, const void *at, size_t len);

/* The first bytes that wait, in at most max stretches; returns how many. */
unsigned tcp_outbox_list(const struct tcp_outbox *outbox, struct iovec *iov, unsigned max);

/* The first n bytes have been sent. */
void tcp_outbox_sent(struct tcp_outbox *outbox, size_t n);

/* Nothing of it will be sent. */
void tcp_outbox_clear(struct tcp_outbox *outbox);

#endif
