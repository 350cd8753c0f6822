/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tcp fabric: the conformance suite, and what only this fabric promises: system calls of a
 * batch, long transfers, death of either side, severing, running out of what the system gives.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/net.h"
#include "common/tcp_link.h"
#include "tests/fabric/conformance.h"
#include "tests/fabric/sanitized.h"
#include "tests/fabric/tcp_pair.h"
#include "tests/fault/sites.h"

#define REGION_LEN ((size_t)12 << 20)
#define DEPTH 64u

/* ---- Helpers ---- */

struct sink {
	unsigned n_lines;
	char last[1024];
};

static void
remember_line(void *arg, int level, const char *line)
{
	struct sink *sink = arg;
	(void)level;
	sink->n_lines++;
	snprintf(sink->last, sizeof(sink->last), "%s", line);
}

/* A server in a process of its own. */
struct process {
	pid_t pid;
	struct fab_offer offer;
};

static void
process_main(int out_fd)
{
	struct tcp_host host;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (tcp_host_start(&host, REGION_LEN, &tcp_host_options) ||
	    write(out_fd, &host.offer, sizeof(host.offer)) != (ssize_t)sizeof(host.offer))
		_exit(1);
	for (;;)
		pause();
}

static void
process_start(struct process *process)
{
	int fds[2];
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	process->pid = fork();
	assert_true(process->pid >= 0);
	if (process->pid == 0)
		process_main(fds[1]);
	close(fds[1]);
	assert_int_equal(read(fds[0], &process->offer, sizeof(process->offer)),
			 sizeof(process->offer));
	close(fds[0]);
}

static void
process_signal(struct process *process, int number)
{
	assert_int_equal(kill(process->pid, number), 0);
	if (number == SIGSTOP)
		assert_int_equal(waitpid(process->pid, NULL, WUNTRACED), process->pid);
	else if (number == SIGKILL)
		assert_int_equal(waitpid(process->pid, NULL, 0), process->pid);
}

/* The n batches that are out fail, each once, and then there is nothing more. */
static void
assert_all_fail(struct fab_endpoint *ep, const char *cookies, unsigned n)
{
	struct fab_done done;
	for (unsigned i = 0; i < n; i++) {
		assert_true(conf_poll(ep, &done));
		assert_ptr_equal(done.cookie, &cookies[i]);
		assert_int_equal(done.status, ERR_CONN);
	}
	assert_int_equal(fab_poll(ep, &done, 1), 0);
}

/* ---- What a batch costs ---- */

static struct tcp_costs
costs_of(const struct fab_endpoint *ep)
{
	struct tcp_costs costs;
	tcp_endpoint_costs(ep, &costs);
	return costs;
}

/*
 * One batch at a time: a call that sends, and a wait: a call that begins to receive, and one that
 * takes what has come meanwhile, or else sleeps.
 */
static void
test_costs_alone(void **state)
{
	struct tcp_host host;
	struct conf_pair pair;
	uint64_t words[2];
	const unsigned n = 1000;
	(void)state;
	assert_int_equal(tcp_host_start(&host, REGION_LEN, &tcp_host_options), 0);
	assert_int_equal(tcp_reach(&host.offer, 1, 1, &pair), 0);
	struct fab_op op = conf_read(0, words, 16, 0);
	assert_int_equal(conf_batch(pair.ep[0], &op, 1), 0);
	struct tcp_costs before = costs_of(pair.ep[0]);
	uint64_t server_before = tcp_host_counters(&host).n_calls;
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(conf_batch(pair.ep[0], &op, 1), 0);
	struct tcp_costs after = costs_of(pair.ep[0]);
	uint64_t server_calls = tcp_host_counters(&host).n_calls - server_before;
	assert_int_equal(after.n_frames - before.n_frames, n);
	/* A wait that ends early (a signal, its slice) is one more. */
	assert_in_range(after.n_calls - before.n_calls, n, 3 * n + n / 10);
	/* Its responder: one that answers, one that waits; where the kernel is older, one more. */
	assert_in_range(server_calls, n - 1, 3 * n + n / 10);
	print_message("# one at a time: %.2f calls a batch here, %.2f there\n",
		      (double)(after.n_calls - before.n_calls) / n, (double)server_calls / n);
	conf_leave(&pair);
	tcp_host_stop(&host);
}

