/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stamps: the server's epochs of reclamation, as one client sees them, [STAMP]. The control thread
 * writes, sessions read. A *moment* is a point in a session's life of which it must be known later
 * that it has passed: that every operation which was in flight then, anywhere, has ended, and that
 * no word READ before may be expected by a CAS any more.
 */
#ifndef RKV_CLIENT_STAMPS_H
#define RKV_CLIENT_STAMPS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct stamps {
	_Atomic uint64_t newest; /* received last */
	_Atomic uint64_t g;      /* the smallest A of all living sessions, received last */
	_Atomic uint64_t
		asked; /* number of the keepalive sent last; counted up before it is sent */
	_Atomic uint64_t answered; /* number of the keepalive answered last */
	_Atomic uint32_t flags;    /* WIRE_STAMP_* received last */
};

struct moment {
	uint64_t ask;   /* the first keepalive that is sent after the moment */
	uint64_t stamp; /* the stamp of the moment, once that keepalive was answered */
	bool known;
};

static inline struct moment
moment_now(struct stamps *st)
{
	/* [STAMP] pairs with the count before a keepalive is sent: ask is sent after this load. */
	return (struct moment){.ask = atomic_load_explicit(&st->asked, memory_order_seq_cst) + 1};
}

/* Is its stamp known? It is the newest one when this is first asked after the answer: ask soon. */
static inline bool
moment_is_known(struct stamps *st, struct moment *m)
{
	if (!m->known) {
		if (atomic_load_explicit(&st->answered, memory_order_acquire) < m->ask)
			return false;
		m->stamp = atomic_load_explicit(&st->newest, memory_order_acquire);
		m->known = true;
	}
	return true;
}

/* Has it passed: is G above the stamp of the moment? */
static inline bool
moment_passed(struct stamps *st, struct moment *m)
{
	return moment_is_known(st, m) &&
	       atomic_load_explicit(&st->g, memory_order_acquire) > m->stamp;
}

/*
 * The start word: publishes the start of a session's oldest operation in flight, and is the
 * session's lock between its own thread and the control thread.
 */
enum start_state {
	START_IDLE = 0,     /* nothing in flight */
	START_MARKS = 1,    /* idle, but marks are not known to have completed */
	START_BUSY = 2,     /* operations in flight: the session's thread has it */
	START_FLUSHING = 3, /* the control thread has it */
};

static inline uint64_t
start_make(enum start_state state, uint64_t stamp)
{
	return stamp << 2 | (uint64_t)state;
}

static inline enum start_state
start_state(uint64_t start_word)
{
	return (enum start_state)(start_word & 3);
}

static inline uint64_t
start_stamp(uint64_t start_word)
{
	return start_word >> 2;
}

#endif
