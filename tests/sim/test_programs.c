/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random litmus programs, with all outcomes that an independent explorer of the same rules found in
 * each profile: ours must find exactly these. The file has for each program
 *
 *   i locations   q queue pairs   t threads      (tests/sim/litmus.h)
 *   o mask outcome outcome ...                   one line for each set of profiles, in hex:
 *                                                bit p = profile p, one unit a node for atomics;
 *                                                bit 7+p = profile p, one unit a word
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/sim/litmus.h"

#define LINE_MAX_LEN 8192u
#define OUTCOMES_MAX 256u

struct outcomes {
	unsigned n;
	struct {
		char text[LITMUS_OUTCOME_MAX];
		unsigned expected; /* masks */
		unsigned found;
	} v[OUTCOMES_MAX];
	unsigned bit; /* of the exploration that is going on */
};

struct program {
	char locations[LINE_MAX_LEN];
	char qps[LINE_MAX_LEN];
	char threads[LINE_MAX_LEN];
	struct outcomes outcomes;
};

struct sum {
	unsigned n_programs;
	unsigned n_outcomes;
	unsigned n_wrong;
	uint64_t n_states;
};

static unsigned
outcome_number(struct outcomes *outcomes, const char *text)
{
	unsigned i = 0;

	while (i < outcomes->n && strcmp(outcomes->v[i].text, text) != 0)
		i++;
	if (i == outcomes->n) {
		assert_true(i < OUTCOMES_MAX && strlen(text) < LITMUS_OUTCOME_MAX);
		memset(&outcomes->v[i], 0, sizeof(outcomes->v[i]));
		strcpy(outcomes->v[i].text, text);
		outcomes->n++;
	}
	return i;
}

static void
note_outcome(void *arg, const struct litmus_state *state)
{
	struct outcomes *outcomes = arg;
	char text[LITMUS_OUTCOME_MAX];

	litmus_outcome(state, text);
	outcomes->v[outcome_number(outcomes, text)].found |= outcomes->bit;
}

static void
run_program(struct program *program, struct sum *sum)
{
	struct litmus *litmus = litmus_parse(program->locations, program->qps, program->threads);
	struct outcomes *outcomes = &program->outcomes;

	for (unsigned i = 0; i < 2 * N_PROFILES; i++) {
		struct model_config config = {.profile = (enum profile)(i % N_PROFILES),
					      .unit_per_address = i >= N_PROFILES};
		struct litmus_stats stats;

		outcomes->bit = 1u << i;
		litmus_explore(litmus, &config, note_outcome, outcomes, &stats);
		sum->n_states += stats.n_states;
	}
	litmus_destroy(litmus);
	for (unsigned i = 0; i < outcomes->n; i++) {
		if (outcomes->v[i].expected == outcomes->v[i].found)
			continue;
		sum->n_wrong++;
		print_message("# %s [%s] [%s]: outcome %s in %x, expected in %x\n",
			      program->threads, program->locations, program->qps,
			      outcomes->v[i].text, outcomes->v[i].found, outcomes->v[i].expected);
	}
	sum->n_programs++;
	sum->n_outcomes += outcomes->n;
	outcomes->n = 0;
}

static void
read_outcomes(struct outcomes *outcomes, char *line)
{
	char *rest = NULL;
	unsigned mask = (unsigned)strtoul(strtok_r(line, " ", &rest), NULL, 16);

	for (char *p = strtok_r(NULL, " ", &rest); p; p = strtok_r(NULL, " ", &rest))
		outcomes->v[outcome_number(outcomes, p)].expected = mask;
}

/* A program is complete where the next one begins. */
static void
take_line(struct program *program, char *line, struct sum *sum)
{
	char *text = line + 2;

	line[strcspn(line, "\n")] = '\0';
	if (*line == 'i') {
		if (program->outcomes.n)
			run_program(program, sum);
		strcpy(program->locations, text);
	} else if (*line == 'q') {
		strcpy(program->qps, text);
	} else if (*line == 't') {
		strcpy(program->threads, text);
	} else if (*line == 'o') {
		read_outcomes(&program->outcomes, text);
	} else {
		assert_true(*line == '#');
	}
}

/* The file lies beside this one. */
static FILE *
open_programs(void)
{
	char path[4096] = __FILE__;
	char *slash = strrchr(path, '/');

	strcpy(slash ? slash + 1 : path, "programs.txt");
	return fopen(path, "r");
}

static void
test_programs(void **state)
{
	static struct program program;
	static char line[LINE_MAX_LEN];
	struct sum sum = {0};
	FILE *f = open_programs();

	(void)state;
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		take_line(&program, line, &sum);
	fclose(f);
	run_program(&program, &sum);
	print_message("# %u programs, %u outcomes, %llu states\n", sum.n_programs, sum.n_outcomes,
		      (unsigned long long)sum.n_states);
	assert_int_equal(sum.n_wrong, 0);
	assert_true(sum.n_programs >= 300);
}

int
main(void)
{
	const struct CMUnitTest list[] = {
		cmocka_unit_test(test_programs),
	};

	return cmocka_run_group_tests(list, NULL, NULL);
}
