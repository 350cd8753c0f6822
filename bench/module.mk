# SPDX-License-Identifier: BSD-2-Clause
bench_SRC += bench/main.c bench/options.c bench/workload.c bench/inserts.c bench/generator.c \
	bench/value.c bench/worker.c bench/driver.c bench/tally.c bench/histogram.c \
	bench/report.c bench/report_text.c bench/report_json.c
