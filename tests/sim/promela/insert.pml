/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * INSERT, UPDATE, DELETE and GET of one key, whose words may stand in either of two slots: who may
 * remove which word, and to whom its block belongs then.
 *
 * Modelled. Slots change by CAS only, [ONE-WORD]. READ A and READ B are two samples, in any order. A PUT
 * becomes an UPDATE or, when the key is absent, an INSERT: a tentative word behind which the slots are
 * sampled [I1], a look at every rival [I2], withdrawing before a lower slot and killing a rival that
 * stays [I3], killing a higher one [I4], the commit [I5], and the ownership of blocks [I6]. How long
 * somebody waits before he kills is no promise to anybody: he may do so at once or never. [WHO-FREES]:
 * the winner of a CAS marks the block of the word he took out, in a later step of his; his own
 * block, never published, is marked by its owner when the operation ends. What is marked may have been
 * recycled or not: its block validates or does not, both are explored. An operation has ATTEMPTS
 * blocks; when it needs another one its deadline is over. A process that stops for ever is a prefix of
 * a run, and every prefix is checked. With LOSSES the connection is lost with a CAS outstanding, which
 * was executed or was not, and its operation finds out what it can: PROTOCOL's "Outcome unknown".
 *
 * Abstracted away. Other keys and fingerprints: reuse.pml has them, as it has recycling itself, tags
 * and stamps. Here each block id is used once, so that one id is one incarnation. The order of the verbs
 * in a batch is that of the text: what a weaker memory does is explored with the code itself
 * (test_store). Expiry, compare-and-swap and add are UPDATE or INSERT with a test before it.
 *
 * Asserted. At most one committed word. No block is marked that a slot refers to, none twice, and no
 * marked block is published. A successful PUT was published, [HONEST]. What a GET or a missed DELETE
 * returns was the key's state at some instant of its interval, [G4]. When all have ended without a
 * loss, each block is referred to or marked. Nobody waits for ever.
 *
 * Each rule can be taken out with -D; test_model.sh lists the names and expects a violation for each.
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
short seen[GETS + DELETES]; /* ghost: the blocks that were current (bit 0: absent) since it began */
#if LOSSES
byte n_lost;
byte prev[N_BLOCKS + 1];
#endif

#define current                                                                                    \
	(is_committed(slot[0]) -> slot[0] : (is_committed(slot[1]) -> slot[1] : 0))
#define slot_refers_to(b)                                                                          \
	((refers(slot[0]) && block_of(slot[0]) == (b)) || (refers(slot[1]) && block_of(slot[1]) == (b)))

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

#define forget image[0] = 0; image[1] = 0

#if LOSSES
/* Does a valid block stand in slot k that names `word` as the one it replaced? */
inline follows(k, word)
{
	atomic {
		valid = false;
		if
		:: slot[k] != 0 && !is_tentative(slot[k]) ->
			judge(slot[k]);
			valid = valid && prev[block_of(slot[k])] == (word)
		:: else
		fi
	}
}
#endif

proctype put(byte first_block)
{
	byte image[2], at, own, block, n_attempts, watcher, rival, rival_at;
	bool won, valid, keeps_own;
#if LOSSES
	bool unknown;
#endif

start:
	read_slots();
	goto decide;

decide:
	atomic {
		if
		:: is_committed(image[0]) -> at = 0; goto update
		:: is_committed(image[1]) -> at = 1; goto update
		:: else
		fi;
		/* [I3] The one that goes first is awaited, and killed if it stays. */
		if
		:: rival && image[rival_at] == rival ->
			if
			:: true -> forget; goto start
			:: true -> forget; goto kill_rival
			fi
		:: else -> rival = 0; rival_at = 0
		fi;
		if
		:: !refers(image[0]) -> at = 0
		:: !refers(image[1]) -> at = 1
		:: refers(image[0]) && refers(image[1]) -> forget; goto start
		fi;
		goto insert
	}

kill_rival:
	cas(rival_at, rival, DELETED(block_of(rival)));
	atomic {
#if LOSSES
		if
		:: unknown -> doubt = doubt | bit(block_of(rival))
		:: else
		fi;
#endif
		if
		:: won -> mark(block_of(rival))
		:: else
		fi;
		rival = 0;
		rival_at = 0;
		goto start
	}

take_block: /* the deadline is over when there is none */
	skip;

update:
	atomic {
		rival = 0;
		rival_at = 0;
		judge(image[at]);
		if
		:: !valid -> forget; goto start
		:: else
		fi;
		if
		:: block == 0 && n_attempts == ATTEMPTS -> goto expired
		:: block == 0 && n_attempts < ATTEMPTS ->
			n_attempts++;
			block = first_block + n_attempts - 1;
			taken = taken | bit(block)
		:: else
		fi
	}
	skip
}
