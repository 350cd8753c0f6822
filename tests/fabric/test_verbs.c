/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The data path of the verbs fabric on fake devices: the conformance suite, what a batch costs,
 * queues that never overrun, and every way in which work requests fail.
 */
#include "tests/fabric/sanitized.h"
#include "tests/fabric/verbs_world.h"
#include "tests/fault/heap.h"

/* ---- What a batch costs ---- */

static void
assert_cost(unsigned n_post, unsigned n_wr, unsigned n_signalled, unsigned n_inline)
{
	assert_int_equal(atomic_exchange(&fake_counts.n_post, 0), n_post);
	assert_int_equal(atomic_exchange(&fake_counts.n_wr, 0), n_wr);
	assert_int_equal(atomic_exchange(&fake_counts.n_signalled, 0), n_signalled);
	assert_int_equal(atomic_exchange(&fake_counts.n_inline, 0), n_inline);
}

/* An UPDATE's batch, and what follows in the local memory. */
static void
update_ops(struct world *w, struct fab_op ops[3], uint32_t len)
{
	ops[0] = conf_write(1024, w->local, len, w->key);
	ops[1] = conf_cas(64, 0, 0, &w->local[1000], w->key);
	ops[2] = conf_read(64, &w->local[1001], 8, w->key);
}

static void
test_costs(void **state)
{
	struct world w;
	struct fab_op ops[3];
	struct fab_done done;
	(void)state;
	world_open(&w, 1, 16);
	update_ops(&w, ops, 200);
	assert_int_equal(conf_batch(w.ep, ops, 3), 0);
	assert_cost(1, 3, 1, 1);
	update_ops(&w, ops, 257); /* longer than a device's inline data */
	assert_int_equal(conf_batch(w.ep, ops, 3), 0);
	assert_cost(1, 3, 1, 0);
	/* What is posted between two polls goes out at once. */
	for (int i = 0; i < 5; i++)
		assert_int_equal(fab_post(w.ep, ops, 3, NULL), 0);
	assert_cost(0, 0, 0, 0);
	for (int i = 0; i < 5; i++)
		assert_true(conf_poll(w.ep, &done));
	assert_cost(1, 15, 5, 0);
	/* A mark goes at once, unsignalled, and takes along what stands before it. */
	struct fab_op mark = conf_write(500, w.local, 1, w.key);
	assert_int_equal(fab_post_quiet(w.ep, &mark, 1), 0);
	assert_cost(1, 1, 0, 1);
	assert_int_equal(fab_post(w.ep, ops, 3, NULL), 0);
	assert_int_equal(fab_post_quiet(w.ep, &mark, 1), 0);
	assert_cost(1, 4, 1, 1);
	assert_true(conf_poll(w.ep, &done));
	assert_cost(0, 0, 0, 0);
	/* A wait sends, too. */
	assert_int_equal(fab_post(w.ep, ops, 3, NULL), 0);
	fab_wait(w.ep, conf_deadline_ns());
	assert_cost(1, 3, 1, 0);
	assert_int_equal(fab_poll(w.ep, &done, 1), 1);
	/* A chain that grows long is sent without a poll. */
	world_close(&w);
	world_open(&w, 1, 128);
	update_ops(&w, ops, 8);
	for (int i = 0; i < 128; i++)
		assert_int_equal(fab_post(w.ep, ops, 3, NULL), 0);
	assert_true(atomic_load(&fake_counts.n_post) == 2);
	for (int i = 0; i < 128; i++)
		assert_true(conf_poll(w.ep, &done));
	assert_cost(3, 384, 128, 128);
	world_close(&w);
}

static void
test_inline_limits(void **state)
{
	static const uint32_t limits[] = {0, 16, 64, 256, 1024};
	(void)state;
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		struct world w;
		fake.max_inline = limits[i];
		world_open(&w, 1, 16);
		unsigned n_inline = 0;
		for (uint32_t len = 1; len <= 300; len++) {
			struct fab_op op = conf_write(1000, w.local, len, w.key);
			op.piece[0].len = (len + 1) / 2;
			op.piece[1] = (struct fab_piece){w.local + 500, len / 2, w.key};
			assert_int_equal(conf_batch(w.ep, &op, 1), 0);
			n_inline += len <= limits[i] && len <= 256;
		}
		assert_int_equal(atomic_load(&fake_counts.n_inline), n_inline);
		world_close(&w);
		fake_reset();
	}
}

