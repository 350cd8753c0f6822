/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Options: options.h. One table says everything about an option: name, what its value looks like,
 * default, help, and the function that takes the value. The command line is read twice: first for
 * --config, whose file is then applied, and again for everything.
 */
#include "server/options.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/err.h"
#include "common/log.h"
#include "proto/wire.h"

#define OPTIONS_EVERY_MAX_S 31536000u /* a year */
#define OPTIONS_RATE_MIN (UINT64_C(64) << 10)
#define SCRUB_RATE_DEFAULT 16u
#define SCRUB_RATE_MAX 65536u
#define POOL_DEFAULT (UINT64_C(1) << 30)
#define METRICS_DEFAULT_PORT (WIRE_DEFAULT_PORT + 1)
#define POOL_SIZE_REMEDY "a size from 1M to 256G is wanted (suffixes K, M, G)"
#define TCP_THREADS_MAX 64u
#define TCP_THREADS_DEFAULT_MAX 8u
#define LINE_SHOWN 64 /* of a bad line or value, in a message */
#define FILE_LEN_MAX ((size_t)64 << 10)
#define LINE_LEN_MAX 1024u

static const char first_region[] = OPTIONS_FIRST_REGION;

struct option {
	const char *name;
	const char *value; /* what it looks like; NULL: a switch */
	const char *fallback;
	const char *help;
	bool file_too; /* also in the configuration file */
	/* 0, or ERR_INVALID with what is wrong about the value in reason. */
	int (*take)(struct options *options, const char *value, char *reason);
};

static int __attribute__((format(printf, 2, 3))) invalid(char *reason, const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	vsnprintf(reason, NET_REASON_MAX, format, ap);
	va_end(ap);
	return ERR_INVALID;
}

/* ---- Values ---- */

/* A number with an optional suffix K, M or G (powers of 1024). */
static bool
parse_size(const char *text, uint64_t *ret_size)
{
	char *end;
	if (!isdigit((unsigned char)text[0]))
		return false;
	errno = 0;
	unsigned long long n = strtoull(text, &end, 10);
	if (errno)
		return false;
	static const char suffixes[] = "KMG";
	const char *suffix = *end ? strchr(suffixes, toupper((unsigned char)*end)) : NULL;
	unsigned shift = suffix ? 10 * (unsigned)(suffix - suffixes + 1) : 0;
	if (end[suffix != NULL] || n > UINT64_MAX >> shift)
		return false;
	*ret_size = (uint64_t)n << shift;
	return true;
}

/* Does one of the addresses stand there twice? Then the second would find its port in use. */
static bool
is_repeated(const struct net_address *addresses, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		for (unsigned j = 0; j < i; j++)
			if (addresses[i].port && addresses[i].port == addresses[j].port &&
			    strcmp(addresses[i].host, addresses[j].host) == 0)
				return true;
	return false;
}

static int
take_listen(struct options *options, const char *value, char *reason)
{
	struct net_address listen[OPTIONS_LISTEN_MAX];
	unsigned n;
	if (value[0] && strspn(value, "0123456789") == strlen(value))
		return invalid(reason,
			       "this is a port without a host: write 127.0.0.1:%.5s for "
			       "this machine, 0.0.0.0:%.5s for all networks",
			       value, value);
	int rc = net_parse(value, WIRE_DEFAULT_PORT, listen, OPTIONS_LISTEN_MAX, &n, reason);
	if (rc)
		return rc;
	if (n > OPTIONS_LISTEN_MAX)
		return invalid(reason,
			       "at most %u addresses are wanted, not %u: 0.0.0.0 or [::] "
			       "stands for all of this machine's",
			       OPTIONS_LISTEN_MAX, n);
	if (is_repeated(listen, n))
		return invalid(reason, "an address stands there twice");
	memcpy(options->listen, listen, sizeof(listen[0]) * n);
	options->n_listen = n;
	return 0;
}

static int
take_advertise(struct options *options, const char *value, char *reason)
{
	unsigned n;
	int rc = net_parse(value, 0, &options->advertise, 1, &n, reason);
	if (rc == 0 && n != 1)
		rc = invalid(reason, "one address is wanted, not %u", n);
	return rc;
}

static bool
parse_pool_size(const char *text, uint64_t *ret_size)
{
	uint64_t size;
	if (!parse_size(text, &size) || size < LIMIT_REGION_MIN || size > LIMIT_REGION_MAX)
		return false;
	*ret_size = size;
	return true;
}

