/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server and librkv over verbs, in this process, on RDMA devices that are not there
 * (tests/fabric/fake_verbs.h): who is let in and how often, what is cut off before it ends, [DEAD],
 * [ONE-AGENT], and that a session heals. What a device does with the data, tests/vm shows.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/include/rkv.h"
#include "common/err.h"
#include "server/client.h"
#include "server/service.h"
#include "tests/fabric/fake_verbs.h"
#include "tests/proc/raw.h"

/* ---- The server, in a thread ---- */

struct host {
	struct log log;
	pthread_mutex_t mutex;
	char lines[4096]; /* of the log */
	struct options options;
	struct loop *loop;
	struct region region;
	struct peers peers;
	struct region more; /* another region, which nobody has unless a test says so */
	struct peers more_peers;
	struct guard guard; /* who comes may do everything */
	struct service *service;
	struct ports ports;
	int call_fd; /* has the loop call the function below, or stop without one */
	struct loop_op call_op;
	void (*call)(struct host *host);
	sem_t called;
	pthread_t thread;
	struct server address; /* as raw_connect takes it */
};

static void
keep_line(void *arg, int level, const char *line)
{
	struct host *host = arg;
	(void)level;
	pthread_mutex_lock(&host->mutex);
	size_t len = strlen(host->lines);
	snprintf(host->lines + len, sizeof(host->lines) - len, "%s\n", line);
	pthread_mutex_unlock(&host->mutex);
}

static bool
has_said(struct host *host, const char *part)
{
	pthread_mutex_lock(&host->mutex);
	bool has = strstr(host->lines, part) != NULL;
	pthread_mutex_unlock(&host->mutex);
	return has;
}

static void
called(struct loop_op *op, int result)
{
	struct host *host = (void *)((char *)op - offsetof(struct host, call_op));
	uint64_t n;
	if (result < 0 || read(host->call_fd, &n, sizeof(n)) != (ssize_t)sizeof(n))
		return;
	if (!host->call) {
		loop_stop(host->loop);
		return;
	}
	host->call(host);
	loop_poll(host->loop, op, host->call_fd, POLLIN, called);
	sem_post(&host->called);
}

/* Calls the function in the server's thread; NULL: stops that. */
static void
host_call(struct host *host, void (*function)(struct host *host))
{
	host->call = function;
	assert_int_equal(eventfd_write(host->call_fd, 1), 0);
	if (!function)
		return;
	while (sem_wait(&host->called))
		;
}

static void *
run(void *arg)
{
	struct host *host = arg;
	loop_run(host->loop);
	return NULL;
}

/* options end with NULL. Returns what region_choose or region_create returned. */
static int
open_region(struct host *host, const char *const options[])
{
	char reason[NET_REASON_MAX];
	memset(host, 0, sizeof(*host));
	pthread_mutex_init(&host->mutex, NULL);
	host->log = (struct log){keep_line, host, LOG_DEBUG};
	char *const *argv = (char *const *)(uintptr_t)options;
	assert_int_equal(options_parse(&host->options, argv, reason), 0);
	assert_int_equal(ports_open(&host->ports, host->options.listen, 1, reason), 0);
	const struct region_events events = peers_events(&host->peers);
	int rc = region_choose(&host->region, &host->options, &host->ports.port[0].bound,
			       &host->log);
	return rc ? rc : region_create(&host->region, &host->options, &events);
}

