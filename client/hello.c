/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The handshake, hello.h.
 *
 *   TCP connect . HELLO -> . <- WELCOME . shm: token -> unix socket, <- memfd . READ superblock
 *                                         verbs: token -> RDMA connection
 *                                         tcp: token -> a second connection
 *
 * A server offers verbs, or shm and tcp, [ONE-AGENT]. Where the pool cannot be mapped although this
 * is the server's host (a container), tcp serves.
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

#include "client/identity.h"
#include "common/err.h"
#include "common/fabric_shm.h"
#include "common/fabric_tcp.h"
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
	    !is_terminated(w->verbs_address, sizeof(w->verbs_address)) ||
	    !is_terminated(w->tcp_address, sizeof(w->tcp_address)))
		wrong = "an address without an end";
	else if (w->n_regions != 1)
		wrong = "another number of regions than one";
	else if (w->access < WIRE_ACCESS_READ || w->access > WIRE_ACCESS_ADMIN)
		wrong = "a role that is not known";
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

/* The answer to a request: of a type, or else a failure. */
static int
await_answer(struct channel *channel, uint32_t request, int64_t deadline_ns,
	     const union channel_message **ret_message, char reason[NET_REASON_MAX])
{
	const union channel_message *message;
	int rc = await(channel, deadline_ns, &message, reason);
	if (rc)
		return rc;
	if (message->header.type == WIRE_REFUSED) {
		net_copy_text(reason, NET_REASON_MAX, message->refused.reason,
			      sizeof(message->refused.reason));
		return channel_refusal(&message->refused);
	}
	if (message->header.request != request ||
	    (message->header.type != WIRE_WELCOME && message->header.type != WIRE_CHALLENGE)) {
		snprintf(reason, NET_REASON_MAX,
			 "the server answered the hello with something else");
		return ERR_CORRUPT;
	}
	*ret_message = message;
	return 0;
}

/* Sends a message; the socket is new: it takes one of this size at once. Then its answer. */
static int
ask(struct channel *channel, void *message, size_t len, enum wire_type type, int64_t deadline_ns,
    const union channel_message **ret_answer, char reason[NET_REASON_MAX])
{
	uint32_t request = channel_request(channel);
	if (channel_send(channel, message, len, type, request)) {
		snprintf(reason, NET_REASON_MAX, "the server closed the connection");
		return ERR_CONN;
	}
	return await_answer(channel, request, deadline_ns, ret_answer, reason);
}

static int
answer_challenge(struct identity *identity, const struct wire_hello *hello, struct channel *channel,
		 int64_t deadline_ns, const union channel_message **message,
		 char reason[NET_REASON_MAX])
{
	struct wire_proof proof = {0};
	int rc = identity_prove(identity, hello, &(*message)->challenge, channel, &proof, reason);
	if (!rc)
		rc = ask(channel, &proof, sizeof(proof), WIRE_PROOF, deadline_ns, message, reason);
	if (!rc && (*message)->header.type != WIRE_WELCOME) {
		snprintf(reason, NET_REASON_MAX, "the server is not content with one proof");
		rc = ERR_CORRUPT;
	}
	return rc;
}

static int
exchange(struct rkv_client *client, struct channel *channel,
	 const unsigned char boot_id[WIRE_BOOT_ID_LEN], int64_t deadline_ns,
	 struct wire_welcome *ret_welcome, char reason[NET_REASON_MAX])
{
	struct wire_hello hello = {.sizes = wire_sizes_own(), .role = WIRE_ROLE_CLIENT};
	const union channel_message *message;
	struct identity identity;
	memcpy(hello.boot_id, boot_id, sizeof(hello.boot_id));
	int rc = identity_introduce(&identity, client, &hello, reason);
	if (!rc)
		rc = ask(channel, &hello, sizeof(hello), WIRE_HELLO, deadline_ns, &message, reason);
	if (!rc && message->header.type == WIRE_CHALLENGE)
		rc = answer_challenge(&identity, &hello, channel, deadline_ns, &message, reason);
	if (!rc)
		rc = identity_check(&identity, &message->welcome, reason);
	if (!rc)
		rc = check_welcome(&message->welcome, reason);
	if (!rc)
		*ret_welcome = message->welcome;
	identity_end(&identity);
	return rc;
}

