/* SPDX-License-Identifier: BSD-2-Clause */
/* A server that says what a test wants: fake_server.h. */
#include "tests/proc/fake_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/err.h"
#include "common/net.h"

#define REGION_LEN (UINT64_C(4) << 20)
#define REGION_ID UINT64_C(0x7e57)
#define WAIT_S 30

/* ---- Waiting ---- */

/* Mutex held; fails the test when the time is over. */
static void
wait_changed(struct fake *fake, const struct timespec *until, const char *what)
{
	if (pthread_cond_timedwait(&fake->changed, &fake->mutex, until) == 0)
		return;
	pthread_mutex_unlock(&fake->mutex);
	fail_msg("waited in vain for %s", what);
}

static struct timespec
wait_until(void)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += WAIT_S;
	return until;
}

static const struct fake_record *
find_record(const struct fake *fake, enum wire_type type, unsigned n)
{
	for (unsigned i = 0; i < fake->n_records; i++)
		if (fake->record[i].type == type && --n == 0)
			return &fake->record[i];
	return NULL;
}

struct fake_record
fake_record(struct fake *fake, enum wire_type type, unsigned n)
{
	const struct fake_record *found;
	char what[64];
	struct timespec until = wait_until();
	snprintf(what, sizeof(what), "request %u of type %d", n, (int)type);
	pthread_mutex_lock(&fake->mutex);
	while (!(found = find_record(fake, type, n)))
		wait_changed(fake, &until, what);
	struct fake_record record = *found;
	pthread_mutex_unlock(&fake->mutex);
	return record;
}

unsigned
fake_count(struct fake *fake, enum wire_type type)
{
	unsigned n = 0;
	pthread_mutex_lock(&fake->mutex);
	for (unsigned i = 0; i < fake->n_records; i++)
		n += fake->record[i].type == type;
	pthread_mutex_unlock(&fake->mutex);
	return n;
}

void
fake_await_keepalives(struct fake *fake, uint64_t n)
{
	struct timespec until = wait_until();
	pthread_mutex_lock(&fake->mutex);
	uint64_t wanted = fake->n_keepalives + n;
	while (fake->n_keepalives < wanted)
		wait_changed(fake, &until, "a keepalive");
	pthread_mutex_unlock(&fake->mutex);
}

void
fake_await_connection(struct fake *fake, unsigned n)
{
	struct timespec until = wait_until();
	pthread_mutex_lock(&fake->mutex);
	while (fake->n_connections < n)
		wait_changed(fake, &until, "a connection");
	pthread_mutex_unlock(&fake->mutex);
}

/* ---- Answering (the thread, mutex held) ---- */

struct wire_header
fake_header(enum wire_type type, size_t len, uint32_t request)
{
	return (struct wire_header){
		.magic = WIRE_MAGIC,
		.version = WIRE_VERSION,
		.type = (uint16_t)type,
		.len = (uint32_t)len,
		.request = request,
	};
}

static void
put(struct fake *fake, const void *bytes, size_t len)
{
	/* A client that has gone is no failure here. */
	(void)!send(fake->fd, bytes, len, MSG_NOSIGNAL);
}

static void
welcome(struct fake *fake, const struct wire_header *to)
{
	struct wire_welcome w = {
		.header = fake_header(WIRE_WELCOME, sizeof(w), to->request),
		.sizes = {LAYOUT_VERSION, sizeof(struct layout_superblock), LAYOUT_BUCKET_LEN,
			  BLOCK_HEADER_LEN, LIMIT_GRANULE, LIMIT_TAG_BITS, LIMIT_WORD_STAMPS,
			  LIMIT_STAMP_MS},
		.stamp = fake->newest,
		.n_regions = 1,
		.access = WIRE_ACCESS_ADMIN,
		.region = {{.region_id = REGION_ID, .epoch = fake->epoch, .len = REGION_LEN}},
	};
	net_boot_id(w.boot_id);
	memcpy(w.token, fake->shm.offer.token, sizeof(w.token));
	memcpy(w.unix_path, fake->shm.offer.unix_path, sizeof(w.unix_path));
	if (fake->greet)
		fake->greet(fake, &w);
	else
		put(fake, &w, sizeof(w));
}

