/* SPDX-License-Identifier: BSD-2-Clause */
/* See ports.h. */
#include "server/ports.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BACKLOG 1024

int
ports_open(struct ports *ports, const struct net_address *addresses, unsigned n,
	   char reason[NET_REASON_MAX])
{
	ports->n = 0;
	for (unsigned i = 0; i < n; i++) {
		unsigned n_more;
		int rc = net_listen_each(&addresses[i], n > 1, BACKLOG, &ports->port[ports->n],
					 PORTS_MAX - ports->n, &n_more, reason);
		if (rc) {
			ports_close(ports);
			return rc;
		}
		ports->n += n_more;
	}
	return 0;
}

void
ports_close(struct ports *ports)
{
	while (ports->n > 0)
		close(ports->port[--ports->n].fd);
}

void
ports_format(const struct ports *ports, char *ret_text, size_t len)
{
	char text[NET_TEXT_MAX];
	ret_text[0] = '\0';
	for (unsigned i = 0; i < ports->n; i++) {
		size_t done = strlen(ret_text);
		net_format(&ports->port[i].bound, text);
		snprintf(ret_text + done, len - done, "%s%s", i ? " and " : "", text);
	}
}
