// TLS of HTTP connections, by OpenSSL through libevent's encrypted sockets.
#include "net/http_private.h"

#include "base/log.h"

#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>

// A key that is locked by a passphrase is refused; nobody is asked at a terminal.
static int no_passphrase(char *text, int size, int writing, void *context)
{
    (void)text, (void)size, (void)writing, (void)context;
    return 0;
}

// Only HTTP/1.1 is spoken here; a client that asks for other protocols only is told so.
static int choose_protocol(SSL *ssl, const unsigned char **chosen, unsigned char *chosen_size,
                           const unsigned char *offered, unsigned int offered_size, void *context)
{
    static const unsigned char own[] = "\x08http/1.1";
    unsigned char *found;
    (void)ssl, (void)context;
    if (SSL_select_next_proto(&found, chosen_size, own, sizeof own - 1, offered, offered_size) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *chosen = found;
    return SSL_TLSEXT_ERR_OK;
}

// The first thing that OpenSSL complained about: what came later followed from it.
static const char *cause(void)
{
    unsigned long code = ERR_peek_error();
    const char *text = code ? ERR_reason_error_string(code) : NULL;
    if (code && ERR_SYSTEM_ERROR(code))
        text = strerror(ERR_GET_REASON(code));
    return text ? text : "no reason was given";
}

static void warn_of_age(const SSL_CTX *tls, const char *path)
{
    const X509 *certificate = SSL_CTX_get0_certificate(tls);
    if (certificate && X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0)
        log_warn("http", "the certificate %s has expired; clients that check it will not connect",
                 path);
}

static status files_load(SSL_CTX *tls, const http_settings *s, error *failure)
{
    const char *certificate = s->certificate;
    const char *key = s->certificate_key[0] ? s->certificate_key : certificate;
    SSL_CTX_set_default_passwd_cb(tls, no_passphrase);
    if (SSL_CTX_use_certificate_chain_file(tls, certificate) != 1)
        return error_set(failure, STATUS_BAD_CONFIG, "http.certificate",
                         "http.certificate: %.200s holds no certificate that can be used: %s",
                         certificate, cause());
    if (SSL_CTX_use_PrivateKey_file(tls, key, SSL_FILETYPE_PEM) != 1) {
        bool other = ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_VALUES_MISMATCH ||
                     ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_TYPE_MISMATCH;
        return error_set(failure, STATUS_BAD_CONFIG, "http.certificate_key",
                         "http.certificate_key: the key in %.200s %s: %s", key,
                         other ? "belongs to another certificate" : "cannot be used", cause());
    }
    warn_of_age(tls, certificate);
    return STATUS_OK;
}

status http_tls_open(const http_settings *s, http_tls **opened, error *failure)
{
    *opened = NULL;
    if (s->certificate[0] == 0 && s->certificate_key[0] == 0)
        return STATUS_OK;
    if (s->certificate[0] == 0)
        return error_set(failure, STATUS_BAD_CONFIG, "http.certificate",
                         "http.certificate_key is set, and http.certificate is empty");
    ERR_clear_error();
    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
    if (!tls)
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for TLS");
    SSL_CTX_set_min_proto_version(tls, strcmp(s->tls_minimum, "1.3") == 0 ? TLS1_3_VERSION
                                                                          : TLS1_2_VERSION);
    // Memory of idle connections is given back; a client may not make the server work by
    // renegotiating.
    SSL_CTX_set_mode(tls, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_options(tls, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_alpn_select_cb(tls, choose_protocol, NULL);
    status result = files_load(tls, s, failure);
    ERR_clear_error();
    if (result != STATUS_OK) {
        SSL_CTX_free(tls);
        return result;
    }
    *opened = (http_tls *)tls;
    return STATUS_OK;
}

void http_tls_close(http_tls *tls)
{
    SSL_CTX_free((SSL_CTX *)tls); // connections hold it as long as they live
}

struct bufferevent *http_tls_accept(http_tls *tls, struct event_base *base, int descriptor)
{
    SSL *ssl = SSL_new((SSL_CTX *)tls);
    if (!ssl)
        return NULL;
    // It frees `ssl` where it fails, too, because it was told to close on free.
    struct bufferevent *stream = bufferevent_openssl_socket_new(
        base, descriptor, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
    if (!stream)
        return NULL;
    // A client that closes without TLS's own goodbye has closed all the same.
    bufferevent_openssl_set_allow_dirty_shutdown(stream, 1);
    return stream;
}

void http_tls_finish(struct bufferevent *stream)
{
    SSL *ssl = bufferevent_openssl_get_ssl(stream);
    if (ssl)
        SSL_shutdown(ssl);
    ERR_clear_error();
}

bool http_tls_spoke_plain(struct bufferevent *stream)
{
    bool plain = false;
    for (unsigned long code; (code = bufferevent_get_openssl_error(stream)) != 0;)
        plain = plain || ERR_GET_REASON(code) == SSL_R_HTTP_REQUEST;
    return plain;
}
