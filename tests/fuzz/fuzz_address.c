/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses as people write them, and text of another machine that people are shown. */
#include "common/net.h"
#include "tests/fuzz/fuzz.h"

#define ADDRESSES_MAX 3u

/* What is printed means the same. */
static void
check_same(const struct net_address *address)
{
	struct net_address again;
	char text[NET_TEXT_MAX], reason[NET_REASON_MAX];
	unsigned n;
	net_format(address, text);
	fuzz_must(net_parse(text, 1, &again, 1, &n, reason) == 0 && n == 1);
	fuzz_must(again.port == address->port && strcmp(again.host, address->host) == 0);
}

static void
check_text(const uint8_t *data, size_t size)
{
	size_t room = size / 2 + 1;
	char *to = malloc(room), *text = fuzz_copy(data, size);
	fuzz_must(to);
	net_copy_text(to, room, text, size);
	fuzz_must(strlen(to) < room);
	for (char *c = to; *c; c++)
		fuzz_must(*c >= ' ' && *c < 0x7f);
	free(text);
	free(to);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	struct net_address addresses[ADDRESSES_MAX];
	char reason[NET_REASON_MAX] = "";
	unsigned n;
	char *line = fuzz_line(&in);
	check_text(data, size);
	if (line && net_parse(line, 7440, addresses, ADDRESSES_MAX, &n, reason) == 0) {
		fuzz_must(n >= 1);
		for (unsigned i = 0; i < n && i < ADDRESSES_MAX; i++)
			check_same(&addresses[i]);
	} else if (line) {
		fuzz_must(reason[0] && memchr(reason, '\0', sizeof(reason)));
	}
	free(line);
	return 0;
}
