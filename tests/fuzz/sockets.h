/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The other side of what a client connects to: net_connect and net_unix_connect, wrapped by the
 * linker, give it one end of a socket pair whose other end has said what the target put there, and
 * says no more.
 */
#ifndef RKV_TESTS_FUZZ_SOCKETS_H
#define RKV_TESTS_FUZZ_SOCKETS_H

#include "common/net.h"
#include "proto/limits.h"
#include "tests/fuzz/fuzz.h"

/* For linking: the functions that are replaced. */
int __wrap_net_connect(const struct net_address *address, int64_t deadline_ns, int *ret_fd,
		       char reason[NET_REASON_MAX]);
int __wrap_net_unix_connect(const char *path, int64_t deadline_ns, int *ret_fd);

/* A socket pair: the near end for the client, and the far end to write to. */
struct fuzz_sockets {
	int near; /* -1: taken, or never made */
	int far;
};
extern struct fuzz_sockets fuzz_tcp, fuzz_unix;

void fuzz_sockets_make(struct fuzz_sockets *sockets);
void fuzz_sockets_say(const struct fuzz_sockets *sockets, const void *bytes, size_t len);
void fuzz_sockets_hang_up(const struct fuzz_sockets *sockets); /* it can still be read */
void fuzz_sockets_close(struct fuzz_sockets *sockets);

#endif
