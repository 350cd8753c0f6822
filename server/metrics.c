/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of metrics: metrics.h. Each function below holds the rows of one subject. */
#include "server/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "server/release.h"
#include "server/service.h"

struct visit {
	struct service *service; /* or */
	struct store *store;
	void (*take)(void *arg, const struct metric *metric);
	void *arg;
};

#define G METRIC_GAUGE
#define C METRIC_COUNTER

static void
show(const struct visit *v, const struct metric *metrics, size_t n)
{
	for (size_t i = 0; i < n; i++)
		v->take(v->arg, &metrics[i]);
}
#define SHOW(visit, metrics) show(visit, metrics, sizeof(metrics) / sizeof(*(metrics)))

static uint64_t
cpu_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void
show_process(const struct visit *v)
{
	const struct service *service = v->service;
	const struct metric metrics[] = {
		{"uptime_s", "rkv_uptime_seconds", NULL, G, 0,
		 (uint64_t)((clock_now_ns() - service->started_ns) / CLOCK_NS_PER_S),
		 "Time since the server began to serve."},
		{"pid", "rkv_server_pid", NULL, G, 0, (uint64_t)getpid(), "Process of the server."},
		{"cpu_us", "rkv_cpu_seconds_total", NULL, C, 6, cpu_us(),
		 "Processor time that the server took since its start, all threads."},
	};
	SHOW(v, metrics);
}

static void
show_region(const struct visit *v)
{
	const struct region *region = v->store->region;
	const struct layout *layout = &region->layout;
	const struct metric metrics[] = {
		{"epoch", "rkv_region_epoch_seconds", NULL, G, 9, region->epoch,
		 "Epoch of the region: when it began, in seconds since 1970."},
		{"pool_bytes", "rkv_pool_bytes", NULL, G, 0, layout->region_len,
		 "Size of the pool."},
		{"pool_file", "rkv_pool_in_file", NULL, G, 0, region->file != NULL,
		 "1: the pool is in a file, and outlives the server."},
		{"pool_lives", "rkv_pool_lives", NULL, G, 0, region->n_lives,
		 "Servers that have served the pool file, this one too; 0: there is none."},
		{"pool_waited_ms", "rkv_pool_waited_seconds", NULL, G, 3, region->waited_ms,
		 "How long the start waited for clients of the server before."},
		{"chunk_size", "rkv_chunk_size_bytes", NULL, G, 0, layout->chunk_size,
		 "Size of a chunk."},
	};
	SHOW(v, metrics);
}

static void
show_chunks(const struct visit *v)
{
	static const char *const help =
		"Chunks of the pool by state: nobody's, of a living session, of a session that "
		"died, of one that was closed in good order.";
	const struct census *census = &v->store->census;
	const uint64_t *n = census->n_chunks;
	const struct metric metrics[] = {
		{"chunks_total", "rkv_heap_chunks", NULL, G, 0, census->region->layout.n_chunks,
		 "Chunks that the pool has for values."},
		{"chunks_free", "rkv_chunks", "state=\"free\"", G, 0, n[CHUNK_FREE], help},
		{"chunks_owned", "rkv_chunks", "state=\"owned\"", G, 0, n[CHUNK_OWNED], help},
		{"chunks_orphan", "rkv_chunks", "state=\"orphan\"", G, 0, n[CHUNK_ORPHAN], help},
		{"chunks_left", "rkv_chunks", "state=\"left\"", G, 0, n[CHUNK_LEFT], help},
		{"chunks_taken", "rkv_chunks_taken_total", NULL, C, 0, census->n_taken,
		 "Chunks taken from sessions that were over."},
		{"chunks_short", "rkv_chunks_short", NULL, G, 0, census_chunks_short(census),
		 "1 while clients are asked to give chunks back, as few are free."},
	};
	SHOW(v, metrics);
}

/* A row for each size class that has a chunk. */
static void
show_class_chunks(const struct visit *v)
{
	const struct census *census = &v->store->census;
	const struct layout *layout = &census->region->layout;
	char label[64];
	struct metric m = {.name = "rkv_class_chunk_bytes",
			   .label = label,
			   .help = "Memory of the chunks that are used for blocks of a size."};
	for (uint32_t c = 0; c <= layout_max_class(layout); c++) {
		snprintf(label, sizeof(label), "class=\"%u\"",
			 layout_class_granules(c) * LIMIT_GRANULE);
		m.value = census->class_chunks[c] * layout->chunk_size;
		if (m.value)
			v->take(v->arg, &m);
	}
}

