# SPDX-License-Identifier: BSD-2-Clause
#
# Fuzz targets. They are built by clang, in a build of their own (make fuzz-programs), and run by
# test_fuzz.sh, or for longer by make fuzz.
fuzz_TESTS += tests/fuzz/test_fuzz
slow_TESTS += tests/fuzz/test_fuzz
fuzz_PROGRAMS += $(addprefix tests/fuzz/fuzz_,address cli cm control frames handout hello http \
	layout options properties snapshot store tcp_hello tcp_server trace)
$(foreach p,$(fuzz_PROGRAMS),$(eval $(notdir $(p))_EXTRA := tests/fuzz/fuzz.c))
$(foreach p,$(fuzz_PROGRAMS),$(eval $(notdir $(p))_LDFLAGS := -fsanitize=fuzzer))
fuzz_cli_EXTRA += client/cli/arguments.c client/cli/bytes.c client/cli/report.c
fuzz_properties_EXTRA += $(filter-out bench/main.c,$(bench_SRC))
fuzz_trace_EXTRA += bench/trace.c bench/generator.c bench/shared.c
fuzz_control_EXTRA += tests/fuzz/serving.c tests/fuzz/loop.c
fuzz_handout_EXTRA += tests/fuzz/serving.c tests/fuzz/loop.c
fuzz_http_EXTRA += tests/fuzz/serving.c tests/fuzz/loop.c
fuzz_hello_EXTRA += tests/fuzz/sockets.c
fuzz_hello_LDFLAGS += -Wl,--wrap=net_connect,--wrap=net_unix_connect
fuzz_tcp_hello_EXTRA += tests/fuzz/sockets.c
fuzz_tcp_hello_LDFLAGS += -Wl,--wrap=net_connect,--wrap=net_unix_connect
fuzz_store_EXTRA += $(fault_harness)

.PHONY: fuzz fuzz-programs
fuzz: ## runs fuzz targets, all or TARGETS="...", for SECONDS=n each, on all processors
	@$(submake) fuzz-programs
	@bash tests/fuzz/run.sh $(or $(SECONDS),600) $(TARGETS)

fuzz_variant := address$(comma)undefined$(comma)fuzzer-no-link
ifeq ($(SAN),$(fuzz_variant))
fuzz-programs: $(addprefix $(O)/,$(fuzz_PROGRAMS))
else
fuzz-programs:
	@$(MAKE) CC='$(if $(findstring clang,$(CC)),$(CC),clang)' SAN=$(fuzz_variant) $@
endif
