// For tests: the engine on a real model against log-probabilities computed in float64 by an
// independent implementation (tests/golden/logits/README.md). Each model's test is a file of its
// own, test_golden*.c, which calls golden_main.
#pragma once

#include "base/hash.h"
#include "harness/forced/forced.h"
#include "harness/places.h"

#include <math.h>
#include <jansson.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <unistd.h>
#include <cmocka.h>

#define TOKENS_MAX 1024
// Two engines with 8-bit activations part at margins below this (tests/golden/logits/README.md).
#define MARGIN_MIN 0.5

// A sanitizer makes this ten times slower and looks for other things: there the short prompts do.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#define FORCED_TOKENS_MAX 200
#else
#define SANITIZED 0
#define FORCED_TOKENS_MAX TOKENS_MAX
#endif

static forced *engine_of_test;
static const char *model_of_test; // the name of its reference files

static int32_t tokens_of(const json_t *list, int32_t *tokens)
{
    assert_true(json_array_size(list) <= TOKENS_MAX);
    for (size_t i = 0; i < json_array_size(list); i++)
        tokens[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return (int32_t)json_array_size(list);
}

typedef struct divergence {
    const json_t *positions;
    int32_t first, vocabulary;
    double sum, worst;
    int32_t count, top_same;
    uint64_t hash; // of all logits
} divergence;

// KL(truth || engine) over the listed tokens and one bucket for all others: a lower bound.
static void divergence_add(void *context, int32_t position, const float *logits)
{
    divergence *d = context;
    const json_t *entry = json_array_get(d->positions, (size_t)(position - d->first));
    const json_t *ids = json_object_get(entry, "ids"), *values = json_object_get(entry, "logprobs");
    assert_int_equal(json_integer_value(json_object_get(entry, "position")), position);
    double log_sum = forced_log_sum(logits, d->vocabulary), kl = 0, rest_truth = 1, rest = 1;
    int32_t best = forced_best(logits, d->vocabulary);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        double truth = json_real_value(json_array_get(values, i));
        double own = (double)logits[json_integer_value(json_array_get(ids, i))] - log_sum;
        kl += exp(truth) * (truth - own);
        rest_truth -= exp(truth);
        rest -= exp(own);
    }
    if (rest_truth > 1e-9)
        kl += rest_truth * log(rest_truth / fmax(rest, 1e-12));
    d->hash = hash64_of(logits, (size_t)d->vocabulary * sizeof logits[0], d->hash);
    d->sum += kl;
    d->worst = fmax(d->worst, kl);
    d->top_same += best == json_integer_value(json_array_get(ids, 0));
    d->count++;
}

static json_t *case_next(slice *text)
{
    slice line;
    if (!slice_take_line(text, &line))
        return NULL;
    json_t *parsed = json_loadb(line.data, line.size, 0, NULL);
    assert_non_null(parsed);
    return parsed;
}

static bool kind_is(const json_t *item, const char *kind)
{
    return strcmp(json_string_value(json_object_get(item, "kind")), kind) == 0;
}

// The mean divergence over all forced prompts of the file, given `piece` tokens at a time.
static divergence forced_measure(const buffer *file, int32_t piece)
{
    slice text = buffer_slice(file);
    divergence total = { .vocabulary = forced_config(engine_of_test)->vocabulary };
    for (json_t *item; (item = case_next(&text)); json_decref(item)) {
        int32_t tokens[TOKENS_MAX];
        if (!kind_is(item, "forced"))
            continue;
        int32_t count = tokens_of(json_object_get(item, "prompt_ids"), tokens);
        if (count > FORCED_TOKENS_MAX)
            continue;
        total.positions = json_object_get(item, "positions");
        total.first = (int32_t)json_integer_value(json_object_get(item, "first_position"));
        for (int32_t begin = 0; begin < count; begin += piece)
            forced_run(engine_of_test, tokens, begin, begin + piece < count ? begin + piece : count,
                       total.first, divergence_add, &total);
    }
    return total;
}

static double json_kl_mean(const json_t *file, const char *kind)
{
    return json_real_value(json_object_get(json_object_get(file, kind), "kl_mean"));
}

static void forced_expect(const char *cases, const char *peer)
{
    buffer file = { 0 };
    json_t *reference = json_load_file(peer, 0, NULL);
    assert_true(places_read(cases, &file));
    assert_non_null(reference);
    double limit = 1.5 * fmax(json_kl_mean(reference, "default"), json_kl_mean(reference, "f32"));
    divergence d = forced_measure(&file, TOKENS_MAX);
    print_message("KL mean %.5f max %.4f over %d positions, top-1 same %d (llama.cpp: mean %.5f, "
                  "limit %.5f)\n",
                  d.sum / d.count, d.worst, d.count, d.top_same, json_kl_mean(reference, "default"),
                  limit);
    assert_true(d.count > 0 && d.sum / d.count <= limit);
    divergence cut = forced_measure(&file, 37);
    assert_true(cut.hash == d.hash && cut.count == d.count);
    json_decref(reference);
    buffer_close(&file);
}

typedef struct greedy {
    int32_t vocabulary, best;
} greedy;

static void greedy_take(void *context, int32_t position, const float *logits)
{
    greedy *g = context;
    (void)position;
    g->best = forced_best(logits, g->vocabulary);
}

