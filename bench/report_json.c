/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The report for programs. The writer below is all that is needed for that: it is only written to,
 * never parsed, and its few strings are escaped. Latencies are whole nanoseconds.
 */
#include <inttypes.h>

#include "bench/report.h"

/* ---- Writer ---- */

struct writer {
	FILE *out;
	int depth;
	bool is_first; /* of its object or array */
};

static void
write_text(struct writer *writer, const char *text)
{
	fputc('"', writer->out);
	for (const char *at = text; *at; at++) {
		unsigned char byte = (unsigned char)*at;
		if (byte == '"' || byte == '\\')
			fprintf(writer->out, "\\%c", byte);
		else if (byte < 0x20)
			fprintf(writer->out, "\\u%04x", byte);
		else
			fputc(byte, writer->out);
	}
	fputc('"', writer->out);
}

/* What stands before a value; key NULL: in an array, or the outermost. */
static void
begin_value(struct writer *writer, const char *key)
{
	if (!writer->is_first)
		fputc(',', writer->out);
	writer->is_first = false;
	if (writer->depth > 0)
		fprintf(writer->out, "\n%*s", 2 * writer->depth, "");
	if (key) {
		write_text(writer, key);
		fputs(": ", writer->out);
	}
}

static void
begin(struct writer *writer, const char *key, char bracket)
{
	begin_value(writer, key);
	fputc(bracket, writer->out);
	writer->depth++;
	writer->is_first = true;
}

static void
finish(struct writer *writer, char bracket)
{
	writer->depth--;
	writer->is_first = false;
	fprintf(writer->out, "\n%*s%c", 2 * writer->depth, "", bracket);
}

static void
put_string(struct writer *writer, const char *key, const char *value)
{
	begin_value(writer, key);
	write_text(writer, value);
}

static void
put_count(struct writer *writer, const char *key, uint64_t value)
{
	begin_value(writer, key);
	fprintf(writer->out, "%" PRIu64, value);
}

static void
put_real(struct writer *writer, const char *key, double value)
{
	begin_value(writer, key);
	fprintf(writer->out, "%.6g", value);
}

static void
put_bool(struct writer *writer, const char *key, bool value)
{
	begin_value(writer, key);
	fputs(value ? "true" : "false", writer->out);
}

/* ---- Report ---- */

static void
put_workload(struct writer *writer, const struct options *options)
{
	const struct workload *workload = &options->workload;
	put_string(writer, "workload", options->workload_name);
	put_string(writer, "distribution", options_distributions[workload->choice.distribution]);
	put_count(writer, "records", workload->n_records);
	put_count(writer, "operations", workload->n_operations);
	put_count(writer, "insert_start", workload->first);
	put_string(writer, "sizes", workload->sizes.kind == SIZES_ETC ? "etc" : "fixed");
	put_count(writer, "value_size", workload->sizes.value_len);
	put_count(writer, "seed", workload->seed);
	put_string(writer, "read_modify_write", options->blind ? "blind" : "cas");
	put_bool(writer, "verify", options->verify);
}

static void
put_options(struct writer *writer, const struct options *options)
{
	begin(writer, "options", '{');
	put_string(writer, options->raw || options->idle ? "fabric" : "server",
		   report_place(options));
	put_workload(writer, options);
	put_count(writer, "processes", options->n_processes);
	put_count(writer, "threads", options->n_threads);
	put_count(writer, "depth", options->depth);
	put_string(writer, "loop", options->rate > 0 ? "open" : "closed");
	put_count(writer, "rate", options->rate);
	put_count(writer, "warm_up", options->n_warm_up);
	put_count(writer, "timeout_ms", options->timeout_ms);
	put_count(writer, "cache_bytes", options->cache_bytes);
	put_count(writer, "max_seconds", options->time_max_s);
	finish(writer, '}');
}

static void
put_machine(struct writer *writer)
{
	struct report_machine machine;
	report_machine(&machine);
	begin(writer, "machine", '{');
	put_count(writer, "cores", machine.n_cores);
	put_string(writer, "cpu", machine.cpu);
	put_string(writer, "system", machine.system);
	finish(writer, '}');
}

static void
put_latency(struct writer *writer, const char *key, const struct histogram *latency_ns)
{
	begin(writer, key, '{');
	for (int i = 0; i < REPORT_PERCENTILES; i++)
		put_count(writer, report_percentiles[i].name,
			  histogram_percentile(latency_ns, report_percentiles[i].per_million));
	put_count(writer, "max", latency_ns->max);
	put_real(writer, "mean", histogram_mean(latency_ns));
	finish(writer, '}');
}

static void
put_errors(struct writer *writer, const struct tally_op *op)
{
	begin(writer, "errors_by_code", '{');
	for (int i = 0; i < TALLY_CODES; i++) {
		char code[16];
		snprintf(code, sizeof(code), "%d", i + TALLY_CODE_MIN);
		if (op->n_errors[i] > 0)
			put_count(writer,
				  i + TALLY_CODE_MIN == TALLY_BAD_VALUE ? "wrong_value" : code,
				  op->n_errors[i]);
	}
	finish(writer, '}');
}

