#include "net/fabric_private.h"

#include "base/clock.h"
#include "base/log.h"

#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

// How long one turn may progress before commands of other threads get their chance.
#define TURN_ROUNDS_MAX 256

status fabric_status(ucs_status_t code)
{
    switch (code) {
    case UCS_OK:
        return STATUS_OK;
    case UCS_ERR_NO_MEMORY:
        return STATUS_NO_MEMORY;
    case UCS_ERR_CANCELED:
        return STATUS_CANCELLED;
    case UCS_ERR_REJECTED:
        return STATUS_PEER_REFUSED;
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_IO_ERROR:
        return STATUS_PEER_CLOSED;
    case UCS_ERR_MESSAGE_TRUNCATED:
    case UCS_ERR_INVALID_PARAM:
        return STATUS_PEER_PROTOCOL;
    case UCS_ERR_TIMED_OUT:
        return STATUS_PEER_SILENT;
    default:
        return STATUS_IO;
    }
}

// UCX installs handlers that print a back-trace and wait for a debugger when its library is loaded.
// A serving process must die at once, so that its supervisor starts another.
static void take_crash_handlers_off(void)
{
    static const int signals[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT };
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        struct sigaction action;
        Dl_info info;
        if (sigaction(signals[i], NULL, &action) != 0)
            continue;
        void *handler = (action.sa_flags & SA_SIGINFO) ? (void *)action.sa_sigaction
                                                       : (void *)action.sa_handler;
        if (handler != (void *)SIG_DFL && handler != (void *)SIG_IGN && dladdr(handler, &info) &&
            info.dli_fname && strstr(info.dli_fname, "libucs"))
            signal(signals[i], SIG_DFL);
    }
}

// UCX starts with nothing but loopback to itself when a device is down or unknown, and then crashes
// when the first endpoint fails. Its list of resources is told only in words:
// "#  resource 1  :  md 0  dev 1  flags -- tcp/lo".
static bool reaches_others(const fabric *f)
{
    char *text = NULL;
    size_t size = 0;
    bool found = false;
    FILE *stream = open_memstream(&text, &size);
    if (stream == NULL)
        return false;
    ucp_context_print_info(f->context, stream);
    fclose(stream);
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        found |= strstr(line, "resource ") && !strstr(line, " self/");
    free(text);
    return found;
}

static status open_context(fabric *f, error *failure)
{
    ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES,
                            .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP };
    ucs_status_t code = ucp_init(&params, NULL, &f->context);
    take_crash_handlers_off();
    if (code != UCS_OK)
        return error_set(failure, STATUS_BAD_CONFIG, "fabric.transports",
                         "UCX does not start with transports \"%s\" on devices \"%s\": %s",
                         getenv("UCX_TLS") ? getenv("UCX_TLS") : "all",
                         getenv("UCX_NET_DEVICES") ? getenv("UCX_NET_DEVICES") : "all",
                         ucs_status_string(code));
    if (!reaches_others(f))
        return error_set(failure, STATUS_BAD_CONFIG, "fabric.devices",
                         "no transport of \"%s\" works on devices \"%s\"; is the interface up?",
                         getenv("UCX_TLS") ? getenv("UCX_TLS") : "all",
                         getenv("UCX_NET_DEVICES") ? getenv("UCX_NET_DEVICES") : "all");
    ucp_worker_params_t worker = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                   .thread_mode = UCS_THREAD_MODE_SINGLE };
    code = ucp_worker_create(f->context, &worker, &f->worker);
    if (code == UCS_OK)
        code = ucp_worker_get_efd(f->worker, &f->worker_fd);
    if (code != UCS_OK)
        return error_set(failure, STATUS_IO, "", "UCX has no worker: %s", ucs_status_string(code));
    if (f->settings.pool == NULL)
        return STATUS_OK;
    ucp_mem_map_params_t map = { .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                                               UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                 .address = f->settings.pool,
                                 .length = f->settings.pool_size };
    code = ucp_mem_map(f->context, &map, &f->memory);
    if (code != UCS_OK)
        return error_set(
            failure, STATUS_NO_MEMORY, "engine.kv_bytes",
            "the page pool of %zu bytes cannot be registered (%s); the limit on locked "
            "memory (ulimit -l) must allow it where the transport is RDMA",
            f->settings.pool_size, ucs_status_string(code));
    return STATUS_OK;
}

static bool is_wildcard(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET6)
        return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)address)->sin6_addr);
    return ((const struct sockaddr_in *)address)->sin_addr.s_addr == htonl(INADDR_ANY);
}

static status open_listener(fabric *f, error *failure)
{
    struct sockaddr_storage address;
    socklen_t size;
    const char *host = f->settings.host;
    if (host == NULL || *host == 0)
        return error_set(failure, STATUS_BAD_CONFIG, "fabric.host",
                         "fabric.host is empty; it must be the address that prefill workers reach");
    status result = fabric_resolve(host, f->settings.port, true, &address, &size, failure);
    if (result != STATUS_OK)
        return result;
    if (is_wildcard(&address))
        return error_set(failure, STATUS_BAD_CONFIG, "fabric.host",
                         "fabric.host is \"%s\"; it must be one address that prefill workers reach",
                         host);
    ucp_listener_params_t params = {
        .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
        .sockaddr = { (const struct sockaddr *)&address, size },
        .conn_handler = { fabric_on_connection, f },
    };
    ucs_status_t code = ucp_listener_create(f->worker, &params, &f->listener);
    if (code != UCS_OK)
        return error_set(failure, code == UCS_ERR_BUSY ? STATUS_IO : STATUS_BAD_CONFIG,
                         "fabric.port", "the fabric cannot listen on %s port %u: %s", host,
                         f->settings.port, ucs_status_string(code));
    ucp_listener_attr_t made = { .field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR };
    code = ucp_listener_query(f->listener, &made);
    if (code != UCS_OK)
        return error_set(failure, STATUS_IO, "", "UCX does not tell where it listens: %s",
                         ucs_status_string(code));
    fabric_format_address(&made.sockaddr, f->host, &f->port);
    return STATUS_OK;
}

