/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keys and values as kv-cli handles them: any bytes, NUL included, from the command line, hex
 * digits, files and pipes, and out again. Nothing here prints; a failure leaves its cause in errno.
 */
#ifndef RKV_CLIENT_CLI_BYTES_H
#define RKV_CLIENT_CLI_BYTES_H

#include <stddef.h>
#include <stdio.h>

/* Owned memory; {NULL, 0, 0} is empty and needs no release. */
struct bytes {
	unsigned char *data;
	size_t len;
	size_t capacity;
};

void bytes_release(struct bytes *bytes);

/* Makes room for capacity bytes; what is there stays. 0, or -1 with errno. */
int bytes_reserve(struct bytes *bytes, size_t capacity);

/* Replaces the content by len bytes. 0, or -1 with errno. */
int bytes_set(struct bytes *bytes, const void *data, size_t len);

/* Replaces the content by what hex digits name. EINVAL: an odd number of them, or not a digit. */
int bytes_from_hex(struct bytes *bytes, const char *hex);

/*
 * Replaces the content by all of a file; "-" is standard input. At most len_max + 1 bytes are read,
 * whatever the file holds: EFBIG says that it holds more than len_max. 0, or -1 with errno.
 */
int bytes_from_file(struct bytes *bytes, const char *path, size_t len_max);

/* Writes bytes as they are, or as hex digits. 0, or -1 with errno. */
int bytes_write(FILE *out, const void *data, size_t len, int as_hex);

#endif
