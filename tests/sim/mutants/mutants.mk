# SPDX-License-Identifier: BSD-2-Clause
#
# Mutants: test_store, linked with what is compiled from changed sources (tests/sim/mutants/table);
# all other objects are test_store's. They are not among the test programs: test_mutants.sh has
# them built.
ifneq ($(filter mutant-programs,$(goals)),)
mutant_edits := $(sort $(shell awk '/^mutant / { name = $$2 } /^edit / { print name ":" $$2 }' \
	tests/sim/mutants/table))
mutant_names := $(sort $(foreach e,$(mutant_edits),$(firstword $(subst :, ,$(e)))))
mutant_files = $(patsubst $(1):%,%,$(filter $(1):%,$(mutant_edits)))
mutant_objects = $(patsubst %.c,$(O)/mutants/$(1)/%.o,$(call mutant_files,$(1)))
# What a mutant does without: the objects of the sources that are changed.
mutant_others = $(filter-out $(foreach f,$(patsubst %.c,%.o,$(call mutant_files,$(1))),\
	$(O)/obj/$(f) $(O)/obj/tests/sim/tiny/$(f)),\
	$(patsubst %.c,$(O)/obj/%.o,tests/sim/test_store.c $(test_store_EXTRA)))

# Made each time, for entry or file may have changed; written only if it comes out different.
define mutant_source
$(O)/mutants/$(1)/$(2): force
	@mkdir -p $$(@D)
	$$(Q)awk -v name=$(1) -v file=$(2) -f tests/sim/mutants/apply.awk tests/sim/mutants/table \
		$(2) >$$@.new && if cmp -s $$@.new $$@; then rm $$@.new; else mv $$@.new $$@; fi
endef
$(foreach e,$(mutant_edits),$(eval $(call mutant_source,$(firstword $(subst :, ,$(e))),$(lastword \
	$(subst :, ,$(e))))))

$(O)/mutants/%.o: $(O)/mutants/%.c $(O)/flags
	@$(say) CC $<
	$(Q)$(CC) $(base_CFLAGS) $(includes) -O1 -g -w $(CPPFLAGS) $(sim_TINY) -MMD -MP -c -o $@ $<

define mutant
$(O)/mutants/$(1)/test_store: $(call mutant_objects,$(1)) $(call mutant_others,$(1)) \
	$(O)/obj/client.a $(O)/obj/common.a
	@$$(say) LINK $$@
	$$(Q)$$(link) $$^ $$(cmocka_LIBS) $$(libraries_LIBS) -lm
endef
$(foreach m,$(mutant_names),$(eval $(call mutant,$(m))))
-include $(foreach m,$(mutant_names),$(patsubst %.o,%.d,$(call mutant_objects,$(m))))
endif

.PHONY: mutant-programs
mutant-programs: $(addsuffix /test_store,$(addprefix $(O)/mutants/,$(mutant_names)))
