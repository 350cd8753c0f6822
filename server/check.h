/* SPDX-License-Identifier: BSD-2-Clause */
/* kv-server --check: what would limit a start with these options, and how to lift it. */
#ifndef RKV_SERVER_CHECK_H
#define RKV_SERVER_CHECK_H

#include <stdio.h>

#include "common/net.h"
#include "server/options.h"

/*
 * Writes one line for each thing looked at: "OK", "WARN" (serves, but less well) or "FAIL" (would
 * not start), its name, and what to do. Returns how many failed. Changes nothing on the machine.
 */
unsigned check_run(const struct options *options, FILE *out);

/*
 * Raises this process's limit of open files as far as it may be, and finds out whether enough are
 * left to start and to serve one client. Failure: ERR_NOMEM, and a sentence with the limit and the
 * remedy.
 */
int check_raise_files(const struct options *options, char ret_reason[NET_REASON_MAX]);

#endif
