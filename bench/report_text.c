/* SPDX-License-Identifier: BSD-2-Clause */
/* The report for people, and the line that shows how far a phase is. */
#include <inttypes.h>
#include <string.h>

#include "bench/report.h"

#define NS_PER_US 1000.0

/* ---- What was run ---- */

static bool
is_run(const struct report_phase *phase)
{
	return strcmp(phase->name, "run") == 0;
}

static void
print_mix(FILE *out, const struct options *options)
{
	const char *separator = "";
	fprintf(out, "workload %c (", options->mix->letter);
	for (int op = 0; op < SOURCE_OPS; op++) {
		if (options->mix->shares[op] == 0)
			continue;
		fprintf(out, "%s%.0f %% %s", separator, options->mix->shares[op] * 100,
			report_op_name(options, op));
		separator = ", ";
	}
	fprintf(out, "), %s, ", options_distribution_name(options->distribution));
}

static void
print_head(FILE *out, const struct options *options, const struct report_phase *phase)
{
	fprintf(out, "%s: ", phase->name);
	if (is_run(phase))
		print_mix(out, options);
	fprintf(out, "%" PRIu64 " records of %" PRIu64 " bytes\n", options->n_records,
		options->value_size);
	fprintf(out, "%" PRIu64 " threads x depth %" PRIu64 ", closed loop, on %s\n",
		options->n_threads, options->depth, options->server);
	if (is_run(phase) && options->mix->shares[SOURCE_UPDATE] > 0)
		fprintf(out, "An update writes the whole value.\n");
	if (is_run(phase) && options->mix->shares[SOURCE_RMW] > 0)
		fprintf(out, "A read-modify-write is a get and %s.\n",
			options->blind ? "a put: what comes between them is lost"
				       : "a compare-and-swap, begun anew if that is lost");
	if (is_run(phase) && options->verify)
		fprintf(out, "Every byte of every value read is checked.\n");
}

/* ---- The table ---- */

static void
print_latencies(FILE *out, const struct histogram *latency_ns)
{
	for (int i = 0; i < REPORT_PERCENTILES; i++) {
		uint32_t per_million = report_percentiles[i].per_million;
		uint64_t ns = histogram_percentile(latency_ns, per_million);
		fprintf(out, " %9.2f", (double)ns / NS_PER_US);
	}
	fprintf(out, " %10.2f %9.2f", (double)latency_ns->max / NS_PER_US,
		histogram_mean(latency_ns) / NS_PER_US);
}

static void
print_op(FILE *out, const struct options *options, const struct report_phase *phase, int op)
{
	const struct tally_op *counts = &phase->result.tally.op[op];
	uint64_t n_hits = counts->latency_ns.n;
	fprintf(out, "%-12s %11" PRIu64 " %11" PRIu64 " %8" PRIu64 " %8" PRIu64,
		report_op_name(options, op), tally_count(counts), n_hits, counts->n_misses,
		tally_errors(counts));
	print_latencies(out, &counts->latency_ns);
	fprintf(out, " %11.0f\n", report_rate(phase, n_hits));
}

static void
print_table(FILE *out, const struct options *options, const struct report_phase *phase)
{
	struct tally_total total = tally_total(&phase->result.tally);
	fprintf(out, "\n%-12s %11s %11s %8s %8s", "", "count", "hits", "misses", "errors");
	for (int i = 0; i < REPORT_PERCENTILES; i++)
		fprintf(out, " %6s us", report_percentiles[i].name);
	fprintf(out, " %7s us %6s us %11s\n", "max", "mean", "hits/s");
	for (int op = 0; op < SOURCE_OPS; op++)
		if (tally_count(&phase->result.tally.op[op]) > 0)
			print_op(out, options, phase, op);
	fprintf(out, "%-12s %11" PRIu64 " %11" PRIu64 " %8" PRIu64 " %8" PRIu64 " %*s %11.0f\n\n",
		"all", total.n_count, total.n_hits, total.n_misses, total.n_errors, 60, "",
		report_rate(phase, total.n_hits));
}

/* ---- What it cost ---- */

static void
print_cost(FILE *out, const char *name, const struct rkv_op_stats *cost, uint64_t n)
{
	fprintf(out,
		"  %-9s %.3f round trips, %.3f work requests and %.3f marks, "
		"%.0f bytes read, %.0f written\n",
		name, report_ratio(cost->n_round_trips, n), report_ratio(cost->n_requests, n),
		report_ratio(cost->n_marks, n), report_ratio(cost->n_bytes_read, n),
		report_ratio(cost->n_bytes_written, n));
}

