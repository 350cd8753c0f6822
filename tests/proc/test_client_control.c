/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The client's control connection: against a server that says what the test wants (fake_server.h),
 * and against kv-server.
 */
#include <errno.h>
#include <fcntl.h>
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/client.h"
#include "client/control.h"
#include "client/session.h"
#include "common/clock.h"
#include "common/err.h"
#include "proto/block.h"
#include "tests/proc/fake_server.h"
#include "tests/proc/proc.h"

#define WAIT_MS 30000 /* no test reaches it */

/* ---- What the library logged ---- */

static struct {
	pthread_mutex_t mutex;
	char text[64 << 10];
	size_t len;
} logged = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void
log_note(void *arg, int level, const char *line)
{
	(void)arg;
	pthread_mutex_lock(&logged.mutex);
	int n = snprintf(logged.text + logged.len, sizeof(logged.text) - logged.len, "%d %s\n",
			 level, line);
	if (n > 0 && (size_t)n < sizeof(logged.text) - logged.len)
		logged.len += (size_t)n;
	pthread_mutex_unlock(&logged.mutex);
}

static unsigned
count_logged(const char *part)
{
	unsigned n = 0;
	pthread_mutex_lock(&logged.mutex);
	for (const char *at = logged.text; (at = strstr(at, part)); at++)
		n++;
	pthread_mutex_unlock(&logged.mutex);
	return n;
}

static void
assert_logged(const char *part)
{
	if (count_logged(part) == 0)
		fail_msg("'%s' was not logged, but: %s", part, logged.text);
}

static void
forget_logged(void)
{
	pthread_mutex_lock(&logged.mutex);
	logged.text[0] = '\0';
	logged.len = 0;
	pthread_mutex_unlock(&logged.mutex);
}

/* ---- Opening ---- */

static struct rkv_options
options_with(uint32_t connect_timeout_ms)
{
	struct rkv_options o;
	rkv_options_init(&o);
	o.connect_timeout_ms = connect_timeout_ms;
	o.depth = 4;
	o.cache_bytes = 0;
	o.log_level = RKV_LOG_DEBUG;
	o.log = log_note;
	forget_logged();
	return o;
}

static int
try_open(const char *servers, uint32_t connect_timeout_ms, struct rkv_client **ret_client)
{
	struct rkv_options o = options_with(connect_timeout_ms);
	return rkv_open(servers, &o, ret_client);
}

/* An rkv_open that must fail; the client pointer stays untouched. */
static void
assert_no_open(const char *servers, uint32_t connect_timeout_ms, int code)
{
	struct rkv_client *const untouched = (struct rkv_client *)&logged;
	struct rkv_client *client = untouched;
	int rc = try_open(servers, connect_timeout_ms, &client);
	if (rc != code)
		fail_msg("%s instead of %s; %s", rkv_strerror(rc), rkv_strerror(code), logged.text);
	assert_ptr_equal(client, untouched);
	assert_int_equal(count_logged("\n"), 1); /* one failure, one sentence */
}

static struct rkv_client *
open_client(const char *servers)
{
	struct rkv_client *client;
	int rc = try_open(servers, WAIT_MS, &client);
	if (rc)
		fail_msg("%s; %s", rkv_strerror(rc), logged.text);
	return client;
}

/*
 * From now on calls, and attempts to connect again, give up that soon. Opening must not: there a
 * pause of the machine would decide.
 */
static void
hurry(struct rkv_client *client, uint32_t connect_timeout_ms)
{
	pthread_mutex_lock(&client->mutex);
	client->options.connect_timeout_ms = connect_timeout_ms;
	pthread_mutex_unlock(&client->mutex);
}

static struct rkv_session *
open_session(struct rkv_client *client)
{
	struct rkv_session *session;
	int rc = rkv_session_open(client, &session);
	if (rc)
		fail_msg("%s; %s", rkv_strerror(rc), logged.text);
	return session;
}

static int
link_state_of(struct rkv_session *session)
{
	return atomic_load_explicit(&session->port.state, memory_order_acquire);
}

/* Waits for a state that the control thread brings about; the session is not pumped. */
static void
await_state(struct rkv_session *session, int state)
{
	int64_t deadline_ns = proc_deadline(WAIT_MS);
	while (link_state_of(session) != state)
		if (!proc_pause(deadline_ns))
			fail_msg("the link's state is %d and does not become %d",
				 link_state_of(session), state);
}

/* Pumps until the session, which is known to have lost its link, has another. */
static void
await_link(struct rkv_session *session)
{
	int64_t deadline_ns = proc_deadline(WAIT_MS);
	for (;;) {
		session_pump(session);
		if (link_state_of(session) == LINK_UP)
			return;
		if (!proc_pause(deadline_ns))
			fail_msg("no link again; %s", logged.text);
	}
}

static void
await_pong(struct rkv_client *client)
{
	int64_t deadline_ns = proc_deadline(WAIT_MS);
	while (rkv_ping(client) != RKV_OK)
		if (!proc_pause(deadline_ns))
			fail_msg("no ping gets through; %s", logged.text);
}

static void
start_fake(struct fake *fake, void (*greet)(struct fake *, struct wire_welcome *), int arg)
{
	fake_init(fake);
	fake->greet = greet;
	fake->greet_arg = arg;
	fake_start(fake);
}

/* How it greets from now on. */
static void
set_greeting(struct fake *fake, void (*greet)(struct fake *, struct wire_welcome *), int arg)
{
	pthread_mutex_lock(&fake->mutex);
	fake->greet = greet;
	fake->greet_arg = arg;
	pthread_mutex_unlock(&fake->mutex);
}

/* rkv_open to a fake that greets in a certain way fails with a code and a sentence. */
static void
assert_greeting_fails(void (*greet)(struct fake *, struct wire_welcome *), int arg, int code,
		      const char *sentence)
{
	struct fake fake;
	start_fake(&fake, greet, arg);
	assert_no_open(fake.address, WAIT_MS, code);
	assert_logged(sentence);
	fake_stop(&fake);
}

/* ---- Arguments ---- */

static void
test_arguments(void **state)
{
	(void)state;
	struct rkv_client *client;
	struct rkv_limit_values limits;
	struct rkv_stats_values stats;
	assert_int_equal(rkv_open(NULL, NULL, &client), RKV_E_INVALID);
	assert_int_equal(rkv_open("localhost", NULL, NULL), RKV_E_INVALID);
	assert_int_equal(rkv_session_open(NULL, NULL), RKV_E_INVALID);
	assert_int_equal(rkv_limits(NULL, &limits), RKV_E_INVALID);
	assert_int_equal(rkv_stats(NULL, &stats), RKV_E_INVALID);
	assert_int_equal(rkv_server_stats(NULL, NULL, 0, NULL), RKV_E_INVALID);
	assert_int_equal(rkv_ping(NULL), RKV_E_INVALID);
	assert_int_equal(rkv_buffer_register(NULL, &limits, 1), RKV_E_INVALID);
	assert_int_equal(rkv_buffer_unregister(NULL, &limits), RKV_E_INVALID);
	rkv_close(NULL);
	rkv_session_close(NULL);
	rkv_options_init(NULL);
}

static void
test_servers(void **state)
{
	(void)state;
	static const char *const bad[] = {
		"", ",", "host:", "host:70000", ":7440", "::1", "[::1", "host:0", "a,b", "a:1,b:2",
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_no_open(bad[i], WAIT_MS, RKV_E_INVALID);
	assert_no_open("a:1,b:2", WAIT_MS, RKV_E_INVALID);
	assert_logged("this version uses one server");
}

static void
test_options(void **state)
{
	(void)state;
	struct rkv_client *client;
	for (int i = 0; i < 7; i++) {
		struct rkv_options o = options_with(WAIT_MS);
		switch (i) {
		case 0:
			o.connect_timeout_ms = 0;
			break;
		case 1:
			o.op_timeout_ms = 0;
			break;
		case 2:
			o.depth = 0;
			break;
		case 3:
			o.depth = LIMIT_DEPTH_MAX + 1;
			break;
		case 4:
			o.log_level = 4;
			break;
		case 5:
			o.cache_bytes = SIZE_MAX;
			break;
		default:
			o.arena_bytes = SIZE_MAX;
			break;
		}
		assert_int_equal(rkv_open("127.0.0.1:1", &o, &client), RKV_E_INVALID);
		assert_logged("must be from");
	}
}

/* ---- Hellos that fail ---- */

static void
test_nobody_listens(void **state)
{
	(void)state;
	char address[32];
	snprintf(address, sizeof(address), "127.0.0.1:%u", proc_free_port());
	assert_no_open(address, WAIT_MS, RKV_E_CONN);
	assert_logged(address);
}

static void
greet_not(struct fake *fake, struct wire_welcome *w)
{
	(void)fake;
	(void)w;
}

static void
test_silent_server(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, greet_not, 0);
	assert_no_open(fake.address, 100, RKV_E_TIMEOUT);
	assert_logged(fake.address);
	fake_stop(&fake);
}

