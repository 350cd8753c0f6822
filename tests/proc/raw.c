/* SPDX-License-Identifier: BSD-2-Clause */
/* A client made of bytes: raw.h. */
#include "tests/proc/raw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/fabric_shm.h"
#include "common/net.h"

void
raw_open(struct raw *raw, const struct server *server)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				   .sin_port = htons(server->port)};
	memset(raw, 0, sizeof(*raw));
	raw->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (raw->fd < 0 || connect(raw->fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		fail_msg("connecting to %s: %s", server->address, strerror(errno));
	net_set_nodelay(raw->fd);
}

void
raw_close(struct raw *raw)
{
	fab_disconnect(raw->endpoint);
	fab_region_close(raw->region);
	fab_close(raw->fab);
	if (raw->fd >= 0)
		close(raw->fd);
	raw->fd = -1;
	raw->endpoint = NULL;
	raw->region = NULL;
	raw->fab = NULL;
}

struct wire_header
raw_header(struct raw *raw, enum wire_type type, size_t len)
{
	return (struct wire_header){
		.magic = WIRE_MAGIC,
		.version = WIRE_VERSION,
		.type = (uint16_t)type,
		.len = (uint32_t)len,
		.request = ++raw->request,
	};
}

struct wire_hello
raw_hello(enum wire_role role)
{
	struct wire_hello hello = {
		.header = {WIRE_MAGIC, WIRE_VERSION, WIRE_HELLO, sizeof(hello), 77},
		.sizes = wire_sizes_own(),
		.role = role,
	};
	assert_int_equal(net_boot_id(hello.boot_id), 0);
	return hello;
}

bool
raw_send(struct raw *raw, const void *bytes, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = send(raw->fd, (const char *)bytes + done, len - done, MSG_NOSIGNAL);
		if (n <= 0)
			return false;
		done += (size_t)n;
	}
	return true;
}

/* Receives exactly len bytes; false when the server closes before. */
static bool
receive_all(struct raw *raw, void *to, size_t len)
{
	for (size_t done = 0; done < len;) {
		struct pollfd pollfd = {.fd = raw->fd, .events = POLLIN};
		if (poll(&pollfd, 1, PROC_WAIT_MS) != 1)
			fail_msg("the server neither answers nor closes");
		ssize_t n = recv(raw->fd, (char *)to + done, len - done, 0);
		if (n <= 0)
			return false;
		done += (size_t)n;
	}
	return true;
}

enum wire_type
raw_receive(struct raw *raw)
{
	struct wire_header *header = &raw->in.header;
	if (!receive_all(raw, header, sizeof(*header)))
		return 0;
	assert_int_equal(header->magic, WIRE_MAGIC);
	assert_int_equal(header->version, WIRE_VERSION);
	assert_in_range(header->len, sizeof(*header), LIMIT_MESSAGE_MAX);
	if (!receive_all(raw, raw->in.bytes + sizeof(*header), header->len - sizeof(*header)))
		fail_msg("half a message");
	raw->in.bytes[header->len] = '\0';
	return (enum wire_type)header->type;
}

static void
expect(struct raw *raw, enum wire_type type)
{
	enum wire_type got = raw_receive(raw);
	if (got != type)
		fail_msg("message %d instead of %d: %s", (int)got, (int)type,
			 got == WIRE_REFUSED ? raw->in.refused.reason : "");
}

void
raw_connect(struct raw *raw, const struct server *server, enum wire_role role)
{
	struct wire_hello hello = raw_hello(role);
	raw_open(raw, server);
	assert_true(raw_send(raw, &hello, sizeof(hello)));
	expect(raw, WIRE_WELCOME);
	memcpy(&raw->welcome, raw->in.bytes, sizeof(raw->welcome));
	assert_int_equal(raw->welcome.header.request, hello.header.request);
}

int
raw_present(const struct server *server, const unsigned char token[WIRE_TOKEN_LEN])
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	uint64_t len;
	struct iovec iov = {.iov_base = &len, .iov_len = sizeof(len)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.bytes,
			     .msg_controllen = sizeof(control.bytes)};
	int fd = -1, socket;
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	assert_int_equal(net_unix_connect(server->socket, deadline, &socket), 0);
	assert_int_equal(send(socket, token, WIRE_TOKEN_LEN, MSG_NOSIGNAL), WIRE_TOKEN_LEN);
	assert_int_equal(net_wait(socket, POLLIN, deadline), 0);
	if (recvmsg(socket, &msg, MSG_CMSG_CLOEXEC) == (ssize_t)sizeof(len)) {
		assert_non_null(CMSG_FIRSTHDR(&msg));
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	}
	close(socket);
	return fd;
}

struct wire_tcp_hello
raw_data_hello(const struct raw *raw, const struct raw_session *session)
{
	struct wire_tcp_hello hello = {
		.header = {WIRE_TCP_MAGIC, WIRE_VERSION, WIRE_TCP_HELLO, sizeof(hello), 0},
		.request = {.magic = WIRE_CM_MAGIC, .version = WIRE_VERSION},
	};
	memcpy(hello.request.token, raw->welcome.token, sizeof(hello.request.token));
	if (session) {
		hello.request.session_slot = session->slot;
		hello.request.serial = session->serial;
	}
	return hello;
}

