# SPDX-License-Identifier: BSD-2-Clause
#
# tests/run itself: whatever way a test has to go wrong, it is counted as a failure. (timeout: 60)
. tests/lint/lint.sh

# Runs a test whose script comes on standard input, with the runner of this tree.
run_planted()
{
	plant tests/unit/planted.sh
	cp tests/run "$DIR/tree/tests/run"
	"$DIR/tree/tests/run" @build tests/unit/planted >"$DIR/out" 2>&1
}

counts()
{
	local name=$1 status=$2 totals=$3 got
	run_planted
	got=$?
	is "$name" "$got, $(tail -n 1 "$DIR/out")" "$status, $totals"
}

counts "passes are counted" 0 "2 passed, 0 failed, 0 skipped" <<'TEXT'
echo 1..2; echo ok 1 - a; echo ok 2 - b
TEXT
counts "a failure is counted" 1 "1 passed, 1 failed, 0 skipped" <<'TEXT'
echo 1..2; echo ok 1 - a; echo not ok 2 - b; exit 1
TEXT
counts "a failure is counted, also with exit status 0" 1 "0 passed, 1 failed, 0 skipped" <<'TEXT'
echo 1..1; echo not ok 1 - a
TEXT
counts "skips are counted, in both spellings" 0 "1 passed, 0 failed, 2 skipped" <<'TEXT'
echo 1..3; echo ok 1 - a; echo 'ok 2 - b # SKIP no device'; echo 'not ok 3 # SKIP c'
TEXT
counts "exit status 77 is a skip" 0 "0 passed, 0 failed, 1 skipped" <<'TEXT'
echo nothing to do; exit 77
TEXT
counts "a plan of nothing is a skip" 0 "0 passed, 0 failed, 1 skipped" <<'TEXT'
echo '1..0 # SKIP no device'; exit 77
TEXT
counts "no results at all are a failure" 1 "0 passed, 1 failed, 0 skipped" <<'TEXT'
echo hello
TEXT
counts "a crash is a failure" 1 "1 passed, 1 failed, 0 skipped" <<'TEXT'
echo 1..1; echo ok 1 - a; kill -SEGV $$
TEXT
counts "a failing exit after good results is a failure" 1 "1 passed, 1 failed, 0 skipped" <<'TEXT'
echo 1..1; echo ok 1 - a; exit 1
TEXT
counts "fewer results than planned are a failure" 1 "1 passed, 1 failed, 0 skipped" <<'TEXT'
echo 1..2; echo ok 1 - a
TEXT
counts "a missing plan is a failure" 1 "1 passed, 1 failed, 0 skipped" <<'TEXT'
echo ok 1 - a
TEXT
counts "a test that hangs is a failure" 1 "1 passed, 1 failed, 0 skipped" <<'TEXT'
# timeout: 5
echo 1..1; echo ok 1 - a; sleep 60
TEXT
counts "a test that leaves a process behind ends, and so does the process" 0 \
	"1 passed, 0 failed, 0 skipped" <<'TEXT'
sleep 60 & echo $! >left; echo 1..1; echo ok 1 - a
TEXT
left_is_gone()
{
	! kill -0 "$(cat "$DIR/tree/left")" 2>/dev/null ||
		grep -q '^State:.*Z' "/proc/$(cat "$DIR/tree/left")/status"
}
check "the process left behind is gone" wait_for 10 left_is_gone

check_not "a test that does not exist is a failure" "$DIR/tree/tests/run" @build tests/unit/absent
check_not "no tests at all are a failure" "$DIR/tree/tests/run"
run_planted <<<'echo 1..1; echo ok 1 - a'
several=(@build tests/unit/planted{,,,,} @build/tiny tests/unit/planted)
is "several at once are counted together" \
	"$(JOBS=3 "$DIR/tree/tests/run" "${several[@]}" | tail -n 1)" \
	"6 passed, 0 failed, 0 skipped"

finish
