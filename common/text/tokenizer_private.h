// What the tokenizer's own files share; nobody else includes it.
#pragma once

#include "text/merge.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"

// A row per tokenizer.ggml.model.
typedef struct tokenizer_algorithm {
    const char *name;
    // Raw bytes of a token as its text is written in
    // the file; false: the text is what it stands for.
    bool (*token_bytes)(slice text, tokenizer_kind kind, buffer *bytes);
    // What the algorithm reads beside the tokens.
    status (*read)(tokenizer *t, const gguf *file, error *failure);
    // Append the first symbols of one piece to `work`; false where memory is short.
    bool (*split)(const tokenizer *t, slice piece, merge_work *work);
    merge_pair pair;        // its context is a tokenizer_piece
    bool reads_space_marks; // U+2581 in a text is a space
} tokenizer_algorithm;

extern const tokenizer_algorithm tokenizer_byte_level, tokenizer_sentencepiece;

typedef struct tokenizer_piece {
    const tokenizer *tokens;
    const char *text;
} tokenizer_piece;

// An entry of the merges table: the pair's ids, or -1 in a free slot.
typedef struct tokenizer_merge {
    int32_t left, right;
    uint32_t rank;
    int32_t id;
} tokenizer_merge;

struct tokenizer {
    const tokenizer_algorithm *algorithm;
    pretokenizer *pieces; // NULL: the text is one piece
    int32_t count;
    char *bytes;       // of all tokens
    uint32_t *offsets; // count + 1, into bytes
    uint8_t *kinds;    // tokenizer_kind
    uint32_t longest;  // bytes of a token
    int32_t bos, eos, unknown, padding;
    bool adds_bos, adds_eos, adds_space;
    int32_t *end_ids;
    size_t end_count;
    // Control and user-defined tokens, ascending by bytes, and the bytes that they begin with.
    int32_t *specials;
    size_t special_count;
    bool special_first[256];
    bool user_defined_first[256];
    // Tokens that merging can give, by their bytes: open addressing, -1 is free. The seed is drawn
    // at open, so no file can be made to collide.
    int32_t *by_bytes;
    uint64_t by_bytes_mask, hash_seed;
    int32_t byte_ids[256]; // the token of each byte, or -1
    // Bit a << 8 | b: some token that merging can give has byte a followed by b. Where a text has a
    // pair without its bit, no merge can cross, so it may be cut there (SentencePiece: before
    // nearly every space).
    uint64_t neighbours[1024];
    // Byte-level: merges by pair. SentencePiece: the rank of each token's score.
    tokenizer_merge *merges;
    uint64_t merges_mask;
    uint32_t *score_ranks;
};

// A failure of this file: "PATH: ..." and the code, which is returned.
status tokenizer_fail(const gguf *file, error *failure, status code, const char *key,
                      const char *format, ...) __attribute__((format(printf, 5, 6)));
// vocabulary.c: tokens, kinds and the tables over
// them, out of tokenizer.ggml.tokens and token_type.
status tokenizer_read_vocabulary(tokenizer *t, const gguf *file, error *failure);
// The token that merging can give with exactly these bytes, or -1.
int32_t tokenizer_find(const tokenizer *t, slice bytes);
// The longest special token at the front of `text` (control ones at most `control_size` bytes
// long), or -1.
int32_t tokenizer_match_special(const tokenizer *t, slice text, size_t control_size);
