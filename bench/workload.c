/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A load gives each thread a range of key numbers. A run draws for each operation its kind and then
 * its key, both from the thread's own random numbers; threads meet only in the sequence of inserts.
 *
 * Where no draw depends on what ended before, a source draws AHEAD operations at a time, with their
 * keys' names: the processor then works on several draws at once, and between two operations that
 * are measured there is next to nothing to do.
 */
#include "bench/workload.h"

#include <stdlib.h>
#include <string.h>

#include "bench/shared.h"

#define AHEAD 32u

/* An operation that was drawn. */
struct draw {
	enum source_op op;
	uint32_t key_len;
	uint64_t number;
	uint64_t name;
	char key[GEN_KEY_MAX];
};

struct workload_source {
	struct source source; /* first: what the driver points to is the whole */
	const struct workload *workload;
	uint64_t n_left;         /* to be drawn yet */
	uint64_t next_key;       /* load */
	struct inserts *inserts; /* run */
	struct gen_random random;
	struct gen_keys keys;
	bool insert_is_due; /* drawn, but its number could not be had yet */
	uint32_t ahead_max;
	uint32_t n_drawn;
	uint32_t n_taken; /* of those drawn */
	struct draw drawn[AHEAD];
};

struct workload_sources {
	struct sources sources;
	size_t len; /* of all this, bytes */
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

const struct workload_mix *
workload_raw(bool is_update)
{
	static const struct workload_mix raw[] = {
		{'-', {[SOURCE_READ] = 1}, GEN_ZIPFIAN},
		{'-', {[SOURCE_UPDATE] = 1}, GEN_ZIPFIAN},
	};
	return &raw[is_update];
}

uint64_t
workload_part(uint64_t n, uint32_t index, uint32_t n_threads)
{
	return n / n_threads + (index < n % n_threads);
}

/* ---- Drawing ---- */

static enum source_op
draw_op(struct workload_source *run)
{
	const struct workload_mix *mix = &run->workload->mix;
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

/* False: not now. */
static bool
draw(struct workload_source *self, struct draw *draw)
{
	if (self->inserts == NULL) {
		draw->op = SOURCE_INSERT;
		draw->number = self->next_key++;
		return true;
	}
	draw->op = self->insert_is_due ? SOURCE_INSERT : draw_op(self);
	if (draw->op != SOURCE_INSERT) {
		uint64_t last = inserts_last(self->inserts);
		draw->number = gen_keys_next(&self->keys, &self->random, last);
		return true;
	}
	self->insert_is_due = !inserts_take(self->inserts, &draw->number);
	return !self->insert_is_due;
}

static void
name(const struct workload *workload, struct draw *draw)
{
	draw->name = workload->is_ordered ? draw->number : gen_fnvhash64(draw->number);
	if (workload->sizes.kind == SIZES_ETC)
		draw->key_len = gen_key_short(draw->key, draw->name);
	else
		draw->key_len = gen_key_name_padded(draw->key, draw->name, workload->n_digits);
}

/* Draws what comes next, one operation or several. */
static int
draw_ahead(struct workload_source *self)
{
	uint32_t n = 0;
	uint32_t n_max = self->n_left < self->ahead_max ? (uint32_t)self->n_left : self->ahead_max;
	if (n_max == 0)
		return SOURCE_END;
	while (n < n_max && draw(self, &self->drawn[n]))
		n++;
	if (n == 0)
		return SOURCE_LATER;
	for (uint32_t i = 0; i < n; i++)
		name(self->workload, &self->drawn[i]);
	self->n_left -= n;
	self->n_drawn = n;
	self->n_taken = 0;
	return SOURCE_TASK;
}

/* ---- A source ---- */

/* A key of ETC's has that law's length: what tells it apart, and dots. */
static void
stretch_key(struct source_task *task)
{
	uint32_t len = sizes_etc_key(task->number);
	if (len <= task->key_len)
		return;
	memset(task->key + task->key_len, '.', len - task->key_len);
	task->key_len = len;
}

static int
next(struct source *source, struct source_task *ret_task)
{
	struct workload_source *self = (struct workload_source *)source;
	const struct workload *workload = self->workload;
	if (self->n_taken == self->n_drawn) {
		int code = draw_ahead(self);
		if (code != SOURCE_TASK)
			return code;
	}
	const struct draw *draw = &self->drawn[self->n_taken++];
	ret_task->op = draw->op;
	ret_task->number = draw->number;
	ret_task->name = draw->name;
	ret_task->ttl_s = 0;
	ret_task->value_len = sizes_value(&workload->sizes, draw->number);
	ret_task->key_len = draw->key_len;
	memcpy(ret_task->key, draw->key, sizeof(draw->key));
	if (workload->sizes.kind == SIZES_ETC)
		stretch_key(ret_task);
	return SOURCE_TASK;
}

static void
done(struct source *source, const struct source_task *task, bool ok)
{
	struct workload_source *self = (struct workload_source *)source;
	if (task->op != SOURCE_INSERT || self->inserts == NULL)
		return;
	if (ok)
		inserts_acknowledge(self->inserts, task->number);
	else
		inserts_give_back(self->inserts, task->number);
}

/* ---- All of them ---- */

static struct source *
source_of(struct sources *sources, uint32_t thread)
{
	return &((struct workload_sources *)sources)->each[thread].source;
}

static void
destroy(struct sources *sources)
{
	shared_free(sources, ((struct workload_sources *)sources)->len);
}

static struct workload_sources *
create(const struct workload *workload, uint64_t n_operations, uint32_t n_threads)
{
	struct workload_sources *all;
	size_t len = sizeof(*all) + n_threads * sizeof(all->each[0]);
	all = shared_alloc(len);
	if (all == NULL)
		return NULL;
	all->sources = (struct sources){n_operations, source_of, destroy};
	all->len = len;
	for (uint32_t i = 0; i < n_threads; i++) {
		struct workload_source *each = &all->each[i];
		each->source = (struct source){next, done};
		each->workload = workload;
		each->n_left = workload_part(n_operations, i, n_threads);
		each->ahead_max = AHEAD;
	}
	return all;
}

struct sources *
workload_load(const struct workload *workload, uint32_t n_threads)
{
	struct workload_sources *all = create(workload, workload->n_records, n_threads);
	uint64_t key = workload->first;
	if (all == NULL)
		return NULL;
	for (uint32_t i = 0; i < n_threads; i++) {
		all->each[i].next_key = key;
		key += all->each[i].n_left;
	}
	return &all->sources;
}

/* A run with inserts, or around the latest of them, may not draw before it knows what ended. */
static bool
draws_depend(const struct workload *workload)
{
	return workload->mix.shares[SOURCE_INSERT] > 0;
}

struct sources *
workload_run(const struct workload *workload, uint64_t n_operations, uint32_t stream,
	     struct inserts *inserts, uint32_t n_threads)
{
	struct workload_sources *all = create(workload, n_operations, n_threads);
	double insert_share = workload->mix.shares[SOURCE_INSERT];
	uint64_t n_spare = (uint64_t)((double)workload->n_operations * insert_share * 2);
	if (all == NULL)
		return NULL;
	for (uint32_t i = 0; i < n_threads; i++) {
		struct workload_source *run = &all->each[i];
		run->inserts = inserts;
		run->ahead_max = draws_depend(workload) ? 1 : AHEAD;
		gen_random_seed(&run->random, workload->seed, (uint64_t)stream << 32 | i);
		gen_keys_init(&run->keys, &workload->choice, workload->first, workload->n_records,
			      n_spare);
	}
	return &all->sources;
}
