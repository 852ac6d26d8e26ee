// For tests of guessing: a worker's guesses around an engine over a tiny model, requests, and their
// answers without any guess.
#pragma once

#include "decode_worker/speculate/speculation.h"

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

static inline int setup(void **state)
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

static inline int teardown(void **state)
{
    (void)state;
    unlink(path);
    unlink(other_path);
    return 0;
}

typedef struct worker {
    engine *engine;
    double base_us, row_us;      // what a step and each of its rows take; 0: as measured
    const sequence_guide *guide; // of the draft model, where requests have one
    const char *const *drafters; // of each request, as of speculation_begin; NULL: all
    int64_t drawn, last_drawn;   // tokens, in all and by the last step that had guesses
    int32_t most_guesses;        // of a step
    double longest_us;           // step that had guesses
    speculation_settings settings;
    speculation *speculation;
} worker;

// What the models of these tests cost says nothing: where guesses of the draft model are wanted,
// they are made whether they pay or not.
static inline worker worker_begin(const char *drafter, int32_t tokens)
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

static inline void worker_open(worker *w)
{
    engine_settings settings = fixture_settings(path);
    error failure = { 0 };
    if (speculation_open(&w->settings, &settings, w->engine, &w->speculation, &failure) !=
        STATUS_OK)
        fail_msg("%s", failure.text);
}

static inline void worker_end(worker *w)
{
    speculation_close(w->speculation);
    fixture_close(w->engine);
}

static inline void guesses_note(worker *w, const engine_report *report)
{
    w->drawn += report->token_count;
    if (report->draft_rows == 0)
        return;
    w->last_drawn = w->drawn;
    if (report->draft_rows > w->most_guesses)
        w->most_guesses = report->draft_rows;
    if ((double)report->duration_us > w->longest_us)
        w->longest_us = (double)report->duration_us;
}

// Serve requests together to their ends, as a decode worker would.
static inline void serve(worker *w, const sequence_request *requests, int32_t count, run *runs)
{
    sequence *sequences[CROWD];
    int32_t slots[CROWD];
    for (int32_t i = 0; i < count; i++) {
        runs[i] = (run){ 0 };
        sequences[i] = fixture_start(w->engine, requests[i], &runs[i]);
        sequence_request guessed = requests[i];
        guessed.guide = w->guide;
        slots[i] = speculation_begin(w->speculation, &guessed, w->drafters ? w->drafters[i] : "");
    }
    while (engine_has_work(w->engine)) {
        speculation_item items[CROWD];
        int32_t running = 0;
        bool prompts = false;
        for (int32_t i = 0; i < count; i++) {
            if (runs[i].count > 0 && runs[i].finish == SEQUENCE_UNFINISHED)
                items[running++] = (speculation_item){ .sequence = sequences[i],
                                                       .slot = slots[i],
                                                       .class = requests[i].class };
            prompts = prompts || runs[i].count == 0;
        }
        speculation_guess(w->speculation, w->engine, items, running, prompts);
        engine_report report = fixture_step(w->engine);
        if (w->row_us > 0) {
            report.duration_us = (uint64_t)(w->base_us + w->row_us * report.rows);
            report.context_us = 0;
        }
        guesses_note(w, &report);
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
static inline void serve_expect_truth(worker *w, const fixture *f, int32_t first, int32_t count)
{
    run runs[CROWD];
    serve(w, f->requests + first, count, runs);
    for (int32_t i = 0; i < count; i++)
        run_expect_equal(&runs[i], &f->truth[first + i]);
}
