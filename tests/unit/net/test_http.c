// The HTTP server over real sockets: what clients of every manner get, and that they do not disturb
// others.
#include "net/http.h"
#include "base/clock.h"

#include <arpa/inet.h>
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
static http_settings settings;
static atomic_int closes, cut_writes, answered_200, answered_other;

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

static void on_answered(const char *route, int status_code, void *context)
{
    (void)route, (void)context;
    atomic_fetch_add(status_code == 200 ? &answered_200 : &answered_other, 1);
}

static const http_route routes[] = {
    { "GET", "/hello", handle_hello, 0 },
    { "POST", "/echo", handle_echo, HTTP_JSON_BODY },
    { "POST", "/never", handle_never, HTTP_JSON_BODY },
    { "GET", "/never", handle_never, 0 },
    { "GET", "/stream", handle_stream, 0 },
    { "GET", "/flood", handle_flood, 0 },
    { "GET", "/rest/*", handle_rest, 0 },
};

static void *run(void *context)
{
    http_loop_run(context);
    return NULL;
}

static int server_start(void **state)
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
                                .head_deadline_us = 300000,
                                .body_deadline_us = 300000,
                                .idle_us = 1000000,
                                .write_deadline_us = 300000 };
    assert_int_equal(http_loop_open(&loop, &failure), STATUS_OK);
    http_hooks hooks = { on_answered };
    assert_int_equal(http_server_open(loop, &settings, routes, sizeof routes / sizeof *routes,
                                      &hooks, NULL, &server, &failure),
                     STATUS_OK);
    return pthread_create(&thread, NULL, run, loop);
}

static int server_stop(void **state)
{
    (void)state;
    http_watch_close(stop_watch);
    http_loop_stop(loop);
    pthread_join(thread, NULL);
    http_server_close(server);
    http_loop_close(loop);
    return 0;
}

static int client_open(void)
{
    struct sockaddr_in to = { .sin_family = AF_INET };
    to.sin_port = htons((uint16_t)atoi(strrchr(http_server_address(server, 0), ':') + 1));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = { 5, 0 };
    setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(connect(descriptor, (struct sockaddr *)&to, sizeof to), 0);
    return descriptor;
}

static void client_send(int descriptor, const char *text)
{
    size_t size = strlen(text);
    assert_int_equal(send(descriptor, text, size, MSG_NOSIGNAL), (ssize_t)size);
}

// Everything until the server closes, or until `until` was read (NULL: to the end).
static void client_read(int descriptor, const char *until, buffer *answer)
{
    char block[4096];
    buffer_clear(answer);
    for (;;) {
        if (until && answer->size && strstr(answer->data, until))
            return;
        ssize_t count = recv(descriptor, block, sizeof block, 0);
        if (count <= 0)
            return;
        buffer_append(answer, block, (size_t)count);
    }
}

// Send, read to the end (the request asks for close, or is refused), and check the status.
static void expect_status(const char *request, int status_code, buffer *answer)
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

static void each_request_gets_its_status(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int status;
    } cases[] = {
        { "GET /hello HTTP/1.1\r\n" REST "\r\n", 200 },
        { "HEAD /hello HTTP/1.1\r\n" REST "\r\n", 200 },
        { "GET /hello?x=1 HTTP/1.0\r\n\r\n", 200 },
        { "GET /nothing HTTP/1.1\r\n" REST "\r\n", 404 },
        { "GET /rest/ HTTP/1.1\r\n" REST "\r\n", 404 },
        { "GET /echo HTTP/1.1\r\n" REST "\r\n", 405 },
        { "POST /echo HTTP/1.1\r\n" REST JSON "Content-Length: 2\r\n\r\n{}", 200 },
        { "POST /echo HTTP/1.1\r\n" REST JSON
          "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
          200 },
        { "POST /echo HTTP/1.1\r\n" REST JSON "Content-Length: 4097\r\n\r\n", 413 },
        { "POST /echo HTTP/1.1\r\n" REST JSON
          "Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n",
          413 },
        { "POST /echo HTTP/1.1\r\n" REST JSON "Transfer-Encoding: chunked\r\n\r\n1001\r\n", 413 },
        { "POST /echo HTTP/1.1\r\n" REST "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",
          415 },
        { "POST /echo HTTP/1.1\r\n" REST "Content-Length: 2\r\n\r\n{}", 415 },
        { "POST /echo HTTP/1.1\r\n" REST JSON JSON "Content-Length: 2\r\n\r\n{}", 415 },
        { "POST /echo HTTP/1.1\r\n" REST JSON "\r\n", 411 },
        { "POST /echo HTTP/1.1\r\n" REST JSON "Content-Length: 3\r\n\r\n\"\xff\"", 400 },
        { "POST /echo HTTP/1.1\r\n" REST JSON
          "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
          400 },
        { "POST /echo HTTP/1.1\r\n" REST JSON "Expect: nonsense\r\nContent-Length: 2\r\n\r\n",
          417 },
        { "GET /hello HTTP/1.1\r\n\r\n", 400 },
        { "GET /hello HTTP/1.1\nHost: a\n\n", 400 },
        { "nonsense\r\n\r\n", 400 },
        { "GET /hello HTTP/3.0\r\n\r\n", 505 },
    };
    buffer answer = { 0 };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_status(cases[i].text, cases[i].status, &answer);
    expect_status("GET /echo HTTP/1.1\r\n" REST "\r\n", 405, &answer);
    assert_non_null(strstr(answer.data, "Allow: POST\r\n"));
    expect_status("GET /rest/a/b HTTP/1.1\r\n" REST "X-Request-Id: my-id.1\r\n\r\n", 200, &answer);
    assert_non_null(strstr(answer.data, "X-Request-Id: my-id.1\r\n"));
    assert_non_null(strstr(answer.data, "\r\n\r\na/b"));
    buffer_close(&answer);
}

