/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RDMA devices: which one, whether it can do what rkv needs, memory registered with it, and, where
 * something is missing, what and what to do about it.
 *
 * A device is chosen by address: rdma_cm knows which device, port and GID carry a local address, on
 * InfiniBand (IPoIB) as on RoCE. So nobody counts GID indices, and a link-local address is chosen
 * only if it is asked for.
 */
#include "common/fabric_verbs.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fabric_verbs_internal.h"

#define DEVICE_NODES "/dev/infiniband"
#define DEVICES_OF_KERNEL "/sys/class/infiniband"
#define READ_DEPTH_MAX 128 /* more READs in flight on one connection gain nothing */
#define GIDS_MAX 1024u

/* ---- What is wrong ---- */

static int
failure_of(int error)
{
	switch (error) {
	case EINVAL:
	case EOPNOTSUPP:
	case ENOSYS:
		return ERR_INVALID;
	default:
		return err_from_errno(error);
	}
}

static bool
is_permission(int error)
{
	return error == EACCES || error == EPERM;
}

int
verbs_explain(int error, const char *what, char reason[VERBS_REASON_MAX])
{
	struct rlimit lock;
	if (error == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &lock) == 0 &&
	    lock.rlim_cur != RLIM_INFINITY)
		snprintf(reason, VERBS_REASON_MAX,
			 "cannot %s: %s; this process may lock %" PRIu64
			 " KiB of memory (RLIMIT_MEMLOCK), and what a device reaches is locked: "
			 "ulimit -l unlimited, LimitMEMLOCK=infinity in a systemd unit, or "
			 "--ulimit memlock=-1 for a container",
			 what, strerror(error), (uint64_t)lock.rlim_cur >> 10);
	else if (error == ENOMEM)
		snprintf(reason, VERBS_REASON_MAX,
			 "cannot %s: the machine or the device is out of memory or of objects: "
			 "free some, or use a smaller pool",
			 what);
	else if (error == EMFILE || error == ENFILE)
		snprintf(reason, VERBS_REASON_MAX,
			 "cannot %s: %s; raise the limit of open files (ulimit -n, LimitNOFILE=)",
			 what, strerror(error));
	else if (is_permission(error))
		snprintf(reason, VERBS_REASON_MAX,
			 "cannot %s: %s; this user needs read and write permission on " DEVICE_NODES
			 "/* (and a container those devices)",
			 what, strerror(error));
	else
		snprintf(reason, VERBS_REASON_MAX, "cannot %s: %s", what, strerror(error));
	return failure_of(error);
}

int
verbs_explain_facts(const struct verbs_facts *facts, int error, char reason[VERBS_REASON_MAX])
{
	if (facts->n_kernel == 0 && facts->n_library == 0)
		snprintf(reason, VERBS_REASON_MAX,
			 "this machine has no RDMA device (" DEVICES_OF_KERNEL
			 " is empty; `rdma link` shows them): load the driver of the network card, "
			 "or set Soft-RoCE up with deploy/soft-roce.sh; a container has to be "
			 "given " DEVICE_NODES);
	else if (is_permission(facts->cm_error) || is_permission(facts->uverbs_error))
		snprintf(reason, VERBS_REASON_MAX,
			 "no permission to use the RDMA device %s: this user needs to read and "
			 "write " DEVICE_NODES "/rdma_cm and " DEVICE_NODES
			 "/uverbs* (often by the group rdma, or a udev rule; in a container also "
			 "--device " DEVICE_NODES ")",
			 facts->kernel_name);
	else if (facts->uverbs_error)
		snprintf(reason, VERBS_REASON_MAX,
			 "the kernel has the RDMA device %s, but there is no " DEVICE_NODES
			 "/uverbs* for it: modprobe ib_uverbs, or give the container " DEVICE_NODES,
			 facts->kernel_name);
	else if (facts->cm_error)
		snprintf(reason, VERBS_REASON_MAX,
			 "the kernel has the RDMA device %s, but " DEVICE_NODES
			 "/rdma_cm cannot be opened (%s): modprobe rdma_ucm, or give the "
			 "container " DEVICE_NODES,
			 facts->kernel_name, strerror(facts->cm_error));
	else if (facts->n_library == 0)
		snprintf(reason, VERBS_REASON_MAX,
			 "the kernel has the RDMA device %s, but libibverbs has no provider for "
			 "it: install ibverbs-providers (rdma-core)",
			 facts->kernel_name);
	else
		snprintf(reason, VERBS_REASON_MAX, "the RDMA device %s cannot be used: %s",
			 facts->kernel_name, strerror(error));
	bool denied = is_permission(facts->cm_error) || is_permission(facts->uverbs_error);
	return denied ? ERR_PERM : ERR_CONN;
}

