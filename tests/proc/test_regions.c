/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server with several regions, over shm and over tcp: each tenant has one, and meets nothing of
 * another's, whatever tokens, R_Keys and session numbers it says; what happens in one region
 * (values, a pool that is full, a client that dies, fsck, snapshots) does not show in another; and
 * quotas of tenants.
 */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/session.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/fabric_verbs_internal.h"
#include "common/net.h"
#include "tests/proc/load.h"
#include "tests/proc/login.h"

#define RED "1212121212121212121212121212121212121212121212121212121212121212"
#define BLUE "3434343434343434343434343434343434343434343434343434343434343434"
#define PLAIN "5656565656565656565656565656565656565656565656565656565656565656"

#define RED_LINE "red admin " RED " region=crimson\n"
#define BLUE_LINE "blue admin " BLUE " region=azure\n"
#define PLAIN_LINE "plain admin " PLAIN "\n"
#define ALL_LINES RED_LINE BLUE_LINE PLAIN_LINE

static struct server *server;

static bool
is_over_tcp(void)
{
	return strcmp(server->fabric, "tcp") == 0;
}

/* ---- A server for each test ---- */

static void
start(void)
{
	const char *const args[] = {
		"--listen",  "127.0.0.1:0",         "--pool-size", "8M",
		"--region",  "crimson:2M",          "--region",    "azure:4M",
		"--tenants", login_path("tenants"), "--pool-file", login_path("pool"),
		NULL};
	server = server_start_with(args, NULL);
}

static int
set_up(void **state)
{
	if (*state)
		setenv("RKV_SERVER_ARGS", *state, 1);
	login_make_files();
	login_write("tenants", 0600, ALL_LINES);
	login_write("red", 0600, RED "\n");
	login_write("blue", 0600, BLUE "\n");
	login_write("plain", 0600, PLAIN "\n");
	start();
	return 0;
}

static int
tear_down(void **state)
{
	(void)state;
	int rc = server ? server_stop(server) : 0;
	server = NULL;
	login_remove_files();
	return rc;
}

/* ---- Clients ---- */

static const char *const tenants[] = {"red", "blue", "plain"};
static const char *const secrets[] = {RED, BLUE, PLAIN};
static const char *const regions[] = {"crimson", "azure", "default"};
enum { N = 3 };

struct user {
	struct rkv_client *client;
	struct rkv_session *session;
};

static struct user
user_of(const char *tenant)
{
	struct user user;
	user.client = login_open(server, tenant, NULL, NULL);
	assert_int_equal(rkv_session_open(user.client, &user.session), RKV_OK);
	return user;
}

static int
put(struct user *user, const char *key, const void *value, size_t len)
{
	return rkv_put(user->session, key, strlen(key), value, len, NULL, NULL);
}

static void
holds(struct user *user, const char *key, const char *value)
{
	char buf[64];
	struct rkv_item item;
	int rc = rkv_get(user->session, key, strlen(key), buf, sizeof(buf), &item);
	assert_int_equal(rc, value ? RKV_OK : RKV_NOT_FOUND);
	if (!value)
		return;
	assert_int_equal(item.value_len, strlen(value));
	assert_memory_equal(buf, value, item.value_len);
}

/* ---- Values ---- */

static void
each_tenant_has_values_of_its_own(void **state)
{
	struct user users[N];
	(void)state;
	for (int i = 0; i < N; i++)
		users[i] = user_of(tenants[i]);
	for (int i = 0; i < N; i++)
		assert_int_equal(put(&users[i], "key", tenants[i], strlen(tenants[i])), RKV_OK);
	assert_int_equal(put(&users[0], "mine", "red's", 5), RKV_OK);
	for (int i = 0; i < N; i++) {
		holds(&users[i], "key", tenants[i]);
		holds(&users[i], "mine", i == 0 ? "red's" : NULL);
	}
	assert_int_equal(rkv_delete(users[1].session, "key", 3), RKV_OK);
	holds(&users[0], "key", "red");
	holds(&users[1], "key", NULL);
	holds(&users[2], "key", "plain");
	for (int i = 0; i < N; i++)
		rkv_close(users[i].client);
}

