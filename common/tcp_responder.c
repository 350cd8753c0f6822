/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Responders: tcp_responder.h. The thread waits for its ring, works off all that has arrived, and
 * hands the kernel all replies with the call in which it waits again: under load one system call
 * for many frames of many connections. Before it sleeps it looks at its ring for a while, if that
 * has been of use (common/tcp_spin.h).
 *
 *   ring ---> received ---> hold ---> work: consume, execute, fill out ---> (end of the round) send
 *              sent    --------------> work ...
 *
 * RECEIVING. Connections share a ring of registered buffers and receive "multishot": one request
 * lasts, and takes a buffer only when bytes have come. A connection that finds no buffer, or whose
 * peer lets its replies pile up, is *alone* from then on: it receives into a buffer of its own, one
 * request at a time, so that it can neither starve others nor be starved. Where the kernel has no
 * such buffers (before 6.0) all are alone.
 *
 * BACK-PRESSURE. While the kernel has not taken a connection's replies, nothing more of it is
 * executed. Who does not take one buffer of replies within stall_ms is dropped. Time is counted by
 * a tick, which runs only while something is being sent.
 *
 * ENDS. A connection has ended when its socket is closed and nothing of it is in the ring, [DEAD].
 * Shutting the socket down makes all that flies come back. After a violation the peer first gets
 * the reply that says so; what it has sent meanwhile is discarded until it hangs up, because a
 * socket that is closed with bytes unread resets the connection, and the reply would be lost.
 */
#include "common/tcp_responder.h"

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/ring.h"
#include "common/tcp_spin.h"

#define ENTRIES 512u
#define CQ_ENTRIES 4096u
#define CQES_MAX 128u
#define CHUNK_LEN (UINT32_C(16) << 10) /* bytes of a buffer to receive into */
#define N_CHUNKS 64u                   /* shared ones: a power of two */
#define HELD_MAX 4u                    /* of them, before a connection has to go alone */
#define TICKS_STALL 4u                 /* stall_ms in ticks */
#define WORK_STARTS_MAX 4u             /* requests that work starts at once: it says which */
#define GROUP 1

TAILQ_HEAD(conn_queue, tcp_conn);

struct tcp_responder {
	const struct tcp_terms *terms;
	struct io_uring ring;
	struct tcp_spin spin;
	struct io_uring_buf_ring *shared; /* NULL: the kernel has none */
	unsigned char *chunks;
	int next_held[N_CHUNKS];
	uint32_t chunk_len[N_CHUNKS];
	LIST_HEAD(, tcp_conn) conns;
	STAILQ_HEAD(, tcp_conn) dirty;
	unsigned n_ticks;
	STAILQ_HEAD(, tcp_conn) trying;
	bool can_try;      /* the kernel tells nothing of a send that has succeeded at once */
	bool is_urgent;    /* what comes after such a send must not wait for anything else */
	bool is_ticking;   /* the tick flies */
	bool is_listening; /* the request that reads wake_fd flies */
	bool is_tick_wanted;
	bool is_stopping;
	struct __kernel_timespec tick;
	uint64_t wakes; /* where the ring reads wake_fd to */
	int wake_fd;
	bool has_ring;
	bool has_thread;
	pthread_t thread;

	pthread_mutex_t lock;
	pthread_cond_t changed; /* is_ended of a connection, or start */
	struct conn_queue added;
	struct conn_queue unwanted;
	struct conn_queue ended;
	bool stop;
	int start;    /* of the thread: > 0 not yet, 0 it serves, < 0 a failure of err.h */
	char *reason; /* and its sentence: until start is known */

	/* Counters: written by the thread. */
	_Atomic uint64_t n_calls, n_frames, n_violations, n_garbled, n_stalled;
};

static void
count(_Atomic uint64_t *counter, uint64_t n)
{
	uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
	atomic_store_explicit(counter, value + n, memory_order_relaxed);
}

/* ---- Requests: user_data names the connection and which of its requests it is ---- */

enum tag { TAG_RECV, TAG_SEND, TAG_CANCEL, TAG_WAKE, TAG_TICK };
#define TAG_MASK UINT64_C(7)
static_assert(_Alignof(struct tcp_conn) > TAG_MASK, "room for a tag");

