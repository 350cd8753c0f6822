/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Servers and clients that die, are stopped, or lose their connection, in the middle of their work.
 * What was submitted completes exactly once; what a dead server held is never seen again; sessions
 * heal; what dead clients held is taken over.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/include/rkv.h"
#include "common/net.h"
#include "tests/proc/load.h"
#include "tests/proc/proc.h"

static struct server *server;

static void
start_server(uint16_t port)
{
	char listen[32];
	snprintf(listen, sizeof(listen), "127.0.0.1:%u", port);
	const char *args[] = {"--listen", listen, "--pool-size", "64M", NULL};
	server = server_start_with(args, NULL);
}

static void
kill_server(void)
{
	server_kill(server);
	server = NULL;
}

static int
setup(void **state)
{
	(void)state;
	start_server(proc_free_port());
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	int code = server ? server_stop(server) : 0;
	server = NULL;
	return code;
}

static void
open_session(const char *address, uint32_t op_timeout_ms, struct rkv_client **ret_client,
	     struct rkv_session **ret_session)
{
	struct rkv_options options;
	rkv_options_init(&options);
	options.depth = 1024;
	options.op_timeout_ms = op_timeout_ms;
	assert_int_equal(rkv_open(address, &options, ret_client), RKV_OK);
	assert_int_equal(rkv_session_open(*ret_client, ret_session), RKV_OK);
}

/* However little time the session gives its operations: this one is not about time. */
static void
put_text(struct rkv_session *session, const char *key, const char *value)
{
	const struct rkv_put_options patient = {.timeout_ms = PROC_WAIT_MS};
	assert_int_equal(
		rkv_put(session, key, strlen(key), value, strlen(value) + 1, &patient, NULL),
		RKV_OK);
}

/* Reads until there is an answer; it must be the wanted one (NULL: absent). */
static void
await_text(struct rkv_session *session, const char *key, const char *want)
{
	char got[32] = "";
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	int rc;
	do
		rc = rkv_get(session, key, strlen(key), got, sizeof(got), NULL);
	while ((rc == RKV_E_CONN || rc == RKV_E_TIMEOUT) && proc_pause(deadline));
	assert_int_equal(rc, want ? RKV_OK : RKV_NOT_FOUND);
	if (want)
		assert_string_equal(got, want);
}

/* ---- A dead server serves nobody once its port is free ---- */

#define N_DEATHS 5

struct port {
	uint16_t number;
	atomic_bool is_taken;
};

/* Takes the port as the next server would, as soon as it can. */
static void *
take_port(void *arg)
{
	struct port *port = arg;
	const struct sockaddr_in addr = {.sin_family = AF_INET,
					 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
					 .sin_port = htons(port->number)};
	const int on = 1;
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	for (;;) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		bool is_taken = bind(fd, (const struct sockaddr *)&addr, sizeof(addr)) == 0 &&
				listen(fd, 1) == 0;
		close(fd);
		if (is_taken)
			break;
		if (proc_deadline(0) > deadline)
			return NULL;
	}
	atomic_store(&port->is_taken, true);
	return NULL;
}

/* How many GETs that began when the port was free had an answer from the server that is dead. */
static unsigned
count_answers_of_the_dead(struct rkv_session *session, const struct port *port)
{
	unsigned n = 0;
	char got[32];
	for (;;) {
		bool is_taken = atomic_load(&port->is_taken);
		if (rkv_get(session, "key", 3, got, sizeof(got), NULL) != RKV_OK)
			return n;
		n += is_taken;
	}
}

/* Or two servers' clients would not see each other's writes (proto/decisions, 1 and 6). */
static void
test_port_is_free_last(void **state)
{
	(void)state;
	for (int i = 0; i < N_DEATHS; i++) {
		struct rkv_client *client;
		struct rkv_session *session;
		pthread_t thread;
		if (!server)
			start_server(proc_free_port());
		struct port port = {.number = server->port};
		open_session(server->address, 500, &client, &session);
		put_text(session, "key", "value");
		assert_int_equal(pthread_create(&thread, NULL, take_port, &port), 0);
		proc_signal(server->proc, SIGKILL);
		unsigned n = count_answers_of_the_dead(session, &port);
		pthread_join(thread, NULL);
		assert_true(atomic_load(&port.is_taken));
		assert_int_equal(n, 0);
		rkv_session_close(session);
		rkv_close(client);
		kill_server();
	}
}