/* ---- The region ---- */

/* While the fabric works for a hello, in the hello's thread: where its complaint goes to. */
static _Thread_local char *hearing;

/* The log of the verbs and tcp fabrics, which know causes and remedies. */
static void
hear(void *arg, int level, const char *line)
{
	struct rkv_client *client = arg;
	if (hearing && !hearing[0] && level <= LOG_WARN)
		snprintf(hearing, NET_REASON_MAX, "%s", line);
	else
		log_line(&client->log, (enum log_level)level, "%s", line);
}

/* In the order of preference. */
enum kind { KIND_VERBS, KIND_SHM, KIND_TCP, KINDS };

static const struct kind_row {
	const char *name;
	uint32_t option; /* enum rkv_fabric */
} kind_rows[KINDS] = {
	[KIND_VERBS] = {"verbs", RKV_FABRIC_VERBS},
	[KIND_SHM] = {"shm", RKV_FABRIC_SHM},
	[KIND_TCP] = {"tcp", RKV_FABRIC_TCP},
};

/* What the server has said, and where: in a hello. */
struct offered {
	const struct wire_welcome *welcome;
	bool has[KINDS];
	char tcp_address[LIMIT_ADDRESS_MAX];
};

/* Data connections go to the control port, unless the server says something else. */
static int
find_tcp_address(const struct wire_welcome *w, int fd, char ret_text[LIMIT_ADDRESS_MAX],
		 char reason[NET_REASON_MAX])
{
	struct net_address peer;
	static_assert(LIMIT_ADDRESS_MAX == NET_TEXT_MAX, "addresses");
	if (strcmp(w->tcp_address, WIRE_TCP_HERE) != 0) {
		memcpy(ret_text, w->tcp_address, sizeof(w->tcp_address));
		return 0;
	}
	int rc = net_peer(fd, &peer);
	if (rc)
		snprintf(reason, NET_REASON_MAX, "the server closed the connection");
	else
		net_format(&peer, ret_text);
	return rc;
}

static int
look_at_offer(const struct wire_welcome *w, const unsigned char boot_id[WIRE_BOOT_ID_LEN], int fd,
	      struct offered *ret_offered, char reason[NET_REASON_MAX])
{
	bool is_verbs = w->verbs_address[0] != '\0'; /* alone, [ONE-AGENT] */
	bool is_here = memcmp(w->boot_id, boot_id, sizeof(w->boot_id)) == 0;
	*ret_offered = (struct offered){.welcome = w};
	ret_offered->has[KIND_VERBS] = is_verbs;
	ret_offered->has[KIND_SHM] = !is_verbs && is_here && w->unix_path[0];
	ret_offered->has[KIND_TCP] = !is_verbs && w->tcp_address[0];
	return find_tcp_address(w, fd, ret_offered->tcp_address, reason);
}

/* Has the caller, or an earlier hello, decided for another one? */
static bool
is_ruled_out(const struct rkv_client *client, enum kind kind)
{
	uint32_t option = client->options.fabric;
	if (option != RKV_FABRIC_AUTO && option != kind_rows[kind].option)
		return true;
	return client->fab && strcmp(client->fab->driver->name, kind_rows[kind].name) != 0;
}

/* The first one from `from` on that is offered and may be used; KINDS: none. */
static enum kind
next_kind(const struct rkv_client *client, const struct offered *offered, enum kind from)
{
	for (enum kind kind = from; kind < KINDS; kind++)
		if (offered->has[kind] && !is_ruled_out(client, kind))
			return kind;
	return KINDS;
}

