/* SPDX-License-Identifier: BSD-2-Clause */
/*
 *   read     {READ value}                             write    {WRITE value}
 *   cas      {CAS word}                               faa      {FAA word}
 *   get      {READ block; READ word}                  what a warm GET posts
 *   update   {WRITE block; CAS word; READ word},      what a warm UPDATE posts
 *            then {WRITE 1 byte} that nobody waits for
 *
 * The region, with a block, a word and a map entry for each record:
 *
 *   | block 0 | block 1 | ... | word 0 . . | word 1 . . | ... | entry 0 | entry 1 | ...
 *
 * A block has the length that the record's would have: 40 bytes of header, key and value. It is
 * written as long as it is, and read in whole granules of 64. Words lie 16 bytes apart, as in an
 * index that is half full. A CAS expects what is there (0), and puts 0.
 */
#include "bench/raw.h"

#include <stdlib.h>
#include <string.h>

#include "bench/raw_region.h"
#include "common/clock.h"
#include "common/err.h"

#define HEADER_LEN 40u
#define KEY_LEN 23u /* "user" and 19 digits, as nearly all keys have */
#define GRANULE 64u
#define WORD_LEN 8u
#define WORD_STRIDE 16u
#define CONNECT_NS (10 * CLOCK_NS_PER_S)
#define VALUE_MAX (UINT64_C(1) << 30)
#define OPS_MAX 3
#define POLL_MAX 64
#define WAIT_NS INT64_C(100000) /* between two looks while nothing lands, as in librkv */

const char *const raw_kind_names[RAW_KINDS] = {
	[RAW_READ] = "read", [RAW_WRITE] = "write", [RAW_CAS] = "cas",
	[RAW_FAA] = "faa",   [RAW_GET] = "get",     [RAW_UPDATE] = "update",
};

const char *const raw_titles[RAW_KINDS] = {
	[RAW_READ] = "raw read", [RAW_WRITE] = "raw write", [RAW_CAS] = "raw cas",
	[RAW_FAA] = "raw faa",   [RAW_GET] = "raw get",     [RAW_UPDATE] = "raw update",
};

/* Where the operations of a kind point; what they point to is of these lengths. */
struct recipe {
	unsigned n_ops;
	struct {
		enum fab_kind kind;
		enum { AT_BLOCK, AT_WORD } at;
		enum { LEN_VALUE, LEN_BLOCK, LEN_GRANULES, LEN_WORD } len;
	} op[OPS_MAX];
	bool leaves_mark;
};

static const struct recipe recipes[RAW_KINDS] = {
	[RAW_READ] = {1, {{FAB_READ, AT_BLOCK, LEN_VALUE}}, false},
	[RAW_WRITE] = {1, {{FAB_WRITE, AT_BLOCK, LEN_VALUE}}, false},
	[RAW_CAS] = {1, {{FAB_CAS, AT_WORD, LEN_WORD}}, false},
	[RAW_FAA] = {1, {{FAB_FAA, AT_WORD, LEN_WORD}}, false},
	[RAW_GET] = {2, {{FAB_READ, AT_BLOCK, LEN_GRANULES}, {FAB_READ, AT_WORD, LEN_WORD}}, false},
	[RAW_UPDATE] = {3,
			{{FAB_WRITE, AT_BLOCK, LEN_BLOCK},
			 {FAB_CAS, AT_WORD, LEN_WORD},
			 {FAB_READ, AT_WORD, LEN_WORD}},
			true},
};

struct raw_target {
	struct target target;
	struct log log;
	const struct recipe *recipe;
	enum rkv_op counted_as;
	uint32_t depth;
	uint32_t lens[LEN_WORD + 1];
	uint64_t n_records;
	uint64_t block_stride; /* bytes */
	uint64_t words_roff;
	uint64_t map_roff;
	struct raw_region *far;
	struct fab *fab;
	struct fab_region *region;
};

/* One batch in flight. */
struct slot {
	struct rkv_request *request;
	struct fab_op ops[OPS_MAX];
	struct fab_op mark;
};

struct raw_session {
	struct target_session session;
	struct fab_endpoint *ep;
	unsigned char *arena; /* a piece for each operation of each slot */
	size_t arena_len;
	uint32_t key;
	bool is_registered;
	struct rkv_op_stats counts;
	struct slot *slots;
	struct slot **free_slots;
	uint32_t n_free;
};

bool
raw_is_update(enum raw_kind kind)
{
	return kind != RAW_READ && kind != RAW_GET;
}

static const struct raw_target *
raw_of(const struct target_session *session)
{
	return (const struct raw_target *)session->target;
}

