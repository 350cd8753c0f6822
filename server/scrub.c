/* SPDX-License-Identifier: BSD-2-Clause */
/* Looking for what nobody will mend, and mending it: scrub.h. */
#include "server/scrub.h"

#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "server/expire.h"
#include "server/unlink.h"

#define TURN_BYTES (UINT64_C(64) << 20) /* of a pass, between two hurried ones */
#define STEPS_MAX 16u                   /* of a tick: then it has come to its end a few times */
#define UNLINK_BYTES 4096u              /* a CAS takes as long as looking at so many bytes */

int
scrub_create(struct scrub *s, const struct reach *reach)
{
	*s = (struct scrub){.reach = reach, .turn = TURN_BYTES};
	s->suspects = calloc(SCRUB_LIST_MAX, sizeof(*s->suspects));
	s->words = calloc(SCRUB_LIST_MAX, sizeof(*s->words));
	if (s->suspects && s->words)
		return 0;
	scrub_destroy(s);
	return ERR_NOMEM;
}

void
scrub_destroy(struct scrub *s)
{
	free(s->suspects);
	free(s->words);
	*s = (struct scrub){0};
}

void
scrub_told(struct scrub *s, uint64_t n_died, uint64_t n_ended)
{
	s->is_idle &= n_ended == s->n_ended;
	s->wants_hurry |= n_died != s->n_died;
	s->n_ended = n_ended;
	s->n_died = n_died;
}

bool
scrub_is_wanted(const struct scrub *s, bool is_anybody_there)
{
	return is_anybody_there || !s->is_idle || s->wants_hurry || s->pass.is_under_way ||
	       s->hurried.is_under_way || s->pass.has_expiries;
}

/* ---- Looking ---- */

/* The pass that is looking; the dead go first. */
static struct scrub_pass *
present_pass(struct scrub *s)
{
	return s->hurried.is_under_way ? &s->hurried : &s->pass;
}

static bool
is_orphan(uint64_t desc)
{
	return chunk_state(desc) == CHUNK_ORPHAN;
}

static void
note_word(struct scrub *s, uint64_t off, uint64_t word)
{
	if (word == 0 || slot_state(word) != SLOT_TENTATIVE ||
	    !blocks_explain(s->reach, off, word)) /* no client has written such a word */
		return;
	s->words[s->n_words++] = (struct scrub_word){off, word};
}

/* Looks at a group of buckets. */
static void
look_at_group(struct scrub *s, struct scrub_pass *pass)
{
	const struct layout *l = s->reach->layout;
	uint64_t group = l->index_off + pass->group++ * LAYOUT_GROUP_LEN;
	const char *bytes = reach_at(s->reach, group, LAYOUT_GROUP_LEN);
	for (uint32_t at = 0; at < LAYOUT_GROUP_LEN; at += 8)
		if (at % LAYOUT_BUCKET_LEN != 0)
			note_word(s, group + at, reach_word(bytes + at));
}

/* Returns what it took, in bytes looked at. */
static uint64_t
look_for_expiry(struct scrub *s, struct scrub_pass *pass, const struct blocks_look *look)
{
	pass->has_expiries |= look->header.expiry != 0;
	if (!expire_is_over(s->reach, &look->header))
		return 0;
	int rc = expire_block(s->reach, look);
	if (rc == 0) {
		s->counts.n_expired++;
		s->counts.n_expired_bytes += look->len;
	} else if (rc < 0) {
		s->counts.n_doubts++;
		s->pass.n_mended++; /* there may be more to do */
	}
	return UNLINK_BYTES;
}

static uint64_t
look_at_block(struct scrub *s, struct scrub_pass *pass)
{
	struct blocks_look look;
	uint64_t off = blocks_walk_next(s->reach, &pass->walk);
	blocks_look(s->reach, off, pass->walk.len, &look);
	if (pass == &s->pass)
		s->tallying.bytes[chunk_class(pass->walk.desc)][look.kind] += look.len;
	if (look.kind == BLOCKS_LIVE)
		look.n_bytes += look_for_expiry(s, pass, &look);
	else if (look.kind == BLOCKS_LOOSE)
		s->suspects[s->n_suspects++] = (struct scrub_suspect){off, look.header, look.len};
	return look.n_bytes;
}

