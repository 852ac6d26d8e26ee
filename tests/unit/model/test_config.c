// What a checkpoint must say: wrong or unknown things are refused by name before
// anything is computed.
#include "harness/tiny_model.h"
#include "model/model.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

// Open the file that `options` give: configuration, then weights. The sentence is in `failure`.
static status model_try(const tiny_model *options, model_config *config, error *failure)
{
    static const backend_settings settings = { .level = "auto", .threads = 1, .cores = "" };
    buffer bytes = tiny_model_build(options);
    gguf *file;
    backend *device;
    model *m;
    model_limits limits = { 8, 8, 64 };
    assert_int_equal(gguf_open_memory(bytes.data, bytes.size, "tiny.gguf", &file, failure),
                     STATUS_OK);
    assert_int_equal(backend_cpu.open(&settings, &device, failure), STATUS_OK);
    status result = model_config_read(file, config, failure);
    if (result == STATUS_OK)
        result = model_open(file, config, &limits, &backend_cpu, device, &m, failure);
    if (result == STATUS_OK)
        model_close(m);
    backend_cpu.close(device);
    gguf_close(file);
    buffer_close(&bytes);
    return result;
}

static void refused(const tiny_model *options, status expected, const char *word)
{
    model_config config;
    error failure = { 0 };
    status result = model_try(options, &config, &failure);
    if (result != expected || !strstr(failure.text, word))
        fail_msg("%s: \"%s\" should name %s", status_name(result), failure.text, word);
}

static void a_whole_file_is_understood(void **state)
{
    (void)state;
    tiny_model o = tiny_model_default(1);
    model_config c;
    error failure = { 0 };
    o.extra_rows = 3;
    assert_int_equal(model_try(&o, &c, &failure), STATUS_OK);
    assert_string_equal(c.name, "tiny");
    assert_int_equal(c.layers, 4);
    assert_int_equal(c.head_size, 16);
    assert_int_equal(c.rows, tiny_model_vocabulary() + 3);
    assert_int_equal(c.vocabulary, tiny_model_vocabulary());
    assert_true(c.tied && c.family->rope_adjacent);
    assert_int_equal(c.end_id_count, 2); // the key's, and <|endoftext|> by its text
    assert_int_equal(c.end_ids[0], 2);
    assert_int_equal(c.end_ids[1], 0);
}

static void expect_name(const char *given, const char *wanted)
{
    tiny_model o = tiny_model_default(1);
    model_config c;
    error failure = { 0 };
    o.name = given;
    assert_int_equal(model_try(&o, &c, &failure), STATUS_OK);
    assert_string_equal(c.name, wanted);
}

// A worker says the name when it joins, and a router takes no other text than UTF-8.
static void a_name_is_text_that_fits(void **state)
{
    (void)state;
    char given[128], wanted[128];
    for (int letters = 92; letters <= 96; letters++) { // 95 bytes fit
        memset(given, 'a', (size_t)letters);
        strcpy(given + letters, "\u00e9");
        int size = letters > 95 ? 95 : letters + (letters <= 93 ? 2 : 0);
        memcpy(wanted, given, (size_t)size);
        wanted[size] = 0;
        expect_name(given, wanted);
    }
    expect_name("Caf\xe9 7B", "Caf? 7B");
    expect_name("Caf\xe9", "Caf?");
    expect_name("\xe9", "?");
    expect_name("a\nb", "a?b");
    expect_name("Qwen2.5 \u7b14", "Qwen2.5 \u7b14");
    expect_name("", "tiny.gguf");
}

