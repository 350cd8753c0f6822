/* SPDX-License-Identifier: BSD-2-Clause */
/* fsck of a file: fsck_file.h. */
#include "server/fsck_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/err.h"
#include "server/fsck.h"

struct file {
	const char *path;
	int fd;
	size_t len;
	char *base;
	struct layout layout;
};

static int __attribute__((format(printf, 3, 4))) fail(char *reason, int rc, const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	vsnprintf(reason, NET_REASON_MAX, format, ap);
	va_end(ap);
	return rc;
}

static int
open_file(struct file *file, char *reason)
{
	struct stat status;
	file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (file->fd < 0 || fstat(file->fd, &status))
		return fail(reason, ERR_CONN, "%.300s cannot be read: %s", file->path,
			    strerror(errno));
	if (!S_ISREG(status.st_mode))
		return fail(reason, ERR_INVALID, "%.300s is not a file that holds a pool",
			    file->path);
	if (flock(file->fd, LOCK_SH | LOCK_NB))
		return fail(reason, ERR_PERM,
			    "%.300s is in use by a server: ask that (kv-cli fsck), or end it first",
			    file->path);
	file->len = (size_t)status.st_size;
	return 0;
}

static int
map_region(struct file *file, char *reason)
{
	if (file->len < sizeof(struct layout_superblock))
		return fail(reason, ERR_INVALID, "%.300s is too short to hold a pool", file->path);
	file->base = mmap(NULL, file->len, PROT_READ, MAP_PRIVATE, file->fd, 0);
	if (file->base == MAP_FAILED) {
		file->base = NULL;
		return fail(reason, ERR_NOMEM, "%.300s cannot be mapped: %s", file->path,
			    strerror(errno));
	}
	const char *wrong = layout_from_superblock(&file->layout, (const void *)file->base);
	if (wrong)
		return fail(reason, ERR_INVALID, "%.300s: %s", file->path, wrong);
	if (file->layout.region_len > file->len)
		return fail(reason, ERR_INVALID,
			    "%.300s ends before its region: %zu bytes of %llu are there",
			    file->path, file->len, (unsigned long long)file->layout.region_len);
	(void)madvise(file->base, file->len, MADV_WILLNEED);
	return 0;
}

static const void *
at(void *arg, uint64_t off, uint64_t len)
{
	(void)len;
	return ((const struct file *)arg)->base + off;
}

static int
look(struct file *file, FILE *out, char *reason)
{
	static const struct reach_calls calls = {.at = at};
	const struct reach reach = {.layout = &file->layout, .calls = &calls, .arg = file};
	char text[FSCK_TEXT_MAX];
	struct fsck fsck;
	int rc = fsck_begin(&fsck, &reach);
	if (rc)
		return fail(reason, rc, "no memory is left");
	while (!fsck_step(&fsck, UINT64_MAX))
		;
	fsck_text(&fsck, text);
	fputs(text, out);
	rc = fsck_is_clean(&fsck) ? 0 : FSCK_FILE_CORRUPT;
	fsck_end(&fsck);
	return rc;
}

int
fsck_file(const char *path, FILE *out, char ret_reason[NET_REASON_MAX])
{
	struct file file = {.path = path, .fd = -1};
	int rc = open_file(&file, ret_reason);
	if (rc == 0)
		rc = map_region(&file, ret_reason);
	if (rc == 0)
		rc = look(&file, out, ret_reason);
	if (file.base)
		munmap(file.base, file.len);
	if (file.fd >= 0)
		close(file.fd);
	return rc;
}
