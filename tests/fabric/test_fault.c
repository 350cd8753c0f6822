/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The failing fabric: while it is told nothing it passes the whole conformance suite; then each of
 * its faults.
 */
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "tests/fabric/conformance.h"
#include "tests/fabric/fabric_fault.h"
#include "tests/fabric/shm_pair.h"

#define REGION_LEN UINT64_C(65536)
#define DEPTH 8u

/* ---- A pair whose fabric is wrapped ---- */

static int
fault_pair_open(uint64_t len, unsigned n, uint32_t depth, struct conf_pair *ret_pair)
{
	struct shm_server *server = calloc(1, sizeof(*server));
	struct fab *inner, *fab;
	if (!server || shm_server_start(server, len) || shm_open_fabric(&inner) ||
	    fault_open(inner, &fab) || conf_reach(fab, &server->offer, n, depth, ret_pair))
		abort();
	ret_pair->own = server;
	return 0;
}

static void
fault_pair_close(struct conf_pair *pair)
{
	shm_factory.close(pair);
}

static const struct conf_factory fault_factory = {
	.name = "fault",
	.open = fault_pair_open,
	.close = fault_pair_close,
};

#define LOCAL_LEN 512u
static uint64_t frame[66]; /* a word around what is registered */
static uint64_t *const local = &frame[1];

static struct conf_pair pair;
static uint32_t key;

static void
setup(void)
{
	assert_int_equal(fault_pair_open(REGION_LEN, 1, DEPTH, &pair), 0);
	assert_int_equal(fab_register(pair.fab, local, LOCAL_LEN, &key), 0);
}

static uint64_t
word_at(uint64_t roff)
{
	const struct shm_server *server = pair.own;
	uint64_t word;
	memcpy(&word, (unsigned char *)pool_base(server->pool) + roff, sizeof(word));
	return word;
}

/* ---- Cuts ---- */

static void
check_cut(unsigned n_ops)
{
	setup();
	char cookies[3];
	struct fab_done done[3];
	struct fab_op ops[3];
	for (unsigned i = 0; i < 3; i++)
		ops[i] = conf_faa(8 * i, 1, &local[i], key);
	fault_cut(pair.fab, 2, n_ops);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(fab_post(pair.ep[0], ops, 3, &cookies[i]), 0);
	/* The first was outstanding, the second is the one cut, the third came later. */
	assert_int_equal(fab_poll(pair.ep[0], done, 3), 3);
	for (unsigned i = 0; i < 3; i++) {
		assert_ptr_equal(done[i].cookie, &cookies[i]);
		assert_int_equal(done[i].status, ERR_CONN);
		assert_true(word_at(8 * i) == (i < n_ops ? 2 : 1));
	}
	assert_int_equal(fab_post_quiet(pair.ep[0], ops, 3), 0);
	assert_true(word_at(0) == (n_ops > 0 ? 2 : 1));
	assert_int_equal(fault_n_batches(pair.fab), 4);
	/* A new connection works. */
	struct fab_endpoint *fresh;
	assert_int_equal(fab_connect(pair.region, NULL, DEPTH, conf_deadline_ns(), &fresh), 0);
	assert_int_equal(conf_batch(fresh, ops, 3), 0);
	fab_disconnect(fresh);
	fault_pair_close(&pair);
}

static void
test_cut(void **state)
{
	(void)state;
	for (unsigned n_ops = 0; n_ops <= 3; n_ops++)
		check_cut(n_ops);
}

/*
 * What was polled before the cut keeps its status; a cut may hit a quiet batch; it can be called
 * off.
 */
static void
test_cut_quiet(void **state)
{
	(void)state;
	setup();
	struct fab_op op = conf_faa(0, 1, local, key);
	struct fab_op ops[] = {op, op};
	fault_cut(pair.fab, 2, 1);
	assert_int_equal(conf_batch(pair.ep[0], &op, 1), 0);
	assert_int_equal(fab_post_quiet(pair.ep[0], ops, 2), 0);
	assert_true(word_at(0) == 2);
	assert_int_equal(conf_batch(pair.ep[0], &op, 1), ERR_CONN);
	assert_true(word_at(0) == 2);
	fab_disconnect(pair.ep[0]);
	assert_int_equal(fab_connect(pair.region, NULL, DEPTH, conf_deadline_ns(), &pair.ep[0]), 0);
	fault_cut(pair.fab, 1, 0);
	fault_cut(pair.fab, 0, 0);
	assert_int_equal(conf_batch(pair.ep[0], &op, 1), 0);
	fault_pair_close(&pair);
}

/* ---- Delays ---- */

