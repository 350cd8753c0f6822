/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared memory as a fabric. The server's pool (common/pool.h) is a memfd; a client gets its
 * descriptor over a unix socket, maps it, and its own CPU plays the NIC: a batch is executed inside
 * fab_post.
 *
 *   memfd   | region: offer->len bytes          | ... rounding ... | struct life (last 64 bytes) |
 *           ^ roff 0                                                 a page of this fabric's own
 *
 * THE LIFE WORD, [LIFE] (proto/decisions/0001-life-word.md). Memory outlives its server: the
 * mapping still works when kill -9 has ended the process, and a client that went on would
 * acknowledge writes that nobody will ever read. So the last page holds the thread id of a sleeping
 * thread of the server, and that thread has told the kernel (set_robust_list) that this word is a
 * lock it holds. However the process ends, the kernel itself then marks the word FUTEX_OWNER_DIED,
 * while the thread releases its memory, which is before it lets go of the file table and so before
 * the last socket of the process is closed. An endpoint looks at the word *after* it executed a
 * batch and *before* it completes it:
 *
 *   client   execute {WRITE; CAS; READ} ---- look at the word: alive? ---- complete, else ERR_CONN
 *   server   alive ...................................... killed: kernel marks word, closes sockets
 *   next server                                                        binds the port, formats anew
 *
 * A batch that completed was therefore executed while the server lived, without one system call.
 *
 * SEVERING. Where the pool lies in a file, the next server uses the very same memory, and begins
 * when nobody maps it any more (common/pool_file.h). A session in the middle of a batch, or one
 * that nobody polls, must not keep it waiting: so a region that is severed loses its memory at
 * once. Empty memory of this process takes its place, in one step of the kernel's; what is still
 * executed falls into it, and does not count, because the life word there is 0.
 *
 * ORDER: common/execute.h.
 *
 * Threads: an endpoint belongs to one at a time; everything else may be used by any. post and poll
 * make no system call, take no lock, allocate nothing. A region lives as long as its last endpoint.
 */
#include "common/fabric_shm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/execute.h"
#include "common/fabric_host.h"
#include "common/net.h"
#include "common/pool_file.h"

#define WAIT_SPINS 64
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* ---- The life word ---- */

#define LIFE_MAGIC UINT64_C(0x4546494c4d48534b) /* "KSHMLIFE" */

struct life {
	uint64_t magic;
	_Atomic uint32_t word; /* the server's thread, or FUTEX_OWNER_DIED */
	unsigned char reserved[52];
};
_Static_assert(sizeof(struct life) == 64, "life");

static bool
life_is_on(const struct life *life)
{
	uint32_t word = atomic_load_explicit(&life->word, memory_order_acquire);
	return (word & FUTEX_TID_MASK) != 0 && (word & FUTEX_OWNER_DIED) == 0;
}

/*
 * What the kernel walks when the thread ends. In shared anonymous memory: not in the pool, where
 * clients write, and not in private memory, which the OOM reaper takes before the walk.
 */
struct life_list {
	struct robust_list_head head;
	struct robust_list entry;
};

struct life_thread {
	pthread_t thread;
	bool started;
	struct life *life;
	struct life_list *list;
	sem_t ready, stop;
	int error; /* of set_robust_list */
};

/*
 * Registers the word and sleeps. glibc's own list of this thread is replaced, which harms nobody:
 * it serves robust mutexes, and this thread uses none.
 */
static void *
life_main(void *arg)
{
	struct life_thread *t = arg;
	struct life_list *list = t->list;
	list->head.list.next = &list->entry;
	list->entry.next = &list->head.list;
	list->head.futex_offset = (char *)&t->life->word - (char *)&list->entry;
	list->head.list_op_pending = NULL;
	t->error = syscall(SYS_set_robust_list, &list->head, sizeof(list->head)) ? errno : 0;
	if (!t->error)
		atomic_store_explicit(&t->life->word, (uint32_t)gettid(), memory_order_release);
	sem_post(&t->ready);
	while (sem_wait(&t->stop))
		;
	return NULL;
}

