/* SPDX-License-Identifier: BSD-2-Clause */
/* kv-bench's properties: the whole input as a file, and its first line as -p has it. */
#include "bench/properties.h"
#include "tests/fuzz/fuzz.h"

static void
check(const struct options *options)
{
	double sum = 0;
	for (int op = 0; op < SOURCE_OPS; op++) {
		fuzz_must(options->workload.mix.shares[op] >= 0);
		sum += options->workload.mix.shares[op];
	}
	fuzz_must(sum > 0.999 && sum < 1.001);
	fuzz_must(options->workload.sizes.value_len <= OPTIONS_VALUE_MAX);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	struct options options = {0};
	struct properties properties;
	char *line = fuzz_line(&in);
	properties_init(&properties);
	properties_begin(&options);
	int code = properties_file(&properties, fuzz_file(data, size), &options);
	if (line && code == OPTIONS_GO)
		code = properties_set(&properties, line, &options);
	if (code == OPTIONS_GO && properties_finish(&properties, &options) == OPTIONS_GO &&
	    properties.any)
		check(&options);
	free(line);
	return 0;
}
