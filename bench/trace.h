/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Replays a cache trace in the format of Twitter's (Yang et al., OSDI 2020), a CSV file without a
 * head:
 *
 *   time, key, key size, value size, client, operation, TTL
 *
 *   get, gets                     read                add        add
 *   set                           update              replace    replace
 *   cas                           read-modify-write   delete     delete
 *   append, prepend, incr, decr   read-modify-write of the whole value
 *
 * Operations of one key stay in one thread and hence in their order; times are not kept. Keys that
 * are shorter than their size says are filled up with dots.
 */
#ifndef RKV_BENCH_TRACE_H
#define RKV_BENCH_TRACE_H

#include "bench/source.h"

struct trace;

#define TRACE_REASON_MAX 256u

/*
 * Reads the first n_max operations (0: all). NULL: the reason is a sentence. The sources read from
 * the trace while they live.
 */
struct trace *trace_open(const char *path, uint64_t n_max, char reason[TRACE_REASON_MAX]);
void trace_close(struct trace *trace); /* NULL is nothing */

uint64_t trace_n_operations(const struct trace *trace);
uint64_t trace_value_max(const struct trace *trace); /* bytes */

/* NULL: no memory. */
struct sources *trace_sources(const struct trace *trace, uint32_t n_threads);

#endif
