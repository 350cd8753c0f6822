/* SPDX-License-Identifier: BSD-2-Clause */
/* The sockets that the control port consists of: one for each address that the server has it at. */
#ifndef RKV_SERVER_PORTS_H
#define RKV_SERVER_PORTS_H

#include "common/net.h"

#define PORTS_MAX 16u /* a name may stand for several addresses */

struct ports {
	unsigned n;
	struct net_listener port[PORTS_MAX];
};

/*
 * Listens at n addresses. [::] alone takes IPv4 too; beside others it is IPv6 only. Failures, with
 * a sentence: as net_listen; ERR_INVALID: they are more than PORTS_MAX. Nothing is open then.
 */
int ports_open(struct ports *ports, const struct net_address *addresses, unsigned n,
	       char reason[NET_REASON_MAX]);

void ports_close(struct ports *ports);

/* "1.2.3.4:5 and 1.2.3.5:5", NUL-terminated, cut to len. */
void ports_format(const struct ports *ports, char *ret_text, size_t len);

#endif
