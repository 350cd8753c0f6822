/* SPDX-License-Identifier: BSD-2-Clause */
/* What each profile orders. For model.c and steps.c only. */
#ifndef RKV_TESTS_SIM_RULES_H
#define RKV_TESTS_SIM_RULES_H

#include "tests/sim/model.h"

/* What an earlier thing must have to do with a later one for their order to be kept. */
enum scope { SCOPE_ALL, SCOPE_SAME_BYTES, SCOPE_NONE };

struct rules {
	bool at_once;         /* every work request is one step, and nothing else counts */
	bool node_stream;     /* writes of all queue pairs into a node are one ordered stream */
	bool pieces_any;      /* pieces of one WRITE, and of what lands, in any order */
	bool sources_ordered; /* local reads of WRITEs in post order */
	bool reads_ordered;   /* READ after READ */
	bool atomic_first;    /* an atomic before later WRITEs and atomics */
	enum scope writes;    /* order of WRITEs on one queue pair */
	enum scope flush;     /* what a READ pushes into memory before it */
	enum scope sources;   /* what that came back a local read pushes before it */
};

extern const struct rules model_rules[N_PROFILES];

static inline const struct rules *
rules_of(const struct model *m)
{
	return &model_rules[m->config.profile];
}

static inline bool
overlaps(uint64_t a, unsigned a_len, uint64_t b, unsigned b_len)
{
	return a < b + b_len && b < a + a_len;
}

void lates_add(struct model_lates *lates, const struct model_late *late);
void lates_remove(struct model_lates *lates, unsigned i);
void pipe_add(struct model_qp *qp, struct model_wr *wr);
void pipe_remove(struct model_qp *qp, unsigned i);

/* Reads one piece of a WRITE's source; a guarded one that changed is a fault. */
void read_source(struct model *m, struct model_qp *qp, struct model_wr *wr,
		 struct model_piece *piece);

/* One piece of what came back into local memory. */
void land(struct model *m, struct model_qp *qp, const struct model_late *late);

#endif
