/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Clients that are stopped in the middle of a PUT, each at another place in it, and continued much
 * later: no value is damaged, whatever others, the scrubber and the next server did meanwhile.
 *
 * A stopped client stops itself, by a hook in front of its endpoint: with its block written and not
 * published, its tentative word in a slot, its old block replaced and not marked. Others write the
 * same keys meanwhile, go through the memory, and write keys of their own, of which each knows
 * exactly what must be there.
 *
 * RKV_STOP_SECONDS=180: for so long they are stopped (0.5). Runs by itself in the build whose
 * stamps pass soon (TINY=tags): there that is many of T_WORD. timeout: 2000
 */
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/session.h"
#include "proto/layout.h"
#include "tests/proc/account.h"
#include "tests/proc/load.h"
#include "tests/proc/proc.h"

#define N_CHURNERS 3u
#define N_OWN 32u   /* keys of each */
#define N_SHARED 8u /* keys that all write */
#define TRIES_MAX 10000u
#define BURST 20u

enum place {
	BEFORE_WRITE,  /* of an UPDATE: the old word is known */
	BEFORE_CAS,    /* of an UPDATE: the block is written */
	BEFORE_INSERT, /* the same of an INSERT: no word is there yet */
	BEFORE_COMMIT, /* a tentative word is in the slot */
	BEFORE_MARK,   /* of the block that an UPDATE has replaced */
	N_PLACES
};

static const char *const place_names[N_PLACES] = {"before the WRITE", "before the CAS",
						  "before the INSERT's CAS", "before the commit",
						  "before the mark"};

/* What is there under a key that only one process writes. */
struct own {
	uint32_t id;    /* of the value; 0: none */
	uint32_t other; /* what may be there instead, as an outcome is not known; else the same */
};

static struct shared {
	_Atomic bool stop;
	_Atomic uint64_t n_bursts[N_CHURNERS];
	struct own own[N_CHURNERS][N_OWN];
	int status[N_PLACES];
	char address[32];
} * shared;

static struct server *server;
static struct proc *next_server;
static char pool_path[128];

static double
stop_seconds(void)
{
	const char *text = getenv("RKV_STOP_SECONDS");
	return text ? strtod(text, NULL) : 0.5;
}

static bool
may_be_lost(int status)
{
	return status == RKV_E_CONN || status == RKV_E_TIMEOUT || status == RKV_E_MAYBE ||
	       status == RKV_AGAIN;
}

static void
open_session(struct rkv_client **ret_client, struct rkv_session **ret_session)
{
	load_require(rkv_open(shared->address, NULL, ret_client) == RKV_OK);
	load_require(rkv_session_open(*ret_client, ret_session) == RKV_OK);
}

/* ---- Clients that are stopped ---- */

static struct stopper {
	enum place place;
	bool has_stopped;
	struct fab_driver hooked;
	const struct fab_driver *driver;
} stopper;

static void
stop_here(void)
{
	stopper.has_stopped = true;
	kill(getpid(), SIGSTOP);
}

/* Does this batch publish a block, by a CAS to a word in this state? */
static bool
publishes(const struct fab_op *ops, unsigned n, enum slot_state state)
{
	return n > 1 && ops[0].kind == FAB_WRITE && ops[1].kind == FAB_CAS &&
	       slot_state(ops[1].swap) == state;
}

static bool
commits(const struct fab_op *ops)
{
	return ops[0].kind == FAB_CAS && slot_state(ops[0].expect) == SLOT_TENTATIVE &&
	       slot_state(ops[0].swap) == SLOT_COMMITTED;
}

static bool
is_the_place(const struct fab_op *ops, unsigned n)
{
	switch (stopper.place) {
	case BEFORE_WRITE:
	case BEFORE_CAS:
		return publishes(ops, n, SLOT_COMMITTED);
	case BEFORE_INSERT:
		return publishes(ops, n, SLOT_TENTATIVE);
	case BEFORE_COMMIT:
		return commits(ops);
	case BEFORE_MARK:
	case N_PLACES:
		break;
	}
	return false;
}

