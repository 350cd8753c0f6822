/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the clients do: operations of every kind on few keys, blocking and in flight together, with
 * pauses that let cached words grow old, and sessions that are closed and opened again. Values say
 * which operation wrote them, and how long they are.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/store_internal.h"

#define POLLS_MAX 4000000u
#define WRITES_LEFT 12u /* of a serial, where it is to be spent soon */

/* ---- Values ---- */

static void
fill_value(unsigned char *value, uint32_t len, uint64_t id)
{
	for (uint32_t i = 0; i < len; i++)
		value[i] = (unsigned char)(id * 31 + i);
	memcpy(value, &id, sizeof(id));
}

/* The id of a value that was read; torn or foreign ones fail the run. */
static uint64_t
read_value(struct world *w, const unsigned char *value, size_t len)
{
	uint64_t id = 0;
	if (len >= sizeof(id))
		memcpy(&id, value, sizeof(id));
	if (id == 0 || id > w->n_records || w->record[id - 1].value_len != len) {
		sim_fail(w->sim, "a value was read that nobody wrote: id %" PRIx64 ", %zu bytes",
			 id, len);
		return 0;
	}
	for (uint32_t i = sizeof(id); i < len; i++)
		if (value[i] != (unsigned char)(id * 31 + i)) {
			sim_fail(w->sim, "a torn value was read: byte %u of value %" PRIu64, i, id);
			return 0;
		}
	return id;
}

static uint32_t
draw_value_len(struct peer *p)
{
	uint64_t min = p->w->config->value_min;
	uint64_t max = p->w->config->value_max;
	uint64_t bound = store_chance(&p->random, 70) && min <= 80 && max > 80 ? 80 : max;
	return (uint32_t)(min + store_random(&p->random, bound - min + 1));
}

/* ---- One operation ---- */

static enum rkv_op
draw_kind(struct peer *p)
{
	static const enum rkv_op kinds[] = {RKV_OP_GET,    RKV_OP_GET, RKV_OP_GET,    RKV_OP_PUT,
					    RKV_OP_PUT,    RKV_OP_PUT, RKV_OP_DELETE, RKV_OP_ADD,
					    RKV_OP_DELETE, RKV_OP_ADD, RKV_OP_CAS,    RKV_OP_TOUCH,
					    RKV_OP_REPLACE};
	return kinds[store_random(&p->random, sizeof(kinds) / sizeof(kinds[0]))];
}

static struct slot_of_memory *
free_memory(struct peer *p)
{
	for (unsigned i = 0; i < p->w->config->depth; i++)
		if (!p->memory[i].record)
			return &p->memory[i];
	return NULL;
}

static bool
writes_value(enum rkv_op kind)
{
	return kind == RKV_OP_PUT || kind == RKV_OP_ADD || kind == RKV_OP_REPLACE ||
	       kind == RKV_OP_CAS;
}

/* The version that a compare-and-swap expects: mostly one that was there. */
static uint64_t
draw_version(struct peer *p, unsigned key)
{
	if (p->version[key] && store_chance(&p->random, 85))
		return p->version[key];
	return UINT64_C(0xdead) << 32 | (1 + store_random(&p->random, 1000));
}

/* Half a move of the clocks away from when it might expire: time itself is too short for that. */
static uint32_t
draw_ttl_s(struct peer *p)
{
	return STORE_CLOCK_S / 2 + STORE_CLOCK_S * (uint32_t)store_random(&p->random, 3);
}

static struct record *
begin_kind(struct peer *p, enum rkv_op kind, unsigned key)
{
	struct world *w = p->w;
	struct slot_of_memory *memory = free_memory(p);
	struct record *r = &w->record[w->n_records++];
	uint64_t id = w->n_records;
	*r = (struct record){.peer = p};
	r->lin = (struct lin_op){.key = key, .client = p->number, .kind = (uint8_t)kind};
	r->request = (struct rkv_request){
		.op = kind, .key = w->key[key].bytes, .key_len = w->key[key].len, .user = r};
	memory->record = r;
	if (writes_value(kind)) {
		r->value_len = draw_value_len(p);
		fill_value(memory->value, r->value_len, id);
		r->lin.value = id;
		r->request.value = memory->value;
		r->request.value_len = r->value_len;
	}
	if (kind == RKV_OP_CAS)
		r->lin.expected = r->request.version = draw_version(p, key);
	if (kind != RKV_OP_GET && store_chance(&p->random, 20))
		r->request.options.ttl_s = w->config->expires ? draw_ttl_s(p) : 100000;
	if (kind == RKV_OP_GET) {
		r->request.buf = memory->buf;
		r->request.buf_len = store_chance(&p->random, 95) ? w->layout.chunk_size : 4;
	}
	watch_begin(r);
	return r;
}

static struct record *
begin(struct peer *p)
{
	unsigned n_keys = p->w->config->n_keys;
	/* The first keys are asked for more often. */
	unsigned bound = 1 + (unsigned)store_random(&p->random, n_keys);
	return begin_kind(p, draw_kind(p), (unsigned)store_random(&p->random, bound));
}

static void
end(struct record *r, int status)
{
	struct peer *p = r->peer;
	struct world *w = p->w;
	if (r->request.op == RKV_OP_GET && status == 0)
		r->lin.value = read_value(w, r->request.buf, r->request.item.value_len);
	if (status == 0 && r->request.op != RKV_OP_DELETE) {
		r->lin.version = r->request.item.version;
		p->version[r->lin.key] = r->lin.version;
	}
	watch_end(r, status);
	for (unsigned i = 0; i < DEPTH_MAX; i++)
		if (p->memory[i].record == r)
			p->memory[i].record = NULL;
}

