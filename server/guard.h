/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who may come in: the tenants, the challenge of each connection, and the failures of each address.
 * Called by the loop.
 *
 * A failure is answered and logged, with the address; but once an address has failed GUARD_BURST
 * times it gets no more than one such answer a second. Further failures are only counted: their
 * connections hear nothing, and end at the handshake's deadline. Who knows the secret is let in at
 * once, whatever others at the same address have tried.
 */
#ifndef RKV_SERVER_GUARD_H
#define RKV_SERVER_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/auth.h"
#include "common/log.h"
#include "common/tls.h"
#include "server/tenants.h"

#define GUARD_BURST 16u
#define GUARD_ADDRESSES 256u

struct guard_address {
	char text[48]; /* numeric, without the port */
	int64_t refilled_ns;
	unsigned tokens;
	uint64_t n_silent; /* failures since the last one that was logged */
};

/* What it is made of; "": not given. */
struct guard_files {
	const char *tenants;
	struct tenants_regions regions; /* of the server */
	struct tls_files tls;
};

struct guard {
	const struct log *log;
	struct tls_context *tls; /* NULL: plain text */
	struct tenants *tenants; /* NULL: whoever comes may do everything */
	struct secret nobodys;   /* what those are compared with whom nobody knows */
	struct guard_address address[GUARD_ADDRESSES];
	uint64_t n_failures;
};

/* A connection on its way in. */
struct guard_entry {
	struct auth_said said;
	bool is_challenged;
};

enum guard_verdict { GUARD_LET_IN, GUARD_REFUSE, GUARD_SAY_NOTHING };

/* Failures, with a sentence: as tenants_load, tls_server_context; ERR_CONN: no random bytes. */
int guard_init(struct guard *guard, const struct guard_files *files, const struct log *log,
	       char reason[NET_REASON_MAX]);
void guard_destroy(struct guard *guard);

/* Takes over what a fresh one has been told, and keeps what it has counted itself. */
void guard_replace(struct guard *guard, struct guard *fresh);

/*
 * The challenge for a HELLO, whose header the caller has filled in. tls: the connection's, or NULL.
 * False: no random bytes.
 */
bool guard_challenge(struct guard_entry *entry, const struct wire_hello *hello, struct tls *tls,
		     struct wire_challenge *challenge);

/*
 * Is the proof right? ret_tenant: whose, if GUARD_LET_IN. fd: the connection's, for its address.
 * A tenant that nobody knows costs as much as a wrong secret, and is told the same.
 */
enum guard_verdict guard_judge(struct guard *guard, const struct guard_entry *entry,
			       const struct wire_proof *proof, int fd,
			       const struct tenant **ret_tenant);

#endif
