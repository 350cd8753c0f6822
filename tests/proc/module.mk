# SPDX-License-Identifier: BSD-2-Clause
proc_TESTS += tests/proc/test_cli tests/proc/test_examples
proc_TESTS += tests/proc/test_addresses tests/proc/test_networks tests/proc/test_over_tcp
slow_TESTS += tests/proc/test_networks tests/proc/test_over_tcp
san_TESTS += tests/proc/test_cli tests/proc/test_examples
proc_TESTS += tests/proc/test_bench tests/proc/test_bench_raw tests/proc/test_bench_runs \
	tests/proc/test_bench_page
san_TESTS += tests/proc/test_bench tests/proc/test_bench_raw tests/proc/test_bench_runs
test_bench_EXTRA := tests/proc/proc.c bench/generator.c bench/value.c
proc_TESTS += tests/proc/test_server tests/proc/test_service
proc_TESTS += tests/proc/test_metrics
san_TESTS += tests/proc/test_metrics
san_TESTS += tests/proc/test_server tests/proc/test_service
unit_TESTS += tests/unit/test_sessions
san_TESTS += tests/unit/test_sessions
tests_PROGRAMS += tests/proc/raw_client
test_server_EXTRA := tests/proc/proc.c tests/proc/raw.c
test_service_EXTRA := tests/proc/proc.c tests/proc/raw.c
raw_client_EXTRA := tests/proc/proc.c tests/proc/raw.c
proc_TESTS += tests/proc/test_client_control
san_TESTS += tests/proc/test_client_control
test_client_control_EXTRA := tests/proc/fake_server.c tests/proc/proc.c \
	tests/fabric/shm_pair.c tests/fabric/pair.c
load_TESTS := tests/proc/test_cost tests/proc/test_mixed tests/proc/test_kill \
	tests/proc/test_space tests/proc/test_limits tests/proc/test_restart \
	tests/proc/test_churn tests/proc/test_scrub
load_EXTRA := tests/proc/load.c tests/proc/proc.c tests/sim/lin.c
proc_TESTS += $(load_TESTS)
# Ten thousands of blocks in turn: minutes under a sanitizer, and nothing that the others do not do.
san_TESTS += $(filter-out tests/proc/test_churn,$(load_TESTS))
slow_TESTS += tests/proc/test_space tests/proc/test_churn tests/proc/test_evict
tiny_tags_TESTS += tests/proc/test_mixed tests/proc/test_space tests/proc/test_scrub
tiny_hash_TESTS += tests/proc/test_mixed tests/proc/test_limits
test_cost_EXTRA := $(load_EXTRA) tests/fault/heap.c
test_mixed_EXTRA := $(load_EXTRA)
test_kill_EXTRA := $(load_EXTRA)
test_space_EXTRA := $(load_EXTRA)
test_limits_EXTRA := $(load_EXTRA)
test_restart_EXTRA := $(load_EXTRA)
test_churn_EXTRA := $(load_EXTRA)
test_scrub_EXTRA := tests/proc/account.c $(load_EXTRA)
# In the plain build its stamps take ten seconds each: there it is run by hand, for minutes.
tiny_tags_TESTS += tests/proc/test_stopped
test_stopped_EXTRA := tests/proc/account.c $(load_EXTRA)
proc_TESTS += tests/proc/test_evict
test_evict_EXTRA := $(load_EXTRA) bench/generator.c
proc_TESTS += tests/proc/test_instructions
tests_PROGRAMS += tests/proc/warm_get
proc_TESTS += tests/proc/test_peers
san_TESTS += tests/proc/test_peers
test_peers_EXTRA := tests/proc/proc.c tests/proc/raw.c tests/fabric/fake_verbs.c \
	tests/fabric/fake_cm.c
proc_TESTS += tests/proc/test_snapshot
san_TESTS += tests/proc/test_snapshot
test_snapshot_EXTRA := $(load_EXTRA) tests/proc/raw.c
proc_TESTS += tests/proc/test_uninvited
san_TESTS += tests/proc/test_uninvited
proc_TESTS += tests/proc/test_tls
san_TESTS += tests/proc/test_tls
test_uninvited_EXTRA := tests/proc/login.c tests/proc/proc.c tests/proc/raw.c
proc_TESTS += tests/proc/test_attacks
slow_TESTS += tests/proc/test_attacks
san_TESTS += tests/proc/test_attacks
test_attacks_EXTRA := tests/proc/bystander.c $(test_uninvited_EXTRA) bench/histogram.c
proc_TESTS += tests/proc/test_regions
san_TESTS += tests/proc/test_regions
test_regions_EXTRA := $(load_EXTRA) tests/proc/login.c tests/proc/raw.c