static void
a_region_that_is_full_bothers_no_other(void **state)
{
	struct user red = user_of("red"), blue = user_of("blue");
	static char value[4000];
	char key[32];
	unsigned n = 0;
	int rc;
	(void)state;
	do {
		snprintf(key, sizeof(key), "fill %u", n);
		rc = put(&red, key, value, sizeof(value));
	} while (rc == RKV_OK && ++n < 2000);
	assert_true(rc == RKV_E_NO_SPACE || rc == RKV_AGAIN);
	assert_in_range(n, 100, 600); /* of 2 MiB */
	for (unsigned i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "blue %u", i);
		assert_int_equal(put(&blue, key, value, sizeof(value)), RKV_OK);
	}
	holds(&blue, "fill 0", NULL);
	rkv_close(red.client);
	rkv_close(blue.client);
}

/* With the same files, all of them are opened again. */
static void
every_region_outlives_the_server(void **state)
{
	struct user users[N];
	(void)state;
	for (int i = 0; i < N; i++) {
		users[i] = user_of(tenants[i]);
		assert_int_equal(put(&users[i], "key", tenants[i], strlen(tenants[i])), RKV_OK);
		rkv_close(users[i].client);
	}
	assert_int_equal(server_stop(server), 0);
	assert_int_equal(access(login_path("pool.crimson"), F_OK), 0);
	assert_int_equal(access(login_path("pool.azure"), F_OK), 0);
	start();
	for (int i = 0; i < N; i++) {
		users[i] = user_of(tenants[i]);
		holds(&users[i], "key", tenants[i]);
		rkv_close(users[i].client);
	}
}

/* ---- Statistics, fsck, snapshots ---- */

static const char *
cli(const char *tenant, const char *word, const char *more)
{
	static struct proc *proc;
	const char *const args[] = {"--server",
				    server->address,
				    "--tenant",
				    tenant,
				    "--secret-file",
				    login_path(tenant),
				    word,
				    more,
				    NULL};
	proc_free(proc);
	proc = proc_run("kv-cli", args, NULL);
	if (proc->exit_code)
		fail_msg("%s", proc_text(proc, PROC_ERR, NULL));
	return proc_text(proc, PROC_OUT, NULL);
}

static void
has_line(const char *text, const char *name, const char *value)
{
	char line[128];
	snprintf(line, sizeof(line), "%s %s\n", name, value);
	if (!strstr(text, line))
		fail_msg("no `%s %s` in: %s", name, value, text);
}

static void
who_asks_is_told_of_its_own_region(void **state)
{
	static const char *const pools[] = {"2097152", "4194304", "8388608"};
	static const char *const n_keys[] = {"1", "2", "3"};
	char key[2] = "a";
	(void)state;
	for (int i = 0; i < N; i++) {
		struct user user = user_of(tenants[i]);
		for (key[0] = 'a'; key[0] <= 'a' + i; key[0]++)
			assert_int_equal(put(&user, key, "x", 1), RKV_OK);
		rkv_close(user.client);
	}
	for (int i = 0; i < N; i++) {
		const char *text = cli(tenants[i], "stats", NULL);
		has_line(text, "region", regions[i]);
		has_line(text, "pool_bytes", pools[i]);
		text = cli(tenants[i], "fsck", NULL);
		has_line(text, "live_blocks", n_keys[i]);
		has_line(text, "sum_bytes", pools[i]);
	}
}

/* An admin writes where nobody else's snapshots are; and a region begins with one of its own. */
static void
snapshots_are_of_one_region(void **state)
{
	char first[160], red[256];
	struct user user = user_of("red");
	(void)state;
	assert_int_equal(put(&user, "key", "red", 3), RKV_OK);
	rkv_close(user.client);
	assert_int_equal(server_stop(server), 0);
	snprintf(first, sizeof(first), "%s", login_path("snapshots"));
	assert_int_equal(mkdir(first, 0700), 0);
	snprintf(red, sizeof(red), "crimson:2M:%s/crimson/s", first);
	const char *const with_directory[] = {"--listen",
					      "127.0.0.1:0",
					      "--pool-size",
					      "1M",
					      "--region",
					      "crimson:2M",
					      "--tenants",
					      login_path("tenants2"),
					      "--snapshot-dir",
					      login_path("snapshots"),
					      "--pool-file",
					      login_path("pool2"),
					      NULL};
	login_write("tenants2", 0600, RED_LINE PLAIN_LINE);
	server = server_start_with(with_directory, NULL);
	user = user_of("red");
	assert_int_equal(put(&user, "key", "red", 3), RKV_OK);
	rkv_close(user.client);
	cli("red", "snapshot", "s");
	cli("plain", "snapshot", "t");
	assert_int_equal(server_stop(server), 0);
	assert_int_equal(access(login_path("snapshots/crimson/s"), R_OK), 0);
	assert_int_equal(access(login_path("snapshots/t"), R_OK), 0);
	assert_int_equal(access(login_path("snapshots/s"), R_OK), -1);
	const char *const with_snapshot[] = {
		"--listen", "127.0.0.1:0", "--pool-size",          "1M", "--region",
		red,        "--tenants",   login_path("tenants2"), NULL};
	server = server_start_with(with_snapshot, NULL);
	user = user_of("red");
	holds(&user, "key", "red");
	rkv_close(user.client);
	user = user_of("plain");
	holds(&user, "key", NULL);
	rkv_close(user.client);
}

