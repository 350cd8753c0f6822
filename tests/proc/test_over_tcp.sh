#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Tests of whole processes once more, over tcp instead of shared memory: what operations cost,
# clients and servers that die, mixed loads, limits, the examples, and who is not invited.
# (timeout: 600)
. tests/lib.sh

RKV_SERVER_ARGS='--fabric tcp' tests/run "@$RKV_BUILD" tests/proc/test_cost tests/proc/test_limits \
	tests/proc/test_mixed tests/proc/test_kill tests/proc/test_examples \
	tests/proc/test_uninvited >"$DIR/said" 2>&1
status=$?
comment "$(cat "$DIR/said")"
results_of "$DIR/said"
is 'tests/run ended well' $status 0
finish
