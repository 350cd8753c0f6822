/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kv-server --restore: reads a snapshot file into a region that no client has seen yet. Blocks; for
 * the start only.
 */
#ifndef RKV_SERVER_RESTORE_H
#define RKV_SERVER_RESTORE_H

#include "common/log.h"
#include "proto/layout.h"

struct restored {
	uint64_t n_records; /* keys that are there now */
	uint64_t n_expired; /* left out, as their time was over */
	uint64_t n_bytes;   /* of the file */
	uint64_t began_s;   /* wall clock: when the snapshot was taken */
	uint64_t first_serial;
};

/*
 * base: the region's memory, formatted with this layout and otherwise zero. random_serial: what a
 * region that is not restored would begin with; ret->first_serial is that, or what it takes that no
 * version of the snapshot is issued again. On failure the memory is to be thrown away, and the log
 * has a sentence that names the place in the file, or the sizes that would do. Failures:
 * ERR_CORRUPT, ERR_VERSION, ERR_TOO_BIG, ERR_NO_SPACE, ERR_INDEX_FULL, ERR_NOMEM, ERR_PERM,
 * ERR_CONN (the file cannot be read).
 */
int restore_file(const char *path, void *base, const struct layout *layout, uint32_t random_serial,
		 const struct log *log, struct restored *ret);

#endif
