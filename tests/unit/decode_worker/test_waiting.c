// limit: 60
// Facts about tickets that wait in a worker: who enters first, and who may not yet.
#include "harness/fake/fake_router.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define ANSWERS 12

static const int patience_ms = 60000;
static fake_router *router;
static fake_worker *worker;
static pid_t process;
static int32_t prompt[2000];

// Answers 0..ANSWERS-1, and the order in which they got their first tokens and their ends.
static fake_answer answers[ANSWERS];
static int first_order[ANSWERS], end_order[ANSWERS], firsts, ends, clock_ticks;

// Steps take 20 ms, so that what is sent at a time arrives in one step or the next few.
static void begin_with(const char *const *settings)
{
    const char *all[12] = { "faults=worker.stall:1:20", "engine.prefix_reuse=false" };
    for (int i = 0; settings[i] != NULL; i++)
        all[i + 2] = settings[i];
    memset(answers, 0, sizeof(answers));
    memset(first_order, 0, sizeof(first_order));
    memset(end_order, 0, sizeof(end_order));
    firsts = ends = clock_ticks = 0;
    router = fake_router_open();
    process = fake_process_start("decode", router, all);
    worker = fake_router_worker(router, 1);
}

static void end(void)
{
    assert_true(fake_worker_idle(router, worker, patience_ms));
    fake_process_end(router, process, patience_ms);
    fake_router_close(router);
}

static void send(int i, int32_t count, uint32_t max_tokens, uint32_t priority)
{
    fake_ticket t;
    fake_ticket_make(&t, (uint64_t)i, prompt, (size_t)count, max_tokens);
    t.ticket.priority = priority;
    fake_worker_send(worker, &t.message);
}

// Take events until `count` answers have ended, or where `one_first` is not -1 until that one has
// its first token.
static void take(int count, int one_first)
{
    fake_event event;
    while (ends < count && (one_first < 0 || first_order[one_first] == 0)) {
        assert_true(fake_router_next(router, patience_ms, &event));
        clock_ticks++;
        for (int i = 0; i < ANSWERS; i++) {
            fake_answer *a = &answers[i];
            fake_answer_take(a, (uint64_t)i, &event);
            assert_int_equal(a->refused_code, 0);
            assert_int_equal(a->failed_code, 0);
            if (a->count > 0 && first_order[i] == 0) {
                first_order[i] = clock_ticks;
                firsts++;
            }
            if (a->finish != 0 && end_order[i] == 0) {
                end_order[i] = clock_ticks;
                ends++;
            }
        }
    }
}

// 25 pages of 64 tokens. Answer 0 holds 8 to 13 of them for 300 steps, answer 1 needs 21.
static void a_large_ticket_lets_a_few_small_ones_pass_and_is_not_starved(void **state)
{
    (void)state;
    begin_with((const char *const[]){ "engine.kv_bytes=800KiB", "engine.growth_tokens=0",
                                      "queue.overtaking=3", NULL });
    send(0, 500, 300, 0);
    take(1, 0);
    send(1, 1300, 5, 0);
    for (int i = 2; i < ANSWERS; i++)
        send(i, 5, 10, 0);
    take(ANSWERS, -1);
    int before = 0;
    for (int i = 2; i < ANSWERS; i++)
        before += first_order[i] < end_order[0]; // room for the large one came with that end
    assert_int_equal(before, 3);
    end();
}

static void a_class_has_no_more_sequences_than_its_limit(void **state)
{
    (void)state;
    begin_with((const char *const[]){ "queue.batch_sequences=1", NULL });
    send(0, 5, 40, 1);
    send(1, 5, 40, 1);
    send(2, 5, 10, 0);
    send(3, 5, 10, 0);
    take(4, -1);
    assert_true(first_order[1] > end_order[0]);
    assert_true(end_order[2] < end_order[0] && end_order[3] < end_order[0]);
    end();
}

static void interactive_tickets_enter_before_batch_ones(void **state)
{
    (void)state;
    begin_with((const char *const[]){ "engine.max_sequences=1", "queue.batch_patience=20s", NULL });
    send(0, 5, 40, 0);
    send(1, 5, 5, 1);
    send(2, 5, 5, 0);
    take(3, -1);
    assert_true(end_order[2] < first_order[1]);
    end();
}

static void a_batch_ticket_that_waited_long_enough_keeps_its_place(void **state)
{
    (void)state;
    begin_with((const char *const[]){ "engine.max_sequences=1", "queue.batch_patience=0s", NULL });
    send(0, 5, 40, 0);
    send(1, 5, 5, 1);
    send(2, 5, 5, 0);
    take(3, -1);
    assert_true(end_order[1] < first_order[2]);
    end();
}

static int setup(void **state)
{
    for (int i = 0; i < 2000; i++)
        prompt[i] = 10 + i % 200;
    return fake_model_make(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_large_ticket_lets_a_few_small_ones_pass_and_is_not_starved),
        cmocka_unit_test(a_class_has_no_more_sequences_than_its_limit),
        cmocka_unit_test(interactive_tickets_enter_before_batch_ones),
        cmocka_unit_test(a_batch_ticket_that_waited_long_enough_keeps_its_place),
    };
    return cmocka_run_group_tests(tests, setup, fake_model_remove);
}
