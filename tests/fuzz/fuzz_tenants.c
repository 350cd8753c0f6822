/* SPDX-License-Identifier: BSD-2-Clause */
/* kv-server's file of tenants: the input is the file. */
#include "server/tenants.h"
#include "tests/fuzz/fuzz.h"

static const struct tenants_regions regions = {.n = 2, .name = {"default", "other"}};

static void
check(const struct tenants *tenants)
{
	fuzz_must(tenants->n >= 1 && tenants->n <= LIMIT_TENANTS);
	for (size_t i = 0; i < tenants->n; i++) {
		const struct tenant *t = &tenants->tenant[i];
		fuzz_must(t->name[0] && memchr(t->name, '\0', sizeof(t->name)));
		fuzz_must(t->access >= WIRE_ACCESS_READ && t->access <= WIRE_ACCESS_ADMIN);
		fuzz_must(t->secret.len >= LIMIT_SECRET_MIN && t->secret.len <= LIMIT_SECRET_MAX);
		fuzz_must(t->region < regions.n);
		fuzz_must(t->n_sessions >= 1 && t->n_sessions <= LIMIT_SESSIONS);
		fuzz_must(t->n_connections >= 1 && t->n_connections <= LIMIT_CLIENTS);
		fuzz_must(!memchr(t->secret.bytes, ' ', t->secret.len));
		fuzz_must(tenants_find(tenants, t->name) == t);
		fuzz_must(tenants_find_same(tenants, t) == t);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tenants *tenants = NULL;
	char reason[NET_REASON_MAX] = "";
	if (tenants_load(fuzz_file(data, size), &regions, &tenants, reason))
		fuzz_must(!tenants && reason[0] && memchr(reason, '\0', sizeof(reason)));
	else
		check(tenants);
	tenants_free(tenants);
	return 0;
}
