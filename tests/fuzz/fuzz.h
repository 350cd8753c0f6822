/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For fuzz targets: programs that libFuzzer drives. A target gives the bytes of one input to a
 * parser, by the smallest real way in, and says with fuzz_must what holds whatever the bytes are.
 * It keeps nothing from one input to the next that could change what the next one does.
 */
#ifndef RKV_TESTS_FUZZ_FUZZ_H
#define RKV_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The exit status of a target that cannot run on this machine. libFuzzer has 1, 70 to 77. */
#define FUZZ_CANNOT_RUN 3

/* libFuzzer shows the stack and keeps the input. */
#define fuzz_must(condition)                                                                       \
	do {                                                                                       \
		if (!(condition))                                                                  \
			__builtin_trap();                                                          \
	} while (0)

/* What of the input has not been used. */
struct fuzz_input {
	const uint8_t *at;
	size_t len;
};

/* The next n bytes, or all that there are; the rest of to is zero. Returns how many there were. */
static inline size_t
fuzz_take(struct fuzz_input *in, void *to, size_t n)
{
	size_t there = n < in->len ? n : in->len;
	memset(to, 0, n);
	if (there)
		memcpy(to, in->at, there);
	in->at += there;
	in->len -= there;
	return there;
}

static inline uint8_t
fuzz_byte(struct fuzz_input *in)
{
	uint8_t byte;
	fuzz_take(in, &byte, sizeof(byte));
	return byte;
}

/* Changes len good bytes by as many of the input: where that is 0, or at its end, they stay. */
static inline void
fuzz_change(struct fuzz_input *in, void *good, size_t len)
{
	unsigned char *bytes = good;
	for (size_t i = 0; i < len && in->len; i++)
		bytes[i] ^= fuzz_byte(in);
}

/* The next line without its end, as a string of the caller's, or NULL: there is none. */
char *fuzz_line(struct fuzz_input *in);

/* A copy that ends where its memory ends, so that a byte too many is seen. The caller's. */
void *fuzz_copy(const void *bytes, size_t len);

/* The path of a file with these bytes, until the next call. */
const char *fuzz_file(const void *bytes, size_t len);

/* Formats what it is given, and keeps nothing. */
extern const struct log fuzz_log;

#endif
