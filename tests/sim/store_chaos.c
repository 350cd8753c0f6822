/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What happens to clients: some faults come at a random time, some just behind a batch that was
 * posted, where they hurt most. A stopped client goes on late; one that crashed, or was stopped for
 * too long, is given up by the server sooner or later. Wall clocks move, for values to expire.
 */
#include <inttypes.h>

#include "tests/sim/store_internal.h"

enum fault {
	FAULT_BREAK,        /* the data connection fails */
	FAULT_STOP,         /* the application's thread stands still, the control thread goes on */
	FAULT_STOP_PROCESS, /* both do */
	FAULT_CRASH,
	FAULT_DEATH, /* the server gives up a client that lives */
	FAULT_CUT,   /* the control connection fails; the server waits */
	N_FAULTS,
};

static bool
is_a_target(const struct peer *p)
{
	return p->has_begun && !p->has_ended && !p->has_crashed && p->resume_ns == 0;
}

static int64_t
some_stamps(struct world *w, unsigned n)
{
	return (int64_t)store_random(&w->random, n * (uint64_t)w->config->stamp_ns) + 1;
}

static void
stop(struct world *w, struct peer *p, bool whole)
{
	store_count(w, whole ? STORE_STOP_PROCESS : STORE_STOP);
	sim_stop(w->sim, p->main);
	if (whole)
		sim_stop(w->sim, p->control);
	p->resume_ns = sim_now(w->sim) + some_stamps(w, store_chance(&w->random, 30) ? 200 : 12);
	if (whole && store_chance(&w->random, 50))
		p->dead_ns = sim_now(w->sim) + some_stamps(w, 20);
}

/* The current coroutine, if it is one of the process's, does not come back. */
static void
crash(struct world *w, struct peer *p)
{
	store_count(w, STORE_CRASH);
	p->has_crashed = true;
	p->has_ended = true;
	w->n_ended++;
	p->dead_ns = sim_now(w->sim) + some_stamps(w, 20);
	for (unsigned i = 0; i < DEPTH_MAX; i++)
		if (p->memory[i].record)
			p->memory[i].record->is_lost = true;
	sim_crash(w->sim, p->fab);
}

static void
break_connection(struct world *w, struct peer *p)
{
	for (unsigned i = 0; i < sim_n_connections(w->sim); i++)
		if (sim_connection_fab(w->sim, i) == p->fab &&
		    sim_connection_state(w->sim, i) == SIM_UP) {
			store_count(w, STORE_BREAK);
			sim_connection_break(w->sim, i);
		}
}

static void
strike(struct world *w, struct peer *p, enum fault fault)
{
	static const char *const names[] = {"break", "stop",  "stop process",
					    "crash", "death", "cut"};
	store_trace(w, "client %u: %s", p->number, names[fault]);
	w->calm_step = sim_n_steps(w->sim);
	switch (fault) {
	case FAULT_BREAK:
		break_connection(w, p);
		return;
	case FAULT_STOP:
		stop(w, p, false);
		return;
	case FAULT_STOP_PROCESS:
		stop(w, p, true);
		return;
	case FAULT_CRASH:
		crash(w, p);
		return;
	case FAULT_DEATH:
		store_count(w, STORE_DEATH);
		server_give_up(w, p);
		return;
	case FAULT_CUT:
		store_count(w, STORE_CUT);
		p->is_cut = true;
		return;
	case N_FAULTS:
		return;
	}
}

static enum fault
draw_fault(struct world *w)
{
	static const enum fault faults[] = {FAULT_BREAK,        FAULT_BREAK, FAULT_BREAK,
					    FAULT_STOP,         FAULT_STOP,  FAULT_CRASH,
					    FAULT_STOP_PROCESS, FAULT_DEATH, FAULT_CUT};
	return faults[store_random(&w->random, sizeof(faults) / sizeof(faults[0]))];
}

void
chaos_at_post(struct peer *p, enum batch_kind kind)
{
	/* One batch in so many is followed by a fault; seldom ones have faults in store. */
	static const unsigned rarity[] = {[BATCH_PLAIN] = 60, [BATCH_CAS] = 15, [BATCH_SELDOM] = 4};
	struct world *w = p->w;
	unsigned *left = kind == BATCH_SELDOM ? &w->n_seldom_faults_left : &w->n_faults_left;
	if (*left == 0 || !is_a_target(p) || store_random(&w->random, rarity[kind]) != 0)
		return;
	--*left;
	strike(w, p, draw_fault(w));
}

/* Those whose time has come go on, or are given up. */
static void
look_after(struct world *w, struct peer *p)
{
	int64_t now = sim_now(w->sim);
	if (p->dead_ns && now >= p->dead_ns) {
		p->dead_ns = 0;
		w->calm_step = sim_n_steps(w->sim);
		store_count(w, STORE_DEATH);
		server_give_up(w, p);
	}
	if (p->resume_ns && now >= p->resume_ns) {
		p->resume_ns = 0;
		w->calm_step = sim_n_steps(w->sim);
		sim_resume(w->sim, p->main);
		sim_resume(w->sim, p->control);
	}
}

/* Nothing is in flight, not even of a process that crashed. */
static bool
is_quiet(const struct world *w)
{
	for (unsigned i = 0; i < w->n_peers; i++)
		if (w->peer[i].has_crashed && w->peer[i].dead_ns)
			return false;
	for (unsigned i = 0; i < w->n_records; i++)
		if (w->record[i].is_in_flight && !w->record[i].is_lost)
			return false;
	return true;
}

/*
 * All at once, and while nobody looks at one: an operation acts on what its clock showed when it
 * looked, so that one in flight may follow the old time when others have seen the new one.
 */
static void
move_clocks(struct world *w)
{
	int64_t ns = (1 + (int64_t)store_random(&w->random, 2)) * STORE_CLOCK_S * NS_OF_S;
	w->wants_clock = false;
	w->wall_ns += ns;
	for (unsigned i = 0; i < w->n_peers; i++)
		atomic_fetch_add(&w->peer[i].client.wall_offset_ns, ns);
	store_trace(w, "clocks move by %u s", (unsigned)(ns / NS_OF_S));
}

static void
chaos_main(void *arg)
{
	struct world *w = arg;
	while (server_is_needed(w)) {
		sim_sleep(w->sim, sim_now(w->sim) + some_stamps(w, 2));
		for (unsigned i = 0; i < w->n_peers; i++)
			look_after(w, &w->peer[i]);
		struct peer *p = &w->peer[store_random(&w->random, w->config->n_clients)];
		if (w->n_restarts_left && w->n_ended < w->n_peers && store_chance(&w->random, 3)) {
			w->n_restarts_left--;
			w->wants_restart = true;
		}
		if (w->config->expires && store_chance(&w->random, 10))
			w->wants_clock = true;
		if (w->wants_clock && is_quiet(w))
			move_clocks(w);
		if (w->n_faults_left && is_a_target(p) && store_chance(&w->random, 10)) {
			w->n_faults_left--;
			strike(w, p, draw_fault(w));
		}
	}
}

void
chaos_start(struct world *w)
{
	w->n_faults_left = w->config->n_faults;
	w->n_seldom_faults_left = w->config->n_faults;
	w->n_restarts_left = w->config->n_restarts;
	sim_spawn(w->sim, NULL, chaos_main, w);
}
