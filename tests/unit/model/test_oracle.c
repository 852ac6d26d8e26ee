// The model's logits against a naive forward pass in double precision, for every shape and type of
// model that this build computes.
#include "harness/forced/forced.h"
#include "harness/llama_oracle.h"
#include "harness/tiny_model.h"

#include "base/hash.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <setjmp.h>
#include <unistd.h>
#include <cmocka.h>

#define COUNT 90

typedef struct comparison {
    const double *truth; // [COUNT][vocabulary]
    int32_t vocabulary;
    double worst, kl;
    uint64_t hashes[COUNT];
} comparison;

static void row_compare(void *context, int32_t position, const float *logits)
{
    comparison *c = context;
    const double *truth = c->truth + (size_t)position * (size_t)c->vocabulary;
    double sum = forced_log_sum(logits, c->vocabulary);
    for (int32_t i = 0; i < c->vocabulary; i++) {
        double difference = fabs((double)logits[i] - sum - truth[i]);
        if (!(difference <= c->worst))
            c->worst = difference;
        c->kl += exp(truth[i]) * (truth[i] - ((double)logits[i] - sum)) / COUNT;
    }
    c->hashes[position] = hash64_of(logits, (size_t)c->vocabulary * sizeof logits[0], 0);
}

// The worst difference of a log-probability, and the mean KL, computed in chunks of `chunk`.
static comparison model_compare(const tiny_model *options, tensor_type kv_type, int32_t chunk)
{
    int32_t tokens[COUNT];
    char path[64];
    forced *f = NULL;
    gguf *file = NULL;
    error failure = { 0 };
    for (int i = 0; i < COUNT; i++)
        tokens[i] = (i * i * 7 + 31 * i + 5) % tiny_model_vocabulary();
    tiny_model_temporary(options, path);
    forced_settings settings = { path, "auto", 1, kv_type, COUNT, chunk };
    if (forced_open(&settings, &f, &failure) != STATUS_OK ||
        gguf_open(path, &file, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
    llama_oracle *oracle = llama_oracle_open(file);
    comparison c = { .vocabulary = llama_oracle_vocabulary(oracle) };
    double *truth = malloc((size_t)COUNT * (size_t)c.vocabulary * sizeof *truth);
    llama_oracle_run(oracle, tokens, COUNT, truth);
    c.truth = truth;
    forced_run(f, tokens, 0, COUNT, 0, row_compare, &c);
    llama_oracle_close(oracle);
    forced_close(f);
    gguf_close(file);
    unlink(path);
    free(truth);
    return c;
}

static void float_expect(const tiny_model *options)
{
    comparison c = model_compare(options, TENSOR_F32, COUNT);
    print_message("worst log-probability difference %.2g\n", c.worst);
    assert_true(c.worst < 1e-3);
}

static void float_weights_match_to_a_thousandth(void **state)
{
    (void)state;
    tiny_model o = tiny_model_default(1);
    float_expect(&o);
}

static void one_key_head_for_all_and_one_for_each_match(void **state)
{
    (void)state;
    tiny_model o = tiny_model_default(2);
    o.kv_heads = 1;
    float_expect(&o);
    o.kv_heads = 4;
    float_expect(&o);
}

static void an_untied_head_with_biases_and_padding_rows_matches(void **state)
{
    (void)state;
    tiny_model o = tiny_model_default(3);
    o.untied = o.biased = true;
    o.extra_rows = 5;
    float_expect(&o);
}

static void a_head_size_of_its_own_matches(void **state)
{
    (void)state;
    tiny_model o = tiny_model_default(4);
    o.head_size = 32;
    float_expect(&o);
}

static void rotation_divisors_and_linear_scaling_match(void **state)
{
    (void)state;
    tiny_model o = tiny_model_default(5);
    o.rope_divisors = true;
    float_expect(&o);
    o.rope_divisors = false;
    o.rope_linear = 4;
    float_expect(&o);
}

static void an_attention_window_matches(void **state)
{
    (void)state;
    tiny_model o = tiny_model_default(6);
    o.window = 16;
    float_expect(&o);
}

static void qwen2_matches_with_biases_and_halves_that_rotate(void **state)
{
    (void)state;
    tiny_model o = tiny_model_default(9);
    o.architecture = "qwen2";
    o.biased = o.untied = true;
    o.extra_rows = 7;
    float_expect(&o);
}

static tiny_model tiny_gemma(uint64_t seed)
{
    tiny_model o = tiny_model_default(seed);
    o.architecture = "gemma3";
    o.layers = 7; // one of them global
    o.head_size = 32;
    o.kv_heads = 1;
    o.window = 16;
    return o;
}

static void gemma3_matches_with_windows_and_its_norms(void **state)
{
    (void)state;
    tiny_model o = tiny_gemma(10);
    float_expect(&o);
    o.window_period = 2;
    o.rope_linear = 8; // of the global layers alone
    float_expect(&o);
}

// Activations are rounded to 8 bits beside quantised weights and the cache to 16 bits, so what is
// bounded here is the divergence; a wrong scale or a swapped nibble is off by orders of magnitude.
static void quantised_weights_stay_close(void **state)
{
    (void)state;
    const tensor_type types[] = { TENSOR_F16, TENSOR_Q8_0, TENSOR_Q4_0, TENSOR_Q4_1 };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        tiny_model o = tiny_model_default(7);
        o.type = types[i];
        o.head_type = types[i] == TENSOR_F16 ? TENSOR_F16 : TENSOR_Q8_0;
        comparison c = model_compare(&o, TENSOR_F16, COUNT);
        print_message("%s: mean KL %.2g\n", tensor_type_name(types[i]), c.kl);
        assert_true(c.kl < 5e-3);
    }
}

static void logits_have_the_same_bits_however_the_prompt_is_cut(void **state)
{
    (void)state;
    const int32_t chunks[] = { 1, 7, 16, 33, 64 };
    const tensor_type types[] = { TENSOR_F32, TENSOR_Q4_1, TENSOR_F32, TENSOR_Q4_0 };
    for (size_t t = 0; t < 4; t++) {
        tiny_model o = tiny_model_default(8);
        o.type = types[t];
        o.window = t == 0 ? 16 : 0;
        if (t == 2)
            o = tiny_gemma(8);
        if (t == 3)
            o.architecture = "qwen2";
        comparison whole = model_compare(&o, TENSOR_F16, COUNT);
        for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
            comparison cut = model_compare(&o, TENSOR_F16, chunks[i]);
            assert_memory_equal(whole.hashes, cut.hashes, sizeof whole.hashes);
        }
    }
}

