/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fsck for clients that ask for it over the control connection: one look at everything at a time,
 * in slices between which the loop serves others. Who asks while one is under way is answered by
 * the next, so that an answer tells of nothing older than its question.
 */
#ifndef RKV_SERVER_AUDIT_H
#define RKV_SERVER_AUDIT_H

#include "common/loop.h"
#include "server/fsck.h"

struct audit {
	struct loop *loop;
	const struct reach *reach;
	/* A look is over; is anybody waiting for another? */
	bool (*done)(struct audit *audit);
	struct fsck fsck; /* zeroed when none is under way */
	bool is_under_way;
	uint64_t n_begun;
	struct loop_op timer;
};

/*
 * Begins a look, unless one is under way; ret_number: of the one that answers who asks now.
 * Failure: ERR_NOMEM.
 */
int audit_ask(struct audit *audit, uint64_t *ret_number);

/* After the loop has ended. Accepts one that is zeroed. */
void audit_destroy(struct audit *audit);

#endif
