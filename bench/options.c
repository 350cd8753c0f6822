/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Options with a number are rows of one table with their limits; what is wrong is told in a
 * sentence on standard error.
 */
#include "bench/options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/value.h"
#include "client/include/rkv.h"

static const char help[] =
	"kv-bench: YCSB workloads on an rkv server\n"
	"\n"
	"  kv-bench --load --run --workload b --records 100000 --operations 1000000 --threads 4\n"
	"\n"
	"What to do (one or both; --load goes first, and --run keeps its sessions and their "
	"caches):\n"
	"  --load               store the records\n"
	"  --run                run the workload on records that are there\n"
	"  --server HOST:PORT   default $RKV_SERVER, else localhost:7440\n"
	"\n"
	"The workload:\n"
	"  --workload LETTER    a: 50 % read, 50 % update      b: 95 % read, 5 % update\n"
	"                       c: 100 % read                  d: 95 % read of the latest, 5 % "
	"insert\n"
	"                       f: 50 % read, 50 % read-modify-write      default a\n"
	"                       (e, scans, cannot be: the index is a hash table)\n"
	"  --distribution NAME  uniform, zipfian, latest or hotspot; default the workload's\n"
	"  --records N          default 1000\n"
	"  --operations N       default 1000\n"
	"  --insert-start N     number of the first record's key; default 0\n"
	"  --value-size BYTES   default 1000, YCSB's 10 fields of 100 bytes; always written whole\n"
	"  --cas, --blind       read-modify-write by compare-and-swap, begun anew when another "
	"write\n"
	"                       came first (default), or by put, as YCSB does it\n"
	"  --verify             check every byte of every value that is read\n"
	"  --seed N             of all random numbers; default 1\n"
	"\n"
	"How:\n"
	"  --threads N          default 1; each has a session\n"
	"  --depth N            operations in flight of each thread; default 1\n"
	"  --cache-bytes N      location cache of each session; default the library's\n"
	"  --timeout-ms N       of an operation, with all its retries; default 5000\n"
	"  --max-seconds N      end a phase after so long, whatever is left of it\n"
	"\n"
	"  --json FILE          write the report as JSON too; '-': to standard output, and the "
	"tables\n"
	"                       to standard error\n"
	"  --help, --version\n"
	"\n"
	"Exit status: 0 if all went well; 1 if an operation failed, a value was wrong, or a key "
	"that\n"
	"must be there was not; 2 if the command line is wrong.\n";

/* ---- Numbers ---- */

struct number_option {
	const char *name;
	size_t offset; /* in struct options */
	uint64_t min;
	uint64_t max;
};

#define COUNT_MAX UINT64_C(1000000000000000) /* sums of three stay far below 2^63 */

static const struct number_option numbers[] = {
	{"records", offsetof(struct options, n_records), 1, COUNT_MAX},
	{"operations", offsetof(struct options, n_operations), 1, COUNT_MAX},
	{"insert-start", offsetof(struct options, insert_start), 0, COUNT_MAX},
	{"value-size", offsetof(struct options, value_size), 0, UINT64_C(1) << 30},
	{"threads", offsetof(struct options, n_threads), 1, 1024},
	{"depth", offsetof(struct options, depth), 1, 4096},
	{"timeout-ms", offsetof(struct options, timeout_ms), 1, 3600000},
	{"cache-bytes", offsetof(struct options, cache_bytes), 0, UINT64_C(1) << 40},
	{"max-seconds", offsetof(struct options, time_max_s), 1, 31536000},
	{"seed", offsetof(struct options, seed), 0, UINT64_MAX},
};
#define N_NUMBERS (sizeof(numbers) / sizeof(numbers[0]))

static int
parse_number(const struct number_option *number, const char *text, struct options *options)
{
	char *end;
	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0 || value < number->min ||
	    value > number->max) {
		fprintf(stderr, "kv-bench: --%s takes a number from %llu to %llu, not \"%s\"\n",
			number->name, (unsigned long long)number->min,
			(unsigned long long)number->max, text);
		return OPTIONS_BAD;
	}
	*(uint64_t *)(void *)((char *)options + number->offset) = value;
	return OPTIONS_GO;
}

/* ---- Words ---- */

static const char *const distributions[] = {
	[GEN_UNIFORM] = "uniform",
	[GEN_ZIPFIAN] = "zipfian",
	[GEN_LATEST] = "latest",
	[GEN_HOTSPOT] = "hotspot",
};
#define N_DISTRIBUTIONS ((int)(sizeof(distributions) / sizeof(distributions[0])))

const char *
options_distribution_name(enum gen_distribution distribution)
{
	return distributions[distribution];
}

static int
parse_distribution(const char *text, int *ret_distribution)
{
	for (int i = 0; i < N_DISTRIBUTIONS; i++) {
		if (strcmp(text, distributions[i]) == 0) {
			*ret_distribution = i;
			return OPTIONS_GO;
		}
	}
	fprintf(stderr,
		"kv-bench: --distribution takes uniform, zipfian, latest or hotspot, not \"%s\"\n",
		text);
	return OPTIONS_BAD;
}

static int
parse_workload(const char *text, struct options *options)
{
	if (strcmp(text, "e") == 0) {
		fprintf(stderr, "kv-bench: workload e scans ranges of keys; an rkv index is a hash "
				"table, in which keys have no order\n");
		return OPTIONS_BAD;
	}
	options->mix = strlen(text) == 1 ? workload_find(text[0]) : NULL;
	if (options->mix == NULL) {
		fprintf(stderr, "kv-bench: --workload takes a, b, c, d or f, not \"%s\"\n", text);
		return OPTIONS_BAD;
	}
	return OPTIONS_GO;
}

