/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading the file of tenants: tenants.h. */
#include "server/tenants.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"

#define FILE_MAX ((size_t)512 << 10)
#define N_WORDS_MIN 3
#define N_WORDS_MAX 6
#define LINE_WANTED                                                                                \
	"`NAME ROLE SECRET` is wanted, and behind it, if at all, region=NAME, sessions=N, "        \
	"connections=N, each once"
#define BLANKS " \t\r"
#define PATH_SHOWN 100

const char *
tenants_role(enum wire_access access)
{
	switch (access) {
	case WIRE_ACCESS_READ:
		return "read-only";
	case WIRE_ACCESS_WRITE:
		return "read-write";
	case WIRE_ACCESS_ADMIN:
		return "admin";
	}
	return "unknown";
}

/* ---- One line ---- */

struct word {
	const char *at;
	size_t len;
};

/* Returns how many there are, at most N_WORDS_MAX + 1. */
static int
split(const char *line, struct word words[N_WORDS_MAX])
{
	int n = 0;
	for (line += strspn(line, BLANKS); *line; line += strspn(line, BLANKS)) {
		size_t len = strcspn(line, BLANKS);
		if (n == N_WORDS_MAX)
			return N_WORDS_MAX + 1;
		words[n++] = (struct word){line, len};
		line += len;
	}
	return n;
}

static int
take_name(struct tenant *tenant, struct word word, char *reason)
{
	bool is_good = word.len > 0 && word.len < LIMIT_TENANT_MAX;
	for (size_t i = 0; i < word.len && is_good; i++)
		is_good = isalnum((unsigned char)word.at[i]) || strchr("-_.", word.at[i]);
	if (!is_good) {
		snprintf(reason, NET_REASON_MAX,
			 "a tenant's name has 1 to %u letters, digits, and - _ .",
			 LIMIT_TENANT_MAX - 1);
		return ERR_INVALID;
	}
	memcpy(tenant->name, word.at, word.len);
	return 0;
}

static int
take_role(struct tenant *tenant, struct word word, char *reason)
{
	for (enum wire_access a = WIRE_ACCESS_READ; a <= WIRE_ACCESS_ADMIN; a++) {
		const char *role = tenants_role(a);
		if (strlen(role) == word.len && memcmp(role, word.at, word.len) == 0) {
			tenant->access = a;
			return 0;
		}
	}
	snprintf(reason, NET_REASON_MAX, "the role is read-only, read-write or admin");
	return ERR_INVALID;
}

static int
take_region(struct tenant *tenant, const struct tenants_regions *regions, struct word value,
	    char *reason)
{
	for (unsigned i = 0; i < regions->n; i++)
		if (strlen(regions->name[i]) == value.len &&
		    memcmp(regions->name[i], value.at, value.len) == 0) {
			tenant->region = i;
			return 0;
		}
	snprintf(reason, NET_REASON_MAX,
		 "tenant %s: the server has no region of the name behind region=: its "
		 "regions are %s and those of --region, when it was started",
		 tenant->name, regions->name[0]);
	return ERR_INVALID;
}

/* A number from 1 to max. */
static int
take_quota(unsigned *ret_n, unsigned max, struct word value, char *reason)
{
	unsigned n = 0;
	for (size_t i = 0; i < value.len && n <= max; i++) {
		if (!isdigit((unsigned char)value.at[i])) {
			n = 0;
			break;
		}
		n = n * 10 + (unsigned)(value.at[i] - '0');
	}
	if (n == 0 || n > max) {
		snprintf(reason, NET_REASON_MAX, "a quota is a number from 1 to %u", max);
		return ERR_INVALID;
	}
	*ret_n = n;
	return 0;
}

/* What a word of the form KEY=VALUE says after its KEY=, if it is that. */
static bool
has_key(struct word word, const char *key, struct word *ret_value)
{
	size_t len = strlen(key);
	if (word.len < len || memcmp(word.at, key, len) != 0)
		return false;
	*ret_value = (struct word){word.at + len, word.len - len};
	return true;
}

enum { HAS_REGION = 1, HAS_SESSIONS = 2, HAS_CONNECTIONS = 4 };

/* One of the words behind the secret. */
static int
take_extra(struct tenant *tenant, const struct tenants_regions *regions, struct word word,
	   unsigned *has, char *reason)
{
	struct word value;
	unsigned what = has_key(word, "region=", &value)        ? HAS_REGION
			: has_key(word, "sessions=", &value)    ? HAS_SESSIONS
			: has_key(word, "connections=", &value) ? HAS_CONNECTIONS
								: 0;
	if (!what || *has & what) {
		snprintf(reason, NET_REASON_MAX, LINE_WANTED);
		return ERR_INVALID;
	}
	*has |= what;
	if (what == HAS_REGION)
		return take_region(tenant, regions, value, reason);
	if (what == HAS_SESSIONS)
		return take_quota(&tenant->n_sessions, LIMIT_SESSIONS, value, reason);
	return take_quota(&tenant->n_connections, LIMIT_CLIENTS, value, reason);
}

