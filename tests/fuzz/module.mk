# SPDX-License-Identifier: BSD-2-Clause
#
# Fuzz targets. They are built by clang, in a build of their own (make fuzz-programs), and run by
# test_fuzz.sh, or for longer by make fuzz.
fuzz_TESTS += tests/fuzz/test_fuzz
slow_TESTS += tests/fuzz/test_fuzz
fuzz_PROGRAMS += $(addprefix tests/fuzz/fuzz_,address answers cli cm control frames handout hello \
	http layout options proof properties secret snapshot store tcp_hello tcp_server tenants \
	trace warm)
$(foreach p,$(fuzz_PROGRAMS),$(eval $(notdir $(p))_EXTRA := tests/fuzz/fuzz.c))
$(foreach p,$(fuzz_PROGRAMS),$(eval $(notdir $(p))_LDFLAGS := -fsanitize=fuzzer))
fuzz_cli_EXTRA += client/cli/arguments.c client/cli/bytes.c client/cli/report.c
fuzz_properties_EXTRA += $(filter-out bench/main.c,$(bench_SRC))
fuzz_trace_EXTRA += bench/trace.c bench/generator.c bench/shared.c
fuzz_control_EXTRA += tests/fuzz/serving.c tests/fuzz/loop.c
fuzz_handout_EXTRA += tests/fuzz/serving.c tests/fuzz/loop.c
fuzz_http_EXTRA += tests/fuzz/serving.c tests/fuzz/loop.c
fuzz_proof_EXTRA += tests/fuzz/serving.c tests/fuzz/loop.c
$(foreach p,answers hello tcp_hello,$(eval fuzz_$(p)_EXTRA += tests/fuzz/sockets.c)$(eval \
	fuzz_$(p)_LDFLAGS += -Wl,--wrap=net_connect,--wrap=net_unix_connect))
fuzz_answers_EXTRA += tests/fuzz/host.c
fuzz_hello_EXTRA += tests/fuzz/host.c
fuzz_hello_LDFLAGS += -Wl,--wrap=auth_nonce
fuzz_store_EXTRA += $(fault_harness)

# Targets with a fault: the changed sources are compiled again, and the target's own for a changed
# header; they stand before what they replace.
ifneq ($(filter fault-programs,$(goals)),)
fault_edits := $(sort $(shell awk '/^mutant / { name = $$2 } /^edit / { print name ":" $$2 }' \
	tests/fuzz/faults))
fault_names := $(sort $(foreach e,$(fault_edits),$(firstword $(subst :, ,$(e)))))
fault_target = tests/fuzz/fuzz_$(firstword $(subst -, ,$(1)))
fault_files = $(patsubst $(1):%,%,$(filter $(1):%,$(fault_edits)))
fault_sources = $(filter %.c,$(call fault_files,$(1))) \
	$(if $(filter %.h,$(call fault_files,$(1))),$(call fault_target,$(1)).c)
fault_others = $(filter-out $(call fault_sources,$(1)),$(call fault_target,$(1)).c \
	$($(notdir $(call fault_target,$(1)))_EXTRA))

define fault
$(O)/faults/$(1)/$(2): $(2) tests/fuzz/faults
	@mkdir -p $$(@D)
	$$(Q)awk -v name=$(1) -v file=$(2) -f tests/sim/mutants/apply.awk tests/fuzz/faults \
		$(2) >$$@
endef
$(foreach e,$(fault_edits),$(eval $(call fault,$(firstword $(subst :, ,$(e))),$(lastword \
	$(subst :, ,$(e))))))

define fault_program
$(addprefix $(O)/faults/$(1)/,$(filter-out $(call fault_files,$(1)),$(call fault_sources,$(1)))): \
		$(O)/faults/$(1)/%.c: %.c
	@mkdir -p $$(@D)
	$$(Q)cp $$< $$@
$(patsubst %.c,$(O)/faults/$(1)/%.o,$(call fault_sources,$(1))): %.o: %.c $(O)/flags \
		$(addprefix $(O)/faults/$(1)/,$(filter %.h,$(call fault_files,$(1))))
	@$$(say) CC $$<
	$$(Q)$(CC) $(base_CFLAGS) $(cmocka_CFLAGS) -I$(O)/faults/$(1) $(includes) $(CFLAGS) -w \
		$(CPPFLAGS) -c -o $$@ $$<
$(O)/faults/$(1)/fuzz: $(patsubst %.c,$(O)/faults/$(1)/%.o,$(call fault_sources,$(1))) \
		$(patsubst %.c,$(O)/obj/%.o,$(call fault_others,$(1))) \
		$(O)/obj/client.a $(O)/obj/server.a $(O)/obj/common.a
	@$$(say) LINK $$@
	$$(Q)$$(link) -fsanitize=fuzzer $($(notdir $(call fault_target,$(1)))_LDFLAGS) $$^ \
		$(cmocka_LIBS) $(libraries_LIBS) -lm
endef
$(foreach f,$(fault_names),$(eval $(call fault_program,$(f))))
endif

fuzz_variant := address$(comma)undefined$(comma)fuzzer-no-link
.PHONY: fuzz fuzz-programs fault-programs
ifeq ($(SAN),$(fuzz_variant))
fuzz-programs: $(addprefix $(O)/,$(fuzz_PROGRAMS))
fault-programs: $(foreach f,$(fault_names),$(O)/faults/$(f)/fuzz)
else
fuzz-programs fault-programs:
	@$(MAKE) CC=clang SAN=$(fuzz_variant) $@
endif
fuzz: ## searches what breaks parsers, for SECONDS=n each; TARGETS="...": only these
	@$(submake) fuzz-programs
	@tests/fuzz/run $(or $(SECONDS),600) $(TARGETS)
