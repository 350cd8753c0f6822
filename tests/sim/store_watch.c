/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What must hold at every step, whatever anybody did. The watch stands before the simulated fabric
 * and sees what is posted; after each step it looks at the region *as executed*: memory, with the
 * words of atomics that have executed and are not in memory yet.
 *
 *   - words of index and chunk table change along CASes that were posted, each at most as often;
 *   - whoever enters an index word has put a valid block there, in one of the key's buckets; the
 *     block stays valid as long as a slot refers to it, and is not marked; no key has two
 *     committed words;
 *   - a block that is written belongs to a chunk of the writer's session, is not marked, is
 *     referred to by no slot, and is in no other operation's hands; each incarnation is marked
 *     once, and only when no slot refers to it;
 *   - a success was a CAS that executed, and is in memory when the caller is told; what was told as
 *     not applied never executes;
 *   - a batch is out or not, and completes once; so does a request.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/store_internal.h"

#define LOOK_AT_BLOCKS_EVERY 256u
#define PAUSE_STEPS 64
#define LIVE_STEPS_MAX 400000u /* of an operation that nobody disturbs */

struct world *store_world;

/* ---- The region as executed ---- */

static unsigned
n_index_words(const struct world *w)
{
	return (unsigned)w->layout.n_groups * GROUP_WORDS;
}

static uint64_t
off_of_word(const struct world *w, unsigned i)
{
	unsigned n = n_index_words(w);
	return i < n ? w->layout.index_off + 8 * (uint64_t)i
		     : w->layout.chunk_table_off + 8 * (uint64_t)(i - n);
}

/* The number of the word at off; n_words: it is neither of the index nor of the chunk table. */
static unsigned
word_of_off(const struct world *w, uint64_t off)
{
	unsigned n = n_index_words(w);
	if (off >= w->layout.index_off && off < w->layout.index_off + 8 * (uint64_t)n)
		return (unsigned)((off - w->layout.index_off) / 8);
	if (off >= w->layout.chunk_table_off &&
	    off < w->layout.chunk_table_off + 8 * w->layout.n_chunks)
		return n + (unsigned)((off - w->layout.chunk_table_off) / 8);
	return w->n_words;
}

static void
overlay(struct world *w, const struct model_qp *qp)
{
	uint64_t base = model_addr(w->sim->servers[w->server].range, 0);
	for (unsigned i = 0; i < qp->wbr.n; i++) {
		const struct model_late *late = &qp->wbr.v[i];
		unsigned word = late->atomic ? word_of_off(w, late->addr - base) : w->n_words;
		if (word < w->n_words)
			memcpy(&w->now[word], late->data, sizeof(w->now[word]));
	}
}

static void
look_at_memory(struct world *w)
{
	unsigned n = n_index_words(w);
	memcpy(w->now, w->memory + w->layout.index_off, n * sizeof(*w->now));
	memcpy(w->now + n, w->memory + w->layout.chunk_table_off,
	       w->layout.n_chunks * sizeof(*w->now));
	for (unsigned i = 0; i < w->sim->model->n_qps; i++)
		if (w->sim->model->qps[i].wbr.n)
			overlay(w, &w->sim->model->qps[i]);
}

static bool
is_slot(unsigned i)
{
	return i % (LAYOUT_BUCKET_LEN / 8) != 0;
}

/* ---- Blocks ---- */

static const struct key *
key_of(const struct world *w, const struct block_header *h)
{
	for (unsigned i = 0; i < w->config->n_keys; i++)
		if (w->key[i].len == h->key_len && memcmp(w->key[i].bytes, h + 1, h->key_len) == 0)
			return &w->key[i];
	return NULL;
}

/* The key of a word's block, as it is in memory; NULL: the block does not validate. */
static const struct key *
valid_key(const struct world *w, uint64_t word, struct hash *ret_hash)
{
	if (!layout_block_in_range(&w->layout, word))
		return NULL;
	const struct block_header *h =
		(const struct block_header *)(const void *)(w->memory + slot_block_off(word));
	if (!block_lengths_fit(h, slot_read_len(word)) || block_tag(h) != slot_tag(word))
		return NULL;
	const unsigned char *key = (const unsigned char *)(h + 1);
	*ret_hash = hash_key(key, h->key_len, w->layout.hash_seed);
	uint64_t digest = block_digest(ret_hash, key + h->key_len, h->value_len);
	uint64_t committed = slot_with_state(word, SLOT_COMMITTED);
	return h->checksum == block_checksum(committed, digest, h) ? key_of(w, h) : NULL;
}

/* Does the block at an offset, as it is in memory, name itself? */
bool
watch_has_valid_header(const struct world *w, uint64_t off)
{
	struct hash hash;
	const struct block_header *h = (const struct block_header *)(const void *)(w->memory + off);
	const struct key *key = key_of(w, h);
	if (!key)
		return false;
	hash = hash_key(key->bytes, key->len, w->layout.hash_seed);
	return valid_key(w, block_word(off, h, &hash), &hash) != NULL;
}

