/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stores a value, reads it, removes it, and finds it gone.
 *
 *   basic localhost:7440
 *
 * Each call that touches the server returns RKV_OK, an outcome (> 0: not an error, but something to
 * handle) or a failure (< 0).
 */
#include <stdio.h>
#include <string.h>

#include <rkv.h>

static const char key[] = "example/basic";
static const char text[] = "a value is any bytes";

/* The library never prints; it hands over lines that say what went wrong, and where. */
static void
print_line(void *arg, int level, const char *line)
{
	(void)arg;
	(void)level;
	fprintf(stderr, "librkv: %s\n", line);
}

/* Says what a call returned; 1 if that is not what this program expects. */
static int
is_wrong(const char *what, int status, int expected)
{
	printf("%s: %s\n", what, rkv_strerror(status));
	return status != expected;
}

static int
use(struct rkv_session *session)
{
	struct rkv_put_options options = {.ttl_s = 60, .user_flags = 7};
	struct rkv_item item;
	char buf[64];
	uint64_t version;
	int status;

	/* Keys have a length: any bytes may stand in them, NUL too. */
	status = rkv_put(session, key, strlen(key), text, strlen(text), &options, &version);
	if (is_wrong("put", status, RKV_OK))
		return 1;

	/* Were buf too short, the status would be RKV_E_TOO_SMALL and item.value_len would tell. */
	status = rkv_get(session, key, strlen(key), buf, sizeof(buf), &item);
	if (is_wrong("get", status, RKV_OK))
		return 1;
	printf("  '%.*s', flags %u, expires in %u s\n", (int)item.value_len, buf,
	       (unsigned int)item.user_flags, (unsigned int)item.ttl_s);
	if (item.value_len != strlen(text) || memcmp(buf, text, item.value_len) != 0 ||
	    item.version != version || item.user_flags != 7)
		return 1;

	status = rkv_delete(session, key, strlen(key));
	if (is_wrong("delete", status, RKV_OK))
		return 1;

	/* An absent key is an outcome of its own, other than an empty value or a failure. */
	status = rkv_get(session, key, strlen(key), buf, sizeof(buf), &item);
	return is_wrong("get again", status, RKV_NOT_FOUND);
}

int
main(int argc, char **argv)
{
	struct rkv_client *client = NULL;   /* one for the process */
	struct rkv_session *session = NULL; /* one for each thread */
	struct rkv_options options;
	int failed = 1;

	if (argc != 2) {
		fprintf(stderr, "usage: basic HOST:PORT\n");
		return 2;
	}
	rkv_options_init(&options);
	options.log = print_line;
	if (is_wrong("open", rkv_open(argv[1], &options, &client), RKV_OK))
		goto done;
	if (is_wrong("session", rkv_session_open(client, &session), RKV_OK))
		goto done;
	failed = use(session);
done: /* both accept NULL */
	rkv_session_close(session);
	rkv_close(client);
	return failed;
}
