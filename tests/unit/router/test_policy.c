// Placement is a function of (view, ask).
#include "router/policy.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

static policy_worker worker(policy_role role)
{
    return (policy_worker){ .role = role,
                            .alive = true,
                            .usable = true,
                            .numeric_id = { 1, 1 },
                            .page_tokens = 64,
                            .context = 8192,
                            .pages_pool = 100,
                            .pages_max = 100,
                            .sequences_max = 8 };
}

static policy_plan place(const policy_worker *workers, size_t count, policy_ask ask)
{
    policy_view view = { workers, count, 64, true, false };
    return policy_place(&view, &ask);
}

static const policy_ask long_prompt = { .tokens = 1000, .avoid = SIZE_MAX };

static void the_least_loaded_pair_is_chosen(void **state)
{
    (void)state;
    policy_worker w[] = { worker(POLICY_DECODE), worker(POLICY_PREFILL), worker(POLICY_DECODE),
                          worker(POLICY_PREFILL) };
    w[0].pages_spent = 30;
    w[0].sequences_spent = 1;
    w[1].tokens_outstanding = 500;
    policy_plan plan = place(w, 4, long_prompt);
    assert_int_equal(plan.verdict, POLICY_PLACED);
    assert_int_equal(plan.decode, 2);
    assert_int_equal(plan.prefill, 3);
    assert_int_equal(plan.local, POLICY_LOCAL_NOT);
    w[1].tokens_per_s = 1000; // twice as much to do, four times as fast
    w[3].tokens_per_s = 250;
    w[3].tokens_outstanding = 250;
    assert_int_equal(place(w, 4, long_prompt).prefill, 1);
    w[2].sequences_spent = 7;
    assert_int_equal(place(w, 4, long_prompt).decode, 0);
}

static void what_moves_needs_a_decode_worker_with_the_same_numbers(void **state)
{
    (void)state;
    policy_worker w[] = { worker(POLICY_PREFILL), worker(POLICY_DECODE), worker(POLICY_DECODE) };
    policy_ask ask = {
        .tokens = 1000, .bound = true, .numeric_id = { 1, 1 }, .moving = true, .avoid = SIZE_MAX
    };
    w[1].usable = false; // it drains
    policy_plan plan = place(w, 3, ask);
    assert_int_equal(plan.verdict, POLICY_PLACED);
    assert_int_equal(plan.decode, 2);
    assert_int_equal(plan.prefill, SIZE_MAX);
    assert_int_equal(plan.local, POLICY_LOCAL_NOT);
    w[2].numeric_id = (hash128){ 2, 2 };
    policy_view mixed = { w, 3, 64, true, true };
    assert_int_not_equal(policy_place(&mixed, &ask).verdict, POLICY_PLACED);
    w[2].numeric_id = w[1].numeric_id;
    w[2].pages_spent = 90;
    assert_int_equal(place(w, 3, ask).verdict, POLICY_WAIT);
}

static void short_prompts_stay_on_the_decode_worker(void **state)
{
    (void)state;
    policy_worker w[] = { worker(POLICY_DECODE), worker(POLICY_PREFILL) };
    policy_ask ask = { .tokens = 64, .avoid = SIZE_MAX };
    policy_plan plan = place(w, 2, ask);
    assert_int_equal(plan.verdict, POLICY_PLACED);
    assert_int_equal(plan.prefill, SIZE_MAX);
    assert_int_equal(plan.local, POLICY_LOCAL_SHORT);
    ask.tokens = 65;
    assert_int_equal(place(w, 2, ask).prefill, 1);
}

static void after_failed_hand_offs_it_is_local_if_allowed(void **state)
{
    (void)state;
    policy_worker w[] = { worker(POLICY_DECODE), worker(POLICY_PREFILL) };
    policy_view view = { w, 2, 64, true, false };
    policy_ask ask = long_prompt;
    ask.handoff_failed = true;
    policy_plan plan = policy_place(&view, &ask);
    assert_int_equal(plan.verdict, POLICY_PLACED);
    assert_int_equal(plan.prefill, SIZE_MAX);
    assert_int_equal(plan.local, POLICY_LOCAL_HANDOFF);
    view.local_prefill = false;
    assert_int_equal(policy_place(&view, &ask).prefill, 1);
}

static void without_a_matching_prefill_worker_it_is_local_if_allowed(void **state)
{
    (void)state;
    policy_worker w[] = { worker(POLICY_DECODE), worker(POLICY_PREFILL) };
    policy_view view = { w, 2, 64, true, false };
    policy_ask ask = long_prompt;
    w[1].numeric_id.low = 9;
    policy_plan plan = policy_place(&view, &ask);
    assert_int_equal(plan.prefill, SIZE_MAX);
    assert_int_equal(plan.local, POLICY_LOCAL_NO_PREFILL);
    view.local_prefill = false;
    assert_int_equal(policy_place(&view, &ask).verdict, POLICY_NO_WORKER);
    view.mixed_numeric_ids = true;
    plan = policy_place(&view, &ask);
    assert_int_equal(plan.prefill, 1);
    assert_true(plan.mixed);
    w[1].page_tokens = 32; // pages of another size never pair
    assert_int_equal(policy_place(&view, &ask).verdict, POLICY_NO_WORKER);
}

