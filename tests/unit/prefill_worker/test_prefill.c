// limit: 120
// Facts about penstock-prefill together with penstock-decode: a router of the harness, real
// programs, pages over UCX.
#include "harness/fake/fake_router.h"

#include "base/clock.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const int patience_ms = 60000;
static fake_router *router;
static pid_t prefill_process, decode_process;
static fake_worker *prefill, *decode;

static const int32_t prompt[500] = { 10, 20, 30, 40, 50, 60, 70 };

static void begin_with(const char *const *prefill_settings, const char *const *decode_settings)
{
    router = fake_router_open();
    decode_process = fake_process_start("decode", router, decode_settings);
    decode = fake_router_worker(router, 1);
    prefill_process = fake_process_start("prefill", router, prefill_settings);
    prefill = fake_router_worker(router, 2);
}

static void end(void)
{
    fake_process_end(router, prefill_process, patience_ms);
    fake_process_end(router, decode_process, patience_ms);
    fake_router_close(router);
}

static void both_idle(void)
{
    assert_true(fake_worker_idle(router, prefill, patience_ms));
    assert_true(fake_worker_idle(router, decode, patience_ms));
}

// One ticket to the decode worker and, with the other one's name, to the prefill worker.
static void send_both(fake_ticket *t)
{
    t->prefill.incarnation = fake_worker_register(prefill)->incarnation;
    t->prefill.host = "";
    t->ticket.prefill = &t->prefill;
    t->ticket.decode = NULL;
    fake_worker_send(decode, &t->message);
    t->decode.incarnation = fake_worker_register(decode)->incarnation;
    t->decode.host = fake_worker_register(decode)->fabric_host;
    t->decode.port = fake_worker_register(decode)->fabric_port;
    t->ticket.prefill = NULL;
    t->ticket.decode = &t->decode;
    fake_worker_send(prefill, &t->message);
}

static fake_answer ask_both(fake_ticket *t)
{
    fake_answer a = { 0 };
    send_both(t);
    assert_true(fake_answer_wait(router, &a, t->request.number, patience_ms));
    return a;
}

static fake_answer ask_decode(fake_ticket *t)
{
    fake_answer a = { 0 };
    t->ticket.prefill = t->ticket.decode = NULL;
    fake_worker_send(decode, &t->message);
    assert_true(fake_answer_wait(router, &a, t->request.number, patience_ms));
    return a;
}

// The decode worker hands the sequence of `t` to `target`, whose ticket has the first `known`
// tokens of the answer `a`.
static void migrate(fake_ticket *t, const fake_answer *a, int known, uint32_t spare,
                    fake_worker *target)
{
    int32_t tokens[1024];
    size_t count = t->ticket.n_tokens;
    memcpy(tokens, t->ticket.tokens, count * sizeof(tokens[0]));
    memcpy(tokens + count, a->tokens, (size_t)known * sizeof(tokens[0]));
    t->ticket.tokens = tokens;
    t->ticket.n_tokens = count + (size_t)known;
    t->ticket.attempt = 1;
    t->ticket.spare_tokens = spare;
    t->prefill.incarnation = fake_worker_register(decode)->incarnation;
    t->ticket.prefill = &t->prefill;
    fake_worker_send(target, &t->message);
    Penstock__PlanPeer peer = PENSTOCK__PLAN_PEER__INIT;
    Penstock__Migrate order = PENSTOCK__MIGRATE__INIT;
    message_to_worker message = PENSTOCK__TO_WORKER__INIT;
    peer.incarnation = fake_worker_register(target)->incarnation;
    peer.host = fake_worker_register(target)->fabric_host;
    peer.port = fake_worker_register(target)->fabric_port;
    order.request = &t->request;
    order.next_attempt = 1;
    order.token_count = (uint32_t)t->ticket.n_tokens;
    order.spare_tokens = spare;
    order.target = &peer;
    message.body_case = PENSTOCK__TO_WORKER__BODY_MIGRATE;
    message.migrate = &order;
    fake_worker_send(decode, &message);
}

static void assert_same(const fake_answer *a, const fake_answer *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->tokens, b->tokens, sizeof(a->tokens));
    assert_memory_equal(a->hashes, b->hashes, sizeof(a->hashes));
}

// ---- facts -------------------------------------------------------------------------------------

