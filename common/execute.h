/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A CPU plays the NIC: how the soft fabrics execute one operation on a region. On shm that is the
 * client's CPU, on tcp a responder thread of the server; both may work on one region at a time.
 *
 * ORDER (proto/ORDERING.md). The caller executes the operations of a connection in program order,
 * from one thread at a time. CAS and FAA are seq_cst and a full fence follows, so that a READ
 * behind them samples after them in the order of all atomics, and a WRITE before them is seen by
 * whoever sees them, [PUBLISH], [VISIBLE], also on ARM64. Aligned words of a READ or WRITE of up to
 * EXECUTE_WORDS_MAX bytes are moved one by one with atomic accesses: never torn. Longer copies are
 * plain memcpy, [COPY]: bytes that race are found out by the block's checksum, [SELF-ID]. Builds
 * for the thread sanitizer, which knows of no checksums, move them atomically too.
 *
 * All inline: a warm GET on shm has a budget of instructions. Any thread; nothing is kept.
 */
#ifndef RKV_COMMON_EXECUTE_H
#define RKV_COMMON_EXECUTE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/err.h"
#include "common/fabric.h"
#include "common/tsan.h"

/* Bytes: a combined bucket, whose slot words must not be torn. */
#define EXECUTE_WORDS_MAX 128u

#define EXECUTE_INLINE static inline __attribute__((always_inline))

/* ---- Copies between local and remote memory ---- */

static inline bool
execute_is_words(const unsigned char *remote, size_t len)
{
	return (((uintptr_t)remote | len) & 7) == 0 && len <= EXECUTE_WORDS_MAX;
}

static inline void
execute_read_words(unsigned char *local, const unsigned char *remote, size_t len)
{
	for (size_t i = 0; i < len; i += 8) {
		const uint64_t *from = (const uint64_t *)(const void *)(remote + i);
		uint64_t word = __atomic_load_n(from, __ATOMIC_RELAXED);
		memcpy(local + i, &word, 8);
	}
}

static inline void
execute_write_words(unsigned char *remote, const unsigned char *local, size_t len)
{
	for (size_t i = 0; i < len; i += 8) {
		uint64_t word;
		memcpy(&word, local + i, 8);
		__atomic_store_n((uint64_t *)(void *)(remote + i), word, __ATOMIC_RELAXED);
	}
}

#if TSAN
/* Bytes at the unaligned edges of len bytes, before and behind the aligned words. */
static inline size_t
execute_edge_before(const unsigned char *remote, size_t len)
{
	size_t edge = -(uintptr_t)remote & 7;
	return edge < len ? edge : len;
}

static inline void
execute_read_bytes(unsigned char *local, const unsigned char *remote, size_t len)
{
	for (size_t i = 0; i < len; i++)
		local[i] = __atomic_load_n(remote + i, __ATOMIC_RELAXED);
}

static inline void
execute_write_bytes(unsigned char *remote, const unsigned char *local, size_t len)
{
	for (size_t i = 0; i < len; i++)
		__atomic_store_n(remote + i, local[i], __ATOMIC_RELAXED);
}

/* [COPY] */
static inline void
execute_read_bulk(unsigned char *local, const unsigned char *remote, size_t len)
{
	size_t edge = execute_edge_before(remote, len), words = (len - edge) & ~(size_t)7;
	execute_read_bytes(local, remote, edge);
	execute_read_words(local + edge, remote + edge, words);
	execute_read_bytes(local + edge + words, remote + edge + words, len - edge - words);
}

static inline void
execute_write_bulk(unsigned char *remote, const unsigned char *local, size_t len)
{
	size_t edge = execute_edge_before(remote, len), words = (len - edge) & ~(size_t)7;
	execute_write_bytes(remote, local, edge);
	execute_write_words(remote + edge, local + edge, words);
	execute_write_bytes(remote + edge + words, local + edge + words, len - edge - words);
}

/* The tool knows no fences and needs none: its run-time makes every atomic access seq_cst. */
static inline void
execute_fence_full(void)
{
}

static inline void
execute_fence_acquire(void)
{
}
#else
/* [COPY] */
static inline void
execute_read_bulk(unsigned char *local, const unsigned char *remote, size_t len)
{
	memcpy(local, remote, len);
}

static inline void
execute_write_bulk(unsigned char *remote, const unsigned char *local, size_t len)
{
	memcpy(remote, local, len);
}

/*
 * Behind an atomic operation, [VISIBLE], [I1]: on x86-64 each one is a full fence already, also a
 * CAS that fails.
 */
static inline void
execute_fence_full(void)
{
#if defined(__x86_64__)
	atomic_signal_fence(memory_order_seq_cst);
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

static inline void
execute_fence_acquire(void)
{
	atomic_thread_fence(memory_order_acquire);
}
#endif

/* ---- Operations ---- */

EXECUTE_INLINE void
execute_read(void *local, const unsigned char *remote, size_t len)
{
	if (len == 8 && execute_is_words(remote, 8)) {
		uint64_t word =
			__atomic_load_n((const uint64_t *)(const void *)remote, __ATOMIC_RELAXED);
		memcpy(local, &word, 8); /* a slot */
	} else if (execute_is_words(remote, len))
		execute_read_words(local, remote, len);
	else
		execute_read_bulk(local, remote, len);
}

static inline void
execute_write(unsigned char *remote, const unsigned char *local, size_t len)
{
	if (len == 1)
		__atomic_store_n(remote, *local, __ATOMIC_RELAXED); /* a mark, [MARK] */
	else if (execute_is_words(remote, len))
		execute_write_words(remote, local, len);
	else
		execute_write_bulk(remote, local, len);
}

/* [ONE-WORD]: the region's atomics, all of them, are these two. Returns the old word. */
static inline uint64_t
execute_atomic(unsigned char *remote, enum fab_kind kind, uint64_t expect, uint64_t swap)
{
	uint64_t *word = (uint64_t *)(void *)remote;
	uint64_t old = expect;
	if (kind == FAB_CAS)
		__atomic_compare_exchange_n(word, &old, swap, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
	else
		old = __atomic_fetch_add(word, expect, __ATOMIC_SEQ_CST);
	/*
	 * [VISIBLE], [I1]: a failed CAS is only a load, and ARM64's CAS lets later loads pass its
	 * store.
	 */
	execute_fence_full();
	return old;
}

/* [RANGE]: what a NIC would refuse. len: of all the operation's pieces. */
EXECUTE_INLINE int
execute_check(enum fab_kind kind, uint64_t roff, uint64_t len, uint64_t region_len, bool writable)
{
	if (roff > region_len || len > region_len - roff)
		return ERR_INVALID;
	if (kind == FAB_READ)
		return 0;
	if (!writable)
		return ERR_PERM;
	if (kind != FAB_WRITE && ((roff & 7) != 0 || len != 8))
		return ERR_INVALID;
	return 0;
}

#endif
