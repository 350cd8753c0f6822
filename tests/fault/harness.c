/* SPDX-License-Identifier: BSD-2-Clause */
/* See harness.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/control.h"
#include "common/err.h"
#include "proto/block.h"
#include "tests/fault/harness.h"

#define DEPTH 8u
#define PUMPS_MAX 2000000u /* more than any wait of a test needs */
#define TICK_NS 1000
#define START_NS (INT64_C(1000) * 1000000000)
#define FORMATTED_S UINT64_C(1700000000)

static struct world *current; /* the driver's functions know no other way */

/* ---- The fabric in front ---- */

static struct world_batch
record(struct world *w, const struct fab_op *ops, unsigned n, bool is_quiet)
{
	struct world_batch b = {.n = n, .is_quiet = is_quiet};
	memcpy(b.op, ops, n * sizeof(*ops));
	for (unsigned i = 0; i < n; i++) {
		uint64_t len = (uint64_t)ops[i].piece[0].len + ops[i].piece[1].len;
		if (ops[i].roff > w->layout.region_len || len > w->layout.region_len - ops[i].roff)
			w->n_out_of_range++;
	}
	if (!w->is_timeless)
		w->trace[w->n_trace++ % WORLD_TRACE_MAX] = b;
	return b;
}

static int
post(struct fab_endpoint *ep, const struct fab_op *ops, unsigned n, void *cookie)
{
	struct world *w = current;
	struct world_batch b = record(w, ops, n, false);
	if (w->before)
		w->before(w, &b);
	int rc = w->fault_driver->post(ep, ops, n, cookie);
	if (w->after)
		w->after(w, &b);
	return rc;
}

static int
post_quiet(struct fab_endpoint *ep, const struct fab_op *ops, unsigned n)
{
	struct world *w = current;
	struct world_batch b = record(w, ops, n, true);
	if (w->before)
		w->before(w, &b);
	return w->fault_driver->post_quiet(ep, ops, n);
}

static int64_t
now(struct fab *fab)
{
	(void)fab;
	int64_t tick = current->is_timeless ? 0 : TICK_NS;
	return atomic_fetch_add_explicit(&current->now_ns, tick, memory_order_relaxed) + tick;
}

static void
pass_time(int64_t until_ns)
{
	if (until_ns > atomic_load_explicit(&current->now_ns, memory_order_relaxed))
		atomic_store_explicit(&current->now_ns, until_ns, memory_order_relaxed);
}

static void
pause_until(struct fab *fab, int64_t until_ns)
{
	(void)fab;
	pass_time(until_ns);
}

static void
wait_until(struct fab_endpoint *ep, int64_t until_ns)
{
	(void)ep;
	pass_time(until_ns);
}

static uint64_t
draw(struct fab *fab)
{
	(void)fab;
	uint64_t x = current->seed;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return current->seed = x;
}

/* ---- The world ---- */

static const struct world_shape common_shape = {
	.n_groups = 8, .chunk_size = 8192, .n_chunks = 24, .cache_bytes = 65536, .has_spare = true};

static void
plan(struct world *w, const struct world_shape *shape)
{
	w->layout = (struct layout){
		.n_groups = shape->n_groups,
		.chunk_size = shape->chunk_size,
		.n_chunks = shape->n_chunks,
		.hash_seed = 42,
		.formatted_s = FORMATTED_S,
	};
	w->has_spare = shape->has_spare;
	w->layout.region_len = layout_round_up(layout_place(&w->layout), LAYOUT_PAGE);
}

void
world_format(struct world *w)
{
	struct layout_superblock *sb = (struct layout_superblock *)(void *)w->base;
	memset(w->base, 0, w->layout.region_len);
	sb->epoch = w->epoch;
	layout_to_superblock(&w->layout, sb);
	if (w->has_spare)
		*world_word(w, layout_desc_off(&w->layout, w->layout.n_chunks - 1)) =
			chunk_make(CHUNK_OWNED, 0, CHUNK_OWNER_MAX, 1);
}