static uint8_t
map_entry(const struct world *w, uint64_t block_off)
{
	return w->memory[layout_map_off(&w->layout, block_off)] & LAYOUT_MARK_MASK;
}

static struct hand *
hand_of(struct world *w, uint64_t block_off)
{
	return &w->hand[(block_off - w->layout.heap_off) / LIMIT_GRANULE];
}

/* The number of a slot that refers to bytes of [off, off + len), or n_words. */
static unsigned
who_refers(const struct world *w, uint64_t off, uint64_t len)
{
	for (unsigned i = 0; i < n_index_words(w); i++) {
		uint64_t word = w->now[i];
		if (is_slot(i) && slot_refers(word) && !is_forged(w, word) &&
		    slot_block_off(word) < off + len &&
		    off < slot_block_off(word) + slot_read_len(word))
			return i;
	}
	return w->n_words;
}

/* ---- Edges ---- */

static struct edge **
edge_list(struct world *w, uint64_t off, uint64_t expect, uint64_t swap)
{
	return &w->edge[model_mix(model_mix(off, expect), swap) % EDGE_LISTS];
}

static struct edge *
edge_find(struct world *w, uint64_t off, uint64_t expect, uint64_t swap)
{
	struct edge *e = *edge_list(w, off, expect, swap);
	while (e &&
	       (e->off != off || e->expect != expect || e->swap != swap || e->epoch != w->epoch))
		e = e->next;
	return e;
}

static struct edge *
edge_post(struct world *w, const struct fab_op *op, struct record *record)
{
	struct edge *e = edge_find(w, op->roff, op->expect, op->swap);
	if (!e) {
		struct edge **list = edge_list(w, op->roff, op->expect, op->swap);
		e = calloc(1, sizeof(*e));
		assert(e);
		*e = (struct edge){.next = *list,
				   .off = op->roff,
				   .expect = op->expect,
				   .swap = op->swap,
				   .epoch = w->epoch,
				   .record = record};
		*list = e;
	}
	e->is_shared |= e->record != record;
	e->is_forbidden = false;
	e->n_posted++;
	return e;
}

/* Would this CAS make the operation take effect? */
static bool
is_effect(const struct record *r, const struct fab_op *op)
{
	if (r->request.op == RKV_OP_DELETE)
		return slot_state(op->swap) == SLOT_DELETED &&
		       slot_state(op->expect) == SLOT_COMMITTED;
	return slot_state(op->swap) == SLOT_COMMITTED;
}

/* ---- A word has changed ---- */

static void
no_second_word(struct world *w, unsigned i, const struct key *key)
{
	struct hash hash;
	for (unsigned k = 0; k < n_index_words(w); k++) {
		uint64_t word = w->now[k];
		if (k != i && is_slot(k) && word != 0 && slot_state(word) == SLOT_COMMITTED &&
		    valid_key(w, word, &hash) == key)
			sim_fail(w->sim, "two committed words of one key, in slots %u and %u", i,
				 k);
	}
}

static bool
is_in_buckets(const struct world *w, const struct hash *hash, uint64_t off)
{
	uint64_t main[2];
	hash_main_buckets(hash, 2 * w->layout.n_groups, main);
	for (unsigned b = 0; b < 2; b++) {
		uint64_t first = layout_combined_off(&w->layout, main[b]);
		if (off >= first && off < first + LAYOUT_COMBINED_LEN)
			return true;
	}
	return false;
}

static void
entered(struct world *w, unsigned i, uint64_t word)
{
	struct hash hash;
	const struct key *key = valid_key(w, word, &hash);
	if (!key) {
		sim_fail(w->sim, "slot %u refers to a block that is not there: %016" PRIx64, i,
			 word);
		return;
	}
	if (!is_in_buckets(w, &hash, off_of_word(w, i)) ||
	    slot_fingerprint(word) != hash_fingerprint(&hash))
		sim_fail(w->sim, "slot %u holds a key that does not belong there", i);
	if (slot_state(word) == SLOT_COMMITTED)
		no_second_word(w, i, key);
}

static void
left(struct world *w, unsigned i, uint64_t word)
{
	struct hash hash;
	if (!valid_key(w, word, &hash))
		sim_fail(w->sim, "the block of slot %u changed while it was in use: %016" PRIx64, i,
			 word);
}

static void
moved(struct world *w, unsigned i, uint64_t from, uint64_t to)
{
	uint64_t off = off_of_word(w, i);
	struct edge *e = edge_find(w, off, from, to);
	store_trace(w, "word %u: %016" PRIx64 " -> %016" PRIx64, i, from, to);
	if (!e || e->n_applied == e->n_posted) {
		sim_fail(w->sim, "word %u changed, and nobody's CAS did it", i);
		return;
	}
	e->n_applied++;
	if (e->is_forbidden)
		sim_fail(w->sim, "an operation took effect that was told as not applied");
	if (i >= n_index_words(w)) {
		stamps_desc_moved(w, i - n_index_words(w), from, to);
		return;
	}
	stamps_slot_moved(w, i, from);
	if (!is_slot(i)) {
		sim_fail(w->sim, "a bucket's meta word changed");
		return;
	}
	if (slot_refers(from) && !is_forged(w, from))
		left(w, i, from);
	if (slot_refers(to) && !is_forged(w, to))
		entered(w, i, to);
}

