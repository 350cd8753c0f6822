/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * librkv: a key-value store in other machines' memory.
 *
 *   struct rkv_client *client;
 *   struct rkv_session *session;
 *   rkv_open("localhost:7440", NULL, &client);
 *   rkv_session_open(client, &session);
 *   rkv_put(session, "key", 3, "value", 5, NULL, NULL);
 *   char value[64];
 *   struct rkv_item item;
 *   if (rkv_get(session, "key", 3, value, sizeof(value), &item) == RKV_OK) ...
 *
 * RETURN VALUES. 0 (RKV_OK): done. > 0: an outcome that the caller handles. < 0: a failure.
 *   Only RKV_E_MAYBE and RKV_E_TIMEOUT leave a mutation's effect open: it may have been applied.
 *   After every other failure it was not, and will not be.
 * THREADS. A client may be used by any thread. A session is used by one thread at a time; open one
 *   per thread. Requests and their buffers belong to the session from submission to completion.
 * FORK. A client is of no use in a child process after fork(): every call there is RKV_E_INVALID.
 *   The child may open its own; over RDMA only if no process before it has used RDMA since the
 *   last exec(): kernel and librdmacm tie a device to the process that opened it (RKV_E_PERM).
 *   exec() is harmless: all descriptors are close-on-exec.
 * ROUND TRIPS. Costs are counted in batches that are posted with one doorbell and waited for once;
 *   "warm" means that the session's location cache knows where the key is.
 * The library never exits, aborts, prints, or touches signals.
 */
#ifndef RKV_H
#define RKV_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RKV_API __attribute__((visibility("default")))

#define RKV_VERSION_MAJOR 0
#define RKV_VERSION_MINOR 1
#define RKV_VERSION_PATCH 0

enum {
	RKV_OK = 0,

	/* Outcomes */
	RKV_NOT_FOUND = 1, /* the key is absent */
	RKV_EXISTS = 2,    /* add: the key is there */
	RKV_MISMATCH = 3,  /* compare-and-swap: another version is there */
	RKV_AGAIN = 4,     /* back-pressure, or memory that rests for about 10 s: retry later */

	/* Failures */
	RKV_E_TIMEOUT = -1,  /* the deadline passed; a mutation may have been applied */
	RKV_E_MAYBE = -2,    /* the connection was lost; the mutation may have been applied */
	RKV_E_NO_SPACE = -3, /* the pool is full: delete something, give it more memory, or evict */
	RKV_E_INDEX_FULL = -4, /* no slot in either bucket of the key: more --index-slots */
	RKV_E_TOO_BIG = -5,    /* key or value above the limit (rkv_limits) */
	RKV_E_TOO_SMALL = -6,  /* the buffer is shorter than the value; its length is returned */
	RKV_E_INVALID = -7,    /* an argument, or the object's state, does not allow the call */
	RKV_E_CONN = -8,       /* no connection to the server; not applied; may be retried */
	RKV_E_VERSION = -9,    /* server and client do not understand each other's version */
	RKV_E_PERM = -10,      /* not allowed: by the server, or a mutation by a read-only tenant */
	RKV_E_CORRUPT = -11,   /* remote memory holds bytes that cannot be */
	RKV_E_NOMEM = -12      /* out of local memory, file descriptors or sessions */
};

struct rkv_client;  /* a process's tie to a server */
struct rkv_session; /* a thread's tie to it */

enum rkv_log_level { RKV_LOG_ERROR = 0, RKV_LOG_WARN = 1, RKV_LOG_INFO = 2, RKV_LOG_DEBUG = 3 };
typedef void (*rkv_log_fn)(void *arg, int level, const char *line);

/*
 * How a client reaches the server's memory. AUTO: verbs if the server has an RDMA device; else by
 * mapping it (shm), if both are on one host; else over TCP, where this process needs io_uring.
 */
enum rkv_fabric {
	RKV_FABRIC_AUTO = 0,
	RKV_FABRIC_VERBS = 1,
	RKV_FABRIC_SHM = 2,
	RKV_FABRIC_TCP = 3
};

