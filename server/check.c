/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The checks of --check: check.h. Each tries what the start would do, as far as that leaves no
 * trace.
 */
#include "server/check.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/err.h"
#include "common/loop.h"
#include "common/memory.h"
#include "common/ring.h"
#include "server/guard.h"
#include "server/handout.h"
#include "server/ports.h"
#include "server/region.h"
#include "server/warm.h"

#define FILES_WANTED (2 * LIMIT_CLIENTS + 64) /* a connection and a pidfd of each client */
/*
 * The ring, signals and a file of /proc; one client's connection, its unix socket and its pidfd.
 * Each listening socket has an epoll and a spare descriptor beside it. Each region has its pool;
 * each responder of it a ring and an eventfd, and they share another; and the directory of its
 * snapshots is kept open.
 */
#define FILES_MIN 6u
#define FILES_OF_LISTENER 3u
#define FILES_OF_RESPONDER 2u
#define FILES_TRIED_MAX 4096u

#define KEPT_MAX 1024u                   /* of the log, kept */
#define LOCKED_MORE ((uint64_t)16 << 20) /* registered beside the pool: queues of clients */

enum verdict { OK, WARN, FAIL };

struct check {
	const struct options *options;
	FILE *out;
	unsigned n_failed;
	bool is_verbs; /* a device would be used */
};

static void __attribute__((format(printf, 4, 5)))
say(struct check *check, enum verdict verdict, const char *name, const char *format, ...)
{
	static const char *const words[] = {"OK  ", "WARN", "FAIL"};
	va_list ap;
	va_start(ap, format);
	fprintf(check->out, "%s %s: ", words[verdict], name);
	vfprintf(check->out, format, ap);
	fputc('\n', check->out);
	va_end(ap);
	check->n_failed += verdict == FAIL;
}

/* ---- Kernel ---- */

/* Keeps the sentence that the loop would log. */
static void
keep_line(void *arg, int level, const char *line)
{
	(void)level;
	snprintf(arg, KEPT_MAX, "%s", line);
}

static void
check_io_uring(struct check *check)
{
	char line[KEPT_MAX] = "out of memory";
	const struct log log = {.sink = keep_line, .arg = line, .max_level = LOG_ERROR};
	struct loop *loop = NULL;
	struct utsname name = {0};
	uname(&name);
	int disabled = ring_disabled();
	if (loop_create(&log, &loop))
		say(check, FAIL, "io_uring", "Linux %s, kernel.io_uring_disabled %d: %s",
		    name.release, disabled, line);
	else
		say(check, OK, "io_uring", "Linux %s, kernel.io_uring_disabled %d", name.release,
		    disabled);
	loop_destroy(loop);
}

static void
check_boot_id(struct check *check)
{
	unsigned char boot_id[NET_BOOT_ID_LEN];
	if (net_boot_id(boot_id))
		say(check, FAIL, "boot id", "%s", NET_BOOT_ID_REMEDY);
	else
		say(check, OK, "boot id", "readable");
}

/* First line of a small file, or "". */
static void
read_line(const char *path, char *line, int len)
{
	FILE *file = fopen(path, "re");
	line[0] = '\0';
	if (file && fgets(line, len, file))
		line[strcspn(line, "\n")] = '\0';
	if (file)
		fclose(file);
}

static void
check_clock(struct check *check)
{
	char source[64];
	read_line("/sys/devices/system/clocksource/clocksource0/current_clocksource", source,
		  sizeof(source));
	if (strcmp(source, "hpet") == 0 || strcmp(source, "acpi_pm") == 0 ||
	    strcmp(source, "jiffies") == 0)
		say(check, WARN, "clock",
		    "%s: each look at the clock is slow: boot with a stable tsc "
		    "(clocksource=tsc), or use a machine type that has a virtual clock",
		    source);
	else
		say(check, OK, "clock", "%s", source[0] ? source : "unknown source");
}

/* ---- Memory ---- */

/* Bytes of all pools, each with what is added to it. */
static uint64_t
pools_len(const struct options *options, uint64_t added)
{
	uint64_t len = options->layout.region_len + added;
	for (unsigned i = 0; i < options->n_regions; i++)
		len += options->region[i].layout.region_len + added;
	return len;
}

