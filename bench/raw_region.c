/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread waits for who comes to fetch the memory; when all have come it sleeps, as the near
 * side's CPU, the device or a responder moves the bytes.
 */
#include "bench/raw_region.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fabric_shm.h"
#include "common/fabric_tcp.h"
#include "common/fabric_verbs.h"
#include "common/net.h"
#include "common/pool.h"

#define BACKLOG 64

struct raw_region {
	const struct region_driver *driver;
	const struct log *log;
	struct pool *pool;
	struct shm_share *share;     /* shm */
	struct verbs_device *device; /* verbs */
	struct verbs_server *server; /* verbs */
	struct verbs_events events;  /* verbs */
	struct tcp_server *tcp;      /* tcp */
	struct fab_offer offer;
	int fd; /* readable when serve has something to do */
	int stop_fd;
	pthread_t thread;
	bool has_thread;
};

struct region_driver {
	/* The log has a sentence for each failure. */
	int (*listen)(struct raw_region *region, const struct raw_place *place);
	void (*serve)(struct raw_region *region);
	void (*unlisten)(struct raw_region *region);
	int (*open_fabric)(const struct raw_region *region, struct fab **ret_fab);
};

/* ---- Shared memory ---- */

static int
shm_listen(struct raw_region *region, const struct raw_place *place)
{
	char reason[NET_REASON_MAX];
	(void)place;
	if (getrandom(region->offer.token, sizeof(region->offer.token), 0) < 0)
		return ERR_NOMEM;
	snprintf(region->offer.unix_path, sizeof(region->offer.unix_path), "@kv-bench-%d",
		 (int)getpid());
	int r = shm_share_create(region->pool, region->log, &region->share);
	if (r)
		return r;
	r = net_unix_listen(region->offer.unix_path, BACKLOG, &region->fd, reason);
	if (r)
		log_line(region->log, LOG_ERROR, "%s", reason);
	return r;
}

