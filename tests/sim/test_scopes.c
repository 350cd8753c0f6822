/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Small scopes, every schedule: two clients with two operations each, or three with one, on the
 * real client code (client/op.c, session.c, alloc.c), with keys that share both buckets and, in
 * builds with tiny limits, the fingerprint. What must hold at every step is the watch's affair
 * (store_watch.c); every history that ends must be linearisable. Sessions have their links, chunks
 * and, where it says so, cached words before the clients begin; nothing is lost, and no stamp
 * passes: faults and reclamation belong to test_store.
 *
 * Each state is looked at once. Where there are more of them than time, those are looked at that
 * are near a prompt run: at most so many of its steps out of turn.
 *
 *   RKV_SIM="..." build/tests/sim/test_scopes    one run, as a failing one is printed
 *
 * timeout: 600
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/sim/store_internal.h"

#define CLIENTS_MAX 3u
#define OPS_MAX 2u
#define KEYS 2u                     /* that operations are about */
#define N_KEYS (KEYS + CLIENTS_MAX) /* and one of each client's, for a chunk */
#define STATES_MAX UINT64_C(400000)
#define STEPS_MAX 20000u /* of a run; a few hundred are usual */
#define BOUND 3u

/*
 * clients "PG D": one puts and gets, another deletes, all of them key 0; lower case letters are
 * about key 1. before: what the first client does first; its words are cached.
 */
struct scope {
	const char *before;
	const char *clients;
	unsigned bound; /* 0: every schedule */
	bool is_strict; /* INSERT waits once more, on a card that has need of it */
};

static const enum rkv_op kind_of[128] = {
	['G'] = RKV_OP_GET,     ['P'] = RKV_OP_PUT,    ['A'] = RKV_OP_ADD,
	['R'] = RKV_OP_REPLACE, ['D'] = RKV_OP_DELETE, ['T'] = RKV_OP_TOUCH,
};

/* ---- One run ---- */

struct client {
	struct peer *p;
	const char *ops;
};

struct run {
	struct world w;
	struct client client[CLIENTS_MAX];
	struct store_config config;
	struct store_counts counts;
};

static uint64_t n_ends;

static void
operate(struct peer *p, char letter)
{
	struct world *w = p->w;
	bool is_first = letter < 'a';
	unsigned key = letter >= '0' && letter <= '9' ? KEYS + p->number : is_first ? 0 : 1;
	enum rkv_op kind = key >= KEYS ? RKV_OP_PUT : kind_of[letter & ~0x20];
	struct record *r = &w->record[w->n_records++];
	*r = (struct record){.peer = p};
	r->lin = (struct lin_op){.key = key, .client = p->number, .kind = (uint8_t)kind};
	r->request = (struct rkv_request){.op = kind,
					  .key = w->key[key].bytes,
					  .key_len = w->key[key].len,
					  .user = r,
					  .buf = p->memory[0].buf,
					  .buf_len = 64};
	p->memory[0].record = r;
	uint64_t id = w->n_records;
	if (kind == RKV_OP_PUT || kind == RKV_OP_ADD || kind == RKV_OP_REPLACE) {
		memcpy(p->memory[0].value, &id, sizeof(id));
		r->lin.value = id;
		r->request.value = p->memory[0].value;
		r->request.value_len = sizeof(id);
	}
	watch_begin(r);
	sim_note(w->sim, model_mix(p->number, id));
	int status = kind == RKV_OP_GET ? session_call_get(p->session, &r->request)
					: session_call(p->session, &r->request);
	if (kind == RKV_OP_GET && status == 0)
		memcpy(&r->lin.value, r->request.buf, sizeof(r->lin.value));
	if (status == 0 && kind != RKV_OP_DELETE)
		r->lin.version = r->request.item.version;
	watch_end(r, status);
	sim_note(w->sim, model_mix(model_mix(p->number, (uint64_t)(int64_t)status), r->lin.value));
	p->memory[0].record = NULL;
}

