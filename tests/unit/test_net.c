/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses as people write them; connecting and listening on the loop-back interface. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/net.h"

static char reason[NET_REASON_MAX];

static int64_t
in_ms(int64_t ms)
{
	return clock_now_ns() + ms * CLOCK_NS_PER_MS;
}

/* ---- Parsing ---- */

static void
test_parse(void **state)
{
	static const struct {
		const char *text, *host, *formatted;
		uint16_t port;
	} cases[] = {
		{"localhost", "localhost", "localhost:7440", 7440},
		{"localhost:1", "localhost", "localhost:1", 1},
		{"10.0.0.1", "10.0.0.1", "10.0.0.1:7440", 7440},
		{"10.0.0.1:65535", "10.0.0.1", "10.0.0.1:65535", 65535},
		{"[::1]", "::1", "[::1]:7440", 7440},
		{"[::1]:80", "::1", "[::1]:80", 80},
		{"[fe80::1%lo]:80", "fe80::1%lo", "[fe80::1%lo]:80", 80},
		{"[10.0.0.1]:80", "10.0.0.1", "10.0.0.1:80", 80},
		{"host-1.example:0", "host-1.example", "host-1.example:0", 0},
		{"h:00080", "h", "h:80", 80},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct net_address a;
		unsigned n = 0;
		char text[NET_TEXT_MAX];
		assert_int_equal(net_parse(cases[i].text, 7440, &a, 1, &n, reason), 0);
		assert_int_equal(n, 1);
		assert_string_equal(a.host, cases[i].host);
		assert_int_equal(a.port, cases[i].port);
		net_format(&a, text);
		assert_string_equal(text, cases[i].formatted);
	}
}

static void
test_parse_refused(void **state)
{
	static const struct {
		const char *text, *word;
	} cases[] = {
		{"", "missing"},
		{":7440", "missing"},
		{"[]:7440", "missing"},
		{"::1", "ambiguous"},
		{"fe80::1:7440", "ambiguous"},
		{"a:b:c", "ambiguous"},
		{"[::1", "']' is missing"},
		{"[::1]7440", "':port'"},
		{"host:", "port"},
		{"host:65536", "port"},
		{"host:123456", "port"},
		{"host:-1", "port"},
		{"host:+1", "port"},
		{"host:7440x", "port"},
		{"host: 1", "port"},
		{"[::1]:", "port"},
		{"ho st", "cannot contain"},
		{" host", "cannot contain"},
		{"host\n", "cannot contain"},
		{"http//host", "cannot contain"},
		{"a,", "missing"},
		{",a", "missing"},
		{"a,,b", "missing"},
		{"a,::1", "ambiguous"},
	};
	struct net_address a = {.host = "untouched", .port = 1};
	unsigned n = 77;
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		reason[0] = '\0';
		assert_int_equal(net_parse(cases[i].text, 7440, &a, 0, &n, reason), ERR_INVALID);
		if (!strstr(reason, cases[i].word))
			fail_msg("'%s': '%s' does not say '%s'", cases[i].text, reason,
				 cases[i].word);
		assert_int_equal(n, 77);
	}
	char big[1000];
	memset(big, 'h', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	assert_int_equal(net_parse(big, 7440, &a, 1, &n, reason), ERR_INVALID);
	big[NET_HOST_MAX] = '\0';
	assert_int_equal(net_parse(big, 7440, &a, 1, &n, reason), ERR_INVALID);
	assert_string_equal(a.host, "untouched");
	big[NET_HOST_MAX - 1] = '\0';
	assert_int_equal(net_parse(big, 7440, &a, 1, &n, reason), 0);
	assert_int_equal(strlen(a.host), NET_HOST_MAX - 1);
}

static void
test_parse_list(void **state)
{
	struct net_address a[2];
	unsigned n;
	(void)state;
	assert_int_equal(net_parse("a:1,[::2],c:3", 7440, a, 2, &n, reason), 0);
	assert_int_equal(n, 3);
	assert_string_equal(a[0].host, "a");
	assert_int_equal(a[0].port, 1);
	assert_string_equal(a[1].host, "::2");
	assert_int_equal(a[1].port, 7440);
}

/* ---- TCP ---- */

static bool
has_flags(int fd, int file_flags)
{
	return (fcntl(fd, F_GETFD) & FD_CLOEXEC) && (fcntl(fd, F_GETFL) & O_NONBLOCK) == file_flags;
}