static void
test_no_malloc(void **state)
{
	struct world w;
	struct fab_op ops[3];
	struct fab_done done;
	(void)state;
	if (SANITIZED)
		skip();
	world_open(&w, 1, 16);
	verbs_side_halt(&w.side);
	update_ops(&w, ops, 100);
	uint64_t n_before = heap_calls();
	unsigned n_failed = 0;
	assert_true(n_before > 0);
	for (int i = 0; i < 1000; i++) {
		n_failed += fab_post(w.ep, ops, 3, NULL) != 0;
		n_failed += fab_post_quiet(w.ep, ops, 1) != 0;
		n_failed += fab_poll(w.ep, &done, 1) != 1 || done.status != 0;
	}
	assert_int_equal(heap_calls(), n_before);
	assert_int_equal(n_failed, 0);
	verbs_side_run(&w.side);
	world_close(&w);
}

/* ---- Queues that do not overrun: the fake device aborts if one does ---- */

/* A depth, whose batches are as long as they can be, with marks between them. */
static void
fill_up(uint32_t depth, unsigned n_rounds)
{
	struct world w;
	struct fab_op ops[FAB_BATCH_MAX];
	struct fab_done done;
	unsigned n_out = 0, n_marks = 0;
	world_open(&w, 1, depth);
	for (unsigned i = 0; i < FAB_BATCH_MAX; i++)
		ops[i] = conf_faa(64, 1, &w.local[i], w.key);
	for (unsigned round = 0; round < n_rounds; round++) {
		for (; n_out < depth; n_out++) {
			assert_int_equal(fab_post(w.ep, ops, FAB_BATCH_MAX, NULL), 0);
			for (int i = 0; i < 2; i++)
				n_marks += fab_post_quiet(w.ep, ops, FAB_BATCH_MAX) == 0;
		}
		assert_int_equal(fab_post(w.ep, ops, 1, NULL), ERR_AGAIN);
		for (unsigned i = 0; i < 1 + round % depth; i++, n_out--) {
			assert_true(conf_poll(w.ep, &done));
			assert_int_equal(done.status, 0);
		}
	}
	for (; n_out; n_out--)
		assert_true(conf_poll(w.ep, &done));
	struct fab_op flush = conf_faa(64, 0, w.local, w.key);
	assert_int_equal(conf_batch(w.ep, &flush, 1), 0);
	unsigned n_batches = atomic_load(&fake_counts.n_wr) - 1;
	assert_int_equal(w.remote[8], n_batches);
	assert_true(n_marks > depth);
	world_close(&w);
}

static void
test_short_queues(void **state)
{
	static const uint32_t depths[] = {1, 2, 5, 64, 200};
	static const int limits[] = {64, 100, 2048};
	(void)state;
	for (size_t d = 0; d < sizeof(depths) / sizeof(depths[0]); d++) {
		for (size_t l = 0; l < sizeof(limits) / sizeof(limits[0]); l++) {
			fake.attr[0].max_qp_wr = limits[l];
			fill_up(depths[d], 20);
			fake_reset();
			fake.attr[0].max_cqe = limits[l];
			fill_up(depths[d], 20);
			fake_reset();
			fake.max_send = (uint32_t)limits[l]; /* says more than it can */
			fill_up(depths[d], 20);
			fake_reset();
		}
	}
}

/* Marks and nothing else: twice the depth of them, then there have to be completions. */
static void
test_marks_alone(void **state)
{
	struct world w;
	struct fab_done done;
	(void)state;
	fake.attr[0].max_qp_wr = 64;
	world_open(&w, 1, 100);
	struct fab_op mark = conf_faa(64, 1, w.local, w.key);
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < 200; i++)
			assert_int_equal(fab_post_quiet(w.ep, &mark, 1), 0);
		assert_int_equal(fab_post_quiet(w.ep, &mark, 1), ERR_AGAIN);
		assert_int_equal(fab_poll(w.ep, &done, 1), 0);
		struct fab_op flush = conf_faa(64, 0, w.local, w.key);
		assert_int_equal(conf_batch(w.ep, &flush, 1), 0);
		assert_int_equal(w.remote[8], 200 * (round + 1));
	}
	world_close(&w);
}

