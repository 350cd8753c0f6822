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
