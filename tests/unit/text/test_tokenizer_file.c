// What a file may say about its tokenizer: special ids (B056) and hostile metadata (B046),
// SentencePiece on a small scale (B029, B037).
#include "text/detokenizer.h"
#include "text/encoder.h"

#include "harness/small_tokenizer.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>

static const char *const merges[] = { "h e", NULL };
static const char *const controls[] = { "<|im_end|>", "<|eot_id|>", "</s>", NULL };

// Finish the builder and open it as a tokenizer.
static status open_built(gguf_builder *b, tokenizer **t, error *failure)
{
    gguf *file = NULL;
    buffer bytes = gguf_builder_finish(b);
    status result = gguf_open_memory(bytes.data, bytes.size, "m.gguf", &file, failure);
    if (result == STATUS_OK)
        result = tokenizer_open(file, t, failure);
    gguf_close(file);
    buffer_close(&bytes);
    return result;
}

static void refused(gguf_builder *b, const char *expected)
{
    tokenizer *t = NULL;
    error failure = { 0 };
    status result = open_built(b, &t, &failure);
    assert_true(result == STATUS_BAD_FILE || result == STATUS_UNSUPPORTED);
    assert_null(t);
    if (strncmp(failure.text, "m.gguf: ", 8) != 0 || strstr(failure.text, expected) == NULL)
        fail_msg("\"%s\" does not contain \"%s\"", failure.text, expected);
}

static gguf_builder small(void)
{
    gguf_builder b = { 0 };
    small_tokenizer_put(&b, &(small_tokenizer){ .merges = merges, .controls = controls });
    return b;
}

static void b056_all_sources_of_end_tokens_are_joined(void **state)
{
    (void)state;
    gguf_builder b = small();
    tokenizer *t;
    error failure;
    size_t count;
    gguf_builder_u32(&b, "tokenizer.ggml.eos_token_id", 259); // </s>
    gguf_builder_u32(&b, "tokenizer.ggml.eot_token_id", 'x');
    gguf_builder_u32(&b, "tokenizer.ggml.bos_token_id", 1);
    assert_int_equal(open_built(&b, &t, &failure), STATUS_OK);
    const int32_t *ids = tokenizer_end_ids(t, &count);
    const int32_t expected[] = { 'x', 257, 258, 259 }; // <|im_end|> and <|eot_id|> by spelling
    assert_int_equal(count, 4);
    assert_memory_equal(ids, expected, sizeof(expected));
    assert_true(tokenizer_is_end(t, 257));
    assert_false(tokenizer_is_end(t, 1));
    assert_int_equal(tokenizer_bos(t), 1);
    assert_int_equal(tokenizer_eos(t), 259);
    assert_int_equal(tokenizer_unknown(t), TOKENIZER_NO_ID);
    assert_false(tokenizer_adds_bos(t));
    assert_false(tokenizer_adds_eos(t));
    tokenizer_close(t);
}

static void b056_ids_outside_the_vocabulary_are_refused(void **state)
{
    (void)state;
    const char *keys[] = { "bos_token_id", "eos_token_id",     "eot_token_id",
                           "eom_token_id", "unknown_token_id", "padding_token_id" };
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        char key[64], expected[128];
        gguf_builder b = small();
        snprintf(key, sizeof(key), "tokenizer.ggml.%s", keys[i]);
        snprintf(expected, sizeof(expected), "%s is 260; the vocabulary has ids 0 to 259", key);
        gguf_builder_u32(&b, key, 260);
        refused(&b, expected);
    }
    gguf_builder b = small();
    gguf_builder_u32(&b, "tokenizer.ggml.bos_token_id", 4294967295u);
    refused(&b, "tokenizer.ggml.bos_token_id is 4294967295");
    b = small();
    gguf_builder_string(&b, "tokenizer.ggml.bos_token_id", "1");
    refused(&b, "is of kind string; an integer is expected");
    b = small();
    gguf_builder_key(&b, "tokenizer.ggml.bos_token_id", GGUF_I8);
    buffer_append_byte(&b.keys, (char)0xff);
    refused(&b, "is -1; it must not be negative");
    b = small();
    gguf_builder_bool(&b, "tokenizer.ggml.add_bos_token", true);
    refused(&b, "tokenizer.ggml.bos_token_id is missing");
}

