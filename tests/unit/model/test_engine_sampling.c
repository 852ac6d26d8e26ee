// What a sequence draws: ids that there are, penalties that count the right tokens, and the borders
// of the filters.
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine_fixture.h"

static char path[64];

static int setup(void **state)
{
    (void)state;
    tiny_model o = tiny_model_default(21);
    o.extra_rows = 7;
    tiny_model_temporary(&o, path);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

static engine *engine_new(void)
{
    engine_settings settings = fixture_settings(path);
    settings.prefix_reuse = true;
    return fixture_open(&settings);
}

static void b057_ids_that_the_tokenizer_does_not_know_are_never_drawn(void **state)
{
    (void)state;
    int32_t prompt[10];
    engine *e = engine_new();
    fixture_tokens(prompt, 10, 1);
    sequence_request request = fixture_sampled(prompt, 10, 200, 4);
    request.sampling.temperature = 50;
    request.sampling.top_p = 1;
    request.sampling.top_k = 0;
    request.sampling.min_p = 0;
    run r = fixture_run_one(e, request);
    assert_int_equal(r.count, 200);
    int32_t distinct = 0;
    bool seen[512] = { false };
    for (int i = 0; i < r.count; i++) {
        assert_in_range(r.tokens[i], 0, tiny_model_vocabulary() - 1);
        distinct += !seen[r.tokens[i]];
        seen[r.tokens[i]] = true;
    }
    assert_true(distinct > 80); // nearly uniform, and every position has its own noise
    fixture_close(e);
}

static void b062_presence_and_frequency_count_the_answer_only(void **state)
{
    (void)state;
    int32_t prompt[40];
    engine *e = engine_new();
    for (int i = 0; i < 40; i++)
        prompt[i] = 100 + i % 3;
    sequence_request plain = fixture_request(prompt, 40, 12), penalised = plain;
    run a = fixture_run_one(e, plain);
    penalised.sampling.presence_penalty = 40;
    penalised.sampling.frequency_penalty = 40;
    run b = fixture_run_one(e, penalised);
    assert_int_equal(b.tokens[0], a.tokens[0]);
    for (int i = 0; i < b.count; i++)
        for (int k = 0; k < i; k++)
            assert_int_not_equal(b.tokens[i], b.tokens[k]);
    fixture_close(e);
}

static void b062_the_repetition_penalty_counts_the_prompt_too(void **state)
{
    (void)state;
    int32_t prompt[40], tried = 0;
    engine *e = engine_new();
    // Find prompts that hold their own greedy continuation; there the penalty must change the
    // choice.
    for (int32_t seed = 1; seed < 40; seed++) {
        fixture_tokens(prompt, 40, seed);
        prompt[5] = fixture_run_one(e, fixture_request(prompt, 40, 1)).tokens[0];
        sequence_request r = fixture_request(prompt, 40, 1);
        if (fixture_run_one(e, r).tokens[0] != prompt[5])
            continue;
        r.sampling.repetition_penalty = 1000;
        assert_int_not_equal(fixture_run_one(e, r).tokens[0], prompt[5]);
        tried++;
    }
    assert_true(tried > 5);
    fixture_close(e);
}

// Whatever a client asks for at the borders, the best token survives; where that alone can survive
// the text is the greedy one.
static void b060_the_best_token_survives_at_every_border(void **state)
{
    (void)state;
    int32_t prompt[20];
    engine *e = engine_new();
    fixture_tokens(prompt, 20, 8);
    run greedy = fixture_run_one(e, fixture_request(prompt, 20, 12));
    const float top_p[] = { 0, 1e-9f, 1 }, min_p[] = { 0, 1 }, temperature[] = { 1e-6f, 1, 2 };
    const int32_t top_k[] = { 0, 1, 5, tiny_model_vocabulary(), tiny_model_vocabulary() + 1 };
    for (int i = 0; i < 3 * 2 * 3 * 5; i++) {
        sequence_request r = fixture_request(prompt, 20, 12);
        r.sampling.seed = (uint64_t)i;
        r.sampling.top_p = top_p[i % 3];
        r.sampling.min_p = min_p[i / 3 % 2];
        r.sampling.temperature = temperature[i / 6 % 3];
        r.sampling.top_k = top_k[i / 18];
        bool one = r.sampling.top_p < 0.5f || r.sampling.min_p == 1 || r.sampling.top_k == 1 ||
                   r.sampling.temperature < 1e-3f;
        run found = fixture_run_one(e, r);
        assert_int_equal(found.finish, SEQUENCE_LENGTH);
        for (int k = 0; k < found.count; k++) {
            assert_in_range(found.tokens[k], 0, tiny_model_vocabulary() - 1);
            assert_true(isfinite(found.logprobs[k]));
        }
        if (one)
            assert_memory_equal(found.tokens, greedy.tokens, 12 * sizeof greedy.tokens[0]);
    }
    fixture_close(e);
}

// ---- guides ------------------------------------------------------------------------------------

// Tokens 50, 51, 52, 50, ... ; the text is complete behind the fourth, and over behind the sixth.
typedef struct counting {
    int32_t told;
} counting;

static void counting_begin(void *state)
{
    ((counting *)state)->told = 0;
}

static bool counting_advance(void *state, int32_t token)
{
    counting *c = state;
    bool fine = c->told < 6 && token == 50 + c->told % 3;
    c->told += fine;
    return fine;
}

static bool counting_mask(void *state, uint64_t *mask, int32_t words, bool *complete)
{
    const counting *c = state;
    memset(mask, 0, (size_t)words * sizeof mask[0]);
    if (c->told < 6)
        mask[0] |= 1ull << (50 + c->told % 3);
    *complete = c->told >= 4;
    return true;
}

static void a_guide_says_what_may_come_and_where_it_ends(void **state)
{
    (void)state;
    int32_t tokens[24];
    counting told = { 7 };
    const sequence_guide guide = {
        .state = &told, .begin = counting_begin, .advance = counting_advance, .mask = counting_mask
    };
    engine *e = engine_new();
    error failure;
    sequence *s;
    fixture_tokens(tokens, 20, 3);
    sequence_request r = fixture_sampled(tokens, 20, 12, 5);
    r.guide = &guide;
    assert_int_equal(engine_sequence_open(e, &r, &s, &failure), STATUS_INVALID);
    assert_string_equal(failure.param, "ignore_eos");
    r.ignore_eos = false;
    // End ids are not drawn before min_tokens, and at once where nothing else may come.
    r.min_tokens = 10;
    run whole = fixture_run_one(e, r);
    assert_int_equal(whole.finish, SEQUENCE_STOP);
    assert_int_equal(whole.count, 7);
    for (int i = 0; i < 6; i++)
        assert_int_equal(whole.tokens[i], 50 + i % 3);
    r.max_tokens = r.min_tokens = 3;
    assert_int_equal(fixture_run_one(e, r).finish, SEQUENCE_LENGTH);
    // What an earlier attempt made is told to it, and must fit.
    r.max_tokens = r.min_tokens = 10;
    memcpy(tokens + 20, whole.tokens, 2 * sizeof tokens[0]);
    r.token_count = 22;
    engine_sequence_open(e, &r, &s, &failure);
    assert_int_equal(told.told, 2);
    // As the tokens of a seat must.
    int32_t wrong[] = { 52, 50, 50 };
    assert_int_equal(engine_sequence_place(e, s, 24, wrong, 3), STATUS_INVALID);
    engine_sequence_close(e, s, false);
    tokens[21] = 50;
    assert_int_equal(engine_sequence_open(e, &r, &s, &failure), STATUS_INVALID);
    assert_string_equal(failure.param, "grammar");
    fixture_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b057_ids_that_the_tokenizer_does_not_know_are_never_drawn),
        cmocka_unit_test(b062_presence_and_frequency_count_the_answer_only),
        cmocka_unit_test(b062_the_repetition_penalty_counts_the_prompt_too),
        cmocka_unit_test(b060_the_best_token_survives_at_every_border),
        cmocka_unit_test(a_guide_says_what_may_come_and_where_it_ends),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
