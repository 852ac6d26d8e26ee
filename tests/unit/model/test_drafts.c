// limit: 300
// Guessed tokens change when tokens come, and never which.
#include "base/random.h"
#include "harness/seed.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine_fixture.h"
#include "parity_guide.h"

#define PROMPT 50
#define ANSWER 60
#define CROWD 8
#define GUESSES 6

static char path[64];

// Requests with the answers that they have without any guess.
typedef struct fixture {
    int32_t prompts[CROWD][PROMPT];
    sequence_request requests[CROWD]; // greedy ones and sampled ones with everything on
    run truth[CROWD];
} fixture;

static fixture shared;

static engine_settings settings_new(const char *kv_type)
{
    engine_settings settings = fixture_settings(path);
    settings.kv_type = (char *)kv_type;
    return settings;
}

static void truth_compute(fixture *f, const char *kv_type)
{
    engine_settings settings = settings_new(kv_type);
    engine *e = fixture_open(&settings);
    for (int i = 0; i < CROWD; i++) {
        int32_t count = PROMPT - i;
        fixture_tokens(f->prompts[i], count, i + 3);
        f->requests[i] = i % 2 ? fixture_sampled(f->prompts[i], count, ANSWER - i, (uint64_t)i)
                               : fixture_request(f->prompts[i], count, ANSWER - i);
        f->truth[i] = fixture_run_one(e, f->requests[i]);
        assert_int_equal(f->truth[i].count, ANSWER - i);
    }
    fixture_close(e);
}

