/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server's side, and in the place of client/control.c a control coroutine for each client: it
 * sends keepalives, takes stamps, makes links, looks after idle sessions, as client/control.c and
 * links.c do. A message is a sleep between two looks; everything else moves meanwhile.
 */
#include "client/control.h"
#include "proto/wire.h"
#include "tests/sim/store_internal.h"

#define MAINTAIN_NS INT64_C(50000000)
#define FIRST_STAMP UINT64_C(1000)

/* ---- Sessions as the server knows them ---- */

/* The smallest A of all that count; never falls. */
uint64_t
server_g(struct world *w)
{
	uint64_t g = w->newest;
	for (unsigned i = 1; i < SERVED_MAX; i++)
		if (w->served[i].state != SERVED_FREE && w->served[i].a < g)
			g = w->served[i].a;
	if (w->scrubber_a < g)
		g = w->scrubber_a;
	if (g > w->g)
		w->g = g;
	return w->g;
}

bool
server_is_needed(const struct world *w)
{
	return w->n_ended < w->n_peers || (w->scrubber && !w->is_scrubbed);
}

static struct served *
find_served(struct world *w, const struct peer *peer, uint32_t serial)
{
	for (unsigned i = 1; i < SERVED_MAX; i++) {
		struct served *served = &w->served[i];
		if (serial != 0 && served->state == SERVED_LIVING && served->peer == peer &&
		    (served->serial == serial || served->renewed_from == serial))
			return served;
	}
	return NULL;
}

/* Nothing late of a process may land any more, [DEAD]. */
static void
end_connections(struct world *w, struct peer *peer)
{
	watch_link_lost(peer);
	for (unsigned i = 0; i < sim_n_connections(w->sim); i++)
		if (sim_connection_fab(w->sim, i) == peer->fab &&
		    sim_connection_state(w->sim, i) != SIM_ENDED)
			sim_connection_end(w->sim, i);
}

static void
end_served(struct world *w, struct served *served)
{
	end_connections(w, served->peer);
	store_trace(w, "server: session %u of client %u is over", (unsigned)(served - w->served),
		    served->peer->number);
	served->state = SERVED_ENDING;
	w->n_sessions_ended++;
}

void
server_give_up(struct world *w, struct peer *peer)
{
	for (unsigned i = 1; i < SERVED_MAX; i++)
		if (w->served[i].state == SERVED_LIVING && w->served[i].peer == peer)
			end_served(w, &w->served[i]);
	peer->is_cut = true;
}

/* A new session, which counts from the newest stamp; former: ends. NULL: no slot is free. */
static struct served *
join(struct world *w, struct peer *peer, uint32_t former)
{
	struct served *served = find_served(w, peer, former);
	if (served)
		end_served(w, served);
	for (unsigned i = 1; i < SERVED_MAX; i++) {
		served = &w->served[i];
		if (served->state != SERVED_FREE)
			continue;
		*served = (struct served){.state = SERVED_LIVING,
					  .serial = ++w->next_serial,
					  .a = w->newest,
					  .peer = peer};
		return served;
	}
	return NULL;
}

/* ---- The server's coroutines: stamps, and chunks of sessions that are over ---- */

static void
tick_main(void *arg)
{
	struct world *w = arg;
	while (server_is_needed(w)) {
		sim_sleep(w->sim, sim_now(w->sim) + w->config->stamp_ns);
		w->newest++;
	}
}

/* The server's CPU changes no word of the chunk table: a loop-back CAS does, [ONE-WORD]. */
static void
orphan(struct world *w, uint64_t index, uint64_t desc)
{
	struct fab_op op = {
		.kind = FAB_CAS,
		.roff = layout_desc_off(&w->layout, index),
		.piece = {{&w->sweep_old, 8, w->server_key}},
		.expect = desc,
		.swap = chunk_next(desc, CHUNK_ORPHAN, chunk_class(desc), 0),
	};
	struct fab_done done;
	if (fab_post(w->server_ep, &op, 1, NULL) != 0)
		sim_fail(w->sim, "the server's own connection is gone");
	while (fab_poll(w->server_ep, &done, 1) == 0)
		fab_wait(w->server_ep, sim_now(w->sim) + w->config->stamp_ns);
}

