/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A pool in a file: servers are killed and started again on it while clients work, and nothing that
 * was acknowledged is lost, nothing that was not written is read; clients of the server before
 * cannot reach into the next one's life; files that are not what they should be are refused; what a
 * crash of the machine leaves is mended.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/include/rkv.h"
#include "proto/layout.h"
#include "tests/proc/load.h"
#include "tests/proc/proc.h"

#define POOL "16M"

static char pool_path[128], copy_path[160], port_text[32];
static struct server *server;

static void
start_server(void)
{
	const char *args[] = {"--listen",    port_text, "--pool-size", POOL,
			      "--pool-file", pool_path, NULL};
	server = server_start_with(args, NULL);
}

static void
kill_server(void)
{
	server_kill(server);
	server = NULL;
}

static int
setup(void **state)
{
	const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
	(void)state;
	snprintf(pool_path, sizeof(pool_path), "%s/rkv-test-%d", folder, (int)getpid());
	snprintf(copy_path, sizeof(copy_path), "%s-copy", pool_path);
	snprintf(port_text, sizeof(port_text), "127.0.0.1:%u", proc_free_port());
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	server_kill(server);
	server = NULL;
	unlink(pool_path);
	unlink(copy_path);
	return 0;
}

/* ---- Counters: values that say which write they are ---- */

#define N_CLIENTS 4u
#define N_COUNTERS 16u /* of each client */
#define VALUE_MAX 3000u

struct counter {
	_Atomic uint32_t tried; /* the newest value that may have been written */
	_Atomic uint32_t acked; /* the newest whose write was acknowledged */
};

static struct shared {
	_Atomic bool stop;
	_Atomic bool hold; /* nobody polls */
	_Atomic unsigned n_holding;
	_Atomic uint64_t n_acked[N_CLIENTS];
	_Atomic uint64_t n_doubtful;
	struct counter counter[N_CLIENTS][N_COUNTERS];
} * shared;

static size_t
value_len(unsigned client, unsigned key, uint32_t count)
{
	uint64_t state = (uint64_t)client << 48 | (uint64_t)key << 32 | count;
	bool is_short = load_random(&state) % 8 != 0;
	return 8 + load_random(&state) % (is_short ? 200u : VALUE_MAX - 8u);
}

static size_t
make_value(unsigned client, unsigned key, uint32_t count, unsigned char *value)
{
	size_t len = value_len(client, key, count);
	uint64_t state = (uint64_t)count << 32 | client << 16 | key;
	memcpy(value, &(uint32_t[]){count, client << 16 | key}, 8);
	for (size_t i = 8; i < len; i++)
		value[i] = (unsigned char)(i % 8 ? value[i - 1] + 1u : load_random(&state));
	return len;
}

static size_t
make_key(unsigned client, unsigned key, char *text)
{
	return (size_t)snprintf(text, LOAD_KEY_TEXT, "c%u-%u", client, key);
}

/* The count that a value says it is, or -1: it is none that was ever written. */
static int64_t
count_of(unsigned client, unsigned key, const unsigned char *value, size_t len)
{
	unsigned char wanted[VALUE_MAX];
	uint32_t count;
	if (len < 8)
		return -1;
	memcpy(&count, value, sizeof(count));
	bool is_good =
		make_value(client, key, count, wanted) == len && memcmp(value, wanted, len) == 0;
	return is_good ? (int64_t)count : -1;
}

/* Is what a GET returned between what was acknowledged before it and what was tried until now? */
static bool
is_right(unsigned client, unsigned key, uint32_t acked, int status, const unsigned char *value,
	 size_t len)
{
	uint32_t tried = atomic_load(&shared->counter[client][key].tried);
	int64_t count = status == RKV_OK ? count_of(client, key, value, len) : 0;
	bool right =
		(status == RKV_OK || status == RKV_NOT_FOUND) && count >= acked && count <= tried;
	if (!right)
		fprintf(stderr, "key %u of client %u: status %d, count %lld, wanted %u to %u\n",
			key, client, status, (long long)count, acked, tried);
	return right;
}

/* ---- Clients that count ---- */

struct flight {
	struct rkv_request request;
	unsigned key;
	uint32_t count;
	char key_text[LOAD_KEY_TEXT];
	unsigned char value[VALUE_MAX];
};

static bool
may_be_lost(int status)
{
	return status == RKV_E_CONN || status == RKV_E_TIMEOUT || status == RKV_E_MAYBE ||
	       status == RKV_AGAIN;
}

