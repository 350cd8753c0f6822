/* SPDX-License-Identifier: BSD-2-Clause */
/* Making a region: region.h. */
#include "server/region.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>

#include "common/clock.h"
#include "common/err.h"
#include "server/warm.h"

#define CAS_NS (1000 * CLOCK_NS_PER_MS) /* on the server's own endpoint */
#define LOOPBACK_PAUSE_NS (100 * CLOCK_NS_PER_MS)

/* Fills in what makes this region different from every other one. */
static int
make_identity(struct region *region)
{
	uint64_t random[3];
	struct timespec now;
	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return ERR_PERM;
	clock_gettime(CLOCK_REALTIME, &now);
	region->region_id = random[0];
	region->layout.hash_seed = random[1];
	/*
	 * Not 1: a version is a serial and a counter, and whoever kept one from before a restart
	 * must not meet it again on a value that was written after it.
	 */
	region->first_serial = random[2] % INT32_MAX + 1;
	region->layout.formatted_s = (uint64_t)now.tv_sec;
	region->first_stamp = 1;
	/* Newer than that of any earlier server, also for a client that compares nothing else. */
	region->epoch = (uint64_t)now.tv_sec * (uint64_t)CLOCK_NS_PER_S + (uint64_t)now.tv_nsec;
	return 0;
}

/* Fills the formatted region, before anybody can see it. */
static int
restore(struct region *region, const char *path)
{
	int rc = restore_file(path, region->superblock, &region->layout,
			      (uint32_t)region->first_serial, region->log, &region->restored);
	if (rc)
		return rc;
	region->first_serial = region->restored.first_serial;
	region->superblock->next_serial = region->first_serial;
	return 0;
}

/* The magic number last: a file with it holds a region. */
static int
format(struct region *region, const struct options *options)
{
	struct layout_superblock *sb = region->superblock = pool_base(region->pool);
	struct layout_superblock made = {
		.region_id = region->region_id,
		.epoch = region->epoch,
		.next_serial = region->first_serial,
	};
	layout_to_superblock(&region->layout, &made); /* last: it computes the checksum */
	memcpy((char *)sb + sizeof(sb->magic), (char *)&made + sizeof(made.magic),
	       sizeof(made) - sizeof(made.magic));
	int rc = options->restore[0] ? restore(region, options->restore) : 0;
	if (rc)
		return rc;
	atomic_thread_fence(memory_order_release);
	sb->magic = made.magic;
	if (region->file)
		warm_begin_first(region);
	return 0;
}

/* ---- Which fabric ---- */

/* Is it an address of one network, so that an RDMA device may carry the same one? */
static bool
is_specific(const char *host)
{
	return strncmp(host, "127.", 4) != 0 && strcmp(host, "::1") != 0 &&
	       strcmp(host, "0.0.0.0") != 0 && strcmp(host, "::") != 0;
}

/* The device that options ask for; else one that carries the control port's address; else any. */
static int
open_device(struct region *region, const struct options *options, const struct net_address *listen,
	    char reason[VERBS_REASON_MAX])
{
	struct verbs_choice choice = {.address = options->rdma_address};
	snprintf(choice.name, sizeof(choice.name), "%s", options->rdma_device);
	if (!choice.address.host[0] && is_specific(listen->host)) {
		memcpy(choice.address.host, listen->host, sizeof(choice.address.host));
		if (verbs_device_open(&choice, &region->device, reason) == 0)
			return 0;
		choice.address.host[0] = '\0';
	}
	return verbs_device_open(&choice, &region->device, reason);
}

/* It is said why there is no verbs; a failure if the options ask for it. */
static int
go_without_verbs(const struct region *region, const struct options *options, int rc,
		 const char *reason)
{
	if (options_want_verbs(options)) {
		log_line(region->log, LOG_ERROR,
			 "fabric verbs: %s; or serve without RDMA: --fabric soft", reason);
		return rc;
	}
	log_line(region->log, LOG_INFO,
		 "fabric soft: shm for clients on this host, tcp for others; no RDMA: %s", reason);
	return 0;
}

int
region_choose(struct region *region, const struct options *options,
	      const struct net_address *listen, const struct log *log)
{
	char reason[VERBS_REASON_MAX];
	memset(region, 0, sizeof(*region));
	region->log = log;
	if (options_are_soft(options))
		return 0;
	int rc = open_device(region, options, listen, reason);
	if (rc)
		return go_without_verbs(region, options, rc, reason);
	log_line(log, LOG_INFO, "fabric verbs: %s", verbs_device_text(region->device));
	return 0;
}

/* ---- Opening it ---- */

static void
close_loopback(struct region *region)
{
	struct fab_endpoint *ep = region->loopback;
	if (!ep)
		return;
	region->loopback = NULL;
	if (region->verbs)
		verbs_loopback_close(ep);
	else
		shm_loopback_close(ep);
}