static void a_full_prefill_worker_is_waited_for(void **state)
{
    (void)state;
    policy_worker w[] = { worker(POLICY_DECODE), worker(POLICY_PREFILL) };
    w[1].pages_spent = 90;
    assert_int_equal(place(w, 2, long_prompt).verdict, POLICY_WAIT);
    w[1].pages_spent = 0;
    w[1].usable = false; // suspect: it may come back
    assert_int_equal(place(w, 2, long_prompt).verdict, POLICY_WAIT);
}

static void credits_are_pages_of_the_tokens_and_one_more(void **state)
{
    (void)state;
    assert_int_equal(policy_pages(64, 1), 2);
    assert_int_equal(policy_pages(64, 64), 2);
    assert_int_equal(policy_pages(64, 65), 3);
    policy_worker w[] = { worker(POLICY_DECODE) };
    policy_ask ask = { .tokens = 640, .avoid = SIZE_MAX };
    w[0].pages_pool = w[0].pages_max = 11;
    assert_int_equal(place(w, 1, ask).verdict, POLICY_PLACED);
    ask.tokens = 641;
    assert_int_equal(place(w, 1, ask).verdict, POLICY_TOO_LARGE);
    w[0].pages_pool = w[0].pages_max = 12;
    w[0].pages_spent = 1;
    assert_int_equal(place(w, 1, ask).verdict, POLICY_WAIT);
    w[0].pages_spent = 13; // more than granted: a grant may shrink
    assert_int_equal(place(w, 1, ask).verdict, POLICY_WAIT);
}

static void a_small_grant_shuts_nothing_out(void **state)
{
    (void)state;
    policy_worker w[] = { worker(POLICY_DECODE) };
    policy_ask ask = { .tokens = 640, .avoid = SIZE_MAX };
    w[0].pages_max = 5; // another router uses most of the 100
    assert_int_equal(place(w, 1, ask).verdict, POLICY_PLACED);
    w[0].pages_spent = 1;
    assert_int_equal(place(w, 1, ask).verdict, POLICY_WAIT);
}

static void nobody_alive_is_no_worker(void **state)
{
    (void)state;
    policy_worker w[] = { worker(POLICY_DECODE), worker(POLICY_PREFILL) };
    assert_int_equal(place(NULL, 0, long_prompt).verdict, POLICY_NO_WORKER);
    assert_int_equal(place(w + 1, 1, long_prompt).verdict, POLICY_NO_WORKER);
    w[0].alive = w[0].usable = false;
    assert_int_equal(place(w, 2, long_prompt).verdict, POLICY_NO_WORKER);
}

static void delivered_tokens_bind_to_their_numbers(void **state)
{
    (void)state;
    policy_worker w[] = { worker(POLICY_DECODE), worker(POLICY_DECODE) };
    policy_ask ask = { .tokens = 50, .bound = true, .numeric_id = { 2, 2 }, .avoid = SIZE_MAX };
    assert_int_equal(place(w, 2, ask).verdict, POLICY_NO_WORKER);
    w[1].numeric_id = ask.numeric_id;
    w[1].sequences_spent = 5;
    assert_int_equal(place(w, 2, ask).decode, 1);
}

static void a_worker_that_failed_is_the_last_choice(void **state)
{
    (void)state;
    policy_worker w[] = { worker(POLICY_DECODE), worker(POLICY_DECODE) };
    policy_ask ask = { .tokens = 50, .avoid = 0 };
    w[1].sequences_spent = 7;
    assert_int_equal(place(w, 2, ask).decode, 1);
    w[1].sequences_spent = 8;
    assert_int_equal(place(w, 2, ask).decode, 0);
}

static void a_context_that_is_too_short_is_no_candidate(void **state)
{
    (void)state;
    policy_worker w[] = { worker(POLICY_DECODE), worker(POLICY_DECODE), worker(POLICY_PREFILL) };
    policy_ask ask = { .tokens = 1000, .length = 3000, .avoid = SIZE_MAX };
    w[0].context = 2999;
    w[1].sequences_spent = 7;
    assert_int_equal(place(w, 3, ask).decode, 1);
    assert_int_equal(place(w, 3, ask).prefill, 2);
    w[2].context = 999;
    assert_int_equal(place(w, 3, ask).prefill, SIZE_MAX);
    w[1].context = 2999;
    assert_int_equal(place(w, 3, ask).verdict, POLICY_NO_WORKER);
}

static void a_suspected_request_runs_alone(void **state)
{
    (void)state;
    policy_worker w[] = { worker(POLICY_DECODE), worker(POLICY_DECODE) };
    policy_ask ask = { .tokens = 50, .alone = true, .avoid = SIZE_MAX };
    w[0].sequences_spent = 1;
    assert_int_equal(place(w, 2, ask).decode, 1);
    w[1].sequences_spent = 1;
    assert_int_equal(place(w, 2, ask).verdict, POLICY_WAIT);
    w[1].alone = true;
    w[0].usable = false;
    ask.alone = false;
    assert_int_equal(place(w, 2, ask).verdict, POLICY_WAIT);
}