static void
life_stop(struct life_thread *t)
{
	if (t->started) {
		atomic_store_explicit(&t->life->word, FUTEX_OWNER_DIED, memory_order_seq_cst);
		sem_post(&t->stop);
		pthread_join(t->thread, NULL);
		sem_destroy(&t->ready);
		sem_destroy(&t->stop);
	}
	if (t->list)
		munmap(t->list, sizeof(*t->list));
}

static int
life_start(struct life_thread *t, struct life *life)
{
	sigset_t all, old;
	t->life = life;
	life->magic = LIFE_MAGIC;
	(void)mlock(life,
		    sizeof(*life)); /* the kernel's write at the end shall not need to page in */
	void *list = mmap(NULL, sizeof(*t->list), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (list == MAP_FAILED)
		return errno;
	t->list = list;
	sem_init(&t->ready, 0, 0);
	sem_init(&t->stop, 0, 0);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int error = pthread_create(&t->thread, NULL, life_main, t);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (error)
		return error;
	t->started = true;
	pthread_setname_np(t->thread, "rkv-life");
	while (sem_wait(&t->ready))
		;
	return t->error;
}

/* ---- What clients of this host share ---- */

struct shm_share {
	struct pool *pool;
	struct life_thread life;
};

static struct life *
life_at(unsigned char *base, size_t map_len)
{
	return (struct life *)(void *)(base + map_len - sizeof(struct life));
}

int
shm_share_create(struct pool *pool, const struct log *log, struct shm_share **ret_share)
{
	struct shm_share *share = calloc(1, sizeof(*share));
	if (!share)
		return ERR_NOMEM;
	share->pool = pool;
	int error = life_start(&share->life, life_at(pool_base(pool), pool_map_len(pool)));
	if (error) {
		log_line(log, LOG_ERROR, "cannot start the life thread of the pool: %s",
			 strerror(error));
		shm_share_destroy(share);
		return error == EAGAIN ? ERR_NOMEM : err_from_errno(error);
	}
	*ret_share = share;
	return 0;
}

void
shm_share_destroy(struct shm_share *share)
{
	if (!share)
		return;
	life_stop(&share->life);
	free(share);
}

/* ---- Passing the descriptor: the region's length, and the memfd beside it ---- */

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int))];
};

static int
send_descriptor(int socket, int fd, uint64_t len)
{
	union control control = {0};
	struct iovec iov = {.iov_base = &len, .iov_len = sizeof(len)};
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	ssize_t n;
	do
		n = sendmsg(socket, &msg, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)sizeof(len) ? 0 : ERR_CONN;
}

/* A descriptor of its own for a client; of memory only to read. */
static int
lend(const struct shm_share *share, pid_t pid, bool read_only, int *ret_fd)
{
	char path[32];
	if (pool_is_file(share->pool))
		return pool_file_lend(pool_fd(share->pool), pid, read_only, ret_fd);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", pool_fd(share->pool));
	*ret_fd = open(path, O_RDONLY | O_CLOEXEC);
	return *ret_fd < 0 ? err_from_errno(errno) : 0;
}

int
shm_share_send(const struct shm_share *share, int socket, pid_t pid, bool read_only)
{
	int fd = pool_fd(share->pool);
	if (!read_only && !pool_is_file(share->pool))
		return send_descriptor(socket, fd, pool_len(share->pool));
	int r = lend(share, pid, read_only, &fd);
	if (r)
		return r;
	r = send_descriptor(socket, fd, pool_len(share->pool));
	close(fd);
	return r;
}

/* In place of the message above. */
#define REFUSAL_NO_FILES 'F'

void
shm_refuse(int socket)
{
	const char byte = REFUSAL_NO_FILES;
	/* Nothing can be done if the peer does not take it: it then sees the connection end. */
	(void)!send(socket, &byte, sizeof(byte), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/*
 * Takes the descriptor of a message. ERR_NOMEM: the kernel had one and no number for it.
 * ERR_CORRUPT: there is none, or there are more (padding has room for one), of which none is kept.
 */
static int
take_descriptor(struct msghdr *msg, int *ret_fd)
{
	int fd = -1;
	unsigned n_fds = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t off = CMSG_LEN(0); off + sizeof(int) <= c->cmsg_len;
		     off += sizeof(int)) {
			if (fd >= 0)
				close(fd);
			memcpy(&fd, (unsigned char *)c + off, sizeof(int));
			n_fds++;
		}
	}
	bool cut = (msg->msg_flags & MSG_CTRUNC) != 0;
	if (n_fds == 1 && !cut) {
		*ret_fd = fd;
		return 0;
	}
	if (fd >= 0)
		close(fd);
	return cut && n_fds <= 1 ? ERR_NOMEM : ERR_CORRUPT;
}

