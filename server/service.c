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
#define CONNECTIONS_MAX (LIMIT_CLIENTS + 1024u) /* the rest: still to say HELLO, or being refused */

/* ---- Clients ---- */

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
	struct store *store = client->store;
	if (result >= 0) {
		if (client->owner.n_sessions)
			log_line(store->log, LOG_INFO, "process %d is gone with %u sessions open",
				 (int)client->owner.pid, client->owner.n_sessions);
		sessions_process_gone(&store->sessions, &client->owner);
		census_hurry(&store->census);
		if (client->open) /* perhaps held open by a child of the process */
			conn_abort(&client->conn);
	} else if (result != -ECANCELED) {
		watch_process(client);
	}
	service_settle(client);
}

static const struct shm_share *
claim(struct handout *handout, const unsigned char *token, int pidfd, pid_t pid,
      bool *ret_read_only)
{
	struct service *service = (void *)((char *)handout - offsetof(struct service, handout));
	struct client *client = client_with_token(&service->clients, token);
	if (!client)
		return NULL;
	client->has_token = false;
	peers_cut_client(client->store->peers, client); /* it goes one way, not both */
	client->pidfd = pidfd;
	client->owner.mapped = true;
	client->owner.pid = pid;
	*ret_read_only = client->access == WIRE_ACCESS_READ;
	watch_process(client);
	return client->store->region->share;
}

static void
closed(struct conn *conn)
{
	struct client *client = client_of_conn(conn);
	struct service *service = client->service;
	client->open = false;
	client->has_token = false;
	service->n_connections--;
	service->n_clients -= client->role != 0;
	peers_cut_client(client->store->peers, client);
	sessions_disconnected(&client->store->sessions, &client->owner);
	census_hurry(&client->store->census);
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
	client->store = service->store[0];
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
cut_off(struct client *client)
{
	char reason[LIMIT_REASON_MAX];
	snprintf(reason, sizeof(reason), "tenant %s was removed or changed at the server",
		 client->guarded.said.hello.tenant);
	client->has_token = false;
	peers_cut_client(client->store->peers, client);
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
		cut_off(client);
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
give_up_idle_holder(struct client *client)
{
	struct store *store = client->store;
	client->has_token = false;
	peers_cut_client(store->peers, client);
	sessions_process_gone(&store->sessions, &client->owner);
	census_hurry(&store->census);
	messages_give_up(client, ERR_TIMEOUT,
			 "sessions of this connection, which never took the pool, do not "
			 "move on and hold up all others");
}

static void
give_up_stalled(struct store *store)
{
	bool is_verbs = store->peers->verbs != NULL;
	uint64_t lag_max = is_verbs ? SESSIONS_LAG_STALLED : SESSIONS_LAG_MAX;
	struct session *session;
	while ((session = sessions_stalled(&store->sessions, lag_max))) {
		struct client *client = client_of_owner(session->owner);
		if (!is_verbs && !client->has_looked) {
			give_up_idle_holder(client);
			continue;
		}
		log_line(store->log, LOG_WARN,
			 "session %u is cut off: an operation of it does not end, and holds up "
			 "all others",
			 session->slot);
		store_end_session(store, session, false);
	}
}

static void
tick_done(struct loop_op *op, int result)
{
	struct service *service = (void *)((char *)op - offsetof(struct service, tick));
	if (result == -ECANCELED)
		return;
	int64_t now = clock_now_ns();
	loop_timer(service->loop, op, LIMIT_STAMP_MS, tick_done);
	for (unsigned i = 0; i < service->n_stores; i++) {
		store_tick(service->store[i], now);
		give_up_stalled(service->store[i]);
	}
	conn_queue_expire(&service->greeting, now);
	conn_queue_expire(&service->talking, now);
	conn_queue_expire(&service->handout.greeting, now);
	exporter_expire(&service->exporter, now);
}

/* ---- Begin and end ---- */

/* Where clients are told to go with data over tcp. */
static void
choose_tcp_address(struct service *service, const struct service_setup *setup)
{
	struct net_address address = setup->options->advertise;
	if (!setup->regions[0].region->tcp)
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
	service->guard = setup->guard;
	service->started_ns = clock_now_ns();
	LIST_INIT(&service->clients);
	conn_queue_init(&service->greeting, LIMIT_HANDSHAKE_MS);
	conn_queue_init(&service->talking, LIMIT_LEASE_MS);
	snprintf(service->unix_path, sizeof(service->unix_path), "%s", setup->unix_path);
	choose_tcp_address(service, setup);
	service->handout = (struct handout){
		.loop = setup->loop,
		.log = setup->log,
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

static int
create_stores(struct service *service, const struct service_setup *setup)
{
	int rc = 0;
	while (rc == 0 && service->n_stores < setup->n_regions) {
		const struct service_region *of = &setup->regions[service->n_stores];
		const struct store_setup s = {
			.loop = setup->loop,
			.log = setup->log,
			.options = of->options,
			.region = of->region,
			.peers = of->peers,
			.clients = &service->clients,
		};
		rc = store_create(&s, &service->store[service->n_stores]);
		service->n_stores += rc == 0;
	}
	return rc;
}

int
service_create(const struct service_setup *setup, struct service **ret_service)
{
	struct service *service = calloc(1, sizeof(*service));
	if (!service)
		return ERR_NOMEM;
	init(service, setup);
	int rc = create_stores(service, setup);
	if (rc) {
		service_destroy(service);
		return rc;
	}
	const char *wrong = NET_BOOT_ID_REMEDY;
	rc = net_boot_id(service->boot_id);
	if (rc == 0 && setup->unix_fd >= 0) {
		wrong = WATCH_REMEDY;
		rc = handout_start(&service->handout, setup->unix_fd);
	}
	if (rc == 0) {
		wrong = WATCH_REMEDY;
		rc = listen_at(service, setup->ports);
	}
	if (rc == 0)
		rc = exporter_start(&service->exporter, service, service->loop, setup->metrics_fd);
	if (rc) {
		log_line(setup->log, LOG_ERROR, "cannot begin to serve: %s", wrong);
		service_destroy(service);
		return rc;
	}
	for (unsigned i = 0; i < service->n_stores; i++)
		store_start(service->store[i]);
	loop_timer(service->loop, &service->tick, LIMIT_STAMP_MS, tick_done);
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
	handout_destroy(&service->handout);
	exporter_destroy(&service->exporter);
	while (service->n_listeners > 0)
		loop_listener_close(&service->listeners[--service->n_listeners].listener);
	while (service->n_stores > 0)
		store_destroy(service->store[--service->n_stores]);
	free(service);
}
