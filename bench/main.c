/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kv-bench: YCSB's core workloads on an rkv server. The command line says which phases to go
 * through; each is a set of sources (workload.c), run by the driver, and reported.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/driver.h"
#include "bench/options.h"
#include "bench/report.h"

#define EXIT_WRONG_USE 2
#define PHASES_MAX 2

static void
print_log(void *arg, int level, const char *line)
{
	(void)arg;
	(void)level;
	fprintf(stderr, "kv-bench: %s\n", line);
}

static struct driver_config
driver_config(const struct options *options)
{
	return (struct driver_config){
		.server = options->server,
		.n_threads = (uint32_t)options->n_threads,
		.cache_bytes = options->cache_bytes,
		.log = print_log,
		.worker =
			{
				.depth = (uint32_t)options->depth,
				.timeout_ms = (uint32_t)options->timeout_ms,
				.value_size = options->value_size,
				.seed = options->seed,
				.blind = options->blind,
				.verify = options->verify,
			},
	};
}

/* What is done in a phase, for the report and for the threads. */
struct plan {
	const char *name;
	uint64_t n_operations;
	struct workload_sources *(*sources)(const struct workload *workload, uint32_t n_threads);
};

static int
make_plans(const struct options *options, struct plan ret_plans[PHASES_MAX])
{
	int n = 0;
	if (options->load)
		ret_plans[n++] = (struct plan){"load", options->n_records, workload_load};
	if (options->run)
		ret_plans[n++] = (struct plan){"run", options->n_operations, workload_run};
	return n;
}

static int
run_phase(struct driver *driver, const struct options *options, const struct plan *plan,
	  struct report_phase *phase)
{
	struct workload workload = {
		.mix = options->mix,
		.distribution = options->distribution,
		.first = options->insert_start,
		.n_records = options->n_records,
		.n_operations = options->n_operations,
		.seed = options->seed,
	};
	struct report_progress progress = {.name = plan->name, .n_asked = plan->n_operations};
	driver_progress_fn show = isatty(STDERR_FILENO) ? report_progress : NULL;
	struct workload_sources *sources = plan->sources(&workload, (uint32_t)options->n_threads);
	if (sources == NULL)
		return RKV_E_NOMEM;
	phase->name = plan->name;
	phase->n_asked = plan->n_operations;
	int code = driver_run(driver, sources, options->time_max_s * UINT64_C(1000000000), show,
			      &progress, &phase->result);
	report_progress_end(&progress);
	workload_sources_destroy(sources);
	return code;
}

static int
complain(const struct options *options, int code)
{
	fprintf(stderr, "kv-bench: %s: %s\n", options->server, rkv_strerror(code));
	return EXIT_FAILURE;
}

/* Runs and reports the phases one after the other. Returns the exit status. */
static int
run_phases(struct driver *driver, const struct options *options, FILE *json)
{
	FILE *text = json == stdout ? stderr : stdout;
	struct plan plans[PHASES_MAX];
	int n_plans = make_plans(options, plans);
	int status = EXIT_SUCCESS;
	struct report_phase *phases = calloc(PHASES_MAX, sizeof(*phases));
	if (phases == NULL)
		return complain(options, RKV_E_NOMEM);
	for (int i = 0; i < n_plans; i++) {
		int code = run_phase(driver, options, &plans[i], &phases[i]);
		if (code < 0) {
			free(phases);
			return complain(options, code);
		}
		report_text(text, options, &phases[i]);
		fflush(text);
		if (!report_is_good(options, &phases[i]))
			status = EXIT_FAILURE;
	}
	if (json)
		report_json(json, options, phases, n_plans);
	free(phases);
	return status;
}

static int
run(const struct options *options, FILE *json)
{
	struct driver_config config = driver_config(options);
	struct driver *driver = NULL;
	int status;
	int code = driver_open(&config, &driver);
	if (code < 0)
		return complain(options, code);
	uint64_t value_size_max = driver_value_size_max(driver);
	if (options->value_size > value_size_max) {
		fprintf(stderr,
			"kv-bench: --value-size %llu: the server takes %llu bytes at most\n",
			(unsigned long long)options->value_size,
			(unsigned long long)value_size_max);
		status = EXIT_WRONG_USE;
	} else {
		status = run_phases(driver, options, json);
	}
	driver_close(driver);
	return status;
}

/* Opened before anything is run, so that a path that cannot be written costs nobody an hour. */
static bool
open_json(const struct options *options, FILE **ret_json)
{
	*ret_json = NULL;
	if (options->json_path == NULL)
		return true;
	bool is_stdout = strcmp(options->json_path, "-") == 0;
	*ret_json = is_stdout ? stdout : fopen(options->json_path, "we");
	return *ret_json != NULL;
}

static bool
close_written(FILE *file)
{
	bool written = fflush(file) == 0 && !ferror(file);
	return fclose(file) == 0 && written;
}

int
main(int argc, char **argv)
{
	struct options options;
	FILE *json;
	int code = options_parse(argc, argv, &options);
	if (code != OPTIONS_GO)
		return code == OPTIONS_SAID ? EXIT_SUCCESS : EXIT_WRONG_USE;
	if (!open_json(&options, &json)) {
		fprintf(stderr, "kv-bench: --json %s: %s\n", options.json_path, strerror(errno));
		return EXIT_WRONG_USE;
	}
	int status = run(&options, json);
	if (json != NULL && json != stdout && !close_written(json)) {
		fprintf(stderr, "kv-bench: --json %s: %s\n", options.json_path, strerror(errno));
		status = status ? status : EXIT_FAILURE;
	}
	if (!close_written(stdout)) {
		fprintf(stderr, "kv-bench: standard output: %s\n", strerror(errno));
		status = status ? status : EXIT_FAILURE;
	}
	return status;
}
