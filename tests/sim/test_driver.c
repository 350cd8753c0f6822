/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The simulated fabric checks itself. Two processes pass a message through a server's memory:
 *
 *   writer  {WRITE block; CAS flag}      reader  {READ flag} until it is set, then {READ block}
 *
 * That is right in every profile; with {WRITE block; WRITE flag} it is wrong from VERBS on, and
 * nobody who tests in SC will know. Then all that a run can do to a client and a client to itself;
 * the schedulers; replay and shrinking.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/err.h"
#include "tests/sim/fabric_sim.h"

#define FLAG 0u
#define BLOCK 64u
#define BLOCK_LEN 64u
#define REGION_LEN 4096u
#define LOCAL_LEN 256u
#define MESSAGE 0x11

/* ---- A world: one server, processes with one connection each ---- */

struct world;

struct process {
	struct world *world;
	struct fab *fab;
	struct fab_region *region;
	struct fab_endpoint *ep;
	unsigned coroutine;
	uint32_t key;
	unsigned char local[LOCAL_LEN] __attribute__((aligned(64)));
};

struct world {
	struct sim *sim;
	const void *arg;
	struct fab_offer offer;
	unsigned server;
	struct process process[3];
	bool told; /* a message by other means */
	unsigned n_completed;
	unsigned char memory[REGION_LEN] __attribute__((aligned(64)));
};

static void
world_start(struct world *w, struct sim *sim)
{
	memset(w, 0, sizeof(*w));
	w->sim = sim;
	w->server = sim_server(sim, w->memory, REGION_LEN, 7, 1, &w->offer);
}

static struct process *
process_start(struct world *w, unsigned number, uint32_t depth, void (*run)(void *arg))
{
	struct process *p = &w->process[number];

	p->world = w;
	p->fab = sim_fab(w->sim);
	assert_int_equal(fab_register(p->fab, p->local, LOCAL_LEN, &p->key), 0);
	assert_int_equal(fab_region_open(p->fab, &w->offer, 0, &p->region), 0);
	assert_int_equal(fab_connect(p->region, NULL, depth, 0, &p->ep), 0);
	p->coroutine = sim_spawn(w->sim, p->fab, run, p);
	return p;
}

static struct fab_op
op_of(const struct process *p, enum fab_kind kind, uint64_t roff, unsigned local, unsigned len)
{
	return (struct fab_op){
		.kind = kind, .roff = roff, .piece = {{(void *)(p->local + local), len, p->key}}};
}

static struct fab_op
cas_of(const struct process *p, uint64_t roff, unsigned local, uint64_t expect, uint64_t swap)
{
	struct fab_op op = op_of(p, FAB_CAS, roff, local, 8);

	op.expect = expect;
	op.swap = swap;
	return op;
}

static int
finish(struct process *p)
{
	struct fab_done done;

	while (!fab_poll(p->ep, &done, 1))
		fab_wait(p->ep, INT64_MAX);
	p->world->n_completed++;
	return done.status;
}

static int
batch(struct process *p, const struct fab_op *ops, unsigned n)
{
	int rc = fab_post(p->ep, ops, n, p);

	return rc ? rc : finish(p);
}

static uint64_t
word_at(const unsigned char *bytes)
{
	uint64_t word;

	memcpy(&word, bytes, sizeof(word));
	return word;
}

static bool
is_all(const unsigned char *bytes, unsigned len, unsigned char v)
{
	for (unsigned i = 0; i < len; i++) {
		if (bytes[i] != v)
			return false;
	}
	return true;
}

/* ---- Passing a message ---- */

enum publication { BY_CAS, BY_WRITE, BY_CAS_ON_OTHER_CONNECTION };

static void
write_message(void *arg)
{
	struct process *p = arg;
	enum publication how = *(const enum publication *)p->world->arg;
	struct fab_op ops[2] = {op_of(p, FAB_WRITE, BLOCK, 0, BLOCK_LEN)};
	struct fab_endpoint *first = p->ep;

	memset(p->local, MESSAGE, BLOCK_LEN + 8);
	if (how == BY_WRITE) {
		ops[1] = op_of(p, FAB_WRITE, FLAG, BLOCK_LEN, 8);
	} else {
		ops[1] = cas_of(p, FLAG, BLOCK_LEN, 0, 1);
	}
	if (how == BY_CAS_ON_OTHER_CONNECTION) {
		batch(p, &ops[0], 1);
		assert_int_equal(fab_connect(p->region, NULL, 1, 0, &p->ep), 0);
		batch(p, &ops[1], 1);
		fab_disconnect(first);
	} else {
		batch(p, ops, 2);
	}
}