static uint64_t
tagged(struct tcp_conn *conn, enum tag tag)
{
	return (uint64_t)(uintptr_t)conn | tag;
}

/* There is room: serve sees to it. */
static struct io_uring_sqe *
new_sqe(struct tcp_responder *r)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);
	assert(sqe);
	return sqe;
}

static void
dirty(struct tcp_responder *r, struct tcp_conn *conn)
{
	if (conn->is_dirty)
		return;
	conn->is_dirty = true;
	STAILQ_INSERT_TAIL(&r->dirty, conn, dirty);
}

static void
start_wake(struct tcp_responder *r)
{
	struct io_uring_sqe *sqe = new_sqe(r);
	io_uring_prep_read(sqe, r->wake_fd, &r->wakes, sizeof(r->wakes), 0);
	sqe->user_data = tagged(NULL, TAG_WAKE);
	r->is_listening = true;
}

static void
start_tick(struct tcp_responder *r)
{
	if (r->is_ticking)
		return;
	r->is_ticking = true;
	struct io_uring_sqe *sqe = new_sqe(r);
	io_uring_prep_timeout(sqe, &r->tick, 0, 0);
	sqe->user_data = tagged(NULL, TAG_TICK);
}

/*
 * The first attempt takes what the socket takes at once, and comes back in silence if that was all:
 * settle_tries. What is left, if anything, is sent by a request that waits for room.
 */
static void
start_send(struct tcp_responder *r, struct tcp_conn *conn)
{
	struct io_uring_sqe *sqe = new_sqe(r);
	bool tries = r->can_try && !conn->is_stuck;
	io_uring_prep_send(sqe, conn->fd, conn->frames.out + conn->out_sent,
			   conn->frames.out_len - conn->out_sent,
			   MSG_NOSIGNAL | (tries ? MSG_DONTWAIT | MSG_WAITALL : 0));
	sqe->user_data = tagged(conn, TAG_SEND);
	conn->n_flying++;
	conn->is_sending = true;
	if (!conn->is_stuck) {
		conn->since_ticks = r->n_ticks;
		start_tick(r);
	}
	if (!tries)
		return;
	sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
	conn->is_trying = true;
	STAILQ_INSERT_TAIL(&r->trying, conn, trying);
	r->is_urgent |= conn->is_full || conn->is_refused || conn->is_at_end;
}

static void
start_recv(struct tcp_responder *r, struct tcp_conn *conn)
{
	struct io_uring_sqe *sqe = new_sqe(r);
	if (conn->is_alone) {
		io_uring_prep_recv(sqe, conn->fd, conn->own, CHUNK_LEN, 0);
	} else {
		io_uring_prep_recv_multishot(sqe, conn->fd, NULL, 0, 0);
		sqe->flags |= IOSQE_BUFFER_SELECT;
		sqe->buf_group = GROUP;
	}
	sqe->user_data = tagged(conn, TAG_RECV);
	conn->n_flying++;
	conn->is_receiving = true;
}

static void
start_cancel(struct tcp_responder *r, struct tcp_conn *conn)
{
	struct io_uring_sqe *sqe = new_sqe(r);
	io_uring_prep_cancel64(sqe, tagged(conn, TAG_RECV), 0);
	sqe->user_data = tagged(conn, TAG_CANCEL);
	conn->n_flying++;
	conn->is_cancelled = true;
}

/* ---- Shared buffers ---- */

static unsigned char *
chunk(const struct tcp_responder *r, int id)
{
	return r->chunks + (size_t)id * CHUNK_LEN;
}

static void
give_back(struct tcp_responder *r, int id)
{
	io_uring_buf_ring_add(r->shared, chunk(r, id), CHUNK_LEN, (unsigned short)id,
			      io_uring_buf_ring_mask(N_CHUNKS), 0);
	io_uring_buf_ring_advance(r->shared, 1);
}

