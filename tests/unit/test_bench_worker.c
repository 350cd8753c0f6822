/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The loops of kv-bench on a target of the test's own and a clock that the test owns: time passes
 * only in the target and in sleeps, so that every latency is known beforehand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "bench/clock.h"
#include "bench/worker.h"

#define MS UINT64_C(1000000)
#define S UINT64_C(1000000000)

/* ---- The clock: linked in the place of the system's ---- */

static uint64_t now_ns;

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time);
int __wrap_nanosleep(const struct timespec *span, struct timespec *ret_left);

/* Looking takes a microsecond, so that whoever waits for a time gets there. */
int
__wrap_clock_gettime(clockid_t clock, struct timespec *ret_time)
{
	(void)clock;
	now_ns += 1000;
	*ret_time = (struct timespec){(time_t)(now_ns / S), (long)(now_ns % S)};
	return 0;
}

int
__wrap_nanosleep(const struct timespec *span, struct timespec *ret_left)
{
	(void)ret_left;
	now_ns += (uint64_t)span->tv_sec * S + (uint64_t)span->tv_nsec;
	return 0;
}

/* ---- The target: operations take a time, one of them a pause longer ---- */

#define DEPTH_MAX 8

struct fake {
	struct target target;
	struct target_session session;
	uint64_t service_ns;
	uint64_t n_submitted;
	uint64_t paused; /* the number of the operation that meets the pause, from 1 */
	uint64_t pause_ns;
	int status;          /* of every operation */
	uint32_t n_again;    /* so many submissions are told to come again */
	uint32_t n_mismatch; /* so many CASes are lost */
	uint32_t n_in_flight;
	struct rkv_request *in_flight[DEPTH_MAX];
	uint64_t n_of[RKV_OP_COUNT];
};

static struct fake fake;

static int
fake_submit(struct target_session *session, struct rkv_request *request, uint64_t number)
{
	(void)session;
	(void)number;
	if (fake.n_again > 0) {
		fake.n_again--;
		return RKV_AGAIN;
	}
	request->status = fake.status;
	fake.n_of[request->op]++;
	if (request->op == RKV_OP_CAS && fake.n_mismatch > 0) {
		fake.n_mismatch--;
		request->status = RKV_MISMATCH;
	}
	fake.in_flight[fake.n_in_flight++] = request;
	now_ns += fake.service_ns;
	if (++fake.n_submitted == fake.paused)
		now_ns += fake.pause_ns;
	return RKV_OK;
}

static int
fake_poll(struct target_session *session, struct rkv_request **done, int max, uint32_t timeout_ms)
{
	int n = (int)fake.n_in_flight < max ? (int)fake.n_in_flight : max;
	(void)session;
	(void)timeout_ms;
	memcpy(done, fake.in_flight, (size_t)n * sizeof(done[0]));
	fake.n_in_flight -= (uint32_t)n;
	return n;
}

/* ---- The source: so many operations of one kind ---- */

struct fake_source {
	struct source source;
	enum source_op op;
	uint64_t n_left;
	uint64_t n_ok;
	uint64_t n_not_ok;
};

static struct fake_source tasks;

static int
tasks_next(struct source *source, struct source_task *ret_task)
{
	(void)source;
	if (tasks.n_left == 0)
		return SOURCE_END;
	tasks.n_left--;
	memset(ret_task, 0, sizeof(*ret_task));
	ret_task->op = tasks.op;
	ret_task->key_len = 1;
	return SOURCE_TASK;
}

static void
tasks_done(struct source *source, const struct source_task *task, bool ok)
{
	(void)source;
	(void)task;
	tasks.n_ok += ok;
	tasks.n_not_ok += !ok;
}

/* ---- A run ---- */

static struct worker *worker;

static struct worker_config
config_of(uint32_t depth)
{
	return (struct worker_config){
		.depth = depth,
		.timeout_ms = 5000,
		.value_max = 100,
		.n_threads = 1,
	};
}

