// Rendering equals the reference, case by case and exactly (tests/golden/chat/README.md and the
// README of the shared golden folder say where the truth comes from). The small set in the tree
// always runs; the full set and the models' own templates run where their files are.
#include "checkpoint/gguf.h"
#include "text/json_wide.h"
#include "text/template.h"

#include "harness/places.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>

#define SHOWN_MAX 8

typedef struct tally {
    int cases, wrong;
} tally;

static void wrong(tally *t, const char *what, slice line, const char *got)
{
    if (t->wrong++ < SHOWN_MAX)
        print_message("%s: %.*s\n    gave: %s\n", what, line.size < 600 ? (int)line.size : 600,
                      line.data, got);
}

// Compare one render with the case's "text" or "error".
static void compare(tally *t, slice line, json_t *row, status code, const template_output *output,
                    const error *failure)
{
    json_t *text = json_object_get(row, "text"), *message = json_object_get(row, "message");
    const char *kind = json_string_value(json_object_get(row, "error"));
    slice got = buffer_slice(&output->text);
    t->cases++;
    if (text && code != STATUS_OK)
        wrong(t, "failed", line, failure->text);
    else if (text &&
             !slice_equal(got, (slice){ json_string_value(text), json_string_length(text) }))
        wrong(t, "other text", line, got.data);
    else if (!text && (code == STATUS_OK || got.size > 0))
        wrong(t, "did not fail", line, got.data);
    else if (!text && kind && strcmp(kind, "raised") == 0 &&
             (output->fault != TEMPLATE_FAULT_RAISED ||
              strcmp(failure->text, json_string_value(message)) != 0))
        wrong(t, "raised something else", line, failure->text);
}

static void run_feature(tally *t, slice line, template_output *output)
{
    template *opened = NULL;
    error failure = { 0 };
    json_error_t why;
    json_t *wide, *row = json_wide_load(line, JSON_ALLOW_NUL, &wide, &why);
    assert_non_null(row);
    json_t *source = json_object_get(row, "template");
    template_context context = { .variables = json_object_get(row, "context"),
                                 .integers = wide,
                                 .now_s = 1234567890 };
    output->text.size = 0;
    output->fault = TEMPLATE_FAULT_NONE;
    status code = template_open((slice){ json_string_value(source), json_string_length(source) },
                                &opened, &failure);
    if (code == STATUS_OK)
        code = template_render(opened, &context, NULL, output, &failure);
    compare(t, line, row, code, output, &failure);
    template_close(opened);
    json_decref(row);
    json_decref(wide);
}

static void run_features(const char *path, int at_least)
{
    buffer bytes = { 0 };
    template_output output = { 0 };
    tally t = { 0 };
    slice line;
    assert_true(places_read(path, &bytes));
    slice rest = buffer_slice(&bytes);
    while (slice_take_line(&rest, &line))
        run_feature(&t, line, &output);
    print_message("%d cases, %d wrong\n", t.cases, t.wrong);
    template_output_close(&output);
    buffer_close(&bytes);
    assert_int_equal(t.wrong, 0);
    assert_in_range(t.cases, at_least, INT32_MAX);
}

static void the_small_set_of_features_renders_as_the_reference(void **state)
{
    (void)state;
    run_features(PENSTOCK_SOURCE_DIR "/tests/golden/chat/features.jsonl", 60);
}

static void the_full_set_of_features_renders_as_the_reference(void **state)
{
    (void)state;
    const char *path = places_shared(PENSTOCK_SOURCE_DIR, "golden/chat/features.jsonl");
    if (!path) {
        print_message("skipped: no shared file golden/chat/features.jsonl\n");
        skip();
    }
    run_features(path, 267);
}

// --- the template in a model's file ---

static bool token_text(const gguf *file, const char *key, json_t *context, const char *name)
{
    uint64_t id;
    gguf_array tokens;
    slice text = { 0 };
    if (!gguf_has(file, key, NULL))
        return false;
    assert_int_equal(gguf_get_u64(file, key, &id, NULL), STATUS_OK);
    assert_int_equal(gguf_get_array(file, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, NULL),
                     STATUS_OK);
    assert_true(id < tokens.count);
    for (uint64_t i = 0; i <= id; i++)
        text = gguf_array_take_string(&tokens);
    return json_object_set_new(context, name, json_stringn(text.data, text.size)) == 0;
}

static void run_conversations(const char *model_file, const char *cases)
{
    gguf *file = NULL;
    template *opened = NULL;
    template_output output = { 0 };
    error failure = { 0 };
    buffer bytes = { 0 };
    tally t = { 0 };
    slice source, line;
    const char *path = places_model(model_file);
    if (!path) {
        print_message("skipped: no model file %s\n", model_file);
        skip();
    }
    assert_int_equal(gguf_open(path, &file, &failure), STATUS_OK);
    path = places_shared(PENSTOCK_SOURCE_DIR, cases);
    if (!path) {
        gguf_close(file);
        print_message("skipped: no shared file %s\n", cases);
        skip();
    }
    assert_true(places_read(path, &bytes));
    assert_int_equal(gguf_get_string(file, "tokenizer.chat_template", &source, &failure),
                     STATUS_OK);
    if (template_open(source, &opened, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
    json_t *tokens = json_object();
    token_text(file, "tokenizer.ggml.bos_token_id", tokens, "bos_token");
    token_text(file, "tokenizer.ggml.eos_token_id", tokens, "eos_token");
    token_text(file, "tokenizer.ggml.padding_token_id", tokens, "pad_token");
    slice rest = buffer_slice(&bytes);
    while (slice_take_line(&rest, &line)) {
        json_t *row = json_loadb(line.data, line.size, JSON_ALLOW_NUL, NULL);
        assert_non_null(row);
        json_object_update(row, tokens);
        template_context context = { .variables = row };
        status code = template_render(opened, &context, NULL, &output, &failure);
        compare(&t, line, row, code, &output, &failure);
        json_decref(row);
    }
    print_message("%d conversations, %d wrong\n", t.cases, t.wrong);
    json_decref(tokens);
    template_close(opened);
    template_output_close(&output);
    gguf_close(file);
    buffer_close(&bytes);
    assert_int_equal(t.wrong, 0);
    assert_in_range(t.cases, 120, INT32_MAX);
}

static void conversations_of_smollm2_render_as_the_reference(void **state)
{
    (void)state;
    run_conversations("SmolLM2-135M-Instruct.Q4_1.gguf", "golden/chat/smollm2-135m.jsonl");
}

static void conversations_of_qwen_render_as_the_reference(void **state)
{
    (void)state;
    run_conversations("Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf",
                      "golden/chat/qwen2.5-coder-0.5b.jsonl");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_small_set_of_features_renders_as_the_reference),
        cmocka_unit_test(the_full_set_of_features_renders_as_the_reference),
        cmocka_unit_test(conversations_of_smollm2_render_as_the_reference),
        cmocka_unit_test(conversations_of_qwen_render_as_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
