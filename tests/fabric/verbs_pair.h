/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server half of the verbs fabric for tests: a region of this process, and a thread that
 * dispatches, as kv-server's control loop does. On the fake devices of fake_verbs.h, or on a real
 * one: it works with the address in RKV_VERBS_ADDRESS, or with the first that there is.
 */
#ifndef RKV_TESTS_FABRIC_VERBS_PAIR_H
#define RKV_TESTS_FABRIC_VERBS_PAIR_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/fabric_verbs.h"
#include "tests/fabric/conformance.h"

#define VERBS_PEERS_MAX 1024u

struct verbs_side {
	struct verbs_device *device;
	struct verbs_server *server;
	unsigned char *memory;
	size_t len; /* of the region, in whole pages */
	struct fab_offer offer;
	struct log log;
	char reason[VERBS_REASON_MAX];
	pthread_mutex_t mutex; /* held while the thread dispatches: tests may call the server too */
	pthread_t thread;
	bool has_thread;
	atomic_bool stop;
	int refusal;                              /* what admit answers */
	bool is_read_only;                        /* peers are restricted */
	void (*on_lost)(struct verbs_side *side); /* or NULL */
	struct verbs_peer *peers[VERBS_PEERS_MAX];
	struct wire_cm_request last_request;
	atomic_uint n_admitted, n_lost;
};

/* 0 or a failure, whose sentence is in side->reason. choice NULL: by RKV_VERBS_ADDRESS. */
int verbs_side_start(struct verbs_side *side, uint64_t len, const struct verbs_choice *choice);
void verbs_side_stop(struct verbs_side *side);

/* Starts or ends the dispatching thread; without it the test calls verbs_server_dispatch. */
void verbs_side_run(struct verbs_side *side);
void verbs_side_halt(struct verbs_side *side);

/* Destroys all peers, as when their sessions are dead. */
void verbs_side_cut(struct verbs_side *side);

/* A fabric, its region, and n endpoints to a side. */
int verbs_reach(struct verbs_side *side, const struct log *log, unsigned n, uint32_t depth,
		struct conf_pair *ret_pair);

extern const struct conf_factory verbs_factory;

#endif