static void
client_run(void *arg)
{
	struct client *c = arg;
	for (const char *op = c->ops; *op && *op != ' '; op++) {
		sim_yield(c->p->w->sim);
		operate(c->p, *op);
	}
}

/* ---- The world ---- */

/* Keys 0 and 1 share both buckets of the first group, the clients' are in the other one. */
static void
make_keys(struct world *w)
{
	unsigned char name = 0;
	for (unsigned i = 0; i < N_KEYS; i++) {
		uint64_t main[2];
		do {
			assert(name < 255);
			w->key[i].bytes[0] = ++name;
			w->key[i].len = 1;
			struct hash hash = hash_key(w->key[i].bytes, 1, w->layout.hash_seed);
			hash_main_buckets(&hash, 2 * w->layout.n_groups, main);
		} while (main[0] / 2 != (i >= KEYS) || main[1] / 2 != (i >= KEYS));
	}
}

static void
open_session(struct run *run, unsigned i, bool is_strict)
{
	struct world *w = &run->w;
	struct peer *p = &w->peer[i];
	static const uint32_t not_forked = 1;
	*p = (struct peer){.w = w, .number = i, .connection = 1};
	rkv_options_init(&p->client.options);
	p->client.options.depth = 1;
	p->client.options.op_timeout_ms = 60000;
	p->client.options.cache_bytes = 8192;
	p->client.options.arena_bytes = 4 * STORE_CHUNK_SIZE;
	p->client.options.strict_insert = is_strict;
	p->client.not_forked = &not_forked;
	p->fab = p->client.fab = sim_fab(w->sim);
	p->bytes = malloc(128);
	assert(p->bytes);
	p->memory[0].value = p->bytes;
	p->memory[0].buf = p->bytes + 64;
	watch_hook(p);
	if (watch_region_open(w, p->fab, &p->region) != 0 ||
	    session_create(&p->client, &p->session) != 0)
		sim_fail(w->sim, "no session");
	atomic_store(&p->client.stamps.newest, w->newest);
	struct link link = {.fab = p->fab,
			    .layout = w->layout,
			    .epoch = 1,
			    .session_slot = i + 1,
			    .serial = i + 1,
			    .joined_stamp = w->newest};
	if (fab_connect(p->region, NULL, 8, 0, &link.ep) != 0)
		sim_fail(w->sim, "no connection");
	p->session->port.next_link = link;
	atomic_store(&p->session->port.state, LINK_READY);
	session_pump(p->session);
}

static const char *
next_word(const char *text)
{
	text = strchr(text, ' ');
	return text ? text + 1 : NULL;
}

static void
start(struct run *run, const struct scope *scope)
{
	struct world *w = &run->w;
	for (const char *c = scope->clients; c; c = next_word(c))
		run->client[w->n_peers++].ops = c;
	for (unsigned i = 0; i < w->n_peers; i++) {
		open_session(run, i, scope->is_strict);
		operate(&w->peer[i], '0');
	}
	for (const char *op = scope->before; *op; op++)
		operate(&w->peer[0], *op);
	for (unsigned i = 0; i < w->n_peers; i++) {
		run->client[i].p = &w->peer[i];
		sim_spawn(w->sim, w->peer[i].fab, client_run, &run->client[i]);
	}
}

static void
run_scope(struct sim *sim, void *arg)
{
	struct run *run = calloc(1, sizeof(*run));
	assert(run);
	struct world *w = &run->w;
	store_world = w;
	run->config = (struct store_config){.n_keys = N_KEYS, .n_groups = 2, .n_chunks = 6};
	w->sim = sim;
	w->config = &run->config;
	w->counts = &run->counts;
	w->newest = 1000;
	w->epoch = 1;
	w->scrubber_a = UINT64_MAX;
	w->n_records_max = CLIENTS_MAX * OPS_MAX + N_KEYS + 8;
	w->record = calloc(w->n_records_max, sizeof(*w->record));
	assert(w->record);
	store_format(w, w->config->n_groups, w->config->n_chunks, 1);
	make_keys(w);
	watch_start(w);
	start(run, arg);
	int rc = sim_run(sim);
	if (rc == 0) {
		n_ends++;
		sim_settle(sim);
		watch_finish(w);
	}
	for (unsigned i = 0; i < w->n_peers; i++) {
		if (rc > 0)
			sim_crash(sim, w->peer[i].fab); /* in the middle of what it does */
		client_release(&w->peer[i]);
	}
	watch_stop(w);
	free(w->record);
	free(w->memory);
	free(run);
	store_world = NULL;
}

