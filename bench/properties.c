/* SPDX-License-Identifier: BSD-2-Clause */
/* A table of names; each entry says what takes the value. */
#include "bench/properties.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is being set, and where from. */
struct setting {
	struct properties *properties;
	struct options *options;
	const char *name;
	const char *value;
	size_t offset; /* the entry's, in options or properties */
};

/* ---- Kinds of values ---- */

static int
set_number(const struct setting *setting, void *base, uint64_t min, uint64_t max)
{
	uint64_t *number = (uint64_t *)(void *)((char *)base + setting->offset);
	return options_number(setting->name, min, max, setting->value, number);
}

static int
set_count(const struct setting *setting)
{
	return set_number(setting, setting->options, 1, OPTIONS_COUNT_MAX);
}

static int
set_threads(const struct setting *setting)
{
	return set_number(setting, setting->options, 1, 1024);
}

static int
set_count_or_zero(const struct setting *setting)
{
	return set_number(setting, setting->options, 0, OPTIONS_COUNT_MAX);
}

static int
set_later(const struct setting *setting)
{
	return set_number(setting, setting->properties, 0, OPTIONS_COUNT_MAX);
}

static int
set_digits(const struct setting *setting)
{
	uint64_t n_digits;
	int code = options_number(setting->name, 1, GEN_DIGITS_MAX, setting->value, &n_digits);
	if (code == OPTIONS_GO)
		setting->options->workload.n_digits = (uint32_t)n_digits;
	return code;
}

static int
real(const struct setting *setting, double min, double max, double *ret_value)
{
	char *end;
	double value = strtod(setting->value, &end);
	if (end == setting->value || *end != '\0' || !(value >= min && value <= max)) {
		fprintf(stderr, "kv-bench: %s takes a number from %g to %g, not \"%s\"\n",
			setting->name, min, max, setting->value);
		return OPTIONS_BAD;
	}
	*ret_value = value;
	return OPTIONS_GO;
}

static double *
real_of(const struct setting *setting)
{
	return (double *)(void *)((char *)setting->options + setting->offset);
}

/* The shares are relative to one another, as in YCSB. */
static int
set_share(const struct setting *setting)
{
	return real(setting, 0, 1e6, real_of(setting));
}

static int
set_fraction(const struct setting *setting)
{
	return real(setting, 0, 1, real_of(setting));
}

static int
set_percentile(const struct setting *setting)
{
	return real(setting, 0.001, 99.999, real_of(setting));
}

/* ---- Words ---- */

static int
set_distribution(const struct setting *setting)
{
	int index;
	int code = options_word(setting->name, options_distributions, GEN_DISTRIBUTIONS,
				setting->value, &index);
	if (code == OPTIONS_GO)
		setting->options->workload.choice.distribution = (enum gen_distribution)index;
	return code;
}

static int
set_order(const struct setting *setting)
{
	static const char *const orders[] = {"hashed", "ordered"};
	int index;
	int code = options_word(setting->name, orders, 2, setting->value, &index);
	if (code == OPTIONS_GO)
		setting->options->workload.is_ordered = index == 1;
	return code;
}

static int
set_verify(const struct setting *setting)
{
	static const char *const words[] = {"false", "true"};
	int index;
	int code = options_word(setting->name, words, 2, setting->value, &index);
	if (code == OPTIONS_GO)
		setting->options->verify = index == 1;
	return code;
}

static int
refuse(const struct setting *setting, const char *reason)
{
	fprintf(stderr, "kv-bench: %s=%s: %s\n", setting->name, setting->value, reason);
	return OPTIONS_BAD;
}

static int
set_scans(const struct setting *setting)
{
	double share;
	int code = real(setting, 0, 1e6, &share);
	if (code == OPTIONS_GO && share > 0)
		return refuse(setting, "an rkv index is a hash table, in which keys have no order "
				       "to scan");
	return code;
}

static int
set_field_lengths(const struct setting *setting)
{
	if (strcmp(setting->value, "constant") != 0)
		return refuse(setting, "all values of a YCSB workload have one length here; "
				       "--sizes etc has others");
	return OPTIONS_GO;
}

/* The class: old and new package names. */
static int
set_class(const struct setting *setting)
{
	const char *dot = strrchr(setting->value, '.');
	if (strcmp(dot ? dot + 1 : setting->value, "CoreWorkload") != 0)
		return refuse(setting, "only YCSB's CoreWorkload is known");
	return OPTIONS_GO;
}

