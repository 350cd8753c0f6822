/* SPDX-License-Identifier: BSD-2-Clause */
/* Values, mixed operations, processes and counters for tests: load.h. */
#include "tests/proc/load.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/proc/proc.h"

/* ---- Values ---- */

uint64_t
load_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

uint32_t
load_id(unsigned writer, uint32_t serial)
{
	return writer << 24 | (serial & 0xffffff);
}

size_t
load_len(uint32_t id)
{
	static const uint16_t len[16] = {0,   1,   1,    1,    100,  100,  100,   100,
					 100, 100, 2000, 2000, 2000, 2000, 20000, 20000};
	uint64_t state = id;
	return len[load_random(&state) % 16];
}

static uint64_t
value_seed(unsigned key, uint32_t id)
{
	return (uint64_t)key << 32 | id;
}

void
load_fill(unsigned key, uint32_t id, void *ret_value)
{
	uint64_t state = value_seed(key, id);
	unsigned char *at = ret_value;
	for (size_t left = load_len(id); left;) {
		uint64_t word = load_random(&state);
		size_t n = left < sizeof(word) ? left : sizeof(word);
		memcpy(at, &word, n);
		at += n;
		left -= n;
	}
}

bool
load_matches(unsigned key, uint32_t id, const void *value, size_t value_len)
{
	uint64_t state = value_seed(key, id);
	const unsigned char *at = value;
	if (value_len != load_len(id))
		return false;
	for (size_t left = value_len; left;) {
		uint64_t word = load_random(&state);
		size_t n = left < sizeof(word) ? left : sizeof(word);
		if (memcmp(at, &word, n) != 0)
			return false;
		at += n;
		left -= n;
	}
	return true;
}

size_t
load_key(unsigned key, char *ret_text)
{
	return (size_t)snprintf(ret_text, LOAD_KEY_TEXT, "key-%u", key);
}

/* ---- Mixed operations ---- */

struct slot {
	struct rkv_request request;
	unsigned key;
	uint32_t id;
	int64_t invoked;
	char key_text[LOAD_KEY_TEXT];
	unsigned char value[LOAD_VALUE_MAX];
	unsigned char buf[LOAD_VALUE_MAX];
};

static int64_t
now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC_RAW, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static enum rkv_op
choose_kind(uint64_t random)
{
	static const unsigned char kinds[20] = {
		RKV_OP_GET,    RKV_OP_GET,     RKV_OP_GET, RKV_OP_GET,    RKV_OP_GET,
		RKV_OP_GET,    RKV_OP_GET,     RKV_OP_PUT, RKV_OP_PUT,    RKV_OP_PUT,
		RKV_OP_PUT,    RKV_OP_ADD,     RKV_OP_ADD, RKV_OP_DELETE, RKV_OP_DELETE,
		RKV_OP_DELETE, RKV_OP_REPLACE, RKV_OP_CAS, RKV_OP_CAS,    RKV_OP_TOUCH};
	return (enum rkv_op)kinds[random % 20];
}

static void
choose(struct load *load, struct slot *slot)
{
	uint64_t random = load_random(&load->random);
	enum rkv_op op = choose_kind(random >> 32);
	slot->key = (unsigned)(random & 0xffff) % load->n_keys;
	if (op == RKV_OP_CAS && load->version[slot->key] == 0)
		op = RKV_OP_GET;
	slot->request = (struct rkv_request){
		.op = op,
		.key = slot->key_text,
		.key_len = load_key(slot->key, slot->key_text),
		.buf = slot->buf,
		.buf_len = sizeof(slot->buf),
		.version = load->version[slot->key],
		.user = slot,
	};
	slot->id = 0;
	if (op == RKV_OP_GET || op == RKV_OP_DELETE || op == RKV_OP_TOUCH)
		return;
	slot->id = load_id(load->writer, ++load->serial);
	load_fill(slot->key, slot->id, slot->value);
	slot->request.value = slot->value;
	slot->request.value_len = load_len(slot->id);
	slot->request.options.user_flags = slot->id;
}

