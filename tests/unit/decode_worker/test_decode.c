// limit: 120
// Facts about penstock-decode on its own: one router (of the harness), prompts computed by itself.
#include "harness/fake/fake_router.h"

#include "base/clock.h"
#include "base/random.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static const int patience_ms = 60000;
static fake_router *router;
static pid_t process;

static const int32_t prompt[150] = { 10, 20, 30, 40, 50, 60, 70 };
#define PROMPT_COUNT 150

static void begin_with(const char *const *settings)
{
    router = fake_router_open();
    process = fake_process_start("decode", router, settings);
}

// Pumps until the condition holds.
#define PUMP_UNTIL(condition)                                                                      \
    do {                                                                                           \
        uint64_t end_us = clock_now_us() + patience_ms * 1000ull;                                  \
        while (!(condition)) {                                                                     \
            if (clock_now_us() > end_us)                                                           \
                fail_msg("not in time: %s", #condition);                                           \
            fake_router_pump(router, 20);                                                          \
        }                                                                                          \
    } while (0)

// Until so many tokens of request `number` came, or it ended.
static void take_tokens(fake_answer *a, uint64_t number, int count)
{
    fake_event event;
    while (a->count < count && fake_router_next(router, patience_ms, &event))
        fake_answer_take(a, number, &event);
    assert_true(a->count >= count);
}

static void end(void)
{
    fake_process_end(router, process, patience_ms);
    fake_router_close(router);
}

// ---- facts -------------------------------------------------------------------------------------

static void it_joins_generates_and_gives_its_pages_back(void **state)
{
    (void)state;
    begin_with(
        (const char *const[]){ "queue.waiting=0", NULL }); // where there is room nothing waits
    fake_worker *w = fake_router_worker(router, 1);
    const message_register *about = fake_worker_register(w);
    assert_int_equal(about->role, PENSTOCK__ROLE__ROLE_DECODE);
    assert_string_equal(about->fabric_host, "127.0.0.1");
    assert_true(about->fabric_port != 0 && about->page_credits == about->pages);
    fake_ticket t;
    fake_ticket_make(&t, 1, prompt, PROMPT_COUNT, 20);
    fake_answer a = fake_worker_ask(w, &t, patience_ms);
    assert_int_equal(a.count, 20);
    assert_int_equal(a.finish, PENSTOCK__FINISH__FINISH_LENGTH);
    assert_true(a.times_first_step);
    assert_true(fake_worker_idle(router, w, patience_ms));
    const message_worker_beat *beat = fake_worker_beat(w);
    assert_true(beat->healthy && !beat->draining);
    assert_int_equal(beat->decode_tokens, 19);
    assert_int_equal(beat->prefill_tokens, PROMPT_COUNT);
    assert_true(beat->router_clock_us != 0 && beat->since_beat_us < patience_ms * 1000ull);
    // A second time the prompt's full pages are there, and the answer is the same, bit for bit.
    t.request.number = 2;
    fake_answer again = fake_worker_ask(w, &t, patience_ms);
    assert_int_equal(again.cached_tokens, 128);
    assert_memory_equal(again.tokens, a.tokens, sizeof(a.tokens));
    assert_memory_equal(again.hashes, a.hashes, sizeof(a.hashes));
    // And an attempt that resumes in the middle continues with the same tokens.
    int32_t resumed[PROMPT_COUNT + 8];
    memcpy(resumed, prompt, sizeof(prompt));
    memcpy(resumed + PROMPT_COUNT, a.tokens, 8 * sizeof(resumed[0]));
    fake_ticket_make(&t, 3, resumed, PROMPT_COUNT + 8, 20);
    t.ticket.prompt_count = PROMPT_COUNT;
    t.ticket.attempt = 1;
    fake_answer rest = { .count = 8 };
    memcpy(rest.tokens, a.tokens, sizeof(rest.tokens));
    fake_worker_send(w, &t.message);
    assert_true(fake_answer_wait(router, &rest, 3, patience_ms));
    assert_int_equal(rest.count, 20);
    assert_memory_equal(rest.tokens, a.tokens, sizeof(a.tokens));
    assert_memory_equal(rest.hashes + 8, a.hashes + 8, 12 * sizeof(a.hashes[0]));
    end();
}

static void tickets_that_cannot_be_served_are_refused_with_a_reason(void **state)
{
    (void)state;
    begin_with((const char *const[]){ "engine.context=200", "faults=ticket.refuse:1:0:1", NULL });
    fake_worker *w = fake_router_worker(router, 1);
    static int32_t many[400];
    fake_ticket t;
    fake_ticket_make(&t, 9, prompt, 5, 5);
    fake_answer a = fake_worker_ask(w, &t, patience_ms);
    assert_int_equal(a.refused_code, STATUS_OVERLOADED);
    fake_ticket_make(&t, 1, many, 300, 5);
    a = fake_worker_ask(w, &t, patience_ms);
    assert_int_equal(a.refused_code, STATUS_CONTEXT_LENGTH);
    fake_ticket_make(&t, 2, prompt, 5, 5);
    t.ticket.grammar = "root ::= x";
    a = fake_worker_ask(w, &t, patience_ms);
    assert_int_equal(a.refused_code, STATUS_UNSUPPORTED);
    assert_non_null(strstr(a.text, "grammar"));
    int32_t unknown[] = { 1, 1 << 20 };
    fake_ticket_make(&t, 3, unknown, 2, 5);
    a = fake_worker_ask(w, &t, patience_ms);
    assert_int_equal(a.refused_code, STATUS_INVALID);
    fake_ticket_make(&t, 4, prompt, 5, 5);
    t.ticket.decode = &t.decode;
    t.decode.incarnation = 3;
    t.decode.host = "127.0.0.1";
    t.decode.port = 9;
    a = fake_worker_ask(w, &t, patience_ms);
    assert_int_equal(a.refused_code, STATUS_INVALID);
    fake_ticket_make(&t, 5, prompt, 5, 5);
    a = fake_worker_ask(w, &t, patience_ms);
    assert_int_equal(a.count, 5);
    end();
}

static void cancel_deadline_and_repetition(void **state)
{
    (void)state;
    // A slow step keeps requests alive long enough to be cancelled.
    begin_with((const char *const[]){ "faults=worker.stall:1:20", NULL });
    fake_worker *w = fake_router_worker(router, 1);
    fake_ticket t;
    fake_ticket_make(&t, 1, prompt, PROMPT_COUNT, 400);
    fake_worker_send(w, &t.message);
    fake_worker_send(w, &t.message); // repeated: ignored
    fake_answer a = { 0 };
    take_tokens(&a, 1, 3);
    PUMP_UNTIL(fake_worker_beat(w)->sequences_running == 1);
    fake_worker_cancel(w, 1, 1); // another attempt: ignored
    fake_router_pump(router, 200);
    assert_int_equal(fake_worker_beat(w)->sequences_running, 1);
    fake_worker_cancel(w, 1, 0);
    assert_true(fake_worker_idle(router, w, patience_ms));
    // A later attempt takes the place of an earlier one.
    fake_ticket_make(&t, 2, prompt, PROMPT_COUNT, 400);
    fake_worker_send(w, &t.message);
    t.ticket.attempt = 1;
    t.ticket.max_tokens = 4;
    a = fake_worker_ask(w, &t, patience_ms);
    assert_int_equal(a.count, 4);
    assert_true(fake_worker_idle(router, w, patience_ms));
    fake_ticket_make(&t, 3, prompt, PROMPT_COUNT, 400);
    t.ticket.timeout_us = 300000;
    a = fake_worker_ask(w, &t, patience_ms);
    assert_int_equal(a.failed_code, STATUS_DEADLINE);
    assert_true(fake_worker_idle(router, w, patience_ms));
    end();
}

static void a_full_pool_makes_tickets_wait_and_nothing_leaks(void **state)
{
    (void)state;
    // 4 MiB are 128 pages of 32 KiB; these hold 8 sequences of 3 pages.
    begin_with((const char *const[]){ "engine.kv_bytes=800KiB", "queue.waiting=20", NULL });
    fake_worker *w = fake_router_worker(router, 1);
    enum { COUNT = 30 };
    static fake_answer answers[COUNT];
    memset(answers, 0, sizeof(answers));
    fake_ticket t;
    for (int i = 0; i < COUNT; i++) {
        fake_ticket_make(&t, 100 + (uint64_t)i, prompt, PROMPT_COUNT, 30);
        fake_worker_send(w, &t.message);
    }
    int done = 0, refused = 0;
    fake_event event;
    while (done + refused < COUNT && fake_router_next(router, patience_ms, &event)) {
        done = refused = 0;
        for (int i = 0; i < COUNT; i++) {
            fake_answer_take(&answers[i], 100 + (uint64_t)i, &event);
            done += answers[i].finish != 0;
            refused += answers[i].refused_code != 0 || answers[i].failed_code != 0;
        }
    }
    assert_int_equal(done + refused, COUNT);
    assert_true(done >= 20);
    const fake_answer *first = NULL;
    for (int i = 0; i < COUNT; i++) {
        if (answers[i].finish == 0)
            continue;
        first = first == NULL ? &answers[i] : first;
        assert_memory_equal(answers[i].tokens, first->tokens, sizeof(first->tokens));
        assert_memory_equal(answers[i].hashes, first->hashes, sizeof(first->hashes));
    }
    assert_true(fake_worker_idle(router, w, patience_ms));
    end();
}

static void pages_that_cannot_be_taken_now_and_then_leak_nothing(void **state)
{
    (void)state;
    begin_with((const char *const[]){ "faults=pool.exhaust:0.3", "engine.page_tokens=32", NULL });
    fake_worker *w = fake_router_worker(router, 1);
    fake_ticket t;
    int done = 0;
    for (uint64_t i = 0; i < 20; i++) {
        fake_ticket_make(&t, i, prompt, 60, 50); // grows by two pages
        fake_answer a = fake_worker_ask(w, &t, patience_ms);
        assert_true(a.finish == PENSTOCK__FINISH__FINISH_LENGTH ||
                    a.failed_code == STATUS_OVERLOADED);
        done += a.finish != 0;
    }
    assert_in_range(done, 1, 19);
    assert_true(fake_worker_idle(router, w, patience_ms));
    assert_true(fake_worker_beat(w)->preemptions > 0);
    end();
}

static void a_lost_router_is_forgotten_and_joined_again(void **state)
{
    (void)state;
    begin_with((const char *const[]){ "faults=worker.stall:1:10", NULL });
    fake_worker *first = fake_router_worker(router, 1);
    fake_ticket t;
    fake_ticket_make(&t, 1, prompt, PROMPT_COUNT, 400);
    fake_worker_send(first, &t.message);
    fake_router_pump(router, 200);
    fake_worker_drop(first);
    fake_worker *second = fake_router_worker(router, 2);
    assert_true(fake_worker_idle(router, second, patience_ms));
    assert_int_equal(fake_worker_register(first)->incarnation,
                     fake_worker_register(second)->incarnation);
    // A message that breaks the protocol ends the connection, too.
    fake_worker_send_bytes(second, SLICE("\x0a\x00"));
    fake_worker *third = fake_router_worker(router, 3);
    PUMP_UNTIL(!fake_worker_connected(second));
    // And silence.
    fake_worker_send(third, &t.message);
    fake_router_speak(router, false);
    fake_worker *fourth = fake_router_worker(router, 4);
    fake_router_speak(router, true);
    assert_true(fake_worker_idle(router, fourth, patience_ms));
    fake_ticket_make(&t, 2, prompt, PROMPT_COUNT, 3);
    fake_answer a = fake_worker_ask(fourth, &t, patience_ms);
    assert_int_equal(a.count, 3);
    end();
}

static void a_signal_drains_and_a_second_one_ends(void **state)
{
    (void)state;
    begin_with((const char *const[]){ "faults=worker.stall:1:50", NULL });
    fake_worker *w = fake_router_worker(router, 1);
    fake_ticket t;
    fake_ticket_make(&t, 1, prompt, PROMPT_COUNT, 100);
    fake_answer a = { 0 }, b = { 0 };
    fake_worker_send(w, &t.message);
    take_tokens(&a, 1, 2);
    kill(process, SIGTERM);
    fake_event event;
    for (uint64_t end_us = clock_now_us() + patience_ms * 1000ull;
         !fake_worker_beat(w)->draining;) {
        assert_true(clock_now_us() < end_us);
        if (fake_router_next(router, 200, &event))
            fake_answer_take(&a, 1, &event);
    }
    fake_ticket_make(&t, 2, prompt, PROMPT_COUNT, 60);
    fake_worker_send(w, &t.message);
    bool goodbye = false;
    while (!goodbye && fake_router_next(router, patience_ms, &event)) {
        fake_answer_take(&a, 1, &event);
        fake_answer_take(&b, 2, &event);
        goodbye =
            event.message != NULL && event.message->body_case == PENSTOCK__TO_ROUTER__BODY_GOODBYE;
    }
    assert_true(goodbye);
    assert_int_equal(a.count, 100);
    assert_int_equal(b.refused_code, STATUS_UNAVAILABLE);
    assert_int_equal(fake_process_wait(router, process, patience_ms), 0);
    assert_int_equal(fake_router_leaves(router), 1);
    fake_router_close(router);

    begin_with((const char *const[]){ "faults=worker.stall:1:50", NULL });
    w = fake_router_worker(router, 1);
    fake_ticket_make(&t, 1, prompt, PROMPT_COUNT, 400);
    fake_worker_send(w, &t.message);
    a = (fake_answer){ 0 };
    take_tokens(&a, 1, 1);
    kill(process, SIGTERM);
    PUMP_UNTIL(fake_worker_beat(w)->draining);
    kill(process, SIGTERM);
    assert_int_equal(fake_process_wait(router, process, patience_ms), 3);
    fake_router_close(router);

    // A drain that takes too long gives back what it has.
    begin_with((const char *const[]){ "faults=worker.stall:1:10", "worker.drain_seconds=1", NULL });
    w = fake_router_worker(router, 1);
    fake_worker_send(w, &t.message);
    a = (fake_answer){ 0 };
    take_tokens(&a, 1, 2);
    kill(process, SIGTERM);
    assert_true(fake_answer_wait(router, &a, 1, patience_ms));
    assert_int_equal(a.failed_code, STATUS_UNAVAILABLE);
    assert_int_equal(fake_process_wait(router, process, patience_ms), 0);
    fake_router_close(router);
}

static void a_ticket_that_runs_alone_has_no_company(void **state)
{
    (void)state;
    begin_with((const char *const[]){ "faults=worker.stall:1:5", NULL });
    fake_worker *w = fake_router_worker(router, 1);
    fake_ticket t;
    fake_ticket_make(&t, 1, prompt, 5, 10);
    fake_worker_send(w, &t.message);
    fake_ticket_make(&t, 2, prompt, 5, 10);
    t.ticket.alone = true;
    fake_worker_send(w, &t.message);
    fake_ticket_make(&t, 3, prompt, 5, 10);
    fake_worker_send(w, &t.message);
    fake_answer a[3] = { 0 };
    fake_event event;
    while (a[2].finish == 0 && fake_router_next(router, patience_ms, &event)) {
        for (int i = 0; i < 3; i++)
            fake_answer_take(&a[i], 1 + (uint64_t)i, &event);
        assert_true(a[1].count == 0 || a[0].count == 10);
        assert_true(a[2].count == 0 || a[1].count == 10);
    }
    assert_int_equal(a[2].count, 10);
    end();
}

// What the worker's page answers on `path`: the status code, and the whole answer in `text`.
static int page_get(int port, const char *path, char text[16384])
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t size = 0;
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0) {
        dprintf(fd, "GET %s HTTP/1.1\r\nHost: worker\r\nConnection: close\r\n\r\n", path);
        for (ssize_t got; (got = read(fd, text + size, 16383 - size)) > 0;)
            size += (size_t)got;
    }
    text[size] = 0;
    close(fd);
    int code = 0;
    sscanf(text, "HTTP/1.1 %d", &code);
    return code;
}

