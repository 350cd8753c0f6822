/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GET, PUT, DELETE and their kin, from top to bottom: the only copy of the protocol. An operation
 * is a state machine; each step looks at what landed and posts the next batch. {a; b} is one batch:
 * one doorbell, one round trip.
 *
 * GET     warm    {READ block; READ slot}
 *         cold    {READ A; READ B}  {READ block}
 * UPDATE  warm    {WRITE block; CAS slot w->w'; READ slot}
 *         cold    {READ A; READ B}  {READ block}  {WRITE block; CAS; READ slot}
 * INSERT          {READ A; READ B}  {WRITE block; CAS empty->tentative; READ slot; READ A; READ B}
 *                 {CAS tentative->w'; READ slot}
 * DELETE  warm    {CAS w->deleted; READ slot}
 *
 * A and B are the key's two combined buckets. Every word that landed is judged by its block, never
 * alone: a block names itself, [SELF-ID], so that nothing here depends on the order in which READs
 * were sampled. A block that does not validate was recycled or is not placed yet: look again, [G2].
 */
#include "client/op.h"

#include <assert.h>
#include <string.h>

#include "client/key.h"
#include "common/err.h"

#define INVALID_IS_CORRUPT 16u /* looks at one word whose block never validates */
#define BACKOFF_DOUBLINGS 10u
#define EVICTION_WAITS 8u /* for memory, of 1, 2, 4, ... ms: more than two stamps together */

/* ---- Batches ---- */

static struct fab_op *
batch_add(struct op *op, enum fab_kind kind, uint64_t roff)
{
	struct fab_op *f = &op->batch[op->n_batch++];
	f->kind = kind;
	f->roff = roff;
	f->piece[1].len = 0;
	return f;
}

static void
batch_read(struct rkv_session *s, struct op *op, uint64_t roff, void *local, uint32_t len)
{
	batch_add(op, FAB_READ, roff)->piece[0] = (struct fab_piece){local, len, s->arena.key};
	op->stats->n_bytes_read += len;
}

static void
batch_read_slot(struct rkv_session *s, struct op *op, uint64_t off)
{
	batch_read(s, op, off, &op->scratch->slot, 8);
}

/* {READ A; READ B}: where the key lives in this region is computed when it is first looked for. */
static void
batch_read_buckets(struct rkv_session *s, struct op *op)
{
	uint64_t main[2];
	hash_main_buckets(&op->hash, 2 * s->link.layout.n_groups, main);
	for (int i = 0; i < 2; i++) {
		op->bucket_off[i] = layout_combined_off(&s->link.layout, main[i]);
		batch_read(s, op, op->bucket_off[i], op->scratch->bucket[i], LAYOUT_COMBINED_LEN);
	}
}

static void
batch_cas(struct rkv_session *s, struct op *op, uint64_t off, uint64_t expect, uint64_t swap)
{
	struct fab_op *f = batch_add(op, FAB_CAS, off);
	f->piece[0] = (struct fab_piece){&op->scratch->old, 8, s->arena.key};
	f->expect = expect;
	f->swap = swap;
	op->has_atomic = true;
	op->n_marks_before = s->n_marks_posted;
}

/*
 * Posts the batch; `step` looks at what lands. pending: the CAS in it, in case the connection is
 * lost.
 */
static void
post(struct rkv_session *s, struct op *op, enum op_step step, enum op_pending pending)
{
	op->stats->n_round_trips++;
	op->stats->n_requests += op->n_batch;
	op->step = step;
	unsigned n = op->n_batch;
	op->n_batch = 0;
	if (session_post(s, op->batch, n, &op->landing) != 0) {
		op_lost(s, op);
		return;
	}
	op->is_outstanding = true;
	if (pending != PENDING_NO)
		op->pending = pending;
}

/* ---- Ending and trying again ---- */

static void
release_in(struct rkv_session *s, struct op *op)
{
	if (!op->in_run)
		return;
	arena_give(&s->arena, ARENA_IN, op->in_run);
	op->in_run = NULL;
}

/* The new block is not ours any more, or in doubt: whoever it belongs to marks it, [WHO-FREES]. */
static void
drop_block(struct op *op)
{
	op->has_block = false;
	op->is_written = false;
	op->is_in_doubt = false;
}

/* The new block was not published: its owner marks it inside the operation, [WHO-FREES]. */
static void
release_block(struct rkv_session *s, struct op *op)
{
	if (!op->has_block)
		return;
	if (op->is_in_doubt) {
		drop_block(op); /* its header may be another incarnation's: nobody marks */
		return;
	}
	if (op->is_written) {
		session_mark(s, op->mine.off, op->mine.tag, op->start);
		op->stats->n_marks++;
	} else {
		alloc_put_back(s, &op->mine);
	}
	drop_block(op);
}

static void
finish(struct rkv_session *s, struct op *op, int status)
{
	release_in(s, op);
	release_block(s, op);
	if (op->out_run)
		arena_give(&s->arena, ARENA_OUT, op->out_run);
	op->out_run = NULL;
	op->has_tentative = false; /* a GET that gets this place next does not zero it */
	op_complete(s, op, status);
}

/* Marks the block of a word that this operation's CAS took out of its slot. */
static void
mark_word(struct rkv_session *s, struct op *op, uint64_t word)
{
	session_mark(s, slot_block_off(word), slot_tag(word), op->start);
	op->stats->n_marks++;
}

/*
 * Another try: the first at once, the next after a random, growing time. Returns true if the caller
 * goes on, false if the operation sleeps and is run again at its step.
 */
static bool
try_again(struct rkv_session *s, struct op *op)
{
	op->stats->n_retries++;
	if (op->n_again++ == 0)
		return true;
	unsigned doublings = op->n_again < BACKOFF_DOUBLINGS ? op->n_again : BACKOFF_DOUBLINGS;
	uint64_t bound = LIMIT_BACKOFF_MIN_NS << doublings;
	if (bound > LIMIT_BACKOFF_MAX_NS)
		bound = LIMIT_BACKOFF_MAX_NS;
	op_sleep(s, op, SLEEP_TIME,
		 fab_now(s->link.fab) + (int64_t)(fab_rand(s->link.fab) % bound));
	return false;
}

static void
cas_lost(struct op *op)
{
	op->stats->n_cas_lost++;
}

/* ---- Blocks that land ---- */

enum verdict { BLOCK_OURS, BLOCK_OTHER, BLOCK_INVALID };

static bool
is_valid(const struct block_header *h, const struct hash *hash, const void *value, uint64_t word)
{
	uint64_t digest = block_digest(hash, value, h->value_len);
	return h->checksum == block_checksum(slot_with_state(word, SLOT_COMMITTED), digest, h);
}

/* Another key's block, or no block at all? */
static __attribute__((noinline)) enum verdict
judge_other(struct rkv_session *s, struct op *op, uint64_t word)
{
	const struct block_header *h = op->block;
	const unsigned char *key = (const unsigned char *)(h + 1);
	if (!block_lengths_fit(h, op->block_room))
		return BLOCK_INVALID;
	if (op->is_direct && h->key_len != op->key_len) {
		op->no_direct =
			true; /* key and value are cut elsewhere: read it again in one piece */
		return BLOCK_INVALID;
	}
	struct hash hash = hash_key(key, h->key_len, s->link.layout.hash_seed);
	const unsigned char *value = op->is_direct ? op->block_value : key + h->key_len;
	bool valid = hash_fingerprint(&hash) == slot_fingerprint(word) &&
		     is_valid(h, &hash, value, word);
	return valid ? BLOCK_OTHER : BLOCK_INVALID;
}

static enum verdict
judge(struct rkv_session *s, struct op *op, uint64_t word)
{
	const struct block_header *h = op->block;
	const unsigned char *key = (const unsigned char *)(h + 1);
	if (block_tag(h) != slot_tag(word))
		return BLOCK_INVALID;
	if (h->key_len == op->key_len && key_equal(key, op->key, op->key_len)) {
		if (block_len(op->key_len, h->value_len) > op->block_room)
			return BLOCK_INVALID;
		if (!op->is_direct)
			op->block_value = key + op->key_len;
		return is_valid(h, &op->hash, op->block_value, word) ? BLOCK_OURS : BLOCK_INVALID;
	}
	return judge_other(s, op, word);
}

/* Judges what landed, and counts how often one word's block did not validate. */
static enum verdict
block_landed(struct rkv_session *s, struct op *op)
{
	enum verdict v = judge(s, op, op->entry.word);
	if (v != BLOCK_INVALID)
		return v;
	op->n_invalid = op->entry.word == op->invalid_word ? op->n_invalid + 1 : 1;
	op->invalid_word = op->entry.word;
	return v;
}

/* May a large value land in the caller's own buffer? It takes whole granules. */
static bool
lands_direct(struct rkv_session *s, const struct op *op, uint64_t len, uint32_t *ret_key)
{
	const struct rkv_request *r = op->request;
	uint64_t head = BLOCK_HEADER_LEN + op->key_len;
	if (r->op != RKV_OP_GET || op->no_direct || len <= head || r->buf_len < len - head)
		return false;
	*ret_key = 0;
	return s->link.fab->driver->reaches_all_memory ||
	       client_find_buffer(s->client, r->buf, len - head, ret_key);
}

/*
 * Adds a READ of the block of entry.word. False: not now; the operation sleeps, to be run again at
 * its step.
 */
static bool
batch_read_block(struct rkv_session *s, struct op *op)
{
	uint64_t word = op->entry.word;
	uint64_t len = slot_read_len(word);
	uint64_t off = slot_block_off(word);
	uint32_t head = BLOCK_HEADER_LEN + op->key_len;
	uint32_t key;
	release_in(s, op);
	op->is_direct = false;
	op->block_room = len;
	op->block = (const struct block_header *)(const void *)op->scratch->in;
	if (!layout_block_in_range(&s->link.layout, word)) {
		op->n_invalid = INVALID_IS_CORRUPT; /* [RANGE]: no client has written such a word */
		op_sleep(s, op, SLEEP_TIME, INT64_MAX);
		return false;
	}
	if (len <= OP_INLINE_BLOCK) {
		batch_read(s, op, off, op->scratch->in, (uint32_t)len);
		return true;
	}
	if (lands_direct(s, op, len, &key)) {
		op->is_direct = true;
		op->block_value = op->request->buf;
		batch_read(s, op, off, op->scratch->in, head);
		struct fab_op *f = &op->batch[op->n_batch - 1];
		f->piece[1] = (struct fab_piece){op->request->buf, (uint32_t)len - head, key};
		op->stats->n_bytes_read += len - head;
		return true;
	}
	op->in_run = arena_take(&s->arena, ARENA_IN, len);
	if (!op->in_run) {
		op_sleep(s, op, SLEEP_TIME, 0);
		return false;
	}
	op->block = op->in_run;
	batch_read(s, op, off, op->in_run, (uint32_t)len);
	return true;
}

/*
 * [HINT] For eviction: notes in the batch that the block of this word, which is in range, is used.
 * One signalled completion and one round trip are enough for the batch as before.
 */
static __attribute__((noinline)) void
batch_hint(struct rkv_session *s, struct op *op, uint64_t word)
{
	uint64_t off = layout_hint_off(&s->link.layout, slot_block_off(word));
	op->scratch->hint = op->start;
	batch_add(op, FAB_WRITE, off)->piece[0] =
		(struct fab_piece){&op->scratch->hint, LAYOUT_HINT_LEN, s->arena.key};
}

static inline bool
has_hints(const struct rkv_session *s)
{
	return __builtin_expect(s->link.layout.has_hints != 0, 0);
}

/*
 * A GET is about to READ the block of entry.word: a hint, unless the cache says that this session
 * used the key at this stamp already. Mutations hint at the block that they write.
 */
static __attribute__((noinline)) void
batch_hint_of_get(struct rkv_session *s, struct op *op)
{
	bool is_cached = op->is_warm && op->cache_changes == s->cache.n_changes;
	if (op->request->op == RKV_OP_GET && !(is_cached && op->cached->stamp == op->start))
		batch_hint(s, op, op->entry.word);
}

/* ---- Finding the key's entry ---- */

/* Words that may be the key's: committed, and tentative if asked for; the own one is left out. */
static void
collect(struct op *op, bool with_tentative)
{
	op->n_candidates = 0;
	op->next_candidate = 0;
	for (uint32_t b = 0; b < 2; b++) {
		for (uint32_t i = 0; i < LAYOUT_COMBINED_SLOTS; i++) {
			uint64_t word = op->scratch->bucket[b][i / LAYOUT_BUCKET_SLOTS]
						.slot[i % LAYOUT_BUCKET_SLOTS];
			uint64_t off = op->bucket_off[b] + layout_slot_in_combined(i);
			if (!slot_refers(word) ||
			    slot_fingerprint(word) != hash_fingerprint(&op->hash))
				continue;
			if (slot_state(word) == SLOT_TENTATIVE && !with_tentative)
				continue;
			if (op->has_tentative && off == op->own.off)
				continue;
			/*
			 * A shared overflow bucket was sampled twice: a slot that changed counts
			 * with both.
			 */
			op->candidate[op->n_candidates++] = (struct place){off, word};
		}
	}
}

static bool
may_be_ours(const struct op *op, uint64_t word)
{
	return word != 0 && slot_state(word) == SLOT_COMMITTED &&
	       slot_fingerprint(word) == hash_fingerprint(&op->hash);
}

enum found { FOUND_NOT_YET, FOUND_HERE, FOUND_ABSENT };

static enum found
find_post(struct rkv_session *s, struct op *op, enum find_step landed)
{
	op->find = landed;
	post(s, op, STEP_FIND, PENDING_NO);
	return FOUND_NOT_YET;
}

/* {READ block; READ slot} landed. Go on with the slot just read; never conclude a miss from it. */
static bool
warm_landed(struct rkv_session *s, struct op *op)
{
	uint64_t slot = op->scratch->slot;
	enum verdict v = slot == op->entry.word ? block_landed(s, op) : BLOCK_INVALID;
	if (v == BLOCK_OURS)
		return true;
	s->stats.n_cache_stale += op->is_warm;
	op->is_warm = false;
	if (v == BLOCK_OTHER || !may_be_ours(op, slot)) {
		cache_drop(&s->cache, &op->hash, op->key, op->key_len);
		op->find = FIND_LOOK;
	} else {
		op->entry.word = slot;
		op->find = FIND_SLOT;
	}
	op->stats->n_retries++;
	return false;
}

/*
 * Finds the key: FOUND_HERE with entry and block, sampled by this operation; or FOUND_ABSENT, with
 * both buckets landed, neither of which held it, [G4].
 */
static enum found
find(struct rkv_session *s, struct op *op)
{
	for (;;) {
		switch (op->find) {
		case FIND_WARM:
			if (!batch_read_block(s, op))
				return FOUND_NOT_YET;
			if (has_hints(s))
				batch_hint_of_get(s, op);
			batch_read_slot(s, op, op->entry.off);
			return find_post(s, op, FIND_WARM_LANDED);
		case FIND_WARM_LANDED:
			if (warm_landed(s, op))
				return FOUND_HERE;
			break;
		case FIND_SLOT:
			if (!batch_read_block(s, op))
				return FOUND_NOT_YET;
			return find_post(s, op, FIND_SLOT_LANDED);
		case FIND_SLOT_LANDED:
			if (block_landed(s, op) == BLOCK_OURS)
				return FOUND_HERE;
			op->find = FIND_LOOK;
			break;
		case FIND_LOOK:
			batch_read_buckets(s, op);
			return find_post(s, op, FIND_LOOK_LANDED);
		case FIND_LOOK_LANDED:
			collect(op, false); /* [G1] */
			op->find = FIND_BLOCK;
			break;
		case FIND_BLOCK:
			if (op->next_candidate == op->n_candidates)
				return FOUND_ABSENT;
			op->entry = op->candidate[op->next_candidate];
			if (!batch_read_block(s, op))
				return FOUND_NOT_YET;
			if (has_hints(s))
				batch_hint_of_get(s, op);
			return find_post(s, op, FIND_BLOCK_LANDED);
		case FIND_BLOCK_LANDED:
			switch (block_landed(s, op)) {
			case BLOCK_OURS:
				return FOUND_HERE;
			case BLOCK_OTHER: /* [G3] */
				op->next_candidate++;
				op->find = FIND_BLOCK;
				break;
			case BLOCK_INVALID: /* [G2] */
				op->find = FIND_LOOK;
				if (!try_again(s, op))
					return FOUND_NOT_YET;
				break;
			}
			break;
		}
	}
}

/*
 * Begins at the cached entry, or cold. [STAMP]: only a word that was READ not longer than T_WORD
 * before this operation's start; the cache has compared the full key. An older one may come round
 * again between the two READs of {READ block; READ slot}: decisions/0005.
 */
static void
find_start(struct rkv_session *s, struct op *op)
{
	struct cache_entry *e = cache_find(&s->cache, &op->hash, op->key, op->key_len);
	if (e && e->stamp + LIMIT_WORD_STAMPS < op->start)
		e = NULL;
	op->step = STEP_FIND;
	op->cached = e;
	if (!e) {
		op->find = FIND_LOOK;
		op->is_warm = false;
		s->stats.n_cache_misses++;
		return;
	}
	op->find = FIND_WARM;
	op->is_warm = true;
	s->stats.n_cache_hits++;
	op->entry = (struct place){e->slot_off, e->word};
	op->cache_changes = s->cache.n_changes;
}

static void
find_again(struct op *op, enum find_step from)
{
	op->step = STEP_FIND;
	op->find = from;
	op->alloc_status = 0;
}

static bool
is_expired(struct rkv_session *s, uint32_t expiry)
{
	return expiry != 0 && session_wall_s(s) > expiry;
}

/* Notes where the key is, with the start of this operation, which READ the word, as its stamp. */
static void
remember(struct rkv_session *s, struct op *op, struct place place, uint32_t expiry)
{
	struct cache_entry *e = op->cached;
	if (!e || op->cache_changes != s->cache.n_changes) {
		cache_put(&s->cache, &op->hash, op->key, op->key_len, place.off, place.word,
			  op->start, expiry);
		return;
	}
	e->slot_off = place.off;
	e->word = place.word;
	e->stamp = op->start;
	e->expiry = expiry;
}

/* ---- GET ---- */

/* Seconds until an expiry, at least 1. */
static uint32_t
ttl_left_s(struct rkv_session *s, uint32_t expiry)
{
	uint32_t now_s = session_wall_s(s);
	return expiry > now_s ? expiry - now_s : 1;
}

/* Entry and block are here: gives the value to the caller. */
static int
get_take(struct rkv_session *s, struct op *op)
{
	const struct block_header *h = op->block;
	struct rkv_request *r = op->request;
	r->item.ttl_s = 0;
	if (h->expiry != 0) {
		if (is_expired(s, h->expiry))
			return ERR_NOT_FOUND;
		r->item.ttl_s = ttl_left_s(s, h->expiry);
	}
	remember(s, op, op->entry, h->expiry);
	r->item.value_len = h->value_len;
	r->item.version = h->version;
	r->item.user_flags = h->user_flags;
	if (r->buf_len < h->value_len)
		return ERR_TOO_SMALL;
	if (!op->is_direct && h->value_len)
		memcpy(r->buf, op->block_value, h->value_len);
	return 0;
}

static void
get_run(struct rkv_session *s, struct op *op)
{
	if (op->step == STEP_START)
		find_start(s, op);
	switch (find(s, op)) {
	case FOUND_HERE:
		finish(s, op, get_take(s, op));
		return;
	case FOUND_ABSENT:
		finish(s, op, ERR_NOT_FOUND);
		return;
	case FOUND_NOT_YET:
		return;
	}
}

/* ---- The new block ---- */

/*
 * No memory was found where the server evicts: it is about to make some. True: the operation sleeps
 * until then; false: it has waited long enough.
 */
static bool
await_eviction(struct rkv_session *s, struct op *op)
{
	if (!has_hints(s) || op->n_short == EVICTION_WAITS)
		return false;
	op_sleep(s, op, SLEEP_TIME,
		 fab_now(s->link.fab) + (int64_t)(LIMIT_BACKOFF_MAX_NS << op->n_short++));
	return true;
}

/* Gets memory for a block of these lengths; false: the operation sleeps, or has ended. */
static bool
take_block(struct rkv_session *s, struct op *op)
{
	uint32_t n_granules = (uint32_t)block_granules(block_len(op->key_len, op->value_len));
	if (op->has_block && op->mine.block_class != layout_class_of(n_granules))
		release_block(s, op);
	if (op->has_block)
		return true;
	int status = op->alloc_status;
	op->alloc_status = 0;
	if (status == ERR_AGAIN || status == ERR_NO_SPACE) {
		if (!await_eviction(s, op))
			finish(s, op, has_hints(s) ? ERR_AGAIN : status);
		return false;
	}
	if (status < 0 && status != ERR_TIMEOUT) {
		finish(s, op, status);
		return false;
	}
	int64_t wake_ns = 0;
	int rc = status == ERR_TIMEOUT ? ERR_TIMEOUT
				       : alloc_take(s, n_granules, &op->mine, &wake_ns);
	if (rc == 0) {
		op->new_version = session_version(s);
		op->has_block = true;
		if (op->new_version)
			return true;
		finish(s, op, ERR_AGAIN); /* the serial is spent; the next one is on its way */
		return false;
	}
	if (rc == ERR_TIMEOUT) {
		op_sleep(s, op, SLEEP_TIME,
			 wake_ns ? wake_ns : fab_now(s->link.fab) + (int64_t)LIMIT_REUSE_NS);
	} else {
		op->alloc_class = layout_class_of(n_granules);
		op_sleep(s, op, SLEEP_MEMORY, 0);
	}
	return false;
}

static uint32_t
expiry_of(struct rkv_session *s, const struct op *op)
{
	uint32_t ttl_s = op->request->options.ttl_s;
	return ttl_s ? session_wall_s(s) + ttl_s : 0;
}

/* Header and key go to the scratch, the value too if it fits; prev is what the CAS expects. */
static void
fill_block(struct op *op, uint64_t prev)
{
	struct block_header *h = (struct block_header *)(void *)op->scratch->out;
	uint64_t len = block_len(op->key_len, op->value_len);
	if (!op->has_digest)
		op->digest = block_digest(&op->hash, op->value, op->value_len);
	op->has_digest = true;
	*h = (struct block_header){
		.prev = prev,
		.version = op->new_version,
		.value_len = (uint32_t)op->value_len,
		.expiry = op->new_expiry,
		.user_flags = op->new_flags,
		.key_len = (uint16_t)op->key_len,
		.tag_flags = (uint16_t)op->mine.tag,
	};
	op->new_word = block_word(op->mine.off, h, &op->hash);
	h->checksum = block_checksum(op->new_word, op->digest, h);
	memcpy(h + 1, op->key, op->key_len);
	if (len <= OP_INLINE_BLOCK && op->value_len)
		memcpy((unsigned char *)(h + 1) + op->key_len, op->value, op->value_len);
}

/* Where a value that does not fit the scratch goes out from; false: the operation sleeps. */
static bool
place_value(struct rkv_session *s, struct op *op, struct fab_piece *ret_piece)
{
	uint32_t key = s->arena.key;
	bool landed_here = op->request->op == RKV_OP_TOUCH;
	*ret_piece = (struct fab_piece){(void *)(uintptr_t)op->value, (uint32_t)op->value_len, key};
	if (landed_here || s->link.fab->driver->reaches_all_memory)
		return true;
	if (client_find_buffer(s->client, op->value, op->value_len, &key)) {
		ret_piece->key = key;
		return true;
	}
	if (!op->out_run) {
		op->out_run = arena_take(&s->arena, ARENA_OUT, op->value_len);
		if (!op->out_run) {
			op_sleep(s, op, SLEEP_TIME, 0);
			return false;
		}
		memcpy(op->out_run, op->value, op->value_len);
	}
	ret_piece->local = op->out_run;
	return true;
}

/* Adds the WRITE of the new block, [IMMUTABLE]; false: the operation sleeps, or has ended. */
static bool
batch_write_block(struct rkv_session *s, struct op *op, uint64_t prev)
{
	struct fab_piece value;
	uint64_t len = block_len(op->key_len, op->value_len);
	bool is_inline = len <= OP_INLINE_BLOCK;
	if (!take_block(s, op) || (!is_inline && !place_value(s, op, &value)))
		return false;
	fill_block(op, prev);
	struct fab_op *f = batch_add(op, FAB_WRITE, op->mine.off);
	uint32_t head = is_inline ? (uint32_t)len : BLOCK_HEADER_LEN + op->key_len;
	f->piece[0] = (struct fab_piece){op->scratch->out, head, s->arena.key};
	if (!is_inline)
		f->piece[1] = value;
	op->stats->n_bytes_written += len;
	op->is_written = true;
	if (has_hints(s))
		batch_hint(s, op, op->new_word);
	return true;
}

static void
mutation_done(struct rkv_session *s, struct op *op)
{
	op->request->item.version = op->new_version;
	op->request->item.value_len = op->value_len;
	drop_block(op); /* published: the slot's from now on */
	remember(s, op, (struct place){op->entry.off, op->new_word}, op->new_expiry);
	finish(s, op, 0);
}

/* ---- UPDATE: [PUBLISH] WRITE before CAS; [VISIBLE] READ slot behind it ---- */

static void
update_post(struct rkv_session *s, struct op *op)
{
	op->step = STEP_WRITE;
	if (!batch_write_block(s, op, op->entry.word))
		return;
	batch_cas(s, op, op->entry.off, op->entry.word, op->new_word);
	batch_read_slot(s, op, op->entry.off);
	post(s, op, STEP_UPDATED, PENDING_UPDATE);
}

/* A CAS on the entry was lost: the READ behind it tells what is there now. True: run on. */
static bool
lost_to_another(struct rkv_session *s, struct op *op)
{
	uint64_t slot = op->scratch->slot;
	cas_lost(op);
	s->stats.n_cache_stale += op->is_warm;
	op->is_warm = false;
	if (may_be_ours(op, slot)) {
		op->entry.word = slot;
		find_again(op, FIND_WARM);
	} else {
		cache_drop(&s->cache, &op->hash, op->key, op->key_len);
		find_again(op, FIND_LOOK);
	}
	return try_again(s, op);
}

static void mutate_run(struct rkv_session *s, struct op *op);

static void
updated(struct rkv_session *s, struct op *op)
{
	if (op->scratch->old == op->entry.word) { /* [HONEST] */
		mark_word(s, op, op->entry.word);
		mutation_done(s, op);
	} else if (lost_to_another(s, op)) {
		mutate_run(s, op);
	}
}

/* ---- DELETE ---- */

static void
delete_post(struct rkv_session *s, struct op *op)
{
	uint64_t word = op->entry.word;
	batch_cas(s, op, op->entry.off, word, slot_with_state(word, SLOT_DELETED));
	batch_read_slot(s, op, op->entry.off);
	post(s, op, STEP_DELETED, PENDING_DELETE);
}

static void
deleted(struct rkv_session *s, struct op *op)
{
	if (op->scratch->old == op->entry.word) {
		mark_word(s, op, op->entry.word);
		cache_drop(&s->cache, &op->hash, op->key, op->key_len);
		finish(s, op, 0);
	} else if (lost_to_another(s, op)) {
		mutate_run(s, op);
	}
}

/* ---- INSERT: one committed word per key ---- */

/* Empty slots of the main (or overflow) bucket of A (0) or B (1); the first one's place. */
static uint32_t
count_empty(const struct rkv_session *s, const struct op *op, uint32_t b, bool overflow,
	    struct place *ret_first)
{
	/* In a combined bucket the main one comes first on the left side of its group. */
	bool is_left = (op->bucket_off[b] - s->link.layout.index_off) % LAYOUT_GROUP_LEN == 0;
	uint32_t half = is_left == overflow;
	uint32_t n = 0;
	for (uint32_t i = 0; i < LAYOUT_BUCKET_SLOTS; i++) {
		uint64_t word = op->scratch->bucket[b][half].slot[i];
		if (!slot_is_empty(word))
			continue;
		if (n++ == 0)
			*ret_first = (struct place){
				op->bucket_off[b] +
					layout_slot_in_combined(half * LAYOUT_BUCKET_SLOTS + i),
				word};
	}
	return n;
}

/* The emptier main bucket, else an overflow bucket. */
static bool
choose_empty(const struct rkv_session *s, const struct op *op, struct place *ret_place)
{
	for (int overflow = 0; overflow < 2; overflow++) {
		struct place first[2];
		uint32_t n_a = count_empty(s, op, 0, overflow, &first[0]);
		uint32_t n_b = count_empty(s, op, 1, overflow, &first[1]);
		if (n_a || n_b) {
			*ret_place = first[n_b > n_a];
			return true;
		}
	}
	return false;
}

/* A tentative word, of whatever key: its slot is about to be empty, or to be taken for good. */
static bool
find_tentative(const struct rkv_session *s, const struct op *op, struct place *ret_place)
{
	for (uint32_t b = 0; b < 2; b++)
		for (uint32_t i = 0; i < LAYOUT_COMBINED_SLOTS; i++) {
			uint64_t word = op->scratch->bucket[b][i / LAYOUT_BUCKET_SLOTS]
						.slot[i % LAYOUT_BUCKET_SLOTS];
			if (word == 0 || slot_state(word) != SLOT_TENTATIVE ||
			    !layout_block_in_range(&s->link.layout, word)) /* [RANGE] */
				continue;
			*ret_place = (struct place){op->bucket_off[b] + layout_slot_in_combined(i),
						    word};
			return true;
		}
	return false;
}

/*
 * Where values are evicted: one of those that fill the buckets, whichever it is. The server keeps
 * slots empty by age; that all of a key's are taken is rare, and it could not know which they are.
 */
static bool
find_committed(struct rkv_session *s, const struct op *op, struct place *ret_place)
{
	uint32_t from = (uint32_t)(fab_rand(s->link.fab) % OP_CANDIDATES_MAX);
	for (uint32_t k = 0; k < OP_CANDIDATES_MAX; k++) {
		uint32_t at = (from + k) % OP_CANDIDATES_MAX;
		uint32_t b = at / LAYOUT_COMBINED_SLOTS, i = at % LAYOUT_COMBINED_SLOTS;
		uint64_t word = op->scratch->bucket[b][i / LAYOUT_BUCKET_SLOTS]
					.slot[i % LAYOUT_BUCKET_SLOTS];
		if (word == 0 || slot_state(word) != SLOT_COMMITTED ||
		    !layout_block_in_range(&s->link.layout, word)) /* [RANGE] */
			continue;
		*ret_place = (struct place){op->bucket_off[b] + layout_slot_in_combined(i), word};
		return true;
	}
	return false;
}

static uint64_t
sampled_word(const struct op *op, uint64_t off)
{
	for (uint32_t b = 0; b < 2; b++)
		for (uint32_t i = 0; i < LAYOUT_COMBINED_SLOTS; i++)
			if (op->bucket_off[b] + layout_slot_in_combined(i) == off)
				return op->scratch->bucket[b][i / LAYOUT_BUCKET_SLOTS]
					.slot[i % LAYOUT_BUCKET_SLOTS];
	return 0;
}

/*
 * T_TENT. A round trip during which this thread stood still says nothing about the rival's: hence
 * the bound. Where all of them take so long, doubling gets there.
 */
static int64_t
tentative_ns(const struct op *op)
{
	int64_t least = (int64_t)LIMIT_TENTATIVE_NS;
	int64_t most = (int64_t)LIMIT_TENTATIVE_MAX_NS;
	int64_t base = LIMIT_TENTATIVE_RTTS * op->rtt_ns;
	if (base < least)
		base = least;
	if (base > most)
		base = most;
	return base << (op->n_rivals < BACKOFF_DOUBLINGS ? op->n_rivals : BACKOFF_DOUBLINGS);
}

/* Looks again, until the rival's word is gone or its time is over. */
static void
await_rival(struct rkv_session *s, struct op *op)
{
	find_again(op, FIND_LOOK);
	if (try_again(s, op))
		mutate_run(s, op);
}

static void
set_rival(struct rkv_session *s, struct op *op, struct place rival, bool is_in_the_way)
{
	op->rival = rival;
	op->rival_is_in_the_way = is_in_the_way;
	op->rival_until_ns = fab_now(s->link.fab) + tentative_ns(op);
	op->n_rivals++;
	await_rival(s, op);
}

static void
kill_rival(struct rkv_session *s, struct op *op)
{
	batch_cas(s, op, op->rival.off, op->rival.word,
		  slot_with_state(op->rival.word, SLOT_DELETED));
	post(s, op, STEP_RIVAL_KILLED, PENDING_KILL);
}

/*
 * [I3] A tentative word of the same key goes first. While the very same word stays, wait; after
 * T_TENT kill it, which is always safe. True: it is gone, go on.
 */
static bool
rival_is_gone(struct rkv_session *s, struct op *op)
{
	if (op->rival.off == 0)
		return true;
	if (sampled_word(op, op->rival.off) != op->rival.word) {
		op->rival.off = 0;
		return true;
	}
	if (fab_now(s->link.fab) < op->rival_until_ns) {
		await_rival(s, op);
		return false;
	}
	kill_rival(s, op);
	return false;
}

static void
rival_killed(struct rkv_session *s, struct op *op)
{
	if (op->scratch->old == op->rival.word)
		mark_word(s, op, op->rival.word);
	op->rival.off = 0;
	find_again(op, FIND_LOOK);
	if (!has_hints(s) || try_again(s, op)) /* others may take the slot of what was evicted */
		mutate_run(s, op);
}

/*
 * Two inserters that miss each other are the store-buffering pattern. The READ of the own slot
 * between the CAS and the READs of the buckets rules that out where atomics of one device are
 * executed one at a time; where they are only ordered for each word, the READs have to wait for it,
 * [I1].
 */
static bool
is_strict(const struct rkv_session *s)
{
	return s->client->options.strict_insert;
}

/*
 * No slot is empty. Whoever has a tentative word gives its slot up soon, takes it for good, or is
 * no more. The server's scrubber cannot see to that while we wait, for we hold the stamp that it
 * waits for: so such a word, of whatever key, is a rival like one of the same key, [I3].
 */
static void
insert_crowded(struct rkv_session *s, struct op *op)
{
	struct place place;
	if (find_tentative(s, op, &place))
		set_rival(s, op, place, true);
	else if (has_hints(s) && find_committed(s, op, &op->rival))
		kill_rival(s, op);
	else
		finish(s, op, ERR_INDEX_FULL);
}

/* [I1] Both buckets have landed and the key is absent. */
static void
insert_post(struct rkv_session *s, struct op *op)
{
	op->step = STEP_INSERT;
	bool has_room = choose_empty(s, op, &op->own);
	if (has_room && op->rival_is_in_the_way)
		op->rival.off = 0;
	if (!rival_is_gone(s, op))
		return;
	if (!has_room) {
		insert_crowded(s, op);
		return;
	}
	if (!batch_write_block(s, op, op->own.word))
		return;
	batch_cas(s, op, op->own.off, op->own.word, slot_with_state(op->new_word, SLOT_TENTATIVE));
	batch_read_slot(s, op, op->own.off);
	if (!is_strict(s))
		batch_read_buckets(s, op);
	op->posted_ns = fab_now(s->link.fab);
	post(s, op, STEP_TENTATIVE, PENDING_TENTATIVE);
}

static uint64_t
own_tentative(const struct op *op)
{
	return slot_with_state(op->new_word, SLOT_TENTATIVE);
}

/* Start over with a new block: this one belongs to whoever removed its word, [I6]. */
static void
start_over(struct rkv_session *s, struct op *op)
{
	drop_block(op);
	op->has_tentative = false;
	cas_lost(op);
	find_again(op, FIND_LOOK);
	if (try_again(s, op))
		mutate_run(s, op);
}

/* Looks at the buckets again, the own tentative word in place. */
static void
recheck_post(struct rkv_session *s, struct op *op)
{
	batch_read_buckets(s, op);
	post(s, op, STEP_RECHECKED, PENDING_NO);
}

static void examine(struct rkv_session *s, struct op *op);

static void
tentative_landed(struct rkv_session *s, struct op *op)
{
	op->rtt_ns = fab_now(s->link.fab) - op->posted_ns;
	if (op->scratch->old != op->own.word) {
		cas_lost(op); /* somebody took the slot; the buckets behind the CAS are fresh */
		find_again(op, is_strict(s) ? FIND_LOOK : FIND_LOOK_LANDED);
		if (try_again(s, op))
			mutate_run(s, op);
		return;
	}
	if (op->scratch->slot != own_tentative(op)) {
		start_over(s, op); /* killed already, [I6] */
		return;
	}
	op->has_tentative = true;
	if (is_strict(s)) {
		recheck_post(s, op);
		return;
	}
	collect(op, true);
	examine(s, op);
}

static void
commit_post(struct rkv_session *s, struct op *op)
{
	batch_cas(s, op, op->own.off, own_tentative(op), op->new_word); /* [I5] */
	batch_read_slot(s, op, op->own.off);
	post(s, op, STEP_COMMITTED, PENDING_COMMIT);
}

/* [I2] Looks at every word that may be the key's; when none is left, commits. */
static void
examine(struct rkv_session *s, struct op *op)
{
	op->step = STEP_EXAMINE;
	if (op->next_candidate == op->n_candidates) {
		commit_post(s, op);
		return;
	}
	op->entry = op->candidate[op->next_candidate];
	if (batch_read_block(s, op))
		post(s, op, STEP_CANDIDATE, PENDING_NO);
}

static void
recheck(struct rkv_session *s, struct op *op)
{
	op->step = STEP_RECHECK;
	if (try_again(s, op))
		recheck_post(s, op);
}

static void
withdraw_post(struct rkv_session *s, struct op *op, enum op_step then)
{
	uint64_t tentative = own_tentative(op);
	batch_cas(s, op, op->own.off, tentative, slot_with_state(tentative, SLOT_DELETED));
	post(s, op, then, PENDING_WITHDRAW);
}

/* A word of the very same key. */
static void
same_key(struct rkv_session *s, struct op *op)
{
	uint64_t word = op->entry.word;
	op->goes_to_update = slot_state(word) == SLOT_COMMITTED;
	if (op->goes_to_update || op->entry.off < op->own.off) { /* [I2], [I3] */
		withdraw_post(s, op, STEP_WITHDRAWN);
		return;
	}
	batch_cas(s, op, op->entry.off, word, slot_with_state(word, SLOT_DELETED)); /* [I4] */
	post(s, op, STEP_KILLED, PENDING_KILL);
}

static void
candidate_landed(struct rkv_session *s, struct op *op)
{
	switch (block_landed(s, op)) {
	case BLOCK_OURS:
		same_key(s, op);
		return;
	case BLOCK_OTHER:
		op->next_candidate++;
		examine(s, op);
		return;
	case BLOCK_INVALID:
		recheck(s, op);
		return;
	}
}

static void
killed(struct rkv_session *s, struct op *op)
{
	if (op->scratch->old != op->entry.word) {
		recheck(s, op); /* gone, another, or committed: look again */
		return;
	}
	mark_word(s, op, op->entry.word);
	op->next_candidate++;
	examine(s, op);
}

static void here(struct rkv_session *s, struct op *op);

static void
withdrawn(struct rkv_session *s, struct op *op)
{
	if (op->scratch->old != own_tentative(op)) {
		start_over(s, op);
		return;
	}
	op->has_tentative = false; /* the block is still ours */
	if (op->goes_to_update) {
		here(s, op);
		return;
	}
	set_rival(s, op, op->entry, false);
}

static void
committed(struct rkv_session *s, struct op *op)
{
	if (op->scratch->old != own_tentative(op)) {
		start_over(s, op);
		return;
	}
	op->has_tentative = false;
	op->entry.off = op->own.off;
	mutation_done(s, op);
}

/* ---- What the kinds of mutation make of it ---- */

/* The key is there: entry and block, sampled by this operation. */
static void
here(struct rkv_session *s, struct op *op)
{
	const struct block_header *h = op->block;
	enum rkv_op kind = op->request->op;
	bool absent = is_expired(s, h->expiry);
	if (absent && kind != RKV_OP_PUT && kind != RKV_OP_ADD) {
		finish(s, op, ERR_NOT_FOUND);
		return;
	}
	if (kind == RKV_OP_ADD && !absent) {
		finish(s, op, ERR_EXISTS);
		return;
	}
	if (kind == RKV_OP_CAS && h->version != op->request->version) {
		finish(s, op, ERR_MISMATCH);
		return;
	}
	if (kind == RKV_OP_DELETE) {
		op->step = STEP_DELETE;
		delete_post(s, op);
		return;
	}
	if (kind == RKV_OP_TOUCH) {
		op->value = op->block_value;
		op->value_len = h->value_len;
		op->new_flags = h->user_flags;
		op->has_digest = false;
	} else {
		release_in(s, op); /* judged: who waits for outgoing memory holds no incoming */
	}
	update_post(s, op);
}

static void
absent(struct rkv_session *s, struct op *op)
{
	if (op->request->op == RKV_OP_PUT || op->request->op == RKV_OP_ADD)
		insert_post(s, op);
	else
		finish(s, op, ERR_NOT_FOUND);
}

static void
mutate_start(struct rkv_session *s, struct op *op)
{
	enum rkv_op kind = op->request->op;
	if (kind != RKV_OP_TOUCH) {
		op->value = op->request->value;
		op->value_len = op->request->value_len;
		op->new_flags = op->request->options.user_flags;
	}
	op->new_expiry = expiry_of(s, op);
	find_start(s, op);
	if (!op->is_warm || is_expired(s, op->cached->expiry))
		return;
	/* A warm word may be expected by a CAS without looking. */
	if (kind == RKV_OP_PUT)
		op->step = STEP_WRITE;
	else if (kind == RKV_OP_DELETE)
		op->step = STEP_DELETE;
}

static void resolve(struct rkv_session *s, struct op *op);
static void resolve_slot(struct rkv_session *s, struct op *op);
static void resolve_read(struct rkv_session *s, struct op *op);
static void resolve_block(struct rkv_session *s, struct op *op);

static void
mutate_find(struct rkv_session *s, struct op *op)
{
	switch (find(s, op)) {
	case FOUND_HERE:
		here(s, op);
		return;
	case FOUND_ABSENT:
		absent(s, op);
		return;
	case FOUND_NOT_YET:
		return;
	}
}

static void
mutate_run(struct rkv_session *s, struct op *op)
{
	if (op->step == STEP_START)
		mutate_start(s, op);
	switch (op->step) {
	case STEP_START:
	case STEP_FIND:
		mutate_find(s, op);
		return;
	case STEP_WRITE:
		update_post(s, op);
		return;
	case STEP_UPDATED:
		updated(s, op);
		return;
	case STEP_DELETE:
		delete_post(s, op);
		return;
	case STEP_DELETED:
		deleted(s, op);
		return;
	case STEP_INSERT:
		insert_post(s, op);
		return;
	case STEP_RIVAL_KILLED:
		rival_killed(s, op);
		return;
	case STEP_TENTATIVE:
		tentative_landed(s, op);
		return;
	case STEP_EXAMINE:
		examine(s, op);
		return;
	case STEP_CANDIDATE:
		candidate_landed(s, op);
		return;
	case STEP_KILLED:
		killed(s, op);
		return;
	case STEP_RECHECK:
		recheck_post(s, op);
		return;
	case STEP_RECHECKED:
		collect(op, true);
		examine(s, op);
		return;
	case STEP_WITHDRAWN:
		withdrawn(s, op);
		return;
	case STEP_COMMIT:
		commit_post(s, op);
		return;
	case STEP_COMMITTED:
		committed(s, op);
		return;
	case STEP_EXPIRED:
		if (op->scratch->old != own_tentative(op))
			drop_block(op);
		op->has_tentative = false;
		finish(s, op, ERR_TIMEOUT);
		return;
	case STEP_RESOLVE:
		resolve(s, op);
		return;
	case STEP_RESOLVE_SLOT:
		resolve_slot(s, op);
		return;
	case STEP_RESOLVE_READ:
		resolve_read(s, op);
		return;
	case STEP_RESOLVE_BLOCK:
		resolve_block(s, op);
		return;
	case STEP_DOUBTFUL:
		finish(s, op, ERR_MAYBE);
		return;
	}
}

/* ---- Outcome unknown: the connection was lost with a CAS outstanding ---- */

void
op_lost(struct rkv_session *s, struct op *op)
{
	op->is_outstanding = false;
	op->has_atomic = false;
	op->n_batch = 0;
	release_in(s, op);
	if (op->is_expired) { /* it was withdrawing: never applied, the block is in doubt */
		drop_block(op);
		finish(s, op, ERR_TIMEOUT);
		return;
	}
	switch (op->pending) {
	case PENDING_UPDATE:
	case PENDING_TENTATIVE:
		op->is_in_doubt = true; /* did the WRITE of the block land? */
		op->step = STEP_RESOLVE;
		break;
	case PENDING_DELETE:
	case PENDING_COMMIT:
		op->step = STEP_RESOLVE;
		break;
	case PENDING_WITHDRAW:
	case PENDING_KILL:
		/* Not applied; the own block is no longer ours, and nobody marks in doubt. */
		op->pending = PENDING_NO;
		op->has_tentative = false;
		op->rival.off = 0;
		if (op->has_block && !op->is_written)
			alloc_put_back(s, &op->mine);
		drop_block(op);
		op->step = STEP_START;
		break;
	case PENDING_NO:
		op->step = op->has_tentative ? STEP_RECHECK : STEP_START;
		break;
	}
	op_sleep(s, op, SLEEP_LINK, 0);
}

void
op_forget(struct rkv_session *s, struct op *op)
{
	bool in_doubt = op->pending == PENDING_UPDATE || op->pending == PENDING_DELETE ||
			op->pending == PENDING_COMMIT || op->step == STEP_DOUBTFUL;
	release_in(s, op);
	if (op->out_run)
		arena_give(&s->arena, ARENA_OUT, op->out_run);
	op->out_run = NULL;
	drop_block(op);
	op->has_tentative = false;
	op->rival.off = 0;
	op->has_digest = false;
	op->alloc_status = 0;
	op->pending = PENDING_NO;
	op->step = in_doubt ? STEP_DOUBTFUL : STEP_START;
}

/* Reads the slot in question over the new connection; the old one is destroyed, [ONE-QP]. */
static void
resolve(struct rkv_session *s, struct op *op)
{
	bool is_insert = op->pending == PENDING_TENTATIVE || op->pending == PENDING_COMMIT;
	batch_read_slot(s, op, is_insert ? op->own.off : op->entry.off);
	post(s, op, STEP_RESOLVE_SLOT, PENDING_NO);
}

/* Neither proven nor refuted: mark neither block, never retry blindly, [HONEST]. */
static void
resolve_maybe(struct rkv_session *s, struct op *op)
{
	drop_block(op);
	finish(s, op, ERR_MAYBE);
}

static void
resolve_retry(struct rkv_session *s, struct op *op, enum op_step step)
{
	op->pending = PENDING_NO;
	op->step = step;
	op->stats->n_retries++;
	mutate_run(s, op);
}

static void
resolve_applied(struct rkv_session *s, struct op *op)
{
	if (op->pending == PENDING_COMMIT)
		op->entry.off = op->own.off;
	op->has_tentative = false;
	op->pending = PENDING_NO;
	mutation_done(s, op);
}

/* A tentative CAS in doubt never applied the operation: ours still there, or start over anew. */
static void
resolve_tentative(struct rkv_session *s, struct op *op, uint64_t slot)
{
	if (slot == own_tentative(op)) {
		op->has_tentative = true;
		resolve_retry(s, op, STEP_RECHECK);
		return;
	}
	drop_block(op); /* a killer may have it: never this block again */
	resolve_retry(s, op, STEP_START);
}

static void
resolve_slot(struct rkv_session *s, struct op *op)
{
	uint64_t slot = op->scratch->slot;
	if (op->pending == PENDING_TENTATIVE) {
		resolve_tentative(s, op, slot);
		return;
	}
	if (op->pending == PENDING_COMMIT && slot == own_tentative(op)) {
		op->pending = PENDING_NO;
		resolve_retry(s, op, STEP_COMMIT);
		return;
	}
	if (op->pending != PENDING_COMMIT && slot == op->entry.word) {
		resolve_retry(s, op, STEP_START); /* not applied: its CAS can no longer land */
		return;
	}
	if (op->pending == PENDING_DELETE) {
		resolve_maybe(s, op);
		return;
	}
	if (slot == op->new_word) {
		resolve_applied(s, op);
		return;
	}
	bool readable = slot != 0 && slot_state(slot) != SLOT_FORWARDED &&
			slot_state(slot) != SLOT_TENTATIVE &&
			layout_block_in_range(&s->link.layout, slot);
	if (!readable) {
		resolve_maybe(s, op);
		return;
	}
	op->candidate[0].word = slot;
	op->step = STEP_RESOLVE_READ;
	resolve_read(s, op);
}

static void
resolve_read(struct rkv_session *s, struct op *op)
{
	struct place entry = op->entry;
	op->entry.word = op->candidate[0].word;
	bool posted = batch_read_block(s, op);
	op->entry = entry;
	if (posted)
		post(s, op, STEP_RESOLVE_BLOCK, PENDING_NO);
}

/* Whose block names our word as the one before it has seen ours in the slot. */
static void
resolve_block(struct rkv_session *s, struct op *op)
{
	bool follows = judge(s, op, op->candidate[0].word) == BLOCK_OURS &&
		       op->block->prev == op->new_word;
	if (follows)
		resolve_applied(s, op);
	else
		resolve_maybe(s, op);
}

/* ---- Entry points ---- */

static void
run_step(struct rkv_session *s, struct op *op)
{
	if (op->request->op == RKV_OP_GET)
		get_run(s, op);
	else
		mutate_run(s, op);
}

void
op_landed(struct rkv_session *s, struct landing *self, int status)
{
	struct op *op = (struct op *)(void *)self;
	op->is_outstanding = false;
	if (status != 0)
		return; /* the session disconnects, then calls op_lost */
	if (op->has_atomic)
		session_marks_done(s, op->n_marks_before);
	op->has_atomic = false;
	if (op->step == STEP_UPDATED || op->step == STEP_TENTATIVE)
		op->is_in_doubt = false; /* the atomic has executed behind the WRITE */
	/* Not while the outcome of an earlier CAS is still being found out. */
	if (op->step < STEP_RESOLVE)
		op->pending = PENDING_NO;
	run_step(s, op);
}

static int
check_key(const struct rkv_request *r)
{
	if (r->key_len - 1 < LIMIT_KEY_MAX)
		return 0;
	return r->key_len == 0 ? ERR_INVALID : ERR_TOO_BIG;
}

/* What can be wrong with a request; 0, or its failure. */
static int
check(struct rkv_session *s, const struct rkv_request *r)
{
	int rc = check_key(r);
	if (rc != 0 || r->op == RKV_OP_GET)
		return rc;
	if (s->link.is_read_only)
		return session_deny(s);
	if (r->op == RKV_OP_DELETE)
		return 0;
	if (r->options.ttl_s > LIMIT_TTL_MAX_S)
		return ERR_INVALID;
	if (r->op != RKV_OP_TOUCH &&
	    r->value_len > layout_value_max(&s->link.layout, (uint32_t)r->key_len))
		return ERR_TOO_BIG;
	return 0;
}

static void
op_place(struct rkv_session *s, struct op *op)
{
	op->key = op->request->key;
	op->key_len = (uint32_t)op->request->key_len;
	op->hash = hash_key(op->key, op->key_len, s->link.layout.hash_seed);
}

static void
op_start(struct rkv_session *s, struct op *op)
{
	int rc = check(s, op->request);
	if (rc != 0) {
		finish(s, op, rc);
		return;
	}
	op_place(s, op);
	run_step(s, op);
}

__attribute__((flatten)) bool
op_try_warm(struct rkv_session *s, struct op *op)
{
	struct fab_done *done = s->done;
	if (check_key(op->request) != 0)
		return false;
	op_place(s, op);
	find_start(s, op);
	if (!op->is_warm || !batch_read_block(s, op))
		return false;
	batch_read_slot(s, op, op->entry.off);
	op->find = FIND_WARM_LANDED;
	post(s, op, STEP_FIND, PENDING_NO);
	if (fab_poll(s->link.ep, done, 1) == 0)
		return false;
	s->n_outstanding--;
	op->is_outstanding = false;
	if (done->status != 0) {
		s->broken = true;
		return false;
	}
	if (!warm_landed(s, op))
		return false;
	op->request->status = get_take(s, op);
	release_in(s, op);
	return true;
}

void
op_run(struct rkv_session *s, struct op *op)
{
	if (op->step == STEP_START)
		op_start(s, op);
	else
		run_step(s, op);
}

/* Why it has not got further than where it sleeps. */
static int
expired_status(const struct rkv_session *s, const struct op *op)
{
	if (op->pending == PENDING_UPDATE || op->pending == PENDING_DELETE ||
	    op->pending == PENDING_COMMIT || op->step == STEP_DOUBTFUL)
		return ERR_MAYBE;
	if (!s->link.ep || op->sleep == SLEEP_LINK)
		return ERR_CONN;
	return op->n_invalid >= INVALID_IS_CORRUPT ? ERR_CORRUPT : ERR_TIMEOUT;
}

void
op_expire(struct rkv_session *s, struct op *op)
{
	int status = expired_status(s, op);
	if (status == ERR_MAYBE) {
		drop_block(op);
	} else if (op->has_tentative && status != ERR_CONN) {
		op->is_expired = true;
		op_wake(s, op);
		withdraw_post(s, op, STEP_EXPIRED);
		return;
	} else if (op->has_tentative) {
		drop_block(op); /* the word stays behind: whoever kills it marks the block */
	}
	finish(s, op, status);
}
