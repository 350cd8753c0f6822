/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The unix socket: a client has said hello, and somebody presents a token. With the first byte odd
 * it is the client's, changed where the input is not 0.
 */
#include "tests/fuzz/serving.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	struct serving *s = serving_begin();
	struct serving_conn *client = serving_connect(s, 0, &s->service->listeners[0].listener);
	serving_hello(s, client, WIRE_ROLE_CLIENT);
	struct wire_welcome welcome;
	fuzz_must(serving_answer(client, WIRE_WELCOME, &welcome, sizeof(welcome)));
	bool is_theirs = fuzz_byte(&in) & 1;
	bool differs = !is_theirs || in.len < WIRE_TOKEN_LEN;
	for (unsigned i = 1; i < SERVING_CONNS_MAX && in.len; i++) {
		unsigned char token[WIRE_TOKEN_LEN];
		size_t n = fuzz_take(&in, token, sizeof(token));
		for (size_t k = 0; is_theirs && k < n; k++) {
			differs |= i == 1 && token[k] != 0;
			token[k] ^= welcome.token[k];
		}
		serving_say(s, serving_connect(s, i, &s->service->handout.listener), token, n);
		if (i == 1)
			fuzz_must(s->service->handout.n_given == !differs);
	}
	fuzz_must(s->service->handout.n_given <= 1);
	serving_end(s);
	return 0;
}
