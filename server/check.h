/* SPDX-License-Identifier: BSD-2-Clause */
/* kv-server --check: what would limit a start with these options, and how to lift it. */
#ifndef RKV_SERVER_CHECK_H
#define RKV_SERVER_CHECK_H

#include <stdio.h>

#include "server/options.h"

/*
 * Writes one line for each thing looked at: "OK", "WARN" (serves, but less well) or "FAIL" (would
 * not start), its name, and what to do. Returns how many failed. Changes nothing on the machine.
 */
unsigned check_run(const struct options *options, FILE *out);

#endif