static int
take_pool_size(struct options *options, const char *value, char *reason)
{
	return parse_pool_size(value, &options->pool_size) ? 0 : invalid(reason, POOL_SIZE_REMEDY);
}

/* Of a region: also a part of names of files. */
static bool
is_region_name(const char *name, size_t len)
{
	if (len == 0 || len >= LIMIT_REGION_NAME_MAX || name[0] == '.' || name[0] == '-')
		return false;
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)name[i]) && !strchr("-_.", name[i]))
			return false;
	return true;
}

static bool
is_region(const struct options *options, const char *name)
{
	bool is = strcmp(name, OPTIONS_FIRST_REGION) == 0;
	for (unsigned i = 0; i < options->n_regions; i++)
		is |= strcmp(name, options->region[i].name) == 0;
	return is;
}

/* Cuts off what stands before a colon, which is put behind *text; false: it is too long. */
static bool
cut_field(const char **text, char *field, size_t max)
{
	size_t len = strcspn(*text, ":");
	if (len >= max)
		return false;
	memcpy(field, *text, len);
	field[len] = '\0';
	*text += len + ((*text)[len] == ':');
	return true;
}

/* NAME:SIZE, or NAME:SIZE:SNAPSHOT; each adds one. */
static int
take_region(struct options *options, const char *value, char *reason)
{
	struct options_region region = {0};
	char size[32];
	if (!cut_field(&value, region.name, sizeof(region.name)) ||
	    !is_region_name(region.name, strlen(region.name)))
		return invalid(reason,
			       "NAME:SIZE is wanted; a name has 1 to %u letters, digits, and - _ . "
			       "(not first, - and .)",
			       LIMIT_REGION_NAME_MAX - 1);
	if (!cut_field(&value, size, sizeof(size)) || !parse_pool_size(size, &region.size))
		return invalid(reason, "NAME:SIZE is wanted; " POOL_SIZE_REMEDY);
	if (strlen(value) >= sizeof(region.restore))
		return invalid(reason, "the path of a snapshot has at most %zu bytes",
			       sizeof(region.restore) - 1);
	snprintf(region.restore, sizeof(region.restore), "%s", value);
	if (is_region(options, region.name))
		return invalid(reason,
			       "there are two regions of this name: choose another (the one of "
			       "--pool-size is " OPTIONS_FIRST_REGION ")");
	if (options->n_regions == OPTIONS_REGIONS_MAX)
		return invalid(reason, "at most %u more regions are possible", OPTIONS_REGIONS_MAX);
	options->region[options->n_regions++] = region;
	return 0;
}

static int
take_index_slots(struct options *options, const char *value, char *reason)
{
	if (!parse_size(value, &options->index_slots) ||
	    options->index_slots > LIMIT_REGION_MAX / sizeof(uint64_t))
		return invalid(reason,
			       "a number from 1 to 32G is wanted (suffixes K, M, G), or 0 for "
			       "one per %u bytes of heap",
			       LIMIT_HEAP_BYTES_PER_SLOT);
	return 0;
}

static int
take_chunk_size(struct options *options, const char *value, char *reason)
{
	uint64_t size;
	if (!parse_size(value, &size) ||
	    (size && (size < LIMIT_CHUNK_MIN || size > LIMIT_CHUNK_MAX || (size & (size - 1)))))
		return invalid(reason,
			       "a power of two from 4K to 64M is wanted (suffixes K, M), or 0 "
			       "for one that suits the pool");
	options->chunk_size = size;
	return 0;
}

static int
take_scrub_rate(struct options *options, const char *value, char *reason)
{
	uint64_t rate = 0;
	bool is_off = strcmp(value, "off") == 0;
	if (!is_off && (!parse_size(value, &rate) || rate < 1 || rate > SCRUB_RATE_MAX))
		return invalid(reason, "a number of MiB a second from 1 to %u is wanted, or off",
			       SCRUB_RATE_MAX);
	options->scrub_rate = (unsigned)rate;
	return 0;
}

/* Which of the words the value is, or -1. */
static int
find_word(const char *const *words, size_t n, const char *value)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(value, words[i]) == 0)
			return (int)i;
	return -1;
}
#define FIND_WORD(words, value) find_word(words, sizeof(words) / sizeof(*(words)), value)

static int
take_huge_pages(struct options *options, const char *value, char *reason)
{
	static const char *const words[] = {
		[POOL_HUGE_NO] = "no", [POOL_HUGE_TRY] = "try", [POOL_HUGE_MUST] = "must"};
	int i = FIND_WORD(words, value);
	if (i < 0)
		return invalid(reason, "no, try or must is wanted");
	options->huge_pages = (enum pool_huge)i;
	return 0;
}