status fabric_watch(fabric *f, int fd)
{
    struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };
    return epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? STATUS_OK : STATUS_IO;
}

// Everything of `f` that exists goes; for a failed open and for close.
static void release(fabric *f)
{
    if (f->listener)
        ucp_listener_destroy(f->listener);
    if (f->memory)
        ucp_mem_unmap(f->context, f->memory);
    if (f->worker)
        ucp_worker_destroy(f->worker);
    if (f->context)
        ucp_cleanup(f->context);
    if (f->epoll_fd >= 0)
        close(f->epoll_fd);
    free(f->peers);
    free(f->slots);
    free(f);
}

status fabric_open(const fabric_settings *settings, const fabric_handlers *handlers,
                   fabric **opened, error *failure)
{
    CHECK(settings->peers_max > 0 && settings->window > 0 && settings->window <= 64);
    status result = STATUS_NO_MEMORY;
    fabric *f = calloc(1, sizeof(*f));
    if (f == NULL)
        return error_set(failure, result, "", "memory is short for the fabric");
    f->settings = *settings;
    f->handlers = *handlers;
    f->returned_end = &f->returned;
    f->now_us = f->turn_end_us = clock_now_us();
    f->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    f->peers = calloc(settings->peers_max, sizeof(f->peers[0]));
    if (f->peers == NULL || f->epoll_fd < 0) {
        error_set(failure, result, "", "memory or file descriptors are short for the fabric");
        goto fail;
    }
    TRY(fabric_slots_open(f));
    TRY(open_context(f, failure));
    TRY(fabric_set_handlers(f));
    TRY(fabric_watch(f, f->worker_fd));
    if (settings->listen)
        TRY(open_listener(f, failure));
    // The caller's strings end with the call.
    f->settings.host = NULL;
    *opened = f;
    return STATUS_OK;
fail:
    release(f);
    return result;
}

void fabric_address(const fabric *f, char host[64], uint16_t *port)
{
    snprintf(host, 64, "%s", f->host);
    *port = f->port;
}

uint64_t fabric_now_us(const fabric *f)
{
    return f->now_us;
}

// A process that was stopped, or a thread that did not get the processor, must not take its own
// silence for that of its peers: what was lost is added to everything that is being measured.
static void forgive_own_absence(fabric *f, uint64_t absent_us, uint64_t now_us)
{
    if (absent_us < (uint64_t)f->settings.suspect_us / 4)
        return;
    for (uint32_t i = 0; i < f->settings.peers_max; i++) {
        fabric_endpoint *e = &f->peers[i];
        e->heard_us = clock_forgive(e->heard_us, absent_us, now_us);
        if (e->owed_since_us)
            e->owed_since_us = clock_forgive(e->owed_since_us, absent_us, now_us);
    }
}

// Progress until there is none; true when UCX has nothing left to do now.
static bool progress(fabric *f)
{
    for (int round = 0; round < TURN_ROUNDS_MAX; round++) {
        f->posted = false;
        bool idle = ucp_worker_progress(f->worker) == 0;
        // At once, so that what returned gives its slots back before more comes.
        fabric_deliver_returned(f);
        if (idle && !f->posted)
            return true;
    }
    return false;
}

static bool anyone_is_watched(const fabric *f)
{
    for (uint32_t i = 0; i < f->settings.peers_max; i++) {
        const fabric_endpoint *e = &f->peers[i];
        if (e->state > FABRIC_PEER_OPEN || (e->state && (e->busy || e->owed_since_us)))
            return true;
    }
    return false;
}

// Sleep in epoll, but only after UCX agreed that its descriptor will tell of everything new. What
// was posted since the last progress is not among that: it has to be progressed first. And when a
// handler was called, the owner wants to act on it.
static void rest(fabric *f, int64_t timeout_us)
{
    int64_t check_us = f->settings.fail_us / 20 + 1000;
    if (anyone_is_watched(f) && timeout_us > check_us)
        timeout_us = check_us;
    if (timeout_us <= 0 || f->returned || f->accept_count || f->posted || f->handled)
        return;
    ucs_status_t code = ucp_worker_arm(f->worker);
    if (code == UCS_ERR_BUSY)
        return;
    CHECK(code == UCS_OK);
    struct epoll_event events[4];
    uint64_t before_us = clock_now_us();
    int ready = epoll_wait(f->epoll_fd, events, 4, (int)((timeout_us + 999) / 1000));
    CHECK(ready >= 0 || errno == EINTR);
    uint64_t slept_us = clock_now_us() - before_us;
    if (slept_us > (uint64_t)timeout_us)
        forgive_own_absence(f, slept_us - (uint64_t)timeout_us, before_us + slept_us);
}

void fabric_turn(fabric *f, int64_t timeout_us)
{
    f->now_us = clock_now_us();
    f->handled = false;
    forgive_own_absence(f, f->now_us - f->turn_end_us, f->now_us);
    bool idle = progress(f);
    fabric_accept_all(f);
    fabric_advance_peers(f);
    if (idle) {
        fabric_judge_silence(f);
        rest(f, timeout_us);
    }
    f->turn_end_us = f->now_us = clock_now_us();
}

void fabric_close(fabric *f)
{
    if (f == NULL)
        return;
    f->closing = true;
    while (f->accept_count > 0)
        ucp_listener_reject(f->listener, f->accepts[--f->accept_count]);
    fabric_close_peers(f);
    release(f);
}
