/* SPDX-License-Identifier: BSD-2-Clause */
/* Starting, watching and ending the programs under test: proc.h. */
#include "tests/proc/proc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define ARGS_MAX 64

static int64_t
now_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

int64_t
proc_deadline(int timeout_ms)
{
	return now_ns() + timeout_ms * INT64_C(1000000);
}

bool
proc_pause(int64_t deadline_ns)
{
	if (now_ns() >= deadline_ns)
		return false;
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	return true;
}

static int
memory_file(const void *bytes, size_t len)
{
	int fd = memfd_create("rkv-test", MFD_CLOEXEC);
	if (fd < 0)
		fail_msg("memfd_create: %s", strerror(errno));
	for (size_t done = 0; done < len;) {
		ssize_t n = write(fd, (const char *)bytes + done, len - done);
		if (n <= 0)
			fail_msg("writing a program's input: %s", strerror(errno));
		done += (size_t)n;
	}
	lseek(fd, 0, SEEK_SET);
	return fd;
}

static void
program_path(const char *program, char *path, size_t len)
{
	const char *build = getenv("RKV_BUILD");
	if (program[0] == '/')
		snprintf(path, len, "%s", program);
	else
		snprintf(path, len, "%s/%s", build ? build : "build", program);
}

/* In the child: async-signal-safe calls only. */
static void
become(const char *path, char *const argv[], const int fd[3], const struct proc_options *options,
       pid_t parent)
{
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);
	for (int i = 0; i < 3; i++)
		if (dup2(fd[i], i) < 0)
			_exit(127);
	if (options->n_files) {
		struct rlimit limit = {options->n_files, options->n_files};
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	if (options->before_exec)
		options->before_exec();
	execv(path, argv);
	dprintf(2, "cannot run %s: errno %d\n", path, errno);
	_exit(127);
}

struct proc *
proc_start(const char *program, const char *const args[], const struct proc_options *options)
{
	static const struct proc_options none;
	struct proc *proc = calloc(1, sizeof(*proc));
	char path[4096];
	char *argv[ARGS_MAX + 2] = {path};
	if (!proc)
		fail_msg("out of memory");
	for (size_t i = 0; args && args[i]; i++) {
		if (i == ARGS_MAX)
			fail_msg("more than %d arguments", ARGS_MAX);
		argv[i + 1] = (char *)(uintptr_t)args[i];
	}
	options = options ? options : &none;
	program_path(program, path, sizeof(path));
	snprintf(proc->name, sizeof(proc->name), "%s", program);
	int input = memory_file(options->input, options->input_len);
	for (int i = 0; i < 2; i++) {
		proc->fd[i] = memory_file(NULL, 0);
		fcntl(proc->fd[i], F_SETFL, O_APPEND);
	}
	pid_t parent = getpid();
	proc->pid = fork();
	if (proc->pid < 0)
		fail_msg("fork: %s", strerror(errno));
	if (proc->pid == 0)
		become(path, argv, (int[]){input, proc->fd[PROC_OUT], proc->fd[PROC_ERR]}, options,
		       parent);
	close(input);
	return proc;
}

static bool
reap(struct proc *proc, int flags)
{
	int status;
	if (proc->ended)
		return true;
	if (waitpid(proc->pid, &status, flags) != proc->pid)
		return false;
	proc->ended = true;
	proc->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	return true;
}

int
proc_wait(struct proc *proc, int timeout_ms)
{
	int64_t deadline = proc_deadline(timeout_ms);
	while (!reap(proc, WNOHANG))
		if (!proc_pause(deadline))
			return -1;
	return proc->exit_code;
}

const char *
proc_text(struct proc *proc, enum proc_stream stream, size_t *ret_len)
{
	struct stat st;
	if (fstat(proc->fd[stream], &st) < 0)
		fail_msg("fstat: %s", strerror(errno));
	char *text = realloc(proc->text[stream], (size_t)st.st_size + 1);
	if (!text)
		fail_msg("out of memory");
	ssize_t n = pread(proc->fd[stream], text, (size_t)st.st_size, 0);
	if (n < 0)
		fail_msg("reading a program's output: %s", strerror(errno));
	text[n] = '\0';
	proc->text[stream] = text;
	if (ret_len)
		*ret_len = (size_t)n;
	return text;
}

struct proc *
proc_run(const char *program, const char *const args[], const struct proc_options *options)
{
	struct proc *proc = proc_start(program, args, options);
	if (proc_wait(proc, PROC_WAIT_MS) < 0) {
		proc_kill(proc);
		fail_msg("%s did not end; it said: %s%s", program, proc_text(proc, PROC_OUT, NULL),
			 proc_text(proc, PROC_ERR, NULL));
	}
	return proc;
}

