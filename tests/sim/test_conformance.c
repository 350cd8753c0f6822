/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The simulated fabric keeps the promises of every fabric: the conformance suite, each test in a
 * coroutine, in each profile but UNORD, which breaks a promise by its nature, with a few schedules.
 * Left out are the tests with threads, and those of what a client must not do: that is a fault here
 * (test_driver.c).
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fabric/conformance.h"
#include "tests/sim/fabric_sim.h"

#define N_SEEDS 5u

struct conformance {
	const char *name;
	CMUnitTestFunction test;
	enum profile last; /* where it holds */
};

/* cmocka's tests take no argument of ours. */
static struct sim *now_running;

struct opened {
	unsigned char *memory;
	unsigned n;
};

static int
open_pair(uint64_t len, unsigned n, uint32_t depth, struct conf_pair *ret_pair)
{
	struct opened *opened = calloc(1, sizeof(*opened));
	static uint64_t region_id;
	struct fab_offer offer;
	int rc;

	assert_non_null(opened);
	opened->memory = calloc(1, len);
	assert_non_null(opened->memory);
	opened->n = n;
	memset(ret_pair, 0, sizeof(*ret_pair));
	ret_pair->own = opened;
	ret_pair->fab = sim_fab(now_running);
	sim_server(now_running, opened->memory, len, ++region_id, 1, &offer);
	rc = fab_region_open(ret_pair->fab, &offer, INT64_MAX, &ret_pair->region);
	for (unsigned i = 0; i < n && !rc; i++)
		rc = fab_connect(ret_pair->region, NULL, depth, INT64_MAX, &ret_pair->ep[i]);
	return rc;
}

static void
close_pair(struct conf_pair *pair)
{
	struct opened *opened = pair->own;

	for (unsigned i = 0; i < opened->n; i++)
		fab_disconnect(pair->ep[i]);
	fab_region_close(pair->region);
	fab_close(pair->fab);
	/* Connections that the test has made count too. */
	for (unsigned i = 0; i < sim_n_connections(now_running); i++)
		sim_connection_end(now_running, i);
	free(opened->memory);
	free(opened);
}

static const struct conf_factory factory = {
	.name = "sim",
	.open = open_pair,
	.close = close_pair,
};

static void
run_one_test(void *arg)
{
	struct conformance *c = arg;
	void *state = NULL;

	c->test(&state);
}

static void
run_once(struct sim *sim, void *arg)
{
	now_running = sim;
	sim_spawn(sim, NULL, run_one_test, arg);
	sim_run(sim);
}

static void
conforms(void **state)
{
	struct conformance *c = *state;

	for (unsigned p = 0; p <= (unsigned)c->last; p++) {
		struct sim_case sim_case = {c->name, run_once, c};
		struct sim_config config = sim_config_default();
		struct sim_result result;

		config.model.profile = (enum profile)p;
		config.late_permille = 100;
		sim_search(&sim_case, &config, N_SEEDS, &result);
		if (result.failed)
			print_message("# %s: %s\n", profile_name((enum profile)p), result.text);
		assert_false(result.failed);
		sim_result_clear(&result);
	}
}

int
main(void)
{
	static struct conformance list[] = {
		{"conf_test_read_write", conf_test_read_write, PROFILE_WORST},
		{"conf_test_pieces", conf_test_pieces, PROFILE_WORST},
		{"conf_test_cas", conf_test_cas, PROFILE_WORST},
		{"conf_test_faa", conf_test_faa, PROFILE_WORST},
		{"conf_test_completions", conf_test_completions, PROFILE_WORST},
		{"conf_test_depth", conf_test_depth, PROFILE_WORST},
		{"conf_test_quiet", conf_test_quiet, PROFILE_WORST},
		{"conf_test_sever", conf_test_sever, PROFILE_WORST},
		{"conf_test_lifetimes", conf_test_lifetimes, PROFILE_WORST},
		{"conf_test_wait", conf_test_wait, PROFILE_WORST},
		{"conf_test_clock_and_randomness", conf_test_clock_and_randomness, PROFILE_WORST},
		/* It WRITEs the same bytes twice and waits in between: not enough with RO. */
		{"conf_test_lengths", conf_test_lengths, PROFILE_VERBS},
	};
	struct CMUnitTest tests[sizeof(list) / sizeof(list[0])];

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		tests[i] = (struct CMUnitTest){list[i].name, conforms, NULL, NULL, &list[i]};
	conf_factory = &factory;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
