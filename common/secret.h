/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files with secrets: read only if nobody else can. A secret is a word of printable ASCII without
 * blanks, LIMIT_SECRET_MIN to LIMIT_SECRET_MAX bytes; its bytes are the key. Any thread.
 */
#ifndef RKV_COMMON_SECRET_H
#define RKV_COMMON_SECRET_H

#include <stddef.h>

#include "common/net.h"
#include "proto/limits.h"

#define SECRET_REMEDY "make one with `openssl rand -hex 32`"

struct secret {
	unsigned char bytes[LIMIT_SECRET_MAX];
	size_t len; /* 0: none */
};

/*
 * Reads a file of at most room - 1 bytes and ends it with a NUL. Its owner must be this user or
 * root, and nobody else may read or write it (the group root may read what root owns: systemd
 * hands credentials out so). Failures, with a sentence: ERR_PERM, ERR_INVALID, ERR_NOMEM.
 */
int secret_read_file(const char *path, char *text, size_t room, size_t *ret_len,
		     char reason[NET_REASON_MAX]);

/* Takes a word as a secret. Failure, with a sentence: ERR_INVALID. */
int secret_take(struct secret *secret, const char *word, size_t len, char reason[NET_REASON_MAX]);

/* A file that holds one secret and white space around it. Failures as secret_read_file. */
int secret_load(const char *path, struct secret *ret_secret, char reason[NET_REASON_MAX]);

/* Overwrites memory that held a secret, also where a compiler would leave it out. */
void secret_wipe(void *memory, size_t len);

#endif
