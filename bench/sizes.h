/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How long keys and values are. A record's lengths follow from its number, so that whoever reads it
 * knows them. Any thread.
 *
 *   fixed   every value has the same length, a key is what YCSB calls it
 *   etc     the ETC pool of Facebook's memcached (Atikoglu et al., SIGMETRICS 2012): lengths of
 *           keys by a generalised extreme value law, lengths of values by a generalised Pareto law
 */
#ifndef RKV_BENCH_SIZES_H
#define RKV_BENCH_SIZES_H

#include <stdint.h>

enum sizes_kind { SIZES_FIXED, SIZES_ETC };

struct sizes {
	enum sizes_kind kind;
	uint64_t value_len; /* fixed: of every value, bytes */
};

/* A key has to be long enough to tell records apart, and fits memcached too. */
#define SIZES_ETC_KEY_MIN 13u
#define SIZES_ETC_KEY_MAX 250u
#define SIZES_ETC_VALUE_MAX (UINT64_C(60) << 10) /* a server's smallest usual chunk takes it */

uint64_t sizes_value_max(const struct sizes *sizes);
uint64_t sizes_value(const struct sizes *sizes, uint64_t number);

/* etc */
uint32_t sizes_etc_key(uint64_t number);

/* The laws, by the share of what is shorter: 0 < u < 1. */
double sizes_etc_key_law(double u);
double sizes_etc_value_law(double u);

#endif
