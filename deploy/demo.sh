#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# `make demo`: starts a server on this machine, stores and reads a value, runs YCSB workload b
# against it, and stops it. Nothing is left behind. RKV_BUILD is where the programs are.
set -eu
cd "$(dirname "$0")/.."
. tests/lib.sh

echo "== kv-server: a pool of 512 MiB on a free port of 127.0.0.1"
start_server --pool-size 512M
cat "$DIR/server.out"

echo
echo "== kv-cli: a PUT and a GET"
show()
{
	echo "\$ kv-cli $*"
	"$RKV_BUILD/kv-cli" --server "$SERVER" "$@"
}
show put greeting 'hello, remote memory'
show get --newline greeting

echo
echo "== kv-bench: YCSB b, 100,000 records of 1,000 bytes"
"$RKV_BUILD/kv-bench" --server "$SERVER" --workload b --records 100000 --value-size 1000 \
	--threads 2 --depth 16 --operations 1000000 --load --run --verify

echo
stop_server
echo "== kv-server: stopped"
