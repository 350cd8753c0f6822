/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tenants for tests: their files, and a raw client that comes in as one of them, step by step. The
 * tenants are app (read-write), view (read-only) and boss (admin).
 */
#ifndef RKV_TESTS_LOGIN_H
#define RKV_TESTS_LOGIN_H

#include <sys/types.h>

#include "client/include/rkv.h"
#include "common/auth.h"
#include "tests/proc/raw.h"

#define SECRET_APP "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a"
#define SECRET_VIEW "c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3"
#define SECRET_BOSS "e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1"
#define SECRET_OTHER "0000000000000000000000000000000000000000000000000000000000000000"

#define LOGIN_TENANTS                                                                              \
	"# all\n\napp read-write " SECRET_APP "\nview\tread-only " SECRET_VIEW                     \
	"\nboss admin " SECRET_BOSS "\n"

/*
 * A directory, on a tmpfs if there is one, with "tenants" for the server, and secret files "app"
 * and "view"; it is removed with all that is in it.
 */
void login_make_files(void);
void login_remove_files(void);

/* The path of a file there, valid for three calls more; and a file written there. */
const char *login_path(const char *name);
const char *login_write(const char *name, mode_t mode, const char *text);

/* Writes "tenants" anew, has the server read it, and waits until its log has said this. */
void login_reload(struct server *server, const char *tenants, const char *said);

/* A HELLO of this tenant with a nonce. */
struct wire_hello login_hello(const char *tenant);

/* Connects, sends a HELLO and takes the challenge. */
void login_begin(struct raw *raw, const struct server *server, const struct wire_hello *hello,
		 struct auth_said *said);

void login_prove(struct raw *raw, const struct auth_said *said, const char *secret);

/* All of it, as librkv does it; checks the server's proof. */
void login(struct raw *raw, const struct server *server, const char *tenant, const char *secret);

/* The server refuses, with this code and a sentence that has this part; and then it closes. */
void login_refusal(struct raw *raw, int code, const char *part);
void login_refused(struct raw *raw, int code, const char *part);

/* What a client of librkv needs to be this tenant, by its secret file. */
void login_options(struct rkv_options *options, const char *tenant);
struct rkv_client *login_open(const struct server *server, const char *tenant, rkv_log_fn log,
			      void *arg);

/*
 * What becomes of one operation on the scratch word, behind the library's back. word: a page of its
 * own, with what is written, or where is put what was there.
 */
int login_status_of(struct fab *fab, struct fab_endpoint *ep, enum fab_kind kind, uint64_t *word);

/* kv-server, started with these arguments, fails, and prints this part. */
void login_fails_with(const char *part, enum proc_stream stream, const char *const args[]);

#endif
