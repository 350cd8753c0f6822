/* SPDX-License-Identifier: BSD-2-Clause */
/* kv-server as a program: options, configuration file, --check, ready, signals, restart. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/fabric/sanitized.h"
#include "tests/proc/raw.h"

#define SMALL "--pool-size", "8M"
/* RLIMIT_NOFILE that is enough to start and serve one client, with one thread for tcp */
#define FILES_OF_ONE_CLIENT 19

static char directory[] = "/tmp/rkv-test-XXXXXX";

static int
make_directory(void **state)
{
	(void)state;
	return mkdtemp(directory) ? 0 : -1;
}

static int
remove_directory(void **state)
{
	(void)state;
	return rmdir(directory);
}

static const char *
in_directory(const char *name)
{
	static char path[2][128];
	static int turn;
	turn = !turn;
	snprintf(path[turn], sizeof(path[turn]), "%s/%s", directory, name);
	return path[turn];
}

static void
write_file(const char *path, const char *text, size_t len)
{
	FILE *file = fopen(path, "we");
	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, len, file), len);
	fclose(file);
}

/* ---- Options ---- */

/* The program ends with this code, and says all of these on standard error. */
static void
expect_exit(const char *const args[], int code, const char *const parts[])
{
	struct proc *proc = proc_run("kv-server", args, NULL);
	const char *text = proc_text(proc, PROC_ERR, NULL);
	if (proc->exit_code != code)
		fail_msg("%s: exit code %d, not %d: %s", args[0], proc->exit_code, code, text);
	for (size_t i = 0; parts[i]; i++)
		if (!strstr(text, parts[i]))
			fail_msg("%s %s: no `%s` in: %s", args[0], args[1] ? args[1] : "", parts[i],
				 text);
	proc_free(proc);
}

