/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kv-server's command line and configuration: lines are arguments up to one that is empty; what
 * follows is the file.
 */
#include "server/options.h"
#include "tests/fuzz/fuzz.h"

#define ARGUMENTS_MAX 16

static void
check_one(const struct options *options)
{
	const struct layout *l = &options->layout;
	fuzz_must(l->region_len >= LIMIT_REGION_MIN && l->region_len <= LIMIT_REGION_MAX);
	fuzz_must(l->region_len <= options->pool_size && l->n_groups >= 1);
	fuzz_must(l->n_chunks >= LIMIT_CHUNKS_MIN);
	fuzz_must(layout_chunk_off(l, l->n_chunks) <= l->region_len);
	fuzz_must(memchr(options->socket, '\0', sizeof(options->socket)));
	fuzz_must(memchr(options->restore, '\0', sizeof(options->restore)));
	fuzz_must(memchr(options->pool_file, '\0', sizeof(options->pool_file)));
	fuzz_must(memchr(options->snapshot_dir, '\0', sizeof(options->snapshot_dir)));
	fuzz_must(options->n_listen >= 1 && options->n_listen <= OPTIONS_LISTEN_MAX);
	for (unsigned i = 0; i < options->n_listen; i++)
		fuzz_must(memchr(options->listen[i].host, '\0', sizeof(options->listen[i].host)));
}

static void
check(const struct options *options)
{
	static struct options of;
	fuzz_must(options_n_regions(options) <= LIMIT_REGIONS);
	for (unsigned i = 0; i < options_n_regions(options); i++) {
		options_of_region(options, i, &of);
		check_one(&of);
		fuzz_must(options_are_of_more(&of) == (i > 0));
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	static char name[] = "kv-server", config[] = "--config";
	char *argv[ARGUMENTS_MAX + 4] = {name}, *line;
	char reason[NET_REASON_MAX] = "";
	int n = 1, n_fixed = 1;
	struct options *options = malloc(sizeof(*options));
	fuzz_must(options);
	while (n <= ARGUMENTS_MAX && (line = fuzz_line(&in))) {
		if (!line[0]) {
			free(line);
			break;
		}
		argv[n++] = line;
	}
	if (in.len) {
		argv[n++] = config;
		argv[n++] = (char *)(uintptr_t)fuzz_file(in.at, in.len);
		n_fixed = 3;
	}
	if (options_parse(options, argv, reason))
		fuzz_must(reason[0] && memchr(reason, '\0', sizeof(reason)));
	else
		check(options);
	for (int i = 1; i <= n - n_fixed; i++)
		free(argv[i]);
	free(options);
	return 0;
}
