/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writes one file of a directory through the loop's ring, so that the name never stands for
 * something half-written:
 *
 *   writer_open     a temporary file; direct I/O where the file system allows it
 *   writer_append   bytes go into aligned buffers; a full one is written while the next one fills
 *   writer_finish   what is left, fsync of the file, rename over the name, fsync of the directory
 *   done callback   exactly once, also if writing failed long before writer_finish
 *
 * What a process that was killed has left is removed by the next writer_open in the directory. One
 * writer works in a directory at a time, in all processes.
 */
#ifndef RKV_SERVER_WRITER_H
#define RKV_SERVER_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/log.h"
#include "common/loop.h"
#include "proto/wire.h"

#define WRITER_BUFFERS 4u
#define WRITER_BUFFER_LEN ((size_t)1 << 20)
#define WRITER_ALIGNMENT 4096u /* of buffers, offsets and lengths: what direct I/O may ask for */
#define WRITER_NAME_MAX WIRE_SNAPSHOT_NAME_MAX

struct writer;

struct writer_buffer {
	struct loop_op op;
	struct writer *writer;
	unsigned char *bytes;
	size_t len;     /* filled; */
	size_t written; /* of that */
	uint64_t off;   /* in the file */
};

struct writer {
	/* Set by the caller before writer_open, and kept */
	struct loop *loop;
	const struct log *log;
	int dir_fd;
	/* There is room again after writer_append took less than all. */
	void (*room)(struct writer *writer);
	/* It is over; reason: NULL if all is well, else a sentence. The writer is idle again. */
	void (*done)(struct writer *writer, const char *reason);

	/* The writer's own; zeroed = idle */
	bool busy;
	bool direct;
	bool wants_room;
	bool finishing;
	bool failed;
	int fd;
	int lock_fd;
	char name[WRITER_NAME_MAX];
	char reason[LIMIT_REASON_MAX];
	unsigned char *memory;
	struct writer_buffer buffer[WRITER_BUFFERS];
	unsigned filling; /* index of the buffer that takes bytes */
	unsigned n_flying;
	struct loop_op sync;
	uint64_t off; /* where the next buffer goes */
};

/*
 * Begins a file of this name. Failure: ERR_PERM, ERR_NOMEM, ERR_CONN, and a sentence; nothing is
 * left then.
 */
int writer_open(struct writer *writer, const char *name, char ret_reason[LIMIT_REASON_MAX]);

/* Takes as many of the bytes as there is room for now. */
size_t writer_append(struct writer *writer, const void *bytes, size_t len);

/* All bytes were appended, a multiple of WRITER_ALIGNMENT. */
void writer_finish(struct writer *writer);

/* After the loop has ended: lets go of everything, without a callback. */
void writer_release(struct writer *writer);

#endif
