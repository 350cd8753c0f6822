/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Log lines go to one sink: a callback (the library) or standard error (the programs). Who decides
 * about an error logs it, once. Any thread.
 */
#ifndef RKV_COMMON_LOG_H
#define RKV_COMMON_LOG_H

enum log_level { LOG_ERROR = 0, LOG_WARN = 1, LOG_INFO = 2, LOG_DEBUG = 3 };

typedef void (*log_sink_fn)(void *arg, int level, const char *line);

/* A place to log to; sink NULL = silent. Lines above max_level are dropped. */
struct log {
	log_sink_fn sink;
	void *arg;
	int max_level;
};

/* Writes "kv-server: error: ..." lines to standard error; arg is the program's name. */
void log_to_stderr(void *arg, int level, const char *line);

void log_line(const struct log *log, enum log_level level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
