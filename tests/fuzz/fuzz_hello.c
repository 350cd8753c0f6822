/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client's way in: WELCOME, what the unix socket hands out, the superblock, and messages that
 * follow. All is as a good server has it, changed where the input is not 0: flags, the welcome, the
 * superblock, then what is said instead of the pool (FLAG_OTHER_POOL), or behind the welcome.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/hello.h"
#include "client/channel.h"
#include "client/client.h"
#include "common/clock.h"
#include "common/fabric_shm.h"
#include "proto/layout.h"
#include "tests/fuzz/sockets.h"

#define WAIT_NS (20 * CLOCK_NS_PER_MS)
#define ANSWER_TO UINT32_C(0x80000000) /* the first request of a channel */

enum {
	FLAG_UNSIGNED = 1,   /* the superblock's checksum is not put right */
	FLAG_OTHER_POOL = 2, /* the unix socket hands out something else */
	FLAG_FD = 4,         /* with a file descriptor */
	FLAG_SEALED = 8,     /* of a sealed file */
};

static struct pool *pool;
static struct shm_share *share;

static void
make_pool_once(void)
{
	if (pool)
		return;
	fuzz_must(pool_create(LIMIT_REGION_MIN, POOL_HUGE_NO, POOL_NODE_ANY, &fuzz_log, &pool) ==
		  0);
	fuzz_must(shm_share_create(pool, &fuzz_log, &share) == 0);
}

/* Changes len good bytes by as many of the input. */
static void
change(struct fuzz_input *in, void *good, size_t len)
{
	unsigned char *bytes = good, by[sizeof(struct wire_welcome)];
	fuzz_must(len <= sizeof(by));
	fuzz_take(in, by, len);
	for (size_t i = 0; i < len; i++)
		bytes[i] ^= by[i];
}

static struct wire_welcome
good_welcome(void)
{
	struct wire_welcome w = {
		.header = {.magic = WIRE_MAGIC,
			   .version = WIRE_VERSION,
			   .type = WIRE_WELCOME,
			   .len = sizeof(w),
			   .request = ANSWER_TO},
		.sizes = wire_sizes_own(),
		.n_regions = 1,
		.access = WIRE_ACCESS_ADMIN,
		.unix_path = "@fuzz",
		.region = {{.region_id = 7, .epoch = 1, .len = LIMIT_REGION_MIN}},
	};
	fuzz_must(net_boot_id(w.boot_id) == 0);
	return w;
}

static void
put_superblock(struct fuzz_input *in, uint8_t flags)
{
	struct layout layout;
	struct layout_superblock *sb = pool_base(pool);
	fuzz_must(layout_plan(&layout, LIMIT_REGION_MIN, 0, 0));
	memset(sb, 0, sizeof(*sb));
	sb->region_id = 7;
	sb->epoch = 1;
	layout_to_superblock(&layout, sb);
	change(in, sb, offsetof(struct layout_superblock, checksum));
	if (!(flags & FLAG_UNSIGNED))
		sb->checksum = layout_superblock_checksum(sb);
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

static void
serve(struct fuzz_input *in)
{
	struct wire_welcome w = good_welcome();
	uint8_t flags = fuzz_byte(in);
	change(in, &w, sizeof(w));
	put_superblock(in, flags);
	fuzz_sockets_make(&fuzz_tcp);
	fuzz_sockets_make(&fuzz_unix);
	fuzz_sockets_say(&fuzz_tcp, &w, sizeof(w));
	if (flags & FLAG_OTHER_POOL)
		hand_out_other(in, flags);
	else
		(void)shm_share_send(share, fuzz_unix.far, getpid(), false);
	if (in->len)
		fuzz_sockets_say(&fuzz_tcp, in->at, in->len);
	fuzz_sockets_hang_up(&fuzz_tcp);
	fuzz_sockets_hang_up(&fuzz_unix);
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
	make_pool_once();
	serve(&in);
	client->log = fuzz_log;
	snprintf(client->server_text, sizeof(client->server_text), "fuzz:1");
	if (hello_connect(client, channel, clock_now_ns() + WAIT_NS, &hello, reason) == 0) {
		fuzz_must(hello.layout.region_len == LIMIT_REGION_MIN);
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
