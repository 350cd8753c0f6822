/* SPDX-License-Identifier: BSD-2-Clause */
/* The simulated store: configurations by seed, one run, and making a failing run smaller. */
#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/sim/store_internal.h"

#define FORMATTED_S UINT64_C(1700000000)
#define MAX_STEPS UINT64_C(2000000)
#define DEADLINE_STEPS_MAX 100000
#define NS_OF_MS INT64_C(1000000)
#define SHRINK_SEEDS 40u        /* tried for each smaller run: any change makes another schedule */
#define SHRINK_STEPS_MAX 20000u /* of a run whose schedule is worth shrinking */

static const char *const event_names[] = {
#define STORE_EVENT(name) #name
	STORE_EVENTS(STORE_EVENT)
#undef STORE_EVENT
};

const char *
store_event_name(enum store_event event)
{
	return event_names[event];
}

uint64_t
store_random(uint64_t *state, uint64_t below)
{
	return below ? (sim_random(state) >> 8) % below : 0;
}

bool
store_chance(uint64_t *state, unsigned percent)
{
	return store_random(state, 100) < percent;
}

void
store_count(struct world *w, enum store_event event)
{
	w->counts->event[event]++;
}

void
store_trace(const struct world *w, const char *format, ...)
{
	if (!w->config->is_traced)
		return;
	va_list args;
	fprintf(stderr, "%8" PRIu64 " %10" PRId64 "  ", sim_n_steps(w->sim), sim_now(w->sim));
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

/* ---- A configuration ---- */

static unsigned
draw_of(uint64_t *random, const unsigned *v, unsigned n)
{
	return v[store_random(random, n)];
}
#define DRAW(random, ...)                                                                          \
	draw_of(random, (const unsigned[]){__VA_ARGS__},                                           \
		sizeof((const unsigned[]){__VA_ARGS__}) / sizeof(unsigned))

static void
draw_fabric(uint64_t *r, struct store_config *c)
{
	c->profile = DRAW(r, PROFILE_WORST, PROFILE_WORST, PROFILE_WORST, PROFILE_WORST,
			  PROFILE_WORST, PROFILE_TSO, PROFILE_TSO, PROFILE_TSO, PROFILE_VERBS,
			  PROFILE_RO, PROFILE_HAB, PROFILE_SC);
	c->sched = DRAW(r, SCHED_RANDOM, SCHED_RANDOM, SCHED_RANDOM, SCHED_PCT, SCHED_PCT,
			SCHED_HOLD, SCHED_HOLD, SCHED_STARVE);
	c->late_permille = DRAW(r, 0, 0, 0, 20, 100);
	c->step_ns = DRAW(r, 200, 1000, 4000, 20000);
	/* Strict priorities starve the rest of the world if keepalives come often. */
	c->stamp_ns = c->step_ns *
		      (c->sched == SCHED_PCT ? DRAW(r, 1000, 5000) : DRAW(r, 100, 500, 5000));
	/* [I1] In WORST, a unit per address needs an INSERT that waits once more. */
	c->unit_per_address = store_chance(r, 30);
	c->strict_insert =
		store_chance(r, 10) || (c->unit_per_address && c->profile == PROFILE_WORST);
	c->repeat_reads = store_chance(r, 30);
}

/* Few large blocks and few keys: the same words come round again while others hold them. */
static void
draw_churn(uint64_t *r, struct store_config *c)
{
	c->n_clients = DRAW(r, 2, 3);
	c->n_ops = DRAW(r, 60, 150);
	c->n_keys = DRAW(r, 1, 1, 2, 3);
	c->n_groups = 1;
	c->n_chunks = DRAW(r, 4, 5, 6);
	c->value_max = DRAW(r, 900, 1900, 3900);
	c->value_min = c->value_max * 3 / 4;
	c->step_ns = 20000;
	c->stamp_ns = c->step_ns * (c->sched == SCHED_PCT ? 1000 : DRAW(r, 100, 300));
}

/* Deadlines are waited for: so that they lie within the steps of a run, many times over. */
static void
bound_timeout(struct store_config *c)
{
	int64_t most_ms = c->step_ns * DEADLINE_STEPS_MAX / NS_OF_MS;
	if (c->timeout_ms > most_ms)
		c->timeout_ms = (unsigned)most_ms;
}

void
store_config_draw(uint64_t seed, struct store_config *ret_config)
{
	struct store_config c = {.seed = seed};
	uint64_t r = model_mix(seed, 77);
	draw_fabric(&r, &c);
	c.n_clients = DRAW(&r, 2, 2, 2, 3, 3, 4, 5, 8);
	c.n_ops = DRAW(&r, 10, 20, 40, 80);
	c.n_keys = DRAW(&r, 1, 1, 2, 3, 5, 8);
	c.depth = DRAW(&r, 1, 1, 2, 3, 4);
	c.n_groups = DRAW(&r, 1, 1, 1, 2, 3);
	c.n_chunks = DRAW(&r, 4, 6, 10, 16);
	c.value_min = 8;
	c.value_max = DRAW(&r, 16, 200, 600, 1500, 3000, 3900);
	if (store_chance(&r, 5)) {
		c.n_keys = 26; /* more than one group has room for */
		c.n_groups = 1;
		c.value_max = 16;
		c.n_chunks = 16;
	}
	if (store_chance(&r, 35))
		draw_churn(&r, &c);
	c.n_faults = store_chance(&r, 60) ? 1 + (unsigned)store_random(&r, 12) : 0;
	c.is_live = store_chance(&r, 25);
	c.timeout_ms = c.is_live ? 60000 : DRAW(&r, 2, 10, 50, 1000);
	if (c.is_live && c.n_faults > 3)
		c.n_faults = 3;
	c.scrubs = store_chance(&r, 50);
	c.n_restarts = store_chance(&r, 12) ? 1 + (unsigned)store_random(&r, 2) : 0;
	c.expires = store_chance(&r, 12);
	/* Who meets a forged word waits for its own deadline. */
	c.n_forged = store_chance(&r, 8) && !c.is_live ? 1 + (unsigned)store_random(&r, 6) : 0;
	if (c.n_forged)
		bound_timeout(&c);
	*ret_config = c;
}

/* ---- The line that replays ---- */

enum setting_kind { SETTING_UNSIGNED, SETTING_NS, SETTING_BOOL };
static const struct setting {
	const char *name;
	enum setting_kind kind;
	size_t at;
} settings[] = {
	{"CLIENTS", SETTING_UNSIGNED, offsetof(struct store_config, n_clients)},
	{"OPS", SETTING_UNSIGNED, offsetof(struct store_config, n_ops)},
	{"KEYS", SETTING_UNSIGNED, offsetof(struct store_config, n_keys)},
	{"DEPTH", SETTING_UNSIGNED, offsetof(struct store_config, depth)},
	{"GROUPS_OF_BUCKETS", SETTING_UNSIGNED, offsetof(struct store_config, n_groups)},
	{"CHUNKS", SETTING_UNSIGNED, offsetof(struct store_config, n_chunks)},
	{"VALUE_MIN", SETTING_UNSIGNED, offsetof(struct store_config, value_min)},
	{"VALUE_MAX", SETTING_UNSIGNED, offsetof(struct store_config, value_max)},
	{"FAULTS", SETTING_UNSIGNED, offsetof(struct store_config, n_faults)},
	{"LATE", SETTING_UNSIGNED, offsetof(struct store_config, late_permille)},
	{"TIMEOUT_MS", SETTING_UNSIGNED, offsetof(struct store_config, timeout_ms)},
	{"STEP_NS", SETTING_NS, offsetof(struct store_config, step_ns)},
	{"STAMP_NS", SETTING_NS, offsetof(struct store_config, stamp_ns)},
	{"UNIT_PER_ADDRESS", SETTING_BOOL, offsetof(struct store_config, unit_per_address)},
	{"REPEAT_READS", SETTING_BOOL, offsetof(struct store_config, repeat_reads)},
	{"STRICT", SETTING_BOOL, offsetof(struct store_config, strict_insert)},
	{"LIVE", SETTING_BOOL, offsetof(struct store_config, is_live)},
	{"SCRUB", SETTING_BOOL, offsetof(struct store_config, scrubs)},
	{"RESTARTS", SETTING_UNSIGNED, offsetof(struct store_config, n_restarts)},
	{"EXPIRY", SETTING_BOOL, offsetof(struct store_config, expires)},
	{"FORGED", SETTING_UNSIGNED, offsetof(struct store_config, n_forged)},
	{"TRACE", SETTING_BOOL, offsetof(struct store_config, is_traced)},
};
#define N_SETTINGS (sizeof(settings) / sizeof(settings[0]))

static int64_t
get_setting(const struct store_config *c, const struct setting *s)
{
	const char *at = (const char *)c + s->at;
	if (s->kind == SETTING_NS)
		return *(const int64_t *)(const void *)at;
	return s->kind == SETTING_BOOL ? *(const bool *)at : *(const unsigned *)(const void *)at;
}

static void
set_setting(struct store_config *c, const struct setting *s, int64_t value)
{
	char *at = (char *)c + s->at;
	if (s->kind == SETTING_NS)
		*(int64_t *)(void *)at = value;
	else if (s->kind == SETTING_BOOL)
		*(bool *)at = value;
	else
		*(unsigned *)(void *)at = (unsigned)value;
}

/* The value of NAME= in text, or in the environment. */
static bool
find_setting(const char *text, const char *name, char ret_value[32])
{
	const char *value = NULL;
	size_t len = strlen(name);
	if (!text) {
		value = getenv(name);
	} else {
		for (const char *p = text; p && !value; p = strchr(p, ' ')) {
			p += strspn(p, " ");
			if (strncmp(p, name, len) == 0 && p[len] == '=')
				value = p + len + 1;
		}
	}
	if (!value)
		return false;
	snprintf(ret_value, 32, "%.*s", (int)strcspn(value, " \n#"), value);
	return true;
}

static bool
is_possible(const struct store_config *c)
{
	return c->n_clients >= 1 && c->n_clients <= STORE_CLIENTS_MAX && c->n_keys >= 1 &&
	       c->n_keys <= KEYS_MAX && c->depth >= 1 && c->depth <= DEPTH_MAX &&
	       c->n_groups >= 1 && c->n_chunks >= 1 && c->n_restarts <= RESTARTS_MAX &&
	       c->value_min >= 8 && c->value_max >= c->value_min &&
	       c->value_max <= STORE_CHUNK_SIZE - BLOCK_HEADER_LEN - KEY_LEN_MAX &&
	       c->step_ns >= 1 && c->stamp_ns >= 1000;
}

bool
store_config_parse(const char *text, struct store_config *ret_config)
{
	char value[32];
	struct store_config c;
	if (!find_setting(text, "SEED", value))
		return false;
	store_config_draw(strtoull(value, NULL, 10), &c);
	if (find_setting(text, "PROFILE", value) && !profile_parse(value, &c.profile))
		return false;
	if (find_setting(text, "SCHED", value) && !sched_kind_parse(value, &c.sched))
		return false;
	for (unsigned i = 0; i < N_SETTINGS; i++)
		if (find_setting(text, settings[i].name, value))
			set_setting(&c, &settings[i], strtoll(value, NULL, 10));
	if (!text)
		c.picks = getenv("PICKS");
	*ret_config = c;
	return is_possible(&c);
}

void
store_config_print(const struct store_config *config, bool is_full, char ret_line[STORE_LINE_MAX])
{
	struct store_config drawn;
	store_config_draw(config->seed, &drawn);
	int n = snprintf(ret_line, STORE_LINE_MAX, "SEED=%" PRIu64 " PROFILE=%s", config->seed,
			 profile_name(config->profile));
	if (is_full || config->sched != drawn.sched)
		n += snprintf(ret_line + n, (size_t)(STORE_LINE_MAX - n), " SCHED=%s",
			      sched_kind_name(config->sched));
	for (unsigned i = 0; i < N_SETTINGS && n < (int)STORE_LINE_MAX; i++) {
		int64_t value = get_setting(config, &settings[i]);
		if (is_full ? settings[i].at != offsetof(struct store_config, is_traced)
			    : value != get_setting(&drawn, &settings[i]))
			n += snprintf(ret_line + n, (size_t)(STORE_LINE_MAX - n), " %s=%" PRId64,
				      settings[i].name, value);
	}
}

/* ---- A world ---- */

void
store_format(struct world *w, uint64_t n_groups, uint64_t n_chunks, uint64_t hash_seed)
{
	w->layout = (struct layout){
		.n_groups = n_groups,
		.chunk_size = STORE_CHUNK_SIZE,
		.n_chunks = n_chunks,
		.hash_seed = hash_seed,
		.formatted_s = FORMATTED_S,
	};
	w->layout.region_len = layout_round_up(layout_place(&w->layout), LAYOUT_PAGE);
	w->memory = aligned_alloc(LAYOUT_PAGE, w->layout.region_len);
	assert(w->memory);
	memset(w->memory, 0, w->layout.region_len);
	layout_to_superblock(&w->layout, (struct layout_superblock *)(void *)w->memory);
	w->server = sim_server(w->sim, w->memory, w->layout.region_len, 7, w->epoch, &w->offer);
}

static void
make_keys(struct world *w)
{
	for (unsigned i = 0; i < w->config->n_keys; i++) {
		struct key *key = &w->key[i];
		key->len = store_chance(&w->random, 70)
				   ? 3
				   : 3 + (uint32_t)store_random(&w->random, KEY_LEN_MAX - 3);
		memset(key->bytes, 'k', sizeof(key->bytes));
		key->bytes[1] = (unsigned char)('a' + i % 26);
		key->bytes[2] = (unsigned char)('a' + i / 26);
	}
}

static void
start_client(struct world *w, struct peer *p)
{
	struct rkv_client *c = &p->client;
	rkv_options_init(&c->options);
	c->options.depth = w->config->depth;
	c->options.op_timeout_ms = w->config->timeout_ms;
	c->options.strict_insert = w->config->strict_insert;
	c->options.cache_bytes = store_chance(&w->random, 85) ? 8192 : 0;
	c->options.arena_bytes = 16 * STORE_CHUNK_SIZE;
	static const uint32_t not_forked = 1;
	c->not_forked = &not_forked;
	pthread_mutex_init(&c->mutex, NULL);
	pthread_cond_init(&c->changed, NULL);
	atomic_store(&c->wall_offset_ns, (int64_t)(FORMATTED_S + STORE_BEGIN_S) * NS_OF_S);
	p->fab = c->fab = sim_fab(w->sim);
	watch_hook(p);
	if (watch_region_open(w, p->fab, &p->region) != 0)
		sim_fail(w->sim, "the region cannot be opened");
	atomic_store(&c->stamps.newest, w->newest);
}

static void
start_peer(struct world *w, unsigned number, void (*run)(void *))
{
	struct peer *p = &w->peer[number];
	uint64_t room = 2 * w->layout.chunk_size;
	p->w = w;
	p->number = number;
	p->connection = 1;
	p->epoch = w->epoch;
	p->random = model_mix(w->config->seed, 1000 + number);
	start_client(w, p);
	p->bytes = malloc(2 * room * DEPTH_MAX);
	assert(p->bytes);
	for (unsigned i = 0; i < DEPTH_MAX; i++) {
		p->memory[i].value = p->bytes + 2 * room * i;
		p->memory[i].buf = p->bytes + 2 * room * i + room;
	}
	if (store_chance(&w->random, 50))
		rkv_buffer_register(&p->client, p->bytes, 2 * room * DEPTH_MAX);
	p->main = sim_spawn(w->sim, p->fab, run, p);
	p->control = sim_spawn(w->sim, p->fab, control_main, p);
}

static void
free_buffers(struct rkv_client *c)
{
	struct buffer_list *list = atomic_load(&c->buffers);
	while (list) {
		struct buffer_list *older = list->older;
		free(list);
		list = older;
	}
}

static void
end_world(struct world *w)
{
	for (unsigned i = 0; i < w->n_peers; i++) {
		client_release(&w->peer[i]);
		free_buffers(&w->peer[i].client);
	}
	watch_stop(w);
	scrub_stop(w);
	free(w->record);
	free(w->memory);
	for (unsigned i = 0; i < w->n_former; i++)
		free(w->former[i]);
	free(w);
	store_world = NULL;
}

static struct sim_config
sim_config_of(const struct store_config *c)
{
	struct sim_config sim = sim_config_default();
	sim.model.profile = c->profile;
	sim.model.unit_per_address = c->unit_per_address;
	sim.model.repeat_reads = c->repeat_reads;
	sim.sched.kind = c->sched;
	sim.sched.seed = model_mix(c->seed, 5);
	sim.sched.depth = 5;
	sim.sched.horizon = c->n_clients * c->n_ops * 200;
	if (c->picks) {
		sim.sched.kind = SCHED_PICKS;
		sim.sched.picks = c->picks;
	}
	sim.late_permille = c->late_permille;
	sim.step_ns = c->step_ns;
	sim.max_steps = MAX_STEPS;
	return sim;
}

struct run {
	const struct store_config *config;
	struct store_counts *counts;
};

static void
run_case(struct sim *sim, void *arg)
{
	const struct run *run = arg;
	const struct store_config *config = run->config;
	struct world *w = calloc(1, sizeof(*w));
	assert(w && !store_world);
	store_world = w;
	w->sim = sim;
	w->config = config;
	w->counts = run->counts;
	w->random = model_mix(config->seed, 6);
	w->n_peers = config->n_clients + 1;
	w->epoch = 1;
	w->n_records_max = config->n_clients * config->n_ops + 3 * config->n_keys;
	w->record = calloc(w->n_records_max, sizeof(*w->record));
	assert(w->record);
	store_format(w, w->config->n_groups, w->config->n_chunks, w->config->seed);
	make_keys(w);
	watch_start(w);
	server_start(w);
	for (unsigned i = 0; i < config->n_clients; i++)
		start_peer(w, i, client_main);
	start_peer(w, config->n_clients, auditor_main);
	chaos_start(w);
	sim_run(w->sim);
	watch_finish(w);
	end_world(w);
}

static void
try_case(const struct store_config *config, struct store_counts *counts,
	 struct sim_result *ret_result)
{
	struct sim_config sim_config = sim_config_of(config);
	struct run run = {config, counts};
	sim_try(&(struct sim_case){"store", run_case, &run}, &sim_config, ret_result);
}

bool
store_run(const struct store_config *config, struct store_counts *counts, uint64_t *ret_steps,
	  char ret_text[200])
{
	struct sim_result result;
	try_case(config, counts, &result);
	bool passed = !result.failed;
	*ret_steps += result.n_steps;
	memcpy(ret_text, result.text, sizeof(result.text));
	sim_result_clear(&result);
	return passed;
}

/* ---- Shrinking ---- */

struct shrinking {
	struct store_config *config;
	unsigned n_runs;
	unsigned max_runs;
	time_t until;
	char *text;
};

/* Keeps the smaller configuration if that fails too, with this seed or one of the next. */
static bool
try_smaller(struct shrinking *s, const struct store_config *smaller)
{
	struct store_config c = *smaller;
	for (; c.seed < smaller->seed + SHRINK_SEEDS; c.seed++) {
		struct store_counts counts = {0};
		char text[200];
		uint64_t steps = 0;
		if (s->n_runs == s->max_runs || time(NULL) > s->until || !is_possible(&c))
			return false;
		s->n_runs++;
		if (store_run(&c, &counts, &steps, text))
			continue;
		*s->config = c;
		memcpy(s->text, text, sizeof(text));
		return true;
	}
	return false;
}

/* Halves, then counts down, as long as it fails. */
static bool
shrink_one(struct shrinking *s, const struct setting *setting, int64_t least)
{
	bool progress = false;
	for (int64_t step = (get_setting(s->config, setting) - least + 1) / 2; step > 0;) {
		struct store_config smaller = *s->config;
		int64_t value = get_setting(&smaller, setting) - step;
		set_setting(&smaller, setting, value);
		if (value >= least && try_smaller(s, &smaller))
			progress = true;
		else
			step /= 2;
	}
	return progress;
}

unsigned
store_shrink(struct store_config *config, unsigned max_runs, unsigned max_s, char ret_text[200])
{
	static const struct {
		const char *name;
		int64_t least;
	} order[] = {{"FAULTS", 0},
		     {"RESTARTS", 0},
		     {"FORGED", 0},
		     {"EXPIRY", 0},
		     {"OPS", 1},
		     {"CLIENTS", 1},
		     {"KEYS", 1},
		     {"DEPTH", 1},
		     {"LATE", 0},
		     {"REPEAT_READS", 0},
		     {"UNIT_PER_ADDRESS", 0}};
	struct shrinking s = {.config = config,
			      .max_runs = max_runs,
			      .until = time(NULL) + max_s,
			      .text = ret_text};
	bool progress = true;
	while (progress && s.n_runs < max_runs && time(NULL) <= s.until) {
		progress = false;
		for (unsigned i = 0; i < sizeof(order) / sizeof(order[0]); i++)
			for (unsigned k = 0; k < N_SETTINGS; k++)
				if (strcmp(settings[k].name, order[i].name) == 0)
					progress |= shrink_one(&s, &settings[k], order[i].least);
	}
	return s.n_runs;
}

char *
store_shrink_schedule(const struct store_config *config, unsigned max_runs)
{
	struct store_counts counts = {0};
	struct run run = {config, &counts};
	struct sim_case c = {"store", run_case, &run};
	struct sim_config sim_config = sim_config_of(config);
	struct sim_result result;
	char *picks;
	sim_try(&c, &sim_config, &result);
	if (result.failed && result.n_steps <= SHRINK_STEPS_MAX)
		sim_shrink(&c, &sim_config, max_runs, &result);
	picks = result.is_shrunk ? result.picks : NULL;
	if (picks)
		result.picks = NULL;
	sim_result_clear(&result);
	return picks;
}
