// limit: 120
// Guessing where something goes wrong: a draft model that fails, falls behind or does not fit, and
// guesses that turn wrong. One that stalls: test_draft_model.c.
#include "base/fault.h"
#include "base/random.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <setjmp.h>
#include <cmocka.h>

#include "../model/parity_guide.h"
#include "speculation_fixture.h"

static void fault_set(char *point)
{
    fault_settings faults = { { 1, &point } };
    assert_int_equal(fault_arm(&faults, NULL), STATUS_OK);
}

static draft_model_troubles troubles_of(const worker *w)
{
    speculation_stats s;
    speculation_stats_of(w->speculation, &s);
    return s.troubles;
}

// A worker whose draft model agrees and always guesses.
static worker worker_agreeing(void)
{
    worker w = worker_begin("model", 24);
    w.settings.model = path;
    w.settings.prompt_tokens = PROMPT;
    w.settings.fixed = 4;
    return w;
}

static void a_draft_model_that_draws_nothing_is_left(void **state)
{
    fixture *f = *state;
    worker w = worker_agreeing();
    speculation_stats before, after;
    worker_open(&w);
    fault_set("draft.fail:0.02:0:3");
    for (int round = 0; round < 4; round++)
        serve_expect_truth(&w, f, 0, CROWD);
    assert_int_equal(troubles_of(&w).failed, 3);
    speculation_stats_of(w.speculation, &before);
    assert_true(before.drafters[2].accepted > 0);
    fault_set("draft.fail");
    serve_expect_truth(&w, f, 0, CROWD);
    speculation_stats_of(w.speculation, &after);
    assert_int_equal(after.troubles.failed, 3 + CROWD);
    assert_int_equal(after.drafters[2].drafted, before.drafters[2].drafted);
    fault_disarm_all();
    serve_expect_truth(&w, f, 0, CROWD); // the next ones have shadows again
    speculation_stats_of(w.speculation, &after);
    assert_true(after.drafters[2].drafted > before.drafters[2].drafted);
    worker_end(&w);
}

// Its pages hold 64 tokens, the prompt and the answer 160.
static void a_draft_model_whose_context_ends_is_left(void **state)
{
    fixture *f = *state;
    worker w = worker_agreeing();
    speculation_stats s;
    w.settings.kv_bytes = 2 * (uint64_t)engine_facts_of(w.engine)->layout.page_bytes;
    worker_open(&w);
    serve_expect_truth(&w, f, 1, 1);
    speculation_stats_of(w.speculation, &s);
    assert_int_equal(s.troubles.pages, 1);
    assert_true(s.drafters[2].accepted > 0 && s.drafters[2].accepted < 64 - PROMPT);
    worker_end(&w);
}

// Long runs of other guesses were right meanwhile: it takes them in as it takes a prompt in.
static void a_shadow_far_behind_catches_up_in_pieces(void **state)
{
    fixture *f = *state;
    worker w = worker_begin("model", 24);
    engine_settings settings = fixture_settings(path);
    draft_model *m;
    int32_t tokens[PROMPT + ANSWER];
    draft guess;
    draft_request r = { .tokens = tokens, .count = PROMPT + 1, .limit = 4, .guess = &guess };
    settings.chunk_tokens = settings.step_tokens = 24;
    assert_int_equal(draft_model_open(&settings, path, w.engine, &m, NULL), STATUS_OK);
    memcpy(tokens, f->prompts[1], sizeof f->prompts[1]);
    memcpy(tokens + PROMPT, f->truth[1].tokens, ANSWER * sizeof tokens[0]);
    draft_model_begin(m, 0, &f->requests[1]);
    for (int i = 0; i < 2; i++) {
        assert_false(draft_model_ready(m, 0));
        assert_true(draft_model_work(m));
    }
    assert_true(draft_model_ready(m, 0) && !draft_model_work(m));
    draft_model_guess(m, &r, 1);
    assert_int_equal(guess.count, 4);
    r.count = PROMPT + 100;
    draft_model_guess(m, &r, 1);
    assert_true(guess.count == 0 && !draft_model_ready(m, 0));
    int32_t pieces = 0;
    while (draft_model_work(m))
        pieces++;
    assert_int_equal(pieces, 4); // of 24, from token 44 on
    draft_model_guess(m, &r, 1);
    assert_int_equal(guess.count, 4);
    assert_memory_equal(guess.tokens, f->truth[1].tokens + 100, 4 * sizeof tokens[0]);
    draft_model_end(m, 0);
    draft_model_close(m);
    fixture_close(w.engine);
}