static void
read_message(void *arg)
{
	struct process *p = arg;
	struct fab_op flag = op_of(p, FAB_READ, FLAG, 0, 8);
	struct fab_op block = op_of(p, FAB_READ, BLOCK, 64, BLOCK_LEN);
	bool is_set = false;

	/* Three looks: more would only make more of the same states. */
	for (unsigned i = 0; i < 3 && !is_set; i++) {
		batch(p, &flag, 1);
		is_set = word_at(p->local) != 0;
	}
	if (!is_set)
		return;
	batch(p, &block, 1);
	if (!is_all(p->local + 64, BLOCK_LEN, MESSAGE))
		sim_fail(p->world->sim, "the flag is set, but the block is not there");
}

static void
pass_message(struct sim *sim, void *arg)
{
	struct world w;

	world_start(&w, sim);
	w.arg = arg;
	process_start(&w, 0, 2, write_message);
	process_start(&w, 1, 2, read_message);
	sim_run(sim);
}

/* A PUT has returned, somebody is told and reads the slot; with the READ behind the CAS or not. */
static void
put_and_tell(void *arg)
{
	struct process *p = arg;
	bool flushes = *(const bool *)p->world->arg;
	struct fab_op ops[2] = {cas_of(p, FLAG, 0, 0, 1), op_of(p, FAB_READ, FLAG, 8, 8)};

	batch(p, ops, flushes ? 2 : 1);
	if (flushes && sim_is_buffered(p->world->sim, p->world->server, FLAG, 8))
		sim_fail(p->world->sim, "the slot is still in a buffer");
	p->world->told = true;
	sim_note(p->world->sim, 1);
}

static void
hear_and_get(void *arg)
{
	struct process *p = arg;
	struct fab_op op = op_of(p, FAB_READ, FLAG, 0, 8);
	bool told = p->world->told;

	batch(p, &op, 1);
	if (told && word_at(p->local) == 0)
		sim_fail(p->world->sim, "the PUT had returned, but its word is not there");
}

static void
tell(struct sim *sim, void *arg)
{
	struct world w;

	world_start(&w, sim);
	w.arg = arg;
	process_start(&w, 0, 2, put_and_tell);
	process_start(&w, 1, 2, hear_and_get);
	sim_run(sim);
}

static const enum publication by_cas = BY_CAS;
static const enum publication by_write = BY_WRITE;
static const enum publication by_other = BY_CAS_ON_OTHER_CONNECTION;
static const bool with_read = true;
static const bool without_read;

/* Expectations: a letter a profile, as in test_litmus.c: Y = the fault can be reached. */
struct expectation {
	struct sim_case c;
	const char *verdicts;
};

static const struct expectation expectations[] = {
	{{"by_cas", pass_message, (void *)&by_cas}, "-------"},
	{{"by_write", pass_message, (void *)&by_write}, "---YYYY"},
	{{"by_other", pass_message, (void *)&by_other}, "--YYYYY"},
	{{"tell", tell, (void *)&with_read}, "------Y"},
	{{"tell_early", tell, (void *)&without_read}, "--YYYYY"},
};

#define N_EXPECTATIONS (sizeof(expectations) / sizeof(expectations[0]))

static void
print_failure(const struct sim_case *c, const struct sim_config *config,
	      const struct sim_result *result)
{
	struct sim_result shrunk = *result;

	if (!result->failed) {
		print_message("# %s: does not fail\n", c->name);
		return;
	}
	shrunk.picks = strdup(result->picks);
	assert_non_null(shrunk.picks);
	sim_report(stdout, c, config, &shrunk);
	sim_result_clear(&shrunk);
}

