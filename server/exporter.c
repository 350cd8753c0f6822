/* SPDX-License-Identifier: BSD-2-Clause */
/* Metrics over HTTP: exporter.h. */
#include "server/exporter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/exposition.h"
#include "server/text.h"

#define REQUEST_MAX 4096u /* bytes of a request: its line, its headers and an empty line */
#define HEAD_MAX 512u     /* bytes of an answer's status and headers */
#define SCRAPES_MAX 16u   /* connections at a time */

struct scrape {
	struct conn conn; /* first */
	struct exporter *exporter;
	LIST_ENTRY(scrape) entry;
};

/* ---- Answers ---- */

/* Answers and closes; head: status, and further headers, each line ended. */
static void
answer(struct scrape *scrape, const char *head, const char *body, size_t len)
{
	char text[HEAD_MAX];
	int n = snprintf(text, sizeof(text),
			 "HTTP/1.1 %sContent-Length: %zu\r\nConnection: close\r\n\r\n", head, len);
	conn_send(&scrape->conn, text, (size_t)n);
	conn_send(&scrape->conn, body, len);
	conn_finish(&scrape->conn, &scrape->exporter->asking);
}

static void
answer_error(struct scrape *scrape, const char *status, const char *more, const char *sentence)
{
	char head[256];
	scrape->exporter->n_refused++;
	snprintf(head, sizeof(head), "%s\r\n%sContent-Type: text/plain; charset=utf-8\r\n", status,
		 more);
	answer(scrape, head, sentence, strlen(sentence));
}

static void
answer_metrics(struct scrape *scrape)
{
	char *body;
	size_t len;
	if (exposition_text(scrape->exporter->service, &body, &len)) {
		answer_error(scrape, "503 Service Unavailable", "", "no memory is left\n");
		return;
	}
	scrape->exporter->n_scrapes++;
	answer(scrape, "200 OK\r\nContent-Type: " EXPOSITION_CONTENT_TYPE "\r\n", body, len);
	free(body);
}

/* ---- Requests ---- */

/* Bytes up to and with the empty line, or 0: it is not there yet. */
static size_t
head_len(const char *bytes, size_t len)
{
	for (const char *at = bytes; (at = memchr(at, '\n', len - (size_t)(at - bytes)));) {
		size_t done = (size_t)(++at - bytes);
		if (done < len && at[0] == '\n')
			return done + 1;
		if (done + 1 < len && at[0] == '\r' && at[1] == '\n')
			return done + 2;
	}
	return 0;
}

/* Can it be the beginning of a request? Printable bytes with line breaks and tabs. */
static bool
is_text(const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)bytes[i];
		if (c == 0x7f || (c < ' ' && c != '\r' && c != '\n' && c != '\t'))
			return false;
	}
	return true;
}

struct request {
	char method[16];
	char path[256];
};

/* METHOD PATH HTTP/1.x; what follows a question mark in the path does not count. */
static bool
parse(const char *bytes, size_t len, struct request *ret_request)
{
	char line[512];
	int end = 0;
	size_t line_len = strcspn(bytes, "\r\n");
	if (line_len >= sizeof(line) || line_len >= len)
		return false;
	memcpy(line, bytes, line_len);
	line[line_len] = '\0';
	if (sscanf(line, "%15[A-Z] %255[!-~] HTTP/1.%*1[01]%n", ret_request->method,
		   ret_request->path, &end) != 2 ||
	    end != (int)line_len || ret_request->path[0] != '/')
		return false;
	ret_request->path[strcspn(ret_request->path, "?")] = '\0';
	return true;
}

static size_t
measure(struct conn *conn, const void *bytes, size_t len)
{
	struct scrape *scrape = (struct scrape *)conn;
	size_t seen = len < REQUEST_MAX ? len : REQUEST_MAX;
	size_t need = head_len(bytes, seen);
	if (!is_text(bytes, need ? need : seen))
		answer_error(scrape, "400 Bad Request", "", "this is no HTTP request\n");
	else if (need)
		return need;
	else if (len < REQUEST_MAX)
		return REQUEST_MAX;
	else
		answer_error(scrape, "431 Request Header Fields Too Large", "",
			     "a request is at most 4096 bytes long here\n");
	return SIZE_MAX;
}

static void
message(struct conn *conn, const void *bytes, size_t len)
{
	struct scrape *scrape = (struct scrape *)conn;
	struct request request;
	if (!parse(bytes, len, &request))
		answer_error(scrape, "400 Bad Request", "",
			     "this is no request of HTTP/1.0 or HTTP/1.1\n");
	else if (strcmp(request.path, EXPORTER_PATH) != 0)
		answer_error(scrape, "404 Not Found", "", "there is " EXPORTER_PATH " only\n");
	else if (strcmp(request.method, "GET") != 0)
		answer_error(scrape, "405 Method Not Allowed", "Allow: GET\r\n",
			     "metrics can be read only: GET\n");
	else
		answer_metrics(scrape);
}

static void
forget(struct scrape *scrape)
{
	LIST_REMOVE(scrape, entry);
	scrape->exporter->n--;
	free(scrape);
}

static void
closed(struct conn *conn)
{
	forget((struct scrape *)conn);
}

static const struct conn_events scrape_events = {measure, message, NULL, closed};

/* ---- Connections ---- */

static struct exporter *
exporter_of(struct loop_listener *listener)
{
	return (struct exporter *)(void *)((char *)listener - offsetof(struct exporter, listener));
}

static void
accepted(struct loop_listener *listener, int fd)
{
	struct exporter *exporter = exporter_of(listener);
	struct scrape *scrape = malloc(sizeof(*scrape));
	if (exporter->n >= SCRAPES_MAX) {
		conn_queue_drop_first(&exporter->asking);
		exporter->n_refused++;
	}
	if (!scrape) {
		exporter->n_refused++;
		close(fd);
		return;
	}
	scrape->exporter = exporter;
	if (conn_open(&scrape->conn, listener->loop, fd, NULL, &scrape_events, &exporter->asking)) {
		free(scrape);
		return;
	}
	scrape->conn.out_max = EXPOSITION_TEXT_MAX + HEAD_MAX;
	LIST_INSERT_HEAD(&exporter->scrapes, scrape, entry);
	exporter->n++;
}

static void
refused_for_files(struct loop_listener *listener, int fd)
{
	(void)fd;
	exporter_of(listener)->n_refused++;
}

int
exporter_start(struct exporter *exporter, struct service *service, struct loop *loop, int fd)
{
	exporter->service = service;
	conn_queue_init(&exporter->asking, LIMIT_HANDSHAKE_MS);
	if (fd < 0)
		return 0;
	exporter->listener.accepted = accepted;
	exporter->listener.refused = refused_for_files;
	return loop_listen(loop, &exporter->listener, fd);
}

void
exporter_expire(struct exporter *exporter, int64_t now_ns)
{
	conn_queue_expire(&exporter->asking, now_ns);
}

void
exporter_destroy(struct exporter *exporter)
{
	struct scrape *scrape;
	while ((scrape = LIST_FIRST(&exporter->scrapes))) {
		conn_release(&scrape->conn);
		forget(scrape);
	}
	loop_listener_close(&exporter->listener);
}