static int setup(void **state)
{
    tiny_model o = tiny_model_default(31);
    o.type = TENSOR_Q4_1;
    o.head_type = TENSOR_Q8_0;
    tiny_model_temporary(&o, path);
    truth_compute(&shared, "f16");
    *state = &shared;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

// Guess for `s` what its truth says comes next; each token is wrong with probability `wrong`.
static void guess(engine *e, sequence *s, const run *r, const run *truth, double wrong,
                  uint64_t *random)
{
    int32_t tokens[GUESSES], count = 0;
    for (; count < GUESSES && r->count + count < truth->count; count++) {
        tokens[count] = truth->tokens[r->count + count];
        if (random_unit(random_mix((*random)++)) < wrong)
            tokens[count] = TINY_MODEL_BYTE_FIRST + (int32_t)(random_mix((*random)++) % 256);
    }
    int32_t taken = engine_sequence_draft(e, s, tokens, count);
    assert_true(taken >= 0 && taken <= count);
}

typedef struct crowd {
    run runs[CROWD];
    sequence *sequences[CROWD];
    int64_t steps, drafted, accepted;
} crowd;

// Run all requests together, with guesses for each, and compare.
static void crowd_expect(fixture *f, const engine_settings *settings, double wrong, uint64_t seed,
                         crowd *c)
{
    uint64_t random = seed << 32;
    engine *e = fixture_open(settings);
    *c = (crowd){ 0 };
    for (int i = 0; i < CROWD; i++)
        c->sequences[i] = fixture_start(e, f->requests[i], &c->runs[i]);
    for (; engine_has_work(e); c->steps++) {
        for (int i = 0; i < CROWD; i++)
            guess(e, c->sequences[i], &c->runs[i], &f->truth[i], wrong, &random);
        engine_report report = fixture_step(e);
        assert_int_equal(report.preempted_count, 0);
        assert_true(report.draft_rows <= settings->draft_tokens);
        c->drafted += report.draft_rows;
        for (int i = 0; i < CROWD; i++) {
            int32_t drafted, accepted;
            sequence_drafted(c->sequences[i], &drafted, &accepted);
            assert_true(accepted >= 0 && accepted <= drafted && drafted <= GUESSES);
        }
    }
    for (int i = 0; i < CROWD; i++) {
        engine_sequence_close(e, c->sequences[i], true);
        run_expect_equal(&c->runs[i], &f->truth[i]);
    }
    fixture_close(e);
}

static void b071_right_guesses_give_the_same_answer_in_fewer_steps(void **state)
{
    crowd c;
    engine_settings settings = settings_new("f16");
    settings.draft_tokens = CROWD * GUESSES;
    crowd_expect(*state, &settings, 0, 1, &c);
    assert_true(c.steps <= 2 + (ANSWER + GUESSES) / (GUESSES + 1));
}

static void b071_wrong_guesses_leave_no_trace(void **state)
{
    crowd c;
    engine_settings settings = settings_new("f16");
    settings.draft_tokens = CROWD * GUESSES;
    settings.prefix_reuse = true;
    uint64_t seed = seed_choose();
    for (int i = 0; i < 4; i++) {
        crowd_expect(*state, &settings, 0.3 * (i + 1), seed + (uint64_t)i, &c);
        assert_true(c.drafted > 0 && c.steps >= ANSWER / (GUESSES + 1));
        settings.threads = 1 + i % 2;
        settings.page_tokens = 32 << i % 3;
    }
}

// Pages that a sequence with many wrong guesses leaves behind serve others as any known prefix
// does.
static void b071_wrong_guesses_leave_no_trace_in_known_prefixes(void **state)
{
    fixture *f = *state;
    engine_settings settings = settings_new("f16");
    engine *plain = fixture_open(&settings);
    settings.draft_tokens = GUESSES;
    settings.prefix_reuse = true;
    engine *e = fixture_open(&settings);
    uint64_t random = seed_choose() << 32;
    for (int i = 0; i < CROWD; i++) {
        int32_t tokens[PROMPT + ANSWER], prompt = f->requests[i].token_count;
        run r = { 0 };
        sequence *s = fixture_start(e, f->requests[i], &r);
        while (engine_has_work(e)) {
            guess(e, s, &r, &f->truth[i], 0.5, &random);
            fixture_step(e);
        }
        engine_sequence_close(e, s, true);
        memcpy(tokens, f->prompts[i], (size_t)prompt * sizeof tokens[0]);
        memcpy(tokens + prompt, r.tokens, (size_t)r.count * sizeof tokens[0]);
        sequence_request next = fixture_request(tokens, prompt + r.count, 8);
        run expected = fixture_run_one(plain, next), found = fixture_run_one(e, next);
        assert_true(found.reused >= (prompt + r.count - 1) / 32 * 32);
        run_expect_equal(&found, &expected);
    }
    fixture_close(plain);
    fixture_close(e);
}

static void b071_for_every_type_of_cache(void **state)
{
    crowd c;
    const char *const *types = fixture_choices("engine.kv_type");
    static fixture f;
    (void)state;
    for (int i = 0; types[i]; i++) {
        engine_settings settings = settings_new(types[i]);
        settings.draft_tokens = CROWD * GUESSES;
        truth_compute(&f, types[i]);
        crowd_expect(&f, &settings, 0.4, 5, &c);
    }
}

static void guesses_are_cut_to_what_a_step_has_room_for(void **state)
{
    crowd c;
    engine_settings settings = settings_new("f16");
    settings.draft_tokens = 5;
    crowd_expect(*state, &settings, 0.1, 2, &c);
    settings.draft_tokens = CROWD * GUESSES;
    settings.step_tokens = settings.max_sequences + 3;
    crowd_expect(*state, &settings, 0.1, 3, &c);
    settings.draft_tokens = 0;
    crowd_expect(*state, &settings, 0, 4, &c);
    assert_int_equal(c.drafted, 0);
}

// One request alone, with a guess before each step: what comes next in `text`.
static run run_guessed(engine *e, sequence_request request, const run *text)
{
    run r = { 0 };
    sequence *s = fixture_start(e, request, &r);
    while (engine_has_work(e)) {
        engine_sequence_draft(e, s, text->tokens + r.count, GUESSES);
        assert_int_equal(fixture_step(e).preempted_count, 0);
    }
    engine_sequence_close(e, s, true);
    return r;
}

// As many pages as the answers need and none for guesses.
static void guesses_that_find_no_page_are_dropped(void **state)
{
    fixture *f = *state;
    engine_settings settings = settings_new("f16");
    engine *e = fixture_open(&settings);
    int32_t prompt_pages = engine_pages_needed(e, PROMPT);
    settings.kv_bytes = (uint64_t)prompt_pages * (uint64_t)engine_facts_of(e)->layout.page_bytes;
    fixture_close(e);
    settings.draft_tokens = GUESSES;
    e = fixture_open(&settings);
    sequence_request request = f->requests[0];
    request.max_tokens = prompt_pages * 32 - PROMPT;
    run r = run_guessed(e, request, &f->truth[0]);
    assert_int_equal(r.count, request.max_tokens);
    assert_memory_equal(r.tokens, f->truth[0].tokens, (size_t)r.count * sizeof r.tokens[0]);
    fixture_close(e);
}

// B072, B073: an end, the length and min_tokens within one run of right guesses.
static void b072_b073_an_end_within_the_guesses_is_the_end(void **state)
{
    fixture *f = *state;
    engine_settings settings = settings_new("f16");
    engine *plain = fixture_open(&settings);
    settings.draft_tokens = GUESSES;
    engine *e = fixture_open(&settings);
    for (int32_t at = 1; at < 12; at++) {
        sequence_request request = f->requests[1];
        request.stop_ids[0] = f->truth[1].tokens[at];
        request.stop_id_count = 1;
        request.min_tokens = at / 2;
        request.max_tokens = 10;
        run truth = fixture_run_one(plain, request);
        run r = run_guessed(e, request, &f->truth[1]);
        run_expect_equal(&r, &truth);
    }
    fixture_close(plain);
    fixture_close(e);
}

static void what_cannot_be_drawn_is_not_taken(void **state)
{
    fixture *f = *state;
    engine_settings settings = settings_new("f16");
    settings.draft_tokens = GUESSES;
    engine *e = fixture_open(&settings);
    run r = { 0 };
    sequence_request request = f->requests[0];
    request.stop_ids[0] = 77;
    request.stop_id_count = 1;
    request.max_tokens = 6;
    sequence *s = fixture_start(e, request, &r);
    const int32_t right = f->truth[0].tokens[1];
    const int32_t guesses[] = { right, 77, right }, wild[] = { right, -1 };
    const int32_t wilder[] = { engine_facts_of(e)->vocabulary };
    assert_int_equal(engine_sequence_draft(e, s, guesses, 3), 0); // it does not generate yet
    fixture_step(e);
    assert_int_equal(r.count, 1);
    assert_int_equal(engine_sequence_draft(e, s, guesses, 3), 1);
    fixture_step(e);
    assert_int_equal(r.count, 3);
    assert_int_equal(engine_sequence_draft(e, s, wild, 2), 1);
    fixture_step(e);
    assert_int_equal(engine_sequence_draft(e, s, wilder, 1), 0);
    while (engine_has_work(e))
        fixture_step(e);
    engine_sequence_close(e, s, true);
    fixture_close(e);
}

// B076: guesses that a guide forbids take no row, and the answer is what it is without guesses.
static void b076_a_guide_cuts_guesses_and_its_answer_stays(void **state)
{
    fixture *f = *state;
    parity told;
    const sequence_guide guide = parity_guide(&told);
    engine_settings settings = settings_new("f16");
    settings.draft_tokens = GUESSES;
    engine *e = fixture_open(&settings);
    uint64_t random = seed_choose() << 32;
    for (int i = 0; i < CROWD; i++) {
        sequence_request request = f->requests[i];
        request.guide = &guide;
        request.ignore_eos = false;
        request.min_tokens = 10 * (i % 3);
        run truth = fixture_run_one(e, request), r = { 0 };
        sequence *s = fixture_start(e, request, &r);
        int64_t cut = 0, drafted = 0;
        while (engine_has_work(e)) {
            int32_t guesses[GUESSES] = { 0 }, count = truth.count - r.count - 1, fine;
            count = count < 0 || r.count == 0 ? 0 : count < GUESSES ? count : GUESSES;
            memcpy(guesses, truth.tokens + r.count, (size_t)count * sizeof guesses[0]);
            for (int32_t k = 0; k < count; k++) // some wrong, half of them forbidden
                if (random_mix(random++) % 4 == 0)
                    guesses[k] = TINY_MODEL_BYTE_FIRST + (int32_t)(random_mix(random++) % 256);
            fine = parity_follows(&told, guesses, count);
            int32_t taken = engine_sequence_draft(e, s, guesses, count);
            assert_true(taken <= fine);
            cut += fine < count;
            assert_int_equal(fixture_step(e).draft_rows, taken);
            drafted += taken;
        }
        engine_sequence_close(e, s, true);
        run_expect_equal(&r, &truth);
        assert_true(cut > 0 && drafted > 0);
    }
    fixture_close(e);
}

// Rows of this token hold no number, in the cache neither; guessed, it must not be felt.
static void a_wrong_guess_that_is_no_number_is_not_felt(void **state)
{
    const int32_t nan_token = 270, wrong[] = { 270, 270, 270, 270, 270, 270 };
    const char *const *types = fixture_choices("engine.kv_type");
    char file[64];
    (void)state;
    tiny_model o = tiny_model_default(31);
    o.nan_token = nan_token;
    tiny_model_temporary(&o, file);
    for (int i = 0; types[i]; i++) {
        engine_settings settings = fixture_settings(file);
        settings.kv_type = (char *)types[i];
        settings.draft_tokens = GUESSES;
        engine *e = fixture_open(&settings);
        for (int k = 0; k < 2; k++) {
            const sequence_request *request = &shared.requests[k];
            run truth = fixture_run_one(e, *request), r = { 0 };
            sequence *s = fixture_start(e, *request, &r);
            for (int step = 0; engine_has_work(e); step++) {
                int32_t guesses[2 * GUESSES];
                int right = step % 3;
                memcpy(guesses, truth.tokens + r.count, (size_t)right * sizeof guesses[0]);
                memcpy(guesses + right, wrong, sizeof wrong);
                engine_sequence_draft(e, s, guesses, GUESSES);
                fixture_step(e);
            }
            engine_sequence_close(e, s, true);
            run_expect_equal(&r, &truth);
        }
        fixture_close(e);
    }
    unlink(file);
}

// A sequence goes back and forth between texts; each time it draws what one that had this text from
// the beginning would.
static void a_rewound_sequence_draws_what_its_new_text_asks_for(void **state)
{
    fixture *f = *state;
    engine_settings settings = settings_new("f16");
    settings.prefix_reuse = true;
    engine *plain = fixture_open(&settings);
    settings.rewinds = true;
    engine *e = fixture_open(&settings);
    uint64_t random = 77;
    for (int i = 0; i < 2; i++) {
        int32_t tokens[PROMPT + ANSWER], prompt = f->requests[i].token_count;
        run r = { 0 };
        sequence *s = fixture_start(e, f->requests[i], &r);
        memcpy(tokens, f->prompts[i], sizeof f->prompts[i]);
        for (int round = 0; round < 12; round++) {
            int32_t count = 1 + (int32_t)(random_mix(random++) % (ANSWER - 12));
            for (int32_t k = 0; k < count; k++)
                if (round % 3 == 0 || k > count / 2)
                    tokens[prompt + k] =
                        TINY_MODEL_BYTE_FIRST + (int32_t)(random_mix(random++) % 256);
            assert_int_equal(engine_sequence_rewind(e, s, tokens, prompt + count), STATUS_OK);
            sequence_request again = f->requests[i];
            again.tokens = tokens;
            again.token_count = prompt + count;
            run expected = { .count = count }, got = { .count = count };
            sequence *other = fixture_start(plain, again, &expected);
            r = got;
            for (int step = 0; step < 8 && r.finish == SEQUENCE_UNFINISHED; step++) {
                fixture_step(e);
                fixture_step(plain);
            }
            engine_sequence_close(plain, other, true);
            run_expect_equal_from(&r, &expected, count);
            if (round % 2 && r.finish == SEQUENCE_UNFINISHED)
                engine_sequence_rest(e, s);
        }
        assert_int_equal(engine_sequence_rewind(e, s, tokens, prompt), STATUS_INVALID);
        tokens[prompt] = -1;
        assert_int_equal(engine_sequence_rewind(e, s, tokens, prompt + 1), STATUS_INVALID);
        tokens[0]++;
        assert_int_equal(engine_sequence_rewind(e, s, tokens, prompt + 1), STATUS_INVALID);
        engine_sequence_close(e, s, true);
    }
    fixture_close(plain);
    fixture_close(e);
}

// It leaves between a guess and its step.
static void a_guess_ends_with_its_sequence(void **state)
{
    fixture *f = *state;
    engine_settings settings = settings_new("f16");
    settings.draft_tokens = GUESSES;
    engine *e = fixture_open(&settings);
    run runs[2] = { 0 };
    sequence *first = fixture_start(e, f->requests[0], &runs[0]);
    sequence *second = fixture_start(e, f->requests[1], &runs[1]);
    fixture_step(e);
    assert_int_equal(engine_sequence_draft(e, first, f->truth[0].tokens + 1, 3), 3);
    engine_sequence_close(e, first, true);
    assert_int_equal(fixture_step(e).draft_rows, 0);
    assert_int_equal(engine_sequence_draft(e, second, f->truth[1].tokens + 2, GUESSES), GUESSES);
    engine_sequence_rest(e, second);
    assert_false(engine_has_work(e));
    engine_sequence_close(e, second, true);
    fixture_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b071_right_guesses_give_the_same_answer_in_fewer_steps),
        cmocka_unit_test(b071_wrong_guesses_leave_no_trace),
        cmocka_unit_test(b071_wrong_guesses_leave_no_trace_in_known_prefixes),
        cmocka_unit_test(b071_for_every_type_of_cache),
        cmocka_unit_test(guesses_are_cut_to_what_a_step_has_room_for),
        cmocka_unit_test(guesses_that_find_no_page_are_dropped),
        cmocka_unit_test(b072_b073_an_end_within_the_guesses_is_the_end),
        cmocka_unit_test(what_cannot_be_drawn_is_not_taken),
        cmocka_unit_test(b076_a_guide_cuts_guesses_and_its_answer_stays),
        cmocka_unit_test(a_wrong_guess_that_is_no_number_is_not_felt),
        cmocka_unit_test(a_rewound_sequence_draws_what_its_new_text_asks_for),
        cmocka_unit_test(a_guess_ends_with_its_sequence),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
