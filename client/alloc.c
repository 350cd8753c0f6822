/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Blocks for a session. A chunk is claimed by CAS on its descriptor and belongs to one session;
 * only the owner allocates from it. What is known of a block:
 *
 *   fresh     never handed out since the chunk was FREE; its first tag is map entry + 1
 *   used      handed out; others may free it, which shows in the map: entry == its tag, [MARK]
 *   free      its mark is posted or seen; tag is the next incarnation's
 *   resting   free, but its tags have wrapped: until the stamp of the moment has passed, [WRAP]
 *   waiting   adopted without a valid header: free once the stamp of the adoption has passed
 *
 * When no block of a class is at hand, a job looks for one, the nearest first:
 *
 *   1 FLUSH      marks are out that hold back free blocks: an atomic behind them completes them
 *   2 SCAN       an adopted chunk of the class was not read to its end yet
 *   3 REAP_SOME  read the maps of a few own chunks of the class: did others free blocks?
 *   4 GIVE       chunks that have drained become FREE
 *   5 FIND       read the chunk table: adopt a chunk of the class, else claim a FREE one
 *   6 REAP_ALL   the maps of all own chunks; those of other classes with nothing in use drain
 *   7 FOREIGN    adopt left chunks of other classes, drain the empty ones, leave the others again
 *
 * Draining: a chunk with nothing in use becomes FREE only when the stamp of that moment has passed;
 * until then whoever wants memory is told ERR_AGAIN, not ERR_NO_SPACE. What other sessions drain,
 * the server knows (WIRE_STAMP_CHUNKS_COMING), and what they could, a little later.
 */
#include "client/alloc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "client/session.h"
#include "common/err.h"
#include "proto/wire.h"

#define REAP_SOME 4u   /* maps read before a chunk is claimed */
#define READY_TRIES 4u /* chunks tried before a job looks further */
/* So much free memory of a class is not used up within T_Q. */
#define PLENTY_BLOCKS 4096u
#define PLENTY_BYTES (UINT64_C(8) << 20)
#define FOREIGN_PAUSE_NS INT64_C(1000000000) /* between two looks at other classes' chunks */
/* Within this others have been asked for chunks, have looked, and have said what they drain. */
#define PATIENCE_STAMPS (3000u / LIMIT_STAMP_MS)

enum block_state { BLOCK_FREE = 0, BLOCK_USED = 1, BLOCK_RESTING = 2, BLOCK_WAITING = 3 };

struct freed {
	uint32_t i;
	uint32_t at_us;
	uint64_t mark; /* at hand once so many marks have completed */
};

struct chunk {
	uint64_t index;
	uint64_t desc;
	uint32_t class_id;
	uint32_t n_blocks;
	uint32_t block_len; /* bytes */
	uint32_t own_at;    /* in alloc.own */
	struct chunk *ready_next;
	struct chunk *ready_prev;
	uint16_t *block; /* tag in the low 12 bits, block_state above */
	struct freed *ring;
	uint32_t ring_head;
	uint32_t ring_n;
	uint32_t ring_capacity; /* power of two, or 0 */
	uint32_t fresh;         /* first block never handed out */
	uint32_t scanned;       /* blocks from here on are not looked at yet (adopted chunks) */
	uint32_t n_used;
	uint32_t n_waiting;
	uint32_t n_resting;
	struct moment since; /* of the adoption, or of the draining */
	uint64_t drain_mark;
	bool is_draining;
	bool is_adopted;
	bool is_mapped;  /* its part of the free map was read */
	bool is_passing; /* adopted only to see whether it is empty: nothing is taken from it */
	bool was_left;   /* adopted in good order */
	bool is_unclean; /* blocks in doubt: it may only be left as ORPHAN */
};

/* ---- Memory ---- */

static uint32_t
window_len(const struct layout *layout)
{
	return layout->chunk_size > ALLOC_WINDOW_MIN ? (uint32_t)layout->chunk_size
						     : ALLOC_WINDOW_MIN;
}

uint64_t
alloc_memory_len(const struct layout *layout)
{
	return window_len(layout) + (FAB_BATCH_MAX + 1) * sizeof(uint64_t) + 256;
}

int
alloc_create(struct alloc *a, const struct layout *layout, unsigned char *memory, uint32_t key)
{
	*a = (struct alloc){0};
	a->window = memory;
	a->window_len = window_len(layout);
	a->cas_old = (uint64_t *)(void *)(memory + a->window_len);
	a->flush_old = a->cas_old + FAB_BATCH_MAX;
	a->marks = (unsigned char *)(a->flush_old + 1);
	for (unsigned i = 0; i < 256; i++)
		a->marks[i] = (unsigned char)i;
	a->key = key;
	a->by_index = calloc(layout->n_chunks, sizeof(*a->by_index));
	return a->by_index ? 0 : ERR_NOMEM;
}

static void
chunk_destroy(struct chunk *c)
{
	if (!c)
		return;
	free(c->block);
	free(c->ring);
	free(c);
}

void
alloc_destroy(struct alloc *a)
{
	for (uint32_t i = 0; i < a->n_own; i++)
		chunk_destroy(a->own[i]);
	free(a->own);
	free(a->by_index);
	free(a->resting);
	*a = (struct alloc){0};
}

/* ---- A chunk's blocks ---- */

static uint32_t
block_tag_of(const struct chunk *c, uint32_t i)
{
	return c->block[i] & BLOCK_TAG_MASK;
}

static enum block_state
block_state_of(const struct chunk *c, uint32_t i)
{
	return (enum block_state)(c->block[i] >> SLOT_TAG_BITS);
}

static void
block_set(struct chunk *c, uint32_t i, enum block_state state, uint32_t tag)
{
	c->block[i] = (uint16_t)(tag | (uint32_t)state << SLOT_TAG_BITS);
}

