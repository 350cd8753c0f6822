#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Measures rkv on every fabric there is, the bare fabric, memcached and redis, one after the other
# and that several times over, so that all meet the same machine:
#
#   measure.sh OUT      writes OUT/rows.csv and OUT/machine.txt; page.sh makes the page of them
#
# A row is one measurement of SPAN seconds: experiment, x, system, operation, round, operations per
# second, microseconds of processor of client and of server an operation, median and 99th
# percentile of the latency in microseconds (empty: the tool does not tell). Every server has one
# thread at the most that is busy, every client THREADS (1). RKV_BUILD is where the programs are.
set -u
OUT=$(realpath -m "$1")
ROUNDS=${ROUNDS:-5}
SPAN=${SPAN:-1}
THREADS=${THREADS:-1}
VALUE=1000
RECORDS=100000 # with their values more than caches hold, as a remote memory is
PEER_CONNECTIONS=32 # with one each, the peers would mostly wait for the kernel
PORT=${PORT:-17440} # and the ones behind it

DIR=$(mktemp -d)
declare -A PIDS
# shellcheck disable=SC2317
at_exit()
{
	local pid
	for pid in "${PIDS[@]}"; do
		kill -KILL "$pid" 2>/dev/null
	done
	wait 2>/dev/null
	rm -rf "$DIR"
}
trap at_exit EXIT
trap 'exit 130' INT TERM

fail()
{
	echo "bench: $*" >&2
	exit 1
}

# ---- Servers ----

# start NAME PORT COMMAND...: in the background, until it listens.
start()
{
	local name=$1 port=$2 i
	shift 2
	"$@" >"$DIR/$name.out" 2>&1 &
	PIDS[$name]=$!
	for ((i = 0; i < 200; i++)); do
		{ : >"/dev/tcp/127.0.0.1/$port"; } 2>/dev/null && return
		sleep 0.05
	done
	fail "$name does not start: $(cat "$DIR/$name.out")"
}

stop()
{
	kill -TERM "${PIDS[$1]}"
	wait "${PIDS[$1]}" 2>/dev/null
	unset "PIDS[$1]"
}

fabrics()
{
	echo shm tcp
	[ -z "$(ls /sys/class/infiniband 2>/dev/null)" ] || echo verbs
}

declare -A PORTS=([shm]=$PORT [verbs]=$((PORT + 1)) [memcached]=$((PORT + 2)) [redis]=$((PORT + 3))
	[tcp]=$((PORT + 4)))

start_rkv()
{
	start "$1" "${PORTS[$1]}" "$RKV_BUILD/kv-server" --listen "127.0.0.1:${PORTS[$1]}" \
		--fabric "$1" --tcp-threads 1 --pool-size 512M --chunk-size 4M --log-level error
}

start_peer()
{
	start "$1" "${PORTS[$1]}" "${@:2}"
}

# Microseconds of processor that a server has taken.
server_cpu()
{
	awk -v hz="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); print ($12 + $13) * 1000000 / hz }' \
		"/proc/${PIDS[$1]}/stat"
}

# ---- Rows ----

row()
{
	local IFS=,
	echo "$*" >>"$OUT/rows.csv"
}

# The columns of kv-bench's CSV that a row has, from its last phase.
columns()
{
	awk -F , '
		NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
		$at["phase"] != "run" { next }
		$at["type"] == "all" {
			printf "%s,%s,%s,%s,%s\n", $at["hits_per_s"],
				$at["client_cpu_us_per_operation"],
				$at["server_cpu_us_per_operation"], p50, p99
		}
		$at["type"] != "all" {
			intended = $at["intended_p50_us"] != ""
			p50 = $at[intended ? "intended_p50_us" : "p50_us"]
			p99 = $at[intended ? "intended_p99_us" : "p99_us"]
		}' "$1"
}

# ours EXPERIMENT X SYSTEM OPERATION OPTIONS...
ours()
{
	local experiment=$1 x=$2 system=$3 operation=$4
	shift 4
	"$RKV_BUILD/kv-bench" --threads "$THREADS" --csv "$DIR/csv" "$@" >"$DIR/said" 2>&1 ||
		fail "kv-bench $*: $(cat "$DIR/said")"
	row "$experiment" "$x" "$system" "$operation" "$round" "$(columns "$DIR/csv")"
}

# What is run until the time is over, when all is warm.
for_a_while()
{
	echo --run --operations 1000000000 --max-seconds "$SPAN" --warm-up $((2 * ${1:-$RECORDS}))
}

mix()
{
	case $1 in
	GET) echo -p readproportion=1 -p updateproportion=0 ;;
	UPDATE) echo -p readproportion=0 -p updateproportion=1 ;;
	*) echo --workload "$1" ;;
	esac
}

# rkv EXPERIMENT X FABRIC OPERATION OPTIONS...
rkv()
{
	local fabric=$3 operation=$4
	ours "$1" "$2" "rkv $fabric" "$operation" --server "127.0.0.1:${PORTS[$fabric]}" \
		--records "$RECORDS" $(for_a_while) $(mix "$operation") "${@:5}"
}