static void
greet_and_close(struct fake *fake, const void *bytes, size_t len)
{
	(void)!send(fake->fd, bytes, len, MSG_NOSIGNAL);
	shutdown(fake->fd, SHUT_RDWR);
}

/* So many bytes of the welcome. */
static void
greet_in_part(struct fake *fake, struct wire_welcome *w)
{
	greet_and_close(fake, w, (size_t)fake->greet_arg);
}

static void
test_closed_in_hello(void **state)
{
	(void)state;
	static const int lens[] = {0, 1, 4, 15, 16, 100, sizeof(struct wire_welcome) - 1};
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++)
		assert_greeting_fails(greet_in_part, lens[i], RKV_E_CONN, "closed the connection");
}

static void
greet_with_garbage(struct fake *fake, struct wire_welcome *w)
{
	static const char text[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
	(void)w;
	greet_and_close(fake, text, sizeof(text));
}

static void
test_garbage(void **state)
{
	(void)state;
	assert_greeting_fails(greet_with_garbage, 0, RKV_E_CORRUPT, "check the port");
}

enum header_fault {
	OTHER_VERSION,
	TOO_SHORT,
	TOO_LONG,
	TYPE_0,
	TYPE_OF_CLIENT,
	NO_WELCOME,
	REQUEST
};

static void
greet_with_header_fault(struct fake *fake, struct wire_welcome *w)
{
	switch ((enum header_fault)fake->greet_arg) {
	case OTHER_VERSION:
		w->header.version++;
		break;
	case TOO_SHORT:
		w->header.len = 8;
		break;
	case TOO_LONG:
		w->header.len = UINT32_MAX;
		break;
	case TYPE_0:
		w->header.type = 0;
		break;
	case TYPE_OF_CLIENT:
		w->header.type = WIRE_HELLO;
		break;
	case NO_WELCOME:
		w->header.type = WIRE_PONG;
		w->header.len = sizeof(w->header);
		break;
	case REQUEST:
		w->header.request++;
		break;
	}
	(void)!send(fake->fd, w, sizeof(*w), MSG_NOSIGNAL);
}

static void
test_header_faults(void **state)
{
	(void)state;
	assert_greeting_fails(greet_with_header_fault, OTHER_VERSION, RKV_E_VERSION,
			      "speaks version 3 of the control protocol, this client version 2");
	assert_greeting_fails(greet_with_header_fault, TOO_SHORT, RKV_E_CORRUPT, "of type 2 and 8");
	assert_greeting_fails(greet_with_header_fault, TOO_LONG, RKV_E_CORRUPT, "4294967295");
	assert_greeting_fails(greet_with_header_fault, TYPE_0, RKV_E_CORRUPT, "of type 0");
	assert_greeting_fails(greet_with_header_fault, TYPE_OF_CLIENT, RKV_E_CORRUPT, "of type 1");
	assert_greeting_fails(greet_with_header_fault, NO_WELCOME, RKV_E_CORRUPT, "something else");
	assert_greeting_fails(greet_with_header_fault, REQUEST, RKV_E_CORRUPT, "something else");
}

#define N_SIZES (sizeof(struct wire_sizes) / sizeof(uint32_t))

static void
greet_with_other_size(struct fake *fake, struct wire_welcome *w)
{
	uint32_t sizes[N_SIZES];
	memcpy(sizes, &w->sizes, sizeof(sizes));
	sizes[fake->greet_arg] += 7000000;
	memcpy(&w->sizes, sizes, sizeof(sizes));
	(void)!send(fake->fd, w, sizeof(*w), MSG_NOSIGNAL);
}

static void
test_sizes(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		uint32_t value;
	} size[] = {
		{"layout version", LAYOUT_VERSION},
		{"superblock length", sizeof(struct layout_superblock)},
		{"bucket length", LAYOUT_BUCKET_LEN},
		{"block header length", BLOCK_HEADER_LEN},
		{"granule length", LIMIT_GRANULE},
		{"number of tag bits", LIMIT_TAG_BITS},
		{"word age in stamps", LIMIT_WORD_STAMPS},
		{"stamp interval in ms", LIMIT_STAMP_MS},
	};
	assert_int_equal(sizeof(size) / sizeof(size[0]), N_SIZES);
	for (size_t i = 0; i < N_SIZES; i++) {
		char sentence[128];
		snprintf(sentence, sizeof(sentence), "server's %s is %u, this client's is %u",
			 size[i].name, size[i].value + 7000000, size[i].value);
		assert_greeting_fails(greet_with_other_size, (int)i, RKV_E_VERSION, sentence);
	}
}

enum offer_fault {
	LONGER,
	SHORTER,
	TINY,
	OTHER_EPOCH,
	OTHER_ID,
	ENDLESS_PATH,
	TWO_REGIONS,
	BAD_TOKEN,
	NO_SOCKET,
	OTHER_HOST,
	NO_PATH,
	VERBS,
	ENDLESS_VERBS
};

static void
greet_with_offer_fault(struct fake *fake, struct wire_welcome *w)
{
	switch ((enum offer_fault)fake->greet_arg) {
	case LONGER:
		w->region[0].len += LAYOUT_PAGE;
		break;
	case SHORTER:
		w->region[0].len -= LAYOUT_PAGE;
		break;
	case TINY:
		w->region[0].len = 1;
		break;
	case OTHER_EPOCH:
		w->region[0].epoch++;
		break;
	case OTHER_ID:
		w->region[0].region_id++;
		break;
	case ENDLESS_PATH:
		memset(w->unix_path, 'x', sizeof(w->unix_path));
		break;
	case TWO_REGIONS:
		w->n_regions = 2;
		break;
	case BAD_TOKEN:
		w->token[0] ^= 1;
		break;
	case NO_SOCKET:
		snprintf(w->unix_path, sizeof(w->unix_path), "@rkv-nobody-is-here");
		break;
	case OTHER_HOST:
		w->boot_id[0] ^= 1;
		break;
	case NO_PATH:
		w->unix_path[0] = '\0';
		break;
	case VERBS:
		snprintf(w->verbs_address, sizeof(w->verbs_address), "192.0.2.1:7441");
		break;
	case ENDLESS_VERBS:
		memset(w->verbs_address, '1', sizeof(w->verbs_address));
		break;
	}
	(void)!send(fake->fd, w, sizeof(*w), MSG_NOSIGNAL);
}

