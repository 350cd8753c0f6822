/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The part of client/control.h that speaks to a server, where there is none: for harnesses that put
 * something else in the place of the control thread.
 */
#include "client/control.h"
#include "common/err.h"

int
control_start(struct rkv_client *client, int64_t deadline_ns)
{
	(void)client;
	(void)deadline_ns;
	return ERR_CONN;
}

void
control_stop(struct rkv_client *client)
{
	(void)client;
}

int
control_ping(struct rkv_client *client, int64_t deadline_ns)
{
	(void)client;
	(void)deadline_ns;
	return ERR_CONN;
}

int
control_stats(struct rkv_client *client, char *text, size_t text_len, size_t *ret_len,
	      int64_t deadline_ns)
{
	(void)client;
	(void)text;
	(void)text_len;
	(void)ret_len;
	(void)deadline_ns;
	return ERR_CONN;
}

int
control_snapshot(struct rkv_client *client, const char *name, uint32_t number,
		 struct wire_snapshot_state *ret_state, int64_t deadline_ns)
{
	(void)client;
	(void)name;
	(void)number;
	(void)ret_state;
	(void)deadline_ns;
	return ERR_CONN;
}

int
control_fsck(struct rkv_client *client, char *text, size_t text_len, size_t *ret_len,
	     int64_t deadline_ns)
{
	return control_stats(client, text, text_len, ret_len, deadline_ns);
}
