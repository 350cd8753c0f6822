/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA memory: which steps the cards may take, and what each does. */
#include <assert.h>
#include <string.h>

#include "tests/sim/rules.h"
#include "tests/sim/sched.h"

/* What is true of the work requests ahead of one in its pipe. */
struct ahead {
	bool fence;
	bool put;        /* a PUT not yet sent */
	bool put_unread; /* one whose source is not read */
	bool asking;     /* a GET, CAS or FAA not yet answered */
	bool get_unread; /* a GET not yet sampled */
	bool atomic;     /* a CAS or FAA not yet executed */
};

static bool
is_held(const struct model_wr *wr)
{
	for (unsigned i = 0; i < wr->n_pieces; i++) {
		if (!wr->piece[i].held)
			return false;
	}
	return true;
}

static bool
is_atomic(const struct model_wr *wr)
{
	return wr->kind == MODEL_CAS || wr->kind == MODEL_FAA;
}

static void
look_ahead(struct ahead *ahead, const struct model_wr *wr)
{
	if (wr->kind == MODEL_FENCE)
		ahead->fence = true;
	if (wr->kind == MODEL_PUT && !wr->sent) {
		ahead->put = true;
		ahead->put_unread |= !is_held(wr);
	}
	if (wr->kind == MODEL_GET) {
		ahead->asking = true;
		ahead->get_unread |= !is_held(wr);
	}
	if (is_atomic(wr)) {
		ahead->asking = true;
		ahead->atomic |= !wr->sent;
	}
}

/* ---- Which steps are possible ---- */

struct adding {
	const struct model *m;
	struct model_choices *choices;
	unsigned qp;
};

static void
add(const struct adding *to, enum model_step_kind kind, unsigned entry, unsigned piece)
{
	unsigned part = kind == MODEL_STEP_COMMIT ? ACTOR_WBR
			: kind == MODEL_STEP_LAND ? ACTOR_WBL
						  : ACTOR_PIPE;

	model_choice_add(to->choices, &(struct model_choice){
					      .kind = (uint8_t)kind,
					      .actor = actor_of_qp(to->qp, part),
					      .qp = (uint16_t)to->qp,
					      .entry = (uint16_t)entry,
					      .piece = (uint16_t)piece,
				      });
}

static bool
node_is_flushed(const struct model *m, const struct model_qp *but, unsigned node)
{
	for (unsigned i = 0; i < m->n_qps; i++) {
		const struct model_qp *qp = &m->qps[i];

		if (qp != but && qp->node == node && qp->wbr.n)
			return false;
	}
	return true;
}

static bool
is_flushed_for(const struct model *m, const struct model_qp *qp, const struct model_piece *piece)
{
	const struct rules *rules = rules_of(m);

	if (rules->node_stream)
		return node_is_flushed(m, NULL, qp->node);
	if (rules->flush == SCOPE_ALL)
		return qp->wbr.n == 0;
	for (unsigned i = 0; rules->flush == SCOPE_SAME_BYTES && i < qp->wbr.n; i++) {
		const struct model_late *late = &qp->wbr.v[i];

		if (overlaps(late->addr, late->len, piece->remote, piece->len))
			return false;
	}
	return true;
}

/* A card's unit is busy from the execution of an atomic until its new value is in memory. */
static bool
unit_is_free(const struct model *m, unsigned node, uint64_t addr)
{
	for (unsigned i = 0; i < m->n_qps; i++) {
		const struct model_lates *wbr = &m->qps[i].wbr;

		for (unsigned j = 0; m->qps[i].node == node && j < wbr->n; j++) {
			if (wbr->v[j].atomic &&
			    (!m->config.unit_per_address || wbr->v[j].addr == addr))
				return false;
		}
	}
	return true;
}

static bool
may_commit(const struct rules *rules, const struct model_lates *wbr, unsigned i)
{
	const struct model_late *late = &wbr->v[i];
	bool one_message = true;
	bool free = rules->writes != SCOPE_ALL;

	for (unsigned j = 0; j < i; j++) {
		const struct model_late *older = &wbr->v[j];
		bool same = overlaps(older->addr, older->len, late->addr, late->len);

		one_message &= older->message == late->message;
		if (older->atomic || (same && (late->atomic || rules->writes != SCOPE_NONE)))
			free = false;
	}
	return i == 0 || free || (rules->pieces_any && one_message);
}

