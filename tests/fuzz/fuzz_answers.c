/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client's control connection after the hello: what its thread does with what the server says,
 * without the thread. The input is a list of steps; so that sessions come to be linked, ANSWER puts
 * the number of the request right.
 */
#include "client/control.c" /* for its turns, one at a time */

#include "tests/fuzz/host.h"

#define STEPS_MAX 64
#define TEXT_MAX 40

enum step {
	STEP_RAW,    /* a length, and so many bytes */
	STEP_ANSWER, /* a type, and what its body is changed by */
	STEP_CALL,   /* somebody waits for an answer: of a type */
	STEP_TURN,   /* the thread asks for what is due */
	STEP_PUMP,   /* the session looks for its link, or gives it up */
	STEP_LOSE,   /* the session's endpoint fails */
	STEPS
};

struct world {
	struct rkv_client *client;
	struct control *c;
	struct rkv_session *session;
	struct call call;
	char text[TEXT_MAX];
	bool is_lost;
};

/* ---- Beginning and end ---- */

static struct rkv_client *
make_client(void)
{
	static const uint32_t not_forked = 1;
	struct rkv_client *client = calloc(1, sizeof(*client));
	fuzz_must(client);
	rkv_options_init(&client->options);
	client->options.depth = 1;
	client->options.cache_bytes = 0;
	client->log = fuzz_log;
	client->not_forked = &not_forked;
	snprintf(client->server_text, sizeof(client->server_text), "fuzz:1");
	pthread_mutex_init(&client->mutex, NULL);
	pthread_cond_init(&client->changed, NULL);
	return client;
}

/* As control_start, up to the thread. */
static void
begin(struct world *w)
{
	struct hello server;
	char reason[NET_REASON_MAX];
	struct layout_superblock *sb = host_superblock();
	struct wire_welcome welcome = host_welcome();
	sb->checksum = layout_superblock_checksum(sb);
	fuzz_sockets_make(&fuzz_tcp);
	fuzz_sockets_make(&fuzz_unix);
	fuzz_sockets_say(&fuzz_tcp, &welcome, sizeof(welcome));
	host_hand_out();
	w->client = make_client();
	fuzz_must(control_create(w->client) == 0);
	w->c = w->client->control;
	fuzz_must(hello_connect(w->client, &w->c->channel, clock_now_ns() + CLOCK_NS_PER_S, &server,
				reason) == 0);
	connected(w->c, &server);
	fuzz_must(session_create(w->client, &w->session) == 0);
	w->client->sessions = w->session;
	w->client->n_sessions = 1;
	atomic_store(&w->session->port.state, LINK_WANTED);
}

static void
end(struct world *w)
{
	struct rkv_session *session = w->session;
	if (!w->is_lost)
		disconnect(w->c);
	control_forget(w->client, session);
	uint64_t connection = session->port.connection;
	uint32_t session_slot = session->port.session_slot, serial = session->port.serial;
	session_destroy(session);
	control_leave(w->client, connection, session_slot, serial);
	control_stop(w->client);
	fuzz_sockets_close(&fuzz_tcp);
	fuzz_sockets_close(&fuzz_unix);
	pthread_cond_destroy(&w->client->changed);
	pthread_mutex_destroy(&w->client->mutex);
	free(w->client);
}

/* ---- Steps ---- */

/* What has come is taken, as in a turn of the thread. */
static void
take(struct world *w)
{
	char reason[NET_REASON_MAX] = "";
	const struct stamps *st = &w->client->stamps;
	if (receive(w->c, reason)) {
		fuzz_must(reason[0] && memchr(reason, '\0', sizeof(reason)));
		disconnect(w->c);
		w->is_lost = true;
	}
	fuzz_must(atomic_load(&st->g) <= atomic_load(&st->newest));
	fuzz_must(atomic_load(&st->answered) <= atomic_load(&st->asked));
}

static void
raw(struct fuzz_input *in)
{
	uint8_t bytes[UINT8_MAX];
	fuzz_sockets_say(&fuzz_tcp, bytes, fuzz_take(in, bytes, fuzz_byte(in)));
}