/* Fill with rkv_options_init, then change what differs. */
struct rkv_options {
	uint32_t connect_timeout_ms; /* rkv_open, rkv_session_open; default 5000 */
	uint32_t op_timeout_ms; /* an operation whose request has no own timeout; default 5000 */
	uint32_t depth;         /* operations in flight of a session, 1..4096; default 128 */
	uint32_t log_level;     /* lines above it are dropped; default RKV_LOG_WARN */
	size_t cache_bytes;     /* location cache of a session; 0: none; default 16 MiB */
	size_t arena_bytes;     /* registered memory of a session; 0: chosen by chunk size */
	uint32_t strict_insert; /* 1: INSERT waits once more (proto/ORDERING.md); default 0 */
	uint32_t fabric;        /* enum rkv_fabric; default RKV_FABRIC_AUTO */
	rkv_log_fn log;         /* called from any thread of the library; default NULL */
	void *log_arg;
	/*
	 * Who this client is. NULL: nobody in particular, for a server without --tenants. Texts
	 * need to live until rkv_open returns; files are read again whenever the client connects.
	 * The secret's file holds what stands in the server's, and only this user (or root) may be
	 * able to read it.
	 */
	const char *tenant;
	const char *secret_file;
	/* TLS 1.3 on the control connection, for a server with --tls-cert. NULL: plain text. */
	const char *tls_ca_file;     /* PEM; the CA of the server's certificate */
	const char *tls_cert_file;   /* PEM; ours, for a server with --tls-ca; NULL: none */
	const char *tls_key_file;    /* its key */
	const char *tls_server_name; /* that the certificate is for; NULL: the host connected to */
};

RKV_API void rkv_options_init(struct rkv_options *options);

/*
 * Connects to "host", "host:port", "[ipv6]:port". A list with commas is understood, but more than
 * one server is refused for now (RKV_E_INVALID). options NULL: the defaults. The client heals by
 * itself when the server restarts. Blocking, until connect_timeout_ms.
 * Failures: INVALID, CONN (refused, unreachable), TIMEOUT, VERSION, PERM, CORRUPT, NOMEM; the log
 * callback has the sentence that belongs to it.
 */
RKV_API int rkv_open(const char *servers, const struct rkv_options *options,
		     struct rkv_client **ret_client);

/*
 * Closes the client and its sessions that are still open, which no thread may be using. NULL is
 * nothing.
 */
RKV_API void rkv_close(struct rkv_client *client);

/* Opens a session. Blocking, until connect_timeout_ms. Failures: CONN, TIMEOUT, NOMEM, INVALID. */
RKV_API int rkv_session_open(struct rkv_client *client, struct rkv_session **ret_session);

/*
 * Ends a session: outstanding requests complete first (by their deadlines; their status is set, but
 * nobody polls them any more), its chunks are left for others to adopt. NULL is nothing.
 */
RKV_API void rkv_session_close(struct rkv_session *session);

/* The fabric that the client uses: "verbs", "shm" or "tcp", a static string. NULL: no client. */
RKV_API const char *rkv_fabric(const struct rkv_client *client);

/* The exact limits of the region a client is connected to. */
struct rkv_limit_values {
	uint32_t key_len_min;   /* bytes: 1 */
	uint32_t key_len_max;   /* bytes */
	uint64_t block_len_max; /* bytes of 40 + key + value: value_len_max = this - 40 - key_len */
	uint64_t value_len_max; /* bytes, beside a key of key_len_max */
	uint32_t ttl_max_s;
	uint32_t depth_max;
};

/* Failure: INVALID. No round trip. */
RKV_API int rkv_limits(struct rkv_client *client, struct rkv_limit_values *ret_limits);

/* What a GET or a mutation tells about the value. */
struct rkv_item {
	size_t value_len;    /* bytes */
	uint64_t version;    /* no other value of this region has it; input of rkv_cas */
	uint32_t user_flags; /* as put */
	uint32_t ttl_s;      /* seconds left, rounded up; 0: does not expire */
};

/*
 * What goes with a value. A ttl lasts at least ttl_s seconds and less than one second longer. It
 * counts by the clients' wall clocks: keep them within a second.
 */
struct rkv_put_options {
	uint32_t ttl_s; /* seconds until the value is absent; 0: never */
	uint32_t user_flags;
	uint32_t timeout_ms; /* 0: the client's op_timeout_ms */
};

/*
 * Reads a value into buf. value_len is set also with RKV_E_TOO_SMALL. Unless RKV_OK is returned,
 * the contents of buf are undefined. buf may be NULL if buf_len is 0; ret_item may be NULL.
 * Cost: 1 round trip warm, 2 cold, 1 for a miss.
 * RKV_NOT_FOUND. Failures: TOO_SMALL, TOO_BIG (key), TIMEOUT, CONN, CORRUPT, INVALID.
 */
RKV_API int rkv_get(struct rkv_session *session, const void *key, size_t key_len, void *buf,
		    size_t buf_len, struct rkv_item *ret_item);

/*
 * Stores a value, whether the key is there or not; the last writer wins. options NULL: no ttl,
 * flags 0. An empty value (value NULL, value_len 0) is a value. ret_version may be NULL. Storing
 * over a value needs room for the new one beside the old one.
 * Cost: 1 round trip warm, 3 cold, 3 for a new key (4 with strict_insert).
 * RKV_AGAIN. Failures: TIMEOUT, MAYBE, NO_SPACE, INDEX_FULL, TOO_BIG, CONN, PERM, CORRUPT, NOMEM,
 * INVALID.
 */
