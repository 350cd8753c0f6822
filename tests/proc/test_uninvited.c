/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Nobody uninvited, against a real kv-server with tenants: hellos without one, wrong secrets,
 * proofs and tokens that are old or another's, a tenant that is removed, and writes of one that may
 * only read. Nobody gets in, nothing is written, and who is invited goes on.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/include/rkv.h"
#include "client/session.h"
#include "common/auth.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/fabric_tcp.h"
#include "common/fabric_verbs.h"
#include "server/guard.h"
#include "tests/proc/login.h"

#define OTHER_UID 65534

static struct server *server;

static int
set_up(void **state)
{
	(void)state;
	login_make_files();
	server = server_start("--pool-size", "8M", "--chunk-size", "64K", "--tenants",
			      login_path("tenants"), NULL);
	return 0;
}

static int
tear_down(void **state)
{
	(void)state;
	login_remove_files();
	return server_stop(server);
}

/* ---- Tests ---- */

static void
without_a_tenant_nothing_is_told(void **state)
{
	static struct raw raw;
	static const enum wire_role roles[] = {WIRE_ROLE_CLIENT, WIRE_ROLE_ADMIN};
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct wire_hello hello = raw_hello(roles[i]);
		raw_open(&raw, server);
		assert_true(raw_send(&raw, &hello, sizeof(hello)));
		login_refused(&raw, ERR_PERM, "--tenant");
	}
}

static void
each_role_is_told_with_the_servers_own_proof(void **state)
{
	static struct raw raw;
	(void)state;
	login(&raw, server, "app", SECRET_APP);
	assert_int_equal(raw.welcome.access, WIRE_ACCESS_WRITE);
	raw_close(&raw);
	login(&raw, server, "view", SECRET_VIEW);
	assert_int_equal(raw.welcome.access, WIRE_ACCESS_READ);
	raw_close(&raw);
	login(&raw, server, "boss", SECRET_BOSS);
	assert_int_equal(raw.welcome.access, WIRE_ACCESS_ADMIN);
	raw_close(&raw);
}

static void
a_wrong_secret_and_an_unknown_tenant_are_told_the_same(void **state)
{
	static struct raw raw;
	static const char *const wrong[][2] = {
		{"app", SECRET_OTHER}, {"app", SECRET_VIEW}, {"nobody", SECRET_OTHER}};
	char first[LIMIT_REASON_MAX] = "";
	struct auth_said said;
	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct wire_hello hello = login_hello(wrong[i][0]);
		login_begin(&raw, server, &hello, &said);
		login_prove(&raw, &said, wrong[i][1]);
		login_refused(&raw, ERR_PERM, "not let in");
		if (!first[0])
			memcpy(first, raw.in.refused.reason, sizeof(first));
		assert_string_equal(raw.in.refused.reason, first);
	}
}

static void
a_name_without_an_end_is_nobodys(void **state)
{
	static struct raw raw;
	struct auth_said said;
	struct wire_hello hello = login_hello("app");
	(void)state;
	memset(hello.tenant, 'a', sizeof(hello.tenant));
	login_begin(&raw, server, &hello, &said);
	login_prove(&raw, &said, SECRET_APP);
	login_refused(&raw, ERR_PERM, "not let in");
}

/* The same HELLO, even its nonce, gets another challenge: what was heard once proves nothing. */
static void
a_replayed_proof_proves_nothing(void **state)
{
	static struct raw raw;
	struct auth_said first, second;
	struct wire_hello hello = login_hello("app");
	(void)state;
	login_begin(&raw, server, &hello, &first);
	login_prove(&raw, &first, SECRET_APP);
	assert_int_equal(raw_receive(&raw), WIRE_WELCOME);
	raw_close(&raw);
	login_begin(&raw, server, &hello, &second);
	assert_memory_not_equal(first.challenge.nonce, second.challenge.nonce, WIRE_NONCE_LEN);
	login_prove(&raw, &first, SECRET_APP);
	login_refused(&raw, ERR_PERM, "not let in");
}

/* A proof says which hello it belongs to: no field of that can be another on the way. */
static void
a_proof_is_bound_to_all_that_was_said(void **state)
{
	static struct raw raw;
	struct auth_said said;
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct wire_hello hello = login_hello("app");
		login_begin(&raw, server, &hello, &said);
		if (i == 0)
			memcpy(said.hello.tenant, "view", 5);
		else if (i == 1)
			said.hello.nonce[0] ^= 1;
		else
			said.binding[0] ^= 1;
		login_prove(&raw, &said, SECRET_APP);
		login_refused(&raw, ERR_PERM, "not let in");
	}
}