/* Long operations go in several work requests: at the end of a segment, of a message. */
static void
test_splitting(void **state)
{
	struct world w;
	unsigned char *sent, *got;
	(void)state;
	fake.attr[0].max_mr_size = 9000; /* two pages */
	fake.max_msg = 3000;
	world_serve(&w, WORLD_REGION_LEN);
	fake.attr[0].max_mr_size = UINT64_MAX;
	world_join(&w, 1, 16);
	sent = (unsigned char *)w.local;
	got = sent + 16384;
	for (uint32_t i = 0; i < 300; i++) {
		uint32_t len = i * 37 % 9000 + 1, cut = i * 11 % (len + 1);
		uint64_t roff = i * 1021 % (WORLD_REGION_LEN - 9000);
		struct fab_op write = conf_write(roff, sent, cut, w.key);
		struct fab_op read = conf_read(roff, got, len - cut, w.key);
		for (uint32_t j = 0; j < len; j++)
			sent[j] = (unsigned char)(i + j * 7);
		memset(got, 0, len);
		write.piece[1] = (struct fab_piece){sent + cut, len - cut, w.key};
		read.piece[1] = (struct fab_piece){got + len - cut, cut, w.key};
		assert_int_equal(conf_batch(w.ep, (struct fab_op[]){write, read}, 2), 0);
		assert_memory_equal(sent, got, len);
		assert_memory_equal(sent, w.side.memory + roff, len);
	}
	/* One completion for all pieces of a batch. */
	atomic_store(&fake_counts.n_signalled, 0);
	atomic_store(&fake_counts.n_wr, 0);
	struct fab_op op = conf_read(8192 - 100, got, 6000, w.key);
	assert_int_equal(conf_batch(w.ep, &op, 1), 0);
	assert_int_equal(atomic_load(&fake_counts.n_signalled), 1);
	assert_int_equal(atomic_load(&fake_counts.n_wr), 3);
	/* Too many pieces for one batch. */
	struct fab_op many[FAB_BATCH_MAX];
	for (unsigned i = 0; i < FAB_BATCH_MAX; i++)
		many[i] = conf_read(0, got, 9000, w.key);
	assert_int_equal(conf_batch(w.ep, many, 4), 0);
	assert_int_equal(conf_batch(w.ep, many, 5), ERR_INVALID);
	world_close(&w);
}

/* Lengths of 0, whole and in part: no piece of it reaches the device. */
static void
test_empty_pieces(void **state)
{
	struct world w;
	(void)state;
	world_open(&w, 1, 16);
	memset(w.local, 0x11, 64);
	struct fab_op ops[] = {
		conf_read(64, w.local, 0, w.key),
		conf_write(64, w.local, 0, w.key),
		conf_write(WORLD_REGION_LEN, w.local, 0, w.key),
		conf_write(128, w.local, 0, w.key),
	};
	ops[3].piece[1] = (struct fab_piece){w.local, 8, w.key};
	for (int i = 0; i < 4; i++)
		assert_int_equal(conf_batch(w.ep, &ops[i], 1), 0);
	assert_int_equal(conf_batch(w.ep, ops, 4), 0);
	assert_true(w.remote[8] == 0 && w.remote[16] == UINT64_C(0x1111111111111111));
	world_close(&w);
}

/* ---- Failures ---- */

#define N_BATCHES 6