/* eager: cards in bit 0, clients in bit 1; the verdicts are the same, the states are not. */
static unsigned
explore_profiles(const struct expectation *e, unsigned eager)
{
	uint64_t n_states = 0;
	uint64_t n_runs = 0;
	unsigned n_wrong = 0;

	for (unsigned p = 0; p < N_PROFILES; p++) {
		struct sim_config config = sim_config_exhaustive((enum profile)p);
		struct sim_result result;

		config.grain = 32;
		config.eager_cards = eager & 1;
		config.eager_clients = eager >> 1;
		sim_explore(&e->c, &config, 0, &result);
		n_states += result.n_states;
		n_runs += result.n_runs;
		if (result.failed != (e->verdicts[p] == 'Y') ||
		    !(result.failed || result.is_complete)) {
			print_message("# wrong in %s\n", profile_name((enum profile)p));
			print_failure(&e->c, &config, &result);
			n_wrong++;
		}
		sim_result_clear(&result);
	}
	print_message("# %s, eager %u: %llu states, %llu runs\n", e->c.name, eager,
		      (unsigned long long)n_states, (unsigned long long)n_runs);
	return n_wrong;
}

static void
test_exhaustive(void **state)
{
	unsigned n_wrong = 0;

	(void)state;
	for (size_t i = 0; i < N_EXPECTATIONS; i++) {
		for (unsigned eager = 0; eager < 4; eager++)
			n_wrong += explore_profiles(&expectations[i], eager);
	}
	assert_int_equal(n_wrong, 0);
}

/* Every random scheduler finds what is wrong in WORST, and nothing where nothing is wrong. */
static void
test_random(void **state)
{
	static const enum sched_kind kinds[] = {SCHED_RANDOM, SCHED_PCT, SCHED_HOLD, SCHED_STARVE};
	unsigned n_wrong = 0;

	(void)state;
	for (size_t i = 0; i < N_EXPECTATIONS * 4; i++) {
		const struct expectation *e = &expectations[i / 4];
		struct sim_config config = sim_config_default();
		struct sim_result result;

		config.sched.kind = kinds[i % 4];
		config.sched.horizon = 100;
		config.model.repeat_reads = true;
		config.late_permille = 100;
		sim_search(&e->c, &config, 2000, &result);
		if (result.failed)
			print_message("# %s: %s finds it with seed %llu\n", e->c.name,
				      sched_kind_name(kinds[i % 4]),
				      (unsigned long long)result.seed);
		if (result.failed != (e->verdicts[PROFILE_WORST] == 'Y')) {
			print_failure(&e->c, &config, &result);
			n_wrong++;
		}
		sim_result_clear(&result);
	}
	assert_int_equal(n_wrong, 0);
}

/* ---- Exhaustive runs visit everything: the same outcomes with and without a set of states ---- */

struct outcomes {
	bool seen[4];
	bool never_alike; /* makes every state new */
	uint64_t n;
};

static void
never_alike(void *arg, struct sim *sim)
{
	struct outcomes *outcomes = arg;

	sim_note(sim, ++outcomes->n);
}

static void
write_one(void *arg)
{
	struct process *p = arg;
	struct fab_op op = op_of(p, FAB_WRITE, BLOCK, 0, 16);

	memset(p->local, MESSAGE, 16);
	batch(p, &op, 1);
}

static void
read_one(void *arg)
{
	struct process *p = arg;
	struct outcomes *outcomes = (struct outcomes *)p->world->arg;
	struct fab_op op = op_of(p, FAB_READ, BLOCK, 0, 16);

	batch(p, &op, 1);
	outcomes->seen[(p->local[0] != 0) * 2 + (p->local[8] != 0)] = true;
}

static void
tear(struct sim *sim, void *arg)
{
	struct outcomes *outcomes = arg;
	struct world w;

	world_start(&w, sim);
	w.arg = arg;
	process_start(&w, 0, 1, write_one);
	process_start(&w, 1, 1, read_one);
	if (outcomes->never_alike)
		sim_set_hook(sim, never_alike, arg);
	sim_run(sim);
}

static void
test_states(void **state)
{
	(void)state;
	for (unsigned p = 0; p < N_PROFILES; p++) {
		struct sim_config config = sim_config_exhaustive((enum profile)p);
		struct outcomes outcomes[2] = {{.never_alike = true}};
		struct sim_result result[2];

		config.grain = 8;
		for (unsigned i = 0; i < 2; i++) {
			struct sim_case c = {"tear", tear, &outcomes[i]};

			sim_explore(&c, &config, 100000, &result[i]);
			sim_result_clear(&result[i]);
		}
		print_message("# %s: torn %d\n", profile_name((enum profile)p),
			      outcomes[1].seen[1] || outcomes[1].seen[2]);
		/* Not all of the first exploration's states fit: it may see less, never more. */
		for (unsigned i = 0; i < 4; i++)
			assert_true(!outcomes[0].seen[i] || outcomes[1].seen[i]);
		assert_true(outcomes[1].seen[0] && outcomes[1].seen[3]);
		assert_int_equal(outcomes[1].seen[1], p != PROFILE_SC);
	}
}

