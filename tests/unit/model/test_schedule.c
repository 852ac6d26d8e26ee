// Facts about what a step computes: whose rows come first, how many, and who has to leave.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine_fixture.h"

#define LONG 900
#define SHORT 40

static char path[64];
static int32_t text[2000];

static int setup(void **state)
{
    (void)state;
    tiny_model o = tiny_model_default(5);
    tiny_model_temporary(&o, path);
    fixture_tokens(text, 2000, 3);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

static sequence_request request_of(int32_t prompt, int32_t answer, sequence_class class)
{
    sequence_request r = fixture_request(text, prompt, answer);
    r.logits_hash = false;
    r.class = class;
    return r;
}

static sequence *start(engine *e, int32_t prompt, int32_t answer, sequence_class class, run *r)
{
    *r = (run){ 0 };
    return fixture_start(e, request_of(prompt, answer, class), r);
}

// Let what was started compute its prompt.
static void steps_until_first(engine *e, const run *r)
{
    while (r->count == 0)
        fixture_step(e);
}

// Close all and the engine.
static void finish(engine *e, sequence **sequences, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        engine_sequence_close(e, sequences[i], true);
    fixture_close(e);
}

static void a_step_has_one_row_of_each_answer_and_few_of_prompts(void **state)
{
    (void)state;
    engine_settings settings = fixture_settings(path);
    settings.mixed_tokens = 24;
    engine *e = fixture_open(&settings);
    run runs[4];
    sequence *sequences[4];
    for (int i = 0; i < 3; i++) {
        sequences[i] = start(e, SHORT, 100, SEQUENCE_INTERACTIVE, &runs[i]);
        steps_until_first(e, &runs[i]);
    }
    sequences[3] = start(e, LONG, 4, SEQUENCE_INTERACTIVE, &runs[3]);
    for (int32_t computed = 0; computed < LONG; computed += 24) {
        engine_report report = fixture_step(e);
        assert_int_equal(report.decode_rows, 3);
        assert_int_equal(report.prefill_rows, LONG - computed < 24 ? LONG - computed : 24);
        assert_int_equal(report.token_count, 3 + (computed + 24 >= LONG));
    }
    finish(e, sequences, 4);
}

static void a_prompt_alone_has_the_whole_step(void **state)
{
    (void)state;
    engine_settings settings = fixture_settings(path);
    settings.mixed_tokens = 24;
    settings.mixed_step_us = 1;
    settings.chunk_tokens = settings.step_tokens = 300;
    engine *e = fixture_open(&settings);
    run r;
    sequence *s = start(e, LONG, 4, SEQUENCE_INTERACTIVE, &r);
    for (int i = 0; i < 3; i++)
        assert_int_equal(fixture_step(e).prefill_rows, 300);
    finish(e, &s, 1);
}

// A step that can never be short enough takes eight rows of the prompt, and the prompt ends.
static void a_prompt_gets_on_where_the_time_is_up_already(void **state)
{
    (void)state;
    engine_settings settings = fixture_settings(path);
    settings.mixed_step_us = 1;
    engine *e = fixture_open(&settings);
    run runs[2];
    sequence *sequences[2];
    sequences[0] = start(e, SHORT, 200, SEQUENCE_INTERACTIVE, &runs[0]);
    for (int i = 0; i < 10; i++)
        fixture_step(e);
    sequences[1] = start(e, 160, 4, SEQUENCE_INTERACTIVE, &runs[1]);
    for (int i = 0; i < 20; i++) {
        engine_report report = fixture_step(e);
        assert_int_equal(report.decode_rows, 1);
        assert_int_equal(report.prefill_rows, 8);
        assert_true(report.predicted_us > 0);
    }
    assert_int_equal(runs[1].count, 1);
    finish(e, sequences, 2);
}

static void a_short_prompt_overtakes_a_long_one(void **state)
{
    (void)state;
    engine_settings settings = fixture_settings(path);
    settings.step_tokens = settings.chunk_tokens = 64;
    engine *e = fixture_open(&settings);
    run runs[2];
    sequence *sequences[2];
    sequences[0] = start(e, LONG, 4, SEQUENCE_INTERACTIVE, &runs[0]);
    fixture_step(e);
    sequences[1] = start(e, SHORT, 1, SEQUENCE_INTERACTIVE, &runs[1]);
    fixture_step(e);
    assert_int_equal(runs[1].count, 1);
    assert_int_equal(sequence_computed(sequences[0]), 64 + 64 - SHORT);
    finish(e, sequences, 2);
}

// Short prompts come for ever; the long one is done after at most its own length of them.
static void a_long_prompt_is_not_overtaken_for_ever(void **state)
{
    (void)state;
    engine_settings settings = fixture_settings(path);
    settings.step_tokens = settings.chunk_tokens = SHORT;
    engine *e = fixture_open(&settings);
    run first, other;
    sequence *large = start(e, LONG, 4, SEQUENCE_INTERACTIVE, &first);
    int32_t others = 0;
    sequence *small = start(e, SHORT, 1, SEQUENCE_INTERACTIVE, &other);
    while (first.count == 0) {
        fixture_step(e);
        if (other.count == 0)
            continue;
        others += SHORT;
        engine_sequence_close(e, small, false);
        small = start(e, SHORT, 1, SEQUENCE_INTERACTIVE, &other);
    }
    assert_in_range(others, LONG / 2, LONG + SHORT);
    engine_sequence_close(e, small, false);
    finish(e, &large, 1);
}

static void interactive_prompts_come_first_and_batch_ones_keep_a_share(void **state)
{
    (void)state;
    engine_settings settings = fixture_settings(path);
    settings.step_tokens = settings.chunk_tokens = 100;
    settings.batch_share = 10;
    engine *e = fixture_open(&settings);
    run runs[2];
    sequence *sequences[2];
    sequences[0] = start(e, SHORT * 3, 4, SEQUENCE_BATCH, &runs[0]);
    sequences[1] = start(e, LONG, 4, SEQUENCE_INTERACTIVE, &runs[1]);
    for (int i = 1; i <= 5; i++) {
        assert_int_equal(fixture_step(e).prefill_rows, 100);
        assert_int_equal(sequence_computed(sequences[1]), 90 * i);
        assert_int_equal(sequence_computed(sequences[0]), 10 * i);
    }
    finish(e, sequences, 2);
}

static void the_share_of_the_batch_class_holds_where_the_time_is_up(void **state)
{
    (void)state;
    engine_settings settings = fixture_settings(path);
    settings.mixed_step_us = 1;
    settings.mixed_tokens = 40;
    settings.batch_share = 10;
    engine *e = fixture_open(&settings);
    run runs[3];
    sequence *sequences[3];
    sequences[0] = start(e, SHORT, 100, SEQUENCE_INTERACTIVE, &runs[0]);
    for (int i = 0; i < 10; i++)
        fixture_step(e);
    sequences[1] = start(e, SHORT, 4, SEQUENCE_BATCH, &runs[1]);
    sequences[2] = start(e, LONG, 4, SEQUENCE_INTERACTIVE, &runs[2]);
    for (int i = 1; i <= 5; i++) {
        fixture_step(e);
        assert_int_equal(sequence_computed(sequences[1]), 4 * i);
        assert_int_equal(sequence_computed(sequences[2]), 8 * i);
    }
    finish(e, sequences, 3);
}

// Five pages, four answers of one page each that all grow at the same step.
static void the_youngest_of_the_batch_class_leaves_first(void **state)
{
    (void)state;
    engine_settings settings = fixture_settings(path);
    engine *probe = fixture_open(&settings);
    settings.kv_bytes = 5 * (uint64_t)engine_facts_of(probe)->layout.page_bytes;
    fixture_close(probe);
    engine *e = fixture_open(&settings);
    run runs[4];
    sequence *sequences[4];
    const sequence_class classes[] = { SEQUENCE_BATCH, SEQUENCE_INTERACTIVE, SEQUENCE_BATCH,
                                       SEQUENCE_INTERACTIVE };
    for (int i = 0; i < 4; i++)
        sequences[i] = start(e, 20, 100, classes[i], &runs[i]);
    sequence *left[4];
    int32_t count = 0;
    while (count < 3 && engine_has_work(e)) {
        engine_report report = fixture_step(e);
        for (int32_t i = 0; i < report.preempted_count; i++)
            left[count++] = report.preempted[i];
    }
    assert_int_equal(count, 3);
    assert_ptr_equal(left[0], sequences[2]);
    assert_ptr_equal(left[1], sequences[0]);
    assert_ptr_equal(left[2], sequences[3]);
    while (engine_has_work(e))
        assert_int_equal(fixture_step(e).preempted_count, 0);
    assert_int_equal(runs[1].count, 100);
    finish(e, sequences, 4);
}

static void with_static_batching_nobody_joins_before_all_have_ended(void **state)
{
    (void)state;
    engine_settings settings = fixture_settings(path);
    settings.batching = "static";
    engine *e = fixture_open(&settings);
    run runs[4];
    sequence *sequences[4];
    sequences[0] = start(e, SHORT, 5, SEQUENCE_INTERACTIVE, &runs[0]);
    sequences[1] = start(e, SHORT, 12, SEQUENCE_INTERACTIVE, &runs[1]);
    fixture_step(e);
    sequences[2] = start(e, SHORT, 3, SEQUENCE_INTERACTIVE, &runs[2]);
    sequences[3] = start(e, SHORT, 3, SEQUENCE_INTERACTIVE, &runs[3]);
    while (runs[1].finish == SEQUENCE_UNFINISHED) {
        assert_int_equal(runs[2].count, 0);
        fixture_step(e);
    }
    assert_int_equal(runs[0].count, 5);
    assert_true(engine_has_work(e));
    while (engine_has_work(e))
        fixture_step(e);
    assert_int_equal(runs[2].count, 3);
    assert_int_equal(runs[3].count, 3);
    finish(e, sequences, 4);
}

// Ten pages; an answer of one page that may become four keeps three for itself.
static void what_runs_keeps_room_to_grow(void **state)
{
    (void)state;
    engine_settings settings = fixture_settings(path);
    engine *probe = fixture_open(&settings);
    settings.kv_bytes = 10 * (uint64_t)engine_facts_of(probe)->layout.page_bytes;
    fixture_close(probe);
    settings.growth_tokens = 96;
    engine *e = fixture_open(&settings);
    run runs[2];
    sequence *sequences[2], *refused;
    sequences[0] = start(e, 20, 200, SEQUENCE_INTERACTIVE, &runs[0]);
    steps_until_first(e, &runs[0]);
    sequence_request six = request_of(6 * 32 - 1, 1, SEQUENCE_INTERACTIVE), seven = six;
    seven.token_count = seven.prompt_count = 7 * 32 - 1;
    assert_int_equal(engine_sequence_open(e, &seven, &refused, NULL), STATUS_OVERLOADED);
    sequences[1] = fixture_start(e, six, &runs[1]);
    runs[1] = (run){ 0 };
    // Its own growth counts too: one token more of answer needs a page more.
    engine_sequence_close(e, sequences[1], true);
    six.max_tokens = 2;
    assert_int_equal(engine_sequence_open(e, &six, &refused, NULL), STATUS_OVERLOADED);
    // The last of all may take everything.
    engine_sequence_close(e, sequences[0], true);
    six = request_of(10 * 32 - 1, 1, SEQUENCE_INTERACTIVE);
    sequences[0] = fixture_start(e, six, &runs[0]);
    runs[0] = (run){ 0 };
    finish(e, sequences, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_has_one_row_of_each_answer_and_few_of_prompts),
        cmocka_unit_test(a_prompt_alone_has_the_whole_step),
        cmocka_unit_test(a_prompt_gets_on_where_the_time_is_up_already),
        cmocka_unit_test(a_short_prompt_overtakes_a_long_one),
        cmocka_unit_test(a_long_prompt_is_not_overtaken_for_ever),
        cmocka_unit_test(interactive_prompts_come_first_and_batch_ones_keep_a_share),
        cmocka_unit_test(the_share_of_the_batch_class_holds_where_the_time_is_up),
        cmocka_unit_test(the_youngest_of_the_batch_class_leaves_first),
        cmocka_unit_test(with_static_batching_nobody_joins_before_all_have_ended),
        cmocka_unit_test(what_runs_keeps_room_to_grow),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
