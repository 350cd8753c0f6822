/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sockets by absolute deadlines. Two things are less simple than they look:
 *
 *   - getaddrinfo() knows no deadline. Numeric addresses are resolved in place; for a name a
 *     detached thread calls it, and whoever comes last, that thread or the waiting caller, frees
 *     the request.
 *   - A host's name may stand for several addresses, and a dead one may swallow SYNs in silence.
 *     Each attempt gets an equal share of the time that is left, so that the last address has its
 *     chance.
 */
#include "common/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "proto/limits.h"

#define ADDRESSES_MAX 16u /* that a name stands for */

/* ---- Text ---- */

void
net_copy_text(char *to, size_t room, const char *text, size_t len)
{
	size_t n = strnlen(text, len < room ? len : room - 1);
	for (size_t i = 0; i < n; i++)
		to[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
	to[n] = '\0';
}

bool
net_is_loopback(const struct net_address *address)
{
	struct in_addr v4;
	struct in6_addr v6;
	if (inet_pton(AF_INET, address->host, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	if (inet_pton(AF_INET6, address->host, &v6) != 1)
		return false;
	return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

__attribute__((format(printf, 2, 3))) static int
invalid(char reason[NET_REASON_MAX], const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(reason, NET_REASON_MAX, format, args);
	va_end(args);
	return ERR_INVALID;
}

static int
parse_port(const char *text, size_t len, uint16_t *ret_port)
{
	uint32_t port = 0;
	if (len < 1 || len > 5)
		return ERR_INVALID;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return ERR_INVALID;
		port = port * 10 + (uint32_t)(text[i] - '0');
	}
	if (port > UINT16_MAX)
		return ERR_INVALID;
	*ret_port = (uint16_t)port;
	return 0;
}

struct span {
	const char *at; /* NULL: none was given */
	size_t len;
};

/* Splits an item into host and port. */
static int
split_item(struct span item, struct span *ret_host, struct span *ret_port,
	   char reason[NET_REASON_MAX])
{
	const char *end = item.at + item.len;
	const char *colon = memchr(item.at, ':', item.len);
	const char *host = item.at, *host_end = colon ? colon : end, *after = host_end;
	if (item.len > 0 && item.at[0] == '[') {
		host++;
		host_end = memchr(item.at, ']', item.len);
		if (!host_end)
			return invalid(reason, "'%.*s': ']' is missing; write [address]:port",
				       (int)item.len, item.at);
		after = host_end + 1;
		if (after < end && *after != ':')
			return invalid(reason, "'%.*s': only ':port' may follow ']'", (int)item.len,
				       item.at);
	} else if (colon && memchr(colon + 1, ':', (size_t)(end - colon - 1))) {
		return invalid(
			reason,
			"'%.*s' is ambiguous: write an IPv6 address in brackets, [address] or "
			"[address]:port",
			(int)item.len, item.at);
	}
	*ret_host = (struct span){host, (size_t)(host_end - host)};
	if (after < end)
		*ret_port = (struct span){after + 1, (size_t)(end - after - 1)};
	return 0;
}

static int
parse_item(struct span item, uint16_t default_port, struct net_address *ret_address,
	   char reason[NET_REASON_MAX])
{
	struct span host = {0}, port = {0};
	struct net_address address = {.port = default_port};
	int r = split_item(item, &host, &port, reason);
	if (r)
		return r;
	if (host.len == 0)
		return invalid(reason, "'%.*s': the host is missing; write host or host:port",
			       (int)item.len, item.at);
	if (host.len >= NET_HOST_MAX)
		return invalid(reason, "the host is longer than %u bytes", NET_HOST_MAX - 1);
	for (size_t i = 0; i < host.len; i++)
		if ((unsigned char)host.at[i] <= ' ' || strchr("[]/@", host.at[i]))
			return invalid(reason, "'%.*s': a host cannot contain '%c'", (int)item.len,
				       item.at, host.at[i]);
	memcpy(address.host, host.at, host.len);
	if (port.at && parse_port(port.at, port.len, &address.port))
		return invalid(reason, "'%.*s': the port must be a number from 0 to 65535",
			       (int)item.len, item.at);
	*ret_address = address;
	return 0;
}

int
net_parse(const char *text, uint16_t default_port, struct net_address *addresses, unsigned max,
	  unsigned *ret_n, char reason[NET_REASON_MAX])
{
	unsigned n = 0;
	for (const char *item = text;; n++) {
		size_t len = strcspn(item, ",");
		struct net_address address;
		int r = parse_item((struct span){item, len}, default_port, &address, reason);
		if (r)
			return r;
		if (n < max)
			addresses[n] = address;
		if (item[len] == '\0')
			break;
		item += len + 1;
	}
	*ret_n = n + 1;
	return 0;
}

void
net_format(const struct net_address *address, char ret_text[NET_TEXT_MAX])
{
	bool v6 = strchr(address->host, ':') != NULL;
	snprintf(ret_text, NET_TEXT_MAX, v6 ? "[%s]:%u" : "%s:%u", address->host, address->port);
}

/* The sentence for an errno of a call about an address; returns its code. */
static int
fail_errno(char reason[NET_REASON_MAX], const char *what, const struct net_address *address,
	   int error)
{
	char text[NET_TEXT_MAX];
	const char *remedy = "";
	net_format(address, text);
	switch (error) {
	case ECONNREFUSED:
		remedy = ": is kv-server running there, and is the port right?";
		break;
	case EADDRINUSE:
		remedy = ": another process listens there ('ss -ltnp' names it): end it, or choose "
			 "another port";
		break;
	case EADDRNOTAVAIL:
		remedy = ": this machine has no such address: choose one that 'ip address' lists";
		break;
	case EACCES:
	case EPERM:
		remedy =
			": a port below 1024 needs CAP_NET_BIND_SERVICE; a firewall may refuse too";
		break;
	case EMFILE:
	case ENFILE:
		remedy = ": raise the limit of open files (ulimit -n, LimitNOFILE=)";
		break;
	case EAFNOSUPPORT:
		remedy = ": this machine has no IP of that version: give an address of the other";
		break;
	case ENOMEM:
	case ENOBUFS:
		remedy = ": free some memory, or give the machine more";
		break;
	case EHOSTUNREACH:
	case ENETUNREACH:
		remedy = ": there is no route; check the address and the network";
		break;
	case ETIMEDOUT:
		remedy = ": nothing answers there; check the address and firewalls";
		break;
	default:
		break;
	}
	snprintf(reason, NET_REASON_MAX, "%s %s: %s%s", what, text, strerror(error), remedy);
	return err_from_errno(error);
}

/* ---- Waiting ---- */

int
net_wait(int fd, short events, int64_t deadline_ns)
{
	for (;;) {
		struct pollfd p = {.fd = fd, .events = events};
		int64_t left_ns = deadline_ns - clock_now_ns();
		struct timespec timeout = clock_timespec(left_ns > 0 ? left_ns : 0);
		int n = ppoll(&p, 1, &timeout, NULL);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return err_from_errno(errno);
		if (n == 0 && left_ns <= 0)
			return ERR_TIMEOUT;
	}
}

int
net_receive(int fd, void *bytes, size_t len, int64_t deadline_ns)
{
	for (size_t n_got = 0; n_got < len;) {
		int rc = net_wait(fd, POLLIN, deadline_ns);
		if (rc)
			return rc;
		ssize_t n = recv(fd, (char *)bytes + n_got, len - n_got, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n <= 0)
			return ERR_CONN;
		n_got += (size_t)n;
	}
	return 0;
}

void
net_set_nodelay(int fd)
{
	int one = 1;
	/* Fails on a unix socket, which needs it not. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

/* ---- Resolving ---- */

struct lookup {
	atomic_int refs; /* the caller and the thread */
	atomic_int done; /* release by the thread, acquire by the caller; guards what follows */
	int event_fd;
	int error; /* of getaddrinfo */
	struct addrinfo hints;
	struct addrinfo *found;
	char host[NET_HOST_MAX];
	char port[8];
};

static void
lookup_release(struct lookup *l)
{
	if (!l || atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) != 1)
		return;
	if (l->found)
		freeaddrinfo(l->found);
	if (l->event_fd >= 0)
		close(l->event_fd);
	free(l);
}

static void *
lookup_main(void *arg)
{
	struct lookup *l = arg;
	l->error = getaddrinfo(l->host, l->port, &l->hints, &l->found);
	atomic_store_explicit(&l->done, 1, memory_order_release); /* [DONE] */
	eventfd_write(l->event_fd, 1); /* cannot fail: the counter is 0 */
	lookup_release(l);
	return NULL;
}

/* Starts a detached thread with all signals blocked: they are the application's. */
static int
start_detached(void *(*main)(void *), void *arg)
{
	pthread_t thread;
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int error = pthread_create(&thread, NULL, main, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (error)
		return ERR_NOMEM;
	pthread_detach(thread);
	return 0;
}

static int
lookup_new(const struct net_address *address, int flags, struct lookup **ret_lookup)
{
	struct lookup *l = calloc(1, sizeof(*l));
	if (!l)
		return ERR_NOMEM;
	atomic_init(&l->refs, 1);
	l->hints = (struct addrinfo){
		.ai_flags = flags | AI_NUMERICSERV,
		.ai_socktype = SOCK_STREAM,
	};
	memcpy(l->host, address->host, sizeof(l->host));
	snprintf(l->port, sizeof(l->port), "%u", address->port);
	l->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->event_fd < 0) {
		int r = err_from_errno(errno);
		lookup_release(l);
		return r;
	}
	*ret_lookup = l;
	return 0;
}

static int
lookup_wait(struct lookup *l, int64_t deadline_ns)
{
	atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
	int r = start_detached(lookup_main, l);
	if (r) {
		lookup_release(l);
		return r;
	}
	r = net_wait(l->event_fd, POLLIN, deadline_ns);
	return atomic_load_explicit(&l->done, memory_order_acquire) ? 0 : r;
}

static int
fail_lookup(char reason[NET_REASON_MAX], const struct net_address *address, int error)
{
	snprintf(reason, NET_REASON_MAX,
		 "cannot resolve '%s': %s; check its spelling and the resolver", address->host,
		 gai_strerror(error));
	return error == EAI_MEMORY ? ERR_NOMEM : ERR_CONN;
}

/* On success the caller releases *ret_lookup, which owns the addresses found. */
static int
resolve(const struct net_address *address, int flags, int64_t deadline_ns,
	struct lookup **ret_lookup, char reason[NET_REASON_MAX])
{
	struct lookup *l = NULL;
	int r = lookup_new(address, flags, &l);
	if (r) {
		snprintf(reason, NET_REASON_MAX,
			 "cannot resolve '%s': no memory or no file descriptor is left: raise the "
			 "limit of open files (ulimit -n, LimitNOFILE=)",
			 address->host);
		return r;
	}
	l->hints.ai_flags |= AI_NUMERICHOST;
	l->error = getaddrinfo(l->host, l->port, &l->hints, &l->found);
	if (l->error == EAI_NONAME) {
		l->hints.ai_flags &= ~AI_NUMERICHOST;
		r = lookup_wait(l, deadline_ns);
		if (r) {
			snprintf(reason, NET_REASON_MAX,
				 "cannot resolve '%s' in time: check the resolver, or give its "
				 "address",
				 address->host);
			goto fail;
		}
	}
	if (l->error) {
		r = fail_lookup(reason, address, l->error);
		goto fail;
	}
	*ret_lookup = l;
	return 0;
fail:
	lookup_release(l);
	return r;
}

/* ---- TCP ---- */

/* Waits for a non-blocking connect; returns 0 or an errno. */
static int
connect_finish(int fd, int64_t deadline_ns)
{
	int error = 0;
	socklen_t len = sizeof(error);
	int r = net_wait(fd, POLLOUT, deadline_ns);
	if (r)
		return r == ERR_TIMEOUT ? ETIMEDOUT : ECONNABORTED;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len))
		return errno;
	return error;
}

/* One attempt; returns 0 or an errno. */
static int
connect_one(const struct addrinfo *a, int64_t deadline_ns, int *ret_fd)
{
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return errno;
	int error = connect(fd, a->ai_addr, a->ai_addrlen) ? errno : 0;
	if (error == EINPROGRESS || error == EINTR)
		error = connect_finish(fd, deadline_ns);
	if (error) {
		close(fd);
		return error;
	}
	net_set_nodelay(fd);
	*ret_fd = fd;
	return 0;
}

static unsigned
count_addresses(const struct addrinfo *a)
{
	unsigned n = 0;
	for (; a; a = a->ai_next)
		n++;
	return n;
}

int
net_connect(const struct net_address *address, int64_t deadline_ns, int *ret_fd,
	    char reason[NET_REASON_MAX])
{
	struct lookup *l;
	int r = resolve(address, 0, deadline_ns, &l, reason);
	if (r)
		return r;
	unsigned n_left = count_addresses(l->found);
	int error = ECONNREFUSED;
	for (const struct addrinfo *a = l->found; a; a = a->ai_next) {
		int64_t now_ns = clock_now_ns();
		int64_t share_ns = deadline_ns > now_ns ? (deadline_ns - now_ns) / n_left-- : 0;
		error = connect_one(a, now_ns + share_ns, ret_fd);
		if (!error)
			break;
	}
	lookup_release(l);
	return error ? fail_errno(reason, "cannot connect to", address, error) : 0;
}

/* Binds and listens; returns 0 or an errno. */
static int
listen_one(const struct addrinfo *a, int v6_only, int backlog, int *ret_fd)
{
	int one = 1, error = 0;
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return errno;
	if ((a->ai_family == AF_INET6 &&
	     setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only))) ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, backlog)) {
		error = errno;
		close(fd);
		return error;
	}
	*ret_fd = fd;
	return 0;
}