static void
start_client(struct world *w, size_t cache_bytes)
{
	struct rkv_client *c = &w->client;
	rkv_options_init(&c->options);
	c->options.depth = DEPTH;
	c->options.cache_bytes = cache_bytes;
	w->not_forked = 1;
	c->not_forked = &w->not_forked;
	c->fab = w->fab;
	pthread_mutex_init(&c->mutex, NULL);
	pthread_cond_init(&c->changed, NULL);
	/* The region was formatted 100 seconds before a clock that says 0. */
	atomic_store(&c->wall_offset_ns, (int64_t)(FORMATTED_S + 100) * INT64_C(1000000000));
	world_stamp(w, WORLD_STAMP, WORLD_STAMP - LIMIT_WORD_STAMPS);
}

static void
hook_fabric(struct world *w)
{
	w->fault_driver = w->fab->driver;
	w->driver = *w->fault_driver;
	w->driver.post = post;
	w->driver.post_quiet = post_quiet;
	w->driver.now = now;
	w->driver.pause = pause_until;
	w->driver.wait = wait_until;
	w->driver.rand = draw;
	w->fab->driver = &w->driver;
}

struct world *
world_open(const struct world_shape *shape)
{
	struct world *w = test_calloc(1, sizeof(*w));
	struct fab *inner;
	current = w; /* a test that failed has left its own behind */
	w->seed = 88172645463325252;
	w->epoch = 1;
	w->now_ns = START_NS;
	plan(w, shape ? shape : &common_shape);
	assert_int_equal(shm_server_start(&w->server, w->layout.region_len), 0);
	w->base = pool_base(w->server.pool);
	world_format(w);
	assert_int_equal(shm_open_fabric(&inner), 0);
	assert_int_equal(fault_open(inner, &w->fab), 0);
	hook_fabric(w);
	assert_int_equal(fab_region_open(w->fab, &w->server.offer, conf_deadline_ns(), &w->region),
			 0);
	start_client(w, shape ? shape->cache_bytes : common_shape.cache_bytes);
	return w;
}

void
world_close(struct world *w)
{
	w->before = NULL;
	w->after = NULL;
	while (w->client.sessions)
		rkv_session_close(w->client.sessions);
	assert_int_equal(w->n_out_of_range, 0);
	assert_int_equal(fault_n_unregistered(w->fab), 0);
	fab_region_close(w->region);
	fab_close(w->fab);
	shm_server_stop(&w->server);
	pthread_cond_destroy(&w->client.changed);
	pthread_mutex_destroy(&w->client.mutex);
	current = NULL;
	test_free(w);
}

/* ---- In the place of client/control.c ---- */

/* The session is over: its chunks are anybody's, [DEAD]. */
static void
orphan(struct world *w, uint32_t session_slot)
{
	for (uint64_t i = 0; i < w->layout.n_chunks; i++) {
		uint64_t *desc = world_word(w, layout_desc_off(&w->layout, i));
		if (chunk_state(*desc) == CHUNK_OWNED && chunk_owner(*desc) == session_slot)
			*desc = chunk_next(*desc, CHUNK_ORPHAN, chunk_class(*desc), 0);
	}
}

/* What the server calls the session from now on. */
static void
name_session(struct world *w, struct rkv_session *s, struct link *link)
{
	bool is_new = s->port.former_serial == 0;
	if (!is_new && w->relink == RELINK_SAME) {
		link->serial = s->port.former_serial;
		link->session_slot = s->port.session_slot;
		return;
	}
	if (!is_new && w->relink == RELINK_SERIAL)
		orphan(w, s->port.session_slot);
	if (!is_new && w->relink == RELINK_EPOCH && s->port.former_epoch == w->epoch) {
		w->epoch++;
		world_format(w);
	}
	link->serial = ++w->n_serials;
	link->session_slot = w->n_serials;
	s->port.session_slot = link->session_slot;
	s->port.serial = link->serial;
	atomic_store(&s->port.renew, 0);
	atomic_store(&s->port.next_serial, 0);
}