static int
explain_no_kind(const struct rkv_client *client, const struct offered *offered,
		char reason[NET_REASON_MAX])
{
	char names[64] = "";
	const char *wanted = "";
	for (enum kind kind = 0; kind < KINDS; kind++) {
		if (offered->has[kind])
			snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s",
				 names[0] ? " and " : "", kind_rows[kind].name);
		if (kind_rows[kind].option == client->options.fabric)
			wanted = kind_rows[kind].name;
	}
	if (!names[0])
		snprintf(reason, NET_REASON_MAX,
			 "the server is on another machine, and its pool can be mapped on its own "
			 "host only: start kv-server with --fabric soft, tcp or verbs");
	else if (client->fab)
		snprintf(reason, NET_REASON_MAX,
			 "the server has come back with fabric %s, and this client was opened with "
			 "%s: close it and open it again",
			 names, client->fab->driver->name);
	else
		snprintf(reason, NET_REASON_MAX,
			 "fabric %s is asked for, and the server offers only %s here: choose that, "
			 "or start kv-server with --fabric %s",
			 wanted, names, wanted);
	return client->fab ? ERR_VERSION : ERR_CONN;
}

/* The fabric stays the one the client was opened with: sessions have memory registered there. */
static int
open_fabric(struct rkv_client *client, enum kind kind, char reason[NET_REASON_MAX])
{
	int rc = 0;
	if (client->fab)
		return 0;
	client->fabric_log = (struct log){.sink = hear, .arg = client, .max_level = LOG_DEBUG};
	switch (kind) {
	case KIND_VERBS:
		rc = verbs_open_fabric(&client->fabric_log, &client->fab);
		break;
	case KIND_TCP:
		rc = tcp_open_fabric(&client->fabric_log, &client->fab);
		break;
	default:
		rc = shm_open_fabric(&client->fab);
	}
	if (rc && !reason[0])
		snprintf(reason, NET_REASON_MAX, "no memory is left to open the fabric");
	return rc;
}

/* These fabrics have said it, and reason is set, unless they did their part. */
static void
explain_connected(int rc, const char *address, char reason[NET_REASON_MAX])
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
explain_region(int rc, enum kind kind, const struct offered *offered, char reason[NET_REASON_MAX])
{
	const struct wire_welcome *w = offered->welcome;
	const char *place = kind == KIND_VERBS ? w->verbs_address
			    : kind == KIND_TCP ? offered->tcp_address
					       : w->unix_path;
	char text[LIMIT_ADDRESS_MAX];
	net_copy_text(text, sizeof(text), place, strlen(place));
	if (kind == KIND_SHM)
		explain_shm(rc, text, w->region[0].len, reason);
	else
		explain_connected(rc, text, reason);
}

