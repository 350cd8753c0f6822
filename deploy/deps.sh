#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Installs what is missing to build rkv (`deps.sh build`), to run its tests (`deps.sh build test`)
# and those in a virtual machine too (`deps.sh build test vm`), for the benchmark beside other
# stores (`deps.sh build bench`), and to check metrics with promtool (`deps.sh metrics`), with
# apt-get on Debian and Ubuntu; elsewhere it names what is missing. If nothing is, it does nothing
# and needs no rights. It never asks. `deps.sh --check ...` only names what is missing, and fails
# if anything is.
set -u
PATH=$PATH:/usr/sbin:/sbin

have()
{
	command -v "$1"
}

have_library()
{
	have pkg-config && pkg-config "$@"
}

# Ubuntu 22.04 has libFuzzer in a package that clang needs, and none of this name.
have_fuzzer()
{
	grep -qs '^VERSION_ID="22.04"' /etc/os-release ||
		compgen -G "$(clang -print-resource-dir)/lib/linux/libclang_rt.fuzzer-*.a"
}

# package|what it is for|how to see that it is there
build='gcc|C compiler|have gcc
libc6-dev|headers of the C library|test -e /usr/include/stdio.h
make|make|have make
pkg-config|finds libraries|have pkg-config
liburing-dev|io_uring, version 2.3 or later|have_library --atleast-version=2.3 liburing
libxxhash-dev|hash of keys|have_library libxxhash
libssl-dev|TLS, HMAC, version 3.0 or later|have_library --atleast-version=3.0 openssl
libibverbs-dev|RDMA devices|have_library libibverbs
librdmacm-dev|connections of RDMA devices|have_library librdmacm'
test='libcmocka-dev|unit tests|have_library cmocka
g++|rkv.h as C++|have g++
clang|second compiler|have clang
libclang-rt-dev|fuzz targets|have_fuzzer
clang-format|layout of sources|have clang-format
openssl|certificates|have openssl
strace|system calls of a session|have strace
valgrind|instructions of an operation|have valgrind
spin|checks models of the protocol|have spin
gnuplot-nox|draws what kv-bench --plot writes|have gnuplot'
vm='qemu-system-x86|a machine with an RDMA device (Soft-RoCE)|have qemu-system-x86_64
busybox-static|its user space|have busybox
cpio|its root file system|have cpio
kmod|order of its kernel modules|have depmod
xz-utils|unpacks them|have xz
zstd|unpacks them|have zstd
iproute2|sets its devices up|have ip && have rdma && have tc
ibverbs-providers|Soft-RoCE for programs|test -e /etc/libibverbs.d/rxe.driver'
bench='memcached|a store to compare with|have memcached
redis-server|a store to compare with|have redis-server
libmemcached-tools|drives memcached|have memcaslap
redis-tools|drives redis|have redis-benchmark
gnuplot-nox|draws|have gnuplot'
metrics='prometheus|checks metrics and alert rules|have promtool'

# The lines of the groups whose condition does not hold.
missing()
{
	local group package purpose condition
	for group in "$@"; do
		while IFS='|' read -r package purpose condition; do
			eval "$condition" >/dev/null 2>&1 </dev/null || echo "$package|$purpose"
		done <<<"${!group}"
	done
}

say()
{
	echo "deploy/deps.sh: $*"
}

fail()
{
	say "$*" >&2
	exit 1
}

as_root()
{
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		sudo "$@"
	fi
}

apt()
{
	as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends \
		-o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 "$@" </dev/null
}

check_only=
[ "${1-}" != --check ] || { check_only=yes && shift; }
[[ $# != 0 && "$*" =~ ^((build|test|vm|bench|metrics) ?)*$ ]] ||
	fail "usage: deploy/deps.sh [--check] [build] [test] [vm] [bench] [metrics]"

lacking=$(missing "$@")
[ -n "$lacking" ] || exit 0
say "missing:"
sed 's/\(.*\)|\(.*\)/  \1 (\2)/' <<<"$lacking"
[ -z "$check_only" ] || exit 1
mapfile -t packages < <(cut -d'|' -f1 <<<"$lacking")

have apt-get >/dev/null || fail "no apt-get here: use this system's package manager"
[ "$(id -u)" = 0 ] || have sudo >/dev/null ||
	fail "neither root nor sudo: as root, apt-get install ${packages[*]}"

say "apt-get install ${packages[*]}"
if ! apt install --simulate "${packages[@]}" >/dev/null 2>&1 || ! apt install "${packages[@]}"; then
	say "the list of packages seems to be old: apt-get update"
	apt update && apt install "${packages[@]}" || fail "apt-get failed"
fi

lacking=$(missing "$@")
[ -z "$lacking" ] || fail "this system's packages are too old: ${lacking//$'\n'/, }"