/* Of a file that is not there yet; *new_len: all such files on a tmpfs so far. */
static void
check_new_file(struct check *check, const struct options *options, uint64_t *new_len)
{
	char folder[POOL_FILE_PATH_MAX], reason[MEMORY_REASON_MAX];
	struct statfs fs;
	*new_len += options->layout.region_len + (uint64_t)sysconf(_SC_PAGESIZE);
	snprintf(folder, sizeof(folder), "%s", options->pool_file);
	char *slash = strrchr(folder, '/');
	snprintf(slash ? slash + (slash == folder) : folder, 2, "%s", slash ? "" : ".");
	if (access(folder, W_OK | X_OK) || statfs(folder, &fs))
		say(check, FAIL, "pool file",
		    "%s: no file can be made in %s: %s: make the folder, "
		    "for this user",
		    options->pool_file, folder, strerror(errno));
	else if ((uint64_t)fs.f_type == TMPFS_MAGIC && memory_fits(*new_len, reason))
		say(check, FAIL, "pool file", "%s", reason);
	else
		say(check, OK, "pool file", "%s will be made", options->pool_file);
}

static void
check_pool_file(struct check *check, const struct options *options, uint64_t *new_len)
{
	char reason[POOL_FILE_REASON_MAX];
	struct pool_file file;
	enum warm_kind kind;
	pid_t pid;
	const char *path = options->pool_file;
	if (access(path, F_OK) && errno == ENOENT) {
		check_new_file(check, options, new_len);
		return;
	}
	int rc = pool_file_open(path, false, &file, reason);
	if (rc == 0)
		rc = warm_judge(&file, options, &kind, reason);
	if (rc)
		say(check, FAIL, "pool file", "%s", reason);
	else if (pool_file_is_mapped(&file, &pid))
		say(check, WARN, "pool file",
		    "%s: process %d still maps it: the start will wait until it is gone", path,
		    (int)pid);
	else
		say(check, OK, "pool file", "%s %s", path,
		    kind == WARM_FORMER ? "holds a pool" : "will be formatted");
	pool_file_close(&file);
}

static void
check_pool_files(struct check *check)
{
	uint64_t new_len = 0;
	for (unsigned i = 0; i < options_n_regions(check->options); i++) {
		struct options of;
		options_of_region(check->options, i, &of);
		if (of.pool_file[0])
			check_pool_file(check, &of, &new_len);
	}
}

static void
check_memory(struct check *check)
{
	char reason[MEMORY_REASON_MAX];
	/* A pool has one page more: the fabric's own. */
	uint64_t len = pools_len(check->options, (uint64_t)sysconf(_SC_PAGESIZE));
	if (check->options->huge_pages == POOL_HUGE_MUST || check->options->pool_file[0])
		return;
	if (memory_fits(len, reason))
		say(check, FAIL, "memory", "%s", reason);
	else
		say(check, OK, "memory", "%s of %" PRIu64 " bytes %s",
		    check->options->n_regions ? "pools" : "a pool", pools_len(check->options, 0),
		    check->options->n_regions ? "fit" : "fits");
}

static void
check_huge_pages(struct check *check)
{
	char reason[MEMORY_REASON_MAX];
	bool must = check->options->huge_pages == POOL_HUGE_MUST;
	if (check->options->huge_pages == POOL_HUGE_NO)
		return;
	if (memory_fits_huge(pools_len(check->options, memory_huge_page_size()), reason))
		say(check, must ? FAIL : WARN, "huge pages", "%s", reason);
	else
		say(check, OK, "huge pages", "enough pages of %" PRIu64 " bytes are free",
		    memory_huge_page_size());
}

/* CAP_IPC_LOCK: the limit of locked memory does not count. */
static bool
may_lock_all(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	return syscall(SYS_capget, &header, data) == 0 &&
	       (data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK)) != 0;
}

