#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# kv-cli as scripts use it: every command and option, any bytes as key and value, limits, every way
# of failing with its exit code and its one sentence, and that the man pages know every option.
. tests/lib.sh

PORT_OF_NOBODY=127.0.0.1:1

cli()
{
	timeout 60 "$RKV_BUILD/kv-cli" "$@"
}

# exits CODE NAME COMMAND...: the exit code; a failure prints one sentence and nothing on stdout.
exits()
{
	local want=$1 name=$2 got complaint=
	shift 2
	"$@" >"$DIR/stdout" 2>"$DIR/stderr" </dev/null
	got=$?
	[ $got = "$want" ] || complaint="exit code $got, not $want"
	if [ "$want" != 0 ]; then
		[ "$(grep -c '' "$DIR/stderr")" = 1 ] || complaint+=" not one line on stderr"
		[ "$want" = 1 ] || grep -q '^kv-cli: .*; ' "$DIR/stderr" ||
			complaint+=" no remedy"
		[ ! -s "$DIR/stdout" ] || complaint+=" something on stdout"
	fi
	if [ -z "$complaint" ]; then
		ok "$name"
	else
		not_ok "$name" "$complaint
$(cat "$DIR/stdout" "$DIR/stderr")"
	fi
}

# gets NAME WANT ARGUMENTS...: what kv-cli get prints, to the byte (a dot keeps final newlines).
gets()
{
	local name=$1 want=$2
	shift 2
	is "$name" "$(cli get "$@" 2>&1 && echo .)" "$want."
}

without_server()
{
	exits 0 'help' cli help
	exits 0 '--help' cli --help
	is 'help is --help' "$(cli help)" "$(cli --help)"
	check 'help tells the exit codes' grep -q '^  6  ' "$DIR/stdout"
	exits 0 'version' cli version
	check 'version names both' grep -Eqx \
		'kv-cli [0-9.]+, librkv [0-9.]+' "$DIR/stdout"

	exits 2 'no command' cli
	exits 2 'unknown command' cli fetch a
	exits 2 'unknown option' cli get a --colour
	exits 2 'unknown letter' cli get a -x
	exits 2 'option without its value' cli get a --server
	exits 2 'option with a value that it does not take' cli get a --hex=1
	exits 2 'option of another command' cli get a --ttl 1
	exits 2 'option given twice' cli put a b --ttl 1 --ttl 2
	exits 2 'options that exclude each other' cli get --key-hex 61 --key-file a
	exits 2 'get without a key' cli get
	exits 2 'cas without a version' cli cas a
	exits 2 'touch without a time' cli touch a
	exits 2 'a word too many' cli get a b
	exits 2 'far too many words' cli put a b c d e f
	exits 2 'key and value both from stdin' cli put --key-file - -
	exits 2 'odd number of hex digits' cli get --key-hex 616
	exits 2 'not a hex digit' cli get --key-hex 6g
	exits 2 'not a number' cli put a b --flags seven
	exits 2 'negative number' cli put a b --ttl -1
	exits 2 'number above 32 bits' cli put a b --flags 4294967296
	exits 2 'version above 64 bits' cli cas a 18446744073709551616 b
	exits 2 'no time at all' cli get a --timeout-ms 0
	exits 2 'no ping at all' cli ping -c 0
	exits 2 'two servers' cli get a --server localhost:1,localhost:2
	exits 2 'impossible port' cli get a --server localhost:70000
	exits 3 'nobody listens' cli get a --server $PORT_OF_NOBODY
	check 'the sentence names the server' grep -q "$PORT_OF_NOBODY" "$DIR/stderr"
	exits 3 'a mutation that never left is no doubt' cli put a b --server $PORT_OF_NOBODY
	exits 3 'server from the environment' env RKV_SERVER=$PORT_OF_NOBODY \
		"$RKV_BUILD/kv-cli" ping
}

commands()
{
	local first second name

	exits 1 'get: absent' cli get apple
	first=$(cli put apple red)
	check 'put prints the version' [ "$first" -gt 0 ]
	gets 'get: the value and nothing else' red apple
	exits 1 'add: exists' cli add apple green
	exits 0 'add' cli add pear green
	exits 1 'replace: absent' cli replace plum blue
	exits 0 'replace' cli replace pear yellow
	gets 'get: replaced' yellow pear
	exits 1 'cas: absent' cli cas plum "$first" blue
	exits 0 'cas' cli cas apple "$first" green
	second=$(cat "$DIR/stdout")
	check 'cas gives another version' [ "$second" != "$first" ]
	exits 1 'cas: mismatch' cli cas apple "$first" blue
	gets 'cas: the loser left no trace' green apple
	exits 0 'del' cli del apple
	exits 1 'del: absent' cli del apple
	exits 1 'get: deleted' cli get apple

	exits 0 'ping' cli ping
	is 'ping names the fabric' "$(grep -c ', fabric [a-z]' "$DIR/stdout")" 1
	exits 0 'ping -c' cli ping -c 3
	is 'ping -c: so many lines' "$(grep -c 'answered in' "$DIR/stdout")" 3
	exits 0 'stats' cli stats
	check 'stats: names and numbers' grep -Eq '^[a-z_]+ [0-9]+$' "$DIR/stdout"
	is 'client/man/kv-server.1 knows every counter' "$(cut -d ' ' -f 1 "$DIR/stdout" |
		sed 's/_[0-9]*$/_N/' | sort -u | while read -r name; do
			grep -qx ".B $name" client/man/kv-server.1 || echo "$name"
		done)" ''
	exits 0 'limits' cli limits
	is 'limits: the longest key' "$(sed -n 's/^key_len_max //p' "$DIR/stdout")" 1024
}

