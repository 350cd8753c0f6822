# SPDX-License-Identifier: BSD-2-Clause
#
# kv-bench as a whole: YCSB's property files, several processes, open loops, traces, and what is
# written beside the tables. Counts are exact; no time is judged, but that nothing is too early.
. tests/lib.sh

bench()
{
	"$RKV_BUILD/kv-bench" --server "$SERVER" "$@"
}

# report OPTIONS...: runs and leaves the JSON in $DIR/json; its exit status.
report()
{
	bench --json - "$@" >"$DIR/json" 2>"$DIR/text"
}

# value KEY: of the last phase, outside of its kinds.
value()
{
	awk -F '[":, ]+' -v key="$1" '
		$2 == "phase" { found = "" }
		$2 == key && found == "" { found = $3 }
		END { print found }' "$DIR/json"
}

# counts: "kind=count ..." of the last phase.
counts()
{
	awk -F '"' '
		$2 == "phase" { text = "" }
		$2 == "type" { type = $4 }
		$2 == "count" { gsub(/[^0-9]/, "", $3); text = text sep type "=" $3; sep = " " }
		$2 == "phase" { sep = "" }
		END { print text }' "$DIR/json"
}

# sum: of the kinds of the last phase.
sum()
{
	counts | tr ' ' '\n' | awk -F = '{ sum += $NF } END { print sum }'
}

start_server --pool-size 128M || { not_ok "a server" && finish; }

# ---- YCSB's property files ----

cat >"$DIR/workload" <<'END'
# Yahoo! Cloud System Benchmark
!   Workload A: Update heavy workload
recordcount=1000
operationcount = 2001
workload=site.ycsb.workloads.CoreWorkload

readallfields=true
readproportion: 0.5
updateproportion 0.5
scanproportion=0
insertproportion=0
requestdistribution=zipfian
redis.host=somewhere
END
check "a property file is read as it is" report --load --run -P "$DIR/workload" --verify
is "operationcount" "$(sum)" 2001
is "recordcount" "$(grep -c '"operations": 1000,' "$DIR/json")" 1
check "a property of another kind is named" grep -q 'redis.host.*ignored' "$DIR/text"
check "the report says that values are written whole" grep -q 'writes the whole value' "$DIR/text"
check "-p goes before -P, wherever it stands" report --run -p operationcount=301 \
	-P "$DIR/workload" -p readproportion=0 -p updateproportion=0 \
	-p readmodifywriteproportion=1
is "only what -p left" "$(counts)" "rmw (cas)=301"
check "an option goes before both" report --run -P "$DIR/workload" --operations 7
is "--operations" "$(sum)" 7
check "fields make a value" report --load -p fieldcount=3 -p fieldlength=7 -p recordcount=5
check "fields were 3 x 7" grep -q '"value_size": 21' "$DIR/json"
check "threads, order, padding, fractions" report --load --run -p recordcount=100 \
	-p operationcount=50 -p threadcount=3 -p insertorder=ordered -p zeropadding=8 \
	-p requestdistribution=hotspot -p hotspotdatafraction=0.1 -p hotspotopnfraction=0.9 \
	-p dataintegrity=true
check "keys in order have their number" "$RKV_BUILD/kv-cli" --server "$SERVER" get user00000099
check "a part of the records" report --load -p recordcount=900 -p insertstart=200 \
	-p insertcount=300
is "insertcount" "$(sum)" 300
check "the rest of them" report --load -p recordcount=900 -p insertstart=500
is "recordcount - insertstart" "$(sum)" 400
refused()
{
	check_status 2 2 "$1" bench --run "${@:2}"
}
refused "scans are refused" -p scanproportion=0.1
refused "another workload class" -p workload=site.ycsb.workloads.RestWorkload
refused "other lengths of fields" -p fieldlengthdistribution=zipfian
refused "an unknown property of the command line" -p recordcuont=5
refused "a property without a value" -p recordcount
refused "a share that is none" -p readproportion=half
refused "a part beyond the records" -p recordcount=10 -p insertstart=5 -p insertcount=6
refused "nothing to do at all" -p readproportion=0 -p updateproportion=0
refused "no such file" -P "$DIR/nowhere"
refused "--workload and -P" --workload a -P "$DIR/workload"

# ---- Processes ----

check "3 processes x 2 threads" report --load --run --workload a --records 1001 \
	--operations 4003 --processes 3 --threads 2 --depth 4 --verify
is "their operations are exact" "$(sum) $(value operations_asked) $(value hits)" "4003 4003 4003"
check "fewer operations than processes" report --run --operations 1 --processes 3 --threads 2
is "one operation" "$(sum)" 1
check "processes share the sequence of inserts" report --run --workload d --records 1001 \
	--operations 6000 --processes 3 --depth 4 --verify --warm-up 1000
inserted=$(counts | tr ' ' '\n' | sed -n 's/^insert=//p')
warm=$(sed -n 's/.*"type": "insert"/x/p' "$DIR/json" | wc -l)
is "a warm-up is a phase of its own" "$warm $(grep -c '"phase"' "$DIR/json")" "2 2"
check_not "inserted keys follow one another" report --run --workload c --distribution uniform \
	--records 2500 --operations 20000
check "all of them are there" report --run --workload c --distribution uniform \
	--records $((1001 + inserted)) --operations 20000

# start OPTIONS...: in the background, as process $PARENT.
start()
{
	"$RKV_BUILD/kv-bench" --server "$SERVER" --run --workload b --records 1001 \
		--operations 1000000000 "$@" >"$DIR/out" 2>"$DIR/err" &
	PARENT=$!
}

