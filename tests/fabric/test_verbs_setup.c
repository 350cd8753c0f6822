/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Devices and connections of the verbs fabric on fake devices: which device is chosen, what every
 * lack is called, every event of rdma_cm in every state, hostile private data, the loop-back
 * endpoint, and a sweep in which each call that can fail does.
 */
#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cm_rdma.h"
#include "common/fabric_verbs_internal.h"
#include "tests/fabric/sanitized.h"
#include "tests/fabric/verbs_world.h"

/* ---- Choosing a device ---- */

static int
open_device(const char *name, const char *host, struct verbs_device **ret_device,
	    char reason[VERBS_REASON_MAX])
{
	struct verbs_choice choice = {.address.port = 7440};
	snprintf(choice.name, sizeof(choice.name), "%s", name);
	snprintf(choice.address.host, sizeof(choice.address.host), "%s", host);
	return verbs_device_open(&choice, ret_device, reason);
}

/* It is opened, and is described so. */
static void
assert_chosen(const char *name, const char *host, const char *text)
{
	struct verbs_device *device = NULL;
	char reason[VERBS_REASON_MAX] = "";
	int r = open_device(name, host, &device, reason);
	if (r)
		fail_msg("%s", reason);
	if (strncmp(verbs_device_text(device), text, strlen(text)) != 0)
		fail_msg("%s", verbs_device_text(device));
	verbs_device_close(device);
}

/* It is not, and the sentence has these words. */
static void
assert_lack(const char *name, const char *host, int code, const char *words, const char *more)
{
	struct verbs_device *device = NULL;
	char reason[VERBS_REASON_MAX] = "";
	assert_int_equal(open_device(name, host, &device, reason), code);
	assert_null(device);
	if (!strstr(reason, words) || !strstr(reason, more))
		fail_msg("%s", reason);
	assert_int_equal(atomic_load(&fake_counts.n_live), 0);
}

static void
several_devices(void)
{
	fake.n_devices = 3;
	const struct fake_address addresses[] = {
		{"169.254.7.7", 0, IBV_GID_TYPE_ROCE_V2}, {"fe80::1", 0, IBV_GID_TYPE_ROCE_V2},
		{"192.0.2.1", -1, IBV_GID_TYPE_IB},       {"fe80::2", 1, IBV_GID_TYPE_ROCE_V1},
		{"10.1.0.1", 1, IBV_GID_TYPE_ROCE_V2},    {"2001:db8::3", 2, IBV_GID_TYPE_ROCE_V2},
		{"10.2.0.1", 2, IBV_GID_TYPE_ROCE_V1},
	};
	memset(fake.addresses, 0, sizeof(fake.addresses));
	memcpy(fake.addresses, addresses, sizeof(addresses));
}

static void
test_choice(void **state)
{
	(void)state;
	assert_chosen("", "",
		      "fake0 port 1, GID 3 (::ffff:10.77.0.1, RoCE v2), address 10.77.0.1;");
	several_devices();
	/* The first address that is no link-local one, and IPv4 before IPv6. */
	assert_chosen("", "", "fake1 port 1, GID 1 (::ffff:10.1.0.1, RoCE v2), address 10.1.0.1;");
	assert_chosen("", "0.0.0.0", "fake1 ");
	assert_chosen("", "::", "fake1 ");
	assert_chosen("fake2", "",
		      "fake2 port 1, GID 1 (::ffff:10.2.0.1, RoCE v1), address 10.2.0.1;");
	assert_chosen("", "10.2.0.1", "fake2 ");
	assert_chosen("", "2001:db8::3",
		      "fake2 port 1, GID 0 (2001:db8::3, RoCE v2), address [2001:db8::3];");
	assert_chosen("fake1", "10.1.0.1", "fake1 ");
	/* Link-local if it is asked for. */
	assert_chosen("", "169.254.7.7", "fake0 ");
	assert_chosen("", "fe80::2", "fake1 ");
	/* A device that cannot serve is passed over. */
	fake.attr[1].atomic_cap = IBV_ATOMIC_NONE;
	assert_chosen("", "", "fake2 ");
}

static void
test_lacks(void **state)
{
	(void)state;
	several_devices();
	assert_lack("mlx5_0", "", ERR_CONN, "no RDMA device mlx5_0", "fake0, fake1, fake2");
	assert_lack("", "10.9.9.9", ERR_CONN, "10.9.9.9 is no address of this machine",
		    "choose one that");
	assert_lack("", "192.0.2.1", ERR_CONN, "192.0.2.1", "no RDMA device of this machine");
	assert_lack("fake1", "10.2.0.1", ERR_CONN, "fake2, not by fake1", "name one of the two");
	assert_lack("fake0", "", ERR_CONN, "fake0", "no address but link-local");
	assert_lack("", "no.such.host.invalid", ERR_CONN, "no.such.host.invalid",
		    "check its spelling");
	fake.attr[1].atomic_cap = IBV_ATOMIC_NONE;
	assert_lack("", "10.1.0.1", ERR_INVALID, "fake1", "atomic_cap NONE");
	fake_context(1)->device->transport_type = IBV_TRANSPORT_IWARP;
	assert_lack("", "10.1.0.1", ERR_INVALID, "iWARP", "another InfiniBand or RoCE");
	assert_lack("fake1", "", ERR_INVALID, "iWARP", "another InfiniBand or RoCE");
	fake.attr[1].atomic_cap = IBV_ATOMIC_HCA;
	fake_context(1)->device->transport_type = IBV_TRANSPORT_UNSPECIFIED;
	assert_lack("", "10.1.0.1", ERR_INVALID, "no reliable connections", "another");
	fake_context(1)->device->transport_type = IBV_TRANSPORT_IB;
	fake.attr[1].max_qp_rd_atom = 0;
	assert_lack("", "10.1.0.1", ERR_INVALID, "max_qp_rd_atom", "another");
	fake.attr[2].max_sge = 1;
	assert_lack("", "10.2.0.1", ERR_INVALID, "max_sge", "another");
	fake.attr[2].max_sge = 2;
	fake.attr[2].max_qp_wr = 63;
	assert_lack("", "10.2.0.1", ERR_INVALID, "max_qp_wr", "another");
	fake_reset();
	fake.port_state = IBV_PORT_DOWN;
	assert_lack("", "", ERR_CONN, "PORT_DOWN", "bring its link up");
	fake_reset();
	fake.rc_qp_error = EOPNOTSUPP;
	assert_lack("", "", ERR_INVALID, "reliable connection (RC)", strerror(EOPNOTSUPP));
	fake.rc_qp_error = EPERM;
	assert_lack("", "", ERR_PERM, "permission", "/dev/infiniband");
	fake_reset();
	fake.query_error = EIO;
	assert_lack("", "", ERR_CONN, "limits", strerror(EIO));
	fake_reset();
	fake.channel_error = EMFILE;
	assert_lack("", "", ERR_NOMEM, "limit of open files", "ulimit -n");
	fake_reset();
	fake.n_devices = 0;
	assert_lack("", "", ERR_CONN, "no RDMA device", "deploy/soft-roce.sh");
	fake.list_error = ENOSYS;
	assert_lack("", "", ERR_CONN, "no RDMA device", "deploy/soft-roce.sh");
}

