/* SPDX-License-Identifier: BSD-2-Clause */
/* See arguments.h. */
#include "client/cli/arguments.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/report.h"

#define DEFAULT_SERVER "localhost:7440"
#define DEFAULT_TIMEOUT_MS 5000
#define DEFAULT_AGAIN_MS 15000 /* memory rests for about ten seconds */
#define N_OPERANDS_MAX 4       /* the command's name and what it takes; cas takes the most */

/* What a command takes, in this order on the command line. */
enum { TAKES_KEY = 1, TAKES_VERSION = 2, TAKES_TTL = 4, TAKES_VALUE = 8, TAKES_NAME = 16 };

static const struct command {
	const char *name;
	const char *operands;
	const char *help;
	int takes;
} commands[COMMAND_COUNT] = {
	[COMMAND_GET] = {"get", "KEY", "write the value to standard output", TAKES_KEY},
	[COMMAND_PUT] = {"put", "KEY [VALUE]", "store a value, whether the key is there or not",
			 TAKES_KEY | TAKES_VALUE},
	[COMMAND_ADD] = {"add", "KEY [VALUE]", "store a value, only if the key is absent",
			 TAKES_KEY | TAKES_VALUE},
	[COMMAND_REPLACE] = {"replace", "KEY [VALUE]", "store a value, only if the key is there",
			     TAKES_KEY | TAKES_VALUE},
	[COMMAND_CAS] = {"cas", "KEY VERSION [VALUE]", "store a value, only over that version",
			 TAKES_KEY | TAKES_VERSION | TAKES_VALUE},
	[COMMAND_DEL] = {"del", "KEY", "remove the key", TAKES_KEY},
	[COMMAND_TOUCH] = {"touch", "KEY TTL", "let the value expire in TTL seconds (0: never)",
			   TAKES_KEY | TAKES_TTL},
	[COMMAND_SNAPSHOT] = {"snapshot", "NAME",
			      "let the server write all values into a file of its --snapshot-dir",
			      TAKES_NAME},
	[COMMAND_STATS] = {"stats", "", "print the server's counters", 0},
	[COMMAND_FSCK] = {"fsck", "", "look at all that is stored: what is each byte of the pool?",
			  0},
	[COMMAND_PING] = {"ping", "", "send messages to the server and back, one after the other",
			  0},
	[COMMAND_LIMITS] = {"limits", "", "print the limits of keys, values and times to live", 0},
	[COMMAND_VERSION] = {"version", "", "print the versions of kv-cli and of librkv", 0},
	[COMMAND_HELP] = {"help", "", "print this text", 0},
};

#define ON(command) (1u << COMMAND_##command)
#define ON_STORE (ON(PUT) | ON(ADD) | ON(REPLACE) | ON(CAS))
#define ON_KEY (ON_STORE | ON(GET) | ON(DEL) | ON(TOUCH))
#define ON_SERVER (ON_KEY | ON(SNAPSHOT) | ON(STATS) | ON(FSCK) | ON(PING) | ON(LIMITS))
#define ON_ALL ((1u << COMMAND_COUNT) - 1)

enum option_id {
	OPTION_SERVER,
	OPTION_FABRIC,
	OPTION_TENANT,
	OPTION_SECRET_FILE,
	OPTION_TLS_CA,
	OPTION_TLS_CERT,
	OPTION_TLS_KEY,
	OPTION_TLS_NAME,
	OPTION_TIMEOUT_MS,
	OPTION_KEY_HEX,
	OPTION_KEY_FILE,
	OPTION_VALUE_HEX,
	OPTION_FILE,
	OPTION_TTL,
	OPTION_FLAGS,
	OPTION_HEX,
	OPTION_NEWLINE,
	OPTION_OUT,
	OPTION_META,
	OPTION_JSON,
	OPTION_COUNT,
	OPTION_VERSION,
	OPTION_HELP,
	N_OPTIONS
};