static void a_handed_over_answer_equals_a_local_one(void **state)
{
    (void)state;
    // No reuse: each answer is computed in full.
    const char *const settings[] = { "engine.prefix_reuse=false", "engine.chunk_tokens=64", NULL };
    begin_with(settings, settings);
    const size_t counts[] = { 1, 63, 64, 65, 128, 300, 500 };
    for (uint64_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        fake_ticket t;
        fake_ticket_make(&t, 10 + i, prompt, counts[i], 12);
        fake_answer over = ask_both(&t);
        assert_int_equal(over.finish, PENSTOCK__FINISH__FINISH_LENGTH);
        assert_true(over.handing_over);
        fake_ticket_make(&t, 100 + i, prompt, counts[i], 12);
        fake_answer local = ask_decode(&t);
        assert_same(&over, &local);
    }
    both_idle();
    assert_true(fake_worker_beat(prefill)->handoff_bytes > 0);
    assert_int_equal(fake_worker_beat(prefill)->handoff_bytes,
                     fake_worker_beat(decode)->handoff_bytes);
    assert_int_equal(fake_worker_beat(prefill)->decode_tokens, 0);
    assert_string_not_equal(fake_worker_beat(prefill)->transport, "");
    end();
}

static void b085_known_prefixes_are_neither_computed_nor_sent(void **state)
{
    (void)state;
    begin_with(NULL, NULL);
    fake_ticket t;
    fake_ticket_make(&t, 1, prompt, 500, 12);
    fake_answer first = ask_both(&t);
    both_idle();
    uint64_t bytes = fake_worker_beat(prefill)->handoff_bytes;
    t.request.number = 2;
    fake_answer second = ask_both(&t);
    both_idle();
    assert_same(&first, &second);
    assert_int_equal(second.cached_tokens, 448);
    uint64_t page_bytes = fake_worker_register(decode)->model->page_bytes;
    assert_int_equal(fake_worker_beat(prefill)->handoff_bytes - bytes, page_bytes);
    end();
}

static void b077_a_first_token_that_ends_it_is_not_handed_over(void **state)
{
    (void)state;
    begin_with(NULL, NULL);
    fake_ticket t;
    for (uint64_t i = 1; i <= 4; i++) {
        fake_ticket_make(&t, i, prompt, 300, 1);
        fake_answer a = ask_both(&t);
        assert_int_equal(a.count, 1);
        assert_int_equal(a.finish, PENSTOCK__FINISH__FINISH_LENGTH);
        assert_false(a.handing_over);
        both_idle(); // the prefill worker's word releases the seat, also while the pair connects
    }
    fake_ticket_make(&t, 5, prompt, 300, 4);
    fake_answer a = ask_both(&t);
    assert_int_equal(a.count, 4);
    both_idle();
    end();
}

// An answer that moves behind its first `moment` tokens, the last of which comes with the record;
// without `spare` tokens, behind the step that runs then.
typedef struct move {
    size_t prompt_count;
    uint32_t max_tokens;
    int moment;
    uint32_t spare;
    bool waits; // first, for a prefill worker that never comes
} move;

// False: the order came when the answer was over or too far ahead of what was seen of it, or the
// workers did not meet in time, as happens where one of the processes does not run for a while.
static bool moved(const move *m, uint64_t number, fake_worker *target, const fake_answer *truth)
{
    fake_ticket t;
    fake_answer a = { 0 };
    fake_event event;
    fake_ticket_make(&t, number, prompt, m->prompt_count, m->max_tokens);
    t.prefill.incarnation = 99;
    t.prefill.host = "";
    t.ticket.prefill = m->waits ? &t.prefill : NULL;
    fake_worker_send(decode, &t.message);
    while (a.count < m->moment && fake_router_next(router, patience_ms, &event))
        fake_answer_take(&a, number, &event);
    migrate(&t, &a, a.count - (m->spare > 0), m->spare, target);
    assert_true(fake_answer_wait(router, &a, number, patience_ms));
    // The target may be ready before the word comes that it has everything.
    while (a.failed_code == 0 && !a.handed_over && fake_router_next(router, 1000, &event))
        fake_answer_take(&a, number, &event);
    assert_int_not_equal(a.failed_code, STATUS_INTERNAL);
    if (a.failed_code == 0)
        assert_same(&a, truth);
    else
        assert_memory_equal(a.tokens, truth->tokens, (size_t)a.count * sizeof(a.tokens[0]));
    if (!a.handed_over)
        fake_worker_cancel(target, number,
                           1); // as a router does; its seat waits for pages that nobody sends
    both_idle();
    assert_true(fake_worker_idle(router, target, patience_ms));
    assert_int_equal(fake_worker_beat(target)->prefill_tokens, 0);
    return a.failed_code == 0 && a.handed_over == 1;
}