static void
hold(struct tcp_responder *r, struct tcp_conn *conn, int id, uint32_t len)
{
	r->chunk_len[id] = len;
	r->next_held[id] = -1;
	if (conn->held_first < 0)
		conn->held_first = id;
	else
		r->next_held[conn->held_last] = id;
	conn->held_last = id;
	conn->n_held++;
}

static void
drop_first_held(struct tcp_responder *r, struct tcp_conn *conn)
{
	int id = conn->held_first;
	conn->held_first = r->next_held[id];
	conn->held_at = 0;
	conn->n_held--;
	give_back(r, id);
}

/* ---- Input ---- */

static struct tcp_input
next_input(const struct tcp_responder *r, const struct tcp_conn *conn)
{
	int id = conn->held_first;
	if (id >= 0)
		return (struct tcp_input){chunk(r, id) + conn->held_at,
					  r->chunk_len[id] - conn->held_at};
	if (conn->own)
		return (struct tcp_input){conn->own + conn->own_at, conn->own_len - conn->own_at};
	return (struct tcp_input){(const unsigned char *)"", 0};
}

static bool
has_input(const struct tcp_conn *conn)
{
	return conn->held_first >= 0 || conn->own_at < conn->own_len;
}

static void
consumed(struct tcp_responder *r, struct tcp_conn *conn, size_t n)
{
	if (conn->held_first >= 0) {
		conn->held_at += n;
		if (conn->held_at == r->chunk_len[conn->held_first])
			drop_first_held(r, conn);
	} else {
		conn->own_at += n;
	}
}

static void
drop_input(struct tcp_responder *r, struct tcp_conn *conn)
{
	while (conn->held_first >= 0)
		drop_first_held(r, conn);
	conn->own_at = conn->own_len;
}

/* ---- Ends ---- */

/* Nothing is executed from here on. */
static void
close_soon(struct tcp_responder *r, struct tcp_conn *conn)
{
	if (conn->is_closing)
		return;
	conn->is_closing = true;
	count(&r->n_calls, 1);
	(void)shutdown(conn->fd, SHUT_RDWR); /* fails if the peer has reset it */
	drop_input(r, conn);
	dirty(r, conn);
}

/* Nothing of it flies. Once the lock is let go the connection may be freed. */
static void
end(struct tcp_responder *r, struct tcp_conn *conn)
{
	LIST_REMOVE(conn, served);
	close(conn->fd);
	pthread_mutex_lock(&r->lock);
	conn->is_ended = true;
	if (conn->is_unwanted)
		pthread_cond_broadcast(&r->changed);
	else
		TAILQ_INSERT_TAIL(&r->ended, conn, listed);
	if (conn->is_ordered)
		TAILQ_REMOVE(&r->unwanted, conn, listed);
	bool by_itself = !conn->is_unwanted;
	pthread_mutex_unlock(&r->lock);
	if (by_itself)
		eventfd_write(r->terms->event_fd, 1);
}

/* ---- Working off what has arrived ---- */

static void
execute(struct tcp_responder *r, struct tcp_conn *conn)
{
	/* Full: a long READ goes on without input, now that its reply has room again. */
	enum tcp_progress progress = conn->is_full ? TCP_ON : TCP_HUNGRY;
	uint64_t n_before = conn->frames.n_frames;
	while (progress == TCP_ON || (progress == TCP_HUNGRY && has_input(conn))) {
		struct tcp_input in = next_input(r, conn);
		size_t len = in.len;
		progress = tcp_frames_consume(&conn->frames, &in);
		consumed(r, conn, len - in.len);
	}
	conn->is_full = progress == TCP_FULL;
	count(&r->n_frames, conn->frames.n_frames - n_before);
	if (progress == TCP_GARBLED) {
		count(&r->n_garbled, 1);
		close_soon(r, conn);
	} else if (progress == TCP_REFUSED) {
		count(&r->n_violations, 1);
		conn->is_refused = true;
	}
}

/* All that was to be said to a peer that is refused has been sent: now it has to hang up. */
static void
say_no_more(struct tcp_responder *r, struct tcp_conn *conn)
{
	conn->is_silent = true;
	conn->since_ticks = r->n_ticks;
	start_tick(r);
	count(&r->n_calls, 1);
	(void)shutdown(conn->fd, SHUT_WR);
}