static void
look_at_blocks(struct world *w)
{
	for (unsigned i = 0; i < n_index_words(w); i++)
		if (is_slot(i) && slot_refers(w->now[i]) && !is_forged(w, w->now[i]))
			left(w, i, w->now[i]);
}

static void
look_at_marks(struct world *w)
{
	for (unsigned i = 0; i < n_index_words(w); i++) {
		uint64_t word = w->now[i];
		if (is_slot(i) && slot_refers(word) && !is_forged(w, word) &&
		    map_entry(w, slot_block_off(word)) == layout_mark(slot_tag(word)))
			sim_fail(w->sim, "the block of slot %u is marked as free", i);
	}
}

static void
look(void *arg, struct sim *sim)
{
	struct world *w = arg;
	look_at_memory(w);
	if (memcmp(w->now, w->seen, w->n_words * sizeof(*w->now)) != 0) {
		for (unsigned i = 0; i < w->n_words; i++) {
			if (w->now[i] == w->seen[i])
				continue;
			moved(w, i, w->seen[i], w->now[i]);
			w->seen[i] = w->now[i];
		}
	}
	look_at_marks(w);
	stamps_look(w);
	if (sim_n_steps(sim) % LOOK_AT_BLOCKS_EVERY == 0)
		look_at_blocks(w);
}

/* ---- What is posted ---- */

static struct peer *
peer_of_fab(struct world *w, const struct fab *fab)
{
	for (unsigned i = 0; i < w->n_peers; i++)
		if (w->peer[i].fab == fab)
			return &w->peer[i];
	return NULL;
}

/* The operation that a batch belongs to, or NULL: the allocator's, or a flush. */
static struct op *
op_of(void *cookie)
{
	struct landing *l = cookie;
	return l && l->landed == op_landed ? cookie : NULL;
}

/* Does an operation in flight hold this incarnation? */
static bool
is_in_hands(const struct hand *hand, uint32_t tag)
{
	const struct record *r = hand->record;
	return r && r->is_in_flight && !r->is_lost && r->n_links_lost == hand->n_links_lost &&
	       hand->tag == tag && !hand->is_marked;
}

/* Writing a block: is it the writer's to write? */
static void
check_block(struct world *w, struct peer *p, struct record *r, const struct fab_op *f)
{
	const struct block_header *h = f->piece[0].local;
	uint32_t tag = block_tag(h);
	struct hand *hand = hand_of(w, f->roff);
	uint64_t index = layout_chunk_of(&w->layout, f->roff);
	uint64_t desc = w->now[n_index_words(w) + index];
	uint64_t len = (uint64_t)f->piece[0].len + f->piece[1].len;
	/* On a connection that failed it goes nowhere, and its session may be over. */
	bool counts = p->session && p->session->link.ep &&
		      ((struct sim_endpoint *)p->session->link.ep)->state == SIM_UP;
	if (!counts)
		return;
	if (chunk_state(desc) != CHUNK_OWNED || chunk_owner(desc) != p->session->link.session_slot)
		sim_fail(w->sim, "a block is written in a chunk of somebody else");
	if (map_entry(w, f->roff) != layout_mark(tag + SLOT_TAG_COUNT - 1))
		sim_fail(w->sim, "a block is written with tag %u whose map entry is %u", tag,
			 map_entry(w, f->roff));
	if (who_refers(w, f->roff, len) < w->n_words)
		sim_fail(w->sim, "a block is written that a slot refers to");
	if (is_in_hands(hand, tag) && hand->record != r)
		sim_fail(w->sim, "a block is in the hands of two operations");
	*hand = (struct hand){.record = r, .n_links_lost = r->n_links_lost, .tag = tag};
	stamps_written(w, f->roff, len, tag, !watch_has_valid_header(w, f->roff));
}

static void
check_mark(struct world *w, uint64_t off, uint8_t mark)
{
	struct hand *hand = hand_of(w, off);
	unsigned i = who_refers(w, off, 1);
	if (i < w->n_words && slot_block_off(w->now[i]) == off &&
	    layout_mark(slot_tag(w->now[i])) == mark)
		sim_fail(w->sim, "a block is marked that slot %u refers to", i);
	if (layout_mark(hand->tag) != mark)
		sim_fail(w->sim, "a block of tag %u is marked with %u", hand->tag, mark);
	if (hand->is_marked)
		sim_fail(w->sim, "the block at %" PRIx64 " is marked twice, with %u", off, mark);
	hand->is_marked = true;
	stamps_marked(w, off);
}

