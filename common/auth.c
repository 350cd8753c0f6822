/* SPDX-License-Identifier: BSD-2-Clause */
/* Proofs of knowledge: auth.h. */
#include "common/auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <sys/random.h>

#define LABEL_LEN 24u

static const char client_label[LABEL_LEN] = "rkv 1 client's proof";
static const char server_label[LABEL_LEN] = "rkv 1 server's proof";

/* What is authenticated: no field of it has a length of its own, so that it reads in one way. */
struct statement {
	char label[LABEL_LEN];
	struct auth_said said;
	struct wire_welcome welcome; /* 0 in a client's */
};
static_assert(sizeof(struct statement) ==
		      LABEL_LEN + sizeof(struct auth_said) + sizeof(struct wire_welcome),
	      "no padding");
static_assert(sizeof(struct auth_said) ==
		      sizeof(struct wire_hello) + sizeof(struct wire_challenge) + WIRE_BINDING_LEN,
	      "no padding");

bool
auth_nonce(unsigned char nonce[WIRE_NONCE_LEN])
{
	return getrandom(nonce, WIRE_NONCE_LEN, 0) == (ssize_t)WIRE_NONCE_LEN;
}

static bool
prove(const struct secret *secret, const struct statement *statement,
      unsigned char ret_proof[WIRE_PROOF_LEN])
{
	unsigned len = WIRE_PROOF_LEN;
	return HMAC(EVP_sha256(), secret->bytes, (int)secret->len, (const void *)statement,
		    sizeof(*statement), ret_proof, &len) &&
	       len == WIRE_PROOF_LEN;
}

bool
auth_client_proof(const struct secret *secret, const struct auth_said *said,
		  unsigned char ret_proof[WIRE_PROOF_LEN])
{
	struct statement statement = {.said = *said};
	memcpy(statement.label, client_label, LABEL_LEN);
	return prove(secret, &statement, ret_proof);
}

bool
auth_server_proof(const struct secret *secret, const struct auth_said *said,
		  const struct wire_welcome *welcome, unsigned char ret_proof[WIRE_PROOF_LEN])
{
	struct statement statement = {.said = *said, .welcome = *welcome};
	memcpy(statement.label, server_label, LABEL_LEN);
	memset(statement.welcome.proof, 0, sizeof(statement.welcome.proof));
	return prove(secret, &statement, ret_proof);
}

bool
auth_equal(const unsigned char *a, const unsigned char *b, size_t len)
{
	return CRYPTO_memcmp(a, b, len) == 0;
}
