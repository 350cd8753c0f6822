/* SPDX-License-Identifier: BSD-2-Clause */
/* Formats log lines; each leaves in one piece, so that lines of several threads never mix. */
#include "common/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define LOG_LINE_MAX 1024 /* bytes; a longer line is cut */

void
log_to_stderr(void *arg, int level, const char *line)
{
	static const char *const names[] = {"error", "warning", "info", "debug"};
	char text[LOG_LINE_MAX + 64];
	const char *name = level >= LOG_ERROR && level <= LOG_DEBUG ? names[level] : "note";
	int len = snprintf(text, sizeof(text), "%s: %s: %s\n", (const char *)arg, name, line);
	if (len >= (int)sizeof(text)) {
		len = sizeof(text) - 1;
		text[len - 1] = '\n';
	}
	/* One write: nothing can be done if standard error takes less. */
	if (len > 0 && write(STDERR_FILENO, text, (size_t)len) < 0)
		return;
}

void
log_line(const struct log *log, enum log_level level, const char *format, ...)
{
	if (!log || !log->sink || (int)level > log->max_level)
		return;
	char line[LOG_LINE_MAX];
	va_list args;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	log->sink(log->arg, level, line);
}
