/* SPDX-License-Identifier: BSD-2-Clause */
/* The figures that follow from a result. How they are shown: report_*.c. */
#include "bench/report.h"

#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* ---- Figures ---- */

const char *const report_call_names[RKV_OP_COUNT] = {
	[RKV_OP_GET] = "get",         [RKV_OP_PUT] = "put", [RKV_OP_ADD] = "add",
	[RKV_OP_REPLACE] = "replace", [RKV_OP_CAS] = "cas", [RKV_OP_DELETE] = "delete",
	[RKV_OP_TOUCH] = "touch",
};

const struct report_percentile report_percentiles[REPORT_PERCENTILES] = {
	{"p50", 500000},   {"p90", 900000},    {"p99", 990000},
	{"p99.9", 999000}, {"p99.99", 999900}, {"p99.999", 999990},
};

const char *
report_op_name(const struct options *options, int op)
{
	static const char *const names[SOURCE_OPS] = {
		[SOURCE_READ] = "read", [SOURCE_UPDATE] = "update",   [SOURCE_INSERT] = "insert",
		[SOURCE_ADD] = "add",   [SOURCE_REPLACE] = "replace", [SOURCE_DELETE] = "delete",
	};
	if (options->raw)
		return raw_titles[options->raw_kind];
	if (op == SOURCE_RMW)
		return options->blind ? "rmw (blind)" : "rmw (cas)";
	return names[op];
}

const char *
report_place(const struct options *options)
{
	if (options->idle)
		return "nothing";
	return options->raw ? target_fabrics[options->fabric] : options->server;
}

double
report_ratio(uint64_t n, uint64_t of)
{
	return of ? (double)n / (double)of : 0;
}

uint64_t
report_wall_ns(const struct report_phase *phase)
{
	return phase->result.end_ns - phase->result.start_ns;
}

double
report_rate(const struct report_phase *phase, uint64_t n_hits)
{
	return report_ratio(n_hits, report_wall_ns(phase)) * 1e9;
}

uint64_t
report_cpu_ns(const struct report_phase *phase)
{
	return phase->result.cpu_ns + (phase->has_server_cpu ? phase->server_cpu_ns : 0);
}

struct rkv_op_stats
report_stats_sum(const struct rkv_stats_values *stats)
{
	struct rkv_op_stats sum = {0};
	for (int i = 0; i < RKV_OP_COUNT; i++) {
		const struct rkv_op_stats *op = &stats->op[i];
		sum.n_done += op->n_done;
		sum.n_outcomes += op->n_outcomes;
		sum.n_failures += op->n_failures;
		sum.n_round_trips += op->n_round_trips;
		sum.n_requests += op->n_requests;
		sum.n_marks += op->n_marks;
		sum.n_bytes_read += op->n_bytes_read;
		sum.n_bytes_written += op->n_bytes_written;
		sum.n_retries += op->n_retries;
		sum.n_cas_lost += op->n_cas_lost;
	}
	return sum;
}

uint64_t
report_stats_count(const struct rkv_op_stats *stats)
{
	return stats->n_done + stats->n_outcomes + stats->n_failures;
}

/* The model's name as Linux tells it; architectures that tell none leave it empty. */
static void
read_cpu_name(char *ret_name, size_t size)
{
	char line[256];
	ret_name[0] = '\0';
	FILE *file = fopen("/proc/cpuinfo", "re");
	if (file == NULL)
		return;
	while (fgets(line, sizeof(line), file)) {
		const char *colon = strchr(line, ':');
		if (strncmp(line, "model name", 10) != 0 || colon == NULL)
			continue;
		snprintf(ret_name, size, "%s", colon + 1 + strspn(colon + 1, " "));
		ret_name[strcspn(ret_name, "\n")] = '\0';
		break;
	}
	fclose(file);
}

void
report_machine(struct report_machine *ret_machine)
{
	struct utsname system;
	long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
	ret_machine->n_cores = n_cores > 0 ? (uint32_t)n_cores : 0;
	read_cpu_name(ret_machine->cpu, sizeof(ret_machine->cpu));
	ret_machine->system[0] = '\0';
	if (uname(&system) == 0)
		snprintf(ret_machine->system, sizeof(ret_machine->system), "%s %s %s",
			 system.sysname, system.release, system.machine);
}

bool
report_allows_misses(const struct options *options)
{
	return options->trace_path || options->workload.mix.shares[SOURCE_DELETE] > 0;
}

bool
report_kept_schedule(const struct options *options, const struct report_phase *phase)
{
	const uint64_t lag_always_ns = 10000000;
	uint64_t lag_ns = phase->result.lag_ns;
	if (!phase->is_run || options->rate == 0)
		return true;
	return lag_ns <= lag_always_ns || lag_ns <= report_wall_ns(phase) / 100;
}

bool
report_is_good(const struct options *options, const struct report_phase *phase)
{
	struct tally_total total = tally_total(&phase->result.tally);
	bool is_complete = total.n_count == phase->n_asked || options->time_max_s > 0;
	bool misses_are_good = total.n_misses == 0 || report_allows_misses(options);
	return is_complete && misses_are_good && total.n_errors == 0 &&
	       phase->result.failure == RKV_OK && report_kept_schedule(options, phase);
}
