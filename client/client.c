/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The client as the application sees it: opening and closing, the list of sessions, registered
 * memory, limits and counters. Operations are elsewhere (client/op.c, client/session.c).
 */
#include "client/client.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/control.h"
#include "client/identity.h"
#include "client/session.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/net.h"
#include "proto/wire.h"

/* Nothing is translated on the way to the caller. */
static_assert(RKV_NOT_FOUND == (int)ERR_NOT_FOUND, "err.h and rkv.h");
static_assert(RKV_EXISTS == (int)ERR_EXISTS, "err.h and rkv.h");
static_assert(RKV_MISMATCH == (int)ERR_MISMATCH, "err.h and rkv.h");
static_assert(RKV_AGAIN == (int)ERR_AGAIN, "err.h and rkv.h");
static_assert(RKV_E_TIMEOUT == (int)ERR_TIMEOUT, "err.h and rkv.h");
static_assert(RKV_E_MAYBE == (int)ERR_MAYBE, "err.h and rkv.h");
static_assert(RKV_E_NO_SPACE == (int)ERR_NO_SPACE, "err.h and rkv.h");
static_assert(RKV_E_INDEX_FULL == (int)ERR_INDEX_FULL, "err.h and rkv.h");
static_assert(RKV_E_TOO_BIG == (int)ERR_TOO_BIG, "err.h and rkv.h");
static_assert(RKV_E_TOO_SMALL == (int)ERR_TOO_SMALL, "err.h and rkv.h");
static_assert(RKV_E_INVALID == (int)ERR_INVALID, "err.h and rkv.h");
static_assert(RKV_E_CONN == (int)ERR_CONN, "err.h and rkv.h");
static_assert(RKV_E_VERSION == (int)ERR_VERSION, "err.h and rkv.h");
static_assert(RKV_E_PERM == (int)ERR_PERM, "err.h and rkv.h");
static_assert(RKV_E_CORRUPT == (int)ERR_CORRUPT, "err.h and rkv.h");
static_assert(RKV_E_NOMEM == (int)ERR_NOMEM, "err.h and rkv.h");
static_assert((int)RKV_LOG_ERROR == LOG_ERROR && (int)RKV_LOG_WARN == LOG_WARN &&
		      (int)RKV_LOG_INFO == LOG_INFO && (int)RKV_LOG_DEBUG == LOG_DEBUG,
	      "log.h and rkv.h");

#define BYTES_MAX (UINT64_C(1) << 40) /* of a session's cache or arena: more is a mistake */

#define STRING_OF(x) #x
#define VERSION_TEXT(major, minor, patch) STRING_OF(major) "." STRING_OF(minor) "." STRING_OF(patch)

const char *
rkv_strerror(int code)
{
	return err_str(code);
}

const char *
rkv_version(void)
{
	return VERSION_TEXT(RKV_VERSION_MAJOR, RKV_VERSION_MINOR, RKV_VERSION_PATCH);
}

/* ---- Options ---- */

void
rkv_options_init(struct rkv_options *options)
{
	if (!options)
		return;
	*options = (struct rkv_options){
		.connect_timeout_ms = LIMIT_CONNECT_TIMEOUT_MS,
		.op_timeout_ms = LIMIT_OP_TIMEOUT_MS,
		.depth = LIMIT_DEPTH_DEFAULT,
		.log_level = RKV_LOG_WARN,
		.cache_bytes = LIMIT_CACHE_BYTES,
	};
}

static int
check_options(const struct rkv_client *client)
{
	const struct rkv_options *o = &client->options;
	const struct {
		const char *name;
		uint64_t value, min, max;
	} option[] = {
		{"connect_timeout_ms", o->connect_timeout_ms, 1, UINT32_MAX},
		{"op_timeout_ms", o->op_timeout_ms, 1, UINT32_MAX},
		{"depth", o->depth, 1, LIMIT_DEPTH_MAX},
		{"log_level", o->log_level, RKV_LOG_ERROR, RKV_LOG_DEBUG},
		{"strict_insert", o->strict_insert, 0, 1},
		{"fabric", o->fabric, RKV_FABRIC_AUTO, RKV_FABRIC_TCP},
		{"cache_bytes", o->cache_bytes, 0, BYTES_MAX},
		{"arena_bytes", o->arena_bytes, 0, BYTES_MAX},
	};
	for (size_t i = 0; i < sizeof(option) / sizeof(option[0]); i++) {
		if (option[i].value >= option[i].min && option[i].value <= option[i].max)
			continue;
		log_line(&client->log, LOG_ERROR,
			 "option %s is %" PRIu64 ", but must be from %" PRIu64 " to %" PRIu64,
			 option[i].name, option[i].value, option[i].min, option[i].max);
		return RKV_E_INVALID;
	}
	return 0;
}

