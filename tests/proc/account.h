/* SPDX-License-Identifier: BSD-2-Clause */
/* For tests: what each byte of a server's pool is, and that none is lost behind its clients. */
#ifndef RKV_TESTS_ACCOUNT_H
#define RKV_TESTS_ACCOUNT_H

#include <stdint.h>

#include "client/include/rkv.h"

#define ACCOUNT_TEXT_MAX 8192u

/* fsck's text behind a line break; it must add up, and be clean. */
void account_fsck(struct rkv_client *client, char ret_text[ACCOUNT_TEXT_MAX]);

/* A number of that text; fails the test if it is not there. */
uint64_t account_line(const char *text, const char *name);

/*
 * Behind the last session: waits until the scrubber finds nothing more; then nothing is garbage,
 * and so many values live. The server's own counts must say the same.
 */
void account_settles(struct rkv_client *client, uint64_t n_live);

#endif
