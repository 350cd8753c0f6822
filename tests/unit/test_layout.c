/* SPDX-License-Identifier: BSD-2-Clause */
/* The region: golden bytes, geometry, what a superblock from elsewhere may say, hash, block. */
#include "tests/unit/golden.h"

#include <stdlib.h>

#include "proto/layout.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* ---- Golden bytes ---- */

static struct layout_superblock
sample_superblock(void)
{
	struct layout_superblock sb;
	struct layout l;
	memset(&sb, 0, sizeof(sb));
	assert_true(layout_plan(&l, 64 * MIB, 0, 0));
	l.hash_seed = UINT64_C(0x1122334455667788);
	l.formatted_s = UINT64_C(0x6543210f);
	sb.region_id = UINT64_C(0xa1a2a3a4a5a6a7a8);
	sb.epoch = UINT64_C(0xb1b2b3b4b5b6b7b8);
	layout_to_superblock(&l, &sb);
	sb.next_serial = UINT64_C(0xc1c2c3c4c5c6c7c8);
	sb.scratch = UINT64_C(0xd1d2d3d4d5d6d7d8);
	return sb;
}

static void
test_golden_superblock(void **state)
{
	struct layout_superblock sb = sample_superblock();
	const unsigned char *bytes = (const unsigned char *)&sb;
	(void)state;
	assert_int_equal(LAYOUT_VERSION, 1);
	golden_check(bytes, 120,
		     "524b5247494f4e310100000000100000a8a7a6a5a4a3a2a1b8b7b6b5b4b3b2b1"
		     "0f2143650000000000000004000000000000010000000000cd03000000000000"
		     "00e0220000000000000023000000000000403200000000008877665544332211"
		     "0c000000400000000a000000640000006400000001000000");
	golden_check(bytes + 120, 16, "0010000000000000562e000000000000");
	golden_check_zero(bytes + 136, 112);
	golden_check(bytes + 248, 8, "f43d888a6b9bdcc0");
	golden_check_zero(bytes + 256, 1792);
	golden_check(bytes + 2048, 8, "c8c7c6c5c4c3c2c1");
	golden_check_zero(bytes + 2056, 56);
	golden_check(bytes + 2112, 8, "d8d7d6d5d4d3d2d1");
	golden_check_zero(bytes + 2120, 4096 - 2120);
}

static void
test_golden_block(void **state)
{
	struct hash hash = hash_key("key", 3, UINT64_C(0x1122334455667788));
	struct block_header h = {
		.prev = UINT64_C(0xe1e2e3e4e5e6e7e8),
		.version = UINT64_C(0xf1f2f3f4f5f6f7f8),
		.value_len = 5,
		.expiry = UINT32_C(0x01020304),
		.user_flags = UINT32_C(0x05060708),
		.key_len = 3,
		.tag_flags = 0xabc,
	};
	(void)state;
	assert_int_equal(LAYOUT_VERSION, 1);
	uint64_t word = block_word(UINT64_C(0x12345640), &h, &hash);
	h.checksum = block_checksum(word, block_digest(&hash, "value", 5), &h);
	golden_check(&word, sizeof(word), "59d1480001bc0a14");
	golden_check(&hash, sizeof(hash), "40d135eb9f947da840d135eb9f947da8822c8c4988b7dc68");
	golden_check(&h, sizeof(h),
		     "7e558f34e9e04abbe8e7e6e5e4e3e2e1f8f7f6f5f4f3f2f10500000004030201"
		     "080706050300bc0a");
}

static void
test_golden_chunk(void **state)
{
	uint64_t desc = chunk_make(CHUNK_OWNED, 0x5a, 0xabcdef, 0x1234567);
	(void)state;
	assert_int_equal(LAYOUT_VERSION, 1);
	golden_check(&desc, sizeof(desc), "a1f5debc7a563412");
	assert_int_equal(chunk_state(desc), CHUNK_OWNED);
	assert_int_equal(chunk_class(desc), 0x5a);
	assert_int_equal(chunk_owner(desc), 0xabcdef);
	assert_int_equal(chunk_generation(desc), 0x1234567);
	assert_true(chunk_make(CHUNK_FREE, 0, 0, 0) == 0);
	desc = chunk_next(chunk_make(CHUNK_FREE, 0, 0, 0xfffffff), CHUNK_LEFT, 143,
			  CHUNK_OWNER_MAX);
	assert_int_equal(chunk_generation(desc), 0);
	assert_int_equal(chunk_state(desc), CHUNK_LEFT);
	assert_int_equal(chunk_class(desc), 143);
	assert_int_equal(chunk_owner(desc), CHUNK_OWNER_MAX);
}

