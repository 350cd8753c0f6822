# SPDX-License-Identifier: BSD-2-Clause
unit_TESTS += tests/unit/test_cache
unit_TESTS += tests/unit/test_cli_report
test_cli_report_EXTRA := client/cli/report.c client/cli/arguments.c client/cli/bytes.c
unit_TESTS += tests/unit/test_generators tests/unit/test_histogram
san_TESTS += tests/unit/test_generators tests/unit/test_histogram
test_generators_EXTRA := bench/generator.c bench/workload.c bench/inserts.c bench/value.c \
	bench/sizes.c bench/shared.c
test_histogram_EXTRA := bench/generator.c bench/histogram.c
unit_TESTS += tests/unit/test_bench_worker tests/unit/test_bench_trace \
	tests/unit/test_bench_clock
test_bench_clock_EXTRA := bench/clock.c
san_TESTS += tests/unit/test_bench_worker tests/unit/test_bench_trace
test_bench_worker_EXTRA := bench/worker.c bench/tally.c bench/histogram.c bench/generator.c \
	bench/value.c bench/clock.c
test_bench_worker_LDFLAGS := -Wl,--wrap=clock_gettime,--wrap=nanosleep
test_bench_trace_EXTRA := bench/trace.c bench/generator.c bench/shared.c bench/series.c
unit_TESTS += tests/unit/test_err tests/unit/test_layout tests/unit/test_net tests/unit/test_slot \
	tests/unit/test_wire
san_TESTS += tests/unit/test_layout tests/unit/test_net
unit_TESTS += tests/unit/test_ring tests/unit/test_tcp_spin
test_tcp_spin_LDFLAGS := -Wl,--wrap=io_uring_submit_and_wait
san_TESTS += tests/unit/test_ring
unit_TESTS += tests/unit/test_arena tests/unit/test_pool tests/unit/test_unlink tests/unit/test_fsck
san_TESTS += tests/unit/test_fsck
unit_TESTS += tests/unit/test_restore
san_TESTS += tests/unit/test_restore
unit_TESTS += tests/unit/test_evict_choice tests/unit/test_census
san_TESTS += tests/unit/test_evict_choice tests/unit/test_census
test_evict_choice_LDFLAGS := -Wl,--wrap=clock_gettime
