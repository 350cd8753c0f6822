/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kv-bench against a kv-server: counts are exact, kinds add up, nothing is hidden from the exit
 * code. What it counted is read from its JSON report, whose keys are looked up in the order in
 * which they stand there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "bench/generator.h"
#include "bench/value.h"
#include "client/include/rkv.h"
#include "tests/proc/proc.h"

#define ARGS 40

static struct server *server;

/* The test's own view of the store. */
static struct rkv_client *client;
static struct rkv_session *session;

static void
connect_client(void)
{
	assert_int_equal(rkv_open(server->address, NULL, &client), RKV_OK);
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
}

static void
disconnect_client(void)
{
	rkv_session_close(session);
	rkv_close(client);
}

/* ---- Running it ---- */

/* kv-bench on our server; the options are one string, with single blanks between them. */
static struct proc *
start_bench(const char *options)
{
	char words[512];
	const char *args[ARGS] = {"--server", server->address};
	int n = 2;
	char *rest = words;
	char *word;
	assert_true(strlen(options) < sizeof(words));
	strcpy(words, options);
	while ((word = strsep(&rest, " ")) != NULL) {
		assert_true(n < ARGS - 1);
		args[n++] = word;
	}
	args[n] = NULL;
	return proc_start("kv-bench", args, NULL);
}

static struct proc *
run_bench(const char *options, int exit_code)
{
	struct proc *bench = start_bench(options);
	if (proc_wait(bench, PROC_WAIT_MS) != exit_code)
		fail_msg("kv-bench %s: exit code %d, not %d\n%s%s", options, bench->exit_code,
			 exit_code, proc_text(bench, PROC_OUT, NULL),
			 proc_text(bench, PROC_ERR, NULL));
	return bench;
}

/* What stands behind the keys, each sought behind the one before; the last argument is NULL. */
static const char *
behind(const char *json, ...)
{
	va_list keys;
	const char *key;
	va_start(keys, json);
	while ((key = va_arg(keys, const char *)) != NULL) {
		char quoted[64];
		snprintf(quoted, sizeof(quoted), "\"%s\": ", key);
		json = strstr(json, quoted);
		if (json == NULL) {
			va_end(keys);
			fail_msg("no key %s in the report", key);
		}
		json += strlen(quoted);
	}
	va_end(keys);
	return json;
}

static uint64_t
count_of(const char *json, const char *key)
{
	return strtoull(behind(json, key, NULL), NULL, 10);
}

/* The phase of that name in a report. */
static const char *
phase_of(struct proc *bench, const char *name)
{
	char text[64];
	snprintf(text, sizeof(text), "\"phase\": \"%s\"", name);
	const char *phase = strstr(proc_text(bench, PROC_OUT, NULL), text);
	assert_non_null(phase);
	return phase;
}

/* The kind of operation in the last phase, NULL if there was none. */
static const char *
type_of(const char *phase, const char *name)
{
	char text[64];
	snprintf(text, sizeof(text), "\"type\": \"%s\"", name);
	return strstr(phase, text);
}

/* ---- What holds in every phase ---- */

static void
assert_percentiles_rise(const char *type)
{
	const char *latency = behind(type, "latency_ns", NULL);
	const char *const names[] = {"p50", "p90", "p99", "p99.9", "max"};
	uint64_t before = 0;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		uint64_t value = count_of(latency, names[i]);
		assert_true(value >= before);
		before = value;
	}
	assert_true(before > 0);
}

/* All was done, the kinds add up to it, and rate x time is what was done. */
static void
assert_all_done(const char *phase, uint64_t n_operations)
{
	static const char *const types[] = {"read", "update", "insert", "rmw (cas)", "rmw (blind)"};
	uint64_t n = 0;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		const char *type = type_of(phase, types[i]);
		if (type == NULL)
			continue;
		assert_int_equal(count_of(type, "count"), count_of(type, "hits"));
		assert_percentiles_rise(type);
		n += count_of(type, "count");
	}
	assert_int_equal(n, n_operations);
	assert_int_equal(count_of(phase, "operations_asked"), n_operations);
	assert_int_equal(count_of(phase, "operations"), n_operations);
	assert_int_equal(count_of(phase, "hits"), n_operations);
	assert_int_equal(count_of(phase, "misses"), 0);
	assert_int_equal(count_of(phase, "errors"), 0);
	assert_int_equal(count_of(phase, "wrong_values"), 0);
	double done = strtod(behind(phase, "hits_per_s", NULL), NULL) *
		      strtod(behind(phase, "wall_s", NULL), NULL);
	assert_true(done > 0.999 * (double)n_operations && done < 1.001 * (double)n_operations);
}