static void
test_offer_faults(void **state)
{
	(void)state;
	static const struct {
		enum offer_fault fault;
		int code;
		const char *sentence;
	} cases[] = {
		{LONGER, RKV_E_CORRUPT, "127.0.0.1"},
		{SHORTER, RKV_E_CORRUPT, "127.0.0.1"},
		{TINY, RKV_E_CORRUPT, "impossible length"},
		{OTHER_EPOCH, RKV_E_CORRUPT, "another one than the server's hello offered"},
		{OTHER_ID, RKV_E_CORRUPT, "another one than the server's hello offered"},
		{ENDLESS_PATH, RKV_E_CORRUPT, "an address without an end"},
		{ENDLESS_VERBS, RKV_E_CORRUPT, "an address without an end"},
		{TWO_REGIONS, RKV_E_CORRUPT, "number of regions"},
		{BAD_TOKEN, RKV_E_CONN, "cannot get the pool"},
		{NO_SOCKET, RKV_E_CONN, "@rkv-nobody-is-here"},
		{OTHER_HOST, RKV_E_CONN, "the server is on another machine"},
		{NO_PATH, RKV_E_CONN, "the server is on another machine"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_greeting_fails(greet_with_offer_fault, (int)cases[i].fault, cases[i].code,
				      cases[i].sentence);
}

static void
greet_with_spoilt_superblock(struct fake *fake, struct wire_welcome *w)
{
	struct layout_superblock *sb = pool_base(fake->shm.pool);
	sb->n_chunks++;
	if (fake->greet_arg)
		sb->checksum = layout_superblock_checksum(sb);
	(void)!send(fake->fd, w, sizeof(*w), MSG_NOSIGNAL);
}

static void
test_superblock_faults(void **state)
{
	(void)state;
	assert_greeting_fails(greet_with_spoilt_superblock, 0, RKV_E_CORRUPT, "checksum differs");
	assert_greeting_fails(greet_with_spoilt_superblock, 1, RKV_E_CORRUPT, "where they belong");
}

static void
greet_with_refusal(struct fake *fake, struct wire_welcome *w)
{
	struct wire_refused r = {
		.header = fake_header(WIRE_REFUSED, sizeof(r), w->header.request),
		.code = fake->greet_arg,
	};
	memset(r.reason, '\n', sizeof(r.reason)); /* no end, and nothing to print */
	memcpy(r.reason, "not you", 7);
	(void)!send(fake->fd, &r, sizeof(r), MSG_NOSIGNAL);
}

static void
test_hello_refused(void **state)
{
	(void)state;
	assert_greeting_fails(greet_with_refusal, ERR_PERM, RKV_E_PERM, "not you????");
	assert_greeting_fails(greet_with_refusal, ERR_NOMEM, RKV_E_NOMEM, "not you????");
	assert_greeting_fails(greet_with_refusal, 5, RKV_E_CORRUPT, "not you????");
	assert_greeting_fails(greet_with_refusal, -1000, RKV_E_CORRUPT, "not you????");
}

/* ---- Keepalives, [STAMP] ---- */

struct keepalive_check {
	struct rkv_client *client;
	uint32_t next;
	unsigned n_early; /* sent before they were counted */
	unsigned n_other; /* not the next number */
};

/* Runs in the server's thread while the keepalive has not been answered. */
static bool
check_keepalive(void *arg, const struct wire_keepalive *k)
{
	struct keepalive_check *check = arg;
	struct rkv_client *client = check->client;
	uint64_t asked = atomic_load_explicit(&client->stamps.asked, memory_order_seq_cst);
	uint64_t answered = atomic_load_explicit(&client->stamps.answered, memory_order_acquire);
	check->n_early += k->header.request > asked;
	check->n_other += k->header.request != check->next;
	check->next = k->header.request + 1;
	return k->header.request <= asked && answered < k->header.request;
}

static void
test_keepalives(void **state)
{
	(void)state;
	struct fake fake;
	struct keepalive_check check = {0};
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = check.client = open_client(fake.address);
	fake_await_keepalives(&fake, 1);
	pthread_mutex_lock(&fake.mutex);
	check.next = (uint32_t)fake.n_keepalives + 1;
	fake.keepalive_arg = &check;
	fake.keepalive_is_good = check_keepalive;
	pthread_mutex_unlock(&fake.mutex);
	fake_await_keepalives(&fake, 4);
	pthread_mutex_lock(&fake.mutex);
	assert_int_equal(check.n_early, 0);
	assert_int_equal(check.n_other, 0);
	assert_int_equal(fake.n_bad_keepalives, 0);
	assert_int_equal(fake.n_announced, 0);
	pthread_mutex_unlock(&fake.mutex);
	/* The last but one was answered, or the last had not been sent. */
	assert_true(atomic_load(&client->stamps.answered) >= 4);
	assert_true(atomic_load(&client->stamps.newest) == 5000);
	assert_true(atomic_load(&client->stamps.g) == 4000);
	rkv_close(client);
	fake_stop(&fake);
}

static void
set_stamps(struct fake *fake, uint64_t newest, uint64_t g)
{
	pthread_mutex_lock(&fake->mutex);
	fake->newest = newest;
	fake->g = g;
	pthread_mutex_unlock(&fake->mutex);
	fake_await_keepalives(fake, 2); /* the first one brought them, the second says so */
}

static void
test_newest_never_falls(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	set_stamps(&fake, 6000, 5500);
	assert_true(atomic_load(&client->stamps.newest) == 6000);
	assert_true(atomic_load(&client->stamps.g) == 5500);
	set_stamps(&fake, 5990, 5550);
	assert_true(atomic_load(&client->stamps.newest) == 6000);
	assert_true(atomic_load(&client->stamps.g) == 5550);
	assert_int_equal(fake.n_connections, 1);
	rkv_close(client);
	fake_stop(&fake);
}

/* What ends a connection, because it cannot be; the client comes back. */
static void
test_impossible_answers(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	struct wire_stamp unasked = {.header = fake_header(WIRE_STAMP, sizeof(unasked), 12345)};
	struct wire_joined joined = {.header = fake_header(WIRE_JOINED, sizeof(joined), 1)};
	struct wire_header welcome = fake_header(WIRE_WELCOME, sizeof(welcome), 1);
	fake_await_keepalives(&fake, 1);
	fake_send(&fake, &unasked, sizeof(unasked));
	fake_await_connection(&fake, 2);
	assert_logged("answered a keepalive that was not sent");
	fake_await_keepalives(&fake, 1);
	fake_send(&fake, &joined, sizeof(joined));
	fake_await_connection(&fake, 3);
	assert_logged("answered what was not asked");
	fake_await_keepalives(&fake, 1);
	fake_send(&fake, &welcome, sizeof(welcome));
	fake_await_connection(&fake, 4);
	fake_await_keepalives(&fake, 1);
	fake_send(&fake, "garbage garbage garbage", 23);
	fake_await_connection(&fake, 5);
	assert_logged("check the port");
	pthread_mutex_lock(&fake.mutex);
	fake.g = fake.newest + 1;
	pthread_mutex_unlock(&fake.mutex);
	fake_await_connection(&fake, 6);
	assert_logged("stamps that cannot be");
	pthread_mutex_lock(&fake.mutex);
	fake.g = 0;
	pthread_mutex_unlock(&fake.mutex);
	fake_await_keepalives(&fake, 3); /* the connection stays */
	pthread_mutex_lock(&fake.mutex);
	unsigned n_connections = fake.n_connections;
	fake.mute[WIRE_KEEPALIVE] = true;
	pthread_mutex_unlock(&fake.mutex);
	fake_await_keepalives(&fake, 1); /* one is out */
	forget_logged();
	fake_send(&fake, &unasked, sizeof(unasked));
	fake_await_connection(&fake, n_connections + 1);
	assert_logged("answered a keepalive that was not sent");
	rkv_close(client);
	fake_stop(&fake);
}

/* ---- Sessions ---- */

static void
test_session_comes_and_goes(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	struct rkv_session *session = open_session(client);
	struct fake_record join = fake_record(&fake, WIRE_JOIN, 1);
	assert_int_equal(join.serial, 0);
	assert_int_equal(session->link.serial, 100);
	assert_int_equal(session->link.epoch, 1000);
	assert_int_equal(session->link.joined_stamp, 5000);
	rkv_session_close(session);
	struct fake_record leave = fake_record(&fake, WIRE_LEAVE, 1);
	assert_int_equal(leave.serial, 100);
	assert_int_equal(leave.session_slot, 100 % FAKE_SESSIONS + 1);
	assert_int_not_equal(leave.request, join.request);
	session = open_session(client);
	rkv_close(client); /* closes it */
	fake_record(&fake, WIRE_LEAVE, 2);
	fake_stop(&fake);
}

/* A of an idle session: the newest stamp less T_WORD. */
static void
test_announcement(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	fake.newest = LIMIT_WORD_STAMPS / 2;
	fake.g = 0;
	struct rkv_client *client = open_client(fake.address);
	struct rkv_session *session = open_session(client);
	fake_await_keepalives(&fake, 2);
	pthread_mutex_lock(&fake.mutex);
	assert_int_equal(fake.n_announced, 1);
	assert_int_equal(fake.announced[0].a, 0);
	assert_int_equal(fake.announced[0].serial, 100);
	assert_int_equal(fake.announced[0].session_slot, 100 % FAKE_SESSIONS + 1);
	pthread_mutex_unlock(&fake.mutex);
	set_stamps(&fake, 7000, 0);
	pthread_mutex_lock(&fake.mutex);
	assert_int_equal(fake.announced[0].a, 7000 - LIMIT_WORD_STAMPS);
	pthread_mutex_unlock(&fake.mutex);
	struct rkv_session *second = open_session(client);
	fake_await_keepalives(&fake, 2);
	pthread_mutex_lock(&fake.mutex);
	assert_int_equal(fake.n_announced, 2);
	pthread_mutex_unlock(&fake.mutex);
	rkv_session_close(session);
	fake_await_keepalives(&fake, 2);
	pthread_mutex_lock(&fake.mutex);
	assert_int_equal(fake.n_announced, 1);
	assert_int_equal(fake.announced[0].serial, 101);
	pthread_mutex_unlock(&fake.mutex);
	rkv_session_close(second);
	rkv_close(client);
	fake_stop(&fake);
}

/* Operations in flight hold A at their start. */
static void
test_busy_announcement(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	struct rkv_session *session = open_session(client);
	uint64_t idle = atomic_exchange(&session->port.start_word, start_make(START_BUSY, 5000));
	set_stamps(&fake, 9000, 0);
	pthread_mutex_lock(&fake.mutex);
	assert_int_equal(fake.announced[0].a, 5000 - LIMIT_WORD_STAMPS);
	pthread_mutex_unlock(&fake.mutex);
	atomic_store(&session->port.start_word, idle);
	set_stamps(&fake, 9001, 0);
	pthread_mutex_lock(&fake.mutex);
	assert_int_equal(fake.announced[0].a, 9001 - LIMIT_WORD_STAMPS);
	pthread_mutex_unlock(&fake.mutex);
	rkv_close(client);
	fake_stop(&fake);
}

static void
test_session_refused(void **state)
{
	(void)state;
	struct fake fake;
	struct rkv_session *session = NULL;
	start_fake(&fake, NULL, 0);
	fake.refuse[WIRE_JOIN] = ERR_NOMEM;
	struct rkv_client *client = open_client(fake.address);
	assert_int_equal(rkv_session_open(client, &session), RKV_E_NOMEM);
	assert_null(session);
	assert_logged("refused by the test");
	assert_int_equal(client->n_sessions, 0);
	assert_int_equal(fake_count(&fake, WIRE_LEAVE), 0);
	rkv_close(client);
	fake_stop(&fake);
}

static void
put(struct rkv_session *session, const char *value)
{
	int rc = rkv_put(session, "key", 3, value, strlen(value), NULL, NULL);
	if (rc)
		fail_msg("%s", rkv_strerror(rc));
}

static void
assert_value(struct rkv_session *session, const char *value)
{
	char buf[64];
	struct rkv_item item;
	int rc = rkv_get(session, "key", 3, buf, sizeof(buf), &item);
	if (rc)
		fail_msg("%s", rkv_strerror(rc));
	assert_int_equal(item.value_len, strlen(value));
	assert_memory_equal(buf, value, item.value_len);
}

static enum start_state
start_state_of(struct rkv_session *session)
{
	return start_state(atomic_load_explicit(&session->port.start_word, memory_order_acquire));
}

/* An idle session's marks do not hold G: the control thread flushes them, [STAMP]. */
static void
test_idle_marks_are_flushed(void **state)
{
	(void)state;
	struct fake fake;
	struct rkv_stats_values before, after;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	struct rkv_session *session = open_session(client);
	put(session, "one");
	put(session, "two"); /* and a mark for the first block */
	assert_int_equal(start_state_of(session), START_MARKS);
	assert_int_equal(rkv_stats(session, &before), RKV_OK);
	assert_int_equal(before.op[RKV_OP_PUT].n_done, 2);
	assert_int_equal(before.op[RKV_OP_PUT].n_marks, 1);
	assert_true(before.n_chunks_owned > 0);
	set_stamps(&fake, 6000, 0);
	int64_t deadline_ns = proc_deadline(WAIT_MS);
	while (start_state_of(session) != START_IDLE)
		assert_true(proc_pause(deadline_ns));
	assert_int_equal(rkv_stats(session, &after), RKV_OK);
	assert_int_equal(after.n_maintenance_requests, before.n_maintenance_requests + 1);
	assert_value(session, "two");
	rkv_close(client);
	fake_stop(&fake);
}

/*
 * Opens a session until nobody waits any more for the answer to its JOIN. Whether it is sent before
 * that is up to the control thread: if not, another one is opened.
 */
static struct rkv_client *
join_in_vain(struct fake *fake)
{
	struct rkv_client *client = open_client(fake->address);
	int64_t deadline_ns = proc_deadline(WAIT_MS);
	pthread_mutex_lock(&fake->mutex);
	fake->mute[WIRE_JOIN] = true;
	pthread_mutex_unlock(&fake->mutex);
	hurry(client, 300);
	do {
		struct rkv_session *session = NULL;
		assert_int_equal(rkv_session_open(client, &session), RKV_E_TIMEOUT);
		assert_null(session);
	} while (fake_count(fake, WIRE_JOIN) == 0 && proc_pause(deadline_ns));
	hurry(client, WAIT_MS);
	return client;
}

/* A JOINED that comes when nobody waits any more ends that session. */
static void
test_session_too_late(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = join_in_vain(&fake);
	struct fake_record join = fake_record(&fake, WIRE_JOIN, 1);
	struct wire_joined joined = {
		.header = fake_header(WIRE_JOINED, sizeof(joined), join.request),
		.session_slot = 7,
		.serial = 77,
		.stamp = 5000,
	};
	fake_send(&fake, &joined, sizeof(joined));
	struct fake_record leave = fake_record(&fake, WIRE_LEAVE, 1);
	assert_int_equal(leave.serial, 77);
	assert_int_equal(leave.session_slot, 7);
	rkv_close(client);
	fake_stop(&fake);
}

static void
test_sessions_limit(void **state)
{
	(void)state;
	struct fake fake;
	struct rkv_session *session = NULL;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	client->n_sessions = LIMIT_SESSIONS - 1; /* as if */
	session = open_session(client);
	struct rkv_session *too_many = NULL;
	assert_int_equal(rkv_session_open(client, &too_many), RKV_E_NOMEM);
	assert_null(too_many);
	assert_logged("cannot have more than 4096 sessions");
	rkv_session_close(session);
	assert_int_equal(client->n_sessions, LIMIT_SESSIONS - 1);
	client->n_sessions = 0;
	rkv_close(client);
	fake_stop(&fake);
}

/* As if the session's connection had failed. */
static void
drop_link(struct rkv_session *session)
{
	assert_true(session_take(session));
	session_drop_link(session);
	session_release(session);
}

static void
test_relink(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	struct rkv_session *session = open_session(client);
	drop_link(session);
	struct fake_record relink = fake_record(&fake, WIRE_RELINK, 1);
	assert_int_equal(relink.serial, 100);
	await_link(session);
	assert_int_equal(session->link.serial, 100);
	assert_int_equal(fake_count(&fake, WIRE_JOIN), 1);
	/* The server has given it up. */
	pthread_mutex_lock(&fake.mutex);
	fake.refuse[WIRE_RELINK] = ERR_INVALID;
	pthread_mutex_unlock(&fake.mutex);
	drop_link(session);
	fake_record(&fake, WIRE_RELINK, 2);
	fake_record(&fake, WIRE_JOIN, 2);
	await_link(session);
	assert_int_equal(session->link.serial, 101);
	rkv_close(client);
	assert_int_equal(fake_record(&fake, WIRE_LEAVE, 1).serial, 101);
	assert_int_equal(fake.n_connections, 1);
	fake_stop(&fake);
}

static void
test_renew(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	struct rkv_session *session = open_session(client);
	atomic_store(&session->port.renew, 1);
	control_wake(client);
	struct fake_record renew = fake_record(&fake, WIRE_RENEW, 1);
	assert_int_equal(renew.serial, 100);
	int64_t deadline_ns = proc_deadline(WAIT_MS);
	while (atomic_load_explicit(&session->port.next_serial, memory_order_acquire) != 101)
		assert_true(proc_pause(deadline_ns));
	assert_int_equal(atomic_load(&session->port.renew), 0);
	fake_await_keepalives(&fake, 2);
	pthread_mutex_lock(&fake.mutex);
	assert_int_equal(fake.announced[0].serial, 101);
	pthread_mutex_unlock(&fake.mutex);
	assert_int_equal(fake_count(&fake, WIRE_RENEW), 1);
	rkv_session_close(session);
	assert_int_equal(fake_record(&fake, WIRE_LEAVE, 1).serial, 101);
	rkv_close(client);
	fake_stop(&fake);
}

/* An idle session also gives back chunks that drain when the server has enough again. */
static void
test_idle_session_gives_back(void **state)
{
	(void)state;
	struct fake fake;
	struct rkv_stats_values stats;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	struct rkv_session *session = open_session(client);
	put(session, "value");
	assert_int_equal(rkv_delete(session, "key", 3), RKV_OK);
	pthread_mutex_lock(&fake.mutex);
	fake.flags = WIRE_STAMP_CHUNKS_SHORT;
	pthread_mutex_unlock(&fake.mutex);
	int64_t deadline_ns = proc_deadline(WAIT_MS);
	while (atomic_load(&session->port.n_draining) == 0)
		assert_true(proc_pause(deadline_ns));
	fake_await_keepalives(&fake, 2);
	pthread_mutex_lock(&fake.mutex);
	assert_int_equal(fake.n_draining, 1); /* the client has told */
	fake.flags = 0;
	pthread_mutex_unlock(&fake.mutex);
	set_stamps(&fake, 6000, 4000);
	assert_int_equal(rkv_stats(session, &stats), RKV_OK);
	assert_int_equal(stats.n_chunks_returned, 0);
	for (uint64_t newest = 7000; atomic_load(&session->port.n_draining) != 0; newest++) {
		assert_true(proc_pause(deadline_ns));
		set_stamps(&fake, newest, newest);
	}
	assert_int_equal(rkv_stats(session, &stats), RKV_OK);
	assert_true(stats.n_chunks_returned > 0);
	rkv_close(client);
	fake_stop(&fake);
}

/* A session that cannot take its links over, for want of memory, and asks in each pump. */
static void
test_links_in_vain(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	struct rkv_session *session = open_session(client);
	drop_link(session);
	pthread_mutex_lock(&fake.mutex);
	uint64_t enough = fake.n_keepalives + 4;
	pthread_mutex_unlock(&fake.mutex);
	int64_t deadline_ns = proc_deadline(WAIT_MS);
	/* At least until it has asked twice: this thread may sleep through all keepalives. */
	for (uint64_t n = 0; n < enough || fake_count(&fake, WIRE_RELINK) < 2;) {
		assert_true(proc_pause(deadline_ns));
		if (link_state_of(session) == LINK_READY) {
			fab_disconnect(session->port.next_link.ep);
			session->port.next_link.ep = NULL;
			atomic_store(&session->port.state, LINK_WANTED);
			control_wake(client);
		}
		pthread_mutex_lock(&fake.mutex);
		n = fake.n_keepalives;
		pthread_mutex_unlock(&fake.mutex);
	}
	/* After at least 10, 20, 40, 80 and 160 ms, of about 400. */
	assert_in_range(fake_count(&fake, WIRE_RELINK), 2, 20);
	await_link(session);
	rkv_close(client);
	fake_stop(&fake);
}

/* ---- Reconnecting ---- */

static void
test_connection_lost(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	struct rkv_session *session = open_session(client);
	put(session, "before");
	fake_hang_up(&fake);
	fake_await_connection(&fake, 2);
	struct fake_record join = fake_record(&fake, WIRE_JOIN, 2);
	assert_true(join.connection >= 2);
	assert_int_equal(join.serial, 100); /* the former one, of the same epoch */
	await_link(session);
	assert_int_equal(session->link.serial, 101);
	assert_value(session, "before"); /* the fake's memory is the same */
	assert_int_equal(atomic_load(&client->n_reconnects), 1);
	assert_int_equal(count_logged("lost: "), 1);
	assert_int_equal(count_logged("connected to"), 1);
	rkv_close(client);
	fake_stop(&fake);
}

/* An idle session does not have to be pumped to let go of a severed region. */
static void
test_idle_session_heals(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	struct rkv_session *session = open_session(client);
	fake_hang_up(&fake);
	fake_record(&fake, WIRE_JOIN, 2);
	await_state(session, LINK_READY);
	/* It does not hold G while it is not pumped. */
	set_stamps(&fake, 8000, 0);
	pthread_mutex_lock(&fake.mutex);
	assert_int_equal(fake.n_announced, 1);
	assert_int_equal(fake.announced[0].serial, 101);
	assert_int_equal(fake.announced[0].a, 8000 - LIMIT_WORD_STAMPS);
	pthread_mutex_unlock(&fake.mutex);
	/* The link that it has not taken is lost too; the server hears of the session it was. */
	fake_hang_up(&fake);
	assert_int_equal(fake_record(&fake, WIRE_JOIN, 3).serial, 101);
	await_link(session);
	assert_int_equal(session->link.serial, 102);
	rkv_close(client);
	fake_stop(&fake);
}

/* Somebody held the session for a moment, just when its link was lost. */
static void
lose_unseen(struct fake *fake, struct rkv_session *session, unsigned connection)
{
	uint64_t idle = atomic_exchange(&session->port.start_word, start_make(START_FLUSHING, 1));
	fake_hang_up(fake);
	fake_await_connection(fake, connection);
	fake_await_keepalives(fake, 2);
	assert_int_equal(fake_count(fake, WIRE_JOIN), connection - 1);
	atomic_store(&session->port.start_word, idle);
	fake_record(fake, WIRE_JOIN, connection);
}

/* That the session is never used again does not make the server wait for it. */
static void
test_idle_session_is_cut_off(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	struct rkv_session *session = open_session(client);
	lose_unseen(&fake, session, 2); /* while its link is up */
	await_state(session, LINK_READY);
	lose_unseen(&fake, session, 3); /* while it is ready */
	assert_int_equal(fake_record(&fake, WIRE_JOIN, 2).serial, 100);
	assert_int_equal(fake_record(&fake, WIRE_JOIN, 3).serial, 101);
	await_state(session, LINK_READY);
	set_stamps(&fake, 8000, 0);
	pthread_mutex_lock(&fake.mutex);
	assert_int_equal(fake.n_announced, 1);
	assert_int_equal(fake.announced[0].serial, 102);
	assert_int_equal(fake.announced[0].a, 8000 - LIMIT_WORD_STAMPS);
	pthread_mutex_unlock(&fake.mutex);
	await_link(session);
	rkv_close(client);
	fake_stop(&fake);
}

/* A busy session keeps its endpoint, on which nothing succeeds any more. */
static void
test_busy_session_is_severed(void **state)
{
	(void)state;
	struct fake fake;
	static uint64_t word;
	struct fab_done done;
	struct fab_op op = {
		.kind = FAB_READ, .roff = LAYOUT_PAGE, .piece = {{.local = &word, .len = 8}}};
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	struct rkv_session *session = open_session(client);
	assert_int_equal(fab_register(client->fab, &word, 8, &op.piece[0].key), 0);
	uint64_t idle = atomic_exchange(&session->port.start_word, start_make(START_BUSY, 5000));
	assert_int_equal(fab_post(session->link.ep, &op, 1, NULL), 0); /* before the loss */
	fake_hang_up(&fake);
	fake_await_connection(&fake, 2);
	fake_await_keepalives(&fake, 2);
	assert_int_equal(link_state_of(session), LINK_UP);
	pthread_mutex_lock(&fake.mutex);
	assert_int_equal(fake.n_announced, 0); /* this connection does not know it */
	pthread_mutex_unlock(&fake.mutex);
	assert_int_equal(fab_poll(session->link.ep, &done, 1), 1);
	assert_int_equal(done.status, ERR_CONN);
	atomic_store(&session->port.start_word, idle);
	assert_int_equal(fake_record(&fake, WIRE_JOIN, 2).serial, 100);
	await_link(session);
	rkv_close(client);
	fake_stop(&fake);
}

static void
test_another_epoch(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	struct rkv_session *session = open_session(client);
	fake_await_keepalives(&fake, 2);
	uint64_t asked = atomic_load(&client->stamps.asked);
	fake_restart(&fake);
	assert_int_equal(fake_record(&fake, WIRE_JOIN, 2).serial, 0); /* it never heard of it */
	await_link(session);
	assert_int_equal(session->link.epoch, 1001);
	assert_int_equal(session->link.serial, 1);
	fake_await_keepalives(&fake, 2);
	assert_true(atomic_load(&client->stamps.newest) == 10); /* they may fall now */
	assert_true(atomic_load(&client->stamps.g) == 5);
	assert_true(atomic_load(&client->stamps.answered) > asked);
	rkv_close(client);
	fake_stop(&fake);
}

/* The server counts a closed session of a lost connection until it hears that it is over. */
static void
test_closed_while_lost(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	struct rkv_session *session = open_session(client);
	hurry(client, 300);
	set_greeting(&fake, greet_not, 0);
	fake_hang_up(&fake);
	fake_await_connection(&fake, 2);
	rkv_session_close(session);
	struct rkv_session *none = NULL;
	assert_int_equal(rkv_session_open(client, &none), RKV_E_CONN);
	assert_null(none);
	assert_int_equal(rkv_ping(client), RKV_E_CONN);
	set_greeting(&fake, NULL, 0);
	assert_int_equal(fake_record(&fake, WIRE_JOIN, 2).serial, 100);
	assert_int_equal(fake_record(&fake, WIRE_LEAVE, 1).serial, 101);
	await_pong(client);
	assert_int_equal(fake_count(&fake, WIRE_JOIN), 2);
	rkv_close(client);
	fake_stop(&fake);
}

/*
 * The n-th JOIN, which came over a later connection than the one before: over the next, unless a
 * pause took the time that an attempt to connect has.
 */
static struct fake_record
join_of_later_connection(struct fake *fake, unsigned n)
{
	struct fake_record former = fake_record(fake, WIRE_JOIN, n - 1);
	struct fake_record join = fake_record(fake, WIRE_JOIN, n);
	assert_true(join.connection > former.connection);
	return join;
}

/* The next connection; the last one, or this one, leaves JOINs unanswered or not. */
static void
next_connection(struct fake *fake, bool mute_join)
{
	pthread_mutex_lock(&fake->mutex);
	fake->mute[WIRE_JOIN] = mute_join;
	pthread_mutex_unlock(&fake->mutex);
	fake_hang_up(fake);
}

/* What a JOIN made whose answer was lost, the server finds by the number that is repeated. */
static void
test_join_unanswered(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	struct rkv_session *session = open_session(client);
	uint32_t first = fake_record(&fake, WIRE_JOIN, 1).attempt;
	next_connection(&fake, true);
	uint32_t second = fake_record(&fake, WIRE_JOIN, 2).attempt;
	assert_int_not_equal(first, 0);
	assert_int_not_equal(second, 0);
	assert_int_not_equal(second, first);
	for (unsigned n = 3; n <= 4; n++) {
		next_connection(&fake, n < 4);
		struct fake_record again = join_of_later_connection(&fake, n);
		assert_int_equal(again.attempt, second);
		assert_int_equal(again.serial, 100);
	}
	await_link(session);
	next_connection(&fake, false);
	struct fake_record answered = fake_record(&fake, WIRE_JOIN, 5);
	assert_int_not_equal(answered.attempt, second);
	assert_int_equal(answered.serial, 101);
	await_link(session);
	rkv_close(client);
	fake_stop(&fake);
}

/* Nobody waits any more, but the server may yet make the session. */
static void
test_closed_while_joining(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = join_in_vain(&fake);
	uint32_t attempt = fake_record(&fake, WIRE_JOIN, 1).attempt;
	for (unsigned n = 2; n <= 3; n++) { /* the first one's answer is lost again */
		next_connection(&fake, n < 3);
		struct fake_record again = join_of_later_connection(&fake, n);
		assert_int_equal(again.attempt, attempt);
		assert_int_equal(again.serial, 0);
	}
	assert_int_equal(fake_record(&fake, WIRE_LEAVE, 1).serial, 100);
	await_pong(client);
	assert_int_equal(fake_count(&fake, WIRE_JOIN), 3);
	rkv_close(client);
	fake_stop(&fake);
}

/* The same for a session that was there before, and is closed while no connection is up. */
static void
test_closed_after_joining(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	struct rkv_session *session = open_session(client);
	next_connection(&fake, true);
	uint32_t attempt = fake_record(&fake, WIRE_JOIN, 2).attempt;
	set_greeting(&fake, greet_not, 0);
	next_connection(&fake, false);
	fake_await_connection(&fake, 3);
	rkv_session_close(session);
	set_greeting(&fake, NULL, 0);
	struct fake_record again = fake_record(&fake, WIRE_JOIN, 3);
	assert_int_equal(again.attempt, attempt);
	assert_int_equal(again.serial, 100);
	assert_int_equal(fake_record(&fake, WIRE_LEAVE, 1).serial, 101);
	await_pong(client);
	assert_int_equal(fake_count(&fake, WIRE_JOIN), 3);
	rkv_close(client);
	fake_stop(&fake);
}

/* A server that answers wrongly after the loss is tried again; that is told once. */
static void
test_reconnect_refused(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	set_greeting(&fake, greet_with_refusal, ERR_PERM);
	fake_hang_up(&fake);
	fake_await_connection(&fake, 4);
	set_greeting(&fake, NULL, 0);
	await_pong(client);
	assert_int_equal(count_logged("1 cannot reconnect yet"), 1);
	assert_true(count_logged("3 cannot reconnect yet") >= 1);
	rkv_close(client);
	fake_stop(&fake);
}

/* Sessions have their memory registered with the fabric that the client was opened with. */
static void
test_reconnect_to_another_fabric(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	set_greeting(&fake, greet_with_offer_fault, VERBS);
	fake_hang_up(&fake);
	fake_await_connection(&fake, 4);
	set_greeting(&fake, NULL, 0);
	await_pong(client);
	/* Each attempt to which the server came in time. */
	assert_int_equal(count_logged("come back with fabric verbs, and this client was opened "
				      "with shm"),
			 count_logged("cannot reconnect yet") - count_logged(" in time"));
	assert_int_equal(count_logged("1 cannot reconnect yet"), 1);
	rkv_close(client);
	fake_stop(&fake);
}

/* A healing session is asked for again; the application hears nothing of it. */
static void
test_rejoin_refused(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	struct rkv_session *session = open_session(client);
	pthread_mutex_lock(&fake.mutex);
	fake.refuse[WIRE_JOIN] = ERR_NOMEM;
	pthread_mutex_unlock(&fake.mutex);
	fake_hang_up(&fake);
	fake_record(&fake, WIRE_JOIN, 4);
	pthread_mutex_lock(&fake.mutex);
	fake.refuse[WIRE_JOIN] = 0;
	pthread_mutex_unlock(&fake.mutex);
	await_link(session);
	rkv_close(client);
	fake_stop(&fake);
}

/* ---- Calls ---- */

static void
test_ping_and_stats(void **state)
{
	(void)state;
	struct fake fake;
	char text[64];
	size_t len = 0;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	assert_int_equal(rkv_ping(client), RKV_OK);
	assert_int_equal(rkv_server_stats(client, text, sizeof(text), &len), RKV_OK);
	assert_string_equal(text, "first 1\nsecond 2\n");
	assert_int_equal(len, strlen(text));
	assert_int_equal(rkv_server_stats(client, text, 6, &len), RKV_OK);
	assert_string_equal(text, "first");
	assert_int_equal(len, 17);
	assert_int_equal(rkv_server_stats(client, text, 1, NULL), RKV_OK);
	assert_string_equal(text, "");
	assert_int_equal(rkv_server_stats(client, NULL, 0, &len), RKV_OK);
	assert_int_equal(len, 17);
	assert_int_equal(rkv_server_stats(client, NULL, 1, NULL), RKV_E_INVALID);
	rkv_close(client);
	fake_stop(&fake);
}

static void *
ping_often(void *arg)
{
	uintptr_t n_failed = 0;
	for (int i = 0; i < 200; i++)
		n_failed += rkv_ping(arg) != RKV_OK;
	return (void *)n_failed;
}

static void
test_calls_at_once(void **state)
{
	(void)state;
	struct fake fake;
	pthread_t thread[4];
	void *n_failed;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, ping_often, client), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(thread[i], &n_failed), 0);
		assert_null(n_failed);
	}
	assert_int_equal(fake.n_connections, 1);
	rkv_close(client);
	fake_stop(&fake);
}

