/* SPDX-License-Identifier: BSD-2-Clause */
/* Codes and their words, errno, log lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/include/rkv.h"
#include "common/err.h"
#include "common/log.h"

/* The numbers are an interface: rkv.h has them too. */
static const struct {
	int code, public_code;
	const char *name;
} codes[] = {
	{0, RKV_OK, "OK: "},
	{ERR_NOT_FOUND, RKV_NOT_FOUND, "NOT_FOUND: "},
	{ERR_EXISTS, RKV_EXISTS, "EXISTS: "},
	{ERR_MISMATCH, RKV_MISMATCH, "MISMATCH: "},
	{ERR_AGAIN, RKV_AGAIN, "AGAIN: "},
	{ERR_TIMEOUT, RKV_E_TIMEOUT, "TIMEOUT: "},
	{ERR_MAYBE, RKV_E_MAYBE, "MAYBE: "},
	{ERR_NO_SPACE, RKV_E_NO_SPACE, "NO_SPACE: "},
	{ERR_INDEX_FULL, RKV_E_INDEX_FULL, "INDEX_FULL: "},
	{ERR_TOO_BIG, RKV_E_TOO_BIG, "TOO_BIG: "},
	{ERR_TOO_SMALL, RKV_E_TOO_SMALL, "TOO_SMALL: "},
	{ERR_INVALID, RKV_E_INVALID, "INVALID: "},
	{ERR_CONN, RKV_E_CONN, "CONN: "},
	{ERR_VERSION, RKV_E_VERSION, "VERSION: "},
	{ERR_PERM, RKV_E_PERM, "PERM: "},
	{ERR_CORRUPT, RKV_E_CORRUPT, "CORRUPT: "},
	{ERR_NOMEM, RKV_E_NOMEM, "NOMEM: "},
};
#define N_CODES (sizeof(codes) / sizeof(codes[0]))

static void
test_err_str(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_CODES; i++) {
		const char *text = err_str(codes[i].code);
		size_t len = strlen(codes[i].name);
		assert_int_equal(codes[i].code, codes[i].public_code);
		assert_int_equal(strncmp(text, codes[i].name, len), 0);
		assert_true(i == 0 || strlen(text) > len + 10);
	}
	/* Every int has a text, and only the codes have one of their own. */
	const char *unknown = err_str(INT_MAX);
	for (int code = -100; code <= 100; code++) {
		bool known = false;
		for (size_t i = 0; i < N_CODES; i++)
			known |= codes[i].code == code;
		assert_int_equal(err_str(code) != unknown, known);
	}
	assert_ptr_equal(err_str(INT_MIN), unknown);
}

static void
test_err_from_errno(void **state)
{
	(void)state;
	assert_int_equal(err_from_errno(ENOMEM), ERR_NOMEM);
	assert_int_equal(err_from_errno(EMFILE), ERR_NOMEM);
	assert_int_equal(err_from_errno(ENFILE), ERR_NOMEM);
	assert_int_equal(err_from_errno(ENOSPC), ERR_NOMEM);
	assert_int_equal(err_from_errno(EFBIG), ERR_NOMEM);
	assert_int_equal(err_from_errno(EACCES), ERR_PERM);
	assert_int_equal(err_from_errno(EPERM), ERR_PERM);
	assert_int_equal(err_from_errno(ETIMEDOUT), ERR_TIMEOUT);
	assert_int_equal(err_from_errno(ECONNREFUSED), ERR_CONN);
	for (int error = 0; error < 200; error++)
		assert_true(err_from_errno(error) < 0);
}

struct sink {
	unsigned n_lines;
	int level;
	char line[2048];
};

static void
remember(void *arg, int level, const char *line)
{
	struct sink *sink = arg;
	sink->n_lines++;
	sink->level = level;
	snprintf(sink->line, sizeof(sink->line), "%s", line);
}

static void
test_log_line(void **state)
{
	struct sink sink = {0};
	struct log log = {remember, &sink, LOG_WARN};
	char big[3000];
	(void)state;
	log_line(&log, LOG_WARN, "%s and %d", "text", 7);
	assert_string_equal(sink.line, "text and 7");
	assert_int_equal(sink.level, LOG_WARN);
	log_line(&log, LOG_INFO, "dropped");
	log_line(NULL, LOG_ERROR, "dropped");
	log.sink = NULL;
	log_line(&log, LOG_ERROR, "dropped");
	assert_int_equal(sink.n_lines, 1);
	/* Too long: cut, never overrun. */
	log.sink = remember;
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	log_line(&log, LOG_ERROR, "%s", big);
	assert_in_range(strlen(sink.line), 100, sizeof(sink.line) - 1);
}

/* What log_to_stderr writes. */
static void
capture(int level, const char *line, char *ret_text, size_t size)
{
	int fds[2];
	assert_int_equal(pipe(fds), 0);
	int saved = dup(STDERR_FILENO);
	dup2(fds[1], STDERR_FILENO);
	log_to_stderr((void *)(uintptr_t) "kv-test", level, line);
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(fds[1]);
	ssize_t len = read(fds[0], ret_text, size - 1);
	assert_true(len > 0);
	ret_text[len] = '\0';
	close(fds[0]);
}

static void
test_log_to_stderr(void **state)
{
	char text[4096], big[3000];
	(void)state;
	capture(LOG_ERROR, "no memory", text, sizeof(text));
	assert_string_equal(text, "kv-test: error: no memory\n");
	capture(LOG_WARN, "hm", text, sizeof(text));
	assert_string_equal(text, "kv-test: warning: hm\n");
	capture(77, "hm", text, sizeof(text));
	assert_string_equal(text, "kv-test: note: hm\n");
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	capture(LOG_INFO, big, text, sizeof(text));
	assert_int_equal(text[strlen(text) - 1], '\n');
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_err_str),
		cmocka_unit_test(test_err_from_errno),
		cmocka_unit_test(test_log_line),
		cmocka_unit_test(test_log_to_stderr),
	};
	return cmocka_run_group_tests_name("err", tests, NULL, NULL);
}