/* ---- Eager steps lose no outcome: random clients, all they can come to ---- */

#define N_RANDOM 16u
#define N_WORDS 3u

struct random_clients {
	uint64_t seed;
	struct states outcomes;
	uint64_t sum; /* of the hashes of all outcomes */
	struct world *world;
};

/* A number below n that depends on nothing but the seed and what it is for. */
static unsigned
drawn(const struct random_clients *r, unsigned client, unsigned i, unsigned what, unsigned n)
{
	return (unsigned)(model_mix(r->seed, client * 1000 + i * 10 + what) % n);
}

/* Two batches of one or two operations; what they return stays in local memory. */
static void
do_random(void *arg)
{
	struct process *p = arg;
	struct random_clients *r = (struct random_clients *)p->world->arg;
	unsigned client = (unsigned)(p - p->world->process);

	for (unsigned i = 0; i < 2; i++) {
		struct fab_op ops[2];
		unsigned n = 1 + drawn(r, client, i, 0, 2);

		for (unsigned j = 0; j < n; j++) {
			unsigned what = i * 2 + j;
			uint64_t roff = 8 * drawn(r, client, what, 1, N_WORDS);
			enum fab_kind kind = (enum fab_kind)drawn(r, client, what, 2, 4);
			bool is_double =
				kind <= FAB_WRITE && roff == 0 && drawn(r, client, what, 3, 2);

			ops[j] = op_of(p, kind, roff, 16 * what, is_double ? 16 : 8);
			ops[j].expect = drawn(r, client, what, 4, 2);
			ops[j].swap = 2 + client;
			if (kind == FAB_WRITE)
				memset(p->local + 16 * what, (int)(16 * client + what + 1), 16);
		}
		batch(p, ops, n);
	}
}

static void
random_run(struct sim *sim, void *arg)
{
	struct random_clients *r = arg;
	struct world *w = r->world;
	struct model_hash hash;

	world_start(w, sim);
	w->arg = arg;
	process_start(w, 0, 1, do_random);
	process_start(w, 1, 1, do_random);
	if (sim_run(sim) || sim_settle(sim))
		return;
	hash = model_hash(w->memory, 64, 0);
	for (unsigned i = 0; i < 2; i++) {
		struct model_hash local = model_hash(w->process[i].local, 64, i);

		hash.a = model_mix(hash.a, local.a);
		hash.b = model_mix(hash.b, local.b);
	}
	if (states_add(&r->outcomes, hash))
		r->sum += hash.a;
}

static void
test_eager(void **state)
{
	static struct world world;
	uint64_t n_outcomes = 0;
	uint64_t n_states[2] = {0, 0};

	(void)state;
	for (unsigned i = 0; i < N_RANDOM * N_PROFILES; i++) {
		struct random_clients r[2];

		for (unsigned eager = 0; eager < 2; eager++) {
			struct sim_case c = {"random", random_run, &r[eager]};
			struct sim_config config =
				sim_config_exhaustive((enum profile)(i % N_PROFILES));
			struct sim_result result;

			r[eager] = (struct random_clients){.seed = i / N_PROFILES, .world = &world};
			config.grain = 8;
			config.model.repeat_reads = i / N_PROFILES % 4 == 0;
			config.eager_cards = eager;
			config.eager_clients = eager;
			sim_explore(&c, &config, 0, &result);
			assert_true(!result.failed && result.is_complete);
			n_states[eager] += result.n_states;
			sim_result_clear(&result);
		}
		assert_int_equal(r[0].outcomes.n, r[1].outcomes.n);
		assert_true(r[0].sum == r[1].sum);
		n_outcomes += r[0].outcomes.n;
		states_clear(&r[0].outcomes);
		states_clear(&r[1].outcomes);
	}
	print_message("# %llu outcomes, %llu states, eager %llu\n", (unsigned long long)n_outcomes,
		      (unsigned long long)n_states[0], (unsigned long long)n_states[1]);
}

