/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RELEASE comes from the build, which reads it from rkv.h: a server includes nothing of the
 * client.
 */
#include "server/release.h"

const char release_version[] = RELEASE;
