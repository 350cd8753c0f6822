/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many keys in one call: rkv_multi_put, then rkv_multi_get of the same keys and of an absent one.
 * The round trips of all of them overlap, and each item has a status of its own.
 *
 *   multi localhost:7440
 */
#include <stdio.h>
#include <string.h>

#include <rkv.h>

static const char *const fruits[][2] = {
	{"example/multi/apple", "red"},
	{"example/multi/banana", "yellow"},
	{"example/multi/cherry", "dark red"},
	{"example/multi/empty", ""},
};
#define N_FRUITS (sizeof(fruits) / sizeof(fruits[0]))

static const char absent_key[] = "example/multi/absent";

static int
put_all(struct rkv_session *session)
{
	struct rkv_request requests[N_FRUITS] = {0};
	int status, n_wrong = 0;

	for (size_t i = 0; i < N_FRUITS; i++) {
		requests[i].op = RKV_OP_PUT;
		requests[i].key = fruits[i][0];
		requests[i].key_len = strlen(fruits[i][0]);
		requests[i].value = fruits[i][1];
		requests[i].value_len = strlen(fruits[i][1]);
	}
	/* RKV_OK says that all have completed, not that all went well. */
	status = rkv_multi_put(session, requests, N_FRUITS);
	if (status != RKV_OK) {
		fprintf(stderr, "multi_put: %s\n", rkv_strerror(status));
		return 1;
	}
	for (size_t i = 0; i < N_FRUITS; i++) {
		printf("put %s: %s\n", fruits[i][0], rkv_strerror(requests[i].status));
		n_wrong += requests[i].status != RKV_OK;
	}
	return n_wrong;
}

/* Compares one item with what was put. */
static int
is_wrong(const struct rkv_request *request, const char *expected)
{
	printf("get %.*s: %s\n", (int)request->key_len, (const char *)request->key,
	       rkv_strerror(request->status));
	if (request->status != RKV_OK)
		return 1;
	return request->item.value_len != strlen(expected) ||
	       memcmp(request->buf, expected, request->item.value_len) != 0;
}

static int
get_all(struct rkv_session *session)
{
	struct rkv_request requests[N_FRUITS + 1] = {0};
	char bufs[N_FRUITS + 1][32];
	int status, n_wrong = 0;

	for (size_t i = 0; i <= N_FRUITS; i++) {
		requests[i].op = RKV_OP_GET;
		requests[i].key = i < N_FRUITS ? fruits[i][0] : absent_key;
		requests[i].key_len = strlen(requests[i].key);
		requests[i].buf = bufs[i];
		requests[i].buf_len = sizeof(bufs[i]);
	}
	status = rkv_multi_get(session, requests, N_FRUITS + 1);
	if (status != RKV_OK) {
		fprintf(stderr, "multi_get: %s\n", rkv_strerror(status));
		return 1;
	}
	for (size_t i = 0; i < N_FRUITS; i++)
		n_wrong += is_wrong(&requests[i], fruits[i][1]);
	printf("get %s: %s\n", absent_key, rkv_strerror(requests[N_FRUITS].status));
	return n_wrong + (requests[N_FRUITS].status != RKV_NOT_FOUND);
}

int
main(int argc, char **argv)
{
	struct rkv_client *client = NULL;
	struct rkv_session *session = NULL;
	int status, failed = 1;

	if (argc != 2) {
		fprintf(stderr, "usage: multi HOST:PORT\n");
		return 2;
	}
	status = rkv_open(argv[1], NULL, &client);
	if (status == RKV_OK)
		status = rkv_session_open(client, &session);
	if (status != RKV_OK)
		fprintf(stderr, "%s: %s\n", argv[1], rkv_strerror(status));
	else
		failed = put_all(session) || get_all(session);
	rkv_session_close(session);
	rkv_close(client);
	return failed;
}