/* The errno of opening a device node; 0: it can be. */
static int
try_node(const char *name)
{
	char path[sizeof(DEVICE_NODES) + 256];
	snprintf(path, sizeof(path), DEVICE_NODES "/%s", name);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return errno;
	close(fd);
	return 0;
}

/* Is there a node for user space's verbs, and can all of them be opened? */
static int
try_uverbs_nodes(void)
{
	DIR *dir = opendir(DEVICE_NODES);
	if (!dir)
		return errno;
	int error = ENOENT;
	for (struct dirent *entry; (entry = readdir(dir));) {
		if (strncmp(entry->d_name, "uverbs", 6) != 0)
			continue;
		error = try_node(entry->d_name);
		if (error)
			break;
	}
	closedir(dir);
	return error;
}

static void
look_into_kernel(struct verbs_facts *facts)
{
	DIR *dir = opendir(DEVICES_OF_KERNEL);
	if (!dir)
		return;
	for (struct dirent *entry; (entry = readdir(dir));) {
		if (entry->d_name[0] == '.')
			continue;
		if (facts->n_kernel++ == 0)
			snprintf(facts->kernel_name, sizeof(facts->kernel_name), "%.63s",
				 entry->d_name);
	}
	closedir(dir);
}

int
verbs_explain_missing(int error, char reason[VERBS_REASON_MAX])
{
	struct verbs_facts facts = {0};
	int n = 0;
	look_into_kernel(&facts);
	if (facts.n_kernel) {
		facts.cm_error = try_node("rdma_cm");
		facts.uverbs_error = try_uverbs_nodes();
	}
	struct ibv_device **list = ibv_get_device_list(&n);
	if (list)
		ibv_free_device_list(list);
	facts.n_library = n > 0 ? (unsigned)n : 0;
	return verbs_explain_facts(&facts, error, reason);
}

/* ---- Limits ---- */

static int
check_capabilities(const char *name, enum ibv_transport_type transport,
		   const struct ibv_device_attr *attr, char reason[VERBS_REASON_MAX])
{
	const char *lack = NULL;
	if (attr->atomic_cap == IBV_ATOMIC_NONE)
		lack = transport == IBV_TRANSPORT_IWARP
			       ? "it is an iWARP device, and those have no atomics (atomic_cap "
				 "NONE)"
			       : "it has no 64-bit atomics (atomic_cap NONE)";
	else if (transport != IBV_TRANSPORT_IB)
		lack = "it has no reliable connections (RC queue pairs)";
	else if (attr->max_qp_rd_atom <= 0 || (uint8_t)attr->max_qp_init_rd_atom == 0)
		lack = "it has no READs and atomics in flight (max_qp_rd_atom is 0)";
	else if (attr->max_sge < 2 || attr->max_sge_rd == 1)
		lack = "a work request of it has only one piece of memory (max_sge)";
	else if (attr->max_qp_wr < VERBS_SEND_MIN || attr->max_cqe < VERBS_SEND_MIN)
		lack = "its queues are too short (max_qp_wr, max_cqe)";
	if (!lack)
		return 0;
	snprintf(
		reason, VERBS_REASON_MAX,
		"the RDMA device %s cannot serve rkv: %s; choose another InfiniBand or RoCE device",
		name, lack);
	return ERR_INVALID;
}

static uint8_t
depth_of(int depth)
{
	return (uint8_t)(depth < READ_DEPTH_MAX ? depth : READ_DEPTH_MAX);
}

