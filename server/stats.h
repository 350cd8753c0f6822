/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The text that answers STATS: one "name value" line for each counter or size. Names are a contract
 * with scripts; stats.c has the table of what they mean.
 */
#ifndef RKV_SERVER_STATS_H
#define RKV_SERVER_STATS_H

#include <stddef.h>

#define STATS_TEXT_MAX 4096u

struct service;

/* Writes the lines and returns their length in bytes, at most max; no NUL counted. */
size_t stats_text(struct service *service, char *ret_text, size_t max);

#endif