// A port that nobody uses now. It is below those that the kernel gives to whoever asks for any.
static int free_port(void)
{
    FILE *range = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
    int above = 0, port = 0, failed = -1;
    assert_true(range != NULL && fscanf(range, "%d", &above) == 1);
    fclose(range);
    above = above < 11000 ? 11000 : above;
    for (int tries = 0; tries < 100 && failed != 0; tries++) {
        port = 10000 + (int)(random_system() % (uint64_t)(above - 10000));
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        failed = bind(fd, (struct sockaddr *)&at, sizeof(at));
        close(fd);
    }
    assert_int_equal(failed, 0);
    return port;
}

static void a_stuck_step_is_not_healthy_and_the_page_says_so(void **state)
{
    (void)state;
    char listen[64], text[16384];
    int port = free_port();
    snprintf(listen, sizeof(listen), "http.listen=127.0.0.1:%d", port);
    begin_with((const char *const[]){ "faults=worker.stall:1:20000:1", "worker.step_deadline=300ms",
                                      listen, NULL });
    fake_worker *w = fake_router_worker(router, 1);
    assert_int_equal(page_get(port, "/health", text), 200);
    assert_int_equal(page_get(port, "/ready", text), 200);
    fake_ticket t;
    fake_ticket_make(&t, 1, prompt, PROMPT_COUNT, 10);
    fake_answer a = { 0 };
    fake_worker_send(w, &t.message);
    PUMP_UNTIL(!fake_worker_beat(w)->healthy); // heartbeats come while the step is stuck
    assert_int_equal(page_get(port, "/health", text), 503);
    assert_int_equal(page_get(port, "/ready", text), 503);
    assert_non_null(strstr(text, "no step was made"));
    assert_true(fake_answer_wait(router, &a, 1, patience_ms));
    assert_int_equal(a.count, 10);
    assert_true(fake_worker_idle(router, w, patience_ms));
    assert_true(fake_worker_beat(w)->healthy);
    assert_int_equal(page_get(port, "/ready", text), 200);
    assert_int_equal(page_get(port, "/metrics", text), 200);
    assert_non_null(strstr(text, "penstock_worker_tickets_total 1\n"));
    assert_non_null(strstr(text, "penstock_worker_tokens_total{phase=\"prefill\"} 150\n"));
    assert_non_null(strstr(text, "penstock_worker_pages{state=\"held\"} 0\n"));
    assert_non_null(strstr(text, "penstock_worker_ready 1\n"));
    assert_int_equal(page_get(port, "/nothing", text), 404);
    end();
}