static void
host_start(struct host *host)
{
	static const char *const options[] = {"kv-server",   "--fabric",    "verbs", "--listen",
					      "127.0.0.1:0", "--pool-size", "16M",   NULL};
	if (open_region(host, options))
		fail_msg("%s", host->lines);
	assert_int_equal(loop_create(&host->log, &host->loop), 0);
	const struct region_events events = peers_events(&host->more_peers);
	assert_int_equal(
		region_choose(&host->more, &host->options, &host->ports.port[0].bound, &host->log),
		0);
	assert_int_equal(region_create(&host->more, &host->options, &events), 0);
	const struct service_region regions[] = {
		{&host->options, &host->region, &host->peers},
		{&host->options, &host->more, &host->more_peers},
	};
	const struct service_setup setup = {
		.loop = host->loop,
		.log = &host->log,
		.regions = regions,
		.n_regions = 2,
		.options = &host->options,
		.ports = &host->ports,
		.guard = &host->guard,
		.unix_fd = -1,
		.metrics_fd = -1,
		.unix_path = "",
	};
	assert_int_equal(service_create(&setup, &host->service), 0);
	host->call_fd = eventfd(0, EFD_CLOEXEC);
	sem_init(&host->called, 0, 0);
	loop_poll(host->loop, &host->call_op, host->call_fd, POLLIN, called);
	host->address.port = host->ports.port[0].bound.port;
	snprintf(host->address.address, sizeof(host->address.address), "127.0.0.1:%u",
		 host->ports.port[0].bound.port);
	assert_int_equal(pthread_create(&host->thread, NULL, run, host), 0);
}

static void
host_stop(struct host *host)
{
	host_call(host, NULL);
	pthread_join(host->thread, NULL);
	loop_destroy(host->loop);
	service_destroy(host->service);
	region_destroy(&host->region);
	region_destroy(&host->more);
	ports_close(&host->ports);
	close(host->call_fd);
	sem_destroy(&host->called);
	pthread_mutex_destroy(&host->mutex);
}

static struct host host;
static struct raw admin;
static struct rdma_cm_id *strangers[8]; /* that are not closed yet */

static void
stranger_close(struct rdma_cm_id *id)
{
	for (size_t i = 0; i < sizeof(strangers) / sizeof(*strangers); i++)
		if (strangers[i] == id)
			strangers[i] = NULL;
	fake_stranger_close(id);
}

static int
set_up(void **state)
{
	(void)state;
	fake_reset();
	host_start(&host);
	raw_connect(&admin, &host.address, WIRE_ROLE_ADMIN);
	return 0;
}

/* Nothing of the device is left, or fake_reset aborts. */
static int
tear_down(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(strangers) / sizeof(*strangers); i++)
		if (strangers[i])
			stranger_close(strangers[i]);
	raw_close(&admin);
	host_stop(&host);
	fake_reset();
	return 0;
}

/* ---- Strangers and clients by hand ---- */

static uint16_t
rdma_port(const struct raw *raw)
{
	const char *colon = strrchr(raw->welcome.verbs_address, ':');
	assert_non_null(colon);
	return (uint16_t)atoi(colon + 1);
}

static struct wire_cm_request
request_of(const struct raw *raw, const struct raw_session *session)
{
	struct wire_cm_request request = {.magic = WIRE_CM_MAGIC, .version = WIRE_VERSION};
	memcpy(request.token, raw->welcome.token, sizeof(request.token));
	if (session) {
		request.session_slot = session->slot;
		request.serial = session->serial;
	}
	return request;
}

/* Asks for a connection and waits for what is said. */
static struct rdma_cm_id *
knock(const struct raw *raw, const struct wire_cm_request *request, int want, const char *sentence)
{
	struct wire_cm_reject words = {0};
	struct rdma_cm_id *id = fake_stranger(rdma_port(raw), request, sizeof(*request), 16);
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	int heard;
	size_t i = 0;
	while (strangers[i])
		i++;
	strangers[i] = id;
	while ((heard = fake_stranger_heard(id, &words, sizeof(words))) == -1)
		assert_true(proc_pause(deadline));
	assert_int_equal(heard, want);
	if (sentence && !strstr(words.reason, sentence))
		fail_msg("'%.*s' does not say '%s'", (int)sizeof(words.reason), words.reason,
			 sentence);
	return id;
}

static struct rdma_cm_id *
admitted(const struct raw *raw, const struct raw_session *session)
{
	const struct wire_cm_request request = request_of(raw, session);
	return knock(raw, &request, RDMA_CM_EVENT_CONNECT_RESPONSE, NULL);
}

static void
turned_away(const struct raw *raw, const struct raw_session *session, const char *sentence)
{
	const struct wire_cm_request request = request_of(raw, session);
	stranger_close(knock(raw, &request, RDMA_CM_EVENT_REJECTED, sentence));
}

