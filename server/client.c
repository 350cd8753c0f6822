/* SPDX-License-Identifier: BSD-2-Clause */
/* Finding clients: client.h. */
#include "server/client.h"

struct client *
client_with_token(const struct client_list *clients, const unsigned char token[WIRE_TOKEN_LEN])
{
	struct client *client;
	LIST_FOREACH(client, clients, entry)
	{
		if (client->has_token && auth_equal(client->token, token, WIRE_TOKEN_LEN))
			return client;
	}
	return NULL;
}
