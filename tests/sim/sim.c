/* SPDX-License-Identifier: BSD-2-Clause */
/* The simulated fabric: one run. Who may move, the clock, coroutines, processes, servers. */
#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim_internal.h"

enum { STEP_COROUTINE = MODEL_STEP_USER, STEP_LEAP, STEP_NOTHING };

struct sim_config
sim_config_default(void)
{
	return (struct sim_config){
		.model = {.profile = PROFILE_WORST},
		.sched = {.kind = SCHED_RANDOM, .seed = 1, .depth = 4, .horizon = 2000},
		.late_ns = 100000,
		.step_ns = 100,
		.max_steps = 1000000,
	};
}

uint64_t
sim_random(uint64_t *state)
{
	*state += UINT64_C(0x9e3779b97f4a7c15);
	return model_mix(*state, 0);
}

struct sim *
sim_create(const struct sim_config *config, struct sched *sched)
{
	struct sim *sim = calloc(1, sizeof(*sim));

	assert(sim);
	sim->config = *config;
	sim->model = model_create(&config->model);
	sim->owns_sched = !sched;
	sim->sched = sched ? sched : sched_create(&config->sched);
	assert(sim->sched);
	sim->random = model_mix(config->sched.seed, 1);
	sim->now_ns = 1000000000;
	return sim;
}

static void
free_lists(struct sim *sim)
{
	while (sim->endpoints) {
		struct sim_endpoint *ep = sim->endpoints;

		sim->endpoints = ep->next;
		free(ep->batches);
		free(ep);
	}
	while (sim->regions) {
		struct sim_region *region = sim->regions;

		sim->regions = region->next;
		free(region);
	}
	while (sim->fabs) {
		struct sim_fab *fab = sim->fabs;

		sim->fabs = fab->next;
		free(fab);
	}
}

void
sim_destroy(struct sim *sim)
{
	if (!sim)
		return;
	for (unsigned i = 0; i < sim->n_co; i++) {
		coro_destroy(sim->co[i]->coro);
		free(sim->co[i]);
	}
	free_lists(sim);
	if (sim->owns_sched)
		sched_destroy(sim->sched);
	model_destroy(sim->model);
	free(sim->choices.v);
	free(sim->packed.v);
	free(sim);
}

/* ---- What the harness says and asks ---- */

const char *
sim_failure(const struct sim *sim)
{
	return sim->has_failed ? sim->failure : NULL;
}

/* A coroutine that does not run again, though it is in the middle of something. */
static void
give_up(struct coroutine *co)
{
	co->state = CO_ENDED;
	while (co->sim->current == co)
		coro_yield(co->coro);
}

void
sim_fail(struct sim *sim, const char *format, ...)
{
	if (!sim->has_failed) {
		va_list args;

		va_start(args, format);
		vsnprintf(sim->failure, sizeof(sim->failure), format, args);
		va_end(args);
		sim->has_failed = true;
	}
	if (sim->current)
		give_up(sim->current);
}

void
sim_set_hook(struct sim *sim, void (*hook)(void *arg, struct sim *sim), void *arg)
{
	sim->hook = hook;
	sim->hook_arg = arg;
}

void
sim_seen(struct sim *sim, uint64_t value)
{
	if (sim->current)
		sim->current->seen = model_mix(sim->current->seen, value);
}

unsigned
sim_choose(struct sim *sim, unsigned n)
{
	unsigned pick = sched_below(sim->sched, n);

	sim_seen(sim, pick);
	return pick;
}

int64_t
sim_now(const struct sim *sim)
{
	return sim->now_ns;
}

void
sim_advance(struct sim *sim, int64_t ns)
{
	sim->now_ns += ns;
}

uint64_t
sim_n_steps(const struct sim *sim)
{
	return sim->n_steps;
}

void
sim_note(struct sim *sim, uint64_t value)
{
	sim->history = model_mix(sim->history, value);
}

/* ---- Coroutines ---- */

static void
run_coroutine(void *arg)
{
	struct coroutine *co = arg;

	co->run(co->arg);
	co->state = CO_ENDED;
}

unsigned
sim_spawn(struct sim *sim, struct fab *fab, void (*run)(void *arg), void *arg)
{
	struct coroutine *co = calloc(1, sizeof(*co));

	assert(co && sim->n_co < SIM_COROUTINES);
	co->sim = sim;
	co->fab = (struct sim_fab *)fab;
	co->run = run;
	co->arg = arg;
	co->coro = coro_create(run_coroutine, co);
	sim->co[sim->n_co] = co;
	return sim->n_co++;
}

