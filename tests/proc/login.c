/* SPDX-License-Identifier: BSD-2-Clause */
/* Coming in as a tenant: login.h. */
#include "tests/proc/login.h"

#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"

static char directory[64];

/* ---- Files ---- */

const char *
login_path(const char *name)
{
	static char paths[4][128];
	static unsigned n;
	char *path = paths[n++ % 4];
	snprintf(path, sizeof(paths[0]), "%s/%s", directory, name);
	return path;
}

const char *
login_write(const char *name, mode_t mode, const char *text)
{
	const char *path = login_path(name);
	FILE *file = fopen(path, "we");
	assert_non_null(file);
	assert_int_equal(fputs(text, file) < 0, 0);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(path, mode), 0);
	return path;
}

void
login_make_files(void)
{
	snprintf(directory, sizeof(directory), "%s/rkv-tenants-XXXXXX",
		 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	assert_non_null(mkdtemp(directory));
	login_write("app", 0600, SECRET_APP "\n");
	login_write("view", 0400, "  " SECRET_VIEW "\n");
	login_write("tenants", 0600, LOGIN_TENANTS);
}

static int
remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

void
login_remove_files(void)
{
	assert_int_equal(nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

void
login_reload(struct server *server, const char *tenants, const char *said)
{
	size_t before;
	proc_text(server->proc, PROC_ERR, &before);
	login_write("tenants", 0600, tenants);
	proc_signal(server->proc, SIGHUP);
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	while (!strstr(proc_text(server->proc, PROC_ERR, NULL) + before, said))
		if (!proc_pause(deadline))
			fail_msg("no `%s` in: %s", said, proc_text(server->proc, PROC_ERR, NULL));
}

/* ---- Coming in, or not ---- */

static struct secret
secret_of(const char *text)
{
	struct secret secret = {.len = strlen(text)};
	memcpy(secret.bytes, text, secret.len);
	return secret;
}

struct wire_hello
login_hello(const char *tenant)
{
	struct wire_hello hello = raw_hello(WIRE_ROLE_CLIENT);
	snprintf(hello.tenant, sizeof(hello.tenant), "%s", tenant);
	assert_true(auth_nonce(hello.nonce));
	return hello;
}

void
login_begin(struct raw *raw, const struct server *server, const struct wire_hello *hello,
	    struct auth_said *said)
{
	raw_open(raw, server);
	assert_true(raw_send(raw, hello, sizeof(*hello)));
	assert_int_equal(raw_receive(raw), WIRE_CHALLENGE);
	*said = (struct auth_said){.hello = *hello};
	memcpy(&said->challenge, raw->in.bytes, sizeof(said->challenge));
}

void
login_prove(struct raw *raw, const struct auth_said *said, const char *secret)
{
	struct secret s = secret_of(secret);
	struct wire_proof proof = {.header = raw_header(raw, WIRE_PROOF, sizeof(proof))};
	assert_true(auth_client_proof(&s, said, proof.proof));
	assert_true(raw_send(raw, &proof, sizeof(proof)));
}

void
login(struct raw *raw, const struct server *server, const char *tenant, const char *secret)
{
	struct auth_said said;
	struct secret s = secret_of(secret);
	unsigned char right[WIRE_PROOF_LEN];
	struct wire_hello hello = login_hello(tenant);
	login_begin(raw, server, &hello, &said);
	login_prove(raw, &said, secret);
	assert_int_equal(raw_receive(raw), WIRE_WELCOME);
	memcpy(&raw->welcome, raw->in.bytes, sizeof(raw->welcome));
	assert_true(auth_server_proof(&s, &said, &raw->welcome, right));
	assert_memory_equal(raw->welcome.proof, right, sizeof(right));
}

void
login_refusal(struct raw *raw, int code, const char *part)
{
	assert_int_equal(raw_receive(raw), WIRE_REFUSED);
	assert_int_equal(raw->in.refused.code, code);
	if (!strstr(raw->in.refused.reason, part))
		fail_msg("no `%s` in: %s", part, raw->in.refused.reason);
}

void
login_refused(struct raw *raw, int code, const char *part)
{
	login_refusal(raw, code, part);
	assert_int_equal(raw_receive(raw), 0);
	raw_close(raw);
}

void
login_options(struct rkv_options *options, const char *tenant)
{
	rkv_options_init(options);
	options->tenant = tenant;
	options->secret_file = login_path(tenant);
	options->connect_timeout_ms = PROC_WAIT_MS;
}

struct rkv_client *
login_open(const struct server *server, const char *tenant, rkv_log_fn log, void *arg)
{
	struct rkv_options options;
	struct rkv_client *client;
	login_options(&options, tenant);
	options.log = log;
	options.log_arg = arg;
	assert_int_equal(rkv_open(server->address, &options, &client), RKV_OK);
	return client;
}

/* ---- Behind the back ---- */

int
login_status_of(struct fab *fab, struct fab_endpoint *ep, enum fab_kind kind, uint64_t *word)
{
	struct fab_done done;
	int64_t deadline_ns = fab_now(fab) + PROC_WAIT_MS * CLOCK_NS_PER_MS;
	struct fab_op op = {.kind = kind,
			    .roff = LAYOUT_SCRATCH_OFF,
			    .piece = {{.local = word, .len = sizeof(*word)}},
			    .expect = kind == FAB_FAA,
			    .swap = 1};
	assert_int_equal(fab_register(fab, word, 4096, &op.piece[0].key), 0);
	int rc = fab_post(ep, &op, 1, NULL);
	while (rc == 0 && fab_poll(ep, &done, 1) == 0) {
		assert_true(fab_now(fab) < deadline_ns);
		fab_wait(ep, deadline_ns);
	}
	fab_deregister(fab, op.piece[0].key);
	return rc ? rc : done.status;
}

void
login_fails_with(const char *part, enum proc_stream stream, const char *const args[])
{
	struct proc *proc = proc_run("kv-server", args, NULL);
	assert_int_not_equal(proc->exit_code, 0);
	if (!strstr(proc_text(proc, stream, NULL), part))
		fail_msg("no `%s` in: %s", part, proc_text(proc, stream, NULL));
	proc_free(proc);
}
