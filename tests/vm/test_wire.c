/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two devices, and what happens on the wire between them: cut for a moment, nobody notices; cut for
 * seconds, operations fail soon, sessions heal once it is mended, and nothing wrong was read. The
 * control connection runs beside the wire, or on it. Runs in the virtual machine, devices.sh.
 *
 * The server serves on rxe0, 10.77.0.1; the way there leads through rxe1. timeout: 300
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "client/include/rkv.h"
#include "tests/proc/load.h"
#include "tests/proc/proc.h"

#define N_LOADS 2u
#define N_KEYS 8u
#define HISTORY_MAX 200000u
#define BURST_OPS 50u

#define SHORT_CUT_MS 50u
#define SHORT_CUTS 10u
#define LONG_CUT_MS 5000u
#define OP_TIMEOUT_MS 500u    /* ends an operation, but only once its queue pair is dead, [LOCAL] */
#define ERROR_WITHIN_MS 1000u /* so long may that take */

static struct server *server;
static struct rkv_client *client;
static struct rkv_client *patient; /* with the usual time-out: for loads that nothing disturbs */
static struct rkv_session *probe;
static FILE *shaper; /* a tc that does what it reads, without the start of a program for each */

static struct load loads[N_LOADS];
static pthread_t threads[N_LOADS];
static _Atomic bool load_stop;
static _Atomic unsigned n_bursts[N_LOADS];

static void
pause_ms(unsigned ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static int64_t
now_ms(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000) + ts.tv_nsec / 1000000;
}

/* ---- The wire ---- */

static void
lose(unsigned percent)
{
	fprintf(shaper,
		"qdisc replace dev va root netem loss %u%%\n"
		"qdisc replace dev vb root netem loss %u%%\n",
		percent, percent);
	assert_int_equal(fflush(shaper), 0);
}

static void
lose_all(void)
{
	lose(100);
}

static void
lose_nothing(void)
{
	lose(0);
}

/* Packets that were lost on the wire since the machine started. */
static unsigned long
count_lost(void)
{
	unsigned long lost = 0;
	int n = 0;
	FILE *file = popen("tc -s qdisc show dev va; tc -s qdisc show dev vb", "re");
	assert_non_null(file);
	char line[256];
	while (fgets(line, sizeof(line), file)) {
		unsigned long one;
		const char *at = strstr(line, "dropped ");
		if (at && sscanf(at, "dropped %lu", &one) == 1) {
			lost += one;
			n++;
		}
	}
	assert_int_equal(pclose(file), 0);
	assert_true(n >= 2);
	return lost;
}

static void
pull_cable(void)
{
	assert_int_equal(system("bash -c '. tests/vm/devices.sh; cut_wire'"), 0);
}

static void
plug_in(void)
{
	assert_int_equal(system("bash -c '. tests/vm/devices.sh; mend_wire'"), 0);
}

/* ---- Load ---- */

static void *
run_load(void *arg)
{
	struct load *load = arg;
	while (!atomic_load(&load_stop) && !load->n_bad &&
	       load->n_history + 2 * BURST_OPS < HISTORY_MAX) {
		load_mix(load, BURST_OPS);
		atomic_fetch_add(&n_bursts[load - loads], 1);
	}
	return NULL;
}

/* Until each has got something done. */
static void
await_bursts(void)
{
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	for (unsigned i = 0; i < N_LOADS; i++) {
		unsigned n = atomic_load(&n_bursts[i]);
		while (atomic_load(&n_bursts[i]) < n + 3)
			assert_true(proc_pause(deadline));
	}
}

/* A history begins with nothing there. */
static void
remove_keys(void)
{
	char key[LOAD_KEY_TEXT];
	for (unsigned i = 0; i < N_KEYS; i++) {
		int rc = rkv_delete(probe, key, load_key(i, key));
		assert_true(rc == RKV_OK || rc == RKV_NOT_FOUND);
	}
}

