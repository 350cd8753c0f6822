/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kv-bench. The command line says which phases to go through; for each there are sources
 * (workload.c, trace.c), made before the processes are forked; every process runs its threads' part
 * of a phase, and the first one adds up and reports.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/clock.h"
#include "bench/crew.h"
#include "bench/driver.h"
#include "bench/options.h"
#include "bench/report.h"
#include "bench/trace.h"

#define EXIT_WRONG_USE 2
#define PHASES_MAX 3

/* ---- What will be done ---- */

struct plan {
	const char *name;
	bool is_run;
	struct sources *sources;
};

struct bench {
	const struct options *options;
	struct trace *trace;
	struct inserts *inserts;
	int n_plans;
	struct plan plans[PHASES_MAX];
	struct crew *crew;
	struct target *target;
	struct driver *driver;
	struct worker_config worker;
	struct driver_config config;
	struct report_phase *phases; /* PHASES_MAX; filled in by the first process */
};

static void
add_plan(struct bench *bench, const char *name, bool is_run, struct sources *sources)
{
	bench->plans[bench->n_plans++] = (struct plan){name, is_run, sources};
}

static bool
open_trace(struct bench *bench)
{
	char reason[TRACE_REASON_MAX];
	const struct options *options = bench->options;
	bench->trace = trace_open(options->trace_path, options->workload.n_operations, reason);
	if (bench->trace == NULL)
		fprintf(stderr, "kv-bench: --trace %s\n", reason);
	return bench->trace != NULL;
}

static bool
plan_workload(struct bench *bench, uint32_t n_threads)
{
	const struct options *options = bench->options;
	const struct workload *workload = &options->workload;
	bench->inserts = inserts_create(workload->next_insert);
	if (bench->inserts == NULL)
		return false;
	if (options->load)
		add_plan(bench, "load", false, workload_load(workload, n_threads));
	if (options->run && options->n_warm_up > 0)
		add_plan(bench, "warm-up", false,
			 workload_run(workload, options->n_warm_up, 1, bench->inserts, n_threads));
	if (options->run)
		add_plan(bench, "run", true,
			 workload_run(workload, workload->n_operations, 0, bench->inserts,
				      n_threads));
	return true;
}

/* False: a sentence has been printed. */
static bool
make_plans(struct bench *bench)
{
	const struct options *options = bench->options;
	uint32_t n_threads = (uint32_t)(options->n_processes * options->n_threads);
	bool has_memory = true;
	if (options->trace_path && !open_trace(bench))
		return false;
	if (options->trace_path)
		add_plan(bench, "run", true, trace_sources(bench->trace, n_threads));
	else
		has_memory = plan_workload(bench, n_threads);
	for (int i = 0; i < bench->n_plans; i++)
		has_memory = has_memory && bench->plans[i].sources;
	if (!has_memory)
		fprintf(stderr, "kv-bench: no memory\n");
	return has_memory;
}

/* ---- What it is done on ---- */

static void
print_log(void *arg, int level, const char *line)
{
	(void)arg;
	(void)level;
	fprintf(stderr, "kv-bench: %s\n", line);
}

static bool
is_first(const struct bench *bench)
{
	return crew_index(bench->crew) == 0;
}

static int
open_target(struct bench *bench)
{
	const struct options *options = bench->options;
	const struct workload *workload = &options->workload;
	bool has_long_keys = options->trace_path || workload->sizes.kind == SIZES_ETC;
	struct target_config config = {
		.server = options->server,
		.fabric = options->fabric,
		.identity = options->identity,
		.depth = (uint32_t)options->depth,
		.timeout_ms = (uint32_t)options->timeout_ms,
		.cache_bytes = options->cache_bytes,
		.key_len_max = has_long_keys ? SOURCE_KEY_MAX : GEN_KEY_MAX,
		.log = is_first(bench) ? print_log : NULL,
	};
	struct raw_config raw = {
		.kind = options->raw_kind,
		.place = {options->fabric, options->rdma_address},
		.n_records = workload->n_records,
		.value_size = workload->sizes.value_len,
	};
	if (options->idle)
		return target_open_idle(&config, &bench->target);
	if (options->raw)
		return target_open_raw(&config, &raw, &bench->target);
	return target_open_rkv(&config, &bench->target);
}

static uint64_t
value_max(const struct bench *bench)
{
	return bench->trace ? trace_value_max(bench->trace)
			    : sizes_value_max(&bench->options->workload.sizes);
}

