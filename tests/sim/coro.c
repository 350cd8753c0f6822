/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Coroutines on ucontext, which makes two system calls for each change of stack. Where no sanitizer
 * has to be told of it, changes after the first are by longjmp, without; the fortified longjmp
 * takes every jump between stacks for an error. Stacks are used again: they cost more than most
 * runs.
 */
#undef _FORTIFY_SOURCE
#include <assert.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "tests/sim/coro.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CORO_ASAN 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define CORO_ASAN 1
#endif

#ifdef CORO_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#define STACK_LEN (256u << 10)
#define GUARD_LEN 4096u
#define SPARE_STACKS 64u /* kept for the next coroutines */

struct coro {
	void (*run)(void *arg);
	void *arg;
	bool has_ended;
	ucontext_t inside;
	ucontext_t outside;
	bool has_begun;
	jmp_buf jump_inside;
	jmp_buf jump_outside;
	unsigned char *stack;
	const void *outside_stack; /* ASan: what we came from */
	size_t outside_len;
	void *fake_inside;
	void *fake_outside;
};

static unsigned char *spare[SPARE_STACKS];
static unsigned n_spare;

static unsigned char *
stack_create(void)
{
	unsigned char *stack;

	if (n_spare)
		return spare[--n_spare];
	stack = mmap(NULL, GUARD_LEN + STACK_LEN, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert(stack != MAP_FAILED);
	mprotect(stack, GUARD_LEN, PROT_NONE);
	return stack;
}

static void
stack_destroy(unsigned char *stack)
{
#ifdef CORO_ASAN
	/* Of frames that were never left. */
	__asan_unpoison_memory_region(stack + GUARD_LEN, STACK_LEN);
#endif
	if (n_spare < SPARE_STACKS)
		spare[n_spare++] = stack;
	else
		munmap(stack, GUARD_LEN + STACK_LEN);
}

#ifdef CORO_ASAN

static void
switch_inside(struct coro *coro)
{
	__sanitizer_start_switch_fiber(&coro->fake_outside, coro->stack + GUARD_LEN, STACK_LEN);
	swapcontext(&coro->outside, &coro->inside);
	__sanitizer_finish_switch_fiber(coro->fake_outside, NULL, NULL);
}

static void
arrived_inside(struct coro *coro)
{
	__sanitizer_finish_switch_fiber(coro->fake_inside, &coro->outside_stack,
					&coro->outside_len);
}

static void
switch_outside(struct coro *coro)
{
	__sanitizer_start_switch_fiber(coro->has_ended ? NULL : &coro->fake_inside,
				       coro->outside_stack, coro->outside_len);
	swapcontext(&coro->inside, &coro->outside);
	arrived_inside(coro);
}

#else

static void
switch_inside(struct coro *coro)
{
	if (_setjmp(coro->jump_outside))
		return;
	if (coro->has_begun)
		_longjmp(coro->jump_inside, 1);
	coro->has_begun = true;
	setcontext(&coro->inside);
}

static void
arrived_inside(struct coro *coro)
{
	(void)coro;
}

static void
switch_outside(struct coro *coro)
{
	if (!_setjmp(coro->jump_inside))
		_longjmp(coro->jump_outside, 1);
}

#endif

/* makecontext passes ints only. */
static void
enter(unsigned high, unsigned low)
{
	struct coro *coro = (struct coro *)((uintptr_t)high << 32 | low);

	arrived_inside(coro);
	coro->run(coro->arg);
	coro->has_ended = true;
	switch_outside(coro);
}

struct coro *
coro_create(void (*run)(void *arg), void *arg)
{
	struct coro *coro = calloc(1, sizeof(*coro));
	uintptr_t self = (uintptr_t)coro;

	assert(coro);
	coro->run = run;
	coro->arg = arg;
	coro->stack = stack_create();
	getcontext(&coro->inside);
	coro->inside.uc_stack.ss_sp = coro->stack + GUARD_LEN;
	coro->inside.uc_stack.ss_size = STACK_LEN;
	makecontext(&coro->inside, (void (*)(void))enter, 2, (unsigned)(self >> 32),
		    (unsigned)self);
	return coro;
}

void
coro_destroy(struct coro *coro)
{
	if (!coro)
		return;
	stack_destroy(coro->stack);
	free(coro);
}

bool
coro_resume(struct coro *coro)
{
	if (coro->has_ended)
		return false;
	switch_inside(coro);
	return !coro->has_ended;
}

void
coro_yield(struct coro *coro)
{
	switch_outside(coro);
}
