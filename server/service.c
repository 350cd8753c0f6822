/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Clients come and go: service.h.
 *
 *   connection open, no pidfd --(token presented)--> pidfd watched
 *   connection closed: sessions end (no pidfd) or linger (pidfd)
 *   pidfd readable:    sessions end, and so does the connection
 *   no pidfd, but sessions that hold G back: likewise
 *
 * Over verbs and tcp nobody presents a token on the unix socket, and so nothing lingers: what a
 * session still has in flight is cut off with its peer, before it ends, [DEAD]. One that holds G
 * back ends alone; its client finds out, and joins anew.
 *
 * service_settle frees a client when its connection is closed and no session is left.
 */
#include "server/service.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/net.h"
#include "server/messages.h"

#define WATCH_REMEDY                                                                               \
	"cannot watch the sockets: no memory or no file descriptor is left: raise "                \
	"RLIMIT_NOFILE (ulimit -n, LimitNOFILE= in a systemd unit)"
#define SCRUB_HURRIED_BYTES (UINT64_C(8) << 20) /* a tick: some milliseconds */
#define CONNECTIONS_MAX (LIMIT_CLIENTS + 1024u) /* the rest: still to say HELLO, or being refused */

/* ---- Clients ---- */

void
service_end_session(struct service *service, struct session *session, bool in_order)
{
	peers_cut(service->peers, session);
	sessions_end(&service->sessions, session, in_order);
	census_hurry(&service->census);
}

static void
client_free(struct client *client)
{
	LIST_REMOVE(client, entry);
	if (client->pidfd >= 0)
		close(client->pidfd);
	free(client);
}

void
service_settle(struct client *client)
{
	if (client->open || client->owner.n_sessions)
		return;
	if (loop_is_idle(&client->gone))
		client_free(client);
	else
		loop_cancel(client->service->loop, &client->gone);
}

static void process_gone(struct loop_op *op, int result);

static void
watch_process(struct client *client)
{
	loop_poll(client->service->loop, &client->gone, client->pidfd, POLLIN, process_gone);
}

static void
process_gone(struct loop_op *op, int result)
{
	struct client *client = (void *)((char *)op - offsetof(struct client, gone));
	struct service *service = client->service;
	if (result >= 0) {
		if (client->owner.n_sessions)
			log_line(service->log, LOG_INFO, "process %d is gone with %u sessions open",
				 (int)client->owner.pid, client->owner.n_sessions);
		sessions_process_gone(&service->sessions, &client->owner);
		census_hurry(&service->census);
		if (client->open) /* perhaps held open by a child of the process */
			conn_abort(&client->conn);
	} else if (result != -ECANCELED) {
		watch_process(client);
	}
	service_settle(client);
}

static bool
claim(struct handout *handout, const unsigned char *token, int pidfd, pid_t pid,
      bool *ret_read_only)
{
	struct service *service = (void *)((char *)handout - offsetof(struct service, handout));
	struct client *client = client_with_token(&service->clients, token);
	if (!client)
		return false;
	client->has_token = false;
	peers_cut_client(service->peers, client); /* it goes one way, not both */
	client->pidfd = pidfd;
	client->owner.mapped = true;
	client->owner.pid = pid;
	*ret_read_only = client->access == WIRE_ACCESS_READ;
	watch_process(client);
	return true;
}

static void
closed(struct conn *conn)
{
	struct client *client = client_of_conn(conn);
	struct service *service = client->service;
	client->open = false;
	client->has_token = false;
	peers_cut_client(service->peers, client);
	service->n_connections--;
	service->n_clients -= client->role != 0;
	sessions_disconnected(&service->sessions, &client->owner);
	census_hurry(&service->census);
	service_settle(client);
}

static const struct conn_events client_events = {messages_measure, messages_take, messages_insecure,
						 closed};

/* ---- Connections come ---- */

static struct service *
service_of(struct loop_listener *listener)
{
	return ((struct service_listener *)listener)->service;
}

static void
accepted(struct loop_listener *listener, int fd)
{
	struct service *service = service_of(listener);
	struct client *client = calloc(1, sizeof(*client));
	service->n_accepted++;
	if (service->n_connections >= CONNECTIONS_MAX)
		conn_queue_drop_first(&service->greeting);
	if (!client) {
		messages_farewell(fd, ERR_NOMEM,
				  "the server has no memory left for another connection");
		close(fd);
		return;
	}
	net_set_nodelay(fd);
	if (conn_open(&client->conn, service->loop, fd, service->guard->tls, &client_events,
		      &service->greeting)) {
		free(client);
		return;
	}
	client->service = service;
	client->open = true;
	client->pidfd = -1;
	client->owner.number = service->n_accepted;
	client->owner.connected = true;
	LIST_INIT(&client->owner.sessions);
	LIST_INSERT_HEAD(&service->clients, client, entry);
	service->n_connections++;
}