/* ERR_AGAIN: the server said that it has no descriptor left. */
static int
receive_pool(int socket, int64_t deadline_ns, int *ret_fd, uint64_t *ret_len)
{
	union {
		uint64_t len;
		char first;
	} body = {0};
	union control control;
	struct iovec iov = {.iov_base = &body, .iov_len = sizeof(body)};
	ssize_t n;
	int fd;
	struct msghdr msg;
	do {
		int r = net_wait(socket, POLLIN, deadline_ns);
		if (r)
			return r;
		msg = (struct msghdr){
			.msg_iov = &iov,
			.msg_iovlen = 1,
			.msg_control = control.bytes,
			.msg_controllen = sizeof(control.bytes),
		};
		n = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC);
	} while (n < 0 && (errno == EINTR || errno == EAGAIN));
	if (n <= 0)
		return ERR_CONN; /* the token was not taken, or the server is gone */
	int r = take_descriptor(&msg, &fd);
	if (r == ERR_CORRUPT && n == 1 && body.first == REFUSAL_NO_FILES)
		return ERR_AGAIN;
	if (r)
		return r;
	if (n != (ssize_t)sizeof(body)) {
		close(fd);
		return ERR_CORRUPT;
	}
	*ret_fd = fd;
	*ret_len = body.len;
	return 0;
}

/* ---- Client: the fabric ---- */

struct shm_fab {
	struct fab fab;
	_Atomic uint32_t n_keys;
};

/* CPUs reach all memory: a registration is only a number. */
static int
shm_register(struct fab *fab, void *local, size_t len, uint32_t *ret_key)
{
	(void)local;
	(void)len;
	struct shm_fab *f = (struct shm_fab *)fab;
	*ret_key = atomic_fetch_add_explicit(&f->n_keys, 1, memory_order_relaxed) + 1;
	return 0;
}

static void
shm_deregister(struct fab *fab, uint32_t key)
{
	(void)fab;
	(void)key;
}

static void
shm_close(struct fab *fab)
{
	free(fab);
}

/* ---- Client: a region ---- */

struct shm_region {
	struct fab_region region;
	_Atomic uint32_t refs; /* the opener and each endpoint; [LAST]: the last one unmaps */
	_Atomic bool severed;  /* [SEVER]: from any thread */
	bool writable;
	bool owns_map; /* false: the server's own mapping, in a loop-back */
	unsigned char *base;
	size_t map_len;
	uint64_t len; /* of the region: what roff may reach */
	const struct life *life;
};

static void
region_release(struct shm_region *region)
{
	if (!region || atomic_fetch_sub_explicit(&region->refs, 1, memory_order_acq_rel) != 1)
		return;
	if (region->owns_map && region->base != MAP_FAILED)
		munmap(region->base, region->map_len);
	free(region);
}

static void
shm_region_close(struct fab_region *region)
{
	region_release((struct shm_region *)region);
}

/*
 * Puts empty memory in the place of the mapping. It is moved there: a mapping made there could fail
 * when the old one is gone already. Without room for it the pool stays mapped until the last
 * endpoint is gone.
 */
static void
take_memory_away(struct shm_region *region)
{
	void *empty = mmap(NULL, region->map_len, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (empty != MAP_FAILED &&
	    mremap(empty, region->map_len, region->map_len, MREMAP_MAYMOVE | MREMAP_FIXED,
		   region->base) == MAP_FAILED)
		munmap(empty, region->map_len);
}

static void
shm_region_sever(struct fab_region *region)
{
	struct shm_region *r = (struct shm_region *)region;
	bool is_first = !atomic_exchange_explicit(&r->severed, true, memory_order_acq_rel);
	if (is_first && r->owns_map)
		take_memory_away(r);
}

static int
region_new(struct fab *fab, uint64_t len, struct shm_region **ret_region)
{
	struct shm_region *region = calloc(1, sizeof(*region));
	if (!region)
		return ERR_NOMEM;
	region->region = (struct fab_region){.driver = fab->driver, .fab = fab};
	atomic_init(&region->refs, 1);
	region->base = MAP_FAILED;
	region->len = len;
	*ret_region = region;
	return 0;
}

/*
 * A memfd must not be able to shrink, which would be a SIGBUS, nor to grow. A file has no seals: it
 * is as good as those who may write it, the server's user.
 */
static bool
keeps_its_size(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);
	bool is_file = seals == F_SEAL_SEAL || (seals < 0 && errno == EINVAL);
	return is_file || (seals >= 0 && (seals & SEALS) == SEALS);
}