static void
close_verbs(struct region *region)
{
	close_loopback(region);
	verbs_server_destroy(region->verbs);
	verbs_device_close(region->device);
	region->verbs = NULL;
	region->device = NULL;
}

static int
open_loopback(struct region *region, char reason[VERBS_REASON_MAX])
{
	int rc;
	snprintf(reason, VERBS_REASON_MAX, "no memory is left");
	if (region->verbs)
		rc = verbs_loopback(region->verbs, LAYOUT_SCRATCH_OFF, &region->loopback, reason);
	else
		rc = shm_loopback(region->share, &region->loopback);
	if (rc)
		return rc;
	struct fab *fab = region->loopback->region->fab;
	rc = fab_register(fab, region->found, LAYOUT_PAGE, &region->found_key);
	if (rc) {
		snprintf(reason, VERBS_REASON_MAX, "a page cannot be registered: %s", err_str(rc));
		close_loopback(region);
	}
	return rc;
}

/* What is registered counts as locked. */
static void
raise_locked_memory(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_MEMLOCK, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_MEMLOCK, &limit); /* if it does not suffice, registering says so */
}

/* Registers whole pages of the pool's, so that no registration ends inside a huge one. */
static int
open_verbs(struct region *region, const struct verbs_events *events, char reason[VERBS_REASON_MAX])
{
	if (region->file && !region->file->is_memory) {
		snprintf(
			reason, VERBS_REASON_MAX,
			"an RDMA device cannot hold a pool in a file on a disk: put --pool-file on "
			"a tmpfs (/dev/shm) or hugetlbfs");
		close_verbs(region);
		return ERR_INVALID;
	}
	raise_locked_memory();
	int rc = verbs_server_create(region->device, pool_base(region->pool),
				     pool_room(region->pool), events, region->log, &region->verbs,
				     reason);
	if (rc == 0)
		rc = open_loopback(region, reason);
	if (rc)
		close_verbs(region);
	return rc;
}

static int
open_tcp(struct region *region, unsigned n_threads, const struct tcp_events *events)
{
	char reason[TCP_REASON_MAX];
	const struct tcp_options options = {
		.n_responders = n_threads,
		.stall_ms = LIMIT_TCP_STALL_MS,
	};
	int rc = tcp_server_create(pool_base(region->pool), region->layout.region_len, events,
				   &options, &region->tcp, reason);
	if (rc)
		log_line(region->log, LOG_ERROR, "fabric tcp: %s", reason);
	return rc;
}

/* The server's own endpoint is one of shm, whoever else may map the pool. */
static int
open_soft(struct region *region, const struct options *options, const struct tcp_events *events)
{
	char reason[VERBS_REASON_MAX];
	int rc = shm_share_create(region->pool, region->log, &region->share);
	if (rc)
		return rc;
	region->is_mapped = options->fabric != OPTIONS_TCP;
	rc = open_loopback(region, reason);
	if (rc)
		log_line(region->log, LOG_ERROR, "cannot reach the server's own pool: %s", reason);
	if (rc == 0 && options->fabric != OPTIONS_SHM)
		rc = open_tcp(region, options->tcp_threads, events);
	return rc;
}

/* Over verbs if a device was chosen, and it can. */
static int
open_to_clients(struct region *region, const struct options *options,
		const struct region_events *events)
{
	char reason[VERBS_REASON_MAX];
	if (region->device) {
		int rc = open_verbs(region, &events->verbs, reason);
		if (rc)
			rc = go_without_verbs(region, options, rc, reason);
		if (rc || region->verbs)
			return rc;
	}
	return open_soft(region, options, &events->tcp);
}

static int
map_found(struct region *region)
{
	void *page =
		mmap(NULL, LAYOUT_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED) {
		log_line(region->log, LOG_ERROR, "no memory is left");
		return ERR_NOMEM;
	}
	(void)madvise(page, LAYOUT_PAGE, MADV_DONTFORK);
	region->found = page;
	return 0;
}

/* In memory that ends with this process and those that map it. */
static int
create_in_memory(struct region *region, const struct options *options)
{
	int rc = make_identity(region);
	if (rc) {
		log_line(region->log, LOG_ERROR, "no random numbers from the kernel (getrandom)");
		return rc;
	}
	int node = region->device ? verbs_device_numa_node(region->device) : POOL_NODE_ANY;
	rc = pool_create(region->layout.region_len, options->huge_pages, node, region->log,
			 &region->pool);
	if (rc)
		return rc;
	return format(region, options);
}

