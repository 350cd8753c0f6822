/* SPDX-License-Identifier: BSD-2-Clause */
/* Proving and being proven to: identity.h. */
#include "client/identity.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"

/* ---- Options ---- */

static const size_t texts[] = {
	offsetof(struct rkv_options, tenant),       offsetof(struct rkv_options, secret_file),
	offsetof(struct rkv_options, tls_ca_file),  offsetof(struct rkv_options, tls_cert_file),
	offsetof(struct rkv_options, tls_key_file), offsetof(struct rkv_options, tls_server_name),
};
#define N_TEXTS (sizeof(texts) / sizeof(texts[0]))

static const char **
text_of(struct rkv_options *options, size_t i)
{
	return (const char **)(void *)((char *)options + texts[i]);
}

/* What is wrong with the texts together; NULL: nothing. */
static const char *
contradiction(const struct rkv_options *o)
{
	if (!o->tenant != !o->secret_file)
		return "a tenant and the file with its secret go together: give both";
	if (o->tenant && (!o->tenant[0] || strlen(o->tenant) >= LIMIT_TENANT_MAX))
		return "a tenant's name has 1 to 63 characters";
	if (!o->tls_ca_file && (o->tls_cert_file || o->tls_key_file || o->tls_server_name))
		return "TLS needs the CA that the server's certificate is of: give tls_ca_file";
	if (o->tls_server_name && strlen(o->tls_server_name) >= NET_HOST_MAX)
		return "tls_server_name is too long";
	return NULL;
}

int
identity_copy(struct rkv_options *options, char reason[NET_REASON_MAX])
{
	const char *wrong = contradiction(options);
	bool is_whole = true;
	for (size_t i = 0; i < N_TEXTS; i++) {
		const char **text = text_of(options, i);
		if (!*text)
			continue;
		*text = wrong ? NULL : strdup(*text);
		is_whole &= *text != NULL;
	}
	if (wrong)
		snprintf(reason, NET_REASON_MAX, "options: %s", wrong);
	else if (!is_whole)
		snprintf(reason, NET_REASON_MAX, "no memory is left for the options");
	if (wrong)
		return ERR_INVALID;
	return is_whole ? 0 : ERR_NOMEM;
}

void
identity_free(struct rkv_options *options)
{
	for (size_t i = 0; i < N_TEXTS; i++) {
		free((void *)(uintptr_t)*text_of(options, i));
		*text_of(options, i) = NULL;
	}
}

/* ---- TLS ---- */

static int
await_handshake(struct channel *channel, int64_t deadline_ns, char reason[NET_REASON_MAX])
{
	while (!tls_is_up(channel->tls)) {
		if (channel_flush(channel)) {
			snprintf(reason, NET_REASON_MAX, "the server closed the connection");
			return ERR_CONN;
		}
		int rc = net_wait(channel->fd, POLLIN, deadline_ns);
		if (rc) {
			snprintf(reason, NET_REASON_MAX,
				 "connected, but the server did not shake hands by TLS in time");
			return rc;
		}
		rc = channel_unseal(channel, reason);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int
identity_secure(const struct rkv_client *client, struct channel *channel, int64_t deadline_ns,
		char reason[NET_REASON_MAX])
{
	const struct rkv_options *o = &client->options;
	const struct tls_files files = {o->tls_ca_file, o->tls_cert_file, o->tls_key_file};
	struct tls_context *context;
	if (!o->tls_ca_file)
		return 0;
	int rc = tls_client_context(&files,
				    o->tls_server_name ? o->tls_server_name : client->server.host,
				    &context, reason);
	if (rc)
		return rc;
	channel->tls = tls_new(context);
	tls_context_free(context);
	if (!channel->tls) {
		snprintf(reason, NET_REASON_MAX, "no memory is left for TLS");
		return ERR_NOMEM;
	}
	rc = await_handshake(channel, deadline_ns, reason);
	if (rc == ERR_CORRUPT) {
		snprintf(reason, NET_REASON_MAX,
			 "the server does not speak TLS at this port: leave --tls-ca (tls_ca_file) "
			 "out, or start kv-server with --tls-cert and --tls-key");
		return ERR_PERM;
	}
	return rc;
}

/* ---- Proofs ---- */

int
identity_introduce(struct identity *identity, const struct rkv_client *client,
		   struct wire_hello *hello, char reason[NET_REASON_MAX])
{
	const struct rkv_options *o = &client->options;
	*identity = (struct identity){.client = client};
	if (!o->tenant)
		return 0;
	int rc = secret_load(o->secret_file, &identity->secret, reason);
	if (rc)
		return rc;
	memcpy(hello->tenant, o->tenant, strlen(o->tenant));
	if (auth_nonce(hello->nonce))
		return 0;
	snprintf(reason, NET_REASON_MAX, "the kernel has no random bytes");
	return ERR_CONN;
}

int
identity_prove(struct identity *identity, const struct wire_hello *hello,
	       const struct wire_challenge *challenge, struct channel *channel,
	       struct wire_proof *ret_proof, char reason[NET_REASON_MAX])
{
	if (!identity->secret.len) {
		snprintf(reason, NET_REASON_MAX,
			 "the server lets nobody in who is not named to it: give a tenant and the "
			 "file with its secret (--tenant, --secret-file)");
		return ERR_PERM;
	}
	identity->said.hello = *hello;
	identity->said.challenge = *challenge;
	identity->has_proved = true;
	if ((!channel->tls || tls_binding(channel->tls, identity->said.binding)) &&
	    auth_client_proof(&identity->secret, &identity->said, ret_proof->proof))
		return 0;
	snprintf(reason, NET_REASON_MAX, "no memory is left to prove who we are");
	return ERR_NOMEM;
}

int
identity_check(const struct identity *identity, const struct wire_welcome *welcome,
	       char reason[NET_REASON_MAX])
{
	unsigned char right[WIRE_PROOF_LEN];
	if (!identity->secret.len)
		return 0;
	if (identity->has_proved &&
	    auth_server_proof(&identity->secret, &identity->said, welcome, right) &&
	    auth_equal(right, welcome->proof, sizeof(right)))
		return 0;
	snprintf(reason, NET_REASON_MAX,
		 identity->has_proved
			 ? "the server does not know the secret of tenant %s: it is not the one it "
			   "should be, or somebody in between changed what it said"
			 : "the server asks for no proof, and gives none that it knows tenant %s: "
			   "leave the tenant out, or start kv-server with --tenants",
		 identity->client->options.tenant);
	return ERR_PERM;
}

void
identity_end(struct identity *identity)
{
	secret_wipe(identity, sizeof(*identity));
}
