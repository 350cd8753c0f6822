/* SPDX-License-Identifier: BSD-2-Clause */
/* Reserving a server's memory: pool.h. */
#include "common/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <linux/mempolicy.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/err.h"
#include "common/memory.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

struct pool {
	int fd;
	unsigned char *base; /* MAP_FAILED until mapped */
	size_t len;
	size_t room;
	size_t page;
	bool huge;
	bool is_file; /* else a memfd */
};

/* ---- NUMA ---- */

#define NODES_MAX 1024u
#define LONG_BITS (8 * sizeof(unsigned long))

struct node_mask {
	unsigned long bits[NODES_MAX / LONG_BITS];
};

/* Pages are placed when they are reserved, by the thread's policy of that moment. */
static const char *
prefer_node(int node)
{
	struct node_mask mask = {0};
	int mode;
	if ((unsigned)node >= NODES_MAX)
		return "no such node";
	if (syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0))
		return strerror(errno);
	if (mode != MPOL_DEFAULT)
		return "this process was started with a memory policy of its own, which counts "
		       "more";
	mask.bits[(unsigned)node / LONG_BITS] = 1ul << ((unsigned)node % LONG_BITS);
	/* The kernel takes one bit less than it is told. */
	if (syscall(SYS_set_mempolicy, MPOL_PREFERRED, &mask, NODES_MAX + 1))
		return strerror(errno);
	return NULL;
}

/* True: prefer_any has to follow. */
static bool
prefer(int node, const struct log *log)
{
	if (node == POOL_NODE_ANY)
		return false;
	const char *wrong = prefer_node(node);
	if (wrong)
		log_line(log, LOG_WARN, "the pool is not placed on NUMA node %d: %s", node, wrong);
	return !wrong;
}

static void
prefer_any(void)
{
	(void)syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0);
}

/* ---- The memfd ---- */

/*
 * Kernels before 6.3 do not know MFD_NOEXEC_SEAL; some later ones are told to insist on it. The
 * file's mode forbids all other users to open it anew, by way of a descriptor that they were given
 * for reading only.
 */
static int
create_memfd(bool huge)
{
	unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB : 0);
	int fd = memfd_create("rkv-pool", flags | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("rkv-pool", flags);
	if (fd >= 0 && fchmod(fd, S_IRUSR | S_IWUSR) < 0) {
		int error = errno;
		close(fd);
		errno = error;
		return -1;
	}
	return fd;
}

int
pool_reserve(int fd, size_t len)
{
	const size_t step = (size_t)256 << 20;
	for (size_t off = 0; off < len;) {
		size_t n = len - off < step ? len - off : step;
		if (fallocate(fd, 0, (off_t)off, (off_t)n) == 0)
			off += n;
		else if (errno != EINTR)
			return errno;
	}
	return 0;
}

/* Makes the memfd: room reserved, size sealed. reason is set on failure. */
static int
reserve(struct pool *pool, char reason[MEMORY_REASON_MAX])
{
	size_t map_len = pool_map_len(pool);
	int r = pool->huge ? memory_fits_huge(map_len, reason) : memory_fits(map_len, reason);
	if (r)
		return r;
	const char *what = "create a memfd";
	int error = 0;
	pool->fd = create_memfd(pool->huge);
	if (pool->fd < 0 || ftruncate(pool->fd, (off_t)map_len)) {
		error = errno;
	} else {
		what = "reserve the memory (is a limit of this host or container too small?)";
		error = pool_reserve(pool->fd, map_len);
	}
	if (!error && fcntl(pool->fd, F_ADD_SEALS, SEALS)) {
		what = "seal the memfd";
		error = errno;
	}
	if (!error)
		return 0;
	snprintf(reason, MEMORY_REASON_MAX, "cannot %s: %s", what, strerror(error));
	return err_from_errno(error);
}