static void b049_sizes_that_disagree_with_the_tensors_are_refused(void **state)
{
    (void)state;
    const struct {
        const char *key;
        uint32_t value;
        const char *word;
    } cases[] = {
        { "llama.block_count", 0, "block_count" },
        { "llama.block_count", 5, "blk.4." },
        { "llama.block_count", 3, "blk.3." },
        { "llama.block_count", 100000, "block_count" },
        { "llama.block_count", 4294967295u, "block_count" },
        { "llama.attention.head_count", 0, "head_count" },
        { "llama.attention.head_count", 3, "head_count" },
        { "llama.attention.head_count", 8, "dimension_count" },
        { "llama.attention.head_count_kv", 0, "head_count_kv" },
        { "llama.attention.head_count_kv", 3, "head_count_kv" },
        { "llama.attention.head_count_kv", 4, "attn_k" },
        { "llama.attention.key_length", 32, "attn_q" },
        { "llama.attention.value_length", 32, "value_length" },
        { "llama.embedding_length", 65, "embedding_length" },
        { "llama.embedding_length", 128, "token_embd" },
        { "llama.embedding_length", 0, "embedding_length" },
        { "llama.feed_forward_length", 256, "ffn_" },
        { "llama.feed_forward_length", 4194304, "ffn_" },
        { "llama.context_length", 0, "context_length" },
        { "llama.rope.dimension_count", 17, "dimension_count" },
        { "llama.rope.dimension_count", 7, "dimension_count" },
        { "tokenizer.ggml.eos_token_id", 100000, "eos_token_id" },
        { "tokenizer.ggml.eot_token_id", 100000, "eot_token_id" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tiny_model o = tiny_model_default(1);
        model_config config;
        error failure = { 0 };
        o.keys[0] = (tiny_model_key){ cases[i].key, cases[i].value };
        assert_int_not_equal(model_try(&o, &config, &failure), STATUS_OK);
        if (!strstr(failure.text, cases[i].word))
            fail_msg("%s = %u: \"%s\" should name %s", cases[i].key, cases[i].value, failure.text,
                     cases[i].word);
    }
}

static void features_that_are_not_computed_are_refused(void **state)
{
    (void)state;
    tiny_model o = tiny_model_default(1);
    o.keys[0] = (tiny_model_key){ "llama.expert_count", 8 };
    refused(&o, STATUS_UNSUPPORTED, "llama.expert_count");
    o.keys[0] = (tiny_model_key){ "llama.final_logit_softcapping", 30 };
    refused(&o, STATUS_UNSUPPORTED, "final_logit_softcapping");
    o.keys[0] = (tiny_model_key){ NULL, 0 };
}

static void b096_types_that_are_not_computed_are_refused_by_name(void **state)
{
    (void)state;
    tiny_model o = tiny_model_default(1);
    o.type = (tensor_type)39; // which is no larger than what the builder writes for it
    refused(&o, STATUS_UNSUPPORTED, "has type MXFP4; this build computes");
    o.type = (tensor_type)20;
    refused(&o, STATUS_UNSUPPORTED, "has type IQ4_NL; this build computes");
}

static void b053_unknown_scalings_are_refused_not_ignored(void **state)
{
    (void)state;
    tiny_model o = tiny_model_default(1);
    model_config config;
    error failure = { 0 };
    const char *const unknown[] = { "dynamic", "llama3", "su", "" };
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        o.rope_scaling = unknown[i];
        refused(&o, STATUS_UNSUPPORTED, "llama.rope.scaling.type is \"");
    }
    o.rope_scaling = "none";
    assert_int_equal(model_try(&o, &config, &failure), STATUS_OK);
    o.rope_scaling = "yarn";
    o.rope_factor = 4;
    refused(&o, STATUS_BAD_FILE, "llama.rope.scaling.original_context_length");
    o.rope_original = 512;
    assert_int_equal(model_try(&o, &config, &failure), STATUS_OK);
    o.rope_factor = 0.5;
    refused(&o, STATUS_BAD_FILE, "llama.rope.scaling.factor");
    o.rope_scaling = "longrope"; // without its lists
    o.rope_factor = 0;
    refused(&o, STATUS_BAD_FILE, "rope_factors_short");
    o.rope_lists = true;
    assert_int_equal(model_try(&o, &config, &failure), STATUS_OK);
    o.rope_scaling = "linear"; // which does not read them
    refused(&o, STATUS_UNSUPPORTED, "rope_factors_");
    o.rope_lists = false;
    o.rope_attention = 0.5;
    refused(&o, STATUS_UNSUPPORTED, "llama.rope.scaling.attn_factor");
    o.rope_attention = 0;
    o.keys[0] = (tiny_model_key){ "llama.rope.scaling.yarn_log_multiplier", 1 };
    refused(&o, STATUS_UNSUPPORTED, "yarn_log_multiplier");
}

