#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Makes one page of what measure.sh measured, with pictures, as Markdown and as HTML:
#
#   page.sh OUT         writes OUT/README.md, OUT/index.html and OUT/*.svg
set -u
OUT=$(realpath -m "$1")
cd "$(dirname "$0")" || exit 1

# table EXPERIMENT: medians of its rows, one a line: x,system,operation,rate,low,high,client,server,
# p50,p99. low and high are the lowest and the highest rate of all rounds.
table()
{
	awk -F , -v experiment="$1" -f median.awk "$OUT/rows.csv"
}

# ---- Pictures ----

# picture NAME TITLE XLABEL YLABEL COLUMN COMMANDS < table: a line for each system and operation.
picture()
{
	local name=$1 title=$2 x=$3 y=$4 column=$5 commands=$6 data
	data=$(cat)
	{
		echo "set terminal svg size 800,480 noenhanced background 'white'"
		echo "set output '$OUT/$name.svg'; set title '$title'; set grid; set key below"
		echo "set xlabel '$x'; set ylabel '$y'; set rmargin 4; $commands"
		awk -F , -v column="$column" '
			BEGIN { n = 0 }
			{
				name = $2 " " $3
				if (!(name in index_of)) { index_of[name] = n; names[n++] = name }
				data[index_of[name]] = data[index_of[name]] $1 " " $column "\n"
			}
			END {
				for (i = 0; i < n; i++) printf "$d%d << END\n%sEND\n", i, data[i]
				for (i = 0; i < n; i++)
					printf "%s $d%d with linespoints lw 2 title \"%s\"",
						i ? "," : "plot", i, names[i]
				print ""
			}' <<<"$data"
	} | gnuplot || exit 1
	printf '\n![%s](%s.svg)\n' "$title" "$name"
}

# ---- Texts ----

# Of table lines: | system | rate | spread | p50 | p99 | CPU | operations per core | against first |
rates_table()
{
	printf '| | operations/s | lowest to highest | median us | p99 us | client CPU us '
	printf '| server CPU us | operations/s of a core | the first row is 1 |\n'
	printf '|---|---|---|---|---|---|---|---|---|\n'
	awk -F , '
		function shown(x) {
			return (x == "") ? "-" : sprintf((x < 10) ? "%.3f" : "%.1f", x)
		}
		{
			per_core = ($7 + $8 > 0) ? 1000000 / ($7 + $8) : 0
			if (NR == 1) first = per_core
			ratio = (first > 0) ? per_core / first : 0
			printf "| %s %s | %d | %d to %d | %s | %s |", $2, $3, $4, $5, $6,
				shown($9), shown($10)
			printf " %s | %s | %d | %.3f |\n", shown($7), shown($8), per_core, ratio
		}'
}

of_operation()
{
	awk -F , -v operation="$1" '$3 == operation'
}

# The rates of rkv and the bare fabric for each x, and how much of it rkv reaches.
against_raw()
{
	echo "| $1 | rkv $2 | raw $2 | rkv reaches |"
	echo "|---|---|---|---|"
	of_operation "$2" | awk -F , '
		!($1 in seen) { order[n++] = $1; seen[$1] = 1 }
		$2 ~ /^rkv/ { rkv[$1] = $4 }
		$2 ~ /^raw/ { raw[$1] = $4 }
		END {
			for (i = 0; i < n; i++) {
				x = order[i]
				printf "| %s | %d | %d | %.0f %% |\n", x, rkv[x], raw[x],
					raw[x] ? 100 * rkv[x] / raw[x] : 0
			}
		}'
}

