/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sessions: submission, completion, the start word, marks, and healing.
 *
 * A session is pumped by its own thread: poll, deliver each landing to its owner, and now and then
 * look at the clock for what sleeps and for deadlines. In the steady state nothing looks at the
 * clock: an operation gets its deadline when a poll comes back empty for the first time.
 *
 * When a batch fails, the endpoint is broken: nothing more is posted, everything outstanding fails,
 * then the session disconnects and asks the control thread for another link, [ONE-QP]. Operations
 * sleep meanwhile, and find out what became of their CASes afterwards (client/op.c).
 *
 * A request completes only when no batch of it is out, so that its buffers are the caller's again,
 * [LOCAL]; also when its deadline has passed: then the connection that keeps a batch too long is
 * cut, and every request ends, [DEADLINE].
 */
#include "client/session.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "client/control.h"
#include "client/op.h"
#include "common/err.h"
#include "proto/wire.h"

#define PUMPS_PER_TICK 64u
#define REAP_STAMPS 10u             /* between two reaps of all maps, while chunks are short */
#define HANG_NS INT64_C(1000000000) /* a batch out so long after its deadline: it hangs */
#define MAINTENANCE_NS INT64_C(5000000000) /* the same for one of the session's own */
#define FLUSH_STAMPS 5u                    /* marks out for longer are flushed */
#define WAIT_NS INT64_C(100000)            /* between two looks while nothing lands */
#define POOL_MIN (UINT64_C(4) << 20)
#define WRITES_LOW (UINT32_C(1) << 16) /* writes left in a serial when a new one is asked for */

/* ---- The start word, [STAMP] ---- */

static uint64_t
newest_stamp(struct rkv_session *s)
{
	return atomic_load_explicit(&s->client->stamps.newest, memory_order_seq_cst);
}

/*
 * Publishes the newest stamp as the session's start, and looks again: had the control thread
 * announced an A from a newer stamp while the word still said idle, it would be above our start.
 * The CAS that took the session from idle, and each store, are full fences.
 */
static void
publish_newest(struct rkv_session *s, uint64_t stamp)
{
	for (;;) {
		s->published = stamp;
		uint64_t again = newest_stamp(s);
		if (again == stamp)
			return;
		stamp = again;
		atomic_store_explicit(&s->port.start_word, start_make(START_BUSY, stamp),
				      memory_order_seq_cst);
	}
}

/*
 * From idle with marks out, whose start stays published; or waits while the control thread flushes,
 * which has a deadline of its own (client/links.c).
 */
static __attribute__((noinline)) void
begin_slowly(struct rkv_session *s)
{
	for (;;) {
		uint64_t word = atomic_load_explicit(&s->port.start_word, memory_order_relaxed);
		bool is_idle = start_state(word) == START_IDLE;
		uint64_t stamp = is_idle ? newest_stamp(s) : start_stamp(word);
		if (start_state(word) == START_FLUSHING) {
			fab_pause(s->client->fab, 0);
			continue;
		}
		if (!atomic_compare_exchange_strong_explicit(
			    &s->port.start_word, &word, start_make(START_BUSY, stamp),
			    memory_order_seq_cst, memory_order_relaxed))
			continue;
		s->is_held = true;
		s->published = stamp;
		if (is_idle)
			publish_newest(s, stamp);
		return;
	}
}

/* From idle to busy: the start word is most often what this session left there. */
static inline void
session_begin(struct rkv_session *s)
{
	if (s->is_held)
		return;
	uint64_t word = atomic_load_explicit(&s->start_left, memory_order_relaxed);
	bool is_idle = word == start_make(START_IDLE, 0);
	uint64_t stamp = is_idle ? newest_stamp(s) : start_stamp(word);
	if (!atomic_compare_exchange_strong_explicit(&s->port.start_word, &word,
						     start_make(START_BUSY, stamp),
						     memory_order_seq_cst, memory_order_relaxed)) {
		begin_slowly(s);
		return;
	}
	s->is_held = true;
	s->published = stamp;
	if (is_idle)
		publish_newest(s, stamp);
}

