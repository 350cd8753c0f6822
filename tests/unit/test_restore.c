/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Snapshot files: golden bytes, what is restored into regions of other shapes, and that no file
 * that was damaged in any way is taken.
 */
#include "tests/unit/golden.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common/err.h"
#include "server/records.h"
#include "server/restore.h"

#define MIB (UINT64_C(1) << 20)
#define ID UINT64_C(0x1122334455667788)
#define N_MUTANTS 1000u
#define NEVER 0
#define FILE_MAX ((size_t)40 << 20)

/* ---- Files ---- */

static struct image {
	unsigned char *bytes;
	size_t len;
	uint64_t n;
	uint64_t digest;
} image;

static char last_line[1024];

static void
remember_line(void *arg, int level, const char *line)
{
	(void)arg;
	(void)level;
	snprintf(last_line, sizeof(last_line), "%s", line);
}

static const struct log sink = {.sink = remember_line, .max_level = LOG_INFO};

static void
image_begin(void)
{
	struct snapfile_header h = {
		.magic = SNAPFILE_MAGIC,
		.version = SNAPFILE_VERSION,
		.len = sizeof(h),
		.id = ID,
		.began_s = 0x21222324,
		.region_id = UINT64_C(0x3132333435363738),
		.region_len = 64 * MIB,
		.chunk_size = MIB,
		.index_slots = 0x41424344,
	};
	h.checksum = snapfile_header_checksum(&h);
	memset(image.bytes, 0, FILE_MAX);
	memcpy(image.bytes, &h, sizeof(h));
	image.len = sizeof(h);
	image.n = image.digest = 0;
}

/* Puts the header of a record or of the end at the end of the image, and signs it. */
static void
image_add(void *header, size_t header_len, size_t len)
{
	unsigned char *to = image.bytes + image.len;
	assert_true(image.len + len <= FILE_MAX);
	memcpy(to, header, header_len);
	uint64_t checksum = snapfile_checksum(ID, image.len, to, len);
	memcpy(to, &checksum, sizeof(checksum));
	image.len += len;
	image.digest = snapfile_digest(image.digest, checksum);
}

static void
image_record(const struct record *record)
{
	struct snapfile_record h = {
		.kind = SNAPFILE_RECORD,
		.key_len = (uint16_t)record->key_len,
		.value_len = record->value_len,
		.version = record->version,
		.expiry_s = record->expiry_s,
		.user_flags = record->user_flags,
	};
	unsigned char *to = image.bytes + image.len + sizeof(h);
	memcpy(to, record->key, record->key_len);
	memcpy(to + record->key_len, record->value, record->value_len);
	image_add(&h, sizeof(h), snapfile_record_len(record->key_len, record->value_len));
	image.n++;
}

static void
image_end(uint64_t next_serial)
{
	struct snapfile_end end = {
		.kind = SNAPFILE_END,
		.n_records = image.n,
		.digest = image.digest,
		.next_serial = next_serial,
		.ended_s = 0x51525354,
	};
	image_add(&end, sizeof(end), sizeof(end));
	image.len = layout_round_up(image.len, SNAPFILE_PAGE);
}

/* ---- Regions ---- */

static struct region {
	struct layout layout;
	unsigned char *base;
	struct restored restored;
} region;

/* With access hints if region.layout.has_hints is set. */
static void
region_make(uint64_t len, uint64_t index_slots, uint64_t chunk_size)
{
	free(region.base);
	region.base = NULL;
	assert_true(layout_plan_with(&region.layout, len, index_slots, chunk_size));
	region.layout.hash_seed = UINT64_C(0x6789);
	region.layout.formatted_s = (uint64_t)time(NULL);
	region.base = calloc(1, len);
	assert_non_null(region.base);
}