/* ---- What a client does wrong ---- */

enum mistake {
	NONE,
	EARLY_REUSE,
	QUIET_REUSE,
	OUTSIDE,
	UNREGISTERED,
	UNALIGNED,
	EARLY_DEREGISTER,
	USE_AFTER
};

static void
make_mistake(void *arg)
{
	struct process *p = arg;
	enum mistake mistake = *(const enum mistake *)p->world->arg;
	struct fab_op write = op_of(p, FAB_WRITE, BLOCK, 0, BLOCK_LEN);
	struct fab_op cas = cas_of(p, FLAG, 64, 0, 1);
	struct fab_done done;

	if (mistake == OUTSIDE)
		write.roff = REGION_LEN - BLOCK_LEN + 1;
	if (mistake == UNREGISTERED)
		write.piece[0].local = p->local + LOCAL_LEN - BLOCK_LEN + 1;
	if (mistake == UNALIGNED)
		cas.roff += 4;
	if (mistake == QUIET_REUSE)
		fab_post_quiet(p->ep, &write, 1);
	else
		fab_post(p->ep, &write, 1, p);
	if (mistake == EARLY_REUSE || mistake == QUIET_REUSE)
		p->local[5]++;
	if (mistake == EARLY_DEREGISTER)
		fab_deregister(p->fab, p->key);
	if (mistake != QUIET_REUSE)
		finish(p);
	p->local[5]++; /* its own again */
	batch(p, &cas, 1);
	if (mistake == USE_AFTER) {
		fab_disconnect(p->ep);
		fab_poll(p->ep, &done, 1);
	}
}

static void
mistake_run(struct sim *sim, void *arg)
{
	struct world w;

	world_start(&w, sim);
	w.arg = arg;
	process_start(&w, 0, 2, make_mistake);
	sim_run(sim);
}

static void
test_mistakes(void **state)
{
	static const struct {
		enum mistake mistake;
		const char *text;
		bool in_sc;
	} list[] = {
		{NONE, NULL, false},
		{EARLY_REUSE, "the source of a WRITE changed", false},
		{QUIET_REUSE, "the source of a WRITE changed", false},
		{OUTSIDE, "an operation outside of the region", true},
		{UNREGISTERED, "a piece that is not registered", true},
		{UNALIGNED, "an atomic that is not 8 aligned bytes", true},
		{EARLY_DEREGISTER, "memory is deregistered", true},
		{USE_AFTER, "a connection is polled that was given up", true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]) * 2; i++) {
		struct sim_case c = {"mistake", mistake_run, (void *)&list[i / 2].mistake};
		struct sim_config config = sim_config_default();
		struct sim_result result;
		bool expected = list[i / 2].text && (i % 2 == 0 || list[i / 2].in_sc);

		if (i % 2)
			config.model.profile = PROFILE_SC;
		sim_search(&c, &config, 20, &result);
		if (result.failed != expected)
			print_failure(&c, &config, &result);
		assert_int_equal(result.failed, expected);
		if (expected)
			assert_memory_equal(result.text, list[i / 2].text,
					    strlen(list[i / 2].text));
		sim_result_clear(&result);
	}
}

/* Landing places are poisoned as soon as they are posted, in every profile. */
static void
poll_too_early(void *arg)
{
	struct process *p = arg;
	struct fab_op ops[2] = {op_of(p, FAB_READ, BLOCK, 0, BLOCK_LEN), cas_of(p, FLAG, 64, 0, 1)};

	memset(p->local, 0, LOCAL_LEN);
	fab_post(p->ep, ops, 2, p);
	if (!is_all(p->local, BLOCK_LEN + 8, SIM_POISON))
		sim_fail(p->world->sim, "no poison");
	if (finish(p) || !is_all(p->local, BLOCK_LEN + 8, 0))
		sim_fail(p->world->sim, "nothing landed");
}

static void
poison_run(struct sim *sim, void *arg)
{
	struct world w;

	(void)arg;
	world_start(&w, sim);
	process_start(&w, 0, 2, poll_too_early);
	sim_run(sim);
}

