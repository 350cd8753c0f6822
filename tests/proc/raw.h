/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client without librkv: speaks proto/wire.h byte by byte, so that tests can also say what librkv
 * never would. Every wait has a deadline; what a test cannot go on without fails it.
 */
#ifndef RKV_TESTS_RAW_H
#define RKV_TESTS_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/fabric.h"
#include "proto/layout.h"
#include "proto/wire.h"
#include "proto/wire_tcp.h"
#include "tests/proc/proc.h"

struct raw {
	int fd;
	uint32_t request;
	struct wire_welcome welcome;
	struct fab *fab; /* after raw_map */
	struct fab_region *region;
	struct fab_endpoint *endpoint;
	struct layout layout;
	uint32_t n_draining; /* for keepalives: so many chunks are about to become free */
	union {
		struct wire_header header;
		struct wire_refused refused;
		unsigned char bytes[LIMIT_MESSAGE_MAX + 1];
	} in; /* the last message received */
};

struct raw_session {
	uint32_t slot;
	uint32_t serial;
	uint64_t stamp;
};

/* A bare connection. */
void raw_open(struct raw *raw, const struct server *server);
void raw_close(struct raw *raw);

/* The HELLO this build would send. */
struct wire_hello raw_hello(enum wire_role role);

/* raw_open, HELLO, WELCOME. */
void raw_connect(struct raw *raw, const struct server *server, enum wire_role role);

/* Presents the token and maps the pool. */
void raw_map(struct raw *raw);

/* Presents a token where the pool is handed out. Its descriptor, or -1: there is none for it. */
int raw_present(const struct server *server, const unsigned char token[WIRE_TOKEN_LEN]);

/* The hello of a data connection over tcp, of a session or, NULL, for a look. */
struct wire_tcp_hello raw_data_hello(const struct raw *raw, const struct raw_session *session);

/* A header for the next request. */
struct wire_header raw_header(struct raw *raw, enum wire_type type, size_t len);

/* Sends bytes; false if the server has closed. */
bool raw_send(struct raw *raw, const void *bytes, size_t len);

/* The next message, or 0 if the server has closed (or says nothing for PROC_WAIT_MS: fails). */
enum wire_type raw_receive(struct raw *raw);

/* Requests that expect their answer. */
struct raw_session raw_join(struct raw *raw, uint32_t former_serial);
struct raw_session raw_join_again(struct raw *raw, uint32_t former_serial, uint32_t attempt);
struct wire_stamp raw_keepalive(struct raw *raw, const struct wire_announcement *said, uint32_t n);
enum wire_type raw_ask(struct raw *raw, enum wire_type type, const struct raw_session *session);
void raw_leave(struct raw *raw, const struct raw_session *session);

/* A value of STATS; fails if there is no such name. */
uint64_t raw_stat(struct raw *raw, const char *name);

/* Waits until a value is as expected; false at the deadline. */
bool raw_stat_becomes(struct raw *raw, const char *name, uint64_t value);

/* The word at an offset, and CAS on it, of a client that mapped the pool. */
uint64_t raw_word(struct raw *raw, uint64_t off);
bool raw_cas(struct raw *raw, uint64_t off, uint64_t expect, uint64_t swap);

#endif
