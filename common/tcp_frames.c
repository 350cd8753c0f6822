/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * See tcp_frames.h. A frame goes through four stages:
 *
 *   HEADER ---> OPS ---> REPLY ---> RUN ---> HEADER ...
 *     |          |         |         |
 *     16 bytes   all its   room for  op after op: a WRITE takes bytes from the input, READ and
 *                ops: the  the reply  atomics put results into out
 *                checks    header
 *
 * All operations are checked before the first is executed, so a batch is executed as a whole or not
 * at all, and the status can go out first. What does not fit (input that ends, a reply buffer that
 * is full) stops the work at any point; it goes on there the next time.
 *
 * A piece of a long READ or WRITE ends where an aligned word of the region ends: no word is torn.
 */
#include "common/tcp_frames.h"

#include <string.h>

#include "common/err.h"
#include "common/execute.h"

static_assert(WIRE_TCP_OPS_MAX == FAB_BATCH_MAX, "a frame holds a batch");
static_assert(TCP_CARRY_MAX >= EXECUTE_WORDS_MAX, "a short WRITE is carried whole");

/*
 * n contiguous bytes of the connection, or NULL: there are fewer, and the input is consumed. They
 * stay where they are until the next call.
 */
static const unsigned char *
take(struct tcp_frames *f, struct tcp_input *in, size_t n)
{
	const unsigned char *bytes = in->at;
	if (f->n_carried == 0 && in->len >= n) {
		in->at += n;
		in->len -= n;
		return bytes;
	}
	size_t more = n - f->n_carried;
	if (more > in->len)
		more = in->len;
	memcpy(f->carry + f->n_carried, in->at, more);
	in->at += more;
	in->len -= more;
	f->n_carried += more;
	if (f->n_carried < n)
		return NULL;
	f->n_carried = 0;
	return f->carry;
}

static size_t
room(const struct tcp_frames *f)
{
	return TCP_OUT_LEN - f->out_len;
}

static void
put(struct tcp_frames *f, const void *bytes, size_t n)
{
	memcpy(f->out + f->out_len, bytes, n);
	f->out_len += n;
}

/* How many of n bytes at an offset to move now, if these are not all: up to the end of a word. */
static size_t
whole_words(uint64_t roff, size_t n)
{
	size_t over = (roff + n) & 7;
	return over <= n ? n - over : 0;
}

/* ---- Checks ---- */

static bool
header_is_sound(const struct wire_tcp_frame *frame)
{
	return frame->n_ops >= 1 && frame->n_ops <= WIRE_TCP_OPS_MAX &&
	       (frame->flags & ~WIRE_TCP_QUIET) == 0;
}

/* Is this a frame at all: known kinds, a length that agrees, nothing quiet that asks for bytes? */
static bool
ops_are_sound(const struct tcp_frames *f)
{
	uint64_t len = sizeof(f->frame) + f->frame.n_ops * sizeof(f->ops[0]);
	for (unsigned i = 0; i < f->frame.n_ops; i++) {
		const struct wire_tcp_op *op = &f->ops[i];
		if (op->kind > FAB_FAA || op->reserved[0] || op->reserved[1] || op->reserved[2])
			return false;
		if (op->kind == FAB_WRITE)
			len += op->len;
		else if (f->frame.flags & WIRE_TCP_QUIET)
			return false;
	}
	return len == f->frame.len;
}

/* [RANGE]: what a NIC would refuse. Also tells the reply's length. */
static int
check(const struct tcp_frames *f, struct wire_tcp_reply *ret_reply)
{
	const struct tcp_service *service = f->service;
	uint64_t len = sizeof(*ret_reply);
	if (f->frame.r_key != service->r_key)
		return ERR_PERM;
	for (unsigned i = 0; i < f->frame.n_ops; i++) {
		const struct wire_tcp_op *op = &f->ops[i];
		int r = execute_check((enum fab_kind)op->kind, op->roff, op->len, service->len,
				      !f->is_read_only);
		if (r)
			return r;
		if (op->kind != FAB_WRITE)
			len += op->len;
	}
	if (len > UINT32_MAX)
		return ERR_INVALID;
	ret_reply->len = (uint32_t)len;
	return 0;
}

/* ---- Stages ---- */

static enum tcp_progress
take_header(struct tcp_frames *f, struct tcp_input *in)
{
	const unsigned char *bytes = take(f, in, sizeof(f->frame));
	if (!bytes)
		return TCP_HUNGRY;
	memcpy(&f->frame, bytes, sizeof(f->frame));
	if (!header_is_sound(&f->frame))
		return TCP_GARBLED;
	f->stage = TCP_STAGE_OPS;
	return TCP_ON;
}

