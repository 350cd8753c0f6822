/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Moves a large value without a copy: the program's own memory is registered, so that the value is
 * fetched from it by PUT and placed into it by GET.
 *
 *   buffer localhost:7440
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rkv.h>

#define VALUE_LEN_WANTED ((size_t)256 << 10) /* or what the server takes at most */

static const char key[] = "example/buffer";

/* Memory that is registered as long as it is used. */
struct buffer {
	unsigned char *data;
	size_t len;
	int is_registered;
};

/*
 * A GET reads whole blocks, so the buffer has to be somewhat larger than the value: rkv_buffer_size
 * tells by how much. A page is the unit in which hardware registers memory.
 */
static int
buffer_open(struct rkv_client *client, size_t value_len, struct buffer *ret_buffer)
{
	size_t page_len = 4096, len = (rkv_buffer_size(value_len) + page_len - 1) & ~(page_len - 1);
	int status;

	ret_buffer->data = aligned_alloc(page_len, len);
	ret_buffer->len = len;
	if (!ret_buffer->data)
		return RKV_E_NOMEM;
	status = rkv_buffer_register(client, ret_buffer->data, len);
	ret_buffer->is_registered = status == RKV_OK;
	return status;
}

/* Only when no request uses it any more. */
static void
buffer_close(struct rkv_client *client, struct buffer *buffer)
{
	if (buffer->is_registered)
		rkv_buffer_unregister(client, buffer->data);
	free(buffer->data);
}

static unsigned char
pattern(size_t i)
{
	return (unsigned char)(i * 131 + (i >> 8));
}

/* There and back through the same memory, which is wiped in between. */
static int
move_value(struct rkv_session *session, struct buffer *buffer, size_t value_len)
{
	struct rkv_item item = {0};
	int status;

	for (size_t i = 0; i < value_len; i++)
		buffer->data[i] = pattern(i);
	status = rkv_put(session, key, strlen(key), buffer->data, value_len, NULL, NULL);
	if (status != RKV_OK)
		return status;

	memset(buffer->data, 0, buffer->len);
	status = rkv_get(session, key, strlen(key), buffer->data, buffer->len, &item);
	if (status != RKV_OK)
		return status;
	for (size_t i = 0; i < value_len; i++) {
		if (buffer->data[i] != pattern(i))
			return RKV_MISMATCH;
	}
	printf("%zu bytes moved through a registered buffer of %zu\n", item.value_len, buffer->len);
	return item.value_len == value_len ? RKV_OK : RKV_MISMATCH;
}

static int
use(struct rkv_client *client)
{
	struct rkv_limit_values limits;
	struct rkv_session *session = NULL;
	struct buffer buffer = {0};
	size_t value_len = VALUE_LEN_WANTED;
	int status = rkv_limits(client, &limits);

	if (status == RKV_OK && value_len > limits.value_len_max)
		value_len = limits.value_len_max;
	if (status == RKV_OK)
		status = rkv_session_open(client, &session);
	if (status == RKV_OK)
		status = buffer_open(client, value_len, &buffer);
	if (status == RKV_OK)
		status = move_value(session, &buffer, value_len);
	if (status == RKV_OK)
		status = rkv_delete(session, key, strlen(key));
	rkv_session_close(session);
	buffer_close(client, &buffer);
	return status;
}

int
main(int argc, char **argv)
{
	struct rkv_client *client = NULL;
	int status;

	if (argc != 2) {
		fprintf(stderr, "usage: buffer HOST:PORT\n");
		return 2;
	}
	status = rkv_open(argv[1], NULL, &client);
	if (status == RKV_OK)
		status = use(client);
	if (status != RKV_OK)
		fprintf(stderr, "%s: %s\n", argv[1], rkv_strerror(status));
	rkv_close(client);
	return status != RKV_OK;
}
