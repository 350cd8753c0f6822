/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control messages, byte by byte: every field a value of its own, so that a moved one is seen.
 */
#include "tests/unit/golden.h"

#include "proto/layout.h"
#include "proto/wire.h"

#define HEADER(message_type, message)                                                              \
	{                                                                                          \
		.magic = WIRE_MAGIC, .version = WIRE_VERSION, .type = (message_type),              \
		.len = sizeof(message), .request = UINT32_C(0x0a0b0c0d)                            \
	}

static const struct wire_sizes sample_sizes = {
	.layout_version = 0x01020304,
	.superblock_len = 0x11121314,
	.bucket_len = 0x21222324,
	.block_header_len = 0x31323334,
	.granule = 0x41424344,
	.tag_bits = 0x51525354,
	.word_stamps = 0x61626364,
	.stamp_ms = 0x71727374,
};
#define SIZES_HEX "0403020114131211242322213433323144434241545352516463626174737271"
#define REQUEST_HEX "0d0c0b0a"

static void
test_version(void **state)
{
	(void)state;
	assert_int_equal(WIRE_VERSION, 2);
	assert_memory_equal(&(uint32_t){WIRE_MAGIC}, "RKVC", 4);
	assert_memory_equal(&(uint64_t){LAYOUT_MAGIC}, "RKRGION1", 8);
	assert_int_equal(WIRE_DEFAULT_PORT, 7440);
}

/* The numbers of the message types are the format as much as their bytes. */
static void
test_types(void **state)
{
	static const enum wire_type types[] = {
		WIRE_HELLO,     WIRE_WELCOME,  WIRE_REFUSED,        WIRE_JOIN,       WIRE_JOINED,
		WIRE_KEEPALIVE, WIRE_STAMP,    WIRE_RELINK,         WIRE_RELINKED,   WIRE_RENEW,
		WIRE_RENEWED,   WIRE_LEAVE,    WIRE_STATS,          WIRE_STATS_TEXT, WIRE_PING,
		WIRE_PONG,      WIRE_SNAPSHOT, WIRE_SNAPSHOT_STATE, WIRE_FSCK,       WIRE_FSCK_TEXT,
		WIRE_CHALLENGE, WIRE_PROOF,
	};
	(void)state;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		assert_int_equal(types[i], i + 1);
	assert_int_equal(WIRE_ROLE_CLIENT, 1);
	assert_int_equal(WIRE_ROLE_ADMIN, 2);
	assert_int_equal(WIRE_STAMP_CHUNKS_SHORT, 1);
	assert_int_equal(WIRE_STAMP_CHUNKS_COMING, 2);
	assert_int_equal(WIRE_ACCESS_READ, 1);
	assert_int_equal(WIRE_ACCESS_WRITE, 2);
	assert_int_equal(WIRE_ACCESS_ADMIN, 3);
}

static void
test_hello(void **state)
{
	struct wire_hello m = {
		.header = HEADER(WIRE_HELLO, m),
		.sizes = sample_sizes,
		.role = WIRE_ROLE_ADMIN,
		.features = UINT64_C(0x8182838485868788),
		.tenant = "tenant",
	};
	(void)state;
	memset(m.boot_id, 0xb0, sizeof(m.boot_id));
	memset(m.nonce, 0xc0, sizeof(m.nonce));
	golden_check(&m, 80,
		     "524b564302000100b0000000" REQUEST_HEX SIZES_HEX
		     "b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0"
		     "0200000000000000"
		     "8887868584838281");
	assert_memory_equal((const unsigned char *)&m + 80, "tenant", 7);
	golden_check_zero((const unsigned char *)&m + 87, 57);
	golden_check((const unsigned char *)&m + 144, 32,
		     "c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0");
}

static void
test_challenge_and_proof(void **state)
{
	struct wire_challenge challenge = {.header = HEADER(WIRE_CHALLENGE, challenge)};
	struct wire_proof proof = {.header = HEADER(WIRE_PROOF, proof)};
	(void)state;
	memset(challenge.nonce, 0xb0, sizeof(challenge.nonce));
	memset(proof.proof, 0xc0, sizeof(proof.proof));
	golden_check(&challenge, sizeof(challenge),
		     "524b56430200150030000000" REQUEST_HEX
		     "b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0");
	golden_check(&proof, sizeof(proof),
		     "524b56430200160030000000" REQUEST_HEX
		     "c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0");
}