/* The smallest start of what is not known to have completed. */
static uint64_t
smallest_start(const struct rkv_session *s)
{
	uint64_t start = s->oldest ? s->oldest->start : UINT64_MAX;
	for (uint32_t i = 0; i < s->n_held; i++)
		if (s->held[i].start < start)
			start = s->held[i].start;
	if (s->alloc.job != JOB_NONE && s->alloc.start < start)
		start = s->alloc.start;
	return start;
}

/* Something old has ended: the published start may rise. */
static void
republish(struct rkv_session *s)
{
	uint64_t start = smallest_start(s);
	if (start == UINT64_MAX || start <= s->published)
		return;
	s->published = start;
	atomic_store_explicit(&s->port.start_word, start_make(START_BUSY, start),
			      memory_order_release);
}

static inline void
let_go(struct rkv_session *s)
{
	uint64_t word = start_make(START_IDLE, 0);
	if (s->n_held || s->alloc.job != JOB_NONE)
		word = start_make(START_MARKS, smallest_start(s));
	atomic_store_explicit(&s->start_left, word, memory_order_relaxed);
	atomic_store_explicit(&s->port.start_word, word, memory_order_release);
}

void
session_settle(struct rkv_session *s)
{
	if (!s->is_held || s->n_in_flight != 0)
		return;
	s->is_held = false;
	let_go(s);
}

/* ---- Marks, [MARK] ---- */

static void
hold_start(struct rkv_session *s, uint64_t start)
{
	struct held_start *last = s->n_held ? &s->held[s->n_held - 1] : NULL;
	if (last && (last->start == start || s->n_held == SESSION_HELD_MAX)) {
		last->mark = s->n_marks_posted;
		if (start < last->start)
			last->start = start;
		return;
	}
	s->held[s->n_held++] = (struct held_start){.mark = s->n_marks_posted, .start = start};
}

void
session_mark(struct rkv_session *s, uint64_t block_off, uint32_t tag, uint64_t start)
{
	if (!s->link.ep || s->broken)
		return; /* in doubt nobody marks: the scrubber will */
	struct fab_op mark = {
		.kind = FAB_WRITE,
		.roff = layout_map_off(&s->link.layout, block_off),
		.piece = {{&s->alloc.marks[layout_mark(tag)], 1, s->alloc.key}},
	};
	int rc = fab_post_quiet(s->link.ep, &mark, 1);
	assert(rc <= 0); /* never more than two a completion */
	if (rc < 0)
		return;
	s->n_marks_posted++;
	hold_start(s, start);
	alloc_freed(s, block_off, tag, s->n_marks_posted);
}

void
session_marks_done(struct rkv_session *s, uint64_t n_marks)
{
	if (n_marks <= s->n_marks_done)
		return;
	s->n_marks_done = n_marks;
	uint32_t n_over = 0;
	while (n_over < s->n_held && s->held[n_over].mark <= n_marks)
		n_over++;
	s->n_held -= n_over;
	memmove(s->held, s->held + n_over, s->n_held * sizeof(s->held[0]));
}

/* ---- Operations: slots ---- */

static void
in_flight_add(struct rkv_session *s, struct op *op)
{
	op->next = NULL;
	op->prev = s->newest;
	if (s->newest)
		s->newest->next = op;
	else
		s->oldest = op;
	s->newest = op;
	s->n_in_flight++;
}

static void
in_flight_remove(struct rkv_session *s, struct op *op)
{
	if (op->prev)
		op->prev->next = op->next;
	else
		s->oldest = op->next;
	if (op->next)
		op->next->prev = op->prev;
	else
		s->newest = op->prev;
	s->n_in_flight--;
}

static void
op_free(struct rkv_session *s, struct op *op)
{
	op->next = s->free_ops;
	s->free_ops = op;
}

static void
count_result(struct rkv_op_stats *stats, int status)
{
	if (status == 0)
		stats->n_done++;
	else if (status > 0)
		stats->n_outcomes++;
	else
		stats->n_failures++;
}

