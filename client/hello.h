/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The handshake: connect, say hello, compare everything that both sides must agree on, reach the
 * region and check that it is the one that was offered. Nothing that the server sends is believed.
 */
#ifndef RKV_CLIENT_HELLO_H
#define RKV_CLIENT_HELLO_H

#include <stdbool.h>
#include <stdint.h>

#include "client/channel.h"
#include "client/client.h"
#include "common/fabric.h"
#include "proto/layout.h"

/* The server, as one control connection has met it. */
struct hello {
	struct fab_region *region;
	struct layout layout;
	uint64_t region_id;
	uint64_t epoch;
	uint64_t stamp; /* newest at the time */
	bool is_read_only;
};

/*
 * Connects channel (closed before) to client->server. Opens client->fab if it is not open yet, and
 * the region, which is the caller's. On failure the channel is closed, and reason has a sentence
 * that names the server. Failures: CONN, TIMEOUT, VERSION, PERM, CORRUPT, NOMEM.
 */
int hello_connect(struct rkv_client *client, struct channel *channel, int64_t deadline_ns,
		  struct hello *ret_hello, char reason[NET_REASON_MAX]);

#endif
