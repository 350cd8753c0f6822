/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client's way in: WELCOME, what the unix socket hands out, the superblock, and messages that
 * follow. All is as a good server has it, changed where the input is not 0: flags, the welcome, the
 * superblock, a challenge and the server's proof, then what is said instead of the pool
 * (FLAG_OTHER_POOL), or behind the welcome.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/hello.h"
#include "client/channel.h"
#include "client/client.h"
#include "common/auth.h"
#include "common/clock.h"
#include "tests/fuzz/host.h"

#define WAIT_NS (20 * CLOCK_NS_PER_MS)

enum {
	FLAG_UNSIGNED = 1,   /* the superblock's checksum is not put right */
	FLAG_OTHER_POOL = 2, /* the unix socket hands out something else */
	FLAG_FD = 4,         /* with a file descriptor */
	FLAG_SEALED = 8,     /* of a sealed file */
	FLAG_TENANT = 16,    /* the client is one, and is challenged */
	FLAG_LIAR = 32,      /* by somebody whose proof is changed by the input */
};

/* Who the client is, in a file, and what it makes its nonce of. */
#define TENANT "app"
#define SECRET "0123456789abcdef0123456789abcdef"

bool __wrap_auth_nonce(unsigned char nonce[WIRE_NONCE_LEN]); /* for linking */

bool
__wrap_auth_nonce(unsigned char nonce[WIRE_NONCE_LEN])
{
	memset(nonce, 'n', WIRE_NONCE_LEN);
	return true;
}

static void
put_superblock(struct fuzz_input *in, uint8_t flags)
{
	struct layout_superblock *sb = host_superblock();
	fuzz_change(in, sb, offsetof(struct layout_superblock, checksum));
	if (!(flags & FLAG_UNSIGNED))
		sb->checksum = layout_superblock_checksum(sb);
}

/* The HELLO as the client says it. */
static struct wire_hello
clients_hello(void)
{
	struct wire_hello hello = {
		.header = {WIRE_MAGIC, WIRE_VERSION, WIRE_HELLO, sizeof(hello), HOST_ANSWER_TO},
		.sizes = wire_sizes_own(),
		.role = WIRE_ROLE_CLIENT,
		.tenant = TENANT,
	};
	fuzz_must(net_boot_id(hello.boot_id) == 0);
	(void)__wrap_auth_nonce(hello.nonce);
	return hello;
}

/* A challenge, and then the proof of who knows the secret, perhaps with some bits changed. */
static void
challenge(struct fuzz_input *in, struct wire_welcome *welcome)
{
	struct secret secret = {.len = sizeof(SECRET) - 1};
	struct auth_said said = {.hello = clients_hello()};
	struct wire_challenge ask = {
		.header = {WIRE_MAGIC, WIRE_VERSION, WIRE_CHALLENGE, sizeof(ask), HOST_ANSWER_TO}};
	memcpy(secret.bytes, SECRET, secret.len);
	fuzz_change(in, &ask, sizeof(ask));
	said.challenge = ask;
	welcome->header.request++;
	fuzz_must(auth_server_proof(&secret, &said, welcome, welcome->proof));
	fuzz_sockets_say(&fuzz_tcp, &ask, sizeof(ask));
}

/* One message with some bytes, and perhaps a file of some length. */
static void
hand_out_other(struct fuzz_input *in, uint8_t flags)
{
	uint64_t body[2];
	size_t len = fuzz_take(in, body, 1 + fuzz_byte(in) % sizeof(body));
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {.iov_base = body, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	int fd = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	fuzz_must(fd >= 0 && ftruncate(fd, (off_t)fuzz_byte(in) * LAYOUT_PAGE * 2) == 0);
	if (flags & FLAG_SEALED)
		fuzz_must(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
	if (flags & FLAG_FD) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof(control.bytes);
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	}
	if (len)
		(void)!sendmsg(fuzz_unix.far, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	close(fd);
}

/* Returns whether the server has proved itself, if it has to. */
static bool
serve(struct fuzz_input *in, uint8_t flags)
{
	struct wire_welcome w = host_welcome();
	fuzz_change(in, &w, sizeof(w));
	put_superblock(in, flags);
	fuzz_sockets_make(&fuzz_tcp);
	fuzz_sockets_make(&fuzz_unix);
	unsigned char right[WIRE_PROOF_LEN];
	if (flags & FLAG_TENANT)
		challenge(in, &w);
	memcpy(right, w.proof, sizeof(right));
	if (flags & FLAG_LIAR)
		fuzz_change(in, w.proof, sizeof(w.proof));
	fuzz_sockets_say(&fuzz_tcp, &w, sizeof(w));
	if (flags & FLAG_OTHER_POOL)
		hand_out_other(in, flags);
	else
		host_hand_out();
	if (in->len)
		fuzz_sockets_say(&fuzz_tcp, in->at, in->len);
	fuzz_sockets_hang_up(&fuzz_tcp);
	fuzz_sockets_hang_up(&fuzz_unix);
	return memcmp(right, w.proof, sizeof(right)) == 0;
}

static void
read_on(struct channel *channel)
{
	const union channel_message *message;
	char reason[NET_REASON_MAX] = "", text[64];
	int rc;
	while ((rc = channel_next(channel, &message, reason)) == 0) {
		fuzz_must(message->header.len <= LIMIT_MESSAGE_MAX);
		if (message->header.type != WIRE_REFUSED)
			continue;
		net_copy_text(text, sizeof(text), message->refused.reason,
			      sizeof(message->refused.reason));
		fuzz_must(strlen(text) < sizeof(text) && channel_refusal(&message->refused) < 0);
	}
	fuzz_must(rc < 0 && reason[0]);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	struct rkv_client *client = calloc(1, sizeof(*client));
	struct channel *channel = calloc(1, sizeof(*channel));
	struct hello hello;
	char reason[NET_REASON_MAX] = "";
	fuzz_must(client && channel);
	uint8_t flags = fuzz_byte(&in);
	bool is_proven = serve(&in, flags);
	client->log = fuzz_log;
	if (flags & FLAG_TENANT) {
		client->options.tenant = TENANT;
		client->options.secret_file = fuzz_file(SECRET, sizeof(SECRET) - 1);
	}
	snprintf(client->server_text, sizeof(client->server_text), "fuzz:1");
	if (hello_connect(client, channel, clock_now_ns() + WAIT_NS, &hello, reason) == 0) {
		fuzz_must(hello.layout.region_len == LIMIT_REGION_MIN);
		fuzz_must(is_proven || !(flags & FLAG_TENANT));
		read_on(channel);
		channel_close(channel);
		fab_region_close(hello.region);
	} else {
		fuzz_must(reason[0] && memchr(reason, '\0', sizeof(reason)));
	}
	fuzz_sockets_close(&fuzz_tcp);
	fuzz_sockets_close(&fuzz_unix);
	fab_close(client->fab);
	free(channel);
	free(client);
	return 0;
}