/* 64 posted between two polls: all of them in one call, their answers in a few. */
static void
test_costs_together(void **state)
{
	struct tcp_host host;
	struct conf_pair pair;
	struct fab_done done[DEPTH];
	static uint64_t words[DEPTH][32];
	const unsigned n_rounds = 100;
	(void)state;
	assert_int_equal(tcp_host_start(&host, REGION_LEN, &tcp_host_options), 0);
	assert_int_equal(tcp_reach(&host.offer, 1, DEPTH, &pair), 0);
	struct tcp_costs before = costs_of(pair.ep[0]);
	uint64_t server_before = tcp_host_counters(&host).n_calls;
	for (unsigned round = 0; round < n_rounds; round++) {
		for (unsigned i = 0; i < DEPTH; i++) {
			struct fab_op ops[] = {conf_read(4096 * i, words[i], 192, 0),
					       conf_read(4096 * i + 1024, &words[i][24], 8, 0)};
			assert_int_equal(fab_post(pair.ep[0], ops, 2, NULL), 0);
		}
		uint64_t n_calls = costs_of(pair.ep[0]).n_calls;
		unsigned n = fab_poll(pair.ep[0], done, DEPTH);
		assert_int_equal(costs_of(pair.ep[0]).n_calls, n_calls + 1);
		for (unsigned n_looks = 0; n < DEPTH; n_looks++) {
			assert_in_range(n_looks, 0, 1000);
			fab_wait(pair.ep[0], conf_deadline_ns());
			n += fab_poll(pair.ep[0], done, DEPTH);
		}
	}
	uint64_t calls = costs_of(pair.ep[0]).n_calls - before.n_calls;
	uint64_t server_calls = tcp_host_counters(&host).n_calls - server_before;
	print_message("# 64 together: %.3f calls a batch here, %.3f there\n",
		      (double)calls / n_rounds / DEPTH, (double)server_calls / n_rounds / DEPTH);
	/* Answers may come in pieces: 16 kB of them. A call for each batch would be 6,400. */
	assert_in_range(calls, 2 * n_rounds, 10 * n_rounds);
	assert_in_range(server_calls, n_rounds, 10 * n_rounds);
	conf_leave(&pair);
	tcp_host_stop(&host);
}

/* Two batches whose completions one poll delivers. */
static void
poll_two_at_once(struct fab_endpoint *ep, const struct fab_op *op)
{
	struct fab_done done[2];
	unsigned n_together = 0;
	for (unsigned i = 0; i < 1000 && n_together < 2; i++) {
		for (unsigned j = 0; j < 2; j++)
			assert_int_equal(fab_post(ep, op, 1, NULL), 0);
		n_together = fab_poll(ep, done, 2);
		for (unsigned n = n_together, n_looks = 0; n < 2; n += n_together) {
			assert_in_range(n_looks++, 0, 1000);
			fab_wait(ep, conf_deadline_ns());
			n_together = fab_poll(ep, done, 2);
		}
	}
	assert_int_equal(n_together, 2);
}

static void
await_frames(struct tcp_host *host, uint64_t n)
{
	int64_t deadline_ns = conf_deadline_ns();
	while (tcp_host_counters(host).n_frames < n)
		assert_true(clock_now_ns() < deadline_ns);
}

/* Marks behind several completions travel with what comes next; a lone one is sent at once. */
static void
test_costs_quiet(void **state)
{
	struct tcp_host host;
	struct conf_pair pair;
	struct fab_done done[DEPTH];
	uint64_t old, n_frames = 0;
	char mark = 1;
	(void)state;
	assert_int_equal(tcp_host_start(&host, REGION_LEN, &tcp_host_options), 0);
	assert_int_equal(tcp_reach(&host.offer, 1, DEPTH, &pair), 0);
	struct fab_op quiet = conf_write(100, &mark, 1, 0);
	struct fab_op faa = conf_faa(0, 1, &old, 0);
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(fab_post(pair.ep[0], &faa, 1, NULL), 0);
	for (unsigned i = 0; i < 16; i++)
		assert_true(conf_poll(pair.ep[0], done));
	assert_int_equal(conf_batch(pair.ep[0], &faa, 1), 0);
	n_frames = tcp_host_counters(&host).n_frames;
	uint64_t n_calls = costs_of(pair.ep[0]).n_calls;
	assert_int_equal(fab_post_quiet(pair.ep[0], &quiet, 1), 0);
	assert_int_equal(costs_of(pair.ep[0]).n_calls, n_calls + 1);
	await_frames(&host, n_frames + 1);
	/* Behind several completions it waits for the next poll, */
	poll_two_at_once(pair.ep[0], &faa);
	n_frames = tcp_host_counters(&host).n_frames;
	n_calls = costs_of(pair.ep[0]).n_calls;
	assert_int_equal(fab_post_quiet(pair.ep[0], &quiet, 1), 0);
	assert_int_equal(costs_of(pair.ep[0]).n_calls, n_calls);
	assert_int_equal(fab_poll(pair.ep[0], done, DEPTH), 0);
	assert_int_equal(costs_of(pair.ep[0]).n_calls, n_calls + 1);
	await_frames(&host, n_frames + 1);
	/* and so it does with a batch out. */
	assert_int_equal(fab_post(pair.ep[0], &faa, 1, NULL), 0);
	n_calls = costs_of(pair.ep[0]).n_calls;
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(fab_post_quiet(pair.ep[0], &quiet, 1), 0);
	assert_int_equal(costs_of(pair.ep[0]).n_calls, n_calls);
	assert_true(conf_poll(pair.ep[0], done));
	conf_leave(&pair);
	tcp_host_stop(&host);
}

