# SPDX-License-Identifier: BSD-2-Clause
#
# RDMA devices for tests, in a virtual machine of vm.sh: sourced there.
#
#   one_device    rxe0 on 10.77.0.1; connections within one device never touch a wire. Servers that
#                 tests start serve on it
#   two_devices   rxe0 on 10.77.0.1 and rxe1 on 10.77.0.2, with a wire between them
#   cut_wire      the cable is pulled: both ports lose the carrier
#   mend_wire     it is there again
#
# The wire is a bridge and two pairs of veth devices in one network name space (rxe does not work in
# several). The kernel would deliver what one local address sends to another without a wire; policy
# routing looks at who sends: only what came in by a device, or goes from an address to itself, is
# looked up in the local table first.
#
# The netdevs of the devices are never set down themselves: when rxe cannot route what its QP 1
# sends, that queue pair is in the error state for ever, and with it all of rdma_cm on the device.

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

wire_routes()
{
	ip route add 10.77.0.2/32 dev va src 10.77.0.1 table 101
	ip route add 10.77.0.1/32 dev vb src 10.77.0.2 table 102
	ip rule add pref 10 iif va lookup local
	ip rule add pref 11 iif vb lookup local
	ip rule add pref 12 from 10.77.0.1 to 10.77.0.1 lookup local
	ip rule add pref 13 from 10.77.0.2 to 10.77.0.2 lookup local
	ip rule add pref 20 to 10.77.0.2 lookup 101
	ip rule add pref 21 to 10.77.0.1 lookup 102
	ip rule add pref 500 lookup local
	ip rule del pref 0
}

wire()
{
	local end
	ip link add wire type bridge
	ip link set wire up
	for end in a b; do
		ip link add "v$end" type veth peer name "p$end"
		sysctl -qw "net.ipv4.conf.v$end.accept_local=1" "net.ipv4.conf.v$end.rp_filter=0"
		ip link set "p$end" master wire
		ip link set "p$end" up
		ip link set "v$end" up
	done
	sysctl -qw net.ipv4.conf.all.rp_filter=0
	ip address add 10.77.0.1/32 dev va
	ip address add 10.77.0.2/32 dev vb
	ip neigh add 10.77.0.2 lladdr "$(cat /sys/class/net/vb/address)" dev va nud permanent
	ip neigh add 10.77.0.1 lladdr "$(cat /sys/class/net/va/address)" dev vb nud permanent
}

two_devices()
{
	wire
	wire_routes
	rxe rxe0 va
	rxe rxe1 vb
	export RKV_SERVER_ARGS='--fabric verbs --rdma-address 10.77.0.1'
}

cut_wire()
{
	ip link set pa down
	ip link set pb down
}

mend_wire()
{
	ip link set pa up
	ip link set pb up
}