bool
sim_has_ended(const struct sim *sim, unsigned coroutine)
{
	return sim->co[coroutine]->state == CO_ENDED;
}

void
sim_stop(struct sim *sim, unsigned coroutine)
{
	sim->co[coroutine]->is_stopped = true;
}

void
sim_resume(struct sim *sim, unsigned coroutine)
{
	sim->co[coroutine]->is_stopped = false;
}

void
sim_set_states(struct sim *sim, struct states *states, struct trail *trail)
{
	sim->states = states;
	sim->trail = trail;
}

/* ---- Who may move ---- */

static bool
may_run(const struct sim *sim, const struct coroutine *co)
{
	if (co->is_stopped || co->state == CO_ENDED)
		return false;
	return co->state == CO_READY || sim->now_ns >= co->until_ns ||
	       (co->ep && endpoint_is_pollable(co->ep));
}

static void
add_coroutines(struct sim *sim)
{
	for (unsigned i = 0; i < sim->n_co; i++) {
		if (may_run(sim, sim->co[i]))
			model_choice_add(&sim->choices,
					 &(struct model_choice){.kind = STEP_COROUTINE,
								.actor = (uint16_t)i,
								.qp = (uint16_t)i});
	}
}

/* When the next one that waits goes on, a late completion included; INT64_MAX: nobody waits. */
static int64_t
next_time(const struct sim *sim)
{
	int64_t next = INT64_MAX;

	for (unsigned i = 0; i < sim->n_co; i++) {
		const struct coroutine *co = sim->co[i];
		int64_t ready_ns;

		if (co->is_stopped || co->state != CO_WAITING)
			continue;
		if (co->until_ns < next)
			next = co->until_ns;
		ready_ns = co->ep ? endpoint_ready_ns(co->ep) : INT64_MAX;
		if (ready_ns < next)
			next = ready_ns;
	}
	return next;
}

/* ---- States, for exhaustive runs ---- */

static void
pack_u64(struct sim *sim, uint64_t v)
{
	model_bytes_add(&sim->packed, &v, sizeof(v));
}

static struct model_hash
hash_state(struct sim *sim)
{
	sim->packed.n = 0;
	model_pack(sim->model, &sim->packed);
	pack_u64(sim, sim->model->memory_hash);
	pack_u64(sim, sim->history);
	pack_u64(sim, (uint64_t)sim->now_ns);
	pack_u64(sim, sched_deviations_left(sim->sched));
	for (unsigned i = 0; i < sim->n_co; i++) {
		const struct coroutine *co = sim->co[i];

		pack_u64(sim, co->state | co->is_stopped << 8 | co->is_fresh << 9);
		pack_u64(sim, (uint64_t)co->until_ns);
		pack_u64(sim, co->seen);
	}
	for (const struct sim_endpoint *ep = sim->endpoints; ep; ep = ep->next) {
		pack_u64(sim, ep->state | ep->n_good << 8);
		pack_u64(sim, (uint64_t)ep->n_batches << 32 | ep->n_loud);
		pack_u64(sim, sim->model->qps[ep->qp].landed);
	}
	return model_hash(sim->packed.v, sim->packed.n, 0);
}

/* Ends the search from here if another run was in this state. */
static void
look_whether_new(struct sim *sim)
{
	if (!sim->states || sim->is_over || !sched_is_fresh(sim->sched))
		return;
	if (!states_add(sim->states, hash_state(sim))) {
		sim->is_over = true;
		sched_finish(sim->sched);
	}
}

/* ---- Steps ---- */

static void
continue_coroutine(struct sim *sim, struct coroutine *co)
{
	co->state = CO_READY;
	co->ep = NULL;
	co->is_fresh = true;
	sim->current = co;
	coro_resume(co->coro);
	sim->current = NULL;
}

static void
step(struct sim *sim, const struct model_choice *choice)
{
	if (choice->kind == STEP_COROUTINE) {
		continue_coroutine(sim, sim->co[choice->qp]);
	} else {
		model_step(sim->model, choice);
		if (sim->model->qps[choice->qp].fault)
			sim_fail(sim, "the source of a WRITE changed before it was read");
	}
	sim->n_steps++;
	sim->now_ns += sim->config.step_ns;
	if (sim->hook && !sim->has_failed)
		sim->hook(sim->hook_arg, sim);
	if (sim->config.max_steps && sim->n_steps >= sim->config.max_steps)
		sim_fail(sim, "not done after %llu steps", (unsigned long long)sim->n_steps);
}

