/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A data connection to a real server of the tcp fabric, over a real socket: a good hello, changed
 * where the input is not 0, cut off by the first byte, and what follows it to the responder.
 * Afterwards the server serves an honest client.
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
static struct net_address address;
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
	static const struct tcp_options options = {
		.n_responders = 1, .handshake_ms = 10000, .stall_ms = 10000, .half_open_max = 8};
	struct net_address any = {.host = "127.0.0.1"};
	struct fab_offer offer = {0};
	char reason[TCP_REASON_MAX];
	unsigned n;
	if (server)
		return;
	if (tcp_server_create(&any, region, sizeof(region), &events, &options, &fuzz_log, &server,
			      reason)) {
		fprintf(stderr, "%s\n", reason);
		_exit(FUZZ_CANNOT_RUN);
	}
	tcp_server_offer(server, &offer);
	fuzz_must(net_parse(offer.tcp_address, 0, &address, 1, &n, reason) == 0);
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

static int
reach(void)
{
	char reason[NET_REASON_MAX];
	int fd;
	fuzz_must(net_connect(&address, clock_now_ns() + WAIT_NS, &fd, reason) == 0);
	return fd;
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
say(struct fuzz_input *in)
{
	struct wire_tcp_hello hello = good_hello();
	unsigned char bytes[sizeof(hello)], answer[256];
	uint8_t cut = fuzz_byte(in);
	int fd = reach();
	memcpy(bytes, &hello, sizeof(bytes));
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] ^= fuzz_byte(in);
	(void)!send(fd, bytes, cut < sizeof(bytes) ? sizeof(bytes) - cut : 0, MSG_NOSIGNAL);
	(void)!send(fd, in->at, in->len, MSG_NOSIGNAL);
	shutdown(fd, SHUT_WR);
	while (serve_until_told(fd, answer, sizeof(answer)) > 0)
		;
	close(fd);
	while (peer) {
		tcp_server_dispatch(server);
		(void)net_wait(tcp_server_fd(server), POLLIN, clock_now_ns() + CLOCK_NS_PER_MS);
	}
}

static void
check_still_serves(void)
{
	struct wire_tcp_hello hello = good_hello();
	struct wire_tcp_accept accept;
	int fd = reach();
	fuzz_must(send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) == (ssize_t)sizeof(hello));
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
