#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# An RDMA device without an RDMA NIC: Soft-RoCE (rdma_rxe) on an ordinary network interface. See
# `soft-roce.sh help`. What is there already is left as it is, so that it may run at every boot.
set -u
PATH=$PATH:/usr/sbin:/sbin

usage()
{
	cat <<-'END'
		usage: deploy/soft-roce.sh [up|down|show|help] [INTERFACE]

		  up     (default) makes the RDMA device rxe_INTERFACE, loading the kernel's modules
		  down   removes it
		  show   lists the RDMA devices of this machine, with the addresses to use
		  help   this text

		INTERFACE is the one of the default route unless it is named. The device is gone
		after a reboot. up and down need root; they change nothing that is as it should be.

		Then: kv-server --fabric verbs --rdma-address ADDRESS
	END
}

say()
{
	echo "deploy/soft-roce.sh: $*"
}

fail()
{
	say "$*" >&2
	exit 1
}

default_interface()
{
	ip -o route show default | sed -n 's/.* dev \([^ ]*\).*/\1/p' | head -n 1
}

# The RDMA device on an interface, if there is one.
device_on()
{
	rdma link show 2>/dev/null | awk -v name="$1" '{
		for (i = 1; i < NF; i++)
			if ($i == "netdev" && $(i + 1) == name) { sub("/.*", "", $2); print $2 }
	}'
}

addresses_of()
{
	ip -o address show dev "$1" scope global |
		awk '{ sub("/.*", "", $4); print $4 }' | paste -s -d' '
}

show()
{
	local device interface
	rdma link show 2>/dev/null | sed -n 's|^link \([^/ ]*\)/.* netdev \([^ ]*\).*|\1 \2|p' |
		while read -r device interface; do
			echo "$device on $interface: $(addresses_of "$interface")"
		done
}

# crc32 and crc32_generic: rdma_rxe asks the kernel for that checksum by name.
load_modules()
{
	local module
	for module in crc32_generic rdma_rxe rdma_ucm ib_uverbs; do
		[ -e "/sys/module/$module" ] || modprobe -q "$module"
	done
	[ ! -e /sys/module/rdma_rxe ] || return 0
	local arch
	arch=$(dpkg --print-architecture 2>/dev/null || echo amd64)
	say "this kernel ($(uname -r)) has no module rdma_rxe." >&2
	cat >&2 <<-END
		  Debian: a kernel of the package linux-image-$arch; those named "cloud" leave the
			module out.
		  Ubuntu: apt-get install linux-modules-extra-$(uname -r)
		  Containers and some virtual machines: the host's kernel needs it. The tests need
		  none of this: make test-vm boots a kernel that has the module.
	END
	exit 1
}

up()
{
	local interface=$1 device
	device=$(device_on "$interface")
	if [ -n "$device" ]; then
		say "$interface has an RDMA device already: $device"
	else
		load_modules
		device=rxe_$interface
		rdma link add "$device" type rxe netdev "$interface" ||
			fail "the device cannot be made; dmesg may tell why"
		say "made $device on $interface"
	fi
	say "use it: kv-server --fabric verbs --rdma-address" \
		"$(addresses_of "$interface" | cut -d' ' -f1)"
	[ -e "$provider" ] ||
		say "programs need its library too: apt-get install ibverbs-providers"
}

down()
{
	local interface=$1 device=rxe_$1
	if [ "$(device_on "$interface")" = "$device" ]; then
		rdma link delete "$device" || fail "the device cannot be removed"
		say "removed $device"
	else
		say "there is no $device"
	fi
}

provider=/etc/libibverbs.d/rxe.driver
command=${1:-up}
case $command in
help | -h | --help) usage && exit 0 ;;
up | down | show) [ $# -le 2 ] || { usage >&2 && exit 2; } ;;
*) usage >&2 && exit 2 ;;
esac
command -v rdma >/dev/null && command -v ip >/dev/null ||
	fail "the commands ip and rdma are missing: apt-get install iproute2"
[ "$command" != show ] || { show; exit; }
[ "$(id -u)" = 0 ] || fail "$command needs root"
interface=${2:-$(default_interface)}
[ -n "$interface" ] || fail "there is no default route: name the interface"
[ -e "/sys/class/net/$interface" ] || fail "there is no interface $interface"
"$command" "$interface"