int
verbs_limits_query(struct ibv_context *context, uint8_t port, struct verbs_limits *ret_limits,
		   char reason[VERBS_REASON_MAX])
{
	struct ibv_device_attr attr;
	struct ibv_port_attr port_attr;
	const char *name = ibv_get_device_name(context->device);
	int error = verbs_errno(ibv_query_device(context, &attr));
	if (error)
		return verbs_explain(error, "ask the RDMA device for its limits", reason);
	error = verbs_errno(ibv_query_port(context, port, &port_attr));
	if (error)
		return verbs_explain(error, "ask the RDMA device for its port", reason);
	int r = check_capabilities(name, context->device->transport_type, &attr, reason);
	if (r)
		return r;
	if (port_attr.state != IBV_PORT_ACTIVE) {
		snprintf(reason, VERBS_REASON_MAX,
			 "port %u of the RDMA device %s is %s: bring its link up (`rdma link`, `ip "
			 "link`)",
			 port, name, ibv_port_state_str(port_attr.state));
		return ERR_CONN;
	}
	*ret_limits = (struct verbs_limits){
		.mr_len = attr.max_mr_size ? attr.max_mr_size : UINT64_MAX,
		.message_len = port_attr.max_msg_sz ? port_attr.max_msg_sz : UINT32_C(1) << 30,
		.n_send = (uint32_t)attr.max_qp_wr,
		.n_cqe = (uint32_t)attr.max_cqe,
		/* librdmacm keeps this one in a byte. */
		.read_depth = depth_of((uint8_t)attr.max_qp_init_rd_atom),
		.serve_depth = depth_of(attr.max_qp_rd_atom),
	};
	return 0;
}

/* ---- Memory ---- */

int
verbs_register(struct ibv_pd *pd, void *local, size_t len, int access, struct ibv_mr **ret_mr,
	       char reason[VERBS_REASON_MAX])
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = (uintptr_t)local & -page;
	uintptr_t to = ((uintptr_t)local + len + page - 1) & -page;
	if (len == 0 || to <= from) {
		snprintf(reason, VERBS_REASON_MAX, "cannot register memory of no length");
		return ERR_INVALID;
	}
	struct ibv_mr *mr = ibv_reg_mr(pd, (void *)from, to - from, access);
	if (!mr) {
		char what[64];
		int error = errno;
		snprintf(what, sizeof(what), "register %zu KiB with the RDMA device",
			 (size_t)(to - from) >> 10);
		return verbs_explain(error, what, reason);
	}
	*ret_mr = mr;
	return 0;
}

/* ---- Words about a device ---- */

static const char *
gid_type_text(uint32_t type)
{
	switch (type) {
	case IBV_GID_TYPE_IB:
		return "InfiniBand";
	case IBV_GID_TYPE_ROCE_V1:
		return "RoCE v1";
	case IBV_GID_TYPE_ROCE_V2:
		return "RoCE v2";
	default:
		return "type unknown";
	}
}

/* The entry that the id uses: of equal GIDs that of RoCE v2, which rdma_cm prefers too. */
static bool
find_gid(struct rdma_cm_id *id, struct ibv_gid_entry *ret_entry)
{
	const union ibv_gid *gid = &id->route.addr.addr.ibaddr.sgid;
	struct ibv_gid_entry *entries = calloc(GIDS_MAX, sizeof(*entries));
	bool found = false;
	ssize_t n = entries ? ibv_query_gid_table(id->verbs, entries, GIDS_MAX, 0) : 0;
	for (ssize_t i = 0; i < n; i++) {
		if (entries[i].port_num != id->port_num ||
		    memcmp(&entries[i].gid, gid, sizeof(*gid)) != 0 ||
		    (found && entries[i].gid_type != IBV_GID_TYPE_ROCE_V2))
			continue;
		found = true;
		*ret_entry = entries[i];
	}
	free(entries);
	return found;
}

void
verbs_describe(struct rdma_cm_id *id, char ret_text[VERBS_TEXT_MAX])
{
	char address[NET_TEXT_MAX], gid[INET6_ADDRSTRLEN];
	struct ibv_gid_entry entry;
	cm_format_local(id, address);
	const char *name = ibv_get_device_name(id->verbs->device);
	if (!find_gid(id, &entry)) {
		snprintf(ret_text, VERBS_TEXT_MAX, "%s port %u, GID unknown, address %s", name,
			 id->port_num, address);
		return;
	}
	inet_ntop(AF_INET6, entry.gid.raw, gid, sizeof(gid));
	snprintf(ret_text, VERBS_TEXT_MAX, "%s port %u, GID %u (%s, %s), address %s", name,
		 id->port_num, entry.gid_index, gid, gid_type_text(entry.gid_type), address);
}

/* ---- Choosing a device ---- */

