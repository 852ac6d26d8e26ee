// limit: 60
// A ticket's grammar in penstock-decode on its own: one router (of the harness).
#include "harness/fake/fake_router.h"
#include "harness/tiny_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const int patience_ms = 60000;

static const int32_t prompt[150] = { 10, 20, 30, 40, 50, 60, 70 };
#define PROMPT_COUNT 150

// The grammar is compiled from the ticket, and holds for whoever goes on with it.
static void a_grammar_holds_in_every_attempt(void **state)
{
    (void)state;
    fake_router *router = fake_router_open();
    pid_t process = fake_process_start("decode", router, NULL);
    fake_worker *w = fake_router_worker(router, 1);
    fake_ticket t;
    fake_ticket_make(&t, 1, prompt, PROMPT_COUNT, 20);
    t.ticket.ignore_eos = false;
    t.ticket.grammar = "choice\n[\"a\",\"b\"]";
    fake_answer a = fake_worker_ask(w, &t, patience_ms);
    assert_int_equal(a.finish, PENSTOCK__FINISH__FINISH_STOP);
    assert_int_equal(a.count, 2); // the letter and the end
    assert_true(a.tokens[0] == TINY_MODEL_BYTE_FIRST + 'a' ||
                a.tokens[0] == TINY_MODEL_BYTE_FIRST + 'b');
    int32_t resumed[PROMPT_COUNT + 4];
    memcpy(resumed, prompt, sizeof(prompt));
    static const char grammar[] = "regex\n[a-f]{3}-[0-9]{4}";
    fake_ticket_make(&t, 2, prompt, PROMPT_COUNT, 20);
    t.ticket.ignore_eos = false;
    t.ticket.grammar = (char *)grammar;
    a = fake_worker_ask(w, &t, patience_ms);
    assert_int_equal(a.finish, PENSTOCK__FINISH__FINISH_STOP);
    assert_true(a.count > 3);
    memcpy(resumed + PROMPT_COUNT, a.tokens, 2 * sizeof(resumed[0]));
    fake_ticket_make(&t, 3, resumed, PROMPT_COUNT + 2, 20);
    t.ticket.prompt_count = PROMPT_COUNT;
    t.ticket.attempt = 1;
    t.ticket.ignore_eos = false;
    t.ticket.grammar = (char *)grammar;
    fake_answer rest = { .count = 2 };
    fake_worker_send(w, &t.message);
    assert_true(fake_answer_wait(router, &rest, 3, patience_ms));
    assert_int_equal(rest.count, a.count);
    assert_memory_equal(rest.tokens + 2, a.tokens + 2, (size_t)(a.count - 2) * sizeof(a.tokens[0]));
    fake_process_end(router, process, patience_ms);
    fake_router_close(router);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_grammar_holds_in_every_attempt),
    };
    return cmocka_run_group_tests(tests, fake_model_make, fake_model_remove);
}