RKV_API int rkv_put(struct rkv_session *session, const void *key, size_t key_len, const void *value,
		    size_t value_len, const struct rkv_put_options *options, uint64_t *ret_version);

/* As rkv_put, if the key is absent (3 round trips); else RKV_EXISTS (1 warm, 2 cold). */
RKV_API int rkv_add(struct rkv_session *session, const void *key, size_t key_len, const void *value,
		    size_t value_len, const struct rkv_put_options *options, uint64_t *ret_version);

/* As rkv_put, if the key is there; else RKV_NOT_FOUND. Cost: 2 round trips warm, 3 cold. */
RKV_API int rkv_replace(struct rkv_session *session, const void *key, size_t key_len,
			const void *value, size_t value_len, const struct rkv_put_options *options,
			uint64_t *ret_version);

/*
 * Compare-and-swap: as rkv_put, if the key is there in version `version`; else RKV_MISMATCH or
 * RKV_NOT_FOUND. Cost: 2 round trips warm, 3 cold.
 */
RKV_API int rkv_cas(struct rkv_session *session, const void *key, size_t key_len, const void *value,
		    size_t value_len, uint64_t version, const struct rkv_put_options *options,
		    uint64_t *ret_version);

/* Removes a key; RKV_NOT_FOUND if it is absent. Cost: 1 round trip warm, 3 cold. */
RKV_API int rkv_delete(struct rkv_session *session, const void *key, size_t key_len);

/*
 * Gives a value a new time to live (0: for ever), see rkv_put_options, and a new version;
 * RKV_NOT_FOUND if it is absent.
 * Cost: 2 round trips warm, 3 cold: the value is read and written.
 */
RKV_API int rkv_touch(struct rkv_session *session, const void *key, size_t key_len, uint32_t ttl_s,
		      uint64_t *ret_version);

/* ---- Asynchronous and batched ---- */

enum rkv_op {
	RKV_OP_GET = 0,
	RKV_OP_PUT = 1,
	RKV_OP_ADD = 2,
	RKV_OP_REPLACE = 3,
	RKV_OP_CAS = 4,
	RKV_OP_DELETE = 5,
	RKV_OP_TOUCH = 6
};
#define RKV_OP_COUNT 7

/*
 * One operation. Zero it, fill in what the operation needs, submit it. Key, value and buffer are
 * borrowed until it completes. The caller reads status and item afterwards.
 */
struct rkv_request {
	enum rkv_op op;
	int status; /* out: as the blocking call returns; undefined while in flight */
	const void *key;
	size_t key_len;
	const void *value; /* mutations */
	size_t value_len;
	void *buf; /* GET */
	size_t buf_len;
	uint64_t version;               /* CAS: the expected one */
	struct rkv_put_options options; /* mutations; timeout_ms also for the others */
	struct rkv_item item;           /* out: GET all of it; mutations the version */
	void *user;                     /* the caller's */
};

/*
 * Starts an operation. It completes exactly once, through rkv_poll, by its deadline. RKV_OK;
 * RKV_AGAIN: depth operations are in flight (poll, then submit again); INVALID. Anything else that
 * is wrong with the request is its status.
 */
RKV_API int rkv_submit(struct rkv_session *session, struct rkv_request *request);

/*
 * Drives the session and returns how many completed requests it stored in done (0..max), or a
 * failure (INVALID). Waits up to timeout_ms (0: not at all) for the first one; returns 0 at once if
 * nothing is in flight.
 */
RKV_API int rkv_poll(struct rkv_session *session, struct rkv_request **done, int max,
		     uint32_t timeout_ms);

/*
 * Runs n requests to completion, as many at once as depth allows; each has its own status. Cannot
 * be mixed with requests in flight (INVALID). RKV_OK when all have completed.
 */
RKV_API int rkv_run(struct rkv_session *session, struct rkv_request *requests, size_t n);

/* Many keys at once: rkv_run over requests whose op is GET (multi_get) or PUT (multi_put). */
RKV_API int rkv_multi_get(struct rkv_session *session, struct rkv_request *requests, size_t n);
RKV_API int rkv_multi_put(struct rkv_session *session, struct rkv_request *requests, size_t n);

/*
 * Registers memory of the caller, so that large values move between it and the server without a
 * copy. A GET into it needs a capacity of rkv_buffer_size(value_len), because whole blocks are
 * read; the bytes behind the value, and all of them after a failure, are undefined. Failures:
 * NOMEM, PERM, INVALID. Unregister when no request uses it.
 */
RKV_API int rkv_buffer_register(struct rkv_client *client, void *buf, size_t len);
RKV_API int rkv_buffer_unregister(struct rkv_client *client, void *buf);
RKV_API size_t rkv_buffer_size(size_t value_len);

