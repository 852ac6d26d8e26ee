// limit: 120
// Guessing as a decode worker does it, around a real engine: no answer changes, it goes on and off
// as it pays, and what it says of itself is true.
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/utf8.h"

#include "speculation_fixture.h"

static void b071_answers_are_the_same_with_every_drafter(void **state)
{
    fixture *f = *state;
    const char *const *names = speculation_config_section.keys[0].among;
    for (int i = 0; names[i]; i++) {
        worker w = worker_begin(names[i], 24);
        worker_open(&w);
        for (int round = 0; round < 3; round++) {
            serve_expect_truth(&w, f, 0, CROWD);
            serve_expect_truth(&w, f, round, 1);
        }
        worker_end(&w);
    }
}

static void what_it_counts_adds_up(void **state)
{
    fixture *f = *state;
    worker w = worker_begin("suffix", 24);
    speculation_stats s;
    run runs[CROWD];
    w.settings.fixed = 8;
    worker_open(&w);
    for (int round = 0; round < 6; round++)
        serve(&w, f->requests, 1, runs);
    speculation_stats_of(w.speculation, &s);
    const speculation_drafter *d = &s.drafters[1];
    assert_string_equal(d->name, "suffix");
    assert_int_equal(s.drafters[0].drafted, 0);
    assert_true(d->drafted > 0 && d->accepted <= d->drafted);
    uint64_t tried = 0, right = 0;
    for (int i = 0; i < DRAFT_MAX; i++) {
        assert_true(d->right[i] <= d->tried[i]);
        tried += d->tried[i];
        right += d->right[i];
    }
    assert_true(right == d->accepted && tried == d->accepted + d->rejected);
    assert_true(d->low <= d->alpha && d->alpha <= d->high);
    // The answer was given before, so from the second time on it is known by heart.
    assert_true(d->alpha > 0.9);
    worker_end(&w);
}

// Every other answer is of the batch class. Each step of each answer is counted once, in its class.
static void what_it_counts_by_class_adds_up(void **state)
{
    fixture *f = *state;
    worker w = worker_begin("auto", 24);
    sequence_request requests[CROWD];
    speculation_stats s;
    run runs[CROWD];
    uint64_t rows = 0, drafted = 0, accepted = 0, steps = 0;
    worker_open(&w);
    for (int i = 0; i < CROWD; i++) {
        requests[i] = f->requests[i];
        requests[i].class = i % 2 ? SEQUENCE_BATCH : SEQUENCE_INTERACTIVE;
    }
    for (int round = 0; round < 4; round++)
        serve(&w, requests, CROWD, runs);
    speculation_stats_of(w.speculation, &s);
    for (int c = 0; c < SEQUENCE_CLASSES; c++) {
        const speculation_class *of = &s.classes[c];
        double sum = 0;
        for (int k = 0; k < GUESS_STATES; k++) {
            rows += of->rows[k];
            sum += of->shares[k];
        }
        for (int d = 0; d < SPECULATION_DRAFTERS; d++) {
            drafted += of->drafters[d].drafted;
            accepted += of->drafters[d].accepted;
            assert_true(of->drafters[d].low <= of->drafters[d].alpha);
            assert_true(of->drafters[d].break_even == s.drafters[d].break_even);
        }
        assert_true(fabs(sum - 1) < 1e-9);
        assert_true(of->tokens_per_step >= 1 && of->tokens_per_s > 0);
        assert_true(of->gained_per_s < of->tokens_per_s);
    }
    for (int d = 0; d < SPECULATION_DRAFTERS; d++) {
        drafted -= s.drafters[d].drafted;
        accepted -= s.drafters[d].accepted;
        steps += s.drafters[d].accepted;
    }
    assert_true(drafted == 0 && accepted == 0);
    // All tokens but the first one of each answer are drawn by such a row or are right guesses.
    assert_int_equal(rows + steps, 4 * CROWD * (ANSWER - 1));
    worker_end(&w);
}