static void
ready_add(struct alloc *a, struct chunk *c)
{
	if (c->ready_next || c->is_draining || c->is_passing)
		return;
	struct chunk **head = &a->ready[c->class_id];
	if (!*head) {
		c->ready_next = c->ready_prev = c;
		*head = c;
		return;
	}
	c->ready_next = *head;
	c->ready_prev = (*head)->ready_prev;
	c->ready_prev->ready_next = c;
	(*head)->ready_prev = c;
}

static void
ready_remove(struct alloc *a, struct chunk *c)
{
	if (!c->ready_next)
		return;
	struct chunk **head = &a->ready[c->class_id];
	if (*head == c)
		*head = c->ready_next == c ? NULL : c->ready_next;
	c->ready_next->ready_prev = c->ready_prev;
	c->ready_prev->ready_next = c->ready_next;
	c->ready_next = c->ready_prev = NULL;
}

static int
ring_grow(struct chunk *c)
{
	uint32_t capacity = c->ring_capacity ? 2 * c->ring_capacity : 64;
	struct freed *ring = malloc(capacity * sizeof(*ring));
	if (!ring)
		return ERR_NOMEM;
	for (uint32_t k = 0; k < c->ring_n; k++)
		ring[k] = c->ring[(c->ring_head + k) & (c->ring_capacity - 1)];
	free(c->ring);
	c->ring = ring;
	c->ring_head = 0;
	c->ring_capacity = capacity;
	return 0;
}

/* Puts a free block at hand, behind the others. Without memory for the ring it stays used: a reap
 * finds it again. */
static void
ring_push(struct alloc *a, struct chunk *c, uint32_t i, uint32_t tag, uint64_t mark, uint32_t at_us)
{
	if (c->ring_n == c->ring_capacity && ring_grow(c) != 0) {
		c->n_used++;
		block_set(c, i, BLOCK_USED, (tag + SLOT_TAG_COUNT - 1) % SLOT_TAG_COUNT);
		return;
	}
	block_set(c, i, BLOCK_FREE, tag);
	c->ring[(c->ring_head + c->ring_n++) & (c->ring_capacity - 1)] =
		(struct freed){i, at_us, mark};
	ready_add(a, c);
}

static bool
resting_grow(struct alloc *a)
{
	uint32_t capacity = a->resting_capacity ? 2 * a->resting_capacity : 64;
	struct resting *ring = malloc(capacity * sizeof(*ring));
	if (!ring)
		return false;
	for (uint32_t k = 0; k < a->n_resting; k++)
		ring[k] = a->resting[(a->first_resting + k) % a->resting_capacity];
	free(a->resting);
	a->resting = ring;
	a->first_resting = 0;
	a->resting_capacity = capacity;
	return true;
}

/* The time of what others freed, nobody knows when: it is not made to wait for T_Q. */
static uint32_t
long_ago_us(const struct alloc *a)
{
	return a->now_us - (uint32_t)(LIMIT_REUSE_NS / 1000);
}

/* The incarnation `tag` is over: the next one is at hand, or rests after the last tag, [WRAP]. */
static void
block_ended(struct rkv_session *s, struct chunk *c, uint32_t i, uint32_t tag, uint64_t mark,
	    uint32_t at_us)
{
	struct alloc *a = &s->alloc;
	uint32_t next = (tag + 1) % SLOT_TAG_COUNT;
	if (next != 0) {
		ring_push(a, c, i, next, mark, at_us);
		return;
	}
	if (a->n_resting == a->resting_capacity && !resting_grow(a)) {
		c->n_used++;
		block_set(c, i, BLOCK_USED, tag);
		return;
	}
	block_set(c, i, BLOCK_RESTING, next);
	c->n_resting++;
	a->resting[(a->first_resting + a->n_resting++) % a->resting_capacity] =
		(struct resting){c, i, mark, moment_now(&s->client->stamps)};
}

static struct resting *
resting_at(const struct alloc *a, uint32_t k)
{
	return &a->resting[(a->first_resting + k) % a->resting_capacity];
}

/* All learn their stamps as soon as they can: those behind the first do not wait for it to wake. */
static void
wake_resting(struct rkv_session *s)
{
	struct alloc *a = &s->alloc;
	struct stamps *stamps = &s->client->stamps;
	while (a->n_resting_known < a->n_resting &&
	       moment_is_known(stamps, &resting_at(a, a->n_resting_known)->moment))
		a->n_resting_known++;
	while (a->n_resting) {
		struct resting *r = &a->resting[a->first_resting];
		if (!moment_passed(stamps, &r->moment))
			return;
		r->chunk->n_resting--;
		ring_push(a, r->chunk, r->i, 0, r->mark, long_ago_us(a));
		a->first_resting = (a->first_resting + 1) % a->resting_capacity;
		a->n_resting--;
		a->n_resting_known--;
	}
}

/* Its chunk goes to others: they let the blocks rest anew. */
static void
forget_resting(struct alloc *a, struct chunk *c)
{
	uint32_t n = c->n_resting ? a->n_resting : 0;
	if (n == 0)
		return;
	a->n_resting = 0;
	a->n_resting_known = 0;
	for (uint32_t k = 0; k < n; k++)
		if (resting_at(a, k)->chunk != c)
			*resting_at(a, a->n_resting++) = *resting_at(a, k);
	c->n_resting = 0;
}

/* Blocks without a valid header are free once the stamp of the adoption has passed. */
static void
wake_waiting(struct rkv_session *s, struct chunk *c)
{
	if (!c->n_waiting || c->is_draining || !moment_passed(&s->client->stamps, &c->since))
		return;
	for (uint32_t i = 0; i < c->scanned; i++)
		if (block_state_of(c, i) == BLOCK_WAITING)
			ring_push(&s->alloc, c, i, block_tag_of(c, i), 0, long_ago_us(&s->alloc));
	c->n_waiting = 0;
}

