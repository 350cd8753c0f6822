/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server and a client on fake devices, for the tests of the verbs fabric: test_verbs.c (data) and
 * test_verbs_setup.c (devices, connections). Logs are kept, so that sentences can be looked at.
 */
#ifndef RKV_TESTS_FABRIC_VERBS_WORLD_H
#define RKV_TESTS_FABRIC_VERBS_WORLD_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/fabric_host.h"
#include "tests/fabric/fake_verbs.h"
#include "tests/fabric/verbs_pair.h"

#define WORLD_REGION_LEN UINT64_C(65536)
#define WORLD_LOCAL_LEN 32768u

struct world_log {
	struct log log;
	unsigned n_lines;
	char last[1024];
};

struct world {
	struct verbs_side side;
	struct world_log log;
	struct conf_pair pair;
	struct fab_endpoint *ep;
	uint64_t *remote; /* the region */
	uint64_t *local;  /* WORLD_LOCAL_LEN registered bytes */
	uint32_t key;
};

static inline void
world_log_line(void *arg, int level, const char *line)
{
	struct world_log *log = arg;
	(void)level;
	log->n_lines++;
	snprintf(log->last, sizeof(log->last), "%s", line);
}

static inline void
world_log_init(struct world_log *log)
{
	*log = (struct world_log){.log = {world_log_line, log, LOG_WARN}};
}

/* A server alone, whose thread runs. */
static inline void
world_serve(struct world *w, uint64_t len)
{
	memset(w, 0, sizeof(*w));
	world_log_init(&w->log);
	assert_int_equal(verbs_side_start(&w->side, len, NULL), 0);
	w->side.log = w->log.log;
	w->remote = (uint64_t *)(void *)w->side.memory;
	verbs_side_run(&w->side);
}

static inline void
world_stop(struct world *w)
{
	verbs_side_stop(&w->side);
	assert_int_equal(atomic_load(&fake_counts.n_live), 0);
}

/* Adds a client of n endpoints. Counts begin afterwards. */
static inline void
world_join(struct world *w, unsigned n, uint32_t depth)
{
	void *local = NULL;
	assert_int_equal(verbs_reach(&w->side, &w->log.log, n, depth, &w->pair), 0);
	assert_int_equal(posix_memalign(&local, 4096, WORLD_LOCAL_LEN), 0);
	memset(local, 0, WORLD_LOCAL_LEN);
	w->local = local;
	w->ep = w->pair.ep[0];
	assert_int_equal(fab_register(w->pair.fab, local, WORLD_LOCAL_LEN, &w->key), 0);
	atomic_store(&fake_counts.n_post, 0);
	atomic_store(&fake_counts.n_wr, 0);
	atomic_store(&fake_counts.n_signalled, 0);
	atomic_store(&fake_counts.n_inline, 0);
}

static inline void
world_open(struct world *w, unsigned n, uint32_t depth)
{
	world_serve(w, WORLD_REGION_LEN);
	world_join(w, n, depth);
}

static inline void
world_close(struct world *w)
{
	fab_deregister(w->pair.fab, w->key);
	conf_leave(&w->pair);
	free(w->local);
	world_stop(w);
}

#endif
