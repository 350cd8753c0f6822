/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control connection's messages on a non-blocking socket: whole messages in, checked for what
 * proto/wire.h fixes (magic, version, type, length); whole messages out, buffered until the socket
 * takes them. It waits for nothing.
 *
 * One thread receives. Sending is guarded by the client's mutex, except during the hello.
 */
#ifndef RKV_CLIENT_CHANNEL_H
#define RKV_CLIENT_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/net.h"
#include "common/tls.h"
#include "proto/wire.h"

/* Enough for a LEAVE of every session beside keepalives and calls; more waits for no reader. */
#define CHANNEL_OUT_MAX (4 * LIMIT_MESSAGE_MAX)

/* What a server may send. */
union channel_message {
	struct wire_header header;
	struct wire_challenge challenge;
	struct wire_welcome welcome;
	struct wire_refused refused;
	struct wire_joined joined;
	struct wire_session session;
	struct wire_stamp stamp;
	struct wire_snapshot_state snapshot;
	unsigned char bytes[LIMIT_MESSAGE_MAX];
};

struct channel {
	int fd;          /* -1: closed; then nothing else is called but channel_start */
	struct tls *tls; /* NULL: plain text; set after channel_start, freed by channel_close */
	uint32_t n_requests;
	size_t n_taken; /* length of the message at the front that channel_next returned last */
	size_t n_in;
	size_t n_out;
	union channel_message in;
	unsigned char out[CHANNEL_OUT_MAX];
};

/* Takes over a connected socket, with empty buffers. */
void channel_start(struct channel *channel, int fd);

/* Closes the socket, if it is open. */
void channel_close(struct channel *channel);

/* A number for a request that is not a keepalive; never one that a keepalive has. */
uint32_t channel_request(struct channel *channel);

/*
 * Fills in the header of a message of len bytes and sends it, or what the socket does not take at
 * once later (channel_flush). Failure: ERR_CONN: also if the server reads nothing for too long.
 */
int channel_send(struct channel *channel, void *message, size_t len, enum wire_type type,
		 uint32_t request);

/*
 * With TLS: receives once and goes on with the handshake, or opens what came. ERR_AGAIN: no more of
 * a message is here than before. Failures, with a sentence, as tls_read.
 */
int channel_unseal(struct channel *channel, char reason[NET_REASON_MAX]);

/* Sends what waits, as far as the socket takes it. Failure: ERR_CONN. */
int channel_flush(struct channel *channel);

/* Is there something to send once the socket takes it? */
static inline bool
channel_has_output(const struct channel *channel)
{
	return channel->n_out > 0;
}

/*
 * The next whole message, valid until the next call. ERR_AGAIN: it is not all here yet. Failures,
 * with a sentence: ERR_CONN: the server closed the connection, or it broke; ERR_VERSION,
 * ERR_CORRUPT: these bytes are no message for us.
 */
int channel_next(struct channel *channel, const union channel_message **ret_message,
		 char reason[NET_REASON_MAX]);

/* A refusal's code, if it is a failure of err.h that a server may answer with; else ERR_CORRUPT. */
int channel_refusal(const struct wire_refused *refused);

#endif
