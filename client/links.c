/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Links for sessions, links.h. What is asked of the server for a session that wants a link:
 *
 *   the present connection knows it     RELINK     RELINKED: a new endpoint, the same serial
 *   an earlier one did, same epoch      JOIN       naming it as finished; JOINED: a new serial
 *   the server never heard of it        JOIN
 *
 * A server counts sessions of a process that lives, also when their control connection is gone,
 * [DEAD]. So a session that is closed while no connection knows it is remembered as a *former* one:
 * the next connection joins in its name, which ends it, and leaves again at once.
 *
 * A JOIN whose answer is lost may have made a session, or still make one, that nobody here knows.
 * Therefore a JOIN bears a number, its *attempt*, and is repeated with that number until it is
 * answered: the server first ends what an earlier one with it made. If its session is closed
 * before, or never was one but a former one's, a former one keeps the number.
 */
#include "client/links.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/session.h"
#include "common/clock.h"
#include "common/err.h"

#define CONNECT_NS (1000 * CLOCK_NS_PER_MS) /* for one endpoint */
#define MAINTAIN_NS (50 * CLOCK_NS_PER_MS)  /* for a round of upkeep: keepalives wait for it */
#define GIVE_BACK_EVERY_NS CLOCK_NS_PER_S
#define BACKOFF_MIN_NS (20 * CLOCK_NS_PER_MS)
#define BACKOFF_MAX_NS CLOCK_NS_PER_S
#define SHORT_LIVED_NS (2 * CLOCK_NS_PER_S) /* a link that did not even last so long */
#define RESERVE_DEPTH 16u /* batches of the session's own, beside those of its operations */

struct former {
	struct former *next;
	uint64_t connection; /* one to the life of the server that knows it */
	uint32_t serial;     /* or 0 */
	uint32_t attempt;
};

static enum link_state
link_state(const struct rkv_session *session)
{
	return (enum link_state)atomic_load_explicit(&session->port.state, memory_order_acquire);
}

/* Does the present connection know the session? */
static bool
is_known(const struct links *links, const struct rkv_session *session)
{
	return session->port.serial != 0 && session->port.connection == links->connection;
}

/* ---- Pinning ---- */

static void
unpin(struct links *links)
{
	links->pinned = NULL;
	pthread_cond_broadcast(&links->client->changed);
}

/* Calls work, without the mutex, for every session that fits. */
static void
for_each(struct links *links, bool (*fits)(struct links *, struct rkv_session *),
	 void (*work)(struct links *, struct rkv_session *))
{
	pthread_mutex_t *mutex = &links->client->mutex;
	pthread_mutex_lock(mutex);
	for (struct rkv_session *s = links->client->sessions; s; s = s->next) {
		if (!fits(links, s))
			continue;
		links->pinned = s;
		pthread_mutex_unlock(mutex);
		work(links, s);
		pthread_mutex_lock(mutex);
		unpin(links);
	}
	pthread_mutex_unlock(mutex);
}

/* Pins the session that the request was for; NULL: it has been closed. */
static struct rkv_session *
pin_asker(struct links *links)
{
	pthread_mutex_lock(&links->client->mutex);
	struct rkv_session *session = links->asker;
	links->asker = NULL;
	links->pinned = session;
	free(links->joining);
	links->joining = NULL;
	pthread_mutex_unlock(&links->client->mutex);
	return session;
}

static void
unpin_asker(struct links *links)
{
	pthread_mutex_lock(&links->client->mutex);
	unpin(links);
	pthread_mutex_unlock(&links->client->mutex);
}

/* ---- Former sessions (mutex held) ---- */

static uint32_t
new_attempt(struct links *links)
{
	while (links->last_attempt == 0)
		links->last_attempt = (uint32_t)fab_rand(links->client->fab);
	return links->last_attempt++;
}

static void
former_push(struct links *links, struct former *former)
{
	former->next = links->formers;
	links->formers = former;
}

/* NULL without memory: then the server counts the session until this process ends. */
static struct former *
former_create(uint64_t connection, uint32_t serial, uint32_t attempt)
{
	struct former *former = malloc(sizeof(*former));
	if (former)
		*former = (struct former){NULL, connection, serial, attempt};
	return former;
}

/* The serial by which the server may know the session; 0: it lives on since another epoch. */
static uint32_t
serial_of_epoch(const struct links *links, const struct rkv_session *session)
{
	return session->port.connection >= links->first_of_epoch ? session->port.serial : 0;
}

