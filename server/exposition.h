/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The metrics as Prometheus reads them: its text format, version 0.0.4. What is of a region has its
 * name as a label.
 */
#ifndef RKV_SERVER_EXPOSITION_H
#define RKV_SERVER_EXPOSITION_H

#include <stddef.h>

#include "proto/limits.h"

#define EXPOSITION_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* At most, of each region: five rows of every size class, and a hundred others. */
#define EXPOSITION_REGION_MAX ((size_t)112 << 10)
#define EXPOSITION_TEXT_MAX (LIMIT_REGIONS * EXPOSITION_REGION_MAX)

struct service;

/*
 * Makes the text, for the caller to free; no NUL is counted, and no more than EXPOSITION_TEXT_MAX
 * bytes. Failure: ERR_NOMEM.
 */
int exposition_text(struct service *service, char **ret_text, size_t *ret_len);

#endif