/* Is a device of this name there ("": any)? If not, which ones are? */
static int
check_presence(const char *name, char reason[VERBS_REASON_MAX])
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	int error = list ? ENODEV : errno;
	bool found = false;
	char names[256] = "";
	size_t used = 0;
	for (int i = 0; i < n; i++) {
		const char *one = ibv_get_device_name(list[i]);
		found |= name[0] == '\0' || strcmp(one, name) == 0;
		if (used + strlen(one) + 3 < sizeof(names))
			used += (size_t)sprintf(names + used, "%s%s", used ? ", " : "", one);
	}
	if (list)
		ibv_free_device_list(list);
	if (found)
		return 0;
	if (n <= 0)
		return verbs_explain_missing(error, reason);
	snprintf(reason, VERBS_REASON_MAX,
		 "there is no RDMA device %s on this machine; there is: %s (`rdma link`)", name,
		 names);
	return ERR_CONN;
}

static bool
is_link_local(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET6)
		return IN6_IS_ADDR_LINKLOCAL(
			&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr);
	return ntohl(((const struct sockaddr_in *)(const void *)sa)->sin_addr.s_addr) >> 16 ==
	       0xa9fe;
}

static socklen_t
address_len(const struct sockaddr *sa)
{
	return sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static void
set_port(struct sockaddr_storage *address, uint16_t port)
{
	if (address->ss_family == AF_INET6)
		((struct sockaddr_in6 *)address)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)address)->sin_port = htons(port);
}

static void
unbind(struct verbs_device *device)
{
	cm_id_destroy(device->id);
	device->id = NULL;
}

/* A local address that no device carries; or rdma_cm cannot open the one that does. */
static void
explain_unbound(const char *host, int error, char reason[VERBS_REASON_MAX])
{
	if (error == EADDRNOTAVAIL)
		snprintf(reason, VERBS_REASON_MAX,
			 "%s is no address of this machine: choose one that `ip address` lists",
			 host);
	else if (is_permission(try_uverbs_nodes()))
		verbs_explain_missing(error, reason);
	else
		snprintf(reason, VERBS_REASON_MAX,
			 "the address %s is carried by no RDMA device of this machine: `rdma link` "
			 "shows the network interfaces that have one, `ip address` their addresses",
			 host);
}

/*
 * Binds an id to an address, at a port that the kernel chooses: so the device is found.
 * ERR_NOT_FOUND (> 0): no device carries the address, or another one than is asked for.
 */
static int
bind_to(struct verbs_device *device, const struct sockaddr *sa, const char *name,
	char reason[VERBS_REASON_MAX])
{
	char host[NET_HOST_MAX];
	if (getnameinfo(sa, address_len(sa), host, sizeof(host), NULL, 0, NI_NUMERICHOST))
		snprintf(host, sizeof(host), "?");
	memset(&device->address, 0, sizeof(device->address));
	memcpy(&device->address, sa, address_len(sa));
	set_port(&device->address, 0);
	int r = cm_id_create(device->channel, NULL, &device->id, reason);
	if (r)
		return r;
	r = rdma_bind_addr(device->id, (struct sockaddr *)&device->address);
	if (r || !device->id->verbs) {
		explain_unbound(host, r ? errno : ENODEV, reason);
		r = ERR_NOT_FOUND;
	} else if (name[0] && strcmp(ibv_get_device_name(device->id->verbs->device), name) != 0) {
		snprintf(reason, VERBS_REASON_MAX,
			 "the address %s is carried by the RDMA device %s, not by %s: name one "
			 "of the two only",
			 host, ibv_get_device_name(device->id->verbs->device), name);
		r = ERR_NOT_FOUND;
	} else {
		r = verbs_limits_query(device->id->verbs, device->id->port_num, &device->limits,
				       reason);
	}
	if (r)
		unbind(device);
	return r;
}

/* An address worth a try: of an interface that is up, neither loop-back nor link-local. */
static bool
is_candidate(const struct ifaddrs *a, int family)
{
	return a->ifa_addr && a->ifa_addr->sa_family == family && (a->ifa_flags & IFF_UP) &&
	       !(a->ifa_flags & IFF_LOOPBACK) && !is_link_local(a->ifa_addr);
}

/*
 * The first address that a usable device carries, IPv4 before IPv6. If there is none, why the first
 * device that carries one cannot be used.
 */
static int
bind_any(struct verbs_device *device, const char *name, char reason[VERBS_REASON_MAX])
{
	static const int families[] = {AF_INET, AF_INET6};
	struct ifaddrs *list;
	char why[VERBS_REASON_MAX];
	int r = ERR_NOT_FOUND;
	if (getifaddrs(&list))
		return verbs_explain(errno, "list this machine's addresses", reason);
	snprintf(reason, VERBS_REASON_MAX,
		 "the RDMA device%s%s carries no address but link-local ones: give its network "
		 "interface an address (`ip address add`; `rdma link` names it)",
		 name[0] ? " " : "", name);
	for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
		for (struct ifaddrs *a = list; a && r; a = a->ifa_next) {
			if (!is_candidate(a, families[f]))
				continue;
			int error = bind_to(device, a->ifa_addr, name, why);
			if (error == 0 || (error < 0 && r == ERR_NOT_FOUND)) {
				r = error;
				memcpy(reason, why, sizeof(why));
			}
		}
	}
	freeifaddrs(list);
	return r == ERR_NOT_FOUND ? ERR_CONN : r;
}

