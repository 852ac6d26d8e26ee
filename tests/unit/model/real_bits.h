// For tests: a real model gives the same tokens and the same bits of logits whatever the chunks,
// the company, the threads, a prefix hit, and whether the prompt was computed by another engine:
// for each KV type that engine.kv_type takes and each level of this CPU. test_same_bits.c tells
// more cases apart on tiny models; here the shapes and weight types are those of models that people
// serve. Each model's test is a file of its own, test_real_bits*.c, which calls real_bits_main.
#pragma once

#include "harness/places.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine_fixture.h"

#define PROMPT_MAX 600
#define OTHERS 4

typedef struct real_bits {
    char *model;
    int32_t vocabulary;
    int32_t prompt; // tokens
    int32_t tokens[PROMPT_MAX], other_tokens[OTHERS][PROMPT_MAX];
    int count;                    // of the requests; one where the scalar level takes its time
    sequence_request requests[2]; // sampled with everything on, and greedy
    run truth[2];
} real_bits;

static real_bits shared;

static void tokens_draw(int32_t *tokens, int32_t count, int32_t seed)
{
    for (int32_t i = 0; i < count; i++)
        tokens[i] = (int32_t)(((int64_t)i * i * 31 + 577 * i + 7919 * seed) % shared.vocabulary);
}

static engine_settings settings_of(const char *level, const char *kv_type)
{
    engine_settings s = fixture_settings(shared.model);
    s.level = (char *)level;
    s.kv_type = (char *)kv_type;
    s.kv_bytes = 160 << 20;
    s.max_sequences = OTHERS + 2;
    s.context = 1024;
    return s;
}

// The requests for a level, and their outcome alone on `e`. A prompt has to be more than a page.
static void truth_take(engine *e, bool scalar)
{
    real_bits *b = &shared;
    int32_t count = scalar ? 33 : b->prompt, answer = scalar ? 2 : 6;
    b->vocabulary = engine_facts_of(e)->vocabulary;
    b->count = scalar ? 1 : 2;
    tokens_draw(b->tokens, count, 3);
    b->requests[0] = fixture_sampled(b->tokens, count, answer, 77);
    b->requests[1] = fixture_request(b->tokens, count, answer);
    b->requests[1].prefix_salt = hash128_of("one", 3); // no prefix of the other's
    for (int i = 0; i < b->count; i++) {
        b->truth[i] = fixture_run_one(e, b->requests[i]);
        assert_int_equal(b->truth[i].count, answer);
    }
}

// Among others of all lengths, in the middle of the batch.
static void crowd_expect(engine *e, int32_t longest)
{
    sequence_request requests[OTHERS + 2];
    run runs[OTHERS + 2];
    int count = shared.count;
    for (int i = 0; i < OTHERS; i++) {
        int32_t tokens = 1 + (longest - 1) * i / (OTHERS - 1);
        tokens_draw(shared.other_tokens[i], tokens, i + 5);
        requests[i < 2 ? i : i + count] =
            i % 2 ? fixture_request(shared.other_tokens[i], tokens, longest / 8 + 1)
                  : fixture_sampled(shared.other_tokens[i], tokens, 2, 1);
    }
    for (int i = 0; i < count; i++)
        requests[2 + i] = shared.requests[i];
    fixture_run(e, requests, OTHERS + count, runs);
    for (int i = 0; i < count; i++) {
        assert_int_equal(runs[2 + i].reused, 0);
        run_expect_equal(&runs[2 + i], &shared.truth[i]);
    }
}

// Behind its own prefix.
static void prefix_expect(engine *e)
{
    for (int i = 0; i < shared.count; i++) {
        run warm = fixture_run_one(e, shared.requests[i]);
        assert_int_equal(warm.reused, (shared.requests[i].token_count - 1) / 32 * 32);
        run_expect_equal(&warm, &shared.truth[i]);
    }
}

// The prompt on one engine, its pages copied into a seat of another, which generates.
static void placed_expect(engine *from, engine *to)
{
    run r[2] = { 0 };
    size_t page_bytes = (size_t)engine_facts_of(to)->layout.page_bytes;
    engine_prefixes_drop(to);
    for (int i = 0; i < shared.count; i++) {
        sequence_request prompt = shared.requests[i], seat = shared.requests[i];
        sequence *target;
        int32_t count;
        prompt.mode = SEQUENCE_PROMPT;
        sequence *source = fixture_start(from, prompt, &r[i]);
        while (engine_has_work(from))
            fixture_step(from);
        seat.owner = &r[i];
        assert_int_equal(engine_sequence_open(to, &seat, &target, NULL), STATUS_OK);
        const int32_t *sources = sequence_pages(source, &count);
        const int32_t *targets = sequence_pages(target, &count);
        for (int32_t page = sequence_reused(target) / 32; page < count; page++)
            memcpy(engine_page_data(to, targets[page]), engine_page_data(from, sources[page]),
                   page_bytes);
        engine_sequence_close(from, source, true);
        assert_int_equal(engine_sequence_place(to, target, seat.token_count, r[i].tokens, 1),
                         STATUS_OK);
        while (engine_has_work(to))
            fixture_step(to);
        engine_sequence_close(to, target, true);
        run_expect_equal(&r[i], &shared.truth[i]);
    }
}

// One thread and large chunks alone, against two threads, small chunks and all the rest.
static void bits_expect(const char *level, const char *kv_type)
{
    engine_settings settings = settings_of(level, kv_type);
    bool scalar = strcmp(level, "scalar") == 0;
    engine *one = fixture_open(&settings);
    settings.threads = 2;
    settings.prefix_reuse = true;
    settings.chunk_tokens = 17;
    settings.step_tokens = 40;
    engine *two = fixture_open(&settings);
    truth_take(one, scalar);
    crowd_expect(two, scalar ? 4 : 70);
    prefix_expect(two);
    placed_expect(one, two);
    fixture_close(one);
    fixture_close(two);
    print_message("%s, %s cache: %d + %d tokens are equal each way\n", level, kv_type,
                  shared.requests[0].token_count, shared.truth[0].count);
}

static void bits_are_equal_for_each_level_and_kv_type(void **state)
{
    (void)state;
    for (const char *const *level = fixture_choices("engine.level"); *level; level++)
        for (const char *const *kv = fixture_choices("engine.kv_type"); *kv; kv++)
            if (strcmp(*level, "auto") != 0 && fixture_level_is_there(*level))
                bits_expect(*level, *kv);
}

// 77 where the model is missing. `prompt`: tokens of the requests.
static inline int real_bits_main(const char *model_file, int32_t prompt)
{
    const char *path = places_model(model_file);
    if (!path) {
        printf("skipped: %s is not in the cache\n", model_file);
        return 77;
    }
    shared = (real_bits){ .model = strdup(path), .prompt = prompt };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_equal_for_each_level_and_kv_type),
    };
    int failed = _cmocka_run_group_tests(model_file, tests, 1, NULL, NULL);
    free(shared.model);
    return failed;
}