static void
refuse(struct fake *fake, const struct wire_header *to)
{
	struct wire_refused r = {
		.header = fake_header(WIRE_REFUSED, sizeof(r), to->request),
		.code = fake->refuse[to->type],
		.reason = "refused by the test",
	};
	put(fake, &r, sizeof(r));
}

static void
join(struct fake *fake, const struct wire_header *to)
{
	struct wire_joined j = {
		.header = fake_header(WIRE_JOINED, sizeof(j), to->request),
		.session_slot = fake->next_serial % FAKE_SESSIONS + 1,
		.serial = fake->next_serial,
		.stamp = fake->newest,
	};
	fake->next_serial++;
	put(fake, &j, sizeof(j));
}

static void
keepalive(struct fake *fake, const struct wire_keepalive *k)
{
	struct wire_stamp s = {
		.header = fake_header(WIRE_STAMP, sizeof(s), k->header.request),
		.newest = fake->newest,
		.g = fake->g,
		.flags = fake->flags,
	};
	fake->n_keepalives++;
	if (fake->keepalive_is_good && !fake->keepalive_is_good(fake->keepalive_arg, k))
		fake->n_bad_keepalives++;
	fake->n_announced = k->n;
	fake->n_draining = k->n_draining;
	for (uint32_t i = 0; i < k->n && i < FAKE_SESSIONS; i++)
		fake->announced[i] = k->session[i];
	if (!fake->mute[WIRE_KEEPALIVE])
		put(fake, &s, sizeof(s));
}

static void
answer(struct fake *fake, const struct wire_session *m)
{
	static const char text[] = "first 1\nsecond 2\n";
	struct wire_session s = *m;
	struct {
		struct wire_header header;
		char text[sizeof(text) - 1];
	} stats = {.header = fake_header(WIRE_STATS_TEXT, sizeof(stats.header) + sizeof(stats.text),
					 m->header.request)};
	struct wire_header pong = fake_header(WIRE_PONG, sizeof(pong), m->header.request);
	switch (m->header.type) {
	case WIRE_HELLO:
		welcome(fake, &m->header);
		break;
	case WIRE_JOIN:
		join(fake, &m->header);
		break;
	case WIRE_RELINK:
		s.header.type = WIRE_RELINKED;
		put(fake, &s, sizeof(s));
		break;
	case WIRE_RENEW:
		s.header.type = WIRE_RENEWED;
		s.serial = fake->next_serial++;
		put(fake, &s, sizeof(s));
		break;
	case WIRE_STATS:
		memcpy(stats.text, text, sizeof(stats.text));
		put(fake, &stats, stats.header.len);
		break;
	case WIRE_PING:
		put(fake, &pong, sizeof(pong));
		break;
	default:
		break;
	}
}

static void
note(struct fake *fake, const struct wire_session *m)
{
	const struct wire_join *join = (const void *)m;
	struct fake_record r = {
		.type = (enum wire_type)m->header.type,
		.connection = fake->n_connections,
		.request = m->header.request,
	};
	if (r.type == WIRE_JOIN) {
		r.serial = join->former_serial;
		r.attempt = join->attempt;
	}
	if (r.type == WIRE_RELINK || r.type == WIRE_RENEW || r.type == WIRE_LEAVE) {
		r.session_slot = m->session_slot;
		r.serial = m->serial;
	}
	if (fake->n_records < FAKE_RECORDS)
		fake->record[fake->n_records++] = r;
}

static void
handle(struct fake *fake, const void *message)
{
	const struct wire_session *m = message;
	pthread_mutex_lock(&fake->mutex);
	if (m->header.type == WIRE_KEEPALIVE) {
		keepalive(fake, message);
	} else if (m->header.type <= WIRE_PONG) {
		note(fake, m);
		if (fake->refuse[m->header.type])
			refuse(fake, &m->header);
		else if (!fake->mute[m->header.type])
			answer(fake, m);
	}
	pthread_cond_broadcast(&fake->changed);
	pthread_mutex_unlock(&fake->mutex);
}

