# SPDX-License-Identifier: BSD-2-Clause
proc_TESTS += tests/proc/test_cli tests/proc/test_examples
san_TESTS += tests/proc/test_cli tests/proc/test_examples
proc_TESTS += tests/proc/test_bench
san_TESTS += tests/proc/test_bench
test_bench_EXTRA := tests/proc/proc.c bench/generator.c bench/value.c
proc_TESTS += tests/proc/test_server tests/proc/test_service
san_TESTS += tests/proc/test_server tests/proc/test_service
unit_TESTS += tests/unit/test_sessions
san_TESTS += tests/unit/test_sessions
tests_PROGRAMS += tests/proc/raw_client
test_server_EXTRA := tests/proc/proc.c tests/proc/raw.c
test_service_EXTRA := tests/proc/proc.c tests/proc/raw.c
raw_client_EXTRA := tests/proc/proc.c tests/proc/raw.c
proc_TESTS += tests/proc/test_client_control
san_TESTS += tests/proc/test_client_control
test_client_control_EXTRA := tests/proc/fake_server.c tests/proc/proc.c tests/fabric/shm_pair.c
