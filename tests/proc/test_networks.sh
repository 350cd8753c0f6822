#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Server and clients on two networks of their own, joined by a cable: over tcp, with values that are
# checked; the cable is pulled for five seconds and plugged in again; packets get lost and late. It
# needs root. (timeout: 400)
. tests/lib.sh
unset RKV_SERVER
PATH=$PATH:/usr/sbin:/sbin
NEAR=rkv-near-$$ FAR=rkv-far-$$

# tests/vm/test_networks runs this where networks can always be made.
unable()
{
	skip_all "$1"
}

remove_networks()
{
	ip netns del "$NEAR" 2>/dev/null
	ip netns del "$FAR" 2>/dev/null
}

make_networks()
{
	ip netns add "$NEAR" && ip netns add "$FAR" &&
		ip link add rkv0 netns "$NEAR" type veth peer name rkv1 netns "$FAR" &&
		ip -n "$NEAR" address add 10.99.0.1/24 dev rkv0 &&
		ip -n "$FAR" address add 10.99.0.2/24 dev rkv1 &&
		ip -n "$NEAR" link set rkv0 up && ip -n "$FAR" link set rkv1 up &&
		ip -n "$NEAR" link set lo up && ip -n "$FAR" link set lo up
}

[ "$(id -u)" = 0 ] || unable 'only root may make networks'
command -v ip >/dev/null || unable 'ip is missing (iproute2)'
trap 'status=$?; remove_networks; (exit $status); at_exit' EXIT
make_networks 2>"$DIR/ip" || unable "no networks: $(head -n 1 "$DIR/ip")"

# A path, since busybox's timeout would take its own ip.
near()
{
	timeout 120 "$(command -v ip)" netns exec "$NEAR" "$RKV_BUILD/$1" "${@:2}"
}

# What the far side offers: also the pool, which no client on another network finds.
ip netns exec "$FAR" "$RKV_BUILD/kv-server" --listen 0.0.0.0:7440 \
	--pool-size 64M --fabric soft --insecure \
	>"$DIR/server.out" 2>"$DIR/server.err" &
SERVER_PID=$!
wait_for 30 server_said_ready
export RKV_SERVER=10.99.0.2:7440

load()
{
	near kv-bench --workload a --records 500 --threads 2 --depth 8 --verify "$@"
}

job()
{
	check 'put' near kv-cli put greeting 'over a cable'
	is 'get' "$(near kv-cli get greeting)" 'over a cable'
	check 'ping' near kv-cli ping
	is 'the fabric is tcp' "$(sed -n 's/.*, fabric //p' "$DIR/check.out")" tcp
	check 'a mixed load, each value checked' load --load --run --operations 20000
}

# Operations in flight end in doubt or time out, those after them are refused until the clients have
# healed: failures, but never a wrong value, and all sessions come back.
pulled_cable()
{
	local bench
	load --run --operations 1000000000 --max-seconds 20 --rate 2000 --timeout-ms 2000 \
		--json "$DIR/json" >"$DIR/bench" 2>&1 &
	bench=$!
	sleep 3
	ip -n "$FAR" link set rkv1 down
	sleep 5
	ip -n "$FAR" link set rkv1 up
	wait $bench
	check 'the load came to its end' grep -q '^Throughput: ' "$DIR/bench"
	check 'no value was wrong' grep -q '"wrong_values": 0' "$DIR/json"
	check 'all is well afterwards' load --run --operations 5000
}

bad_weather()
{
	tc -n "$FAR" qdisc add dev rkv1 root netem delay 2ms 1ms loss 1% 2>/dev/null || {
		skip 'loss and delay' 'no netem here'
		return
	}
	check 'loss and delay' load --run --operations 3000
	tc -n "$FAR" qdisc del dev rkv1 root
	check 'fair weather again' load --run --operations 5000
}

job
pulled_cable
bad_weather
check 'server stops' stop_server
finish
