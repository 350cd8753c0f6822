/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server half of the tcp fabric for tests: memory, and a thread that dispatches, as kv-server's
 * control loop does. Runs in the test's process or in a forked one.
 */
#ifndef RKV_TESTS_FABRIC_TCP_PAIR_H
#define RKV_TESTS_FABRIC_TCP_PAIR_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/fabric_tcp.h"
#include "tests/fabric/conformance.h"

#define TCP_PEERS_MAX 512u

struct tcp_host {
	unsigned char *base;
	size_t len;
	int listen_fd;
	struct tcp_server *server;
	struct fab_offer offer;
	pthread_t thread;
	atomic_bool stop;
	pthread_mutex_t lock; /* who has it is the control thread; guards what follows */
	struct tcp_peer *peers[TCP_PEERS_MAX];
	struct wire_cm_request last; /* what the last one that was admitted has said */
	unsigned n_peers;
	unsigned n_admitted;
	unsigned n_lost;
	int refusal;       /* 0, or what admit says */
	bool is_read_only; /* who is admitted from now on may only READ */
};

/* As kv-server has them: a client that is held up for a while is not taken for one that stalls. */
extern const struct tcp_options tcp_host_options;

/* 0 or a failure. */
int tcp_host_start(struct tcp_host *host, size_t len, const struct tcp_options *options);
void tcp_host_stop(struct tcp_host *host);

/* Destroys the peers that are there; nothing of them lands when this has returned. */
void tcp_host_destroy_peers(struct tcp_host *host);

/* The 8 aligned bytes at an offset of the region. */
uint64_t tcp_host_word(const struct tcp_host *host, uint64_t roff);

/* What has happened to the host's own numbers. */
unsigned tcp_host_n_peers(struct tcp_host *host);
unsigned tcp_host_n_lost(struct tcp_host *host);
struct tcp_counters tcp_host_counters(struct tcp_host *host);

/* conf_reach by the fabric. */
int tcp_reach(const struct fab_offer *offer, unsigned n, uint32_t depth,
	      struct conf_pair *ret_pair);

/* A region, served in this process, for the conformance suite. */
extern const struct conf_factory tcp_factory;

#endif