/*
 * The session closes while a JOIN for it is not answered: the JOIN's number outlives it, and the
 * serial that it named. The session has no endpoint.
 */
static void
outlive(struct links *links, struct rkv_session *session)
{
	struct former *former = former_create(links->n_connections, serial_of_epoch(links, session),
					      session->port.attempt);
	session->port.serial = 0;
	if (links->asker == session)
		links->joining = former;
	else if (former)
		former_push(links, former);
}

void
links_forget(struct links *links, struct rkv_session *session)
{
	struct rkv_client *client = links->client;
	pthread_mutex_lock(&client->mutex);
	while (links->pinned == session)
		pthread_cond_wait(&client->changed, &client->mutex);
	struct rkv_session **at = &client->sessions;
	while (*at != session)
		at = &(*at)->next;
	*at = session->next;
	client->n_sessions--;
	if (session->port.attempt)
		outlive(links, session);
	if (links->asker == session)
		links->asker = NULL;
	pthread_mutex_unlock(&client->mutex);
}

/* ---- Asking ---- */

/* Mutex held. */
static int
ask(struct links *links, struct rkv_session *asker, void *message, size_t len, enum wire_type type)
{
	uint32_t request = channel_request(links->channel);
	int rc = channel_send(links->channel, message, len, type, request);
	if (rc)
		return rc;
	links->asker = asker;
	links->asked = type;
	links->request = request;
	links->asked_ns = clock_now_ns();
	return 0;
}

static int
ask_session(struct links *links, struct rkv_session *session, enum wire_type type)
{
	struct wire_session message = {
		.session_slot = session->port.session_slot,
		.serial = session->port.serial,
	};
	return ask(links, session, &message, sizeof(message), type);
}

static int
ask_join(struct links *links, struct rkv_session *session, uint32_t former_serial, uint32_t attempt)
{
	struct wire_join message = {.former_serial = former_serial, .attempt = attempt};
	return ask(links, session, &message, sizeof(message), WIRE_JOIN);
}

static int
ask_link(struct links *links, struct rkv_session *session)
{
	struct link_port *port = &session->port;
	if (is_known(links, session))
		return ask_session(links, session, WIRE_RELINK);
	if (!port->attempt)
		port->attempt = new_attempt(links);
	return ask_join(links, session, serial_of_epoch(links, session), port->attempt);
}

/* Asks what the session wants, if anything. */
static int
ask_for(struct links *links, struct rkv_session *session, int64_t now_ns)
{
	struct link_port *port = &session->port;
	enum link_state state = link_state(session);
	if (state == LINK_WANTED && now_ns < port->retry_ns) {
		if (port->retry_ns < links->due_ns)
			links->due_ns = port->retry_ns;
		return 0;
	}
	if (state == LINK_WANTED)
		return ask_link(links, session);
	if (state == LINK_UP && is_known(links, session) &&
	    atomic_load_explicit(&port->renew, memory_order_acquire))
		return ask_session(links, session, WIRE_RENEW);
	return 0;
}

/* Ends a former session; one of an earlier epoch is over anyway. */
static int
ask_former(struct links *links)
{
	struct former *former = links->formers;
	if (former->connection < links->first_of_epoch) {
		links->formers = former->next;
		free(former);
		return 0;
	}
	int rc = ask_join(links, NULL, former->serial, former->attempt);
	if (!rc) {
		links->formers = former->next;
		links->joining = former;
	}
	return rc;
}

int
links_ask(struct links *links, int64_t now_ns)
{
	int rc = 0;
	links->due_ns = links->retry_ns ? links->retry_ns : INT64_MAX;
	if (links->asked || now_ns < links->retry_ns)
		return 0;
	links->due_ns = INT64_MAX;
	pthread_mutex_lock(&links->client->mutex);
	while (!rc && !links->asked && links->formers)
		rc = ask_former(links);
	for (struct rkv_session *s = links->client->sessions; s && !rc && !links->asked;
	     s = s->next)
		rc = ask_for(links, s, now_ns);
	pthread_mutex_unlock(&links->client->mutex);
	return rc;
}

int64_t
links_due(const struct links *links)
{
	return links->asked ? INT64_MAX : links->due_ns;
}

