/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Statistics: stats.h. The names:
 *
 *   version                release of the server
 *   uptime_s               seconds since it began to serve
 *   pid                    its process
 *   fabric                 how clients reach the region: shm or verbs
 *   rdma_device            verbs: device, port, GID and limits; else "none"
 *   rdma_address           where clients connect over verbs, or "none"
 *   region_id, epoch       of the region, hexadecimal and decimal
 *   pool_bytes             size of the pool
 *   chunk_size             bytes of a chunk
 *   chunks_total           chunks of the heap
 *   chunks_free            nobody's, by the last complete look at the chunk table (every tick, or
 *   chunks_owned            several ticks on tables above a million chunks); owned by sessions;
 *   chunks_orphan           left by sessions that died;
 *   chunks_left             left in good order
 *   chunks_taken           descriptors taken from sessions that were over, since the start
 *   chunks_short           1: clients are asked to give chunks back
 *   index_slots            slots of the index
 *   index_used             slots that are not empty, by the last complete pass of a slow scan
 *   index_passes           such passes since the start; while 0, index_used says nothing
 *   connections            open control connections, also before their hello
 *   clients                open control connections after their hello
 *   sessions               living sessions
 *   sessions_lingering     of them, sessions of processes whose control connection is closed
 *   sessions_ending        over, but their chunks not yet looked after
 *   sessions_joined        since the start
 *   sessions_left          closed in good order
 *   sessions_died          ended in another way
 *   serial_next            serial of the next session
 *   stamp_newest           newest stamp
 *   stamp_g                G: what is older has passed
 *   stamp_holder_pid       process that has mapped the pool and holds G back; 0: none does
 *   connections_accepted   since the start
 *   connections_turned_away  for want of file descriptors
 *   connections_expired    dropped because the peer was silent for too long
 *   handshakes_welcomed    hellos that were answered with a welcome
 *   handshakes_refused     connections refused before or at their hello
 *   messages               messages understood
 *   messages_garbage       what was not understood after a hello; the connection was closed
 *   peers                  connections that clients have to the region over verbs
 *   peers_admitted         since the start
 *   peers_refused          connections without a valid token or session
 *   peers_lost             connections that clients ended, or that broke
 *   pools_given            pool descriptors handed to processes
 *   pools_refused          requests on the unix socket that were not valid
 *   cpu_us                 processor time that the server took, all threads, since its start
 */
#include "server/stats.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "common/clock.h"
#include "server/service.h"
#include "server/release.h"

struct value {
	const char *name;
	uint64_t value;
};

static size_t
append_values(char *text, size_t max, size_t len, const struct value *values, size_t n)
{
	for (size_t i = 0; i < n && len < max; i++)
		len += (size_t)snprintf(text + len, max - len, "%s %" PRIu64 "\n", values[i].name,
					values[i].value);
	return len < max ? len : max - 1;
}

#define APPEND(text, max, len, values)                                                             \
	append_values(text, max, len, values, sizeof(values) / sizeof((values)[0]))

static size_t
append_region(const struct service *service, char *text, size_t max, size_t len)
{
	const struct layout *layout = &service->region->layout;
	const struct census *census = &service->census;
	const struct value values[] = {
		{"epoch", service->region->epoch},
		{"pool_bytes", layout->region_len},
		{"chunk_size", layout->chunk_size},
		{"chunks_total", layout->n_chunks},
		{"chunks_free", census->n_chunks[CHUNK_FREE]},
		{"chunks_owned", census->n_chunks[CHUNK_OWNED]},
		{"chunks_orphan", census->n_chunks[CHUNK_ORPHAN]},
		{"chunks_left", census->n_chunks[CHUNK_LEFT]},
		{"chunks_taken", census->n_taken},
		{"chunks_short", census_chunks_short(census)},
		{"index_slots", layout->n_groups * LAYOUT_GROUP_SLOTS},
		{"index_used", census->n_used},
		{"index_passes", census->n_index_passes},
	};
	return APPEND(text, max, len, values);
}

static size_t
append_sessions(struct service *service, char *text, size_t max, size_t len)
{
	struct sessions *sessions = &service->sessions;
	const struct value values[] = {
		{"connections", service->n_connections},
		{"clients", service->n_clients},
		{"sessions", sessions->n_living},
		{"sessions_lingering", sessions_lingering(sessions)},
		{"sessions_ending", sessions->n_ending},
		{"sessions_joined", sessions->n_joined},
		{"sessions_left", sessions->n_left},
		{"sessions_died", sessions->n_died},
		{"serial_next", sessions->next_serial},
		{"stamp_newest", sessions->newest},
		{"stamp_g", sessions_g(sessions)},
		{"stamp_holder_pid", (uint64_t)sessions_holder_pid(sessions)},
	};
	return APPEND(text, max, len, values);
}

static uint64_t
cpu_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static size_t
append_traffic(const struct service *service, char *text, size_t max, size_t len)
{
	const struct handout *handout = &service->handout;
	const struct peers *peers = service->peers;
	const struct value values[] = {
		{"connections_accepted", service->n_accepted},
		{"connections_turned_away", service->listener.n_refused},
		{"connections_expired", service->greeting.n_expired + service->talking.n_expired},
		{"handshakes_welcomed", service->n_welcomed},
		{"handshakes_refused", service->n_handshakes_refused},
		{"messages", service->n_messages},
		{"messages_garbage", service->n_garbage},
		{"peers", peers->n},
		{"peers_admitted", peers->n_admitted},
		{"peers_refused", peers->n_refused},
		{"peers_lost", peers->n_lost},
		{"pools_given", handout->n_given},
		{"pools_refused", handout->n_refused},
		{"cpu_us", cpu_us()},
	};
	return APPEND(text, max, len, values);
}

static size_t
append_fabric(const struct service *service, char *text, size_t max)
{
	const struct region *region = service->region;
	struct fab_offer offer;
	region_offer(region, &offer);
	int len = snprintf(
		text, max, "fabric %s\nrdma_device %s\nrdma_address %.*s\n", region_fabric(region),
		region->verbs ? verbs_device_text(region->device) : "none",
		(int)sizeof(offer.verbs_address), region->verbs ? offer.verbs_address : "none");
	return (size_t)len < max ? (size_t)len : max - 1;
}

size_t
stats_text(struct service *service, char *ret_text, size_t max)
{
	int64_t uptime_ns = clock_now_ns() - service->started_ns;
	size_t len = (size_t)snprintf(ret_text, max,
				      "version %s\nuptime_s %" PRId64
				      "\npid %d\nregion_id %016" PRIx64 "\n",
				      release_version, uptime_ns / CLOCK_NS_PER_S, (int)getpid(),
				      service->region->region_id);
	len += append_fabric(service, ret_text + len, max - len);
	len = append_region(service, ret_text, max, len);
	len = append_sessions(service, ret_text, max, len);
	return append_traffic(service, ret_text, max, len);
}
