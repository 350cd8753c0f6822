/* SPDX-License-Identifier: BSD-2-Clause */
/* The client's half of the handshake of a data connection: proto/wire_tcp.h. Any thread. */
#ifndef RKV_COMMON_TCP_HELLO_H
#define RKV_COMMON_TCP_HELLO_H

#include <stdint.h>

#include "common/fabric.h"
#include "common/fabric_tcp.h"
#include "proto/wire_tcp.h"

/*
 * Connects to what the offer names, says the hello, and takes the answer. The socket is
 * non-blocking. Failures, with a sentence: ERR_CONN, ERR_TIMEOUT, ERR_NOMEM, ERR_PERM, ERR_VERSION,
 * ERR_CORRUPT, ERR_INVALID, or the server's own.
 */
int tcp_hello_connect(const struct fab_offer *offer, const struct fab_ticket *ticket,
		      int64_t deadline_ns, int *ret_fd, struct wire_tcp_accept *ret_accept,
		      char reason[TCP_REASON_MAX]);

#endif
