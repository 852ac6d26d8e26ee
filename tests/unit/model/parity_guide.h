// For tests: a guide that is no grammar.
#pragma once

#include "model/engine.h"

#include <string.h>

// Behind an even id comes an odd one and the other way round; the text is complete from 40 on.
typedef struct parity {
    int32_t told, last;
} parity;

static inline void parity_begin(void *state)
{
    *(parity *)state = (parity){ 0 };
}

static inline bool parity_advance(void *state, int32_t token)
{
    parity *p = state;
    bool fine = token % 2 != p->last % 2;
    p->last = fine ? token : p->last;
    p->told += fine;
    return fine;
}

// What was told alternates.
static inline bool parity_rewind(void *state, int32_t count)
{
    parity *p = state;
    if (count > p->told)
        return false;
    p->told -= count;
    p->last += count % 2;
    return true;
}

static inline int32_t parity_follows(void *state, const int32_t *tokens, int32_t count)
{
    parity p = *(parity *)state;
    int32_t fine = 0;
    while (fine < count && parity_advance(&p, tokens[fine]))
        fine++;
    return fine;
}

static inline bool parity_mask(void *state, uint64_t *mask, int32_t words, bool *complete)
{
    const parity *p = state;
    memset(mask, p->last % 2 ? 0x55 : 0xaa, (size_t)words * sizeof mask[0]);
    mask[0] &= ~7ull; // the end ids are not the guide's
    *complete = p->told >= 40;
    return true;
}

// `told` is where it stands.
static inline sequence_guide parity_guide(parity *told)
{
    return (sequence_guide){ .state = told,
                             .begin = parity_begin,
                             .advance = parity_advance,
                             .rewind = parity_rewind,
                             .follows = parity_follows,
                             .mask = parity_mask };
}