/*
 * Maps a descriptor that another process sent: it must be large enough for the region and the life
 * word behind it.
 */
static int
region_map(struct shm_region *region, int fd)
{
	struct stat st;
	int flags = fcntl(fd, F_GETFL);
	if (flags < 0 || !keeps_its_size(fd) || fstat(fd, &st) || !S_ISREG(st.st_mode) ||
	    st.st_size < 0)
		return ERR_CORRUPT;
	uint64_t size = (uint64_t)st.st_size;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	if (size % page != 0 || size < page || region->len > size - page)
		return ERR_CORRUPT;
	region->writable = (flags & O_ACCMODE) == O_RDWR;
	region->owns_map = true;
	region->map_len = size;
	region->base = mmap(NULL, size, PROT_READ | (region->writable ? PROT_WRITE : 0), MAP_SHARED,
			    fd, 0);
	if (region->base == MAP_FAILED || madvise(region->base, size, MADV_DONTFORK))
		return err_from_errno(errno);
	region->life = life_at(region->base, size);
	if (region->life->magic != LIFE_MAGIC)
		return ERR_CORRUPT;
	return life_is_on(region->life) ? 0 : ERR_CONN;
}

/* Sends the token and takes what comes back. */
static int
region_fetch(const struct fab_offer *offer, int64_t deadline_ns, int *ret_fd)
{
	char path[sizeof(offer->unix_path) + 1] = "";
	int socket = -1, fd = -1;
	uint64_t len;
	memcpy(path, offer->unix_path, sizeof(offer->unix_path));
	int r = net_unix_connect(path, deadline_ns, &socket);
	if (r)
		return r;
	/*
	 * A fresh socket has room for so little. If the server has closed it already, what it said
	 * before can still be received.
	 */
	(void)!send(socket, offer->token, SHM_REQUEST_LEN, MSG_NOSIGNAL);
	r = receive_pool(socket, deadline_ns, &fd, &len);
	close(socket);
	if (r)
		return r;
	if (len != offer->len) {
		close(fd);
		return ERR_CORRUPT;
	}
	*ret_fd = fd;
	return 0;
}

static int
shm_region_open(struct fab *fab, const struct fab_offer *offer, int64_t deadline_ns,
		struct fab_region **ret_region)
{
	struct shm_region *region = NULL;
	int fd = -1;
	int r = region_new(fab, offer->len, &region);
	if (r)
		return r;
	r = region_fetch(offer, deadline_ns, &fd);
	if (r)
		goto fail;
	r = region_map(region, fd);
	close(fd);
	if (r)
		goto fail;
	*ret_region = &region->region;
	return 0;
fail:
	region_release(region);
	return r;
}

/* ---- Client: an endpoint ---- */

struct shm_endpoint {
	struct fab_endpoint ep;
	/* Copies of what the region says, so that a batch touches one line. */
	unsigned char *base;
	uint64_t len;
	const struct life *life;
	const _Atomic bool *severed;
	bool writable;
	bool broken; /* a batch failed: nothing is executed any more */
	uint32_t depth;
	uint32_t mask;     /* of the ring, whose size is depth rounded up to a power of two */
	uint32_t n_posted; /* completions put into the ring, modulo 2^32 */
	uint32_t n_polled; /* completions taken from it */
	struct fab_done ring[];
};