static void
bad_options_name_the_allowed_range(void **state)
{
	static const struct {
		const char *args[5];
		const char *parts[4];
	} cases[] = {
		{{"--pool-size", "12Q"}, {"--pool-size 12Q", "1M to 256G"}},
		{{"--pool-size", "1023K"}, {"1M to 256G"}},
		{{"--pool-size", "257G"}, {"1M to 256G"}},
		{{"--pool-size", "-1"}, {"1M to 256G"}},
		{{"--pool-size", "1.5G"}, {"1M to 256G"}},
		{{"--pool-size", ""}, {"1M to 256G"}},
		{{"--pool-size", "1GG"}, {"1M to 256G"}},
		{{"--pool-size", "99999999999999999999"}, {"1M to 256G"}},
		{{"--pool-size", "17179869185G"}, {"1M to 256G"}},
		{{"--pool-size"}, {"--pool-size needs a value", "SIZE"}},
		{{"--pool-size="}, {"1M to 256G"}},
		{{"--index-slots", "x"}, {"--index-slots x", "1 to 32G"}},
		{{"--index-slots", "33G"}, {"1 to 32G"}},
		{{"--index-slots", "1M", "--pool-size", "8M"},
		 {"1048576", "1 to 458", "--pool-size"}},
		{{"--chunk-size", "5000"}, {"power of two", "4K to 64M"}},
		{{"--chunk-size", "2K"}, {"4K to 64M"}},
		{{"--chunk-size", "128M"}, {"4K to 64M"}},
		{{"--chunk-size", "4M", "--pool-size", "8M"}, {"4 chunks", "lower --chunk-size"}},
		{{"--huge-pages", "maybe"}, {"no, try or must"}},
		{{"--log-level", "loud"}, {"error, warn, info or debug"}},
		{{"--listen", "127.0.0.1:70000"}, {"--listen 127.0.0.1:70000"}},
		{{"--listen", "::1"}, {"--listen ::1", "["}},
		{{"--listen", "127.0.0.1:1,127.0.0.1:1"}, {"twice"}},
		{{"--listen", ""}, {"--listen"}},
		{{"--listen", "7440"}, {"--listen 7440", "127.0.0.1:7440", "0.0.0.0:7440"}},
		{{"--socket", ""}, {"--socket", "1 to 107"}},
		{{"--fabric", "ib"}, {"--fabric ib", "verbs, soft, shm, tcp or auto"}},
		{{"--rdma-device", ""}, {"--rdma-device", "rdma link"}},
		{{"--rdma-device", "rxe0/1"}, {"--rdma-device rxe0/1", "before the slash"}},
		{{"--rdma-address", "10.0.0.1:70000"}, {"--rdma-address 10.0.0.1:70000"}},
		{{"--rdma-address", "10.0.0.1,10.0.0.2"}, {"one address"}},
		{{"--fabric=soft", "--rdma-device", "rxe0"}, {"--fabric soft uses no RDMA device"}},
		{{"--config", ""}, {"--config", "path"}},
		{{"--config", "/nonexistent/file"},
		 {"/nonexistent/file", "No such file", "that this user may read"}},
		{{"--config", "/"}, {"--config /", "Is a directory", "give the path of a text"}},
		{{"--poolsize", "1G"}, {"`--poolsize` is not an option"}},
		{{"--pool", "1G"}, {"`--pool` is not an option"}},
		{{"--check=1"}, {"--check takes no value", "leave it out"}},
		{{"1G"}, {"`1G` is not an option"}},
		{{"--"}, {"`--` is not an option"}},
		{{""}, {"`` is not an option"}},
		{{"-p", "1G"}, {"`-p` is not an option"}},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		expect_exit(cases[i].args, 2, cases[i].parts);
}

static void
a_socket_path_that_is_too_long_is_refused(void **state)
{
	char path[200];
	(void)state;
	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	expect_exit((const char *[]){"--socket", path, NULL}, 2,
		    (const char *[]){"1 to 107 bytes", NULL});
}

static void
bad_lines_of_the_file_are_named(void **state)
{
	static char line[1100], file[(64 << 10) + 2];
	memset(line, '#', sizeof(line) - 1);
	memset(file, '\n', sizeof(file) - 1);
	const struct {
		const char *text;
		size_t len; /* 0: up to the NUL */
		const char *parts[4];
	} cases[] = {
		{"pool-size = 8M\nfoo = 1\n", 0, {"bad.conf:2", "`foo` is not an option"}},
		{"# comment\n\n pool-size 8M\n", 0, {"bad.conf:3", "name = value"}},
		{"pool-size = 8X\n", 0, {"bad.conf:1", "pool-size = 8X", "1M to 256G"}},
		{"check = 1\n", 0, {"bad.conf:1", "`check`", "command line only"}},
		{"config = x\n", 0, {"`config`", "command line only"}},
		{"= 1\n", 0, {"`` is not an option"}},
		{"pool-size = 8M\0x\n", 17, {"NUL byte"}},
		{"pool-size = 8M\n\033[2J\n", 0, {"bad.conf:2", "byte 0x1b", "ASCII"}},
		{"pool-size = 8M\n# \007\n", 0, {"bad.conf:2", "byte 0x07"}},
		{"# \303\274ber\n\303\274 = 1\n", 0, {"bad.conf:2", "byte 0xc3"}},
		{line, 0, {"bad.conf:1", "1024 bytes"}},
		{file, 0, {"64 KiB"}},
	};
	const char *path = in_directory("bad.conf");
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		write_file(path, cases[i].text,
			   cases[i].len ? cases[i].len : strlen(cases[i].text));
		expect_exit((const char *[]){"--config", path, NULL}, 2, cases[i].parts);
	}
	unlink(path);
	expect_exit((const char *[]){"--config", directory, NULL}, 2,
		    (const char *[]){"cannot be read", NULL});
}

static void
the_command_line_counts_more_than_the_file(void **state)
{
	static const char text[] = "  pool-size=16M \r\nchunk-size = 64K\n#index-slots = x\n\n"
				   "pool-size = 32M";
	const char *path = in_directory("good.conf");
	(void)state;
	write_file(path, text, strlen(text));
	struct server *server = server_start("--config", path, NULL);
	const char *out = proc_text(server->proc, PROC_OUT, NULL);
	assert_non_null(strstr(out, "pool 33554432 bytes, "));
	assert_non_null(strstr(out, "chunks of 65536 bytes"));
	assert_int_equal(server_stop(server), 0);
	server = server_start("--pool-size", "4M", "--config", path, "--pool-size=8M", NULL);
	assert_non_null(strstr(proc_text(server->proc, PROC_OUT, NULL), "pool 8388608 bytes, "));
	assert_int_equal(server_stop(server), 0);
	unlink(path);
}

static char *
read_file(const char *path)
{
	static char text[16384];
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	size_t n = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[n] = '\0';
	return text;
}