static void
start_load(bool may_fail)
{
	atomic_store(&load_stop, false);
	remove_keys();
	for (unsigned i = 0; i < N_LOADS; i++) {
		loads[i] = (struct load){.n_keys = N_KEYS,
					 .writer = i + 1,
					 .random = i + 1,
					 .depth = i ? 8 : 0,
					 .may_fail = may_fail,
					 .history = calloc(HISTORY_MAX, sizeof(struct lin_op))};
		assert_non_null(loads[i].history);
		assert_int_equal(rkv_session_open(may_fail ? client : patient, &loads[i].session),
				 RKV_OK);
	}
	for (unsigned i = 0; i < N_LOADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, run_load, &loads[i]), 0);
	await_bursts();
}

/* Ends it; every answer was one that a linearisable store gives. Returns how many links it lost. */
static uint64_t
stop_load(void)
{
	struct lin_history *history;
	struct lin_report report;
	struct rkv_stats_values stats;
	uint64_t n_lost = 0;
	assert_int_equal(lin_history_new(&history), 0);
	atomic_store(&load_stop, true);
	for (unsigned i = 0; i < N_LOADS; i++) {
		struct load *load = &loads[i];
		pthread_join(threads[i], NULL);
		assert_int_equal(load->n_bad, 0);
		assert_true(load->n_done > BURST_OPS);
		assert_int_equal(rkv_stats(load->session, &stats), RKV_OK);
		n_lost += stats.n_reconnects;
		assert_int_equal(lin_history_add(history, load->history, load->n_history), 0);
		rkv_session_close(load->session);
		print_message("# load %u: %llu done, %llu failed, %llu links lost\n", i,
			      (unsigned long long)load->n_done, (unsigned long long)load->n_failed,
			      (unsigned long long)stats.n_reconnects);
	}
	int verdict = lin_check(history, NULL, &report);
	if (verdict != LIN_OK)
		lin_dump(history, &report, stderr);
	assert_int_equal(verdict, LIN_OK);
	lin_history_free(history);
	for (unsigned i = 0; i < N_LOADS; i++)
		free(loads[i].history);
	return n_lost;
}

/* ---- Server and client ---- */

static void
log_line(void *arg, int level, const char *line)
{
	(void)arg;
	fprintf(stderr, "# %lld ms, level %d: %s\n", (long long)now_ms(), level, line);
}

static void
begin(const char *listen, const char *address)
{
	const char *args[] = {"--listen", listen, "--pool-size", "32M", "--insecure", NULL};
	char fabric[64];
	struct rkv_options options;
	rkv_options_init(&options);
	options.log = log_line;
	snprintf(fabric, sizeof(fabric), "--fabric verbs --rdma-address %s", address);
	setenv("RKV_SERVER_ARGS", fabric, 1);
	server = server_start_with(args, NULL);
	assert_int_equal(rkv_open(server->address, &options, &patient), RKV_OK);
	options.op_timeout_ms = OP_TIMEOUT_MS;
	assert_int_equal(rkv_open(server->address, &options, &client), RKV_OK);
	assert_int_equal(rkv_session_open(client, &probe), RKV_OK);
	assert_int_equal(rkv_put(probe, "probe", 5, "value", 5, NULL, NULL), RKV_OK);
}

static void
end(void)
{
	rkv_session_close(probe);
	rkv_close(client);
	rkv_close(patient);
	assert_int_equal(server_stop(server), 0);
	server = NULL;
}

static int
end_anyway(void **state)
{
	(void)state;
	server_kill(server);
	server = NULL;
	lose_nothing();
	plug_in();
	return 0;
}

static int
look(void)
{
	char value[8];
	int rc = rkv_get(probe, "probe", 5, value, sizeof(value), NULL);
	if (rc == RKV_OK)
		assert_memory_equal(value, "value", 5);
	return rc;
}

/* ---- Cuts ---- */