static void
test_call_unanswered(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	fake.mute[WIRE_PING] = true;
	struct rkv_client *client = open_client(fake.address);
	hurry(client, 200);
	assert_int_equal(rkv_ping(client), RKV_E_TIMEOUT);
	struct fake_record ping = fake_record(&fake, WIRE_PING, 1);
	struct wire_header pong = fake_header(WIRE_PONG, sizeof(pong), ping.request);
	/* Too late, twice, and for nobody: no harm. */
	fake_send(&fake, &pong, sizeof(pong));
	fake_send(&fake, &pong, sizeof(pong));
	fake_await_keepalives(&fake, 2);
	assert_int_equal(fake.n_connections, 1);
	rkv_close(client);
	fake_stop(&fake);
}

static void *
hang_up_at_ping(void *arg)
{
	struct fake *fake = arg;
	while (fake_count(fake, WIRE_PING) == 0)
		proc_pause(INT64_MAX);
	fake_hang_up(fake);
	return NULL;
}

static void
test_call_loses_connection(void **state)
{
	(void)state;
	struct fake fake;
	pthread_t thread;
	start_fake(&fake, NULL, 0);
	fake.mute[WIRE_PING] = true;
	struct rkv_client *client = open_client(fake.address);
	assert_int_equal(pthread_create(&thread, NULL, hang_up_at_ping, &fake), 0);
	assert_int_equal(rkv_ping(client), RKV_E_CONN);
	assert_int_equal(pthread_join(thread, NULL), 0);
	rkv_close(client);
	fake_stop(&fake);
}

