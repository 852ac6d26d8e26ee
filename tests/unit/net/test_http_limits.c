// The HTTP server's limits: slow, greedy and vanishing clients get what they deserve and disturb
// nobody.
#include "http_fixture.h"

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

static void slow_heads_and_bodies_meet_their_deadline(void **state)
{
    (void)state;
    buffer answer = { 0 };
    int slow = client_open();
    client_send(slow, "GET /hello HTTP/1.1\r\n");
    char first;
    do { // a line now and then does not help; none behind the answer, which a reset could take away
        send(slow, "X: y\r\n", 6, MSG_NOSIGNAL);
        clock_sleep_us(100000);
    } while (recv(slow, &first, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN);
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

static void a_client_that_goes_away_is_reported_once(void **state)
{
    (void)state;
    int before = atomic_load(&closes);
    int gone = client_open(), half = client_open();
    atomic_store(&unanswered, 0);
    client_send(gone, "GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
    client_send(half, "POST /never HTTP/1.1\r\nHost: a\r\n" JSON "Content-Length: 2\r\n\r\n{}");
    wait_for(&unanswered, 2);
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

// Who asks again and again and reads nothing is not answered on and on.
static void unread_answers_hold_further_requests_back(void **state)
{
    (void)state;
    buffer request = { 0 };
    int greedy = client_open(), small = 4096;
    setsockopt(greedy, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    for (int i = 0; i < 400; i++) // 24 MB of answers
        buffer_append_text(&request, "GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
    client_send(greedy, request.data);
    int answered = 0, before = 0; // what the kernel's buffers take, and two more
    for (uint64_t end_us = clock_now_us() + 60000000; answered == 0 || answered != before;) {
        assert_true(clock_now_us() < end_us);
        before = answered;
        clock_sleep_us(500000);
        answered = atomic_load(&big_answers);
    }
    assert_in_range(answered, 1, 60);
    close(greedy);
    buffer_close(&request);
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

enum { HELD = 20 }; // as many as an address may have

// Opens so many connections that have each had an answer. False: one was refused.
static bool open_and_ask(int *held, buffer *answer)
{
    bool all = true;
    for (int i = 0; i < HELD; i++) {
        held[i] = client_open();
        client_send(held[i], "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
        client_read(held[i], "hello", answer);
        all = all && answer->size && strstr(answer->data, "200 OK");
    }
    return all;
}

// Connections of earlier tests may not have ended yet, and those of this one end when they are
// idle for long: both are waited for, and it is tried again.
static void an_address_has_a_limit_of_connections(void **state)
{
    (void)state;
    int held[HELD];
    buffer answer = { 0 };
    bool judged = false;
    for (int tries = 0; !judged && tries < 50; tries++) {
        uint64_t began = clock_now_us();
        bool all = open_and_ask(held, &answer);
        int more = client_open();
        client_read(more, NULL, &answer);
        judged = all && clock_now_us() - began < (uint64_t)settings.idle_us / 2;
        close(more);
        for (int i = 0; i < HELD; i++)
            close(held[i]);
        clock_sleep_us(100000);
    }
    assert_true(judged);
    assert_non_null(strstr(answer.data, "HTTP/1.1 503 "));
    bool served = false; // again, once they have ended
    for (int tries = 0; !served && tries < 50; tries++) {
        int again = client_open();
        client_send(again, "GET /hello HTTP/1.1\r\n" REST "\r\n");
        client_read(again, NULL, &answer);
        served = answer.size && strstr(answer.data, "200 OK");
        close(again);
        clock_sleep_us(served ? 0 : 100000);
    }
    assert_true(served);
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

int main(void)
{
    const struct CMUnitTest patient[] = {
        cmocka_unit_test(a_head_past_its_limit_is_431),
        cmocka_unit_test(a_client_that_goes_away_is_reported_once),
        cmocka_unit_test(a_flood_of_early_requests_is_cut),
        cmocka_unit_test(unread_answers_hold_further_requests_back),
        cmocka_unit_test(bodies_share_a_budget),
        cmocka_unit_test(an_address_has_a_limit_of_connections),
    };
    const struct CMUnitTest hasty[] = {
        cmocka_unit_test(slow_heads_and_bodies_meet_their_deadline),
        cmocka_unit_test(a_slow_reader_is_cut_and_others_are_served),
        cmocka_unit_test(idle_connections_end),
    };
    int failed = cmocka_run_group_tests(patient, server_start, server_stop);
    deadline_us = 300000;
    return failed + cmocka_run_group_tests(hasty, server_start, server_stop);
}
