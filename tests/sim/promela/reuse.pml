/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory of one block, used again and again for values of two keys with the same
 * fingerprint: when may it be used again, and when may a CAS expect a word that was read some
 * time ago?
 *
 * Modelled. Tags count modulo TAGS, entries of the free map modulo ENTRIES, [MARK]; an
 * incarnation's word is its tag and nothing else, so that words recur. The owner publishes,
 * deletes, and sees from the map that its block is free; after the last tag the block rests
 * until the stamp of that moment has passed, [WRAP]; a block not published is marked in the
 * same operation, [WHO-FREES]. A client GETs and DELETEs one of the keys, with a word that it
 * may have cached long ago (an UPDATE differs only in the word it leaves behind). Its mark is a
 * WRITE: it may be placed long after its completion, and is sure to be only when an atomic
 * behind it was executed. [STAMP] in all its parts: stamps that the client receives late, the
 * start that is published and looked at again, A = start - T_WORD that its control thread
 * announces now and then, G, the age up to which a word is expected or looked at together with
 * its block. The client joins late; once it may be declared dead, [DEAD]: when its connection
 * is destroyed nothing of it lands any more, and it forgets its word and joins anew. With SCRUB
 * a scrubber looks for what no slot refers to and nobody marked, [SCRUB].
 *
 * Abstracted away. The owner always knows the newest stamp and G, and its own marks are placed
 * at once: an owner that knows less waits longer. The stamp of a moment is the newest that the
 * server has issued then, the smallest that the answer to a keepalive could tell. Before its
 * next operation the client flushes its mark. INSERT is one CAS here: insert.pml has the rest.
 * The chunk, its other classes and its adoption are left out; a chunk that changes hands rests
 * as a block does. Time is the number of stamps, at most STAMPS, incarnations at most
 * INCARNATIONS; what would need more than that waits for ever.
 *
 * Asserted. A CAS that returned the expected word took out the incarnation that was meant, and
 * so never another key's value (the lost update). A block in use is never marked in the map. A
 * GET returns the bytes of the incarnation that its slot word was sampled from. Nobody waits
 * but for a bound.
 *
 * Two rules are stricter here than one might take them to be, because these models found what
 * follows:
 * - A warm {READ block; READ slot} is safe only with a word as young as a CAS may expect. With
 *   an older one the block may be sampled while it rests, its old bytes still valid, after a
 *   rest that began before the operation did; it then comes round to the same tag without
 *   another rest, and the slot shows the same word again (OLD_WARM_GET, OLD_WARM_DELETE).
 * - Garbage is what no slot refers to in a scan behind one stamp, and what is still unmarked
 *   behind another one. Two scans with a stamp between are not enough: a block that was not
 *   published yet in the first scan may be published and removed before the second, and the
 *   remover's mark is still to come (SCRUB_TWO_SCANS_ONE_STAMP).
 *
 * Each rule can be taken out with -D; test_model.sh lists the names and expects a violation for
 * each.
 */
#ifndef TAGS
#define TAGS 4
#endif
#ifndef ENTRIES
#define ENTRIES 2
#endif
#ifndef INCARNATIONS
#define INCARNATIONS 5
#endif
#ifndef STAMPS
#define STAMPS 4
#endif
#ifndef OPERATIONS
#define OPERATIONS 2
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef T_WORD
#define T_WORD 1
#endif
#define IDLE 255
#define NONE 255

#define tag(n) ((n) % TAGS)
#define entry_of(n) ((n) % ENTRIES)

/* The block: its incarnation (a ghost: others see its tag), and whose value it is. */
byte incarnation;
bool is_other_key;
bool in_use = true; /* ghost: written and neither removed nor given up */
/* The slot: its word is (committed or deleted, tag). */
byte slot;
bool is_committed = true;
byte entry = entry_of(ENTRIES - 1);

/* Stamps. */
byte newest;             /* that the server has issued */
byte received;           /* by the client */
byte start = IDLE;       /* published by the client */
byte announced;          /* the client's A, as the server knows it */
byte owner_start = IDLE; /* the owner's A follows at once */
bool is_counted;         /* the client joined */

/* The client's connection. */
byte late_mark = NONE; /* posted and not yet placed */
bool is_connected;
byte n_deaths;

#define less_word(x) ((x) > T_WORD -> (x) - T_WORD : 0)
#define owner_a less_word(owner_start == IDLE -> newest : owner_start)
#define G (is_counted && announced < owner_a -> announced : owner_a)
#define passed(x) (G > (x))

/* What is free must not look in use, and what is in use must not look free. */
inline set_entry(n)
{
	entry = entry_of(n);
	assert(!in_use || entry != entry_of(incarnation))
}

