# SPDX-License-Identifier: BSD-2-Clause
fabric_TESTS += tests/fabric/test_shm tests/fabric/test_fault
san_TESTS += tests/fabric/test_shm tests/fabric/test_fault
test_shm_EXTRA := tests/fabric/conformance.c tests/fabric/shm_pair.c
test_fault_EXTRA := tests/fabric/conformance.c tests/fabric/shm_pair.c tests/fabric/fabric_fault.c