static void
shm_serve(struct raw_region *region)
{
	unsigned char token[SHM_REQUEST_LEN];
	int fd = accept4(region->fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		return;
	if (recv(fd, token, sizeof(token), MSG_WAITALL) == (ssize_t)sizeof(token) &&
	    memcmp(token, region->offer.token, sizeof(token)) == 0)
		shm_share_send(region->share, fd, getpid(), false);
	close(fd);
}

static void
shm_unlisten(struct raw_region *region)
{
	if (region->fd >= 0)
		close(region->fd);
	shm_share_destroy(region->share);
}

static int
shm_near(const struct raw_region *region, struct fab **ret_fab)
{
	(void)region;
	return shm_open_fabric(ret_fab);
}

/* ---- Verbs ---- */

/* Everybody is welcome: nobody knows this region but its own benchmark. */
static int
admit(void *arg, const struct wire_cm_request *request, struct verbs_peer *peer,
      char reason[sizeof(((struct wire_cm_reject *)NULL)->reason)])
{
	(void)arg;
	(void)request;
	(void)peer;
	(void)reason;
	return 0;
}

static void
lost(void *arg, struct verbs_peer *peer)
{
	(void)arg;
	(void)peer;
}

static int
choose(struct raw_region *region, const char *address, struct verbs_choice *ret_choice)
{
	char reason[NET_REASON_MAX];
	unsigned n;
	*ret_choice = (struct verbs_choice){0};
	if (address == NULL)
		return 0;
	int r = net_parse(address, 0, &ret_choice->address, 1, &n, reason);
	if (r == 0 && n == 1)
		return 0;
	log_line(region->log, LOG_ERROR, "--rdma-address %s: %s", address,
		 r ? reason : "one address is served at, not several");
	return ERR_INVALID;
}

static int
verbs_listen(struct raw_region *region, const struct raw_place *place)
{
	char reason[VERBS_REASON_MAX];
	struct verbs_choice choice;
	int r = choose(region, place->rdma_address, &choice);
	if (r)
		return r;
	region->events = (struct verbs_events){admit, lost, region};
	r = verbs_device_open(&choice, &region->device, reason);
	if (r == 0)
		r = verbs_server_create(region->device, pool_base(region->pool),
					pool_room(region->pool), &region->events, region->log,
					&region->server, reason);
	if (r) {
		log_line(region->log, LOG_ERROR, "%s", reason);
		return r;
	}
	verbs_server_offer(region->server, &region->offer);
	region->fd = verbs_server_fd(region->server);
	return 0;
}

static void
verbs_serve(struct raw_region *region)
{
	verbs_server_dispatch(region->server);
}

static void
verbs_unlisten(struct raw_region *region)
{
	verbs_server_destroy(region->server);
	verbs_device_close(region->device);
}

static int
verbs_near(const struct raw_region *region, struct fab **ret_fab)
{
	return verbs_open_fabric(region->log, ret_fab);
}

/* ---- TCP ---- */

static int
admit_tcp(void *arg, const struct wire_cm_request *request, struct tcp_peer *peer,
	  char reason[sizeof(((struct wire_cm_reject *)NULL)->reason)])
{
	const struct raw_region *region = arg;
	(void)peer;
	if (memcmp(request->token, region->offer.token, sizeof(request->token)) == 0)
		return 0;
	snprintf(reason, sizeof(((struct wire_cm_reject *)NULL)->reason),
		 "this memory is a benchmark's");
	return ERR_PERM;
}

static void
lost_tcp(void *arg, struct tcp_peer *peer)
{
	(void)arg;
	(void)peer;
}

/* One responder, as one thread runs the benchmark by default. */
static int
tcp_listen(struct raw_region *region, const struct raw_place *place)
{
	const struct net_address address = {.host = "127.0.0.1"};
	const struct tcp_events events = {admit_tcp, lost_tcp, region};
	const struct tcp_options options = {.n_responders = 1, .stall_ms = LIMIT_TCP_STALL_MS};
	char reason[TCP_REASON_MAX];
	struct net_address bound;
	(void)place;
	if (getrandom(region->offer.token, sizeof(region->offer.token), 0) < 0)
		return ERR_NOMEM;
	int r = net_listen(&address, BACKLOG, &region->fd, &bound, reason);
	if (r == 0)
		r = tcp_server_create(pool_base(region->pool), region->offer.len, &events, &options,
				      &region->tcp, reason);
	if (r) {
		log_line(region->log, LOG_ERROR, "%s", reason);
		return r;
	}
	tcp_server_offer(region->tcp, &region->offer);
	net_format(&bound, region->offer.tcp_address);
	return 0;
}

static void
tcp_serve(struct raw_region *region)
{
	tcp_server_accept(region->tcp, region->fd);
}

static void
tcp_unlisten(struct raw_region *region)
{
	if (region->fd >= 0)
		close(region->fd);
	tcp_server_destroy(region->tcp);
}

static int
tcp_near(const struct raw_region *region, struct fab **ret_fab)
{
	return tcp_open_fabric(region->log, ret_fab);
}

static const struct region_driver drivers[] = {
	[RKV_FABRIC_SHM] = {shm_listen, shm_serve, shm_unlisten, shm_near},
	[RKV_FABRIC_VERBS] = {verbs_listen, verbs_serve, verbs_unlisten, verbs_near},
	[RKV_FABRIC_TCP] = {tcp_listen, tcp_serve, tcp_unlisten, tcp_near},
};

/* ---- Any fabric ---- */

static void *
thread_main(void *arg)
{
	struct raw_region *region = arg;
	struct pollfd fds[2] = {
		{.fd = region->fd, .events = POLLIN},
		{.fd = region->stop_fd, .events = POLLIN},
	};
	while (fds[1].revents == 0) {
		if (poll(fds, 2, -1) > 0 && fds[0].revents)
			region->driver->serve(region);
	}
	return NULL;
}

static int
start_thread(struct raw_region *region)
{
	region->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (region->stop_fd < 0 ||
	    pthread_create(&region->thread, NULL, thread_main, region) != 0) {
		log_line(region->log, LOG_ERROR, "no descriptor or thread is left");
		return ERR_NOMEM;
	}
	region->has_thread = true;
	return 0;
}

int
raw_region_create(const struct raw_place *place, size_t len, const struct log *log,
		  struct raw_region **ret_region)
{
	struct raw_region *region = calloc(1, sizeof(*region));
	if (region == NULL)
		return ERR_NOMEM;
	region->driver = &drivers[place->fabric];
	region->log = log;
	region->fd = region->stop_fd = -1;
	region->offer.len = len;
	int r = pool_create(len, POOL_HUGE_NO, POOL_NODE_ANY, log, &region->pool);
	if (r)
		goto fail;
	r = region->driver->listen(region, place);
	if (r)
		goto fail;
	r = start_thread(region);
	if (r)
		goto fail;
	*ret_region = region;
	return 0;
fail:
	raw_region_destroy(region);
	return r;
}

void
raw_region_destroy(struct raw_region *region)
{
	if (region == NULL)
		return;
	if (region->has_thread) {
		eventfd_write(region->stop_fd, 1);
		pthread_join(region->thread, NULL);
	}
	region->driver->unlisten(region);
	pool_destroy(region->pool);
	if (region->stop_fd >= 0)
		close(region->stop_fd);
	free(region);
}

const struct fab_offer *
raw_region_offer(const struct raw_region *region)
{
	return &region->offer;
}

int
raw_region_fabric(const struct raw_region *region, struct fab **ret_fab)
{
	return region->driver->open_fabric(region, ret_fab);
}
