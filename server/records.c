/* SPDX-License-Identifier: BSD-2-Clause */
/* The strict parser of snapshot files: records.h. */
#include "server/records.h"

#include <stdbool.h>
#include <string.h>

#include "common/err.h"

static int
corrupt(const char **ret_why, const char *why)
{
	*ret_why = why;
	return ERR_CORRUPT;
}

static bool
is_zero(const unsigned char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (bytes[i])
			return false;
	return true;
}

int
records_open(struct records *r, const void *bytes, size_t len, const char **ret_why)
{
	struct snapfile_header *h = &r->header;
	*r = (struct records){0};
	if (len < sizeof(*h))
		return corrupt(ret_why, "the file is shorter than the header of a snapshot");
	memcpy(h, bytes, sizeof(*h));
	if (h->magic != SNAPFILE_MAGIC)
		return corrupt(ret_why, "this is no snapshot: the magic number differs");
	if (h->version != SNAPFILE_VERSION || h->len != sizeof(*h)) {
		*ret_why = "the snapshot has another format version: restore it with the release "
			   "that wrote it";
		return ERR_VERSION;
	}
	if (h->checksum != snapfile_header_checksum(h))
		return corrupt(ret_why, "the checksum of the header differs");
	r->off = sizeof(*h);
	return 0;
}

static int
take_end(struct records *r, const unsigned char *bytes, size_t len, size_t *ret_len,
	 const char **ret_why)
{
	struct snapfile_end *end = &r->end;
	*ret_len = sizeof(*end);
	if (len < sizeof(*end))
		return ERR_AGAIN;
	memcpy(end, bytes, sizeof(*end));
	if (end->checksum != snapfile_checksum(r->header.id, r->off, bytes, sizeof(*end)))
		return corrupt(ret_why, "the checksum of the end differs");
	if (!is_zero((const unsigned char *)end->reserved, sizeof(end->reserved)))
		return corrupt(ret_why, "reserved bytes of the end are not 0");
	if (end->n_records != r->n || end->digest != r->digest)
		return corrupt(ret_why, "the records are not those that the end counts");
	if (end->next_serial > (uint64_t)UINT32_MAX + 1 ||
	    (r->n && end->next_serial <= r->serial_max))
		return corrupt(ret_why, "the end names a serial that versions of the file have");
	r->off += sizeof(*end);
	return ERR_NOT_FOUND;
}

static int
take_record(struct records *r, const unsigned char *bytes, size_t len, struct record *ret_record,
	    size_t *ret_len, const char **ret_why)
{
	struct snapfile_record h;
	memcpy(&h, bytes, sizeof(h));
	if (h.key_len < 1 || h.key_len > LIMIT_KEY_MAX ||
	    h.value_len > LIMIT_CHUNK_MAX - sizeof(h) - h.key_len)
		return corrupt(ret_why, "lengths of key or value are out of range");
	size_t taken = snapfile_record_len(h.key_len, h.value_len);
	size_t used = sizeof(h) + h.key_len + h.value_len;
	*ret_len = taken;
	if (len < taken)
		return ERR_AGAIN;
	if (h.checksum != snapfile_checksum(r->header.id, r->off, bytes, taken))
		return corrupt(ret_why, "the checksum of the record differs");
	if (h.reserved || !is_zero(bytes + used, taken - used))
		return corrupt(ret_why, "reserved bytes of the record are not 0");
	*ret_record = (struct record){
		.key = bytes + sizeof(h),
		.value = bytes + sizeof(h) + h.key_len,
		.key_len = h.key_len,
		.value_len = h.value_len,
		.version = h.version,
		.expiry_s = h.expiry_s,
		.user_flags = h.user_flags,
	};
	if (h.version >> 32 > r->serial_max)
		r->serial_max = h.version >> 32;
	r->digest = snapfile_digest(r->digest, h.checksum);
	r->n++;
	r->off += taken;
	return 0;
}

int
records_next(struct records *r, const void *bytes, size_t len, struct record *ret_record,
	     size_t *ret_len, const char **ret_why)
{
	struct snapfile_record h;
	*ret_len = sizeof(h); /* the shorter of the two kinds */
	if (len < sizeof(h))
		return ERR_AGAIN;
	memcpy(&h, bytes, sizeof(h));
	if (h.kind == SNAPFILE_END)
		return take_end(r, bytes, len, ret_len, ret_why);
	if (h.kind != SNAPFILE_RECORD)
		return corrupt(ret_why, "neither a record nor the end is here");
	return take_record(r, bytes, len, ret_record, ret_len, ret_why);
}

int
records_close(const struct records *r, const void *bytes, size_t len, const char **ret_why)
{
	if (len >= SNAPFILE_PAGE || (r->off + len) % SNAPFILE_PAGE)
		return corrupt(ret_why, "the file does not stop with the page of its end");
	if (!is_zero(bytes, len))
		return corrupt(ret_why, "bytes behind the end are not 0");
	return 0;
}
