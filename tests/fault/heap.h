/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How often a thread has called the heap. A program that is linked with heap.c has malloc and its
 * like from there; not with a sanitizer, whose own they are: then it is always 0.
 */
#ifndef RKV_TESTS_FAULT_HEAP_H
#define RKV_TESTS_FAULT_HEAP_H

#include <stdint.h>

/* Calls of malloc, calloc, realloc and free by this thread so far. */
uint64_t heap_calls(void);

#endif