void
op_wake(struct rkv_session *s, struct op *op)
{
	if (op->sleep != SLEEP_NO)
		s->n_sleeping--;
	op->sleep = SLEEP_NO;
}

void
op_complete(struct rkv_session *s, struct op *op, int status)
{
	op->request->status = status;
	count_result(op->stats, status);
	op_wake(s, op);
	bool was_oldest = s->oldest == op;
	in_flight_remove(s, op);
	if (was_oldest && s->oldest)
		republish(s);
	if (op->n_waiting) {
		--*op->n_waiting;
		op_free(s, op);
		return;
	}
	op->next = NULL;
	if (s->completed)
		s->completed_last->next = op;
	else
		s->completed = op;
	s->completed_last = op;
}

void
op_sleep(struct rkv_session *s, struct op *op, enum op_sleep why, int64_t wake_ns)
{
	if (op->sleep == SLEEP_NO)
		s->n_sleeping++;
	op->sleep = why;
	op->wake_ns = wake_ns;
}

static void
wake(struct rkv_session *s, struct op *op)
{
	op_wake(s, op);
	op_run(s, op);
}

/*
 * Wakes those that sleep for a reason, oldest first. Waking one may complete it, and may put it to
 * sleep again at its place: the next one is looked up before, and a completed one never comes back.
 */
static void
wake_all(struct rkv_session *s, enum op_sleep why)
{
	for (struct op *op = s->oldest, *next; op && s->n_sleeping; op = next) {
		next = op->next;
		if (op->sleep == why)
			wake(s, op);
	}
}

/* Deferred to the next pump: the job may have ended inside an operation's own step. */
void
session_memory_found(struct rkv_session *s, int status)
{
	s->memory_found = true;
	s->memory_status = status;
}

static void
wake_for_memory(struct rkv_session *s)
{
	s->memory_found = false;
	republish(s);
	for (struct op *op = s->oldest; op && s->n_sleeping; op = op->next)
		if (op->sleep == SLEEP_MEMORY)
			op->alloc_status =
				op->alloc_class == s->alloc.class_id ? s->memory_status : 0;
	wake_all(s, SLEEP_MEMORY);
}

int
session_deny(struct rkv_session *s)
{
	if (!s->is_denied)
		log_line(&s->client->log, LOG_WARN,
			 "tenant %s is read-only at this server: nothing can be changed, every "
			 "mutation is refused",
			 s->client->options.tenant);
	s->is_denied = true;
	return ERR_PERM;
}

/* ---- Links ---- */

static size_t
fixed_len(const struct rkv_session *s, const struct layout *l)
{
	return s->client->options.depth * sizeof(struct op_scratch) + alloc_memory_len(l);
}

static size_t
pool_len(const struct rkv_session *s, const struct layout *l)
{
	size_t least = 2 * l->chunk_size;
	size_t wanted = s->client->options.arena_bytes ? s->client->options.arena_bytes / 2
			: least > POOL_MIN             ? least
						       : POOL_MIN;
	return wanted > least ? wanted : least;
}

/* What the fabric fails to register, it explains itself. */
static int
memory_made(struct rkv_session *s, int rc)
{
	if (rc != 0)
		log_line(&s->client->log, LOG_ERROR,
			 "this process has no memory left for a session (ulimit -v)");
	return rc;
}

/* New serial, or new region: nothing of what was known of the old one holds any more. */
static int
start_anew(struct rkv_session *s, const struct link *next)
{
	for (struct op *op = s->oldest; op; op = op->next)
		op_forget(s, op);
	cache_clear(&s->cache);
	alloc_destroy(&s->alloc);
	size_t fixed = fixed_len(s, &next->layout);
	if (s->arena.len == 0 || s->link.layout.chunk_size != next->layout.chunk_size) {
		arena_destroy(&s->arena);
		int rc = arena_create(&s->arena, fixed, pool_len(s, &next->layout));
		if (memory_made(s, rc) != 0)
			return rc;
	}
	int rc = arena_register(&s->arena, next->fab);
	if (rc != 0)
		return rc;
	for (uint32_t i = 0; i < s->client->options.depth; i++)
		s->ops[i].scratch = (struct op_scratch *)(void *)s->arena.base + i;
	s->write_counter = 0;
	rc = alloc_create(&s->alloc, &next->layout,
			  s->arena.base + s->client->options.depth * sizeof(struct op_scratch),
			  s->arena.key);
	return memory_made(s, rc);
}