// With a place of its own in the grammar a draft model that agrees is always right; without one its
// guesses are cut where the grammar forbids them, and it goes on.
static void b076_a_draft_model_follows_a_grammar(void **state)
{
    fixture *f = *state;
    parity told, other;
    const sequence_guide guide = parity_guide(&told), guide_of_draft = parity_guide(&other);
    for (int i = 0; i < 4; i++) {
        worker w = worker_agreeing();
        speculation_stats s;
        sequence_request request = f->requests[i / 2];
        request.guide = &guide;
        request.ignore_eos = false;
        request.min_tokens = 50; // it is complete from 40 on
        run truth = fixture_run_one(w.engine, request), r;
        w.guide = i % 2 ? &guide_of_draft : NULL;
        worker_open(&w);
        serve(&w, &request, 1, &r);
        run_expect_equal(&r, &truth);
        speculation_stats_of(w.speculation, &s);
        assert_int_equal(s.troubles.failed, 0);
        if (i % 2)
            assert_true(s.drafters[2].accepted > 20 && s.drafters[2].rejected == 0);
        worker_end(&w);
    }
}

// What follows is taught to the suffix drafter as an answer that ended.
static void teach(worker *w, const int32_t *tokens, int32_t count)
{
    int32_t slot = speculation_begin(w->speculation, &shared.requests[1], "");
    speculation_end(w->speculation, slot, tokens, 1, count);
}

// From a token on, another one was seen behind each of an answer, so that guesses are there all the
// time and always wrong.
static void teach_wrong(worker *w, const int32_t *answer, int32_t from)
{
    const int32_t lead = 14;
    for (int32_t i = from; i < ANSWER; i++) {
        int32_t tokens[32];
        memcpy(tokens, answer + i - lead, (size_t)lead * sizeof tokens[0]);
        for (int32_t k = 0; k < 8; k++)
            tokens[lead + k] = TINY_MODEL_BYTE_FIRST + (answer[i] + 7 + k) % 256;
        teach(w, tokens, lead + 8);
    }
}

// The first half of an answer is known by heart, the second half as something else.
static void guesses_that_turn_wrong_end_within_32_steps(void **state)
{
    fixture *f = *state;
    const int32_t *answer = f->truth[1].tokens, half = ANSWER / 2;
    worker w = worker_begin("suffix", 24);
    w.base_us = 750;
    w.row_us = 250;
    w.settings.probe_percent = 25;
    worker_open(&w);
    for (int round = 0; round < 8; round++) { // others are guessed right, and costs are known
        serve_expect_truth(&w, f, 3, 1);
        serve_expect_truth(&w, f, 5, 1);
    }
    w.settings.probe_percent = 0;
    teach(&w, answer, half);
    teach_wrong(&w, answer, half);
    speculation_stats before, after;
    speculation_stats_of(w.speculation, &before);
    w.drawn = w.last_drawn = 0;
    serve_expect_truth(&w, f, 1, 1);
    speculation_stats_of(w.speculation, &after);
    assert_true(after.drafters[1].accepted >= before.drafters[1].accepted + 20);
    assert_true(after.drafters[1].rejected > before.drafters[1].rejected);
    print_message("guesses ended %lld tokens behind the turn\n", (long long)w.last_drawn - half);
    assert_true(w.last_drawn <= half + 32);
    worker_end(&w);
}

// A wrong guess costs little, and crowds of all sizes come, so that it is often not known what one
// costs: still no more steps try it than may.
static void probes_are_as_rare_as_was_asked_for(void **state)
{
    fixture *f = *state;
    for (int64_t percent = 0; percent <= 4; percent += percent + 1) {
        worker w = worker_begin("suffix", 24);
        speculation_stats s;
        w.base_us = 1000;
        w.row_us = 10;
        w.settings.probe_percent = percent;
        worker_open(&w);
        for (int round = 0; round < 18; round++) {
            for (int i = 0; i < CROWD; i++)
                teach_wrong(&w, f->truth[i].tokens, 14);
            serve_expect_truth(&w, f, 0, 1 + round % CROWD);
        }
        speculation_stats_of(w.speculation, &s);
        uint64_t steps = s.steps_on + s.steps_off;
        print_message("%d percent: %llu of %llu steps\n", (int)percent,
                      (unsigned long long)s.steps_probing, (unsigned long long)steps);
        assert_true(steps > 1000 && (s.steps_probing > 0) == (percent > 0));
        assert_true(100 * s.steps_probing <= 100 * PROBES_FIRST + (uint64_t)percent * steps);
        worker_end(&w);
    }
}