static void
sweep(struct world *w, unsigned slot)
{
	for (uint64_t i = 0; i < w->layout.n_chunks; i++) {
		uint64_t desc = word_at(w, layout_desc_off(&w->layout, i));
		if (chunk_state(desc) == CHUNK_OWNED && chunk_owner(desc) == slot)
			orphan(w, i, desc);
	}
	w->served[slot].state = SERVED_FREE;
}

static void
reach_itself(struct world *w)
{
	struct fab_region *region;
	if (watch_region_open(w, w->server_fab, &region) != 0 ||
	    fab_connect(region, NULL, 4, 0, &w->server_ep) != 0)
		sim_fail(w->sim, "the server does not reach itself");
}

/*
 * Another epoch: the old region and all connections to it are gone, sessions are dead, stamps begin
 * anew. Between two sweeps, so that nothing of the server is in the middle of something.
 */
static void
restart(struct world *w)
{
	w->wants_restart = false;
	sim_server_close(w->sim, w->server);
	for (unsigned i = 0; i < sim_n_connections(w->sim); i++)
		if (sim_connection_state(w->sim, i) != SIM_ENDED)
			sim_connection_end(w->sim, i);
	memset(w->served, 0, sizeof(w->served));
	w->epoch++;
	w->newest = FIRST_STAMP / 2 + store_random(&w->random, FIRST_STAMP);
	w->g = 0;
	w->scrubber_a = UINT64_MAX;
	w->former[w->n_former++] = w->memory;
	store_format(w, w->config->n_groups, w->config->n_chunks, w->config->seed + w->epoch);
	for (unsigned i = 0; i < w->n_peers; i++) {
		watch_link_lost(&w->peer[i]);
		w->peer[i].is_cut = true;
	}
	watch_restarted(w);
	reach_itself(w);
	w->calm_step = sim_n_steps(w->sim);
	store_count(w, STORE_RESTART);
	store_trace(w, "server: epoch %u", (unsigned)w->epoch);
}

static void
sweep_main(void *arg)
{
	struct world *w = arg;
	while (server_is_needed(w)) {
		if (w->wants_restart)
			restart(w);
		for (unsigned i = 1; i < SERVED_MAX; i++)
			if (w->served[i].state == SERVED_ENDING)
				sweep(w, i);
		sim_sleep(w->sim, sim_now(w->sim) + w->config->stamp_ns / 2);
	}
}

void
server_start(struct world *w)
{
	w->newest = FIRST_STAMP;
	w->scrubber_a = UINT64_MAX;
	w->server_fab = sim_fab(w->sim);
	fab_register(w->server_fab, &w->sweep_old, 8, &w->server_key);
	reach_itself(w);
	sim_spawn(w->sim, w->server_fab, tick_main, w);
	sim_spawn(w->sim, w->server_fab, sweep_main, w);
	if (w->config->scrubs)
		scrub_start(w);
	if (w->config->n_forged)
		forge_start(w);
}

/* ---- Keepalives ---- */

/* A message is under way. */
static void
travel(struct peer *p)
{
	sim_sleep(p->w->sim,
		  sim_now(p->w->sim) +
			  (int64_t)store_random(&p->random, (uint64_t)p->w->config->stamp_ns / 2));
}

static bool
is_known(const struct peer *p, const struct rkv_session *s)
{
	return s && s->port.serial != 0 && s->port.connection == p->connection;
}

/* As links.c: a session that has not taken its link over holds nothing back. */
static bool
announce(const struct peer *p, uint64_t *ret_a)
{
	struct rkv_session *s = p->session;
	if (!is_known(p, s))
		return false;
	uint64_t newest = atomic_load(&s->client->stamps.newest);
	int state = atomic_load(&s->port.state);
	enum start_state start = start_state(atomic_load(&s->port.start_word));
	bool is_idle = start == START_IDLE || start == START_MARKS;
	if (state == LINK_UP)
		*ret_a = session_announce(s);
	else if (state == LINK_READY && is_idle)
		*ret_a = newest > LIMIT_WORD_STAMPS ? newest - LIMIT_WORD_STAMPS : 0;
	else
		return false;
	return true;
}

