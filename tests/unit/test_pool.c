/* SPDX-License-Identifier: BSD-2-Clause */
/* A server's memory: reservation, sentences of what is refused, where it lies. */
#include <limits.h>
#include <linux/mempolicy.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/err.h"
#include "common/memory.h"
#include "common/pool.h"
#include "common/pool_file.h"

#define LEN UINT64_C(1000000) /* not a multiple of a page */

struct sink {
	unsigned n_lines;
	char last[1024];
};

static void
remember_line(void *arg, int level, const char *line)
{
	struct sink *sink = arg;
	(void)level;
	sink->n_lines++;
	snprintf(sink->last, sizeof(sink->last), "%s", line);
}

static void
test_pool(void **state)
{
	struct sink sink = {0};
	const struct log log = {remember_line, &sink, LOG_DEBUG};
	struct pool *pool;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	(void)state;
	assert_int_equal(pool_create(LEN, POOL_HUGE_NO, POOL_NODE_ANY, &log, &pool), 0);
	assert_int_equal(sink.n_lines, 0);
	assert_false(pool_is_huge(pool));
	assert_int_equal(pool_len(pool), LEN);
	assert_int_equal(pool_room(pool), (LEN + page - 1) / page * page);
	assert_int_equal(pool_map_len(pool), pool_room(pool) + page);
	unsigned char *base = pool_base(pool);
	assert_int_equal((uintptr_t)base % page, 0);
	for (uint64_t i = 0; i < pool_map_len(pool); i++)
		assert_int_equal(base[i], 0);
	memset(base, 0xff, pool_map_len(pool));
	pool_destroy(pool);
	pool_destroy(NULL);
}

/* ---- In a file ---- */

static char file_path[64]; /* of this process: others may run the same test */

static void
open_file(struct pool_file *file, int want)
{
	char reason[POOL_FILE_REASON_MAX] = "";
	int rc = pool_file_open(file_path, true, file, reason);
	if (rc != want)
		fail_msg("%d: %s", rc, reason);
	if (want)
		assert_non_null(strstr(reason, "kv-server"));
}

static void
assert_mapped_by(int fd, pid_t want)
{
	const struct pool_file file = {.fd = fd};
	pid_t pid;
	assert_int_equal(pool_file_is_mapped(&file, &pid), want != 0);
	assert_int_equal(pid, want);
}

/* The lock of a client lasts as long as its mapping, not its descriptor. */
static void
test_file(void **state)
{
	struct pool_file file, other;
	struct pool *pool;
	char bytes[8];
	int fd;
	(void)state;
	snprintf(file_path, sizeof(file_path), "/tmp/rkv-test-pool-file.%d", getpid());
	unlink(file_path);
	open_file(&file, 0);
	pool_file_close(&file);
	assert_int_equal(access(file_path, F_OK), -1); /* nothing was made of it */
	open_file(&file, 0);
	assert_int_equal(file.len, 0);
	open_file(&other, ERR_CONN);
	assert_int_equal(pool_file_take(&file, LEN, true, NULL, &pool), 0);
	assert_true(pool_is_file(pool));
	assert_memory_equal(pool_base(pool), "RKUNFIN1", 8);
	assert_int_equal(((char *)pool_base(pool))[8], 0);
	memcpy(pool_base(pool), "contents", 8);
	assert_mapped_by(pool_fd(pool), 0);
	assert_int_equal(pool_file_lend(pool_fd(pool), 4711, false, &fd), 0);
	size_t len = pool_map_len(pool);
	void *map = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(map != MAP_FAILED);
	close(fd);
	assert_mapped_by(pool_fd(pool), 4711);
	open_file(&other, ERR_CONN);
	pool_destroy(pool);
	/* The next server. */
	open_file(&file, 0);
	assert_int_equal(file.len, len);
	assert_int_equal(file.len, pool_file_len_for(&file, LEN));
	assert_int_equal(pool_file_peek(&file, bytes, sizeof(bytes)), 8);
	assert_memory_equal(bytes, "contents", 8);
	assert_mapped_by(file.fd, 4711);
	munmap(map, len);
	assert_mapped_by(file.fd, 0);
	assert_int_equal(pool_file_take(&file, LEN, false, NULL, &pool), 0);
	assert_memory_equal(pool_base(pool), "contents", 8);
	pool_destroy(pool);
	unlink(file_path);
}

