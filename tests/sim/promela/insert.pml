/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * INSERT, UPDATE, DELETE and GET of one key, whose words may stand in either of two slots: who
 * may remove which word, and to whom its block belongs then.
 *
 * Modelled. Slots change by CAS only, [ONE-WORD]. READ A and READ B are two samples, in any
 * order. A PUT becomes an UPDATE or, when the key is absent, an INSERT: a tentative word behind
 * which the slots are sampled [I1], a look at every rival [I2], withdrawing before a lower slot
 * and killing a rival that stays [I3], killing a higher one [I4], the commit [I5], and the
 * ownership of blocks [I6]. How long somebody waits before he kills is no promise to anybody:
 * he may do so at once or never. [WHO-FREES]: the winner of a CAS marks the block of the word
 * he took out, in a later step of his; his own block, never published, is marked by its owner
 * when the operation ends. What is marked may have been recycled or not: its block validates or
 * does not, both are explored. An operation has ATTEMPTS blocks; when it needs another one its
 * deadline is over. A process that stops for ever is a prefix of a run, and every prefix is
 * checked. With LOSSES the connection is lost with a CAS outstanding, which was executed or was
 * not, and its operation finds out what it can: PROTOCOL's "Outcome unknown".
 *
 * Abstracted away. Other keys and fingerprints: reuse.pml has them, as it has recycling itself,
 * tags and stamps. Here each block id is used once, so that one id is one incarnation. The
 * order of the verbs in a batch is that of the text: what a weaker memory does is explored with
 * the code itself (test_store). Expiry, compare-and-swap and add are UPDATE or INSERT with a
 * test before it.
 *
 * Asserted. At most one committed word. No block is marked that a slot refers to, none twice,
 * and no marked block is published. A successful PUT was published, [HONEST]. What a GET or a
 * missed DELETE returns was the key's state at some instant of its interval, [G4]. When all
 * have ended without a loss, each block is referred to or marked. Nobody waits for ever.
 *
 * Each rule can be taken out with -D; test_model.sh lists the names and expects a violation for
 * each.
 */
#ifndef PUTS
#define PUTS 2
#endif
#ifndef DELETES
#define DELETES 1
#endif
#ifndef GETS
#define GETS 1
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef LOSSES
#define LOSSES 0
#endif

/* A word: 0, or state and block. Deleted words keep their block: no two empty words look alike. */
#define COMMITTED(b) (b)
#define TENTATIVE(b) (16 + (b))
#define DELETED(b) (32 + (b))
#define block_of(w) ((w) & 15)
#define is_committed(w) ((w) > 0 && (w) < 16)
#define is_tentative(w) ((w) >= 16 && (w) < 32)
#define refers(w) ((w) > 0 && (w) < 32)
#define bit(b) (1 << (b))

/* Blocks: the first value of the key, then ATTEMPTS for each PUT. */
#define FIRST 1
#define N_BLOCKS (1 + PUTS * ATTEMPTS)

byte slot[2];
short marked;    /* sets of blocks: its mark was posted */
short published; /* ghost: was committed at some time */
short taken = bit(FIRST);
short doubt;     /* ghost: nobody knows whose it is, nobody marks it */
short seen[GETS + DELETES + 1]; /* ghost: what was current since it began (0: absent) */
#if LOSSES
byte n_lost;
byte prev[N_BLOCKS + 1];
#endif

#define current                                                                                    \
	(is_committed(slot[0]) -> slot[0] : (is_committed(slot[1]) -> slot[1] : 0))
#define slot_refers_to(b)                                                                          \
	((refers(slot[0]) && block_of(slot[0]) == (b)) ||                                          \
	 (refers(slot[1]) && block_of(slot[1]) == (b)))

/* Ghost: the word of slot k has become w. */
inline changed(w)
{
	assert(!(is_committed(slot[0]) && is_committed(slot[1])));
	assert(!refers(w) || !(marked & bit(block_of(w))));
	if
	:: is_committed(w) -> published = published | bit(w)
	:: else
	fi;
	watcher = 0;
	do
	:: watcher < GETS + DELETES ->
		if
		:: seen[watcher] -> seen[watcher] = seen[watcher] | bit(current)
		:: else
		fi;
		watcher++
	:: else -> break
	od;
	watcher = 0
}

