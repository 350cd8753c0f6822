# SPDX-License-Identifier: BSD-2-Clause
lint_TESTS += tests/lint/compilers tests/lint/format tests/lint/headers tests/lint/includes \
	tests/lint/install tests/lint/ordering tests/lint/runner tests/lint/symbols \
	tests/lint/text tests/lint/tree
slow_TESTS += tests/lint/compilers
