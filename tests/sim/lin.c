/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The linearisability checker: the search of Wing and Gong with Lowe's memo (the set of operations
 * placed, and the state), in the just-in-time form.
 *
 * Keys are independent, so each is checked alone. Its history is walked in the order of time. A
 * *configuration* is one way to explain what was answered so far: the state of the key, and which
 * of the operations in flight have been placed. All that are left are carried along, so there is no
 * back-tracking and no recursion:
 *
 *   invocation   the operation may be placed from now on
 *   answer of X  every configuration in which X is not placed is extended by all sequences of
 *                operations in flight that end in X; those that cannot place X are dropped
 *   none left    the history is bad, and X is the first answer that nothing explains
 *
 * Placing nothing before an answer forces it loses no order: whatever an order puts before X can be
 * placed at the moment X answers, in that order. Where nothing is in flight, a quiescent point,
 * just the set of possible states is left, so the search is cut there by itself; and an operation
 * that takes very long costs one bit, not a window.
 *
 * What keeps the sets small:
 * - An operation with an answer that changes nothing (a get, a miss, a mismatch) is placed as soon
 *   as a state agrees with it: that only takes a duty away.
 * - An OPEN operation is never due. Not to have used it is as good as having used it, so of two
 *   configurations that differ in such *costs* only (open operations used, answers still owed,
 *   versions taken), one that has a subset of the other's makes the other superfluous.
 * - A value that no answer to come reads, and a version that no answer to come mentions, are
 *   forgotten: all such states are one. Open writes of forgotten values can stand in for each
 *   other, so only the oldest unused one of a kind is tried, and the weakest kind that will do.
 * - Foresight: a value that only one write makes is not overwritten while a get that finds it is
 *   still to come, and a write does not take a version that is going to be read with another value.
 *
 * A write whose version is not known takes, when it is placed, one of the *orphans*, versions that
 * were seen and that no known write made (each can be taken once), or one that nobody ever saw.
 *
 * Two switches break the checker, so that its tests can be tested: LIN_MUTANT_ALWAYS_OK and
 * LIN_MUTANT_NO_REALTIME (every operation overlaps with every other).
 */
#include "tests/sim/lin.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"

/* ---- Histories ---- */

int
lin_history_new(struct lin_history **ret_history)
{
	struct lin_history *history = calloc(1, sizeof(*history));

	if (!history)
		return ERR_NOMEM;
	*ret_history = history;
	return 0;
}

int
lin_history_add(struct lin_history *history, const struct lin_op *ops, size_t n)
{
	size_t n_room = history->n_room ? history->n_room : 64;
	struct lin_op *grown;

	if (n > SIZE_MAX / sizeof(*ops) / 4 - history->n_ops)
		return ERR_NOMEM;
	while (n_room < history->n_ops + n)
		n_room *= 2;
	if (n_room != history->n_room) {
		grown = realloc(history->ops, n_room * sizeof(*grown));
		if (!grown)
			return ERR_NOMEM;
		history->ops = grown;
		history->n_room = n_room;
	}
	if (n)
		memcpy(history->ops + history->n_ops, ops, n * sizeof(*ops));
	history->n_ops += n;
	return 0;
}

void
lin_history_free(struct lin_history *history)
{
	if (!history)
		return;
	free(history->ops);
	free(history);
}

enum lin_result
lin_result_of_status(int status)
{
	if (status >= LIN_DONE && status <= LIN_MISMATCH)
		return (enum lin_result)status;
	return status == ERR_TIMEOUT || status == ERR_MAYBE ? LIN_OPEN : LIN_FAILED;
}

/* ---- Terms: the values and versions of a key, numbered from 0 without gaps ---- */

enum {
	TERM_NONE = 0,      /* value: the key is absent; version: not known, or no version */
	TERM_FORGOTTEN = 1, /* some value, or version, that no answer to come mentions */
	TERM_FIRST = 2
};

#define FOREVER UINT32_MAX
#define NO_BIT UINT32_MAX

struct term {
	uint64_t id;
	uint32_t until;    /* events before this number may mention the term */
	uint32_t wanted;   /* the last invocation of one that finds it current */
	uint32_t n_makers; /* writes that can make it current */
	bool seen;         /* versions: it was found current, or an open cas might find it so */
	uint32_t value;    /* versions: the value that a get finds with it, or TERM_NONE */
	uint32_t orphan;   /* versions: the cost bit "a write has taken it", or NO_BIT */
};

struct terms {
	struct term *terms;
	uint32_t n;
};

