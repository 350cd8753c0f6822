/* SPDX-License-Identifier: BSD-2-Clause */
/* The simulated fabric: many runs. Seeds, all schedules, shrinking, and the line that replays. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim_internal.h"

#define REPORT_RUNS_MAX 2000u /* that a failing run is shrunk with */

struct sim_config
sim_config_exhaustive(enum profile profile)
{
	struct sim_config config = sim_config_default();

	config.model.profile = profile;
	config.sched.kind = SCHED_DFS;
	config.grain = MODEL_PIECE_MAX;
	config.step_ns = 0;
	config.eager_cards = true;
	config.eager_clients = true;
	return config;
}

void
sim_result_clear(struct sim_result *result)
{
	free(result->picks);
	*result = (struct sim_result){0};
}

/* Runs the case once and adds what came out; true if it failed. The run's picks replace others. */
static bool
run_once(const struct sim_case *c, const struct sim_config *config, struct sched *sched,
	 struct states *states, struct trail *trail, struct sim_result *result)
{
	struct sched *own = sched ? NULL : sched_create(&config->sched);
	struct sim *sim;

	assert(sched || own);
	sim = sim_create(config, sched ? sched : own);
	sim_set_states(sim, states, trail);
	c->run(sim, c->arg);
	result->failed = sim->has_failed;
	if (sim->has_failed)
		snprintf(result->text, sizeof(result->text), "%s", sim->failure);
	result->n_runs++;
	result->n_steps += sim->n_steps;
	result->seed = config->sched.seed;
	if (result->failed || !states) {
		free(result->picks);
		result->picks = sched_text(sim->sched);
	}
	sim_destroy(sim);
	sched_destroy(own);
	return result->failed;
}

void
sim_try(const struct sim_case *c, const struct sim_config *config, struct sim_result *ret_result)
{
	*ret_result = (struct sim_result){0};
	run_once(c, config, NULL, NULL, NULL, ret_result);
}

void
sim_search(const struct sim_case *c, const struct sim_config *config, uint64_t n_seeds,
	   struct sim_result *ret_result)
{
	struct sim_config one = *config;

	*ret_result = (struct sim_result){0};
	for (uint64_t i = 0; i < n_seeds; i++) {
		one.sched.seed = config->sched.seed + i;
		if (run_once(c, &one, NULL, NULL, NULL, ret_result))
			return;
	}
}

/* The next run goes the same way up to its other pick. */
static void
cut_trail(struct trail *trail, unsigned other_at)
{
	while (trail->n && trail->v[trail->n - 1].at + trail->v[trail->n - 1].is_picked > other_at)
		trail->n--;
	trail->n_known = trail->n;
}

void
sim_explore(const struct sim_case *c, const struct sim_config *config, uint64_t max_states,
	    struct sim_result *ret_result)
{
	struct states states = {0};
	struct trail trail = {0};
	struct sched *sched = sched_create(&config->sched);
	unsigned other_at = 0;
	bool more = true;

	*ret_result = (struct sim_result){0};
	while (more && (!max_states || states.n < max_states) &&
	       !run_once(c, config, sched, &states, &trail, ret_result)) {
		more = sched_next(sched, &other_at);
		cut_trail(&trail, other_at);
	}
	ret_result->n_states = states.n;
	ret_result->is_complete = !more;
	sched_destroy(sched);
	states_clear(&states);
	free(trail.v);
}

/* ---- Shrinking: as few picks that are not 0 as possible (delta debugging) ---- */

struct shrinking {
	const struct sim_case *c;
	struct sim_config config;
	unsigned runs_left;
	struct sim_result *result;
};

static bool
still_fails(struct shrinking *s, const struct picks *picks)
{
	struct sim_result result = {0};
	char *text = picks_text(picks);
	bool failed;

	if (s->runs_left) {
		s->runs_left--;
		s->config.sched.picks = text;
		run_once(s->c, &s->config, NULL, NULL, NULL, &result);
	}
	failed = result.failed;
	if (failed) {
		s->result->n_steps = result.n_steps;
		strcpy(s->result->text, result.text);
	}
	free(text);
	sim_result_clear(&result);
	return failed;
}

/* Makes the picks of [from, to) zero; true if the run still fails, else they are as before. */
static bool
try_without(struct shrinking *s, struct picks *picks, unsigned from, unsigned to)
{
	size_t len = (to - from) * sizeof(*picks->v);
	uint32_t *kept = malloc(len);
	bool fails = false;
	bool any = false;

	assert(kept);
	memcpy(kept, picks->v + from, len);
	for (unsigned i = from; i < to; i++)
		any |= picks->v[i] != 0;
	memset(picks->v + from, 0, len);
	if (any)
		fails = still_fails(s, picks);
	if (any && !fails)
		memcpy(picks->v + from, kept, len);
	free(kept);
	return fails;
}

/* Leaves out single picks, so that those behind move up. */
static bool
drop_some(struct shrinking *s, struct picks *picks, unsigned from, unsigned to)
{
	struct picks shorter = {0};

	for (unsigned i = 0; i < picks->n; i++) {
		if (i < from || i >= to)
			picks_add(&shorter, picks->v[i]);
	}
	if (still_fails(s, &shorter)) {
		free(picks->v);
		*picks = shorter;
		return true;
	}
	free(shorter.v);
	return false;
}

static bool
shrink_round(struct shrinking *s, struct picks *picks)
{
	bool progress = false;

	for (unsigned len = picks->n; len; len /= 2) {
		for (unsigned from = 0; from < picks->n && s->runs_left; from += len) {
			unsigned to = from + len < picks->n ? from + len : picks->n;

			progress |= try_without(s, picks, from, to);
			if (to < picks->n || from)
				progress |= drop_some(s, picks, from, to);
		}
	}
	return progress;
}

