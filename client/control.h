/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control connection: hello, keepalives, links for sessions, reconnecting. One thread of the
 * client runs it; it answers also while the application computes. It touches a session's endpoint
 * only when it has taken an idle session through its start word (client/session.h).
 */
#ifndef RKV_CLIENT_CONTROL_H
#define RKV_CLIENT_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include "client/client.h"
#include "proto/wire.h"

/*
 * Connects, says hello, opens the fabric (client->fab) and the region, starts the thread. Until
 * deadline_ns (CLOCK_BOOTTIME). Failures as rkv_open; the log has the sentence.
 */
int control_start(struct rkv_client *client, int64_t deadline_ns);

/* Stops the thread and closes everything; no session is left. One never started is nothing. */
void control_stop(struct rkv_client *client);

/* There is something to do: a session is WANTED, or wants a new serial. Any thread. */
void control_wake(struct rkv_client *client);

/*
 * Waits until a listed session is no longer WANTED. Failures: ERR_TIMEOUT; ERR_CONN: the deadline
 * passed without a connection. Any thread.
 */
int control_await_link(struct rkv_client *client, struct rkv_session *session, int64_t deadline_ns);

/*
 * The session is to end: takes it out of the client's list and waits until the control thread has
 * let go of it. Any thread.
 */
void control_forget(struct rkv_client *client, struct rkv_session *session);

/*
 * Tells the server that a session, whose endpoint is disconnected, is over: what its port said
 * after control_forget. Any thread.
 */
void control_leave(struct rkv_client *client, uint64_t connection, uint32_t session_slot,
		   uint32_t serial);

/* The geometry of the region connected to last. Any thread. */
void control_layout(struct rkv_client *client, struct layout *ret_layout);

/*
 * One request and its answer; text (may be NULL) is cut to text_len, NUL-terminated; ret_len (may
 * be NULL): the whole length. Failures: ERR_CONN: not connected now, or lost meanwhile;
 * ERR_TIMEOUT. Any thread.
 */
int control_ping(struct rkv_client *client, int64_t deadline_ns);
int control_stats(struct rkv_client *client, char *text, size_t text_len, size_t *ret_len,
		  int64_t deadline_ns);
int control_fsck(struct rkv_client *client, char *text, size_t text_len, size_t *ret_len,
		 int64_t deadline_ns);

/*
 * Begins a snapshot of this name, or, with the name "", asks about the one with this number. What
 * the server says of it is as it came, but for the header. Failures: as above; ERR_INVALID: the
 * name is too long. Any thread.
 */
int control_snapshot(struct rkv_client *client, const char *name, uint32_t number,
		     struct wire_snapshot_state *ret_state, int64_t deadline_ns);

#endif
