/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control protocol against a real kv-server: hellos, garbage, limits, sessions, stamps, and the
 * death of clients. [STAMP], [DEAD]
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/net.h"
#include "tests/proc/raw.h"

#define N_SIZES (sizeof(struct wire_sizes) / sizeof(uint32_t))

static struct server *server;
static struct raw admin; /* for statistics */

static int
set_up(void **state)
{
	(void)state;
	server = server_start("--pool-size", "8M", "--chunk-size", "64K", NULL);
	raw_connect(&admin, server, WIRE_ROLE_ADMIN);
	return 0;
}

static int
tear_down(void **state)
{
	(void)state;
	raw_close(&admin);
	return server_stop(server);
}

static void
expect_refused(struct raw *raw, int code, const char *part)
{
	assert_int_equal(raw_receive(raw), WIRE_REFUSED);
	assert_int_equal(raw->in.refused.code, code);
	if (!strstr(raw->in.refused.reason, part))
		fail_msg("no `%s` in: %s", part, raw->in.refused.reason);
}

static void
expect_refused_and_closed(struct raw *raw, int code, const char *part)
{
	expect_refused(raw, code, part);
	assert_int_equal(raw_receive(raw), 0);
	raw_close(raw);
}

/* ---- HELLO ---- */

static void
a_welcome_says_how_to_reach_the_region(void **state)
{
	static struct raw raw;
	static const unsigned char no_token[WIRE_TOKEN_LEN];
	unsigned char boot_id[WIRE_BOOT_ID_LEN];
	const struct wire_region *region = &raw.welcome.region[0];
	(void)state;
	raw_connect(&raw, server, WIRE_ROLE_CLIENT);
	assert_int_equal(net_boot_id(boot_id), 0);
	assert_memory_equal(raw.welcome.boot_id, boot_id, sizeof(boot_id));
	assert_int_equal(raw.welcome.server_pid, server->proc->pid);
	assert_string_equal(raw.welcome.unix_path, server->socket);
	assert_memory_not_equal(raw.welcome.token, no_token, sizeof(no_token));
	assert_string_equal(raw.welcome.verbs_address, "");
	assert_int_equal(raw.welcome.n_regions, 1);
	assert_int_equal(region->len, 8 << 20);
	assert_int_not_equal(region->region_id, 0);
	raw_map(&raw);
	assert_int_equal(raw.layout.region_len, region->len);
	assert_int_equal(raw_word(&raw, offsetof(struct layout_superblock, region_id)),
			 region->region_id);
	assert_int_equal(raw_word(&raw, offsetof(struct layout_superblock, epoch)), region->epoch);
	raw_close(&raw);
	assert_memory_equal(admin.welcome.token, no_token, sizeof(no_token));
}

static void
each_size_that_differs_is_named_with_both_sides(void **state)
{
	static struct raw raw;
	(void)state;
	for (size_t i = 0; i < N_SIZES; i++) {
		struct wire_hello hello = raw_hello(WIRE_ROLE_CLIENT);
		uint32_t *size = (uint32_t *)&hello.sizes + i;
		char both[64];
		*size += 3;
		snprintf(both, sizeof(both), "client %u, server %u", *size, *size - 3);
		raw_open(&raw, server);
		assert_true(raw_send(&raw, &hello, sizeof(hello)));
		expect_refused_and_closed(&raw, ERR_VERSION, both);
		assert_int_equal(raw.in.header.request, hello.header.request);
	}
	assert_int_equal(raw_stat(&admin, "handshakes_refused"), N_SIZES);
}

static void
another_protocol_version_is_named_with_both_sides(void **state)
{
	static struct raw raw;
	struct wire_header hello = {WIRE_MAGIC, 9, WIRE_HELLO, 4000, 1};
	(void)state;
	raw_open(&raw, server);
	assert_true(raw_send(&raw, &hello, sizeof(hello)));
	expect_refused_and_closed(&raw, ERR_VERSION, "client 9, server 2");
}

static void
send_first(const void *bytes, size_t len, int code, const char *part)
{
	static struct raw raw;
	raw_open(&raw, server);
	assert_true(raw_send(&raw, bytes, len));
	expect_refused_and_closed(&raw, code, part);
}

static void
what_is_not_a_hello_is_refused_in_words(void **state)
{
	static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
	struct wire_hello hello = raw_hello(WIRE_ROLE_CLIENT);
	struct wire_header ping = {WIRE_MAGIC, WIRE_VERSION, WIRE_PING, sizeof(ping), 1};
	(void)state;
	send_first(http, sizeof(http), ERR_INVALID, "not its protocol");
	send_first(&ping, sizeof(ping), ERR_INVALID, "not a hello");
	hello.role = 7;
	send_first(&hello, sizeof(hello), ERR_INVALID, "role");
	hello.role = WIRE_ROLE_CLIENT;
	hello.reserved = 1;
	send_first(&hello, sizeof(hello), ERR_INVALID, "reserved");
	hello.reserved = 0;
	hello.header.len = sizeof(hello) + 8;
	send_first(&hello, sizeof(hello), ERR_INVALID, "184 bytes");
	hello.header.len = UINT32_MAX;
	send_first(&hello, sizeof(hello), ERR_INVALID, "4294967295 bytes");
	hello.header.len = 0;
	send_first(&hello, sizeof(hello), ERR_INVALID, "0 bytes");
}