static void
before_the_proof_only_a_proof_is_taken(void **state)
{
	static struct raw raw;
	struct auth_said said;
	static const enum wire_type types[] = {WIRE_STATS, WIRE_PING, WIRE_JOIN, WIRE_HELLO};
	(void)state;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		struct wire_hello hello = login_hello("app");
		login_begin(&raw, server, &hello, &said);
		hello.header = raw_header(&raw, types[i], sizeof(hello.header));
		assert_true(raw_send(&raw, &hello, sizeof(hello.header)));
		login_refused(&raw, ERR_INVALID, "not answered with a proof");
	}
	struct wire_proof proof = {.header = raw_header(&raw, WIRE_PROOF, sizeof(proof))};
	raw_open(&raw, server);
	assert_true(raw_send(&raw, &proof, sizeof(proof)));
	login_refused(&raw, ERR_INVALID, "not a hello");
	login(&raw, server, "app", SECRET_APP);
	assert_true(raw_send(&raw, &proof, sizeof(proof)));
	login_refused(&raw, ERR_INVALID, "nobody asked for");
}

/* ---- Tokens ---- */

static void
a_token_is_of_one_connection_and_works_once(void **state)
{
	static struct raw raw, closed;
	unsigned char token[WIRE_TOKEN_LEN] = {0};
	(void)state;
	if (!server->socket[0])
		skip();
	assert_int_equal(raw_present(server, token), -1);
	login(&closed, server, "app", SECRET_APP);
	login(&raw, server, "app", SECRET_APP);
	assert_memory_not_equal(raw.welcome.token, closed.welcome.token, WIRE_TOKEN_LEN);
	for (unsigned bit = 0; bit < 8 * WIRE_TOKEN_LEN; bit += 31) {
		memcpy(token, raw.welcome.token, WIRE_TOKEN_LEN);
		token[bit / 8] ^= (unsigned char)(1u << bit % 8);
		assert_int_equal(raw_present(server, token), -1);
	}
	raw_close(&closed);
	assert_true(raw_stat_becomes(&raw, "clients", 1));
	assert_int_equal(raw_present(server, closed.welcome.token),
			 -1); /* its connection is gone */
	int fd = raw_present(server, raw.welcome.token);
	assert_in_range(fd, 0, 1 << 20);
	close(fd);
	assert_int_equal(raw_present(server, raw.welcome.token), -1); /* once */
	raw_close(&raw);
}

/* ---- Reading only ---- */

