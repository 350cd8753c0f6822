/* SPDX-License-Identifier: BSD-2-Clause */
/* Schedulers. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sched.h"

#define PCT_CHANGES_MAX 8u
#define STARVE_STEPS 16u /* how long some stand still */
#define HOLD_STEPS 16u   /* one step in so many may be a commit */

struct sched {
	struct sched_config config;
	uint64_t random;
	uint64_t n_steps;
	bool finished;
	struct picks picks; /* what was picked; DFS, PICKS: also what is to be */
	struct picks below; /* DFS: of how many */
	unsigned at;
	uint64_t change_at[PCT_CHANGES_MAX];
	uint16_t lowered[PCT_CHANGES_MAX]; /* actors below all others, the last one lowest */
	unsigned n_lowered;
};

static const char *const kind_names[N_SCHEDS] = {
	"random", "pct", "hold", "starve", "picks", "dfs",
};

const char *
sched_kind_name(enum sched_kind kind)
{
	return kind_names[kind];
}

bool
sched_kind_parse(const char *name, enum sched_kind *ret_kind)
{
	for (unsigned i = 0; i < N_SCHEDS; i++) {
		if (strcmp(name, kind_names[i]) == 0) {
			*ret_kind = (enum sched_kind)i;
			return true;
		}
	}
	return false;
}

/* ---- Picks ---- */

void
picks_add(struct picks *picks, uint32_t pick)
{
	if (picks->n == picks->cap) {
		picks->cap = picks->cap ? picks->cap * 2 : 64;
		picks->v = realloc(picks->v, picks->cap * sizeof(*picks->v));
		assert(picks->v);
	}
	picks->v[picks->n++] = pick;
}

bool
picks_parse(const char *text, struct picks *ret_picks)
{
	struct picks picks = {0};

	while (*text) {
		unsigned zeros;
		unsigned pick;
		int used = 0;

		if (sscanf(text, "%u.%u%n", &zeros, &pick, &used) != 2 || zeros > 100000000u)
			goto bad;
		while (zeros--)
			picks_add(&picks, 0);
		picks_add(&picks, pick);
		text += used;
		if (*text == ',')
			text++;
		else if (*text)
			goto bad;
	}
	*ret_picks = picks;
	return true;
bad:
	free(picks.v);
	return false;
}

char *
picks_text(const struct picks *picks)
{
	char *text = NULL;
	size_t len = 0;
	unsigned zeros = 0;
	bool first = true;
	FILE *f = open_memstream(&text, &len);

	assert(f);
	for (unsigned i = 0; i < picks->n; i++) {
		if (!picks->v[i]) {
			zeros++;
			continue;
		}
		fprintf(f, "%s%u.%u", first ? "" : ",", zeros, picks->v[i]);
		zeros = 0;
		first = false;
	}
	fclose(f);
	return text;
}

/* ---- Random ---- */