/* Nothing is allocated once an endpoint is there, neither here nor by its responder. */
static void
test_no_malloc(void **state)
{
	struct tcp_host host;
	struct conf_pair pair;
	static unsigned char bytes[20000];
	uint64_t old;
	(void)state;
	assert_int_equal(tcp_host_start(&host, REGION_LEN, &tcp_host_options), 0);
	assert_int_equal(tcp_reach(&host.offer, 1, 16, &pair), 0);
	struct fab_op ops[] = {conf_write(4096, bytes, sizeof(bytes), 0), conf_faa(0, 1, &old, 0),
			       conf_read(4096, bytes, sizeof(bytes), 0)};
	assert_int_equal(conf_batch(pair.ep[0], ops, 3), 0);
	sites_arm(0);
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(conf_batch(pair.ep[0], ops, 3), 0);
	assert_int_equal(sites_disarm(), 0);
	conf_leave(&pair);
	tcp_host_stop(&host);
}

/* ---- Long transfers ---- */

static void
fill(unsigned char *bytes, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		bytes[i] = (unsigned char)(seed * 31 + i * 7 + i / 4096);
}

/* Pieces of all lengths, many batches at once, more than the sockets hold. */
static void
test_long_transfers(void **state)
{
	static const uint32_t lens[] = {1,     127,   2047,  2048,   2049,    8191,
					16384, 65535, 65536, 300001, 1048576, 3000000};
	const unsigned n = sizeof(lens) / sizeof(*lens);
	struct tcp_host host;
	struct conf_pair pair;
	struct fab_done done;
	(void)state;
	assert_int_equal(tcp_host_start(&host, REGION_LEN, &tcp_host_options), 0);
	assert_int_equal(tcp_reach(&host.offer, 1, DEPTH, &pair), 0);
	unsigned char *out = malloc(2 * 3000000), *in = malloc(2 * 3000000);
	for (unsigned i = 0; i < n; i++) {
		uint32_t first = lens[i], second = lens[n - 1 - i];
		uint64_t roff = 8192 + lens[i] % 16;
		fill(out, first + second, i);
		memset(in, 0, first + second);
		struct fab_op write = conf_write(roff, out, first, 0);
		write.piece[1] = (struct fab_piece){out + first, second, 0};
		struct fab_op read = conf_read(roff, in, second, 0);
		read.piece[1] = (struct fab_piece){in + second, first, 0};
		assert_int_equal(conf_batch(pair.ep[0], (struct fab_op[]){write, read}, 2), 0);
		assert_memory_equal(out, in, first + second);
		/* The same many times over, without a poll between. */
		memset(in, 0, first + second);
		for (unsigned j = 0; j < 12; j++)
			assert_int_equal(
				fab_post(pair.ep[0], (struct fab_op[]){write, read}, 2, NULL), 0);
		for (unsigned j = 0; j < 12; j++) {
			assert_true(conf_poll(pair.ep[0], &done));
			assert_int_equal(done.status, 0);
		}
		assert_memory_equal(out, in, first + second);
	}
	struct fab_op huge = conf_write(0, out, UINT32_MAX, 0);
	huge.piece[1] = (struct fab_piece){out, 1, 0};
	assert_int_equal(fab_post(pair.ep[0], &huge, 1, NULL), ERR_INVALID);
	assert_int_equal(
		fab_post(pair.ep[0], (struct fab_op[]){conf_write(0, out, UINT32_MAX, 0)}, 1, NULL),
		ERR_INVALID);
	free(out);
	free(in);
	conf_leave(&pair);
	tcp_host_stop(&host);
}

/* ---- Ends ---- */

/* The server's process dies with batches out, posted before and after. */
static void
test_server_death(void **state)
{
	struct process process;
	struct conf_pair pair;
	struct fab_endpoint *ep = NULL;
	char cookies[32];
	uint64_t words[32];
	(void)state;
	process_start(&process);
	assert_int_equal(tcp_reach(&process.offer, 1, DEPTH, &pair), 0);
	struct fab_op op = conf_faa(0, 1, words, 0);
	assert_int_equal(conf_batch(pair.ep[0], &op, 1), 0);
	process_signal(&process, SIGSTOP);
	for (unsigned i = 0; i < 32; i++) {
		op = conf_faa(0, 1, &words[i], 0);
		assert_int_equal(fab_post(pair.ep[0], &op, 1, &cookies[i]), 0);
		if (i == 20)
			fab_wait(pair.ep[0], clock_now_ns() + 1000000);
	}
	process_signal(&process, SIGKILL);
	assert_all_fail(pair.ep[0], cookies, 32);
	/* Nor does anything that is posted later succeed. */
	assert_int_equal(fab_post(pair.ep[0], &op, 1, &cookies[0]), 0);
	assert_all_fail(pair.ep[0], cookies, 1);
	assert_int_equal(fab_post_quiet(pair.ep[0], &op, 1), ERR_CONN);
	assert_int_equal(fab_connect(pair.region, NULL, 4, conf_deadline_ns(), &ep), ERR_CONN);
	conf_leave(&pair);
}

