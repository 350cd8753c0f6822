/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server half of the tcp fabric against peers that are not our client: what a NIC would refuse,
 * garbage, silence, peers that do not read; and frames that come in any pieces. Whatever they do,
 * others are served.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/net.h"
#include "common/tcp_frames.h"
#include "proto/wire_tcp.h"
#include "tests/fabric/conformance.h"
#include "tests/fabric/sanitized.h"
#include "tests/fabric/tcp_pair.h"

#define REGION_LEN 1000000u /* not a multiple of a page */
#define HELLO_LEN sizeof(struct wire_tcp_hello)

/* ---- A peer made of bytes ---- */

struct raw {
	int fd;
	uint32_t r_key;
};

/* A socket on which no receive waits for ever. */
static int
raw_socket(const struct tcp_host *host)
{
	const struct timeval limit = {.tv_sec = CONF_WAIT_NS / CLOCK_NS_PER_S};
	struct net_address address;
	char reason[NET_REASON_MAX];
	unsigned n;
	int fd;
	assert_int_equal(net_parse(host->offer.tcp_address, 0, &address, 1, &n, reason), 0);
	assert_int_equal(net_connect(&address, conf_deadline_ns(), &fd, reason), 0);
	assert_int_equal(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)), 0);
	return fd;
}

static struct wire_tcp_hello
good_hello(const struct tcp_host *host)
{
	struct wire_tcp_hello hello = {
		.header = {.magic = WIRE_TCP_MAGIC,
			   .version = WIRE_VERSION,
			   .type = WIRE_TCP_HELLO,
			   .len = sizeof(hello)},
		.request = {.magic = WIRE_CM_MAGIC, .version = WIRE_VERSION},
	};
	memcpy(hello.request.token, host->offer.token, sizeof(hello.request.token));
	return hello;
}

static bool
raw_send(int fd, const void *bytes, size_t len)
{
	return send(fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len;
}

static bool
raw_receive(int fd, void *bytes, size_t len)
{
	ssize_t n;
	do /* on kernels before 6.1 the rings of this thread's endpoints interrupt it */
		n = recv(fd, bytes, len, MSG_WAITALL);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)len;
}

/* The server has ended the connection, without another word. */
static bool
is_over(int fd)
{
	char byte;
	ssize_t n;
	do
		n = recv(fd, &byte, 1, 0);
	while (n < 0 && errno == EINTR);
	return n == 0 || (n < 0 && errno == ECONNRESET);
}

static struct raw
raw_join(const struct tcp_host *host)
{
	struct raw raw = {.fd = raw_socket(host)};
	struct wire_tcp_hello hello = good_hello(host);
	struct wire_tcp_accept accept;
	assert_true(raw_send(raw.fd, &hello, sizeof(hello)));
	assert_true(raw_receive(raw.fd, &accept, sizeof(accept)));
	assert_int_equal(accept.header.type, WIRE_TCP_ACCEPT);
	assert_int_equal(accept.region_len, REGION_LEN);
	raw.r_key = accept.r_key;
	return raw;
}

/* A frame, to be spoilt by the test. */
struct draft {
	struct wire_tcp_frame frame;
	struct wire_tcp_op ops[WIRE_TCP_OPS_MAX + 1];
	unsigned char payload[64];
	size_t payload_len;
};

static struct wire_tcp_op
op_of(enum fab_kind kind, uint64_t roff, uint32_t len)
{
	return (struct wire_tcp_op){.roff = roff, .len = len, .kind = (uint8_t)kind};
}

