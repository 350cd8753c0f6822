/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server half of the shm fabric for tests: a pool, and a thread that hands it out on a unix
 * socket to who knows the token, as kv-server does. Runs in the test's process or in a forked one.
 */
#ifndef RKV_TESTS_FABRIC_SHM_PAIR_H
#define RKV_TESTS_FABRIC_SHM_PAIR_H

#include <pthread.h>

#include "common/fabric_shm.h"
#include "tests/fabric/conformance.h"

struct shm_server {
	struct pool *pool;
	struct shm_share *share;
	struct fab_offer offer; /* what a hello would say */
	int listen_fd;
	pthread_t thread;
};

/* 0 or a failure. */
int shm_server_start(struct shm_server *server, uint64_t len);
void shm_server_stop(struct shm_server *server);

/* conf_reach by the fabric. */
int shm_reach(const struct fab_offer *offer, unsigned n, uint32_t depth,
	      struct conf_pair *ret_pair);

/* A region, served in this process, for the conformance suite. */
extern const struct conf_factory shm_factory;

#endif
