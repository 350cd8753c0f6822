/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The real client code on the simulated fabric, run by run: the recorded seeds of corpus.txt, then
 * fresh ones from a fixed seed on. Every run is checked (store.h); over all of them every kind of
 * event must have come up.
 *
 *   SEED=7 PROFILE=WORST build/tests/sim/test_store    one run, as a failing one is printed
 *   ... TRACE=1                                        tells what happens
 *   build/tests/sim/test_store seconds [seed]          searches for so long, and shrinks what fails
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/sim/store.h"

#define CORPUS "tests/sim/corpus.txt"
#define FIRST_SEED UINT64_C(1)
#define N_SEEDS 1000u
#define SHRINK_RUNS 1000u
#define SHRINK_S 20 /* and no longer */

static struct store_counts counts;
static uint64_t n_runs;
static uint64_t n_steps;

static double
now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool
run(const struct store_config *config, char ret_text[200])
{
	n_runs++;
	return store_run(config, &counts, &n_steps, ret_text);
}

static void
tell_failure(const struct store_config *config, bool is_full, const char *text)
{
	char line[STORE_LINE_MAX];
	store_config_print(config, is_full, line);
	printf("# %s\n# %s build/tests/sim/test_store\n", text, line);
}

static void
shrink(struct store_config config, char text[200])
{
	unsigned n = store_shrink(&config, SHRINK_RUNS, SHRINK_S, text);
	printf("# smaller, after %u runs:\n", n);
	tell_failure(&config, true, text);
	char *picks = store_shrink_schedule(&config, SHRINK_RUNS);
	if (picks)
		printf("# a smaller schedule of it: PICKS=%s\n", picks);
	free(picks);
}

static void
tell_counts(double seconds)
{
	printf("# %" PRIu64 " runs, %" PRIu64 " operations, %" PRIu64
	       " steps, %.0f s, %.1f runs/s\n",
	       n_runs, counts.n_ops, n_steps, seconds, (double)n_runs / seconds);
	printf("# longest operation of the live runs: %u steps; undecided histories: %" PRIu64
	       "\n#",
	       counts.steps_max, counts.n_undecided);
	for (unsigned i = 0; i < N_STORE_EVENTS; i++)
		printf(" %s %" PRIu64, store_event_name((enum store_event)i), counts.event[i]);
	printf("\n");
}

static void
must_pass(const struct store_config *config)
{
	char text[200];
	if (run(config, text))
		return;
	tell_failure(config, false, text);
	shrink(*config, text);
	fail();
}

/* Lines are settings, then what the run once found; # begins a comment. */
static void
recorded_seeds(void **state)
{
	(void)state;
	char line[1024];
	FILE *f = fopen(CORPUS, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		struct store_config config;
		if (line[0] == '#' || line[0] == '\n')
			continue;
		assert_true(store_config_parse(line, &config));
		must_pass(&config);
	}
	fclose(f);
}

static void
fresh_seeds(void **state)
{
	(void)state;
	double start = now_s();
	for (unsigned i = 0; i < N_SEEDS; i++) {
		struct store_config config;
		store_config_draw(FIRST_SEED + i, &config);
		must_pass(&config);
	}
	tell_counts(now_s() - start);
	assert_int_equal(counts.n_undecided, 0);
}

static void
everything_came_up(void **state)
{
	(void)state;
	for (unsigned i = 0; i < N_STORE_EVENTS; i++)
		if (counts.event[i] == 0)
			fail_msg("never seen: %s", store_event_name((enum store_event)i));
}

static int
replay(void)
{
	struct store_config config;
	char text[200];
	if (!store_config_parse(NULL, &config)) {
		fprintf(stderr, "no run is described by SEED, PROFILE and so on\n");
		return 2;
	}
	bool passed = run(&config, text);
	printf("%s after %" PRIu64 " steps%s%s\n", passed ? "passed" : "failed", n_steps,
	       passed ? "" : ": ", text);
	if (!passed && getenv("SHRINK"))
		shrink(config, text);
	return !passed;
}

static int
search(double seconds, uint64_t seed)
{
	double start = now_s(), told = start;
	unsigned n_failed = 0;
	for (; now_s() - start < seconds; seed++) {
		struct store_config config;
		char text[200];
		store_config_draw(seed, &config);
		if (!run(&config, text)) {
			n_failed++;
			tell_failure(&config, false, text);
			shrink(config, text);
		}
		if (now_s() - told > 60) {
			told = now_s();
			tell_counts(told - start);
		}
		fflush(stdout);
	}
	tell_counts(now_s() - start);
	printf("# up to seed %" PRIu64 ": %u failed\n", seed, n_failed);
	return n_failed != 0;
}

int
main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(recorded_seeds),
		cmocka_unit_test(fresh_seeds),
		cmocka_unit_test(everything_came_up),
	};
	if (argc > 1)
		return search(strtod(argv[1], NULL),
			      argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL) << 20);
	if (getenv("SEED"))
		return replay();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
