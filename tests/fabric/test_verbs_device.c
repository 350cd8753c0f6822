/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The verbs fabric on a real RDMA device: the conformance suite, the loop-back endpoint, and peers
 * that end. Which device: RKV_VERBS_ADDRESS, else the first. Without one it is skipped. (On an
 * emulated processor that takes its time: timeout: 600)
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/fabric_host.h"
#include "tests/fabric/verbs_pair.h"

#define REGION_LEN UINT64_C(65536)

static const struct log quiet = {0};

static void
test_loopback(void **state)
{
	static struct verbs_side side;
	struct fab_endpoint *loop;
	(void)state;
	assert_int_equal(verbs_side_start(&side, REGION_LEN, NULL), 0);
	uint64_t *words = (uint64_t *)(void *)side.memory;
	words[8] = 7;
	assert_int_equal(verbs_loopback(side.server, 64, &loop, side.reason), 0);
	assert_true(words[8] == 7);
	assert_int_equal(atomic_load(&side.n_admitted), 0);
	verbs_side_run(&side);
	verbs_loopback_close(loop);
	verbs_side_stop(&side);
}

/* The server destroys a peer: the client's batches fail, and nothing of it changes the region. */
static void
test_cut(void **state)
{
	static struct verbs_side side;
	struct conf_pair pair;
	uint64_t old;
	(void)state;
	assert_int_equal(verbs_side_start(&side, REGION_LEN, NULL), 0);
	verbs_side_run(&side);
	assert_int_equal(verbs_reach(&side, &quiet, 2, 16, &pair), 0);
	uint64_t *local = aligned_alloc(4096, 4096);
	uint32_t key;
	assert_int_equal(fab_register(pair.fab, local, 4096, &key), 0);
	struct fab_op op = conf_faa(64, 1, local, key);
	assert_int_equal(conf_batch(pair.ep[0], &op, 1), 0);
	verbs_side_cut(&side);
	old = ((uint64_t *)(void *)side.memory)[8];
	assert_true(old == 1);
	assert_int_equal(conf_batch(pair.ep[0], &op, 1), ERR_CONN);
	assert_int_equal(conf_batch(pair.ep[1], &op, 1), ERR_CONN);
	assert_true(((uint64_t *)(void *)side.memory)[8] == 1);
	assert_int_equal(atomic_load(&side.n_lost), 0);
	fab_deregister(pair.fab, key);
	conf_leave(&pair);
	free(local);
	verbs_side_stop(&side);
}

/* Clients that leave are noticed, each once; and a refusal arrives with its sentence. */
static void
test_leave(void **state)
{
	static struct verbs_side side;
	struct conf_pair pair;
	(void)state;
	assert_int_equal(verbs_side_start(&side, REGION_LEN, NULL), 0);
	verbs_side_run(&side);
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(verbs_reach(&side, &quiet, 1, 16, &pair), 0);
		conf_leave(&pair);
	}
	int64_t deadline_ns = conf_deadline_ns();
	while (atomic_load(&side.n_lost) < 20 && clock_now_ns() < deadline_ns)
		host_pause(NULL, deadline_ns);
	assert_int_equal(atomic_load(&side.n_lost), 20);
	side.refusal = ERR_PERM;
	assert_int_equal(verbs_reach(&side, &quiet, 1, 16, &pair), ERR_PERM);
	verbs_side_stop(&side);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CONF_TESTS,
		cmocka_unit_test(test_loopback),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_leave),
	};
	static struct verbs_side side;
	if (verbs_side_start(&side, REGION_LEN, NULL)) {
		/* A device that is there and does not work, or that was asked for, is a failure. */
		bool must = side.device || getenv("RKV_VERBS_ADDRESS");
		printf(must ? "Bail out! %s\n" : "1..0 # SKIP %s\n", side.reason);
		return must ? 1 : 77;
	}
	printf("# %s\n", verbs_device_text(side.device));
	verbs_side_stop(&side);
	conf_factory = &verbs_factory;
	return cmocka_run_group_tests_name("fabric verbs on a device", tests, NULL, NULL);
}