/* ---- The process around it ---- */

static unsigned
count_descriptors(unsigned *ret_n_inherited)
{
	unsigned n = 0, n_inherited = 0;
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		int flags = fcntl(atoi(entry->d_name), F_GETFD);
		if (entry->d_name[0] == '.' || flags < 0)
			continue;
		n++;
		n_inherited += (flags & FD_CLOEXEC) == 0;
	}
	closedir(dir);
	if (ret_n_inherited)
		*ret_n_inherited = n_inherited;
	return n;
}

static void
test_open_close_100(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	unsigned n_before = count_descriptors(NULL);
	for (int i = 0; i < 100; i++) {
		struct rkv_client *client = open_client(fake.address);
		open_session(client);
		rkv_close(client);
	}
	fake_record(&fake, WIRE_LEAVE, 100);
	/* The server's side of the last one may still be closing. */
	int64_t deadline_ns = proc_deadline(WAIT_MS);
	while (count_descriptors(NULL) > n_before)
		assert_true(proc_pause(deadline_ns));
	fake_stop(&fake);
}

static void
test_descriptors_are_not_inherited(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	unsigned n_before, n_after;
	fake_await_connection(&fake, 0);
	count_descriptors(&n_before);
	struct rkv_client *client = open_client(fake.address);
	struct rkv_session *session = open_session(client);
	fake_await_keepalives(&fake, 1);
	count_descriptors(&n_after);
	assert_int_equal(n_after, n_before); /* the server's ends are not inherited either */
	rkv_session_close(session);
	rkv_close(client);
	fake_stop(&fake);
}