/* ---- Taking and freeing ---- */

static void
look_at_clock(struct rkv_session *s)
{
	s->alloc.now_us = (uint32_t)(fab_now(s->link.fab) / 1000);
}

static bool
freed_is_at_hand(struct rkv_session *s, const struct freed *f)
{
	if (f->mark > s->n_marks_done)
		return false;
	if (s->alloc.now_us - f->at_us >= LIMIT_REUSE_NS / 1000)
		return true;
	look_at_clock(s);
	return s->alloc.now_us - f->at_us >= LIMIT_REUSE_NS / 1000;
}

static void
hand_out(struct rkv_session *s, struct chunk *c, uint32_t i, struct block_ref *ret_block)
{
	uint32_t tag = block_tag_of(c, i);
	block_set(c, i, BLOCK_USED, tag);
	c->n_used++;
	if (c->ring_n == 0 && c->fresh == c->n_blocks)
		ready_remove(&s->alloc, c);
	*ret_block = (struct block_ref){
		.off = layout_chunk_off(&s->link.layout, c->index) + (uint64_t)i * c->block_len,
		.tag = tag,
		.i = i,
		.block_class = c->class_id,
		.chunk = c,
	};
}

static bool
take_from(struct rkv_session *s, struct chunk *c, struct block_ref *ret_block)
{
	if (c->ring_n && freed_is_at_hand(s, &c->ring[c->ring_head])) {
		uint32_t i = c->ring[c->ring_head].i;
		c->ring_head = (c->ring_head + 1) & (c->ring_capacity - 1);
		c->ring_n--;
		hand_out(s, c, i, ret_block);
		return true;
	}
	if (c->fresh < c->n_blocks) {
		hand_out(s, c, c->fresh++, ret_block);
		return true;
	}
	return false;
}

static bool
take_ready(struct rkv_session *s, uint32_t class_id, struct block_ref *ret_block)
{
	struct alloc *a = &s->alloc;
	for (unsigned n = 0; n < READY_TRIES && a->ready[class_id]; n++) {
		if (take_from(s, a->ready[class_id], ret_block))
			return true;
		a->ready[class_id] = a->ready[class_id]->ready_next;
	}
	return false;
}

static bool
chunks_are_short(const struct rkv_session *s)
{
	return atomic_load_explicit(&s->client->stamps.flags, memory_order_relaxed) &
	       WIRE_STAMP_CHUNKS_SHORT;
}

/*
 * Is it better to wait for T_Q than to claim another chunk? Yes, with so many free blocks of the
 * class that a session cannot go through them within T_Q, and where chunks are short.
 */
static bool
rather_waits(const struct rkv_session *s, uint32_t class_id)
{
	const struct alloc *a = &s->alloc;
	uint64_t n_free = 0;
	if (chunks_are_short(s))
		return true;
	for (uint32_t i = 0; i < a->n_own; i++)
		if (a->own[i]->class_id == class_id)
			n_free += a->own[i]->ring_n;
	return n_free >= PLENTY_BLOCKS ||
	       n_free * layout_class_granules(class_id) * LIMIT_GRANULE >= PLENTY_BYTES;
}

/* When is the freed block at the head of the first ready chunk old enough? 0: it waits for more. */
static int64_t
ready_wake_ns(struct rkv_session *s, uint32_t class_id)
{
	const struct chunk *c = s->alloc.ready[class_id];
	if (!c || !c->ring_n || c->ring[c->ring_head].mark > s->n_marks_done ||
	    !rather_waits(s, class_id))
		return 0;
	int64_t age_ns = INT64_C(1000) * (s->alloc.now_us - c->ring[c->ring_head].at_us);
	return fab_now(s->link.fab) + (int64_t)LIMIT_REUSE_NS - age_ns;
}

static void job_start(struct rkv_session *s, enum alloc_job job, enum alloc_stage stage,
		      uint32_t class_id);

int
alloc_take(struct rkv_session *s, uint32_t n_granules, struct block_ref *ret_block,
	   int64_t *ret_wake_ns)
{
	uint32_t class_id = layout_class_of(n_granules);
	if (s->alloc.n_resting)
		wake_resting(s);
	if (take_ready(s, class_id, ret_block))
		return 0;
	*ret_wake_ns = ready_wake_ns(s, class_id);
	if (*ret_wake_ns)
		return ERR_TIMEOUT;
	if (s->alloc.job == JOB_NONE) {
		job_start(s, JOB_TAKE, STAGE_FLUSH, class_id);
		if (s->alloc.job == JOB_NONE && take_ready(s, class_id, ret_block))
			return 0; /* it ended at once */
	}
	return ERR_AGAIN;
}

void
alloc_put_back(struct rkv_session *s, const struct block_ref *block)
{
	struct chunk *c = block->chunk;
	c->n_used--;
	ring_push(&s->alloc, c, block->i, block->tag, 0, s->alloc.now_us);
}

void
alloc_freed(struct rkv_session *s, uint64_t block_off, uint32_t tag, uint64_t mark)
{
	const struct layout *l = &s->link.layout;
	struct chunk *c = s->alloc.by_index[layout_chunk_of(l, block_off)];
	if (!c)
		return;
	uint64_t in_chunk = block_off - layout_chunk_off(l, c->index);
	uint32_t i = (uint32_t)(in_chunk / c->block_len);
	if (in_chunk % c->block_len != 0 || i >= c->n_blocks || i >= c->scanned ||
	    block_state_of(c, i) != BLOCK_USED || block_tag_of(c, i) != tag)
		return;
	c->n_used--;
	look_at_clock(s);
	block_ended(s, c, i, tag, mark, s->alloc.now_us);
}

/* ---- Chunks come and go ---- */

