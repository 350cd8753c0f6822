/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Taking a snapshot: snapshot.h.
 *
 *   begin -> header staged -> slices: { slot by slot: word, block, judge, record staged } -> end
 *   staged -> the writer; it has no room: wait until it has
 *   done: all appended and the file under its name, or the reason why not
 *
 * A slot is handled at one go: its word is sampled, the block copied and judged against the word as
 * a GET does, [SELF-ID]; the record is of the moment when the word was sampled, [G4]. The thread
 * that does so is the one that issues stamps, and issues none on the way: nothing that needs the
 * stamp of a later moment happens meanwhile, so that the word cannot recur, [WRAP]. In that sense a
 * slot is an epoch of its own, and the snapshotter needs no A, [STAMP].
 *
 * A key that is there throughout keeps its slot (an UPDATE stays in place), so that the scan cannot
 * miss it. One that was deleted and stored again elsewhere was absent at some moment, and may be
 * missed, or met twice: then the later record in the file is the newer value.
 */
#include "server/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/execute.h"

#define SLICE_NS CLOCK_NS_PER_MS
#define RETRY_MS 1
#define TRIES_SLICE 16u /* looks at one slot before others have their turn */
#define TRIES_MAX 4096u /* after which its block counts as unreadable */
#define PERIODIC "periodic"
#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

/* ---- Set-up ---- */

static int
open_directory(struct snapshot *s, bool may_make)
{
	if (may_make)
		(void)mkdir(s->dir, 0750); /* opening it tells how that went */
	s->dir_fd = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->dir_fd >= 0 && faccessat(s->dir_fd, ".", W_OK | X_OK, AT_EACCESS) == 0)
		return 0;
	log_line(s->log, LOG_ERROR,
		 "--snapshot-dir %s: %s: a directory is wanted that this user may write into",
		 s->dir, strerror(errno));
	return err_from_errno(errno);
}

int
snapshot_init(struct snapshot *s, struct loop *loop, const struct log *log, struct region *region,
	      const struct sessions *sessions, const struct options *options)
{
	*s = (struct snapshot){
		.loop = loop,
		.log = log,
		.region = region,
		.sessions = sessions,
		.dir_fd = -1,
		.rate = options->snapshot_rate,
		.every_ns = options->snapshot_every_s * CLOCK_NS_PER_S,
	};
	s->next_ns = clock_now_ns() + s->every_ns;
	snprintf(s->dir, sizeof(s->dir), "%s", options->snapshot_dir);
	return s->dir[0] ? open_directory(s, options_are_of_more(options)) : 0;
}

static void
release(struct snapshot *s)
{
	free(s->stage);
	s->stage = NULL;
}

void
snapshot_destroy(struct snapshot *s)
{
	if (!s->loop)
		return;
	writer_release(&s->writer);
	release(s);
	if (s->dir_fd >= 0)
		close(s->dir_fd);
	s->loop = NULL;
}

/* ---- Staging ---- */

/* Signs what is staged as the next piece of the file. */
static void
staged(struct snapshot *s, size_t len)
{
	uint64_t checksum = snapfile_checksum(s->id, s->off, s->stage, len);
	memcpy(s->stage, &checksum, sizeof(checksum));
	s->stage_len = len;
	s->stage_taken = 0;
	s->off += len;
	s->digest = snapfile_digest(s->digest, checksum);
}

static void
stage_header(struct snapshot *s)
{
	const struct layout *l = &s->region->layout;
	struct snapfile_header h = {
		.magic = SNAPFILE_MAGIC,
		.version = SNAPFILE_VERSION,
		.len = sizeof(h),
		.id = s->id,
		.began_s = (uint64_t)time(NULL),
		.region_id = s->region->region_id,
		.region_len = l->region_len,
		.chunk_size = l->chunk_size,
		.index_slots = l->n_groups * LAYOUT_GROUP_SLOTS,
	};
	h.checksum = snapfile_header_checksum(&h);
	memcpy(s->stage, &h, sizeof(h));
	s->stage_len = s->off = sizeof(h);
	s->stage_taken = 0;
}

