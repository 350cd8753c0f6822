/* SPDX-License-Identifier: BSD-2-Clause */
/* What each command of kv-cli does with the server. */
#ifndef RKV_CLIENT_CLI_COMMANDS_H
#define RKV_CLIENT_CLI_COMMANDS_H

#include "client/cli/arguments.h"

/*
 * Carries out a parsed command line; key and value in `arguments` are filled from the files that it
 * names. Returns the exit code; whatever went wrong has been reported.
 */
int commands_run(struct arguments *arguments);

#endif
