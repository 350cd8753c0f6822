/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The Nth failing call from rkv_open to rkv_close against kv-server, until no site is left. Calls
 * of the control thread count too: it tries again by itself, so a failure there may go unnoticed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/include/rkv.h"
#include "tests/fault/sites.h"
#include "tests/proc/proc.h"

#define CALLS_MAX 500u /* more than there are */
#define LEN 10000u     /* a value that does not fit the scratch */

static unsigned char value[LEN], got[LEN + 4096];

/* Every failure says what it is: memory and descriptors, or the connection. */
static bool
is_fair(int status)
{
	return status == RKV_OK || status == RKV_E_NOMEM || status == RKV_E_CONN ||
	       status == RKV_E_TIMEOUT;
}

static int
use(struct rkv_session *s)
{
	struct rkv_item item;
	int rc = rkv_put(s, "key", 3, value, LEN, NULL, NULL);
	if (!rc)
		rc = rkv_get(s, "key", 3, got, sizeof(got), &item);
	if (rc)
		return rc;
	assert_int_equal(item.value_len, LEN);
	assert_memory_equal(got, value, LEN);
	return rkv_delete(s, "key", 3);
}

static int
use_buffers(struct rkv_client *client)
{
	int rc = rkv_buffer_register(client, got, sizeof(got));
	return rc ? rc : rkv_buffer_unregister(client, got);
}

static int
run(const char *address)
{
	struct rkv_client *client;
	struct rkv_session *session;
	struct rkv_options options;
	char stats[4096];
	rkv_options_init(&options);
	options.connect_timeout_ms = 2000;
	options.op_timeout_ms = 2000;
	options.depth = 8;
	options.cache_bytes = 65536;
	int rc = rkv_open(address, &options, &client);
	if (rc)
		return rc;
	rc = rkv_session_open(client, &session);
	if (!rc) {
		rc = use(session);
		if (!rc)
			rc = use_buffers(client);
		if (!rc)
			rc = rkv_server_stats(client, stats, sizeof(stats), NULL);
		rkv_session_close(session);
	}
	rkv_close(client);
	return rc;
}

static void
test_open(void **state)
{
	(void)state;
	struct server *server = server_start("--pool-size", "16M", NULL);
	unsigned n_failed = 0;
	bool was_reached = true;
	for (unsigned nth = 1; was_reached; nth++) {
		assert_true(nth < CALLS_MAX);
		sites_arm(nth);
		int rc = run(server->address);
		was_reached = sites_disarm() >= nth;
		if (!is_fair(rc))
			fail_msg("call %u: %s", nth, rkv_strerror(rc));
		n_failed += rc != 0;
		if (rc != 0)
			assert_int_equal(run(server->address), RKV_OK);
	}
	/* At least the client, its thread, the socket, the mapping, the session and its memory. */
	assert_true(n_failed >= 8);
	assert_int_equal(server_stop(server), 0);
}

static struct server *
start_at(const char *listen)
{
	const char *const args[] = {"--listen", listen, "--pool-size", "16M", NULL};
	return server_start_with(args, NULL);
}

/*
 * The server is killed and comes back, and the Nth call fails while the client heals: it tries
 * again by itself, and in the end it has healed.
 */
static void
run_heal(const char *listen, unsigned nth, bool *ret_was_reached)
{
	struct rkv_client *client;
	struct rkv_session *session;
	struct rkv_options options;
	struct server *server = start_at(listen);
	rkv_options_init(&options);
	options.op_timeout_ms = 2000;
	options.depth = 8;
	assert_int_equal(rkv_open(listen, &options, &client), RKV_OK);
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
	assert_int_equal(use(session), RKV_OK);
	server_kill(server);
	server = start_at(listen);
	sites_arm(nth);
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	int rc;
	do {
		rc = use(session);
		assert_true(is_fair(rc) || rc == RKV_E_MAYBE || rc == RKV_NOT_FOUND);
	} while (rc != 0 && proc_pause(deadline));
	*ret_was_reached = sites_disarm() >= nth;
	assert_int_equal(rc, RKV_OK);
	rkv_session_close(session);
	rkv_close(client);
	assert_int_equal(server_stop(server), 0);
}

static void
test_heal(void **state)
{
	(void)state;
	char listen[32];
	bool was_reached = true;
	snprintf(listen, sizeof(listen), "127.0.0.1:%u", proc_free_port());
	for (unsigned nth = 1; was_reached; nth++) {
		assert_true(nth < CALLS_MAX);
		run_heal(listen, nth, &was_reached);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open),
		cmocka_unit_test(test_heal),
	};
	memset(value, 'v', sizeof(value));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
