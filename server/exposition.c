/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Metrics in the text format of Prometheus: exposition.h. The format wants all samples of a family
 * together, and metrics come store by store: so first the lines are written as they come, in *runs*
 * of one family, and then the runs of each family are put behind each other.
 */
#include "server/exposition.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "server/metrics.h"
#include "server/service.h"
#include "server/text.h"

#define FAMILIES_MAX 128u
#define RUNS_MAX ((LIMIT_REGIONS + 1) * FAMILIES_MAX)

struct family {
	const char *name;
	const char *help;
	enum metric_type type;
};

/* Lines of one family, of the server or of one store. */
struct run {
	unsigned family;
	size_t at;
	size_t len;
};

struct exposition {
	struct text lines;
	const char *region; /* whose are written; NULL: the server's own */
	const char *before; /* the next label */
	unsigned n_families;
	unsigned n_runs;
	struct family families[FAMILIES_MAX];
	struct run runs[RUNS_MAX];
};

/* ---- Lines ---- */

/* The family's number, or FAMILIES_MAX if there is no room for another. */
static unsigned
family_of(struct exposition *e, const char *name, enum metric_type type, const char *help)
{
	unsigned i = 0;
	while (i < e->n_families && strcmp(e->families[i].name, name) != 0)
		i++;
	if (i == e->n_families && i < FAMILIES_MAX)
		e->families[e->n_families++] = (struct family){name, help, type};
	return i;
}

/* The lines that follow are of this family. False: there is no room. */
static bool
begin_run(struct exposition *e, const char *name, enum metric_type type, const char *help)
{
	const struct run *last = e->n_runs ? &e->runs[e->n_runs - 1] : NULL;
	if (last && strcmp(e->families[last->family].name, name) == 0)
		return true;
	unsigned family = family_of(e, name, type, help);
	if (family == FAMILIES_MAX || e->n_runs == RUNS_MAX)
		return false;
	e->runs[e->n_runs++] = (struct run){family, e->lines.len, 0};
	return true;
}

static void
end_line(struct exposition *e)
{
	struct run *run = &e->runs[e->n_runs - 1];
	run->len = e->lines.len - run->at;
}

/* A label; what its value may not hold as it is gets a backslash. */
static void
add_label(void *arg, const char *name, const char *value)
{
	struct exposition *e = arg;
	text_add(&e->lines, "%s%s=\"", e->before, name);
	for (const char *c = value; *c; c++) {
		if (*c == '\n')
			text_add(&e->lines, "\\n");
		else
			text_add(&e->lines, "%s%c", *c == '"' || *c == '\\' ? "\\" : "", *c);
	}
	text_add(&e->lines, "\"");
	e->before = ",";
}

static void
add_info(struct exposition *e, const struct store *store)
{
	static const char name[] = "rkv_server_info";
	if (!begin_run(e, name, METRIC_GAUGE, "What serves; the value is always 1."))
		return;
	e->before = "{";
	text_add(&e->lines, name);
	metrics_visit_texts(store, add_label, e);
	text_add(&e->lines, "} 1\n");
	end_line(e);
}

static void
add_metric(void *arg, const struct metric *m)
{
	struct exposition *e = arg;
	uint64_t unit = 1;
	if (!m->name || !begin_run(e, m->name, m->type, m->help))
		return;
	text_add(&e->lines, "%s", m->name);
	if (e->region)
		text_add(&e->lines, "{region=\"%s\"", e->region);
	if (m->label)
		text_add(&e->lines, "%s%s", e->region ? "," : "{", m->label);
	for (unsigned i = 0; i < m->decimals; i++)
		unit *= 10;
	text_add(&e->lines, "%s %" PRIu64, e->region || m->label ? "}" : "", m->value / unit);
	if (m->decimals)
		text_add(&e->lines, ".%0*" PRIu64, (int)m->decimals, m->value % unit);
	text_add(&e->lines, "\n");
	end_line(e);
}

/* ---- Families ---- */

static void
add_family(const struct exposition *e, unsigned number, struct text *text)
{
	const struct family *family = &e->families[number];
	text_add(text, "# HELP %s %s\n# TYPE %s %s\n", family->name, family->help, family->name,
		 family->type == METRIC_COUNTER ? "counter" : "gauge");
	for (unsigned i = 0; i < e->n_runs; i++)
		if (e->runs[i].family == number)
			text_add(text, "%.*s", (int)e->runs[i].len, e->lines.bytes + e->runs[i].at);
}

int
exposition_text(struct service *service, char **ret_text, size_t *ret_len)
{
	size_t max = service->n_stores * EXPOSITION_REGION_MAX;
	struct exposition *e = calloc(1, sizeof(*e));
	struct text text = {.bytes = malloc(max), .max = max};
	char *lines = malloc(max);
	int rc = e && text.bytes && lines ? 0 : ERR_NOMEM;
	if (rc == 0) {
		e->lines = (struct text){.bytes = lines, .max = max};
		for (unsigned i = 0; i < service->n_stores; i++)
			add_info(e, service->store[i]);
		metrics_visit_server(service, add_metric, e);
		for (unsigned i = 0; i < service->n_stores; i++) {
			e->region = service->store[i]->name;
			metrics_visit_store(service->store[i], add_metric, e);
		}
		for (unsigned i = 0; i < e->n_families; i++)
			add_family(e, i, &text);
		*ret_text = text.bytes;
		*ret_len = text.len;
	} else {
		free(text.bytes);
	}
	free(lines);
	free(e);
	return rc;
}
