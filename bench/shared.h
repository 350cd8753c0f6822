/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that a process has in common with those it forks: zeroed, page-aligned. Any thread. */
#ifndef RKV_BENCH_SHARED_H
#define RKV_BENCH_SHARED_H

#include <stddef.h>

/* NULL: no memory. */
void *shared_alloc(size_t len);

/* NULL is nothing. */
void shared_free(void *memory, size_t len);

#endif