static int
cmp_u64(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int
cmp_i64(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

static int
cmp_term(const void *a, const void *b)
{
	return cmp_u64(((const struct term *)a)->id, ((const struct term *)b)->id);
}

static void
terms_add(struct terms *t, uint64_t id)
{
	t->terms[t->n++] = (struct term){.id = id, .orphan = NO_BIT};
}

static void
terms_sort(struct terms *t)
{
	uint32_t i, n = 0;

	qsort(t->terms, t->n, sizeof(*t->terms), cmp_term);
	for (i = 0; i < t->n; i++)
		if (i == 0 || t->terms[i].id != t->terms[n - 1].id)
			t->terms[n++] = t->terms[i];
	t->n = n;
}

/* The number of an id that was added. */
static uint32_t
terms_find(const struct terms *t, uint64_t id)
{
	struct term key = {.id = id};
	const struct term *found = bsearch(&key, t->terms, t->n, sizeof(key), cmp_term);

	return TERM_FIRST + (uint32_t)(found - t->terms);
}

static struct term *
term_at(const struct terms *t, uint32_t number)
{
	return &t->terms[number - TERM_FIRST];
}

static bool
term_live(const struct terms *t, uint32_t number, uint32_t now)
{
	return number >= TERM_FIRST && term_at(t, number)->until > now;
}

static void
term_mention(const struct terms *t, uint32_t number, uint32_t until)
{
	struct term *term = term_at(t, number);

	if (term->until < until)
		term->until = until;
}

/*
 * Must it not be left at this event? An operation to come finds it current, and what makes it
 * current can do so once only.
 */
static bool
term_wanted(const struct terms *t, uint32_t number, uint32_t now)
{
	return number >= TERM_FIRST && term_at(t, number)->n_makers <= 1 &&
	       term_at(t, number)->wanted > now;
}

static void
term_want(const struct terms *t, uint32_t number, uint32_t event)
{
	struct term *term = term_at(t, number);

	if (term->wanted < event)
		term->wanted = event;
}

/* ---- Pools: sets of configurations ---- */

/*
 * A configuration is `stride` words: the state (value and version numbers), the same before
 * anything was forgotten (for the report; not compared), duty bits (writes with an answer that are
 * placed), cost bits (of which fewer are better).
 */
enum { WORD_STATE = 0, WORD_EXACT = 1, WORD_BITS = 2 };

#define STATE(value, version) ((uint64_t)(value) << 32 | (version))
#define STATE_VALUE(state) ((uint32_t)((state) >> 32))
#define STATE_VERSION(state) ((uint32_t)(state))
#define POOL_ROOM_MIN 16u

struct pool {
	uint64_t *words;
	uint32_t *next;    /* chains of equal hash, index + 1 */
	bool *dead;        /* another one made it superfluous */
	uint32_t *buckets; /* n_room heads; those of another generation are empty */
	uint32_t *generations;
	uint32_t generation;
	size_t n;
	size_t n_room; /* a power of two */
	size_t n_max;
	size_t stride;
	size_t n_duty_words;
};

static uint64_t *
pool_at(const struct pool *pool, size_t i)
{
	return pool->words + i * pool->stride;
}

static void
pool_clear(struct pool *pool)
{
	pool->n = 0;
	pool->generation++;
}

static void
pool_fini(struct pool *pool)
{
	free(pool->words);
	free(pool->next);
	free(pool->dead);
	free(pool->buckets);
	free(pool->generations);
}

/* The bucket of what must be equal for two configurations to be compared: state and duties. */
static uint32_t *
pool_bucket(const struct pool *pool, const uint64_t *config)
{
	uint64_t hash = config[WORD_STATE] * 0x9e3779b97f4a7c15u;
	size_t i;

	for (i = 0; i < pool->n_duty_words; i++)
		hash = ((hash ^ hash >> 29) + config[WORD_BITS + i]) * 0xbf58476d1ce4e5b9u;
	hash = (hash ^ hash >> 32) & (pool->n_room - 1);
	if (pool->generations[hash] != pool->generation) {
		pool->generations[hash] = pool->generation;
		pool->buckets[hash] = 0;
	}
	return &pool->buckets[hash];
}

static void
pool_link(struct pool *pool, size_t i)
{
	uint32_t *bucket = pool_bucket(pool, pool_at(pool, i));

	pool->next[i] = *bucket;
	*bucket = (uint32_t)i + 1;
}

static int
grow(void *array, size_t n, size_t size)
{
	void **slot = array, *grown = realloc(*slot, n * size);

	if (!grown)
		return ERR_NOMEM;
	*slot = grown;
	return 0;
}

static int
pool_grow(struct pool *pool)
{
	size_t i, n_room = pool->n_room ? 2 * pool->n_room : POOL_ROOM_MIN;

	if (grow(&pool->words, n_room, pool->stride * sizeof(*pool->words)) ||
	    grow(&pool->next, n_room, sizeof(*pool->next)) ||
	    grow(&pool->dead, n_room, sizeof(*pool->dead)) ||
	    grow(&pool->buckets, n_room, sizeof(*pool->buckets)) ||
	    grow(&pool->generations, n_room, sizeof(*pool->generations)))
		return ERR_NOMEM;
	memset(pool->generations, 0, n_room * sizeof(*pool->generations));
	pool->generation = 1;
	pool->n_room = n_room;
	for (i = 0; i < pool->n; i++)
		pool_link(pool, i);
	return 0;
}

static bool
config_subset(const struct pool *pool, const uint64_t *a, const uint64_t *b)
{
	size_t i;

	for (i = WORD_BITS + pool->n_duty_words; i < pool->stride; i++)
		if (a[i] & ~b[i])
			return false;
	return true;
}

static bool
config_same_duties(const struct pool *pool, const uint64_t *a, const uint64_t *b)
{
	return a[WORD_STATE] == b[WORD_STATE] &&
	       memcmp(a + WORD_BITS, b + WORD_BITS, pool->n_duty_words * sizeof(*a)) == 0;
}

/* Adds a configuration unless one that is as good is there. LIN_UNDECIDED: the pool is full. */
static int
pool_insert(struct pool *pool, const uint64_t *config)
{
	uint32_t i;

	if (pool->n == pool->n_room && pool_grow(pool) < 0)
		return ERR_NOMEM;
	for (i = *pool_bucket(pool, config); i; i = pool->next[i - 1]) {
		const uint64_t *other = pool_at(pool, i - 1);

		if (pool->dead[i - 1] || !config_same_duties(pool, other, config))
			continue;
		if (config_subset(pool, other, config))
			return 0;
		if (config_subset(pool, config, other))
			pool->dead[i - 1] = true;
	}
	if (pool->n == pool->n_max)
		return LIN_UNDECIDED;
	memcpy(pool_at(pool, pool->n), config, pool->stride * sizeof(*config));
	pool->dead[pool->n] = false;
	pool_link(pool, pool->n++);
	return 0;
}

/* ---- The search over one key ---- */

#define EXPLAIN_STEPS (UINT64_C(1) << 25) /* some seconds */

enum role {
	ROLE_WRITE, /* done, and changes the state; its bit is a duty: placed */
	ROLE_READ,  /* answered, and changes nothing; its bit is a cost: not yet placed */
	ROLE_OPEN   /* may change the state, need not; its bit is a cost: used */
};

struct item {
	const struct lin_op *op;
	enum role role;
	uint32_t value; /* terms */
	uint32_t version;
	uint32_t expected;
	uint32_t bit; /* in the whole bit string, duties first */
};

struct event {
	int64_t time;
	uint32_t item;
	bool answer;
};

struct list {
	uint32_t *items;
	uint32_t n;
};

struct search {
	const struct lin_options *options;
	struct lin_report *report; /* effort is added to it */

	struct item *items; /* in the order of invocation */
	uint32_t n_items;
	struct event *events;
	uint32_t n_events;
	struct terms values;
	struct terms versions;
	uint32_t *orphans; /* versions to be taken by writes that do not know theirs */
	uint32_t n_orphans;
	uint32_t n_wild_orphans; /* those that no get finds */
	bool foresight;          /* drop what a later answer is going to rule out */

	struct pool now;   /* configurations before the event, and those being made at an answer */
	struct pool after; /* those that placed the operation that answers */
	uint64_t *scratch; /* one configuration */
	struct list writes, reads, opens; /* invoked and not answered */
	uint32_t event;
	int64_t window_begin;
};

static bool
bit_test(const uint64_t *config, uint32_t bit)
{
	return config[WORD_BITS + bit / 64] >> bit % 64 & 1;
}

static void
bit_set(uint64_t *config, uint32_t bit)
{
	config[WORD_BITS + bit / 64] |= UINT64_C(1) << bit % 64;
}

static void
bit_clear(uint64_t *config, uint32_t bit)
{
	config[WORD_BITS + bit / 64] &= ~(UINT64_C(1) << bit % 64);
}

static void
list_add(struct list *list, uint32_t item)
{
	list->items[list->n++] = item;
}

static void
list_remove(struct list *list, uint32_t item)
{
	uint32_t i;

	for (i = 0; list->items[i] != item; i++)
		;
	list->items[i] = list->items[--list->n];
}

/* The state as an event with this number sees it. */
static uint64_t
state_forget(const struct search *s, uint64_t state, uint32_t event)
{
	uint32_t value = STATE_VALUE(state), version = STATE_VERSION(state);

	if (value == TERM_NONE)
		return STATE(TERM_NONE, TERM_NONE);
	if (!term_live(&s->values, value, event))
		value = TERM_FORGOTTEN;
	if (!term_live(&s->versions, version, event))
		version = TERM_FORGOTTEN;
	return STATE(value, version);
}

/* Would a store in this state have given the answer of an operation that changes nothing? */
static bool
answer_fits(const struct item *item, uint64_t state)
{
	bool present = STATE_VALUE(state) != TERM_NONE;
	enum lin_result result = item->op->result;

	switch (item->op->kind) {
	case LIN_GET:
		if (result != LIN_DONE)
			return result == LIN_NOT_FOUND && !present;
		return STATE_VALUE(state) == item->value &&
		       (item->version == TERM_NONE || STATE_VERSION(state) == item->version);
	case LIN_ADD:
		return result == LIN_EXISTS && present;
	case LIN_CAS:
		if (result == LIN_MISMATCH)
			return present && STATE_VERSION(state) != item->expected;
		return result == LIN_NOT_FOUND && !present;
	case LIN_REPLACE:
	case LIN_DELETE:
	case LIN_TOUCH:
		return result == LIN_NOT_FOUND && !present;
	default:
		return false;
	}
}

/* Would a store in this state have carried the write out? */
static bool
write_fits(const struct item *item, uint64_t state)
{
	bool present = STATE_VALUE(state) != TERM_NONE;

	switch (item->op->kind) {
	case LIN_PUT:
		return true;
	case LIN_ADD:
		return !present;
	case LIN_CAS:
		return present && STATE_VERSION(state) == item->expected;
	default:
		return present;
	}
}

/* Places every answer owed that the configuration's state agrees with. */
static void
config_absorb(const struct search *s, uint64_t *config)
{
	uint32_t i;

	for (i = 0; i < s->reads.n; i++) {
		const struct item *item = &s->items[s->reads.items[i]];

		if (answer_fits(item, config[WORD_STATE]))
			bit_clear(config, item->bit);
	}
}

/* Will a later answer rule out that this state is left for that one? */
static bool
leaves_wanted(const struct search *s, uint64_t from, uint64_t to)
{
	if (!s->foresight)
		return false;
	return (STATE_VALUE(from) != STATE_VALUE(to) &&
		term_wanted(&s->values, STATE_VALUE(from), s->event)) ||
	       (STATE_VERSION(from) != STATE_VERSION(to) &&
		term_wanted(&s->versions, STATE_VERSION(from), s->event));
}

/* Adds the configuration that follows number `from` when the write makes this version. */
static int
write_place(struct search *s, size_t from, const struct item *item, uint32_t version,
	    uint32_t orphan)
{
	uint64_t *config = s->scratch;
	uint64_t state = pool_at(&s->now, from)[WORD_STATE];
	uint32_t value = item->value;

	memcpy(config, pool_at(&s->now, from), s->now.stride * sizeof(*config));
	if (item->op->kind == LIN_TOUCH)
		value = STATE_VALUE(config[WORD_EXACT]);
	config[WORD_EXACT] =
		item->op->kind == LIN_DELETE ? STATE(TERM_NONE, TERM_NONE) : STATE(value, version);
	config[WORD_STATE] = state_forget(s, config[WORD_EXACT], s->event);
	if (leaves_wanted(s, state, config[WORD_STATE]))
		return 0;
	bit_set(config, item->bit);
	if (orphan != NO_BIT)
		bit_set(config, orphan);
	config_absorb(s, config);
	return pool_insert(&s->now, config);
}

/* Tries a write whose version is not known with every version that it can have made. */
static int
write_place_unknown(struct search *s, size_t from, const struct item *item)
{
	uint32_t i, value = item->value;
	int ret = write_place(s, from, item, TERM_FORGOTTEN, NO_BIT);

	if (item->op->kind == LIN_TOUCH)
		value = STATE_VALUE(pool_at(&s->now, from)[WORD_STATE]);
	for (i = 0; i < s->n_orphans && ret == 0; i++) {
		const struct term *version = term_at(&s->versions, s->orphans[i]);

		if (version->until <= s->event ||
		    bit_test(pool_at(&s->now, from), version->orphan) ||
		    (s->foresight && version->value != TERM_NONE && version->value != value))
			continue;
		s->report->n_steps++;
		ret = write_place(s, from, item, s->orphans[i], version->orphan);
	}
	return ret;
}

static int
write_try(struct search *s, size_t from, const struct item *item)
{
	s->report->n_steps++;
	if (!write_fits(item, pool_at(&s->now, from)[WORD_STATE]))
		return 0;
	if (item->version == TERM_NONE && item->op->kind != LIN_DELETE)
		return write_place_unknown(s, from, item);
	return write_place(s, from, item, item->version, NO_BIT);
}

/*
 * Open writes of one class can stand in for each other: they are of one kind, and their value and
 * version forgotten. A cas is bound to what it expects. Those that do not know their version are a
 * class of their own if there is a choice of versions for them.
 */
enum { CLASS_NONE = -1, CLASS_CHOOSES = LIN_KIND_COUNT, CLASS_COUNT = 2 * LIN_KIND_COUNT };

static int
open_class(const struct search *s, const struct item *item)
{
	enum lin_kind kind = item->op->kind;
	uint32_t n_choices = s->foresight ? s->n_wild_orphans : s->n_orphans;
	bool chooses = item->version == TERM_NONE && (kind == LIN_TOUCH || n_choices);

	if (kind == LIN_DELETE)
		return LIN_DELETE;
	if (kind == LIN_CAS || term_live(&s->versions, item->version, s->event) ||
	    (kind != LIN_TOUCH && term_live(&s->values, item->value, s->event)))
		return CLASS_NONE;
	return (int)kind + (chooses ? CLASS_CHOOSES : 0);
}

/* Adds what one of each class makes of number `from`; a put only where nothing weaker would do. */
static int
classes_try(struct search *s, size_t from, const struct item *const *classes)
{
	bool present = STATE_VALUE(pool_at(&s->now, from)[WORD_STATE]) != TERM_NONE;
	int group, weaker, ret = 0;

	for (group = 0; group < CLASS_COUNT && ret == 0; group++) {
		if (!classes[group])
			continue;
		weaker = group - LIN_PUT + (present ? LIN_REPLACE : LIN_ADD);
		if (classes[group]->op->kind != LIN_PUT || !classes[weaker])
			ret = write_try(s, from, classes[group]);
	}
	return ret;
}

/* Adds what the open writes make of number `from`, each or each class. */
static int
opens_try(struct search *s, size_t from)
{
	const struct item *classes[CLASS_COUNT] = {NULL};
	uint32_t i;
	int group, ret = 0;

	for (i = 0; i < s->opens.n && ret == 0; i++) {
		const struct item *item = &s->items[s->opens.items[i]];

		if (bit_test(pool_at(&s->now, from), item->bit))
			continue;
		group = open_class(s, item);
		if (group == CLASS_NONE)
			ret = write_try(s, from, item);
		else if (!classes[group])
			classes[group] = item;
	}
	return ret ? ret : classes_try(s, from, classes);
}

/* Adds every configuration that one more write makes of number `from`. */
static int
config_extend(struct search *s, size_t from)
{
	uint32_t i;
	int ret = 0;

	for (i = 0; i < s->writes.n && ret == 0; i++) {
		const struct item *item = &s->items[s->writes.items[i]];

		if (!bit_test(pool_at(&s->now, from), item->bit))
			ret = write_try(s, from, item);
	}
	return ret ? ret : opens_try(s, from);
}

static void
invoke(struct search *s, uint32_t index)
{
	const struct item *item = &s->items[index];
	size_t i;

	if (item->role != ROLE_OPEN && s->writes.n + s->reads.n == 0)
		s->window_begin = item->op->invoked;
	if (item->role == ROLE_READ) {
		list_add(&s->reads, index);
		for (i = 0; i < s->now.n; i++)
			if (!answer_fits(item, pool_at(&s->now, i)[WORD_STATE]))
				bit_set(pool_at(&s->now, i), item->bit);
	} else {
		list_add(item->role == ROLE_WRITE ? &s->writes : &s->opens, index);
	}
}

/* Keeps a configuration that placed the operation, whose bit is free again. */
static int
config_keep(struct search *s, size_t from, uint32_t bit)
{
	uint64_t *config = s->scratch;

	memcpy(config, pool_at(&s->now, from), s->now.stride * sizeof(*config));
	bit_clear(config, bit);
	config[WORD_STATE] = state_forget(s, config[WORD_EXACT], s->event + 1);
	return pool_insert(&s->after, config);
}

/* Makes the configurations after the answer of an operation: 0, LIN_UNDECIDED, ERR_NOMEM. */
static int
place(struct search *s, const struct item *item)
{
	bool placed = item->role == ROLE_WRITE; /* what its bit then is */
	size_t i;
	int ret = 0;

	pool_clear(&s->after);
	for (i = 0; i < s->now.n && ret == 0; i++) {
		if (s->now.dead[i])
			continue;
		if (++s->report->n_steps > s->options->max_steps) {
			s->report->reason = LIN_REASON_STEPS;
			return LIN_UNDECIDED;
		}
		if (bit_test(pool_at(&s->now, i), item->bit) == placed)
			ret = config_keep(s, i, item->bit);
		else
			ret = config_extend(s, i);
	}
	if (ret == LIN_UNDECIDED)
		s->report->reason = LIN_REASON_CONFIGS;
	return ret;
}

/* Reports the states of the first n configurations: those that were there before the answer. */
static void
report_states(const struct search *s, size_t n)
{
	struct lin_report *report = s->report;
	size_t i, k;

	report->n_states = 0;
	for (i = 0; i < n && report->n_states < LIN_REPORT_STATES; i++) {
		uint64_t exact = pool_at(&s->now, i)[WORD_EXACT];
		uint32_t version = STATE_VERSION(exact);
		struct lin_state *state = &report->states[report->n_states];

		for (k = 0; k < i && pool_at(&s->now, k)[WORD_EXACT] != exact; k++)
			;
		if (k < i)
			continue;
		*state = (struct lin_state){.present = STATE_VALUE(exact) != TERM_NONE};
		if (state->present)
			state->value = term_at(&s->values, STATE_VALUE(exact))->id;
		state->version_known = state->present && version >= TERM_FIRST;
		if (state->version_known)
			state->version = term_at(&s->versions, version)->id;
		report->n_states++;
	}
}

/* 0, LIN_BAD, LIN_UNDECIDED, ERR_NOMEM. */
static int
answer(struct search *s, uint32_t index)
{
	const struct item *item = &s->items[index];
	size_t n_before = s->now.n;
	struct pool swap;
	int ret = place(s, item);

	if (s->report->n_configs_max < s->now.n)
		s->report->n_configs_max = s->now.n;
	if (ret != 0)
		return ret;
	if (s->after.n == 0) {
		s->report->reason = LIN_REASON_PLACE;
		s->report->window_begin = s->window_begin;
		report_states(s, n_before);
		return LIN_BAD;
	}
	list_remove(item->role == ROLE_WRITE ? &s->writes : &s->reads, index);
	swap = s->now;
	s->now = s->after;
	s->after = swap;
	return 0;
}

/* Walks all events: 0, or LIN_BAD, LIN_UNDECIDED, ERR_NOMEM at s->event. */
static int
search_run(struct search *s, bool foresight)
{
	int ret;

	s->foresight = foresight;
	s->writes.n = s->reads.n = s->opens.n = 0;
	pool_clear(&s->now);
	memset(s->scratch, 0, s->now.stride * sizeof(*s->scratch));
	ret = pool_insert(&s->now, s->scratch);
	for (s->event = 0; ret == 0 && s->event < s->n_events; s->event++) {
		const struct event *event = &s->events[s->event];

		if (!event->answer) {
			invoke(s, event->item);
			continue;
		}
		ret = answer(s, event->item);
		if (ret != 0)
			s->report->op = event->item;
	}
	return ret;
}

/*
 * Foresight finds a contradiction before the answer that completes it. If there is one, a second
 * search, without foresight, names that answer, unless it takes too much effort.
 */
static int
search(struct search *s)
{
	struct lin_options options = *s->options;
	struct lin_report first;
	int ret = search_run(s, true);

	if (ret != LIN_BAD)
		return ret;
	s->report->reason = LIN_REASON_AHEAD;
	first = *s->report;
	if (options.max_steps > first.n_steps + EXPLAIN_STEPS)
		options.max_steps = first.n_steps + EXPLAIN_STEPS;
	s->options = &options;
	ret = search_run(s, false);
	assert(ret != LIN_OK);
	first.n_steps = s->report->n_steps;
	first.n_configs_max = s->report->n_configs_max;
	if (ret == LIN_UNDECIDED)
		*s->report = first;
	return ret < 0 ? ret : LIN_BAD;
}

/* ---- Preparing it ---- */

static enum role
role_of(const struct lin_op *op)
{
	if (op->result == LIN_OPEN)
		return ROLE_OPEN;
	return op->result == LIN_DONE && op->kind != LIN_GET ? ROLE_WRITE : ROLE_READ;
}

/* At one moment invocations come first: what touches counts as concurrent. */
static int
cmp_event(const void *a, const void *b)
{
	const struct event *left = a, *right = b;
	int order = cmp_i64(left->time, right->time);

	if (order == 0)
		order = left->answer - right->answer;
	return order ? order : (left->item > right->item) - (left->item < right->item);
}

static void
make_events(struct search *s)
{
	uint32_t i;

	for (i = 0; i < s->n_items; i++) {
		const struct item *item = &s->items[i];
		int64_t invoked = item->op->invoked, responded = item->op->responded;

#ifdef LIN_MUTANT_NO_REALTIME
		invoked = INT64_MIN;
		responded = INT64_MAX;
#endif
		s->events[s->n_events++] = (struct event){invoked, i, false};
		if (item->role != ROLE_OPEN)
			s->events[s->n_events++] = (struct event){responded, i, true};
	}
	qsort(s->events, s->n_events, sizeof(*s->events), cmp_event);
}

static void
make_terms(struct search *s)
{
	uint32_t i;

	for (i = 0; i < s->n_items; i++) {
		const struct lin_op *op = s->items[i].op;

		terms_add(&s->values, op->value);
		if (op->version)
			terms_add(&s->versions, op->version);
		if (op->kind == LIN_CAS)
			terms_add(&s->versions, op->expected);
	}
	terms_sort(&s->values);
	terms_sort(&s->versions);
	for (i = 0; i < s->n_items; i++) {
		struct item *item = &s->items[i];

		item->value = terms_find(&s->values, item->op->value);
		if (item->op->version)
			item->version = terms_find(&s->versions, item->op->version);
		if (item->op->kind == LIN_CAS)
			item->expected = terms_find(&s->versions, item->op->expected);
	}
}

/* What the invocation of an operation says about the terms. */
static void
announce(struct search *s, const struct item *item, uint32_t event)
{
	bool makes = item->role != ROLE_READ && item->op->kind != LIN_DELETE;
	bool finds = item->op->result == LIN_DONE;
	enum lin_kind kind = item->op->kind;

	if (makes && kind != LIN_TOUCH)
		term_at(&s->values, item->value)->n_makers++;
	if (makes && item->version != TERM_NONE)
		term_at(&s->versions, item->version)->n_makers++;
	if (finds && kind == LIN_CAS)
		term_want(&s->versions, item->expected, event);
	if (finds && kind == LIN_GET)
		term_want(&s->values, item->value, event);
	if (finds && kind == LIN_GET && item->version != TERM_NONE) {
		term_want(&s->versions, item->version, event);
		term_at(&s->versions, item->version)->value = item->value;
	}
}

/* What an operation, whose answer is the event before `until`, says about its terms. */
static void
mention(struct search *s, const struct item *item, uint32_t until)
{
	const struct lin_op *op = item->op;

	if (op->kind == LIN_CAS) {
		term_mention(&s->versions, item->expected, until);
		if (op->result == LIN_DONE || op->result == LIN_OPEN)
			term_at(&s->versions, item->expected)->seen = true;
	}
	if (op->kind == LIN_GET && op->result == LIN_DONE) {
		term_mention(&s->values, item->value, until);
		if (item->version != TERM_NONE) {
			term_mention(&s->versions, item->version, until);
			term_at(&s->versions, item->version)->seen = true;
		}
	}
}

static void
make_mentions(struct search *s)
{
	uint32_t i;

	for (i = 0; i < s->n_events; i++) {
		const struct item *item = &s->items[s->events[i].item];

		if (!s->events[i].answer)
			announce(s, item, i);
		if (item->role == ROLE_OPEN)
			mention(s, item, FOREVER);
		else if (s->events[i].answer)
			mention(s, item, i + 1);
	}
	for (i = 0; i < s->versions.n; i++) {
		const struct term *version = &s->versions.terms[i];

		if (!version->seen || version->n_makers || version->id == 0)
			continue;
		s->orphans[s->n_orphans++] = TERM_FIRST + i;
		s->n_wild_orphans += version->value == TERM_NONE;
	}
}

/* Gives each item of a role a bit, which its answer frees for another. Returns how many it took. */
static uint32_t
make_bits_reused(struct search *s, enum role role, uint32_t first, uint32_t *free_bits)
{
	uint32_t i, n = 0, n_free = 0;

	for (i = 0; i < s->n_events; i++) {
		struct item *item = &s->items[s->events[i].item];

		if (item->role != role)
			continue;
		if (s->events[i].answer)
			free_bits[n_free++] = item->bit;
		else
			item->bit = n_free ? free_bits[--n_free] : first + n++;
	}
	return n;
}

/* Duties, padded to whole words; then costs: answers owed, open operations, orphans. */
static void
make_bits(struct search *s)
{
	uint32_t *free_bits = s->writes.items; /* not in use yet */
	uint32_t i, n_words, bit = make_bits_reused(s, ROLE_WRITE, 0, free_bits);

	n_words = (bit + 63) / 64;
	s->now.n_duty_words = s->after.n_duty_words = n_words;
	bit = 64 * n_words;
	bit += make_bits_reused(s, ROLE_READ, bit, free_bits);
	for (i = 0; i < s->n_items; i++)
		if (s->items[i].role == ROLE_OPEN)
			s->items[i].bit = bit++;
	for (i = 0; i < s->n_orphans; i++)
		term_at(&s->versions, s->orphans[i])->orphan = bit++;
	s->now.stride = s->after.stride = WORD_BITS + (bit + 63) / 64;
}

static void
search_fini(struct search *s)
{
	free(s->items);
	free(s->events);
	free(s->values.terms);
	free(s->versions.terms);
	free(s->orphans);
	free(s->scratch);
	free(s->writes.items);
	free(s->reads.items);
	free(s->opens.items);
	pool_fini(&s->now);
	pool_fini(&s->after);
}

static int
search_alloc(struct search *s, size_t n)
{
	s->items = calloc(n, sizeof(*s->items));
	s->events = calloc(2 * n, sizeof(*s->events));
	s->values.terms = calloc(n, sizeof(*s->values.terms));
	s->versions.terms = calloc(2 * n, sizeof(*s->versions.terms));
	s->orphans = calloc(2 * n, sizeof(*s->orphans));
	s->writes.items = calloc(n, sizeof(*s->writes.items));
	s->reads.items = calloc(n, sizeof(*s->reads.items));
	s->opens.items = calloc(n, sizeof(*s->opens.items));
	return s->items && s->events && s->values.terms && s->versions.terms && s->orphans &&
			       s->writes.items && s->reads.items && s->opens.items
		       ? 0
		       : ERR_NOMEM;
}

/* ops: those of one key, in the order of invocation. report->op becomes an index into them. */
static int
check_key(const struct lin_op **ops, size_t n, const struct lin_options *options,
	  struct lin_report *report)
{
	struct search s = {.options = options, .report = report, .n_items = (uint32_t)n};
	uint32_t i;
	int ret;

	ret = search_alloc(&s, n);
	if (ret < 0)
		goto done;
	for (i = 0; i < n; i++)
		s.items[i] = (struct item){.op = ops[i], .role = role_of(ops[i])};
	make_events(&s);
	make_terms(&s);
	make_mentions(&s);
	make_bits(&s);
	s.now.n_max = s.after.n_max = options->max_configs;
	s.scratch = calloc(s.now.stride, sizeof(*s.scratch));
	ret = s.scratch ? pool_grow(&s.now) : ERR_NOMEM;
	if (ret == 0)
		ret = pool_grow(&s.after);
	if (ret == 0)
		ret = search(&s);
done:
	search_fini(&s);
	return ret;
}

/* ---- The whole history ---- */

static int
cmp_op(const void *a, const void *b)
{
	const struct lin_op *left = *(const struct lin_op *const *)a;
	const struct lin_op *right = *(const struct lin_op *const *)b;
	int order = cmp_u64(left->key, right->key);

	if (order == 0)
		order = cmp_i64(left->invoked, right->invoked);
	return order ? order : (left > right) - (left < right);
}

static int
cmp_version(const void *a, const void *b)
{
	const struct lin_op *left = *(const struct lin_op *const *)a;
	const struct lin_op *right = *(const struct lin_op *const *)b;
	int order = cmp_u64(left->version, right->version);

	if (order == 0)
		order = cmp_i64(left->responded, right->responded);
	return order ? order : (left > right) - (left < right);
}

static bool
op_valid(const struct lin_op *op)
{
	return op->kind < LIN_KIND_COUNT && op->result < LIN_RESULT_COUNT &&
	       (op->result == LIN_OPEN || op->responded >= op->invoked);
}

/* Those that say something: not what failed, nor a get without an answer. */
static bool
op_counts(const struct lin_op *op)
{
	return op->result != LIN_FAILED && !(op->kind == LIN_GET && op->result == LIN_OPEN);
}

static bool
op_made_version(const struct lin_op *op)
{
	return op->result == LIN_DONE && op->kind != LIN_GET && op->kind != LIN_DELETE &&
	       op->version;
}

/* Is `ret` of an answer at this moment worse news than what the report has? */
static bool
report_wants(int verdict, int ret, int64_t best_time, int64_t time)
{
	if (ret == LIN_BAD)
		return verdict != LIN_BAD || time < best_time;
	return ret == LIN_UNDECIDED && verdict == LIN_OK;
}

static void
report_take(struct lin_report *report, const struct lin_report *found, const struct lin_op *op,
	    const struct lin_history *history)
{
	report->reason = found->reason;
	report->key = op->key;
	report->op = (size_t)(op - history->ops);
	report->window_begin = found->window_begin;
	report->n_states = found->n_states;
	memcpy(report->states, found->states, sizeof(report->states));
}

/* No version is given to two writes, on whatever keys. ops is sorted anew. */
static int
check_versions(const struct lin_history *history, const struct lin_op **ops, size_t n,
	       struct lin_report *report)
{
	struct lin_report found = {.reason = LIN_REASON_VERSION_TWICE};
	const struct lin_op *last = NULL, *worst = NULL;
	size_t i;

	qsort(ops, n, sizeof(*ops), cmp_version);
	for (i = 0; i < n; i++) {
		if (!op_made_version(ops[i]))
			continue;
		if (last && last->version == ops[i]->version &&
		    (!worst || ops[i]->responded < worst->responded))
			worst = ops[i];
		last = ops[i];
	}
	if (!worst)
		return LIN_OK;
	found.window_begin = worst->invoked;
	report_take(report, &found, worst, history);
	return LIN_BAD;
}

static int
check_keys(const struct lin_history *history, const struct lin_op **ops, size_t n,
	   const struct lin_options *options, struct lin_report *report)
{
	size_t i, end;
	int ret, verdict = LIN_OK;

	qsort(ops, n, sizeof(*ops), cmp_op);
	for (i = 0; i < n; i = end) {
		struct lin_report found = {.n_steps = report->n_steps};

		for (end = i; end < n && ops[end]->key == ops[i]->key; end++)
			;
		ret = check_key(ops + i, end - i, options, &found);
		if (ret < 0)
			return ret;
		if (report_wants(verdict, ret, history->ops[report->op].responded,
				 ops[i + found.op]->responded)) {
			report_take(report, &found, ops[i + found.op], history);
			verdict = ret;
		}
		report->n_keys++;
		report->n_steps = found.n_steps;
		if (report->n_configs_max < found.n_configs_max)
			report->n_configs_max = found.n_configs_max;
	}
	return verdict;
}

int
lin_check(const struct lin_history *history, const struct lin_options *options,
	  struct lin_report *ret_report)
{
	static const struct lin_options defaults = {(size_t)1 << 18, UINT64_C(1) << 30};
	struct lin_report report = {.reason = LIN_REASON_NONE};
	const struct lin_op **ops;
	size_t i, n = 0;
	int ret;

	if (!options)
		options = &defaults;
	if (history->n_ops > INT32_MAX || options->max_configs - 1 > INT32_MAX - 1)
		return ERR_INVALID;
	ops = calloc(history->n_ops + 1, sizeof(*ops));
	if (!ops)
		return ERR_NOMEM;
	for (i = 0; i < history->n_ops; i++) {
		if (!op_valid(&history->ops[i])) {
			free(ops);
			return ERR_INVALID;
		}
		if (op_counts(&history->ops[i]))
			ops[n++] = &history->ops[i];
	}
	report.n_ops = n;
	ret = check_keys(history, ops, n, options, &report);
	if (ret == LIN_OK || ret == LIN_UNDECIDED)
		ret = check_versions(history, ops, n, &report) == LIN_BAD ? LIN_BAD : ret;
	free(ops);
#ifdef LIN_MUTANT_ALWAYS_OK
	ret = ret < 0 ? ret : LIN_OK;
#endif
	if (ret >= 0)
		*ret_report = report;
	return ret;
}

/* ---- For people ---- */

#define DUMP_OPS 40

static void
dump_op(const struct lin_op *op, FILE *out)
{
	static const char *const kinds[] = {"get", "put",    "add",  "replace",
					    "cas", "delete", "touch"};
	static const char *const results[] = {"done",     "not found", "exists",
					      "mismatch", "open",      "failed"};
	bool has_value = op->kind != LIN_DELETE && op->kind != LIN_TOUCH && op->kind != LIN_GET;

	fprintf(out, "[%" PRId64 ", ", op->invoked);
	if (op->result == LIN_OPEN)
		fprintf(out, "...) ");
	else
		fprintf(out, "%" PRId64 "] ", op->responded);
	fprintf(out, "client %" PRIu32 ": %s", op->client, kinds[op->kind]);
	if (has_value)
		fprintf(out, " value %#" PRIx64, op->value);
	if (op->kind == LIN_CAS)
		fprintf(out, " over version %#" PRIx64, op->expected);
	fprintf(out, " -> %s", results[op->result]);
	if (op->kind == LIN_GET && op->result == LIN_DONE)
		fprintf(out, ", value %#" PRIx64, op->value);
	if (op->version && op->kind != LIN_DELETE &&
	    (op->result == LIN_DONE || op->result == LIN_OPEN))
		fprintf(out, ", version %#" PRIx64, op->version);
	fputc('\n', out);
}

static void
dump_reason(const struct lin_report *report, FILE *out)
{
	static const char *const reasons[] = {
		"is linearisable",
		"cannot be placed: no order explains its answer",
		"leaves no order that explains the answers after it",
		"was given a version that another write has",
		"is where the search gave up: max_configs",
		"is where the search gave up: max_steps",
	};

	fprintf(out, "key %#" PRIx64 ": operation %zu %s\n", report->key, report->op,
		reasons[report->reason]);
}

static void
dump_states(const struct lin_report *report, FILE *out)
{
	size_t i;

	if (report->n_states)
		fprintf(out, "possible states before it and what was in flight:\n");
	for (i = 0; i < report->n_states; i++) {
		const struct lin_state *state = &report->states[i];

		if (!state->present)
			fprintf(out, "    absent\n");
		else if (state->version_known)
			fprintf(out, "    value %#" PRIx64 " version %#" PRIx64 "\n", state->value,
				state->version);
		else
			fprintf(out, "    value %#" PRIx64 ", version not known\n", state->value);
	}
}

/* Did this write make what the blocked operation, or a possible state, speaks of? */
static bool
dump_is_source(const struct lin_op *op, const struct lin_op *blocked,
	       const struct lin_report *report)
{
	size_t i;

	if (op->kind == LIN_GET || op->kind == LIN_DELETE)
		return false;
	if (op->version && (op->version == blocked->version || op->version == blocked->expected))
		return true;
	if (op->kind == LIN_TOUCH)
		return false;
	if (blocked->kind == LIN_GET && blocked->result == LIN_DONE && op->value == blocked->value)
		return true;
	for (i = 0; i < report->n_states; i++)
		if (report->states[i].present && report->states[i].value == op->value)
			return true;
	return false;
}

enum dump_rank { DUMP_NOT, DUMP_AROUND, DUMP_ALWAYS };

/* Around it: since the window began, and open ones. Always: itself, and where values came from. */
static enum dump_rank
dump_rank(const struct lin_op *op, const struct lin_op *blocked, const struct lin_report *report)
{
	if (!op_counts(op))
		return DUMP_NOT;
	if (report->reason == LIN_REASON_VERSION_TWICE)
		return op_made_version(op) && op->version == blocked->version ? DUMP_ALWAYS
									      : DUMP_NOT;
	if (op->key != report->key || op->invoked > blocked->responded)
		return DUMP_NOT;
	if (op == blocked || dump_is_source(op, blocked, report))
		return DUMP_ALWAYS;
	return op->result == LIN_OPEN || op->responded >= report->window_begin ? DUMP_AROUND
									       : DUMP_NOT;
}

/* ops: in the order of invocation. Of those around the blocked one only the last are written. */
static void
dump_ops(const struct lin_op **ops, size_t n, const struct lin_op *blocked,
	 const struct lin_report *report, FILE *out)
{
	size_t i, n_around = 0, n_left_out = 0;

	for (i = 0; i < n; i++)
		n_around += dump_rank(ops[i], blocked, report) == DUMP_AROUND;
	for (i = 0; i < n; i++) {
		if (dump_rank(ops[i], blocked, report) == DUMP_AROUND && n_around-- > DUMP_OPS) {
			n_left_out++;
			continue;
		}
		fputs(ops[i] == blocked ? " => " : "    ", out);
		dump_op(ops[i], out);
	}
	if (n_left_out)
		fprintf(out, "    (%zu earlier ones left out)\n", n_left_out);
}

void
lin_dump(const struct lin_history *history, const struct lin_report *report, FILE *out)
{
	const struct lin_op *blocked = history->ops + report->op;
	const struct lin_op **ops;
	size_t i, n = 0;

	if (report->reason == LIN_REASON_NONE) {
		fprintf(out, "linearisable: %zu operations on %zu keys\n", report->n_ops,
			report->n_keys);
		return;
	}
	dump_reason(report, out);
	dump_states(report, out);
	ops = calloc(history->n_ops, sizeof(*ops));
	if (!ops) {
		dump_op(blocked, out);
		return;
	}
	for (i = 0; i < history->n_ops; i++)
		if (dump_rank(&history->ops[i], blocked, report) != DUMP_NOT)
			ops[n++] = &history->ops[i];
	qsort(ops, n, sizeof(*ops), cmp_op);
	fprintf(out, "operations around it, [invoked, answered]:\n");
	dump_ops(ops, n, blocked, report, out);
	free(ops);
}