static void
check_posted_mark(struct world *w, const struct fab_op *f)
{
	uint64_t granule = f->roff - w->layout.free_map_off;
	check_mark(w, w->layout.heap_off + granule * LIMIT_GRANULE,
		   *(const uint8_t *)f->piece[0].local & LAYOUT_MARK_MASK);
}

void
watch_marked(struct world *w, uint64_t block_off, uint32_t tag)
{
	struct hand *hand = hand_of(w, block_off);
	uint64_t map_off = layout_map_off(&w->layout, block_off);
	if (is_in_hands(hand, tag))
		sim_fail(w->sim, "the server marks a block that an operation has in hand");
	if (!watch_has_valid_header(w, block_off))
		sim_fail(w->sim, "the server marks a block without a valid header");
	/* A mark that was lost with its connection was none. */
	if (map_entry(w, block_off) != layout_mark(tag) && !stamps_is_under_way(w, map_off))
		hand->is_marked = false;
	check_mark(w, block_off, layout_mark(tag));
}

/* [RANGE] An operation reads slots, buckets and blocks, each in its chunk; nothing else. */
static void
check_read(struct world *w, const struct fab_op *f)
{
	const struct layout *l = &w->layout;
	uint64_t len = (uint64_t)f->piece[0].len + f->piece[1].len;
	uint64_t index_len = 8 * (uint64_t)n_index_words(w);
	bool is_index = f->roff >= l->index_off && f->roff + len <= l->index_off + index_len;
	uint64_t in_heap = f->roff - l->heap_off;
	bool is_block = f->roff >= l->heap_off && in_heap < l->n_chunks * l->chunk_size &&
			in_heap % l->chunk_size + len <= l->chunk_size;
	if (!is_index && !is_block)
		sim_fail(w->sim, "%" PRIu64 " bytes are read at %" PRIx64 ", no block", len,
			 f->roff);
}

static void
count_op(struct world *w, const struct op *op)
{
	static const enum store_event events[] = {
		[PENDING_UPDATE] = STORE_RESOLVE_UPDATE,
		[PENDING_DELETE] = STORE_RESOLVE_DELETE,
		[PENDING_TENTATIVE] = STORE_RESOLVE_TENTATIVE,
		[PENDING_COMMIT] = STORE_RESOLVE_COMMIT,
	};
	if (op->n_invalid)
		store_count(w, STORE_INVALID_BLOCK);
	if (op->is_warm)
		store_count(w, STORE_WARM);
	if (op->next_candidate && (op->step == STEP_CANDIDATE ||
				   (op->step == STEP_FIND && op->find == FIND_BLOCK_LANDED)))
		store_count(w, STORE_COLLISION);
	if (op->is_direct || op->out_run)
		store_count(w, STORE_LARGE);
	if (op->step == STEP_WITHDRAWN)
		store_count(w, STORE_WITHDRAW);
	else if (op->step == STEP_KILLED)
		store_count(w, STORE_KILL);
	else if (op->step == STEP_RIVAL_KILLED)
		store_count(w, op->rival_is_in_the_way ? STORE_CROWDED : STORE_RIVAL_KILL);
	else if (op->step == STEP_RECHECKED)
		store_count(w, STORE_RECHECK);
	else if (op->step == STEP_EXPIRED)
		store_count(w, STORE_EXPIRED_TENTATIVE);
	else if (op->step == STEP_RESOLVE_BLOCK)
		store_count(w, STORE_RESOLVE_BLOCK);
	else if (op->step == STEP_RESOLVE_SLOT && op->pending < PENDING_WITHDRAW)
		store_count(w, events[op->pending]);
	else if (op->step == STEP_FIND && op->request->op != RKV_OP_GET && op->rival.off)
		store_count(w, STORE_RIVAL_WAIT);
}

static void
note_cas(struct world *w, struct record *r, const struct fab_op *f)
{
	struct edge *e = edge_post(w, f, r);
	if (!r || word_of_off(w, f->roff) >= n_index_words(w) || !is_effect(r, f))
		return;
	if (r->n_tries == TRIES_MAX)
		memmove(r->try, r->try + 1, (--r->n_tries) * sizeof(r->try[0]));
	r->try[r->n_tries++] = e;
}

static void
trace_post(struct world *w, const struct peer *p, const struct record *r, const struct fab_op *f)
{
	static const char *const kinds[] = {"READ", "WRITE", "CAS", "FAA"};
	if (!w->config->is_traced)
		return;
	store_trace(w, "client %u op %d: %s %" PRIx64 " len %u %016" PRIx64 " %016" PRIx64,
		    p ? p->number : 99, r ? (int)(r - w->record) : -1, kinds[f->kind], f->roff,
		    f->piece[0].len + f->piece[1].len, f->kind >= FAB_CAS ? f->expect : 0,
		    f->kind == FAB_CAS ? f->swap : 0);
}

