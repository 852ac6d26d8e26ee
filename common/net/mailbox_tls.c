// TLS of the control plane: nng's, which is mbed TLS. nng 1.5 tells the accepting side nothing of a
// certificate but that it is valid, so names are checked by whoever dials, and who may dial is said
// by the authority that signed it.
#include "net/mailbox_internal.h"

#include <nng/supplemental/tls/tls.h>
#include <stdlib.h>
#include <string.h>

#define SCHEME "tls+tcp://"

#define KEY(field) offsetof(mailbox_security, field)
// clang-format off
static const config_key keys[] = {
    { "security.certificate", CONFIG_STRING, KEY(certificate), "", 0, 0, "",
      "File (PEM) with this process's certificate, its chain and its private key, for the control plane; empty: no TLS.", NULL },
    { "security.peers_ca", CONFIG_STRING, KEY(peers_ca), "", 0, 0, "",
      "File (PEM) with the authority of the other side's certificates: on a router that of workers, on a worker that of routers.", NULL },
};
// clang-format on
const config_section mailbox_config_section = { keys, sizeof(keys) / sizeof(keys[0]) };

// Written once, before the first socket.
static struct {
    char *certificate, *peers_ca; // NULL: no TLS
} own;

static int config_make(nng_tls_mode mode, const char **file, nng_tls_config **made)
{
    int code = nng_tls_config_alloc(made, mode);
    if (code != 0)
        return code;
    *file = own.certificate;
    code = nng_tls_config_cert_key_file(*made, own.certificate, NULL);
    if (code == 0) {
        *file = own.peers_ca;
        code = nng_tls_config_ca_file(*made, own.peers_ca);
    }
    if (code == 0)
        code = nng_tls_config_auth_mode(*made, NNG_TLS_AUTH_MODE_REQUIRED);
    if (code == 0)
        code = nng_tls_config_version(*made, NNG_TLS_1_2, NNG_TLS_1_2);
    if (code != 0)
        nng_tls_config_free(*made);
    return code;
}

// Nothing is written where there is nothing: a process without TLS only ever reads.
static void forget(void)
{
    if (own.certificate == NULL && own.peers_ca == NULL)
        return;
    free(own.certificate);
    free(own.peers_ca);
    own.certificate = own.peers_ca = NULL;
}

status mailbox_security_start(const mailbox_security *s, error *failure)
{
    bool certificate = s->certificate != NULL && s->certificate[0] != 0;
    bool authority = s->peers_ca != NULL && s->peers_ca[0] != 0;
    nng_tls_config *made;
    const char *file = "";
    forget();
    if (certificate != authority)
        return error_set(failure, STATUS_BAD_CONFIG,
                         certificate ? "security.peers_ca" : "security.certificate",
                         "security.%s is empty; TLS needs security.certificate and "
                         "security.peers_ca, and without TLS both are empty",
                         certificate ? "peers_ca" : "certificate");
    if (!certificate)
        return STATUS_OK;
    own.certificate = strdup(s->certificate);
    own.peers_ca = strdup(s->peers_ca);
    if (own.certificate == NULL || own.peers_ca == NULL) {
        forget();
        return error_set(failure, STATUS_NO_MEMORY, "", "memory is short");
    }
    int code = config_make(NNG_TLS_MODE_SERVER, &file, &made);
    if (code == 0) {
        nng_tls_config_free(made);
        return STATUS_OK;
    }
    bool first = file == own.certificate;
    error_set(failure, STATUS_BAD_CONFIG, first ? "security.certificate" : "security.peers_ca",
              "security.%s is \"%.200s\", which cannot be used (%s); it must be a PEM file with %s",
              first ? "certificate" : "peers_ca", file, nng_strerror(code),
              first ? "a certificate and its private key" : "the certificates of an authority");
    forget();
    return STATUS_BAD_CONFIG;
}

const char *mailbox_scheme(void)
{
    return own.certificate != NULL ? SCHEME : "tcp://";
}

status mailbox_url_check(const char *key, const char *url, error *failure)
{
    const char *scheme = mailbox_scheme();
    if (strncmp(url, scheme, strlen(scheme)) == 0 || strncmp(url, "ipc://", 6) == 0)
        return STATUS_OK;
    return error_set(failure, STATUS_BAD_CONFIG, key,
                     "%s has \"%.100s\"; it must begin with %s, because security.certificate is %s",
                     key, url, scheme, own.certificate != NULL ? "set" : "empty");
}

bool mailbox_encrypted(const char *url)
{
    return strncmp(url, SCHEME, strlen(SCHEME)) == 0;
}

// What a listener at `url` needs; NULL: nothing.
static int listener_config(const char *url, nng_tls_config **made)
{
    const char *file;
    *made = NULL;
    if (!mailbox_encrypted(url))
        return 0;
    return own.certificate ? config_make(NNG_TLS_MODE_SERVER, &file, made) : NNG_ECRYPTO;
}

static int dialer_config(const char *url, const char *peer_name, nng_tls_config **made)
{
    const char *file;
    *made = NULL;
    if (!mailbox_encrypted(url))
        return 0;
    int code =
        own.certificate && peer_name ? config_make(NNG_TLS_MODE_CLIENT, &file, made) : NNG_ECRYPTO;
    if (code != 0)
        return code;
    code = nng_tls_config_server_name(*made, peer_name);
    if (code != 0)
        nng_tls_config_free(*made);
    return code;
}

// Whoever got the configuration holds it.
static int given(int code, nng_tls_config *made)
{
    nng_tls_config_free(made);
    return code;
}

int mailbox_secure_listener(nng_listener listener, const char *url)
{
    nng_tls_config *made;
    int code = listener_config(url, &made);
    if (code != 0 || made == NULL)
        return code;
    return given(nng_listener_set_ptr(listener, NNG_OPT_TLS_CONFIG, made), made);
}

int mailbox_secure_dialer(nng_dialer dialer, const char *url, const char *peer_name)
{
    nng_tls_config *made;
    int code = dialer_config(url, peer_name, &made);
    if (code != 0 || made == NULL)
        return code;
    return given(nng_dialer_set_ptr(dialer, NNG_OPT_TLS_CONFIG, made), made);
}

int mailbox_secure_stream_listener(nng_stream_listener *listener, const char *url)
{
    nng_tls_config *made;
    int code = listener_config(url, &made);
    if (code != 0 || made == NULL)
        return code;
    return given(nng_stream_listener_set_ptr(listener, NNG_OPT_TLS_CONFIG, made), made);
}

int mailbox_secure_stream_dialer(nng_stream_dialer *dialer, const char *url, const char *peer_name)
{
    nng_tls_config *made;
    int code = dialer_config(url, peer_name, &made);
    if (code != 0 || made == NULL)
        return code;
    return given(nng_stream_dialer_set_ptr(dialer, NNG_OPT_TLS_CONFIG, made), made);
}

bool mailbox_failed_unheard(nng_stream *stream)
{
    nng_sockaddr peer;
    return nng_stream_get_addr(stream, NNG_OPT_REMADDR, &peer) != 0;
}
