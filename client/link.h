/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A link: what a session needs to reach its region. The control thread makes links, a session asks
 * for one and takes it over. The state says whose turn it is.
 *
 *   session thread                          control thread
 *   NONE / UP, then no endpoint any more
 *      -> WANTED (control_wake)             JOIN or RELINK, fab_connect
 *                                           next_link filled in -> READY, or -> REFUSED
 *   takes next_link over -> UP
 */
#ifndef RKV_CLIENT_LINK_H
#define RKV_CLIENT_LINK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/fabric.h"
#include "proto/layout.h"

enum link_state { LINK_NONE, LINK_WANTED, LINK_READY, LINK_UP, LINK_REFUSED };

struct link {
	struct fab_endpoint *ep; /* owned by whoever holds the link */
	struct fab *fab;
	struct layout layout;
	uint64_t epoch;
	uint64_t joined_stamp;
	bool is_read_only; /* the tenant may not change anything */
	uint32_t session_slot;
	uint32_t serial; /* another serial than before: the session was dead, it starts anew */
};

/* The part of a session that its own thread and the control thread share. */
struct link_port {
	_Atomic uint64_t start_word; /* client/stamps.h; [START]: also the session's lock */
	_Atomic int state;           /* enum link_state; [LINK]: hands over what stands below */
	struct link next_link;  /* the control thread's while WANTED, the session's while READY */
	int refused;            /* failure of err.h, valid with REFUSED */
	uint32_t former_serial; /* set by the session before WANTED; 0: it never had a link */
	uint64_t former_epoch;
	/* The control thread's: what the server calls the session, and who told: 0: nobody. */
	uint64_t connection; /* number of the control connection */
	uint32_t session_slot;
	uint32_t serial;
	uint32_t attempt;  /* number of its JOIN that is not answered yet, or 0 */
	int64_t linked_ns; /* when it was given a link last */
	int64_t retry_ns;  /* no other one before */
	int64_t backoff_ns;
	_Atomic uint32_t renew;       /* 0, or 1: the session wants a new serial; [LINK] too */
	_Atomic uint32_t next_serial; /* 0, or the new serial; the session takes it */
	_Atomic uint32_t n_draining;  /* chunks that wait to be given back; the session's */
};

#endif