static void
note(struct world *w, struct peer *p, struct record *r, const struct fab_op *f)
{
	trace_post(w, p, r, f);
	if (f->kind == FAB_CAS)
		note_cas(w, r, f);
	else if (f->kind == FAB_WRITE && p && f->roff >= w->layout.heap_off)
		check_block(w, p, r, f);
	else if (f->kind == FAB_WRITE && f->roff >= w->layout.free_map_off)
		check_posted_mark(w, f);
	else if (f->kind == FAB_WRITE)
		sim_fail(w->sim, "a WRITE to words that only CAS may change, at %" PRIx64, f->roff);
	else if (f->kind == FAB_READ && r)
		check_read(w, f);
	else if (f->kind == FAB_FAA)
		store_count(w, STORE_FLUSH);
}

/* Words that are acted on: by a CAS, or because they were cached. */
static void
expected(struct world *w, const struct op *op, const struct fab_op *ops, unsigned n)
{
	if (op && op->is_warm)
		stamps_expected(w, word_of_off(w, op->entry.off), op->entry.word);
	for (unsigned i = 0; i < n; i++) {
		unsigned word = word_of_off(w, ops[i].roff);
		if (ops[i].kind == FAB_CAS && word < n_index_words(w))
			stamps_expected(w, word, ops[i].expect);
	}
}

static enum batch_kind
kind_of_batch(const struct op *op, const struct fab_op *ops, unsigned n)
{
	enum batch_kind kind = BATCH_PLAIN;
	if (op && (op->step == STEP_WITHDRAWN || op->step == STEP_KILLED ||
		   op->step == STEP_RIVAL_KILLED))
		return BATCH_SELDOM;
	for (unsigned i = 0; i < n; i++)
		if (ops[i].kind == FAB_CAS)
			kind = BATCH_CAS;
	return kind;
}

static int
post(struct fab_endpoint *ep, const struct fab_op *ops, unsigned n, void *cookie)
{
	struct world *w = store_world;
	struct peer *p = peer_of_fab(w, ep->region->fab);
	struct op *op = op_of(cookie);
	struct record *r = op ? op->request->user : NULL;
	for (unsigned i = 0; i < n; i++)
		note(w, p, r, &ops[i]);
	if (((struct sim_endpoint *)ep)->state == SIM_UP)
		expected(w, op, ops, n);
	int rc = sim_driver.post(ep, ops, n, cookie);
	if (rc != 0)
		return rc;
	if (op) {
		count_op(w, op);
		if (r->n_out++ != 0)
			sim_fail(w->sim, "an operation has two batches out");
	}
	if (p)
		chaos_at_post(p, kind_of_batch(op, ops, n));
	return 0;
}

static int
post_quiet(struct fab_endpoint *ep, const struct fab_op *ops, unsigned n)
{
	struct world *w = store_world;
	/* On a connection that failed they are not posted at all. */
	for (unsigned i = 0; i < n && ((struct sim_endpoint *)ep)->state == SIM_UP; i++)
		note(w, peer_of_fab(w, ep->region->fab), NULL, &ops[i]);
	return sim_driver.post_quiet(ep, ops, n);
}

static unsigned
poll_some(struct fab_endpoint *ep, struct fab_done *done, unsigned max)
{
	struct world *w = store_world;
	unsigned n = sim_driver.poll(ep, done, max);
	for (unsigned i = 0; i < n; i++) {
		struct op *op = op_of(done[i].cookie);
		struct record *r = op ? op->request->user : NULL;
		if (r && r->n_out-- != 1)
			sim_fail(w->sim, "a batch completes that is not out");
	}
	return n;
}

static void
count_lost(struct world *w, const struct peer *p)
{
	const struct rkv_session *s = p->session;
	for (unsigned i = 0; s && s->ops && i < w->config->depth; i++) {
		const struct rkv_request *request = s->ops[i].request;
		const struct record *r = request ? request->user : NULL;
		if (!r || !r->is_in_flight)
			continue;
		if (s->ops[i].pending == PENDING_WITHDRAW)
			store_count(w, STORE_LOST_WITHDRAW);
		else if (s->ops[i].pending == PENDING_KILL)
			store_count(w, STORE_LOST_KILL);
	}
}

void
watch_link_lost(struct peer *p)
{
	for (unsigned i = 0; i < DEPTH_MAX; i++)
		if (p->memory[i].record)
			p->memory[i].record->n_links_lost++;
}

/* What was out on it is not waited for any more. */
static void
disconnect(struct fab_endpoint *ep)
{
	struct world *w = store_world;
	struct peer *p = peer_of_fab(w, ep->region->fab);
	if (p) {
		count_lost(w, p);
		watch_link_lost(p);
	}
	for (unsigned i = 0; p && i < DEPTH_MAX; i++)
		if (p->memory[i].record)
			p->memory[i].record->n_out = 0;
	w->n_links_lost += p && p->session && !p->session->is_closing;
	sim_driver.disconnect(ep);
}

