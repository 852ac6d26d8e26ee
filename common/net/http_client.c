#include "net/http_client.h"

#include "net/address.h"
#include "net/http_head.h"

#include <errno.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define PATIENCE_S 15
#define LOOKS_PER_S 4 // at `stop`, while nothing comes
#define HEAD_MAX ((size_t)65536)
#define PIECE_MAX ((size_t)64 << 20) // of a body that waits to be read

struct http_client {
    http_client_options options;
    char host[272]; // as the Host field has it
    int descriptor;
    SSL *tls;       // NULL: plain
    unsigned looks; // at `stop`, since the last byte came
    buffer in;      // read, not used
    http_chunks chunks;
    bool chunked, has_length, ended;
    uint64_t left; // of the body, where has_length
};

// ---- bytes ------------------------------------------------------------------------------------

static bool stopped(const http_client *c)
{
    return c->options.stop && *c->options.stop;
}

static status broken(const http_client *c, const char *what, error *failure)
{
    if (stopped(c))
        return error_set(failure, STATUS_CANCELLED, "", "stopped");
    unsigned long code = ERR_peek_error();
    const char *why = errno == EAGAIN ? "it took too long"
                      : code          ? ERR_reason_error_string(code)
                      : errno == 0    ? "the connection was closed"
                                      : strerror(errno);
    ERR_clear_error();
    return error_set(failure, STATUS_UNAVAILABLE, "", "%s %s: %s", c->options.url, what, why);
}

// Of a call that returned `count`: whether to try it again.
static bool interrupted(const http_client *c, int count)
{
    if (c->tls && SSL_get_error(c->tls, count) == SSL_ERROR_ZERO_RETURN)
        return false;
    return errno == EINTR && !stopped(c);
}

// Whether to go on where nothing came until it was time for a look at `stop`.
static bool goes_on(http_client *c)
{
    return errno == EAGAIN && c->options.stop && !stopped(c) &&
           ++c->looks < c->options.patience_s * LOOKS_PER_S;
}

// 0 at the end, -1 for a failure (errno, or OpenSSL's queue).
static ssize_t bytes_read(http_client *c, void *data, size_t size)
{
    for (;;) {
        errno = 0;
        ERR_clear_error();
        ssize_t count =
            c->tls ? SSL_read(c->tls, data, (int)size) : recv(c->descriptor, data, size, 0);
        if (count > 0)
            c->looks = 0;
        if (count > 0 || (count == 0 && !c->tls))
            return count;
        if (interrupted(c, (int)count) || goes_on(c))
            continue;
        if (c->tls && SSL_get_error(c->tls, (int)count) == SSL_ERROR_ZERO_RETURN)
            return 0;
        return -1;
    }
}

static bool bytes_write(http_client *c, slice data)
{
    while (data.size > 0) {
        errno = 0;
        ERR_clear_error();
        ssize_t count = c->tls ? SSL_write(c->tls, data.data, (int)data.size)
                               : send(c->descriptor, data.data, data.size, MSG_NOSIGNAL);
        if (count <= 0 && !interrupted(c, (int)count))
            return false;
        if (count > 0)
            data = (slice){ data.data + count, data.size - (size_t)count };
    }
    return true;
}

// ---- opening ----------------------------------------------------------------------------------

static status url_parse(const char *url, address *where, bool *tls, error *failure)
{
    slice rest = slice_of(url);
    *tls = strncmp(url, "https://", 8) == 0;
    if (!*tls && strncmp(url, "http://", 7) != 0)
        return error_set(failure, STATUS_INVALID, "url",
                         "the router's URL is \"%.200s\"; right is http://host:port", url);
    rest.data += 7 + *tls;
    rest.size -= 7u + *tls;
    while (rest.size > 0 && rest.data[rest.size - 1] == '/')
        rest.size--;
    return address_parse(rest, *tls ? 443 : 80, where, failure);
}

static int connection_try(const http_client *c, const struct addrinfo *to)
{
    struct timeval patience = { .tv_sec = c->options.patience_s };
    int descriptor = socket(to->ai_family, to->ai_socktype | SOCK_CLOEXEC, 0);
    if (descriptor < 0)
        return -1;
    setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience); // for connect too
    int code; // Linux goes on with the same connection where this process was stopped meanwhile
    while ((code = connect(descriptor, to->ai_addr, to->ai_addrlen)) != 0 && errno == EINTR &&
           !stopped(c))
        continue;
    if (code == 0)
        return descriptor;
    // What connect says when patience ends, the first time and after an interruption.
    int why = errno == EINPROGRESS || errno == EALREADY ? ETIMEDOUT : errno;
    close(descriptor);
    errno = why;
    return -1;
}

