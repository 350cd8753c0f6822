/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waits for a ring: one that looks at it first is a system call more, and that is how looks are
 * counted. What comes is an event that happens when the wait goes to sleep, so that a look before
 * is in vain however long it takes, or a no-op that is there at once.
 */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/ring.h"
#include "common/tcp_spin.h"

static struct io_uring ring;
static int event_fd;
static bool is_late; /* the event happens with the next call that may sleep */

static int
setup(void **state)
{
	struct io_uring_params params = {0};
	(void)state;
	event_fd = eventfd(0, EFD_CLOEXEC);
	return event_fd < 0 ? -1 : ring_open(&ring, 4, &params);
}

static int
teardown(void **state)
{
	(void)state;
	ring_close(&ring);
	close(event_fd);
	return 0;
}

/* Linked in the place of liburing's: the call that may sleep, and no look before it. */
int __real_io_uring_submit_and_wait(struct io_uring *waiting, unsigned n);
int __wrap_io_uring_submit_and_wait(struct io_uring *waiting, unsigned n);

int
__wrap_io_uring_submit_and_wait(struct io_uring *waiting, unsigned n)
{
	if (is_late)
		assert_int_equal(eventfd_write(event_fd, 1), 0);
	is_late = false;
	return __real_io_uring_submit_and_wait(waiting, n);
}

static void
take_one(int expected)
{
	struct io_uring_cqe *cqe;
	assert_int_equal(io_uring_peek_cqe(&ring, &cqe), 0);
	assert_int_equal(cqe->res, expected);
	io_uring_cqe_seen(&ring, cqe);
}

static unsigned
wait_in_vain(struct tcp_spin *spin)
{
	eventfd_t n;
	io_uring_prep_poll_add(io_uring_get_sqe(&ring), event_fd, POLLIN);
	is_late = true;
	assert_int_equal(tcp_spin_wait(spin, &ring, 1), 1);
	take_one(POLLIN);
	assert_int_equal(eventfd_read(event_fd, &n), 0);
	return spin->n_calls;
}

static unsigned
wait_for_what_comes(struct tcp_spin *spin)
{
	io_uring_prep_nop(io_uring_get_sqe(&ring));
	assert_int_equal(tcp_spin_wait(spin, &ring, 1), 1);
	take_one(0);
	return spin->n_calls;
}

/* After one in vain a wait does not look, then three, then seven. */
static void
looks_in_vain_become_rare(void **state)
{
	struct tcp_spin spin = {0};
	(void)state;
	for (unsigned i = 0; i < 14; i++)
		assert_int_equal(wait_in_vain(&spin), i == 0 || i == 2 || i == 6 ? 2 : 1);
}

static void
one_in_64_remains(void **state)
{
	struct tcp_spin spin = {0};
	(void)state;
	for (unsigned i = 0; i < 20; i++) {
		spin.n_skipped = 0; /* as if that many waits had passed */
		assert_int_equal(wait_in_vain(&spin), 2);
		assert_in_range(spin.n_skipped, 1, 63);
	}
	assert_int_equal(spin.n_skipped, 63);
}

static void
one_that_is_of_use_brings_them_back(void **state)
{
	struct tcp_spin spin = {.n_skips = 63};
	(void)state;
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(wait_for_what_comes(&spin), 2);
}

/* What is there already needs neither a look nor a second call. */
static void
what_is_there_is_taken(void **state)
{
	struct tcp_spin spin = {0};
	(void)state;
	io_uring_prep_nop(io_uring_get_sqe(&ring));
	assert_int_equal(io_uring_submit(&ring), 1);
	assert_int_equal(tcp_spin_wait(&spin, &ring, 1), 0);
	assert_int_equal(spin.n_calls, 1);
	take_one(0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(looks_in_vain_become_rare),
		cmocka_unit_test(one_in_64_remains),
		cmocka_unit_test(one_that_is_of_use_brings_them_back),
		cmocka_unit_test(what_is_there_is_taken),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
