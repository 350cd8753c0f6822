/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fabric for clients on the server's own host: the pool is a memfd passed over a unix socket,
 * and the client's CPU executes READ, WRITE, CAS and FAA on its mapping.
 */
#ifndef RKV_COMMON_FABRIC_SHM_H
#define RKV_COMMON_FABRIC_SHM_H

#include "common/fabric.h"
#include "common/log.h"

/* ---- Client side ---- */

/*
 * Opens this process's side. Failure: ERR_NOMEM. Its fab_region_open has one outcome more:
 * ERR_AGAIN: the server has no file descriptor left to hand out its pool; a little later it may.
 */
int shm_open_fabric(struct fab **ret_fab);

/* ---- Server side ---- */

struct shm_pool; /* the memory that clients map */

enum shm_huge { SHM_HUGE_NO, SHM_HUGE_TRY, SHM_HUGE_MUST };

/*
 * Reserves len bytes before anything uses them, so that too little memory is a failure here and
 * never a SIGBUS later; seals the memfd against shrinking and growing. On failure the log has a
 * sentence with the cause and the remedy. Failures: ERR_NOMEM, ERR_PERM.
 */
int shm_pool_create(size_t len, enum shm_huge huge, const struct log *log,
		    struct shm_pool **ret_pool);
void shm_pool_destroy(struct shm_pool *pool);
void *shm_pool_base(const struct shm_pool *pool);
bool shm_pool_is_huge(const struct shm_pool *pool);

/* What a client sends first on the unix socket: the token of its hello (fab_offer). */
#define SHM_REQUEST_LEN 16u

/* Hands the pool to a client: one message with the descriptor. Failure: ERR_CONN. */
int shm_pool_send(const struct shm_pool *pool, int socket);

/* Tells a client instead that this process has no file descriptor left. Before the request too. */
void shm_pool_refuse(int socket);

/* The server's own endpoint to its pool (loop-back CAS), through a fab of its own. */
int shm_loopback(struct shm_pool *pool, struct fab_endpoint **ret_endpoint);
void shm_loopback_close(struct fab_endpoint *ep);

#endif
