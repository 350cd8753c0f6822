/* SPDX-License-Identifier: BSD-2-Clause */
/* Waiting for former clients: waiting.h. A signal ends the process, as nothing is begun yet. */
#include "server/waiting.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "proto/limits.h"
#include "server/messages.h"
#include "server/notify.h"

#define LOOK_MS 20
#define QUIET_NS (100 * CLOCK_NS_PER_MS) /* most let go within: nothing is said */
#define LOG_EVERY_NS (60 * CLOCK_NS_PER_S)
#define VISITORS_MAX 64u

struct room {
	const struct log *log;
	const struct ports *ports;
	int64_t began_ns;
	int64_t told_ns;
	pid_t told_pid;
	/* Told, and given until the next look to read it: what they said is read then. */
	int visitor[VISITORS_MAX];
	unsigned n_visitors;
};

static void
describe(pid_t pid, char *text, size_t len)
{
	if (pid)
		snprintf(text, len,
			 "the server waits for process %d, which still maps the pool of the server "
			 "before it: let it run on, or end it",
			 (int)pid);
	else
		snprintf(
			text, len,
			"the server waits for a process of another container, which still maps the "
			"pool of the server before it: let it run on, or end it");
}

static void
see_off(struct room *room)
{
	char bytes[4096];
	while (room->n_visitors) {
		int fd = room->visitor[--room->n_visitors];
		/* Bytes that nobody has read would turn the end into a reset. */
		(void)!recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		close(fd);
	}
}

/* A connection that has come to the control port, or -1. */
static int
next_visitor(const struct ports *ports)
{
	for (unsigned i = 0; i < ports->n; i++) {
		struct pollfd p = {.fd = ports->port[i].fd, .events = POLLIN};
		if (poll(&p, 1, 0) > 0)
			return accept4(p.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	}
	return -1;
}

static void
receive_visitors(struct room *room, pid_t pid)
{
	char text[LIMIT_REASON_MAX];
	int fd;
	describe(pid, text, sizeof(text));
	while (room->n_visitors < VISITORS_MAX && (fd = next_visitor(room->ports)) >= 0) {
		messages_farewell(fd, ERR_CONN, text);
		room->visitor[room->n_visitors++] = fd;
	}
}

static void
tell(struct room *room, pid_t pid, int64_t now_ns)
{
	char text[LIMIT_REASON_MAX], state[LIMIT_REASON_MAX + 64];
	bool is_new = room->told_ns == 0 || pid != room->told_pid;
	if (now_ns - room->began_ns < QUIET_NS ||
	    (now_ns - room->told_ns < (is_new ? CLOCK_NS_PER_S : LOG_EVERY_NS) && room->told_ns))
		return;
	describe(pid, text, sizeof(text));
	log_line(room->log, LOG_WARN, "%s", text);
	snprintf(state, sizeof(state), "STATUS=%s\nEXTEND_TIMEOUT_USEC=%lld", text,
		 (long long)(2 * LOG_EVERY_NS / 1000));
	notify_send(state);
	room->told_ns = now_ns;
	room->told_pid = pid;
}

uint64_t
waiting_for_former(const struct pool_file *file, const struct ports *ports, const struct log *log)
{
	struct room room = {.log = log, .ports = ports, .began_ns = clock_now_ns()};
	pid_t pid;
	while (pool_file_is_mapped(file, &pid)) {
		tell(&room, pid, clock_now_ns());
		receive_visitors(&room, pid);
		poll(NULL, 0, LOOK_MS);
		see_off(&room);
	}
	int64_t took_ns = clock_now_ns() - room.began_ns;
	if (room.told_ns)
		log_line(log, LOG_INFO, "the last of them is gone; starting");
	return (uint64_t)(took_ns / CLOCK_NS_PER_MS);
}