raw()
{
	local fabric=$3 operation=$4
	ours "$1" "$2" "raw $fabric" "$operation" --raw "${operation,,}" --fabric "$fabric" \
		--records "$RECORDS" $(for_a_while) "${@:5}"
}

load()
{
	"$RKV_BUILD/kv-bench" --server "127.0.0.1:${PORTS[$1]}" --load --records "$RECORDS" \
		"${@:2}" >"$DIR/said" 2>&1 || fail "loading: $(cat "$DIR/said")"
}

# reload FABRIC BYTES: another server, as what values of other sizes left would be in the way.
reload()
{
	stop "$1" && start_rkv "$1"
	load "$1" --value-size "$2"
}

# peer EXPERIMENT X SYSTEM OPERATION PARSER COMMAND...: PARSER makes "operations,rate,p50,p99" of
# the output.
peer()
{
	local experiment=$1 x=$2 system=$3 operation=$4 parser=$5
	local before after client n rate p50 p99 TIMEFORMAT='%U %S'
	shift 5
	before=$(server_cpu "$system")
	client=$({ time "$@" >"$DIR/said" 2>/dev/null; } 2>&1) ||
		fail "$1: $(cat "$DIR/said")"
	after=$(server_cpu "$system")
	IFS=, read -r n rate p50 p99 < <($parser <"$DIR/said")
	[ "${n:-0}" -gt 0 ] || fail "$1 says nothing that is understood: $(cat "$DIR/said")"
	row "$experiment" "$x" "$system" "$operation" "$round" "$rate" \
		"$(awk -v n="$n" '{ print ($1 + $2) * 1000000 / n }' <<<"$client")" \
		"$(awk "BEGIN { print ($after - $before) / $n }")" "$p50" "$p99"
}

# ---- Peers ----

# memcached_run EXPERIMENT X OPERATION CONNECTIONS BYTES: one client thread; it stores its keys
# first, which counts as operations as well, in its rate and here.
memcached_run()
{
	local operation=$3 connections=$4 bytes=$5 share=1
	[ "$operation" = GET ] || share=0
	printf 'key\n23 23 1\nvalue\n%d %d 1\ncmd\n0 %d\n1 %d\n' "$bytes" "$bytes" \
		$((1 - share)) $share >"$DIR/memcaslap.cfg"
	peer "$1" "$2" memcached "$operation" parse_memcaslap memcaslap \
		-s "127.0.0.1:${PORTS[memcached]}" -F "$DIR/memcaslap.cfg" -T "$THREADS" \
		-c "$connections" -w 1k -x $((400000 * SPAN))
}

parse_memcaslap()
{
	awk '/^Run time:/ { print $5 "," $7 ",," }'
}

# redis_load BYTES: the keys that redis-benchmark will ask for: it does not store them itself.
redis_load()
{
	awk -v n=$RECORDS -v len="$1" 'BEGIN {
		value = sprintf("%*s", len, "")
		for (i = 0; i < n; i++)
			printf "SET key:%012d \"%s\"\r\n", i, value
	}' | redis-cli -p "${PORTS[redis]}" --pipe >"$DIR/said" 2>&1 ||
		fail "loading redis: $(cat "$DIR/said")"
}

# redis_run EXPERIMENT X OPERATION CONNECTIONS PIPELINED BYTES
redis_run()
{
	local operation=$3 connections=$4 pipelined=$5 bytes=$6 command=get n
	[ "$operation" = GET ] || command=set
	n=$((150000 * SPAN * (pipelined > 1 ? 4 : 1)))
	peer "$1" "$2" redis "$operation" "parse_redis $n" redis-benchmark \
		-p "${PORTS[redis]}" -t $command -c "$connections" -P "$pipelined" -n $n \
		-d "$bytes" -r $RECORDS --csv
}

parse_redis()
{
	awk -F '","' -v n="$1" '$0 !~ /"test"/ { print n "," $2 "," $5 * 1000 "," $7 * 1000 }'
}

# ---- Experiments ----

say()
{
	echo "bench: $*" >&2
}

# Over TCP as many operations in flight as the peers have; keys drawn evenly, as theirs are.
beside_peers()
{
	local fabric operation depth
	for operation in GET UPDATE; do
		for fabric in $FABRICS; do
			depth=1
			[ "$fabric" != tcp ] || depth=$PEER_CONNECTIONS
			rkv peers 0 "$fabric" $operation --depth $depth --distribution uniform
			raw peers 0 "$fabric" $operation --depth $depth
		done
		memcached_run peers 0 $operation $PEER_CONNECTIONS $VALUE
		redis_run peers 0 $operation $PEER_CONNECTIONS 1 $VALUE
	done
	ours peers 0 idle GET --idle $(for_a_while) --workload c
}