static void
stage_end(struct snapshot *s)
{
	struct snapfile_end end = {
		.kind = SNAPFILE_END,
		.n_records = s->now.n_records,
		.digest = s->digest,
		.next_serial = s->sessions->next_serial,
		.ended_s = (uint64_t)time(NULL),
	};
	memcpy(s->stage, &end, sizeof(end));
	staged(s, sizeof(end));
	size_t zeros = layout_round_up(s->off, SNAPFILE_PAGE) - s->off;
	memset(s->stage + s->stage_len, 0, zeros);
	s->stage_len += zeros;
	s->off += zeros;
	s->at_end = true;
}

/* Makes a record of the block that is staged: key and value stay where they are. */
static void
stage_record(struct snapshot *s)
{
	static_assert(sizeof(struct snapfile_record) == BLOCK_HEADER_LEN, "one takes the other's "
									  "place");
	struct block_header h;
	memcpy(&h, s->stage, sizeof(h));
	struct snapfile_record record = {
		.kind = SNAPFILE_RECORD,
		.key_len = h.key_len,
		.value_len = h.value_len,
		.version = h.version,
		.expiry_s = h.expiry ? s->region->layout.formatted_s + h.expiry : 0,
		.user_flags = h.user_flags,
	};
	size_t used = block_len(h.key_len, h.value_len);
	size_t len = snapfile_record_len(h.key_len, h.value_len);
	memcpy(s->stage, &record, sizeof(record));
	memset(s->stage + used, 0, len - used);
	staged(s, len);
	s->now.n_records++;
}

/* ---- Slots ---- */

/* Copies the block that a committed word refers to; false: it does not name itself, [SELF-ID]. */
static bool
stage_block(struct snapshot *s, uint64_t word)
{
	const struct layout *l = &s->region->layout;
	const unsigned char *base = pool_base(s->region->pool);
	struct block_header *h = (struct block_header *)(void *)s->stage;
	if (!layout_block_in_range(l, word)) /* [RANGE] */
		return false;
	uint64_t off = slot_block_off(word), room = slot_read_len(word);
	execute_read(s->stage, base + off, room);
	if (block_tag(h) != slot_tag(word) || !block_lengths_fit(h, room))
		return false;
	const unsigned char *key = (const unsigned char *)(h + 1);
	struct hash hash = hash_key(key, h->key_len, l->hash_seed);
	uint64_t digest = block_digest(&hash, key + h->key_len, h->value_len);
	return block_word(off, h, &hash) == word && h->checksum == block_checksum(word, digest, h);
}

/* As a client would say of a block. */
static bool
is_expired(const struct snapshot *s, uint32_t expiry)
{
	struct timespec now;
	if (expiry == 0)
		return false;
	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec + (now.tv_nsec > 0) > s->region->layout.formatted_s + expiry;
}

static void
give_up_slot(struct snapshot *s, uint64_t off, uint64_t word)
{
	if (s->now.n_unreadable++ == 0)
		log_line(s->log, LOG_WARN,
			 "snapshot %s: the block of the word %016" PRIx64 " in the slot at offset "
			 "%" PRIu64 " is not valid: left out (further ones are only counted)",
			 s->now.name, word, off);
}

/* Looks at the next slot; false: it has to be looked at again, later. */
static bool
take_slot(struct snapshot *s)
{
	uint64_t off = layout_slot_off(&s->region->layout, s->next_slot), word;
	for (;;) {
		word = region_word(s->region, off);
		if (word == 0 || slot_state(word) != SLOT_COMMITTED)
			break;
		if (stage_block(s, word)) {
			const struct block_header *h = (const void *)s->stage;
			if (!is_expired(s, h->expiry))
				stage_record(s);
			break;
		}
		if (++s->tries == TRIES_MAX) {
			give_up_slot(s, off, word);
			break;
		}
		if (s->tries % TRIES_SLICE == 0)
			return false;
	}
	s->tries = 0;
	s->next_slot++;
	return true;
}