/* ---- A client that dies ---- */

static int
put_and_die(void *tenant)
{
	struct rkv_options options;
	struct rkv_client *client;
	struct rkv_session *session;
	login_options(&options, tenant);
	if (rkv_open(server->address, &options, &client) || rkv_session_open(client, &session) ||
	    rkv_put(session, "key", 3, "value", 5, NULL, NULL))
		return 1;
	raise(SIGKILL);
	return 0;
}

static void
who_dies_is_looked_after_in_its_own_region(void **state)
{
	static struct raw red, blue;
	static char tenant[] = "red";
	int status;
	(void)state;
	pid_t pid = load_fork(put_and_die, tenant);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	login(&red, server, "red", RED);
	login(&blue, server, "blue", BLUE);
	assert_true(raw_stat_becomes(&red, "sessions_died", 1));
	assert_true(raw_stat_becomes(&red, "chunks_orphan", 1));
	assert_true(raw_stat_becomes(&red, "scrub_hurried", 1));
	assert_int_equal(raw_stat(&blue, "sessions_joined"), 0);
	assert_int_equal(raw_stat(&blue, "sessions_died"), 0);
	assert_int_equal(raw_stat(&blue, "chunks_orphan"), 0);
	assert_int_equal(raw_stat(&blue, "scrub_hurried"), 0);
	raw_close(&red);
	raw_close(&blue);
}

/* A session that stands still holds back what its own region may use again, and no other's. */
static void
a_session_holds_g_back_in_its_own_region(void **state)
{
	static struct raw red, blue;
	(void)state;
	login(&red, server, "red", RED);
	login(&blue, server, "blue", BLUE);
	struct raw_session session = raw_join(&red, 0);
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	while (raw_stat(&red, "stamp_newest") < session.stamp + 5)
		assert_true(proc_pause(deadline));
	assert_in_range(raw_stat(&red, "stamp_g"), 0, session.stamp);
	assert_int_equal(raw_stat(&blue, "stamp_lag_ms"), 0);
	assert_int_equal(raw_stat(&blue, "sessions"), 0);
	raw_close(&red);
	raw_close(&blue);
}

/* ---- Tokens, sessions and R_Keys of others ---- */

/* Nobody's session is found, ended or relinked from another region. */
static void
sessions_of_other_regions_are_not_known(void **state)
{
	static struct raw red, blue;
	(void)state;
	login(&red, server, "red", RED);
	login(&blue, server, "blue", BLUE);
	struct raw_session session = raw_join(&red, 0);
	assert_int_equal(raw_ask(&blue, WIRE_RELINK, &session), WIRE_REFUSED);
	assert_int_equal(raw_ask(&blue, WIRE_RENEW, &session), WIRE_REFUSED);
	raw_leave(&blue, &session);
	raw_join(&blue, session.serial); /* as a former one of its own */
	assert_int_equal(raw_stat(&red, "sessions"), 1);
	assert_int_equal(raw_ask(&red, WIRE_RENEW, &session), WIRE_RENEWED);
	raw_close(&red);
	raw_close(&blue);
}