/* Loads with no more than the given options. */
static void
load(const char *options)
{
	char all[256];
	snprintf(all, sizeof(all), "--load %s", options);
	proc_free(run_bench(all, 0));
}

/* ---- Tests ---- */

static void
test_workloads(void **state)
{
	(void)state;
	load("--records 1000 --threads 2 --depth 8");
	for (const char *letter = "abcdf"; *letter; letter++) {
		char options[128];
		snprintf(options, sizeof(options),
			 "--run --workload %c --records 1000 --operations 3001 --threads 3 "
			 "--depth 4 --verify --json -",
			 *letter);
		struct proc *bench = run_bench(options, 0);
		assert_all_done(phase_of(bench, "run"), 3001);
		proc_free(bench);
	}
}

static void
test_distributions(void **state)
{
	static const char *const names[] = {"uniform", "zipfian", "latest", "hotspot"};
	(void)state;
	load("--records 1000 --threads 2 --depth 8");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char options[128];
		snprintf(options, sizeof(options),
			 "--run --workload b --distribution %s --records 1000 --operations 500 "
			 "--threads 2 --depth 4 --verify --json -",
			 names[i]);
		struct proc *bench = run_bench(options, 0);
		assert_all_done(phase_of(bench, "run"), 500);
		proc_free(bench);
	}
}

static void
test_counts(void **state)
{
	(void)state;
	struct proc *bench = run_bench("--load --records 100 --threads 3 --json -", 0);
	assert_all_done(phase_of(bench, "load"), 100);
	proc_free(bench);
	bench = run_bench("--run --records 100 --operations 1 --threads 4 --json -", 0);
	assert_all_done(phase_of(bench, "run"), 1);
	proc_free(bench);
	bench = run_bench("--run --workload d --records 100 --operations 100 --threads 3 --json -",
			  0);
	assert_all_done(phase_of(bench, "run"), 100);
	proc_free(bench);
}

/* Every record that a load of an odd number by several threads names can be read, and is right. */
static void
test_load_is_complete(void **state)
{
	(void)state;
	load("--records 101 --threads 4 --depth 3 --insert-start 5000 --value-size 100");
	connect_client();
	for (uint64_t number = 5000; number < 5102; number++) {
		char name[GEN_KEY_MAX];
		unsigned char value[100];
		struct rkv_item item;
		uint64_t hash = gen_fnvhash64(number);
		int code = rkv_get(session, name, gen_key_name(name, hash), value, sizeof(value),
				   &item);
		if (number == 5101) {
			assert_int_equal(code, RKV_NOT_FOUND);
			continue;
		}
		assert_int_equal(code, RKV_OK);
		assert_int_equal(item.value_len, sizeof(value));
		assert_int_equal(value_check(value, item.value_len, hash), 0);
	}
	disconnect_client();
}

/* Reads the first record, of up to 100 bytes, and returns its item. */
static struct rkv_item
get_first(unsigned char ret_value[100])
{
	struct rkv_item item;
	char name[GEN_KEY_MAX];
	uint32_t name_len = gen_key_name(name, gen_fnvhash64(0));
	assert_int_equal(rkv_get(session, name, name_len, ret_value, 100, &item), RKV_OK);
	return item;
}

static uint64_t
sequence_of_first(void)
{
	unsigned char value[100];
	connect_client();
	struct rkv_item item = get_first(value);
	disconnect_client();
	return value_sequence(value, item.value_len);
}

/* Each read-modify-write continues the sequence of the value it read: none may be lost. */
static void
test_cas_loses_nothing(void **state)
{
	(void)state;
	load("--records 1 --value-size 100");
	uint64_t before = sequence_of_first();
	struct proc *bench = run_bench("--run --workload f --records 1 --operations 1000 "
				       "--threads 4 --depth 4 --value-size 100 --verify --json -",
				       0);
	const char *phase = phase_of(bench, "run");
	assert_all_done(phase, 1000);
	assert_non_null(strstr(proc_text(bench, PROC_OUT, NULL), "\"read_modify_write\": \"cas\""));
	uint64_t n_written = count_of(type_of(phase_of(bench, "run"), "rmw (cas)"), "hits");
	assert_int_equal(sequence_of_first() - before, n_written);
	proc_free(bench);
}