peers_section()
{
	local operation
	cat <<'END'

## Beside others

1,000-byte values, 100,000 records, keys drawn evenly, one client thread. rkv and the bare fabric
(raw: the work requests of a warm GET or UPDATE, nothing else) have one operation in flight, over
tcp 32; memcached and redis have 32 connections. With one they would all mostly wait for the kernel:
TCP is loopback.
What a core can do is one second over the processor time of *client and server together* for an
operation; where a client polls, as on RDMA, the time it waits counts too. `idle` is kv-bench
itself, with nothing behind it.
END
	for operation in GET UPDATE; do
		printf '\n### %s\n\n' $operation
		table peers | of_operation $operation | grep -v ',idle,' | rates_table
	done
	tcp_section
	printf '\n### What the benchmark itself costs\n\n'
	table peers | grep ',idle,' | rates_table
}

tcp_section()
{
	local size operation
	printf '\n### 128 in flight over TCP\n\nrkv in one session, redis in 8 pipelines of 16, '
	printf 'memcached in 128 connections; a server has one thread, and keys are drawn evenly.\n'
	for size in 100 1000; do
		for operation in GET UPDATE; do
			printf '\n%s of %s bytes:\n\n' $operation $size
			table tcp | awk -F , -v x=$size '$1 == x' | of_operation $operation |
				rates_table
		done
	done
}

workloads_section()
{
	printf '\n## YCSB workloads\n\nYCSB distributions, 1,000-byte values, 100,000 records; an '
	printf 'update writes the whole value; a read-modify-write (f) is a get and a '
	printf 'compare-and-swap. Latencies are of the last kind of the mix.\n\n'
	table workloads | rates_table
}

sizes_section()
{
	printf '\n## Sizes of values\n\nOne thread, depth 1. 10,000 records, or 64 MiB of them if '
	printf 'that is less.\n'
	table sizes | picture sizes 'Operations by size of value' 'value, bytes' 'operations/s' 4 \
		"set logscale xy; set format y '%.0s%c'"
	printf '\n'
	table sizes | against_raw bytes GET
	printf '\n'
	table sizes | against_raw bytes UPDATE
}

depth_section()
{
	local threads
	printf '\n## Threads and depth\n\nGET, 1,000 bytes. On shared memory the client'\''s own '
	printf 'processor moves the bytes: more in flight hides nothing, more threads are more '
	printf 'processors.\n'
	for threads in $(cut -d, -f1 "$OUT/rows.csv" | sed -n 's/^depth-//p' | sort -nu); do
		printf '\n### %s threads\n' "$threads"
		table "depth-$threads" | picture "depth-$threads" "GET, $threads threads" depth \
			'operations/s' 4 "set logscale x 2; set yrange [0:*]; set format y '%.1s%c'"
		printf '\n'
		table "depth-$threads" | against_raw depth GET
	done
}

cache_section()
{
	printf '\n## Cold and warm\n\nWithout a location cache each operation looks its key up in '
	printf 'the index first: two round trips instead of one for a GET, three for an UPDATE.\n\n'
	table cache | sed 's/^\([^,]*\),\([^,]*\),\([^,]*\),/\1,\2,\3 \1,/' | sort -t, -k3,3 -r |
		rates_table
}

rates_section()
{
	printf '\n## Open loop\n\nGETs started on a schedule, at a share of what the closed loop '
	printf 'reached; latencies from the moment an operation should have started.\n\n'
	table rates | sed 's/^\([^,]*\),\([^,]*\),\([^,]*\),/\1,\2,\3 at \1 %,/' | rates_table
	table rates | picture rates 'Median latency from the intended start' \
		'% of the closed loop' 'us' 9 'set logscale y; set xrange [0:100]'
}

{
	printf '# rkv measured\n\n'
	sed 's/^\([^:]*\): \(.*\)/- \1: \2/' "$OUT/machine.txt"
	cat <<'END'

Systems were measured in turns, round after round; a rate is the median of all rounds, beside the
lowest and the highest. Servers and clients share this machine's cores and caches. Everything was
warmed up first; failures and misses would have ended the run.
END
	peers_section
	workloads_section
	sizes_section
	depth_section
	cache_section
	rates_section
} >"$OUT/README.md" || exit 1
awk -f html.awk "$OUT/README.md" >"$OUT/index.html"
