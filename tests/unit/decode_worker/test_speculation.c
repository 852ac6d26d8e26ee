// limit: 120
// Guessing as a decode worker does it, around a real engine: no answer changes, it goes on and off
// as it pays, and what it says of itself is true.
#include "decode_worker/speculate/speculation.h"

#include "base/fault.h"
#include "base/random.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <setjmp.h>
#include <cmocka.h>

#include "../model/engine_fixture.h"

#define PROMPT 40
#define ANSWER 120
#define CROWD 6

static char path[64], other_path[64]; // two models of one vocabulary

typedef struct fixture {
    int32_t prompts[CROWD][PROMPT];
    sequence_request requests[CROWD];
    run truth[CROWD];
} fixture;

static fixture shared;

static int setup(void **state)
{
    fixture *f = &shared;
    tiny_model o = tiny_model_default(17);
    tiny_model_temporary(&o, path);
    o.seed = 18;
    o.extra_rows = 9; // padding
    tiny_model_temporary(&o, other_path);
    engine_settings settings = fixture_settings(path);
    engine *e = fixture_open(&settings);
    for (int i = 0; i < CROWD; i++) {
        fixture_tokens(f->prompts[i], PROMPT, 3 + i % 3); // some ask the same
        f->requests[i] = i % 2 ? fixture_sampled(f->prompts[i], PROMPT, ANSWER, 9)
                               : fixture_request(f->prompts[i], PROMPT, ANSWER);
        f->truth[i] = fixture_run_one(e, f->requests[i]);
    }
    fixture_close(e);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    unlink(other_path);
    return 0;
}

typedef struct worker {
    engine *engine;
    bool steady;               // a step takes 1,000 us and for each further row 250
    int64_t drawn, last_drawn; // tokens, in all and by the last step that had guesses
    speculation_settings settings;
    speculation *speculation;
} worker;

// What the models of these tests cost says nothing: where guesses of the draft model are wanted,
// they are made whether they pay or not.
static worker worker_begin(const char *drafter, int32_t tokens)
{
    worker w = { .settings = { .drafter = (char *)drafter,
                               .model = strcmp(drafter, "ngram") == 0 ? "" : other_path,
                               .kv_bytes = 4 << 20,
                               .prompt_tokens = 16,
                               .tokens = 8,
                               .probe_percent = 10,
                               .memory_tokens = 32768 } };
    engine_settings settings = fixture_settings(path);
    settings.draft_tokens = tokens;
    w.engine = fixture_open(&settings);
    return w;
}

static void worker_open(worker *w)
{
    engine_settings settings = fixture_settings(path);
    error failure = { 0 };
    if (speculation_open(&w->settings, &settings, w->engine, &w->speculation, &failure) !=
        STATUS_OK)
        fail_msg("%s", failure.text);
}

static void worker_end(worker *w)
{
    speculation_close(w->speculation);
    fixture_close(w->engine);
}

// Serve requests together to their ends, as a decode worker would.
static void serve(worker *w, const sequence_request *requests, int32_t count, run *runs)
{
    sequence *sequences[CROWD];
    int32_t slots[CROWD];
    for (int32_t i = 0; i < count; i++) {
        runs[i] = (run){ 0 };
        sequences[i] = fixture_start(w->engine, requests[i], &runs[i]);
        slots[i] = speculation_begin(w->speculation, &requests[i], "");
    }
    while (engine_has_work(w->engine)) {
        speculation_item items[CROWD];
        int32_t running = 0;
        bool prompts = false;
        for (int32_t i = 0; i < count; i++) {
            if (runs[i].count > 0 && runs[i].finish == SEQUENCE_UNFINISHED)
                items[running++] = (speculation_item){ .sequence = sequences[i], .slot = slots[i] };
            prompts = prompts || runs[i].count == 0;
        }
        speculation_guess(w->speculation, w->engine, items, running, prompts);
        engine_report report = fixture_step(w->engine);
        if (w->steady) {
            report.duration_us = 750 + 250 * (uint64_t)report.rows;
            report.context_us = 0;
        }
        w->drawn += report.token_count;
        if (report.draft_rows > 0)
            w->last_drawn = w->drawn;
        speculation_learn(w->speculation, &report);
    }
    for (int32_t i = 0; i < count; i++) {
        int32_t tokens;
        const int32_t *all = sequence_tokens(sequences[i], &tokens);
        speculation_end(w->speculation, slots[i], all, PROMPT, tokens);
        engine_sequence_close(w->engine, sequences[i], true);
    }
}

