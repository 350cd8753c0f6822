/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the command line of kv-cli means. The two tables in arguments.c, of commands and of options,
 * are the whole of it: the parser, the checks and the text of --help are made from them.
 */
#ifndef RKV_CLIENT_CLI_ARGUMENTS_H
#define RKV_CLIENT_CLI_ARGUMENTS_H

#include <stdint.h>
#include <stdio.h>

#include "client/cli/bytes.h"
#include "client/include/rkv.h"

enum command_id {
	COMMAND_GET,
	COMMAND_PUT,
	COMMAND_ADD,
	COMMAND_REPLACE,
	COMMAND_CAS,
	COMMAND_DEL,
	COMMAND_TOUCH,
	COMMAND_SNAPSHOT,
	COMMAND_STATS,
	COMMAND_FSCK,
	COMMAND_PING,
	COMMAND_LIMITS,
	COMMAND_VERSION,
	COMMAND_HELP,
	COMMAND_COUNT
};

struct arguments {
	enum command_id command;
	const char *command_name;
	const char *server;
	enum rkv_fabric fabric;
	/* As rkv_options names them; NULL: not given. */
	const char *tenant;
	const char *secret_file;
	const char *tls_ca;
	const char *tls_cert;
	const char *tls_key;
	const char *tls_name;
	uint32_t timeout_ms;
	uint32_t again_ms; /* how long to try again while memory rests */
	struct bytes key;  /* unless key_file is set */
	const char *key_file;
	struct bytes value; /* unless value_file is set */
	const char *value_file;
	uint64_t version; /* that cas expects */
	uint32_t ttl_s;
	uint32_t user_flags;
	uint32_t n_pings;
	const char *snapshot; /* its name */
	int as_hex;
	int with_newline;
	int with_meta;
	int as_json;
	const char *out_file; /* NULL: standard output */
};

/* Fills *ret_arguments; release it in any case. 0, or an exit code after the cause was reported. */
int arguments_parse(int argc, char **argv, struct arguments *ret_arguments);
void arguments_release(struct arguments *arguments);

/* 1 if the command works on one key, 0 if not. */
int arguments_has_key(const struct arguments *arguments);

/* 1 if the command stores a value, 0 if not. */
int arguments_has_value(const struct arguments *arguments);

void arguments_help(FILE *out);

#endif
