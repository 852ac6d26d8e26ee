// For tests: an engine over a tiny model, requests, and what became of them.
#pragma once

#include "harness/tiny_model.h"
#include "model/engine.h"

#include <string.h>
#include <unistd.h>

#define RUN_TOKENS 256

// The outcome of one request.
typedef struct run {
    int32_t tokens[RUN_TOKENS];
    uint64_t hashes[RUN_TOKENS]; // of the logits of each
    float logprobs[RUN_TOKENS];
    int32_t count, reused, preempted;
    sequence_finish finish;
} run;

// Pages of 32 tokens, 24 sequences, chunks of 64, no prefix reuse; a test changes what it is about.
static inline engine_settings fixture_settings(char *path)
{
    return (engine_settings){
        .model = path,
        .level = "auto",
        .threads = 1,
        .cores = "",
        .kv_type = "f16",
        .page_tokens = 32,
        .kv_bytes = 4 << 20,
        .max_sequences = 24,
        .step_tokens = 512,
        .chunk_tokens = 64,
        .prefix_reuse = false,
    };
}

// What a setting of the engine may be.
static inline const char *const *fixture_choices(const char *name)
{
    for (size_t i = 0; i < engine_config_section.count; i++)
        if (strcmp(engine_config_section.keys[i].name, name) == 0)
            return engine_config_section.keys[i].among;
    fail_msg("there is no setting %s", name);
    return NULL;
}

// Whether this CPU has the level.
static inline bool fixture_level_is_there(const char *level)
{
    backend_settings settings = { .level = level, .threads = 1, .cores = "" };
    backend *device;
    if (backend_cpu.open(&settings, &device, NULL) != STATUS_OK)
        return false;
    backend_cpu.close(device);
    return true;
}

// An engine, or the test fails with the sentence.
static inline engine *fixture_open(const engine_settings *settings)
{
    engine *e = NULL;
    error failure = { 0 };
    if (engine_open(settings, &e, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
    return e;
}

// Every page must be back.
static inline void fixture_close(engine *e)
{
    assert_int_equal(engine_sequences_open(e), 0);
    assert_int_equal(engine_pages_held(e), 0);
    assert_int_equal(engine_pages_free(e), engine_facts_of(e)->pages);
    engine_close(e);
}

// `count` byte tokens; unlike seeds give unlike texts.
static inline void fixture_tokens(int32_t *tokens, int32_t count, int32_t seed)
{
    for (int32_t i = 0; i < count; i++)
        tokens[i] = TINY_MODEL_BYTE_FIRST + (i * i * seed + 29 * i + 17 * seed) % 256;
}

// Greedy, to its length, with hashes of logits.
static inline sequence_request fixture_request(const int32_t *tokens, int32_t count,
                                               int32_t max_tokens)
{
    return (sequence_request){
        .tokens = tokens,
        .token_count = count,
        .prompt_count = count,
        .max_tokens = max_tokens,
        .ignore_eos = true,
        .sampling = { .top_p = 1, .typical_p = 1, .repetition_penalty = 1 },
        .logits_hash = true,
    };
}

// The same with every part of the sampler on.
static inline sequence_request fixture_sampled(const int32_t *tokens, int32_t count,
                                               int32_t max_tokens, uint64_t seed)
{
    static const backend_token_bias biases[] = { { 40, 1.5f }, { 41, -3 } };
    sequence_request r = fixture_request(tokens, count, max_tokens);
    r.sampling = (backend_sample){
        .temperature = 1.1f,
        .top_p = 0.95f,
        .min_p = 0.001f,
        .typical_p = 1,
        .top_k = 120,
        .repetition_penalty = 1.1f,
        .frequency_penalty = 0.3f,
        .presence_penalty = 0.4f,
        .seed = seed,
        .biases = biases,
        .bias_count = 2,
    };
    return r;
}

// Take in one reported token; positions must follow each other.
static inline void run_add(run *r, const engine_token *t)
{
    assert_int_equal(t->output_index, r->count);
    assert_true(r->count < RUN_TOKENS);
    r->tokens[r->count] = t->sampled.token;
    r->logprobs[r->count] = t->sampled.logprob;
    r->hashes[r->count++] = t->logits_hash;
    r->finish = t->finish;
}

// One step; tokens go to the run that each sequence's owner points to. Returns its report.
static inline engine_report fixture_step(engine *e)
{
    engine_report report;
    engine_step(e, &report);
    for (int32_t i = 0; i < report.token_count; i++)
        run_add(report.tokens[i].owner, &report.tokens[i]);
    assert_true(engine_pages_free(e) + engine_pages_held(e) == engine_facts_of(e)->pages);
    return report;
}

// Open and start a request whose tokens go to `r`.
static inline sequence *fixture_start(engine *e, sequence_request request, run *r)
{
    sequence *s = NULL;
    error failure = { 0 };
    request.owner = r;
    if (engine_sequence_open(e, &request, &s, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
    engine_sequence_start(e, s);
    r->reused = sequence_reused(s);
    return s;
}

// Run requests together to their ends.
static inline void fixture_run(engine *e, const sequence_request *requests, int32_t count,
                               run *runs)
{
    sequence *sequences[64];
    assert_true(count <= 64);
    for (int32_t i = 0; i < count; i++) {
        runs[i] = (run){ 0 };
        sequences[i] = fixture_start(e, requests[i], &runs[i]);
    }
    while (engine_has_work(e))
        assert_int_equal(fixture_step(e).preempted_count, 0);
    for (int32_t i = 0; i < count; i++)
        engine_sequence_close(e, sequences[i], true);
}

// One request alone.
static inline run fixture_run_one(engine *e, sequence_request request)
{
    run r;
    fixture_run(e, &request, 1, &r);
    return r;
}

// Ends, and from a position on tokens and the bits of log-probabilities and logits.
static inline void run_expect_equal_from(const run *a, const run *b, int32_t first)
{
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->finish, b->finish);
    for (int32_t i = first; i < a->count; i++) {
        assert_int_equal(a->tokens[i], b->tokens[i]);
        assert_true(a->hashes[i] == b->hashes[i] && a->hashes[i] != 0);
        assert_memory_equal(&a->logprobs[i], &b->logprobs[i], sizeof a->logprobs[i]);
    }
}

static inline void run_expect_equal(const run *a, const run *b)
{
    run_expect_equal_from(a, b, 0);
}
