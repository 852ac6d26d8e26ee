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

static void b052_an_untied_head_with_biases_and_padding_rows_matches(void **state)
{
    (void)state;
    tiny_model o = tiny_model_default(3);
    o.untied = o.biased = true;
    o.extra_rows = 5;
    float_expect(&o);
}

static void b055_a_head_size_of_its_own_matches(void **state)
{
    (void)state;
    tiny_model o = tiny_model_default(4);
    o.head_size = 32;
    float_expect(&o);
}

static void b053_every_rotation_scaling_matches(void **state)
{
    (void)state;
    const struct {
        const char *type;
        double factor;
        int original;
        double attention;
        bool divisors, lists;
    } cases[] = {
        { .divisors = true }, // Llama 3
        { "none", 0, 0, 0, true, false },
        { "linear", 4, 0, 0, false, false },
        { NULL, 4, 0, 0, false, false }, // linear as well
        { "yarn", 4, 32, 0, false, false },
        { "yarn", 4, 512, 0, false, false },
        { "yarn", 8, 512, 0.75, true, false },
        { "longrope", 0, 512, 0, false, true }, // the long list: trained for 2,048
        { "longrope", 4, 2048, 0, false, true },
        { "longrope", 4, 512, 1.125, false, true },
    };
    const char *const architectures[] = { "llama", "qwen2" };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int k = 0; k < 2; k++) {
            tiny_model o = tiny_model_default(5);
            o.architecture = architectures[k];
            o.head_size = 32; // more pairs than the default's, for the ramps
            o.rope_scaling = cases[i].type;
            o.rope_factor = cases[i].factor;
            o.rope_original = cases[i].original;
            o.rope_attention = cases[i].attention;
            o.rope_divisors = cases[i].divisors;
            o.rope_lists = cases[i].lists;
            print_message("%s %s: ", o.architecture, cases[i].type ? cases[i].type : "no type");
            float_expect(&o);
        }
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
    o.rope_scaling = "linear"; // of the global layers alone
    o.rope_factor = 8;
    float_expect(&o);
}

static void gemma3_of_62_layers_scales_scores_by_its_width(void **state)
{
    (void)state;
    tiny_model o = tiny_gemma(15);
    o.layers = 62;
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

// Prompts of more than the window: computed whole, in chunks that the window does and does not
// divide, and token by token as decoding does it.
static void b054_prompts_longer_than_the_window_match_however_they_are_cut(void **state)
{
    (void)state;
    const int32_t chunks[] = { COUNT, 7, 16, 50, 1 };
    for (int alternating = 0; alternating < 2; alternating++) {
        tiny_model o = alternating ? tiny_gemma(12) : tiny_model_default(12);
        o.window = 16;
        o.window_period = alternating ? 2 : 0;
        comparison whole = { 0 };
        for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
            comparison c = model_compare(&o, TENSOR_F32, chunks[i]);
            assert_true(c.worst < 1e-4);
            if (i == 0)
                whole = c;
            assert_memory_equal(whole.hashes, c.hashes, sizeof c.hashes);
        }
    }
}

static void row_keep(void *context, int32_t position, const float *logits)
{
    double *rows = context;
    double sum = forced_log_sum(logits, tiny_model_vocabulary());
    for (int i = 0; i < tiny_model_vocabulary(); i++)
        rows[position * tiny_model_vocabulary() + i] = (double)logits[i] - sum;
}

