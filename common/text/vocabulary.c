#include "text/tokenizer_private.h"

#include "text/unicode.h"

#include "base/hash.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

// Ids travel as int32, and a vocabulary beyond this is a damaged file.
#define TOKENS_MAX (1 << 24)

status tokenizer_fail(const gguf *file, error *failure, status code, const char *key,
                      const char *format, ...)
{
    char text[320];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    error_set(failure, code, key, "%s", text);
    error_prefix(failure, "%s", gguf_path(file));
    return code;
}

// Token types; without the key all are normal.
static status read_kinds(tokenizer *t, const gguf *file, error *failure)
{
    static const char key[] = "tokenizer.ggml.token_type";
    status result = STATUS_OK;
    gguf_array kinds;
    memset(t->kinds, TOKENIZER_NORMAL, (size_t)t->count);
    if (!gguf_has(file, key, NULL))
        return STATUS_OK;
    TRY(gguf_get_array(file, key, GGUF_U64, &kinds, failure));
    if (kinds.count != (uint64_t)t->count)
        return tokenizer_fail(file, failure, STATUS_BAD_FILE, key,
                              "%s has %llu entries for %d tokens", key,
                              (unsigned long long)kinds.count, t->count);
    for (int32_t i = 0; i < t->count; i++) {
        uint64_t kind;
        if (!gguf_array_u64(&kinds, (uint64_t)i, &kind) || kind < TOKENIZER_NORMAL ||
            kind > TOKENIZER_BYTE)
            return tokenizer_fail(file, failure, STATUS_BAD_FILE, key,
                                  "%s of token %d is not 1 to 6", key, i);
        t->kinds[i] = (uint8_t)kind;
    }
fail:
    return result;
}

// All tokens' raw bytes behind one another.
static status read_bytes(tokenizer *t, const gguf *file, gguf_array texts, error *failure)
{
    buffer all = { .limit = UINT32_MAX };
    buffer_reserve(&all, 1); // so that there is memory even where all tokens are empty
    for (int32_t i = 0; i < t->count; i++) {
        slice text = gguf_array_take_string(&texts);
        t->offsets[i] = (uint32_t)all.size;
        if (!t->algorithm->token_bytes(text, (tokenizer_kind)t->kinds[i], &all)) {
            all.size = t->offsets[i];
            buffer_append_slice(&all, text);
        }
        uint32_t size = (uint32_t)all.size - t->offsets[i];
        if (size > t->longest)
            t->longest = size;
    }
    t->offsets[t->count] = (uint32_t)all.size;
    t->bytes = all.data;
    return all.overflow ? tokenizer_fail(file, failure, STATUS_BAD_FILE, "tokenizer.ggml.tokens",
                                         "the tokens have more than 4 GiB, or memory is short")
                        : STATUS_OK;
}

static bool is_special(const tokenizer *t, int32_t id)
{
    return t->kinds[id] == TOKENIZER_CONTROL || t->kinds[id] == TOKENIZER_USER_DEFINED;
}

// Special tokens are cut out of a text, and what is left on both sides must be whole characters.
static status check_specials(const tokenizer *t, const gguf *file, error *failure)
{
    for (int32_t i = 0; i < t->count; i++) {
        slice bytes = tokenizer_token_bytes(t, i);
        if (is_special(t, i) && unicode_valid_size(bytes) != bytes.size)
            return tokenizer_fail(file, failure, STATUS_BAD_FILE, "tokenizer.ggml.tokens",
                                  "tokenizer.ggml.tokens: token %d is a control or user-defined "
                                  "one and is not UTF-8",
                                  i);
    }
    return STATUS_OK;
}

static int bytes_compare(slice a, slice b)
{
    int order = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
    if (order != 0)
        return order;
    return a.size < b.size ? -1 : a.size > b.size;
}

static int special_compare(const void *a, const void *b, void *context)
{
    int32_t left = *(const int32_t *)a, right = *(const int32_t *)b;
    int order =
        bytes_compare(tokenizer_token_bytes(context, left), tokenizer_token_bytes(context, right));
    return order != 0 ? order : (left > right) - (left < right);
}

static bool index_specials(tokenizer *t)
{
    size_t count = 0;
    for (int32_t i = 0; i < t->count; i++)
        count += is_special(t, i);
    t->specials = calloc(count + 1, sizeof(t->specials[0]));
    if (t->specials == NULL)
        return false;
    for (int32_t i = 0; i < t->count; i++) {
        slice bytes = tokenizer_token_bytes(t, i);
        if (!is_special(t, i) || bytes.size == 0)
            continue;
        t->specials[t->special_count++] = i;
        t->special_first[(uint8_t)bytes.data[0]] = true;
        if (t->kinds[i] == TOKENIZER_USER_DEFINED)
            t->user_defined_first[(uint8_t)bytes.data[0]] = true;
    }
    qsort_r(t->specials, t->special_count, sizeof(t->specials[0]), special_compare, t);
    // Of several with one text the lowest id is meant.
    count = 0;
    for (size_t i = 0; i < t->special_count; i++)
        if (i == 0 || !slice_equal(tokenizer_token_bytes(t, t->specials[i]),
                                   tokenizer_token_bytes(t, t->specials[i - 1])))
            t->specials[count++] = t->specials[i];
    t->special_count = count;
    return true;
}

