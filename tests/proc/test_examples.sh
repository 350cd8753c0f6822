#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Every example does what it says against a server, and says so when there is none.
. tests/lib.sh

example()
{
	timeout 60 "$RKV_BUILD/examples/$1" "${@:2}"
}

start_server --pool-size 64M --chunk-size 1M || { not_ok 'server starts'; finish; }
n_examples=0
for source in client/examples/*.c; do
	name=$(basename "$source" .c)
	check "$name" example "$name" "$SERVER"
	check "$name, a second time" example "$name" "$SERVER"
	check_not "$name without a server" example "$name" 127.0.0.1:1
	check_not "$name without an address" example "$name"
	n_examples=$((n_examples + 1))
done
is 'examples found' $n_examples 5
is 'counter counts exactly' "$(example counter "$SERVER" | tail -n 1)" '4 x 250 increments: 1000'
check 'server stops' stop_server
finish
