// The HTTP server over real sockets: each request gets its answer.
#include "http_fixture.h"

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
        { "POST /secret HTTP/1.1\r\n" REST JSON "Content-Length: 2\r\n\r\n{}", 401 },
        { "POST /secret HTTP/1.1\r\n" REST JSON "Content-Length: 99999\r\n\r\n", 401 },
        { "POST /secret HTTP/1.1\r\n" REST JSON "X-Key: yes\r\nContent-Length: 2\r\n\r\n{}", 200 },
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

#define PREFLIGHT(origin)                                                                          \
    "OPTIONS /echo HTTP/1.1\r\n" REST "Origin: " origin                                            \
    "\r\nAccess-Control-Request-Method: POST\r\n"                                                  \
    "Access-Control-Request-Headers: authorization, x-stainless-os\r\n\r\n"

static void pages_of_listed_origins_may_call(void **state)
{
    (void)state;
    buffer answer = { 0 };
    expect_status(PREFLIGHT("https://good.example"), 204, &answer);
    assert_non_null(strstr(answer.data, "Access-Control-Allow-Origin: https://good.example\r\n"));
    assert_non_null(strstr(answer.data, "Access-Control-Allow-Methods: GET, HEAD, POST\r\n"));
    assert_non_null(
        strstr(answer.data, "Access-Control-Allow-Headers: authorization, x-stainless-os\r\n"));
    assert_null(strstr(answer.data, "Content-Length"));
    expect_status(PREFLIGHT("https://good.example.evil"), 403, &answer);
    assert_null(strstr(answer.data, "Access-Control-Allow-Origin"));
    expect_status("OPTIONS /echo HTTP/1.1\r\n" REST "\r\n", 405, &answer);
    expect_status("GET /hello HTTP/1.1\r\n" REST "Origin: https://good.example\r\n\r\n", 200,
                  &answer);
    assert_non_null(strstr(answer.data, "Access-Control-Allow-Origin: https://good.example\r\n"));
    assert_non_null(strstr(answer.data, "Vary: Origin\r\n"));
    expect_status("GET /hello HTTP/1.1\r\n" REST "Origin: null\r\n\r\n", 200, &answer);
    assert_null(strstr(answer.data, "Access-Control-Allow-Origin"));
    buffer_close(&answer);
}

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"

static void a_trace_is_answered_and_a_bad_one_is_not(void **state)
{
    (void)state;
    buffer answer = { 0 };
    expect_status("GET /hello HTTP/1.1\r\n" REST "traceparent: 00-" TRACE
                  "-00f067aa0ba902b7-01\r\n\r\n",
                  200, &answer);
    const char *at = strstr(answer.data, "traceparent: 00-" TRACE "-");
    assert_non_null(at);
    assert_memory_equal(at + 65, "-01\r\n", 5);
    assert_memory_not_equal(at + 49, "00f067aa0ba902b7", 16); // our own part
    expect_status("GET /hello HTTP/1.1\r\n" REST "traceparent: 00-" TRACE
                  "-00f067aa0ba902b7-1\r\n\r\n",
                  200, &answer);
    assert_null(strstr(answer.data, "traceparent"));
    buffer_close(&answer);
}

static void every_answer_was_counted(void **state)
{
    (void)state;
    assert_true(atomic_load(&answered_200) >= 8);
    assert_true(atomic_load(&answered_other) > 15);
}

// One listener on "[::]" serves IPv6 and IPv4.
static void every_address_is_one_listener(void **state)
{
    (void)state;
    char *items[] = { (char *)"[::]:0" };
    http_settings both = settings;
    both.listen = (config_strings){ 1, items };
    http_thread *t = NULL;
    error failure;
    int probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (probe < 0)
        skip(); // this machine has no IPv6
    close(probe);
    assert_int_equal(http_thread_open(&both, routes, 1, NULL, &t, &failure), STATUS_OK);
    const char *bound = http_server_address(http_thread_server(t), 0);
    assert_memory_equal(bound, "[::]:", 5);
    struct sockaddr_in four = { .sin_family = AF_INET,
                                .sin_port = htons((uint16_t)atoi(bound + 5)) };
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = four.sin_port };
    six.sin6_addr = in6addr_loopback;
    for (int i = 0; i < 2; i++) {
        buffer answer = { 0 };
        int descriptor = socket(i ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const struct sockaddr *to = i ? (struct sockaddr *)&six : (struct sockaddr *)&four;
        assert_int_equal(connect(descriptor, to, i ? sizeof six : sizeof four), 0);
        client_send(descriptor,
                    "GET /hello HTTP/1.1\r\nHost: [::1]:80\r\nConnection: close\r\n\r\n");
        client_read(descriptor, NULL, &answer);
        assert_non_null(strstr(buffer_slice(&answer).data, "hello"));
        close(descriptor);
        buffer_close(&answer);
    }
    http_thread_close(t);
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
        cmocka_unit_test(a_connection_serves_many_requests_in_order),
        cmocka_unit_test(a_body_is_invited_when_the_client_asks),
        cmocka_unit_test(pages_of_listed_origins_may_call),
        cmocka_unit_test(a_trace_is_answered_and_a_bad_one_is_not),
        cmocka_unit_test(every_answer_was_counted),
        cmocka_unit_test(every_address_is_one_listener),
        cmocka_unit_test(an_address_in_use_is_a_sentence),
    };
    return cmocka_run_group_tests(tests, server_start, server_stop);
}
