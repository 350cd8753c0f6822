/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One command: connect, learn the limits, read key and value within them, run one request, print.
 * The server is asked first and files are read afterwards, because only the server knows how much
 * of a value is worth reading. Every step returns an exit code and has reported what went wrong.
 */
#include "client/cli/commands.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/report.h"
#include "client/include/rkv.h"

#define FIRST_VALUE_CAPACITY ((size_t)64 << 10)
#define FIRST_STATS_CAPACITY ((size_t)16 << 10)
#define FSCK_MS_MIN 600000
#define INCOMPLETE "what was written, if anything, is not complete"
#define APPLIED "the change was applied, only its version could not be told"
#define SNAPSHOT_PAUSE_MS 50
#define STALLED_MS 600000
#define AGAIN_PAUSE_MS 20 /* memory rests for stamps of 100 ms: look a few times in each */

/* A command on its way. */
struct job {
	struct arguments *arguments;
	struct rkv_client *client;
	struct rkv_session *session; /* commands with a key only */
	struct rkv_limit_values limits;
};

static const enum rkv_op op_of[COMMAND_COUNT] = {
	[COMMAND_GET] = RKV_OP_GET,     [COMMAND_PUT] = RKV_OP_PUT,
	[COMMAND_ADD] = RKV_OP_ADD,     [COMMAND_REPLACE] = RKV_OP_REPLACE,
	[COMMAND_CAS] = RKV_OP_CAS,     [COMMAND_DEL] = RKV_OP_DELETE,
	[COMMAND_TOUCH] = RKV_OP_TOUCH,
};

static uint64_t
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* For every failure of a call that changes nothing. */
static int
report_call(const struct job *job, int status)
{
	return report_status(job->arguments->command_name, status, 0);
}

/* ---- Key and value ---- */

/* Reads a file that may hold up to len_max bytes; to hold more is to be used in a wrong way. */
static int
load(const char *what, const char *path, uint64_t len_max, struct bytes *ret_bytes)
{
	const char *name = strcmp(path, "-") == 0 ? "standard input" : path;

	if (bytes_from_file(ret_bytes, path, len_max) == 0)
		return REPORT_DONE;
	if (errno != EFBIG)
		return report_system("read", name, "nothing was changed");
	return report_limit("%s from %s has more than the %" PRIu64 " bytes that fit", what, name,
			    len_max);
}

static int
load_key(struct job *job)
{
	struct arguments *arguments = job->arguments;
	const struct rkv_limit_values *limits = &job->limits;
	int status = REPORT_DONE;

	if (arguments->key_file)
		status = load("a key", arguments->key_file, limits->key_len_max, &arguments->key);
	if (status == REPORT_DONE &&
	    (arguments->key.len < limits->key_len_min || arguments->key.len > limits->key_len_max))
		status = report_limit("a key has %" PRIu32 " to %" PRIu32 " bytes, not %zu",
				      limits->key_len_min, limits->key_len_max, arguments->key.len);
	return status;
}

static int
load_value(struct job *job)
{
	struct arguments *arguments = job->arguments;
	/* value_len_max holds beside the longest key; what a shorter one leaves is the value's */
	uint64_t len_max = job->limits.value_len_max + job->limits.key_len_max - arguments->key.len;

	if (arguments->value_file)
		return load("a value", arguments->value_file, len_max, &arguments->value);
	if (arguments->value.len > len_max)
		return report_limit("a value of %zu bytes is over the %" PRIu64
				    " that fit beside this key",
				    arguments->value.len, len_max);
	return REPORT_DONE;
}

/* All that a request takes, within the limits. */
static int
load_operands(struct job *job)
{
	int status = load_key(job);

	if (status == REPORT_DONE && arguments_has_value(job->arguments))
		status = load_value(job);
	if (status == REPORT_DONE && job->arguments->ttl_s > job->limits.ttl_max_s)
		status = report_limit("a time to live is 0 to %" PRIu32 " seconds, not %" PRIu32,
				      job->limits.ttl_max_s, job->arguments->ttl_s);
	return status;
}

/* ---- Printing ---- */