static void its_sentences_say_why(void **state)
{
    (void)state;
    speculation_stats s = { .batch = 16, .drafter_count = 3 };
    speculation_class *c = &s.classes[SEQUENCE_BATCH];
    char text[SPECULATION_SENTENCE_MAX];
    for (int i = 0; i < SPECULATION_DRAFTERS; i++)
        c->drafters[i] = (speculation_drafter){ .name = i ? "suffix" : "ngram", .draft = "" };
    speculation_class_sentence(&s, SEQUENCE_BATCH, text);
    assert_string_equal(text, "");
    *c = (speculation_class){ .tokens_per_step = 1, .now = GUESS_BELOW };
    c->drafters[2] = (speculation_drafter){ .name = "model", .draft = "small" };
    c->drafter = 2;
    const struct {
        double alpha, break_even;
        guess_state now;
        const char *sentence;
    } cases[] = {
        { 0.48, 0.71, GUESS_BELOW,
          "off: of 100 guesses from small, 48 are right (alpha 0.48); at batch 16 (answers in a "
          "step) 71 are needed to pay for checking them (break-even 0.71; rule of thumb 0.6)" },
        { 0.706, 0.714, GUESS_BELOW, // not "71 are right, 71 are needed"
          "off: of 100 guesses from small, 71 are right (alpha 0.71); at batch 16 (answers in a "
          "step) 72 are needed to pay for checking them (break-even 0.71; rule of thumb 0.6)" },
        { 0.48, 1, GUESS_BELOW,
          "off: of 100 guesses from small, 48 are right (alpha 0.48); at batch 16 (answers in a "
          "step) not even 100 pay for checking them (rule of thumb 0.6)" },
        { 0.72, 0.71, GUESS_BELOW,
          "off now: of 100 guesses from small, 72 are right (alpha 0.72); at batch 16 (answers in "
          "a step) about 71 are needed, more or less by answer" },
        { 0.72, 0.71, GUESS_PROMPTS,
          "off for now: prompts are computed in the same steps, and beside them nothing is "
          "guessed" },
        { 0.61, 0.71, GUESS_ON,
          "on for the surest: of 100 guesses from small, 61 are right (alpha 0.61); for all, 71 "
          "are needed at batch 16; 2.50 tokens a step, 40.0 tokens/s instead of 25.0" },
        { 0.81, 0.71, GUESS_ON,
          "on: of 100 guesses from small, 81 are right (alpha 0.81); at batch 16 (answers in a "
          "step) 71 are needed; 2.50 tokens a step, 40.0 tokens/s instead of 25.0" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        c->alpha = cases[i].alpha;
        c->break_even = cases[i].break_even;
        c->now = cases[i].now;
        c->tokens_per_step = 2.5;
        c->tokens_per_s = 40;
        c->gained_per_s = 15;
        speculation_class_sentence(&s, SEQUENCE_BATCH, text);
        assert_string_equal(text, cases[i].sentence);
    }
    for (int k = 0; k < GUESS_STATES; k++)
        assert_true(strlen(guess_state_name((guess_state)k)) < 24);
}

// However long the numbers and the name, which may be cut within a letter.
static void its_sentences_are_whole(void **state)
{
    (void)state;
    const double alphas[][2] = { { 1, 0.995 }, { 0.1, 0.9 }, { 0.1, 1 }, { 1, 0.9 } };
    speculation_stats s = { .batch = COST_ROWS_MAX, .drafter_count = 3 };
    speculation_class *c = &s.classes[SEQUENCE_BATCH];
    *c = (speculation_class){ .tokens_per_step = DRAFT_MAX + 1,
                              .tokens_per_s = 99999,
                              .drafter = 2 };
    c->drafters[2] =
        (speculation_drafter){ .name = "model", .draft = "xäääääääääääääääääääääääääää" };
    for (int k = 0; k < GUESS_STATES; k++)
        for (int i = 0; i < 4; i++) {
            char text[SPECULATION_SENTENCE_MAX];
            c->now = (guess_state)k;
            c->alpha = alphas[i][0];
            c->break_even = alphas[i][1];
            speculation_class_sentence(&s, SEQUENCE_BATCH, text);
            assert_true(strlen(text) < sizeof text - 1);
            for (size_t at = 0, size; text[at] != '\0'; at += size) {
                size = utf8_sequence_size(text + at, strlen(text + at));
                assert_true(size > 0);
            }
        }
}

static void an_answer_that_was_given_before_takes_fewer_steps(void **state)
{
    fixture *f = *state;
    worker w = worker_begin("suffix", 24);
    run r;
    speculation_stats first, last;
    w.settings.fixed = 8;
    worker_open(&w);
    serve(&w, f->requests + 1, 1, &r);
    speculation_stats_of(w.speculation, &first);
    for (int i = 0; i < 12; i++)
        serve(&w, f->requests + 1, 1, &r);
    speculation_stats_of(w.speculation, &last);
    assert_true(last.drafters[1].accepted > first.drafters[1].accepted + ANSWER);
    char text[200];
    speculation_sentence(w.speculation, text);
    print_message("%s\n", text);
    worker_end(&w);
}

static void without_drafters_or_room_it_is_off(void **state)
{
    fixture *f = *state;
    const struct {
        const char *drafter;
        int32_t tokens;
    } cases[] = { { "off", 24 }, { "auto", 0 } };
    for (int i = 0; i < 2; i++) {
        worker w = worker_begin(cases[i].drafter, cases[i].tokens);
        speculation_stats s;
        char text[200];
        worker_open(&w);
        serve_expect_truth(&w, f, 0, 1);
        speculation_stats_of(w.speculation, &s);
        assert_true(s.steps_on == 0 && s.steps_off > 0 && s.drafter_count == 0);
        speculation_sentence(w.speculation, text);
        assert_string_equal(text, "off: no drafter is configured");
        worker_end(&w);
    }
}

static void no_more_slots_than_sequences(void **state)
{
    (void)state;
    worker w = worker_begin("ngram", 24);
    const sequence_request *request = &shared.requests[0];
    worker_open(&w);
    for (int i = 0; i < engine_facts_of(w.engine)->max_sequences; i++)
        assert_int_equal(speculation_begin(w.speculation, request, ""), i);
    assert_int_equal(speculation_begin(w.speculation, request, ""), -1);
    speculation_end(w.speculation, -1, NULL, 0, 0);
    speculation_end(w.speculation, 3, shared.prompts[0], 10, PROMPT);
    assert_int_equal(speculation_begin(w.speculation, request, ""), 3);
    worker_end(&w);
}

// One answer is known by heart and guessed for, another one takes a row of the same steps. A step
// of two rows takes 1,250 us, and each guess 250 more.
static void the_stricter_class_limits_a_mixed_step(void **state)
{
    fixture *f = *state;
    const sequence_class I = SEQUENCE_INTERACTIVE, B = SEQUENCE_BATCH;
    const struct {
        sequence_class guessed, other;
        int64_t step_us, step_batch_us;
        int32_t guesses; // at most; 0: as many as there may be
        double longest_us;
    } cases[] = {
        { B, I, 2000, 100000, 3, 2000 }, { I, B, 2000, 100000, 3, 2000 },
        { I, I, 2000, 100000, 3, 2000 }, { B, I, 100000, 2000, 3, 2000 },
        { B, B, 100000, 2000, 3, 2000 }, { B, I, 0, 2000, 3, 2000 },
        { B, B, 2000, 100000, 0, 0 },    { B, I, 0, 0, 0, 0 },
        { B, I, 100, 100000, 2, 1750 }, // 1.4 times what it takes without
        { B, I, 2249, 100000, 3, 2000 }, { B, I, 2250, 100000, 4, 2250 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const drafters[] = { "", "off" };
        sequence_request requests[] = { f->requests[1], f->requests[0] };
        worker w = worker_begin("suffix", 24);
        run runs[2];
        w.base_us = 750;
        w.row_us = 250;
        w.settings.probe_percent = 25;
        w.settings.step_us = cases[i].step_us;
        w.settings.step_batch_us = cases[i].step_batch_us;
        requests[0].class = cases[i].guessed;
        requests[1].class = cases[i].other;
        worker_open(&w);
        for (int round = 0; round < 3; round++)
            serve(&w, requests, 1, runs); // alone there is no limit
        w.drafters = drafters;
        w.most_guesses = 0;
        w.longest_us = 0;
        for (int round = 0; round < 4; round++)
            serve(&w, requests, 2, runs);
        run_expect_equal(&runs[0], &f->truth[1]);
        run_expect_equal(&runs[1], &f->truth[0]);
        if (cases[i].guesses > 0 &&
            (w.most_guesses != cases[i].guesses || w.longest_us > cases[i].longest_us))
            fail_msg("case %zu: %d guesses, %.0f us", i, w.most_guesses, w.longest_us);
        if (cases[i].guesses == 0)
            assert_true(w.most_guesses > 4 && w.longest_us > 2250);
        worker_end(&w);
    }
}

// Nobody else needs to be told what a grammar allows.
static void a_guide_is_wanted_only_for_the_draft_model(void **state)
{
    (void)state;
    const struct {
        const char *worker, *request;
        bool guided;
    } cases[] = {
        { "auto", "", true },        { "auto", "model", true }, { "auto", "ngram", false },
        { "auto", "off", false },    { "model", "", true },     { "ngram", "", false },
        { "ngram", "model", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        worker w = worker_begin(cases[i].worker, 24);
        worker_open(&w);
        assert_int_equal(speculation_guided(w.speculation, cases[i].request), cases[i].guided);
        worker_end(&w);
    }
    worker w = worker_begin("auto", 0); // no room for guesses
    worker_open(&w);
    assert_false(speculation_guided(w.speculation, ""));
    worker_end(&w);
}

// The model guesses for itself with the same noise: nothing is ever wrong.
static void a_draft_model_that_agrees_is_always_right(void **state)
{
    fixture *f = *state;
    worker w = worker_begin("model", 24);
    speculation_stats s;
    w.settings.model = path;
    w.settings.prompt_tokens = PROMPT;
    w.settings.fixed = 3;
    worker_open(&w);
    for (int round = 0; round < 2; round++)
        serve_expect_truth(&w, f, 0, CROWD);
    speculation_stats_of(w.speculation, &s);
    const speculation_drafter *d = &s.drafters[2];
    assert_string_equal(d->name, "model");
    assert_true(d->drafted > 0 && d->accepted == d->drafted && d->rejected == 0);
    worker_end(&w);
}

static void layers_of_the_model_itself_guess_too(void **state)
{
    fixture *f = *state;
    for (int layers = 1; layers <= 4; layers += 3) { // of four
        worker w = worker_begin("model", 24);
        speculation_stats s;
        w.settings.model = "";
        w.settings.layers = layers;
        w.settings.prompt_tokens = PROMPT;
        w.settings.fixed = 3;
        worker_open(&w);
        serve_expect_truth(&w, f, 0, CROWD);
        speculation_stats_of(w.speculation, &s);
        assert_true(s.drafters[2].drafted > 0);
        assert_true(layers < 4 || s.drafters[2].rejected == 0);
        worker_end(&w);
    }
}

static void one_that_disagrees_is_found_out(void **state)
{
    fixture *f = *state;
    worker w = worker_begin("model", 24);
    speculation_stats s;
    w.settings.fixed = 3;
    worker_open(&w);
    for (int round = 0; round < 2; round++)
        serve_expect_truth(&w, f, 0, 2);
    speculation_stats_of(w.speculation, &s);
    assert_true(s.drafters[2].drafted > 0 && s.drafters[2].alpha < 0.5);
    w.settings.fixed = 0; // it costs as much as the model itself: off, but for what may be lost
    uint64_t on = s.steps_on, off = s.steps_off;
    for (int round = 0; round < 4; round++)
        serve_expect_truth(&w, f, 0, 2);
    speculation_stats_of(w.speculation, &s);
    print_message("%d steps on, %d off\n", (int)(s.steps_on - on), (int)(s.steps_off - off));
    assert_true(s.steps_on >= s.steps_probing && s.steps_off > off);
    worker_end(&w);
}

// The pages of the small model are short: answers go on without its guesses.
static void sequences_without_a_shadow_are_served_all_the_same(void **state)
{
    fixture *f = *state;
    worker w = worker_begin("model", 24);
    speculation_stats s;
    w.settings.model = path;
    w.settings.kv_bytes = 5 * (uint64_t)engine_facts_of(w.engine)->layout.page_bytes;
    w.settings.prompt_tokens = PROMPT;
    worker_open(&w);
    serve_expect_truth(&w, f, 0, CROWD);
    speculation_stats_of(w.speculation, &s);
    assert_true(s.troubles.pages > 0);
    assert_true(s.classes[SEQUENCE_INTERACTIVE].rows[GUESS_PAGES] > 0);
    worker_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b071_answers_are_the_same_with_every_drafter),
        cmocka_unit_test(what_it_counts_adds_up),
        cmocka_unit_test(what_it_counts_by_class_adds_up),
        cmocka_unit_test(its_sentences_say_why),
        cmocka_unit_test(its_sentences_are_whole),
        cmocka_unit_test(an_answer_that_was_given_before_takes_fewer_steps),
        cmocka_unit_test(without_drafters_or_room_it_is_off),
        cmocka_unit_test(no_more_slots_than_sequences),
        cmocka_unit_test(the_stricter_class_limits_a_mixed_step),
        cmocka_unit_test(a_guide_is_wanted_only_for_the_draft_model),
        cmocka_unit_test(a_draft_model_that_agrees_is_always_right),
        cmocka_unit_test(layers_of_the_model_itself_guess_too),
        cmocka_unit_test(one_that_disagrees_is_found_out),
        cmocka_unit_test(sequences_without_a_shadow_are_served_all_the_same),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