static void
assert_facts(struct verbs_facts facts, int error, int code, const char *words)
{
	char reason[VERBS_REASON_MAX] = "";
	snprintf(facts.kernel_name, sizeof(facts.kernel_name), "rxe7");
	assert_int_equal(verbs_explain_facts(&facts, error, reason), code);
	if (!strstr(reason, words) || (facts.n_kernel && !strstr(reason, "rxe7")))
		fail_msg("%s", reason);
}

static void
test_missing(void **state)
{
	(void)state;
	assert_facts((struct verbs_facts){0}, ENODEV, ERR_CONN, "deploy/soft-roce.sh");
	assert_facts((struct verbs_facts){.n_kernel = 1, .cm_error = EACCES}, EACCES, ERR_PERM,
		     "no permission");
	assert_facts((struct verbs_facts){.n_kernel = 1, .uverbs_error = EPERM}, ENODEV, ERR_PERM,
		     "no permission");
	assert_facts((struct verbs_facts){.n_kernel = 1, .uverbs_error = ENOENT}, ENODEV, ERR_CONN,
		     "modprobe ib_uverbs");
	assert_facts((struct verbs_facts){.n_kernel = 1, .n_library = 1, .cm_error = ENOENT}, EPERM,
		     ERR_CONN, "modprobe rdma_ucm");
	assert_facts((struct verbs_facts){.n_kernel = 2}, ENODEV, ERR_CONN,
		     "install ibverbs-providers");
	assert_facts((struct verbs_facts){.n_kernel = 1, .n_library = 1}, EIO, ERR_CONN,
		     strerror(EIO));
}

/* ---- Memory ---- */

static void
test_memlock(void **state)
{
	struct rlimit old, tight = {.rlim_cur = 65536};
	struct verbs_side side;
	struct world w;
	uint32_t key;
	(void)state;
	getrlimit(RLIMIT_MEMLOCK, &old);
	tight.rlim_max = old.rlim_max;
	fake.register_error = ENOMEM;
	fake.register_free = 65536;
	if (setrlimit(RLIMIT_MEMLOCK, &tight))
		skip();
	assert_int_equal(verbs_side_start(&side, 1 << 20, NULL), ERR_NOMEM);
	assert_non_null(strstr(side.reason, "register 1024 KiB"));
	assert_non_null(strstr(side.reason, "64 KiB of memory (RLIMIT_MEMLOCK)"));
	assert_non_null(strstr(side.reason, "ulimit -l unlimited"));
	assert_non_null(strstr(side.reason, "LimitMEMLOCK=infinity"));
	fake.register_error = 0;
	world_open(&w, 1, 4);
	fake.register_error = ENOMEM;
	assert_int_equal(fab_register(w.pair.fab, w.local, 4096, &key), ERR_NOMEM);
	assert_non_null(strstr(w.log.last, "RLIMIT_MEMLOCK"));
	setrlimit(RLIMIT_MEMLOCK, &old);
	world_close(&w);
}

static void
test_segments(void **state)
{
	struct verbs_side side;
	const size_t mib = 1 << 20;
	(void)state;
	/* Borders lie where huge pages end, if a segment is so long. */
	fake.attr[0].max_mr_size = 5 * mib + 12345;
	assert_int_equal(verbs_side_start(&side, 40 * 4 * mib, NULL), 0);
	verbs_side_stop(&side);
	assert_int_equal(verbs_side_start(&side, 40 * 4 * mib + 4096, NULL), ERR_INVALID);
	assert_non_null(strstr(side.reason, "max_mr_size"));
	assert_non_null(strstr(side.reason, "at most 5 MiB"));
	fake.attr[0].max_mr_size = 4095;
	assert_int_equal(verbs_side_start(&side, 8192, NULL), ERR_INVALID);
	fake.attr[0].max_mr_size = 4096;
	assert_int_equal(verbs_side_start(&side, 40 * 4096, NULL), 0);
	verbs_side_stop(&side);
	/* A client cannot register more at once either, and nothing of no length. */
	struct world w;
	uint32_t key;
	fake_reset();
	fake.attr[0].max_mr_size = 1 << 20;
	world_open(&w, 1, 4);
	assert_int_equal(fab_register(w.pair.fab, w.local, (1 << 20) + 1, &key), ERR_NOMEM);
	assert_non_null(strstr(w.log.last, "max_mr_size"));
	world_close(&w);
}

static void
test_register_too_early(void **state)
{
	struct world_log log;
	struct fab *fab;
	uint32_t key;
	char byte;
	(void)state;
	world_log_init(&log);
	assert_int_equal(verbs_open_fabric(&log.log, &fab), 0);
	assert_int_equal(fab_register(fab, &byte, 1, &key), ERR_CONN);
	assert_non_null(strstr(log.last, "no RDMA device is open yet"));
	fab_close(fab);
}

/* ---- Connecting ---- */

/* A client's attempt: what it comes to; nothing is left of it. */
static int
attempt(struct world *w, int64_t wait_ns)
{
	struct conf_pair pair = {0};
	assert_int_equal(verbs_open_fabric(&w->log.log, &pair.fab), 0);
	int64_t deadline_ns = clock_now_ns() + wait_ns;
	int r = fab_region_open(pair.fab, &w->side.offer, deadline_ns, &pair.region);
	if (!r)
		r = fab_connect(pair.region, NULL, 4, deadline_ns, &pair.ep[0]);
	assert_int_equal(pair.ep[0] == NULL, r != 0);
	conf_leave(&pair);
	return r;
}