// A synthetic drafter: each token is right with a known chance, and the engine verifies.
static void alpha_of_a_stream_is_within_two_hundredths(void **state)
{
    fixture *f = *state;
    const double known[] = { 0.3, 0.6, 0.9 };
    engine_settings settings = fixture_settings(path);
    settings.draft_tokens = 6;
    engine *e = fixture_open(&settings);
    uint64_t random = 1;
    for (int k = 0; k < 3; k++) {
        acceptance a = acceptance_begin(1e9);
        for (int i = 0; a.accepted + a.rejected < 6000; i = (i + 1) % CROWD) {
            run r = { 0 };
            sequence *s = fixture_start(e, f->requests[i], &r);
            while (engine_has_work(e)) {
                int32_t tokens[6], drafted, accepted, count = 0;
                for (; count < 6 && r.count + count < ANSWER; count++) {
                    int32_t right = f->truth[i].tokens[r.count + count];
                    bool wrong = random_unit(random_mix(random++)) >= known[k];
                    tokens[count] = wrong ? (right + 1) % tiny_model_vocabulary() : right;
                }
                engine_sequence_draft(e, s, tokens, count);
                fixture_step(e);
                sequence_drafted(s, &drafted, &accepted);
                acceptance_add(&a, drafted, accepted);
            }
            engine_sequence_close(e, s, true);
            run_expect_equal(&r, &f->truth[i]);
        }
        double alpha = acceptance_alpha(&a, 0, 0);
        print_message("alpha %.1f is measured as %.4f\n", known[k], alpha);
        assert_true(fabs(alpha - known[k]) < 0.02);
    }
    fixture_close(e);
}

static void refusal_expect(worker *w, const char *sentence)
{
    engine_settings settings = fixture_settings(path);
    error failure = { 0 };
    assert_int_not_equal(
        speculation_open(&w->settings, &settings, w->engine, &w->speculation, &failure), STATUS_OK);
    if (!strstr(failure.text, sentence))
        fail_msg("%s", failure.text);
}

// B075: what is missing, broken or speaks another language is refused at the start, by name.
static void b075_unfit_draft_models_are_refused(void **state)
{
    (void)state;
    worker w = worker_begin("model", 24);
    char bad[64], command[200];
    w.settings.model = "";
    refusal_expect(&w, "speculate.model must be the path");
    w.settings.layers = 5;
    refusal_expect(&w, "5 layers are wanted; the model has 4");
    w.settings.model = other_path;
    refusal_expect(&w, "only one of them");
    w.settings.layers = 0;
    w.settings.model = "/nowhere/draft.gguf";
    refusal_expect(&w, "/nowhere/draft.gguf");
    tiny_model o = tiny_model_default(3);
    tiny_model_temporary(&o, bad);
    snprintf(command, sizeof command, "sed -i 's/<|im_end|>/<|im_END|>/g' %s", bad);
    assert_int_equal(system(command), 0);
    w.settings.model = bad;
    refusal_expect(&w, "its token 2 is \"<|im_END|>\"");
    assert_int_equal(truncate(bad, 3000), 0);
    refusal_expect(&w, bad);
    unlink(bad);
    fixture_close(w.engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_draft_model_that_draws_nothing_is_left),
        cmocka_unit_test(a_draft_model_whose_context_ends_is_left),
        cmocka_unit_test(a_shadow_far_behind_catches_up_in_pieces),
        cmocka_unit_test(b076_a_draft_model_follows_a_grammar),
        cmocka_unit_test(guesses_that_turn_wrong_end_within_32_steps),
        cmocka_unit_test(probes_are_as_rare_as_was_asked_for),
        cmocka_unit_test(alpha_of_a_stream_is_within_two_hundredths),
        cmocka_unit_test(b075_unfit_draft_models_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
