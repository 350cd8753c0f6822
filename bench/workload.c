/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A load gives each thread a range of key numbers. A run draws for each operation its kind and then
 * its key, both from the thread's own random numbers; threads meet only in the sequence of inserts.
 */
#include "bench/workload.h"

#include <stdlib.h>

struct workload_source {
	struct source source; /* first: what the driver points to is the whole */
	uint64_t n_left;
	uint64_t next_key; /* load */
	const struct workload *workload;
	struct inserts *inserts;
	struct gen_random random;
	struct gen_keys keys;
	bool insert_is_due; /* drawn, but its number could not be had yet */
};

struct workload_sources {
	struct inserts *inserts; /* NULL: load */
	uint32_t n_threads;
	struct workload_source each[];
};

static const struct workload_mix mixes[] = {
	{'a', {[SOURCE_READ] = 0.5, [SOURCE_UPDATE] = 0.5}, GEN_ZIPFIAN},
	{'b', {[SOURCE_READ] = 0.95, [SOURCE_UPDATE] = 0.05}, GEN_ZIPFIAN},
	{'c', {[SOURCE_READ] = 1}, GEN_ZIPFIAN},
	{'d', {[SOURCE_READ] = 0.95, [SOURCE_INSERT] = 0.05}, GEN_LATEST},
	{'f', {[SOURCE_READ] = 0.5, [SOURCE_RMW] = 0.5}, GEN_ZIPFIAN},
};

const struct workload_mix *
workload_find(char letter)
{
	for (size_t i = 0; i < sizeof(mixes) / sizeof(mixes[0]); i++)
		if (mixes[i].letter == letter)
			return &mixes[i];
	return NULL;
}

uint64_t
workload_part(uint64_t n, uint32_t index, uint32_t n_threads)
{
	return n / n_threads + (index < n % n_threads);
}

/* ---- Load ---- */

static int
load_next(struct source *source, struct source_task *ret_task)
{
	struct workload_source *load = (struct workload_source *)source;
	if (load->n_left == 0)
		return SOURCE_END;
	load->n_left--;
	*ret_task = (struct source_task){SOURCE_INSERT, load->next_key++};
	return SOURCE_TASK;
}

static void
load_done(struct source *source, const struct source_task *task, bool ok)
{
	(void)source;
	(void)task;
	(void)ok;
}

/* ---- Run ---- */

static enum source_op
draw_op(struct workload_source *run)
{
	const struct workload_mix *mix = run->workload->mix;
	double u = gen_unit(&run->random);
	enum source_op drawn = SOURCE_READ;
	for (int op = 0; op < SOURCE_OPS; op++) {
		if (mix->shares[op] == 0)
			continue; /* also where rounding leaves a rest behind the last share */
		drawn = (enum source_op)op;
		if (u < mix->shares[op])
			break;
		u -= mix->shares[op];
	}
	return drawn;
}

static int
run_next(struct source *source, struct source_task *ret_task)
{
	struct workload_source *run = (struct workload_source *)source;
	if (run->n_left == 0)
		return SOURCE_END;
	enum source_op op = run->insert_is_due ? SOURCE_INSERT : draw_op(run);
	uint64_t key;
	if (op == SOURCE_INSERT) {
		run->insert_is_due = !inserts_take(run->inserts, &key);
		if (run->insert_is_due)
			return SOURCE_LATER;
	} else {
		key = gen_keys_next(&run->keys, &run->random, inserts_last(run->inserts));
	}
	run->n_left--;
	*ret_task = (struct source_task){op, key};
	return SOURCE_TASK;
}

static void
run_done(struct source *source, const struct source_task *task, bool ok)
{
	struct workload_source *run = (struct workload_source *)source;
	if (task->op != SOURCE_INSERT)
		return;
	if (ok)
		inserts_acknowledge(run->inserts, task->key);
	else
		inserts_give_back(run->inserts, task->key);
}

/* ---- Both ---- */

static struct workload_sources *
sources_create(uint32_t n_threads)
{
	struct workload_sources *sources;
	size_t size = sizeof(*sources) + n_threads * sizeof(sources->each[0]);
	sources = aligned_alloc(_Alignof(struct workload_sources), size);
	if (sources == NULL)
		return NULL;
	sources->inserts = NULL;
	sources->n_threads = n_threads;
	return sources;
}

struct workload_sources *
workload_load(const struct workload *workload, uint32_t n_threads)
{
	struct workload_sources *sources = sources_create(n_threads);
	if (sources == NULL)
		return NULL;
	uint64_t key = workload->first;
	for (uint32_t i = 0; i < n_threads; i++) {
		uint64_t n = workload_part(workload->n_records, i, n_threads);
		sources->each[i] = (struct workload_source){
			.source = {load_next, load_done},
			.n_left = n,
			.next_key = key,
		};
		key += n;
	}
	return sources;
}

struct workload_sources *
workload_run(const struct workload *workload, uint32_t n_threads)
{
	struct workload_sources *sources = sources_create(n_threads);
	if (sources == NULL)
		return NULL;
	sources->inserts = inserts_create(workload->first + workload->n_records);
	if (sources->inserts == NULL)
		goto fail;
	double insert_share = workload->mix->shares[SOURCE_INSERT];
	uint64_t n_spare = (uint64_t)((double)workload->n_operations * insert_share * 2);
	for (uint32_t i = 0; i < n_threads; i++) {
		struct workload_source *run = &sources->each[i];
		*run = (struct workload_source){
			.source = {run_next, run_done},
			.n_left = workload_part(workload->n_operations, i, n_threads),
			.workload = workload,
			.inserts = sources->inserts,
		};
		gen_random_seed(&run->random, workload->seed, i);
		gen_keys_init(&run->keys, workload->distribution, workload->first,
			      workload->n_records, n_spare);
	}
	return sources;
fail:
	workload_sources_destroy(sources);
	return NULL;
}

void
workload_sources_destroy(struct workload_sources *sources)
{
	if (sources == NULL)
		return;
	inserts_destroy(sources->inserts);
	free(sources);
}

struct source *
workload_source(struct workload_sources *sources, uint32_t thread)
{
	return &sources->each[thread].source;
}
