/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RDMA memory as a state machine: what network cards may do with posted work requests, one atomic
 * step at a time. Nothing here chooses: model_choices lists the steps that are possible, in an
 * order that depends on the state alone, and model_step takes one of them.
 *
 *   pipe  work requests of a queue pair that are under way, oldest first
 *   wbr   bytes the card at the far end has accepted, and acknowledges, before they are in memory
 *   wbl   bytes and completions that came back, before they are in local memory and polled
 *
 * Memory is that of the user: ranges of real bytes, each on a node. An address is the number of a
 * range and an offset in it. A message is cut into pieces; a piece moves as a whole, pieces of one
 * message in any order the profile allows.
 *
 * One thread. Work requests are owned by the model from model_post on.
 */
#ifndef RKV_TESTS_SIM_MODEL_H
#define RKV_TESTS_SIM_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* From what software that executes at once does, to what no promise is left of. */
enum profile {
	PROFILE_SC,    /* every work request is one atomic step, in order */
	PROFILE_HAB,   /* the habit of cards: one ordered stream of writes into each node */
	PROFILE_TSO,   /* RDMA over TSO: writes ordered on a queue pair, reads not */
	PROFILE_VERBS, /* what the verbs specification promises, default flags */
	PROFILE_RO,    /* the same with relaxed ordering at the target */
	PROFILE_WORST, /* everything that RO or TSO allow; what the store must survive */
	PROFILE_UNORD, /* not even a READ behind a WRITE of the same bytes is safe */
	N_PROFILES,
};

#define MODEL_PIECE_MAX 64u /* bytes */

enum model_kind { MODEL_PUT, MODEL_GET, MODEL_CAS, MODEL_FAA, MODEL_FENCE };

struct model_piece {
	uint64_t remote;
	uint64_t local;
	uint16_t len;
	bool held; /* data was sampled; before that, it is what a guarded source must hold */
	unsigned char data[MODEL_PIECE_MAX];
};

/* A work request. CAS and FAA have one piece of 8 bytes. */
struct model_wr {
	enum model_kind kind;
	bool sent;      /* PUT: all pieces are in wbr. CAS, FAA: executed */
	bool signalled; /* leaves a completion */
	bool guarded;   /* PUT: the source must not change before it is read */
	bool repeated;  /* GET: has been executed twice already */
	uint64_t expect;
	uint64_t swap;
	unsigned n_pieces;
	struct model_piece piece[];
};

/* Bytes, or a completion, in one of the two buffers of a queue pair. */
struct model_late {
	uint64_t addr;
	uint32_t message; /* pieces of one message share it */
	uint16_t len;
	bool completion;
	bool atomic;
	unsigned char data[MODEL_PIECE_MAX];
};

struct model_lates {
	struct model_late *v;
	unsigned n;
	unsigned cap;
};

struct model_qp {
	unsigned node; /* the far end */
	bool dead;     /* the near end is gone: no source is read, nothing lands */
	bool fault;    /* a guarded source changed */
	uint32_t n_messages;
	uint64_t landed; /* hash of everything that landed here, in whatever order */
	struct model_wr **pipe;
	unsigned n_pipe;
	unsigned cap_pipe;
	struct model_lates wbr;
	struct model_lates wbl;
};

/* Which step, of which queue pair, work request (or entry of a buffer) and piece. */
enum model_step_kind {
	MODEL_STEP_COMMIT, /* wbr -> memory of the node */
	MODEL_STEP_LAND,   /* wbl -> local memory */
	MODEL_STEP_SOURCE, /* PUT: read a local piece */
	MODEL_STEP_SEND,   /* PUT: all pieces into wbr */
	MODEL_STEP_ACK,    /* PUT: completion */
	MODEL_STEP_SAMPLE, /* GET: read a remote piece */
	MODEL_STEP_REPEAT, /* GET: forget a piece, it will be read again */
	MODEL_STEP_ATOMIC, /* CAS, FAA: execute */
	MODEL_STEP_ANSWER, /* GET, CAS, FAA: result into wbl, completion */
	MODEL_STEP_UNFENCE,
	MODEL_STEP_WHOLE, /* PROFILE_SC: all of it */
	MODEL_STEP_USER,  /* and above: not the model's */
};

