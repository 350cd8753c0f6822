/* SPDX-License-Identifier: BSD-2-Clause */
/* Letting in: guard.h. */
#include "server/guard.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "common/clock.h"
#include "common/err.h"

/* ---- Begin and end ---- */

static int
load(struct guard *guard, const struct guard_files *files, char reason[NET_REASON_MAX])
{
	const struct tls_files *tls = &files->tls;
	guard->nobodys.len = LIMIT_SECRET_MIN;
	if (getrandom(guard->nobodys.bytes, LIMIT_SECRET_MIN, 0) != (ssize_t)LIMIT_SECRET_MIN) {
		snprintf(reason, NET_REASON_MAX, "the kernel has no random bytes");
		return ERR_CONN;
	}
	int rc = 0;
	if (files->tenants[0])
		rc = tenants_load(files->tenants, &files->regions, &guard->tenants, reason);
	if (rc == 0 && (tls->cert[0] || tls->key[0] || tls->ca[0]))
		rc = tls_server_context(tls, &guard->tls, reason);
	return rc;
}

int
guard_init(struct guard *guard, const struct guard_files *files, const struct log *log,
	   char reason[NET_REASON_MAX])
{
	*guard = (struct guard){.log = log};
	int rc = load(guard, files, reason);
	if (rc)
		guard_destroy(guard);
	return rc;
}

void
guard_destroy(struct guard *guard)
{
	tenants_free(guard->tenants);
	guard->tenants = NULL;
	tls_context_free(guard->tls);
	guard->tls = NULL;
}

void
guard_replace(struct guard *guard, struct guard *fresh)
{
	guard_destroy(guard);
	guard->tenants = fresh->tenants;
	guard->tls = fresh->tls;
}

/* ---- Addresses ---- */

static void
address_of(int fd, char text[48])
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr);
	if (getpeername(fd, (struct sockaddr *)&addr, &len) < 0 ||
	    getnameinfo((struct sockaddr *)&addr, len, text, 48, NULL, 0, NI_NUMERICHOST) != 0)
		snprintf(text, 48, "an unknown address");
}

/* The address's entry; a new one takes the place of the one that has been quiet for longest. */
static struct guard_address *
find_address(struct guard *guard, const char *text, int64_t now_ns)
{
	struct guard_address *oldest = &guard->address[0];
	for (size_t i = 0; i < GUARD_ADDRESSES; i++) {
		struct guard_address *a = &guard->address[i];
		if (strcmp(a->text, text) == 0)
			return a;
		if (a->refilled_ns < oldest->refilled_ns)
			oldest = a;
	}
	*oldest = (struct guard_address){.refilled_ns = now_ns, .tokens = GUARD_BURST};
	snprintf(oldest->text, sizeof(oldest->text), "%s", text);
	return oldest;
}

/* A token each second, GUARD_BURST at most. */
static bool
take_token(struct guard_address *a, int64_t now_ns)
{
	int64_t more = (now_ns - a->refilled_ns) / CLOCK_NS_PER_S;
	if (more > 0) {
		a->refilled_ns += more * CLOCK_NS_PER_S;
		a->tokens = more < GUARD_BURST ? a->tokens + (unsigned)more : GUARD_BURST;
		if (a->tokens > GUARD_BURST)
			a->tokens = GUARD_BURST;
	}
	if (a->tokens == 0)
		return false;
	a->tokens--;
	return true;
}

static enum guard_verdict
note_failure(struct guard *guard, const struct guard_entry *entry, int fd)
{
	char text[48], name[LIMIT_TENANT_MAX];
	int64_t now_ns = clock_now_ns();
	address_of(fd, text);
	struct guard_address *a = find_address(guard, text, now_ns);
	guard->n_failures++;
	if (!take_token(a, now_ns)) {
		a->n_silent++;
		return GUARD_SAY_NOTHING;
	}
	net_copy_text(name, sizeof(name), entry->said.hello.tenant, LIMIT_TENANT_MAX);
	log_line(guard->log, LOG_WARN,
		 "%s did not prove to be tenant `%s`: there is none, or its secret is another "
		 "(failures from there that were not answered since the last line: %llu)",
		 text, name, (unsigned long long)a->n_silent);
	a->n_silent = 0;
	return GUARD_REFUSE;
}

/* ---- Judging ---- */

bool
guard_challenge(struct guard_entry *entry, const struct wire_hello *hello, struct tls *tls,
		struct wire_challenge *challenge)
{
	if (!auth_nonce(challenge->nonce) || (tls && !tls_binding(tls, entry->said.binding)))
		return false;
	entry->said.hello = *hello;
	entry->said.challenge = *challenge;
	entry->is_challenged = true;
	return true;
}

enum guard_verdict
guard_judge(struct guard *guard, const struct guard_entry *entry, const struct wire_proof *proof,
	    int fd, const struct tenant **ret_tenant)
{
	unsigned char right[WIRE_PROOF_LEN];
	const struct tenant *tenant = tenants_find(guard->tenants, entry->said.hello.tenant);
	const struct secret *secret = tenant ? &tenant->secret : &guard->nobodys;
	bool is_right = auth_client_proof(secret, &entry->said, right) &&
			auth_equal(right, proof->proof, WIRE_PROOF_LEN);
	secret_wipe(right, sizeof(right));
	if (!is_right || !tenant)
		return note_failure(guard, entry, fd);
	*ret_tenant = tenant;
	return GUARD_LET_IN;
}
