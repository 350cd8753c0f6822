/* SPDX-License-Identifier: BSD-2-Clause */
/* The slot word: its bits, its read-size codes, its states. */
#include "tests/unit/golden.h"

#include "proto/layout.h"
#include "proto/slot.h"

static void
test_golden_word(void **state)
{
	(void)state;
	assert_int_equal(LAYOUT_VERSION, 1);
	/* offset, size, tag, fingerprint, state: each in its own bits */
	assert_true(slot_make(64, 0, 0, 0, SLOT_COMMITTED) == 1);
	assert_true(slot_make(0, 1, 0, 0, SLOT_COMMITTED) == UINT64_C(0x0000000100000000));
	assert_true(slot_make(0, 0, 1, 0, SLOT_COMMITTED) == UINT64_C(0x0000010000000000));
	assert_true(slot_make(0, 0, 0, 1, SLOT_COMMITTED) == UINT64_C(0x0010000000000000));
	assert_true(slot_make(0, 0, 0, 0, SLOT_TENTATIVE) == UINT64_C(0x4000000000000000));
	assert_true(slot_make(0, 0, 0, 0, SLOT_DELETED) == UINT64_C(0x8000000000000000));
	assert_true(slot_make(0, 0, 0, 0, SLOT_FORWARDED) == UINT64_C(0xc000000000000000));
	uint64_t word = slot_make(UINT64_C(0x12345678) * 64, 0x9a, 0xbcd, 0x2aa, SLOT_TENTATIVE);
	golden_check(&word, sizeof(word), "785634129acdab6a");
	word = slot_make(LIMIT_REGION_MAX - 64, 255, 4095, 1023, SLOT_FORWARDED);
	assert_true(word == UINT64_MAX);
}

static void
test_fields(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 64; i++) {
		uint32_t code = (i * 37 + 1) % 256, tag = (i * 641) % 4096, print = (i * 97) % 1024;
		uint64_t off = (UINT64_C(1) << (i % 32)) * 64;
		for (int s = SLOT_COMMITTED; s <= SLOT_FORWARDED; s++) {
			uint64_t word = slot_make(off, code, tag, print, (enum slot_state)s);
			assert_true(slot_block_off(word) == off);
			assert_int_equal(slot_read_code(word), code);
			assert_int_equal(slot_tag(word), tag);
			assert_int_equal(slot_fingerprint(word), print);
			assert_int_equal(slot_state(word), s);
			uint64_t deleted = slot_with_state(word, SLOT_DELETED);
			assert_int_equal(slot_state(deleted), SLOT_DELETED);
			assert_true(slot_with_state(deleted, (enum slot_state)s) == word);
		}
	}
}

static void
test_empty_and_refers(void **state)
{
	uint64_t word = slot_make(64, 1, 0, 0, SLOT_COMMITTED);
	(void)state;
	assert_true(slot_is_empty(0));
	assert_false(slot_refers(0));
	assert_false(slot_is_empty(word));
	assert_true(slot_refers(word));
	assert_true(slot_refers(slot_with_state(word, SLOT_TENTATIVE)));
	assert_false(slot_is_empty(slot_with_state(word, SLOT_TENTATIVE)));
	assert_true(slot_is_empty(slot_with_state(word, SLOT_DELETED)));
	assert_false(slot_refers(slot_with_state(word, SLOT_DELETED)));
	assert_false(slot_is_empty(slot_with_state(word, SLOT_FORWARDED)));
	assert_false(slot_refers(slot_with_state(word, SLOT_FORWARDED)));
}

/* Every block that can be: its code reads all of it, no code less, and never past its class. */
static void
test_size_codes(void **state)
{
	const uint32_t max = (uint32_t)(LIMIT_CHUNK_MAX / LIMIT_GRANULE);
	(void)state;
	for (uint32_t n = 1; n <= max; n++) {
		uint32_t code = slot_size_code(n), class_id = layout_class_of(n);
		bool fine = code >= 1 && code <= SLOT_SIZE_CODE_MAX &&
			    slot_size_granules(code) >= n &&
			    (code == 1 || slot_size_granules(code - 1) < n) &&
			    class_id < LAYOUT_CLASSES_MAX && layout_class_granules(class_id) >= n &&
			    (class_id == 0 || layout_class_granules(class_id - 1) < n) &&
			    slot_size_granules(code) <= layout_class_granules(class_id);
		if (!fine)
			fail_msg("a block of %u granules has code %u, class %u", n, code, class_id);
	}
	for (uint32_t code = 1; code <= SLOT_SIZE_EXACT; code++)
		assert_int_equal(slot_size_granules(code), code);
	assert_int_equal(slot_size_code(129), 129);
	assert_int_equal(slot_size_granules(129), 144);
	assert_int_equal(slot_size_granules(136), 256);
	assert_int_equal(slot_size_granules(137), 288);
	/*
	 * The largest code is not beyond what 64 bits of length hold, whatever a stranger writes.
	 */
	assert_true(slot_read_len(UINT64_MAX) == UINT64_C(15) << 19 << 6);
}

static void
test_read_len(void **state)
{
	(void)state;
	assert_true(slot_read_len(slot_make(0, 1, 0, 0, SLOT_COMMITTED)) == 64);
	assert_true(slot_read_len(slot_make(0, 128, 0, 0, SLOT_COMMITTED)) == 8192);
	assert_true(slot_read_len(slot_make(0, 129, 0, 0, SLOT_COMMITTED)) == 9216);
	assert_true(slot_read_len(0) == 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden_word),      cmocka_unit_test(test_fields),
		cmocka_unit_test(test_empty_and_refers), cmocka_unit_test(test_size_codes),
		cmocka_unit_test(test_read_len),
	};
	return cmocka_run_group_tests_name("slot", tests, NULL, NULL);
}
