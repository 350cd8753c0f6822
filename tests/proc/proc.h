/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Real processes for tests: start a program of $RKV_BUILD, look at what it prints, end it. What it
 * prints goes to memory files, so that it never blocks on a reader that is busy elsewhere. Every
 * wait has a deadline. What a test cannot go on without (fork, memory, a server that does not get
 * ready) fails the running cmocka test with what the program said.
 *
 * A program started here is killed when the thread that started it ends, whatever happened.
 */
#ifndef RKV_TESTS_PROC_H
#define RKV_TESTS_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROC_WAIT_MS 30000 /* long enough under every sanitizer on a busy machine */

enum proc_stream { PROC_OUT, PROC_ERR };

struct proc {
	pid_t pid;
	bool ended;
	int exit_code; /* once ended; 128 + signal if a signal ended it */
	int fd[2];     /* memory files, by enum proc_stream */
	char *text[2]; /* what proc_text returned last */
	char name[64];
};

/* Everything may be left 0. */
struct proc_options {
	const void *input; /* standard input; empty if NULL */
	size_t input_len;
	unsigned n_files;          /* RLIMIT_NOFILE, soft and hard */
	void (*before_exec)(void); /* in the child: async-signal-safe calls only */
};

/*
 * Starts $RKV_BUILD/program (or an absolute path); args ends with NULL and does not hold the
 * program's name; options may be NULL. Never returns NULL.
 */
struct proc *proc_start(const char *program, const char *const args[],
			const struct proc_options *options);

/* Waits for the end and returns the exit code (128 + signal), or -1 if it runs on. */
int proc_wait(struct proc *proc, int timeout_ms);

/* proc_start and proc_wait; a program that does not end in PROC_WAIT_MS fails the test. */
struct proc *proc_run(const char *program, const char *const args[],
		      const struct proc_options *options);

/* All it has printed so far, NUL-terminated; valid until the next call for that stream. */
const char *proc_text(struct proc *proc, enum proc_stream stream, size_t *ret_len);

/* Waits until that text holds `part`; false at the deadline or when the program ends without it. */
bool proc_wait_text(struct proc *proc, enum proc_stream stream, const char *part, int timeout_ms);

void proc_signal(struct proc *proc, int signal);

/* Kills it (SIGKILL) if it still runs, reaps it. */
void proc_kill(struct proc *proc);

/* proc_kill, and frees. NULL is nothing. */
void proc_free(struct proc *proc);

/*
 * A TCP port of 127.0.0.1 on which nobody listens. This process holds it until it ends, bound: the
 * kernel gives it to nobody else, and who sets SO_REUSEADDR may listen there, as kv-server does,
 * also once more.
 */
uint16_t proc_free_port(void);

/* Sleeps a moment inside a loop that waits for something; false once the deadline has passed. */
bool proc_pause(int64_t deadline_ns);
int64_t proc_deadline(int timeout_ms);

/* A kv-server that is ready. */
struct server {
	struct proc *proc;
	uint16_t port;
	char address[64]; /* as rkv_open takes it */
	char fabric[8];   /* "verbs", "soft", "shm" or "tcp" */
	char socket[128]; /* unix socket, "@name" if abstract; "" if it serves no clients by shm */
};

/*
 * Starts kv-server on a free port of 127.0.0.1 with the given further options (strings, ended by
 * NULL), e.g. server_start("--pool-size", "64M", NULL), and waits until it is ready. Last come the
 * words of RKV_SERVER_ARGS: so the same tests run over another fabric than `--fabric soft`.
 */
struct server *server_start(const char *option, ...);

/* The same with an argument vector (ended by NULL, may hold its own --listen) and limits. */
struct server *server_start_with(const char *const args[], const struct proc_options *options);

/* SIGTERM, waits, frees; returns the exit code (0 if all is well). */
int server_stop(struct server *server);

/* SIGKILL, waits, frees. NULL is nothing. */
void server_kill(struct server *server);

#endif