static const char *const fabric_words[] = {
	[OPTIONS_AUTO] = "auto", [OPTIONS_VERBS] = "verbs", [OPTIONS_SOFT] = "soft",
	[OPTIONS_SHM] = "shm",   [OPTIONS_TCP] = "tcp",
};

static int
take_pool_file(struct options *options, const char *value, char *reason)
{
	if (!value[0] || strlen(value) >= sizeof(options->pool_file))
		return invalid(reason, "the path of a file is wanted, of at most %u bytes",
			       POOL_FILE_PATH_MAX - 1);
	snprintf(options->pool_file, sizeof(options->pool_file), "%s", value);
	return 0;
}

static int
take_pool_format(struct options *options, const char *value, char *reason)
{
	(void)value;
	(void)reason;
	options->pool_format = true;
	return 0;
}

static int
take_fabric(struct options *options, const char *value, char *reason)
{
	int i = FIND_WORD(fabric_words, value);
	if (i < 0)
		return invalid(reason, "verbs, soft, shm, tcp or auto is wanted");
	options->fabric = (enum options_fabric)i;
	return 0;
}

static int
take_tcp_threads(struct options *options, const char *value, char *reason)
{
	uint64_t n;
	if (!parse_size(value, &n) || n == 0 || n > TCP_THREADS_MAX)
		return invalid(reason, "a number from 1 to %u is wanted", TCP_THREADS_MAX);
	options->tcp_threads = (unsigned)n;
	return 0;
}

static int
take_rdma_device(struct options *options, const char *value, char *reason)
{
	if (!value[0] || strlen(value) >= sizeof(options->rdma_device) || strchr(value, '/'))
		return invalid(reason, "the name of a device is wanted, as `rdma link` shows it "
				       "before the slash");
	snprintf(options->rdma_device, sizeof(options->rdma_device), "%s", value);
	return 0;
}

static int
take_rdma_address(struct options *options, const char *value, char *reason)
{
	unsigned n;
	int rc = net_parse(value, 0, &options->rdma_address, 1, &n, reason);
	if (rc == 0 && n != 1)
		rc = invalid(reason, "one address is wanted, not %u", n);
	return rc;
}

static int
take_evict(struct options *options, const char *value, char *reason)
{
	static const char *const words[] = {"no", "yes"};
	int i = FIND_WORD(words, value);
	if (i < 0)
		return invalid(reason, "yes or no is wanted");
	options->layout.has_hints = (uint32_t)i;
	return 0;
}

static int
take_socket(struct options *options, const char *value, char *reason)
{
	struct sockaddr_un address;
	socklen_t len;
	if (net_unix_address(value, &address, &len) || strlen(value) >= sizeof(options->socket))
		return invalid(reason,
			       "a path of 1 to %u bytes is wanted, or @name for the abstract "
			       "namespace",
			       LIMIT_PATH_MAX - 1);
	snprintf(options->socket, sizeof(options->socket), "%s", value);
	return 0;
}

/* A port alone is one of this machine's own. */
static int
take_metrics_listen(struct options *options, const char *value, char *reason)
{
	char text[NET_TEXT_MAX];
	unsigned n;
	bool port_only = value[0] && strspn(value, "0123456789") == strlen(value);
	snprintf(text, sizeof(text), "%s%.200s", port_only ? "127.0.0.1:" : "", value);
	int rc = net_parse(text, METRICS_DEFAULT_PORT, &options->metrics_listen, 1, &n, reason);
	if (rc == 0 && n != 1)
		rc = invalid(reason, "one address is wanted, not %u", n);
	return rc;
}

static int
take_path(char path[OPTIONS_PATH_MAX], const char *value, char *reason)
{
	if (!value[0] || strlen(value) >= OPTIONS_PATH_MAX)
		return invalid(reason, "a path of 1 to %u bytes is wanted", OPTIONS_PATH_MAX - 1);
	snprintf(path, OPTIONS_PATH_MAX, "%s", value);
	return 0;
}

static int
take_restore(struct options *options, const char *value, char *reason)
{
	return take_path(options->restore, value, reason);
}

static int
take_snapshot_dir(struct options *options, const char *value, char *reason)
{
	return take_path(options->snapshot_dir, value, reason);
}

