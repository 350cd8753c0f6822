/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The data connection of the tcp fabric: one for each session, [ONE-QP]. Little endian, reserved
 * fields 0. It goes to the control port: its magic number tells it from a control connection. A
 * server that cannot take it in at all says so as to anybody there: REFUSED of proto/wire.h.
 *
 *   client                         server
 *   HELLO            ->            whose connection it is
 *                    <-            ACCEPT: what may be reached; or REJECT, and the end
 *   frame            ->            a batch: its operations, then the bytes of its WRITEs
 *   frame            ->
 *                    <-            reply: a status, then the results of READ, CAS and FAA in order
 *
 * Replies come in the order of frames; a frame marked quiet has none. A status other than 0 is the
 * last thing that the server says: it executed nothing of that batch, and ends the connection.
 */
#ifndef RKV_PROTO_WIRE_TCP_H
#define RKV_PROTO_WIRE_TCP_H

#include <assert.h>
#include <stdint.h>

#include "proto/wire.h"

#define WIRE_TCP_MAGIC UINT32_C(0x54564b52) /* "RKVT" */

enum wire_tcp_type { WIRE_TCP_HELLO = 1, WIRE_TCP_ACCEPT = 2, WIRE_TCP_REJECT = 3 };

struct wire_tcp_header {
	uint32_t magic;
	uint16_t version; /* WIRE_VERSION */
	uint16_t type;
	uint32_t len; /* of the whole message, this header included */
	uint32_t reserved;
};
static_assert(sizeof(struct wire_tcp_header) == 16, "tcp header");

/* A HELLO of a later version may be longer, up to this; what is behind ours is skipped. */
#define WIRE_TCP_HELLO_MAX 512u

struct wire_tcp_hello {
	struct wire_tcp_header header;
	uint64_t features;              /* 0: none known yet */
	struct wire_cm_request request; /* as over rdma_cm */
};
static_assert(sizeof(struct wire_tcp_hello) == 56, "tcp hello");

#define WIRE_TCP_READ_ONLY UINT32_C(1)

struct wire_tcp_accept {
	struct wire_tcp_header header;
	uint64_t features;
	uint64_t base; /* 0: offsets are what goes over the wire */
	uint64_t region_len;
	uint32_t r_key;
	uint32_t batch_max; /* operations in one frame */
	uint32_t flags;
	uint32_t reserved;
};
static_assert(sizeof(struct wire_tcp_accept) == 56, "tcp accept");

struct wire_tcp_reject {
	struct wire_tcp_header header;
	int32_t code;     /* a failure of err.h */
	char reason[132]; /* a sentence, NUL-terminated */
};
static_assert(sizeof(struct wire_tcp_reject) == 152, "tcp reject");

#define WIRE_TCP_QUIET UINT16_C(1) /* no reply; only WRITEs */
#define WIRE_TCP_OPS_MAX 8u

struct wire_tcp_frame {
	uint32_t len; /* of the whole frame: this, the operations, the bytes of its WRITEs */
	uint32_t r_key;
	uint32_t sequence; /* repeated in the reply */
	uint16_t n_ops;    /* 1..WIRE_TCP_OPS_MAX */
	uint16_t flags;
};
static_assert(sizeof(struct wire_tcp_frame) == 16, "tcp frame");

struct wire_tcp_op {
	uint64_t roff;
	uint32_t len;
	uint8_t kind; /* enum fab_kind */
	uint8_t reserved[3];
	uint64_t expect;
	uint64_t swap;
};
static_assert(sizeof(struct wire_tcp_op) == 32, "tcp operation");

struct wire_tcp_reply {
	uint32_t len; /* of the whole reply: this and the results */
	uint32_t sequence;
	int32_t status; /* 0, or a failure of err.h and no results */
	uint32_t reserved;
};
static_assert(sizeof(struct wire_tcp_reply) == 16, "tcp reply");

#endif