static uint64_t
next_random(struct sched *s)
{
	uint64_t z = s->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static unsigned
random_below(struct sched *s, unsigned n)
{
	return (unsigned)((next_random(s) >> 32) * n >> 32);
}

/* Choices of one actor are neighbours. Picks among those for which keep says so, or among all. */
static unsigned
random_actor(struct sched *s, const struct model_choices *choices,
	     bool (*keep)(const struct sched *, const struct model_choice *))
{
	unsigned n_actors = 0;
	unsigned first = 0;
	unsigned n = 0;
	int last = -1;

	for (unsigned i = 0; i < choices->n; i++) {
		const struct model_choice *c = &choices->v[i];

		if (keep && !keep(s, c))
			continue;
		if (c->actor != last) {
			last = c->actor;
			n_actors++;
			/* The k-th actor replaces the one picked so far with probability 1/k. */
			if (random_below(s, n_actors) == 0) {
				first = i;
				n = 0;
			}
		}
		if (c->actor == choices->v[first].actor)
			n++;
	}
	return n_actors ? first + random_below(s, n) : random_actor(s, choices, NULL);
}

static bool
is_no_commit(const struct sched *s, const struct model_choice *c)
{
	(void)s;
	return c->kind != MODEL_STEP_COMMIT;
}

/* Another quarter of the pipes and buffers stands still each time. */
static bool
is_not_starved(const struct sched *s, const struct model_choice *c)
{
	uint64_t period = model_mix(s->config.seed, s->n_steps / STARVE_STEPS);

	return c->kind >= MODEL_STEP_USER || model_mix(period, c->actor) % 4 != 0;
}

/*
 * ---- PCT: a strict order of priorities, changed at a few random steps ----
 *
 * Who is lowest stands still as long as anybody polls. Past the horizon nothing changes any more,
 * and a run in which every operation must end would not: from there on the order is random.
 */

static void
pct_start(struct sched *s)
{
	for (unsigned i = 0; i + 1 < s->config.depth && i < PCT_CHANGES_MAX; i++)
		s->change_at[i] = random_below(s, s->config.horizon ? s->config.horizon : 1);
}

static uint64_t
pct_priority(const struct sched *s, unsigned actor)
{
	for (unsigned i = s->n_lowered; i > 0; i--) {
		if (s->lowered[i - 1] == actor)
			return PCT_CHANGES_MAX - i;
	}
	return model_mix(s->config.seed, actor) | PCT_CHANGES_MAX;
}

static unsigned
pct_best(const struct sched *s, const struct model_choices *choices)
{
	unsigned best = 0;

	for (unsigned i = 1; i < choices->n; i++) {
		if (pct_priority(s, choices->v[i].actor) > pct_priority(s, choices->v[best].actor))
			best = i;
	}
	return best;
}

static unsigned
pct_pick(struct sched *s, const struct model_choices *choices)
{
	unsigned best = pct_best(s, choices);
	unsigned n = 1;

	for (unsigned i = 0; i + 1 < s->config.depth && i < PCT_CHANGES_MAX; i++) {
		if (s->change_at[i] == s->n_steps && s->n_lowered < PCT_CHANGES_MAX) {
			s->lowered[s->n_lowered++] = choices->v[best].actor;
			best = pct_best(s, choices);
		}
	}
	while (best + n < choices->n && choices->v[best + n].actor == choices->v[best].actor)
		n++;
	return best + random_below(s, n);
}

/* ---- Given picks, and all of them ---- */

static unsigned
replay(struct sched *s, unsigned n)
{
	if (s->at == s->picks.n)
		picks_add(&s->picks, 0);
	return s->picks.v[s->at++] % n;
}

static unsigned
dfs_pick(struct sched *s, unsigned n)
{
	if (s->at == s->picks.n) {
		picks_add(&s->picks, 0);
		picks_add(&s->below, n);
	}
	assert(s->below.v[s->at] == n && "the same picks led to other choices than before");
	return s->picks.v[s->at++];
}

static unsigned
deviations(const struct sched *s, unsigned n)
{
	unsigned sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum += s->picks.v[i] != 0;
	return sum;
}

bool
sched_is_fresh(const struct sched *s)
{
	return !s->finished && s->at == s->picks.n;
}

unsigned
sched_deviations_left(const struct sched *s)
{
	return s->config.bound ? s->config.bound - deviations(s, s->at) : 0;
}

unsigned
sched_at(const struct sched *s)
{
	return s->at;
}

void
sched_skip(struct sched *s)
{
	s->at++;
	s->n_steps++;
}

bool
sched_next(struct sched *s, unsigned *ret_other_at)
{
	s->at = 0;
	s->n_steps = 0;
	s->finished = false;
	while (s->picks.n) {
		unsigned i = s->picks.n - 1;
		bool bounded = s->config.bound && deviations(s, i) >= s->config.bound;

		if (!bounded && s->picks.v[i] + 1 < s->below.v[i]) {
			s->picks.v[i]++;
			*ret_other_at = i;
			return true;
		}
		s->picks.n--;
		s->below.n--;
	}
	return false;
}

/* ---- All of them ---- */

struct sched *
sched_create(const struct sched_config *config)
{
	struct sched *s = calloc(1, sizeof(*s));

	assert(s);
	s->config = *config;
	s->config.picks = NULL;
	s->random = config->seed;
	if (config->kind == SCHED_PCT)
		pct_start(s);
	if (config->kind == SCHED_PICKS && config->picks &&
	    !picks_parse(config->picks, &s->picks)) {
		free(s);
		return NULL;
	}
	return s;
}

void
sched_destroy(struct sched *s)
{
	if (!s)
		return;
	free(s->picks.v);
	free(s->below.v);
	free(s);
}

static unsigned
step_by_kind(struct sched *s, const struct model_choices *choices)
{
	switch (s->config.kind) {
	case SCHED_PCT:
		return s->n_steps < s->config.horizon ? pct_pick(s, choices)
						      : random_actor(s, choices, NULL);
	case SCHED_HOLD:
		return random_actor(s, choices, random_below(s, HOLD_STEPS) ? is_no_commit : NULL);
	case SCHED_STARVE:
		return random_actor(s, choices, is_not_starved);
	case SCHED_PICKS:
		return replay(s, choices->n);
	case SCHED_DFS:
		return dfs_pick(s, choices->n);
	default:
		return random_actor(s, choices, NULL);
	}
}

unsigned
sched_step(struct sched *s, const struct model_choices *choices)
{
	unsigned pick;

	if (s->finished || choices->n == 1)
		return 0;
	pick = step_by_kind(s, choices);
	s->n_steps++;
	if (s->config.kind < SCHED_PICKS)
		picks_add(&s->picks, pick);
	return pick;
}

unsigned
sched_below(struct sched *s, unsigned n)
{
	unsigned pick;

	if (s->finished || n <= 1)
		return 0;
	if (s->config.kind == SCHED_PICKS)
		return replay(s, n);
	if (s->config.kind == SCHED_DFS)
		return dfs_pick(s, n);
	pick = random_below(s, n);
	picks_add(&s->picks, pick);
	return pick;
}

void
sched_finish(struct sched *s)
{
	s->finished = true;
}

char *
sched_text(const struct sched *s)
{
	return picks_text(&s->picks);
}