static uint32_t
flags_now(const struct world *w)
{
	unsigned n_free = 0;
	for (uint64_t i = 0; i < w->layout.n_chunks; i++)
		n_free += chunk_state(word_at(w, layout_desc_off(&w->layout, i))) == CHUNK_FREE;
	return n_free * 4 <= w->layout.n_chunks ? WIRE_STAMP_CHUNKS_SHORT : 0;
}

static void
keepalive(struct peer *p)
{
	struct world *w = p->w;
	struct stamps *st = &p->client.stamps;
	uint64_t asked = atomic_fetch_add(&st->asked, 1) + 1;
	uint64_t a = 0;
	uint32_t serial = p->session ? p->session->port.serial : 0;
	bool announces = announce(p, &a);
	travel(p);
	struct served *served = announces ? find_served(w, p, serial) : NULL;
	if (served && a > served->a && a <= w->newest)
		served->a = a;
	uint64_t newest = w->newest, g = server_g(w);
	uint32_t flags = flags_now(w);
	travel(p);
	if (p->is_cut)
		return;
	if (newest > atomic_load(&st->newest))
		atomic_store(&st->newest, newest);
	atomic_store(&st->g, g);
	atomic_store(&st->flags, flags);
	atomic_store(&st->answered, asked);
}

static void
maintain(struct peer *p)
{
	struct rkv_session *s = p->session;
	if (!is_known(p, s) || atomic_load(&s->port.state) != LINK_UP)
		return;
	uint64_t word = atomic_load(&s->port.start_word);
	uint64_t newest = atomic_load(&p->client.stamps.newest);
	bool holds = start_state(word) == START_MARKS && start_stamp(word) < newest;
	bool gives = atomic_load(&p->client.stamps.flags) & WIRE_STAMP_CHUNKS_SHORT &&
		     start_state(word) <= START_MARKS && store_chance(&p->random, 10);
	if ((!holds && !gives) || !session_take(s))
		return;
	p->is_pinned = true;
	if (atomic_load(&s->port.state) == LINK_UP)
		session_maintain(s, sim_now(p->w->sim) + MAINTAIN_NS);
	session_release(s);
	p->is_pinned = false;
}

/* ---- Links ---- */

/* Connects and hands the link over; slot, serial and stamp are set. */
static bool
make_ready(struct peer *p, struct rkv_session *s, struct link *link)
{
	struct world *w = p->w;
	if (p->is_cut ||
	    fab_connect(p->region, NULL, p->client.options.depth + 16, 0, &link->ep) != 0)
		return false;
	link->fab = p->fab;
	link->layout = w->layout;
	link->epoch = w->epoch;
	s->port.next_link = *link;
	atomic_store(&s->port.state, LINK_READY);
	store_trace(w, "client %u: connection %u is ready, session %u", p->number,
		    sim_connection(link->ep), link->session_slot);
	return true;
}

static void
relink(struct peer *p, struct rkv_session *s)
{
	struct world *w = p->w;
	travel(p);
	bool lives = find_served(w, p, s->port.serial) != NULL;
	if (lives)
		end_connections(w, p);
	travel(p);
	if (!lives) {
		s->port.serial = 0; /* refused: whatever it was called, it is not any more */
		return;
	}
	struct link link = s->port.next_link;
	link.session_slot = s->port.session_slot;
	link.serial = s->port.former_serial;
	if (make_ready(p, s, &link))
		store_count(w, STORE_RELINK);
}

static void
rejoin(struct peer *p, struct rkv_session *s)
{
	struct world *w = p->w;
	travel(p);
	struct served *served = join(w, p, s->port.serial);
	uint64_t stamp = w->newest;
	travel(p);
	if (!served)
		return;
	if (stamp > atomic_load(&p->client.stamps.newest))
		atomic_store(&p->client.stamps.newest, stamp);
	struct link link = {
		.session_slot = (uint32_t)(served - w->served),
		.serial = served->serial,
		.joined_stamp = stamp,
	};
	if (s->port.former_serial)
		store_count(w, STORE_REJOIN);
	s->port.connection = p->connection;
	s->port.session_slot = link.session_slot;
	s->port.serial = link.serial;
	atomic_store(&s->port.renew, 0);
	atomic_store(&s->port.next_serial, 0);
	make_ready(p, s, &link);
}

