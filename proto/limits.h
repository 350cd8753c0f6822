/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every maximum and every time constant of rkv. What both sides must agree on is also published in
 * the superblock or in the hello, so that a build with other numbers is refused, not misread.
 */
#ifndef RKV_PROTO_LIMITS_H
#define RKV_PROTO_LIMITS_H

#include <stdint.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__ ||                       \
	UINTPTR_MAX < UINT64_MAX
#error "rkv needs a 64-bit little-endian host: remote memory is laid out that way (proto/LAYOUT.md)"
#endif

/* Memory */
#define LIMIT_GRANULE 64u                      /* bytes; the unit of blocks and of the free map */
#define LIMIT_REGION_MAX (UINT64_C(256) << 30) /* bytes a 32-bit granule number reaches */
#define LIMIT_REGION_MIN (UINT64_C(1) << 20)
#define LIMIT_CHUNK_MIN (UINT64_C(4) << 10)
#define LIMIT_CHUNK_MAX (UINT64_C(64) << 20)
#define LIMIT_CHUNK_DEFAULT_MIN (UINT64_C(64) << 10)
#define LIMIT_CHUNK_DEFAULT_MAX (UINT64_C(1) << 20)
#define LIMIT_CHUNKS_MIN 4u
#define LIMIT_HEAP_BYTES_PER_SLOT 256u /* default index size: one slot for so many heap bytes */
#define LIMIT_KEY_MAX 1024u            /* bytes; the minimum is 1 */
#define LIMIT_SEGMENTS 8u              /* index segments the superblock has room for */

/* Test builds make these smaller, to force collisions and wraps (make test, variant "tiny"). */
#ifndef LIMIT_TAG_BITS
#define LIMIT_TAG_BITS 12u /* incarnations of a block before it has to rest, [WRAP] */
#endif
#ifndef LIMIT_HASH_BITS
#define LIMIT_HASH_BITS 64u /* of each half of the key's hash that place it */
#endif
#ifndef LIMIT_FINGERPRINT_BITS
#define LIMIT_FINGERPRINT_BITS 10u
#endif

/* Time. Stamps are the server's epochs of reclamation, [STAMP]. */
#ifndef LIMIT_STAMP_MS
#define LIMIT_STAMP_MS 100u /* a new stamp, and a keepalive, so often */
#endif
#ifndef LIMIT_WORD_STAMPS
#define LIMIT_WORD_STAMPS 100u /* T_WORD: how old a word may be that a CAS expects */
#endif
#define LIMIT_SKEW_S 1u       /* wall clocks may differ by; only expiry depends on them */
#define LIMIT_LEASE_MS 30000u /* T_LEASE: silence after which a session is dead */
#define LIMIT_REUSE_NS UINT64_C(1000000) /* T_Q: spares readers a retry; nothing depends on it */
#define LIMIT_TENTATIVE_NS UINT64_C(1000000)      /* T_TENT, at least */
#define LIMIT_TENTATIVE_RTTS 8u                   /* T_TENT, in measured round trips */
#define LIMIT_TENTATIVE_MAX_NS UINT64_C(10000000) /* T_TENT, at most, before it is doubled */
#define LIMIT_BACKOFF_MIN_NS UINT64_C(1000)
#define LIMIT_BACKOFF_MAX_NS UINT64_C(1000000)
#define LIMIT_HANDSHAKE_MS 5000u /* a peer that says nothing is dropped after this */

/* Control connection */
#define LIMIT_MESSAGE_MAX (UINT32_C(64) << 10) /* bytes of one message, header included */
#define LIMIT_PATH_MAX 108u                    /* unix socket path, NUL included */
#define LIMIT_ADDRESS_MAX 272u                 /* "host:port" as text, NUL included */
#define LIMIT_REASON_MAX 400u                  /* text of a refusal, NUL included */
#define LIMIT_CLIENTS 4096u                    /* control connections of a server */
#define LIMIT_SESSIONS 4096u                   /* sessions of one client, and of a region */

/* Who may come, and where to */
#define LIMIT_REGIONS 16u         /* of a server */
#define LIMIT_REGION_NAME_MAX 32u /* NUL included */
#define LIMIT_TENANTS 1024u
#define LIMIT_TENANT_MAX 64u /* a tenant's name, NUL included */
#define LIMIT_SECRET_MIN 32u /* characters of a secret */
#define LIMIT_SECRET_MAX 256u

/* Data connections of the tcp fabric */
#define LIMIT_TCP_STALL_MS 10000u /* a peer that does not take its replies is dropped after this */

/* Client */
#define LIMIT_DEPTH_MAX 4096u /* operations in flight of one session */
#define LIMIT_DEPTH_DEFAULT 128u
#define LIMIT_OP_TIMEOUT_MS 5000u
#define LIMIT_CONNECT_TIMEOUT_MS 5000u
#define LIMIT_CACHE_BYTES (UINT64_C(16) << 20)
#define LIMIT_TTL_MAX_S UINT32_C(3153600000) /* 100 years, so that an expiry fits 32 bits */

#endif
