/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server's half of the frames of proto/wire_tcp.h: takes in the bytes of one connection as they
 * come, checks each batch as a NIC would, executes it, and writes replies into a buffer. No system
 * call, no allocation. The memory for a connection does not depend on what the peer says: long
 * WRITEs go to the region as they arrive, long READs leave in pieces.
 *
 * An object belongs to one thread at a time; several may work on one region.
 */
#ifndef RKV_COMMON_TCP_FRAMES_H
#define RKV_COMMON_TCP_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/wire_tcp.h"

/* The region that frames reach. */
struct tcp_service {
	unsigned char *base;
	uint64_t len;
	uint32_t r_key;
};

#define TCP_OUT_LEN (UINT32_C(64) << 10) /* bytes of the reply buffer */
/* Bytes that wait in one place until they are enough to go on with. */
#define TCP_CARRY_MAX (WIRE_TCP_OPS_MAX * sizeof(struct wire_tcp_op))

enum tcp_stage { TCP_STAGE_HEADER, TCP_STAGE_OPS, TCP_STAGE_REPLY, TCP_STAGE_RUN };

/* Zeroed, then service and out are set. */
struct tcp_frames {
	const struct tcp_service *service;
	bool is_read_only;
	unsigned char *out; /* TCP_OUT_LEN bytes */
	size_t out_len;     /* of them, to be sent; the owner puts it back to 0 */
	uint64_t n_frames;  /* taken in so far */
	enum tcp_stage stage;
	struct wire_tcp_frame frame;
	struct wire_tcp_op ops[WIRE_TCP_OPS_MAX];
	unsigned op;      /* the one that is executed */
	uint32_t op_done; /* bytes of it that have been moved */
	size_t n_carried;
	unsigned char carry[TCP_CARRY_MAX] __attribute__((aligned(8)));
};

/* Bytes received: what is consumed is cut off at the front. */
struct tcp_input {
	const unsigned char *at;
	size_t len;
};

enum tcp_progress {
	TCP_ON,      /* there is more to do; never returned */
	TCP_HUNGRY,  /* all of the input is consumed */
	TCP_FULL,    /* out has to be sent first */
	TCP_REFUSED, /* a violation; out ends with a reply that says so, if one was asked for */
	TCP_GARBLED, /* this is no frame */
};

/* After the last two the object is not used any more. */
enum tcp_progress tcp_frames_consume(struct tcp_frames *frames, struct tcp_input *input);

#endif
