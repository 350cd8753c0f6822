/* SPDX-License-Identifier: BSD-2-Clause */
/* Clock, randomness and waiting for all fabrics: see fabric_host.h. */
#include "common/fabric_host.h"

#include <sched.h>
#include <stdbool.h>
#include <sys/random.h>

#include "common/clock.h"

#define SLEEP_MAX_NS 50000

int64_t
host_now(struct fab *fab)
{
	(void)fab;
	return clock_now_ns();
}

/* splitmix64, one generator a thread. */
uint64_t
host_rand(struct fab *fab)
{
	static _Thread_local uint64_t state;
	static _Thread_local bool seeded;
	(void)fab;
	if (!seeded) {
		if (getrandom(&state, sizeof(state), 0) != (ssize_t)sizeof(state))
			state = (uint64_t)clock_now_ns() ^ (uint64_t)(uintptr_t)&state;
		seeded = true;
	}
	uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

void
host_pause(struct fab *fab, int64_t until_ns)
{
	(void)fab;
	sched_yield();
	int64_t left_ns = until_ns - clock_now_ns();
	struct timespec pause = clock_timespec(left_ns < SLEEP_MAX_NS ? left_ns : SLEEP_MAX_NS);
	if (left_ns > 0)
		clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}
