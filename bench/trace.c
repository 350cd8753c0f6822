/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The file is mapped, and each line parsed once into a row that points at its key; rows are in the
 * file's order. A thread goes through all rows and takes those whose key's hash is its own.
 */
#include "bench/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/generator.h"
#include "bench/shared.h"

#define VALUE_LEN_MAX (UINT64_C(1) << 30)
#define FIELDS 7

struct row {
	uint64_t hash; /* of the whole key */
	const char *key;
	uint32_t value_len;
	uint32_t ttl_s;
	uint8_t key_len; /* in the file */
	uint8_t key_size;
	uint8_t op;
};

struct trace {
	char *text;
	size_t text_len;
	struct row *rows;
	size_t n_rows;
	size_t n_allocated;
	uint64_t value_max;
};

/* ---- A line ---- */

struct field {
	const char *text;
	size_t len;
};

static const struct {
	const char *word;
	enum source_op op;
} words[] = {
	{"get", SOURCE_READ},   {"gets", SOURCE_READ},       {"set", SOURCE_UPDATE},
	{"add", SOURCE_ADD},    {"replace", SOURCE_REPLACE}, {"cas", SOURCE_RMW},
	{"append", SOURCE_RMW}, {"prepend", SOURCE_RMW},     {"incr", SOURCE_RMW},
	{"decr", SOURCE_RMW},   {"delete", SOURCE_DELETE},
};

/* Splits from the end: whatever a key has in it, commas too, it is what is left. */
static bool
split(const char *line, size_t len, struct field ret_fields[FIELDS])
{
	const char *end = line + len;
	const char *comma = memchr(line, ',', len);
	if (comma == NULL)
		return false;
	ret_fields[0] = (struct field){line, (size_t)(comma - line)};
	for (int i = FIELDS - 1; i > 1; i--) {
		const char *before = memrchr(comma + 1, ',', (size_t)(end - comma - 1));
		if (before == NULL)
			return false;
		ret_fields[i] = (struct field){before + 1, (size_t)(end - before - 1)};
		end = before;
	}
	ret_fields[1] = (struct field){comma + 1, (size_t)(end - comma - 1)};
	return true;
}

static bool
parse_number(const struct field *field, uint64_t max, uint64_t *ret_number)
{
	uint64_t number = 0;
	for (size_t i = 0; i < field->len; i++) {
		if (field->text[i] < '0' || field->text[i] > '9' || number > max)
			return false;
		number = number * 10 + (uint64_t)(field->text[i] - '0');
	}
	*ret_number = number;
	return field->len > 0 && number <= max;
}

static bool
parse_op(const struct field *field, uint8_t *ret_op)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strlen(words[i].word) == field->len &&
		    memcmp(words[i].word, field->text, field->len) == 0) {
			*ret_op = (uint8_t)words[i].op;
			return true;
		}
	}
	return false;
}

static uint64_t
hash_of(const struct field *key)
{
	uint64_t hash = key->len;
	for (size_t i = 0; i < key->len; i++)
		hash = gen_mix(hash ^ (unsigned char)key->text[i]);
	return hash;
}

/* What is wrong with a line; NULL: nothing. */
static const char *
parse_line(const char *line, size_t len, struct row *ret_row)
{
	struct field fields[FIELDS];
	uint64_t key_size;
	uint64_t value_len;
	uint64_t ttl_s;
	if (!split(line, len, fields))
		return "is not time, key, key size, value size, client, operation, TTL";
	if (fields[1].len < 1 || fields[1].len > SOURCE_KEY_MAX)
		return "has a key that is not 1 to 250 bytes long";
	if (!parse_number(&fields[2], SOURCE_KEY_MAX, &key_size) ||
	    !parse_number(&fields[3], VALUE_LEN_MAX, &value_len))
		return "has no sizes of key (to 250) and value (to 1 GiB)";
	if (!parse_op(&fields[5], &ret_row->op))
		return "has an operation that memcached does not have";
	if (!parse_number(&fields[6], UINT32_MAX, &ttl_s))
		return "has no TTL in seconds";
	ret_row->hash = hash_of(&fields[1]);
	ret_row->key = fields[1].text;
	ret_row->key_len = (uint8_t)fields[1].len;
	ret_row->key_size = (uint8_t)(key_size > fields[1].len ? key_size : fields[1].len);
	ret_row->value_len = (uint32_t)value_len;
	ret_row->ttl_s = (uint32_t)ttl_s;
	return NULL;
}

/* ---- The file ---- */