/* Posts batches of {FAA; FAA}, and returns how many of them ended well; the others all failed. */
static unsigned
post_and_count(struct world *w, struct fab_done done[N_BATCHES], char cookies[N_BATCHES])
{
	unsigned n_good = 0;
	struct fab_op ops[] = {
		conf_faa(64, 1, w->local, w->key),
		conf_faa(64, 1, w->local + 1, w->key),
	};
	for (int i = 0; i < N_BATCHES; i++)
		assert_int_equal(fab_post(w->ep, ops, 2, &cookies[i]), 0);
	for (int i = 0; i < N_BATCHES; i++) {
		assert_true(conf_poll(w->ep, &done[i]));
		assert_ptr_equal(done[i].cookie, &cookies[i]);
		if (done[i].status == 0) {
			assert_int_equal(n_good, i); /* none after one that failed */
			n_good++;
		} else {
			assert_int_equal(done[i].status, ERR_CONN);
		}
	}
	/* Nothing more comes, and what is posted now fails at once. */
	assert_int_equal(fab_poll(w->ep, &done[0], 1), 0);
	assert_int_equal(conf_batch(w->ep, ops, 2), ERR_CONN);
	assert_int_equal(fab_post_quiet(w->ep, ops, 2), 0);
	return n_good;
}

/* The k-th work request fails. Its opcode is undefined, what follows is flushed. */
static void
test_completion_errors(void **state)
{
	static const enum ibv_wc_status statuses[] = {
		IBV_WC_RETRY_EXC_ERR, IBV_WC_REM_ACCESS_ERR, IBV_WC_LOC_PROT_ERR,
		IBV_WC_WR_FLUSH_ERR,  IBV_WC_REM_OP_ERR,
	};
	struct fab_done done[N_BATCHES];
	char cookies[N_BATCHES], number[32];
	(void)state;
	for (unsigned k = 1; k <= 2 * N_BATCHES; k++) {
		struct world w;
		world_open(&w, 1, 16);
		unsigned n_before = atomic_load(&fake_counts.n_destroyed_qps);
		fake.wr_fails_at = k;
		fake.wr_status = statuses[k % 5];
		assert_int_equal(post_and_count(&w, done, cookies), (k - 1) / 2);
		assert_int_equal(w.remote[8], k - 1);
		assert_int_equal(atomic_load(&fake_counts.n_destroyed_qps), n_before + 1);
		/* One sentence: which, why, what the vendor says. */
		assert_int_equal(w.log.n_lines, 1);
		snprintf(number, sizeof(number), "status %d", (int)statuses[k % 5]);
		assert_non_null(strstr(w.log.last, number));
		assert_non_null(strstr(w.log.last, "vendor error 0x42"));
		assert_non_null(strstr(w.log.last, w.side.offer.verbs_address));
		world_close(&w);
		fake_reset();
	}
}

/* ibv_post_send refuses the k-th work request, in each style: what was before it runs. */
static void
test_post_errors(void **state)
{
	static const int results[] = {ENOMEM, -1, -ENOMEM};
	struct fab_done done[N_BATCHES];
	char cookies[N_BATCHES];
	(void)state;
	for (unsigned k = 1; k <= 2 * N_BATCHES; k++) {
		for (size_t i = 0; i < 3; i++) {
			struct world w;
			world_open(&w, 1, 16);
			fake.post_fails_at = k;
			fake.post_result = results[i];
			assert_int_equal(post_and_count(&w, done, cookies), (k - 1) / 2);
			assert_int_equal(w.remote[8], k - 1);
			assert_int_equal(w.log.n_lines, 1);
			assert_non_null(strstr(w.log.last, strerror(ENOMEM)));
			world_close(&w);
			fake_reset();
		}
	}
}

static void
test_poll_error(void **state)
{
	static const int results[] = {-1, -EIO};
	struct fab_done done[N_BATCHES];
	char cookies[N_BATCHES];
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct world w;
		world_open(&w, 1, 16);
		fake.poll_result = results[i];
		assert_int_equal(post_and_count(&w, done, cookies), 0);
		assert_int_equal(w.log.n_lines, 1);
		world_close(&w);
		fake_reset();
	}
}

