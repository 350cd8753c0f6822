/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The Nth failing call below a session, until no site is left: no crash, no leak (the sanitizers
 * tell), a failure that says what it is, and the next try works.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/err.h"
#include "tests/fault/harness.h"
#include "tests/fault/sites.h"

#define N_KEYS 70u /* more than a chunk's blocks: several chunks, and rings that grow */
#define LARGE 5000u

static char large[LARGE];

/* Fails as it should, or not at all. */
static bool
is_fair(int status)
{
	return status == 0 || status == ERR_NOMEM || status == ERR_CONN || status == ERR_MAYBE;
}

static int
open_session(struct world *w, struct rkv_session **ret_session)
{
	int rc = world_session_try(w, ret_session);
	if (rc)
		return rc;
	session_pump(*ret_session);
	if (atomic_load(&(*ret_session)->port.state) == LINK_UP)
		return 0;
	rc = (*ret_session)->port.refused;
	assert_int_equal(atomic_load(&(*ret_session)->port.state), LINK_REFUSED);
	rkv_session_close(*ret_session);
	return rc;
}

/* Returns how many calls of the session failed. */
static unsigned
use_session(struct rkv_session *s)
{
	char key[32];
	unsigned n_failed = 0;
	for (unsigned i = 0; i < N_KEYS; i++) {
		snprintf(key, sizeof(key), "key%u", i);
		int rc = world_put(s, key, key);
		assert_true(is_fair(rc));
		n_failed += rc != 0;
		if (rc == 0)
			world_expect(s, key, key);
	}
	int rc = rkv_put(s, "large", 5, large, LARGE, NULL, NULL);
	assert_true(is_fair(rc));
	n_failed += rc != 0;
	rc = rkv_touch(s, "large", 5, 0, NULL);
	assert_true(is_fair(rc) || rc == RKV_NOT_FOUND);
	for (unsigned i = 0; i < N_KEYS; i++) {
		snprintf(key, sizeof(key), "key%u", i);
		rc = rkv_delete(s, key, strlen(key));
		assert_true(rc == 0 || rc == RKV_NOT_FOUND);
	}
	return n_failed;
}

static void
test_system(void **state)
{
	(void)state;
	struct world *w = world_open(NULL);
	bool was_reached = true;
	for (unsigned nth = 1; was_reached; nth++) {
		struct rkv_session *s;
		unsigned n_failed = 0;
		sites_arm(nth);
		int rc = open_session(w, &s);
		if (rc == 0)
			n_failed = use_session(s);
		was_reached = sites_disarm() >= nth;
		assert_true(rc == 0 || rc == ERR_NOMEM);
		assert_true(n_failed <= 1);
		if (rc == 0) {
			assert_int_equal(use_session(s), 0);
			rkv_session_close(s);
		}
		assert_int_equal(open_session(w, &s), 0);
		assert_int_equal(use_session(s), 0);
		rkv_session_close(s);
		world_check(w);
	}
	world_close(w);
}

static void
test_fabric(void **state)
{
	(void)state;
	const enum fault_site sites[] = {FAULT_REGISTER, FAULT_CONNECT};
	const int codes[] = {ERR_NOMEM, ERR_PERM};
	for (unsigned i = 0; i < 2; i++) {
		struct world *w = world_open(NULL);
		struct rkv_session *s;
		fault_fail(w->fab, sites[i], 1, codes[i]);
		assert_int_equal(open_session(w, &s), codes[i]);
		assert_int_equal(w->client.n_sessions, 0);
		assert_int_equal(open_session(w, &s), 0);
		assert_int_equal(use_session(s), 0);
		/* And for a link that is to heal: it comes with the next try. */
		fault_fail(w->fab, sites[i], 1, codes[i]);
		fault_cut(w->fab, 1, 0);
		w->relink = RELINK_SERIAL;
		struct rkv_request r = {
			.op = RKV_OP_PUT, .key = "k", .key_len = 1, .value = "v", .value_len = 1};
		assert_int_equal(rkv_submit(s, &r), 0);
		world_pump_until_lost(s);
		world_serve(w);
		assert_int_equal(world_finish(s, &r), 0);
		world_expect(s, "k", "v");
		world_close(w);
	}
}

/*
 * Memory fails while a session takes over its link to another life of the server. What was in doubt
 * stays in doubt, and is not tried again; what was not, is done.
 */
static void
test_heal(void **state)
{
	(void)state;
	for (int warm = 0; warm < 2; warm++) {
		bool was_reached = true;
		for (unsigned nth = 1; was_reached; nth++) {
			struct world *w = world_open(NULL);
			struct rkv_session *s = world_session(w);
			assert_int_equal(world_put(s, "k", "v0"), 0);
			if (!warm)
				cache_clear(&s->cache);
			w->relink = RELINK_EPOCH;
			w->is_down = true;
			fault_cut(w->fab, 1, 3);
			struct rkv_request r = {.op = RKV_OP_PUT,
						.key = "k",
						.key_len = 1,
						.value = "v1",
						.value_len = 2};
			assert_int_equal(rkv_submit(s, &r), 0);
			world_pump_until_lost(s);
			w->is_down = false;
			world_serve(w);
			sites_arm(nth);
			session_pump(s);
			for (unsigned i = 0; i < 10; i++)
				session_pump(s);
			was_reached = sites_disarm() >= nth;
			int status = world_finish(s, &r);
			if (warm)
				assert_int_equal(status, ERR_MAYBE);
			else
				assert_true(status == 0 || status == ERR_NOMEM);
			world_expect(s, "k", status == 0 ? "v1" : NULL);
			assert_int_equal(world_put(s, "k", "v2"), 0);
			world_expect(s, "k", "v2");
			world_check(w);
			world_close(w);
		}
	}
}

/* The same without another try: by its deadline the request says that it may have been applied. */
static void
test_heal_never(void **state)
{
	(void)state;
	struct world *w = world_open(NULL);
	struct rkv_session *s = world_session(w);
	assert_int_equal(world_put(s, "k", "v0"), 0);
	w->relink = RELINK_EPOCH;
	w->is_down = true;
	fault_cut(w->fab, 1, 3);
	struct rkv_request r = {
		.op = RKV_OP_PUT, .key = "k", .key_len = 1, .value = "v1", .value_len = 2};
	assert_int_equal(rkv_submit(s, &r), 0);
	world_pump_until_lost(s);
	w->is_down = false;
	world_serve(w);
	w->is_down = true;
	sites_arm(1);
	session_pump(s);
	assert_true(sites_disarm() >= 1);
	assert_null(s->link.ep);
	assert_int_equal(world_finish(s, &r), ERR_MAYBE);
	w->is_down = false;
	world_serve(w);
	world_expect(s, "k", NULL);
	world_close(w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_system),
		cmocka_unit_test(test_fabric),
		cmocka_unit_test(test_heal),
		cmocka_unit_test(test_heal_never),
	};
	memset(large, 'x', sizeof(large));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