# 128 operations in flight for each, as whoever wants the most of TCP has them: rkv in one session,
# redis in 8 pipelines of 16, memcached in 128 connections.
over_tcp()
{
	local size operation
	for size in 100 $VALUE; do
		[ "$size" = $VALUE ] || reload tcp "$size"
		redis_load "$size"
		for operation in GET UPDATE; do
			rkv tcp "$size" tcp $operation --depth 128 --distribution uniform \
				--value-size "$size"
			memcached_run tcp "$size" $operation 128 "$size"
			redis_run tcp "$size" $operation 8 16 "$size"
		done
		[ "$size" = $VALUE ] || reload tcp $VALUE
	done
}

workloads()
{
	local fabric letter
	for fabric in $FABRICS; do
		for letter in a b c d f; do
			rkv workloads $letter "$fabric" $letter
		done
	done
}

value_sizes()
{
	local fabric size all=$RECORDS
	for fabric in $FABRICS; do
		for size in 16 64 256 1024 4096 16384 65536 262144 1048576; do
			RECORDS=$((size * 10000 > 67108864 ? 67108864 / size : 10000))
			reload "$fabric" $size
			rkv sizes $size "$fabric" GET --value-size $size
			rkv sizes $size "$fabric" UPDATE --value-size $size
			raw sizes $size "$fabric" GET --value-size $size
			raw sizes $size "$fabric" UPDATE --value-size $size
		done
		RECORDS=$all
		reload "$fabric" $VALUE
	done
}

threads_and_depth()
{
	local fabric threads depth
	for fabric in $FABRICS; do
		for ((threads = 1; threads <= $(nproc); threads *= 2)); do
			for depth in 1 4 16 64; do
				rkv depth-$threads $depth "$fabric" GET --threads $threads \
					--depth $depth
				raw depth-$threads $depth "$fabric" GET --threads $threads \
					--depth $depth
			done
		done
	done
}

# Without a location cache every operation is a cold one.
cold_and_warm()
{
	local fabric operation
	for fabric in $FABRICS; do
		for operation in GET UPDATE; do
			rkv cache warm "$fabric" $operation
			rkv cache cold "$fabric" $operation --cache-bytes 0
		done
	done
}

# Open loops, up to nine tenths of what the closed loop of the same round reached.
rates()
{
	local fabric percent most
	for fabric in $FABRICS; do
		most=$(awk -F , -v name="rkv $fabric" -v round="$round" '
			$1 == "peers" && $3 == name && $4 == "GET" && $5 == round { print int($6) }
			' "$OUT/rows.csv")
		for percent in 10 30 50 70 90; do
			# Whether the schedule was kept is seen in the latencies.
			rm -f "$DIR/csv"
			"$RKV_BUILD/kv-bench" --server "127.0.0.1:${PORTS[$fabric]}" --run \
				--workload c --records $RECORDS --warm-up $((2 * RECORDS)) \
				--threads "$THREADS" --rate $((most * percent / 100)) \
				--operations $((most * percent / 100 * SPAN)) --csv "$DIR/csv" \
				>"$DIR/said" 2>&1
			[ -s "$DIR/csv" ] || fail "kv-bench --rate: $(cat "$DIR/said")"
			row rates $percent "rkv $fabric" GET "$round" "$(columns "$DIR/csv")"
		done
	done
}

machine()
{
	echo "processor: $(nproc) x $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)"
	echo "memory: $(awk '/^MemTotal/ { printf "%.1f GiB", $2 / 1048576 }' /proc/meminfo)"
	echo "system: $(uname -srm), $(. /etc/os-release && echo "$PRETTY_NAME")"
	echo "hypervisor: $(grep -qw hypervisor /proc/cpuinfo && echo yes || echo no)"
	echo "RDMA devices: $(ls /sys/class/infiniband 2>/dev/null | grep . || echo none)"
	echo "load before: $(cut -d' ' -f1 /proc/loadavg)"
	echo "date: $(date -u '+%Y-%m-%d %H:%M UTC')"
	echo "rkv: $("$RKV_BUILD/kv-bench" --version)"
	echo "memcached: $(memcached -V)"
	echo "redis: $(redis-server --version | sed 's/ sha.*//')"
	echo "rounds: $ROUNDS of $SPAN s, $THREADS client threads"
}

mkdir -p "$OUT"
: >"$OUT/rows.csv"
machine >"$OUT/machine.txt"
FABRICS=$(fabrics)
for fabric in $FABRICS; do
	start_rkv "$fabric"
	load "$fabric"
done
start_peer memcached memcached -l 127.0.0.1 -p "${PORTS[memcached]}" -U 0 -t 1 -m 512 \
	-u "$(id -un)"
start_peer redis redis-server --bind 127.0.0.1 --port "${PORTS[redis]}" --save '' \
	--appendonly no --dir "$DIR"
redis_load $VALUE
for ((round = 1; round <= ROUNDS; round++)); do
	for experiment in beside_peers over_tcp workloads cold_and_warm rates threads_and_depth; do
		say "round $round of $ROUNDS: $experiment"
		$experiment
	done
	say "round $round of $ROUNDS: value_sizes"
	[ $((round % 2)) = 0 ] || value_sizes # every second round: it takes as long as the rest
done
