/* SPDX-License-Identifier: BSD-2-Clause */
/* See serving.h. */
#include "tests/fuzz/serving.h"

#include <sys/socket.h>
#include <unistd.h>

static struct serving serving;

/* ---- What is there once ---- */

static const struct options *
options_once(void)
{
	static struct options options;
	/* A small index: each tick looks through a part of it. */
	static char words[][16] = {"kv-server", "--fabric",      "shm", "--pool-size",
				   "1M",        "--index-slots", "64"};
	char *argv[] = {words[0], words[1], words[2], words[3], words[4], words[5], words[6], NULL};
	char reason[NET_REASON_MAX];
	if (!options.pool_size)
		fuzz_must(options_parse(&options, argv, reason) == 0);
	return &options;
}

static struct region *
region_once(void)
{
	static const struct region_events no_peers; /* shm has none */
	static struct region region;
	const struct options *options = options_once();
	if (!region.pool) {
		fuzz_must(region_choose(&region, options, &options->listen[0], &fuzz_log) == 0);
		fuzz_must(region_create(&region, options, &no_peers) == 0);
	}
	return &region;
}

/* ---- One server ---- */

static void
remember(int fd, const void *bytes, size_t len)
{
	for (unsigned i = 0; i < SERVING_CONNS_MAX; i++) {
		struct serving_conn *conn = &serving.conn[i];
		if (conn->fd != fd)
			continue;
		if (len > sizeof(conn->sent) - conn->n_sent)
			len = sizeof(conn->sent) - conn->n_sent;
		memcpy(conn->sent + conn->n_sent, bytes, len);
		conn->n_sent += len;
	}
}

struct serving *
serving_begin(void)
{
	static const struct ports ports = {.n = 1}; /* the loop looks at no descriptor */
	struct serving *s = &serving;
	const struct service_region region = {options_once(), region_once(), &s->peers};
	struct service_setup setup = {
		.loop = &s->loop,
		.log = &fuzz_log,
		.regions = &region,
		.n_regions = 1,
		.options = options_once(),
		.guard = &s->guard,
		.ports = &ports,
		.unix_fd = 0,
		.unix_path = "@fuzz",
		.metrics_fd = 0,
	};
	memset(&s->peers, 0, sizeof(s->peers));
	s->guard = (struct guard){.log = &fuzz_log};
	TAILQ_INIT(&s->loop.ops);
	s->loop.sent = remember;
	for (unsigned i = 0; i < SERVING_CONNS_MAX; i++) {
		s->conn[i].fd = SERVING_NEVER;
		s->conn[i].n_sent = 0;
	}
	fuzz_must(service_create(&setup, &s->service) == 0);
	return s;
}

void
serving_end(struct serving *s)
{
	for (unsigned i = 0; i < SERVING_CONNS_MAX; i++) {
		if (s->conn[i].fd == SERVING_NEVER)
			continue;
		fuzz_loop_hang_up(&s->loop, s->conn[i].fd);
		close(s->conn[i].peer);
	}
	service_destroy(s->service);
}

struct serving_conn *
serving_connect(struct serving *s, unsigned number, struct loop_listener *listener)
{
	struct serving_conn *conn = &s->conn[number % SERVING_CONNS_MAX];
	int fds[2];
	if (conn->fd != SERVING_NEVER)
		return conn;
	fuzz_must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	/* Who had this number was closed by the server: what is said there now is another's. */
	for (unsigned i = 0; i < SERVING_CONNS_MAX; i++)
		if (s->conn[i].fd == fds[0])
			s->conn[i].fd = SERVING_GONE;
	conn->fd = fds[0];
	conn->peer = fds[1];
	listener->accepted(listener, conn->fd);
	return conn;
}

void
serving_say(struct serving *s, const struct serving_conn *conn, const void *bytes, size_t len)
{
	fuzz_loop_arrive(&s->loop, conn->fd, bytes, len);
}

void
serving_message(struct serving *s, const struct serving_conn *conn, void *message, size_t len,
		uint16_t type)
{
	struct wire_header header = {
		.magic = WIRE_MAGIC,
		.version = WIRE_VERSION,
		.type = type,
		.len = (uint32_t)len,
	};
	memcpy(message, &header, sizeof(header));
	serving_say(s, conn, message, len);
}

void
serving_hello(struct serving *s, const struct serving_conn *conn, enum wire_role role)
{
	struct wire_hello hello = {.sizes = wire_sizes_own(), .role = role};
	serving_message(s, conn, &hello, sizeof(hello), WIRE_HELLO);
}

bool
serving_answer(const struct serving_conn *conn, uint16_t type, void *to, size_t len)
{
	bool found = false;
	struct wire_header header;
	for (size_t at = 0; conn->n_sent - at >= sizeof(header); at += header.len) {
		memcpy(&header, conn->sent + at, sizeof(header));
		fuzz_must(header.magic == WIRE_MAGIC && header.version == WIRE_VERSION);
		fuzz_must(header.len >= sizeof(header) && header.len <= LIMIT_MESSAGE_MAX);
		if (header.len > conn->n_sent - at)
			break;
		if (header.type != type)
			continue;
		fuzz_must(header.len == len);
		memcpy(to, conn->sent + at, len);
		found = true;
	}
	return found;
}