/* Reserves with pages of one kind; what was there before is let go. */
static int
try_pages(struct pool *pool, bool huge, char reason[MEMORY_REASON_MAX])
{
	uint64_t page = huge ? memory_huge_page_size() : (uint64_t)sysconf(_SC_PAGESIZE);
	if (pool->fd >= 0)
		close(pool->fd);
	pool->fd = -1;
	pool->huge = huge;
	if (page == 0 || pool->len == 0 || pool->len > INT64_MAX - 2 * page) {
		snprintf(reason, MEMORY_REASON_MAX, "%s",
			 page ? "no memory has such a size" : "this kernel has no huge pages");
		return ERR_NOMEM;
	}
	pool->page = page;
	pool->room = (pool->len + page - 1) / page * page;
	return reserve(pool, reason);
}

/* The log has said what failed. */
static int
try_kinds(struct pool *pool, enum pool_huge huge, const struct log *log)
{
	char reason[MEMORY_REASON_MAX];
	int r = ERR_NOMEM;
	if (huge != POOL_HUGE_NO)
		r = try_pages(pool, true, reason);
	if (r && huge == POOL_HUGE_TRY)
		log_line(log, LOG_WARN,
			 "no huge pages for the pool: %s; going on with ordinary pages", reason);
	if (r && huge != POOL_HUGE_MUST)
		r = try_pages(pool, false, reason);
	if (r)
		log_line(log, LOG_ERROR, "the pool cannot be reserved: %s", reason);
	return r;
}

static int
map(struct pool *pool, const struct log *log)
{
	size_t map_len = pool_map_len(pool);
	pool->base = mmap(NULL, map_len, PROT_READ | PROT_WRITE, MAP_SHARED, pool->fd, 0);
	/* A forked child shall not write into the region, nor hold its memory. */
	if (pool->base != MAP_FAILED && madvise(pool->base, map_len, MADV_DONTFORK) == 0)
		return 0;
	int error = errno;
	log_line(log, LOG_ERROR, "cannot map the pool: %s", strerror(error));
	return error == EAGAIN ? ERR_NOMEM : err_from_errno(error);
}

int
pool_create(size_t len, enum pool_huge huge, int numa_node, const struct log *log,
	    struct pool **ret_pool)
{
	struct pool *pool = calloc(1, sizeof(*pool));
	if (!pool)
		return ERR_NOMEM;
	pool->fd = -1;
	pool->base = MAP_FAILED;
	pool->len = len;
	bool preferred = prefer(numa_node, log);
	int r = try_kinds(pool, huge, log);
	if (preferred)
		prefer_any();
	if (!r)
		r = map(pool, log);
	if (r) {
		pool_destroy(pool);
		return r;
	}
	*ret_pool = pool;
	return 0;
}

int
pool_adopt(int fd, size_t len, size_t page, bool is_huge, const struct log *log,
	   struct pool **ret_pool)
{
	struct pool *pool = calloc(1, sizeof(*pool));
	if (!pool) {
		close(fd);
		log_line(log, LOG_ERROR, "no memory is left");
		return ERR_NOMEM;
	}
	*pool = (struct pool){
		.fd = fd,
		.base = MAP_FAILED,
		.len = len,
		.room = (len + page - 1) / page * page,
		.page = page,
		.huge = is_huge,
		.is_file = true,
	};
	int r = map(pool, log);
	if (r) {
		pool_destroy(pool);
		return r;
	}
	*ret_pool = pool;
	return 0;
}

void
pool_destroy(struct pool *pool)
{
	if (!pool)
		return;
	if (pool->base != MAP_FAILED)
		munmap(pool->base, pool_map_len(pool));
	if (pool->fd >= 0)
		close(pool->fd);
	free(pool);
}

/* ---- What it is ---- */

void *
pool_base(const struct pool *pool)
{
	return pool->base;
}

size_t
pool_len(const struct pool *pool)
{
	return pool->len;
}

size_t
pool_room(const struct pool *pool)
{
	return pool->room;
}

size_t
pool_map_len(const struct pool *pool)
{
	return pool->room + pool->page;
}

int
pool_fd(const struct pool *pool)
{
	return pool->fd;
}

bool
pool_is_huge(const struct pool *pool)
{
	return pool->huge;
}

bool
pool_is_file(const struct pool *pool)
{
	return pool->is_file;
}