/* What is live is counted in the index, all else by the scrubber. */
static uint64_t
block_bytes(const struct store *store, uint32_t class_id, enum blocks_kind kind)
{
	if (kind == BLOCKS_LIVE)
		return store->census.class_live[class_id] * layout_class_granules(class_id) *
		       LIMIT_GRANULE;
	return store->scrub.tally.bytes[class_id][kind];
}

/* The classes in which there is some, and the sum, unless nobody has counted yet. */
static void
show_blocks_of_kind(const struct visit *v, enum blocks_kind kind, const char *state)
{
	const struct store *store = v->store;
	char label[64], stat[64];
	uint64_t sum = 0;
	struct metric m = {.stat = stat,
			   .name = "rkv_block_bytes",
			   .label = label,
			   .help = "Memory of blocks by size, and by what is in their place."};
	if (kind != BLOCKS_LIVE && store->scrub.tally.moment == 0)
		return;
	for (uint32_t c = 0; c <= layout_max_class(&store->region->layout); c++) {
		uint32_t len = layout_class_granules(c) * LIMIT_GRANULE;
		m.value = block_bytes(store, c, kind);
		sum += m.value;
		if (m.value == 0)
			continue;
		snprintf(label, sizeof(label), "class=\"%u\",state=\"%s\"", len, state);
		snprintf(stat, sizeof(stat), "bytes_%s_%u", state, len);
		v->take(v->arg, &m);
	}
	snprintf(stat, sizeof(stat), "bytes_%s", state);
	v->take(v->arg, &(struct metric){.stat = stat, .value = sum});
}

static void
show_blocks(const struct visit *v)
{
	const struct store *store = v->store;
	uint64_t newest = store->sessions.newest, moment = store->scrub.tally.moment;
	show_blocks_of_kind(v, BLOCKS_LIVE, "live");
	show_blocks_of_kind(v, BLOCKS_FREE, "free");
	show_blocks_of_kind(v, BLOCKS_RESTING, "resting");
	show_blocks_of_kind(v, BLOCKS_LOOSE, "garbage");
	show_blocks_of_kind(v, BLOCKS_TENTATIVE, "tentative");
	const struct metric metrics[] = {
		{"blocks_age_ms", "rkv_block_bytes_age_seconds", NULL, G, 3,
		 newest > moment ? (newest - moment) * LIMIT_STAMP_MS : 0,
		 "Time since the scrubber had counted the last of them but the live ones."},
	};
	if (moment)
		SHOW(v, metrics);
}

static void
show_index(const struct visit *v)
{
	const struct census *census = &v->store->census;
	const struct metric metrics[] = {
		{"index_slots", "rkv_index_slots", NULL, G, 0,
		 census->region->layout.n_groups * LAYOUT_GROUP_SLOTS,
		 "Keys the index has room for, at best."},
		{"index_used", "rkv_index_slots_used", NULL, G, 0, census->n_used,
		 "Slots of the index that are not empty, by the last pass of a slow count."},
		{"index_passes", "rkv_index_passes_total", NULL, C, 0, census->n_index_passes,
		 "Such passes; before the first one the counts of slots and blocks say nothing."},
	};
	SHOW(v, metrics);
}

static void
show_sessions(const struct visit *v)
{
	struct sessions *s = &v->store->sessions;
	static const char *const over = "Sessions that ended: closed in good order, or otherwise.";
	const struct metric metrics[] = {
		{"sessions", "rkv_sessions", NULL, G, 0, s->n_living, "Living sessions."},
		{"sessions_lingering", "rkv_sessions_lingering", NULL, G, 0, sessions_lingering(s),
		 "Living sessions whose process has no control connection any more."},
		{"sessions_ending", "rkv_sessions_ending", NULL, G, 0, s->n_ending,
		 "Sessions that are over, but whose chunks are not yet looked after."},
		{"sessions_joined", "rkv_sessions_joined_total", NULL, C, 0, s->n_joined,
		 "Sessions that were opened."},
		{"sessions_left", "rkv_sessions_over_total", "how=\"left\"", C, 0, s->n_left, over},
		{"sessions_died", "rkv_sessions_over_total", "how=\"died\"", C, 0, s->n_died, over},
		{"serial_next", "rkv_session_serial_next", NULL, G, 0, s->next_serial,
		 "Serial of the next session."},
	};
	SHOW(v, metrics);
}