static bool
add_row(struct trace *trace, const struct row *row)
{
	if (trace->n_rows == trace->n_allocated) {
		size_t n = trace->n_allocated ? 2 * trace->n_allocated : 1024;
		struct row *rows = realloc(trace->rows, n * sizeof(*rows));
		if (rows == NULL)
			return false;
		trace->rows = rows;
		trace->n_allocated = n;
	}
	trace->rows[trace->n_rows++] = *row;
	if (row->value_len > trace->value_max)
		trace->value_max = row->value_len;
	return true;
}

static bool
parse(struct trace *trace, const char *path, uint64_t n_max, char reason[TRACE_REASON_MAX])
{
	const char *at = trace->text;
	const char *end = at + trace->text_len;
	for (uint64_t n = 1; at < end && (n_max == 0 || n <= n_max); n++) {
		struct row row;
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		size_t len = (size_t)((newline ? newline : end) - at);
		const char *wrong = parse_line(at, len - (len > 0 && at[len - 1] == '\r'), &row);
		if (wrong == NULL && !add_row(trace, &row))
			wrong = "is one too many: no memory";
		if (wrong) {
			snprintf(reason, TRACE_REASON_MAX, "%s: line %llu %s", path,
				 (unsigned long long)n, wrong);
			return false;
		}
		at += len + 1;
	}
	if (trace->n_rows == 0)
		snprintf(reason, TRACE_REASON_MAX, "%s: has no line", path);
	return trace->n_rows > 0;
}

static bool
map(struct trace *trace, const char *path, char reason[TRACE_REASON_MAX])
{
	struct stat status = {0};
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && fstat(fd, &status) == 0 && status.st_size > 0) {
		void *text = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (text != MAP_FAILED) {
			trace->text = text;
			trace->text_len = (size_t)status.st_size;
		}
	}
	if (trace->text == NULL)
		snprintf(reason, TRACE_REASON_MAX, "%s: %s", path,
			 errno ? strerror(errno) : "is empty");
	if (fd >= 0)
		close(fd);
	return trace->text != NULL;
}

struct trace *
trace_open(const char *path, uint64_t n_max, char reason[TRACE_REASON_MAX])
{
	struct trace *trace = calloc(1, sizeof(*trace));
	errno = 0;
	if (trace == NULL)
		snprintf(reason, TRACE_REASON_MAX, "%s: no memory", path);
	else if (map(trace, path, reason) && parse(trace, path, n_max, reason))
		return trace;
	trace_close(trace);
	return NULL;
}

void
trace_close(struct trace *trace)
{
	if (trace == NULL)
		return;
	if (trace->text)
		munmap(trace->text, trace->text_len);
	free(trace->rows);
	free(trace);
}

uint64_t
trace_n_operations(const struct trace *trace)
{
	return trace->n_rows;
}

uint64_t
trace_value_max(const struct trace *trace)
{
	return trace->value_max;
}

/* ---- Sources ---- */

struct trace_source {
	struct source source;
	const struct trace *trace;
	size_t next_row;
	uint32_t thread;
	uint32_t n_threads;
};

struct trace_sources {
	struct sources sources;
	size_t len;
	struct trace_source each[];
};

static void
fill_in(const struct row *row, struct source_task *task)
{
	task->op = (enum source_op)row->op;
	task->number = task->name = row->hash;
	task->value_len = row->value_len;
	task->ttl_s = row->ttl_s;
	task->key_len = row->key_size;
	memcpy(task->key, row->key, row->key_len);
	memset(task->key + row->key_len, '.', (size_t)(row->key_size - row->key_len));
}

static int
next(struct source *source, struct source_task *ret_task)
{
	struct trace_source *self = (struct trace_source *)source;
	while (self->next_row < self->trace->n_rows) {
		const struct row *row = &self->trace->rows[self->next_row++];
		if (row->hash % self->n_threads != self->thread)
			continue;
		fill_in(row, ret_task);
		return SOURCE_TASK;
	}
	return SOURCE_END;
}

static void
done(struct source *source, const struct source_task *task, bool ok)
{
	(void)source;
	(void)task;
	(void)ok;
}

static struct source *
source_of(struct sources *sources, uint32_t thread)
{
	return &((struct trace_sources *)sources)->each[thread].source;
}

static void
destroy(struct sources *sources)
{
	shared_free(sources, ((struct trace_sources *)sources)->len);
}

struct sources *
trace_sources(const struct trace *trace, uint32_t n_threads)
{
	struct trace_sources *all;
	size_t len = sizeof(*all) + n_threads * sizeof(all->each[0]);
	all = shared_alloc(len);
	if (all == NULL)
		return NULL;
	all->sources = (struct sources){trace->n_rows, source_of, destroy};
	all->len = len;
	for (uint32_t i = 0; i < n_threads; i++)
		all->each[i] = (struct trace_source){
			.source = {next, done},
			.trace = trace,
			.thread = i,
			.n_threads = n_threads,
		};
	return &all->sources;
}
