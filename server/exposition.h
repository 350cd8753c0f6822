/* SPDX-License-Identifier: BSD-2-Clause */
/* The metrics as Prometheus reads them: its text format, version 0.0.4. */
#ifndef RKV_SERVER_EXPOSITION_H
#define RKV_SERVER_EXPOSITION_H

#include <stddef.h>

/* For five rows of every size class and a hundred others; less than CONN_OUT_MAX. */
#define EXPOSITION_TEXT_MAX ((size_t)96 << 10)
#define EXPOSITION_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct service;

/* Writes the text and returns its length in bytes, less than max; no NUL counted. */
size_t exposition_text(struct service *service, char *ret_text, size_t max);

#endif