bool
proc_wait_text(struct proc *proc, enum proc_stream stream, const char *part, int timeout_ms)
{
	int64_t deadline = proc_deadline(timeout_ms);
	for (;;) {
		bool ended = reap(proc, WNOHANG); /* before the look: nothing comes after it */
		if (strstr(proc_text(proc, stream, NULL), part))
			return true;
		if (ended || !proc_pause(deadline))
			return false;
	}
}

void
proc_signal(struct proc *proc, int signal)
{
	if (!proc->ended)
		kill(proc->pid, signal);
}

void
proc_kill(struct proc *proc)
{
	proc_signal(proc, SIGKILL);
	reap(proc, 0);
}

void
proc_free(struct proc *proc)
{
	if (!proc)
		return;
	proc_kill(proc);
	for (int i = 0; i < 2; i++) {
		close(proc->fd[i]);
		free(proc->text[i]);
	}
	free(proc);
}

uint16_t
proc_free_port(void)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(addr);
	const int on = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    bind(fd, (struct sockaddr *)&addr, len) < 0 ||
	    getsockname(fd, (struct sockaddr *)&addr, &len) < 0)
		fail_msg("no free port: %s", strerror(errno));
	return ntohs(addr.sin_port); /* and fd stays open */
}

/* ---- A server ---- */

static void
parse_ready(struct server *server)
{
	const char *line = strstr(proc_text(server->proc, PROC_OUT, NULL), "ready on ");
	const char *path = line ? strstr(line, "socket ") : NULL;
	const char *fabric = line ? strstr(line, "fabric ") : NULL;
	if (!fabric || sscanf(fabric, "fabric %7[a-z]", server->fabric) != 1 ||
	    sscanf(line, "ready on %63[^ ,\n]", server->address) != 1 ||
	    (path && sscanf(path, "socket %127[^\n]", server->socket) != 1))
		fail_msg("not a ready line: %s", proc_text(server->proc, PROC_OUT, NULL));
	server->port = (uint16_t)atoi(strrchr(server->address, ':') + 1);
}

/*
 * Appends the words of RKV_SERVER_ARGS, which lie in a copy that stays. Without them a machine with
 * an RDMA device is tested as any other one.
 */
static void
add_environment(const char *args[], size_t n)
{
	static char words[512];
	const char *text = getenv("RKV_SERVER_ARGS");
	char *rest = words;
	if (!text)
		text = "--fabric soft";
	snprintf(words, sizeof(words), "%s", text);
	for (char *word; (word = strsep(&rest, " ")) != NULL;) {
		if (n == ARGS_MAX)
			fail_msg("more than %d arguments", ARGS_MAX);
		args[n++] = word;
	}
}

struct server *
server_start_with(const char *const args[], const struct proc_options *options)
{
	const char *all[ARGS_MAX + 1] = {"--listen", "127.0.0.1:0"};
	struct server *server = calloc(1, sizeof(*server));
	size_t n = 2;
	if (!server)
		fail_msg("out of memory");
	for (size_t i = 0; args[i]; i++) {
		if (n == ARGS_MAX)
			fail_msg("more than %d arguments", ARGS_MAX - 2);
		all[n++] = args[i];
	}
	add_environment(all, n);
	server->proc = proc_start("kv-server", all, options);
	/* The whole line at once: the server writes it with one call. */
	if (!proc_wait_text(server->proc, PROC_OUT, "ready on ", PROC_WAIT_MS)) {
		proc_kill(server->proc);
		fail_msg("kv-server did not get ready; it said: %s",
			 proc_text(server->proc, PROC_ERR, NULL));
	}
	parse_ready(server);
	return server;
}

struct server *
server_start(const char *option, ...)
{
	const char *args[ARGS_MAX + 1] = {NULL};
	va_list ap;
	va_start(ap, option);
	for (size_t i = 0; option; option = va_arg(ap, const char *)) {
		if (i == ARGS_MAX)
			fail_msg("more than %d arguments", ARGS_MAX);
		args[i++] = option;
	}
	va_end(ap);
	return server_start_with(args, NULL);
}

int
server_stop(struct server *server)
{
	proc_signal(server->proc, SIGTERM);
	int code = proc_wait(server->proc, PROC_WAIT_MS);
	if (code != 0)
		print_error("kv-server ended with %d; it said: %s\n", code,
			    proc_text(server->proc, PROC_ERR, NULL));
	server_kill(server);
	return code;
}

void
server_kill(struct server *server)
{
	if (!server)
		return;
	proc_free(server->proc);
	free(server);
}
