// limit: 120
// The draft model by a clock that moves only where a step is told to take its time: what takes too
// long, and what does not.
#include "base/clock.h"
#include "base/fault.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>

#include "speculation_fixture.h"

// ---- the clock, in the place of base/clock.c --------------------------------------------------

static uint64_t now_us = 1000000;

uint64_t clock_now_us(void)
{
    return now_us;
}

uint64_t clock_wall_us(void)
{
    return now_us;
}

uint64_t clock_wall_s(void)
{
    return now_us / 1000000;
}

void clock_sleep_us(uint64_t duration_us)
{
    now_us += duration_us;
}

// Steps of the draft model take so many milliseconds; with `times` > 0 only so many of them do, and
// the others none.
static void steps_take(int ms, int times)
{
    char point[64];
    fault_settings faults = { { 1, (char *[]){ point } } };
    snprintf(point, sizeof point, times > 0 ? "draft.stall:1:%d:%d" : "draft.stall:1:%d", ms,
             times);
    fault_disarm_all();
    assert_int_equal(fault_arm(&faults, NULL), STATUS_OK);
}

// ---- one shadow -------------------------------------------------------------------------------

#define PIECE 32
#define LIMIT 4

typedef struct follower {
    engine *target;
    draft_model *model;
    int32_t tokens[PROMPT + ANSWER]; // what the sequence draws, all of it
    draft guess;
} follower;

// The draft model agrees with the target. Its prompt took a millisecond a token.
static void follower_open(follower *x, const fixture *f)
{
    engine_settings settings = fixture_settings(path);
    x->target = fixture_open(&settings);
    settings.chunk_tokens = settings.step_tokens = PIECE;
    assert_int_equal(draft_model_open(&settings, path, x->target, &x->model, NULL), STATUS_OK);
    memcpy(x->tokens, f->prompts[0], sizeof f->prompts[0]);
    memcpy(x->tokens + PROMPT, f->truth[0].tokens, ANSWER * sizeof x->tokens[0]);
    draft_model_begin(x->model, 0, &f->requests[0]);
    for (int32_t left = PROMPT; left > 0; left -= PIECE) {
        steps_take(left < PIECE ? left : PIECE, 0);
        assert_true(draft_model_work(x->model));
    }
    assert_true(draft_model_ready(x->model, 0));
}

static void follower_close(follower *x)
{
    fault_disarm_all();
    draft_model_end(x->model, 0);
    draft_model_close(x->model);
    fixture_close(x->target);
}

// Guess behind so many tokens of the answer. Returns the number of guesses, which are right.
static int32_t follow(follower *x, int32_t drawn)
{
    draft_request r = {
        .tokens = x->tokens, .count = PROMPT + drawn, .limit = LIMIT, .guess = &x->guess
    };
    draft_model_guess(x->model, &r, 1);
    assert_memory_equal(x->guess.tokens, x->tokens + r.count,
                        (size_t)x->guess.count * sizeof x->tokens[0]);
    return x->guess.count;
}

static uint64_t stalled(const follower *x)
{
    return draft_model_troubles_of(x->model)->stalled;
}

// ---- tests ------------------------------------------------------------------------------------

// Guesses of others were right meanwhile, so the next one takes many tokens in first: 30 ms, where
// four rounds take 4.
static void a_shadow_that_catches_up_has_not_stalled(void **state)
{
    follower x;
    follower_open(&x, *state);
    steps_take(1, 0);
    for (int32_t drawn = 1; drawn < 20; drawn += LIMIT)
        assert_int_equal(follow(&x, drawn), LIMIT);
    for (int32_t drawn = 20 + PIECE - 2; drawn < ANSWER - LIMIT; drawn += PIECE - 2) {
        assert_true(draft_model_behind(x.model, 0, PROMPT + drawn) > PIECE - 2 - LIMIT);
        steps_take(PIECE - 2, 1);
        assert_int_equal(follow(&x, drawn), LIMIT);
    }
    assert_int_equal(stalled(&x), 0);
    follower_close(&x);
}

// It is left after the first step, wherever in the guess that is, and goes on with the next one.
static void one_that_stalls_is_left_within_a_step(void **state)
{
    follower x;
    follower_open(&x, *state);
    steps_take(1, 0);
    for (int32_t drawn = 1; drawn < 20; drawn += LIMIT)
        assert_int_equal(follow(&x, drawn), LIMIT);
    uint64_t begun_us = now_us;
    steps_take(200, 0);
    assert_int_equal(follow(&x, 21), 1);
    assert_int_equal(now_us - begun_us, 200000);
    assert_int_equal(stalled(&x), 1);
    begun_us = now_us;
    steps_take(400, 0); // which four rounds and 28 tokens to catch up with do not
    assert_int_equal(follow(&x, 50), 1);
    assert_int_equal(now_us - begun_us, 400000);
    assert_int_equal(stalled(&x), 2);
    steps_take(1, 0);
    assert_int_equal(follow(&x, 51), LIMIT);
    assert_int_equal(stalled(&x), 2);
    follower_close(&x);
}

// Nothing is known of its rounds then but what its prompt took.
static void the_first_guess_may_stall_too(void **state)
{
    follower x;
    follower_open(&x, *state);
    steps_take(LIMIT * LIMIT * PIECE + 50, 0);
    assert_int_equal(follow(&x, 1), 1);
    assert_int_equal(stalled(&x), 1);
    follower_close(&x);
}

static void no_answer_waits_for_one_that_stalls(void **state)
{
    fixture *f = *state;
    worker w = worker_begin("model", 24);
    speculation_stats before, after;
    w.settings.model = path;
    w.settings.prompt_tokens = PROMPT;
    w.settings.fixed = LIMIT;
    worker_open(&w);
    steps_take(1, 0);
    serve_expect_truth(&w, f, 0, CROWD); // what a guess takes is known
    speculation_stats_of(w.speculation, &before);
    assert_int_equal(before.troubles.stalled, 0);
    steps_take(400, 3); // the prompt, and two guesses
    serve_expect_truth(&w, f, 0, 1);
    speculation_stats_of(w.speculation, &after);
    assert_int_equal(after.troubles.stalled, 2);
    fault_disarm_all();
    worker_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shadow_that_catches_up_has_not_stalled),
        cmocka_unit_test(one_that_stalls_is_left_within_a_step),
        cmocka_unit_test(the_first_guess_may_stall_too),
        cmocka_unit_test(no_answer_waits_for_one_that_stalls),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
