/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counting and sweeping: census.h. A pass over the chunk table is what ends a session for good: it
 * begins with sessions_sweep_begin and, if no CAS failed on the way, ends with sessions_sweep_end.
 * A slice takes some milliseconds at most, so that stamps stay punctual on the largest tables.
 */
#include "server/census.h"

#include <inttypes.h>
#include <string.h>

#include "common/err.h"

#define SLICE_CHUNKS (UINT64_C(1) << 20)
#define SLICE_GROUPS_MIN (UINT64_C(1) << 12)
#define SLICE_GROUPS_MAX (UINT64_C(1) << 16)
#define TAKE_TRIES 16   /* nobody else may change such a descriptor; an adopter might once */
#define INDEX_TICKS 64u /* an index pass takes so many ticks, if its slices allow */
/* Then a client has seen what has become of them: it looks through others' chunks every second. */
#define COMING_STAMPS (3000u / LIMIT_STAMP_MS)

void
census_init(struct census *census, struct region *region, struct sessions *sessions,
	    const struct log *log)
{
	memset(census, 0, sizeof(*census));
	census->region = region;
	census->sessions = sessions;
	census->log = log;
	census->n_chunks[CHUNK_FREE] = region->layout.n_chunks;
}

static void
expect_chunks(struct census *census)
{
	census->coming_until = census->sessions->newest + COMING_STAMPS;
}

static bool
owner_is_over(const struct census *census, uint64_t desc)
{
	return chunk_owner(desc) && !sessions_is_living(census->sessions, chunk_owner(desc));
}

/* Makes a descriptor name nobody; returns it as it is then. What its owner held becomes ORPHAN. */
static uint64_t
take_chunk(struct census *census, uint64_t off, uint64_t desc)
{
	/* One failure a pass: over verbs each may take its time. */
	for (int tries = 0; !census->failed && owner_is_over(census, desc); tries++) {
		enum chunk_state state = chunk_state(desc);
		uint64_t taken = chunk_next(desc, state == CHUNK_OWNED ? CHUNK_ORPHAN : state,
					    chunk_class(desc), 0);
		uint64_t found;
		int rc = tries < TAKE_TRIES ? region_cas(census->region, off, desc, taken, &found)
					    : ERR_CORRUPT;
		if (rc) {
			log_line(census->log, census->told ? LOG_DEBUG : LOG_ERROR,
				 "cannot take the chunk with the descriptor at offset %" PRIu64
				 " from a session that is over: %s",
				 off, err_str(rc));
			census->failed = true;
			census->told = true;
			return desc;
		}
		census->n_taken += found == desc;
		desc = found == desc ? taken : found;
		expect_chunks(census);
	}
	return desc;
}

static void
end_chunk_pass(struct census *census)
{
	memcpy(census->n_chunks, census->counting, sizeof(census->n_chunks));
	memset(census->counting, 0, sizeof(census->counting));
	memcpy(census->class_chunks, census->class_counting, sizeof(census->class_chunks));
	memset(census->class_counting, 0, sizeof(census->class_counting));
	census->next_chunk = 0;
	if (census->failed)
		return;
	census->told = false;
	sessions_sweep_end(census->sessions);
}

static void
look_at_chunks(struct census *census)
{
	const struct layout *layout = &census->region->layout;
	if (census->next_chunk == 0) {
		census->failed = false;
		sessions_sweep_begin(census->sessions);
	}
	for (uint64_t n = 0; n < SLICE_CHUNKS && census->next_chunk < layout->n_chunks; n++) {
		uint64_t off = layout_desc_off(layout, census->next_chunk++);
		uint64_t desc = take_chunk(census, off, region_word(census->region, off));
		census->counting[chunk_state(desc) & 3]++;
		if (chunk_state(desc) != CHUNK_FREE && chunk_class(desc) < LAYOUT_CLASSES_MAX)
			census->class_counting[chunk_class(desc)]++;
	}
	if (census->next_chunk == layout->n_chunks)
		end_chunk_pass(census);
}

static void
look_at_bucket(struct census *census, uint64_t bucket_off)
{
	for (unsigned i = 1; i <= LAYOUT_BUCKET_SLOTS; i++) {
		uint64_t word = region_word(census->region, bucket_off + i * 8);
		census->counting_used += !slot_is_empty(word);
		if (slot_state(word) == SLOT_COMMITTED &&
		    layout_block_in_range(&census->region->layout, word)) /* [RANGE] */
			census->live_counting[layout_class_of(
				slot_size_granules(slot_read_code(word)))]++;
	}
}

static void
look_at_index(struct census *census)
{
	const struct layout *layout = &census->region->layout;
	uint64_t slice = layout->n_groups / INDEX_TICKS;
	slice = slice < SLICE_GROUPS_MIN ? SLICE_GROUPS_MIN : slice;
	slice = slice > SLICE_GROUPS_MAX ? SLICE_GROUPS_MAX : slice;
	for (uint64_t n = 0; n < slice && census->next_group < layout->n_groups; n++) {
		uint64_t off = layout->index_off + census->next_group++ * LAYOUT_GROUP_LEN;
		for (unsigned i = 0; i < LAYOUT_GROUP_LEN / LAYOUT_BUCKET_LEN; i++)
			look_at_bucket(census, off + i * LAYOUT_BUCKET_LEN);
	}
	if (census->next_group < layout->n_groups)
		return;
	census->n_used = census->counting_used;
	census->counting_used = 0;
	memcpy(census->class_live, census->live_counting, sizeof(census->class_live));
	memset(census->live_counting, 0, sizeof(census->live_counting));
	census->next_group = 0;
	census->n_index_passes++;
}

int
census_take_all(struct census *census)
{
	do
		look_at_chunks(census);
	while (census->next_chunk);
	return census->failed ? ERR_CONN : 0;
}

void
census_tick(struct census *census)
{
	look_at_chunks(census);
	look_at_index(census);
}

void
census_hurry(struct census *census)
{
	if (census->sessions->n_ending && census->next_chunk == 0)
		look_at_chunks(census);
}

void
census_finish_ending(struct census *census)
{
	/* A pass under way may have begun before the sessions ended: then one more is needed. */
	for (int passes = 0; passes < 2 && census->sessions->n_ending;) {
		look_at_chunks(census);
		passes += census->next_chunk == 0;
	}
}

bool
census_chunks_short(const struct census *census)
{
	return census->n_chunks[CHUNK_FREE] < layout_chunks_few(census->region->layout.n_chunks);
}

void
census_told_of_draining(struct census *census, uint32_t n_draining)
{
	if (n_draining &&
	    census->sessions->n_living > 1) /* one alone knows itself what it drains */
		expect_chunks(census);
}

bool
census_chunks_coming(const struct census *census)
{
	return census->sessions->n_ending || census->sessions->newest < census->coming_until;
}
