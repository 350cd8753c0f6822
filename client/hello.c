/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The handshake, hello.h.
 *
 *   TCP connect . HELLO -> . <- WELCOME . shm: token -> unix socket, <- memfd . READ superblock
 *                                         verbs: token -> RDMA connection
 *
 * A server offers one of the two, [ONE-AGENT].
 *
 * The WELCOME and the superblock say the same things twice, once from the server's memory and once
 * from the region's: both must agree, or what was reached is not what was offered.
 */
#include "client/hello.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/err.h"
#include "common/fabric_shm.h"
#include "common/fabric_verbs.h"

/* ---- The message ---- */

static int
check_sizes(const struct wire_sizes *theirs, char reason[NET_REASON_MAX])
{
	struct wire_difference d = wire_sizes_compare(theirs);
	if (!d.name)
		return 0;
	snprintf(reason, NET_REASON_MAX,
		 "the server's %s is %u, this client's is %u: use programs and library of one "
		 "release",
		 d.name, d.theirs, d.ours);
	return ERR_VERSION;
}

static bool
is_terminated(const char *field, size_t len)
{
	return strnlen(field, len) < len;
}

static int
check_welcome(const struct wire_welcome *w, char reason[NET_REASON_MAX])
{
	int rc = check_sizes(&w->sizes, reason);
	if (rc)
		return rc;
	const char *wrong = NULL;
	if (!is_terminated(w->unix_path, sizeof(w->unix_path)) ||
	    !is_terminated(w->verbs_address, sizeof(w->verbs_address)))
		wrong = "an address without an end";
	else if (w->n_regions != 1)
		wrong = "another number of regions than one";
	else if (w->region[0].len < LIMIT_REGION_MIN || w->region[0].len > LIMIT_REGION_MAX)
		wrong = "a region of impossible length";
	if (!wrong)
		return 0;
	snprintf(reason, NET_REASON_MAX, "the server's welcome has %s", wrong);
	return ERR_CORRUPT;
}

/* Waits for the first message. */
static int
await(struct channel *channel, int64_t deadline_ns, const union channel_message **ret_message,
      char reason[NET_REASON_MAX])
{
	int rc;
	while ((rc = channel_next(channel, ret_message, reason)) == ERR_AGAIN) {
		rc = net_wait(channel->fd, POLLIN, deadline_ns);
		if (rc == ERR_TIMEOUT)
			snprintf(reason, NET_REASON_MAX,
				 "connected, but the server did not answer the hello in time");
		else if (rc)
			snprintf(reason, NET_REASON_MAX, "cannot wait for the server's answer");
		if (rc)
			return rc;
	}
	return rc;
}

static int
exchange(struct channel *channel, const unsigned char boot_id[WIRE_BOOT_ID_LEN],
	 int64_t deadline_ns, struct wire_welcome *ret_welcome, char reason[NET_REASON_MAX])
{
	struct wire_hello hello = {.sizes = wire_sizes_own(), .role = WIRE_ROLE_CLIENT};
	const union channel_message *message;
	uint32_t request = channel_request(channel);
	memcpy(hello.boot_id, boot_id, sizeof(hello.boot_id));
	/* The socket is new: it takes a message of this size at once. */
	if (channel_send(channel, &hello, sizeof(hello), WIRE_HELLO, request)) {
		snprintf(reason, NET_REASON_MAX, "the server closed the connection");
		return ERR_CONN;
	}
	int rc = await(channel, deadline_ns, &message, reason);
	if (rc)
		return rc;
	if (message->header.type == WIRE_REFUSED) {
		channel_text(reason, NET_REASON_MAX, message->refused.reason,
			     sizeof(message->refused.reason));
		return channel_refusal(&message->refused);
	}
	if (message->header.type != WIRE_WELCOME || message->header.request != request) {
		snprintf(reason, NET_REASON_MAX,
			 "the server answered the hello with something else");
		return ERR_CORRUPT;
	}
	rc = check_welcome(&message->welcome, reason);
	if (!rc)
		*ret_welcome = message->welcome;
	return rc;
}

/* ---- The region ---- */

/* While the fabric works for a hello, in the hello's thread: where its complaint goes to. */
static _Thread_local char *hearing;

/* The log of the verbs fabric, which knows causes and remedies. */
static void
hear(void *arg, int level, const char *line)
{
	struct rkv_client *client = arg;
	if (hearing && !hearing[0] && level <= LOG_WARN)
		snprintf(hearing, NET_REASON_MAX, "%s", line);
	else
		log_line(&client->log, (enum log_level)level, "%s", line);
}

enum kind { KIND_NONE, KIND_SHM, KIND_VERBS };

static const char *const kind_names[] = {[KIND_SHM] = "shm", [KIND_VERBS] = "verbs"};