// Tokens and one more key of a file that is otherwise right.
static gguf_builder four_tokens(const char *model)
{
    const char *texts[] = { "a", "b", "ab", "c" };
    gguf_builder b = { 0 };
    gguf_builder_string(&b, "tokenizer.ggml.model", model);
    gguf_builder_string(&b, "tokenizer.ggml.pre", "gpt-2");
    gguf_builder_strings(&b, "tokenizer.ggml.tokens", texts, 4);
    return b;
}

static void put_array(gguf_builder *b, const char *key, gguf_kind kind, const void *bytes,
                      size_t size, uint64_t count)
{
    gguf_builder_key(b, key, GGUF_ARRAY);
    gguf_put_u32(&b->keys, kind);
    gguf_put_u64(&b->keys, count);
    buffer_append(&b->keys, bytes, size);
}

static void b046_arrays_of_the_wrong_type_or_length_are_refused(void **state)
{
    (void)state;
    const uint8_t kinds[] = { 1, 1, 1, 1 };
    gguf_builder b = four_tokens("llama");
    const char *texts[] = { "1", "1", "1", "1" };
    gguf_builder_strings(&b, "tokenizer.ggml.scores", texts, 4);
    refused(&b, "tokenizer.ggml.scores is an array of string; an array of f64 is expected");
    b = four_tokens("llama");
    put_array(&b, "tokenizer.ggml.scores", GGUF_U8, kinds, 3, 3);
    refused(&b, "tokenizer.ggml.scores has 3 entries for 4 tokens");
    b = four_tokens("llama");
    put_array(&b, "tokenizer.ggml.scores", GGUF_F32, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xc0\x7f", 16, 4);
    refused(&b, "tokenizer.ggml.scores of token 3 is not a number");
    b = four_tokens("gpt2");
    gguf_builder_strings(&b, "tokenizer.ggml.token_type", texts, 4);
    refused(&b, "tokenizer.ggml.token_type is an array of string");
    b = four_tokens("gpt2");
    put_array(&b, "tokenizer.ggml.token_type", GGUF_F64, "01234567890123456789012345678901", 32, 4);
    refused(&b, "tokenizer.ggml.token_type is an array of f64; an array of u64 is expected");
    b = four_tokens("gpt2");
    put_array(&b, "tokenizer.ggml.token_type", GGUF_U8, "\1\1\1\7", 4, 4);
    refused(&b, "tokenizer.ggml.token_type of token 3 is not 1 to 6");
    b = four_tokens("gpt2");
    put_array(&b, "tokenizer.ggml.token_type", GGUF_U8, kinds, 3, 3);
    refused(&b, "tokenizer.ggml.token_type has 3 entries for 4 tokens");
    b = four_tokens("gpt2");
    put_array(&b, "tokenizer.ggml.merges", GGUF_U32, "1234", 4, 1);
    refused(&b, "tokenizer.ggml.merges is an array of u32; an array of string is expected");
    b = four_tokens("gpt2");
    refused(&b, "tokenizer.ggml.merges (an array of string) is missing");
}

// What stands beside a special token would begin or end inside a character.
static void b046_special_tokens_must_be_whole_characters(void **state)
{
    (void)state;
    const uint8_t kinds[2][4] = { { 1, 1, 3, 1 }, { 1, 1, 4, 1 } };
    const char *texts[] = { "a", "b", "\xe2\x82", "c" };
    const char *models[] = { "gpt2", "llama" };
    for (int i = 0; i < 4; i++) {
        gguf_builder b = { 0 };
        gguf_builder_string(&b, "tokenizer.ggml.model", models[i / 2]);
        gguf_builder_string(&b, "tokenizer.ggml.pre", "gpt-2");
        gguf_builder_strings(&b, "tokenizer.ggml.tokens", texts, 4);
        put_array(&b, "tokenizer.ggml.token_type", GGUF_U8, kinds[i % 2], 4, 4);
        refused(&b, "token 2 is a control or user-defined one and is not UTF-8");
    }
}

static void b046_merges_must_be_made_of_tokens(void **state)
{
    (void)state;
    const char *bad[] = { "a", "", " ", "a ", " a", "a  b", "a z", "b a", "a\xff b", "\xe2\x82 b" };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        gguf_builder b = four_tokens("gpt2");
        gguf_builder_strings(&b, "tokenizer.ggml.merges", (const char *[]){ "a b", bad[i] }, 2);
        refused(&b, "tokenizer.ggml.merges: merge 1 (\"");
    }
}