static int
connect_to(struct fab_region *region, const struct fab_ticket *ticket, uint32_t depth,
	   int64_t deadline_ns, struct fab_endpoint **ret_endpoint)
{
	int rc = sim_driver.connect(region, ticket, depth, deadline_ns, ret_endpoint);
	if (rc == 0)
		(*ret_endpoint)->driver = &store_world->driver;
	return rc;
}

static void
pause_until(struct fab *fab, int64_t until_ns)
{
	struct sim *sim = store_world->sim;
	/* Who spins gives others more turns than it takes, or strict priorities hang. */
	int64_t least_ns = sim_now(sim) + PAUSE_STEPS * store_world->config->step_ns;
	(void)fab;
	sim_sleep(sim, until_ns > least_ns ? until_ns : least_ns);
}

void
watch_hook(struct peer *p)
{
	p->fab->driver = &p->w->driver;
}

int
watch_region_open(struct world *w, struct fab *fab, struct fab_region **ret_region)
{
	int rc = sim_driver.region_open(fab, &w->offer, 0, ret_region);
	if (rc == 0)
		(*ret_region)->driver = &w->driver;
	return rc;
}

/* ---- Operations ---- */

static int64_t
next_moment(struct world *w)
{
	w->wall_at[++w->moment] = wall_now(w);
	return w->moment;
}

void
watch_begin(struct record *r)
{
	struct world *w = r->peer->w;
	r->is_in_flight = true;
	r->begun = sim_n_steps(w->sim);
	r->lin.invoked = next_moment(w);
	r->epoch_begun = w->epoch;
	r->wall_begun_ns = wall_now(w);
	w->counts->n_ops++;
	store_trace(w, "client %u op %d: %s begins, key %u, value %" PRIu64, r->peer->number,
		    (int)(r - w->record),
		    (const char *[]){"get", "put", "add", "replace", "cas", "delete",
				     "touch"}[r->lin.kind],
		    (unsigned)r->lin.key, r->lin.value);
}

/* A success may be polled late: then others may be writing the block, or the word, by now. */
static bool
has_moved_on(struct world *w, const struct record *r, const struct edge *e)
{
	if (slot_state(e->swap) == SLOT_COMMITTED)
		return hand_of(w, slot_block_off(e->swap))->record != r;
	return e->n_posted != 1;
}

/* Has it executed, and is it in memory? Other operations' CASes on the slot may be under way. */
static void
check_visible(struct world *w, struct record *r, const struct edge *e)
{
	struct fab_endpoint *ep = r->peer->session ? r->peer->session->link.ep : NULL;
	uint64_t base = model_addr(w->sim->servers[w->server].range, 0);
	if (!ep || e->epoch != w->epoch || has_moved_on(w, r, e))
		return;
	const struct model_qp *qp = &w->sim->model->qps[((struct sim_endpoint *)ep)->qp];
	for (unsigned i = 0; i < qp->wbr.n; i++) {
		const struct model_late *late = &qp->wbr.v[i];
		uint64_t off = late->addr - base;
		bool is_word =
			late->atomic && off == e->off && memcmp(late->data, &e->swap, 8) == 0;
		bool is_block = slot_state(e->swap) == SLOT_COMMITTED &&
				off >= slot_block_off(e->swap) &&
				off < slot_block_off(e->swap) + slot_read_len(e->swap);
		if (is_word || is_block)
			sim_fail(w->sim, "a mutation returned before its %s was in memory",
				 is_word ? "word" : "block");
	}
}

static void
check_done(struct world *w, struct record *r)
{
	if (r->n_tries == 0) {
		sim_fail(w->sim, "a mutation succeeded that posted no CAS");
		return;
	}
	struct edge *e = r->try[r->n_tries - 1];
	if (r->request.op == RKV_OP_ADD && slot_state(e->expect) == SLOT_COMMITTED &&
	    e->expect != 0)
		store_count(w, STORE_ADD_OVER_EXPIRED);
	if (e->n_claimed++ >= e->n_applied)
		sim_fail(w->sim, "a mutation succeeded whose CAS did not execute");
	check_visible(w, r, e);
}

/* What is said not to be applied is not, and never will be. */
static void
check_not_applied(struct world *w, struct record *r)
{
	for (unsigned i = 0; i < r->n_tries; i++) {
		struct edge *e = r->try[i];
		if (e->is_shared || e->record != r)
			continue;
		if (e->n_applied)
			sim_fail(w->sim, "an operation that was applied is told as not applied");
		e->is_forbidden = true;
	}
}

/* A GET that began when one was over for certain does not return it. */
static void
check_expiry(struct world *w, const struct record *r)
{
	for (unsigned i = 0; i < w->n_records; i++) {
		const struct record *by = &w->record[i];
		int64_t ttl_ns = by->request.options.ttl_s * NS_OF_S;
		if (ttl_ns && !by->is_in_flight && by->lin.result == LIN_DONE &&
		    by->request.op != RKV_OP_GET && by->lin.version == r->lin.version &&
		    r->wall_begun_ns > by->wall_ended_ns + ttl_ns + 2 * NS_OF_S)
			sim_fail(w->sim, "a value was read that had expired");
	}
}

