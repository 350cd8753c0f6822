/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * /metrics over HTTP/1.1 and 1.0, for Prometheus and its like: GET of one path, one request a
 * connection, on a port of its own. It shares the control loop and nothing else with clients:
 * requests, their number and their time are bounded, and the answer is made in one piece.
 */
#ifndef RKV_SERVER_EXPORTER_H
#define RKV_SERVER_EXPORTER_H

#include "common/loop.h"
#include "server/conn.h"

#define EXPORTER_PATH "/metrics"

struct service;

struct exporter {
	struct service *service;
	struct loop_listener listener;
	struct conn_queue asking; /* must send their request, and take the answer */
	LIST_HEAD(, scrape) scrapes;
	unsigned n; /* connections */
	uint64_t n_scrapes;
	uint64_t n_refused;
};

/* Serves fd, which stays the caller's; -1: nothing. Failures: ERR_NOMEM, ERR_CONN. */
int exporter_start(struct exporter *exporter, struct service *service, struct loop *loop, int fd);

/* Drops connections whose time is over. */
void exporter_expire(struct exporter *exporter, int64_t now_ns);

/* After the loop has ended. */
void exporter_destroy(struct exporter *exporter);

#endif