/* ---- Counters ---- */

struct rkv_op_stats {
	uint64_t n_done;        /* operations that returned RKV_OK */
	uint64_t n_outcomes;    /* that returned an outcome > 0 */
	uint64_t n_failures;    /* that failed */
	uint64_t n_round_trips; /* batches waited for */
	uint64_t n_requests;    /* work requests, without marks */
	uint64_t n_marks;       /* 1-byte WRITEs that nobody waits for */
	uint64_t n_bytes_read;  /* asked of the fabric */
	uint64_t n_bytes_written;
	uint64_t n_retries;  /* batches beyond the first try */
	uint64_t n_cas_lost; /* CASes that found another word */
};

struct rkv_stats_values {
	struct rkv_op_stats op[RKV_OP_COUNT];
	uint64_t n_cache_hits; /* operations that started warm */
	uint64_t n_cache_misses;
	uint64_t n_cache_stale; /* warm starts that found the key moved */
	uint64_t n_reconnects;
	uint64_t n_chunks_owned; /* now */
	uint64_t n_chunks_claimed;
	uint64_t n_chunks_adopted;
	uint64_t n_chunks_returned;
	uint64_t n_blocks_resting;       /* now: freed, waiting for a stamp, [WRAP] */
	uint64_t n_maintenance_requests; /* work requests of claiming, reading maps, flushing */
};

/* Counters of a session since it was opened. Failure: INVALID. */
RKV_API int rkv_stats(struct rkv_session *session, struct rkv_stats_values *ret_stats);

/*
 * The server's counters, "name value" lines, NUL-terminated and cut to buf_len. Blocking, until
 * connect_timeout_ms. ret_len (may be NULL): the whole length. Failures: CONN, TIMEOUT, INVALID.
 */
RKV_API int rkv_server_stats(struct rkv_client *client, char *buf, size_t buf_len, size_t *ret_len);

/*
 * What each byte of the server's pool is, "name value" lines as of rkv_server_stats: kv-server's
 * manual lists them. The server looks at all that is stored, which takes about two seconds a GiB,
 * and serves others meanwhile. Blocking, until timeout_ms. Failures: CONN, TIMEOUT, INVALID, NOMEM
 * (the server has no memory for it), PERM (the tenant is no admin).
 */
RKV_API int rkv_server_fsck(struct rkv_client *client, char *buf, size_t buf_len, size_t *ret_len,
			    uint32_t timeout_ms);

/* ---- Snapshots ---- */

enum {
	RKV_SNAPSHOT_NONE = 0, /* the server has taken none since it started */
	RKV_SNAPSHOT_RUNNING = 1,
	RKV_SNAPSHOT_DONE = 2,
	RKV_SNAPSHOT_FAILED = 3 /* reason says why; an earlier file of the name is untouched */
};

struct rkv_snapshot {
	uint32_t number; /* the server counts them up */
	int phase;       /* RKV_SNAPSHOT_... */
	uint32_t permille;
	uint64_t n_records; /* values written */
	uint64_t n_bytes;
	uint64_t n_unreadable; /* values left out, because what is stored of them is damaged */
	uint64_t elapsed_ms;
	char name[128];
	char reason[400]; /* a sentence, or "" */
};

/*
 * Tells the server to write all values into a file of its --snapshot-dir, which `kv-server
 * --restore` reads; name: 1 to 127 letters, digits, '.', '_', '-', not beginning with '.' or '-'.
 * It goes on while clients do: of each key it holds a value that was current at some moment
 * meanwhile. Returns when it has begun. Outcome: AGAIN: another is being taken. Failures: PERM: the
 * server has no --snapshot-dir, or may not write there, or the tenant is no admin; INVALID (the
 * name); NOMEM; CONN; TIMEOUT.
 * But for the last two, and INVALID for a missing argument, reason has a sentence.
 */
RKV_API int rkv_snapshot_begin(struct rkv_client *client, const char *name,
			       struct rkv_snapshot *ret_snapshot);

/*
 * How the snapshot with this number is going, or how it ended; 0: the latest. Outcome: NOT_FOUND:
 * several others were begun since. Failures: CONN, TIMEOUT, INVALID, PERM: the tenant is no admin.
 */
RKV_API int rkv_snapshot_look(struct rkv_client *client, uint32_t number,
			      struct rkv_snapshot *ret_snapshot);

/* A message to the server and back. Failures: CONN, TIMEOUT. */
RKV_API int rkv_ping(struct rkv_client *client);

/* The name and meaning of a code, a static string. */
RKV_API const char *rkv_strerror(int code);

/* "0.1.0" */
RKV_API const char *rkv_version(void);

#ifdef __cplusplus
}
#endif
#endif