/* What is buffered goes out here: a full disk shows now or never. meaning: of a failure. */
static int
finish_output(FILE *out, const char *name, const char *meaning)
{
	int failed = ferror(out);

	if ((out == stdout ? fflush(out) : fclose(out)) == 0 && !failed)
		return REPORT_DONE;
	return report_system("write", name, meaning);
}

static int
finish_stdout(void)
{
	return finish_output(stdout, "standard output", INCOMPLETE);
}

/* With --out the object stands alone on standard output and the value is in the file. */
static int
print_json(const struct rkv_item *item, const struct bytes *value)
{
	/* versions use all 64 bits, which many readers of JSON numbers round */
	printf("{\"version\": \"%" PRIu64 "\", \"flags\": %" PRIu32 ", \"ttl_s\": %" PRIu32
	       ", \"value_len\": %zu",
	       item->version, item->user_flags, item->ttl_s, item->value_len);
	if (value) {
		fputs(", \"value_hex\": \"", stdout);
		(void)bytes_write(stdout, value->data, value->len, 1);
		putchar('"');
	}
	puts("}");
	return finish_stdout();
}

static int
print_value(const struct arguments *arguments, const struct bytes *value)
{
	const char *name = arguments->out_file ? arguments->out_file : "standard output";
	FILE *out = arguments->out_file ? fopen(arguments->out_file, "we") : stdout;

	if (!out)
		return report_system("write", name, INCOMPLETE);
	(void)bytes_write(out, value->data, value->len, arguments->as_hex);
	if (arguments->with_newline || (out == stdout && isatty(STDOUT_FILENO)))
		putc('\n', out);
	return finish_output(out, name, INCOMPLETE);
}

static int
print_item(const struct arguments *arguments, const struct rkv_item *item,
	   const struct bytes *value)
{
	int status = REPORT_DONE;

	if (!arguments->as_json || arguments->out_file)
		status = print_value(arguments, value);
	if (status == REPORT_DONE && arguments->as_json)
		status = print_json(item, arguments->out_file ? NULL : value);
	if (status == REPORT_DONE && arguments->with_meta)
		fprintf(stderr,
			"value_len %zu\nversion %" PRIu64 "\nflags %" PRIu32 "\nttl_s %" PRIu32
			"\n",
			item->value_len, item->version, item->user_flags, item->ttl_s);
	return status;
}

static int
print_version_of(const struct arguments *arguments, const struct rkv_item *item)
{
	printf(arguments->as_json ? "{\"version\": \"%" PRIu64 "\"}\n" : "%" PRIu64 "\n",
	       item->version);
	return finish_output(stdout, "standard output", APPLIED);
}

/* ---- Commands ---- */

static int
run_get(struct job *job)
{
	const struct bytes *key = &job->arguments->key;
	struct bytes value = {0};
	struct rkv_item item = {0};
	size_t capacity = FIRST_VALUE_CAPACITY;
	int status, exit_code;

	/* another writer may put a longer value between two tries; the limit ends the loop */
	do {
		if (bytes_reserve(&value, capacity) < 0) {
			exit_code = report_system("hold", "the value", REPORT_NO_MEMORY);
			goto done;
		}
		status = rkv_get(job->session, key->data, key->len, value.data, value.capacity,
				 &item);
		capacity = item.value_len;
	} while (status == RKV_E_TOO_SMALL && capacity > value.capacity);
	value.len = item.value_len;
	exit_code = status == RKV_OK ? print_item(job->arguments, &item, &value)
				     : report_call(job, status);
done:
	bytes_release(&value);
	return exit_code;
}

/* Runs one request; what only has to wait for memory is tried again until the time is up. */
static int
run_request(struct job *job, struct rkv_request *request)
{
	uint64_t end_ns = now_ns() + (uint64_t)job->arguments->again_ms * 1000000u;
	const struct timespec pause = {.tv_nsec = AGAIN_PAUSE_MS * 1000000};
	int status;

	for (;;) {
		status = rkv_run(job->session, request, 1);
		if (status != RKV_OK)
			return status;
		if (request->status != RKV_AGAIN || now_ns() >= end_ns)
			return request->status;
		nanosleep(&pause, NULL);
	}
}