static void
test_poison(void **state)
{
	struct sim_case c = {"poison", poison_run, NULL};

	(void)state;
	for (unsigned p = 0; p < N_PROFILES; p++) {
		struct sim_config config = sim_config_default();
		struct sim_result result;

		config.model.profile = (enum profile)p;
		sim_search(&c, &config, 20, &result);
		assert_false(result.failed);
		sim_result_clear(&result);
	}
}

/* ---- Crashes, broken connections, late WRITEs ---- */

struct tally {
	unsigned n_early; /* WRITEs in memory when the process crashed */
	unsigned n_late;  /* that came after it crashed */
	unsigned n_never;
	unsigned n_failed_batches;
	unsigned n_good_batches;
};

static void
write_and_hang(void *arg)
{
	struct process *p = arg;
	struct fab_op op = op_of(p, FAB_WRITE, BLOCK, 0, 8);

	memset(p->local, MESSAGE, 8);
	batch(p, &op, 1);
	fab_wait(p->ep, INT64_MAX - 1);
	sim_fail(p->world->sim, "it was to have crashed");
}

/* Crashes the process at some step, and after some more ends its connection. */
static void
crash_run(struct sim *sim, void *arg)
{
	struct tally *tally = arg;
	struct world w;
	struct process *p;
	bool was_there;

	world_start(&w, sim);
	p = process_start(&w, 0, 1, write_and_hang);
	for (unsigned n = sim_choose(sim, 6); n; n--)
		sim_step(sim);
	sim_crash(sim, p->fab);
	was_there = w.memory[BLOCK] == MESSAGE;
	if (sim_choose(sim, 2))
		sim_settle(sim);
	if (sim_connection_state(sim, 0) != SIM_LEFT)
		sim_fail(sim, "the connection does not know of the crash");
	sim_connection_end(sim, 0);
	tally->n_early += was_there;
	tally->n_late += !was_there && w.memory[BLOCK] == MESSAGE;
	tally->n_never += w.memory[BLOCK] != MESSAGE;
	memset(w.memory, 0, REGION_LEN);
	if (sim_run(sim) || sim_settle(sim) || !is_all(w.memory, REGION_LEN, 0))
		sim_fail(sim, "a WRITE after the connection was destroyed");
}

static void
test_crash(void **state)
{
	struct tally tally = {0};
	struct sim_case c = {"crash", crash_run, &tally};
	struct sim_config config = sim_config_default();
	struct sim_result result;

	(void)state;
	sim_search(&c, &config, 500, &result);
	if (result.failed)
		print_failure(&c, &config, &result);
	assert_false(result.failed);
	print_message("# in memory at the crash %u, later %u, never %u\n", tally.n_early,
		      tally.n_late, tally.n_never);
	assert_true(tally.n_early && tally.n_late && tally.n_never);
	sim_result_clear(&result);
}

#define N_BATCHES 4u

/* Posts all at once, takes what comes; after a failure starts over on a new connection. */
static void
count_batches(void *arg)
{
	struct process *p = arg;
	struct tally *tally = (struct tally *)p->world->arg;
	struct fab_op op = op_of(p, FAB_FAA, FLAG, 0, 8);
	struct fab_done done[N_BATCHES];
	unsigned n_got = 0;
	int status = 0;

	for (unsigned i = 0; i < N_BATCHES; i++) {
		op.piece[0].local = p->local + 8 * i;
		op.expect = 1;
		if (fab_post(p->ep, &op, 1, p->local + 8 * i))
			sim_fail(p->world->sim, "back-pressure below the depth");
	}
	if (fab_post(p->ep, &op, 1, NULL) != ERR_AGAIN)
		sim_fail(p->world->sim, "no back-pressure at the depth");
	while (n_got < N_BATCHES) {
		unsigned n = fab_poll(p->ep, done, N_BATCHES);

		for (unsigned i = 0; i < n; i++, n_got++) {
			if (done[i].cookie != p->local + 8 * n_got)
				sim_fail(p->world->sim, "completions out of order");
			if (status && !done[i].status)
				sim_fail(p->world->sim, "a good completion after a failed one");
			/* atomics of one connection are not in order */
			if (!done[i].status && word_at(p->local + 8 * n_got) >= N_BATCHES)
				sim_fail(p->world->sim, "another old value");
			status = done[i].status;
			tally->n_failed_batches += status != 0;
			tally->n_good_batches += !status;
		}
		if (!n)
			fab_wait(p->ep, INT64_MAX);
	}
	fab_disconnect(p->ep);
	if (status && fab_connect(p->region, NULL, 1, 0, &p->ep))
		p->world->told = true;
}