static void
cut_shortly(const char *listen)
{
	begin(listen, "10.77.0.1");
	start_load(false);
	unsigned long lost = count_lost();
	for (unsigned i = 0; i < SHORT_CUTS; i++) {
		pause_ms(100);
		lose_all();
		pause_ms(SHORT_CUT_MS);
		lose_nothing();
		assert_int_equal(look(), RKV_OK);
	}
	assert_int_equal(stop_load(), 0);
	lost = count_lost() - lost;
	print_message("# %lu packets were lost\n", lost);
	assert_true(lost > 0);
	end();
}

static void
cut_for_long(const char *listen, void (*cut)(void), void (*mend)(void))
{
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	int rc;
	begin(listen, "10.77.0.1");
	start_load(true);
	cut();
	int64_t cut_ms = now_ms();
	while ((rc = look()) == RKV_OK)
		assert_true(proc_pause(deadline));
	int64_t failed_ms = now_ms();
	print_message("# an operation failed %lld ms after the cut: %s\n",
		      (long long)(failed_ms - cut_ms), rkv_strerror(rc));
	assert_true(failed_ms - cut_ms < ERROR_WITHIN_MS);
	while (now_ms() < cut_ms + LONG_CUT_MS) {
		rc = look();
		assert_true(rc == RKV_E_CONN || rc == RKV_E_TIMEOUT);
	}
	mend();
	int64_t mended_ms = now_ms();
	while ((rc = look()) != RKV_OK) {
		assert_true(rc == RKV_E_CONN || rc == RKV_E_TIMEOUT);
		assert_true(proc_pause(deadline));
	}
	print_message("# healed %lld ms after it was mended\n", (long long)(now_ms() - mended_ms));
	await_bursts();
	assert_true(stop_load() > 0);
	/* All is as before. */
	start_load(false);
	assert_int_equal(stop_load(), 0);
	end();
}

static void
test_short_cut(void **state)
{
	(void)state;
	cut_shortly("127.0.0.1:0");
}

static void
test_short_cut_of_all(void **state)
{
	(void)state;
	cut_shortly("10.77.0.1:0");
}

static void
test_long_loss(void **state)
{
	(void)state;
	cut_for_long("127.0.0.1:0", lose_all, lose_nothing);
}

static void
test_long_loss_of_all(void **state)
{
	(void)state;
	cut_for_long("10.77.0.1:0", lose_all, lose_nothing);
}

static void
test_pulled_cable(void **state)
{
	(void)state;
	cut_for_long("127.0.0.1:0", pull_cable, plug_in);
}

static void
test_pulled_cable_of_all(void **state)
{
	(void)state;
	cut_for_long("10.77.0.1:0", pull_cable, plug_in);
}

/* ---- The other device ---- */

static void
test_second_device(void **state)
{
	(void)state;
	begin("127.0.0.1:0", "10.77.0.2");
	const char *said = proc_text(server->proc, PROC_ERR, NULL);
	print_message("# %s", said);
	assert_non_null(strstr(said, "rxe1"));
	assert_null(strstr(said, "rxe0"));
	start_load(false);
	assert_int_equal(stop_load(), 0);
	end();
}

static int
start_shaper(void **state)
{
	(void)state;
	shaper = popen("tc -batch -", "w");
	return shaper ? 0 : -1;
}

static int
stop_shaper(void **state)
{
	(void)state;
	return pclose(shaper);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_second_device, end_anyway),
		cmocka_unit_test_teardown(test_short_cut, end_anyway),
		cmocka_unit_test_teardown(test_short_cut_of_all, end_anyway),
		cmocka_unit_test_teardown(test_long_loss, end_anyway),
		cmocka_unit_test_teardown(test_long_loss_of_all, end_anyway),
		cmocka_unit_test_teardown(test_pulled_cable, end_anyway),
		cmocka_unit_test_teardown(test_pulled_cable_of_all, end_anyway),
	};
	return cmocka_run_group_tests(tests, start_shaper, stop_shaper);
}