static void
go_alone(struct tcp_responder *r, struct tcp_conn *conn)
{
	conn->is_alone = true;
	if (conn->is_receiving && !conn->is_cancelled)
		start_cancel(r, conn);
}

static void
receive_more(struct tcp_responder *r, struct tcp_conn *conn)
{
	if (!conn->is_alone && conn->is_sending && conn->n_held >= HELD_MAX)
		go_alone(r, conn);
	if (conn->is_receiving || conn->is_at_end || (conn->is_alone && has_input(conn)))
		return;
	if (conn->is_alone && !conn->own)
		conn->own = malloc(CHUNK_LEN);
	if (conn->is_alone && !conn->own) {
		close_soon(r, conn);
		return;
	}
	conn->own_at = conn->own_len = 0;
	start_recv(r, conn);
}

/* Starts at most a send, a tick, a cancellation and a reception. */
static void
work(struct tcp_responder *r, struct tcp_conn *conn)
{
	bool is_said = conn->frames.out_len == 0;
	if (is_said && !conn->is_refused && !conn->is_closing)
		execute(r, conn);
	if (conn->is_refused)
		drop_input(r, conn);
	is_said = conn->frames.out_len == 0;
	if (!is_said && !conn->is_sending && !conn->is_closing)
		start_send(r, conn);
	if (is_said && conn->is_refused && !conn->is_silent && !conn->is_closing)
		say_no_more(r, conn);
	if (is_said && conn->is_at_end && !has_input(conn))
		close_soon(r, conn);
	if (!conn->is_closing)
		receive_more(r, conn);
	if (conn->is_closing && conn->n_flying == 0 && !conn->is_dirty)
		end(r, conn);
}

static void
received(struct tcp_responder *r, struct tcp_conn *conn, const struct io_uring_cqe *cqe)
{
	int res = cqe->res;
	if (!(cqe->flags & IORING_CQE_F_MORE)) {
		conn->n_flying--;
		conn->is_receiving = false;
	}
	if (cqe->flags & IORING_CQE_F_BUFFER) {
		int id = (int)(cqe->flags >> IORING_CQE_BUFFER_SHIFT);
		if (res > 0 && !conn->is_closing)
			hold(r, conn, id, (uint32_t)res);
		else
			give_back(r, id);
	} else if (res > 0) {
		conn->own_len = (size_t)res;
	}
	if (res == 0)
		conn->is_at_end = true;
	else if (!conn->is_alone && (res == -ENOBUFS || res == -EINVAL))
		conn->is_alone = true; /* -EINVAL: a kernel without multishot */
	else if (res < 0 && res != -EINTR && res != -EAGAIN &&
		 !(res == -ECANCELED && conn->is_cancelled))
		close_soon(r, conn);
}

static void
sent(struct tcp_responder *r, struct tcp_conn *conn, int result)
{
	conn->n_flying--;
	conn->is_sending = false;
	conn->is_trying = false;
	if (result > 0)
		conn->out_sent += (size_t)result;
	else if (result != -EINTR && result != -EAGAIN)
		close_soon(r, conn);
	conn->is_stuck = conn->out_sent < conn->frames.out_len;
	if (!conn->is_stuck)
		conn->frames.out_len = conn->out_sent = 0;
}

/*
 * What was submitted has been tried, and what failed or fell short has been reaped: the others have
 * succeeded. False: the kernel has not taken all requests yet.
 */
static bool
settle_tries(struct tcp_responder *r)
{
	struct tcp_conn *conn;
	r->is_urgent = io_uring_sq_ready(&r->ring) > 0;
	if (r->is_urgent)
		return false;
	while ((conn = STAILQ_FIRST(&r->trying))) {
		STAILQ_REMOVE_HEAD(&r->trying, trying);
		if (!conn->is_trying)
			continue;
		sent(r, conn, (int)(conn->frames.out_len - conn->out_sent));
		dirty(r, conn);
	}
	return true;
}

/* ---- Time ---- */