static struct chunk *
chunk_create(const struct layout *l, uint64_t index, uint64_t desc)
{
	struct chunk *c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->index = index;
	c->desc = desc;
	c->class_id = chunk_class(desc);
	c->n_blocks = layout_blocks_per_chunk(l, c->class_id);
	c->block_len = layout_class_granules(c->class_id) * LIMIT_GRANULE;
	c->block = calloc(c->n_blocks, sizeof(*c->block));
	if (!c->block) {
		chunk_destroy(c);
		return NULL;
	}
	return c;
}

static int
own_add(struct alloc *a, struct chunk *c)
{
	if (a->n_own == a->own_capacity) {
		uint32_t capacity = a->own_capacity ? 2 * a->own_capacity : 16;
		struct chunk **own = realloc(a->own, capacity * sizeof(*own));
		if (!own)
			return ERR_NOMEM;
		a->own = own;
		a->own_capacity = capacity;
	}
	c->own_at = a->n_own;
	a->own[a->n_own++] = c;
	a->by_index[c->index] = c;
	return 0;
}

/* The control thread looks at how many there are: it visits idle sessions for them. */
static void
count_draining(struct rkv_session *s, int more)
{
	s->alloc.n_draining += (uint32_t)more;
	atomic_store_explicit(&s->port.n_draining, s->alloc.n_draining, memory_order_relaxed);
}

static void
own_remove(struct rkv_session *s, struct chunk *c)
{
	struct alloc *a = &s->alloc;
	ready_remove(a, c);
	forget_resting(a, c);
	if (c->is_draining)
		count_draining(s, -1);
	a->own[c->own_at] = a->own[--a->n_own];
	a->own[c->own_at]->own_at = c->own_at;
	a->by_index[c->index] = NULL;
	chunk_destroy(c);
}

static bool
chunk_is_empty(const struct chunk *c)
{
	return c->scanned == c->n_blocks && c->n_used == 0;
}

static void
drain(struct rkv_session *s, struct chunk *c)
{
	if (c->is_draining)
		return;
	ready_remove(&s->alloc, c);
	c->is_draining = true;
	c->since = moment_now(&s->client->stamps);
	c->drain_mark = s->n_marks_posted;
	count_draining(s, 1);
}

/* Memory of its class is wanted again before it became FREE. */
static bool
stop_draining(struct rkv_session *s, uint32_t class_id)
{
	struct alloc *a = &s->alloc;
	for (uint32_t i = 0; a->n_draining && i < a->n_own; i++) {
		struct chunk *c = a->own[i];
		if (!c->is_draining || c->class_id != class_id || c->n_waiting)
			continue;
		c->is_draining = false;
		count_draining(s, -1);
		if (c->ring_n || c->fresh < c->n_blocks) {
			ready_add(a, c);
			return true;
		}
	}
	return false;
}

/* How a chunk is left: in good order, if no block of it is in doubt (decisions/0003). */
static uint64_t
desc_left(struct rkv_session *s, struct chunk *c)
{
	bool in_order =
		!c->is_unclean && (c->was_left || moment_passed(&s->client->stamps, &c->since));
	return chunk_next(c->desc, in_order ? CHUNK_LEFT : CHUNK_ORPHAN, c->class_id, 0);
}

/* ---- The job: posting ---- */

static void job_go_on(struct rkv_session *s);
static void job_end(struct rkv_session *s, int status);

static void
landed(struct rkv_session *s, struct landing *self, int status)
{
	(void)self;
	alloc_landed(s, status);
}

static struct landing job_landing = {.landed = landed};

static void
job_post(struct rkv_session *s, enum alloc_step step, const struct fab_op *op)
{
	s->alloc.step = step;
	int rc = session_post_maintenance(s, op, &job_landing);
	if (rc != 0)
		alloc_landed(s, rc);
}

static void
post_read(struct rkv_session *s, enum alloc_step step, uint64_t roff, uint64_t len)
{
	struct alloc *a = &s->alloc;
	assert(len <= a->window_len);
	job_post(s, step,
		 &(struct fab_op){
			 .kind = FAB_READ,
			 .roff = roff,
			 .piece = {{a->window, (uint32_t)len, a->key}},
		 });
}

static void
post_desc_cas(struct rkv_session *s, enum alloc_step step, uint64_t index, uint64_t desc,
	      uint64_t new_desc)
{
	struct alloc *a = &s->alloc;
	a->claim_desc = desc;
	a->new_desc = new_desc;
	a->n_marks_before = s->n_marks_posted;
	job_post(s, step,
		 &(struct fab_op){
			 .kind = FAB_CAS,
			 .roff = layout_desc_off(&s->link.layout, index),
			 .piece = {{a->cas_old, 8, a->key}},
			 .expect = desc,
			 .swap = new_desc,
		 });
}

static void
post_flush(struct rkv_session *s)
{
	struct fab_op op = session_flush_op(s, s->alloc.cas_old);
	s->alloc.n_marks_before = s->n_marks_posted;
	job_post(s, ALLOC_FLUSHED, &op);
}

static void
post_map(struct rkv_session *s, struct chunk *c, enum alloc_step step)
{
	uint64_t last = (uint64_t)(c->n_blocks - 1) * (c->block_len / LIMIT_GRANULE);
	s->alloc.at_hand = c;
	post_read(s, step,
		  layout_map_off(&s->link.layout, layout_chunk_off(&s->link.layout, c->index)),
		  last + 1);
}

static uint8_t
map_entry(const struct alloc *a, const struct chunk *c, uint32_t i)
{
	return a->window[(uint64_t)i * (c->block_len / LIMIT_GRANULE)] & LAYOUT_MARK_MASK;
}

/* ---- Scanning an adopted chunk ---- */

static uint32_t
scan_count(const struct alloc *a, const struct chunk *c)
{
	uint32_t room = ALLOC_WINDOW_MIN / c->block_len;
	if (room == 0)
		room = a->window_len / c->block_len;
	uint32_t left = c->n_blocks - c->scanned;
	return left < room ? left : room;
}

