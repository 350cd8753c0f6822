/* SPDX-License-Identifier: BSD-2-Clause */
/* See verbs_pair.h. */
#include "tests/fabric/verbs_pair.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"

static const struct log stderr_log = {
	.sink = log_to_stderr, .arg = (void *)(uintptr_t) "# test", .max_level = LOG_ERROR};

static int
admit(void *arg, const struct wire_cm_request *request, struct verbs_peer *peer,
      char reason[sizeof(((struct wire_cm_reject *)NULL)->reason)])
{
	struct verbs_side *side = arg;
	side->last_request = *request;
	if (memcmp(request->token, side->offer.token, sizeof(request->token)) != 0) {
		snprintf(reason, sizeof(((struct wire_cm_reject *)NULL)->reason),
			 "the token is not known");
		return ERR_PERM;
	}
	if (side->refusal) {
		snprintf(reason, sizeof(((struct wire_cm_reject *)NULL)->reason),
			 "not while the test is running");
		return side->refusal;
	}
	unsigned i = 0;
	while (i < VERBS_PEERS_MAX && side->peers[i])
		i++;
	if (i == VERBS_PEERS_MAX)
		return ERR_NOMEM;
	if (side->is_read_only)
		verbs_peer_restrict(peer);
	side->peers[i] = peer;
	atomic_fetch_add(&side->n_admitted, 1);
	return 0;
}

static void
lost(void *arg, struct verbs_peer *peer)
{
	struct verbs_side *side = arg;
	verbs_peer_destroy(peer); /* allowed, and changes nothing */
	for (unsigned i = 0; i < VERBS_PEERS_MAX; i++)
		if (side->peers[i] == peer)
			side->peers[i] = NULL;
	if (side->on_lost)
		side->on_lost(side);
	atomic_fetch_add(&side->n_lost, 1);
}

static void *
serve(void *arg)
{
	struct verbs_side *side = arg;
	struct pollfd readable = {.fd = verbs_server_fd(side->server), .events = POLLIN};
	while (!atomic_load(&side->stop)) {
		poll(&readable, 1, 10);
		pthread_mutex_lock(&side->mutex);
		verbs_server_dispatch(side->server);
		pthread_mutex_unlock(&side->mutex);
	}
	return NULL;
}

void
verbs_side_run(struct verbs_side *side)
{
	atomic_store(&side->stop, false);
	side->has_thread = pthread_create(&side->thread, NULL, serve, side) == 0;
}

void
verbs_side_halt(struct verbs_side *side)
{
	if (!side->has_thread)
		return;
	atomic_store(&side->stop, true);
	pthread_join(side->thread, NULL);
	side->has_thread = false;
}

void
verbs_side_cut(struct verbs_side *side)
{
	pthread_mutex_lock(&side->mutex);
	for (unsigned i = 0; i < VERBS_PEERS_MAX; i++) {
		verbs_peer_destroy(side->peers[i]);
		side->peers[i] = NULL;
	}
	pthread_mutex_unlock(&side->mutex);
}

static int
choose(struct verbs_choice *ret_choice)
{
	const char *address = getenv("RKV_VERBS_ADDRESS");
	unsigned n;
	char reason[NET_REASON_MAX];
	memset(ret_choice, 0, sizeof(*ret_choice));
	if (!address)
		return 0;
	return net_parse(address, 0, &ret_choice->address, 1, &n, reason);
}

int
verbs_side_start(struct verbs_side *side, uint64_t len, const struct verbs_choice *choice)
{
	struct verbs_choice own;
	const struct verbs_events events = {.admit = admit, .lost = lost, .arg = side};
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	memset(side, 0, sizeof(*side));
	pthread_mutex_init(&side->mutex, NULL);
	side->log = stderr_log;
	side->len = (len + page - 1) / page * page;
	side->memory = mmap(NULL, side->len, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (side->memory == MAP_FAILED)
		return ERR_NOMEM;
	int r = choice ? 0 : choose(&own);
	if (!r)
		r = verbs_device_open(choice ? choice : &own, &side->device, side->reason);
	if (!r)
		r = verbs_server_create(side->device, side->memory, side->len, &events, &side->log,
					&side->server, side->reason);
	if (r) {
		verbs_side_stop(side);
		return r;
	}
	memset(side->offer.token, 0x5a, sizeof(side->offer.token));
	verbs_server_offer(side->server, &side->offer);
	/* As long as the test asked for; what the rounding added nobody reaches. */
	side->offer.len = len;
	return 0;
}

void
verbs_side_stop(struct verbs_side *side)
{
	verbs_side_halt(side);
	verbs_server_destroy(side->server);
	verbs_device_close(side->device);
	munmap(side->memory, side->len);
	pthread_mutex_destroy(&side->mutex);
}

int
verbs_reach(struct verbs_side *side, const struct log *log, unsigned n, uint32_t depth,
	    struct conf_pair *ret_pair)
{
	struct fab *fab;
	int r = verbs_open_fabric(log, &fab);
	return r ? r : conf_reach(fab, &side->offer, n, depth, ret_pair);
}

static void
pair_close(struct conf_pair *pair)
{
	struct verbs_side *side = pair->own;
	conf_leave(pair);
	verbs_side_stop(side);
	free(side);
}

static int
pair_open(uint64_t len, unsigned n, uint32_t depth, struct conf_pair *ret_pair)
{
	struct verbs_side *side = calloc(1, sizeof(*side));
	if (!side)
		return ERR_NOMEM;
	int r = verbs_side_start(side, len, NULL);
	if (r) {
		printf("# %s\n", side->reason);
		free(side);
		return r;
	}
	verbs_side_run(side);
	r = verbs_reach(side, &stderr_log, n, depth, ret_pair);
	if (r) {
		verbs_side_stop(side);
		free(side);
		return r;
	}
	ret_pair->own = side;
	return 0;
}

const struct conf_factory verbs_factory = {
	.name = "verbs",
	.open = pair_open,
	.close = pair_close,
};