/* The sample holds every option of the file with its default: with all lines active it parses. */
static void
the_sample_file_lists_every_option(void **state)
{
	const char *path = in_directory("sample.conf");
	char *sample = read_file("deploy/kv-server.conf");
	char active[16384] = "", name[64];
	unsigned n = 0, n_help = 0;
	(void)state;
	for (char *line = strtok(sample, "\n"); line; line = strtok(NULL, "\n")) {
		if (line[0] != '#' || line[1] == ' ' || line[1] == '\0')
			continue;
		/* The port of the sample may be taken on this machine. */
		strcat(active, strncmp(line + 1, "listen", 6) ? line + 1 : "listen = 127.0.0.1:0");
		strcat(active, "\n");
		n++;
	}
	write_file(path, active, strlen(active));
	struct proc *proc =
		proc_run("kv-server", (const char *[]){"--config", path, "--check", NULL}, NULL);
	assert_string_equal(proc_text(proc, PROC_ERR, NULL), "");
	proc_free(proc);
	proc = proc_run("kv-server", (const char *[]){"--help", NULL}, NULL);
	assert_int_equal(proc->exit_code, 0);
	for (const char *help = proc_text(proc, PROC_OUT, NULL); (help = strstr(help, "\n  --"));) {
		help += 5;
		snprintf(name, sizeof(name), "%.*s = ", (int)strcspn(help, " \n"), help);
		if (strncmp(name, "config", 6) && strncmp(name, "check", 5) &&
		    strncmp(name, "pool-format", 11) && strncmp(name, "version", 7) &&
		    strncmp(name, "fsck", 4) && strncmp(name, "help", 4)) {
			n_help++;
			if (!strstr(active, name))
				fail_msg("deploy/kv-server.conf does not list %s", name);
		}
	}
	assert_int_equal(n, n_help);
	assert_in_range(n, 7, 100);
	proc_free(proc);
	unlink(path);
}

static void
version_is_printed(void **state)
{
	struct proc *proc = proc_run("kv-server", (const char *[]){"--version", NULL}, NULL);
	(void)state;
	assert_int_equal(proc->exit_code, 0);
	assert_memory_equal(proc_text(proc, PROC_OUT, NULL), "kv-server 0.", 12);
	proc_free(proc);
}

/* ---- Starting ---- */

static void
the_ready_line_says_what_is_served(void **state)
{
	struct server *server = server_start("--pool-size", "8M", "--index-slots", "1000", NULL);
	char expected[256];
	const char *out = proc_text(server->proc, PROC_OUT, NULL);
	(void)state;
	snprintf(expected, sizeof(expected),
		 "kv-server: ready on 127.0.0.1:%u, pool 8388608 bytes, 125 chunks of 65536 bytes, "
		 "index 1008 slots, fabric soft, socket @rkv-%d-%u\n",
		 server->port, (int)server->proc->pid, server->port);
	assert_string_equal(out, expected);
	assert_int_equal(server_stop(server), 0);
}

/* A device that is asked for, and is not there, is never replaced by something else. */
static void
a_missing_device_is_named(void **state)
{
	static const struct {
		const char *args[5];
		const char *parts[4];
	} cases[] = {
		{{"--listen", "127.0.0.1:0", "--rdma-device", "no_such0"},
		 {"fabric verbs: ", "--fabric soft"}},
		{{"--listen", "127.0.0.1:0", "--rdma-address", "192.0.2.77"}, {"fabric verbs: "}},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		expect_exit(cases[i].args, 1, cases[i].parts);
}

static void
the_service_manager_is_told(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *path = in_directory("notify");
	char text[64];
	(void)state;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	setenv("NOTIFY_SOCKET", path, 1);
	struct server *server = server_start(SMALL, NULL);
	unsetenv("NOTIFY_SOCKET");
	ssize_t n = recv(fd, text, sizeof(text), 0);
	assert_int_equal(n, 7);
	assert_memory_equal(text, "READY=1", 7);
	assert_int_equal(server_stop(server), 0);
	n = recv(fd, text, sizeof(text), MSG_DONTWAIT);
	assert_int_equal(n, 10);
	assert_memory_equal(text, "STOPPING=1", 10);
	close(fd);
	unlink(path);
}

static void
ipv6_is_served(void **state)
{
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	(void)state;
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		if (fd >= 0)
			close(fd);
		skip();
	}
	close(fd);
	struct server *server =
		server_start_with((const char *[]){"--listen", "[::1]:0", SMALL, NULL}, NULL);
	assert_memory_equal(server->address, "[::1]:", 6);
	address.sin6_port = htons(server->port);
	fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	close(fd);
	assert_int_equal(server_stop(server), 0);
}