void
raw_map(struct raw *raw)
{
	const struct wire_region *region = &raw->welcome.region[0];
	struct fab_offer offer = {
		.region_id = region->region_id,
		.epoch = region->epoch,
		.len = region->len,
	};
	int64_t deadline = clock_now_ns() + PROC_WAIT_MS * CLOCK_NS_PER_MS;
	memcpy(offer.unix_path, raw->welcome.unix_path, sizeof(offer.unix_path));
	memcpy(offer.token, raw->welcome.token, sizeof(offer.token));
	assert_int_equal(shm_open_fabric(&raw->fab), 0);
	assert_int_equal(fab_region_open(raw->fab, &offer, deadline, &raw->region), 0);
	assert_int_equal(fab_connect(raw->region, NULL, 4, deadline, &raw->endpoint), 0);
	struct layout_superblock *superblock = malloc(sizeof(*superblock));
	for (uint64_t off = 0; off < sizeof(*superblock); off += 8) {
		uint64_t word = raw_word(raw, off);
		memcpy((char *)superblock + off, &word, sizeof(word));
	}
	const char *wrong = layout_from_superblock(&raw->layout, superblock);
	free(superblock);
	if (wrong)
		fail_msg("%s", wrong);
}

struct raw_session
raw_join(struct raw *raw, uint32_t former_serial)
{
	return raw_join_again(raw, former_serial, 0);
}

struct raw_session
raw_join_again(struct raw *raw, uint32_t former_serial, uint32_t attempt)
{
	struct wire_join join = {.header = raw_header(raw, WIRE_JOIN, sizeof(join)),
				 .former_serial = former_serial,
				 .attempt = attempt};
	struct wire_joined joined;
	assert_true(raw_send(raw, &join, sizeof(join)));
	expect(raw, WIRE_JOINED);
	memcpy(&joined, raw->in.bytes, sizeof(joined));
	assert_int_equal(joined.header.request, join.header.request);
	return (struct raw_session){joined.session_slot, joined.serial, joined.stamp};
}

struct wire_stamp
raw_keepalive(struct raw *raw, const struct wire_announcement *said, uint32_t n)
{
	size_t len = sizeof(struct wire_keepalive) + n * sizeof(*said);
	struct wire_keepalive keepalive = {.header = raw_header(raw, WIRE_KEEPALIVE, len),
					   .n = n,
					   .n_draining = raw->n_draining};
	struct wire_stamp stamp;
	assert_true(raw_send(raw, &keepalive, sizeof(keepalive)));
	assert_true(raw_send(raw, said, n * sizeof(*said)));
	expect(raw, WIRE_STAMP);
	memcpy(&stamp, raw->in.bytes, sizeof(stamp));
	assert_int_equal(stamp.header.request, keepalive.header.request);
	return stamp;
}

enum wire_type
raw_ask(struct raw *raw, enum wire_type type, const struct raw_session *session)
{
	struct wire_session message = {
		.header = raw_header(raw, type, session ? sizeof(message) : sizeof(message.header)),
		.session_slot = session ? session->slot : 0,
		.serial = session ? session->serial : 0,
	};
	assert_true(raw_send(raw, &message, message.header.len));
	enum wire_type answer = raw_receive(raw);
	assert_int_equal(raw->in.header.request, message.header.request);
	return answer;
}

void
raw_leave(struct raw *raw, const struct raw_session *session)
{
	struct wire_session message = {
		.header = raw_header(raw, WIRE_LEAVE, sizeof(message)),
		.session_slot = session->slot,
		.serial = session->serial,
	};
	assert_true(raw_send(raw, &message, sizeof(message)));
}

uint64_t
raw_stat(struct raw *raw, const char *name)
{
	char line[64];
	assert_int_equal(raw_ask(raw, WIRE_STATS, NULL), WIRE_STATS_TEXT);
	const char *text = (const char *)raw->in.bytes + sizeof(struct wire_header);
	snprintf(line, sizeof(line), "\n%s ", name);
	const char *found = strstr(text, line);
	if (!found)
		fail_msg("no statistic %s", name);
	return strtoull(found + strlen(line), NULL, 10);
}

bool
raw_stat_becomes(struct raw *raw, const char *name, uint64_t value)
{
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	while (raw_stat(raw, name) != value)
		if (!proc_pause(deadline))
			return false;
	return true;
}

static uint64_t
one_operation(struct raw *raw, struct fab_op op)
{
	uint64_t word = 0;
	struct fab_done done;
	op.piece[0] = (struct fab_piece){.local = &word, .len = sizeof(word)};
	assert_int_equal(fab_register(raw->fab, &word, sizeof(word), &op.piece[0].key), 0);
	assert_int_equal(fab_post(raw->endpoint, &op, 1, NULL), 0);
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	while (fab_poll(raw->endpoint, &done, 1) == 0)
		assert_true(proc_pause(deadline));
	assert_int_equal(done.status, 0);
	fab_deregister(raw->fab, op.piece[0].key);
	return word;
}

uint64_t
raw_word(struct raw *raw, uint64_t off)
{
	return one_operation(raw, (struct fab_op){.kind = FAB_READ, .roff = off});
}

bool
raw_cas(struct raw *raw, uint64_t off, uint64_t expect_word, uint64_t swap)
{
	struct fab_op op = {.kind = FAB_CAS, .roff = off, .expect = expect_word, .swap = swap};
	return one_operation(raw, op) == expect_word;
}
