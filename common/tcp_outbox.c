/* SPDX-License-Identifier: BSD-2-Clause */
/* See tcp_outbox.h. Once all is sent it starts at the front again, so it stays in few pages. */
#include "common/tcp_outbox.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"

int
tcp_outbox_init(struct tcp_outbox *o, size_t n_bytes, uint32_t n_refs)
{
	uint32_t size = 1;
	while (size < n_refs)
		size *= 2;
	*o = (struct tcp_outbox){.capacity = n_bytes, .n_refs_max = size};
	o->bytes = malloc(n_bytes);
	o->refs = malloc(size * sizeof(o->refs[0]));
	if (o->bytes && o->refs)
		return 0;
	tcp_outbox_free(o);
	return ERR_NOMEM;
}

void
tcp_outbox_free(struct tcp_outbox *o)
{
	free(o->bytes);
	free(o->refs);
	*o = (struct tcp_outbox){0};
}

static struct tcp_reference *
ref_at(const struct tcp_outbox *o, uint32_t i)
{
	return &o->refs[i & (o->n_refs_max - 1)];
}

static void
move_to_front(struct tcp_outbox *o)
{
	memmove(o->bytes, o->bytes + o->begin, o->end - o->begin);
	for (uint32_t i = o->ref_first; i != o->ref_end; i++)
		ref_at(o, i)->before -= o->begin;
	o->end -= o->begin;
	o->begin = 0;
}

unsigned char *
tcp_outbox_room(struct tcp_outbox *o, size_t len)
{
	if (len > o->capacity - o->end)
		move_to_front(o);
	assert(len <= o->capacity - o->end);
	unsigned char *at = o->bytes + o->end;
	o->end += len;
	o->n_waiting += len;
	return at;
}

void
tcp_outbox_refer(struct tcp_outbox *o, const void *at, size_t len)
{
	assert(o->ref_end - o->ref_first < o->n_refs_max);
	*ref_at(o, o->ref_end++) = (struct tcp_reference){o->end, at, len};
	o->n_waiting += len;
}

unsigned
tcp_outbox_list(const struct tcp_outbox *o, struct iovec *iov, unsigned max)
{
	unsigned n = 0;
	size_t at = o->begin;
	for (uint32_t i = o->ref_first; i != o->ref_end && n < max; i++) {
		const struct tcp_reference *ref = ref_at(o, i);
		if (ref->before > at)
			iov[n++] = (struct iovec){o->bytes + at, ref->before - at};
		at = ref->before;
		if (n == max)
			return n;
		iov[n++] = (struct iovec){(void *)(uintptr_t)ref->at, ref->len};
	}
	if (at < o->end && n < max)
		iov[n++] = (struct iovec){o->bytes + at, o->end - at};
	return n;
}

void
tcp_outbox_sent(struct tcp_outbox *o, size_t n)
{
	assert(n <= o->n_waiting);
	o->n_waiting -= n;
	while (n > 0) {
		struct tcp_reference *ref =
			o->ref_first != o->ref_end ? ref_at(o, o->ref_first) : NULL;
		size_t here = (ref ? ref->before : o->end) - o->begin;
		size_t part = n < here ? n : here;
		o->begin += part;
		n -= part;
		if (n == 0)
			break;
		part = n < ref->len ? n : ref->len;
		ref->at += part;
		ref->len -= part;
		n -= part;
		if (ref->len == 0)
			o->ref_first++;
	}
	if (o->n_waiting == 0)
		o->begin = o->end = 0;
}

void
tcp_outbox_clear(struct tcp_outbox *o)
{
	o->begin = o->end = o->n_waiting = 0;
	o->ref_first = o->ref_end;
}
