/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Load for tests: values that tell what they are, sessions that mix all operations and verify each
 * answer, and forked processes to run them in.
 *
 * A value is made of its key and a 32-bit id (writer << 24 | serial), which the user flags carry.
 * Both decide its length and every byte: a torn or foreign value does not match, whatever its
 * length.
 */
#ifndef RKV_TESTS_LOAD_H
#define RKV_TESTS_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/include/rkv.h"
#include "tests/fabric/sanitized.h"
#include "tests/sim/lin.h"

/* ---- Values ---- */

#define LOAD_VALUE_MAX 20000u

uint32_t load_id(unsigned writer, uint32_t serial);
size_t load_len(uint32_t id); /* 0, 1, 100, 2,000 or 20,000 bytes */
void load_fill(unsigned key, uint32_t id, void *ret_value);
bool load_matches(unsigned key, uint32_t id, const void *value, size_t value_len);

/* Writes the text of a key (room for LOAD_KEY_TEXT) and returns its length. */
#define LOAD_KEY_TEXT 16u
size_t load_key(unsigned key, char *ret_text);

/* The next of a sequence of random numbers; any start will do. */
uint64_t load_random(uint64_t *state);

/* ---- Mixed operations ---- */

#define LOAD_KEYS_MAX 64u
#define LOAD_DEPTH_MAX 32u

struct load {
	/* Set by the caller */
	struct rkv_session *session;
	unsigned n_keys;
	unsigned writer; /* below 256: one for each session */
	unsigned depth;  /* 0: blocking calls; else operations in flight */
	bool may_fail;   /* CONN, MAYBE and TIMEOUT are no errors of the test */
	uint64_t random;
	uint32_t serial;        /* of the last value; counts up */
	struct lin_op *history; /* or NULL; room for every operation to come */
	size_t n_history;
	/* Counted */
	uint64_t n_done;
	uint64_t n_outcomes;
	uint64_t n_again;
	uint64_t n_failed;
	uint64_t n_bad;                  /* what must not be; each is printed to standard error */
	uint64_t version[LOAD_KEYS_MAX]; /* seen last */
};

/* Runs n operations to their end. RKV_AGAIN is answered by trying the same again. */
void load_mix(struct load *load, size_t n);

/* ---- The steady state: the same few keys, over and over ---- */

#define LOAD_STEADY_KEYS 64u /* "steady-0" and its like, of 8 bytes each */

/* Puts this value and gets it, one key after the other, n times; false: something failed. */
bool load_steady(struct rkv_session *session, const void *value, size_t value_len, size_t n);

/* ---- Processes ---- */

/* Memory that forked processes share, zeroed. */
void *load_share(size_t len);
void load_unshare(void *memory, size_t len);

/* Forks a process that calls run(arg) and exits with what it returns. It dies with its parent. */
pid_t load_fork(int (*run)(void *arg), void *arg);

/* Waits; exit code, 128 + signal, or -1 if it runs on: then it is killed. */
int load_reap(pid_t pid, int timeout_ms);

/*
 * Runs each test in such a process, for so long at most: some fork, and one that has used an RDMA
 * device must not. Returns how many failed.
 */
struct CMUnitTest;
int load_each_alone(const struct CMUnitTest *tests, size_t n, int timeout_ms);

/* In such a process: ends it, telling why, unless the condition holds. */
#define load_require(condition)                                                                    \
	do {                                                                                       \
		if (!(condition))                                                                  \
			load_die(__FILE__, __LINE__, #condition);                                  \
	} while (0)
void load_die(const char *file, int line, const char *condition) __attribute__((noreturn));

/* ---- The server's counters ---- */

/* One of them; fails the test if it is not there. */
uint64_t load_counter(struct rkv_client *client, const char *name);

/* Waits until it is in from..to; false at the deadline. */
bool load_await_counter(struct rkv_client *client, const char *name, uint64_t from, uint64_t to,
			int timeout_ms);

#endif
