/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fabric for clients on the server's own host: the pool is a memfd, or a file, passed over a
 * unix socket, and the client's CPU executes READ, WRITE, CAS and FAA on its mapping.
 */
#ifndef RKV_COMMON_FABRIC_SHM_H
#define RKV_COMMON_FABRIC_SHM_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/fabric.h"
#include "common/log.h"
#include "common/pool.h"

/* ---- Client side ---- */

/*
 * Opens this process's side. Failure: ERR_NOMEM. Its fab_region_open has one outcome more:
 * ERR_AGAIN: the server has no file descriptor left to hand out its pool; a little later it may.
 */
int shm_open_fabric(struct fab **ret_fab);

/* ---- Server side ---- */

struct shm_share; /* a pool that clients map, with its life word, [LIFE] */

/*
 * Makes a pool fit to be handed out; it stays the caller's and outlives this. On failure the log
 * has a sentence with the cause. Failures: ERR_NOMEM, ERR_PERM.
 */
int shm_share_create(struct pool *pool, const struct log *log, struct shm_share **ret_share);

/* From now on the pool counts as dead. NULL is nothing. */
void shm_share_destroy(struct shm_share *share);

/* What a client sends first on the unix socket: the token of its hello (fab_offer). */
#define SHM_REQUEST_LEN 16u

/*
 * Hands the pool to a client, whose process is pid: one message with the descriptor. read_only: one
 * that was opened for reading, so that the kernel lets nobody write through it or through what is
 * mapped of it; only a process of the server's own user, or root, could open the pool anew.
 * Failures: ERR_CONN; ERR_PERM; ERR_NOMEM: this process has no descriptor left.
 */
int shm_share_send(const struct shm_share *share, int socket, pid_t pid, bool read_only);

/* Tells a client instead that this process has no file descriptor left. Before the request too. */
void shm_refuse(int socket);

/* The server's own endpoint to its pool (loop-back CAS), through a fab of its own. */
int shm_loopback(struct shm_share *share, struct fab_endpoint **ret_endpoint);
void shm_loopback_close(struct fab_endpoint *ep);

#endif
