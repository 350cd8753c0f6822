/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What operations cost in verbs, counted where libibverbs hands over to the device's provider:
 * doorbells (ibv_post_send calls), work requests, signalled ones, bytes, completions. And that a
 * warm session does nothing else: it calls the system only where Soft-RoCE's provider does, once a
 * doorbell. Runs in the virtual machine.
 */
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cmocka.h>

#include "client/include/rkv.h"
#include "proto/layout.h"
#include "tests/proc/load.h"
#include "tests/proc/proc.h"

#define VALUE_LEN 100u

static struct server *server;
static struct rkv_client *client;
static struct rkv_session *session;
static struct rkv_session *other; /* makes keys without warming `session` */
static const unsigned char value[VALUE_LEN] = "a value";

/* ---- Counting, each thread for itself ---- */

struct cost {
	unsigned doorbells, signalled, completions;
	unsigned reads, writes, atomics; /* work requests */
	uint64_t bytes_read, bytes_written;
};

static __thread struct cost cost;
static struct ibv_context *device;
static int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
static int (*poll_cq)(struct ibv_cq *, int, struct ibv_wc *);

static void
count_request(const struct ibv_send_wr *wr)
{
	uint64_t len = 0;
	for (int i = 0; i < wr->num_sge; i++)
		len += wr->sg_list[i].length;
	cost.signalled += (wr->send_flags & IBV_SEND_SIGNALED) != 0;
	switch (wr->opcode) {
	case IBV_WR_RDMA_READ:
		cost.reads++;
		cost.bytes_read += len;
		return;
	case IBV_WR_RDMA_WRITE:
		cost.writes++;
		cost.bytes_written += len;
		return;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		cost.atomics++;
		return;
	default:
		abort(); /* nothing else is ever posted */
	}
}

static int
counted_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad)
{
	cost.doorbells++;
	for (const struct ibv_send_wr *each = wr; each; each = each->next)
		count_request(each);
	return post_send(qp, wr, ret_bad);
}

static int
counted_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *ret_wc)
{
	int got = poll_cq(cq, n, ret_wc);
	if (got > 0)
		cost.completions += (unsigned)got;
	return got;
}

/* Takes the place of librdmacm's: by then the connection's device is known. */
int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param);

int
rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	int (*next)(struct rdma_cm_id *, struct rdma_conn_param *) =
		(int (*)(struct rdma_cm_id *, struct rdma_conn_param *))(uintptr_t)dlsym(
			RTLD_NEXT, "rdma_connect");
	if (id->verbs->ops.post_send != counted_post_send) {
		device = id->verbs;
		post_send = device->ops.post_send;
		poll_cq = device->ops.poll_cq;
		device->ops.post_send = counted_post_send;
		device->ops.poll_cq = counted_poll_cq;
	}
	return next(id, param);
}

static void
assert_cost(struct cost want)
{
	struct cost got = cost;
	print_message("# %u doorbells, %u READ, %u WRITE, %u atomics, %u signalled, %u completed, "
		      "%llu bytes read, %llu written\n",
		      got.doorbells, got.reads, got.writes, got.atomics, got.signalled,
		      got.completions, (unsigned long long)got.bytes_read,
		      (unsigned long long)got.bytes_written);
	assert_int_equal(got.doorbells, want.doorbells);
	assert_int_equal(got.reads, want.reads);
	assert_int_equal(got.writes, want.writes);
	assert_int_equal(got.atomics, want.atomics);
	assert_int_equal(got.signalled, want.signalled);
	assert_int_equal(got.completions, want.completions);
	assert_int_equal(got.bytes_read, want.bytes_read);
	assert_int_equal(got.bytes_written, want.bytes_written);
}

static void
begin(void)
{
	cost = (struct cost){0};
}

/* What a block takes: written, and read (whole granules). */
static uint64_t
written_len(const char *key)
{
	return block_len((uint32_t)strlen(key), VALUE_LEN);
}

static uint64_t
read_len(const char *key)
{
	return block_granules(written_len(key)) * LIMIT_GRANULE;
}

static void
put(struct rkv_session *s, const char *key)
{
	assert_int_equal(rkv_put(s, key, strlen(key), value, VALUE_LEN, NULL, NULL), RKV_OK);
}

static void
get(const char *key, int status)
{
	unsigned char buf[VALUE_LEN];
	assert_int_equal(rkv_get(session, key, strlen(key), buf, sizeof(buf), NULL), status);
}

static int
setup_server(void **state)
{
	(void)state;
	server = server_start("--pool-size", "256M", "--chunk-size", "1M", NULL);
	return 0;
}

static int
teardown_server(void **state)
{
	(void)state;
	return server_stop(server);
}

static int
setup(void **state)
{
	setup_server(state);
	assert_int_equal(rkv_open(server->address, NULL, &client), RKV_OK);
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
	assert_int_equal(rkv_session_open(client, &other), RKV_OK);
	/* Chunks are claimed beforehand, so that nothing is counted for it. */
	put(session, "first");
	put(other, "first");
	return device ? 0 : -1;
}

static int
teardown(void **state)
{
	rkv_session_close(other);
	rkv_session_close(session);
	rkv_close(client);
	return teardown_server(state);
}

/* ---- Operations ---- */