static void
test_blind(void **state)
{
	(void)state;
	load("--records 10");
	struct proc *bench =
		run_bench("--run --workload f --blind --records 10 --operations 100", 0);
	assert_non_null(strstr(proc_text(bench, PROC_OUT, NULL), "rmw (blind)"));
	assert_null(strstr(proc_text(bench, PROC_OUT, NULL), "rmw (cas)"));
	proc_free(bench);
	bench = run_bench("--run --workload f --records 10 --operations 100", 0);
	assert_non_null(strstr(proc_text(bench, PROC_OUT, NULL), "rmw (cas)"));
	proc_free(bench);
}

static void
test_misses_fail(void **state)
{
	(void)state;
	struct proc *bench = run_bench("--run --workload c --records 50 --operations 60 "
				       "--insert-start 900000 --threads 2 --json -",
				       1);
	const char *phase = phase_of(bench, "run");
	assert_int_equal(count_of(phase, "operations"), 60);
	assert_int_equal(count_of(phase, "misses"), 60);
	assert_int_equal(count_of(phase, "hits"), 0);
	assert_int_equal(count_of(phase, "errors"), 0);
	assert_non_null(strstr(proc_text(bench, PROC_ERR, NULL), "FAILED"));
	proc_free(bench);
}

static void
put_first(const void *value, size_t len)
{
	char name[GEN_KEY_MAX];
	uint32_t name_len = gen_key_name(name, gen_fnvhash64(0));
	connect_client();
	assert_int_equal(rkv_put(session, name, name_len, value, len, NULL, NULL), RKV_OK);
	disconnect_client();
}

static void
test_wrong_values_fail(void **state)
{
	unsigned char value[100];
	const char *options =
		"--run --workload c --records 1 --operations 7 --value-size 100 --verify --json -";
	(void)state;
	value_make(value, sizeof(value), gen_fnvhash64(0), 1);
	put_first(value, sizeof(value));
	proc_free(run_bench(options, 0));
	value[50] ^= 1;
	put_first(value, sizeof(value));
	struct proc *bench = run_bench(options, 1);
	assert_int_equal(count_of(phase_of(bench, "run"), "wrong_values"), 7);
	assert_int_equal(count_of(phase_of(bench, "run"), "errors"), 7);
	assert_non_null(strstr(proc_text(bench, PROC_ERR, NULL), "wrong at byte 50"));
	proc_free(bench);
	/* Another key's value, however right it would be there. */
	value_make(value, sizeof(value), gen_fnvhash64(1), 1);
	put_first(value, sizeof(value));
	proc_free(run_bench(options, 1));
}

/* A value that is longer than what the benchmark expects is a failure of the read, told by name. */
static void
test_errors_fail(void **state)
{
	(void)state;
	load("--records 10 --value-size 200");
	struct proc *bench = run_bench("--run --workload c --records 10 --operations 20 "
				       "--value-size 100 --json -",
				       1);
	const char *phase = phase_of(bench, "run");
	assert_int_equal(count_of(phase, "errors"), 20);
	assert_int_equal(count_of(phase, "hits"), 0);
	assert_int_equal(count_of(behind(phase, "errors_by_code", NULL), "-6"), 20);
	proc_free(bench);
}

static void
test_max_seconds(void **state)
{
	(void)state;
	load("--records 10");
	struct proc *bench = run_bench("--run --workload b --records 10 --operations 1000000000 "
				       "--max-seconds 1 --threads 2 --json -",
				       0);
	const char *phase = phase_of(bench, "run");
	uint64_t n = count_of(phase, "operations");
	assert_in_range(n, 1, 999999999);
	assert_int_equal(count_of(phase, "hits"), n);
	assert_non_null(strstr(proc_text(bench, PROC_ERR, NULL), "--max-seconds"));
	proc_free(bench);
}

