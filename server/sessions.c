/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sessions and stamps: sessions.h. G is kept with the number of sessions that stand at it, so that
 * a keepalive costs no scan but when the last of them moves on.
 */
#include "server/sessions.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "common/err.h"

void
sessions_init(struct sessions *s, uint64_t *superblock_serial, uint64_t first_stamp)
{
	memset(s, 0, sizeof(*s));
	s->next_serial = *superblock_serial;
	s->published_serial = superblock_serial;
	s->newest = first_stamp;
	LIST_INIT(&s->workers);
	for (uint32_t i = 0; i <= LIMIT_SESSIONS; i++)
		s->slot[i].slot = i;
}

void
sessions_tick(struct sessions *s)
{
	s->newest++;
}

/* ---- G ---- */

static const struct session *
most_behind(const struct sessions *s)
{
	const struct session *least = NULL;
	for (uint32_t i = 1; i <= LIMIT_SESSIONS; i++) {
		const struct session *session = &s->slot[i];
		if (session->state != SESSION_FREE && (!least || session->a < least->a))
			least = session;
	}
	return least;
}

/* Of sessions only. */
static uint64_t
smallest_a(struct sessions *s)
{
	if (s->n_living + s->n_ending == 0)
		return s->newest;
	if (s->n_at_g == 0) {
		s->g = most_behind(s)->a;
		for (uint32_t i = 1; i <= LIMIT_SESSIONS; i++)
			s->n_at_g += s->slot[i].state != SESSION_FREE && s->slot[i].a == s->g;
	}
	return s->g;
}

uint64_t
sessions_g(struct sessions *s)
{
	const struct sessions_worker *worker;
	uint64_t g = smallest_a(s);
	LIST_FOREACH(worker, &s->workers, entry)
	{
		if (worker->a < g)
			g = worker->a;
	}
	return g;
}

void
sessions_work_begin(struct sessions *s, struct sessions_worker *worker)
{
	assert(!worker->is_at_work);
	worker->is_at_work = true;
	worker->a = s->newest;
	LIST_INSERT_HEAD(&s->workers, worker, entry);
}

void
sessions_work_end(struct sessions_worker *worker)
{
	if (!worker->is_at_work)
		return;
	worker->is_at_work = false;
	LIST_REMOVE(worker, entry);
}

uint64_t
sessions_moment(const struct sessions *s)
{
	return s->newest + 1;
}

/* The session's A moves on, or the session ceases to count. */
static void
forget_a(struct sessions *s, const struct session *session)
{
	if (s->n_at_g && session->a == s->g)
		s->n_at_g--;
}

const struct session *
sessions_holder(const struct sessions *s)
{
	const struct session *least = most_behind(s);
	return least && s->newest - least->a > SESSIONS_LAG_MAX ? least : NULL;
}

struct session *
sessions_stalled(struct sessions *s, uint64_t lag_max)
{
	if (s->newest - sessions_g(s) <= lag_max)
		return NULL;
	for (uint32_t i = 1; i <= LIMIT_SESSIONS; i++) {
		struct session *session = &s->slot[i];
		uint64_t most = session->peer ? SESSIONS_LAG_STALLED : lag_max;
		if (session->state == SESSION_LIVING && !session->owner->mapped &&
		    s->newest - session->a > most)
			return session;
	}
	return NULL;
}

unsigned
sessions_lingering(const struct sessions *s)
{
	unsigned n = 0;
	for (uint32_t i = 1; i <= LIMIT_SESSIONS; i++)
		n += s->slot[i].state == SESSION_LIVING && !s->slot[i].owner->connected;
	return n;
}

/* ---- Joining and renewing ---- */

static int
take_serial(struct sessions *s, uint32_t *ret_serial, const char **ret_reason)
{
	if (s->next_serial > UINT32_MAX) {
		*ret_reason = "all session serials of this region are used up: restart kv-server";
		return ERR_NOMEM;
	}
	*ret_serial = (uint32_t)s->next_serial++;
	/* Before anybody can use the serial. A thread may be serving a READ of the superblock. */
	atomic_store_explicit((_Atomic uint64_t *)s->published_serial, s->next_serial,
			      memory_order_relaxed);
	return 0;
}

static struct session *
free_slot(struct sessions *s)
{
	for (uint32_t i = 0; i < LIMIT_SESSIONS; i++) {
		uint32_t slot = (s->last_slot + i) % LIMIT_SESSIONS + 1;
		if (s->slot[slot].state == SESSION_FREE)
			return &s->slot[slot];
	}
	return NULL;
}

int
sessions_join(struct sessions *s, struct session_owner *owner, uint32_t attempt,
	      struct session **ret_session, const char **ret_reason)
{
	struct session *session = free_slot(s);
	if (!session) {
		*ret_reason =
			"the server has no session slot left: close sessions, or end processes "
			"that hold them (stats: sessions, sessions_lingering)";
		return ERR_NOMEM;
	}
	int rc = take_serial(s, &session->serial, ret_reason);
	if (rc)
		return rc;
	session->state = SESSION_LIVING;
	session->renewed_from = 0;
	session->attempt = attempt;
	session->a = s->newest;
	session->due = false;
	session->owner = owner;
	LIST_INSERT_HEAD(&owner->sessions, session, entry);
	owner->n_sessions++;
	if (s->n_at_g && session->a == s->g)
		s->n_at_g++;
	s->n_living++;
	s->n_joined++;
	s->last_slot = session->slot;
	*ret_session = session;
	return 0;
}