/*
 * Memory that the kernel cannot read: nothing more can be sent, as half a frame may be out. What
 * was sent before is answered, all else fails, and who waits for that sleeps.
 */
static void
test_unreadable(void **state)
{
	struct process process;
	struct conf_pair pair;
	struct fab_done done;
	char cookies[2];
	uint64_t old;
	unsigned n_looks = 0;
	(void)state;
	process_start(&process);
	assert_int_equal(tcp_reach(&process.offer, 1, 4, &pair), 0);
	void *hole = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(hole, MAP_FAILED);
	struct fab_op good = conf_faa(0, 1, &old, 0), bad = conf_write(0, hole, 65536, 0);
	process_signal(&process, SIGSTOP);
	assert_int_equal(fab_post(pair.ep[0], &good, 1, &cookies[0]), 0);
	assert_int_equal(fab_poll(pair.ep[0], &done, 1), 0);
	assert_int_equal(fab_post(pair.ep[0], &bad, 1, &cookies[1]), 0);
	int64_t end_ns = clock_now_ns() + 50 * CLOCK_NS_PER_MS;
	do {
		n_looks++;
		assert_int_equal(fab_poll(pair.ep[0], &done, 1), 0);
		fab_wait(pair.ep[0], end_ns);
	} while (clock_now_ns() < end_ns);
	assert_in_range(n_looks, 1, 20);
	process_signal(&process, SIGCONT);
	assert_true(conf_poll(pair.ep[0], &done));
	assert_ptr_equal(done.cookie, &cookies[0]);
	assert_int_equal(done.status, 0);
	assert_all_fail(pair.ep[0], &cookies[1], 1);
	assert_int_equal(fab_post(pair.ep[0], &good, 1, &cookies[0]), 0);
	assert_all_fail(pair.ep[0], cookies, 1);
	munmap(hole, 65536);
	conf_leave(&pair);
	process_signal(&process, SIGKILL);
}

static int
dying_client(void *arg)
{
	struct conf_pair pair;
	uint64_t old;
	struct fab_op op = conf_faa(0, 1, &old, 0);
	if (tcp_reach(arg, 1, DEPTH, &pair))
		return 1;
	for (unsigned i = 0; i < 40; i++)
		fab_post(pair.ep[0], &op, 1, NULL);
	fab_wait(pair.ep[0], clock_now_ns() + 1000000);
	_exit(0); /* no farewell */
}

/* A client that dies is lost, once; others stay. */
static void
test_client_death(void **state)
{
	const struct timespec pause = {.tv_nsec = CLOCK_NS_PER_MS};
	struct tcp_host host;
	struct conf_pair pair;
	uint64_t old;
	(void)state;
	assert_int_equal(tcp_host_start(&host, REGION_LEN, &tcp_host_options), 0);
	assert_int_equal(tcp_reach(&host.offer, 1, DEPTH, &pair), 0);
	for (unsigned i = 0; i < 5; i++)
		conf_child_succeeds(dying_client, &host.offer);
	int64_t deadline_ns = conf_deadline_ns();
	while (tcp_host_n_lost(&host) < 5) {
		assert_true(clock_now_ns() < deadline_ns);
		nanosleep(&pause, NULL);
	}
	struct fab_op op = conf_faa(0, 0, &old, 0);
	assert_int_equal(conf_batch(pair.ep[0], &op, 1), 0);
	assert_int_equal(tcp_host_n_peers(&host), 1);
	assert_int_equal(tcp_host_n_lost(&host), 5);
	conf_leave(&pair);
	tcp_host_stop(&host);
}

