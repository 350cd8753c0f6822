/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the server understands and answers on a control connection. Called from the loop, with the
 * connections that service.c opened.
 */
#ifndef RKV_SERVER_MESSAGES_H
#define RKV_SERVER_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>

struct audit;
struct client;
struct conn;

/* The callbacks of struct conn_events that know the protocol. */
size_t messages_measure(struct conn *conn, const void *bytes, size_t len);
void messages_take(struct conn *conn, const void *message, size_t len);
void messages_insecure(struct conn *conn, const char *reason);

/* A look at everything is over: answers who waits for it. Does anybody wait for another? */
bool messages_audited(struct audit *audit);

/* Says why a client is given up (a failure of err.h), and ends its connection. */
void messages_give_up(struct client *client, int code, const char *reason);

/* A refusal for somebody who does not become a client; nobody waits whether it arrives. */
void messages_farewell(int fd, int code, const char *reason);

#endif
