/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Options with a number, with a text and without argument are rows of three tables; what is wrong
 * is told in a sentence on standard error. The command line is gone through three times: for the
 * property files, for single properties, and for options, so that the later count more.
 */
#include "bench/options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/properties.h"
#include "bench/value.h"
#include "client/include/rkv.h"

/* ---- Values ---- */

int
options_number(const char *name, uint64_t min, uint64_t max, const char *text, uint64_t *ret_number)
{
	char *end;
	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0 || value < min ||
	    value > max) {
		fprintf(stderr, "kv-bench: %s takes a number from %llu to %llu, not \"%s\"\n", name,
			(unsigned long long)min, (unsigned long long)max, text);
		return OPTIONS_BAD;
	}
	*ret_number = value;
	return OPTIONS_GO;
}

int
options_word(const char *name, const char *const words[], int n, const char *text, int *ret_index)
{
	for (int i = 0; i < n; i++) {
		if (strcmp(text, words[i]) == 0) {
			*ret_index = i;
			return OPTIONS_GO;
		}
	}
	fprintf(stderr, "kv-bench: %s takes ", name);
	for (int i = 0; i < n; i++)
		fprintf(stderr, "%s%s", words[i], i < n - 2 ? ", " : i < n - 1 ? " or " : "");
	fprintf(stderr, ", not \"%s\"\n", text);
	return OPTIONS_BAD;
}

const char *const options_distributions[GEN_DISTRIBUTIONS] = {
	[GEN_UNIFORM] = "uniform", [GEN_ZIPFIAN] = "zipfian",         [GEN_LATEST] = "latest",
	[GEN_HOTSPOT] = "hotspot", [GEN_EXPONENTIAL] = "exponential",
};

/* ---- Options that are stored as they are ---- */

struct number_option {
	const char *name;
	size_t offset; /* in struct options */
	uint64_t min;
	uint64_t max;
};

static const struct number_option numbers[] = {
	{"--records", offsetof(struct options, workload.n_records), 1, OPTIONS_COUNT_MAX},
	{"--operations", offsetof(struct options, workload.n_operations), 1, OPTIONS_COUNT_MAX},
	{"--insert-start", offsetof(struct options, workload.first), 0, OPTIONS_COUNT_MAX},
	{"--value-size", offsetof(struct options, workload.sizes.value_len), 0, OPTIONS_VALUE_MAX},
	{"--seed", offsetof(struct options, workload.seed), 0, UINT64_MAX},
	{"--processes", offsetof(struct options, n_processes), 1, 256},
	{"--threads", offsetof(struct options, n_threads), 1, 1024},
	{"--depth", offsetof(struct options, depth), 1, 4096},
	{"--rate", offsetof(struct options, rate), 1, 1000000000},
	{"--warm-up", offsetof(struct options, n_warm_up), 0, OPTIONS_COUNT_MAX},
	{"--timeout-ms", offsetof(struct options, timeout_ms), 1, 3600000},
	{"--cache-bytes", offsetof(struct options, cache_bytes), 0, UINT64_C(1) << 40},
	{"--max-seconds", offsetof(struct options, time_max_s), 1, 31536000},
};
#define N_NUMBERS (sizeof(numbers) / sizeof(numbers[0]))

struct named_option {
	const char *name;
	size_t offset;
};

static const struct named_option texts[] = {
	{"--server", offsetof(struct options, server)},
	{"--rdma-address", offsetof(struct options, rdma_address)},
	{"--tenant", offsetof(struct options, identity.tenant)},
	{"--secret-file", offsetof(struct options, identity.secret_file)},
	{"--tls-ca", offsetof(struct options, identity.tls_ca)},
	{"--tls-cert", offsetof(struct options, identity.tls_cert)},
	{"--tls-key", offsetof(struct options, identity.tls_key)},
	{"--tls-name", offsetof(struct options, identity.tls_name)},
	{"--trace", offsetof(struct options, trace_path)},
	{"--json", offsetof(struct options, json_path)},
	{"--csv", offsetof(struct options, csv_path)},
	{"--plot", offsetof(struct options, plot_path)},
};
#define N_TEXTS (sizeof(texts) / sizeof(texts[0]))

static const struct named_option flags[] = {
	{"--load", offsetof(struct options, load)},
	{"--run", offsetof(struct options, run)},
	{"--idle", offsetof(struct options, idle)},
	{"--blind", offsetof(struct options, blind)},
	{"--verify", offsetof(struct options, verify)},
	{"--progress", offsetof(struct options, progress)},
};
#define N_FLAGS (sizeof(flags) / sizeof(flags[0]))