static void
test_marks(void **state)
{
	(void)state;
	for (uint32_t tag = 0; tag < SLOT_TAG_COUNT; tag++) {
		uint8_t in_use = layout_mark(tag - 1), freed = layout_mark(tag);
		assert_int_not_equal(in_use, freed);
		assert_int_equal(freed, tag % 256);
		/*
		 * The block's next incarnation, and the first after the chunk's history is
		 * forgotten.
		 */
		assert_int_equal(layout_mark(layout_first_tag(freed) - 1), freed);
		assert_in_range(layout_first_tag(freed), 0, SLOT_TAG_COUNT - 1);
	}
}

/* ---- Size classes ---- */

static void
test_classes(void **state)
{
	(void)state;
	for (uint32_t c = 1; c < LAYOUT_CLASSES_MAX; c++) {
		assert_true(layout_class_granules(c) > layout_class_granules(c - 1));
		assert_int_equal(layout_class_of(layout_class_granules(c)), c);
		assert_int_equal(layout_class_of(layout_class_granules(c - 1) + 1), c);
	}
	/* A chunk of any size is a class of its own: one block fills it. */
	for (uint64_t size = LIMIT_CHUNK_MIN; size <= LIMIT_CHUNK_MAX; size *= 2) {
		struct layout l = {.chunk_size = size};
		uint32_t top = layout_max_class(&l);
		assert_in_range(top, 0, LAYOUT_CLASSES_MAX - 1);
		assert_int_equal(layout_class_granules(top) * LIMIT_GRANULE, size);
		assert_int_equal(layout_blocks_per_chunk(&l, top), 1);
		assert_int_equal(layout_blocks_per_chunk(&l, 0), size / LIMIT_GRANULE);
		assert_true(layout_value_max(&l, 10) == size - 50);
	}
}

/* ---- Geometry ---- */

static void
check_plan(uint64_t region_len, uint64_t slots, uint64_t chunk_size)
{
	struct layout l, bigger, read;
	struct layout_superblock sb;
	if (!layout_plan(&l, region_len, slots, chunk_size)) {
		/* Not even the smallest would have fitted. */
		l = (struct layout){.n_chunks = LIMIT_CHUNKS_MIN, .n_groups = 1};
		l.chunk_size = chunk_size ? chunk_size : layout_default_chunk_size(region_len);
		uint64_t heap = l.n_chunks * l.chunk_size;
		l.n_groups = layout_groups_for(slots ? slots : heap / LIMIT_HEAP_BYTES_PER_SLOT);
		assert_true(layout_place(&l) > region_len);
		return;
	}
	assert_true(l.n_chunks >= LIMIT_CHUNKS_MIN);
	assert_true(l.region_len == region_len);
	assert_true(chunk_size == 0 || l.chunk_size == chunk_size);
	assert_true(l.index_off == LAYOUT_PAGE);
	assert_true(l.chunk_table_off >= l.index_off + l.n_groups * LAYOUT_GROUP_LEN);
	assert_true(l.free_map_off >= l.chunk_table_off + l.n_chunks * 8);
	assert_true(l.heap_off >= l.free_map_off + l.n_chunks * l.chunk_size / LIMIT_GRANULE);
	assert_true(l.heap_off + l.n_chunks * l.chunk_size <= region_len);
	assert_true((l.chunk_table_off | l.free_map_off | l.heap_off) % LAYOUT_PAGE == 0);
	assert_true(l.n_groups * LAYOUT_GROUP_SLOTS >= slots);
	/* One chunk more would not fit. */
	bigger = l;
	bigger.n_chunks++;
	if (slots == 0)
		bigger.n_groups = layout_groups_for(bigger.n_chunks * bigger.chunk_size /
						    LIMIT_HEAP_BYTES_PER_SLOT);
	assert_true(layout_place(&bigger) > region_len);
	memset(&sb, 0, sizeof(sb));
	layout_to_superblock(&l, &sb);
	assert_null(layout_from_superblock(&read, &sb));
	assert_memory_equal(&read, &l, sizeof(l));
}

