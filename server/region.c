/* SPDX-License-Identifier: BSD-2-Clause */
/* Making a region: region.h. */
#include "server/region.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "common/clock.h"
#include "common/err.h"

/* Fills in what makes this region different from every other one. */
static int
make_identity(struct region *region)
{
	uint64_t random[3];
	struct timespec now;
	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return ERR_PERM;
	clock_gettime(CLOCK_REALTIME, &now);
	region->region_id = random[0];
	region->layout.hash_seed = random[1];
	/*
	 * Not 1: a version is a serial and a counter, and whoever kept one from before a restart
	 * must not meet it again on a value that was written after it.
	 */
	region->first_serial = random[2] % INT32_MAX + 1;
	region->layout.formatted_s = (uint64_t)now.tv_sec;
	/* Newer than that of any earlier server, also for a client that compares nothing else. */
	region->epoch = (uint64_t)now.tv_sec * (uint64_t)CLOCK_NS_PER_S + (uint64_t)now.tv_nsec;
	return 0;
}

static void
format(struct region *region)
{
	struct layout_superblock *sb = region->superblock;
	sb->region_id = region->region_id;
	sb->epoch = region->epoch;
	sb->next_serial = region->first_serial;
	layout_to_superblock(&region->layout, sb); /* last: it computes the checksum */
}

int
region_create(struct region *region, const struct options *options, const struct log *log)
{
	memset(region, 0, sizeof(*region));
	region->layout = options->layout;
	int rc = make_identity(region);
	if (rc) {
		log_line(log, LOG_ERROR, "no random numbers from the kernel (getrandom)");
		return rc;
	}
	rc = shm_pool_create(region->layout.region_len, options->huge_pages, log, &region->pool);
	if (rc)
		return rc;
	region->superblock = shm_pool_base(region->pool);
	format(region);
	rc = shm_loopback(region->pool, &region->loopback);
	if (rc) {
		log_line(log, LOG_ERROR, "cannot reach the server's own pool: %s", err_str(rc));
		region_destroy(region);
	}
	return rc;
}

void
region_destroy(struct region *region)
{
	if (region->loopback)
		shm_loopback_close(region->loopback);
	if (region->pool)
		shm_pool_destroy(region->pool);
	memset(region, 0, sizeof(*region));
}

uint64_t
region_word(const struct region *region, uint64_t off)
{
	const char *base = shm_pool_base(region->pool);
	const _Atomic uint64_t *word = (const void *)(base + off);
	return atomic_load_explicit(word, memory_order_relaxed);
}

int
region_cas(struct region *region, uint64_t off, uint64_t expect, uint64_t swap, uint64_t *ret_found)
{
	uint64_t found = 0;
	struct fab_done done = {.status = ERR_TIMEOUT};
	struct fab *fab = region->loopback->region->fab;
	struct fab_op op = {
		.kind = FAB_CAS,
		.roff = off,
		.piece = {{.local = &found, .len = sizeof(found)}},
		.expect = expect,
		.swap = swap,
	};
	int rc = fab_register(fab, &found, sizeof(found), &op.piece[0].key);
	if (rc)
		return rc;
	rc = fab_post(region->loopback, &op, 1, NULL);
	while (rc == 0 && fab_poll(region->loopback, &done, 1) == 0)
		fab_wait(region->loopback, fab_now(fab) + CLOCK_NS_PER_MS);
	fab_deregister(fab, op.piece[0].key);
	if (rc == 0)
		rc = done.status;
	if (rc == 0)
		*ret_found = found;
	return rc < 0 ? rc : rc > 0 ? ERR_CONN : 0;
}
