# SPDX-License-Identifier: BSD-2-Clause
#
# Over one Soft-RoCE device, in a virtual machine with two processors: the fabric's conformance, and
# processes that work together, that die, that are not invited, and that have too little memory.
# kv-bench sees the public API only: that it runs over verbs, test_one_device shows. (timeout: 1500)
. tests/lib.sh
. tests/vm/vm.sh

vm_test one_device tests/fabric/test_verbs_device tests/proc/test_mixed tests/proc/test_kill \
	tests/proc/test_restart tests/proc/test_scrub \
	tests/proc/test_uninvited tests/proc/test_evict
finish
