/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shm fabric: the conformance suite, and what only this fabric promises: death of the serving
 * process, reservation, seals, what strangers may send, fork, no system call and no malloc.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
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
#include "tests/fabric/conformance.h"
#include "tests/fabric/sanitized.h"
#include "tests/fabric/shm_pair.h"
#include "tests/fault/heap.h"

#define REGION_LEN UINT64_C(1000000) /* not a multiple of a page */

/* ---- Helpers ---- */

static int
read_batch(struct fab_endpoint *ep)
{
	uint64_t word;
	struct fab_op op = conf_read(0, &word, 8, 0);
	return conf_batch(ep, &op, 1);
}

/* A server process: a pool and a TCP port. */
struct process {
	pid_t pid;
	struct fab_offer offer;
	struct net_address bound;
};

static void
process_main(int out_fd)
{
	struct process self = {0};
	struct shm_server server;
	char reason[NET_REASON_MAX];
	const struct net_address any = {.host = "127.0.0.1"};
	int listen_fd;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (shm_server_start(&server, REGION_LEN) ||
	    net_listen(&any, 16, &listen_fd, &self.bound, reason))
		_exit(1);
	self.offer = server.offer;
	if (write(out_fd, &self, sizeof(self)) != (ssize_t)sizeof(self))
		_exit(1);
	for (;;)
		pause();
}

static void
process_start(struct process *process)
{
	int fds[2];
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		process_main(fds[1]);
	close(fds[1]);
	assert_int_equal(read(fds[0], process, sizeof(*process)), sizeof(*process));
	process->pid = pid;
	close(fds[0]);
}

static void
process_reap(struct process *process)
{
	assert_int_equal(waitpid(process->pid, NULL, 0), process->pid);
}

/* ---- The serving process dies ---- */

static void
test_death(void **state)
{
	struct process process;
	struct conf_pair pair;
	struct fab_done done;
	struct fab_endpoint *ep = NULL;
	struct fab_region *region = NULL;
	(void)state;
	process_start(&process);
	assert_int_equal(shm_reach(&process.offer, 1, 16, &pair), 0);
	assert_int_equal(read_batch(pair.ep[0]), 0);
	kill(process.pid, SIGKILL);
	process_reap(&process);
	uint64_t word = 1;
	struct fab_op ops[] = {conf_write(64, &word, 8, 0), conf_cas(72, 0, 1, &word, 0)};
	for (int i = 0; i < 3; i++) {
		assert_int_equal(fab_post(pair.ep[0], ops, 2, &word), 0);
		assert_int_equal(fab_poll(pair.ep[0], &done, 1), 1);
		assert_int_equal(done.status, ERR_CONN);
		assert_ptr_equal(done.cookie, &word);
	}
	assert_int_equal(fab_connect(pair.region, NULL, 4, conf_deadline_ns(), &ep), ERR_CONN);
	assert_int_equal(fab_region_open(pair.fab, &process.offer, conf_deadline_ns(), &region),
			 ERR_CONN);
	conf_leave(&pair);
}

/* By the time a new server can have the port, the word has flipped. */
static void
test_death_before_port(void **state)
{
	(void)state;
	for (int round = 0; round < 50; round++) {
		struct process process;
		struct conf_pair pair;
		struct net_address bound;
		char reason[NET_REASON_MAX];
		int fd = -1, status_before = 0;
		process_start(&process);
		assert_int_equal(shm_reach(&process.offer, 1, 16, &pair), 0);
		assert_int_equal(read_batch(pair.ep[0]), 0);
		assert_int_not_equal(net_listen(&process.bound, 16, &fd, &bound, reason), 0);
		int64_t deadline_ns = conf_deadline_ns();
		kill(process.pid, SIGKILL);
		while (net_listen(&process.bound, 16, &fd, &bound, reason) &&
		       clock_now_ns() < deadline_ns)
			status_before = read_batch(pair.ep[0]);
		int status = read_batch(pair.ep[0]);
		assert_true(fd >= 0);
		assert_int_equal(status, ERR_CONN);
		assert_true(status_before == 0 || status_before == ERR_CONN);
		close(fd);
		process_reap(&process);
		conf_leave(&pair);
	}
}

/*
 * Ends of other kinds flip the word too: a signal that is not SIGKILL, and an orderly destruction.
 */
