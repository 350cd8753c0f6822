# SPDX-License-Identifier: BSD-2-Clause
fault_harness := tests/fault/harness.c tests/fault/no_control.c \
	tests/fabric/fabric_fault.c tests/fabric/shm_pair.c tests/fabric/pair.c
sites_LDFLAGS := $(foreach f,malloc calloc realloc aligned_alloc mmap socket connect eventfd \
	pthread_create,-Wl,--wrap=$(f))
fault_TESTS += tests/fault/test_outcome tests/fault/test_alloc tests/fault/test_rules \
	tests/fault/test_failures tests/fault/test_failures_open tests/fault/test_storm \
	tests/fault/test_stamps
san_TESTS += tests/fault/test_outcome tests/fault/test_alloc tests/fault/test_rules \
	tests/fault/test_failures tests/fault/test_failures_open tests/fault/test_storm \
	tests/fault/test_stamps
test_outcome_EXTRA := $(fault_harness)
test_stamps_EXTRA := $(fault_harness)
test_alloc_EXTRA := $(fault_harness)
test_rules_EXTRA := $(fault_harness)
test_failures_EXTRA := tests/fault/sites.c $(fault_harness)
test_failures_LDFLAGS := $(sites_LDFLAGS)
test_failures_open_EXTRA := tests/fault/sites.c tests/proc/proc.c
test_failures_open_LDFLAGS := $(sites_LDFLAGS)
tiny_hash_TESTS += tests/fault/test_storm
tiny_tags_TESTS += tests/fault/test_storm
test_storm_EXTRA := tests/sim/lin.c $(fault_harness)