/* How the server can be reached from here. */
static enum kind
kind_of(const struct wire_welcome *w, const unsigned char boot_id[WIRE_BOOT_ID_LEN])
{
	if (w->verbs_address[0])
		return KIND_VERBS;
	if (w->unix_path[0] && memcmp(w->boot_id, boot_id, sizeof(w->boot_id)) == 0)
		return KIND_SHM;
	return KIND_NONE;
}

/* The fabric stays the one the client was opened with: sessions have memory registered there. */
static int
open_fabric(struct rkv_client *client, enum kind kind, char reason[NET_REASON_MAX])
{
	if (kind == KIND_NONE) {
		snprintf(reason, NET_REASON_MAX,
			 "the server is on another machine and offers no RDMA device (kv-server "
			 "--fabric verbs), and its pool can be mapped on its own host only");
		return ERR_CONN;
	}
	if (client->fab && strcmp(client->fab->driver->name, kind_names[kind]) != 0) {
		snprintf(reason, NET_REASON_MAX,
			 "the server has come back with fabric %s, and this client was opened with "
			 "%s: close it and open it again",
			 kind_names[kind], client->fab->driver->name);
		return ERR_VERSION;
	}
	if (client->fab)
		return 0;
	client->fabric_log = (struct log){.sink = hear, .arg = client, .max_level = LOG_DEBUG};
	int rc = kind == KIND_VERBS ? verbs_open_fabric(&client->fabric_log, &client->fab)
				    : shm_open_fabric(&client->fab);
	if (rc)
		snprintf(reason, NET_REASON_MAX, "no memory is left to open the fabric");
	return rc;
}

/* The verbs fabric has said it, and reason is set, unless it did its part. */
static void
explain_verbs(int rc, const char *address, char reason[NET_REASON_MAX])
{
	if (!reason[0])
		snprintf(reason, NET_REASON_MAX, "cannot read the superblock of the pool at %s%s",
			 address, rc == ERR_TIMEOUT ? " in time" : "");
}

/* What fab_region_open returned, as a sentence. */
static void
explain_shm(int rc, const char *path, uint64_t len, char reason[NET_REASON_MAX])
{
	switch (rc) {
	case ERR_AGAIN:
		snprintf(reason, NET_REASON_MAX,
			 "the server has no file descriptor left (its RLIMIT_NOFILE): try again "
			 "later, or raise it");
		break;
	case ERR_NOMEM:
		snprintf(reason, NET_REASON_MAX,
			 "this process cannot take the pool: raise its limit of open files (ulimit "
			 "-n) or, for a pool of %" PRIu64 " MiB, of memory (ulimit -v)",
			 len >> 20);
		break;
	case ERR_TIMEOUT:
		snprintf(reason, NET_REASON_MAX, "the unix socket %s did not answer in time", path);
		break;
	case ERR_PERM:
		snprintf(reason, NET_REASON_MAX,
			 "no permission for the unix socket %s or its directory", path);
		break;
	case ERR_CORRUPT:
		snprintf(reason, NET_REASON_MAX, "what the unix socket %s sent is no pool", path);
		break;
	default:
		snprintf(reason, NET_REASON_MAX,
			 "cannot get the pool from the unix socket %s: containers have to share "
			 "%s with the server",
			 path, path[0] == '@' ? "the network namespace" : "its directory");
	}
}

/* What the server wrote is shown as far as it can be. */
static void
explain_region(int rc, const struct wire_welcome *w, char reason[NET_REASON_MAX])
{
	char text[LIMIT_PATH_MAX];
	bool is_verbs = w->verbs_address[0] != '\0';
	channel_text(text, sizeof(text), is_verbs ? w->verbs_address : w->unix_path,
		     is_verbs ? sizeof(w->verbs_address) : sizeof(w->unix_path));
	if (is_verbs)
		explain_verbs(rc, text, reason);
	else
		explain_shm(rc, text, w->region[0].len, reason);
}

static int
open_region(struct rkv_client *client, const struct wire_welcome *w, int64_t deadline_ns,
	    struct fab_region **ret_region, char reason[NET_REASON_MAX])
{
	const struct wire_region *r = &w->region[0];
	struct fab_offer offer = {
		.region_id = r->region_id,
		.epoch = r->epoch,
		.base = r->base,
		.len = r->len,
		.r_key = r->r_key,
	};
	static_assert(sizeof(offer.unix_path) == sizeof(w->unix_path), "paths");
	static_assert(sizeof(offer.verbs_address) == sizeof(w->verbs_address), "addresses");
	static_assert(sizeof(offer.token) == sizeof(w->token), "tokens");
	memcpy(offer.unix_path, w->unix_path, sizeof(offer.unix_path));
	memcpy(offer.verbs_address, w->verbs_address, sizeof(offer.verbs_address));
	memcpy(offer.token, w->token, sizeof(offer.token));
	int rc = fab_region_open(client->fab, &offer, deadline_ns, ret_region);
	if (rc)
		explain_region(rc, w, reason);
	return rc == ERR_AGAIN ? ERR_NOMEM : rc;
}