static void
renew(struct peer *p, struct rkv_session *s)
{
	struct world *w = p->w;
	travel(p);
	struct served *served = find_served(w, p, s->port.serial);
	if (served) {
		served->renewed_from = served->serial;
		served->serial = ++w->next_serial;
	}
	travel(p);
	if (!served || p->is_cut)
		return;
	store_count(w, STORE_RENEW);
	s->port.serial = served->serial;
	atomic_store(&s->port.renew, 0);
	atomic_store(&s->port.next_serial, served->serial);
}

static void
serve(struct peer *p)
{
	struct rkv_session *s = p->session;
	if (!s)
		return;
	p->is_pinned = true;
	int state = atomic_load(&s->port.state);
	if (state == LINK_WANTED && is_known(p, s))
		relink(p, s);
	else if (state == LINK_WANTED)
		rejoin(p, s);
	else if (state == LINK_UP && is_known(p, s) && atomic_load(&s->port.renew))
		renew(p, s);
	p->is_pinned = false;
}

/* As control.c: stamps of another epoch mean nothing. */
static void
take_hello(struct peer *p)
{
	struct stamps *st = &p->client.stamps;
	if (p->epoch != p->w->epoch) {
		p->epoch = p->w->epoch;
		atomic_store(&st->g, 0);
		atomic_store(&st->newest, p->w->newest);
	} else if (p->w->newest > atomic_load(&st->newest)) {
		atomic_store(&st->newest, p->w->newest);
	}
}

/* The control connection was lost: the region with it; then a new hello. */
static void
reconnect(struct peer *p)
{
	struct rkv_session *s = p->session;
	fab_region_sever(p->region);
	p->connection = 0;
	p->is_pinned = true;
	if (s && session_take(s)) {
		int state = atomic_load(&s->port.state);
		if (state == LINK_UP) {
			session_drop_link(s);
		} else if (state == LINK_READY) {
			fab_disconnect(s->port.next_link.ep);
			s->port.next_link.ep = NULL;
			atomic_store(&s->port.state, LINK_WANTED);
		}
		session_release(s);
	}
	p->is_pinned = false;
	fab_region_close(p->region);
	travel(p);
	if (watch_region_open(p->w, p->fab, &p->region) != 0)
		sim_fail(p->w->sim, "the region cannot be opened again");
	p->is_cut = false;
	p->connection = (uint64_t)sim_now(p->w->sim);
	take_hello(p);
}

void
control_main(void *arg)
{
	struct peer *p = arg;
	while (!p->has_ended) {
		if (p->is_cut)
			reconnect(p);
		keepalive(p);
		if (!p->is_cut)
			maintain(p);
		if (!p->is_cut)
			serve(p);
		travel(p);
	}
}

/* ---- In the place of client/control.c, for the session's side ---- */

void
control_wake(struct rkv_client *client)
{
	(void)client; /* the coroutine looks often enough */
}

/* As links_forget: waits while the control coroutine is at work on it. */
void
control_forget(struct rkv_client *client, struct rkv_session *session)
{
	struct peer *p = peer_of(client);
	(void)session;
	while (p->is_pinned)
		sim_sleep(p->w->sim, sim_now(p->w->sim) + p->w->config->stamp_ns / 4);
	p->session = NULL;
}

void
control_leave(struct rkv_client *client, uint64_t connection, uint32_t session_slot,
	      uint32_t serial)
{
	struct peer *p = peer_of(client);
	struct served *served = find_served(p->w, p, serial);
	(void)connection;
	(void)session_slot;
	if (served)
		end_served(p->w, served);
}

void
control_layout(struct rkv_client *client, struct layout *ret_layout)
{
	*ret_layout = peer_of(client)->w->layout;
}

/* What follows belongs to rkv_open and to questions to a server: nobody here asks. */
int
control_await_link(struct rkv_client *client, struct rkv_session *session, int64_t deadline_ns)
{
	(void)client;
	(void)session;
	(void)deadline_ns;
	return ERR_CONN;
}
