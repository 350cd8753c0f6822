/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reclamation, watched directly. That a word recurs just when somebody acts on it is a coincidence
 * that seeds hardly meet; what [STAMP], [MARK] and [WRAP] promise holds at every step:
 *
 *   - when a stamp has passed (G is above it), no WRITE posted at that stamp is still under way,
 *     and no CAS expects a word that had left its slot by then, nor does anybody begin with such
 *     a word: from now on it may recur;
 *   - a block is written with tag 0 again, and a chunk becomes FREE, only when the stamp has
 *     passed at which the last incarnation ended; a torn block of a dead session is used only when
 *     that of the adoption has;
 *   - where no connection was lost, every incarnation that nobody refers to was marked.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/store_internal.h"

#define LEFT_MAX 64u

/* Words that a slot held last, and when they left. */
struct left_words {
	unsigned n; /* ever */
	struct {
		uint64_t word;
		uint64_t stamp;
	} v[LEFT_MAX];
};

/* Newest stamps, by granule or chunk; 0: never. */
struct ages {
	uint64_t g; /* at the last look */
	struct left_words *left;
	uint64_t *written;
	uint64_t *marked;
	uint64_t *adopted; /* chunks: by the present owner, from a dead one */
};

static uint64_t
n_granules(const struct world *w)
{
	return w->layout.n_chunks * w->layout.chunk_size / LIMIT_GRANULE;
}

void
stamps_start(struct world *w)
{
	struct ages *a = calloc(1, sizeof(*a));
	assert(a);
	a->left = calloc(w->n_words, sizeof(*a->left));
	a->written = calloc(n_granules(w), sizeof(*a->written));
	a->marked = calloc(n_granules(w), sizeof(*a->marked));
	a->adopted = calloc(w->layout.n_chunks, sizeof(*a->adopted));
	assert(a->left && a->written && a->marked && a->adopted);
	w->ages = a;
}

void
stamps_stop(struct world *w)
{
	free(w->ages->left);
	free(w->ages->written);
	free(w->ages->marked);
	free(w->ages->adopted);
	free(w->ages);
}

static uint64_t
granule_of(const struct world *w, uint64_t block_off)
{
	return (block_off - w->layout.heap_off) / LIMIT_GRANULE;
}

/* ---- Words ---- */

/* When the word left the slot; UINT64_MAX: it is there, or nobody knows. */
static uint64_t
left_at(const struct world *w, unsigned i, uint64_t word)
{
	const struct left_words *left = &w->ages->left[i];
	if (w->now[i] == word)
		return UINT64_MAX;
	for (unsigned k = left->n; k > 0 && k + LEFT_MAX > left->n; k--)
		if (left->v[(k - 1) % LEFT_MAX].word == word)
			return left->v[(k - 1) % LEFT_MAX].stamp;
	return UINT64_MAX;
}

void
stamps_expected(struct world *w, unsigned i, uint64_t word)
{
	if (server_g(w) > left_at(w, i, word))
		sim_fail(w->sim, "a word is acted on whose stamp has passed, in slot %u", i);
}

/* A chunk whose blocks' stamps have not passed is not for another class. */
static void
check_free(struct world *w, uint64_t chunk)
{
	uint64_t n = w->layout.chunk_size / LIMIT_GRANULE;
	for (uint64_t k = chunk * n; k < (chunk + 1) * n; k++)
		if (w->ages->marked[k] >= server_g(w))
			sim_fail(w->sim,
				 "a chunk became FREE before its blocks' stamps have passed");
}

/* A chunk left in good order has no block that is torn and may still be written. */
static void
check_left(struct world *w, uint64_t chunk, uint64_t desc)
{
	uint64_t first = layout_chunk_off(&w->layout, chunk);
	uint64_t len = layout_class_granules(chunk_class(desc)) * LIMIT_GRANULE;
	for (uint64_t i = 0; i < layout_blocks_per_chunk(&w->layout, chunk_class(desc)); i++)
		if (w->ages->written[granule_of(w, first + i * len)] >= server_g(w) &&
		    !watch_has_valid_header(w, first + i * len))
			sim_fail(w->sim, "a chunk is left in good order, with a torn block");
}

void
stamps_desc_moved(struct world *w, uint64_t chunk, uint64_t from, uint64_t to)
{
	if (chunk_state(to) == CHUNK_FREE)
		check_free(w, chunk);
	if (chunk_state(to) == CHUNK_LEFT)
		check_left(w, chunk, to);
	if (chunk_state(to) == CHUNK_OWNED)
		w->ages->adopted[chunk] = chunk_state(from) == CHUNK_ORPHAN ? w->newest : 0;
}

void
stamps_slot_moved(struct world *w, unsigned i, uint64_t from)
{
	struct left_words *left = &w->ages->left[i];
	left->v[left->n % LEFT_MAX].word = from;
	left->v[left->n % LEFT_MAX].stamp = w->newest;
	left->n++;
}

/* ---- Blocks ---- */

void
stamps_marked(struct world *w, uint64_t block_off)
{
	w->ages->marked[granule_of(w, block_off)] = w->newest;
}