/* A registered pool is locked memory. */
static void
check_locked_memory(struct check *check)
{
	struct rlimit limit;
	uint64_t len = pools_len(check->options, LOCKED_MORE);
	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (limit.rlim_max == RLIM_INFINITY || may_lock_all())
		say(check, OK, "locked memory", "unlimited");
	else if (!check->is_verbs || limit.rlim_max >= len)
		say(check, OK, "locked memory",
		    "RLIMIT_MEMLOCK %llu bytes; only an RDMA device needs any",
		    (unsigned long long)limit.rlim_max);
	else
		say(check, options_want_verbs(check->options) ? FAIL : WARN, "locked memory",
		    "RLIMIT_MEMLOCK %llu bytes are too few to register the pool with the RDMA "
		    "device, about %" PRIu64 " are needed: raise it (ulimit -l unlimited, "
		    "LimitMEMLOCK=infinity in a systemd unit, --cap-add IPC_LOCK or --ulimit "
		    "memlock=-1 for a container)",
		    (unsigned long long)limit.rlim_max, len);
}

/* ---- Descriptors, addresses, devices ---- */

static unsigned
files_needed(const struct options *options)
{
	bool has_tcp = options->fabric != OPTIONS_VERBS && options->fabric != OPTIONS_SHM;
	unsigned n_listeners = 1 + options->n_listen + (options->metrics_listen.host[0] != '\0');
	unsigned n_of_region = 1 + (options->snapshot_dir[0] != '\0');
	if (has_tcp)
		n_of_region += 1 + options->tcp_threads * FILES_OF_RESPONDER;
	return FILES_MIN + n_listeners * FILES_OF_LISTENER +
	       options_n_regions(options) * n_of_region;
}

int
check_raise_files(const struct options *options, char ret_reason[NET_REASON_MAX])
{
	int fds[FILES_TRIED_MAX];
	unsigned n = 0, n_needed = files_needed(options);
	struct rlimit limit;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	assert(n_needed <= FILES_TRIED_MAX);
	while (n < n_needed && (fds[n] = eventfd(0, EFD_CLOEXEC)) >= 0)
		n++;
	int error = errno;
	for (unsigned i = 0; i < n; i++)
		close(fds[i]);
	if (n == n_needed)
		return 0;
	snprintf(ret_reason, NET_REASON_MAX,
		 "only %u file descriptors are left (%s; RLIMIT_NOFILE is %llu) and %u are needed "
		 "to "
		 "start and serve one client: raise the limit (ulimit -n, LimitNOFILE=%u in a "
		 "systemd unit)",
		 n, strerror(error), (unsigned long long)limit.rlim_cur, n_needed, FILES_WANTED);
	return ERR_NOMEM;
}

static void
check_files(struct check *check)
{
	char reason[NET_REASON_MAX];
	struct rlimit limit;
	getrlimit(RLIMIT_NOFILE, &limit);
	if (check_raise_files(check->options, reason))
		say(check, FAIL, "file descriptors", "%s", reason);
	else if (limit.rlim_max < FILES_WANTED)
		say(check, WARN, "file descriptors",
		    "RLIMIT_NOFILE %llu is enough for %llu clients of %u: raise it (ulimit -Hn, "
		    "LimitNOFILE=%u in a systemd unit)",
		    (unsigned long long)limit.rlim_max,
		    (unsigned long long)(limit.rlim_max > 64 ? (limit.rlim_max - 64) / 2 : 0),
		    LIMIT_CLIENTS, FILES_WANTED);
	else
		say(check, OK, "file descriptors", "RLIMIT_NOFILE %llu",
		    (unsigned long long)limit.rlim_max);
}

/* lets_in: who reaches it may get at what is stored. */
static void
check_listen(struct check *check, const char *name, const struct net_address *addresses, unsigned n,
	     bool lets_in)
{
	char reason[NET_REASON_MAX], text[PORTS_MAX * NET_TEXT_MAX];
	struct ports ports;
	int rc = ports_open(&ports, addresses, n, reason);
	for (unsigned i = 0; rc == 0 && lets_in && i < ports.n; i++)
		rc = options_check_exposure(check->options, &ports.port[i].bound, reason);
	ports_format(&ports, text, sizeof(text));
	if (rc)
		say(check, FAIL, name, "%s", reason);
	else
		say(check, OK, name, "%s %s free", text, ports.n > 1 ? "are" : "is");
	ports_close(&ports);
}

static void
check_port(struct check *check)
{
	check_listen(check, "port", check->options->listen, check->options->n_listen, true);
}

static void
check_metrics_port(struct check *check)
{
	if (check->options->metrics_listen.host[0])
		check_listen(check, "metrics port", &check->options->metrics_listen, 1, false);
}