/* CAS of slot k; won tells its result, and unknown that the result never came. */
inline cas(k, expected, swap)
{
	atomic {
		won = (slot[k] == (expected));
#if LOSSES
		unknown = false;
		if
		:: true
		:: n_lost < LOSSES -> n_lost++; unknown = true /* executed */
		:: n_lost < LOSSES -> n_lost++; unknown = true; won = false /* never executed */
		fi;
#endif
		if
		:: won -> slot[k] = swap; changed(swap)
		:: else
		fi;
#if LOSSES
		won = won && !unknown;
#endif
	}
}

/* [WHO-FREES] */
inline mark(b)
{
	d_step {
		assert(!(marked & bit(b)));
		assert(!slot_refers_to(b));
		marked = marked | bit(b)
	}
}

inline read_slots()
{
	if
	:: image[0] = slot[0] -> image[1] = slot[1]
	:: image[1] = slot[1] -> image[0] = slot[0]
	fi
}

/* READ block of w: sure to validate unless it was marked; then it may have been recycled. */
inline judge(w)
{
	if
	:: true -> valid = true
	:: marked & bit(block_of(w)) -> valid = false
	fi
}

/* What was sampled counts no more: fewer states. */
#define forget image[0] = 0; image[1] = 0

#if LOSSES
/* Does a valid block stand in slot k that names `word` as the one it replaced? */
inline follows(k, word)
{
	valid = false;
	if
	:: slot[k] != 0 && !is_tentative(slot[k]) ->
		judge(slot[k]);
		valid = valid && prev[block_of(slot[k])] == (word)
	:: else
	fi
}
#endif