// Follow the argmax; returns the number of steps that are the truth's.
static int32_t greedy_steps(const json_t *item, int32_t *tokens, int32_t count)
{
    const json_t *ids = json_object_get(item, "ids");
    greedy g = { .vocabulary = forced_config(engine_of_test)->vocabulary };
    forced_run(engine_of_test, tokens, 0, count, count - 1, greedy_take, &g);
    for (int32_t step = 0; step < (int32_t)json_array_size(ids); step++) {
        if (g.best != json_integer_value(json_array_get(ids, (size_t)step)))
            return step;
        tokens[count] = g.best;
        forced_run(engine_of_test, tokens, count, count + 1, count, greedy_take, &g);
        count++;
    }
    return (int32_t)json_array_size(ids);
}

static void greedy_expect(const char *cases)
{
    buffer file = { 0 };
    assert_true(places_read(cases, &file));
    slice text = buffer_slice(&file);
    int32_t seen = 0;
    for (json_t *item; (item = case_next(&text)); json_decref(item)) {
        int32_t tokens[TOKENS_MAX], safe = 0;
        if (!kind_is(item, "greedy"))
            continue;
        int32_t count = tokens_of(json_object_get(item, "prompt_ids"), tokens);
        const json_t *margins = json_object_get(item, "margins");
        while (safe < (int32_t)json_array_size(margins) &&
               json_real_value(json_array_get(margins, (size_t)safe)) >= MARGIN_MIN)
            safe++;
        int32_t same = greedy_steps(item, tokens, count);
        print_message("greedy %s: %d of %zu steps are the truth's, the first margin below %g is at "
                      "step %d\n",
                      json_string_value(json_object_get(item, "name")), same,
                      json_array_size(margins), MARGIN_MIN, safe);
        assert_true(same >= safe);
        seen++;
    }
    assert_true(seen > 0);
    buffer_close(&file);
}

// The file of the full reference set where that is here, else the tree's own part of it.
static const char *reference_file(const char *ending, char path[512])
{
    char relative[96];
    snprintf(relative, sizeof relative, "golden/logits/%s%s", model_of_test, ending);
    const char *shared = places_shared(PENSTOCK_SOURCE_DIR, relative);
    if (shared)
        snprintf(path, 512, "%s", shared);
    else
        snprintf(path, 512, "%s/tests/%s", PENSTOCK_SOURCE_DIR, relative);
    return path;
}

static void forced_prompts_are_as_close_as_the_golden_readme_demands(void **state)
{
    (void)state;
    char cases[512], peer[512];
    forced_expect(reference_file(".jsonl", cases), reference_file(".llama_cpp.json", peer));
}

static void greedy_text_is_equal_up_to_the_first_near_tie(void **state)
{
    (void)state;
    char cases[512];
    greedy_expect(reference_file(".jsonl", cases));
}

typedef struct likelihood {
    const int32_t *tokens;
    int32_t count, vocabulary;
    double sum;
} likelihood;

static void likelihood_add(void *context, int32_t position, const float *logits)
{
    likelihood *l = context;
    if (position + 1 < l->count)
        l->sum += forced_log_sum(logits, l->vocabulary) - (double)logits[l->tokens[position + 1]];
}

static void perplexity_is_within_a_hundredth_nat(void **state)
{
    (void)state;
    char relative[96];
    snprintf(relative, sizeof relative, "golden/perplexity/%s.json", model_of_test);
    const char *path = places_shared(PENSTOCK_SOURCE_DIR, relative);
    if (!path) {
        print_message("skipped: the shared reference data are not here\n");
        skip();
    }
    json_t *reference = json_load_file(path, 0, NULL);
    assert_non_null(reference);
    int32_t tokens[TOKENS_MAX];
    likelihood l = { .tokens = tokens, .vocabulary = forced_config(engine_of_test)->vocabulary };
    l.count = tokens_of(json_object_get(reference, "ids"), tokens);
    forced_run(engine_of_test, tokens, 0, l.count, 0, likelihood_add, &l);
    double mean = l.sum / (l.count - 1);
    double truth = json_real_value(json_object_get(reference, "nll_mean"));
    const json_t *peer = json_object_get(json_object_get(reference, "llama_cpp"), "default");
    print_message("mean NLL %.6f, float64 %.6f, difference %+.6f (llama.cpp: %+.6f)\n", mean, truth,
                  mean - truth, json_real_value(json_object_get(peer, "nll_mean")) - truth);
    assert_true(fabs(mean - truth) <= 0.01);
    json_decref(reference);
}

// 77 where the model or its reference data are missing. `how`: how to get the model.
static inline int golden_main(const char *model_file, const char *name, const char *how)
{
    const char *path = places_model(model_file);
    char model_path[1024], cases[512];
    model_of_test = name;
    if (!path) {
        printf("skipped: %s is not in the cache; %s gets it\n", model_file, how);
        return 77;
    }
    snprintf(model_path, sizeof model_path, "%s", path);
    if (access(reference_file(".jsonl", cases), R_OK) != 0) {
        printf("skipped: the reference data of %s are not here\n", name);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forced_prompts_are_as_close_as_the_golden_readme_demands),
        cmocka_unit_test(greedy_text_is_equal_up_to_the_first_near_tie),
        cmocka_unit_test(perplexity_is_within_a_hundredth_nat),
    };
    forced_settings settings = { model_path, "auto", 1, TENSOR_F16, TOKENS_MAX, 256 };
    error failure = { 0 };
    if (forced_open(&settings, &engine_of_test, &failure) != STATUS_OK) {
        printf("%s\n", failure.text);
        return 1;
    }
    size_t count = SANITIZED ? 1 : sizeof tests / sizeof tests[0];
    int failed = _cmocka_run_group_tests(name, tests, count, NULL, NULL);
    forced_close(engine_of_test);
    return failed;
}