/* The look, or a part of it, is over: what it has noted is settled, if anything. */
static void
end_look(struct scrub *s)
{
	s->moment = s->reach->calls->moment(s->reach->arg);
	s->phase = s->n_suspects || s->n_words ? SCRUB_FIRST_STAMP : SCRUB_MARK;
	s->next = 0;
	s->n_kept = 0;
}

/* A pass has looked at everything; a hurried one has not. */
static void
keep_tally(struct scrub *s, const struct scrub_pass *pass)
{
	if (pass != &s->pass)
		return;
	s->tally = s->tallying;
	s->tally.moment = s->moment;
	memset(&s->tallying, 0, sizeof(s->tallying));
}

/* Shall the pass make way for a hurried one? */
static bool
makes_way(const struct scrub *s)
{
	return s->wants_hurry && !s->hurried.is_under_way && s->turn >= TURN_BYTES;
}

static uint64_t
look_at_slots(struct scrub *s, uint64_t bytes)
{
	struct scrub_pass *pass = present_pass(s);
	uint64_t n = 0;
	for (; n < bytes && pass->group < s->reach->layout->n_groups; n += LAYOUT_GROUP_LEN) {
		if (s->n_words + LAYOUT_GROUP_SLOTS > SCRUB_LIST_MAX || makes_way(s)) {
			end_look(s);
			return n;
		}
		look_at_group(s, pass);
	}
	if (pass->group == s->reach->layout->n_groups)
		s->phase = SCRUB_BLOCKS;
	return n;
}

static uint64_t
look_at_blocks(struct scrub *s, uint64_t bytes)
{
	struct scrub_pass *pass = present_pass(s);
	uint64_t n = 0, n_doubts = s->counts.n_doubts;
	while (n < bytes) {
		if (s->n_suspects == SCRUB_LIST_MAX || makes_way(s)) {
			end_look(s);
			return n;
		}
		if (blocks_walk_on(s->reach, &pass->walk, pass == &s->hurried ? is_orphan : NULL))
			n += look_at_block(s, pass);
		else if (!blocks_walk_is_over(s->reach, &pass->walk))
			return bytes; /* many chunks were passed over */
		else
			break;
		if (s->counts.n_doubts != n_doubts)
			return bytes; /* each failure takes its time */
	}
	if (blocks_walk_is_over(s->reach, &pass->walk)) {
		end_look(s);
		keep_tally(s, pass);
	}
	return n;
}

/* ---- Mending ---- */

static void
count_marked(struct scrub *s, uint64_t len)
{
	s->counts.n_marked++;
	s->counts.n_marked_bytes += len;
	s->pass.n_mended++;
}

/* Is the next suspect as it was when it was noted? */
static bool
is_still_loose(struct scrub *s, const struct scrub_suspect *suspect, uint64_t *bytes)
{
	struct blocks_look look;
	blocks_look(s->reach, suspect->off, suspect->len, &look);
	*bytes += look.n_bytes;
	return look.kind == BLOCKS_LOOSE &&
	       memcmp(&look.header, &suspect->header, sizeof(look.header)) == 0;
}

static uint64_t
check(struct scrub *s, uint64_t bytes)
{
	uint64_t n = 0;
	for (; s->next < s->n_suspects && n < bytes; s->next++)
		if (is_still_loose(s, &s->suspects[s->next], &n))
			s->suspects[s->n_kept++] = s->suspects[s->next];
	if (s->next == s->n_suspects) {
		s->n_suspects = s->n_kept;
		s->next = 0;
		s->phase = SCRUB_KILL;
	}
	return n;
}

/* False: the outcome is not known. */
static bool
kill_word(struct scrub *s, const struct scrub_word *w)
{
	if (reach_word(reach_at(s->reach, w->off, 8)) != w->word)
		return true;
	int rc = unlink_word(s->reach, w->off, w->word);
	if (rc == 0) {
		s->counts.n_kills++;
		count_marked(s, slot_read_len(w->word));
	}
	return rc >= 0;
}

