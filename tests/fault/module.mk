# SPDX-License-Identifier: BSD-2-Clause
fault_harness := tests/fault/harness.c tests/fabric/fabric_fault.c tests/fabric/shm_pair.c
fault_TESTS += tests/fault/test_outcome tests/fault/test_alloc
san_TESTS += tests/fault/test_outcome tests/fault/test_alloc
test_outcome_EXTRA := $(fault_harness)
test_alloc_EXTRA := $(fault_harness)
