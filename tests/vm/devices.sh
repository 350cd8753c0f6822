# SPDX-License-Identifier: BSD-2-Clause
#
# RDMA devices for tests, in a virtual machine of vm.sh: sourced there.
#
#   one_device    rxe0 on 10.77.0.1; connections within one device never touch a wire. Servers that
#                 tests start serve on it
#   two_devices   rxe0 on 10.77.0.1 and rxe1 on 10.77.0.2, with a wire between them
#   lose_packets  on the wire, from now on, in both directions
#   cut_wire      the link is down
#   mend_wire     ends both
#
# The wire is a pair of veth devices in one network name space (rxe does not work in several). The
# kernel would deliver what one local address sends to another without a wire; policy routing looks
# at who sends: only what came in by a device, or goes from an address to itself, is looked up in
# the local table first.

rxe()
{
	rdma link add "$1" type rxe netdev "$2"
	chmod 666 /dev/infiniband/*
}

one_device()
{
	ip link add d0 type dummy
	ip address add 10.77.0.1/24 dev d0
	ip link set d0 up
	rxe rxe0 d0
	export RKV_SERVER_ARGS='--fabric verbs --rdma-address 10.77.0.1' RKV_VERBS_ADDRESS=10.77.0.1
}

# Routes of a device that went down are gone.
wire_routes()
{
	ip route replace 10.77.0.2/32 dev va src 10.77.0.1 table 101
	ip route replace 10.77.0.1/32 dev vb src 10.77.0.2 table 102
}

wire_rules()
{
	ip rule add pref 10 iif va lookup local
	ip rule add pref 11 iif vb lookup local
	ip rule add pref 12 from 10.77.0.1 to 10.77.0.1 lookup local
	ip rule add pref 13 from 10.77.0.2 to 10.77.0.2 lookup local
	ip rule add pref 20 to 10.77.0.2 lookup 101
	ip rule add pref 21 to 10.77.0.1 lookup 102
	ip rule add pref 500 lookup local
	ip rule del pref 0
}

two_devices()
{
	local name
	ip link add va type veth peer name vb
	ip address add 10.77.0.1/32 dev va
	ip address add 10.77.0.2/32 dev vb
	for name in va vb; do
		sysctl -qw "net.ipv4.conf.$name.accept_local=1" "net.ipv4.conf.$name.rp_filter=0"
		ip link set "$name" up
	done
	sysctl -qw net.ipv4.conf.all.rp_filter=0
	ip neigh replace 10.77.0.2 lladdr "$(cat /sys/class/net/vb/address)" dev va nud permanent
	ip neigh replace 10.77.0.1 lladdr "$(cat /sys/class/net/va/address)" dev vb nud permanent
	wire_routes
	wire_rules
	rxe rxe0 va
	rxe rxe1 vb
}

lose_packets()
{
	tc qdisc replace dev va root netem loss 100%
	tc qdisc replace dev vb root netem loss 100%
}

cut_wire()
{
	ip link set va down
}

mend_wire()
{
	tc qdisc del dev va root 2>/dev/null
	tc qdisc del dev vb root 2>/dev/null
	ip link set va up
	ip neigh replace 10.77.0.2 lladdr "$(cat /sys/class/net/vb/address)" dev va nud permanent
	ip neigh replace 10.77.0.1 lladdr "$(cat /sys/class/net/va/address)" dev vb nud permanent
	wire_routes
}