/* ---- The server dies with a thousand operations in flight ---- */

#define IN_FLIGHT 1000u
#define FLIGHT_LEN 3000u /* more than fits an operation's scratch */

static struct flight {
	struct rkv_request request[IN_FLIGHT];
	char key[IN_FLIGHT][LOAD_KEY_TEXT];
	unsigned char value[FLIGHT_LEN];
	unsigned char buf[IN_FLIGHT][FLIGHT_LEN];
	unsigned n_completed[IN_FLIGHT];
	unsigned n_answered;
	unsigned n_lost;
} flight;

/* timeout_ms: of each operation; 0: the session's. */
static void
flight_submit(struct rkv_session *session, uint32_t timeout_ms)
{
	memset(&flight, 0, sizeof(flight));
	memset(flight.value, 0x5c, sizeof(flight.value));
	for (unsigned i = 0; i < IN_FLIGHT; i++) {
		enum rkv_op op = (enum rkv_op)(i % RKV_OP_COUNT);
		flight.request[i] = (struct rkv_request){
			.op = op,
			.status = 1000,
			.key = flight.key[i],
			.key_len = load_key(i % 400, flight.key[i]),
			.value = op == RKV_OP_GET ? NULL : flight.value,
			.value_len = op == RKV_OP_GET ? 0 : (i % 3 ? 100 : FLIGHT_LEN),
			.buf = flight.buf[i],
			.buf_len = FLIGHT_LEN,
			.version = 1,
			.options.timeout_ms = timeout_ms,
			.user = &flight.n_completed[i],
		};
		assert_int_equal(rkv_submit(session, &flight.request[i]), RKV_OK);
	}
}

static void
flight_landed(const struct rkv_request *r)
{
	++*(unsigned *)r->user;
	if (r->status >= RKV_OK && r->status <= RKV_MISMATCH)
		flight.n_answered++;
	else if (r->status == RKV_E_CONN || r->status == RKV_E_TIMEOUT ||
		 (r->status == RKV_E_MAYBE && r->op != RKV_OP_GET))
		flight.n_lost++;
	else
		fail_msg("operation %d completed with %d (%s)", (int)r->op, r->status,
			 rkv_strerror(r->status));
	if (r->op != RKV_OP_GET || r->status != RKV_OK)
		return;
	for (size_t k = 0; k < r->item.value_len; k++)
		assert_int_equal(((unsigned char *)r->buf)[k], 0x5c);
}

static void
flight_land(struct rkv_session *session)
{
	struct rkv_request *done[64];
	for (unsigned n = 0; n < IN_FLIGHT;) {
		int got = rkv_poll(session, done, 64, PROC_WAIT_MS);
		assert_true(got > 0);
		for (int i = 0; i < got; i++)
			flight_landed(done[i]);
		n += (unsigned)got;
	}
	assert_int_equal(rkv_poll(session, done, 64, 100), 0);
	for (unsigned i = 0; i < IN_FLIGHT; i++)
		assert_int_equal(flight.n_completed[i], 1);
}

/* Nobody comes back: all of it ends, by its deadline at the latest. */
static void
test_kill_server(void **state)
{
	struct rkv_client *client;
	struct rkv_session *session;
	uint16_t port = server->port;
	(void)state;
	open_session(server->address, 1000, &client, &session);
	put_text(session, "former", "life");
	flight_submit(session, 0);
	kill_server();
	flight_land(session);
	assert_true(flight.n_lost > 0);
	assert_int_equal(rkv_get(session, "former", 6, NULL, 0, NULL), RKV_E_CONN);
	/* Not even what needs nothing: no success from a server that is gone. */
	flight_submit(session, 0);
	flight_land(session);
	assert_int_equal(flight.n_answered, 0);
	start_server(port);
	await_text(session, "former", NULL);
	for (unsigned i = 0; i < 400; i++)
		await_text(session, flight.key[i], NULL);
	put_text(session, "later", "life");
	await_text(session, "later", "life");
	flight_submit(session, PROC_WAIT_MS);
	flight_land(session);
	assert_int_equal(flight.n_lost, 0);
	rkv_close(client);
}