/* After a good hello: refused, and the connection is closed. */
static void
send_later(enum wire_role role, struct wire_header header, const void *rest, size_t len, int code,
	   const char *part)
{
	static struct raw raw;
	raw_connect(&raw, server, role);
	assert_true(raw_send(&raw, &header, sizeof(header)));
	assert_true(raw_send(&raw, rest, len));
	expect_refused_and_closed(&raw, code, part);
}

static void
what_is_not_a_message_is_refused_in_words(void **state)
{
	static const uint64_t words[3] = {5};
	struct wire_hello hello = raw_hello(WIRE_ROLE_CLIENT);
	struct wire_header header = {WIRE_MAGIC, WIRE_VERSION, 99, 16, 1};
	(void)state;
	send_later(WIRE_ROLE_CLIENT, header, words, 0, ERR_INVALID,
		   "type that no client sends: 99");
	header.type = WIRE_WELCOME;
	send_later(WIRE_ROLE_CLIENT, header, words, 0, ERR_INVALID, "type that no client sends: 2");
	header.type = 0;
	send_later(WIRE_ROLE_CLIENT, header, words, 0, ERR_INVALID, "type that no client sends: 0");
	header.type = WIRE_JOIN;
	send_later(WIRE_ROLE_CLIENT, header, words, 0, ERR_INVALID, "type 4 cannot be 16 bytes");
	header.len = 24;
	send_later(WIRE_ROLE_ADMIN, header, words, 8, ERR_PERM, "admin");
	header.type = WIRE_KEEPALIVE; /* 5 announcements are said, none comes */
	send_later(WIRE_ROLE_CLIENT, header, words, 8, ERR_INVALID, "count differ");
	header.len = 32; /* half an announcement */
	send_later(WIRE_ROLE_CLIENT, header, words, 16, ERR_INVALID, "type 6 cannot be 32 bytes");
	header.magic++;
	send_later(WIRE_ROLE_CLIENT, header, words, 0, ERR_INVALID, "not its protocol");
	send_later(WIRE_ROLE_CLIENT, hello.header, &hello.sizes,
		   sizeof(hello) - sizeof(hello.header), ERR_INVALID, "second hello");
	assert_true(raw_stat_becomes(&admin, "connections", 1));
}

static void
messages_arrive_in_any_pieces(void **state)
{
	static struct raw raw;
	struct wire_hello hello = raw_hello(WIRE_ROLE_CLIENT);
	struct wire_header pings[40];
	(void)state;
	raw_open(&raw, server);
	for (size_t i = 0; i < sizeof(hello); i++)
		assert_true(raw_send(&raw, (char *)&hello + i, 1));
	assert_int_equal(raw_receive(&raw), WIRE_WELCOME);
	for (size_t i = 0; i < 40; i++)
		pings[i] = raw_header(&raw, WIRE_PING, sizeof(pings[i]));
	assert_true(raw_send(&raw, pings, sizeof(pings) - 7));
	for (size_t i = 0; i < 39; i++) {
		assert_int_equal(raw_receive(&raw), WIRE_PONG);
		assert_int_equal(raw.in.header.request, pings[i].request);
	}
	assert_true(raw_send(&raw, (char *)pings + sizeof(pings) - 7, 7));
	assert_int_equal(raw_receive(&raw), WIRE_PONG);
	raw_close(&raw);
}

/* ---- Storms ---- */

static void
garbage_on_a_thousand_connections(void **state)
{
	static struct raw raw;
	unsigned char bytes[600];
	(void)state;
	srandom(42);
	for (int i = 0; i < 1000; i++) {
		struct wire_hello hello = raw_hello(WIRE_ROLE_CLIENT);
		for (size_t j = 0; j < sizeof(bytes); j++)
			bytes[j] = (unsigned char)random();
		if (i % 3 == 1) /* a good hello with noise somewhere */
			memcpy(bytes, &hello, sizeof(hello));
		bytes[random() % (i % 3 == 1 ? 80 : 600)] ^= 0x55;
		raw_open(&raw, server);
		raw_send(&raw, bytes, (size_t)random() % sizeof(bytes));
		if (i % 2)
			shutdown(raw.fd, SHUT_WR);
		raw_close(&raw);
	}
	assert_true(raw_stat_becomes(&admin, "connections_accepted", 1001));
	assert_true(raw_stat_becomes(&admin, "connections", 1));
	assert_in_range(raw_stat(&admin, "handshakes_refused"), 100, 1000);
	raw_connect(&raw, server, WIRE_ROLE_CLIENT);
	assert_int_equal(raw_ask(&raw, WIRE_PING, NULL), WIRE_PONG);
	raw_close(&raw);
}