static void
refused_for_files(struct loop_listener *listener, int fd)
{
	service_of(listener)->n_handshakes_refused++;
	messages_farewell(
		fd, ERR_NOMEM,
		"the server has no file descriptor left (RLIMIT_NOFILE): try again later");
}

/* ---- Who may no longer come ---- */

static void
cut_off(struct service *service, struct client *client)
{
	char reason[LIMIT_REASON_MAX];
	snprintf(reason, sizeof(reason), "tenant %s was removed or changed at the server",
		 client->guarded.said.hello.tenant);
	client->has_token = false;
	peers_cut_client(service->peers, client);
	messages_give_up(client, ERR_PERM, reason);
}

void
service_reload(struct service *service, const struct guard_files *files)
{
	struct guard *guard = service->guard;
	struct guard fresh;
	struct client *client;
	char reason[NET_REASON_MAX];
	unsigned n_cut = 0;
	if (guard_init(&fresh, files, service->log, reason)) {
		log_line(service->log, LOG_ERROR,
			 "tenants and certificates are what they were, because the new ones are "
			 "not good: %s",
			 reason);
		return;
	}
	LIST_FOREACH(client, &service->clients, entry)
	{
		if (!client->tenant)
			continue;
		client->tenant = tenants_find_same(fresh.tenants, client->tenant);
		if (client->tenant || !client->open)
			continue;
		cut_off(service, client);
		n_cut++;
	}
	guard_replace(guard, &fresh);
	log_line(service->log, LOG_INFO, "read again: %zu tenants, %s; %u connections were cut off",
		 guard->tenants ? guard->tenants->n : 0,
		 guard->tls ? "certificates for new connections" : "no TLS", n_cut);
}

/* ---- Time ---- */

/*
 * Who joined, and neither took the pool nor looked at it, has nothing that could land: its sessions
 * are not waited for.
 */
static void
give_up_idle_holder(struct service *service, struct client *client)
{
	client->has_token = false;
	peers_cut_client(service->peers, client);
	sessions_process_gone(&service->sessions, &client->owner);
	census_hurry(&service->census);
	messages_give_up(client, ERR_TIMEOUT,
			 "sessions of this connection, which never took the pool, do not "
			 "move on and hold up all others");
}

static void
give_up_stalled(struct service *service)
{
	bool is_verbs = service->peers->verbs != NULL;
	uint64_t lag_max = is_verbs ? SESSIONS_LAG_STALLED : SESSIONS_LAG_MAX;
	struct session *session;
	while ((session = sessions_stalled(&service->sessions, lag_max))) {
		struct client *client = client_of_owner(session->owner);
		if (!is_verbs && !client->has_looked) {
			give_up_idle_holder(service, client);
			continue;
		}
		log_line(service->log, LOG_WARN,
			 "session %u is cut off: an operation of it does not end, and holds up "
			 "all others",
			 session->slot);
		service_end_session(service, session, false);
	}
}

/* The scrubber's share of a tick; for the dead it is faster than its rate. */
static void
scrub(struct service *service)
{
	const struct sessions *sessions = &service->sessions;
	uint64_t bytes = ((uint64_t)service->scrub_rate << 20) * LIMIT_STAMP_MS / 1000;
	if (!service->scrub_rate)
		return;
	/* Those of earlier lives of the region count as one that has died. */
	scrub_told(&service->scrub, sessions->n_died + (service->region->n_lives > 1),
		   sessions->n_left + sessions->n_died + service->n_relinked);
	if (scrub_is_hurried(&service->scrub) && bytes < SCRUB_HURRIED_BYTES)
		bytes = SCRUB_HURRIED_BYTES;
	if (scrub_is_wanted(&service->scrub, sessions->n_living + sessions->n_ending != 0))
		scrub_tick(&service->scrub, bytes);
}

static void
tick_done(struct loop_op *op, int result)
{
	struct service *service = (void *)((char *)op - offsetof(struct service, tick));
	if (result == -ECANCELED)
		return;
	int64_t now = clock_now_ns();
	loop_timer(service->loop, op, LIMIT_STAMP_MS, tick_done);
	sessions_tick(&service->sessions);
	service->region->superblock->stamp = service->sessions.newest;
	give_up_stalled(service);
	conn_queue_expire(&service->greeting, now);
	conn_queue_expire(&service->talking, now);
	conn_queue_expire(&service->handout.greeting, now);
	exporter_expire(&service->exporter, now);
	peers_expire(service->peers, now);
	census_tick(&service->census);
	snapshot_tick(&service->snapshot, now);
	scrub(service);
}

static void
evict_due(struct loop_op *op, int result)
{
	struct service *service = (void *)((char *)op - offsetof(struct service, evict_op));
	if (result != -ECANCELED)
		loop_timer(service->loop, op, evict_tick(&service->evict), evict_due);
}

/* ---- Begin and end ---- */