/* "target": operations a second, or none if it is not above 0. */
static int
set_rate(const struct setting *setting)
{
	if (strcmp(setting->value, "-1") == 0)
		return OPTIONS_GO;
	return set_number(setting, setting->options, 0, 1000000000);
}

static int
set_nothing(const struct setting *setting)
{
	(void)setting;
	return OPTIONS_GO;
}

/* ---- The table ---- */

#define IN_OPTIONS(field) offsetof(struct options, field)
#define LATER(field) offsetof(struct properties, field)
#define SHARE(op) offsetof(struct options, workload.mix.shares[op])

static const struct property {
	const char *name;
	int (*set)(const struct setting *setting);
	size_t offset;
} table[] = {
	{"recordcount", set_later, LATER(record_count)},
	{"insertcount", set_later, LATER(insert_count)},
	{"fieldcount", set_later, LATER(field_count)},
	{"fieldlength", set_later, LATER(field_len)},
	{"insertstart", set_count_or_zero, IN_OPTIONS(workload.first)},
	{"operationcount", set_count, IN_OPTIONS(workload.n_operations)},
	{"threadcount", set_threads, IN_OPTIONS(n_threads)},
	{"target", set_rate, IN_OPTIONS(rate)},
	{"maxexecutiontime", set_count_or_zero, IN_OPTIONS(time_max_s)},
	{"readproportion", set_share, SHARE(SOURCE_READ)},
	{"updateproportion", set_share, SHARE(SOURCE_UPDATE)},
	{"insertproportion", set_share, SHARE(SOURCE_INSERT)},
	{"readmodifywriteproportion", set_share, SHARE(SOURCE_RMW)},
	{"deleteproportion", set_share, SHARE(SOURCE_DELETE)},
	{"scanproportion", set_scans, 0},
	{"requestdistribution", set_distribution, 0},
	{"hotspotdatafraction", set_fraction, IN_OPTIONS(workload.choice.hot_keys)},
	{"hotspotopnfraction", set_fraction, IN_OPTIONS(workload.choice.hot_operations)},
	{"exponential.percentile", set_percentile,
	 IN_OPTIONS(workload.choice.exponential_percentile)},
	{"exponential.frac", set_fraction, IN_OPTIONS(workload.choice.exponential_share)},
	{"insertorder", set_order, 0},
	{"zeropadding", set_digits, 0},
	{"dataintegrity", set_verify, 0},
	{"fieldlengthdistribution", set_field_lengths, 0},
	{"workload", set_class, 0},
	/* Fields are one value here, which is read and written whole. */
	{"readallfields", set_nothing, 0},
	{"readallfieldsbyname", set_nothing, 0},
	{"writeallfields", set_nothing, 0},
	{"fieldnameprefix", set_nothing, 0},
	{"table", set_nothing, 0},
	/* Of scans, of which there are none. */
	{"minscanlength", set_nothing, 0},
	{"maxscanlength", set_nothing, 0},
	{"scanlengthdistribution", set_nothing, 0},
	/* How YCSB itself measures and retries. */
	{"measurementtype", set_nothing, 0},
	{"measurement.interval", set_nothing, 0},
	{"histogram.buckets", set_nothing, 0},
	{"hdrhistogram.percentiles", set_nothing, 0},
	{"timeseries.granularity", set_nothing, 0},
	{"core_workload_insertion_retry_limit", set_nothing, 0},
	{"core_workload_insertion_retry_interval", set_nothing, 0},
};

enum { UNKNOWN = 2 };

static int
apply(struct properties *properties, const char *name, const char *value, struct options *options)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (strcmp(table[i].name, name) != 0)
			continue;
		properties->any = true;
		return table[i].set(
			&(struct setting){properties, options, name, value, table[i].offset});
	}
	return UNKNOWN;
}

/* ---- Text ---- */

static char *
trimmed(char *text)
{
	char *end = text + strlen(text);
	while (end > text && isspace((unsigned char)end[-1]))
		*--end = '\0';
	return text + strspn(text, " \t\f\r\n");
}

/* Splits "name = value", "name: value" or "name value". False: there is no name. */
static bool
split(char *line, const char **ret_name, const char **ret_value)
{
	char *name = trimmed(line);
	char *end = name + strcspn(name, "=: \t");
	char *value = end + strspn(end, " \t");
	if (*value == '=' || *value == ':')
		value++;
	value += strspn(value, " \t");
	*end = '\0';
	*ret_name = name;
	*ret_value = value;
	return *name != '\0';
}