static int
endpoint_new(struct shm_region *region, uint32_t depth, struct shm_endpoint **ret_endpoint)
{
	if (depth == 0 || depth > UINT32_C(1) << 20)
		return ERR_INVALID;
	uint32_t size = 1;
	while (size < depth)
		size *= 2;
	struct shm_endpoint *ep = calloc(1, sizeof(*ep) + size * sizeof(ep->ring[0]));
	if (!ep)
		return ERR_NOMEM;
	ep->ep = (struct fab_endpoint){.driver = region->region.driver, .region = &region->region};
	ep->base = region->base;
	ep->len = region->len;
	ep->life = region->life;
	ep->severed = &region->severed;
	ep->writable = region->writable;
	ep->depth = depth;
	ep->mask = size - 1;
	atomic_fetch_add_explicit(&region->refs, 1, memory_order_relaxed);
	*ret_endpoint = ep;
	return 0;
}

static int
shm_connect(struct fab_region *region, const struct fab_ticket *ticket, uint32_t depth,
	    int64_t deadline_ns, struct fab_endpoint **ret_endpoint)
{
	struct shm_region *r = (struct shm_region *)region;
	struct shm_endpoint *ep;
	(void)ticket;      /* nobody has to admit it */
	(void)deadline_ns; /* nothing to wait for */
	if (atomic_load_explicit(&r->severed, memory_order_acquire) || !life_is_on(r->life))
		return ERR_CONN;
	int error = endpoint_new(r, depth, &ep);
	if (error)
		return error;
	*ret_endpoint = &ep->ep;
	return 0;
}

static void
shm_disconnect(struct fab_endpoint *ep)
{
	struct shm_region *region = (struct shm_region *)ep->region;
	free(ep);
	region_release(region);
}

/* ---- Executing a batch ---- */

/* [RANGE] */
static inline __attribute__((always_inline)) int
op_check(const struct shm_endpoint *ep, const struct fab_op *op)
{
	uint64_t len = (uint64_t)op->piece[0].len + op->piece[1].len;
	int r = execute_check(op->kind, op->roff, len, ep->len, ep->writable);
	if (!r && op->kind >= FAB_CAS && op->piece[0].len != 8)
		return ERR_INVALID;
	return r;
}

static inline __attribute__((always_inline)) void
read_execute(const struct shm_endpoint *ep, const struct fab_op *op)
{
	const unsigned char *remote = ep->base + op->roff;
	execute_read(op->piece[0].local, remote, op->piece[0].len);
	if (op->piece[1].len)
		execute_read(op->piece[1].local, remote + op->piece[0].len, op->piece[1].len);
}

static void
op_execute(const struct shm_endpoint *ep, const struct fab_op *op)
{
	unsigned char *remote = ep->base + op->roff;
	const struct fab_piece *piece = op->piece;
	uint64_t old;
	switch (op->kind) {
	case FAB_READ:
		read_execute(ep, op);
		break;
	case FAB_WRITE:
		execute_write(remote, piece[0].local, piece[0].len);
		if (piece[1].len)
			execute_write(remote + piece[0].len, piece[1].local, piece[1].len);
		break;
	case FAB_CAS:
	case FAB_FAA:
		old = execute_atomic(remote, op->kind, op->expect, op->swap);
		memcpy(piece[0].local, &old, sizeof(old));
		break;
	}
}

/* Executes all of a batch or, if one operation is not allowed, nothing that changes the region. */
static inline __attribute__((always_inline)) int
batch_execute(struct shm_endpoint *ep, const struct fab_op *ops, unsigned n)
{
	if (ep->broken || atomic_load_explicit(ep->severed, memory_order_acquire))
		return ERR_CONN;
	const struct fab_op *end = ops + n;
	const struct fab_op *op = ops;
	int r = 0;
	/* READs in front change nothing in the region: no need to check what follows first. */
	for (; op < end && op->kind == FAB_READ; op++) {
		r = op_check(ep, op);
		if (r)
			goto refuse;
		read_execute(ep, op);
	}
	for (const struct fab_op *later = op; later < end; later++) {
		r = op_check(ep, later);
		if (r)
			goto refuse;
	}
	for (; op < end; op++)
		op_execute(ep, op);
	/* [LIFE]: what the batch read was read before the look at the word. */
	execute_fence_acquire();
	if (!life_is_on(ep->life)) {
		r = ERR_CONN;
		goto refuse;
	}
	return 0;
refuse:
	ep->broken = true;
	return r;
}