static int
unix_connection(void)
{
	int64_t deadline = clock_now_ns() + PROC_WAIT_MS * CLOCK_NS_PER_MS;
	int fd;
	assert_int_equal(net_unix_connect(server->socket, deadline, &fd), 0);
	return fd;
}

/* Waits until the other side has closed. */
static void
expect_closed(int fd)
{
	struct pollfd pollfd = {.fd = fd, .events = POLLIN};
	char byte;
	if (poll(&pollfd, 1, PROC_WAIT_MS) != 1)
		fail_msg("the server has not closed the connection");
	assert_in_range(recv(fd, &byte, 1, 0) + 1, 0, 1); /* the end, or a reset */
	close(fd);
}

static void
silent_peers_are_dropped(void **state)
{
	static struct raw silent, half, refused;
	struct wire_hello hello = raw_hello(WIRE_ROLE_CLIENT);
	int silent_unix = unix_connection(), half_unix = unix_connection();
	(void)state;
	raw_open(&silent, server);
	raw_open(&half, server);
	assert_true(raw_send(&half, &hello, sizeof(hello) - 1));
	assert_int_equal(send(half_unix, "x", 1, MSG_NOSIGNAL), 1);
	raw_open(&refused, server); /* hears a refusal, but does not close */
	assert_true(raw_send(&refused, "0123456789abcdef", 16));
	expect_refused(&refused, ERR_INVALID, "not its protocol");
	expect_closed(silent.fd);
	expect_closed(half.fd);
	expect_closed(silent_unix);
	expect_closed(half_unix);
	assert_true(raw_stat_becomes(&admin, "connections", 1));
	assert_int_equal(raw_stat(&admin, "connections_expired"), 3);
	raw_close(&refused);
}

static void
a_peer_that_does_not_read_is_dropped(void **state)
{
	static struct raw raw;
	struct wire_header ask;
	int n = 0;
	(void)state;
	raw_connect(&raw, server, WIRE_ROLE_CLIENT);
	ask = raw_header(&raw, WIRE_STATS, sizeof(ask));
	while (n < 1000000 && raw_send(&raw, &ask, sizeof(ask)))
		n++;
	assert_in_range(n, 1, 999999);
	assert_true(raw_stat_becomes(&admin, "connections", 1));
	raw_close(&raw);
}

/* What it says after the refusal is not taken for as long as it likes, nor until the deadline. */
static void
a_peer_that_goes_on_after_its_end_is_dropped(void **state)
{
	enum { MOST = 256 << 20 };
	static struct raw raw;
	static const char noise[1 << 16];
	size_t n = 0;
	(void)state;
	raw_open(&raw, server);
	assert_true(raw_send(&raw, "0123456789abcdef", 16));
	expect_refused(&raw, ERR_INVALID, "not its protocol");
	while (n < MOST && raw_send(&raw, noise, sizeof(noise)))
		n += sizeof(noise);
	assert_in_range(n, 1, MOST - 1); /* the sockets' buffers are of some MiB */
	assert_true(raw_stat_becomes(&admin, "connections", 1));
	assert_int_equal(raw_stat(&admin, "connections_expired"), 0);
	raw_close(&raw);
}

/* User and system time of the server so far, in clock ticks. */
static unsigned long
cpu_ticks(void)
{
	char path[64], text[1024];
	unsigned long user, system;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)server->proc->pid);
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	size_t n = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[n] = '\0';
	assert_int_equal(sscanf(strrchr(text, ')') + 2,
				"%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
				&system),
			 2);
	return user + system;
}

static void
expect_no_spinning(void)
{
	unsigned long before = cpu_ticks();
	int64_t half_a_second = proc_deadline(500);
	while (proc_pause(half_a_second))
		;
	assert_in_range(cpu_ticks() - before, 0, 25); /* of 50 */
}

static void
running_out_of_descriptors_is_survived(void **state)
{
	static struct raw raws[200];
	static const char *const args[] = {"--pool-size", "8M", NULL};
	const struct proc_options few = {.n_files = 64};
	(void)state;
	raw_close(&admin);
	assert_int_equal(server_stop(server), 0);
	server = server_start_with(args, &few);
	raw_connect(&admin, server, WIRE_ROLE_ADMIN);
	for (int i = 0; i < 200; i++)
		raw_open(&raws[i], server);
	/* The last ones hear why; those inside are served. */
	expect_refused_and_closed(&raws[199], ERR_NOMEM, "RLIMIT_NOFILE");
	assert_int_equal(raw_ask(&admin, WIRE_PING, NULL), WIRE_PONG);
	expect_no_spinning();
	assert_in_range(raw_stat(&admin, "connections_turned_away"), 140, 199);
	for (int i = 0; i < 199; i++)
		raw_close(&raws[i]);
	assert_true(raw_stat_becomes(&admin, "connections", 1));
	for (int i = 0; i < 20; i++) {
		raw_connect(&raws[i], server, WIRE_ROLE_CLIENT);
		raw_map(&raws[i]);
		raw_join(&raws[i], 0);
	}
	for (int i = 0; i < 20; i++)
		raw_close(&raws[i]);
	/* One line for the whole storm. */
	const char *log = strstr(proc_text(server->proc, PROC_ERR, NULL), "raise RLIMIT_NOFILE");
	assert_non_null(log);
	assert_null(strstr(log + 1, "raise RLIMIT_NOFILE"));
}

