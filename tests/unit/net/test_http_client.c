// The client that waits, against the server.
#include "http_fixture.h"

#include "net/http_client.h"

#include "base/clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

static atomic_bool stop;
static char url[64];

static void on_alarm(int number)
{
    (void)number;
    stop = 1;
}

static status ask(const char *method, const char *path, slice body, int *code, buffer *answer,
                  int *pieces)
{
    http_client_options options = { .url = url, .patience_s = 60, .stop = &stop };
    http_client *c = NULL;
    error failure;
    bool done = false;
    stop = 0;
    *pieces = 0;
    buffer_clear(answer);
    snprintf(url, sizeof url, "http://%s/", http_server_address(server, 0));
    status result = http_client_open(&options, &c, &failure);
    if (result == STATUS_OK)
        result = http_client_send(c, method, path, SLICE("X-Key: yes\r\n"), body, code, &failure);
    while (result == STATUS_OK && !done) {
        result = http_client_read(c, answer, &done, &failure);
        *pieces += !done;
    }
    http_client_close(c);
    return result;
}

static void answers_come_whole_and_in_chunks(void **state)
{
    (void)state;
    static const struct {
        const char *method, *path, *body;
        int code;
        const char *answer; // NULL: anything
    } cases[] = { { "GET", "/hello", "", 200, "hello" },
                  { "POST", "/echo", "{\"a\":1}", 200, "{\"a\":1}" },
                  { "POST", "/secret", "[]", 200, "[]" },
                  { "GET", "/stream", "", 200, "data: x\n\ndata: x\n\ndata: x\n\n" },
                  { "GET", "/rest/", "", 404, NULL },
                  { "GET", "/echo", "", 405, NULL } };
    buffer answer = { 0 };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int code = 0, pieces;
        assert_int_equal(
            ask(cases[i].method, cases[i].path, slice_of(cases[i].body), &code, &answer, &pieces),
            STATUS_OK);
        assert_int_equal(code, cases[i].code);
        assert_true(pieces >= 1);
        if (cases[i].answer)
            assert_string_equal(answer.data, cases[i].answer);
        else
            assert_memory_equal(answer.data, "{\"error\":", 9);
    }
    assert_int_equal(ask("GET", "/big", SLICE(""), &(int){ 0 }, &answer, &(int){ 0 }), STATUS_OK);
    assert_int_equal(answer.size, 60000);
    buffer_close(&answer);
}

// Once the server has the request.
static void *signal_soon(void *waiting)
{
    wait_for(&unanswered, 1);
    pthread_kill(*(pthread_t *)waiting, SIGALRM);
    return NULL;
}

static void a_signal_ends_the_waiting(void **state)
{
    (void)state;
    pthread_t self = pthread_self(), other;
    struct sigaction action = { .sa_handler = on_alarm };
    buffer answer = { 0 };
    int code, pieces, before = atomic_load(&closes);
    sigaction(SIGALRM, &action, NULL);
    atomic_store(&unanswered, 0);
    assert_int_equal(pthread_create(&other, NULL, signal_soon, &self), 0);
    assert_int_equal(ask("GET", "/never", SLICE(""), &code, &answer, &pieces), STATUS_CANCELLED);
    assert_int_equal(pthread_join(other, NULL), 0);
    wait_for(&closes, before + 1); // and the server knows
    buffer_close(&answer);
}

static void *stop_soon(void *unused)
{
    usleep(100000);
    stop = 1;
    return unused;
}

// Of a request that the server leaves without an answer.
static status never_answered(unsigned patience_s, bool stopped, error *failure)
{
    http_client_options options = { .url = url, .patience_s = patience_s, .stop = &stop };
    http_client *c = NULL;
    pthread_t stopper = 0;
    int code;
    stop = 0;
    snprintf(url, sizeof url, "http://%s/", http_server_address(server, 0));
    assert_int_equal(http_client_open(&options, &c, failure), STATUS_OK);
    if (stopped)
        assert_int_equal(pthread_create(&stopper, NULL, stop_soon, NULL), 0);
    status result = http_client_send(c, "GET", "/never", SLICE(""), SLICE(""), &code, failure);
    if (stopped)
        pthread_join(stopper, NULL);
    http_client_close(c);
    return result;
}

// Nobody sends a signal: the flag is seen all the same, and patience is as long as before.
static void a_flag_ends_the_waiting_and_so_does_patience(void **state)
{
    (void)state;
    error failure = { 0 };
    assert_int_equal(never_answered(30, true, &failure), STATUS_CANCELLED);
    uint64_t begun = clock_now_us();
    assert_int_equal(never_answered(1, false, &failure), STATUS_UNAVAILABLE);
    assert_non_null(strstr(failure.text, "too long"));
    assert_true(clock_now_us() - begun > 900000);
}

static void what_is_no_router_is_a_sentence(void **state)
{
    (void)state;
    static const struct {
        const char *url;
        status code;
    } cases[] = { { "ftp://a", STATUS_INVALID },
                  { "127.0.0.1:80", STATUS_INVALID },
                  { "http://a:b", STATUS_INVALID },
                  { "http://127.0.0.1:1", STATUS_UNAVAILABLE },
                  { "https://127.0.0.1:1", STATUS_UNAVAILABLE } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        http_client_options options = { .url = cases[i].url };
        http_client *c = NULL;
        error failure = { 0 };
        assert_int_equal(http_client_open(&options, &c, &failure), cases[i].code);
        assert_null(c);
        assert_true(failure.text[0] != 0);
    }
}

// A listener whose queue is full answers nobody.
static void a_server_that_does_not_answer_is_given_up(void **state)
{
    (void)state;
    int waiting[4], listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof at;
    assert_int_equal(bind(listener, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(listener, 0), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &size), 0);
    for (size_t i = 0; i < 4; i++) {
        waiting[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(waiting[i], (struct sockaddr *)&at, size);
    }
    http_client_options options = { .url = url, .patience_s = 1 };
    http_client *c = NULL;
    error failure = { 0 };
    snprintf(url, sizeof url, "http://127.0.0.1:%u", ntohs(at.sin_port));
    assert_int_equal(http_client_open(&options, &c, &failure), STATUS_UNAVAILABLE);
    assert_non_null(strstr(failure.text, "timed out"));
    for (size_t i = 0; i < 4; i++)
        close(waiting[i]);
    close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_come_whole_and_in_chunks),
        cmocka_unit_test(a_signal_ends_the_waiting),
        cmocka_unit_test(a_flag_ends_the_waiting_and_so_does_patience),
        cmocka_unit_test(what_is_no_router_is_a_sentence),
        cmocka_unit_test(a_server_that_does_not_answer_is_given_up),
    };
    return cmocka_run_group_tests(tests, server_start, server_stop);
}
