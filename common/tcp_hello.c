/* SPDX-License-Identifier: BSD-2-Clause */
/* See tcp_hello.h. */
#include "common/tcp_hello.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/err.h"
#include "common/net.h"

union answer {
	struct wire_tcp_header header;
	struct wire_tcp_accept accept;
	struct wire_tcp_reject reject;
	struct wire_refused
		refused; /* whose header is as long, and ends with the same two fields */
};
static_assert(sizeof(struct wire_header) == sizeof(struct wire_tcp_header) &&
		      offsetof(struct wire_header, len) == offsetof(struct wire_tcp_header, len),
	      "either header may come");

static int
fail(char reason[TCP_REASON_MAX], int code, const char *sentence)
{
	snprintf(reason, TCP_REASON_MAX, "%s", sentence);
	return code;
}

static int
receive(int fd, void *bytes, size_t len, int64_t deadline_ns, char reason[TCP_REASON_MAX])
{
	int rc = net_receive(fd, bytes, len, deadline_ns);
	if (rc == ERR_TIMEOUT)
		return fail(reason, rc,
			    "connected, but the server did not answer the hello of the data "
			    "connection in time");
	return rc ? fail(reason, rc, "the server closed the data connection") : 0;
}

/* Which answer a header begins; NULL: none of this protocol. */
static const struct answer_kind {
	uint32_t magic;
	uint16_t type;
	size_t len;
} answer_kinds[] = {
	{WIRE_TCP_MAGIC, WIRE_TCP_ACCEPT, sizeof(struct wire_tcp_accept)},
	{WIRE_TCP_MAGIC, WIRE_TCP_REJECT, sizeof(struct wire_tcp_reject)},
	{WIRE_MAGIC, WIRE_REFUSED, sizeof(struct wire_refused)},
};

static const struct answer_kind *
kind_of(const struct wire_tcp_header *header)
{
	for (size_t i = 0; i < sizeof(answer_kinds) / sizeof(*answer_kinds); i++) {
		const struct answer_kind *kind = &answer_kinds[i];
		if (kind->magic == header->magic && kind->type == header->type &&
		    kind->len == header->len &&
		    (kind->type != WIRE_TCP_ACCEPT || header->version == WIRE_VERSION))
			return kind;
	}
	return NULL;
}

static int
take_refusal(int code, const char *text, size_t len, char reason[TCP_REASON_MAX])
{
	net_copy_text(reason, TCP_REASON_MAX, text, len);
	return code < 0 && code >= ERR_NOMEM ? code : ERR_CORRUPT;
}

static int
take_accept(const struct wire_tcp_accept *accept, struct wire_tcp_accept *ret_accept,
	    char reason[TCP_REASON_MAX])
{
	if (accept->batch_max < FAB_BATCH_MAX || accept->base != 0 || accept->reserved != 0)
		return fail(reason, ERR_CORRUPT,
			    "the server accepted the data connection on terms that this client "
			    "does not know");
	*ret_accept = *accept;
	return 0;
}

static int
take_answer(const union answer *answer, struct wire_tcp_accept *ret_accept,
	    char reason[TCP_REASON_MAX])
{
	const struct wire_tcp_reject *reject = &answer->reject;
	const struct wire_refused *refused = &answer->refused;
	if (answer->header.magic == WIRE_MAGIC)
		return take_refusal(refused->code, refused->reason, sizeof(refused->reason),
				    reason);
	if (answer->header.type == WIRE_TCP_REJECT)
		return take_refusal(reject->code, reject->reason, sizeof(reject->reason), reason);
	return take_accept(&answer->accept, ret_accept, reason);
}

static int
exchange(int fd, const struct wire_tcp_hello *hello, int64_t deadline_ns,
	 struct wire_tcp_accept *ret_accept, char reason[TCP_REASON_MAX])
{
	union answer answer;
	const struct wire_tcp_header *header = &answer.header;
	/* If this fails the server has hung up, and may have said why. */
	(void)!send(fd, hello, sizeof(*hello), MSG_NOSIGNAL);
	int rc = receive(fd, &answer.header, sizeof(answer.header), deadline_ns, reason);
	if (rc)
		return rc;
	const struct answer_kind *kind = kind_of(header);
	if (!kind)
		return fail(reason, ERR_CORRUPT,
			    "the server answered the hello of the data connection with something "
			    "else");
	rc = receive(fd, (char *)&answer + sizeof(*header), kind->len - sizeof(*header),
		     deadline_ns, reason);
	return rc ? rc : take_answer(&answer, ret_accept, reason);
}

static int
parse_address(const struct fab_offer *offer, struct net_address *ret_address,
	      char reason[TCP_REASON_MAX])
{
	unsigned n;
	int rc = net_parse(offer->tcp_address, 0, ret_address, 1, &n, reason);
	if (!rc && (n != 1 || ret_address->port == 0))
		rc = fail(reason, ERR_INVALID, "the offer names no port for data connections");
	return rc;
}

int
tcp_hello_connect(const struct fab_offer *offer, const struct fab_ticket *ticket,
		  int64_t deadline_ns, int *ret_fd, struct wire_tcp_accept *ret_accept,
		  char reason[TCP_REASON_MAX])
{
	struct net_address address;
	int fd;
	struct wire_tcp_hello hello = {
		.header = {.magic = WIRE_TCP_MAGIC,
			   .version = WIRE_VERSION,
			   .type = WIRE_TCP_HELLO,
			   .len = sizeof(hello)},
		.request = {.magic = WIRE_CM_MAGIC,
			    .version = WIRE_VERSION,
			    .session_slot = ticket ? ticket->session_slot : 0,
			    .serial = ticket ? ticket->serial : 0},
	};
	memcpy(hello.request.token, offer->token, sizeof(hello.request.token));
	int rc = parse_address(offer, &address, reason);
	if (!rc)
		rc = net_connect(&address, deadline_ns, &fd, reason);
	if (rc)
		return rc;
	rc = exchange(fd, &hello, deadline_ns, ret_accept, reason);
	if (rc)
		close(fd);
	else
		*ret_fd = fd;
	return rc;
}