static void a_head_past_its_limit_is_431(void **state)
{
    (void)state;
    buffer request = { 0 }, answer = { 0 };
    buffer_append_text(&request, "GET /hello HTTP/1.1\r\nHost: a\r\nX: ");
    for (int i = 0; i < 4096; i++)
        buffer_append_byte(&request, 'a');
    expect_status(request.data, 431, &answer);
    buffer_close(&request);
    buffer_close(&answer);
}

static void a_connection_serves_many_requests_in_order(void **state)
{
    (void)state;
    buffer answer = { 0 };
    int descriptor = client_open();
    client_send(descriptor, "GET /rest/1 HTTP/1.1\r\nHost: a\r\n\r\n"
                            "POST /echo HTTP/1.1\r\nHost: a\r\n" JSON "Content-Length: 2\r\n\r\n{}"
                            "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n"
                            "GET /rest/last HTTP/1.1\r\n" REST "\r\n");
    client_read(descriptor, NULL, &answer);
    close(descriptor);
    const char *at = answer.data;
    static const char *const parts[] = { "\r\n\r\n1", "\r\n\r\n{}", "9\r\ndata: x\n\n\r\n",
                                         "\r\n0\r\n\r\n", "\r\n\r\nlast" };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        at = strstr(at, parts[i]);
        assert_non_null(at);
    }
    buffer_close(&answer);
}

