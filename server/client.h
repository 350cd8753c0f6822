/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client as the server sees it: one control connection, and the process behind it once it
 * presented its token. service.c makes and frees clients, messages.c talks with them, peers.c
 * connects them.
 */
#ifndef RKV_SERVER_CLIENT_H
#define RKV_SERVER_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

#include "common/loop.h"
#include "proto/wire.h"
#include "server/conn.h"
#include "server/guard.h"
#include "server/sessions.h"

struct service;
struct store;

struct client {
	struct conn conn; /* first */
	struct service *service;
	struct store *store; /* that its tenant has; before the WELCOME it has nothing there */
	struct session_owner owner;
	bool open;      /* the connection */
	uint64_t audit; /* the look at everything that it waits for; 0: none */
	uint32_t audit_request;
	enum wire_role role; /* 0 before the WELCOME */
	struct guard_entry guarded;
	const struct tenant *tenant; /* NULL: none are known, or not this one any more */
	enum wire_access access;
	bool has_token; /* it may still be presented: once for the pool, or for each peer */
	unsigned char token[WIRE_TOKEN_LEN];
	bool has_looked;   /* at the superblock, as a peer */
	struct peer *look; /* for that; NULL: over */
	int pidfd;
	struct loop_op gone; /* the pidfd's poll */
	LIST_ENTRY(client) entry;
};

LIST_HEAD(client_list, client);

/* The client whose hello was answered with this token, or NULL. */
struct client *client_with_token(const struct client_list *clients,
				 const unsigned char token[WIRE_TOKEN_LEN]);

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
