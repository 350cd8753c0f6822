/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control connection and its thread, control.h. The thread sleeps in poll(2) on the socket and
 * on an eventfd, not on io_uring, so that clients also work where a container refuses that.
 *
 *   connected:  socket -> STAMP, answers for sessions (links.c), answers for callers
 *               clock  -> KEEPALIVE every LIMIT_STAMP_MS once the last one was answered, [STAMP]
 *               wake   -> requests of sessions (links.c), messages that callers have put
 *   lost:       the region is severed at once: nobody serves it, so nothing may be acknowledged any
 *               more; idle sessions drop their links; connect again, with back-off, until stopped
 *
 * The client's mutex guards what callers share with the thread. The thread never holds it while it
 * waits, and callers only wait with it on client->changed.
 */
#include "client/control.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/channel.h"
#include "client/hello.h"
#include "client/links.h"
#include "client/session.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/fabric.h"

#define STAMP_NS ((int64_t)LIMIT_STAMP_MS * CLOCK_NS_PER_MS)
#define SILENCE_NS (10 * CLOCK_NS_PER_S) /* a request without answer for so long: it is gone */
#define RECONNECT_MIN_NS (20 * CLOCK_NS_PER_MS)
#define RECONNECT_MAX_NS CLOCK_NS_PER_S
#define ATTEMPT_NS                                                                                 \
	(2 * CLOCK_NS_PER_S) /* one attempt to connect again; control_stop waits for it */

/* A caller that waits for an answer; in its frame. text: what stands behind the answer's header. */
struct call {
	struct call *next;
	uint32_t request;
	enum wire_type answer;
	char *text;
	size_t text_len;
	size_t len;
	int status; /* ERR_AGAIN: no answer yet */
};

struct control {
	struct rkv_client *client;
	pthread_t thread;
	bool has_thread;
	int wake_fd;
	atomic_bool stopping;

	/* Guarded by the client's mutex: sending, and the layout for others than the thread. */
	struct channel channel;
	struct call *calls;
	struct links links;
	struct hello server;

	/* The thread's */
	uint64_t expected;    /* number of the keepalive whose answer comes next */
	int64_t keepalive_ns; /* when the last one was sent */
	int64_t backoff_ns;
	int told; /* failure to reconnect that was logged last */
	struct wire_keepalive *keepalive;
};

/* ---- Stamps ---- */

/*
 * newest never falls while the server lives. [STAMP] A full fence, like the one between a session's
 * store of its start and its second look at newest: whoever comes second sees the other.
 */
static void
raise_newest(struct stamps *st, uint64_t stamp)
{
	if (stamp > atomic_load_explicit(&st->newest, memory_order_relaxed))
		atomic_store_explicit(&st->newest, stamp, memory_order_seq_cst);
}

/* Expiries count by the wall clock, which somebody may set. */
static void
look_at_wall_clock(struct rkv_client *client)
{
	struct timespec wall;
	clock_gettime(CLOCK_REALTIME, &wall);
	int64_t wall_ns = wall.tv_sec * CLOCK_NS_PER_S + wall.tv_nsec;
	atomic_store_explicit(&client->wall_offset_ns, wall_ns - fab_now(client->fab),
			      memory_order_relaxed);
}

static bool
keepalive_is_out(const struct control *c)
{
	return c->expected <= atomic_load_explicit(&c->client->stamps.asked, memory_order_relaxed);
}

/* One message for every WIRE_ANNOUNCEMENTS_MAX sessions; one without any is for the stamp. */
static int
send_keepalive(struct control *c, int64_t now_ns)
{
	struct stamps *st = &c->client->stamps;
	int rc;
	c->keepalive_ns = now_ns;
	look_at_wall_clock(c->client);
	pthread_mutex_lock(&c->client->mutex);
	struct rkv_session *cursor = c->client->sessions;
	do {
		/* [STAMP] counted before it is sent: pairs with moment_now. */
		uint64_t number =
			atomic_fetch_add_explicit(&st->asked, 1, memory_order_seq_cst) + 1;
		links_announce(&c->links, &cursor, c->keepalive);
		rc = channel_send(&c->channel, c->keepalive,
				  sizeof(*c->keepalive) +
					  c->keepalive->n * sizeof(c->keepalive->session[0]),
				  WIRE_KEEPALIVE, (uint32_t)number);
	} while (!rc && cursor);
	pthread_mutex_unlock(&c->client->mutex);
	return rc;
}