struct model_choice {
	uint16_t kind;  /* model_step_kind, or the user's own from MODEL_STEP_USER on */
	uint16_t actor; /* who moves; schedulers treat an actor's choices alike (sched.h) */
	uint16_t qp;
	uint16_t entry;
	uint16_t piece;
};

struct model_choices {
	struct model_choice *v;
	unsigned n;
	unsigned cap;
};

struct model_config {
	enum profile profile;
	bool unit_per_address; /* a card's atomics exclude each other only on the same word */
	bool repeat_reads;     /* a READ may be executed twice, and answered from both */
};

struct model_range {
	unsigned char *base;
	size_t len;
	unsigned node;
	bool hashed; /* its changes are in memory_hash */
};

struct model {
	struct model_config config;
	struct model_range *ranges;
	unsigned n_ranges;
	struct model_qp *qps;
	unsigned n_qps;
	uint64_t memory_hash;
};

/* Bytes that grow, for packed states. */
struct model_bytes {
	unsigned char *v;
	size_t n;
	size_t cap;
};

const char *profile_name(enum profile profile);
bool profile_parse(const char *name, enum profile *ret_profile);

/* Whether a source is read at post: nobody may ask for it to stay unchanged then. */
bool profile_reads_source_at_once(enum profile profile);

struct model *model_create(const struct model_config *config);
void model_destroy(struct model *m);

/* Adds memory; the number returned makes addresses. */
unsigned model_range(struct model *m, unsigned node, void *base, size_t len, bool hashed);

static inline uint64_t
model_addr(unsigned range, uint64_t offset)
{
	return (uint64_t)range << 48 | offset;
}

/* The bytes at an address that the user has checked. */
unsigned char *model_at(const struct model *m, uint64_t addr);

/* Stores into memory as a CPU does, at once. */
void model_store(struct model *m, uint64_t addr, const void *data, unsigned len);

unsigned model_qp(struct model *m, unsigned node);

/* A zeroed work request with room for pieces, to be filled and posted. */
struct model_wr *model_wr(enum model_kind kind, unsigned n_pieces);
void model_post(struct model *m, unsigned qp, struct model_wr *wr);

/* Appends the steps that are possible now. */
void model_choices(const struct model *m, struct model_choices *choices);

/*
 * Whether only its own queue pair can tell when a step is taken, and taking it takes no other step
 * away: for those who want to see every outcome, but not every order. (A source must not change
 * while it is a source.)
 */
bool model_is_private(const struct model *m, const struct model_choice *choice);
void model_choice_add(struct model_choices *choices, const struct model_choice *choice);
void model_step(struct model *m, const struct model_choice *choice);

/* PROFILE_SC: executes all that is posted on a queue pair. */
void model_run_whole(struct model *m, unsigned qp);

/* Takes the oldest completion if everything before it has landed. */
bool model_pollable(const struct model *m, unsigned qp);
void model_poll(struct model *m, unsigned qp);

/*
 * The near end of a queue pair dies: the first n_sent work requests in the pipe are on the wire and
 * may still act at the far end, the others are dropped. What came back already may still land,
 * until model_drop_local.
 */
void model_break(struct model *m, unsigned qp, unsigned n_sent);
void model_drop_local(struct model *m, unsigned qp);

/*
 * The far end is destroyed, after model_break: what its card had accepted is in memory now, nothing
 * else will be.
 */
void model_end(struct model *m, unsigned qp);

/* Nothing moves any more, all completions aside. */
bool model_is_quiet(const struct model *m);

/* Whether something under way will read or write local memory of this range. */
bool model_is_in_use(const struct model *m, unsigned range);

/* Whether any wbr holds bytes for these addresses. */
bool model_is_buffered(const struct model *m, uint64_t addr, uint64_t len);

/* Everything in pipes and buffers, the same bytes for states that behave the same; and back. */
void model_pack(const struct model *m, struct model_bytes *bytes);
const unsigned char *model_unpack(struct model *m, const unsigned char *from);

void model_bytes_add(struct model_bytes *bytes, const void *data, size_t len);

/* Mixes bytes into a hash of 128 bits: so many states that two alike by chance are out of reach. */
struct model_hash {
	uint64_t a;
	uint64_t b;
};
struct model_hash model_hash(const void *data, size_t len, uint64_t seed);
uint64_t model_mix(uint64_t a, uint64_t b);

#endif