/* ---- Options that have to be understood ---- */

/* What was said, as far as its absence or repetition matters. */
struct said {
	int distribution; /* -1: the workload's */
	bool workload;
	bool file;
	bool records;
	bool operations;
	bool cas;
};

static int
apply_workload(const char *text, struct options *options)
{
	if (strcmp(text, "e") == 0) {
		fprintf(stderr, "kv-bench: workload e scans ranges of keys; an rkv index is a hash "
				"table, in which keys have no order\n");
		return OPTIONS_BAD;
	}
	const struct workload_mix *mix = strlen(text) == 1 ? workload_find(text[0]) : NULL;
	if (mix == NULL) {
		fprintf(stderr, "kv-bench: --workload takes a, b, c, d or f, not \"%s\"\n", text);
		return OPTIONS_BAD;
	}
	options->workload.mix = *mix;
	options->workload.choice.distribution = mix->distribution;
	options->workload_name = text;
	return OPTIONS_GO;
}

static int
apply_sizes(const char *text, struct options *options)
{
	static const char *const kinds[] = {[SIZES_FIXED] = "fixed", [SIZES_ETC] = "etc"};
	int kind;
	int code = options_word("--sizes", kinds, 2, text, &kind);
	if (code == OPTIONS_GO)
		options->workload.sizes.kind = (enum sizes_kind)kind;
	return code;
}

static int
apply_raw(const char *text, struct options *options)
{
	int kind;
	int code = options_word("--raw", raw_kind_names, RAW_KINDS, text, &kind);
	if (code != OPTIONS_GO)
		return code;
	options->raw = options->run = true;
	options->raw_kind = (enum raw_kind)kind;
	options->workload_name = raw_titles[kind];
	options->workload.mix = *workload_raw(raw_is_update(options->raw_kind));
	options->workload.choice.distribution = options->workload.mix.distribution;
	return OPTIONS_GO;
}

static int
apply_fabric(const char *text, struct options *options)
{
	int fabric;
	int code = options_word("--fabric", target_fabrics, TARGET_FABRICS, text, &fabric);
	if (code == OPTIONS_GO)
		options->fabric = (enum rkv_fabric)fabric;
	return code;
}

/* ---- The command line ---- */

enum {
	OPTION_NUMBER = 0x100, /* + index into numbers */
	OPTION_TEXT = 0x200,   /* + index into texts */
	OPTION_FLAG = 0x300,   /* + index into flags */
	OPTION_WORKLOAD = 0x400,
	OPTION_DISTRIBUTION,
	OPTION_SIZES,
	OPTION_RAW,
	OPTION_FABRIC,
	OPTION_CAS,
	OPTION_HELP,
	OPTION_VERSION,
};

static const struct option words[] = {
	{"workload", required_argument, NULL, OPTION_WORKLOAD},
	{"distribution", required_argument, NULL, OPTION_DISTRIBUTION},
	{"sizes", required_argument, NULL, OPTION_SIZES},
	{"raw", required_argument, NULL, OPTION_RAW},
	{"fabric", required_argument, NULL, OPTION_FABRIC},
	{"cas", no_argument, NULL, OPTION_CAS},
	{"help", no_argument, NULL, OPTION_HELP},
	{"version", no_argument, NULL, OPTION_VERSION},
};
#define N_WORDS (sizeof(words) / sizeof(words[0]))
#define N_OPTIONS (N_WORDS + N_NUMBERS + N_TEXTS + N_FLAGS)

static void *
place_of(struct options *options, size_t offset)
{
	return (char *)options + offset;
}

static int
apply_word(int option, const char *text, struct options *options, struct said *said)
{
	switch (option) {
	case OPTION_WORKLOAD:
		said->workload = true;
		return apply_workload(text, options);
	case OPTION_DISTRIBUTION:
		return options_word("--distribution", options_distributions, GEN_DISTRIBUTIONS,
				    text, &said->distribution);
	case OPTION_SIZES:
		return apply_sizes(text, options);
	case OPTION_RAW:
		return apply_raw(text, options);
	case OPTION_FABRIC:
		return apply_fabric(text, options);
	case OPTION_CAS:
		said->cas = true;
		return OPTIONS_GO;
	case OPTION_HELP:
		fputs(options_help, stdout);
		return OPTIONS_SAID;
	case OPTION_VERSION:
		printf("kv-bench %s\n", rkv_version());
		return OPTIONS_SAID;
	default:
		return OPTIONS_BAD;
	}
}