/* SigBlk of the control thread, from /proc; 0 if there is no such thread. */
static uint64_t
signals_blocked_in(const char *thread_name)
{
	uint64_t blocked = 0;
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		char path[300], line[256];
		bool found = false;
		snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
		FILE *file = fopen(path, "re");
		while (file && fgets(line, sizeof(line), file)) {
			if (strncmp(line, "Name:", 5) == 0)
				found = strstr(line, thread_name) != NULL;
			if (found && strncmp(line, "SigBlk:", 7) == 0)
				blocked = strtoull(line + 7, NULL, 16);
		}
		if (file)
			fclose(file);
	}
	closedir(dir);
	return blocked;
}

static void
test_signals(void **state)
{
	(void)state;
	struct fake fake;
	sigset_t before, after;
	start_fake(&fake, NULL, 0);
	pthread_sigmask(SIG_SETMASK, NULL, &before);
	struct rkv_client *client = open_client(fake.address);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	for (int i = 1; i < NSIG; i++)
		assert_int_equal(sigismember(&before, i), sigismember(&after, i));
	uint64_t blocked = signals_blocked_in("rkv-control");
	static const int some[] = {SIGINT, SIGTERM, SIGUSR1, SIGALRM, SIGCHLD, SIGPIPE, SIGPROF};
	for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++)
		assert_true(blocked >> (some[i] - 1) & 1);
	rkv_close(client);
	fake_stop(&fake);
}

