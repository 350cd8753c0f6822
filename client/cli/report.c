/* SPDX-License-Identifier: BSD-2-Clause */
/* See report.h. */
#include "client/cli/report.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>

#include "client/include/rkv.h"

#define PROGRAM "kv-cli"
#define HELP_HINT "; see " PROGRAM " --help"

static const char *const exit_meanings[] = {
	[REPORT_DONE] = "done",
	[REPORT_OUTCOME] = "the key is absent (get, replace, cas, del, touch), is there (add),\n"
			   "     is there in another version (cas), or something is corrupt (fsck)",
	[REPORT_USAGE] = "wrong command line, or a key, value or time outside the limits",
	[REPORT_UNREACHED] = "the server was not reached or did not answer in time;\n"
			     "     nothing was changed",
	[REPORT_MAYBE] = "as 3, but the change may have been applied: look before trying again",
	[REPORT_FULL] = "no room: the pool or the index is full, or memory still rests",
	[REPORT_OTHER] = "anything else: versions that do not fit, a local file, memory;\n"
			 "     the sentence says so if the change was applied",
};

/* What a code of the library means for a script; REPORT_OTHER for those that are not here. */
static const struct verdict {
	int code;
	enum report_exit exit_code;
} verdicts[] = {
	{RKV_OK, REPORT_DONE},
	{RKV_NOT_FOUND, REPORT_OUTCOME},
	{RKV_EXISTS, REPORT_OUTCOME},
	{RKV_MISMATCH, REPORT_OUTCOME},
	{RKV_AGAIN, REPORT_FULL}, /* kv-cli has one operation in flight: it is memory that rests */
	{RKV_E_TIMEOUT, REPORT_UNREACHED},
	{RKV_E_MAYBE, REPORT_MAYBE},
	{RKV_E_NO_SPACE, REPORT_FULL},
	{RKV_E_INDEX_FULL, REPORT_FULL},
	{RKV_E_TOO_BIG, REPORT_USAGE},
	{RKV_E_INVALID, REPORT_USAGE},
	{RKV_E_CONN, REPORT_UNREACHED},
};

/* The library's threads log; the lock keeps the line whole. */
static pthread_mutex_t last_line_lock = PTHREAD_MUTEX_INITIALIZER;
static char last_line[512];

void
report_exit_codes(FILE *out)
{
	for (size_t i = 0; i < sizeof(exit_meanings) / sizeof(exit_meanings[0]); i++)
		fprintf(out, "  %zu  %s\n", i, exit_meanings[i]);
}

void
report_log(void *arg, int level, const char *line)
{
	(void)arg;
	(void)level;
	pthread_mutex_lock(&last_line_lock);
	snprintf(last_line, sizeof(last_line), "%s", line);
	pthread_mutex_unlock(&last_line_lock);
}

static void print_sentence(const char *format, va_list arguments, const char *hint)
	__attribute__((format(printf, 1, 0)));

static void
print_sentence(const char *format, va_list arguments, const char *hint)
{
	fputs(PROGRAM ": ", stderr);
	vfprintf(stderr, format, arguments);
	fprintf(stderr, "%s\n", hint);
}

int
report_usage(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	print_sentence(format, arguments, HELP_HINT);
	va_end(arguments);
	return REPORT_USAGE;
}

int
report_limit(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	print_sentence(format, arguments, "; " PROGRAM " limits tells what fits");
	va_end(arguments);
	return REPORT_USAGE;
}

int
report_system(const char *verb, const char *name, const char *hint)
{
	fprintf(stderr, PROGRAM ": cannot %s %s: %s; %s\n", verb, name, strerror(errno), hint);
	return REPORT_OTHER;
}

int
report_server(const char *command, const char *sentence)
{
	fprintf(stderr, PROGRAM ": %s: %s\n", command, sentence);
	return REPORT_OTHER;
}

static enum report_exit
exit_code_of(int code, int is_mutation)
{
	if (code == RKV_E_TIMEOUT && is_mutation) /* as rkv.h says, its effect is open */
		return REPORT_MAYBE;
	for (size_t i = 0; i < sizeof(verdicts) / sizeof(verdicts[0]); i++) {
		if (verdicts[i].code == code)
			return verdicts[i].exit_code;
	}
	return REPORT_OTHER;
}

/* The library's words for a timeout are about mutations, whose effect it leaves open. */
static const char *
meaning_of(int code, int is_mutation)
{
	if (code == RKV_E_TIMEOUT && !is_mutation)
		return "TIMEOUT: the deadline passed; nothing was changed, so it may be retried";
	return rkv_strerror(code);
}

int
report_status(const char *command, int code, int is_mutation)
{
	enum report_exit exit_code = exit_code_of(code, is_mutation);

	if (code == RKV_OK)
		return exit_code;
	fprintf(stderr, PROGRAM ": %s: %s", command, meaning_of(code, is_mutation));
	if (code < 0) {
		pthread_mutex_lock(&last_line_lock);
		if (*last_line)
			fprintf(stderr, " (%s)", last_line);
		pthread_mutex_unlock(&last_line_lock);
	}
	fputs(exit_code == REPORT_USAGE ? HELP_HINT "\n" : "\n", stderr);
	return exit_code;
}
