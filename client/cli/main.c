/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kv-cli: one command on one key of an rkv server, for people and scripts. It knows the store
 * through rkv.h only. arguments.c says what the command line means, commands.c does it, report.c
 * says what went wrong, bytes.c moves keys and values in and out.
 */
#include <fcntl.h>
#include <unistd.h>

#include "client/cli/arguments.h"
#include "client/cli/commands.h"
#include "client/cli/report.h"

/*
 * A caller may have closed standard input, output or error. The next descriptor opened, which may
 * be a connection, would take its number, and values or messages would be written into it. What
 * stands in for them is open the wrong way round, so that using it is an error and not silence.
 */
static int
hold_standard_descriptors(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		int flags = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;

		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", flags) < 0)
			return report_system("open", "/dev/null", "see that it exists");
	}
	return REPORT_DONE;
}

int
main(int argc, char **argv)
{
	struct arguments arguments = {0};
	int exit_code = hold_standard_descriptors();

	if (exit_code == REPORT_DONE)
		exit_code = arguments_parse(argc, argv, &arguments);
	if (exit_code == REPORT_DONE)
		exit_code = commands_run(&arguments);
	arguments_release(&arguments);
	return exit_code;
}