/* Another user, who was given a descriptor for reading, cannot make one for writing of it. */
static bool
another_user_can_write(int fd)
{
	char path[32];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	pid_t pid = fork();
	if (pid == 0) {
		if (setgid(OTHER_UID) || setuid(OTHER_UID))
			_exit(2);
		_exit(open(path, O_RDWR) >= 0 || fchmod(fd, 0666) == 0);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_not_equal(WEXITSTATUS(status), 2);
	return WEXITSTATUS(status) != 0;
}

static void
the_kernel_lets_a_reader_write_nothing(void **state)
{
	static struct raw raw;
	(void)state;
	if (!server->socket[0])
		skip();
	login(&raw, server, "view", SECRET_VIEW);
	int fd = raw_present(server, raw.welcome.token);
	assert_in_range(fd, 0, 1 << 20);
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	assert_int_equal(errno, EACCES);
	void *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(page, MAP_FAILED);
	assert_int_equal(mprotect(page, 4096, PROT_READ | PROT_WRITE), -1);
	assert_int_equal(errno, EACCES);
	assert_int_equal(pwrite(fd, "x", 1, 0), -1);
	assert_int_equal(errno, EBADF);
	if (getuid() == 0)
		assert_false(another_user_can_write(fd));
	munmap(page, 4096);
	close(fd);
	raw_close(&raw);
}

static void
keep_line(void *arg, int level, const char *line)
{
	(void)level;
	snprintf(arg, 512, "%s", line);
}

static void
put(const char *value)
{
	struct rkv_client *client = login_open(server, "app", NULL, NULL);
	struct rkv_session *session;
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
	assert_int_equal(rkv_put(session, "key", 3, value, strlen(value), NULL, NULL), RKV_OK);
	rkv_close(client);
}

static void
holds_value(struct rkv_session *session, const char *value)
{
	char buf[64];
	struct rkv_item item;
	assert_int_equal(rkv_get(session, "key", 3, buf, sizeof(buf), &item), RKV_OK);
	assert_int_equal(item.value_len, strlen(value));
	assert_memory_equal(buf, value, item.value_len);
}

static void
a_reader_reads_and_its_mutations_fail_at_once(void **state)
{
	char line[512] = "";
	struct rkv_session *session;
	struct rkv_stats_values stats;
	(void)state;
	put("value");
	struct rkv_client *client = login_open(server, "view", keep_line, line);
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
	holds_value(session, "value");
	assert_int_equal(rkv_put(session, "key", 3, "x", 1, NULL, NULL), RKV_E_PERM);
	assert_non_null(strstr(line, "tenant view is read-only"));
	assert_int_equal(rkv_add(session, "new", 3, "x", 1, NULL, NULL), RKV_E_PERM);
	assert_int_equal(rkv_replace(session, "key", 3, "x", 1, NULL, NULL), RKV_E_PERM);
	assert_int_equal(rkv_cas(session, "key", 3, "x", 1, 1, NULL, NULL), RKV_E_PERM);
	assert_int_equal(rkv_delete(session, "key", 3), RKV_E_PERM);
	assert_int_equal(rkv_touch(session, "key", 3, 1, NULL), RKV_E_PERM);
	holds_value(session, "value");
	assert_int_equal(rkv_stats(session, &stats), RKV_OK);
	for (int op = RKV_OP_PUT; op < RKV_OP_COUNT; op++)
		assert_int_equal(stats.op[op].n_requests, 0);
	assert_int_equal(stats.n_maintenance_requests, 0);
	rkv_close(client);
}

/* Nor does it write the hints by which a pool with --evict tells what is used. */
static void
a_reader_reads_where_values_are_evicted(void **state)
{
	struct server *without = server;
	struct rkv_session *session;
	struct rkv_stats_values stats;
	(void)state;
	server = server_start("--pool-size", "8M", "--chunk-size", "64K", "--evict", "yes",
			      "--tenants", login_path("tenants"), NULL);
	put("value");
	struct rkv_client *client = login_open(server, "view", NULL, NULL);
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
	holds_value(session, "value");
	holds_value(session, "value");
	assert_int_equal(rkv_stats(session, &stats), RKV_OK);
	assert_int_equal(stats.op[RKV_OP_GET].n_requests, 3 + 2); /* cold, warm: READs alone */
	rkv_close(client);
	assert_int_equal(server_stop(server), 0);
	server = without;
}

/* What becomes of one operation in a session of its own; word: what is written, or was read. */
static int
status_as(const char *tenant, enum fab_kind kind, uint64_t *word)
{
	struct rkv_session *session;
	struct rkv_client *client = login_open(server, tenant, NULL, NULL);
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
	holds_value(session, "value");
	int status = login_status_of(session->link.fab, session->link.ep, kind, word);
	rkv_close(client);
	return status;
}

/*
 * Over shm the kernel sees to it; over tcp the server's threads have to, over verbs its device. A
 * reader need not guess the R_Key: all have the same. Another one goes on meanwhile.
 */
static void
a_reader_that_writes_all_the_same_is_refused(void **state)
{
	static const enum fab_kind kinds[] = {FAB_WRITE, FAB_CAS, FAB_FAA};
	static struct raw app, view;
	struct rkv_session *other;
	uint64_t *word =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	(void)state;
	if (server->socket[0])
		skip();
	assert_ptr_not_equal(word, MAP_FAILED);
	login(&app, server, "app", SECRET_APP);
	login(&view, server, "view", SECRET_VIEW);
	assert_int_equal(view.welcome.region[0].r_key, app.welcome.region[0].r_key);
	put("value");
	struct rkv_client *client = login_open(server, "view", NULL, NULL);
	assert_int_equal(rkv_session_open(client, &other), RKV_OK);
	assert_int_equal(status_as("app", FAB_READ, word), 0);
	uint64_t before = *word;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		*word = before + 1;
		assert_in_range(-status_as("view", kinds[i], word), 1, 100);
		holds_value(other, "value");
	}
	rkv_close(client);
	raw_close(&app);
	raw_close(&view);
	assert_int_equal(status_as("view", FAB_READ, word), 0);
	assert_int_equal(*word, before);
	*word = before + 1;
	assert_int_equal(status_as("app", FAB_WRITE, word), 0); /* which may */
	assert_int_equal(status_as("view", FAB_READ, word), 0);
	assert_int_equal(*word, before + 1);
	munmap(word, 4096);
}

