/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * TLS 1.3 between two buffers: bytes of the socket go in and come out here, whoever owns the socket
 * sends and receives them. Nothing older than 1.3, no renegotiation, no session tickets.
 *
 *   socket -> tls_receive -> | handshake, records | -> tls_read  -> messages
 *   socket <- tls_take    <- |                    | <- tls_write <- messages
 *
 * A connection may be read by one thread while another writes it.
 */
#ifndef RKV_COMMON_TLS_H
#define RKV_COMMON_TLS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/net.h"
#include "proto/wire.h"

struct tls_context;
struct tls;

/* Paths of PEM files; "" or NULL: none. */
struct tls_files {
	const char *ca;   /* whose certificates are good for the other side's */
	const char *cert; /* our own, with its chain */
	const char *key;  /* without a passphrase */
};

/*
 * A server's side needs cert and key; with ca it wants certificates of clients. A client's needs
 * ca, and server_name: the host name or address that the server's certificate must be for.
 * Failures, with a sentence: ERR_INVALID: a file, or files that do not go together; ERR_NOMEM.
 */
int tls_server_context(const struct tls_files *files, struct tls_context **ret_context,
		       char reason[NET_REASON_MAX]);
int tls_client_context(const struct tls_files *files, const char *server_name,
		       struct tls_context **ret_context, char reason[NET_REASON_MAX]);

/* Connections that were made of it go on. NULL is nothing. */
void tls_context_free(struct tls_context *context);

/* A connection, which on a client's side has something to send at once. NULL: out of memory. */
struct tls *tls_new(const struct tls_context *context);
void tls_free(struct tls *tls); /* NULL is nothing */

/* Takes what the socket has received. Failure: ERR_NOMEM. */
int tls_receive(struct tls *tls, const void *bytes, size_t len);

/*
 * Goes on with the handshake, then reads; room >= 1. 0: ret_len bytes. ERR_AGAIN (> 0): more must
 * be received first. Failures, with a sentence: ERR_CORRUPT: the other side speaks no TLS;
 * ERR_VERSION: none as new as 1.3; ERR_PERM: it, or we, were not trusted; ERR_CONN: it has ended,
 * or broke. After a failure there may be something to take, the last.
 */
int tls_read(struct tls *tls, void *to, size_t room, size_t *ret_len, char reason[NET_REASON_MAX]);

/* Is the handshake done? */
bool tls_is_up(struct tls *tls);

/* All of it, once the handshake is done. Failure: ERR_CONN. */
int tls_write(struct tls *tls, const void *bytes, size_t len);

/* Moves what the socket shall send; returns how much, 0: nothing is left. */
size_t tls_take(struct tls *tls, void *to, size_t room);

/* What only both ends of this connection can compute. False: the handshake is not done. */
bool tls_binding(struct tls *tls, unsigned char ret_binding[WIRE_BINDING_LEN]);

#endif