static void
a_token_gets_the_memory_of_its_own_region(void **state)
{
	static struct raw raw;
	struct layout_superblock sb;
	uint64_t ids[N];
	(void)state;
	if (!server->socket[0])
		skip();
	for (int i = 0; i < N; i++) {
		login(&raw, server, tenants[i], secrets[i]);
		int fd = raw_present(server, raw.welcome.token);
		assert_in_range(fd, 0, 1 << 20);
		/* A page of the fabric's own may come first. */
		struct stat st;
		assert_int_equal(fstat(fd, &st), 0);
		off_t at = st.st_size - (off_t)raw.welcome.region[0].len;
		for (off_t off = 0; off <= at; off += LAYOUT_PAGE) {
			assert_int_equal(pread(fd, &sb, sizeof(sb), off), sizeof(sb));
			if (sb.magic == LAYOUT_MAGIC)
				break;
		}
		assert_int_equal(sb.magic, LAYOUT_MAGIC);
		assert_int_equal(sb.region_id, raw.welcome.region[0].region_id);
		ids[i] = sb.region_id;
		for (int j = 0; j < i; j++)
			assert_true(ids[j] != ids[i]);
		close(fd);
		raw_close(&raw);
	}
}

/* A data connection by hand. */
struct data {
	int fd;
	uint32_t r_key;
};

static void
receive(int fd, void *bytes, size_t len)
{
	size_t n = 0;
	int64_t deadline_ns = proc_deadline(PROC_WAIT_MS);
	while (n < len) {
		assert_int_equal(net_wait(fd, POLLIN, deadline_ns), 0);
		ssize_t more = recv(fd, (char *)bytes + n, len - n, 0);
		assert_in_range(more, 1, len);
		n += (size_t)more;
	}
}

static bool
has_ended(int fd)
{
	char byte;
	assert_int_equal(net_wait(fd, POLLIN, proc_deadline(PROC_WAIT_MS)), 0);
	return recv(fd, &byte, 1, 0) <= 0;
}

/* Says whose token and which session; false: it was refused, with these words. */
static bool
connect_data(struct data *data, const struct raw *token, const struct raw_session *session,
	     const char *words)
{
	static struct raw raw; /* for its socket */
	union {
		struct wire_tcp_header header;
		struct wire_tcp_accept accept;
		struct wire_tcp_reject reject;
	} answer;
	struct wire_tcp_hello hello = raw_data_hello(token, session);
	raw_open(&raw, server);
	data->fd = raw.fd;
	assert_true(raw_send(&raw, &hello, sizeof(hello)));
	receive(data->fd, &answer.header, sizeof(answer.header));
	receive(data->fd, &answer.header + 1, answer.header.len - sizeof(answer.header));
	data->r_key = answer.accept.r_key;
	if (answer.header.type == WIRE_TCP_ACCEPT)
		return true;
	if (!strstr(answer.reject.reason, words))
		fail_msg("no `%s` in: %s", words, answer.reject.reason);
	close(data->fd);
	return false;
}

/* One operation on the scratch word with this R_Key; its status. *word: to WRITE, or what was READ.
 */
static int
execute(const struct data *data, uint32_t r_key, enum fab_kind kind, uint64_t *word)
{
	struct {
		struct wire_tcp_frame frame;
		struct wire_tcp_op op;
		uint64_t word;
	} message = {
		.frame = {.len = sizeof(message) - (kind == FAB_WRITE ? 0 : sizeof(uint64_t)),
			  .r_key = r_key,
			  .n_ops = 1},
		.op = {.roff = LAYOUT_SCRATCH_OFF,
		       .len = sizeof(uint64_t),
		       .kind = (uint8_t)kind,
		       .expect = kind == FAB_FAA,
		       .swap = 1},
		.word = *word,
	};
	struct wire_tcp_reply reply;
	assert_int_equal(send(data->fd, &message, message.frame.len, MSG_NOSIGNAL),
			 message.frame.len);
	receive(data->fd, &reply, sizeof(reply));
	if (reply.status == 0 && kind != FAB_WRITE)
		receive(data->fd, word, sizeof(*word));
	return reply.status;
}