static void
put_next(struct rkv_session *session, unsigned client, struct flight *f)
{
	struct counter *c = &shared->counter[client][f->key];
	f->count = atomic_load(&c->tried) + 1;
	atomic_store(&c->tried, f->count);
	f->request = (struct rkv_request){
		.op = RKV_OP_PUT,
		.key = f->key_text,
		.key_len = make_key(client, f->key, f->key_text),
		.value = f->value,
		.value_len = make_value(client, f->key, f->count, f->value),
		.user = f,
	};
	load_require(rkv_submit(session, &f->request) == RKV_OK);
}

/* Every count is tried once: a later one overwrites it, whatever has become of it. */
static void
put_done(unsigned client, const struct flight *f)
{
	if (f->request.status == RKV_OK) {
		atomic_store(&shared->counter[client][f->key].acked, f->count);
		atomic_fetch_add(&shared->n_acked[client], 1);
	} else {
		load_require(may_be_lost(f->request.status));
		atomic_fetch_add(&shared->n_doubtful, 1);
	}
}

static void
look_at_another(struct rkv_session *session, uint64_t random)
{
	unsigned char buf[VALUE_MAX];
	char text[LOAD_KEY_TEXT];
	struct rkv_item item = {0};
	unsigned client = (unsigned)(random % N_CLIENTS);
	unsigned key = (unsigned)(random >> 32) % N_COUNTERS;
	uint32_t acked = atomic_load(&shared->counter[client][key].acked);
	int status = rkv_get(session, text, make_key(client, key, text), buf, sizeof(buf), &item);
	if (!may_be_lost(status))
		load_require(is_right(client, key, acked, status, buf, item.value_len));
}

static void
hold_still(void)
{
	int64_t deadline = proc_deadline(4 * PROC_WAIT_MS);
	atomic_fetch_add(&shared->n_holding, 1);
	while (atomic_load(&shared->hold))
		load_require(proc_pause(deadline));
}

/* All its counters in flight at once, but for one look at somebody's now and then. */
static int
run_counter(void *arg)
{
	unsigned client = (unsigned)(uintptr_t)arg;
	struct rkv_options options;
	struct rkv_client *rkv;
	struct rkv_session *session, *reader;
	uint64_t random = client;
	static struct flight flight[N_COUNTERS];
	rkv_options_init(&options);
	options.op_timeout_ms = 2000;
	load_require(rkv_open(port_text, &options, &rkv) == RKV_OK);
	load_require(rkv_session_open(rkv, &session) == RKV_OK);
	load_require(rkv_session_open(rkv, &reader) == RKV_OK);
	unsigned n_open = 0;
	for (unsigned i = 0; i < N_COUNTERS; i++, n_open++) {
		flight[i].key = i;
		put_next(session, client, &flight[i]);
	}
	while (n_open) {
		struct rkv_request *done[N_COUNTERS];
		if (atomic_load(&shared->hold))
			hold_still();
		int n = rkv_poll(session, done, N_COUNTERS, PROC_WAIT_MS);
		load_require(n > 0);
		for (int i = 0; i < n; i++) {
			struct flight *f = done[i]->user;
			put_done(client, f);
			if (atomic_load(&shared->stop))
				n_open--;
			else
				put_next(session, client, f);
		}
		look_at_another(reader, load_random(&random));
	}
	rkv_close(rkv);
	return 0;
}

static pid_t clients[N_CLIENTS];

static void
start_counters(void)
{
	shared = load_share(sizeof(*shared));
	for (unsigned i = 0; i < N_CLIENTS; i++)
		clients[i] = load_fork(run_counter, (void *)(uintptr_t)i);
}

/* Each gets so many more acknowledged. */
static void
await_progress(uint64_t n)
{
	int64_t deadline = proc_deadline(2 * PROC_WAIT_MS);
	for (unsigned i = 0; i < N_CLIENTS; i++) {
		uint64_t from = atomic_load(&shared->n_acked[i]);
		while (atomic_load(&shared->n_acked[i]) < from + n)
			if (!proc_pause(deadline))
				fail_msg("client %u gets nothing done", i);
	}
}

static void
stop_counters(void)
{
	atomic_store(&shared->stop, true);
	for (unsigned i = 0; i < N_CLIENTS; i++)
		assert_int_equal(load_reap(clients[i], 2 * PROC_WAIT_MS), 0);
}