/* Doubles the back-off; returns when it is over. */
static int64_t
later(struct fab *fab, int64_t *backoff_ns)
{
	*backoff_ns = *backoff_ns ? *backoff_ns * 2 : BACKOFF_MIN_NS;
	if (*backoff_ns > BACKOFF_MAX_NS)
		*backoff_ns = BACKOFF_MAX_NS;
	return fab_now(fab) + *backoff_ns / 2 +
	       (int64_t)(fab_rand(fab) % (uint64_t)*backoff_ns) / 2;
}

/* A session could not be served: nobody is, for a while. */
static void
back_off(struct links *links)
{
	links->retry_ns = later(links->client->fab, &links->backoff_ns);
}

/*
 * A session that has lost one link soon after another waits for the next but one: it may have no
 * memory to take one over, and ask for another in each pump.
 */
static void
slow_down(struct links *links, struct link_port *port)
{
	int64_t now_ns = fab_now(links->client->fab);
	if (port->linked_ns && now_ns - port->linked_ns < SHORT_LIVED_NS)
		port->retry_ns = later(links->client->fab, &port->backoff_ns);
	else
		port->backoff_ns = 0;
	port->linked_ns = now_ns;
}

static void
end_back_off(struct links *links)
{
	links->retry_ns = 0;
	links->backoff_ns = 0;
}

/* ---- Answers ---- */

static void
set_state(struct rkv_session *session, enum link_state state)
{
	atomic_store_explicit(&session->port.state, state, memory_order_release);
}

/* No link for a session: one that never had any is told, one that heals is served later. */
static void
deny(struct links *links, struct rkv_session *session, int code)
{
	struct link_port *port = &session->port;
	if (port->former_serial != 0) {
		back_off(links);
		return;
	}
	port->refused = code;
	set_state(session, LINK_REFUSED);
}

/*
 * Connects an endpoint and hands the link over; slot, serial and stamp are set. What else the port
 * says is filled in before: the session sees it with READY.
 */
static int
make_ready(struct links *links, struct rkv_session *session, struct link *link)
{
	struct rkv_client *client = links->client;
	const struct fab_ticket ticket = {session->port.session_slot, session->port.serial};
	int rc = fab_connect(links->server->region, &ticket, client->options.depth + RESERVE_DEPTH,
			     fab_now(client->fab) + CONNECT_NS, &link->ep);
	if (rc)
		return rc;
	link->fab = client->fab;
	link->layout = links->server->layout;
	link->is_read_only = links->server->is_read_only;
	if (link->is_read_only)
		link->layout.has_hints = 0; /* a hint is a WRITE, which is refused */
	link->epoch = links->server->epoch;
	session->port.next_link = *link;
	slow_down(links, &session->port);
	set_state(session, LINK_READY);
	end_back_off(links);
	return 0;
}

static int
joined(struct links *links, struct rkv_session *session, const struct wire_joined *m)
{
	struct link link = {
		.session_slot = m->session_slot,
		.serial = m->serial,
		.joined_stamp = m->stamp,
	};
	if (m->serial == 0 || m->session_slot > CHUNK_OWNER_MAX)
		return ERR_CORRUPT;
	if (!session) {
		links_leave(links, links->connection, m->session_slot, m->serial);
		return 0;
	}
	struct link_port *port = &session->port;
	port->attempt = 0;
	port->connection = links->connection;
	port->session_slot = m->session_slot;
	port->serial = m->serial;
	atomic_store_explicit(&port->renew, 0, memory_order_relaxed);
	atomic_store_explicit(&port->next_serial, 0, memory_order_relaxed);
	int rc = make_ready(links, session, &link);
	if (rc) {
		port->serial = 0;
		links_leave(links, links->connection, m->session_slot, m->serial);
		if (rc == ERR_TIMEOUT)
			back_off(links); /* a message got lost: as long as the caller waits */
		else
			deny(links, session, rc);
	}
	return 0;
}

static int
relinked(struct links *links, struct rkv_session *session, const struct wire_session *m)
{
	if (!session)
		return 0;
	struct link_port *port = &session->port;
	if (m->session_slot != port->session_slot || m->serial != port->serial)
		return ERR_CORRUPT;
	/* As the session knows itself: a serial that it has not taken yet stays in next_serial. */
	struct link link = port->next_link;
	link.session_slot = m->session_slot;
	link.serial = port->former_serial;
	if (make_ready(links, session, &link))
		back_off(links);
	return 0;
}

