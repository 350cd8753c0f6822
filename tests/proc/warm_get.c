/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One key, one session, N warm GETs: what test_instructions.sh counts the instructions of.
 * The key is new, so that no mark is out and nothing wakes the control thread.
 * Usage: warm_get SERVER VALUE_LEN N KEY (of 16 bytes)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/include/rkv.h"

#define KEY_LEN 16u
#define TIMEOUT_MS 60000 /* under valgrind, on a busy machine */

static int
get_often(struct rkv_session *session, const char *key, char *buf, size_t len, int n)
{
	struct rkv_item item;
	for (int i = 0; i < n; i++) {
		int rc = rkv_get(session, key, KEY_LEN, buf, len, &item);
		if (rc || item.value_len != len)
			return 1;
	}
	return 0;
}

int
main(int argc, char **argv)
{
	if (argc != 5 || strlen(argv[4]) != KEY_LEN)
		return 2;
	const char *key = argv[4];
	size_t len = strtoul(argv[2], NULL, 10);
	char *buf = malloc(len);
	struct rkv_client *client = NULL;
	struct rkv_session *session = NULL;
	struct rkv_options options;
	int rc = 1;
	rkv_options_init(&options);
	options.connect_timeout_ms = TIMEOUT_MS;
	options.op_timeout_ms = TIMEOUT_MS;
	if (!buf || rkv_open(argv[1], &options, &client) || rkv_session_open(client, &session))
		goto out;
	memset(buf, 'v', len);
	if (rkv_put(session, key, KEY_LEN, buf, len, NULL, NULL))
		goto out;
	rc = get_often(session, key, buf, len, atoi(argv[3]));
out:
	rkv_session_close(session);
	rkv_close(client);
	free(buf);
	return rc;
}
