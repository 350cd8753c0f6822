/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Each of the `depth` slots runs one task:
 *
 *   read                 GET
 *   update, insert       PUT
 *   add, replace         ADD, REPLACE
 *   delete               DELETE
 *   read-modify-write    GET, then CAS on the version that was read (or PUT, if blind); a lost CAS
 *                        begins anew with the GET. What is written continues the sequence number of
 *                        the value that was read.
 *
 * RKV_AGAIN and lost CASes wait in a list, for a time that doubles with each try, and end as an
 * error when the operation's time is up. The latency of an operation is that of all its tries.
 */
#include "bench/worker.h"

#include <stdlib.h>
#include <string.h>

#include "bench/clock.h"
#include "bench/generator.h"
#include "bench/value.h"

#define AGAIN_DELAY_NS UINT64_C(50000)
#define CAS_DELAY_NS UINT64_C(1000)
#define DELAY_DOUBLINGS 10u
#define REST_NS UINT64_C(50000)
#define STOP_NS UINT64_C(100000000) /* nobody sleeps for longer, so that a stop is seen */
#define WAKE_NS UINT64_C(100000)    /* a sleep may take so much longer; the rest is spent awake */
#define POLL_MS 100u

struct slot {
	struct rkv_request request;
	struct source_task task;
	uint64_t due_ns; /* open loop */
	uint64_t start_ns;
	uint64_t retry_ns; /* while it waits: when to submit it */
	uint32_t n_retries;
	unsigned char *value; /* that is written */
	unsigned char *found; /* that was read */
};

struct worker {
	const struct worker_config *config;
	struct target_session *session;
	const struct target *target;
	struct source *source;
	struct tally tally;
	struct gen_random random;
	uint64_t sequence; /* of the next blindly written value */
	uint64_t timeout_ns;
	double interval_ns;
	uint64_t begin_ns;
	uint64_t n_started;
	uint64_t due_ns; /* open loop: of the next task */
	uint64_t lag_ns;
	uint64_t landed_ns; /* when the clock was last read, and nothing has begun since; else 0 */
	uint32_t index;
	uint32_t n_free;
	uint32_t n_waiting;
	struct slot **free_slots;
	struct slot **waiting;
	struct rkv_request **done;
	struct slot *slots;
	unsigned char *values;
	_Atomic uint64_t n_done; /* others read it */
};

/* ---- Birth and death ---- */

static size_t
value_stride(const struct worker_config *config)
{
	return (config->value_max + 64) / 64 * 64;
}

static int
allocate(struct worker *worker)
{
	uint32_t depth = worker->config->depth;
	size_t stride = value_stride(worker->config);
	worker->free_slots = calloc(depth, sizeof(struct slot *));
	worker->waiting = calloc(depth, sizeof(struct slot *));
	worker->done = calloc(depth, sizeof(struct rkv_request *));
	worker->slots = calloc(depth, sizeof(struct slot));
	worker->values = aligned_alloc(64, 2 * depth * stride);
	if (!worker->free_slots || !worker->waiting || !worker->done || !worker->slots ||
	    !worker->values)
		return RKV_E_NOMEM;
	for (uint32_t i = 0; i < depth; i++) {
		worker->slots[i].value = worker->values + 2 * i * stride;
		worker->slots[i].found = worker->values + (2 * i + 1) * stride;
		worker->slots[i].request.user = &worker->slots[i];
		worker->free_slots[i] = &worker->slots[i];
	}
	worker->n_free = depth;
	return RKV_OK;
}

struct worker *
worker_create(const struct worker_config *config, struct target_session *session, uint32_t index)
{
	struct worker *worker = calloc(1, sizeof(*worker));
	if (worker == NULL)
		return NULL;
	worker->config = config;
	worker->session = session;
	worker->target = session->target;
	worker->index = index;
	worker->timeout_ns = config->timeout_ms * UINT64_C(1000000);
	/* Not the random numbers that choose the keys. */
	gen_random_seed(&worker->random, ~config->seed, index);
	worker->sequence = gen_u64(&worker->random);
	if (allocate(worker) < 0)
		goto fail;
	return worker;
fail:
	worker_destroy(worker);
	return NULL;
}

void
worker_destroy(struct worker *worker)
{
	if (worker == NULL)
		return;
	free(worker->free_slots);
	free(worker->waiting);
	free(worker->done);
	free(worker->slots);
	free(worker->values);
	free(worker);
}

void
worker_prepare(struct worker *worker, struct source *source, double interval_ns)
{
	worker->interval_ns = interval_ns;
	worker->source = source;
	memset(&worker->tally, 0, sizeof(worker->tally));
	worker->lag_ns = 0;
	atomic_store_explicit(&worker->n_done, 0, memory_order_relaxed);
}

const struct tally *
worker_tally(const struct worker *worker)
{
	return &worker->tally;
}

uint64_t
worker_n_done(const struct worker *worker)
{
	return atomic_load_explicit(&worker->n_done, memory_order_relaxed);
}

uint64_t
worker_lag_ns(const struct worker *worker)
{
	return worker->lag_ns;
}

