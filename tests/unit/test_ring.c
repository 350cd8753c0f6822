/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rings that follow one another in the same memory, in threads that know nothing of each other:
 * ThreadSanitizer, which does not see liburing's system calls, must not take them for one. And the
 * sentences for rings that are refused.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/err.h"
#include "common/ring.h"

#define N_THREADS 2
#define ROUNDS 20

/* Whose turn it is: in no order that ThreadSanitizer goes by. */
static unsigned turn;

static int
use_a_ring(void)
{
	struct io_uring ring;
	struct io_uring_cqe *cqe;
	struct io_uring_params params = {0};
	int error = ring_open(&ring, 4, &params);
	if (error)
		return error;
	io_uring_prep_nop(io_uring_get_sqe(&ring));
	if (io_uring_submit_and_wait(&ring, 1) != 1 || io_uring_peek_cqe(&ring, &cqe) != 0)
		error = EIO;
	else
		io_uring_cqe_seen(&ring, cqe);
	ring_close(&ring);
	return error;
}

static void *
take_turns(void *arg)
{
	unsigned self = (unsigned)(uintptr_t)arg;
	int error = 0;
	for (unsigned i = 0; i < ROUNDS; i++) { /* all of them: the other one waits */
		while (__atomic_load_n(&turn, __ATOMIC_RELAXED) != self)
			sched_yield();
		if (!error)
			error = use_a_ring();
		__atomic_store_n(&turn, (self + 1) % N_THREADS, __ATOMIC_RELAXED);
	}
	return (void *)(uintptr_t)error;
}

static void
memory_that_goes_from_ring_to_ring_is_no_race(void **state)
{
	pthread_t threads[N_THREADS];
	void *error;
	(void)state;
	for (uintptr_t i = 0; i < N_THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_turns, (void *)i), 0);
	for (unsigned i = 0; i < N_THREADS; i++) {
		assert_int_equal(pthread_join(threads[i], &error), 0);
		assert_int_equal((uintptr_t)error, 0);
	}
}

static void
what_the_kernel_does_not_know_is_told(void **state)
{
	struct io_uring ring;
	struct io_uring_params params = {.flags = ~0u};
	(void)state;
	assert_int_equal(ring_open(&ring, 4, &params), EINVAL);
}

static void
a_refusal_names_cause_and_remedy(void **state)
{
	const struct {
		int error, rc;
		const char *remedy;
	} all[] = {
		{EPERM, ERR_PERM, ring_disabled() > 0 ? "kernel.io_uring_group" : "io-event"},
		{ENOSYS, ERR_CONN, "CONFIG_IO_URING"},
		{ENOMEM, ERR_NOMEM, "RLIMIT_MEMLOCK"},
		{EMFILE, ERR_NOMEM, "RLIMIT_NOFILE"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		char reason[RING_REASON_MAX];
		int rc = ring_refused(all[i].error, reason, sizeof(reason));
		assert_non_null(strstr(reason, strerror(all[i].error)));
		assert_non_null(strstr(reason, all[i].remedy));
		assert_true(strlen(reason) < sizeof(reason) - 1);
		assert_int_equal(rc, all[i].rc);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_that_goes_from_ring_to_ring_is_no_race),
		cmocka_unit_test(what_the_kernel_does_not_know_is_told),
		cmocka_unit_test(a_refusal_names_cause_and_remedy),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
