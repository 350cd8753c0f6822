/* SPDX-License-Identifier: BSD-2-Clause */
/* See sockets.h. */
#include "tests/fuzz/sockets.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/err.h"

struct fuzz_sockets fuzz_tcp = {-1, -1}, fuzz_unix = {-1, -1};

static int
take_near(struct fuzz_sockets *sockets, int *ret_fd)
{
	if (sockets->near < 0)
		return ERR_CONN;
	*ret_fd = sockets->near;
	sockets->near = -1;
	return 0;
}

int
__wrap_net_connect(const struct net_address *address, int64_t deadline_ns, int *ret_fd,
		   char reason[NET_REASON_MAX])
{
	(void)address;
	(void)deadline_ns;
	snprintf(reason, NET_REASON_MAX, "nobody is there");
	return take_near(&fuzz_tcp, ret_fd);
}

int
__wrap_net_unix_connect(const char *path, int64_t deadline_ns, int *ret_fd)
{
	(void)deadline_ns;
	fuzz_must(strlen(path) < LIMIT_PATH_MAX);
	return take_near(&fuzz_unix, ret_fd);
}

void
fuzz_sockets_make(struct fuzz_sockets *sockets)
{
	int fds[2];
	fuzz_must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	fuzz_must(fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0);
	*sockets = (struct fuzz_sockets){.near = fds[0], .far = fds[1]};
}

void
fuzz_sockets_say(const struct fuzz_sockets *sockets, const void *bytes, size_t len)
{
	(void)!send(sockets->far, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void
fuzz_sockets_hang_up(const struct fuzz_sockets *sockets)
{
	fuzz_must(shutdown(sockets->far, SHUT_WR) == 0);
}

void
fuzz_sockets_close(struct fuzz_sockets *sockets)
{
	if (sockets->near >= 0)
		close(sockets->near);
	close(sockets->far);
	*sockets = (struct fuzz_sockets){-1, -1};
}
