/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Traces in Twitter's format, read and shared out to threads; and the series of points that a rate
 * over time is drawn from.
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

#include "bench/series.h"
#include "bench/trace.h"

static char path[] = "/tmp/rkv-test-trace-XXXXXX";
static char reason[TRACE_REASON_MAX];

/* A trace of that text, NULL if it is refused. */
static struct trace *
trace_of(const char *text, uint64_t n_max)
{
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
	assert_int_equal(fclose(file), 0);
	reason[0] = '\0';
	return trace_open(path, n_max, reason);
}

static int
create(void **state)
{
	(void)state;
	int fd = mkstemp(path);
	return fd < 0 ? -1 : close(fd);
}

static int delete (void **state)
{
	(void)state;
	return unlink(path);
}

static void
assert_task(struct source *source, enum source_op op, const char *key, uint64_t value_len,
	    uint32_t ttl_s)
{
	struct source_task task;
	assert_int_equal(source->next(source, &task), SOURCE_TASK);
	assert_int_equal(task.op, op);
	assert_int_equal(task.key_len, strlen(key));
	assert_memory_equal(task.key, key, task.key_len);
	assert_int_equal(task.value_len, value_len);
	assert_int_equal(task.ttl_s, ttl_s);
	source->done(source, &task, true);
}

static void
test_lines(void **state)
{
	(void)state;
	struct trace *trace = trace_of("0,kA,2,100,1,get,0\n"
				       "0,kB,4,7,1,set,60\r\n"
				       "1,a,b,3,8,2,add,0\n"
				       "1,k,1,0,2,delete,0\n"
				       "2,k,1,9,2,incr,0\n"
				       "2,k,1,5,2,replace,3\n"
				       "2,k,1,6,2,cas,0\n"
				       "3,k,1,250,2,gets,0",
				       0);
	assert_non_null(trace);
	assert_int_equal(trace_n_operations(trace), 8);
	assert_int_equal(trace_value_max(trace), 250);
	struct sources *sources = trace_sources(trace, 1);
	assert_non_null(sources);
	assert_int_equal(sources->n_operations, 8);
	struct source *source = sources->of(sources, 0);
	struct source_task task;
	assert_task(source, SOURCE_READ, "kA", 100, 0);
	assert_task(source, SOURCE_UPDATE, "kB..", 7, 60);
	assert_task(source, SOURCE_ADD, "a,b", 8, 0);
	assert_task(source, SOURCE_DELETE, "k", 0, 0);
	assert_task(source, SOURCE_RMW, "k", 9, 0);
	assert_task(source, SOURCE_REPLACE, "k", 5, 3);
	assert_task(source, SOURCE_RMW, "k", 6, 0);
	assert_task(source, SOURCE_READ, "k", 250, 0);
	assert_int_equal(source->next(source, &task), SOURCE_END);
	sources->destroy(sources);
	trace_close(trace);
}

/* Every line goes to one thread, all lines of a key to the same, in their order. */
static void
test_threads(void **state)
{
	char text[20000] = "";
	size_t len = 0;
	uint64_t n = 0;
	(void)state;
	for (int i = 0; i < 1000; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "0,k%d,1,%d,1,set,0\n",
					i % 10, i);
	struct trace *trace = trace_of(text, 990);
	assert_non_null(trace);
	struct sources *sources = trace_sources(trace, 3);
	int thread_of_key[10] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
	uint64_t last[10] = {0};
	for (int thread = 0; thread < 3; thread++) {
		struct source *source = sources->of(sources, (uint32_t)thread);
		struct source_task task;
		for (; source->next(source, &task) == SOURCE_TASK; n++) {
			int key = task.key[1] - '0';
			assert_in_range(key, 0, 9);
			assert_true(thread_of_key[key] == -1 || thread_of_key[key] == thread);
			assert_true(task.value_len >= last[key]);
			thread_of_key[key] = thread;
			last[key] = task.value_len;
		}
	}
	assert_int_equal(n, 990);
	sources->destroy(sources);
	trace_close(trace);
}

static void
test_refused(void **state)
{
	static const char *const lines[][2] = {
		{"", "empty"},
		{"0,k,1,1,1,get\n", "line 1"},
		{"0,k,1,1,1,get,0\n0,,0,1,1,get,0\n", "line 2"},
		{"0,k,1,1,1,fetch,0\n", "operation"},
		{"0,k,1,-1,1,get,0\n", "sizes"},
		{"0,k,1,,1,get,0\n", "sizes"},
		{"0,k,251,1,1,get,0\n", "sizes"},
		{"0,k,1,99999999999,1,get,0\n", "sizes"},
		{"0,k,1,1,1,get,1x\n", "TTL"},
		{"timestamp,key,key size,value size,client id,operation,TTL\n", "line 1"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		assert_null(trace_of(lines[i][0], 0));
		if (strstr(reason, lines[i][1]) == NULL)
			fail_msg("\"%s\": nothing about %s in: %s", lines[i][0], lines[i][1],
				 reason);
	}
	assert_null(trace_open("/nowhere/at/all", 0, reason));
	assert_non_null(strstr(reason, "/nowhere/at/all"));
	trace_close(NULL);
}

/* However long it takes, the points are at most SERIES_MAX, in order, up to the end. */
static void
test_series(void **state)
{
	static struct series series;
	(void)state;
	for (uint64_t i = 1; i <= 5000; i++) {
		series_add(&series, i * SERIES_STEP_NS, i * 10);
		assert_in_range(series.n, 1, SERIES_MAX);
	}
	for (uint32_t i = 0; i < series.n; i++) {
		assert_int_equal(series.points[i].elapsed_ns / SERIES_STEP_NS * 10,
				 series.points[i].n_done);
		assert_true(i == 0 ||
			    series.points[i].elapsed_ns > series.points[i - 1].elapsed_ns);
	}
	assert_true(series.n > SERIES_MAX / 2);
	assert_true(series.points[series.n - 1].elapsed_ns > 4950 * SERIES_STEP_NS);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_series),
	};
	return cmocka_run_group_tests_name("bench trace", tests, create, delete);
}
