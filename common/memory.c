/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads the limits that a large reservation meets: RLIMIT_FSIZE, RLIMIT_AS, the cgroups around this
 * process (both versions), what the machine has left, the pool of huge pages. A file that is not
 * there limits nothing: /proc and /sys look different in every container.
 */
#include "common/memory.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/err.h"

#define TEXT_MAX 8192
#define PATH_LEN_MAX 1024
#define ADDRESS_SPACE_OTHER (UINT64_C(16) << 20) /* stacks of threads, rings, buffers */
#define MIB(bytes) ((unsigned long long)((bytes) >> 20))

static bool
read_text(const char *path, char text[TEXT_MAX])
{
	size_t len = 0;
	ssize_t n = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	while (len < TEXT_MAX - 1 && (n = read(fd, text + len, TEXT_MAX - 1 - len)) > 0)
		len += (size_t)n;
	close(fd);
	text[len] = '\0';
	return n >= 0;
}

/* The number behind `key` at the start of a line; 0 if there is none. */
static uint64_t
number_of(const char *text, const char *key)
{
	size_t len = strlen(key);
	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, len) == 0)
			return strtoull(line + len, NULL, 10);
	}
	return 0;
}

/* ---- cgroups ---- */

struct cgroup_names {
	const char *line; /* of /proc/self/cgroup, up to the path */
	const char *mount;
	const char *limit;
	const char *usage;
	const char *reclaimable[2]; /* page cache, which gives way: keys of memory.stat */
};

static const struct cgroup_names cgroup_versions[] = {
	{"0::",
	 "/sys/fs/cgroup",
	 "memory.max",
	 "memory.current",
	 {"inactive_file ", "active_file "}},
	{"memory:",
	 "/sys/fs/cgroup/memory",
	 "memory.limit_in_bytes",
	 "memory.usage_in_bytes",
	 {"total_inactive_file ", "total_active_file "}},
};

static bool
read_in(const char *dir, const char *name, char text[TEXT_MAX])
{
	char path[PATH_LEN_MAX + 64];
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return read_text(path, text);
}

static int
check_cgroup(const struct cgroup_names *names, const char *dir, uint64_t len,
	     char reason[MEMORY_REASON_MAX])
{
	char text[TEXT_MAX];
	if (!read_in(dir, names->limit, text) || text[0] < '0' || text[0] > '9')
		return 0; /* none, or "max" */
	uint64_t limit = strtoull(text, NULL, 10), used = 0, cache = 0;
	if (read_in(dir, names->usage, text))
		used = strtoull(text, NULL, 10);
	if (read_in(dir, "memory.stat", text))
		for (int i = 0; i < 2; i++)
			cache += number_of(text, names->reclaimable[i]);
	used -= cache < used ? cache : used;
	if (used <= limit && len <= limit - used)
		return 0;
	snprintf(reason, MEMORY_REASON_MAX,
		 "%llu MiB do not fit: the cgroup limit %s/%s is %llu MiB, of which %llu MiB are "
		 "used; "
		 "choose a smaller pool or raise the limit (systemd: MemoryMax=, docker: --memory)",
		 MIB(len), dir, names->limit, MIB(limit), MIB(used));
	return ERR_NOMEM;
}

/* Checks the group of this process and all those around it. */
static int
check_cgroups(const struct cgroup_names *names, const char *membership, uint64_t len,
	      char reason[MEMORY_REASON_MAX])
{
	char dir[PATH_LEN_MAX];
	const char *line = strstr(membership, names->line);
	if (!line)
		return 0;
	const char *path = line + strlen(names->line);
	int path_len = (int)strcspn(path, "\n");
	if (snprintf(dir, sizeof(dir), "%s%.*s", names->mount, path_len, path) >= (int)sizeof(dir))
		return 0;
	for (size_t mount_len = strlen(names->mount); strlen(dir) >= mount_len;) {
		int r = check_cgroup(names, dir, len, reason);
		if (r)
			return r;
		*strrchr(dir, '/') = '\0';
	}
	return 0;
}

/* ---- The machine ---- */