static void
serve(struct world *w, struct rkv_session *s)
{
	struct link link = {
		.fab = w->fab,
		.layout = w->layout,
		.joined_stamp = atomic_load(&w->client.stamps.newest),
	};
	int rc = fab_connect(w->region, NULL, DEPTH + 16, conf_deadline_ns(), &link.ep);
	if (rc && s->port.former_serial)
		return; /* the session goes on waiting */
	if (rc) {
		s->port.refused = rc;
		atomic_store(&s->port.state, LINK_REFUSED);
		return;
	}
	name_session(w, s, &link);
	link.epoch = w->epoch;
	s->port.next_link = link;
	w->n_links++;
	atomic_store(&s->port.state, LINK_READY);
}

void
world_serve(struct world *w)
{
	if (w->is_down)
		return;
	for (struct rkv_session *s = w->client.sessions; s; s = s->next)
		if (atomic_load(&s->port.state) == LINK_WANTED)
			serve(w, s);
}

void
control_wake(struct rkv_client *client)
{
	struct world *w = (struct world *)(void *)((char *)client - offsetof(struct world, client));
	w->n_wakes++;
	world_serve(w);
}

void
control_forget(struct rkv_client *client, struct rkv_session *session)
{
	struct rkv_session **at = &client->sessions;
	while (*at != session)
		at = &(*at)->next;
	*at = session->next;
	client->n_sessions--;
}

void
control_leave(struct rkv_client *client, uint64_t connection, uint32_t session_slot,
	      uint32_t serial)
{
	struct world *w = (struct world *)(void *)((char *)client - offsetof(struct world, client));
	(void)connection;
	if (serial == 0)
		return;
	orphan(w, session_slot);
}

void
control_layout(struct rkv_client *client, struct layout *ret_layout)
{
	struct world *w = (struct world *)(void *)((char *)client - offsetof(struct world, client));
	*ret_layout = w->layout;
}

/* Links are served at once or not at all: nothing to wait for. */
int
control_await_link(struct rkv_client *client, struct rkv_session *session, int64_t deadline_ns)
{
	(void)client;
	(void)deadline_ns;
	return atomic_load(&session->port.state) == LINK_WANTED ? ERR_CONN : 0;
}

/* What follows belongs to rkv_open and to questions to a server, of which there is none here. */

/* ---- Sessions ---- */

int
world_session_try(struct world *w, struct rkv_session **ret_session)
{
	struct rkv_session *s;
	int rc = session_create(&w->client, &s);
	if (rc)
		return rc;
	s->next = w->client.sessions;
	w->client.sessions = s;
	w->client.n_sessions++;
	atomic_store(&s->port.state, LINK_WANTED);
	control_wake(&w->client);
	*ret_session = s;
	return 0;
}

struct rkv_session *
world_session(struct world *w)
{
	struct rkv_session *s;
	assert_int_equal(world_session_try(w, &s), 0);
	session_pump(s);
	assert_int_equal(atomic_load(&s->port.state), LINK_UP);
	return s;
}

/* ---- Stamps ---- */

void
world_stamp(struct world *w, uint64_t newest, uint64_t g)
{
	atomic_store(&w->client.stamps.newest, newest);
	atomic_store(&w->client.stamps.g, g);
}

void
world_answer(struct world *w)
{
	struct stamps *st = &w->client.stamps;
	atomic_store(&st->answered, atomic_fetch_add(&st->asked, 1) + 1);
}

void
world_turn(struct world *w)
{
	uint64_t newest = atomic_load(&w->client.stamps.newest);
	world_stamp(w, newest + 1, newest + 1);
	world_answer(w);
}

/* ---- The region ---- */

uint64_t *
world_word(struct world *w, uint64_t off)
{
	return (uint64_t *)(void *)(w->base + off);
}

uint8_t *
world_mark(struct world *w, uint64_t block_off)
{
	return w->base + layout_map_off(&w->layout, block_off);
}

bool
world_is_marked(struct world *w, uint64_t word)
{
	return *world_mark(w, slot_block_off(word)) == layout_mark(slot_tag(word));
}