/* Reads every counter anew, through a client that knows nothing. */
static void
check_counters(struct rkv_session *session)
{
	unsigned char buf[VALUE_MAX];
	char text[LOAD_KEY_TEXT];
	struct rkv_item item = {0};
	for (unsigned c = 0; c < N_CLIENTS; c++)
		for (unsigned k = 0; k < N_COUNTERS; k++) {
			uint32_t acked = atomic_load(&shared->counter[c][k].acked);
			int status = rkv_get(session, text, make_key(c, k, text), buf, sizeof(buf),
					     &item);
			assert_true(is_right(c, k, acked, status, buf, item.value_len));
		}
}

static void
check_all(uint64_t n_lives)
{
	struct rkv_client *client;
	struct rkv_session *session;
	assert_int_equal(rkv_open(port_text, NULL, &client), RKV_OK);
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
	check_counters(session);
	assert_int_equal(load_counter(client, "pool_lives"), n_lives);
	rkv_close(client);
}

/*
 * What a start makes of a file is the same over every fabric, and there are more starts over shm.
 * Over verbs each takes a queue pair's time for every client, in an emulated machine.
 */
static unsigned
times(unsigned n, unsigned n_over_verbs)
{
	const char *args = getenv("RKV_SERVER_ARGS");
	return args && strstr(args, "verbs") ? n_over_verbs : n;
}

static void
kill_under_load(unsigned n_restarts)
{
	uint64_t random = 1;
	start_server();
	start_counters();
	for (unsigned i = 0; i < n_restarts; i++) {
		await_progress(5);
		nanosleep(&(struct timespec){.tv_nsec = (long)(load_random(&random) % 20000000)},
			  NULL);
		kill_server();
		start_server();
	}
	await_progress(5);
	stop_counters();
	assert_true(atomic_load(&shared->n_doubtful) > 0);
	/* And once more in good order. */
	assert_int_equal(server_stop(server), 0);
	server = NULL;
	start_server();
	assert_null(strstr(proc_text(server->proc, PROC_ERR, NULL), "was not closed"));
	check_all(n_restarts + 2);
	load_unshare(shared, sizeof(*shared));
}

static void
test_kill_under_load(void **state)
{
	(void)state;
	kill_under_load(times(20, 8));
}

/* ---- Huge pages ---- */

#define HUGE_LEN (UINT64_C(24) << 20) /* more than a pool file of POOL takes */
#define NR_HUGEPAGES "/proc/sys/vm/nr_hugepages"

static char huge_folder[] = "/tmp/rkv-huge-XXXXXX";
static unsigned long n_pages_before; /* that the kernel had been told to set aside */

static bool
write_number(const char *path, unsigned long number)
{
	FILE *file = fopen(path, "we");
	bool done = file && fprintf(file, "%lu\n", number) > 0;
	return file && fclose(file) == 0 && done;
}

static unsigned long
read_number(const char *path)
{
	unsigned long number = 0;
	FILE *file = fopen(path, "re");
	if (file && fscanf(file, "%lu", &number) != 1)
		number = 0;
	if (file)
		fclose(file);
	return number;
}

/* What is missing; NULL: huge pages are free, in a file system that only this test sees. */
static const char *
get_huge_pages(void)
{
	struct statfs fs;
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return "no right to mount anything";
	if (!mkdtemp(huge_folder) || mount("none", huge_folder, "hugetlbfs", 0, NULL))
		return "no hugetlbfs in this kernel";
	if (statfs(huge_folder, &fs) || fs.f_bsize <= 4096)
		return "a hugetlbfs without a page size";
	n_pages_before = read_number(NR_HUGEPAGES);
	unsigned long wanted = n_pages_before + HUGE_LEN / (unsigned long)fs.f_bsize;
	if (!write_number(NR_HUGEPAGES, wanted))
		return "no right to set huge pages aside";
	return read_number(NR_HUGEPAGES) == wanted ? NULL : "no memory in one piece is left";
}

static int
give_huge_pages_back(void **state)
{
	int rc = teardown(state);
	if (n_pages_before != ULONG_MAX)
		write_number(NR_HUGEPAGES, n_pages_before);
	umount(huge_folder);
	rmdir(huge_folder);
	return rc;
}

