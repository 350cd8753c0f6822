# SPDX-License-Identifier: BSD-2-Clause
#
# The build of rkv. Each folder's module.mk names its sources in lists; this file turns the lists
# into libraries, programs and tests. Everything that is made lies in build/ (the plain build) or,
# for another compiler, sanitizer or limit, in build/<variant>/. `make help` lists targets and
# variables.
#
#   common_SRC client_SRC server_SRC cli_SRC bench_SRC   sources of libraries and programs
#   examples_SRC                                         one program each, with the shared library
#   unit_TESTS fabric_TESTS sim_TESTS proc_TESTS fault_TESTS fuzz_TESTS lint_TESTS vm_TESTS
#       One entry a test, without suffix. tests/unit/foo.c is linked with cmocka and with everything
#       but main functions; foo_EXTRA lists more .c files for it, foo_CFLAGS and foo_LDFLAGS more
#       flags. tests/unit/foo.sh is run with bash; if both are there the script is what is run, and
#       it finds the program as $RKV_BUILD/tests/unit/foo.
#   guest_TESTS               tests that run in the virtual machine of tests/vm only
#   tests_PROGRAMS            programs built like tests (no suffix), which only other tests run
#   fuzz_PROGRAMS             the same, for libFuzzer: tests/fuzz/module.mk says how to build them
#   slow_TESTS                those of the tests above that `make check` leaves out
#   san_TESTS                 tests that `make test` runs again under each sanitizer
#   tiny_hash_TESTS, tiny_tags_TESTS   tests that run only in the builds with other limits
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DELETE_ON_ERROR:
.SECONDARY:
.DEFAULT_GOAL := all

ifeq ($(origin CC),default)
CC := gcc
endif
AR ?= ar
OBJCOPY ?= objcopy
PKG_CONFIG ?= pkg-config
CLANG_FORMAT ?= clang-format
CFLAGS ?= -O2 -g
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR ?= $(PREFIX)/share/man

Q := $(if $(V),,@)
say = $(if $(V),:,printf '  %-7s %s\n')

# ---- Which build, and where ----

comma := ,
empty :=
space := $(empty) $(empty)
# The directory of the variant with sanitizers $(1) and limits $(2).
variant = $(filter-out cc gcc,$(notdir $(firstword $(CC)))) $(subst $(comma),-,$(1)) \
	$(addprefix tiny-,$(2))
directory = build$(addprefix /,$(subst $(space),-,$(strip $(call variant,$(1),$(2)))))
O := $(call directory,$(SAN),$(TINY))

tiny_FLAGS_hash := -DLIMIT_HASH_BITS=12 -DLIMIT_FINGERPRINT_BITS=1
tiny_FLAGS_tags := -DLIMIT_TAG_BITS=2 -DLIMIT_WORD_STAMPS=5 -DLIMIT_STAMP_MS=20
ifneq ($(TINY),)
ifndef tiny_FLAGS_$(TINY)
$(error TINY=$(TINY) is unknown; it may be hash or tags)
endif
endif

# ---- Flags ----

warnings := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wwrite-strings \
	-Wformat=2 -Wcast-align -Wpointer-arith -Wundef -Wvla
ifneq ($(filter true 1,$(CI) $(WERROR)),)
warnings += -Werror
endif
ifeq ($(SAN),)
hardening := -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
shared_LDFLAGS := -Wl,-z,defs
else
hardening := -fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer
san_LDFLAGS := -fsanitize=$(SAN)
endif
hardening += -fstack-protector-strong

goals := $(or $(MAKECMDGOALS),all)
goals_without_libraries := help listed clean distclean deps test test-vm demo bench format \
	format-check lint model fuzz
ifneq ($(filter-out $(goals_without_libraries),$(goals)),)
need = $(if $(shell $(PKG_CONFIG) $(1) $(2) && echo yes),,$(error $(2) $(3) is missing: run \
	"deploy/deps.sh build test", or install its development package and pkg-config))
$(call need,--atleast-version=2.3,liburing,(version 2.3 or later))
$(call need,--exists,libxxhash,(its header))
$(call need,--atleast-version=1.11,libibverbs,(rdma-core 32 or later))
$(call need,--exists,librdmacm,(rdma-core))
$(call need,--atleast-version=3.0,openssl,(version 3.0 or later))
libraries_CFLAGS := $(shell $(PKG_CONFIG) --cflags liburing libxxhash libibverbs librdmacm openssl)
libraries_LIBS := $(shell $(PKG_CONFIG) --libs liburing librdmacm libibverbs openssl)
endif
ifneq ($(filter tests test-all check mutant-programs fuzz-programs fault-programs $(O)/tests/% \
	$(O)/obj/tests/%,$(goals)),)
