#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Where kv-server listens, where it sends clients, and which fabric they take: names, IPv4, IPv6,
# several addresses, what is wrong with one in a sentence; without a way to the pool's socket, and
# where the kernel refuses io_uring.
. tests/lib.sh
unset RKV_SERVER

cli()
{
	timeout 60 "$RKV_BUILD/kv-cli" "$@"
}

# serve OPTIONS...: a small server, whose fabric RKV_SERVER_ARGS does not decide.
serve()
{
	RKV_SERVER_ARGS='' start_server --pool-size 2M "$@" ||
		not_ok "server starts: $*"
}

# The fabric that a client takes.
fabric()
{
	cli ping "$@" 2>&1 | sed -n 's/.*, fabric //p'
}

# refuses NAME STATUS WORDS OPTIONS...: a server that does not start says why.
refuses()
{
	local name=$1 want=$2 words=$3 status
	shift 3
	timeout 30 "$RKV_BUILD/kv-server" --pool-size 2M "$@" >"$DIR/said" 2>&1
	status=$?
	if [ $status = "$want" ] && grep -q -e "$words" "$DIR/said"; then
		ok "$name"
	else
		not_ok "$name" "exit status $status: $(cat "$DIR/said")"
	fi
}

# said NAME WORDS: in what the last check had to show.
said()
{
	if grep -q -e "$2" "$DIR/check.out"; then
		ok "$1"
	else
		not_ok "$1" "$(cat "$DIR/check.out")"
	fi
}

has_ipv6()
{
	[ -e /proc/net/if_inet6 ] && grep -q '^0\{31\}1 ' /proc/net/if_inet6
}

choice()
{
	serve --fabric soft
	is 'soft, same host: the pool is mapped' "$(fabric -s "$SERVER")" shm
	is 'tcp is what is asked for' "$(fabric -s "$SERVER" --fabric tcp)" tcp
	check_status 3 3 'no RDMA device: that is said' cli -s "$SERVER" --fabric verbs ping
	said 'with what there is' 'offers only shm and tcp'
	check_status 2 2 'no such fabric' cli -s "$SERVER" --fabric ib ping
	check 'server stops' stop_server
	serve --fabric shm
	check_status 3 3 'shm only: no tcp' cli -s "$SERVER" --fabric tcp ping
	stop_server
	serve --fabric tcp
	is 'tcp only: tcp' "$(fabric -s "$SERVER")" tcp
	check_status 3 3 'tcp only: no shm' cli -s "$SERVER" --fabric shm ping
	stop_server
	serve --fabric soft --socket "$DIR/socket"
	is 'the socket in a folder' "$(fabric -s "$SERVER")" shm
	rm "$DIR/socket"
	is 'a socket that cannot be reached: tcp' "$(fabric -s "$SERVER")" tcp
	check_status 3 3 'unless shm is asked for' cli -s "$SERVER" --fabric shm ping
	stop_server
}

addresses()
{
	local port
	serve --fabric tcp --listen 127.0.0.1:0,127.0.0.2:0
	check 'two addresses: the first' cli -s "$SERVER" put a b
	is 'two addresses: the second' "$(cli -s "$(sed -n 's/.* and \(127[^ ,]*\),.*/\1/p' \
		"$DIR/server.out")" get a)" b
	stop_server
	serve --fabric tcp --listen localhost:0
	port=${SERVER##*:}
	check 'a name' cli -s "localhost:$port" put a b
	is 'and its address' "$(cli -s "127.0.0.1:$port" get a)" b
	if has_ipv6 && grep -q '\[::1\]' "$DIR/server.out"; then
		is 'and its other one' "$(cli -s "[::1]:$port" get a)" b
	else
		skip 'and its other one' 'localhost stands for one address here'
	fi
	stop_server
	if has_ipv6; then
		serve --fabric tcp --listen '[::1]:0'
		check 'IPv6' cli -s "$SERVER" put a b
		stop_server
		serve --fabric tcp --insecure --listen '[::]:0'
		is 'all addresses: IPv6' "$(fabric -s "[::1]:${SERVER##*:}")" tcp
		is 'all addresses: IPv4' "$(fabric -s "127.0.0.1:${SERVER##*:}")" tcp
		stop_server
	else
		skip 'IPv6' 'there is none here'
	fi
}

advertised()
{
	serve --fabric tcp --insecure --listen 0.0.0.0:0 --advertise 127.0.0.3
	is 'data goes where the server says' "$(fabric -s "127.0.0.1:${SERVER##*:}")" tcp
	stop_server
	serve --fabric tcp --listen 127.0.0.1:0 --advertise localhost
	is 'by a name' "$(fabric -s "$SERVER")" tcp
	stop_server
	serve --fabric tcp --listen 127.0.0.1:0 --advertise 127.0.0.1:1
	check_status 3 3 'nobody is where it says' cli -s "$SERVER" ping
	said 'which is named' '127\.0\.0\.1:1'
	stop_server
}

wrong_addresses()
{
	serve --fabric tcp
	refuses 'in use' 1 "another process listens there.*ss -ltnp" --listen "$SERVER"
	refuses 'one of two in use' 1 'another process listens there' \
		--listen "127.0.0.1:0,$SERVER"
	is 'and the one that is there serves on' "$(fabric -s "$SERVER")" tcp
	stop_server
	refuses 'not local' 1 'this machine has no such address' --listen 192.0.2.1:0
	refuses 'a name that nobody knows' 1 'cannot resolve' --listen no-such-host.invalid:0
	refuses 'twice the same' 2 'twice' --listen 127.0.0.1:7440,127.0.0.1
	refuses 'too many' 2 'at most 8' --listen 127.0.0.1:0,a,b,c,d,e,f,g,h
	refuses 'two to advertise' 2 'one address' --advertise a,b
	refuses 'nothing to advertise for' 2 'leave it out' --fabric shm --advertise a
	refuses 'no threads' 2 '1 to 64' --tcp-threads 0
}

# Runs a client whose kernel refuses it io_uring.
without_rings()
{
	strace -f -qq -o /dev/null -e trace=io_uring_setup -e "inject=io_uring_setup:error=$1" \
		timeout 60 "$RKV_BUILD/kv-cli" "${@:2}"
}

refused_rings()
{
	local error
	command -v strace >/dev/null && strace -o /dev/null true 2>/dev/null || {
		skip 'without io_uring' 'strace does not work here'
		return
	}
	serve --fabric soft
	for error in EPERM ENOSYS ENOMEM EINVAL; do
		check_status 3 6 "tcp without io_uring: $error" \
			without_rings $error -s "$SERVER" --fabric tcp ping
		said "$error: cause and remedy" 'io_uring_setup: .*: .\{20\}'
		check "shm needs none: $error" without_rings $error -s "$SERVER" ping
	done
	stop_server
}

choice
addresses
advertised
wrong_addresses
refused_rings
finish