/* In the child: the number of calls that are not refused as they should. */
static int
calls_after_fork(struct rkv_client *client, struct rkv_session *session)
{
	struct rkv_limit_values limits;
	struct rkv_stats_values stats;
	struct rkv_session *other;
	static char buf[64];
	int n = 0;
	alarm(WAIT_MS / 1000); /* a call that hangs ends the child */
	n += rkv_session_open(client, &other) != RKV_E_INVALID;
	n += rkv_limits(client, &limits) != RKV_E_INVALID;
	n += rkv_stats(session, &stats) != RKV_E_INVALID;
	n += rkv_server_stats(client, buf, sizeof(buf), NULL) != RKV_E_INVALID;
	n += rkv_ping(client) != RKV_E_INVALID;
	n += rkv_buffer_register(client, buf, sizeof(buf)) != RKV_E_INVALID;
	n += rkv_buffer_unregister(client, buf) != RKV_E_INVALID;
	rkv_session_close(session);
	rkv_close(client);
	return n;
}

static void
test_fork(void **state)
{
	(void)state;
	struct fake fake;
	int status;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	struct rkv_session *session = open_session(client);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(calls_after_fork(client, session));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	/* The parent goes on as if nothing had happened. */
	assert_int_equal(rkv_ping(client), RKV_OK);
	assert_int_equal(fake_count(&fake, WIRE_LEAVE), 0);
	rkv_session_close(session);
	fake_record(&fake, WIRE_LEAVE, 1);
	rkv_close(client);
	fake_stop(&fake);
}

/* Closing does not wait for a server that says nothing. */
static void
test_close_while_lost(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	open_session(client);
	fake_stop(&fake); /* closes its port too */
	rkv_close(client);
}

static void *
open_and_close(void *arg)
{
	for (int i = 0; i < 20; i++) {
		struct rkv_session *session;
		if (rkv_session_open(arg, &session) != RKV_OK)
			return arg;
		rkv_session_close(session);
	}
	return NULL;
}

/* Threads open and close sessions while the connection comes and goes. */
static void
test_sessions_while_losing(void **state)
{
	(void)state;
	struct fake fake;
	pthread_t thread[3];
	void *failed;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, open_and_close, client), 0);
	for (unsigned i = 1; i <= 5; i++) {
		fake_await_keepalives(&fake, 1);
		fake_hang_up(&fake);
		fake_await_connection(&fake, i + 1);
	}
	for (int i = 0; i < 3; i++) {
		assert_int_equal(pthread_join(thread[i], &failed), 0);
		if (failed)
			fail_msg("a session could not be opened; %s", logged.text);
	}
	assert_int_equal(client->n_sessions, 0);
	rkv_close(client);
	fake_stop(&fake);
}

/* ---- Registered memory, limits ---- */

