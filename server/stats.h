/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The text that answers STATS: a "name value" line for each row of the table (metrics.h) that has
 * one. Names are a contract with scripts.
 */
#ifndef RKV_SERVER_STATS_H
#define RKV_SERVER_STATS_H

#include <stddef.h>

#define STATS_TEXT_MAX (32u << 10) /* most of it: size classes, if all are used */

struct service;
struct store;

/*
 * Writes the lines, of the server and one store, and returns their length in bytes, less than max;
 * no NUL counted.
 */
size_t stats_text(struct service *service, struct store *store, char *ret_text, size_t max);

#endif
