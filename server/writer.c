/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A file, written whole or not at all: writer.h.
 *
 *   buffers:  filling -> flying -> (all written) free again
 *   finish:   last buffer flying -> none flies -> fsync -> rename -> fsync of the directory -> done
 *   failure:  none flies -> the temporary file is removed -> done
 */
#include "server/writer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/err.h"

#define TEMPORARY ".kv-server.part"

static void fly(struct writer_buffer *b);
static void move_on(struct writer *w);

/* ---- Failing ---- */

static void __attribute__((format(printf, 2, 3))) fail(struct writer *w, const char *format, ...)
{
	va_list ap;
	if (w->failed)
		return;
	w->failed = true;
	va_start(ap, format);
	vsnprintf(w->reason, sizeof(w->reason), format, ap);
	va_end(ap);
}

static const char *
remedy(int error)
{
	switch (error) {
	case ENOSPC:
	case EDQUOT:
		return "make room on the disk of --snapshot-dir";
	case EFBIG:
		return "raise the limit of file sizes (ulimit -f, LimitFSIZE= in a systemd unit)";
	case EACCES:
	case EPERM:
	case EROFS:
		return "let the server's user write into --snapshot-dir (ReadWritePaths= in a "
		       "systemd unit)";
	default:
		return "look at the disk of --snapshot-dir";
	}
}

static void
fail_errno(struct writer *w, const char *what, int error)
{
	if (error == ECANCELED)
		fail(w, "the server stops; what the name stood for before is kept");
	else
		fail(w, "%s: %s: %s; what the name stood for before is kept", what, strerror(error),
		     remedy(error));
}

/* ---- Opening ---- */

static int
cannot(char *reason, const char *what, int error)
{
	snprintf(reason, LIMIT_REASON_MAX, "%s: %s: %s", what, strerror(error), remedy(error));
	return err_from_errno(error);
}

