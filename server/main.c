/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kv-server: start and stop.
 *
 *   options -> sockets bound, fabric chosen -> region reserved, formatted, opened -> loop runs ->
 *   "ready"
 *   with a pool file: port bound, file locked and judged, fabric chosen -> former clients gone ->
 *   region opened for another life, or formatted
 *   SIGTERM, SIGINT -> connections closed -> pool declared dead -> port given up -> exit 0
 *
 * Sockets are bound first, because that fails at once and reserving memory may take a while; they
 * are closed last, so that the next server cannot serve before this one's memory has ceased to
 * count.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/err.h"
#include "common/loop.h"
#include "server/check.h"
#include "server/fsck_file.h"
#include "server/guard.h"
#include "server/warm.h"
#include "server/service.h"
#include "server/notify.h"
#include "server/options.h"
#include "server/region.h"
#include "server/release.h"
#include "server/waiting.h"

#define EXIT_USAGE 2
#define BACKLOG 1024 /* of the metrics port */

/* A region, and what it is made of. */
struct place {
	struct options options; /* for it alone */
	struct pool_file file;
	struct region region;
	struct peers peers;
};

struct program {
	struct options options;
	struct log log;
	struct loop *loop;
	unsigned n_places;
	struct place *places;
	struct guard guard;
	struct service *service;
	struct ports ports;
	int unix_fd;
	int metrics_fd;
	struct handout_file unix_file;
	int signal_fd;
	struct loop_op signal_op;
};

/* ---- Signals ---- */

static void
exit_at_once(int signal)
{
	_exit(128 + signal);
}

/* SIGHUP: what is read again is what may change while the server runs. */
static void
reload(struct program *p)
{
	const struct guard_files files = options_guard_files(&p->options);
	if (p->guard.tenants || p->guard.tls)
		service_reload(p->service, &files);
	else
		log_line(&p->log, LOG_INFO, "SIGHUP: there is nothing to read again");
}

static void stop_at_signal(struct program *p, int signal);

static void
signal_done(struct loop_op *op, int result)
{
	struct program *p = (void *)((char *)op - offsetof(struct program, signal_op));
	struct signalfd_siginfo info;
	if (result == -ECANCELED || read(p->signal_fd, &info, sizeof(info)) != sizeof(info))
		return;
	if (info.ssi_signo != SIGHUP) {
		stop_at_signal(p, (int)info.ssi_signo);
		return;
	}
	reload(p);
	loop_poll(p->loop, op, p->signal_fd, POLLIN, signal_done);
}

/* The first signal stops the loop; from then on the next one ends the process on the spot. */
static void
stop_at_signal(struct program *p, int signal)
{
	struct sigaction action = {.sa_handler = exit_at_once};
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	log_line(&p->log, LOG_INFO, "stopping (%s)", strsignal(signal));
	notify_send("STOPPING=1");
	loop_stop(p->loop);
}

static int
watch_signals(struct program *p)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	p->signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
	if (p->signal_fd < 0) {
		log_line(&p->log, LOG_ERROR, "signalfd: %s", strerror(errno));
		return err_from_errno(errno);
	}
	sigprocmask(SIG_BLOCK, &set, NULL);
	loop_poll(p->loop, &p->signal_op, p->signal_fd, POLLIN, signal_done);
	return 0;
}

/* ---- Start ---- */

static int
load_guard(struct program *p)
{
	char reason[NET_REASON_MAX];
	const struct guard_files files = options_guard_files(&p->options);
	int rc = guard_init(&p->guard, &files, &p->log, reason);
	if (rc)
		log_line(&p->log, LOG_ERROR, "%s", reason);
	return rc;
}

static void
warn_of_exposure(const struct program *p)
{
	unsigned i = 0;
	while (i < p->ports.n && net_is_loopback(&p->ports.port[i].bound))
		i++;
	if (i == p->ports.n)
		return;
	if (!p->guard.tenants)
		log_line(&p->log, LOG_WARN,
			 "--insecure: whoever can reach the control port may read and write "
			 "everything");
	else if (!p->guard.tls)
		log_line(&p->log, LOG_WARN,
			 "the control connection is not encrypted: who can read the network learns "
			 "R_Keys and tokens: give --tls-cert and --tls-key");
}

/* Nothing is accepted before the loop runs: what is bound may still be given up. */
static int
bind_control_port(struct program *p)
{
	char reason[NET_REASON_MAX];
	int rc = ports_open(&p->ports, p->options.listen, p->options.n_listen, reason);
	for (unsigned i = 0; rc == 0 && i < p->ports.n; i++)
		rc = options_check_exposure(&p->options, &p->ports.port[i].bound, reason);
	if (rc)
		log_line(&p->log, LOG_ERROR, "%s", reason);
	else
		warn_of_exposure(p);
	return rc;
}

