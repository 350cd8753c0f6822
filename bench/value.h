/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Values that can be checked without a copy: the name of the key, a sequence number, and bytes that
 * follow from these two and the length. A value of another key, a torn, mixed, cut or stretched one
 * is therefore seen by whoever reads it. Values shorter than VALUE_CHECKED_MIN are made, but hold
 * too little to be checked.
 */
#ifndef RKV_BENCH_VALUE_H
#define RKV_BENCH_VALUE_H

#include <stddef.h>
#include <stdint.h>

#define VALUE_CHECKED_MIN                                                                          \
	24u /* bytes: name, sequence, and at least one word that follows from them */

/* name: the number in the key's name. */
void value_make(void *value, size_t len, uint64_t name, uint64_t sequence);

/* 0 if value_make made this value for this name; else 1 + the place of the first wrong byte. */
size_t value_check(const void *value, size_t len, uint64_t name);

/* The sequence number inside a value; 0 if it is too short to have one. */
uint64_t value_sequence(const void *value, size_t len);

#endif
