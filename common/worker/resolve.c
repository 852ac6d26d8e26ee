#include "worker/worker_private.h"

#include "net/address.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static status control_address(const char *url, address *parsed, error *failure)
{
    const char *scheme = mailbox_scheme();
    if (strncmp(url, scheme, strlen(scheme)) != 0)
        return error_set(failure, STATUS_BAD_CONFIG, "worker.routers",
                         "worker.routers has \"%s\"; it must look like %shost:port", url, scheme);
    status result = address_parse(slice_of(url + strlen(scheme)), -1, parsed, failure);
    if (result != STATUS_OK)
        error_prefix(failure, "worker.routers");
    return result;
}

static struct addrinfo *look_up(const char *url, error *failure)
{
    address control;
    if (control_address(url, &control, failure) != STATUS_OK)
        return NULL;
    char port[8];
    snprintf(port, sizeof(port), "%u", control.port);
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;
    int code = getaddrinfo(control.host, port, &hints, &found);
    if (code == 0)
        return found;
    error_set(failure, STATUS_UNAVAILABLE, "worker.routers", "cannot look up %s: %s", control.host,
              gai_strerror(code));
    return NULL;
}

// "tcp://1.2.3.4:5", "tls+tcp://1.2.3.4:5" or "tcp://[::1]:5"; false where it does not fit.
static bool url_format(const struct addrinfo *a, char url[WORKER_URL_MAX])
{
    char host[64], port[8];
    if (getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return false;
    const char *format = a->ai_family == AF_INET6 ? "%s[%s]:%s" : "%s%s:%s";
    return snprintf(url, WORKER_URL_MAX, format, mailbox_scheme(), host, port) < WORKER_URL_MAX;
}

int worker_resolve(const char *url, char found[][WORKER_URL_MAX], int room, error *failure)
{
    struct addrinfo *list = look_up(url, failure);
    if (list == NULL)
        return -1;
    int count = 0;
    for (const struct addrinfo *a = list; a != NULL && count < room; a = a->ai_next)
        count += url_format(a, found[count]);
    freeaddrinfo(list);
    return count;
}

status worker_route(const char *url, char host[64], error *failure)
{
    struct addrinfo *to = look_up(url, failure);
    if (to == NULL)
        return STATUS_UNAVAILABLE;
    // Connecting a datagram socket sends nothing, but chooses the route.
    struct sockaddr_storage here;
    socklen_t size = sizeof(here);
    int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool good = fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) == 0 &&
                getsockname(fd, (struct sockaddr *)&here, &size) == 0 &&
                getnameinfo((struct sockaddr *)&here, size, host, 64, NULL, 0, NI_NUMERICHOST) == 0;
    if (fd >= 0)
        close(fd);
    freeaddrinfo(to);
    if (good)
        return STATUS_OK;
    return error_set(failure, STATUS_UNAVAILABLE, "worker.host", "there is no route to %s", url);
}