static void a_body_is_invited_when_the_client_asks(void **state)
{
    (void)state;
    buffer answer = { 0 };
    int descriptor = client_open();
    client_send(descriptor, "POST /echo HTTP/1.1\r\n" REST JSON
                            "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    client_read(descriptor, "100 Continue\r\n\r\n", &answer);
    assert_non_null(strstr(answer.data, "HTTP/1.1 100 Continue\r\n\r\n"));
    client_send(descriptor, "{}");
    client_read(descriptor, NULL, &answer);
    assert_non_null(strstr(answer.data, "HTTP/1.1 200 OK"));
    close(descriptor);
    buffer_close(&answer);
}

static void slow_heads_and_bodies_meet_their_deadline(void **state)
{
    (void)state;
    buffer answer = { 0 };
    int slow = client_open();
    client_send(slow, "GET /hello HTTP/1.1\r\n");
    for (int i = 0; i < 4; i++) { // a line now and then does not help
        clock_sleep_us(100000);
        send(slow, "X: y\r\n", 6, MSG_NOSIGNAL);
    }
    client_read(slow, NULL, &answer);
    assert_non_null(strstr(answer.data, "HTTP/1.1 408 "));
    close(slow);
    slow = client_open();
    client_send(slow, "POST /echo HTTP/1.1\r\nHost: a\r\n" JSON "Content-Length: 9\r\n\r\n{");
    client_read(slow, NULL, &answer);
    assert_non_null(strstr(answer.data, "HTTP/1.1 408 "));
    close(slow);
    buffer_close(&answer);
}

static void wait_for(atomic_int *counter, int value)
{
    for (int i = 0; i < 500 && atomic_load(counter) < value; i++)
        clock_sleep_us(10000);
    assert_int_equal(atomic_load(counter), value);
}

static void a_client_that_goes_away_is_reported_once(void **state)
{
    (void)state;
    int before = atomic_load(&closes);
    int gone = client_open(), half = client_open();
    client_send(gone, "GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
    client_send(half, "POST /never HTTP/1.1\r\nHost: a\r\n" JSON "Content-Length: 2\r\n\r\n{}");
    clock_sleep_us(50000);
    assert_int_equal(atomic_load(&closes), before);
    close(gone);
    wait_for(&closes, before + 1);
    shutdown(half, SHUT_WR); // half a close counts as gone
    wait_for(&closes, before + 2);
    close(half);
}

static void a_slow_reader_is_cut_and_others_are_served(void **state)
{
    (void)state;
    buffer answer = { 0 };
    int before = atomic_load(&closes), cuts = atomic_load(&cut_writes);
    int slow = client_open();
    client_send(slow, "GET /flood HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&closes, before + 1);
    assert_int_equal(atomic_load(&cut_writes), cuts + 1);
    expect_status("GET /hello HTTP/1.1\r\n" REST "\r\n", 200, &answer);
    close(slow);
    buffer_close(&answer);
}

static void a_flood_of_early_requests_is_cut(void **state)
{
    (void)state;
    int before = atomic_load(&closes);
    char block[4096];
    memset(block, 'a', sizeof block);
    int descriptor = client_open();
    client_send(descriptor, "GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
    for (int i = 0; i < 1000; i++)
        if (send(descriptor, block, sizeof block, MSG_NOSIGNAL) < 0)
            break;
    wait_for(&closes, before + 1);
    close(descriptor);
}

static void bodies_share_a_budget(void **state)
{
    (void)state;
    static const char head[] =
        "POST /never HTTP/1.1\r\nHost: a\r\n" JSON "Content-Length: 4000\r\n\r\n";
    buffer request = { 0 }, answer = { 0 };
    int held[3];
    buffer_append_text(&request, head);
    for (int i = 0; i < 4000; i++)
        buffer_append_byte(&request, ' ');
    for (int i = 0; i < 3; i++) {
        held[i] = client_open();
        client_send(held[i], request.data);
    }
    client_read(held[2], NULL, &answer); // two fit, the third does not
    assert_non_null(strstr(answer.data, "HTTP/1.1 503 "));
    for (int i = 0; i < 3; i++)
        close(held[i]);
    clock_sleep_us(50000);
    expect_status("POST /echo HTTP/1.1\r\n" REST JSON "Content-Length: 2\r\n\r\n{}", 200, &answer);
    buffer_close(&request);
    buffer_close(&answer);
}

static void an_address_has_a_limit_of_connections(void **state)
{
    (void)state;
    int held[20];
    buffer answer = { 0 };
    clock_sleep_us(100000); // the connections of earlier tests have ended
    for (int i = 0; i < 20; i++) {
        held[i] = client_open();
        client_send(held[i], "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
        client_read(held[i], "hello", &answer);
        assert_non_null(strstr(answer.data, "200 OK"));
    }
    int more = client_open();
    client_read(more, NULL, &answer);
    assert_non_null(strstr(answer.data, "HTTP/1.1 503 "));
    close(more);
    for (int i = 0; i < 20; i++)
        close(held[i]);
    clock_sleep_us(100000);
    expect_status("GET /hello HTTP/1.1\r\n" REST "\r\n", 200, &answer);
    buffer_close(&answer);
}

static void idle_connections_end(void **state)
{
    (void)state;
    buffer answer = { 0 };
    int descriptor = client_open();
    client_send(descriptor, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    client_read(descriptor, NULL, &answer); // returns when the server closes
    assert_null(strstr(answer.data, "408"));
    close(descriptor);
    buffer_close(&answer);
}

static void every_answer_was_counted(void **state)
{
    (void)state;
    assert_true(atomic_load(&answered_200) > 30);
    assert_true(atomic_load(&answered_other) > 15);
}

static void an_address_in_use_is_a_sentence(void **state)
{
    (void)state;
    char taken[64];
    snprintf(taken, sizeof taken, "%s", http_server_address(server, 0));
    char *items[] = { taken };
    http_settings second = settings;
    second.listen = (config_strings){ 1, items };
    http_server *other = NULL;
    error failure;
    http_loop *own;
    assert_int_equal(http_loop_open(&own, &failure), STATUS_OK);
    assert_int_equal(http_server_open(own, &second, routes, 1, NULL, NULL, &other, &failure),
                     STATUS_IO);
    assert_non_null(strstr(failure.text, taken));
    http_loop_close(own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_request_gets_its_status),
        cmocka_unit_test(a_head_past_its_limit_is_431),
        cmocka_unit_test(a_connection_serves_many_requests_in_order),
        cmocka_unit_test(a_body_is_invited_when_the_client_asks),
        cmocka_unit_test(slow_heads_and_bodies_meet_their_deadline),
        cmocka_unit_test(a_client_that_goes_away_is_reported_once),
        cmocka_unit_test(a_slow_reader_is_cut_and_others_are_served),
        cmocka_unit_test(a_flood_of_early_requests_is_cut),
        cmocka_unit_test(bodies_share_a_budget),
        cmocka_unit_test(an_address_has_a_limit_of_connections),
        cmocka_unit_test(idle_connections_end),
        cmocka_unit_test(every_answer_was_counted),
        cmocka_unit_test(an_address_in_use_is_a_sentence),
    };
    return cmocka_run_group_tests(tests, server_start, server_stop);
}