$(call need,--exists,cmocka,(for tests))
cmocka_CFLAGS := $(shell $(PKG_CONFIG) --cflags cmocka)
cmocka_LIBS := $(shell $(PKG_CONFIG) --libs cmocka)
endif

# Sections of their own, so that a link leaves out what is not used: librkv then has nothing that
# prints, though it shares files with programs that do.
base_CFLAGS := -std=gnu11 -D_GNU_SOURCE -pthread -fPIC -fvisibility=hidden -ffunction-sections \
	-fdata-sections $(warnings) $(hardening) $(tiny_FLAGS_$(TINY)) $(libraries_CFLAGS)
all_LDFLAGS = $(LDFLAGS) -pthread $(san_LDFLAGS) \
	-Wl,-z,relro,-z,now -Wl,--as-needed -Wl,--gc-sections
# Of tests by their name alone, of others with their folder's: server/release_CFLAGS. (There is a
# tests/sim/store.c, and a server/store.c.)
own_CFLAGS = $($(if $(filter tests/%,$*),$(notdir $*),$*)_CFLAGS)
compile = $(CC) $(base_CFLAGS) $(includes) $(CFLAGS) $(CPPFLAGS) $(own_CFLAGS)
includes := -I. -Iclient/include
link = $(CC) -pie $(all_LDFLAGS) -o $@

# ---- What there is ----