static const struct option_row {
	const char *name;
	char letter;           /* 0: none */
	const char *argument;  /* NULL: takes none */
	unsigned int commands; /* bits of the commands that know it */
	const char *help;
} options[N_OPTIONS] = {
	[OPTION_SERVER] = {"server", 's', "HOST:PORT", ON_SERVER,
			   "the server (else $RKV_SERVER, else " DEFAULT_SERVER ")"},
	[OPTION_FABRIC] = {"fabric", 0, "NAME", ON_SERVER,
			   "verbs, shm or tcp (auto: the best that the server offers)"},
	[OPTION_TENANT] = {"tenant", 0, "NAME", ON_SERVER,
			   "who we are, for a server with --tenants (else $RKV_TENANT)"},
	[OPTION_SECRET_FILE] = {"secret-file", 0, "FILE", ON_SERVER,
				"holds the tenant's secret (else $RKV_SECRET_FILE)"},
	[OPTION_TLS_CA] = {"tls-ca", 0, "FILE", ON_SERVER,
			   "TLS, with a server whose certificate is of this CA (else $RKV_TLS_CA)"},
	[OPTION_TLS_CERT] = {"tls-cert", 0, "FILE", ON_SERVER,
			     "our own certificate (else $RKV_TLS_CERT)"},
	[OPTION_TLS_KEY] = {"tls-key", 0, "FILE", ON_SERVER, "its key (else $RKV_TLS_KEY)"},
	[OPTION_TLS_NAME] = {"tls-name", 0, "NAME", ON_SERVER,
			     "whom the server's certificate is for, if not the host of --server"},
	[OPTION_TIMEOUT_MS] = {"timeout-ms", 0, "N", ON_SERVER,
			       "end connecting, and then the operation, after N ms (5000; 15000 "
			       "for memory that rests)"},
	[OPTION_KEY_HEX] = {"key-hex", 0, "HEX", ON_KEY, "the key in hex digits, in place of KEY"},
	[OPTION_KEY_FILE] = {"key-file", 0, "FILE", ON_KEY,
			     "the key is what FILE holds, in place of KEY"},
	[OPTION_VALUE_HEX] = {"value-hex", 0, "HEX", ON_STORE,
			      "the value in hex digits, in place of VALUE"},
	[OPTION_FILE] = {"file", 0, "FILE", ON_STORE,
			 "the value is what FILE holds, in place of VALUE"},
	[OPTION_TTL] = {"ttl", 0, "SECONDS", ON_STORE,
			"the value is absent after so long (0: it stays)"},
	[OPTION_FLAGS] = {"flags", 0, "N", ON_STORE, "32 bits kept with the value (0)"},
	[OPTION_HEX] = {"hex", 0, NULL, ON(GET), "write the value in hex digits"},
	[OPTION_NEWLINE] = {"newline", 0, NULL, ON(GET),
			    "end the value with a newline; a terminal always gets one"},
	[OPTION_OUT] = {"out", 0, "FILE", ON(GET), "write the value to FILE"},
	[OPTION_META] = {"meta", 0, NULL, ON(GET),
			 "length, version, flags and time to live to standard error"},
	[OPTION_JSON] = {"json", 0, NULL, ON(GET) | ON_STORE | ON(TOUCH),
			 "print one JSON object: what --meta tells and the value in hex"},
	[OPTION_COUNT] = {"count", 'c', "N", ON(PING), "so many messages (1)"},
	[OPTION_VERSION] = {"version", 0, NULL, ON_ALL, "as the command version"},
	[OPTION_HELP] = {"help", 'h', NULL, ON_ALL, "print this text"},
};

/* Options that say the same thing in two ways, or things that exclude each other. */
static const enum option_id exclusive[][2] = {
	{OPTION_KEY_HEX, OPTION_KEY_FILE}, {OPTION_VALUE_HEX, OPTION_FILE},
	{OPTION_JSON, OPTION_HEX},         {OPTION_JSON, OPTION_NEWLINE},
	{OPTION_JSON, OPTION_META},
};

/* getopt's view: option_id + LONG_BASE for each, so that no letter is taken for one. */
#define LONG_BASE 256

/* Words that are no options, in order, and which options were seen. */
struct scan {
	const char *operands[N_OPERANDS_MAX];
	size_t n_operands;
	size_t n_taken;
	unsigned int seen; /* bits of option_id */
};

static int
is_seen(const struct scan *scan, enum option_id id)
{
	return (scan->seen >> id & 1) != 0;
}

static int
parse_number(const char *what, const char *text, uint64_t min, uint64_t max, uint64_t *ret_number)
{
	uint64_t number;
	char *end;

	errno = 0;
	number = strtoull(text, &end, strncmp(text, "0x", 2) == 0 ? 16 : 10);
	if (*text < '0' || *text > '9' || *end)
		return report_usage("%s is a number, not '%s'", what, text);
	if (errno || number < min || number > max)
		return report_usage("%s is %" PRIu64 " to %" PRIu64 ", not %s", what, min, max,
				    text);
	*ret_number = number;
	return 0;
}