static int
take_words(struct tenant *tenant, const struct tenants_regions *regions, const struct word *words,
	   int n, char *reason)
{
	unsigned has = 0;
	*tenant = (struct tenant){.n_sessions = LIMIT_SESSIONS, .n_connections = LIMIT_CLIENTS};
	int rc = take_name(tenant, words[0], reason);
	if (!rc)
		rc = take_role(tenant, words[1], reason);
	if (!rc)
		rc = secret_take(&tenant->secret, words[2].at, words[2].len, reason);
	for (int i = N_WORDS_MIN; !rc && i < n; i++)
		rc = take_extra(tenant, regions, words[i], &has, reason);
	return rc;
}

/* What is wrong is said without what stands there: it may be a secret. */
static int
take_line(struct tenants *tenants, const struct tenants_regions *regions, const char *line,
	  char *reason)
{
	struct word words[N_WORDS_MAX];
	struct tenant *tenant = &tenants->tenant[tenants->n];
	int n = split(line, words);
	if (n == 0 || words[0].at[0] == '#')
		return 0;
	if (n < N_WORDS_MIN || n > N_WORDS_MAX) {
		snprintf(reason, NET_REASON_MAX, LINE_WANTED);
		return ERR_INVALID;
	}
	if (tenants->n == LIMIT_TENANTS) {
		snprintf(reason, NET_REASON_MAX, "there are more than %u tenants", LIMIT_TENANTS);
		return ERR_INVALID;
	}
	int rc = take_words(tenant, regions, words, n, reason);
	if (!rc && tenants_find(tenants, tenant->name)) {
		snprintf(reason, NET_REASON_MAX, "tenant %s is there twice", tenant->name);
		rc = ERR_INVALID;
	}
	tenants->n += !rc;
	return rc;
}

/* ---- The file ---- */

static int
take_text(struct tenants *tenants, const struct tenants_regions *regions, const char *path,
	  char *text, size_t len, char *reason)
{
	char why[NET_REASON_MAX];
	char *line = text, *end = text + len;
	if (memchr(text, '\0', len)) {
		snprintf(reason, NET_REASON_MAX, "%.*s: a NUL byte: is this a text file?",
			 PATH_SHOWN, path);
		return ERR_INVALID;
	}
	for (unsigned number = 1; line < end; number++) {
		char *line_end = line + strcspn(line, "\n");
		*line_end = '\0';
		int rc = take_line(tenants, regions, line, why);
		if (rc) {
			snprintf(reason, NET_REASON_MAX, "%.*s:%u: %.300s", PATH_SHOWN, path,
				 number, why);
			return rc;
		}
		line = line_end + 1;
	}
	if (tenants->n > 0)
		return 0;
	snprintf(reason, NET_REASON_MAX, "%.*s: no tenant is named: add a line `NAME ROLE SECRET`",
		 PATH_SHOWN, path);
	return ERR_INVALID;
}

/* One more than may be: the last one's place is where a line is tried. */
static size_t
table_len(void)
{
	return sizeof(struct tenants) + (LIMIT_TENANTS + 1) * sizeof(struct tenant);
}

int
tenants_load(const char *path, const struct tenants_regions *regions, struct tenants **ret_tenants,
	     char reason[NET_REASON_MAX])
{
	size_t len;
	char *text = malloc(FILE_MAX);
	struct tenants *tenants = calloc(1, table_len());
	int rc = ERR_NOMEM;
	snprintf(reason, NET_REASON_MAX, "no memory is left for the table of tenants");
	if (text && tenants)
		rc = secret_read_file(path, text, FILE_MAX, &len, reason);
	if (!rc) {
		rc = take_text(tenants, regions, path, text, len, reason);
		secret_wipe(text, len);
	}
	free(text);
	if (rc)
		tenants_free(tenants);
	else
		*ret_tenants = tenants;
	return rc;
}

void
tenants_free(struct tenants *tenants)
{
	if (!tenants)
		return;
	secret_wipe(tenants, table_len());
	free(tenants);
}

/* ---- Finding ---- */

const struct tenant *
tenants_find(const struct tenants *tenants, const char name[LIMIT_TENANT_MAX])
{
	for (size_t i = 0; i < tenants->n; i++)
		if (strncmp(tenants->tenant[i].name, name, LIMIT_TENANT_MAX) == 0)
			return &tenants->tenant[i];
	return NULL;
}

const struct tenant *
tenants_find_same(const struct tenants *tenants, const struct tenant *old)
{
	const struct tenant *tenant = tenants ? tenants_find(tenants, old->name) : NULL;
	bool same = tenant && tenant->access == old->access && tenant->region == old->region &&
		    tenant->secret.len == old->secret.len &&
		    memcmp(tenant->secret.bytes, old->secret.bytes, old->secret.len) == 0;
	return same ? tenant : NULL;
}
