# SPDX-License-Identifier: BSD-2-Clause
#
# For shell tests: `. tests/lib.sh` first, `finish` last. Results are TAP, which tests/run counts. A
# script that dies before `finish` prints no plan, and that is a failure.
#
#   ok NAME / not_ok NAME [DETAIL] / skip NAME REASON   one result
#   check NAME COMMAND...      ok if the command succeeds; its output is shown if not
#   check_not NAME COMMAND...  ok if it fails with an ordinary status (no crash, no timeout)
#   is NAME GOT WANT           ok if the two texts are equal
#   skip_all REASON            ends the script: nothing of it can run here
#   results_of FILE [WHERE]    what tests/run said there, each of its results as one of ours
#   wait_for SECONDS COMMAND...  tries until it succeeds; 1 when the time is over
#   start_server OPTIONS...    kv-server on a free port of 127.0.0.1; sets SERVER, SERVER_PID; the
#                              words of RKV_SERVER_ARGS, or --fabric soft, are the last options
#   stop_server                SIGTERM; returns its exit status, and says why if that is not 0
#
# $DIR is a directory of the test's own. At the end it is removed and what runs in the background is
# killed. RKV_BUILD is where the programs are.
export RKV_BUILD="${RKV_BUILD:-$PWD/build}"
DIR=$(mktemp -d)
SERVER= SERVER_PID=
tap_count=0 tap_failed=0

at_exit()
{
	local status=$? pid
	set +e
	for pid in $(jobs -p); do
		kill -KILL "$pid" 2>/dev/null
	done
	wait 2>/dev/null
	rm -rf "$DIR"
	exit $status
}
trap at_exit EXIT
trap 'exit 130' INT TERM

comment()
{
	printf '%s\n' "$*" | sed 's/^/# /'
}

ok()
{
	tap_count=$((tap_count + 1))
	echo "ok $tap_count - $1"
}

not_ok()
{
	tap_count=$((tap_count + 1))
	tap_failed=1
	echo "not ok $tap_count - $1"
	[ -z "${2-}" ] || comment "$2"
}

skip()
{
	tap_count=$((tap_count + 1))
	echo "ok $tap_count - $1 # SKIP $2"
}

skip_all()
{
	echo "1..0 # SKIP $1"
	exit 77
}

# One result: ok if the command's exit status lies between the two numbers.
check_status()
{
	local from=$1 to=$2 name=$3 status
	shift 3
	"$@" >"$DIR/check.out" 2>&1
	status=$?
	if [ $status -ge "$from" ] && [ $status -le "$to" ]; then
		ok "$name"
	else
		not_ok "$name" "$* (exit status $status)"
		comment "$(cat "$DIR/check.out")"
	fi
}

check()
{
	check_status 0 0 "$@"
}

check_not()
{
	check_status 1 123 "$@"
}

is()
{
	if [ "$2" = "$3" ]; then
		ok "$1"
	else
		not_ok "$1" "got:  $2
want: $3"
	fi
}

# A line "ok ENTRY 5 passed, 0 failed, 1 skipped (3.2 s)" is that many results.
results_of()
{
	local word entry n_passed n_failed n_skipped rest
	while read -r word entry n_passed _ n_failed _ n_skipped _ rest; do
		# Single tests may have a reason to be skipped there, a whole entry has none.
		[ "$word" != skipped ] || not_ok "$entry is not skipped" "$rest"
		while ((n_passed-- > 0)); do
			ok "$entry"
		done
		while ((n_failed-- > 0)); do
			not_ok "$entry" "$rest"
		done
		while ((n_skipped-- > 0)); do
			skip "$entry" "${2-}"
		done
	done < <(sed -nE 's/^((ok|FAILED|skipped) +[^ ]+) \([^)]*\) /\1 /
		/^(ok|FAILED|skipped) /p' "$1")
}

wait_for()
{
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -le $end ] || return 1
		sleep 0.05
	done
}

server_said_ready()
{
	grep -q '^kv-server: ready on ' "$DIR/server.out" || ! kill -0 "$SERVER_PID" 2>/dev/null
}

# A later --listen in the options overrides ours.
start_server()
{
	: >"$DIR/server.out"
	# shellcheck disable=SC2086 # words
	"$RKV_BUILD/kv-server" --listen 127.0.0.1:0 "$@" ${RKV_SERVER_ARGS---fabric soft} \
		>"$DIR/server.out" 2>"$DIR/server.err" &
	SERVER_PID=$!
	wait_for 30 server_said_ready
	SERVER=$(sed -n 's/^kv-server: ready on \([^ ,]*\).*/\1/p' "$DIR/server.out")
	[ -n "$SERVER" ] || { comment "$(cat "$DIR/server.err")" && return 1; }
}

stop_server()
{
	local status
	kill -TERM "$SERVER_PID"
	wait "$SERVER_PID"
	status=$?
	[ $status = 0 ] || cat "$DIR/server.err"
	return $status
}

finish()
{
	echo "1..$tap_count"
	exit $tap_failed
}