static void
test_plan(void **state)
{
	(void)state;
	for (uint64_t len = LIMIT_REGION_MIN; len <= LIMIT_REGION_MAX; len = len * 9 / 8 + 12345) {
		check_plan(len, 0, 0);
		check_plan(len, 1, 0);
		check_plan(len, len / 1000, 0);
		check_plan(len, len / 16, 0);
		for (uint64_t size = LIMIT_CHUNK_MIN; size <= LIMIT_CHUNK_MAX; size *= 4)
			check_plan(len, 0, size);
	}
	check_plan(LIMIT_REGION_MAX, 0, 0);
	check_plan(LIMIT_REGION_MAX, 0, LIMIT_CHUNK_MIN);
	struct layout l;
	assert_false(layout_plan(&l, MIB, 0, MIB));
	assert_false(layout_plan(&l, MIB, MIB, 0));
}

static void
test_default_chunk(void **state)
{
	(void)state;
	assert_true(layout_default_chunk_size(MIB) == 64 << 10);
	assert_true(layout_default_chunk_size(64 * MIB) == 64 << 10);
	assert_true(layout_default_chunk_size(128 * MIB) == 128 << 10);
	assert_true(layout_default_chunk_size(GIB) == MIB);
	assert_true(layout_default_chunk_size(256 * GIB) == MIB);
}

/* Offsets: every combined bucket in its group, every slot once, map entries and chunks in place. */
static void
test_offsets(void **state)
{
	struct layout l;
	(void)state;
	assert_true(layout_plan(&l, 8 * MIB, 0, 0));
	for (uint64_t main = 0; main < 2 * l.n_groups; main++) {
		uint64_t off = layout_combined_off(&l, main);
		uint64_t group = l.index_off + main / 2 * LAYOUT_GROUP_LEN;
		assert_true(off == group + (main % 2 ? LAYOUT_BUCKET_LEN : 0));
		assert_true(off + LAYOUT_COMBINED_LEN <= l.chunk_table_off);
	}
	for (uint32_t i = 0; i < LAYOUT_COMBINED_SLOTS; i++) {
		uint32_t off = layout_slot_in_combined(i);
		assert_int_equal(off, i < 7 ? 8 + 8 * i : 64 + 8 + 8 * (i - 7));
	}
	for (uint64_t c = 0; c < l.n_chunks; c++) {
		uint64_t off = layout_chunk_off(&l, c);
		assert_true(layout_chunk_of(&l, off) == c);
		assert_true(layout_chunk_of(&l, off + l.chunk_size - 64) == c);
		assert_true(layout_desc_off(&l, c) == l.chunk_table_off + 8 * c);
		assert_true(layout_map_off(&l, off) ==
			    l.free_map_off + c * (l.chunk_size / LIMIT_GRANULE));
	}
	assert_true(layout_map_off(&l, l.heap_off + l.n_chunks * l.chunk_size - 64) < l.heap_off);
	assert_true(LAYOUT_SCRATCH_OFF == 2112);
}

/* Access hints lie behind the heap, and move nothing that stands before them but its size. */
static void
test_hints(void **state)
{
	struct layout l = {.has_hints = 1}, read;
	struct layout_superblock sb = {0};
	(void)state;
	assert_true(layout_plan_with(&l, 8 * MIB, 0, 0));
	uint64_t heap_end = l.heap_off + l.n_chunks * l.chunk_size;
	assert_true(l.hint_off >= heap_end && l.hint_off % LAYOUT_PAGE == 0);
	assert_true(layout_hint_off(&l, l.heap_off) == l.hint_off);
	assert_true(layout_hint_off(&l, heap_end - LIMIT_GRANULE) + LAYOUT_HINT_LEN <=
		    l.region_len);
	struct layout without = l;
	without.has_hints = 0;
	assert_true(layout_place(&without) == heap_end);
	assert_true(without.hint_off == 0 && without.heap_off == l.heap_off);
	layout_to_superblock(&l, &sb);
	assert_null(layout_from_superblock(&read, &sb));
	assert_true(read.has_hints && read.hint_off == l.hint_off);
	sb.hint_off += LAYOUT_PAGE; /* no checksum covers it */
	assert_non_null(layout_from_superblock(&read, &sb));
}