/* name: getsockname or getpeername. */
static int
numeric_address(int fd, int (*name)(int, struct sockaddr *, socklen_t *),
		struct net_address *ret_address)
{
	struct sockaddr_storage address;
	socklen_t len = sizeof(address);
	char port[8];
	struct net_address found = {0};
	if (name(fd, (struct sockaddr *)&address, &len))
		return err_from_errno(errno);
	if (getnameinfo((struct sockaddr *)&address, len, found.host, sizeof(found.host), port,
			sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV))
		return ERR_CONN;
	int r = parse_port(port, strlen(port), &found.port);
	if (!r)
		*ret_address = found;
	return r;
}

int
net_peer(int fd, struct net_address *ret_peer)
{
	return numeric_address(fd, getpeername, ret_peer) ? ERR_CONN : 0;
}

static void
set_port(struct addrinfo *a, uint16_t port)
{
	/* IPv4 and IPv6 have it in the same place. */
	((struct sockaddr_in *)(void *)a->ai_addr)->sin_port = htons(port);
}

static void
close_listeners(struct net_listener *listeners, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		close(listeners[i].fd);
}

/*
 * Listens at one address more. Returns 0 or an errno; EADDRNOTAVAIL, EAFNOSUPPORT: this machine has
 * no such address.
 */
