/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A fabric that is simulated: client code behind common/fabric.h on the memory model (model.h),
 * with every choice made by a scheduler (sched.h). One OS thread; who calls fab_* runs in a
 * coroutine and gives way in fab_poll and fab_wait. (Called outside of coroutines, they let
 * everything arrive.)
 *
 *   sim       one run: model, scheduler, clock, coroutines
 *   process   a struct fab with its coroutines; it can crash as a whole
 *   server    a region of memory that fab_offers name
 *
 * What is checked without being asked: a WRITE's source that changes before its completion is a
 * fault; landing places are poisoned when posted; addresses outside of region or registered memory,
 * unaligned atomics and uses of a connection that is gone are faults. A fault ends the run.
 *
 * Time advances by steps, and leaps when everybody waits. A run is a function of its configuration
 * and the scheduler's picks.
 */
#ifndef RKV_TESTS_SIM_FABRIC_SIM_H
#define RKV_TESTS_SIM_FABRIC_SIM_H

#include <stdio.h>

#include "common/fabric.h"
#include "tests/sim/model.h"
#include "tests/sim/sched.h"
#include "tests/sim/states.h"

#define SIM_COROUTINES ACTOR_QPS
#define SIM_POISON 0xa5 /* every byte of a landing place */

struct sim_config {
	struct model_config model;
	struct sched_config sched;
	unsigned grain; /* bytes (8, 16, 32, 64) that a message is cut into; 0: by the seed */
	unsigned late_permille; /* completions that are late, beyond what the schedule does */
	int64_t late_ns;        /* by how much, at most */
	int64_t step_ns;        /* what a step takes */
	uint64_t max_steps;     /* more are a failure: nothing gets done; 0: no limit */
	/*
	 * Steps whose time nobody else can tell are taken at once, so that there is less to choose:
	 * those of the cards (sources are read, results land, completions come), and those of
	 * coroutines something landed for. sim_yield and sim_sleep remain choices: put one between
	 * operations, where others may come in between.
	 */
	bool eager_cards;
	bool eager_clients;
	/*
	 * Exhaustive runs that come to a state that was seen before: end there, with coroutines in
	 * the middle of what they do, instead of letting them finish promptly. For harnesses that
	 * can free what such coroutines hold.
	 */
	bool abandons;
};

struct sim;

/* WORST, random, grain by the seed, 100 ns a step, a limit of a million steps. */
struct sim_config sim_config_default(void);

/* ---- One run. sched NULL: one made from the configuration. ---- */

struct sim *sim_create(const struct sim_config *config, struct sched *sched);
void sim_destroy(struct sim *sim);

/*
 * Runs until every coroutine has ended, crashed or is stopped (0), or something failed (-1), or the
 * run is abandoned (1: nothing is to be checked). What is on the wire then stays there; sim_settle
 * lets it arrive.
 */
int sim_run(struct sim *sim);

/* One step of sim_run, or a leap of the clock; false: sim_run would return. */
bool sim_step(struct sim *sim);
int sim_settle(struct sim *sim);

/* The first failure's text; NULL: none. */
const char *sim_failure(const struct sim *sim);

