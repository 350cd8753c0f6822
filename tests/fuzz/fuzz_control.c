/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Control connections as the server takes them. The input is a list of steps: who, what, and what
 * it needs; so that sessions come to be joined, other steps are put right than raw ones.
 */
#include "tests/fuzz/serving.h"

#define STEPS_MAX 64

enum step {
	STEP_RAW,      /* a length, and so many bytes */
	STEP_MESSAGE,  /* a type, a length, and the body */
	STEP_NAMED,    /* the same, whose body begins with the last session that was joined */
	STEP_ANNOUNCE, /* a keepalive of that session */
	STEP_HELLO,
	STEP_HELLO_ADMIN,
	STEP_HANG_UP,
	STEP_TICK,
};

union body {
	struct wire_header header;
	struct wire_session session;
	struct wire_keepalive keepalive;
	unsigned char bytes[sizeof(struct wire_header) + 2 * UINT8_MAX];
};

static void
say_body(struct serving *s, const struct serving_conn *conn, struct fuzz_input *in, bool is_named)
{
	union body *body = calloc(1, sizeof(*body));
	struct wire_joined joined;
	fuzz_must(body);
	uint8_t type = fuzz_byte(in);
	size_t len = 2 * (size_t)fuzz_byte(in);
	fuzz_take(in, body->bytes + sizeof(body->header), len);
	if (is_named && serving_answer(conn, WIRE_JOINED, &joined, sizeof(joined))) {
		uint32_t name[2] = {joined.session_slot, joined.serial};
		memcpy(body->bytes + sizeof(body->header), name, sizeof(name));
	}
	serving_message(s, conn, body, sizeof(body->header) + len, type);
	free(body);
}

static void
announce(struct serving *s, const struct serving_conn *conn, struct fuzz_input *in)
{
	struct wire_joined joined;
	union body *body = calloc(1, sizeof(*body));
	fuzz_must(body);
	struct wire_announcement *said = &body->keepalive.session[0];
	body->keepalive.n = 1;
	fuzz_take(in, &said->a, sizeof(said->a));
	if (serving_answer(conn, WIRE_JOINED, &joined, sizeof(joined))) {
		said->session_slot = joined.session_slot;
		said->serial = joined.serial;
	}
	serving_message(s, conn, body, sizeof(body->keepalive) + sizeof(*said), WIRE_KEEPALIVE);
	free(body);
}

static void
step(struct serving *s, struct fuzz_input *in)
{
	uint8_t what = fuzz_byte(in);
	struct serving_conn *conn =
		serving_connect(s, what >> 4, &s->service->listeners[0].listener);
	uint8_t raw[UINT8_MAX];
	switch ((enum step)(what & 7)) {
	case STEP_RAW:
		serving_say(s, conn, raw, fuzz_take(in, raw, fuzz_byte(in)));
		break;
	case STEP_MESSAGE:
	case STEP_NAMED:
		say_body(s, conn, in, (what & 7) == STEP_NAMED);
		break;
	case STEP_ANNOUNCE:
		announce(s, conn, in);
		break;
	case STEP_HELLO:
		serving_hello(s, conn, WIRE_ROLE_CLIENT);
		break;
	case STEP_HELLO_ADMIN:
		serving_hello(s, conn, WIRE_ROLE_ADMIN);
		break;
	case STEP_HANG_UP:
		fuzz_loop_hang_up(&s->loop, conn->fd);
		break;
	case STEP_TICK:
		fuzz_loop_pass_time(&s->loop);
		break;
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	struct serving *s = serving_begin();
	for (int i = 0; i < STEPS_MAX && in.len; i++)
		step(s, &in);
	for (unsigned i = 0; i < SERVING_CONNS_MAX; i++)
		(void)serving_answer(&s->conn[i], 0, NULL, 0); /* all answers are messages */
	struct sessions *sessions = &s->service->store[0]->sessions;
	fuzz_must(sessions_g(sessions) <= sessions->newest);
	serving_end(s);
	return 0;
}