static void
want_link(struct rkv_session *s)
{
	atomic_store_explicit(&s->port.state, LINK_WANTED, memory_order_release);
	control_wake(s->client);
}

/*
 * Publishes a start for the new link. Stamps of another epoch mean nothing here, ours count from
 * joining. And while the link was ready, an idle session was announced as if it had no start: the
 * one it left behind must not come back.
 */
static void
start_again(struct rkv_session *s, uint64_t stamp, bool anew)
{
	if (s->oldest && !anew) {
		republish(s);
		return;
	}
	atomic_store_explicit(&s->port.start_word, start_make(START_BUSY, stamp),
			      memory_order_seq_cst);
	publish_newest(s, stamp);
	for (struct op *op = s->oldest; op; op = op->next)
		op->start = s->published;
}

/* The control thread has a link ready. */
static void
take_link(struct rkv_session *s)
{
	struct link next = s->port.next_link;
	bool anew = next.serial != s->link.serial || next.epoch != s->link.epoch;
	int rc = anew ? start_anew(s, &next) : 0;
	if (rc != 0) {
		fab_disconnect(next.ep);
		s->link.serial = 0;
		s->port.former_serial = next.serial;
		s->port.former_epoch = next.epoch;
		s->port.refused = rc;
		if (s->n_links > 0)
			want_link(s); /* it heals once there is memory again */
		else
			atomic_store_explicit(&s->port.state, LINK_REFUSED, memory_order_release);
		return;
	}
	s->link = next;
	s->broken = false;
	s->n_marks_done = s->n_marks_posted;
	s->n_held = 0;
	if (anew) {
		s->stamp_seen = 0;
		s->reap_stamp = 0;
	}
	start_again(s, anew ? next.joined_stamp : newest_stamp(s), anew);
	s->port.former_serial = next.serial;
	s->port.former_epoch = next.epoch;
	if (s->n_links++ > 0)
		s->stats.n_reconnects++;
	atomic_store_explicit(&s->port.state, LINK_UP, memory_order_release);
	wake_all(s, SLEEP_LINK);
}

/* The endpoint is gone, and with it all that is in doubt. */
static void
drop_link(struct rkv_session *s)
{
	fab_disconnect(s->link.ep);
	s->link.ep = NULL;
	s->broken = false;
	s->n_outstanding = 0;
	s->is_flushing = false;
	if (s->alloc.job != JOB_NONE)
		alloc_landed(s, ERR_CONN);
	s->memory_found = false;
	alloc_link_lost(s);
	/* What was posted may still land until the server has destroyed the connection, [STAMP]. */
	hold_start(s, s->published);
	for (struct op *op = s->oldest, *next; op; op = next) {
		next = op->next;
		op_lost(s, op);
	}
	if (!s->is_closing)
		want_link(s);
}

/* No endpoint: asks for one, or takes over the one that is ready. */
static void
look_for_link(struct rkv_session *s)
{
	int state = atomic_load_explicit(&s->port.state, memory_order_acquire);
	if (state == LINK_READY)
		take_link(s);
	else if (state == LINK_NONE && !s->is_closing)
		want_link(s);
}

/* ---- Posting and pumping ---- */

static unsigned
deliver(struct rkv_session *s)
{
	struct fab_done *done = s->done;
	unsigned n = fab_poll(s->link.ep, done, SESSION_POLL_MAX);
	for (unsigned i = 0; i < n; i++) {
		struct landing *l = done[i].cookie;
		s->n_outstanding--;
		if (done[i].status != 0)
			s->broken = true;
		l->landed(s, l, done[i].status);
	}
	return n;
}