static int
listen_more(struct addrinfo *a, bool v6_only, int backlog, struct net_listener *listeners,
	    unsigned *n)
{
	if (*n > 0)
		set_port(a, listeners[0].bound.port);
	int error = listen_one(a, v6_only, backlog, &listeners[*n].fd);
	if (error)
		return error;
	if (numeric_address(listeners[*n].fd, getsockname, &listeners[*n].bound)) {
		close(listeners[*n].fd);
		return ENOBUFS;
	}
	(*n)++;
	return 0;
}

int
net_listen_each(const struct net_address *address, bool v6_only, int backlog,
		struct net_listener *listeners, unsigned max, unsigned *ret_n,
		char reason[NET_REASON_MAX])
{
	struct lookup *l;
	unsigned n = 0;
	int missing = EADDRNOTAVAIL, error = 0;
	int64_t deadline_ns = clock_now_ns() + LIMIT_CONNECT_TIMEOUT_MS * CLOCK_NS_PER_MS;
	int r = resolve(address, AI_PASSIVE, deadline_ns, &l, reason);
	if (r)
		return r;
	for (struct addrinfo *a = l->found; a && !error && !r; a = a->ai_next) {
		if (n == max)
			r = invalid(reason, "'%s' stands for more addresses than %u", address->host,
				    max);
		else
			error = listen_more(a, v6_only, backlog, listeners, &n);
		if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT) {
			missing = error;
			error = 0;
		}
	}
	lookup_release(l);
	if (!r && !error && n == 0)
		error = missing;
	if (error)
		r = fail_errno(reason, "cannot listen on", address, error);
	if (r)
		close_listeners(listeners, n);
	else
		*ret_n = n;
	return r;
}