static int
shm_post(struct fab_endpoint *endpoint, const struct fab_op *ops, unsigned n, void *cookie)
{
	struct shm_endpoint *ep = (struct shm_endpoint *)endpoint;
	if (n - 1 >= FAB_BATCH_MAX)
		return ERR_INVALID;
	if (ep->n_posted - ep->n_polled == ep->depth)
		return ERR_AGAIN;
	struct fab_done *done = &ep->ring[ep->n_posted++ & ep->mask];
	done->cookie = cookie;
	done->status = batch_execute(ep, ops, n);
	return 0;
}

/* Its failure shows in the batches that follow, as that of an unsignalled work request does. */
static int
shm_post_quiet(struct fab_endpoint *endpoint, const struct fab_op *ops, unsigned n)
{
	struct shm_endpoint *ep = (struct shm_endpoint *)endpoint;
	if (n - 1 >= FAB_BATCH_MAX)
		return ERR_INVALID;
	(void)batch_execute(ep, ops, n);
	return 0;
}

static unsigned
shm_poll(struct fab_endpoint *endpoint, struct fab_done *done, unsigned max)
{
	struct shm_endpoint *ep = (struct shm_endpoint *)endpoint;
	unsigned n = ep->n_posted - ep->n_polled;
	if (n > max)
		n = max;
	for (unsigned i = 0; i < n; i++)
		done[i] = ep->ring[ep->n_polled++ & ep->mask];
	if (atomic_load_explicit(ep->severed, memory_order_acquire))
		for (unsigned i = 0; i < n; i++)
			done[i].status = ERR_CONN;
	return n;
}

/* Nothing can land from elsewhere: this only passes the time of a caller that backs off. */
static void
shm_wait(struct fab_endpoint *endpoint, int64_t until_ns)
{
	struct shm_endpoint *ep = (struct shm_endpoint *)endpoint;
	int64_t left_ns = until_ns - clock_now_ns();
	for (int i = 0; i < WAIT_SPINS && left_ns > 0 && ep->n_posted == ep->n_polled; i++) {
		host_relax();
		left_ns = until_ns - clock_now_ns();
	}
	if (left_ns <= 0 || ep->n_posted != ep->n_polled)
		return;
	host_pause(endpoint->region->fab, until_ns);
}

static const struct fab_driver shm_driver = {
	.name = "shm",
	.reaches_all_memory = true,
	.register_memory = shm_register,
	.deregister_memory = shm_deregister,
	.region_open = shm_region_open,
	.region_sever = shm_region_sever,
	.region_close = shm_region_close,
	.connect = shm_connect,
	.disconnect = shm_disconnect,
	.post = shm_post,
	.post_quiet = shm_post_quiet,
	.poll = shm_poll,
	.wait = shm_wait,
	.pause = host_pause,
	.now = host_now,
	.rand = host_rand,
	.close = shm_close,
};

int
shm_open_fabric(struct fab **ret_fab)
{
	struct shm_fab *f = calloc(1, sizeof(*f));
	if (!f)
		return ERR_NOMEM;
	f->fab.driver = &shm_driver;
	*ret_fab = &f->fab;
	return 0;
}

/* ---- Server: its own endpoint ---- */

#define LOOPBACK_DEPTH 64u

int
shm_loopback(struct shm_share *share, struct fab_endpoint **ret_endpoint)
{
	struct fab *fab = NULL;
	struct shm_region *region = NULL;
	struct shm_endpoint *ep = NULL;
	int r = shm_open_fabric(&fab);
	if (!r)
		r = region_new(fab, pool_len(share->pool), &region);
	if (r)
		goto out;
	region->base = pool_base(share->pool);
	region->map_len = pool_map_len(share->pool);
	region->writable = true;
	region->life = share->life.life;
	r = endpoint_new(region, LOOPBACK_DEPTH, &ep);
	if (r)
		goto out;
	*ret_endpoint = &ep->ep;
	fab = NULL; /* shm_loopback_close finds it through the endpoint */
out:
	region_release(region);
	fab_close(fab);
	return r;
}

void
shm_loopback_close(struct fab_endpoint *ep)
{
	if (!ep)
		return;
	struct fab *fab = ep->region->fab;
	fab_disconnect(ep);
	fab_close(fab);
}