static void
count_status(struct world *w, int status)
{
	static const struct {
		int status;
		enum store_event event;
	} events[] = {
		{ERR_MAYBE, STORE_MAYBE},           {ERR_TIMEOUT, STORE_TIMEOUT},
		{ERR_AGAIN, STORE_AGAIN},           {ERR_NO_SPACE, STORE_NO_SPACE},
		{ERR_INDEX_FULL, STORE_INDEX_FULL}, {ERR_CONN, STORE_CONN},
		{ERR_EXISTS, STORE_EXISTS},         {ERR_MISMATCH, STORE_MISMATCH},
		{ERR_TOO_SMALL, STORE_TOO_SMALL},   {ERR_CORRUPT, STORE_CORRUPT},
	};
	for (unsigned i = 0; i < sizeof(events) / sizeof(events[0]); i++)
		if (events[i].status == status)
			store_count(w, events[i].event);
}

static void
check_live(struct world *w, const struct record *r, int status)
{
	uint64_t from = r->begun > w->calm_step ? r->begun : w->calm_step;
	uint64_t steps = sim_n_steps(w->sim) > from ? sim_n_steps(w->sim) - from : 0;
	if (steps > w->counts->steps_max)
		w->counts->steps_max = (unsigned)steps;
	if (steps > LIVE_STEPS_MAX)
		sim_fail(w->sim, "an operation took %" PRIu64 " steps", steps);
	if (status == ERR_TIMEOUT)
		sim_fail(w->sim, "an operation timed out, though nothing was in its way");
}

void
watch_end(struct record *r, int status)
{
	struct world *w = r->peer->w;
	store_trace(w, "client %u op %d: ends with %d, value %" PRIu64 " version %" PRIx64,
		    r->peer->number, (int)(r - w->record), status, r->lin.value,
		    r->request.item.version);
	if (!r->is_in_flight)
		sim_fail(w->sim, "a request completes twice");
	if (r->n_out)
		sim_fail(w->sim, "a request completes while a batch of it is out");
	r->is_in_flight = false;
	r->lin.responded = next_moment(w);
	r->epoch_ended = w->epoch;
	r->wall_ended_ns = wall_now(w);
	r->lin.result = (uint8_t)lin_result_of_status(status);
	count_status(w, status);
	if (w->config->is_live)
		check_live(w, r, status);
	if ((status == ERR_CORRUPT && !w->config->n_forged) || status == ERR_INVALID ||
	    status == ERR_NOMEM || status == ERR_TOO_BIG || status == ERR_PERM)
		sim_fail(w->sim, "an operation ended with status %d", status);
	if (r->request.op == RKV_OP_GET) {
		if (status == 0)
			check_expiry(w, r);
		return;
	}
	if (status == 0)
		check_done(w, r);
	else if (status != ERR_MAYBE && status != ERR_TIMEOUT)
		check_not_applied(w, r);
}

/* ---- Beginning and end ---- */

void
watch_start(struct world *w)
{
	w->driver = sim_driver;
	w->driver.name = "watched sim";
	w->driver.connect = connect_to;
	w->driver.disconnect = disconnect;
	w->driver.post = post;
	w->driver.post_quiet = post_quiet;
	w->driver.poll = poll_some;
	w->driver.pause = pause_until;
	w->n_words = n_index_words(w) + (unsigned)w->layout.n_chunks;
	w->seen = calloc(w->n_words, sizeof(*w->seen));
	w->now = calloc(w->n_words, sizeof(*w->now));
	w->hand =
		calloc(w->layout.n_chunks * w->layout.chunk_size / LIMIT_GRANULE, sizeof(*w->hand));
	w->wall_at = calloc(2 * (size_t)w->n_records_max + 2, sizeof(*w->wall_at));
	assert(w->seen && w->now && w->hand && w->wall_at);
	stamps_start(w);
	sim_set_hook(w->sim, look, w);
}

void
watch_stop(struct world *w)
{
	for (unsigned i = 0; i < EDGE_LISTS; i++)
		while (w->edge[i]) {
			struct edge *e = w->edge[i];
			w->edge[i] = e->next;
			free(e);
		}
	stamps_stop(w);
	free(w->wall_at);
	free(w->hand);
	free(w->now);
	free(w->seen);
}

void
watch_restarted(struct world *w)
{
	uint64_t n_granules = w->layout.n_chunks * w->layout.chunk_size / LIMIT_GRANULE;
	memset(w->seen, 0, w->n_words * sizeof(*w->seen));
	memset(w->now, 0, w->n_words * sizeof(*w->now));
	memset(w->hand, 0, n_granules * sizeof(*w->hand));
	stamps_stop(w);
	stamps_start(w);
	w->n_links_lost++;
}