static int
take_stamp(struct control *c, const struct wire_stamp *m, char reason[NET_REASON_MAX])
{
	struct stamps *st = &c->client->stamps;
	if (!keepalive_is_out(c) || m->header.request != (uint32_t)c->expected) {
		snprintf(reason, NET_REASON_MAX,
			 "the server answered a keepalive that was not sent");
		return ERR_CORRUPT;
	}
	if (m->g > m->newest) {
		snprintf(reason, NET_REASON_MAX, "the server sent stamps that cannot be");
		return ERR_CORRUPT;
	}
	raise_newest(st, m->newest);
	/* [STAMP] newest before g, and both before the answer's number: moment_passed looks so. */
	atomic_store_explicit(&st->g, m->g, memory_order_release);
	atomic_store_explicit(&st->flags, m->flags, memory_order_relaxed);
	atomic_store_explicit(&st->answered, c->expected++, memory_order_release);
	return 0;
}

/* ---- Calls ---- */

static void
end_call(struct control *c, struct call **at, int status)
{
	struct call *call = *at;
	*at = call->next;
	call->status = status;
	pthread_cond_broadcast(&c->client->changed);
}

static void
copy_text(struct call *call, const union channel_message *message)
{
	call->len = message->header.len - sizeof(message->header);
	if (call->text_len == 0)
		return;
	size_t n = call->len < call->text_len ? call->len : call->text_len - 1;
	memcpy(call->text, message->bytes + sizeof(message->header), n);
	call->text[n] = '\0';
}

/* An answer for a caller; one that has stopped waiting does not miss it. */
static void
answer_call(struct control *c, const union channel_message *message)
{
	pthread_mutex_lock(&c->client->mutex);
	for (struct call **at = &c->calls; *at; at = &(*at)->next) {
		struct call *call = *at;
		if (call->request != message->header.request ||
		    call->answer != message->header.type)
			continue;
		copy_text(call, message);
		end_call(c, at, 0);
		break;
	}
	pthread_mutex_unlock(&c->client->mutex);
}

/* Ends the call that the server has refused, with its code; false: it was none. */
static bool
refuse_call(struct control *c, const struct wire_refused *refused)
{
	char reason[LIMIT_REASON_MAX];
	bool is_one = false;
	pthread_mutex_lock(&c->client->mutex);
	struct call **at = &c->calls;
	while (*at && (*at)->request != refused->header.request)
		at = &(*at)->next;
	if (*at) {
		is_one = true;
		end_call(c, at, channel_refusal(refused));
	}
	pthread_mutex_unlock(&c->client->mutex);
	net_copy_text(reason, sizeof(reason), refused->reason, sizeof(refused->reason));
	if (is_one)
		log_line(&c->client->log, LOG_ERROR, "%s",
			 reason[0] ? reason : "the server refused a request without a word");
	return is_one;
}

static int
call_begin(struct control *c, struct call *call, void *message, size_t len, enum wire_type type)
{
	if (c->links.connection == 0)
		return ERR_CONN;
	call->request = channel_request(&c->channel);
	int rc = channel_send(&c->channel, message, len, type, call->request);
	if (rc)
		return rc;
	call->status = ERR_AGAIN;
	call->next = c->calls;
	c->calls = call;
	return 0;
}

static void
call_give_up(struct control *c, struct call *call)
{
	struct call **at = &c->calls;
	while (*at != call)
		at = &(*at)->next;
	end_call(c, at, ERR_TIMEOUT);
}

/* message: with room for its header in front. */
static int
call_server(struct rkv_client *client, struct call *call, void *message, size_t len,
	    enum wire_type type, int64_t deadline_ns)
{
	struct control *c = client->control;
	pthread_mutex_lock(&client->mutex);
	int rc = call_begin(c, call, message, len, type);
	if (!rc) {
		control_wake(client); /* for what the socket has not taken */
		while (call->status == ERR_AGAIN && client_wait(client, deadline_ns))
			;
		if (call->status == ERR_AGAIN)
			call_give_up(c, call);
		rc = call->status;
	}
	pthread_mutex_unlock(&client->mutex);
	return rc;
}

int
control_ping(struct rkv_client *client, int64_t deadline_ns)
{
	struct wire_header ping;
	struct call call = {.answer = WIRE_PONG};
	return call_server(client, &call, &ping, sizeof(ping), WIRE_PING, deadline_ns);
}

static int
call_for_text(struct rkv_client *client, enum wire_type type, struct call *call, char *text,
	      size_t text_len, size_t *ret_len, int64_t deadline_ns)
{
	call->text = text;
	call->text_len = text ? text_len : 0;
	struct wire_header ask;
	int rc = call_server(client, call, &ask, sizeof(ask), type, deadline_ns);
	if (!rc && ret_len)
		*ret_len = call->len;
	return rc;
}

