// Streaming text: B032 (no half characters, no false U+FFFD), B033 (an answer that ends inside one)
// and B034 (spaces in front).
#include "text/detokenizer.h"

#include "text/unicode.h"

#include "base/random.h"
#include "harness/seed.h"
#include "harness/small_tokenizer.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>

static tokenizer *tokens;

static int open_tokens(void **state)
{
    (void)state;
    gguf_builder b = { 0 };
    gguf *file;
    error failure = { 0 };
    const char *merges[] = { "h e", "l l", "he ll", NULL }, *controls[] = { "<|im_end|>", NULL };
    const char *user_defined[] = { "<tool>", NULL };
    small_tokenizer_put(
        &b,
        &(small_tokenizer){ .merges = merges, .controls = controls, .user_defined = user_defined });
    buffer bytes = gguf_builder_finish(&b);
    assert_int_equal(gguf_open_memory(bytes.data, bytes.size, "m", &file, &failure), STATUS_OK);
    if (tokenizer_open(file, &tokens, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
    gguf_close(file);
    buffer_close(&bytes);
    return 0;
}

static int close_tokens(void **state)
{
    (void)state;
    tokenizer_close(tokens);
    return 0;
}

static void b032_a_character_comes_out_when_it_is_whole(void **state)
{
    (void)state;
    detokenizer d = detokenizer_begin(tokens, false);
    buffer text = { 0 };
    const uint8_t emoji[] = { 0xf0, 0x9f, 0x98, 0x80 };
    for (int i = 0; i < 4; i++) {
        assert_int_equal(text.size, 0);
        assert_int_equal(detokenizer_push(&d, emoji[i], &text), STATUS_OK);
    }
    assert_string_equal(text.data, "\xf0\x9f\x98\x80");
    assert_int_equal(detokenizer_push(&d, 258, &text), STATUS_OK);
    assert_string_equal(text.data, "\xf0\x9f\x98\x80hell");
    // The next token starts with a space while bytes are pending.
    detokenizer_push(&d, 0xe2, &text);
    detokenizer_push(&d, 0x82, &text);
    assert_string_equal(text.data, "\xf0\x9f\x98\x80hell");
    detokenizer_push(&d, ' ', &text);
    assert_string_equal(text.data, "\xf0\x9f\x98\x80hell" UNICODE_REPLACEMENT " ");
    buffer_close(&text);
}

static void bytes_that_can_never_complete_are_not_held(void **state)
{
    (void)state;
    detokenizer d = detokenizer_begin(tokens, false);
    buffer text = { 0 };
    detokenizer_push(&d, 0x98, &text);
    assert_string_equal(text.data, UNICODE_REPLACEMENT);
    buffer_clear(&text);
    detokenizer_push(&d, 0xff, &text);
    assert_string_equal(text.data, UNICODE_REPLACEMENT);
    buffer_clear(&text);
    detokenizer_push(&d, 0xe0, &text);
    assert_int_equal(text.size, 0);
    detokenizer_push(&d, 0x80, &text); // E0 80 is overlong, so neither byte can become anything
    assert_string_equal(text.data, UNICODE_REPLACEMENT UNICODE_REPLACEMENT);
    assert_int_equal(d.held_count, 0);
    buffer_close(&text);
}

static void b033_an_unfinished_character_at_the_end_becomes_one_replacement(void **state)
{
    (void)state;
    detokenizer d = detokenizer_begin(tokens, false);
    buffer text = { 0 };
    detokenizer_push(&d, 0xf0, &text);
    detokenizer_push(&d, 0x9f, &text);
    detokenizer_push(&d, 0x98, &text);
    detokenizer_end(&d, &text);
    assert_string_equal(text.data, UNICODE_REPLACEMENT);
    detokenizer_end(&d, &text);
    assert_string_equal(text.data, UNICODE_REPLACEMENT);
    buffer_close(&text);
}

static void control_tokens_are_dropped_or_kept(void **state)
{
    (void)state;
    int32_t control = tokenizer_special_find(tokens, SLICE("<|im_end|>"));
    int32_t user_defined = tokenizer_special_find(tokens, SLICE("<tool>"));
    detokenizer dropping = detokenizer_begin(tokens, false);
    detokenizer keeping = detokenizer_begin(tokens, true);
    buffer text = { 0 };
    detokenizer_push(&dropping, control, &text);
    detokenizer_push(&dropping, user_defined, &text);
    assert_string_equal(text.data, "<tool>");
    buffer_clear(&text);
    detokenizer_push(&keeping, control, &text);
    assert_string_equal(text.data, "<|im_end|>");
    buffer_close(&text);
}

static void b057_an_id_outside_the_vocabulary_is_refused(void **state)
{
    (void)state;
    detokenizer d = detokenizer_begin(tokens, false);
    buffer text = { 0 };
    assert_int_equal(detokenizer_push(&d, -1, &text), STATUS_NOT_FOUND);
    assert_int_equal(detokenizer_push(&d, tokenizer_token_count(tokens), &text), STATUS_NOT_FOUND);
    assert_int_equal(detokenizer_push(&d, INT32_MAX, &text), STATUS_NOT_FOUND);
    assert_int_equal(text.size, 0);
    buffer_close(&text);
}

// Random bytes in random cuts: the same as repairing the whole at once, and valid at every step.
static void the_text_does_not_depend_on_token_borders(void **state)
{
    (void)state;
    uint64_t seed = seed_choose(), turn = 0;
    static const uint8_t likely[] = { 'a',  0x80, 0x9f, 0xa0, 0xbf, 0xc3,
                                      0xe0, 0xe2, 0xed, 0xf0, 0xf4 };
    for (int round = 0; round < 20000; round++) {
        char bytes[16];
        size_t size = random_mix(seed + turn++) % sizeof(bytes);
        buffer text = { 0 }, whole = { 0 };
        detokenizer d = detokenizer_begin(tokens, false);
        for (size_t i = 0; i < size; i++)
            bytes[i] = (char)likely[random_mix(seed + turn++) % sizeof(likely)];
        for (size_t at = 0, step; at < size; at += step) {
            step = random_mix(seed + turn++) % (size - at + 1);
            detokenizer_push_bytes(&d, (slice){ bytes + at, step }, &text);
            assert_int_equal(unicode_valid_size(buffer_slice(&text)), text.size);
        }
        detokenizer_end(&d, &text);
        unicode_append_valid(&whole, (slice){ bytes, size });
        assert_true(slice_equal(buffer_slice(&text), buffer_slice(&whole)));
        buffer_close(&text);
        buffer_close(&whole);
    }
}

// A SentencePiece vocabulary: every word brings its space, and a text begins with one more.
static void b034_only_the_space_in_front_of_a_prompt_is_dropped(void **state)
{
    (void)state;
    enum { SPACE = 1, FOUR, PARIS, IS };
    const char *pieces[] = { "\xe2\x96\x81", "\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81",
                             "\xe2\x96\x81Paris", "is", NULL };
    const struct {
        int32_t ids[4];
        int count;
        const char *whole, *continued;
    } cases[] = {
        { { PARIS, SPACE, IS, PARIS }, 4, "Paris is Paris", " Paris is Paris" },
        { { FOUR, IS }, 2, "   is", "    is" },
        { { IS, PARIS }, 2, "is Paris", "is Paris" },
        { { SPACE, SPACE, PARIS }, 3, "  Paris", "   Paris" },
    };
    gguf_builder b = { 0 };
    gguf *file;
    error failure = { 0 };
    tokenizer *t;
    small_tokenizer_put_pieces(&b, &(small_pieces){ .pieces = pieces });
    gguf_builder_bool(&b, "tokenizer.ggml.add_bos_token", false);
    buffer bytes = gguf_builder_finish(&b);
    assert_int_equal(gguf_open_memory(bytes.data, bytes.size, "m", &file, &failure), STATUS_OK);
    if (tokenizer_open(file, &t, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        buffer whole = { 0 }, continued = { 0 };
        detokenizer prompt = detokenizer_begin(t, false), answer = detokenizer_continue(t, false);
        for (int k = 0; k < cases[i].count; k++) {
            detokenizer_push(&prompt, cases[i].ids[k], &whole);
            detokenizer_push(&answer, cases[i].ids[k], &continued);
        }
        assert_string_equal(whole.data, cases[i].whole);
        assert_string_equal(continued.data, cases[i].continued);
        buffer_close(&whole);
        buffer_close(&continued);
    }
    tokenizer_close(t);
    gguf_close(file);
    buffer_close(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b032_a_character_comes_out_when_it_is_whole),
        cmocka_unit_test(bytes_that_can_never_complete_are_not_held),
        cmocka_unit_test(b033_an_unfinished_character_at_the_end_becomes_one_replacement),
        cmocka_unit_test(control_tokens_are_dropped_or_kept),
        cmocka_unit_test(b057_an_id_outside_the_vocabulary_is_refused),
        cmocka_unit_test(the_text_does_not_depend_on_token_borders),
        cmocka_unit_test(b034_only_the_space_in_front_of_a_prompt_is_dropped),
    };
    return cmocka_run_group_tests(tests, open_tokens, close_tokens);
}