/* Whether nobody but the owner of the step can tell when it is taken. */
static bool
is_private(const struct sim *sim, const struct model_choice *c)
{
	const struct sim_endpoint *ep;

	if (c->kind != STEP_COROUTINE)
		return sim->config.eager_cards && model_is_private(sim->model, c);
	ep = sim->co[c->qp]->ep;
	return sim->config.eager_clients && ep && endpoint_is_pollable(ep);
}

static void
trail_add(struct trail *trail, const struct trail_step *trail_step)
{
	if (trail->n == trail->cap) {
		trail->cap = trail->cap ? trail->cap * 2 : 256;
		trail->v = realloc(trail->v, trail->cap * sizeof(*trail->v));
		assert(trail->v);
	}
	trail->v[trail->n++] = *trail_step;
}

static struct model_choice
pick(struct sim *sim)
{
	for (unsigned i = 0; i < sim->choices.n; i++) {
		if (is_private(sim, &sim->choices.v[i]))
			return sim->choices.v[i];
	}
	if (sim->choices.n > 1)
		look_whether_new(sim);
	return sim->choices.v[sched_step(sim->sched, &sim->choices)];
}

/*
 * What happens next: a step, a leap of the clock, or nothing. Exhaustive runs keep a trail of it,
 * so that the next run need not ask again what can happen up to where it takes another way.
 */
static struct model_choice
next_choice(struct sim *sim, bool with_coroutines)
{
	struct trail *trail = sim->trail;
	struct trail_step now = {.choice = {.kind = STEP_NOTHING}, .at = sched_at(sim->sched)};

	if (trail && sim->trail_at < trail->n_known) {
		now = trail->v[sim->trail_at++];
		if (now.is_picked)
			sched_skip(sim->sched);
		return now.choice;
	}
	sim->choices.n = 0;
	model_choices(sim->model, &sim->choices);
	if (with_coroutines)
		add_coroutines(sim);
	if (sim->choices.n)
		now.choice = pick(sim);
	else if (with_coroutines && next_time(sim) < INT64_MAX)
		now.choice.kind = STEP_LEAP;
	now.is_picked = sched_at(sim->sched) != now.at;
	if (trail && !sim->is_over) {
		trail_add(trail, &now);
		sim->trail_at++;
	}
	return now.choice;
}

static bool
is_somebody_left(const struct sim *sim)
{
	for (unsigned i = 0; i < sim->n_co; i++) {
		if (sim->co[i]->state != CO_ENDED && !sim->co[i]->is_stopped)
			return true;
	}
	return false;
}

static int
outcome(const struct sim *sim)
{
	return sim->has_failed ? -1 : sim->is_over && sim->config.abandons;
}

bool
sim_step(struct sim *sim)
{
	struct model_choice choice;

	if (outcome(sim) || !is_somebody_left(sim))
		return false;
	choice = next_choice(sim, true);
	if (choice.kind == STEP_NOTHING) {
		sim_fail(sim, "nobody can move any more");
		return false;
	}
	if (choice.kind != STEP_LEAP)
		step(sim, &choice);
	else if (next_time(sim) > sim->now_ns)
		sim->now_ns = next_time(sim);
	return true;
}

int
sim_run(struct sim *sim)
{
	while (sim_step(sim))
		;
	return outcome(sim);
}

int
sim_settle(struct sim *sim)
{
	while (!outcome(sim)) {
		struct model_choice choice = next_choice(sim, false);

		if (choice.kind == STEP_NOTHING)
			break;
		step(sim, &choice);
	}
	return outcome(sim);
}

/* Outside of coroutines there is nobody to give way to: promptly and in order, without picks. */
static void
let_arrive(struct sim *sim, const struct sim_endpoint *ep, int64_t until_ns)
{
	while (!sim->has_failed && !(ep && endpoint_is_pollable(ep))) {
		struct model_choice choice;

		sim->choices.n = 0;
		model_choices(sim->model, &sim->choices);
		if (!sim->choices.n) {
			int64_t ready_ns = ep ? endpoint_ready_ns(ep) : INT64_MAX;
			int64_t next = ready_ns < until_ns ? ready_ns : until_ns;

			if (next > sim->now_ns && next < INT64_MAX)
				sim->now_ns = next;
			return;
		}
		choice = sim->choices.v[0];
		step(sim, &choice);
	}
}