int
control_stats(struct rkv_client *client, char *text, size_t text_len, size_t *ret_len,
	      int64_t deadline_ns)
{
	struct call call = {.answer = WIRE_STATS_TEXT};
	return call_for_text(client, WIRE_STATS, &call, text, text_len, ret_len, deadline_ns);
}

int
control_fsck(struct rkv_client *client, char *text, size_t text_len, size_t *ret_len,
	     int64_t deadline_ns)
{
	struct call call = {.answer = WIRE_FSCK_TEXT};
	return call_for_text(client, WIRE_FSCK, &call, text, text_len, ret_len, deadline_ns);
}

int
control_snapshot(struct rkv_client *client, const char *name, uint32_t number,
		 struct wire_snapshot_state *ret_state, int64_t deadline_ns)
{
	struct wire_snapshot ask = {.number = number};
	char body[sizeof(*ret_state) - sizeof(ret_state->header) + 1];
	struct call call = {
		.answer = WIRE_SNAPSHOT_STATE,
		.text = body,
		.text_len = sizeof(body),
	};
	if (strlen(name) >= sizeof(ask.name))
		return ERR_INVALID;
	memcpy(ask.name, name, strlen(name));
	int rc = call_server(client, &call, &ask, sizeof(ask), WIRE_SNAPSHOT, deadline_ns);
	if (rc)
		return rc;
	memcpy((char *)ret_state + sizeof(ret_state->header), body, sizeof(body) - 1);
	return 0;
}

/* ---- The thread, connected ---- */

static int
dispatch(struct control *c, const union channel_message *message, char reason[NET_REASON_MAX])
{
	int rc;
	switch (message->header.type) {
	case WIRE_STAMP:
		rc = take_stamp(c, &message->stamp, reason);
		if (!rc)
			links_maintain(&c->links, clock_now_ns());
		return rc;
	case WIRE_JOINED:
		raise_newest(&c->client->stamps, message->joined.stamp);
		return links_answer(&c->links, message, reason);
	case WIRE_REFUSED:
		if (refuse_call(c, &message->refused))
			return 0;
		return links_answer(&c->links, message, reason);
	case WIRE_RELINKED:
	case WIRE_RENEWED:
		return links_answer(&c->links, message, reason);
	case WIRE_PONG:
	case WIRE_STATS_TEXT:
	case WIRE_SNAPSHOT_STATE:
	case WIRE_FSCK_TEXT:
		answer_call(c, message);
		return 0;
	default:
		snprintf(reason, NET_REASON_MAX,
			 "the server sent a message that does not belong here");
		return ERR_CORRUPT;
	}
}

static int
receive(struct control *c, char reason[NET_REASON_MAX])
{
	const union channel_message *message;
	int rc;
	while ((rc = channel_next(&c->channel, &message, reason)) == 0) {
		rc = dispatch(c, message, reason);
		if (rc)
			return rc;
	}
	return rc == ERR_AGAIN ? 0 : rc;
}

/* What is due: messages of callers, requests of sessions, a keepalive. */
static int
transmit(struct control *c, int64_t now_ns)
{
	pthread_mutex_lock(&c->client->mutex);
	int rc = channel_flush(&c->channel);
	pthread_mutex_unlock(&c->client->mutex);
	if (!rc)
		rc = links_ask(&c->links, now_ns);
	if (!rc && !keepalive_is_out(c) && now_ns - c->keepalive_ns >= STAMP_NS)
		rc = send_keepalive(c, now_ns);
	return rc;
}

static bool
is_overdue(const struct control *c, int64_t now_ns)
{
	return (keepalive_is_out(c) && now_ns - c->keepalive_ns >= SILENCE_NS) ||
	       (c->links.asked && now_ns - c->links.asked_ns >= SILENCE_NS);
}

static int64_t
earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* When the thread has to look again, though nothing happens. */
static int64_t
next_due(const struct control *c)
{
	int64_t due = c->keepalive_ns + (keepalive_is_out(c) ? SILENCE_NS : STAMP_NS);
	if (c->links.asked)
		due = earlier(due, c->links.asked_ns + SILENCE_NS);
	return earlier(due, links_due(&c->links));
}

/* Sleeps until something happens on fd (-1: none) or on the eventfd, or until due_ns. */
static void
sleep_until(struct control *c, int fd, bool has_output, int64_t due_ns)
{
	struct pollfd p[2] = {
		{.fd = c->wake_fd, .events = POLLIN},
		{.fd = fd, .events = (short)(POLLIN | (has_output ? POLLOUT : 0))},
	};
	int64_t left_ns = due_ns - clock_now_ns();
	struct timespec timeout = clock_timespec(left_ns > 0 ? left_ns : 0);
	uint64_t n_wakes;
	if (ppoll(p, 2, &timeout, NULL) > 0 && p[0].revents &&
	    read(c->wake_fd, &n_wakes, sizeof(n_wakes)) < 0)
		return; /* another look finds it */
}

