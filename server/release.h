/* SPDX-License-Identifier: BSD-2-Clause */
/* The release that this server belongs to. */
#ifndef RKV_SERVER_RELEASE_H
#define RKV_SERVER_RELEASE_H

extern const char release_version[]; /* "0.1.0" */

#endif
