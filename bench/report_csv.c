/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The report for spreadsheets and scripts: one line for each phase and kind of operation, and one
 * for all kinds of a phase together, in which latencies are empty. No field needs quotes but the
 * workload's, which may be a path.
 */
#include <inttypes.h>

#include "bench/report.h"

static void
print_head(FILE *out)
{
	fprintf(out, "phase,workload,distribution,records,value_size,processes,threads,depth,rate,"
		     "type,count,hits,misses,errors,seconds,hits_per_s");
	for (int i = 0; i < REPORT_PERCENTILES; i++)
		fprintf(out, ",%s_us", report_percentiles[i].name);
	fprintf(out, ",max_us,mean_us");
	for (int i = 0; i < REPORT_PERCENTILES; i++)
		fprintf(out, ",intended_%s_us", report_percentiles[i].name);
	fprintf(out, ",intended_max_us,client_cpu_us_per_operation,server_cpu_us_per_operation,"
		     "round_trips_per_operation,work_requests_per_operation,"
		     "bytes_read_per_operation,bytes_written_per_operation,"
		     "cas_lost_per_operation\n");
}

static void
print_run(FILE *out, const struct options *options, const struct report_phase *phase)
{
	const struct workload *workload = &options->workload;
	fprintf(out, "%s,\"", phase->name);
	for (const char *at = options->workload_name; *at; at++)
		fprintf(out, *at == '"' ? "\"\"" : "%c", *at);
	fprintf(out, "\",%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64,
		options_distributions[workload->choice.distribution], workload->n_records,
		workload->sizes.value_len, options->n_processes, options->n_threads, options->depth,
		phase->is_run ? options->rate : 0);
}

static void
print_percentiles(FILE *out, const struct histogram *latency_ns)
{
	for (int i = 0; i < REPORT_PERCENTILES; i++) {
		uint32_t per_million = report_percentiles[i].per_million;
		uint64_t ns = histogram_percentile(latency_ns, per_million);
		fprintf(out, latency_ns->n ? ",%.3f" : ",", (double)ns / 1e3);
	}
	fprintf(out, latency_ns->n ? ",%.3f" : ",", (double)latency_ns->max / 1e3);
}

static void
print_op(FILE *out, const struct options *options, const struct report_phase *phase, int op)
{
	const struct tally_op *counts = &phase->result.tally.op[op];
	print_run(out, options, phase);
	fprintf(out, ",%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.6f,%.1f",
		report_op_name(options, op), tally_count(counts), counts->latency_ns.n,
		counts->n_misses, tally_errors(counts), (double)report_wall_ns(phase) / 1e9,
		report_rate(phase, counts->latency_ns.n));
	print_percentiles(out, &counts->latency_ns);
	fprintf(out, counts->latency_ns.n ? ",%.3f" : ",",
		histogram_mean(&counts->latency_ns) / 1e3);
	print_percentiles(out, &counts->intended_ns);
	fprintf(out, ",,,,,,,\n"); /* what follows is known of all kinds together only */
}

static void
print_all(FILE *out, const struct options *options, const struct report_phase *phase)
{
	struct tally_total total = tally_total(&phase->result.tally);
	struct rkv_op_stats sum = report_stats_sum(&phase->result.stats);
	const struct histogram none = {0};
	uint64_t n = total.n_count;
	print_run(out, options, phase);
	fprintf(out, ",all,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.6f,%.1f", n,
		total.n_hits, total.n_misses, total.n_errors, (double)report_wall_ns(phase) / 1e9,
		report_rate(phase, total.n_hits));
	print_percentiles(out, &none);
	fputc(',', out);
	print_percentiles(out, &none);
	fprintf(out, ",%.6f,", report_ratio(phase->result.cpu_ns, n) / 1e3);
	if (phase->has_server_cpu)
		fprintf(out, "%.6f", report_ratio(phase->server_cpu_ns, n) / 1e3);
	fprintf(out, ",%.6g,%.6g,%.6g,%.6g,%.6g\n", report_ratio(sum.n_round_trips, n),
		report_ratio(sum.n_requests, n), report_ratio(sum.n_bytes_read, n),
		report_ratio(sum.n_bytes_written, n), report_ratio(sum.n_cas_lost, n));
}

void
report_csv(FILE *out, const struct options *options, const struct report_phase *phases,
	   int n_phases)
{
	print_head(out);
	for (int i = 0; i < n_phases; i++) {
		for (int op = 0; op < SOURCE_OPS; op++)
			if (tally_count(&phases[i].result.tally.op[op]) > 0)
				print_op(out, options, &phases[i], op);
		print_all(out, options, &phases[i]);
	}
}