static void
test_buffers(void **state)
{
	(void)state;
	struct fake fake;
	static char memory[4096];
	uint32_t key;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	assert_false(client_find_buffer(client, memory, 1, &key));
	assert_int_equal(rkv_buffer_register(client, memory, 1024), RKV_OK);
	assert_int_equal(rkv_buffer_register(client, memory + 2048, 1024), RKV_OK);
	assert_int_equal(rkv_buffer_register(client, memory + 1023, 1), RKV_E_INVALID);
	assert_int_equal(rkv_buffer_register(client, memory, 4096), RKV_E_INVALID);
	assert_int_equal(rkv_buffer_register(client, memory + 1024, 0), RKV_E_INVALID);
	assert_int_equal(rkv_buffer_register(client, memory + 1024, SIZE_MAX), RKV_E_INVALID);
	assert_int_equal(rkv_buffer_register(client, NULL, 1), RKV_E_INVALID);
	assert_true(client_find_buffer(client, memory, 1024, &key));
	assert_true(client_find_buffer(client, memory + 3071, 1, &key));
	assert_false(client_find_buffer(client, memory, 1025, &key));
	assert_false(client_find_buffer(client, memory + 1024, 1, &key));
	assert_false(client_find_buffer(client, memory + 2047, 2, &key));
	assert_int_equal(rkv_buffer_unregister(client, memory + 1), RKV_E_INVALID);
	assert_int_equal(rkv_buffer_unregister(client, memory), RKV_OK);
	assert_int_equal(rkv_buffer_unregister(client, memory), RKV_E_INVALID);
	assert_false(client_find_buffer(client, memory, 1, &key));
	assert_true(client_find_buffer(client, memory + 2048, 1024, &key));
	rkv_close(client);
	fake_stop(&fake);
}

/* By definition, over all keys. */
static uint64_t
buffer_size_by_trial(uint64_t value_len)
{
	uint64_t most = 0;
	for (uint32_t key_len = 1; key_len <= LIMIT_KEY_MAX; key_len++) {
		uint64_t granules = block_granules(block_len(key_len, value_len));
		if (granules > LIMIT_CHUNK_MAX / LIMIT_GRANULE)
			break;
		uint64_t read_len =
			(uint64_t)slot_size_granules(slot_size_code((uint32_t)granules)) *
			LIMIT_GRANULE;
		if (read_len - block_len(key_len, 0) > most)
			most = read_len - block_len(key_len, 0);
	}
	return most;
}

static void
test_buffer_size(void **state)
{
	(void)state;
	const uint64_t most = LIMIT_CHUNK_MAX - block_len(1, 0);
	for (uint64_t len = 0; len < 20000; len += 13)
		assert_int_equal(rkv_buffer_size(len), buffer_size_by_trial(len));
	for (uint64_t len = 20000; len < most; len += len / 7)
		assert_int_equal(rkv_buffer_size(len), buffer_size_by_trial(len));
	for (uint64_t len = most - 2000; len <= most; len++)
		assert_int_equal(rkv_buffer_size(len), buffer_size_by_trial(len));
	assert_true(rkv_buffer_size(most + 1) == SIZE_MAX);
	assert_true(rkv_buffer_size(SIZE_MAX) == SIZE_MAX);
}

static void
test_limits(void **state)
{
	(void)state;
	struct fake fake;
	struct rkv_limit_values l;
	start_fake(&fake, NULL, 0);
	struct rkv_client *client = open_client(fake.address);
	assert_int_equal(rkv_limits(client, &l), RKV_OK);
	assert_int_equal(l.key_len_min, 1);
	assert_int_equal(l.key_len_max, LIMIT_KEY_MAX);
	assert_int_equal(l.block_len_max, LIMIT_CHUNK_DEFAULT_MIN);
	assert_int_equal(l.value_len_max, LIMIT_CHUNK_DEFAULT_MIN - 40 - LIMIT_KEY_MAX);
	assert_int_equal(l.depth_max, LIMIT_DEPTH_MAX);
	rkv_close(client);
	fake_stop(&fake);
}

/* ---- kv-server ---- */

static void
test_kv_server(void **state)
{
	(void)state;
	char text[16 << 10], listen[32];
	snprintf(listen, sizeof(listen), "127.0.0.1:%u", proc_free_port());
	struct server *server = server_start("--pool-size", "16M", "--listen", listen, NULL);
	struct rkv_client *client = open_client(server->address);
	struct rkv_session *session = open_session(client);
	uint64_t epoch = session->link.epoch;
	uint64_t version;
	assert_int_equal(rkv_put(session, "key", 3, "of the first server", 19, NULL, &version),
			 RKV_OK);
	assert_value(session, "of the first server");
	assert_int_equal(rkv_ping(client), RKV_OK);
	assert_int_equal(rkv_server_stats(client, text, sizeof(text), NULL), RKV_OK);
	assert_non_null(strchr(text, '\n'));
	server_kill(server);
	server = server_start("--pool-size", "16M", "--listen", listen, NULL);
	await_pong(client);
	await_link(session);
	assert_int_not_equal(session->link.epoch, epoch);
	assert_int_equal(atomic_load(&client->n_reconnects), 1);
	assert_int_equal(rkv_get(session, "key", 3, text, sizeof(text), NULL), RKV_NOT_FOUND);
	put(session, "of the second");
	/* The first write of each life: yet not the same version. */
	assert_int_equal(rkv_cas(session, "key", 3, "stale", 5, version, NULL, NULL), RKV_MISMATCH);
	assert_value(session, "of the second");
	rkv_session_close(session);
	rkv_close(client);
	assert_int_equal(server_stop(server), 0);
}

/* A server that is stopped stands for one that hangs: after some seconds its client gives it up. */
static void
test_silence(void **state)
{
	(void)state;
	struct fake fake;
	start_fake(&fake, NULL, 0);
	fake.mute[WIRE_KEEPALIVE] = true;
	struct rkv_client *client = open_client(fake.address);
	fake_await_connection(&fake, 2);
	assert_logged("has not answered for 10 s");
	rkv_close(client);
	fake_stop(&fake);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_arguments),
		cmocka_unit_test(test_servers),
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_nobody_listens),
		cmocka_unit_test(test_silent_server),
		cmocka_unit_test(test_closed_in_hello),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_header_faults),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_offer_faults),
		cmocka_unit_test(test_superblock_faults),
		cmocka_unit_test(test_hello_refused),
		cmocka_unit_test(test_keepalives),
		cmocka_unit_test(test_newest_never_falls),
		cmocka_unit_test(test_impossible_answers),
		cmocka_unit_test(test_session_comes_and_goes),
		cmocka_unit_test(test_announcement),
		cmocka_unit_test(test_busy_announcement),
		cmocka_unit_test(test_session_refused),
		cmocka_unit_test(test_idle_marks_are_flushed),
		cmocka_unit_test(test_session_too_late),
		cmocka_unit_test(test_sessions_limit),
		cmocka_unit_test(test_relink),
		cmocka_unit_test(test_renew),
		cmocka_unit_test(test_idle_session_gives_back),
		cmocka_unit_test(test_links_in_vain),
		cmocka_unit_test(test_connection_lost),
		cmocka_unit_test(test_idle_session_heals),
		cmocka_unit_test(test_idle_session_is_cut_off),
		cmocka_unit_test(test_busy_session_is_severed),
		cmocka_unit_test(test_another_epoch),
		cmocka_unit_test(test_closed_while_lost),
		cmocka_unit_test(test_join_unanswered),
		cmocka_unit_test(test_closed_while_joining),
		cmocka_unit_test(test_closed_after_joining),
		cmocka_unit_test(test_reconnect_refused),
		cmocka_unit_test(test_reconnect_to_another_fabric),
		cmocka_unit_test(test_rejoin_refused),
		cmocka_unit_test(test_ping_and_stats),
		cmocka_unit_test(test_calls_at_once),
		cmocka_unit_test(test_call_unanswered),
		cmocka_unit_test(test_call_loses_connection),
		cmocka_unit_test(test_open_close_100),
		cmocka_unit_test(test_descriptors_are_not_inherited),
		cmocka_unit_test(test_signals),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_close_while_lost),
		cmocka_unit_test(test_sessions_while_losing),
		cmocka_unit_test(test_buffers),
		cmocka_unit_test(test_buffer_size),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_kv_server),
		cmocka_unit_test(test_silence),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