static void b036_unknown_models_and_pretokenizers_are_refused_by_name(void **state)
{
    (void)state;
    gguf_builder b = four_tokens("t5");
    refused(&b, "tokenizer.ggml.model is \"t5\", which is not supported; known are gpt2 and llama");
    b = (gguf_builder){ 0 };
    refused(&b, "key tokenizer.ggml.model (a string) is missing");
    small_tokenizer_put(&b, &(small_tokenizer){ .pre = "default", .merges = merges });
    refused(&b, "tokenizer.ggml.pre is \"default\"");
    gguf_builder_string(&b, "tokenizer.ggml.model", "gpt2");
    refused(&b, "key tokenizer.ggml.pre (a string) is missing");
    gguf_builder_string(&b, "tokenizer.ggml.model", "gpt2");
    gguf_builder_string(&b, "tokenizer.ggml.pre", "gpt-2");
    refused(&b, "key tokenizer.ggml.tokens (an array of string) is missing");
    gguf_builder_string(&b, "tokenizer.ggml.model", "gpt2");
    gguf_builder_string(&b, "tokenizer.ggml.pre", "gpt-2");
    gguf_builder_strings(&b, "tokenizer.ggml.tokens", NULL, 0);
    refused(&b, "tokenizer.ggml.tokens has 0 tokens");
}

