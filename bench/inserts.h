/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The sequence of inserted keys, shared by all threads, also of processes that are forked later:
 * who inserts takes the next number, and says when the key is there. inserts_last is the newest
 * number such that it and all before it are there, whatever the order in which inserts end. An
 * insert that failed gives its number to the next one, so that no gap remains.
 */
#ifndef RKV_BENCH_INSERTS_H
#define RKV_BENCH_INSERTS_H

#include <stdbool.h>
#include <stdint.h>

struct inserts;

/* first: the first number that is not there yet, 1 or more. NULL: no memory. */
struct inserts *inserts_create(uint64_t first);
void inserts_destroy(struct inserts *inserts);

/* False: too far ahead of the oldest insert that has not ended; try later. */
bool inserts_take(struct inserts *inserts, uint64_t *ret_number);

void inserts_acknowledge(struct inserts *inserts, uint64_t number);
void inserts_give_back(struct inserts *inserts, uint64_t number);

uint64_t inserts_last(struct inserts *inserts);

#endif
