# SPDX-License-Identifier: BSD-2-Clause
fabric_TESTS += tests/fabric/test_shm tests/fabric/test_fault
san_TESTS += tests/fabric/test_shm tests/fabric/test_fault
test_shm_EXTRA := tests/fabric/conformance.c tests/fabric/shm_pair.c tests/fabric/pair.c \
	tests/fault/heap.c
test_fault_EXTRA := tests/fabric/conformance.c tests/fabric/shm_pair.c \
	tests/fabric/pair.c tests/fabric/fabric_fault.c
fabric_TESTS += tests/fabric/test_verbs tests/fabric/test_verbs_setup
san_TESTS += tests/fabric/test_verbs tests/fabric/test_verbs_setup
fake_device := tests/fabric/conformance.c tests/fabric/fake_cm.c tests/fabric/fake_verbs.c \
	tests/fabric/verbs_pair.c tests/fabric/pair.c
test_verbs_EXTRA := $(fake_device) tests/fault/heap.c
test_verbs_setup_EXTRA := $(fake_device)
fabric_TESTS += tests/fabric/test_verbs_device
test_verbs_device_EXTRA := tests/fabric/conformance.c tests/fabric/verbs_pair.c \
	tests/fabric/pair.c
fabric_TESTS += tests/fabric/test_tcp tests/fabric/test_tcp_peers
san_TESTS += tests/fabric/test_tcp tests/fabric/test_tcp_peers
test_tcp_EXTRA := tests/fabric/conformance.c tests/fabric/tcp_pair.c tests/fabric/pair.c \
	tests/fault/sites.c
test_tcp_LDFLAGS = $(sites_LDFLAGS)
test_tcp_peers_EXTRA := tests/fabric/conformance.c tests/fabric/tcp_pair.c tests/fabric/pair.c