/* How long a message of a type is, if that is fixed. */
static size_t
len_of(uint16_t type, uint8_t more)
{
	switch (type) {
	case WIRE_STAMP:
		return sizeof(struct wire_stamp);
	case WIRE_JOINED:
		return sizeof(struct wire_joined);
	case WIRE_RELINKED:
	case WIRE_RENEWED:
		return sizeof(struct wire_session);
	case WIRE_REFUSED:
		return sizeof(struct wire_refused);
	case WIRE_SNAPSHOT_STATE:
		return sizeof(struct wire_snapshot_state);
	default:
		return sizeof(struct wire_header) + more;
	}
}

static void
answer(struct world *w, struct fuzz_input *in)
{
	static const uint16_t types[] = {WIRE_STAMP,      WIRE_JOINED,         WIRE_RELINKED,
					 WIRE_RENEWED,    WIRE_REFUSED,        WIRE_PONG,
					 WIRE_STATS_TEXT, WIRE_SNAPSHOT_STATE, WIRE_FSCK_TEXT};
	union channel_message *m = calloc(1, sizeof(*m));
	uint8_t which = fuzz_byte(in);
	uint16_t type = types[(which & 15) % (sizeof(types) / sizeof(types[0]))];
	fuzz_must(m);
	m->header = (struct wire_header){
		.magic = WIRE_MAGIC,
		.version = WIRE_VERSION,
		.type = type,
		.request = which & 16 ? w->call.request : w->c->links.request,
	};
	if (type == WIRE_STAMP)
		m->header.request = (uint32_t)w->c->expected;
	m->header.len = (uint32_t)len_of(type, type == WIRE_PONG ? 0 : fuzz_byte(in));
	fuzz_take(in, m->bytes + sizeof(m->header), m->header.len - sizeof(m->header));
	fuzz_sockets_say(&fuzz_tcp, m, m->header.len);
	free(m);
}

/* As somebody who would wait for it. */
static void
call(struct world *w, struct fuzz_input *in)
{
	static const enum wire_type types[][2] = {
		{WIRE_PING, WIRE_PONG}, {WIRE_STATS, WIRE_STATS_TEXT}, {WIRE_FSCK, WIRE_FSCK_TEXT}};
	uint8_t how = fuzz_byte(in);
	const enum wire_type *type = types[(how & 15) % 3];
	struct wire_header ask;
	if (w->c->calls)
		return;
	w->call = (struct call){.answer = type[1], .text = w->text, .text_len = how >> 4};
	memset(w->text, 'x', sizeof(w->text));
	(void)call_begin(w->c, &w->call, &ask, sizeof(ask), type[0]);
}

static void
check_call(const struct world *w)
{
	size_t room = w->call.text_len;
	for (size_t i = room; i < sizeof(w->text); i++)
		fuzz_must(!w->call.text || w->text[i] == 'x');
	if (w->call.text && w->call.status == 0 && room && w->call.answer != WIRE_PONG)
		fuzz_must(memchr(w->text, '\0', room));
}

static void
lose(struct world *w)
{
	if (w->session->link.ep)
		w->session->broken = true;
}

static void
check_link(const struct world *w)
{
	const struct link_port *port = &w->session->port;
	int state = atomic_load(&port->state);
	if (state == LINK_READY)
		fuzz_must(port->next_link.ep && port->next_link.serial &&
			  port->next_link.session_slot <= CHUNK_OWNER_MAX);
	if (state == LINK_REFUSED)
		fuzz_must(port->refused < 0);
}

static void
step(struct world *w, struct fuzz_input *in)
{
	uint8_t what = fuzz_byte(in) % STEPS;
	switch ((enum step)what) {
	case STEP_RAW:
		raw(in);
		break;
	case STEP_ANSWER:
		answer(w, in);
		break;
	case STEP_CALL:
		call(w, in);
		break;
	case STEP_TURN:
		w->c->keepalive_ns = 0;
		(void)transmit(w->c, clock_now_ns());
		break;
	case STEP_PUMP:
		session_pump(w->session);
		break;
	case STEP_LOSE:
		lose(w);
		break;
	case STEPS:
		break;
	}
	take(w);
	check_call(w);
	check_link(w);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	struct world w = {0};
	begin(&w);
	for (int i = 0; i < STEPS_MAX && in.len && !w.is_lost; i++)
		step(&w, &in);
	end(&w);
	return 0;
}