/* It comes back before their deadlines: what is not in doubt is carried out in the new life. */
static void
test_restart_server(void **state)
{
	struct rkv_client *client;
	struct rkv_session *session;
	struct rkv_stats_values stats;
	uint16_t port = server->port;
	char key[LOAD_KEY_TEXT];
	(void)state;
	open_session(server->address, PROC_WAIT_MS, &client, &session);
	for (unsigned round = 1; round <= 5; round++) {
		for (unsigned i = 0; i < 100; i++) {
			snprintf(key, sizeof(key), "old-%u", i);
			put_text(session, key, "old");
		}
		flight_submit(session, 0);
		kill_server();
		start_server(port);
		/* The very first look is already at the new life. */
		struct rkv_request r = {
			.op = RKV_OP_GET, .key = "old-0", .key_len = 5, .user = &(unsigned){0}};
		assert_int_equal(rkv_submit(session, &r), RKV_OK);
		struct rkv_request *done[64];
		for (unsigned n = 0; n < IN_FLIGHT + 1;) {
			int got = rkv_poll(session, done, 64, PROC_WAIT_MS);
			assert_true(got > 0);
			for (int i = 0; i < got; i++)
				flight_landed(done[i]);
			n += (unsigned)got;
		}
		assert_true(r.status == RKV_NOT_FOUND || r.status == RKV_E_CONN);
		for (unsigned i = 0; i < 100; i++) {
			snprintf(key, sizeof(key), "old-%u", i);
			await_text(session, key, NULL);
		}
		assert_int_equal(rkv_stats(session, &stats), RKV_OK);
		assert_int_equal(stats.n_reconnects, round);
	}
	rkv_close(client);
}

/* ---- A client is stopped while the server is restarted ---- */

struct stopped {
	_Atomic unsigned step;
	char address[64];
};

static void
await_step(struct stopped *shared, unsigned step)
{
	int64_t deadline = proc_deadline(2 * PROC_WAIT_MS);
	while (atomic_load(&shared->step) < step)
		load_require(proc_pause(deadline));
}

static int
run_stopped(void *arg)
{
	struct stopped *shared = arg;
	struct rkv_client *client;
	struct rkv_session *session;
	char got[16];
	int64_t deadline = proc_deadline(3 * PROC_WAIT_MS);
	int rc;
	load_require(rkv_open(shared->address, NULL, &client) == RKV_OK);
	load_require(rkv_session_open(client, &session) == RKV_OK);
	load_require(rkv_put(session, "who", 3, "former", 7, NULL, NULL) == RKV_OK);
	load_require(rkv_get(session, "who", 3, got, sizeof(got), NULL) == RKV_OK);
	atomic_store(&shared->step, 1);
	/* Stopped in here: not asleep, so that the first thing it does is to read. */
	while (atomic_load(&shared->step) < 2)
		;
	do
		rc = rkv_get(session, "who", 3, got, sizeof(got), NULL);
	while (rc == RKV_E_CONN && proc_pause(deadline));
	load_require(rc == RKV_OK && strcmp(got, "later") == 0);
	load_require(rkv_put(session, "who", 3, "again", 6, NULL, NULL) == RKV_OK);
	rkv_close(client);
	return 0;
}

static void
test_stopped_client(void **state)
{
	struct rkv_client *client;
	struct rkv_session *session;
	struct stopped *shared = load_share(sizeof(*shared));
	uint16_t port = server->port;
	(void)state;
	snprintf(shared->address, sizeof(shared->address), "%s", server->address);
	pid_t pid = load_fork(run_stopped, shared);
	await_step(shared, 1);
	kill(pid, SIGSTOP);
	assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
	kill_server();
	start_server(port);
	open_session(server->address, PROC_WAIT_MS, &client, &session);
	put_text(session, "who", "later");
	atomic_store(&shared->step, 2);
	kill(pid, SIGCONT);
	assert_int_equal(load_reap(pid, 3 * PROC_WAIT_MS), 0);
	await_text(session, "who", "again");
	rkv_close(client);
	load_unshare(shared, sizeof(*shared));
}

/* ---- The control connection is cut while the server lives ---- */

#define PROXY_MAX 16