static void
a_taken_port_is_named(void **state)
{
	struct server *server = server_start(SMALL, NULL);
	(void)state;
	expect_exit((const char *[]){"--listen", server->address, SMALL, NULL}, 1,
		    (const char *[]){server->address, "in use", "choose another port", NULL});
	assert_int_equal(server_stop(server), 0);
}

static void
an_address_of_elsewhere_is_named(void **state)
{
	(void)state;
	expect_exit((const char *[]){"--listen", "192.0.2.77:0", SMALL, NULL}, 1,
		    (const char *[]){"192.0.2.77", "no such address", "choose one that", NULL});
}

static void
too_large_a_pool_fails_at_once(void **state)
{
	(void)state;
	expect_exit((const char *[]){"--listen", "127.0.0.1:0", "--pool-size", "256G", NULL}, 1,
		    (const char *[]){"memory", NULL});
}

static void
refuse_io_uring(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(*code), code};
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Words of err.h that are for clients have no business in what a server says. */
static void
expect_no_words_for_clients(const char *text)
{
	static const char *const words[] = {"NOMEM", "CONN", "nothing was applied"};
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (strstr(text, words[i]))
			fail_msg("`%s` in: %s", words[i], text);
}

/* What the test was started with does not count. */
static void
close_inherited(void)
{
	for (int fd = STDERR_FILENO + 1; fd < 1024; fd++)
		close(fd);
}

static void
too_few_descriptors_are_named(void **state)
{
	static const char *const args[] = {"--listen",      "127.0.0.1:0", SMALL,
					   "--tcp-threads", "1",           NULL};
	static const char *const check[] = {"--check",       "--listen", "127.0.0.1:0", SMALL,
					    "--tcp-threads", "1",        NULL};
	char limit[64];
	(void)state;
	for (unsigned n = 7; n < FILES_OF_ONE_CLIENT; n += 2) {
		const struct proc_options few = {.n_files = n, .before_exec = close_inherited};
		struct proc *proc = proc_run("kv-server", args, &few);
		const char *text = proc_text(proc, PROC_ERR, NULL);
		snprintf(limit, sizeof(limit), "RLIMIT_NOFILE is %u)", n);
		assert_int_equal(proc->exit_code, 1);
		if (!strstr(text, limit) || !strstr(text, "ulimit -n"))
			fail_msg("%s is not explained: %s", limit, text);
		expect_no_words_for_clients(text);
		proc_free(proc);
	}
	const struct proc_options few = {.n_files = FILES_OF_ONE_CLIENT - 1,
					 .before_exec = close_inherited};
	struct proc *proc = proc_run("kv-server", check, &few);
	assert_int_equal(proc->exit_code, 1);
	assert_non_null(
		strstr(proc_text(proc, PROC_OUT, NULL), "FAIL file descriptors: only 15 file "));
	proc_free(proc);
}

/* The port of metrics and the directory of snapshots take descriptors too. */
static void
each_thing_that_is_asked_for_takes_descriptors(void **state)
{
	static const char *const more[] = {"--listen",    "127.0.0.1:0",
					   SMALL,         "--tcp-threads",
					   "1",           "--metrics-listen",
					   "127.0.0.1:0", "--snapshot-dir",
					   "/tmp",        NULL};
	(void)state;
	struct proc_options few = {.n_files = FILES_OF_ONE_CLIENT + 3,
				   .before_exec = close_inherited};
	struct proc *proc = proc_run("kv-server", more, &few);
	assert_int_equal(proc->exit_code, 1);
	assert_non_null(strstr(proc_text(proc, PROC_ERR, NULL), "only 19 file descriptors"));
	proc_free(proc);
	few.n_files++;
	struct server *server = server_start_with(more + 2, &few);
	struct raw raw;
	raw_connect(&raw, server, WIRE_ROLE_CLIENT);
	raw_map(&raw);
	raw_close(&raw);
	assert_int_equal(server_stop(server), 0);
}

/*
 * With room for one client or two they are served; the next one hears what the server lacks. Of
 * the two, one is at the pidfd and the other at the unix socket when nothing is left.
 */
