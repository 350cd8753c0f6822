/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * YCSB's properties, of its workload files (-P) and of the command line (-p): read as they are.
 * What a property means in YCSB it means here, or it is refused with the reason; a property of a
 * file that is none of the core workload's is named and ignored.
 */
#ifndef RKV_BENCH_PROPERTIES_H
#define RKV_BENCH_PROPERTIES_H

#include "bench/options.h"

/* What can be checked only when all is read. */
struct properties {
	bool any;
	uint64_t record_count;
	uint64_t insert_count;
	uint64_t field_count;
	uint64_t field_len;
};

/* None yet. */
void properties_init(struct properties *properties);

/* There will be a file: the mix that YCSB has if it says nothing. */
void properties_begin(struct options *options);

/* All return OPTIONS_GO, or OPTIONS_BAD after a sentence. */
int properties_file(struct properties *properties, const char *path, struct options *options);
int properties_set(struct properties *properties, const char *text, struct options *options);
int properties_finish(struct properties *properties, struct options *options);

#endif