/* What a hello says about the region, as far as the fabric needs it. */
static struct fab_offer
offer_of(const struct raw *raw)
{
	const struct wire_region *r = &raw->welcome.region[0];
	struct fab_offer offer = {
		.base = r->base,
		.len = r->len,
		.r_key = r->r_key,
		.only_reads = raw->welcome.access == WIRE_ACCESS_READ,
	};
	memcpy(offer.token, raw->welcome.token, sizeof(offer.token));
	memcpy(offer.verbs_address, raw->welcome.verbs_address, sizeof(offer.verbs_address));
	snprintf(offer.tcp_address, sizeof(offer.tcp_address), "%s", server->address);
	return offer;
}

/*
 * Nothing is written over the connection for a look at the superblock either: over tcp also by who
 * may write.
 */
static void
a_look_only_reads(void **state)
{
	static struct raw raw;
	static const struct log silent;
	struct fab *fab;
	struct fab_region *region;
	struct fab_endpoint *ep;
	uint64_t *word =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	(void)state;
	if (server->socket[0])
		skip();
	assert_ptr_not_equal(word, MAP_FAILED);
	login(&raw, server, "view", SECRET_VIEW);
	bool over_verbs = strcmp(server->fabric, "verbs") == 0;
	if (!over_verbs) {
		raw_close(&raw);
		login(&raw, server, "app", SECRET_APP);
	}
	struct fab_offer offer = offer_of(&raw);
	int64_t deadline_ns = proc_deadline(PROC_WAIT_MS);
	assert_int_equal(
		over_verbs ? verbs_open_fabric(&silent, &fab) : tcp_open_fabric(&silent, &fab), 0);
	assert_int_equal(fab_region_open(fab, &offer, deadline_ns, &region), 0);
	assert_int_equal(fab_connect(region, NULL, 1, deadline_ns, &ep), 0);
	assert_int_equal(login_status_of(fab, ep, FAB_READ, word), 0);
	assert_in_range(-login_status_of(fab, ep, FAB_WRITE, word), 1, 100);
	fab_disconnect(ep);
	fab_region_close(region);
	fab_close(fab);
	raw_close(&raw);
	munmap(word, 4096);
}

/* A GET of a reader counts for [STAMP] like any other: what it may be reading is not used again. */
static void
a_reader_that_does_not_move_on_holds_g_back(void **state)
{
	static struct raw reader, writer;
	(void)state;
	login(&writer, server, "app", SECRET_APP);
	login(&reader, server, "view", SECRET_VIEW);
	struct raw_session session = raw_join(&reader, 0);
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	while (raw_stat(&writer, "stamp_newest") < session.stamp + 5)
		assert_true(proc_pause(deadline));
	assert_in_range(raw_stat(&writer, "stamp_g"), 0, session.stamp);
	raw_close(&reader);
	raw_close(&writer);
}

static void
only_an_admin_takes_snapshots(void **state)
{
	static struct raw raw;
	struct wire_snapshot ask = {.name = "s"};
	struct wire_snapshot_state answer;
	(void)state;
	login(&raw, server, "app", SECRET_APP);
	ask.header = raw_header(&raw, WIRE_SNAPSHOT, sizeof(ask));
	assert_true(raw_send(&raw, &ask, sizeof(ask)));
	assert_int_equal(raw_receive(&raw), WIRE_SNAPSHOT_STATE);
	memcpy(&answer, raw.in.bytes, sizeof(answer));
	assert_int_equal(answer.code, ERR_PERM);
	assert_non_null(strstr(answer.reason, "role admin"));
	raw_close(&raw);
	login(&raw, server, "boss", SECRET_BOSS);
	assert_true(raw_send(&raw, &ask, sizeof(ask)));
	assert_int_equal(raw_receive(&raw), WIRE_SNAPSHOT_STATE);
	memcpy(&answer, raw.in.bytes, sizeof(answer));
	assert_non_null(strstr(answer.reason, "--snapshot-dir")); /* this server has none */
	raw_close(&raw);
}

/* ---- Sessions of others ---- */

