/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The conformance suite. Threads other than the main one never assert (cmocka jumps out of a failed
 * assertion): they count what is wrong, and the main thread asserts the counts.
 */
#include "tests/fabric/conformance.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/err.h"

#define REGION_LEN UINT64_C(65536)
#define DEPTH 16u
#define LOCAL_LEN 4096u

const struct conf_factory *conf_factory;

/* ---- Helpers ---- */

struct fab_op
conf_read(uint64_t roff, void *local, uint32_t len, uint32_t key)
{
	return (struct fab_op){.kind = FAB_READ, .roff = roff, .piece = {{local, len, key}}};
}

struct fab_op
conf_write(uint64_t roff, void *local, uint32_t len, uint32_t key)
{
	return (struct fab_op){.kind = FAB_WRITE, .roff = roff, .piece = {{local, len, key}}};
}

struct fab_op
conf_cas(uint64_t roff, uint64_t expect, uint64_t swap, uint64_t *old, uint32_t key)
{
	return (struct fab_op){
		.kind = FAB_CAS,
		.roff = roff,
		.piece = {{old, 8, key}},
		.expect = expect,
		.swap = swap,
	};
}

struct fab_op
conf_faa(uint64_t roff, uint64_t add, uint64_t *old, uint32_t key)
{
	return (struct fab_op){
		.kind = FAB_FAA, .roff = roff, .piece = {{old, 8, key}}, .expect = add};
}

bool
conf_poll(struct fab_endpoint *ep, struct fab_done *ret_done)
{
	struct fab *fab = ep->region->fab;
	int64_t deadline_ns = fab_now(fab) + CONF_WAIT_NS;
	while (fab_poll(ep, ret_done, 1) == 0) {
		if (fab_now(fab) > deadline_ns)
			return false;
		fab_wait(ep, deadline_ns);
	}
	return true;
}

int
conf_batch(struct fab_endpoint *ep, const struct fab_op *ops, unsigned n)
{
	struct fab_done done;
	int cookie;
	int r = fab_post(ep, ops, n, &cookie);
	if (r)
		return r;
	if (!conf_poll(ep, &done))
		return ERR_TIMEOUT;
	return done.cookie == &cookie ? done.status : ERR_CORRUPT;
}

