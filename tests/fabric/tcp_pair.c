/* SPDX-License-Identifier: BSD-2-Clause */
/* See tcp_pair.h. */
#include "tests/fabric/tcp_pair.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/net.h"
#include "proto/wire.h"

#define BACKLOG 1024
#define LOOK_MS 20 /* how soon the thread sees that it shall stop */

const struct tcp_options tcp_host_options = {.n_responders = 2, .stall_ms = LIMIT_TCP_STALL_MS};

static int
admit(void *arg, const struct wire_cm_request *request, struct tcp_peer *peer,
      char reason[sizeof(((struct wire_cm_reject *)NULL)->reason)])
{
	struct tcp_host *host = arg;
	const size_t reason_len = sizeof(((struct wire_cm_reject *)NULL)->reason);
	bool is_known = memcmp(request->token, host->offer.token, sizeof(request->token)) == 0;
	int rc = is_known ? host->refusal : ERR_PERM;
	if (!rc && host->n_peers == TCP_PEERS_MAX)
		rc = ERR_NOMEM;
	if (rc) {
		snprintf(reason, reason_len, "the test says no");
		return rc;
	}
	if (host->is_read_only)
		tcp_peer_restrict(peer);
	host->last = *request;
	host->peers[host->n_peers++] = peer;
	host->n_admitted++;
	return 0;
}

static void
lost(void *arg, struct tcp_peer *peer)
{
	struct tcp_host *host = arg;
	tcp_peer_destroy(peer); /* as an owner may who ends a session; it is destroyed anyhow */
	host->n_lost++;
	for (unsigned i = 0; i < host->n_peers; i++)
		if (host->peers[i] == peer) {
			host->peers[i] = host->peers[--host->n_peers];
			return;
		}
	abort(); /* nobody it knows */
}

static void *
control_main(void *arg)
{
	struct tcp_host *host = arg;
	struct pollfd p[] = {
		{.fd = tcp_server_fd(host->server), .events = POLLIN},
		{.fd = host->listen_fd, .events = POLLIN},
	};
	while (!atomic_load(&host->stop)) {
		poll(p, 2, LOOK_MS);
		pthread_mutex_lock(&host->lock);
		if (p[1].revents)
			tcp_server_accept(host->server, host->listen_fd);
		tcp_server_dispatch(host->server);
		pthread_mutex_unlock(&host->lock);
	}
	return NULL;
}

static int
serve(struct tcp_host *host, const struct tcp_options *options, char reason[TCP_REASON_MAX])
{
	const struct net_address address = {.host = "127.0.0.1"};
	const struct tcp_events events = {admit, lost, host};
	struct net_address bound;
	int r = net_listen(&address, BACKLOG, &host->listen_fd, &bound, reason);
	if (r)
		return r;
	r = tcp_server_create(host->base, host->len, &events, options, &host->server, reason);
	if (r)
		close(host->listen_fd);
	else
		net_format(&bound, host->offer.tcp_address);
	return r;
}

int
tcp_host_start(struct tcp_host *host, size_t len, const struct tcp_options *options)
{
	char reason[TCP_REASON_MAX];
	memset(host, 0, sizeof(*host));
	host->len = len;
	host->base = aligned_alloc(4096, (len + 4095) & ~(size_t)4095);
	if (!host->base)
		return ERR_NOMEM;
	memset(host->base, 0, len);
	int r = serve(host, options, reason);
	if (r) {
		printf("# %s\n", reason);
		free(host->base);
		return r;
	}
	tcp_server_offer(host->server, &host->offer);
	memset(host->offer.token, 0x5a, sizeof(host->offer.token));
	pthread_mutex_init(&host->lock, NULL);
	if (pthread_create(&host->thread, NULL, control_main, host)) {
		tcp_server_destroy(host->server);
		close(host->listen_fd);
		free(host->base);
		return ERR_NOMEM;
	}
	return 0;
}

void
tcp_host_stop(struct tcp_host *host)
{
	atomic_store(&host->stop, true);
	pthread_join(host->thread, NULL);
	tcp_server_destroy(host->server);
	close(host->listen_fd);
	pthread_mutex_destroy(&host->lock);
	free(host->base);
}

void
tcp_host_destroy_peers(struct tcp_host *host)
{
	pthread_mutex_lock(&host->lock);
	while (host->n_peers > 0)
		tcp_peer_destroy(host->peers[--host->n_peers]);
	pthread_mutex_unlock(&host->lock);
}

uint64_t
tcp_host_word(const struct tcp_host *host, uint64_t roff)
{
	return __atomic_load_n((uint64_t *)(void *)(host->base + roff), __ATOMIC_SEQ_CST);
}

unsigned
tcp_host_n_peers(struct tcp_host *host)
{
	pthread_mutex_lock(&host->lock);
	unsigned n = host->n_peers;
	pthread_mutex_unlock(&host->lock);
	return n;
}

unsigned
tcp_host_n_lost(struct tcp_host *host)
{
	pthread_mutex_lock(&host->lock);
	unsigned n = host->n_lost;
	pthread_mutex_unlock(&host->lock);
	return n;
}

struct tcp_counters
tcp_host_counters(struct tcp_host *host)
{
	struct tcp_counters counters;
	tcp_server_counters(host->server, &counters);
	return counters;
}

int
tcp_reach(const struct fab_offer *offer, unsigned n, uint32_t depth, struct conf_pair *ret_pair)
{
	struct fab *fab;
	int r = tcp_open_fabric(NULL, &fab);
	return r ? r : conf_reach(fab, offer, n, depth, ret_pair);
}

static void
pair_close(struct conf_pair *pair)
{
	conf_leave(pair);
	tcp_host_stop(pair->own);
	free(pair->own);
}

static int
pair_open(uint64_t len, unsigned n, uint32_t depth, struct conf_pair *ret_pair)
{
	struct tcp_host *host = calloc(1, sizeof(*host));
	if (!host)
		return ERR_NOMEM;
	int r = tcp_host_start(host, len, &tcp_host_options);
	if (r) {
		free(host);
		return r;
	}
	r = tcp_reach(&host->offer, n, depth, ret_pair);
	if (r) {
		tcp_host_stop(host);
		free(host);
		return r;
	}
	ret_pair->own = host;
	return 0;
}

const struct conf_factory tcp_factory = {
	.name = "tcp",
	.open = pair_open,
	.close = pair_close,
	.is_slow = true,
};
