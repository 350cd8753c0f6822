/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A superblock as another machine sent it, then words of slots: what is accepted keeps all that is
 * computed from it within the region, [RANGE].
 */
#include "proto/layout.h"
#include "tests/fuzz/fuzz.h"

static void
check_areas(const struct layout *l)
{
	fuzz_must(l->region_len <= LIMIT_REGION_MAX);
	fuzz_must(l->index_off >= LAYOUT_PAGE);
	fuzz_must(layout_slot_off(l, l->n_groups * LAYOUT_GROUP_SLOTS - 1) < l->chunk_table_off);
	fuzz_must(layout_combined_off(l, 2 * l->n_groups - 1) + LAYOUT_COMBINED_LEN <=
		  l->chunk_table_off);
	fuzz_must(layout_desc_off(l, l->n_chunks - 1) < l->free_map_off);
	fuzz_must(layout_chunk_off(l, l->n_chunks) <= l->region_len);
	fuzz_must(layout_max_class(l) < LAYOUT_CLASSES_MAX);
	for (uint32_t i = 0; i <= layout_max_class(l); i++)
		fuzz_must(layout_blocks_per_chunk(l, i) >= 1);
}

static void
check_word(const struct layout *l, uint64_t word)
{
	uint64_t off = slot_block_off(word);
	if (!layout_block_in_range(l, word))
		return;
	fuzz_must(off >= l->heap_off && off + slot_read_len(word) <= l->region_len);
	fuzz_must(layout_chunk_of(l, off) < l->n_chunks);
	fuzz_must(layout_map_off(l, off) >= l->free_map_off);
	fuzz_must(layout_map_off(l, off) < l->heap_off);
}

static void
judge(const struct layout_superblock *sb, struct fuzz_input words)
{
	struct layout layout;
	uint64_t word;
	if (layout_from_superblock(&layout, sb))
		return;
	check_areas(&layout);
	while (fuzz_take(&words, &word, sizeof(word)))
		check_word(&layout, word);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	struct layout_superblock sb = {0};
	fuzz_take(&in, &sb, offsetof(struct layout_superblock, reserved0));
	judge(&sb, in);
	sb.checksum = layout_superblock_checksum(&sb);
	judge(&sb, in);
	return 0;
}
