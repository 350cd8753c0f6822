/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Small scopes, every schedule: two clients with two operations each, or three with one, on the real
 * client code (client/op.c, session.c, alloc.c) and one group of buckets. What must hold at every
 * step is the watch's affair (store_watch.c); every history that ends must be linearisable. Sessions
 * have their links, chunks and, where it says so, cached words before the clients begin; nothing is
 * lost, and no stamp passes: faults and reclamation belong to test_store.
 *
 * Each state is looked at once. Where there are more of them than time, those are looked at that are
 * near a prompt run: at most so many steps of it out of turn.
 *
 *   RKV_SIM="..." build/tests/sim/test_scopes    one run, as a failing one is printed
 *
 * timeout: 400
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
#define CHUNK_SIZE 4096u
#define STATES_MAX UINT64_C(400000)

/*
 * "PG D": one client puts and gets, another deletes, all of them key 0; lower case letters are about
 * key 1. before: what the first client does first; its words are cached.
 */
struct scope {
	const char *name;
	const char *before;
	const char *clients;
	unsigned bound; /* 0: every schedule */
};

static const enum rkv_op kind_of[128] = {
	['G'] = RKV_OP_GET,    ['P'] = RKV_OP_PUT,     ['A'] = RKV_OP_ADD,
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
	unsigned char value[2][4 * CHUNK_SIZE];
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

static void
format(struct world *w)
{
	w->layout = (struct layout){.n_groups = w->config->n_groups,
				    .chunk_size = CHUNK_SIZE,
				    .n_chunks = w->config->n_chunks,
				    .hash_seed = 1,
				    .formatted_s = 1700000000};
	w->layout.region_len = layout_round_up(layout_place(&w->layout), LAYOUT_PAGE);
	w->memory = aligned_alloc(LAYOUT_PAGE, w->layout.region_len);
	assert(w->memory);
	memset(w->memory, 0, w->layout.region_len);
	layout_to_superblock(&w->layout, (struct layout_superblock *)(void *)w->memory);
	w->server = sim_server(w->sim, w->memory, w->layout.region_len, 7, 1, &w->offer);
}

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
open_session(struct run *run, unsigned i)
{
	struct world *w = &run->w;
	struct peer *p = &w->peer[i];
	static const uint32_t not_forked = 1;
	*p = (struct peer){.w = w, .number = i, .connection = 1};
	rkv_options_init(&p->client.options);
	p->client.options.depth = 1;
	p->client.options.op_timeout_ms = 60000;
	p->client.options.cache_bytes = 8192;
	p->client.options.arena_bytes = 4 * CHUNK_SIZE;
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
	if (fab_connect(p->region, 8, 0, &link.ep) != 0)
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
		open_session(run, i);
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
	w->record = calloc(CLIENTS_MAX * OPS_MAX + N_KEYS + 8, sizeof(*w->record));
	assert(w->record);
	format(w);
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

static const struct scope scopes[] = {
	{"get_while_updated", "P", "P G", 0},
};
#define N_SCOPES (sizeof(scopes) / sizeof(scopes[0]))

static double
now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static unsigned
explore(const struct scope *scope, enum profile profile, uint64_t max_states)
{
	struct sim_case c = {.name = scope->name, .run = run_scope, .arg = (void *)scope};
	struct sim_config config = sim_config_exhaustive(profile);
	struct sim_result result;
	double from = now_s();
	config.sched.bound = scope->bound;
	config.abandons = true;
	config.max_steps = 20000;
	n_ends = 0;
	sim_explore(&c, &config, max_states, &result);
	char bound[32] = "every schedule";
	if (scope->bound)
		snprintf(bound, sizeof(bound), "bound %u", scope->bound);
	printf("# %-6s %-28s %-6s %-14s %8" PRIu64 " states, %7" PRIu64 " runs, %6" PRIu64
	       " ends, %s, %.1f s\n",
	       profile_name(profile), scope->clients, scope->before, bound, result.n_states,
	       result.n_runs, n_ends, result.is_complete ? "complete" : "NOT complete",
	       now_s() - from);
	fflush(stdout);
	if (result.failed)
		sim_report(stdout, &c, &config, &result);
	unsigned n_wrong = result.failed;
	sim_result_clear(&result);
	return n_wrong;
}

int
main(int argc, char **argv)
{
	if (argc > 2) {
		struct scope s = {"given", argc > 3 ? argv[3] : "", argv[2], argc > 4 ? (unsigned)atoi(argv[4]) : 0};
		enum profile p;
		if (!profile_parse(argv[1], &p))
			return 2;
		return (int)explore(&s, p, argc > 5 ? strtoull(argv[5], NULL, 10) : 300000);
	}
	return 0;
}