static void
tick(struct tcp_responder *r)
{
	struct tcp_conn *conn;
	bool again = false;
	r->is_ticking = false;
	r->n_ticks++;
	LIST_FOREACH(conn, &r->conns, served)
	{
		if (conn->is_closing || (!conn->is_sending && !conn->is_silent))
			continue;
		again = true;
		if (r->n_ticks - conn->since_ticks <= TICKS_STALL)
			continue;
		if (conn->is_sending)
			count(&r->n_stalled, 1);
		close_soon(r, conn);
	}
	r->is_tick_wanted = again;
}

/* ---- What the control thread wants ---- */

static void
take_orders(struct tcp_responder *r)
{
	struct tcp_conn *conn;
	pthread_mutex_lock(&r->lock);
	while ((conn = TAILQ_FIRST(&r->added))) {
		TAILQ_REMOVE(&r->added, conn, listed);
		conn->is_new = false;
		LIST_INSERT_HEAD(&r->conns, conn, served);
		dirty(r, conn);
	}
	while ((conn = TAILQ_FIRST(&r->unwanted))) {
		TAILQ_REMOVE(&r->unwanted, conn, listed);
		conn->is_ordered = false;
		close_soon(r, conn);
	}
	r->is_stopping = r->stop;
	pthread_mutex_unlock(&r->lock);
	r->is_listening = false;
	if (r->is_stopping)
		LIST_FOREACH(conn, &r->conns, served)
		{
			close_soon(r, conn);
		}
}

/* ---- The thread ---- */

static void
dispatch(struct tcp_responder *r, const struct io_uring_cqe *cqe)
{
	struct tcp_conn *conn = (struct tcp_conn *)(uintptr_t)(cqe->user_data & ~TAG_MASK);
	switch ((enum tag)(cqe->user_data & TAG_MASK)) {
	case TAG_RECV:
		received(r, conn, cqe);
		break;
	case TAG_SEND:
		sent(r, conn, cqe->res);
		break;
	case TAG_CANCEL:
		conn->n_flying--;
		break;
	case TAG_WAKE:
		take_orders(r);
		return;
	case TAG_TICK:
		tick(r);
		return;
	}
	dirty(r, conn);
}

/* All that the ring has. */
static void
reap(struct tcp_responder *r)
{
	struct io_uring_cqe *cqe[CQES_MAX];
	unsigned n;
	while ((n = io_uring_peek_batch_cqe(&r->ring, cqe, CQES_MAX)) > 0) {
		for (unsigned i = 0; i < n; i++)
			dispatch(r, cqe[i]);
		io_uring_cq_advance(&r->ring, n);
	}
}

static void
enter(struct tcp_responder *r)
{
	const struct timespec pause = {.tv_nsec = CLOCK_NS_PER_MS};
	bool waits = !r->is_urgent && STAILQ_EMPTY(&r->dirty);
	int n = waits ? tcp_spin_wait(&r->spin, &r->ring, 1)
		      : io_uring_submit_and_wait(&r->ring, 0);
	count(&r->n_calls, waits ? r->spin.n_calls : 1);
	if (n < 0 && n != -EINTR && n != -EBUSY)
		nanosleep(&pause, NULL); /* the kernel is short of memory: it may have some soon */
}

/* As far as the ring has room for what one connection may start, and for wake and tick. */
static void
work_off(struct tcp_responder *r)
{
	struct tcp_conn *conn;
	while ((conn = STAILQ_FIRST(&r->dirty)) &&
	       io_uring_sq_space_left(&r->ring) >= WORK_STARTS_MAX + 2) {
		STAILQ_REMOVE_HEAD(&r->dirty, dirty);
		conn->is_dirty = false;
		work(r, conn);
	}
}

static void
serve(struct tcp_responder *r)
{
	while (!r->is_stopping || !LIST_EMPTY(&r->conns)) {
		if (!r->is_listening && !r->is_stopping)
			start_wake(r);
		if (r->is_tick_wanted)
			start_tick(r);
		r->is_tick_wanted = false;
		enter(r);
		reap(r);
		if (settle_tries(r))
			work_off(r);
	}
}

/* ---- Its ring, which belongs to the thread that made it ---- */

