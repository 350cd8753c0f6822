/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Attacks on a kv-server with tenants, while one of them is at work: garbage without end, peers
 * that are slow on purpose, crowds that say nothing, descriptors used up, guessed R_Keys, random
 * bytes. Nobody gets in, nothing is written, the server does not grow, and who is at work is served
 * (bystander.h; the times are printed and not judged). (timeout: 600)
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <dirent.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/net.h"
#include "tests/fabric/sanitized.h"
#include "tests/proc/bystander.h"

#define MIB ((uint64_t)1 << 20)
#define GARBAGE ((SANITIZED ? 64 : 1024) * MIB)
#define GARBAGE_ONE (256 * MIB) /* the sockets of one connection hold some MiB */
#define GROWTH_MAX (16 * MIB)
#define FILES_MAX 16 /* connections that are not closed yet */

static struct server *server;
static struct raw boss;   /* for statistics */
static uint64_t n_let_in; /* by this server */
static unsigned char noise[1 << 20];

/* ---- A server, and what it takes ---- */

/* Named files: of the directory of the tenants. */
static struct server *
start(const struct proc_options *limits, const char *cert, const char *key)
{
	const char *args[] = {"--pool-size",
			      "8M",
			      "--chunk-size",
			      "64K",
			      "--tenants",
			      login_path("tenants"),
			      "--metrics-listen",
			      "0",
			      cert ? "--tls-cert" : NULL,
			      cert,
			      "--tls-key",
			      key,
			      NULL};
	return server_start_with(args, limits);
}

static void
come_in(struct raw *raw, const char *tenant, const char *secret)
{
	login(raw, server, tenant, secret);
	n_let_in++;
}

static int
set_up(void **state)
{
	(void)state;
	login_make_files();
	assert_int_equal(getrandom(noise, sizeof(noise), 0), sizeof(noise));
	server = start(NULL, NULL, NULL);
	come_in(&boss, "boss", SECRET_BOSS);
	return 0;
}

static int
tear_down(void **state)
{
	(void)state;
	raw_close(&boss);
	login_remove_files();
	return server_stop(server);
}

struct usage {
	uint64_t memory; /* its own: not the pool */
	unsigned n_files;
};

static struct usage
usage_of(const struct server *s)
{
	struct usage usage = {0};
	char path[64], line[128];
	unsigned long long kib = 0;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)s->proc->pid);
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "RssAnon: %llu kB", &kib) == 1)
			usage.memory = kib << 10;
	fclose(file);
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)s->proc->pid);
	DIR *files = opendir(path);
	assert_non_null(files);
	while (readdir(files))
		usage.n_files++;
	closedir(files);
	return usage;
}

static void
has_not_grown(const struct server *s, const struct usage *before)
{
	struct usage now = usage_of(s);
	assert_in_range(now.n_files, 0, before->n_files + FILES_MAX);
	if (!SANITIZED) /* which keep freed memory aside */
		assert_in_range(now.memory, 0, before->memory + GROWTH_MAX);
}

static struct bystander *
bystander(void)
{
	n_let_in++;
	return bystander_start(server);
}

/* Of the attackers nothing is left, and none of them was let in. */
static void
nobody_is_left(struct bystander *b, const char *attack)
{
	assert_true(raw_stat_becomes(&boss, "connections", 2));
	assert_int_equal(raw_stat(&boss, "handshakes_welcomed"), n_let_in);
	bystander_end(b, attack);
	assert_true(raw_stat_becomes(&boss, "connections", 1));
}

static bool
boss_is_served(void)
{
	return raw_ask(&boss, WIRE_PING, NULL) == WIRE_PONG;
}

/* ---- Connections ---- */