static void families_differ_in_what_they_accept(void **state)
{
    (void)state;
    tiny_model o = tiny_model_default(1);
    model_config c;
    error failure = { 0 };
    o.architecture = "qwen2";
    o.biased = true;
    assert_int_equal(model_try(&o, &c, &failure), STATUS_OK);
    assert_false(c.family->rope_adjacent);
    o.window = 64;
    refused(&o, STATUS_UNSUPPORTED, "qwen2.attention.sliding_window");
    o.window = 0;
    o.window_period = 2;
    refused(&o, STATUS_UNSUPPORTED, "qwen2.attention.sliding_window_pattern");
    o.window_period = 0;
    o.window = 64;
    o.architecture = "gemma3";
    o.biased = false;
    assert_int_equal(model_try(&o, &c, &failure), STATUS_OK);
    assert_true(c.embedding_scale == 8 && c.window == 64 && c.window_period == 6);
    assert_true(c.local_rope.base == 10000);
    assert_true(model_layer_is_local(&c, 0) && !model_layer_is_local(&c, 5));
    o.left_out = "blk.1.post_ffw_norm.weight";
    refused(&o, STATUS_BAD_FILE, "blk.1.post_ffw_norm.weight");
    o.left_out = "blk.1.attn_k_norm.weight";
    refused(&o, STATUS_BAD_FILE, "blk.1.attn_k_norm.weight");
    o.left_out = NULL;
    o.window = 0;
    refused(&o, STATUS_BAD_FILE, "gemma3.attention.sliding_window");
    o.architecture = "gemma2";
    refused(&o, STATUS_UNSUPPORTED, "gemma2");
}

static void b051_a_tensor_too_few_or_too_many_is_refused(void **state)
{
    (void)state;
    tiny_model o = tiny_model_default(1);
    o.extra_tensor = "blk.0.attn_q_norm.weight";
    refused(&o, STATUS_UNSUPPORTED, "blk.0.attn_q_norm.weight");
    o.extra_tensor = NULL;
    o.left_out = "blk.2.ffn_up.weight";
    refused(&o, STATUS_BAD_FILE, "blk.2.ffn_up.weight");
    o.left_out = "output_norm.weight";
    refused(&o, STATUS_BAD_FILE, "output_norm.weight");
    o.left_out = "token_embd.weight";
    refused(&o, STATUS_BAD_FILE, "token_embd.weight");
}

static void b056_a_turn_end_of_its_own_is_one_of_the_end_ids(void **state)
{
    (void)state;
    tiny_model o = tiny_model_default(1);
    model_config c;
    error failure = { 0 };
    o.keys[0] = (tiny_model_key){ "tokenizer.ggml.eot_token_id", 9 };
    assert_int_equal(model_try(&o, &c, &failure), STATUS_OK);
    assert_int_equal(c.end_id_count, 3);
    assert_int_equal(c.end_ids[1], 9);
}

static void b052_a_head_is_tied_where_the_file_has_none(void **state)
{
    (void)state;
    tiny_model o = tiny_model_default(1);
    model_config c;
    error failure = { 0 };
    o.untied = true;
    assert_int_equal(model_try(&o, &c, &failure), STATUS_OK);
    assert_false(c.tied);
    o.left_out = "output.weight";
    assert_int_equal(model_try(&o, &c, &failure), STATUS_OK);
    assert_true(c.tied);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_file_is_understood),
        cmocka_unit_test(a_name_is_text_that_fits),
        cmocka_unit_test(b049_sizes_that_disagree_with_the_tensors_are_refused),
        cmocka_unit_test(features_that_are_not_computed_are_refused),
        cmocka_unit_test(b096_types_that_are_not_computed_are_refused_by_name),
        cmocka_unit_test(b053_unknown_scalings_are_refused_not_ignored),
        cmocka_unit_test(families_differ_in_what_they_accept),
        cmocka_unit_test(b051_a_tensor_too_few_or_too_many_is_refused),
        cmocka_unit_test(b056_a_turn_end_of_its_own_is_one_of_the_end_ids),
        cmocka_unit_test(b052_a_head_is_tied_where_the_file_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
