// Where guesses of the next tokens come from: one interface, one file for each kind.
//
// A drafter follows the sequences of one decode worker, each in a slot of its own, and guesses what
// they draw next. A guess is never more than a guess: the engine verifies it, so a drafter may be
// wrong, slow to learn, or know nothing, and no answer changes. It says with each guess how sure it
// is (its band), and the controller learns what guesses of each band are worth.
//
// All calls come from the step thread between two steps. Memory is bounded by what `open` was told.
#pragma once

#include "base/config.h"
#include "base/hash.h"

#define DRAFT_MAX 32  // tokens of one guess
#define DRAFT_BANDS 4 // 0: least sure

typedef struct drafter_limits {
    int32_t slots;   // sequences at a time
    int32_t context; // tokens of a sequence at most
    int64_t memory;  // tokens of past answers that may be kept (suffix)
} drafter_limits;

typedef struct draft {
    int32_t tokens[DRAFT_MAX];
    int32_t count; // 0: no guess
    int32_t band;  // 0..DRAFT_BANDS-1
} draft;

typedef struct drafter_kind {
    const char *name;
    // STATUS_NO_MEMORY.
    status (*open)(const drafter_limits *limits, void **opened, error *failure);
    void (*close)(void *drafter); // NULL is allowed
    // A sequence takes a slot; only sequences of one tenant learn from each other.
    void (*begin)(void *drafter, int32_t slot, hash128 tenant);
    // Guess up to `limit` (<= DRAFT_MAX) tokens behind tokens[count], which begin as they did at
    // the slot's last call.
    void (*guess)(void *drafter, int32_t slot, const int32_t *tokens, int32_t count, int32_t limit,
                  draft *guess);
    // The sequence has ended with these tokens; its slot is free.
    void (*end)(void *drafter, int32_t slot, const int32_t *tokens, int32_t prompt_count,
                int32_t count);
} drafter_kind;

// The request's own text: what followed the longest earlier occurrence of its last tokens. Finds
// candidates as LZ77 compressors do (hash chains: Deutsch, RFC 1951 section 4).
extern const drafter_kind drafter_ngram;
// Recent answers of this worker, of the same tenant: what followed the latest occurrence of the
// longest suffix that they hold (suffix automaton: Blumer et al., 1985).
extern const drafter_kind drafter_suffix;

// The band of a match of so many tokens.
static inline int32_t drafter_band(int32_t length)
{
    return length <= 2 ? 0 : length <= 5 ? 1 : length <= 12 ? 2 : 3;
}
