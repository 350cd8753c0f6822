# SPDX-License-Identifier: BSD-2-Clause
vm_TESTS += tests/vm/test_one_device tests/vm/test_two_devices tests/vm/test_processes \
	tests/vm/test_networks
slow_TESTS += tests/vm/test_one_device tests/vm/test_two_devices tests/vm/test_processes \
	tests/vm/test_networks
guest_TESTS += tests/vm/test_steady tests/vm/test_growth tests/vm/test_wire tests/vm/test_messages \
	tests/vm/test_rates tests/vm/test_soft_roce
test_wire_EXTRA := $(load_EXTRA)
test_steady_EXTRA := $(load_EXTRA)
test_growth_EXTRA := $(load_EXTRA)