/* ---- The token ---- */

/* Presents a token; true if a descriptor came back. */
static bool
present(const unsigned char *token)
{
	int fd = raw_present(server, token);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static void
a_token_is_good_once_and_while_its_connection_lives(void **state)
{
	static struct raw raw, other;
	static const unsigned char zero[WIRE_TOKEN_LEN];
	(void)state;
	assert_false(present(zero)); /* an admin connection has this one */
	raw_connect(&raw, server, WIRE_ROLE_CLIENT);
	raw_connect(&other, server, WIRE_ROLE_CLIENT);
	assert_memory_not_equal(raw.welcome.token, other.welcome.token, WIRE_TOKEN_LEN);
	raw.welcome.token[15] ^= 1;
	assert_false(present(raw.welcome.token));
	raw.welcome.token[15] ^= 1;
	assert_true(present(raw.welcome.token));
	assert_false(present(raw.welcome.token));
	raw_close(&other);
	assert_true(raw_stat_becomes(&admin, "clients", 2));
	assert_false(present(other.welcome.token));
	assert_int_equal(raw_stat(&admin, "pools_given"), 1);
	assert_int_equal(raw_stat(&admin, "pools_refused"), 4);
	raw_close(&raw);
}

/* ---- Sessions ---- */

static struct wire_stamp
announce(struct raw *raw, const struct raw_session *session, uint64_t a)
{
	struct wire_announcement said = {session->slot, session->serial, a};
	return raw_keepalive(raw, &said, 1);
}

/*
 * The quick session keeps up for some stamps, and has announced the last of them in the end,
 * however many passed between two keepalives; G stays where the slow one joined.
 */
static void
expect_g_held(struct raw *raw, const struct raw_session *quick, uint64_t g)
{
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	for (uint64_t announced = 0, newest = g; announced < g + 5;) {
		struct wire_stamp stamp = announce(raw, quick, newest);
		announced = newest;
		newest = stamp.newest;
		assert_true(newest >= announced);
		assert_int_equal(stamp.g, g);
		assert_true(proc_pause(deadline));
	}
}

static void
g_follows_the_slowest_session(void **state)
{
	static struct raw one, two;
	(void)state;
	raw_connect(&one, server, WIRE_ROLE_CLIENT);
	raw_connect(&two, server, WIRE_ROLE_CLIENT);
	struct wire_stamp stamp = raw_keepalive(&one, NULL, 0);
	assert_int_equal(stamp.g, stamp.newest);
	struct raw_session slow = raw_join(&one, 0), quick = raw_join(&two, 0);
	assert_int_not_equal(slow.slot, quick.slot);
	assert_int_not_equal(slow.serial, quick.serial);
	assert_true(slow.slot >= 1 && slow.stamp >= stamp.newest);
	expect_g_held(&two, &quick, slow.stamp);
	assert_int_equal(announce(&one, &slow, slow.stamp + 3).g, slow.stamp + 3);
	assert_int_equal(announce(&one, &slow, slow.stamp + 1).g, slow.stamp + 3);
	assert_int_equal(announce(&one, &slow, slow.stamp + 1000000).g, slow.stamp + 3);
	/* Announced by somebody else: not heard. */
	assert_int_equal(announce(&two, &slow, slow.stamp + 4).g, slow.stamp + 3);
	raw_leave(&one, &slow);
	assert_true(raw_stat_becomes(&admin, "sessions_left", 1));
	assert_true(raw_stat_becomes(&admin, "sessions_ending", 0));
	assert_true(raw_keepalive(&two, NULL, 0).g > slow.stamp + 3);
	raw_leave(&two, &quick);
	assert_true(raw_stat_becomes(&admin, "sessions_left", 2));
	assert_true(raw_stat_becomes(&admin, "sessions_ending", 0));
	stamp = raw_keepalive(&one, NULL, 0);
	assert_int_equal(stamp.g, stamp.newest);
	assert_int_equal(raw_stat(&admin, "sessions_died"), 0);
	raw_close(&one);
	raw_close(&two);
}

static void
serials_are_published_before_they_are_used(void **state)
{
	static struct raw raw;
	uint64_t off = offsetof(struct layout_superblock, next_serial);
	struct wire_session renewed;
	(void)state;
	raw_connect(&raw, server, WIRE_ROLE_CLIENT);
	raw_map(&raw);
	uint64_t first = raw_word(&raw, off);
	assert_in_range(first, 1, INT32_MAX);
	struct raw_session session = raw_join(&raw, 0);
	assert_int_equal(session.serial, first);
	assert_int_equal(raw_word(&raw, off), first + 1);
	assert_int_equal(raw_ask(&raw, WIRE_RELINK, &session), WIRE_RELINKED);
	assert_int_equal(raw_ask(&raw, WIRE_RENEW, &session), WIRE_RENEWED);
	memcpy(&renewed, raw.in.bytes, sizeof(renewed));
	assert_int_equal(renewed.session_slot, session.slot);
	assert_int_equal(renewed.serial, first + 1);
	assert_int_equal(raw_word(&raw, off), first + 2);
	raw_close(&raw);
}

/* Once in 2^31 this fails for no reason. */
static void
each_life_has_serials_of_its_own(void **state)
{
	uint64_t first = raw_stat(&admin, "serial_next");
	tear_down(state);
	set_up(state);
	assert_int_not_equal(raw_stat(&admin, "serial_next"), first);
}

static void
a_session_that_is_not_ones_own_is_refused(void **state)
{
	static struct raw raw, other;
	(void)state;
	raw_connect(&raw, server, WIRE_ROLE_CLIENT);
	raw_connect(&other, server, WIRE_ROLE_CLIENT);
	struct raw_session session = raw_join(&raw, 0), not_mine = raw_join(&other, 0);
	assert_int_equal(raw_ask(&raw, WIRE_RENEW, &not_mine), WIRE_REFUSED);
	assert_int_equal(raw.in.refused.code, ERR_INVALID);
	assert_int_equal(raw_ask(&raw, WIRE_RELINK, &not_mine), WIRE_REFUSED);
	raw_leave(&raw, &not_mine);
	raw_join(&raw, not_mine.serial); /* nor may it be declared finished */
	session.serial += 9;
	assert_int_equal(raw_ask(&raw, WIRE_RELINK, &session), WIRE_REFUSED);
	session.slot = UINT32_MAX;
	assert_int_equal(raw_ask(&raw, WIRE_RELINK, &session), WIRE_REFUSED);
	assert_int_equal(raw_ask(&raw, WIRE_PING, NULL), WIRE_PONG); /* the connection goes on */
	assert_int_equal(raw_stat(&admin, "sessions"), 3);
	raw_close(&raw);
	raw_close(&other);
}

static void
sessions_run_out_in_words(void **state)
{
	static struct raw raw;
	struct raw_session session = {0};
	(void)state;
	raw_connect(&raw, server, WIRE_ROLE_CLIENT);
	for (uint32_t i = 0; i < LIMIT_SESSIONS; i++)
		session = raw_join(&raw, 0);
	struct wire_join join = {.header = raw_header(&raw, WIRE_JOIN, sizeof(join))};
	assert_true(raw_send(&raw, &join, sizeof(join)));
	expect_refused(&raw, ERR_NOMEM, "session slot");
	raw_leave(&raw, &session);
	session.serial++;
	assert_int_equal(raw_join(&raw, 0).slot, session.slot);
	/* Naming a former one makes room for its successor. */
	assert_int_equal(raw_join(&raw, session.serial).slot, session.slot);
	assert_int_equal(raw_stat(&admin, "sessions"), LIMIT_SESSIONS);
	raw_close(&raw);
	assert_true(raw_stat_becomes(&admin, "sessions", 0));
	assert_true(raw_stat_becomes(&admin, "sessions_ending", 0));
}

static void
a_client_without_the_pool_dies_with_its_connection(void **state)
{
	static struct raw raw;
	(void)state;
	raw_connect(&raw, server, WIRE_ROLE_CLIENT);
	raw_join(&raw, 0);
	assert_int_equal(raw_stat(&admin, "sessions"), 1);
	raw_close(&raw);
	assert_true(raw_stat_becomes(&admin, "sessions_died", 1));
	assert_int_equal(raw_stat(&admin, "sessions"), 0);
	assert_int_equal(raw_stat(&admin, "sessions_lingering"), 0);
}

/* This process lives, so its session lingers, until its next connection says that it is over. */
static void
a_session_lingers_until_it_is_named_as_former(void **state)
{
	static struct raw raw, again;
	(void)state;
	raw_connect(&raw, server, WIRE_ROLE_CLIENT);
	raw_map(&raw);
	struct raw_session session = raw_join(&raw, 0);
	uint64_t off = layout_desc_off(&raw.layout, 5);
	assert_true(raw_cas(&raw, off, 0, chunk_next(0, CHUNK_OWNED, 3, session.slot)));
	shutdown(raw.fd, SHUT_RDWR);
	assert_true(raw_stat_becomes(&admin, "sessions_lingering", 1));
	raw_connect(&again, server, WIRE_ROLE_CLIENT);
	assert_int_equal(raw_keepalive(&again, NULL, 0).g, session.stamp);
	assert_true(raw_stat_becomes(&admin, "chunks_owned", 1));
	struct raw_session next = raw_join(&again, session.serial);
	assert_int_not_equal(next.serial, session.serial);
	assert_int_equal(raw_stat(&admin, "sessions_died"), 1);
	assert_true(raw_stat_becomes(&admin, "chunks_orphan", 1));
	assert_int_equal(raw_stat(&admin, "sessions"), 1);
	assert_int_equal(raw_stat(&admin, "sessions_lingering"), 0);
	assert_int_equal(raw_word(&raw, off), chunk_make(CHUNK_ORPHAN, 3, 0, 2));
	raw_close(&raw);
	raw_close(&again);
}

/* The answer to a JOIN was lost with its connection; the JOIN that repeats it ends what it made. */
static void
a_repeated_join_ends_what_the_first_made(void **state)
{
	static struct raw raw, again;
	(void)state;
	raw_connect(&raw, server, WIRE_ROLE_CLIENT);
	raw_map(&raw);
	raw_join_again(&raw, 0, 4711);
	shutdown(raw.fd, SHUT_RDWR);
	assert_true(raw_stat_becomes(&admin, "sessions_lingering", 1));
	raw_connect(&again, server, WIRE_ROLE_CLIENT);
	raw_map(&again);
	raw_join_again(&again, 0, 4712);
	assert_int_equal(raw_stat(&admin, "sessions_lingering"), 1);
	struct raw_session second = raw_join_again(&again, 0, 4711);
	assert_int_equal(raw_stat(&admin, "sessions_lingering"), 0);
	assert_int_equal(raw_stat(&admin, "sessions"), 2);
	/* Once the client has named it, it is no lost one any more. */
	announce(&again, &second, second.stamp);
	raw_join_again(&again, 0, 4711);
	assert_int_equal(raw_stat(&admin, "sessions"), 3);
	assert_int_equal(raw_stat(&admin, "sessions_died"), 1);
	raw_close(&raw);
	raw_close(&again);
}

/* The first JOIN comes through after the one that repeats it: what that made lives. */
static void
a_join_that_was_overtaken_is_refused(void **state)
{
	static struct raw raw, again;
	(void)state;
	raw_connect(&raw, server, WIRE_ROLE_CLIENT);
	raw_map(&raw);
	raw_connect(&again, server, WIRE_ROLE_CLIENT);
	raw_map(&again);
	struct raw_session session = raw_join_again(&again, 0, 4711);
	struct wire_join join = {.header = raw_header(&raw, WIRE_JOIN, sizeof(join)),
				 .attempt = 4711};
	assert_true(raw_send(&raw, &join, sizeof(join)));
	expect_refused(&raw, ERR_CONN, "newer connection");
	assert_int_equal(raw_ask(&again, WIRE_RELINK, &session), WIRE_RELINKED);
	assert_int_equal(raw_stat(&admin, "sessions"), 1);
	raw_close(&raw);
	raw_close(&again);
}

/* It says nothing for longer than any client would, and has nothing in the region to wait for. */
static void
a_session_without_the_pool_does_not_hold_g(void **state)
{
	static struct raw raw;
	(void)state;
	raw_connect(&raw, server, WIRE_ROLE_CLIENT);
	raw_join(&raw, 0);
	raw_join(&raw, 0);
	expect_refused_and_closed(&raw, ERR_TIMEOUT, "never took the pool");
	assert_int_equal(raw_stat(&admin, "sessions"), 0);
	assert_int_equal(raw_stat(&admin, "sessions_died"), 2);
	assert_true(raw_stat_becomes(&admin, "sessions_ending", 0));
	assert_true(raw_stat_becomes(&admin, "connections", 1));
}

static void
what_a_leaver_forgot_becomes_orphan(void **state)
{
	static struct raw raw;
	uint64_t off[4];
	(void)state;
	raw_connect(&raw, server, WIRE_ROLE_CLIENT);
	raw_map(&raw);
	struct raw_session session = raw_join(&raw, 0), other = raw_join(&raw, 0);
	uint64_t others = chunk_make(CHUNK_OWNED, 9, other.slot, 5);
	uint64_t left = chunk_make(CHUNK_LEFT, 2, 0, 8);
	for (uint64_t i = 0; i < 4; i++)
		off[i] = layout_desc_off(&raw.layout, i);
	assert_true(raw_cas(&raw, off[0], 0, chunk_make(CHUNK_OWNED, 9, session.slot, 0xfffffff)));
	assert_true(raw_cas(&raw, off[1], 0, others));
	assert_true(raw_cas(&raw, off[2], 0, chunk_make(CHUNK_LEFT, 2, session.slot, 1)));
	assert_true(raw_cas(&raw, off[3], 0, left));
	raw_leave(&raw, &session);
	assert_true(raw_stat_becomes(&admin, "sessions_left", 1));
	assert_true(raw_stat_becomes(&admin, "sessions_ending", 0));
	assert_int_equal(raw_word(&raw, off[0]), chunk_make(CHUNK_ORPHAN, 9, 0, 0));
	assert_int_equal(raw_word(&raw, off[1]), others);
	assert_int_equal(raw_word(&raw, off[2]), chunk_make(CHUNK_LEFT, 2, 0, 2));
	assert_int_equal(raw_word(&raw, off[3]), left);
	assert_int_equal(raw_stat(&admin, "chunks_taken"), 2);
	raw_close(&raw);
}

static void
few_free_chunks_are_announced(void **state)
{
	static struct raw raw;
	(void)state;
	raw_connect(&raw, server, WIRE_ROLE_CLIENT);
	raw_map(&raw);
	struct raw_session session = raw_join(&raw, 0);
	uint64_t owned = chunk_make(CHUNK_OWNED, 1, session.slot, 1);
	uint64_t n = raw.layout.n_chunks, few = n / 16;
	assert_int_equal(raw_keepalive(&raw, NULL, 0).flags, 0);
	for (uint64_t i = 0; i < n - few; i++)
		assert_true(raw_cas(&raw, layout_desc_off(&raw.layout, i), 0, owned));
	assert_true(raw_stat_becomes(&admin, "chunks_free", few));
	assert_int_equal(raw_keepalive(&raw, NULL, 0).flags, 0);
	assert_true(raw_cas(&raw, layout_desc_off(&raw.layout, n - 1), 0, owned));
	assert_true(raw_stat_becomes(&admin, "chunks_free", few - 1));
	assert_int_equal(raw_stat(&admin, "chunks_short"), 1);
	assert_int_equal(raw_keepalive(&raw, NULL, 0).flags, WIRE_STAMP_CHUNKS_SHORT);
	/* And to others, that one is about to become free. */
	raw_join(&raw, 0);
	assert_int_equal(raw_keepalive(&raw, NULL, 0).flags, WIRE_STAMP_CHUNKS_SHORT);
	raw.n_draining = 1;
	assert_int_equal(raw_keepalive(&raw, NULL, 0).flags,
			 WIRE_STAMP_CHUNKS_SHORT | WIRE_STAMP_CHUNKS_COMING);
	raw_close(&raw);
}

/* ---- Processes that die ---- */

struct victim {
	struct proc *proc;
	uint32_t slot;
	uint32_t serial;
	int holder;
};

static struct victim
start_victim(const char *n_chunks, const char *mode)
{
	struct victim victim;
	char port[8];
	snprintf(port, sizeof(port), "%u", server->port);
	const char *const args[] = {port, n_chunks, mode, NULL};
	victim.proc = proc_start("tests/proc/raw_client", args, NULL);
	if (!proc_wait_text(victim.proc, PROC_OUT, "\n", PROC_WAIT_MS))
		fail_msg("raw_client: %s", proc_text(victim.proc, PROC_ERR, NULL));
	assert_int_equal(sscanf(proc_text(victim.proc, PROC_OUT, NULL),
				"slot %u serial %u holder %d", &victim.slot, &victim.serial,
				&victim.holder),
			 3);
	return victim;
}

static void
chunks_of_a_killed_client_become_orphans(void **state)
{
	static struct raw raw;
	struct victim victim = start_victim("20", "hold");
	unsigned n_orphan = 0;
	(void)state;
	raw_connect(&raw, server, WIRE_ROLE_CLIENT);
	raw_map(&raw);
	assert_true(raw_stat_becomes(&admin, "chunks_owned", 20));
	proc_kill(victim.proc);
	assert_true(raw_stat_becomes(&admin, "sessions_died", 1));
	assert_true(raw_stat_becomes(&admin, "sessions_ending", 0));
	for (uint64_t i = 0; i < raw.layout.n_chunks; i++) {
		uint64_t desc = raw_word(&raw, layout_desc_off(&raw.layout, i));
		assert_int_not_equal(chunk_owner(desc), victim.slot);
		n_orphan += desc == chunk_make(CHUNK_ORPHAN, 3, 0, 2);
	}
	assert_int_equal(n_orphan, 20);
	assert_int_equal(raw_stat(&admin, "chunks_orphan"), 20);
	proc_free(victim.proc);
	raw_close(&raw);
}

static void
a_lingering_process_holds_g_until_it_is_killed(void **state)
{
	static struct raw raw;
	struct victim victim = start_victim("1", "linger");
	struct wire_stamp stamp;
	(void)state;
	raw_connect(&raw, server, WIRE_ROLE_CLIENT);
	assert_true(raw_stat_becomes(&admin, "sessions_lingering", 1));
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	do {
		stamp = raw_keepalive(&raw, NULL, 0);
		assert_true(proc_pause(deadline));
	} while (stamp.newest < stamp.g + 4);
	assert_int_equal(raw_keepalive(&raw, NULL, 0).g, stamp.g);
	assert_true(raw_stat_becomes(&admin, "chunks_owned", 1));
	proc_kill(victim.proc);
	assert_true(raw_stat_becomes(&admin, "sessions_lingering", 0));
	assert_true(raw_stat_becomes(&admin, "chunks_orphan", 1));
	assert_true(raw_keepalive(&raw, NULL, 0).g > stamp.g);
	proc_free(victim.proc);
	raw_close(&raw);
}

/* The socket lives on in a child; the process does not. */
static void
a_child_that_holds_the_socket_does_not_keep_it_alive(void **state)
{
	struct victim victim = start_victim("3", "fork");
	(void)state;
	assert_int_equal(raw_stat(&admin, "sessions"), 1);
	assert_int_equal(raw_stat(&admin, "clients"), 2);
	proc_kill(victim.proc);
	assert_true(raw_stat_becomes(&admin, "sessions", 0));
	assert_true(raw_stat_becomes(&admin, "chunks_orphan", 3));
	assert_true(raw_stat_becomes(&admin, "clients", 1));
	assert_int_equal(kill(victim.holder, SIGKILL), 0);
	proc_free(victim.proc);
}

static void
fifty_killed_clients_leave_nothing_behind(void **state)
{
	struct victim victim[5];
	(void)state;
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < 5; i++)
			victim[i] = start_victim("2", i % 2 ? "hold" : "linger");
		for (int i = 0; i < 5; i++)
			proc_free(victim[i].proc);
	}
	assert_true(raw_stat_becomes(&admin, "sessions_died", 50));
	assert_true(raw_stat_becomes(&admin, "sessions_ending", 0));
	assert_true(raw_stat_becomes(&admin, "chunks_orphan", 100));
	assert_int_equal(raw_stat(&admin, "chunks_owned"), 0);
	assert_true(raw_stat_becomes(&admin, "connections", 1));
	assert_int_equal(raw_stat(&admin, "stamp_holder_pid"), 0);
	uint64_t newest = raw_stat(&admin, "stamp_newest");
	assert_true(raw_stat(&admin, "stamp_g") >= newest);
}

