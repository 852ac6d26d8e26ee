// Token ids to text, one token at a time: only whole characters come out.
//
// A token may end inside a character, so at most 3 bytes that can still become one are held back.
// Bytes that can never be part of a character are not held: each maximal ill-formed part becomes
// one U+FFFD (the WHATWG rule). What has come out by the end does not depend on where tokens begin
// and end. A detokenizer belongs to one thread; it is plain data without memory of its own, so it
// needs no close.
#pragma once

#include "text/tokenizer.h"

typedef struct detokenizer {
    const tokenizer *tokens;
    bool keep_control; // print control tokens as their text; else they give nothing
    int32_t shown;     // but for this one, which is printed all the same (TOKENIZER_NO_ID: none)
    bool drop_space; // the next byte that comes is dropped if it is a space (SentencePiece prefix)
    uint8_t held[4]; // the beginning of a character
    uint8_t held_count; // 0..3 between calls
} detokenizer;

// The text of a whole prompt: the space that the tokenizer put in front of it is dropped again. `t`
// must outlive it.
detokenizer detokenizer_begin(const tokenizer *t, bool keep_control);
// What goes on from a text, such as an answer: a space in front is part of it.
detokenizer detokenizer_continue(const tokenizer *t, bool keep_control);
// Append what `id` completes to `text`; it may be nothing. An id that the vocabulary lacks:
// STATUS_NOT_FOUND, nothing changes.
status detokenizer_push(detokenizer *d, int32_t id, buffer *text);
// Raw bytes as if a token had them (forced prefixes, tests).
void detokenizer_push_bytes(detokenizer *d, slice bytes, buffer *text);
// The end of the answer: an unfinished character
// becomes one U+FFFD. Nothing may follow.
void detokenizer_end(detokenizer *d, buffer *text);
