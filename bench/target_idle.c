/* SPDX-License-Identifier: BSD-2-Clause */
/* A target without a store: requests complete in the order in which they came. */
#include <stdlib.h>

#include "bench/target.h"

struct idle_session {
	struct target_session session;
	uint32_t n_done;
	struct rkv_op_stats counts[RKV_OP_COUNT];
	struct rkv_request *done[]; /* depth of them */
};

struct idle_target {
	struct target target;
	uint32_t depth;
};

static int
open_session(struct target *target, struct target_session **ret_session)
{
	uint32_t depth = ((struct idle_target *)target)->depth;
	struct idle_session *session = calloc(1, sizeof(*session) + depth * sizeof(void *));
	if (session == NULL)
		return RKV_E_NOMEM;
	session->session.target = target;
	*ret_session = &session->session;
	return RKV_OK;
}

static void
close_session(struct target_session *session)
{
	free(session);
}

static int
submit(struct target_session *session, struct rkv_request *request, uint64_t number)
{
	struct idle_session *self = (struct idle_session *)session;
	(void)number;
	request->status = RKV_OK;
	self->counts[request->op].n_done++;
	self->done[self->n_done++] = request;
	return RKV_OK;
}

static int
poll(struct target_session *session, struct rkv_request **done, int max, uint32_t timeout_ms)
{
	struct idle_session *self = (struct idle_session *)session;
	int n = (int)self->n_done < max ? (int)self->n_done : max;
	(void)timeout_ms;
	for (int i = 0; i < n; i++)
		done[i] = self->done[i];
	self->n_done = 0; /* callers ask for as many as they have in flight */
	return n;
}

static void
stats(struct target_session *session, struct rkv_stats_values *ret_stats)
{
	struct idle_session *self = (struct idle_session *)session;
	*ret_stats = (struct rkv_stats_values){0};
	for (int i = 0; i < RKV_OP_COUNT; i++)
		ret_stats->op[i] = self->counts[i];
}

static bool
server_cpu_ns(struct target *target, uint64_t *ret_ns)
{
	(void)target;
	(void)ret_ns;
	return false;
}

static uint64_t
value_size_max(struct target *target)
{
	(void)target;
	return UINT64_MAX;
}

static void
close_target(struct target *target)
{
	free(target);
}

int
target_open_idle(const struct target_config *config, struct target **ret_target)
{
	struct idle_target *self = calloc(1, sizeof(*self));
	if (self == NULL)
		return RKV_E_NOMEM;
	self->depth = config->depth;
	self->target = (struct target){
		.name = "nothing",
		.session_open = open_session,
		.session_close = close_session,
		.submit = submit,
		.poll = poll,
		.stats = stats,
		.value_size_max = value_size_max,
		.server_cpu_ns = server_cpu_ns,
		.close = close_target,
	};
	*ret_target = &self->target;
	return RKV_OK;
}