static void whoever_computes_needs_token_credits(void **state)
{
    (void)state;
    policy_worker w[] = { worker(POLICY_DECODE), worker(POLICY_PREFILL), worker(POLICY_PREFILL) };
    w[1].tokens_max = w[2].tokens_max = 1500;
    w[2].tokens_outstanding = 1000;
    w[2].tokens_per_s = 1e6; // it would be through first
    assert_int_equal(place(w, 3, long_prompt).prefill, 1);
    w[1].tokens_outstanding = 501;
    assert_int_equal(place(w, 3, long_prompt).verdict, POLICY_WAIT);
    w[1].tokens_outstanding = 500;
    assert_int_equal(place(w, 3, long_prompt).prefill, 1);
    w[1].tokens_max = 10; // it has nothing to compute: any length
    w[1].tokens_outstanding = 0;
    assert_int_equal(place(w, 3, long_prompt).prefill, 1);
    policy_ask small = { .tokens = 60, .avoid = SIZE_MAX };
    w[0].tokens_max = 100;
    w[0].tokens_outstanding = 50; // a short prompt is the decode worker's to compute
    assert_int_equal(place(w, 3, small).verdict, POLICY_WAIT);
}

static void a_request_stays_within_its_version(void **state)
{
    (void)state;
    policy_worker w[] = { worker(POLICY_DECODE), worker(POLICY_DECODE), worker(POLICY_PREFILL),
                          worker(POLICY_PREFILL) };
    policy_view view = { w, 4, 64, true, true }; // numeric ids may differ, weights may not
    policy_ask ask = long_prompt;
    w[1].weights = w[3].weights = ask.weights = (hash128){ 7, 7 };
    w[1].sequences_spent = 5;
    w[3].pages_spent = 50;
    policy_plan plan = policy_place(&view, &ask);
    assert_int_equal(plan.decode, 1);
    assert_int_equal(plan.prefill, 3);
    w[3].alive = w[3].usable = false;
    plan = policy_place(&view, &ask);
    assert_int_equal(plan.prefill, SIZE_MAX);
    assert_int_equal(plan.local, POLICY_LOCAL_NO_PREFILL);
    w[1].alive = w[1].usable = false;
    assert_int_equal(policy_place(&view, &ask).verdict, POLICY_NO_WORKER);
}

static void room_is_kept_where_it_will_be_first(void **state)
{
    (void)state;
    size_t decode, prefill;
    policy_worker w[] = { worker(POLICY_DECODE), worker(POLICY_DECODE), worker(POLICY_PREFILL),
                          worker(POLICY_PREFILL) };
    policy_view view = { w, 4, 64, true, false };
    policy_ask ask = { .tokens = 5000, .avoid = SIZE_MAX }; // 80 pages of 100
    w[0].pages_spent = 60;
    w[1].pages_spent = 40;
    assert_int_equal(policy_place(&view, &ask).verdict, POLICY_WAIT);
    policy_reserve(&view, &ask, &decode, &prefill);
    assert_int_equal(decode, 1);
    assert_int_equal(prefill, SIZE_MAX); // there is room already
    w[1].kept = true;
    policy_ask small = { .tokens = 50, .avoid = SIZE_MAX };
    assert_int_equal(policy_place(&view, &small).decode, 0); // others go elsewhere
    policy_reserve(&view, &ask, &decode, &prefill);
    assert_int_equal(decode, 0);
    w[0].kept = true;
    assert_int_equal(policy_place(&view, &small).verdict, POLICY_WAIT);
    policy_reserve(&view, &ask, &decode, &prefill);
    assert_int_equal(decode, SIZE_MAX);
    w[0].kept = w[1].kept = false;
    w[2].pages_spent = 90;
    w[3].pages_spent = 30;
    policy_reserve(&view, &ask, &decode, &prefill);
    assert_int_equal(prefill, 3); // the prompt has no room either
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_loaded_pair_is_chosen),
        cmocka_unit_test(what_moves_needs_a_decode_worker_with_the_same_numbers),
        cmocka_unit_test(short_prompts_stay_on_the_decode_worker),
        cmocka_unit_test(after_failed_hand_offs_it_is_local_if_allowed),
        cmocka_unit_test(without_a_matching_prefill_worker_it_is_local_if_allowed),
        cmocka_unit_test(a_full_prefill_worker_is_waited_for),
        cmocka_unit_test(credits_are_pages_of_the_tokens_and_one_more),
        cmocka_unit_test(a_small_grant_shuts_nothing_out),
        cmocka_unit_test(nobody_alive_is_no_worker),
        cmocka_unit_test(delivered_tokens_bind_to_their_numbers),
        cmocka_unit_test(a_worker_that_failed_is_the_last_choice),
        cmocka_unit_test(a_context_that_is_too_short_is_no_candidate),
        cmocka_unit_test(a_suspected_request_runs_alone),
        cmocka_unit_test(whoever_computes_needs_token_credits),
        cmocka_unit_test(a_request_stays_within_its_version),
        cmocka_unit_test(room_is_kept_where_it_will_be_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
