/* SPDX-License-Identifier: BSD-2-Clause */
/* A set of states seen. */
#include <assert.h>
#include <stdlib.h>

#include "tests/sim/states.h"

static bool
put(struct states *states, struct model_hash hash)
{
	for (size_t i = hash.a & (states->cap - 1);; i = (i + 1) & (states->cap - 1)) {
		struct model_hash *at = &states->v[i];

		if (at->a == hash.a && at->b == hash.b)
			return false;
		if (!at->a && !at->b) {
			*at = hash;
			states->n++;
			return true;
		}
	}
}

static void
make_room(struct states *states)
{
	struct states larger = {.cap = states->cap ? states->cap * 2 : 1024};

	larger.v = calloc(larger.cap, sizeof(*larger.v));
	assert(larger.v);
	for (size_t i = 0; i < states->cap; i++) {
		if (states->v[i].a || states->v[i].b)
			put(&larger, states->v[i]);
	}
	free(states->v);
	*states = larger;
}

bool
states_add(struct states *states, struct model_hash hash)
{
	if (states->n * 2 >= states->cap)
		make_room(states);
	return put(states, hash);
}

void
states_clear(struct states *states)
{
	free(states->v);
	*states = (struct states){0};
}