/* ---- All of them ---- */

struct sum {
	unsigned n_scopes;
	unsigned n_incomplete;
	unsigned n_failed;
	uint64_t n_states;
	uint64_t n_runs;
	uint64_t n_ends;
	double seconds;
};

static double
now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct sim_case
case_of(const struct scope *scope, char name[64])
{
	snprintf(name, 64, "%s:%s%s", scope->clients, scope->before, scope->is_strict ? "+" : "");
	for (char *c = name; *c; c++)
		if (*c == ' ')
			*c = '_';
	return (struct sim_case){.name = name, .run = run_scope, .arg = (void *)scope};
}

static void
explore(const struct scope *scope, enum profile profile, struct sum *sum)
{
	char name[64];
	struct sim_case c = case_of(scope, name);
	struct sim_config config = sim_config_exhaustive(profile);
	struct sim_result result;
	double from = now_s();
	config.model.unit_per_address = scope->is_strict;
	config.sched.bound = scope->bound;
	config.abandons = true;
	config.max_steps = STEPS_MAX;
	n_ends = 0;
	sim_explore(&c, &config, STATES_MAX, &result);
	sum->n_scopes++;
	sum->n_incomplete += !result.is_complete && !result.failed;
	sum->n_failed += result.failed;
	sum->n_states += result.n_states;
	sum->n_runs += result.n_runs;
	sum->n_ends += n_ends;
	sum->seconds += now_s() - from;
	if (result.failed)
		sim_report(stdout, &c, &config, &result);
	sim_result_clear(&result);
}

static void
tell(enum profile profile, const char *what, unsigned bound, const struct sum *sum)
{
	char how[40] = "every schedule";
	if (bound)
		snprintf(how, sizeof(how), "at most %u out of turn", bound);
	printf("# %-5s %-34s %-22s %4u scopes, %7" PRIu64 " states, %7" PRIu64 " runs, %6" PRIu64
	       " ends, %s, %.0f s\n",
	       profile_name(profile), what, how, sum->n_scopes, sum->n_states, sum->n_runs,
	       sum->n_ends, sum->n_incomplete ? "NOT complete" : "complete", sum->seconds);
	fflush(stdout);
	assert_int_equal(sum->n_failed, 0);
	assert_int_equal(sum->n_incomplete, 0);
}

static const enum profile profiles[] = {PROFILE_WORST, PROFILE_TSO};

/* Two clients with an operation each: nothing is left out. */
static void
every_schedule(void **state)
{
	static const struct scope scopes[] = {
		{"", "P P", 0, false},  {"P", "P P", 0, false}, {"P", "P D", 0, false},
		{"P", "G P", 0, false}, {"P", "D D", 0, false}, {"P", "T P", 0, false},
		{"P", "G D", 0, false}, {"", "G P", 0, false},  {"P", "R D", 0, false},
	};
	(void)state;
	for (unsigned p = 0; p < sizeof(profiles) / sizeof(profiles[0]); p++) {
		struct sum sum = {0};
		for (unsigned i = 0; i < sizeof(scopes) / sizeof(scopes[0]); i++)
			explore(&scopes[i], profiles[p], &sum);
		tell(profiles[p], "2 clients x 1 operation", 0, &sum);
	}
}

/* strict_insert, where a card's atomics exclude each other by word only, [I1]. */
static void
strict_insert(void **state)
{
	static const struct scope scopes[] = {
		{"", "P P", BOUND, true},
		{"", "A P", BOUND, true},
		{"", "P P P", BOUND, true},
		{"", "PD P", BOUND, true},
	};
	struct sum sum = {0};
	(void)state;
	for (unsigned i = 0; i < sizeof(scopes) / sizeof(scopes[0]); i++)
		explore(&scopes[i], PROFILE_WORST, &sum);
	tell(PROFILE_WORST, "strict INSERT, unit per word", BOUND, &sum);
}