static void
break_run(struct sim *sim, void *arg)
{
	struct world w;
	struct process *p;
	unsigned how;

	world_start(&w, sim);
	w.arg = arg;
	p = process_start(&w, 0, N_BATCHES, count_batches);
	for (unsigned n = 1 + sim_choose(sim, 12); n; n--)
		sim_step(sim);
	how = sim_choose(sim, 3);
	if (how == 0)
		sim_connection_break(sim, 0);
	else if (how == 1)
		sim_connection_end(sim, 0);
	else
		fab_region_sever(p->region);
	sim_run(sim);
	if (sim_settle(sim) == 0 && word_at(w.memory + FLAG) > N_BATCHES)
		sim_fail(sim, "an atomic was executed twice");
	if (w.told != (how == 2) && sim_connection_state(sim, 0) == SIM_BROKEN)
		sim_fail(sim, "only a severed region cannot be connected to");
}

static void
test_break(void **state)
{
	struct tally tally = {0};
	struct sim_case c = {"break", break_run, &tally};

	(void)state;
	for (unsigned p = 0; p < N_PROFILES; p++) {
		struct sim_config config = sim_config_default();
		struct sim_result result;

		config.model.profile = (enum profile)p;
		sim_search(&c, &config, 300, &result);
		if (result.failed)
			print_failure(&c, &config, &result);
		assert_false(result.failed);
		sim_result_clear(&result);
	}
	print_message("# batches: %u good, %u failed\n", tally.n_good_batches,
		      tally.n_failed_batches);
	assert_true(tally.n_good_batches && tally.n_failed_batches);
}

/* ---- Stopping, clock ---- */

static void
stop_run(struct sim *sim, void *arg)
{
	struct world w;
	struct process *reader;

	world_start(&w, sim);
	w.arg = arg;
	process_start(&w, 0, 2, write_message);
	reader = process_start(&w, 1, 2, read_message);
	sim_stop(sim, reader->coroutine);
	if (sim_run(sim) || sim_has_ended(sim, reader->coroutine) || w.n_completed != 1)
		sim_fail(sim, "a stopped coroutine ran");
	sim_resume(sim, reader->coroutine);
	if (sim_run(sim) || !sim_has_ended(sim, reader->coroutine))
		sim_fail(sim, "a resumed coroutine did not run");
}

static void
sleep_and_wait(void *arg)
{
	struct process *p = arg;
	struct fab_op op = op_of(p, FAB_READ, FLAG, 0, 8);
	int64_t start_ns = fab_now(p->fab);

	sim_sleep(p->world->sim, start_ns + 5000000);
	if (fab_now(p->fab) != start_ns + 5000000)
		sim_fail(p->world->sim, "the clock does not leap when everybody waits");
	batch(p, &op, 1);
	if (fab_now(p->fab) <= start_ns + 5000000)
		sim_fail(p->world->sim, "steps take no time");
	if (fab_rand(p->fab) == fab_rand(p->fab))
		sim_fail(p->world->sim, "not random");
}

static void
clock_run(struct sim *sim, void *arg)
{
	struct world w;

	(void)arg;
	world_start(&w, sim);
	process_start(&w, 0, 1, sleep_and_wait);
	sim_run(sim);
}

static void
test_stop_and_clock(void **state)
{
	struct sim_case cases[] = {{"stop", stop_run, (void *)&by_cas}, {"clock", clock_run, NULL}};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct sim_config config = sim_config_default();
		struct sim_result result;

		config.late_permille = 500;
		sim_search(&cases[i], &config, 50, &result);
		if (result.failed)
			print_failure(&cases[i], &config, &result);
		assert_false(result.failed);
		sim_result_clear(&result);
	}
}

/* ---- Late completions, READs executed twice ---- */

static void
time_one(void *arg)
{
	struct process *p = arg;
	int64_t *max_ns = (int64_t *)p->world->arg;
	struct fab_op op = op_of(p, FAB_READ, FLAG, 0, 8);
	int64_t start_ns = fab_now(p->fab);
	int64_t ns;

	batch(p, &op, 1);
	ns = fab_now(p->fab) - start_ns;
	if (ns > *max_ns)
		*max_ns = ns;
}