static void
the_hello_offers_verbs_alone(void **state)
{
	static struct raw raw;
	(void)state;
	raw_connect(&raw, &host.address, WIRE_ROLE_CLIENT);
	assert_string_equal(raw.welcome.unix_path, "");
	assert_memory_equal(raw.welcome.verbs_address, "10.77.0.1:", 10);
	assert_true(raw.welcome.region[0].base == (uint64_t)(uintptr_t)pool_base(host.region.pool));
	assert_int_not_equal(raw.welcome.region[0].r_key, 0);
	assert_int_equal(raw_stat(&admin, "peers"), 0);
	raw_close(&raw);
}

static void
a_token_admits_one_look(void **state)
{
	static struct raw raw;
	(void)state;
	raw_connect(&raw, &host.address, WIRE_ROLE_CLIENT);
	struct wire_cm_request forged = request_of(&raw, NULL);
	forged.token[3] ^= 1;
	stranger_close(knock(&raw, &forged, RDMA_CM_EVENT_REJECTED, "token"));
	struct rdma_cm_id *look = admitted(&raw, NULL);
	assert_true(raw_stat_becomes(&admin, "peers", 1));
	turned_away(&raw, NULL, "since the hello");
	stranger_close(look);
	assert_true(raw_stat_becomes(&admin, "peers", 0));
	turned_away(&raw, NULL, "since the hello");
	assert_int_equal(raw_stat(&admin, "peers_refused"), 3);
	/* Without its control connection a token is nothing. */
	static struct raw gone;
	raw_connect(&gone, &host.address, WIRE_ROLE_CLIENT);
	raw_close(&gone);
	assert_true(raw_stat_becomes(&admin, "clients", 2));
	turned_away(&gone, NULL, "token");
	raw_close(&raw);
}

static void
make_all_readers(struct host *h)
{
	struct client *client;
	LIST_FOREACH(client, &h->service->clients, entry)
	{
		client->access = WIRE_ACCESS_READ;
	}
}

/* For a look and for a session alike; who may write has more. */
static void
who_may_only_read_has_a_queue_pair_for_reads(void **state)
{
	static struct raw reader, writer;
	(void)state;
	raw_connect(&reader, &host.address, WIRE_ROLE_CLIENT);
	struct raw_session session = raw_join(&reader, 0);
	host_call(&host, make_all_readers);
	admitted(&reader, NULL);
	assert_int_equal(fake_newest_access(), IBV_ACCESS_REMOTE_READ);
	admitted(&reader, &session);
	assert_int_equal(fake_newest_access(), IBV_ACCESS_REMOTE_READ);
	raw_connect(&writer, &host.address, WIRE_ROLE_CLIENT);
	session = raw_join(&writer, 0);
	admitted(&writer, &session);
	assert_int_equal(fake_newest_access(), IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
						       IBV_ACCESS_REMOTE_ATOMIC);
	assert_int_equal(raw_stat(&admin, "peers"), 3);
	assert_int_equal(raw_stat(&admin, "peers_refused"), 0);
	raw_close(&reader);
	raw_close(&writer);
}

static void
move_to_the_other_region(struct host *h)
{
	LIST_FIRST(&h->service->clients)->store = h->service->store[1]; /* who came last */
}

/* As if it had been told of the other region. */
static void
tell_of_the_other_region(struct raw *raw)
{
	struct fab_offer offer;
	region_offer(&host.more, &offer);
	memcpy(raw->welcome.verbs_address, offer.verbs_address, sizeof(offer.verbs_address));
}