static void
the_client_hears_that_the_server_has_no_descriptor(void **state)
{
	static const char *const args[] = {SMALL, "--tcp-threads", "1", NULL};
	(void)state;
	for (unsigned n = 1; n <= 2; n++) {
		const struct proc_options few = {.n_files = FILES_OF_ONE_CLIENT + n - 1,
						 .before_exec = close_inherited};
		struct server *server = server_start_with(args, &few);
		struct raw raws[2];
		for (unsigned i = 0; i < n; i++) {
			raw_connect(&raws[i], server, WIRE_ROLE_CLIENT);
			raw_map(&raws[i]);
		}
		struct proc *proc = proc_run(
			"kv-cli", (const char *[]){"--server", server->address, "get", "key", NULL},
			NULL);
		const char *text = proc_text(proc, PROC_ERR, NULL);
		assert_int_equal(proc->exit_code, 6);
		if (!strstr(text, "the server has no file descriptor left"))
			fail_msg("%u clients: %s", n, text);
		proc_free(proc);
		for (unsigned i = 0; i < n; i++)
			raw_close(&raws[i]);
		assert_int_equal(server_stop(server), 0);
	}
}

/* An empty directory in its place; 77: not allowed. */
static void
hide_proc(void)
{
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", "/proc", "tmpfs", 0, NULL))
		_exit(77);
}

static void
a_missing_proc_is_named(void **state)
{
	const struct proc_options options = {.before_exec = hide_proc};
	static const char *const args[] = {"--listen", "127.0.0.1:0", SMALL, NULL};
	(void)state;
	if (SANITIZED)
		skip(); /* their run-times read /proc */
	struct proc *proc = proc_run("kv-server", args, &options);
	const char *text = proc_text(proc, PROC_ERR, NULL);
	if (proc->exit_code == 77) {
		proc_free(proc);
		skip();
	}
	assert_int_equal(proc->exit_code, 1);
	assert_non_null(strstr(text, "mount /proc"));
	expect_no_words_for_clients(text);
	proc_free(proc);
	proc = proc_run("kv-server",
			(const char *[]){"--check", "--listen", "127.0.0.1:0", SMALL, NULL},
			&options);
	assert_int_equal(proc->exit_code, 1);
	assert_non_null(strstr(proc_text(proc, PROC_OUT, NULL), "FAIL boot id: "));
	proc_free(proc);
}

static void
limit_address_space(void)
{
	const struct rlimit limit = {256 << 20, 256 << 20};
	setrlimit(RLIMIT_AS, &limit);
}

static void
too_little_address_space_is_named(void **state)
{
	const struct proc_options options = {.before_exec = limit_address_space};
	static const char *const args[] = {"--listen", "127.0.0.1:0", "--pool-size", "250M", NULL};
	(void)state;
	if (SANITIZED)
		skip(); /* they need terabytes of it */
	struct proc *proc = proc_run("kv-server", args, &options);
	assert_int_equal(proc->exit_code, 1);
	assert_non_null(strstr(proc_text(proc, PROC_ERR, NULL), "ulimit -v"));
	proc_free(proc);
	proc = proc_run(
		"kv-server",
		(const char *[]){"--check", "--listen", "127.0.0.1:0", "--pool-size", "250M", NULL},
		&options);
	assert_int_equal(proc->exit_code, 1);
	assert_non_null(strstr(proc_text(proc, PROC_OUT, NULL), "FAIL memory: 250 MiB do not fit"));
	proc_free(proc);
	struct server *server =
		server_start_with((const char *[]){"--pool-size", "128M", NULL}, &options);
	assert_int_equal(server_stop(server), 0);
}

static void
io_uring_refused_by_seccomp_is_explained(void **state)
{
	const struct proc_options options = {.before_exec = refuse_io_uring};
	const char *const args[] = {"--listen", "127.0.0.1:0", SMALL, NULL};
	struct proc *proc = proc_run("kv-server", args, &options);
	const char *text = proc_text(proc, PROC_ERR, NULL);
	(void)state;
	assert_int_equal(proc->exit_code, 1);
	assert_non_null(strstr(text, "Operation not permitted"));
	assert_true(strstr(text, "seccomp") || strstr(text, "io_uring_disabled"));
	proc_free(proc);
	proc = proc_run("kv-server", (const char *[]){"--listen", "127.0.0.1:0", "--check", NULL},
			&options);
	assert_int_equal(proc->exit_code, 1);
	assert_non_null(strstr(proc_text(proc, PROC_OUT, NULL), "FAIL io_uring"));
	proc_free(proc);
}

