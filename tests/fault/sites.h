/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The Nth failing call: what the system may refuse (memory, descriptors, threads, connections) goes
 * through here, by the linker's --wrap, and one call fails when it is told to. Programs that use it
 * are linked with sites_LDFLAGS of module.mk.
 */
#ifndef RKV_TESTS_FAULT_SITES_H
#define RKV_TESTS_FAULT_SITES_H

/* From now on calls of all threads are counted, and the nth fails; 0: none. */
void sites_arm(unsigned nth);

/* No more; returns how many calls there were. */
unsigned sites_disarm(void);

#endif
