/* SPDX-License-Identifier: BSD-2-Clause */
/* Litmus programs: the threads on top of the memory model, and all their states. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/litmus_program.h"
#include "tests/sim/states.h"

#define STORES_MAX (2 * LITMUS_STATEMENTS) /* a fenced post takes two places */

enum { STEP_DRAIN = MODEL_STEP_USER, STEP_STATEMENT };

/* In a store buffer: a store, or a post with the values it had when it was made. */
struct stored {
	uint32_t is_fence; /* no bool: states are compared as bytes, padding would be noise */
	uint32_t statement;
	uint64_t value[LITMUS_PIECES];
	uint64_t expect;
	uint64_t swap;
};

struct thread {
	unsigned pc;
	uint64_t reg[LITMUS_REGISTERS];
	bool is_set[LITMUS_REGISTERS];
	unsigned n_stores;
	struct stored store[STORES_MAX];
};

struct litmus_state {
	const struct litmus *litmus;
	struct model *model;
	uint64_t memory[LITMUS_LOCATIONS];
	struct thread thread[LITMUS_THREADS];
	bool is_sent;
};

static uint64_t
value_of(const struct thread *thread, const struct operand *operand)
{
	return operand->is_register ? thread->reg[operand->v] : operand->v;
}

static bool
is_post(const struct statement *st)
{
	return st->op >= OP_WRITE;
}

/* ---- CPUs ---- */

static uint64_t
load(const struct litmus_state *s, const struct thread *thread, unsigned thread_number,
     unsigned location)
{
	const struct statement *program = s->litmus->thread[thread_number].statement;

	for (unsigned i = thread->n_stores; i > 0; i--) {
		const struct stored *stored = &thread->store[i - 1];

		if (!stored->is_fence && program[stored->statement].op == OP_STORE &&
		    program[stored->statement].location == location)
			return stored->value[0];
	}
	return s->memory[location];
}

static bool
may_run(const struct litmus_state *s, unsigned t)
{
	const struct thread *thread = &s->thread[t];
	const struct statement *st = &s->litmus->thread[t].statement[thread->pc];

	if (thread->pc >= s->litmus->thread[t].n)
		return false;
	switch (st->op) {
	case OP_AWAIT:
		return load(s, thread, t, st->location) == value_of(thread, &st->value[0]);
	case OP_MFENCE:
	case OP_LOCAL_CAS:
	case OP_SEND:
		return thread->n_stores == 0;
	case OP_RECV:
		return s->is_sent;
	case OP_POLL:
		return model_pollable(s->model, st->qp);
	default:
		return true;
	}
}

/* The work request of a post, as the card gets it. */
static struct model_wr *
request(const struct statement *st, const struct stored *stored)
{
	static const enum model_kind kinds[] = {
		[OP_WRITE] = MODEL_PUT, [OP_WRITE_INLINE] = MODEL_PUT, [OP_READ] = MODEL_GET,
		[OP_CAS] = MODEL_CAS,   [OP_FAA] = MODEL_FAA,
	};
	struct model_wr *wr = model_wr(kinds[st->op], st->n_pieces);

	wr->signalled = true;
	wr->expect = stored->expect;
	wr->swap = stored->swap;
	for (unsigned i = 0; i < st->n_pieces; i++) {
		struct model_piece *piece = &wr->piece[i];

		piece->remote = model_addr(st->piece[i].remote, 0);
		piece->local = model_addr(st->piece[i].local, 0);
		piece->len = sizeof(uint64_t);
		if (st->op == OP_WRITE_INLINE) {
			piece->held = true;
			memcpy(piece->data, &stored->value[i], sizeof(uint64_t));
		}
	}
	return wr;
}

static void
put_out(struct litmus_state *s, unsigned t, const struct stored *stored)
{
	const struct statement *st = &s->litmus->thread[t].statement[stored->statement];

	if (stored->is_fence)
		model_post(s->model, st->qp, model_wr(MODEL_FENCE, 0));
	else if (is_post(st))
		model_post(s->model, st->qp, request(st, stored));
	else
		s->memory[st->location] = stored->value[0];
}

static void
drain(struct litmus_state *s, unsigned t)
{
	struct thread *thread = &s->thread[t];

	put_out(s, t, &thread->store[0]);
	thread->n_stores--;
	memmove(&thread->store[0], &thread->store[1], thread->n_stores * sizeof(thread->store[0]));
}

