/* SPDX-License-Identifier: BSD-2-Clause */
/* The simulated fabric's inside, shared by sim.c (the run), driver.c (fabric.h) and search.c. */
#ifndef RKV_TESTS_SIM_SIM_INTERNAL_H
#define RKV_TESTS_SIM_SIM_INTERNAL_H

#include "common/err.h"
#include "tests/sim/coro.h"
#include "tests/sim/fabric_sim.h"

#define SERVERS_MAX 32u
#define NODES_OF_SERVERS 1000u /* nodes from here on are servers, below: processes */

enum coroutine_state {
	CO_READY,
	CO_WAITING, /* until something landed at ep (if any), or until_ns */
	CO_ENDED,
};

struct coroutine {
	struct sim *sim;
	struct sim_fab *fab;
	void (*run)(void *arg);
	void *arg;
	struct coro *coro;
	enum coroutine_state state;
	bool is_stopped;
	bool is_fresh; /* has just been continued: the next poll needs no other turn */
	struct sim_endpoint *ep;
	int64_t until_ns;
	uint64_t seen; /* hash of all it got from the fabric: with its code, its whole state */
};

struct sim_fab {
	struct fab fab;
	struct sim *sim;
	struct sim_fab *next;
	unsigned node;
	bool has_crashed;
	uint64_t random;
};

struct server {
	struct fab_offer offer;
	unsigned range;
	size_t len;
	bool is_closed;
};

struct sim_region {
	struct fab_region region;
	struct sim_region *next;
	unsigned server;
	bool is_severed;
	bool is_closed;
};

/* The bytes of a WRITE's source, which must not change before its completion is polled. */
struct source {
	const void *local;
	uint32_t len;
	uint64_t hash;
};

struct batch {
	void *cookie;
	bool is_quiet;
	int64_t ready_ns; /* a late completion is not seen before */
	unsigned n_sources;
	struct source source[2 * FAB_BATCH_MAX];
};

/* A connection; it outlives its fab_endpoint's use, as what is on the wire does. */
struct sim_endpoint {
	struct fab_endpoint ep;
	struct sim *sim;
	struct sim_endpoint *next;
	unsigned number;
	unsigned qp;
	uint32_t depth;
	enum sim_connection_state state;
	bool is_given_up;      /* disconnected, or its process crashed */
	unsigned n_good;       /* broken: batches whose completions had arrived before */
	struct batch *batches; /* out, oldest first */
	unsigned first;
	unsigned n_batches; /* from first on, quiet ones too */
	unsigned cap;
	unsigned n_loud;
};

/* What happened in the last exhaustive run, up to n_known also in the present one. */
struct trail_step {
	struct model_choice choice;
	bool is_picked; /* the scheduler's pick, not the only choice */
	unsigned at;    /* picks before it */
};

struct trail {
	struct trail_step *v;
	unsigned n;
	unsigned n_known;
	unsigned cap;
};

struct sim {
	struct sim_config config;
	struct model *model;
	struct sched *sched;
	bool owns_sched;
	struct states *states; /* exhaustive: seen in all runs */
	struct trail *trail;
	unsigned trail_at;
	bool is_over; /* exhaustive: was here before; the rest is only cleaning up */
	int64_t now_ns;
	uint64_t n_steps;
	uint64_t history; /* hash of what the harness noted */
	uint64_t random;
	void (*hook)(void *arg, struct sim *sim);
	void *hook_arg;
	struct coroutine *co[SIM_COROUTINES];
	unsigned n_co;
	struct coroutine *current;
	struct sim_fab *fabs;
	unsigned n_fabs;
	struct sim_region *regions;
	struct sim_endpoint *endpoints; /* newest first */
	unsigned n_endpoints;
	struct server servers[SERVERS_MAX];
	unsigned n_servers;
	struct model_choices choices;
	struct model_bytes packed;
	bool has_failed;
	char failure[200];
};

/* sim.c */
void sim_set_states(struct sim *sim, struct states *states, struct trail *trail);
uint64_t sim_random(uint64_t *state);
struct sim_endpoint *sim_endpoint(const struct sim *sim, unsigned connection);

/* Gives way; returns when the coroutine's turn comes. Outside of coroutines: everything arrives. */
void sim_give_way(struct sim *sim, enum coroutine_state state, struct sim_endpoint *ep,
		  int64_t until_ns);

/* The current coroutine got something from the fabric. */
void sim_seen(struct sim *sim, uint64_t value);

/* driver.c */
extern const struct fab_driver sim_driver;
/* When a late completion that is there may be polled; INT64_MAX: there is none. */
int64_t endpoint_ready_ns(const struct sim_endpoint *ep);
bool endpoint_is_pollable(const struct sim_endpoint *ep);
void endpoint_break(struct sim_endpoint *ep, enum sim_connection_state state);

#endif