static int
take_snapshot_every(struct options *options, const char *value, char *reason)
{
	uint64_t every_s;
	if (!parse_size(value, &every_s) || every_s > OPTIONS_EVERY_MAX_S)
		return invalid(reason,
			       "a number of seconds from 1 to %u is wanted, or 0: only when "
			       "asked",
			       OPTIONS_EVERY_MAX_S);
	options->snapshot_every_s = (uint32_t)every_s;
	return 0;
}

static int
take_snapshot_rate(struct options *options, const char *value, char *reason)
{
	if (!parse_size(value, &options->snapshot_rate) ||
	    (options->snapshot_rate && options->snapshot_rate < OPTIONS_RATE_MIN))
		return invalid(reason, "bytes a second are wanted, 64K or more (suffixes K, M, G), "
				       "or 0 for no limit");
	return 0;
}

static int
take_tenants(struct options *options, const char *value, char *reason)
{
	return take_path(options->tenants, value, reason);
}

static int
take_tls_cert(struct options *options, const char *value, char *reason)
{
	return take_path(options->tls_cert, value, reason);
}

static int
take_tls_key(struct options *options, const char *value, char *reason)
{
	return take_path(options->tls_key, value, reason);
}

static int
take_tls_ca(struct options *options, const char *value, char *reason)
{
	return take_path(options->tls_ca, value, reason);
}

/* A switch on the command line; in the file, yes or no. */
static int
take_insecure(struct options *options, const char *value, char *reason)
{
	static const char *const words[] = {"no", "yes"};
	int i = value[0] ? FIND_WORD(words, value) : 1;
	if (i < 0)
		return invalid(reason, "yes or no is wanted");
	options->insecure = i != 0;
	return 0;
}

static int
take_log_level(struct options *options, const char *value, char *reason)
{
	static const char *const words[] = {[LOG_ERROR] = "error",
					    [LOG_WARN] = "warn",
					    [LOG_INFO] = "info",
					    [LOG_DEBUG] = "debug"};
	int i = FIND_WORD(words, value);
	if (i < 0)
		return invalid(reason, "error, warn, info or debug is wanted");
	options->log_level = i;
	return 0;
}

static int
take_check(struct options *options, const char *value, char *reason)
{
	(void)value;
	(void)reason;
	options->action = OPTIONS_CHECK;
	return 0;
}

static int
take_fsck(struct options *options, const char *value, char *reason)
{
	options->action = OPTIONS_FSCK;
	options->fsck_path = value;
	return value[0] ? 0 : invalid(reason, "the path of a file is wanted");
}

/* --config is read before everything else; here it only has to be a name. */
static int
take_config(struct options *options, const char *value, char *reason)
{
	(void)options;
	return value[0] ? 0 : invalid(reason, "the path of a file is wanted");
}

static int
take_version(struct options *options, const char *value, char *reason)
{
	(void)value;
	(void)reason;
	options->action = OPTIONS_VERSION;
	return 0;
}

static int
take_help(struct options *options, const char *value, char *reason)
{
	(void)value;
	(void)reason;
	options->action = OPTIONS_HELP;
	return 0;
}