static void
nobody_ends_the_session_of_another_tenant(void **state)
{
	static struct raw app, view;
	(void)state;
	if (!server->socket[0])
		skip(); /* only who has mapped the pool lingers */
	login(&app, server, "app", SECRET_APP);
	raw_map(&app);
	struct raw_session session = raw_join(&app, 0);
	close(app.fd); /* it lingers: this process has mapped the pool */
	app.fd = -1;
	login(&view, server, "view", SECRET_VIEW);
	assert_true(raw_stat_becomes(&view, "sessions_lingering", 1));
	raw_join(&view, session.serial);
	assert_int_equal(raw_stat(&view, "sessions_lingering"), 1);
	raw_close(&view);
	login(&view, server, "app", SECRET_APP);
	raw_map(&view);
	raw_join(&view, session.serial);
	assert_int_equal(raw_stat(&view, "sessions_lingering"), 0);
	raw_close(&view);
	raw_close(&app);
}

/* ---- The file changes ---- */

static void
reload(const char *tenants, const char *said)
{
	login_reload(server, tenants, said);
}

static void
a_tenant_that_is_gone_or_changed_is_cut_off(void **state)
{
	static struct raw app, view, boss;
	(void)state;
	login(&app, server, "app", SECRET_APP);
	login(&view, server, "view", SECRET_VIEW);
	login(&boss, server, "boss", SECRET_BOSS);
	assert_true(raw_stat_becomes(&app, "clients", 3)); /* those of other tests are gone */
	reload("app read-write " SECRET_APP "\nboss admin " SECRET_OTHER "\n",
	       "2 connections were cut off");
	login_refused(&view, ERR_PERM, "view was removed or changed");
	if (server->socket[0])
		assert_int_equal(raw_present(server, view.welcome.token), -1);
	login_refused(&boss, ERR_PERM, "boss was removed or changed");
	assert_int_equal(raw_ask(&app, WIRE_PING, NULL), WIRE_PONG);
	login(&boss, server, "boss", SECRET_OTHER);
	raw_close(&boss);
	assert_true(raw_stat_becomes(&app, "clients", 1));
	reload("app read-only " SECRET_APP "\n", "1 connections were cut off"); /* another role */
	login_refused(&app, ERR_PERM, "app was removed or changed");
	reload(LOGIN_TENANTS, "3 tenants");
	login(&app, server, "app", SECRET_APP);
	reload("app read-write short\n", "are what they were");
	assert_int_equal(raw_ask(&app, WIRE_PING, NULL), WIRE_PONG);
	reload("", "no tenant is named");
	raw_close(&app);
	login(&view, server, "view", SECRET_VIEW);
	raw_close(&view);
	login_write("tenants", 0600, LOGIN_TENANTS);
}

/* A client goes on with the new secret, because it reads its file again. */
static void
a_client_takes_up_a_changed_secret(void **state)
{
	struct rkv_session *session;
	(void)state;
	put("before");
	struct rkv_client *client = login_open(server, "app", NULL, NULL);
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
	holds_value(session, "before");
	login_write("app", 0600, SECRET_OTHER "\n");
	reload("app read-write " SECRET_OTHER "\n", " connections were cut off");
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	while (rkv_put(session, "key", 3, "after", 5, NULL, NULL) != RKV_OK)
		assert_true(proc_pause(deadline));
	holds_value(session, "after");
	rkv_close(client);
	login_write("app", 0600, SECRET_APP "\n");
	reload(LOGIN_TENANTS, "3 tenants");
}

/* ---- Too many failures ---- */

static unsigned
count(const char *text, const char *part)
{
	unsigned n = 0;
	for (; (text = strstr(text, part)); text += strlen(part))
		n++;
	return n;
}

/* Late failures of an address hear nothing; who knows the secret is let in meanwhile. */
static void
failures_of_an_address_are_bounded(void **state)
{
	enum { N = 4 * GUARD_BURST };
	static struct raw raw, failing[N];
	unsigned n_answered = 0;
	struct auth_said said;
	(void)state;
	int64_t began_ns = clock_now_ns();
	for (unsigned i = 0; i < N; i++) {
		struct wire_hello hello = login_hello("app");
		login_begin(&failing[i], server, &hello, &said);
		login_prove(&failing[i], &said, SECRET_OTHER);
	}
	login(&raw, server, "app", SECRET_APP);
	raw_close(&raw);
	for (unsigned i = 0; i < N; i++) {
		n_answered += raw_receive(&failing[i]) == WIRE_REFUSED;
		raw_close(&failing[i]);
	}
	int64_t took_s = (clock_now_ns() - began_ns) / CLOCK_NS_PER_S + 1;
	assert_in_range(n_answered, 0, GUARD_BURST + (unsigned)took_s);
	login(&raw, server, "app", SECRET_APP);
	raw_close(&raw);
}