static void
post_scan(struct rkv_session *s, struct chunk *c)
{
	s->alloc.at_hand = c;
	uint64_t off = layout_chunk_off(&s->link.layout, c->index);
	post_read(s, ALLOC_SCANNED, off + (uint64_t)c->scanned * c->block_len,
		  (uint64_t)scan_count(&s->alloc, c) * c->block_len);
}

/* Does the block name itself, as the block at this offset? */
static bool
header_is_valid(const struct layout *l, const unsigned char *bytes, uint64_t off,
		uint32_t block_len)
{
	struct block_header h;
	memcpy(&h, bytes, sizeof(h));
	if (!block_lengths_fit(&h, block_len) || block_tag(&h) >= SLOT_TAG_COUNT)
		return false;
	const unsigned char *key = bytes + BLOCK_HEADER_LEN;
	struct hash hash = hash_key(key, h.key_len, l->hash_seed);
	uint64_t digest = block_digest(&hash, key + h.key_len, h.value_len);
	return h.checksum == block_checksum(block_word(off, &h, &hash), digest, &h);
}

/* Adoption: until it is scanned, block[i] holds the map entry. */
static void
scan_block(struct rkv_session *s, struct chunk *c, uint32_t i, const unsigned char *bytes)
{
	uint8_t entry = (uint8_t)c->block[i];
	uint64_t off = layout_chunk_off(&s->link.layout, c->index) + (uint64_t)i * c->block_len;
	if (header_is_valid(&s->link.layout, bytes, off, c->block_len)) {
		struct block_header h;
		memcpy(&h, bytes, sizeof(h));
		if (layout_mark(block_tag(&h)) == entry) {
			block_ended(s, c, i, block_tag(&h), 0, long_ago_us(&s->alloc));
			return;
		}
		block_set(c, i, BLOCK_USED, block_tag(&h));
		c->n_used++;
		return;
	}
	if (c->was_left) {
		ring_push(&s->alloc, c, i, layout_first_tag(entry), 0, long_ago_us(&s->alloc));
		return;
	}
	block_set(c, i, BLOCK_WAITING, layout_first_tag(entry));
	c->n_waiting++;
}

static void
scanned(struct rkv_session *s)
{
	struct chunk *c = s->alloc.at_hand;
	uint32_t n = scan_count(&s->alloc, c);
	for (uint32_t k = 0; k < n; k++)
		scan_block(s, c, c->scanned + k, s->alloc.window + (uint64_t)k * c->block_len);
	c->scanned += n;
}

static struct chunk *
find_unscanned(const struct alloc *a, uint32_t class_id)
{
	for (uint32_t i = 0; i < a->n_own; i++)
		if (a->own[i]->class_id == class_id && a->own[i]->scanned < a->own[i]->n_blocks)
			return a->own[i];
	return NULL;
}

/* ---- Reaping: what others freed ---- */

static void
reaped(struct rkv_session *s)
{
	struct alloc *a = &s->alloc;
	struct chunk *c = a->at_hand;
	for (uint32_t i = 0; i < c->scanned; i++) {
		uint32_t tag = block_tag_of(c, i);
		if (i >= c->fresh && c->fresh < c->n_blocks)
			break;
		if (block_state_of(c, i) != BLOCK_USED || map_entry(a, c, i) != layout_mark(tag))
			continue;
		c->n_used--;
		block_ended(s, c, i, tag, 0,
			    long_ago_us(a)); /* at hand: else this job claims a chunk */
	}
	wake_waiting(s, c);
	bool surplus = a->stage != STAGE_REAP_SOME && c->class_id != a->class_id;
	if (chunk_is_empty(c) && (surplus || a->job == JOB_GIVE_BACK))
		drain(s, c);
}

/* The next own chunk worth reaping, or NULL when the round is over. */
static struct chunk *
next_to_reap(struct alloc *a)
{
	bool all = a->stage == STAGE_REAP_ALL;
	while (a->reap_left && a->n_own) {
		a->reap_left--;
		struct chunk *c = a->own[a->reap_next++ % a->n_own];
		if (!c->is_draining && (c->n_used || c->n_waiting || all) &&
		    (all || c->class_id == a->class_id))
			return c;
	}
	return NULL;
}

/* ---- Finding a chunk to claim ---- */

static bool
is_adoptable(uint64_t desc)
{
	return chunk_state(desc) == CHUNK_ORPHAN || chunk_state(desc) == CHUNK_LEFT;
}

static bool
is_wanted(const struct alloc *a, uint64_t desc, enum chunk_state kind)
{
	bool foreign = a->stage == STAGE_FOREIGN;
	if (kind == CHUNK_FREE)
		return !foreign && chunk_state(desc) == CHUNK_FREE;
	return is_adoptable(desc) && (chunk_class(desc) == a->class_id) != foreign;
}

/*
 * Where the server evicts, the last free chunks are for whoever has none of the class: the others
 * get by with what is evicted in their own.
 */
static bool
free_is_for_others(const struct rkv_session *s)
{
	const struct alloc *a = &s->alloc;
	const uint64_t *desc = (const uint64_t *)(const void *)a->window;
	uint64_t n_free = 0;
	if (!s->link.layout.hint_off)
		return false;
	for (uint32_t i = 0; i < a->find_len; i++)
		n_free += chunk_state(desc[i]) == CHUNK_FREE;
	if (n_free >= layout_chunks_few(a->find_len))
		return false;
	for (uint32_t i = 0; i < a->n_own; i++)
		if (a->own[i]->class_id == a->class_id && !a->own[i]->is_draining)
			return true;
	return false;
}

