/* SPDX-License-Identifier: BSD-2-Clause */
/* Coming in as a tenant: login.h. */
#include "tests/proc/login.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

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
	snprintf(directory, sizeof(directory), "/tmp/rkv-tenants-XXXXXX");
	assert_non_null(mkdtemp(directory));
	login_write("app", 0600, SECRET_APP "\n");
	login_write("view", 0400, "  " SECRET_VIEW "\n");
	login_write("tenants", 0600, LOGIN_TENANTS);
}

void
login_remove_files(void)
{
	DIR *files = opendir(directory);
	struct dirent *file;
	while (files && (file = readdir(files)))
		unlinkat(dirfd(files), file->d_name, 0);
	if (files)
		closedir(files);
	rmdir(directory);
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
login_refused(struct raw *raw, int code, const char *part)
{
	assert_int_equal(raw_receive(raw), WIRE_REFUSED);
	assert_int_equal(raw->in.refused.code, code);
	if (!strstr(raw->in.refused.reason, part))
		fail_msg("no `%s` in: %s", part, raw->in.refused.reason);
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