/* Restores these bytes, from a file without a name. */
static int
restore(const unsigned char *bytes, size_t len, uint32_t random_serial)
{
	char path[64];
	int fd = memfd_create("snapshot", MFD_CLOEXEC);
	assert_true(fd >= 0);
	for (size_t done = 0; done < len;) {
		ssize_t n = write(fd, bytes + done, len - done);
		assert_true(n > 0);
		done += (size_t)n;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	last_line[0] = '\0';
	int rc = restore_file(path, region.base, &region.layout, random_serial, &sink,
			      &region.restored);
	close(fd);
	return rc;
}

static uint64_t *
word_at(uint64_t off)
{
	return (uint64_t *)(void *)(region.base + off);
}

static bool
block_is_valid(uint64_t word, const struct block_header *h)
{
	struct hash hash = hash_key(h + 1, h->key_len, region.layout.hash_seed);
	const unsigned char *value = (const unsigned char *)(h + 1) + h->key_len;
	return layout_block_in_range(&region.layout, word) && block_tag(h) == slot_tag(word) &&
	       block_word(slot_block_off(word), h, &hash) == word &&
	       h->checksum == block_checksum(word, block_digest(&hash, value, h->value_len), h);
}

/* The block of a key, as a client finds it; NULL: a miss. */
static const struct block_header *
find(const void *key, uint32_t key_len)
{
	const struct block_header *found = NULL;
	struct hash hash = hash_key(key, key_len, region.layout.hash_seed);
	uint64_t main[2], found_at = 0;
	hash_main_buckets(&hash, 2 * region.layout.n_groups, main);
	for (unsigned k = 0; k < 2 * LAYOUT_COMBINED_SLOTS; k++) {
		uint64_t off =
			layout_combined_off(&region.layout, main[k >= LAYOUT_COMBINED_SLOTS]) +
			layout_slot_in_combined(k % LAYOUT_COMBINED_SLOTS);
		uint64_t word = *word_at(off);
		if (word == 0 || off == found_at)
			continue;
		const struct block_header *h = (const void *)(region.base + slot_block_off(word));
		assert_true(block_is_valid(word, h));
		if (h->key_len != key_len || memcmp(h + 1, key, key_len) != 0)
			continue;
		assert_null(found);
		found = h;
		found_at = off;
	}
	return found;
}

static void
expect(const struct record *record)
{
	const struct block_header *h = find(record->key, record->key_len);
	assert_non_null(h);
	assert_int_equal(h->value_len, record->value_len);
	assert_memory_equal((const unsigned char *)(h + 1) + h->key_len, record->value,
			    record->value_len);
	assert_int_equal(h->version, record->version);
	assert_int_equal(h->user_flags, record->user_flags);
	if (record->expiry_s)
		assert_int_equal(h->expiry, record->expiry_s - region.layout.formatted_s);
	else
		assert_int_equal(h->expiry, 0);
}

/* Blocks that the map says are in use, as the allocator of a client sees them. */
static uint64_t
count_used_blocks(void)
{
	const struct layout *l = &region.layout;
	uint64_t n = 0;
	for (uint64_t c = 0; c < l->n_chunks; c++) {
		uint64_t desc = *word_at(layout_desc_off(l, c));
		if (chunk_state(desc) == CHUNK_FREE) {
			assert_int_equal(desc, 0);
			continue;
		}
		assert_int_equal(chunk_state(desc), CHUNK_LEFT);
		assert_int_equal(chunk_owner(desc), 0);
		uint64_t len = (uint64_t)layout_class_granules(chunk_class(desc)) * LIMIT_GRANULE;
		for (uint32_t i = 0; i < layout_blocks_per_chunk(l, chunk_class(desc)); i++) {
			uint64_t off = layout_chunk_off(l, c) + i * len;
			const struct block_header *h = (const void *)(region.base + off);
			uint8_t entry = region.base[layout_map_off(l, off)];
			n += h->checksum != 0 && entry != layout_mark(block_tag(h));
		}
	}
	return n;
}

static uint64_t
count_words(void)
{
	uint64_t n = 0;
	for (uint64_t i = 0; i < region.layout.n_groups * LAYOUT_GROUP_SLOTS; i++)
		n += *word_at(layout_slot_off(&region.layout, i)) != 0;
	return n;
}

/* ---- Records ---- */

#define KEY_ROOM LIMIT_KEY_MAX
#define VALUE_ROOM (128u << 10)

static unsigned char value_bytes[VALUE_ROOM];
static uint64_t now_s;

/* The i-th record of the tests; all bytes of it follow from i. key: KEY_ROOM bytes. */
static struct record
sample(uint32_t i, unsigned char *key)
{
	static const uint32_t key_lens[] = {4, 5, 8, 31, 100, 1023, 1024};
	static const uint32_t value_lens[] = {0, 1, 8, 24, 100, 1000, 3000};
	memset(key, (int)(i % 251), KEY_ROOM);
	memcpy(key, &i, sizeof(i));
	return (struct record){
		.key = key,
		.key_len = key_lens[i % 7],
		.value = value_bytes + i % 97,
		.value_len = value_lens[i / 7 % 7],
		.version = (uint64_t)(1000 + i) << 32 | i,
		.expiry_s = i % 3 ? NEVER : now_s + 100000 + i,
		.user_flags = ~i,
	};
}

static void
image_of_samples(uint32_t n)
{
	unsigned char key[KEY_ROOM];
	image_begin();
	for (uint32_t i = 0; i < n; i++) {
		struct record record = sample(i, key);
		image_record(&record);
	}
	image_end(1000 + n);
}

static int
set_up(void **state)
{
	(void)state;
	now_s = (uint64_t)time(NULL);
	image.bytes = malloc(FILE_MAX);
	for (uint32_t i = 0; i < VALUE_ROOM; i++)
		value_bytes[i] = (unsigned char)(i * 2654435761u >> 13);
	return image.bytes ? 0 : -1;
}

static int
tear_down(void **state)
{
	(void)state;
	free(image.bytes);
	free(region.base);
	return 0;
}

/* ---- What is in a file ---- */

static void
golden(void **state)
{
	const struct record record = {(const unsigned char *)"key",
				      (const unsigned char *)"value",
				      3,
				      5,
				      UINT64_C(0x6162636465666768),
				      0x71727374,
				      0x81828384};
	(void)state;
	assert_int_equal(SNAPFILE_VERSION, 1);
	image_begin();
	image_record(&record);
	image_end(UINT64_C(0x61626365));
	golden_check(
		image.bytes, 72,
		"524b56534e4150310100000048000000887766554433221124232221000000003837363534333231"
		"000000040000000000001000000000004443424100000000f74b9674c7c24049");
	golden_check(image.bytes + 72, 48,
		     "0d10fc0bdfb2ffed0100030005000000686766656463626174737271000000008483828100000"
		     "0006b657976616c7565");
	golden_check(image.bytes + 120, 48,
		     "33d76907ac02d639020000000000000001000000000000002b57b483307e10326563626100000"
		     "0005453525100000000");
	golden_check_zero(image.bytes + 168, 4096 - 168);
	assert_int_equal(image.len, 4096);
}

/* ---- What is restored ---- */

static void
every_record_is_there_in_a_region_of_another_shape(void **state)
{
	static const struct {
		uint64_t len, index_slots, chunk_size;
	} shapes[] = {{64 * MIB, 0, 0}, {16 * MIB, 4500, 4096 << 4}, {256 * MIB, 0, 4 * MIB}};
	const uint32_t n = 4000;
	unsigned char key[KEY_ROOM];
	(void)state;
	image_of_samples(n);
	for (size_t k = 0; k < sizeof(shapes) / sizeof(*shapes); k++) {
		region_make(shapes[k].len, shapes[k].index_slots, shapes[k].chunk_size);
		assert_int_equal(restore(image.bytes, image.len, 7), 0);
		assert_int_equal(region.restored.n_records, n);
		assert_int_equal(region.restored.n_bytes, image.len);
		for (uint32_t i = 0; i < n; i++) {
			struct record record = sample(i, key);
			expect(&record);
		}
		assert_int_equal(count_used_blocks(), n);
		assert_int_equal(count_words(), n);
		memset(key, 'x', sizeof(key));
		assert_null(find(key, 8));
	}
}

static void
an_empty_store(void **state)
{
	(void)state;
	image_of_samples(0);
	region_make(2 * MIB, 0, 0);
	assert_int_equal(restore(image.bytes, image.len, 7), 0);
	assert_int_equal(region.restored.n_records, 0);
	assert_int_equal(count_words(), 0);
	assert_int_equal(count_used_blocks(), 0);
}

static void
the_largest_value_fills_a_chunk(void **state)
{
	unsigned char key[KEY_ROOM];
	struct record record = sample(0, key);
	(void)state;
	record.key_len = KEY_ROOM;
	record.value_len = (64u << 10) - BLOCK_HEADER_LEN - KEY_ROOM;
	image_begin();
	image_record(&record);
	image_end(2000);
	region_make(2 * MIB, 0, 64 << 10);
	assert_int_equal(restore(image.bytes, image.len, 7), 0);
	expect(&record);
}

static void
of_two_records_of_a_key_the_later_stays(void **state)
{
	unsigned char key[KEY_ROOM];
	struct record first = sample(10, key), second = first;
	(void)state;
	second.version = first.version + 1;
	second.value_len = 77;
	image_begin();
	image_record(&first);
	image_record(&second);
	image_end(2000);
	region_make(2 * MIB, 0, 0);
	assert_int_equal(restore(image.bytes, image.len, 7), 0);
	assert_int_equal(region.restored.n_records, 1);
	expect(&second);
	assert_int_equal(count_used_blocks(), 1);
	assert_int_equal(count_words(), 1);
}

static void
what_has_expired_is_left_out(void **state)
{
	unsigned char key[KEY_ROOM];
	struct record record = sample(10, key);
	(void)state;
	image_begin();
	record.expiry_s = (uint64_t)time(NULL) - 1;
	image_record(&record);
	image_end(2000);
	region_make(2 * MIB, 0, 0);
	region.layout.formatted_s = (uint64_t)time(NULL) - 1000;
	assert_int_equal(restore(image.bytes, image.len, 7), 0);
	assert_int_equal(region.restored.n_records, 0);
	assert_int_equal(region.restored.n_expired, 1);
	assert_null(find(record.key, record.key_len));
}

static void
serials_go_on_behind_those_of_the_snapshot(void **state)
{
	unsigned char key[KEY_ROOM];
	struct record record = sample(10, key);
	(void)state;
	image_of_samples(20); /* next serial 1020 */
	region_make(2 * MIB, 0, 0);
	assert_int_equal(restore(image.bytes, image.len, 1u << 30), 0);
	assert_int_equal(region.restored.first_serial, 1u << 30);
	region_make(2 * MIB, 0, 0);
	assert_int_equal(restore(image.bytes, image.len, 7), 0);
	assert_int_equal(region.restored.first_serial, 1027);
	expect(&record);

	image_begin();
	record.version = UINT64_C(0xfffffffe00000005);
	image_record(&record);
	image_end(UINT64_C(0xffffffff));
	region_make(2 * MIB, 0, 0);
	assert_int_equal(restore(image.bytes, image.len, 7), 0);
	assert_int_equal(region.restored.first_serial, 8);
	record.version = UINT64_C(7) << 32 | 1;
	expect(&record);
}

/* ---- What does not fit ---- */

/* Is refused, and then fits into a region of the sizes that the sentence names. */
static void
refused_until_it_is_large_enough(int code)
{
	unsigned long long pool_mib, chunk_kib, slots;
	assert_int_equal(restore(image.bytes, image.len, 7), code);
	const char *sizes = strstr(last_line, "--pool-size");
	assert_non_null(sizes);
	assert_int_equal(sscanf(sizes, "--pool-size %lluM --chunk-size %lluK --index-slots %llu",
				&pool_mib, &chunk_kib, &slots),
			 3);
	assert_true(slots <= pool_mib * MIB / LAYOUT_GROUP_LEN * LAYOUT_GROUP_SLOTS / 2);
	region_make(pool_mib * MIB, slots, chunk_kib << 10);
	if (restore(image.bytes, image.len, 7) != 0)
		fail_msg("with these sizes, too: %s", last_line);
	assert_int_equal(region.restored.n_records, image.n);
	assert_int_equal(count_words(), image.n);
}

static void
too_small_a_pool_is_refused_with_the_sizes_that_would_do(void **state)
{
	(void)state;
	image_of_samples(3000);
	region_make(2 * MIB, 6000, 0);
	refused_until_it_is_large_enough(ERR_NO_SPACE);
}

static void
too_small_an_index_is_refused_with_the_sizes_that_would_do(void **state)
{
	(void)state;
	image_of_samples(3000);
	region_make(16 * MIB, 2500, 0);
	refused_until_it_is_large_enough(ERR_INDEX_FULL);
}

static void
too_small_chunks_are_refused_with_the_sizes_that_would_do(void **state)
{
	unsigned char key[KEY_ROOM];
	struct record record = sample(3, key);
	(void)state;
	record.value_len = VALUE_ROOM - 97;
	image_begin();
	image_record(&record);
	image_end(2000);
	region_make(16 * MIB, 0, 4096);
	refused_until_it_is_large_enough(ERR_TOO_BIG);
	expect(&record);
}

/* Hints take a 32nd of the memory: of so much, more than the sizes are rounded up by. */
static void
with_eviction_the_sizes_have_room_for_its_hints(void **state)
{
	(void)state;
	image_of_samples(38000);
	assert_true(image.len > 32 * MIB);
	region.layout.has_hints = 1;
	region_make(4 * MIB, 0, 0);
	refused_until_it_is_large_enough(ERR_NO_SPACE);
	assert_true(region.layout.hint_off != 0);
	region.layout.has_hints = 0;
}

static void
an_index_of_the_former_size_holds_what_it_held(void **state)
{
	(void)state;
	region_make(16 * MIB, 3000, 0);
	uint64_t slots = region.layout.n_groups * LAYOUT_GROUP_SLOTS;
	image_of_samples((uint32_t)(slots * 95 / 100));
	if (restore(image.bytes, image.len, 7) != 0)
		fail_msg("%s", last_line);
	assert_int_equal(count_words(), image.n);
	unsigned char key[KEY_ROOM];
	for (uint32_t i = 0; i < image.n; i++) {
		struct record record = sample(i, key);
		expect(&record);
	}
}

/* ---- What is damaged ---- */

static uint64_t
random_below(uint64_t n)
{
	static uint64_t x = 88172645463325252;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x % n;
}

/* Damages the len bytes in one of several ways; returns the new length, at most len + 8192. */
static size_t
mutate(unsigned char *bytes, size_t len, unsigned how)
{
	size_t unit = (size_t)8 << random_below(10), n_units = len / unit;
	size_t a = random_below(n_units) * unit, b = random_below(n_units) * unit;
	unsigned char block[4096];
	switch (how % 6) {
	case 0:
		bytes[random_below(len)] ^= (unsigned char)(1u << random_below(8));
		return len;
	case 1:
		return random_below(len);
	case 2: /* two pieces change places */
		memcpy(block, bytes + a, unit);
		memcpy(bytes + a, bytes + b, unit);
		memcpy(bytes + b, block, unit);
		return len;
	case 3: { /* more behind the end */
		size_t more = 1 + random_below(8192);
		memset(bytes + len, (int)random_below(2), more);
		return len + more;
	}
	case 4: /* a piece is missing */
		memmove(bytes + a, bytes + a + unit, len - a - unit);
		return len - unit;
	default: /* noise */
		for (size_t i = 0; i < unit; i++)
			bytes[a + i] = (unsigned char)random_below(256);
		return len;
	}
}

static void
damaged_files_are_refused(void **state)
{
	size_t len;
	unsigned n_tried = 0;
	(void)state;
	image_of_samples(60);
	unsigned char *copy = malloc(image.len + 8192);
	region_make(MIB, 0, 16 << 10);
	assert_int_equal(restore(image.bytes, image.len, 7), 0);
	for (unsigned i = 0; n_tried < N_MUTANTS; i++) {
		memcpy(copy, image.bytes, image.len);
		len = mutate(copy, image.len, i);
		if (len == image.len && memcmp(copy, image.bytes, len) == 0)
			continue;
		n_tried++;
		memset(region.base, 0, region.layout.region_len);
		int rc = restore(copy, len, 7);
		if (rc >= 0 || !strstr(last_line, "at byte"))
			fail_msg("mutant %u of %zu bytes: %d, %s", i, len, rc, last_line);
	}
	free(copy);
}

static void
each_bit_of_a_small_file_counts(void **state)
{
	(void)state;
	image_of_samples(1);
	region_make(MIB, 0, 16 << 10);
	for (size_t i = 0; i < 300 * 8; i++) {
		image.bytes[i / 8] ^= (unsigned char)(1u << i % 8);
		memset(region.base, 0, region.layout.heap_off);
		assert_true(restore(image.bytes, image.len, 7) < 0);
		image.bytes[i / 8] ^= (unsigned char)(1u << i % 8);
	}
}

/* Signed by whoever wrote them, and wrong all the same. */
static void
forged_fields_are_refused(void **state)
{
	struct snapfile_header h;
	(void)state;
	region_make(MIB, 0, 16 << 10);
	image_of_samples(3);
	memcpy(&h, image.bytes, sizeof(h));
	h.version = 2;
	h.checksum = snapfile_header_checksum(&h);
	memcpy(image.bytes, &h, sizeof(h));
	assert_int_equal(restore(image.bytes, image.len, 7), ERR_VERSION);
	assert_non_null(strstr(last_line, "another format version"));

	image_of_samples(3); /* a serial that will be issued again */
	image.len = image.len - SNAPFILE_PAGE;
	image_begin();
	unsigned char key[KEY_ROOM];
	struct record record = sample(5, key);
	image_record(&record);
	image_end(record.version >> 32);
	assert_int_equal(restore(image.bytes, image.len, 7), ERR_CORRUPT);
	assert_non_null(strstr(last_line, "serial"));

	image_begin(); /* a record more than there is */
	image.n = 1;
	image_end(1);
	assert_int_equal(restore(image.bytes, image.len, 7), ERR_CORRUPT);
	assert_non_null(strstr(last_line, "the end counts"));

	image_begin(); /* a record of another file */
	image_record(&record);
	image.bytes[16]++;
	memcpy(&h, image.bytes, sizeof(h));
	h.checksum = snapfile_header_checksum(&h);
	memcpy(image.bytes, &h, sizeof(h));
	assert_int_equal(restore(image.bytes, image.len, 7), ERR_CORRUPT);
	assert_non_null(strstr(last_line, "at byte 72, behind 0 good records"));
}

static void
what_cannot_be_read_is_named(void **state)
{
	(void)state;
	region_make(MIB, 0, 16 << 10);
	assert_int_equal(restore_file("/nonexistent/file", region.base, &region.layout, 7, &sink,
				      &region.restored),
			 ERR_CONN);
	assert_non_null(strstr(last_line, "/nonexistent/file"));
	assert_true(restore_file("/", region.base, &region.layout, 7, &sink, &region.restored) < 0);
	assert_int_equal(restore((const unsigned char *)"", 0, 7), ERR_CORRUPT);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(golden),
		cmocka_unit_test(every_record_is_there_in_a_region_of_another_shape),
		cmocka_unit_test(an_empty_store),
		cmocka_unit_test(the_largest_value_fills_a_chunk),
		cmocka_unit_test(of_two_records_of_a_key_the_later_stays),
		cmocka_unit_test(what_has_expired_is_left_out),
		cmocka_unit_test(serials_go_on_behind_those_of_the_snapshot),
		cmocka_unit_test(too_small_a_pool_is_refused_with_the_sizes_that_would_do),
		cmocka_unit_test(too_small_an_index_is_refused_with_the_sizes_that_would_do),
		cmocka_unit_test(too_small_chunks_are_refused_with_the_sizes_that_would_do),
		cmocka_unit_test(with_eviction_the_sizes_have_room_for_its_hints),
		cmocka_unit_test(an_index_of_the_former_size_holds_what_it_held),
		cmocka_unit_test(damaged_files_are_refused),
		cmocka_unit_test(each_bit_of_a_small_file_counts),
		cmocka_unit_test(forged_fields_are_refused),
		cmocka_unit_test(what_cannot_be_read_is_named),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