// Routers of the protocol before learn their credits by further registrations.
static void routers_are_served_side_by_side_and_share_the_credits(void **state)
{
    (void)state;
    fake_router *other = fake_router_open();
    char routers[256];
    router = fake_router_open();
    fake_router_older(other);
    fake_router_older(router);
    // The second name has two addresses; nobody answers at one of them, or both lead to the same
    // router.
    snprintf(routers, sizeof(routers), "worker.routers=%s,tcp://localhost%s",
             fake_router_url(router), strrchr(fake_router_url(other), ':'));
    process = fake_process_start("decode", router,
                                 (const char *const[]){ routers, "faults=worker.stall:1:5", NULL });
    fake_worker *w = fake_router_worker(router, 1), *v = fake_router_worker(other, 1);
    PUMP_UNTIL((fake_router_pump(other, 20), fake_worker_connected(v)) &&
               fake_worker_register(w)->page_credits * 2 <= fake_worker_register(w)->pages);
    assert_int_equal(fake_worker_register(w)->page_credits, fake_worker_register(w)->pages / 2);
    assert_int_equal(fake_worker_register(v)->page_credits, fake_worker_register(v)->pages / 2);
    // A router that goes takes only its own requests along.
    fake_ticket t;
    fake_ticket_make(&t, 1, prompt, PROMPT_COUNT, 60);
    fake_worker_send(v, &t.message);
    fake_ticket_make(&t, 2, prompt, PROMPT_COUNT, 40);
    fake_answer a = { 0 };
    fake_worker_send(w, &t.message);
    take_tokens(&a, 2, 5);
    fake_router_close(other);
    assert_true(fake_answer_wait(router, &a, 2, patience_ms));
    assert_int_equal(a.count, 40);
    assert_true(fake_worker_idle(router, w, patience_ms));
    assert_int_equal(fake_worker_beat(w)->preemptions, 0);
    PUMP_UNTIL(fake_worker_register(w)->page_credits == fake_worker_register(w)->pages);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_joins_generates_and_gives_its_pages_back),
        cmocka_unit_test(tickets_that_cannot_be_served_are_refused_with_a_reason),
        cmocka_unit_test(cancel_deadline_and_repetition),
        cmocka_unit_test(a_full_pool_makes_tickets_wait_and_nothing_leaks),
        cmocka_unit_test(pages_that_cannot_be_taken_now_and_then_leak_nothing),
        cmocka_unit_test(a_lost_router_is_forgotten_and_joined_again),
        cmocka_unit_test(a_signal_drains_and_a_second_one_ends),
        cmocka_unit_test(a_ticket_that_runs_alone_has_no_company),
        cmocka_unit_test(a_stuck_step_is_not_healthy_and_the_page_says_so),
        cmocka_unit_test(routers_are_served_side_by_side_and_share_the_credits),
    };
    return cmocka_run_group_tests(tests, fake_model_make, fake_model_remove);
}