static int
open_region(struct rkv_client *client, enum kind kind, const struct offered *offered,
	    int64_t deadline_ns, struct fab_region **ret_region, char reason[NET_REASON_MAX])
{
	const struct wire_welcome *w = offered->welcome;
	const struct wire_region *r = &w->region[0];
	struct fab_offer offer = {
		.region_id = r->region_id,
		.epoch = r->epoch,
		.base = r->base,
		.len = r->len,
		.r_key = r->r_key,
		.only_reads = w->access == WIRE_ACCESS_READ,
	};
	static_assert(sizeof(offer.unix_path) == sizeof(w->unix_path), "paths");
	static_assert(sizeof(offer.verbs_address) == sizeof(w->verbs_address), "addresses");
	static_assert(sizeof(offer.token) == sizeof(w->token), "tokens");
	memcpy(offer.unix_path, w->unix_path, sizeof(offer.unix_path));
	memcpy(offer.verbs_address, w->verbs_address, sizeof(offer.verbs_address));
	static_assert(sizeof(offer.tcp_address) == sizeof(offered->tcp_address), "addresses");
	memcpy(offer.tcp_address, offered->tcp_address, sizeof(offer.tcp_address));
	memcpy(offer.token, w->token, sizeof(offer.token));
	int rc = fab_region_open(client->fab, &offer, deadline_ns, ret_region);
	if (rc)
		explain_region(rc, kind, offered, reason);
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

static int
read_superblock(struct fab_region *region, enum kind kind, const struct offered *offered,
		int64_t deadline_ns, struct layout *ret_layout, char reason[NET_REASON_MAX])
{
	/* A mapping of its own: registered memory is page-aligned and shares no page. */
	void *page =
		mmap(NULL, LAYOUT_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int rc = page == MAP_FAILED ? ERR_NOMEM : read_page(region, page, deadline_ns);
	if (rc && kind == KIND_SHM)
		snprintf(reason, NET_REASON_MAX, "cannot read the superblock of the pool");
	else if (rc) /* this is where the first connection is made */
		explain_region(rc, kind, offered, reason);
	else
		rc = check_superblock(page, &offered->welcome->region[0], ret_layout, reason);
	if (page != MAP_FAILED)
		munmap(page, LAYOUT_PAGE);
	return rc;
}

/* On failure the fabric is open, or not, as it was before. */
static int
reach_by(struct rkv_client *client, enum kind kind, const struct offered *offered,
	 int64_t deadline_ns, struct hello *hello, char reason[NET_REASON_MAX])
{
	bool was_open = client->fab != NULL;
	reason[0] = '\0';
	hearing = reason;
	int rc = open_fabric(client, kind, reason);
	if (!rc)
		rc = open_region(client, kind, offered, deadline_ns, &hello->region, reason);
	if (!rc)
		rc = read_superblock(hello->region, kind, offered, deadline_ns, &hello->layout,
				     reason);
	hearing = NULL;
	if (!rc)
		return 0;
	fab_region_close(hello->region);
	hello->region = NULL;
	if (!was_open) {
		fab_close(client->fab);
		client->fab = NULL;
	}
	return rc;
}

/* Over the first fabric that leads there. Another one is tried only if there is no way over it. */
static int
reach(struct rkv_client *client, const struct offered *offered, int64_t deadline_ns,
      struct hello *hello, char reason[NET_REASON_MAX])
{
	char why[NET_REASON_MAX];
	enum kind kind = next_kind(client, offered, 0);
	if (kind == KINDS)
		return explain_no_kind(client, offered, reason);
	int rc = reach_by(client, kind, offered, deadline_ns, hello, reason);
	if (rc != ERR_CONN && rc != ERR_PERM)
		return rc;
	enum kind other = next_kind(client, offered, kind + 1);
	if (other == KINDS)
		return rc;
	memcpy(why, reason, sizeof(why));
	log_line(&client->log, LOG_INFO, "fabric %s, as over %s there is no way: %s",
		 kind_rows[other].name, kind_rows[kind].name, why);
	rc = reach_by(client, other, offered, deadline_ns, hello, reason);
	if (rc)
		log_line(&client->log, LOG_WARN, "neither over %s: %s", kind_rows[kind].name, why);
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
	struct offered offered;
	unsigned char boot_id[WIRE_BOOT_ID_LEN];
	static_assert(WIRE_BOOT_ID_LEN == NET_BOOT_ID_LEN, "boot ids");
	int rc = net_boot_id(boot_id);
	if (rc) {
		snprintf(reason, NET_REASON_MAX, "%s", NET_BOOT_ID_REMEDY);
		return rc;
	}
	rc = exchange(client, channel, boot_id, deadline_ns, &w, reason);
	if (!rc)
		rc = look_at_offer(&w, boot_id, channel->fd, &offered, reason);
	if (!rc)
		rc = reach(client, &offered, deadline_ns, &hello, reason);
	if (rc)
		return rc;
	hello.region_id = w.region[0].region_id;
	hello.epoch = w.region[0].epoch;
	hello.stamp = w.stamp;
	hello.is_read_only = w.access == WIRE_ACCESS_READ;
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
	rc = identity_secure(client, channel, deadline_ns, why);
	if (!rc)
		rc = shake_hands(client, channel, deadline_ns, ret_hello, why);
	if (rc) {
		channel_close(channel);
		size_t room = NET_REASON_MAX - sizeof(": ") - strlen(client->server_text);
		snprintf(reason, NET_REASON_MAX, "%s: %.*s", client->server_text, (int)room, why);
	}
	return rc;
}