static int
bind_metrics_port(struct program *p)
{
	char reason[NET_REASON_MAX], text[NET_TEXT_MAX];
	struct net_address bound;
	if (!p->options.metrics_listen.host[0])
		return 0;
	int rc = net_listen(&p->options.metrics_listen, BACKLOG, &p->metrics_fd, &bound, reason);
	if (rc) {
		log_line(&p->log, LOG_ERROR, "--metrics-listen: %s", reason);
		return rc;
	}
	net_format(&bound, text);
	log_line(&p->log, LOG_INFO, "metrics at http://%s" EXPORTER_PATH, text);
	return 0;
}

/* The socket that hands out pools, if they shall be handed out, [ONE-AGENT]. */
static int
bind_unix_socket(struct program *p)
{
	char reason[NET_REASON_MAX];
	char *path = p->options.socket;
	if (p->places[0].region.device || p->unix_fd >= 0 || p->options.fabric == OPTIONS_TCP)
		return 0;
	if (!path[0])
		snprintf(path, sizeof(p->options.socket), "@rkv-%d-%u", (int)getpid(),
			 p->ports.port[0].bound.port);
	int rc = handout_listen(path, &p->unix_fd, &p->unix_file, reason);
	if (rc)
		log_line(&p->log, LOG_ERROR, "%s", reason);
	return rc;
}

static int
make_places(struct program *p)
{
	unsigned n = options_n_regions(&p->options);
	p->places = calloc(n, sizeof(*p->places));
	if (!p->places) {
		log_line(&p->log, LOG_ERROR, "no memory is left");
		return ERR_NOMEM;
	}
	for (; p->n_places < n; p->n_places++) {
		options_of_region(&p->options, p->n_places, &p->places[p->n_places].options);
		p->places[p->n_places].file.fd = -1;
	}
	return 0;
}

/*
 * Before any device: its connections end before the lock of the file is given up, and so before the
 * next server can have it (proto/decisions, 6).
 */
static int
open_file(struct program *p, struct place *place)
{
	char reason[POOL_FILE_REASON_MAX];
	enum warm_kind kind;
	if (!place->options.pool_file[0])
		return 0;
	int rc = pool_file_open(place->options.pool_file, true, &place->file, reason);
	if (rc == 0)
		rc = warm_judge(&place->file, &place->options, &kind, reason);
	if (rc)
		log_line(&p->log, LOG_ERROR, "%s", reason);
	return rc;
}

static int
open_files(struct program *p)
{
	int rc = make_places(p);
	for (unsigned i = 0; rc == 0 && i < p->n_places; i++)
		rc = open_file(p, &p->places[i]);
	return rc;
}

static int
create_region(struct program *p, struct place *place)
{
	const struct region_events events = peers_events(&place->peers);
	if (place->options.pool_file[0]) {
		place->region.file = &place->file;
		place->region.waited_ms = waiting_for_former(&place->file, &p->ports, &p->log);
	}
	return region_create(&place->region, &place->options, &events);
}

/* Those behind the first have the fabric that the first has got. */
static int
open_more_regions(struct program *p)
{
	int rc = 0;
	bool is_verbs = p->places[0].region.verbs != NULL;
	for (unsigned i = 1; rc == 0 && i < p->n_places; i++) {
		struct place *place = &p->places[i];
		options_settle_fabric(&place->options, is_verbs);
		rc = region_choose(&place->region, &place->options, &p->ports.port[0].bound,
				   &p->log);
		if (rc == 0)
			rc = create_region(p, place);
		if (rc)
			log_line(&p->log, LOG_ERROR,
				 "region %s could not be opened: what --pool-size and --restore "
				 "are for the first one, --region %s:SIZE:SNAPSHOT is for it",
				 place->options.region_name, place->options.region_name);
		else
			log_line(&p->log, LOG_INFO, "region %s: pool %" PRIu64 " bytes",
				 place->options.region_name, place->region.layout.region_len);
	}
	return rc;
}

/* Without verbs the socket is bound before the memory is reserved; or else when it turns out so. */
static int
open_regions(struct program *p)
{
	int rc = open_files(p);
	if (rc)
		return rc;
	struct place *first = &p->places[0];
	rc = region_choose(&first->region, &first->options, &p->ports.port[0].bound, &p->log);
	if (rc == 0)
		rc = bind_unix_socket(p);
	if (rc == 0)
		rc = create_region(p, first);
	if (rc == 0)
		rc = bind_unix_socket(p);
	if (rc == 0)
		rc = open_more_regions(p);
	return rc;
}