/* Behind one failure nothing else is tried: each takes its time, and the next pass comes by. */
static uint64_t
kill_words(struct scrub *s, uint64_t bytes)
{
	uint64_t n = 0;
	for (; s->next < s->n_words && n < bytes; n += UNLINK_BYTES) {
		if (kill_word(s, &s->words[s->next++]))
			continue;
		s->counts.n_doubts++;
		s->pass.n_mended++;
		s->next = s->n_words;
	}
	if (s->next == s->n_words) {
		s->n_words = 0;
		s->next = 0;
		s->moment = s->reach->calls->moment(s->reach->arg);
		s->phase = s->n_suspects ? SCRUB_SECOND_STAMP : SCRUB_MARK;
	}
	return n;
}

static void
end_pass(struct scrub *s, struct scrub_pass *pass)
{
	pass->is_under_way = false;
	if (pass == &s->hurried) {
		s->counts.n_hurried++;
		s->turn = 0;
		return;
	}
	s->counts.n_passes++;
	s->is_idle = pass->n_mended == 0 && pass->n_ended == s->n_ended;
}

static uint64_t
mark(struct scrub *s, uint64_t bytes)
{
	uint64_t n = 0;
	struct scrub_pass *pass = present_pass(s);
	for (; s->next < s->n_suspects && n < bytes; s->next++) {
		const struct scrub_suspect *suspect = &s->suspects[s->next];
		if (!is_still_loose(s, suspect, &n))
			continue;
		s->reach->calls->mark(s->reach->arg, suspect->off, block_tag(&suspect->header));
		count_marked(s, suspect->len);
	}
	if (s->next < s->n_suspects)
		return n;
	s->n_suspects = 0;
	if (blocks_walk_is_over(s->reach, &pass->walk))
		end_pass(s, pass);
	s->phase = SCRUB_CHOOSE;
	return n;
}

/* ---- Steps ---- */

static void
begin_pass(struct scrub *s, struct scrub_pass *pass)
{
	*pass = (struct scrub_pass){.is_under_way = true, .n_ended = s->n_ended};
}

/* What to look at next: for the dead, else on with the pass under way, else anew. */
static void
choose(struct scrub *s)
{
	if (makes_way(s)) {
		begin_pass(s, &s->hurried);
		s->wants_hurry = false;
	}
	struct scrub_pass *pass = present_pass(s);
	if (!pass->is_under_way)
		begin_pass(s, pass);
	s->phase = SCRUB_SLOTS; /* if they have been looked at it goes on to the blocks */
}

/* Returns how many bytes it has looked at. */
static uint64_t
go_on(struct scrub *s, uint64_t bytes)
{
	uint64_t n = 0;
	switch (s->phase) {
	case SCRUB_CHOOSE:
		choose(s);
		break;
	case SCRUB_SLOTS:
		n = look_at_slots(s, bytes);
		break;
	case SCRUB_BLOCKS:
		n = look_at_blocks(s, bytes);
		break;
	case SCRUB_FIRST_STAMP:
		s->phase = SCRUB_CHECK;
		break;
	case SCRUB_CHECK:
		return check(s, bytes);
	case SCRUB_KILL:
		return kill_words(s, bytes);
	case SCRUB_SECOND_STAMP:
		s->phase = SCRUB_MARK;
		break;
	case SCRUB_MARK:
		return mark(s, bytes);
	}
	s->turn += n;
	return n;
}

/* 0 bytes: it went on to another phase; UINT64_MAX: it waits. */
static uint64_t
step(struct scrub *s, uint64_t bytes)
{
	const struct reach *reach = s->reach;
	bool waits = s->phase == SCRUB_FIRST_STAMP || s->phase == SCRUB_SECOND_STAMP;
	if (waits && !reach->calls->has_passed(reach->arg, s->moment))
		return UINT64_MAX;
	reach->calls->hold(reach->arg);
	uint64_t n = go_on(s, bytes);
	reach->calls->let_go(reach->arg);
	return n;
}

bool
scrub_step(struct scrub *s, uint64_t bytes)
{
	return step(s, bytes) != UINT64_MAX;
}

void
scrub_tick(struct scrub *s, uint64_t bytes)
{
	uint64_t n = 0;
	for (unsigned i = 0; i < STEPS_MAX && n < bytes; i++) {
		uint64_t more = step(s, bytes - n);
		if (more == UINT64_MAX)
			return;
		n += more;
	}
}
