/* SPDX-License-Identifier: BSD-2-Clause */
/* What fsck calls the blocks of a region in memory, and of one in a file. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/err.h"
#include "common/pool_file.h"
#include "server/fsck.h"
#include "server/fsck_file.h"

#define REGION_LEN LIMIT_REGION_MIN
#define BLOCK_LEN 192u /* class 2: three granules; a chunk has a tail */
#define LAST_TAG (SLOT_TAG_COUNT - 1)

struct fixture {
	struct layout layout;
	unsigned char *memory;
	struct reach reach;
	struct fsck fsck;
	char path[64];
};

static const void *
at(void *arg, uint64_t off, uint64_t len)
{
	struct fixture *f = arg;
	assert_true(off + len <= f->layout.region_len);
	return f->memory + off;
}

static const struct reach_calls calls = {.at = at};

static void
put_word(struct fixture *f, uint64_t off, uint64_t word)
{
	memcpy(f->memory + off, &word, sizeof(word));
}

static int
set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	assert_true(layout_plan(&f->layout, REGION_LEN, 1000, LIMIT_CHUNK_MIN));
	f->layout.hash_seed = 99;
	f->memory = aligned_alloc(LAYOUT_PAGE, REGION_LEN);
	assert_non_null(f->memory);
	memset(f->memory, 0, REGION_LEN);
	layout_to_superblock(&f->layout, (void *)f->memory);
	put_word(f, layout_desc_off(&f->layout, 1), chunk_make(CHUNK_OWNED, 2, 5, 1));
	put_word(f, layout_desc_off(&f->layout, 3), chunk_make(CHUNK_ORPHAN, 2, 0, 9));
	f->reach = (struct reach){.layout = &f->layout, .calls = &calls, .arg = f};
	*state = f;
	return 0;
}

static int
tear_down(void **state)
{
	struct fixture *f = *state;
	if (f->path[0])
		unlink(f->path);
	free(f->memory);
	free(f);
	return 0;
}

/* Writes a block of this incarnation; returns its committed word, and the key's first slot. */
static uint64_t
put_block(struct fixture *f, uint64_t chunk, unsigned i, uint32_t tag, uint64_t *ret_slot_off)
{
	uint64_t off = layout_chunk_off(&f->layout, chunk) + i * (uint64_t)BLOCK_LEN, main[2];
	struct block_header h = {.value_len = 80, .key_len = 8, .tag_flags = (uint16_t)tag};
	unsigned char *key = f->memory + off + BLOCK_HEADER_LEN;
	memset(key, 'a' + (int)i, 88);
	struct hash hash = hash_key(key, 8, f->layout.hash_seed);
	uint64_t word = block_word(off, &h, &hash);
	h.checksum = block_checksum(word, block_digest(&hash, key + 8, 80), &h);
	memcpy(f->memory + off, &h, sizeof(h));
	f->memory[layout_map_off(&f->layout, off)] = layout_mark(tag + SLOT_TAG_COUNT - 1);
	hash_main_buckets(&hash, 2 * f->layout.n_groups, main);
	*ret_slot_off = layout_combined_off(&f->layout, main[i % 2]) + layout_slot_in_combined(i);
	return word;
}

static void
mark(struct fixture *f, uint64_t word)
{
	f->memory[layout_map_off(&f->layout, slot_block_off(word))] = layout_mark(slot_tag(word));
}

/* In slices of this length; the sum is the region's length whatever is there. */
static void
look(struct fixture *f, uint64_t bytes)
{
	uint64_t sum = 0;
	assert_int_equal(fsck_begin(&f->fsck, &f->reach), 0);
	while (!fsck_step(&f->fsck, bytes))
		;
	for (unsigned i = 0; i < N_FSCK_PARTS; i++)
		sum += f->fsck.part[i].bytes;
	assert_int_equal(sum, REGION_LEN);
}

static void
expect(struct fixture *f, enum fsck_part part, uint64_t n)
{
	assert_int_equal(f->fsck.part[part].n, n);
	assert_int_equal(f->fsck.part[part].bytes, n * BLOCK_LEN);
}

static void
an_empty_region(void **state)
{
	struct fixture *f = *state;
	look(f, UINT64_MAX);
	uint32_t n = layout_blocks_per_chunk(&f->layout, 2);
	expect(f, FSCK_FREE, 2 * (uint64_t)n);
	assert_int_equal(f->fsck.part[FSCK_FREE_CHUNKS].n, f->layout.n_chunks - 2);
	assert_int_equal(f->fsck.part[FSCK_TAILS].bytes,
			 2 * (f->layout.chunk_size - n * BLOCK_LEN));
	assert_true(fsck_is_clean(&f->fsck));
	fsck_end(&f->fsck);
}

/* A region that evicts has hints behind its chunks. */
static void
a_region_with_hints(void **state)
{
	struct fixture *f = *state;
	struct layout *l = &f->layout;
	l->has_hints = 1;
	assert_true(layout_plan_with(l, REGION_LEN, 1000, LIMIT_CHUNK_MIN));
	look(f, UINT64_MAX);
	assert_int_equal(f->fsck.part[FSCK_HINTS].bytes,
			 l->n_chunks * l->chunk_size / LIMIT_GRANULE * LAYOUT_HINT_LEN);
	assert_true(fsck_is_clean(&f->fsck));
	fsck_end(&f->fsck);
}

