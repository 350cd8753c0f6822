# SPDX-License-Identifier: BSD-2-Clause
#
# Two Soft-RoCE devices with a wire between them that is cut, in a virtual machine that counts
# instructions. (timeout: 1500)
. tests/lib.sh
. tests/vm/vm.sh

vm_count_instructions
vm_test two_devices tests/vm/test_wire
finish
