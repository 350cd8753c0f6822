# SPDX-License-Identifier: BSD-2-Clause
#
# The models of tests/sim/promela, checked by spin: the rules as they are leave no error, in all
# states of a small scope; with any one of them taken out (-D and its name) an assertion is
# violated. `make model` shows the numbers of states. Searches are exhaustive: no bit state, and
# one that meets its limit of memory or depth is a failure. timeout: 1200
. tests/lib.sh

command -v spin >/dev/null || skip_all "spin is not installed"
models=$PWD/tests/sim/promela
compiler=${CC:-gcc}

# Searches MODEL with the definitions given; the report goes to $DIR/report.
search()
{
	local model=$1
	shift
	rm -rf "$DIR/search"
	mkdir "$DIR/search"
	(cd "$DIR/search" && spin "$@" -a "$models/$model.pml" &&
		$compiler -O1 -w -DSAFETY -DCOLLAPSE -DMEMLIM=2000 -o pan pan.c &&
		timeout 120 ./pan -m100000 -w22 -n) >"$DIR/report" 2>&1
}

found()
{
	sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' "$DIR/report"
}

# Nothing is wrong, and the search was complete.
holds()
{
	local name=$1
	shift
	search "$@"
	if grep -q 'errors: 0$' "$DIR/report" && [ -n "$(found)" ] &&
		! grep -qiE 'max search depth|reached -DMEMLIM|not completed' "$DIR/report"; then
		ok "$name: $(found) states"
	else
		not_ok "$name" "$*: $(cat "$DIR/report")"
	fi
}

# One line a rule that is taken out: its name, and what it was. All are searched in this scope.
breaks()
{
	local rule meaning
	while IFS='|' read -r rule meaning; do
		search "$@" "-D$rule" </dev/null
		if grep -q 'assertion violated' "$DIR/report"; then
			ok "$rule, $meaning: found after $(found) states"
		else
			not_ok "$rule, $meaning" "$*: $(cat "$DIR/report")"
		fi
	done
}

holds "two PUTs and a DELETE" insert -DPUTS=2 -DDELETES=1 -DGETS=0
holds "two PUTs and a GET" insert -DPUTS=2 -DDELETES=0 -DGETS=1
holds "a PUT, a DELETE and a GET" insert -DPUTS=1 -DDELETES=1 -DGETS=1
holds "three PUTs" insert -DPUTS=3 -DDELETES=0 -DGETS=0 -DATTEMPTS=1
holds "two PUTs, the connection lost once" insert -DPUTS=2 -DDELETES=0 -DGETS=0 -DLOSSES=1
holds "two PUTs and a DELETE, lost once" \
	insert -DPUTS=2 -DDELETES=1 -DGETS=0 -DATTEMPTS=1 -DLOSSES=1

breaks insert -DPUTS=2 -DDELETES=1 -DGETS=0 <<'RULES'
NO_TENTATIVE|[I1] the first CAS commits
LOOK_BEFORE_CAS|[I1] the slots are sampled before the tentative CAS only
IGNORE_TENTATIVE|[I2] tentative words are not looked at
NO_WITHDRAW_WAIT|[I2] withdraw and UPDATE in one batch
NO_I3|[I3] a tentative word at a lower offset is passed over
NO_I4|[I4] a tentative word at a higher offset is passed over
FAILED_KILL_IS_ENOUGH|[I4] a kill that failed counts
KILL_AND_COMMIT_AT_ONCE|[I4] kill and commit in one batch
REUSE_KILLED_BLOCK|[I6] the block is used again after a lost commit
REUSE_AFTER_LOST_WITHDRAW|[I6] the block is used again after a lost withdraw
REUSE_UNSEEN_BLOCK|[I6] the block is used again when the own slot shows another word
OWNER_MARKS_TOO|[WHO-FREES] the owner of a killed word marks, and so does the killer
WINNER_FORGETS_MARK|[WHO-FREES] the winner of an UPDATE does not mark
LOSER_MARKS|[WHO-FREES] a mark behind a CAS that was lost
UNPUBLISHED_UNMARKED|[WHO-FREES] a block never published is not marked
SLOT_BY_WRITE|[ONE-WORD] UPDATE by a WRITE of the slot
ABSORB_LOST_CAS|[HONEST] a lost CAS is success
RULES

breaks insert -DPUTS=3 -DDELETES=0 -DGETS=0 -DATTEMPTS=1 <<'RULES'
IGNORE_INVALID|[I2] a rival whose block does not validate is passed over
RULES

breaks insert -DPUTS=1 -DDELETES=1 -DGETS=1 <<'RULES'
MISS_FROM_ONE_BUCKET|[G4] a miss from one sample
RULES

breaks insert -DPUTS=2 -DDELETES=0 -DGETS=1 <<'RULES'
MISS_ON_INVALID|[G2] a miss from a block that does not validate
RULES

breaks insert -DPUTS=2 -DDELETES=0 -DGETS=0 -DLOSSES=1 <<'RULES'
REUSE_AFTER_UNKNOWN_TENTATIVE|the block is used again after an unknown tentative CAS
KEEP_AFTER_UNKNOWN_WITHDRAW|the block is used again after an unknown withdraw
MARK_IN_DOUBT|a mark behind a kill whose outcome is unknown
RETRY_UNKNOWN_UPDATE|an unknown UPDATE is repeated blindly
UNKNOWN_IS_SUCCESS|an unknown UPDATE is success
RULES

words="-DTAGS=2 -DINCARNATIONS=3"
scrub="-DSCRUB=1 -DT_WORD=0 -DOPERATIONS=1 -DINCARNATIONS=3 -DSTAMPS=2"
holds "cached words and tags that wrap" reuse $words
holds "a client declared dead" reuse $words -DSTAMPS=3 -DDEATHS=1
holds "late marks and a scrubber" reuse $scrub

breaks reuse $words <<'RULES'
NO_REST|[WRAP] no rest after the last tag
REST_TOO_SHORT|[WRAP] a rest until G reaches the stamp, not beyond
NO_STAMP_CHECK|[STAMP] a CAS expects a word of any age
NO_KEY_COMPARE|[STAMP] of an old word only the slot is read again
OLD_WARM_DELETE|[STAMP] slot and block of an old word are read again in one batch
OLD_WARM_GET|[STAMP] a warm GET with a word of any age
NO_RECHECK_START|[STAMP] the start is published without a second look
STAMP_AT_COMPLETION|[STAMP] a word's stamp is the one of its READ's completion
A_FROM_CLOCK|[STAMP] A without the start
A_IS_START|[STAMP] A without T_WORD
TIMEOUT_ENDS_OPERATION|[STAMP] an operation ends with its caller's deadline
JOIN_UNCOUNTED|[STAMP] a joiner counts from its first keepalive on
RULES

breaks reuse $words -DSTAMPS=3 -DDEATHS=1 <<'RULES'
DEAD_BEFORE_DESTROYED|[DEAD] not counted while its connection stands
KEEP_WORD_WHEN_DEAD|[DEAD] a word is kept
RULES

breaks reuse $scrub <<'RULES'
MARK_ON_OWN_COMPLETION|[MARK] a mark has completed by its own completion
KEEP_UNPUBLISHED|[WHO-FREES] a block not published is kept without a mark
NO_SCRUB_STAMP|[SCRUB] no stamp is awaited
NO_SCRUB_SCAN|[SCRUB] no scan behind the first stamp
SCRUB_TWO_SCANS_ONE_STAMP|[SCRUB] who removed the block may still have its mark to post
RULES

finish
