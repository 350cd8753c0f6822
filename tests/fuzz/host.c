/* SPDX-License-Identifier: BSD-2-Clause */
/* See host.h. */
#include "tests/fuzz/host.h"

#include <unistd.h>

#include "common/fabric_shm.h"

#define REGION_ID 7
#define EPOCH 1

static struct pool *pool;
static struct shm_share *share;

static void
make_once(void)
{
	if (pool)
		return;
	fuzz_must(pool_create(LIMIT_REGION_MIN, POOL_HUGE_NO, POOL_NODE_ANY, &fuzz_log, &pool) ==
		  0);
	fuzz_must(shm_share_create(pool, &fuzz_log, &share) == 0);
}

struct layout_superblock *
host_superblock(void)
{
	struct layout layout;
	make_once();
	struct layout_superblock *sb = pool_base(pool);
	fuzz_must(layout_plan(&layout, LIMIT_REGION_MIN, 0, 0));
	memset(sb, 0, sizeof(*sb));
	sb->region_id = REGION_ID;
	sb->epoch = EPOCH;
	layout_to_superblock(&layout, sb);
	return sb;
}

struct wire_welcome
host_welcome(void)
{
	struct wire_welcome w = {
		.header = {.magic = WIRE_MAGIC,
			   .version = WIRE_VERSION,
			   .type = WIRE_WELCOME,
			   .len = sizeof(w),
			   .request = HOST_ANSWER_TO},
		.sizes = wire_sizes_own(),
		.n_regions = 1,
		.access = WIRE_ACCESS_ADMIN,
		.unix_path = "@fuzz",
		.region = {{.region_id = REGION_ID, .epoch = EPOCH, .len = LIMIT_REGION_MIN}},
	};
	fuzz_must(net_boot_id(w.boot_id) == 0);
	return w;
}

void
host_hand_out(void)
{
	(void)shm_share_send(share, fuzz_unix.far, getpid(), false);
}
