/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA memory: pipes and buffers as bytes, to be hashed, and to come back to. */
#include <assert.h>
#include <string.h>

#include "tests/sim/rules.h"

static void
pack_u8(struct model_bytes *bytes, unsigned v)
{
	unsigned char byte = (unsigned char)v;

	assert(v <= UINT8_MAX);
	model_bytes_add(bytes, &byte, 1);
}

static void
pack_u16(struct model_bytes *bytes, unsigned v)
{
	uint16_t v16 = (uint16_t)v;

	assert(v <= UINT16_MAX);
	model_bytes_add(bytes, &v16, sizeof(v16));
}

static void
pack_u64(struct model_bytes *bytes, uint64_t v)
{
	model_bytes_add(bytes, &v, sizeof(v));
}

/* Sampled bytes count; what a piece holds before is noise. */
static void
pack_wr(struct model_bytes *bytes, const struct model_wr *wr)
{
	pack_u8(bytes, wr->kind);
	pack_u8(bytes, wr->sent | wr->signalled << 1 | wr->guarded << 2 | wr->repeated << 3);
	pack_u64(bytes, wr->expect);
	pack_u64(bytes, wr->swap);
	pack_u16(bytes, wr->n_pieces);
	for (unsigned i = 0; i < wr->n_pieces; i++) {
		const struct model_piece *piece = &wr->piece[i];

		pack_u64(bytes, piece->remote);
		pack_u64(bytes, piece->local);
		pack_u8(bytes, piece->len);
		pack_u8(bytes, piece->held);
		if (piece->held)
			model_bytes_add(bytes, piece->data, piece->len);
	}
}

/* Messages are numbered anew: only which pieces belong together matters. */
static void
pack_lates(struct model_bytes *bytes, const struct model_lates *lates)
{
	unsigned message = 0;

	pack_u16(bytes, lates->n);
	for (unsigned i = 0; i < lates->n; i++) {
		const struct model_late *late = &lates->v[i];

		if (i && late->message != lates->v[i - 1].message)
			message++;
		pack_u8(bytes, late->completion | late->atomic << 1);
		if (late->completion)
			continue;
		pack_u16(bytes, message);
		pack_u64(bytes, late->addr);
		pack_u8(bytes, late->len);
		model_bytes_add(bytes, late->data, late->len);
	}
}

void
model_pack(const struct model *m, struct model_bytes *bytes)
{
	for (unsigned i = 0; i < m->n_qps; i++) {
		const struct model_qp *qp = &m->qps[i];

		pack_u8(bytes, qp->dead);
		pack_u16(bytes, qp->n_pipe);
		for (unsigned j = 0; j < qp->n_pipe; j++)
			pack_wr(bytes, qp->pipe[j]);
		pack_lates(bytes, &qp->wbr);
		pack_lates(bytes, &qp->wbl);
	}
}

static void
take(const unsigned char **from, void *to, size_t len)
{
	memcpy(to, *from, len);
	*from += len;
}

static unsigned
take_u8(const unsigned char **from)
{
	return *(*from)++;
}

static unsigned
take_u16(const unsigned char **from)
{
	uint16_t v;

	take(from, &v, sizeof(v));
	return v;
}

static uint64_t
take_u64(const unsigned char **from)
{
	uint64_t v;

	take(from, &v, sizeof(v));
	return v;
}

static struct model_wr *
take_wr(const unsigned char **from)
{
	enum model_kind kind = take_u8(from);
	unsigned flags = take_u8(from);
	uint64_t expect = take_u64(from);
	uint64_t swap = take_u64(from);
	struct model_wr *wr = model_wr(kind, take_u16(from));

	wr->sent = flags & 1;
	wr->signalled = flags >> 1 & 1;
	wr->guarded = flags >> 2 & 1;
	wr->repeated = flags >> 3 & 1;
	wr->expect = expect;
	wr->swap = swap;
	for (unsigned i = 0; i < wr->n_pieces; i++) {
		struct model_piece *piece = &wr->piece[i];

		piece->remote = take_u64(from);
		piece->local = take_u64(from);
		piece->len = (uint16_t)take_u8(from);
		piece->held = take_u8(from);
		if (piece->held)
			take(from, piece->data, piece->len);
	}
	return wr;
}

static void
take_lates(const unsigned char **from, struct model_lates *lates)
{
	unsigned n = take_u16(from);

	lates->n = 0;
	for (unsigned i = 0; i < n; i++) {
		unsigned flags = take_u8(from);
		struct model_late late = {.completion = flags & 1, .atomic = flags >> 1 & 1};

		if (!late.completion) {
			late.message = take_u16(from);
			late.addr = take_u64(from);
			late.len = (uint16_t)take_u8(from);
			take(from, late.data, late.len);
		}
		lates_add(lates, &late);
	}
}

const unsigned char *
model_unpack(struct model *m, const unsigned char *from)
{
	for (unsigned i = 0; i < m->n_qps; i++) {
		struct model_qp *qp = &m->qps[i];
		unsigned n;

		while (qp->n_pipe)
			pipe_remove(qp, qp->n_pipe - 1);
		qp->dead = take_u8(&from);
		n = take_u16(&from);
		for (unsigned j = 0; j < n; j++)
			pipe_add(qp, take_wr(&from));
		take_lates(&from, &qp->wbr);
		take_lates(&from, &qp->wbl);
		qp->n_messages = qp->wbr.n;
	}
	return from;
}