static void
test_death_otherwise(void **state)
{
	struct process process;
	struct shm_server server;
	struct conf_pair pair;
	(void)state;
	process_start(&process);
	assert_int_equal(shm_reach(&process.offer, 1, 16, &pair), 0);
	kill(process.pid, SIGTERM);
	process_reap(&process);
	assert_int_equal(read_batch(pair.ep[0]), ERR_CONN);
	conf_leave(&pair);

	assert_int_equal(shm_server_start(&server, REGION_LEN), 0);
	assert_int_equal(shm_reach(&server.offer, 1, 16, &pair), 0);
	assert_int_equal(read_batch(pair.ep[0]), 0);
	shm_server_stop(&server);
	assert_int_equal(read_batch(pair.ep[0]), ERR_CONN);
	conf_leave(&pair);
}

/* A server that is merely stopped is alive. */
static void
test_stopped_server(void **state)
{
	struct process process;
	struct conf_pair pair;
	(void)state;
	process_start(&process);
	assert_int_equal(shm_reach(&process.offer, 1, 16, &pair), 0);
	kill(process.pid, SIGSTOP);
	assert_int_equal(waitpid(process.pid, NULL, WUNTRACED), process.pid);
	assert_int_equal(read_batch(pair.ep[0]), 0);
	kill(process.pid, SIGKILL);
	process_reap(&process);
	assert_int_equal(read_batch(pair.ep[0]), ERR_CONN);
	conf_leave(&pair);
}

/* ---- Handing out the pool ---- */

/* The descriptor that clients of a pool of REGION_LEN get. */
static int
take_descriptor(const struct shm_share *share)
{
	int fd = -1, sockets[2];
	uint64_t len = 0;
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
	struct iovec iov = {&len, sizeof(len)};
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
	assert_int_equal(shm_share_send(share, sockets[0], getpid(), false), 0);
	assert_int_equal(recvmsg(sockets[1], &msg, MSG_CMSG_CLOEXEC), sizeof(len));
	assert_true(len == REGION_LEN);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	/* A client that is gone is a failure, not a SIGPIPE. */
	close(sockets[1]);
	assert_int_equal(shm_share_send(share, sockets[0], getpid(), false), ERR_CONN);
	close(sockets[0]);
	return fd;
}

struct shared {
	struct pool *pool;
	struct shm_share *share;
};

static struct shared
some_pool(void)
{
	struct shared s = {NULL, NULL};
	assert_int_equal(pool_create(REGION_LEN, POOL_HUGE_NO, POOL_NODE_ANY, NULL, &s.pool), 0);
	assert_int_equal(shm_share_create(s.pool, NULL, &s.share), 0);
	return s;
}

static void
let_go_of(struct shared s)
{
	shm_share_destroy(s.share);
	pool_destroy(s.pool);
}

static void
test_seals(void **state)
{
	struct shared shared = some_pool();
	(void)state;
	int fd = take_descriptor(shared.share);
	off_t len = lseek(fd, 0, SEEK_END);
	assert_true(len >= (off_t)(REGION_LEN + 64));
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(fd, len + 4096), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	close(fd);
	let_go_of(shared);
}

/* ---- Strangers at the unix socket ---- */

struct stranger {
	int listen_fd;
	int send_fds[2];
	unsigned n_fds;
	uint64_t len;
	size_t n_bytes; /* of len to send; 0: close in silence */
	bool refuses;   /* shm_refuse, before it reads anything */
	bool starves;   /* while it sends, this process can get no descriptor */
	struct fab_offer offer;
	pthread_t thread;
};