static void
look_after(struct rkv_session *s, struct op *op, int64_t now_ns)
{
	if (op->deadline_ns == 0) {
		uint32_t ms = op->request->options.timeout_ms;
		op->deadline_ns =
			now_ns + (ms ? ms : s->client->options.op_timeout_ms) * INT64_C(1000000);
	}
	if (op->is_outstanding) {
		if (now_ns > op->deadline_ns + HANG_NS)
			s->is_hanging = true;
		return;
	}
	if (op->sleep != SLEEP_NO && now_ns >= op->deadline_ns)
		op_expire(s, op);
	else if (op->sleep == SLEEP_TIME && now_ns >= op->wake_ns)
		wake(s, op);
}

static void
flush_landed(struct rkv_session *s, struct landing *self, int status)
{
	(void)self;
	s->is_flushing = false;
	if (status == 0)
		session_marks_done(s, s->n_marks_flushed);
}

/* FAA(scratch, 0): an atomic behind the marks. One at a time; a late one still counts. */
static void
flush_post(struct rkv_session *s)
{
	if (s->is_flushing)
		return;
	struct fab_op op = session_flush_op(s, s->alloc.flush_old);
	s->flush.landed = flush_landed;
	s->n_marks_flushed = s->n_marks_posted;
	s->is_flushing = session_post_maintenance(s, &op, &s->flush) == 0;
}

/* They hold the published start, and no mutation has come to complete them. */
static inline bool
marks_are_old(struct rkv_session *s)
{
	return s->n_held && newest_stamp(s) > s->published + FLUSH_STAMPS;
}

/*
 * When the server says that free chunks run short, reaps once in a while; drained ones go at once.
 */
static void
give_back(struct rkv_session *s, uint64_t stamp)
{
	bool is_short = atomic_load_explicit(&s->client->stamps.flags, memory_order_relaxed) &
			WIRE_STAMP_CHUNKS_SHORT;
	if (is_short && stamp >= s->reap_stamp) {
		s->reap_stamp = stamp + REAP_STAMPS;
		alloc_give_back(s, true);
	} else if (s->alloc.n_draining) {
		alloc_give_back(s, false);
	}
}

/* Looks at the clock: deadlines, sleepers, and once a stamp the chunks that drain. */
static void
tick(struct rkv_session *s)
{
	int64_t now_ns = fab_now(s->client->fab);
	s->n_pumps = 0;
	for (struct op *op = s->oldest, *next; op; op = next) {
		next = op->next;
		look_after(s, op, now_ns);
	}
	if (s->alloc.job != JOB_NONE || s->is_flushing)
		s->is_hanging |= now_ns > s->maintenance_ns + MAINTENANCE_NS;
	if (s->is_hanging) {
		s->is_hanging = false;
		drop_link(s);
		return;
	}
	uint64_t stamp = newest_stamp(s);
	if (stamp == s->stamp_seen || !s->link.ep || s->broken || s->is_closing)
		return;
	s->stamp_seen = stamp;
	if (marks_are_old(s))
		flush_post(s);
	give_back(s, stamp);
}

static void
take_serial(struct rkv_session *s)
{
	uint32_t serial = atomic_exchange_explicit(&s->port.next_serial, 0, memory_order_acquire);
	if (serial == 0)
		return;
	s->link.serial = serial;
	s->port.former_serial = serial;
	s->write_counter = 0;
}

int
session_post_maintenance(struct rkv_session *s, const struct fab_op *op, struct landing *landing)
{
	s->stats.n_maintenance_requests++;
	s->maintenance_ns = fab_now(s->client->fab);
	return session_post(s, op, 1, landing);
}

unsigned
session_pump(struct rkv_session *s)
{
	unsigned n = 0;
	session_begin(s);
	if (s->link.ep) {
		n = deliver(s);
		if (s->broken && s->n_outstanding == 0)
			drop_link(s);
		if (s->memory_found && !s->broken)
			wake_for_memory(s);
	} else {
		look_for_link(s);
	}
	if (n == 0 || ++s->n_pumps >= PUMPS_PER_TICK)
		tick(s);
	session_settle(s);
	return n;
}

void
session_wait(struct rkv_session *s)
{
	int64_t until_ns = fab_now(s->client->fab) + WAIT_NS;
	if (s->link.ep && s->n_outstanding)
		fab_wait(s->link.ep, until_ns);
	else
		fab_pause(s->client->fab, until_ns);
}

