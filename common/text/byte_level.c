// Byte-level BPE (tokenizer.ggml.model "gpt2"): tokens are strings of bytes, written in the file
// with a printable character for each byte; merges join them in the order of the file.
//
// Source: Radford et al. 2019 (GPT-2) and Hugging Face tokenizers' ByteLevel.
#include "text/tokenizer_private.h"

#include "text/unicode.h"

#include "base/random.h"

#include <stdlib.h>

// The byte that a character stands for, or -1. Bytes 21-7E, A1-AC and AE-FF are written as the
// character of their number; the other 68, ascending (00-20, 7F-A0, AD), as U+0100 to U+0143.
static int mapped_byte(int32_t code_point)
{
    if ((code_point >= 0x21 && code_point <= 0x7e) || (code_point >= 0xa1 && code_point <= 0xac) ||
        (code_point >= 0xae && code_point <= 0xff))
        return code_point;
    if (code_point >= 0x100 && code_point <= 0x120)
        return code_point - 0x100;
    if (code_point >= 0x121 && code_point <= 0x142)
        return code_point - 0x121 + 0x7f;
    return code_point == 0x143 ? 0xad : -1;
}

// False (and nothing but part of the bytes appended) where a character stands for no byte.
static bool append_mapped(slice text, buffer *bytes)
{
    if (unicode_valid_size(text) != text.size)
        return false;
    for (size_t at = 0, size; at < text.size; at += size) {
        int byte = mapped_byte(unicode_decode(text.data + at, &size));
        if (byte < 0)
            return false;
        buffer_append_byte(bytes, (char)byte);
    }
    return true;
}

static bool token_bytes(slice text, tokenizer_kind kind, buffer *bytes)
{
    // Added tokens are written as they are.
    if (kind == TOKENIZER_CONTROL || kind == TOKENIZER_USER_DEFINED)
        return false;
    return append_mapped(text, bytes);
}

static uint64_t slot_of(const tokenizer *t, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    return random_mix(pair ^ t->hash_seed) & t->merges_mask;
}

static const tokenizer_merge *find_merge(const tokenizer *t, int32_t left, int32_t right)
{
    for (uint64_t slot = slot_of(t, left, right);; slot = (slot + 1) & t->merges_mask) {
        const tokenizer_merge *merge = &t->merges[slot];
        if (merge->left < 0 || (merge->left == left && merge->right == right))
            return merge;
    }
}

static status bad_merge(const gguf *file, uint64_t index, slice text, const char *why,
                        error *failure)
{
    return tokenizer_fail(file, failure, STATUS_BAD_FILE, "tokenizer.ggml.merges",
                          "tokenizer.ggml.merges: merge %llu (\"%.*s\") %s",
                          (unsigned long long)index, text.size < 64 ? (int)text.size : 64,
                          text.data, why);
}

// "left right": the bytes of both go to `bytes`, *middle is where the right one begins.
static bool cut_merge(slice text, buffer *bytes, size_t *middle)
{
    const char *space = text.size > 1 ? memchr(text.data + 1, ' ', text.size - 1) : NULL;
    if (space == NULL)
        return false;
    size_t left = (size_t)(space - text.data);
    buffer_clear(bytes);
    if (!append_mapped((slice){ text.data, left }, bytes))
        return false;
    *middle = bytes->size;
    return append_mapped((slice){ space + 1, text.size - left - 1 }, bytes) &&
           bytes->size > *middle && *middle > 0;
}

static status add_merge(tokenizer *t, const gguf *file, uint64_t index, slice text, buffer *bytes,
                        error *failure)
{
    size_t middle;
    if (!cut_merge(text, bytes, &middle))
        return bad_merge(file, index, text, "is not two tokens with a space between", failure);
    int32_t left = tokenizer_find(t, (slice){ bytes->data, middle });
    int32_t right = tokenizer_find(t, (slice){ bytes->data + middle, bytes->size - middle });
    int32_t joined = tokenizer_find(t, buffer_slice(bytes));
    if (left < 0 || right < 0 || joined < 0)
        return bad_merge(file, index, text,
                         "names a token, or makes one, that tokenizer.ggml.tokens lacks", failure);
    tokenizer_merge *slot = (tokenizer_merge *)find_merge(t, left, right);
    // A pair that comes again keeps its first place.
    if (slot->left < 0)
        *slot = (tokenizer_merge){ left, right, (uint32_t)index, joined };
    return STATUS_OK;
}

static status read_merges(tokenizer *t, const gguf *file, error *failure)
{
    status result = STATUS_OK;
    gguf_array texts;
    buffer bytes = { 0 };
    TRY(gguf_get_array(file, "tokenizer.ggml.merges", GGUF_STRING, &texts, failure));
    uint64_t slots = 16, count = texts.count;
    // The reader has seen 8 bytes a merge, so the table is at most 4 times as large as they are.
    while (slots < count * 2)
        slots *= 2;
    t->merges = malloc(slots * sizeof(t->merges[0]));
    if (t->merges == NULL || count > INT32_MAX) {
        result = tokenizer_fail(file, failure, STATUS_NO_MEMORY, "tokenizer.ggml.merges",
                                "memory is short");
        goto fail;
    }
    t->merges_mask = slots - 1;
    for (uint64_t i = 0; i < slots; i++)
        t->merges[i].left = -1;
    for (uint64_t i = 0; i < count; i++)
        TRY(add_merge(t, file, i, gguf_array_take_string(&texts), &bytes, failure));
fail:
    buffer_close(&bytes);
    return result;
}

static status read_model(tokenizer *t, const gguf *file, error *failure)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text = (char)byte;
        t->byte_ids[byte] = tokenizer_find(t, (slice){ &text, 1 });
    }
    return read_merges(t, file, failure);
}

// A byte without a token gives nothing, and its neighbours become neighbours (as in the reference).
static bool split(const tokenizer *t, slice piece, merge_work *work)
{
    for (size_t i = 0; i < piece.size; i++) {
        int32_t id = t->byte_ids[(uint8_t)piece.data[i]];
        if (id >= 0 && !merge_append(work, id, (uint32_t)i, 1))
            return false;
    }
    return true;
}

static bool pair(const void *context, const merge_symbol *left, const merge_symbol *right,
                 uint32_t *rank, int32_t *id)
{
    const tokenizer_piece *piece = context;
    const tokenizer_merge *merge = find_merge(piece->tokens, left->id, right->id);
    *rank = merge->rank;
    *id = merge->id;
    return merge->left >= 0;
}

const tokenizer_algorithm tokenizer_byte_level = {
    .name = "gpt2",
    .token_bytes = token_bytes,
    .read = read_model,
    .split = split,
    .pair = pair,
};