/* Over tcp: with red's connection, token and session, and the R_Key of blue, and the like. */
static void
an_r_key_of_another_region_is_refused(void **state)
{
	static const enum fab_kind kinds[] = {FAB_READ, FAB_WRITE, FAB_CAS, FAB_FAA};
	static struct raw red, blue;
	struct data reds, blues;
	uint64_t word = 0x1234;
	(void)state;
	if (!is_over_tcp())
		skip();
	login(&red, server, "red", RED);
	login(&blue, server, "blue", BLUE);
	struct raw_session a = raw_join(&red, 0), b = raw_join(&blue, 0);
	struct raw_session other = raw_join(&blue, 0); /* whose number red has not */
	assert_true(connect_data(&blues, &blue, &b, ""));
	assert_int_equal(execute(&blues, blues.r_key, FAB_WRITE, &word), 0);
	assert_false(connect_data(&reds, &red, &other, "no such session"));
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		assert_int_equal(raw_ask(&red, WIRE_RELINK, &a), WIRE_RELINKED);
		assert_true(connect_data(&reds, &red, &a, ""));
		assert_int_not_equal(reds.r_key, blues.r_key);
		uint64_t mine = 0x9999;
		assert_in_range(-execute(&reds, blues.r_key, kinds[i], &mine), 1, 100);
		assert_true(has_ended(reds.fd));
		close(reds.fd);
		assert_true(raw_stat_becomes(&red, "tcp_violations", i + 1));
	}
	assert_int_equal(execute(&blues, blues.r_key, FAB_READ, &word), 0);
	assert_int_equal(word, 0x1234);
	assert_int_equal(raw_stat(&blue, "tcp_violations"), 0);
	assert_int_equal(raw_ask(&red, WIRE_RELINK, &a), WIRE_RELINKED);
	assert_true(connect_data(&reds, &red, &a, ""));
	assert_int_equal(execute(&reds, reds.r_key, FAB_READ, &word), 0);
	assert_int_equal(word, 0); /* its own */
	close(reds.fd);
	close(blues.fd);
	raw_close(&red);
	raw_close(&blue);
}

/* Over verbs it is the NIC that refuses: the queue pair is in another protection domain. */
static void
the_nic_refuses_an_r_key_of_another_region(void **state)
{
	static const enum fab_kind kinds[] = {FAB_READ, FAB_WRITE, FAB_CAS, FAB_FAA};
	static struct raw raw;
	(void)state;
	if (strcmp(server->fabric, "verbs") != 0)
		skip();
	uint64_t *word = load_share(LAYOUT_PAGE);
	struct user blue = user_of("blue");
	login(&raw, server, "blue", BLUE);
	*word = 0x1234;
	assert_int_equal(
		login_status_of(blue.session->link.fab, blue.session->link.ep, FAB_WRITE, word), 0);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct user red = user_of("red");
		struct verbs_endpoint *ep = (struct verbs_endpoint *)red.session->link.ep;
		assert_int_equal(login_status_of(red.session->link.fab, &ep->ep, FAB_READ, word),
				 0);
		assert_int_equal(*word, 0);
		assert_int_not_equal(ep->r_key[0], raw.welcome.region[0].r_key);
		ep->base = raw.welcome.region[0].base;
		ep->r_key[0] = raw.welcome.region[0].r_key;
		*word = 0x9999;
		assert_in_range(-login_status_of(red.session->link.fab, &ep->ep, kinds[i], word), 1,
				100);
		rkv_close(red.client);
	}
	assert_int_equal(
		login_status_of(blue.session->link.fab, blue.session->link.ep, FAB_READ, word), 0);
	assert_int_equal(*word, 0x1234);
	rkv_close(blue.client);
	raw_close(&raw);
	load_unshare(word, LAYOUT_PAGE);
}

/* ---- Quotas ---- */

static void
ask_join(struct raw *raw)
{
	struct wire_join join = {.header = raw_header(raw, WIRE_JOIN, sizeof(join))};
	assert_true(raw_send(raw, &join, sizeof(join)));
}

static void
log_in_in_vain(const char *tenant, const char *secret, const char *words)
{
	static struct raw raw;
	struct auth_said said;
	struct wire_hello hello = login_hello(tenant);
	login_begin(&raw, server, &hello, &said);
	login_prove(&raw, &said, secret);
	login_refused(&raw, ERR_NOMEM, words);
}

#define RED_QUOTAS(sessions, connections)                                                          \
	"red admin " RED " connections=" connections " region=crimson sessions=" sessions "\n"

static void
a_quota_is_kept_and_named(void **state)
{
	static struct raw one, two, plain;
	(void)state;
	login_reload(server, RED_QUOTAS("2", "2") PLAIN_LINE, "2 tenants");
	login(&one, server, "red", RED);
	login(&two, server, "red", RED);
	log_in_in_vain("red", RED, "tenant red has all its 2 connections");
	login(&plain, server, "plain", PLAIN);
	struct raw_session first = raw_join(&one, 0);
	raw_join(&two, 0);
	ask_join(&one);
	login_refusal(&one, ERR_NOMEM, "tenant red has all its 2 sessions");
	assert_non_null(strstr(one.in.refused.reason, "sessions= raised"));
	raw_join(&one, first.serial); /* in the place of a former one */
	for (int i = 0; i < 3; i++)
		raw_join(&plain, 0);
	raw_close(&two);
	assert_true(raw_stat_becomes(&one, "clients", 2));
	raw_join(&one, 0);
	login(&two, server, "red", RED);
	raw_close(&two);
	raw_close(&one);
	raw_close(&plain);
}

