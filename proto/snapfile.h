/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A snapshot file: header, records, end, zeros up to a whole page. Little endian, reserved fields
 * 0, everything at multiples of 8 bytes. See LAYOUT.md.
 *
 *   | header | record, key, value, zeros | ... | end | zeros |
 *   0        72                                            n * SNAPFILE_PAGE
 *
 * Every checksum is seeded with the file's random id and with the place of what it covers: bytes
 * that are right in another place, or in another file, fail as those that are wrong.
 */
#ifndef RKV_PROTO_SNAPFILE_H
#define RKV_PROTO_SNAPFILE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/hash.h"
#include "proto/limits.h"

#define SNAPFILE_MAGIC UINT64_C(0x3150414e53564b52) /* "RKVSNAP1" in memory order */
#define SNAPFILE_VERSION 1u
#define SNAPFILE_PAGE 4096u /* a file is a multiple of it, as direct I/O wants */

struct snapfile_header {
	uint64_t magic;
	uint32_t version;
	uint32_t len;        /* of this structure */
	uint64_t id;         /* random */
	uint64_t began_s;    /* wall clock, seconds since 1970 */
	uint64_t region_id;  /* this and what follows: of the region that was read, for people */
	uint64_t region_len; /* bytes */
	uint64_t chunk_size; /* bytes */
	uint64_t index_slots;
	uint64_t checksum; /* of everything above */
};
static_assert(sizeof(struct snapfile_header) == 72, "snapshot header");
static_assert(offsetof(struct snapfile_header, id) == 16, "snapshot header");
static_assert(offsetof(struct snapfile_header, checksum) == 64, "snapshot header");

enum snapfile_kind { SNAPFILE_RECORD = 1, SNAPFILE_END = 2 };

/* key_len bytes of key and value_len of value follow, then zeros up to a multiple of 8. */
struct snapfile_record {
	uint64_t checksum; /* of everything behind it, key, value and zeros included */
	uint16_t kind;
	uint16_t key_len;   /* bytes */
	uint32_t value_len; /* bytes */
	uint64_t version;
	uint64_t expiry_s; /* wall clock, seconds since 1970; 0 = never */
	uint32_t user_flags;
	uint32_t reserved;
};
static_assert(sizeof(struct snapfile_record) == 40, "snapshot record");
static_assert(offsetof(struct snapfile_record, key_len) == 10, "snapshot record");
static_assert(offsetof(struct snapfile_record, version) == 16, "snapshot record");
static_assert(offsetof(struct snapfile_record, user_flags) == 32, "snapshot record");

struct snapfile_end {
	uint64_t checksum; /* of everything behind it */
	uint16_t kind;
	uint16_t reserved[3];
	uint64_t n_records;
	uint64_t digest;      /* of all records' checksums, in order */
	uint64_t next_serial; /* above the serial of every version that was ever issued */
	uint64_t ended_s;     /* wall clock */
};
static_assert(sizeof(struct snapfile_end) == 48, "snapshot end");
static_assert(offsetof(struct snapfile_end, n_records) == 16, "snapshot end");

/* Of the first eight bytes behind the checksum both kinds have the kind. */
static_assert(offsetof(struct snapfile_record, kind) == offsetof(struct snapfile_end, kind),
	      "kinds are told apart by one field");

static inline uint64_t
snapfile_record_len(uint32_t key_len, uint64_t value_len)
{
	return (sizeof(struct snapfile_record) + key_len + value_len + 7) / 8 * 8;
}

#define SNAPFILE_RECORD_MAX (LIMIT_CHUNK_MAX + 8) /* no record is longer */

static inline uint64_t
snapfile_header_checksum(const struct snapfile_header *h)
{
	return XXH3_64bits(h, offsetof(struct snapfile_header, checksum));
}

/* Of a whole record, or of an end, of len bytes, that begins at off in the file with this id. */
static inline uint64_t
snapfile_checksum(uint64_t id, uint64_t off, const void *bytes, uint64_t len)
{
	return XXH3_64bits_withSeed((const unsigned char *)bytes + sizeof(uint64_t),
				    len - sizeof(uint64_t), id + off);
}

/* The digest with one more record's checksum; that of no record is 0. */
static inline uint64_t
snapfile_digest(uint64_t digest, uint64_t checksum)
{
	return XXH3_64bits_withSeed(&checksum, sizeof(checksum), digest);
}

#endif