/* Returns what was counted of that kind; `worker` is the test's until it is destroyed. */
static const struct tally_op *
run(const struct worker_config *config, enum source_op op, uint64_t n, double interval_ns)
{
	static _Atomic bool never;
	fake.target.submit = fake_submit;
	fake.target.poll = fake_poll;
	fake.session.target = &fake.target;
	tasks = (struct fake_source){
		.source = {tasks_next, tasks_done},
		.op = op,
		.n_left = n,
	};
	worker = worker_create(config, &fake.session, 0);
	assert_non_null(worker);
	worker_prepare(worker, &tasks.source, interval_ns);
	assert_int_equal(worker_run(worker, now_ns, &never), RKV_OK);
	assert_int_equal(worker_n_done(worker), n);
	assert_int_equal(tasks.n_ok + tasks.n_not_ok, n);
	return &worker_tally(worker)->op[op];
}

static uint64_t
slower_than(const struct histogram *latency_ns, uint64_t limit_ns)
{
	uint64_t n = 0;
	struct histogram one;
	for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
		if (latency_ns->buckets[i] == 0)
			continue;
		memset(&one, 0, sizeof(one));
		one.n = one.buckets[i] = 1;
		one.max = UINT64_MAX;
		if (histogram_percentile(&one, 1000000) > limit_ns)
			n += latency_ns->buckets[i];
	}
	return n;
}

/* ---- Tests ---- */

static int
reset(void **state)
{
	(void)state;
	now_ns = S;
	fake = (struct fake){.service_ns = 10000, .status = RKV_OK};
	return 0;
}

static int
tear_down(void **state)
{
	(void)state;
	worker_destroy(worker);
	worker = NULL;
	return 0;
}

static void
test_closed_loop(void **state)
{
	struct worker_config config = config_of(1);
	(void)state;
	const struct tally_op *counts = run(&config, SOURCE_READ, 1000, 0);
	assert_int_equal(counts->latency_ns.n, 1000);
	assert_int_equal(counts->intended_ns.n, 0);
	assert_in_range(counts->latency_ns.max, 10000, 14000);
	assert_int_equal(worker_lag_ns(worker), 0);
	assert_int_equal(fake.n_of[RKV_OP_GET], 1000);
}

/* 1,000 a second, each of 10 us: all on time, and as long as they take from both starts. */
static void
test_open_loop(void **state)
{
	struct worker_config config = config_of(1);
	uint64_t start_ns = now_ns;
	(void)state;
	const struct tally_op *counts = run(&config, SOURCE_READ, 2000, 1.0 * MS);
	assert_int_equal(counts->latency_ns.n, 2000);
	assert_int_equal(counts->intended_ns.n, 2000);
	assert_in_range(counts->latency_ns.max, 10000, 14000);
	assert_in_range(counts->intended_ns.max, 10000, 20000);
	assert_in_range(now_ns - start_ns, 2000 * MS, 2000 * MS + 10000); /* rate x time = n */
	assert_in_range(worker_lag_ns(worker), 0, 5000);
}

/*
 * The fabric stands still for a second, in operation 500 of 4,000 at 1,000 a second. One operation
 * took so long. But about a thousand were due in that second, and waited 999, 998, ... ms, until
 * the backlog was worked off.
 */
static void
test_pause(void **state)
{
	struct worker_config config = config_of(1);
	(void)state;
	fake.paused = 500;
	fake.pause_ns = S;
	const struct tally_op *counts = run(&config, SOURCE_READ, 4000, 1.0 * MS);
	assert_int_equal(slower_than(&counts->latency_ns, 1 * MS), 1);
	assert_in_range(counts->latency_ns.max, S, S + 20000);
	uint64_t n_late = slower_than(&counts->intended_ns, 1 * MS);
	uint64_t n_half = slower_than(&counts->intended_ns, 500 * MS);
	print_message("# pause of 1 s at 1000/s: %llu latencies above 1 ms from the intended "
		      "start (%llu above 500 ms), 1 from the actual one\n",
		      (unsigned long long)n_late, (unsigned long long)n_half);
	assert_in_range(n_late, 995, 1030);
	assert_in_range(n_half, 495, 525);
	assert_in_range(counts->intended_ns.max, S, S + 20000);
	/* The backlog is gone at the end: the schedule was kept after all. */
	assert_in_range(worker_lag_ns(worker), 0, 5000);
}

/* The first of two threads has every second place in the schedule. */
static void
test_threads_alternate(void **state)
{
	struct worker_config config = config_of(1);
	uint64_t start_ns = now_ns;
	(void)state;
	config.n_threads = 2;
	run(&config, SOURCE_READ, 100, 1.0 * MS);
	assert_in_range(now_ns - start_ns, 200 * MS, 200 * MS + 10000);
}