/* A descriptor in the window that serves, or find_len. Starts anywhere: fewer CASes are lost. */
static uint32_t
pick_desc(struct rkv_session *s, enum chunk_state kind)
{
	struct alloc *a = &s->alloc;
	const uint64_t *desc = (const uint64_t *)(const void *)a->window;
	uint32_t from =
		a->stage == STAGE_FOREIGN ? 0 : (uint32_t)(fab_rand(s->link.fab) % a->find_len);
	for (uint32_t k = 0; k < a->find_len; k++) {
		uint32_t i = (from + k) % a->find_len;
		if (a->find_first + i >= a->find_skip && is_wanted(a, desc[i], kind))
			return i;
	}
	return a->find_len;
}

static bool
post_window(struct rkv_session *s)
{
	struct alloc *a = &s->alloc;
	uint64_t n = s->link.layout.n_chunks - a->find_first;
	if (n == 0)
		return false;
	if (n > ALLOC_WINDOW_MIN / 8)
		n = ALLOC_WINDOW_MIN / 8;
	a->find_len = (uint32_t)n;
	post_read(s, ALLOC_FOUND, layout_desc_off(&s->link.layout, a->find_first), n * 8);
	return true;
}

/* Is a chunk in the window another living session's? */
static bool
others_are_in_window(const struct rkv_session *s)
{
	const uint64_t *desc = (const uint64_t *)(const void *)s->alloc.window;
	for (uint32_t i = 0; i < s->alloc.find_len; i++)
		if (chunk_state(desc[i]) == CHUNK_OWNED &&
		    chunk_owner(desc[i]) != s->link.session_slot)
			return true;
	return false;
}

static void
found(struct rkv_session *s)
{
	struct alloc *a = &s->alloc;
	const uint64_t *window = (const uint64_t *)(const void *)a->window;
	uint32_t i = pick_desc(s, CHUNK_ORPHAN);
	if (i == a->find_len && !free_is_for_others(s))
		i = pick_desc(s, CHUNK_FREE);
	if (i == a->find_len) {
		a->sees_others = a->sees_others || others_are_in_window(s);
		a->find_first += a->find_len;
		job_go_on(s);
		return;
	}
	uint64_t desc = window[i];
	uint32_t class_id = is_adoptable(desc) ? chunk_class(desc) : a->class_id;
	if (class_id > layout_max_class(&s->link.layout)) {
		job_end(s, ERR_CORRUPT);
		return;
	}
	a->find_skip = a->stage == STAGE_FOREIGN ? a->find_first + i + 1 : 0;
	uint64_t mine = chunk_next(desc, CHUNK_OWNED, class_id, s->link.session_slot);
	a->at_hand = chunk_create(&s->link.layout, a->find_first + i, mine);
	if (!a->at_hand)
		job_end(s, ERR_NOMEM);
	else
		post_desc_cas(s, ALLOC_CLAIMED, a->at_hand->index, desc, mine);
}

static void
claimed(struct rkv_session *s)
{
	struct alloc *a = &s->alloc;
	struct chunk *c = a->at_hand;
	if (*a->cas_old != a->claim_desc) {
		chunk_destroy(c);
		a->at_hand = NULL;
		job_go_on(s); /* somebody was faster: reads the window again */
		return;
	}
	c->was_left = chunk_state(a->claim_desc) != CHUNK_ORPHAN;
	c->is_adopted = is_adoptable(a->claim_desc);
	c->is_passing = a->stage == STAGE_FOREIGN;
	c->since = moment_now(&s->client->stamps);
	if (own_add(a, c) != 0) {
		chunk_destroy(c); /* ours by name only: the server orphans it when we leave */
		a->at_hand = NULL;
		job_end(s, ERR_NOMEM);
		return;
	}
	post_map(s, c, ALLOC_MAPPED);
}

static void
mapped(struct rkv_session *s)
{
	struct alloc *a = &s->alloc;
	struct chunk *c = a->at_hand;
	for (uint32_t i = 0; i < c->n_blocks; i++) {
		uint8_t entry = map_entry(a, c, i);
		c->block[i] = c->is_adopted ? entry : (uint16_t)layout_first_tag(entry);
	}
	c->is_mapped = true;
	c->fresh = c->is_adopted ? c->n_blocks : 0;
	c->scanned = c->is_adopted ? 0 : c->n_blocks;
	if (c->is_adopted) {
		s->stats.n_chunks_adopted++;
	} else {
		s->stats.n_chunks_claimed++;
		ready_add(a, c);
	}
	if (a->stage != STAGE_FOREIGN)
		a->at_hand = NULL;
	job_go_on(s);
}

/* ---- Giving back ---- */

static struct chunk *
find_drained(struct rkv_session *s)
{
	struct alloc *a = &s->alloc;
	for (uint32_t i = 0; a->n_draining && i < a->n_own; i++) {
		struct chunk *c = a->own[i];
		if (c->is_draining && c->drain_mark <= s->n_marks_done &&
		    moment_passed(&s->client->stamps, &c->since) && c->n_resting == 0)
			return c;
	}
	return NULL;
}

static void
post_give(struct rkv_session *s, struct chunk *c, uint64_t new_desc)
{
	s->alloc.at_hand = c;
	post_desc_cas(s, ALLOC_GIVEN, c->index, c->desc, new_desc);
}

static void
given(struct rkv_session *s)
{
	struct alloc *a = &s->alloc;
	if (chunk_state(a->new_desc) == CHUNK_FREE)
		s->stats.n_chunks_returned++;
	own_remove(s, a->at_hand);
	a->at_hand = NULL;
	job_go_on(s);
}

/* ---- The job: stages ---- */

static bool
class_is_at_hand(struct rkv_session *s)
{
	struct alloc *a = &s->alloc;
	const struct chunk *first = a->ready[a->class_id];
	for (const struct chunk *c = first; c; c = c->ready_next == first ? NULL : c->ready_next)
		if (c->fresh < c->n_blocks ||
		    (c->ring_n && freed_is_at_hand(s, &c->ring[c->ring_head])))
			return true;
	return false;
}