/* Through the blocking call of its kind. */
static void
call(struct rkv_session *s, struct rkv_request *r)
{
	const struct rkv_put_options *o = &r->options;
	uint64_t *v = &r->item.version;
	switch (r->op) {
	case RKV_OP_GET:
		r->status = rkv_get(s, r->key, r->key_len, r->buf, r->buf_len, &r->item);
		return;
	case RKV_OP_PUT:
		r->status = rkv_put(s, r->key, r->key_len, r->value, r->value_len, o, v);
		return;
	case RKV_OP_ADD:
		r->status = rkv_add(s, r->key, r->key_len, r->value, r->value_len, o, v);
		return;
	case RKV_OP_REPLACE:
		r->status = rkv_replace(s, r->key, r->key_len, r->value, r->value_len, o, v);
		return;
	case RKV_OP_CAS:
		r->status =
			rkv_cas(s, r->key, r->key_len, r->value, r->value_len, r->version, o, v);
		return;
	case RKV_OP_DELETE:
		r->status = rkv_delete(s, r->key, r->key_len);
		return;
	case RKV_OP_TOUCH:
		r->status = rkv_touch(s, r->key, r->key_len, 0, v);
		return;
	}
}

static void
complain(struct load *load, const struct slot *slot, const char *what)
{
	const struct rkv_request *r = &slot->request;
	load->n_bad++;
	fprintf(stderr, "writer %u: operation %d on key %u: %s (status %d, length %zu, id %08x)\n",
		load->writer, (int)r->op, slot->key, what, r->status, r->item.value_len,
		r->item.user_flags);
}

static bool
is_answer(enum rkv_op op, int status)
{
	switch (status) {
	case RKV_OK:
		return true;
	case RKV_NOT_FOUND:
		return op != RKV_OP_PUT && op != RKV_OP_ADD;
	case RKV_EXISTS:
		return op == RKV_OP_ADD;
	case RKV_MISMATCH:
		return op == RKV_OP_CAS;
	}
	return false;
}

static bool
is_lost(enum rkv_op op, int status)
{
	return status == RKV_E_CONN || status == RKV_E_TIMEOUT ||
	       (status == RKV_E_MAYBE && op != RKV_OP_GET);
}

/* What it writes, or has read. */
static void
record(struct load *load, const struct slot *slot, int64_t responded)
{
	const struct rkv_request *r = &slot->request;
	bool done = r->status == RKV_OK;
	if (!load->history)
		return;
	load->history[load->n_history++] = (struct lin_op){
		.key = slot->key,
		.value = r->op == RKV_OP_GET && done ? r->item.user_flags : slot->id,
		.version = done && r->op != RKV_OP_DELETE ? r->item.version : 0,
		.expected = r->op == RKV_OP_CAS ? r->version : 0,
		.invoked = slot->invoked,
		.responded = responded,
		.client = load->writer,
		.kind = (uint8_t)r->op,
		.result = (uint8_t)lin_result_of_status(r->status),
	};
}

/* It has completed; true: try the same again. */
static bool
completed(struct load *load, struct slot *slot)
{
	const struct rkv_request *r = &slot->request;
	int64_t responded = now_ns();
	if (r->status == RKV_AGAIN && (r->op == RKV_OP_GET || r->op == RKV_OP_DELETE)) {
		complain(load, slot, "needs no memory");
	} else if (r->status == RKV_AGAIN) {
		load->n_again++; /* known not to have been applied: nothing to record */
		return true;
	}
	record(load, slot, responded);
	if (is_answer(r->op, r->status)) {
		load->n_done += r->status == RKV_OK;
		load->n_outcomes += r->status > 0;
	} else if (load->may_fail && is_lost(r->op, r->status)) {
		load->n_failed++;
	} else {
		complain(load, slot, "no answer to that question");
	}
	if (r->status != RKV_OK)
		return false;
	if (r->op == RKV_OP_GET &&
	    !load_matches(slot->key, r->item.user_flags, slot->buf, r->item.value_len))
		complain(load, slot, "torn or foreign value");
	if (r->op != RKV_OP_DELETE)
		load->version[slot->key] = r->item.version;
	return false;
}