active proctype server()
{
end:	do
	:: newest < STAMPS -> newest++
	od
}

/* Takes what the client has sent to the memory, some time. */
active proctype wire()
{
end:	do
	:: d_step {
		late_mark != NONE -> set_entry(late_mark);
		late_mark = NONE
	   }
	od
}

/* The client's control thread. */
active proctype control()
{
	byte a;

end:	do
	:: is_counted && received < newest -> received = newest
	:: atomic {
		is_counted ->
#ifdef A_FROM_CLOCK
		a = less_word(received);
#else
#ifdef A_IS_START
		a = (start == IDLE -> received : start);
#else
		a = less_word(start == IDLE -> received : start);
#endif
#endif
		if
		:: a > announced -> announced = a
		:: else
		fi;
		a = 0
	   }
	od
}

#if DEATHS
/* The server gives the client up. */
active proctype reaper()
{
end:	do
	:: is_connected && n_deaths < DEATHS ->
		n_deaths++;
#ifdef DEAD_BEFORE_DESTROYED
		is_counted = false;
#endif
		d_step {
			is_connected = false;
			is_counted = false;
			late_mark = NONE
		}
	od
}
#endif

/* Each access of the client to the memory is on its connection. */
inline sample_slot()
{
	if
	:: !is_connected -> goto dead
	:: d_step {
		is_connected -> sampled = (is_committed -> slot : NONE)
	   }
	fi
}

inline sample_block()
{
	if
	:: !is_connected -> goto dead
	:: d_step {
		is_connected -> content = incarnation;
		is_other = is_other_key
	   }
	fi
}

active proctype client()
{
	byte word = NONE, stamp; /* cached */
	byte sampled = NONE, content = NONE, n_operations, again;
	bool is_other, deletes;

join:
	atomic {
		received = newest;
		announced = newest;
		is_connected = true;
#ifndef JOIN_UNCOUNTED
		is_counted = true;
#endif
	}

idle:
	atomic {
		sampled = NONE;
		content = NONE;
		is_other = false;
		deletes = false
	}
	if
	:: n_operations == OPERATIONS -> goto end_client
	:: n_operations < OPERATIONS && !is_connected -> goto dead
	:: n_operations < OPERATIONS && is_connected -> n_operations++
	fi;

	again = received;
	start = again;
	/* Had the control thread announced a newer A meanwhile, it would not fit this start. */
#ifndef NO_RECHECK_START
	again = received;
	start = again;
#endif
	atomic {
		again = 0;
		if
		:: deletes = true
		:: deletes = false
		fi;
		if
		:: word == NONE -> goto cold
		:: word != NONE && stamp + T_WORD >= start ->
			if
			:: deletes -> sampled = word; goto remove
			:: !deletes
			fi
		:: word != NONE && stamp + T_WORD < start ->
			if
			:: deletes ->
#ifdef NO_STAMP_CHECK
				sampled = word; goto remove;
#endif
#ifdef NO_KEY_COMPARE
				goto slot_again;
#endif
#ifndef OLD_WARM_DELETE
				goto cold
#else
				skip
#endif
			:: !deletes ->
#ifndef OLD_WARM_GET
				goto cold
#else
				skip
#endif
			fi
		fi
	}

	/* {READ block; READ slot} in the worse order; the other one is that of cold. */
	sample_block();
	sample_slot();
	atomic {
		if
		:: sampled != NONE && tag(sampled) == tag(word) && tag(content) == tag(word) &&
		   !is_other ->
			if
			:: deletes -> goto remove
			:: !deletes -> goto got
			fi
		:: else -> word = NONE; stamp = 0; content = NONE; is_other = false
		fi
	}

cold: /* {READ A; READ B} {READ block} */
	sample_slot();
	if
	:: sampled == NONE -> word = NONE; stamp = 0; goto ended
	:: sampled != NONE
	fi;
	sample_block();
	atomic {
		if
		:: tag(content) != tag(sampled) -> /* [G2] */
			content = NONE; is_other = false; goto cold
		:: else
		fi;
		if
		:: is_other -> word = NONE; stamp = 0; goto ended
		:: !is_other
		fi;
		if
		:: deletes -> content = NONE; goto remove
		:: !deletes
		fi
	}
got:
	atomic {
		assert(content == sampled);
		word = sampled;
#ifdef STAMP_AT_COMPLETION
		stamp = received;
#else
		stamp = start;
#endif
		goto ended
	}

#ifdef NO_KEY_COMPARE
slot_again:
	sample_slot();
	if
	:: sampled != NONE && tag(sampled) == tag(word)
	:: else -> goto cold
	fi;
#endif

remove: /* {CAS; READ slot}: the atomic is behind the marks */
#ifdef TIMEOUT_ENDS_OPERATION
	start = IDLE;
#endif
	if
	:: !is_connected -> goto dead
	:: atomic {
		is_connected && late_mark == NONE ->
		word = NONE;
		stamp = 0;
		if
		:: !is_committed || tag(slot) != tag(sampled) -> goto ended
		:: is_committed && tag(slot) == tag(sampled) ->
			assert(!is_other_key);
			assert(slot == sampled);
			is_committed = false;
			in_use = false
		fi
	   }
	fi;
	if
	:: !is_connected -> goto dead
	:: is_connected -> late_mark = sampled
	fi;

ended: /* in flight until its marks have completed */
#ifndef MARK_ON_OWN_COMPLETION
	if
	:: late_mark == NONE
	fi;
#endif
	start = IDLE;
	goto idle;

dead:
	atomic {
#ifndef KEEP_WORD_WHEN_DEAD
		word = NONE;
		stamp = 0;
#endif
		start = IDLE;
		goto join
	}

end_client:
	skip
}

