/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The clock of the measurements: nanoseconds that only go forward, the same in all threads and in
 * processes forked after clock_init. Where the kernel itself keeps time by the processor's counter,
 * that is read directly: at two readings an operation, a call of the kernel's page costs as much as
 * a tenth of a GET.
 */
#ifndef RKV_BENCH_CLOCK_H
#define RKV_BENCH_CLOCK_H

#include <stdint.h>
#include <time.h>

#define CLOCK_S_NS UINT64_C(1000000000)

struct clock_scale {
	uint64_t base_ticks;
	uint64_t base_ns;
	uint64_t ns_per_tick; /* times 2^32; 0: no counter, the kernel is asked */
};
extern struct clock_scale clock_scale;

/* Compares the counter with the kernel's clock for some milliseconds. Once, before any thread. */
void clock_init(void);

static inline uint64_t
clock_kernel_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * CLOCK_S_NS + (uint64_t)now.tv_nsec;
}

static inline uint64_t
clock_ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t ticks;
	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
#else
	return 0;
#endif
}

static inline uint64_t
clock_ns(void)
{
	if (clock_scale.ns_per_tick == 0)
		return clock_kernel_ns();
	uint64_t ticks = clock_ticks() - clock_scale.base_ticks;
	unsigned __int128 scaled = (unsigned __int128)ticks * clock_scale.ns_per_tick;
	return clock_scale.base_ns + (uint64_t)(scaled >> 32);
}

/* Sleeps; a little longer, as sleeps are. */
void clock_sleep(uint64_t span_ns);

#endif
