/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The clock of every deadline: CLOCK_BOOTTIME, which also counts while the machine sleeps. Any
 * thread; no system call where the vDSO knows the clock.
 */
#ifndef RKV_COMMON_CLOCK_H
#define RKV_COMMON_CLOCK_H

#include <stdint.h>
#include <time.h>

#define CLOCK_NS_PER_S INT64_C(1000000000)
#define CLOCK_NS_PER_MS INT64_C(1000000)

static inline int64_t
clock_now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_BOOTTIME, &t);
	return (int64_t)t.tv_sec * CLOCK_NS_PER_S + t.tv_nsec;
}

static inline struct timespec
clock_timespec(int64_t ns)
{
	return (struct timespec){.tv_sec = ns / CLOCK_NS_PER_S, .tv_nsec = ns % CLOCK_NS_PER_S};
}

#endif