/* A pool file on hugetlbfs outlives its servers as one on tmpfs does. */
static void
test_huge_pages(void **state)
{
	struct stat st;
	n_pages_before = ULONG_MAX;
	(void)state;
	const char *missing = get_huge_pages();
	if (missing) {
		print_message("no huge pages: %s\n", missing);
		skip();
	}
	snprintf(pool_path, sizeof(pool_path), "%s/pool", huge_folder);
	kill_under_load(3);
	assert_int_equal(stat(pool_path, &st), 0);
	assert_true(st.st_blksize > 4096);
	assert_int_equal(st.st_size % st.st_blksize, 0);
}

/* ---- Former clients ---- */

/* Starts it without waiting until it is ready. */
static struct proc *
begin_server(void)
{
	const char *args[] = {"--listen", port_text,     "--pool-size", POOL, "--fabric",
			      "soft",     "--pool-file", pool_path,     NULL};
	return proc_start("kv-server", args, NULL);
}

static void
assert_waits_for(struct proc *next, pid_t pid)
{
	char text[64];
	const char *args[] = {"--server", port_text, "ping", NULL};
	snprintf(text, sizeof(text), "waits for process %d,", (int)pid);
	if (!proc_wait_text(next, PROC_ERR, text, PROC_WAIT_MS))
		fail_msg("it does not say whom it waits for: %s", proc_text(next, PROC_ERR, NULL));
	struct proc *cli = proc_run("kv-cli", args, NULL);
	assert_int_not_equal(cli->exit_code, 0);
	if (!strstr(proc_text(cli, PROC_ERR, NULL), text))
		fail_msg("who connects is not told: %s", proc_text(cli, PROC_ERR, NULL));
	proc_free(cli);
	assert_null(strstr(proc_text(next, PROC_OUT, NULL), "ready"));
}

/*
 * One is stopped in the middle of what it does, perhaps between the WRITE and the CAS of a batch:
 * the next server does not begin before it has run on, or is gone.
 */
static void
test_stopped_client(void **state)
{
	(void)state;
	start_server();
	if (!server->socket[0])
		return; /* over verbs nothing late can land */
	start_counters();
	for (unsigned i = 0; i < 4; i++) {
		unsigned victim = i % N_CLIENTS;
		await_progress(3);
		kill(clients[victim], SIGSTOP);
		assert_int_equal(waitpid(clients[victim], NULL, WUNTRACED), clients[victim]);
		kill_server();
		struct proc *next = begin_server();
		assert_waits_for(next, clients[victim]);
		if (i == 3) {
			kill(clients[victim], SIGKILL);
			assert_int_equal(load_reap(clients[victim], PROC_WAIT_MS), 128 + SIGKILL);
		} else {
			kill(clients[victim], SIGCONT);
		}
		assert_true(proc_wait_text(next, PROC_OUT, "ready on ", PROC_WAIT_MS));
		if (i == 3)
			clients[victim] = load_fork(run_counter, (void *)(uintptr_t)victim);
		await_progress(3);
		proc_free(next);
		start_server();
	}
	stop_counters();
	check_all(9);
	load_unshare(shared, sizeof(*shared));
}

/* Those whose threads do something else for an hour, with operations in flight, hold nobody up. */
static void
test_holding_clients(void **state)
{
	(void)state;
	start_server();
	start_counters();
	for (unsigned i = 0; i < 3; i++) {
		int64_t deadline = proc_deadline(PROC_WAIT_MS);
		await_progress(3);
		atomic_store(&shared->n_holding, 0);
		atomic_store(&shared->hold, true);
		while (atomic_load(&shared->n_holding) < N_CLIENTS)
			assert_true(proc_pause(deadline));
		kill_server();
		start_server();
		atomic_store(&shared->hold, false);
	}
	await_progress(3);
	stop_counters();
	check_all(4);
	load_unshare(shared, sizeof(*shared));
}

/* ---- Files ---- */

static void
write_at(off_t off, const void *bytes, size_t len)
{
	int fd = open(pool_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, len, off), (ssize_t)len);
	close(fd);
}

static off_t
file_size(void)
{
	struct stat st;
	return stat(pool_path, &st) == 0 ? st.st_size : -1;
}

/* option: one more, or NULL */
static void
assert_refused_with(const char *size, const char *option, const char *value, const char *part)
{
	const char *args[] = {"--listen", "127.0.0.1:0", "--pool-size", size,
			      "--fabric", "soft",        "--pool-file", pool_path,
			      option,     value,         NULL};
	off_t before = file_size();
	struct proc *proc = proc_run("kv-server", args, NULL);
	const char *said = proc_text(proc, PROC_ERR, NULL);
	if (proc->exit_code != 1 || !strstr(said, part))
		fail_msg("exit code %d and not a word of '%s': %s", proc->exit_code, part, said);
	proc_free(proc);
	assert_int_equal(file_size(), before);
}