/* ---- --check ---- */

static void
check_names_each_thing(void **state)
{
	static const char *const names[] = {
		"io_uring: ",       "memory: ", "huge pages: ",  "boot id: ", "file descriptors: ",
		"locked memory: ",  "port: ",   "unix socket: ", "clock: ",   "rdma devices: ",
		"tenants and TLS: "};
	const char *path = in_directory("check.sock");
	const char *const args[] = {"--check", "--listen", "127.0.0.1:0", SMALL, "--huge-pages",
				    "try",     "--socket", path,          NULL};
	struct proc *proc = proc_run("kv-server", args, NULL);
	const char *text = proc_text(proc, PROC_OUT, NULL);
	(void)state;
	assert_int_equal(proc->exit_code, 0);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strstr(text, names[i]))
			fail_msg("no `%s` in: %s", names[i], text);
	assert_null(strstr(text, "FAIL"));
	assert_int_equal(access(path, F_OK), -1);
	proc_free(proc);
}

static void
check_finds_what_would_fail(void **state)
{
	struct server *server = server_start(SMALL, NULL);
	const char *path = in_directory("a-file");
	const struct proc_options few_files = {.n_files = 200};
	(void)state;
	write_file(path, "", 0);
	const char *const args[] = {"--check",     "--listen", server->address,
				    "--pool-size", "256G",     "--socket",
				    path,          NULL};
	struct proc *proc = proc_run("kv-server", args, &few_files);
	const char *text = proc_text(proc, PROC_OUT, NULL);
	assert_int_equal(proc->exit_code, 1);
	assert_non_null(strstr(text, "FAIL port: "));
	assert_non_null(strstr(text, "FAIL memory: "));
	assert_non_null(strstr(text, "FAIL unix socket: "));
	assert_non_null(strstr(text, "WARN file descriptors: RLIMIT_NOFILE 200 is enough for 68 "));
	proc_free(proc);
	unlink(path);
	assert_int_equal(server_stop(server), 0);
}

/* ---- The unix socket's path ---- */

static void
the_socket_file_comes_and_goes(void **state)
{
	const char *path = in_directory("rkv.sock");
	struct server *server = server_start(SMALL, "--socket", path, NULL);
	struct stat st;
	(void)state;
	assert_string_equal(server->socket, path);
	assert_int_equal(stat(path, &st), 0);
	assert_true(S_ISSOCK(st.st_mode));
	/* A second server does not take it away from the first. */
	expect_exit((const char *[]){"--listen", "127.0.0.1:0", SMALL, "--socket", path, NULL}, 1,
		    (const char *[]){path, "listens", NULL});
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(server_stop(server), 0);
	assert_int_equal(stat(path, &st), -1);
}

static void
a_stale_socket_file_is_replaced(void **state)
{
	const char *path = in_directory("stale.sock");
	struct server *server = server_start(SMALL, "--socket", path, NULL);
	struct stat st;
	struct raw raw;
	(void)state;
	server_kill(server);
	assert_int_equal(stat(path, &st), 0);
	server = server_start(SMALL, "--socket", path, NULL);
	raw_connect(&raw, server, WIRE_ROLE_CLIENT);
	assert_string_equal(raw.welcome.unix_path, path);
	raw_map(&raw);
	raw_close(&raw);
	assert_int_equal(server_stop(server), 0);
	assert_int_equal(stat(path, &st), -1);
}