static const struct option table[] = {
	{"listen", "HOST:PORT[,HOST:PORT...]", "127.0.0.1:7440",
	 "addresses of the control port, which takes data over tcp too; [ADDRESS]:PORT for IPv6; "
	 "port 0: a free one",
	 true, take_listen},
	{"advertise", "HOST[:PORT]", "where they connected",
	 "where clients are told to connect for data over tcp", true, take_advertise},
	{"pool-size", "SIZE", "1G", "memory that clients share, 1M to 256G", true, take_pool_size},
	{"region", "NAME:SIZE[:SNAPSHOT]", NULL,
	 "one more region, of the tenants whose line has region=NAME: a pool of its own, with its "
	 "index, R_Key and protection domain; it may begin with a snapshot; at most 15",
	 true, take_region},
	{"index-slots", "N", "0", "keys the index has room for; 0: one per 256 bytes of heap", true,
	 take_index_slots},
	{"chunk-size", "SIZE", "0",
	 "power of two, 4K to 64M, the largest value; 0: suits the pool, at most 1M", true,
	 take_chunk_size},
	{"huge-pages", "no|try|must", "no", "back the pool with huge pages", true, take_huge_pages},
	{"pool-file", "PATH", NULL,
	 "keep the pool in a file (tmpfs, hugetlbfs or disk), which the next server opens again",
	 true, take_pool_file},
	{"pool-format", NULL, NULL, "empty the pool file, whatever it holds", false,
	 take_pool_format},
	{"evict", "no|yes", "no",
	 "when the pool is full, make room: values not used for long cease to be there", true,
	 take_evict},
	{"fabric", "verbs|soft|shm|tcp|auto", "auto",
	 "verbs: RDMA; shm: only clients on this host; tcp: data over the control port; soft: "
	 "these two; auto: verbs if there is a device, else soft",
	 true, take_fabric},
	{"tcp-threads", "N", "a quarter of the processors",
	 "threads that serve data connections over tcp, of each region, 1 to 64", true,
	 take_tcp_threads},
	{"rdma-device", "NAME", NULL, "the device for verbs, as `rdma link` shows it", true,
	 take_rdma_device},
	{"rdma-address", "HOST[:PORT]", "that of --listen, or the first that a device carries",
	 "address for verbs, and so the device that carries it", true, take_rdma_address},
	{"socket", "PATH", "@rkv-PID-PORT",
	 "unix socket that hands out the pool (soft); @NAME: abstract, without a file", true,
	 take_socket},
	{"metrics-listen", "[HOST:]PORT", "off",
	 "metrics for Prometheus, http://HOST:PORT/metrics; a port alone: on loopback", true,
	 take_metrics_listen},
	{"snapshot-dir", "DIR", NULL, "where snapshots are written, at `kv-cli snapshot`", true,
	 take_snapshot_dir},
	{"snapshot-every", "SECONDS", "0",
	 "write the snapshot `periodic` so often; 0: only when asked", true, take_snapshot_every},
	{"snapshot-rate", "SIZE", "0", "bytes a second that a snapshot writes; 0: no limit", true,
	 take_snapshot_rate},
	{"restore", "FILE", NULL, "begin with what this snapshot holds (the first region)", true,
	 take_restore},
	{"scrub-rate", "N|off", "16",
	 "MiB of the pool to look through a second, for what dead clients left and for values that "
	 "have expired",
	 true, take_scrub_rate},
	{"tenants", "FILE", NULL,
	 "who may come in: `NAME read-only|read-write|admin SECRET [region=NAME] [sessions=N] "
	 "[connections=N]` a line; SIGHUP: read it again",
	 true, take_tenants},
	{"insecure", NULL, NULL,
	 "allow --listen beyond loopback without --tenants: who reaches the port may do everything",
	 true, take_insecure},
	{"tls-cert", "FILE", NULL,
	 "TLS 1.3 on the control port, with this certificate (PEM); SIGHUP: read it again", true,
	 take_tls_cert},
	{"tls-key", "FILE", NULL, "its private key (PEM, without a passphrase)", true,
	 take_tls_key},
	{"tls-ca", "FILE", NULL, "clients need a certificate of this CA (PEM)", true, take_tls_ca},
	{"log-level", "LEVEL", "info", "error, warn, info or debug; to standard error", true,
	 take_log_level},
	{"config", "FILE", NULL, "options, one `name = value` a line", false, take_config},
	{"check", NULL, NULL, "say what would limit a start, and how to lift it", false,
	 take_check},
	{"fsck", "FILE", NULL,
	 "say what each byte of a pool's file is, which no server has open, and whether anything "
	 "is "
	 "corrupt",
	 false, take_fsck},
	{"version", NULL, NULL, "print the version", false, take_version},
	{"help", NULL, NULL, "print this", false, take_help},
};
#define N_OPTIONS (sizeof(table) / sizeof(*table))

static const struct option *
find(const char *name, size_t len)
{
	for (size_t i = 0; i < N_OPTIONS; i++)
		if (strlen(table[i].name) == len && memcmp(table[i].name, name, len) == 0)
			return &table[i];
	return NULL;
}

void
options_help(FILE *out)
{
	fprintf(out, "Usage: kv-server [OPTION]...\n"
		     "Serves a pool of memory that clients read and write one-sided.\n\n");
	for (size_t i = 0; i < N_OPTIONS; i++) {
		const struct option *o = &table[i];
		fprintf(out, "  --%s%s%s\n        %s", o->name, o->value ? " " : "",
			o->value ? o->value : "", o->help);
		if (o->fallback)
			fprintf(out, " (default %s)", o->fallback);
		fprintf(out, "\n");
	}
	fprintf(out,
		"\nSizes take the suffixes K, M and G. Exit code: 0 after SIGTERM, 1 if serving "
		"fails, 2 for a bad option.\n");
}