static uint64_t slot_of(const tokenizer *t, slice bytes)
{
    return hash64_of(bytes.data, bytes.size, t->hash_seed) & t->by_bytes_mask;
}

static bool index_bytes(tokenizer *t)
{
    uint64_t slots = 16;
    while (slots < (uint64_t)t->count * 2)
        slots *= 2;
    t->by_bytes = malloc(slots * sizeof(t->by_bytes[0]));
    if (t->by_bytes == NULL)
        return false;
    memset(t->by_bytes, 0xff, slots * sizeof(t->by_bytes[0]));
    t->by_bytes_mask = slots - 1;
    for (int32_t i = 0; i < t->count; i++) {
        slice bytes = tokenizer_token_bytes(t, i);
        if (t->kinds[i] != TOKENIZER_NORMAL || bytes.size == 0 || tokenizer_find(t, bytes) >= 0)
            continue;
        for (size_t j = 1; j < bytes.size; j++) {
            unsigned two = (unsigned)(uint8_t)bytes.data[j - 1] << 8 | (uint8_t)bytes.data[j];
            t->neighbours[two / 64] |= 1ull << two % 64;
        }
        uint64_t slot = slot_of(t, bytes);
        while (t->by_bytes[slot] >= 0)
            slot = (slot + 1) & t->by_bytes_mask;
        t->by_bytes[slot] = i;
    }
    return true;
}

int32_t tokenizer_find(const tokenizer *t, slice bytes)
{
    for (uint64_t slot = slot_of(t, bytes);; slot = (slot + 1) & t->by_bytes_mask) {
        int32_t id = t->by_bytes[slot];
        if (id < 0 || slice_equal(tokenizer_token_bytes(t, id), bytes))
            return id;
    }
}

status tokenizer_read_vocabulary(tokenizer *t, const gguf *file, error *failure)
{
    status result = STATUS_OK;
    gguf_array texts;
    TRY(gguf_get_array(file, "tokenizer.ggml.tokens", GGUF_STRING, &texts, failure));
    if (texts.count == 0 || texts.count > TOKENS_MAX)
        return tokenizer_fail(file, failure, STATUS_BAD_FILE, "tokenizer.ggml.tokens",
                              "tokenizer.ggml.tokens has %llu tokens; 1 to %d are allowed",
                              (unsigned long long)texts.count, TOKENS_MAX);
    t->count = (int32_t)texts.count;
    t->offsets = calloc((size_t)t->count + 1, sizeof(t->offsets[0]));
    t->kinds = calloc((size_t)t->count, 1);
    if (t->offsets == NULL || t->kinds == NULL)
        return tokenizer_fail(file, failure, STATUS_NO_MEMORY, "tokenizer", "memory is short");
    TRY(read_kinds(t, file, failure));
    TRY(read_bytes(t, file, texts, failure));
    TRY(check_specials(t, file, failure));
    if (!index_specials(t) || !index_bytes(t))
        return tokenizer_fail(file, failure, STATUS_NO_MEMORY, "tokenizer", "memory is short");
fail:
    return result;
}

int32_t tokenizer_special_find(const tokenizer *t, slice text)
{
    size_t low = 0, high = t->special_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (bytes_compare(tokenizer_token_bytes(t, t->specials[middle]), text) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    bool found =
        low < t->special_count && slice_equal(tokenizer_token_bytes(t, t->specials[low]), text);
    return found ? t->specials[low] : TOKENIZER_NO_ID;
}

// The first of specials[low, high), which agree in their first `depth` bytes, whose byte `depth` is
// at least `wanted` (a token that ends there comes before all).
static size_t narrow(const tokenizer *t, size_t low, size_t high, size_t depth, unsigned wanted)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        slice bytes = tokenizer_token_bytes(t, t->specials[middle]);
        if (bytes.size <= depth || (uint8_t)bytes.data[depth] < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int32_t tokenizer_match_special(const tokenizer *t, slice text, size_t control_size)
{
    int32_t longest = TOKENIZER_NO_ID;
    size_t low = 0, high = t->special_count;
    for (size_t depth = 0; depth < text.size; depth++) {
        unsigned byte = (uint8_t)text.data[depth];
        low = narrow(t, low, high, depth, byte);
        high = narrow(t, low, high, depth, byte + 1);
        if (low == high)
            break;
        // One that ends here stands first.
        int32_t id = t->specials[low];
        if (tokenizer_token_bytes(t, id).size == depth + 1 &&
            (t->kinds[id] == TOKENIZER_USER_DEFINED || depth < control_size))
            longest = id;
    }
    return longest;
}
