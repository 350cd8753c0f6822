/* SPDX-License-Identifier: BSD-2-Clause */
/* See heap.h. */
#include "tests/fault/heap.h"

#include <stdlib.h>

#include "tests/fabric/sanitized.h"

static __thread uint64_t n_calls;

uint64_t
heap_calls(void)
{
	return n_calls;
}

#if !SANITIZED
/* glibc's own entry points: what these functions call when nobody interposes. */
void *__libc_malloc(size_t len);
void *__libc_calloc(size_t n, size_t len);
void *__libc_realloc(void *memory, size_t len);
void __libc_free(void *memory);

void *
malloc(size_t len)
{
	n_calls++;
	return __libc_malloc(len);
}

void *
calloc(size_t n, size_t len)
{
	n_calls++;
	return __libc_calloc(n, len);
}

void *
realloc(void *memory, size_t len)
{
	n_calls++;
	return __libc_realloc(memory, len);
}

void
free(void *memory)
{
	n_calls++;
	__libc_free(memory);
}
#endif