// The log-probabilities of a tiny model; the caller frees them.
static double *logprobs_of(const tiny_model *o)
{
    int32_t tokens[COUNT];
    char path[64];
    forced *f = NULL;
    error failure = { 0 };
    double *rows = malloc((size_t)COUNT * (size_t)tiny_model_vocabulary() * sizeof *rows);
    assert_non_null(rows);
    for (int i = 0; i < COUNT; i++)
        tokens[i] = (i * i * 7 + 31 * i + 5) % tiny_model_vocabulary();
    tiny_model_temporary(o, path);
    forced_settings settings = { path, "auto", 1, TENSOR_F32, COUNT, COUNT };
    if (forced_open(&settings, &f, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
    forced_run(f, tokens, 0, COUNT, 0, row_keep, rows);
    forced_close(f);
    unlink(path);
    return rows;
}

// The same weights as a qwen2 file (rows of q and k as published) and as a llama file (rows in the
// order of the other rotation): one model. Quantised rows move together with their scales.
static void b058_the_order_of_q_and_k_rows_belongs_to_the_family(void **state)
{
    (void)state;
    const int kv_heads[] = { 2, 4 };
    const tensor_type types[] = { TENSOR_F32, TENSOR_Q8_0 };
    for (int i = 0; i < 4; i++) {
        tiny_model o = tiny_model_default(13);
        o.kv_heads = kv_heads[i % 2];
        o.type = types[i / 2];
        o.rope_permuted = true;
        double *llama = logprobs_of(&o), worst = 0, kl = 0, unlike = 0;
        o.rope_permuted = false;
        double *unpermuted = logprobs_of(&o);
        o.architecture = "qwen2";
        double *qwen = logprobs_of(&o);
        for (int k = 0; k < COUNT * tiny_model_vocabulary(); k++) {
            worst = fmax(worst, fabs(llama[k] - qwen[k]));
            kl += exp(qwen[k]) * (qwen[k] - llama[k]) / COUNT;
            unlike += exp(qwen[k]) * (qwen[k] - unpermuted[k]) / COUNT;
        }
        print_message(
            "%s: worst difference %.2g, mean KL %.2g, with rows in the wrong order %.2g\n",
            tensor_type_name(o.type), worst, kl, unlike);
        // Beside quantised weights the last bit of a sum may round an activation another way.
        assert_true(o.type == TENSOR_F32 ? worst < 1e-4 : kl < 5e-3);
        assert_true(unlike > 0.1);
        free(llama);
        free(unpermuted);
        free(qwen);
    }
}

// Embeddings so large that the residual stream is beyond what half precision holds.
static void b064_gemma3_matches_where_half_precision_would_overflow(void **state)
{
    (void)state;
    tiny_model o = tiny_gemma(14);
    o.loud = 1e5f;
    o.untied = true; // else the logits would be as large
    float_expect(&o);
    comparison c = model_compare(&o, TENSOR_F16, COUNT);
    print_message("with an f16 cache: mean KL %.2g\n", c.kl);
    assert_true(c.kl < 1e-4);
}

// The divisors that Llama 3's converters write, and the angle that its publication gives.
static double llama3_frequency(double base, int dims, int pair, double factor)
{
    const double pi = 3.14159265358979323846, low = 1, high = 4, original = 8192;
    double trained = pow(base, -2.0 * pair / dims), length = 2 * pi / trained;
    double t = (original / length - low) / (high - low);
    if (length < original / high)
        return trained;
    if (length > original / low)
        return trained / factor;
    return (1 - t) * trained / factor + t * trained;
}

static void b053_the_rotation_table_follows_llama3_scaling_far_out(void **state)
{
    (void)state;
    const int32_t positions[] = { 0, 1000, 8192, 20000, 131071 };
    const double factors[] = { 1, 8, 32 };
    enum { DIMS = 128 };
    for (size_t f = 0; f < sizeof factors / sizeof factors[0]; f++)
        for (size_t i = 0; i < sizeof positions / sizeof positions[0]; i++)
            for (int32_t pair = 0; pair < DIMS / 2; pair++) {
                model_rope rope = { .base = 500000, .factor = 1, .dims = DIMS, .magnitude = 1 };
                double turn = llama3_frequency(rope.base, DIMS, pair, factors[f]);
                // The file holds the divisor as a float.
                float divisor = (float)(pow(rope.base, -2.0 * pair / DIMS) / turn);
                double angle = positions[i] * pow(rope.base, -2.0 * pair / DIMS) / (double)divisor;
                float cosine, sine;
                long double frequency = model_rope_frequency(&rope, (double)divisor, pair);
                model_rope_rotation(&rope, frequency, positions[i], &cosine, &sine);
                assert_true(fabs((double)frequency / turn - 1) < 1e-5);
                assert_true(fabs((double)cosine - cos(angle)) < 1e-7);
                assert_true(fabs((double)sine - sin(angle)) < 1e-7);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float_weights_match_to_a_thousandth),
        cmocka_unit_test(one_key_head_for_all_and_one_for_each_match),
        cmocka_unit_test(b052_an_untied_head_with_biases_and_padding_rows_matches),
        cmocka_unit_test(b055_a_head_size_of_its_own_matches),
        cmocka_unit_test(b053_every_rotation_scaling_matches),
        cmocka_unit_test(an_attention_window_matches),
        cmocka_unit_test(qwen2_matches_with_biases_and_halves_that_rotate),
        cmocka_unit_test(gemma3_matches_with_windows_and_its_norms),
        cmocka_unit_test(gemma3_of_62_layers_scales_scores_by_its_width),
        cmocka_unit_test(quantised_weights_stay_close),
        cmocka_unit_test(logits_have_the_same_bits_however_the_prompt_is_cut),
        cmocka_unit_test(b053_the_rotation_table_follows_llama3_scaling_far_out),
        cmocka_unit_test(b054_prompts_longer_than_the_window_match_however_they_are_cut),
        cmocka_unit_test(b058_the_order_of_q_and_k_rows_belongs_to_the_family),
        cmocka_unit_test(b064_gemma3_matches_where_half_precision_would_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
