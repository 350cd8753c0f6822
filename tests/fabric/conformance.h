/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What every fabric must do, as cmocka tests: they check the promises of common/fabric.h and
 * nothing beyond. A test program for a fabric sets conf_factory and puts CONF_TESTS into its group.
 */
#ifndef RKV_TESTS_FABRIC_CONFORMANCE_H
#define RKV_TESTS_FABRIC_CONFORMANCE_H

/* cmocka.h wants these first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/fabric/pair.h"

struct conf_factory {
	const char *name;
	/* A region of len bytes with n endpoints of this depth. 0 or a failure. */
	int (*open)(uint64_t len, unsigned n, uint32_t depth, struct conf_pair *ret_pair);
	void (*close)(struct conf_pair *);
	bool is_slow; /* a batch is several system calls: long loops are shorter */
};

extern const struct conf_factory *conf_factory;

/* Posts a batch and waits for its completion; returns its status, or ERR_TIMEOUT. Any thread. */
int conf_batch(struct fab_endpoint *ep, const struct fab_op *ops, unsigned n);

/* Waits for one completion; false after CONF_WAIT_NS. */
bool conf_poll(struct fab_endpoint *ep, struct fab_done *ret_done);

/* Runs a function in a child of this process, for 30 s at most. Returns its wait status. */
int conf_in_child(int (*child)(void *), void *arg);

/* It has to return 0; 77: what it needs is not there, as it has said, and the test is skipped. */
void conf_child_succeeds(int (*child)(void *), void *arg);

/*
 * From now on system calls of this thread pass this filter of n instructions. -1: there are no
 * filters here, which it says at once, as such children do not flush what they print.
 */
struct sock_filter;
int conf_filter(struct sock_filter *filter, size_t n);

/* Operations with one piece. */
struct fab_op conf_read(uint64_t roff, void *local, uint32_t len, uint32_t key);
struct fab_op conf_write(uint64_t roff, void *local, uint32_t len, uint32_t key);
struct fab_op conf_cas(uint64_t roff, uint64_t expect, uint64_t swap, uint64_t *old, uint32_t key);
struct fab_op conf_faa(uint64_t roff, uint64_t add, uint64_t *old, uint32_t key);

void conf_test_read_write(void **state);
void conf_test_pieces(void **state);
void conf_test_lengths(void **state);
void conf_test_cas(void **state);
void conf_test_faa(void **state);
void conf_test_counting(void **state);
void conf_test_untorn(void **state);
void conf_test_message_passing(void **state);
void conf_test_store_buffering(void **state);
void conf_test_completions(void **state);
void conf_test_depth(void **state);
void conf_test_quiet(void **state);
void conf_test_batch_max(void **state);
void conf_test_range(void **state);
void conf_test_sever(void **state);
void conf_test_sever_while_posting(void **state);
void conf_test_lifetimes(void **state);
void conf_test_clock_and_randomness(void **state);
void conf_test_random_threads(void **state);
void conf_test_wait(void **state);

#define CONF_TESTS                                                                                 \
	cmocka_unit_test(conf_test_read_write), cmocka_unit_test(conf_test_pieces),                \
		cmocka_unit_test(conf_test_lengths), cmocka_unit_test(conf_test_cas),              \
		cmocka_unit_test(conf_test_faa), cmocka_unit_test(conf_test_counting),             \
		cmocka_unit_test(conf_test_untorn), cmocka_unit_test(conf_test_message_passing),   \
		cmocka_unit_test(conf_test_store_buffering),                                       \
		cmocka_unit_test(conf_test_completions), cmocka_unit_test(conf_test_depth),        \
		cmocka_unit_test(conf_test_quiet), cmocka_unit_test(conf_test_batch_max),          \
		cmocka_unit_test(conf_test_range), cmocka_unit_test(conf_test_sever),              \
		cmocka_unit_test(conf_test_sever_while_posting),                                   \
		cmocka_unit_test(conf_test_lifetimes),                                             \
		cmocka_unit_test(conf_test_clock_and_randomness),                                  \
		cmocka_unit_test(conf_test_random_threads), cmocka_unit_test(conf_test_wait)

#endif
