/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client on a region whose bytes change behind its back: slots, descriptors, marks and blocks.
 * Whatever it finds there, it stays within the region, [RANGE], and within the caller's memory, and
 * each operation ends.
 */
#include "tests/fault/harness.h"
#include "tests/fuzz/fuzz.h"

#define STEPS_MAX 48
#define TIMEOUT_MS 2u /* virtual */
#define N_KEYS 4u
#define VALUE_MAX 600u

enum step {
	STEP_PUT,
	STEP_GET,
	STEP_DELETE,
	STEP_SLOT,  /* a slot of a key becomes another word, or changes */
	STEP_BLOCK, /* the header of a key's block changes; with a good checksum, or without */
	STEP_CHUNK, /* a chunk's descriptor */
	STEP_MARK,
	STEP_STAMP,
	N_STEPS
};

static const char *const keys[N_KEYS] = {"a", "key", "k2", "another key"};

static uint64_t *
slot_of(struct world *w, const char *key, uint8_t which)
{
	uint64_t off[2 * LAYOUT_COMBINED_SLOTS];
	unsigned n = world_slots(w, key, (uint32_t)strlen(key), off);
	return world_word(w, off[which % n]);
}

/* The first of the key's slots that refers to a block in range; 0: none does. */
static uint64_t
some_word(struct world *w, const char *key)
{
	for (uint8_t i = 0; i < 2 * LAYOUT_COMBINED_SLOTS; i++) {
		uint64_t word = *slot_of(w, key, i);
		if (word && layout_block_in_range(&w->layout, word))
			return word;
	}
	return 0;
}

static void
change_block(struct world *w, const char *key, struct fuzz_input *in)
{
	uint64_t word = some_word(w, key);
	unsigned char by[sizeof(struct block_header)];
	bool is_signed = fuzz_byte(in) & 1;
	fuzz_take(in, by, sizeof(by));
	if (!word)
		return;
	unsigned char *at = w->base + slot_block_off(word);
	struct block_header *h = (void *)at;
	for (size_t i = 0; i < sizeof(by); i++)
		at[i] ^= by[i];
	if (!is_signed || !block_lengths_fit(h, slot_read_len(word)))
		return;
	struct hash hash = hash_key(at + sizeof(*h), h->key_len, w->layout.hash_seed);
	uint64_t digest = block_digest(&hash, at + sizeof(*h) + h->key_len, h->value_len);
	h->checksum = block_checksum(slot_with_state(word, SLOT_COMMITTED), digest, h);
}

/* What happens to the region. */
static void
disturb(struct world *w, enum step step, const char *key, struct fuzz_input *in)
{
	uint64_t word;
	uint8_t which = fuzz_byte(in);
	if (step == STEP_BLOCK) {
		change_block(w, key, in);
		return;
	}
	fuzz_take(in, &word, sizeof(word));
	switch (step) {
	case STEP_SLOT:
		*slot_of(w, key, which) = which & 0x80 ? word : *slot_of(w, key, which) ^ word;
		break;
	case STEP_CHUNK:
		*world_word(w, layout_desc_off(&w->layout, which % w->layout.n_chunks)) ^= word;
		break;
	case STEP_MARK:
		w->base[w->layout.free_map_off +
			word % (w->layout.heap_off - w->layout.free_map_off)] = which;
		break;
	default:
		world_stamp(w, WORLD_STAMP + which, WORLD_STAMP + which / 2u);
	}
}

static bool
is_disturbance(enum step step)
{
	return step >= STEP_SLOT;
}

/* Just before a batch executes: disturbances that come next in the input. */
static void
before_batch(struct world *w, const struct world_batch *batch)
{
	struct fuzz_input *in = w->arg;
	(void)batch;
	fuzz_must(w->n_out_of_range == 0);
	if (!in->len || !(in->at[0] & 0x80) || !is_disturbance(in->at[0] % N_STEPS))
		return;
	uint8_t what = fuzz_byte(in);
	disturb(w, what % N_STEPS, keys[what >> 4 & (N_KEYS - 1)], in);
}

static void
run(struct rkv_session *s, enum step step, const char *key, struct fuzz_input *in)
{
	size_t len = step == STEP_DELETE ? 0 : fuzz_byte(in) * (size_t)3 % VALUE_MAX;
	unsigned char *value = malloc(len ? len : 1);
	fuzz_must(value);
	memset(value, 'v', len);
	struct rkv_request r = {
		.op = step == STEP_PUT   ? RKV_OP_PUT
		      : step == STEP_GET ? RKV_OP_GET
					 : RKV_OP_DELETE,
		.key = key,
		.key_len = strlen(key),
		.options = {.timeout_ms = TIMEOUT_MS},
	};
	if (step == STEP_PUT) {
		r.value = value;
		r.value_len = len;
	} else {
		r.buf = value;
		r.buf_len = len;
	}
	fuzz_must(rkv_run(s, &r, 1) == 0);
	fuzz_must(step != STEP_GET || r.status != RKV_OK || r.item.value_len <= len);
	free(value);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct world_shape shape = {
		.n_groups = 2, .chunk_size = 4096, .n_chunks = 8, .cache_bytes = 4096};
	struct fuzz_input in = {data, size};
	struct world *w = world_open(&shape);
	struct rkv_session *s = world_session(w);
	w->arg = &in;
	w->before = before_batch;
	for (int i = 0; i < STEPS_MAX && in.len; i++) {
		uint8_t what = fuzz_byte(&in);
		enum step step = what % N_STEPS;
		const char *key = keys[what >> 4 & (N_KEYS - 1)];
		if (is_disturbance(step))
			disturb(w, step, key, &in);
		else
			run(s, step, key, &in);
	}
	fuzz_must(w->n_out_of_range == 0);
	world_close(w);
	return 0;
}