/* One line with one call, for whoever waits for it. */
static void
say_ready(const struct program *p)
{
	const struct region *region = &p->places[0].region;
	const struct layout *layout = &region->layout;
	struct fab_offer offer;
	char text[PORTS_MAX * NET_TEXT_MAX];
	ports_format(&p->ports, text, sizeof(text));
	region_offer(region, &offer);
	const char *what = region->verbs ? ", address " : p->unix_fd >= 0 ? ", socket " : "";
	const char *where = region->verbs ? offer.verbs_address : p->options.socket;
	printf("kv-server: ready on %s, pool %" PRIu64 " bytes, %" PRIu64 " chunks of %" PRIu64
	       " bytes, index %" PRIu64 " slots, fabric %s%s%.*s\n",
	       text, layout->region_len, layout->n_chunks, layout->chunk_size,
	       layout->n_groups * LAYOUT_GROUP_SLOTS, region_fabric(region), what,
	       what[0] ? LIMIT_PATH_MAX : 0, where);
	fflush(stdout);
	notify_send("READY=1");
}

static int
serve_regions(struct program *p)
{
	struct service_region regions[LIMIT_REGIONS];
	for (unsigned i = 0; i < p->n_places; i++) {
		struct place *place = &p->places[i];
		regions[i] =
			(struct service_region){&place->options, &place->region, &place->peers};
	}
	const struct service_setup setup = {
		.loop = p->loop,
		.log = &p->log,
		.regions = regions,
		.n_regions = p->n_places,
		.options = &p->options,
		.ports = &p->ports,
		.guard = &p->guard,
		.unix_fd = p->unix_fd,
		.unix_path = p->unix_fd >= 0 ? p->options.socket : "",
		.metrics_fd = p->metrics_fd,
	};
	return service_create(&setup, &p->service);
}

static int
start(struct program *p)
{
	char reason[NET_REASON_MAX];
	int rc = check_raise_files(&p->options, reason);
	if (rc)
		log_line(&p->log, LOG_ERROR, "%s", reason);
	else
		rc = loop_create(&p->log, &p->loop);
	if (rc == 0)
		rc = load_guard(p);
	if (rc == 0)
		rc = bind_control_port(p);
	if (rc == 0)
		rc = bind_metrics_port(p);
	if (rc == 0)
		rc = open_regions(p);
	if (rc == 0)
		rc = watch_signals(p);
	return rc ? rc : serve_regions(p);
}

/* ---- Stop ---- */

static void
close_if_open(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void
stop(struct program *p)
{
	if (p->unix_fd >= 0)
		handout_remove(p->options.socket, &p->unix_file);
	loop_destroy(p->loop);
	service_destroy(p->service);
	guard_destroy(&p->guard);
	for (unsigned i = 0; i < p->n_places; i++)
		region_destroy(&p->places[i].region);
	for (unsigned i = 0; i < p->n_places; i++)
		pool_file_close(&p->places[i].file);
	free(p->places);
	ports_close(&p->ports);
	close_if_open(p->unix_fd);
	close_if_open(p->metrics_fd);
	close_if_open(p->signal_fd);
}

static int
serve(const struct options *options)
{
	struct program p = {
		.options = *options,
		.log = {.sink = log_to_stderr,
			.arg = (void *)(uintptr_t) "kv-server",
			.max_level = options->log_level},
		.unix_fd = -1,
		.metrics_fd = -1,
		.signal_fd = -1,
	};
	int rc = start(&p);
	if (rc == 0) {
		say_ready(&p);
		rc = loop_run(p.loop);
	}
	stop(&p);
	return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int
fsck(const struct options *options)
{
	char reason[NET_REASON_MAX];
	int rc = fsck_file(options->fsck_path, stdout, reason);
	if (rc < 0)
		fprintf(stderr, "kv-server: %s\n", reason);
	return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}

int
main(int argc, char *argv[])
{
	static struct options options;
	char reason[NET_REASON_MAX];
	(void)argc;
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* the write says EFBIG, and the server goes on */
	if (options_parse(&options, argv, reason)) {
		fprintf(stderr, "kv-server: %s\n", reason);
		return EXIT_USAGE;
	}
	switch (options.action) {
	case OPTIONS_HELP:
		options_help(stdout);
		return EXIT_SUCCESS;
	case OPTIONS_VERSION:
		printf("kv-server %s\n", release_version);
		return EXIT_SUCCESS;
	case OPTIONS_CHECK:
		return check_run(&options, stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
	case OPTIONS_FSCK:
		return fsck(&options);
	case OPTIONS_SERVE:
		return serve(&options);
	}
	return EXIT_FAILURE;
}