/* ---- The command line ---- */

enum {
	OPTION_NUMBER = 0x100, /* + index into numbers */
	OPTION_SERVER = 0x200,
	OPTION_WORKLOAD,
	OPTION_DISTRIBUTION,
	OPTION_JSON,
	OPTION_LOAD,
	OPTION_RUN,
	OPTION_CAS,
	OPTION_BLIND,
	OPTION_VERIFY,
	OPTION_HELP,
	OPTION_VERSION,
};

static const struct option words[] = {
	{"server", required_argument, NULL, OPTION_SERVER},
	{"workload", required_argument, NULL, OPTION_WORKLOAD},
	{"distribution", required_argument, NULL, OPTION_DISTRIBUTION},
	{"json", required_argument, NULL, OPTION_JSON},
	{"load", no_argument, NULL, OPTION_LOAD},
	{"run", no_argument, NULL, OPTION_RUN},
	{"cas", no_argument, NULL, OPTION_CAS},
	{"blind", no_argument, NULL, OPTION_BLIND},
	{"verify", no_argument, NULL, OPTION_VERIFY},
	{"help", no_argument, NULL, OPTION_HELP},
	{"version", no_argument, NULL, OPTION_VERSION},
};
#define N_WORDS (sizeof(words) / sizeof(words[0]))

/* What was said, as far as its absence or repetition matters. */
struct said {
	int distribution; /* -1: the workload's */
	bool cas;
};

static int
apply(int option, const char *text, struct options *options, struct said *said)
{
	if (option >= OPTION_NUMBER && option < OPTION_NUMBER + (int)N_NUMBERS)
		return parse_number(&numbers[option - OPTION_NUMBER], text, options);
	switch (option) {
	case OPTION_SERVER:
		options->server = text;
		return OPTIONS_GO;
	case OPTION_WORKLOAD:
		return parse_workload(text, options);
	case OPTION_DISTRIBUTION:
		return parse_distribution(text, &said->distribution);
	case OPTION_JSON:
		options->json_path = text;
		return OPTIONS_GO;
	case OPTION_LOAD:
		options->load = true;
		return OPTIONS_GO;
	case OPTION_RUN:
		options->run = true;
		return OPTIONS_GO;
	case OPTION_CAS:
		said->cas = true;
		return OPTIONS_GO;
	case OPTION_BLIND:
		options->blind = true;
		return OPTIONS_GO;
	case OPTION_VERIFY:
		options->verify = true;
		return OPTIONS_GO;
	case OPTION_HELP:
		fputs(help, stdout);
		return OPTIONS_SAID;
	case OPTION_VERSION:
		printf("kv-bench %s\n", rkv_version());
		return OPTIONS_SAID;
	default: /* getopt has said what is wrong */
		return OPTIONS_BAD;
	}
}

/* What is wrong with the options together; NULL: nothing. */
static const char *
contradiction(const struct options *options, const struct said *said)
{
	if (!options->load && !options->run)
		return "nothing to do: give --load, --run, or both";
	if (said->cas && options->blind)
		return "--cas and --blind exclude each other";
	if (options->verify && options->value_size < VALUE_CHECKED_MIN)
		return "--verify needs a --value-size of 24 or more, for what tells values apart";
	return NULL;
}

static void
set_defaults(struct options *options)
{
	struct rkv_options library;
	const char *server = getenv("RKV_SERVER");
	rkv_options_init(&library);
	*options = (struct options){
		.server = server && *server ? server : "localhost:7440",
		.mix = workload_find('a'),
		.n_records = 1000,
		.n_operations = 1000,
		.value_size = 1000,
		.n_threads = 1,
		.depth = 1,
		.timeout_ms = library.op_timeout_ms,
		.cache_bytes = library.cache_bytes,
		.seed = 1,
	};
}

static void
make_table(struct option table[N_WORDS + N_NUMBERS + 1])
{
	memset(table, 0, (N_WORDS + N_NUMBERS + 1) * sizeof(table[0]));
	memcpy(table, words, sizeof(words));
	for (size_t i = 0; i < N_NUMBERS; i++)
		table[N_WORDS + i] = (struct option){numbers[i].name, required_argument, NULL,
						     OPTION_NUMBER + (int)i};
}

int
options_parse(int argc, char **argv, struct options *ret_options)
{
	struct option table[N_WORDS + N_NUMBERS + 1];
	struct said said = {.distribution = -1};
	int option;
	make_table(table);
	set_defaults(ret_options);
	while ((option = getopt_long(argc, argv, "", table, NULL)) != -1) {
		int code = apply(option, optarg, ret_options, &said);
		if (code != OPTIONS_GO)
			return code;
	}
	if (optind < argc) {
		fprintf(stderr, "kv-bench: \"%s\" is not an option; see --help\n", argv[optind]);
		return OPTIONS_BAD;
	}
	const char *wrong = contradiction(ret_options, &said);
	if (wrong) {
		fprintf(stderr, "kv-bench: %s\n", wrong);
		return OPTIONS_BAD;
	}
	ret_options->distribution = said.distribution < 0
					    ? ret_options->mix->distribution
					    : (enum gen_distribution)said.distribution;
	return OPTIONS_GO;
}