/* More than can be done: what the last one lagged behind says so. */
static void
test_overload(void **state)
{
	struct worker_config config = config_of(1);
	(void)state;
	fake.service_ns = 2 * MS;
	run(&config, SOURCE_READ, 1000, 1.0 * MS);
	assert_in_range(worker_lag_ns(worker), 990 * MS, 1010 * MS);
}

static void
test_kinds(void **state)
{
	static const struct {
		enum source_op task;
		enum rkv_op calls[2];
	} cases[] = {
		{SOURCE_READ, {RKV_OP_GET, RKV_OP_GET}},
		{SOURCE_UPDATE, {RKV_OP_PUT, RKV_OP_PUT}},
		{SOURCE_INSERT, {RKV_OP_PUT, RKV_OP_PUT}},
		{SOURCE_RMW, {RKV_OP_GET, RKV_OP_CAS}},
		{SOURCE_ADD, {RKV_OP_ADD, RKV_OP_ADD}},
		{SOURCE_REPLACE, {RKV_OP_REPLACE, RKV_OP_REPLACE}},
		{SOURCE_DELETE, {RKV_OP_DELETE, RKV_OP_DELETE}},
	};
	struct worker_config config = config_of(4);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		reset(state);
		const struct tally_op *counts = run(&config, cases[i].task, 10, 0);
		assert_int_equal(counts->latency_ns.n, 10);
		assert_int_equal(fake.n_of[cases[i].calls[0]], 10);
		assert_int_equal(fake.n_of[cases[i].calls[1]], 10);
		tear_down(state);
	}
}

static void
test_blind(void **state)
{
	struct worker_config config = config_of(2);
	(void)state;
	config.blind = true;
	run(&config, SOURCE_RMW, 10, 0);
	assert_int_equal(fake.n_of[RKV_OP_PUT], 10);
	assert_int_equal(fake.n_of[RKV_OP_CAS], 0);
}

/* A lost CAS begins anew with the GET, inside one operation and its latency. */
static void
test_lost_cas(void **state)
{
	struct worker_config config = config_of(1);
	(void)state;
	fake.n_mismatch = 3;
	const struct tally_op *counts = run(&config, SOURCE_RMW, 1, 0);
	assert_int_equal(counts->latency_ns.n, 1);
	assert_int_equal(counts->n_cas_lost, 3);
	assert_int_equal(fake.n_of[RKV_OP_GET], 4);
	assert_int_equal(fake.n_of[RKV_OP_CAS], 4);
	assert_true(counts->latency_ns.max >= 8 * fake.service_ns);
}

static void
test_again(void **state)
{
	struct worker_config config = config_of(1);
	(void)state;
	fake.n_again = 5;
	const struct tally_op *counts = run(&config, SOURCE_UPDATE, 3, 0);
	assert_int_equal(counts->latency_ns.n, 3);
	assert_int_equal(counts->n_again, 5);
	assert_int_equal(tally_errors(counts), 0);
}

/* Latencies are those of hits; a miss and a failure are counted apart, and told to the source. */
static void
test_misses_and_failures(void **state)
{
	static const int statuses[] = {RKV_NOT_FOUND, RKV_EXISTS, RKV_E_TIMEOUT, RKV_E_MAYBE};
	struct worker_config config = config_of(1);
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
		reset(state);
		fake.status = statuses[i];
		const struct tally_op *counts = run(&config, SOURCE_READ, 7, 0.1 * MS);
		assert_int_equal(counts->latency_ns.n, 0);
		assert_int_equal(counts->intended_ns.n, 0);
		assert_int_equal(counts->n_misses, statuses[i] > 0 ? 7 : 0);
		assert_int_equal(tally_errors(counts), statuses[i] > 0 ? 0 : 7);
		assert_int_equal(tasks.n_not_ok, 7);
		tear_down(state);
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, reset, tear_down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_closed_loop), TEST(test_open_loop),
		TEST(test_pause),       TEST(test_threads_alternate),
		TEST(test_overload),    TEST(test_kinds),
		TEST(test_blind),       TEST(test_lost_cas),
		TEST(test_again),       TEST(test_misses_and_failures),
	};
	return cmocka_run_group_tests_name("bench worker", tests, NULL, NULL);
}