static void
test_table(void **state)
{
	static const char *const parts[] = {
		"read",       "update",      "hits",
		"misses",     "p99.9",       "max",
		"Throughput", "round trips", "An update writes the whole value"};
	(void)state;
	struct proc *bench = run_bench("--load --run --workload a --records 10 --operations 50", 0);
	const char *text = proc_text(bench, PROC_OUT, NULL);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		assert_non_null(strstr(text, parts[i]));
	assert_string_equal(proc_text(bench, PROC_ERR, NULL), "");
	proc_free(bench);
}

/* A command line that is wrong: exit code 2, and a sentence that says what. */
static void
test_bad_options(void **state)
{
	static const char *const cases[][2] = {
		{"--records 10", "--load, --run"},
		{"--run --workload e", "hash"},
		{"--run --workload x", "\"x\""},
		{"--run --distribution normal", "\"normal\""},
		{"--run --records 0", "--records"},
		{"--run --records 1x", "\"1x\""},
		{"--run --operations -1", "\"-1\""},
		{"--run --threads 0", "--threads"},
		{"--run --depth 4097", "--depth"},
		{"--run --seed 18446744073709551616", "--seed"},
		{"--run --value-size", "value-size"},
		{"--run --cas --blind", "--blind"},
		{"--run --verify --value-size 8", "24"},
		{"--run --value-size 1000000000", "1000000000"},
		{"--run --json /nowhere/at/all", "/nowhere/at/all"},
		{"--run --foo", "--foo"},
		{"--run foo", "\"foo\""},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct proc *bench = run_bench(cases[i][0], 2);
		const char *said = proc_text(bench, PROC_ERR, NULL);
		if (strstr(said, cases[i][1]) == NULL)
			fail_msg("%s: nothing about %s in: %s", cases[i][0], cases[i][1], said);
		assert_string_equal(proc_text(bench, PROC_OUT, NULL), "");
		proc_free(bench);
	}
}

static void
test_no_server(void **state)
{
	char options[64];
	(void)state;
	snprintf(options, sizeof(options), "--run --server 127.0.0.1:%u", proc_free_port());
	struct proc *bench = run_bench(options, 1);
	assert_non_null(strstr(proc_text(bench, PROC_ERR, NULL), "127.0.0.1"));
	proc_free(bench);
}

/* Until somebody has written the first record, which had this version. */
static void
wait_for_write(uint64_t version)
{
	int64_t deadline_ns = proc_deadline(PROC_WAIT_MS);
	unsigned char value[100];
	while (get_first(value).version == version)
		assert_true(proc_pause(deadline_ns));
}

/*
 * The server dies under a run: it ends, by itself, and tells. Last, as it takes the server. What
 * takes time is done before the run, whose seconds are numbered.
 */
static void
test_server_dies(void **state)
{
	unsigned char value[100];
	(void)state;
	load("--records 1 --value-size 100");
	connect_client();
	uint64_t version = get_first(value).version;
	struct proc *bench = start_bench("--run --workload a --records 1 --value-size 100 "
					 "--operations 1000000000 --max-seconds 5 --timeout-ms 500 "
					 "--threads 2 --depth 2 --verify --json -");
	wait_for_write(version);
	disconnect_client();
	server_kill(server);
	server = NULL;
	assert_int_equal(proc_wait(bench, PROC_WAIT_MS), 1);
	const char *phase = phase_of(bench, "run");
	assert_true(count_of(phase, "hits") > 0);
	assert_true(count_of(phase, "errors") > 0);
	assert_int_equal(count_of(phase, "wrong_values"), 0);
	assert_int_equal(count_of(phase, "operations"), count_of(phase, "hits") +
								count_of(phase, "misses") +
								count_of(phase, "errors"));
	proc_free(bench);
}

static int
start(void **state)
{
	(void)state;
	server = server_start("--pool-size", "64M", NULL);
	return 0;
}

static int
stop(void **state)
{
	(void)state;
	server_kill(server);
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_workloads),
		cmocka_unit_test(test_distributions),
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_load_is_complete),
		cmocka_unit_test(test_cas_loses_nothing),
		cmocka_unit_test(test_blind),
		cmocka_unit_test(test_misses_fail),
		cmocka_unit_test(test_wrong_values_fail),
		cmocka_unit_test(test_errors_fail),
		cmocka_unit_test(test_max_seconds),
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_bad_options),
		cmocka_unit_test(test_no_server),
		cmocka_unit_test(test_server_dies),
	};
	return cmocka_run_group_tests_name("kv-bench", tests, start, stop);
}
