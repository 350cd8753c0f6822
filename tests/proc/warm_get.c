/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One key, one session, N warm GETs: what test_instructions.sh counts the instructions of.
 * Usage: warm_get SERVER VALUE_LEN N
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/include/rkv.h"

static const char key[] = "key0000000000001";
#define KEY_LEN (sizeof(key) - 1)

static int
get_often(struct rkv_session *session, char *buf, size_t len, int n)
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
	if (argc != 4)
		return 2;
	size_t len = strtoul(argv[2], NULL, 10);
	char *buf = malloc(len);
	struct rkv_client *client = NULL;
	struct rkv_session *session = NULL;
	int rc = 1;
	if (!buf || rkv_open(argv[1], NULL, &client) || rkv_session_open(client, &session))
		goto out;
	memset(buf, 'v', len);
	if (rkv_put(session, key, KEY_LEN, buf, len, NULL, NULL))
		goto out;
	rc = get_often(session, buf, len, atoi(argv[3]));
out:
	rkv_session_close(session);
	rkv_close(client);
	free(buf);
	return rc;
}