/* Makes the first free op the request's; enroll takes it off the list. */
static struct op *
take_op(struct rkv_session *s, struct rkv_request *request)
{
	struct op *op = s->free_ops;
	session_begin(s);
	op_init(s, op, request, request->op);
	/* With more in flight, or marks out, an older start is published, and may stay so. */
	bool is_old = s->n_in_flight || s->n_held || s->alloc.job != JOB_NONE;
	op->start = is_old ? newest_stamp(s) : s->published;
	return op;
}

static bool
link_is_up(const struct rkv_session *s)
{
	return s->link.ep && !s->broken;
}

static void
enroll(struct rkv_session *s, struct op *op, uint32_t *n_waiting)
{
	s->free_ops = op->next;
	op->n_waiting = n_waiting;
	in_flight_add(s, op);
	if (!link_is_up(s))
		op_sleep(s, op, SLEEP_LINK, 0);
	else if (!op->is_outstanding && op->sleep == SLEEP_NO)
		op_run(s, op);
}

void
session_start(struct rkv_session *s, struct rkv_request *request, uint32_t *n_waiting)
{
	enroll(s, take_op(s, request), n_waiting);
}

/* As an operation among others. */
static __attribute__((noinline)) int
call_among_others(struct rkv_session *s, struct op *op, struct rkv_request *request)
{
	uint32_t n_waiting = 1;
	enroll(s, op, &n_waiting);
	while (n_waiting)
		if (session_pump(s) == 0 && n_waiting)
			session_wait(s);
	session_settle(s);
	return request->status;
}

int
session_call(struct rkv_session *s, struct rkv_request *request)
{
	return call_among_others(s, take_op(s, request), request);
}

int
session_call_get(struct rkv_session *s, struct rkv_request *request)
{
	session_begin(s);
	if ((s->n_in_flight | s->n_outstanding | s->link.layout.has_hints) != 0 || !link_is_up(s))
		return session_call(s, request);
	uint64_t start = s->published;
	if (s->n_held) {
		if (marks_are_old(s))
			return session_call(s, request);
		start = newest_stamp(s);
	}
	struct op *op = s->free_ops;
	op_init(s, op, request, RKV_OP_GET);
	op->start = start;
	if (!op_try_warm(s, op))
		return call_among_others(s, op, request);
	count_result(op->stats, request->status);
	s->is_held = false;
	let_go(s);
	return request->status;
}

int
session_completed(struct rkv_session *s, struct rkv_request **done, int max)
{
	int n = 0;
	while (n < max && s->completed) {
		struct op *op = s->completed;
		s->completed = op->next;
		done[n++] = op->request;
		op_free(s, op);
	}
	return n;
}

/* ---- Creating and destroying ---- */

int
session_create(struct rkv_client *client, struct rkv_session **ret_session)
{
	struct rkv_session *s = calloc(1, sizeof(*s));
	if (!s)
		return ERR_NOMEM;
	s->client = client;
	s->not_forked = client->not_forked;
	s->ops = calloc(client->options.depth, sizeof(*s->ops));
	if (!s->ops || cache_create(&s->cache, client->options.cache_bytes) != 0) {
		free(s->ops);
		free(s);
		return ERR_NOMEM;
	}
	for (uint32_t i = client->options.depth; i-- > 0;) {
		s->ops[i].landing.landed = op_landed;
		op_free(s, &s->ops[i]);
	}
	*ret_session = s;
	return 0;
}

static void
flush_marks(struct rkv_session *s, int64_t deadline_ns)
{
	flush_post(s);
	for (;;) {
		unsigned n = deliver(s);
		if (!s->is_flushing || fab_now(s->client->fab) >= deadline_ns)
			return;
		if (n == 0)
			fab_wait(s->link.ep, deadline_ns);
	}
}

