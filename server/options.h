/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kv-server's options: the same names on the command line (`--pool-size 1G`, `--pool-size=1G`) and
 * in the configuration file (`pool-size = 1G`). The command line counts more; of several, the
 * last.
 */
#ifndef RKV_SERVER_OPTIONS_H
#define RKV_SERVER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/net.h"
#include "common/pool.h"
#include "common/pool_file.h"
#include "proto/layout.h"
#include "server/guard.h"

#define OPTIONS_PATH_MAX 1024u
#define OPTIONS_LISTEN_MAX 8u
#define OPTIONS_REGIONS_MAX (LIMIT_REGIONS - 1) /* beside the first */
#define OPTIONS_FIRST_REGION "default"          /* its name */

enum options_fabric { OPTIONS_AUTO, OPTIONS_VERBS, OPTIONS_SOFT, OPTIONS_SHM, OPTIONS_TCP };

enum options_action { OPTIONS_SERVE, OPTIONS_CHECK, OPTIONS_FSCK, OPTIONS_VERSION, OPTIONS_HELP };

/* One more region, for the tenants whose line names it. */
struct options_region {
	char name[LIMIT_REGION_NAME_MAX];
	uint64_t size; /* bytes */
	char restore[OPTIONS_PATH_MAX];
	struct layout layout;
};

struct options {
	enum options_action action;
	const char *region_name; /* of the region that sizes and files below are of */
	unsigned n_regions;      /* more */
	struct options_region region[OPTIONS_REGIONS_MAX];
	unsigned n_listen;
	struct net_address listen[OPTIONS_LISTEN_MAX];
	struct net_address advertise; /* host "": as clients came; port 0: the control port */
	uint64_t pool_size;           /* bytes */
	uint64_t index_slots;         /* 0: one per 256 bytes of heap */
	uint64_t chunk_size;          /* bytes; 0: by pool size */
	enum pool_huge huge_pages;
	char pool_file[POOL_FILE_PATH_MAX]; /* "": a memfd */
	bool pool_format;                   /* whatever the file holds */
	unsigned scrub_rate;                /* MiB a second; 0: off */
	char socket[LIMIT_PATH_MAX];        /* "": an abstract name of our own */
	enum options_fabric fabric;
	char rdma_device[64];            /* "": any */
	struct net_address rdma_address; /* host "": chosen; port 0: a free one */
	unsigned tcp_threads;
	struct net_address metrics_listen;   /* host "": no metrics over HTTP */
	char restore[OPTIONS_PATH_MAX];      /* a snapshot to begin with; "": empty */
	char snapshot_dir[OPTIONS_PATH_MAX]; /* "": no snapshots */
	uint32_t snapshot_every_s;           /* 0: only when asked */
	uint64_t snapshot_rate;              /* bytes a second; 0: as fast as it goes */
	char tenants[OPTIONS_PATH_MAX]; /* a file; "": whoever reaches the port may do everything */
	bool insecure;                  /* without tenants, and not on loopback only */
	char tls_cert[OPTIONS_PATH_MAX]; /* files; "": plain text */
	char tls_key[OPTIONS_PATH_MAX];
	char tls_ca[OPTIONS_PATH_MAX]; /* "": clients need no certificate */
	int log_level;
	const char *fsck_path; /* for OPTIONS_FSCK; an argument */
	struct layout layout;  /* the plan that follows from the sizes */
};

/*
 * Reads the command line (argv as main gets it) and the file it names. Failure: ERR_INVALID;
 * ret_reason has a sentence with the allowed range.
 */
int options_parse(struct options *options, char *const argv[], char ret_reason[NET_REASON_MAX]);

/* How many regions the server has, the first too. */
unsigned options_n_regions(const struct options *options);

/*
 * What of the options is for region i, 0 being the first: as if it were the server's only one. They
 * live no longer than options.
 */
void options_of_region(const struct options *options, unsigned i, struct options *ret_of);

/* Is it about another region than the first? */
bool options_are_of_more(const struct options *options);

/* It has turned out whether there is verbs: from now on they ask for it, or for none. */
void options_settle_fabric(struct options *options, bool is_verbs);

/* Would a start without verbs be a failure? --fabric says so, or that a device is asked for. */
bool options_want_verbs(const struct options *options);

/* Is a start with verbs ruled out? */
bool options_are_soft(const struct options *options);

/*
 * May the control port be at this numeric address? Without tenants only on loopback, unless
 * --insecure was said. Failure, with the remedy: ERR_PERM.
 */
int options_check_exposure(const struct options *options, const struct net_address *bound,
			   char ret_reason[NET_REASON_MAX]);

/* What says who may come in; it is that of options, and lives as long. */
struct guard_files options_guard_files(const struct options *options);

/* What --help says. */
void options_help(FILE *out);

#endif