static void
store_or_post(struct litmus_state *s, unsigned t, const struct statement *st)
{
	struct thread *thread = &s->thread[t];
	struct stored stored = {.statement = thread->pc};
	struct stored fence = {.statement = thread->pc, .is_fence = true};
	bool at_once = s->model->config.profile == PROFILE_SC;

	for (unsigned i = 0; i < LITMUS_PIECES; i++)
		stored.value[i] = value_of(thread, &st->value[i]);
	if (st->op == OP_CAS || st->op == OP_FAA) {
		stored.expect = stored.value[0];
		stored.swap = stored.value[1];
	}
	if (at_once) {
		put_out(s, t, &stored);
		if (is_post(st))
			model_run_whole(s->model, st->qp);
		return;
	}
	if (st->is_fenced)
		thread->store[thread->n_stores++] = fence;
	thread->store[thread->n_stores++] = stored;
	assert(thread->n_stores <= STORES_MAX);
}

static void
set_register(struct thread *thread, unsigned reg, uint64_t v)
{
	thread->reg[reg] = v;
	thread->is_set[reg] = true;
}

static void
run_statement(struct litmus_state *s, unsigned t)
{
	struct thread *thread = &s->thread[t];
	const struct statement *st = &s->litmus->thread[t].statement[thread->pc];
	unsigned next = thread->pc + 1;

	switch (st->op) {
	case OP_LOAD:
		set_register(thread, st->reg, load(s, thread, t, st->location));
		break;
	case OP_LOCAL_CAS:
		set_register(thread, st->reg, s->memory[st->location]);
		if (s->memory[st->location] == value_of(thread, &st->value[0]))
			s->memory[st->location] = value_of(thread, &st->value[1]);
		break;
	case OP_UNLESS:
		if (thread->reg[st->reg] != value_of(thread, &st->value[0]))
			next += st->ahead;
		break;
	case OP_SKIP:
		next += st->ahead;
		break;
	case OP_SEND:
		s->is_sent = true;
		break;
	case OP_POLL:
		model_poll(s->model, st->qp);
		break;
	case OP_MFENCE:
	case OP_AWAIT:
	case OP_RECV:
		break;
	default:
		store_or_post(s, t, st);
	}
	thread->pc = next;
}

/* ---- States ---- */

static struct litmus_state *
state_create(const struct litmus *litmus, const struct model_config *config)
{
	struct litmus_state *s = calloc(1, sizeof(*s));

	assert(s);
	s->litmus = litmus;
	s->model = model_create(config);
	for (unsigned i = 0; i < litmus->n_locations; i++) {
		s->memory[i] = litmus->location[i].init;
		model_range(s->model, litmus->location[i].node, &s->memory[i], sizeof(uint64_t),
			    false);
	}
	for (unsigned i = 0; i < litmus->n_qps; i++)
		model_qp(s->model, litmus->qp[i].node);
	return s;
}

static void
state_destroy(struct litmus_state *s)
{
	model_destroy(s->model);
	free(s);
}

static size_t
thread_size(unsigned n_stores)
{
	return offsetof(struct thread, store) + n_stores * sizeof(struct stored);
}

static void
pack(const struct litmus_state *s, struct model_bytes *bytes)
{
	model_bytes_add(bytes, &s->is_sent, sizeof(s->is_sent));
	model_bytes_add(bytes, s->memory, s->litmus->n_locations * sizeof(s->memory[0]));
	for (unsigned i = 0; i < s->litmus->n_threads; i++)
		model_bytes_add(bytes, &s->thread[i], thread_size(s->thread[i].n_stores));
	model_pack(s->model, bytes);
}

static void
unpack(struct litmus_state *s, const unsigned char *from)
{
	memcpy(&s->is_sent, from, sizeof(s->is_sent));
	from += sizeof(s->is_sent);
	memcpy(s->memory, from, s->litmus->n_locations * sizeof(s->memory[0]));
	from += s->litmus->n_locations * sizeof(s->memory[0]);
	for (unsigned i = 0; i < s->litmus->n_threads; i++) {
		struct thread *thread = &s->thread[i];

		memcpy(thread, from, thread_size(0));
		memcpy(thread->store, from + thread_size(0),
		       thread_size(thread->n_stores) - thread_size(0));
		from += thread_size(thread->n_stores);
	}
	model_unpack(s->model, from);
}

static void
add_choices(const struct litmus_state *s, struct model_choices *choices)
{
	choices->n = 0;
	model_choices(s->model, choices);
	for (unsigned t = 0; t < s->litmus->n_threads; t++) {
		struct model_choice c = {
			.kind = STEP_DRAIN, .actor = (uint16_t)t, .qp = (uint16_t)t};

		if (s->thread[t].n_stores)
			model_choice_add(choices, &c);
		c.kind = STEP_STATEMENT;
		if (may_run(s, t))
			model_choice_add(choices, &c);
	}
}

static void
step(struct litmus_state *s, const struct model_choice *c)
{
	if (c->kind == STEP_DRAIN)
		drain(s, c->qp);
	else if (c->kind == STEP_STATEMENT)
		run_statement(s, c->qp);
	else
		model_step(s->model, c);
}

static bool
is_done(const struct litmus_state *s)
{
	for (unsigned t = 0; t < s->litmus->n_threads; t++) {
		if (s->thread[t].pc < s->litmus->thread[t].n)
			return false;
	}
	return true;
}