static void
librkv_hears_of_a_quota(void **state)
{
	struct rkv_session *session;
	(void)state;
	login_reload(server, RED_QUOTAS("1", "1"), "1 tenants");
	struct user user = user_of("red");
	assert_int_equal(rkv_session_open(user.client, &session), RKV_E_NOMEM);
	rkv_session_close(user.session);
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	while (rkv_session_open(user.client, &session) != RKV_OK) /* its LEAVE is not answered */
		assert_true(proc_pause(deadline));
	rkv_close(user.client);
}

/* ---- The file of tenants changes ---- */

static void
a_changed_quota_cuts_nobody_off_and_a_changed_region_does(void **state)
{
	static struct raw red, blue, raw;
	(void)state;
	login(&red, server, "red", RED);
	login(&blue, server, "blue", BLUE);
	raw_join(&red, 0);
	login_reload(server, RED_QUOTAS("1", "1") BLUE_LINE, "0 connections were cut off");
	ask_join(&red);
	login_refusal(&red, ERR_NOMEM, "all its 1 sessions");
	log_in_in_vain("red", RED, "all its 1 connections");
	login_reload(server, RED_QUOTAS("2", "2") BLUE_LINE PLAIN_LINE, "0 connections were cut");
	raw_join(&red, 0);
	login(&raw, server, "plain", PLAIN); /* a new one */
	raw_close(&raw);
	login_reload(server, RED_LINE BLUE_LINE "green admin " PLAIN " region=green\n",
		     "green: the server has no region");
	assert_int_equal(raw_ask(&red, WIRE_PING, NULL), WIRE_PONG);
	login_reload(server, RED_LINE "blue admin " BLUE "\n", "1 connections were cut off");
	login_refused(&blue, ERR_PERM, "blue was removed or changed");
	login(&blue, server, "blue", BLUE);
	assert_int_equal(raw_stat(&blue, "pool_bytes"), 8 << 20);
	raw_close(&blue);
	raw_close(&red);
}

/* The client finds itself in another region, as after a restart; over shm once it has noticed. */
static void
a_client_whose_region_changes_goes_on_there(void **state)
{
	char buf[64];
	struct rkv_item item;
	(void)state;
	struct user blue = user_of("blue");
	assert_int_equal(put(&blue, "key", "azure", 5), RKV_OK);
	login_reload(server, "blue admin " BLUE "\n", "1 connections were cut off");
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	while (rkv_get(blue.session, "key", 3, buf, sizeof(buf), &item) != RKV_NOT_FOUND)
		assert_true(proc_pause(deadline));
	assert_int_equal(put(&blue, "new", "value", 5), RKV_OK);
	rkv_close(blue.client);
	struct user again = user_of("blue");
	holds(&again, "new", "value");
	holds(&again, "key", NULL);
	rkv_close(again.client);
}

/* ---- Starting ---- */

/* Nor does --check, if it comes so far, promise that it would. */
static void
no_start(const char *words, const char *file, const char *region, const char *more, bool is_checked)
{
	const char *const args[] = {"--check", "--listen",    "127.0.0.1:0", "--fabric",
				    "soft",    "--pool-size", "1M",          "--region",
				    region,    "--region",    more,          "--tenants",
				    file,      NULL};
	login_fails_with(words, PROC_ERR, args + 1);
	if (is_checked)
		login_fails_with(words, PROC_OUT, args);
}

