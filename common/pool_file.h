/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A file that holds a pool and outlives its server: on tmpfs, on hugetlbfs, or on a disk. Who may
 * use it is told by locks of the kernel's on bytes far behind its end; what is locked is an open
 * file description (F_OFD_SETLK), and so the lock lasts exactly as long as the last descriptor *or
 * mapping* of it, in whatever way its process ends:
 *
 *   LOCK_SERVER           the server that serves it: there is one
 *   LOCK_SERVER_PID + pid the same, so that others can say who it is
 *   LOCK_CLIENT + pid     a process that has the pool mapped
 *
 * A client gets a description of its own, which the server has locked for it, and keeps nothing of
 * it but its mapping. So the next server sees which processes could still change the pool, by their
 * pids, and sees it when they cannot any more, [DEAD] (proto/decisions/0007-pool-file.md).
 */
#ifndef RKV_COMMON_POOL_FILE_H
#define RKV_COMMON_POOL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/log.h"
#include "common/pool.h"

#define POOL_FILE_REASON_MAX 512u /* a sentence, NUL included */
#define POOL_FILE_PATH_MAX 1024u

struct pool_file {
	int fd; /* -1: closed, or the pool's */
	char path[POOL_FILE_PATH_MAX];
	uint64_t len;    /* bytes, when it was opened; 0: new */
	uint64_t inode;  /* tells a file from a copy of it */
	size_t page;     /* bytes */
	bool is_memory;  /* tmpfs or hugetlbfs: gone with the machine */
	bool is_huge;    /* hugetlbfs */
	bool is_created; /* it was not there before */
};

/*
 * Opens it, makes it if it is not there and `create`, and takes the server's lock. Failures, with a
 * sentence that has the cause and the remedy: ERR_PERM, ERR_NOMEM, ERR_INVALID: it is no file;
 * ERR_CONN: another server serves it.
 */
int pool_file_open(const char *path, bool create, struct pool_file *ret_file,
		   char ret_reason[POOL_FILE_REASON_MAX]);

/* The first bytes of it, at most len; returns how many there are. */
size_t pool_file_peek(const struct pool_file *file, void *ret_bytes, size_t len);

/* How long the file of a pool of so many bytes is. */
uint64_t pool_file_len_for(const struct pool_file *file, uint64_t len);

/*
 * Is it still mapped by a client of a server before this one? *ret_pid: by which, one of several;
 * 0: one of another pid namespace.
 */
bool pool_file_is_mapped(const struct pool_file *file, pid_t *ret_pid);

/*
 * Makes it a pool of len bytes. anew: all of it is zeroed, and the first word says that it is not
 * finished yet (LAYOUT_MAGIC_UNFINISHED), before anything else is there. Else it has that length
 * already, and keeps its bytes. The descriptor is the pool's then. Failures, which the log has
 * heard of: ERR_NOMEM, ERR_PERM, ERR_CONN.
 */
int pool_file_take(struct pool_file *file, uint64_t len, bool anew, const struct log *log,
		   struct pool **ret_pool);

/* Gives it up; one that was created and never taken is removed. */
void pool_file_close(struct pool_file *file);

/*
 * A descriptor of a pool's file for a client, whose process is pid, and who may only read it if
 * read_only; the caller closes it. Failures: ERR_NOMEM: no descriptor is left; ERR_PERM, ERR_CONN.
 */
int pool_file_lend(int fd, pid_t pid, bool read_only, int *ret_fd);

#endif
