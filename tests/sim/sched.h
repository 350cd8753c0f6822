/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who moves next. Every choice of a simulated run goes through a scheduler, which writes its picks
 * down: the picks alone replay the run. A run's picks can be shown as text, in which zeros, the
 * picks that let everything arrive promptly and in order, cost nothing:
 *
 *   "12.3,0.1"   twelve zeros, a 3, a 1, and zeros from there on
 *
 * The exhaustive scheduler (SCHED_DFS) is for runs that are executed again and again: each
 * sched_next starts another path, until there is none.
 */
#ifndef RKV_TESTS_SIM_SCHED_H
#define RKV_TESTS_SIM_SCHED_H

#include "tests/sim/model.h"

/* An actor is a coroutine, or the pipe or a buffer of a queue pair. */
enum actor_part { ACTOR_PIPE, ACTOR_WBR, ACTOR_WBL, N_ACTOR_PARTS };
#define ACTOR_QPS 64u /* below: coroutines */

static inline uint16_t
actor_of_qp(unsigned qp, unsigned part)
{
	return (uint16_t)(ACTOR_QPS + qp * N_ACTOR_PARTS + part);
}

enum sched_kind {
	SCHED_RANDOM, /* each actor alike, then each of its steps alike */
	SCHED_PCT,    /* priorities with a few random changes: finds bugs of small depth */
	SCHED_HOLD,   /* random, but hardly anything is committed to memory while others can move */
	SCHED_STARVE, /* random, but some pipes and buffers stand still for a while */
	SCHED_PICKS,  /* replay */
	SCHED_DFS,
	N_SCHEDS,
};

struct sched_config {
	enum sched_kind kind;
	uint64_t seed;
	unsigned depth;    /* PCT: changes of priority, plus one */
	unsigned horizon;  /* PCT: steps within which they fall; then it is RANDOM */
	unsigned bound;    /* DFS: picks that are not 0 on a path, at most; 0 = any number */
	const char *picks; /* PICKS */
};

struct sched;

const char *sched_kind_name(enum sched_kind kind);
bool sched_kind_parse(const char *name, enum sched_kind *ret_kind);

struct sched *sched_create(const struct sched_config *config);
void sched_destroy(struct sched *s);

/* Picks one of the steps (at least one). */
unsigned sched_step(struct sched *s, const struct model_choices *choices);

/* Picks a number below n for anything else: a fault or not, and so on. */
unsigned sched_below(struct sched *s, unsigned n);

/* All picks so far as text; the caller frees it. */
char *sched_text(const struct sched *s);

/* From here on everything arrives promptly, and nothing is written down. */
void sched_finish(struct sched *s);

/* DFS: whether this point of the path was never reached before, how far it may still deviate. */
bool sched_is_fresh(const struct sched *s);
unsigned sched_deviations_left(const struct sched *s);

/* DFS: how many picks the path has made; goes on by one without asking. */
unsigned sched_at(const struct sched *s);
void sched_skip(struct sched *s);

/* DFS: begins the next path, other in its last pick; false if there is none. */
bool sched_next(struct sched *s, unsigned *ret_other_at);

/* Picks of a run, and their text. */
struct picks {
	uint32_t *v;
	unsigned n;
	unsigned cap;
};
void picks_add(struct picks *picks, uint32_t pick);
bool picks_parse(const char *text, struct picks *ret_picks);
char *picks_text(const struct picks *picks);

#endif