static void
assert_refused(const char *size, const char *part)
{
	assert_refused_with(size, NULL, NULL, part);
}

static void
put_and_kill(const char *value)
{
	struct rkv_client *client;
	struct rkv_session *session;
	start_server();
	assert_int_equal(rkv_open(port_text, NULL, &client), RKV_OK);
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
	assert_int_equal(rkv_put(session, "key", 3, value, strlen(value) + 1, NULL, NULL), RKV_OK);
	rkv_close(client);
	kill_server();
}

/* NULL: absent */
static void
assert_holds(const char *value)
{
	struct rkv_client *client;
	struct rkv_session *session;
	char got[32] = "";
	start_server();
	assert_int_equal(rkv_open(port_text, NULL, &client), RKV_OK);
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
	int rc = rkv_get(session, "key", 3, got, sizeof(got), NULL);
	assert_int_equal(rc, value ? RKV_OK : RKV_NOT_FOUND);
	assert_string_equal(got, value ? value : "");
	rkv_close(client);
	kill_server();
}

static void
test_files(void **state)
{
	const uint32_t version = LAYOUT_VERSION + 1, good_version = LAYOUT_VERSION;
	const uint64_t unfinished = LAYOUT_MAGIC_UNFINISHED;
	struct layout_superblock sb;
	(void)state;
	/* Foreign: longer and shorter than a superblock. */
	write_at(0, "my only photograph", 18);
	assert_refused(POOL, "no rkv pool");
	write_at(100000, "end", 3);
	assert_refused(POOL, "no rkv pool");
	unlink(pool_path);
	/* New; killed; there again. */
	put_and_kill("value");
	off_t size = file_size();
	assert_holds("value");
	assert_refused("32M", "--pool-size 16777216");
	assert_refused_with(POOL, "--restore", "/no/such/snapshot", "holds a pool already");
	assert_holds("value");
	write_at(8, &version, sizeof(version));
	assert_refused(POOL, "layout version");
	write_at(8, &good_version, sizeof(good_version));
	assert_int_equal(truncate(pool_path, size - 4096), 0);
	assert_refused(POOL, "cut off");
	assert_int_equal(truncate(pool_path, size + 4096), 0);
	assert_refused(POOL, "appended to");
	assert_int_equal(truncate(pool_path, size), 0);
	write_at(offsetof(struct layout_superblock, heap_off), "x", 1);
	assert_refused(POOL, "checksum");
	/* Only when asked to, is it formatted. */
	const char *args[] = {"--pool-file", pool_path, "--pool-format", "--pool-size", POOL, NULL};
	server = server_start_with(args, NULL);
	/* It is served: by nobody else. */
	char part[64];
	snprintf(part, sizeof(part), "another kv-server (process %d)", (int)server->proc->pid);
	assert_refused(POOL, part);
	kill_server();
	assert_holds(NULL);
	/* Half formatted: nobody had anything there. */
	put_and_kill("value");
	write_at(0, &unfinished, sizeof(unfinished));
	assert_holds(NULL);
	/* Killed between the two words that make a new epoch. */
	put_and_kill("value");
	int fd = open(pool_path, O_RDWR | O_CLOEXEC);
	assert_int_equal(pread(fd, &sb, sizeof(sb), 0), sizeof(sb));
	sb.former_epoch = sb.epoch++;
	assert_int_equal(pwrite(fd, &sb, sizeof(sb), 0), sizeof(sb));
	close(fd);
	assert_holds("value");
	/* No file at all. */
	unlink(pool_path);
	assert_int_equal(mkfifo(pool_path, 0600), 0);
	assert_refused(POOL, "not a regular file");
	unlink(pool_path);
	assert_int_equal(symlink("/proc/self/no-such-folder/pool", pool_path), 0);
	assert_refused(POOL, "cannot be opened");
}

/* ---- What former sessions had ---- */

/* It is looked at ahead of all else, though no session of this life has died. */
static void
test_hurry(void **state)
{
	struct rkv_client *client;
	(void)state;
	put_and_kill("value");
	start_server();
	assert_int_equal(rkv_open(port_text, NULL, &client), RKV_OK);
	assert_true(load_await_counter(client, "scrub_hurried", 1, UINT64_MAX, PROC_WAIT_MS));
	assert_int_equal(load_counter(client, "sessions_died"), 0);
	rkv_close(client);
}

