/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The generators give what YCSB's core workloads give:
 *
 *   zipfian   ranks over 10^10 items, whatever the number of records, with a constant zeta; a rank
 *             is scattered over the key numbers by its hash, and a number that is not there yet is
 *             drawn anew. So the hottest key has 3.8 % of the operations, not the 13 % that a Zipf
 *             law over 1,000 records would give it.
 *   latest    the newest acknowledged key, minus a rank over as many items as there are keys before
 *             it. (The very first record is therefore never drawn; so it is in YCSB.)
 *   hotspot   the first fifth of the records takes four fifths of the operations.
 *   exponential   the newest acknowledged key, minus an exponentially distributed number; 95 % of
 *             the operations go to the newest 6/7 of the records.
 *   uniform   over the records that were there at the start.
 *
 * Where YCSB adds up zeta term by term, the terms beyond the first ones are summed here by Euler
 * and Maclaurin's formula, whose error is below 1e-10: a new size costs a few pow() instead of a
 * pass over all records.
 */
#include "bench/generator.h"

#include <endian.h>
#include <math.h>
#include <string.h>

#define SCRAMBLED_ITEMS UINT64_C(10000000000)
#define SCRAMBLED_ZETA 26.46902820178302
#define ZETA_HEAD_TERMS 128
#define ZETA_TWO 1.5034777750283594 /* 1 + 2^-theta */

/* 1 / (1 - theta), a whole number: powers of it take a few multiplications. */
#define ZIPFIAN_ALPHA 100

/* ---- Random numbers ---- */

/* The step of a Weyl sequence: 2^64 / golden ratio, made odd. */
#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