static int
parse_servers(struct rkv_client *client, const char *servers)
{
	char reason[NET_REASON_MAX];
	unsigned n;
	int rc = net_parse(servers, WIRE_DEFAULT_PORT, &client->server, 1, &n, reason);
	if (rc) {
		log_line(&client->log, LOG_ERROR, "list of servers: %s", reason);
		return rc;
	}
	if (n > 1)
		log_line(&client->log, LOG_ERROR,
			 "list of servers: %u are given, but this version uses one server", n);
	else if (client->server.port == 0)
		log_line(&client->log, LOG_ERROR, "list of servers: nothing listens on port 0");
	if (n > 1 || client->server.port == 0)
		return RKV_E_INVALID;
	net_format(&client->server, client->server_text);
	return 0;
}

/* ---- Opening and closing ---- */

/* A page that reads 1 here and 0 in a forked child. */
static int
map_not_forked(struct rkv_client *client)
{
	size_t len = (size_t)sysconf(_SC_PAGESIZE);
	uint32_t *page =
		mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return RKV_E_NOMEM;
	if (madvise(page, len, MADV_WIPEONFORK)) {
		log_line(&client->log, LOG_ERROR,
			 "this kernel has no MADV_WIPEONFORK (Linux 4.14): %s", strerror(errno));
		munmap(page, len);
		return RKV_E_PERM;
	}
	*page = 1;
	client->not_forked = page;
	return 0;
}

static void
unmap_not_forked(struct rkv_client *client)
{
	if (client->not_forked)
		munmap((void *)(uintptr_t)client->not_forked, (size_t)sysconf(_SC_PAGESIZE));
}

/* changed runs by CLOCK_MONOTONIC: no wait is stretched when somebody sets the time. */
static void
init_changed(struct rkv_client *client)
{
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&client->changed, &attr);
	pthread_condattr_destroy(&attr);
}

static int64_t
connect_deadline(const struct rkv_client *client)
{
	return clock_now_ns() + client->options.connect_timeout_ms * CLOCK_NS_PER_MS;
}

static void free_buffers(struct rkv_client *client);

/* Accepts a half-built client without sessions. */
static void
client_destroy(struct rkv_client *client)
{
	free_buffers(client);
	control_stop(client);
	unmap_not_forked(client);
	identity_free(&client->options);
	pthread_cond_destroy(&client->changed);
	pthread_mutex_destroy(&client->mutex);
	free(client);
}

int
rkv_open(const char *servers, const struct rkv_options *options, struct rkv_client **ret_client)
{
	char reason[NET_REASON_MAX];
	if (!servers || !ret_client)
		return RKV_E_INVALID;
	struct rkv_client *client = calloc(1, sizeof(*client));
	if (!client)
		return RKV_E_NOMEM;
	if (options)
		client->options = *options;
	else
		rkv_options_init(&client->options);
	client->log = (struct log){
		.sink = client->options.log,
		.arg = client->options.log_arg,
		.max_level = (int)client->options.log_level,
	};
	pthread_mutex_init(&client->mutex, NULL);
	init_changed(client);
	int64_t deadline_ns = connect_deadline(client);
	int rc = identity_copy(&client->options, reason);
	if (rc)
		log_line(&client->log, LOG_ERROR, "%s", reason);
	if (!rc)
		rc = check_options(client);
	if (!rc)
		rc = parse_servers(client, servers);
	if (!rc)
		rc = map_not_forked(client);
	if (!rc)
		rc = control_start(client, deadline_ns);
	if (rc) {
		client_destroy(client);
		return rc;
	}
	*ret_client = client;
	return RKV_OK;
}

void
rkv_close(struct rkv_client *client)
{
	if (!client || client_is_forked(client))
		return;
	while (client->sessions)
		rkv_session_close(client->sessions);
	client_destroy(client);
}

