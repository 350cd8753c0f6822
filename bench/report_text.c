/* SPDX-License-Identifier: BSD-2-Clause */
/* The report for people, and the line that shows how far a phase is. */
#include <inttypes.h>
#include <string.h>

#include "bench/report.h"

#define NS_PER_US 1000.0

/* ---- What was run ---- */

static void
print_mix(FILE *out, const struct options *options)
{
	const struct workload *workload = &options->workload;
	const char *separator = "";
	if (options->raw) {
		fprintf(out, "%s, ", options->workload_name);
		return;
	}
	fprintf(out, "workload %s (", options->workload_name);
	for (int op = 0; op < SOURCE_OPS; op++) {
		if (workload->mix.shares[op] == 0)
			continue;
		fprintf(out, "%s%.4g %% %s", separator, workload->mix.shares[op] * 100,
			report_op_name(options, op));
		separator = ", ";
	}
	fprintf(out, "), ");
}

static void
print_sizes(FILE *out, const struct sizes *sizes)
{
	if (sizes->kind == SIZES_ETC)
		fprintf(out, ", keys and values as long as in Facebook's ETC");
	else
		fprintf(out, " of %" PRIu64 " bytes", sizes->value_len);
}

static void
print_what(FILE *out, const struct options *options, const struct report_phase *phase)
{
	const struct workload *workload = &options->workload;
	fprintf(out, "%s: ", phase->name);
	if (options->trace_path) {
		fprintf(out, "trace %s\n", options->trace_path);
		return;
	}
	if (phase->is_run) {
		print_mix(out, options);
		fprintf(out, "%s, ", options_distributions[workload->choice.distribution]);
	}
	fprintf(out, "%" PRIu64 " records", workload->n_records);
	print_sizes(out, &workload->sizes);
	fprintf(out, "\n");
}

static void
print_how(FILE *out, const struct options *options, const struct report_phase *phase)
{
	if (options->n_processes > 1)
		fprintf(out, "%" PRIu64 " processes x ", options->n_processes);
	fprintf(out, "%" PRIu64 " threads x depth %" PRIu64 ", ", options->n_threads,
		options->depth);
	if (phase->is_run && options->rate > 0)
		fprintf(out, "open loop at %" PRIu64 " operations/s, ", options->rate);
	else
		fprintf(out, "closed loop, ");
	fprintf(out, "on %s\n", report_place(options));
}

static bool
does(const struct options *options, const struct report_phase *phase, enum source_op op)
{
	return phase->is_run && !options->raw &&
	       (options->trace_path ? tally_count(&phase->result.tally.op[op]) > 0
				    : options->workload.mix.shares[op] > 0);
}

static void
print_head(FILE *out, const struct options *options, const struct report_phase *phase)
{
	print_what(out, options, phase);
	print_how(out, options, phase);
	if (does(options, phase, SOURCE_UPDATE))
		fprintf(out, "An update writes the whole value.\n");
	if (does(options, phase, SOURCE_RMW))
		fprintf(out, "A read-modify-write is a get and %s.\n",
			options->blind ? "a put: what comes between them is lost"
				       : "a compare-and-swap, begun anew if that is lost");
	if (phase->is_run && options->verify)
		fprintf(out, "Every byte of every value read is checked.\n");
}

/* ---- The table ---- */

static void
print_latencies(FILE *out, const struct histogram *latency_ns)
{
	for (int i = 0; i < REPORT_PERCENTILES; i++) {
		uint32_t per_million = report_percentiles[i].per_million;
		uint64_t ns = histogram_percentile(latency_ns, per_million);
		fprintf(out, " %10.2f", (double)ns / NS_PER_US);
	}
	fprintf(out, " %10.2f %9.2f\n", (double)latency_ns->max / NS_PER_US,
		histogram_mean(latency_ns) / NS_PER_US);
}

static void
print_counts(FILE *out, const struct options *options, const struct report_phase *phase)
{
	struct tally_total total = tally_total(&phase->result.tally);
	fprintf(out, "\n%-16s %11s %11s %8s %8s %11s\n", "operations", "count", "hits", "misses",
		"errors", "hits/s");
	for (int op = 0; op < SOURCE_OPS; op++) {
		const struct tally_op *counts = &phase->result.tally.op[op];
		if (tally_count(counts) == 0)
			continue;
		fprintf(out, "%-16s %11" PRIu64 " %11" PRIu64 " %8" PRIu64 " %8" PRIu64 " %11.0f\n",
			report_op_name(options, op), tally_count(counts), counts->latency_ns.n,
			counts->n_misses, tally_errors(counts),
			report_rate(phase, counts->latency_ns.n));
	}
	fprintf(out, "%-16s %11" PRIu64 " %11" PRIu64 " %8" PRIu64 " %8" PRIu64 " %11.0f\n", "all",
		total.n_count, total.n_hits, total.n_misses, total.n_errors,
		report_rate(phase, total.n_hits));
}