/* {WRITE of 8 bytes at 64; op}, or op alone. */
static struct draft
draft(const struct raw *raw, struct wire_tcp_op op, bool write_first)
{
	struct draft d = {.frame = {.r_key = raw->r_key, .sequence = 7}};
	if (write_first) {
		d.ops[d.frame.n_ops++] = op_of(FAB_WRITE, 64, 8);
		d.payload_len = 8;
	}
	d.ops[d.frame.n_ops++] = op;
	if (op.kind == FAB_WRITE)
		d.payload_len += op.len;
	if (d.payload_len > sizeof(d.payload))
		d.payload_len = sizeof(d.payload);
	memset(d.payload, 0xee, sizeof(d.payload));
	d.frame.len = (uint32_t)(sizeof(d.frame) + d.frame.n_ops * sizeof(d.ops[0]) +
				 (write_first ? 8u : 0u) + (op.kind == FAB_WRITE ? op.len : 0u));
	return d;
}

static bool
raw_send_draft(int fd, const struct draft *d)
{
	unsigned char bytes[sizeof(*d)];
	size_t n_ops = d->frame.n_ops <= WIRE_TCP_OPS_MAX + 1 ? d->frame.n_ops : 1;
	size_t len = sizeof(d->frame) + n_ops * sizeof(d->ops[0]);
	memcpy(bytes, &d->frame, sizeof(d->frame));
	memcpy(bytes + sizeof(d->frame), d->ops, n_ops * sizeof(d->ops[0]));
	memcpy(bytes + len, d->payload, d->payload_len);
	return raw_send(fd, bytes, len + d->payload_len);
}

/* ---- A client of ours beside them ---- */

struct bench {
	struct tcp_host host;
	struct conf_pair pair;
	uint64_t n_calls; /* of it */
};

static void
bench_open_with(struct bench *b, const struct tcp_options *options)
{
	memset(b, 0, sizeof(*b));
	assert_int_equal(tcp_host_start(&b->host, REGION_LEN, options), 0);
	assert_int_equal(tcp_reach(&b->host.offer, 1, 16, &b->pair), 0);
}

static void
bench_open(struct bench *b)
{
	bench_open_with(b, &tcp_host_options);
}

/* A server that soon drops who does not take its replies, so that tests of that are short. */
static void
bench_open_impatient(struct bench *b)
{
	static const struct tcp_options options = {.n_responders = 2, .stall_ms = 400};
	bench_open_with(b, &options);
}

/* It is served, as if nobody else were there. */
static void
assert_served(struct bench *b)
{
	uint64_t old;
	struct fab_op op = conf_faa(REGION_LEN - 64, 1, &old, 0);
	assert_int_equal(conf_batch(b->pair.ep[0], &op, 1), 0);
	assert_true(old == b->n_calls);
	b->n_calls++;
}

static void
bench_close(struct bench *b)
{
	assert_served(b);
	conf_leave(&b->pair);
	tcp_host_stop(&b->host);
}

/* Waits until a counter of the server has reached n. */
static void
await_count(struct bench *b, size_t offset, uint64_t n)
{
	const struct timespec pause = {.tv_nsec = CLOCK_NS_PER_MS};
	int64_t deadline_ns = conf_deadline_ns();
	for (;;) {
		struct tcp_counters counters = tcp_host_counters(&b->host);
		uint64_t value;
		memcpy(&value, (char *)&counters + offset, sizeof(value));
		if (value >= n)
			return;
		assert_true(clock_now_ns() < deadline_ns);
		assert_served(b);
		nanosleep(&pause, NULL);
	}
}
#define AWAIT(b, counter, n) await_count(b, offsetof(struct tcp_counters, counter), n)

static void
await_peers(struct bench *b, unsigned n)
{
	const struct timespec pause = {.tv_nsec = CLOCK_NS_PER_MS};
	int64_t deadline_ns = conf_deadline_ns();
	while (tcp_host_n_peers(&b->host) != n) {
		assert_true(clock_now_ns() < deadline_ns);
		nanosleep(&pause, NULL);
	}
}

/* ---- What a NIC would refuse ---- */

