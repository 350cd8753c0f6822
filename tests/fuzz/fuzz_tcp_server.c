/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A data connection to a real server of the tcp fabric: a good hello, changed where the input is
 * not 0 and cut off by the first byte; what follows it goes to the responder. Afterwards the server
 * serves an honest client.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/fabric_tcp.h"
#include "common/net.h"
#include "proto/wire_tcp.h"
#include "tests/fuzz/fuzz.h"

#define REGION_LEN 65536u
#define WAIT_NS (10 * CLOCK_NS_PER_S)
#define REFUSED_SLOT 1u

static struct tcp_server *server;
static struct tcp_peer *peer;

static int
admit(void *arg, const struct wire_cm_request *request, struct tcp_peer *asking,
      char reason[sizeof(((struct wire_cm_reject *)NULL)->reason)])
{
	(void)arg;
	fuzz_must(request->magic == WIRE_CM_MAGIC && request->reserved == 0);
	if (request->session_slot == REFUSED_SLOT) {
		snprintf(reason, sizeof(((struct wire_cm_reject *)NULL)->reason), "not this one");
		return ERR_PERM;
	}
	if (request->serial & 1)
		tcp_peer_restrict(asking);
	fuzz_must(!peer);
	peer = asking;
	return 0;
}

static void
lost(void *arg, struct tcp_peer *of)
{
	(void)arg;
	fuzz_must(peer == of);
	peer = NULL;
}

static void
start_once(void)
{
	static _Alignas(4096) unsigned char region[REGION_LEN];
	static const struct tcp_events events = {admit, lost, NULL};
	static const struct tcp_options options = {.n_responders = 1, .stall_ms = 10000};
	char reason[TCP_REASON_MAX];
	if (server)
		return;
	if (tcp_server_create(region, sizeof(region), &events, &options, &server, reason)) {
		fprintf(stderr, "%s\n", reason);
		_exit(FUZZ_CANNOT_RUN);
	}
}

static struct wire_tcp_hello
good_hello(void)
{
	return (struct wire_tcp_hello){
		.header = {.magic = WIRE_TCP_MAGIC,
			   .version = WIRE_VERSION,
			   .type = WIRE_TCP_HELLO,
			   .len = sizeof(struct wire_tcp_hello)},
		.request = {.magic = WIRE_CM_MAGIC, .version = WIRE_VERSION},
	};
}

/* As the control port does it: the hello is whole, and nothing behind it was received. -1: no. */
static int
greet(const unsigned char *bytes, size_t len, size_t *ret_taken)
{
	int fds[2];
	*ret_taken = tcp_server_measure(bytes, len);
	if (*ret_taken == 0 || *ret_taken > len)
		return -1;
	fuzz_must(*ret_taken <= WIRE_TCP_HELLO_MAX);
	fuzz_must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	tcp_server_take(server, fds[1], bytes);
	return fds[0];
}

/* Serves until the peer of fd is told something, or its connection ends. */
static ssize_t
serve_until_told(int fd, void *answer, size_t len)
{
	int64_t deadline_ns = clock_now_ns() + WAIT_NS;
	ssize_t n;
	while ((n = recv(fd, answer, len, MSG_DONTWAIT)) < 0 && errno == EAGAIN) {
		fuzz_must(clock_now_ns() < deadline_ns);
		tcp_server_dispatch(server);
		(void)net_wait(fd, POLLIN, clock_now_ns() + CLOCK_NS_PER_MS / 10);
	}
	return n;
}

static void
wait_for_end(void)
{
	int64_t deadline_ns = clock_now_ns() + WAIT_NS;
	while (peer) {
		fuzz_must(clock_now_ns() < deadline_ns);
		tcp_server_dispatch(server);
		(void)net_wait(tcp_server_fd(server), POLLIN, clock_now_ns() + CLOCK_NS_PER_MS);
	}
}

static void
say(struct fuzz_input *in)
{
	struct wire_tcp_hello hello = good_hello();
	unsigned char answer[256];
	size_t cut = fuzz_byte(in), taken;
	size_t len = cut < sizeof(hello) ? sizeof(hello) - cut + in->len : 0;
	unsigned char *bytes = calloc(1, sizeof(hello) + in->len);
	fuzz_must(bytes);
	memcpy(bytes, &hello, sizeof(hello));
	for (size_t i = 0; i < sizeof(hello); i++)
		bytes[i] ^= fuzz_byte(in);
	if (in->len)
		memcpy(bytes + sizeof(hello), in->at, in->len);
	void *copy = fuzz_copy(bytes, len);
	free(bytes);
	int fd = greet(copy, len, &taken);
	if (fd >= 0) {
		(void)!send(fd, (char *)copy + taken, len - taken, MSG_NOSIGNAL | MSG_DONTWAIT);
		shutdown(fd, SHUT_WR);
		while (serve_until_told(fd, answer, sizeof(answer)) > 0)
			;
		close(fd);
		wait_for_end();
	}
	free(copy);
}

static void
check_still_serves(void)
{
	struct wire_tcp_hello hello = good_hello();
	struct wire_tcp_accept accept;
	size_t taken;
	int fd = greet((void *)&hello, sizeof(hello), &taken);
	fuzz_must(fd >= 0 && taken == sizeof(hello));
	fuzz_must(serve_until_told(fd, &accept, sizeof(accept)) == (ssize_t)sizeof(accept));
	fuzz_must(accept.header.type == WIRE_TCP_ACCEPT && peer);
	tcp_peer_destroy(peer);
	peer = NULL;
	close(fd);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	start_once();
	say(&in);
	check_still_serves();
	return 0;
}
