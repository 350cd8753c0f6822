/* SPDX-License-Identifier: BSD-2-Clause */
/* kv-cli's command line, one argument a line, and bytes as it reads them. */
#include <getopt.h>
#include <stdbool.h>

#include "client/cli/arguments.h"
#include "tests/fuzz/fuzz.h"

#define ARGUMENTS_MAX 16
#define FILE_LEN_MAX 64u

static void
parse(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	struct arguments arguments;
	static char name[] = "kv-cli";
	char *argv[ARGUMENTS_MAX + 2] = {name}, *line;
	int argc = 1;
	optind = 0; /* getopt begins anew */
	for (; argc <= ARGUMENTS_MAX && (line = fuzz_line(&in)); argc++)
		argv[argc] = line;
	if (arguments_parse(argc, argv, &arguments) == 0) {
		fuzz_must((unsigned)arguments.command < COMMAND_COUNT);
		if (arguments_has_key(&arguments) && !arguments.key_file)
			fuzz_must(arguments.key.data || arguments.key.len == 0);
	}
	arguments_release(&arguments);
	for (int i = 1; i < argc; i++)
		free(argv[i]);
}

static void
read_bytes(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	struct bytes bytes = {0};
	char *line = fuzz_line(&in);
	if (line && bytes_from_hex(&bytes, line) == 0)
		fuzz_must(bytes.len == strlen(line) / 2);
	bool fits = bytes_from_file(&bytes, fuzz_file(data, size), FILE_LEN_MAX) == 0;
	fuzz_must(fits == (size <= FILE_LEN_MAX));
	if (fits)
		fuzz_must(bytes.len == size && (!size || memcmp(bytes.data, data, size) == 0));
	bytes_release(&bytes);
	free(line);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	parse(data, size);
	read_bytes(data, size);
	return 0;
}