/* ---- Slices ---- */

static void turn(struct loop_op *op, int result);

/* When the next slice may begin, as the rate says. */
static unsigned
pause_ms(const struct snapshot *s)
{
	if (!s->rate)
		return 0;
	unsigned __int128 due_ns = (unsigned __int128)s->off * CLOCK_NS_PER_S / s->rate;
	int64_t spent_ns = clock_now_ns() - s->now.began_ns;
	if (due_ns <= (uint64_t)spent_ns)
		return 0;
	uint64_t ms = ((uint64_t)due_ns - (uint64_t)spent_ns) / CLOCK_NS_PER_MS + 1;
	return ms < 1000 ? (unsigned)ms : 1000;
}

static void
take_turn(struct snapshot *s, unsigned delay_ms)
{
	if (loop_is_idle(&s->turn)) /* one that failed may have left its own */
		loop_timer(s->loop, &s->turn, delay_ms, turn);
}

/* Hands on what is staged; false: the writer has no room, and will call. */
static bool
push(struct snapshot *s)
{
	s->stage_taken +=
		writer_append(&s->writer, s->stage + s->stage_taken, s->stage_len - s->stage_taken);
	s->now.n_bytes = s->off - (s->stage_len - s->stage_taken);
	return s->stage_taken == s->stage_len;
}

static void
turn(struct loop_op *op, int result)
{
	struct snapshot *s = (void *)((char *)op - offsetof(struct snapshot, turn));
	if (result == -ECANCELED || s->now.phase != WIRE_SNAPSHOT_RUNNING)
		return;
	unsigned delay_ms;
	int64_t until_ns = clock_now_ns() + SLICE_NS;
	uint64_t n_slots = s->region->layout.n_groups * LAYOUT_GROUP_SLOTS;
	while ((delay_ms = pause_ms(s)) == 0) {
		if (!push(s))
			return;
		if (s->at_end) {
			writer_finish(&s->writer);
			return;
		}
		if (s->next_slot == n_slots)
			stage_end(s);
		else if (!take_slot(s))
			break;
		if (clock_now_ns() >= until_ns)
			break;
	}
	take_turn(s, s->tries ? RETRY_MS : delay_ms);
}

static void
room(struct writer *writer)
{
	struct snapshot *s = (void *)((char *)writer - offsetof(struct snapshot, writer));
	take_turn(s, 0);
}

static void
done(struct writer *writer, const char *reason)
{
	struct snapshot *s = (void *)((char *)writer - offsetof(struct snapshot, writer));
	struct snapshot_account *now = &s->now;
	now->ended_ns = clock_now_ns();
	release(s);
	if (reason) {
		now->phase = WIRE_SNAPSHOT_FAILED;
		snprintf(now->reason, sizeof(now->reason), "%s", reason);
		s->n_failed++;
		log_line(s->log, LOG_ERROR, "snapshot %s: %s", now->name, reason);
		return;
	}
	now->phase = WIRE_SNAPSHOT_DONE;
	s->good = *now;
	s->n_done++;
	log_line(s->log, LOG_INFO,
		 "snapshot %s: %" PRIu64 " records, %" PRIu64 " bytes, %" PRId64 " ms, %" PRIu64
		 " unreadable",
		 now->name, now->n_records, now->n_bytes,
		 (now->ended_ns - now->began_ns) / CLOCK_NS_PER_MS, now->n_unreadable);
}

/* ---- Beginning ---- */

/* What is left of a path inside the directory; a name stays as it is. */
static const char *
name_in_directory(const struct snapshot *s, const char *name)
{
	size_t len = strlen(s->dir);
	while (len > 1 && s->dir[len - 1] == '/')
		len--;
	return strncmp(name, s->dir, len) == 0 && name[len] == '/' ? name + len + 1 : name;
}

