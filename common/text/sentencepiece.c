// SentencePiece BPE with byte fallback (tokenizer.ggml.model "llama"): tokens are strings of
// characters; of all adjacent pairs that make a token, the one with the best score is joined first.
//
// Source: Kudo, Richardson 2018 (SentencePiece), bpe_model. The library
// writes a space as U+2581; here tokens and text hold the space itself
// and a literal U+2581 is read as one, which comes to the same.
#include "text/tokenizer_private.h"

#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SPACE_MARK "\xe2\x96\x81"

static int hex_value(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

// "<0xNN>" -> NN; -1 for another text.
static int byte_of(slice text)
{
    if (text.size != 6 || memcmp(text.data, "<0x", 3) != 0 || text.data[5] != '>')
        return -1;
    int high = hex_value(text.data[3]), low = hex_value(text.data[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

static bool token_bytes(slice text, tokenizer_kind kind, buffer *bytes)
{
    int byte = byte_of(text);
    if (kind == TOKENIZER_BYTE && byte >= 0) {
        buffer_append_byte(bytes, (char)byte);
        return true;
    }
    if (kind != TOKENIZER_NORMAL)
        return false;
    for (size_t i = 0; i < text.size;) {
        bool mark = text.size - i >= 3 && memcmp(text.data + i, SPACE_MARK, 3) == 0;
        buffer_append_byte(bytes, mark ? ' ' : text.data[i]);
        i += mark ? 3 : 1;
    }
    return true;
}

typedef struct scored {
    double score;
    int32_t id;
} scored;

static int score_compare(const void *a, const void *b)
{
    double left = ((const scored *)a)->score, right = ((const scored *)b)->score;
    return (left < right) - (left > right);
}

// Equal scores get equal ranks, so that the position decides between them.
static status rank_scores(tokenizer *t, const gguf *file, const gguf_array *scores, error *failure)
{
    scored *order = calloc((size_t)t->count, sizeof(*order));
    t->score_ranks = calloc((size_t)t->count, sizeof(t->score_ranks[0]));
    if (order == NULL || t->score_ranks == NULL) {
        free(order);
        return tokenizer_fail(file, failure, STATUS_NO_MEMORY, "tokenizer.ggml.scores",
                              "memory is short");
    }
    for (int32_t i = 0; i < t->count; i++) {
        order[i] = (scored){ gguf_array_f64(scores, (uint64_t)i), i };
        if (isnan(order[i].score)) {
            free(order);
            return tokenizer_fail(file, failure, STATUS_BAD_FILE, "tokenizer.ggml.scores",
                                  "tokenizer.ggml.scores of token %d is not a number", i);
        }
    }
    qsort(order, (size_t)t->count, sizeof(*order), score_compare);
    for (int32_t i = 0; i < t->count; i++) {
        bool same = i > 0 && order[i].score == order[i - 1].score;
        t->score_ranks[order[i].id] = same ? t->score_ranks[order[i - 1].id] : (uint32_t)i;
    }
    free(order);
    return STATUS_OK;
}

static status read_model(tokenizer *t, const gguf *file, error *failure)
{
    status result = STATUS_OK;
    gguf_array scores;
    bool removes;
    TRY(gguf_get_bool_or(file, "tokenizer.ggml.remove_extra_whitespaces", false, &removes,
                         failure));
    if (removes) {
        result = tokenizer_fail(
            file, failure, STATUS_UNSUPPORTED, "tokenizer.ggml.remove_extra_whitespaces",
            "tokenizer.ggml.remove_extra_whitespaces is true, which is not supported");
        goto fail;
    }
    TRY(gguf_get_array(file, "tokenizer.ggml.scores", GGUF_F64, &scores, failure));
    if (scores.count != (uint64_t)t->count) {
        result = tokenizer_fail(file, failure, STATUS_BAD_FILE, "tokenizer.ggml.scores",
                                "tokenizer.ggml.scores has %llu entries for %d tokens",
                                (unsigned long long)scores.count, t->count);
        goto fail;
    }
    TRY(rank_scores(t, file, &scores, failure));
    for (int32_t i = 0; i < t->count; i++) {
        slice bytes = tokenizer_token_bytes(t, i);
        if (t->kinds[i] == TOKENIZER_BYTE && bytes.size == 1)
            t->byte_ids[(uint8_t)bytes.data[0]] = i;
    }
fail:
    return result;
}

static bool split(const tokenizer *t, slice piece, merge_work *work)
{
    for (size_t at = 0, size; at < piece.size; at += size) {
        size = utf8_sequence_size(piece.data + at, piece.size - at);
        CHECK(size > 0);
        int32_t id = tokenizer_find(t, (slice){ piece.data + at, size });
        if (!merge_append(work, id, (uint32_t)at, (uint32_t)size))
            return false;
    }
    return true;
}

static bool pair(const void *context, const merge_symbol *left, const merge_symbol *right,
                 uint32_t *rank, int32_t *id)
{
    const tokenizer_piece *piece = context;
    const tokenizer *t = piece->tokens;
    uint32_t length = left->length + right->length;
    if (length > t->longest)
        return false;
    *id = tokenizer_find(t, (slice){ piece->text + left->start, length });
    if (*id < 0)
        return false;
    *rank = t->score_ranks[*id];
    return true;
}

const tokenizer_algorithm tokenizer_sentencepiece = {
    .name = "llama",
    .token_bytes = token_bytes,
    .read = read_model,
    .split = split,
    .pair = pair,
    .reads_space_marks = true,
};
