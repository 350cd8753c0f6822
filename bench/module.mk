# SPDX-License-Identifier: BSD-2-Clause
bench_SRC += bench/main.c bench/options.c bench/help.c bench/properties.c \
	bench/workload.c bench/trace.c bench/inserts.c bench/generator.c bench/sizes.c \
	bench/value.c \
	bench/crew.c bench/driver.c bench/worker.c bench/clock.c bench/shared.c \
	bench/target_rkv.c bench/target_idle.c bench/raw.c bench/raw_region.c \
	bench/tally.c bench/histogram.c bench/series.c bench/report.c bench/report_text.c \
	bench/report_json.c bench/report_csv.c bench/report_plot.c

.PHONY: bench
bench: ## rkv beside the bare fabric, memcached and redis: a page with pictures; installs them first
	@deploy/deps.sh build bench
	@$(submake) all
	@RKV_BUILD='$(abspath $(O))' ROUNDS='$(or $(ROUNDS),5)' SPAN='$(or $(SPAN),1)' \
		bench/suite/measure.sh $(abspath $(O))/bench
	@bench/suite/page.sh $(abspath $(O))/bench
	@echo 'The page: $(O)/bench/README.md, $(O)/bench/index.html'