static struct hash
hash_of(struct world *w, const void *key, uint32_t key_len)
{
	return hash_key(key, key_len, w->layout.hash_seed);
}

unsigned
world_slots(struct world *w, const void *key, uint32_t key_len,
	    uint64_t ret_off[2 * LAYOUT_COMBINED_SLOTS])
{
	struct hash h = hash_of(w, key, key_len);
	uint64_t main[2];
	unsigned n = 0;
	hash_main_buckets(&h, 2 * w->layout.n_groups, main);
	for (unsigned b = 0; b < 2; b++)
		for (uint32_t i = 0; i < LAYOUT_COMBINED_SLOTS; i++)
			ret_off[n++] = layout_combined_off(&w->layout, main[b]) +
				       layout_slot_in_combined(i);
	return n;
}

/* The header and key of a word's block, if it validates. */
static const struct block_header *
valid_block(struct world *w, uint64_t word)
{
	if (!layout_block_in_range(&w->layout, word))
		return NULL;
	const struct block_header *h =
		(const struct block_header *)(const void *)(w->base + slot_block_off(word));
	if (!block_lengths_fit(h, slot_read_len(word)) || block_tag(h) != slot_tag(word))
		return NULL;
	const unsigned char *key = (const unsigned char *)(h + 1);
	struct hash hash = hash_of(w, key, h->key_len);
	uint64_t digest = block_digest(&hash, key + h->key_len, h->value_len);
	uint64_t committed = slot_with_state(word, SLOT_COMMITTED);
	return h->checksum == block_checksum(committed, digest, h) ? h : NULL;
}

static bool
names(const struct block_header *h, const char *key)
{
	return h && h->key_len == strlen(key) && memcmp(h + 1, key, h->key_len) == 0;
}

static unsigned
count_slots(struct world *w, const char *key, enum slot_state state, uint64_t *ret_off)
{
	unsigned n = 0;
	for (uint64_t off = w->layout.index_off;
	     off < w->layout.index_off + w->layout.n_groups * LAYOUT_GROUP_LEN; off += 8) {
		uint64_t word = *world_word(w, off);
		if (word == 0 || slot_state(word) != state || !names(valid_block(w, word), key))
			continue;
		*ret_off = off;
		n++;
	}
	return n;
}

unsigned
world_count(struct world *w, const char *key, enum slot_state state)
{
	uint64_t off;
	return count_slots(w, key, state, &off);
}

uint64_t
world_find(struct world *w, const char *key)
{
	uint64_t off = 0;
	assert_true(count_slots(w, key, SLOT_COMMITTED, &off) <= 1);
	return off;
}

uint64_t
world_block(struct world *w, uint64_t block_off, uint32_t tag, const char *key, const char *value,
	    uint64_t prev)
{
	struct block_header *h = (struct block_header *)(void *)(w->base + block_off);
	uint32_t key_len = (uint32_t)strlen(key);
	struct hash hash = hash_of(w, key, key_len);
	*h = (struct block_header){
		.prev = prev,
		.version = UINT64_C(0xf00d) << 32 | ++w->seed >> 40,
		.value_len = (uint32_t)strlen(value),
		.key_len = (uint16_t)key_len,
		.tag_flags = (uint16_t)tag,
	};
	memcpy(h + 1, key, key_len);
	memcpy((char *)(h + 1) + key_len, value, h->value_len);
	uint64_t word = block_word(block_off, h, &hash);
	h->checksum = block_checksum(word, block_digest(&hash, value, h->value_len), h);
	*world_mark(w, block_off) = layout_mark(tag - 1);
	return word;
}

uint64_t
world_spare(struct world *w, unsigned i)
{
	uint64_t last = w->layout.n_chunks - 1;
	assert_true(w->has_spare);
	return layout_chunk_off(&w->layout, last) + (uint64_t)i * LIMIT_GRANULE;
}

static bool
is_slot_of(struct world *w, const struct block_header *h, uint64_t off)
{
	uint64_t slot[2 * LAYOUT_COMBINED_SLOTS];
	unsigned n = world_slots(w, h + 1, h->key_len, slot);
	for (unsigned i = 0; i < n; i++)
		if (slot[i] == off)
			return true;
	return false;
}