static int
run_mutation(struct job *job)
{
	const struct arguments *arguments = job->arguments;
	struct rkv_request request = {
		.op = op_of[arguments->command],
		.key = arguments->key.data,
		.key_len = arguments->key.len,
		.value = arguments->value.data,
		.value_len = arguments->value.len,
		.version = arguments->version,
		.options = {.ttl_s = arguments->ttl_s, .user_flags = arguments->user_flags},
	};
	int status = run_request(job, &request);

	if (status != RKV_OK)
		return report_status(arguments->command_name, status, 1);
	return request.op == RKV_OP_DELETE ? REPORT_DONE
					   : print_version_of(arguments, &request.item);
}

static int
run_stats(struct job *job)
{
	struct bytes text = {0};
	size_t len = FIRST_STATS_CAPACITY;
	int status, exit_code;

	do { /* counters grow by digits: leave some room beside the NUL */
		if (bytes_reserve(&text, len + 256) < 0) {
			exit_code = report_system("hold", "the counters", REPORT_NO_MEMORY);
			goto done;
		}
		status = rkv_server_stats(job->client, (char *)text.data, text.capacity, &len);
	} while (status == RKV_OK && len >= text.capacity);
	if (status == RKV_OK) {
		fputs((const char *)text.data, stdout);
		exit_code = finish_stdout();
	} else {
		exit_code = report_call(job, status);
	}
done:
	bytes_release(&text);
	return exit_code;
}

/* Looking at everything takes its time: the limit is for connecting, and at least ten minutes. */
static int
run_fsck(struct job *job)
{
	char text[FIRST_STATS_CAPACITY];
	uint32_t timeout_ms = job->arguments->timeout_ms;
	int status = rkv_server_fsck(job->client, text, sizeof(text), NULL,
				     timeout_ms > FSCK_MS_MIN ? timeout_ms : FSCK_MS_MIN);
	int exit_code;

	if (status != RKV_OK)
		return report_call(job, status);
	fputs(text, stdout);
	exit_code = finish_stdout();
	if (exit_code == REPORT_DONE && !strstr(text, "\nclean 1\n"))
		exit_code = REPORT_OUTCOME;
	return exit_code;
}

static int
run_ping(struct job *job)
{
	for (uint32_t i = 0; i < job->arguments->n_pings; i++) {
		uint64_t start_ns = now_ns();
		int status = rkv_ping(job->client);

		if (status != RKV_OK)
			return report_call(job, status);
		printf("%s answered in %" PRIu64 " us, fabric %s\n", job->arguments->server,
		       (now_ns() - start_ns) / 1000, rkv_fabric(job->client));
	}
	return finish_stdout();
}

/* On a terminal only, and on one line. */
static void
show_progress(const struct rkv_snapshot *snapshot)
{
	if (isatty(STDERR_FILENO))
		fprintf(stderr,
			"\r%3" PRIu32 ".%" PRIu32 " %%, %" PRIu64 " values, %" PRIu64 " bytes%s",
			snapshot->permille / 10, snapshot->permille % 10, snapshot->n_records,
			snapshot->n_bytes, snapshot->phase == RKV_SNAPSHOT_RUNNING ? "" : "\n");
}

/* Until it has ended; a server that does nothing any more for STALLED_MS is not waited for. */
static int
await_snapshot(struct job *job, struct rkv_snapshot *snapshot)
{
	const struct timespec pause = {.tv_nsec = SNAPSHOT_PAUSE_MS * 1000000};
	uint64_t n_bytes = snapshot->n_bytes, moved_ns = now_ns();
	int status = RKV_OK;

	while (status == RKV_OK && snapshot->phase == RKV_SNAPSHOT_RUNNING) {
		show_progress(snapshot);
		if (now_ns() - moved_ns > STALLED_MS * UINT64_C(1000000))
			return RKV_E_TIMEOUT;
		nanosleep(&pause, NULL);
		status = rkv_snapshot_look(job->client, snapshot->number, snapshot);
		if (snapshot->n_bytes != n_bytes)
			moved_ns = now_ns();
		n_bytes = snapshot->n_bytes;
	}
	show_progress(snapshot);
	return status;
}

