/* SPDX-License-Identifier: BSD-2-Clause */
/* See fake_verbs.h: devices, memory, queues. */
#include "tests/fabric/fake_verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

struct fake_knobs fake;
struct fake_counts fake_counts;
pthread_rwlock_t fake_lock = PTHREAD_RWLOCK_INITIALIZER;

void
fake_abort(const char *why)
{
	fprintf(stderr, "# fake device: %s\n", why);
	abort();
}

bool
fake_fails(const char *call)
{
	unsigned n = atomic_fetch_add(&fake_counts.n_calls, 1) + 1;
	if (fake.fail_at != n)
		return false;
	atomic_store(&fake_counts.failed, call);
	errno = ENOMEM;
	return true;
}

static void *
object_new(size_t size)
{
	void *object = calloc(1, size);
	if (!object)
		fake_abort("out of memory");
	atomic_fetch_add(&fake_counts.n_live, 1);
	return object;
}

static void
object_free(void *object)
{
	atomic_fetch_sub(&fake_counts.n_live, 1);
	free(object);
}

/* ---- Devices ---- */

#define ASYNC_MAX 16u

struct fake_device {
	struct ibv_device device;
	struct verbs_context verbs;
	struct ibv_async_event async[ASYNC_MAX];
	unsigned n_async, n_async_taken;
};

static struct fake_device devices[FAKE_DEVICES_MAX];
static LIST_HEAD(, fake_qp) qps; /* the newest first */

struct ibv_context *
fake_context(unsigned device)
{
	return &devices[device].verbs.context;
}

static struct fake_device *
device_of(struct ibv_context *context)
{
	for (unsigned i = 0; i < FAKE_DEVICES_MAX; i++)
		if (context == fake_context(i))
			return &devices[i];
	fake_abort("a context of another library");
}

struct ibv_device **
ibv_get_device_list(int *num_devices)
{
	if (fake.list_error || fake_fails("ibv_get_device_list")) {
		if (fake.list_error)
			errno = fake.list_error;
		return NULL;
	}
	struct ibv_device **list = object_new((FAKE_DEVICES_MAX + 1) * sizeof(*list));
	for (unsigned i = 0; i < fake.n_devices; i++)
		list[i] = &devices[i].device;
	if (num_devices)
		*num_devices = (int)fake.n_devices;
	return list;
}

void
ibv_free_device_list(struct ibv_device **list)
{
	object_free(list);
}

const char *
ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

int
ibv_fork_init(void)
{
	return 0;
}

int
ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	if (fake.query_error)
		return fake.query_error;
	if (fake_fails("ibv_query_device"))
		return ENOMEM;
	*attr = fake.attr[device_of(context) - devices];
	return 0;
}

static int
query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t len)
{
	(void)context;
	if (fake_fails("ibv_query_port")) /* in the other style */
		return -1;
	if (port != 1)
		return EINVAL;
	memset(attr, 0, len);
	attr->state = fake.port_state;
	attr->max_msg_sz = fake.max_msg;
	attr->link_layer = IBV_LINK_LAYER_ETHERNET;
	return 0;
}

int
ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	(void)context;
	(void)port;
	(void)attr;
	fake_abort("the old ibv_query_port");
}

/* As RoCE devices show it: an IPv4 address is mapped. */
static union ibv_gid
gid_of(const char *host)
{
	union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};
	if (inet_pton(AF_INET, host, gid.raw + 12) != 1 && inet_pton(AF_INET6, host, gid.raw) != 1)
		fake_abort("an address that is none");
	return gid;
}

ssize_t
_ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max_entries,
		     uint32_t flags, size_t entry_size)
{
	int device = (int)(device_of(context) - devices);
	size_t n = 0;
	(void)flags;
	if (entry_size != sizeof(*entries) || fake_fails("ibv_query_gid_table"))
		return -EOPNOTSUPP;
	for (const struct fake_address *a = fake.addresses; a->host && n < max_entries; a++) {
		if (a->device != device)
			continue;
		entries[n] = (struct ibv_gid_entry){
			.gid = gid_of(a->host),
			.gid_index = (uint32_t)n,
			.port_num = 1,
			.gid_type = a->gid_type,
		};
		n++;
	}
	return (ssize_t)n;
}