static void
test_get(void **state)
{
	(void)state;
	uint64_t len = read_len("get");
	put(other, "get");
	begin();
	get("get", RKV_OK); /* cold */
	assert_cost((struct cost){.doorbells = 2,
				  .reads = 3,
				  .signalled = 2,
				  .completions = 2,
				  .bytes_read = len + 256});
	begin();
	get("get", RKV_OK); /* warm */
	assert_cost((struct cost){.doorbells = 1,
				  .reads = 2,
				  .signalled = 1,
				  .completions = 1,
				  .bytes_read = len + 8});
	begin();
	get("absent", RKV_NOT_FOUND);
	assert_cost((struct cost){
		.doorbells = 1, .reads = 2, .signalled = 1, .completions = 1, .bytes_read = 256});
}

/* The mark is a doorbell of its own: nobody waits for it, and it is sent at once. */
static void
test_put(void **state)
{
	(void)state;
	uint64_t len = written_len("put");
	begin();
	put(session, "put"); /* INSERT */
	assert_cost((struct cost){.doorbells = 3,
				  .reads = 6,
				  .writes = 1,
				  .atomics = 2,
				  .signalled = 3,
				  .completions = 3,
				  .bytes_read = 528,
				  .bytes_written = len});
	begin();
	put(session, "put"); /* UPDATE, warm */
	assert_cost((struct cost){.doorbells = 2,
				  .reads = 1,
				  .writes = 2,
				  .atomics = 1,
				  .signalled = 1,
				  .completions = 1,
				  .bytes_read = 8,
				  .bytes_written = len + 1});
}

static void
test_delete(void **state)
{
	(void)state;
	put(session, "delete");
	begin();
	assert_int_equal(rkv_delete(session, "delete", 6), RKV_OK);
	assert_cost((struct cost){.doorbells = 2,
				  .reads = 1,
				  .writes = 1,
				  .atomics = 1,
				  .signalled = 1,
				  .completions = 1,
				  .bytes_read = 8,
				  .bytes_written = 1});
}

/* What is posted between two polls goes out with one doorbell; each batch has its completion. */
static void
test_batches_share_a_doorbell(void **state)
{
	char buf[8][VALUE_LEN];
	struct rkv_request requests[8];
	(void)state;
	put(session, "many");
	for (int i = 0; i < 8; i++)
		requests[i] = (struct rkv_request){.op = RKV_OP_GET,
						   .key = "many",
						   .key_len = 4,
						   .buf = buf[i],
						   .buf_len = VALUE_LEN};
	begin();
	assert_int_equal(rkv_multi_get(session, requests, 8), RKV_OK);
	assert_cost((struct cost){.doorbells = 1,
				  .reads = 16,
				  .signalled = 8,
				  .completions = 8,
				  .bytes_read = 8 * (read_len("many") + 8)});
}

/* ---- The steady state ---- */

#define STEADY_OPS 2000u
#define WARM_UP_OPS 2000u
#define TRIES 5u

/*
 * From now on this thread may end the process, write to that file, and read the clock, which is no
 * system call but in this machine; nothing else.
 */
static void
forbid_system_calls_but_write(int fd)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 4, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)fd, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
		_exit(77);
}

static int
run_watched(void *arg)
{
	struct rkv_client *c;
	struct rkv_session *s;
	const bool *breaks_it = arg;
	load_require(rkv_open(server->address, NULL, &c) == RKV_OK);
	load_require(rkv_session_open(c, &s) == RKV_OK);
	load_require(load_steady(s, value, VALUE_LEN, WARM_UP_OPS));
	forbid_system_calls_but_write(device->cmd_fd);
	if (*breaks_it)
		getppid();
	return load_steady(s, value, VALUE_LEN, STEADY_OPS) ? 0 : 2;
}

static void
test_nothing_but_doorbells(void **state)
{
	bool breaks_it = false;
	(void)state;
	/* A call that meets the control thread, which flushes marks once a stamp, waits for it. */
	int code = 1;
	for (unsigned i = 0; i < TRIES && code != 0; i++)
		code = load_reap(load_fork(run_watched, &breaks_it), PROC_WAIT_MS);
	assert_int_equal(code, 0);
	breaks_it = true;
	code = load_reap(load_fork(run_watched, &breaks_it), PROC_WAIT_MS);
	assert_int_equal(code, 128 + SIGSYS);
}

/* Requests, completions and doorbells of many operations: nothing comes on top. */
static void
test_steady_counts(void **state)
{
	(void)state;
	uint64_t written = written_len("steady-0"), read = read_len("steady-0");
	assert_true(load_steady(session, value, VALUE_LEN, WARM_UP_OPS));
	begin();
	assert_true(load_steady(session, value, VALUE_LEN, LOAD_STEADY_KEYS));
	assert_cost((struct cost){.doorbells = 3 * LOAD_STEADY_KEYS,
				  .reads = 3 * LOAD_STEADY_KEYS,
				  .writes = 2 * LOAD_STEADY_KEYS,
				  .atomics = LOAD_STEADY_KEYS,
				  .signalled = 2 * LOAD_STEADY_KEYS,
				  .completions = 2 * LOAD_STEADY_KEYS,
				  .bytes_read = LOAD_STEADY_KEYS * (read + 16),
				  .bytes_written = LOAD_STEADY_KEYS * (written + 1)});
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_get),
		cmocka_unit_test(test_put),
		cmocka_unit_test(test_delete),
		cmocka_unit_test(test_batches_share_a_doorbell),
		cmocka_unit_test(test_steady_counts),
	};
	const struct CMUnitTest alone[] = {
		cmocka_unit_test(test_nothing_but_doorbells),
	};
	int n_failed = cmocka_run_group_tests(alone, setup_server, teardown_server);
	return n_failed + cmocka_run_group_tests(tests, setup, teardown);
}