/* ---- Starting ---- */

/* Nor does --check promise that it would. */
static void
no_start(const char *part, const char *listen, const char *more, const char *value)
{
	const char *const args[] = {"--check",  "--listen", listen, "--pool-size", "1M",
				    "--fabric", "soft",     more,   value,         NULL};
	login_fails_with(part, PROC_ERR, args + 1);
	login_fails_with(part, PROC_OUT, args);
}

static void
beyond_loopback_only_with_tenants_or_on_purpose(void **state)
{
	static const char *const open[] = {"--listen", "0.0.0.0:0",  "--pool-size",
					   "8M",       "--insecure", NULL};
	const char *const named[] = {"--listen",  "0.0.0.0:0",           "--pool-size", "8M",
				     "--tenants", login_path("tenants"), NULL};
	(void)state;
	no_start("--insecure", "0.0.0.0:0", NULL, NULL);
	no_start("--tenants", "[::]:0", NULL, NULL);
	struct server *other = server_start_with(open, NULL);
	assert_int_equal(count(proc_text(other->proc, PROC_ERR, NULL), "--insecure: whoever"), 1);
	assert_int_equal(server_stop(other), 0);
	other = server_start_with(named, NULL);
	assert_int_equal(count(proc_text(other->proc, PROC_ERR, NULL), "is not encrypted"), 1);
	assert_int_equal(server_stop(other), 0);
}

static void
a_file_of_tenants_is_checked(void **state)
{
	static const struct {
		mode_t mode;
		const char *text, *part;
	} bad[] = {
		{0644, LOGIN_TENANTS, "chmod 600"},
		{0620, LOGIN_TENANTS, "chmod 600"},
		{0600, "app read-write short\n", "openssl rand -hex 32"},
		{0600, "app " SECRET_APP "\n", "NAME ROLE SECRET"},
		{0600, "app root " SECRET_APP "\n", "read-only, read-write or admin"},
		{0600, "a/b read-only " SECRET_APP "\n", "letters, digits"},
		{0600, "app admin " SECRET_APP "\napp admin " SECRET_APP "\n",
		 ":2: tenant app is there twice"},
		{0600, "# nobody\n", "no tenant is named"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const char *path = login_write("other", bad[i].mode, bad[i].text);
		no_start(bad[i].part, "127.0.0.1:0", "--tenants", path);
	}
	no_start("No such file", "127.0.0.1:0", "--tenants", login_path("missing"));
	no_start("--tls-key", "127.0.0.1:0", "--tls-cert", login_path("missing"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_tenant_nothing_is_told),
		cmocka_unit_test(each_role_is_told_with_the_servers_own_proof),
		cmocka_unit_test(a_wrong_secret_and_an_unknown_tenant_are_told_the_same),
		cmocka_unit_test(a_name_without_an_end_is_nobodys),
		cmocka_unit_test(a_replayed_proof_proves_nothing),
		cmocka_unit_test(a_proof_is_bound_to_all_that_was_said),
		cmocka_unit_test(before_the_proof_only_a_proof_is_taken),
		cmocka_unit_test(a_token_is_of_one_connection_and_works_once),
		cmocka_unit_test(the_kernel_lets_a_reader_write_nothing),
		cmocka_unit_test(a_reader_reads_and_its_mutations_fail_at_once),
		cmocka_unit_test(a_reader_reads_where_values_are_evicted),
		cmocka_unit_test(a_reader_that_writes_all_the_same_is_refused),
		cmocka_unit_test(a_look_only_reads),
		cmocka_unit_test(a_reader_that_does_not_move_on_holds_g_back),
		cmocka_unit_test(only_an_admin_takes_snapshots),
		cmocka_unit_test(nobody_ends_the_session_of_another_tenant),
		cmocka_unit_test(a_tenant_that_is_gone_or_changed_is_cut_off),
		cmocka_unit_test(a_client_takes_up_a_changed_secret),
		cmocka_unit_test(failures_of_an_address_are_bounded),
		cmocka_unit_test(beyond_loopback_only_with_tenants_or_on_purpose),
		cmocka_unit_test(a_file_of_tenants_is_checked),
	};
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