/* Posts one READ and waits for it. Its memory is the caller's again when the endpoint is gone. */
static int
read_page(struct fab_region *region, void *page, int64_t deadline_ns)
{
	struct fab_endpoint *ep = NULL;
	struct fab_done done;
	struct fab_op op = {.kind = FAB_READ, .piece = {{.local = page, .len = LAYOUT_PAGE}}};
	int rc = fab_register(region->fab, page, LAYOUT_PAGE, &op.piece[0].key);
	if (rc)
		return rc;
	rc = fab_connect(region, NULL, 1, deadline_ns, &ep);
	if (!rc)
		rc = fab_post(ep, &op, 1, NULL);
	while (!rc && fab_poll(ep, &done, 1) == 0) {
		if (fab_now(region->fab) >= deadline_ns)
			rc = ERR_TIMEOUT;
		else
			fab_wait(ep, deadline_ns);
	}
	fab_disconnect(ep);
	fab_deregister(region->fab, op.piece[0].key);
	return rc ? rc : done.status;
}

static int
check_superblock(const struct layout_superblock *sb, const struct wire_region *offered,
		 struct layout *ret_layout, char reason[NET_REASON_MAX])
{
	struct layout layout;
	const char *wrong = layout_from_superblock(&layout, sb);
	if (!wrong && (sb->region_id != offered->region_id || sb->epoch != offered->epoch))
		wrong = "the region reached is another one than the server's hello offered";
	else if (!wrong && layout.region_len != offered->len)
		wrong = "the region's length differs between the server's hello and the superblock";
	if (!wrong) {
		*ret_layout = layout;
		return 0;
	}
	snprintf(reason, NET_REASON_MAX, "%s", wrong);
	return ERR_CORRUPT;
}

/* Over verbs this is where the first connection is made. */
static void
explain_read(int rc, const struct wire_welcome *w, char reason[NET_REASON_MAX])
{
	if (w->verbs_address[0])
		explain_region(rc, w, reason);
	else
		snprintf(reason, NET_REASON_MAX, "cannot read the superblock of the pool");
}

static int
read_superblock(struct fab_region *region, const struct wire_welcome *w, int64_t deadline_ns,
		struct layout *ret_layout, char reason[NET_REASON_MAX])
{
	/* A mapping of its own: registered memory is page-aligned and shares no page. */
	void *page =
		mmap(NULL, LAYOUT_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int rc = page == MAP_FAILED ? ERR_NOMEM : read_page(region, page, deadline_ns);
	if (rc)
		explain_read(rc, w, reason);
	else
		rc = check_superblock(page, &w->region[0], ret_layout, reason);
	if (page != MAP_FAILED)
		munmap(page, LAYOUT_PAGE);
	return rc;
}

/* ---- All of it ---- */

/* On a connected channel. */
static int
shake_hands(struct rkv_client *client, struct channel *channel, int64_t deadline_ns,
	    struct hello *ret_hello, char reason[NET_REASON_MAX])
{
	struct hello hello = {0};
	struct wire_welcome w;
	unsigned char boot_id[WIRE_BOOT_ID_LEN];
	static_assert(WIRE_BOOT_ID_LEN == NET_BOOT_ID_LEN, "boot ids");
	int rc = net_boot_id(boot_id);
	if (rc) {
		snprintf(reason, NET_REASON_MAX, "%s", NET_BOOT_ID_REMEDY);
		return rc;
	}
	rc = exchange(channel, boot_id, deadline_ns, &w, reason);
	if (!rc)
		rc = open_fabric(client, kind_of(&w, boot_id), reason);
	if (!rc)
		reason[0] = '\0';
	hearing = reason;
	if (!rc)
		rc = open_region(client, &w, deadline_ns, &hello.region, reason);
	if (!rc)
		rc = read_superblock(hello.region, &w, deadline_ns, &hello.layout, reason);
	hearing = NULL;
	if (rc) {
		fab_region_close(hello.region);
		return rc;
	}
	hello.region_id = w.region[0].region_id;
	hello.epoch = w.region[0].epoch;
	hello.stamp = w.stamp;
	*ret_hello = hello;
	return 0;
}

int
hello_connect(struct rkv_client *client, struct channel *channel, int64_t deadline_ns,
	      struct hello *ret_hello, char reason[NET_REASON_MAX])
{
	char why[NET_REASON_MAX];
	int fd;
	int rc = net_connect(&client->server, deadline_ns, &fd, reason);
	if (rc)
		return rc;
	channel_start(channel, fd);
	rc = shake_hands(client, channel, deadline_ns, ret_hello, why);
	if (rc) {
		channel_close(channel);
		size_t room = NET_REASON_MAX - sizeof(": ") - strlen(client->server_text);
		snprintf(reason, NET_REASON_MAX, "%s: %.*s", client->server_text, (int)room, why);
	}
	return rc;
}