/* When a peer is destroyed nothing late of it lands, [DEAD], and it is not lost besides. */
static void
test_destroy(void **state)
{
	struct tcp_host host;
	struct conf_pair pair;
	struct fab_done done[DEPTH];
	uint64_t olds[DEPTH];
	(void)state;
	assert_int_equal(tcp_host_start(&host, REGION_LEN, &tcp_host_options), 0);
	for (unsigned round = 0; round < 30; round++) {
		unsigned n_posted = 0, n_polled = 0, n_good = 0;
		bool failed = false;
		assert_int_equal(tcp_reach(&host.offer, 1, DEPTH, &pair), 0);
		memset(host.base, 0, 8);
		for (unsigned i = 0; i < 50 + round; i++) {
			struct fab_op op = conf_faa(0, 1, &olds[i % DEPTH], 0);
			n_posted += fab_post(pair.ep[0], &op, 1, NULL) == 0;
			unsigned n = fab_poll(pair.ep[0], done, DEPTH);
			for (unsigned j = 0; j < n; j++)
				n_good += done[j].status == 0;
			n_polled += n;
		}
		tcp_host_destroy_peers(&host);
		uint64_t there = tcp_host_word(&host, 0);
		for (; n_polled < n_posted; n_polled++) {
			assert_true(conf_poll(pair.ep[0], done));
			n_good += done->status == 0;
			assert_false(failed && done->status == 0);
			failed |= done->status != 0;
		}
		assert_int_equal(fab_poll(pair.ep[0], done, 1), 0);
		assert_true(n_good <= there && there <= n_posted);
		conf_leave(&pair);
		assert_true(there == tcp_host_word(&host, 0));
	}
	assert_int_equal(tcp_host_n_lost(&host), 0);
	tcp_host_stop(&host);
}

/* Hundreds come and go; of those that are not destroyed each is lost. */
static void
test_many_peers(void **state)
{
	const struct timespec pause = {.tv_nsec = CLOCK_NS_PER_MS};
	struct tcp_host host;
	struct conf_pair pair;
	(void)state;
	assert_int_equal(tcp_host_start(&host, REGION_LEN, &tcp_host_options), 0);
	for (unsigned i = 0; i < 60; i++) {
		assert_int_equal(tcp_reach(&host.offer, 1 + i % CONF_ENDPOINTS_MAX, 4, &pair), 0);
		if (i % 3 == 0)
			tcp_host_destroy_peers(&host);
		conf_leave(&pair);
	}
	int64_t deadline_ns = conf_deadline_ns();
	while (tcp_host_n_peers(&host) > 0) {
		assert_true(clock_now_ns() < deadline_ns);
		nanosleep(&pause, NULL);
	}
	tcp_host_stop(&host);
}

/* The server goes while peers are there and batches are out. */
static void
test_orderly_end(void **state)
{
	struct tcp_host host;
	struct conf_pair pair;
	char cookies[8];
	uint64_t old;
	(void)state;
	assert_int_equal(tcp_host_start(&host, REGION_LEN, &tcp_host_options), 0);
	assert_int_equal(tcp_reach(&host.offer, 2, DEPTH, &pair), 0);
	struct fab_op op = conf_faa(0, 1, &old, 0);
	assert_int_equal(conf_batch(pair.ep[0], &op, 1), 0);
	tcp_host_stop(&host);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(fab_post(pair.ep[1], &op, 1, &cookies[i]), 0);
	assert_all_fail(pair.ep[1], cookies, 8);
	conf_leave(&pair);
}

static void *
sever_main(void *arg)
{
	const struct timespec pause = {.tv_nsec = 20 * CLOCK_NS_PER_MS};
	nanosleep(&pause, NULL);
	fab_region_sever(arg);
	return NULL;
}

/* Who sleeps wakes up: the server says nothing, and the deadline is far. */
static void
test_sever_wakes(void **state)
{
	struct process process;
	struct conf_pair pair;
	struct fab_done done;
	pthread_t thread;
	char cookie;
	uint64_t word;
	(void)state;
	process_start(&process);
	assert_int_equal(tcp_reach(&process.offer, 1, 4, &pair), 0);
	process_signal(&process, SIGSTOP);
	struct fab_op op = conf_read(0, &word, 8, 0);
	assert_int_equal(fab_post(pair.ep[0], &op, 1, &cookie), 0);
	int64_t start_ns = clock_now_ns();
	assert_int_equal(pthread_create(&thread, NULL, sever_main, pair.region), 0);
	assert_all_fail(pair.ep[0], &cookie, 1);
	assert_true(clock_now_ns() < start_ns + CONF_WAIT_NS);
	pthread_join(thread, NULL);
	/* The memory is the caller's again, whatever the server may answer now, [LOCAL]. */
	word = 7;
	process_signal(&process, SIGCONT);
	fab_wait(pair.ep[0], clock_now_ns() + 20 * CLOCK_NS_PER_MS);
	assert_int_equal(fab_poll(pair.ep[0], &done, 1), 0);
	assert_true(word == 7);
	conf_leave(&pair);
	process_signal(&process, SIGKILL);
}

