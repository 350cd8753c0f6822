#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# /metrics: its format, that it is what deploy/METRICS.md lists and kv-cli stats shows, that it
# moves, and that whatever else comes on its port is refused and disturbs nobody.
. tests/lib.sh

cli()
{
	timeout 60 "$RKV_BUILD/kv-cli" --server "$SERVER" "$@"
}

# http BYTES: sends them as printf writes them; prints all that comes until the server closes.
http()
{
	timeout 60 bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$0" && printf "$1" >&3 && cat <&3' \
		"$PORT" "$1"
}

get()
{
	http 'GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n'
}

# The body of what http printed.
body()
{
	sed '1,/^\r$/d'
}

# answers NAME STATUS BYTES
answers()
{
	local got
	got=$(http "$3" 2>&1 | head -n 1)
	is "$1" "$got" "HTTP/1.1 $2"$'\r'
}

start()
{
	start_server --pool-size 16M --metrics-listen 0 "$@" || return
	PORT=$(sed -n 's,.*metrics at http://127\.0\.0\.1:\([0-9]*\)/metrics$,\1,p' \
		"$DIR/server.err")
	[ -n "$PORT" ]
}

# What is wrong with the text format: nothing is printed if it is right.
wrong_format()
{
	awk '
	function wrong(why) { print NR ": " why ": " $0 }
	/\r/ { wrong("carriage return") }
	/^# HELP / {
		if (family && !samples[family]) wrong("a family without samples before this")
		family = $3
		if (family in seen) wrong("a family twice")
		seen[family] = 1
		if (family !~ /^rkv_[a-z][a-z_]*[a-z]$/) wrong("name")
		if ($0 !~ /[.]$/) wrong("help is no sentence")
		before = $0
		next
	}
	/^# TYPE / {
		if ($3 != family || NF != 4 || before !~ /^# HELP /) wrong("type")
		if (($4 == "counter") != (family ~ /_total$/)) wrong("suffix _total")
		if ($4 != "counter" && $4 != "gauge") wrong("type")
		before = $0
		next
	}
	/^#/ || !NF { wrong("line"); next }
	{
		label = "[a-z_]+=\"[^\"\\\\]*\""
		sample = "^[a-z_]+([{]" label "(," label ")*[}])? [0-9]+([.][0-9]+)?$"
		if ($0 !~ sample) wrong("sample")
		name = $0
		sub(/[{ ].*/, "", name)
		if (name != family) wrong("a sample outside its family")
		series = $0
		sub(/ [^ ]*$/, "", series)
		if (series in seen_series) wrong("a series twice")
		seen_series[series] = 1
		samples[name]++
	}
	END { if (NR < 50) print "only " NR " lines" }' "$1"
	[ -z "$(tail -c 1 "$1" | tr -d '\n')" ] || echo 'no newline at the end'
}

# metric|type|labels|help of each family, from the endpoint and from the document.
exported()
{
	awk -F '[ ]' '
	/^# HELP / { help = substr($0, length("# HELP " $3 " ") + 1) }
	/^# TYPE / { name = $3; type = $4; first = 1; next }
	/^#/ || !first { next }
	{
		first = 0
		labels = ""
		rest = $0
		while (match(rest, /[a-z_]+="[^"]*"/)) {
			labels = labels (labels ? ", " : "") substr(rest, RSTART, RLENGTH)
			rest = substr(rest, RSTART + RLENGTH)
		}
		gsub(/="[^"]*"/, "", labels)
		print name "|" type "|" (labels ? labels : "-") "|" help
	}' "$DIR/metrics" | sort
}

documented()
{
	sed -n 's/^| \(rkv_[^ ]*\) | \([^|]*\) | \([^|]*\) | [^|]* | \(.*\) |$/\1|\2|\3|\4/p' \
		deploy/METRICS.md | sort
}

documented_stats()
{
	sed -n 's/^| rkv_[^ ]* | [^|]* | [^|]* | \([^|]*\) | .* |$/\1/p' deploy/METRICS.md |
		tr -d ' ' | tr , '\n' | grep -vx -e - | sort
}

# The names that kv-cli stats shows; those of a size class as the document has them.
shown_stats()
{
	cli stats | cut -d ' ' -f 1 | sed 's/_[0-9]*$/_N/' | sort -u
}

stat_of()
{
	cli stats | sed -n "s/^$1 //p"
}

# series: the value of one at the endpoint now.
series()
{
	get | body | awk -v series="$1" 'index($0, series " ") == 1 { print $NF }'
}

blocks_are_counted()
{
	[ -n "$(series 'rkv_block_bytes_age_seconds{region="default"}')" ]
}

becomes()
{
	[ "$(series "$1")" = "$2" ]
}

