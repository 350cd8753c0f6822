/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The client's session, operations and allocator without a server and without a control thread: the
 * functions of client/control.h are replaced at link time by a *world* that lives in the test. It
 * serves links when a session asks for one, and the test owns all the rest: the region's bytes, the
 * stamps, the clock, what is broken when, and what happens just before a batch executes.
 *
 *   session -> fabric of the world (records, hooks, virtual time) -> fabric_fault -> fabric_shm
 *
 * Time is virtual: each look at the clock takes a microsecond, and a wait is over at once. So every
 * deadline is reached quickly, and no test depends on the machine's speed.
 */
#ifndef RKV_TESTS_FAULT_HARNESS_H
#define RKV_TESTS_FAULT_HARNESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/session.h"
#include "tests/fabric/fabric_fault.h"
#include "tests/fabric/shm_pair.h"

/* How a session that lost its link gets the next one. */
enum world_relink {
	RELINK_SAME,   /* the server still knows it: the same serial */
	RELINK_SERIAL, /* it was dead: another serial and slot, its former chunks are orphans */
	RELINK_EPOCH,  /* the server was restarted: an empty region, another epoch */
};

struct world_batch {
	unsigned n;
	struct fab_op op[FAB_BATCH_MAX];
	bool is_quiet;
};

#define WORLD_TRACE_MAX 1024u

struct world {
	struct shm_server server;
	unsigned char *base; /* the region, as the server sees it */
	struct layout layout;
	bool has_spare;
	struct fab_driver driver; /* that of fabric_fault, with our hooks in front */
	const struct fab_driver *fault_driver;
	struct fab *fab;
	struct fab_region *region;
	struct rkv_client client;
	uint32_t not_forked;

	/* The server's side of links */
	enum world_relink relink;
	bool is_down; /* nobody serves links */
	uint32_t n_serials;
	uint64_t epoch;
	unsigned n_wakes;
	unsigned n_links;

	_Atomic int64_t now_ns;
	bool is_timeless; /* the clock stands still, for two threads */
	uint64_t seed;

	/* Called before, or after, a batch executes; the hook may change the region. */
	void (*before)(struct world *, const struct world_batch *);
	void (*after)(struct world *, const struct world_batch *);
	void *arg;
	struct world_batch trace[WORLD_TRACE_MAX];
	unsigned n_trace;
	unsigned n_out_of_range; /* operations that point outside the region, [RANGE] */
};

struct world_shape {
	uint64_t n_groups;
	uint64_t chunk_size;
	uint64_t n_chunks;
	size_t cache_bytes;
	bool has_spare; /* the last chunk is the test's, for blocks made by hand */
};

/* A world that stands, with stamps at WORLD_STAMP; one at a time. shape NULL: a common one. */
#define WORLD_STAMP UINT64_C(1000)
struct world *world_open(const struct world_shape *shape);
void world_close(struct world *w); /* asserts what must hold of any world */

/* Formats the region anew. */
void world_format(struct world *w);

/* A session with a link; fails the test if there is none. */
struct rkv_session *world_session(struct world *w);

/* Creates and lists one, without pumping it. Failures as session_create. */
int world_session_try(struct world *w, struct rkv_session **ret_session);

/* Serves what sessions want, if links may be had. */
void world_serve(struct world *w);

/* ---- Stamps ---- */

void world_stamp(struct world *w, uint64_t newest, uint64_t g);

/* Every keepalive asked for so far, and one more, is answered. */
void world_answer(struct world *w);

/*
 * Lets every moment up to now be over, in two turns with a look in between: what is remembered of a
 * moment is its stamp, which is learned when somebody looks.
 */
void world_turn(struct world *w);

/* ---- The region ---- */

uint64_t *world_word(struct world *w, uint64_t off);
uint8_t *world_mark(struct world *w, uint64_t block_off); /* its entry of the free map */
bool world_is_marked(struct world *w, uint64_t word);

/* Offsets of the slots that a key may be in: of A, then of B. */
unsigned world_slots(struct world *w, const void *key, uint32_t key_len,
		     uint64_t ret_off[2 * LAYOUT_COMBINED_SLOTS]);

/* The slot with the key's committed word, or 0; fails the test if there are two. */
uint64_t world_find(struct world *w, const char *key);

/* How many slots refer to a block of this key (committed or tentative). */
unsigned world_count(struct world *w, const char *key, enum slot_state state);

/*
 * Puts a valid block of tag at block_off and returns its committed word. The caller writes that, or
 * something else, into a slot.
 */
uint64_t world_block(struct world *w, uint64_t block_off, uint32_t tag, const char *key,
		     const char *value, uint64_t prev);

/* A block offset in the chunk that is the test's: the i-th granule. */
uint64_t world_spare(struct world *w, unsigned i);

/*
 * Whatever was done, this holds, or the test fails: a committed word is the only one of its key,
 * lies in one of the key's buckets, points to a valid block in range, and that block is not marked.
 */
void world_check(struct world *w);

/* Keys "k<number>" with the same fingerprint as key, number counted from *number on. */
void world_twin(struct world *w, const char *key, unsigned *number, char ret_key[32]);

/* ---- Operations ---- */

int world_put(struct rkv_session *s, const char *key, const char *value);
int world_get(struct rkv_session *s, const char *key, char ret_value[64]);
void world_expect(struct rkv_session *s, const char *key, const char *value); /* NULL: absent */

/* The same for a fresh session, that knows nothing. */
void world_expect_cold(struct world *w, const char *key, const char *value);

/* Pumps until the session has lost its link; fails the test if it does not. */
void world_pump_until_lost(struct rkv_session *s);

/* Pumps until the request has completed, takes it, asserts that it completed once. */
int world_finish(struct rkv_session *s, struct rkv_request *request);

/* Batches of the trace since `from` that are not quiet. */
unsigned world_n_batches(struct world *w, unsigned from);

/* Does the batch CAS a slot to a word in this state? */
bool world_swaps_to(const struct world_batch *b, enum slot_state state, uint64_t *ret_off);

#endif