proctype put(byte first_block)
{
	byte image[2], at, block, n_attempts, watcher, rival, rival_at;
	bool won, valid, updates;
#if LOSSES
	bool unknown;
#endif
	goto start;

again: /* from anywhere: back to the beginning, with the block if it is still ours */
	atomic {
		forget;
		at = 0;
		won = false;
		valid = false;
		updates = false;
		goto start
	}

start:
	if
	:: image[0] = slot[0] -> image[1] = slot[1]
	:: image[1] = slot[1] -> image[0] = slot[0]
	:: block -> goto expired /* the deadline is over */
	fi;

	atomic {
		if
		:: is_committed(image[0]) -> at = 0; goto update
		:: is_committed(image[1]) -> at = 1; goto update
		:: else
		fi;
		/* [I3] The one that goes first is awaited, and killed if it stays. */
		if
		:: rival && image[rival_at] == rival ->
			forget;
			if
			:: goto again
			:: goto kill_rival
			fi
		:: else -> rival = 0; rival_at = 0
		fi;
		if
		:: !refers(image[0]) -> at = 0
		:: !refers(image[1]) -> at = 1
		:: refers(image[0]) && refers(image[1]) -> goto again
		fi;
		updates = false;
		goto take_block
	}

kill_rival:
	cas(rival_at, rival, DELETED(block_of(rival)));
	atomic {
#if LOSSES
		if
		:: unknown ->
			doubt = doubt | bit(block_of(rival));
#ifdef MARK_IN_DOUBT
			mark(block_of(rival));
#endif
		:: else
		fi;
#endif
		if
		:: won -> mark(block_of(rival))
		:: else
		fi;
		rival = 0;
		rival_at = 0;
		goto again
	}

update:
	atomic {
		rival = 0;
		rival_at = 0;
		updates = true;
		judge(image[at]);
		if
		:: !valid -> goto again
		:: else
		fi
	}

take_block: /* without one, the deadline is over */
	atomic {
		if
		:: block == 0 && n_attempts == ATTEMPTS -> goto expired
		:: block == 0 && n_attempts < ATTEMPTS ->
			block = first_block + n_attempts;
			n_attempts++;
			taken = taken | bit(block)
		:: block != 0
		fi;
#if LOSSES
		prev[block] = image[at];
#endif
		image[1 - at] = 0;
		if
		:: updates
		:: !updates -> goto insert
		fi
	}

	/* UPDATE */
#ifdef SLOT_BY_WRITE
	atomic {
		slot[at] = COMMITTED(block);
		won = true;
		changed(slot[at])
	}
#else
	cas(at, image[at], COMMITTED(block));
#endif
	atomic {
#if LOSSES
		if
		:: unknown -> goto update_unknown
		:: else
		fi;
#endif
#ifdef LOSER_MARKS
		mark(block_of(image[at]));
#endif
		if
		:: won -> goto updated
		:: else -> forget
		fi;
#ifdef ABSORB_LOST_CAS
		goto done;
#endif
		goto again
	}

updated:
	atomic {
#ifndef LOSER_MARKS
#ifndef WINNER_FORGETS_MARK
		mark(block_of(image[at]));
#endif
#endif
		goto done
	}

	/* INSERT: image[at] is the empty word found. */
insert:
#ifdef NO_TENTATIVE
	cas(at, image[at], COMMITTED(block));
	atomic {
		if
		:: won -> goto done
		:: else -> goto again
		fi
	}
#else
	cas(at, image[at], TENTATIVE(block));
#endif
	atomic {
		forget;
#if LOSSES
		if
		:: unknown -> goto tentative_unknown
		:: else
		fi;
#endif
		if
		:: won
		:: !won -> goto again
		fi;
#ifdef LOOK_BEFORE_CAS
		goto commit;
#endif
	}
	/* [I1] The own slot first: a word that is there no more has taken the block along, [I6]. */
	if
	:: slot[at] == TENTATIVE(block)
	:: slot[at] != TENTATIVE(block) ->
#ifndef REUSE_UNSEEN_BLOCK
		block = 0;
#endif
		goto again
	fi;

recheck:
	if
	:: image[1 - at] = slot[1 - at]
	fi;
	atomic { /* [I2] */
		if
		:: !refers(image[1 - at]) -> forget; goto commit
		:: refers(image[1 - at])
		fi;
#ifdef IGNORE_TENTATIVE
		if
		:: is_tentative(image[1 - at]) -> forget; goto commit
		:: else
		fi;
#endif
		judge(image[1 - at]);
		if
		:: !valid ->
			forget;
#ifdef IGNORE_INVALID
			goto commit;
#endif
			goto recheck
		:: else
		fi;
		if
		:: is_committed(image[1 - at]) -> updates = true; goto withdraw
		:: is_tentative(image[1 - at]) && at == 1 ->
#ifdef NO_I3
			forget; goto commit;
#endif
			updates = false; goto withdraw
		:: is_tentative(image[1 - at]) && at == 0
		fi;
#ifdef NO_I4
		forget; goto commit;
#endif
	}

	/* [I4] */
	cas(1, image[1], DELETED(block_of(image[1])));
#ifdef KILL_AND_COMMIT_AT_ONCE
	if
	:: won -> mark(block_of(image[1]))
	:: else
	fi;
	goto commit;
#endif
	atomic {
#if LOSSES
		if
		:: unknown ->
			doubt = doubt | bit(block_of(image[1])) | bit(block);
			goto not_ours
		:: else
		fi;
#endif
		if
		:: won -> goto killed
		:: !won -> forget
		fi;
#ifdef FAILED_KILL_IS_ENOUGH
		goto commit;
#endif
		goto recheck
	}
killed:
	atomic {
		mark(block_of(image[1]));
		forget
	}

commit: /* [I5] */
	cas(at, TENTATIVE(block), COMMITTED(block));
	atomic {
		forget;
#if LOSSES
		if
		:: unknown -> goto commit_unknown
		:: else
		fi;
#endif
		if
		:: won -> goto done
		:: !won ->
#ifdef OWNER_MARKS_TOO
			mark(block);
#endif
#ifdef REUSE_KILLED_BLOCK
			goto again;
#endif
			goto not_ours
		fi
	}

withdraw:
	cas(at, TENTATIVE(block), DELETED(block));
	atomic {
#if LOSSES
		if
		:: unknown ->
#ifdef KEEP_AFTER_UNKNOWN_WITHDRAW
			goto again;
#endif
			doubt = doubt | bit(block);
			goto not_ours
		:: else
		fi;
#endif
#ifdef NO_WITHDRAW_WAIT
		if
		:: updates -> at = 1 - at; goto update
		:: else
		fi;
#endif
		if
		:: won
		:: !won ->
#ifdef REUSE_AFTER_LOST_WITHDRAW
			goto again;
#endif
			goto not_ours
		fi;
		/* The block is still ours. */
		at = 1 - at;
		if
		:: updates -> goto update
		:: !updates -> rival = image[at]; rival_at = at; goto again
		fi
	}

not_ours: /* [I6] */
	atomic {
		block = 0;
		goto again
	}

#if LOSSES
	/* The old connection is destroyed: what the slot shows now, no CAS of ours can change. */
update_unknown:
	atomic {
#ifdef RETRY_UNKNOWN_UPDATE
		goto again;
#endif
#ifdef UNKNOWN_IS_SUCCESS
		goto done;
#endif
		if
		:: slot[at] == image[at] -> goto again
		:: else
		fi;
		doubt = doubt | bit(block_of(image[at]));
		if
		:: slot[at] == COMMITTED(block) -> goto done
		:: else
		fi;
		goto find_follower
	}

tentative_unknown:
	atomic {
		if
		:: slot[at] == TENTATIVE(block) -> goto recheck
		:: else
		fi;
#ifdef REUSE_AFTER_UNKNOWN_TENTATIVE
		goto again;
#endif
		doubt = doubt | bit(block);
		goto not_ours
	}

commit_unknown:
	atomic {
		if
		:: slot[at] == COMMITTED(block) -> goto done
		:: slot[at] == TENTATIVE(block) -> goto commit
		:: else
		fi
	}

find_follower:
	atomic {
		follows(at, COMMITTED(block));
		if
		:: valid -> goto done
		:: else -> doubt = doubt | bit(block); block = 0; goto end_put /* RKV_E_MAYBE */
		fi
	}
#endif

done:
	atomic {
		assert(published & bit(block)); /* [HONEST] */
		block = 0;
		goto end_put
	}

expired:
	if
	:: block ->
#ifndef UNPUBLISHED_UNMARKED
		mark(block);
#endif
		block = 0
	:: else
	fi;
end_put:
	skip
}