static void
rest(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void
mix_blocking(struct load *load, struct slot *slot, size_t n)
{
	for (; n && !load->n_bad; n--) {
		choose(load, slot);
		do {
			if (slot->request.status == RKV_AGAIN)
				rest();
			slot->invoked = now_ns();
			call(load->session, &slot->request);
		} while (completed(load, slot));
	}
}

static bool
submit(struct load *load, struct slot *slot)
{
	slot->invoked = now_ns();
	slot->request.status = 1000; /* no status: whoever completes it must set one */
	if (rkv_submit(load->session, &slot->request) == RKV_OK)
		return true;
	complain(load, slot, "cannot be submitted");
	return false;
}

static void
mix_in_flight(struct load *load, struct slot *slots, size_t n)
{
	struct rkv_request *done[LOAD_DEPTH_MAX];
	size_t n_open = 0, started = 0;
	for (; started < n && started < load->depth; started++) {
		choose(load, &slots[started]);
		n_open += submit(load, &slots[started]);
	}
	while (n_open) {
		int n_done = rkv_poll(load->session, done, (int)load->depth, PROC_WAIT_MS);
		if (n_done <= 0) {
			complain(load, slots, "nothing completes any more");
			return;
		}
		for (int i = 0; i < n_done; i++) {
			struct slot *slot = done[i]->user;
			n_open--;
			if (completed(load, slot)) {
				rest();
			} else {
				if (started >= n || load->n_bad)
					continue;
				started++;
				choose(load, slot);
			}
			n_open += submit(load, slot);
		}
	}
}

void
load_mix(struct load *load, size_t n)
{
	struct slot *slots = calloc(load->depth ? load->depth : 1, sizeof(*slots));
	if (!slots || load->n_keys > LOAD_KEYS_MAX || load->depth > LOAD_DEPTH_MAX)
		load->n_bad++;
	else if (load->depth)
		mix_in_flight(load, slots, n);
	else
		mix_blocking(load, slots, n);
	free(slots);
}

/* ---- The steady state ---- */

bool
load_steady(struct rkv_session *session, const void *value, size_t value_len, size_t n)
{
	unsigned char buf[1024];
	char key[] = "steady-?";
	for (size_t i = 0; i < n; i++) {
		key[7] = (char)('0' + i % LOAD_STEADY_KEYS);
		if (rkv_put(session, key, 8, value, value_len, NULL, NULL) != RKV_OK ||
		    rkv_get(session, key, 8, buf, sizeof(buf), NULL) != RKV_OK)
			return false;
	}
	return true;
}

/* ---- Processes ---- */

void *
load_share(size_t len)
{
	void *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		fail_msg("no shared memory: %s", strerror(errno));
	return memory;
}

void
load_unshare(void *memory, size_t len)
{
	munmap(memory, len);
}

pid_t
load_fork(int (*run)(void *arg), void *arg)
{
	pid_t parent = getpid();
	pid_t pid = fork();
	if (pid < 0)
		fail_msg("fork: %s", strerror(errno));
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);
	_exit(run(arg));
}

int
load_reap(pid_t pid, int timeout_ms)
{
	int status;
	int64_t deadline = proc_deadline(timeout_ms);
	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (proc_pause(deadline))
			continue;
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		return -1;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int
run_alone(void *test)
{
	int n_failed = _cmocka_run_group_tests("alone", test, 1, NULL, NULL);
	fflush(NULL);
	return n_failed;
}

int
load_each_alone(const struct CMUnitTest *tests, size_t n, int timeout_ms)
{
	int n_failed = 0;
	for (size_t i = 0; i < n; i++) {
		struct CMUnitTest test = tests[i];
		n_failed += load_reap(load_fork(run_alone, &test), timeout_ms) != 0;
	}
	return n_failed;
}

void
load_die(const char *file, int line, const char *condition)
{
	fprintf(stderr, "%s:%d: %s\n", file, line, condition);
	_exit(1);
}

/* ---- The server's counters ---- */

uint64_t
load_counter(struct rkv_client *client, const char *name)
{
	char text[32 << 10], wanted[64];
	int rc = rkv_server_stats(client, text, sizeof(text), NULL);
	if (rc != RKV_OK)
		fail_msg("no statistics: %s", rkv_strerror(rc));
	snprintf(wanted, sizeof(wanted), "\n%s ", name);
	const char *at = strstr(text, wanted);
	if (!at)
		fail_msg("no counter %s", name);
	return strtoull(at + strlen(wanted), NULL, 10);
}

bool
load_await_counter(struct rkv_client *client, const char *name, uint64_t from, uint64_t to,
		   int timeout_ms)
{
	int64_t deadline = proc_deadline(timeout_ms);
	for (;;) {
		uint64_t value = load_counter(client, name);
		if (value >= from && value <= to)
			return true;
		if (!proc_pause(deadline))
			return false;
	}
}
