// Tokenisation equals the reference implementations, case by case and exactly
// (tests/golden/tokenizer/README.md and the README of the shared golden folder say where the truth
// comes from). The small set in the tree always runs where the model is there; the full sets and
// the other models run where their files are.
#include "text/detokenizer.h"
#include "text/encoder.h"
#include "text/unicode.h"

#include "harness/places.h"
#include "harness/sha256.h"

#include <jansson.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>

#define DEFAULT_MODEL "SmolLM2-135M-Instruct.Q4_1.gguf"
#define SHOWN_MAX 8

typedef struct model {
    tokenizer *tokens;
    encoder *encode;
    int cases, wrong;
} model;

static bool model_open(model *m, const char *file_name)
{
    gguf *file = NULL;
    error failure = { 0 };
    *m = (model){ 0 };
    const char *path = places_model(file_name);
    if (path == NULL)
        return false;
    if (gguf_open(path, &file, &failure) != STATUS_OK ||
        tokenizer_open(file, &m->tokens, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
    gguf_close(file); // a tokenizer outlives its file
    assert_int_equal(encoder_open(m->tokens, &m->encode), STATUS_OK);
    return true;
}

static void model_close(model *m)
{
    encoder_close(m->encode);
    tokenizer_close(m->tokens);
}

static void wrong(model *m, const char *what, slice text, const token_list *got)
{
    if (m->wrong++ >= SHOWN_MAX)
        return;
    buffer shown = { 0 };
    buffer_append_json(&shown, text);
    print_message("%s of %.*s:", what, shown.size < 200 ? (int)shown.size : 200, shown.data);
    for (size_t i = 0; i < got->count && i < 40; i++)
        print_message(" %d", got->ids[i]);
    print_message("\n");
    buffer_close(&shown);
}

static bool same_ids(const json_t *expected, const token_list *got)
{
    if (json_array_size(expected) != got->count)
        return false;
    for (size_t i = 0; i < got->count; i++)
        if (json_integer_value(json_array_get(expected, i)) != got->ids[i])
            return false;
    return true;
}

static void check_ids(model *m, slice text, bool special, const json_t *expected, const char *what)
{
    token_list got = { 0 };
    error failure = { 0 };
    assert_true(json_is_array(expected));
    status result = encoder_encode_text(m->encode, text, special, SIZE_MAX, &got, &failure);
    m->cases++;
    if (result != STATUS_OK || !same_ids(expected, &got))
        wrong(m, what, text, &got);
    token_list_close(&got);
}

// Raw bytes of the tokens, and the stream of a detokenizer that keeps control tokens.
static void decode(const model *m, const json_t *ids, buffer *raw, buffer *streamed)
{
    detokenizer d = detokenizer_begin(m->tokens, true);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        int32_t id = (int32_t)json_integer_value(json_array_get(ids, i));
        size_t before = streamed->size;
        buffer_append_slice(raw, tokenizer_token_bytes(m->tokens, id));
        assert_int_equal(detokenizer_push(&d, id, streamed), STATUS_OK);
        slice step = { streamed->data + before, streamed->size - before };
        assert_true(step.size == 0 || unicode_valid_size(step) == step.size);
    }
    detokenizer_end(&d, streamed);
}

static void check_decoding(model *m, const json_t *ids, slice bytes, const char *what)
{
    buffer raw = { 0 }, streamed = { 0 }, whole = { 0 };
    token_list none = { 0 };
    decode(m, ids, &raw, &streamed);
    unicode_append_valid(&whole, bytes);
    m->cases++;
    if (!slice_equal(buffer_slice(&raw), bytes) ||
        !slice_equal(buffer_slice(&streamed), buffer_slice(&whole)))
        wrong(m, what, bytes, &none);
    buffer_close(&raw);
    buffer_close(&streamed);
    buffer_close(&whole);
}

static int base64_value(char c)
{
    const char *digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = c != 0 ? strchr(digits, c) : NULL;
    return found != NULL ? (int)(found - digits) : -1;
}

static void append_base64(buffer *out, const char *text)
{
    uint32_t bits = 0;
    int count = 0;
    for (; base64_value(*text) >= 0; text++) {
        bits = bits << 6 | (uint32_t)base64_value(*text);
        count += 6;
        if (count >= 8) {
            count -= 8;
            buffer_append_byte(out, (char)(bits >> count));
        }
    }
}

static void check_vocabulary(model *m, const json_t *row)
{
    buffer all = { 0 };
    char hex[65];
    token_list none = { 0 };
    int32_t count = tokenizer_token_count(m->tokens);
    for (int32_t i = 0; i < count; i++) {
        slice bytes = tokenizer_token_bytes(m->tokens, i);
        uint32_t size = (uint32_t)bytes.size;
        buffer_append(&all, &size, sizeof(size));
        buffer_append_slice(&all, bytes);
    }
    sha256_hex(all.data, all.size, hex);
    m->cases++;
    if (json_integer_value(json_object_get(row, "tokens")) != count ||
        strcmp(hex, json_string_value(json_object_get(row, "sha256"))) != 0)
        wrong(m, "vocabulary", slice_of(hex), &none);
    buffer_close(&all);
}

static void check_row(model *m, const json_t *row)
{
    const json_t *text = json_object_get(row, "text"), *ids = json_object_get(row, "ids");
    const char *kind = json_string_value(json_object_get(row, "kind"));
    if (text != NULL) {
        const json_t *decoded = json_object_get(row, "decoded");
        slice input = { json_string_value(text), json_string_length(text) };
        slice output = { json_string_value(decoded), json_string_length(decoded) };
        check_ids(m, input, false, ids, "ids");
        check_ids(m, input, true, json_object_get(row, "ids_special"), "ids_special");
        check_decoding(m, ids, output, "decoded");
        return;
    }
    if (strcmp(kind, "vocabulary") == 0) {
        check_vocabulary(m, row);
        return;
    }
    buffer bytes = { 0 };
    append_base64(&bytes, json_string_value(json_object_get(row, "bytes")));
    if (strcmp(kind, "encode") == 0)
        check_ids(m, buffer_slice(&bytes), false, ids, "ids of ill-formed bytes");
    else
        check_decoding(m, ids, buffer_slice(&bytes), "bytes");
    buffer_close(&bytes);
}

static void run_file(model *m, const char *path)
{
    buffer file = { 0 };
    slice line;
    int before = m->cases;
    assert_true(places_read(path, &file));
    for (slice rest = buffer_slice(&file); slice_take_line(&rest, &line);) {
        json_error_t why;
        json_t *row = json_loadb(line.data, line.size, JSON_ALLOW_NUL, &why);
        if (row == NULL)
            fail_msg("%s: %s", path, why.text);
        check_row(m, row);
        json_decref(row);
    }
    print_message("%s: %d comparisons\n", path, m->cases - before);
    buffer_close(&file);
}

// Prompts of the log-probability set: `prompt_ids` has the BOS in front where the model wants one.
static void run_prompts(model *m, const char *path)
{
    buffer file = { 0 };
    slice line;
    assert_true(places_read(path, &file));
    for (slice rest = buffer_slice(&file); slice_take_line(&rest, &line);) {
        json_t *row = json_loadb(line.data, line.size, JSON_ALLOW_NUL, NULL);
        json_t *ids = json_object_get(row, "prompt_ids");
        slice text = { json_string_value(json_object_get(row, "text")),
                       json_string_length(json_object_get(row, "text")) };
        assert_non_null(ids);
        if (tokenizer_adds_bos(m->tokens)) {
            assert_int_equal(json_integer_value(json_array_get(ids, 0)), tokenizer_bos(m->tokens));
            json_array_remove(ids, 0);
        }
        check_ids(m, text, true, ids, "prompt_ids");
        json_decref(row);
    }
    buffer_close(&file);
}

// The first tokens of the perplexity text, without special tokens; the reference has the BOS in
// front where the model wants one.
static void run_perplexity(model *m, const char *name)
{
    char relative[128];
    buffer text = { 0 };
    token_list got = { 0 };
    error failure = { 0 };
    snprintf(relative, sizeof(relative), "golden/perplexity/%s.json", name);
    const char *path = places_shared(PENSTOCK_SOURCE_DIR, relative);
    json_t *reference = path == NULL ? NULL : json_load_file(path, 0, NULL);
    path = places_shared(PENSTOCK_SOURCE_DIR, "golden/perplexity/text.txt");
    if (reference == NULL || path == NULL)
        return;
    json_t *ids = json_object_get(reference, "ids");
    assert_true(places_read(path, &text) && json_array_size(ids) == 1024);
    if (tokenizer_adds_bos(m->tokens)) {
        assert_int_equal(json_integer_value(json_array_get(ids, 0)), tokenizer_bos(m->tokens));
        json_array_remove(ids, 0);
    }
    assert_int_equal(
        encoder_encode_text(m->encode, buffer_slice(&text), false, SIZE_MAX, &got, &failure),
        STATUS_OK);
    assert_true(got.count > json_array_size(ids));
    got.count = json_array_size(ids);
    m->cases++;
    if (!same_ids(ids, &got))
        wrong(m, "perplexity ids", buffer_slice(&text), &got);
    print_message("%s: %zu ids\n", relative, got.count);
    token_list_close(&got);
    buffer_close(&text);
    json_decref(reference);
}

// All cases of one model, or skip.
static void run_shared(const char *name, const char *file_name)
{
    model m;
    char relative[128];
    const char *suffixes[] = { ".jsonl", ".bytes.jsonl" };
    if (!model_open(&m, file_name)) {
        print_message("skipped: no model file %s\n", file_name);
        skip();
    }
    for (int i = 0; i < 2; i++) {
        snprintf(relative, sizeof(relative), "golden/tokenizer/%s%s", name, suffixes[i]);
        const char *path = places_shared(PENSTOCK_SOURCE_DIR, relative);
        if (path == NULL) {
            model_close(&m);
            print_message("skipped: no shared file %s\n", relative);
            skip();
        }
        run_file(&m, path);
    }
    snprintf(relative, sizeof(relative), "golden/logits/%s.jsonl", name);
    const char *prompts = places_shared(PENSTOCK_SOURCE_DIR, relative);
    if (prompts != NULL)
        run_prompts(&m, prompts);
    run_perplexity(&m, name);
    model_close(&m);
    assert_int_equal(m.wrong, 0);
}

static void the_small_set_is_equal(void **state)
{
    (void)state;
    model m;
    assert_true(model_open(&m, DEFAULT_MODEL));
    run_file(&m, PENSTOCK_SOURCE_DIR "/tests/golden/tokenizer/smollm2-135m.jsonl");
    model_close(&m);
    assert_true(m.cases > 200);
    assert_int_equal(m.wrong, 0);
}

static void b036_smollm2_is_equal(void **state)
{
    (void)state;
    run_shared("smollm2-135m", DEFAULT_MODEL);
}

static void b036_qwen2_is_equal(void **state)
{
    (void)state;
    run_shared("qwen2.5-coder-0.5b", "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf");
}

static void b036_b037_gemma3_is_equal(void **state)
{
    (void)state;
    run_shared("gemma3-270m", "gemma-3-270m.Q4_K_M.gguf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_small_set_is_equal),
        cmocka_unit_test(b036_smollm2_is_equal),
        cmocka_unit_test(b036_qwen2_is_equal),
        cmocka_unit_test(b036_b037_gemma3_is_equal),
    };
    if (places_model(DEFAULT_MODEL) == NULL) {
        printf("skipped: no model file %s\n", DEFAULT_MODEL);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