void
sim_give_way(struct sim *sim, enum coroutine_state state, struct sim_endpoint *ep, int64_t until_ns)
{
	struct coroutine *co = sim->current;

	if (!co) {
		let_arrive(sim, ep, until_ns);
		return;
	}
	co->state = state;
	co->ep = ep;
	co->until_ns = until_ns;
	coro_yield(co->coro);
}

void
sim_yield(struct sim *sim)
{
	sim_give_way(sim, CO_READY, NULL, 0);
}

void
sim_sleep(struct sim *sim, int64_t until_ns)
{
	sim_give_way(sim, CO_WAITING, NULL, until_ns);
}

/* ---- Processes ---- */

struct fab *
sim_fab(struct sim *sim)
{
	struct sim_fab *fab = calloc(1, sizeof(*fab));

	assert(fab);
	fab->fab.driver = &sim_driver;
	fab->sim = sim;
	fab->node = sim->n_fabs++;
	fab->random = model_mix(sim->config.sched.seed, 2 + fab->node);
	fab->next = sim->fabs;
	sim->fabs = fab;
	return &fab->fab;
}

void
sim_crash(struct sim *sim, struct fab *fab)
{
	((struct sim_fab *)fab)->has_crashed = true;
	for (struct sim_endpoint *ep = sim->endpoints; ep; ep = ep->next) {
		if (ep->is_given_up || ep->ep.region->fab != fab)
			continue;
		endpoint_break(ep, ep->state == SIM_ENDED ? SIM_ENDED : SIM_LEFT);
		model_drop_local(sim->model, ep->qp);
		ep->is_given_up = true;
	}
	for (unsigned i = 0; i < sim->n_co; i++) {
		if (sim->co[i]->fab == (struct sim_fab *)fab && sim->co[i] != sim->current)
			give_up(sim->co[i]);
	}
	if (sim->current && sim->current->fab == (struct sim_fab *)fab)
		give_up(sim->current);
}

/* ---- Servers ---- */

unsigned
sim_server(struct sim *sim, void *memory, size_t len, uint64_t region_id, uint64_t epoch,
	   struct fab_offer *ret_offer)
{
	unsigned number = sim->n_servers++;
	struct server *server = &sim->servers[number];

	assert(number < SERVERS_MAX && (uintptr_t)memory % 8 == 0);
	server->offer = (struct fab_offer){.region_id = region_id, .epoch = epoch, .len = len};
	server->len = len;
	server->range = model_range(sim->model, NODES_OF_SERVERS + number, memory, len,
				    sim->states != NULL);
	*ret_offer = server->offer;
	return number;
}

void
sim_server_close(struct sim *sim, unsigned server)
{
	sim->servers[server].is_closed = true;
}

void
sim_server_store(struct sim *sim, unsigned server, uint64_t roff, const void *data, unsigned len)
{
	assert(roff <= sim->servers[server].len && len <= sim->servers[server].len - roff);
	model_store(sim->model, model_addr(sim->servers[server].range, roff), data, len);
}

bool
sim_is_buffered(const struct sim *sim, unsigned server, uint64_t roff, uint64_t len)
{
	return model_is_buffered(sim->model, model_addr(sim->servers[server].range, roff), len);
}

/* ---- Connections ---- */

unsigned
sim_n_connections(const struct sim *sim)
{
	return sim->n_endpoints;
}

unsigned
sim_connection(const struct fab_endpoint *ep)
{
	return ((const struct sim_endpoint *)ep)->number;
}

struct sim_endpoint *
sim_endpoint(const struct sim *sim, unsigned connection)
{
	struct sim_endpoint *ep = sim->endpoints;

	while (ep && ep->number != connection)
		ep = ep->next;
	assert(ep);
	return ep;
}

enum sim_connection_state
sim_connection_state(const struct sim *sim, unsigned connection)
{
	return sim_endpoint(sim, connection)->state;
}

struct fab *
sim_connection_fab(const struct sim *sim, unsigned connection)
{
	return sim_endpoint(sim, connection)->ep.region->fab;
}

void
sim_connection_break(struct sim *sim, unsigned connection)
{
	struct sim_endpoint *ep = sim_endpoint(sim, connection);

	if (ep->state == SIM_UP)
		endpoint_break(ep, SIM_BROKEN);
}

void
sim_connection_end(struct sim *sim, unsigned connection)
{
	struct sim_endpoint *ep = sim_endpoint(sim, connection);

	endpoint_break(ep, SIM_ENDED);
	model_end(sim->model, ep->qp);
}
