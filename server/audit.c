/* SPDX-License-Identifier: BSD-2-Clause */
/* fsck, a slice at a time: audit.h. */
#include "server/audit.h"

#include <errno.h>

#define SLICE_BYTES (UINT64_C(2) << 20) /* a millisecond or so */
#define PAUSE_MS 1

static int begin(struct audit *audit);

static void
look_on(struct loop_op *op, int result)
{
	struct audit *audit = (void *)((char *)op - offsetof(struct audit, timer));
	if (result == -ECANCELED)
		return;
	if (!fsck_step(&audit->fsck, SLICE_BYTES)) {
		loop_timer(audit->loop, op, PAUSE_MS, look_on);
		return;
	}
	audit->is_under_way = false;
	bool is_wanted = audit->done(audit);
	fsck_end(&audit->fsck);
	if (is_wanted)
		(void)begin(audit); /* without memory nobody is answered, and all time out */
}

static int
begin(struct audit *audit)
{
	int rc = fsck_begin(&audit->fsck, audit->reach);
	if (rc)
		return rc;
	audit->n_begun++;
	audit->is_under_way = true;
	loop_timer(audit->loop, &audit->timer, PAUSE_MS, look_on);
	return 0;
}

int
audit_ask(struct audit *audit, uint64_t *ret_number)
{
	int rc = audit->is_under_way ? 0 : begin(audit);
	/* Of one under way a part is over: it says nothing of what was before it began. */
	bool is_new = rc == 0 && audit->fsck.group == 0;
	if (rc == 0)
		*ret_number = audit->n_begun + !is_new;
	return rc;
}

void
audit_destroy(struct audit *audit)
{
	fsck_end(&audit->fsck);
}