/* Does the server evict right now? Then it frees blocks in all chunks. */
static bool
is_evicted_from(const struct rkv_session *s)
{
	return s->link.layout.hint_off && chunks_are_short(s);
}

static void
next_stage(struct rkv_session *s)
{
	static const enum alloc_stage take[] = {
		[STAGE_FLUSH] = STAGE_SCAN,     [STAGE_SCAN] = STAGE_REAP_SOME,
		[STAGE_REAP_SOME] = STAGE_GIVE, [STAGE_GIVE] = STAGE_FIND,
		[STAGE_FIND] = STAGE_REAP_ALL,  [STAGE_REAP_ALL] = STAGE_FOREIGN,
		[STAGE_FOREIGN] = STAGE_END,
	};
	static const enum alloc_stage give_back[] = {
		[STAGE_FLUSH] = STAGE_REAP_ALL,
		[STAGE_REAP_ALL] = STAGE_GIVE,
		[STAGE_GIVE] = STAGE_END,
	};
	struct alloc *a = &s->alloc;
	a->stage = a->job == JOB_TAKE ? take[a->stage] : give_back[a->stage];
	a->at_hand = NULL;
	a->find_first = 0;
	a->find_skip = 0;
	bool all = a->stage == STAGE_REAP_ALL || a->n_own < REAP_SOME || is_evicted_from(s);
	a->reap_left = all ? a->n_own : REAP_SOME;
}

/* An adopted chunk of another class: read it to its end; keep it only to drain it. */
static bool
stage_foreign(struct rkv_session *s)
{
	struct alloc *a = &s->alloc;
	struct chunk *c = a->at_hand;
	if (c && c->scanned < c->n_blocks) {
		post_scan(s, c);
		return true;
	}
	if (c && chunk_is_empty(c)) {
		c->is_passing = false;
		drain(s, c);
		a->at_hand = NULL;
	} else if (c) {
		post_give(s, c, desc_left(s, c));
		return true;
	}
	if (fab_now(s->link.fab) - a->foreign_ns < FOREIGN_PAUSE_NS)
		return false;
	if (post_window(s))
		return true;
	a->foreign_ns = fab_now(s->link.fab);
	return false;
}

/* A chunk of the class is not known to its end; not even its map, if the link was lost before. */
static bool
post_unscanned(struct rkv_session *s)
{
	struct chunk *c = find_unscanned(&s->alloc, s->alloc.class_id);
	if (c && c->is_mapped)
		post_scan(s, c);
	else if (c)
		post_map(s, c, ALLOC_MAPPED);
	return c != NULL;
}

/* Posts what the stage needs next; false: the stage has nothing more to offer. */
static bool
stage_post(struct rkv_session *s)
{
	struct alloc *a = &s->alloc;
	struct chunk *c = NULL;
	switch (a->stage) {
	case STAGE_FLUSH:
		if (s->n_marks_done == s->n_marks_posted)
			return false;
		post_flush(s);
		return true;
	case STAGE_SCAN:
		return post_unscanned(s);
	case STAGE_REAP_SOME:
	case STAGE_REAP_ALL:
		c = next_to_reap(a);
		if (c)
			post_map(s, c, ALLOC_REAPED);
		return c != NULL;
	case STAGE_FIND:
		return post_unscanned(s) || post_window(s);
	case STAGE_FOREIGN:
		return stage_foreign(s);
	case STAGE_GIVE:
		c = find_drained(s);
		if (c)
			post_give(s, c, chunk_next(c->desc, CHUNK_FREE, 0, 0));
		return c != NULL;
	case STAGE_END:
		break;
	}
	return false;
}

static bool
class_rests(const struct alloc *a)
{
	for (uint32_t k = 0; k < a->n_resting; k++)
		if (a->resting[(a->first_resting + k) % a->resting_capacity].chunk->class_id ==
		    a->class_id)
			return true;
	return false;
}

/*
 * May others' chunks become free, as they drain, or as their sessions have died? For a while also
 * those that others do not yet know to be empty: they look when chunks run short.
 */
static bool
others_may_give(struct rkv_session *s)
{
	struct alloc *a = &s->alloc;
	struct stamps *st = &s->client->stamps;
	uint64_t newest = atomic_load_explicit(&st->newest, memory_order_relaxed);
	uint64_t *since = &a->lacking_since[a->class_id];
	if (*since == 0 || *since > newest)
		*since = newest;
	return (atomic_load_explicit(&st->flags, memory_order_relaxed) &
		WIRE_STAMP_CHUNKS_COMING) ||
	       (a->sees_others && newest - *since < PATIENCE_STAMPS);
}

/*
 * Nothing was found. ERR_TIMEOUT: blocks of the class are too young to be used again. ERR_AGAIN:
 * memory only waits for a stamp.
 */
static int
verdict(struct rkv_session *s)
{
	struct alloc *a = &s->alloc;
	bool waits = a->n_draining != 0 || class_rests(a);
	for (uint32_t i = 0; i < a->n_own; i++) {
		if (a->own[i]->class_id != a->class_id)
			continue;
		if (a->own[i]->ring_n && !a->own[i]->is_draining)
			return ERR_TIMEOUT;
		waits |= a->own[i]->n_waiting != 0;
	}
	return waits || others_may_give(s) ? ERR_AGAIN : ERR_NO_SPACE;
}

static void
job_go_on(struct rkv_session *s)
{
	struct alloc *a = &s->alloc;
	for (;;) {
		if (a->job == JOB_NONE)
			return; /* a post failed */
		if (a->job == JOB_TAKE && !a->at_hand &&
		    (class_is_at_hand(s) || stop_draining(s, a->class_id))) {
			job_end(s, 0);
			return;
		}
		if (a->stage == STAGE_END) {
			job_end(s, a->job == JOB_TAKE ? verdict(s) : 0);
			return;
		}
		enum alloc_stage stage = a->stage;
		if (stage_post(s))
			return;
		if (a->stage == stage)
			next_stage(s);
	}
}