// Serve `count` of the fixture's requests from `first` on; the answers are as without guesses.
static void serve_expect_truth(worker *w, const fixture *f, int32_t first, int32_t count)
{
    run runs[CROWD];
    serve(w, f->requests + first, count, runs);
    for (int32_t i = 0; i < count; i++)
        run_expect_equal(&runs[i], &f->truth[first + i]);
}

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
    speculation_drafter *d = &c->drafters[2];
    char text[SPECULATION_SENTENCE_MAX];
    for (int i = 0; i < SPECULATION_DRAFTERS; i++)
        c->drafters[i] = (speculation_drafter){ .name = i ? "suffix" : "ngram", .draft = "" };
    speculation_class_sentence(&s, SEQUENCE_BATCH, text);
    assert_string_equal(text, "");
    *c = (speculation_class){ .tokens_per_step = 1, .now = GUESS_BELOW };
    c->drafters[0] = (speculation_drafter){ .name = "ngram", .draft = "", .expected = 0.3 };
    *d = (speculation_drafter){
        .name = "model", .draft = "small", .expected = 0.48, .break_even = 0.71
    };
    const struct {
        double expected, break_even;
        guess_state now;
        const char *sentence;
    } cases[] = {
        { 0.48, 0.71, GUESS_BELOW,
          "off: alpha 0.48 < 0.71 needed at batch 16 (guesses from small; the usual rule of thumb "
          "is 0.6)" },
        { 0.48, 1, GUESS_BELOW,
          "off: at batch 16 no guess would pay, however sure (alpha 0.48 from small; the usual "
          "rule of thumb is 0.6)" },
        { 0.72, 0.71, GUESS_BELOW,
          "off: alpha 0.72 is too near the 0.71 needed at batch 16 (guesses from small)" },
        { 0.72, 0.71, GUESS_PROMPTS,
          "off for now: prompts are computed in the same steps, and beside them nothing is "
          "guessed" },
        { 0.8, 0.71, GUESS_ON,
          "on: alpha 0.81, 0.71 needed at batch 16 (guesses from small); 2.50 tokens a step, 40.0 "
          "tokens/s where it would be 25.0" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        d->expected = cases[i].expected;
        d->break_even = cases[i].break_even;
        d->alpha = 0.81;
        d->outcomes = 100;
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

static void an_answer_that_was_given_before_takes_fewer_steps(void **state)
{
    fixture *f = *state;
    worker w = worker_begin("suffix", 24);
    run r;
    speculation_stats first, last;
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

static void a_draft_model_that_stalls_is_not_waited_for(void **state)
{
    fixture *f = *state;
    worker w = worker_agreeing();
    worker_open(&w);
    serve_expect_truth(&w, f, 0, 1); // what a guess takes is known
    uint64_t stalled = troubles_of(&w).stalled;
    fault_set("draft.stall:1:400:3"); // of the prompt, and of two guesses
    serve_expect_truth(&w, f, 0, 1);
    assert_int_equal(fault_fired(FAULT_DRAFT_STALL), 3);
    assert_true(troubles_of(&w).stalled >= stalled + 1);
    fault_disarm_all();
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

// What follows is taught to the suffix drafter as an answer that ended.
static void teach(worker *w, const int32_t *tokens, int32_t count)
{
    int32_t slot = speculation_begin(w->speculation, &shared.requests[1], "");
    speculation_end(w->speculation, slot, tokens, 1, count);
}

// The first half of an answer is known by heart; behind each token of the second half another one
// was seen before, so that guesses are there all the time and always wrong.
static void guesses_that_turn_wrong_end_within_32_steps(void **state)
{
    fixture *f = *state;
    const int32_t *answer = f->truth[1].tokens, half = ANSWER / 2, lead = 14;
    worker w = worker_begin("suffix", 24);
    w.steady = true;
    w.settings.probe_percent = 25;
    worker_open(&w);
    for (int round = 0; round < 8; round++) { // others are guessed right, and costs are known
        serve_expect_truth(&w, f, 3, 1);
        serve_expect_truth(&w, f, 5, 1);
    }
    w.settings.probe_percent = 0;
    teach(&w, answer, half);
    for (int32_t i = half; i < ANSWER; i++) {
        int32_t tokens[32];
        memcpy(tokens, answer + i - lead, (size_t)lead * sizeof tokens[0]);
        for (int32_t k = 0; k < 8; k++)
            tokens[lead + k] = TINY_MODEL_BYTE_FIRST + (answer[i] + 7 + k) % 256;
        teach(&w, tokens, lead + 8);
    }
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
        cmocka_unit_test(b071_answers_are_the_same_with_every_drafter),
        cmocka_unit_test(what_it_counts_adds_up),
        cmocka_unit_test(what_it_counts_by_class_adds_up),
        cmocka_unit_test(its_sentences_say_why),
        cmocka_unit_test(an_answer_that_was_given_before_takes_fewer_steps),
        cmocka_unit_test(without_drafters_or_room_it_is_off),
        cmocka_unit_test(no_more_slots_than_sequences),
        cmocka_unit_test(a_draft_model_that_agrees_is_always_right),
        cmocka_unit_test(layers_of_the_model_itself_guess_too),
        cmocka_unit_test(one_that_disagrees_is_found_out),
        cmocka_unit_test(sequences_without_a_shadow_are_served_all_the_same),
        cmocka_unit_test(a_draft_model_that_draws_nothing_is_left),
        cmocka_unit_test(a_draft_model_that_stalls_is_not_waited_for),
        cmocka_unit_test(a_draft_model_whose_context_ends_is_left),
        cmocka_unit_test(a_shadow_far_behind_catches_up_in_pieces),
        cmocka_unit_test(guesses_that_turn_wrong_end_within_32_steps),
        cmocka_unit_test(alpha_of_a_stream_is_within_two_hundredths),
        cmocka_unit_test(b075_unfit_draft_models_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
