/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel gives up a counter that stops, jumps or differs between cores; so the counter is good
 * if it is what the kernel uses. Its rate is measured over 20 ms between the most closely bracketed
 * of several readings: off by some parts in a million, which is nothing beside a latency.
 */
#include "bench/clock.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define MEASURED_NS (20 * UINT64_C(1000000))
#define TRIES 16

struct clock_scale clock_scale;

static bool
kernel_uses_the_counter(void)
{
	char name[32] = "";
	FILE *file =
		fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
	if (file == NULL)
		return false;
	char *line = fgets(name, sizeof(name), file);
	fclose(file);
	return line && (strcmp(name, "tsc\n") == 0 || strcmp(name, "arch_sys_counter\n") == 0);
}

/* A reading of both clocks, as close to each other as can be had. */
static void
read_both(uint64_t *ret_ticks, uint64_t *ret_ns)
{
	uint64_t best_ns = UINT64_MAX;
	for (int i = 0; i < TRIES; i++) {
		uint64_t before_ns = clock_kernel_ns();
		uint64_t ticks = clock_ticks();
		uint64_t span_ns = clock_kernel_ns() - before_ns;
		if (span_ns >= best_ns)
			continue;
		best_ns = span_ns;
		*ret_ticks = ticks;
		*ret_ns = before_ns + span_ns / 2;
	}
}

void
clock_init(void)
{
	uint64_t ticks = 0;
	uint64_t ns = 0;
	if (!kernel_uses_the_counter())
		return;
	read_both(&clock_scale.base_ticks, &clock_scale.base_ns);
	clock_sleep(MEASURED_NS);
	read_both(&ticks, &ns);
	ticks -= clock_scale.base_ticks;
	ns -= clock_scale.base_ns;
	if (ticks > 0)
		clock_scale.ns_per_tick = (uint64_t)(((unsigned __int128)ns << 32) / ticks);
}

void
clock_sleep(uint64_t span_ns)
{
	struct timespec span = {
		.tv_sec = (time_t)(span_ns / CLOCK_S_NS),
		.tv_nsec = (long)(span_ns % CLOCK_S_NS),
	};
	nanosleep(&span, NULL);
}
