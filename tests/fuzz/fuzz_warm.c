/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a server makes of a file that is to hold its pool: flags, how long the file is beside what
 * it should be, the superblock as a good one has it, changed by the input, and what the file holds
 * instead (FLAG_OTHER).
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "common/err.h"
#include "proto/layout.h"
#include "server/warm.h"
#include "tests/fuzz/fuzz.h"

enum {
	FLAG_UNSIGNED = 1, /* the superblock's checksum is not put right */
	FLAG_OTHER = 2,    /* the file does not hold a superblock, but the rest of the input */
	FLAG_FORMAT = 4,   /* --pool-format */
	FLAG_RESTORE = 8,  /* --restore */
	FLAG_FORMER = 16,  /* the checksum is that of the epoch before */
};

static struct options *
options_once(void)
{
	static struct options options;
	static char words[][16] = {"kv-server", "--pool-size", "1M"};
	char *argv[] = {words[0], words[1], words[2], NULL};
	char reason[NET_REASON_MAX];
	if (!options.pool_size)
		fuzz_must(options_parse(&options, argv, reason) == 0);
	return &options;
}

static struct layout_superblock
superblock(struct fuzz_input *in, uint8_t flags, const struct layout *layout)
{
	struct layout_superblock sb = {.region_id = 7, .epoch = 2, .next_serial = 1};
	layout_to_superblock(layout, &sb);
	fuzz_change(in, &sb, offsetof(struct layout_superblock, checksum));
	fuzz_change(in, &sb.hint_off, sizeof(sb.hint_off));
	fuzz_change(in, &sb.next_serial, sizeof(sb.next_serial));
	fuzz_change(in, &sb.former_epoch, sizeof(sb.former_epoch));
	struct layout_superblock was = sb;
	was.epoch = sb.former_epoch;
	if (!(flags & FLAG_UNSIGNED))
		sb.checksum = layout_superblock_checksum(flags & FLAG_FORMER ? &was : &sb);
	return sb;
}

/* It was found to be a pool that can go on: it is one, of the sizes that the options ask for. */
static void
check_former(const struct pool_file *file, const struct layout_superblock *sb,
	     const struct options *options)
{
	struct layout layout;
	struct layout_superblock mended = *sb;
	if (sb->checksum != layout_superblock_checksum(sb))
		mended.epoch = sb->former_epoch;
	fuzz_must(!layout_from_superblock(&layout, &mended));
	fuzz_must(layout.region_len == options->layout.region_len);
	fuzz_must(layout.chunk_size == options->layout.chunk_size);
	fuzz_must(layout.n_groups == options->layout.n_groups);
	fuzz_must(file->len == pool_file_len_for(file, layout.region_len));
	fuzz_must(sb->next_serial != 0 && !options->restore[0]);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	struct options *options = options_once();
	struct pool_file file = {.path = "pool", .page = LAYOUT_PAGE};
	char reason[POOL_FILE_REASON_MAX] = "";
	enum warm_kind kind;
	uint8_t flags = fuzz_byte(&in);
	file.len = pool_file_len_for(&file, options->layout.region_len) + (uint64_t)fuzz_byte(&in);
	struct layout_superblock sb = superblock(&in, flags, &options->layout);
	const char *path =
		flags & FLAG_OTHER ? fuzz_file(in.at, in.len) : fuzz_file(&sb, sizeof(sb));
	if (flags & FLAG_OTHER)
		file.len = in.len;
	file.fd = open(path, O_RDONLY | O_CLOEXEC);
	fuzz_must(file.fd >= 0);
	options->pool_format = (flags & FLAG_FORMAT) != 0;
	snprintf(options->restore, sizeof(options->restore), "%s", flags & FLAG_RESTORE ? "s" : "");
	int rc = warm_judge(&file, options, &kind, reason);
	if (rc)
		fuzz_must(reason[0] && memchr(reason, '\0', sizeof(reason)));
	else if (kind == WARM_FORMER)
		check_former(&file, &sb, options);
	else
		fuzz_must(kind == WARM_NEW || kind == WARM_UNFINISHED);
	close(file.fd);
	return 0;
}
