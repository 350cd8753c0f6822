/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random numbers, and YCSB's ways of choosing keys with them. Nothing here is shared: each thread
 * has its own objects. gen_random and gen_keys are all that a benchmark thread needs; the parts are
 * public for the tests.
 */
#ifndef RKV_BENCH_GENERATOR_H
#define RKV_BENCH_GENERATOR_H

#include <stdint.h>

/* ---- Random numbers (xoshiro256**) ---- */

struct gen_random {
	uint64_t s[4];
};

/* Streams of one seed are independent of one another. */
void gen_random_seed(struct gen_random *random, uint64_t seed, uint64_t stream);

/* Spreads a number over all 64 bits, one to one. */
uint64_t gen_mix(uint64_t number);

static inline uint64_t
gen_rotated(uint64_t word, int n_bits)
{
	return word << n_bits | word >> (64 - n_bits);
}

static inline uint64_t
gen_u64(struct gen_random *random)
{
	uint64_t *s = random->s;
	uint64_t result = gen_rotated(s[1] * 5, 7) * 9;
	uint64_t shifted = s[1] << 17;
	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= shifted;
	s[3] = gen_rotated(s[3], 45);
	return result;
}

/* 0 <= x < 1 */
static inline double
gen_unit(struct gen_random *random)
{
	return (double)(gen_u64(random) >> 11) * 0x1p-53;
}

/* 0 .. n-1; the bias is below n / 2^64. */
static inline uint64_t
gen_below(struct gen_random *random, uint64_t n)
{
	return (uint64_t)((unsigned __int128)gen_u64(random) * n >> 64);
}

/* ---- Zipf's law (Gray et al., "Quickly generating billion-record synthetic databases") ---- */

#define GEN_ZIPFIAN_THETA 0.99

struct gen_zipfian {
	uint64_t n_items;
	double zeta_head; /* the first terms of every zeta */
	double zeta;
	double eta;
};

void gen_zipfian_init(struct gen_zipfian *zipfian, uint64_t n_items);

/* Costs a few pow(), whatever the sizes. Nothing happens if the size is the same. */
void gen_zipfian_resize(struct gen_zipfian *zipfian, uint64_t n_items);

/* A rank, 0 (the most frequent) .. n_items-1. */
uint64_t gen_zipfian_next(const struct gen_zipfian *zipfian, struct gen_random *random);

/* ---- Keys ---- */

enum gen_distribution { GEN_UNIFORM, GEN_ZIPFIAN, GEN_LATEST, GEN_HOTSPOT, GEN_EXPONENTIAL };
#define GEN_DISTRIBUTIONS 5

/* How keys are chosen, with YCSB's parameters. */
struct gen_choice {
	enum gen_distribution distribution;
	double hot_keys;               /* hotspot: share of the records ... */
	double hot_operations;         /* ... and of the operations that go to them */
	double exponential_percentile; /* exponential: so many % of the operations go to ... */
	double exponential_share;      /* ... this share of the records, the newest */
};

/* With the parameters that YCSB has if nothing is said. */
struct gen_choice gen_choice(enum gen_distribution distribution);

/* YCSB's 64-bit FNV hash of a key number, made non-negative as it does it. */
uint64_t gen_fnvhash64(uint64_t number);

#define GEN_KEY_MAX 24 /* bytes of a key's name */

/* "user" and a number in decimal, not terminated. Returns the length. */
uint32_t gen_key_name(char name[GEN_KEY_MAX], uint64_t number);

/* The same with zeros before the number, so that it has n_digits (YCSB's zeropadding) or more. */
#define GEN_DIGITS_MAX 20u
uint32_t gen_key_name_padded(char name[GEN_KEY_MAX], uint64_t number, uint32_t n_digits);

/* The number in GEN_SHORT_LEN letters and digits, for keys that are to be short. */
#define GEN_SHORT_LEN 13u
uint32_t gen_key_short(char name[GEN_KEY_MAX], uint64_t number);

struct gen_keys {
	struct gen_choice choice;
	uint64_t first;     /* key number of the first record */
	uint64_t n_records; /* before the run */
	uint64_t n_choices; /* zipfian: scattered over so many numbers, some of later inserts */
	uint64_t choices_inverse; /* 2^64 / n_choices, rounded down */
	uint64_t n_hot;           /* hotspot */
	double mean;              /* exponential: distance from the newest key */
	struct gen_zipfian zipfian;
};

/* n_records: 1 or more. n_spare: room for inserts; YCSB takes twice as many as it expects. */
void gen_keys_init(struct gen_keys *keys, const struct gen_choice *choice, uint64_t first,
		   uint64_t n_records, uint64_t n_spare);

/* A key number first..last, where last is the newest one that is certain to be there. */
uint64_t gen_keys_next(struct gen_keys *keys, struct gen_random *random, uint64_t last);

#endif
