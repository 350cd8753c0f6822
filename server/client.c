/* SPDX-License-Identifier: BSD-2-Clause */
/* Finding clients: client.h. */
#include "server/client.h"

struct client *
client_with_token(const struct client_list *clients, const unsigned char token[WIRE_TOKEN_LEN])
{
	struct client *client;
	LIST_FOREACH(client, clients, entry)
	{
		unsigned differ = !client->has_token;
		for (size_t i = 0; i < WIRE_TOKEN_LEN; i++)
			differ |= (unsigned)(client->token[i] ^ token[i]);
		if (!differ)
			return client;
	}
	return NULL;
}