static int
check_name(const struct snapshot *s, const char *name, char *reason)
{
	size_t len = strlen(name);
	if (len >= 1 && len < WRITER_NAME_MAX && strspn(name, NAME_CHARACTERS) == len &&
	    name[0] != '.' && name[0] != '-')
		return 0;
	snprintf(reason, LIMIT_REASON_MAX,
		 "a snapshot has a name of 1 to %u letters, digits, '.', '_' and '-', of which the "
		 "first is no '.' and no '-'; it lies in the server's --snapshot-dir, %.150s",
		 WRITER_NAME_MAX - 1, s->dir);
	return ERR_INVALID;
}

static int
open_files(struct snapshot *s, const char *name, char *reason)
{
	const struct layout *l = &s->region->layout;
	s->stage_room = layout_round_up(l->chunk_size + SNAPFILE_PAGE, SNAPFILE_PAGE);
	s->stage = malloc(s->stage_room);
	if (!s->stage || getrandom(&s->id, sizeof(s->id), 0) != (ssize_t)sizeof(s->id)) {
		snprintf(reason, LIMIT_REASON_MAX, "no memory, or no random number, is left");
		release(s);
		return ERR_NOMEM;
	}
	s->writer.loop = s->loop;
	s->writer.log = s->log;
	s->writer.dir_fd = s->dir_fd;
	s->writer.room = room;
	s->writer.done = done;
	int rc = writer_open(&s->writer, name, reason);
	if (rc)
		release(s);
	return rc;
}

int
snapshot_begin(struct snapshot *s, const char *name, char ret_reason[LIMIT_REASON_MAX])
{
	if (s->dir_fd < 0) {
		snprintf(ret_reason, LIMIT_REASON_MAX,
			 "the server takes no snapshots: start it with --snapshot-dir");
		return ERR_PERM;
	}
	if (s->now.phase == WIRE_SNAPSHOT_RUNNING) {
		snprintf(ret_reason, LIMIT_REASON_MAX,
			 "the snapshot %s is being taken (%u of 1000 parts): try again after it",
			 s->now.name, snapshot_permille(s));
		return ERR_AGAIN;
	}
	name = name_in_directory(s, name);
	int rc = check_name(s, name, ret_reason);
	if (rc == 0)
		rc = open_files(s, name, ret_reason);
	if (rc)
		return rc;
	s->last = s->now;
	s->now = (struct snapshot_account){
		.number = s->last.number + 1,
		.phase = WIRE_SNAPSHOT_RUNNING,
		.began_ns = clock_now_ns(),
	};
	snprintf(s->now.name, sizeof(s->now.name), "%s", name);
	s->next_slot = s->digest = 0;
	s->tries = 0;
	s->at_end = false;
	stage_header(s);
	take_turn(s, 0);
	return 0;
}

void
snapshot_tick(struct snapshot *s, int64_t now_ns)
{
	char reason[LIMIT_REASON_MAX];
	if (!s->every_ns || now_ns < s->next_ns)
		return;
	s->next_ns = now_ns + s->every_ns;
	if (snapshot_begin(s, PERIODIC, reason))
		log_line(s->log, LOG_WARN, "snapshot " PERIODIC ": %s", reason);
}

/* ---- Asking ---- */

const struct snapshot_account *
snapshot_find(const struct snapshot *s, uint32_t number)
{
	if (number == 0 || number == s->now.number)
		return &s->now;
	return number == s->last.number ? &s->last : NULL;
}

uint32_t
snapshot_permille(const struct snapshot *s)
{
	uint64_t n_slots = s->region->layout.n_groups * LAYOUT_GROUP_SLOTS;
	return (uint32_t)(s->next_slot * 1000 / n_slots);
}
