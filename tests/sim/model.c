/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA memory: its state, and what the user does to it. The steps of the cards are in steps.c. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tests/sim/rules.h"

const struct rules model_rules[N_PROFILES] = {
	[PROFILE_SC] = {.at_once = true},
	[PROFILE_HAB] = {.node_stream = true,
			 .sources_ordered = true,
			 .reads_ordered = true,
			 .atomic_first = true},
	[PROFILE_TSO] = {.sources_ordered = true, .atomic_first = true},
	[PROFILE_VERBS] = {.pieces_any = true,
			   .reads_ordered = true,
			   .writes = SCOPE_SAME_BYTES,
			   .flush = SCOPE_SAME_BYTES,
			   .sources = SCOPE_SAME_BYTES},
	[PROFILE_RO] = {.pieces_any = true,
			.reads_ordered = true,
			.writes = SCOPE_NONE,
			.flush = SCOPE_SAME_BYTES,
			.sources = SCOPE_SAME_BYTES},
	[PROFILE_WORST] = {.pieces_any = true,
			   .writes = SCOPE_NONE,
			   .flush = SCOPE_SAME_BYTES,
			   .sources = SCOPE_SAME_BYTES},
	[PROFILE_UNORD] = {.pieces_any = true,
			   .writes = SCOPE_NONE,
			   .flush = SCOPE_NONE,
			   .sources = SCOPE_SAME_BYTES},
};

static const char *const profile_names[N_PROFILES] = {
	"SC", "HAB", "TSO", "VERBS", "RO", "WORST", "UNORD",
};

const char *
profile_name(enum profile profile)
{
	return profile_names[profile];
}

bool
profile_parse(const char *name, enum profile *ret_profile)
{
	for (unsigned i = 0; i < N_PROFILES; i++) {
		if (strcmp(name, profile_names[i]) == 0) {
			*ret_profile = (enum profile)i;
			return true;
		}
	}
	return false;
}

bool
profile_reads_source_at_once(enum profile profile)
{
	return model_rules[profile].at_once;
}

/* ---- Memory ---- */

/* A test that runs out of memory has nothing better to do than to end. */
static void *
grow(void *v, unsigned *cap, unsigned n, size_t size)
{
	if (n < *cap)
		return v;
	*cap = *cap ? *cap * 2 : 8;
	v = realloc(v, *cap * size);
	assert(v);
	return v;
}

struct model *
model_create(const struct model_config *config)
{
	struct model *m = calloc(1, sizeof(*m));

	assert(m);
	m->config = *config;
	return m;
}

static void
pipe_clear(struct model_qp *qp)
{
	for (unsigned i = 0; i < qp->n_pipe; i++)
		free(qp->pipe[i]);
	qp->n_pipe = 0;
}

void
model_destroy(struct model *m)
{
	if (!m)
		return;
	for (unsigned i = 0; i < m->n_qps; i++) {
		pipe_clear(&m->qps[i]);
		free(m->qps[i].pipe);
		free(m->qps[i].wbr.v);
		free(m->qps[i].wbl.v);
	}
	free(m->qps);
	free(m->ranges);
	free(m);
}

unsigned
model_range(struct model *m, unsigned node, void *base, size_t len, bool hashed)
{
	/* Few and rare: one more at a time. */
	m->ranges = realloc(m->ranges, (m->n_ranges + 1) * sizeof(*m->ranges));
	assert(m->ranges);
	m->ranges[m->n_ranges] = (struct model_range){base, len, node, hashed};
	return m->n_ranges++;
}

unsigned char *
model_at(const struct model *m, uint64_t addr)
{
	assert(addr >> 48 < m->n_ranges);
	return m->ranges[addr >> 48].base + (addr & ((UINT64_C(1) << 48) - 1));
}

uint64_t
model_mix(uint64_t a, uint64_t b)
{
	uint64_t v[2] = {a, b};

	return XXH3_64bits(v, sizeof(v));
}

struct model_hash
model_hash(const void *data, size_t len, uint64_t seed)
{
	XXH128_hash_t h = XXH3_128bits_withSeed(data, len, seed);

	return (struct model_hash){h.low64, h.high64};
}

/* What the bytes at an address are in memory_hash: part of a sum, so that it can be taken back. */
static uint64_t
bytes_hash(const unsigned char *p, uint64_t addr, unsigned len)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < len; i++) {
		if (p[i])
			sum += model_mix(addr + i, p[i]);
	}
	return sum;
}

void
model_store(struct model *m, uint64_t addr, const void *data, unsigned len)
{
	unsigned char *p = model_at(m, addr);

	if (m->ranges[addr >> 48].hashed)
		m->memory_hash += bytes_hash(data, addr, len) - bytes_hash(p, addr, len);
	memcpy(p, data, len);
}

/* ---- Lists ---- */

void
lates_add(struct model_lates *lates, const struct model_late *late)
{
	lates->v = grow(lates->v, &lates->cap, lates->n, sizeof(*lates->v));
	lates->v[lates->n++] = *late;
}

void
lates_remove(struct model_lates *lates, unsigned i)
{
	lates->n--;
	memmove(&lates->v[i], &lates->v[i + 1], (lates->n - i) * sizeof(*lates->v));
}

void
pipe_add(struct model_qp *qp, struct model_wr *wr)
{
	qp->pipe = grow(qp->pipe, &qp->cap_pipe, qp->n_pipe, sizeof(struct model_wr *));
	qp->pipe[qp->n_pipe++] = wr;
}

void
pipe_remove(struct model_qp *qp, unsigned i)
{
	free(qp->pipe[i]);
	qp->n_pipe--;
	memmove(&qp->pipe[i], &qp->pipe[i + 1], (qp->n_pipe - i) * sizeof(struct model_wr *));
}