/* One turn of the loop. A failure, with a sentence, ends the connection. */
static int
serve(struct control *c, char reason[NET_REASON_MAX])
{
	pthread_mutex_lock(&c->client->mutex);
	bool has_output = channel_has_output(&c->channel);
	pthread_mutex_unlock(&c->client->mutex);
	sleep_until(c, c->channel.fd, has_output, next_due(c));
	/* Receive first: after this process was stopped, what came meanwhile counts. */
	int rc = receive(c, reason);
	if (rc)
		return rc;
	int64_t now_ns = clock_now_ns();
	if (is_overdue(c, now_ns)) {
		snprintf(reason, NET_REASON_MAX, "the server has not answered for %d s",
			 (int)(SILENCE_NS / CLOCK_NS_PER_S));
		return ERR_TIMEOUT;
	}
	rc = transmit(c, now_ns);
	if (rc)
		snprintf(reason, NET_REASON_MAX, "the server takes no more messages");
	return rc;
}

/* ---- The connection comes and goes ---- */

/*
 * A hello is done. Stamps start anew with another server; the numbers of keepalives go on, and an
 * answer that the last connection did not bring never comes.
 */
static void
connected(struct control *c, const struct hello *server)
{
	struct stamps *st = &c->client->stamps;
	bool same_server = c->links.n_connections > 0 && c->server.epoch == server->epoch &&
			   c->server.region_id == server->region_id;
	if (same_server) {
		raise_newest(st, server->stamp);
	} else {
		atomic_store_explicit(&st->g, 0, memory_order_release);
		atomic_store_explicit(&st->newest, server->stamp, memory_order_seq_cst);
	}
	look_at_wall_clock(c->client);
	c->expected = atomic_load_explicit(&st->asked, memory_order_relaxed) + 1;
	c->keepalive_ns = 0; /* the first one at once */
	c->backoff_ns = 0;
	c->told = 0;
	pthread_mutex_lock(&c->client->mutex);
	c->server = *server;
	links_connected(&c->links, same_server);
	pthread_mutex_unlock(&c->client->mutex);
}

static void
disconnect(struct control *c)
{
	fab_region_sever(c->server.region);
	pthread_mutex_lock(&c->client->mutex);
	while (c->calls)
		end_call(c, &c->calls, ERR_CONN);
	channel_close(&c->channel);
	links_disconnected(&c->links);
	pthread_mutex_unlock(&c->client->mutex);
	links_drop(&c->links);
	fab_region_close(c->server.region);
	c->server.region = NULL;
}

static void
wait_before_reconnect(struct control *c)
{
	int64_t pause_ns = c->backoff_ns;
	if (pause_ns > 0)
		pause_ns =
			pause_ns / 2 + (int64_t)(fab_rand(c->client->fab) % (uint64_t)pause_ns) / 2;
	int64_t until_ns = clock_now_ns() + pause_ns;
	while (!atomic_load_explicit(&c->stopping, memory_order_acquire) &&
	       clock_now_ns() < until_ns)
		sleep_until(c, -1, false, until_ns);
	c->backoff_ns = c->backoff_ns ? c->backoff_ns * 2 : RECONNECT_MIN_NS;
	if (c->backoff_ns > RECONNECT_MAX_NS)
		c->backoff_ns = RECONNECT_MAX_NS;
}

/* A server that answers, but not as it should, is worth a word; one that is not there was. */
static void
tell_failure(struct control *c, int code, const char *reason)
{
	bool is_new = code != ERR_CONN && code != ERR_TIMEOUT && code != c->told;
	if (is_new)
		c->told = code;
	log_line(&c->client->log, is_new ? LOG_WARN : LOG_DEBUG, "cannot reconnect yet: %s",
		 reason);
}

static void
reconnect(struct control *c)
{
	struct hello server;
	char reason[NET_REASON_MAX];
	struct rkv_client *client = c->client;
	int64_t timeout_ns = client->options.connect_timeout_ms * CLOCK_NS_PER_MS;
	wait_before_reconnect(c);
	if (atomic_load_explicit(&c->stopping, memory_order_acquire))
		return;
	int rc = hello_connect(client, &c->channel,
			       clock_now_ns() + earlier(timeout_ns, ATTEMPT_NS), &server, reason);
	if (rc) {
		tell_failure(c, rc, reason);
		return;
	}
	atomic_fetch_add_explicit(&client->n_reconnects, 1, memory_order_relaxed);
	connected(c, &server);
	log_line(&client->log, LOG_INFO, "connected to %s again", client->server_text);
}

