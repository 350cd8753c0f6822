/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory that a server serves: reserved before anything uses it, of a size that never changes,
 * not inherited by a fork. Every fabric takes it as it is. It is a memfd, which ends with those who
 * map it, or lies in a file that outlives the server (pool_file.h).
 *
 *   file    | len bytes                        | ... rounding ... | a page of the fabric's own |
 *           ^ pool_base                                           ^ pool_base + pool_room
 */
#ifndef RKV_COMMON_POOL_H
#define RKV_COMMON_POOL_H

#include <stdbool.h>
#include <stddef.h>

#include "common/log.h"

struct pool;

enum pool_huge { POOL_HUGE_NO, POOL_HUGE_TRY, POOL_HUGE_MUST };

#define POOL_NODE_ANY (-1)

/*
 * Reserves len bytes, so that too little memory is a failure here and never a SIGBUS later; seals
 * the memfd against shrinking and growing. numa_node: where the memory shall lie if there is room,
 * or POOL_NODE_ANY; a policy that the process was started with counts more. On failure the log has
 * a sentence with the cause and the remedy. Failures: ERR_NOMEM, ERR_PERM.
 */
int pool_create(size_t len, enum pool_huge huge, int numa_node, const struct log *log,
		struct pool **ret_pool);

/*
 * Reserves the first len bytes of a file, in steps, so that a signal costs a step and not all.
 * Returns 0 or an errno.
 */
int pool_reserve(int fd, size_t len);

/*
 * Makes a pool of an open file that is large enough and reserved; its length is in whole pages.
 * Takes fd over, also when it fails. Failures, which the log has heard of: ERR_NOMEM, ERR_PERM.
 */
int pool_adopt(int fd, size_t len, size_t page, bool is_huge, const struct log *log,
	       struct pool **ret_pool);
void pool_destroy(struct pool *pool); /* NULL is nothing */

void *pool_base(const struct pool *pool);
size_t pool_len(const struct pool *pool);     /* as asked for */
size_t pool_room(const struct pool *pool);    /* len, rounded up to whole pages of the pool's */
size_t pool_map_len(const struct pool *pool); /* all of it: the room and the fabric's page */
int pool_fd(const struct pool *pool);         /* the memfd or file; the pool's */
bool pool_is_huge(const struct pool *pool);
bool pool_is_file(const struct pool *pool);

#endif