static void
time_run(struct sim *sim, void *arg)
{
	struct world w;

	world_start(&w, sim);
	w.arg = arg;
	process_start(&w, 0, 1, time_one);
	sim_run(sim);
}

static void
test_late(void **state)
{
	int64_t max_ns[2] = {0, 0};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct sim_case c = {"late", time_run, &max_ns[i]};
		struct sim_config config = sim_config_default();
		struct sim_result result;

		config.late_permille = i * 500;
		sim_search(&c, &config, 20, &result);
		assert_false(result.failed);
		sim_result_clear(&result);
	}
	assert_true(max_ns[0] < 10000 && max_ns[1] > 10000);
}

static void
test_read_twice(void **state)
{
	uint64_t n_states[2];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct outcomes outcomes = {.never_alike = false};
		struct sim_case c = {"tear", tear, &outcomes};
		struct sim_config config = sim_config_exhaustive(PROFILE_HAB);
		struct sim_result result;

		config.abandons = true;
		config.grain = 8;
		config.model.repeat_reads = i;
		sim_explore(&c, &config, 0, &result);
		assert_true(!result.failed && result.is_complete);
		n_states[i] = result.n_states;
		sim_result_clear(&result);
	}
	assert_true(n_states[0] < n_states[1]);
}

/* ---- Replay and shrinking ---- */

static unsigned
n_deviations(const char *picks)
{
	unsigned n = *picks != '\0';

	for (; *picks; picks++)
		n += *picks == ',';
	return n;
}

/* The line that was printed, read again: fails in the same way after as many steps. */
static void
replay_line(const struct sim_case *c, const struct sim_config *config,
	    const struct sim_result *result)
{
	char line[8192];
	char name[64];
	FILE *f = fmemopen(line, sizeof(line), "w");
	struct sim_config again;
	struct sim_result replayed;
	char *text;

	assert_non_null(f);
	sim_print_replay(f, c, config, result);
	fclose(f);
	text = strchr(line, '"') + 1;
	*strchr(text, '"') = '\0';
	assert_true(sim_config_parse(text, name, &again));
	assert_string_equal(name, c->name);
	sim_try(c, &again, &replayed);
	assert_true(replayed.failed);
	assert_string_equal(replayed.text, result->text);
	sim_result_clear(&replayed);
}

static void
test_replay(void **state)
{
	const struct sim_case *c = &expectations[1].c;

	(void)state;
	for (unsigned kind = SCHED_RANDOM; kind < SCHED_PICKS; kind++) {
		struct sim_config config = sim_config_default();
		struct sim_result result;
		struct sim_result again;
		unsigned n;

		config.sched.kind = (enum sched_kind)kind;
		config.sched.horizon = 100;
		sim_search(c, &config, 2000, &result);
		assert_true(result.failed);
		config.sched.seed = result.seed;
		sim_try(c, &config, &again);
		assert_string_equal(result.picks, again.picks);
		replay_line(c, &config, &result);
		n = n_deviations(result.picks);
		sim_shrink(c, &config, 1000, &result);
		assert_true(n_deviations(result.picks) <= n);
		replay_line(c, &config, &result);
		print_message("# %s: %u picks, shrunk to %u: %s\n",
			      sched_kind_name((enum sched_kind)kind), n, n_deviations(result.picks),
			      result.picks);
		sim_result_clear(&result);
		sim_result_clear(&again);
	}
}

int
main(void)
{
	const struct CMUnitTest list[] = {
		cmocka_unit_test(test_exhaustive),     cmocka_unit_test(test_random),
		cmocka_unit_test(test_states),         cmocka_unit_test(test_eager),
		cmocka_unit_test(test_mistakes),       cmocka_unit_test(test_poison),
		cmocka_unit_test(test_crash),          cmocka_unit_test(test_break),
		cmocka_unit_test(test_stop_and_clock), cmocka_unit_test(test_late),
		cmocka_unit_test(test_read_twice),     cmocka_unit_test(test_replay),
	};
	struct sim_case cases[N_EXPECTATIONS];
	int status;

	for (size_t i = 0; i < N_EXPECTATIONS; i++)
		cases[i] = expectations[i].c;
	if (sim_replay(cases, N_EXPECTATIONS, &status))
		return status;
	return cmocka_run_group_tests(list, NULL, NULL);
}
