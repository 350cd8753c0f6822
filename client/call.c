/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The public calls that carry operations. Blocking, batched and asynchronous ones are the same
 * thing: requests are started and the session is pumped; they differ in who waits for what.
 */
#include <stdbool.h>

#include "client/include/rkv.h"
#include "client/session.h"
#include "common/err.h"

static bool
is_usable(const struct rkv_session *s)
{
	return s && *s->not_forked;
}

static bool
is_submittable(const struct rkv_request *r)
{
	return r && (unsigned)r->op < RKV_OP_COUNT && r->key && (r->value || !r->value_len) &&
	       (r->buf || !r->buf_len);
}

int
rkv_submit(struct rkv_session *s, struct rkv_request *request)
{
	if (!is_usable(s) || !is_submittable(request))
		return ERR_INVALID;
	if (!s->free_ops)
		return ERR_AGAIN;
	session_start(s, request, NULL);
	session_settle(s);
	return 0;
}

int
rkv_poll(struct rkv_session *s, struct rkv_request **done, int max, uint32_t timeout_ms)
{
	if (!is_usable(s) || !done || max < 0)
		return ERR_INVALID;
	int64_t deadline_ns = 0;
	while (s->n_in_flight) {
		unsigned n = session_pump(s);
		if (s->completed || timeout_ms == 0)
			break;
		if (n != 0)
			continue;
		int64_t now_ns = fab_now(s->client->fab);
		if (deadline_ns == 0)
			deadline_ns = now_ns + timeout_ms * INT64_C(1000000);
		if (now_ns >= deadline_ns)
			break;
		session_wait(s);
	}
	return session_completed(s, done, max);
}

/* Runs n requests; what the caller has in flight besides goes on meanwhile. */
static void
run_all(struct rkv_session *s, struct rkv_request *requests, size_t n)
{
	uint32_t n_waiting = 0;
	size_t next = 0;
	while (next < n || n_waiting) {
		while (next < n && s->free_ops) {
			n_waiting++;
			session_start(s, &requests[next++], &n_waiting);
		}
		if (n_waiting && session_pump(s) == 0 && n_waiting)
			session_wait(s);
	}
	session_settle(s);
}

int
rkv_run(struct rkv_session *s, struct rkv_request *requests, size_t n)
{
	if (!is_usable(s) || (!requests && n) || s->n_in_flight || s->completed)
		return ERR_INVALID;
	for (size_t i = 0; i < n; i++)
		if (!is_submittable(&requests[i]))
			return ERR_INVALID;
	run_all(s, requests, n);
	return 0;
}

static int
run_kind(struct rkv_session *s, struct rkv_request *requests, size_t n, enum rkv_op op)
{
	if (!requests && n)
		return ERR_INVALID;
	for (size_t i = 0; i < n; i++)
		if (requests[i].op != op)
			return ERR_INVALID;
	return rkv_run(s, requests, n);
}

int
rkv_multi_get(struct rkv_session *s, struct rkv_request *requests, size_t n)
{
	return run_kind(s, requests, n, RKV_OP_GET);
}

int
rkv_multi_put(struct rkv_session *s, struct rkv_request *requests, size_t n)
{
	return run_kind(s, requests, n, RKV_OP_PUT);
}

/* A blocking call: one request, run to its end. */
static int
call(struct rkv_session *s, struct rkv_request *request)
{
	if (!is_usable(s) || !is_submittable(request))
		return ERR_INVALID;
	if (!s->free_ops)
		return ERR_AGAIN;
	return session_call(s, request);
}

static int
store(struct rkv_session *s, struct rkv_request r, const struct rkv_put_options *options,
      uint64_t *ret_version)
{
	if (options)
		r.options = *options;
	int rc = call(s, &r);
	if (rc == 0 && ret_version)
		*ret_version = r.item.version;
	return rc;
}

static struct rkv_request
store_request(enum rkv_op op, const void *key, size_t key_len, const void *value, size_t value_len)
{
	return (struct rkv_request){
		.op = op, .key = key, .key_len = key_len, .value = value, .value_len = value_len};
}

int
rkv_get(struct rkv_session *s, const void *key, size_t key_len, void *buf, size_t buf_len,
	struct rkv_item *ret_item)
{
	if (!is_usable(s) || !key || (!buf && buf_len))
		return ERR_INVALID;
	if (!s->free_ops)
		return ERR_AGAIN;
	struct rkv_request r; /* not zeroed: what a GET does not use is not read */
	r.op = RKV_OP_GET;
	r.key = key;
	r.key_len = key_len;
	r.buf = buf;
	r.buf_len = buf_len;
	r.options.timeout_ms = 0;
	int rc = session_call_get(s, &r);
	if (!ret_item)
		return rc;
	if (rc == 0)
		*ret_item = r.item;
	else if (rc == ERR_TOO_SMALL)
		ret_item->value_len = r.item.value_len;
	return rc;
}

int
rkv_put(struct rkv_session *s, const void *key, size_t key_len, const void *value, size_t value_len,
	const struct rkv_put_options *options, uint64_t *ret_version)
{
	return store(s, store_request(RKV_OP_PUT, key, key_len, value, value_len), options,
		     ret_version);
}

int
rkv_add(struct rkv_session *s, const void *key, size_t key_len, const void *value, size_t value_len,
	const struct rkv_put_options *options, uint64_t *ret_version)
{
	return store(s, store_request(RKV_OP_ADD, key, key_len, value, value_len), options,
		     ret_version);
}

int
rkv_replace(struct rkv_session *s, const void *key, size_t key_len, const void *value,
	    size_t value_len, const struct rkv_put_options *options, uint64_t *ret_version)
{
	return store(s, store_request(RKV_OP_REPLACE, key, key_len, value, value_len), options,
		     ret_version);
}

int
rkv_cas(struct rkv_session *s, const void *key, size_t key_len, const void *value, size_t value_len,
	uint64_t version, const struct rkv_put_options *options, uint64_t *ret_version)
{
	struct rkv_request r = store_request(RKV_OP_CAS, key, key_len, value, value_len);
	r.version = version;
	return store(s, r, options, ret_version);
}

int
rkv_delete(struct rkv_session *s, const void *key, size_t key_len)
{
	struct rkv_request r = {.op = RKV_OP_DELETE, .key = key, .key_len = key_len};
	return call(s, &r);
}

int
rkv_touch(struct rkv_session *s, const void *key, size_t key_len, uint32_t ttl_s,
	  uint64_t *ret_version)
{
	struct rkv_put_options options = {.ttl_s = ttl_s};
	return store(s, store_request(RKV_OP_TOUCH, key, key_len, NULL, 0), &options, ret_version);
}
