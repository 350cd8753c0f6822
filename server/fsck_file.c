/* SPDX-License-Identifier: BSD-2-Clause */
/* fsck of a file: fsck_file.h. */
#include "server/fsck_file.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#include "common/err.h"
#include "common/pool_file.h"
#include "server/fsck.h"

struct file {
	struct pool_file pool;
	bool is_open;
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

/* Takes the server's lock: no server begins with it meanwhile, and none has it. */
static int
open_file(struct file *file, const char *path, char *reason)
{
	char why[POOL_FILE_REASON_MAX];
	pid_t pid;
	int rc = pool_file_open(path, false, &file->pool, why);
	if (rc)
		return fail(reason, rc, "%.*s", (int)NET_REASON_MAX - 1, why);
	file->is_open = true;
	if (!pool_file_is_mapped(&file->pool, &pid))
		return 0;
	return fail(reason, ERR_CONN,
		    "%.300s is still mapped by process %d, a client of an earlier server: end that "
		    "first",
		    path, (int)pid);
}

static int
map_region(struct file *file, char *reason)
{
	if (file->pool.len < sizeof(struct layout_superblock))
		return fail(reason, ERR_INVALID, "%.300s is too short to hold a pool",
			    file->pool.path);
	file->base = mmap(NULL, file->pool.len, PROT_READ, MAP_PRIVATE, file->pool.fd, 0);
	if (file->base == MAP_FAILED) {
		file->base = NULL;
		return fail(reason, ERR_NOMEM, "%.300s cannot be mapped: %s", file->pool.path,
			    strerror(errno));
	}
	const char *wrong = layout_from_superblock(&file->layout, (const void *)file->base);
	if (wrong)
		return fail(reason, ERR_INVALID, "%.300s: %s", file->pool.path, wrong);
	if (file->layout.region_len > file->pool.len)
		return fail(reason, ERR_INVALID,
			    "%.300s ends before its region: %llu bytes of %llu are there",
			    file->pool.path, (unsigned long long)file->pool.len,
			    (unsigned long long)file->layout.region_len);
	(void)madvise(file->base, file->pool.len, MADV_WILLNEED);
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
	struct file file = {0};
	int rc = open_file(&file, path, ret_reason);
	if (rc == 0)
		rc = map_region(&file, ret_reason);
	if (rc == 0)
		rc = look(&file, out, ret_reason);
	if (file.base)
		munmap(file.base, file.pool.len);
	if (file.is_open)
		pool_file_close(&file.pool);
	return rc;
}
