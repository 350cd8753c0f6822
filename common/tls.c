/* SPDX-License-Identifier: BSD-2-Clause */
/* TLS by OpenSSL, between memory buffers: tls.h. */
#include "common/tls.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"

#define RECORD_ALERT 21
#define RECORD_HANDSHAKE 22
#define BINDING_LABEL "EXPORTER-Channel-Binding" /* RFC 9266 */

struct tls_context {
	SSL_CTX *ctx;
	bool is_server;
	char server_name[NET_HOST_MAX]; /* a client's */
};

struct tls {
	pthread_mutex_t mutex; /* an SSL is one thread's at a time */
	SSL *ssl;
	BIO *in;
	BIO *out;
	bool has_begun; /* the first byte has come, and was one of TLS */
	bool is_other;  /* it was not */
};

/* ---- What went wrong ---- */

/* Words for the first of OpenSSL's errors, the cause of the others; the queue is empty then. */
static const char *
first_error(void)
{
	unsigned long code = ERR_peek_error();
	const char *words = ERR_SYSTEM_ERROR(code) ? strerror(ERR_GET_REASON(code))
						   : ERR_reason_error_string(code);
	ERR_clear_error();
	return words ? words : "unknown error";
}

static int
bad_file(const char *what, const char *path, char reason[NET_REASON_MAX])
{
	snprintf(reason, NET_REASON_MAX,
		 "%s %.200s: %.100s: give a PEM file that this user may read", what, path,
		 first_error());
	return ERR_INVALID;
}

/* ---- Contexts ---- */

/* Nobody is asked for a passphrase. */
static int
no_passphrase(char *buf, int size, int rwflag, void *arg)
{
	(void)buf;
	(void)size;
	(void)rwflag;
	(void)arg;
	return 0;
}

static bool
is_given(const char *path)
{
	return path && path[0];
}

static int
load_own(SSL_CTX *ctx, const struct tls_files *files, char reason[NET_REASON_MAX])
{
	if (!is_given(files->cert) && !is_given(files->key))
		return 0;
	if (!is_given(files->cert) || !is_given(files->key)) {
		snprintf(reason, NET_REASON_MAX,
			 "a certificate and its key go together: give both --tls-cert and "
			 "--tls-key, or neither");
		return ERR_INVALID;
	}
	if (SSL_CTX_use_certificate_chain_file(ctx, files->cert) != 1)
		return bad_file("certificate", files->cert, reason);
	if (SSL_CTX_use_PrivateKey_file(ctx, files->key, SSL_FILETYPE_PEM) != 1)
		return bad_file("private key", files->key, reason);
	return 0;
}

static int
load_ca(SSL_CTX *ctx, const char *path, char reason[NET_REASON_MAX])
{
	if (!is_given(path))
		return 0;
	if (SSL_CTX_load_verify_locations(ctx, path, NULL) != 1)
		return bad_file("CA certificates", path, reason);
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	return 0;
}

static int
context_create(const SSL_METHOD *method, const struct tls_files *files,
	       struct tls_context **ret_context, char reason[NET_REASON_MAX])
{
	struct tls_context *context = calloc(1, sizeof(*context));
	SSL_CTX *ctx = SSL_CTX_new(method);
	if (!context || !ctx) {
		snprintf(reason, NET_REASON_MAX, "no memory is left for TLS");
		SSL_CTX_free(ctx);
		free(context);
		return ERR_NOMEM;
	}
	context->ctx = ctx;
	SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION);
	SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
	SSL_CTX_set_num_tickets(ctx, 0);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
	int rc = load_own(ctx, files, reason);
	if (!rc)
		rc = load_ca(ctx, files->ca, reason);
	if (rc)
		tls_context_free(context);
	else
		*ret_context = context;
	return rc;
}

