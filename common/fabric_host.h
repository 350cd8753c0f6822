/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a fabric takes from the host it runs on, the same for all of them: members of a fab_driver
 * (common/fabric.h), which look at no object. Any thread.
 */
#ifndef RKV_COMMON_FABRIC_HOST_H
#define RKV_COMMON_FABRIC_HOST_H

#include <stdint.h>

#include "common/fabric.h"

int64_t host_now(struct fab *fab);
uint64_t host_rand(struct fab *fab);

/* Lets others run, and sleeps for 50 us unless until_ns is nearer. */
void host_pause(struct fab *fab, int64_t until_ns);

/* Between two looks at memory that another CPU or a device will change. */
static inline void
host_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

#endif