static int
parse_u32(const char *what, const char *text, uint32_t min, uint32_t *ret_number)
{
	uint64_t number = 0;
	int status = parse_number(what, text, min, UINT32_MAX, &number);

	if (status == 0)
		*ret_number = (uint32_t)number;
	return status;
}

static int
parse_hex(const char *what, const char *text, struct bytes *bytes)
{
	if (bytes_from_hex(bytes, text) == 0)
		return 0;
	return report_usage("%s takes pairs of hex digits, such as 00ff, not '%s'", what, text);
}

static int
parse_fabric(const char *text, enum rkv_fabric *ret_fabric)
{
	static const char *const names[] = {
		[RKV_FABRIC_AUTO] = "auto",
		[RKV_FABRIC_VERBS] = "verbs",
		[RKV_FABRIC_SHM] = "shm",
		[RKV_FABRIC_TCP] = "tcp",
	};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(text, names[i]) != 0)
			continue;
		*ret_fabric = (enum rkv_fabric)i;
		return 0;
	}
	return report_usage("--fabric is auto, verbs, shm or tcp, not '%s'", text);
}

/* Applies one option. */
static int
apply_option(struct arguments *arguments, enum option_id id, const char *text)
{
	switch (id) {
	case OPTION_SERVER:
		arguments->server = text;
		return 0;
	case OPTION_FABRIC:
		return parse_fabric(text, &arguments->fabric);
	case OPTION_TENANT:
		arguments->tenant = text;
		return 0;
	case OPTION_SECRET_FILE:
		arguments->secret_file = text;
		return 0;
	case OPTION_TLS_CA:
		arguments->tls_ca = text;
		return 0;
	case OPTION_TLS_CERT:
		arguments->tls_cert = text;
		return 0;
	case OPTION_TLS_KEY:
		arguments->tls_key = text;
		return 0;
	case OPTION_TLS_NAME:
		arguments->tls_name = text;
		return 0;
	case OPTION_TIMEOUT_MS:
		if (parse_u32("--timeout-ms", text, 1, &arguments->timeout_ms))
			return REPORT_USAGE;
		arguments->again_ms = arguments->timeout_ms;
		return 0;
	case OPTION_KEY_HEX:
		return parse_hex("--key-hex", text, &arguments->key);
	case OPTION_KEY_FILE:
		arguments->key_file = text;
		return 0;
	case OPTION_VALUE_HEX:
		return parse_hex("--value-hex", text, &arguments->value);
	case OPTION_FILE:
		arguments->value_file = text;
		return 0;
	case OPTION_TTL:
		return parse_u32("--ttl", text, 0, &arguments->ttl_s);
	case OPTION_FLAGS:
		return parse_u32("--flags", text, 0, &arguments->user_flags);
	case OPTION_HEX:
		arguments->as_hex = 1;
		return 0;
	case OPTION_NEWLINE:
		arguments->with_newline = 1;
		return 0;
	case OPTION_OUT:
		arguments->out_file = text;
		return 0;
	case OPTION_META:
		arguments->with_meta = 1;
		return 0;
	case OPTION_JSON:
		arguments->as_json = 1;
		return 0;
	case OPTION_COUNT:
		return parse_u32("--count", text, 1, &arguments->n_pings);
	default: /* --version and --help are commands, see choose_command */
		return 0;
	}
}

/* The name of what getopt refused. */
static int
report_bad_option(char **argv, int result)
{
	const char *word = argv[optind - 1];

	if (result == ':')
		return report_usage("%s needs a value", word);
	if (optopt >= LONG_BASE)
		return report_usage("--%s takes no value", options[optopt - LONG_BASE].name);
	if (optopt)
		return report_usage("there is no option -%c", optopt);
	return report_usage("there is no option %s", word);
}

static int
add_operand(struct scan *scan, const char *word)
{
	if (scan->n_operands == N_OPERANDS_MAX)
		return report_usage("'%s' is one word too many", word);
	scan->operands[scan->n_operands++] = word;
	return 0;
}

/* What getopt_long needs, from our table. letters has room for all of them. */
static void
fill_getopt(struct option *ret_long, char *letters)
{
	*letters++ = '-'; /* hand over words in order: also where POSIXLY_CORRECT is set */
	*letters++ = ':'; /* print nothing */
	for (int i = 0; i < N_OPTIONS; i++) {
		ret_long[i] = (struct option){
			.name = options[i].name,
			.has_arg = options[i].argument ? required_argument : no_argument,
			.val = LONG_BASE + i,
		};
		if (options[i].letter)
			*letters++ = options[i].letter;
		if (options[i].letter && options[i].argument)
			*letters++ = ':';
	}
	ret_long[N_OPTIONS] = (struct option){0};
	*letters = 0;
}