static bool
is_quiet(const struct litmus_state *s)
{
	for (unsigned t = 0; t < s->litmus->n_threads; t++) {
		if (s->thread[t].n_stores)
			return false;
	}
	return model_is_quiet(s->model);
}

/* ---- All of them: depth first, states still to be visited packed on a stack ---- */

struct exploration {
	struct litmus_state *state;
	struct states seen;
	struct model_bytes stack;
	struct model_bytes packed;
	struct model_choices choices;
};

/* Puts the state on the stack unless it was there before. */
static void
visit_later(struct exploration *x)
{
	size_t from = x->stack.n;
	size_t len;

	pack(x->state, &x->stack);
	len = x->stack.n - from;
	if (states_add(&x->seen, model_hash(x->stack.v + from, len, 0)))
		model_bytes_add(&x->stack, &len, sizeof(len));
	else
		x->stack.n = from;
}

static void
take_from_stack(struct exploration *x)
{
	size_t len;

	x->stack.n -= sizeof(len);
	memcpy(&len, x->stack.v + x->stack.n, sizeof(len));
	x->stack.n -= len;
	x->packed.n = 0;
	model_bytes_add(&x->packed, x->stack.v + x->stack.n, len);
}

void
litmus_explore(const struct litmus *litmus, const struct model_config *config,
	       void (*at_end)(void *arg, const struct litmus_state *state), void *arg,
	       struct litmus_stats *ret_stats)
{
	struct exploration x = {.state = state_create(litmus, config)};
	struct litmus_stats stats = {0};

	visit_later(&x);
	while (x.stack.n) {
		take_from_stack(&x);
		unpack(x.state, x.packed.v);
		stats.n_states++;
		add_choices(x.state, &x.choices);
		if (is_done(x.state) && (!x.choices.n || is_quiet(x.state))) {
			stats.n_ends++;
			at_end(arg, x.state);
		} else if (!x.choices.n) {
			stats.n_stuck++;
		}
		for (unsigned i = 0; i < x.choices.n; i++) {
			if (i)
				unpack(x.state, x.packed.v);
			step(x.state, &x.choices.v[i]);
			stats.n_steps++;
			visit_later(&x);
		}
	}
	state_destroy(x.state);
	states_clear(&x.seen);
	free(x.stack.v);
	free(x.packed.v);
	free(x.choices.v);
	*ret_stats = stats;
}

/* ---- What came out ---- */

/* "[x1]", "T1.a" or a number at *text, which moves behind it; false: has no value. */
static bool
term(const struct litmus_state *s, const char **text, uint64_t *ret_v)
{
	const struct litmus *litmus = s->litmus;
	const char *p = *text;
	char name[LITMUS_NAME_MAX] = "";
	size_t len = strcspn(p, "].!= |");
	unsigned t;

	if (*p == '[') {
		memcpy(name, p + 1, len - 1);
		*text = p + len + 1;
		*ret_v = s->memory[litmus_location(litmus, name)];
		return true;
	}
	if (p[len] != '.') {
		*ret_v = (uint64_t)strtoll(p, (char **)text, 10);
		return true;
	}
	memcpy(name, p, len);
	t = litmus_thread(litmus, name);
	*text = p + len + 2;
	*ret_v = s->thread[t].reg[p[len + 1] - 'a'];
	return s->thread[t].is_set[p[len + 1] - 'a'];
}

bool
litmus_holds(const struct litmus_state *state, const char *condition)
{
	bool all = true;

	for (const char *p = condition;;) {
		uint64_t left;
		uint64_t right;
		bool valid = term(state, &p, &left);
		bool unlike = *p == '!';

		p += 1 + unlike;
		valid &= term(state, &p, &right);
		all &= valid && (left == right) != unlike;
		if (!*p || *p == '|' || strncmp(p, " | ", 3) == 0) {
			if (all || !*p)
				return all;
			all = true;
			p += 3;
		} else {
			p++;
		}
	}
}

static char
digit(uint64_t v)
{
	return v < 36 ? "0123456789abcdefghijklmnopqrstuvwxyz"[v] : '?';
}

void
litmus_outcome(const struct litmus_state *state, char *ret_text)
{
	const struct litmus *litmus = state->litmus;

	for (unsigned i = 0; i < litmus->n_threads; i++) {
		unsigned t = litmus->by_name[i];

		for (unsigned r = 0; r < LITMUS_REGISTERS; r++) {
			if (litmus->thread[t].loads[r])
				*ret_text++ = state->thread[t].is_set[r]
						      ? digit(state->thread[t].reg[r])
						      : '-';
		}
	}
	for (unsigned i = 0; i < litmus->n_locations; i++)
		*ret_text++ = digit(state->memory[i]);
	*ret_text = '\0';
}
