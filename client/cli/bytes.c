/* SPDX-License-Identifier: BSD-2-Clause */
/* See bytes.h. */
#include "client/cli/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A pipe's length is not known beforehand: the buffer doubles from here. */
#define FIRST_CAPACITY ((size_t)64 << 10)

void
bytes_release(struct bytes *bytes)
{
	free(bytes->data);
	*bytes = (struct bytes){0};
}

int
bytes_reserve(struct bytes *bytes, size_t capacity)
{
	unsigned char *data;

	if (capacity <= bytes->capacity)
		return 0;
	data = realloc(bytes->data, capacity);
	if (!data)
		return -1;
	bytes->data = data;
	bytes->capacity = capacity;
	return 0;
}

int
bytes_set(struct bytes *bytes, const void *data, size_t len)
{
	if (bytes_reserve(bytes, len) < 0)
		return -1;
	if (len)
		memcpy(bytes->data, data, len);
	bytes->len = len;
	return 0;
}

static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int
bytes_from_hex(struct bytes *bytes, const char *hex)
{
	size_t n_digits = strlen(hex);

	if (n_digits % 2 != 0 || strspn(hex, "0123456789abcdefABCDEF") != n_digits) {
		errno = EINVAL;
		return -1;
	}
	if (bytes_reserve(bytes, n_digits / 2) < 0)
		return -1;
	for (size_t i = 0; i < n_digits / 2; i++)
		bytes->data[i] =
			(unsigned char)(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
	bytes->len = n_digits / 2;
	return 0;
}

/* Reads until the end of the file or until `want` bytes are there. */
static int
read_up_to(struct bytes *bytes, int fd, size_t want)
{
	bytes->len = 0;
	while (bytes->len < want) {
		size_t room = bytes->capacity - bytes->len;
		ssize_t n;

		if (room == 0) {
			size_t capacity = bytes->capacity ? 2 * bytes->capacity : FIRST_CAPACITY;

			if (bytes_reserve(bytes, capacity) < 0)
				return -1;
			continue;
		}
		n = read(fd, bytes->data + bytes->len,
			 room < want - bytes->len ? room : want - bytes->len);
		if (n == 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -1;
		if (n > 0)
			bytes->len += (size_t)n;
	}
	return 0;
}

int
bytes_from_file(struct bytes *bytes, const char *path, size_t len_max)
{
	int is_stdin = strcmp(path, "-") == 0;
	int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	int status, error;

	if (fd < 0)
		return -1;
	status = read_up_to(bytes, fd, len_max + 1);
	error = errno;
	if (!is_stdin)
		close(fd);
	if (status == 0 && bytes->len > len_max) {
		status = -1;
		error = EFBIG;
	}
	errno = error;
	return status;
}

int
bytes_write(FILE *out, const void *data, size_t len, int as_hex)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *byte = data;

	if (!as_hex)
		return fwrite(data, 1, len, out) == len ? 0 : -1;
	for (size_t i = 0; i < len; i++) {
		if (putc(digits[byte[i] >> 4], out) == EOF ||
		    putc(digits[byte[i] & 15], out) == EOF)
			return -1;
	}
	return 0;
}