bool
client_wait(struct rkv_client *client, int64_t deadline_ns)
{
	struct timespec now;
	int64_t left_ns = deadline_ns - clock_now_ns();
	if (left_ns <= 0)
		return false;
	clock_gettime(CLOCK_MONOTONIC, &now);
	struct timespec until = clock_timespec(now.tv_sec * CLOCK_NS_PER_S + now.tv_nsec + left_ns);
	pthread_cond_timedwait(&client->changed, &client->mutex, &until);
	return true;
}

/* ---- Sessions ---- */

/* Puts it in the list, wanting a link. */
static int
list_session(struct rkv_client *client, struct rkv_session *session)
{
	int rc = RKV_E_NOMEM;
	pthread_mutex_lock(&client->mutex);
	if (client->n_sessions < LIMIT_SESSIONS) {
		session->next = client->sessions;
		client->sessions = session;
		client->n_sessions++;
		atomic_store_explicit(&session->port.state, LINK_WANTED, memory_order_release);
		rc = 0;
	}
	pthread_mutex_unlock(&client->mutex);
	if (rc)
		log_line(&client->log, LOG_ERROR, "a client cannot have more than %u sessions",
			 LIMIT_SESSIONS);
	return rc;
}

/* Pumps until the session has a link, or it is certain that it gets none. */
static int
await_link(struct rkv_session *session, int64_t deadline_ns)
{
	struct rkv_client *client = session->client;
	for (;;) {
		session_pump(session);
		int state = atomic_load_explicit(&session->port.state, memory_order_acquire);
		if (state == LINK_UP)
			return 0;
		if (state == LINK_REFUSED)
			return session->port.refused;
		int rc = control_await_link(client, session, deadline_ns);
		if (rc) {
			log_line(&client->log, LOG_ERROR, "no session within %" PRIu32 " ms: %s",
				 client->options.connect_timeout_ms,
				 rc == RKV_E_CONN ? "there is no connection to the server"
						  : "the server does not answer");
			return rc;
		}
	}
}

int
rkv_session_open(struct rkv_client *client, struct rkv_session **ret_session)
{
	struct rkv_session *session;
	if (!client || !ret_session || client_is_forked(client))
		return RKV_E_INVALID;
	int64_t deadline_ns = connect_deadline(client);
	int rc = session_create(client, &session);
	if (rc)
		return rc;
	rc = list_session(client, session);
	if (rc) {
		session_destroy(session);
		return rc;
	}
	control_wake(client);
	rc = await_link(session, deadline_ns);
	if (rc) {
		rkv_session_close(session);
		return rc;
	}
	*ret_session = session;
	return RKV_OK;
}

void
rkv_session_close(struct rkv_session *session)
{
	if (!session || client_is_forked(session->client))
		return;
	struct rkv_client *client = session->client;
	control_forget(client, session);
	uint64_t connection = session->port.connection;
	uint32_t session_slot = session->port.session_slot, serial = session->port.serial;
	session_destroy(session);
	control_leave(client, connection, session_slot, serial);
}

/* ---- Registered memory ---- */

/* The list grows by replacement: sessions read it without a lock, so what was read stays. */
static struct buffer_list *
copy_buffers(struct rkv_client *client, size_t n_more)
{
	struct buffer_list *old = atomic_load_explicit(&client->buffers, memory_order_relaxed);
	size_t n = old ? old->n : 0;
	struct buffer_list *list = malloc(sizeof(*list) + (n + n_more) * sizeof(list->buffer[0]));
	if (!list)
		return NULL;
	list->older = old;
	list->n = n;
	if (n)
		memcpy(list->buffer, old->buffer, n * sizeof(list->buffer[0]));
	return list;
}

static void
free_buffers(struct rkv_client *client)
{
	struct buffer_list *list = atomic_load_explicit(&client->buffers, memory_order_relaxed);
	for (size_t i = 0; list && i < list->n; i++)
		if (!client->fab->driver->reaches_all_memory)
			fab_deregister(client->fab, list->buffer[i].key);
	while (list) {
		struct buffer_list *older = list->older;
		free(list);
		list = older;
	}
}

static bool
overlaps(const struct buffer_list *list, const unsigned char *base, size_t len)
{
	for (size_t i = 0; i < list->n; i++)
		if (base < list->buffer[i].base + list->buffer[i].len &&
		    list->buffer[i].base < base + len)
			return true;
	return false;
}

