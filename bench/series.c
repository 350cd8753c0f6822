/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/series.h"

/* Every second point goes. */
static void
thin_out(struct series *series)
{
	series->n_doublings++;
	series->n /= 2;
	for (uint32_t i = 0; i < series->n; i++)
		series->points[i] = series->points[2 * i + 1];
}

void
series_add(struct series *series, uint64_t elapsed_ns, uint64_t n_done)
{
	if (series->n == SERIES_MAX)
		thin_out(series);
	/* Half a step early is on time: callers come when a timer says so. */
	uint64_t step_ns = SERIES_STEP_NS << series->n_doublings;
	if (series->n > 0 && elapsed_ns < series->points[series->n - 1].elapsed_ns + step_ns / 2)
		return;
	series->points[series->n++] = (struct series_point){elapsed_ns, n_done};
}
