// Prompt text, cut into markup and content. Byte 0 picks the tokenizer, byte 1 how the rest is cut.
//
// With a token for every byte nothing is lost: the ids stand for the repaired text (in normal form
// C where the family composes; with SentencePiece's space in front, and spaces for its marks).
// Content never gives a control token. Decoding in steps equals decoding at once.
#include "text/detokenizer.h"
#include "text/encoder.h"
#include "text/unicode.h"

#include "harness/small_tokenizer.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define SEGMENTS_MAX 8

enum { QWEN2 = 3, PIECES, PIECES_WITHOUT_BYTES, TOKENIZERS };
static const char *const families[] = { "gpt-2", "smollm", "llama-bpe", "qwen2" };
static const char *const controls[] = { "<|im_start|>", "<|im_end|>", "<s>", NULL };
static const char *const user_defined[] = { "<tool>", "<tool><tool>", NULL };
static tokenizer *tokens[TOKENIZERS];
static encoder *encoders[TOKENIZERS];

static void open_one(int which)
{
    const char *merges[] = { "h e", "l l", "he ll", "hell o", "a a", "aa aa", "1 2", "e r", NULL };
    const char *pieces[] = { "\xe2\x96\x81",
                             "h",
                             "e",
                             "l",
                             "o",
                             "a",
                             "aa",
                             "aaaa",
                             "he",
                             "ll",
                             "er",
                             "lo",
                             "\xe2\x96\x81"
                             "he",
                             "\xe2\x96\x81\xe2\x96\x81",
                             "\xc3\xa9",
                             "\xc3\xa9\xc3\xa9",
                             NULL };
    gguf_builder b = { 0 };
    gguf *file;
    error failure;
    if (which < PIECES)
        small_tokenizer_put(&b,
                            &(small_tokenizer){ families[which], merges, controls, user_defined });
    else
        small_tokenizer_put_pieces(
            &b, &(small_pieces){ which == PIECES, pieces, controls, user_defined });
    gguf_builder_bool(&b, "tokenizer.ggml.add_bos_token", false);
    gguf_builder_bool(&b, "tokenizer.ggml.add_space_prefix", which == PIECES);
    buffer bytes = gguf_builder_finish(&b);
    CHECK(gguf_open_memory(bytes.data, bytes.size, "m", &file, &failure) == STATUS_OK);
    CHECK(tokenizer_open(file, &tokens[which], &failure) == STATUS_OK);
    CHECK(encoder_open(tokens[which], &encoders[which]) == STATUS_OK);
    gguf_close(file);
    buffer_close(&bytes);
}

// Equal-sized segments, every other one markup.
static size_t cut(slice text, uint8_t how, encoder_segment *segments)
{
    size_t count = 1 + how % SEGMENTS_MAX, part = text.size / count + 1;
    for (size_t i = 0; i < count; i++) {
        size_t size = text.size < part ? text.size : part;
        segments[i] = (encoder_segment){ { text.data, size }, (i + (how >> 7)) % 2 == 0 };
        text = (slice){ text.data + size, text.size - size };
    }
    return count;
}

// The repaired text as SentencePiece reads it: marks are spaces, and one more stands in front of a
// text that begins with no special token.
static void expect_pieces(const buffer *repaired, bool prefixed, buffer *expected)
{
    if (prefixed)
        buffer_append_byte(expected, ' ');
    for (size_t i = 0; i < repaired->size;) {
        bool mark = repaired->size - i >= 3 && memcmp(repaired->data + i, "\xe2\x96\x81", 3) == 0;
        buffer_append_byte(expected, mark ? ' ' : repaired->data[i]);
        i += mark ? 3 : 1;
    }
}

static void compare_text(int which, const token_list *list, const buffer *repaired)
{
    buffer raw = { 0 }, streamed = { 0 }, expected = { 0 }, composed = { 0 };
    detokenizer d = detokenizer_begin(tokens[which], true);
    for (size_t i = 0; i < list->count; i++) {
        buffer_append_slice(&raw, tokenizer_token_bytes(tokens[which], list->ids[i]));
        CHECK(detokenizer_push(&d, list->ids[i], &streamed) == STATUS_OK);
        CHECK(unicode_valid_size(buffer_slice(&streamed)) == streamed.size);
    }
    detokenizer_end(&d, &streamed);
    slice shown = buffer_slice(&raw);
    if (which == PIECES && shown.size > 0 && shown.data[0] == ' ')
        shown = (slice){ shown.data + 1, shown.size - 1 };
    CHECK(slice_equal(shown, buffer_slice(&streamed)));
    // Pieces between special tokens are composed each
    // by itself, so compare what is left to compose.
    if (which == QWEN2) {
        CHECK(unicode_append_composed(&expected, buffer_slice(repaired)) == STATUS_OK);
        CHECK(unicode_append_composed(&composed, buffer_slice(&raw)) == STATUS_OK);
        CHECK(slice_equal(buffer_slice(&composed), buffer_slice(&expected)));
    } else if (which < PIECES) {
        CHECK(slice_equal(buffer_slice(&raw), buffer_slice(repaired)));
    } else if (which == PIECES) {
        int32_t first = list->count > 0 ? list->ids[0] : TOKENIZER_NO_ID;
        tokenizer_kind kind = tokenizer_token_kind(tokens[which], first);
        bool special = kind == TOKENIZER_CONTROL || kind == TOKENIZER_USER_DEFINED;
        expect_pieces(repaired, list->count > 0 && !special, &expected);
        CHECK(slice_equal(buffer_slice(&raw), buffer_slice(&expected)));
    }
    buffer_close(&raw);
    buffer_close(&streamed);
    buffer_close(&expected);
    buffer_close(&composed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    encoder_segment segments[SEGMENTS_MAX];
    token_list list = { 0 };
    buffer repaired = { 0 };
    error failure = { 0 };
    for (int i = 0; i < TOKENIZERS && tokens[i] == NULL; i++)
        open_one(i);
    if (size < 2)
        return 0;
    int which = data[0] % TOKENIZERS;
    size_t count = cut((slice){ (const char *)data + 2, size - 2 }, data[1], segments);
    for (size_t i = 0; i < count; i++)
        unicode_append_valid(&repaired, segments[i].text);
    CHECK(encoder_encode(encoders[which], segments, count, SIZE_MAX, &list, &failure) == STATUS_OK);
    compare_text(which, &list, &repaired);
    list.count = 0;
    CHECK(encoder_encode_text(encoders[which], buffer_slice(&repaired), false, SIZE_MAX, &list,
                              &failure) == STATUS_OK);
    for (size_t i = 0; i < list.count; i++)
        CHECK(!tokenizer_is_control(tokens[which], list.ids[i]));
    token_list_close(&list);
    buffer_close(&repaired);
    return 0;
}
