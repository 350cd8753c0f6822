/* SPDX-License-Identifier: BSD-2-Clause */
/* See sites.h. */
#include "tests/fault/sites.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>

static atomic_bool is_armed;
static atomic_uint n_calls;
static atomic_uint fails_at;

void
sites_arm(unsigned nth)
{
	atomic_store(&n_calls, 0);
	atomic_store(&fails_at, nth);
	atomic_store(&is_armed, true);
}

unsigned
sites_disarm(void)
{
	atomic_store(&is_armed, false);
	return atomic_load(&n_calls);
}

/* Counts a call; sets errno if it is the one that fails. */
static bool
fails(int error)
{
	if (!atomic_load(&is_armed) || atomic_fetch_add(&n_calls, 1) + 1 != atomic_load(&fails_at))
		return false;
	errno = error;
	return true;
}

void *__real_malloc(size_t len);
void *__wrap_malloc(size_t len);
void *__real_calloc(size_t n, size_t len);
void *__wrap_calloc(size_t n, size_t len);
void *__real_realloc(void *old, size_t len);
void *__wrap_realloc(void *old, size_t len);
void *__real_aligned_alloc(size_t alignment, size_t len);
void *__wrap_aligned_alloc(size_t alignment, size_t len);
void *__real_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off);
void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off);
int __real_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol);
int __real_connect(int fd, const struct sockaddr *address, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t len);
int __real_eventfd(unsigned value, int flags);
int __wrap_eventfd(unsigned value, int flags);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*f)(void *),
			  void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*f)(void *),
			  void *arg);

void *
__wrap_malloc(size_t len)
{
	return fails(ENOMEM) ? NULL : __real_malloc(len);
}

void *
__wrap_calloc(size_t n, size_t len)
{
	return fails(ENOMEM) ? NULL : __real_calloc(n, len);
}

void *
__wrap_realloc(void *old, size_t len)
{
	return fails(ENOMEM) ? NULL : __real_realloc(old, len);
}

void *
__wrap_aligned_alloc(size_t alignment, size_t len)
{
	return fails(ENOMEM) ? NULL : __real_aligned_alloc(alignment, len);
}

void *
__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	return fails(ENOMEM) ? MAP_FAILED : __real_mmap(at, len, prot, flags, fd, off);
}

int
__wrap_socket(int domain, int type, int protocol)
{
	return fails(EMFILE) ? -1 : __real_socket(domain, type, protocol);
}

int
__wrap_connect(int fd, const struct sockaddr *address, socklen_t len)
{
	return fails(ECONNREFUSED) ? -1 : __real_connect(fd, address, len);
}

int
__wrap_eventfd(unsigned value, int flags)
{
	return fails(EMFILE) ? -1 : __real_eventfd(value, flags);
}

int
__wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*f)(void *), void *arg)
{
	return fails(EAGAIN) ? EAGAIN : __real_pthread_create(thread, attr, f, arg);
}