static void
check_listen_and_connect(const char *host, const char *connect_host)
{
	struct net_address at = {0}, bound;
	int listen_fd, fd, again, one = 0;
	socklen_t len = sizeof(one);
	snprintf(at.host, sizeof(at.host), "%s", host);
	assert_int_equal(net_listen(&at, 8, &listen_fd, &bound, reason), 0);
	assert_true(bound.port != 0);
	assert_true(has_flags(listen_fd, 0));
	struct net_address to = bound;
	snprintf(to.host, sizeof(to.host), "%s", connect_host);
	assert_int_equal(net_connect(&to, in_ms(10000), &fd, reason), 0);
	assert_true(has_flags(fd, O_NONBLOCK));
	assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, &len), 0);
	assert_int_equal(one, 1);
	int accepted = accept(listen_fd, NULL, NULL);
	assert_true(accepted >= 0);
	net_set_nodelay(accepted);
	one = 0;
	assert_int_equal(getsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &one, &len), 0);
	assert_int_equal(one, 1);
	/* Taken while it is used, and free at once when it is not, though a connection lingers. */
	struct net_address other;
	assert_int_equal(net_listen(&bound, 8, &again, &other, reason), ERR_CONN);
	assert_non_null(strstr(reason, "another process"));
	close(accepted);
	close(listen_fd);
	assert_int_equal(net_listen(&bound, 8, &again, &other, reason), 0);
	assert_int_equal(other.port, bound.port);
	close(again);
	close(fd);
}

static void
test_tcp(void **state)
{
	(void)state;
	check_listen_and_connect("127.0.0.1", "127.0.0.1");
	check_listen_and_connect("localhost", "localhost");
	check_listen_and_connect("0.0.0.0", "127.0.0.1");
}

static void
test_tcp_v6(void **state)
{
	struct net_address at = {.host = "::1"}, bound;
	int fd;
	(void)state;
	if (net_listen(&at, 1, &fd, &bound, reason))
		skip();
	close(fd);
	assert_string_equal(bound.host, "::1");
	check_listen_and_connect("::1", "::1");
	check_listen_and_connect("::", "::1");
}

static void
test_tcp_refused(void **state)
{
	struct net_address at = {.host = "127.0.0.1"}, bound;
	int fd = -1;
	(void)state;
	assert_int_equal(net_listen(&at, 1, &fd, &bound, reason), 0);
	close(fd);
	fd = -1;
	assert_int_equal(net_connect(&bound, in_ms(10000), &fd, reason), ERR_CONN);
	assert_non_null(strstr(reason, "kv-server"));
	assert_non_null(strstr(reason, "127.0.0.1:"));
	assert_int_equal(fd, -1);
	/* No such address here: TEST-NET-1 belongs to nobody. */
	struct net_address foreign = {.host = "192.0.2.1"};
	assert_int_equal(net_listen(&foreign, 1, &fd, &bound, reason), ERR_CONN);
	assert_non_null(strstr(reason, "no such address"));
	/* A name that cannot exist: an answer or the deadline, never longer. */
	struct net_address nobody = {.host = "nobody.invalid", .port = 1};
	int r = net_connect(&nobody, in_ms(300), &fd, reason);
	assert_true(r == ERR_CONN || r == ERR_TIMEOUT);
	assert_non_null(strstr(reason, "nobody.invalid"));
}

/* A listener whose backlog is full swallows SYNs: the deadline ends the attempt. */
static void
test_tcp_deadline(void **state)
{
	struct net_address at = {.host = "127.0.0.1"}, bound;
	int listen_fd, fds[8], n = 0, r = 0;
	(void)state;
	assert_int_equal(net_listen(&at, 0, &listen_fd, &bound, reason), 0);
	while (n < 8) {
		int64_t deadline_ns = in_ms(50);
		r = net_connect(&bound, deadline_ns, &fds[n], reason);
		if (r) {
			assert_true(clock_now_ns() >= deadline_ns);
			break;
		}
		n++;
	}
	assert_int_equal(r, ERR_TIMEOUT);
	assert_non_null(strstr(reason, "firewall"));
	while (n > 0)
		close(fds[--n]);
	close(listen_fd);
}

static void
test_wait(void **state)
{
	int fd = eventfd(0, EFD_CLOEXEC);
	(void)state;
	assert_int_equal(net_wait(fd, POLLIN, 0), ERR_TIMEOUT);
	int64_t deadline_ns = in_ms(3);
	assert_int_equal(net_wait(fd, POLLIN, deadline_ns), ERR_TIMEOUT);
	assert_true(clock_now_ns() >= deadline_ns);
	assert_int_equal(net_wait(fd, POLLOUT, 0), 0);
	eventfd_write(fd, 1);
	assert_int_equal(net_wait(fd, POLLIN, 0), 0);
	close(fd);
}

static void
on_alarm(int number)
{
	(void)number;
}

