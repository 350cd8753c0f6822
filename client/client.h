/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The client: configuration, the control connection and its thread, the fabric, and the list of
 * sessions. Any thread may call what is declared here; the mutex guards the list and the calls to
 * the server, never an operation.
 */
#ifndef RKV_CLIENT_CLIENT_H
#define RKV_CLIENT_CLIENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/include/rkv.h"
#include "client/link.h"
#include "client/stamps.h"
#include "common/fabric.h"
#include "common/log.h"
#include "common/net.h"

struct rkv_session;
struct control; /* the control connection and its thread: client/control.c */

/* Memory of the caller that is registered: an immutable list, replaced as a whole. */
struct buffer {
	unsigned char *base;
	size_t len;
	uint32_t key;
};

struct buffer_list {
	struct buffer_list *older; /* kept until the client closes: a session may be reading it */
	size_t n;
	struct buffer buffer[];
};

struct rkv_client {
	struct rkv_options options;
	struct log log;
	struct net_address server;
	char server_text[NET_TEXT_MAX]; /* for people */
	const uint32_t *not_forked; /* a page that the kernel wipes in a forked child: 0 there */
	struct log fabric_log;      /* of the fabric; it ends up in log: client/hello.c */
	struct fab *fab;
	struct stamps stamps;
	_Atomic(struct buffer_list *) buffers; /* [BUFFERS]: read without a lock */
	/* Guards the sessions' list, changes of buffers, and what the control thread shares. */
	pthread_mutex_t mutex;
	pthread_cond_t changed;       /* something that client_wait may wait for */
	struct rkv_session *sessions; /* linked by next */
	uint32_t n_sessions;
	_Atomic int64_t wall_offset_ns; /* wall clock - fab_now; the control thread renews it */
	_Atomic uint64_t n_reconnects;
	struct control *control;
};

static inline bool
client_is_forked(const struct rkv_client *client)
{
	return *client->not_forked == 0;
}

/*
 * Waits for changed, with the mutex held, until deadline_ns (CLOCK_BOOTTIME). False: the deadline
 * has passed. The caller looks again at what it waits for.
 */
bool client_wait(struct rkv_client *client, int64_t deadline_ns);

/* The key of registered memory that holds [addr, addr + len), or false. No lock. */
bool client_find_buffer(struct rkv_client *client, const void *addr, size_t len, uint32_t *ret_key);

#endif