// Pieces "a" "b" "ab" "bc" with scores, byte tokens for E2 82 AC, a space.
static void sentencepiece_joins_the_best_score_and_falls_back_to_bytes(void **state)
{
    (void)state;
    const char *texts[] = { "<unk>",
                            "a",
                            "b",
                            "c",
                            "ab",
                            "bc",
                            "\xe2\x96\x81",
                            "<0xE2>",
                            "<0x82>",
                            "<0xAC>",
                            "\xe2\x96\x81"
                            "a" };
    const float scores[] = { 0, -1, -1, -1, -5, -4, -1, 0, 0, 0, -3 };
    const uint8_t kinds[] = { 2, 1, 1, 1, 1, 1, 1, 6, 6, 6, 1 };
    gguf_builder b = { 0 };
    tokenizer *t;
    encoder *e;
    error failure = { 0 };
    gguf_builder_string(&b, "tokenizer.ggml.model", "llama");
    gguf_builder_strings(&b, "tokenizer.ggml.tokens", texts, 11);
    put_array(&b, "tokenizer.ggml.scores", GGUF_F32, scores, sizeof(scores), 11);
    put_array(&b, "tokenizer.ggml.token_type", GGUF_U8, kinds, 11, 11);
    gguf_builder_u32(&b, "tokenizer.ggml.unknown_token_id", 0);
    gguf_builder_bool(&b, "tokenizer.ggml.add_bos_token", false);
    if (open_built(&b, &t, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
    assert_int_equal(encoder_open(t, &e), STATUS_OK);
    const struct {
        const char *text;
        int32_t ids[6];
        size_t count;
    } cases[] = {
        { "abc", { 10, 5 }, 2 },                   // "▁a" (-3) before "bc" (-4) before "ab" (-5)
        { "c\xe2\x82\xac", { 6, 3, 7, 8, 9 }, 5 }, // the euro sign by bytes
        { "z", { 6, 0 }, 2 },                      // no bytes for it: unknown
        { "a a\xe2\x96\x81"
          "a",
          { 10, 10, 10 },
          3 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        token_list list = { 0 };
        assert_int_equal(
            encoder_encode_text(e, slice_of(cases[i].text), false, 99, &list, &failure), STATUS_OK);
        assert_int_equal(list.count, cases[i].count);
        assert_memory_equal(list.ids, cases[i].ids, list.count * sizeof(int32_t));
        token_list_close(&list);
    }
    // Decoding takes the added space away again, and only that one.
    detokenizer d = detokenizer_begin(t, false);
    buffer text = { 0 };
    const int32_t ids[] = { 10, 10, 7, 8, 9 };
    for (int i = 0; i < 5; i++)
        detokenizer_push(&d, ids[i], &text);
    assert_string_equal(text.data, "a a\xe2\x82\xac");
    buffer_close(&text);
    encoder_close(e);
    tokenizer_close(t);
}

// A tokenizer of pieces with byte tokens, and no space in front.
static tokenizer *open_pieces(const small_pieces *what)
{
    gguf_builder b = { 0 };
    tokenizer *t;
    error failure = { 0 };
    small_tokenizer_put_pieces(&b, what);
    gguf_builder_bool(&b, "tokenizer.ggml.add_bos_token", false);
    gguf_builder_bool(&b, "tokenizer.ggml.add_space_prefix", false);
    if (open_built(&b, &t, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
    return t;
}

// Encode content; the tokens' bytes joined by '|'.
static void pieces_of(encoder *e, const tokenizer *t, const char *text, buffer *joined)
{
    token_list list = { 0 };
    error failure = { 0 };
    buffer_clear(joined);
    assert_int_equal(encoder_encode_text(e, slice_of(text), false, 999, &list, &failure),
                     STATUS_OK);
    for (size_t i = 0; i < list.count; i++) {
        assert_false(tokenizer_is_control(t, list.ids[i]));
        if (i > 0)
            buffer_append_byte(joined, '|');
        buffer_append_slice(joined, tokenizer_token_bytes(t, list.ids[i]));
    }
    token_list_close(&list);
}

static void b029_sentencepiece_content_never_becomes_a_control_token(void **state)
{
    (void)state;
    const char *pieces[] = { "<", "/", "s", ">", "</", "s>", NULL };
    const char *control[] = { "</s>", "<start_of_turn>", "<end_of_turn>", "<|eot_id|>", NULL };
    tokenizer *t =
        open_pieces(&(small_pieces){ .bytes = true, .pieces = pieces, .controls = control });
    encoder *e;
    buffer joined = { 0 };
    assert_int_equal(encoder_open(t, &e), STATUS_OK);
    pieces_of(e, t, "</s>", &joined);
    assert_string_equal(joined.data, "</|s>");
    for (int i = 1; control[i]; i++) {
        pieces_of(e, t, control[i], &joined);
        assert_true(joined.size > 2 * strlen(control[i]) - 3); // nearly a token for each byte
    }
    // Markup means them.
    token_list list = { 0 };
    error failure = { 0 };
    assert_int_equal(encoder_encode_text(e, SLICE("</s>"), true, 9, &list, &failure), STATUS_OK);
    assert_int_equal(list.count, 1);
    assert_true(tokenizer_is_control(t, list.ids[0]));
    token_list_close(&list);
    buffer_close(&joined);
    encoder_close(e);
    tokenizer_close(t);
}

#define THAI_S "\xe0\xb8\xaa"
#define THAI_W "\xe0\xb8\xa7"
#define THAI_A "\xe0\xb8\xb1" // a vowel that is written on the letter before it
#define ACUTE "\xcc\x81"

static void b037_symbols_are_code_points_and_nothing_is_composed(void **state)
{
    (void)state;
    const char *pieces[] = { THAI_S, THAI_W, THAI_A, THAI_S THAI_W, "e", ACUTE, "\xc3\xa9", NULL };
    const struct {
        const char *text, *expected;
    } cases[] = {
        { THAI_S THAI_W THAI_A THAI_S, THAI_S THAI_W "|" THAI_A "|" THAI_S },
        { "e" ACUTE, "e|" ACUTE }, // stays in two parts, though there is a token for the whole
        { "\xc3\xa9", "\xc3\xa9" },
        { "\xe2\x80\x8b", "\xe2|\x80|\x8b" }, // no token: its bytes
        { "e\xc2\xa0"
          "e",
          "e|\xc2|\xa0|e" },
        { "\xf0\x9f\x87\xa8\xf0\x9f\x87\xbf", "\xf0|\x9f|\x87|\xa8|\xf0|\x9f|\x87|\xbf" },
    };
    tokenizer *t = open_pieces(&(small_pieces){ .bytes = true, .pieces = pieces });
    encoder *e;
    buffer joined = { 0 };
    assert_int_equal(encoder_open(t, &e), STATUS_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        pieces_of(e, t, cases[i].text, &joined);
        assert_string_equal(joined.data, cases[i].expected);
    }
    buffer_close(&joined);
    encoder_close(e);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b056_all_sources_of_end_tokens_are_joined),
        cmocka_unit_test(b056_ids_outside_the_vocabulary_are_refused),
        cmocka_unit_test(b046_arrays_of_the_wrong_type_or_length_are_refused),
        cmocka_unit_test(b046_special_tokens_must_be_whole_characters),
        cmocka_unit_test(b046_merges_must_be_made_of_tokens),
        cmocka_unit_test(b036_unknown_models_and_pretokenizers_are_refused_by_name),
        cmocka_unit_test(sentencepiece_joins_the_best_score_and_falls_back_to_bytes),
        cmocka_unit_test(b029_sentencepiece_content_never_becomes_a_control_token),
        cmocka_unit_test(b037_symbols_are_code_points_and_nothing_is_composed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