static void
print_costs(FILE *out, const struct report_phase *phase)
{
	const struct rkv_stats_values *stats = &phase->result.stats;
	struct rkv_op_stats sum = report_stats_sum(stats);
	struct tally_total total = tally_total(&phase->result.tally);
	fprintf(out, "Cost of an operation, and of each call of the library:\n");
	print_cost(out, "operation", &sum, total.n_count);
	for (int i = 0; i < RKV_OP_COUNT; i++) {
		uint64_t n = report_stats_count(&stats->op[i]);
		if (n > 0)
			print_cost(out, report_call_names[i], &stats->op[i], n);
	}
	uint64_t n_starts = stats->n_cache_hits + stats->n_cache_misses;
	fprintf(out,
		"Location cache: %.1f %% of the calls started warm; of these %.2f %% found the key "
		"moved.\n",
		100 * report_ratio(stats->n_cache_hits, n_starts),
		100 * report_ratio(stats->n_cache_stale, stats->n_cache_hits));
	fprintf(out,
		"Tried again: %" PRIu64 " operations told to come later (RKV_AGAIN), %" PRIu64
		" read-modify-writes overtaken, %" PRIu64 " reconnects.\n",
		total.n_again, total.n_cas_lost, stats->n_reconnects);
}

static void
print_totals(FILE *out, const struct report_phase *phase)
{
	struct report_machine machine;
	struct tally_total total = tally_total(&phase->result.tally);
	double wall_s = (double)phase->result.wall_ns / 1e9;
	double cpu_s = (double)phase->result.cpu_ns / 1e9;
	report_machine(&machine);
	fprintf(out, "Throughput: %.0f operations/s done, in %.3f s.\n",
		report_rate(phase, total.n_hits), wall_s);
	fprintf(out, "CPU of this client: %.3f s, %.3f s for a million operations.\n", cpu_s,
		1e6 * report_ratio(phase->result.cpu_ns, total.n_count) / 1e9);
	fprintf(out, "Machine of this client: %" PRIu32 " cores, %s%s%s.\n", machine.n_cores,
		machine.cpu, machine.cpu[0] ? ", " : "", machine.system);
}

/* ---- What went wrong ---- */

static void
print_errors(FILE *out, const struct options *options, const struct tally *tally)
{
	for (int op = 0; op < SOURCE_OPS; op++) {
		for (int i = 0; i < TALLY_CODES; i++) {
			uint64_t n = tally->op[op].n_errors[i];
			int code = i + TALLY_CODE_MIN;
			if (n > 0)
				fprintf(out, "FAILED: %" PRIu64 " x %s: %s\n", n,
					report_op_name(options, op),
					code == TALLY_BAD_VALUE ? "a wrong value was read"
								: rkv_strerror(code));
		}
	}
}

static void
print_wrong(FILE *out, const struct options *options, const struct report_phase *phase)
{
	const struct tally *tally = &phase->result.tally;
	struct tally_total total = tally_total(tally);
	print_errors(out, options, tally);
	if (tally->n_bad_values > 0)
		fprintf(out,
			"The first wrong value was of key user%" PRIu64
			", %zu bytes long, wrong at byte %zu.\n",
			tally->first_bad_value.name, tally->first_bad_value.len,
			tally->first_bad_value.offset);
	if (total.n_misses > 0)
		fprintf(out,
			"FAILED: %" PRIu64
			" times a key was not found that must be there; were all records loaded?\n",
			total.n_misses);
	if (phase->result.failure != RKV_OK)
		fprintf(out, "FAILED: a session gave up: %s\n",
			rkv_strerror(phase->result.failure));
	if (total.n_count != phase->n_asked)
		fprintf(out, "Only %" PRIu64 " of %" PRIu64 " operations were run%s.\n",
			total.n_count, phase->n_asked,
			options->time_max_s > 0 ? ", as --max-seconds said" : "");
}

void
report_text(FILE *out, const struct options *options, const struct report_phase *phase)
{
	print_head(out, options, phase);
	print_table(out, options, phase);
	print_totals(out, phase);
	print_costs(out, phase);
	print_wrong(out, options, phase);
	fprintf(out, "\n");
}

/* ---- Progress ---- */

void
report_progress(void *arg, uint64_t n_done, uint64_t elapsed_ns)
{
	struct report_progress *progress = arg;
	uint64_t n_new = n_done - progress->n_before;
	uint64_t span_ns = elapsed_ns - progress->ns_before;
	fprintf(stderr, "\r%s: %" PRIu64 " of %" PRIu64 " (%.0f %%), %.0f/s\033[K", progress->name,
		n_done, progress->n_asked, 100 * report_ratio(n_done, progress->n_asked),
		report_ratio(n_new, span_ns) * 1e9);
	progress->n_before = n_done;
	progress->ns_before = elapsed_ns;
}

void
report_progress_end(const struct report_progress *progress)
{
	if (progress->ns_before > 0)
		fprintf(stderr, "\r\033[K");
}