const char *
ibv_port_state_str(enum ibv_port_state state)
{
	return state == IBV_PORT_DOWN ? "PORT_DOWN" : "PORT_ACTIVE";
}

const char *
ibv_wc_status_str(enum ibv_wc_status status)
{
	return status == IBV_WC_RETRY_EXC_ERR ? "transport retry counter exceeded" : "error";
}

const char *
ibv_event_type_str(enum ibv_event_type type)
{
	return type == IBV_EVENT_DEVICE_FATAL ? "local catastrophic error" : "event";
}

void
fake_async_event(enum ibv_event_type type, bool qp)
{
	struct fake_device *d = &devices[0];
	uint64_t one = 1;
	pthread_rwlock_wrlock(&fake_lock);
	struct ibv_async_event *event = &d->async[d->n_async++ % ASYNC_MAX];
	*event = (struct ibv_async_event){.event_type = type};
	if (qp)
		event->element.qp = &LIST_FIRST(&qps)->qp;
	if (write(d->verbs.context.async_fd, &one, sizeof(one)) != (ssize_t)sizeof(one))
		fake_abort("eventfd");
	pthread_rwlock_unlock(&fake_lock);
}

int
ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct fake_device *d = device_of(context);
	uint64_t n;
	if (!(fcntl(context->async_fd, F_GETFL) & O_NONBLOCK))
		fake_abort("ibv_get_async_event would block");
	if (read(context->async_fd, &n, sizeof(n)) < 0)
		return -1;
	pthread_rwlock_wrlock(&fake_lock);
	*event = d->async[d->n_async_taken++ % ASYNC_MAX];
	pthread_rwlock_unlock(&fake_lock);
	atomic_fetch_add(&fake_counts.n_live, 1);
	return 0;
}

void
ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
	atomic_fetch_sub(&fake_counts.n_live, 1);
}

/* ---- This machine's addresses ---- */

struct fake_interface {
	struct ifaddrs ifa;
	struct sockaddr_storage address;
};

int
getifaddrs(struct ifaddrs **ret_list)
{
	if (fake_fails("getifaddrs"))
		return -1;
	struct fake_interface *list =
		object_new((FAKE_ADDRESSES_MAX + 1) * sizeof(struct fake_interface));
	unsigned n = 0;
	for (const struct fake_address *a = fake.addresses; a->host; a++, n++) {
		struct fake_interface *i = &list[n];
		struct sockaddr_in *in = (struct sockaddr_in *)&i->address;
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&i->address;
		i->ifa.ifa_flags = IFF_UP;
		i->ifa.ifa_addr = (struct sockaddr *)&i->address;
		i->address.ss_family = AF_INET;
		if (inet_pton(AF_INET, a->host, &in->sin_addr) != 1) {
			i->address.ss_family = AF_INET6;
			inet_pton(AF_INET6, a->host, &in6->sin6_addr);
		}
		if (n)
			list[n - 1].ifa.ifa_next = &i->ifa;
	}
	*ret_list = &list[0].ifa;
	return 0;
}

void
freeifaddrs(struct ifaddrs *list)
{
	object_free(list);
}

/* ---- Domains and memory ---- */

struct fake_pd {
	struct ibv_pd pd;
	struct ibv_pd *base; /* of a parent domain */
	unsigned n_users;
};

static struct ibv_pd *
base_of(struct ibv_pd *pd)
{
	struct fake_pd *p = (struct fake_pd *)pd;
	return p->base ? p->base : pd;
}

static void
pd_use(struct ibv_pd *pd, int change)
{
	((struct fake_pd *)pd)->n_users += (unsigned)change;
}

struct ibv_pd *
ibv_alloc_pd(struct ibv_context *context)
{
	if (fake_fails("ibv_alloc_pd"))
		return NULL;
	struct fake_pd *pd = object_new(sizeof(*pd));
	pd->pd.context = context;
	return &pd->pd;
}

int
ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct fake_pd *p = (struct fake_pd *)pd;
	if (p->n_users)
		fake_abort("a protection domain is freed that is in use");
	if (p->base)
		pd_use(p->base, -1);
	object_free(p);
	return 0;
}

