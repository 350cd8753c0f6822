/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How kv-cli says that something went wrong: one sentence on standard error, with the cause and
 * what to do, and an exit code that scripts can tell apart. The library's log lines are kept here,
 * because the last one is the cause of the failure that follows it.
 */
#ifndef RKV_CLIENT_CLI_REPORT_H
#define RKV_CLIENT_CLI_REPORT_H

#include <stdio.h>

/* Exit codes; never renumbered, scripts depend on them. */
enum report_exit {
	REPORT_DONE = 0,
	REPORT_OUTCOME = 1,   /* absent, there already, another version; corrupt */
	REPORT_USAGE = 2,     /* the command line, or a key or value outside the limits */
	REPORT_UNREACHED = 3, /* no answer; nothing was changed */
	REPORT_MAYBE = 4,     /* no answer; the change may have been applied */
	REPORT_FULL = 5,
	REPORT_OTHER = 6
};

/* The table of exit codes, for --help. */
void report_exit_codes(FILE *out);

/* The library's log callback (rkv_log_fn); arg is not used. */
void report_log(void *arg, int level, const char *line);

/* A wrong command line. Returns REPORT_USAGE. */
int report_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A key, value or time that the server has no room for. Returns REPORT_USAGE. */
int report_limit(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * A local file, pipe or memory that failed, as errno says: "cannot read FILE". hint tells what to
 * do, or what it means for the command. Returns REPORT_OTHER.
 */
int report_system(const char *verb, const char *name, const char *hint);

/* What the server said of a failure of this command. Returns REPORT_OTHER. */
int report_server(const char *command, const char *sentence);

#define REPORT_NO_MEMORY "free memory, or raise the limit of this process (ulimit -v)"

/*
 * What a call of the library returned: nothing is printed for RKV_OK. A timeout of a command that
 * changes something leaves open whether it did. Returns the exit code.
 */
int report_status(const char *command, int code, int is_mutation);

#endif