static bool
is_any(const char *host)
{
	return host[0] == '\0' || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

static int
bind_host(struct verbs_device *device, const char *host, const char *name,
	  char reason[VERBS_REASON_MAX])
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *info;
	int error = getaddrinfo(host, NULL, &hints, &info);
	if (error) {
		snprintf(reason, VERBS_REASON_MAX,
			 "cannot resolve '%s': %s; check its spelling and the resolver", host,
			 gai_strerror(error));
		return ERR_CONN;
	}
	int r = ERR_NOT_FOUND;
	for (const struct addrinfo *i = info; i && r == ERR_NOT_FOUND; i = i->ai_next)
		r = bind_to(device, i->ai_addr, name, reason);
	freeaddrinfo(info);
	return r == ERR_NOT_FOUND ? ERR_CONN : r;
}

/* Only a try shows whether the device has reliable connections for this process. */
static int
try_queue_pair(struct verbs_device *device, char reason[VERBS_REASON_MAX])
{
	struct ibv_cq *cq = ibv_create_cq(device->id->verbs, 1, NULL, NULL, 0);
	if (!cq)
		return verbs_explain(errno, "create a completion queue", reason);
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(device->pd, &attr);
	int r = qp ? 0 : verbs_explain(errno, "create a reliable connection (RC)", reason);
	if (qp)
		ibv_destroy_qp(qp);
	ibv_destroy_cq(cq);
	return r;
}

static void
describe_device(struct verbs_device *device)
{
	char where[VERBS_TEXT_MAX], size[32] = "of any size";
	verbs_describe(device->id, where);
	char *address = strstr(where, ", address ");
	if (address)
		*strrchr(address, ':') =
			'\0'; /* the port is not the one that will be listened at */
	if (device->limits.mr_len <= UINT64_C(1) << 48)
		snprintf(size, sizeof(size), "up to %" PRIu64 " MiB", device->limits.mr_len >> 20);
	snprintf(device->text, sizeof(device->text),
		 "%.300s; memory regions %s, %u READs in flight a connection", where, size,
		 device->limits.serve_depth);
}

int
verbs_device_open(const struct verbs_choice *choice, struct verbs_device **ret_device,
		  char reason[VERBS_REASON_MAX])
{
	struct verbs_device *device = calloc(1, sizeof(*device));
	const char *host = choice->address.host;
	if (!device)
		return verbs_explain(ENOMEM, "open an RDMA device", reason);
	int r = check_presence(choice->name, reason);
	if (!r)
		r = cm_channel_create(&device->channel, reason);
	if (!r)
		r = is_any(host) ? bind_any(device, choice->name, reason)
				 : bind_host(device, host, choice->name, reason);
	if (r)
		goto fail;
	device->pd = ibv_alloc_pd(device->id->verbs);
	r = device->pd ? try_queue_pair(device, reason)
		       : verbs_explain(errno, "allocate a protection domain", reason);
	if (r)
		goto fail;
	describe_device(device);
	device->source = device->address;
	set_port(&device->address, choice->address.port);
	*ret_device = device;
	return 0;
fail:
	verbs_device_close(device);
	return r;
}

void
verbs_device_close(struct verbs_device *device)
{
	if (!device)
		return;
	if (device->pd)
		ibv_dealloc_pd(device->pd);
	cm_id_destroy(device->id);
	cm_channel_destroy(device->channel);
	free(device);
}

const char *
verbs_device_text(const struct verbs_device *device)
{
	return device->text;
}

int
verbs_device_numa_node(const struct verbs_device *device)
{
	char path[IBV_SYSFS_PATH_MAX + 32];
	int node = -1;
	snprintf(path, sizeof(path), "%s/device/numa_node", device->id->verbs->device->ibdev_path);
	FILE *file = fopen(path, "re");
	if (!file)
		return -1;
	if (fscanf(file, "%d", &node) != 1)
		node = -1;
	fclose(file);
	return node;
}
