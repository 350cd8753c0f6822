/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several processes that do the same at once and hand in one result. The process that forms a crew
 * is its member 0; the others are forked there and then, before anything was opened, so that each
 * has descriptors, threads and sessions of its own. They end with it.
 */
#ifndef RKV_BENCH_CREW_H
#define RKV_BENCH_CREW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct crew;

#define CREW_BROKEN (-1000) /* a member has died */

/* Returns in all n processes; each has result_len bytes that all can see. NULL: no memory. */
struct crew *crew_form(uint32_t n, size_t result_len);

uint32_t crew_index(const struct crew *crew);
void *crew_result(struct crew *crew, uint32_t index);

/*
 * Waits for all members. Each brings 0 or a failure; returns, to all, 0 or one of the failures that
 * were brought. CREW_BROKEN: do not wait for anybody any more.
 */
int crew_meet(struct crew *crew, int code);

/* Whether a member has died; to be asked by those who work for long. */
bool crew_is_broken(struct crew *crew);

/* Operations that a member has done so far; and all of them. */
void crew_tell(struct crew *crew, uint64_t n_done);
uint64_t crew_n_done(const struct crew *crew);

/* Ends the process of every member but 0, which waits for them. NULL is nothing. */
void crew_part(struct crew *crew);

#endif