/* ERR_AGAIN would be for somebody who has other things to do: a descriptor is missing. */
static int
failure(int r)
{
	return r > 0 ? ERR_NOMEM : r;
}

/* ---- A session ---- */

static size_t
granules(size_t len)
{
	return (len + GRANULE - 1) / GRANULE * GRANULE;
}

static size_t
slot_len(const struct raw_target *raw)
{
	size_t len = GRANULE; /* the mark's byte */
	for (unsigned i = 0; i < raw->recipe->n_ops; i++)
		len += granules(raw->lens[raw->recipe->op[i].len]);
	return len;
}

/* All of a slot's operations that do not change: kinds, lengths and local memory. */
static void
prepare_slot(const struct raw_session *session, struct slot *slot, unsigned char *local)
{
	const struct raw_target *raw = raw_of(&session->session);
	for (unsigned i = 0; i < raw->recipe->n_ops; i++) {
		uint32_t len = raw->lens[raw->recipe->op[i].len];
		slot->ops[i] = (struct fab_op){
			.kind = raw->recipe->op[i].kind,
			.piece = {{local, len, session->key}},
		};
		local += granules(len);
	}
	slot->mark = (struct fab_op){
		.kind = FAB_WRITE,
		.piece = {{local, 1, session->key}},
	};
}

static int
allocate(struct raw_session *session)
{
	const struct raw_target *raw = raw_of(&session->session);
	const size_t page = 4096;
	size_t len = raw->depth * slot_len(raw);
	session->arena_len = (len + page - 1) / page * page;
	session->arena = aligned_alloc(page, session->arena_len);
	session->slots = calloc(raw->depth, sizeof(struct slot));
	session->free_slots = calloc(raw->depth, sizeof(struct slot *));
	if (!session->arena || !session->slots || !session->free_slots)
		return ERR_NOMEM;
	memset(session->arena, 0x5a, session->arena_len);
	int r = fab_register(raw->fab, session->arena, session->arena_len, &session->key);
	if (r)
		return r;
	session->is_registered = true;
	for (uint32_t i = 0; i < raw->depth; i++) {
		prepare_slot(session, &session->slots[i], session->arena + i * slot_len(raw));
		session->free_slots[session->n_free++] = &session->slots[i];
	}
	return 0;
}

static void
close_session(struct target_session *session)
{
	struct raw_session *self = (struct raw_session *)session;
	fab_disconnect(self->ep);
	if (self->is_registered)
		fab_deregister(raw_of(session)->fab, self->key);
	free(self->arena);
	free(self->slots);
	free(self->free_slots);
	free(self);
}

static int
open_session(struct target *target, struct target_session **ret_session)
{
	struct raw_target *raw = (struct raw_target *)target;
	struct raw_session *session = calloc(1, sizeof(*session));
	if (session == NULL)
		return ERR_NOMEM;
	session->session.target = target;
	int64_t deadline_ns = clock_now_ns() + CONNECT_NS;
	int r = fab_connect(raw->region, NULL, raw->depth, deadline_ns, &session->ep);
	if (r == 0)
		r = allocate(session);
	if (r) {
		close_session(&session->session);
		return failure(r);
	}
	*ret_session = &session->session;
	return 0;
}

/* ---- Operations ---- */

static void
aim(const struct raw_target *raw, struct slot *slot, uint64_t number)
{
	uint64_t record = number < raw->n_records ? number : number % raw->n_records;
	uint64_t roffs[] = {
		[AT_BLOCK] = record * raw->block_stride,
		[AT_WORD] = raw->words_roff + record * WORD_STRIDE,
	};
	for (unsigned i = 0; i < raw->recipe->n_ops; i++)
		slot->ops[i].roff = roffs[raw->recipe->op[i].at];
	slot->mark.roff = raw->map_roff + record;
}

static void
count(struct raw_session *session, const struct slot *slot, unsigned n)
{
	session->counts.n_round_trips++;
	session->counts.n_requests += n;
	for (unsigned i = 0; i < n; i++) {
		if (slot->ops[i].kind == FAB_READ)
			session->counts.n_bytes_read += slot->ops[i].piece[0].len;
		else if (slot->ops[i].kind == FAB_WRITE)
			session->counts.n_bytes_written += slot->ops[i].piece[0].len;
	}
}

static int
submit(struct target_session *session, struct rkv_request *request, uint64_t number)
{
	struct raw_session *self = (struct raw_session *)session;
	const struct raw_target *raw = raw_of(session);
	if (self->n_free == 0)
		return ERR_AGAIN;
	struct slot *slot = self->free_slots[self->n_free - 1];
	aim(raw, slot, number);
	int r = fab_post(self->ep, slot->ops, raw->recipe->n_ops, slot);
	if (r)
		return r;
	self->n_free--;
	slot->request = request;
	count(self, slot, raw->recipe->n_ops);
	return 0;
}