static void
put_op(struct writer *writer, const struct options *options, const struct report_phase *phase,
       int op)
{
	const struct tally_op *counts = &phase->result.tally.op[op];
	begin(writer, NULL, '{');
	put_string(writer, "type", report_op_name(options, op));
	put_count(writer, "count", tally_count(counts));
	put_count(writer, "hits", counts->latency_ns.n);
	put_count(writer, "misses", counts->n_misses);
	put_count(writer, "errors", tally_errors(counts));
	put_errors(writer, counts);
	put_count(writer, "again", counts->n_again);
	put_count(writer, "cas_lost", counts->n_cas_lost);
	put_real(writer, "hits_per_s", report_rate(phase, counts->latency_ns.n));
	put_latency(writer, "latency_ns", &counts->latency_ns);
	if (counts->intended_ns.n > 0)
		put_latency(writer, "intended_latency_ns", &counts->intended_ns);
	finish(writer, '}');
}

static void
put_call(struct writer *writer, const char *name, const struct rkv_op_stats *stats)
{
	begin(writer, name, '{');
	put_count(writer, "done", stats->n_done);
	put_count(writer, "outcomes", stats->n_outcomes);
	put_count(writer, "failures", stats->n_failures);
	put_count(writer, "round_trips", stats->n_round_trips);
	put_count(writer, "work_requests", stats->n_requests);
	put_count(writer, "marks", stats->n_marks);
	put_count(writer, "bytes_read", stats->n_bytes_read);
	put_count(writer, "bytes_written", stats->n_bytes_written);
	put_count(writer, "retries", stats->n_retries);
	put_count(writer, "cas_lost", stats->n_cas_lost);
	finish(writer, '}');
}

static void
put_library(struct writer *writer, const struct rkv_stats_values *stats)
{
	begin(writer, "library", '{');
	for (int i = 0; i < RKV_OP_COUNT; i++)
		if (report_stats_count(&stats->op[i]) > 0)
			put_call(writer, report_call_names[i], &stats->op[i]);
	put_count(writer, "cache_hits", stats->n_cache_hits);
	put_count(writer, "cache_misses", stats->n_cache_misses);
	put_count(writer, "cache_stale", stats->n_cache_stale);
	put_count(writer, "reconnects", stats->n_reconnects);
	put_count(writer, "maintenance_requests", stats->n_maintenance_requests);
	finish(writer, '}');
}

static void
put_cost(struct writer *writer, const struct report_phase *phase, uint64_t n)
{
	struct rkv_op_stats sum = report_stats_sum(&phase->result.stats);
	put_real(writer, "client_cpu_s", (double)phase->result.cpu_ns / 1e9);
	if (phase->has_server_cpu)
		put_real(writer, "server_cpu_s", (double)phase->server_cpu_ns / 1e9);
	put_real(writer, "cpu_s_per_million", report_ratio(report_cpu_ns(phase), n) / 1e3);
	put_real(writer, "round_trips_per_operation", report_ratio(sum.n_round_trips, n));
	put_real(writer, "work_requests_per_operation", report_ratio(sum.n_requests, n));
	put_real(writer, "marks_per_operation", report_ratio(sum.n_marks, n));
	put_real(writer, "bytes_read_per_operation", report_ratio(sum.n_bytes_read, n));
	put_real(writer, "bytes_written_per_operation", report_ratio(sum.n_bytes_written, n));
	put_real(writer, "cas_lost_per_operation", report_ratio(sum.n_cas_lost, n));
	put_real(writer, "lag_ms", (double)phase->result.lag_ns / 1e6);
}

/* Seconds since the start, and operations that had ended by then. */
static void
put_series(struct writer *writer, const struct series *series)
{
	begin(writer, "series", '[');
	for (uint32_t i = 0; i < series->n; i++) {
		begin(writer, NULL, '{');
		put_real(writer, "s", (double)series->points[i].elapsed_ns / 1e9);
		put_count(writer, "done", series->points[i].n_done);
		finish(writer, '}');
	}
	finish(writer, ']');
}

static void
put_phase(struct writer *writer, const struct options *options, const struct report_phase *phase)
{
	const struct driver_result *result = &phase->result;
	struct tally_total total = tally_total(&result->tally);
	begin(writer, NULL, '{');
	put_string(writer, "phase", phase->name);
	put_bool(writer, "good", report_is_good(options, phase));
	put_count(writer, "operations_asked", phase->n_asked);
	put_count(writer, "operations", total.n_count);
	put_count(writer, "hits", total.n_hits);
	put_count(writer, "misses", total.n_misses);
	put_count(writer, "errors", total.n_errors);
	put_count(writer, "wrong_values", result->tally.n_bad_values);
	put_real(writer, "wall_s", (double)report_wall_ns(phase) / 1e9);
	put_real(writer, "hits_per_s", report_rate(phase, total.n_hits));
	put_cost(writer, phase, total.n_count);
	begin(writer, "types", '[');
	for (int op = 0; op < SOURCE_OPS; op++)
		if (tally_count(&result->tally.op[op]) > 0)
			put_op(writer, options, phase, op);
	finish(writer, ']');
	put_library(writer, &result->stats);
	put_series(writer, &result->series);
	finish(writer, '}');
}

void
report_json(FILE *out, const struct options *options, const struct report_phase *phases,
	    int n_phases)
{
	struct writer writer = {.out = out, .is_first = true};
	begin(&writer, NULL, '{');
	put_string(&writer, "program", "kv-bench");
	put_string(&writer, "version", rkv_version());
	put_machine(&writer);
	put_options(&writer, options);
	begin(&writer, "phases", '[');
	for (int i = 0; i < n_phases; i++)
		put_phase(&writer, options, &phases[i]);
	finish(&writer, ']');
	finish(&writer, '}');
	fputc('\n', out);
}
