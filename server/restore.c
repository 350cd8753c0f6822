/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading a snapshot file, piece by piece: restore.h. records.c judges, loader.c stores. */
#include "server/restore.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "server/loader.h"
#include "server/notify.h"

#define PIECE ((size_t)1 << 20) /* read at once */
#define TELL_NS (10 * CLOCK_NS_PER_S)
/*
 * Serials go on behind the snapshot's, and some further, as sessions that joined after it had
 * serials too. What is above RENEW_ABOVE has been restored too often: all versions are renewed.
 */
#define SERIAL_GAP (UINT64_C(1) << 20)
#define RENEW_ABOVE (UINT64_C(3) << 30)

struct source {
	const char *path;
	const struct log *log;
	int fd;
	unsigned char *bytes;
	size_t len;   /* bytes there, */
	size_t taken; /* of which so many were taken */
	size_t capacity;
	int64_t tell_ns;
	struct records records;
	struct loader loader;
};

/* ---- The file ---- */

static int
cannot_read(const struct source *s, const char *verb, int error)
{
	log_line(s->log, LOG_ERROR, "--restore %s: the file cannot be %s: %s", s->path, verb,
		 strerror(error));
	return err_from_errno(error);
}

/* Makes sure that `want` bytes are there that were not taken, or all that the file has. */
static int
fill(struct source *s, size_t want)
{
	if (s->taken)
		memmove(s->bytes, s->bytes + s->taken, s->len - s->taken);
	s->len -= s->taken;
	s->taken = 0;
	if (want + PIECE > s->capacity) {
		unsigned char *bytes = realloc(s->bytes, want + PIECE);
		if (!bytes) {
			log_line(s->log, LOG_ERROR, "--restore %s: no memory is left", s->path);
			return ERR_NOMEM;
		}
		s->bytes = bytes;
		s->capacity = want + PIECE;
	}
	while (s->len < want) {
		ssize_t n = read(s->fd, s->bytes + s->len, s->capacity - s->len);
		if (n < 0 && errno != EINTR)
			return cannot_read(s, "read", errno);
		if (n == 0)
			return 0;
		s->len += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

static int
refuse(const struct source *s, int rc, const char *why)
{
	log_line(s->log, LOG_ERROR,
		 "--restore %s: %s (at byte %" PRIu64 ", behind %" PRIu64
		 " good records): nothing was restored; use another snapshot",
		 s->path, why, s->records.off, s->records.n);
	return rc;
}

/* A service manager shall not think that the start hangs. */
static void
tell_progress(struct source *s)
{
	int64_t now_ns = clock_now_ns();
	if (now_ns < s->tell_ns)
		return;
	s->tell_ns = now_ns + TELL_NS;
	notify_send("EXTEND_TIMEOUT_USEC=60000000");
	log_line(s->log, LOG_INFO, "restoring: %" PRIu64 " records so far", s->records.n);
}

/* ---- Records ---- */

/* The next record, or ERR_NOT_FOUND: the end is taken. */
static int
next_record(struct source *s, struct record *ret_record)
{
	const char *why;
	size_t want = 0;
	for (;;) {
		size_t left = s->len - s->taken;
		int rc = records_next(&s->records, s->bytes + s->taken, left, ret_record, &want,
				      &why);
		if (rc == 0 || rc == ERR_NOT_FOUND)
			s->taken += want;
		if (rc < 0)
			return refuse(s, rc, why);
		if (rc != ERR_AGAIN)
			return rc;
		rc = fill(s, want);
		if (rc)
			return rc;
		if (s->len < want)
			return refuse(s, ERR_CORRUPT, "the file is cut off");
	}
}

static int
read_all(struct source *s)
{
	const char *why;
	struct record record;
	int rc = fill(s, sizeof(struct snapfile_header));
	if (rc)
		return rc;
	rc = records_open(&s->records, s->bytes, s->len, &why);
	if (rc)
		return refuse(s, rc, why);
	s->taken = sizeof(struct snapfile_header);
	while ((rc = next_record(s, &record)) == 0) {
		(void)loader_put(&s->loader, &record); /* it keeps its status */
		tell_progress(s);
	}
	if (rc != ERR_NOT_FOUND)
		return rc;
	rc = fill(s, SNAPFILE_PAGE);
	if (rc)
		return rc;
	rc = records_close(&s->records, s->bytes, s->len, &why);
	return rc ? refuse(s, rc, why) : 0;
}

static int
does_not_fit(const struct source *s)
{
	static const char *const what[] = {
		[-ERR_NO_SPACE] = "the pool is too small",
		[-ERR_INDEX_FULL] = "the index is too small",
		[-ERR_TOO_BIG] = "a value is larger than a chunk",
	};
	struct loader_needs needs = loader_needs(&s->loader);
	log_line(s->log, LOG_ERROR,
		 "--restore %s: %s for the %" PRIu64
		 " records of this snapshot: start with --pool-size %" PRIu64
		 "M --chunk-size %" PRIu64 "K --index-slots %" PRIu64 ", or more",
		 s->path, what[-s->loader.status], s->records.n, needs.region_len >> 20,
		 needs.chunk_size >> 10, needs.index_slots);
	return s->loader.status;
}

static uint64_t
choose_serial(struct source *s, uint32_t random_serial)
{
	uint64_t next = s->records.end.next_serial;
	if (next > RENEW_ABOVE) {
		log_line(s->log, LOG_WARN,
			 "--restore %s: its versions are near their end: all values get new ones",
			 s->path);
		loader_renew_versions(&s->loader, random_serial);
		return (uint64_t)random_serial + 1;
	}
	return random_serial > next ? random_serial : next + random_serial % SERIAL_GAP;
}

static void
report(const struct source *s, struct restored *ret)
{
	*ret = (struct restored){
		.n_records = s->loader.n_placed,
		.n_expired = s->loader.n_expired,
		.n_bytes = s->records.off + s->len,
		.began_s = s->records.header.began_s,
		.first_serial = ret->first_serial,
	};
	log_line(s->log, LOG_INFO,
		 "restored %" PRIu64 " keys from %s, taken by region %016" PRIx64 " (%" PRIu64
		 " records, of which %" PRIu64 " had expired and %" PRIu64 " came again)",
		 ret->n_records, s->path, s->records.header.region_id, s->records.n, ret->n_expired,
		 s->loader.n_replaced);
}

int
restore_file(const char *path, void *base, const struct layout *layout, uint32_t random_serial,
	     const struct log *log, struct restored *ret)
{
	struct source s = {.path = path, .log = log, .tell_ns = clock_now_ns() + TELL_NS};
	loader_init(&s.loader, base, layout);
	s.fd = open(path, O_RDONLY | O_CLOEXEC);
	if (s.fd < 0)
		return cannot_read(&s, "opened", errno);
	(void)posix_fadvise(s.fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	int rc = read_all(&s);
	if (rc == 0 && s.loader.status)
		rc = does_not_fit(&s);
	if (rc == 0) {
		ret->first_serial = choose_serial(&s, random_serial);
		report(&s, ret);
	}
	close(s.fd);
	free(s.bytes);
	return rc;
}