static status connection_open(http_client *c, const address *where, error *failure)
{
    char port[8];
    struct addrinfo *found = NULL, hints = { .ai_socktype = SOCK_STREAM };
    snprintf(port, sizeof port, "%u", where->port);
    int code = getaddrinfo(where->host[0] ? where->host : "localhost", port, &hints, &found);
    if (code != 0)
        return error_set(failure, STATUS_UNAVAILABLE, "", "the router %s is not found: %s",
                         c->options.url, gai_strerror(code));
    for (const struct addrinfo *to = found; to && c->descriptor < 0; to = to->ai_next)
        c->descriptor = connection_try(c, to);
    int why = errno;
    freeaddrinfo(found);
    if (c->descriptor >= 0)
        return STATUS_OK;
    if (stopped(c))
        return error_set(failure, STATUS_CANCELLED, "", "stopped");
    return error_set(failure, STATUS_UNAVAILABLE, "",
                     "the router %s cannot be reached: %s (another one: --router URL)",
                     c->options.url, strerror(why));
}

static status authority_load(const http_client *c, SSL_CTX *context, error *failure)
{
    const char *file = c->options.authority;
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    if (!file && SSL_CTX_set_default_verify_paths(context) == 1)
        return STATUS_OK;
    if (file && SSL_CTX_load_verify_locations(context, file, NULL) == 1)
        return STATUS_OK;
    return error_set(failure, STATUS_BAD_FILE, "authority", "%.200s holds no certificates",
                     file ? file : "the system's folder of authorities");
}

static status tls_open(http_client *c, const address *where, error *failure)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (!context)
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for TLS");
    status result = authority_load(c, context, failure);
    c->tls = result == STATUS_OK ? SSL_new(context) : NULL;
    SSL_CTX_free(context);
    if (result != STATUS_OK)
        return result;
    const char *host = where->host[0] ? where->host : "localhost";
    if (!c->tls || SSL_set_fd(c->tls, c->descriptor) != 1)
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for TLS");
    // An address is checked as one; a name is also sent along.
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(c->tls), host) != 1) {
        SSL_set1_host(c->tls, host);
        SSL_set_tlsext_host_name(c->tls, host);
    }
    errno = 0;
    ERR_clear_error();
    if (SSL_connect(c->tls) == 1)
        return STATUS_OK;
    long verdict = SSL_get_verify_result(c->tls);
    if (verdict == X509_V_OK)
        return broken(c, "takes no TLS", failure);
    ERR_clear_error();
    return error_set(failure, STATUS_UNAVAILABLE, "",
                     "the certificate of %s is not trusted: %s (its authority: --ca FILE)",
                     c->options.url, X509_verify_cert_error_string(verdict));
}

status http_client_open(const http_client_options *options, http_client **opened, error *failure)
{
    status result = STATUS_OK;
    address where;
    bool tls;
    http_client *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for a connection");
    signal(SIGPIPE, SIG_IGN);
    c->options = *options;
    c->descriptor = -1;
    if (c->options.patience_s == 0)
        c->options.patience_s = PATIENCE_S;
    TRY(url_parse(options->url, &where, &tls, failure));
    address_format(&where, c->host);
    TRY(connection_open(c, &where, failure));
    if (tls)
        TRY(tls_open(c, &where, failure));
    struct timeval look = { .tv_usec = 1000000 / LOOKS_PER_S };
    if (options->stop)
        setsockopt(c->descriptor, SOL_SOCKET, SO_RCVTIMEO, &look, sizeof look);
    *opened = c;
    return STATUS_OK;
fail:
    http_client_close(c);
    return result;
}

void http_client_close(http_client *c)
{
    if (!c)
        return;
    SSL_free(c->tls);
    if (c->descriptor >= 0)
        close(c->descriptor);
    buffer_close(&c->in);
    free(c);
}

status http_client_key_append(const char *file, buffer *fields, error *failure)
{
    char key[512];
    FILE *opened = file ? fopen(file, "r") : NULL;
    bool read = opened && fgets(key, sizeof key, opened);
    if (opened)
        fclose(opened);
    if (file && !read)
        return error_set(failure, STATUS_BAD_FILE, "--key-file", "the key file %s cannot be read",
                         file);
    if (file && strlen(key) + 1 == sizeof key && !strchr(key, '\n'))
        return error_set(failure, STATUS_BAD_FILE, "--key-file",
                         "the first line of the key file %s is longer than %zu characters", file,
                         sizeof key - 2);
    if (file)
        buffer_printf(fields, "Authorization: Bearer %.*s\r\n", (int)strcspn(key, "\r\n"), key);
    return STATUS_OK;
}

