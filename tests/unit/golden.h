/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Golden bytes: what two machines must agree on, as hexadecimal constants. Whoever has to change
 * one of them changes the format: raise LAYOUT_VERSION or WIRE_VERSION in the same commit, and name
 * the new version in the test.
 */
#ifndef RKV_TESTS_UNIT_GOLDEN_H
#define RKV_TESTS_UNIT_GOLDEN_H

/* cmocka.h wants these first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#define GOLDEN_MAX 512u /* bytes */

static inline void
golden_check(const void *bytes, size_t len, const char *hex)
{
	char text[2 * GOLDEN_MAX + 1] = "";
	assert_in_range(len, 0, GOLDEN_MAX);
	for (size_t i = 0; i < len; i++)
		snprintf(text + 2 * i, 3, "%02x", ((const unsigned char *)bytes)[i]);
	assert_string_equal(text, hex);
}

static inline void
golden_check_zero(const void *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		assert_int_equal(((const unsigned char *)bytes)[i], 0);
}

#endif
