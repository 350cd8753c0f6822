/* SPDX-License-Identifier: BSD-2-Clause */
/* Handing out the pool: handout.h. */
#include "server/handout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/net.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5; the headers of Debian 12 are older */
#endif

#define BACKLOG 128
#define PEERS_MAX 256u /* that have not presented their token yet */
#define PROBE_MS 1000

struct handout_peer {
	struct conn conn; /* first */
	struct handout *handout;
	LIST_ENTRY(handout_peer) entry;
};

/* ---- The path ---- */

/* Of what net_unix_connect returned. */
static const char *
why_in_the_way(int rc)
{
	switch (rc) {
	case 0:
		return "another server listens there: choose another --socket";
	case ERR_PERM:
		return "a socket is there that this user may not use: remove it, or choose another "
		       "--socket";
	case ERR_TIMEOUT:
		return "somebody listens there and does not answer: choose another --socket";
	default:
		return "it cannot be tried, for want of memory or file descriptors (ulimit -n)";
	}
}

int
handout_probe(const char *path, bool *ret_stale, char *ret_reason)
{
	struct stat st;
	int fd;
	*ret_stale = false;
	if (path[0] == '@' || lstat(path, &st) < 0)
		return 0;
	if (!S_ISSOCK(st.st_mode)) {
		snprintf(ret_reason, NET_REASON_MAX,
			 "unix socket %s: a file that is not a socket is there: remove it, or "
			 "choose "
			 "another --socket",
			 path);
		return ERR_CONN;
	}
	int rc = net_unix_connect(path, clock_now_ns() + PROBE_MS * CLOCK_NS_PER_MS, &fd);
	if (rc == ERR_CONN) {
		*ret_stale = true;
		return 0;
	}
	if (rc == 0)
		close(fd);
	snprintf(ret_reason, NET_REASON_MAX, "unix socket %s: %s", path, why_in_the_way(rc));
	return ERR_CONN;
}

int
handout_listen(const char *path, int *ret_fd, struct handout_file *ret_file, char *ret_reason)
{
	struct stat st;
	bool stale;
	*ret_file = (struct handout_file){0};
	int rc = handout_probe(path, &stale, ret_reason);
	if (rc)
		return rc;
	if (stale)
		unlink(path);
	rc = net_unix_listen(path, BACKLOG, ret_fd, ret_reason);
	if (rc || path[0] == '@')
		return rc;
	chmod(path, 0666);
	if (lstat(path, &st) == 0)
		*ret_file = (struct handout_file){st.st_dev, st.st_ino};
	return 0;
}

void
handout_remove(const char *path, const struct handout_file *file)
{
	struct stat st;
	if (path[0] != '@' && file->inode && lstat(path, &st) == 0 && st.st_dev == file->device &&
	    st.st_ino == file->inode)
		unlink(path);
}

/* ---- A peer ---- */

/* The peer's process, held so that its number cannot come to mean another one. Or -1. */
static int
peer_pidfd(int socket, pid_t *ret_pid)
{
	struct ucred cred;
	int pidfd;
	socklen_t len = sizeof(cred);
	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return -1;
	*ret_pid = cred.pid;
	len = sizeof(pidfd);
	if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len) == 0)
		return pidfd;
	return (int)syscall(SYS_pidfd_open, cred.pid, 0);
}

static void
give(struct handout_peer *peer, const unsigned char *token)
{
	struct handout *handout = peer->handout;
	pid_t pid = 0;
	bool read_only = true;
	int pidfd = peer_pidfd(peer->conn.fd, &pid);
	if (pidfd < 0) {
		int error = errno;
		bool no_files = error == EMFILE || error == ENFILE;
		if (no_files)
			shm_refuse(peer->conn.fd);
		log_line(handout->log, LOG_WARN,
			 "no pool for process %d: its end could not be watched (pidfd: %s)%s",
			 (int)pid, strerror(error),
			 no_files ? ": raise RLIMIT_NOFILE (ulimit -n, LimitNOFILE= in a systemd "
				    "unit)"
				  : "");
		handout->n_refused++;
		return;
	}
	const struct shm_share *share = handout->claim(handout, token, pidfd, pid, &read_only);
	if (!share) {
		log_line(handout->log, LOG_DEBUG, "no pool for process %d: its token is not valid",
			 (int)pid);
		handout->n_refused++;
		close(pidfd);
		return;
	}
	int rc = shm_share_send(share, peer->conn.fd, pid, read_only);
	if (rc == ERR_NOMEM)
		shm_refuse(peer->conn.fd);
	if (rc)
		log_line(handout->log, LOG_INFO, "process %d did not take the pool: %s", (int)pid,
			 rc == ERR_CONN ? "it closed the connection" : err_str(rc));
	else
		handout->n_given++;
}

static size_t
measure(struct conn *conn, const void *bytes, size_t len)
{
	(void)conn;
	(void)bytes;
	return len < SHM_REQUEST_LEN ? 0 : SHM_REQUEST_LEN;
}

static void
message(struct conn *conn, const void *bytes, size_t len)
{
	(void)len;
	give((struct handout_peer *)conn, bytes);
	conn_abort(conn); /* what was sent is the peer's already */
}

static void
forget_peer(struct handout_peer *peer)
{
	LIST_REMOVE(peer, entry);
	peer->handout->n_peers--;
	free(peer);
}

static void
closed(struct conn *conn)
{
	forget_peer((struct handout_peer *)conn);
}

static const struct conn_events peer_events = {measure, message, NULL, closed};

/* ---- The listener ---- */

static struct handout *
handout_of(struct loop_listener *listener)
{
	return (struct handout *)(void *)((char *)listener - offsetof(struct handout, listener));
}

static void
accepted(struct loop_listener *listener, int fd)
{
	struct handout *handout = handout_of(listener);
	struct handout_peer *peer = malloc(sizeof(*peer));
	if (handout->n_peers >= PEERS_MAX)
		conn_queue_drop_first(&handout->greeting);
	if (!peer) {
		handout->n_refused++;
		close(fd);
		return;
	}
	peer->handout = handout;
	if (conn_open(&peer->conn, handout->loop, fd, NULL, &peer_events, &handout->greeting)) {
		free(peer);
		return;
	}
	LIST_INSERT_HEAD(&handout->peers, peer, entry);
	handout->n_peers++;
}

static void
refused_for_files(struct loop_listener *listener, int fd)
{
	shm_refuse(fd);
	handout_of(listener)->n_refused++;
}

int
handout_start(struct handout *handout, int fd)
{
	conn_queue_init(&handout->greeting, LIMIT_HANDSHAKE_MS);
	handout->listener.accepted = accepted;
	handout->listener.refused = refused_for_files;
	return loop_listen(handout->loop, &handout->listener, fd);
}

void
handout_destroy(struct handout *handout)
{
	struct handout_peer *peer;
	while ((peer = LIST_FIRST(&handout->peers))) {
		conn_release(&peer->conn);
		forget_peer(peer);
	}
	loop_listener_close(&handout->listener);
}