void
model_choice_add(struct model_choices *choices, const struct model_choice *choice)
{
	choices->v = grow(choices->v, &choices->cap, choices->n, sizeof(*choices->v));
	choices->v[choices->n++] = *choice;
}

void
model_bytes_add(struct model_bytes *bytes, const void *data, size_t len)
{
	if (bytes->n + len > bytes->cap) {
		bytes->cap = (bytes->n + len) * 2;
		bytes->v = realloc(bytes->v, bytes->cap);
		assert(bytes->v);
	}
	memcpy(bytes->v + bytes->n, data, len);
	bytes->n += len;
}

/* ---- Queue pairs ---- */

unsigned
model_qp(struct model *m, unsigned node)
{
	m->qps = realloc(m->qps, (m->n_qps + 1) * sizeof(*m->qps));
	assert(m->qps);
	m->qps[m->n_qps] = (struct model_qp){.node = node};
	return m->n_qps++;
}

struct model_wr *
model_wr(enum model_kind kind, unsigned n_pieces)
{
	struct model_wr *wr = calloc(1, sizeof(*wr) + n_pieces * sizeof(wr->piece[0]));

	assert(wr);
	wr->kind = kind;
	wr->n_pieces = n_pieces;
	return wr;
}

void
model_post(struct model *m, unsigned qp_number, struct model_wr *wr)
{
	struct model_qp *qp = &m->qps[qp_number];

	if (rules_of(m)->at_once && wr->kind == MODEL_PUT) {
		for (unsigned i = 0; i < wr->n_pieces; i++)
			read_source(m, qp, wr, &wr->piece[i]);
	}
	pipe_add(qp, wr);
}

void
model_run_whole(struct model *m, unsigned qp_number)
{
	struct model_choice choice = {.kind = MODEL_STEP_WHOLE, .qp = (uint16_t)qp_number};

	while (m->qps[qp_number].n_pipe)
		model_step(m, &choice);
}

bool
model_pollable(const struct model *m, unsigned qp_number)
{
	const struct model_lates *wbl = &m->qps[qp_number].wbl;

	return wbl->n && wbl->v[0].completion;
}

void
model_poll(struct model *m, unsigned qp_number)
{
	lates_remove(&m->qps[qp_number].wbl, 0);
}

void
model_break(struct model *m, unsigned qp_number, unsigned n_sent)
{
	struct model_qp *qp = &m->qps[qp_number];

	while (qp->n_pipe > n_sent)
		pipe_remove(qp, qp->n_pipe - 1);
	for (unsigned i = 0; i < qp->n_pipe;) {
		struct model_wr *wr = qp->pipe[i];

		for (unsigned j = 0; wr->kind == MODEL_PUT && j < wr->n_pieces; j++)
			read_source(m, qp, wr, &wr->piece[j]);
		/* A READ without an asker, and what has acted already, do nothing any more. */
		if (wr->sent || wr->kind == MODEL_GET)
			pipe_remove(qp, i);
		else
			i++;
	}
	qp->dead = true;
}

void
model_drop_local(struct model *m, unsigned qp_number)
{
	m->qps[qp_number].wbl.n = 0;
}

void
model_end(struct model *m, unsigned qp_number)
{
	struct model_qp *qp = &m->qps[qp_number];

	for (unsigned i = 0; i < qp->wbr.n; i++)
		model_store(m, qp->wbr.v[i].addr, qp->wbr.v[i].data, qp->wbr.v[i].len);
	qp->dead = true;
	qp->wbr.n = 0;
	pipe_clear(qp);
}

void
read_source(struct model *m, struct model_qp *qp, struct model_wr *wr, struct model_piece *piece)
{
	const unsigned char *source;

	if (piece->held)
		return;
	source = model_at(m, piece->local);
	if (wr->guarded && memcmp(source, piece->data, piece->len) != 0)
		qp->fault = true;
	memcpy(piece->data, source, piece->len);
	piece->held = true;
}

void
land(struct model *m, struct model_qp *qp, const struct model_late *late)
{
	model_store(m, late->addr, late->data, late->len);
	qp->landed += XXH3_64bits_withSeed(late->data, late->len, late->addr);
}

bool
model_is_quiet(const struct model *m)
{
	for (unsigned i = 0; i < m->n_qps; i++) {
		const struct model_qp *qp = &m->qps[i];

		if (qp->n_pipe || qp->wbr.n)
			return false;
		for (unsigned j = 0; j < qp->wbl.n; j++) {
			if (!qp->wbl.v[j].completion)
				return false;
		}
	}
	return true;
}

bool
model_is_in_use(const struct model *m, unsigned range)
{
	for (unsigned i = 0; i < m->n_qps; i++) {
		const struct model_qp *qp = &m->qps[i];

		for (unsigned j = 0; j < qp->wbl.n; j++) {
			if (!qp->wbl.v[j].completion && qp->wbl.v[j].addr >> 48 == range)
				return true;
		}
		for (unsigned j = 0; !qp->dead && j < qp->n_pipe; j++) {
			for (unsigned k = 0; k < qp->pipe[j]->n_pieces; k++) {
				if (qp->pipe[j]->piece[k].local >> 48 == range)
					return true;
			}
		}
	}
	return false;
}

bool
model_is_buffered(const struct model *m, uint64_t addr, uint64_t len)
{
	for (unsigned i = 0; i < m->n_qps; i++) {
		const struct model_lates *wbr = &m->qps[i].wbr;

		for (unsigned j = 0; j < wbr->n; j++) {
			if (wbr->v[j].addr < addr + len && addr < wbr->v[j].addr + wbr->v[j].len)
				return true;
		}
	}
	return false;
}
