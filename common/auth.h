/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who is there: each side of a control connection proves that it knows the tenant's secret, without
 * saying it. A proof is an HMAC-SHA-256 over all that was said so far, so that it is bound to both
 * nonces, to the versions and sizes, to the tenant's name and, for the server's, to the region it
 * offers; and to the TLS connection that carries it, if there is one: what somebody in between
 * passes on proves nothing. The two sides' proofs differ in their first words, so that none can be
 * sent back. Any thread.
 */
#ifndef RKV_COMMON_AUTH_H
#define RKV_COMMON_AUTH_H

#include <stdbool.h>

#include "common/secret.h"
#include "proto/wire.h"

/* What has been said. binding: of the TLS connection, all 0 without. */
struct auth_said {
	struct wire_hello hello;
	struct wire_challenge challenge;
	unsigned char binding[WIRE_BINDING_LEN];
};

/* Fills a nonce with random bytes. False: the kernel has none. */
bool auth_nonce(unsigned char nonce[WIRE_NONCE_LEN]);

/* The two proofs; welcome->proof is taken as 0. False: libcrypto failed (out of memory). */
bool auth_client_proof(const struct secret *secret, const struct auth_said *said,
		       unsigned char ret_proof[WIRE_PROOF_LEN]);
bool auth_server_proof(const struct secret *secret, const struct auth_said *said,
		       const struct wire_welcome *welcome, unsigned char ret_proof[WIRE_PROOF_LEN]);

/* Are they the same? In a time that does not depend on where they differ. */
bool auth_equal(const unsigned char *a, const unsigned char *b, size_t len);

#endif