int
net_listen(const struct net_address *address, int backlog, int *ret_fd,
	   struct net_address *ret_bound, char reason[NET_REASON_MAX])
{
	struct net_listener listeners[ADDRESSES_MAX];
	unsigned n;
	int r = net_listen_each(address, false, backlog, listeners, ADDRESSES_MAX, &n, reason);
	if (r)
		return r;
	close_listeners(listeners + 1, n - 1);
	*ret_fd = listeners[0].fd;
	*ret_bound = listeners[0].bound;
	return 0;
}

/* ---- Unix sockets ---- */

int
net_unix_address(const char *path, struct sockaddr_un *ret_address, socklen_t *ret_len)
{
	size_t len = strlen(path);
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (len == 0 || len >= sizeof(address.sun_path))
		return ERR_INVALID;
	memcpy(address.sun_path, path, len);
	if (path[0] == '@')
		address.sun_path[0] = '\0';
	*ret_address = address;
	*ret_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (path[0] != '@'));
	return 0;
}

/* A full backlog is EAGAIN, which poll(2) cannot wait for: ask again. Returns 0 or an errno. */
static int
unix_connect_retry(int fd, const struct sockaddr_un *address, socklen_t len, int64_t deadline_ns)
{
	const struct timespec pause = {.tv_nsec = CLOCK_NS_PER_MS};
	while (connect(fd, (const struct sockaddr *)address, len)) {
		if (errno != EAGAIN && errno != EINTR)
			return errno;
		if (clock_now_ns() >= deadline_ns)
			return ETIMEDOUT;
		nanosleep(&pause, NULL);
	}
	return 0;
}

