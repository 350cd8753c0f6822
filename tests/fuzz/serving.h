/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A kv-server of one process and no thread: region and service are real, the loop is that of
 * tests/fuzz/loop.h. One at a time; the region stays from one input to the next.
 */
#ifndef RKV_TESTS_FUZZ_SERVING_H
#define RKV_TESTS_FUZZ_SERVING_H

#include "server/service.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/loop.h"

#define SERVING_CONNS_MAX 3u
#define SERVING_NEVER (-1)
#define SERVING_GONE (-2)
#define SERVING_SENT_MAX 65536u

struct serving_conn {
	int fd;   /* the server's end; SERVING_NEVER opened; SERVING_GONE: the server closed it */
	int peer; /* ours, which is never read */
	size_t n_sent;
	unsigned char sent[SERVING_SENT_MAX]; /* to the peer: the first bytes */
};

struct serving {
	struct loop loop;
	struct peers peers;
	struct guard guard; /* who comes may do everything, unless the target names tenants */
	struct service *service;
	struct serving_conn conn[SERVING_CONNS_MAX];
};

struct serving *serving_begin(void);
void serving_end(struct serving *s);

/* The connection of this number, opened if it was not, to this listener. */
struct serving_conn *serving_connect(struct serving *s, unsigned number,
				     struct loop_listener *listener);

/* A message from a peer. */
void serving_say(struct serving *s, const struct serving_conn *conn, const void *bytes, size_t len);

/* A good header in front of a message of len bytes, and the message said. */
void serving_message(struct serving *s, const struct serving_conn *conn, void *message, size_t len,
		     uint16_t type);
void serving_hello(struct serving *s, const struct serving_conn *conn, enum wire_role role);

/* Copies the last message of this type that the connection was sent: len bytes. False: none was. */
bool serving_answer(const struct serving_conn *conn, uint16_t type, void *to, size_t len);

#endif