/* Opens the driver too. A failure of rkv.h, among them RKV_E_TOO_BIG: values do not fit. */
static int
open_driver(struct bench *bench)
{
	const struct options *options = bench->options;
	int code = open_target(bench);
	if (code < 0)
		return code;
	if (value_max(bench) > bench->target->value_size_max(bench->target))
		return RKV_E_TOO_BIG;
	bench->config = (struct driver_config){
		.n_threads = (uint32_t)options->n_threads,
		.first_thread = crew_index(bench->crew) * (uint32_t)options->n_threads,
		.worker =
			{
				.depth = (uint32_t)options->depth,
				.timeout_ms = (uint32_t)options->timeout_ms,
				.value_max = value_max(bench),
				.seed = options->workload.seed,
				.n_threads = (uint32_t)(options->n_processes * options->n_threads),
				.blind = options->blind,
				.verify = options->verify,
			},
	};
	return driver_open(&bench->config, bench->target, &bench->driver);
}

/* ---- A phase ---- */

struct progress {
	struct bench *bench;
	struct series series;
	struct report_progress line;
	bool is_shown;
};

static bool
show_progress(void *arg, uint64_t n_done, uint64_t elapsed_ns)
{
	struct progress *progress = arg;
	struct crew *crew = progress->bench->crew;
	crew_tell(crew, n_done);
	if (is_first(progress->bench)) {
		series_add(&progress->series, elapsed_ns, crew_n_done(crew));
		if (progress->is_shown)
			report_progress(&progress->line, crew_n_done(crew), elapsed_ns);
	}
	return !crew_is_broken(crew);
}

/* The processor time that the server has taken; false: not known. */
static bool
ask_server(struct bench *bench, uint64_t *ret_ns)
{
	return is_first(bench) && bench->target->server_cpu_ns(bench->target, ret_ns);
}

/* This process's part of a phase. */
static int
run_part(struct bench *bench, const struct plan *plan)
{
	const struct options *options = bench->options;
	struct driver_result *result = crew_result(bench->crew, crew_index(bench->crew));
	struct progress progress = {
		.bench = bench,
		.line =
			{
				.name = plan->name,
				.n_asked = plan->sources->n_operations,
				.time_max_ns = options->time_max_s * CLOCK_S_NS,
				.is_terminal = isatty(STDERR_FILENO),
			},
		.is_shown = isatty(STDERR_FILENO) || options->progress,
	};
	struct driver_phase part = {
		.sources = plan->sources,
		.interval_ns = plan->is_run && options->rate ? 1e9 / (double)options->rate : 0,
		.time_max_ns = options->time_max_s * CLOCK_S_NS,
		.progress = show_progress,
		.progress_arg = &progress,
	};
	int code = driver_run(bench->driver, &part, result);
	result->series = progress.series;
	if (progress.is_shown)
		report_progress_end(&progress.line);
	return code;
}

static void
merge_parts(struct bench *bench, struct driver_result *ret_result)
{
	*ret_result = *(struct driver_result *)crew_result(bench->crew, 0);
	for (uint32_t i = 1; i < bench->options->n_processes; i++)
		driver_merge(ret_result, crew_result(bench->crew, i));
}

/* All begin when all are there; whoever has ended waits for the others. */
static int
run_phase(struct bench *bench, const struct plan *plan, struct report_phase *phase)
{
	uint64_t before_ns = 0;
	uint64_t after_ns = 0;
	phase->name = plan->name;
	phase->is_run = plan->is_run;
	phase->n_asked = plan->sources->n_operations;
	phase->has_server_cpu = ask_server(bench, &before_ns);
	int code = crew_meet(bench->crew, 0);
	if (code == 0)
		code = run_part(bench, plan);
	code = crew_meet(bench->crew, code);
	phase->has_server_cpu = phase->has_server_cpu && ask_server(bench, &after_ns);
	phase->server_cpu_ns = after_ns - before_ns;
	if (code == 0 && is_first(bench))
		merge_parts(bench, &phase->result);
	return code;
}

/* ---- Reports ---- */

struct outputs {
	FILE *text;
	FILE *json; /* NULL: none */
	FILE *csv;  /* NULL: none */
};

/* A warm-up is reported if anything was wrong with it, and only then. */
static bool
is_told(const struct plan *plan, bool is_good)
{
	return plan->is_run || strcmp(plan->name, "load") == 0 || !is_good;
}