static void
test_welcome(void **state)
{
	struct wire_welcome m = {
		.header = HEADER(WIRE_WELCOME, m),
		.sizes = sample_sizes,
		.features = UINT64_C(0x8182838485868788),
		.stamp = UINT64_C(0x9192939495969798),
		.server_pid = UINT32_C(0xa1a2a3a4),
		.n_regions = 1,
		.unix_path = "@path",
		.verbs_address = "addr",
		.tcp_address = "host:1",
		.access = UINT32_C(0xb1b2b3b4),
		.region = {{
			.tenant = UINT64_C(0x0102030405060708),
			.region_id = UINT64_C(0x1112131415161718),
			.epoch = UINT64_C(0x2122232425262728),
			.base = UINT64_C(0x3132333435363738),
			.len = UINT64_C(0x4142434445464748),
			.r_key = UINT32_C(0x51525354),
		}},
	};
	const unsigned char *bytes = (const unsigned char *)&m;
	(void)state;
	memset(m.boot_id, 0xb0, sizeof(m.boot_id));
	memset(m.token, 0xc0, sizeof(m.token));
	memset(m.proof, 0xd0, sizeof(m.proof));
	golden_check(bytes, 104,
		     "524b56430200020078020000" REQUEST_HEX SIZES_HEX
		     "b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0"
		     "c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0"
		     "8887868584838281"
		     "9897969594939291"
		     "a4a3a2a1"
		     "01000000");
	assert_memory_equal(bytes + 104, "@path", 6);
	golden_check_zero(bytes + 110, 102);
	assert_memory_equal(bytes + 212, "addr", 5);
	golden_check_zero(bytes + 217, 59);
	assert_memory_equal(bytes + 276, "host:1", 7);
	golden_check_zero(bytes + 283, 265);
	golden_check(bytes + 548, 36,
		     "b4b3b2b1"
		     "d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0");
	golden_check(bytes + 584, 48,
		     "0807060504030201"
		     "1817161514131211"
		     "2827262524232221"
		     "3837363534333231"
		     "4847464544434241"
		     "5453525100000000");
}

static void
test_refused(void **state)
{
	struct wire_refused m = {.header = HEADER(WIRE_REFUSED, m), .code = -9, .reason = "why"};
	(void)state;
	golden_check(&m, 24, "524b564302000300a4010000" REQUEST_HEX "f7ffffff77687900");
	golden_check_zero((const unsigned char *)&m + 24, sizeof(m) - 24);
}

static void
test_join(void **state)
{
	struct wire_join join = {
		.header = HEADER(WIRE_JOIN, join),
		.former_serial = UINT32_C(0x01020304),
		.attempt = UINT32_C(0x05060708),
	};
	struct wire_joined joined = {
		.header = HEADER(WIRE_JOINED, joined),
		.session_slot = UINT32_C(0x11121314),
		.serial = UINT32_C(0x21222324),
		.stamp = UINT64_C(0x3132333435363738),
	};
	(void)state;
	golden_check(&join, sizeof(join),
		     "524b56430200040018000000" REQUEST_HEX "0403020108070605");
	golden_check(&joined, sizeof(joined),
		     "524b56430200050020000000" REQUEST_HEX "14131211242322213837363534333231");
}

static void
test_session(void **state)
{
	static const struct {
		enum wire_type type;
		const char *hex;
	} cases[] = {{WIRE_RELINK, "08"},
		     {WIRE_RELINKED, "09"},
		     {WIRE_RENEW, "0a"},
		     {WIRE_RENEWED, "0b"},
		     {WIRE_LEAVE, "0c"}};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct wire_session m = {
			.header = HEADER(cases[i].type, m),
			.session_slot = UINT32_C(0x11121314),
			.serial = UINT32_C(0x21222324),
		};
		char hex[64];
		snprintf(hex, sizeof(hex),
			 "524b56430200%s0018000000" REQUEST_HEX "1413121124232221", cases[i].hex);
		golden_check(&m, sizeof(m), hex);
	}
}

