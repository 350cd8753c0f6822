/* SPDX-License-Identifier: BSD-2-Clause */
/* The text of STATS: stats.h. */
#include "server/stats.h"

#include <inttypes.h>
#include <stdio.h>

#include "server/metrics.h"
#include "server/text.h"

static void
add_text(void *arg, const char *name, const char *text)
{
	text_add(arg, "%s %s\n", name, text);
}

static void
add_value(void *arg, const struct metric *metric)
{
	if (metric->stat)
		text_add(arg, "%s %" PRIu64 "\n", metric->stat, metric->value);
}

size_t
stats_text(struct service *service, struct store *store, char *ret_text, size_t max)
{
	struct text text = {.bytes = ret_text, .max = max};
	metrics_visit_texts(store, add_text, &text);
	metrics_visit_server(service, add_value, &text);
	metrics_visit_store(store, add_value, &text);
	return text.len;
}