static int
apply_number(const struct number_option *number, const char *text, struct options *options,
	     struct said *said)
{
	said->records |= number->offset == offsetof(struct options, workload.n_records);
	said->operations |= number->offset == offsetof(struct options, workload.n_operations);
	return options_number(number->name, number->min, number->max, text,
			      place_of(options, number->offset));
}

static int
apply(int option, const char *text, struct options *options, struct said *said)
{
	size_t index = (size_t)option & 0xff;
	switch (option & ~0xff) {
	case OPTION_NUMBER:
		return apply_number(&numbers[index], text, options, said);
	case OPTION_TEXT:
		*(const char **)place_of(options, texts[index].offset) = text;
		return OPTIONS_GO;
	case OPTION_FLAG:
		*(bool *)place_of(options, flags[index].offset) = true;
		return OPTIONS_GO;
	default:
		return apply_word(option, text, options, said);
	}
}

static void
make_table(struct option table[N_OPTIONS + 1])
{
	struct option *row = table;
	for (size_t i = 0; i < N_WORDS; i++)
		*row++ = words[i];
	for (size_t i = 0; i < N_NUMBERS; i++)
		*row++ = (struct option){numbers[i].name + 2, required_argument, NULL,
					 OPTION_NUMBER + (int)i};
	for (size_t i = 0; i < N_TEXTS; i++)
		*row++ = (struct option){texts[i].name + 2, required_argument, NULL,
					 OPTION_TEXT + (int)i};
	for (size_t i = 0; i < N_FLAGS; i++)
		*row++ =
			(struct option){flags[i].name + 2, no_argument, NULL, OPTION_FLAG + (int)i};
	*row = (struct option){0};
}

/* ---- All together ---- */

struct rule {
	bool is_broken;
	const char *sentence;
};

static const char *
broken(const struct rule *rules, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (rules[i].is_broken)
			return rules[i].sentence;
	return NULL;
}
#define BROKEN(rules) broken(rules, sizeof(rules) / sizeof((rules)[0]))

/* What is wrong with the options together; NULL: nothing. */
static const char *
contradiction(const struct options *options, const struct said *said)
{
	const struct sizes *sizes = &options->workload.sizes;
	bool is_short = sizes->kind == SIZES_FIXED && sizes->value_len < VALUE_CHECKED_MIN;
	const struct rule rules[] = {
		{!options->load && !options->run,
		 "nothing to do: give --load, --run, or both (or --trace, or --raw)"},
		{options->raw + options->idle + (options->trace_path != NULL) > 1,
		 "--raw, --idle and --trace exclude one another"},
		{said->workload && said->file, "--workload and -P exclude each other"},
		{said->cas && options->blind, "--cas and --blind exclude each other"},
		{options->verify && !options->trace_path && is_short,
		 "--verify needs a --value-size of 24 or more, for what tells values apart"},
		{options->rate > 0 && !options->run, "--rate is for --run"},
		{options->json_path && options->csv_path && strcmp(options->json_path, "-") == 0 &&
			 strcmp(options->csv_path, "-") == 0,
		 "only one of --json and --csv goes to standard output"},
	};
	return BROKEN(rules);
}

static const char *
raw_contradiction(const struct options *options, const struct said *said)
{
	const struct rule rules[] = {
		{options->raw && (options->load || options->verify || said->workload || said->file),
		 "--raw excludes --load, --workload, -P and --verify"},
		{options->raw && options->n_processes > 1,
		 "--raw excludes --processes: the memory is that of one"},
		{options->raw && options->workload.sizes.kind != SIZES_FIXED,
		 "--raw needs --sizes fixed"},
		{options->raw && options->workload.sizes.value_len == 0,
		 "--raw needs a --value-size of 1 or more"},
		{options->rdma_address && !(options->raw && options->fabric == RKV_FABRIC_VERBS),
		 "--rdma-address is for --raw with --fabric verbs"},
		{options->idle && options->verify, "--idle has no values to --verify"},
	};
	return BROKEN(rules);
}

static const char *
trace_contradiction(const struct options *options, const struct said *said)
{
	const struct rule rules[] = {
		{options->trace_path &&
			 (options->load || said->workload || said->file || said->records),
		 "--trace excludes --load, --workload, -P and --records"},
		{options->trace_path && options->n_warm_up > 0,
		 "--trace excludes --warm-up: it has no operation to spare"},
	};
	return BROKEN(rules);
}