/* ---- The file ---- */

static char *
trim(char *text)
{
	while (isspace((unsigned char)*text))
		text++;
	char *end = text + strlen(text);
	while (end > text && isspace((unsigned char)end[-1]))
		*--end = '\0';
	return text;
}

/*
 * Is the line something that may be shown, if it is wrong? A comment, which is not shown, may hold
 * other bytes, but no control characters: a file with those is no configuration.
 */
static int
check_text(const char *line, size_t len, char *reason)
{
	bool comment = line[strspn(line, " \t")] == '#';
	if (len > LINE_LEN_MAX)
		return invalid(reason, "a line has at most %u bytes", LINE_LEN_MAX);
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)line[i];
		if (c == '\0')
			return invalid(reason, "a NUL byte: is this a text file?");
		if (!isprint(c) && !strchr("\t\r", c) && !(comment && c >= 0x80))
			return invalid(reason,
				       "byte 0x%02x: printable ASCII is wanted (but for "
				       "comments)",
				       c);
	}
	return 0;
}

/* One line, len bytes and a NUL. */
static int
take_line(struct options *options, char *line, size_t len, char *reason)
{
	char why[NET_REASON_MAX];
	int rc = check_text(line, len, reason);
	if (rc)
		return rc;
	char *name = trim(line);
	if (name[0] == '\0' || name[0] == '#')
		return 0;
	char *value = strchr(name, '=');
	if (!value)
		return invalid(reason, "`%.*s`: `name = value` is wanted", LINE_SHOWN, name);
	*value++ = '\0';
	name = trim(name);
	value = trim(value);
	const struct option *option = find(name, strlen(name));
	if (!option)
		return invalid(reason, "`%.*s` is not an option (--help lists them)", LINE_SHOWN,
			       name);
	if (!option->file_too)
		return invalid(reason, "`%s` is an option of the command line only", name);
	if (option->take(options, value, why))
		return invalid(reason, "%s = %.*s: %.300s", name, LINE_SHOWN, value, why);
	return 0;
}

/* Text of len bytes and a NUL; it is cut into its lines. */
static int
take_text(struct options *options, const char *path, char *text, size_t len, char *reason)
{
	char why[NET_REASON_MAX];
	char *line = text, *end = text + len;
	for (unsigned number = 1; line < end; number++) {
		char *newline = memchr(line, '\n', (size_t)(end - line));
		char *line_end = newline ? newline : end;
		*line_end = '\0';
		if (take_line(options, line, (size_t)(line_end - line), why))
			return invalid(reason, "%.100s:%u: %.380s", path, number, why);
		line = line_end + 1;
	}
	return 0;
}

static int
take_file(struct options *options, const char *path, char *reason)
{
	static char text[FILE_LEN_MAX + 2];
	FILE *file = fopen(path, "re");
	if (!file)
		return invalid(reason,
			       "--config %.200s: %s: give the path of a file that this user may "
			       "read",
			       path, strerror(errno));
	size_t len = fread(text, 1, FILE_LEN_MAX + 1, file);
	int error = ferror(file) ? errno : 0;
	fclose(file);
	if (error)
		return invalid(reason,
			       "--config %.200s: it cannot be read: %s: give the path of a text "
			       "file",
			       path, strerror(error));
	if (len > FILE_LEN_MAX)
		return invalid(reason,
			       "--config %.200s: a configuration has at most %zu KiB: is "
			       "this the right file?",
			       path, FILE_LEN_MAX >> 10);
	text[len] = '\0';
	return take_text(options, path, text, len, reason);
}

/* ---- The command line ---- */

/* The option at argv[*i] and its value ("" for a switch); moves *i behind both. */
static int
next_argument(char *const argv[], int *i, const struct option **ret_option, const char **ret_value,
	      char *reason)
{
	const char *arg = argv[(*i)++];
	if (strncmp(arg, "--", 2) != 0 || arg[2] == '\0')
		return invalid(reason, "`%.*s` is not an option (--help lists them)", LINE_SHOWN,
			       arg);
	size_t len = strcspn(arg + 2, "=");
	const struct option *option = find(arg + 2, len);
	if (!option)
		return invalid(reason, "`%.*s` is not an option (--help lists them)", LINE_SHOWN,
			       arg);
	const char *value = arg[2 + len] == '=' ? arg + 3 + len : NULL;
	if (!option->value && value)
		return invalid(reason, "--%s takes no value: leave it out", option->name);
	if (option->value && !value) {
		if (!argv[*i])
			return invalid(reason, "--%s needs a value: %s", option->name,
				       option->value);
		value = argv[(*i)++];
	}
	*ret_option = option;
	*ret_value = value ? value : "";
	return 0;
}

