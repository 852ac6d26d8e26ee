// A server on a thread of its own with short limits, handlers of every kind, and a client that
// speaks in bytes.
#pragma once

#include "net/http.h"
#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

static http_loop *loop;
static http_server *server;
static http_watch *stop_watch;
static pthread_t thread;
static char *listen_items[] = { (char *)"127.0.0.1:0" };
static char *cors_items[] = { (char *)"https://good.example" };
static config_strings trusted_proxies; // none, unless a test sets it before the start
// Of heads, bodies and writes. Where a test is about something else the machine may stand still.
static int64_t deadline_us = 60000000;
static http_settings settings;
static atomic_int closes, cut_writes, unanswered, answered_200, answered_other;

static void on_close(void *context)
{
    (void)context;
    atomic_fetch_add(&closes, 1);
}

static void handle_hello(http_request *r, void *context)
{
    (void)context;
    http_respond(r, 200, "text/plain", SLICE("hello"));
}

static void handle_echo(http_request *r, void *context)
{
    (void)context;
    buffer body = { 0 };
    buffer_append_slice(&body, http_request_body(r));
    http_respond(r, 200, "application/json", buffer_slice(&body));
    buffer_close(&body);
}

static void handle_never(http_request *r, void *context)
{
    atomic_fetch_add(&unanswered, 1);
    http_request_on_close(r, on_close, context);
}

static void handle_rest(http_request *r, void *context)
{
    (void)context;
    http_respond(r, 200, "text/plain", http_request_rest(r));
}

// Three events, written at once.
static void handle_stream(http_request *r, void *context)
{
    (void)context;
    http_stream_begin(r, 200, "text/event-stream");
    for (int i = 0; i < 3; i++)
        assert_true(http_stream_write(r, SLICE("data: x\n\n")));
    http_stream_end(r);
}

static atomic_int big_answers;

static void handle_big(http_request *r, void *context)
{
    (void)context;
    static char block[60000];
    memset(block, 'b', sizeof block);
    atomic_fetch_add(&big_answers, 1);
    http_respond(r, 200, "text/plain", (slice){ block, sizeof block });
}

// Streams for ever; a timer of its own feeds it.
typedef struct flood {
    http_request *request;
    http_timer *timer;
} flood;

static void flood_close(void *context)
{
    flood *f = context;
    atomic_fetch_add(&closes, 1);
    http_timer_close(f->timer);
    free(f);
}

static void flood_tick(void *context)
{
    flood *f = context;
    static const char block[4096] = { 'x' };
    for (int i = 0; i < 64; i++) {
        if (!http_stream_write(f->request, (slice){ block, sizeof block })) {
            atomic_fetch_add(&cut_writes, 1);
            return;
        }
    }
    http_timer_start(f->timer, 1000);
}

static void handle_flood(http_request *r, void *context)
{
    (void)context;
    flood *f = calloc(1, sizeof *f);
    f->request = r;
    assert_int_equal(http_timer_open(loop, flood_tick, f, &f->timer), STATUS_OK);
    http_request_on_close(r, flood_close, f);
    http_stream_begin(r, 200, "text/plain");
    http_timer_start(f->timer, 0);
}

static pthread_mutex_t answered_lock = PTHREAD_MUTEX_INITIALIZER;
static char answered_client[HTTP_ADDRESS_TEXT]; // of the last answer; under the lock

static void on_answered(const http_request *r, const char *route, int status_code, void *context)
{
    (void)route, (void)context;
    pthread_mutex_lock(&answered_lock);
    http_request_client(r, answered_client);
    pthread_mutex_unlock(&answered_lock);
    atomic_fetch_add(status_code == 200 ? &answered_200 : &answered_other, 1);
}

// Everything that its owner marked needs a key.
static bool on_admit(http_request *r, void *context)
{
    (void)context;
    if (!(http_request_flags(r) & HTTP_OWNER_FLAG) ||
        slice_equal(http_request_field(r, "X-Key"), SLICE("yes")))
        return true;
    http_respond_error(r, 401, NULL, NULL, NULL, "a key is missing");
    return false;
}