int
net_unix_connect(const char *path, int64_t deadline_ns, int *ret_fd)
{
	struct sockaddr_un address;
	socklen_t len;
	int r = net_unix_address(path, &address, &len);
	if (r)
		return r;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_from_errno(errno);
	int error = unix_connect_retry(fd, &address, len, deadline_ns);
	if (error) {
		close(fd);
		return err_from_errno(error);
	}
	*ret_fd = fd;
	return 0;
}

static const char *
unix_remedy(int error)
{
	switch (error) {
	case ENOENT:
	case ENOTDIR:
		return "make its directory, or choose another path";
	case EMFILE:
	case ENFILE:
		return "raise the limit of open files (ulimit -n, LimitNOFILE=)";
	case EADDRINUSE:
		return "end whoever listens there, or choose another path";
	default:
		return "choose a path where this user may make a socket";
	}
}

int
net_unix_listen(const char *path, int backlog, int *ret_fd, char reason[NET_REASON_MAX])
{
	struct sockaddr_un address;
	socklen_t len;
	if (net_unix_address(path, &address, &len))
		return invalid(reason,
			       "the unix socket path '%s' is empty or longer than %zu bytes: "
			       "choose another",
			       path, sizeof(address.sun_path) - 1);
	int error = 0;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (const struct sockaddr *)&address, len) || listen(fd, backlog)) {
		error = errno;
		snprintf(reason, NET_REASON_MAX, "cannot listen on the unix socket %s: %s: %s",
			 path, strerror(error), unix_remedy(error));
		if (fd >= 0)
			close(fd);
		return err_from_errno(error);
	}
	*ret_fd = fd;
	return 0;
}

/* ---- The boot id ---- */

static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int
net_boot_id(unsigned char ret_id[NET_BOOT_ID_LEN])
{
	char text[64];
	unsigned char id[NET_BOOT_ID_LEN] = {0};
	unsigned n = 0;
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_from_errno(errno);
	ssize_t len = read(fd, text, sizeof(text));
	close(fd);
	for (ssize_t i = 0; i < len && n < 2 * NET_BOOT_ID_LEN; i++) {
		int digit = hex_digit(text[i]);
		if (digit >= 0) {
			id[n / 2] = (unsigned char)(id[n / 2] << 4 | digit);
			n++;
		}
	}
	if (n != 2 * NET_BOOT_ID_LEN)
		return ERR_CONN;
	memcpy(ret_id, id, sizeof(id));
	return 0;
}
