# SPDX-License-Identifier: BSD-2-Clause
#
# Everything over one Soft-RoCE device, in a virtual machine: the fabric's conformance, the tests of
# real processes, costs in verbs, growth, messages, rates. (timeout: 1000)
. tests/lib.sh
. tests/vm/vm.sh

vm_test one_device \
	tests/fabric/test_verbs_device \
	tests/vm/test_steady tests/vm/test_growth tests/vm/test_messages tests/vm/test_soft_roce \
	tests/vm/test_rates \
	tests/proc/test_cost tests/proc/test_mixed tests/proc/test_kill tests/proc/test_limits \
	tests/proc/test_bench tests/proc/test_bench_raw
finish