/* It fails so, with these words. */
static void
assert_attempt(struct world *w, int64_t wait_ns, int code, const char *words)
{
	int r = attempt(w, wait_ns);
	if (r != code || !strstr(w->log.last, words))
		fail_msg("%d: %s", r, w->log.last);
}

static void
test_events_of_connecting(void **state)
{
	static const struct {
		int step; /* address, route, connect, accept */
		struct fake_event event;
		int code;
		const char *words;
	} cases[] = {
		{0, {RDMA_CM_EVENT_ADDR_ERROR, -ENETUNREACH}, ERR_CONN, "leads to"},
		{0, {RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT}, ERR_TIMEOUT, "leads to"},
		{0, {RDMA_CM_EVENT_ADDR_ERROR, -1}, ERR_CONN, "could not be opened"},
		{0, {RDMA_CM_EVENT_DEVICE_REMOVAL, 0}, ERR_CONN, "was removed"},
		{0, {RDMA_CM_EVENT_ADDR_RESOLVED, -ENODEV}, ERR_CONN, "rdma_cm said"},
		{0, {RDMA_CM_EVENT_ADDR_RESOLVED, 0}, ERR_CONN, "found no device"},
		{0, {FAKE_SILENCE, 0}, ERR_TIMEOUT, "in time"},
		{1, {RDMA_CM_EVENT_ROUTE_ERROR, -ETIMEDOUT}, ERR_TIMEOUT, "route"},
		{1, {RDMA_CM_EVENT_ROUTE_ERROR, -EINVAL}, ERR_CONN, "route"},
		{1, {RDMA_CM_EVENT_DEVICE_REMOVAL, 0}, ERR_CONN, "was removed"},
		{1, {RDMA_CM_EVENT_ADDR_CHANGE, 0}, ERR_TIMEOUT, "in time"},
		{1, {FAKE_SILENCE, 0}, ERR_TIMEOUT, "in time"},
		{2, {RDMA_CM_EVENT_REJECTED, 8}, ERR_CONN, "nobody listens"},
		{2, {RDMA_CM_EVENT_REJECTED, -ECONNREFUSED}, ERR_CONN, "nobody listens"},
		{2, {RDMA_CM_EVENT_REJECTED, 28}, ERR_CONN, "no rkv server"},
		{2, {RDMA_CM_EVENT_REJECTED, 4}, ERR_CONN, "status 4"},
		{2, {RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT}, ERR_TIMEOUT, "no RDMA answer"},
		{2, {RDMA_CM_EVENT_CONNECT_ERROR, -1}, ERR_CONN, "could not be completed"},
		{2, {RDMA_CM_EVENT_DISCONNECTED, 0}, ERR_CONN, "ended the connection"},
		{2, {RDMA_CM_EVENT_DEVICE_REMOVAL, 0}, ERR_CONN, "was removed"},
		{2, {RDMA_CM_EVENT_ROUTE_RESOLVED, 0}, ERR_CONN, "rdma_cm said"},
		{2, {RDMA_CM_EVENT_TIMEWAIT_EXIT, 0}, ERR_TIMEOUT, "in time"},
		{2, {FAKE_SILENCE, 0}, ERR_TIMEOUT, "in time"},
		{3, {RDMA_CM_EVENT_CONNECT_ERROR, -EPIPE}, ERR_CONN, "could not be completed"},
		{3, {RDMA_CM_EVENT_DISCONNECTED, 0}, ERR_CONN, "ended the connection"},
		{3, {FAKE_SILENCE, 0}, ERR_TIMEOUT, "in time"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct world w;
		fake_reset();
		struct fake_event *steps[] = {&fake.on_resolve_addr, &fake.on_resolve_route,
					      &fake.on_connect, &fake.on_accept};
		*steps[cases[i].step] = cases[i].event;
		world_serve(&w, WORLD_REGION_LEN);
		bool is_slow = cases[i].code == ERR_TIMEOUT && !cases[i].event.status;
		assert_attempt(&w, is_slow ? 20 * CLOCK_NS_PER_MS : CONF_WAIT_NS, cases[i].code,
			       cases[i].words);
		world_stop(&w);
	}
}

static void
test_nobody(void **state)
{
	struct world w;
	(void)state;
	world_serve(&w, WORLD_REGION_LEN);
	char *port = strrchr(w.side.offer.verbs_address, ':');
	strcpy(port, ":1");
	assert_attempt(&w, CONF_WAIT_NS, ERR_CONN, "nobody listens at 10.77.0.1:1");
	strcpy(w.side.offer.verbs_address, "10.9.9.9:7");
	assert_attempt(&w, CONF_WAIT_NS, ERR_CONN, "no RDMA device of this machine leads to");
	static const char *const wrong[] = {"", "localhost:7", "10.77.0.1", "10.77.0.1:0",
					    "10.77.0.1:99999"};
	for (int i = 0; i < 5; i++) {
		strcpy(w.side.offer.verbs_address, wrong[i]);
		assert_attempt(&w, CONF_WAIT_NS, ERR_CORRUPT, "no numeric RDMA address");
	}
	memset(w.side.offer.verbs_address, '7', sizeof(w.side.offer.verbs_address));
	assert_attempt(&w, CONF_WAIT_NS, ERR_CORRUPT, "no numeric RDMA address");
	world_stop(&w);
}

/* The token and the ticket arrive, and a refusal comes back with code and words. */
static void
test_admission(void **state)
{
	struct world w;
	struct fab_endpoint *ep;
	const struct fab_ticket ticket = {77, 88};
	(void)state;
	world_open(&w, 1, 4);
	assert_int_equal(w.side.last_request.session_slot, 0);
	assert_int_equal(w.side.last_request.serial, 0);
	assert_int_equal(fab_connect(w.pair.region, &ticket, 4, conf_deadline_ns(), &ep), 0);
	assert_int_equal(w.side.last_request.session_slot, 77);
	assert_int_equal(w.side.last_request.serial, 88);
	assert_memory_equal(w.side.last_request.token, w.side.offer.token, WIRE_TOKEN_LEN);
	fab_disconnect(ep);
	w.side.refusal = ERR_NO_SPACE;
	assert_attempt(&w, CONF_WAIT_NS, ERR_NO_SPACE, "not while the test is running");
	w.side.refusal = 0;
	w.side.offer.token[3]++;
	struct verbs_side other = w.side; /* what the client knows */
	w.side.offer.token[3]--;
	struct world liar = {.side = other, .log = w.log};
	liar.log.log.arg = &liar.log;
	assert_attempt(&liar, CONF_WAIT_NS, ERR_PERM, "token is not known");
	/* Depths that are none. */
	assert_int_equal(fab_connect(w.pair.region, NULL, 0, conf_deadline_ns(), &ep), ERR_INVALID);
	assert_int_equal(fab_connect(w.pair.region, NULL, 1 << 20, conf_deadline_ns(), &ep),
			 ERR_INVALID);
	world_close(&w);
}

/*
 * A reader has the R_Key that writers have, and the device refuses what is not a READ, while others
 * write.
 */
static void
test_reader(void **state)
{
	struct world w;
	uint32_t key;
	(void)state;
	world_open(&w, 1, 4);
	uint64_t *word = &w.remote[8];
	w.side.is_read_only = true;
	w.side.offer.only_reads = true;
	for (int i = 0; i < 3; i++) {
		struct conf_pair reader;
		*word = 77;
		assert_int_equal(verbs_reach(&w.side, &w.log.log, 1, 4, &reader), 0);
		assert_int_equal(fab_register(reader.fab, w.local, WORLD_LOCAL_LEN, &key), 0);
		const struct fab_op ops[] = {conf_write(64, w.local, 8, key),
					     conf_cas(64, 77, 1, w.local, key),
					     conf_faa(64, 1, w.local, key)};
		struct fab_op read = conf_read(64, w.local, 8, key);
		assert_int_equal(conf_batch(reader.ep[0], &read, 1), 0);
		assert_int_equal(w.local[0], 77);
		w.local[0] = 1;
		assert_int_equal(conf_batch(reader.ep[0], &ops[i], 1), ERR_CONN);
		assert_non_null(strstr(w.log.last, "status 9")); /* IBV_WC_REM_INV_REQ_ERR */
		assert_int_equal(*word, 77);
		fab_deregister(reader.fab, key);
		conf_leave(&reader);
		struct fab_op faa = conf_faa(64, 1, w.local, w.key);
		assert_int_equal(conf_batch(w.ep, &faa, 1), 0);
		assert_int_equal(*word, 78);
	}
	/* Who does not know that it only reads tries more, and is told so. */
	w.side.offer.only_reads = false;
	assert_attempt(&w, CONF_WAIT_NS, ERR_CONN, "the first READ and compare-and-swap failed");
	w.side.is_read_only = false;
	world_close(&w);
}

/* Refusals as a hostile server writes them. */
static void
test_hostile_refusals(void **state)
{
	struct world w;
	struct wire_cm_reject reject = {.magic = WIRE_CM_MAGIC, .version = WIRE_VERSION};
	(void)state;
	world_serve(&w, WORLD_REGION_LEN);
	fake.on_connect.type = RDMA_CM_EVENT_REJECTED;
	fake.reject = &reject;
	fake.reject_len = sizeof(reject);
	reject.code = ERR_PERM;
	memset(reject.reason, 'x', sizeof(reject.reason)); /* no end */
	assert_attempt(&w, CONF_WAIT_NS, ERR_PERM, "refused the connection: xxx");
	memcpy(reject.reason, "a\nb\033c\200d", 8);
	assert_attempt(&w, CONF_WAIT_NS, ERR_PERM, "a?b?c?d");
	for (int code = -20; code <= 20; code++) {
		reject.code = code;
		bool is_failure = code < 0 && code >= ERR_NOMEM;
		assert_attempt(&w, CONF_WAIT_NS, is_failure ? code : ERR_CONN,
			       is_failure ? "a?b" : "no rkv server");
	}
	reject.code = INT32_MIN;
	assert_attempt(&w, CONF_WAIT_NS, ERR_CONN, "no rkv server");
	reject.code = ERR_PERM;
	reject.magic++;
	assert_attempt(&w, CONF_WAIT_NS, ERR_CONN, "no rkv server");
	reject.magic--;
	for (int len = 0; len < 256; len++) {
		fake.private_len = len;
		bool is_whole = len >= (int)sizeof(reject);
		assert_attempt(&w, CONF_WAIT_NS, is_whole ? ERR_PERM : ERR_CONN,
			       is_whole ? "a?b" : "no rkv server");
	}
	world_stop(&w);
}

static void
assert_acceptance(struct world *w, const struct wire_cm_accept *accept, int code, const char *words)
{
	verbs_side_halt(&w->side); /* while knobs are turned */
	fake.answer = accept;
	verbs_side_run(&w->side);
	assert_attempt(w, CONF_WAIT_NS, code, words);
}

/* Acceptances as a hostile server writes them. */
static void
test_hostile_acceptances(void **state)
{
	struct world w;
	(void)state;
	world_serve(&w, WORLD_REGION_LEN);
	const struct wire_cm_accept good = {
		.magic = WIRE_CM_MAGIC,
		.version = WIRE_VERSION,
		.n_segments = 1,
		.base = w.side.offer.base,
		.segment_len = WORLD_REGION_LEN,
		.r_key = {w.side.offer.r_key},
	};
	struct wire_cm_accept bad = good;
	bad.magic++;
	assert_acceptance(&w, &bad, ERR_CORRUPT, "not that of an rkv server");
	bad = good;
	bad.version++;
	assert_acceptance(&w, &bad, ERR_VERSION, "another version");
	bad = good;
	bad.n_segments = 0;
	assert_acceptance(&w, &bad, ERR_CORRUPT, "number of segments");
	bad.n_segments = WIRE_SEGMENTS_MAX + 1;
	assert_acceptance(&w, &bad, ERR_CORRUPT, "number of segments");
	static const struct {
		uint16_t n;
		uint64_t len;
	} shapes[] = {
		{1, 0},
		{1, WORLD_REGION_LEN - 1},
		{2, WORLD_REGION_LEN},
		{2, WORLD_REGION_LEN / 4},
		{3, WORLD_REGION_LEN / 2},
		{2, WORLD_REGION_LEN / 2 + 8},
		{40, UINT64_MAX / 39 + 1},
		{40, UINT64_MAX & ~UINT64_C(4095)},
		{17, 3855},
	};
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		bad = good;
		bad.n_segments = shapes[i].n;
		bad.segment_len = shapes[i].len;
		assert_acceptance(&w, &bad, ERR_CORRUPT, "segments that are not as long");
	}
	bad = good;
	bad.base += 4096;
	assert_acceptance(&w, &bad, ERR_CORRUPT, "another region");
	bad.base = UINT64_MAX - 100;
	assert_acceptance(&w, &bad, ERR_CORRUPT, "impossible address");
	bad = good;
	bad.r_key[0]++;
	assert_acceptance(&w, &bad, ERR_CORRUPT, "another region");
	bad.r_key[0]--;
	for (int len = 0; len < 256; len++) {
		verbs_side_halt(&w.side);
		fake.answer_len = len;
		if (len < (int)sizeof(good))
			assert_acceptance(&w, &good, ERR_CORRUPT, "too short");
		else
			assert_acceptance(&w, &bad, 0, "");
	}
	fake.answer = NULL;
	world_stop(&w);
}