/* Mutex held. */
static int
register_buffer(struct rkv_client *client, unsigned char *base, size_t len)
{
	struct buffer_list *list = copy_buffers(client, 1);
	uint32_t key = 0;
	int rc = list ? 0 : RKV_E_NOMEM;
	if (!rc && overlaps(list, base, len))
		rc = RKV_E_INVALID;
	if (!rc && !client->fab->driver->reaches_all_memory)
		rc = fab_register(client->fab, base, len, &key);
	if (rc) {
		free(list);
		return rc;
	}
	list->buffer[list->n++] = (struct buffer){base, len, key};
	atomic_store_explicit(&client->buffers, list, memory_order_release);
	return RKV_OK;
}

int
rkv_buffer_register(struct rkv_client *client, void *buf, size_t len)
{
	if (!client || client_is_forked(client) || !buf || len == 0 ||
	    len > UINTPTR_MAX - (uintptr_t)buf)
		return RKV_E_INVALID;
	pthread_mutex_lock(&client->mutex);
	int rc = register_buffer(client, buf, len);
	pthread_mutex_unlock(&client->mutex);
	return rc;
}

/* Mutex held. */
static int
unregister_buffer(struct rkv_client *client, const void *base)
{
	struct buffer_list *list = copy_buffers(client, 0);
	size_t i = 0;
	if (!list)
		return RKV_E_NOMEM;
	while (i < list->n && list->buffer[i].base != base)
		i++;
	if (i == list->n) {
		free(list);
		return RKV_E_INVALID;
	}
	uint32_t key = list->buffer[i].key;
	list->buffer[i] = list->buffer[--list->n];
	atomic_store_explicit(&client->buffers, list, memory_order_release);
	if (!client->fab->driver->reaches_all_memory)
		fab_deregister(client->fab, key);
	return RKV_OK;
}

int
rkv_buffer_unregister(struct rkv_client *client, void *buf)
{
	if (!client || client_is_forked(client) || !buf)
		return RKV_E_INVALID;
	pthread_mutex_lock(&client->mutex);
	int rc = unregister_buffer(client, buf);
	pthread_mutex_unlock(&client->mutex);
	return rc;
}

bool
client_find_buffer(struct rkv_client *client, const void *addr, size_t len, uint32_t *ret_key)
{
	const struct buffer_list *list =
		atomic_load_explicit(&client->buffers, memory_order_acquire);
	const unsigned char *at = addr;
	for (size_t i = 0; list && i < list->n; i++) {
		const struct buffer *b = &list->buffer[i];
		if (at < b->base || (size_t)(at - b->base) > b->len ||
		    len > b->len - (size_t)(at - b->base))
			continue;
		*ret_key = b->key;
		return true;
	}
	return false;
}

/*
 * What is READ for a value, less header and key, is largest just where a longer key needs one more
 * granule; the keys' lengths span few of these.
 */
size_t
rkv_buffer_size(size_t value_len)
{
	if (value_len > LIMIT_CHUNK_MAX - block_len(1, 0))
		return SIZE_MAX; /* no region holds such a value */
	uint64_t first = block_granules(block_len(1, value_len));
	uint64_t last = block_granules(block_len(LIMIT_KEY_MAX, value_len));
	uint64_t size = 0;
	for (uint64_t g = first; g <= last && g <= LIMIT_CHUNK_MAX / LIMIT_GRANULE; g++) {
		uint64_t shortest_key = 1;
		if (g > first)
			shortest_key = (g - 1) * LIMIT_GRANULE + 1 - block_len(0, value_len);
		uint64_t read_len =
			(uint64_t)slot_size_granules(slot_size_code((uint32_t)g)) * LIMIT_GRANULE;
		if (read_len - BLOCK_HEADER_LEN - shortest_key > size)
			size = read_len - BLOCK_HEADER_LEN - shortest_key;
	}
	return size;
}

/* ---- Limits, counters, questions to the server ---- */

int
rkv_limits(struct rkv_client *client, struct rkv_limit_values *ret_limits)
{
	struct layout layout;
	if (!client || !ret_limits || client_is_forked(client))
		return RKV_E_INVALID;
	control_layout(client, &layout);
	*ret_limits = (struct rkv_limit_values){
		.key_len_min = 1,
		.key_len_max = LIMIT_KEY_MAX,
		.block_len_max = layout.chunk_size,
		.value_len_max = layout.chunk_size - block_len(LIMIT_KEY_MAX, 0),
		.ttl_max_s = LIMIT_TTL_MAX_S,
		.depth_max = LIMIT_DEPTH_MAX,
	};
	return RKV_OK;
}