/* An endpoint that passes from thread to thread, also when the former one has ended. */
static void *
passing_main(void *arg)
{
	uint64_t old;
	struct fab_op op = conf_faa(0, 1, &old, 0);
	for (unsigned i = 0; i < 20; i++)
		if (conf_batch(arg, &op, 1))
			return arg;
	/* Something is left for the next one to poll. */
	return fab_post(arg, &op, 1, NULL) ? arg : NULL;
}

static void
test_threads(void **state)
{
	struct tcp_host host;
	struct conf_pair pair;
	struct fab_done done;
	(void)state;
	assert_int_equal(tcp_host_start(&host, REGION_LEN, &tcp_host_options), 0);
	assert_int_equal(tcp_reach(&host.offer, 1, 4, &pair), 0);
	for (unsigned i = 0; i < 20; i++) {
		pthread_t thread;
		void *failed;
		assert_int_equal(pthread_create(&thread, NULL, passing_main, pair.ep[0]), 0);
		pthread_join(thread, &failed);
		assert_null(failed);
		assert_true(conf_poll(pair.ep[0], &done));
		assert_int_equal(done.status, 0);
	}
	assert_true(tcp_host_word(&host, 0) == 20 * 21);
	conf_leave(&pair);
	tcp_host_stop(&host);
}

/* Batches, and between them receives with a time limit, which the kernel cannot resume itself. */
static void *
undisturbed_main(void *arg)
{
	const struct fab_offer *offer = arg;
	const struct timeval limit = {.tv_usec = 100}; /* the kernel makes a tick of it */
	static unsigned n_interrupted;
	struct conf_pair pair;
	int sockets[2];
	uint64_t old;
	char byte;
	struct fab_op op = conf_faa(0, 1, &old, 0);
	if (tcp_reach(offer, 2, 4, &pair) ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) ||
	    setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)))
		return NULL;
	n_interrupted = 0;
	for (unsigned i = 0; i < 300; i++) {
		if (conf_batch(pair.ep[i % 2], &op, 1) || recv(sockets[0], &byte, 1, 0) != -1)
			return NULL;
		n_interrupted += errno == EINTR;
	}
	close(sockets[0]);
	close(sockets[1]);
	conf_leave(&pair);
	return &n_interrupted;
}

/*
 * The rings do not disturb what else a thread does. The kernel interrupts it once for each ring
 * that it has closed: opening the fabric tries one.
 */
static void
test_undisturbed(void **state)
{
	struct tcp_host host;
	pthread_t thread;
	void *n_interrupted;
	(void)state;
	assert_int_equal(tcp_host_start(&host, REGION_LEN, &tcp_host_options), 0);
	assert_int_equal(pthread_create(&thread, NULL, undisturbed_main, &host.offer), 0);
	pthread_join(thread, &n_interrupted);
	assert_non_null(n_interrupted);
	print_message("# interrupted %u times\n", *(unsigned *)n_interrupted);
	assert_in_range(*(unsigned *)n_interrupted, 0, 1);
	tcp_host_stop(&host);
}

/* A child that has inherited everything neither harms nor keeps a connection. */
static int
forked_child(void *arg)
{
	(void)arg;
	return 0;
}

static void
test_fork(void **state)
{
	struct tcp_host host;
	struct conf_pair pair;
	uint64_t old;
	(void)state;
	assert_int_equal(tcp_host_start(&host, REGION_LEN, &tcp_host_options), 0);
	assert_int_equal(tcp_reach(&host.offer, 1, 4, &pair), 0);
	struct fab_op op = conf_faa(0, 1, &old, 0);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(conf_batch(pair.ep[0], &op, 1), 0);
		conf_child_succeeds(forked_child, NULL);
	}
	assert_int_equal(conf_batch(pair.ep[0], &op, 1), 0);
	assert_true(old == 3);
	conf_leave(&pair);
	tcp_host_stop(&host);
}

/* ---- Refusals ---- */