int
properties_set(struct properties *properties, const char *text, struct options *options)
{
	char line[512];
	const char *name;
	const char *value;
	int code = UNKNOWN;
	if (strlen(text) < sizeof(line) && strchr(text, '=') != NULL) {
		strcpy(line, text);
		if (split(line, &name, &value))
			code = apply(properties, name, value, options);
	}
	if (code != UNKNOWN)
		return code;
	fprintf(stderr,
		"kv-bench: -p takes a property of YCSB's core workload, as name=value, not "
		"\"%s\"\n",
		text);
	return OPTIONS_BAD;
}

static int
read_line(struct properties *properties, const char *path, char *line, struct options *options)
{
	const char *name;
	const char *value;
	char *text = trimmed(line);
	if (*text == '#' || *text == '!' || !split(text, &name, &value))
		return OPTIONS_GO;
	int code = apply(properties, name, value, options);
	if (code == UNKNOWN) {
		fprintf(stderr, "kv-bench: %s: %s is no property of the core workload: ignored\n",
			path, name);
		code = OPTIONS_GO;
	}
	return code;
}

int
properties_file(struct properties *properties, const char *path, struct options *options)
{
	char line[512];
	int code = OPTIONS_GO;
	FILE *file = fopen(path, "re");
	if (file == NULL) {
		fprintf(stderr, "kv-bench: -P %s: %s\n", path, strerror(errno));
		return OPTIONS_BAD;
	}
	while (code == OPTIONS_GO && fgets(line, sizeof(line), file))
		code = read_line(properties, path, line, options);
	if (ferror(file)) {
		fprintf(stderr, "kv-bench: -P %s: it cannot be read\n", path);
		code = OPTIONS_BAD;
	}
	fclose(file);
	options->workload_name = path;
	return code;
}

/* ---- All together ---- */

void
properties_init(struct properties *properties)
{
	*properties = (struct properties){.field_count = 10, .field_len = 100};
}

void
properties_begin(struct options *options)
{
	struct workload *workload = &options->workload;
	workload->mix = (struct workload_mix){
		.letter = '-',
		.shares = {[SOURCE_READ] = 0.95, [SOURCE_UPDATE] = 0.05},
		.distribution = GEN_UNIFORM,
	};
	workload->choice.distribution = GEN_UNIFORM;
}

static int
finish_shares(struct workload_mix *mix)
{
	double sum = 0;
	for (int op = 0; op < SOURCE_OPS; op++)
		sum += mix->shares[op];
	if (sum == 0) {
		fprintf(stderr,
			"kv-bench: the properties leave no operation to do: all proportions "
			"are 0\n");
		return OPTIONS_BAD;
	}
	for (int op = 0; op < SOURCE_OPS; op++)
		mix->shares[op] /= sum;
	return OPTIONS_GO;
}

/* A process of several may have a part of the records: insertstart and insertcount say which. */
static int
finish_records(const struct properties *properties, struct workload *workload)
{
	uint64_t n = properties->record_count;
	uint64_t n_inserts = properties->insert_count;
	if (n == 0)
		return OPTIONS_GO;
	if (n_inserts == 0 && n > workload->first)
		n_inserts = n - workload->first;
	if (n_inserts == 0 || workload->first + n_inserts > n) {
		fprintf(stderr, "kv-bench: insertstart and insertcount go beyond recordcount\n");
		return OPTIONS_BAD;
	}
	workload->n_records = n_inserts;
	workload->next_insert = n;
	return OPTIONS_GO;
}

int
properties_finish(struct properties *properties, struct options *options)
{
	uint64_t n_fields = properties->field_count;
	uint64_t len = properties->field_len;
	if (!properties->any)
		return OPTIONS_GO;
	if (n_fields > OPTIONS_VALUE_MAX || len > OPTIONS_VALUE_MAX ||
	    n_fields * len > OPTIONS_VALUE_MAX) {
		fprintf(stderr, "kv-bench: fieldcount fields of fieldlength bytes are too long\n");
		return OPTIONS_BAD;
	}
	options->workload.sizes.value_len = n_fields * len;
	if (options->workload.mix.letter != '-') {
		options->workload.mix.letter = '-';
		options->workload_name = "of -p";
	}
	if (finish_shares(&options->workload.mix) != OPTIONS_GO)
		return OPTIONS_BAD;
	return finish_records(properties, &options->workload);
}