format()
{
	get >"$DIR/answer"
	body <"$DIR/answer" >"$DIR/metrics"
	is 'HTTP/1.1: 200' "$(head -n 1 "$DIR/answer")" $'HTTP/1.1 200 OK\r'
	check 'the content type that Prometheus wants' grep -qx \
		$'Content-Type: text/plain; version=0.0.4; charset=utf-8\r' "$DIR/answer"
	is 'the length is right' "$(sed -n 's/^Content-Length: \([0-9]*\)\r$/\1/p' "$DIR/answer")" \
		"$(wc -c <"$DIR/metrics")"
	is 'the format is right' "$(wrong_format "$DIR/metrics")" ''
	answers 'HTTP/1.0' '200 OK' 'GET /metrics HTTP/1.0\r\n\r\n'
	answers 'lines without CR, a query' '200 OK' 'GET /metrics?a=b HTTP/1.1\nHost: a\n\n'
	if command -v promtool >/dev/null; then
		check 'promtool: metrics' promtool check metrics <"$DIR/metrics"
		check 'promtool: alerts' promtool check rules deploy/alerts.yml
	else
		skip 'promtool' 'it is not installed (deploy/deps.sh metrics)'
	fi
}

documents()
{
	is 'deploy/METRICS.md lists what is exported' "$(exported)" "$(documented)"
	is 'deploy/METRICS.md lists what kv-cli stats shows' \
		"$(shown_stats | grep -v '_N$')" "$(documented_stats | grep -v '_N$')"
	is 'and names those of size classes' \
		"$(shown_stats | comm -23 - <(documented_stats))" ''
	is 'deploy/alerts.yml names what there is' "$(grep -oE 'rkv_[a-z_]+' deploy/alerts.yml |
		sort -u | while read -r name; do
			grep -q "^# TYPE $name " "$DIR/metrics" || echo "$name"
		done)" ''
	is 'the wrong format is noticed' "$(sed 's/^\(rkv_pool_bytes.*\) /\1 x/' "$DIR/metrics" \
		>"$DIR/broken" && wrong_format "$DIR/broken" | wc -l)" 1
}

moves()
{
	is 'pool size' "$(series 'rkv_pool_bytes{region="default"}')" "$(stat_of pool_bytes)"
	is 'no value yet' "$(stat_of bytes_live)" 64
	head -c 1000 /dev/zero >"$DIR/value"
	cli put large --file "$DIR/value" >/dev/null
	check 'live bytes of a class' wait_for 30 becomes \
		'rkv_block_bytes{region="default",class="1152",state="live"}' 1152
	is 'and of all' "$(stat_of bytes_live)" $((64 + 1152))
	is 'the same in kv-cli stats' "$(stat_of bytes_live_1152)" 1152
	check 'free bytes of it: all other blocks of its chunk' wait_for 30 becomes \
		'rkv_block_bytes{region="default",class="1152",state="free"}' \
		$((65536 / 1152 * 1152 - 1152))
	is 'and of all' "$(stat_of bytes_free)" \
		$(($(stat_of bytes_free_64) + $(stat_of bytes_free_1152)))
	is 'no garbage' "$(stat_of bytes_garbage)" 0
	check 'chunks of a class' wait_for 30 becomes \
		'rkv_class_chunk_bytes{region="default",class="1152"}' 65536
	cli del large >/dev/null
	check 'a value that is gone' wait_for 30 becomes \
		'rkv_index_slots_used{region="default"}' 1
	check 'whose block is free' wait_for 30 becomes \
		'rkv_block_bytes{region="default",class="1152",state="free"}' \
		$((65536 / 1152 * 1152))
	is 'how old that count is' "$(($(stat_of blocks_age_ms) < 60000))" 1
	is 'sessions' "$(series 'rkv_sessions_over_total{region="default",how="left"}')" 3
}

refusals()
{
	local before after long
	before=$(series rkv_scrapes_refused_total)
	answers 'another path' '404 Not Found' 'GET / HTTP/1.1\r\n\r\n'
	answers 'another path that begins alike' '404 Not Found' 'GET /metricsx HTTP/1.1\r\n\r\n'
	answers 'another method' '405 Method Not Allowed' 'POST /metrics HTTP/1.1\r\n\r\n'
	check 'which names the right one' grep -q $'^Allow: GET\r$' \
		<(http 'HEAD /metrics HTTP/1.1\r\n\r\n')
	answers 'no HTTP' '400 Bad Request' 'hello\r\n\r\n'
	answers 'another version' '400 Bad Request' 'GET /metrics HTTP/2.0\r\n\r\n'
	answers 'no path' '400 Bad Request' 'GET HTTP/1.1\r\n\r\n'
	answers 'a URL of somebody else' '400 Bad Request' 'GET http://a/metrics HTTP/1.1\r\n\r\n'
	answers 'words too many' '400 Bad Request' 'GET /metrics HTTP/1.1 x\r\n\r\n'
	answers 'bytes that are no text' '400 Bad Request' 'RKVC\001\000\002\000'
	printf -v long '%5000s' ''
	answers 'a line without end' '431 Request Header Fields Too Large' "GET /${long// /a}"
	answers 'headers without end' '431 Request Header Fields Too Large' \
		"GET /metrics HTTP/1.1\r\n${long//     /a: b\\n}"
	after=$(series rkv_scrapes_refused_total)
	is 'refusals are counted' "$((after - before))" 12
}