proctype delete(byte me)
{
	byte image[2], at, watcher;
	bool won, valid;
#if LOSSES
	bool unknown;
#endif

	seen[me] = bit(current);
start:
	read_slots();
	atomic {
		if
		:: is_committed(image[0]) -> at = 0
		:: is_committed(image[1]) -> at = 1
		:: !is_committed(image[0]) && !is_committed(image[1]) ->
			assert(seen[me] & bit(0));
			goto end_delete
		fi;
		judge(image[at]);
		image[1 - at] = 0;
		if
		:: !valid -> forget; goto start
		:: else
		fi
	}
	cas(at, image[at], DELETED(image[at]));
	atomic {
#if LOSSES
		if
		:: unknown && slot[at] == image[at] -> forget; goto start
		:: unknown && slot[at] != image[at] -> /* RKV_E_MAYBE */
			doubt = doubt | bit(image[at]);
			goto end_delete
		:: else
		fi;
#endif
		if
		:: won
		:: !won -> forget; goto start
		fi
	}
	mark(image[at]);
end_delete:
	atomic {
		forget;
		seen[me] = 0
	}
}

proctype get(byte me)
{
	byte image[2], at;
	bool valid;

	seen[me] = bit(current);
start:
#ifdef MISS_FROM_ONE_BUCKET
	if
	:: image[0] = slot[0]
	:: image[1] = slot[1]
	fi;
#else
	read_slots();
#endif
	atomic {
		if
		:: is_committed(image[0]) -> at = 0
		:: is_committed(image[1]) -> at = 1
		:: !is_committed(image[0]) && !is_committed(image[1]) ->
			assert(seen[me] & bit(0)); /* [G4] */
			goto end_get
		fi;
		image[1 - at] = 0
	}
	atomic {
		judge(image[at]);
		if
		:: valid -> assert(seen[me] & bit(image[at]))
		:: !valid ->
			forget;
#ifdef MISS_ON_INVALID
			assert(seen[me] & bit(0));
#endif
			goto start /* [G2] */
		fi
	}
end_get:
	atomic {
		forget;
		seen[me] = 0
	}
}

init {
	byte i;
	atomic {
		if
		:: slot[0] = COMMITTED(FIRST)
		:: slot[1] = COMMITTED(FIRST)
		:: slot[0] = DELETED(FIRST) -> marked = bit(FIRST)
		fi;
		for (i : 0 .. PUTS - 1) {
			run put(FIRST + 1 + i * ATTEMPTS)
		}
		for (i : 0 .. DELETES - 1) {
			run delete(i)
		}
		for (i : 0 .. GETS - 1) {
			run get(DELETES + i)
		}
	}
	_nr_pr == 1;
	for (i : 1 .. N_BLOCKS) {
		assert(!(taken & bit(i)) || ((marked | doubt) & bit(i)) || slot_refers_to(i))
	}
}