static void
show_stamps(const struct visit *v)
{
	struct sessions *s = &v->store->sessions;
	const struct session *holder = sessions_holder(s);
	const struct metric metrics[] = {
		{"stamp_newest", "rkv_stamp_newest", NULL, G, 0, s->newest,
		 "Newest stamp; one is issued ten times a second."},
		{"stamp_g", "rkv_stamp_g", NULL, G, 0, sessions_g(s),
		 "What is older than this stamp has passed: memory freed before may be used "
		 "again."},
		{"stamp_lag_ms", "rkv_stamp_lag_seconds", NULL, G, 3,
		 (s->newest - sessions_g(s)) * LIMIT_STAMP_MS,
		 "How far G is behind; with busy sessions about ten seconds."},
		{"stamp_holder_session", "rkv_stamp_holder_session", NULL, G, 0,
		 holder ? holder->slot : 0,
		 "Session that holds G back for longer than a healthy one does; 0: none."},
		{"stamp_holder_pid", "rkv_stamp_holder_pid", NULL, G, 0,
		 holder && holder->owner ? (uint64_t)holder->owner->pid : 0,
		 "Its process, if that has mapped the pool; 0: none, or not known."},
	};
	SHOW(v, metrics);
}

static void
show_scrubber(const struct visit *v)
{
	const struct scrub *scrub = &v->store->scrub;
	const struct scrub_counts *counts = &scrub->counts;
	static const char *const passes =
		"Passes of the scrubber: through all that is stored, or what dead sessions had.";
	const struct metric metrics[] = {
		{"scrub_rate_mib", "rkv_scrub_rate_mib", NULL, G, 0, v->store->scrub_rate,
		 "MiB that the scrubber looks through a second; 0: it is off."},
		{"scrub_idle", "rkv_scrub_idle", NULL, G, 0, store_scrub_is_idle(v->store),
		 "1 when a pass that began after the last session had ended found nothing to "
		 "mend."},
		{"scrub_passes", "rkv_scrub_passes_total", "of=\"all\"", C, 0, counts->n_passes,
		 passes},
		{"scrub_hurried", "rkv_scrub_passes_total", "of=\"dead\"", C, 0, counts->n_hurried,
		 passes},
		{"scrub_suspects", "rkv_scrub_suspects", NULL, G, 0,
		 scrub->n_suspects + scrub->n_words,
		 "Blocks and slots that wait for the scrubber's verdict."},
		{"scrub_kills", "rkv_scrub_kills_total", NULL, C, 0, counts->n_kills,
		 "Slots freed of keys whose insertion a dead client had begun."},
		{"scrub_blocks", "rkv_scrub_blocks_total", NULL, C, 0, counts->n_marked,
		 "Blocks of memory made available again, these included."},
		{"scrub_bytes", "rkv_scrub_bytes_total", NULL, C, 0, counts->n_marked_bytes,
		 "Bytes of such blocks."},
		{"scrub_doubts", "rkv_scrub_doubts_total", NULL, C, 0, counts->n_doubts,
		 "Times the server's own access to a slot failed with an outcome not known."},
		{"expired_values", "rkv_expired_values_total", NULL, C, 0, counts->n_expired,
		 "Values taken out because they had expired."},
		{"expired_bytes", "rkv_expired_bytes_total", NULL, C, 0, counts->n_expired_bytes,
		 "Bytes of memory of such values."},
	};
	SHOW(v, metrics);
}

static void
show_eviction(const struct visit *v)
{
	static const char *const why =
		"Values evicted: because they were not used for long, or their time was over.";
	const struct evict *evict = &v->store->evict;
	const struct metric metrics[] = {
		{"evictions_unused", "rkv_evictions_total", "why=\"unused\"", C, 0,
		 evict->n_evicted - evict->n_expired, why},
		{"evictions_expired", "rkv_evictions_total", "why=\"expired\"", C, 0,
		 evict->n_expired, why},
		{"eviction_age_ms", "rkv_eviction_age_seconds", NULL, G, 3,
		 evict->age * (uint64_t)LIMIT_STAMP_MS,
		 "For how long the values that were evicted last had not been used."},
		{"eviction_lacking", "rkv_eviction_lacking_blocks", NULL, G, 0,
		 evict->n_lacking + evict->n_crowding,
		 "Blocks that are still to be freed by eviction."},
		{"chunks_condemned", "rkv_chunks_condemned_total", NULL, C, 0, evict->n_condemned,
		 "Cold chunks that eviction has emptied, so that their owners give them back."},
		{"eviction_passes", "rkv_eviction_passes_total", NULL, C, 0, evict->n_passes,
		 "Times that eviction has counted all values."},
	};
	SHOW(v, metrics);
}