void
world_check(struct world *w)
{
	uint64_t end = w->layout.index_off + w->layout.n_groups * LAYOUT_GROUP_LEN;
	for (uint64_t off = w->layout.index_off; off < end; off += 8) {
		uint64_t word = *world_word(w, off);
		if (word == 0 || slot_state(word) != SLOT_COMMITTED)
			continue;
		const struct block_header *h = valid_block(w, word);
		assert_non_null(h);
		assert_true(is_slot_of(w, h, off));
		assert_false(world_is_marked(w, word));
		for (uint64_t other = off + 8; other < end; other += 8) {
			uint64_t second = *world_word(w, other);
			if (second == 0 || slot_state(second) != SLOT_COMMITTED)
				continue;
			const struct block_header *g = valid_block(w, second);
			assert_false(g && g->key_len == h->key_len &&
				     memcmp(g + 1, h + 1, h->key_len) == 0);
		}
	}
}

void
world_twin(struct world *w, const char *key, unsigned *number, char ret_key[32])
{
	struct hash h = hash_of(w, key, (uint32_t)strlen(key)), twin;
	do {
		int n = snprintf(ret_key, 32, "k%u", (*number)++);
		twin = hash_of(w, ret_key, (uint32_t)n);
	} while (hash_fingerprint(&twin) != hash_fingerprint(&h) || strcmp(ret_key, key) == 0);
}

/* ---- Operations ---- */

int
world_put(struct rkv_session *s, const char *key, const char *value)
{
	return rkv_put(s, key, strlen(key), value, strlen(value), NULL, NULL);
}

int
world_get(struct rkv_session *s, const char *key, char ret_value[64])
{
	struct rkv_item item;
	int rc = rkv_get(s, key, strlen(key), ret_value, 63, &item);
	ret_value[rc == 0 ? item.value_len : 0] = '\0';
	return rc;
}

void
world_expect(struct rkv_session *s, const char *key, const char *value)
{
	char got[64];
	int rc = world_get(s, key, got);
	assert_int_equal(rc, value ? 0 : RKV_NOT_FOUND);
	if (value)
		assert_string_equal(got, value);
}

void
world_expect_cold(struct world *w, const char *key, const char *value)
{
	struct rkv_session *s = world_session(w);
	world_expect(s, key, value);
	rkv_session_close(s);
}

void
world_pump_until_lost(struct rkv_session *s)
{
	for (unsigned i = 0; i < PUMPS_MAX && s->link.ep; i++)
		session_pump(s);
	assert_null(s->link.ep);
}

int
world_finish(struct rkv_session *s, struct rkv_request *request)
{
	struct rkv_request *done = NULL;
	unsigned n = 0;
	for (unsigned i = 0; i < PUMPS_MAX && n == 0; i++) {
		int rc = rkv_poll(s, &done, 1, 0);
		assert_true(rc >= 0);
		n = (unsigned)rc;
		if (n == 0)
			session_wait(s);
	}
	assert_int_equal(n, 1);
	assert_ptr_equal(done, request);
	assert_int_equal(rkv_poll(s, &done, 1, 0), 0);
	return request->status;
}

unsigned
world_n_batches(struct world *w, unsigned from)
{
	unsigned n = 0;
	for (unsigned i = from; i < w->n_trace; i++)
		n += !w->trace[i % WORLD_TRACE_MAX].is_quiet;
	return n;
}

bool
world_swaps_to(const struct world_batch *b, enum slot_state state, uint64_t *ret_off)
{
	uint64_t index = current->layout.index_off;
	uint64_t end = index + current->layout.n_groups * LAYOUT_GROUP_LEN;
	for (unsigned i = 0; i < b->n; i++) {
		if (b->op[i].kind != FAB_CAS || b->op[i].roff < index || b->op[i].roff >= end ||
		    slot_state(b->op[i].swap) != state)
			continue;
		*ret_off = b->op[i].roff;
		return true;
	}
	return false;
}