/* Each region has a listener, an R_Key and a protection domain; a token works at one of them. */
static void
a_token_is_of_one_region(void **state)
{
	static struct raw one, other;
	struct fab_offer offer;
	(void)state;
	raw_connect(&one, &host.address, WIRE_ROLE_CLIENT);
	raw_connect(&other, &host.address, WIRE_ROLE_CLIENT);
	host_call(&host, move_to_the_other_region);
	struct raw_session a = raw_join(&one, 0), b = raw_join(&other, 0);
	region_offer(&host.more, &offer);
	assert_int_not_equal(offer.r_key, one.welcome.region[0].r_key);
	turned_away(&other, NULL, "no control connection has this token");
	turned_away(&other, &b, "no control connection has this token");
	stranger_close(admitted(&one, &a));
	tell_of_the_other_region(&one);
	turned_away(&one, NULL, "no control connection has this token");
	turned_away(&one, &a, "no control connection has this token");
	tell_of_the_other_region(&other);
	stranger_close(admitted(&other, &b));
	assert_int_equal(raw_stat(&admin, "peers_admitted"), 1);
	assert_int_equal(raw_stat(&admin, "peers_refused"), 2);
	assert_int_equal(raw_stat(&admin, "sessions"), 1);
	raw_close(&one);
	raw_close(&other);
}

static void
a_session_is_connected_once_a_link(void **state)
{
	static struct raw raw, other;
	(void)state;
	raw_connect(&raw, &host.address, WIRE_ROLE_CLIENT);
	raw_connect(&other, &host.address, WIRE_ROLE_CLIENT);
	struct raw_session session = raw_join(&raw, 0);
	turned_away(&other, &session, "no such session");
	struct rdma_cm_id *first = admitted(&raw, &session);
	turned_away(&raw, &session, "since its last JOIN");
	assert_int_equal(raw_stat(&admin, "peers"), 1);
	/* RELINK ends the old connection before it is answered, though nobody has closed it. */
	assert_int_equal(raw_ask(&raw, WIRE_RELINK, &session), WIRE_RELINKED);
	assert_int_equal(raw_stat(&admin, "peers"), 0);
	struct rdma_cm_id *second = admitted(&raw, &session);
	turned_away(&raw, &session, "since its last JOIN");
	/* One that ended by itself is not replaced without RELINK either. */
	stranger_close(second);
	assert_true(raw_stat_becomes(&admin, "peers", 0));
	turned_away(&raw, &session, "since its last JOIN");
	assert_int_equal(raw_ask(&raw, WIRE_RELINK, &session), WIRE_RELINKED);
	struct rdma_cm_id *third = admitted(&raw, &session);
	raw_leave(&raw, &session);
	assert_true(raw_stat_becomes(&admin, "sessions", 0));
	assert_int_equal(raw_stat(&admin, "peers"), 0);
	turned_away(&raw, &session, "no such session");
	stranger_close(first);
	stranger_close(third);
	raw_close(&raw);
	raw_close(&other);
}

/* Nothing lingers: with the control connection go its peers, and then its sessions. */
static void
a_closed_control_connection_ends_everything(void **state)
{
	static struct raw raw;
	(void)state;
	raw_connect(&raw, &host.address, WIRE_ROLE_CLIENT);
	struct raw_session one = raw_join(&raw, 0), two = raw_join(&raw, 0);
	struct rdma_cm_id *look = admitted(&raw, NULL);
	struct rdma_cm_id *id = admitted(&raw, &one);
	turned_away(&raw, &one, "since its last JOIN");
	assert_int_equal(raw_stat(&admin, "peers"), 2);
	raw_close(&raw);
	assert_true(raw_stat_becomes(&admin, "peers", 0));
	assert_true(raw_stat_becomes(&admin, "sessions_died", 2));
	assert_int_equal(raw_stat(&admin, "sessions_lingering"), 0);
	assert_true(raw_stat_becomes(&admin, "sessions_ending", 0));
	turned_away(&raw, &two, "token");
	stranger_close(look);
	stranger_close(id);
}

static void
nearly_stall(struct host *h)
{
	for (unsigned i = 0; i < SESSIONS_LAG_STALLED - 50; i++)
		sessions_tick(&h->service->store[0]->sessions);
}

static void
go_on(struct host *h)
{
	for (unsigned i = 0; i < 60; i++)
		sessions_tick(&h->service->store[0]->sessions);
}