times_and_flags()
{
	local version

	version=$(cli put melon sweet --ttl 1000 --flags 0xdeadbeef)
	is 'meta' "$(cli get melon --meta 2>&1 >/dev/null | grep -v ttl)" "value_len 5
version $version
flags 3735928559"
	check 'meta: the time left' [ "$(cli get melon --meta 2>&1 >/dev/null |
		sed -n 's/^ttl_s //p')" -le 1000 ]
	version=$(cli touch melon 0)
	gets 'json, after touch' "{\"version\": \"$version\", \"flags\": 3735928559, \"ttl_s\": 0, \
\"value_len\": 5, \"value_hex\": \"7377656574\"}
" melon --json
	check 'put with json' grep -Eqx '\{"version": "[0-9]+"\}' <(cli put melon sour --json)
	exits 0 'put with a short time' cli put melon sour --ttl 1
	check 'the value is absent when the time is over' wait_for 20 is_absent melon
	exits 1 'touch: absent' cli touch melon 5
	exits 2 'a longer time than there is' cli put melon sweet --ttl 4294967295
}

is_absent()
{
	cli get "$1" >/dev/null 2>&1
	[ $? = 1 ]
}

any_bytes()
{
	printf 'a\0b\377\n\n' >"$DIR/value"
	printf 'k\0\377' >"$DIR/key"

	exits 0 'put: value from a file, key in hex' cli put --key-hex 6b00FF --file "$DIR/value"
	cli get --key-file "$DIR/key" >"$DIR/got"
	check 'get: the same bytes, key from a file' cmp "$DIR/value" "$DIR/got"
	cli get --key-hex 6b00ff --out "$DIR/got2"
	check 'get --out: the same bytes' cmp "$DIR/value" "$DIR/got2"
	gets 'get --hex' 610062ff0a0a --key-hex 6b00ff --hex
	gets 'options before the command' 610062ff0a0a --hex --key-hex 6b00ff
	is 'options behind the key, also with POSIXLY_CORRECT' \
		"$(POSIXLY_CORRECT=1 cli put posix b && POSIXLY_CORRECT=1 cli get posix --hex)" \
		"$(cli get posix --meta 2>&1 >/dev/null | sed -n 's/^version //p')
62"
	exits 1 'a key that differs behind the NUL' cli get --key-hex 6b0000
	exits 0 'put --value-hex' cli put hex --value-hex 00fF00
	gets 'get what came in hex' 00ff00 hex --hex
	printf 'from a pipe\n' | cli put pipe >/dev/null
	gets 'value from standard input' 'from a pipe
' pipe
	printf 'dash' | cli put pipe - >/dev/null
	gets 'value from standard input, by -' dash pipe
	printf 'k\0\377' | cli put --key-file - same >/dev/null
	gets 'key from standard input' same --key-hex 6b00ff
	exits 0 'empty value' cli put empty ''
	gets 'an empty value is a value' '' empty
	exits 0 'empty value from standard input' cli put empty
	gets '--newline' 'dash
' pipe --newline
	exits 0 'words that begin with a dash' cli put -- -k --ttl
	gets 'a value that looks like an option' --ttl -- -k
	cli get pipe --json --out "$DIR/got3" >"$DIR/json"
	check '--json with --out: no value in the object' grep -q '"value_len": 4}$' "$DIR/json"
	is '--json with --out: the value in the file' "$(cat "$DIR/got3")" dash
}

limit_of()
{
	cli limits | sed -n "s/^$1 //p"
}

large_and_too_large()
{
	local key value_len=$(($(limit_of block_len_max) - 40 - 3))

	key=$(printf 'k%.0s' {1..1024})
	exits 0 'the longest key' cli put "$key" v
	gets 'get the longest key' v "$key"
	exits 2 'a longer key' cli put "${key}k" v
	exits 2 'an endless key' cli get --key-file /dev/zero
	exits 2 'an empty key' cli get ''
	head -c "$value_len" /dev/urandom >"$DIR/large"
	exits 0 'the longest value' cli put big --file "$DIR/large"
	cli get big --out "$DIR/got"
	check 'get the longest value' cmp "$DIR/large" "$DIR/got"
	printf x >>"$DIR/large"
	exits 2 'a longer value' cli put big --file "$DIR/large"
	check 'the sentence names the limit' grep -q "$value_len" "$DIR/stderr"
	exits 2 'an endless value' cli put big --file /dev/zero
	cli get big --out "$DIR/got2"
	check 'what was refused left no trace' cmp "$DIR/got" "$DIR/got2"
}

