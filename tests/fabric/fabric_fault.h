/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A fabric around another one that fails when it is told to. For tests of what stands above: it
 * goes where a struct fab goes. It also checks what a CPU's fabric cannot: that every piece of a
 * batch lies in memory registered under its key. A batch that breaks this completes with
 * ERR_INVALID, ends the connection as a NIC would, and is counted.
 */
#ifndef RKV_TESTS_FABRIC_FABRIC_FAULT_H
#define RKV_TESTS_FABRIC_FABRIC_FAULT_H

#include "common/fabric.h"

/*
 * Takes inner over: closing *ret_fab closes it too. Failure: ERR_NOMEM, inner is still the
 * caller's.
 */
int fault_open(struct fab *inner, struct fab **ret_fab);

/* ---- Any thread, at any time; nth = 1 is the next one ---- */

enum fault_site { FAULT_REGISTER, FAULT_REGION_OPEN, FAULT_CONNECT };
#define FAULT_SITES 3u

/* The nth call from now fails with this code, once. nth 0: none will. */
void fault_fail(struct fab *fab, enum fault_site site, uint64_t nth, int code);

/*
 * Of the nth batch from now, of whatever endpoint, only the first n_ops operations are executed;
 * then its connection breaks: this batch and all outstanding ones of the endpoint complete with
 * ERR_CONN, and so does whatever is posted to it later. nth 0: none will.
 */
void fault_cut(struct fab *fab, uint64_t nth, unsigned n_ops);

/* Completions of batches posted from now on are held back for so many polls. */
void fault_delay(struct fab *fab, unsigned n_polls);

/* ---- Counters since fault_open ---- */

uint64_t fault_n_batches(struct fab *fab); /* posted, quiet ones too */
uint64_t fault_n_calls(struct fab *fab, enum fault_site site);
uint64_t fault_n_unregistered(struct fab *fab); /* batches with pieces outside registered memory */

#endif
