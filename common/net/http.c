#include "net/http_private.h"

#include "base/random.h"

#include <pthread.h>
#include <stdlib.h>

#define FIELD(name) offsetof(http_settings, name)

// clang-format off
#define HTTP_KEYS(listen_default)                                                                  \
    { "http.listen", CONFIG_STRINGS, FIELD(listen), listen_default, 0, 0, "",                      \
      "Addresses to listen on: host:port or [IPv6]:port; port 0 lets the system choose.", NULL },  \
    { "http.connections_max", CONFIG_INT, FIELD(connections_max), "8192", 1, 1000000,              \
      "connections", "Open client connections in all.", NULL },                                    \
    { "http.connections_per_address", CONFIG_INT, FIELD(connections_per_address), "4096", 1,       \
      1000000, "connections",                                                                      \
      "Open connections of one client address (IPv6: one /64, where those of a proxy count for "   \
      "its neighbours too). It refuses no proxy of http.trusted_proxies, whose clients count by "  \
      "themselves; raise it where others share an address.",                                       \
      NULL },                                                                                      \
    { "http.head_bytes", CONFIG_BYTES, FIELD(head_bytes), "16KiB", 1024, 1048576, "bytes",         \
      "Largest request line with header fields.", NULL },                                          \
    { "http.body_bytes", CONFIG_BYTES, FIELD(body_bytes), "4MiB", 1024, 268435456, "bytes",        \
      "Largest request body.", NULL },                                                             \
    { "http.bodies_bytes", CONFIG_BYTES, FIELD(bodies_bytes), "256MiB", 1024, 1e12, "bytes",       \
      "All request bodies held at a time; more are answered 503.", NULL },                         \
    { "http.output_bytes", CONFIG_BYTES, FIELD(output_bytes), "64KiB", 4096, 268435456, "bytes",   \
      "Streamed bytes that a client may leave unread before it is cut off.", NULL },               \
    { "http.head_deadline", CONFIG_DURATION, FIELD(head_deadline_us), "10s", 1000, 3600e6, "",     \
      "A request line with header fields must be complete in this time.", NULL },                  \
    { "http.body_deadline", CONFIG_DURATION, FIELD(body_deadline_us), "30s", 1000, 3600e6, "",     \
      "A request body must be complete in this time.", NULL },                                     \
    { "http.idle", CONFIG_DURATION, FIELD(idle_us), "75s", 1000, 86400e6, "",                      \
      "A connection without a request, or whose last answer is not taken, is closed after this time.", NULL },                         \
    { "http.write_deadline", CONFIG_DURATION, FIELD(write_deadline_us), "10s", 1000, 3600e6, "",   \
      "A client that takes no byte of its answer for this time is cut off.", NULL },

static const char *const tls_versions[] = { "1.2", "1.3", NULL };

static const config_key http_keys[] = {
    HTTP_KEYS("127.0.0.1:8080")
    { "http.certificate", CONFIG_STRING, FIELD(certificate), "", 0, 0, "",
      "PEM file with the certificate and those between it and its authority: TLS (https); empty: plain HTTP.", NULL },
    { "http.certificate_key", CONFIG_STRING, FIELD(certificate_key), "", 0, 0, "",
      "PEM file with the certificate's private key; empty: it is in the certificate's file.", NULL },
    { "http.tls_minimum", CONFIG_STRING, FIELD(tls_minimum), "1.2", 0, 0, "",
      "The oldest version of TLS that is spoken.", tls_versions },
    { "http.handshake_deadline", CONFIG_DURATION, FIELD(handshake_deadline_us), "5s", 1000, 3600e6, "",
      "A TLS handshake must be complete in this time.", NULL },
    { "http.cors_origins", CONFIG_STRINGS, FIELD(cors_origins), "", 0, 0, "",
      "Origins (\"https://example.org\") whose pages may call the API from a browser; \"*\": all.", NULL },
    { "http.trusted_proxies", CONFIG_STRINGS, FIELD(trusted_proxies), "", 0, 0, "",
      "Addresses and networks (\"10.0.0.0/8\") of proxies whose X-Forwarded-For is believed; none: nobody's.", NULL },
};
// clang-format on
static const config_key http_keys_worker[] = { HTTP_KEYS("127.0.0.1:0") };
const config_section http_config_section = { http_keys, sizeof http_keys / sizeof *http_keys };
const config_section http_config_section_worker = { http_keys_worker,
                                                    sizeof http_keys_worker / sizeof *http_keys };

status http_server_open(http_loop *loop, const http_settings *settings, const http_route *routes,
                        size_t route_count, const http_hooks *hooks, void *context,
                        http_server **opened, error *failure)
{
    http_server *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for the HTTP server");
    s->loop = loop;
    s->settings = settings;
    s->routes = routes;
    s->route_count = route_count;
    s->context = context;
    s->id_seed = random_system();
    if (hooks)
        s->hooks = *hooks;
    status result = http_proxies_parse(&settings->trusted_proxies, &s->proxies, failure);
    if (result == STATUS_OK && settings->certificate)
        result = http_tls_open(settings, &s->tls, failure);
    if (result == STATUS_OK)
        result = http_listeners_open(s, failure);
    if (result != STATUS_OK) {
        http_server_close(s);
        return result;
    }
    *opened = s;
    return STATUS_OK;
}

void http_server_close(http_server *s)
{
    if (!s)
        return;
    http_listeners_close(s);
    while (s->connections)
        http_connection_abort(s->connections);
    http_tls_close(s->tls);
    free(s->listeners);
    free(s->addresses);
    free(s);
}

bool http_server_secure(const http_server *s)
{
    return s->tls != NULL;
}

status http_server_reload(http_server *s, error *failure)
{
    http_tls *fresh = NULL;
    status result = s->tls ? http_tls_open(s->settings, &fresh, failure) : STATUS_OK;
    if (fresh) {
        http_tls_close(s->tls);
        s->tls = fresh;
    }
    return result;
}

size_t http_server_connections(const http_server *s)
{
    return s->connection_count;
}

const char *http_server_address(const http_server *s, size_t index)
{
    return index < s->listener_count ? s->addresses[index] : NULL;
}

void http_server_refuse_keep_alive(http_server *s)
{
    s->refuse_keep_alive = true;
}

// ---- a server with its own thread -------------------------------------------------------------

struct http_thread {
    http_loop *loop;
    http_server *server;
    pthread_t thread;
};

static void *thread_run(void *context)
{
    http_thread *t = context;
    http_loop_run(t->loop);
    return NULL;
}

status http_thread_open(const http_settings *settings, const http_route *routes, size_t route_count,
                        void *context, http_thread **opened, error *failure)
{
    status result = STATUS_OK;
    http_thread *t = calloc(1, sizeof *t);
    if (!t)
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for the HTTP thread");
    TRY(http_loop_open(&t->loop, failure));
    TRY(http_server_open(t->loop, settings, routes, route_count, NULL, context, &t->server,
                         failure));
    if (pthread_create(&t->thread, NULL, thread_run, t) != 0) {
        result = error_set(failure, STATUS_NO_MEMORY, "", "the system gave no HTTP thread");
        goto fail;
    }
    *opened = t;
    return STATUS_OK;
fail:
    http_server_close(t->server);
    http_loop_close(t->loop);
    free(t);
    return result;
}

http_server *http_thread_server(http_thread *t)
{
    return t->server;
}

void http_thread_close(http_thread *t)
{
    if (!t)
        return;
    http_loop_stop(t->loop);
    pthread_join(t->thread, NULL);
    http_server_close(t->server);
    http_loop_close(t->loop);
    free(t);
}