static void *
stranger_main(void *arg)
{
	struct stranger *s = arg;
	char control[CMSG_SPACE(2 * sizeof(int))] __attribute__((aligned(8))) = {0};
	unsigned char token[SHM_REQUEST_LEN];
	struct iovec iov = {&s->len, s->n_bytes};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	struct rlimit limit, none;
	int fd = accept(s->listen_fd, NULL, NULL);
	if (fd >= 0 && s->refuses) {
		shm_refuse(fd);
		close(fd);
		return NULL;
	}
	if (fd < 0 || recv(fd, token, sizeof(token), MSG_WAITALL) != (ssize_t)sizeof(token))
		return NULL;
	getrlimit(RLIMIT_NOFILE, &limit);
	none = limit;
	none.rlim_cur = 1; /* standard input has that one; with 0 poll(2) would fail */
	if (s->starves)
		setrlimit(RLIMIT_NOFILE, &none);
	if (s->n_fds > 0) {
		msg.msg_control = control;
		msg.msg_controllen = CMSG_SPACE(s->n_fds * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		*c = (struct cmsghdr){CMSG_LEN(s->n_fds * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
		memcpy(CMSG_DATA(c), s->send_fds, s->n_fds * sizeof(int));
	}
	if (s->n_bytes > 0)
		sendmsg(fd, &msg, MSG_NOSIGNAL);
	close(fd);
	return NULL;
}

/* What region_open says to it. */
static int
meet_stranger(struct stranger *s)
{
	static unsigned n_strangers;
	char reason[NET_REASON_MAX];
	struct rlimit limit;
	struct fab *fab;
	struct fab_region *region = NULL;
	s->offer.len = REGION_LEN;
	snprintf(s->offer.unix_path, sizeof(s->offer.unix_path), "@rkv-test-stranger-%d-%u",
		 getpid(), n_strangers++);
	assert_int_equal(net_unix_listen(s->offer.unix_path, 1, &s->listen_fd, reason), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(pthread_create(&s->thread, NULL, stranger_main, s), 0);
	assert_int_equal(shm_open_fabric(&fab), 0);
	int r = fab_region_open(fab, &s->offer, conf_deadline_ns(), &region);
	pthread_join(s->thread, NULL);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	fab_region_close(region);
	fab_close(fab);
	close(s->listen_fd);
	return r;
}

static int
ask_stranger(size_t n_bytes, uint64_t len, unsigned n_fds, int fd)
{
	struct stranger s = {.send_fds = {fd, fd}, .n_fds = n_fds, .len = len, .n_bytes = n_bytes};
	return meet_stranger(&s);
}

static unsigned
count_descriptors(void)
{
	unsigned n = 0;
	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void
test_strangers(void **state)
{
	struct shared shared = some_pool();
	(void)state;
	int good = take_descriptor(shared.share);
	int plain = memfd_create("plain", MFD_ALLOW_SEALING);
	int sealed = memfd_create("sealed", MFD_ALLOW_SEALING);
	int small = memfd_create("small", MFD_ALLOW_SEALING);
	int file = open("/dev/null", O_RDWR);
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	assert_true(plain >= 0 && sealed >= 0 && small >= 0 && file >= 0);
	assert_int_equal(ftruncate(plain, 2 << 20), 0);
	assert_int_equal(ftruncate(sealed, 2 << 20), 0);
	assert_int_equal(ftruncate(small, 4096), 0);
	assert_int_equal(fcntl(sealed, F_ADD_SEALS, seals), 0);
	assert_int_equal(fcntl(small, F_ADD_SEALS, seals), 0);
	unsigned n_before = count_descriptors();
	assert_int_equal(ask_stranger(0, 0, 0, -1), ERR_CONN);
	assert_int_equal(ask_stranger(8, REGION_LEN, 0, -1), ERR_CORRUPT);
	assert_int_equal(ask_stranger(3, REGION_LEN, 1, sealed), ERR_CORRUPT);
	assert_int_equal(ask_stranger(8, REGION_LEN, 2, sealed), ERR_CORRUPT);
	assert_int_equal(ask_stranger(8, REGION_LEN + 1, 1, sealed), ERR_CORRUPT);
	assert_int_equal(ask_stranger(8, REGION_LEN, 1, file), ERR_CORRUPT);
	assert_int_equal(ask_stranger(8, REGION_LEN, 1, plain), ERR_CORRUPT);
	assert_int_equal(ask_stranger(8, REGION_LEN, 1, small), ERR_CORRUPT);
	/* Sealed and large enough, but without a life word. */
	assert_int_equal(ask_stranger(8, REGION_LEN, 1, sealed), ERR_CORRUPT);
	/* A good one is taken, two of them are not. */
	assert_int_equal(ask_stranger(8, REGION_LEN, 1, good), 0);
	assert_int_equal(ask_stranger(8, REGION_LEN, 2, good), ERR_CORRUPT);
	assert_int_equal(count_descriptors(), n_before);
	close(plain);
	close(sealed);
	close(small);
	close(file);
	close(good);
	let_go_of(shared);
}

/* Too few descriptors, here or there, are told apart from a server that sends nonsense. */
static void
test_out_of_descriptors(void **state)
{
	struct shared shared = some_pool();
	int good = take_descriptor(shared.share);
	unsigned n_before = count_descriptors();
	(void)state;
	struct stranger here = {
		.send_fds = {good}, .n_fds = 1, .len = REGION_LEN, .n_bytes = 8, .starves = true};
	assert_int_equal(meet_stranger(&here), ERR_NOMEM);
	for (int i = 0; i < 20; i++) { /* also if it has hung up before the token is sent */
		struct stranger there = {.refuses = true};
		assert_int_equal(meet_stranger(&there), ERR_AGAIN);
	}
	assert_int_equal(ask_stranger(1, 'F' + 1, 0, -1), ERR_CORRUPT);
	assert_int_equal(ask_stranger(1, 'F', 1, good), ERR_CORRUPT);
	assert_int_equal(ask_stranger(8, REGION_LEN, 1, good), 0);
	assert_int_equal(count_descriptors(), n_before);
	close(good);
	let_go_of(shared);
}

static void
test_refusals(void **state)
{
	struct shm_server server;
	struct conf_pair pair;
	(void)state;
	assert_int_equal(shm_server_start(&server, REGION_LEN), 0);
	struct fab_offer wrong = server.offer;
	wrong.token[0]++;
	assert_int_equal(shm_reach(&wrong, 1, 16, &pair), ERR_CONN);
	wrong = server.offer;
	wrong.len++;
	assert_int_equal(shm_reach(&wrong, 1, 16, &pair), ERR_CORRUPT);
	wrong = server.offer;
	snprintf(wrong.unix_path, sizeof(wrong.unix_path), "@rkv-test-nobody-%d", getpid());
	assert_int_equal(shm_reach(&wrong, 1, 16, &pair), ERR_CONN);
	memset(wrong.unix_path, 'x', sizeof(wrong.unix_path)); /* no NUL */
	assert_int_equal(shm_reach(&wrong, 1, 16, &pair), ERR_INVALID);
	wrong.unix_path[0] = '\0';
	assert_int_equal(shm_reach(&wrong, 1, 16, &pair), ERR_INVALID);
	assert_int_equal(shm_reach(&server.offer, 1, 16, &pair), 0);
	assert_int_equal(read_batch(pair.ep[0]), 0);
	conf_leave(&pair);
	shm_server_stop(&server);
}

/* A socket with a name in the file system. */
static void
test_socket_path(void **state)
{
	char dir[] = "/tmp/rkv-test-XXXXXX", path[64], reason[NET_REASON_MAX];
	struct sockaddr_un address;
	socklen_t len;
	int listen_fd, again, fd;
	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/socket", dir);
	assert_int_equal(net_unix_listen(path, 1, &listen_fd, reason), 0);
	assert_int_equal(net_unix_listen(path, 1, &again, reason), ERR_CONN);
	assert_non_null(strstr(reason, path));
	assert_int_equal(net_unix_connect(path, conf_deadline_ns(), &fd), 0);
	assert_int_equal(net_unix_address(path, &address, &len), 0);
	assert_string_equal(address.sun_path, path);
	close(fd);
	close(listen_fd);
	assert_int_equal(net_unix_connect(path, conf_deadline_ns(), &fd), ERR_CONN);
	unlink(path);
	rmdir(dir);
}

/* A server that accepts and says nothing, and one that does not even accept. */
static void
test_silent_server(void **state)
{
	struct fab_offer offer = {.len = REGION_LEN};
	struct fab *fab;
	struct fab_region *region = NULL;
	char reason[NET_REASON_MAX];
	int listen_fd;
	(void)state;
	snprintf(offer.unix_path, sizeof(offer.unix_path), "@rkv-test-silent-%d", getpid());
	assert_int_equal(net_unix_listen(offer.unix_path, 0, &listen_fd, reason), 0);
	assert_int_equal(shm_open_fabric(&fab), 0);
	int fds[8], n_fds = 0;
	/* Connected, and waiting in vain for the descriptor. */
	int64_t deadline_ns = clock_now_ns() + 20 * CLOCK_NS_PER_MS;
	assert_int_equal(fab_region_open(fab, &offer, deadline_ns, &region), ERR_TIMEOUT);
	assert_true(clock_now_ns() >= deadline_ns);
	/* The backlog is full: connect itself waits. */
	while (n_fds < 8 && net_unix_connect(offer.unix_path, clock_now_ns(), &fds[n_fds]) == 0)
		n_fds++;
	assert_true(n_fds < 8);
	deadline_ns = clock_now_ns() + 20 * CLOCK_NS_PER_MS;
	assert_int_equal(fab_region_open(fab, &offer, deadline_ns, &region), ERR_TIMEOUT);
	assert_null(region);
	while (n_fds > 0)
		close(fds[--n_fds]);
	fab_close(fab);
	close(listen_fd);
}

/* ---- What an endpoint may do ---- */

/* A batch with a violation executes nothing, not even what stands before it. */
static void
test_failure_executes_nothing(void **state)
{
	struct shm_server server;
	struct conf_pair pair;
	uint64_t word = 5, old = 0;
	(void)state;
	assert_int_equal(shm_server_start(&server, REGION_LEN), 0);
	assert_int_equal(shm_reach(&server.offer, 1, 16, &pair), 0);
	struct fab_op ops[] = {
		conf_write(64, &word, 8, 0),
		conf_faa(72, 1, &old, 0),
		conf_read(REGION_LEN - 4, &old, 8, 0),
	};
	assert_int_equal(conf_batch(pair.ep[0], ops, 3), ERR_INVALID);
	/* Broken now: quiet batches are not executed either. */
	assert_int_equal(fab_post_quiet(pair.ep[0], ops, 1), 0);
	const uint64_t *remote = pool_base(server.pool);
	assert_true(remote[8] == 0 && remote[9] == 0);
	conf_leave(&pair);
	/* Nor is anything executed once the region is severed. */
	assert_int_equal(shm_reach(&server.offer, 1, 16, &pair), 0);
	fab_region_sever(pair.region);
	assert_int_equal(conf_batch(pair.ep[0], ops, 2), ERR_CONN);
	assert_int_equal(fab_post_quiet(pair.ep[0], ops, 2), 0);
	assert_true(remote[8] == 0 && remote[9] == 0);
	conf_leave(&pair);
	shm_server_stop(&server);
}

/* A read-only descriptor: reads work, nothing else. */
static void
test_read_only(void **state)
{
	struct shared shared = some_pool();
	uint64_t word = 5;
	(void)state;
	int fd = take_descriptor(shared.share);
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int read_only = open(path, O_RDONLY);
	assert_true(read_only >= 0);
	const struct fab_op ops[] = {
		conf_write(64, &word, 8, 0),
		conf_cas(64, 0, 1, &word, 0),
		conf_faa(64, 1, &word, 0),
	};
	for (int i = 0; i < 3; i++) {
		struct stranger s = {
			.send_fds = {read_only}, .n_fds = 1, .len = REGION_LEN, .n_bytes = 8};
		struct conf_pair pair;
		char reason[NET_REASON_MAX];
		s.offer.len = REGION_LEN;
		snprintf(s.offer.unix_path, sizeof(s.offer.unix_path), "@rkv-test-ro-%d-%d",
			 getpid(), i);
		assert_int_equal(net_unix_listen(s.offer.unix_path, 1, &s.listen_fd, reason), 0);
		assert_int_equal(pthread_create(&s.thread, NULL, stranger_main, &s), 0);
		assert_int_equal(shm_reach(&s.offer, 1, 16, &pair), 0);
		pthread_join(s.thread, NULL);
		close(s.listen_fd);
		assert_int_equal(read_batch(pair.ep[0]), 0);
		assert_int_equal(conf_batch(pair.ep[0], &ops[i], 1), ERR_PERM);
		assert_int_equal(read_batch(pair.ep[0]), ERR_CONN);
		conf_leave(&pair);
	}
	assert_true(((const uint64_t *)pool_base(shared.pool))[8] == 0);
	close(read_only);
	close(fd);
	let_go_of(shared);
}

/* The server's own endpoint and a client's work on the same words. */
static void
test_loopback(void **state)
{
	struct shm_server server;
	struct conf_pair pair;
	struct fab_endpoint *loop;
	uint64_t old = 9;
	(void)state;
	assert_int_equal(shm_server_start(&server, REGION_LEN), 0);
	assert_int_equal(shm_loopback(server.share, &loop), 0);
	assert_int_equal(shm_reach(&server.offer, 1, 16, &pair), 0);
	struct fab_op op = conf_cas(0, 0, 5, &old, 0);
	assert_int_equal(conf_batch(loop, &op, 1), 0);
	assert_true(old == 0);
	op = conf_cas(0, 5, 6, &old, 0);
	assert_int_equal(conf_batch(pair.ep[0], &op, 1), 0);
	assert_true(old == 5);
	op = conf_read(0, &old, 8, 0);
	assert_int_equal(conf_batch(loop, &op, 1), 0);
	assert_true(old == 6);
	op = conf_read(REGION_LEN, &old, 8, 0);
	assert_int_equal(conf_batch(loop, &op, 1), ERR_INVALID);
	conf_leave(&pair);
	shm_loopback_close(loop);
	shm_loopback_close(NULL);
	shm_server_stop(&server);
}

/*
 * Copies that race, of all lengths and alignments: for the thread sanitizer, which must stay
 * silent. No atomics among them, because those would order the copies.
 */
static pthread_barrier_t racing_start;

static void *
racing_main(void *arg)
{
	struct fab_endpoint *ep = arg;
	unsigned char local[64] __attribute__((aligned(8))) = {0};
	pthread_barrier_wait(&racing_start);
	for (uint32_t i = 0; i < 20000; i++) {
		uint32_t len = i % 50 + 1;
		struct fab_op ops[] = {
			conf_write(100 + i % 9, local, len, 0),
			conf_read(100 + i % 7, local, len, 0),
		};
		if (conf_batch(ep, ops, 2))
			return ep;
	}
	return NULL;
}

static void
test_racing_copies(void **state)
{
	struct conf_pair pair;
	pthread_t thread[2];
	void *failed[2];
	(void)state;
	assert_int_equal(shm_factory.open(REGION_LEN, 2, 16, &pair), 0);
	pthread_barrier_init(&racing_start, NULL, 2);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, racing_main, pair.ep[i]), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], &failed[i]);
	pthread_barrier_destroy(&racing_start);
	shm_factory.close(&pair);
	assert_null(failed[0]);
	assert_null(failed[1]);
}

#define BUCKET_LEN 128u

static atomic_bool words_stop;

static void *
words_writer(void *arg)
{
	struct fab_endpoint *ep = arg;
	for (uint64_t i = 0; !atomic_load(&words_stop); i++) {
		uint64_t word = (i & UINT32_MAX) << 32 | (i & UINT32_MAX);
		struct fab_op op = conf_write(i % 16 * 8, &word, 8, 0);
		if (conf_batch(ep, &op, 1))
			break;
	}
	return NULL;
}

/* More than fabric.h promises: the words of a READ as long as a combined bucket are not torn. */
static void
test_bucket_words(void **state)
{
	struct conf_pair pair;
	pthread_t writer;
	uint64_t words[BUCKET_LEN / 8] = {0};
	unsigned n_torn = 0, n_failed = 0;
	(void)state;
	assert_int_equal(shm_factory.open(REGION_LEN, 2, 16, &pair), 0);
	atomic_store(&words_stop, false);
	assert_int_equal(pthread_create(&writer, NULL, words_writer, pair.ep[1]), 0);
	for (int i = 0; i < 50000; i++) {
		struct fab_op op = conf_read(0, words, BUCKET_LEN, 0);
		n_failed += conf_batch(pair.ep[0], &op, 1) != 0;
		for (size_t j = 0; j < BUCKET_LEN / 8; j++)
			n_torn += words[j] >> 32 != (words[j] & UINT32_MAX);
	}
	atomic_store(&words_stop, true);
	pthread_join(writer, NULL);
	shm_factory.close(&pair);
	assert_int_equal(n_torn, 0);
	assert_int_equal(n_failed, 0);
}

/* ---- Fork, and the cost of a batch ---- */

static int
touching_child(void *arg)
{
	struct fab_endpoint *ep = arg;
	const struct rlimit no_core = {0, 0};
	setrlimit(RLIMIT_CORE, &no_core);
	signal(SIGSEGV, SIG_DFL);
	read_batch(ep);
	return 0;
}

static int
touching_pool_child(void *arg)
{
	const struct rlimit no_core = {0, 0};
	setrlimit(RLIMIT_CORE, &no_core);
	signal(SIGSEGV, SIG_DFL);
	return __atomic_load_n((unsigned char *)arg, __ATOMIC_RELAXED);
}

/* A forked child has neither the client's mapping nor the server's. */
static void
test_fork(void **state)
{
	struct shm_server server;
	struct conf_pair pair;
	(void)state;
	assert_int_equal(shm_server_start(&server, REGION_LEN), 0);
	assert_int_equal(shm_reach(&server.offer, 1, 16, &pair), 0);
	int status = conf_in_child(touching_child, pair.ep[0]);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	status = conf_in_child(touching_pool_child, pool_base(server.pool));
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	/* The parent's is untouched by the child's end, and the server still counts as alive. */
	assert_int_equal(read_batch(pair.ep[0]), 0);
	conf_leave(&pair);
	shm_server_stop(&server);
}

static int
run_batches(struct fab_endpoint *ep, unsigned n)
{
	static unsigned char local[1024];
	static uint64_t words[2];
	struct fab_op ops[] = {
		conf_write(4096, local, 200, 0),
		conf_cas(64, 0, 0, &words[0], 0),
		conf_read(64, &words[1], 8, 0),
		conf_read(8192, local, 1000, 0),
	};
	for (unsigned i = 0; i < n; i++) {
		struct fab_done done;
		if (fab_post(ep, ops, 4, NULL) || fab_post_quiet(ep, ops, 1) ||
		    fab_poll(ep, &done, 1) != 1 || done.status)
			return 1;
	}
	return 0;
}

static void
test_no_malloc(void **state)
{
	struct conf_pair pair;
	(void)state;
	if (SANITIZED)
		skip();
	assert_int_equal(shm_factory.open(REGION_LEN, 1, 16, &pair), 0);
	uint64_t n_before = heap_calls();
	assert_true(n_before > 0); /* the counter counts */
	int r = run_batches(pair.ep[0], 1000);
	uint64_t n_after = heap_calls();
	shm_factory.close(&pair);
	assert_int_equal(r, 0);
	assert_int_equal(n_after, n_before);
}

/* From here on the kernel kills this process for any system call but write and exit. */
static int
forbid_system_calls(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	return conf_filter(filter, sizeof(filter) / sizeof(filter[0]));
}

static int
strict_child(void *arg)
{
	struct conf_pair pair;
	if (shm_reach(arg, 1, 16, &pair) || run_batches(pair.ep[0], 1))
		return 1;
	if (forbid_system_calls())
		return 77;
	return run_batches(pair.ep[0], 1000);
}

static int
offending_child(void *arg)
{
	(void)arg;
	return forbid_system_calls() ? 77 : (int)getppid() & 0;
}

static void
test_no_system_call(void **state)
{
	struct process process;
	(void)state;
	if (SANITIZED)
		skip();
	int control = conf_in_child(offending_child, NULL);
	if (WIFEXITED(control) && WEXITSTATUS(control) == 77)
		skip();
	assert_true(WIFSIGNALED(control) && WTERMSIG(control) == SIGSYS);
	process_start(&process);
	conf_child_succeeds(strict_child, &process.offer);
	kill(process.pid, SIGKILL);
	process_reap(&process);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CONF_TESTS,
		cmocka_unit_test(test_death),
		cmocka_unit_test(test_death_before_port),
		cmocka_unit_test(test_death_otherwise),
		cmocka_unit_test(test_stopped_server),
		cmocka_unit_test(test_seals),
		cmocka_unit_test(test_strangers),
		cmocka_unit_test(test_out_of_descriptors),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_socket_path),
		cmocka_unit_test(test_silent_server),
		cmocka_unit_test(test_failure_executes_nothing),
		cmocka_unit_test(test_read_only),
		cmocka_unit_test(test_loopback),
		cmocka_unit_test(test_racing_copies),
		cmocka_unit_test(test_bucket_words),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_no_malloc),
		cmocka_unit_test(test_no_system_call),
	};
	conf_factory = &shm_factory;
	return cmocka_run_group_tests_name("fabric shm", tests, NULL, NULL);
}
