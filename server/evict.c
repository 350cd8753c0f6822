/* SPDX-License-Identifier: BSD-2-Clause */
/* Eviction: evict.h. */
#include "server/evict.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/err.h"
#include "server/unlink.h"

#define BUSY_MS 1u                     /* between slices while there is something to evict */
#define NEAR_MS 10u                    /* between slices while the pool is short, or nearly so */
#define SLICE_NS (4 * CLOCK_NS_PER_MS) /* of them */
#define CALM_NS (2 * CLOCK_NS_PER_MS)  /* while it is not, each LIMIT_STAMP_MS */
#define CALM_PASSES 64u                /* of them, one looks at hints, which must not wrap */
#define LOOKS_PER_CLOCK 16u            /* groups of slots between two looks at the clock */
#define SAMPLES 10u                    /* values seen, at least, before ... */
#define EVICT_SHARE 2u                 /* ... so many are evicted */
#define LOOKS_MAX 256u                 /* groups of slots looked at for them, at most */
#define RESERVE_SHARE 32u              /* of a group's blocks are kept free, and one */
#define RESERVE_MAX_SHARE 4u           /* with what a writer uses up between two passes */
#define INDEX_SHARE 8u                 /* of the slots are kept empty */
#define AGE_MAX 0xc000u                /* a hint is not let become older: it would wrap */
#define AGE_OVER UINT32_MAX            /* its time to live is over */
#define CHUNKS_LOOKED_AT 256u          /* to find a cold one */
#define CONDEMNED_MAX 1024u            /* at a time */
#define GIVE_BACK_STAMPS 20u           /* for the owner of an empty chunk to notice */
#define COLD_STAMPS 20u                /* no chunk is cold for less */
#define CLASSES LAYOUT_CLASSES_MAX
#define N_GROUPS ((size_t)(LIMIT_SESSIONS + 1) * CLASSES)
#define NO_GROUP UINT32_MAX

int
evict_create(struct evict *e, const struct reach *reach, const struct sessions *sessions)
{
	*e = (struct evict){.sessions = sessions, .random = reach->layout->hash_seed};
	if (!reach->layout->has_hints)
		return 0;
	e->reach = reach;
	e->groups = calloc(N_GROUPS, sizeof(*e->groups));
	e->active = calloc(reach->layout->n_chunks, sizeof(*e->active));
	e->formerly_active = calloc(reach->layout->n_chunks, sizeof(*e->active));
	e->chunks = calloc(reach->layout->n_chunks, sizeof(*e->chunks));
	return e->groups && e->active && e->formerly_active && e->chunks ? 0 : ERR_NOMEM;
}

void
evict_destroy(struct evict *e)
{
	free(e->groups);
	free(e->active);
	free(e->formerly_active);
	free(e->chunks);
	*e = (struct evict){0};
}

