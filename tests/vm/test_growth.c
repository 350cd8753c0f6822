/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thousand clients come and go, first one after another from one process: what the server and the
 * process hold afterwards, file descriptors, memory and the device's own objects, is what they held
 * after the first hundred. Runs in the virtual machine. timeout: 300
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/include/rkv.h"
#include "tests/proc/load.h"
#include "tests/proc/proc.h"

#define N_FIRST 100u
#define N_ALL 1000u
#define GROWTH_KIB 64 /* a leak of 100 bytes a client is more */

static struct server *server;

struct holding {
	unsigned n_fds[2]; /* of the server, of this process */
	long kib[2];
	char objects[512]; /* of all devices, as `rdma resource` counts them */
};

static unsigned
count_fds(pid_t pid)
{
	char path[64];
	unsigned n = 0;
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	DIR *dir = opendir(path);
	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* What this process has allocated; what is resident depends on where the allocator has holes. */
static long
allocated_kib(void)
{
	struct mallinfo2 info = mallinfo2();
	return (long)((info.uordblks + info.hblkhd) >> 10);
}

/* Anonymous memory that is there: the pool is shared memory, and counted elsewhere. */
static long
resident_kib(pid_t pid)
{
	char path[64], line[256];
	long kib = -1;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "RssAnon: %ld", &kib) == 1)
			break;
	fclose(file);
	assert_true(kib > 0);
	return kib;
}

static void
look(struct holding *ret_holding)
{
	pid_t pid[2] = {server->proc->pid, getpid()};
	FILE *file = popen("rdma resource show", "re");
	assert_non_null(file);
	size_t n = fread(ret_holding->objects, 1, sizeof(ret_holding->objects) - 1, file);
	ret_holding->objects[n] = '\0';
	assert_int_equal(pclose(file), 0);
	assert_non_null(strstr(ret_holding->objects, "qp "));
	for (int i = 0; i < 2; i++)
		ret_holding->n_fds[i] = count_fds(pid[i]);
	ret_holding->kib[0] = resident_kib(pid[0]);
	ret_holding->kib[1] = allocated_kib();
	print_message("# fds %u and %u, memory %ld KiB and %ld KiB, %s", ret_holding->n_fds[0],
		      ret_holding->n_fds[1], ret_holding->kib[0], ret_holding->kib[1],
		      ret_holding->objects);
}

/* The same, once two looks agree: what the last client had goes a moment after it. */
static void
look_until_settled(struct holding *ret_holding)
{
	const struct timespec pause = {.tv_nsec = 100000000};
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	struct holding before;
	look(ret_holding);
	do {
		before = *ret_holding;
		nanosleep(&pause, NULL);
		look(ret_holding);
	} while ((before.n_fds[0] != ret_holding->n_fds[0] ||
		  strcmp(before.objects, ret_holding->objects) != 0) &&
		 proc_pause(deadline));
}

static void
come_and_go(unsigned i)
{
	struct rkv_client *client;
	struct rkv_session *session;
	char key[LOAD_KEY_TEXT];
	unsigned got;
	size_t len = load_key(i % 2 ? i : 0, key);
	assert_int_equal(rkv_open(server->address, NULL, &client), RKV_OK);
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
	assert_int_equal(rkv_put(session, key, len, &i, sizeof(i), NULL, NULL), RKV_OK);
	assert_int_equal(rkv_get(session, key, len, &got, sizeof(got), NULL), RKV_OK);
	assert_int_equal(got, i);
	rkv_close(client);
}

/* The server has noticed that all are gone. */
static void
await_quiet(void)
{
	struct rkv_client *client;
	assert_int_equal(rkv_open(server->address, NULL, &client), RKV_OK);
	assert_true(load_await_counter(client, "sessions", 0, 0, PROC_WAIT_MS));
	assert_true(load_await_counter(client, "sessions_ending", 0, 0, PROC_WAIT_MS));
	rkv_close(client);
}

static void
test_come_and_go(void **state)
{
	struct holding first, last;
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	unsigned i = 0;
	(void)state;
	server = server_start("--pool-size", "16M", NULL);
	while (i < N_FIRST)
		come_and_go(i++);
	await_quiet();
	look_until_settled(&first);
	while (i < N_ALL)
		come_and_go(i++);
	await_quiet();
	do
		look(&last); /* the last connection goes a moment after its client */
	while ((last.n_fds[0] > first.n_fds[0] || strcmp(last.objects, first.objects) != 0) &&
	       proc_pause(deadline));
	assert_string_equal(last.objects, first.objects);
	for (int k = 0; k < 2; k++) {
		assert_true(last.n_fds[k] <= first.n_fds[k]);
		assert_true(last.kib[k] <= first.kib[k] + GROWTH_KIB);
	}
	assert_int_equal(server_stop(server), 0);
	server = NULL;
}

int
main(void)
{
	mallopt(M_ARENA_MAX, 1); /* mallinfo2 knows of one */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_come_and_go),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