static void
check_guard(struct check *check)
{
	static const char name[] = "tenants and TLS";
	static const struct log silent;
	char reason[NET_REASON_MAX];
	struct guard guard;
	const struct guard_files files = options_guard_files(check->options);
	if (guard_init(&guard, &files, &silent, reason)) {
		say(check, FAIL, name, "%s", reason);
		return;
	}
	const char *tls = guard.tls ? "by TLS" : "without TLS";
	if (guard.tenants)
		say(check, OK, name, "%zu tenants may come in, %s", guard.tenants->n, tls);
	else
		say(check, OK, name, "whoever comes may do everything, %s", tls);
	guard_destroy(&guard);
}

static void
check_socket(struct check *check)
{
	char reason[NET_REASON_MAX];
	const char *path = check->options->socket;
	bool stale = false;
	int fd;
	if (check->is_verbs) {
		say(check, OK, "unix socket", "none, the pool is not handed out over verbs");
		return;
	}
	if (!path[0]) {
		say(check, OK, "unix socket", "an abstract name will be used");
		return;
	}
	struct handout_file file;
	int rc = handout_probe(path, &stale, reason);
	if (rc == 0 && !stale)
		rc = handout_listen(path, &fd, &file, reason);
	if (rc) {
		say(check, FAIL, "unix socket", "%s", reason);
		return;
	}
	if (!stale) {
		close(fd);
		handout_remove(path, &file);
	}
	say(check, OK, "unix socket", "%s%s", path,
	    stale ? ": a stale socket is there, which will be replaced" : "");
}

/* Chooses as the start does, and remembers for the checks that follow. */
static void
check_rdma(struct check *check)
{
	char line[KEPT_MAX] = "";
	const struct log log = {.sink = keep_line, .arg = line, .max_level = LOG_INFO};
	struct region region;
	if (region_choose(&region, check->options, &check->options->listen[0], &log))
		say(check, FAIL, "rdma devices", "%s", line);
	else
		say(check, OK, "rdma devices", "%s",
		    line[0] ? line : "none is used, as --fabric says");
	check->is_verbs = region.device || options_want_verbs(check->options);
	region_destroy(&region);
}

/* Not whether they are whole: that takes as long as the start. */
static void
check_restore(struct check *check, const struct options *o)
{
	if (o->restore[0] && access(o->restore, R_OK))
		say(check, FAIL, "restore", "%s: %s", o->restore, strerror(errno));
	else if (o->restore[0])
		say(check, OK, "restore", "%s can be read", o->restore);
}

static void
check_snapshot_dir(struct check *check, const struct options *o)
{
	bool will_be_made =
		options_are_of_more(o) && access(o->snapshot_dir, F_OK) && errno == ENOENT;
	if (will_be_made)
		say(check, OK, "snapshots", "%s will be made", o->snapshot_dir);
	else if (access(o->snapshot_dir, W_OK | X_OK))
		say(check, FAIL, "snapshots",
		    "%s: %s: make it, and let this user write into it (StateDirectory= or "
		    "ReadWritePaths= in a systemd unit)",
		    o->snapshot_dir, strerror(errno));
	else
		say(check, OK, "snapshots", "%s can be written", o->snapshot_dir);
}

static void
check_snapshots(struct check *check)
{
	struct options of;
	for (unsigned i = 0; i < options_n_regions(check->options); i++) {
		options_of_region(check->options, i, &of);
		check_restore(check, &of);
	}
	if (!check->options->snapshot_dir[0]) {
		say(check, OK, "snapshots", "none, without --snapshot-dir");
		return;
	}
	for (unsigned i = 0; i < options_n_regions(check->options); i++) {
		options_of_region(check->options, i, &of);
		check_snapshot_dir(check, &of);
	}
}

unsigned
check_run(const struct options *options, FILE *out)
{
	static void (*const checks[])(struct check * check) = {
		check_io_uring,   check_boot_id,   check_memory, check_huge_pages,
		check_pool_files, check_files,     check_port,   check_metrics_port,
		check_guard,      check_clock,     check_rdma,   check_locked_memory,
		check_socket,     check_snapshots,
	};
	struct check check = {.options = options, .out = out};
	for (size_t i = 0; i < sizeof(checks) / sizeof(*checks); i++)
		checks[i](&check);
	return check.n_failed;
}