/* ---- Statistics ---- */

static void
index_use_is_counted(void **state)
{
	static struct raw raw;
	(void)state;
	raw_connect(&raw, server, WIRE_ROLE_CLIENT);
	raw_map(&raw);
	uint64_t off = raw.layout.index_off + 7 * LAYOUT_GROUP_LEN + 8;
	uint64_t word = slot_make(raw.layout.heap_off, 1, 1, 1, SLOT_COMMITTED);
	assert_true(raw_cas(&raw, off, 0, word));
	assert_true(raw_cas(&raw, off + 8, 0, slot_with_state(word, SLOT_DELETED)));
	assert_true(raw_cas(&raw, off + 64, 0, slot_with_state(word, SLOT_TENTATIVE)));
	assert_true(raw_stat_becomes(&admin, "index_used", 2));
	assert_true(raw_stat(&admin, "index_passes") >= 1);
	raw_close(&raw);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_welcome_says_how_to_reach_the_region),
		TEST(each_size_that_differs_is_named_with_both_sides),
		TEST(another_protocol_version_is_named_with_both_sides),
		TEST(what_is_not_a_hello_is_refused_in_words),
		TEST(what_is_not_a_message_is_refused_in_words),
		TEST(messages_arrive_in_any_pieces),
		TEST(garbage_on_a_thousand_connections),
		TEST(silent_peers_are_dropped),
		TEST(a_peer_that_does_not_read_is_dropped),
		TEST(a_peer_that_goes_on_after_its_end_is_dropped),
		TEST(running_out_of_descriptors_is_survived),
		TEST(a_token_is_good_once_and_while_its_connection_lives),
		TEST(g_follows_the_slowest_session),
		TEST(serials_are_published_before_they_are_used),
		TEST(each_life_has_serials_of_its_own),
		TEST(a_session_that_is_not_ones_own_is_refused),
		TEST(sessions_run_out_in_words),
		TEST(a_client_without_the_pool_dies_with_its_connection),
		TEST(a_session_lingers_until_it_is_named_as_former),
		TEST(a_repeated_join_ends_what_the_first_made),
		TEST(a_join_that_was_overtaken_is_refused),
		TEST(a_session_without_the_pool_does_not_hold_g),
		TEST(what_a_leaver_forgot_becomes_orphan),
		TEST(few_free_chunks_are_announced),
		TEST(chunks_of_a_killed_client_become_orphans),
		TEST(a_lingering_process_holds_g_until_it_is_killed),
		TEST(a_child_that_holds_the_socket_does_not_keep_it_alive),
		TEST(fifty_killed_clients_leave_nothing_behind),
		TEST(index_use_is_counted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
