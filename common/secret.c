/* SPDX-License-Identifier: BSD-2-Clause */
/* Secrets in files: secret.h. What is checked is the open file, not what its name says later. */
#include "common/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/err.h"

#define FILE_MAX (LIMIT_SECRET_MAX + 64u) /* of a file with one secret */
#define PATH_SHOWN 200

void
secret_wipe(void *memory, size_t len)
{
	explicit_bzero(memory, len);
}

/* Who could read or change it? NULL: nobody else. */
static const char *
what_is_open(const struct stat *st)
{
	bool is_roots = st->st_uid == 0 && st->st_gid == 0;
	if (!S_ISREG(st->st_mode))
		return "not a regular file: give the path of a text file";
	if (st->st_uid != 0 && st->st_uid != geteuid())
		return "it belongs to another user, who could read and change it: chown it to the "
		       "user of this process, or to root";
	if (st->st_mode & (is_roots ? S_IWGRP : S_IRWXG))
		return "its group may use it: chmod 600";
	if (st->st_mode & S_IRWXO)
		return "everybody may use it: chmod 600";
	return NULL;
}

static int
read_all(int fd, char *text, size_t room, size_t *ret_len)
{
	size_t len = 0;
	while (len < room) {
		ssize_t n = read(fd, text + len, room - len);
		if (n == 0)
			break;
		if (n < 0 && errno != EINTR)
			return errno;
		len += n > 0 ? (size_t)n : 0;
	}
	*ret_len = len;
	return 0;
}

int
secret_read_file(const char *path, char *text, size_t room, size_t *ret_len,
		 char reason[NET_REASON_MAX])
{
	struct stat st;
	size_t len = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	int error = fd < 0 || fstat(fd, &st) ? errno : 0;
	const char *wrong = error ? NULL : what_is_open(&st);
	if (!error && !wrong)
		error = read_all(fd, text, room, &len);
	if (fd >= 0)
		close(fd);
	if (error)
		snprintf(reason, NET_REASON_MAX,
			 "%.*s: %s: give the path of a file that this user may read", PATH_SHOWN,
			 path, strerror(error));
	else if (wrong)
		snprintf(reason, NET_REASON_MAX, "%.*s: %s", PATH_SHOWN, path, wrong);
	else if (len == room)
		snprintf(reason, NET_REASON_MAX,
			 "%.*s: a file of this kind has at most %zu bytes: is this the right one?",
			 PATH_SHOWN, path, room - 1);
	if (error)
		return error == EMFILE || error == ENFILE ? ERR_NOMEM : ERR_PERM;
	if (wrong)
		return ERR_PERM;
	if (len == room)
		return ERR_INVALID;
	text[len] = '\0';
	*ret_len = len;
	return 0;
}

int
secret_take(struct secret *secret, const char *word, size_t len, char reason[NET_REASON_MAX])
{
	if (len < LIMIT_SECRET_MIN || len > LIMIT_SECRET_MAX) {
		snprintf(reason, NET_REASON_MAX,
			 "a secret has %u to %u characters, not %zu: " SECRET_REMEDY,
			 LIMIT_SECRET_MIN, LIMIT_SECRET_MAX, len);
		return ERR_INVALID;
	}
	for (size_t i = 0; i < len; i++) {
		if (word[i] > ' ' && word[i] <= '~')
			continue;
		snprintf(reason, NET_REASON_MAX,
			 "a secret is one word of printable ASCII: " SECRET_REMEDY);
		return ERR_INVALID;
	}
	memcpy(secret->bytes, word, len);
	secret->len = len;
	return 0;
}

int
secret_load(const char *path, struct secret *ret_secret, char reason[NET_REASON_MAX])
{
	static const char blanks[] = " \t\r\n";
	char text[FILE_MAX + 1], why[NET_REASON_MAX];
	struct secret secret = {0};
	size_t len;
	int rc = secret_read_file(path, text, sizeof(text), &len, reason);
	if (rc)
		return rc;
	const char *word = text + strspn(text, blanks);
	size_t end = len;
	while (end > (size_t)(word - text) && strchr(blanks, text[end - 1]))
		end--;
	rc = secret_take(&secret, word, end - (size_t)(word - text), why);
	if (rc)
		snprintf(reason, NET_REASON_MAX, "%.*s: %.200s", PATH_SHOWN, path, why);
	else
		*ret_secret = secret;
	secret_wipe(text, sizeof(text));
	secret_wipe(&secret, sizeof(secret));
	return rc;
}