static void
test_delay(void **state)
{
	struct fab_done done[2];
	(void)state;
	setup();
	struct fab_op op = conf_faa(0, 1, local, key);
	fault_delay(pair.fab, 3);
	assert_int_equal(fab_post(pair.ep[0], &op, 1, NULL), 0);
	assert_int_equal(fab_post(pair.ep[0], &op, 1, NULL), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(fab_poll(pair.ep[0], done, 2), 0);
	assert_int_equal(fab_poll(pair.ep[0], done, 2), 2);
	/* Order is kept: a batch without a delay waits for the one before. */
	assert_int_equal(fab_post(pair.ep[0], &op, 1, &op), 0);
	fault_delay(pair.fab, 0);
	assert_int_equal(fab_post(pair.ep[0], &op, 1, NULL), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(fab_poll(pair.ep[0], done, 2), 0);
	assert_int_equal(fab_poll(pair.ep[0], done, 2), 2);
	assert_ptr_equal(done[0].cookie, &op);
	/* Held back when the region is severed: they fail, at once. */
	fault_delay(pair.fab, 100);
	assert_int_equal(fab_post(pair.ep[0], &op, 1, NULL), 0);
	assert_int_equal(fab_poll(pair.ep[0], done, 2), 0);
	fab_region_sever(pair.region);
	assert_int_equal(fab_poll(pair.ep[0], done, 2), 1);
	assert_int_equal(done[0].status, ERR_CONN);
	fault_pair_close(&pair);
}

/* The depth holds for what is held back too. */
static void
test_delay_depth(void **state)
{
	struct fab_done done[DEPTH];
	(void)state;
	setup();
	struct fab_op op = conf_faa(0, 1, local, key);
	fault_delay(pair.fab, 1);
	for (unsigned i = 0; i < DEPTH; i++)
		assert_int_equal(fab_post(pair.ep[0], &op, 1, NULL), 0);
	assert_int_equal(fab_post(pair.ep[0], &op, 1, NULL), ERR_AGAIN);
	assert_int_equal(fab_poll(pair.ep[0], done, DEPTH), 0);
	assert_int_equal(fab_post(pair.ep[0], &op, 1, NULL), ERR_AGAIN);
	assert_int_equal(fab_poll(pair.ep[0], done, DEPTH), DEPTH);
	assert_int_equal(fab_post(pair.ep[0], &op, 1, NULL), 0);
	assert_true(word_at(0) == DEPTH + 1);
	fault_pair_close(&pair);
}

/* ---- Failing calls ---- */

static void
test_failing_calls(void **state)
{
	struct fab_region *region = NULL;
	struct fab_endpoint *ep = NULL;
	uint32_t other = 0;
	(void)state;
	setup();
	const struct fab_offer *offer = &((struct shm_server *)pair.own)->offer;
	assert_int_equal(fault_n_calls(pair.fab, FAULT_REGISTER), 1);
	assert_int_equal(fault_n_calls(pair.fab, FAULT_REGION_OPEN), 1);
	assert_int_equal(fault_n_calls(pair.fab, FAULT_CONNECT), 1);
	fault_fail(pair.fab, FAULT_REGISTER, 2, ERR_PERM);
	assert_int_equal(fab_register(pair.fab, &other, 4, &other), 0);
	fab_deregister(pair.fab, other);
	assert_int_equal(fab_register(pair.fab, &other, 4, &other), ERR_PERM);
	fault_fail(pair.fab, FAULT_REGION_OPEN, 1, ERR_TIMEOUT);
	assert_int_equal(fab_region_open(pair.fab, offer, conf_deadline_ns(), &region),
			 ERR_TIMEOUT);
	assert_null(region);
	assert_int_equal(fab_region_open(pair.fab, offer, conf_deadline_ns(), &region), 0);
	fault_fail(pair.fab, FAULT_CONNECT, 1, ERR_CONN);
	assert_int_equal(fab_connect(region, NULL, DEPTH, conf_deadline_ns(), &ep), ERR_CONN);
	assert_null(ep);
	assert_int_equal(fab_connect(region, NULL, DEPTH, conf_deadline_ns(), &ep), 0);
	fab_disconnect(ep);
	fab_region_close(region);
	fault_pair_close(&pair);
}

/* ---- Registrations ---- */

static void
check_unregistered(void *at, uint32_t len, uint32_t with_key)
{
	setup();
	struct fab_op op = conf_read(0, at, len, with_key ? with_key : key);
	assert_int_equal(conf_batch(pair.ep[0], &op, 1), ERR_INVALID);
	assert_int_equal(fault_n_unregistered(pair.fab), 1);
	op = conf_read(0, local, 8, key);
	assert_int_equal(conf_batch(pair.ep[0], &op, 1), ERR_CONN);
	fault_pair_close(&pair);
}

static void
test_registrations(void **state)
{
	static uint64_t strange[64];
	(void)state;
	check_unregistered(strange, 8, 0);
	check_unregistered(local, LOCAL_LEN + 1, 0);
	check_unregistered((unsigned char *)frame + 7, 8, 0);
	check_unregistered(&local[63], 9, 0);
	check_unregistered(local, 8, 12345);
	check_unregistered(NULL, 8, 0);
	setup();
	fab_deregister(pair.fab, key);
	struct fab_op op = conf_read(0, local, 8, key);
	assert_int_equal(conf_batch(pair.ep[0], &op, 1), ERR_INVALID);
	fault_pair_close(&pair);
	setup();
	op = conf_read(0, local, LOCAL_LEN, key);
	assert_int_equal(conf_batch(pair.ep[0], &op, 1), 0);
	assert_int_equal(fault_n_unregistered(pair.fab), 0);
	fault_pair_close(&pair);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CONF_TESTS,
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_cut_quiet),
		cmocka_unit_test(test_delay),
		cmocka_unit_test(test_delay_depth),
		cmocka_unit_test(test_failing_calls),
		cmocka_unit_test(test_registrations),
	};
	conf_factory = &fault_factory;
	return cmocka_run_group_tests_name("fabric fault", tests, NULL, NULL);
}