static void the_rotation_table_follows_its_formula_far_out(void **state)
{
    (void)state;
    const int32_t positions[] = { 0, 1000, 8192, 20000 };
    model_config c = { .rope_base = 500000, .rope_scale = 1, .rope_dims = 64 };
    for (size_t i = 0; i < sizeof positions / sizeof positions[0]; i++)
        for (int32_t pair = 0; pair < 32; pair++) {
            float cosine, sine;
            double divisor = pair < 16 ? 1 : 8;
            double angle = positions[i] / divisor * pow(500000, -2.0 * pair / 64);
            model_rope_rotation(model_rope_frequency(&c, divisor, pair), positions[i], &cosine,
                                &sine);
            assert_true(fabs((double)cosine - cos(angle)) < 1e-7);
            assert_true(fabs((double)sine - sin(angle)) < 1e-7);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float_weights_match_to_a_thousandth),
        cmocka_unit_test(one_key_head_for_all_and_one_for_each_match),
        cmocka_unit_test(an_untied_head_with_biases_and_padding_rows_matches),
        cmocka_unit_test(a_head_size_of_its_own_matches),
        cmocka_unit_test(rotation_divisors_and_linear_scaling_match),
        cmocka_unit_test(an_attention_window_matches),
        cmocka_unit_test(qwen2_matches_with_biases_and_halves_that_rotate),
        cmocka_unit_test(gemma3_matches_with_windows_and_its_norms),
        cmocka_unit_test(quantised_weights_stay_close),
        cmocka_unit_test(logits_have_the_same_bits_however_the_prompt_is_cut),
        cmocka_unit_test(the_rotation_table_follows_its_formula_far_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