/* A session whose A stands still for T_STALL is cut off, and it alone. */
static void
a_session_that_stalls_is_cut_off(void **state)
{
	static struct raw raw;
	(void)state;
	raw_connect(&raw, &host.address, WIRE_ROLE_CLIENT);
	struct raw_session stuck = raw_join(&raw, 0), well = raw_join(&raw, 0);
	admitted(&raw, &stuck);
	admitted(&raw, &well);
	host_call(&host, nearly_stall);
	struct wire_stamp stamp = raw_keepalive(&raw, NULL, 0);
	const struct wire_announcement said = {well.slot, well.serial, stamp.newest};
	raw_keepalive(&raw, &said, 1);
	assert_int_equal(raw_stat(&admin, "peers"), 2);
	host_call(&host, go_on);
	assert_true(raw_stat_becomes(&admin, "sessions_died", 1));
	assert_int_equal(raw_stat(&admin, "peers"), 1);
	assert_true(has_said(&host, "is cut off"));
	assert_int_equal(raw_ask(&raw, WIRE_RELINK, &stuck), WIRE_REFUSED);
	assert_int_equal(raw_ask(&raw, WIRE_RELINK, &well), WIRE_RELINKED);
	raw_close(&raw);
}

/* ---- librkv ---- */

static struct rkv_client *
open_client(void)
{
	struct rkv_client *client;
	assert_int_equal(rkv_open(host.address.address, NULL, &client), RKV_OK);
	return client;
}

static void
assert_round_trip(struct rkv_session *session, const char *key, const char *value)
{
	char buf[64];
	struct rkv_item item;
	assert_int_equal(rkv_put(session, key, strlen(key), value, strlen(value), NULL, NULL), 0);
	assert_int_equal(rkv_get(session, key, strlen(key), buf, sizeof(buf), &item), 0);
	assert_int_equal(item.value_len, strlen(value));
	assert_memory_equal(buf, value, strlen(value));
}

static void
a_client_stores_and_leaves(void **state)
{
	struct rkv_client *client = open_client();
	struct rkv_session *session;
	(void)state;
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
	assert_round_trip(session, "fruit", "apple");
	assert_int_equal(raw_stat(&admin, "sessions"), 1);
	assert_true(raw_stat_becomes(&admin, "peers", 1)); /* the look is over */
	rkv_session_close(session);
	assert_true(raw_stat_becomes(&admin, "sessions_left", 1));
	assert_int_equal(raw_stat(&admin, "peers"), 0);
	rkv_close(client);
	assert_true(raw_stat_becomes(&admin, "chunks_owned", 0));
	assert_int_equal(raw_stat(&admin, "sessions_died"), 0);
}

static void
keep_error(void *arg, int level, const char *line)
{
	if (level == RKV_LOG_ERROR)
		snprintf(arg, NET_REASON_MAX, "%s", line);
}

/* What the fabric knows about a failure is what the caller is told. */
static void
a_failure_is_told_with_its_cause(void **state)
{
	static const struct {
		struct fake_event resolving, connecting;
		const char *sentence;
	} cases[] = {
		{{RDMA_CM_EVENT_ADDR_ERROR, -ENODEV}, {FAKE_GOOD, 0}, "leads to 10.77.0.1"},
		{{FAKE_GOOD, 0}, {RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT}, "comes from 10.77.0.1"},
	};
	char line[NET_REASON_MAX];
	struct rkv_options options;
	struct rkv_client *client;
	(void)state;
	rkv_options_init(&options);
	options.connect_timeout_ms = PROC_WAIT_MS; /* nothing of this takes time */
	options.log = keep_error;
	options.log_arg = line;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		line[0] = '\0';
		fake.on_resolve_addr = cases[i].resolving;
		fake.on_connect = cases[i].connecting;
		assert_true(rkv_open(host.address.address, &options, &client) < 0);
		if (!strstr(line, host.address.address) || !strstr(line, cases[i].sentence))
			fail_msg("'%s' does not say '%s'", line, cases[i].sentence);
	}
}

