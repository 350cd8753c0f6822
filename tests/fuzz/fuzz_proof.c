/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Coming in to a server with tenants. The input is a list of steps: who, what, and what it needs.
 * A WELCOME comes to nobody but who has proved, over this connection, to know the tenant's secret.
 */
#include "tests/fuzz/serving.h"

#define STEPS_MAX 64
#define SECRET_OF_APP "0123456789abcdef0123456789abcdef"
#define SECRET_OF_VIEW "fedcba9876543210fedcba9876543210"
#define TENANTS "app read-write " SECRET_OF_APP "\nview read-only " SECRET_OF_VIEW "\n"

enum step {
	STEP_HELLO, /* which tenant, then what is changed */
	STEP_PROOF, /* whose secret, of which connection's conversation, then what is changed */
	STEP_MESSAGE,
	STEP_HANG_UP,
	STEP_TICK,
	STEPS
};

struct peer_said {
	struct wire_hello hello;
	bool has_proved;
};

static struct tenants *
tenants_once(void)
{
	static const struct tenants_regions regions = {.n = 1, .name = {"default"}};
	static struct tenants *tenants;
	char reason[NET_REASON_MAX];
	if (!tenants)
		fuzz_must(tenants_load(fuzz_file(TENANTS, strlen(TENANTS)), &regions, &tenants,
				       reason) == 0);
	return tenants;
}

static void
say_hello(struct serving *s, const struct serving_conn *conn, struct fuzz_input *in,
	  struct peer_said *said)
{
	struct wire_hello hello = {.sizes = wire_sizes_own(), .role = WIRE_ROLE_CLIENT};
	snprintf(hello.tenant, sizeof(hello.tenant), "%s", fuzz_byte(in) & 1 ? "view" : "app");
	fuzz_change(in, hello.tenant, sizeof(hello) - offsetof(struct wire_hello, tenant));
	serving_message(s, conn, &hello, sizeof(hello), WIRE_HELLO);
	said->hello = hello;
}

/* What the server would take from this tenant in this conversation. False: from nobody. */
static bool
right_proof(const struct serving_conn *conn, const struct peer_said *said, const char *tenant,
	    unsigned char ret_proof[WIRE_PROOF_LEN])
{
	struct auth_said all = {.hello = said->hello};
	const struct tenant *t = tenants_find(tenants_once(), tenant);
	return t && serving_answer(conn, WIRE_CHALLENGE, &all.challenge, sizeof(all.challenge)) &&
	       auth_client_proof(&t->secret, &all, ret_proof);
}

static void
say_proof(struct serving *s, unsigned number, struct fuzz_input *in, struct peer_said *all)
{
	struct wire_proof proof = {0};
	unsigned char right[WIRE_PROOF_LEN];
	uint8_t how = fuzz_byte(in);
	unsigned other = (how >> 1) % SERVING_CONNS_MAX;
	const struct serving_conn *conn = &s->conn[number];
	(void)right_proof(&s->conn[other], &all[other], how & 1 ? "view" : "app", proof.proof);
	fuzz_change(in, proof.proof, sizeof(proof.proof));
	if (right_proof(conn, &all[number], all[number].hello.tenant, right) &&
	    memcmp(right, proof.proof, sizeof(right)) == 0)
		all[number].has_proved = true;
	serving_message(s, conn, &proof, sizeof(proof), WIRE_PROOF);
}

static void
say_message(struct serving *s, const struct serving_conn *conn, struct fuzz_input *in)
{
	uint8_t type = fuzz_byte(in);
	size_t len = sizeof(struct wire_header) + 2 * (size_t)fuzz_byte(in);
	unsigned char *message = calloc(1, len);
	fuzz_must(message);
	fuzz_take(in, message + sizeof(struct wire_header), len - sizeof(struct wire_header));
	serving_message(s, conn, message, len, type);
	free(message);
}

static void
step(struct serving *s, struct fuzz_input *in, struct peer_said *all)
{
	uint8_t what = fuzz_byte(in);
	unsigned number = (what >> 4) % SERVING_CONNS_MAX;
	struct serving_conn *conn = serving_connect(s, number, &s->service->listeners[0].listener);
	struct wire_welcome welcome;
	switch ((enum step)((what & 15) % STEPS)) {
	case STEP_HELLO:
		say_hello(s, conn, in, &all[number]);
		break;
	case STEP_PROOF:
		say_proof(s, number, in, all);
		break;
	case STEP_MESSAGE:
		say_message(s, conn, in);
		break;
	case STEP_HANG_UP:
		fuzz_loop_hang_up(&s->loop, conn->fd);
		break;
	case STEP_TICK:
		fuzz_loop_pass_time(&s->loop);
		break;
	case STEPS:
		break;
	}
	if (serving_answer(conn, WIRE_WELCOME, &welcome, sizeof(welcome)))
		fuzz_must(all[number].has_proved);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	struct peer_said all[SERVING_CONNS_MAX] = {0};
	struct serving *s = serving_begin();
	s->guard.tenants = tenants_once();
	for (int i = 0; i < STEPS_MAX && in.len; i++)
		step(s, &in, all);
	serving_end(s);
	return 0;
}