static int
take_config_of(struct options *options, char *const argv[], char *reason)
{
	const struct option *option;
	const char *value, *path = NULL;
	for (int i = 1; argv[i];) {
		int rc = next_argument(argv, &i, &option, &value, reason);
		if (rc)
			return rc;
		if (option->take == take_config)
			path = value;
	}
	return path && path[0] ? take_file(options, path, reason) : 0;
}

static int
take_arguments(struct options *options, char *const argv[], char *reason)
{
	const struct option *option;
	const char *value;
	char why[NET_REASON_MAX];
	for (int i = 1; argv[i];) {
		int rc = next_argument(argv, &i, &option, &value, reason);
		if (rc)
			return rc;
		if (option->take(options, value, why))
			return invalid(reason, "--%s %.*s: %.300s", option->name, LINE_SHOWN, value,
				       why);
	}
	return 0;
}

/* ---- Together ---- */

bool
options_want_verbs(const struct options *options)
{
	return options->fabric == OPTIONS_VERBS || options->rdma_device[0] ||
	       options->rdma_address.host[0];
}

bool
options_are_soft(const struct options *options)
{
	return options->fabric != OPTIONS_AUTO && options->fabric != OPTIONS_VERBS;
}

void
options_settle_fabric(struct options *options, bool is_verbs)
{
	if (is_verbs || !options_are_soft(options))
		options->fabric = is_verbs ? OPTIONS_VERBS : OPTIONS_SOFT;
}

static unsigned
default_tcp_threads(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN) / 4;
	if (n < 1)
		return 1;
	return n < (long)TCP_THREADS_DEFAULT_MAX ? (unsigned)n : TCP_THREADS_DEFAULT_MAX;
}

static int
check_pool_file(const struct options *options, char *reason)
{
	if (options->pool_format && !options->pool_file[0])
		return invalid(reason, "--pool-format: there is no --pool-file to format");
	if (options->huge_pages != POOL_HUGE_NO && options->pool_file[0])
		return invalid(reason, "--huge-pages: a pool file has the pages of its file "
				       "system: put it on a hugetlbfs instead");
	return 0;
}

struct guard_files
options_guard_files(const struct options *options)
{
	struct guard_files files = {
		.tenants = options->tenants,
		.regions = {.n = 1, .name = {OPTIONS_FIRST_REGION}},
		.tls = {.ca = options->tls_ca, .cert = options->tls_cert, .key = options->tls_key},
	};
	for (unsigned i = 0; i < options->n_regions; i++)
		files.regions.name[files.regions.n++] = options->region[i].name;
	return files;
}

/* ---- Regions ---- */

unsigned
options_n_regions(const struct options *options)
{
	return 1 + options->n_regions;
}

bool
options_are_of_more(const struct options *options)
{
	return options->region_name != first_region;
}

/* Of a file or directory of the first region, that of another one: path, separator, name. */
static bool
path_of_region(const struct options_region *region, char *path, size_t max, char separator)
{
	size_t len = strlen(path);
	return len == 0 ||
	       (size_t)snprintf(path + len, max - len, "%c%s", separator, region->name) < max - len;
}

static bool
take_paths_of(const struct options_region *region, struct options *of)
{
	return path_of_region(region, of->pool_file, sizeof(of->pool_file), '.') &&
	       path_of_region(region, of->snapshot_dir, sizeof(of->snapshot_dir), '/');
}

void
options_of_region(const struct options *options, unsigned i, struct options *ret_of)
{
	*ret_of = *options;
	ret_of->n_regions = 0;
	if (i == 0)
		return;
	const struct options_region *region = &options->region[i - 1];
	ret_of->region_name = region->name;
	ret_of->pool_size = region->size;
	ret_of->layout = region->layout;
	memcpy(ret_of->restore, region->restore, sizeof(ret_of->restore));
	ret_of->rdma_address.port = 0;       /* the first has it */
	(void)take_paths_of(region, ret_of); /* it was tried */
}

static int
check_paths(const struct options *options, const struct options_region *region, char *reason)
{
	struct options of = *options;
	if (take_paths_of(region, &of))
		return 0;
	return invalid(reason,
		       "--region %s: its name makes the path of --pool-file or --snapshot-dir too "
		       "long: choose shorter ones",
		       region->name);
}

