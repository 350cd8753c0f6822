/* SPDX-License-Identifier: BSD-2-Clause */
/* A set of states seen, by their hashes. One thread. */
#ifndef RKV_TESTS_SIM_STATES_H
#define RKV_TESTS_SIM_STATES_H

#include "tests/sim/model.h"

struct states {
	struct model_hash *v; /* open addressing; both halves 0 = empty */
	size_t n;
	size_t cap;
};

/* Whether the state was not there yet; now it is. */
bool states_add(struct states *states, struct model_hash hash);
void states_clear(struct states *states);

#endif
