# SPDX-License-Identifier: BSD-2-Clause
#
# kv-bench over verbs: YCSB b verified; and the rates of warm operations beside those of the bare
# fabric with the same sizes and depth, in turns. It is the one test that judges by a clock, and
# only by a ratio: that clock is to be the one of vm_count_instructions. (timeout: 300)
. tests/lib.sh

RUNS=3 # with that clock they differ by little
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

# compare NAME RAW_KIND READS UPDATES
compare()
{
	local name="$1: at least $PERCENT % of the bare fabric's rate" i percents=() bare ours
	for ((i = 0; i < RUNS; i++)); do
		bare=$(bare "$2")
		[ "${bare:-0}" -gt 0 ] || { not_ok "$name" "$(cat "$DIR/bench.err")" && return; }
		ours=$(ours "$3" "$4")
		percents+=($((ours * 100 / bare)))
		comment "$1: $ours a second, the bare fabric $bare: ${percents[i]} %"
	done
	if [ "$(median "${percents[@]}")" -ge $PERCENT ]; then
		ok "$name"
	else
		not_ok "$name" "${percents[*]}"
	fi
}

start_server --pool-size 64M || { not_ok "a server"; finish; }
check "YCSB b, verified" "$RKV_BUILD/kv-bench" --server "$SERVER" --workload b --records 2000 \
	--value-size 1000 --threads 2 --depth 16 --operations 20000 --load --run --verify
compare "warm GET" get 1 0
compare "warm UPDATE" update 0 1
check "the server stops" stop_server
finish