/* Of an open loop there are two latencies; the intended one is what somebody would have waited. */
static void
print_latency_table(FILE *out, const struct options *options, const struct report_phase *phase)
{
	fprintf(out, "\n%-16s", "latency, us");
	for (int i = 0; i < REPORT_PERCENTILES; i++)
		fprintf(out, " %10s", report_percentiles[i].name);
	fprintf(out, " %10s %9s\n", "max", "mean");
	for (int op = 0; op < SOURCE_OPS; op++) {
		const struct tally_op *counts = &phase->result.tally.op[op];
		if (counts->latency_ns.n == 0)
			continue;
		fprintf(out, "%-16s", report_op_name(options, op));
		print_latencies(out, &counts->latency_ns);
		if (counts->intended_ns.n == 0)
			continue;
		fprintf(out, "%-16s", "  as intended");
		print_latencies(out, &counts->intended_ns);
	}
	fprintf(out, "\n");
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
print_costs(FILE *out, const struct options *options, const struct report_phase *phase)
{
	const struct rkv_stats_values *stats = &phase->result.stats;
	struct rkv_op_stats sum = report_stats_sum(stats);
	struct tally_total total = tally_total(&phase->result.tally);
	fprintf(out, "Cost of an operation%s:\n",
		options->raw ? "" : ", and of each call of the library");
	print_cost(out, "operation", &sum, total.n_count);
	if (options->raw)
		return;
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
		"Tried again: %.6f times an operation a CAS found another word; %" PRIu64
		" operations told to come later (RKV_AGAIN), %" PRIu64
		" read-modify-writes overtaken, %" PRIu64 " reconnects.\n",
		report_ratio(sum.n_cas_lost, total.n_count), total.n_again, total.n_cas_lost,
		stats->n_reconnects);
}

static void
print_cpu(FILE *out, const char *whose, uint64_t cpu_ns, uint64_t n)
{
	fprintf(out, "CPU of %s: %.3f s, %.3f s for a million operations.\n", whose,
		(double)cpu_ns / 1e9, 1e6 * report_ratio(cpu_ns, n) / 1e9);
}

static void
print_totals(FILE *out, const struct options *options, const struct report_phase *phase)
{
	struct report_machine machine;
	struct tally_total total = tally_total(&phase->result.tally);
	report_machine(&machine);
	fprintf(out, "Throughput: %.0f operations/s done, in %.3f s.\n",
		report_rate(phase, total.n_hits), (double)report_wall_ns(phase) / 1e9);
	if (phase->is_run && options->rate > 0)
		fprintf(out,
			"Schedule: the last operations started %.3f ms too late at most; an open "
			"loop spins between operations.\n",
			(double)phase->result.lag_ns / 1e6);
	print_cpu(out, "this client", phase->result.cpu_ns, total.n_count);
	if (phase->has_server_cpu)
		print_cpu(out, "the server", phase->server_cpu_ns, total.n_count);
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
	if (total.n_misses > 0 && !report_allows_misses(options))
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
	if (!report_kept_schedule(options, phase))
		fprintf(out, "FAILED: the schedule of %" PRIu64 " operations/s was not kept.\n",
			options->rate);
}

void
report_text(FILE *out, const struct options *options, const struct report_phase *phase)
{
	print_head(out, options, phase);
	print_counts(out, options, phase);
	print_latency_table(out, options, phase);
	print_totals(out, options, phase);
	print_costs(out, options, phase);
	print_wrong(out, options, phase);
	fprintf(out, "\n");
}

/* ---- Progress ---- */

/* Seconds that are left, by the rate so far; a limit may come sooner. */
static double
seconds_left(const struct report_progress *progress, uint64_t n_done, uint64_t elapsed_ns)
{
	double elapsed_s = (double)elapsed_ns / 1e9;
	double left_s = elapsed_s * report_ratio(progress->n_asked - n_done, n_done);
	double limit_s = (double)progress->time_max_ns / 1e9 - elapsed_s;
	if (progress->time_max_ns == 0 || (n_done > 0 && left_s < limit_s))
		return left_s;
	return limit_s > 0 ? limit_s : 0;
}

void
report_progress(struct report_progress *progress, uint64_t n_done, uint64_t elapsed_ns)
{
	uint64_t n_new = n_done - progress->n_before;
	uint64_t span_ns = elapsed_ns - progress->ns_before;
	if (span_ns < REPORT_PROGRESS_NS - SERIES_STEP_NS / 2)
		return;
	fprintf(stderr, "%s%s: %" PRIu64 " of %" PRIu64 " (%.0f %%), %.0f/s, %.0f s left%s",
		progress->is_terminal ? "\r" : "", progress->name, n_done, progress->n_asked,
		100 * report_ratio(n_done, progress->n_asked), report_ratio(n_new, span_ns) * 1e9,
		seconds_left(progress, n_done, elapsed_ns),
		progress->is_terminal ? "\033[K" : "\n");
	progress->n_before = n_done;
	progress->ns_before = elapsed_ns;
}

void
report_progress_end(const struct report_progress *progress)
{
	if (progress->ns_before > 0 && progress->is_terminal)
		fprintf(stderr, "\r\033[K");
}
