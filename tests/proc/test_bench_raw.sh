# SPDX-License-Identifier: BSD-2-Clause
#
# kv-bench --raw: the bare fabric posts exactly what it says, and what the library posts for the
# warm operation of the same value size. No kv-server runs, but for that comparison.
. tests/lib.sh

bench()
{
	"$RKV_BUILD/kv-bench" "$@"
}

# raw KIND OPTIONS...: operations, hits; of each: round trips, work requests, marks, bytes read,
# bytes written
raw()
{
	local kind=$1
	shift
	bench --raw "$kind" --records 100 --operations 3000 --json - "$@" \
		2>/dev/null >"$DIR/$kind" ||
		echo "exit status $?"
	cost "$DIR/$kind"
}

# The last phase of a report; marks are counted apart from the other work requests.
cost()
{
	awk -F '[":, ]+' '
		$2 == "operations" { n = $3 }
		$2 == "hits" && !hits { hits = $3 }
		$2 == "round_trips" { trips += $3 }
		$2 == "work_requests" { requests += $3 }
		$2 == "marks" { marks += $3 }
		$2 == "bytes_read" { read += $3 }
		$2 == "bytes_written" { written += $3 }
		$2 == "phase" { hits = trips = requests = marks = read = written = 0 }
		END { print n, hits, trips / n, requests / n, marks / n, read / n, written / n }
	' "$1"
}

shapes()
{
	local on="--fabric $1"
	is "$1: read" "$(raw read $on)" "3000 3000 1 1 0 1000 0"
	is "$1: write" "$(raw write $on)" "3000 3000 1 1 0 0 1000"
	is "$1: cas" "$(raw cas $on)" "3000 3000 1 1 0 0 0"
	is "$1: faa" "$(raw faa $on)" "3000 3000 1 1 0 0 0"
	is "$1: get" "$(raw get $on)" "3000 3000 1 2 0 1096 0"
	is "$1: update" "$(raw update $on)" "3000 3000 1 3 1 8 1063"
	is "$1: threads and depth" "$(raw update $on --threads 3 --depth 16)" \
		"3000 3000 1 3 1 8 1063"
	is "$1: uneven counts" "$(raw get $on --operations 7 --threads 4 --depth 2)" \
		"7 7 1 2 0 1096 0"
	is "$1: sizes" "$(raw get $on --value-size 16)" "3000 3000 1 2 0 136 0"
	is "$1: records far up" "$(raw get $on --insert-start 1000000)" "3000 3000 1 2 0 1096 0"
}

shapes shm
if [ -n "$(ls /sys/class/infiniband 2>/dev/null)" ]; then
	shapes verbs
else
	skip "verbs" "no RDMA device"
	check_status 1 1 "without a device it says so" bench --raw get --fabric verbs
fi

# The library's: one thread that has read a key before posts for it what raw posts.
warm()
{
	bench --server "$SERVER" --load --run -p readproportion="$1" -p updateproportion="$2" \
		--records 1 --operations 3000 --warm-up 1 --json - 2>/dev/null >"$DIR/warm" ||
		echo "exit status $?"
	cost "$DIR/warm"
}

if start_server --pool-size 64M; then
	is "a warm GET posts what raw get posts" "$(warm 1 0)" "$(raw get --records 1)"
	is "a warm UPDATE posts what raw update posts" "$(warm 0 1)" \
		"$(raw update --records 1)"
	check "the server ends well" stop_server
else
	not_ok "a server to compare with"
fi

check "the report tells what was run" grep -q '"workload": "raw get"' "$DIR/get"
refused()
{
	check_status 2 2 "$1" bench "${@:2}"
}
refused "no raw operation of that name" --raw scan
refused "no fabric of that name" --raw get --fabric ib
refused "a raw run has no load" --raw get --load
refused "nor a workload" --raw get --workload a
refused "nor values to check" --raw read --verify
refused "nor empty ones" --raw write --value-size 0
refused "--rdma-address on shm" --raw get --rdma-address 127.0.0.1

finish