static bool
is_open(const struct worker *worker)
{
	return worker->interval_ns > 0;
}

/* The schedule is counted from the start each time, so that no rounding adds up. */
static void
set_due(struct worker *worker)
{
	uint64_t n_before = worker->n_started * worker->config->n_threads + worker->index;
	worker->due_ns = worker->begin_ns + (uint64_t)(worker->interval_ns * (double)n_before);
}

/* ---- An operation ---- */

static void
end(struct worker *worker, struct slot *slot, int status, uint64_t now_ns)
{
	uint64_t intended_ns = is_open(worker) ? now_ns - slot->due_ns : TALLY_CLOSED;
	tally_end(&worker->tally, slot->task.op, status, now_ns - slot->start_ns, intended_ns);
	worker->source->done(worker->source, &slot->task, status == RKV_OK);
	worker->free_slots[worker->n_free++] = slot;
	uint64_t n_done = atomic_load_explicit(&worker->n_done, memory_order_relaxed);
	atomic_store_explicit(&worker->n_done, n_done + 1, memory_order_relaxed);
}

static void
wait_for_retry(struct worker *worker, struct slot *slot, uint64_t delay_ns, uint64_t now_ns)
{
	uint32_t n_doublings =
		slot->n_retries < DELAY_DOUBLINGS ? slot->n_retries : DELAY_DOUBLINGS;
	uint64_t half_ns = (delay_ns << n_doublings) / 2;
	slot->n_retries++;
	slot->retry_ns = now_ns + half_ns + gen_below(&worker->random, half_ns);
	worker->waiting[worker->n_waiting++] = slot;
}

static bool
is_in_time(const struct worker *worker, const struct slot *slot, uint64_t now_ns)
{
	return now_ns - slot->start_ns < worker->timeout_ns;
}

/* After RKV_AGAIN; false if the operation's time is up. */
static bool
try_later(struct worker *worker, struct slot *slot, uint64_t now_ns)
{
	if (!is_in_time(worker, slot, now_ns))
		return false;
	worker->tally.op[slot->task.op].n_again++;
	wait_for_retry(worker, slot, AGAIN_DELAY_NS, now_ns);
	return true;
}

static void
submit(struct worker *worker, struct slot *slot)
{
	int code = worker->target->submit(worker->session, &slot->request, slot->task.number);
	if (code == RKV_OK)
		return;
	uint64_t now_ns = clock_ns();
	if (code != RKV_AGAIN || !try_later(worker, slot, now_ns))
		end(worker, slot, code, now_ns);
}

/* The rest of a request stays what it was, zero or of an operation that looks at the same. */
static void
fill_in(struct slot *slot, enum rkv_op op)
{
	slot->request.op = op;
	slot->request.key = slot->task.key;
	slot->request.key_len = slot->task.key_len;
	slot->request.options.ttl_s = slot->task.ttl_s;
}

static void
fill_in_get(struct worker *worker, struct slot *slot)
{
	fill_in(slot, RKV_OP_GET);
	slot->request.buf = slot->found;
	slot->request.buf_len = worker->config->value_max;
}

static void
fill_in_store(struct worker *worker, struct slot *slot, enum rkv_op op, uint64_t sequence)
{
	size_t len = slot->task.value_len;
	if (worker->target->has_values)
		value_make(slot->value, len, slot->task.name, sequence);
	fill_in(slot, op);
	slot->request.value = slot->value;
	slot->request.value_len = len;
}

/* The first call of an operation. */
static void
fill_in_first(struct worker *worker, struct slot *slot)
{
	static const enum rkv_op calls[SOURCE_OPS] = {
		[SOURCE_READ] = RKV_OP_GET,      [SOURCE_RMW] = RKV_OP_GET,
		[SOURCE_UPDATE] = RKV_OP_PUT,    [SOURCE_INSERT] = RKV_OP_PUT,
		[SOURCE_ADD] = RKV_OP_ADD,       [SOURCE_REPLACE] = RKV_OP_REPLACE,
		[SOURCE_DELETE] = RKV_OP_DELETE,
	};
	enum rkv_op call = calls[slot->task.op];
	if (call == RKV_OP_GET)
		fill_in_get(worker, slot);
	else if (call == RKV_OP_DELETE)
		fill_in(slot, call);
	else
		fill_in_store(worker, slot, call, worker->sequence++);
}

/*
 * The moment in which an operation ends is the one in which the next begins: the clock is read once
 * for both, and what it takes to choose a key counts as the operation's.
 */
static uint64_t
start_time(struct worker *worker)
{
	uint64_t landed_ns = worker->landed_ns;
	worker->landed_ns = 0;
	return landed_ns && !is_open(worker) ? landed_ns : clock_ns();
}

static void
start(struct worker *worker, struct slot *slot)
{
	slot->n_retries = 0;
	fill_in_first(worker, slot);
	slot->start_ns = start_time(worker);
	if (is_open(worker)) {
		slot->due_ns = worker->due_ns;
		worker->lag_ns = slot->start_ns - slot->due_ns;
		worker->n_started++;
		set_due(worker);
	}
	submit(worker, slot);
}

