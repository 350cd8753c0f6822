/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control connection (TCP): every message is a header and a fixed structure, little endian,
 * reserved fields 0. The client speaks first.
 *
 *   client                         server
 *   HELLO            ->            checks magic, versions, structure sizes
 *                    <-            CHALLENGE: only if the server knows tenants; or REFUSED
 *   PROOF            ->            the client knows its tenant's secret
 *                    <-            WELCOME: the region, how to reach it, a token, the server's own
 *                                  proof; or REFUSED
 *   JOIN             ->            a new session; names a former one that has stopped, and repeats
 *                                  the number of a JOIN whose answer was lost
 *                    <-            JOINED: session slot, serial, stamp; or REFUSED
 *   KEEPALIVE        ->            every stamp_ms: A of each session, [STAMP]
 *                    <-            STAMP: the newest stamp, G, whether chunks are short or coming
 *   RELINK           ->            the session's connection failed: destroy it, then
 *                    <-            RELINKED
 *   RENEW            ->            the session's write counter is spent
 *                    <-            RENEWED: a new serial
 *   LEAVE            ->            the session touches the region no more; answered only if refused
 *   STATS            ->
 *                    <-            STATS_TEXT: "name value" lines
 *   PING             ->
 *                    <-            PONG
 *   SNAPSHOT         ->            begins a snapshot, or asks about one
 *                    <-            SNAPSHOT_STATE
 *   FSCK             ->            what each byte of the pool is: takes a while
 *                    <-            FSCK_TEXT: "name value" lines
 */
#ifndef RKV_PROTO_WIRE_H
#define RKV_PROTO_WIRE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "proto/layout.h"
#include "proto/limits.h"

#define WIRE_MAGIC UINT32_C(0x43564b52) /* "RKVC" */
#define WIRE_VERSION 2u
#define WIRE_DEFAULT_PORT 7440

enum wire_type {
	WIRE_HELLO = 1,
	WIRE_WELCOME = 2,
	WIRE_REFUSED = 3,
	WIRE_JOIN = 4,
	WIRE_JOINED = 5,
	WIRE_KEEPALIVE = 6,
	WIRE_STAMP = 7,
	WIRE_RELINK = 8,
	WIRE_RELINKED = 9,
	WIRE_RENEW = 10,
	WIRE_RENEWED = 11,
	WIRE_LEAVE = 12,
	WIRE_STATS = 13,
	WIRE_STATS_TEXT = 14,
	WIRE_PING = 15,
	WIRE_PONG = 16,
	WIRE_SNAPSHOT = 17,
	WIRE_SNAPSHOT_STATE = 18,
	WIRE_FSCK = 19,
	WIRE_FSCK_TEXT = 20,
	WIRE_CHALLENGE = 21,
	WIRE_PROOF = 22,
};

struct wire_header {
	uint32_t magic;
	uint16_t version;
	uint16_t type;
	uint32_t len;     /* of the whole message, this header included */
	uint32_t request; /* chosen by the client, repeated in the answer */
};
static_assert(sizeof(struct wire_header) == 16, "wire header");

/* The sizes and versions that both sides must agree on. */
struct wire_sizes {
	uint32_t layout_version;
	uint32_t superblock_len;
	uint32_t bucket_len;
	uint32_t block_header_len;
	uint32_t granule;
	uint32_t tag_bits;
	uint32_t word_stamps;
	uint32_t stamp_ms;
};
static_assert(sizeof(struct wire_sizes) == 32, "wire sizes");

#define WIRE_SIZE_COUNT (sizeof(struct wire_sizes) / sizeof(uint32_t))

static inline struct wire_sizes
wire_sizes_own(void)
{
	return (struct wire_sizes){
		.layout_version = LAYOUT_VERSION,
		.superblock_len = sizeof(struct layout_superblock),
		.bucket_len = LAYOUT_BUCKET_LEN,
		.block_header_len = BLOCK_HEADER_LEN,
		.granule = LIMIT_GRANULE,
		.tag_bits = LIMIT_TAG_BITS,
		.word_stamps = LIMIT_WORD_STAMPS,
		.stamp_ms = LIMIT_STAMP_MS,
	};
}

/* A size in which two sides differ; name NULL: they agree. */
struct wire_difference {
	const char *name;
	uint32_t theirs;
	uint32_t ours;
};

