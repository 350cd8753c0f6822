/* SPDX-License-Identifier: BSD-2-Clause */
/* Comparing keys without a call: most are a few words long, and every GET compares two. */
#ifndef RKV_CLIENT_KEY_H
#define RKV_CLIENT_KEY_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t
key_word(const unsigned char *bytes)
{
	uint64_t word;
	memcpy(&word, bytes, sizeof(word));
	return word;
}

static inline bool
key_equal(const void *a, const void *b, uint32_t len)
{
	const unsigned char *x = a, *y = b;
	if (len < 8) {
		for (uint32_t i = 0; i < len; i++)
			if (x[i] != y[i])
				return false;
		return true;
	}
	for (uint32_t i = 0; i + 8 < len; i += 8)
		if (key_word(x + i) != key_word(y + i))
			return false;
	return key_word(x + len - 8) == key_word(y + len - 8); /* overlaps the last whole word */
}

#endif
