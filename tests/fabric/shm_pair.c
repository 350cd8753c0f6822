/* SPDX-License-Identifier: BSD-2-Clause */
/* See shm_pair.h. */
#include "tests/fabric/shm_pair.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/log.h"
#include "common/net.h"

static void *
serve(void *arg)
{
	struct shm_server *server = arg;
	for (;;) {
		unsigned char token[SHM_REQUEST_LEN];
		int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			return NULL; /* shut down */
		if (recv(fd, token, sizeof(token), MSG_WAITALL) == (ssize_t)sizeof(token) &&
		    memcmp(token, server->offer.token, sizeof(token)) == 0)
			shm_share_send(server->share, fd, getpid(), false);
		close(fd);
	}
}

int
shm_server_start(struct shm_server *server, uint64_t len)
{
	static atomic_uint n_servers;
	const struct log log = {.sink = log_to_stderr, .arg = (void *)(uintptr_t) "# test"};
	char reason[NET_REASON_MAX];
	memset(server, 0, sizeof(*server));
	int r = pool_create(len, POOL_HUGE_NO, POOL_NODE_ANY, &log, &server->pool);
	if (!r)
		r = shm_share_create(server->pool, &log, &server->share);
	if (r)
		goto fail;
	server->offer.len = len;
	memset(server->offer.token, 0x5a, sizeof(server->offer.token));
	snprintf(server->offer.unix_path, sizeof(server->offer.unix_path), "@rkv-test-%d-%u",
		 getpid(), atomic_fetch_add(&n_servers, 1));
	r = net_unix_listen(server->offer.unix_path, 16, &server->listen_fd, reason);
	if (r == 0 && pthread_create(&server->thread, NULL, serve, server)) {
		close(server->listen_fd);
		r = ERR_NOMEM;
	}
	if (!r)
		return 0;
fail:
	shm_share_destroy(server->share);
	pool_destroy(server->pool);
	return r;
}

void
shm_server_stop(struct shm_server *server)
{
	shutdown(server->listen_fd, SHUT_RDWR);
	pthread_join(server->thread, NULL);
	close(server->listen_fd);
	shm_share_destroy(server->share);
	pool_destroy(server->pool);
}

int
shm_reach(const struct fab_offer *offer, unsigned n, uint32_t depth, struct conf_pair *ret_pair)
{
	struct fab *fab;
	int r = shm_open_fabric(&fab);
	return r ? r : conf_reach(fab, offer, n, depth, ret_pair);
}

static void
pair_close(struct conf_pair *pair)
{
	conf_leave(pair);
	shm_server_stop(pair->own);
	free(pair->own);
}

static int
pair_open(uint64_t len, unsigned n, uint32_t depth, struct conf_pair *ret_pair)
{
	struct shm_server *server = calloc(1, sizeof(*server));
	if (!server)
		return ERR_NOMEM;
	int r = shm_server_start(server, len);
	if (r) {
		free(server);
		return r;
	}
	r = shm_reach(&server->offer, n, depth, ret_pair);
	if (r) {
		shm_server_stop(server);
		free(server);
		return r;
	}
	ret_pair->own = server;
	return 0;
}

const struct conf_factory shm_factory = {
	.name = "shm",
	.open = pair_open,
	.close = pair_close,
};
