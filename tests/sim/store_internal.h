/* SPDX-License-Identifier: BSD-2-Clause */
/* The simulated store's inside: what its files share. One world at a time. */
#ifndef RKV_TESTS_SIM_STORE_INTERNAL_H
#define RKV_TESTS_SIM_STORE_INTERNAL_H

#include "client/op.h"
#include "client/session.h"
#include "tests/sim/lin.h"
#include "tests/sim/sim_internal.h"
#include "tests/sim/store.h"

#define PEERS_MAX (STORE_CLIENTS_MAX + 1) /* and the one that looks at what is left */
#define KEYS_MAX 32u
#define KEY_LEN_MAX 96u
#define DEPTH_MAX 4u
#define SERVED_MAX 48u
#define TRIES_MAX 64u
#define GROUP_WORDS (LAYOUT_GROUP_LEN / 8)
#define RESTARTS_MAX 4u
#define STORE_CLOCK_S 1000u /* what clocks move by, once or twice */
#define STORE_BEGIN_S 100   /* seconds after formatting, by all clocks */
#define NS_OF_S INT64_C(1000000000)

struct world;
struct peer;

/* A CAS that somebody posted, however often: the only way for a word to change, [ONE-WORD]. */
struct edge {
	struct edge *next;
	uint64_t off;
	uint64_t expect;
	uint64_t swap;
	uint64_t epoch;
	struct record *record; /* whose it was first, or NULL */
	unsigned n_posted;
	unsigned n_applied;
	unsigned n_claimed; /* successes told to callers */
	bool is_shared;     /* several operations posted it */
	bool is_forbidden;  /* its operation said that it was not applied, [HONEST] */
};

/* One operation, from submission on. */
struct record {
	struct lin_op lin;
	struct rkv_request request;
	struct peer *peer;
	uint32_t value_len;
	unsigned n_out;        /* batches of it that are out */
	unsigned n_links_lost; /* blocks that it had written before are not in its hands any more */
	bool is_in_flight;
	bool is_lost; /* its caller is gone */
	uint64_t epoch_begun;
	uint64_t epoch_ended;
	int64_t wall_begun_ns;
	int64_t wall_ended_ns;
	uint64_t begun; /* step */
	unsigned n_tries;
	struct edge *try[TRIES_MAX]; /* CASes that would make it take effect, oldest first */
};

struct slot_of_memory {
	struct record *record; /* NULL: free */
	unsigned char *value;
	unsigned char *buf;
};

/* A session as the server knows it. */
enum served_state { SERVED_FREE, SERVED_LIVING, SERVED_ENDING };
struct served {
	enum served_state state;
	uint32_t serial;
	uint32_t renewed_from; /* or 0 */
	uint64_t a;
	struct peer *peer;
};

struct peer {
	struct world *w;
	unsigned number;
	struct fab *fab;
	struct fab_region *region;
	struct rkv_client client;
	struct rkv_session *session;
	unsigned main; /* coroutines */
	unsigned control;
	bool has_begun;
	bool has_ended;
	bool has_crashed;
	bool is_pinned;      /* the control coroutine works on the session */
	bool is_cut;         /* the control connection is lost; it does not know yet */
	uint64_t connection; /* number of the present control connection */
	uint64_t epoch;      /* of its last hello */
	int64_t resume_ns;   /* stopped until then; 0: not stopped */
	int64_t dead_ns;     /* the server gives it up then; 0: never */
	uint64_t random;
	struct slot_of_memory memory[DEPTH_MAX];
	unsigned char *bytes;       /* behind memory */
	uint64_t version[KEYS_MAX]; /* last seen of each key */
};

/* What the watch knows of a granule at which a block begins. */
struct hand {
	struct record *record; /* wrote it last */
	unsigned n_links_lost;
	uint32_t tag;
	bool is_marked; /* a mark for this incarnation was posted */
};

struct key {
	unsigned char bytes[KEY_LEN_MAX];
	uint32_t len;
};

#define EDGE_LISTS 4096u

struct world {
	struct sim *sim;
	const struct store_config *config;
	struct store_counts *counts;
	uint64_t random;
	struct layout layout;
	unsigned char *memory;
	unsigned server;
	struct fab_offer offer;
	struct fab_driver driver;
	struct key key[KEYS_MAX];