static void
test_refusals(void **state)
{
	struct tcp_host host;
	struct conf_pair pair;
	struct sink sink = {0};
	struct fab *fab;
	struct fab_region *region;
	struct fab_endpoint *ep = NULL;
	const struct log log = {.sink = remember_line, .arg = &sink, .max_level = LOG_INFO};
	(void)state;
	assert_int_equal(tcp_host_start(&host, REGION_LEN, &tcp_host_options), 0);
	struct fab_offer wrong = host.offer;
	wrong.token[0]++;
	assert_int_equal(tcp_open_fabric(&log, &fab), 0);
	assert_int_equal(fab_region_open(fab, &wrong, conf_deadline_ns(), &region), 0);
	assert_int_equal(fab_connect(region, NULL, 4, conf_deadline_ns(), &ep), ERR_PERM);
	assert_non_null(strstr(sink.last, "the test says no"));
	assert_int_equal(sink.n_lines, 1);
	assert_int_equal(fab_connect(region, NULL, 0, conf_deadline_ns(), &ep), ERR_INVALID);
	assert_int_equal(fab_connect(region, NULL, 1u << 30, conf_deadline_ns(), &ep), ERR_INVALID);
	assert_non_null(strstr(sink.last, "it may be 1 to"));
	assert_int_equal(sink.n_lines, 3);
	fab_region_sever(region);
	assert_int_equal(fab_connect(region, NULL, 4, conf_deadline_ns(), &ep), ERR_CONN);
	assert_non_null(strstr(sink.last, "once it is back"));
	assert_int_equal(sink.n_lines, 4);
	fab_region_close(region);
	fab_close(fab);
	wrong = host.offer;
	wrong.len++;
	assert_int_equal(tcp_reach(&wrong, 1, 4, &pair), ERR_CORRUPT);
	wrong = host.offer;
	wrong.tcp_address[0] = '\0';
	assert_int_equal(tcp_reach(&wrong, 1, 4, &pair), ERR_INVALID);
	memset(wrong.tcp_address, '9', sizeof(wrong.tcp_address)); /* no NUL */
	assert_int_equal(tcp_reach(&wrong, 1, 4, &pair), ERR_INVALID);
	host.refusal = ERR_NO_SPACE;
	assert_int_equal(tcp_reach(&host.offer, 1, 4, &pair), ERR_NO_SPACE);
	host.refusal = 0;
	/* The session is named. */
	const struct fab_ticket ticket = {11, 22};
	assert_int_equal(tcp_open_fabric(NULL, &fab), 0);
	assert_int_equal(fab_region_open(fab, &host.offer, conf_deadline_ns(), &region), 0);
	assert_int_equal(fab_connect(region, &ticket, 4, conf_deadline_ns(), &ep), 0);
	assert_int_equal(host.last.session_slot, 11);
	assert_int_equal(host.last.serial, 22);
	fab_disconnect(ep);
	fab_region_close(region);
	fab_close(fab);
	tcp_host_stop(&host);
}

/* A server that accepts connections and says nothing: connecting ends by its deadline. */
static void
test_silent_server(void **state)
{
	const struct net_address any = {.host = "127.0.0.1"};
	struct net_address bound;
	struct fab *fab;
	struct fab_region *region;
	struct fab_endpoint *ep = NULL;
	struct fab_offer offer = {.len = REGION_LEN};
	char reason[NET_REASON_MAX];
	int fd;
	(void)state;
	assert_int_equal(net_listen(&any, 4, &fd, &bound, reason), 0);
	net_format(&bound, offer.tcp_address);
	assert_int_equal(tcp_open_fabric(NULL, &fab), 0);
	assert_int_equal(fab_region_open(fab, &offer, conf_deadline_ns(), &region), 0);
	assert_int_equal(fab_connect(region, NULL, 4, clock_now_ns() + 50 * CLOCK_NS_PER_MS, &ep),
			 ERR_TIMEOUT);
	assert_null(ep);
	fab_region_close(region);
	fab_close(fab);
	close(fd);
}

/* ---- What the system refuses ---- */

/* From now on a system call fails with an error; for io_uring_register: only this of its kinds. */
static int
forbid(int call, int kind, int error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)kind, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	return conf_filter(filter, sizeof(filter) / sizeof(filter[0]));
}

static int
child_without_rings(void *arg)
{
	const int *error = arg;
	static char page[4096] __attribute__((aligned(4096)));
	struct sink sink = {0};
	const struct log log = {.sink = remember_line, .arg = &sink, .max_level = LOG_INFO};
	const struct tcp_events events = {0};
	struct tcp_server *server = NULL;
	struct fab *fab = NULL;
	char reason[TCP_REASON_MAX] = "", name[64];
	if (forbid(SYS_io_uring_setup, 0, *error))
		return 77;
	snprintf(name, sizeof(name), "io_uring_setup: %s (errno %d): ", strerror(*error), *error);
	int r = tcp_open_fabric(&log, &fab);
	if (r != err_from_errno(*error) || sink.n_lines != 1 ||
	    strncmp(sink.last, name, strlen(name)))
		return 1;
	if (strlen(sink.last) < strlen(name) + 20)
		return 2; /* no remedy */
	r = tcp_server_create(page, sizeof(page), &events, &tcp_host_options, &server, reason);
	if (r != err_from_errno(*error) || strncmp(reason, name, strlen(name)))
		return 3;
	return server || fab ? 4 : 0;
}

static void
test_without_rings(void **state)
{
	static const int errors[] = {EPERM, ENOSYS, ENOMEM, EINVAL, EMFILE};
	(void)state;
	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
		conf_child_succeeds(child_without_rings, (void *)(uintptr_t)&errors[i]);
}

