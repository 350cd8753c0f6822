/* SPDX-License-Identifier: BSD-2-Clause */
/* See fuzz.h. */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

char *
fuzz_line(struct fuzz_input *in)
{
	if (in->len == 0)
		return NULL;
	const uint8_t *newline = memchr(in->at, '\n', in->len);
	size_t len = newline ? (size_t)(newline - in->at) : in->len;
	char *line = malloc(len + 1);
	fuzz_must(line);
	fuzz_take(in, line, len);
	line[len] = '\0';
	if (newline)
		fuzz_byte(in);
	return line;
}

void *
fuzz_copy(const void *bytes, size_t len)
{
	void *copy = malloc(len ? len : 1);
	fuzz_must(copy);
	if (len)
		memcpy(copy, bytes, len);
	return copy;
}

const char *
fuzz_file(const void *bytes, size_t len)
{
	static int fd = -1;
	static char path[64];
	if (fd < 0) {
		fd = memfd_create("fuzz", MFD_CLOEXEC);
		fuzz_must(fd >= 0 && fchmod(fd, 0600) == 0);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	}
	fuzz_must(ftruncate(fd, 0) == 0);
	for (size_t done = 0; done < len;) {
		ssize_t n = pwrite(fd, (const char *)bytes + done, len - done, (off_t)done);
		fuzz_must(n > 0);
		done += (size_t)n;
	}
	return path;
}

static void
drop_line(void *arg, int level, const char *line)
{
	(void)arg;
	(void)level;
	fuzz_must(line[0] != '\0');
}

const struct log fuzz_log = {.sink = drop_line, .max_level = LOG_DEBUG};