/* Values of every way that they can go: in the scratch, the arena, and the caller's own memory. */
static void
large_values_and_registered_buffers(void **state)
{
	struct rkv_client *client = open_client();
	struct rkv_session *session;
	const size_t len = 40000;
	size_t room = rkv_buffer_size(len);
	unsigned char *own = malloc(room + 3), *value = malloc(len);
	struct rkv_item item;
	(void)state;
	assert_non_null(own);
	assert_non_null(value);
	for (size_t i = 0; i < len; i++)
		value[i] = (unsigned char)(i * 7);
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
	assert_int_equal(rkv_buffer_register(client, own + 3, room), RKV_OK); /* not aligned */
	assert_int_equal(rkv_put(session, "a", 1, value, len, NULL, NULL), 0);
	assert_int_equal(rkv_get(session, "a", 1, own + 3, room, &item), 0);
	assert_memory_equal(own + 3, value, len);
	own[3] ^= 1;
	assert_int_equal(rkv_put(session, "b", 1, own + 3, len, NULL, NULL), 0);
	assert_int_equal(rkv_touch(session, "b", 1, 60, NULL), 0);
	value[0] ^= 1;
	memset(own, 0, room);
	unsigned char *plain = malloc(len);
	assert_non_null(plain);
	assert_int_equal(rkv_get(session, "b", 1, plain, len, &item), 0);
	assert_int_equal(item.value_len, len);
	assert_memory_equal(plain, value, len);
	rkv_session_close(session);
	assert_int_equal(rkv_buffer_unregister(client, own + 3), RKV_OK);
	rkv_close(client);
	free(plain);
	free(value);
	free(own);
}

#define N_KEYS 2000u

/* As many at once as a session can have in flight, inserted, read, replaced, deleted. */
static void
many_at_once(void **state)
{
	static struct rkv_request request[N_KEYS];
	static uint32_t key[N_KEYS];
	static char buf[N_KEYS][200];
	struct rkv_client *client = open_client();
	struct rkv_session *session;
	const enum rkv_op ops[] = {RKV_OP_PUT, RKV_OP_GET, RKV_OP_PUT, RKV_OP_GET, RKV_OP_DELETE};
	(void)state;
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
	for (size_t round = 0; round < sizeof(ops) / sizeof(*ops); round++) {
		for (uint32_t i = 0; i < N_KEYS; i++) {
			key[i] = i;
			request[i] = (struct rkv_request){
				.op = ops[round],
				.key = &key[i],
				.key_len = sizeof(key[i]),
				.value = buf[i],
				.value_len = 8 + i % 150 + round,
				.buf = buf[i],
				.buf_len = sizeof(buf[i]),
			};
			if (ops[round] == RKV_OP_PUT)
				memset(buf[i], (int)(i + round), sizeof(buf[i]));
		}
		assert_int_equal(rkv_run(session, request, N_KEYS), 0);
		for (uint32_t i = 0; i < N_KEYS; i++) {
			assert_int_equal(request[i].status, RKV_OK);
			if (ops[round] != RKV_OP_GET)
				continue;
			assert_int_equal(request[i].item.value_len, 8 + i % 150 + round - 1);
			assert_int_equal((unsigned char)buf[i][7], (unsigned char)(i + round - 1));
		}
	}
	rkv_session_close(session);
	rkv_close(client);
}

/* The connection of a session breaks: the same session goes on over another one. */
static void
a_session_heals(void **state)
{
	struct rkv_client *client = open_client();
	struct rkv_session *session;
	struct rkv_stats_values stats;
	(void)state;
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
	assert_round_trip(session, "fruit", "apple");
	for (unsigned i = 1; i <= 3; i++) {
		fake.wr_status = IBV_WC_RETRY_EXC_ERR;
		fake.wr_fails_at = i;
		assert_round_trip(session, "fruit", "pear");
		assert_int_equal(rkv_stats(session, &stats), 0);
		assert_int_equal(stats.n_reconnects, i);
	}
	assert_int_equal(raw_stat(&admin, "sessions_joined"), 1);
	assert_int_equal(raw_stat(&admin, "peers"), 1);
	rkv_session_close(session);
	rkv_close(client);
}

static void
break_next(struct host *h)
{
	(void)h;
	fake.wr_status = IBV_WC_WR_FLUSH_ERR;
	fake.wr_fails_at = 1;
}