start --processes 2
child_of()
{
	CHILD=$(cat "/proc/$PARENT/task/$PARENT/children")
	[ -n "$CHILD" ]
}
wait_for 30 child_of && kill -KILL $CHILD
wait $PARENT
is "a process that dies is a failure" "$? $(grep -c 'has died' "$DIR/err")" "1 1"

# ---- Open loops ----

# A machine that stands still for 10 ms at the end has not kept it: then it is tried again.
kept_open_loop()
{
	local try
	for try in {1..10}; do
		report --run --workload b --records 1001 --rate 200 --operations 100 --threads 2 &&
			return
		[ "$(value hits) $(value errors)" = "100 0" ] &&
			grep -q 'schedule of 200 operations/s was not kept' "$DIR/text" || break
	done
	echo "try $try:" && cat "$DIR/text"
	return 1
}
check "an open loop that can be kept" kept_open_loop
is "rate x time = operations" "$(sum) $(awk -v s="$(value wall_s)" 'BEGIN {
	print (s >= 0.4999) ? "in no less than half a second" : s }')" \
	"100 in no less than half a second"
is "latencies from both starts" "$(grep -c '"intended_latency_ns"' "$DIR/json")" 2
check "the table tells both" grep -q 'as intended' "$DIR/text"
report --run --workload c --records 1001 --rate 1000000000 --operations 300000 --depth 4
is "a schedule that cannot be kept is a failure" \
	"$? $(grep -c 'schedule of 1000000000 operations/s was not kept' "$DIR/text")" "1 1"

# The server takes no part in reads and updates on shared memory: stopped, it is not even missed.
start --progress
lines()
{
	[ "$(grep -c '^run: .*s left$' "$DIR/err")" -ge "$1" ]
}
check "progress: how many, the rate, what is left" wait_for 30 lines 1
kill -STOP "$SERVER_PID"
before=$(grep -c '' "$DIR/err")
check "operations go on while the server is stopped" wait_for 30 lines $((before + 3))
is "as fast as before" "$(sed -n "s/^run: \([0-9]*\) of.*/\1/p" "$DIR/err" | awk '
	NR > 1 && $1 <= last { print "none in a second" }
	{ last = $1 }')" ""
kill -CONT "$SERVER_PID"
kill -TERM $PARENT
wait $PARENT

# ---- Other workloads ----

cat >"$DIR/trace" <<'END'
0,kA,2,100,1,get,0
0,kA,2,100,1,set,0
0,kA,2,100,1,get,0
1,kB,40,7,1,set,60
1,ab,3,8,2,add,0
1,ab,3,8,2,add,0
2,ab,3,9,2,incr,0
2,kA,2,0,2,delete,0
2,kA,2,0,2,get,0
END
check "a trace" report --trace "$DIR/trace" --threads 2 --verify
is "each line once" "$(counts)" "read=3 update=2 rmw (cas)=1 add=2 delete=1"
is "misses are allowed, and told" "$(value hits) $(value misses) $(value errors)" "6 3 0"
check "sizes of keys are kept" "$RKV_BUILD/kv-cli" --server "$SERVER" get \
	kB......................................
check "the beginning of a trace" report --trace "$DIR/trace" --operations 2
is "two lines" "$(counts)" "read=1 update=1"
refused "a trace that is none" --trace "$DIR/workload"
refused "a trace has no records" --trace "$DIR/trace" --records 10
refused "a trace has no warm-up" --trace "$DIR/trace" --warm-up 10

check "lengths of Facebook's ETC, verified" report --load --run --sizes etc --records 5000 \
	--operations 20000 --threads 2 --depth 8 --verify
is "none is missed" "$(sum) $(value hits)" "20000 20000"
check "exponential" report --run --records 1001 --distribution exponential --operations 500

check "a warm-up warms, and is not counted" report --run --workload c --records 200 \
	--operations 500 --warm-up 20000
is "every operation is warm" "$(value operations) $(value cache_misses)" "500 0"
check "a run without location cache" report --run --workload c --records 200 --operations 500 \
	--cache-bytes 0
is "every operation is cold" "$(value work_requests_per_operation)" 3
check "the cost of the benchmark alone" report --idle --run --workload a --operations 5001 \
	--threads 2 --depth 3
is "all operations" "$(sum)" 5001

# ---- What is written ----

check "the server's processor time is told" report --run --records 200 --operations 500
check "in seconds" grep -q '"server_cpu_s": [0-9]' "$DIR/json"
check "CSV" bench --load --run --records 100 --operations 300 --csv "$DIR/csv"
is "every line has the fields of the first" "$(awk -F , '{ print NF }' "$DIR/csv" | uniq | wc -l)" 1
is "a line for each phase and kind" "$(cut -d, -f1,10,11 "$DIR/csv" | sed 's/,[0-9]*$//' |
	tr '\n' ' ')" "phase,type,count load,insert load,all run,read run,update run,all "
if command -v gnuplot >/dev/null; then
	check "pictures" bench --run --records 100 --operations 300 --plot "$DIR/it's"
	check "of latencies" grep -q '</svg>' "$DIR/it's-latency.svg"
	check "of the rate" grep -q '</svg>' "$DIR/it's-rate.svg"
	check_status 1 1 "pictures that cannot be written" bench --run --records 100 \
		--plot "$DIR/nowhere/p"
else
	skip "pictures" "gnuplot is not installed"
fi
check "the server ends well" stop_server
finish