/* Somebody has removed it, and another server has bound the path since. */
static void
a_socket_file_of_another_is_left_alone(void **state)
{
	const char *path = in_directory("moved.sock");
	struct server *first = server_start(SMALL, "--socket", path, NULL);
	struct stat st;
	(void)state;
	assert_int_equal(unlink(path), 0);
	struct server *second = server_start(SMALL, "--socket", path, NULL);
	assert_int_equal(server_stop(first), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(server_stop(second), 0);
	assert_int_equal(stat(path, &st), -1);
}

static void
a_file_in_the_way_is_left_alone(void **state)
{
	const char *path = in_directory("precious");
	(void)state;
	write_file(path, "data", 4);
	expect_exit((const char *[]){"--listen", "127.0.0.1:0", SMALL, "--socket", path, NULL}, 1,
		    (const char *[]){path, "not a socket", NULL});
	assert_string_equal(read_file(path), "data");
	unlink(path);
}

static void
a_missing_directory_of_the_socket_is_named(void **state)
{
	(void)state;
	expect_exit((const char *[]){"--listen", "127.0.0.1:0", SMALL, "--socket",
				     "/nonexistent/rkv.sock", NULL},
		    1, (const char *[]){"/nonexistent/rkv.sock", "make its directory", NULL});
}

/* ---- Stopping ---- */

static void
sigint_and_sigterm_end_it_cleanly(void **state)
{
	static const int signals[] = {SIGTERM, SIGINT};
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct server *server = server_start(SMALL, NULL);
		struct raw raw;
		raw_connect(&raw, server, WIRE_ROLE_CLIENT);
		raw_map(&raw);
		raw_join(&raw, 0);
		proc_signal(server->proc, signals[i]);
		assert_int_equal(raw_receive(&raw), 0);
		assert_int_equal(proc_wait(server->proc, PROC_WAIT_MS), 0);
		raw_close(&raw);
		server_kill(server);
	}
}

/* Both are pending when it looks: the first begins an orderly stop, the second cuts it short. */
static void
a_second_signal_ends_it_at_once(void **state)
{
	struct server *server = server_start(SMALL, NULL);
	(void)state;
	proc_signal(server->proc, SIGSTOP);
	proc_signal(server->proc, SIGINT);
	proc_signal(server->proc, SIGTERM);
	proc_signal(server->proc, SIGCONT);
	assert_int_equal(proc_wait(server->proc, PROC_WAIT_MS), 128 + SIGTERM);
	server_kill(server);
}

/* 20 times on one port, with a client connected each time, so that its side closes last. */
static void
it_restarts_on_the_same_port_at_once(void **state)
{
	struct server *server = server_start(SMALL, NULL);
	char address[64];
	struct raw raw;
	(void)state;
	snprintf(address, sizeof(address), "%s", server->address);
	for (int i = 0; i < 20; i++) {
		raw_connect(&raw, server, WIRE_ROLE_CLIENT);
		if (i % 2)
			server_kill(server);
		else
			assert_int_equal(server_stop(server), 0);
		server =
			server_start_with((const char *[]){"--listen", address, SMALL, NULL}, NULL);
		assert_string_equal(server->address, address);
		raw_close(&raw);
	}
	assert_int_equal(server_stop(server), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bad_options_name_the_allowed_range),
		cmocka_unit_test(a_socket_path_that_is_too_long_is_refused),
		cmocka_unit_test(bad_lines_of_the_file_are_named),
		cmocka_unit_test(the_command_line_counts_more_than_the_file),
		cmocka_unit_test(the_sample_file_lists_every_option),
		cmocka_unit_test(version_is_printed),
		cmocka_unit_test(the_ready_line_says_what_is_served),
		cmocka_unit_test(a_missing_device_is_named),
		cmocka_unit_test(the_service_manager_is_told),
		cmocka_unit_test(ipv6_is_served),
		cmocka_unit_test(a_taken_port_is_named),
		cmocka_unit_test(an_address_of_elsewhere_is_named),
		cmocka_unit_test(too_large_a_pool_fails_at_once),
		cmocka_unit_test(too_few_descriptors_are_named),
		cmocka_unit_test(each_thing_that_is_asked_for_takes_descriptors),
		cmocka_unit_test(the_client_hears_that_the_server_has_no_descriptor),
		cmocka_unit_test(a_missing_proc_is_named),
		cmocka_unit_test(too_little_address_space_is_named),
		cmocka_unit_test(io_uring_refused_by_seccomp_is_explained),
		cmocka_unit_test(check_names_each_thing),
		cmocka_unit_test(check_finds_what_would_fail),
		cmocka_unit_test(the_socket_file_comes_and_goes),
		cmocka_unit_test(a_stale_socket_file_is_replaced),
		cmocka_unit_test(a_socket_file_of_another_is_left_alone),
		cmocka_unit_test(a_file_in_the_way_is_left_alone),
		cmocka_unit_test(a_missing_directory_of_the_socket_is_named),
		cmocka_unit_test(sigint_and_sigterm_end_it_cleanly),
		cmocka_unit_test(a_second_signal_ends_it_at_once),
		cmocka_unit_test(it_restarts_on_the_same_port_at_once),
	};
	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