/* A chunk in the name of a session, by the server's own hand. */
static void
own_last_chunk(uint32_t slot)
{
	uint64_t off = layout_desc_off(&host.region.layout, host.region.layout.n_chunks - 1);
	char *word = (char *)pool_base(host.region.pool) + off;
	uint64_t desc = chunk_make(CHUNK_OWNED, 3, slot, 1);
	__atomic_store_n((uint64_t *)(void *)word, desc, __ATOMIC_SEQ_CST);
}

static unsigned
count_said(const char *part)
{
	unsigned n = 0;
	pthread_mutex_lock(&host.mutex);
	for (const char *at = host.lines; (at = strstr(at, part)); at += strlen(part))
		n++;
	pthread_mutex_unlock(&host.mutex);
	return n;
}

static void
try_loopback_now(struct host *h)
{
	h->region.loopback_ns = 0;
}

/*
 * The server's own endpoint breaks, and cannot be made again for a while. Each look at the chunks
 * wants it, and each try takes its time: after one the loop serves others.
 */
static void
the_loop_goes_on(void **state)
{
	static struct raw raw;
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	(void)state;
	raw_connect(&raw, &host.address, WIRE_ROLE_CLIENT);
	struct raw_session owner = raw_join(&raw, 0);
	own_last_chunk(owner.slot);
	assert_true(raw_stat_becomes(&admin, "chunks_owned", 1));
	unsigned n_before = count_said("cannot reach the server's own region");
	fake.on_connect.type = FAKE_SILENCE;
	host_call(&host, break_next);
	raw_close(&raw);
	while (count_said("cannot reach the server's own region") == n_before)
		assert_true(proc_pause(deadline));
	uint64_t stamp = raw_stat(&admin, "stamp_newest");
	while (raw_stat(&admin, "stamp_newest") < stamp + 8)
		assert_true(proc_pause(deadline));
	assert_int_equal(count_said("cannot reach the server's own region") - n_before, 1);
	fake.on_connect.type = FAKE_GOOD;
	host_call(&host, try_loopback_now);
	assert_true(raw_stat_becomes(&admin, "sessions_ending", 0));
	assert_true(raw_stat_becomes(&admin, "chunks_owned", 0));
}

/* So does the server's own endpoint: what a dead client owned is taken all the same. */
static void
the_loopback_heals(void **state)
{
	struct rkv_client *client = open_client();
	struct rkv_session *session;
	static struct raw raw;
	(void)state;
	raw_connect(&raw, &host.address, WIRE_ROLE_CLIENT);
	struct raw_session owner = raw_join(&raw, 0);
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
	assert_round_trip(session, "fruit", "apple");
	rkv_session_close(session);
	rkv_close(client);
	assert_true(raw_stat_becomes(&admin, "chunks_owned", 0));
	own_last_chunk(owner.slot);
	assert_true(raw_stat_becomes(&admin, "chunks_owned", 1));
	host_call(&host, break_next);
	raw_close(&raw);
	assert_true(raw_stat_becomes(&admin, "sessions_ending", 0));
	assert_true(raw_stat_becomes(&admin, "chunks_owned", 0));
	assert_int_equal(raw_stat(&admin, "chunks_orphan"), 1);
	assert_true(has_said(&host, "cannot take the chunk"));
}

/* ---- Which fabric ---- */

static void
end_region(struct host *h)
{
	region_destroy(&h->region);
	ports_close(&h->ports);
}

static void
assert_chosen(const char *const options[], int rc, const char *fabric, const char *sentence)
{
	static struct host h;
	assert_int_equal(open_region(&h, options), rc);
	if (fabric)
		assert_string_equal(region_fabric(&h.region), fabric);
	if (!has_said(&h, sentence))
		fail_msg("'%s' does not say '%s'", h.lines, sentence);
	end_region(&h);
}

#define OPTIONS(...)                                                                               \
	(const char *const[])                                                                      \
	{                                                                                          \
		"kv-server", "--listen", "127.0.0.1:0", "--pool-size", "1M", __VA_ARGS__, NULL     \
	}
#define NO_MORE "--log-level", "info"

