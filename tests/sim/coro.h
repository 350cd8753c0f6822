/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Coroutines: functions with stacks of their own, on one thread. A coroutine runs until it yields
 * or returns; one that is destroyed before it returned is simply never continued.
 */
#ifndef RKV_TESTS_SIM_CORO_H
#define RKV_TESTS_SIM_CORO_H

#include <stdbool.h>

struct coro;

struct coro *coro_create(void (*run)(void *arg), void *arg);
void coro_destroy(struct coro *coro);

/* Runs it on; false: it has returned, now or before. Not from within a coroutine. */
bool coro_resume(struct coro *coro);

/* Gives back to coro_resume. From within the coroutine. */
void coro_yield(struct coro *coro);

#endif