static void *
control_main(void *arg)
{
	struct control *c = arg;
	char reason[NET_REASON_MAX];
	while (!atomic_load_explicit(&c->stopping, memory_order_acquire)) {
		if (c->channel.fd < 0) {
			reconnect(c);
		} else if (serve(c, reason)) {
			disconnect(c);
			log_line(&c->client->log, LOG_WARN,
				 "connection to %s lost: %s; reconnecting", c->client->server_text,
				 reason);
		}
	}
	return NULL;
}

/* ---- Starting and stopping ---- */

/* With all signals blocked: they are the application's. */
static int
start_thread(struct control *c)
{
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int error = pthread_create(&c->thread, NULL, control_main, c);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (error) {
		log_line(&c->client->log, LOG_ERROR, "cannot start the control thread: %s",
			 strerror(error));
		return ERR_NOMEM;
	}
	c->has_thread = true;
	pthread_setname_np(c->thread, "rkv-control");
	return 0;
}

static int
control_create(struct rkv_client *client)
{
	struct control *c = calloc(1, sizeof(*c));
	if (!c)
		return ERR_NOMEM;
	client->control = c;
	c->client = client;
	c->channel.fd = -1;
	c->links.client = client;
	c->links.channel = &c->channel;
	c->links.server = &c->server;
	c->keepalive = calloc(1, sizeof(*c->keepalive) +
					 WIRE_ANNOUNCEMENTS_MAX * sizeof(c->keepalive->session[0]));
	c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->wake_fd < 0) {
		log_line(&client->log, LOG_ERROR, "cannot create an eventfd: %s", strerror(errno));
		return err_from_errno(errno);
	}
	return c->keepalive ? 0 : ERR_NOMEM;
}

int
control_start(struct rkv_client *client, int64_t deadline_ns)
{
	struct hello server;
	char reason[NET_REASON_MAX];
	int rc = control_create(client);
	if (rc)
		goto fail;
	rc = hello_connect(client, &client->control->channel, deadline_ns, &server, reason);
	if (rc) {
		log_line(&client->log, LOG_ERROR, "%s", reason);
		goto fail;
	}
	connected(client->control, &server);
	rc = start_thread(client->control);
	if (rc)
		goto fail;
	return 0;
fail:
	control_stop(client);
	return rc;
}

void
control_stop(struct rkv_client *client)
{
	struct control *c = client->control;
	if (!c)
		return;
	if (c->has_thread) {
		atomic_store_explicit(&c->stopping, true, memory_order_release); /* [DONE] */
		control_wake(client);
		pthread_join(c->thread, NULL);
	}
	assert(!client->sessions && !c->calls);
	channel_close(&c->channel);
	fab_region_close(c->server.region);
	fab_close(client->fab);
	client->fab = NULL;
	links_destroy(&c->links);
	if (c->wake_fd >= 0)
		close(c->wake_fd);
	free(c->keepalive);
	free(c);
	client->control = NULL;
}

/* ---- For other threads ---- */

void
control_wake(struct rkv_client *client)
{
	/* It fails only if the counter is full: then the thread is awake. */
	(void)eventfd_write(client->control->wake_fd, 1);
}

int
control_await_link(struct rkv_client *client, struct rkv_session *session, int64_t deadline_ns)
{
	struct control *c = client->control;
	bool in_time = true;
	pthread_mutex_lock(&client->mutex);
	while (in_time &&
	       atomic_load_explicit(&session->port.state, memory_order_acquire) == LINK_WANTED)
		in_time = client_wait(client, deadline_ns);
	bool is_connected = c->links.connection != 0;
	pthread_mutex_unlock(&client->mutex);
	if (in_time)
		return 0;
	return is_connected ? ERR_TIMEOUT : ERR_CONN;
}

void
control_forget(struct rkv_client *client, struct rkv_session *session)
{
	links_forget(&client->control->links, session);
}

void
control_leave(struct rkv_client *client, uint64_t connection, uint32_t session_slot,
	      uint32_t serial)
{
	links_leave(&client->control->links, connection, session_slot, serial);
	control_wake(client);
}

void
control_layout(struct rkv_client *client, struct layout *ret_layout)
{
	pthread_mutex_lock(&client->mutex);
	*ret_layout = client->control->server.layout;
	pthread_mutex_unlock(&client->mutex);
}
