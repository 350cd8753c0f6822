/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests on the port of metrics, in pieces as long as the first byte says. */
#include "tests/fuzz/serving.h"

static void
check(const struct serving_conn *conn)
{
	static const char begin[] = "HTTP/1.1 ";
	fuzz_must(conn->n_sent == 0 || (conn->n_sent > sizeof(begin) &&
					memcmp(conn->sent, begin, sizeof(begin) - 1) == 0));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	struct serving *s = serving_begin();
	struct serving_conn *conn = serving_connect(s, 0, &s->service->exporter.listener);
	size_t piece = 1 + fuzz_byte(&in) * (size_t)16;
	while (in.len) {
		uint8_t bytes[1 + UINT8_MAX * 16];
		serving_say(s, conn, bytes, fuzz_take(&in, bytes, piece));
	}
	check(conn);
	fuzz_must(s->service->exporter.n_scrapes + s->service->exporter.n_refused <= 1);
	serving_end(s);
	return 0;
}