/* The block of the batch is sent ahead, on the same connection. */
static int
post(struct fab_endpoint *ep, const struct fab_op *ops, unsigned n, void *cookie)
{
	unsigned n_sent = 0;
	if (!stopper.has_stopped && is_the_place(ops, n)) {
		if (stopper.place == BEFORE_CAS || stopper.place == BEFORE_INSERT) {
			load_require(stopper.driver->post_quiet(ep, ops, 1) == 0);
			n_sent = 1;
		}
		stop_here();
	}
	return stopper.driver->post(ep, ops + n_sent, n - n_sent, cookie);
}

static int
post_quiet(struct fab_endpoint *ep, const struct fab_op *ops, unsigned n)
{
	bool is_mark = ops[0].kind == FAB_WRITE && ops[0].piece[0].len == 1;
	if (!stopper.has_stopped && stopper.place == BEFORE_MARK && is_mark)
		stop_here();
	return stopper.driver->post_quiet(ep, ops, n);
}

static void
hook(struct rkv_session *session)
{
	struct fab_endpoint *ep = session->link.ep;
	stopper.driver = ep->driver;
	stopper.hooked = *ep->driver;
	stopper.hooked.post = post;
	stopper.hooked.post_quiet = post_quiet;
	ep->driver = &stopper.hooked;
}

/* PUTs until one has been stopped on its way; returns what became of that. */
static int
put_until_stopped(struct rkv_session *session, struct load *load)
{
	static unsigned char value[LOAD_VALUE_MAX];
	bool inserts = stopper.place == BEFORE_INSERT || stopper.place == BEFORE_COMMIT;
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	for (unsigned i = 0; i < TRIES_MAX; i++) {
		unsigned key = (unsigned)(load_random(&load->random) % N_SHARED);
		uint32_t id = load_id(load->writer, ++load->serial);
		const struct rkv_put_options options = {.user_flags = id};
		char text[LOAD_KEY_TEXT];
		size_t key_len = load_key(key, text);
		load_fill(key, id, value);
		if (inserts)
			load_require(rkv_delete(session, text, key_len) >= 0);
		int rc = rkv_put(session, text, key_len, value, load_len(id), &options, NULL);
		if (stopper.has_stopped)
			return rc;
		load_require(rc == RKV_OK || (rc == RKV_AGAIN && proc_pause(deadline)));
	}
	load_die(__FILE__, __LINE__, "no PUT comes to that place");
}

static int
run_stopper(void *arg)
{
	struct rkv_client *client;
	struct load load = {.n_keys = N_SHARED, .may_fail = true};
	stopper.place = (enum place)(uintptr_t)arg;
	load.writer = 100 + (unsigned)stopper.place;
	load.random = load.writer;
	open_session(&client, &load.session);
	hook(load.session);
	int rc = put_until_stopped(load.session, &load);
	shared->status[stopper.place] = rc;
	load_require(rc == RKV_OK || may_be_lost(rc));
	/* It goes on with what it had: chunks, cached words, a serial. */
	load_mix(&load, 500);
	rkv_close(client);
	return load.n_bad != 0;
}

static pid_t
start_stopper(enum place place)
{
	int status = 0;
	pid_t pid = load_fork(run_stopper, (void *)(uintptr_t)place);
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	while (waitpid(pid, &status, WUNTRACED | WNOHANG) == 0)
		if (!proc_pause(deadline))
			fail_msg("nobody stops %s", place_names[place]);
	if (!WIFSTOPPED(status))
		fail_msg("it ended instead of stopping %s", place_names[place]);
	return pid;
}

/* ---- Clients that go on ---- */

struct churner {
	unsigned number;
	struct rkv_session *session;
	struct own *own;
	struct load load; /* of the shared keys */
};

/* No other process has keys or values like these. */
static unsigned
own_key(unsigned churner, unsigned i)
{
	return 1000 + churner * N_OWN + i;
}

/* Reads one of them; what is there becomes certain. Returns whether it is there, or a failure. */
static int
look_at_own(struct rkv_session *session, unsigned key, struct own *own)
{
	static unsigned char got[LOAD_VALUE_MAX];
	char text[LOAD_KEY_TEXT];
	struct rkv_item item = {0};
	int rc = rkv_get(session, text, load_key(key, text), got, sizeof(got), &item);
	if (may_be_lost(rc))
		return rc;
	uint32_t id = rc == RKV_OK ? item.user_flags : 0;
	load_require(rc == RKV_OK || rc == RKV_NOT_FOUND);
	if (id != own->id && id != own->other)
		fprintf(stderr, "key %u holds %08x and not %08x or %08x\n", key, id, own->id,
			own->other);
	load_require(id == own->id || id == own->other);
	load_require(id == 0 || load_matches(key, id, got, item.value_len));
	own->id = own->other = id;
	return id != 0;
}