int
conf_in_child(int (*child)(void *), void *arg)
{
	int status;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(30);
		_exit(child(arg));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

void
conf_child_succeeds(int (*child)(void *), void *arg)
{
	int status = conf_in_child(child, arg);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

int
conf_filter(struct sock_filter *filter, size_t n)
{
	struct sock_fprog program = {(unsigned short)n, filter};
	if (!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	    !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return 0;
	dprintf(STDOUT_FILENO, "# skipped: no system call filter (seccomp): %s\n", strerror(errno));
	return -1;
}

/* What most tests work with: a pair, and registered local memory. */
struct bench {
	struct conf_pair pair;
	struct fab_endpoint *ep; /* the first */
	unsigned char *local;    /* LOCAL_LEN bytes, 4096-aligned */
	uint64_t *words;         /* the same */
	uint32_t key;
};

static void
bench_open(struct bench *b, unsigned n, uint32_t depth)
{
	void *local = NULL;
	memset(b, 0, sizeof(*b));
	assert_int_equal(conf_factory->open(REGION_LEN, n, depth, &b->pair), 0);
	assert_int_equal(posix_memalign(&local, 4096, LOCAL_LEN), 0);
	memset(local, 0, LOCAL_LEN);
	b->ep = b->pair.ep[0];
	b->local = local;
	b->words = local;
	assert_int_equal(fab_register(b->pair.fab, local, LOCAL_LEN, &b->key), 0);
}

static void
bench_close(struct bench *b)
{
	fab_deregister(b->pair.fab, b->key);
	conf_factory->close(&b->pair);
	free(b->local);
}

static void
put_word(struct bench *b, uint64_t roff, uint64_t word)
{
	b->words[0] = word;
	struct fab_op op = conf_write(roff, b->words, 8, b->key);
	assert_int_equal(conf_batch(b->ep, &op, 1), 0);
}

static uint64_t
get_word(struct bench *b, uint64_t roff)
{
	struct fab_op op = conf_read(roff, b->words, 8, b->key);
	assert_int_equal(conf_batch(b->ep, &op, 1), 0);
	return b->words[0];
}

static void
fill(unsigned char *bytes, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		bytes[i] = (unsigned char)(seed * 31 + i * 7 + 1);
}

/* A thread of a test, with an endpoint and registered memory of its own. */
struct actor {
	pthread_t thread;
	pthread_barrier_t *start;
	void *(*main)(void *);
	struct bench *bench;
	struct fab_endpoint *ep;
	uint64_t *words; /* a page of its own */
	uint32_t key;
	unsigned id;
	unsigned n_rounds;
	unsigned n_bad;    /* broken promises seen */
	unsigned n_failed; /* batches that failed, or waits that took too long */
};

static void
actor_init(struct actor *a, struct bench *b, unsigned id, unsigned n_rounds)
{
	void *page = NULL;
	*a = (struct actor){.bench = b, .ep = b->pair.ep[id], .id = id, .n_rounds = n_rounds};
	assert_int_equal(posix_memalign(&page, 4096, LOCAL_LEN), 0);
	memset(page, 0, LOCAL_LEN);
	a->words = page;
	assert_int_equal(fab_register(b->pair.fab, page, LOCAL_LEN, &a->key), 0);
}

static void *
actor_main(void *arg)
{
	struct actor *a = arg;
	pthread_barrier_wait(a->start);
	return a->main(a);
}

/* Runs n actors, which start together. */
static void
actors_run(struct bench *b, void *(*const *mains)(void *), unsigned n, unsigned n_rounds)
{
	struct actor actor[CONF_ENDPOINTS_MAX];
	pthread_barrier_t start;
	unsigned n_bad = 0, n_failed = 0;
	pthread_barrier_init(&start, NULL, n);
	for (unsigned i = 0; i < n; i++) {
		actor_init(&actor[i], b, i, n_rounds);
		actor[i].start = &start;
		actor[i].main = mains[i];
	}
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(pthread_create(&actor[i].thread, NULL, actor_main, &actor[i]), 0);
	for (unsigned i = 0; i < n; i++) {
		pthread_join(actor[i].thread, NULL);
		n_bad += actor[i].n_bad;
		n_failed += actor[i].n_failed;
		fab_deregister(b->pair.fab, actor[i].key);
		free(actor[i].words);
	}
	pthread_barrier_destroy(&start);
	assert_int_equal(n_bad, 0);
	assert_int_equal(n_failed, 0);
}

/* READs the word at roff until it is at least `want`; false if that takes too long. */
static bool
await_word(struct actor *a, uint64_t roff, uint64_t want)
{
	struct fab *fab = a->bench->pair.fab;
	int64_t deadline_ns = fab_now(fab) + CONF_WAIT_NS;
	struct fab_op op = conf_read(roff, &a->words[500], 8, a->key);
	do {
		if (conf_batch(a->ep, &op, 1) || fab_now(fab) > deadline_ns)
			return false;
		if (a->words[500] < want)
			fab_wait(a->ep, fab_now(fab) + 1000);
	} while (a->words[500] < want);
	return true;
}

/* ---- One operation at a time ---- */

void
conf_test_read_write(void **state)
{
	struct bench b;
	(void)state;
	bench_open(&b, 2, DEPTH);
	fill(b.local, 256, 1);
	struct fab_op write = conf_write(1000, b.local, 256, b.key);
	struct fab_op read = conf_read(1000, b.local + 1024, 256, b.key);
	assert_int_equal(conf_batch(b.ep, &write, 1), 0);
	assert_int_equal(conf_batch(b.ep, &read, 1), 0);
	assert_memory_equal(b.local, b.local + 1024, 256);
	/* A READ behind a WRITE of the same bytes in one batch. */
	fill(b.local, 256, 2);
	memset(b.local + 1024, 0, 256);
	assert_int_equal(conf_batch(b.ep, (struct fab_op[]){write, read}, 2), 0);
	assert_memory_equal(b.local, b.local + 1024, 256);
	/* Another endpoint sees it, once a READ on the first has. */
	memset(b.local + 1024, 0, 256);
	assert_int_equal(conf_batch(b.pair.ep[1], &read, 1), 0);
	assert_memory_equal(b.local, b.local + 1024, 256);
	bench_close(&b);
}

void
conf_test_pieces(void **state)
{
	static const uint32_t lens[][2] = {{1, 1},  {40, 7}, {8, 8},     {5, 300},
					   {64, 0}, {3, 5},  {128, 1000}};
	struct bench b;
	(void)state;
	bench_open(&b, 1, DEPTH);
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		uint32_t first = lens[i][0], second = lens[i][1];
		fill(b.local, first, 3);
		fill(b.local + 1000, second, 4);
		struct fab_op write = conf_write(512, b.local, first, b.key);
		struct fab_op read = conf_read(512, b.local + 2100, second, b.key);
		write.piece[1] = (struct fab_piece){b.local + 1000, second, b.key};
		/* Scattered the other way round, so that the seam lies elsewhere. */
		read.piece[1] = (struct fab_piece){b.local + 3200, first, b.key};
		if (second == 0) {
			read.piece[0] = (struct fab_piece){b.local + 3200, first, b.key};
			read.piece[1] = (struct fab_piece){0};
		}
		assert_int_equal(conf_batch(b.ep, (struct fab_op[]){write, read}, 2), 0);
		unsigned char sent[2000], got[2000];
		memcpy(sent, b.local, first);
		memcpy(sent + first, b.local + 1000, second);
		memcpy(got, b.local + 2100, second);
		memcpy(got + second, b.local + 3200, first);
		assert_memory_equal(sent, got, first + second);
	}
	bench_close(&b);
}

void
conf_test_lengths(void **state)
{
	struct bench b;
	(void)state;
	bench_open(&b, 1, DEPTH);
	for (uint32_t len = 1; len <= 300; len++) {
		uint32_t align = len % 16, local_align = len / 16 % 16;
		unsigned char *out = b.local + local_align, *in = b.local + 1024 + align;
		fill(out, len, len);
		memset(in - 1, 0xa5, len + 2);
		/* What lies around must stay: a frame of zeros. */
		memset(b.local + 2048, 0, 340);
		struct fab_op ops[] = {
			conf_write(4096, b.local + 2048, 340, b.key),
			conf_write(4096 + 16 + align, out, len, b.key),
			conf_read(4096 + 16 + align, in, len, b.key),
			conf_read(4096, b.local + 2048, 340, b.key),
		};
		/*
		 * Two WRITEs to the same bytes have no order in a batch; nor has a READ behind a
		 * READ.
		 */
		for (int i = 0; i < 4; i++)
			assert_int_equal(conf_batch(b.ep, &ops[i], 1), 0);
		assert_memory_equal(in, out, len);
		assert_int_equal(in[-1], 0xa5);
		assert_int_equal(in[len], 0xa5);
		for (uint32_t i = 0; i < 340; i++) {
			bool inside = i >= 16 + align && i < 16 + align + len;
			assert_int_equal(b.local[2048 + i], inside ? out[i - 16 - align] : 0);
		}
	}
	bench_close(&b);
}

void
conf_test_cas(void **state)
{
	struct bench b;
	(void)state;
	bench_open(&b, 1, DEPTH);
	put_word(&b, 64, 7);
	struct fab_op win = conf_cas(64, 7, UINT64_C(0xfedcba9876543210), &b.words[10], b.key);
	assert_int_equal(conf_batch(b.ep, &win, 1), 0);
	assert_true(b.words[10] == 7);
	assert_true(get_word(&b, 64) == UINT64_C(0xfedcba9876543210));
	struct fab_op lose = conf_cas(64, 7, 9, &b.words[10], b.key);
	assert_int_equal(conf_batch(b.ep, &lose, 1), 0);
	assert_true(b.words[10] == UINT64_C(0xfedcba9876543210));
	assert_true(get_word(&b, 64) == UINT64_C(0xfedcba9876543210));
	/* CAS before READ in one batch. */
	struct fab_op ops[] = {
		conf_cas(64, UINT64_C(0xfedcba9876543210), 11, &b.words[10], b.key),
		conf_read(64, &b.words[11], 8, b.key),
	};
	assert_int_equal(conf_batch(b.ep, ops, 2), 0);
	assert_true(b.words[11] == 11);
	bench_close(&b);
}

void
conf_test_faa(void **state)
{
	struct bench b;
	(void)state;
	bench_open(&b, 1, DEPTH);
	put_word(&b, 72, UINT64_MAX);
	struct fab_op op = conf_faa(72, 3, &b.words[10], b.key);
	assert_int_equal(conf_batch(b.ep, &op, 1), 0);
	assert_true(b.words[10] == UINT64_MAX);
	assert_true(get_word(&b, 72) == 2);
	op = conf_faa(72, 0, &b.words[10], b.key);
	assert_int_equal(conf_batch(b.ep, &op, 1), 0);
	assert_true(b.words[10] == 2);
	assert_true(get_word(&b, 72) == 2);
	bench_close(&b);
}

/* ---- Several threads ---- */

/* Of a loop that looks for races by many rounds. */
static unsigned
rounds_of(unsigned n)
{
	return conf_factory->is_slow ? n / 10 : n;
}

static void *
counting_main(void *arg)
{
	struct actor *a = arg;
	for (unsigned i = 0; i < a->n_rounds; i++) {
		struct fab_op faa = conf_faa(128, 1, &a->words[0], a->key);
		a->n_failed += conf_batch(a->ep, &faa, 1) != 0;
		uint64_t seen;
		do {
			seen = a->words[1];
			struct fab_op cas = conf_cas(136, seen, seen + 1, &a->words[1], a->key);
			a->n_failed += conf_batch(a->ep, &cas, 1) != 0;
		} while (a->words[1] != seen && !a->n_failed);
	}
	return NULL;
}

/* Atomics are atomic: nothing is lost, neither by FAA nor by CAS. */
void
conf_test_counting(void **state)
{
	struct bench b;
	unsigned n = rounds_of(100000);
	(void)state;
	bench_open(&b, 3, DEPTH);
	put_word(&b, 128, 0);
	put_word(&b, 136, 0);
	actors_run(&b, (void *(*const[])(void *)){counting_main, counting_main, counting_main}, 3,
		   n);
	assert_true(get_word(&b, 128) == 3 * n);
	assert_true(get_word(&b, 136) == 3 * n);
	bench_close(&b);
}

#define TORN_OFF 192u

/* Both halves of a word say the same, so that a torn one is seen. */
static void *
untorn_writer(void *arg)
{
	struct actor *a = arg;
	for (uint32_t i = 0; i < a->n_rounds; i++) {
		uint64_t half = a->id << 24 | i;
		a->words[0] = half << 32 | half;
		struct fab_op op = conf_write(TORN_OFF, a->words, 8, a->key);
		a->n_failed += conf_batch(a->ep, &op, 1) != 0;
	}
	return NULL;
}

static void *
untorn_reader(void *arg)
{
	struct actor *a = arg;
	for (unsigned i = 0; i < a->n_rounds; i++) {
		struct fab_op op = conf_read(TORN_OFF, a->words, 8, a->key);
		a->n_failed += conf_batch(a->ep, &op, 1) != 0;
		a->n_bad += a->words[0] >> 32 != (a->words[0] & UINT32_MAX);
	}
	return NULL;
}

void
conf_test_untorn(void **state)
{
	struct bench b;
	(void)state;
	bench_open(&b, 3, DEPTH);
	put_word(&b, TORN_OFF, 0);
	actors_run(&b, (void *(*const[])(void *)){untorn_writer, untorn_writer, untorn_reader}, 3,
		   rounds_of(20000));
	bench_close(&b);
}

#define MESSAGE_OFF 1024u
#define MESSAGE_LEN 200u
#define FLAG_OFF 512u /* counts messages sent */
#define ACK_OFF 576u  /* counts messages received */

static void *
message_sender(void *arg)
{
	struct actor *a = arg;
	for (unsigned i = 0; i < a->n_rounds && !a->n_failed; i++) {
		memset(a->words, (int)(i & 0xff), MESSAGE_LEN);
		struct fab_op ops[] = {
			conf_write(MESSAGE_OFF + i % 8, a->words, MESSAGE_LEN, a->key),
			conf_cas(FLAG_OFF, i, i + 1, &a->words[400], a->key),
		};
		a->n_failed += conf_batch(a->ep, ops, 2) != 0;
		a->n_bad += a->words[400] != i;
		a->n_failed += !await_word(a, ACK_OFF, i + 1);
	}
	return NULL;
}

static void *
message_receiver(void *arg)
{
	struct actor *a = arg;
	for (unsigned i = 0; i < a->n_rounds && !a->n_failed; i++) {
		a->n_failed += !await_word(a, FLAG_OFF, i + 1);
		struct fab_op read = conf_read(MESSAGE_OFF + i % 8, a->words, MESSAGE_LEN, a->key);
		a->n_failed += conf_batch(a->ep, &read, 1) != 0;
		const unsigned char *bytes = (const unsigned char *)a->words;
		for (unsigned j = 0; j < MESSAGE_LEN; j++)
			a->n_bad += bytes[j] != (i & 0xff);
		struct fab_op ack = conf_faa(ACK_OFF, 1, &a->words[400], a->key);
		a->n_failed += conf_batch(a->ep, &ack, 1) != 0;
	}
	return NULL;
}

/* WRITE before CAS: whoever sees the CAS sees the bytes, [PUBLISH]. */
void
conf_test_message_passing(void **state)
{
	struct bench b;
	(void)state;
	bench_open(&b, 2, DEPTH);
	put_word(&b, FLAG_OFF, 0);
	put_word(&b, ACK_OFF, 0);
	actors_run(&b, (void *(*const[])(void *)){message_sender, message_receiver}, 2, 5000);
	bench_close(&b);
}

#define SB_OFF 2048u /* two words, 64 bytes apart */
static pthread_barrier_t sb_barrier;
static _Atomic uint64_t sb_seen[2];

/* Each puts its own word and looks at the other's: they must not miss each other, [I1]. */
static void *
sb_main(void *arg)
{
	struct actor *a = arg;
	uint64_t own = SB_OFF + 64 * a->id, other = SB_OFF + 64 * (1 - a->id);
	for (uint64_t i = 1; i <= a->n_rounds; i++) {
		struct fab_op ops[] = {
			conf_cas(own, i - 1, i, &a->words[0], a->key),
			conf_read(own, &a->words[1], 8, a->key),
			conf_read(other, &a->words[2], 8, a->key),
		};
		pthread_barrier_wait(&sb_barrier);
		a->n_failed += conf_batch(a->ep, ops, 3) != 0;
		a->n_bad += a->words[0] != i - 1 || a->words[1] != i;
		atomic_store(&sb_seen[a->id], a->words[2]);
		pthread_barrier_wait(&sb_barrier);
		a->n_bad += atomic_load(&sb_seen[0]) != i && atomic_load(&sb_seen[1]) != i;
	}
	return NULL;
}

void
conf_test_store_buffering(void **state)
{
	struct bench b;
	(void)state;
	bench_open(&b, 2, DEPTH);
	put_word(&b, SB_OFF, 0);
	put_word(&b, SB_OFF + 64, 0);
	pthread_barrier_init(&sb_barrier, NULL, 2);
	actors_run(&b, (void *(*const[])(void *)){sb_main, sb_main}, 2, 5000);
	pthread_barrier_destroy(&sb_barrier);
	bench_close(&b);
}

/* ---- Completions ---- */

/* Each batch completes once, with its cookie, in post order, however it is polled. */
void
conf_test_completions(void **state)
{
	struct bench b;
	char cookies[DEPTH];
	struct fab_done done[5];
	unsigned n_posted = 0, n_polled = 0;
	(void)state;
	bench_open(&b, 1, DEPTH);
	struct fab_op op = conf_read(0, b.words, 8, b.key);
	assert_int_equal(fab_poll(b.ep, done, 5), 0);
	for (unsigned round = 0; n_polled < 1000; round++) {
		for (unsigned i = 0; i <= round % 7 && n_posted - n_polled < DEPTH; i++, n_posted++)
			assert_int_equal(fab_post(b.ep, &op, 1, &cookies[n_posted % DEPTH]), 0);
		unsigned max = round % 5 + 1;
		unsigned n = fab_poll(b.ep, done, max);
		assert_in_range(n, 0, max);
		for (unsigned i = 0; i < n; i++, n_polled++) {
			assert_ptr_equal(done[i].cookie, &cookies[n_polled % DEPTH]);
			assert_int_equal(done[i].status, 0);
		}
		fab_wait(b.ep, fab_now(b.pair.fab) + (n == 0 ? 1000000 : 0));
	}
	for (; n_polled < n_posted; n_polled++)
		assert_true(conf_poll(b.ep, done));
	assert_int_equal(fab_poll(b.ep, done, 5), 0);
	bench_close(&b);
}

void
conf_test_depth(void **state)
{
	static const uint32_t depths[] = {1, 2, 3, 7, DEPTH};
	(void)state;
	for (size_t d = 0; d < sizeof(depths) / sizeof(depths[0]); d++) {
		struct bench b;
		struct fab_done done;
		char cookies[DEPTH + 1];
		bench_open(&b, 1, depths[d]);
		put_word(&b, 0, 0);
		struct fab_op op = conf_faa(0, 1, b.words, b.key);
		for (uint32_t i = 0; i < depths[d]; i++)
			assert_int_equal(fab_post(b.ep, &op, 1, &cookies[i]), 0);
		assert_int_equal(fab_post(b.ep, &op, 1, NULL), ERR_AGAIN);
		assert_int_equal(fab_post(b.ep, &op, 1, NULL), ERR_AGAIN);
		/* One polled makes room for one. */
		assert_true(conf_poll(b.ep, &done));
		assert_ptr_equal(done.cookie, &cookies[0]);
		assert_int_equal(fab_post(b.ep, &op, 1, &cookies[depths[d]]), 0);
		assert_int_equal(fab_post(b.ep, &op, 1, NULL), ERR_AGAIN);
		for (uint32_t i = 1; i <= depths[d]; i++) {
			assert_true(conf_poll(b.ep, &done));
			assert_ptr_equal(done.cookie, &cookies[i]);
			assert_int_equal(done.status, 0);
		}
		/* What was refused was not executed. */
		assert_true(get_word(&b, 0) == depths[d] + 1);
		bench_close(&b);
	}
}

/*
 * Quiet batches complete nothing, and are there when an atomic behind them has completed, [MARK].
 */
void
conf_test_quiet(void **state)
{
	struct bench b;
	struct fab_done done;
	(void)state;
	bench_open(&b, 1, DEPTH);
	put_word(&b, 256, 0);
	fill(b.local + 512, 100, 9);
	for (unsigned i = 0; i < 100; i++) {
		struct fab_op mark = conf_write(300 + i, b.local + 512 + i, 1, b.key);
		int r;
		while ((r = fab_post_quiet(b.ep, &mark, 1)) == ERR_AGAIN) {
			/* Only what asks for a completion may have one; this makes room. */
			struct fab_op flush = conf_faa(256, 0, b.words, b.key);
			assert_int_equal(conf_batch(b.ep, &flush, 1), 0);
		}
		assert_int_equal(r, 0);
		assert_int_equal(fab_poll(b.ep, &done, 1), 0);
	}
	struct fab_op flush = conf_faa(256, 0, b.words, b.key);
	struct fab_op read = conf_read(300, b.local + 1024, 100, b.key);
	assert_int_equal(conf_batch(b.ep, &flush, 1), 0);
	assert_int_equal(conf_batch(b.ep, &read, 1), 0);
	assert_memory_equal(b.local + 512, b.local + 1024, 100);
	assert_int_equal(fab_poll(b.ep, &done, 1), 0);
	bench_close(&b);
}

void
conf_test_batch_max(void **state)
{
	struct bench b;
	struct fab_op ops[FAB_BATCH_MAX + 1];
	struct fab_done done;
	(void)state;
	bench_open(&b, 1, DEPTH);
	put_word(&b, 0, 0);
	for (unsigned i = 0; i <= FAB_BATCH_MAX; i++)
		ops[i] = conf_faa(0, 1, &b.words[16 + i], b.key);
	assert_int_equal(conf_batch(b.ep, ops, FAB_BATCH_MAX), 0);
	assert_true(get_word(&b, 0) == FAB_BATCH_MAX);
	for (unsigned i = 0; i < FAB_BATCH_MAX; i++)
		assert_true(b.words[16 + i] == i);
	assert_int_equal(fab_post(b.ep, ops, FAB_BATCH_MAX + 1, NULL), ERR_INVALID);
	assert_int_equal(fab_post(b.ep, ops, 0, NULL), ERR_INVALID);
	assert_int_equal(fab_poll(b.ep, &done, 1), 0);
	assert_true(get_word(&b, 0) == FAB_BATCH_MAX);
	bench_close(&b);
}

/* ---- Failures ---- */

/*
 * An operation outside the region, or a misplaced atomic, fails the batch and ends the connection.
 */
static void
check_violation(struct fab_op op)
{
	struct bench b;
	struct fab_done done;
	char cookies[2];
	bench_open(&b, 1, DEPTH);
	for (int i = 0; i < 2; i++) {
		if (op.piece[i].len)
			op.piece[i].local = b.local + 2048 * i;
		op.piece[i].key = b.key;
	}
	struct fab_op fine = conf_read(0, b.local + 1024, 8, b.key);
	struct fab_op ops[] = {fine, op};
	assert_int_equal(fab_post(b.ep, ops, 2, &cookies[0]), 0);
	assert_true(conf_poll(b.ep, &done));
	assert_ptr_equal(done.cookie, &cookies[0]);
	assert_int_equal(done.status, ERR_INVALID);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(fab_post(b.ep, &fine, 1, &cookies[1]), 0);
		assert_true(conf_poll(b.ep, &done));
		assert_ptr_equal(done.cookie, &cookies[1]);
		assert_int_equal(done.status, ERR_CONN);
	}
	/* Another connection is not concerned. */
	struct fab_endpoint *fresh;
	int64_t deadline_ns = fab_now(b.pair.fab) + CONF_WAIT_NS;
	assert_int_equal(fab_connect(b.pair.region, NULL, DEPTH, deadline_ns, &fresh), 0);
	assert_int_equal(conf_batch(fresh, &fine, 1), 0);
	fab_disconnect(fresh);
	bench_close(&b);
}

void
conf_test_range(void **state)
{
	(void)state;
	check_violation(
		(struct fab_op){.kind = FAB_READ, .roff = REGION_LEN, .piece = {{0, 1, 0}}});
	check_violation(
		(struct fab_op){.kind = FAB_READ, .roff = REGION_LEN - 7, .piece = {{0, 8, 0}}});
	check_violation(
		(struct fab_op){.kind = FAB_WRITE, .roff = REGION_LEN - 7, .piece = {{0, 8, 0}}});
	check_violation((struct fab_op){
		.kind = FAB_WRITE, .roff = REGION_LEN - 100, .piece = {{0, 64, 0}, {0, 37, 0}}});
	check_violation(
		(struct fab_op){.kind = FAB_READ, .roff = UINT64_MAX - 3, .piece = {{0, 8, 0}}});
	check_violation(
		(struct fab_op){.kind = FAB_READ, .roff = UINT64_MAX, .piece = {{0, 8, 0}}});
	check_violation(
		(struct fab_op){.kind = FAB_WRITE, .roff = INT64_MAX, .piece = {{0, 8, 0}}});
	check_violation((struct fab_op){.kind = FAB_CAS, .roff = REGION_LEN, .piece = {{0, 8, 0}}});
	check_violation(
		(struct fab_op){.kind = FAB_FAA, .roff = REGION_LEN - 4, .piece = {{0, 8, 0}}});
	check_violation((struct fab_op){.kind = FAB_CAS, .roff = 4, .piece = {{0, 8, 0}}});
	check_violation((struct fab_op){.kind = FAB_FAA, .roff = 1, .piece = {{0, 8, 0}}});
	/* The last bytes are the caller's. */
	struct bench b;
	bench_open(&b, 1, DEPTH);
	put_word(&b, REGION_LEN - 8, 77);
	assert_true(get_word(&b, REGION_LEN - 8) == 77);
	bench_close(&b);
}

void
conf_test_sever(void **state)
{
	struct bench b;
	struct fab_done done;
	struct fab_endpoint *ep = NULL;
	char cookies[4];
	(void)state;
	bench_open(&b, 2, DEPTH);
	struct fab_op op = conf_read(0, b.words, 8, b.key);
	/* Two are posted and not yet polled, two come after. */
	for (int i = 0; i < 4; i++) {
		assert_int_equal(fab_post(b.ep, &op, 1, &cookies[i]), 0);
		if (i == 1) {
			fab_region_sever(b.pair.region);
			fab_region_sever(b.pair.region);
		}
	}
	for (int i = 0; i < 4; i++) {
		assert_true(conf_poll(b.ep, &done));
		assert_ptr_equal(done.cookie, &cookies[i]);
		assert_int_equal(done.status, ERR_CONN);
	}
	assert_int_equal(fab_poll(b.ep, &done, 1), 0);
	assert_int_equal(conf_batch(b.pair.ep[1], &op, 1), ERR_CONN);
	assert_true(fab_post_quiet(b.ep, &op, 1) <= 0);
	assert_int_equal(
		fab_connect(b.pair.region, NULL, 4, fab_now(b.pair.fab) + CONF_WAIT_NS, &ep),
		ERR_CONN);
	assert_null(ep);
	bench_close(&b);
}

static atomic_bool severed;

/* Posts until the cut is seen and a little longer: once failed, always failed, nothing is lost. */
static void *
severed_main(void *arg)
{
	struct actor *a = arg;
	unsigned n_posted = 0, n_polled = 0, n_after = 0;
	bool failed = false;
	int64_t deadline_ns = fab_now(a->bench->pair.fab) + CONF_WAIT_NS;
	struct fab_op op = conf_read(0, a->words, 64, a->key);
	while (n_after < 100 && fab_now(a->bench->pair.fab) < deadline_ns) {
		struct fab_done done[4];
		/* A batch posted after the cut must fail. */
		bool cut = atomic_load(&severed);
		unsigned first_after = n_posted;
		for (unsigned i = 0; i < 3; i++)
			n_posted += fab_post(a->ep, &op, 1, NULL) == 0;
		unsigned n = fab_poll(a->ep, done, 4);
		for (unsigned i = 0; i < n; i++, n_polled++) {
			a->n_bad += done[i].status != 0 && done[i].status != ERR_CONN;
			a->n_bad += done[i].status == 0 && failed;
			a->n_bad += done[i].status == 0 && cut && n_polled >= first_after;
			failed |= done[i].status != 0;
		}
		n_after += cut;
	}
	struct fab_done done;
	for (; n_polled < n_posted; n_polled++)
		a->n_bad += !conf_poll(a->ep, &done);
	a->n_bad += fab_poll(a->ep, &done, 1) != 0 || !failed;
	return NULL;
}

static void *
severing_main(void *arg)
{
	struct actor *a = arg;
	struct fab_op op = conf_read(0, a->words, 64, a->key);
	for (int i = 0; i < 1000; i++)
		a->n_failed += conf_batch(a->ep, &op, 1) != 0;
	fab_region_sever(a->bench->pair.region);
	atomic_store(&severed, true);
	a->n_bad += conf_batch(a->ep, &op, 1) != ERR_CONN;
	return NULL;
}

void
conf_test_sever_while_posting(void **state)
{
	(void)state;
	for (int round = 0; round < 20; round++) {
		struct bench b;
		bench_open(&b, 3, DEPTH);
		atomic_store(&severed, false);
		actors_run(&b,
			   (void *(*const[])(void *)){severing_main, severed_main, severed_main}, 3,
			   0);
		bench_close(&b);
	}
}

/* A region lives as long as its last endpoint; NULL is nothing. */
void
conf_test_lifetimes(void **state)
{
	struct bench b;
	struct fab_endpoint *ep;
	(void)state;
	fab_disconnect(NULL);
	fab_region_close(NULL);
	fab_close(NULL);
	bench_open(&b, 2, DEPTH);
	for (int i = 0; i < 100; i++) {
		int64_t deadline_ns = fab_now(b.pair.fab) + CONF_WAIT_NS;
		assert_int_equal(fab_connect(b.pair.region, NULL, DEPTH, deadline_ns, &ep), 0);
		struct fab_op op = conf_read(0, b.words, 8, b.key);
		/* Disconnected with a completion that nobody polled. */
		assert_int_equal(fab_post(ep, &op, 1, NULL), 0);
		fab_disconnect(ep);
	}
	fab_region_close(b.pair.region);
	b.pair.region = NULL;
	put_word(&b, 8, 5);
	assert_true(get_word(&b, 8) == 5);
	bench_close(&b);
}

/* ---- Clock, randomness, waiting ---- */

static void *
random_main(void *arg)
{
	struct actor *a = arg;
	for (unsigned i = 0; i < 64; i++)
		a->bench->words[a->id * 64 + i] = fab_rand(a->bench->pair.fab);
	return NULL;
}

/* What fab_rand gave is all different, and has every bit both ways. */
static void
assert_random(const uint64_t *words)
{
	uint64_t any = 0, all = UINT64_MAX;
	for (unsigned i = 0; i < 128; i++) {
		any |= words[i];
		all &= words[i];
		for (unsigned j = 0; j < i; j++)
			assert_true(words[i] != words[j]);
	}
	assert_true(any == UINT64_MAX && all == 0);
}

void
conf_test_clock_and_randomness(void **state)
{
	struct bench b;
	(void)state;
	bench_open(&b, 1, DEPTH);
	int64_t last_ns = 0;
	for (int i = 0; i < 1000; i++) {
		int64_t now_ns = fab_now(b.pair.fab);
		assert_true(now_ns >= last_ns && now_ns > 0);
		last_ns = now_ns;
	}
	for (unsigned i = 0; i < 128; i++)
		b.words[i] = fab_rand(b.pair.fab);
	assert_random(b.words);
	bench_close(&b);
}

void
conf_test_random_threads(void **state)
{
	struct bench b;
	(void)state;
	bench_open(&b, 2, DEPTH);
	actors_run(&b, (void *(*const[])(void *)){random_main, random_main}, 2, 0);
	assert_random(b.words);
	bench_close(&b);
}

/*
 * wait returns: at once for a deadline that passed or a completion that is there, else by its time.
 */
void
conf_test_wait(void **state)
{
	struct bench b;
	struct fab_done done;
	(void)state;
	bench_open(&b, 1, DEPTH);
	struct fab_op op = conf_read(0, b.words, 8, b.key);
	int64_t start_ns = fab_now(b.pair.fab);
	fab_wait(b.ep, 0);
	fab_wait(b.ep, start_ns - 1);
	assert_int_equal(fab_post(b.ep, &op, 1, NULL), 0);
	for (int i = 0; i < 1000 && fab_poll(b.ep, &done, 1) == 0; i++)
		fab_wait(b.ep, start_ns + CONF_WAIT_NS);
	int64_t until_ns = fab_now(b.pair.fab) + 2000000;
	while (fab_now(b.pair.fab) < until_ns)
		fab_wait(b.ep, until_ns);
	fab_pause(b.pair.fab, 0);
	until_ns = fab_now(b.pair.fab) + 2000000;
	while (fab_now(b.pair.fab) < until_ns)
		fab_pause(b.pair.fab, until_ns);
	assert_true(fab_now(b.pair.fab) < start_ns + CONF_WAIT_NS);
	bench_close(&b);
}