/* Whole or not at all; signals, as those that stop a process, do not end it. */
static void
test_receive(void **state)
{
	const struct itimerval often = {{.tv_usec = 1000}, {.tv_usec = 1000}}, never = {0};
	const struct sigaction action = {.sa_handler = on_alarm}; /* no SA_RESTART */
	struct sigaction former;
	int fds[2];
	char bytes[8];
	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	assert_int_equal(net_receive(fds[0], bytes, 8, 0), ERR_TIMEOUT);
	assert_int_equal(write(fds[1], "0123456789", 10), 10);
	assert_int_equal(net_receive(fds[0], bytes, 8, in_ms(1000)), 0);
	assert_memory_equal(bytes, "01234567", 8);
	assert_int_equal(sigaction(SIGALRM, &action, &former), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
	int64_t deadline_ns = in_ms(20);
	int rc = net_receive(fds[0], bytes, 8, deadline_ns);
	int64_t end_ns = clock_now_ns();
	assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
	assert_int_equal(sigaction(SIGALRM, &former, NULL), 0);
	assert_int_equal(rc, ERR_TIMEOUT);
	assert_true(end_ns >= deadline_ns);
	assert_memory_equal(bytes, "89", 2);
	close(fds[1]);
	assert_int_equal(net_receive(fds[0], bytes, 8, in_ms(1000)), ERR_CONN);
	close(fds[0]);
}

/* ---- Unix sockets, boot id ---- */

static void
test_unix_address(void **state)
{
	struct sockaddr_un a;
	socklen_t len;
	char path[sizeof(a.sun_path) + 1];
	(void)state;
	assert_int_equal(net_unix_address("/run/x", &a, &len), 0);
	assert_int_equal(a.sun_family, AF_UNIX);
	assert_string_equal(a.sun_path, "/run/x");
	assert_int_equal(len, offsetof(struct sockaddr_un, sun_path) + 7);
	assert_int_equal(net_unix_address("@x", &a, &len), 0);
	assert_memory_equal(a.sun_path, "\0x", 3);
	assert_int_equal(len, offsetof(struct sockaddr_un, sun_path) + 2);
	assert_int_equal(net_unix_address("", &a, &len), ERR_INVALID);
	memset(path, 'p', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	assert_int_equal(net_unix_address(path, &a, &len), ERR_INVALID);
	path[sizeof(path) - 2] = '\0';
	assert_int_equal(net_unix_address(path, &a, &len), 0);
	assert_int_equal(len, sizeof(a));
}

static void
test_boot_id(void **state)
{
	unsigned char a[NET_BOOT_ID_LEN] = {0}, b[NET_BOOT_ID_LEN] = {0},
		      zero[NET_BOOT_ID_LEN] = {0};
	char text[64] = "", want[3];
	(void)state;
	assert_int_equal(net_boot_id(a), 0);
	assert_int_equal(net_boot_id(b), 0);
	assert_memory_equal(a, b, sizeof(a));
	assert_memory_not_equal(a, zero, sizeof(a));
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY);
	assert_true(fd >= 0 && read(fd, text, sizeof(text) - 1) >= 36);
	close(fd);
	snprintf(want, sizeof(want), "%02x", a[0]);
	assert_memory_equal(text, want, 2);
	snprintf(want, sizeof(want), "%02x", a[15]);
	assert_memory_equal(text + 34, want, 2);
}

/* Text of strangers: nothing but printable characters, and never more than there is room. */
static void
test_copy_text(void **state)
{
	const char wild[] = {'a', '\n', '\x1b', '~', ' ', (char)0xe4, '\x7f', 'z'};
	char to[16];
	(void)state;
	net_copy_text(to, sizeof(to), wild, sizeof(wild));
	assert_string_equal(to, "a??~ ??z");
	net_copy_text(to, sizeof(to), "short\0not this", 14);
	assert_string_equal(to, "short");
	net_copy_text(to, 4, "longer", 6);
	assert_string_equal(to, "lon");
	net_copy_text(to, 4, "abcd", 4);
	assert_string_equal(to, "abc");
	net_copy_text(to, 1, "x", 1);
	assert_string_equal(to, "");
	net_copy_text(to, sizeof(to), "", 0);
	assert_string_equal(to, "");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse),        cmocka_unit_test(test_parse_refused),
		cmocka_unit_test(test_parse_list),   cmocka_unit_test(test_tcp),
		cmocka_unit_test(test_tcp_v6),       cmocka_unit_test(test_tcp_refused),
		cmocka_unit_test(test_tcp_deadline), cmocka_unit_test(test_wait),
		cmocka_unit_test(test_receive),      cmocka_unit_test(test_unix_address),
		cmocka_unit_test(test_boot_id),      cmocka_unit_test(test_copy_text),
	};
	return cmocka_run_group_tests_name("net", tests, NULL, NULL);
}