/* The first READ and compare-and-swap of a connection fail, or never end. */
static void
test_first_words(void **state)
{
	struct world w;
	(void)state;
	world_serve(&w, WORLD_REGION_LEN);
	for (unsigned k = 1; k <= 2; k++) {
		fake.wr_fails_at = k;
		fake.wr_status = IBV_WC_REM_OP_ERR;
		assert_attempt(&w, CONF_WAIT_NS, ERR_CONN,
			       "the first READ and compare-and-swap failed");
	}
	fake.holds_completions = true;
	/* If client or server was held up, the time was over before the first words. */
	unsigned n_before;
	int64_t wait_ns = 30 * CLOCK_NS_PER_MS;
	int r;
	do {
		n_before = atomic_load(&fake_counts.n_destroyed_qps);
		r = attempt(&w, wait_ns);
		wait_ns *= 4;
	} while (wait_ns < CONF_WAIT_NS && strstr(w.log.last, "did not answer in time"));
	assert_int_equal(r, ERR_TIMEOUT);
	assert_non_null(strstr(w.log.last, "did not end in time"));
	assert_true(atomic_load(&fake_counts.n_destroyed_qps) > n_before);
	world_stop(&w);
}

static void
test_ipv6(void **state)
{
	struct verbs_choice choice = {.address = {.host = "2001:db8::3", .port = 7440}};
	struct world_log log;
	struct verbs_side side;
	struct conf_pair pair;
	(void)state;
	several_devices();
	world_log_init(&log);
	assert_int_equal(verbs_side_start(&side, WORLD_REGION_LEN, &choice), 0);
	assert_string_equal(side.offer.verbs_address, "[2001:db8::3]:7440");
	verbs_side_run(&side);
	log.log.max_level = LOG_INFO; /* the client says which device it works with */
	assert_int_equal(verbs_reach(&side, &log.log, 1, 4, &pair), 0);
	assert_non_null(strstr(log.last, "towards [2001:db8::3]:7440: fake2 port 1, GID 0"));
	conf_leave(&pair);
	verbs_side_stop(&side);
}