static int
report_phase(struct bench *bench, const struct outputs *outputs, int index)
{
	bool is_good = report_is_good(bench->options, &bench->phases[index]);
	if (is_told(&bench->plans[index], is_good))
		report_text(outputs->text, bench->options, &bench->phases[index]);
	fflush(outputs->text);
	return is_good ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int
report_all(struct bench *bench, const struct outputs *outputs)
{
	const struct options *options = bench->options;
	if (outputs->json)
		report_json(outputs->json, options, bench->phases, bench->n_plans);
	if (outputs->csv)
		report_csv(outputs->csv, options, bench->phases, bench->n_plans);
	if (options->plot_path && !report_plot(options, &bench->phases[bench->n_plans - 1]))
		return EXIT_FAILURE;
	return EXIT_SUCCESS;
}

/* ---- The whole ---- */

static int
complain(struct bench *bench, int code)
{
	const char *place = report_place(bench->options);
	if (code == CREW_BROKEN) {
		fprintf(stderr, "kv-bench: one of the processes has died\n");
		return EXIT_FAILURE;
	}
	if (code == RKV_E_TOO_BIG && bench->target) {
		fprintf(stderr, "kv-bench: values of %llu bytes: %s takes %llu at most\n",
			(unsigned long long)value_max(bench), place,
			(unsigned long long)bench->target->value_size_max(bench->target));
		return EXIT_WRONG_USE;
	}
	fprintf(stderr, "kv-bench: %s: %s\n", place, rkv_strerror(code));
	return EXIT_FAILURE;
}

static int
run_phases(struct bench *bench, const struct outputs *outputs)
{
	int status = EXIT_SUCCESS;
	for (int i = 0; i < bench->n_plans; i++) {
		int code = run_phase(bench, &bench->plans[i], &bench->phases[i]);
		if (code < 0)
			return is_first(bench) ? complain(bench, code) : EXIT_FAILURE;
		if (is_first(bench) && report_phase(bench, outputs, i) != EXIT_SUCCESS)
			status = EXIT_FAILURE;
	}
	if (is_first(bench) && report_all(bench, outputs) != EXIT_SUCCESS)
		status = EXIT_FAILURE;
	return status;
}

/* What every process does. */
static int
work(struct bench *bench, const struct outputs *outputs)
{
	int status = EXIT_FAILURE;
	int code = crew_meet(bench->crew, open_driver(bench));
	if (code == 0)
		status = run_phases(bench, outputs);
	else if (is_first(bench))
		status = complain(bench, code);
	driver_close(bench->driver);
	if (bench->target)
		bench->target->close(bench->target);
	return status;
}

static void
clean_up(struct bench *bench)
{
	for (int i = 0; i < bench->n_plans; i++)
		if (bench->plans[i].sources)
			bench->plans[i].sources->destroy(bench->plans[i].sources);
	inserts_destroy(bench->inserts);
	trace_close(bench->trace);
	free(bench->phases);
}

static int
run(const struct options *options, const struct outputs *outputs)
{
	struct bench bench = {.options = options};
	int status = EXIT_WRONG_USE;
	if (!make_plans(&bench))
		goto clean_up;
	status = EXIT_FAILURE;
	bench.phases = calloc(PHASES_MAX, sizeof(*bench.phases));
	bench.crew = crew_form((uint32_t)options->n_processes, sizeof(struct driver_result));
	if (bench.phases == NULL || bench.crew == NULL) {
		fprintf(stderr, "kv-bench: no memory, or no process\n");
		goto clean_up;
	}
	status = work(&bench, outputs);
clean_up:
	crew_part(bench.crew);
	clean_up(&bench);
	return status;
}

/* ---- Files ---- */

/* Opened before anything is run, so that a path that cannot be written costs nobody an hour. */
static bool
open_output(const char *option, const char *path, struct outputs *outputs, FILE **ret_file)
{
	if (path == NULL)
		return true;
	if (strcmp(path, "-") == 0) {
		*ret_file = stdout;
		outputs->text = stderr;
		return true;
	}
	*ret_file = fopen(path, "we");
	if (*ret_file == NULL)
		fprintf(stderr, "kv-bench: %s %s: %s\n", option, path, strerror(errno));
	return *ret_file != NULL;
}

/* Returns the exit status, which becomes a failure if what was written is not there. */
static int
close_output(FILE *file, const char *name, int status)
{
	if (file == NULL)
		return status;
	bool is_written = fflush(file) == 0 && !ferror(file);
	if (fclose(file) == 0 && is_written)
		return status;
	fprintf(stderr, "kv-bench: %s: %s\n", name, strerror(errno));
	return status ? status : EXIT_FAILURE;
}

int
main(int argc, char **argv)
{
	struct options options;
	struct outputs outputs = {.text = stdout};
	int code = options_parse(argc, argv, &options);
	if (code != OPTIONS_GO)
		return code == OPTIONS_SAID ? EXIT_SUCCESS : EXIT_WRONG_USE;
	if (!open_output("--json", options.json_path, &outputs, &outputs.json) ||
	    !open_output("--csv", options.csv_path, &outputs, &outputs.csv))
		return EXIT_WRONG_USE;
	clock_init();
	int status = run(&options, &outputs);
	if (outputs.json != stdout)
		status = close_output(outputs.json, options.json_path, status);
	if (outputs.csv != stdout)
		status = close_output(outputs.csv, options.csv_path, status);
	return close_output(stdout, "standard output", status);
}