static bool
may_land(const struct rules *rules, const struct model_lates *wbl, unsigned i)
{
	const struct model_late *late = &wbl->v[i];

	for (unsigned j = 0; j < i; j++) {
		const struct model_late *older = &wbl->v[j];

		if (older->completion)
			continue;
		if (!rules->pieces_any || overlaps(older->addr, older->len, late->addr, late->len))
			return false;
	}
	return !late->completion;
}

static bool
may_read_source(const struct rules *rules, const struct model_qp *qp,
		const struct model_piece *piece)
{
	for (unsigned i = 0; i < qp->wbl.n; i++) {
		const struct model_late *late = &qp->wbl.v[i];

		if (!late->completion &&
		    (rules->sources == SCOPE_ALL ||
		     overlaps(late->addr, late->len, piece->local, piece->len)))
			return false;
	}
	return true;
}

static void
add_put(const struct adding *to, const struct model_qp *qp, unsigned e, const struct ahead *ahead)
{
	const struct rules *rules = rules_of(to->m);
	const struct model_wr *wr = qp->pipe[e];

	if (wr->sent) {
		if (e == 0)
			add(to, MODEL_STEP_ACK, e, 0);
		return;
	}
	if (ahead->fence)
		return;
	if (!is_held(wr)) {
		for (unsigned i = 0; i < wr->n_pieces; i++) {
			if (!wr->piece[i].held && !(rules->sources_ordered && ahead->put_unread) &&
			    may_read_source(rules, qp, &wr->piece[i]))
				add(to, MODEL_STEP_SOURCE, e, i);
		}
	} else if (!ahead->put && !(rules->atomic_first && ahead->atomic) &&
		   !(rules->node_stream && !node_is_flushed(to->m, qp, qp->node))) {
		add(to, MODEL_STEP_SEND, e, 0);
	}
}

static void
add_get(const struct adding *to, const struct model_qp *qp, unsigned e, const struct ahead *ahead)
{
	const struct model_wr *wr = qp->pipe[e];
	bool may_sample = !ahead->fence && !ahead->put && !ahead->atomic &&
			  !(rules_of(to->m)->reads_ordered && ahead->get_unread);

	for (unsigned i = 0; i < wr->n_pieces; i++) {
		if (!wr->piece[i].held) {
			if (may_sample && is_flushed_for(to->m, qp, &wr->piece[i]))
				add(to, MODEL_STEP_SAMPLE, e, i);
		} else if (to->m->config.repeat_reads && !wr->repeated) {
			add(to, MODEL_STEP_REPEAT, e, i);
		}
	}
	if (e == 0 && is_held(wr))
		add(to, MODEL_STEP_ANSWER, e, 0);
}

static void
add_atomic(const struct adding *to, const struct model_qp *qp, unsigned e,
	   const struct ahead *ahead)
{
	const struct rules *rules = rules_of(to->m);
	const struct model_wr *wr = qp->pipe[e];
	bool flushed;

	if (wr->sent) {
		if (e == 0)
			add(to, MODEL_STEP_ANSWER, e, 0);
		return;
	}
	flushed = rules->node_stream ? node_is_flushed(to->m, NULL, qp->node) : qp->wbr.n == 0;
	if (!ahead->fence && !ahead->put && !(rules->atomic_first && ahead->atomic) && flushed &&
	    unit_is_free(to->m, qp->node, wr->piece[0].remote))
		add(to, MODEL_STEP_ATOMIC, e, 0);
}

