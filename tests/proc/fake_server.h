/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server that says what a test wants: it has a formatted region, hands it out, speaks
 * proto/wire.h on one connection at a time, and keeps a record of what it was asked. It runs as a
 * thread of the test. What a test cannot go on without fails it; every wait has a deadline.
 */
#ifndef RKV_TESTS_FAKE_SERVER_H
#define RKV_TESTS_FAKE_SERVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/layout.h"
#include "proto/wire.h"
#include "tests/fabric/shm_pair.h"

#define FAKE_RECORDS 512u
#define FAKE_SESSIONS 16u

/* A request that came, keepalives excepted. */
struct fake_record {
	enum wire_type type;
	unsigned connection; /* counted from 1 */
	uint32_t request;
	uint32_t session_slot; /* RELINK, RENEW, LEAVE */
	uint32_t serial;       /* likewise; of a JOIN: the former one */
	uint32_t attempt;      /* of a JOIN */
};

struct fake {
	struct shm_server shm;
	int listen_fd;
	char address[64];
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	bool stopping;
	int fd; /* the present connection, or -1 */

	/* What it says. Set before fake_start, or with the mutex held. */
	void (*greet)(struct fake *fake, struct wire_welcome *welcome); /* NULL: just sends it */
	int greet_arg;
	bool mute[WIRE_PONG + 1];  /* requests that are recorded, but not answered */
	int refuse[WIRE_PONG + 1]; /* the code to refuse them with, or 0 */
	uint64_t epoch;
	uint64_t newest;
	uint64_t g;
	uint32_t flags; /* of STAMP */
	uint32_t next_serial;
	/* NULL, or is asked about each keepalive before it is answered. */
	bool (*keepalive_is_good)(void *arg, const struct wire_keepalive *keepalive);
	void *keepalive_arg;

	/* The record */
	unsigned n_connections;
	unsigned n_records;
	struct fake_record record[FAKE_RECORDS];
	uint64_t n_keepalives;
	uint64_t n_bad_keepalives;
	uint32_t n_announced; /* in the last keepalive */
	uint32_t n_draining;  /* chunks, says the same */
	struct wire_announcement announced[FAKE_SESSIONS];
};

void fake_init(struct fake *fake);
void fake_start(struct fake *fake);
void fake_stop(struct fake *fake);

/* A new life on the same port: other memory, another epoch; connections are closed. */
void fake_restart(struct fake *fake);

/* Closes the present connection. */
void fake_hang_up(struct fake *fake);

/* Sends bytes on the present connection, from the test. */
void fake_send(struct fake *fake, const void *bytes, size_t len);

/* Fills in a header as the server would. */
struct wire_header fake_header(enum wire_type type, size_t len, uint32_t request);

/* The n-th request (from 1) of a type; waits for it and fails the test if it does not come. */
struct fake_record fake_record(struct fake *fake, enum wire_type type, unsigned n);

/* How many of a type have come. */
unsigned fake_count(struct fake *fake, enum wire_type type);

/* Waits until n more keepalives than now have been answered. */
void fake_await_keepalives(struct fake *fake, uint64_t n);

/* Waits for the n-th connection. */
void fake_await_connection(struct fake *fake, unsigned n);

#endif
