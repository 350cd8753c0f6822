/* SPDX-License-Identifier: BSD-2-Clause */
/*
 *   name (8) . sequence (8) . word 0 . word 1 . ...      (little endian; cut to the length)
 *
 * Word i is base + i * an odd constant, where base mixes name, sequence and length. An arithmetic
 * progression is enough, since two values differ in their base and hence in every word, and
 * compilers turn it into vector code: making or checking a value costs about as much as copying it.
 */
#include "bench/value.h"

#include <stdbool.h>
#include <string.h>

#include "bench/generator.h"

#define WORD sizeof(uint64_t)
#define HEADER (2 * WORD)
#define STEP UINT64_C(0x9e3779b97f4a7c15)

static uint64_t
value_base(uint64_t name, uint64_t sequence, size_t len)
{
	return gen_mix(gen_mix(gen_mix(name + STEP) ^ sequence) ^ len);
}

static size_t
smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

void
value_make(void *value, size_t len, uint64_t name, uint64_t sequence)
{
	unsigned char *bytes = value;
	uint64_t header[2] = {name, sequence};
	memcpy(bytes, header, smaller(len, HEADER));
	if (len <= HEADER)
		return;
	uint64_t word = value_base(name, sequence, len);
	unsigned char *at = bytes + HEADER;
	size_t n_words = (len - HEADER) / WORD;
	for (size_t i = 0; i < n_words; i++, word += STEP)
		memcpy(at + i * WORD, &word, WORD);
	memcpy(at + n_words * WORD, &word, (len - HEADER) % WORD);
}

uint64_t
value_sequence(const void *value, size_t len)
{
	uint64_t sequence = 0;
	if (len >= HEADER)
		memcpy(&sequence, (const unsigned char *)value + WORD, WORD);
	return sequence;
}

/* Whether the words behind the header are right; without a branch for each. */
static bool
words_right(const unsigned char *at, size_t n_words, uint64_t word)
{
	uint64_t difference = 0;
	for (size_t i = 0; i < n_words; i++, word += STEP) {
		uint64_t found;
		memcpy(&found, at + i * WORD, WORD);
		difference |= found ^ word;
	}
	return difference == 0;
}

/* Slow: only for a value that is known to be wrong, or for the few bytes behind the last word. */
static size_t
first_wrong(const unsigned char *at, size_t from, size_t to, uint64_t base)
{
	for (size_t i = from; i < to; i++) {
		uint64_t word = base + i / WORD * STEP;
		if (at[i] != (unsigned char)(word >> 8 * (i % WORD)))
			return HEADER + i + 1;
	}
	return 0;
}

size_t
value_check(const void *value, size_t len, uint64_t name)
{
	const unsigned char *bytes = value;
	uint64_t found_name;
	if (len < VALUE_CHECKED_MIN)
		return len + 1;
	memcpy(&found_name, bytes, WORD);
	if (found_name != name)
		return (size_t)__builtin_ctzll(found_name ^ name) / 8 + 1;
	uint64_t base = value_base(name, value_sequence(value, len), len);
	size_t n_words = (len - HEADER) / WORD;
	size_t n_checked = words_right(bytes + HEADER, n_words, base) ? n_words * WORD : 0;
	return first_wrong(bytes + HEADER, n_checked, len - HEADER, base);
}