static struct ibv_td *
alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	(void)attr;
	if (!fake.has_parent_domains) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (fake_fails("ibv_alloc_td"))
		return NULL;
	struct ibv_td *td = object_new(sizeof(*td));
	td->context = context;
	return td;
}

static int
dealloc_td(struct ibv_td *td)
{
	object_free(td);
	return 0;
}

static struct ibv_pd *
alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr)
{
	if (fake_fails("ibv_alloc_parent_domain"))
		return NULL;
	struct fake_pd *pd = object_new(sizeof(*pd));
	pd->pd.context = context;
	pd->base = attr->pd;
	pd_use(attr->pd, 1);
	return &pd->pd;
}

#define MRS_MAX 128u

struct fake_mr {
	struct ibv_mr mr;
	int access;
};

static struct fake_mr *mrs[MRS_MAX];
static uint32_t n_keys;
static size_t registered;

static int
find_place(size_t length)
{
	if (fake.register_error && registered + length > fake.register_free) {
		errno = fake.register_error;
		return -1;
	}
	for (int i = 0; i < (int)MRS_MAX; i++)
		if (!mrs[i])
			return i;
	fake_abort("too many memory regions");
}

struct ibv_mr *
ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	if (fake_fails("ibv_reg_mr"))
		return NULL;
	if (iova != (uintptr_t)addr)
		fake_abort("memory is registered at another address");
	if ((uintptr_t)addr % page || length % page || length == 0)
		fake_abort("memory is registered that is not whole pages");
	if (access & ~(unsigned)(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC))
		fake_abort("memory is registered with relaxed ordering or the like");
	if (length > fake.attr[device_of(pd->context) - devices].max_mr_size)
		fake_abort("more memory is registered at once than the device can");
	pthread_rwlock_wrlock(&fake_lock);
	int place = find_place(length);
	struct fake_mr *mr = NULL;
	if (place >= 0) {
		mr = object_new(sizeof(*mr));
		uint32_t key = ++n_keys << 8 | (uint32_t)place;
		mr->mr = (struct ibv_mr){.context = pd->context,
					 .pd = pd,
					 .addr = addr,
					 .length = length,
					 .lkey = key,
					 .rkey = key ^ 0x80};
		mr->access = (int)access;
		mrs[place] = mr;
		registered += length;
		pd_use(pd, 1);
	}
	pthread_rwlock_unlock(&fake_lock);
	return mr ? &mr->mr : NULL;
}

struct ibv_mr *
ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

int
ibv_dereg_mr(struct ibv_mr *mr)
{
	pthread_rwlock_wrlock(&fake_lock);
	mrs[mr->lkey & 0x7f] = NULL;
	registered -= mr->length;
	pd_use(mr->pd, -1);
	pthread_rwlock_unlock(&fake_lock);
	object_free(mr);
	return 0;
}

/* The memory region of a key, if [addr, addr + len) lies in it and it grants the access. */
static bool
is_granted(uint32_t key, bool is_remote, struct ibv_pd *pd, uint64_t addr, uint64_t len, int access)
{
	const struct fake_mr *mr = mrs[key & 0x7f];
	if (!mr || (is_remote ? mr->mr.rkey : mr->mr.lkey) != key || mr->mr.pd != base_of(pd))
		return false;
	uint64_t from = (uintptr_t)mr->mr.addr;
	return addr >= from && addr - from <= mr->mr.length &&
	       len <= mr->mr.length - (addr - from) && (mr->access & access) == access;
}

/* ---- Queues ---- */

struct fake_cq {
	struct ibv_cq_ex cq;
	unsigned n_users;
	unsigned size, n_in, n_out;
	struct ibv_wc *wc;
	struct fake_qp **qp; /* whose completion it is, for the room in its send queue */
	uint32_t *n_done;
};

static struct fake_cq *
cq_new(struct ibv_context *context, unsigned size)
{
	if (size == 0 || (int)size > fake.attr[device_of(context) - devices].max_cqe) {
		errno = EINVAL;
		return NULL;
	}
	struct fake_cq *cq = object_new(sizeof(*cq));
	cq->cq.context = context;
	cq->cq.cqe = (int)size;
	cq->size = size;
	cq->wc = calloc(size, sizeof(*cq->wc));
	cq->qp = calloc(size, sizeof(struct fake_qp *));
	cq->n_done = calloc(size, sizeof(*cq->n_done));
	return cq;
}