static inline struct wire_difference
wire_sizes_compare(const struct wire_sizes *theirs)
{
	static const char *const name[WIRE_SIZE_COUNT] = {
		"layout version",      "superblock length",    "bucket length",
		"block header length", "granule length",       "number of tag bits",
		"word age in stamps",  "stamp interval in ms",
	};
	struct wire_sizes own = wire_sizes_own();
	uint32_t a[WIRE_SIZE_COUNT], b[WIRE_SIZE_COUNT];
	memcpy(a, theirs, sizeof(a));
	memcpy(b, &own, sizeof(b));
	for (size_t i = 0; i < WIRE_SIZE_COUNT; i++)
		if (a[i] != b[i])
			return (struct wire_difference){name[i], a[i], b[i]};
	return (struct wire_difference){0};
}

#define WIRE_BOOT_ID_LEN 16u
#define WIRE_TOKEN_LEN 16u
#define WIRE_NONCE_LEN 32u
#define WIRE_PROOF_LEN 32u   /* an HMAC-SHA-256 */
#define WIRE_BINDING_LEN 32u /* exported by TLS, RFC 9266 */

/* What a HELLO is for: a client that will join, or one that only asks (ping, stats). */
enum wire_role { WIRE_ROLE_CLIENT = 1, WIRE_ROLE_ADMIN = 2 };

struct wire_hello {
	struct wire_header header;
	struct wire_sizes sizes;
	unsigned char boot_id[WIRE_BOOT_ID_LEN];
	uint32_t role;
	uint32_t reserved;
	uint64_t features;             /* 0: none known yet */
	char tenant[LIMIT_TENANT_MAX]; /* "": none; NUL-terminated, and 0 behind */
	unsigned char nonce[WIRE_NONCE_LEN];
};
static_assert(sizeof(struct wire_hello) == 176, "hello");

struct wire_challenge {
	struct wire_header header;
	unsigned char nonce[WIRE_NONCE_LEN];
};
static_assert(sizeof(struct wire_challenge) == 48, "challenge");

struct wire_proof {
	struct wire_header header;
	unsigned char proof[WIRE_PROOF_LEN]; /* common/auth.h says of what */
};
static_assert(sizeof(struct wire_proof) == 48, "proof");

/* What a tenant may do; each may do what those before it may. Without tenants: everything. */
enum wire_access { WIRE_ACCESS_READ = 1, WIRE_ACCESS_WRITE = 2, WIRE_ACCESS_ADMIN = 3 };

struct wire_region {
	uint64_t tenant; /* 0 */
	uint64_t region_id;
	uint64_t epoch;
	uint64_t base;
	uint64_t len;
	uint32_t r_key;
	uint32_t reserved;
};
static_assert(sizeof(struct wire_region) == 48, "region");

struct wire_welcome {
	struct wire_header header;
	struct wire_sizes sizes;
	unsigned char boot_id[WIRE_BOOT_ID_LEN];
	unsigned char token[WIRE_TOKEN_LEN];
	uint64_t features;
	uint64_t stamp; /* newest */
	uint32_t server_pid;
	uint32_t n_regions; /* 1 */
	char unix_path[LIMIT_PATH_MAX];
	char verbs_address[64]; /* "" : no verbs */
	/* Where data connections go (proto/wire_tcp.h); "": nowhere, no tcp. */
	char tcp_address[LIMIT_ADDRESS_MAX];
	uint32_t access;                     /* enum wire_access */
	unsigned char proof[WIRE_PROOF_LEN]; /* of the server; 0 without tenants */
	struct wire_region region[1];
};
static_assert(offsetof(struct wire_welcome, unix_path) == 104, "welcome");
static_assert(offsetof(struct wire_welcome, region) == 584, "welcome");
static_assert(sizeof(struct wire_welcome) == 632, "welcome");

/* As a tcp_address: where this control connection goes. */
#define WIRE_TCP_HERE "*"

struct wire_refused {
	struct wire_header header;
	int32_t code;                  /* a failure of err.h */
	char reason[LIMIT_REASON_MAX]; /* a sentence, NUL-terminated */
};
static_assert(sizeof(struct wire_refused) == 420, "refused");

struct wire_join {
	struct wire_header header;
	uint32_t former_serial; /* 0, or a session of an earlier connection that has stopped */
	/*
	 * 0, or a number that the client repeats until a JOIN of this session is answered: if the
	 * answer was lost with an earlier connection, what that JOIN made ends before this one.
	 */
	uint32_t attempt;
};
static_assert(sizeof(struct wire_join) == 24, "join");

struct wire_joined {
	struct wire_header header;
	uint32_t session_slot;
	uint32_t serial;
	uint64_t stamp;
};
static_assert(sizeof(struct wire_joined) == 32, "joined");

/* RELINK, RELINKED, RENEW, LEAVE carry the session; RENEWED its new serial. */
struct wire_session {
	struct wire_header header;
	uint32_t session_slot;
	uint32_t serial;
};
static_assert(sizeof(struct wire_session) == 24, "session");

