/* SPDX-License-Identifier: BSD-2-Clause */
/* A cache trace as kv-bench replays it: all tasks of all threads. */
#include "bench/trace.h"
#include "tests/fuzz/fuzz.h"

#define THREADS 3u

static void
drain(const struct trace *trace)
{
	struct sources *sources = trace_sources(trace, THREADS);
	uint64_t n = 0;
	fuzz_must(sources);
	for (uint32_t i = 0; i < THREADS; i++) {
		struct source *source = sources->of(sources, i);
		struct source_task task;
		for (; source->next(source, &task) == SOURCE_TASK; n++) {
			fuzz_must(task.key_len >= 1 && task.key_len <= SOURCE_KEY_MAX);
			fuzz_must((unsigned)task.op < SOURCE_OPS);
			fuzz_must(task.value_len <= trace_value_max(trace));
			source->done(source, &task, true);
		}
	}
	fuzz_must(n == trace_n_operations(trace));
	sources->destroy(sources);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char reason[TRACE_REASON_MAX] = "";
	struct trace *trace = trace_open(fuzz_file(data, size), size % 2 * 8, reason);
	if (trace)
		drain(trace);
	else
		fuzz_must(reason[0]);
	trace_close(trace);
	return 0;
}
