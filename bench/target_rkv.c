/* SPDX-License-Identifier: BSD-2-Clause */
/* An rkv server, through the library. */
#include <stdlib.h>
#include <string.h>

#include "bench/target.h"

const char *const target_fabrics[TARGET_FABRICS] = {
	[RKV_FABRIC_AUTO] = "auto",
	[RKV_FABRIC_VERBS] = "verbs",
	[RKV_FABRIC_SHM] = "shm",
	[RKV_FABRIC_TCP] = "tcp",
};

struct rkv_target {
	struct target target;
	struct rkv_client *client;
	uint32_t key_len_max;
};

struct rkv_target_session {
	struct target_session session;
	struct rkv_session *rkv;
};

static int
open_session(struct target *target, struct target_session **ret_session)
{
	struct rkv_target *self = (struct rkv_target *)target;
	struct rkv_target_session *session = calloc(1, sizeof(*session));
	if (session == NULL)
		return RKV_E_NOMEM;
	session->session.target = target;
	int code = rkv_session_open(self->client, &session->rkv);
	if (code < 0) {
		free(session);
		return code;
	}
	*ret_session = &session->session;
	return RKV_OK;
}

static struct rkv_session *
rkv_of(struct target_session *session)
{
	return ((struct rkv_target_session *)session)->rkv;
}

static void
close_session(struct target_session *session)
{
	rkv_session_close(rkv_of(session));
	free(session);
}

static int
submit(struct target_session *session, struct rkv_request *request, uint64_t number)
{
	(void)number;
	return rkv_submit(rkv_of(session), request);
}

static int
poll(struct target_session *session, struct rkv_request **done, int max, uint32_t timeout_ms)
{
	return rkv_poll(rkv_of(session), done, max, timeout_ms);
}

static void
stats(struct target_session *session, struct rkv_stats_values *ret_stats)
{
	rkv_stats(rkv_of(session), ret_stats);
}

static uint64_t
value_size_max(struct target *target)
{
	const uint64_t header = 40; /* of a block, says rkv_limit_values */
	struct rkv_target *self = (struct rkv_target *)target;
	struct rkv_limit_values limits;
	if (rkv_limits(self->client, &limits) != RKV_OK)
		return 0;
	return limits.block_len_max - header - self->key_len_max;
}

static bool
server_cpu_ns(struct target *target, uint64_t *ret_ns)
{
	char text[4096];
	const char *line = "\ncpu_us ";
	if (rkv_server_stats(((struct rkv_target *)target)->client, text, sizeof(text), NULL) < 0)
		return false;
	const char *found = strstr(text, line);
	if (found == NULL)
		return false;
	*ret_ns = strtoull(found + strlen(line), NULL, 10) * 1000;
	return true;
}

static void
close_target(struct target *target)
{
	rkv_close(((struct rkv_target *)target)->client);
	free(target);
}

static void
set_identity(struct rkv_options *options, const struct target_identity *identity)
{
	options->tenant = identity->tenant;
	options->secret_file = identity->secret_file;
	options->tls_ca_file = identity->tls_ca;
	options->tls_cert_file = identity->tls_cert;
	options->tls_key_file = identity->tls_key;
	options->tls_server_name = identity->tls_name;
}

int
target_open_rkv(const struct target_config *config, struct target **ret_target)
{
	struct rkv_options options;
	struct rkv_target *self = calloc(1, sizeof(*self));
	if (self == NULL)
		return RKV_E_NOMEM;
	self->target = (struct target){
		.name = config->server,
		.has_values = true,
		.session_open = open_session,
		.session_close = close_session,
		.submit = submit,
		.poll = poll,
		.stats = stats,
		.value_size_max = value_size_max,
		.server_cpu_ns = server_cpu_ns,
		.close = close_target,
	};
	self->key_len_max = config->key_len_max;
	rkv_options_init(&options);
	options.op_timeout_ms = config->timeout_ms;
	options.depth = config->depth;
	options.cache_bytes = config->cache_bytes;
	options.fabric = config->fabric;
	options.log = config->log;
	set_identity(&options, &config->identity);
	int code = rkv_open(config->server, &options, &self->client);
	if (code < 0) {
		free(self);
		return code;
	}
	*ret_target = &self->target;
	return RKV_OK;
}
