/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The bare fabric as a target: what a GET or an UPDATE cannot be faster than. The memory is the
 * benchmark's own (raw_region.h), so no kv-server is needed, and none can be harmed.
 */
#ifndef RKV_BENCH_RAW_H
#define RKV_BENCH_RAW_H

#include "bench/target.h"

enum raw_kind { RAW_READ, RAW_WRITE, RAW_CAS, RAW_FAA, RAW_GET, RAW_UPDATE };
#define RAW_KINDS 6
extern const char *const raw_kind_names[RAW_KINDS]; /* "get" */
extern const char *const raw_titles[RAW_KINDS];     /* "raw get" */

/* Where the memory is served. */
struct raw_place {
	enum rkv_fabric fabric;   /* not RKV_FABRIC_AUTO */
	const char *rdma_address; /* verbs: "host" or "host:port"; NULL: the first usable device */
};

struct raw_config {
	enum raw_kind kind;
	struct raw_place place;
	uint64_t n_records;  /* blocks, each of the length that a record of value_size has */
	uint64_t value_size; /* bytes */
};

/* Whether the operation moves bytes to the region (it then stands for an update). */
bool raw_is_update(enum raw_kind kind);

/* Failures as rkv.h names them; the log has the sentence. */
int target_open_raw(const struct target_config *config, const struct raw_config *raw,
		    struct target **ret_target);

#endif