// ---- a request and its answer -----------------------------------------------------------------

// The value of a field of the answer; empty where there is none.
static slice field_find(slice head, const char *name)
{
    size_t size = strlen(name);
    for (slice line; slice_take_line(&head, &line);) {
        if (line.size <= size || line.data[size] != ':' ||
            !http_text_equal((slice){ line.data, size }, name))
            continue;
        slice value = { line.data + size + 1, line.size - size - 1 };
        while (value.size > 0 && strchr(" \t\r", value.data[value.size - 1]))
            value.size--;
        while (value.size > 0 && strchr(" \t", value.data[0]))
            value = (slice){ value.data + 1, value.size - 1 };
        return value;
    }
    return SLICE("");
}

// More bytes into `in`; false: the end, or a failure.
static bool more_read(http_client *c, ssize_t *count)
{
    char block[16384];
    *count = bytes_read(c, block, sizeof block);
    if (*count > 0)
        buffer_append(&c->in, block, (size_t)*count);
    return *count > 0;
}

static status head_read(http_client *c, int *status_code, error *failure)
{
    ssize_t count = 0;
    const char *end;
    while (!(end = c->in.size ? strstr(c->in.data, "\r\n\r\n") : NULL) && c->in.size < HEAD_MAX)
        if (!more_read(c, &count))
            break;
    if (count < 0)
        return broken(c, "gave no answer", failure);
    if (!end || sscanf(c->in.data, "HTTP/1.%*d %d", status_code) != 1)
        return error_set(failure, STATUS_PEER_PROTOCOL, "",
                         "what answered is not an HTTP server, or it was cut off");
    size_t size = (size_t)(end + 4 - c->in.data);
    slice head = { c->in.data, size }, length = field_find(head, "Content-Length");
    c->chunked = http_text_equal(field_find(head, "Transfer-Encoding"), "chunked");
    c->has_length = length.size > 0 && !c->chunked;
    c->left = c->has_length ? strtoull(length.data, NULL, 10) : 0;
    c->ended = c->has_length && c->left == 0;
    buffer_drop_front(&c->in, size);
    return STATUS_OK;
}

status http_client_send(http_client *c, const char *method, const char *path, slice fields,
                        slice body, int *status_code, error *failure)
{
    buffer head = { 0 };
    buffer_printf(&head, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", method, path,
                  c->host);
    buffer_append_slice(&head, fields);
    if (body.size > 0)
        buffer_printf(&head, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                      body.size);
    buffer_append_text(&head, "\r\n");
    buffer_append_slice(&head, body);
    // A server may answer before it has read everything, and then close.
    bool sent = bytes_write(c, buffer_slice(&head));
    buffer_close(&head);
    if (!sent && stopped(c))
        return broken(c, "took no request", failure);
    return head_read(c, status_code, failure);
}

// What is in `in` becomes body.
static status body_take(http_client *c, buffer *out, error *failure)
{
    http_refusal refusal = { 0 };
    size_t used = c->in.size;
    if (c->chunked) {
        used = http_chunks_feed(&c->chunks, c->in.data, c->in.size, PIECE_MAX, out, &refusal);
        c->ended = c->chunks.done;
    } else {
        used = c->has_length && c->left < used ? (size_t)c->left : used;
        buffer_append(out, c->in.data, used);
        c->left -= c->has_length ? used : 0;
        c->ended = c->has_length && c->left == 0;
    }
    buffer_drop_front(&c->in, used);
    if (refusal.status || out->overflow || out->size > PIECE_MAX)
        return error_set(failure, STATUS_PEER_PROTOCOL, "", "the answer is too long, or broken");
    return STATUS_OK;
}

status http_client_read(http_client *c, buffer *out, bool *done, error *failure)
{
    size_t before = out->size;
    ssize_t count = 0;
    *done = false;
    while (out->size == before && !c->ended) {
        if (stopped(c))
            return error_set(failure, STATUS_CANCELLED, "", "stopped");
        if (c->in.size == 0 && !more_read(c, &count)) {
            if (count < 0 || c->chunked || c->has_length)
                return broken(c, "cut its answer off", failure);
            c->ended = true; // the connection's end is the body's
            break;
        }
        status result = body_take(c, out, failure);
        if (result != STATUS_OK)
            return result;
    }
    *done = out->size == before;
    return STATUS_OK;
}
