/* SPDX-License-Identifier: BSD-2-Clause */
/* The words that belong to the codes of err.h, and the one place where an errno becomes a code. */
#include "common/err.h"

#include <errno.h>

const char *
err_str(int code)
{
	switch (code) {
	case 0:
		return "OK: done";
	case ERR_NOT_FOUND:
		return "NOT_FOUND: the key is absent";
	case ERR_EXISTS:
		return "EXISTS: the key is there already";
	case ERR_MISMATCH:
		return "MISMATCH: another version is there; read it and decide again";
	case ERR_AGAIN:
		return "AGAIN: too much is in flight, or freed memory still rests; retry a little "
		       "later";
	case ERR_TIMEOUT:
		return "TIMEOUT: the deadline passed; a mutation may have been applied, so read "
		       "before "
		       "repeating it";
	case ERR_MAYBE:
		return "MAYBE: the connection was lost at a moment when the mutation may have been "
		       "applied; read before repeating it";
	case ERR_NO_SPACE:
		return "NO_SPACE: the pool is full; delete something, or give the server a larger "
		       "--pool-size";
	case ERR_INDEX_FULL:
		return "INDEX_FULL: the key's buckets have no empty slot; give the server more "
		       "--index-slots";
	case ERR_TOO_BIG:
		return "TOO_BIG: the key or the value is above the limit; rkv_limits tells it";
	case ERR_TOO_SMALL:
		return "TOO_SMALL: the buffer is shorter than the value; its length was returned";
	case ERR_INVALID:
		return "INVALID: an argument, or the state of the object, does not allow the call";
	case ERR_CONN:
		return "CONN: no connection to the server; nothing was applied, so it may be "
		       "retried";
	case ERR_VERSION:
		return "VERSION: server and client do not understand each other; upgrade the older "
		       "one";
	case ERR_PERM:
		return "PERM: not allowed; check the user and the permissions of both programs";
	case ERR_CORRUPT:
		return "CORRUPT: the other side holds or sent bytes that cannot be; restart the "
		       "server "
		       "if it stays so";
	case ERR_NOMEM:
		return "NOMEM: out of memory, file descriptors or sessions; raise the limit or "
		       "close some";
	default:
		return "UNKNOWN: not a code of rkv";
	}
}

int
err_from_errno(int error)
{
	switch (error) {
	case ENOMEM:
	case ENOSPC:
	case ENOBUFS:
	case EMFILE:
	case ENFILE:
	case EFBIG:
	case EDQUOT:
		return ERR_NOMEM;
	case EPERM:
	case EACCES:
	case EROFS:
		return ERR_PERM;
	case ETIMEDOUT:
		return ERR_TIMEOUT;
	default:
		return ERR_CONN;
	}
}
