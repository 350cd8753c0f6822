/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pictures are gnuplot's: it gets a script with the data inside on its standard input. Latencies
 * are drawn over 1 / (1 - percentile), so that each further nine takes as much room as the one
 * before.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/report.h"

#define NINES_MAX 6        /* 99.9999 % */
#define POINTS_PER_NINE 20 /* of the curve */

extern char **environ;

/* ---- gnuplot ---- */

static pid_t
start_gnuplot(FILE **ret_script)
{
	posix_spawn_file_actions_t actions;
	char program[] = "gnuplot";
	char *const args[] = {program, NULL};
	int ends[2];
	pid_t pid;
	if (pipe2(ends, O_CLOEXEC) != 0)
		return -1;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO);
	int error = posix_spawnp(&pid, args[0], &actions, NULL, args, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[0]);
	if (error == 0)
		*ret_script = fdopen(ends[1], "w");
	else
		close(ends[1]);
	errno = error;
	return error == 0 && *ret_script ? pid : -1;
}

static bool
end_gnuplot(pid_t pid, FILE *script)
{
	int status = 0;
	fclose(script);
	waitpid(pid, &status, 0);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* A text in gnuplot's single quotes, of which the caller closes the second. */
static void
quote(FILE *script, const char *text)
{
	fputc('\'', script);
	for (const char *at = text; *at; at++)
		fprintf(script, *at == '\'' ? "''" : "%c", *at);
}

static void
begin_picture(FILE *script, const struct options *options, const char *name)
{
	fprintf(script, "reset\nset terminal svg size 800,480 noenhanced background 'white'\n"
			"set output ");
	quote(script, options->plot_path);
	fprintf(script, "-%s.svg'\nset grid\nset title ", name);
	quote(script, options->workload_name); /* goes on with the next words */
	fprintf(script, " on %s, %" PRIu64 " threads, depth %" PRIu64 "'\n", report_place(options),
		options->n_processes * options->n_threads, options->depth);
}

/* ---- Latencies ---- */

static void
write_curve(FILE *script, int number, const struct histogram *latency_ns)
{
	double tail = 1;
	fprintf(script, "$curve%d << END\n", number);
	for (int i = 0; i <= NINES_MAX * POINTS_PER_NINE; i++) {
		double per_million = (1 - tail) * 1e6;
		uint64_t ns = histogram_percentile(latency_ns, (uint32_t)(per_million + 0.5));
		if (i > 0 && tail * (double)latency_ns->n >= 1)
			fprintf(script, "%g %g\n", 1 / tail, (double)ns / 1e3);
		tail *= 0.891250938133746; /* 10 ^ (-1 / POINTS_PER_NINE) */
	}
	fprintf(script, "END\n");
}

static void
add_curve(FILE *script, int number, const char *name, const char *line, const char *what)
{
	fprintf(script, "%s $curve%d with lines %s title '%s%s'", number == 0 ? "plot" : ",",
		number, line, name, what);
}

static void
plot_latencies(FILE *script, const struct options *options, const struct tally *tally)
{
	int n = 0;
	for (int op = 0; op < SOURCE_OPS; op++) {
		if (tally->op[op].latency_ns.n > 0)
			write_curve(script, n++, &tally->op[op].latency_ns);
		if (tally->op[op].intended_ns.n > 0)
			write_curve(script, n++, &tally->op[op].intended_ns);
	}
	begin_picture(script, options, "latency");
	fprintf(script, "set logscale xy\nset ylabel 'latency, us'\nset xlabel 'percentile'\n"
			"set xtics ('50' 2, '90' 10, '99' 100, '99.9' 1e3, '99.99' 1e4, "
			"'99.999' 1e5, '99.9999' 1e6)\nset key below\nset rmargin 4\n");
	n = 0;
	for (int op = 0; op < SOURCE_OPS; op++) {
		const char *name = report_op_name(options, op);
		if (tally->op[op].latency_ns.n > 0)
			add_curve(script, n++, name, "lw 2", "");
		if (tally->op[op].intended_ns.n > 0)
			add_curve(script, n++, name, "dt 2 lw 2", ", as intended");
	}
	fprintf(script, "\n");
}

/* ---- The rate over time ---- */

static void
plot_rate(FILE *script, const struct options *options, const struct series *series)
{
	struct series_point before = {0};
	fprintf(script, "$rate << END\n");
	for (uint32_t i = 0; i < series->n; i++) {
		const struct series_point *point = &series->points[i];
		double span_s = (double)(point->elapsed_ns - before.elapsed_ns) / 1e9;
		fprintf(script, "%g %g\n", (double)point->elapsed_ns / 1e9,
			(double)(point->n_done - before.n_done) / span_s);
		before = *point;
	}
	fprintf(script, "END\n");
	begin_picture(script, options, "rate");
	fprintf(script, "set yrange [0:*]\nset xrange [0:*]\nset xlabel 'time, s'\n"
			"set ylabel 'operations/s'\nset key off\nset format y '%%.1s%%c'\n"
			"plot $rate with linespoints pt 7 ps 0.4\n");
}

bool
report_plot(const struct options *options, const struct report_phase *phase)
{
	FILE *script = NULL;
	pid_t pid = start_gnuplot(&script);
	if (pid < 0) {
		fprintf(stderr, "kv-bench: --plot: gnuplot cannot be run: %s\n", strerror(errno));
		return false;
	}
	signal(SIGPIPE, SIG_IGN); /* if gnuplot ends early its exit status says so */
	plot_latencies(script, options, &phase->result.tally);
	plot_rate(script, options, &phase->result.series);
	if (end_gnuplot(pid, script))
		return true;
	fprintf(stderr, "kv-bench: --plot %s: gnuplot failed\n", options->plot_path);
	return false;
}
