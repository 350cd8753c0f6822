/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Snapshots: the values of the region, read while clients go on, in a file (proto/snapfile.h) of
 * --snapshot-dir. For each key it has a value that was current at some moment while it was taken; a
 * key that nobody wrote meanwhile has its value. Works in slices, from the control loop's thread.
 */
#ifndef RKV_SERVER_SNAPSHOT_H
#define RKV_SERVER_SNAPSHOT_H

#include "proto/snapfile.h"
#include "proto/wire.h"
#include "server/options.h"
#include "server/region.h"
#include "server/sessions.h"
#include "server/writer.h"

/* What is told of one snapshot. */
struct snapshot_account {
	uint32_t number; /* counts up; 0: there is none */
	enum wire_snapshot_phase phase;
	char name[WIRE_SNAPSHOT_NAME_MAX];
	char reason[LIMIT_REASON_MAX]; /* why it failed */
	uint64_t n_records;
	uint64_t n_bytes;
	uint64_t n_unreadable; /* slots whose block never validated, and is left out */
	int64_t began_ns;
	int64_t ended_ns; /* 0: not yet */
};

struct snapshot {
	struct loop *loop;
	const struct log *log;
	struct region *region;
	const struct sessions *sessions;
	int dir_fd; /* -1: no snapshots */
	char dir[OPTIONS_PATH_MAX];
	uint64_t rate; /* bytes a second; 0: no limit */
	int64_t every_ns;
	int64_t next_ns; /* of the next periodic one */
	uint64_t n_done;
	uint64_t n_failed;
	struct snapshot_account now;  /* the latest */
	struct snapshot_account last; /* the one before */
	struct snapshot_account good; /* the latest that is whole */

	/* While one is taken */
	struct loop_op turn; /* until the next slice */
	struct writer writer;
	unsigned char *stage; /* bytes to be appended, of one record at most */
	size_t stage_room;
	size_t stage_len;
	size_t stage_taken; /* of stage_len */
	uint64_t next_slot;
	unsigned tries; /* at next_slot */
	bool at_end;    /* the end is staged */
	uint64_t id;
	uint64_t off; /* in the file, of what is staged next */
	uint64_t digest;
};

/*
 * Failure: the directory of the options cannot be used; the log says why. What is given has to
 * outlive the snapshot.
 */
int snapshot_init(struct snapshot *s, struct loop *loop, const struct log *log,
		  struct region *region, const struct sessions *sessions,
		  const struct options *options);

/*
 * Begins one, whose account is s->now. Failures, with a sentence: ERR_INVALID (the name), ERR_PERM
 * (there is no --snapshot-dir, or another server writes into it), ERR_NOMEM, ERR_CONN; ERR_AGAIN
 * (> 0): one is being taken.
 */
int snapshot_begin(struct snapshot *s, const char *name, char ret_reason[LIMIT_REASON_MAX]);

/* The account of the snapshot with this number (0: the latest), or NULL. */
const struct snapshot_account *snapshot_find(const struct snapshot *s, uint32_t number);

/* How far the one that is being taken is, in thousandths. */
uint32_t snapshot_permille(const struct snapshot *s);

/* Begins the periodic one when it is due. */
void snapshot_tick(struct snapshot *s, int64_t now_ns);

/* After the loop has ended. Accepts one that is zeroed or half-built. */
void snapshot_destroy(struct snapshot *s);

#endif