static int
check_found(struct worker *worker, const struct slot *slot)
{
	size_t len = slot->request.item.value_len;
	size_t wrong = len < VALUE_CHECKED_MIN && slot->task.value_len < VALUE_CHECKED_MIN
			       ? 0
			       : value_check(slot->found, len, slot->task.name);
	if (wrong == 0)
		return RKV_OK;
	tally_bad_value(&worker->tally, &(struct tally_bad_value){slot->task.name, len, wrong - 1});
	return TALLY_BAD_VALUE;
}

/* The second half of a read-modify-write. */
static void
write_back(struct worker *worker, struct slot *slot)
{
	struct rkv_item read = slot->request.item;
	uint64_t sequence = value_sequence(slot->found, read.value_len) + 1;
	fill_in_store(worker, slot, worker->config->blind ? RKV_OP_PUT : RKV_OP_CAS, sequence);
	slot->request.version = read.version; /* PUT does not look at it */
	submit(worker, slot);
}

/* Looks at what has come back: goes on, tries again, or ends. */
static void
land(struct worker *worker, struct slot *slot, uint64_t now_ns)
{
	int status = slot->request.status;
	if (status == RKV_AGAIN && try_later(worker, slot, now_ns))
		return;
	if (status == RKV_MISMATCH && is_in_time(worker, slot, now_ns)) {
		worker->tally.op[slot->task.op].n_cas_lost++;
		fill_in_get(worker, slot);
		wait_for_retry(worker, slot, CAS_DELAY_NS, now_ns);
		return;
	}
	if (slot->request.op == RKV_OP_GET && status == RKV_OK) {
		if (worker->config->verify)
			status = check_found(worker, slot);
		if (slot->task.op == SOURCE_RMW && status == RKV_OK) {
			write_back(worker, slot);
			return;
		}
	}
	end(worker, slot, status, now_ns);
}

/* ---- The loop ---- */

/* Open loop: it is not yet time for the next task. */
static bool
is_early(const struct worker *worker)
{
	return is_open(worker) && clock_ns() < worker->due_ns;
}

/* Starts as many operations as there is room and time for; false if there will be no more. */
static bool
start_more(struct worker *worker, const _Atomic bool *stop)
{
	while (worker->n_free > 0) {
		struct slot *slot = worker->free_slots[worker->n_free - 1];
		if (atomic_load_explicit(stop, memory_order_relaxed))
			return false;
		if (is_early(worker))
			return true;
		int code = worker->source->next(worker->source, &slot->task);
		if (code != SOURCE_TASK)
			return code != SOURCE_END;
		worker->n_free--;
		start(worker, slot);
	}
	return true;
}

static void
submit_due(struct worker *worker)
{
	if (worker->n_waiting == 0)
		return;
	uint64_t now_ns = clock_ns();
	for (uint32_t i = worker->n_waiting; i-- > 0;) {
		struct slot *slot = worker->waiting[i];
		if (slot->retry_ns > now_ns)
			continue;
		worker->waiting[i] = worker->waiting[--worker->n_waiting];
		submit(worker, slot);
	}
}

/* When there is something to do again though nothing is in flight. */
static uint64_t
next_ns(const struct worker *worker, uint64_t now_ns)
{
	bool is_for_task = is_open(worker) && worker->n_free > 0;
	uint64_t until_ns = is_for_task ? worker->due_ns : UINT64_MAX;
	for (uint32_t i = 0; i < worker->n_waiting; i++)
		if (worker->waiting[i]->retry_ns < until_ns)
			until_ns = worker->waiting[i]->retry_ns;
	if (until_ns == UINT64_MAX) /* the source waits for others, which is never long */
		return now_ns + WAKE_NS + REST_NS;
	return until_ns < now_ns + STOP_NS ? until_ns : now_ns + STOP_NS;
}

static void
rest(const struct worker *worker)
{
	uint64_t now_ns = clock_ns();
	uint64_t until_ns = next_ns(worker, now_ns);
	if (until_ns > now_ns + WAKE_NS)
		clock_sleep(until_ns - now_ns - WAKE_NS);
}

/* Whether the target may sleep until something lands. */
static bool
may_wait(const struct worker *worker)
{
	return worker->n_waiting == 0 && !is_open(worker);
}

int
worker_run(struct worker *worker, uint64_t start_ns, const _Atomic bool *stop)
{
	const struct target *target = worker->target;
	uint32_t depth = worker->config->depth;
	worker->begin_ns = start_ns;
	worker->n_started = 0;
	set_due(worker);
	for (;;) {
		bool more = start_more(worker, stop);
		if (!more && worker->n_free == depth)
			return RKV_OK;
		submit_due(worker);
		int n = target->poll(worker->session, worker->done, (int)depth,
				     may_wait(worker) ? POLL_MS : 0);
		if (n < 0)
			return n;
		worker->landed_ns = n > 0 ? clock_ns() : 0;
		for (int i = 0; i < n; i++)
			land(worker, worker->done[i]->user, worker->landed_ns);
		if (n == 0 && worker->n_free + worker->n_waiting == depth)
			rest(worker);
	}
}