/* One of each, wherever slices end. */
static void
each_kind_of_block(void **state)
{
	struct fixture *f = *state;
	uint64_t slot, word = put_block(f, 1, 0, 1, &slot);
	put_word(f, slot, word);
	word = put_block(f, 1, 1, 7, &slot);
	put_word(f, slot, slot_with_state(word, SLOT_TENTATIVE));
	word = put_block(f, 3, 2, 8, &slot); /* its word left: garbage */
	put_word(f, slot, slot_with_state(word, SLOT_DELETED));
	mark(f, put_block(f, 3, 3, 9, &slot)); /* free */
	mark(f, put_block(f, 3, 4, LAST_TAG, &slot));
	word = put_block(f, 3, 5, 10, &slot); /* torn, and written by nobody who is left */
	f->memory[slot_block_off(word) + 100] ^= 1;
	for (unsigned i = 0; i < 3; i++) {
		const uint64_t bytes[] = {1, 1000, UINT64_MAX};
		look(f, bytes[i]);
		expect(f, FSCK_LIVE, 1);
		expect(f, FSCK_TENTATIVE, 1);
		expect(f, FSCK_GARBAGE, 1);
		expect(f, FSCK_RESTING, 1);
		expect(f, FSCK_CORRUPT, 0);
		expect(f, FSCK_FREE, 2 * layout_blocks_per_chunk(&f->layout, 2) - 4);
		assert_int_equal(f->fsck.n_words[SLOT_COMMITTED], 1);
		assert_int_equal(f->fsck.n_words[SLOT_DELETED], 1);
		assert_true(fsck_is_clean(&f->fsck));
		fsck_end(&f->fsck);
	}
}

/* Returns the slot of a value that is there. */
static uint64_t
put_live(struct fixture *f, unsigned i, uint64_t *ret_word)
{
	uint64_t slot;
	*ret_word = put_block(f, 1, i, 1, &slot);
	put_word(f, slot, *ret_word);
	return slot;
}

static void
what_contradicts_itself(void **state)
{
	struct fixture *f = *state;
	uint64_t word, slot;
	put_live(f, 0, &word);
	f->memory[slot_block_off(word) + 90] ^= 1; /* a bit of the value */
	slot = put_live(f, 1, &word);
	put_word(f, slot + 8, word); /* two slots */
	put_live(f, 2, &word);
	f->memory[layout_map_off(&f->layout, slot_block_off(word))] += 2;
	put_live(f, 3, &word);
	put_word(f, f->layout.index_off + 8, word); /* not of its key */
	put_word(f, f->layout.index_off + 16, slot_make(REGION_LEN, 3, 1, 1, SLOT_COMMITTED));
	put_word(f, layout_desc_off(&f->layout, 5), chunk_make(CHUNK_OWNED, 200, 1, 1));
	look(f, UINT64_MAX);
	assert_false(fsck_is_clean(&f->fsck));
	assert_int_equal(f->fsck.n_corrupt_words, 3);
	assert_int_equal(f->fsck.part[FSCK_CORRUPT].n, 5);
	assert_int_equal(f->fsck.part[FSCK_CORRUPT].bytes, f->layout.chunk_size + 4 * BLOCK_LEN);
	expect(f, FSCK_LIVE, 0);
	fsck_end(&f->fsck);
}

/* ---- Files ---- */

static int
fsck_of_file(struct fixture *f, size_t len, const char *reason)
{
	char why[POOL_FILE_REASON_MAX] = "";
	snprintf(f->path, sizeof(f->path), "/tmp/rkv-test-fsck.XXXXXX");
	int fd = mkstemp(f->path);
	FILE *out = fopen("/dev/null", "we");
	assert_true(fd >= 0 && out);
	assert_int_equal(write(fd, f->memory, len), len);
	struct pool_file served;
	bool is_served = reason && strcmp(reason, "is served") == 0;
	if (is_served)
		assert_int_equal(pool_file_open(f->path, false, &served, why), 0);
	int rc = fsck_file(f->path, out, why);
	if (is_served)
		pool_file_close(&served);
	if (reason && !strstr(why, reason))
		fail_msg("not of %s: %s", reason, why);
	fclose(out);
	close(fd);
	unlink(f->path);
	f->path[0] = '\0';
	return rc;
}

static void
a_file(void **state)
{
	struct fixture *f = *state;
	uint64_t word;
	put_live(f, 0, &word);
	assert_int_equal(fsck_of_file(f, REGION_LEN, NULL), 0);
	assert_int_equal(fsck_of_file(f, REGION_LEN, "is served"), ERR_CONN);
	assert_int_equal(fsck_of_file(f, REGION_LEN - 1, "ends before"), ERR_INVALID);
	assert_int_equal(fsck_of_file(f, 100, "too short"), ERR_INVALID);
	f->memory[slot_block_off(word) + 60] ^= 1;
	assert_int_equal(fsck_of_file(f, REGION_LEN, NULL), FSCK_FILE_CORRUPT);
	f->memory[100] ^= 1;
	assert_int_equal(fsck_of_file(f, REGION_LEN, "superblock"), ERR_INVALID);
	memset(f->memory, 'x', REGION_LEN);
	assert_int_equal(fsck_of_file(f, REGION_LEN, "not an rkv region"), ERR_INVALID);
	char why[NET_REASON_MAX];
	assert_true(fsck_file("/nowhere/at/all", stdout, why) < 0);
	assert_true(fsck_file("/", stdout, why) < 0);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(an_empty_region),
		TEST(a_region_with_hints),
		TEST(each_kind_of_block),
		TEST(what_contradicts_itself),
		TEST(a_file),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