static int
renewed(struct rkv_session *session, const struct wire_session *m)
{
	if (!session)
		return 0;
	struct link_port *port = &session->port;
	if (m->session_slot != port->session_slot || m->serial == 0)
		return ERR_CORRUPT;
	port->serial = m->serial;
	atomic_store_explicit(&port->renew, 0, memory_order_relaxed);
	atomic_store_explicit(&port->next_serial, m->serial, memory_order_release);
	return 0;
}

static int
refused(struct links *links, struct rkv_session *session, enum wire_type asked,
	const struct wire_refused *m, char reason[NET_REASON_MAX])
{
	char text[LIMIT_REASON_MAX];
	net_copy_text(text, sizeof(text), m->reason, sizeof(m->reason));
	if (asked == WIRE_RENEW) {
		snprintf(reason, NET_REASON_MAX, "no new serial for a session: %s", text);
		return ERR_CONN;
	}
	if (!session)
		return 0; /* closed meanwhile, or a former one, which has ended all the same */
	log_line(&links->client->log, session->port.former_serial ? LOG_DEBUG : LOG_ERROR,
		 "the server refused a session: %s", text);
	session->port.serial = 0; /* whatever it was called, it is not any more */
	session->port.attempt = 0;
	deny(links, session, channel_refusal(m));
	return 0;
}

/* The answer is the right one to what was asked. */
static int
take_answer(struct links *links, struct rkv_session *session, enum wire_type asked,
	    const union channel_message *message, char reason[NET_REASON_MAX])
{
	uint16_t type = message->header.type;
	snprintf(reason, NET_REASON_MAX, "the server answered a request with something else");
	if (type == WIRE_REFUSED)
		return refused(links, session, asked, &message->refused, reason);
	if (type == WIRE_JOINED && asked == WIRE_JOIN)
		return joined(links, session, &message->joined);
	if (type == WIRE_RELINKED && asked == WIRE_RELINK)
		return relinked(links, session, &message->session);
	if (type == WIRE_RENEWED && asked == WIRE_RENEW)
		return renewed(session, &message->session);
	return ERR_CORRUPT;
}

int
links_answer(struct links *links, const union channel_message *message, char reason[NET_REASON_MAX])
{
	enum wire_type asked = links->asked;
	if (!asked || message->header.request != links->request) {
		/* A LEAVE of a session that the server had given up already is refused. */
		if (message->header.type == WIRE_REFUSED)
			return 0;
		snprintf(reason, NET_REASON_MAX, "the server answered what was not asked");
		return ERR_CORRUPT;
	}
	links->asked = 0;
	struct rkv_session *session = pin_asker(links);
	int rc = take_answer(links, session, asked, message, reason);
	unpin_asker(links);
	return rc;
}

/* ---- The connection comes and goes ---- */

void
links_connected(struct links *links, bool same_server)
{
	links->connection = ++links->n_connections;
	links->due_ns = INT64_MAX;
	if (!same_server)
		links->first_of_epoch = links->connection;
}

/*
 * A link to a region that is severed: any before the next connection is up. With it, one of a
 * session that was busy when the last one was lost, and has become idle without having noticed.
 */
static bool
is_cut_off(struct links *links, struct rkv_session *session)
{
	return (link_state(session) == LINK_UP || link_state(session) == LINK_READY) &&
	       !is_known(links, session);
}

/* A busy session finds out by itself: its batches fail. */
static void
drop_link(struct links *links, struct rkv_session *session)
{
	(void)links;
	if (!session_take(session))
		return;
	if (link_state(session) == LINK_UP) {
		session_drop_link(session);
	} else if (link_state(session) == LINK_READY) {
		fab_disconnect(session->port.next_link.ep);
		session->port.next_link.ep = NULL;
		set_state(session, LINK_WANTED);
	}
	session_release(session);
}

void
links_disconnected(struct links *links)
{
	links->connection = 0;
	links->asker = NULL;
	links->asked = 0;
	if (links->joining)
		former_push(links, links->joining);
	links->joining = NULL;
	end_back_off(links);
}

void
links_drop(struct links *links)
{
	for_each(links, is_cut_off, drop_link);
}

void
links_destroy(struct links *links)
{
	free(links->joining);
	while (links->formers) {
		struct former *former = links->formers;
		links->formers = former->next;
		free(former);
	}
}