static int
connect_to(uint16_t port)
{
	const struct timeval limit = {.tv_sec = PROC_WAIT_MS / 1000};
	struct server at = {.port = port};
	struct raw raw;
	raw_open(&raw, &at);
	setsockopt(raw.fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	return raw.fd;
}

static uint16_t
metrics_port(void)
{
	static const char place[] = "metrics at http://127.0.0.1:";
	const char *said = strstr(proc_text(server->proc, PROC_ERR, NULL), place);
	assert_non_null(said);
	return (uint16_t)atoi(said + strlen(place));
}

static bool
say(int fd, const void *bytes, size_t len)
{
	return send(fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len;
}

static bool
hear(int fd, void *bytes, size_t len)
{
	return net_receive(fd, bytes, len, proc_deadline(PROC_WAIT_MS)) == 0;
}

/* A data connection of whoever came in over raw: its session's, or the one for a look. */
static int
open_data(const struct raw *raw, const struct raw_session *session, uint32_t *ret_r_key)
{
	struct wire_tcp_hello hello = raw_data_hello(raw, session);
	struct wire_tcp_accept accept;
	int fd = connect_to(server->port);
	assert_true(say(fd, &hello, sizeof(hello)));
	assert_true(hear(fd, &accept, sizeof(accept)));
	assert_int_equal(accept.header.type, WIRE_TCP_ACCEPT);
	*ret_r_key = accept.r_key;
	return fd;
}

/* ---- Garbage ---- */

enum place { BARE, CHALLENGED, WELCOMED, IN_A_MESSAGE, DATA, N_PLACES };

/* A connection that is ready for garbage there; raw: as whom, or not open. */
static int
open_place(enum place place, struct raw *raw)
{
	struct wire_hello hello = login_hello("view");
	struct auth_said said;
	uint32_t r_key;
	raw->fd = -1;
	switch (place) {
	case BARE:
		return connect_to(server->port);
	case CHALLENGED:
		login_begin(raw, server, &hello, &said);
		break;
	case WELCOMED:
	case IN_A_MESSAGE:
	case DATA:
		come_in(raw, "view", SECRET_VIEW);
		break;
	case N_PLACES:
		break;
	}
	if (place == IN_A_MESSAGE) {
		struct wire_header header = raw_header(raw, WIRE_KEEPALIVE, LIMIT_MESSAGE_MAX);
		assert_true(raw_send(raw, &header, sizeof(header)));
	}
	return place == DATA ? open_data(raw, NULL, &r_key) : dup(raw->fd);
}

static bool
has_closed(int fd)
{
	unsigned char byte;
	ssize_t n;
	while ((n = recv(fd, &byte, 1, MSG_DONTWAIT)) > 0)
		; /* a refusal */
	return n == 0;
}

/*
 * Sends until the server will have no more; how much that was. A socket that was closed with its
 * window shut is not reset at once: the kernel waits for some time.
 */
static uint64_t
push(int fd)
{
	const struct timeval limit = {.tv_sec = 1};
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	uint64_t n_sent = 0;
	bool is_over = false;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	while (!is_over && n_sent < GARBAGE_ONE) {
		ssize_t n = send(fd, noise, sizeof(noise), MSG_NOSIGNAL);
		n_sent += n > 0 ? (uint64_t)n : 0;
		is_over = n < 0 && errno != EINTR && (errno != EAGAIN || has_closed(fd));
		if (n < 0 && !is_over && clock_now_ns() > deadline)
			fail_msg("the server neither reads nor closes");
	}
	close(fd);
	return n_sent;
}

static void
garbage_is_not_taken_without_end(void **state)
{
	static struct raw raw;
	(void)state;
	struct bystander *b = bystander();
	struct usage before = usage_of(server);
	unsigned n_connections = 0;
	for (uint64_t n_sent = 0; n_sent < GARBAGE; n_connections++) {
		uint64_t n = push(open_place(n_connections % N_PLACES, &raw));
		raw_close(&raw);
		assert_in_range(n, 1, GARBAGE_ONE - 1);
		n_sent += n;
		has_not_grown(server, &before);
		assert_true(boss_is_served());
	}
	printf("# %llu MiB of garbage over %u connections\n", (unsigned long long)(GARBAGE / MIB),
	       n_connections);
	assert_in_range(n_connections, N_PLACES, UINT32_MAX);
	nobody_is_left(b, "garbage");
	has_not_grown(server, &before);
}

/* ---- Slow on purpose ---- */

struct slow {
	int fd;
	const char *what;
	const void *bytes;
	size_t len;
	size_t n_sent;
	bool is_over;
};

static struct slow
slowly(int fd, const char *what, const void *bytes, size_t len)
{
	return (struct slow){.fd = fd, .what = what, .bytes = bytes, .len = len};
}

/* One byte more, unless the server has closed meanwhile. */
static void
go_on(struct slow *slow)
{
	char byte;
	if (slow->is_over)
		return;
	ssize_t n = recv(slow->fd, &byte, 1, MSG_DONTWAIT);
	slow->is_over = n == 0 || (n < 0 && errno != EAGAIN) ||
			!say(slow->fd, (const char *)slow->bytes + slow->n_sent, 1);
	slow->n_sent++;
	if (slow->n_sent == slow->len)
		fail_msg("%s: the server has waited for %zu bytes, one a second", slow->what,
			 slow->len);
}

static unsigned
go_on_all(struct slow *slow, unsigned n)
{
	unsigned n_open = 0;
	for (unsigned i = 0; i < n; i++) {
		go_on(&slow[i]);
		n_open += !slow[i].is_over;
	}
	return n_open;
}

static void
make_certificate(void)
{
	char command[512];
	snprintf(command, sizeof(command),
		 "openssl req -x509 -newkey ed25519 -nodes -keyout %s -out %s -subj /CN=rkv "
		 "-addext subjectAltName=IP:127.0.0.1 -days 2",
		 login_path("key"), login_path("cert"));
	const char *const args[] = {"-c", command, NULL};
	struct proc *proc = proc_run("/bin/sh", args, NULL);
	if (proc->exit_code != 0)
		fail_msg("openssl: %s", proc_text(proc, PROC_ERR, NULL));
	proc_free(proc);
}

/* The beginning of a TLS record whose end does not come. */
static const unsigned char tls_hello[512] = {22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3};

/*
 * One byte a second, which to the server is the same as one a minute: only whole messages move a
 * deadline. Who has been let in has longer than who has not.
 */
static void
one_byte_at_a_time_moves_no_deadline(void **state)
{
	enum { HELLO, PROOF, TLS, DATA_HELLO, TOKEN, SCRAPE, MESSAGE, N };
	static struct raw proving, inside;
	static const char request[] = "GET /metrics HTTP/1.1\r\nHost: attack\r\n\r\n";
	struct wire_hello hello = login_hello("app");
	struct auth_said said;
	static struct wire_header keepalive[64];
	struct server *tls;
	int64_t deadline = proc_deadline(2 * (int)LIMIT_LEASE_MS + PROC_WAIT_MS);
	(void)state;
	make_certificate();
	tls = start(NULL, login_path("cert"), login_path("key"));
	struct bystander *b = bystander();
	uint64_t n_expired = raw_stat(&boss, "connections_expired");
	come_in(&inside, "view", SECRET_VIEW);
	struct wire_tcp_hello data = raw_data_hello(&inside, NULL);
	keepalive[0] = raw_header(&inside, WIRE_KEEPALIVE, LIMIT_MESSAGE_MAX);
	login_begin(&proving, server, &hello, &said);
	struct wire_proof proof = {.header = raw_header(&proving, WIRE_PROOF, sizeof(proof))};
	int unix_fd;
	assert_int_equal(net_unix_connect(server->socket, deadline, &unix_fd), 0);
	struct slow slow[N] = {
		[HELLO] = slowly(connect_to(server->port), "a hello", &hello, sizeof(hello)),
		[PROOF] = slowly(proving.fd, "a proof", &proof, sizeof(proof)),
		[TLS] = slowly(connect_to(tls->port), "a TLS handshake", tls_hello,
			       sizeof(tls_hello)),
		[DATA_HELLO] =
			slowly(connect_to(server->port), "a hello for data", &data, sizeof(data)),
		[TOKEN] = slowly(unix_fd, "a token", inside.welcome.token, WIRE_TOKEN_LEN),
		[SCRAPE] = slowly(connect_to(metrics_port()), "a scrape", request, sizeof(request)),
		[MESSAGE] = slowly(inside.fd, "a message", keepalive, sizeof(keepalive)),
	};
	unsigned n = SANITIZED ? MESSAGE : N; /* whose time is half a minute */
	while (go_on_all(slow, n)) {
		assert_true(proc_pause(deadline) && boss_is_served());
		sleep(1);
	}
	assert_int_equal(raw_stat(&boss, "connections_expired"), n_expired + (SANITIZED ? 3 : 4));
	for (unsigned i = 0; i < N; i++)
		close(slow[i].fd);
	proving.fd = inside.fd = -1;
	nobody_is_left(b, "one byte a second");
	assert_int_equal(server_stop(tls), 0);
}

/* ---- Crowds ---- */

/* As many as the limit of descriptors allows; returns how many to try. */
static unsigned
most_connections(void)
{
	struct rlimit limit;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	getrlimit(RLIMIT_NOFILE, &limit);
	return limit.rlim_cur > 10200 ? 10000 : (unsigned)limit.rlim_cur - 200;
}

/* Connections that say nothing, a byte, or garbage: who is invited comes in all the same. */
static void
half_open_connections_shut_nobody_out(void **state)
{
	static struct raw one;
	static const char *const words[] = {"", "R", "garbage that is no message"};
	unsigned n = most_connections();
	int *crowd = calloc(n, sizeof(*crowd));
	(void)state;
	assert_non_null(crowd);
	struct bystander *b = bystander();
	for (unsigned i = 0; i < n; i++) {
		const char *word = words[i % 3];
		raw_open(&one, server);
		raw_send(&one, word, strlen(word));
		crowd[i] = one.fd;
		if (i % 2500 == 2499) {
			come_in(&one, "view", SECRET_VIEW);
			raw_close(&one);
			assert_true(boss_is_served());
		}
	}
	struct bystander *late = bystander();
	bystander_end(late, "half-open connections, a client that came when all were there");
	for (unsigned i = 0; i < n; i++)
		close(crowd[i]);
	free(crowd);
	nobody_is_left(b, "half-open connections");
}

/* Half-open connections that take all descriptors: they go by themselves, and others come in. */
static void
descriptors_that_are_used_up_come_back(void **state)
{
	enum { N = 200 };
	static struct raw crowd[N], late;
	static const struct proc_options few = {.n_files = 64};
	const struct wire_hello hello = login_hello("app");
	struct rkv_client *client;
	struct rkv_options options;
	(void)state;
	raw_close(&boss);
	assert_int_equal(server_stop(server), 0);
	server = start(&few, NULL, NULL);
	n_let_in = 0;
	come_in(&boss, "boss", SECRET_BOSS);
	struct bystander *b = bystander();
	for (unsigned i = 0; i < N; i++) {
		raw_open(&crowd[i], server);
		if (i % 2)
			raw_send(&crowd[i], &hello, sizeof(hello));
	}
	login_refused(&crowd[N - 2], ERR_NOMEM, "RLIMIT_NOFILE"); /* it has said nothing */
	assert_in_range(raw_stat(&boss, "connections_turned_away"), N - few.n_files, N);
	assert_true(raw_stat_becomes(&boss, "connections", 2));
	login_options(&options, "app");
	assert_int_equal(rkv_open(server->address, &options, &client), RKV_OK);
	n_let_in++;
	rkv_close(client);
	come_in(&late, "view", SECRET_VIEW);
	raw_close(&late);
	for (unsigned i = 0; i < N; i++)
		raw_close(&crowd[i]);
	nobody_is_left(b, "no descriptors left");
}

/* ---- What a NIC would refuse ---- */

struct frame {
	struct wire_tcp_frame frame;
	struct wire_tcp_op op;
	uint64_t word;
};

/* What becomes of one operation on a data connection that is made for it. */
static int
status_of(struct raw *raw, const struct raw_session *session, struct wire_tcp_op op, uint32_t guess,
	  uint64_t *ret_word)
{
	struct frame f = {.op = op, .word = 0x6666666666666666};
	struct wire_tcp_reply reply;
	uint32_t r_key;
	assert_int_equal(raw_ask(raw, WIRE_RELINK, session), WIRE_RELINKED);
	int fd = open_data(raw, session, &r_key);
	f.frame = (struct wire_tcp_frame){
		.len = (uint32_t)(op.kind == FAB_WRITE ? sizeof(f) : offsetof(struct frame, word)),
		.r_key = guess ? guess : r_key,
		.n_ops = 1,
	};
	assert_true(say(fd, &f, f.frame.len));
	assert_true(hear(fd, &reply, sizeof(reply)));
	if (reply.status == 0)
		assert_true(hear(fd, ret_word, sizeof(*ret_word)));
	close(fd);
	return reply.status;
}

/* A reader's session, which has the right R_Key, guesses others, and reaches out of the region. */
static void
an_r_key_gives_a_reader_nothing_to_write(void **state)
{
	enum { GUESSES = 64 };
	static struct raw view;
	uint64_t before, after, unused;
	uint64_t random = (uint64_t)clock_now_ns();
	(void)state;
	struct bystander *b = bystander();
	come_in(&view, "view", SECRET_VIEW);
	struct raw_session session = raw_join(&view, 0);
	const uint64_t len = view.welcome.region[0].len, at = LAYOUT_SCRATCH_OFF;
	const struct wire_tcp_op read = {.roff = at, .len = 8, .kind = FAB_READ};
	const struct {
		struct wire_tcp_op op;
		int status;
	} bad[] = {
		{{.roff = at, .len = 8, .kind = FAB_WRITE}, ERR_PERM},
		{{.roff = at, .len = 8, .kind = FAB_CAS, .swap = 6}, ERR_PERM},
		{{.roff = at, .len = 8, .kind = FAB_FAA, .swap = 6}, ERR_PERM},
		{{.roff = at + 4, .len = 8, .kind = FAB_FAA, .swap = 6}, ERR_PERM},
		{{.roff = len - 4, .len = 8, .kind = FAB_READ}, ERR_INVALID},
		{{.roff = UINT64_MAX - 7, .len = 8, .kind = FAB_READ}, ERR_INVALID},
		{{.roff = len, .len = 8, .kind = FAB_WRITE}, ERR_INVALID},
	};
	assert_int_equal(status_of(&view, &session, read, 0, &before), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(status_of(&view, &session, bad[i].op, 0, &unused), bad[i].status);
	for (unsigned i = 0; i < GUESSES; i++) {
		random = random * UINT64_C(6364136223846793005) + 1;
		uint32_t guess = (uint32_t)(random >> 32) | 1;
		assert_int_equal(status_of(&view, &session, bad[i % 3].op, guess, &unused),
				 ERR_PERM);
	}
	assert_int_equal(status_of(&view, &session, read, 0, &after), 0);
	assert_int_equal(before, after);
	raw_leave(&view, &session);
	assert_int_equal(raw_ask(&view, WIRE_PING, NULL), WIRE_PONG);
	raw_close(&view);
	nobody_is_left(b, "guessed R_Keys");
}

/* ---- Random bytes ---- */

static size_t
random_bytes(unsigned char *bytes, size_t max)
{
	size_t len = 1 + (size_t)random() % max;
	for (size_t i = 0; i < len; i++)
		bytes[i] = (unsigned char)random();
	return len;
}

/* Random bytes, behind a good beginning of so many bytes with perhaps a bit that is wrong. */
static void
make_noise(int fd, const void *good, size_t good_len)
{
	unsigned char bytes[3000];
	size_t len = random_bytes(bytes, sizeof(bytes));
	if (random() % 4) {
		memcpy(bytes, good, good_len);
		if (random() % 2)
			bytes[(size_t)random() % good_len] ^= (unsigned char)(1 << random() % 8);
		len = len < good_len && random() % 2 ? good_len : len;
	}
	(void)!send(fd, bytes, len, MSG_NOSIGNAL);
	if (random() % 2)
		shutdown(fd, SHUT_WR);
	if (random() % 8 == 0)
		(void)!recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
}

/* At the control port: as nobody, in the place of a proof, and as a reader. */
static void
noise_at_the_control_port(unsigned how)
{
	static struct raw raw;
	struct wire_hello hello = login_hello("app");
	struct auth_said said;
	struct wire_header good = hello.header;
	if (how == 0) {
		raw_open(&raw, server);
		make_noise(raw.fd, &hello, sizeof(hello));
	} else if (how == 1) {
		login_begin(&raw, server, &hello, &said);
		struct wire_proof proof = {.header = raw_header(&raw, WIRE_PROOF, sizeof(proof))};
		make_noise(raw.fd, &proof, sizeof(proof));
	} else {
		come_in(&raw, "view", SECRET_VIEW);
		good = raw_header(&raw, (enum wire_type)(random() % 24),
				  sizeof(good) + (size_t)random() % 64 / 8 * 8);
		make_noise(raw.fd, &good, sizeof(good));
	}
	raw_close(&raw);
}

static void
noise_over_data(void)
{
	static struct raw raw;
	struct frame f = {.frame = {.n_ops = 1, .len = sizeof(f)},
			  .op = {.len = 8, .kind = (uint8_t)(random() % 5)}};
	come_in(&raw, "view", SECRET_VIEW);
	int fd = open_data(&raw, NULL, &f.frame.r_key);
	make_noise(fd, &f, sizeof(f));
	raw_close(&raw);
	close(fd);
}

static void
noise_at_another_door(bool is_metrics)
{
	static const char request[] = "GET /metrics HTTP/1.1\r\n";
	static const unsigned char token[WIRE_TOKEN_LEN];
	int fd;
	if (is_metrics)
		fd = connect_to(metrics_port());
	else
		assert_int_equal(net_unix_connect(server->socket, proc_deadline(PROC_WAIT_MS), &fd),
				 0);
	make_noise(fd, is_metrics ? (const void *)request : token,
		   is_metrics ? sizeof(request) - 1 : sizeof(token));
	close(fd);
}

static void
random_bytes_everywhere_harm_nobody(void **state)
{
	const char *ci = getenv("CI");
	bool is_long = SANITIZED && !THREAD_SANITIZED && ci && strcmp(ci, "true") == 0;
	unsigned seed, n = 0;
	(void)state;
	assert_int_equal(getrandom(&seed, sizeof(seed), 0), sizeof(seed));
	printf("# random bytes for %d s, seed %u\n", is_long ? 60 : 2, seed);
	srandom(seed);
	struct bystander *b = bystander();
	struct usage before = usage_of(server);
	for (int64_t end = proc_deadline(is_long ? 60000 : 2000); clock_now_ns() < end; n++) {
		unsigned door = n % 6;
		if (door < 3)
			noise_at_the_control_port(door);
		else if (door == 3)
			noise_over_data();
		else
			noise_at_another_door(door == 4);
		assert_true(n % 50 || boss_is_served());
	}
	printf("# %u connections\n", n);
	nobody_is_left(b, "random bytes");
	has_not_grown(server, &before);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(garbage_is_not_taken_without_end),
		cmocka_unit_test(one_byte_at_a_time_moves_no_deadline),
		cmocka_unit_test(an_r_key_gives_a_reader_nothing_to_write),
		cmocka_unit_test(random_bytes_everywhere_harm_nobody),
		cmocka_unit_test(half_open_connections_shut_nobody_out),
		cmocka_unit_test(descriptors_that_are_used_up_come_back),
	};
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
