/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The unix socket that hands out pools: a peer presents a token, which ties it to a control
 * connection, and gets the descriptor of the memory that this one is for. Before it does, the
 * server holds a pidfd of the peer's process: from then on it may touch the region until it is
 * gone, [DEAD].
 */
#ifndef RKV_SERVER_HANDOUT_H
#define RKV_SERVER_HANDOUT_H

#include <sys/types.h>

#include "common/fabric_shm.h"
#include "common/loop.h"
#include "proto/limits.h"
#include "server/conn.h"

struct handout {
	struct loop *loop;
	const struct log *log;
	struct loop_listener listener;
	struct conn_queue greeting;
	LIST_HEAD(, handout_peer) peers;
	unsigned n_peers;
	uint64_t n_given;
	uint64_t n_refused;
	/*
	 * The peer presented this token: takes over pidfd, tells whether it may only read, and
	 * returns what it gets; or returns NULL (no such token) and leaves pidfd alone.
	 */
	const struct shm_share *(*claim)(struct handout *handout,
					 const unsigned char token[SHM_REQUEST_LEN], int pidfd,
					 pid_t pid, bool *ret_read_only);
};

/* Which file a socket was bound to, so that nobody else's is removed; all 0: no file. */
struct handout_file {
	dev_t device;
	ino_t inode;
};

/*
 * Listens on a path, "@name" for the abstract namespace. A socket file that nobody listens on is
 * replaced; the file can be used by every local user, because the token is what counts. Failures:
 * ERR_CONN, ERR_PERM, ERR_NOMEM, ERR_INVALID.
 */
int handout_listen(const char *path, int *ret_fd, struct handout_file *ret_file, char *ret_reason);

/*
 * What to do with a path before listening there: 0: nothing is there, or a stale socket
 * (*ret_stale). Failure: ERR_CONN: something else is there.
 */
int handout_probe(const char *path, bool *ret_stale, char *ret_reason);

/* Removes the socket file, if it is still the one that handout_listen made. */
void handout_remove(const char *path, const struct handout_file *file);

/* Serves fd, which stays the caller's; claim, log and loop are set by the caller. */
int handout_start(struct handout *handout, int fd);

/* After the loop has ended. */
void handout_destroy(struct handout *handout);

#endif
