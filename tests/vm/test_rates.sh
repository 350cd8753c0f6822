# SPDX-License-Identifier: BSD-2-Clause
#
# kv-bench over verbs: YCSB b verified; and the rates of warm operations beside those of the bare
# fabric with the same sizes and depth, in turns, so that both meet the same machine. It is the one
# test that judges by a clock, and only by a ratio. Runs in the virtual machine. (timeout: 300)
. tests/lib.sh

RUNS=5
PERCENT=80 # of the bare fabric's rate, at least

bench()
{
	"$RKV_BUILD/kv-bench" --records 64 --value-size 100 --depth 16 --threads 1 --json - "$@"
}

# The rate of the last phase, operations a second.
rate()
{
	awk -F '[":, ]+' '$2 == "hits_per_s" { rate = $3 } END { print int(rate) }'
}

median()
{
	printf '%s\n' "$@" | sort -n | sed -n "$((($# + 1) / 2))p"
}

# compare NAME RAW_KIND WORKLOAD
compare()
{
	local name=$1 kind=$2 i percents=() bare ours
	shift 2
	for ((i = 0; i < RUNS; i++)); do
		bare=$(bench --raw "$kind" --fabric verbs --rdma-address 10.77.0.1 \
			--operations 10000 | rate)
		ours=$(bench --server "$SERVER" "$@" --run --operations 10000 | rate)
		[ "${bare:-0}" -gt 0 ] || { not_ok "$name" "no rate" && return; }
		percents+=($((ours * 100 / bare)))
		comment "$name: $ours a second, the bare fabric $bare: ${percents[i]} %"
	done
	if [ "$(median "${percents[@]}")" -ge $PERCENT ]; then
		ok "$name: at least $PERCENT % of the bare fabric's rate"
	else
		not_ok "$name: at least $PERCENT % of the bare fabric's rate" "${percents[*]}"
	fi
}

start_server --pool-size 64M || { not_ok "a server"; finish; }
check "YCSB b, verified" "$RKV_BUILD/kv-bench" --server "$SERVER" --workload b --records 2000 \
	--value-size 1000 --threads 2 --depth 16 --operations 20000 --load --run --verify
check "the records to read and to update" bench --server "$SERVER" --workload c --load
compare "warm GET" get --workload c
compare "warm UPDATE" update -p readproportion=0 -p updateproportion=1
check "the server stops" stop_server
finish