static void
assert_damage(struct layout_superblock *sb)
{
	struct layout l;
	sb->checksum = layout_superblock_checksum(sb);
	assert_non_null(layout_from_superblock(&l, sb));
}

#define DAMAGE(field, value)                                                                       \
	do {                                                                                       \
		struct layout_superblock damaged = good;                                           \
		damaged.field = (value);                                                           \
		assert_damage(&damaged);                                                           \
	} while (0)

/* Flipped bits fail the checksum; what a liar's checksum covers fails the checks behind it. */
static void
test_damage(void **state)
{
	struct layout_superblock good = sample_superblock();
	struct layout l;
	(void)state;
	assert_null(layout_from_superblock(&l, &good));
	for (size_t bit = 0; bit < 8 * 256; bit++) {
		struct layout_superblock damaged = good;
		((unsigned char *)&damaged)[bit / 8] ^= (unsigned char)(1u << bit % 8);
		assert_non_null(layout_from_superblock(&l, &damaged));
	}
	DAMAGE(magic, 0);
	DAMAGE(version, LAYOUT_VERSION + 1);
	DAMAGE(len, 2048);
	DAMAGE(region_len, good.region_len / 2);
	DAMAGE(region_len, 0);
	DAMAGE(region_len, LIMIT_REGION_MAX + 1);
	DAMAGE(chunk_size, 0);
	DAMAGE(chunk_size, good.chunk_size * 2);
	DAMAGE(chunk_size, good.chunk_size / 2);
	DAMAGE(chunk_size, good.chunk_size + 64);
	DAMAGE(chunk_size, LIMIT_CHUNK_MIN / 2);
	DAMAGE(chunk_size, LIMIT_CHUNK_MAX * 2);
	DAMAGE(chunk_size, UINT64_MAX);
	DAMAGE(n_chunks, 0);
	DAMAGE(n_chunks, LIMIT_CHUNKS_MIN - 1);
	DAMAGE(n_chunks, good.n_chunks * 2);
	DAMAGE(n_chunks, UINT64_MAX);
	DAMAGE(n_chunks, UINT64_MAX / good.chunk_size + 2);
	DAMAGE(chunk_table_off, good.chunk_table_off + 4096);
	DAMAGE(free_map_off, good.free_map_off - 4096);
	DAMAGE(heap_off, good.heap_off + 64);
	DAMAGE(heap_off, 0);
	DAMAGE(hint_off, good.heap_off + good.n_chunks * good.chunk_size); /* there are none */
	DAMAGE(tag_bits, LIMIT_TAG_BITS - 1);
	DAMAGE(hash_bits, LIMIT_HASH_BITS - 1);
	DAMAGE(fingerprint_bits, LIMIT_FINGERPRINT_BITS + 1);
	DAMAGE(word_stamps, LIMIT_WORD_STAMPS + 1);
	DAMAGE(stamp_ms, LIMIT_STAMP_MS + 1);
	DAMAGE(n_segments, 0);
	DAMAGE(n_segments, 2);
	DAMAGE(n_segments, UINT32_MAX);
	DAMAGE(segment[0].off, 8192);
	DAMAGE(segment[0].n_groups, 0);
	DAMAGE(segment[0].n_groups, good.segment[0].n_groups + 1000);
	DAMAGE(segment[0].n_groups, UINT64_MAX);
	DAMAGE(segment[0].n_groups, UINT64_MAX / LAYOUT_GROUP_LEN + 2);
}