static void
add_pipe(const struct adding *to, const struct model_qp *qp)
{
	struct ahead ahead = {0};

	for (unsigned e = 0; e < qp->n_pipe; e++) {
		const struct model_wr *wr = qp->pipe[e];

		if (wr->kind == MODEL_PUT)
			add_put(to, qp, e, &ahead);
		else if (wr->kind == MODEL_GET)
			add_get(to, qp, e, &ahead);
		else if (is_atomic(wr))
			add_atomic(to, qp, e, &ahead);
		else if (!ahead.asking && !ahead.fence)
			add(to, MODEL_STEP_UNFENCE, e, 0);
		look_ahead(&ahead, wr);
	}
}

void
model_choices(const struct model *m, struct model_choices *choices)
{
	const struct rules *rules = rules_of(m);

	for (unsigned q = 0; q < m->n_qps; q++) {
		const struct model_qp *qp = &m->qps[q];
		struct adding to = {m, choices, q};

		if (rules->at_once) {
			if (qp->n_pipe)
				add(&to, MODEL_STEP_WHOLE, 0, 0);
			continue;
		}
		for (unsigned i = 0; i < qp->wbr.n; i++) {
			if (may_commit(rules, &qp->wbr, i))
				add(&to, MODEL_STEP_COMMIT, i, 0);
		}
		for (unsigned i = 0; i < qp->wbl.n; i++) {
			if (may_land(rules, &qp->wbl, i))
				add(&to, MODEL_STEP_LAND, i, 0);
		}
		add_pipe(&to, qp);
	}
}

/* Sent bytes hold up what has yet to read or change memory before them, HAB's other writers too. */
static bool
is_send_private(const struct model *m, const struct model_qp *qp, unsigned e)
{
	struct ahead ahead = {0};

	for (unsigned i = 0; i < e; i++)
		look_ahead(&ahead, qp->pipe[i]);
	return !rules_of(m)->node_stream && !ahead.get_unread && !ahead.atomic &&
	       !m->config.repeat_reads;
}

bool
model_is_private(const struct model *m, const struct model_choice *c)
{
	const struct model_qp *qp = &m->qps[c->qp];

	switch (c->kind) {
	case MODEL_STEP_SOURCE:
	case MODEL_STEP_LAND:
	case MODEL_STEP_ACK:
	case MODEL_STEP_UNFENCE:
		return true;
	case MODEL_STEP_SEND:
		return is_send_private(m, qp, c->entry);
	case MODEL_STEP_ANSWER:
		/* Once answered, a READ cannot be repeated. */
		return qp->pipe[c->entry]->kind != MODEL_GET || qp->pipe[c->entry]->repeated ||
		       !m->config.repeat_reads;
	default:
		return false;
	}
}

/* ---- What they do ---- */

static void
complete(struct model_qp *qp, const struct model_wr *wr)
{
	if (wr->signalled && !qp->dead)
		lates_add(&qp->wbl, &(struct model_late){.completion = true});
}

static void
send(struct model_qp *qp, unsigned e)
{
	struct model_wr *wr = qp->pipe[e];

	for (unsigned i = 0; i < wr->n_pieces; i++) {
		const struct model_piece *piece = &wr->piece[i];
		struct model_late late = {
			.addr = piece->remote, .len = piece->len, .message = qp->n_messages};

		memcpy(late.data, piece->data, piece->len);
		lates_add(&qp->wbr, &late);
	}
	qp->n_messages++;
	wr->sent = true;
	if (qp->dead)
		pipe_remove(qp, e);
}

static void
sample(struct model *m, struct model_piece *piece)
{
	memcpy(piece->data, model_at(m, piece->remote), piece->len);
	piece->held = true;
}

/* A responder that repeats a READ repeats those behind it, where READs are in order. */
static void
repeat(struct model *m, struct model_qp *qp, unsigned e, unsigned p)
{
	qp->pipe[e]->repeated = true;
	qp->pipe[e]->piece[p].held = false;
	if (!rules_of(m)->reads_ordered)
		return;
	for (unsigned i = e + 1; i < qp->n_pipe; i++) {
		for (unsigned j = 0; qp->pipe[i]->kind == MODEL_GET && j < qp->pipe[i]->n_pieces;
		     j++)
			qp->pipe[i]->piece[j].held = false;
	}
}

