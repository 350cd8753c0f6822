/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who this client is, and whether the server is who it should be: the client's half of
 * common/auth.h, and TLS. Files are read at each hello, so that a changed secret or certificate
 * counts at the next connection. The control thread's, but for identity_copy and identity_free.
 */
#ifndef RKV_CLIENT_IDENTITY_H
#define RKV_CLIENT_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "client/channel.h"
#include "client/client.h"
#include "common/auth.h"

/* Replaces the texts of options, the caller's, by copies. Failures: ERR_NOMEM, ERR_INVALID. */
int identity_copy(struct rkv_options *options, char reason[NET_REASON_MAX]);
void identity_free(struct rkv_options *options);

/* One hello's. */
struct identity {
	const struct rkv_client *client;
	struct secret secret; /* len 0: no tenant was given */
	struct auth_said said;
	bool has_proved;
};

/*
 * If TLS was asked for: shakes hands on a connected channel. Failures, with a sentence: CONN,
 * TIMEOUT, PERM, VERSION, INVALID, NOMEM.
 */
int identity_secure(const struct rkv_client *client, struct channel *channel, int64_t deadline_ns,
		    char reason[NET_REASON_MAX]);

/* Reads the secret, and says in the hello who we are. Failures, with a sentence: PERM, INVALID. */
int identity_introduce(struct identity *identity, const struct rkv_client *client,
		       struct wire_hello *hello, char reason[NET_REASON_MAX]);

/* hello: as it was sent. Fills in the proof. Failures, with a sentence: PERM, NOMEM, CONN. */
int identity_prove(struct identity *identity, const struct wire_hello *hello,
		   const struct wire_challenge *challenge, struct channel *channel,
		   struct wire_proof *ret_proof, char reason[NET_REASON_MAX]);

/* Does the welcome come from a server that knows the secret? Failure, with a sentence: PERM. */
int identity_check(const struct identity *identity, const struct wire_welcome *welcome,
		   char reason[NET_REASON_MAX]);

void identity_end(struct identity *identity); /* wipes the secret */

#endif