/* Everything in flight ends by its deadline; then marks are flushed and chunks left. */
static void
session_leave(struct rkv_session *s)
{
	while (s->n_in_flight)
		if (session_pump(s) == 0)
			session_wait(s);
	s->is_closing = true;
	int64_t deadline_ns = fab_now(s->client->fab) + HANG_NS;
	while (s->link.ep && (s->n_outstanding || s->alloc.job != JOB_NONE) &&
	       fab_now(s->client->fab) < deadline_ns)
		session_pump(s);
	if (s->link.ep && s->n_marks_done != s->n_marks_posted)
		flush_marks(s, deadline_ns);
	if (s->link.ep && s->alloc.job == JOB_NONE)
		alloc_leave(s, deadline_ns);
}

void
session_destroy(struct rkv_session *s)
{
	if (!s)
		return;
	session_leave(s);
	fab_disconnect(s->link.ep);
	if (atomic_load_explicit(&s->port.state, memory_order_acquire) == LINK_READY)
		fab_disconnect(s->port.next_link.ep);
	alloc_destroy(&s->alloc);
	cache_destroy(&s->cache);
	arena_destroy(&s->arena);
	free(s->ops);
	free(s);
}

uint64_t
session_version(struct rkv_session *s)
{
	take_serial(s);
	if (s->write_counter > UINT32_MAX - WRITES_LOW &&
	    atomic_load_explicit(&s->port.renew, memory_order_relaxed) == 0) {
		atomic_store_explicit(&s->port.renew, 1, memory_order_release);
		control_wake(s->client);
	}
	if (s->write_counter == UINT32_MAX)
		return 0;
	return (uint64_t)s->link.serial << 32 | ++s->write_counter;
}

uint32_t
session_wall_s(struct rkv_session *s)
{
	int64_t wall_ns = fab_now(s->client->fab) +
			  atomic_load_explicit(&s->client->wall_offset_ns, memory_order_relaxed);
	int64_t since_s = (wall_ns + 999999999) / 1000000000 - (int64_t)s->link.layout.formatted_s;
	return since_s < 0 ? 0 : (uint32_t)since_s;
}

/* ---- For the control thread ---- */

bool
session_take(struct rkv_session *s)
{
	uint64_t word = atomic_load_explicit(&s->port.start_word, memory_order_relaxed);
	if (start_state(word) != START_IDLE && start_state(word) != START_MARKS)
		return false;
	/*
	 * The start stays published while we flush: it is the marks'. An idle one takes a new one.
	 */
	uint64_t stamp = start_state(word) == START_MARKS ? start_stamp(word) : newest_stamp(s);
	if (!atomic_compare_exchange_strong_explicit(&s->port.start_word, &word,
						     start_make(START_FLUSHING, stamp),
						     memory_order_seq_cst, memory_order_relaxed))
		return false;
	s->published = stamp;
	return true;
}

void
session_maintain(struct rkv_session *s, int64_t deadline_ns)
{
	if (!s->link.ep)
		return;
	if (!s->broken && s->n_marks_done != s->n_marks_posted)
		flush_marks(s, deadline_ns);
	if (!s->broken)
		give_back(s, newest_stamp(s));
	while (s->n_outstanding && fab_now(s->client->fab) < deadline_ns)
		if (deliver(s) == 0)
			fab_wait(s->link.ep, deadline_ns);
	/* The application may not come for an hour, and what is in doubt holds G until then. */
	if (s->broken)
		session_drop_link(s);
}

void
session_drop_link(struct rkv_session *s)
{
	while (s->link.ep && s->n_outstanding && deliver(s) != 0)
		continue;
	if (s->link.ep)
		drop_link(s);
}

void
session_release(struct rkv_session *s)
{
	let_go(s);
}

uint64_t
session_announce(struct rkv_session *s)
{
	/* [STAMP]: both loads are seq_cst, as are the stores they pair with (publish_newest). */
	uint64_t newest = newest_stamp(s);
	uint64_t word = atomic_load_explicit(&s->port.start_word, memory_order_seq_cst);
	uint64_t start = start_state(word) == START_IDLE ? newest : start_stamp(word);
	return start > LIMIT_WORD_STAMPS ? start - LIMIT_WORD_STAMPS : 0;
}
