/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A legitimate client that goes on while others attack its server: a thread that stores and reads
 * values over tcp, verifies each answer, and takes the time.
 */
#ifndef RKV_TESTS_BYSTANDER_H
#define RKV_TESTS_BYSTANDER_H

#include "tests/proc/login.h"

struct bystander;

/* A session of the tenant app; returns when it has been served undisturbed for a moment. */
struct bystander *bystander_start(const struct server *server);

/*
 * Ends it, when it has been served for a while. Fails the test if it was not, if an operation
 * failed or was answered wrongly, or if it had to connect again. Prints how many there were and the
 * 99th percentile of their times, before and during the attack.
 */
void bystander_end(struct bystander *bystander, const char *attack);

#endif
