// Small tokenizers for tests, as GGUF metadata. One thread.
//
// Byte-level: 256 byte tokens, a few merges, special tokens. Ids: 0-255 are the bytes, then the
// joined tokens in the order of `merges`, then control tokens, then user-defined ones.
//
// SentencePiece: ids are 0 for <unk>, 1-256 for the bytes where they are wanted, then the pieces,
// the earlier the better their score, then control tokens, then user-defined ones.
#pragma once

#include "harness/gguf_builder.h"

#include <stdbool.h>

typedef struct small_tokenizer {
    const char *pre;           // NULL: "gpt-2"
    const char *const *merges; // "a b" in raw ASCII letters; NULL-ended
    const char *const *controls;
    const char *const *user_defined;
} small_tokenizer;

// Put the tokenizer's keys into `b` (model, pre, tokens, token_type, merges), no ids.
void small_tokenizer_put(gguf_builder *b, const small_tokenizer *what);

typedef struct small_pieces {
    bool bytes;                // byte tokens, so that every text has ids
    const char *const *pieces; // UTF-8 with U+2581 for a space; NULL-ended
    const char *const *controls;
    const char *const *user_defined;
} small_pieces;

// The same for SentencePiece (model, tokens, scores, token_type, unknown_token_id).
void small_tokenizer_put_pieces(gguf_builder *b, const small_pieces *what);
// Append the character that stands for `byte` in a byte-level vocabulary.
void small_tokenizer_put_byte(buffer *text, unsigned byte);
