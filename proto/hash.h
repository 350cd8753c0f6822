/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where a key lives: XXH3-128, seeded per region. The high bits of each half choose one of the two
 * main buckets, the low bits of the first half are the fingerprint, those of the second the tag of
 * client-side caches. The whole first half seeds the block's digest (proto/block.h).
 */
#ifndef RKV_PROTO_HASH_H
#define RKV_PROTO_HASH_H

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "proto/limits.h"
#include "proto/slot.h"

struct hash {
	uint64_t lo; /* never truncated: seeds the digest */
	uint64_t place_lo;
	uint64_t place_hi;
};

/* Keeps the n_bits highest and lowest bits, for test builds that force collisions. */
static inline uint64_t
hash_truncated(uint64_t half)
{
#if LIMIT_HASH_BITS >= 64
	return half;
#else
	return half & ~(UINT64_MAX >> LIMIT_HASH_BITS);
#endif
}

static inline struct hash
hash_key(const void *key, uint32_t key_len, uint64_t seed)
{
	XXH128_hash_t h = XXH3_128bits_withSeed(key, key_len, seed);
	return (struct hash){
		.lo = h.low64,
		.place_lo = hash_truncated(h.low64),
		.place_hi = hash_truncated(h.high64),
	};
}

static inline uint32_t
hash_fingerprint(const struct hash *h)
{
	return h->place_lo & ((1u << LIMIT_FINGERPRINT_BITS) - 1);
}

static inline uint32_t
hash_cache_tag(const struct hash *h)
{
	return (uint32_t)h->place_hi;
}

/* Scales a hash to 0..n-1 by its high bits. */
static inline uint64_t
hash_reduce(uint64_t half, uint64_t n)
{
	return (uint64_t)((unsigned __int128)half * n >> 64);
}

/* The key's two main buckets among n_main (>= 2): always two different ones. */
static inline void
hash_main_buckets(const struct hash *h, uint64_t n_main, uint64_t ret_main[2])
{
	ret_main[0] = hash_reduce(h->place_lo, n_main);
	ret_main[1] = hash_reduce(h->place_hi, n_main);
	if (ret_main[1] == ret_main[0])
		ret_main[1] = (ret_main[0] + 1) % n_main;
}

#endif