# What bash cannot say in an argument list.
closed_stdin()
{
	cli put shut <&-
}
closed_stdout()
{
	cli get posix >&-
}
full_disk()
{
	cli get posix >/dev/full
}
full_disk_put()
{
	cli put full applied >/dev/full
}

# With every number of descriptors it works, or says in one sentence which limit is too low.
few_descriptors()
{
	local n code n_served=0 n_short=0 complaint=

	for n in {4..16}; do
		(ulimit -n "$n" && exec "$RKV_BUILD/kv-cli" get posix) >/dev/null 2>"$DIR/stderr"
		code=$?
		case $code in
		0) n_served=$((n_served + 1)) ;;
		*)
			n_short=$((n_short + 1))
			[ $code = 6 ] && grep -q 'open files' "$DIR/stderr" &&
				! grep -q -e CORRUPT -e container "$DIR/stderr" ||
				complaint+="$n: exit code $code: $(cat "$DIR/stderr")
"
			;;
		esac
	done
	is 'few descriptors: the limit is named' "$complaint" ''
	check 'few descriptors: some are too few, some enough' [ $n_served -gt 0 -a $n_short -gt 0 ]
}

local_trouble()
{
	exits 6 'no such file' cli put a --file "$DIR/nothing"
	exits 6 'no such key file' cli get --key-file "$DIR/nothing"
	exits 6 'a directory' cli put a --file "$DIR"
	exits 6 'nowhere to write' cli get posix --out "$DIR/nothing/at/all"
	exits 6 'full disk' full_disk
	exits 6 'full disk, put' full_disk_put
	check 'full disk, put: the sentence says that it was applied' \
		grep -q 'was applied' "$DIR/stderr"
	gets 'full disk, put: it was' applied full
	few_descriptors
	exits 6 'full disk, --out' cli get posix --out /dev/full
	exits 6 'standard output is closed' closed_stdout
	exits 6 'standard input is closed' closed_stdin
	exits 1 'a closed input stores nothing' cli get shut
	printf kept >"$DIR/kept"
	exits 1 'get --out: absent' cli get nothing --out "$DIR/kept"
	is 'an absent key leaves the file alone' "$(cat "$DIR/kept")" kept
}

stopped_server()
{
	kill -STOP "$SERVER_PID"
	exits 3 'a server that does not answer' cli get posix --timeout-ms 300
	kill -CONT "$SERVER_PID"
	gets 'and goes on' b posix
}

full_pool()
{
	local i=0 code=0

	head -c 60000 /dev/zero >"$DIR/value"
	while [ $code = 0 ] && [ $i -lt 100 ]; do
		i=$((i + 1))
		cli put "key$i" --file "$DIR/value" --timeout-ms 2000 >/dev/null 2>"$DIR/stderr"
		code=$?
	done
	is 'full pool' $code 5
	check 'full pool: the sentence says what to do' grep -q -e --pool-size "$DIR/stderr"
	exits 0 'del in a full pool' cli del key1
	exits 0 'which makes room' cli put key1 --file "$DIR/value"
}

# Every long option of --help stands in the man page, as roff writes it (\-\-pool\-size).
man_page()
{
	local program=$1 page=client/man/$1.1 options option missing=

	options=$(timeout 60 "$RKV_BUILD/$program" --help | grep -oE -e '--[a-z][a-z0-9-]*' |
		sort -u)
	[ -n "$options" ] || missing=" all, as $program --help names none"
	for option in $options; do
		sed 's/\\-/-/g' "$page" | grep -qE -e "$option([^a-z0-9-]|\$)" ||
			missing+=" $option"
	done
	is "$page knows the options of $program" "$missing" ''
}

# Every function and every code of rkv.h.
library_page()
{
	local name missing=

	for name in $(grep -oE '\brkv_[a-z_]+\(|^\s+RKV_(E_)?[A-Z_]+ = ' client/include/rkv.h |
		tr -d '(= \t' | grep -vE '^RKV_(LOG|OP)_' | sort -u); do
		grep -qw "$name" client/man/rkv.3 || missing+=" $name"
	done
	is 'client/man/rkv.3 knows the functions and codes of rkv.h' "$missing" ''
}

man_page kv-cli
man_page kv-server
man_page kv-bench
library_page
without_server

start_server --pool-size 64M --chunk-size 1M || { not_ok 'server starts'; finish; }
export RKV_SERVER=$SERVER
commands
times_and_flags
any_bytes
large_and_too_large
local_trouble
stopped_server
check 'server stops' stop_server
exits 3 'no server any more' cli get posix

start_server --pool-size 2M --chunk-size 64K || { not_ok 'small server starts'; finish; }
export RKV_SERVER=$SERVER
full_pool
check 'small server stops' stop_server
finish
