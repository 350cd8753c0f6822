/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the server can tell of itself: one table, from which the text of STATS (stats.h) and that
 * of /metrics (exposition.h) are made. deploy/METRICS.md lists it for users; a test compares.
 */
#ifndef RKV_SERVER_METRICS_H
#define RKV_SERVER_METRICS_H

#include <stdint.h>

struct service;
struct store;

enum metric_type { METRIC_GAUGE, METRIC_COUNTER };

struct metric {
	const char *stat;  /* the name of its line in STATS; NULL: it has none */
	const char *name;  /* of its family in /metrics; NULL: it is not there */
	const char *label; /* as Prometheus writes them: class="64",state="live"; NULL: none */
	enum metric_type type;
	unsigned decimals; /* the value counts in this power of ten below the name's unit */
	uint64_t value;
	const char *help; /* of the family: a sentence without a line break or backslash */
};

/*
 * Shows each metric as it is now, of what there is once in the server, or of one store; those of a
 * family come one behind the other.
 */
void metrics_visit_server(struct service *service,
			  void (*take)(void *arg, const struct metric *metric), void *arg);
void metrics_visit_store(struct store *store, void (*take)(void *arg, const struct metric *metric),
			 void *arg);

/* The same for what is text: version, fabric and the like, of one store. */
void metrics_visit_texts(const struct store *store,
			 void (*take)(void *arg, const char *name, const char *text), void *arg);

#endif