static enum option_id
option_of(int result)
{
	for (int i = 0; i < N_OPTIONS; i++) {
		if (result == LONG_BASE + i || result == options[i].letter)
			return (enum option_id)i;
	}
	return N_OPTIONS;
}

/* Takes the command line apart; what it means together is checked afterwards. */
static int
scan_words(int argc, char **argv, struct scan *scan, struct arguments *arguments)
{
	struct option long_options[N_OPTIONS + 1];
	char letters[2 + 2 * N_OPTIONS + 1];
	int result, status = 0;

	fill_getopt(long_options, letters);
	while (status == 0 &&
	       (result = getopt_long(argc, argv, letters, long_options, NULL)) != -1) {
		enum option_id id = option_of(result);

		if (result == 1) {
			status = add_operand(scan, optarg);
		} else if (id == N_OPTIONS) {
			status = report_bad_option(argv, result);
		} else if (is_seen(scan, id)) {
			status = report_usage("--%s is given twice", options[id].name);
		} else {
			scan->seen |= 1u << id;
			status = apply_option(arguments, id, optarg);
		}
	}
	while (status == 0 && optind < argc) /* what stands behind -- */
		status = add_operand(scan, argv[optind++]);
	return status;
}

static int
choose_command(struct scan *scan, struct arguments *arguments)
{
	int id = 0;

	if (is_seen(scan, OPTION_HELP) || is_seen(scan, OPTION_VERSION)) {
		arguments->command = is_seen(scan, OPTION_HELP) ? COMMAND_HELP : COMMAND_VERSION;
		arguments->command_name = commands[arguments->command].name;
		scan->n_taken = scan->n_operands;
		return 0;
	}
	if (scan->n_operands == 0)
		return report_usage("a command is missing");
	while (id < COMMAND_COUNT && strcmp(scan->operands[0], commands[id].name) != 0)
		id++;
	if (id == COMMAND_COUNT)
		return report_usage("there is no command '%s'", scan->operands[0]);
	arguments->command = (enum command_id)id;
	arguments->command_name = commands[id].name;
	scan->n_taken = 1;
	return 0;
}

static int
check_options(const struct scan *scan, const struct arguments *arguments)
{
	for (int i = 0; i < N_OPTIONS; i++) {
		if (is_seen(scan, (enum option_id)i) &&
		    !(options[i].commands >> arguments->command & 1))
			return report_usage("--%s does not go with %s", options[i].name,
					    arguments->command_name);
	}
	for (size_t i = 0; i < sizeof(exclusive) / sizeof(exclusive[0]); i++) {
		if (is_seen(scan, exclusive[i][0]) && is_seen(scan, exclusive[i][1]))
			return report_usage("--%s and --%s exclude each other",
					    options[exclusive[i][0]].name,
					    options[exclusive[i][1]].name);
	}
	return 0;
}

/* The next word of the command line, NULL behind the last. */
static const char *
take_operand(struct scan *scan)
{
	return scan->n_taken < scan->n_operands ? scan->operands[scan->n_taken++] : NULL;
}

static int
take_key(struct scan *scan, struct arguments *arguments)
{
	const char *word;

	if (is_seen(scan, OPTION_KEY_HEX) || is_seen(scan, OPTION_KEY_FILE))
		return 0;
	word = take_operand(scan);
	if (!word)
		return report_usage("%s needs KEY, --key-hex or --key-file",
				    arguments->command_name);
	if (bytes_set(&arguments->key, word, strlen(word)) < 0)
		return report_system("hold", "the key", REPORT_NO_MEMORY);
	return 0;
}

static int
take_value(struct scan *scan, struct arguments *arguments)
{
	const char *word;

	if (!is_seen(scan, OPTION_VALUE_HEX) && !is_seen(scan, OPTION_FILE)) {
		word = take_operand(scan);
		if (!word || strcmp(word, "-") == 0)
			arguments->value_file = "-";
		else if (bytes_set(&arguments->value, word, strlen(word)) < 0)
			return report_system("hold", "the value", REPORT_NO_MEMORY);
	}
	if (arguments->key_file && arguments->value_file && strcmp(arguments->key_file, "-") == 0 &&
	    strcmp(arguments->value_file, "-") == 0)
		return report_usage("key and value cannot both come from standard input");
	return 0;
}

