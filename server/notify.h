/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tells the service manager how the server is doing: sd_notify's protocol, which is one datagram.
 */
#ifndef RKV_SERVER_NOTIFY_H
#define RKV_SERVER_NOTIFY_H

/* Sends a state such as "READY=1" to $NOTIFY_SOCKET; does nothing if there is none. */
void notify_send(const char *state);

#endif
