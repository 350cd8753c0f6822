/* SPDX-License-Identifier: BSD-2-Clause */
/* A pool in a file: pool_file.h. */
#include "common/pool_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "common/err.h"
#include "common/memory.h"
#include "proto/layout.h"

#define LOCK_SERVER (INT64_C(1) << 62)
#define LOCK_SERVER_PID (LOCK_SERVER + (INT64_C(1) << 32))
#define LOCK_CLIENT (LOCK_SERVER + (INT64_C(2) << 32))
#define LOCK_PIDS (INT64_C(1) << 32)

/* ---- Locks ---- */

static int
lock_byte(int fd, short type, int64_t at)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
	int rc;
	do
		rc = fcntl(fd, F_OFD_SETLK, &lock);
	while (rc && errno == EINTR);
	return rc ? errno : 0;
}

/* Does another description hold a lock of a pid's behind `from`? */
static bool
find_pid(int fd, int64_t from, pid_t *ret_pid)
{
	struct flock lock = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = from, .l_len = LOCK_PIDS};
	*ret_pid = 0;
	if (fcntl(fd, F_OFD_GETLK, &lock) || lock.l_type == F_UNLCK)
		return false;
	*ret_pid = (pid_t)(lock.l_start - from);
	return true;
}

static int
lock_for_server(struct pool_file *file, char *reason)
{
	pid_t pid;
	int error = lock_byte(file->fd, F_WRLCK, LOCK_SERVER);
	if (error == EAGAIN || error == EACCES) {
		find_pid(file->fd, LOCK_SERVER_PID, &pid);
		snprintf(reason, POOL_FILE_REASON_MAX,
			 "%.300s is served by another kv-server (process %d): stop it, or choose "
			 "another --pool-file",
			 file->path, (int)pid);
		return ERR_CONN;
	}
	if (!error)
		error = lock_byte(file->fd, F_WRLCK, LOCK_SERVER_PID + getpid());
	if (!error)
		return 0;
	snprintf(reason, POOL_FILE_REASON_MAX,
		 "%.300s cannot be locked (%s): use a file system with locks, on this host",
		 file->path, strerror(error));
	return err_from_errno(error);
}

bool
pool_file_is_mapped(const struct pool_file *file, pid_t *ret_pid)
{
	return find_pid(file->fd, LOCK_CLIENT, ret_pid);
}