# More silent connections than it has room for: scrapes get through, clients notice nothing.
crowd()
{
	local fd fds=() i
	for i in {1..40}; do
		exec {fd}<>"/dev/tcp/127.0.0.1/$PORT" && fds+=("$fd")
		[ $((i % 2)) = 0 ] || printf 'GET /met' >&"$fd"
	done
	is 'forty connections' "${#fds[@]}" 40
	is 'a scrape gets through' "$(get | head -n 1)" $'HTTP/1.1 200 OK\r'
	check 'and so does a client' cli get greeting
	is 'silent ones are closed in the end' "$(timeout 60 cat <&"${fds[39]}" | wc -c)" 0
	for fd in "${fds[@]}"; do
		exec {fd}>&-
	done
	is 'and another scrape' "$(get | head -n 1)" $'HTTP/1.1 200 OK\r'
}

# Each of several regions has its samples, and those of a family stay together.
regions()
{
	local region
	(umask 077; for region in a b; do
		echo "$region admin $(printf '%032d' 0) region=$region"
	done >"$DIR/tenants"; printf '%032d' 0 >"$DIR/secret")
	check 'a server with three regions starts' start --tenants "$DIR/tenants" \
		--region a:1M --region b:2M
	cli --tenant b --secret-file "$DIR/secret" put key value >/dev/null
	check 'a value in one of them' wait_for 30 becomes \
		'rkv_block_bytes{region="b",class="64",state="live"}' 64
	get | body >"$DIR/metrics"
	is 'the format is right with three regions' "$(wrong_format "$DIR/metrics")" ''
	is 'each has its pool' "$(grep '^rkv_pool_bytes{' "$DIR/metrics")" \
'rkv_pool_bytes{region="default"} 16777216
rkv_pool_bytes{region="a"} 1048576
rkv_pool_bytes{region="b"} 2097152'
	is 'and its sessions' "$(grep '^rkv_sessions_joined_total{' "$DIR/metrics" |
		cut -d ' ' -f 2 | paste -sd ' ')" '0 0 1'
	is 'the server has one uptime' "$(grep -c '^rkv_uptime_seconds ' "$DIR/metrics")" 1
	check 'the server stops in order' stop_server
}

options()
{
	local value taken=$PORT
	for value in '' a:b 127.0.0.1:70000 70000 a,b; do
		timeout 60 "$RKV_BUILD/kv-server" --metrics-listen "$value" >"$DIR/out" 2>"$DIR/err"
		is "--metrics-listen '$value' is refused" "$?" 2
		is 'in one sentence' "$(wc -l <"$DIR/err")" 1
	done
	timeout 60 "$RKV_BUILD/kv-server" --listen 127.0.0.1:0 --fabric soft --pool-size 16M \
		--metrics-listen "$taken" >"$DIR/out" 2>"$DIR/err"
	is 'a port that is taken: no start' "$?" 1
	check 'and why' grep -q -- "--metrics-listen: .*:$taken" "$DIR/err"
	check '--check knows' grep -q '^FAIL metrics port: ' <("$RKV_BUILD/kv-server" --check \
		--listen 127.0.0.1:0 --fabric soft --pool-size 16M --metrics-listen "$taken")
	check 'the server stops in order' stop_server
	start_server --pool-size 16M --scrub-rate off
	is 'without the scrubber nobody counts free blocks' \
		"$(cli stats | grep -cE '^(bytes_free|bytes_garbage|blocks_age)')" 0
	check_not 'off unless asked for' grep -q 'metrics' "$DIR/server.err"
	check 'the server stops in order' stop_server
}

check 'a server with metrics starts' start
cli put greeting hello >/dev/null
check 'the first look at the index' wait_for 30 becomes 'rkv_index_slots_used{region="default"}' 1
check 'the first pass of the scrubber' wait_for 30 blocks_are_counted
format
documents
moves
refusals
crowd
options
regions
finish