/* A relay between client and server, a thread of its own. */
static struct proxy {
	int listener;
	char address[64];
	pthread_t thread;
	_Atomic bool stop;
	_Atomic bool refuse; /* cuts what there is, and lets nobody in */
	_Atomic unsigned n_accepted;
	struct pollfd fds[1 + 2 * PROXY_MAX]; /* listener; then pairs: client, server */
	nfds_t n;
} proxy;

static void
proxy_cut(nfds_t pair)
{
	close(proxy.fds[pair].fd);
	close(proxy.fds[pair + 1].fd);
	proxy.n -= 2;
	proxy.fds[pair] = proxy.fds[proxy.n];
	proxy.fds[pair + 1] = proxy.fds[proxy.n + 1];
}

static void
proxy_accept(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons(server->port)};
	int from = accept(proxy.listener, NULL, NULL);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (atomic_load(&proxy.refuse) || from < 0 || fd < 0 || proxy.n + 2 > 1 + 2 * PROXY_MAX ||
	    connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
		close(from);
		close(fd);
		return;
	}
	net_set_nodelay(from);
	net_set_nodelay(fd);
	proxy.fds[proxy.n++] = (struct pollfd){.fd = from, .events = POLLIN};
	proxy.fds[proxy.n++] = (struct pollfd){.fd = fd, .events = POLLIN};
	atomic_fetch_add(&proxy.n_accepted, 1);
}