/* All pairs of programs of two operations; the key absent, or present and cached by the first. */
static void
two_by_two(void **state)
{
	static const char letters[] = "PGDA";
	const unsigned n = 16;
	(void)state;
	for (unsigned p = 0; p < sizeof(profiles) / sizeof(profiles[0]); p++) {
		struct sum sum = {0};
		for (unsigned i = 0; i < 2 * n * n; i++) {
			unsigned a = i / 2 / n, b = i / 2 % n;
			char clients[8];
			/* Where nobody has cached anything, the two are alike. */
			if (i % 2 == 0 && a > b)
				continue;
			snprintf(clients, sizeof(clients), "%c%c %c%c", letters[a / 4],
				 letters[a % 4], letters[b / 4], letters[b % 4]);
			explore(&(struct scope){i % 2 ? "P" : "", clients, BOUND, false},
				profiles[p], &sum);
		}
		tell(profiles[p], "2 clients x 2 operations, 1 key", BOUND, &sum);
	}
}

static void
two_keys(void **state)
{
	static const char *const clients[] = {"Pp pP", "PD pd", "Dp Pd", "Pd pD", "pG PD",
					      "DP dp", "Ap pA", "PP pp", "Tp PT", "Rd Dp"};
	static const char *const before[] = {"", "P", "Pp", "PpD"};
	(void)state;
	for (unsigned p = 0; p < sizeof(profiles) / sizeof(profiles[0]); p++) {
		struct sum sum = {0};
		for (unsigned i = 0; i < sizeof(clients) / sizeof(clients[0]); i++)
			for (unsigned k = 0; k < sizeof(before) / sizeof(before[0]); k++)
				explore(&(struct scope){before[k], clients[i], BOUND, false},
					profiles[p], &sum);
		tell(profiles[p], "2 clients x 2 operations, 2 keys", BOUND, &sum);
	}
}

static void
three_by_one(void **state)
{
	static const char letters[] = "PGDAp";
	const unsigned n = sizeof(letters) - 1;
	(void)state;
	for (unsigned p = 0; p < sizeof(profiles) / sizeof(profiles[0]); p++) {
		struct sum sum = {0};
		for (unsigned i = 0; i < 2 * n * n * n; i++) {
			unsigned a = i / 2 / n / n, b = i / 2 / n % n, c = i / 2 % n;
			char clients[8];
			if (b > c || (i % 2 == 0 && a > b))
				continue;
			snprintf(clients, sizeof(clients), "%c %c %c", letters[a], letters[b],
				 letters[c]);
			explore(&(struct scope){i % 2 ? "P" : "", clients, BOUND, false},
				profiles[p], &sum);
		}
		tell(profiles[p], "3 clients x 1 operation, 2 keys", BOUND, &sum);
	}
}

/* The run of RKV_SIM, whose case names the scope. */
static int
replay(void)
{
	static char clients[64], before[64];
	struct scope scope = {.before = before, .clients = clients};
	const char *from = strstr(getenv("RKV_SIM"), "case=");
	if (!from || sscanf(from, "case=%63[^: ]:%63[^ ]", clients, before) < 1)
		return 2;
	scope.is_strict = strchr(before, '+') != NULL;
	before[strcspn(before, "+")] = '\0';
	for (char *c = clients; *c; c++)
		if (*c == '_')
			*c = ' ';
	char name[64];
	struct sim_case c = case_of(&scope, name);
	int status;
	return sim_replay(&c, 1, &status) ? status : 2;
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_schedule), cmocka_unit_test(strict_insert),
		cmocka_unit_test(two_by_two),     cmocka_unit_test(two_keys),
		cmocka_unit_test(three_by_one),
	};
	if (getenv("RKV_SIM"))
		return replay();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
