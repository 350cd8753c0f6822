/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The store under simulation: the client's real sessions, operations and allocators (client/op.c,
 * session.c, alloc.c, ...), compiled with limits that make fingerprints collide and tags wrap all
 * the time, on the simulated fabric. A run is made of
 *
 *   clients   processes with a session each, and a control coroutine in the place of control.c
 *   server    stamps, G, links, death of clients, left chunks, restarts (store_server.c), and the
 *             scrubber (store_scrub.c)
 *   chaos     crashes, stopped clients, broken connections, clocks that move, forged words
 *   watch     invariants after every step, histories to the checker (store_watch.c)
 *
 * Everything about a run follows from its seed; what the environment or shrinking sets besides is
 * part of the line that replays it.
 */
#ifndef RKV_TESTS_SIM_STORE_H
#define RKV_TESTS_SIM_STORE_H

#include "tests/sim/fabric_sim.h"

#define STORE_CLIENTS_MAX 8u

struct store_config {
	uint64_t seed;
	enum profile profile;
	enum sched_kind sched;
	unsigned n_clients;
	unsigned n_ops; /* of each client */
	unsigned n_keys;
	unsigned depth; /* operations in flight of a session */
	unsigned n_groups;
	unsigned n_chunks;
	unsigned value_min; /* bytes */
	unsigned value_max;
	unsigned n_faults;
	unsigned late_permille;
	unsigned timeout_ms;
	int64_t step_ns;
	int64_t stamp_ns;
	bool unit_per_address;
	bool repeat_reads;
	bool strict_insert;
	bool scrubs;         /* the server mends what dead clients left */
	unsigned n_restarts; /* of the server: the region is formatted anew */
	bool expires;        /* some values do, for clocks move */
	unsigned n_forged;   /* words that no client has written appear in slots, for a while */
	bool is_live;        /* faults are few and heal: operations end, within a bound of steps */
	bool is_traced;      /* tells on stderr what happens */
	const char *picks;   /* the schedule, as sched.h writes it; NULL: by seed and sched */
};

/* What a run has met; a test that never meets one of them tests less than it says. */
#define STORE_EVENTS(X)                                                                            \
	X(WITHDRAW), X(KILL), X(RIVAL_WAIT), X(RIVAL_KILL), X(RECHECK), X(CAS_LOST),               \
		X(INVALID_BLOCK), X(RESOLVE_UPDATE), X(RESOLVE_DELETE), X(RESOLVE_TENTATIVE),      \
		X(RESOLVE_COMMIT), X(RESOLVE_BLOCK), X(LOST_WITHDRAW), X(LOST_KILL),               \
		X(EXPIRED_TENTATIVE), X(REST), X(ADOPT), X(GIVE_BACK), X(FLUSH), X(MAYBE),         \
		X(TIMEOUT), X(AGAIN), X(NO_SPACE), X(INDEX_FULL), X(CONN), X(EXISTS), X(MISMATCH), \
		X(TOO_SMALL), X(LARGE), X(WARM), X(COLLISION), X(CRASH), X(STOP), X(STOP_PROCESS), \
		X(BREAK), X(DEATH), X(CUT), X(RELINK), X(REJOIN), X(RENEW), X(REOPEN),             \
		X(SCRUB_MARK), X(SCRUB_KILL), X(SCRUB_EXPIRE), X(SCRUB_HURRY), X(RESTART),         \
		X(EXPIRY), X(ADD_OVER_EXPIRED), X(FORGE), X(CORRUPT), X(CROWDED)

enum store_event {
#define STORE_EVENT(name) STORE_##name
	STORE_EVENTS(STORE_EVENT),
#undef STORE_EVENT
	N_STORE_EVENTS
};

struct store_counts {
	uint64_t event[N_STORE_EVENTS];
	uint64_t n_ops;
	uint64_t n_undecided; /* histories too hard for the checker */
	unsigned steps_max;   /* that an operation took, in runs that are live */
};

const char *store_event_name(enum store_event event);

void store_config_draw(uint64_t seed, struct store_config *ret_config);

/*
 * Reads a run as it is written ("SEED=7 PROFILE=worst OPS=3"), or from the environment where text
 * is NULL. What is not said follows from the seed. False: no seed, or something that is no setting.
 */
bool store_config_parse(const char *text, struct store_config *ret_config);

/*
 * The line that replays a run, without a newline: what does not follow from the seed, or all of it,
 * for the corpus, so that seeds may come to mean something else.
 */
#define STORE_LINE_MAX 512
void store_config_print(const struct store_config *config, bool is_full,
			char ret_line[STORE_LINE_MAX]);

/* One run. False: it failed, and ret_text says how. Adds to counts. */
bool store_run(const struct store_config *config, struct store_counts *counts, uint64_t *ret_steps,
	       char ret_text[200]);

/*
 * Makes a failing run smaller: fewer faults, operations, clients, keys. At most max_runs runs,
 * begun within max_s seconds. Returns how many runs it took.
 */
unsigned store_shrink(struct store_config *config, unsigned max_runs, unsigned max_s,
		      char ret_text[200]);

/*
 * The picks of a failing run with as few of them as possible that are not prompt, for PICKS in the
 * environment (free them); NULL: the run is too long for that.
 */
char *store_shrink_schedule(const struct store_config *config, unsigned max_runs);

#endif
