/* SPDX-License-Identifier: BSD-2-Clause */
/* Adding up. Codes of rkv.h beyond those it has today share the first entry of the errors. */
#include "bench/tally.h"

#include "client/include/rkv.h"

void
tally_end(struct tally *tally, enum source_op op, int status, uint64_t latency_ns,
	  uint64_t intended_ns)
{
	struct tally_op *counts = &tally->op[op];
	if (status == RKV_OK) {
		histogram_add(&counts->latency_ns, latency_ns);
		if (intended_ns != TALLY_CLOSED)
			histogram_add(&counts->intended_ns, intended_ns);
	} else if (status == RKV_NOT_FOUND || status == RKV_EXISTS) {
		counts->n_misses++;
	} else if (status >= TALLY_CODE_MIN && status < TALLY_CODE_MIN + TALLY_CODES) {
		counts->n_errors[status - TALLY_CODE_MIN]++;
	} else {
		counts->n_errors[0]++; /* a code of a newer library */
	}
}

void
tally_bad_value(struct tally *tally, const struct tally_bad_value *bad)
{
	if (tally->n_bad_values++ == 0)
		tally->first_bad_value = *bad;
}

static void
op_merge(struct tally_op *op, const struct tally_op *other)
{
	op->n_misses += other->n_misses;
	op->n_again += other->n_again;
	op->n_cas_lost += other->n_cas_lost;
	for (int i = 0; i < TALLY_CODES; i++)
		op->n_errors[i] += other->n_errors[i];
	histogram_merge(&op->latency_ns, &other->latency_ns);
	histogram_merge(&op->intended_ns, &other->intended_ns);
}

void
tally_merge(struct tally *tally, const struct tally *other)
{
	for (int i = 0; i < SOURCE_OPS; i++)
		op_merge(&tally->op[i], &other->op[i]);
	if (tally->n_bad_values == 0)
		tally->first_bad_value = other->first_bad_value;
	tally->n_bad_values += other->n_bad_values;
}

uint64_t
tally_errors(const struct tally_op *op)
{
	uint64_t n = 0;
	for (int i = 0; i < TALLY_CODES; i++)
		n += op->n_errors[i];
	return n;
}

uint64_t
tally_count(const struct tally_op *op)
{
	return op->latency_ns.n + op->n_misses + tally_errors(op);
}

struct tally_total
tally_total(const struct tally *tally)
{
	struct tally_total total = {0};
	for (int i = 0; i < SOURCE_OPS; i++) {
		const struct tally_op *op = &tally->op[i];
		total.n_count += tally_count(op);
		total.n_hits += op->latency_ns.n;
		total.n_misses += op->n_misses;
		total.n_errors += tally_errors(op);
		total.n_again += op->n_again;
		total.n_cas_lost += op->n_cas_lost;
	}
	return total;
}