/* Where clients are told to go with data over tcp. */
static void
choose_tcp_address(struct service *service, const struct service_setup *setup)
{
	struct net_address address = setup->options->advertise;
	if (!setup->region->tcp)
		return;
	if (address.port == 0)
		address.port = setup->ports->port[0].bound.port;
	if (address.host[0])
		net_format(&address, service->tcp_address);
	else
		snprintf(service->tcp_address, sizeof(service->tcp_address), WIRE_TCP_HERE);
}

static void
init(struct service *service, const struct service_setup *setup)
{
	service->loop = setup->loop;
	service->log = setup->log;
	service->region = setup->region;
	service->guard = setup->guard;
	service->started_ns = clock_now_ns();
	LIST_INIT(&service->clients);
	conn_queue_init(&service->greeting, LIMIT_HANDSHAKE_MS);
	conn_queue_init(&service->talking, LIMIT_LEASE_MS);
	snprintf(service->unix_path, sizeof(service->unix_path), "%s", setup->unix_path);
	choose_tcp_address(service, setup);
	sessions_init(&service->sessions, &setup->region->superblock->next_serial,
		      setup->region->first_stamp);
	census_init(&service->census, setup->region, &service->sessions, setup->log);
	service->reach_of =
		(struct reach_region){setup->region, &service->sessions, &service->worker};
	reach_region(&service->reach, &service->reach_of);
	service->scrub_rate = setup->options->scrub_rate;
	service->audit = (struct audit){
		.loop = setup->loop, .reach = &service->reach, .done = messages_audited};
	service->peers = setup->peers;
	service->peers->loop = setup->loop;
	service->peers->verbs = setup->region->verbs;
	service->peers->tcp = setup->region->tcp;
	service->peers->sessions = &service->sessions;
	service->peers->clients = &service->clients;
	service->handout = (struct handout){
		.loop = setup->loop,
		.log = setup->log,
		.share = setup->region->share,
		.claim = claim,
	};
}

static int
listen_at(struct service *service, const struct ports *ports)
{
	int rc = 0;
	while (rc == 0 && service->n_listeners < ports->n) {
		struct service_listener *l = &service->listeners[service->n_listeners];
		*l = (struct service_listener){
			.listener = {.accepted = accepted, .refused = refused_for_files},
			.service = service,
		};
		rc = loop_listen(service->loop, &l->listener, ports->port[service->n_listeners].fd);
		service->n_listeners++; /* also if that failed halfway */
	}
	return rc;
}

uint64_t
service_turned_away(const struct service *service)
{
	uint64_t n = 0;
	for (unsigned i = 0; i < service->n_listeners; i++)
		n += service->listeners[i].listener.n_refused;
	return n;
}

int
service_create(const struct service_setup *setup, struct service **ret_service)
{
	struct service *service = calloc(1, sizeof(*service));
	if (!service)
		return ERR_NOMEM;
	init(service, setup);
	int rc = snapshot_init(&service->snapshot, setup->loop, setup->log, setup->region,
			       &service->sessions, setup->options);
	if (rc) {
		service_destroy(service);
		return rc;
	}
	const char *wrong = "no memory is left";
	rc = service->scrub_rate ? scrub_create(&service->scrub, &service->reach) : 0;
	if (rc == 0) {
		wrong = NET_BOOT_ID_REMEDY;
		rc = net_boot_id(service->boot_id);
	}
	if (rc == 0 && setup->region->n_lives > 1) {
		wrong = "the chunks of former sessions cannot be taken: does the RDMA device work?";
		rc = census_take_all(&service->census);
	}
	if (rc == 0 && setup->unix_fd >= 0) {
		wrong = WATCH_REMEDY;
		rc = handout_start(&service->handout, setup->unix_fd);
	}
	if (rc == 0) {
		wrong = WATCH_REMEDY;
		rc = listen_at(service, setup->ports);
	}
	if (rc == 0) {
		wrong = "no memory is left";
		rc = evict_create(&service->evict, &service->reach, &service->sessions);
	}
	if (rc == 0)
		rc = exporter_start(&service->exporter, service, service->loop, setup->metrics_fd);
	if (rc) {
		log_line(setup->log, LOG_ERROR, "cannot begin to serve: %s", wrong);
		service_destroy(service);
		return rc;
	}
	peers_start(service->peers);
	loop_timer(service->loop, &service->tick, LIMIT_STAMP_MS, tick_done);
	if (service->evict.reach)
		loop_timer(service->loop, &service->evict_op, LIMIT_STAMP_MS, evict_due);
	*ret_service = service;
	return 0;
}

void
service_destroy(struct service *service)
{
	struct client *client;
	if (!service)
		return;
	while ((client = LIST_FIRST(&service->clients))) {
		conn_release(&client->conn);
		client_free(client);
	}
	snapshot_destroy(&service->snapshot);
	handout_destroy(&service->handout);
	exporter_destroy(&service->exporter);
	scrub_destroy(&service->scrub);
	audit_destroy(&service->audit);
	evict_destroy(&service->evict);
	while (service->n_listeners > 0)
		loop_listener_close(&service->listeners[--service->n_listeners].listener);
	free(service);
}