int
tls_server_context(const struct tls_files *files, struct tls_context **ret_context,
		   char reason[NET_REASON_MAX])
{
	static const unsigned char id[] = "rkv";
	if (!is_given(files->cert)) {
		snprintf(reason, NET_REASON_MAX,
			 "TLS needs a certificate and its key: give --tls-cert and --tls-key");
		return ERR_INVALID;
	}
	int rc = context_create(TLS_server_method(), files, ret_context, reason);
	if (!rc) {
		(*ret_context)->is_server = true;
		SSL_CTX_set_session_id_context((*ret_context)->ctx, id, sizeof(id) - 1);
	}
	return rc;
}

int
tls_client_context(const struct tls_files *files, const char *server_name,
		   struct tls_context **ret_context, char reason[NET_REASON_MAX])
{
	if (!is_given(files->ca)) {
		snprintf(reason, NET_REASON_MAX,
			 "TLS needs the CA that the server's certificate is of: give --tls-ca");
		return ERR_INVALID;
	}
	int rc = context_create(TLS_client_method(), files, ret_context, reason);
	if (!rc)
		snprintf((*ret_context)->server_name, sizeof((*ret_context)->server_name), "%s",
			 server_name);
	return rc;
}

void
tls_context_free(struct tls_context *context)
{
	if (!context)
		return;
	SSL_CTX_free(context->ctx);
	free(context);
}

/* ---- Connections ---- */

/* The server's certificate must be for this name, or for this address. */
static bool
expect_server(SSL *ssl, const char *name)
{
	unsigned char address[sizeof(struct in6_addr)];
	bool is_address =
		inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1;
	if (is_address)
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
	SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	return SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1;
}

struct tls *
tls_new(const struct tls_context *context)
{
	struct tls *tls = calloc(1, sizeof(*tls));
	if (!tls)
		return NULL;
	pthread_mutex_init(&tls->mutex, NULL);
	tls->ssl = SSL_new(context->ctx);
	tls->in = BIO_new(BIO_s_mem());
	tls->out = BIO_new(BIO_s_mem());
	if (!tls->ssl || !tls->in || !tls->out) {
		BIO_free(tls->in);
		BIO_free(tls->out);
		goto fail;
	}
	SSL_set_bio(tls->ssl, tls->in, tls->out);
	if (context->is_server) {
		SSL_set_accept_state(tls->ssl);
		return tls;
	}
	SSL_set_connect_state(tls->ssl);
	if (!expect_server(tls->ssl, context->server_name))
		goto fail;
	(void)SSL_do_handshake(tls->ssl); /* the first message, for tls_take */
	ERR_clear_error();
	return tls;
fail:
	ERR_clear_error();
	tls_free(tls);
	return NULL;
}

void
tls_free(struct tls *tls)
{
	if (!tls)
		return;
	SSL_free(tls->ssl);
	pthread_mutex_destroy(&tls->mutex);
	free(tls);
}

int
tls_receive(struct tls *tls, const void *bytes, size_t len)
{
	const unsigned char *first = bytes;
	if (len == 0)
		return 0;
	pthread_mutex_lock(&tls->mutex);
	if (!tls->has_begun)
		tls->is_other = *first != RECORD_HANDSHAKE && *first != RECORD_ALERT;
	tls->has_begun = true;
	int n = BIO_write(tls->in, bytes, (int)len);
	pthread_mutex_unlock(&tls->mutex);
	return n == (int)len ? 0 : ERR_NOMEM;
}

static bool
is_untrusted(int alert)
{
	switch (alert) {
	case SSL_R_CERTIFICATE_VERIFY_FAILED:
	case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
	case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
	case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
	case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
	case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
	case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
	case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
	case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
	case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
		return true;
	default:
		return false;
	}
}

static bool
is_too_old(int alert)
{
	return alert == SSL_R_UNSUPPORTED_PROTOCOL || alert == SSL_R_WRONG_SSL_VERSION ||
	       alert == SSL_R_TLSV1_ALERT_PROTOCOL_VERSION || alert == SSL_R_UNKNOWN_PROTOCOL;
}