int
options_check_exposure(const struct options *options, const struct net_address *bound,
		       char ret_reason[NET_REASON_MAX])
{
	char text[NET_TEXT_MAX];
	if (options->tenants[0] || options->insecure || net_is_loopback(bound))
		return 0;
	net_format(bound, text);
	snprintf(
		ret_reason, NET_REASON_MAX,
		"--listen %s can be reached from other machines, and whoever reaches it could read "
		"and write everything: name who may come with --tenants, listen on 127.0.0.1, or "
		"say --insecure if all who can reach it may",
		text);
	return ERR_PERM;
}

/* Computes the layout, and so finds out whether the sizes go together. */
static int
plan(struct layout *layout, uint64_t size, const char *size_option, uint64_t index_slots,
     uint64_t chunk_size, char *reason)
{
	uint64_t len = size / LAYOUT_PAGE * LAYOUT_PAGE;
	uint64_t slots_max = len / LAYOUT_GROUP_LEN * LAYOUT_GROUP_SLOTS / 2;
	if (index_slots > slots_max)
		return invalid(reason,
			       "--index-slots %" PRIu64 ": a pool of %" PRIu64
			       " bytes has room for 1 to %" PRIu64 ": lower it or raise %s",
			       index_slots, len, slots_max, size_option);
	if (!layout_plan_with(layout, len, index_slots, chunk_size))
		return invalid(reason,
			       "a pool of %" PRIu64 " bytes has no room for the index and %u "
			       "chunks of %" PRIu64 " bytes: raise %s, or lower --chunk-size "
			       "or --index-slots",
			       len, LIMIT_CHUNKS_MIN, layout->chunk_size, size_option);
	return 0;
}

/* As the first; its index has slots in proportion to its size. */
static int
plan_region(const struct options *options, struct options_region *region, char *reason)
{
	char size_option[64];
	unsigned __int128 slots =
		(unsigned __int128)options->index_slots * region->size / options->pool_size;
	region->layout.has_hints = options->layout.has_hints;
	snprintf(size_option, sizeof(size_option), "the size of --region %s", region->name);
	int rc = check_paths(options, region, reason);
	if (rc == 0)
		rc = plan(&region->layout, region->size, size_option,
			  options->index_slots && !slots ? 1 : (uint64_t)slots, options->chunk_size,
			  reason);
	return rc;
}

static int
plan_all(struct options *options, char *reason)
{
	if (options->n_regions && !options->tenants[0])
		return invalid(reason, "--region: without --tenants nobody could reach it: name "
				       "who may come in");
	int rc = plan(&options->layout, options->pool_size, "--pool-size", options->index_slots,
		      options->chunk_size, reason);
	for (unsigned i = 0; rc == 0 && i < options->n_regions; i++)
		rc = plan_region(options, &options->region[i], reason);
	return rc;
}

int
options_parse(struct options *options, char *const argv[], char ret_reason[NET_REASON_MAX])
{
	*options = (struct options){
		.region_name = first_region,
		.n_listen = 1,
		.listen = {{.host = "127.0.0.1", .port = WIRE_DEFAULT_PORT}},
		.pool_size = POOL_DEFAULT,
		.tcp_threads = default_tcp_threads(),
		.scrub_rate = SCRUB_RATE_DEFAULT,
		.log_level = LOG_INFO,
	};
	int rc = take_config_of(options, argv, ret_reason);
	if (rc == 0)
		rc = take_arguments(options, argv, ret_reason);
	if (rc == 0 && options_are_soft(options) && options_want_verbs(options))
		rc = invalid(ret_reason,
			     "--fabric %s uses no RDMA device: leave --rdma-device and "
			     "--rdma-address out, or choose --fabric verbs",
			     fabric_words[options->fabric]);
	if (rc == 0 && options->advertise.host[0] &&
	    (options->fabric == OPTIONS_VERBS || options->fabric == OPTIONS_SHM))
		rc = invalid(ret_reason,
			     "--advertise is for data over tcp, which --fabric %s does without: "
			     "leave it out, or choose --fabric soft or tcp",
			     fabric_words[options->fabric]);
	if (rc == 0 && options->snapshot_every_s && !options->snapshot_dir[0])
		rc = invalid(ret_reason, "--snapshot-every needs --snapshot-dir: where to write");
	if (rc == 0)
		rc = check_pool_file(options, ret_reason);
	if (rc == 0)
		rc = plan_all(options, ret_reason);
	return rc;
}
