/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A snapshot file (proto/snapfile.h) taken apart: pure functions over bytes that anybody may have
 * written. Nothing is taken that does not validate; nothing outside the given bytes is looked at.
 *
 * The caller hands in bytes from the file's position r->off on, as many as it has, and moves on by
 * what was taken. ret_why: a static string, what is wrong with the bytes at r->off.
 */
#ifndef RKV_SERVER_RECORDS_H
#define RKV_SERVER_RECORDS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/snapfile.h"

struct records {
	struct snapfile_header header;
	struct snapfile_end end; /* once it was found */
	uint64_t off;            /* in the file, of what comes next */
	uint64_t n;              /* records so far */
	uint64_t digest;
	uint64_t serial_max; /* of their versions */
};

/* key and value lie in the bytes that were handed in. */
struct record {
	const unsigned char *key;
	const unsigned char *value;
	uint32_t key_len;
	uint32_t value_len;
	uint64_t version;
	uint64_t expiry_s;
	uint32_t user_flags;
};

/*
 * The header, of which sizeof(struct snapfile_header) bytes are there. Failures: ERR_CORRUPT,
 * ERR_VERSION.
 */
int records_open(struct records *r, const void *bytes, size_t len, const char **ret_why);

/*
 * The next record. ret_len: bytes taken. ERR_NOT_FOUND (> 0): it is the end, which is taken too;
 * ERR_AGAIN (> 0): ret_len bytes are needed, at most SNAPFILE_RECORD_MAX. Failure: ERR_CORRUPT.
 */
int records_next(struct records *r, const void *bytes, size_t len, struct record *ret_record,
		 size_t *ret_len, const char **ret_why);

/* All that is left in the file behind the end. Failure: ERR_CORRUPT. */
int records_close(const struct records *r, const void *bytes, size_t len, const char **ret_why);

#endif
