/* SPDX-License-Identifier: BSD-2-Clause */
/* fsck of a pool's file, which holds the region as it is in memory, while no server has it open. */
#ifndef RKV_SERVER_FSCK_FILE_H
#define RKV_SERVER_FSCK_FILE_H

#include <stdio.h>

#include "common/net.h"

/*
 * Prints what each byte of the region is. 0: nothing contradicts itself; FSCK_FILE_CORRUPT.
 * Failures, with a sentence: ERR_INVALID: this is no region; ERR_CONN: a server serves it, or a
 * client of an earlier one has it mapped; ERR_PERM, ERR_NOMEM.
 */
#define FSCK_FILE_CORRUPT 1
int fsck_file(const char *path, FILE *out, char ret_reason[NET_REASON_MAX]);

#endif