/* Executes on memory; true if there is a new word, put into *ret_word. */
static bool
execute(struct model *m, struct model_wr *wr, uint64_t *ret_word)
{
	uint64_t old;

	sample(m, &wr->piece[0]);
	wr->sent = true;
	memcpy(&old, wr->piece[0].data, sizeof(old));
	if (wr->kind == MODEL_CAS && old != wr->expect)
		return false;
	*ret_word = wr->kind == MODEL_CAS ? wr->swap : old + wr->expect;
	return true;
}

static void
step_atomic(struct model *m, struct model_qp *qp, unsigned e)
{
	struct model_wr *wr = qp->pipe[e];
	uint64_t word;

	if (execute(m, wr, &word)) {
		struct model_late late = {.addr = wr->piece[0].remote,
					  .len = sizeof(word),
					  .atomic = true,
					  .message = qp->n_messages++};

		memcpy(late.data, &word, sizeof(word));
		lates_add(&qp->wbr, &late);
	}
	if (qp->dead)
		pipe_remove(qp, e);
}

static void
answer(struct model_qp *qp)
{
	const struct model_wr *wr = qp->pipe[0];

	for (unsigned i = 0; i < wr->n_pieces; i++) {
		const struct model_piece *piece = &wr->piece[i];
		struct model_late late = {.addr = piece->local, .len = piece->len};

		memcpy(late.data, piece->data, piece->len);
		lates_add(&qp->wbl, &late);
	}
	complete(qp, wr);
	pipe_remove(qp, 0);
}

/* PROFILE_SC: the oldest work request from beginning to end. */
static void
step_whole(struct model *m, struct model_qp *qp)
{
	struct model_wr *wr = qp->pipe[0];
	uint64_t word;

	if (is_atomic(wr) && execute(m, wr, &word))
		model_store(m, wr->piece[0].remote, &word, sizeof(word));
	for (unsigned i = 0; i < wr->n_pieces; i++) {
		struct model_piece *piece = &wr->piece[i];
		struct model_late late = {.addr = piece->local, .len = piece->len};

		if (wr->kind == MODEL_PUT) {
			model_store(m, piece->remote, piece->data, piece->len);
			continue;
		}
		if (wr->kind == MODEL_GET)
			sample(m, piece);
		memcpy(late.data, piece->data, piece->len);
		if (!qp->dead)
			land(m, qp, &late);
	}
	complete(qp, wr);
	pipe_remove(qp, 0);
}

void
model_step(struct model *m, const struct model_choice *c)
{
	struct model_qp *qp = &m->qps[c->qp];
	struct model_wr *wr = c->entry < qp->n_pipe ? qp->pipe[c->entry] : NULL;

	switch ((enum model_step_kind)c->kind) {
	case MODEL_STEP_COMMIT:
		model_store(m, qp->wbr.v[c->entry].addr, qp->wbr.v[c->entry].data,
			    qp->wbr.v[c->entry].len);
		lates_remove(&qp->wbr, c->entry);
		break;
	case MODEL_STEP_LAND:
		land(m, qp, &qp->wbl.v[c->entry]);
		lates_remove(&qp->wbl, c->entry);
		break;
	case MODEL_STEP_SOURCE:
		read_source(m, qp, wr, &wr->piece[c->piece]);
		break;
	case MODEL_STEP_SEND:
		send(qp, c->entry);
		break;
	case MODEL_STEP_ACK:
		complete(qp, wr);
		pipe_remove(qp, c->entry);
		break;
	case MODEL_STEP_SAMPLE:
		sample(m, &wr->piece[c->piece]);
		break;
	case MODEL_STEP_REPEAT:
		repeat(m, qp, c->entry, c->piece);
		break;
	case MODEL_STEP_ATOMIC:
		step_atomic(m, qp, c->entry);
		break;
	case MODEL_STEP_ANSWER:
		answer(qp);
		break;
	case MODEL_STEP_UNFENCE:
		pipe_remove(qp, c->entry);
		break;
	case MODEL_STEP_WHOLE:
		step_whole(m, qp);
		break;
	case MODEL_STEP_USER:
		assert(!"not a step of the model");
	}
}