/* A kernel that can register nothing: it works all the same. */
static int
child_without_registering(void *arg)
{
	struct tcp_host host;
	struct conf_pair pair;
	uint64_t old;
	static unsigned char out[100000], in[100000];
	(void)arg;
	if (forbid(SYS_io_uring_register, 0, EINVAL))
		return 77;
	if (tcp_host_start(&host, REGION_LEN, &tcp_host_options) ||
	    tcp_reach(&host.offer, 2, 16, &pair))
		return 1;
	for (unsigned i = 0; i < 200; i++) {
		fill(out, sizeof(out), i);
		struct fab_op ops[] = {conf_write(64, out, sizeof(out), 0), conf_faa(0, 1, &old, 0),
				       conf_read(64, in, sizeof(in), 0)};
		if (conf_batch(pair.ep[i % 2], ops, 3) || old != i ||
		    memcmp(out, in, sizeof(out)) != 0)
			return 2;
	}
	conf_leave(&pair);
	tcp_host_stop(&host);
	return 0;
}

static void
test_without_registering(void **state)
{
	(void)state;
	conf_child_succeeds(child_without_registering, NULL);
}

static unsigned
count_descriptors(void)
{
	unsigned n = 0;
	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Links that were never opened own no descriptor, least of all number 0. */
static void
test_unopened(void **state)
{
	struct tcp_link link = {0};
	(void)state;
	int fd = dup(STDERR_FILENO);
	assert_true(fd >= 0);
	assert_true(fcntl(0, F_GETFD) >= 0 || dup2(fd, 0) == 0);
	tcp_link_close(&link);
	assert_true(fcntl(0, F_GETFD) >= 0);
	close(fd);
}

/* The server's side of a connection is closed a little later. */
static void
await_descriptors(unsigned n)
{
	const struct timespec pause = {.tv_nsec = CLOCK_NS_PER_MS};
	int64_t deadline_ns = conf_deadline_ns();
	while (count_descriptors() != n) {
		assert_true(clock_now_ns() < deadline_ns);
		nanosleep(&pause, NULL);
	}
}

/* The nth call that the system may refuse fails: a failure, or none; nothing is left behind. */
static void
test_failures(void **state)
{
	const struct tcp_events events = {0};
	static char page[4096] __attribute__((aligned(4096)));
	char reason[TCP_REASON_MAX];
	struct tcp_host host;
	unsigned n_calls, nth = 0;
	(void)state;
	assert_int_equal(tcp_host_start(&host, REGION_LEN, &tcp_host_options), 0);
	unsigned n_before = count_descriptors();
	do {
		struct tcp_server *server = NULL;
		reason[0] = '\0';
		sites_arm(++nth);
		int r = tcp_server_create(page, sizeof(page), &events, &tcp_host_options, &server,
					  reason);
		n_calls = sites_disarm();
		assert_true(r <= 0 && (r == 0) == (server != NULL));
		assert_true(r == 0 || reason[0]);
		tcp_server_destroy(server);
		assert_int_equal(count_descriptors(), n_before);
	} while (n_calls >= nth && nth < 100);
	assert_in_range(nth, 8, 99);
	nth = 0;
	do {
		struct conf_pair pair;
		sites_arm(++nth);
		int r = tcp_reach(&host.offer, 1, 4, &pair);
		n_calls = sites_disarm();
		if (r == 0)
			conf_leave(&pair);
		assert_true(r <= 0);
		await_descriptors(n_before);
	} while (n_calls >= nth && nth < 100);
	assert_in_range(nth, 8, 99);
	struct conf_pair pair;
	uint64_t old;
	struct fab_op op = conf_faa(0, 1, &old, 0);
	assert_int_equal(tcp_reach(&host.offer, 1, 4, &pair), 0);
	assert_int_equal(conf_batch(pair.ep[0], &op, 1), 0);
	conf_leave(&pair);
	tcp_host_stop(&host);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CONF_TESTS,
		cmocka_unit_test(test_costs_alone),
		cmocka_unit_test(test_costs_together),
		cmocka_unit_test(test_costs_quiet),
		cmocka_unit_test(test_no_malloc),
		cmocka_unit_test(test_long_transfers),
		cmocka_unit_test(test_server_death),
		cmocka_unit_test(test_unreadable),
		cmocka_unit_test(test_client_death),
		cmocka_unit_test(test_destroy),
		cmocka_unit_test(test_many_peers),
		cmocka_unit_test(test_orderly_end),
		cmocka_unit_test(test_sever_wakes),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_undisturbed),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_silent_server),
		cmocka_unit_test(test_without_rings),
		cmocka_unit_test(test_without_registering),
		cmocka_unit_test(test_unopened),
		cmocka_unit_test(test_failures),
	};
	conf_factory = &tcp_factory;
	return cmocka_run_group_tests_name("fabric tcp", tests, NULL, NULL);
}
