// The merge loop that byte-level BPE and SentencePiece BPE share: the best adjacent pair is joined
// until none is left. Pairs wait in a heap by (rank, position), so it takes O(n log n).
//
// Source: Sennrich, Haddow, Birch 2016, "Neural machine translation of
// rare words with subword units"; ties go to the left, as in Hugging
// Face tokenizers and SentencePiece. One thread per merge_work.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct merge_symbol {
    int32_t id;             // token, or -1 for text that is none by itself
    uint32_t start;         // where its text begins, in bytes
    uint32_t length;        // of its text in bytes; 0: merged into another one
    int32_t previous, next; // -1 at the ends
} merge_symbol;

typedef struct merge_candidate {
    uint64_t order;  // rank << 32 | position of the left symbol
    uint32_t length; // of both together, to see whether the pair is still the same
    int32_t id;      // of the two joined
} merge_candidate;

typedef struct merge_work {
    merge_symbol *symbols;
    size_t count, capacity;
    merge_candidate *heap;
    size_t heap_count, heap_capacity;
} merge_work;

// What two neighbours make: false where they do not
// join; else the token and its rank (lower first).
typedef bool (*merge_pair)(const void *context, const merge_symbol *left, const merge_symbol *right,
                           uint32_t *rank, int32_t *id);

void merge_work_close(merge_work *work);
// Forget the symbols; gives memory back where the last text was unusually long.
void merge_clear(merge_work *work);
// Add a symbol behind the others; false where memory is short.
bool merge_append(merge_work *work, int32_t id, uint32_t start, uint32_t length);
// Join until nothing joins. What is left is the list from symbols[0] along `next`. False where
// memory is short.
bool merge_run(merge_work *work, merge_pair pair, const void *context);