static void
what_is_wrong_with_a_region_is_said(void **state)
{
	static const char *const alone[] = {"--listen", "127.0.0.1:0", "--region", "a:1M", NULL};
	char path[160];
	(void)state;
	snprintf(path, sizeof(path), "%s",
		 login_write("others", 0600, "red admin " RED " region=a\n"));
	const char *const chunks[] = {"--region", "a:2M",      "--pool-size", "16M", "--chunk-size",
				      "1M",       "--tenants", path,          NULL};
	login_fails_with("without --tenants nobody could reach it", PROC_ERR, alone);
	login_fails_with("raise the size of --region a", PROC_ERR, chunks);
	no_start("two regions of this name", path, "a:1M", "a:2M", false);
	no_start("two regions of this name", path, "a:1M", "default:2M", false);
	no_start("a name has 1 to 31", path, "a:1M", "a/b:2M", false);
	no_start("a name has 1 to 31", path, "a:1M", ".b:2M", false);
	no_start("a name has 1 to 31", path, "a:1M", ":2M", false);
	no_start("a size from 1M to 256G", path, "a:1M", "b", false);
	no_start("a size from 1M to 256G", path, "a:1M", "b:1K", false);
	no_start(":1: tenant red: the server has no region", path, "b:1M", "c:1M", true);
	no_start("No such file", path, "a:1M", "b:1M:missing", true);
	no_start("--region b:SIZE:SNAPSHOT is for it", path, "a:1M", "b:1M:missing", false);
}

static void
the_check_counts_all_regions(void **state)
{
	char path[160];
	(void)state;
	snprintf(path, sizeof(path), "%s", login_path("tenants"));
	const char *const args[] = {"--check",    "--listen",    "127.0.0.1:0", "--fabric",
				    "soft",       "--pool-size", "1M",          "--region",
				    "crimson:1M", "--region",    "azure:2M",    "--tenants",
				    path,         NULL};
	struct proc *proc = proc_run("kv-server", args, NULL);
	const char *text = proc_text(proc, PROC_OUT, NULL);
	if (!strstr(text, "memory: pools of 4194304 bytes fit"))
		fail_msg("%s", text);
	assert_int_equal(proc->exit_code, 0);
	proc_free(proc);
}

static void
what_is_wrong_with_a_line_is_said(void **state)
{
	static const char *const bad[][2] = {
		{"red admin " RED " region=azure region=azure\n", "each once"},
		{"red admin " RED " regions=azure\n", "each once"},
		{"red admin " RED " sessions=0\n", "a number from 1 to 4096"},
		{"red admin " RED " sessions=\n", "a number from 1 to 4096"},
		{"red admin " RED " sessions=2x\n", "a number from 1 to 4096"},
		{"red admin " RED " connections=4097\n", "a number from 1 to 4096"},
		{"red admin " RED " connections=99999999999999999999\n", "a number from 1 to"},
		{"red admin " RED " region=\n", "the server has no region"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		login_reload(server, bad[i][0], bad[i][1]);
}

/* All tests over both fabrics, or over the one that the environment asks for. */
int
main(void)
{
	static const char *const fabrics[] = {"--fabric shm", "--fabric tcp"};
	static const struct CMUnitTest once[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
		/* First, as it forks: a process that has used RDMA has no use for its children. */
		TEST(who_dies_is_looked_after_in_its_own_region),
		TEST(each_tenant_has_values_of_its_own),
		TEST(a_region_that_is_full_bothers_no_other),
		TEST(every_region_outlives_the_server),
		TEST(who_asks_is_told_of_its_own_region),
		TEST(snapshots_are_of_one_region),
		TEST(a_session_holds_g_back_in_its_own_region),
		TEST(sessions_of_other_regions_are_not_known),
		TEST(a_token_gets_the_memory_of_its_own_region),
		TEST(an_r_key_of_another_region_is_refused),
		TEST(the_nic_refuses_an_r_key_of_another_region),
		TEST(a_quota_is_kept_and_named),
		TEST(librkv_hears_of_a_quota),
		TEST(a_changed_quota_cuts_nobody_off_and_a_changed_region_does),
		TEST(a_client_whose_region_changes_goes_on_there),
		TEST(what_is_wrong_with_a_region_is_said),
		TEST(what_is_wrong_with_a_line_is_said),
		TEST(the_check_counts_all_regions),
#undef TEST
	};
	enum { N_TESTS = sizeof(once) / sizeof(once[0]) };
	struct CMUnitTest tests[2 * N_TESTS];
	signal(SIGPIPE, SIG_IGN);
	if (getenv("RKV_SERVER_ARGS"))
		return cmocka_run_group_tests(once, NULL, NULL);
	for (size_t i = 0; i < 2 * N_TESTS; i++) {
		tests[i] = once[i % N_TESTS];
		tests[i].initial_state = (void *)(uintptr_t)fabrics[i / N_TESTS];
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
