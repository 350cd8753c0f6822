/* SPDX-License-Identifier: BSD-2-Clause */
/* Metrics in the text format of Prometheus: exposition.h. */
#include "server/exposition.h"

#include <inttypes.h>
#include <string.h>

#include "server/metrics.h"
#include "server/service.h"
#include "server/text.h"

struct exposition {
	struct text text;
	const char *family; /* whose head was written last */
	const char *before; /* the next label */
};

/* A label; what its value may not hold as it is gets a backslash. */
static void
add_label(void *arg, const char *name, const char *value)
{
	struct exposition *e = arg;
	text_add(&e->text, "%s%s=\"", e->before, name);
	for (const char *c = value; *c; c++) {
		if (*c == '\n')
			text_add(&e->text, "\\n");
		else
			text_add(&e->text, "%s%c", *c == '"' || *c == '\\' ? "\\" : "", *c);
	}
	text_add(&e->text, "\"");
	e->before = ",";
}

static void
add_head(struct exposition *e, const char *name, enum metric_type type, const char *help)
{
	if (e->family && strcmp(e->family, name) == 0)
		return;
	e->family = name;
	text_add(&e->text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name,
		 type == METRIC_COUNTER ? "counter" : "gauge");
}

static void
add_metric(void *arg, const struct metric *m)
{
	struct exposition *e = arg;
	uint64_t unit = 1;
	if (!m->name)
		return;
	add_head(e, m->name, m->type, m->help);
	text_add(&e->text, m->label ? "%s{%s}" : "%s%s", m->name, m->label ? m->label : "");
	for (unsigned i = 0; i < m->decimals; i++)
		unit *= 10;
	text_add(&e->text, " %" PRIu64, m->value / unit);
	if (m->decimals)
		text_add(&e->text, ".%0*" PRIu64, (int)m->decimals, m->value % unit);
	text_add(&e->text, "\n");
}

size_t
exposition_text(struct service *service, char *ret_text, size_t max)
{
	struct exposition e = {.text = {.bytes = ret_text, .max = max}, .before = "{"};
	add_head(&e, "rkv_server_info", METRIC_GAUGE, "What serves; the value is always 1.");
	text_add(&e.text, "rkv_server_info");
	metrics_visit_texts(service->store[0], add_label, &e);
	text_add(&e.text, "} 1\n");
	metrics_visit(service, service->store[0], add_metric, &e);
	return e.text.len;
}