static void
change_own(struct churner *c, unsigned key, struct own *own)
{
	static unsigned char value[LOAD_VALUE_MAX];
	char text[LOAD_KEY_TEXT];
	size_t key_len = load_key(key, text);
	uint32_t id = 0;
	int rc;
	if (load_random(&c->load.random) % 4 == 0) {
		rc = rkv_delete(c->session, text, key_len);
		load_require(rc != RKV_NOT_FOUND || own->id == 0);
	} else {
		id = load_id(c->load.writer, ++c->load.serial);
		const struct rkv_put_options options = {.user_flags = id};
		load_fill(key, id, value);
		rc = rkv_put(c->session, text, key_len, value, load_len(id), &options, NULL);
	}
	if (rc == RKV_OK)
		own->id = own->other = id;
	else if (rc != RKV_AGAIN && may_be_lost(rc))
		own->other = id;
	else
		load_require(rc == RKV_AGAIN || rc == RKV_NOT_FOUND);
}

static int
run_churner(void *arg)
{
	unsigned number = (unsigned)(uintptr_t)arg;
	struct rkv_client *client;
	struct churner c = {
		.own = shared->own[number],
		.load = {.n_keys = N_SHARED,
			 .writer = 1 + number,
			 .random = 1 + number,
			 .may_fail = true},
	};
	open_session(&client, &c.session);
	c.load.session = c.session;
	while (!atomic_load(&shared->stop) && !c.load.n_bad) {
		for (unsigned k = 0; k < BURST; k++) {
			unsigned i = (unsigned)(load_random(&c.load.random) % N_OWN);
			unsigned key = own_key(number, i);
			if (look_at_own(c.session, key, &c.own[i]) >= 0)
				change_own(&c, key, &c.own[i]);
		}
		load_mix(&c.load, BURST);
		atomic_fetch_add(&shared->n_bursts[number], 1);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	rkv_close(client);
	return c.load.n_bad != 0;
}

static void
await_bursts(unsigned n)
{
	int64_t deadline = proc_deadline(2 * PROC_WAIT_MS);
	for (unsigned i = 0; i < N_CHURNERS; i++) {
		uint64_t from = atomic_load(&shared->n_bursts[i]);
		while (atomic_load(&shared->n_bursts[i]) < from + n)
			if (!proc_pause(deadline))
				fail_msg("client %u gets nothing done", i);
	}
}

/* ---- The servers ---- */

static int
setup(const char *pool_file, uint16_t port)
{
	char listen[32];
	snprintf(listen, sizeof(listen), "127.0.0.1:%u", port);
	const char *args[] = {"--listen", listen,        "--pool-size", "64M", "--scrub-rate",
			      "4096",     "--pool-file", pool_file,     NULL};
	if (!pool_file)
		args[6] = NULL;
	server = server_start_with(args, NULL);
	shared = load_share(sizeof(*shared));
	snprintf(shared->address, sizeof(shared->address), "127.0.0.1:%u", server->port);
	return 0;
}

/* The server is killed, and the next one waits for clients that are stopped. */
static void
replace_server(const char *pool_file)
{
	const char *args[] = {"--listen",     shared->address, "--pool-size", "64M",
			      "--scrub-rate", "4096",          "--pool-file", pool_file,
			      "--fabric",     "soft",          NULL};
	server_kill(server);
	server = NULL;
	next_server = proc_start("kv-server", args, NULL);
	if (!proc_wait_text(next_server, PROC_ERR, "waits for process", PROC_WAIT_MS))
		fail_msg("it does not wait: %s", proc_text(next_server, PROC_ERR, NULL));
}

static void
await_next_server(void)
{
	if (!proc_wait_text(next_server, PROC_OUT, "ready on ", 2 * PROC_WAIT_MS))
		fail_msg("it does not get ready: %s", proc_text(next_server, PROC_ERR, NULL));
}

static int
stop_server(void)
{
	int code;
	if (server) {
		code = server_stop(server);
	} else {
		proc_signal(next_server, SIGTERM);
		code = proc_wait(next_server, PROC_WAIT_MS);
		proc_free(next_server);
	}
	server = NULL;
	next_server = NULL;
	load_unshare(shared, sizeof(*shared));
	return code;
}

/* ---- The story ---- */

/* All values are what was written, and each byte is accounted for. */
static void
look_at_what_is_left(void)
{
	static unsigned char got[LOAD_VALUE_MAX];
	struct rkv_client *client;
	struct rkv_session *session;
	struct rkv_item item;
	char text[LOAD_KEY_TEXT];
	uint64_t n_live = 0;
	open_session(&client, &session);
	for (unsigned c = 0; c < N_CHURNERS; c++)
		for (unsigned i = 0; i < N_OWN; i++) {
			int rc = look_at_own(session, own_key(c, i), &shared->own[c][i]);
			assert_true(rc >= 0);
			n_live += (unsigned)rc;
		}
	for (unsigned i = 0; i < N_SHARED; i++) {
		int rc = rkv_get(session, text, load_key(i, text), got, sizeof(got), &item);
		assert_true(rc == RKV_OK || rc == RKV_NOT_FOUND);
		if (rc == RKV_OK)
			assert_true(load_matches(i, item.user_flags, got, item.value_len));
		n_live += rc == RKV_OK;
	}
	rkv_session_close(session);
	account_settles(client, n_live);
	rkv_close(client);
}

/* pool_file: NULL, or the server is replaced by another meanwhile. */
static void
stop_and_continue(const char *pool_file)
{
	pid_t churners[N_CHURNERS], stoppers[N_PLACES];
	double seconds = stop_seconds();
	for (unsigned i = 0; i < N_CHURNERS; i++)
		churners[i] = load_fork(run_churner, (void *)(uintptr_t)i);
	await_bursts(5);
	for (unsigned i = 0; i < N_PLACES; i++)
		stoppers[i] = start_stopper((enum place)i);
	if (pool_file)
		replace_server(pool_file);
	nanosleep(&(struct timespec){.tv_sec = (time_t)seconds,
				     .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)},
		  NULL);
	if (!pool_file)
		await_bursts(1);
	for (unsigned i = 0; i < N_PLACES; i++)
		kill(stoppers[i], SIGCONT);
	if (pool_file)
		await_next_server();
	for (unsigned i = 0; i < N_PLACES; i++) {
		assert_int_equal(load_reap(stoppers[i], 2 * PROC_WAIT_MS), 0);
		printf("# stopped for %g s %s: %s\n", seconds, place_names[i],
		       rkv_strerror(shared->status[i]));
	}
	await_bursts(5);
	atomic_store(&shared->stop, true);
	for (unsigned i = 0; i < N_CHURNERS; i++) {
		assert_int_equal(load_reap(churners[i], PROC_WAIT_MS), 0);
		printf("# client %u: %" PRIu64 " times %u operations\n", i,
		       atomic_load(&shared->n_bursts[i]), 3 * BURST);
	}
	look_at_what_is_left();
	assert_int_equal(stop_server(), 0);
}

static void
over_shared_memory(void **state)
{
	(void)state;
	setup(NULL, 0);
	stop_and_continue(NULL);
}

static void
over_tcp(void **state)
{
	(void)state;
	if (getenv("RKV_SERVER_ARGS"))
		skip();
	setenv("RKV_SERVER_ARGS", "--fabric tcp", 1);
	setup(NULL, 0);
	stop_and_continue(NULL);
}

static void
while_the_server_is_replaced(void **state)
{
	const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
	(void)state;
	if (getenv("RKV_SERVER_ARGS"))
		skip();
	snprintf(pool_path, sizeof(pool_path), "%s/rkv-test-%d", folder, (int)getpid());
	setup(pool_path, proc_free_port());
	stop_and_continue(pool_path);
}

static int
remove_pool(void **state)
{
	(void)state;
	unlink(pool_path);
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(over_shared_memory),
		cmocka_unit_test(over_tcp),
		cmocka_unit_test_teardown(while_the_server_is_replaced, remove_pool),
	};
	int timeout_ms = (int)(stop_seconds() * 1000) + 10 * PROC_WAIT_MS;
	return load_each_alone(tests, sizeof(tests) / sizeof(tests[0]), timeout_ms);
}
