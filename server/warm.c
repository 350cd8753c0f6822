/* SPDX-License-Identifier: BSD-2-Clause */
/* The lives of a region in a file: warm.h. */
#include "server/warm.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/net.h"
#include "server/recover.h"

/*
 * The serials that a machine may have issued, and not written to its disk, before it crashed: the
 * kernel writes back within half a minute.
 */
#define SERIALS_LOST UINT64_C(1000000)
#define FORMAT_REMEDY "start once with --pool-format, which empties it"

static_assert(LAYOUT_BOOT_ID_LEN == NET_BOOT_ID_LEN, "boot ids");

/* ---- Judging ---- */

/*
 * A server that was killed between the two stores that change the epoch has left the checksum of
 * the epoch before.
 */
static void
mend_epoch(struct layout_superblock *sb)
{
	struct layout_superblock was = *sb;
	was.epoch = sb->former_epoch;
	if (sb->checksum != layout_superblock_checksum(sb) &&
	    sb->checksum == layout_superblock_checksum(&was))
		sb->epoch = was.epoch;
}

static int
judge_sizes(const char *path, const struct layout *l, const struct options *options,
	    char ret_reason[POOL_FILE_REASON_MAX])
{
	const struct layout *wanted = &options->layout;
	const struct {
		const char *what, *option;
		uint64_t is, wanted;
	} sizes[] = {
		{"bytes", "--pool-size", l->region_len, wanted->region_len},
		{"bytes a chunk", "--chunk-size", l->chunk_size, wanted->chunk_size},
		{"index slots", "--index-slots", l->n_groups * LAYOUT_GROUP_SLOTS,
		 wanted->n_groups * LAYOUT_GROUP_SLOTS},
	};
	if (l->has_hints != wanted->has_hints) {
		snprintf(ret_reason, POOL_FILE_REASON_MAX,
			 "%.250s holds a pool %s eviction: give --evict %s, or " FORMAT_REMEDY,
			 path, l->has_hints ? "with" : "without", l->has_hints ? "yes" : "no");
		return ERR_INVALID;
	}
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		if (sizes[i].is == sizes[i].wanted)
			continue;
		int n = snprintf(ret_reason, POOL_FILE_REASON_MAX,
				 "%.250s holds a pool of %" PRIu64
				 " %s, and the options ask for %" PRIu64 ": give ",
				 path, sizes[i].is, sizes[i].what, sizes[i].wanted);
		if (options_are_of_more(options)) /* sizes follow from its own and the first's */
			snprintf(ret_reason + n, POOL_FILE_REASON_MAX - (size_t)n,
				 "--region %s:SIZE and the sizes of the first region as they were, "
				 "or " FORMAT_REMEDY,
				 options->region_name);
		else
			snprintf(ret_reason + n, POOL_FILE_REASON_MAX - (size_t)n,
				 "%s %" PRIu64 ", or " FORMAT_REMEDY, sizes[i].option, sizes[i].is);
		return ERR_INVALID;
	}
	return 0;
}

static int
judge_superblock(const struct pool_file *file, struct layout_superblock *sb,
		 const struct options *options, char ret_reason[POOL_FILE_REASON_MAX])
{
	struct layout layout;
	if (sb->version != LAYOUT_VERSION || sb->len != sizeof(*sb)) {
		snprintf(ret_reason, POOL_FILE_REASON_MAX,
			 "%.250s has layout version %" PRIu32 ", and this kv-server has %u: use "
			 "the release that wrote it, or " FORMAT_REMEDY,
			 file->path, sb->version, LAYOUT_VERSION);
		return ERR_VERSION;
	}
	mend_epoch(sb);
	const char *wrong = layout_from_superblock(&layout, sb);
	if (!wrong && sb->next_serial == 0)
		wrong = "the superblock has no serial for the next session";
	if (wrong) {
		snprintf(ret_reason, POOL_FILE_REASON_MAX,
			 "%.250s cannot be used: %s: put a good copy there, or " FORMAT_REMEDY,
			 file->path, wrong);
		return ERR_CORRUPT;
	}
	int rc = judge_sizes(file->path, &layout, options, ret_reason);
	uint64_t len = pool_file_len_for(file, layout.region_len);
	if (rc == 0 && file->len != len) {
		snprintf(ret_reason, POOL_FILE_REASON_MAX,
			 "%.250s is %" PRIu64 " bytes long, and its pool takes %" PRIu64
			 ": it was %s: put a good copy there, or " FORMAT_REMEDY,
			 file->path, file->len, len, file->len < len ? "cut off" : "appended to");
		return ERR_CORRUPT;
	}
	return rc;
}