/* What SSL_get_error called SSL_ERROR_SSL, as a failure and a sentence. */
static int
explain(struct tls *tls, char reason[NET_REASON_MAX])
{
	int alert = ERR_GET_REASON(ERR_peek_error());
	long verdict = SSL_get_verify_result(tls->ssl);
	if (is_untrusted(alert)) {
		bool ours = alert == SSL_R_CERTIFICATE_VERIFY_FAILED && verdict != X509_V_OK;
		snprintf(reason, NET_REASON_MAX, "TLS: not trusted: %.200s",
			 ours ? X509_verify_cert_error_string(verdict) : first_error());
		ERR_clear_error();
		return ERR_PERM;
	}
	if (is_too_old(alert)) {
		snprintf(reason, NET_REASON_MAX,
			 "TLS: the other side does not speak version 1.3, and nothing older is "
			 "spoken here: upgrade it");
		ERR_clear_error();
		return ERR_VERSION;
	}
	snprintf(reason, NET_REASON_MAX, "TLS: %.200s", first_error());
	return ERR_CONN;
}

static int
read_locked(struct tls *tls, void *to, size_t room, size_t *ret_len, char reason[NET_REASON_MAX])
{
	if (tls->is_other) {
		snprintf(reason, NET_REASON_MAX, "the other side does not speak TLS");
		return ERR_CORRUPT;
	}
	ERR_clear_error();
	int r = SSL_is_init_finished(tls->ssl) ? 1 : SSL_do_handshake(tls->ssl);
	if (r == 1)
		r = SSL_read_ex(tls->ssl, to, room, ret_len);
	if (r == 1)
		return 0;
	switch (SSL_get_error(tls->ssl, r)) {
	case SSL_ERROR_WANT_READ:
	case SSL_ERROR_WANT_WRITE:
		return ERR_AGAIN;
	case SSL_ERROR_ZERO_RETURN:
		snprintf(reason, NET_REASON_MAX, "the other side has ended the connection");
		return ERR_CONN;
	default:
		return explain(tls, reason);
	}
}

int
tls_read(struct tls *tls, void *to, size_t room, size_t *ret_len, char reason[NET_REASON_MAX])
{
	pthread_mutex_lock(&tls->mutex);
	int rc = read_locked(tls, to, room, ret_len, reason);
	pthread_mutex_unlock(&tls->mutex);
	return rc;
}

bool
tls_is_up(struct tls *tls)
{
	pthread_mutex_lock(&tls->mutex);
	bool is_up = SSL_is_init_finished(tls->ssl) == 1;
	pthread_mutex_unlock(&tls->mutex);
	return is_up;
}

int
tls_write(struct tls *tls, const void *bytes, size_t len)
{
	size_t n = 0;
	pthread_mutex_lock(&tls->mutex);
	ERR_clear_error();
	bool done = SSL_is_init_finished(tls->ssl) && SSL_write_ex(tls->ssl, bytes, len, &n) == 1;
	ERR_clear_error();
	pthread_mutex_unlock(&tls->mutex);
	return done && n == len ? 0 : ERR_CONN;
}

size_t
tls_take(struct tls *tls, void *to, size_t room)
{
	pthread_mutex_lock(&tls->mutex);
	int n = BIO_read(tls->out, to, room < INT32_MAX ? (int)room : INT32_MAX);
	pthread_mutex_unlock(&tls->mutex);
	return n > 0 ? (size_t)n : 0;
}

bool
tls_binding(struct tls *tls, unsigned char ret_binding[WIRE_BINDING_LEN])
{
	pthread_mutex_lock(&tls->mutex);
	bool done =
		SSL_is_init_finished(tls->ssl) &&
		SSL_export_keying_material(tls->ssl, ret_binding, WIRE_BINDING_LEN, BINDING_LABEL,
					   strlen(BINDING_LABEL), NULL, 0, 0) == 1;
	ERR_clear_error();
	pthread_mutex_unlock(&tls->mutex);
	return done;
}