/* The status of a frame that ends the connection, of which nothing was executed. */
static int
violate(struct bench *b, struct wire_tcp_op op, uint32_t spoil_r_key)
{
	struct wire_tcp_reply reply;
	struct raw raw = raw_join(&b->host);
	struct draft d = draft(&raw, op, true);
	d.frame.r_key ^= spoil_r_key;
	uint64_t before = tcp_host_word(&b->host, 64);
	assert_true(raw_send_draft(raw.fd, &d));
	assert_true(raw_receive(raw.fd, &reply, sizeof(reply)));
	assert_int_equal(reply.sequence, 7);
	assert_int_equal(reply.len, sizeof(reply));
	/* What is said afterwards counts no more. */
	struct draft more = draft(&raw, op_of(FAB_WRITE, 64, 8), false);
	(void)raw_send_draft(raw.fd, &more);
	assert_true(is_over(raw.fd));
	close(raw.fd);
	await_peers(b, 1);
	assert_true(before == tcp_host_word(&b->host, 64));
	assert_served(b);
	return reply.status;
}

static void
test_violations(void **state)
{
	struct bench b;
	(void)state;
	bench_open(&b);
	const struct wire_tcp_op fine = op_of(FAB_READ, 0, 8);
	assert_int_equal(violate(&b, fine, 1), ERR_PERM);
	assert_int_equal(violate(&b, fine, 0x80000000), ERR_PERM);
	const struct wire_tcp_op bad[] = {
		op_of(FAB_READ, REGION_LEN, 1),
		op_of(FAB_READ, REGION_LEN - 7, 8),
		op_of(FAB_READ, 0, REGION_LEN + 1),
		op_of(FAB_READ, 0, UINT32_MAX),
		op_of(FAB_READ, UINT64_MAX, 8),
		op_of(FAB_READ, UINT64_MAX - 7, 8),
		op_of(FAB_WRITE, REGION_LEN - 7, 8),
		op_of(FAB_WRITE, UINT64_MAX - 7, 8),
		op_of(FAB_CAS, REGION_LEN, 8),
		op_of(FAB_CAS, 4, 8),
		op_of(FAB_FAA, 1, 8),
		op_of(FAB_FAA, 8, 4),
		op_of(FAB_CAS, 8, 16),
		op_of(FAB_CAS, 8, 0),
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(violate(&b, bad[i], 0), ERR_INVALID);
	struct tcp_counters counters = tcp_host_counters(&b.host);
	assert_int_equal(counters.n_violations, 2 + sizeof(bad) / sizeof(*bad));
	assert_int_equal(counters.n_garbled, 0);
	bench_close(&b);
}

/* A violation without a reply: the connection ends all the same, nothing is executed. */
static void
test_quiet_violation(void **state)
{
	struct bench b;
	(void)state;
	bench_open(&b);
	struct raw raw = raw_join(&b.host);
	struct draft d = draft(&raw, op_of(FAB_WRITE, REGION_LEN - 7, 8), true);
	d.frame.flags = WIRE_TCP_QUIET;
	assert_true(raw_send_draft(raw.fd, &d));
	assert_true(is_over(raw.fd));
	close(raw.fd);
	assert_true(tcp_host_word(&b.host, 64) == 0);
	assert_int_equal(tcp_host_counters(&b.host).n_violations, 1);
	bench_close(&b);
}

/* Who was refused and does not hang up is hung up on. */
static void
test_refused_lingers(void **state)
{
	struct bench b;
	struct wire_tcp_reply reply;
	(void)state;
	bench_open_impatient(&b);
	struct raw raw = raw_join(&b.host);
	struct draft d = draft(&raw, op_of(FAB_READ, REGION_LEN, 8), false);
	assert_true(raw_send_draft(raw.fd, &d));
	assert_true(raw_receive(raw.fd, &reply, sizeof(reply)));
	await_peers(&b, 1);
	close(raw.fd);
	bench_close(&b);
}

/* A read-only peer, also one that knows the R_Key of another. */
static void
test_read_only(void **state)
{
	struct bench b;
	struct conf_pair pair;
	(void)state;
	bench_open(&b);
	b.host.is_read_only = true;
	for (int kind = FAB_READ; kind <= FAB_FAA; kind++) {
		uint64_t word = 1;
		struct fab_op op = {.kind = (enum fab_kind)kind,
				    .roff = 128,
				    .swap = 9,
				    .piece = {{&word, 8, 0}}};
		assert_int_equal(tcp_reach(&b.host.offer, 1, 4, &pair), 0);
		assert_int_equal(conf_batch(pair.ep[0], &op, 1), kind == FAB_READ ? 0 : ERR_PERM);
		if (kind == FAB_READ)
			assert_true(word == 0);
		assert_int_equal(fab_post_quiet(pair.ep[0], &op, 1) > 0, 0);
		conf_leave(&pair);
	}
	assert_true(tcp_host_word(&b.host, 128) == 0);
	bench_close(&b);
}

/* ---- What is no frame ---- */

static void
assert_garbled(struct bench *b, const void *bytes, size_t len)
{
	uint64_t n = tcp_host_counters(&b->host).n_garbled;
	struct raw raw = raw_join(&b->host);
	(void)raw_send(raw.fd, bytes, len);
	assert_true(is_over(raw.fd));
	close(raw.fd);
	assert_int_equal(tcp_host_counters(&b->host).n_garbled, n + 1);
	assert_served(b);
}

static void
assert_draft_garbled(struct bench *b, const struct draft *d)
{
	uint64_t n = tcp_host_counters(&b->host).n_garbled;
	struct raw raw = raw_join(&b->host);
	assert_true(raw_send_draft(raw.fd, d));
	assert_true(is_over(raw.fd));
	close(raw.fd);
	assert_int_equal(tcp_host_counters(&b->host).n_garbled, n + 1);
	assert_served(b);
}

static void
test_garbled_frames(void **state)
{
	struct bench b;
	unsigned char noise[4096];
	(void)state;
	bench_open(&b);
	struct raw any = raw_join(&b.host);
	const struct draft good = draft(&any, op_of(FAB_READ, 0, 8), true);
	struct draft d = good;
	close(any.fd);
	d.frame.n_ops = 0;
	assert_draft_garbled(&b, &d);
	d.frame.n_ops = WIRE_TCP_OPS_MAX + 1;
	assert_draft_garbled(&b, &d);
	d = good;
	d.frame.n_ops = UINT16_MAX;
	assert_draft_garbled(&b, &d);
	d = good;
	d.frame.flags = 2;
	assert_draft_garbled(&b, &d);
	d.frame.flags = WIRE_TCP_QUIET; /* with a READ */
	assert_draft_garbled(&b, &d);
	d = good;
	d.frame.len++;
	assert_draft_garbled(&b, &d);
	d.frame.len = 0;
	assert_draft_garbled(&b, &d);
	d.frame.len = UINT32_MAX;
	assert_draft_garbled(&b, &d);
	d = good;
	d.ops[1].kind = FAB_FAA + 1;
	assert_draft_garbled(&b, &d);
	d = good;
	d.ops[0].reserved[2] = 1;
	assert_draft_garbled(&b, &d);
	/* Eight WRITEs whose lengths wrap around 32 bits to what the frame says. */
	d = good;
	d.frame.n_ops = WIRE_TCP_OPS_MAX;
	for (unsigned i = 0; i < WIRE_TCP_OPS_MAX; i++)
		d.ops[i] = op_of(FAB_WRITE, 0, UINT32_C(0x20000000));
	d.frame.len = sizeof(d.frame) + WIRE_TCP_OPS_MAX * sizeof(d.ops[0]);
	assert_draft_garbled(&b, &d);
	memset(noise, 0xff, sizeof(noise));
	assert_garbled(&b, noise, sizeof(noise));
	memset(noise, 0, sizeof(noise));
	assert_garbled(&b, noise, sizeof(noise));
	assert_true(tcp_host_word(&b.host, 64) == 0);
	bench_close(&b);
}

/* ---- Hellos ---- */

/* What comes back for a hello; false: nothing, and the end. */
static bool
say_hello(struct bench *b, const void *bytes, size_t len, struct wire_tcp_reject *ret_reject)
{
	int fd = raw_socket(&b->host);
	assert_true(raw_send(fd, bytes, len));
	bool answered = raw_receive(fd, ret_reject, sizeof(*ret_reject));
	assert_true(is_over(fd));
	close(fd);
	assert_served(b);
	return answered;
}

static void
test_hellos(void **state)
{
	struct bench b;
	struct wire_tcp_reject reject;
	unsigned char noise[600];
	(void)state;
	bench_open(&b);
	const struct wire_tcp_hello good = good_hello(&b.host);
	struct wire_tcp_hello h = good;
	h.header.magic++;
	assert_false(say_hello(&b, &h, sizeof(h), &reject));
	h = good;
	h.header.type = WIRE_TCP_ACCEPT;
	assert_false(say_hello(&b, &h, sizeof(h), &reject));
	h = good;
	h.header.len = sizeof(h) - 1;
	assert_false(say_hello(&b, &h, sizeof(h), &reject));
	h.header.len = WIRE_TCP_HELLO_MAX + 1;
	assert_false(say_hello(&b, &h, sizeof(h), &reject));
	memset(noise, 'x', sizeof(noise));
	assert_false(say_hello(&b, noise, sizeof(h.header), &reject));
	/* These are told why. */
	h = good;
	h.header.version = 77;
	assert_true(say_hello(&b, &h, sizeof(h), &reject));
	assert_int_equal(reject.code, ERR_VERSION);
	assert_non_null(strstr(reject.reason, "77"));
	h = good;
	h.request.magic = 0;
	assert_true(say_hello(&b, &h, sizeof(h), &reject));
	assert_int_equal(reject.code, ERR_CORRUPT);
	h = good;
	h.request.version = 78;
	assert_true(say_hello(&b, &h, sizeof(h), &reject));
	assert_int_equal(reject.code, ERR_VERSION);
	h = good;
	h.request.token[0]++;
	assert_true(say_hello(&b, &h, sizeof(h), &reject));
	assert_int_equal(reject.code, ERR_PERM);
	assert_string_equal(reject.reason, "the test says no");
	assert_int_equal(tcp_host_counters(&b.host).n_rejected, 4);
	bench_close(&b);
}

/* A hello that comes byte by byte, and one that a later version has made longer. */
static void
test_hello_in_pieces(void **state)
{
	struct bench b;
	struct wire_tcp_accept accept;
	unsigned char longer[WIRE_TCP_HELLO_MAX] = {0};
	(void)state;
	bench_open(&b);
	struct wire_tcp_hello hello = good_hello(&b.host);
	hello.request.session_slot = 5;
	hello.request.serial = 6;
	hello.header.len = sizeof(longer);
	memcpy(longer, &hello, sizeof(hello));
	int fd = raw_socket(&b.host);
	for (size_t i = 0; i < sizeof(longer); i++)
		assert_true(raw_send(fd, longer + i, 1));
	assert_true(raw_receive(fd, &accept, sizeof(accept)));
	assert_int_equal(accept.header.type, WIRE_TCP_ACCEPT);
	assert_int_equal(b.host.last.session_slot, 5);
	assert_int_equal(b.host.last.serial, 6);
	close(fd);
	await_peers(&b, 1);
	bench_close(&b);
}

/* ---- Peers that do not read ---- */

/* Asks for more than the sockets hold and takes nothing; others are served; then it is dropped. */
static void
stall(struct bench *b, unsigned n_frames)
{
	struct raw raw = raw_join(&b->host);
	uint64_t n = tcp_host_counters(&b->host).n_stalled;
	struct draft d = draft(&raw, op_of(FAB_READ, 0, REGION_LEN), false);
	const int small = 4096;
	setsockopt(raw.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	for (unsigned i = 0; i < n_frames; i++)
		if (!raw_send_draft(raw.fd, &d))
			break;
	AWAIT(b, n_stalled, n + 1);
	close(raw.fd);
	await_peers(b, 1);
}

static void
test_stalled(void **state)
{
	struct bench b;
	(void)state;
	bench_open_impatient(&b);
	stall(&b, 30);
	bench_close(&b);
}

/* The same, and it goes on sending: it may hold few of the buffers that others receive into. */
static void
test_stalled_and_sending(void **state)
{
	struct bench b;
	(void)state;
	bench_open_impatient(&b);
	struct raw raw = raw_join(&b.host);
	struct draft d = draft(&raw, op_of(FAB_READ, 0, REGION_LEN), false);
	int64_t deadline_ns = conf_deadline_ns();
	/* Until it is cut off. */
	while (raw_send_draft(raw.fd, &d))
		assert_true(clock_now_ns() < deadline_ns);
	AWAIT(&b, n_stalled, 1);
	close(raw.fd);
	await_peers(&b, 1);
	bench_close(&b);
}

/* One that reads a little now and then does not keep its connection for ever either. */
static void
test_trickling(void **state)
{
	struct bench b;
	char byte;
	const struct timespec pause = {.tv_nsec = 10 * CLOCK_NS_PER_MS};
	(void)state;
	bench_open_impatient(&b);
	struct raw raw = raw_join(&b.host);
	struct draft d = draft(&raw, op_of(FAB_READ, 0, REGION_LEN), false);
	/* Fails if this thread was held up, and the server has had enough already. */
	for (unsigned i = 0; i < 30 && raw_send_draft(raw.fd, &d); i++)
		;
	int64_t deadline_ns = conf_deadline_ns();
	while (tcp_host_counters(&b.host).n_stalled == 0) {
		assert_true(clock_now_ns() < deadline_ns);
		(void)!recv(raw.fd, &byte, 1, MSG_DONTWAIT);
		nanosleep(&pause, NULL);
	}
	close(raw.fd);
	bench_close(&b);
}

/* ---- Frames in any pieces ---- */

/* Replies come for all that was said before the peer closed its half. */
static void
test_half_close(void **state)
{
	struct bench b;
	struct wire_tcp_reply reply;
	uint64_t word;
	(void)state;
	bench_open(&b);
	struct raw raw = raw_join(&b.host);
	struct draft d = draft(&raw, op_of(FAB_READ, 64, 8), true);
	for (int i = 0; i < 100; i++)
		assert_true(raw_send_draft(raw.fd, &d));
	assert_true(raw_send(raw.fd, &d.frame, sizeof(d.frame))); /* one that is cut off */
	assert_int_equal(shutdown(raw.fd, SHUT_WR), 0);
	for (int i = 0; i < 100; i++) {
		assert_true(raw_receive(raw.fd, &reply, sizeof(reply)));
		assert_int_equal(reply.status, 0);
		assert_true(raw_receive(raw.fd, &word, sizeof(word)));
		assert_true(word == UINT64_C(0xeeeeeeeeeeeeeeee));
	}
	assert_true(is_over(raw.fd));
	close(raw.fd);
	await_peers(&b, 1);
	bench_close(&b);
}

static void
test_byte_by_byte(void **state)
{
	struct bench b;
	struct wire_tcp_reply reply;
	uint64_t words[2];
	(void)state;
	bench_open(&b);
	struct raw raw = raw_join(&b.host);
	struct draft d = draft(&raw, op_of(FAB_FAA, 64, 8), true);
	d.ops[1].expect = 1;
	d.ops[2] = op_of(FAB_READ, 64, 8);
	d.frame.n_ops = 3;
	d.frame.len += sizeof(d.ops[0]);
	unsigned char bytes[sizeof(d.frame) + 3 * sizeof(d.ops[0]) + 8];
	memcpy(bytes, &d.frame, sizeof(d.frame));
	memcpy(bytes + sizeof(d.frame), d.ops, 3 * sizeof(d.ops[0]));
	memcpy(bytes + sizeof(bytes) - 8, d.payload, 8);
	for (size_t i = 0; i < sizeof(bytes); i++)
		assert_true(raw_send(raw.fd, bytes + i, 1));
	assert_true(raw_receive(raw.fd, &reply, sizeof(reply)));
	assert_int_equal(reply.status, 0);
	assert_int_equal(reply.len, sizeof(reply) + sizeof(words));
	assert_true(raw_receive(raw.fd, words, sizeof(words)));
	assert_true(words[0] == UINT64_C(0xeeeeeeeeeeeeeeee));
	assert_true(words[1] == UINT64_C(0xeeeeeeeeeeeeeeef));
	close(raw.fd);
	bench_close(&b);
}

/* ---- The parser alone ---- */

#define PARSER_LEN 8192u
#define STREAM_MAX 65536u

struct parser {
	_Alignas(64) unsigned char region[PARSER_LEN];
	unsigned char out[TCP_OUT_LEN];
	unsigned char said[4 * STREAM_MAX];
	size_t n_said;
	struct tcp_service service;
	struct tcp_frames frames;
};

static void
parser_init(struct parser *p)
{
	memset(p, 0, sizeof(*p));
	p->service = (struct tcp_service){p->region, PARSER_LEN, 0x1234};
	p->frames.service = &p->service;
	p->frames.out = p->out;
	for (unsigned i = 0; i < PARSER_LEN; i++)
		p->region[i] = (unsigned char)(i * 7 + i / 256);
}

/* Consumes len bytes in pieces of random size up to most; a reply buffer already partly full. */
static enum tcp_progress
parse(struct parser *p, const unsigned char *bytes, size_t len, unsigned most, unsigned *seed)
{
	enum tcp_progress progress = TCP_HUNGRY;
	for (size_t at = 0; at < len;) {
		size_t n = 1 + (size_t)rand_r(seed) % most;
		n = n < len - at ? n : len - at;
		/* A copy of its own, so that a step over its end is seen. */
		unsigned char *piece = malloc(n);
		assert_non_null(piece);
		memcpy(piece, bytes + at, n);
		struct tcp_input in = {piece, n};
		do {
			progress = tcp_frames_consume(&p->frames, &in);
			size_t kept = progress == TCP_HUNGRY ? p->frames.out_len : 0;
			assert_true(p->frames.out_len <= TCP_OUT_LEN);
			if (kept < TCP_OUT_LEN - 64 && progress == TCP_HUNGRY)
				continue;
			assert_true(p->n_said + p->frames.out_len <= sizeof(p->said));
			memcpy(p->said + p->n_said, p->out, p->frames.out_len);
			p->n_said += p->frames.out_len;
			p->frames.out_len = 0;
		} while (progress == TCP_FULL);
		free(piece);
		at += n;
		if (progress != TCP_HUNGRY)
			break;
	}
	memcpy(p->said + p->n_said, p->out, p->frames.out_len);
	p->n_said += p->frames.out_len;
	p->frames.out_len = 0;
	return progress;
}

/* A stream of sound frames with operations of all kinds and lengths. */
static size_t
compose(unsigned char *bytes, unsigned *seed)
{
	size_t len = 0;
	for (uint32_t sequence = 0; len < STREAM_MAX / 2; sequence++) {
		struct wire_tcp_frame frame = {.r_key = 0x1234, .sequence = sequence};
		struct wire_tcp_op ops[WIRE_TCP_OPS_MAX];
		size_t payload = 0;
		frame.n_ops = (uint16_t)(1 + rand_r(seed) % 8);
		for (unsigned i = 0; i < frame.n_ops; i++) {
			uint32_t n = (uint32_t)rand_r(seed) % (rand_r(seed) % 3 ? 130 : 2500);
			ops[i] = op_of((enum fab_kind)(rand_r(seed) % 4),
				       (uint64_t)rand_r(seed) % (PARSER_LEN - n), n);
			if (ops[i].kind >= FAB_CAS)
				ops[i] = (struct wire_tcp_op){ops[i].roff & ~UINT64_C(7) & 4095,
							      8,
							      ops[i].kind,
							      {0},
							      (uint64_t)rand_r(seed),
							      17};
			payload += ops[i].kind == FAB_WRITE ? ops[i].len : 0;
		}
		frame.len = (uint32_t)(sizeof(frame) + frame.n_ops * sizeof(ops[0]) + payload);
		memcpy(bytes + len, &frame, sizeof(frame));
		memcpy(bytes + len + sizeof(frame), ops, frame.n_ops * sizeof(ops[0]));
		len += frame.len;
		for (size_t i = len - payload; i < len; i++)
			bytes[i] = (unsigned char)rand_r(seed);
	}
	return len;
}

static struct parser whole, pieces;
static unsigned char stream[2 * STREAM_MAX];

/* However a stream is cut, the same is done and said. */
static void
test_any_pieces(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 60; round++) {
		unsigned seed = round;
		size_t len = compose(stream, &seed);
		parser_init(&whole);
		parser_init(&pieces);
		assert_int_equal(parse(&whole, stream, len, STREAM_MAX, &seed), TCP_HUNGRY);
		assert_int_equal(parse(&pieces, stream, len, 1 + round * 5, &seed), TCP_HUNGRY);
		assert_int_equal(whole.n_said, pieces.n_said);
		assert_memory_equal(whole.said, pieces.said, whole.n_said);
		assert_memory_equal(whole.region, pieces.region, PARSER_LEN);
		assert_int_equal(whole.frames.n_frames, pieces.frames.n_frames);
	}
}

/* Spoilt streams end in an orderly way, and touch nothing outside (ASan). */
static void
test_spoilt(void **state)
{
	unsigned n_ends[TCP_GARBLED + 1] = {0};
	(void)state;
	for (unsigned round = 0; round < 600; round++) {
		unsigned seed = 1000 + round;
		size_t len = compose(stream, &seed);
		for (unsigned i = 0; i < 3; i++)
			stream[(size_t)rand_r(&seed) % 2000] ^=
				(unsigned char)(1u << rand_r(&seed) % 8);
		parser_init(&pieces);
		n_ends[parse(&pieces, stream, len, 500, &seed)]++;
	}
	for (unsigned round = 0; round < 600; round++) {
		unsigned seed = round;
		for (size_t i = 0; i < 4096; i++)
			stream[i] = (unsigned char)(rand_r(&seed) >> 4);
		/* Sound at the front, so that more of it is looked at. */
		struct wire_tcp_frame frame = {.r_key = 0x1234, .n_ops = 1 + round % 8};
		memcpy(stream, &frame, sizeof(frame));
		parser_init(&pieces);
		n_ends[parse(&pieces, stream, 4096, 500, &seed)]++;
	}
	assert_true(n_ends[TCP_GARBLED] > 100);
	assert_true(n_ends[TCP_REFUSED] > 10);
	assert_true(n_ends[TCP_HUNGRY] > 10);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_any_pieces),          cmocka_unit_test(test_spoilt),
		cmocka_unit_test(test_violations),          cmocka_unit_test(test_quiet_violation),
		cmocka_unit_test(test_refused_lingers),     cmocka_unit_test(test_read_only),
		cmocka_unit_test(test_garbled_frames),      cmocka_unit_test(test_hellos),
		cmocka_unit_test(test_hello_in_pieces),     cmocka_unit_test(test_stalled),
		cmocka_unit_test(test_stalled_and_sending), cmocka_unit_test(test_trickling),
		cmocka_unit_test(test_half_close),          cmocka_unit_test(test_byte_by_byte),
	};
	conf_factory = &tcp_factory;
	return cmocka_run_group_tests_name("fabric tcp peers", tests, NULL, NULL);
}