/* [RANGE] */
static void
test_block_in_range(void **state)
{
	struct layout l;
	(void)state;
	assert_true(layout_plan(&l, 8 * MIB, 0, 0));
	const uint64_t heap_end = l.heap_off + l.n_chunks * l.chunk_size;
	const uint32_t chunk_code = slot_size_code((uint32_t)(l.chunk_size / LIMIT_GRANULE));
	const struct {
		uint64_t off;
		uint32_t code;
		bool in_range;
	} cases[] = {
		{l.heap_off, 1, true},
		{l.heap_off, 0, false},
		{l.heap_off - 64, 1, false},
		{l.heap_off - 64, 2, false},
		{0, 1, false},
		{l.heap_off, chunk_code, true},
		{l.heap_off, chunk_code + 1, false},
		{l.heap_off + 64, chunk_code, false},
		{l.heap_off + l.chunk_size - 64, 1, true},
		{l.heap_off + l.chunk_size - 64, 2, false},
		{l.heap_off + l.chunk_size, chunk_code, true},
		{heap_end - 64, 1, true},
		{heap_end - 64, 2, false},
		{heap_end - l.chunk_size, chunk_code, true},
		{heap_end, 1, false},
		{heap_end + l.chunk_size, 1, false},
		{LIMIT_REGION_MAX - 64, 1, false},
		{LIMIT_REGION_MAX - 64, 255, false},
		{l.heap_off, 255, false},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t word = slot_make(cases[i].off, cases[i].code, 7, 9, SLOT_COMMITTED);
		if (layout_block_in_range(&l, word) != cases[i].in_range)
			fail_msg("case %zu", i);
		word = slot_make(cases[i].off, cases[i].code, 4095, 1023, SLOT_TENTATIVE);
		assert_int_equal(layout_block_in_range(&l, word), cases[i].in_range);
	}
	assert_false(layout_block_in_range(&l, 0));
	assert_false(layout_block_in_range(&l, UINT64_MAX));
}

/* ---- Hash ---- */

static void
test_main_buckets(void **state)
{
	static const uint64_t counts[] = {2, 3, 4, 1000, UINT64_C(1) << 33};
	(void)state;
	for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
		for (uint32_t i = 0; i < 10000; i++) {
			struct hash h = hash_key(&i, sizeof(i), 1);
			uint64_t main[2];
			hash_main_buckets(&h, counts[c], main);
			assert_true(main[0] < counts[c] && main[1] < counts[c] &&
				    main[0] != main[1]);
		}
	}
	/* Equal halves, and the last bucket, whose neighbour is the first. */
	struct hash h = {.place_lo = UINT64_MAX, .place_hi = UINT64_MAX};
	uint64_t main[2];
	hash_main_buckets(&h, 10, main);
	assert_true(main[0] == 9 && main[1] == 0);
}

#define SPREAD_BUCKETS 500u
#define SPREAD_KEYS 100000u

/* The counts of balls in bins: within six deviations of what chance gives. */
static void
assert_even(const uint32_t *counts, uint32_t n, double n_balls)
{
	double mean = n_balls / n, worst = 36 * mean;
	for (uint32_t i = 0; i < n; i++) {
		double off = counts[i] - mean;
		if (off * off > worst)
			fail_msg("bin %u of %u holds %u instead of %.0f", i, n, counts[i], mean);
	}
}

static void
test_spread(void **state)
{
	static uint32_t buckets[SPREAD_BUCKETS], prints[1u << LIMIT_FINGERPRINT_BITS], tags[256];
	(void)state;
	for (uint32_t i = 0; i < SPREAD_KEYS; i++) {
		static char key[LIMIT_KEY_MAX];
		uint64_t main[2];
		int len = snprintf(key, sizeof(key), "user%u", i);
		struct hash h = hash_key(key, (uint32_t)len, 42);
		hash_main_buckets(&h, SPREAD_BUCKETS, main);
		buckets[main[0]]++;
		buckets[main[1]]++;
		prints[hash_fingerprint(&h)]++;
		tags[hash_cache_tag(&h) % 256]++;
	}
	assert_even(buckets, SPREAD_BUCKETS, 2.0 * SPREAD_KEYS);
	assert_even(prints, 1u << LIMIT_FINGERPRINT_BITS, SPREAD_KEYS);
	assert_even(tags, 256, SPREAD_KEYS);
	/* The seed matters. */
	struct hash a = hash_key("key", 3, 1), b = hash_key("key", 3, 2);
	assert_true(a.lo != b.lo && a.place_hi != b.place_hi);
}