static void
job_start(struct rkv_session *s, enum alloc_job job, enum alloc_stage stage, uint32_t class_id)
{
	struct alloc *a = &s->alloc;
	a->job = job;
	a->class_id = class_id;
	a->start = s->published;
	a->stage = stage;
	a->at_hand = NULL;
	a->sees_others = false;
	look_at_clock(s);
	job_go_on(s);
}

static void
job_end(struct rkv_session *s, int status)
{
	struct alloc *a = &s->alloc;
	if (status == 0 && a->job == JOB_TAKE)
		a->lacking_since[a->class_id] = 0;
	a->job = JOB_NONE;
	a->at_hand = NULL;
	session_memory_found(s, status);
}

void
alloc_landed(struct rkv_session *s, int status)
{
	struct alloc *a = &s->alloc;
	if (status != 0) {
		if (a->step == ALLOC_CLAIMED)
			chunk_destroy(a->at_hand); /* not in own[] yet */
		if (a->step == ALLOC_GIVEN)
			own_remove(s, a->at_hand); /* in doubt: perhaps another's by now */
		job_end(s, status);
		return;
	}
	if (a->step == ALLOC_FLUSHED || a->step == ALLOC_CLAIMED || a->step == ALLOC_GIVEN)
		session_marks_done(s, a->n_marks_before);
	switch (a->step) {
	case ALLOC_FLUSHED:
		break;
	case ALLOC_SCANNED:
		scanned(s);
		break;
	case ALLOC_REAPED:
		reaped(s);
		break;
	case ALLOC_FOUND:
		found(s);
		return;
	case ALLOC_CLAIMED:
		claimed(s);
		return;
	case ALLOC_MAPPED:
		mapped(s);
		return;
	case ALLOC_GIVEN:
		given(s);
		return;
	}
	if (a->stage != STAGE_FOREIGN)
		a->at_hand = NULL;
	job_go_on(s);
}

void
alloc_give_back(struct rkv_session *s, bool reap)
{
	wake_resting(s);
	if (s->alloc.job == JOB_NONE && s->alloc.n_own)
		job_start(s, JOB_GIVE_BACK, reap ? STAGE_FLUSH : STAGE_GIVE, 0);
}

/* ---- Losing a connection, leaving ---- */

/* Is this mark in doubt? Then the block counts as used: a reap sees whether the mark has landed. */
static void
doubt_ring(struct rkv_session *s, struct chunk *c)
{
	uint32_t n = c->ring_n;
	c->ring_n = 0;
	for (uint32_t k = 0; k < n; k++) {
		struct freed f = c->ring[(c->ring_head + k) & (c->ring_capacity - 1)];
		if (f.mark <= s->n_marks_done) {
			c->ring[(c->ring_head + c->ring_n++) & (c->ring_capacity - 1)] = f;
			continue;
		}
		uint32_t ended = (block_tag_of(c, f.i) + SLOT_TAG_COUNT - 1) % SLOT_TAG_COUNT;
		block_set(c, f.i, BLOCK_USED, ended);
		c->n_used++;
	}
	if (c->ring_n == 0 && c->fresh == c->n_blocks)
		ready_remove(&s->alloc, c);
}

static void
doubt_resting(struct rkv_session *s)
{
	struct alloc *a = &s->alloc;
	uint32_t n = a->n_resting;
	a->n_resting = 0;
	a->n_resting_known = 0;
	for (uint32_t k = 0; k < n; k++) {
		struct resting r = a->resting[(a->first_resting + k) % a->resting_capacity];
		if (r.mark <= s->n_marks_done) {
			a->resting[(a->first_resting + a->n_resting++) % a->resting_capacity] = r;
			continue;
		}
		block_set(r.chunk, r.i, BLOCK_USED, SLOT_TAG_COUNT - 1);
		r.chunk->n_resting--;
		r.chunk->n_used++;
	}
}

void
alloc_link_lost(struct rkv_session *s)
{
	struct alloc *a = &s->alloc;
	doubt_resting(s);
	for (uint32_t i = 0; i < a->n_own; i++) {
		struct chunk *c = a->own[i];
		c->is_unclean = true;
		c->is_passing = false;
		doubt_ring(s, c);
		if (c->is_draining && c->n_used) {
			c->is_draining = false;
			count_draining(s, -1);
		}
		if (c->ring_n || c->fresh < c->scanned)
			ready_add(a, c);
	}
}

struct leave_landing {
	struct landing landing;
	bool done;
};

static void
leave_landed(struct rkv_session *s, struct landing *self, int status)
{
	(void)s;
	(void)status;
	((struct leave_landing *)(void *)self)->done = true;
}

void
alloc_leave(struct rkv_session *s, int64_t deadline_ns)
{
	struct alloc *a = &s->alloc;
	while (a->n_own && s->link.ep && fab_now(s->link.fab) < deadline_ns) {
		struct fab_op ops[FAB_BATCH_MAX];
		unsigned n = 0;
		for (; n < FAB_BATCH_MAX && n < a->n_own; n++) {
			struct chunk *c = a->own[a->n_own - 1 - n];
			ops[n] = (struct fab_op){
				.kind = FAB_CAS,
				.roff = layout_desc_off(&s->link.layout, c->index),
				.piece = {{a->cas_old + n, 8, a->key}},
				.expect = c->desc,
				.swap = desc_left(s, c),
			};
		}
		struct leave_landing l = {.landing = {.landed = leave_landed}};
		if (session_post(s, ops, n, &l.landing) != 0)
			return;
		while (!l.done && fab_now(s->client->fab) < deadline_ns)
			session_pump(s);
		if (!l.done)
			return; /* the session disconnects now: nobody polls for l any more */
		while (n--)
			own_remove(s, a->own[a->n_own - 1]);
	}
}
