/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Litmus programs: a few threads with a few statements each, explored exhaustively on the memory
 * model. Threads have x86 store buffers; a post drains through its thread's buffer like a store.
 *
 *   locations   "x1=0 z2=0"        8-byte words and their first values; the last digit is the node
 *   queue pairs "q=T1>2 p=T3>2"    a thread's, to a node
 *   threads     "T1: wi q z2=1; poll q; ld a x1 | T3: await z2 1"
 *
 *   st x V         store                        ld a x         load into register a
 *   lcas a x V V   the CPU's own compare-and-swap
 *   mfence         wait for the store buffer    await x V      wait until a load sees V
 *   send, recv     a message by other means     unless a V n, skip n   jump n statements ahead
 *   w q r=l,..     WRITE from local words       wi q r=V,..    WRITE, inlined
 *   r q l=r,..     READ                         poll q         wait for the oldest completion
 *   cas q l=r V V  atomics, old value to l      faa q l=r V
 *   wf, rf, casf, faaf: the same, fenced        V: a number or a register
 */
#ifndef RKV_TESTS_SIM_LITMUS_H
#define RKV_TESTS_SIM_LITMUS_H

#include "tests/sim/model.h"

#define LITMUS_THREADS 4u
#define LITMUS_STATEMENTS 16u
#define LITMUS_REGISTERS 4u
#define LITMUS_LOCATIONS 16u
#define LITMUS_QPS 6u
#define LITMUS_PIECES 3u

struct litmus; /* a program */

struct litmus_state; /* one of its states */

struct litmus_stats {
	uint64_t n_states;
	uint64_t n_steps;
	uint64_t n_ends;
	uint64_t n_stuck; /* states in which nothing can move, but a thread is not done */
};

/* Ends the test program with a line on standard error if it is no program. */
struct litmus *litmus_parse(const char *locations, const char *qps, const char *threads);
void litmus_destroy(struct litmus *litmus);

/* Calls at_end for every state in which all is done. */
void litmus_explore(const struct litmus *litmus, const struct model_config *config,
		    void (*at_end)(void *arg, const struct litmus_state *state), void *arg,
		    struct litmus_stats *ret_stats);

/*
 * Whether a state fulfils a condition, "[z2]=1" or "T1.a=1 T2.b=0 | [x1]!=[y1]": alternatives of
 * terms that must all hold. A register that was never loaded is unlike everything.
 */
bool litmus_holds(const struct litmus_state *state, const char *condition);

/* Registers by thread and name, then locations by name, a digit (base 36, '-' = none) each. */
#define LITMUS_OUTCOME_MAX 40u
void litmus_outcome(const struct litmus_state *state, char *ret_text);

#endif
