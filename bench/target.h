/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What operations are run on: an rkv server, the bare fabric, or nothing at all. All are driven the
 * same way by the same workers, so that their figures may stand side by side. A target belongs to
 * the driver's thread, a session of it to its worker's.
 */
#ifndef RKV_BENCH_TARGET_H
#define RKV_BENCH_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "client/include/rkv.h"

#define TARGET_FABRICS 4
extern const char *const target_fabrics[TARGET_FABRICS]; /* by enum rkv_fabric: "auto" */

/* Who we are, and TLS, as rkv_options says; NULL: not given. */
struct target_identity {
	const char *tenant;
	const char *secret_file;
	const char *tls_ca;
	const char *tls_cert;
	const char *tls_key;
	const char *tls_name;
};

struct target_config {
	const char *server; /* rkv */
	struct target_identity identity;
	enum rkv_fabric fabric; /* rkv */
	uint32_t depth;
	uint32_t timeout_ms;
	uint64_t cache_bytes; /* rkv: of each session */
	uint32_t key_len_max; /* bytes */
	rkv_log_fn log;
};

struct target_session {
	const struct target *target;
};

/* Return values as rkv.h has them. */
struct target {
	const char *name; /* for people: an address, or what it is */
	bool has_values;  /* values are read and written; else requests are only counted */
	int (*session_open)(struct target *target, struct target_session **ret_session);
	void (*session_close)(struct target_session *session);
	/* number: of the record that the request is about. */
	int (*submit)(struct target_session *session, struct rkv_request *request, uint64_t number);
	int (*poll)(struct target_session *session, struct rkv_request **done, int max,
		    uint32_t timeout_ms);
	void (*stats)(struct target_session *session, struct rkv_stats_values *ret_stats);
	uint64_t (*value_size_max)(struct target *target); /* bytes */
	/* Processor time that the server has taken so far; false: there is none, or none known. */
	bool (*server_cpu_ns)(struct target *target, uint64_t *ret_ns);
	void (*close)(struct target *target);
};

/* The configuration is borrowed until the target is closed. Failures as rkv_open. */
int target_open_rkv(const struct target_config *config, struct target **ret_target);

/*
 * Answers every request at once with RKV_OK: what is left is the cost of the benchmark itself.
 * Failure: RKV_E_NOMEM.
 */
int target_open_idle(const struct target_config *config, struct target **ret_target);

#endif