struct wire_announcement {
	uint32_t session_slot;
	uint32_t serial;
	uint64_t a; /* the session's A, [STAMP] */
};
static_assert(sizeof(struct wire_announcement) == 16, "announcement");

#define WIRE_ANNOUNCEMENTS_MAX 2048u

struct wire_keepalive {
	struct wire_header header;
	uint32_t n;
	uint32_t n_draining;                /* chunks of these that only wait for a stamp, [WRAP] */
	struct wire_announcement session[]; /* n of them */
};
static_assert(sizeof(struct wire_keepalive) == 24, "keepalive");
static_assert(sizeof(struct wire_keepalive) +
			      WIRE_ANNOUNCEMENTS_MAX * sizeof(struct wire_announcement) <=
		      LIMIT_MESSAGE_MAX,
	      "keepalive fits a message");

#define WIRE_STAMP_CHUNKS_SHORT UINT32_C(1) /* give back chunks with nothing in use */
/* Others have chunks that become free, or may: who finds none is to try again, [WRAP]. */
#define WIRE_STAMP_CHUNKS_COMING UINT32_C(2)

struct wire_stamp {
	struct wire_header header; /* request: that of the KEEPALIVE */
	uint64_t newest;
	uint64_t g;
	uint32_t flags;
	uint32_t reserved;
};
static_assert(sizeof(struct wire_stamp) == 40, "stamp");

#define WIRE_SNAPSHOT_NAME_MAX 128u

/* name "": asks about the snapshot with this number, 0: the latest; else begins one. */
struct wire_snapshot {
	struct wire_header header;
	uint32_t number;
	uint32_t reserved;
	char name[WIRE_SNAPSHOT_NAME_MAX]; /* NUL-terminated */
};
static_assert(sizeof(struct wire_snapshot) == 152, "snapshot");

enum wire_snapshot_phase {
	WIRE_SNAPSHOT_NONE = 0,
	WIRE_SNAPSHOT_RUNNING = 1,
	WIRE_SNAPSHOT_DONE = 2,
	WIRE_SNAPSHOT_FAILED = 3,
};

struct wire_snapshot_state {
	struct wire_header header;
	int32_t code;    /* 0, or of err.h: why the request was refused; then only reason counts */
	uint32_t number; /* of the snapshot that all this is about; 0: there is none */
	uint32_t phase;
	uint32_t permille; /* done */
	uint64_t n_records;
	uint64_t n_bytes;
	uint64_t n_unreadable; /* values left out because they never validated */
	uint64_t n_ms;         /* since it began, or that it took */
	char name[WIRE_SNAPSHOT_NAME_MAX];
	char reason
		[LIMIT_REASON_MAX]; /* a sentence, NUL-terminated: why it failed, or was refused */
};
static_assert(offsetof(struct wire_snapshot_state, n_records) == 32, "snapshot state");
static_assert(sizeof(struct wire_snapshot_state) == 592, "snapshot state");

/*
 * What travels in the private data of rdma_cm's own messages (verbs). The request names the control
 * connection by its hello's token, and the session by what JOINED said; both 0: the one look at the
 * superblock that a hello grants. A region that the device cannot register at once consists of
 * segments, each with its own R_Key; the hello's r_key is that of the first.
 */
#define WIRE_CM_MAGIC UINT32_C(0x4d564b52) /* "RKVM" */
#define WIRE_SEGMENTS_MAX 40u

struct wire_cm_request {
	uint32_t magic;
	uint16_t version; /* WIRE_VERSION */
	uint16_t reserved;
	unsigned char token[WIRE_TOKEN_LEN];
	uint32_t session_slot;
	uint32_t serial;
};
static_assert(sizeof(struct wire_cm_request) == 32, "fits 56 bytes of private data");

struct wire_cm_accept {
	uint32_t magic;
	uint16_t version;
	uint16_t n_segments;
	uint64_t base;        /* the server's address of the region */
	uint64_t segment_len; /* bytes of each but the last: a multiple of the page */
	uint32_t r_key[WIRE_SEGMENTS_MAX];
};
static_assert(sizeof(struct wire_cm_accept) == 184, "fits 196 bytes of private data");

struct wire_cm_reject {
	uint32_t magic;
	uint16_t version;
	uint16_t reserved;
	int32_t code;     /* a failure of err.h */
	char reason[132]; /* a sentence, NUL-terminated */
};
static_assert(sizeof(struct wire_cm_reject) == 144, "fits 148 bytes of private data");

/*
 * STATS_TEXT, FSCK_TEXT: the header and (len - sizeof header) bytes of text. STATS, FSCK, PING,
 * PONG: the header.
 */

#endif
