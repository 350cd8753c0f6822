/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client process to be killed: raw_client PORT N MODE joins, takes N free chunks, prints "slot S
 * serial N" and waits. MODE: hold; linger (closes its control connection first); fork (a child of
 * it keeps the control connection open, and prints its pid too).
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/proc/raw.h"

static void
own_chunks(struct raw *raw, uint64_t n, uint32_t slot)
{
	for (uint64_t chunk = 0; n > 0; chunk++) {
		uint64_t off = layout_desc_off(&raw->layout, chunk);
		uint64_t desc = raw_word(raw, off);
		if (chunk_state(desc) == CHUNK_FREE &&
		    raw_cas(raw, off, desc, chunk_next(desc, CHUNK_OWNED, 3, slot)))
			n--;
	}
}

static pid_t
fork_holder(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		alarm(60); /* in case the test that should end it does not get there */
		for (;;)
			pause();
	}
	return pid;
}

int
main(int argc, char *argv[])
{
	static struct raw raw;
	struct server server = {.port = argc > 3 ? (uint16_t)atoi(argv[1]) : 0};
	if (argc != 4)
		return 2;
	raw_connect(&raw, &server, WIRE_ROLE_CLIENT);
	raw_map(&raw);
	struct raw_session session = raw_join(&raw, 0);
	own_chunks(&raw, strtoull(argv[2], NULL, 10), session.slot);
	pid_t holder = strcmp(argv[3], "fork") == 0 ? fork_holder() : 0;
	if (strcmp(argv[3], "linger") == 0)
		close(raw.fd);
	printf("slot %u serial %u holder %d\n", session.slot, session.serial, (int)holder);
	fflush(stdout);
	for (;;)
		pause();
}