static struct rkv_request *
land(struct raw_session *session, const struct fab_done *done)
{
	struct slot *slot = done->cookie;
	int status = done->status;
	if (status == 0 && raw_of(&session->session)->recipe->leaves_mark) {
		status = fab_post_quiet(session->ep, &slot->mark, 1);
		session->counts.n_marks++; /* its byte is not counted, as in rkv_op_stats */
	}
	if (status == 0)
		session->counts.n_done++;
	else
		session->counts.n_failures++;
	session->free_slots[session->n_free++] = slot;
	slot->request->status = status;
	return slot->request;
}

static int
poll(struct target_session *session, struct rkv_request **done, int max, uint32_t timeout_ms)
{
	struct raw_session *self = (struct raw_session *)session;
	struct fab_done landed[POLL_MAX];
	unsigned n_max = max < POLL_MAX ? (unsigned)max : POLL_MAX;
	if (self->n_free == raw_of(session)->depth)
		return 0; /* nothing is in flight */
	unsigned n = fab_poll(self->ep, landed, n_max);
	if (n == 0 && timeout_ms > 0) {
		fab_wait(self->ep, clock_now_ns() + WAIT_NS);
		n = fab_poll(self->ep, landed, n_max);
	}
	for (unsigned i = 0; i < n; i++)
		done[i] = land(self, &landed[i]);
	return (int)n;
}

static void
stats(struct target_session *session, struct rkv_stats_values *ret_stats)
{
	*ret_stats = (struct rkv_stats_values){0};
	ret_stats->op[raw_of(session)->counted_as] = ((struct raw_session *)session)->counts;
}

static bool
server_cpu_ns(struct target *target, uint64_t *ret_ns)
{
	(void)target;
	(void)ret_ns;
	return false;
}

static uint64_t
value_size_max(struct target *target)
{
	(void)target;
	return VALUE_MAX;
}

/* ---- The whole ---- */

static void
close_target(struct target *target)
{
	struct raw_target *raw = (struct raw_target *)target;
	fab_region_close(raw->region);
	fab_close(raw->fab);
	raw_region_destroy(raw->far);
	free(raw);
}

/* Returns the length of the region. */
static size_t
lay_out(struct raw_target *raw, const struct raw_config *config)
{
	size_t block_len = HEADER_LEN + KEY_LEN + config->value_size;
	raw->n_records = config->n_records;
	raw->lens[LEN_VALUE] = (uint32_t)config->value_size;
	raw->lens[LEN_BLOCK] = (uint32_t)block_len;
	raw->lens[LEN_GRANULES] = (uint32_t)granules(block_len);
	raw->lens[LEN_WORD] = WORD_LEN;
	raw->block_stride = granules(block_len);
	raw->words_roff = raw->n_records * raw->block_stride;
	raw->map_roff = raw->words_roff + raw->n_records * WORD_STRIDE;
	return raw->map_roff + raw->n_records;
}

static int
reach(struct raw_target *raw, const struct raw_place *place, size_t len)
{
	int r = raw_region_create(place, len, &raw->log, &raw->far);
	if (r)
		return r;
	r = raw_region_fabric(raw->far, &raw->fab);
	if (r)
		return r;
	return fab_region_open(raw->fab, raw_region_offer(raw->far), clock_now_ns() + CONNECT_NS,
			       &raw->region);
}

int
target_open_raw(const struct target_config *config, const struct raw_config *raw_config,
		struct target **ret_target)
{
	struct raw_target *raw = calloc(1, sizeof(*raw));
	if (raw == NULL)
		return ERR_NOMEM;
	raw->target = (struct target){
		.name = target_fabrics[raw_config->place.fabric],
		.session_open = open_session,
		.session_close = close_session,
		.submit = submit,
		.poll = poll,
		.stats = stats,
		.value_size_max = value_size_max,
		.server_cpu_ns = server_cpu_ns,
		.close = close_target,
	};
	raw->log = (struct log){.sink = config->log, .max_level = LOG_WARN};
	raw->recipe = &recipes[raw_config->kind];
	raw->counted_as = raw_is_update(raw_config->kind) ? RKV_OP_PUT : RKV_OP_GET;
	raw->depth = config->depth;
	int r = reach(raw, &raw_config->place, lay_out(raw, raw_config));
	if (r) {
		close_target(&raw->target);
		return failure(r);
	}
	*ret_target = &raw->target;
	return 0;
}
