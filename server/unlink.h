/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Taking a word out of a slot, as the scrubber, the sweeper and eviction do: the one way in which
 * the server ends what is stored.
 */
#ifndef RKV_SERVER_UNLINK_H
#define RKV_SERVER_UNLINK_H

#include "server/reach.h"

#define UNLINK_LOST 1 /* another word is in the slot: somebody was faster */

/*
 * Replaces a committed or tentative word, which must be in range ([RANGE]), by its deleted form,
 * and only if that CAS returned the word, marks its block, [WHO-FREES]. The caller holds (reach.h)
 * since it read the word, if it acts on what the block says. 0: done. UNLINK_LOST. Failures:
 * ERR_CONN, ERR_TIMEOUT: in doubt, and nobody marks: the scrubber finds such a block.
 */
int unlink_word(const struct reach *reach, uint64_t slot_off, uint64_t word);

#endif
