#include "load.h"

#include "base/clock.h"
#include "base/status.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS_AT_ONCE 512
#define LINE_MAX_BYTES 2048

// A connection reads its answer line by line; only the beginning of a line matters.
typedef struct connection {
    int fd;
    bool begun, in_body, stream, done;
    size_t left; // of a body with a length
    size_t size;
    char line[LINE_MAX_BYTES];
} connection;

atomic_ullong clients_requests, clients_events, clients_tokens, clients_open, clients_failures;

static clients_settings settings;
static connection *all;
static char *request;
static size_t request_size;
static int poller;
static pthread_t thread;
static atomic_bool ending;

static void ask(connection *c)
{
    *c = (connection){ .fd = c->fd };
    if (send(c->fd, request, request_size, MSG_NOSIGNAL) != (ssize_t)request_size)
        atomic_fetch_add(&clients_failures, 1);
}

static void close_it(connection *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

static void answered(connection *c)
{
    atomic_fetch_add(&clients_requests, 1);
    if (settings.again)
        ask(c);
    else
        close_it(c);
}

static void on_event(connection *c)
{
    static const char mark[] = "\"text\":\"";
    if (strncmp(c->line, "data: [DONE]", 12) == 0) {
        c->done = true;
        return;
    }
    const char *text = strstr(c->line, mark), *end = text ? strchr(text + 8, '"') : NULL;
    if (!end || end == text + 8)
        return;
    atomic_fetch_add_explicit(&clients_events, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&clients_tokens, (unsigned long long)(end - text - 8),
                              memory_order_relaxed);
}

// A line without its end; an empty one ends the head, and behind [DONE] a stream's last chunk.
static void on_line(connection *c)
{
    if (!c->begun) {
        c->begun = true;
        atomic_fetch_add(&clients_open, 1);
        if (strncmp(c->line, "HTTP/1.1 200", 12) != 0)
            atomic_fetch_add(&clients_failures, 1);
    } else if (!c->in_body) {
        if (strncasecmp(c->line, "content-length:", 15) == 0)
            c->left = strtoull(c->line + 15, NULL, 10);
        if (strncasecmp(c->line, "transfer-encoding:", 18) == 0)
            c->stream = true;
        c->in_body = c->size == 0;
    } else if (strncmp(c->line, "data: ", 6) == 0) {
        on_event(c);
    } else if (c->done && strcmp(c->line, "0") == 0) {
        c->left = 2; // the empty line behind it
        c->stream = false;
    }
}

// Take bytes in; true: the answer is complete.
static bool take(connection *c, const char *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (c->in_body && !c->stream) {
            size_t n = size - i < c->left ? size - i : c->left;
            c->left -= n;
            return c->left == 0;
        }
        if (data[i] != '\n') {
            if (c->size < LINE_MAX_BYTES - 1)
                c->line[c->size++] = data[i];
            continue;
        }
        if (c->size > 0 && c->line[c->size - 1] == '\r')
            c->size--;
        c->line[c->size] = 0;
        on_line(c);
        c->size = 0;
    }
    return c->in_body && !c->stream && c->left == 0;
}

static void on_readable(connection *c)
{
    static char block[65536];
    ssize_t n = recv(c->fd, block, sizeof block, MSG_DONTWAIT);
    if (n > 0) {
        if (take(c, block, (size_t)n))
            answered(c);
        return;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    atomic_fetch_add(&clients_failures, 1);
    close_it(c);
}

static void connection_open(connection *c, int index)
{
    int on = 1;
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)atoi(settings.port)) };
    inet_pton(AF_INET, settings.host, &to.sin_addr);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct epoll_event wanted = { .events = EPOLLIN, .data.u32 = (uint32_t)index };
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&to, sizeof to) != 0 ||
        epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &wanted) != 0) {
        perror("router-load: connect");
        exit(1);
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ask(c);
}

static void *run(void *unused)
{
    (void)unused;
    struct epoll_event events[EVENTS_AT_ONCE];
    uint64_t began = clock_now_us();
    int opened = 0;
    while (!atomic_load(&ending)) {
        double wanted = (double)(clock_now_us() - began) * 1e-6 * settings.opened_per_second + 1;
        for (; opened < settings.connections && opened < (int)wanted; opened++)
            connection_open(&all[opened], opened);
        int count = epoll_wait(poller, events, EVENTS_AT_ONCE, 5);
        for (int i = 0; i < count; i++)
            if (all[events[i].data.u32].fd >= 0)
                on_readable(&all[events[i].data.u32]);
    }
    for (int i = 0; i < opened; i++)
        close_it(&all[i]);
    return NULL;
}

void clients_start(const clients_settings *given)
{
    settings = *given;
    size_t body = strlen(settings.body);
    request = malloc(body + 512);
    all = calloc((size_t)settings.connections, sizeof *all);
    poller = epoll_create1(EPOLL_CLOEXEC);
    CHECK(request && all && poller >= 0);
    request_size =
        (size_t)sprintf(request,
                        "POST /v1/completions HTTP/1.1\r\nHost: router\r\n"
                        "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                        body, settings.body);
    CHECK(pthread_create(&thread, NULL, run, NULL) == 0);
}

void clients_stop(void)
{
    atomic_store(&ending, true);
    pthread_join(thread, NULL);
}