void
sim_shrink(const struct sim_case *c, const struct sim_config *config, unsigned max_runs,
	   struct sim_result *result)
{
	struct shrinking s = {.c = c, .config = *config, .runs_left = max_runs, .result = result};
	struct picks picks = {0};

	s.config.sched.kind = SCHED_PICKS;
	s.config.sched.seed = result->seed;
	if (!picks_parse(result->picks, &picks))
		return;
	while (s.runs_left && picks.n && shrink_round(&s, &picks))
		;
	free(result->picks);
	result->picks = picks_text(&picks);
	result->is_shrunk = true;
	free(picks.v);
}

/* ---- The line that replays ---- */

void
sim_print_replay(FILE *to, const struct sim_case *c, const struct sim_config *config,
		 const struct sim_result *result)
{
	const struct model_config *m = &config->model;

	bool by_seed = config->sched.kind < SCHED_PICKS && !result->is_shrunk;

	fprintf(to,
		"RKV_SIM=\"case=%s profile=%s unit_per_address=%d repeat_reads=%d grain=%u "
		"late_permille=%u late_ns=%" PRId64 " step_ns=%" PRId64 " max_steps=%" PRIu64
		" eager_cards=%d eager_clients=%d seed=%" PRIu64,
		c->name, profile_name(m->profile), m->unit_per_address, m->repeat_reads,
		config->grain, config->late_permille, config->late_ns, config->step_ns,
		config->max_steps, config->eager_cards, config->eager_clients, result->seed);
	if (by_seed)
		fprintf(to, " sched=%s depth=%u horizon=%u\"\n",
			sched_kind_name(config->sched.kind), config->sched.depth,
			config->sched.horizon);
	else
		fprintf(to, " sched=picks picks=%s\"\n", result->picks ? result->picks : "");
}

void
sim_report(FILE *to, const struct sim_case *c, const struct sim_config *config,
	   struct sim_result *result)
{
	sim_shrink(c, config, REPORT_RUNS_MAX, result);
	fprintf(to, "# %s: %s, after %" PRIu64 " steps\n# ", c->name, result->text,
		result->n_steps);
	sim_print_replay(to, c, config, result);
}

static bool
parse_number(const char *name, long long v, struct sim_config *config)
{
	if (strcmp(name, "unit_per_address") == 0)
		config->model.unit_per_address = v;
	else if (strcmp(name, "repeat_reads") == 0)
		config->model.repeat_reads = v;
	else if (strcmp(name, "grain") == 0)
		config->grain = (unsigned)v;
	else if (strcmp(name, "late_permille") == 0)
		config->late_permille = (unsigned)v;
	else if (strcmp(name, "late_ns") == 0)
		config->late_ns = v;
	else if (strcmp(name, "step_ns") == 0)
		config->step_ns = v;
	else if (strcmp(name, "max_steps") == 0)
		config->max_steps = (uint64_t)v;
	else if (strcmp(name, "eager_cards") == 0)
		config->eager_cards = v;
	else if (strcmp(name, "eager_clients") == 0)
		config->eager_clients = v;
	else if (strcmp(name, "seed") == 0)
		config->sched.seed = (uint64_t)v;
	else if (strcmp(name, "depth") == 0)
		config->sched.depth = (unsigned)v;
	else if (strcmp(name, "horizon") == 0)
		config->sched.horizon = (unsigned)v;
	else
		return false;
	return true;
}

static bool
parse_setting(const char *name, const char *value, char ret_case[64], struct sim_config *config)
{
	if (strcmp(name, "case") == 0)
		return snprintf(ret_case, 64, "%s", value) < 64;
	if (strcmp(name, "profile") == 0)
		return profile_parse(value, &config->model.profile);
	if (strcmp(name, "sched") == 0)
		return sched_kind_parse(value, &config->sched.kind);
	if (strcmp(name, "picks") == 0) {
		config->sched.picks = value;
		return true;
	}
	return parse_number(name, strtoll(value, NULL, 10), config);
}

bool
sim_config_parse(char *text, char ret_case[64], struct sim_config *ret_config)
{
	struct sim_config config = sim_config_default();
	char *rest = NULL;

	for (char *p = strtok_r(text, " ", &rest); p; p = strtok_r(NULL, " ", &rest)) {
		char *value = strchr(p, '=');

		if (!value)
			return false;
		*value++ = '\0';
		if (!parse_setting(p, value, ret_case, &config))
			return false;
	}
	*ret_config = config;
	return true;
}

bool
sim_replay(const struct sim_case *cases, unsigned n, int *ret_status)
{
	const char *setting = getenv("RKV_SIM");
	char name[64] = "";
	struct sim_config config;
	struct sim_result result;
	char *text;

	if (!setting)
		return false;
	text = strdup(setting);
	assert(text);
	*ret_status = 2;
	if (!sim_config_parse(text, name, &config)) {
		fprintf(stderr, "RKV_SIM cannot be read\n");
		goto out;
	}
	for (unsigned i = 0; i < n; i++) {
		if (strcmp(cases[i].name, name) != 0)
			continue;
		sim_try(&cases[i], &config, &result);
		printf("%s after %" PRIu64 " steps%s%s\n", result.failed ? "failed" : "passed",
		       result.n_steps, result.failed ? ": " : "", result.text);
		*ret_status = result.failed;
		sim_result_clear(&result);
		goto out;
	}
	fprintf(stderr, "RKV_SIM names no case of this program: '%s'\n", name);
out:
	free(text);
	return true;
}