/* Ends the run with a sentence. Within a coroutine it does not return. */
void sim_fail(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Called after every step, outside of coroutines: invariants (sim_fail), injection of faults. */
void sim_set_hook(struct sim *sim, void (*hook)(void *arg, struct sim *sim), void *arg);

/* A choice of the harness below n, by the scheduler, so that it is replayed and shrunk. */
unsigned sim_choose(struct sim *sim, unsigned n);

int64_t sim_now(const struct sim *sim);
void sim_advance(struct sim *sim, int64_t ns);
uint64_t sim_n_steps(const struct sim *sim);

/*
 * Exhaustive runs only: whatever the harness keeps of the past and decides by later (a history)
 * must be noted, or states are taken for equal that are not. What a coroutine got from the fabric
 * is noted.
 */
void sim_note(struct sim *sim, uint64_t value);

/* ---- Coroutines ---- */

/* fab: the process that it crashes with, or NULL. */
unsigned sim_spawn(struct sim *sim, struct fab *fab, void (*run)(void *arg), void *arg);
bool sim_has_ended(const struct sim *sim, unsigned coroutine);

/* Within a coroutine: lets others move; until the clock shows until_ns. */
void sim_yield(struct sim *sim);
void sim_sleep(struct sim *sim, int64_t until_ns);

/* Stopped coroutines do not run; the cards go on. */
void sim_stop(struct sim *sim, unsigned coroutine);
void sim_resume(struct sim *sim, unsigned coroutine);

/* ---- Processes ---- */

struct fab *sim_fab(struct sim *sim);

/*
 * The process is gone: its coroutines do not run again, its connections are broken at a place that
 * the scheduler picks. Requests on the wire may act until the server destroys the connection.
 */
void sim_crash(struct sim *sim, struct fab *fab);

/* ---- Servers, and their ends of connections ---- */

/* Memory (8-byte aligned, the caller's) becomes a region. Fills in what clients need to open it. */
unsigned sim_server(struct sim *sim, void *memory, size_t len, uint64_t region_id, uint64_t epoch,
		    struct fab_offer *ret_offer);

/* Nobody can open or connect to it any more. (What clients do about it is fab_region_sever.) */
void sim_server_close(struct sim *sim, unsigned server);

/* The server's CPU writes; plain stores into the memory would escape exhaustive runs. */
void sim_server_store(struct sim *sim, unsigned server, uint64_t roff, const void *data,
		      unsigned len);

/* Whether bytes for this part of a region are accepted by a card, but not yet in memory. */
bool sim_is_buffered(const struct sim *sim, unsigned server, uint64_t roff, uint64_t len);

enum sim_connection_state {
	SIM_UP,
	SIM_BROKEN, /* requests on the wire may still act */
	SIM_LEFT,   /* by fab_disconnect or a crash; they still may */
	SIM_ENDED,  /* destroyed by the server: nothing acts any more */
};

/* Connections are numbered from 0 as they are made. */
unsigned sim_n_connections(const struct sim *sim);
unsigned sim_connection(const struct fab_endpoint *ep);
enum sim_connection_state sim_connection_state(const struct sim *sim, unsigned connection);
struct fab *sim_connection_fab(const struct sim *sim, unsigned connection);

/* Breaks it now, at a place in its pipe that the scheduler picks; the rest fails with ERR_CONN. */
void sim_connection_break(struct sim *sim, unsigned connection);

/* The server destroys its end. */
void sim_connection_end(struct sim *sim, unsigned connection);

/* ---- Many runs (search.c) ---- */

/* A scenario: builds servers, processes and coroutines, runs them, and checks (sim_fail). */
struct sim_case {
	const char *name;
	void (*run)(struct sim *sim, void *arg);
	void *arg;
};

struct sim_result {
	bool failed;
	char text[200]; /* the failure's */
	char *picks;    /* the run's, or the failing one's; free with sim_result_clear */
	uint64_t seed;
	uint64_t n_runs;
	uint64_t n_steps;
	uint64_t n_states; /* exhaustive runs only */
	bool is_shrunk;
	bool is_complete; /* exhaustive: nothing is left; else a limit ended it */
};

void sim_result_clear(struct sim_result *result);

/* One run. */
void sim_try(const struct sim_case *c, const struct sim_config *config,
	     struct sim_result *ret_result);

/* Runs with seeds from the configuration's on, until one fails or n_seeds are through. */
void sim_search(const struct sim_case *c, const struct sim_config *config, uint64_t n_seeds,
		struct sim_result *ret_result);

/*
 * Every run there is (sched.bound: those near the prompt one), each state once; max_states: 0 =
 * all. For a configuration of sim_config_exhaustive: pieces of 64 bytes, eager, and time passes
 * only when nothing else can, for states would never be alike.
 */
struct sim_config sim_config_exhaustive(enum profile profile);
void sim_explore(const struct sim_case *c, const struct sim_config *config, uint64_t max_states,
		 struct sim_result *ret_result);

/* Makes the picks of a failing run fewer, as long as it fails. At most max_runs runs. */
void sim_shrink(const struct sim_case *c, const struct sim_config *config, unsigned max_runs,
		struct sim_result *result);

/* One line that replays a failing run: RKV_SIM="..." for the environment of the same program. */
void sim_print_replay(FILE *to, const struct sim_case *c, const struct sim_config *config,
		      const struct sim_result *result);

/* Shrinks a failing run and prints, as TAP comments, what failed and the line that replays it. */
void sim_report(FILE *to, const struct sim_case *c, const struct sim_config *config,
		struct sim_result *result);

/* If RKV_SIM is set: replays that run, prints what came out, returns true (*ret_status: exit). */
bool sim_replay(const struct sim_case *cases, unsigned n, int *ret_status);

/* Reads the text of sim_print_replay; the picks' text stays in text. False: it is none. */
bool sim_config_parse(char *text, char ret_case[64], struct sim_config *ret_config);

#endif