/* The smaller number of READs in flight counts; none is a failure on either side. */
static void
test_read_depths(void **state)
{
	static const int depths[][2] = {{1, 128}, {128, 1}, {16, 16}, {7, 255}, {300, 4}};
	struct world w;
	(void)state;
	for (size_t i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
		fake_reset();
		fake.attr[0].max_qp_init_rd_atom = depths[i][0];
		fake.attr[0].max_qp_rd_atom = depths[i][1];
		world_open(&w, 2, 4); /* the fake device aborts if it is overrun */
		struct fab_op op = conf_read(0, w.local, 8, w.key);
		assert_int_equal(conf_batch(w.ep, &op, 1), 0);
		world_close(&w);
	}
	fake_reset();
	world_serve(&w, WORLD_REGION_LEN);
	fake.grants_depth = 0;
	assert_attempt(&w, CONF_WAIT_NS, ERR_INVALID, "max_qp_rd_atom is 0");
	fake.grants_depth = -1;
	fake.attr[0].max_qp_init_rd_atom = 0;
	assert_attempt(&w, CONF_WAIT_NS, ERR_INVALID, "max_qp_rd_atom is 0");
	world_stop(&w);
}

/* A child of a process that has used RDMA is told that it cannot. */
static void
test_forked_child(void **state)
{
	struct world w;
	int status;
	(void)state;
	world_open(&w, 1, 4);
	pid_t pid = fork();
	if (pid == 0) {
		struct world_log log;
		struct conf_pair pair;
		world_log_init(&log);
		int r = verbs_reach(&w.side, &log.log, 1, 4, &pair);
		_exit(r == ERR_PERM && strstr(log.last, "fork first, or exec") ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	world_close(&w);
}

static void
test_two_devices(void **state)
{
	struct world w;
	struct fab_region *second;
	(void)state;
	world_open(&w, 1, 4);
	fake.n_devices = 2;
	fake.route_device = 1;
	assert_int_equal(fab_region_open(w.pair.fab, &w.side.offer, conf_deadline_ns(), &second),
			 ERR_CONN);
	assert_non_null(strstr(w.log.last, "fake1"));
	assert_non_null(strstr(w.log.last, "fake0"));
	struct fab_endpoint *ep;
	assert_int_equal(fab_connect(w.pair.region, NULL, 4, conf_deadline_ns(), &ep), ERR_CONN);
	fake.route_device = -1;
	assert_int_equal(fab_region_open(w.pair.fab, &w.side.offer, conf_deadline_ns(), &second),
			 0);
	fab_region_close(second);
	world_close(&w);
}

/* Devices without thread domains, without the newer completion queues. */
static void
test_old_devices(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++) {
		struct world w;
		fake_reset();
		fake.has_parent_domains = i & 1;
		fake.has_cq_ex = i & 2;
		world_open(&w, 1, 4);
		struct fab_op op = conf_read(0, w.local, 8, w.key);
		assert_int_equal(conf_batch(w.ep, &op, 1), 0);
		assert_int_equal(w.log.n_lines, 0);
		world_close(&w);
	}
}

/* ---- The server ---- */

static void
dispatch_until(struct world *w, atomic_uint *count, unsigned n)
{
	int64_t deadline_ns = conf_deadline_ns();
	while (atomic_load(count) < n && clock_now_ns() < deadline_ns)
		host_pause(NULL, deadline_ns);
	assert_int_equal(atomic_load(count), n);
	(void)w;
}

static uint16_t
port_of_side(const struct world *w)
{
	return (uint16_t)atoi(strrchr(w->side.offer.verbs_address, ':') + 1);
}

static struct wire_cm_request
good_request(const struct world *w)
{
	struct wire_cm_request request = {.magic = WIRE_CM_MAGIC, .version = WIRE_VERSION};
	memcpy(request.token, w->side.offer.token, sizeof(request.token));
	return request;
}

/* A stranger's request is refused so. */
static void
assert_refused(struct world *w, const struct wire_cm_request *request, uint8_t depth, int code,
	       const char *words)
{
	struct wire_cm_reject reject = {0};
	struct rdma_cm_id *id = fake_stranger(port_of_side(w), request, sizeof(*request), depth);
	verbs_server_dispatch(w->side.server);
	assert_int_equal(fake_stranger_heard(id, &reject, sizeof(reject)), RDMA_CM_EVENT_REJECTED);
	assert_int_equal(reject.magic, WIRE_CM_MAGIC);
	assert_int_equal(reject.code, code);
	if (!strstr(reject.reason, words))
		fail_msg("%s", reject.reason);
	fake_stranger_close(id);
	verbs_server_dispatch(w->side.server);
}

static void
test_strangers(void **state)
{
	struct world w;
	(void)state;
	world_serve(&w, WORLD_REGION_LEN);
	verbs_side_halt(&w.side);
	int n_live = atomic_load(&fake_counts.n_live);
	const struct wire_cm_request good = good_request(&w);
	struct wire_cm_request bad = good;
	bad.magic++;
	assert_refused(&w, &bad, 16, ERR_CORRUPT, "not one of rkv");
	bad = good;
	bad.version++;
	assert_refused(&w, &bad, 16, ERR_VERSION, "another version");
	bad = good;
	bad.reserved = 1;
	assert_refused(&w, &bad, 16, ERR_CORRUPT, "reserved");
	bad = good;
	bad.token[15]++;
	assert_refused(&w, &bad, 16, ERR_PERM, "token is not known");
	assert_refused(&w, &good, 0, ERR_INVALID, "no READs");
	for (int len = 0; len < (int)sizeof(good); len++) {
		fake.private_len = len;
		struct rdma_cm_id *id = fake_stranger(port_of_side(&w), &good, sizeof(good), 16);
		fake.private_len = -1;
		verbs_server_dispatch(w.side.server);
		char ignored[256];
		assert_int_equal(fake_stranger_heard(id, ignored, sizeof(ignored)),
				 RDMA_CM_EVENT_REJECTED);
		fake_stranger_close(id);
	}
	verbs_server_dispatch(w.side.server);
	assert_int_equal(atomic_load(&w.side.n_admitted), 0);
	assert_int_equal(atomic_load(&w.side.n_lost), 0);
	assert_int_equal(atomic_load(&fake_counts.n_live), n_live);
	world_stop(&w);
}

/* Those whose request is good, and who then say nothing, age. */
#define HALF_OPEN 260
static void
test_half_open(void **state)
{
	struct world w;
	struct rdma_cm_id *ids[HALF_OPEN];
	char ignored[256];
	(void)state;
	world_serve(&w, WORLD_REGION_LEN);
	verbs_side_halt(&w.side);
	int n_live = atomic_load(&fake_counts.n_live);
	const struct wire_cm_request good = good_request(&w);
	for (int i = 0; i < HALF_OPEN; i++) {
		ids[i] = fake_stranger(port_of_side(&w), &good, sizeof(good), 16);
		verbs_server_dispatch(w.side.server);
		assert_int_equal(fake_stranger_heard(ids[i], ignored, sizeof(ignored)),
				 RDMA_CM_EVENT_CONNECT_RESPONSE);
	}
	assert_int_equal(atomic_load(&w.side.n_admitted), HALF_OPEN);
	verbs_server_expire(w.side.server, clock_now_ns());
	assert_int_equal(atomic_load(&w.side.n_lost), 0);
	verbs_server_expire(w.side.server,
			    clock_now_ns() + (LIMIT_HANDSHAKE_MS + 1) * CLOCK_NS_PER_MS);
	assert_int_equal(atomic_load(&w.side.n_lost), HALF_OPEN);
	for (int i = 0; i < HALF_OPEN; i++)
		fake_stranger_close(ids[i]);
	assert_int_equal(atomic_load(&fake_counts.n_live), n_live);
	/* Others come in again; one that completes its connection does not age. */
	verbs_side_run(&w.side);
	world_join(&w, 1, 4);
	verbs_side_halt(&w.side);
	verbs_server_dispatch(w.side.server);
	verbs_server_expire(w.side.server,
			    clock_now_ns() + (LIMIT_HANDSHAKE_MS + 1) * CLOCK_NS_PER_MS);
	assert_int_equal(atomic_load(&w.side.n_lost), HALF_OPEN);
	verbs_side_run(&w.side);
	world_close(&w);
}

/* The client vanishes while its request waits, and just after it was accepted. */
static void
test_vanishing(void **state)
{
	struct world w;
	char ignored[256];
	(void)state;
	world_serve(&w, WORLD_REGION_LEN);
	verbs_side_halt(&w.side);
	int n_live = atomic_load(&fake_counts.n_live);
	const struct wire_cm_request good = good_request(&w);
	fake_stranger_close(fake_stranger(port_of_side(&w), &good, sizeof(good), 16));
	verbs_server_dispatch(w.side.server);
	assert_int_equal(atomic_load(&w.side.n_admitted), atomic_load(&w.side.n_lost));
	unsigned n_lost = atomic_load(&w.side.n_lost);
	struct rdma_cm_id *id = fake_stranger(port_of_side(&w), &good, sizeof(good), 16);
	verbs_server_dispatch(w.side.server);
	fake_stranger_heard(id, ignored, sizeof(ignored));
	fake_stranger_close(id);
	verbs_server_dispatch(w.side.server);
	assert_int_equal(atomic_load(&w.side.n_lost), n_lost + 1);
	assert_int_equal(atomic_load(&fake_counts.n_live), n_live);
	/* A request that nobody dispatched ends with the server. */
	id = fake_stranger(port_of_side(&w), &good, sizeof(good), 16);
	verbs_side_stop(&w.side);
	fake_stranger_close(id);
	assert_int_equal(atomic_load(&fake_counts.n_live), 0);
}

static unsigned n_destroyed_before;

/* [DEAD]: whoever is told so may use what the peer could reach. */
static void
expect_destroyed(struct verbs_side *side)
{
	assert_int_equal(atomic_load(&fake_counts.n_destroyed_qps) - n_destroyed_before,
			 atomic_load(&side->n_lost) + 1);
}

/* Each event reaches a server's established peer: it is lost, once, or it stays. */
static void
test_events_of_peers(void **state)
{
	(void)state;
	for (int type = 0; type <= RDMA_CM_EVENT_TIMEWAIT_EXIT; type++) {
		struct world w;
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
			continue;
		fake_reset();
		world_open(&w, 2, 4);
		verbs_side_halt(&w.side);
		verbs_server_dispatch(w.side.server);
		n_destroyed_before = atomic_load(&fake_counts.n_destroyed_qps);
		w.side.on_lost = expect_destroyed;
		fake_inject(true, (enum rdma_cm_event_type)type, -EIO);
		fake_inject(true, (enum rdma_cm_event_type)type, -EIO);
		fake_inject_listener((enum rdma_cm_event_type)type);
		verbs_server_dispatch(w.side.server);
		bool ends =
			type == RDMA_CM_EVENT_DISCONNECTED || type == RDMA_CM_EVENT_CONNECT_ERROR ||
			type == RDMA_CM_EVENT_UNREACHABLE || type == RDMA_CM_EVENT_REJECTED ||
			type == RDMA_CM_EVENT_DEVICE_REMOVAL || type == RDMA_CM_EVENT_TIMEWAIT_EXIT;
		w.side.on_lost = NULL;
		assert_int_equal(atomic_load(&w.side.n_lost), ends ? 2 : 0);
		assert_int_equal(type == RDMA_CM_EVENT_DEVICE_REMOVAL,
				 strstr(w.log.last, "no client can connect any more") != NULL);
		struct fab_op op = conf_read(0, w.local, 8, w.key);
		assert_int_equal(conf_batch(w.ep, &op, 1), ends ? ERR_CONN : 0);
		verbs_side_run(&w.side);
		world_close(&w);
	}
}

/* Each event reaches a client's established endpoint, which waits. */
static void
test_events_of_endpoints(void **state)
{
	(void)state;
	for (int type = 0; type <= RDMA_CM_EVENT_TIMEWAIT_EXIT; type++) {
		struct world w;
		struct fab_done done;
		fake_reset();
		world_open(&w, 1, 4);
		bool ends = type == RDMA_CM_EVENT_DISCONNECTED ||
			    type == RDMA_CM_EVENT_CONNECT_ERROR ||
			    type == RDMA_CM_EVENT_DEVICE_REMOVAL;
		struct fab_op op = conf_read(0, w.local, 8, w.key);
		fake_inject(false, (enum rdma_cm_event_type)type, 0);
		fake.holds_completions = true;
		assert_int_equal(fab_post(w.ep, &op, 1, NULL), 0);
		for (int i = 0; i < 5; i++)
			fab_wait(w.ep, clock_now_ns() + CLOCK_NS_PER_MS);
		fake.holds_completions = false;
		assert_int_equal(fab_poll(w.ep, &done, 1), 1);
		/* What had completed counts; then the endpoint is at its end. */
		assert_int_equal(done.status, 0);
		assert_int_equal(conf_batch(w.ep, &op, 1), ends ? ERR_CONN : 0);
		world_close(&w);
	}
}

static void
test_lost_peers(void **state)
{
	struct world w;
	(void)state;
	world_open(&w, 3, 4);
	assert_int_equal(atomic_load(&w.side.n_admitted), 3);
	fab_disconnect(w.pair.ep[1]);
	w.pair.ep[1] = NULL;
	dispatch_until(&w, &w.side.n_lost, 1);
	/* Destroyed by its owner: not lost. */
	verbs_side_cut(&w.side);
	verbs_side_halt(&w.side);
	verbs_server_dispatch(w.side.server);
	assert_int_equal(atomic_load(&w.side.n_lost), 1);
	verbs_side_run(&w.side);
	verbs_peer_destroy(NULL);
	world_close(&w);
	verbs_server_destroy(NULL);
	verbs_device_close(NULL);
	verbs_loopback_close(NULL);
}

/* The word that completes the connection is lost; the first message stands for it. */
static void
test_device_events(void **state)
{
	struct world w;
	(void)state;
	fake.loses_rtu = true;
	world_open(&w, 1, 4);
	verbs_side_halt(&w.side);
	fake_async_event(IBV_EVENT_PORT_ACTIVE, false);
	verbs_server_dispatch(w.side.server);
	assert_int_equal(atomic_load(&fake_counts.n_notified), 0);
	fake_async_event(IBV_EVENT_COMM_EST, true);
	verbs_server_dispatch(w.side.server);
	assert_int_equal(atomic_load(&fake_counts.n_notified), 1);
	fake_async_event(IBV_EVENT_DEVICE_FATAL, false);
	verbs_server_dispatch(w.side.server);
	assert_non_null(strstr(w.log.last, "fake0"));
	assert_non_null(strstr(w.log.last, "catastrophic"));
	verbs_side_run(&w.side);
	world_close(&w);
}

static void
test_port_taken(void **state)
{
	struct verbs_side first, second;
	struct verbs_choice choice = {.address = {.host = "10.77.0.1", .port = 7440}};
	(void)state;
	assert_int_equal(verbs_side_start(&first, 4096, &choice), 0);
	assert_string_equal(first.offer.verbs_address, "10.77.0.1:7440");
	assert_int_equal(verbs_side_start(&second, 4096, &choice), ERR_CONN);
	assert_non_null(strstr(second.reason, "is the port taken?"));
	verbs_side_stop(&first);
	assert_int_equal(verbs_side_start(&second, 4096, &choice), 0);
	verbs_side_stop(&second);
}

/* ---- The server's own endpoint ---- */

static void
test_loopback(void **state)
{
	(void)state;
	for (int swapped = 0; swapped < 2; swapped++) {
		struct verbs_side side;
		struct fab_endpoint *loop = NULL;
		fake_reset();
		fake.swaps_replies = swapped;
		fake.n_devices = 2;
		fake.route_device = 1; /* others' way to it; not the server's own */
		assert_int_equal(verbs_side_start(&side, WORLD_REGION_LEN, NULL), 0);
		uint64_t *words = (uint64_t *)(void *)side.memory;
		words[8] = 4711; /* the scratch word is what it was, afterwards */
		assert_int_equal(verbs_loopback(side.server, 64, &loop, side.reason), 0);
		assert_true(words[8] == 4711);
		assert_int_equal(atomic_load(&side.n_admitted), 0);
		uint32_t key;
		uint64_t *local = aligned_alloc(4096, 4096);
		assert_int_equal(fab_register(loop->region->fab, local, 4096, &key), 0);
		struct fab_op op = conf_cas(128, 0, 5, local, key);
		assert_int_equal(conf_batch(loop, &op, 1), 0);
		assert_true(words[16] == 5 && local[0] == 0);
		op = conf_cas(128, 5, UINT64_C(0x1122334455667788), local, key);
		assert_int_equal(conf_batch(loop, &op, 1), 0);
		assert_true(local[0] == 5);
		/* It failed: another one. Its token was for one connection. */
		verbs_loopback_close(loop);
		verbs_server_dispatch(side.server);
		assert_int_equal(verbs_loopback(side.server, 64, &loop, side.reason), 0);
		verbs_loopback_close(loop);
		free(local);
		assert_int_equal(atomic_load(&side.n_lost), 0);
		verbs_side_stop(&side);
		assert_int_equal(atomic_load(&fake_counts.n_live), 0);
	}
}

static void
test_loopback_fails(void **state)
{
	struct verbs_side side;
	struct fab_endpoint *loop = NULL;
	(void)state;
	assert_int_equal(verbs_side_start(&side, WORLD_REGION_LEN, NULL), 0);
	int n_live = atomic_load(&fake_counts.n_live);
	fake.garbles_replies = true;
	assert_int_equal(verbs_loopback(side.server, 64, &loop, side.reason), ERR_CORRUPT);
	assert_non_null(strstr(side.reason, "atomics do not work"));
	fake.garbles_replies = false;
	fake.wr_fails_at = 6;
	fake.wr_status = IBV_WC_REM_ABORT_ERR;
	assert_int_equal(verbs_loopback(side.server, 64, &loop, side.reason), ERR_CONN);
	fake.on_connect.type = RDMA_CM_EVENT_UNREACHABLE;
	assert_int_equal(verbs_loopback(side.server, 64, &loop, side.reason), ERR_CONN);
	fake.on_connect.type = FAKE_GOOD;
	verbs_server_dispatch(side.server);
	assert_null(loop);
	assert_int_equal(atomic_load(&fake_counts.n_live), n_live);
	verbs_side_stop(&side);
}

/* ---- Each call that can fail does ---- */

/* All there is, from beginning to end. Returns 0, or what failed first; words say why. */
static int
whole_story(struct world_log *log, char words[VERBS_REASON_MAX])
{
	struct verbs_side side;
	struct fab_endpoint *loop = NULL;
	struct conf_pair pair = {0};
	uint64_t *local = aligned_alloc(4096, 4096);
	uint32_t key;
	words[0] = '\0';
	int r = verbs_side_start(&side, 3 * 8192, NULL);
	if (r) {
		memcpy(words, side.reason, VERBS_REASON_MAX);
		free(local);
		return r;
	}
	r = verbs_loopback(side.server, 64, &loop, words);
	if (!r) {
		verbs_side_run(&side);
		r = verbs_reach(&side, &log->log, 2, 4, &pair);
	}
	if (!r)
		r = fab_register(pair.fab, local, 4096, &key);
	if (!r) {
		struct fab_op op = conf_faa(8188 - 4, 1, local, key);
		r = conf_batch(pair.ep[1], &op, 1);
		assert_int_equal(r, 0);
		fab_deregister(pair.fab, key);
	}
	if (pair.fab)
		conf_leave(&pair);
	verbs_side_halt(&side);
	verbs_loopback_close(loop);
	verbs_side_stop(&side);
	free(local);
	if (r && !words[0])
		snprintf(words, VERBS_REASON_MAX, "%.500s", log->last);
	return r;
}

static void
test_sweep(void **state)
{
	unsigned n = 0, n_failures = 0;
	(void)state;
	for (;;) {
		struct world_log log;
		char words[VERBS_REASON_MAX];
		fake_reset();
		world_log_init(&log);
		fake.attr[0].max_mr_size = 8192;
		fake.fail_at = ++n;
		assert_true(n < 10000);
		int r = whole_story(&log, words);
		assert_int_equal(atomic_load(&fake_counts.n_live), 0);
		const char *failed = atomic_load(&fake_counts.failed);
		if (!failed) {
			assert_int_equal(r, 0);
			break;
		}
		/* Some can be done without. What cannot fails at once, with a sentence. */
		if (r == 0)
			continue;
		n_failures++;
		assert_true(r < 0);
		if (strlen(words) < 10)
			fail_msg("%s failed, and nobody said so", failed);
	}
	assert_true(n > 60 && n_failures > 40);
}

/* Each test finds the knobs as at the beginning. */
static int
anew(void **state)
{
	(void)state;
	fake_reset();
	return 0;
}

#define TEST(name) cmocka_unit_test_setup(name, anew)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_choice),
		TEST(test_lacks),
		TEST(test_missing),
		TEST(test_memlock),
		TEST(test_segments),
		TEST(test_register_too_early),
		TEST(test_events_of_connecting),
		TEST(test_nobody),
		TEST(test_admission),
		TEST(test_reader),
		TEST(test_hostile_refusals),
		TEST(test_hostile_acceptances),
		TEST(test_first_words),
		TEST(test_ipv6),
		TEST(test_read_depths),
		TEST(test_forked_child),
		TEST(test_two_devices),
		TEST(test_old_devices),
		TEST(test_strangers),
		TEST(test_half_open),
		TEST(test_vanishing),
		TEST(test_events_of_peers),
		TEST(test_events_of_endpoints),
		TEST(test_lost_peers),
		TEST(test_device_events),
		TEST(test_port_taken),
		TEST(test_loopback),
		TEST(test_loopback_fails),
		TEST(test_sweep),
	};
	return cmocka_run_group_tests_name("fabric verbs: setting up", tests, NULL, NULL);
}
