# SPDX-License-Identifier: BSD-2-Clause
#
# kv-bench over verbs: YCSB b verified; and the rates of warm operations beside those of the bare
# fabric with the same sizes and depth, in turns, so that both meet the same machine. It is the one
# test that judges by a clock, and only by a ratio. Runs in the virtual machine. (timeout: 300)
. tests/lib.sh

RUNS=5
ROUNDS=3 # a machine with other work may spoil one
PERCENT=80 # of the bare fabric's rate, at least
DEVICE=10.77.0.1

bench()
{
	"$RKV_BUILD/kv-bench" --records 2000 --value-size 100 --depth 16 --operations 8000 \
		--distribution uniform --json - "$@" 2>"$DIR/bench.err"
}

# The rate of the last phase, hits a second.
rate()
{
	awk -F '[":, ]+' '$2 == "phase" { rate = 0 }
		$2 == "hits_per_s" && !rate { rate = $3 }
		END { print int(rate) }'
}

median()
{
	printf '%s\n' "$@" | sort -n | sed -n "$((($# + 1) / 2))p"
}

# What the session stored it finds at once: all of the run is warm.
ours()
{
	bench --server "$SERVER" --load --run -p "readproportion=$1" -p "updateproportion=$2" | rate
}

bare()
{
	bench --raw "$1" --fabric verbs --rdma-address $DEVICE | rate
}

# one_round NAME RAW_KIND READS UPDATES: sets MEDIAN
one_round()
{
	local i percents=() bare ours
	for ((i = 0; i < RUNS; i++)); do
		bare=$(bare "$2")
		ours=$(ours "$3" "$4")
		[ "${bare:-0}" -gt 0 ] || { comment "$(cat "$DIR/bench.err")" && return 1; }
		percents+=($((ours * 100 / bare)))
		comment "$1: $ours a second, the bare fabric $bare: ${percents[i]} %"
	done
	MEDIAN=$(median "${percents[@]}")
}

compare()
{
	local name="$1: at least $PERCENT % of the bare fabric's rate" round
	for ((round = 0; round < ROUNDS; round++)); do
		one_round "$@" || break
		[ "$MEDIAN" -lt $PERCENT ] || { ok "$name" && return; }
	done
	not_ok "$name" "median ${MEDIAN-unknown} %"
}

start_server --pool-size 64M || { not_ok "a server"; finish; }
check "YCSB b, verified" "$RKV_BUILD/kv-bench" --server "$SERVER" --workload b --records 2000 \
	--value-size 1000 --threads 2 --depth 16 --operations 20000 --load --run --verify
compare "warm GET" get 1 0
compare "warm UPDATE" update 0 1
check "the server stops" stop_server
finish