struct ibv_cq *
ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
	      struct ibv_comp_channel *channel, int comp_vector)
{
	(void)cq_context;
	(void)channel;
	(void)comp_vector;
	if (fake_fails("ibv_create_cq"))
		return NULL;
	struct fake_cq *cq = cq_new(context, (unsigned)cqe);
	return cq ? ibv_cq_ex_to_cq(&cq->cq) : NULL;
}

static struct ibv_cq_ex *
create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	if (fake_fails("ibv_create_cq_ex"))
		return NULL;
	if (!fake.has_cq_ex) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) && !attr->parent_domain)
		fake_abort("a completion queue without its parent domain");
	struct fake_cq *cq = cq_new(context, attr->cqe);
	return cq ? &cq->cq : NULL;
}

int
ibv_destroy_cq(struct ibv_cq *ibv)
{
	struct fake_cq *cq = (struct fake_cq *)ibv;
	if (cq->n_users)
		fake_abort("a completion queue is destroyed that is in use");
	free(cq->wc);
	free(cq->qp);
	free(cq->n_done);
	object_free(cq);
	return 0;
}

static void
complete(struct fake_qp *qp, uint64_t wr_id, enum ibv_wc_status status)
{
	struct fake_cq *cq = (struct fake_cq *)qp->qp.send_cq;
	if (cq->n_in - cq->n_out == cq->size)
		fake_abort("a completion queue is overrun");
	unsigned place = cq->n_in++ % cq->size;
	struct ibv_wc *wc = &cq->wc[place];
	memset(wc, 0xee, sizeof(*wc)); /* undefined after an error */
	wc->wr_id = wr_id;
	wc->status = status;
	wc->vendor_err = 0x42;
	wc->qp_num = qp->qp.qp_num;
	if (status == IBV_WC_SUCCESS)
		wc->opcode = IBV_WC_RDMA_READ;
	cq->qp[place] = qp;
	cq->n_done[place] = qp->n_unsignalled + 1;
	qp->n_unsignalled = 0;
}

static int
poll_cq(struct ibv_cq *ibv, int max, struct ibv_wc *wc)
{
	struct fake_cq *cq = (struct fake_cq *)ibv;
	int n = 0;
	atomic_fetch_add(&fake_counts.n_poll, 1);
	if (fake.poll_result < 0)
		return fake.poll_result;
	for (; n < max && cq->n_out != cq->n_in && !fake.holds_completions; n++) {
		unsigned place = cq->n_out++ % cq->size;
		wc[n] = cq->wc[place];
		if (cq->qp[place])
			cq->qp[place]->n_outstanding -= cq->n_done[place];
	}
	return n;
}

static bool
is_possible(const struct ibv_qp_init_attr *attr)
{
	const struct ibv_qp_cap *cap = &attr->cap;
	if (attr->qp_type != IBV_QPT_RC || !attr->send_cq || !attr->recv_cq || !cap->max_recv_wr)
		return false;
	return cap->max_inline_data <= fake.max_inline && cap->max_send_wr <= fake.max_send;
}

struct ibv_qp *
ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	static uint32_t n_qps;
	if (fake_fails("ibv_create_qp"))
		return NULL;
	if (fake.rc_qp_error || !is_possible(attr)) {
		errno = fake.rc_qp_error ? fake.rc_qp_error : EINVAL;
		return NULL;
	}
	struct fake_qp *qp = object_new(sizeof(*qp));
	qp->qp.context = pd->context;
	qp->qp.pd = pd;
	qp->qp.send_cq = attr->send_cq;
	qp->cap = attr->cap;
	attr->cap.max_inline_data = fake.max_inline;
	qp->cap.max_inline_data = fake.max_inline;
	pthread_rwlock_wrlock(&fake_lock);
	qp->qp.qp_num = ++n_qps;
	LIST_INSERT_HEAD(&qps, qp, entry);
	((struct fake_cq *)attr->send_cq)->n_users++;
	pd_use(pd, 1);
	pthread_rwlock_unlock(&fake_lock);
	return &qp->qp;
}

