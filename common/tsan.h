/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What ThreadSanitizer cannot see by itself. It knows the order between threads from the calls that
 * it intercepts; where the order comes from elsewhere, such as system calls that a library makes
 * without libc, it is told here. Elsewhere these are nothing.
 */
#ifndef RKV_COMMON_TSAN_H
#define RKV_COMMON_TSAN_H

#if defined(__SANITIZE_THREAD__)
#define TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
#endif
#endif
#ifndef TSAN
#define TSAN 0
#endif

#if TSAN
#include <sanitizer/tsan_interface.h>
#endif

/* What this thread has done is before what another does after tsan_acquire of the same address. */
static inline void
tsan_release(void *at)
{
#if TSAN
	__tsan_release(at);
#else
	(void)at;
#endif
}

static inline void
tsan_acquire(void *at)
{
#if TSAN
	__tsan_acquire(at);
#else
	(void)at;
#endif
}

#endif
