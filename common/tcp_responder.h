/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A responder: one thread that plays the NIC for its connections, on an io_uring of its own. It
 * executes the frames of a connection one after the other. The server's control thread adds and
 * removes connections; no other thread calls anything here.
 */
#ifndef RKV_COMMON_TCP_RESPONDER_H
#define RKV_COMMON_TCP_RESPONDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "common/fabric_tcp.h"
#include "common/tcp_frames.h"

struct tcp_responder;

struct tcp_conn {
	/* The responder's thread alone, once it is added; fd is in blocking mode. */
	int fd;
	struct tcp_frames frames;
	unsigned n_flying;    /* operations of the ring that have not come back */
	bool is_receiving;    /* one of them receives */
	bool is_cancelled;    /* and is told not to: too much is held */
	bool is_sending;      /* one of them sends frames.out */
	bool is_trying;       /* by a request that comes back at once, in silence if it succeeds */
	bool is_full;         /* and more is to be executed then */
	bool is_stuck;        /* what is left of it has to wait for room in the socket */
	bool is_dirty;        /* on the list of those that have something to do */
	bool is_alone;        /* receives into its own buffer, not into shared ones */
	bool is_refused;      /* a violation: says so, then discards until the peer hangs up */
	bool is_silent;       /* all that is to be said to it has been */
	bool is_closing;      /* waits for what flies; executes nothing */
	bool is_at_end;       /* the peer has nothing more to say */
	unsigned since_ticks; /* when out was handed to the kernel, or discarding began */
	int held_first;       /* shared buffers received and not yet consumed; -1: none */
	int held_last;
	unsigned n_held;
	size_t held_at;  /* bytes of the first one that are consumed */
	size_t own_at;   /* of the own buffer: consumed */
	size_t own_len;  /* and filled */
	size_t out_sent; /* of frames.out: taken by the kernel */
	unsigned char *own;
	LIST_ENTRY(tcp_conn) served;
	STAILQ_ENTRY(tcp_conn) dirty;
	STAILQ_ENTRY(tcp_conn) trying;

	/* Under the responder's lock. */
	TAILQ_ENTRY(tcp_conn) listed; /* of its list of new, of unwanted, or of ended ones */
	bool is_new;                  /* the responder has not seen it yet */
	bool is_unwanted;             /* the control thread waits for its end */
	bool is_ordered;              /* and the responder does not know that yet */
	bool is_ended;                /* nothing of it flies, its socket is closed */
};

/* What a responder needs to know: the region, when peers stall, whom to tell of ends. */
struct tcp_terms {
	struct tcp_service service;
	unsigned stall_ms;
	int event_fd; /* an eventfd */
};

/* Failures: ERR_NOMEM, ERR_PERM, ERR_CONN, with a sentence. terms outlive the responder. */
int tcp_responder_create(const struct tcp_terms *terms, struct tcp_responder **ret_responder,
			 char reason[TCP_REASON_MAX]);

/* Ends all its connections, which their owner then frees. NULL is nothing. */
void tcp_responder_destroy(struct tcp_responder *responder);

/* Makes a zeroed connection ready to be added. Failure: ERR_NOMEM. */
int tcp_conn_init(struct tcp_conn *conn, int fd, const struct tcp_terms *terms);
/* After its end, or before it was added. */
void tcp_conn_free_buffers(struct tcp_conn *conn);

/* Serves the connection, whose socket is the responder's now, until it ends or is removed. */
void tcp_responder_add(struct tcp_responder *responder, struct tcp_conn *conn);

/* Ends it: when this returns the responder does not know it any more. Also if it ended already. */
void tcp_responder_remove(struct tcp_responder *responder, struct tcp_conn *conn);

/* A connection that has ended by itself, each once; NULL: none (any more). */
struct tcp_conn *tcp_responder_take_ended(struct tcp_responder *responder);

/* Adds what this responder has counted. Any thread. */
void tcp_responder_count(const struct tcp_responder *responder, struct tcp_counters *counters);

#endif