static int
report_snapshot(const struct job *job, const struct rkv_snapshot *snapshot)
{
	const char *command = job->arguments->command_name;

	if (snapshot->phase != RKV_SNAPSHOT_DONE)
		return report_server(command, snapshot->reason);
	printf("name %s\nrecords %" PRIu64 "\nbytes %" PRIu64 "\nseconds %" PRIu64 ".%03" PRIu64
	       "\nunreadable %" PRIu64 "\n",
	       snapshot->name, snapshot->n_records, snapshot->n_bytes, snapshot->elapsed_ms / 1000,
	       snapshot->elapsed_ms % 1000, snapshot->n_unreadable);
	return finish_stdout();
}

static int
run_snapshot(struct job *job)
{
	struct rkv_snapshot snapshot = {0};
	int status = rkv_snapshot_begin(job->client, job->arguments->snapshot, &snapshot);

	if (status == RKV_OK)
		status = await_snapshot(job, &snapshot);
	if (status == RKV_OK)
		return report_snapshot(job, &snapshot);
	if (!*snapshot.reason)
		return report_call(job, status);
	report_server(job->arguments->command_name, snapshot.reason);
	return status == RKV_E_INVALID ? REPORT_USAGE : REPORT_OTHER;
}

static int
run_limits(struct job *job)
{
	const struct rkv_limit_values *limits = &job->limits;

	printf("key_len_min %" PRIu32 "\nkey_len_max %" PRIu32 "\nvalue_len_max %" PRIu64
	       "\nblock_len_max %" PRIu64 "\nttl_max_s %" PRIu32 "\ndepth_max %" PRIu32 "\n",
	       limits->key_len_min, limits->key_len_max, limits->value_len_max,
	       limits->block_len_max, limits->ttl_max_s, limits->depth_max);
	return finish_stdout();
}

static int
run_version(void)
{
	printf("kv-cli %d.%d.%d, librkv %s\n", RKV_VERSION_MAJOR, RKV_VERSION_MINOR,
	       RKV_VERSION_PATCH, rkv_version());
	return finish_stdout();
}

static int
run_help(void)
{
	arguments_help(stdout);
	return finish_stdout();
}

/* ---- The server ---- */

static int
connect_to_server(struct job *job)
{
	struct rkv_options options;
	int status;

	rkv_options_init(&options);
	options.connect_timeout_ms = job->arguments->timeout_ms;
	options.op_timeout_ms = job->arguments->timeout_ms;
	options.fabric = job->arguments->fabric;
	options.log = report_log;
	options.tenant = job->arguments->tenant;
	options.secret_file = job->arguments->secret_file;
	options.tls_ca_file = job->arguments->tls_ca;
	options.tls_cert_file = job->arguments->tls_cert;
	options.tls_key_file = job->arguments->tls_key;
	options.tls_server_name = job->arguments->tls_name;
	status = rkv_open(job->arguments->server, &options, &job->client);
	if (status == RKV_OK)
		status = rkv_limits(job->client, &job->limits);
	return report_call(job, status);
}

static int
run_with_key(struct job *job)
{
	int exit_code = load_operands(job);
	int status;

	if (exit_code != REPORT_DONE)
		return exit_code;
	status = rkv_session_open(job->client, &job->session);
	if (status != RKV_OK)
		return report_call(job, status);
	return job->arguments->command == COMMAND_GET ? run_get(job) : run_mutation(job);
}

static int
run_connected(struct job *job)
{
	switch (job->arguments->command) {
	case COMMAND_SNAPSHOT:
		return run_snapshot(job);
	case COMMAND_STATS:
		return run_stats(job);
	case COMMAND_FSCK:
		return run_fsck(job);
	case COMMAND_PING:
		return run_ping(job);
	case COMMAND_LIMITS:
		return run_limits(job);
	default:
		return run_with_key(job);
	}
}

int
commands_run(struct arguments *arguments)
{
	struct job job = {.arguments = arguments};
	int exit_code;

	if (arguments->command == COMMAND_VERSION)
		return run_version();
	if (arguments->command == COMMAND_HELP)
		return run_help();
	exit_code = connect_to_server(&job);
	if (exit_code == REPORT_DONE)
		exit_code = run_connected(&job);
	rkv_session_close(job.session);
	rkv_close(job.client);
	return exit_code;
}