static void
auto_takes_what_is_there(void **state)
{
	(void)state;
	fake_reset();
	assert_chosen(OPTIONS(NO_MORE), 0, "verbs", "fabric verbs: ");
	assert_chosen(OPTIONS("--fabric", "soft"), 0, "soft", "");
	fake.attr[0].atomic_cap = IBV_ATOMIC_NONE;
	assert_chosen(OPTIONS(NO_MORE), 0, "soft", "fabric soft");
	assert_chosen(OPTIONS("--fabric", "verbs"), ERR_INVALID, NULL, "atomic");
	fake_reset();
	fake.register_error = ENOMEM; /* RLIMIT_MEMLOCK */
	fake.register_free = 65536;
	assert_chosen(OPTIONS(NO_MORE), 0, "soft", "fabric soft");
	assert_chosen(OPTIONS("--fabric", "verbs"), ERR_NOMEM, NULL, "fabric verbs: ");
	fake_reset();
	fake.n_devices = 0;
	assert_chosen(OPTIONS(NO_MORE), 0, "soft", "no RDMA: ");
	assert_chosen(OPTIONS("--fabric", "verbs"), ERR_CONN, NULL, "no RDMA device");
	fake_reset();
}

/* Somebody who knows the port of old comes while the server is starting. */
static void
who_comes_too_early_is_turned_away(void **state)
{
	static struct host h;
	struct fab_offer offer;
	struct wire_cm_reject words = {0};
	const struct wire_cm_request request = {.magic = WIRE_CM_MAGIC, .version = WIRE_VERSION};
	int heard;
	(void)state;
	fake_reset();
	assert_int_equal(open_region(&h, OPTIONS("--fabric", "verbs")), 0);
	region_offer(&h.region, &offer);
	uint16_t port = (uint16_t)atoi(strrchr(offer.verbs_address, ':') + 1);
	struct rdma_cm_id *id = fake_stranger(port, &request, sizeof(request), 16);
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	while ((heard = fake_stranger_heard(id, &words, sizeof(words))) == -1) {
		verbs_server_dispatch(h.region.verbs);
		assert_true(proc_pause(deadline));
	}
	fake_stranger_close(id);
	end_region(&h);
	assert_int_equal(heard, RDMA_CM_EVENT_REJECTED);
	assert_non_null(strstr(words.reason, "not ready"));
	fake_reset();
}

static void
what_is_asked_for_must_be_there(void **state)
{
	(void)state;
	fake_reset();
	fake.n_devices = 2;
	fake.addresses[4] = (struct fake_address){"10.77.1.1", 1, IBV_GID_TYPE_ROCE_V2};
	assert_chosen(OPTIONS("--rdma-device", "fake1"), 0, "verbs", "fake1");
	assert_chosen(OPTIONS("--rdma-address", "10.77.1.1"), 0, "verbs", "fake1");
	assert_chosen(OPTIONS("--rdma-address", "10.77.0.1"), 0, "verbs", "fake0");
	assert_chosen(OPTIONS("--rdma-device", "mlx9_9"), ERR_CONN, NULL, "mlx9_9");
	assert_chosen(OPTIONS("--rdma-address", "10.9.9.9"), ERR_CONN, NULL, "10.9.9.9");
	fake_reset();
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(the_hello_offers_verbs_alone),
		TEST(a_token_admits_one_look),
		TEST(who_may_only_read_has_a_queue_pair_for_reads),
		TEST(a_token_is_of_one_region),
		TEST(a_session_is_connected_once_a_link),
		TEST(a_closed_control_connection_ends_everything),
		TEST(a_session_that_stalls_is_cut_off),
		TEST(a_client_stores_and_leaves),
		TEST(a_failure_is_told_with_its_cause),
		TEST(large_values_and_registered_buffers),
		TEST(many_at_once),
		TEST(a_session_heals),
		TEST(the_loopback_heals),
		TEST(the_loop_goes_on),
		cmocka_unit_test(auto_takes_what_is_there),
		cmocka_unit_test(who_comes_too_early_is_turned_away),
		cmocka_unit_test(what_is_asked_for_must_be_there),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
