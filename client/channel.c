/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages of the control connection: channel.h. */
#include "client/channel.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/err.h"

/* Keepalives are numbered from 1; all other requests have this bit. */
#define REQUEST_BIT UINT32_C(0x80000000)
#define SEALED_MAX 4096 /* received at once, with TLS */
#define SEALS_MAX 1024 /* what TLS adds to a message: some 22 bytes for each 16 KiB, and to spare */

void
channel_start(struct channel *channel, int fd)
{
	channel->fd = fd;
	channel->tls = NULL;
	channel->n_taken = 0;
	channel->n_in = 0;
	channel->n_out = 0;
}

void
channel_close(struct channel *channel)
{
	if (channel->fd >= 0)
		close(channel->fd);
	channel->fd = -1;
	tls_free(channel->tls);
	channel->tls = NULL;
}

uint32_t
channel_request(struct channel *channel)
{
	return channel->n_requests++ | REQUEST_BIT;
}

/* ---- Out ---- */

/* Moves what TLS has to say to what waits. */
static void
seal(struct channel *channel)
{
	size_t n;
	while (channel->tls && (n = tls_take(channel->tls, channel->out + channel->n_out,
					     sizeof(channel->out) - channel->n_out)) > 0)
		channel->n_out += n;
}

int
channel_flush(struct channel *channel)
{
	size_t n_sent = 0;
	seal(channel);
	while (n_sent < channel->n_out) {
		ssize_t n = send(channel->fd, channel->out + n_sent, channel->n_out - n_sent,
				 MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n > 0)
			n_sent += (size_t)n;
		else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			break;
		else if (n == 0 || errno != EINTR)
			return ERR_CONN;
	}
	memmove(channel->out, channel->out + n_sent, channel->n_out - n_sent);
	channel->n_out -= n_sent;
	return 0;
}

int
channel_send(struct channel *channel, void *message, size_t len, enum wire_type type,
	     uint32_t request)
{
	struct wire_header header = {
		.magic = WIRE_MAGIC,
		.version = WIRE_VERSION,
		.type = (uint16_t)type,
		.len = (uint32_t)len,
		.request = request,
	};
	if (len + (channel->tls ? SEALS_MAX : 0) > sizeof(channel->out) - channel->n_out)
		return ERR_CONN;
	memcpy(message, &header, sizeof(header));
	if (channel->tls) {
		int rc = tls_write(channel->tls, message, len);
		return rc ? rc : channel_flush(channel);
	}
	memcpy(channel->out + channel->n_out, message, len);
	channel->n_out += len;
	return channel_flush(channel);
}

/* ---- In ---- */

/* Does a message of this type, from a server, have this length? */
static bool
length_fits(uint16_t type, uint32_t len)
{
	switch (type) {
	case WIRE_CHALLENGE:
		return len == sizeof(struct wire_challenge);
	case WIRE_WELCOME:
		return len == sizeof(struct wire_welcome);
	case WIRE_REFUSED:
		return len == sizeof(struct wire_refused);
	case WIRE_JOINED:
		return len == sizeof(struct wire_joined);
	case WIRE_STAMP:
		return len == sizeof(struct wire_stamp);
	case WIRE_RELINKED:
	case WIRE_RENEWED:
		return len == sizeof(struct wire_session);
	case WIRE_STATS_TEXT:
	case WIRE_FSCK_TEXT:
		return len >= sizeof(struct wire_header) && len <= LIMIT_MESSAGE_MAX;
	case WIRE_PONG:
		return len == sizeof(struct wire_header);
	case WIRE_SNAPSHOT_STATE:
		return len == sizeof(struct wire_snapshot_state);
	default:
		return false;
	}
}

/* Looks at as much of the front message as is here. */
static int
check_front(const struct channel *channel, char reason[NET_REASON_MAX])
{
	const struct wire_header *h = &channel->in.header;
	if (channel->n_in < sizeof(h->magic))
		return ERR_AGAIN;
	if (h->magic != WIRE_MAGIC) {
		snprintf(reason, NET_REASON_MAX,
			 "what answers there does not speak the protocol of kv-server: check the "
			 "port");
		return ERR_CORRUPT;
	}
	if (channel->n_in < sizeof(*h))
		return ERR_AGAIN;
	if (h->version != WIRE_VERSION) {
		snprintf(reason, NET_REASON_MAX,
			 "the server speaks version %u of the control protocol, this client "
			 "version %u: "
			 "upgrade the older one",
			 h->version, WIRE_VERSION);
		return ERR_VERSION;
	}
	if (!length_fits(h->type, h->len)) {
		snprintf(reason, NET_REASON_MAX,
			 "the server sent a message of type %u and %u bytes, which cannot be",
			 h->type, h->len);
		return ERR_CORRUPT;
	}
	return channel->n_in < h->len ? ERR_AGAIN : 0;
}

/* Receives what is there. ERR_AGAIN: nothing is. */
static int
receive_bytes(struct channel *channel, void *to, size_t room, size_t *ret_n,
	      char reason[NET_REASON_MAX])
{
	ssize_t n;
	do
		n = recv(channel->fd, to, room, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n > 0) {
		*ret_n = (size_t)n;
		return 0;
	}
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return ERR_AGAIN;
	snprintf(reason, NET_REASON_MAX, "%s",
		 n == 0 ? "the server closed the connection" : strerror(errno));
	return ERR_CONN;
}

/* What was received before, or else what is there, without its seal. */
int
channel_unseal(struct channel *channel, char reason[NET_REASON_MAX])
{
	unsigned char sealed[SEALED_MAX];
	size_t n;
	int rc;
	while ((rc = tls_read(channel->tls, channel->in.bytes + channel->n_in,
			      sizeof(channel->in) - channel->n_in, &n, reason)) == ERR_AGAIN) {
		rc = receive_bytes(channel, sealed, sizeof(sealed), &n, reason);
		if (rc)
			return rc;
		rc = tls_receive(channel->tls, sealed, n);
		if (rc) {
			snprintf(reason, NET_REASON_MAX, "no memory is left for TLS");
			return rc;
		}
	}
	if (rc == 0)
		channel->n_in += n;
	return rc;
}

static int
receive(struct channel *channel, char reason[NET_REASON_MAX])
{
	if (channel->tls)
		return channel_unseal(channel, reason);
	size_t n;
	int rc = receive_bytes(channel, channel->in.bytes + channel->n_in,
			       sizeof(channel->in) - channel->n_in, &n, reason);
	if (rc == 0)
		channel->n_in += n;
	return rc;
}

int
channel_next(struct channel *channel, const union channel_message **ret_message,
	     char reason[NET_REASON_MAX])
{
	int rc;
	channel->n_in -= channel->n_taken;
	memmove(channel->in.bytes, channel->in.bytes + channel->n_taken, channel->n_in);
	channel->n_taken = 0;
	while ((rc = check_front(channel, reason)) == ERR_AGAIN) {
		rc = receive(channel, reason);
		if (rc)
			return rc;
	}
	if (rc)
		return rc;
	channel->n_taken = channel->in.header.len;
	*ret_message = &channel->in;
	return 0;
}

int
channel_refusal(const struct wire_refused *refused)
{
	return refused->code < 0 && refused->code >= ERR_NOMEM ? refused->code : ERR_CORRUPT;
}