/* The best ring that this kernel has. */
static int
open_ring(struct tcp_responder *r)
{
	static const unsigned flags[] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | TCP_SPIN_SETUP,
		IORING_SETUP_COOP_TASKRUN | TCP_SPIN_SETUP,
		0,
	};
	int error = EINVAL;
	for (size_t i = 0; i < sizeof(flags) / sizeof(*flags) && error == EINVAL; i++) {
		struct io_uring_params params = {
			.flags = flags[i] | IORING_SETUP_CQSIZE,
			.cq_entries = CQ_ENTRIES,
		};
		error = ring_open(&r->ring, ENTRIES, &params);
	}
	/* Linux 6.1: by then MSG_WAITALL makes a short send a failure, so that it is told. */
	r->can_try = !error && (r->ring.flags & IORING_SETUP_DEFER_TASKRUN) != 0;
	r->has_ring = error == 0;
	return error ? ring_refused(error, r->reason, TCP_REASON_MAX) : 0;
}

/* Without them connections receive alone. */
static void
open_shared_buffers(struct tcp_responder *r)
{
	size_t len = N_CHUNKS * sizeof(struct io_uring_buf);
	struct io_uring_buf_reg reg = {.ring_entries = N_CHUNKS, .bgid = GROUP};
	void *shared = aligned_alloc(4096, (len + 4095) & ~(size_t)4095);
	r->chunks = malloc((size_t)N_CHUNKS * CHUNK_LEN);
	if (shared && r->chunks) {
		memset(shared, 0, len);
		reg.ring_addr = (uint64_t)(uintptr_t)shared;
		if (io_uring_register_buf_ring(&r->ring, &reg, 0) == 0)
			r->shared = shared;
	}
	if (!r->shared) {
		free(shared);
		return;
	}
	for (unsigned i = 0; i < N_CHUNKS; i++)
		give_back(r, (int)i);
}

static void *
responder_main(void *arg)
{
	struct tcp_responder *r = arg;
	int rc = open_ring(r);
	if (!rc)
		open_shared_buffers(r);
	pthread_mutex_lock(&r->lock);
	r->start = rc;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->lock);
	if (!rc)
		serve(r);
	if (r->has_ring)
		ring_close(&r->ring);
	return NULL;
}

/* ---- For the control thread ---- */

static void
wake(struct tcp_responder *r)
{
	eventfd_write(r->wake_fd, 1);
}

int
tcp_conn_init(struct tcp_conn *conn, int fd, const struct tcp_terms *terms)
{
	conn->fd = fd;
	conn->held_first = -1;
	conn->frames.service = &terms->service;
	conn->frames.out = malloc(TCP_OUT_LEN);
	return conn->frames.out ? 0 : ERR_NOMEM;
}

void
tcp_conn_free_buffers(struct tcp_conn *conn)
{
	free(conn->frames.out);
	free(conn->own);
	conn->frames.out = conn->own = NULL;
}

void
tcp_responder_add(struct tcp_responder *r, struct tcp_conn *conn)
{
	conn->is_new = true;
	conn->is_alone = !r->shared;
	pthread_mutex_lock(&r->lock);
	TAILQ_INSERT_TAIL(&r->added, conn, listed);
	pthread_mutex_unlock(&r->lock);
	wake(r);
}

void
tcp_responder_remove(struct tcp_responder *r, struct tcp_conn *conn)
{
	pthread_mutex_lock(&r->lock);
	if (conn->is_ended) {
		TAILQ_REMOVE(&r->ended, conn, listed);
	} else if (conn->is_new) {
		TAILQ_REMOVE(&r->added, conn, listed);
		close(conn->fd);
	} else {
		conn->is_unwanted = conn->is_ordered = true;
		TAILQ_INSERT_TAIL(&r->unwanted, conn, listed);
		wake(r);
		/*
		 * Without a deadline, as there is nothing else that could be done: the memory may
		 * not be given away before, [DEAD]. It is short: the thread waits for nothing but
		 * its ring, which the eventfd wakes; between two looks at the ring it executes at
		 * most what its buffers hold; and a socket that is shut down lets go of all its
		 * requests.
		 */
		while (!conn->is_ended)
			pthread_cond_wait(&r->changed, &r->lock);
	}
	pthread_mutex_unlock(&r->lock);
}