static void
assert_refused(size_t len, enum pool_huge huge, const char *word)
{
	struct sink sink = {0};
	const struct log log = {remember_line, &sink, LOG_ERROR};
	struct pool *pool = NULL;
	assert_int_equal(pool_create(len, huge, POOL_NODE_ANY, &log, &pool), ERR_NOMEM);
	assert_null(pool);
	assert_int_equal(sink.n_lines, 1);
	if (!strstr(sink.last, word))
		fail_msg("'%s' does not speak of '%s'", sink.last, word);
}

static int
limited(void)
{
	struct sink sink = {0};
	const struct log log = {remember_line, &sink, LOG_ERROR};
	struct pool *pool = NULL;
	const struct rlimit limit = {512 << 10, 512 << 10};
	setrlimit(RLIMIT_FSIZE, &limit);
	if (pool_create(LEN, POOL_HUGE_NO, POOL_NODE_ANY, &log, &pool) != ERR_NOMEM)
		return 1;
	if (!strstr(sink.last, "ulimit -f"))
		return 2;
	return pool_create(65536, POOL_HUGE_NO, POOL_NODE_ANY, &log, &pool) ? 3 : 0;
}

/* Too much is a sentence, never a signal. */
static void
test_too_large(void **state)
{
	int status;
	(void)state;
	assert_refused((size_t)1 << 46, POOL_HUGE_NO, "choose a smaller pool");
	assert_refused(SIZE_MAX, POOL_HUGE_NO, "size");
	assert_refused(INT64_MAX, POOL_HUGE_NO, "size");
	assert_refused(0, POOL_HUGE_NO, "size");
	assert_refused((size_t)1 << 46, POOL_HUGE_MUST, "huge pages");
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(limited());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* POOL_HUGE_TRY gets a pool in any case, and says if it is not of huge pages. */
static void
test_huge(void **state)
{
	struct sink sink = {0};
	const struct log log = {remember_line, &sink, LOG_WARN};
	struct pool *pool = NULL;
	(void)state;
	assert_int_equal(pool_create(LEN, POOL_HUGE_TRY, POOL_NODE_ANY, &log, &pool), 0);
	memset(pool_base(pool), 1, LEN);
	assert_true(pool_is_huge(pool) ? sink.n_lines == 0 : sink.n_lines == 1);
	pool_destroy(pool);
	char reason[MEMORY_REASON_MAX];
	if (memory_fits_huge(LEN, reason))
		assert_refused(LEN, POOL_HUGE_MUST, "huge pages");
}

/* ---- NUMA ---- */

/* This thread's policy; -1: the kernel does not tell. */
static int
policy(void)
{
	int mode;
	return syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0) ? -1 : mode;
}

static void
create_on(int node, struct sink *ret_sink)
{
	*ret_sink = (struct sink){0};
	const struct log log = {remember_line, ret_sink, LOG_WARN};
	struct pool *pool;
	assert_int_equal(pool_create(LEN, POOL_HUGE_NO, node, &log, &pool), 0);
	pool_destroy(pool);
}

/* A node is preferred while memory is reserved, and no longer; one that is not there is no harm. */
static void
test_node(void **state)
{
	struct sink sink;
	(void)state;
	if (policy() != MPOL_DEFAULT)
		skip();
	create_on(0, &sink);
	assert_int_equal(sink.n_lines, 0);
	assert_int_equal(policy(), MPOL_DEFAULT);
	create_on(1023, &sink);
	assert_int_equal(sink.n_lines, 1);
	assert_non_null(strstr(sink.last, "NUMA node 1023"));
	create_on(INT_MAX, &sink);
	assert_non_null(strstr(sink.last, "no such node"));
	assert_int_equal(policy(), MPOL_DEFAULT);
}

/* What the process was started with, by numactl say, stays. */
static void
test_own_policy(void **state)
{
	struct sink sink;
	unsigned long nodes = 1;
	(void)state;
	if (policy() != MPOL_DEFAULT ||
	    syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, &nodes, 8 * sizeof(nodes)))
		skip();
	create_on(0, &sink);
	int mode = policy();
	syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0);
	assert_int_equal(mode, MPOL_INTERLEAVE);
	assert_int_equal(sink.n_lines, 1);
	assert_non_null(strstr(sink.last, "policy of its own"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pool),      cmocka_unit_test(test_file),
		cmocka_unit_test(test_too_large), cmocka_unit_test(test_huge),
		cmocka_unit_test(test_node),      cmocka_unit_test(test_own_policy),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
