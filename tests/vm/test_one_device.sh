# SPDX-License-Identifier: BSD-2-Clause
#
# Over one Soft-RoCE device, in a virtual machine that counts instructions: costs in verbs, growth,
# messages, rates, limits. (timeout: 1500)
. tests/lib.sh
. tests/vm/vm.sh

vm_count_instructions
vm_test one_device tests/vm/test_steady tests/vm/test_growth tests/vm/test_messages \
	tests/vm/test_soft_roce tests/vm/test_rates tests/proc/test_cost tests/proc/test_limits \
	tests/proc/test_regions
finish
