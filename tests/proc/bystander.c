/* SPDX-License-Identifier: BSD-2-Clause */
/* Who is to be served whatever others do: bystander.h. */
#include "tests/proc/bystander.h"

#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "bench/histogram.h"
#include "common/clock.h"

#define N_KEYS 64u
#define VALUE_LEN 200u
#define PAUSE_NS 200000       /* so that it does not take the processors from the others */
#define N_SERVED 500u         /* operations before the attack, and so many more after its begin */
#define AGAIN_MAX 10000u      /* answers RKV_AGAIN in a row, a millisecond each */
#define MISREAD (RKV_OK + 99) /* not what was stored */

enum phase { BEFORE, DURING, OVER };

struct bystander {
	struct rkv_client *client;
	struct rkv_session *session;
	pthread_t thread;
	_Atomic enum phase phase;
	_Atomic uint64_t n; /* operations */
	struct histogram ns[OVER];
	unsigned number;     /* each has keys of its own */
	_Atomic int failure; /* the status of the first; then it stopped */
};

static void
sleep_ns(long ns)
{
	nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static int
put(struct bystander *b, const char *key, const char *value)
{
	int rc;
	unsigned n_again = 0;
	while ((rc = rkv_put(b->session, key, strlen(key), value, VALUE_LEN, NULL, NULL)) ==
		       RKV_AGAIN &&
	       n_again++ < AGAIN_MAX)
		sleep_ns(CLOCK_NS_PER_MS);
	return rc;
}

static int
get(struct bystander *b, const char *key, const char *value)
{
	char buf[VALUE_LEN];
	struct rkv_item item;
	int rc = rkv_get(b->session, key, strlen(key), buf, sizeof(buf), &item);
	if (rc == RKV_OK && (item.value_len != VALUE_LEN || memcmp(buf, value, VALUE_LEN) != 0))
		rc = MISREAD;
	return rc;
}

/* Counts an operation; false: it failed. */
static bool
took(struct bystander *b, enum phase phase, int rc, int64_t *since_ns)
{
	int64_t now_ns = clock_now_ns();
	histogram_add(&b->ns[phase], (uint64_t)(now_ns - *since_ns));
	*since_ns = now_ns;
	atomic_fetch_add_explicit(&b->n, 1, memory_order_relaxed);
	atomic_store(&b->failure, rc);
	return rc == RKV_OK;
}

static void *
go_on(void *arg)
{
	struct bystander *b = arg;
	enum phase phase;
	char key[32], value[VALUE_LEN];
	for (unsigned i = 0; (phase = atomic_load(&b->phase)) != OVER; i++) {
		snprintf(key, sizeof(key), "bystander-%u-%u", b->number, i % N_KEYS);
		memset(value, 'a' + (int)(i % 26), sizeof(value));
		memcpy(value, &i, sizeof(i));
		int64_t since_ns = clock_now_ns();
		if (!took(b, phase, put(b, key, value), &since_ns) ||
		    !took(b, phase, get(b, key, value), &since_ns))
			break;
		sleep_ns(PAUSE_NS);
	}
	return NULL;
}

/* Waits until so many operations have been done, or one has failed. */
static void
await(struct bystander *b, uint64_t n)
{
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	while (atomic_load(&b->n) < n && !atomic_load(&b->failure))
		if (!proc_pause(deadline))
			fail_msg("a client is not served");
}

struct bystander *
bystander_start(const struct server *server)
{
	struct rkv_options options;
	static unsigned n;
	struct bystander *b = calloc(1, sizeof(*b));
	assert_non_null(b);
	b->number = ++n;
	login_options(&options, "app");
	options.fabric = RKV_FABRIC_TCP;
	options.op_timeout_ms = PROC_WAIT_MS;
	assert_int_equal(rkv_open(server->address, &options, &b->client), RKV_OK);
	assert_int_equal(rkv_session_open(b->client, &b->session), RKV_OK);
	assert_int_equal(pthread_create(&b->thread, NULL, go_on, b), 0);
	await(b, N_SERVED);
	atomic_store(&b->phase, DURING);
	return b;
}

static uint64_t
p99_us(const struct histogram *ns)
{
	return histogram_percentile(ns, 990000) / 1000;
}

void
bystander_end(struct bystander *b, const char *attack)
{
	struct rkv_stats_values stats;
	await(b, 2 * N_SERVED);
	atomic_store(&b->phase, OVER);
	pthread_join(b->thread, NULL);
	assert_int_equal(rkv_stats(b->session, &stats), RKV_OK);
	printf("# %s: before: %" PRIu64 " operations, p99 %" PRIu64 " us; during: %" PRIu64
	       " operations, p99 %" PRIu64 " us\n",
	       attack, b->ns[BEFORE].n, p99_us(&b->ns[BEFORE]), b->ns[DURING].n,
	       p99_us(&b->ns[DURING]));
	fflush(stdout);
	int failure = atomic_load(&b->failure);
	if (failure)
		fail_msg("a client's operation met with %d (%s)", failure, rkv_strerror(failure));
	assert_int_equal(stats.n_reconnects, 0);
	rkv_close(b->client);
	free(b);
}