active proctype owner()
{
	byte moment;
	bool is_free, rests;
#ifdef KEEP_UNPUBLISHED
	bool is_kept;
#endif

end:	do
	/* INSERT */
	:: atomic {
		is_free && !is_committed && incarnation < INCARNATIONS ->
		owner_start = newest;
		is_free = false
	   }
	   d_step {
#ifdef KEEP_UNPUBLISHED
		if
		:: is_kept
		:: else -> incarnation++
		fi;
		is_kept = false;
#else
		incarnation++;
#endif
		in_use = true;
		assert(entry == entry_of(incarnation + ENTRIES - 1))
	   }
	   if
	   :: is_other_key = true
	   :: is_other_key = false
	   fi;
	   if
	   :: d_step {
		slot = incarnation;
		is_committed = true
	      }
	   :: /* [WHO-FREES] not published */
#ifdef KEEP_UNPUBLISHED
	      atomic {
		is_kept = true;
		is_free = true
	      }
#else
	      d_step {
		in_use = false;
		set_entry(incarnation)
	      }
#endif
	   fi;
	   owner_start = IDLE
	/* DELETE */
	:: atomic {
		is_committed ->
		owner_start = newest
	   }
	   if
	   :: d_step {
		is_committed ->
		is_committed = false;
		in_use = false
	      }
	      set_entry(incarnation)
	   :: !is_committed
	   fi;
	   owner_start = IDLE
	/* [MARK] The map says that it is free. */
	:: atomic {
		!is_free && !rests && entry == entry_of(incarnation) ->
		assert(!in_use);
#ifdef NO_REST
		is_free = true
#else
		if
		:: tag(incarnation) == TAGS - 1 -> rests = true; moment = newest
		:: else -> is_free = true
		fi
#endif
	   }
	/* [WRAP] */
	:: atomic {
#ifdef REST_TOO_SHORT
		rests && G >= moment ->
#else
		rests && passed(moment) ->
#endif
		rests = false;
		moment = 0;
		is_free = true
	   }
	od
}

#if SCRUB
/*
 * [SCRUB] When the first stamp has passed, whoever wrote this header has published the block,
 * marked it, or died; when the second has passed, whoever took it out of a slot before the scan
 * has marked it, or died.
 */
active proctype scrubber()
{
	byte header, moment;

end:	do
	:: header = incarnation;
	   if
	   :: atomic { entry == entry_of(header) -> goto looked }
	   :: atomic { entry != entry_of(header) -> moment = newest }
	   fi;
	   /* A scan of the index here spares most blocks the wait: nothing else. */
#ifdef SCRUB_TWO_SCANS_ONE_STAMP
	   if
	   :: atomic { is_committed && slot == header -> goto looked }
	   :: atomic { !is_committed || slot != header -> moment = newest }
	   fi;
#endif
#ifndef NO_SCRUB_STAMP
end_1:	   passed(moment);
#endif
#ifndef NO_SCRUB_SCAN
	   if
	   :: atomic { is_committed && slot == header -> goto looked }
	   :: atomic { !is_committed || slot != header -> moment = newest }
	   fi;
#endif
#ifndef SCRUB_TWO_SCANS_ONE_STAMP
#ifndef NO_SCRUB_STAMP
end_2:	   passed(moment);
#endif
#endif
	   if
	   :: atomic { incarnation != header || entry == entry_of(header) -> goto looked }
	   :: incarnation == header && entry != entry_of(header)
	   fi;
	   set_entry(header);
looked:	   atomic {
		header = 0;
		moment = 0
	   }
	od
}
#endif
