// The tokenizer of a model, made from its GGUF metadata: vocabulary, special tokens, pre-tokenizer
// and merge algorithm. Encoding is text/encoder.h, decoding text/detokenizer.h.
//
// tokenizer.ggml.model chooses the algorithm, tokenizer.ggml.pre the pre-tokenizer
// (text/pretokenizer.h); a value that has no row in these tables is refused by name. A tokenizer
// copies what it needs: the file may be closed afterwards. It is immutable, so any number of
// threads may use one.
#pragma once

#include "base/buffer.h"
#include "base/status.h"
#include "checkpoint/gguf.h"

typedef struct tokenizer tokenizer;

// What a token is, numbered as tokenizer.ggml.token_type.
typedef enum tokenizer_kind {
    TOKENIZER_NORMAL = 1,
    TOKENIZER_UNKNOWN = 2,
    TOKENIZER_CONTROL = 3,      // matched in text only where special tokens are allowed
    TOKENIZER_USER_DEFINED = 4, // matched in text always, before anything else
    TOKENIZER_UNUSED = 5,
    TOKENIZER_BYTE = 6, // <0xNN>: stands for one byte
} tokenizer_kind;

#define TOKENIZER_NO_ID (-1)

// STATUS_BAD_FILE or STATUS_UNSUPPORTED with a sentence naming the key.
status tokenizer_open(const gguf *file, tokenizer **opened, error *failure);
void tokenizer_close(tokenizer *t);

// Ids are 0 .. count-1. The functions below take any int32 and answer as said for ids outside.
int32_t tokenizer_token_count(const tokenizer *t);
// The raw bytes that a token stands for (perhaps half a character; the own text of control and
// user-defined tokens); empty for an id outside. Lives as long as the tokenizer.
slice tokenizer_token_bytes(const tokenizer *t, int32_t id);
// TOKENIZER_UNUSED for an id outside.
tokenizer_kind tokenizer_token_kind(const tokenizer *t, int32_t id);
bool tokenizer_is_control(const tokenizer *t, int32_t id);
// The control or user-defined token with exactly this text, or TOKENIZER_NO_ID.
int32_t tokenizer_special_find(const tokenizer *t, slice text);

// Special ids of the file, or TOKENIZER_NO_ID where it names none.
int32_t tokenizer_bos(const tokenizer *t);
int32_t tokenizer_eos(const tokenizer *t);
int32_t tokenizer_unknown(const tokenizer *t);
int32_t tokenizer_padding(const tokenizer *t);
// The ids that end a generation, ascending: the file's eos, eot and eom, and every control or
// user-defined token with one of the spellings that families use for them (<|im_end|>, <|eot_id|>,
// <end_of_turn> and so on).
const int32_t *tokenizer_end_ids(const tokenizer *t, size_t *count);
bool tokenizer_is_end(const tokenizer *t, int32_t id);
// Whether a raw prompt gets the BOS in front, or the
// EOS behind (rendered chat templates bring their own).
bool tokenizer_adds_bos(const tokenizer *t);
bool tokenizer_adds_eos(const tokenizer *t);
// Whether a text gets a space in front that decoding takes away again (SentencePiece).
bool tokenizer_adds_space(const tokenizer *t);
