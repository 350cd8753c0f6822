/* SPDX-License-Identifier: BSD-2-Clause */
/* What the bytes of a pool are: account.h. */
#include "tests/proc/account.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/proc/load.h"
#include "tests/proc/proc.h"

#define SCRUB_MS (4 * PROC_WAIT_MS) /* several passes, each behind two stamps of ten seconds */

uint64_t
account_line(const char *text, const char *name)
{
	char begin[64];
	snprintf(begin, sizeof(begin), "\n%s ", name);
	const char *at = strstr(text, begin);
	if (!at)
		fail_msg("fsck says nothing of %s:\n%s", name, text);
	return strtoull(at + strlen(begin), NULL, 10);
}

void
account_fsck(struct rkv_client *client, char ret_text[ACCOUNT_TEXT_MAX])
{
	ret_text[0] = '\n';
	assert_int_equal(
		rkv_server_fsck(client, ret_text + 1, ACCOUNT_TEXT_MAX - 1, NULL, PROC_WAIT_MS),
		RKV_OK);
	assert_int_equal(account_line(ret_text, "sum_bytes"), account_line(ret_text, "pool_bytes"));
	assert_int_equal(account_line(ret_text, "clean"), 1);
}

/* The server's own counts, by a look that ends some time later, say the same. */
static void
counts_agree(struct rkv_client *client, const char *text)
{
	static const char *const names[][2] = {{"bytes_live", "live_bytes"},
					       {"bytes_free", "free_bytes"},
					       {"bytes_resting", "resting_bytes"},
					       {"bytes_garbage", "garbage_bytes"},
					       {"bytes_tentative", "tentative_bytes"}};
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		uint64_t bytes = account_line(text, names[i][1]);
		if (!load_await_counter(client, names[i][0], bytes, bytes, PROC_WAIT_MS))
			fail_msg("%s is %" PRIu64 ", and fsck says %" PRIu64, names[i][0],
				 load_counter(client, names[i][0]), bytes);
	}
}

void
account_settles(struct rkv_client *client, uint64_t n_live)
{
	char text[ACCOUNT_TEXT_MAX];
	assert_true(load_await_counter(client, "sessions", 0, 0, PROC_WAIT_MS));
	assert_true(load_await_counter(client, "sessions_ending", 0, 0, PROC_WAIT_MS));
	assert_true(load_await_counter(client, "scrub_idle", 1, 1, SCRUB_MS));
	account_fsck(client, text);
	assert_int_equal(account_line(text, "garbage_bytes"), 0);
	assert_int_equal(account_line(text, "tentative_bytes"), 0);
	assert_int_equal(account_line(text, "words_tentative"), 0);
	assert_int_equal(account_line(text, "live_blocks"), n_live);
	assert_int_equal(account_line(text, "words_committed"), n_live);
	counts_agree(client, text);
	printf("# scrubber: %" PRIu64 " passes, %" PRIu64 " hurried, %" PRIu64 " kills, %" PRIu64
	       " blocks, %" PRIu64 " bytes\n",
	       load_counter(client, "scrub_passes"), load_counter(client, "scrub_hurried"),
	       load_counter(client, "scrub_kills"), load_counter(client, "scrub_blocks"),
	       load_counter(client, "scrub_bytes"));
}