/* [LOCAL]: no batch fails before its queue pair is destroyed, also if the device says nothing. */
static void
test_destroyed_before_failed(void **state)
{
	struct world w;
	struct fab_done done;
	(void)state;
	world_open(&w, 1, 16);
	fake.holds_completions = true;
	struct fab_op op = conf_faa(64, 1, w.local, w.key);
	for (int i = 0; i < 3; i++)
		assert_int_equal(fab_post(w.ep, &op, 1, NULL), 0);
	assert_int_equal(fab_poll(w.ep, &done, 1), 0);
	fab_wait(w.ep, fab_now(w.pair.fab) + 100000);
	assert_int_equal(fab_poll(w.ep, &done, 1), 0);
	unsigned n_before = atomic_load(&fake_counts.n_destroyed_qps);
	fab_region_sever(w.pair.region);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(fab_poll(w.ep, &done, 1), 1);
		assert_int_equal(done.status, ERR_CONN);
		assert_int_equal(atomic_load(&fake_counts.n_destroyed_qps), n_before + 1);
	}
	world_close(&w);
}

/* A refused operation: what completed before is delivered, its own batch executes nothing. */
static void
test_refusal(void **state)
{
	struct world w;
	struct fab_done done[3];
	(void)state;
	world_open(&w, 1, 16);
	struct fab_op fine = conf_faa(64, 1, w.local, w.key);
	struct fab_op ops[] = {fine, conf_read(WORLD_REGION_LEN, w.local, 1, w.key)};
	assert_int_equal(fab_post(w.ep, &fine, 1, NULL), 0);
	fab_wait(w.ep, conf_deadline_ns()); /* sent */
	assert_int_equal(fab_post(w.ep, ops, 2, NULL), 0);
	assert_int_equal(fab_post(w.ep, &fine, 1, NULL), 0);
	assert_int_equal(fab_poll(w.ep, done, 3), 3);
	assert_int_equal(done[0].status, 0);
	assert_int_equal(done[1].status, ERR_INVALID);
	assert_int_equal(done[2].status, ERR_CONN);
	assert_int_equal(w.remote[8], 1);
	/* The same by a quiet batch shows in those that follow. */
	struct fab_endpoint *ep;
	assert_int_equal(fab_connect(w.pair.region, NULL, 4, conf_deadline_ns(), &ep), 0);
	assert_int_equal(fab_post_quiet(ep, ops, 2), 0);
	assert_int_equal(conf_batch(ep, &fine, 1), ERR_CONN);
	assert_int_equal(w.remote[8], 1);
	fab_disconnect(ep);
	world_close(&w);
}

/* Local memory that is not registered: the device notices, and says so. */
static void
test_unregistered(void **state)
{
	struct world w;
	uint64_t word = 0;
	(void)state;
	world_open(&w, 1, 16);
	struct fab_op op = conf_read(64, &word, 8, w.key);
	assert_int_equal(conf_batch(w.ep, &op, 1), ERR_CONN);
	assert_non_null(strstr(w.log.last, "not registered"));
	world_close(&w);
}

/* The server has destroyed its end: retries are spent, and a wait hears of it before. */
static void
test_server_cuts(void **state)
{
	struct world w;
	(void)state;
	world_open(&w, 2, 16);
	struct fab_op op = conf_faa(64, 1, w.local, w.key);
	assert_int_equal(conf_batch(w.ep, &op, 1), 0);
	verbs_side_cut(&w.side);
	assert_int_equal(conf_batch(w.ep, &op, 1), ERR_CONN);
	assert_non_null(strstr(w.log.last, "does not answer"));
	fake.holds_completions = true;
	assert_int_equal(conf_batch(w.pair.ep[1], &op, 1), ERR_CONN);
	assert_non_null(strstr(w.log.last, "the server closed it"));
	assert_int_equal(w.remote[8], 1);
	fake.holds_completions = false;
	/* A new connection works. */
	struct fab_endpoint *ep;
	assert_int_equal(fab_connect(w.pair.region, NULL, 4, conf_deadline_ns(), &ep), 0);
	assert_int_equal(conf_batch(ep, &op, 1), 0);
	fab_disconnect(ep);
	world_close(&w);
}

/* ---- Replies of atomics ---- */

