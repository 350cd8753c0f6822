/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server's answer to the hello of a data connection, as a client takes it: an ACCEPT, or, with
 * the first byte odd, a REJECT, changed where the input is not 0; the second byte says how much of
 * it comes.
 */
#include <stdio.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/tcp_hello.h"
#include "tests/fuzz/sockets.h"

#define WAIT_NS (20 * CLOCK_NS_PER_MS)

union answer {
	struct wire_tcp_header header;
	struct wire_tcp_accept accept;
	struct wire_tcp_reject reject;
	uint8_t bytes[sizeof(struct wire_tcp_reject)];
};

static void
answer(struct fuzz_input *in)
{
	bool is_reject = fuzz_byte(in) & 1;
	size_t cut = fuzz_byte(in), len;
	union answer a = {0};
	if (is_reject)
		a.reject.code = ERR_PERM;
	else
		a.accept.batch_max = WIRE_TCP_OPS_MAX;
	len = is_reject ? sizeof(a.reject) : sizeof(a.accept);
	a.header = (struct wire_tcp_header){
		.magic = WIRE_TCP_MAGIC,
		.version = WIRE_VERSION,
		.type = is_reject ? WIRE_TCP_REJECT : WIRE_TCP_ACCEPT,
		.len = (uint32_t)len,
	};
	for (size_t i = 0; i < len; i++)
		a.bytes[i] ^= fuzz_byte(in);
	fuzz_sockets_make(&fuzz_tcp);
	fuzz_sockets_say(&fuzz_tcp, &a, cut < len ? len - cut : 0);
	fuzz_sockets_hang_up(&fuzz_tcp);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	struct fab_offer offer = {.tcp_address = "127.0.0.1:1"};
	struct wire_tcp_accept accept;
	char reason[TCP_REASON_MAX] = "";
	int fd;
	answer(&in);
	int rc = tcp_hello_connect(&offer, NULL, clock_now_ns() + WAIT_NS, &fd, &accept, reason);
	if (rc == 0) {
		fuzz_must(accept.base == 0 && accept.batch_max >= FAB_BATCH_MAX);
		close(fd);
	} else {
		fuzz_must(rc < 0 || rc == ERR_AGAIN);
		fuzz_must(memchr(reason, '\0', sizeof(reason)));
	}
	fuzz_sockets_close(&fuzz_tcp);
	return 0;
}