/* ---- Block ---- */

struct sample_block {
	struct block_header h;
	unsigned char bytes[3 + 21]; /* key and value */
};

/* Does the block validate under this word? */
static bool
is_valid(const struct sample_block *b, uint64_t word)
{
	struct hash hash = hash_key(b->bytes, 3, 7);
	uint64_t digest = block_digest(&hash, b->bytes + 3, 21);
	return b->h.checksum == block_checksum(word, digest, &b->h);
}

static void
test_block_checksum(void **state)
{
	struct sample_block good = {
		.h = {.prev = 1, .version = 2, .value_len = 21, .key_len = 3, .tag_flags = 5}};
	(void)state;
	memcpy(good.bytes, "keythe value of the key.", sizeof(good.bytes));
	struct hash hash = hash_key(good.bytes, 3, 7);
	uint64_t word = block_word(4096, &good.h, &hash);
	good.h.checksum = block_checksum(word, block_digest(&hash, good.bytes + 3, 21), &good.h);
	assert_true(is_valid(&good, word));
	for (size_t bit = 0; bit < 8 * (BLOCK_HEADER_LEN + sizeof(good.bytes)); bit++) {
		struct sample_block flipped = good;
		((unsigned char *)&flipped)[bit / 8] ^= (unsigned char)(1u << bit % 8);
		assert_false(is_valid(&flipped, word));
	}
	for (int bit = 0; bit < 64; bit++)
		assert_false(is_valid(&good, word ^ UINT64_C(1) << bit));
	/* Zeros, as in memory never written, are no block. */
	struct sample_block zero;
	memset(&zero, 0, sizeof(zero));
	assert_false(is_valid(&zero, 0));
	assert_false(is_valid(&zero, word));
}

static void
test_block_word(void **state)
{
	struct hash hash = hash_key("k", 1, 7);
	struct block_header h = {.key_len = 1, .value_len = 1000, .tag_flags = 0xf123};
	(void)state;
	uint64_t word = block_word(640, &h, &hash);
	assert_true(slot_block_off(word) == 640);
	assert_int_equal(slot_read_code(word), 17); /* 1041 bytes */
	assert_int_equal(slot_tag(word), 0x123);    /* not the flags */
	assert_int_equal(slot_fingerprint(word), hash_fingerprint(&hash));
	assert_int_equal(slot_state(word), SLOT_COMMITTED);
}

static void
test_block_lengths(void **state)
{
	struct block_header h = {.key_len = 8, .value_len = 16};
	(void)state;
	assert_true(block_granules(block_len(8, 16)) == 1);
	assert_true(block_granules(block_len(8, 17)) == 2);
	assert_true(block_lengths_fit(&h, 64));
	assert_false(block_lengths_fit(&h, 63));
	h.key_len = 0;
	assert_false(block_lengths_fit(&h, 64));
	h.key_len = LIMIT_KEY_MAX;
	assert_true(block_lengths_fit(&h, 2048));
	h.key_len = LIMIT_KEY_MAX + 1;
	assert_false(block_lengths_fit(&h, 2048));
	h = (struct block_header){.key_len = UINT16_MAX, .value_len = UINT32_MAX};
	assert_false(block_lengths_fit(&h, LIMIT_CHUNK_MAX));
	h.key_len = 1;
	assert_false(block_lengths_fit(&h, LIMIT_CHUNK_MAX));
	assert_true(block_lengths_fit(&h, UINT64_C(1) << 33));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden_superblock),
		cmocka_unit_test(test_golden_block),
		cmocka_unit_test(test_golden_chunk),
		cmocka_unit_test(test_marks),
		cmocka_unit_test(test_classes),
		cmocka_unit_test(test_plan),
		cmocka_unit_test(test_default_chunk),
		cmocka_unit_test(test_offsets),
		cmocka_unit_test(test_hints),
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_block_in_range),
		cmocka_unit_test(test_main_buckets),
		cmocka_unit_test(test_spread),
		cmocka_unit_test(test_block_checksum),
		cmocka_unit_test(test_block_word),
		cmocka_unit_test(test_block_lengths),
	};
	return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
