/* SPDX-License-Identifier: BSD-2-Clause */
/* See tcp_spin.h. */
#include "common/tcp_spin.h"

#include <stdbool.h>

#include "common/clock.h"
#include "common/fabric_host.h"

#define SPIN_NS 100000
#define LOOKS 16 /* between two looks at the clock */
#define SKIPS_MAX 63u

#define NEWS (IORING_SQ_CQ_OVERFLOW | TASK_WORK)
#ifdef IORING_SQ_TASKRUN
#define TASK_WORK IORING_SQ_TASKRUN
#else
#define TASK_WORK 0
#endif

static bool
has_news(const struct io_uring *ring)
{
	return io_uring_cq_ready(ring) > 0 || (IO_URING_READ_ONCE(*ring->sq.kflags) & NEWS) != 0;
}

static bool
look(const struct io_uring *ring)
{
	int64_t until_ns = clock_now_ns() + SPIN_NS;
	do {
		for (int i = 0; i < LOOKS; i++) {
			if (has_news(ring))
				return true;
			host_relax();
		}
	} while (clock_now_ns() < until_ns);
	return false;
}

/* Should this wait look first? */
static bool
is_promising(struct tcp_spin *spin)
{
	if (spin->n_skipped == 0)
		return true;
	spin->n_skipped--;
	return false;
}

static void
learn(struct tcp_spin *spin, bool was_of_use)
{
	spin->n_skips = was_of_use ? 0 : 2 * spin->n_skips + 1;
	if (spin->n_skips > SKIPS_MAX)
		spin->n_skips = SKIPS_MAX;
	spin->n_skipped = spin->n_skips;
}

int
tcp_spin_wait(struct tcp_spin *spin, struct io_uring *ring, unsigned n)
{
	int n_submitted = 0;
	spin->n_calls = 1;
	if (!has_news(ring) && is_promising(spin)) {
		if (io_uring_sq_ready(ring) > 0) {
			spin->n_calls++;
			n_submitted = io_uring_submit(ring);
		}
		if (n_submitted < 0)
			return n_submitted;
		learn(spin, look(ring));
	}
	int rc = io_uring_submit_and_wait(ring, n);
	return rc < 0 && n_submitted > 0 ? n_submitted : rc < 0 ? rc : n_submitted + rc;
}