static const http_route routes[] = {
    { "GET", "/hello", handle_hello, 0 },
    { "POST", "/echo", handle_echo, HTTP_JSON_BODY },
    { "POST", "/never", handle_never, HTTP_JSON_BODY },
    { "GET", "/never", handle_never, 0 },
    { "GET", "/stream", handle_stream, 0 },
    { "GET", "/flood", handle_flood, 0 },
    { "GET", "/rest/*", handle_rest, 0 },
    { "POST", "/secret", handle_echo, HTTP_JSON_BODY | HTTP_OWNER_FLAG },
    { "GET", "/big", handle_big, 0 },
};

static void *run(void *context)
{
    http_loop_run(context);
    return NULL;
}

__attribute__((unused)) static int server_start(void **state)
{
    (void)state;
    error failure;
    settings = (http_settings){ .listen = { 1, listen_items },
                                .connections_max = 40,
                                .connections_per_address = 20,
                                .head_bytes = 2048,
                                .body_bytes = 4096,
                                .bodies_bytes = 8192,
                                .output_bytes = 65536,
                                .head_deadline_us = deadline_us,
                                .body_deadline_us = deadline_us,
                                .idle_us = 3 * deadline_us,
                                .write_deadline_us = deadline_us,
                                .cors_origins = { 1, cors_items },
                                .trusted_proxies = trusted_proxies };
    assert_int_equal(http_loop_open(&loop, &failure), STATUS_OK);
    http_hooks hooks = { on_admit, on_answered, NULL };
    assert_int_equal(http_server_open(loop, &settings, routes, sizeof routes / sizeof *routes,
                                      &hooks, NULL, &server, &failure),
                     STATUS_OK);
    return pthread_create(&thread, NULL, run, loop);
}

__attribute__((unused)) static int server_stop(void **state)
{
    (void)state;
    http_watch_close(stop_watch);
    http_loop_stop(loop);
    pthread_join(thread, NULL);
    http_server_close(server);
    http_loop_close(loop);
    return 0;
}

__attribute__((unused)) static int client_open(void)
{
    struct sockaddr_in to = { .sin_family = AF_INET };
    to.sin_port = htons((uint16_t)atoi(strrchr(http_server_address(server, 0), ':') + 1));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = { 60, 0 };
    setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(connect(descriptor, (struct sockaddr *)&to, sizeof to), 0);
    return descriptor;
}

__attribute__((unused)) static void client_send(int descriptor, const char *text)
{
    size_t size = strlen(text);
    assert_int_equal(send(descriptor, text, size, MSG_NOSIGNAL), (ssize_t)size);
}

// Everything until the server closes, or until `until` was read (NULL: to the end). Nothing is an
// empty text.
__attribute__((unused)) static void client_read(int descriptor, const char *until, buffer *answer)
{
    char block[4096];
    buffer_append_byte(answer, 0);
    buffer_clear(answer);
    for (;;) {
        if (until && answer->size && strstr(answer->data, until))
            return;
        ssize_t count = recv(descriptor, block, sizeof block, 0);
        if (count < 0 && errno == EINTR) // this process was stopped and goes on
            continue;
        if (count <= 0)
            return;
        buffer_append(answer, block, (size_t)count);
    }
}

// Send, read to the end (the request asks for close, or is refused), and check the status.
__attribute__((unused)) static void expect_status(const char *request, int status_code,
                                                  buffer *answer)
{
    char wanted[32];
    int descriptor = client_open();
    client_send(descriptor, request);
    client_read(descriptor, NULL, answer);
    close(descriptor);
    snprintf(wanted, sizeof wanted, "HTTP/1.1 %d ", status_code);
    if (!answer->size || strncmp(answer->data, wanted, strlen(wanted)) != 0)
        fail_msg("wanted %sfor:\n%s\ngot:\n%s", wanted, request, buffer_slice(answer).data);
    if (status_code >= 400) {
        assert_non_null(strstr(answer->data, "{\"error\":{\"message\":\""));
        assert_non_null(strstr(answer->data, "Content-Type: application/json\r\n"));
    }
}

#define REST "Host: a\r\nConnection: close\r\n"
#define JSON "Content-Type: application/json\r\n"

__attribute__((unused)) static void wait_for(atomic_int *counter, int value)
{
    for (int i = 0; i < 6000 && atomic_load(counter) < value; i++)
        clock_sleep_us(10000);
    assert_int_equal(atomic_load(counter), value);
}
