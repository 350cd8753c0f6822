/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Snapshots of a real server: taken while processes write, and compared with what they were told;
 * torn by a kill, by a full disk, by a damaged block; restored into other pools, and used there.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/include/rkv.h"
#include "common/clock.h"
#include "proto/snapfile.h"
#include "tests/proc/load.h"
#include "tests/proc/proc.h"
#include "tests/proc/raw.h"

#define TEMPORARY ".kv-server.part"

static char dir[64];
static struct server *server;
static struct rkv_client *client;
static struct rkv_session *session;

/* ---- Servers and files ---- */

static int
set_up(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/rkv-snapshot-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static const char *
path_of(const char *name)
{
	static char path[sizeof(dir) + 256];
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void
connect_to(struct server *to)
{
	server = to;
	assert_int_equal(rkv_open(server->address, NULL, &client), RKV_OK);
	assert_int_equal(rkv_session_open(client, &session), RKV_OK);
}

static void
disconnect(void)
{
	rkv_session_close(session);
	rkv_close(client);
	session = NULL;
	client = NULL;
}

static struct server *
start(const char *rate)
{
	return server_start("--pool-size", "64M", "--index-slots", "20000", "--chunk-size", "64K",
			    "--snapshot-dir", dir, "--snapshot-rate", rate, NULL);
}

static void
begin(const char *rate)
{
	connect_to(start(rate));
}

static void
begin_restored(const char *name, const char *pool_size, const char *chunk_size)
{
	connect_to(server_start("--restore", path_of(name), "--pool-size", pool_size,
				"--chunk-size", chunk_size, "--snapshot-dir", dir, NULL));
}

/* fsck finds what was restored, and nothing else in the pool. */
static void
expect_sound(void)
{
	const char *args[] = {"--server", server->address, "fsck", NULL};
	char live[64];
	struct proc *cli = proc_run("kv-cli", args, NULL);
	const char *text = proc_text(cli, PROC_OUT, NULL);
	snprintf(live, sizeof(live), "\nlive_blocks %" PRIu64 "\n",
		 load_counter(client, "restored_records"));
	if (cli->exit_code != 0 || !strstr(text, live) || !strstr(text, "\ngarbage_blocks 0\n") ||
	    !strstr(text, "\nclean 1\n"))
		fail_msg("fsck: %d: %s", cli->exit_code, text);
	proc_free(cli);
}

static void
end(void)
{
	disconnect();
	struct server *gone = server;
	server = NULL;
	assert_int_equal(server_stop(gone), 0);
}

/* Removes everything, whatever became of the test. */
static int
tear_down(void **state)
{
	struct dirent *entry;
	DIR *open_dir = opendir(dir);
	(void)state;
	if (client)
		disconnect();
	server_kill(server);
	server = NULL;
	while (open_dir && (entry = readdir(open_dir)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			unlink(path_of(entry->d_name));
	if (open_dir)
		closedir(open_dir);
	rmdir(dir);
	return 0;
}

static bool
exists(const char *name)
{
	return access(path_of(name), F_OK) == 0;
}

/* XXH3 of a whole file, with its length; 0: it is not there. */
static uint64_t
digest_of(const char *name)
{
	static unsigned char bytes[8 << 20];
	int fd = open(path_of(name), O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t n = read(fd, bytes, sizeof(bytes));
	close(fd);
	assert_true(n > 0 && (size_t)n < sizeof(bytes));
	assert_int_equal(n % SNAPFILE_PAGE, 0);
	return XXH3_64bits(bytes, (size_t)n);
}

/* Until it is not running any more. */
static struct rkv_snapshot
await(uint32_t number)
{
	struct rkv_snapshot s;
	int64_t deadline = proc_deadline(2 * PROC_WAIT_MS);
	do
		assert_int_equal(rkv_snapshot_look(client, number, &s), RKV_OK);
	while (s.phase == RKV_SNAPSHOT_RUNNING && proc_pause(deadline));
	assert_int_equal(s.number, number);
	return s;
}

static uint32_t
begin_snapshot(const char *name)
{
	struct rkv_snapshot s;
	if (rkv_snapshot_begin(client, name, &s) != RKV_OK)
		fail_msg("%s", s.reason);
	assert_int_equal(s.phase, RKV_SNAPSHOT_RUNNING);
	assert_string_equal(s.name, name);
	return s.number;
}

static struct rkv_snapshot
take(const char *name)
{
	struct rkv_snapshot s = await(begin_snapshot(name));
	if (s.phase != RKV_SNAPSHOT_DONE)
		fail_msg("%s", s.reason);
	assert_int_equal(s.n_unreadable, 0);
	assert_false(exists(TEMPORARY));
	return s;
}

/* ---- Values that nobody writes meanwhile ---- */

#define VALUE_MAX ((64u << 10) - 40 - 1024) /* beside the longest key */

static const struct still {
	uint32_t key_len, value_len, user_flags, ttl_s;
} stills[] = {
	{1, 0, 0, 0}, {1024, VALUE_MAX, 1, 0}, {1024, 0, UINT32_MAX, 0}, {7, 17, 0, 100000},
	{8, 8, 5, 0}, {100, 60000, 6, 1000},   {1023, 1, 7, 99999},
};
#define N_STILLS (sizeof(stills) / sizeof(*stills))

static unsigned char bytes[64 << 10];
static uint64_t still_version[N_STILLS];

static void
still_key(size_t i, char key[1024])
{
	memset(key, 'A' + (int)i, 1024);
}

static void
put_stills(void)
{
	char key[1024];
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(i * 2654435761u >> 11);
	for (size_t i = 0; i < N_STILLS; i++) {
		const struct rkv_put_options options = {.ttl_s = stills[i].ttl_s,
							.user_flags = stills[i].user_flags};
		still_key(i, key);
		assert_int_equal(rkv_put(session, key, stills[i].key_len, bytes + i,
					 stills[i].value_len, &options, &still_version[i]),
				 RKV_OK);
	}
}

static void
expect_stills(void)
{
	static unsigned char buf[64 << 10];
	struct rkv_item item;
	char key[1024];
	for (size_t i = 0; i < N_STILLS; i++) {
		still_key(i, key);
		assert_int_equal(rkv_get(session, key, stills[i].key_len, buf, sizeof(buf), &item),
				 RKV_OK);
		assert_int_equal(item.value_len, stills[i].value_len);
		assert_memory_equal(buf, bytes + i, stills[i].value_len);
		assert_int_equal(item.user_flags, stills[i].user_flags);
		assert_int_equal(item.version, still_version[i]);
		if (stills[i].ttl_s)
			assert_in_range(item.ttl_s, stills[i].ttl_s - 600, stills[i].ttl_s + 1);
		else
			assert_int_equal(item.ttl_s, 0);
	}
}

/* ---- Writers that keep a log ---- */

#define N_WRITERS 3u
#define N_KEYS 120u /* of each writer */
#define N_EVENTS 60000u

/* An acknowledged change of a key: to the value with this id, or to none. */
struct event {
	uint32_t key;
	uint32_t id; /* 0: deleted */
	uint64_t version;
	int64_t began_ns;
	int64_t ended_ns;
};

struct writer {
	char address[64];
	unsigned number;
	atomic_bool *stop;
	_Atomic uint32_t n;
	struct event event[N_EVENTS];
};

/* One change; false: it did not change anything. */
static bool
change(struct rkv_session *s, struct event *e, uint64_t random)
{
	static unsigned char value[LOAD_VALUE_MAX];
	char key[LOAD_KEY_TEXT];
	size_t key_len = load_key(e->key, key);
	const struct rkv_put_options options = {.user_flags = e->id};
	int rc;
	load_fill(e->key, e->id, value);
	e->began_ns = clock_now_ns();
	if (random % 4 == 0)
		rc = rkv_delete(s, key, key_len);
	else if (random % 4 == 1)
		rc = rkv_add(s, key, key_len, value, load_len(e->id), &options, &e->version);
	else
		rc = rkv_put(s, key, key_len, value, load_len(e->id), &options, &e->version);
	e->ended_ns = clock_now_ns();
	if (random % 4 == 0)
		e->id = 0;
	load_require(rc == RKV_OK || rc == RKV_NOT_FOUND || rc == RKV_EXISTS || rc == RKV_AGAIN);
	return rc == RKV_OK;
}

static int
run_writer(void *arg)
{
	const struct timespec pause = {.tv_nsec = 50000};
	struct writer *w = arg;
	struct rkv_client *c;
	struct rkv_session *s;
	uint64_t random = w->number;
	load_require(rkv_open(w->address, NULL, &c) == RKV_OK);
	load_require(rkv_session_open(c, &s) == RKV_OK);
	for (uint32_t serial = 1; w->n < N_EVENTS && !atomic_load(w->stop); serial++) {
		struct event *e = &w->event[w->n];
		uint64_t r = load_random(&random);
		e->key = w->number * N_KEYS + (uint32_t)(r >> 32) % N_KEYS;
		e->id = load_id(w->number + 1, serial);
		if (change(s, e, r))
			atomic_fetch_add(&w->n, 1);
		nanosleep(&pause, NULL);
	}
	rkv_session_close(s);
	rkv_close(c);
	return 0;
}

/*
 * Was this what the key held at some moment from from_ns to to_ns? It held what an event stored
 * from some moment of that event on, and until some moment of the next one.
 */
static bool
was_current(const struct writer *w, uint32_t key, uint32_t id, uint64_t version, int64_t from_ns,
	    int64_t to_ns)
{
	struct event none = {.began_ns = INT64_MIN};
	const struct event *held = &none;
	for (uint32_t i = 0; i <= w->n; i++) {
		const struct event *e = i < w->n ? &w->event[i] : NULL;
		if (e && e->key != key)
			continue;
		bool overlaps = held->began_ns <= to_ns && (!e || e->ended_ns >= from_ns);
		if (overlaps && held->id == id && (id == 0 || held->version == version))
			return true;
		held = e;
	}
	return false;
}

/* Compares the restored keys of one writer; returns how many it changed meanwhile. */
static unsigned
compare(const struct writer *w, int64_t from_ns, int64_t to_ns)
{
	static unsigned char buf[LOAD_VALUE_MAX];
	unsigned n_changed = 0;
	for (unsigned k = 0; k < N_KEYS; k++) {
		unsigned key = w->number * N_KEYS + k;
		char text[LOAD_KEY_TEXT];
		struct rkv_item item = {0};
		int rc = rkv_get(session, text, load_key(key, text), buf, sizeof(buf), &item);
		assert_true(rc == RKV_OK || rc == RKV_NOT_FOUND);
		uint32_t id = rc == RKV_OK ? item.user_flags : 0;
		if (rc == RKV_OK)
			assert_true(load_matches(key, id, buf, item.value_len));
		if (!was_current(w, key, id, item.version, from_ns, to_ns))
			fail_msg("key %u was restored as %u of version %" PRIu64
				 ", which it never was during the snapshot",
				 key, id, item.version);
	}
	for (uint32_t i = 0; i < w->n; i++)
		n_changed += w->event[i].began_ns > from_ns && w->event[i].ended_ns < to_ns;
	return n_changed;
}

static uint32_t
n_written(const struct writer *writers)
{
	uint32_t n = 0;
	for (unsigned i = 0; i < N_WRITERS; i++)
		n += writers[i].n;
	return n;
}

static bool
have_all_written(struct writer *writers, uint32_t n)
{
	for (unsigned i = 0; i < N_WRITERS; i++)
		if (writers[i].n < n)
			return false;
	return true;
}

/* Where the machine stood still for most of that time it shows nothing: another one is taken. */
static struct rkv_snapshot
take_under_load(const struct writer *writers, int64_t *ret_from_ns, int64_t *ret_to_ns,
		unsigned *ret_n_taken)
{
	struct rkv_snapshot s;
	uint32_t n_before, n_after;
	do {
		*ret_from_ns = clock_now_ns();
		n_before = n_written(writers);
		s = take("under-load");
		n_after = n_written(writers);
		*ret_to_ns = clock_now_ns();
	} while (++*ret_n_taken < 10 && n_after - n_before < 200);
	return s;
}

static void
a_snapshot_under_load_holds_what_was_current_meanwhile(void **state)
{
	struct {
		struct writer writer[N_WRITERS];
		atomic_bool stop;
	} *shared = load_share(sizeof(*shared));
	pid_t pid[N_WRITERS];
	unsigned n_changed = 0;
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	(void)state;
	server = start("2M");
	for (unsigned i = 0; i < N_WRITERS; i++) { /* before this process has threads */
		struct writer *w = &shared->writer[i];
		snprintf(w->address, sizeof(w->address), "%s", server->address);
		w->number = i;
		w->stop = &shared->stop;
		pid[i] = load_fork(run_writer, w);
	}
	connect_to(server);
	put_stills();
	while (!have_all_written(shared->writer, 300) && proc_pause(deadline))
		;
	int64_t from_ns, to_ns;
	unsigned n_taken = 0;
	struct rkv_snapshot s = take_under_load(shared->writer, &from_ns, &to_ns, &n_taken);
	atomic_store(&shared->stop, true);
	for (unsigned i = 0; i < N_WRITERS; i++)
		assert_int_equal(load_reap(pid[i], PROC_WAIT_MS), 0);
	assert_int_equal(load_counter(client, "snapshots_done"), n_taken);
	assert_int_equal(load_counter(client, "snapshot_bytes"), s.n_bytes);
	assert_int_equal(load_counter(client, "snapshot_records"), s.n_records);
	end();

	begin_restored("under-load", "24M", "128K");
	assert_in_range(load_counter(client, "restored_records"), 1, s.n_records);
	expect_sound();
	for (unsigned i = 0; i < N_WRITERS; i++)
		n_changed += compare(&shared->writer[i], from_ns, to_ns);
	assert_true(n_changed > 100);
	expect_stills();
	end();
	load_unshare(shared, sizeof(*shared));
}

/* ---- A restored store is a store ---- */

static void
put_patiently(unsigned key, size_t len)
{
	char text[LOAD_KEY_TEXT];
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	int rc;
	do
		rc = rkv_put(session, text, load_key(key, text), bytes, len, NULL, NULL);
	while (rc == RKV_AGAIN && proc_pause(deadline));
	assert_int_equal(rc, RKV_OK);
}

static void
a_restored_store_takes_writes_and_can_be_snapshot_again(void **state)
{
	const unsigned n = 1200; /* of 1 KiB: more than half of the 2 MiB */
	char text[LOAD_KEY_TEXT];
	(void)state;
	begin("0");
	for (unsigned i = 0; i < n; i++)
		put_patiently(i, 900);
	assert_int_equal(take("first").n_records, n);
	end();
	begin_restored("first", "2M", "16K");
	for (unsigned round = 0; round < 3; round++)
		for (unsigned i = 0; i < n; i++)
			put_patiently(i, 900 + round);
	for (unsigned i = 0; i < n; i += 2)
		assert_int_equal(rkv_delete(session, text, load_key(i, text)), RKV_OK);
	for (unsigned i = 0; i < n; i += 2)
		put_patiently(n + i, 900);
	assert_int_equal(take("second").n_records, n);
	end();
	begin_restored("second", "4M", "0");
	expect_sound();
	assert_int_equal(load_counter(client, "restored_records"), n);
	for (unsigned i = 0; i < n; i++) {
		struct rkv_item item;
		int rc = rkv_get(session, text, load_key(i, text), bytes, sizeof(bytes), &item);
		assert_int_equal(rc, i % 2 ? RKV_OK : RKV_NOT_FOUND);
	}
	end();
}

static void
an_empty_store(void **state)
{
	(void)state;
	begin("0");
	struct rkv_snapshot s = take("empty");
	assert_int_equal(s.n_records, 0);
	assert_int_equal(s.n_bytes, SNAPFILE_PAGE);
	end();
	begin_restored("empty", "1M", "0");
	assert_int_equal(load_counter(client, "restored_records"), 0);
	put_patiently(1, 10);
	end();
}

/* ---- Asking ---- */

static void
expect_not_begun(const char *name, int code, const char *part)
{
	struct rkv_snapshot s;
	assert_int_equal(rkv_snapshot_begin(client, name, &s), code);
	if (!strstr(s.reason, part))
		fail_msg("no `%s` in: %s", part, s.reason);
}

static void
what_is_asked_for_is_checked(void **state)
{
	struct rkv_snapshot s;
	char name[200];
	(void)state;
	begin("0");
	assert_int_equal(rkv_snapshot_look(client, 0, &s), RKV_OK);
	assert_int_equal(s.phase, RKV_SNAPSHOT_NONE);
	assert_int_equal(rkv_snapshot_look(client, 9, &s), RKV_NOT_FOUND);
	assert_int_equal(rkv_snapshot_look(NULL, 0, &s), RKV_E_INVALID);
	assert_int_equal(rkv_snapshot_look(client, 0, NULL), RKV_E_INVALID);
	assert_int_equal(rkv_snapshot_begin(client, "", &s), RKV_E_INVALID);
	assert_int_equal(rkv_snapshot_begin(client, NULL, &s), RKV_E_INVALID);
	expect_not_begun("../escaped", RKV_E_INVALID, dir);
	expect_not_begun("/tmp/escaped", RKV_E_INVALID, dir);
	expect_not_begun("a/b", RKV_E_INVALID, dir);
	expect_not_begun(TEMPORARY, RKV_E_INVALID, dir);
	expect_not_begun("two words", RKV_E_INVALID, dir);
	expect_not_begun("a\nb", RKV_E_INVALID, dir);
	memset(name, 'n', sizeof(name));
	name[128] = '\0';
	assert_int_equal(rkv_snapshot_begin(client, name, &s), RKV_E_INVALID);
	name[127] = '\0';
	assert_int_equal(await(begin_snapshot(name)).phase, RKV_SNAPSHOT_DONE);
	assert_true(exists(name));
	unlink(path_of(name));
	snprintf(name, sizeof(name), "%s/inside", dir);
	assert_int_equal(rkv_snapshot_begin(client, name, &s), RKV_OK);
	assert_int_equal(await(s.number).phase, RKV_SNAPSHOT_DONE);
	assert_true(exists("inside"));
	end();

	connect_to(server_start("--pool-size", "4M", NULL));
	expect_not_begun("name", RKV_E_PERM, "--snapshot-dir");
	end();
}

/* The first server stands still until the second has been asked, however long that takes. */
static void
one_at_a_time(void **state)
{
	struct rkv_snapshot s;
	(void)state;
	begin("64K");
	put_stills();
	uint32_t number = begin_snapshot("slow");
	expect_not_begun("other", RKV_AGAIN, "slow");
	proc_signal(server->proc, SIGSTOP);
	struct server *second = server_start("--pool-size", "4M", "--snapshot-dir", dir, NULL);
	struct rkv_client *of_second;
	assert_int_equal(rkv_open(second->address, NULL, &of_second), RKV_OK);
	assert_int_equal(rkv_snapshot_begin(of_second, "other", &s), RKV_E_PERM);
	assert_non_null(strstr(s.reason, "another kv-server"));
	rkv_close(of_second);
	assert_int_equal(server_stop(second), 0);
	proc_signal(server->proc, SIGCONT);
	assert_int_equal(await(number).phase, RKV_SNAPSHOT_DONE);
	end();
}

static void
kv_cli_waits_and_reports(void **state)
{
	const char *args[] = {"--server", NULL, "snapshot", "by-cli", NULL};
	const char *bad[] = {"--server", NULL, "snapshot", "..", NULL};
	const char *none[] = {"--server", NULL, "snapshot", NULL};
	(void)state;
	begin("0");
	put_stills();
	args[1] = bad[1] = none[1] = server->address;
	struct proc *cli = proc_run("kv-cli", args, NULL);
	assert_int_equal(cli->exit_code, 0);
	assert_non_null(strstr(proc_text(cli, PROC_OUT, NULL), "name by-cli\nrecords 7\nbytes "));
	proc_free(cli);
	assert_true(exists("by-cli"));
	cli = proc_run("kv-cli", bad, NULL);
	assert_int_equal(cli->exit_code, 2);
	assert_non_null(strstr(proc_text(cli, PROC_ERR, NULL), dir));
	proc_free(cli);
	cli = proc_run("kv-cli", none, NULL);
	assert_int_equal(cli->exit_code, 2);
	proc_free(cli);
	end();
}

static void
periodic_snapshots_come_by_themselves(void **state)
{
	(void)state;
	connect_to(server_start("--pool-size", "8M", "--snapshot-dir", dir, "--snapshot-every", "1",
				NULL));
	assert_true(load_await_counter(client, "snapshots_done", 2, UINT64_MAX, PROC_WAIT_MS));
	assert_true(exists("periodic"));
	end();
}

/* ---- What goes wrong ---- */

/* More than a snapshot that is slowed down could write while the test goes on. */
static void
put_minutes_of_writing(void)
{
	for (unsigned i = 0; i < 400; i++)
		put_patiently(i, 60000);
}

static void
a_kill_leaves_the_old_file_whole(void **state)
{
	struct rkv_snapshot s;
	int64_t deadline = proc_deadline(PROC_WAIT_MS);
	(void)state;
	begin("256K");
	put_stills();
	take("kept");
	uint64_t before = digest_of("kept");
	put_minutes_of_writing();
	uint32_t number = begin_snapshot("kept");
	do
		assert_int_equal(rkv_snapshot_look(client, number, &s), RKV_OK);
	while (s.n_bytes == 0 && proc_pause(deadline));
	assert_int_equal(s.phase, RKV_SNAPSHOT_RUNNING);
	server_kill(server);
	server = NULL;
	disconnect();
	assert_int_equal(digest_of("kept"), before);
	assert_true(exists(TEMPORARY));

	begin_restored("kept", "8M", "64K");
	expect_stills();
	take("kept"); /* and removes what was left */
	assert_int_equal(load_counter(client, "snapshot_records"), N_STILLS);
	end();
}

static void
a_stop_leaves_the_old_file_whole(void **state)
{
	(void)state;
	begin("64K");
	put_minutes_of_writing();
	uint32_t number = begin_snapshot("stopped");
	assert_true(number > 0);
	end();
	assert_false(exists("stopped"));
	assert_false(exists(TEMPORARY));
}

static void
limit_files(rlim_t len)
{
	const struct rlimit limit = {len, RLIM_INFINITY};
	assert_int_equal(prlimit(server->proc->pid, RLIMIT_FSIZE, &limit, NULL), 0);
}

#define N_MORE 160u /* of 60,000 bytes: more than all buffers of the writer */

static void
a_full_disk_is_told_and_keeps_the_old_file(void **state)
{
	(void)state;
	begin("0");
	put_stills();
	take("kept");
	uint64_t before = digest_of("kept");
	for (unsigned i = 0; i < N_MORE; i++)
		put_patiently(i, 60000);
	/* In the first of several buffers, at its edge, and in the last one. */
	static const rlim_t limits[] = {64 << 10, 3 << 20, 9 << 20};
	for (unsigned i = 0; i < 3; i++) {
		limit_files(limits[i]);
		struct rkv_snapshot s = await(begin_snapshot("kept"));
		assert_int_equal(s.phase, RKV_SNAPSHOT_FAILED);
		assert_non_null(strstr(s.reason, "limit of file sizes"));
		assert_int_equal(load_counter(client, "snapshots_failed"), i + 1);
		assert_int_equal(digest_of("kept"), before);
		assert_false(exists(TEMPORARY));
	}
	limit_files(RLIM_INFINITY);
	assert_int_equal(take("kept").n_records, N_STILLS + N_MORE);
	end();
	begin_restored("kept", "32M", "64K");
	assert_int_equal(load_counter(client, "restored_records"), N_STILLS + N_MORE);
	expect_stills();
	end();
}

/* A file system of its own, which nobody else sees, and which is smaller than the values. */
static void
a_full_file_system_is_told(void **state)
{
	(void)state;
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("tmpfs", dir, "tmpfs", 0, "size=128k")) {
		print_message("a file system cannot be mounted: %s\n", strerror(errno));
		skip();
	}
	begin("0");
	assert_int_equal(take("kept").n_records, 0);
	uint64_t before = digest_of("kept");
	put_stills();
	struct rkv_snapshot s = await(begin_snapshot("kept"));
	assert_int_equal(s.phase, RKV_SNAPSHOT_FAILED);
	assert_non_null(strstr(s.reason, "make room"));
	assert_int_equal(digest_of("kept"), before);
	assert_false(exists(TEMPORARY));
	end();
	assert_int_equal(umount(dir), 0);
}

/* The word of the one key that is stored. */
static uint64_t
find_word(struct raw *raw)
{
	for (uint64_t i = 0; i < raw->layout.n_groups * LAYOUT_GROUP_SLOTS; i++) {
		uint64_t word = raw_word(raw, layout_slot_off(&raw->layout, i));
		if (word)
			return word;
	}
	fail_msg("no slot is used");
	return 0;
}

static void
a_damaged_block_is_counted_and_left_out(void **state)
{
	static struct raw raw;
	(void)state;
	begin("0");
	put_patiently(1, 100);
	raw_connect(&raw, server, WIRE_ROLE_CLIENT);
	raw_map(&raw);
	uint64_t off = slot_block_off(find_word(&raw)) + BLOCK_HEADER_LEN + 16;
	uint64_t was = raw_word(&raw, off);
	assert_true(raw_cas(&raw, off, was, ~was));
	struct rkv_snapshot s = await(begin_snapshot("damaged"));
	assert_int_equal(s.phase, RKV_SNAPSHOT_DONE);
	assert_int_equal(s.n_unreadable, 1);
	assert_int_equal(s.n_records, 0);
	assert_true(raw_cas(&raw, off, ~was, was));
	raw_close(&raw);
	assert_int_equal(take("whole").n_records, 1);
	end();
}

/* kv-server with these options ends with this code, and says so. */
static void
expect_no_start(const char *option, const char *value, int code, const char *part)
{
	const char *args[] = {"--listen", "127.0.0.1:0", "--pool-size", "1M", "--fabric",
			      "soft",     option,        value,         NULL};
	struct proc *proc = proc_run("kv-server", args, NULL);
	assert_int_equal(proc->exit_code, code);
	if (!strstr(proc_text(proc, PROC_ERR, NULL), part))
		fail_msg("no `%s` in: %s", part, proc_text(proc, PROC_ERR, NULL));
	assert_null(strstr(proc_text(proc, PROC_OUT, NULL), "ready"));
	proc_free(proc);
}

static void
a_start_that_cannot_be_is_refused(void **state)
{
	char path[sizeof(dir) + 256];
	(void)state;
	begin("0");
	put_stills();
	for (unsigned i = 0; i < 20; i++)
		put_patiently(i, 60000);
	take("large");
	end();
	snprintf(path, sizeof(path), "%s", path_of("large"));
	expect_no_start("--restore", path, 1, "M --chunk-size 64K --index-slots ");
	assert_int_equal(truncate(path, SNAPFILE_PAGE), 0);
	expect_no_start("--restore", path, 1, "the file is cut off (at byte ");
	expect_no_start("--restore", path_of("none"), 1, "No such file");
	expect_no_start("--snapshot-dir", path_of("none"), 1, "a directory is wanted");
	expect_no_start("--snapshot-every", "5", 2, "--snapshot-dir");
	expect_no_start("--snapshot-rate", "5", 2, "64K or more");
	expect_no_start("--restore", "", 2, "a path");
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_snapshot_under_load_holds_what_was_current_meanwhile), /* forks: first */
		TEST(a_restored_store_takes_writes_and_can_be_snapshot_again),
		TEST(an_empty_store),
		TEST(what_is_asked_for_is_checked),
		TEST(one_at_a_time),
		TEST(kv_cli_waits_and_reports),
		TEST(periodic_snapshots_come_by_themselves),
		TEST(a_kill_leaves_the_old_file_whole),
		TEST(a_stop_leaves_the_old_file_whole),
		TEST(a_full_disk_is_told_and_keeps_the_old_file),
		TEST(a_full_file_system_is_told),
		TEST(a_damaged_block_is_counted_and_left_out),
		TEST(a_start_that_cannot_be_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
