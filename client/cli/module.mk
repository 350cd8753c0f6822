# SPDX-License-Identifier: BSD-2-Clause
cli_SRC += client/cli/main.c client/cli/arguments.c client/cli/bytes.c \
	client/cli/commands.c client/cli/report.c