/* In a file, that has a region already or gets one. */
static int
create_in_file(struct region *region, const struct options *options)
{
	char reason[POOL_FILE_REASON_MAX];
	enum warm_kind kind;
	int rc = warm_judge(region->file, options, &kind, reason);
	if (rc) {
		log_line(region->log, LOG_ERROR, "%s", reason);
		return rc;
	}
	if (kind == WARM_UNFINISHED)
		log_line(region->log, LOG_WARN, "%s was left half formatted: formatting it again",
			 region->file->path);
	rc = kind == WARM_FORMER ? 0 : make_identity(region);
	if (rc == 0)
		rc = pool_file_take(region->file, region->layout.region_len, kind != WARM_FORMER,
				    region->log, &region->pool);
	if (rc)
		return rc;
	if (kind != WARM_FORMER)
		return format(region, options);
	region->superblock = pool_base(region->pool);
	return warm_begin_next(region);
}

int
region_create(struct region *region, const struct options *options,
	      const struct region_events *events)
{
	region->layout = options->layout;
	int rc = map_found(region);
	if (rc == 0)
		rc = region->file ? create_in_file(region, options)
				  : create_in_memory(region, options);
	return rc ? rc : open_to_clients(region, options, events);
}

void
region_destroy(struct region *region)
{
	tcp_server_destroy(region->tcp);
	close_verbs(region);
	shm_share_destroy(region->share);
	if (region->n_lives)
		warm_end(region);
	pool_destroy(region->pool);
	if (region->found)
		munmap(region->found, LAYOUT_PAGE);
	memset(region, 0, sizeof(*region));
}

/* ---- What it is ---- */

const char *
region_fabric(const struct region *region)
{
	if (region->verbs)
		return "verbs";
	if (region->is_mapped && region->tcp)
		return "soft";
	return region->tcp ? "tcp" : "shm";
}

void
region_offer(const struct region *region, struct fab_offer *ret_offer)
{
	*ret_offer = (struct fab_offer){0};
	if (region->verbs)
		verbs_server_offer(region->verbs, ret_offer);
}

uint64_t
region_word(const struct region *region, uint64_t off)
{
	const char *base = pool_base(region->pool);
	const _Atomic uint64_t *word = (const void *)(base + off);
	return atomic_load_explicit(word, memory_order_relaxed);
}

/* Posts one operation on the loop-back endpoint and waits for it. */
static int
execute(struct region *region, const struct fab_op *op)
{
	struct fab_endpoint *ep = region->loopback;
	struct fab *fab = ep->region->fab;
	struct fab_done done;
	int64_t deadline_ns = fab_now(fab) + CAS_NS;
	int rc = fab_post(ep, op, 1, NULL);
	while (rc == 0 && fab_poll(ep, &done, 1) == 0) {
		if (fab_now(fab) >= deadline_ns)
			return ERR_TIMEOUT;
		fab_wait(ep, deadline_ns);
	}
	if (rc == 0)
		rc = done.status;
	return rc > 0 ? ERR_CONN : rc;
}

/*
 * Another endpoint after one that failed. The loop waits while it is tried, and every client with
 * it: after a try that fails comes a pause that is ten times as long.
 */
static int
reopen_loopback(struct region *region)
{
	char reason[VERBS_REASON_MAX];
	int64_t began_ns = clock_now_ns();
	if (region->loopback)
		return 0;
	if (began_ns < region->loopback_ns)
		return ERR_CONN;
	if (open_loopback(region, reason) == 0)
		return 0;
	int64_t now_ns = clock_now_ns();
	region->loopback_ns = now_ns + LOOPBACK_PAUSE_NS + 10 * (now_ns - began_ns);
	log_line(region->log, LOG_ERROR, "cannot reach the server's own region: %s", reason);
	return ERR_CONN;
}

int
region_cas(struct region *region, uint64_t off, uint64_t expect, uint64_t swap, uint64_t *ret_found)
{
	if (reopen_loopback(region))
		return ERR_CONN;
	const struct fab_op op = {
		.kind = FAB_CAS,
		.roff = off,
		.piece = {{region->found, sizeof(*region->found), region->found_key}},
		.expect = expect,
		.swap = swap,
	};
	int rc = execute(region, &op);
	if (rc)
		close_loopback(region); /* what it still had in flight touches nothing any more */
	else
		*ret_found = *region->found;
	return rc;
}

/* A byte of the free map is nobody's word: a store of the CPU does, as a WRITE of a client's. */
void
region_mark(struct region *region, uint64_t block_off, uint32_t tag)
{
	char *base = pool_base(region->pool);
	_Atomic uint8_t *entry = (void *)(base + layout_map_off(&region->layout, block_off));
	atomic_store_explicit(entry, layout_mark(tag), memory_order_release); /* [MARK] */
}

void
region_hint(struct region *region, uint64_t block_off, uint16_t hint)
{
	char *base = pool_base(region->pool);
	_Atomic uint16_t *at = (void *)(base + layout_hint_off(&region->layout, block_off));
	atomic_store_explicit(at, hint, memory_order_relaxed); /* [HINT] */
}