static void
show_connections(const struct visit *v)
{
	const struct service *service = v->service;
	static const char *const hello = "Hellos by answer; refused: also connections before it.";
	const struct metric metrics[] = {
		{"connections", "rkv_connections", NULL, G, 0, service->n_connections,
		 "Open control connections, also those that have not said hello."},
		{"clients", "rkv_clients", NULL, G, 0, service->n_clients,
		 "Open control connections after their hello."},
		{"connections_accepted", "rkv_connections_accepted_total", NULL, C, 0,
		 service->n_accepted, "Control connections that were accepted."},
		{"connections_turned_away", "rkv_connections_turned_away_total", NULL, C, 0,
		 service_turned_away(service), "Those refused for want of file descriptors."},
		{"connections_expired", "rkv_connections_expired_total", NULL, C, 0,
		 service->greeting.n_expired + service->talking.n_expired,
		 "Those closed because the peer was silent for too long."},
		{"handshakes_welcomed", "rkv_handshakes_total", "answer=\"welcome\"", C, 0,
		 service->n_welcomed, hello},
		{"handshakes_refused", "rkv_handshakes_total", "answer=\"refused\"", C, 0,
		 service->n_handshakes_refused, hello},
		{"messages", "rkv_messages_total", NULL, C, 0, service->n_messages,
		 "Control messages that were understood."},
		{"messages_garbage", "rkv_messages_garbage_total", NULL, C, 0, service->n_garbage,
		 "Control messages that were not; each closed its connection."},
		{"scrapes", "rkv_scrapes_total", NULL, C, 0, service->exporter.n_scrapes,
		 "Times that metrics were asked for over HTTP."},
		{"scrapes_refused", "rkv_scrapes_refused_total", NULL, C, 0,
		 service->exporter.n_refused,
		 "What else came on that port, and was refused or turned away."},
		{"pools_given", "rkv_pools_given_total", NULL, C, 0, service->handout.n_given,
		 "Times that a pool was handed to a process."},
		{"pools_refused", "rkv_pools_refused_total", NULL, C, 0, service->handout.n_refused,
		 "Requests for it that were not valid."},
	};
	SHOW(v, metrics);
}

static void
show_data_connections(const struct visit *v)
{
	const struct peers *peers = v->store->peers;
	const struct metric metrics[] = {
		{"peers", "rkv_peers", NULL, G, 0, peers->n,
		 "Connections that clients have to the pool over verbs or TCP."},
		{"peers_admitted", "rkv_peers_admitted_total", NULL, C, 0, peers->n_admitted,
		 "Such connections that were let in."},
		{"peers_refused", "rkv_peers_refused_total", NULL, C, 0, peers->n_refused,
		 "Such connections without a valid token or session."},
		{"peers_lost", "rkv_peers_lost_total", NULL, C, 0, peers->n_lost,
		 "Such connections that clients ended, or that broke."},
	};
	SHOW(v, metrics);
}