/* Behind the last passes no word is tentative, and none of a value that had expired. */
static void
look_for_words(struct world *w)
{
	for (unsigned i = 0; i < n_index_words(w); i++) {
		uint64_t word = w->now[i];
		if (!is_slot(i) || !slot_refers(word) || is_forged(w, word))
			continue;
		if (slot_state(word) == SLOT_TENTATIVE)
			sim_fail(w->sim, "a tentative word is left, in slot %u", i);
		const struct block_header *h = (const void *)(w->memory + slot_block_off(word));
		if (h->expiry && w->swept_s > (int64_t)h->expiry + LIMIT_SKEW_S)
			sim_fail(w->sim, "a value that has expired is left, in slot %u", i);
	}
}

/* Behind the scrubber's last passes there is no garbage. */
static void
look_for_garbage(struct world *w)
{
	for (uint64_t i = 0; i < w->layout.n_chunks; i++) {
		uint64_t desc = word_at(w, layout_desc_off(&w->layout, i));
		uint64_t at = layout_chunk_off(&w->layout, i);
		uint64_t len = layout_class_granules(chunk_class(desc)) * LIMIT_GRANULE;
		uint64_t end = at + layout_blocks_per_chunk(&w->layout, chunk_class(desc)) * len;
		for (; chunk_state(desc) != CHUNK_FREE && at < end; at += len) {
			uint32_t tag = block_tag((const void *)(w->memory + at));
			if (watch_has_valid_header(w, at) &&
			    map_entry(w, at) == layout_mark(tag + SLOT_TAG_COUNT - 1) &&
			    who_refers(w, at, len) == w->n_words)
				sim_fail(w->sim, "garbage is left: a block of tag %u at %" PRIx64,
					 tag, at);
		}
	}
}

/* ---- The history ---- */

static void
add(struct world *w, struct lin_history *history, const struct lin_op *op, uint64_t epoch)
{
	struct lin_op of_epoch = *op;
	of_epoch.key += epoch * KEYS_MAX;
	if (lin_history_add(history, &of_epoch, 1) != 0)
		sim_fail(w->sim, "no memory for a history");
}

/*
 * Each epoch has a history of its own. What was in flight when one ended took effect in one of them
 * or in none.
 */
static void
add_record(struct world *w, struct lin_history *history, const struct record *r)
{
	struct lin_op op = r->lin;
	uint64_t last = r->is_in_flight ? w->epoch : r->epoch_ended;
	if (r->is_in_flight)
		op.result = LIN_OPEN;
	if (r->epoch_begun != last) {
		bool may_act = op.result == LIN_DONE || op.result == LIN_OPEN;
		if (op.kind == LIN_GET || !may_act)
			return;
		op.result = LIN_OPEN;
		op.version = 0;
	}
	for (uint64_t epoch = r->epoch_begun; epoch <= last; epoch++)
		add(w, history, &op, epoch);
}

/* A value that expires is deleted by nobody, some time after the clocks were moved past its end. */
static void
add_expiry(struct world *w, struct lin_history *history, const struct record *r)
{
	int64_t at_ns = r->wall_begun_ns + r->request.options.ttl_s * NS_OF_S;
	int64_t moment = r->lin.invoked;
	bool is_applied = r->is_in_flight || r->lin.result == LIN_DONE || r->lin.result == LIN_OPEN;
	if (r->request.options.ttl_s == 0 || !is_applied)
		return;
	while (moment <= w->moment && w->wall_at[moment] < at_ns)
		moment++;
	if (moment > w->moment)
		return;
	store_count(w, STORE_EXPIRY);
	struct lin_op gone = {
		.key = r->lin.key, .kind = LIN_DELETE, .result = LIN_OPEN, .invoked = moment};
	for (uint64_t epoch = r->epoch_begun; epoch <= w->epoch; epoch++)
		add(w, history, &gone, epoch);
}

/* The whole history. */
void
watch_finish(struct world *w)
{
	struct lin_history *history;
	struct lin_report report;
	struct lin_options options = {.max_configs = 1u << 19, .max_steps = UINT64_C(1) << 27};
	if (sim_failure(w->sim))
		return;
	look_at_blocks(w);
	if (w->config->n_faults == 0 && w->n_links_lost == 0)
		stamps_finish(w);
	if (w->is_scrubbed) {
		look_for_words(w);
		look_for_garbage(w);
	}
	if (lin_history_new(&history) != 0)
		return;
	for (unsigned i = 0; i < w->n_records; i++) {
		add_record(w, history, &w->record[i]);
		add_expiry(w, history, &w->record[i]);
	}
	int rc = lin_check(history, &options, &report);
	if (rc == LIN_BAD && w->config->is_traced)
		lin_dump(history, &report, stderr);
	if (rc == LIN_BAD)
		sim_fail(w->sim, "not linearisable: key %u, operation %zu",
			 (unsigned)(report.key % KEYS_MAX), report.op);
	else if (rc == LIN_UNDECIDED)
		w->counts->n_undecided++;
	else if (rc < 0)
		sim_fail(w->sim, "the checker failed: %d", rc);
	lin_history_free(history);
}
