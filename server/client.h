/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client as the server sees it: one control connection, and the process behind it once it
 * presented its token. service.c makes and frees clients, messages.c talks with them.
 */
#ifndef RKV_SERVER_CLIENT_H
#define RKV_SERVER_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

#include "common/loop.h"
#include "proto/wire.h"
#include "server/conn.h"
#include "server/sessions.h"

struct service;

struct client {
	struct conn conn; /* first */
	struct service *service;
	struct session_owner owner;
	bool open;           /* the connection */
	enum wire_role role; /* 0 before the HELLO */
	bool has_token;
	unsigned char token[WIRE_TOKEN_LEN];
	int pidfd;
	struct loop_op gone; /* the pidfd's poll */
	LIST_ENTRY(client) entry;
};

static inline struct client *
client_of_conn(struct conn *conn)
{
	return (struct client *)conn;
}

static inline struct client *
client_of_owner(struct session_owner *owner)
{
	return (struct client *)(void *)((char *)owner - offsetof(struct client, owner));
}

#endif
