/* SPDX-License-Identifier: BSD-2-Clause */
/* The figures that follow from a result. How they are shown: report_text.c, report_json.c. */
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
	{"p50", 500000},
	{"p90", 900000},
	{"p99", 990000},
	{"p99.9", 999000},
};

const char *
report_op_name(const struct options *options, int op)
{
	switch (op) {
	case SOURCE_READ:
		return "read";
	case SOURCE_UPDATE:
		return "update";
	case SOURCE_INSERT:
		return "insert";
	default:
		return options->blind ? "rmw (blind)" : "rmw (cas)";
	}
}

double
report_ratio(uint64_t n, uint64_t of)
{
	return of ? (double)n / (double)of : 0;
}

double
report_rate(const struct report_phase *phase, uint64_t n_hits)
{
	return report_ratio(n_hits, phase->result.wall_ns) * 1e9;
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
report_is_good(const struct options *options, const struct report_phase *phase)
{
	struct tally_total total = tally_total(&phase->result.tally);
	bool complete = total.n_count == phase->n_asked || options->time_max_s > 0;
	return complete && total.n_misses == 0 && total.n_errors == 0 &&
	       phase->result.failure == RKV_OK;
}
