/* SPDX-License-Identifier: BSD-2-Clause */
/* One datagram to the service manager: notify.h. */
#include "server/notify.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/net.h"

void
notify_send(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address;
	socklen_t len;
	if (!path || net_unix_address(path, &address, &len))
		return;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	/* The service manager notices by itself when this gets lost. */
	sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&address,
	       len);
	close(fd);
}