static uint64_t
next_random(struct evict *e)
{
	uint64_t x = (e->random += UINT64_C(0x9e3779b97f4a7c15)); /* splitmix64 */
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

/* ---- Looking at slots ---- */

static uint64_t
desc_of(const struct evict *e, uint64_t chunk)
{
	return reach_word(reach_at(e->reach, layout_desc_off(e->reach->layout, chunk), 8));
}

/* Whose chunk is it that has this descriptor? NO_GROUP: nobody's. */
static uint32_t
group_of_desc(const struct evict *e, uint64_t desc)
{
	if (chunk_state(desc) != CHUNK_OWNED || chunk_owner(desc) > LIMIT_SESSIONS ||
	    chunk_class(desc) > layout_max_class(e->reach->layout))
		return NO_GROUP;
	return chunk_owner(desc) * CLASSES + chunk_class(desc);
}

/* And the block of this word: in whose chunk is it? */
static uint32_t
group_of(const struct evict *e, uint64_t word)
{
	return group_of_desc(e,
			     desc_of(e, layout_chunk_of(e->reach->layout, slot_block_off(word))));
}

static const void *
hint_at(const struct evict *e, uint64_t word)
{
	return reach_at(e->reach, layout_hint_off(e->reach->layout, slot_block_off(word)),
			LAYOUT_HINT_LEN);
}

/* Stamps since the block was used last, as far as its hint tells. */
static uint32_t
age_of(const struct evict *e, uint64_t word)
{
	const _Atomic uint16_t *hint = hint_at(e, word);
	return (uint16_t)(e->sessions->newest -
			  atomic_load_explicit(hint, memory_order_relaxed)); /* [HINT] */
}

/* Is the value's time over? What is not a header of this word any more says something or other. */
static bool
is_over(const struct evict *e, uint64_t word, int64_t now_s)
{
	const _Atomic uint32_t *expiry =
		reach_at(e->reach, slot_block_off(word) + offsetof(struct block_header, expiry), 4);
	uint32_t at_s = atomic_load_explicit(expiry, memory_order_relaxed);
	return at_s != 0 && now_s > (int64_t)at_s;
}

/* The committed words of a bucket group, each with its slot's offset; returns how many. */
static unsigned
look_at_slots(const struct evict *e, uint64_t bucket_group, uint64_t *words, uint64_t *slot_offs)
{
	const struct layout *l = e->reach->layout;
	uint64_t off = l->index_off + bucket_group * LAYOUT_GROUP_LEN;
	const uint64_t *at = reach_at(e->reach, off, LAYOUT_GROUP_LEN);
	unsigned n = 0;
	for (unsigned i = 0; i < LAYOUT_GROUP_LEN / 8; i++) {
		uint64_t word = reach_word(at + i);
		if (i % (LAYOUT_BUCKET_SLOTS + 1) == 0 || word == 0 ||
		    slot_state(word) != SLOT_COMMITTED || !layout_block_in_range(l, word))
			continue;
		__builtin_prefetch(hint_at(e, word));
		__builtin_prefetch(reach_at(e->reach, slot_block_off(word), LIMIT_GRANULE));
		words[n] = word;
		slot_offs[n++] = off + i * 8;
	}
	return n;
}

/* ---- Sampling ---- */

/* Keeps the candidates in order, and the oldest of them if there is no room for all. */
static void
add_candidate(struct evict *e, const struct evict_candidate *c)
{
	unsigned at = e->n_candidates;
	for (unsigned i = 0; i < at; i++)
		if (e->candidate[i].slot_off == c->slot_off)
			return;
	if (at == EVICT_CANDIDATES) {
		if (e->candidate[0].age >= c->age)
			return;
		memmove(e->candidate, e->candidate + 1, (--at) * sizeof(*c));
	} else {
		e->n_candidates++;
	}
	for (; at > 0 && e->candidate[at - 1].age > c->age; at--)
		e->candidate[at] = e->candidate[at - 1];
	e->candidate[at] = *c;
}

/* Is room lacking where this value is? In a crowded index any value will do. */
static bool
is_wanted(const struct evict *e, uint32_t group)
{
	return e->n_crowding || (group != NO_GROUP && e->groups[group].n_lacking);
}

/* Looks at random slots until it has seen so many values where room is lacking. */
static void
sample(struct evict *e, int64_t now_s)
{
	uint64_t words[LAYOUT_GROUP_SLOTS], slot_offs[LAYOUT_GROUP_SLOTS];
	unsigned seen = 0;
	for (unsigned looks = 0; seen < SAMPLES && looks < LOOKS_MAX; looks++) {
		uint64_t bucket_group = next_random(e) % e->reach->layout->n_groups;
		unsigned n = look_at_slots(e, bucket_group, words, slot_offs);
		for (unsigned i = 0; i < n; i++) {
			uint32_t group = group_of(e, words[i]);
			if (!is_wanted(e, group))
				continue;
			seen++;
			bool over = is_over(e, words[i], now_s);
			add_candidate(e, &(struct evict_candidate){
						 .slot_off = slot_offs[i],
						 .word = words[i],
						 .group = group,
						 .age = over ? AGE_OVER : age_of(e, words[i]),
					 });
		}
	}
}

/* As unlink_word. Behind one failure nothing else is tried in the slice: each takes its time. */
static int
take_out(struct evict *e, uint64_t slot_off, uint64_t word)
{
	int rc = e->has_failed ? ERR_CONN : unlink_word(e->reach, slot_off, word);
	e->has_failed |= rc < 0;
	return rc;
}

/* The pass under way counts what is there: has it counted this one? */
static bool
was_counted(const struct evict *e, uint64_t slot_off)
{
	uint64_t bucket_group = (slot_off - e->reach->layout->index_off) / LAYOUT_GROUP_LEN;
	return bucket_group < e->next_bucket_group;
}

static void
count_evicted(struct evict *e, const struct evict_candidate *c)
{
	struct evict_group *g = c->group == NO_GROUP ? NULL : &e->groups[c->group];
	bool counted = was_counted(e, c->slot_off);
	e->n_values -= counted && e->n_values;
	if (g) {
		g->n_evicted++;
		g->n_live -= counted && g->n_live;
	}
	if (g && g->n_lacking) {
		g->n_lacking--;
		e->n_lacking--;
	}
	e->n_crowding -= e->n_crowding != 0;
	e->n_evicted++;
	if (c->age == AGE_OVER)
		e->n_expired++;
	else
		e->age = (7 * e->age + c->age) / 8;
}

/* Evicts the oldest candidate. False: there is none, or the region cannot be reached. */
static bool
evict_one(struct evict *e)
{
	while (e->n_candidates) {
		const struct evict_candidate c = e->candidate[--e->n_candidates];
		if (!is_wanted(e, c.group))
			continue;
		int rc = take_out(e, c.slot_off, c.word);
		if (rc == UNLINK_LOST)
			continue;
		if (rc == 0)
			count_evicted(e, &c);
		return rc == 0;
	}
	return false;
}

/* ---- Passes: what is lacking, and where ---- */

/* Finds the groups that there are now; those that are no more lack nothing. */
static void
begin_pass(struct evict *e)
{
	const struct layout *l = e->reach->layout;
	uint32_t *old = e->active, n_old = e->n_active;
	e->active = e->formerly_active;
	e->formerly_active = old;
	e->n_active = 0;
	e->n_free_chunks = 0;
	e->n_values = 0;
	for (uint64_t i = 0; i < l->n_chunks; i++) {
		uint64_t desc = desc_of(e, i);
		uint32_t group = group_of_desc(e, desc);
		e->n_free_chunks += chunk_state(desc) == CHUNK_FREE;
		if (group == NO_GROUP)
			continue;
		if (e->groups[group].n_blocks == 0)
			e->active[e->n_active++] = group;
		e->groups[group].n_blocks += layout_blocks_per_chunk(l, chunk_class(desc));
	}
	for (uint32_t i = 0; i < n_old; i++) {
		struct evict_group *g = &e->groups[old[i]];
		if (g->n_blocks)
			continue;
		e->n_lacking -= g->n_lacking;
		*g = (struct evict_group){0};
	}
}

/* How many free blocks a group should have: it was n_free before, and n_free_now are left. */
static uint32_t
reserve_of(const struct evict_group *g, uint32_t n_free_now)
{
	uint32_t had = g->n_free + g->n_evicted;
	uint32_t used_up = had > n_free_now ? had - n_free_now : 0;
	uint32_t reserve = g->n_blocks / RESERVE_SHARE + 1 + used_up;
	uint32_t most = g->n_blocks / RESERVE_MAX_SHARE + 1;
	return reserve < most ? reserve : most;
}

/* The coldest of some chunks. */
static struct evict_chunk *
pick_cold(struct evict *e)
{
	struct evict_chunk *coldest = NULL;
	uint64_t n_chunks = e->reach->layout->n_chunks, from = next_random(e) % n_chunks;
	for (unsigned i = 0; i < CHUNKS_LOOKED_AT && i < n_chunks; i++) {
		struct evict_chunk *c = &e->chunks[(from + i) % n_chunks];
		if (c->n_live && !c->is_condemned &&
		    (!coldest || c->ages / c->n_live > coldest->ages / coldest->n_live))
			coldest = c;
	}
	return coldest;
}

/*
 * Condemns chunks whose values are much older than what is being evicted, to have twice as many
 * free ones as are few; and any, so that there are half as many. Those of the last time are waited
 * for: it takes as long as a word may be expected until an empty chunk is free.
 */
static void
condemn(struct evict *e)
{
	uint64_t few = layout_chunks_few(e->reach->layout->n_chunks);
	uint64_t now = e->sessions->newest;
	if (e->condemned_stamp && now < e->condemned_stamp + LIMIT_WORD_STAMPS + GIVE_BACK_STAMPS)
		return;
	e->condemned_stamp = now;
	if (few > CONDEMNED_MAX / 2)
		few = CONDEMNED_MAX / 2;
	for (uint64_t n = e->n_free_chunks; n < 2 * few; n++) {
		struct evict_chunk *c = pick_cold(e);
		bool is_cold = c && c->ages / c->n_live > 2 * (uint64_t)e->age + COLD_STAMPS;
		if (!c || (!is_cold && n >= (few + 1) / 2))
			return;
		c->is_condemned = true;
		e->n_condemned++;
	}
}

/* What the pass saw of chunks counts for this moment only, but for the verdicts. */
static void
end_pass_of_chunks(struct evict *e, bool is_short)
{
	for (uint64_t i = 0; i < e->reach->layout->n_chunks; i++)
		e->chunks[i].is_condemned = false;
	if (is_short && !e->is_quick)
		condemn(e);
	for (uint64_t i = 0; i < e->reach->layout->n_chunks; i++) {
		e->chunks[i].ages = 0;
		e->chunks[i].n_live = 0;
	}
}

static void
end_pass(struct evict *e)
{
	const struct layout *l = e->reach->layout;
	bool is_short = e->n_free_chunks < layout_chunks_few(l->n_chunks);
	uint64_t slots = l->n_groups * LAYOUT_GROUP_SLOTS;
	uint64_t values_max = slots - slots / INDEX_SHARE;
	e->n_lacking = 0;
	end_pass_of_chunks(e, is_short);
	e->n_crowding = e->n_values > values_max ? e->n_values - values_max : 0;
	e->is_near = e->n_free_chunks < 2 * layout_chunks_few(l->n_chunks) ||
		     e->n_values > values_max - slots / INDEX_SHARE;
	for (uint32_t i = 0; i < e->n_active; i++) {
		struct evict_group *g = &e->groups[e->active[i]];
		uint32_t n_free = g->n_blocks > g->n_live ? g->n_blocks - g->n_live : 0;
		uint32_t reserve = reserve_of(g, n_free);
		*g = (struct evict_group){
			.n_free = n_free,
			.n_lacking =
				is_short && !e->is_quick && reserve > n_free ? reserve - n_free : 0,
		};
		e->n_lacking += g->n_lacking;
	}
	e->next_bucket_group = 0;
	e->n_passes++;
	e->is_quick = !e->is_near && e->n_passes % CALM_PASSES != 0;
}

/* Counts the values of a bucket group, and keeps their hints from wrapping. */
static void
count_values(struct evict *e, uint64_t bucket_group)
{
	uint64_t words[LAYOUT_GROUP_SLOTS], slot_offs[LAYOUT_GROUP_SLOTS];
	unsigned n = look_at_slots(e, bucket_group, words, slot_offs);
	e->n_values += n;
	for (unsigned i = 0; i < n; i++) {
		uint32_t group = group_of(e, words[i]);
		if (group != NO_GROUP && e->groups[group].n_blocks)
			e->groups[group].n_live++;
		uint32_t age = age_of(e, words[i]);
		struct evict_chunk *c =
			&e->chunks[layout_chunk_of(e->reach->layout, slot_block_off(words[i]))];
		c->n_live++;
		c->ages += age;
		if (c->is_condemned && take_out(e, slot_offs[i], words[i]) == 0)
			e->n_evicted++;
		if (age > AGE_MAX)
			e->reach->calls->hint(e->reach->arg, slot_block_off(words[i]),
					      (uint16_t)(e->sessions->newest - AGE_MAX));
	}
}

/* The same, of values alone: far from being short, no more is of interest. */
static unsigned
count_words(const struct evict *e, uint64_t bucket_group)
{
	uint64_t off = e->reach->layout->index_off + bucket_group * LAYOUT_GROUP_LEN;
	const uint64_t *at = reach_at(e->reach, off, LAYOUT_GROUP_LEN);
	unsigned n = 0;
	for (unsigned i = 0; i < LAYOUT_GROUP_LEN / 8; i++) {
		uint64_t word = reach_word(at + i);
		n += word != 0 && slot_state(word) == SLOT_COMMITTED;
	}
	return n;
}

/*
 * Here and in evict_some a slice gets on however late it is: behind long pauses it would not come
 * to anything, and a pass that has begun must not begin again.
 */
static void
go_on_with_pass(struct evict *e, int64_t until_ns)
{
	uint64_t n_groups = e->reach->layout->n_groups;
	if (e->next_bucket_group == 0)
		begin_pass(e);
	do {
		for (unsigned i = 0; i < LOOKS_PER_CLOCK && e->next_bucket_group < n_groups; i++) {
			if (e->is_quick)
				e->n_values += count_words(e, e->next_bucket_group++);
			else
				count_values(e, e->next_bucket_group++);
		}
	} while (e->next_bucket_group < n_groups && clock_now_ns() < until_ns);
	if (e->next_bucket_group == n_groups)
		end_pass(e);
}

static void
evict_some(struct evict *e, int64_t now_s, int64_t until_ns)
{
	bool more = true;
	do {
		for (unsigned i = 0; more && i < LOOKS_PER_CLOCK; i++) {
			more = e->n_lacking || e->n_crowding;
			if (more)
				sample(e, now_s);
			for (unsigned k = 0; more && k < EVICT_SHARE; k++)
				more = evict_one(e);
		}
	} while (more && clock_now_ns() < until_ns);
}

unsigned
evict_tick(struct evict *e)
{
	int64_t now_ns = clock_now_ns();
	int64_t until_ns = now_ns + (e->is_near ? SLICE_NS : CALM_NS);
	int64_t now_s = e->reach->calls->wall_s(e->reach->arg);
	e->has_failed = false;
	go_on_with_pass(e, now_ns + (until_ns - now_ns) / 2);
	evict_some(e, now_s, until_ns);
	if (e->has_failed)
		return LIMIT_STAMP_MS;
	if (e->n_lacking || e->n_crowding)
		return BUSY_MS;
	return e->is_near ? NEAR_MS : LIMIT_STAMP_MS;
}
