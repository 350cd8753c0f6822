/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Outcomes (> 0) and failures (< 0) that travel unchanged through every layer. The numbers are
 * those of rkv.h (client/client.c asserts it), so that nothing is translated on the way to the
 * caller.
 */
#ifndef RKV_COMMON_ERR_H
#define RKV_COMMON_ERR_H

enum {
	ERR_NOT_FOUND = 1,
	ERR_EXISTS = 2,
	ERR_MISMATCH = 3,
	ERR_AGAIN = 4,

	ERR_TIMEOUT = -1,
	ERR_MAYBE = -2,
	ERR_NO_SPACE = -3,
	ERR_INDEX_FULL = -4,
	ERR_TOO_BIG = -5,
	ERR_TOO_SMALL = -6,
	ERR_INVALID = -7,
	ERR_CONN = -8,
	ERR_VERSION = -9,
	ERR_PERM = -10,
	ERR_CORRUPT = -11,
	ERR_NOMEM = -12,
};

/* The name and meaning of a code, for people; a static string for every int. Any thread. */
const char *err_str(int code);

/* The failure that an errno stands for: NOMEM for what runs out, PERM, TIMEOUT, else CONN. */
int err_from_errno(int error);

#endif
