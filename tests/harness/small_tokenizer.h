// A small byte-level tokenizer for tests, as GGUF metadata: 256 byte tokens, a few merges, special
// tokens. Ids: 0-255 are the bytes, then the joined tokens in the order of `merges`, then control
// tokens, then user-defined ones. One thread.
#pragma once

#include "harness/gguf_builder.h"

typedef struct small_tokenizer {
    const char *pre;           // NULL: "gpt-2"
    const char *const *merges; // "a b" in raw ASCII letters; NULL-ended
    const char *const *controls;
    const char *const *user_defined;
} small_tokenizer;

// Put the tokenizer's keys into `b` (model, pre, tokens, token_type, merges), no ids.
void small_tokenizer_put(gguf_builder *b, const small_tokenizer *what);
// Append the character that stands for `byte` in a byte-level vocabulary.
void small_tokenizer_put_byte(buffer *text, unsigned byte);