int
warm_judge(const struct pool_file *file, const struct options *options, enum warm_kind *ret_kind,
	   char ret_reason[POOL_FILE_REASON_MAX])
{
	struct layout_superblock sb = {0};
	*ret_kind = WARM_NEW;
	if (file->len == 0 || options->pool_format)
		return 0;
	size_t len = pool_file_peek(file, &sb, sizeof(sb));
	if (sb.magic == LAYOUT_MAGIC_UNFINISHED) {
		*ret_kind = WARM_UNFINISHED;
		return 0;
	}
	if (len != sizeof(sb) || sb.magic != LAYOUT_MAGIC) {
		snprintf(ret_reason, POOL_FILE_REASON_MAX,
			 "%.250s holds something that is no rkv pool, and is left alone: choose "
			 "another --pool-file, or " FORMAT_REMEDY,
			 file->path);
		return ERR_INVALID;
	}
	if (options->restore[0]) {
		snprintf(ret_reason, POOL_FILE_REASON_MAX,
			 "%.250s holds a pool already, which %s would overwrite: leave it out, "
			 "or " FORMAT_REMEDY,
			 file->path,
			 options_are_of_more(options) ? "the snapshot of --region" : "--restore");
		return ERR_INVALID;
	}
	*ret_kind = WARM_FORMER;
	return judge_superblock(file, &sb, options, ret_reason);
}

/* ---- Beginning ---- */

/* On tmpfs this does nothing, and takes no time. */
static void
write_back(struct region *region, size_t len)
{
	if (msync(region->superblock, len, MS_SYNC))
		log_line(region->log, LOG_WARN,
			 "the pool file could not be written to its disk: after a crash of this "
			 "machine it may be unusable");
}

static void
note_life(struct region *region)
{
	struct layout_superblock *sb = region->superblock;
	memset(sb->boot_id, 0, sizeof(sb->boot_id));
	(void)net_boot_id(sb->boot_id); /* it was read before, or the server does not start */
	sb->inode = region->file->inode;
	sb->n_lives++;
	sb->is_clean = 0;
	region->n_lives = sb->n_lives;
	write_back(region, LAYOUT_PAGE);
}

/* Is not everything in the file what was there last? Whatever died, its page cache lives on. */
static bool
may_be_torn(const struct region *region)
{
	const struct layout_superblock *sb = region->superblock;
	unsigned char boot_id[NET_BOOT_ID_LEN] = {0};
	bool same_boot =
		net_boot_id(boot_id) == 0 && memcmp(boot_id, sb->boot_id, sizeof(boot_id)) == 0;
	return sb->is_clean != 1 && !(same_boot && sb->inode == region->file->inode);
}

static int
mend(struct region *region)
{
	struct recover_counts counts;
	log_line(
		region->log, LOG_WARN,
		"%s was not closed before its machine stopped, or before it was copied: each value "
		"is checked now, and the latest writes may be missing",
		region->file->path);
	int rc = recover_region(pool_base(region->pool), &region->layout, &counts);
	if (rc) {
		log_line(region->log, LOG_ERROR, "no memory is left");
		return rc;
	}
	region->superblock->next_serial += SERIALS_LOST;
	log_line(region->log, LOG_WARN, "%" PRIu64 " keys are good, %" PRIu64 " slots were emptied",
		 counts.n_kept, counts.n_dropped);
	return 0;
}

/* A server that is killed in here leaves what mend_epoch understands. */
static void
change_epoch(struct layout_superblock *sb, uint64_t epoch)
{
	sb->former_epoch = sb->epoch;
	atomic_signal_fence(memory_order_seq_cst);
	sb->epoch = epoch;
	atomic_signal_fence(memory_order_seq_cst);
	sb->checksum = layout_superblock_checksum(sb);
}

void
warm_begin_first(struct region *region)
{
	note_life(region);
	log_line(region->log, LOG_INFO, "%s: formatted", region->file->path);
}

int
warm_begin_next(struct region *region)
{
	struct layout_superblock *sb = region->superblock;
	mend_epoch(sb);
	layout_from_superblock(&region->layout, sb); /* warm_judge has found it good */
	if (may_be_torn(region)) {
		int rc = mend(region);
		if (rc)
			return rc;
	}
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	uint64_t epoch = (uint64_t)now.tv_sec * (uint64_t)CLOCK_NS_PER_S + (uint64_t)now.tv_nsec;
	change_epoch(sb, epoch > sb->epoch ? epoch : sb->epoch + 1);
	region->region_id = sb->region_id;
	region->epoch = sb->epoch;
	region->first_stamp = sb->stamp + LIMIT_WORD_STAMPS + 1;
	note_life(region);
	log_line(region->log, LOG_INFO, "%s: opened, life %" PRIu64, region->file->path,
		 region->n_lives);
	return 0;
}

/* ---- The end ---- */

/* Clients that still map it may write once more: then it is not called clean. */
void
warm_end(struct region *region)
{
	pid_t pid;
	struct layout_superblock *sb = region->superblock;
	const struct pool_file file = {.fd = pool_fd(region->pool)};
	write_back(region, pool_map_len(region->pool));
	if (pool_file_is_mapped(&file, &pid))
		return;
	sb->is_clean = 1;
	write_back(region, LAYOUT_PAGE);
}