/* ---- After a crash of the machine ---- */

static unsigned char *
read_file(size_t *ret_len)
{
	*ret_len = (size_t)file_size();
	unsigned char *bytes = malloc(*ret_len);
	int fd = open(pool_path, O_RDONLY | O_CLOEXEC);
	assert_true(bytes && fd >= 0);
	for (size_t done = 0; done < *ret_len;) {
		ssize_t n = pread(fd, bytes + done, *ret_len - done, (off_t)done);
		assert_true(n > 0);
		done += (size_t)n;
	}
	close(fd);
	return bytes;
}

/* Each page as it was at one moment or the other, or, seldom, of nothing at all. */
static void
make_torn_copy(const unsigned char *early, const unsigned char *late, size_t len, uint64_t seed)
{
	static const unsigned char nothing[4096];
	int fd = open(copy_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	for (size_t off = 0; off < len; off += 4096) {
		uint64_t random = load_random(&seed) % 100;
		const unsigned char *page = random < 49   ? early + off
					    : random < 98 ? late + off
							  : nothing;
		if (off == 0)
			page = late;
		assert_int_equal(pwrite(fd, page, 4096, (off_t)off), 4096);
	}
	close(fd);
}

/* What can be read is right, and the pool is as good as new for what comes. */
static void
check_mended(void)
{
	struct rkv_client *client;
	struct rkv_session *session;
	unsigned char value[VALUE_MAX];
	char text[LOAD_KEY_TEXT];
	assert_int_equal(rkv_open(port_text, NULL, &client), RKV_OK);
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
	for (unsigned c = 0; c < N_CLIENTS; c++)
		for (unsigned k = 0; k < N_COUNTERS; k++) {
			struct rkv_item item = {0};
			int status = rkv_get(session, text, make_key(c, k, text), value,
					     sizeof(value), &item);
			assert_true(is_right(c, k, 0, status, value, item.value_len));
		}
	struct load load = {.session = session, .n_keys = 64, .writer = 1, .random = 1, .depth = 8};
	load_mix(&load, SANITIZED ? 500 : 3000);
	assert_int_equal(load.n_bad, 0);
	for (unsigned round = 0; round < 3; round++)
		for (unsigned c = 0; c < N_CLIENTS; c++)
			for (unsigned k = 0; k < N_COUNTERS; k++) {
				struct counter *counter = &shared->counter[c][k];
				uint32_t count = counter->tried + 1;
				size_t len = make_value(c, k, count, value);
				atomic_store(&counter->tried, count);
				assert_int_equal(rkv_put(session, text, make_key(c, k, text), value,
							 len, NULL, NULL),
						 RKV_OK);
				atomic_store(&counter->acked, count);
			}
	check_counters(session);
	rkv_close(client);
}

static void
test_machine_crash(void **state)
{
	size_t len, late_len;
	(void)state;
	start_server();
	start_counters();
	await_progress(20);
	unsigned char *early = read_file(&len);
	await_progress(100);
	unsigned char *late = read_file(&late_len);
	stop_counters();
	kill_server();
	assert_int_equal(len, late_len);
	for (unsigned i = 0; i < times(6, 1); i++) {
		make_torn_copy(early, late, len, i);
		const char *args[] = {"--listen",    port_text, "--pool-size", POOL,
				      "--pool-file", copy_path, NULL};
		server = server_start_with(args, NULL);
		assert_non_null(strstr(proc_text(server->proc, PROC_ERR, NULL), "was not closed"));
		check_mended();
		kill_server();
	}
	free(early);
	free(late);
	load_unshare(shared, sizeof(*shared));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_kill_under_load, setup, teardown),
		cmocka_unit_test_setup_teardown(test_huge_pages, setup, give_huge_pages_back),
		cmocka_unit_test_setup_teardown(test_stopped_client, setup, teardown),
		cmocka_unit_test_setup_teardown(test_holding_clients, setup, teardown),
		cmocka_unit_test_setup_teardown(test_files, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hurry, setup, teardown),
		cmocka_unit_test_setup_teardown(test_machine_crash, setup, teardown),
	};
	return load_each_alone(tests, sizeof(tests) / sizeof(tests[0]), 8 * PROC_WAIT_MS);
}