void
fake_qp_cut(struct fake_qp *qp)
{
	if (qp->peer)
		qp->peer->peer = NULL;
	qp->peer = NULL;
}

struct fake_qp *
fake_qp_find(uint32_t num)
{
	struct fake_qp *qp;
	LIST_FOREACH(qp, &qps, entry)
	if (qp->qp.qp_num == num)
		return qp;
	return NULL;
}

/* Of a queue pair that a program connects by itself: state by state, with what each needs. */
int
ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
	struct fake_qp *qp = (struct fake_qp *)ibv;
	const int needed = attr->qp_state == IBV_QPS_INIT  ? IBV_QP_ACCESS_FLAGS
			   : attr->qp_state == IBV_QPS_RTR ? IBV_QP_MAX_DEST_RD_ATOMIC
							   : IBV_QP_MAX_QP_RD_ATOMIC;
	if (fake_fails("ibv_modify_qp"))
		return ENOMEM;
	if (attr->qp_state != ibv->state + 1 || attr->qp_state > IBV_QPS_RTS ||
	    (mask & (IBV_QP_STATE | needed)) != (IBV_QP_STATE | needed))
		fake_abort("a queue pair skips a state, or lacks what its state needs");
	pthread_rwlock_wrlock(&fake_lock);
	ibv->state = attr->qp_state;
	if (mask & IBV_QP_ACCESS_FLAGS)
		qp->access = attr->qp_access_flags;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		qp->max_dest_rd_atomic = attr->max_dest_rd_atomic;
	pthread_rwlock_unlock(&fake_lock);
	return 0;
}

unsigned
fake_newest_access(void)
{
	pthread_rwlock_rdlock(&fake_lock);
	unsigned access = LIST_FIRST(&qps)->access;
	pthread_rwlock_unlock(&fake_lock);
	return access;
}

/* Its completions stay in the queue, as they may; nobody may look at them as its own. */
int
ibv_destroy_qp(struct ibv_qp *ibv)
{
	struct fake_qp *qp = (struct fake_qp *)ibv;
	struct fake_cq *cq = (struct fake_cq *)ibv->send_cq;
	pthread_rwlock_wrlock(&fake_lock);
	fake_qp_cut(qp);
	for (unsigned i = 0; i < cq->size; i++)
		if (cq->qp[i] == qp)
			cq->qp[i] = NULL;
	cq->n_users--;
	pd_use(ibv->pd, -1);
	LIST_REMOVE(qp, entry);
	pthread_rwlock_unlock(&fake_lock);
	atomic_fetch_add(&fake_counts.n_destroyed_qps, 1);
	object_free(qp);
	return 0;
}

/* ---- Work requests ---- */

/* Aligned words are moved whole, other bytes one by one; atomically, for the sanitizer. */
static void
copy_out(unsigned char *to, const unsigned char *from, size_t len)
{
	while (len) {
		size_t n = ((uintptr_t)to & 7) == 0 && len >= 8 ? 8 : 1;
		uint64_t word;
		if (n == 8) {
			memcpy(&word, from, 8);
			__atomic_store_n((uint64_t *)(void *)to, word, __ATOMIC_RELAXED);
		} else {
			__atomic_store_n(to, *from, __ATOMIC_RELAXED);
		}
		to += n;
		from += n;
		len -= n;
	}
}

static void
copy_in(unsigned char *to, const unsigned char *from, size_t len)
{
	while (len) {
		size_t n = ((uintptr_t)from & 7) == 0 && len >= 8 ? 8 : 1;
		uint64_t word;
		if (n == 8) {
			word = __atomic_load_n((const uint64_t *)(const void *)from,
					       __ATOMIC_RELAXED);
			memcpy(to, &word, 8);
		} else {
			*to = __atomic_load_n(from, __ATOMIC_RELAXED);
		}
		to += n;
		from += n;
		len -= n;
	}
}

