/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keeps many operations in flight from one thread: submits until the session pushes back, polls,
 * and goes on. Stores N_KEYS values that way, then reads them.
 *
 *   async localhost:7440
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rkv.h>

#define N_KEYS 1000
#define DEPTH 32 /* far fewer than keys, so that the session does push back */
#define POLL_MAX 16
#define POLL_WAIT_MS 1000

/*
 * Request, key and value of one operation. All of it is borrowed by the session from rkv_submit
 * until rkv_poll hands the request back, and must stay where it is.
 */
struct slot {
	struct rkv_request request;
	char key[32];
	char value[32];
	char buf[32];
};

/* What happened, for the last line and the exit status. */
struct tally {
	int n_completed;
	int n_wrong;
	int n_pushed_back;
};

/* Each request carries its slot in `user`, because completions come in any order. */
static void
look_at(const struct rkv_request *request, struct tally *tally)
{
	const struct slot *slot = request->user;
	size_t value_len = strlen(slot->value);

	tally->n_completed++;
	if (request->status != RKV_OK) {
		fprintf(stderr, "%s: %s\n", slot->key, rkv_strerror(request->status));
		tally->n_wrong++;
	} else if (request->op == RKV_OP_GET && (request->item.value_len != value_len ||
						 memcmp(slot->buf, slot->value, value_len) != 0)) {
		fprintf(stderr, "%s: another value\n", slot->key);
		tally->n_wrong++;
	}
}

/* Takes completions, at least one if any operation is in flight. A failure is the return value. */
static int
collect(struct rkv_session *session, struct tally *tally)
{
	struct rkv_request *done[POLL_MAX];
	int n = rkv_poll(session, done, POLL_MAX, POLL_WAIT_MS);

	for (int i = 0; i < n; i++)
		look_at(done[i], tally);
	return n < 0 ? n : RKV_OK;
}

/* Submits, and makes room by polling whenever the session says RKV_AGAIN. */
static int
submit(struct rkv_session *session, struct rkv_request *request, struct tally *tally)
{
	int status;

	while ((status = rkv_submit(session, request)) == RKV_AGAIN) {
		tally->n_pushed_back++;
		status = collect(session, tally);
		if (status != RKV_OK)
			break;
	}
	return status;
}

static int
run_all(struct rkv_session *session, struct slot *slots, enum rkv_op op)
{
	struct tally tally = {0};
	int status = RKV_OK;

	for (int i = 0; i < N_KEYS && status == RKV_OK; i++) {
		struct slot *slot = &slots[i];

		slot->request = (struct rkv_request){
			.op = op,
			.key = slot->key,
			.key_len = strlen(slot->key),
			.value = slot->value,
			.value_len = strlen(slot->value),
			.buf = slot->buf,
			.buf_len = sizeof(slot->buf),
			.user = slot,
		};
		status = submit(session, &slot->request, &tally);
	}
	/* Every operation ends by its deadline, so this loop does. */
	while (status == RKV_OK && tally.n_completed < N_KEYS)
		status = collect(session, &tally);

	printf("%s: %d completed, %d wrong, pushed back %d times\n",
	       op == RKV_OP_PUT ? "put" : "get", tally.n_completed, tally.n_wrong,
	       tally.n_pushed_back);
	if (status != RKV_OK)
		fprintf(stderr, "%s\n", rkv_strerror(status));
	return status != RKV_OK || tally.n_wrong || tally.n_completed != N_KEYS;
}

static struct slot *
make_slots(void)
{
	struct slot *slots = calloc(N_KEYS, sizeof(*slots));

	for (int i = 0; slots && i < N_KEYS; i++) {
		snprintf(slots[i].key, sizeof(slots[i].key), "example/async/%d", i);
		snprintf(slots[i].value, sizeof(slots[i].value), "value %d", i * i);
	}
	return slots;
}

int
main(int argc, char **argv)
{
	struct slot *slots = make_slots();
	struct rkv_client *client = NULL;
	struct rkv_session *session = NULL;
	struct rkv_options options;
	int status, failed = 1;

	if (argc != 2 || !slots) {
		fprintf(stderr, "usage: async HOST:PORT\n");
		goto done;
	}
	rkv_options_init(&options);
	options.depth = DEPTH;
	status = rkv_open(argv[1], &options, &client);
	if (status == RKV_OK)
		status = rkv_session_open(client, &session);
	if (status != RKV_OK) {
		fprintf(stderr, "%s: %s\n", argv[1], rkv_strerror(status));
		goto done;
	}
	failed = run_all(session, slots, RKV_OP_PUT) || run_all(session, slots, RKV_OP_GET);
done: /* the session goes first: until it is closed it may hold what the slots lend it */
	rkv_session_close(session);
	rkv_close(client);
	free(slots);
	return failed;
}
