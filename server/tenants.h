/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tenants a server knows, from a file (common/secret.h says who may be able to read it): one a
 * line, `NAME ROLE SECRET [region=NAME] [sessions=N] [connections=N]`; a line that begins with # is
 * a comment. ROLE is read-only, read-write or admin. A table does not change; a file that was read
 * again is another table.
 */
#ifndef RKV_SERVER_TENANTS_H
#define RKV_SERVER_TENANTS_H

#include <stddef.h>

#include "common/secret.h"
#include "proto/wire.h"

/* Those of a server, which does not get others while it runs. */
struct tenants_regions {
	unsigned n;
	const char *name[LIMIT_REGIONS];
};

struct tenant {
	char name[LIMIT_TENANT_MAX]; /* 0 behind its end */
	enum wire_access access;
	struct secret secret;
	unsigned region;        /* which */
	unsigned n_sessions;    /* at most, at a time */
	unsigned n_connections; /* likewise: control connections */
};

struct tenants {
	size_t n; /* at least 1 */
	struct tenant tenant[];
};

/* Failures, with a sentence that has file and line: ERR_PERM, ERR_INVALID, ERR_NOMEM. */
int tenants_load(const char *path, const struct tenants_regions *regions,
		 struct tenants **ret_tenants, char reason[NET_REASON_MAX]);

/* Overwrites the secrets. NULL is nothing. */
void tenants_free(struct tenants *tenants);

/* NULL: there is no such tenant. A name as a HELLO has it. */
const struct tenant *tenants_find(const struct tenants *tenants, const char name[LIMIT_TENANT_MAX]);

/*
 * The one of the new table who is the same, whatever became of the quotas; NULL: gone, or changed.
 */
const struct tenant *tenants_find_same(const struct tenants *tenants, const struct tenant *old);

/* "read-only", "read-write", "admin". */
const char *tenants_role(enum wire_access access);

#endif
