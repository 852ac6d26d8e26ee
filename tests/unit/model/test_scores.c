// How likely the tokens of a prompt were: the same numbers as when they were drawn, however the
// prompt is cut and whatever else runs.
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine_fixture.h"

#define PROMPT 70
#define ANSWER 50
#define ALL (PROMPT + ANSWER)

typedef struct scored {
    run drawn;
    float logprobs[ALL]; // [position]
    int32_t top[ALL];
    int32_t next; // position that comes next
} scored;

static char path[64];
static int32_t text[ALL]; // a prompt and its greedy answer
static run truth;         // that answer's
static scored first;      // scores of the text, found with chunks of 64

static void step(engine *e)
{
    engine_report report;
    engine_step(e, &report);
    for (int32_t i = 0; i < report.score_count; i++) {
        const engine_score *score = &report.scores[i];
        scored *s = score->owner;
        assert_int_equal(score->position, s->next);
        assert_int_equal(score->sampled.token, text[score->position]);
        s->logprobs[s->next] = score->sampled.logprob;
        s->top[s->next++] = score->sampled.top_tokens[0];
    }
    for (int32_t i = 0; i < report.token_count; i++)
        run_add(report.tokens[i].owner, &report.tokens[i]); // `drawn` is the first member
}

static sequence *begin(engine *e, int32_t count, scored *s)
{
    error failure = { 0 };
    sequence *opened = NULL;
    sequence_request r = fixture_request(text, count, 1);
    *s = (scored){ .next = 1 };
    r.scores = true;
    r.sampling.top_count = 2;
    r.owner = s;
    if (engine_sequence_open(e, &r, &opened, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
    engine_sequence_start(e, opened);
    return opened;
}

static engine_settings settings_new(void)
{
    engine_settings settings = fixture_settings(path);
    settings.score_tokens = 32;
    return settings;
}

static scored score_one(const engine_settings *settings)
{
    scored s;
    engine *e = fixture_open(settings);
    sequence *q = begin(e, ALL, &s);
    while (engine_has_work(e))
        step(e);
    assert_int_equal(s.next, ALL);
    assert_int_equal(s.drawn.count, 1);
    engine_sequence_close(e, q, true);
    fixture_close(e);
    return s;
}

static int setup(void **state)
{
    (void)state;
    tiny_model o = tiny_model_default(5);
    tiny_model_temporary(&o, path);
    fixture_tokens(text, PROMPT, 3);
    engine_settings settings = settings_new();
    engine *e = fixture_open(&settings);
    truth = fixture_run_one(e, fixture_request(text, PROMPT, ANSWER));
    fixture_close(e);
    assert_int_equal(truth.count, ANSWER);
    memcpy(text + PROMPT, truth.tokens, ANSWER * sizeof text[0]);
    first = score_one(&settings);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

static void scores_are_the_bits_of_the_draw(void **state)
{
    (void)state;
    assert_memory_equal(first.logprobs + PROMPT, truth.logprobs, ANSWER * sizeof(float));
    for (int i = PROMPT; i < ALL; i++)
        assert_int_equal(first.top[i], text[i]); // it was drawn greedily
    for (int i = 1; i < ALL; i++)
        assert_true(first.logprobs[i] < 0 && isfinite(first.logprobs[i]));
}

static void chunks_and_room_change_no_bit(void **state)
{
    (void)state;
    static const int64_t cuts[][2] = { { 1, 32 }, { 7, 32 }, { 64, 1 }, { 64, 5 }, { 256, 4096 } };
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        engine_settings settings = settings_new();
        settings.chunk_tokens = cuts[i][0];
        settings.score_tokens = cuts[i][1];
        scored s = score_one(&settings);
        assert_memory_equal(s.logprobs, first.logprobs, sizeof s.logprobs);
        assert_memory_equal(s.top, first.top, sizeof s.top);
    }
}

// The text is known already, others score theirs and generate beside it.
static void known_pages_and_company_change_no_bit(void **state)
{
    (void)state;
    engine_settings settings = settings_new();
    settings.prefix_reuse = true;
    engine *e = fixture_open(&settings);
    scored *list = calloc(6, sizeof *list);
    sequence *sequences[6];
    run warm = fixture_run_one(e, fixture_request(text, ALL, 2));
    assert_int_equal(warm.count, 2);
    for (int i = 0; i < 6; i++)
        sequences[i] = begin(e, ALL - i * 9, &list[i]);
    while (engine_has_work(e))
        step(e);
    for (int i = 0; i < 6; i++) {
        int32_t count = ALL - i * 9;
        assert_int_equal(sequence_reused(sequences[i]), 0);
        assert_int_equal(list[i].next, count);
        assert_memory_equal(list[i].logprobs, first.logprobs, (size_t)count * sizeof(float));
        engine_sequence_close(e, sequences[i], true);
    }
    run after = fixture_run_one(e, fixture_request(text, PROMPT, ANSWER));
    assert_memory_equal(after.hashes, truth.hashes, ANSWER * sizeof after.hashes[0]);
    free(list);
    fixture_close(e);
}

static void they_are_refused_where_there_is_no_room(void **state)
{
    (void)state;
    engine_settings settings = settings_new();
    settings.score_tokens = 0;
    engine *e = fixture_open(&settings);
    sequence_request r = fixture_request(text, ALL, 1);
    sequence *opened;
    error failure;
    r.scores = true;
    assert_int_equal(engine_sequence_open(e, &r, &opened, &failure), STATUS_UNSUPPORTED);
    assert_non_null(strstr(failure.text, "engine.score_tokens"));
    fixture_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_the_bits_of_the_draw),
        cmocka_unit_test(chunks_and_room_change_no_bit),
        cmocka_unit_test(known_pages_and_company_change_no_bit),
        cmocka_unit_test(they_are_refused_where_there_is_no_room),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
