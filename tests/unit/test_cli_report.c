/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kv-cli's exit codes for everything that the library can return, and how long it waits for memory
 * that rests. Some of it, such as a connection that is lost while a change is under way, no script
 * can bring about at will.
 */
#include <getopt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/cli/arguments.h"
#include "client/cli/report.h"
#include "client/include/rkv.h"

#define CAUSE "127.0.0.1:7440 hung up"

static const struct expectation {
	int code;
	int exit_code_of_get;
	int exit_code_of_put;
} expectations[] = {
	{RKV_NOT_FOUND, 1, 1},  {RKV_EXISTS, 1, 1},
	{RKV_MISMATCH, 1, 1},   {RKV_AGAIN, 5, 5},
	{RKV_E_TIMEOUT, 3, 4},  {RKV_E_MAYBE, 4, 4},
	{RKV_E_NO_SPACE, 5, 5}, {RKV_E_INDEX_FULL, 5, 5},
	{RKV_E_TOO_BIG, 2, 2},  {RKV_E_TOO_SMALL, 6, 6},
	{RKV_E_INVALID, 2, 2},  {RKV_E_CONN, 3, 3},
	{RKV_E_VERSION, 6, 6},  {RKV_E_PERM, 6, 6},
	{RKV_E_CORRUPT, 6, 6},  {RKV_E_NOMEM, 6, 6},
	{-1000, 6, 6},
};

/* What report_status prints, and the exit code that it returns. The caller frees the text. */
static char *
sentence_of(int code, int is_mutation, int *ret_exit_code)
{
	FILE *saved = stderr;
	char *text = NULL;
	size_t len = 0;

	stderr = open_memstream(&text, &len);
	assert_non_null(stderr);
	*ret_exit_code = report_status("put", code, is_mutation);
	fclose(stderr);
	stderr = saved;
	return text;
}

static void
assert_one_sentence(const char *text, int code, int exit_code)
{
	const char *newline = strchr(text, '\n');

	assert_non_null(newline);
	assert_int_equal(newline[1], 0);
	assert_memory_equal(text, "kv-cli: put: ", strlen("kv-cli: put: "));
	/* what certainly changed nothing must not say that it may have */
	if (exit_code == REPORT_UNREACHED)
		assert_null(strstr(text, "may have been applied"));
	else
		assert_non_null(strstr(text, rkv_strerror(code)));
	/* an outcome has no cause beyond itself: the line belongs to something that is over */
	assert_int_equal(strstr(text, CAUSE) != NULL, code < 0);
}

static void
every_code_has_its_exit_code_and_sentence(void **state)
{
	(void)state;
	report_log(NULL, RKV_LOG_ERROR, "an older line");
	report_log(NULL, RKV_LOG_ERROR, CAUSE);
	for (size_t i = 0; i < sizeof(expectations) / sizeof(expectations[0]); i++) {
		const struct expectation *expected = &expectations[i];
		int exit_code = -1;
		char *text = sentence_of(expected->code, 0, &exit_code);

		assert_int_equal(exit_code, expected->exit_code_of_get);
		assert_one_sentence(text, expected->code, exit_code);
		free(text);
		text = sentence_of(expected->code, 1, &exit_code);
		assert_int_equal(exit_code, expected->exit_code_of_put);
		assert_one_sentence(text, expected->code, exit_code);
		free(text);
	}
}

static void
success_is_silent(void **state)
{
	int exit_code = -1;
	char *text = sentence_of(RKV_OK, 1, &exit_code);

	(void)state;
	assert_int_equal(exit_code, 0);
	assert_string_equal(text, "");
	free(text);
}

/* Longer than memory rests, unless the caller says how long. */
static void
memory_that_rests_is_waited_for(void **state)
{
	char program[] = "kv-cli", get[] = "get", key[] = "key", option[] = "--timeout-ms=700";
	char *usual[] = {program, get, key, NULL};
	char *given[] = {program, get, key, option, NULL};
	struct arguments arguments;

	(void)state;
	assert_int_equal(arguments_parse(3, usual, &arguments), 0);
	assert_int_equal(arguments.timeout_ms, 5000);
	assert_int_equal(arguments.again_ms, 15000);
	arguments_release(&arguments);
	optind = 0; /* getopt begins anew */
	assert_int_equal(arguments_parse(4, given, &arguments), 0);
	assert_int_equal(arguments.timeout_ms, 700);
	assert_int_equal(arguments.again_ms, 700);
	arguments_release(&arguments);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_code_has_its_exit_code_and_sentence),
		cmocka_unit_test(success_is_silent),
		cmocka_unit_test(memory_that_rests_is_waited_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
