# SPDX-License-Identifier: BSD-2-Clause
#
# Two networks joined by a cable, in a virtual machine, whose kernel can also lose and delay
# packets. (timeout: 1500)
. tests/lib.sh
. tests/vm/vm.sh

vm_test true tests/proc/test_networks
finish