static void
test_keepalive(void **state)
{
	static const struct wire_announcement sessions[2] = {
		{0x01020304, 0x11121314, UINT64_C(0x2122232425262728)},
		{0x31323334, 0x41424344, UINT64_C(0x5152535455565758)},
	};
	unsigned char bytes[sizeof(struct wire_keepalive) + sizeof(sessions)];
	struct wire_keepalive m = {
		.header = HEADER(WIRE_KEEPALIVE, bytes), .n = 2, .n_draining = 3};
	struct wire_stamp stamp = {
		.header = HEADER(WIRE_STAMP, stamp),
		.newest = UINT64_C(0x0102030405060708),
		.g = UINT64_C(0x1112131415161718),
		.flags = WIRE_STAMP_CHUNKS_SHORT,
	};
	(void)state;
	memcpy(bytes, &m, sizeof(m));
	memcpy(bytes + offsetof(struct wire_keepalive, session), sessions, sizeof(sessions));
	golden_check(bytes, sizeof(bytes),
		     "524b56430200060038000000" REQUEST_HEX "0200000003000000"
		     "04030201141312112827262524232221"
		     "34333231444342415857565554535251");
	golden_check(&stamp, sizeof(stamp),
		     "524b56430200070028000000" REQUEST_HEX "0807060504030201"
		     "1817161514131211"
		     "0100000000000000");
}

static void
test_snapshot(void **state)
{
	struct wire_snapshot ask = {
		.header = HEADER(WIRE_SNAPSHOT, ask),
		.number = UINT32_C(0x01020304),
		.name = "name",
	};
	struct wire_snapshot_state m = {
		.header = HEADER(WIRE_SNAPSHOT_STATE, m),
		.code = -10,
		.number = UINT32_C(0x01020304),
		.phase = WIRE_SNAPSHOT_FAILED,
		.permille = UINT32_C(0x11121314),
		.n_records = UINT64_C(0x2122232425262728),
		.n_bytes = UINT64_C(0x3132333435363738),
		.n_unreadable = UINT64_C(0x4142434445464748),
		.n_ms = UINT64_C(0x5152535455565758),
		.name = "name",
		.reason = "why",
	};
	const unsigned char *bytes = (const unsigned char *)&m;
	(void)state;
	golden_check(&ask, 28, "524b56430200110098000000" REQUEST_HEX "04030201000000006e616d65");
	golden_check_zero((const unsigned char *)&ask + 28, sizeof(ask) - 28);
	golden_check(bytes, 64,
		     "524b56430200120050020000" REQUEST_HEX "f6ffffff040302010300000014131211"
		     "2827262524232221"
		     "3837363534333231"
		     "4847464544434241"
		     "5857565554535251");
	assert_memory_equal(bytes + 64, "name", 5);
	golden_check_zero(bytes + 68, 124);
	assert_memory_equal(bytes + 192, "why", 4);
	golden_check_zero(bytes + 195, sizeof(m) - 195);
}

/* proto/LAYOUT.md tells the length of each message. */
static void
test_document(void **state)
{
	static const struct {
		const char *name;
		size_t len;
	} messages[] = {
		{"HELLO", sizeof(struct wire_hello)},
		{"WELCOME", sizeof(struct wire_welcome)},
		{"REFUSED", sizeof(struct wire_refused)},
		{"JOIN", sizeof(struct wire_join)},
		{"JOINED", sizeof(struct wire_joined)},
		{"STAMP", sizeof(struct wire_stamp)},
		{"LEAVE", sizeof(struct wire_session)},
		{"SNAPSHOT", sizeof(struct wire_snapshot)},
		{"SNAPSHOT_STATE", sizeof(struct wire_snapshot_state)},
		{"CHALLENGE", sizeof(struct wire_challenge)},
		{"PROOF", sizeof(struct wire_proof)},
	};
	static char text[1 << 16];
	char row[64];
	(void)state;
	FILE *file = fopen("proto/LAYOUT.md", "re");
	assert_non_null(file);
	assert_in_range(fread(text, 1, sizeof(text), file), 1, sizeof(text) - 1);
	fclose(file);
	for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
		snprintf(row, sizeof(row), " | %s | %zu | ", messages[i].name, messages[i].len);
		if (!strstr(text, row))
			fail_msg("proto/LAYOUT.md has no row \"%s\"", row);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_version),   cmocka_unit_test(test_types),
		cmocka_unit_test(test_hello),     cmocka_unit_test(test_challenge_and_proof),
		cmocka_unit_test(test_welcome),   cmocka_unit_test(test_refused),
		cmocka_unit_test(test_join),      cmocka_unit_test(test_session),
		cmocka_unit_test(test_keepalive), cmocka_unit_test(test_snapshot),
		cmocka_unit_test(test_document),
	};
	return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