/* False: one side has closed. */
static bool
proxy_relay(int from, int to)
{
	char bytes[4096];
	ssize_t n = recv(from, bytes, sizeof(bytes), MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN;
	return n > 0 && send(to, bytes, (size_t)n, MSG_NOSIGNAL) == n;
}

static void *
proxy_main(void *arg)
{
	(void)arg;
	while (!atomic_load(&proxy.stop)) {
		poll(proxy.fds, proxy.n, 10);
		for (nfds_t i = proxy.n; i > 1;) {
			i -= 2;
			if (atomic_load(&proxy.refuse) ||
			    !proxy_relay(proxy.fds[i].fd, proxy.fds[i + 1].fd) ||
			    !proxy_relay(proxy.fds[i + 1].fd, proxy.fds[i].fd))
				proxy_cut(i);
		}
		if (proxy.fds[0].revents)
			proxy_accept();
	}
	while (proxy.n > 1)
		proxy_cut(proxy.n - 2);
	close(proxy.listener);
	return NULL;
}

static void
proxy_start(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	memset(&proxy, 0, sizeof(proxy));
	proxy.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(proxy.listener >= 0);
	assert_int_equal(bind(proxy.listener, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(proxy.listener, 16), 0);
	assert_int_equal(getsockname(proxy.listener, (struct sockaddr *)&at, &len), 0);
	snprintf(proxy.address, sizeof(proxy.address), "127.0.0.1:%u", ntohs(at.sin_port));
	proxy.fds[0] = (struct pollfd){.fd = proxy.listener, .events = POLLIN};
	proxy.n = 1;
	assert_int_equal(pthread_create(&proxy.thread, NULL, proxy_main, NULL), 0);
}

static void
proxy_stop(void)
{
	atomic_store(&proxy.stop, true);
	pthread_join(proxy.thread, NULL);
}

static void
await_status(struct rkv_session *session, const char *key, int status)
{
	char got[32];
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	while (rkv_get(session, key, strlen(key), got, sizeof(got), NULL) != status)
		assert_true(proc_pause(deadline));
}

/*
 * The server sees that one of two sessions has lost its connection, or has it again. One on shared
 * memory lingers, as its process lives; any other is dead, [DEAD], and joins anew.
 */
static void
await_cut(struct rkv_client *direct, bool is_cut)
{
	if (server->socket[0])
		assert_true(load_await_counter(direct, "sessions_lingering", is_cut, is_cut,
					       PROC_WAIT_MS));
	else
		assert_true(load_await_counter(direct, "sessions", 2 - is_cut, 2 - is_cut,
					       PROC_WAIT_MS));
}

static void
test_cut_connection(void **state)
{
	struct rkv_client *client, *direct;
	struct rkv_session *session, *other;
	struct rkv_stats_values stats;
	(void)state;
	proxy_start();
	open_session(proxy.address, 500, &client, &session);
	open_session(server->address, PROC_WAIT_MS, &direct, &other);
	put_text(session, "key", "before");
	for (unsigned round = 1; round <= 3; round++) {
		atomic_store(&proxy.refuse, true);
		/* It stops, though the memory is still there and the server lives. */
		await_status(session, "key", RKV_E_CONN);
		for (unsigned i = 0; i < 5; i++)
			assert_int_equal(rkv_put(session, "key", 3, "lost", 5, NULL, NULL),
					 RKV_E_CONN);
		assert_int_equal(rkv_ping(client), RKV_E_CONN);
		await_cut(direct, true);
		await_text(other, "key", "before");
		atomic_store(&proxy.refuse, false);
		await_text(session, "key", "before");
		put_text(session, "key", "after");
		await_text(other, "key", "after");
		put_text(other, "key", "before");
		await_text(session, "key", "before");
		assert_int_equal(rkv_stats(session, &stats), RKV_OK);
		assert_int_equal(stats.n_reconnects, round);
		await_cut(direct, false);
	}
	assert_int_equal(load_counter(direct, "sessions"), 2);
	rkv_close(client);
	rkv_close(direct);
	proxy_stop();
}

static _Atomic bool load_stop;

struct cut_load {
	struct load load;
	_Atomic uint64_t n_reconnects; /* that its session has seen */
};

static void *
run_load(void *arg)
{
	struct cut_load *l = arg;
	struct rkv_stats_values stats;
	while (!atomic_load(&load_stop) && !l->load.n_bad) {
		load_mix(&l->load, 100);
		load_require(rkv_stats(l->load.session, &stats) == RKV_OK);
		atomic_store(&l->n_reconnects, stats.n_reconnects);
	}
	return NULL;
}

/*
 * Until the session works again. Who does not wait for that may cut its next connection before it
 * has taken it.
 */
static void
await_reconnect(struct cut_load *l, uint64_t n_before)
{
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	while (atomic_load(&l->n_reconnects) == n_before)
		assert_true(proc_pause(deadline));
}

/* The same in the middle of mixed load, beside a session that keeps its connection. */
static void
test_cut_under_load(void **state)
{
	struct rkv_client *client, *direct;
	struct cut_load loads[2] = {
		{{.n_keys = 8, .writer = 1, .random = 1, .depth = 8, .may_fail = true}, 0},
		{{.n_keys = 8, .writer = 2, .random = 2}, 0}};
	pthread_t threads[2];
	(void)state;
	proxy_start();
	open_session(proxy.address, 2000, &client, &loads[0].load.session);
	open_session(server->address, PROC_WAIT_MS, &direct, &loads[1].load.session);
	atomic_store(&load_stop, false);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, run_load, &loads[i]), 0);
	for (unsigned round = 1; round <= 10; round++) {
		int64_t deadline = proc_deadline(PROC_WAIT_MS);
		unsigned n = atomic_load(&proxy.n_accepted);
		uint64_t n_reconnects = atomic_load(&loads[0].n_reconnects);
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
		atomic_store(&proxy.refuse, true);
		await_cut(direct, true);
		atomic_store(&proxy.refuse, false);
		while (atomic_load(&proxy.n_accepted) == n)
			assert_true(proc_pause(deadline));
		await_cut(direct, false);
		if (round % 2 == 0)
			await_reconnect(&loads[0], n_reconnects);
	}
	atomic_store(&load_stop, true);
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(loads[i].load.n_bad, 0);
		assert_true(loads[i].load.n_done > 0);
	}
	assert_int_equal(loads[1].load.n_failed, 0);
	assert_true(atomic_load(&loads[0].n_reconnects) >= 5);
	rkv_close(client);
	rkv_close(direct);
	proxy_stop();
}

/* ---- Clients die ---- */

#define N_VICTIMS 50u
#define N_SURVIVORS 2u

struct arena {
	_Atomic bool stop;
	_Atomic uint64_t n_bursts[N_SURVIVORS + N_VICTIMS];
	_Atomic uint64_t n_adopted;
	char address[64];
	unsigned number; /* of the next to start */
};

static struct arena *arena;