static int
take_number(struct scan *scan, const struct arguments *arguments, const char *what, uint64_t max,
	    uint64_t *ret_number)
{
	const char *word = take_operand(scan);

	if (!word)
		return report_usage("%s needs %s", arguments->command_name, what);
	return parse_number(what, word, 0, max, ret_number);
}

static int
take_operands(struct scan *scan, struct arguments *arguments)
{
	int takes = commands[arguments->command].takes;
	uint64_t ttl_s = arguments->ttl_s;
	int status = 0;

	if (takes & TAKES_KEY)
		status = take_key(scan, arguments);
	if (status == 0 && takes & TAKES_VERSION)
		status = take_number(scan, arguments, "VERSION", UINT64_MAX, &arguments->version);
	if (status == 0 && takes & TAKES_TTL)
		status = take_number(scan, arguments, "TTL", UINT32_MAX, &ttl_s);
	if (status == 0 && takes & TAKES_VALUE)
		status = take_value(scan, arguments);
	if (status == 0 && takes & TAKES_NAME) {
		arguments->snapshot = take_operand(scan);
		if (!arguments->snapshot || !*arguments->snapshot)
			status = report_usage("%s needs NAME", arguments->command_name);
	}
	if (status == 0 && scan->n_taken < scan->n_operands)
		status = report_usage("'%s' is one word too many", scan->operands[scan->n_taken]);
	arguments->ttl_s = (uint32_t)ttl_s;
	return status;
}

/* What the environment says; NULL: nothing. */
static const char *
environment(const char *name)
{
	const char *text = getenv(name);

	return text && *text ? text : NULL;
}

int
arguments_parse(int argc, char **argv, struct arguments *ret_arguments)
{
	const char *server = environment("RKV_SERVER");
	struct scan scan = {0};
	int status;

	*ret_arguments = (struct arguments){
		.server = server ? server : DEFAULT_SERVER,
		.tenant = environment("RKV_TENANT"),
		.secret_file = environment("RKV_SECRET_FILE"),
		.tls_ca = environment("RKV_TLS_CA"),
		.tls_cert = environment("RKV_TLS_CERT"),
		.tls_key = environment("RKV_TLS_KEY"),
		.timeout_ms = DEFAULT_TIMEOUT_MS,
		.again_ms = DEFAULT_AGAIN_MS,
		.n_pings = 1,
	};
	status = scan_words(argc, argv, &scan, ret_arguments);
	if (status == 0)
		status = choose_command(&scan, ret_arguments);
	if (status == 0)
		status = check_options(&scan, ret_arguments);
	if (status == 0)
		status = take_operands(&scan, ret_arguments);
	return status;
}

void
arguments_release(struct arguments *arguments)
{
	bytes_release(&arguments->key);
	bytes_release(&arguments->value);
}

int
arguments_has_key(const struct arguments *arguments)
{
	return (commands[arguments->command].takes & TAKES_KEY) != 0;
}

int
arguments_has_value(const struct arguments *arguments)
{
	return (commands[arguments->command].takes & TAKES_VALUE) != 0;
}

void
arguments_help(FILE *out)
{
	char left[64];

	fputs("usage: kv-cli [OPTION...] COMMAND [KEY] [VALUE]\n"
	      "Reads and writes the keys of an rkv server.\n\nCommands:\n",
	      out);
	for (int i = 0; i < COMMAND_COUNT; i++) {
		snprintf(left, sizeof(left), "%s %s", commands[i].name, commands[i].operands);
		fprintf(out, "  %-25s %s\n", left, commands[i].help);
	}
	fputs("A VALUE that is '-' or not given is read from standard input. A word that begins\n"
	      "with '-' goes behind '--'. put, add, replace, cas and touch print the new "
	      "version.\n\n"
	      "Options:\n",
	      out);
	for (int i = 0; i < N_OPTIONS; i++) {
		const struct option_row *option = &options[i];
		char letter[] = {'-', option->letter, ',', ' ', 0};

		snprintf(left, sizeof(left), "%s--%s%s%s", option->letter ? letter : "    ",
			 option->name, option->argument ? " " : "",
			 option->argument ? option->argument : "");
		fprintf(out, "  %-25s %s\n", left, option->help);
	}
	fputs("\nExit codes:\n", out);
	report_exit_codes(out);
}