static void
call(struct peer *p)
{
	struct record *r = begin(p);
	int status = r->request.op == RKV_OP_GET ? session_call_get(p->session, &r->request)
						 : session_call(p->session, &r->request);
	end(r, status);
}

/* ---- Operations in flight ---- */

static bool
submit(struct peer *p)
{
	struct record *r = begin(p);
	if (rkv_submit(p->session, &r->request) == 0)
		return true;
	sim_fail(p->w->sim, "a request was not accepted");
	return false;
}

/* Polls until at most n are in flight. */
static void
reap(struct peer *p, unsigned n)
{
	for (unsigned polls = 0; p->session->n_in_flight > n || p->session->completed; polls++) {
		struct rkv_request *done[DEPTH_MAX];
		int got = rkv_poll(p->session, done, (int)DEPTH_MAX, 1);
		for (int i = 0; i < got; i++)
			end(done[i]->user, done[i]->status);
		if (got < 0 || polls > POLLS_MAX)
			sim_fail(p->w->sim, "a session cannot be polled: %d", got);
	}
}

/* ---- Sessions ---- */

static bool
open_session(struct peer *p)
{
	struct world *w = p->w;
	struct rkv_session *s;
	if (session_create(&p->client, &s) != 0)
		return false;
	atomic_store(&s->port.state, LINK_WANTED);
	p->session = s;
	while (atomic_load(&s->port.state) != LINK_UP) {
		session_pump(s);
		sim_sleep(w->sim, sim_now(w->sim) + w->config->stamp_ns / 4);
	}
	if (store_chance(&p->random, 15))
		s->write_counter = UINT32_MAX - WRITES_LEFT;
	return true;
}

static void
count_session(struct peer *p)
{
	const struct rkv_stats_values *stats = &p->session->stats;
	struct world *w = p->w;
	w->counts->event[STORE_ADOPT] += stats->n_chunks_adopted;
	w->counts->event[STORE_GIVE_BACK] += stats->n_chunks_returned;
	for (unsigned i = 0; i < RKV_OP_COUNT; i++)
		w->counts->event[STORE_CAS_LOST] += stats->op[i].n_cas_lost;
}

static void
close_session(struct peer *p)
{
	struct rkv_session *s = p->session;
	reap(p, 0);
	count_session(p);
	rkv_session_close(s);
}

/* ---- The client ---- */

static void
idle(struct peer *p)
{
	int64_t ns =
		p->w->config->stamp_ns * (int64_t)store_random(&p->random, LIMIT_WORD_STAMPS + 4);
	sim_sleep(p->w->sim, sim_now(p->w->sim) + ns);
}

/* Clocks are moved while nothing is in flight. */
static void
await_clock(struct peer *p)
{
	struct world *w = p->w;
	if (w->wants_clock)
		reap(p, 0);
	while (w->wants_clock)
		sim_sleep(w->sim, sim_now(w->sim) + w->config->stamp_ns / 4);
}

static void
act(struct peer *p)
{
	await_clock(p);
	unsigned depth = p->w->config->depth;
	if (p->session->alloc.n_resting)
		store_count(p->w, STORE_REST);
	if (depth == 1 || store_chance(&p->random, 40)) {
		reap(p, depth - 1);
		call(p);
	} else {
		reap(p, depth - 1);
		submit(p);
	}
	if (store_chance(&p->random, 4))
		idle(p);
	else
		sim_yield(p->w->sim);
}

void
client_main(void *arg)
{
	struct peer *p = arg;
	struct world *w = p->w;
	idle(p);
	if (!open_session(p))
		sim_fail(w->sim, "no memory for a session");
	p->has_begun = true;
	for (unsigned i = 0; i < w->config->n_ops; i++) {
		act(p);
		if (store_chance(&p->random, 1)) {
			close_session(p);
			store_count(w, STORE_REOPEN);
			idle(p);
			open_session(p);
		}
	}
	close_session(p);
	p->has_ended = true;
	w->n_ended++;
}

/* Reads, writes and reads every key when all others are through: what they left behind works. */
void
auditor_main(void *arg)
{
	struct peer *p = arg;
	struct world *w = p->w;
	while (w->n_ended < w->n_peers - 1)
		sim_sleep(w->sim, sim_now(w->sim) + w->config->stamp_ns);
	open_session(p);
	p->has_begun = true;
	for (unsigned key = 0; key < w->config->n_keys; key++) {
		static const enum rkv_op kinds[] = {RKV_OP_GET, RKV_OP_PUT, RKV_OP_GET};
		for (unsigned i = 0; i < 3; i++) {
			struct record *r = begin_kind(p, kinds[i], key);
			end(r, session_call(p->session, &r->request));
		}
	}
	close_session(p);
	p->has_ended = true;
	w->n_ended++;
}

/* What a process leaves in this one's memory that crashed, or was in the middle of something. */
void
client_release(struct peer *p)
{
	struct rkv_session *s = p->session;
	if (s) {
		count_session(p);
		alloc_destroy(&s->alloc);
		cache_destroy(&s->cache);
		arena_destroy(&s->arena);
		free(s->ops);
		free(s);
	}
	free(p->bytes);
}