/* What the environment says; NULL: nothing. */
static const char *
environment(const char *name)
{
	const char *text = getenv(name);
	return text && *text ? text : NULL;
}

static void
set_defaults(struct options *options)
{
	struct rkv_options library;
	const char *server = environment("RKV_SERVER");
	rkv_options_init(&library);
	*options = (struct options){
		.server = server ? server : "localhost:7440",
		.identity =
			{
				.tenant = environment("RKV_TENANT"),
				.secret_file = environment("RKV_SECRET_FILE"),
				.tls_ca = environment("RKV_TLS_CA"),
				.tls_cert = environment("RKV_TLS_CERT"),
				.tls_key = environment("RKV_TLS_KEY"),
			},
		.workload_name = "a",
		.workload =
			{
				.mix = *workload_find('a'),
				.choice = gen_choice(workload_find('a')->distribution),
				.sizes = {SIZES_FIXED, 1000},
				.n_digits = 1,
				.n_records = 1000,
				.n_operations = 1000,
				.seed = 1,
			},
		.n_threads = 1,
		.n_processes = 1,
		.depth = 1,
		.timeout_ms = library.op_timeout_ms,
		.cache_bytes = library.cache_bytes,
	};
}

/* The time an option is for. */
enum pass { PASS_FILES, PASS_PROPERTIES, PASS_OPTIONS, PASSES };

struct parse {
	struct options *options;
	struct properties properties;
	struct said said;
};

static enum pass
pass_of(int option)
{
	if (option == 'P' || option == OPTION_WORKLOAD)
		return PASS_FILES;
	return option == 'p' ? PASS_PROPERTIES : PASS_OPTIONS;
}

static int
apply_file(struct parse *parse, const char *path)
{
	if (!parse->said.file)
		properties_begin(parse->options);
	parse->said.file = true;
	return properties_file(&parse->properties, path, parse->options);
}

static int
apply_in_pass(struct parse *parse, enum pass pass, int option)
{
	if (option == '?')
		return OPTIONS_BAD; /* getopt has said what is wrong */
	if (pass_of(option) != pass)
		return OPTIONS_GO;
	if (option == 'P')
		return apply_file(parse, optarg);
	if (option == 'p')
		return properties_set(&parse->properties, optarg, parse->options);
	return apply(option, optarg, parse->options, &parse->said);
}

static int
go_through(struct parse *parse, enum pass pass, int argc, char **argv)
{
	struct option table[N_OPTIONS + 1];
	int option;
	make_table(table);
	optind = 0; /* from the beginning */
	while ((option = getopt_long(argc, argv, "P:p:", table, NULL)) != -1) {
		int code = apply_in_pass(parse, pass, option);
		if (code != OPTIONS_GO)
			return code;
	}
	if (optind < argc) {
		fprintf(stderr, "kv-bench: \"%s\" is not an option; see --help\n", argv[optind]);
		return OPTIONS_BAD;
	}
	return pass == PASS_PROPERTIES ? properties_finish(&parse->properties, parse->options)
				       : OPTIONS_GO;
}

/* What follows from the rest. */
static int
finish(struct options *options, const struct said *said)
{
	struct workload *workload = &options->workload;
	if (options->trace_path) {
		options->run = true;
		options->workload_name = options->trace_path;
		if (!said->operations)
			workload->n_operations = 0;
	}
	if (options->raw && options->fabric == RKV_FABRIC_AUTO)
		options->fabric = RKV_FABRIC_SHM;
	if (said->distribution >= 0)
		workload->choice.distribution = (enum gen_distribution)said->distribution;
	if (said->records || workload->next_insert == 0)
		workload->next_insert = workload->first + workload->n_records;
	const char *wrong = contradiction(options, said);
	if (wrong == NULL)
		wrong = raw_contradiction(options, said);
	if (wrong == NULL)
		wrong = trace_contradiction(options, said);
	if (wrong) {
		fprintf(stderr, "kv-bench: %s\n", wrong);
		return OPTIONS_BAD;
	}
	return OPTIONS_GO;
}

int
options_parse(int argc, char **argv, struct options *ret_options)
{
	struct parse parse = {.options = ret_options, .said = {.distribution = -1}};
	set_defaults(ret_options);
	properties_init(&parse.properties);
	for (enum pass pass = PASS_FILES; pass < PASSES; pass++) {
		int code = go_through(&parse, pass, argc, argv);
		if (code != OPTIONS_GO)
			return code;
	}
	return finish(ret_options, &parse.said);
}
