/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A snapshot file, restored into a small region. The first byte says whether its checksums, counts
 * and digest are put right first: else no input gets behind them. What is restored is what a client
 * takes for good.
 */
#include "common/err.h"
#include "server/restore.h"
#include "proto/snapfile.h"
#include "tests/fuzz/fuzz.h"

#define FORMATTED_S UINT64_C(1700000000)

static size_t
sign_record(uint8_t *bytes, size_t off, size_t room, uint64_t id, uint64_t *digest)
{
	struct snapfile_record h;
	memcpy(&h, bytes + off, sizeof(h));
	size_t len = snapfile_record_len(h.key_len, h.value_len);
	if (len > room)
		return room;
	h.checksum = snapfile_checksum(id, off, bytes + off, len);
	memcpy(bytes + off, &h.checksum, sizeof(h.checksum));
	*digest = snapfile_digest(*digest, h.checksum);
	return len;
}

static void
sign_end(uint8_t *bytes, size_t off, uint64_t id, uint64_t n, uint64_t digest)
{
	struct snapfile_end end;
	memcpy(&end, bytes + off, sizeof(end));
	end.n_records = n;
	end.digest = digest;
	memcpy(bytes + off, &end, sizeof(end));
	end.checksum = snapfile_checksum(id, off, bytes + off, sizeof(end));
	memcpy(bytes + off, &end.checksum, sizeof(end.checksum));
}

static void
put_right(uint8_t *bytes, size_t len)
{
	struct snapfile_header h;
	struct snapfile_record r;
	uint64_t n = 0, digest = 0;
	if (len < sizeof(h))
		return;
	memcpy(&h, bytes, sizeof(h));
	h.checksum = snapfile_header_checksum(&h);
	memcpy(bytes, &h, sizeof(h));
	for (size_t off = sizeof(h); len - off >= sizeof(r); n++) {
		memcpy(&r, bytes + off, sizeof(r));
		if (r.kind == SNAPFILE_END) {
			if (len - off >= sizeof(struct snapfile_end))
				sign_end(bytes, off, h.id, n, digest);
			return;
		}
		off += sign_record(bytes, off, len - off, h.id, &digest);
	}
}

static void
check_slot(const unsigned char *base, const struct layout *l, uint64_t word)
{
	fuzz_must(slot_state(word) == SLOT_COMMITTED && layout_block_in_range(l, word));
	const unsigned char *at = base + slot_block_off(word);
	const struct block_header *h = (const void *)at;
	fuzz_must(block_lengths_fit(h, slot_read_len(word)) && block_tag(h) == slot_tag(word));
	const unsigned char *key = at + sizeof(*h);
	struct hash hash = hash_key(key, h->key_len, l->hash_seed);
	uint64_t digest = block_digest(&hash, key + h->key_len, h->value_len);
	fuzz_must(h->checksum == block_checksum(word, digest, h));
}

static void
check(const unsigned char *base, const struct layout *l, const struct restored *restored)
{
	uint64_t n = 0, word;
	for (uint64_t i = 0; i < l->n_groups * LAYOUT_GROUP_SLOTS; i++) {
		memcpy(&word, base + layout_slot_off(l, i), sizeof(word));
		if (word)
			check_slot(base, l, word);
		n += word != 0;
	}
	fuzz_must(n == restored->n_records);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct layout layout = {
		.n_groups = 2,
		.chunk_size = LIMIT_CHUNK_MIN,
		.n_chunks = LIMIT_CHUNKS_MIN,
		.hash_seed = 42,
		.formatted_s = FORMATTED_S,
	};
	struct restored restored;
	if (size == 0)
		return 0;
	uint8_t *bytes = fuzz_copy(data + 1, size - 1);
	if (data[0] & 1)
		put_right(bytes, size - 1);
	layout.region_len = layout_place(&layout);
	unsigned char *base = calloc(1, layout.region_len);
	fuzz_must(base);
	if (restore_file(fuzz_file(bytes, size - 1), base, &layout, 7, &fuzz_log, &restored) == 0)
		check(base, &layout, &restored);
	free(base);
	free(bytes);
	return 0;
}