	/* Server */
	uint64_t newest;
	uint64_t g;
	uint32_t next_serial;
	struct served served[SERVED_MAX]; /* by session slot; 0 is none */
	struct fab *server_fab;
	struct fab_endpoint *server_ep;
	uint32_t server_key;
	uint64_t sweep_old;
	uint64_t epoch; /* counts restarts, from 1 on */
	bool wants_restart;
	unsigned char *former[RESTARTS_MAX]; /* memory of epochs that are over */
	unsigned n_former;
	struct scrubber *scrubber; /* store_scrub.c, or NULL */
	uint64_t scrubber_a;       /* UINT64_MAX: it holds nothing back */
	uint64_t n_sessions_ended; /* of all epochs */
	bool is_scrubbed;          /* its last passes are over */
	int64_t swept_s;           /* the wall clock when they began */
	int64_t wall_ns;           /* how far clocks have been moved */
	bool wants_clock;          /* they are to be moved as soon as nothing is in flight */

	struct peer peer[PEERS_MAX];
	unsigned n_peers;
	unsigned n_ended; /* of the clients */
	unsigned n_faults_left;
	unsigned n_seldom_faults_left; /* behind withdraws and kills */
	unsigned n_restarts_left;
	int64_t calm_ns; /* when the last fault was over */
	uint64_t calm_step;

	/* Watch */
	struct record *record;
	unsigned n_records;
	unsigned n_records_max;
	int64_t moment;   /* of the history: counts up with each event */
	int64_t *wall_at; /* of a moment */
	unsigned n_words;
	uint64_t *seen; /* index and chunk table as executed, at the last step */
	uint64_t *now;
	struct edge *edge[EDGE_LISTS];
	struct hand *hand;
	struct ages *ages;     /* store_stamps.c */
	unsigned n_links_lost; /* of all clients, or given up by them */
};

extern struct world *store_world;

/* Of the harness; not of the schedule. */
uint64_t store_random(uint64_t *state, uint64_t below);
bool store_chance(uint64_t *state, unsigned percent);
void store_count(struct world *w, enum store_event event);
void store_trace(const struct world *w, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* store_watch.c */
void watch_start(struct world *w);
void watch_stop(struct world *w);
int watch_region_open(struct world *w, struct fab *fab, struct fab_region **ret_region);
void watch_hook(struct peer *peer); /* its fabric goes through the watch */
void watch_begin(struct record *r);
void watch_end(struct record *r, int status);
void watch_finish(struct world *w);

/* The process's connections are no more: its operations hold no blocks. */
void watch_link_lost(struct peer *p);

/* The server's CPU is about to mark a block. */
void watch_marked(struct world *w, uint64_t block_off, uint32_t tag);

/* Does the block at an offset, as it is in memory, name itself? */
bool watch_has_valid_header(const struct world *w, uint64_t off);

/* There is another, empty region. */
void watch_restarted(struct world *w);

/* store_stamps.c */
struct ages;
void stamps_start(struct world *w);
void stamps_stop(struct world *w);
void stamps_expected(struct world *w, unsigned i, uint64_t word);
void stamps_slot_moved(struct world *w, unsigned i, uint64_t from);
void stamps_desc_moved(struct world *w, uint64_t chunk, uint64_t from, uint64_t to);
void stamps_marked(struct world *w, uint64_t block_off);
void stamps_written(struct world *w, uint64_t block_off, uint64_t len, uint32_t tag, bool is_torn);
bool stamps_is_under_way(const struct world *w, uint64_t off);
void stamps_look(struct world *w);
void stamps_finish(struct world *w);

/* store_server.c */
void server_start(struct world *w);
void server_give_up(struct world *w, struct peer *peer);
void control_main(void *arg);
uint64_t server_g(struct world *w);

/* Its coroutines go on until clients have ended, and the scrubber has. */
bool server_is_needed(const struct world *w);

/* store_scrub.c */
void scrub_start(struct world *w);
void scrub_stop(struct world *w);

/* store_forge.c */
void forge_start(struct world *w);

static inline bool
is_forged(const struct world *w, uint64_t word)
{
	return w->config->n_forged && !layout_block_in_range(&w->layout, word);
}

/* The wall clock of all clients. */
static inline int64_t
wall_now(const struct world *w)
{
	return sim_now(w->sim) + w->wall_ns;
}

/* store_client.c */
void client_main(void *arg);
void auditor_main(void *arg);
void client_release(struct peer *p);

#define STORE_CHUNK_SIZE 4096u

/* store.c: an empty region, served */
void store_format(struct world *w, uint64_t n_groups, uint64_t n_chunks, uint64_t hash_seed);

/* store_chaos.c */
void chaos_start(struct world *w);
enum batch_kind { BATCH_PLAIN, BATCH_CAS, BATCH_SELDOM };
void chaos_at_post(struct peer *p, enum batch_kind kind);

static inline struct peer *
peer_of(struct rkv_client *client)
{
	return (struct peer *)(void *)((char *)client - offsetof(struct peer, client));
}

static inline uint64_t
word_at(const struct world *w, uint64_t off)
{
	uint64_t word;
	memcpy(&word, w->memory + off, sizeof(word));
	return word;
}

#endif