static int
check_file_size(uint64_t len, char reason[MEMORY_REASON_MAX])
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY ||
	    len <= limit.rlim_cur)
		return 0;
	snprintf(reason, MEMORY_REASON_MAX,
		 "%llu MiB do not fit: files are limited to %llu MiB; raise it with ulimit -f or "
		 "LimitFSIZE=",
		 MIB(len), MIB((uint64_t)limit.rlim_cur));
	return ERR_NOMEM;
}

static int
check_machine(uint64_t len, char reason[MEMORY_REASON_MAX])
{
	char text[TEXT_MAX];
	if (!read_text("/proc/meminfo", text))
		return 0;
	uint64_t available = number_of(text, "MemAvailable:") << 10;
	uint64_t swap = number_of(text, "SwapFree:") << 10;
	if (available == 0 || len <= available + swap)
		return 0;
	snprintf(reason, MEMORY_REASON_MAX,
		 "%llu MiB do not fit: this machine has %llu MiB of memory and %llu MiB of swap "
		 "left; "
		 "choose a smaller pool or free memory",
		 MIB(len), MIB(available), MIB(swap));
	return ERR_NOMEM;
}

static int
check_address_space(uint64_t len, char reason[MEMORY_REASON_MAX])
{
	char text[TEXT_MAX];
	struct rlimit limit;
	if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return 0;
	uint64_t used = 0;
	if (read_text("/proc/self/statm", text))
		used = strtoull(text, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
	used += ADDRESS_SPACE_OTHER;
	if (used <= limit.rlim_cur && len <= limit.rlim_cur - used)
		return 0;
	snprintf(reason, MEMORY_REASON_MAX,
		 "%llu MiB do not fit: the address space is limited to %llu MiB, of which %llu MiB "
		 "are used or needed for other things; choose a smaller pool or raise the limit "
		 "with ulimit -v or LimitAS=",
		 MIB(len), MIB((uint64_t)limit.rlim_cur), MIB(used));
	return ERR_NOMEM;
}

/* What this process may have, whatever the machine has. */
static int
check_process(uint64_t len, char reason[MEMORY_REASON_MAX])
{
	int r = check_file_size(len, reason);
	return r ? r : check_address_space(len, reason);
}

int
memory_fits_file(uint64_t len, char reason[MEMORY_REASON_MAX])
{
	return check_process(len, reason);
}

int
memory_fits(uint64_t len, char reason[MEMORY_REASON_MAX])
{
	char membership[TEXT_MAX];
	int r = check_process(len, reason);
	if (!r)
		r = check_machine(len, reason);
	if (r || !read_text("/proc/self/cgroup", membership))
		return r;
	for (size_t i = 0; i < sizeof(cgroup_versions) / sizeof(cgroup_versions[0]) && !r; i++)
		r = check_cgroups(&cgroup_versions[i], membership, len, reason);
	return r;
}

/* ---- Huge pages ---- */

uint64_t
memory_huge_page_size(void)
{
	char text[TEXT_MAX];
	return read_text("/proc/meminfo", text) ? number_of(text, "Hugepagesize:") << 10 : 0;
}

int
memory_fits_huge(uint64_t len, char reason[MEMORY_REASON_MAX])
{
	char text[TEXT_MAX];
	uint64_t size = memory_huge_page_size();
	if (size == 0 || !read_text("/proc/meminfo", text)) {
		snprintf(reason, MEMORY_REASON_MAX,
			 "this kernel has no huge pages: do without (--huge-pages no)");
		return ERR_NOMEM;
	}
	uint64_t n_needed = (len + size - 1) / size;
	uint64_t n_free = number_of(text, "HugePages_Free:");
	uint64_t n_reserved = number_of(text, "HugePages_Rsvd:");
	if (n_needed <= n_free - (n_reserved < n_free ? n_reserved : n_free))
		return check_process(len, reason);
	snprintf(reason, MEMORY_REASON_MAX,
		 "%llu huge pages of %llu KiB are needed and %llu are free; reserve more with "
		 "sysctl "
		 "vm.nr_hugepages",
		 (unsigned long long)n_needed, (unsigned long long)(size >> 10),
		 (unsigned long long)n_free);
	return ERR_NOMEM;
}