static int
run_client(void *arg)
{
	struct rkv_client *client;
	struct rkv_stats_values stats;
	struct load load = {.n_keys = 16,
			    .writer = arena->number,
			    .random = arena->number,
			    .depth = arena->number % 2 ? 16 : 0};
	uint64_t n_adopted = 0;
	(void)arg;
	load_require(rkv_open(arena->address, NULL, &client) == RKV_OK);
	load_require(rkv_session_open(client, &load.session) == RKV_OK);
	while (!atomic_load(&arena->stop) && !load.n_bad) {
		load_mix(&load, 50);
		load_require(rkv_stats(load.session, &stats) == RKV_OK);
		atomic_fetch_add(&arena->n_adopted, stats.n_chunks_adopted - n_adopted);
		n_adopted = stats.n_chunks_adopted;
		atomic_fetch_add(&arena->n_bursts[load.writer], 1);
	}
	rkv_close(client);
	return load.n_bad ? 1 : 0;
}

static pid_t
start_client(unsigned number)
{
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	arena->number = number;
	pid_t pid = load_fork(run_client, NULL);
	while (atomic_load(&arena->n_bursts[number]) < 2)
		if (!proc_pause(deadline))
			fail_msg("client %u gets nothing done", number);
	return pid;
}

static void
test_kill_clients(void **state)
{
	struct rkv_client *client;
	pid_t survivors[N_SURVIVORS];
	uint64_t random = 7, n_before[N_SURVIVORS];
	(void)state;
	arena = load_share(sizeof(*arena));
	snprintf(arena->address, sizeof(arena->address), "%s", server->address);
	for (unsigned i = 0; i < N_SURVIVORS; i++)
		survivors[i] = start_client(i);
	for (unsigned i = 0; i < N_VICTIMS; i++) {
		pid_t pid = start_client(N_SURVIVORS + i);
		nanosleep(&(struct timespec){.tv_nsec = (long)(load_random(&random) % 5000000)},
			  NULL);
		kill(pid, SIGKILL);
		assert_int_equal(load_reap(pid, PROC_WAIT_MS), 128 + SIGKILL);
	}
	/* The others go on. */
	for (unsigned i = 0; i < N_SURVIVORS; i++)
		n_before[i] = atomic_load(&arena->n_bursts[i]);
	for (unsigned i = 0; i < N_SURVIVORS; i++) {
		int64_t deadline = proc_deadline(PROC_WAIT_MS);
		while (atomic_load(&arena->n_bursts[i]) < n_before[i] + 5)
			assert_true(proc_pause(deadline));
	}
	atomic_store(&arena->stop, true);
	for (unsigned i = 0; i < N_SURVIVORS; i++)
		assert_int_equal(load_reap(survivors[i], PROC_WAIT_MS), 0);
	/* Nobody lingers; what they held was taken from them, and went to others. */
	assert_int_equal(rkv_open(server->address, NULL, &client), RKV_OK);
	assert_true(load_await_counter(client, "sessions", 0, 0, PROC_WAIT_MS));
	assert_true(load_await_counter(client, "sessions_ending", 0, 0, PROC_WAIT_MS));
	assert_true(load_await_counter(client, "chunks_owned", 0, 0, PROC_WAIT_MS));
	assert_int_equal(load_counter(client, "sessions_lingering"), 0);
	assert_int_equal(load_counter(client, "sessions_died"), N_VICTIMS);
	assert_int_equal(load_counter(client, "sessions_left"), N_SURVIVORS);
	assert_true(load_counter(client, "chunks_taken") >= N_VICTIMS);
	assert_true(atomic_load(&arena->n_adopted) > 0);
	/* Had nobody adopted, each would have left some of its own, for each class. */
	assert_true(load_counter(client, "chunks_orphan") < load_counter(client, "chunks_taken"));
	rkv_close(client);
	load_unshare(arena, sizeof(*arena));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_port_is_free_last, setup, teardown),
		cmocka_unit_test_setup_teardown(test_kill_server, setup, teardown),
		cmocka_unit_test_setup_teardown(test_restart_server, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stopped_client, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cut_connection, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cut_under_load, setup, teardown),
		cmocka_unit_test_setup_teardown(test_kill_clients, setup, teardown),
	};
	return load_each_alone(tests, sizeof(tests) / sizeof(tests[0]), 8 * PROC_WAIT_MS);
}