static bool
is_atomic(const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static enum ibv_wc_status
check_local(const struct fake_qp *qp, const struct ibv_send_wr *wr, uint64_t *ret_len)
{
	uint64_t len = 0;
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *sge = &wr->sg_list[i];
		if (sge->length == 0)
			fake_abort("a piece of length 0");
		int access = wr->opcode == IBV_WR_RDMA_WRITE ? 0 : IBV_ACCESS_LOCAL_WRITE;
		if (!(wr->send_flags & IBV_SEND_INLINE) &&
		    !is_granted(sge->lkey, false, qp->qp.pd, sge->addr, sge->length, access))
			return IBV_WC_LOC_PROT_ERR;
		len += sge->length;
	}
	*ret_len = len;
	return len <= fake.max_msg ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR;
}

static enum ibv_wc_status
check_remote(const struct fake_qp *qp, const struct ibv_send_wr *wr, uint64_t len)
{
	int access = wr->opcode == IBV_WR_RDMA_WRITE  ? IBV_ACCESS_REMOTE_WRITE
		     : wr->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ
						      : IBV_ACCESS_REMOTE_ATOMIC;
	uint64_t addr = is_atomic(wr) ? wr->wr.atomic.remote_addr : wr->wr.rdma.remote_addr;
	uint32_t key = is_atomic(wr) ? wr->wr.atomic.rkey : wr->wr.rdma.rkey;
	if ((is_atomic(wr) && (addr & 7)) || !(qp->peer->access & (unsigned)access))
		return IBV_WC_REM_INV_REQ_ERR;
	if (len && !is_granted(key, true, qp->peer->qp.pd, addr, len, access))
		return IBV_WC_REM_ACCESS_ERR;
	return IBV_WC_SUCCESS;
}

static void
run_atomic(const struct ibv_send_wr *wr)
{
	uint64_t *word = (uint64_t *)(uintptr_t)wr->wr.atomic.remote_addr;
	uint64_t old = wr->wr.atomic.compare_add;
	if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
		__atomic_compare_exchange_n(word, &old, wr->wr.atomic.swap, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
	else
		old = __atomic_fetch_add(word, old, __ATOMIC_SEQ_CST);
	if (fake.swaps_replies)
		old = __builtin_bswap64(old);
	if (fake.garbles_replies)
		old = old * 3 + 1;
	memcpy((void *)(uintptr_t)wr->sg_list[0].addr, &old, 8);
}

static void
run_copy(const struct ibv_send_wr *wr)
{
	unsigned char *remote = (unsigned char *)(uintptr_t)wr->wr.rdma.remote_addr;
	for (int i = 0; i < wr->num_sge; i++) {
		unsigned char *local = (unsigned char *)(uintptr_t)wr->sg_list[i].addr;
		if (wr->opcode == IBV_WR_RDMA_WRITE)
			copy_out(remote, local, wr->sg_list[i].length);
		else
			copy_in(local, remote, wr->sg_list[i].length);
		remote += wr->sg_list[i].length;
	}
}

static enum ibv_wc_status
run(struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	uint64_t len;
	if (qp->is_error)
		return IBV_WC_WR_FLUSH_ERR;
	if (fake.wr_fails_at && --fake.wr_fails_at == 0)
		return fake.wr_status;
	if (!qp->peer)
		return IBV_WC_RETRY_EXC_ERR;
	if (qp->max_rd_atomic == 0 || qp->max_rd_atomic > qp->peer->max_dest_rd_atomic)
		fake_abort("more READs in flight than the other side serves");
	enum ibv_wc_status status = check_local(qp, wr, &len);
	if (!status)
		status = check_remote(qp, wr, len);
	if (status)
		return status;
	if (is_atomic(wr))
		run_atomic(wr);
	else
		run_copy(wr);
	return IBV_WC_SUCCESS;
}

static void
post_one(struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	bool is_signalled = wr->send_flags & IBV_SEND_SIGNALED;
	bool is_inline = wr->send_flags & IBV_SEND_INLINE;
	uint64_t len = 0;
	for (int i = 0; i < wr->num_sge; i++)
		len += wr->sg_list[i].length;
	if (wr->num_sge > (int)qp->cap.max_send_sge)
		fake_abort("too many pieces");
	if (wr->send_flags & ~(unsigned)(IBV_SEND_SIGNALED | IBV_SEND_INLINE))
		fake_abort("a flag that nobody needs");
	if (is_inline && (wr->opcode != IBV_WR_RDMA_WRITE || len > qp->cap.max_inline_data))
		fake_abort("too much inline data");
	if (qp->n_outstanding == qp->cap.max_send_wr)
		fake_abort("a send queue is overrun");
	qp->n_outstanding++;
	atomic_fetch_add(&fake_counts.n_wr, 1);
	atomic_fetch_add(&fake_counts.n_signalled, is_signalled);
	atomic_fetch_add(&fake_counts.n_inline, is_inline);
	enum ibv_wc_status status = run(qp, wr);
	if (status)
		qp->is_error = true;
	if (status || is_signalled)
		complete(qp, wr->wr_id, status);
	else
		qp->n_unsignalled++;
}

static int
post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct fake_qp *qp = (struct fake_qp *)ibv;
	int r = 0;
	atomic_fetch_add(&fake_counts.n_post, 1);
	if (!wr)
		fake_abort("nothing is posted");
	if (!qp->is_connected)
		fake_abort("a queue pair posts that was never connected");
	pthread_rwlock_rdlock(&fake_lock);
	for (unsigned i = 1; wr && !r; i++) {
		if (fake.post_fails_at == i) {
			*bad_wr = wr;
			errno = ENOMEM;
			r = fake.post_result;
		} else {
			post_one(qp, wr);
			wr = wr->next;
		}
	}
	pthread_rwlock_unlock(&fake_lock);
	return r;
}