/* ---- The thread ---- */

static bool
take(int fd, void *bytes, size_t len)
{
	return recv(fd, bytes, len, MSG_WAITALL) == (ssize_t)len;
}

static void
converse(struct fake *fake, int fd)
{
	static _Thread_local union {
		struct wire_header header;
		uint64_t align;
		unsigned char bytes[LIMIT_MESSAGE_MAX];
	} in;
	while (take(fd, &in.header, sizeof(in.header)) && in.header.magic == WIRE_MAGIC &&
	       in.header.len >= sizeof(in.header) && in.header.len <= sizeof(in) &&
	       take(fd, in.bytes + sizeof(in.header), in.header.len - sizeof(in.header)))
		handle(fake, &in);
}

static void *
serve(void *arg)
{
	struct fake *fake = arg;
	int fd;
	while ((fd = accept4(fake->listen_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		pthread_mutex_lock(&fake->mutex);
		fake->fd = fd;
		fake->n_connections++;
		bool stopping = fake->stopping;
		pthread_cond_broadcast(&fake->changed);
		pthread_mutex_unlock(&fake->mutex);
		if (!stopping)
			converse(fake, fd);
		pthread_mutex_lock(&fake->mutex);
		fake->fd = -1;
		close(fd);
		pthread_mutex_unlock(&fake->mutex);
	}
	return NULL;
}

void
fake_hang_up(struct fake *fake)
{
	pthread_mutex_lock(&fake->mutex);
	if (fake->fd >= 0)
		shutdown(fake->fd, SHUT_RDWR);
	pthread_mutex_unlock(&fake->mutex);
}

void
fake_send(struct fake *fake, const void *bytes, size_t len)
{
	pthread_mutex_lock(&fake->mutex);
	put(fake, bytes, len);
	pthread_mutex_unlock(&fake->mutex);
}

/* ---- Begin and end ---- */

static void
open_region(struct fake *fake)
{
	struct layout layout;
	assert_int_equal(shm_server_start(&fake->shm, REGION_LEN), 0);
	assert_true(layout_plan(&layout, REGION_LEN, 0, 0));
	struct layout_superblock *sb = pool_base(fake->shm.pool);
	sb->region_id = REGION_ID;
	sb->epoch = fake->epoch;
	layout_to_superblock(&layout, sb);
}

void
fake_init(struct fake *fake)
{
	*fake = (struct fake){
		.fd = -1,
		.epoch = 1000,
		.newest = 5000,
		.g = 4000,
		.next_serial = 100,
	};
}

void
fake_start(struct fake *fake)
{
	struct net_address bound, address = {.host = "127.0.0.1"};
	char reason[NET_REASON_MAX];
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&fake->changed, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_init(&fake->mutex, NULL);
	open_region(fake);
	assert_int_equal(net_listen(&address, 16, &fake->listen_fd, &bound, reason), 0);
	snprintf(fake->address, sizeof(fake->address), "127.0.0.1:%u", bound.port);
	assert_int_equal(pthread_create(&fake->thread, NULL, serve, fake), 0);
}

void
fake_restart(struct fake *fake)
{
	pthread_mutex_lock(&fake->mutex);
	shm_server_stop(&fake->shm);
	fake->epoch++;
	fake->newest = 10;
	fake->g = 5;
	fake->next_serial = 1;
	open_region(fake);
	if (fake->fd >= 0)
		shutdown(fake->fd, SHUT_RDWR);
	pthread_mutex_unlock(&fake->mutex);
}

void
fake_stop(struct fake *fake)
{
	pthread_mutex_lock(&fake->mutex);
	fake->stopping = true;
	if (fake->fd >= 0)
		shutdown(fake->fd, SHUT_RDWR);
	shutdown(fake->listen_fd, SHUT_RDWR);
	pthread_mutex_unlock(&fake->mutex);
	pthread_join(fake->thread, NULL);
	close(fake->listen_fd);
	shm_server_stop(&fake->shm);
	pthread_cond_destroy(&fake->changed);
	pthread_mutex_destroy(&fake->mutex);
}