/* Keeps the control thread off; false: the session is busy, and so ours already. */
static bool
take_session(struct rkv_session *session)
{
	while (!session_take(session)) {
		uint64_t word =
			atomic_load_explicit(&session->port.start_word, memory_order_relaxed);
		if (start_state(word) == START_BUSY)
			return false;
		fab_pause(session->client->fab, 0);
	}
	return true;
}

int
rkv_stats(struct rkv_session *session, struct rkv_stats_values *ret_stats)
{
	if (!session || !ret_stats || client_is_forked(session->client))
		return RKV_E_INVALID;
	bool taken = take_session(session);
	*ret_stats = session->stats;
	ret_stats->n_chunks_owned = session->alloc.n_own;
	ret_stats->n_blocks_resting = session->alloc.n_resting;
	if (taken)
		session_release(session);
	return RKV_OK;
}

int
rkv_server_stats(struct rkv_client *client, char *buf, size_t buf_len, size_t *ret_len)
{
	if (!client || client_is_forked(client) || (!buf && buf_len > 0))
		return RKV_E_INVALID;
	return control_stats(client, buf, buf_len, ret_len, connect_deadline(client));
}

/* ---- Snapshots ---- */

static_assert(RKV_SNAPSHOT_NONE == (int)WIRE_SNAPSHOT_NONE, "phases are those of the wire");
static_assert(RKV_SNAPSHOT_RUNNING == (int)WIRE_SNAPSHOT_RUNNING, "likewise");
static_assert(RKV_SNAPSHOT_DONE == (int)WIRE_SNAPSHOT_DONE, "likewise");
static_assert(RKV_SNAPSHOT_FAILED == (int)WIRE_SNAPSHOT_FAILED, "likewise");

/* A code that came over the wire, if it is one that a server may answer with. */
static int
snapshot_code(int32_t code)
{
	switch (code) {
	case RKV_OK:
	case RKV_NOT_FOUND:
	case RKV_AGAIN:
	case RKV_E_INVALID:
	case RKV_E_PERM:
	case RKV_E_NOMEM:
	case RKV_E_CONN:
		return code;
	default:
		return RKV_E_CORRUPT;
	}
}

static int
ask_snapshot(struct rkv_client *client, const char *name, uint32_t number, struct rkv_snapshot *ret)
{
	struct wire_snapshot_state state;
	int rc = control_snapshot(client, name, number, &state, connect_deadline(client));
	if (rc)
		return rc;
	*ret = (struct rkv_snapshot){
		.number = state.number,
		.phase = state.phase <= WIRE_SNAPSHOT_FAILED ? (int)state.phase : RKV_SNAPSHOT_NONE,
		.permille = state.permille,
		.n_records = state.n_records,
		.n_bytes = state.n_bytes,
		.n_unreadable = state.n_unreadable,
		.elapsed_ms = state.n_ms,
	};
	net_copy_text(ret->name, sizeof(ret->name), state.name, sizeof(state.name));
	net_copy_text(ret->reason, sizeof(ret->reason), state.reason, sizeof(state.reason));
	return snapshot_code(state.code);
}

int
rkv_snapshot_begin(struct rkv_client *client, const char *name, struct rkv_snapshot *ret_snapshot)
{
	if (!client || client_is_forked(client) || !name || !*name || !ret_snapshot)
		return RKV_E_INVALID;
	return ask_snapshot(client, name, 0, ret_snapshot);
}

int
rkv_snapshot_look(struct rkv_client *client, uint32_t number, struct rkv_snapshot *ret_snapshot)
{
	if (!client || client_is_forked(client) || !ret_snapshot)
		return RKV_E_INVALID;
	return ask_snapshot(client, "", number, ret_snapshot);
}

const char *
rkv_fabric(const struct rkv_client *client)
{
	if (!client || client_is_forked(client))
		return NULL;
	return client->fab->driver->name;
}

int
rkv_server_fsck(struct rkv_client *client, char *buf, size_t buf_len, size_t *ret_len,
		uint32_t timeout_ms)
{
	if (!client || client_is_forked(client) || (!buf && buf_len > 0))
		return RKV_E_INVALID;
	return control_fsck(client, buf, buf_len, ret_len,
			    clock_now_ns() + timeout_ms * CLOCK_NS_PER_MS);
}

int
rkv_ping(struct rkv_client *client)
{
	if (!client || client_is_forked(client))
		return RKV_E_INVALID;
	return control_ping(client, connect_deadline(client));
}
