/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sockets for both programs: addresses as people write them, connecting and listening by absolute
 * deadlines (clock_now_ns), unix sockets, the boot id. Every function returns 0 or a failure of
 * err.h; those with a reason put a sentence with cause and remedy there on failure. All descriptors
 * are close-on-exec and the caller's. Any thread; nothing is kept between calls.
 */
#ifndef RKV_COMMON_NET_H
#define RKV_COMMON_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#define NET_HOST_MAX 256u   /* of a host's name or address, NUL included */
#define NET_TEXT_MAX 272u   /* "host:port" or "[host]:port", NUL included */
#define NET_REASON_MAX 512u /* a sentence, NUL included */
#define NET_BOOT_ID_LEN 16u

struct net_address {
	char host[NET_HOST_MAX];
	uint16_t port;
};

/*
 * Parses a comma-separated list of "host", "host:port", "v4", "v4:port", "[v6]", "[v6]:port". A
 * bare v6 address is refused, because its last group and a port look alike. Stores the first max
 * addresses and counts all of them (>= 1). Port 0 is left to the caller's judgement. Failure:
 * ERR_INVALID.
 */
int net_parse(const char *text, uint16_t default_port, struct net_address *addresses, unsigned max,
	      unsigned *ret_n, char reason[NET_REASON_MAX]);

/* Writes an address as net_parse reads it. */
void net_format(const struct net_address *address, char ret_text[NET_TEXT_MAX]);

/* Can a numeric address be reached from this machine only? */
bool net_is_loopback(const struct net_address *address);

/*
 * Copies a sentence of another machine for people to read: up to its NUL, and as far as there is
 * room; what is not printable ASCII becomes '?'. Always ends with a NUL; room >= 1.
 */
void net_copy_text(char *to, size_t room, const char *text, size_t len);

/*
 * Connects by TCP, trying each address that the host's name stands for. The socket is non-blocking,
 * with TCP_NODELAY. Resolving obeys the deadline too. Failures: ERR_CONN, ERR_TIMEOUT, ERR_NOMEM,
 * ERR_PERM.
 */
int net_connect(const struct net_address *address, int64_t deadline_ns, int *ret_fd,
		char reason[NET_REASON_MAX]);

/*
 * Listens on TCP; port 0: the kernel chooses. SO_REUSEADDR, so that a restart gets its port at
 * once. The socket is in blocking mode, as io_uring wants it. ret_bound: the numeric address.
 * Failures: ERR_CONN (no such address here, in use, unknown name), ERR_TIMEOUT (resolving),
 * ERR_PERM, ERR_NOMEM.
 */
int net_listen(const struct net_address *address, int backlog, int *ret_fd,
	       struct net_address *ret_bound, char reason[NET_REASON_MAX]);

/* The numeric address at the other end of a socket. Failure: ERR_CONN. */
int net_peer(int fd, struct net_address *ret_peer);

/* Waits for poll(2) events on fd. Failures: ERR_TIMEOUT, ERR_CONN. */
int net_wait(int fd, short events, int64_t deadline_ns);

/*
 * Receives len bytes, whether the socket blocks or not, and also in a process that is stopped
 * meanwhile. Failures: ERR_TIMEOUT; ERR_CONN (the other end has closed, too).
 */
int net_receive(int fd, void *bytes, size_t len, int64_t deadline_ns);

struct net_listener {
	int fd;
	struct net_address bound;
};

/*
 * The same at each address that the host's name stands for and this machine has, at most max of
 * them; port 0: the same free one for all. v6_only: [::] does not take IPv4. Further failure:
 * ERR_INVALID: there are more.
 */
int net_listen_each(const struct net_address *address, bool v6_only, int backlog,
		    struct net_listener *listeners, unsigned max, unsigned *ret_n,
		    char reason[NET_REASON_MAX]);

/* Sets TCP_NODELAY on an accepted socket; harmless on others. */
void net_set_nodelay(int fd);

/*
 * A unix socket's address. A path that begins with '@' lies in the abstract namespace: no file,
 * gone with its last descriptor. Failure: ERR_INVALID (empty, too long).
 */
int net_unix_address(const char *path, struct sockaddr_un *ret_address, socklen_t *ret_len);

/*
 * Connects to a unix stream socket; non-blocking. Failures: ERR_CONN, ERR_TIMEOUT, ERR_PERM,
 * ERR_NOMEM, ERR_INVALID.
 */
int net_unix_connect(const char *path, int64_t deadline_ns, int *ret_fd);

/*
 * Listens on a unix stream socket, in blocking mode. The path must not exist; the caller removes
 * it. Failures: ERR_CONN (exists), ERR_PERM, ERR_NOMEM, ERR_INVALID.
 */
int net_unix_listen(const char *path, int backlog, int *ret_fd, char reason[NET_REASON_MAX]);

/*
 * The identity of this boot of this machine: equal on both sides = same host. Failures: ERR_CONN
 * (there is no /proc), ERR_PERM, ERR_NOMEM (no descriptor left).
 */
int net_boot_id(unsigned char ret_id[NET_BOOT_ID_LEN]);
#define NET_BOOT_ID_REMEDY                                                                         \
	"cannot read /proc/sys/kernel/random/boot_id: mount /proc, or raise the limit of open "    \
	"files (ulimit -n, LimitNOFILE=)"

#endif