static void
test_swapped_replies(void **state)
{
	struct world w;
	struct fab_done done;
	const uint64_t word = UINT64_C(0x0102030405060708);
	(void)state;
	fake.swaps_replies = true;
	world_serve(&w, WORLD_REGION_LEN);
	w.remote[0] = UINT64_C(0x314e4f4947524b52); /* a superblock's first word */
	world_join(&w, 1, 4);
	for (int round = 0; round < 100; round++) {
		struct fab_op ops[] = {
			conf_write(64, &w.local[100], 8, w.key),
			conf_cas(64, word, ~word, &w.local[0], w.key),
			conf_faa(64, 5, &w.local[1], w.key),
			conf_read(64, &w.local[2], 8, w.key),
		};
		w.local[100] = word;
		struct fab_op quiet = conf_faa(72, 1, &w.local[3], w.key);
		assert_int_equal(fab_post_quiet(w.ep, &quiet, 1), 0);
		assert_int_equal(fab_post(w.ep, ops, 4, NULL), 0);
		assert_int_equal(fab_post(w.ep, &ops[3], 1, NULL), 0);
		assert_true(conf_poll(w.ep, &done) && done.status == 0);
		assert_true(w.local[0] == word && w.local[1] == ~word && w.local[2] == ~word + 5);
		assert_true(conf_poll(w.ep, &done) && done.status == 0);
		assert_true(w.local[1] == ~word && w.local[2] == ~word + 5);
		assert_int_equal(w.local[3], round);
	}
	assert_true(w.remote[0] == UINT64_C(0x314e4f4947524b52));
	world_close(&w);
}

static void
test_garbled_replies(void **state)
{
	struct world w;
	(void)state;
	fake.garbles_replies = true;
	world_serve(&w, WORLD_REGION_LEN);
	w.remote[0] = 12345;
	assert_int_equal(verbs_reach(&w.side, &w.log.log, 1, 4, &w.pair), ERR_CORRUPT);
	assert_non_null(strstr(w.log.last, "atomics do not work"));
	assert_true(w.remote[0] == 12345);
	world_stop(&w);
}

/* ---- Memory ---- */

/* Any bytes can be registered: the device gets whole pages (the fake one aborts otherwise). */
static void
test_registering(void **state)
{
	struct world w;
	uint32_t keys[50], key;
	char *bytes = malloc(100000);
	(void)state;
	world_open(&w, 1, 16);
	for (int i = 0; i < 50; i++)
		assert_int_equal(
			fab_register(w.pair.fab, bytes + i * 1999, (size_t)i * 41 + 1, &keys[i]),
			0);
	memcpy(bytes + 49 * 1999, "some bytes", 10);
	struct fab_op op = conf_write(300, bytes + 49 * 1999, 10, keys[49]);
	assert_int_equal(conf_batch(w.ep, &op, 1), 0);
	assert_memory_equal((char *)w.remote + 300, "some bytes", 10);
	for (int i = 0; i < 50; i += 2)
		fab_deregister(w.pair.fab, keys[i]);
	fab_deregister(w.pair.fab, 4711); /* nobody's */
	assert_int_equal(fab_register(w.pair.fab, bytes, 0, &key), ERR_INVALID);
	assert_int_equal(fab_register(w.pair.fab, (void *)-100, 1000, &key), ERR_INVALID);
	world_close(&w); /* the others go with the fabric */
	free(bytes);
}

/* Each test finds the knobs as at the beginning. */
static int
anew(void **state)
{
	(void)state;
	fake_reset();
	return 0;
}

#define TEST(name) cmocka_unit_test_setup(name, anew)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CONF_TESTS,
		TEST(test_costs),
		TEST(test_inline_limits),
		TEST(test_no_malloc),
		TEST(test_short_queues),
		TEST(test_marks_alone),
		TEST(test_splitting),
		TEST(test_empty_pieces),
		TEST(test_completion_errors),
		TEST(test_post_errors),
		TEST(test_poll_error),
		TEST(test_destroyed_before_failed),
		TEST(test_refusal),
		TEST(test_unregistered),
		TEST(test_server_cuts),
		TEST(test_swapped_replies),
		TEST(test_garbled_replies),
		TEST(test_registering),
	};
	conf_factory = &verbs_factory;
	fake_reset();
	return cmocka_run_group_tests_name("fabric verbs", tests, NULL, NULL);
}