static void
show_snapshots(const struct visit *v)
{
	static const char *const result = "Snapshots that were begun and have ended.";
	const struct region *region = v->store->region;
	const struct snapshot *snapshot = &v->store->snapshot;
	const struct snapshot_account *good = &snapshot->good;
	int64_t age_ns = good->number ? clock_now_ns() - good->ended_ns : 0;
	const struct metric metrics[] = {
		{"restored_records", "rkv_restored_keys", NULL, G, 0, region->restored.n_records,
		 "Keys that the region began with, out of a snapshot."},
		{"snapshots_done", "rkv_snapshots_total", "result=\"done\"", C, 0, snapshot->n_done,
		 result},
		{"snapshots_failed", "rkv_snapshots_total", "result=\"failed\"", C, 0,
		 snapshot->n_failed, result},
		{"snapshot_running", "rkv_snapshot_running", NULL, G, 0,
		 snapshot->now.phase == WIRE_SNAPSHOT_RUNNING,
		 "1 while a snapshot is being taken."},
		{"snapshot_age_s", "rkv_snapshot_age_seconds", NULL, G, 0,
		 (uint64_t)(age_ns / CLOCK_NS_PER_S),
		 "Time since the last snapshot was written; 0 while there is none."},
		{"snapshot_records", "rkv_snapshot_values", NULL, G, 0, good->n_records,
		 "Values of the last snapshot that was written."},
		{"snapshot_bytes", "rkv_snapshot_bytes", NULL, G, 0, good->n_bytes, "Its length."},
		{"snapshot_ms", "rkv_snapshot_duration_seconds", NULL, G, 3,
		 (uint64_t)((good->ended_ns - good->began_ns) / CLOCK_NS_PER_MS),
		 "How long it took."},
		{"snapshot_unreadable", "rkv_snapshot_unreadable_values", NULL, G, 0,
		 good->n_unreadable, "Values that it lacks, as what is stored of them is damaged."},
	};
	SHOW(v, metrics);
}

/* All 0 without tcp. */
static void
show_tcp(const struct visit *v)
{
	struct tcp_counters tcp = {0};
	if (v->store->region->tcp)
		tcp_server_counters(v->store->region->tcp, &tcp);
	const struct metric metrics[] = {
		{"tcp_threads", "rkv_tcp_threads", NULL, G, 0, tcp.n_threads,
		 "Threads that serve data connections over TCP."},
		{"tcp_batches", "rkv_tcp_batches_total", NULL, C, 0, tcp.n_frames,
		 "Batches of operations that they took in."},
		{"tcp_calls", "rkv_tcp_system_calls_total", NULL, C, 0, tcp.n_calls,
		 "System calls that they made."},
		{"tcp_violations", "rkv_tcp_violations_total", NULL, C, 0, tcp.n_violations,
		 "Batches refused as a network card would; each ended its connection."},
		{"tcp_garbled", "rkv_tcp_garbled_total", NULL, C, 0, tcp.n_garbled,
		 "Connections that sent what is no batch."},
		{"tcp_stalled", "rkv_tcp_stalled_total", NULL, C, 0, tcp.n_stalled,
		 "Connections that did not take what they had asked for."},
		{"tcp_rejected", "rkv_tcp_rejected_total", NULL, C, 0, tcp.n_rejected,
		 "Connections whose hello was refused."},
	};
	SHOW(v, metrics);
}

void
metrics_visit_server(struct service *service, void (*take)(void *arg, const struct metric *metric),
		     void *arg)
{
	const struct visit visit = {.service = service, .take = take, .arg = arg};
	show_process(&visit);
	show_connections(&visit);
}

void
metrics_visit_store(struct store *store, void (*take)(void *arg, const struct metric *metric),
		    void *arg)
{
	static void (*const subjects[])(const struct visit *v) = {
		show_region,           show_chunks,    show_class_chunks, show_index,
		show_sessions,         show_stamps,    show_scrubber,     show_eviction,
		show_data_connections, show_snapshots, show_tcp,          show_blocks,
	};
	const struct visit visit = {.store = store, .take = take, .arg = arg};
	for (size_t i = 0; i < sizeof(subjects) / sizeof(*subjects); i++)
		subjects[i](&visit);
}

void
metrics_visit_texts(const struct store *store,
		    void (*take)(void *arg, const char *name, const char *text), void *arg)
{
	const struct region *region = store->region;
	char region_id[17];
	char address[sizeof(((struct fab_offer *)NULL)->verbs_address) + 1];
	struct fab_offer offer;
	region_offer(region, &offer);
	snprintf(region_id, sizeof(region_id), "%016" PRIx64, region->region_id);
	snprintf(address, sizeof(address), "%.*s", (int)sizeof(offer.verbs_address),
		 region->verbs ? offer.verbs_address : "none");
	take(arg, "region", store->name);
	take(arg, "version", release_version);
	take(arg, "fabric", region_fabric(region));
	take(arg, "rdma_device", region->verbs ? verbs_device_text(region->device) : "none");
	take(arg, "rdma_address", address);
	take(arg, "region_id", region_id);
}
