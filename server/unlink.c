/* SPDX-License-Identifier: BSD-2-Clause */
/* Taking a word out of a slot: unlink.h. */
#include "server/unlink.h"

#include <assert.h>

int
unlink_word(const struct reach *reach, uint64_t slot_off, uint64_t word)
{
	uint64_t found;
	assert(slot_refers(word) && layout_block_in_range(reach->layout, word));
	int rc = reach->calls->cas(reach->arg, slot_off, word, slot_with_state(word, SLOT_DELETED),
				   &found);
	if (rc)
		return rc;
	if (found != word)
		return UNLINK_LOST;
	reach->calls->mark(reach->arg, slot_block_off(word), slot_tag(word));
	return 0;
}