// Each of `moves`, from a decode worker of these settings to another one.
static void all_move(const char *const *settings, const move *moves, size_t count)
{
    const char *const plain[] = { "engine.prefix_reuse=false", NULL };
    begin_with(NULL, settings);
    pid_t other = fake_process_start("decode", router, plain);
    fake_worker *target = fake_router_worker(router, 3);
    for (size_t i = 0; i < count; i++) {
        fake_ticket t;
        uint64_t number = 100 * (i + 1);
        fake_ticket_make(&t, number, prompt, moves[i].prompt_count, moves[i].max_tokens);
        fake_answer truth = ask_decode(&t);
        for (uint64_t tries = 1; !moved(&moves[i], number + tries, target, &truth); tries++)
            assert_true(tries < 20);
    }
    fake_process_end(router, other, patience_ms);
    end();
}

// The pages of a live sequence go to another decode worker, which goes on at the very next token.
static void a_running_sequence_moves(void **state)
{
    (void)state;
    const char *const settings[] = { "engine.prefix_reuse=false", "faults=worker.stall:1:5", NULL };
    const int moments[] = { 1, 2, 20, 62, 64, 65, 100 };
    move moves[sizeof(moments) / sizeof(moments[0])];
    for (size_t i = 0; i < sizeof(moments) / sizeof(moments[0]); i++)
        moves[i] = (move){ 100, 140, moments[i], 64, false };
    all_move(settings, moves, sizeof(moments) / sizeof(moments[0]));
}

// Its prefill worker never came, so that it was computed where it waited; then it moves as others
// do.
static void a_sequence_moves_whose_hand_over_failed(void **state)
{
    (void)state;
    const char *const settings[] = { "engine.prefix_reuse=false", "faults=worker.stall:1:10",
                                     "fabric.connect=300ms", "decode.recompute_failed_handoff=true",
                                     NULL };
    const move only = { 100, 100, 3, 64, true };
    all_move(settings, &only, 1);
}

// Its target has all that it computed and room for no token more, and the pages end there.
static void a_sequence_that_may_make_no_token_more_moves_at_once(void **state)
{
    (void)state;
    const char *const settings[] = { "engine.prefix_reuse=false", "faults=worker.stall:1:100",
                                     "speculate.drafter=off", NULL };
    const move only = { 60, 8, 4, 0, false };
    all_move(settings, &only, 1);
}

static void many_at_once_all_finish_and_nothing_leaks(void **state)
{
    (void)state;
    begin_with(NULL, NULL);
    enum { COUNT = 24 };
    static fake_answer answers[COUNT];
    static fake_ticket tickets[COUNT];
    memset(answers, 0, sizeof(answers));
    for (int i = 0; i < COUNT; i++) {
        fake_ticket_make(&tickets[i], 50 + (uint64_t)i, prompt, 40 + 11 * (size_t)i, 10);
        send_both(&tickets[i]);
    }
    fake_event event;
    for (int done = 0; done < COUNT && fake_router_next(router, patience_ms, &event);) {
        done = 0;
        for (int i = 0; i < COUNT; i++) {
            fake_answer_take(&answers[i], 50 + (uint64_t)i, &event);
            assert_int_equal(answers[i].failed_code, 0);
            assert_int_equal(answers[i].refused_code, 0);
            done += answers[i].finish != 0;
        }
    }
    both_idle();
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(answers[i].count, 10);
        fake_ticket_make(&tickets[i], 500 + (uint64_t)i, prompt, 40 + 11 * (size_t)i, 10);
        fake_answer local = ask_decode(&tickets[i]);
        assert_same(&answers[i], &local);
    }
    both_idle();
    end();
}

static void b078_cancels_in_every_phase_give_pages_back(void **state)
{
    (void)state;
    const char *const slow[] = { "faults=worker.stall:1:5", "engine.chunk_tokens=32",
                                 "engine.prefix_reuse=false", NULL };
    const char *const settings[] = { "engine.prefix_reuse=false", NULL };
    begin_with(slow, settings);
    for (uint64_t i = 0; i < 25; i++) {
        fake_ticket t;
        fake_ticket_make(&t, 1000 + i, prompt, 500, 300);
        send_both(&t);
        fake_router_pump(router, (int)(i * 8));
        fake_worker_cancel(i % 2 ? decode : prefill, 1000 + i, 0);
        if (i % 3 == 0)
            fake_router_pump(router, 10);
        fake_worker_cancel(i % 2 ? prefill : decode, 1000 + i, 0);
    }
    both_idle();
    fake_ticket t;
    fake_ticket_make(&t, 1, prompt, 500, 5);
    fake_answer a = ask_both(&t);
    assert_int_equal(a.count, 5);
    both_idle();
    end();
}