/* A block is written; is_torn: what is there has no valid header. */
void
stamps_written(struct world *w, uint64_t block_off, uint64_t len, uint32_t tag, bool is_torn)
{
	struct ages *a = w->ages;
	uint64_t first = granule_of(w, block_off);
	uint64_t adopted = a->adopted[layout_chunk_of(&w->layout, block_off)];
	if (tag == 0 && a->marked[first] && server_g(w) <= a->marked[first])
		sim_fail(w->sim, "a block begins anew with tag 0 and has not rested");
	if (is_torn && adopted > a->written[first] && server_g(w) <= adopted)
		sim_fail(w->sim, "a torn block is used before the adoption's stamp has passed");
	for (uint64_t k = 0; k * LIMIT_GRANULE < len; k++)
		a->written[first + k] = w->newest;
}

/* The stamp at which a WRITE to this address was posted; UINT64_MAX: it is none of ours. */
static uint64_t
posted_at(const struct world *w, uint64_t off)
{
	const struct layout *l = &w->layout;
	if (off >= l->heap_off && off < l->heap_off + l->n_chunks * l->chunk_size)
		return w->ages->written[granule_of(w, off)];
	if (off >= l->free_map_off && off < l->free_map_off + n_granules(w))
		return w->ages->marked[off - l->free_map_off];
	return UINT64_MAX;
}

static void
check_qp(struct world *w, const struct model_qp *qp, uint64_t g)
{
	uint64_t base = model_addr(w->sim->servers[w->server].range, 0);
	uint64_t oldest = UINT64_MAX, stamp;
	for (unsigned i = 0; i < qp->n_pipe; i++)
		for (unsigned k = 0; qp->pipe[i]->kind == MODEL_PUT && k < qp->pipe[i]->n_pieces;
		     k++)
			if ((stamp = posted_at(w, qp->pipe[i]->piece[k].remote - base)) < oldest)
				oldest = stamp;
	for (unsigned i = 0; i < qp->wbr.n; i++)
		if ((stamp = posted_at(w, qp->wbr.v[i].addr - base)) < oldest)
			oldest = stamp;
	if (oldest < g)
		sim_fail(w->sim, "a stamp has passed, and a WRITE of it is still under way");
}

/* Is a WRITE to this address posted, and not yet in memory? */
bool
stamps_is_under_way(const struct world *w, uint64_t off)
{
	uint64_t addr = model_addr(w->sim->servers[w->server].range, off);
	for (unsigned q = 0; q < w->sim->model->n_qps; q++) {
		const struct model_qp *qp = &w->sim->model->qps[q];
		for (unsigned i = 0; i < qp->n_pipe; i++)
			for (unsigned k = 0;
			     qp->pipe[i]->kind == MODEL_PUT && k < qp->pipe[i]->n_pieces; k++)
				if (qp->pipe[i]->piece[k].remote == addr)
					return true;
		for (unsigned i = 0; i < qp->wbr.n; i++)
			if (qp->wbr.v[i].addr == addr)
				return true;
	}
	return false;
}

/*
 * A word has left its slot when the new one is in memory: until then others READ it, whatever
 * atomic has executed, and the mutation that took it out is in flight.
 */
static void
look_at_words(struct world *w)
{
	unsigned n = (unsigned)w->layout.n_groups * GROUP_WORDS;
	const unsigned char *index = w->memory + w->layout.index_off;
	if (memcmp(w->now, index, n * sizeof(*w->now)) == 0)
		return;
	for (unsigned i = 0; i < n; i++) {
		struct left_words *left = &w->ages->left[i];
		uint64_t word = word_at(w, w->layout.index_off + 8 * (uint64_t)i);
		if (word == w->now[i])
			continue;
		for (unsigned k = left->n; k > 0 && k + LEFT_MAX > left->n; k--)
			if (left->v[(k - 1) % LEFT_MAX].word == word) {
				left->v[(k - 1) % LEFT_MAX].stamp = w->newest;
				break;
			}
	}
}

void
stamps_look(struct world *w)
{
	uint64_t g = server_g(w);
	look_at_words(w);
	if (g == w->ages->g)
		return;
	w->ages->g = g;
	for (unsigned i = 0; i < w->sim->model->n_qps; i++)
		check_qp(w, &w->sim->model->qps[i], g);
}

/* ---- At the end ---- */

static bool
is_referred(const struct world *w, uint64_t block_off)
{
	for (unsigned i = 0; i < w->layout.n_groups * GROUP_WORDS; i++)
		if (i % (LAYOUT_BUCKET_LEN / 8) != 0 && slot_refers(w->now[i]) &&
		    slot_block_off(w->now[i]) == block_off)
			return true;
	return false;
}

/* The caller knows that no connection was lost, and that nothing is under way. */
void
stamps_finish(struct world *w)
{
	for (uint64_t k = 0; k < n_granules(w); k++) {
		uint64_t off = w->layout.heap_off + k * LIMIT_GRANULE;
		if (w->hand[k].record && !w->hand[k].is_marked && !is_referred(w, off))
			sim_fail(w->sim, "a block of tag %u is lost: nobody marked it",
				 w->hand[k].tag);
	}
}