int
sessions_renew(struct sessions *s, struct session *session, const char **ret_reason)
{
	uint32_t serial;
	int rc = take_serial(s, &serial, ret_reason);
	if (rc)
		return rc;
	session->renewed_from = session->serial;
	session->serial = serial;
	return 0;
}

/* ---- Finding and announcing ---- */

static bool
has_serial(const struct session *session, uint32_t serial)
{
	return serial != 0 && (session->serial == serial || session->renewed_from == serial);
}

struct session *
sessions_find(struct sessions *s, const struct session_owner *owner, uint32_t slot, uint32_t serial)
{
	if (!sessions_is_living(s, slot) || s->slot[slot].owner != owner ||
	    !has_serial(&s->slot[slot], serial))
		return NULL;
	s->slot[slot].attempt = 0;
	return &s->slot[slot];
}

/*
 * Nobody ends a session of another tenant. Two processes that are known are the same or not; else a
 * closed connection must do.
 */
static bool
may_finish(const struct session_owner *by, const struct session_owner *of)
{
	if (strncmp(by->tenant, of->tenant, sizeof(by->tenant)) != 0)
		return false;
	if (by->pid != 0 && of->pid != 0)
		return by->pid == of->pid;
	return by == of || !of->connected;
}

struct session *
sessions_find_former(struct sessions *s, const struct session_owner *owner, uint32_t serial)
{
	for (uint32_t i = 1; i <= LIMIT_SESSIONS; i++) {
		struct session *session = &s->slot[i];
		if (session->state == SESSION_LIVING && has_serial(session, serial))
			return may_finish(owner, session->owner) ? session : NULL;
	}
	return NULL;
}

struct session *
sessions_find_attempt(struct sessions *s, const struct session_owner *owner, uint32_t attempt)
{
	for (uint32_t i = 1; attempt && i <= LIMIT_SESSIONS; i++) {
		struct session *session = &s->slot[i];
		if (session->state == SESSION_LIVING && session->attempt == attempt &&
		    may_finish(owner, session->owner))
			return session;
	}
	return NULL;
}

void
sessions_announce(struct sessions *s, struct session *session, uint64_t a)
{
	if (a <= session->a || a > s->newest)
		return;
	forget_a(s, session);
	session->a = a;
}

bool
sessions_is_living(const struct sessions *s, uint32_t slot)
{
	return slot <= LIMIT_SESSIONS && s->slot[slot].state == SESSION_LIVING;
}

/* ---- Peers ---- */

void
sessions_expect(struct session *session)
{
	assert(!session->peer);
	session->due = true;
}

struct session *
sessions_admit(struct sessions *s, const struct session_owner *owner, uint32_t slot,
	       uint32_t serial, const char **ret_reason)
{
	struct session *session = sessions_find(s, owner, slot, serial);
	if (!session) {
		*ret_reason = "the control connection has no such session";
		return NULL;
	}
	if (!session->due) {
		*ret_reason = "the session has been connected since its last JOIN or RELINK";
		return NULL;
	}
	session->due = false;
	return session;
}

/* ---- Ending ---- */

void
sessions_end(struct sessions *s, struct session *session, bool in_order)
{
	assert(session->state == SESSION_LIVING);
	assert(!session->peer); /* [DEAD] */
	LIST_REMOVE(session, entry);
	session->owner->n_sessions--;
	session->owner = NULL;
	session->state = SESSION_ENDING;
	session->in_sweep = false;
	s->n_living--;
	s->n_ending++;
	if (in_order)
		s->n_left++;
	else
		s->n_died++;
}

void
sessions_process_gone(struct sessions *s, struct session_owner *owner)
{
	struct session *session;
	while ((session = LIST_FIRST(&owner->sessions)))
		sessions_end(s, session, false);
}

void
sessions_disconnected(struct sessions *s, struct session_owner *owner)
{
	owner->connected = false;
	if (!owner->mapped)
		sessions_process_gone(s, owner);
}

void
sessions_sweep_begin(struct sessions *s)
{
	for (uint32_t i = 1; s->n_ending && i <= LIMIT_SESSIONS; i++)
		s->slot[i].in_sweep = s->slot[i].state == SESSION_ENDING;
}

void
sessions_sweep_end(struct sessions *s)
{
	for (uint32_t i = 1; s->n_ending && i <= LIMIT_SESSIONS; i++) {
		struct session *session = &s->slot[i];
		if (session->state != SESSION_ENDING || !session->in_sweep)
			continue;
		forget_a(s, session);
		session->state = SESSION_FREE;
		s->n_ending--;
	}
}