// Until a part of the prompt is computed; the whole of it takes five seconds here.
static void await_prefill(void)
{
    uint64_t end_us = clock_now_us() + (uint64_t)patience_ms * 1000;
    while (fake_worker_beat(prefill)->prefill_tokens == 0) {
        assert_true(clock_now_us() < end_us);
        fake_router_pump(router, 20);
    }
}

static void b081_a_killed_prefill_worker_fails_its_seats(void **state)
{
    (void)state;
    const char *const slow[] = { "faults=worker.stall:1:300", "engine.chunk_tokens=32", NULL };
    begin_with(slow, NULL);
    fake_ticket t;
    fake_ticket_make(&t, 1, prompt, 500, 10);
    send_both(&t);
    fake_answer a = { 0 };
    await_prefill();
    fake_process_kill(prefill_process);
    // The router would cancel the seat at once; here the hand-off must notice by itself.
    assert_true(fake_answer_wait(router, &a, 1, patience_ms));
    assert_int_not_equal(a.failed_code, 0);
    assert_true(fake_worker_idle(router, decode, patience_ms));
    fake_process_end(router, decode_process, patience_ms);
    fake_router_close(router);
}

static void a_failed_hand_over_can_be_computed_here(void **state)
{
    (void)state;
    const char *const slow[] = { "faults=worker.stall:1:300", "engine.chunk_tokens=32", NULL };
    const char *const settings[] = { "decode.recompute_failed_handoff=true", NULL };
    begin_with(slow, settings);
    fake_ticket t;
    fake_ticket_make(&t, 1, prompt, 500, 10);
    send_both(&t);
    fake_answer a = { 0 };
    await_prefill();
    fake_process_kill(prefill_process);
    assert_true(fake_answer_wait(router, &a, 1, patience_ms));
    assert_int_equal(a.failed_code, 0);
    assert_int_equal(a.count, 10);
    assert_true(fake_worker_idle(router, decode, patience_ms));
    fake_process_end(router, decode_process, patience_ms);
    fake_router_close(router);
}

static void a_killed_decode_worker_fails_the_sends(void **state)
{
    (void)state;
    const char *const slow[] = { "faults=worker.stall:1:300", "engine.chunk_tokens=32", NULL };
    begin_with(slow, NULL);
    fake_ticket t;
    fake_ticket_make(&t, 1, prompt, 500, 10);
    send_both(&t);
    await_prefill();
    fake_process_kill(decode_process);
    fake_answer a = { 0 };
    assert_true(fake_answer_wait(router, &a, 1, patience_ms));
    assert_int_not_equal(a.failed_code, 0);
    assert_true(fake_worker_idle(router, prefill, patience_ms));
    fake_process_end(router, prefill_process, patience_ms);
    fake_router_close(router);
}

static void a_drain_finishes_its_hand_overs(void **state)
{
    (void)state;
    const char *const slow[] = { "faults=worker.stall:1:300", "engine.chunk_tokens=32", NULL };
    begin_with(slow, NULL);
    fake_ticket t;
    fake_ticket_make(&t, 1, prompt, 500, 10);
    send_both(&t);
    await_prefill();
    kill(prefill_process, SIGTERM);
    fake_answer a = { 0 };
    assert_true(fake_answer_wait(router, &a, 1, patience_ms));
    assert_int_equal(a.count, 10);
    assert_int_equal(fake_process_wait(router, prefill_process, patience_ms), 0);
    assert_true(fake_worker_idle(router, decode, patience_ms));
    fake_process_end(router, decode_process, patience_ms);
    fake_router_close(router);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handed_over_answer_equals_a_local_one),
        cmocka_unit_test(b085_known_prefixes_are_neither_computed_nor_sent),
        cmocka_unit_test(b077_a_first_token_that_ends_it_is_not_handed_over),
        cmocka_unit_test(a_running_sequence_moves),
        cmocka_unit_test(a_sequence_moves_whose_hand_over_failed),
        cmocka_unit_test(a_sequence_that_may_make_no_token_more_moves_at_once),
        cmocka_unit_test(many_at_once_all_finish_and_nothing_leaks),
        cmocka_unit_test(b078_cancels_in_every_phase_give_pages_back),
        cmocka_unit_test(b081_a_killed_prefill_worker_fails_its_seats),
        cmocka_unit_test(a_failed_hand_over_can_be_computed_here),
        cmocka_unit_test(a_killed_decode_worker_fails_the_sends),
        cmocka_unit_test(a_drain_finishes_its_hand_overs),
    };
    return cmocka_run_group_tests(tests, fake_model_make, fake_model_remove);
}