/* ---- Beginning ---- */

static void
device_init(struct fake_device *d, unsigned i)
{
	if (d->verbs.context.async_fd > 0)
		close(d->verbs.context.async_fd);
	memset(d, 0, sizeof(*d));
	snprintf(d->device.name, sizeof(d->device.name), "fake%u", i);
	snprintf(d->device.ibdev_path, sizeof(d->device.ibdev_path), "/no/such/device%u", i);
	d->verbs.query_port = query_port;
	d->verbs.create_cq_ex = create_cq_ex;
	d->verbs.alloc_td = alloc_td;
	d->verbs.dealloc_td = dealloc_td;
	d->verbs.alloc_parent_domain = alloc_parent_domain;
	d->verbs.sz = sizeof(d->verbs);
	d->verbs.context.device = &d->device;
	d->verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	d->verbs.context.ops.post_send = post_send;
	d->verbs.context.ops.poll_cq = poll_cq;
	d->verbs.context.async_fd = eventfd(0, EFD_SEMAPHORE);
}

void
fake_reset(void)
{
	if (atomic_load(&fake_counts.n_live))
		fake_abort("objects are left over");
	const struct ibv_device_attr attr = {
		.max_mr_size = UINT64_MAX,
		.max_qp_wr = 2048,
		.max_sge = 32,
		.max_sge_rd = 32,
		.max_cqe = 4096,
		.max_qp_rd_atom = 128,
		.max_qp_init_rd_atom = 128,
		.atomic_cap = IBV_ATOMIC_HCA,
		.phys_port_cnt = 1,
	};
	fake = (struct fake_knobs){
		.n_devices = 1,
		.attr = {attr, attr, attr},
		.port_state = IBV_PORT_ACTIVE,
		.addresses = {{"fe80::1", 0, IBV_GID_TYPE_ROCE_V1},
			      {"fe80::1", 0, IBV_GID_TYPE_ROCE_V2},
			      {"10.77.0.1", 0, IBV_GID_TYPE_ROCE_V1},
			      {"10.77.0.1", 0, IBV_GID_TYPE_ROCE_V2}},
		.max_inline = 256,
		.max_send = 2048,
		.max_msg = UINT32_C(1) << 23,
		.has_parent_domains = true,
		.has_cq_ex = true,
		.route_device = -1,
		.on_resolve_addr = {FAKE_GOOD, 0},
		.on_resolve_route = {FAKE_GOOD, 0},
		.on_connect = {FAKE_GOOD, 0},
		.on_accept = {FAKE_GOOD, 0},
		.private_len = -1,
		.answer_len = -1,
		.grants_depth = -1,
	};
	memset(&fake_counts, 0, sizeof(fake_counts));
	for (unsigned i = 0; i < FAKE_DEVICES_MAX; i++) {
		device_init(&devices[i], i);
		devices[i].device.transport_type = IBV_TRANSPORT_IB;
	}
}