/* One writer in a directory; a file system without locks goes without. */
static int
lock(struct writer *w, char *reason)
{
	w->lock_fd = openat(w->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (w->lock_fd < 0)
		return cannot(reason, "the directory of snapshots cannot be opened", errno);
	if (flock(w->lock_fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
		return 0;
	snprintf(reason, LIMIT_REASON_MAX,
		 "another kv-server writes a snapshot into this directory now: try again later, or "
		 "give each server a --snapshot-dir of its own");
	return ERR_PERM;
}

static void
say_buffered(const struct writer *w)
{
	log_line(w->log, LOG_INFO,
		 "the file system of --snapshot-dir takes no direct I/O: snapshots go through the "
		 "page cache");
}

static int
create(struct writer *w, char *reason)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
	(void)unlinkat(w->dir_fd, TEMPORARY, 0);
	w->fd = openat(w->dir_fd, TEMPORARY, flags | O_DIRECT, 0640);
	w->direct = w->fd >= 0;
	if (!w->direct && errno == EINVAL) {
		say_buffered(w);
		(void)unlinkat(w->dir_fd, TEMPORARY, 0); /* some made it all the same */
		w->fd = openat(w->dir_fd, TEMPORARY, flags, 0640);
	}
	if (w->fd < 0)
		return cannot(reason, "a file in the directory of snapshots cannot be created",
			      errno);
	return 0;
}

static int
map_buffers(struct writer *w, char *reason)
{
	w->memory = mmap(NULL, WRITER_BUFFERS * WRITER_BUFFER_LEN, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (w->memory == MAP_FAILED) {
		w->memory = NULL;
		return cannot(reason, "no memory is left for the buffers of a snapshot", errno);
	}
	for (unsigned i = 0; i < WRITER_BUFFERS; i++)
		w->buffer[i] = (struct writer_buffer){
			.writer = w,
			.bytes = w->memory + i * WRITER_BUFFER_LEN,
		};
	return 0;
}

int
writer_open(struct writer *w, const char *name, char ret_reason[LIMIT_REASON_MAX])
{
	assert(!w->busy);
	w->busy = true;
	w->fd = w->lock_fd = -1;
	w->failed = w->finishing = w->wants_room = false;
	w->filling = w->n_flying = 0;
	w->off = 0;
	snprintf(w->name, sizeof(w->name), "%s", name);
	int rc = lock(w, ret_reason);
	if (rc == 0)
		rc = map_buffers(w, ret_reason);
	if (rc == 0)
		rc = create(w, ret_reason);
	if (rc)
		writer_release(w);
	return rc;
}

void
writer_release(struct writer *w)
{
	if (!w->busy)
		return;
	if (w->fd >= 0) {
		close(w->fd);
		(void)unlinkat(w->dir_fd, TEMPORARY, 0); /* not there any more if it was renamed */
	}
	if (w->lock_fd >= 0)
		close(w->lock_fd);
	if (w->memory)
		munmap(w->memory, WRITER_BUFFERS * WRITER_BUFFER_LEN);
	w->memory = NULL;
	w->busy = false;
}

/* ---- Buffers ---- */

/* The file system took O_DIRECT, and does not take it after all. */
static bool
go_without_direct(struct writer *w, int result)
{
	if (result != -EINVAL || !w->direct || fcntl(w->fd, F_SETFL, 0))
		return false;
	w->direct = false;
	say_buffered(w);
	return true;
}

static void
flown(struct loop_op *op, int result)
{
	struct writer_buffer *b = (void *)((char *)op - offsetof(struct writer_buffer, op));
	struct writer *w = b->writer;
	w->n_flying--;
	if (result > 0)
		b->written += (size_t)result;
	else if (result == 0)
		fail_errno(w, "the snapshot cannot be written", EIO);
	else if (result != -EINTR && result != -EAGAIN && !go_without_direct(w, result))
		fail_errno(w, "the snapshot cannot be written", -result);
	if (b->written < b->len && !w->failed) {
		fly(b);
		return;
	}
	b->len = b->written = 0;
	move_on(w);
}

static void
fly(struct writer_buffer *b)
{
	struct writer *w = b->writer;
	w->n_flying++;
	loop_write(w->loop, &b->op, w->fd, b->bytes + b->written, b->len - b->written,
		   b->off + b->written, flown);
}

static void
launch(struct writer *w)
{
	struct writer_buffer *b = &w->buffer[w->filling];
	b->off = w->off;
	w->off += b->len;
	w->filling = (w->filling + 1) % WRITER_BUFFERS;
	fly(b);
}

size_t
writer_append(struct writer *w, const void *bytes, size_t len)
{
	size_t taken = 0;
	while (taken < len && !w->failed) {
		struct writer_buffer *b = &w->buffer[w->filling];
		if (!loop_is_idle(&b->op))
			break;
		size_t n = WRITER_BUFFER_LEN - b->len;
		n = n < len - taken ? n : len - taken;
		memcpy(b->bytes + b->len, (const unsigned char *)bytes + taken, n);
		b->len += n;
		taken += n;
		if (b->len == WRITER_BUFFER_LEN)
			launch(w);
	}
	w->wants_room = taken < len;
	return taken;
}

/* ---- The end ---- */

static void
end(struct writer *w)
{
	char reason[LIMIT_REASON_MAX];
	bool failed = w->failed;
	memcpy(reason, w->reason, sizeof(reason));
	writer_release(w);
	w->done(w, failed ? reason : NULL);
}

static void
directory_synced(struct loop_op *op, int result)
{
	struct writer *w = (void *)((char *)op - offsetof(struct writer, sync));
	if (result < 0)
		fail(w,
		     "the snapshot is there, but its directory cannot be written to the disk: "
		     "%s: it may be gone after a power failure",
		     strerror(-result));
	end(w);
}

static void
file_synced(struct loop_op *op, int result)
{
	struct writer *w = (void *)((char *)op - offsetof(struct writer, sync));
	if (result < 0)
		fail_errno(w, "the snapshot cannot be written to the disk", -result);
	else if (renameat(w->dir_fd, TEMPORARY, w->dir_fd, w->name))
		fail_errno(w, "the snapshot cannot be given its name", errno);
	if (w->failed)
		end(w);
	else
		loop_fsync(w->loop, &w->sync, w->dir_fd, directory_synced);
}

/* A buffer has landed. */
static void
move_on(struct writer *w)
{
	if (w->n_flying == 0 && w->failed) {
		end(w);
	} else if (w->n_flying == 0 && w->finishing) {
		loop_fsync(w->loop, &w->sync, w->fd, file_synced);
	} else if (w->wants_room && !w->failed) {
		w->wants_room = false;
		w->room(w);
	}
}

void
writer_finish(struct writer *w)
{
	assert(!w->finishing);
	if (w->failed)
		return; /* it ends when the last buffer has landed */
	w->finishing = true;
	if (w->buffer[w->filling].len && loop_is_idle(&w->buffer[w->filling].op))
		launch(w);
	assert(w->off % WRITER_ALIGNMENT == 0);
	move_on(w);
}
