/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Is this a sanitizer's build? It allocates and calls the system on its own, and it is slow: what
 * counts such calls is skipped there, and loads are smaller.
 */
#ifndef RKV_TESTS_FABRIC_SANITIZED_H
#define RKV_TESTS_FABRIC_SANITIZED_H

#ifndef __has_feature
#define __has_feature(feature) 0
#endif

#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define THREAD_SANITIZED 1
#else
#define THREAD_SANITIZED 0
#endif
#if THREAD_SANITIZED || defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#endif