struct tcp_conn *
tcp_responder_take_ended(struct tcp_responder *r)
{
	pthread_mutex_lock(&r->lock);
	struct tcp_conn *conn = TAILQ_FIRST(&r->ended);
	if (conn)
		TAILQ_REMOVE(&r->ended, conn, listed);
	pthread_mutex_unlock(&r->lock);
	return conn;
}

void
tcp_responder_count(const struct tcp_responder *r, struct tcp_counters *counters)
{
	counters->n_calls += atomic_load_explicit(&r->n_calls, memory_order_relaxed);
	counters->n_frames += atomic_load_explicit(&r->n_frames, memory_order_relaxed);
	counters->n_violations += atomic_load_explicit(&r->n_violations, memory_order_relaxed);
	counters->n_garbled += atomic_load_explicit(&r->n_garbled, memory_order_relaxed);
	counters->n_stalled += atomic_load_explicit(&r->n_stalled, memory_order_relaxed);
}

/* ---- Making one ---- */

static int
start_thread(struct tcp_responder *r, char reason[TCP_REASON_MAX])
{
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int error = pthread_create(&r->thread, NULL, responder_main, r);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (error) {
		snprintf(reason, TCP_REASON_MAX,
			 "cannot start a responder thread: %s: raise the limit of processes "
			 "(ulimit -u, TasksMax= in a systemd unit)",
			 strerror(error));
		return ERR_NOMEM;
	}
	r->has_thread = true;
	pthread_setname_np(r->thread, "rkv-tcp");
	pthread_mutex_lock(&r->lock);
	while (r->start > 0)
		pthread_cond_wait(&r->changed, &r->lock);
	int rc = r->start;
	pthread_mutex_unlock(&r->lock);
	return rc;
}

int
tcp_responder_create(const struct tcp_terms *terms, struct tcp_responder **ret_responder,
		     char reason[TCP_REASON_MAX])
{
	int64_t tick_ns = terms->stall_ms * CLOCK_NS_PER_MS / TICKS_STALL;
	struct tcp_responder *r = calloc(1, sizeof(*r));
	if (!r) {
		snprintf(reason, TCP_REASON_MAX, "no memory for a responder");
		return ERR_NOMEM;
	}
	r->terms = terms;
	r->start = 1;
	r->reason = reason;
	r->tick.tv_sec = tick_ns / CLOCK_NS_PER_S;
	r->tick.tv_nsec = tick_ns % CLOCK_NS_PER_S;
	LIST_INIT(&r->conns);
	STAILQ_INIT(&r->dirty);
	STAILQ_INIT(&r->trying);
	TAILQ_INIT(&r->added);
	TAILQ_INIT(&r->unwanted);
	TAILQ_INIT(&r->ended);
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->changed, NULL);
	r->wake_fd = eventfd(0, EFD_CLOEXEC);
	int rc = r->wake_fd < 0 ? err_from_errno(errno) : 0;
	if (rc)
		snprintf(reason, TCP_REASON_MAX, "eventfd: %s: raise the limit of open files",
			 strerror(errno));
	if (!rc)
		rc = start_thread(r, reason);
	if (rc) {
		tcp_responder_destroy(r);
		return rc;
	}
	*ret_responder = r;
	return 0;
}

static void
stop_thread(struct tcp_responder *r)
{
	struct tcp_conn *conn;
	pthread_mutex_lock(&r->lock);
	r->stop = true;
	pthread_mutex_unlock(&r->lock);
	wake(r);
	pthread_join(r->thread, NULL);
	TAILQ_FOREACH(conn, &r->added, listed)
	{
		close(conn->fd); /* it was added too late to be seen */
	}
}

void
tcp_responder_destroy(struct tcp_responder *r)
{
	if (!r)
		return;
	if (r->has_thread)
		stop_thread(r);
	if (r->wake_fd >= 0)
		close(r->wake_fd);
	free(r->shared);
	free(r->chunks);
	pthread_cond_destroy(&r->changed);
	pthread_mutex_destroy(&r->lock);
	free(r);
}
