/* SPDX-License-Identifier: BSD-2-Clause */
/* A client's file with its secret: the input is the file. */
#include "common/secret.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct secret *secret = calloc(1, sizeof(*secret));
	char reason[NET_REASON_MAX] = "";
	fuzz_must(secret);
	if (secret_load(fuzz_file(data, size), secret, reason)) {
		fuzz_must(secret->len == 0);
		fuzz_must(reason[0] && memchr(reason, '\0', sizeof(reason)));
	} else {
		fuzz_must(secret->len >= LIMIT_SECRET_MIN && secret->len <= LIMIT_SECRET_MAX);
		for (size_t i = 0; i < secret->len; i++)
			fuzz_must(secret->bytes[i] > ' ' && secret->bytes[i] <= '~');
	}
	free(secret);
	return 0;
}