uint64_t
gen_mix(uint64_t number)
{
	number = (number ^ number >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	number = (number ^ number >> 27) * UINT64_C(0x94d049bb133111eb);
	return number ^ number >> 31;
}

void
gen_random_seed(struct gen_random *random, uint64_t seed, uint64_t stream)
{
	uint64_t weyl = gen_mix(seed + GOLDEN) ^ gen_mix(stream * GOLDEN + 1);
	for (int i = 0; i < 4; i++)
		random->s[i] = gen_mix(weyl += GOLDEN);
}

/* ---- Zipf's law ---- */

static double
zeta_terms(uint64_t n_items)
{
	double sum = 0;
	for (uint64_t i = 1; i <= n_items; i++)
		sum += pow((double)i, -GEN_ZIPFIAN_THETA);
	return sum;
}

/* Integral, half the ends, and a twelfth of the slopes of x^-theta, at one end. */
static double
zeta_end(double x)
{
	double term = pow(x, -GEN_ZIPFIAN_THETA);
	return term * x / (1 - GEN_ZIPFIAN_THETA) + term / 2 - GEN_ZIPFIAN_THETA * term / x / 12;
}

static double
zeta(const struct gen_zipfian *zipfian, uint64_t n_items)
{
	if (n_items <= ZETA_HEAD_TERMS)
		return zeta_terms(n_items);
	return zipfian->zeta_head + zeta_end((double)n_items) - zeta_end(ZETA_HEAD_TERMS);
}

static void
zipfian_set(struct gen_zipfian *zipfian, uint64_t n_items, double zeta_n)
{
	zipfian->n_items = n_items;
	zipfian->zeta = zeta_n;
	zipfian->eta =
		(1 - pow(2 / (double)n_items, 1 - GEN_ZIPFIAN_THETA)) / (1 - ZETA_TWO / zeta_n);
}

void
gen_zipfian_init(struct gen_zipfian *zipfian, uint64_t n_items)
{
	zipfian->zeta_head = zeta_terms(ZETA_HEAD_TERMS);
	zipfian_set(zipfian, n_items, zeta(zipfian, n_items));
}

void
gen_zipfian_resize(struct gen_zipfian *zipfian, uint64_t n_items)
{
	if (n_items != zipfian->n_items)
		zipfian_set(zipfian, n_items, zeta(zipfian, n_items));
}

static double
to_alpha(double x)
{
	double x4 = x * x * x * x;
	double x32 = x4 * x4;
	x32 *= x32;
	x32 *= x32;
	_Static_assert(ZIPFIAN_ALPHA == 32 + 64 + 4, "the powers that are multiplied");
	return x32 * (x32 * x32) * x4;
}

uint64_t
gen_zipfian_next(const struct gen_zipfian *zipfian, struct gen_random *random)
{
	double u = gen_unit(random);
	double scaled = u * zipfian->zeta;
	if (scaled < 1)
		return 0;
	if (scaled < ZETA_TWO)
		return 1;
	double share = to_alpha(zipfian->eta * u - zipfian->eta + 1);
	uint64_t rank = (uint64_t)((double)zipfian->n_items * share);
	return rank < zipfian->n_items ? rank : zipfian->n_items - 1;
}

/* ---- Keys ---- */

uint64_t
gen_fnvhash64(uint64_t number)
{
	uint64_t hash = UINT64_C(0xCBF29CE484222325);
	for (int i = 0; i < 8; i++) {
		hash ^= number & 0xff;
		hash *= UINT64_C(1099511628211);
		number >>= 8;
	}
	return hash >> 63 ? -hash : hash;
}

/*
 * Four digits, the first one in the lowest byte. Two pairs at once, and each four without waiting
 * for the others: a snprintf would cost as much as a GET of a nearby server.
 */
static inline uint32_t
four_digits(uint32_t number)
{
	uint32_t hundreds = number * 5243 >> 19;
	uint32_t pairs = hundreds | (number - hundreds * 100) << 16;
	uint32_t tens = (pairs * 103 >> 10) & 0x000f000f;
	return (tens | (pairs - tens * 10) << 8) | 0x30303030;
}

/* Without a loop, whose end no processor would foresee: by the bits, right or one too few. */
static inline uint32_t
count_digits(uint64_t number)
{
	static const uint64_t powers[GEN_DIGITS_MAX] = {
		0,
		UINT64_C(10),
		UINT64_C(100),
		UINT64_C(1000),
		UINT64_C(10000),
		UINT64_C(100000),
		UINT64_C(1000000),
		UINT64_C(10000000),
		UINT64_C(100000000),
		UINT64_C(1000000000),
		UINT64_C(10000000000),
		UINT64_C(100000000000),
		UINT64_C(1000000000000),
		UINT64_C(10000000000000),
		UINT64_C(100000000000000),
		UINT64_C(1000000000000000),
		UINT64_C(10000000000000000),
		UINT64_C(100000000000000000),
		UINT64_C(1000000000000000000),
		UINT64_C(10000000000000000000),
	};
	/* 1233 / 4096 is a little less than log10(2). */
	uint32_t n = (uint32_t)(64 - __builtin_clzll(number | 1)) * 1233 >> 12;
	return n + (number >= powers[n]);
}

static inline uint64_t
eight_digits(uint64_t number)
{
	uint32_t upper = (uint32_t)number / 10000;
	return four_digits(upper) | (uint64_t)four_digits((uint32_t)number - upper * 10000) << 32;
}

static inline void
put_digits(char *at, uint64_t digits)
{
	digits = htole64(digits);
	memcpy(at, &digits, sizeof(digits));
}

/* Eight digits at a time, the first ones without what is before them; whole words cost least. */
uint32_t
gen_key_name_padded(char name[GEN_KEY_MAX], uint64_t number, uint32_t n_digits)
{
	const uint64_t e8 = 100000000;
	uint64_t upper = number / e8;
	uint64_t lower = eight_digits(number % e8);
	uint32_t n_own = count_digits(number);
	uint32_t n = n_own > n_digits ? n_own : n_digits;
	char *digits = name + 4;
	memcpy(name, "user", 4);
	if (n <= 8) {
		put_digits(digits, lower >> 8 * (8 - n));
	} else if (n <= 16) {
		put_digits(digits, eight_digits(upper) >> 8 * (16 - n));
		put_digits(digits + n - 8, lower);
	} else {
		put_digits(digits, eight_digits(upper / e8) >> 8 * (24 - n));
		put_digits(digits + n - 16, eight_digits(upper % e8));
		put_digits(digits + n - 8, lower);
	}
	return 4 + n;
}

uint32_t
gen_key_name(char name[GEN_KEY_MAX], uint64_t number)
{
	return gen_key_name_padded(name, number, 1);
}

uint32_t
gen_key_short(char name[GEN_KEY_MAX], uint64_t number)
{
	for (uint32_t i = 0; i < GEN_SHORT_LEN; i++, number >>= 5)
		name[i] = "0123456789abcdefghijklmnopqrstuv"[number & 31];
	return GEN_SHORT_LEN;
}

struct gen_choice
gen_choice(enum gen_distribution distribution)
{
	return (struct gen_choice){
		.distribution = distribution,
		.hot_keys = 0.2,
		.hot_operations = 0.8,
		.exponential_percentile = 95,
		.exponential_share = 0.8571428571,
	};
}

void
gen_keys_init(struct gen_keys *keys, const struct gen_choice *choice, uint64_t first,
	      uint64_t n_records, uint64_t n_spare)
{
	uint64_t n_hot = (uint64_t)((double)n_records * choice->hot_keys);
	double range = (double)n_records * choice->exponential_share;
	*keys = (struct gen_keys){
		.choice = *choice,
		.first = first,
		.n_records = n_records,
		.n_choices = n_records + n_spare + 1,
		.choices_inverse = UINT64_MAX / (n_records + n_spare + 1),
		.n_hot = n_hot ? n_hot : 1,
		.mean = -range / log1p(-choice->exponential_percentile / 100),
	};
	if (choice->distribution == GEN_LATEST)
		gen_zipfian_init(&keys->zipfian, n_records);
	else
		zipfian_set(&keys->zipfian, SCRAMBLED_ITEMS, SCRAMBLED_ZETA);
}

/*
 * hash % n by the inverse of n, 2^64 / n rounded down: the quotient is right or one too small, and
 * a division would take as long as all the rest of a choice.
 */
static inline uint64_t
remainder_of(uint64_t hash, uint64_t n, uint64_t inverse)
{
	uint64_t quotient = (uint64_t)((unsigned __int128)hash * inverse >> 64);
	uint64_t rest = hash - quotient * n;
	return rest < n ? rest : rest - n;
}

static uint64_t
next_scrambled(struct gen_keys *keys, struct gen_random *random, uint64_t last)
{
	uint64_t number;
	do {
		uint64_t hash = gen_fnvhash64(gen_zipfian_next(&keys->zipfian, random));
		number = keys->first + remainder_of(hash, keys->n_choices, keys->choices_inverse);
	} while (number > last);
	return number;
}

static uint64_t
next_latest(struct gen_keys *keys, struct gen_random *random, uint64_t last)
{
	if (last == keys->first)
		return last;
	gen_zipfian_resize(&keys->zipfian, last - keys->first);
	return last - gen_zipfian_next(&keys->zipfian, random);
}

static uint64_t
next_hotspot(struct gen_keys *keys, struct gen_random *random)
{
	uint64_t n_cold = keys->n_records - keys->n_hot;
	if (n_cold == 0 || gen_unit(random) < keys->choice.hot_operations)
		return keys->first + gen_below(random, keys->n_hot);
	return keys->first + keys->n_hot + gen_below(random, n_cold);
}

static uint64_t
next_exponential(struct gen_keys *keys, struct gen_random *random, uint64_t last)
{
	double distance;
	do
		distance = -log1p(-gen_unit(random)) * keys->mean;
	while (distance >= (double)(last - keys->first + 1));
	return last - (uint64_t)distance;
}

uint64_t
gen_keys_next(struct gen_keys *keys, struct gen_random *random, uint64_t last)
{
	switch (keys->choice.distribution) {
	case GEN_ZIPFIAN:
		return next_scrambled(keys, random, last);
	case GEN_LATEST:
		return next_latest(keys, random, last);
	case GEN_HOTSPOT:
		return next_hotspot(keys, random);
	case GEN_EXPONENTIAL:
		return next_exponential(keys, random, last);
	case GEN_UNIFORM:
		break;
	}
	return keys->first + gen_below(random, keys->n_records);
}