void
links_leave(struct links *links, uint64_t connection, uint32_t session_slot, uint32_t serial)
{
	struct wire_session message = {.session_slot = session_slot, .serial = serial};
	struct former *former;
	if (serial == 0)
		return;
	pthread_mutex_lock(&links->client->mutex);
	if (connection == links->connection) {
		/* If it cannot be sent, the connection is about to be lost. */
		(void)channel_send(links->channel, &message, sizeof(message), WIRE_LEAVE,
				   channel_request(links->channel));
	} else if (connection >= links->first_of_epoch &&
		   (former = former_create(connection, serial, new_attempt(links)))) {
		former_push(links, former);
	}
	pthread_mutex_unlock(&links->client->mutex);
}

/* ---- Keepalives and upkeep ---- */

/*
 * A session that has not yet taken its link over may be idle for an hour, and shall not hold G.
 * Nothing of it is in flight: also what it lost its last link with, marks above all, was over when
 * the server answered JOINED or RELINKED. What it begins later has a start that is not below the
 * newest stamp now (op.start, client/session.c).
 */
static bool
announce(const struct links *links, struct rkv_session *session,
	 struct wire_announcement *ret_announcement)
{
	struct link_port *port = &session->port;
	struct stamps *st = &links->client->stamps;
	uint64_t newest = atomic_load_explicit(&st->newest, memory_order_relaxed);
	enum link_state state = link_state(session);
	uint64_t word, a;
	if (!is_known(links, session))
		return false;
	word = atomic_load_explicit(&port->start_word, memory_order_seq_cst);
	if (state == LINK_UP)
		a = session_announce(session);
	else if (state == LINK_READY &&
		 (start_state(word) == START_IDLE || start_state(word) == START_MARKS))
		a = newest > LIMIT_WORD_STAMPS ? newest - LIMIT_WORD_STAMPS : 0;
	else
		return false;
	*ret_announcement = (struct wire_announcement){port->session_slot, port->serial, a};
	return true;
}

void
links_announce(struct links *links, struct rkv_session **cursor, struct wire_keepalive *keepalive)
{
	struct rkv_session *s = *cursor;
	keepalive->n = 0;
	keepalive->n_draining = 0;
	for (; s && keepalive->n < WIRE_ANNOUNCEMENTS_MAX; s = s->next) {
		if (!announce(links, s, &keepalive->session[keepalive->n]))
			continue;
		keepalive->n++;
		keepalive->n_draining +=
			atomic_load_explicit(&s->port.n_draining, memory_order_relaxed);
	}
	*cursor = s;
}

/* Is it idle with marks that are out for longer than a stamp? */
static bool
holds_marks(struct links *links, struct rkv_session *session)
{
	uint64_t word = atomic_load_explicit(&session->port.start_word, memory_order_acquire);
	uint64_t newest = atomic_load_explicit(&links->client->stamps.newest, memory_order_relaxed);
	return link_state(session) == LINK_UP && is_known(links, session) &&
	       start_state(word) == START_MARKS && start_stamp(word) < newest;
}

/* Is it idle, and may have chunks to give back? */
static bool
may_give_back(struct links *links, struct rkv_session *session)
{
	uint64_t word = atomic_load_explicit(&session->port.start_word, memory_order_acquire);
	uint32_t flags = atomic_load_explicit(&links->client->stamps.flags, memory_order_relaxed);
	bool wants = (flags & WIRE_STAMP_CHUNKS_SHORT) ||
		     atomic_load_explicit(&session->port.n_draining, memory_order_relaxed);
	return wants && link_state(session) == LINK_UP && is_known(links, session) &&
	       (start_state(word) == START_IDLE || start_state(word) == START_MARKS);
}

static void
maintain(struct links *links, struct rkv_session *session)
{
	if (!session_take(session))
		return;
	if (link_state(session) == LINK_UP)
		session_maintain(session, links->round_ns);
	session_release(session);
}

void
links_maintain(struct links *links, int64_t now_ns)
{
	links->round_ns = now_ns + MAINTAIN_NS;
	for_each(links, is_cut_off, drop_link);
	for_each(links, holds_marks, maintain);
	if (now_ns - links->gave_back_ns >= GIVE_BACK_EVERY_NS) {
		links->gave_back_ns = now_ns;
		for_each(links, may_give_back, maintain);
	}
}
