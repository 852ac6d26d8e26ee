// Text to token ids. An encoder is the working memory of one thread (match data, merge arrays, a
// cache of short pieces) over a shared tokenizer; open one a thread and keep it.
//
// Steps: bytes that are not UTF-8 become U+FFFD (one for each maximal ill-formed
// part, the WHATWG rule); added tokens are cut out, leftmost-longest; the text
// between is normalised, split by the family's pre-tokenizer and each piece is
// merged. Time is O(n log n) in the worst case, whatever the text.
#pragma once

#include "text/tokenizer.h"

typedef struct encoder encoder;

// Part of a prompt. Control tokens are recognised only where they lie wholly in adjacent segments
// that allow it: a template's markup allows, the content that clients send does not. User-defined
// tokens are recognised everywhere. Apart from that the ids are those of the concatenation.
typedef struct encoder_segment {
    slice text;
    bool allow_special;
} encoder_segment;

// A growing list of ids, owned by the caller. A zeroed one is valid and empty.
typedef struct token_list {
    int32_t *ids;
    size_t count;
    size_t capacity;
} token_list;
void token_list_close(token_list *list); // frees and zeroes
// Append; false where memory is short.
bool token_list_append(token_list *list, int32_t id);
// Give back what is reserved beyond the count, of a list that stays as it is.
void token_list_fit(token_list *list);

// The tokenizer must outlive the encoder.
status encoder_open(const tokenizer *t, encoder **opened);
void encoder_close(encoder *e);

// Append the ids of the segments to `list`. No BOS or EOS is added. More than
// `limit` ids in this call: STATUS_TOO_LARGE with a sentence (known early
// where the bytes alone cannot fit), and `list` is as it was before. Each
// segment is made valid UTF-8 by itself. NUL is a character like any other.
status encoder_encode(encoder *e, const encoder_segment *segments, size_t count, size_t limit,
                      token_list *list, error *failure);
// One text, as above.
status encoder_encode_text(encoder *e, slice text, bool allow_special, size_t limit,
                           token_list *list, error *failure);