modules := $(wildcard */module.mk */*/module.mk)
include $(modules)

objects = $(patsubst %.c,$(O)/obj/%.o,$(1))
version := $(shell awk '/^\#define RKV_VERSION_/ { printf "%s%s", dot, $$3; dot = "." }' \
	client/include/rkv.h)
soname := librkv.so.$(firstword $(subst ., ,$(version)))

libraries := $(O)/librkv.a $(O)/librkv.so
programs := $(O)/kv-server $(O)/kv-cli $(O)/kv-bench
examples := $(patsubst %.c,$(O)/examples/%,$(notdir $(examples_SRC)))
suite := $(unit_TESTS) $(fabric_TESTS) $(sim_TESTS) $(proc_TESTS) $(fault_TESTS) $(fuzz_TESTS) \
	$(lint_TESTS) $(vm_TESTS)
suite := $(if $(TINY),$(tiny_$(TINY)_TESTS),$(suite))
all_tests := $(sort $(suite) $(san_TESTS) $(tiny_hash_TESTS) $(tiny_tags_TESTS) $(guest_TESTS))
test_programs := $(patsubst %.c,%,$(wildcard $(addsuffix .c,$(all_tests) $(tests_PROGRAMS))))
sources := $(common_SRC) $(client_SRC) $(server_SRC) $(cli_SRC) $(bench_SRC) $(examples_SRC) \
	$(foreach t,$(test_programs) $(fuzz_PROGRAMS),$(t).c $($(notdir $(t))_EXTRA))

.PHONY: all
all: $(libraries) $(programs) $(examples) ## libraries, programs and examples

.PHONY: tests
tests: all $(addprefix $(O)/,$(test_programs)) ## also the test programs

# ---- Rules ----

# Rewritten only when flags change: then everything is compiled again.
flags := $(CC) $(base_CFLAGS) $(CFLAGS) $(CPPFLAGS) $(LDFLAGS)
.PHONY: force
$(O)/flags: force
	@mkdir -p $(@D)
	@printf '%s\n' '$(flags)' | cmp -s - $@ || printf '%s\n' '$(flags)' >$@

$(O)/obj/%.o: %.c $(O)/flags
	@mkdir -p $(@D)
	@$(say) CC $<
	$(Q)$(compile) -MMD -MP -c -o $@ $<

$(call objects,$(examples_SRC)): includes := -Iclient/include
$(O)/obj/tests/%.o: base_CFLAGS += $(cmocka_CFLAGS)

# Internal archives: of their members a program takes the ones it uses. They are made anew when a
# list may have lost a member.
$(O)/obj/common.a: $(call objects,$(common_SRC))
$(O)/obj/client.a: $(call objects,$(client_SRC))
$(O)/obj/server.a: $(call objects,$(filter-out server/main.c,$(server_SRC)))
$(O)/obj/%.a: $(modules)
	@mkdir -p $(@D)
	@$(say) AR $@
	$(Q)rm -f $@ && $(AR) rcs $@ $(filter %.o,$^)

# One object, in which only the public functions have names: the others would meet the user's.
$(O)/librkv.a: $(call objects,$(client_SRC)) $(O)/obj/common.a
	@$(say) AR $@
	$(Q)$(CC) -r -nostdlib -o $(O)/obj/librkv.o $^
	$(Q)$(OBJCOPY) --localize-hidden $(O)/obj/librkv.o
	$(Q)rm -f $@ && $(AR) rcs $@ $(O)/obj/librkv.o

$(O)/librkv.so.$(version): $(call objects,$(client_SRC)) $(O)/obj/common.a client/librkv.map
	@$(say) LINK $@
	$(Q)$(CC) -shared -Wl,-soname,$(soname) -Wl,--version-script,client/librkv.map \
		$(all_LDFLAGS) $(shared_LDFLAGS) -o $@ $(filter %.o %.a,$^) $(libraries_LIBS)
$(O)/$(soname): $(O)/librkv.so.$(version)
	$(Q)ln -sf $(<F) $@
$(O)/librkv.so: $(O)/$(soname)
	$(Q)ln -sf $(<F) $@

$(O)/kv-server: $(call objects,server/main.c) $(O)/obj/server.a $(O)/obj/common.a
$(O)/kv-cli: $(call objects,$(cli_SRC)) $(O)/librkv.a $(O)/obj/common.a
$(O)/kv-bench: $(call objects,$(bench_SRC)) $(O)/librkv.a $(O)/obj/common.a
$(programs):
	@$(say) LINK $@
	$(Q)$(link) $^ $(libraries_LIBS) -lm

define example
$(O)/examples/$(basename $(notdir $(1))): $(call objects,$(1)) $(O)/librkv.so
	@mkdir -p $$(@D)
	@$$(say) LINK $$@
	$$(Q)$$(link) $$< -L$(O) -lrkv -Wl,-rpath,'$$$$ORIGIN/..'
endef
$(foreach e,$(examples_SRC),$(eval $(call example,$(e))))

test_archives := $(O)/obj/client.a $(O)/obj/server.a $(O)/obj/common.a
define test_program
$(O)/$(1): $(call objects,$(1).c $($(notdir $(1))_EXTRA)) $(test_archives)
	@mkdir -p $$(@D)
	@$$(say) LINK $$@
	$$(Q)$$(link) $$($(notdir $(1))_LDFLAGS) $$^ $$(cmocka_LIBS) $$(libraries_LIBS) -lm
endef
$(foreach t,$(test_programs) $(fuzz_PROGRAMS),$(eval $(call test_program,$(t))))

-include $(patsubst %.c,$(O)/obj/%.d,$(sources))

# ---- Tests ----

# Sub-makes use all processors, unless the caller has said how many.
submake = $(MAKE) $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))
run = CC='$(CC)' CLANG_FORMAT='$(CLANG_FORMAT)' tests/run

.PHONY: check
check: tests ## the quick tests (TESTS="tests/unit/foo ...": only these)
	@$(run) @$(O) $(or $(TESTS),$(filter-out $(slow_TESTS),$(suite)))

.PHONY: test
test: ## all tests, in all the builds they need; installs what is missing first
	@deploy/deps.sh build test
	@deploy/deps.sh vm || [ "$$CI" != true ]
	@$(submake) test-all

sanitizers := $(if $(SAN)$(TINY),,address$(comma)undefined thread)
tinies := $(if $(SAN)$(TINY),,hash tags)
.PHONY: test-all
test-all: tests
	@$(foreach s,$(if $(san_TESTS),$(sanitizers)),$(MAKE) SAN=$(s) tests &&) \
	$(foreach t,$(tinies),$(if $(tiny_$(t)_TESTS),$(MAKE) TINY=$(t) tests &&)) true
	@$(run) @$(O) $(suite) \
		$(foreach s,$(sanitizers),@$(call directory,$(s),) $(san_TESTS)) \
		$(foreach t,$(tinies),@$(call directory,,$(t)) $(tiny_$(t)_TESTS))

.PHONY: test-vm
test-vm: ## the tests over RDMA devices: Soft-RoCE, in a virtual machine that is built for it
	@deploy/deps.sh build test vm
	@$(submake) tests
	@$(run) @$(O) $(vm_TESTS)

.PHONY: model
model: ## the Promela models: the rules hold, and each is needed (spin)
	@bash tests/sim/test_model.sh

.PHONY: lint
lint: ## the rules of the house only
	@$(submake) tests
	@$(run) @$(O) $(lint_TESTS)

.PHONY: sim sim-long
sim: ## the tests under the weak memory model only
	@$(submake) tests
	@$(run) @$(O) $(sim_TESTS)
sim-long: ## searches new seeds for failing runs, on all processors, for SECONDS=n
	@$(submake) $(O)/tests/sim/test_store
	@first=$$(date +%s); status=0; pids=; \
	for i in $$(seq $$(nproc)); do \
		$(O)/tests/sim/test_store $(or $(SECONDS),600) $$((first * 100 + i))000000 & \
		pids="$$pids $$!"; \
	done; \
	for pid in $$pids; do wait $$pid || status=1; done; exit $$status

.PHONY: mutants
mutants: ## searches runs that catch mutants, and records them, for SECONDS=n
	@$(submake) $(O)/tests/sim/test_store
	@RKV_BUILD=$(abspath $(O)) CC='$(CC)' bash tests/sim/test_mutants.sh search \
		$(or $(SECONDS),600)

.PHONY: listed
listed: ## every source and test that the lists name
	@printf '%s\n' $(sort $(sources) $(wildcard $(addsuffix .sh,$(all_tests))))

c_files = $$(find proto common server client bench tests -name '*.[ch]')
.PHONY: format format-check
format: ## lay out all C files
	@$(CLANG_FORMAT) -i $(c_files)
format-check: ## fail if a C file is laid out differently
	@$(CLANG_FORMAT) --dry-run -Werror $(c_files)

# ---- Installation ----

.PHONY: install
install: all ## into $(DESTDIR)$(PREFIX)
	install -d $(addprefix $(DESTDIR),$(BINDIR) $(LIBDIR)/pkgconfig $(INCLUDEDIR))
	install $(programs) $(DESTDIR)$(BINDIR)
	install -m 644 $(O)/librkv.a $(DESTDIR)$(LIBDIR)
	install $(O)/librkv.so.$(version) $(DESTDIR)$(LIBDIR)
	ln -sf librkv.so.$(version) $(DESTDIR)$(LIBDIR)/$(soname)
	ln -sf $(soname) $(DESTDIR)$(LIBDIR)/librkv.so
	install -m 644 client/include/rkv.h $(DESTDIR)$(INCLUDEDIR)
	install -d $(DESTDIR)$(PREFIX)/share/doc/rkv
	install -m 644 deploy/kv-server.service deploy/kv-server.conf \
		$(DESTDIR)$(PREFIX)/share/doc/rkv
	sed -e 's|@prefix@|$(PREFIX)|; s|@libdir@|$(LIBDIR)|; s|@includedir@|$(INCLUDEDIR)|' \
		-e 's|@version@|$(version)|' client/librkv.pc.in \
		>$(DESTDIR)$(LIBDIR)/pkgconfig/librkv.pc
	$(foreach page,$(wildcard client/man/*.[1-9]),install -m 644 -D $(page) \
		$(DESTDIR)$(MANDIR)/man$(subst .,,$(suffix $(page)))/$(notdir $(page));)

.PHONY: clean distclean
clean: ## remove what this build has made
	rm -rf $(O)/obj $(O)/tests $(O)/examples $(O)/flags $(O)/kv-* $(O)/librkv.*
distclean: ## remove all builds
	rm -rf build

.PHONY: help
help: ## this text
	@echo 'Targets:'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo 'Variables:'
	@sed -n 's/^#: /  /p' $(MAKEFILE_LIST)

#: V=1           show the commands, and what tests print
#: CC=clang      another compiler; builds in build/clang/
#: SAN=LIST      sanitizers: address,undefined or thread; builds in build/<list>/
#: TINY=NAME     limits that force collisions (hash) or wraps (tags), for tests only
#: CFLAGS=...    instead of -O2 -g; CPPFLAGS, LDFLAGS: in addition
#: WERROR=1      warnings are errors (so does CI=true)
#: TESTS="..."   check: run only these, for example TESTS=tests/unit/slot
#: SECONDS=N     fuzz, sim-long, mutants: how long to search (default 600)
#: TARGETS="..." fuzz: only these of tests/fuzz/corpus
#: MUTANTS="..." mutants: only these of tests/sim/mutants/table
#: JOBS=N        run N tests at once (default 1, as some count on a quiet machine)
#: ROUNDS=N      bench: measure everything N times (default 5), each time for SPAN=N seconds (1)
#: PREFIX=DIR    install: /usr/local; also BINDIR, LIBDIR, INCLUDEDIR, MANDIR; DESTDIR before all