static enum tcp_progress
take_ops(struct tcp_frames *f, struct tcp_input *in)
{
	size_t n = f->frame.n_ops * sizeof(f->ops[0]);
	const unsigned char *bytes = take(f, in, n);
	if (!bytes)
		return TCP_HUNGRY;
	memcpy(f->ops, bytes, n);
	if (!ops_are_sound(f))
		return TCP_GARBLED;
	f->n_frames++;
	f->stage = TCP_STAGE_REPLY;
	return TCP_ON;
}

static enum tcp_progress
begin_reply(struct tcp_frames *f)
{
	struct wire_tcp_reply reply = {.len = sizeof(reply), .sequence = f->frame.sequence};
	bool is_quiet = (f->frame.flags & WIRE_TCP_QUIET) != 0;
	if (!is_quiet && room(f) < sizeof(reply))
		return TCP_FULL;
	reply.status = check(f, &reply);
	if (!is_quiet)
		put(f, &reply, sizeof(reply));
	if (reply.status)
		return TCP_REFUSED;
	f->stage = TCP_STAGE_RUN;
	f->op = 0;
	f->op_done = 0;
	return TCP_ON;
}

static enum tcp_progress
run_read(struct tcp_frames *f, const struct wire_tcp_op *op)
{
	while (f->op_done < op->len) {
		uint64_t roff = op->roff + f->op_done;
		size_t n = op->len - f->op_done;
		if (n > room(f)) {
			n = whole_words(roff, room(f));
			if (n == 0 || op->len <= EXECUTE_WORDS_MAX)
				return TCP_FULL;
		}
		execute_read(f->out + f->out_len, f->service->base + roff, n);
		f->out_len += n;
		f->op_done += (uint32_t)n;
	}
	return TCP_ON;
}

/* A short WRITE in one go; of a long one what is there, and words that straddle two inputs. */
static enum tcp_progress
run_write(struct tcp_frames *f, const struct wire_tcp_op *op, struct tcp_input *in)
{
	while (f->op_done < op->len) {
		uint64_t roff = op->roff + f->op_done;
		size_t left = op->len - f->op_done, n = left;
		if (op->len > EXECUTE_WORDS_MAX && (f->n_carried > 0 || in->len < left)) {
			n = f->n_carried > 0 ? 0 : whole_words(roff, in->len);
			if (n == 0) /* to the end of the word */
				n = 8 - (roff & 7) < left ? 8 - (roff & 7) : left;
		}
		const unsigned char *bytes = take(f, in, n);
		if (!bytes)
			return TCP_HUNGRY;
		execute_write(f->service->base + roff, bytes, n);
		f->op_done += (uint32_t)n;
	}
	return TCP_ON;
}

static enum tcp_progress
run_op(struct tcp_frames *f, struct tcp_input *in)
{
	const struct wire_tcp_op *op = &f->ops[f->op];
	uint64_t old;
	switch ((enum fab_kind)op->kind) {
	case FAB_READ:
		return run_read(f, op);
	case FAB_WRITE:
		return run_write(f, op, in);
	case FAB_CAS:
	case FAB_FAA:
		if (room(f) < sizeof(old))
			return TCP_FULL;
		old = execute_atomic(f->service->base + op->roff, (enum fab_kind)op->kind,
				     op->expect, op->swap);
		put(f, &old, sizeof(old));
		break;
	}
	return TCP_ON;
}

static enum tcp_progress
run(struct tcp_frames *f, struct tcp_input *in)
{
	for (; f->op < f->frame.n_ops; f->op++, f->op_done = 0) {
		enum tcp_progress progress = run_op(f, in);
		if (progress != TCP_ON)
			return progress;
	}
	f->stage = TCP_STAGE_HEADER;
	return TCP_ON;
}

enum tcp_progress
tcp_frames_consume(struct tcp_frames *f, struct tcp_input *in)
{
	enum tcp_progress progress = TCP_ON;
	while (progress == TCP_ON) {
		switch (f->stage) {
		case TCP_STAGE_HEADER:
			progress = take_header(f, in);
			break;
		case TCP_STAGE_OPS:
			progress = take_ops(f, in);
			break;
		case TCP_STAGE_REPLY:
			progress = begin_reply(f);
			break;
		case TCP_STAGE_RUN:
			progress = run(f, in);
			break;
		}
	}
	return progress;
}
