#include "net/http_private.h"

#include "base/log.h"
#include "net/address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LISTEN_BACKLOG 4096 // the default of 128 makes bursts of clients wait for seconds
#define ACCEPT_PAUSE_US 100000

static void on_accept(struct evconnlistener *listener, evutil_socket_t descriptor,
                      struct sockaddr *from, int size, void *context)
{
    (void)listener, (void)size;
    http_connection_open(context, descriptor, from);
}

static void on_accept_again(void *context)
{
    http_server *s = context;
    for (size_t i = 0; i < s->listener_count; i++)
        if (s->listeners[i])
            evconnlistener_enable(s->listeners[i]);
}

// Out of descriptors or memory: pause instead of spinning on a readable listener.
static void on_accept_error(struct evconnlistener *listener, void *context)
{
    http_server *s = context;
    log_warn("http", "accept failed cause \"%s\"", strerror(errno));
    evconnlistener_disable(listener);
    http_timer_start(s->accept_again, ACCEPT_PAUSE_US);
}

static int socket_bind(const struct addrinfo *info)
{
    int one = 1, zero = 0;
    int descriptor = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (descriptor < 0)
        return -1;
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (info->ai_family == AF_INET6) // "[::]" serves IPv4 clients too
        setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(descriptor, info->ai_addr, info->ai_addrlen) == 0)
        return descriptor;
    int cause = errno;
    close(descriptor);
    errno = cause;
    return -1;
}

static status listen_one(http_server *s, size_t index, const char *text, error *failure)
{
    address wanted;
    status result = address_parse(slice_of(text), -1, &wanted, failure);
    if (result != STATUS_OK)
        return result;
    char port[8];
    snprintf(port, sizeof port, "%u", wanted.port);
    struct addrinfo hints = { .ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM }, *found = NULL;
    int code = getaddrinfo(wanted.host[0] ? wanted.host : NULL, port, &hints, &found);
    if (code != 0)
        return error_set(failure, STATUS_BAD_CONFIG, "http.listen",
                         "http.listen: \"%s\" cannot be resolved: %s", text, gai_strerror(code));
    int descriptor = -1, cause = 0;
    for (const struct addrinfo *at = found; at && descriptor < 0; at = at->ai_next) {
        descriptor = socket_bind(at);
        cause = errno;
    }
    freeaddrinfo(found);
    if (descriptor < 0)
        return error_set(failure, STATUS_IO, "http.listen", "http.listen: cannot listen on %s: %s",
                         text, strerror(cause));
    s->listeners[index] = evconnlistener_new(http_loop_base(s->loop), on_accept, s,
                                             LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC,
                                             LISTEN_BACKLOG, descriptor);
    if (!s->listeners[index]) {
        cause = errno;
        close(descriptor);
        return error_set(failure, STATUS_IO, "http.listen", "http.listen: cannot listen on %s: %s",
                         text, strerror(cause));
    }
    evconnlistener_set_error_cb(s->listeners[index], on_accept_error);
    struct sockaddr_storage real;
    socklen_t size = sizeof real;
    getsockname(descriptor, (struct sockaddr *)&real, &size);
    wanted.port = ntohs(real.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&real)->sin6_port
                                                   : ((struct sockaddr_in *)&real)->sin_port);
    address_format(&wanted, s->addresses[index]);
    return STATUS_OK;
}

status http_listeners_open(http_server *s, error *failure)
{
    const config_strings *listen = &s->settings->listen;
    if (listen->count == 0)
        return error_set(failure, STATUS_BAD_CONFIG, "http.listen", "http.listen names no address");
    s->listeners = calloc(listen->count, sizeof *s->listeners);
    s->addresses = calloc(listen->count, sizeof *s->addresses);
    if (!s->listeners || !s->addresses ||
        http_timer_open(s->loop, on_accept_again, s, &s->accept_again) != STATUS_OK)
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for the listeners");
    for (size_t i = 0; i < listen->count; i++) {
        status result = listen_one(s, i, listen->items[i], failure);
        if (result != STATUS_OK)
            return result;
        s->listener_count = i + 1;
    }
    return STATUS_OK;
}

void http_listeners_close(http_server *s)
{
    for (size_t i = 0; i < s->listener_count; i++) {
        if (s->listeners[i])
            evconnlistener_free(s->listeners[i]);
        s->listeners[i] = NULL;
    }
    http_timer_close(s->accept_again);
    s->accept_again = NULL;
}
