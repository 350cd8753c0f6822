# SPDX-License-Identifier: BSD-2-Clause
sim_TESTS += tests/sim/test_lin
san_TESTS += tests/sim/test_lin
test_lin_EXTRA += tests/sim/lin.c tests/sim/lin_always_ok.c tests/sim/lin_no_realtime.c

# The memory model and what runs on it: litmus programs, and the simulated fabric.
sim_MODEL := tests/sim/model.c tests/sim/steps.c tests/sim/pack.c tests/sim/states.c
sim_LITMUS := $(sim_MODEL) tests/sim/litmus.c tests/sim/litmus_parse.c
sim_FABRIC := $(sim_MODEL) tests/sim/sched.c tests/sim/coro.c tests/sim/sim.c \
	tests/sim/driver.c tests/sim/search.c
sim_TESTS += tests/sim/test_litmus tests/sim/test_programs tests/sim/test_driver \
	tests/sim/test_conformance
test_litmus_EXTRA += $(sim_LITMUS)
test_programs_EXTRA += $(sim_LITMUS)
test_driver_EXTRA += $(sim_FABRIC)
test_conformance_EXTRA += tests/fabric/conformance.c $(sim_FABRIC)

# The client's own files once more, with limits that make fingerprints collide and tags wrap all the
# time: tests/sim/tiny/client/op.c is client/op.c; and the server's scrubber and sweeper.
# test_store.c itself knows nothing of limits.
sim_TINY := -DLIMIT_HASH_BITS=12 -DLIMIT_FINGERPRINT_BITS=1 -DLIMIT_TAG_BITS=2 -DLIMIT_WORD_STAMPS=2
sim_STORE := store store_server store_scrub store_forge store_client store_chaos store_watch \
	store_stamps
$(foreach f,$(sim_STORE),$(eval $(f)_CFLAGS := $(sim_TINY)))
sim_TESTS += tests/sim/test_store
test_store_EXTRA += $(addprefix tests/sim/tiny/client/,op.c session.c alloc.c cache.c arena.c \
	call.c client.c) $(addprefix tests/sim/tiny/server/,scrub.c blocks.c expire.c unlink.c) \
	tests/fault/no_control.c $(sim_STORE:%=tests/sim/%.c) \
	$(sim_FABRIC) tests/sim/lin.c
$(O)/obj/tests/sim/tiny/%.o: %.c $(O)/flags tests/sim/module.mk
	@mkdir -p $(@D)
	@$(say) CC $<
	$(Q)$(compile) $(sim_TINY) -MMD -MP -c -o $@ $<

sim_TESTS += tests/sim/test_scopes tests/sim/test_mutants
slow_TESTS += tests/sim/test_scopes
test_scopes_CFLAGS := $(sim_TINY)
test_scopes_EXTRA := $(test_store_EXTRA)
slow_TESTS += tests/sim/test_mutants
include tests/sim/mutants/mutants.mk

# Models of the protocol, searched by spin; make model shows the numbers of states.
sim_TESTS += tests/sim/test_model
slow_TESTS += tests/sim/test_model
