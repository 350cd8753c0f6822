/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Puts records of a snapshot into a region that is freshly formatted and that no client has seen:
 * blocks, slots and chunk descriptors are plain stores into memory. Chunks are LEFT (layout.h), so
 * that clients adopt them; the blocks carry the first tag of a free map of zeros.
 *
 * It goes on counting after the first record that does not fit, so that loader_needs can tell what
 * would be enough for all of them.
 */
#ifndef RKV_SERVER_LOADER_H
#define RKV_SERVER_LOADER_H

#include <stdint.h>

#include "proto/layout.h"
#include "server/records.h"

/* Blocks of one size class; those of one chunk lie side by side. */
struct loader_class {
	uint64_t n_blocks; /* so far, also those that did not fit */
	uint64_t chunk;    /* that takes the next one; */
	uint32_t n_left;   /* so many */
};

struct loader {
	unsigned char *base;
	struct layout layout;
	uint64_t n_chunks; /* taken, from the first on */
	struct loader_class class[LAYOUT_CLASSES_MAX];
	uint64_t block_max;  /* longest block, bytes */
	uint64_t n_placed;   /* records that have a slot */
	uint64_t n_expired;  /* that were over, and left out */
	uint64_t n_replaced; /* earlier records of keys that came again */
	int status;          /* of the first record that did not fit; 0: all did */
};

/* Sizes in bytes, and slots, of a region that has room for all. */
struct loader_needs {
	uint64_t region_len;
	uint64_t chunk_size;
	uint64_t index_slots;
};

/* base: of a region with this layout. */
void loader_init(struct loader *loader, void *base, const struct layout *layout);

/*
 * Puts one record in; of two with one key the later stays. Failures, after which only counting goes
 * on: ERR_TOO_BIG (for a chunk), ERR_NO_SPACE, ERR_INDEX_FULL.
 */
int loader_put(struct loader *loader, const struct record *record);

/* Gives every value a new version of this serial. */
void loader_renew_versions(struct loader *loader, uint32_t serial);

/* What all records so far, without those that are over, would need. */
struct loader_needs loader_needs(const struct loader *loader);

#endif