/* A description of the same file, not of whatever its path leads to by now. */
int
pool_file_lend(int fd, pid_t pid, bool read_only, int *ret_fd)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int lent = open(path, (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
	int error = lent < 0 ? errno : lock_byte(lent, F_RDLCK, LOCK_CLIENT + pid);
	if (error) {
		if (lent >= 0)
			close(lent);
		return err_from_errno(error);
	}
	*ret_fd = lent;
	return 0;
}

/* ---- Opening ---- */

static int
look_at(struct pool_file *file, char *reason)
{
	struct stat st;
	struct statfs fs;
	if (fstat(file->fd, &st) || fstatfs(file->fd, &fs)) {
		snprintf(reason, POOL_FILE_REASON_MAX, "%.300s: %s", file->path, strerror(errno));
		return err_from_errno(errno);
	}
	if (!S_ISREG(st.st_mode)) {
		snprintf(reason, POOL_FILE_REASON_MAX,
			 "%.300s is not a regular file: choose one, on tmpfs, hugetlbfs or a disk",
			 file->path);
		return ERR_INVALID;
	}
	file->len = (uint64_t)st.st_size;
	file->inode = st.st_ino;
	file->is_huge = (uint64_t)fs.f_type == HUGETLBFS_MAGIC;
	file->is_memory = file->is_huge || (uint64_t)fs.f_type == TMPFS_MAGIC;
	file->page = file->is_huge ? (size_t)fs.f_bsize : (size_t)sysconf(_SC_PAGESIZE);
	return 0;
}

int
pool_file_open(const char *path, bool create, struct pool_file *ret_file,
	       char ret_reason[POOL_FILE_REASON_MAX])
{
	struct pool_file *file = ret_file;
	*file = (struct pool_file){.fd = -1};
	snprintf(file->path, sizeof(file->path), "%s", path);
	/* Not blocking: a FIFO there is told apart afterwards. */
	const int flags = O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
	file->fd = open(path, flags);
	if (file->fd < 0 && errno == ENOENT && create) {
		file->fd = open(path, flags | O_CREAT | O_EXCL, 0600);
		file->is_created = file->fd >= 0;
	}
	if (file->fd < 0) {
		snprintf(ret_reason, POOL_FILE_REASON_MAX,
			 "--pool-file %.300s cannot be opened: %s: its folder has to be there, and "
			 "this user has to be allowed to read and write it",
			 path, strerror(errno));
		return err_from_errno(errno);
	}
	int rc = look_at(file, ret_reason);
	if (rc == 0)
		rc = lock_for_server(file, ret_reason);
	if (rc)
		pool_file_close(file);
	return rc;
}

size_t
pool_file_peek(const struct pool_file *file, void *ret_bytes, size_t len)
{
	size_t done = 0;
	ssize_t n = 1;
	while (done < len && n > 0) {
		n = pread(file->fd, (char *)ret_bytes + done, len - done, (off_t)done);
		done += n > 0 ? (size_t)n : 0;
		n = n < 0 && errno == EINTR ? 1 : n;
	}
	return done;
}

void
pool_file_close(struct pool_file *file)
{
	if (file->fd < 0)
		return;
	if (file->is_created)
		unlink(file->path);
	close(file->fd);
	file->fd = -1;
}

/* ---- Making it a pool ---- */

uint64_t
pool_file_len_for(const struct pool_file *file, uint64_t len)
{
	return (len + file->page - 1) / file->page * file->page + file->page;
}

static int
fits(const struct pool_file *file, uint64_t len, char reason[MEMORY_REASON_MAX])
{
	if (file->is_huge && file->page == memory_huge_page_size())
		return memory_fits_huge(len, reason);
	return file->is_memory && !file->is_huge ? memory_fits(len, reason)
						 : memory_fits_file(len, reason);
}

/* Empties it, and leaves the word by which a crash from here on is known. Returns an errno. */
static int
empty(const struct pool_file *file)
{
	const uint64_t unfinished = LAYOUT_MAGIC_UNFINISHED;
	if (ftruncate(file->fd, 0))
		return errno;
	if (pwrite(file->fd, &unfinished, sizeof(unfinished), 0) == (ssize_t)sizeof(unfinished))
		return 0;
	if (errno != EINVAL && errno != EOPNOTSUPP)
		return errno;
	/* hugetlbfs has no write(2) */
	if (ftruncate(file->fd, (off_t)file->page) || fallocate(file->fd, 0, 0, (off_t)file->page))
		return errno;
	void *page = mmap(NULL, file->page, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
	if (page == MAP_FAILED)
		return errno;
	memcpy(page, &unfinished, sizeof(unfinished));
	munmap(page, file->page);
	return 0;
}

int
pool_file_take(struct pool_file *file, uint64_t len, bool anew, const struct log *log,
	       struct pool **ret_pool)
{
	char reason[MEMORY_REASON_MAX];
	uint64_t file_len = pool_file_len_for(file, len);
	int error = 0;
	if (anew && fits(file, file_len, reason)) {
		log_line(log, LOG_ERROR, "the pool cannot be reserved: %s", reason);
		return ERR_NOMEM;
	}
	if (anew)
		error = empty(file);
	if (!error && anew && ftruncate(file->fd, (off_t)file_len))
		error = errno;
	if (!error)
		error = pool_reserve(file->fd, file_len);
	if (error) {
		log_line(log, LOG_ERROR,
			 "%s cannot be made %llu bytes long: %s: is its file system full, or unfit "
			 "(fallocate)?",
			 file->path, (unsigned long long)file_len, strerror(error));
		return err_from_errno(error);
	}
	int fd = file->fd;
	file->fd = -1;
	return pool_adopt(fd, len, file->page, file->is_huge, log, ret_pool);
}
